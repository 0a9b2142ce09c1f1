"""The aggregation rules of the service (interface 4.2 to 4.4) on frames; `points.resample` has the rules.

Means compose, as each has the count of its base points beside it, in ``<value>_count``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, Overlap, in_memory, run
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.errors import LeftOutWarning, NotTidyError, UnweightedMeanWarning, warn
from marketdata.points import resample as rules
from marketdata.points.columns import Ints, Series
from marketdata.points.schema import BBO, COLUMNS, COUNT, ID_COLUMNS, LISTS, QUOTES, Kind, value_columns
from marketdata.renamed import renamed
from marketdata.resolution import BASES, BucketWidth, Width
from marketdata.tidy.fill import Fill, check_fill, filled
from marketdata.tidy.grids import COARSE, Widths, coarser_grid, widths

KINDS: tuple[Kind, ...] = ("nested", "books", "prices", "bbo", "metrics", "quotes")
_AVERAGED_KINDS: tuple[Kind, ...] = ("prices", "metrics")
_LAST_TS_COLUMN = "__last"


@renamed
def resample(frame: F, resolution: Width, *, fill: Fill = None, width: Width | None = None) -> F:
    """Aggregate a tidy frame to coarser buckets by the rule of the service for its kind (interface 4.2 to 4.4).

    Books and bbo keep the rows of the last snapshot of each token and bucket. Prices and metrics have one row per token
    (market) and bucket, with the mean of each value, nulls left out. ``<value>_count`` is the number of base points
    behind it. ``ts`` is the bucket start [UTC, microseconds]. A bucket without a point has no row. With ``fill`` it has
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
    fill : {None, "null", "forward"}
        A bucket without data between the first and the last row gets no row, nulls (sentinel rows of both sides of
        books), or the row (snapshot) before. pandas, polars and Arrow only.
    width : str or timedelta, optional
        Bucket width of the rows of the frame. By default not wider than 1m, nor than ``resolution``. Rows wider than
        ``resolution`` need ``fill``, which places each where its own bucket ends, when it was known.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=2)
    >>> md.resample(prices, "1h").select("price", "price_count").rows()
    [(0.405, 2), (0.595, 2)]
    """
    grid = widths(resolution, width, fill=fill is not None)

    def resampled(part: Frame) -> Native:
        out = _means(part, grid) if part.kind in _AVERAGED_KINDS else _last(part, grid)
        return out if fill is None else filled(in_memory(out, [part.kind]), grid.target, fill)

    reduce, finish = None, None
    if fill is not None:
        check_fill(frame, fill)
    else:
        reduce, finish = partial(_reduced, width=grid.target), partial(_of_parts, function=resampled)
    return run(frame, resampled, KINDS, keep_extra=True, reduce=reduce, finish=finish, on_times=grid.on_times)


def _means(frame: Frame, grid: Widths) -> Native:
    """The mean of each token and bucket, with the number of base points behind it."""
    series, values = _averaged(frame)
    series = replace(series, ts=series.ts + grid.later) if grid.later else series
    means = rules.means_of(series, values, grid.target)
    if len(series.values) == len(values) and len(means) < len(series):
        _warn_unweighted(series.ts, grid.rows)
    return frames.to_frame(frame, means, means.values)


def _reduced(frame: Frame, width: BucketWidth) -> Native:
    """Fewer rows with the same result: the last rows of books, or means with counts and times."""
    if frame.kind not in _AVERAGED_KINDS:
        rows = frames.rows(frame)
        last = rules.last_of(rows, width)
        # The label of a token may be in a row that is left out.
        labels = frames.entry_columns(rows.take(last), [c for c in frame.ids if c == "token_label"])
        return frames.rows_to_frame(frame, last, labels)
    series, values = _averaged(frame)
    edges = rules.buckets(series, width)
    means = replace(rules.means_of(series, values, width), ts=series.ts[edges[:-1]])
    return frames.to_frame(frame, means, {**means.values, _LAST_TS_COLUMN: frames.times(series.ts[edges[1:] - 1])})


def _of_parts(frame: Frame, function: Callable[[Frame], Native]) -> Native:
    """The function for the rows of `_reduced`, whose means weigh as much as their counts say."""
    if frame.kind in _AVERAGED_KINDS:
        rows, last = frames.rows(frame), frame.times(_LAST_TS_COLUMN)
        overlaps = rows.ts[1:] <= last[:-1]
        overlaps[rows.bounds[1:-1] - 1] = False
        if overlaps.any():
            raise Overlap
        frame = frame.without(_LAST_TS_COLUMN)
    return function(frame)


def _last(frame: Frame, grid: Widths) -> Native:
    """Rule 2: the rows with the greatest ``ts`` of each token and bucket, checked, with their further columns."""
    rows, width, later = frames.rows(frame), grid.target, grid.later
    last_rows = frame.take(rules.last_of(replace(rows, ts=rows.ts + later) if later else rows, width))
    # The label of a token may be in a row that is left out.
    tokens = frames.rows(last_rows).tokens
    values: dict[str, Column] = {}
    if frame.kind == "books":
        frames.snapshots(last_rows, all_levels=True)
    elif frame.kind == "nested":
        books = frames.books(last_rows)
        is_whole = len(books.bids.price) + len(books.asks.price) == books.counts.sum()
        values = {} if is_whole and last_rows.tidy.issuperset(LISTS) else frames.lists(books)
    else:
        frames.series(last_rows, same=[c for c in COLUMNS.get(frame.kind, BBO) if c in QUOTES and c in frame.names])
    last = frames.rows(last_rows)
    return frames.to_frame(
        last_rows, replace(last, tokens=tokens, ts=width.floor(last.ts + later)), values, frame.names
    )


def _averaged(frame: Frame) -> tuple[Series, list[str]]:
    """The columns that are averaged, with their counts, and their names; others are left out with a warning."""
    if frame.kind == "prices" and set(BBO) <= set(frame.names):
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
    return frames.series(frame, [*numbers, *(v + COUNT for v in numbers if v + COUNT in frame.names)]), numbers


def _warn_unweighted(ts: Ints, width: BucketWidth | None) -> None:
    base = BASES["1m"]
    if width is None:
        # The first times show most finer values, so that few frames need a look at all rows.
        is_coarse = all(np.all(part % COARSE == 0) for part in (ts[:100], ts)) or coarser_grid(ts, base) is not None
    else:
        is_coarse = width.micros > base.micros
    if is_coarse:
        warn(
            "These values are of buckets wider than 1m and carry no counts, so they look like means already; each is "
            "given the same weight. Resample from 1m values for the mean over their base points.",
            UnweightedMeanWarning,
        )
