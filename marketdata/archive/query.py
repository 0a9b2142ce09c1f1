"""Reads: columns of the files and row groups that statistics leave, and warnings about missing coverage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_type_hints

import numpy as np
import pyarrow as pa

from marketdata.archive.arrow import dictionary_of, from_tables, tokens_of
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.coverage.intervals import STATES, CoverageRecord, CoverageState, covered, gaps, union, within
from marketdata.archive.feed import Feed
from marketdata.archive.records import Labels, active_times
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import LAST_NAME, DataFile, cuts, holding, hull
from marketdata.archive.storage.tables import Table, Version
from marketdata.errors import NotArchivedError, PartialCoverageWarning, warn
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Data, Series, Token, Trades, joined
from marketdata.points.schema import is_count
from marketdata.points.views import VIEWS, View, empty, quotes_of
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_datetime, to_micros, to_range
from marketdata.typing import FrameKind

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
K = TypeVar("K", int, str)
Missing = Literal["warn", "raise", "partial", "fetch"]
Records = Mapping[str, Sequence[CoverageRecord]]  # by market_id
ALL_TIME = Range(-(2**61), 2**61)
_NEVER = Range(0, 0)
_EXPIRED = "The venue no longer keeps points as fine as these: import a recording, or pull a coarser base."
# Memory stays bounded: points to aggregate are read by parts of files [bytes], and a larger market by ranges of time.
_PART = 4_000_000
_LARGEST_PART = 16_000_000
_MINUTES = BucketWidth.of("1m")


@dataclass(frozen=True)
class Query:
    """Points of one ``version`` of a table at a resolution, for frames, scans of every engine, and pages.

    ``markets`` are sorted; None stands for all that are ``between`` two names. ``wanted`` selects base points before
    aggregation, and ``ranges`` narrows it for single markets. ``counts`` adds the number of points to means. With
    ``nested``, rows of books are snapshots with four lists. ``books`` belong to the markets without quotes: their top
    stands for these. With ``as_bars``, prints are bars of the width; else they are rows of their own times.
    """

    view: View
    table: Table
    version: Version
    markets: Sequence[str] | None = None
    wanted: Range = ALL_TIME
    ranges: Mapping[str, Range] | None = None
    width: BucketWidth = _MINUTES
    base: BucketWidth = _MINUTES
    labels: Labels | None = None
    token_id: str | None = None
    levels: int | None = None
    counts: bool = False
    nested: bool = False
    between: tuple[str, str] = ("", LAST_NAME)
    books: Query | None = None
    as_bars: bool = False

    @property
    def is_stored(self) -> bool:
        """Whether the rows are as they are stored."""
        return self.width == self.base and not self.as_bars

    def without_rows(self) -> Query:
        """The same query without files, which tells the columns."""
        return replace(self, version=Version(-1, (), self.version.schema), books=None)

    def of_markets(self, markets: Sequence[str]) -> Query:
        """The same query for some of its markets, which are sorted and adjacent in the files."""
        inside = None if self.labels is None else self.labels.between(markets[0], markets[-1])
        version = pruned(self.version, markets, self.wanted)
        books = None if self.books is None else self.books.of_markets(markets)
        own = markets if self.markets is None else sorted({*markets}.intersection(self.markets))
        return replace(self, markets=own, labels=inside, version=version, books=books)

    def columns(self) -> Data:
        """All points at once, in tidy order."""
        from marketdata.points.bars import bars

        parts = list(self.points(in_parts=False))
        return joined(parts).sort() if parts else bars(Trades.empty(), self.width) if self.as_bars else empty(self.view)

    def points(self, *, in_parts: bool = True) -> Iterator[Data]:
        """The points in parts: some whole markets, or some whole buckets of one large market."""
        from marketdata.points.bars import bars
        from marketdata.points.resample import resample_columns

        labels: Mapping[tuple[str, str], str] = {} if self.labels is None else self.labels
        # Points to aggregate are read in small parts: all at once may not fit into memory.
        for points in self.stored(self.width if in_parts or not self.is_stored else None):
            # Stored labels may be from before a record changed.
            tokens = [Token(m, token, labels.get((m, token or ""), label)) for m, token, label in points.tokens]
            out = points if tuple(tokens) == points.tokens else points.grouped(tokens, points.token).sort()
            if isinstance(out, Trades):
                out = bars(out, self.width) if self.as_bars else out
            elif not self.is_stored:
                out = resample_columns(out, self.width, counts=self.counts)
            yield out.cut(self.levels) if self.levels is not None and isinstance(out, Books) else out
        for books in () if self.books is None else self.books.points(in_parts=in_parts):
            yield quotes_of(books)  # type: ignore[arg-type]

    def stored(self, width: BucketWidth | None = None) -> Iterator[Data]:
        """The points as they are stored, in tidy order: all in one part, or in parts that cut no bucket of a width."""
        ranges = self.ranges or dict.fromkeys(self.markets or (), self.wanted)
        limits = None if self.markets is None else {market: ranges.get(market, _NEVER) for market in self.markets}
        for part in [self] if width is None else self._parts(width):
            tables = _each(partial(part.rows_in, limits), part.files_in(self.version.files))
            with errors.parsing(f"The {self.view} table"):
                columns = from_tables(self.view, tables).sort()
            if len(columns):
                yield columns

    def _parts(self, width: BucketWidth) -> Iterator[Query]:
        """The query cut between markets, and a large market between buckets."""
        groups = _each(lambda file: self.files_in(self.table.footer(file).groups), self.files_in(self.version.files))
        for between in cut_keys([(g.market_min, g.size) for g in groups], LAST_NAME, _PART):
            part = replace(self, between=between)
            starts = [(max(width.floor(g.ts_min), self.wanted.start), g.size) for g in part.files_in(groups)]
            for span in cut_keys(starts, self.wanted.end, _LARGEST_PART):
                yield replace(part, wanted=Range(*span))

    def files_in(self, files: Sequence[DataFile]) -> list[DataFile]:
        """The files or row groups that may have points of it."""
        first, last = self.between
        near = holding(files, self.markets, self.wanted)
        return [file for file in near if file.market_min < last and file.market_max >= first]

    def rows_in(self, limits: Mapping[str, Range] | None, file: DataFile) -> list[pa.Table]:
        """The rows of a file, of each market within its limits."""
        groups = self.files_in(self.table.footer(file).groups)
        if not groups:
            return []
        rows = self.table.read(file, [g.number for g in groups])
        if limits is not None:  # first, as most tokens of a file may be of other markets
            market_codes, markets = dictionary_of(rows["market_id"].combine_chunks())
            is_wanted = np.array([market in limits for market in markets])[market_codes]
            rows = rows if is_wanted.all() else rows.filter(pa.array(is_wanted))
        tokens, codes = tokens_of(self.view, rows.to_batches())
        (first, last), ranges = self.between, []
        for market, token, _ in tokens:
            is_here = bool(market) and first <= market < last and self.token_id in (None, token)
            limit = self.wanted if limits is None else limits.get(market, _NEVER)
            ranges.append(limit if is_here else _NEVER)
        start, end = np.array(ranges, dtype=np.int64).reshape(-1, 2).T.clip(*self.wanted)
        # Most tokens of a row group may be of other markets, so that few rows have a time to compare.
        chosen = np.flatnonzero((start < end)[codes])
        ts, token_codes = rows["ts"].cast(pa.int64()).to_numpy()[chosen], codes[chosen]
        chosen = chosen[(ts >= start[token_codes]) & (ts < end[token_codes])]
        return [rows if len(chosen) == len(rows) else rows.take(pa.array(chosen))]


def read(table: Table, view: View, ranges: Mapping[str, Range]) -> Data:
    """Stored points of some markets, each in its range, in tidy order."""
    return Query(view, table, table.version(), sorted(ranges), hull(ranges.values()), ranges).columns()


def cut_keys(sizes: Iterable[tuple[K, int]], end: K, most: int) -> Iterator[tuple[K, K]]:
    """Half-open ranges of keys up to ``end``, each cut where another ``most`` bytes are before."""
    totals: Counter[K] = Counter()
    for key, size in sizes:
        totals[key] += size
    keys = sorted(totals)
    for first, last in cuts(np.array([totals[key] for key in keys]), most):
        yield keys[first], keys[last] if last < len(keys) else end


def _each(made: Callable[[DataFile], list[T]], files: Sequence[DataFile]) -> list[T]:
    """The result for each file, by threads: fetching and decoding release the interpreter."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [one for part in pool.map(made, files) for one in part]


