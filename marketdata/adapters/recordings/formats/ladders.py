"""Whole ladders of binary markets, one a row, with a list of prices and one of sizes for each side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import Sides, book_batch, derived_markets, sides_of

_LISTS = ("bid_prices", "bid_sizes", "ask_prices", "ask_sizes")


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Books of their own moments; the set has no ids, so these are derived from the slug and the outcome."""
    labels: dict[str, list[str]] = {}
    winners: dict[str, str] = {}
    for frame, batch in FORMAT.rows(file, options):
        for slug, label in frame.select("market_id", "token_label").unique(maintain_order=True).iter_rows():
            labels.setdefault(slug, [])
            labels[slug] += [label] if label not in labels[slug] else []
        if "winning_outcome" in frame.columns:
            winners |= dict(frame.select("market_id", "winning_outcome").drop_nulls().unique().iter_rows())
        batch.markets = [
            {**record, **_resolution(record["slug"], winners.get(record["slug"]))} for record in derived_markets(labels)
        ]
        books = [_sides_of_lists(*lists) for lists in frame.select(_LISTS).iter_rows()]
        yield book_batch(batch, frame, options, books)


def _resolution(slug: str, winner: str | None) -> dict[str, str]:
    return {"resolved_token_id": f"{slug}:{winner}", "resolved_token_label": winner} if winner else {}


def _sides_of_lists(*lists: Any) -> Sides | None:
    """The sides of a book; None if two lists differ in length, or one cannot be read."""
    try:
        decoded = [msgspec.json.decode(cell) if isinstance(cell, str) else cell or [] for cell in lists]
        return sides_of(list(zip(*decoded[:2], strict=True)), list(zip(*decoded[2:], strict=True)))
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None


FORMAT = Format(
    name="ladders",
    kind="books",
    description="a table of whole books as lists of prices and sizes; ids are derived from slug and outcome",
    needs=("ts market_id token_label " + " ".join(_LISTS),),
    read=read,
    names={"market_id": ("market_slug", "slug"), "token_id": ()},
)
