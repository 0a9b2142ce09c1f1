"""Rows on a regular grid: the aggregation rules of the service (interface 4.2 to 4.4), and buckets that are filled in.

`points.resample` has the rules on columns.
Means compose, as each has the count of its base points beside it, in ``<value>_count``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, Reduction, in_memory, is_in_memory, is_lazy, kind_name, run
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.adapters.widths import with_width
from marketdata.errors import ConfigError, LeftOutWarning, NotTidyError, UnweightedMeanWarning, warn
from marketdata.points import resample as rules
from marketdata.points.arguments import choice
from marketdata.points.bars import bars, filled_bars
from marketdata.points.columns import Columns, Ints, Series
from marketdata.points.grids import COARSE, RowWidth, Widths, coarser_grid, widths
from marketdata.points.life import Life, over
from marketdata.points.schema import (
    COLUMNS,
    COUNT,
    ID_COLUMNS,
    LISTS,
    OBSERVED,
    QUOTES,
    Kind,
    is_count,
    value_columns,
)
from marketdata.resolution import BASES, BucketWidth, Width
from marketdata.tidy.frames import carried_counts, prints_of, refuse_width_of_prints
from marketdata.tidy.outcomes import lives_of
from marketdata.tidy.shapes import exploded, nested
from marketdata.times import TimeLike, to_micros, to_range

Fill = Literal["null", "forward"] | None
RESAMPLED_KINDS: tuple[Kind, ...] = ("nested", "books", "trades", "prices", "quotes", "metrics", "some_quotes")
_AVERAGED_KINDS: tuple[Kind, ...] = ("prices", "metrics")
_LAST_TS_COLUMN = "__last"
How = Literal["mean", "last"] | None


def resample(frame: F, resolution: Width, width: Width | None = None, *, how: How = None, fill: Fill = None) -> F:
    """Aggregate a tidy frame to coarser buckets by the rule of the service for its kind (interface 4.2 to 4.4).

    Books and bbo keep the rows of the last snapshot of each token and bucket. Prices and metrics have one row per token
    (market) and bucket, with the mean of each value, nulls left out. ``<value>_count`` is the number of base points
    behind it. Trades become bars: ``open high low close`` [probability], ``vwap`` weighted with sizes, ``volume`` and
    ``signed_volume`` (buys less sells, null if a side is not known) [shares], and ``count``, the number of prints.
    ``ts`` is the bucket start [UTC, microseconds]. A bucket without a point has no row. With ``fill`` it has
    one, where ``observed`` is false and counts are 0.

    ConfigError if ``width`` does not divide ``resolution``. Warnings:

    - UnweightedMeanWarning: means without counts are averaged again
    - CoarseGridWarning: all times of a frame in memory look like buckets of a width that does not divide ``resolution``
    - LeftOutWarning: further columns are left out of means, as they are not numbers

    Parameters
    ----------
    resolution : str or timedelta
        Bucket width: from 250ms if it divides a day ("10s", "5min", "1H", "4h"), whole days ("1d", "2d"), or "1w" from
        Monday.
    how : {None, "mean", "last"}
        For samples of your own, which are no means of the service: "last" keeps the last row of each bucket, and
        "mean" gives each row of prices or metrics the same weight unless it has counts, without a warning.
    fill : {None, "null", "forward"}
        A bucket without data between the first and the last row gets no row, nulls (sentinel rows of both sides of
        books), or the row (snapshot) before. pandas, polars and Arrow only.
    width : str or timedelta, optional
        Bucket width of the rows of the frame, by default the one that it carries; trades have none. Rows wider than
        ``resolution`` need ``fill``, which places each where its own bucket ends, when it was known.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=2)
    >>> md.resample(prices, "1h").select("price", "price_count").rows()
    [(0.405, 2), (0.595, 2)]
    """
    choice("how", how, (None, "mean", "last"))
    if fill is not None:
        _check_fill(frame, fill)
    asked = _Asked(resolution, width, how, fill)
    # A bucket that is filled in may need rows of any part.
    reduction = Reduction(asked.reduced, asked.of_reduced) if fill is None else None
    out = run(frame, asked.resampled, RESAMPLED_KINDS, keep_extra=True, reduction=reduction)
    return with_width(out, BucketWidth.of(resolution))  # type: ignore[no-any-return]


def align(
    frame: F,
    resolution: Width,
    width: Width | None = None,
    *,
    start: TimeLike | None = None,
    end: TimeLike | None = None,
    fill: Fill = None,
    markets: Any = None,
) -> F:
    """Put every token on one common grid of buckets.

    One row per token (market) and bucket, also for a token without a row in the grid: the columns of the frame, and
    ``observed``, false if the row was filled in. Takes one row per (token, ts), already on the grid (of books `bbo`
    or `to_wide`), of pandas, polars or Arrow. ConfigError if a row is off the grid, or ``start`` is not before ``end``.

    Parameters
    ----------
    resolution : str or timedelta
        Bucket width; see `resample`.
    start, end
        Half-open range; see `Client.books`. By default from the first to the last row of the frame.
    fill : {None, "null", "forward"}
        For a bucket without a row: nulls, or all values of the row before, however far back; an observed null stays
        null.
    markets : frame, optional
        Market records, or the result of `outcomes`: a bucket that begins at or after the close of its market
        (``closed_at``, or ``resolved_at`` if that is earlier) is not filled forward, but with nulls.
    width : str or timedelta, optional
        Bucket width of the rows; see `resample`.

    Examples
    --------
    >>> grid = md.align(md.testing.prices("polars")[[0, 2]], "1m")
    >>> grid.select("price", "observed").rows()
    [(0.4, True), (None, False), (0.43, True)]
    """
    _check_fill(frame, fill)
    first = None if start is None else to_micros(start, "start")
    last = None if end is None else to_micros(end, "end")
    if start is not None and end is not None:
        first, last = to_range(start, end)

    lives = {} if markets is None else lives_of(markets)

    def aligned(part: Frame) -> Native:
        grid = widths(resolution, RowWidth.optional(width, part.width), fill=fill is not None)
        return _aligned(part, grid, first, last, fill, lives)

    out = run(frame, aligned, ["series"], partition_by="all", keep_extra=True)
    return with_width(out, BucketWidth.of(resolution))  # type: ignore[no-any-return]


class _Asked(NamedTuple):
    """The arguments of `resample`, and its steps for a frame of any kind."""

    resolution: Width
    width: Width | None
    how: How
    fill: Fill

    def resampled(self, frame: Frame) -> Native:
        """The rows of each bucket, and with ``fill`` of buckets without one."""
        if frame.kind == "trades":
            return self._bars(frame)
        grid = self._grid(frame)
        out = _means(frame, grid, self.how) if self._is_averaged(frame) else _last(frame, grid)
        return out if self.fill is None else _filled(in_memory(out, [frame.kind]), grid.target, self.fill)

    def reduced(self, frame: Frame) -> Native:
        """Fewer rows with the same result: the last rows of books, or means with counts and times."""
        if frame.kind == "trades":
            return frame.native
        width = self._grid(frame).target
        if not self._is_averaged(frame):
            frame, rows = frames.sorted_rows(frame)
            last = rules.last_of(rows, width)
            # The label of a token may be in a row that is left out.
            labels = frames.entry_columns(rows.take(last), [c for c in frame.ids if c == "token_label"])
            return frames.rows_to_frame(frame, last, labels)
        frame, series, values = _averaged(frame)
        edges = rules.buckets(series, width)
        means = replace(rules.means_of(series, values, width), ts=series.ts[edges[:-1]])
        return frames.to_frame(frame, means, {**means.values, _LAST_TS_COLUMN: frames.times(series.ts[edges[1:] - 1])})

    def of_reduced(self, frame: Frame) -> Native | None:
        """`resampled` of `reduced` rows, which weighs means by counts; None if a row may be in two parts."""
        if self._is_averaged(frame):
            frame, rows = frames.sorted_rows(frame)
            last = frame.times(_LAST_TS_COLUMN)
            overlaps = rows.ts[1:] <= last[:-1]
            overlaps[rows.bounds[1:-1] - 1] = False
            if overlaps.any():
                return None
            frame = frame.without(_LAST_TS_COLUMN)
        return self.resampled(frame)

    def _is_averaged(self, frame: Frame) -> bool:
        return frame.kind in _AVERAGED_KINDS and self.how != "last"

    def _grid(self, frame: Frame) -> Widths:
        """The widths of rows that are buckets; ConfigError for an aggregation that their kind does not have."""
        if self.how == "mean" and frame.kind not in _AVERAGED_KINDS:
            raise _refused(self.how, frame.kind, "'last', as a book is no mean of others")
        return widths(self.resolution, RowWidth.optional(self.width, frame.width), fill=self.fill is not None)

    def _bars(self, frame: Frame) -> Native:
        """Bars of trades, which have times of their own."""
        if self.how:
            raise _refused(self.how, frame.kind, "none, as trades become bars")
        refuse_width_of_prints(self.width)
        target = BucketWidth.of(self.resolution)
        made = bars(prints_of(frame), target)
        if self.fill is not None:
            made = filled_bars(made, target, forward=self.fill == "forward")
        ids = [name for name in ("market_id", "token_id", "token_label") if name in frame.names]
        return frames.to_frame(frame, made, made.values, ["ts", *ids, *made.values])


def _refused(how: How, kind: Kind, allowed: str) -> ConfigError:
    return ConfigError(f"is refused for {kind}; allowed is {allowed}.", argument="how", value=how)


def _means(frame: Frame, grid: Widths, how: How) -> Native:
    """The mean of each token and bucket, with the number of base points behind it."""
    frame, series, values = _averaged(frame)
    if frame.is_whole:
        grid.on_times(series.ts)
    series = replace(series, ts=series.ts + grid.later) if grid.later else series
    means = rules.means_of(series, values, grid.target)
    if how is None and len(series.values) == len(values) and len(means) < len(series):
        _warn_unweighted(series.ts, grid.rows)
    return frames.to_frame(frame, means, means.values)


def _last(frame: Frame, grid: Widths) -> Native:
    """Rule 2: the rows with the greatest ``ts`` of each token and bucket, checked, with their further columns."""
    frame, rows = frames.sorted_rows(frame)
    if frame.is_whole:
        grid.on_times(rows.ts)
    width, later = grid.target, grid.later
    last_rows = frame.take(rules.last_of(replace(rows, ts=rows.ts + later) if later else rows, width))
    # The label of a token may be in a row that is left out.
    tokens = frames.sorted_rows(last_rows)[1].tokens
    values: dict[str, Column] = {}
    if frame.kind == "books":
        last_rows, *_ = frames.sorted_snapshots(last_rows, all_levels=True)
    elif frame.kind == "nested":
        last_rows, books = frames.sorted_books(last_rows)
        is_whole = len(books.bids.price) + len(books.asks.price) == books.counts.sum()
        values = {} if is_whole and all(map(last_rows.can_pass_on, LISTS)) else frames.lists(books)
    else:
        same = [c for c in QUOTES[4:] if c in frame.names]
        last_rows, _ = frames.sorted_series(last_rows, same=same)
    last_rows, last = frames.sorted_rows(last_rows)
    return frames.to_frame(
        last_rows, replace(last, tokens=tokens, ts=width.floor(last.ts + later)), values, frame.names
    )


def _averaged(frame: Frame) -> tuple[Frame, Series, list[str]]:
    """The frame in order, the columns that are averaged, with counts, and their names; a warning names the others."""
    if frame.kind == "prices" and set(QUOTES) <= set(frame.names):
        raise NotTidyError(
            "The frame has the columns of prices, which are averaged, and of bbo, of which the last row is kept; "
            "select the columns of one of them, resample each, and join the results."
        )
    defined = [c for c in COLUMNS[frame.kind] if c not in ("ts", *ID_COLUMNS)]
    values = value_columns(frame.names)
    numbers = [v for v in values if v in defined or frame.is_number(v)]
    other = sorted(set(values) - set(numbers))
    if other:
        warn(f"{other} have no numbers and are left out of the means.", LeftOutWarning)
    frame, series = frames.sorted_series(frame, [*numbers, *(v + COUNT for v in numbers if v + COUNT in frame.names)])
    carried = carried_counts(frame.native, series)
    counts = {v + COUNT: carried[v + COUNT] for v in numbers if v + COUNT in carried}
    return frame, replace(series, values={**counts, **series.values}), numbers


def _warn_unweighted(ts: Ints, width: BucketWidth | None) -> None:
    base = BASES["1m"]
    if width is None:
        # The first times tell most fine grids, so few frames need a look at all rows.
        is_coarse = all(np.all(part % COARSE == 0) for part in (ts[:100], ts)) or coarser_grid(ts, base) is not None
    else:
        is_coarse = width.micros > base.micros
    if is_coarse:
        warn(
            "These values are of buckets wider than 1m and carry no counts, so they look like means already; each is "
            "given the same weight. Resample from 1m values for the mean over their base points.",
            UnweightedMeanWarning,
            hint='Samples of your own are no means: say how="mean" or how="last".',
        )


def _check_fill(frame: object, fill: Fill) -> None:
    """ConfigError if a fill does not exist, or is not supported for the frame."""
    choice("fill", fill, (None, "null", "forward"), "None (no row), 'null' and 'forward'")
    if not (is_in_memory(frame) or is_lazy(frame)):
        raise ConfigError(
            f"A regular grid needs a pandas, polars or Arrow frame, not a {kind_name(frame)}; resample without fill, "
            "bring the result into memory, and fill it with md.resample(frame, resolution, fill=...)."
        )


def _filled(frame: Frame, width: BucketWidth, fill: Fill) -> Native:
    """Resampled rows, and marked rows for empty buckets between the first and the last one."""
    if frame.kind == "books":  # a nested book is one row, and a null list explodes to a sentinel row
        snapshots = in_memory(nested(frame, "a book that is filled in repeats one"), ["nested"])
        return exploded(in_memory(_filled(snapshots, width, fill), ["nested"]))
    frame, columns = frames.sorted_series(frame)
    ts = columns.ts
    grid = np.arange(ts.min(), ts.max() + 1, width.micros) if len(ts) else ts
    return _on_grid(frame, columns, grid, fill)


def _aligned(
    frame: Frame, grid: Widths, start: int | None, end: int | None, fill: Fill, lives: Mapping[str, Life]
) -> Native:
    frame.check_numbers()
    frame, columns = frames.sorted_series(frame, same=[c for c in frame.names if c not in ("ts", *ID_COLUMNS)])
    if frame.is_whole:
        grid.on_times(columns.ts)
    width, ts = grid.target, columns.ts + grid.later
    RowWidth(width, "resolution").check_starts(ts)
    first, last = (int(ts.min()), int(ts.max())) if len(ts) else (0, -1)
    start, end = first if start is None else start, last + 1 if end is None else end
    begin = width.floor(start + width.micros - 1)
    starts = np.arange(begin, max(begin, end), width.micros, dtype=np.int64)
    return _on_grid(frame, replace(columns, ts=ts), starts, fill, lives)


def _on_grid(frame: Frame, columns: Columns, grid: Ints, fill: Fill, lives: Mapping[str, Life] | None = None) -> Native:
    latest = [np.zeros(0, np.int64)]
    for a, b in pairwise(columns.bounds.tolist()):
        before = np.searchsorted(columns.ts[a:b], grid, side="right") - 1
        latest.append(np.where(before >= 0, before + a, -1))
    count, shown = len(columns.tokens), np.concatenate(latest)
    entries = Columns(columns.tokens, np.arange(count + 1) * len(grid), np.tile(grid, count))
    observed = (shown >= 0) & (np.append(columns.ts, 0)[shown] == entries.ts)
    if fill != "forward":
        shown = np.where(observed, shown, -1)
    elif lives:
        ends = over(lives, [token.market_id for token in columns.tokens])
        shown = np.where(observed | (entries.ts < np.repeat(ends, len(grid))), shown, -1)
    values = frames.entry_columns(entries, frame.names)
    # A filled value has a count of 0, so that it has no weight when means are averaged again.
    for name in (c for c in frame.names if is_count(c, frame.names)):
        values[name] = np.where(observed, np.nan_to_num(np.append(frame.numbers(name), 0))[shown], 0).astype(np.int64)
    return frames.rows_to_frame(frame, shown, {**values, OBSERVED: observed})
