"""Bids of both outcomes of a market, one row a moment; a bid at p is an ask of the other outcome at 1 - p."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from marketdata.recordings.format import UNDECIDED, Batch, Format, Table
from marketdata.recordings.tables import Sides, add_books, derived_markets, readable, sides_of
from marketdata.wire import kalshi

_LABELS = ("Yes", "No")


def proves(table: Table) -> int:
    """A book of the venue has its bids inside of ``orderbook``."""
    if "book" not in table.columns:
        return UNDECIDED
    cells = table.file.sample[table.columns["book"]].drop_nulls().head(1).to_list()
    inner = msgspec.json.decode(cells[0]) if cells and isinstance(cells[0], str) else next(iter(cells), None)
    if not isinstance(inner, dict) or not inner.keys() & {"yes", "no", "yes_dollars", "no_dollars"}:
        return 0
    return 0 if table.lacks([{"ts"}, {"market_id", "token_id"}]) else 30


def read(table: Table) -> Iterator[Batch]:
    """Two books of their own moment for each row."""
    for frame, batch in table.rows():
        if len(frame):
            _add(frame, batch)
        yield batch


def _add(frame: pl.DataFrame, batch: Batch) -> None:
    if "market_id" not in frame.columns:
        frame = frame.rename({"token_id": "market_id"})
    if "book" in frame.columns:
        cells = [_bids_in(cell) for cell in frame["book"].to_list()]
    else:
        cells = [*frame.select("yes_levels", "no_levels").iter_rows()]
    rows, books = readable(frame, [_books(*pair) for pair in cells], batch)
    rows = rows.drop("best_bid", "best_ask", "token_id", "book", strict=False)
    is_ticker = frame["market_id"].cast(pl.String).str.contains(r"^KX|^[A-Z0-9]+-").all()
    markets = frame["market_id"].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
    if is_ticker:
        batch.markets = [kalshi.market({"ticker": market}) for market in markets]
    else:
        batch.markets = derived_markets(dict.fromkeys(markets, _LABELS), {})
    ids = [pl.format("{}:{}", "market_id", pl.lit(label.lower() if is_ticker else label)) for label in _LABELS]
    both = pl.concat(
        [
            rows.with_columns(pl.lit(label).alias("token_label"), token.alias("token_id"))
            for label, token in zip(_LABELS, ids, strict=True)
        ]
    )
    add_books(both, batch, [book[outcome] for outcome in range(2) for book in books])


def _bids_in(cell: Any) -> tuple[Any, Any]:
    book = msgspec.json.decode(cell) if isinstance(cell, str) else cell or {}
    yes, no = (book.get(f"{side}_dollars") or book.get(side) or [] for side in ("yes", "no"))
    return yes, no


def _books(yes: Any, no: Any) -> tuple[Sides, Sides] | None:
    """The books of both outcomes; None if one cannot be read."""
    sides = sides_of(yes, no)
    if sides is None:
        return None
    bids = []
    for levels in sides:
        # Whole numbers from 1 on are cents.
        unit = 100 if levels and all(price >= 1 and price == int(price) for price, _ in levels) else 1
        bids.append([(price / unit, size) for price, size in levels])
    asks = [[(round(1 - price, 9), size) for price, size in levels] for levels in reversed(bids)]
    return (bids[0], asks[0]), (bids[1], asks[1])


FORMAT = Format(
    name="outcome-bids",
    description="a table of the bids of both outcomes: an ask of Yes at p is a bid of No at 1 - p",
    needs=("ts market_id yes_levels no_levels",),
    takes="token_id best_bid best_ask yes_bid yes_ask no_bid no_ask",
    read=read,
    proves=proves,
)