def apart(query: Query, base: BucketWidth) -> tuple[Data, Series | None]:
    """The points of a query, and the counts of base points behind its means if frames do not show them.

    Frames of seconds show them, because nothing else tells their means from points of 1m.
    """
    points = query.columns()
    if not isinstance(points, Series) or not query.counts or base.micros < _MINUTES.micros:
        return points, None
    counts = {name: values for name, values in points.values.items() if is_count(name, points.values)}
    shown = {name: values for name, values in points.values.items() if name not in counts}
    return replace(points, values=shown), replace(points, values=counts)


def pruned(version: Version, markets: Sequence[str] | None, wanted: Range) -> Version:
    """The version with only the files that may have points of the (sorted) markets, or of any (None), in a range."""
    files = sorted(holding(version.files, markets, wanted), key=lambda f: (f.market_min, f.ts_min))
    return Version(version.number, tuple(files), version.schema)


def stored_ranges(table: Table, market: str, wanted: Range) -> list[Range]:
    """Ranges of row groups that may have points of a market in a range, by their statistics; disjoint, in order."""
    files = pruned(table.version(), [market], wanted).files
    groups = [group for file in files for group in holding(table.footer(file).groups, [market], wanted)]
    return union(Range(group.ts_min, group.ts_max + 1) for group in groups)


