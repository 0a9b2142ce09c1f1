"""Reading: the files and row groups that statistics leave, as columns; and warnings about missing coverage."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa

from marketdata.archive.coverage.intervals import CoverageRecord, gaps, held, union, within
from marketdata.archive.coverage.policy import MINUTE, whole_minutes
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.coverage.table import CoverageTable
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.schema import from_tables
from marketdata.archive.storage.tables import Table, Version
from marketdata.errors import NotArchivedError, PartialCoverageWarning, warn
from marketdata.points.arguments import choice
from marketdata.points.columns import Data, Token, joined
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_datetime, to_micros, to_range
from marketdata.typing import FrameKind

if TYPE_CHECKING:
    import polars as pl

Missing = Literal["warn", "raise", "partial", "fetch"]
# Label of a token by its market_id and token_id, as the records of markets have it.
Labels = Mapping[tuple[str, str], str]
ALL_TIME = Range(-(2**61), 2**61)
# From so many files on they are read by threads.
_MANY_FILES = 4
_THREADS = min(8, os.cpu_count() or 1)
_DAY = 1440 * MINUTE
# A slice of so many rows of a batch costs less than a copy of them.
_LONG_SLICE = 1_000
_UNCERTAIN = (CoverageState.UNPROVEN, CoverageState.PROVISIONAL)


def read(
    table: Table,
    view: View,
    markets: str | Collection[str] | None,
    wanted: Range | Mapping[str, Range] | None = None,
    token_id: str | None = None,
    *,
    version: Version | None = None,
) -> Data:
    """Stored points of one market, several or (None) all, in tidy order; one ``wanted`` range, or one for each."""
    ranges = wanted if isinstance(wanted, Mapping) else None
    if ranges is not None and len(set(ranges.values())) == 1:
        wanted, ranges = next(iter(ranges.values())), None
    if isinstance(wanted, Range):
        hull = wanted
    elif ranges:
        hull = Range(min(r.start for r in ranges.values()), max(r.end for r in ranges.values()))
    else:
        hull = ALL_TIME
    ids = None if markets is None else sorted({markets} if isinstance(markets, str) else markets)

    def rows_of(file: DataFile) -> list[pa.Table]:
        groups = table.footer(file).groups(ids, hull.start, hull.end)
        return list(_selected(table.read(file, groups), ids, hull, token_id)) if groups else []

    files = files_of(version or table.version(), ids, hull)
    if len(files) < _MANY_FILES:
        parts = [rows_of(file) for file in files]
    else:
        # Fetching and decoding release the interpreter.
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = list(pool.map(rows_of, files))
    found = [rows for part in parts for rows in part]
    with errors.parsing(f"The {view} table"):
        columns = from_tables(view, found).sort()
    if ranges is None:
        return columns
    chosen = inside(columns.tokens, columns.token, columns.ts, {market: [rng] for market, rng in ranges.items()})
    return columns if chosen.all() else columns.take(np.flatnonzero(chosen))


def files_of(version: Version, markets: Sequence[str] | None, wanted: Range) -> list[DataFile]:
    """The files that may have points of the markets (sorted; None: any) in a range, in tidy order."""
    start, end = wanted
    some = [f for f in version.files if f.ts_max >= start and f.ts_min < end]
    if markets is not None and len(markets) == 1:
        (one,) = markets
        # Without a call per file: there may be ten thousand.
        some = [f for f in some if f.market_min is None or f.market_max is None or f.market_min <= one <= f.market_max]
    elif markets is not None:
        some = [f for f in some if f.markets_near(markets)]
    return sorted(some, key=lambda f: (f.market_min or "", f.ts_min))


def stored_ranges(table: Table, market: str, wanted: Range) -> list[Range]:
    """Ranges of row groups that may have points of a market in a range, by their statistics; disjoint, in order."""
    footers = (table.footer(file) for file in files_of(table.version(), [market], wanted))
    return union(
        Range(int(footer.ts_min[group]), int(footer.ts_max[group]) + 1)
        for footer in footers
        for group in footer.groups([market], *wanted)
    )


def inside(tokens: Sequence[Token], codes: Any, ts: Any, ranges: Mapping[str, Sequence[Range]]) -> Any:
    """Which points lie in a range of their market."""
    merged = {market: union(some) for market, some in ranges.items()}
    out = np.zeros(len(ts), dtype=bool)
    if not len(ts):
        return out
    for n in range(max((len(some) for some in merged.values()), default=0)):
        limits = [merged[t.market_id][n] if n < len(merged.get(t.market_id, ())) else Range(0, 0) for t in tokens]
        start, end = np.array(limits, dtype=np.int64).reshape(-1, 2).T
        out |= (ts >= start[codes]) & (ts < end[codes])
    return out


def _selected(rows: pa.Table, markets: Sequence[str] | None, wanted: Range, token_id: str | None) -> Iterable[pa.Table]:
    """The selected rows: they are sorted, so they are a few slices, which cost no copy."""
    for batch in rows.to_batches():
        ts = batch.column("ts").view(pa.int64()).to_numpy(zero_copy_only=False)
        mask = (ts >= wanted.start) & (ts < wanted.end)
        if markets is not None:
            mask &= _is_in(batch.column("market_id"), markets)
        if token_id is not None:
            mask &= _is_in(batch.column("token_id"), [token_id])
        if mask.all():
            yield pa.Table.from_batches([batch])
            continue
        edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
        if len(edges) <= 2 * max(1, int(mask.sum()) // _LONG_SLICE):
            for a, b in zip(edges[0::2], edges[1::2], strict=True):
                yield pa.Table.from_batches([batch.slice(a, b - a)])
        else:
            yield pa.Table.from_batches([batch.filter(pa.array(mask))])


def _is_in(array: pa.Array, names: Sequence[str]) -> Any:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    some = set(names)
    wanted = np.array([*(name in some for name in encoded.dictionary.to_pylist()), False])
    codes = encoded.indices.fill_null(-1) if encoded.null_count else encoded.indices
    return wanted[codes.to_numpy(zero_copy_only=False)]


def derived(
    table: Table,
    view: View,
    ranges: Mapping[str, Range],
    base: BucketWidth,
    width: BucketWidth,
    labels: Labels,
    token_id: str | None = None,
    *,
    counts: bool = False,
) -> Data:
    """Points of markets, each in a range, at a resolution, by the aggregation rules; ``counts``: see `has_counts`."""
    from marketdata.points.resample import resample_columns

    ranges = {market: clipped(wanted, base, width) for market, wanted in ranges.items()}
    version, parts = table.version(), list[Data]()
    counts = counts and has_counts(base, width)
    for part in _portions(version, ranges, base, width):
        points = labelled(read(table, view, part, part, token_id, version=version), labels)
        parts.append(points if width == base else resample_columns(points, width, counts=counts))
    if len(parts) == 1:
        return parts[0]
    return joined(parts).sort() if parts else empty(view)


def has_counts(base: BucketWidth, width: BucketWidth) -> bool:
    """Whether means come with the number of their points: those of seconds, whose times may be those of 1m points."""
    return base.micros < MINUTE and width != base


def labelled(columns: Data, labels: Labels) -> Data:
    """The same points, each token with the label of its record: stored ones may be from before the record changed."""
    new = [t._replace(token_label=labels.get((t.market_id, t.token_id or ""), t.token_label)) for t in columns.tokens]
    return columns if tuple(new) == columns.tokens else columns.of_codes(new, columns.token).sort()


def clipped(wanted: Range, base: BucketWidth, width: BucketWidth) -> Range:
    """A range of base points: whole minutes, unless seconds are read as widths below a minute."""
    return whole_minutes(wanted) if base.micros < MINUTE <= width.micros else wanted


def _portions(
    version: Version, ranges: Mapping[str, Range], base: BucketWidth, width: BucketWidth
) -> Iterator[Mapping[str, Range]]:
    """The ranges at once, or of seconds to aggregate a day at a time: a year of them is too much."""
    if base.micros == MINUTE or width == base:
        if ranges:
            yield ranges
        return
    files = [f for m, wanted in ranges.items() for f in files_of(version, [m], wanted)]
    at = width.floor(min((f.ts_min for f in files), default=0))
    end = max((f.ts_max for f in files), default=-1)
    while at <= end:
        until = at + max(width.micros, _DAY)
        some = {m: Range(max(r.start, at), min(r.end, until)) for m, r in ranges.items()}
        some = {m: r for m, r in some.items() if r.start < r.end}
        if some:
            yield some
        at = until


def held_ranges(
    coverage: CoverageTable, view: View, markets: Iterable[str] | None, start: Any, end: Any, on_missing: Missing
) -> dict[str, Range]:
    """The range to read of each market, or (None) of all that are stored; NotArchivedError if nothing of any is."""
    every = [m for v, m in coverage.keys() if v == view] if markets is None else list(markets)  # noqa: SIM118
    out: dict[str, Range] = {}
    lacking = [NotArchivedError(f"no {view} are stored; pull or add them first.")] if not every else []
    for market in every:
        try:
            out[market] = held_range(coverage, view, market, start, end, on_missing)
        except NotArchivedError as problem:
            if on_missing == "raise":
                raise
            lacking.append(problem)
    if not out:
        raise lacking[0]
    if lacking and markets is not None and on_missing == "warn":
        warn(
            f"Of {len(lacking)} of {len(every)} markets nothing is stored there: {lacking[0]}",
            PartialCoverageWarning,
            hint="Pull them, or pass on_missing='partial' to read the others without this warning.",
        )
    return out


def held_range(coverage: CoverageTable, view: View, market_id: str, start: Any, end: Any, on_missing: Missing) -> Range:
    """The range to read, after ``on_missing`` for what is missing or uncertain; NotArchivedError if all is missing."""
    records = coverage.records(view, market_id)
    have = held(records)
    name = f"{view} of market {market_id[:200]!r}"
    if not have:
        raise NotArchivedError(f"no {name} are stored; pull or add them first.")
    first = have[0].start if start is None else to_micros(start, "start")
    last = have[-1].end if end is None else to_micros(end, "end")
    if start is not None and end is not None:
        first, last = to_range(start, end)
    wanted = Range(first, last)
    missing = gaps(have, wanted) if first < last else [wanted]
    if missing == [wanted]:
        raise not_archived(f"{name} are not stored in {wanted}; stored: {_show(have)}.", wanted)
    if on_missing in ("warn", "raise"):
        _report(name, missing, within(records, wanted), on_missing)
    return wanted


def _report(name: str, missing: list[Range], records: Sequence[CoverageRecord], on_missing: Missing) -> None:
    """Warn or raise for what of a range is missing or uncertain."""
    # What waits to be fetched again, as empty ranges do, is complete as far as anybody knows.
    open_ = [p for p in records if p.state != CoverageState.PROVISIONAL or not p.tries]
    uncertain = {state: union(p.range for p in open_ if p.state == state) for state in _UNCERTAIN}
    if not missing and not any(uncertain.values()):
        return
    reasons = [(f"are missing in {_show(missing)}", missing)] if missing else []
    reasons += [(f"are {state} in {_show(found)}", found) for state, found in uncertain.items() if found]
    what = " and ".join(text for text, _ in reasons)
    if on_missing == "raise":
        raise not_archived(f"{name} {what}.", reasons[0][1][0])
    warn(
        f"{name} {what}; the answer has what is stored.",
        PartialCoverageWarning,
        hint="Pull the range, or pass on_missing='partial' to read what is there without this warning.",
    )


def not_archived(message: str, missing: Range) -> NotArchivedError:
    """The error that names the missing range."""
    error = NotArchivedError(message)
    error.range = (to_datetime(missing.start), to_datetime(missing.end))
    return error


def _show(ranges: list[Range]) -> str:
    more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
    return ", ".join(map(str, ranges[:3])) + more


def checked_views(views: Any) -> list[View]:
    """The ``views`` argument, one or several; else a ConfigError."""
    return [choice("view", view, VIEWS) for view in ([views] if isinstance(views, str) else views)]


def checked_missing(on_missing: Any) -> Missing:
    """The ``on_missing`` argument, None as "warn"; else a ConfigError."""
    return "warn" if on_missing is None else choice("on_missing", on_missing, get_args(Missing))


def coverage_frame(coverage: CoverageTable, frame: FrameKind) -> Any:
    """The coverage of all markets and views as a frame, touching ranges of one state as one."""
    import polars as pl

    columns = ["view", "market_id", "start", "end", "state", "rows", "fetched_at"]
    return of_kind(pl.DataFrame(coverage.all().select(columns)).filter(pl.col("view").is_in(VIEWS)), frame)


def frame_of(rows: list[tuple[Any, ...]], columns: dict[str, str], frame: FrameKind) -> Any:
    """A frame of a few rows; each column is "text", "time" [UTC] or "count"."""
    import polars as pl

    types: dict[str, Any] = {"text": pl.String, "time": pl.Datetime("us", "UTC"), "count": pl.Int64}
    schema = {name: types[kind] for name, kind in columns.items()}
    return of_kind(pl.DataFrame(rows, schema=schema, orient="row"), frame)


def of_kind(rows: pl.DataFrame, frame: FrameKind) -> Any:
    """A polars frame as the kind that was chosen, with ``.md``."""
    from marketdata.accessor import register

    register(frame)
    return rows if frame == "polars" else rows.to_pandas()
