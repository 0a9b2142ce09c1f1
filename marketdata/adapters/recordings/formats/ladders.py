"""Whole ladders of binary markets, one a row, with a list of prices and one of sizes for each side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import coded
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import book_batch, derived_markets, frames_with_time
from marketdata.points.columns import Token

_LISTS = ("bid_prices", "bid_sizes", "ask_prices", "ask_sizes")
_NEEDED = ("market_slug", "outcome", "captured_at", *_LISTS)


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Books of their own moments; the set has no ids, so these are derived from the slug and the outcome."""
    labels: dict[str, list[str]] = {}
    winners: dict[str, str] = {}
    for frame, batch in frames_with_time(file):
        rows, token = coded(frame["market_slug"], frame["outcome"])
        names = tuple(Token(str(slug), f"{slug}:{outcome}", outcome) for slug, outcome in rows)
        for slug, outcome in rows:
            of_market = labels.setdefault(str(slug), [])
            of_market += [str(outcome)] if outcome not in of_market else []
        if "winning_outcome" in frame.columns:
            winners |= dict(frame.select("market_slug", "winning_outcome").drop_nulls().unique().iter_rows())
        batch.markets = [
            {**record, **_resolution(record["slug"], winners.get(record["slug"]))} for record in derived_markets(labels)
        ]
        cells = [(_pairs(*row[:2]), _pairs(*row[2:])) for row in frame.select(_LISTS).iter_rows()]
        yield book_batch(batch, frame, reading, (names, token), cells)


def _resolution(slug: str, winner: str | None) -> dict[str, str]:
    return {"resolved_token_id": f"{slug}:{winner}", "resolved_token_label": winner} if winner else {}


def _pairs(prices: Any, sizes: Any) -> Any:
    """The levels of a side; a number, which no levels are, if the lists differ in length or cannot be read."""
    try:
        prices, sizes = (msgspec.json.decode(x) if isinstance(x, str) else x or [] for x in (prices, sizes))
        return list(zip(prices, sizes, strict=True))
    except (TypeError, ValueError, msgspec.MsgspecError):
        return -1


FORMAT = Format(
    name="ladders",
    kind="books",
    description="a table of whole books as lists of prices and sizes; ids are derived from slug and outcome",
    needs=" ".join(_NEEDED),
    fits=having(*((name,) for name in _NEEDED)),
    read=read,
)