def covered_ranges(
    view: View,
    records: Records,
    names: Mapping[str, str] | None,
    start: Any,
    end: Any,
    on_missing: Missing,
    active: Callable[[str], Range] = lambda _: ALL_TIME,
) -> dict[str, Range]:
    """The range to read of each market, or (None) of all stored ones; NotArchivedError if nothing of them is stored.

    ``records`` are about the wanted markets, or about all; messages call a market by its entry in ``names``. Nothing
    is missing beside the range in which a market was ``active``. One warning names everything that is missing.
    """
    out, lacking, incomplete = dict[str, Range](), list[NotArchivedError](), list[NotArchivedError]()
    for market in records:
        what = f"{view} of market {(names or {}).get(market, market)[:200]!r}"
        try:
            out[market], problem = _covered_range(records[market], what, start, end, partial(active, market))
        except NotArchivedError as nothing:
            if on_missing == "raise":
                raise
            lacking.append(nothing)
            continue
        incomplete += [problem] if problem is not None else []
    if not out:
        raise lacking[0] if lacking else NotArchivedError(f"no {view} are stored; pull or add them first.")
    if incomplete and on_missing == "raise":
        raise incomplete[0]
    for problems, what in ((lacking, "nothing is stored there"), (incomplete, "not all is surely stored")):
        if problems and on_missing == "warn" and (names is not None or problems is incomplete):
            one = problems is incomplete and len(problems) == 1
            said = "" if one else f"Of {len(problems)} of {len(records)} markets {what}: "
            is_over = all(problem.hint == _EXPIRED for problem in problems)
            hint = _EXPIRED if is_over else "Pull the range."
            warn(
                f"{said}{problems[0].problem} The answer has what is stored.",
                PartialCoverageWarning,
                hint=f"{hint} Or pass on_missing='partial' to read what is there without this warning.",
            )
    return out


