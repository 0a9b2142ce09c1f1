"""Checks of a frame: one report for books, quotes, prices and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_frame_of, read, unchecked
from marketdata.adapters.frame import Column, Frame
from marketdata.points.columns import Floats, Ints
from marketdata.points.order import sorted_by
from marketdata.points.probability import no_probability
from marketdata.points.resample import group_starts
from marketdata.points.schema import COLUMNS, ID_COLUMNS, TOLERANCE, value_columns
from marketdata.points.views import VIEWS
from marketdata.resolution import BASES, BucketWidth, Width
from marketdata.tidy.shapes import exploded
from marketdata.times import to_text

_LARGEST_GAP_TO_1 = 0.05
_STALE_SNAPSHOTS = 60
_USUAL_WIDTHS = ("1w", "1d", "12h", "6h", "4h", "2h", "1h", "30m", "15m", "10m", "5m", "1m", "30s", "10s", "5s", "1s")
# Check, severity, meaning, the number of rows that were looked at, and those that show it.
Finding = tuple[str, str, str, int, NDArray[Any]]


class _View:
    """The columns of a frame, sorted by token and time."""

    def __init__(self, frame: Frame) -> None:
        self.books = frame.kind == "books"
        by = frame.read("side", "level") if self.books else []
        order = sorted_by(*(frames.ranks(frame, c) for c in frame.keys), frame.times("ts"), *by)
        self.frame = frame = frame.take(order)
        self.ts, self.ids = frame.times("ts"), [frame.codes(c) for c in frame.keys]
        self.groups = group_starts(*self.ids)
        self.snapshots = group_starts(*self.ids, self.ts)
        self.fresh = np.isin(self.snapshots, self.groups)
        if self.books:
            self.ask, self.level = frame.read("side", "level")
            self.price, self.size = frame.numbers("price"), frame.numbers("size")
            self.sides = group_starts(*self.ids, self.ts, self.ask)

    def __len__(self) -> int:
        return len(self.ts)

    def example(self, row: Ints) -> str:
        """A row as text: time, token, and its first values."""
        frame = self.frame.take(row)
        values = ((c, frame.raw(c)[0]) for c in [c for c in frame.names if c not in {"ts", *ID_COLUMNS}][:4])
        # A list or an array is no null; comparing it with itself gives several answers.
        shown = [f"{c}={'null' if v is None or (isinstance(v, float) and isnan(v)) else v}" for c, v in values]
        return " ".join([to_text(int(self.ts[row[0]])), *(str(frame.texts(c)[0]) for c in frame.ids[-1:]), *shown])


def check(frame: F, width: Width | None = None) -> F:
    """Check a frame for what is wrong or odd, with examples.

    Errors are what a sound service does not cause: outside_0_1, bad_size, duplicates, unsorted_levels.

    Warnings are these.

    - gaps: buckets are missing between two rows of a token.
    - off_grid: a time is no start of a bucket.
    - mixed_resolutions: a token steps by less than the width.
    - crossed: the best bid is above the best ask.
    - sums_far_from_1: prices or mids of all tokens of a market miss 1 by more than 0.05.
    - stale: 60 or more equal snapshots or values in a row.
    - unknown_side: a trade is neither a buy nor a sale.

    Infos are one_sided, empty, locked and null.

    Parameters
    ----------
    width : str or timedelta, optional
        Bucket width of the rows; by default the widest that fits into the most common step.

    Returns
    -------
    frame
        One row per check that applies to books, quotes, trades, prices or metrics. A lazy frame is computed.

        - ``check``, ``severity``, ``meaning``; the severity is "ok" where the check found nothing.
        - ``n_failed``, ``n_checked``: rows that failed, and rows that the check looked at.
        - ``examples``: up to three rows as text.

    Examples
    --------
    >>> report = md.check(md.testing.prices("polars", buckets=4)[[0, 3]], "1m")
    >>> failed = report.filter(pl.col("n_failed") > 0)
    >>> failed.select("check", "severity", "n_failed").rows()
    [('gaps', 'warning', 1)]
    """
    frame = read(frame)
    table = unchecked(frame, ("books", "trades", "quotes", "prices", "metrics"))
    view = _View(table if table.kind != "nested" else unchecked(exploded(table), ["books"]))
    if view.frame.kind == "trades":
        findings = [*_trades(view)]
    else:
        of_kind = _books if view.books else _quotes if view.frame.kind == "quotes" else _values
        findings = [*_times(view, None if width is None else BucketWidth.of(width, "width")), *of_kind(view)]
    rows = [np.flatnonzero(rows) if rows.dtype == bool else rows for *_, rows in findings]
    columns: dict[str, Column] = {
        "check": [finding[0] for finding in findings],
        "severity": [finding[1] if len(at) else "ok" for finding, at in zip(findings, rows, strict=True)],
        "n_failed": np.array([len(at) for at in rows], np.int64),
        "n_checked": np.array([finding[3] for finding in findings], np.int64),
        "meaning": [finding[2] for finding in findings],
        "examples": ["; ".join(view.example(at[i : i + 1]) for i in range(min(len(at), 3))) for at in rows],
    }
    return as_frame_of(frame, lambda like: like.build(columns, len(findings)))  # type: ignore[no-any-return]


def _times(view: _View, width: BucketWidth | None) -> Iterator[Finding]:
    ts, n = view.ts[view.snapshots], len(view.snapshots)
    step = np.where(view.fresh, 0, np.diff(ts, prepend=ts[:1]))
    if width is None:
        steps, counts = np.unique(step[step > 0], return_counts=True)
        commonest = steps[np.argmax(counts)] if len(steps) else 0
        width = next((w for w in map(BucketWidth.of, _USUAL_WIDTHS) if w.micros <= commonest), BASES["1m"])
    wide, close = step > width.micros, (step > 0) & (step < width.micros)
    # A gap is shown by the row after it.
    yield "gaps", "warning", "buckets are missing before this row", n, view.snapshots[wide]
    yield "off_grid", "warning", "ts is no start of a bucket", n, view.snapshots[width.floor(ts) != ts]
    yield "mixed_resolutions", "warning", "a step shorter than the bucket", n, view.snapshots[close]
    first = group_starts(*view.ids, view.ts, view.ask, view.level) if view.books else view.snapshots
    again = np.delete(np.arange(len(view)), first)
    yield "duplicates", "error", "the same row is here twice", len(view), again


def _books(view: _View) -> Iterator[Finding]:
    n, price, size = len(view), view.price, view.size
    is_level = ~np.isnan(price)
    yield "outside_0_1", "error", "a price is no probability", n, no_probability(price)
    yield "bad_size", "error", "a level has no size above 0", n, is_level & ~(np.isfinite(size) & (size > 0))
    rise = np.diff(price, prepend=np.nan)
    worse = np.where(view.ask == 1, rise < 0, rise > 0)
    worse[view.sides] = False
    yield "unsorted_levels", "error", "a level is better than the one before", n, worse
    rows, n = view.snapshots, len(view.snapshots)
    bid, ask = np.full((2, n), np.nan)
    for side, best in enumerate((bid, ask)):
        at = view.sides[view.ask[view.sides] == side]
        best[np.searchsorted(rows, at, side="right") - 1] = view.price[at]
    yield from _best(view, rows, bid, ask)
    lengths = np.diff(np.append(rows, len(view)))
    # Two books are equal if they have equally many rows with the same numbers.
    before = np.maximum(np.arange(len(view)) - np.repeat(np.roll(lengths, 1), lengths), 0)
    columns = (view.price, view.size, view.ask)
    same = np.logical_and.reduce([(c == c[before]) | (np.isnan(c) & np.isnan(c[before])) for c in columns])
    starts = np.flatnonzero(view.fresh | (np.diff(lengths, prepend=0) != 0))
    equal = np.logical_and.reduceat(same, rows) if n else same
    equal[starts] = False
    meaning = f"the book is the same {_STALE_SNAPSHOTS} times and more"
    yield "stale", "warning", meaning, n, rows[_long_runs(equal)]


def _best(view: _View, rows: Ints, bid: Floats, ask: Floats) -> Iterator[Finding]:
    """Findings about the best prices of snapshots."""
    n, missing = len(rows), np.isnan(bid).astype(int) + np.isnan(ask)
    yield "one_sided", "info", "one side of the book is missing", n, rows[missing == 1]
    yield "empty", "info", "the book has no level", n, rows[missing == 2]
    yield "locked", "info", "best bid = best ask", n, rows[bid == ask]
    yield "crossed", "warning", "best bid > best ask", n, rows[bid > ask]
    yield _sums(view, rows, (bid + ask) / 2)


def _quotes(view: _View) -> Iterator[Finding]:
    n, columns = len(view), [view.frame.numbers(name) for name in VIEWS["quotes"].names]
    bid, bid_size, ask, ask_size = columns
    yield "outside_0_1", "error", "a price is no probability", n, no_probability(bid) | no_probability(ask)
    wrong = [~np.isnan(size) & ~(np.isfinite(size) & (size > 0)) for size in (bid_size, ask_size)]
    yield "bad_size", "error", "a size is not above 0", n, wrong[0] | wrong[1]
    yield from _best(view, np.arange(n), bid, ask)
    yield _stale(view, columns)


def _trades(view: _View) -> Iterator[Finding]:
    """Findings about prints, whose times are in no buckets."""
    n, frame = len(view), view.frame
    price, size = frame.numbers("price"), frame.numbers("size")
    yield "outside_0_1", "error", "a price is no probability", n, no_probability(price)
    yield "bad_size", "error", "a size is not above 0", n, ~np.isnan(size) & ~(np.isfinite(size) & (size > 0))
    ids = frame.texts("trade_id") if "trade_id" in frame.names else [None] * n
    first, again = set[tuple[int, str]](), np.zeros(n, bool)
    for at, key in enumerate(zip(view.ids[0].tolist(), ids, strict=True)):
        again[at] = key[1] is not None and key in first
        first.add(key)  # type: ignore[arg-type] # None is never looked up
    yield "duplicates", "error", "a print with this trade_id is here twice", n, again
    sides = np.array(frame.texts("side"), object)
    yield "unknown_side", "warning", "a side is neither buy nor sell", n, (sides != "buy") & (sides != "sell")
    yield "null", "info", "a price or a size is missing", n, np.isnan(price) | np.isnan(size)


def _long_runs(equal: NDArray[np.bool_]) -> Ints:
    """The first entry of each run of at least ``_STALE_SNAPSHOTS`` that equal the one before."""
    begins = np.flatnonzero(~equal)
    return begins[np.diff(np.append(begins, len(equal))) >= _STALE_SNAPSHOTS]


def _values(view: _View) -> Iterator[Finding]:
    frame, n = view.frame, len(view)
    names = [c for c in value_columns(frame.names) if c in COLUMNS[frame.kind] or frame.is_number(c)]
    columns = {c: frame.numbers(c) for c in names}
    if frame.kind == "prices":
        price = columns["price"]
        yield "outside_0_1", "error", "a price is no probability", n, no_probability(price)
        yield _sums(view, np.arange(n), price)
    every = np.array([*columns.values()]).reshape(len(columns), n)
    yield "null", "info", "a value is missing", n, np.logical_or.reduce(np.isnan(every))
    yield _stale(view, every)


def _stale(view: _View, columns: Iterable[Floats]) -> Finding:
    every = np.array([*columns])
    before = np.roll(every, 1, axis=-1)
    equal = ((every == before) | (np.isnan(every) & np.isnan(before))).all(axis=0) & ~np.isnan(every).all(axis=0)
    equal[view.groups] = False
    meaning = f"all values are the same {_STALE_SNAPSHOTS} times and more"
    return "stale", "warning", meaning, len(view), _long_runs(equal)


def _sums(view: _View, rows: Ints, value: Floats) -> Finding:
    """Times of a market at which all its tokens have a value, and these miss 1 by far."""
    market, ts = view.ids[0][rows], view.ts[rows]
    markets, tokens = np.unique(view.ids[0][view.groups], return_counts=True)
    order = np.lexsort((ts, market))
    starts = group_starts(market[order], ts[order])
    total = np.add.reduceat(value[order], starts) if len(order) else value
    count = np.diff(np.append(starts, len(order)))
    # A market with one token in the frame has its other tokens elsewhere: its sum says nothing.
    whole = (count > 1) & (count == tokens[np.searchsorted(markets, market[order[starts]])]) & ~np.isnan(total)
    far = whole & (np.abs(total - 1) > _LARGEST_GAP_TO_1 + TOLERANCE)
    text = f"prices of all tokens miss 1 by more than {_LARGEST_GAP_TO_1}"
    return "sums_far_from_1", "warning", text, int(whole.sum()), rows[order[starts[far]]]
