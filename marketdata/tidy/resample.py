"""The aggregation rules of the service (interface 4.2 to 4.4), by the kernels of `runs`.

Means compose, as each has the count of its base points beside it, in ``<value>_count``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl

from marketdata.errors import LeftOutWarning, NotTidyError, UnweightedMeanWarning, warn
from marketdata.points import resample as runs
from marketdata.points.columns import Ints
from marketdata.points.schema import BBO, COLUMNS, COUNT, ID_COLUMNS, QUOTES, Kind, value_columns
from marketdata.resolution import BASES, BucketWidth
from marketdata.tidy import nested
from marketdata.tidy.backends import Overlap, Result, Taken, beside, closed, run, source_of
from marketdata.tidy.fill import Fill, check_fill, filled
from marketdata.tidy.grids import COARSE, coarser_grid, is_upsampled, known_width, warn_if_coarser
from marketdata.tidy.table import EagerTable

F = TypeVar("F")
_KINDS: tuple[Kind, ...] = ("nested", "books", "prices", "bbo", "metrics", "quotes")
_LAST = "__last"


def resample(frame: F, resolution: str, *, fill: Fill = None, resolution_of: str | None = None) -> F:
    """Aggregate a tidy frame to coarser buckets by the rule of the service for its kind (interface 4.2 to 4.4).

    Books and bbo: the rows of the last snapshot of each token and bucket. Prices and metrics: one row per token
    (market) and bucket: the mean of each value, nulls left out, and in ``<value>_count`` the number of base points
    behind it. ``ts`` is the bucket start [UTC, microseconds]. A bucket without a point has no row; with ``fill`` it has
    one, where ``observed`` is false and counts are 0.

    Warns with UnweightedMeanWarning if means without counts are averaged again, with CoarseGridWarning if all times
    look like buckets of another width that does not divide ``resolution`` (frames in memory), and with LeftOutWarning
    if further columns are left out of means, as they are not numbers. ConfigError if ``resolution_of`` does not divide
    ``resolution``.

    Parameters
    ----------
    resolution : str
        Whole seconds, minutes or hours that divide a day ("10s", "1m", "4h"), whole days ("1d", "2d"), or "1w" from
        Monday.
    fill : {None, "null", "forward"}
        For a bucket without data between the first and the last row of the frame: no row; nulls, of books the marker
        rows of both sides; or the row (snapshot) before. pandas, polars and Arrow only.
    resolution_of : str, optional
        Bucket width of the rows of the frame. By default not wider than 1m, nor than ``resolution``. Rows wider than
        ``resolution`` need ``fill``, which places each where its own bucket ends, when it was known.

    Examples
    --------
    >>> md.resample(md.testing.prices("polars", buckets=2), "1h").select("price", "price_count").rows()
    [(0.405, 2), (0.595, 2)]
    """
    width, own = BucketWidth.of(resolution), known_width(resolution_of)
    is_finer = is_upsampled(own, width, fill=fill is not None)
    watch = warn_if_coarser(width, "resolution_of") if own is None else None
    if fill is not None:
        check_fill(frame, fill)
        whole = partial(_resampled, width=width, own=own, fill=fill, is_finer=is_finer)
        return run(frame, whole, _KINDS, further=True, watch=watch)
    whole = partial(_resampled, width=width, own=own)
    reduce, finish = (partial(step, width=width) for step in (_reduced, _of_parts))
    return run(frame, whole, _KINDS, further=True, reduce=reduce, finish=finish, watch=watch)


def _resampled(
    table: EagerTable, width: BucketWidth, own: BucketWidth | None, *, fill: Fill = None, is_finer: bool = False
) -> Any:
    values = _averaged(table) if table.kind in ("prices", "metrics") else None
    counts = [v + COUNT for v in values or () if v + COUNT in table.names]
    ordered = table.in_order([*(values or ()), *counts], unique=values is not None)
    ordered = ordered.moved(own.micros) if own is not None and is_finer else ordered
    out = last(ordered, width) if values is None else means(ordered, values, counts, width)
    if values is not None and not counts and out.data.height < len(ordered):
        _warn_unweighted(ordered.array("ts"), own)
    if fill is None:
        return out
    given: Any = table.source
    return filled(EagerTable(source_of(closed(out, given.native)), table.kind), width, fill)


def _reduced(table: EagerTable, width: BucketWidth) -> Any:
    """Fewer rows with the same result: last rows of books; means and counts, with their first and last time."""
    if table.kind not in ("prices", "metrics"):
        ordered = table.in_order(unique=False)
        kept = ordered.take(runs.last_rows(ordered.array("ts"), _bucket_starts(ordered, width), ordered.groups))
        made = [c for c in kept.keys if kept.is_made(c)]  # the label of a row that is left out here, maybe
        passed = {c: c for c in kept.names if c not in made}
        return Result(
            pl.DataFrame([kept.column(c) for c in made]), [Taken(table.source, passed, kept.rows)], kept.names
        )
    values = _averaged(table)
    counts = [v + COUNT for v in values if v + COUNT in table.names]
    ordered = table.in_order([*values, *counts])
    starts, ts = _bucket_starts(ordered, width), ordered.column("ts")
    ends = runs.run_ends(starts, len(ordered)) - 1
    out = means(ordered, values, counts, width)
    data = out.data.with_columns(ts.gather(starts), ts.gather(ends).alias(_LAST))
    return out._replace(data=data, order=[*(out.order or ()), _LAST])


def _of_parts(table: EagerTable, width: BucketWidth) -> Any:
    if table.kind not in ("prices", "metrics"):
        return last(table.in_order(unique=False), width)
    values = [v for v in table.names if v + COUNT in table.names]
    table = table.in_order(unique=False)
    first, last_of = table.array("ts"), table.instants(_LAST)
    new = np.zeros(len(table), bool)
    new[table.groups] = True
    if ((first[1:] <= last_of[:-1]) & ~new[1:]).any():
        raise Overlap
    return means(table, values, [v + COUNT for v in values], width)


def last(ordered: EagerTable, width: BucketWidth) -> Result:
    """Rule 2: the rows with the greatest ``ts`` of each token and bucket, with their further columns."""
    kept = ordered.take(runs.last_rows(ordered.array("ts"), _bucket_starts(ordered, width), ordered.groups))
    own = [c for c in COLUMNS.get(kept.kind, BBO) if c in kept.names]
    if kept.kind == "nested":
        kept = nested.in_order(kept)
    else:
        kept = kept.book() if kept.kind == "books" else kept.in_order([c for c in own if c in QUOTES])
    ts = pl.Series("ts", width.floor(kept.array("ts"))).cast(pl.Datetime("us", "UTC"))
    read = [c for c in own if c != "ts" and not kept.is_native(c)]
    taken = Taken(kept.source, {c: c for c in kept.names if c not in (*read, "ts")}, kept.rows)
    return Result(pl.DataFrame([ts, *kept.columns(*read)]), [taken], kept.names)


def _bucket_starts(ordered: EagerTable, width: BucketWidth) -> Ints:
    ts = ordered.array("ts")
    return runs.bucket_starts(ts - width.offset if width.offset else ts, ordered.groups, width.micros)


def means(ordered: EagerTable, values: list[str], counts: list[str], width: BucketWidth) -> Result:
    """Rules 3 and 4."""
    ts, starts = ordered.array("ts"), _bucket_starts(ordered, width)
    numbers, weighed = [pl.Series("ts", width.floor(ts[starts])).cast(pl.Datetime("us", "UTC"))], []
    for v in values:
        weights = np.nan_to_num(ordered.array(v + COUNT), nan=1.0) if v + COUNT in counts else None
        mean, count = runs.means(ordered.array(v), weights, starts)
        numbers.append(pl.Series(v, mean).fill_nan(None))
        weighed.append(pl.Series(v + COUNT, count))
    order = ["ts", *ordered.keys, *values, *(v + COUNT for v in values)]
    return beside(ordered.take(starts), ordered.keys, [*numbers, *weighed])._replace(order=order)


def _averaged(table: EagerTable) -> list[str]:
    """The columns that are averaged; others are left out with a warning."""
    if table.kind == "prices" and set(BBO) <= set(table.names):
        raise NotTidyError(
            "The frame has the columns of prices, which are averaged, and of bbo, of which the last row is kept; "
            "select the columns of one of them, resample each, and join the results."
        )
    own = [c for c in COLUMNS[table.kind] if c not in ("ts", *ID_COLUMNS)]
    values = value_columns(table.names)
    numbers = [v for v in values if v in own or table.is_number(v)]
    other = sorted(set(values) - set(numbers))
    if other:
        warn(f"{other} have no numbers and are left out of the means.", LeftOutWarning)
    return numbers


def _warn_unweighted(ts: Ints, own: BucketWidth | None) -> None:
    base = BASES["1m"]
    if own is None:
        # Finer values are mostly found among the first.
        is_coarse = all(np.all(part % COARSE == 0) for part in (ts[:100], ts)) or coarser_grid(ts, base) is not None
    else:
        is_coarse = own.micros > base.micros
    if is_coarse:
        warn(
            "These values are of buckets wider than 1m and carry no counts, so they look like means already; each is "
            "given the same weight. Resample from 1m values for the mean over their base points.",
            UnweightedMeanWarning,
        )