def _covered_range(
    records: Sequence[CoverageRecord], name: str, start: Any, end: Any, active: Callable[[], Range]
) -> tuple[Range, NotArchivedError | None]:
    """The range to read, and what is missing or uncertain of it; NotArchivedError if nothing of it is stored."""
    stored = covered(records)
    if not stored:
        raise NotArchivedError(f"no {name} are stored; pull or add them first.")
    first = stored[0].start if start is None else to_micros(start, "start")
    last = stored[-1].end if end is None else to_micros(end, "end")
    wanted = Range(first, last) if start is None or end is None else to_range(start, end)
    inside = within(records, wanted)
    problems = {"missing": gaps([r.range for r in inside], wanted) if wanted.start < wanted.end else [wanted]}
    for record in inside:
        # A range that is only to be asked again, as empty ones are, is complete as far as is known.
        is_answered = record.state == CoverageState.PROVISIONAL and record.tries
        if not (STATES[record.state].is_certain or is_answered):
            problems.setdefault(str(record.state), []).append(record.range)
    if not covered(inside):
        raise _not_archived(f"{name} are not stored in {wanted}; stored: {_show(stored)}.", wanted, problems)
    if problems["missing"]:
        life = active()
        cut = (Range(max(one.start, life.start), min(one.end, life.end)) for one in problems["missing"])
        problems["missing"] = [one for one in cut if one.start < one.end]
    problems = {what: union(ranges) for what, ranges in problems.items() if ranges}
    if not problems:
        return wanted, None
    what = " and ".join(f"are {what} in {_show(ranges)}" for what, ranges in problems.items())
    return wanted, _not_archived(f"{name} {what}.", next(iter(problems.values()))[0], problems)


def active_range(record: Mapping[str, Any], width: BucketWidth) -> Range:
    """The buckets in which a market was active, by its record; from or to any time where that is not known."""
    began, closed = active_times(record)
    first = ALL_TIME.start if began is None else width.floor(began)
    return Range(first, ALL_TIME.end if closed is None else width.floor(closed - 1) + width.micros)


def _not_archived(message: str, missing: Range, problems: Mapping[str, object]) -> NotArchivedError:
    """The error that names the missing range, with a hint where no pull can fetch it."""
    is_over = {what for what, ranges in problems.items() if ranges} == {str(CoverageState.EXPIRED)}
    error = NotArchivedError(message, hint=_EXPIRED if is_over else "")
    error.range = (to_datetime(missing.start), to_datetime(missing.end))
    return error


def _show(ranges: list[Range]) -> str:
    more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
    return ", ".join(map(str, ranges[:3])) + more


def checked_views(views: object, feed: Feed) -> list[View]:
    """The ``views`` argument, one or several, by default those that the client's source has; else a ConfigError."""
    if views is None:
        views = feed.views
    several = views if isinstance(views, Iterable) and not isinstance(views, str) else [views]
    return [choice("view", view, VIEWS) for view in several]


def coverage_frame(coverage: Mapping[View, Coverage], frame: FrameKind) -> Any:
    """The coverage of all markets and views as a frame, a row per range."""
    import polars as pl

    names = CoverageRecord._fields[:5]
    types = dict.fromkeys(("view", "market_id"), pl.String) | dict.fromkeys(names, pl.Int64) | {"state": pl.String}
    parts = [pl.DataFrame(schema=types)]
    for view, stored in coverage.items():
        by_market = stored.all()
        # All values of a column at once: 100,000 rows one by one take ten times as long.
        every = [record for records in by_market.values() for record in records]
        columns = {name: [record[place] for record in every] for place, name in enumerate(names)}
        counts = [len(records) for records in by_market.values()]
        markets = pl.Series([*by_market], dtype=pl.String).gather(np.repeat(np.arange(len(counts)), counts))
        rows = pl.DataFrame(columns, {name: types[name] for name in names})
        parts.append(rows.select(pl.lit(view).alias("view"), markets.alias("market_id"), *names))
    return _timed(pl.concat(parts), frame)


def report(kind: type[tuple[Any, ...]], rows: Iterable[tuple[Any, ...]], frame: FrameKind) -> Any:
    """A frame of named tuples of texts and whole numbers; ``start``, ``end`` and ``fetched_at`` are times."""
    import polars as pl

    hints = get_type_hints(kind).items()
    types = {name: pl.Int64() if int in (hint, *get_args(hint)) else pl.String() for name, hint in hints}
    return _timed(pl.DataFrame(list(rows), schema=types, orient="row"), frame)


def _timed(rows: pl.DataFrame, frame: FrameKind) -> Any:
    import polars as pl

    return in_kind(rows.with_columns(pl.col("^(start|end|fetched_at)$").cast(pl.Datetime("us", "UTC"))), frame)


def in_kind(rows: pl.DataFrame, frame: FrameKind) -> Any:
    """A polars frame as the kind that was chosen."""
    return rows if frame == "polars" else rows.to_pandas()
