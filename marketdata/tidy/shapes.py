"""Books in other shapes: one wide or nested row per snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, is_lazy, run
from marketdata.adapters.engines import is_engine
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import whole
from marketdata.points.order import same_as_before
from marketdata.points.schema import ASK, BID, BOOKS, COLUMNS, ID_COLUMNS, LISTS


def to_wide(frame: F, levels: int | None = None) -> F:
    """Books with one row per snapshot and the levels side by side.

    One row per (token, ts): ts, ids, ``bid_px_00 ask_px_00 bid_sz_00 ask_sz_00 bid_px_01 ...`` [probability, shares].
    00 is the best; names and order follow databento's ``mbp-10``. Null where a side has no such level. Levels beyond
    ``levels`` are cut; the default shows the deepest book whole, but a lazy frame needs it.

    Examples
    --------
    >>> md.to_wide(md.testing.books("polars"), levels=1).columns[4:]
    ['bid_px_00', 'ask_px_00', 'bid_sz_00', 'ask_sz_00']
    """
    if levels is not None:
        whole("levels", levels, most=10_000)  # each is four columns, and a price has fewer ticks
    elif is_lazy(frame) or is_engine(frame):
        raise ConfigError("levels is missing; a lazy frame needs it, for example to_wide(levels=10).")
    return run(frame, partial(_wide, levels=levels), ["books"], partition_by="snapshot")


def _wide(frame: Frame, levels: int | None) -> Native:
    frame, books = frames.sorted_books(frame)
    most = int(max(books.counts.max(initial=0), 1)) if levels is None else levels
    values: dict[str, Column] = {}
    for level in range(most):
        for what in ("px", "sz"):
            for name, side in ((BID, books.bids), (ASK, books.asks)):
                has_level = side.counts > level
                column = np.full(len(books), np.nan)
                column[has_level] = (side.price if what == "px" else side.size)[side.begins[has_level] + level]
                values[f"{name}_{what}_{level:02d}"] = column
    return frames.to_frame(frame, books, values, ["ts", *ID_COLUMNS, *values])


def explode(frame: F) -> F:
    """Tidy books of nested ones: one row per level instead of lists. Further columns are repeated. See `nest`.

    The inverse of `nest`; most functions take nested books as they are. A null list is an empty one. Rows are in tidy
    order; in frames that are not in memory, within each part. NotTidyError if the lists of a side differ in length or
    levels are not best first.
    """
    return run(frame, exploded, ["nested"], partition_by="row", keep_extra=True)


def exploded(frame: Frame) -> Native:
    """`explode` for an opened frame."""
    frame, rows = frames.sorted_level_rows(frame)
    # Every level repeats the further columns of its snapshot.
    repeated = frame.take(np.repeat(np.arange(len(frame)), np.diff(rows.edges[::2])))
    values = frames.level_values(rows.levels)
    return frames.to_frame(repeated, rows.entries, values, _replaced(frame.names, LISTS, BOOKS[4:]))


def nest(frame: F) -> F:
    """Nested books of tidy ones: one row per snapshot with a list of prices and one of sizes for each side.

    One row per (token, ts): ts, ids, ``bid_price bid_size ask_price ask_size`` [probability, shares], then further
    columns, which must not differ within a snapshot. The best level is first, and an empty side is an empty list.
    ``archive.scan("books", nested=True)`` has the same form. pandas gets Arrow lists where pyarrow is installed.
    `explode` is the inverse.

    Examples
    --------
    >>> books = md.nest(md.testing.books("polars", buckets=1))
    >>> books["bid_price"].to_list(), len(md.explode(books))
    ([[0.39, 0.38], [0.59, 0.58]], 8)
    """
    return run(frame, nested, ["nested", "books"], keep_extra=True)


def nested(frame: Frame, why: str = "a nested row has one") -> Native:
    """`nest` for an opened frame; ``why`` a further column may have only one value for each snapshot."""
    frame, books = frames.sorted_books(frame)
    names = frame.names
    if frame.kind == "books":
        names = _replaced(names, BOOKS[4:], LISTS)
        for name in (c for c in names if c not in COLUMNS["nested"]):
            differs = ~same_as_before(frame.comparable(name))
            differs[books.bids.begins] = False
            if differs.any():
                raise NotTidyError(
                    f"{name} differs within a snapshot, first {frame.shown(int(np.argmax(differs)))}, and {why} value "
                    "of it; drop the column."
                )
        frame = frame.take(books.bids.begins)
    return frames.to_frame(frame, books, frames.lists(books), names)


def _replaced(names: Sequence[str], old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """The names with ``new`` ones at the place of the first ``old`` one."""
    old = set(old)
    at = next(i for i, name in enumerate(names) if name in old)
    return (*names[:at], *new, *(c for c in names[at:] if c not in old))
