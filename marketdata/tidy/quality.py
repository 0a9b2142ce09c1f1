"""Checks of a frame: one report for books, prices and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_frame_of, in_memory, opened, read
from marketdata.adapters.frame import Column, Frame
from marketdata.points.columns import Floats, Ints
from marketdata.points.order import sorted_by
from marketdata.points.resample import group_starts
from marketdata.points.schema import COLUMNS, ID_COLUMNS, TOLERANCE, value_columns
from marketdata.renamed import renamed
from marketdata.resolution import BASES, BucketWidth, Width
from marketdata.tidy.shapes import explode
from marketdata.times import to_text

_LARGEST_GAP_TO_1 = 0.05
_STALE_SNAPSHOTS = 60
_USUAL_WIDTHS = ("1s", "5s", "10s", "30s", "1m", "5m", "10m", "15m", "30m", "1h", "2h", "4h", "6h", "12h", "1d", "1w")
Finding = dict[str, Any]


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

    def finding(self, check: str, severity: str, meaning: str, of: int, rows: NDArray[Any]) -> Finding:
        """The finding of a check: the rows that show it, out of the number of rows that were looked at."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        return {
            "check": check,
            "severity": severity if len(at) else "ok",
            "n_failed": len(at),
            "n_checked": of,
            "meaning": meaning,
            "examples": "; ".join(self.example(at[i : i + 1]) for i in range(min(len(at), 3))),
        }

    def example(self, row: Ints) -> str:
        frame = self.frame.take(row)
        parts = [to_text(int(self.ts[row[0]])), *(str(frame.texts(c)[0]) for c in frame.ids[-1:])]
        values = ((c, frame.raw(c)[0]) for c in [c for c in frame.names if c not in {"ts", *ID_COLUMNS}][:4])
        # A list or an array is no null, and has no one answer to whether it is itself.
        shown = ((c, "null" if v is None or (isinstance(v, float) and isnan(v)) else v) for c, v in values)
        return " ".join([*parts, *(f"{c}={v}" for c, v in shown)])


@renamed
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

    Infos are one_sided, empty, locked and null.

    Parameters
    ----------
    width : str or timedelta, optional
        Bucket width of the rows; by default the widest that fits into the most common step.

    Returns
    -------
    frame
        One row per check that applies to books, prices or metrics. A lazy frame is computed.

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
    table = in_memory(frame, ("books", "prices", "metrics"))
    view = _View(table if table.kind != "nested" else opened(explode(table.native), ["books"]))
    findings = [*_times(view, None if width is None else BucketWidth.of(width, "width"))]
    findings += [*_levels(view), *_tops(view)] if view.books else _values(view)
    columns: dict[str, Column] = {name: [row[name] for row in findings] for name in findings[0]}
    columns |= {name: np.array(columns[name], np.int64) for name in ("n_failed", "n_checked")}
    return as_frame_of(frame, lambda like: like.build(columns, len(findings)))  # type: ignore[no-any-return]


def _times(view: _View, width: BucketWidth | None) -> Iterator[Finding]:
    ts, n = view.ts[view.snapshots], len(view.snapshots)
    step = np.where(view.fresh, 0, np.diff(ts, prepend=ts[:1]))
    width = width or _usual(step[step > 0])
    wide, close = step > width.micros, (step > 0) & (step < width.micros)
    # A hole is shown by the row behind it.
    yield view.finding("gaps", "warning", "buckets are missing before this row", n, view.snapshots[wide])
    off = view.snapshots[width.floor(ts) != ts]
    yield view.finding("off_grid", "warning", "ts is no start of a bucket", n, off)
    yield view.finding("mixed_resolutions", "warning", "a step shorter than the bucket", n, view.snapshots[close])
    same = np.ones(len(view), bool)
    same[view.snapshots if not view.books else group_starts(*view.ids, view.ts, view.ask, view.level)] = False
    yield view.finding("duplicates", "error", "the same row is here twice", len(view), same)


def _usual(steps: Ints) -> BucketWidth:
    """The widest bucket that fits into the most common step."""
    values, counts = np.unique(steps, return_counts=True)
    commonest = int(values[np.argmax(counts)]) if len(steps) else 0
    return max(
        (w for w in map(BucketWidth.of, _USUAL_WIDTHS) if w.micros <= commonest),
        key=lambda w: w.micros,
        default=BASES["1m"],
    )


def _levels(view: _View) -> Iterator[Finding]:
    n, price, size = len(view), view.price, view.size
    is_level = ~np.isnan(price)
    yield view.finding("outside_0_1", "error", "a price is no probability", n, is_level & ((price < 0) | (price > 1)))
    bad = is_level & ~(np.isfinite(size) & (size > 0))
    yield view.finding("bad_size", "error", "a level has no size above 0", n, bad)
    begins = np.zeros(n, bool)
    begins[view.sides] = True
    rise = np.diff(price, prepend=np.nan)
    worse = np.where(view.ask == 1, rise < 0, rise > 0)
    yield view.finding("unsorted_levels", "error", "a level is better than the one before", n, ~begins & worse)


def _tops(view: _View) -> Iterator[Finding]:
    n = len(view.snapshots)
    bid, ask = np.full((2, n), np.nan)
    for side, best in enumerate((bid, ask)):
        at = view.sides[view.ask[view.sides] == side]
        best[np.searchsorted(view.snapshots, at, side="right") - 1] = view.price[at]
    missing = np.isnan(bid).astype(int) + np.isnan(ask)
    rows = view.snapshots
    yield view.finding("one_sided", "info", "one side of the book is missing", n, rows[missing == 1])
    yield view.finding("empty", "info", "the book has no level", n, rows[missing == 2])
    yield view.finding("locked", "info", "best bid = best ask", n, rows[bid == ask])
    yield view.finding("crossed", "warning", "best bid > best ask", n, rows[bid > ask])
    yield view.finding(
        "stale", "warning", f"the book is the same {_STALE_SNAPSHOTS} times and more", n, _stale_books(view)
    )
    yield _sums(view, rows, (bid + ask) / 2)


def _stale_books(view: _View) -> Ints:
    if not len(view):
        return view.snapshots
    lengths = np.diff(np.append(view.snapshots, len(view)))
    # Two books are the same when as many rows have the same numbers.
    offset = np.repeat(lengths[np.maximum(np.arange(len(lengths)) - 1, 0)], lengths)
    before = np.maximum(np.arange(len(view)) - offset, 0)
    same = np.ones(len(view), bool)
    for column in (view.price, view.size, view.ask.astype(float)):
        same &= (column == column[before]) | (np.isnan(column) & np.isnan(column[before]))
    equal = np.logical_and.reduceat(same, view.snapshots) & ~view.fresh
    equal[1:] &= lengths[1:] == lengths[:-1]
    return _long_runs(equal, view.snapshots)


def _long_runs(equal: NDArray[np.bool_], rows: Ints) -> Ints:
    """The first entry of each run of at least ``_STALE_SNAPSHOTS`` equal ones."""
    begins = np.flatnonzero(~equal)
    lengths = np.diff(np.append(begins, len(equal)))
    return rows[begins[lengths >= _STALE_SNAPSHOTS]]


def _values(view: _View) -> Iterator[Finding]:
    n = len(view)
    defined = COLUMNS[view.frame.kind]
    names = [c for c in value_columns(view.frame.names) if c in defined or view.frame.is_number(c)]
    columns = {c: view.frame.numbers(c) for c in names}
    if view.frame.kind == "prices":
        price = columns["price"]
        yield view.finding("outside_0_1", "error", "a price is no probability", n, (price < 0) | (price > 1))
        yield _sums(view, np.arange(n), price)
    every = np.array([*columns.values()]).reshape(len(columns), n)
    yield view.finding("null", "info", "a value is missing", n, np.logical_or.reduce(np.isnan(every)))
    equal = np.logical_and.reduce(np.diff(every, prepend=np.nan) == 0)
    equal[view.groups] = False
    stuck = _long_runs(equal, np.arange(n))
    yield view.finding("stale", "warning", f"all values are the same {_STALE_SNAPSHOTS} times and more", n, stuck)


def _sums(view: _View, rows: Ints, value: Floats) -> Finding:
    """Times of a market at which all its tokens have a value, and these miss 1 by far."""
    market, ts = view.ids[0][rows], view.ts[rows]
    markets, tokens = np.unique(view.ids[0][view.groups], return_counts=True)
    order = np.lexsort((ts, market))
    starts = group_starts(market[order], ts[order]) if len(order) else order
    total = np.add.reduceat(value[order], starts) if len(order) else value
    count = np.diff(np.append(starts, len(order)))
    # A market with one token in the frame has its other tokens elsewhere: its sum says nothing.
    whole = (count > 1) & (count == tokens[np.searchsorted(markets, market[order[starts]])]) & ~np.isnan(total)
    far = whole & (np.abs(total - 1) > _LARGEST_GAP_TO_1 + TOLERANCE)
    text = f"prices of all tokens miss 1 by more than {_LARGEST_GAP_TO_1}"
    return view.finding("sums_far_from_1", "warning", text, int(whole.sum()), rows[order[starts[far]]])
