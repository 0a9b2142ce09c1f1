"""Files into an archive: records, tidy points, and recordings of others, file after file."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from marketdata.adapters.recordings.files import SUFFIXES, DamagedFileError, RecordingFile
from marketdata.adapters.recordings.format import Batch, FileKind, Format, ReadOptions, format_of
from marketdata.adapters.recordings.paths import Paths
from marketdata.archive import ingest, query
from marketdata.archive.import_journal import Journal, fingerprint
from marketdata.archive.store import ArchiveStore, hull_of, times_of
from marketdata.display import progress_bar
from marketdata.errors import ConfigError, NotTidyError, RecordingWarning, warn
from marketdata.points import rebuild as rule
from marketdata.points.columns import Books, Data, Ints, Token, joined
from marketdata.points.order import ascending
from marketdata.points.rebuild import Changes, Rebuilder
from marketdata.points.views import VIEWS, View
from marketdata.tidy.rebuild import disagreement
from marketdata.times import MINUTE

_LEVELS_PER_WRITE = 3_000_000
# A file with fewer changes is read once, and kept in memory; only one with fewer than the second number is sorted.
_KEPT_CHANGES, _SORTED_CHANGES = 4_000_000, 16_000_000
IMPORTED_BEFORE = "imported before"
_SUPERSEDED = "superseded in its bucket"
OTHER_SUFFIX = f"of another kind; names that end in these are read: {SUFFIXES}"
_ORDER: tuple[FileKind, ...] = ("series", "events", "markets", *VIEWS)


class Options(NamedTuple):
    """Options of reading recordings; a file is imported again if one of the first five differs."""

    clock: str
    max_gap: int
    max_age: int
    unchanged: bool
    keep: tuple[str, ...]
    max_disagreement: float
    token_id: str | None
    format: str | None
    columns: dict[str, str]


def market_records(path: Path) -> pl.DataFrame:
    """The records of markets in a file."""
    if not path.is_file():
        raise ConfigError(f"{str(path)!r} does not exist.")
    file = RecordingFile(path)
    chosen = format_of(file)
    if chosen.kind != "markets":
        raise ConfigError(f"{path.name!r} has {chosen.kind}, not records of markets ({chosen.needed}).")
    batch = next(chosen.read(file, ReadOptions()))
    return batch.frame if batch.frame is not None else pl.DataFrame()


class ImportedFile(NamedTuple):
    """The result of ``Archive.add_files`` for a file; numbers are None where the file was left out."""

    file: str
    kind: str | None = None
    format: str | None = None
    why: str | None = None
    rows: int | None = None
    stored: int | None = None
    left_out: int | None = None
    reasons: str | None = None
    points: int | None = None
    replaced: int | None = None
    tokens: int | None = None
    start: int | None = None
    end: int | None = None
    changes: int | None = None
    gaps: int | None = None
    disagreements: int | None = None
    note: str | None = None


@dataclass
class _Account:
    """Counts of the rows of a file that were stored or left out."""

    rows: int = 0
    stored: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    points: int = 0
    replaced: int = 0
    tokens: set[tuple[str, str | None]] = field(default_factory=set)
    start: int | None = None
    end: int | None = None

    def add_points(self, columns: Data, replaced: int) -> None:
        """Count points that were stored."""
        if len(columns):
            self.points += len(columns)
            self.replaced += replaced
            self.tokens.update(token[:2] for token in columns.tokens)
            self.start = min(int(columns.ts.min()), self.start if self.start is not None else 1 << 62)
            self.end = max(int(columns.ts.max()), self.end if self.end is not None else -1 << 62)

    def report(self, file: Path, chosen: Format, why: str, tally: rule.Tally | None = None) -> ImportedFile:
        """The row of the report."""
        unexplained = self.rows - self.stored - self.left_out.total()
        self.left_out += Counter({"without a level": unexplained})
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common())
        levels, gaps, disagreements = (tally.levels, tally.gaps, tally.disagreements) if tally else (None, None, None)
        return ImportedFile(
            str(file), chosen.kind, chosen.name, why, self.rows, self.stored, self.left_out.total(), reasons or None,
            self.points, self.replaced, len(self.tokens), self.start, self.end, levels, gaps, disagreements,
            "; ".join(self.notes) or None,
        )  # fmt: skip


class Import:
    """One import of files into an archive.

    A dry run writes to ``store``, an empty archive that has the base and the records of the ``real`` one.
    """

    def __init__(self, store: ArchiveStore, options: Options, real: ArchiveStore | None = None) -> None:
        self.store, self.options, self._real = store, options, real
        self._key = json.dumps([store.base.text, *options[:5], options.columns])
        # The books that are open from file to file.
        self.feed = Rebuilder(store.base, options.max_gap, options.max_age, options.unchanged)
        self._journal = Journal(real or store)
        self._journal.restore(self.feed, self._key)
        self._has_points = bool(self._journal.files)
        self._placed: dict[Token, Token] = {}
        self.without_market: set[str] = set()
        # The latest time of each token in the files so far, and times within the gaps of the recordings.
        self.latest: dict[tuple[str, str | None], int] = {}
        self.gaps: set[int] = set()

    def add_recordings(
        self, files: Sequence[tuple[RecordingFile, Format]], *, named: set[Path], progress: bool | None
    ) -> Iterator[ImportedFile]:
        """Add recordings in this order; one that cannot be read is an error if it was ``named``, else said of it."""
        prints = [fingerprint(file.path, self._key, chosen.name, file.token_id) for file, chosen in files]
        sizes = {
            i: files[i][0].path.stat().st_size
            for i, file in enumerate(prints)
            if file not in self._journal.files and file not in prints[:i]
        }
        read: list[str] = []
        with progress_bar(progress, total=sum(sizes.values()), unit="B", unit_scale=True) as bar:
            for i, (file, chosen) in enumerate(files):
                bar.set_description(f"file {i + 1} of {len(files)}")
                if i not in sizes:
                    yield ImportedFile(str(file.path), chosen.kind, chosen.name, note=IMPORTED_BEFORE)
                    continue
                try:
                    done = self._add(file, chosen, is_last=i == max(sizes))
                except ConfigError as problem:
                    if file.path in named:
                        raise
                    done = ImportedFile(str(file.path), note=problem.problem)
                else:
                    read.append(prints[i])
                    # An import that stores nothing leaves nothing.
                    self._has_points |= bool(done.points)
                    if self._has_points and self._real is None:
                        self._journal.write(read, self.feed, self._key)
                yield done
                bar.update(sizes[i])

    def _add(self, file: RecordingFile, chosen: Format, *, is_last: bool) -> ImportedFile:
        """Add a recording, the last one with the books valid at its end; a ConfigError names it and leaves no book."""
        before = copy.copy(self.feed)
        try:
            return _RecordingImport(self, file, chosen).add(is_last=is_last)
        except ConfigError as problem:
            self.feed = before
            for part in self.feed.finish() if is_last else ():
                self.put(rule.Tally().compare(part), may_stay=self.feed.unchanged)
            raise _naming(file, problem) from problem

    def add_table(self, file: RecordingFile, chosen: Format) -> ImportedFile:
        """Add tidy points or records."""
        try:
            batch = next(chosen.read(file, ReadOptions(self.options.clock, self.options.keep)))
        except ConfigError as problem:
            raise _naming(file, problem) from problem
        frame = batch.frame
        assert frame is not None
        account = _Account(batch.rows, left_out=batch.left_out)
        if chosen.kind in VIEWS:
            self._add_points(file, chosen, frame, account)
        else:
            ingest.add_records(self.store, **{chosen.kind: frame})
            self._placed.clear()
            empty = len(frame) if "token_ids" not in frame.columns else int((frame["token_ids"].list.len() == 0).sum())
            if chosen.kind == "markets" and "tokens" not in frame.columns and empty:
                account.notes.append(f"{empty:,} markets without tokens")
                warn(
                    f"{file.path.name!r} has {empty:,} markets without tokens, of {len(frame):,}: their books cannot "
                    "be found by the market. Name the column with columns={'token_ids': ...}.",
                    RecordingWarning,
                )
        account.stored = account.rows - account.left_out.total()
        return account.report(file.path, chosen, self.why(chosen))

    def _add_points(self, file: RecordingFile, chosen: Format, frame: pl.DataFrame, account: _Account) -> None:
        view: Any = chosen.kind
        if "token_id" in frame.columns:
            frame = self._with_markets(frame)
        if view == "books" and len(frame):
            ids = [name for name in ("market_id", "token_id") if name in frame.columns]
            bucket = pl.col("ts").dt.epoch("us") // self.store.base.micros
            last = frame.select((pl.col("ts") == pl.col("ts").max().over(*ids, bucket)).alias("last"))["last"]
            account.left_out += Counter({_SUPERSEDED: int((~last).sum())})
            frame = frame.filter(last)
        if not len(frame):
            return
        try:
            self._put(view, frame, account)
        except NotTidyError as problem:
            raise NotTidyError(f"{file.path.name!r}: {problem}") from problem

    def _with_markets(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows, each with the market of its token where it has none."""
        tokens = frame["token_id"].cast(pl.String)
        if "market_id" in frame.columns and not frame["market_id"].null_count():
            return frame.with_columns(tokens)
        market_of = {token: self.place(Token("", token)).market_id for token in tokens.drop_nulls().unique()}
        markets = tokens.replace_strict(market_of, default=None, return_dtype=pl.String)
        if "market_id" in frame.columns:
            markets = frame["market_id"].cast(pl.String).fill_null(markets)
        return frame.with_columns(tokens, markets.alias("market_id"))

    def why(self, chosen: Format) -> str:
        """Why a file has its format."""
        return f"format={chosen.name}" if self.options.format else f"has {chosen.needed}"

    def place(self, token: Token) -> Token:
        """The token with the market that the archive knows, or that the file names, or one called as the token."""
        if token not in self._placed:
            name = str(token.token_id)
            owners = self.store.catalog["markets"].markets_of(name)
            market = owners[0] if len(owners) == 1 else token.market_id
            if not market:
                self.without_market.add(name)
            self._placed[token] = Token(market or name, name, token.token_label)
        return self._placed[token]

    def add_markets(self, markets: list[dict[str, Any]]) -> None:
        """Add records that a recording has."""
        if markets:
            ingest.add_records(self.store, markets)
            self._placed.clear()

    def put(self, books: Books, *, may_stay: bool, account: _Account | None = None) -> None:
        """Add books; parts that a gap divides are added one by one, so that no range has the gap in it."""
        most = max(self.store.base.micros, MINUTE)
        gaps = np.array(sorted(self.gaps), np.int64)
        for part in without_gaps(books, most if may_stay else max(most, self.options.max_age), gaps):
            self._put("books", part, account)

    def _put(self, view: View, data: Any, account: _Account | None) -> None:
        added = ingest.add_points(self.store, view, data)
        replaced = len(added.columns) - added.growth
        if self._real is not None:
            replaced = min(len(added.columns), replaced + _count_stored(self._real, view, added.columns))
        if account is not None:
            account.add_points(added.columns, replaced)


class _RecordingImport:
    """One recording on its way into the archive."""

    def __init__(self, run: Import, file: RecordingFile, chosen: Format) -> None:
        self._run, self._file, self._format = run, file, chosen
        self._account, self._tally = _Account(), rule.Tally()
        run.feed.tally = self._tally
        self._read_options = ReadOptions(run.options.clock, run.options.keep)
        # Books that are to be added together, and how many levels they have.
        self._books: list[Books] = []
        self._levels = 0
        # The first and the last time of each token so far.
        self._spans: dict[tuple[str, str | None], tuple[int, int]] = {}

    def add(self, *, is_last: bool) -> ImportedFile:
        """Read the file to its end: once if it fits into memory, else again after its order is known."""
        kept, count, early, too_early = self._read()
        out_of_order = too_early if self._format.changes else early
        if kept is None and out_of_order:
            if count > _SORTED_CHANGES:
                raise ConfigError(
                    f"is not in the order of time, and too large to be sorted in memory. "
                    f"{100 * out_of_order / count:.1f} % of its {count:,} changes come after a later one of their "
                    "token and would be lost. Sort its rows by time first, or divide it into files of a range of time "
                    "each that are named in that order."
                )
            kept = list(self._batches())
        if kept is None:
            self._add_batches(self._batches())
        else:
            whole = rule.joined([batch.changes for batch in kept])
            self._receive(kept)
            self._add_batches([Batch(rule.by_time(whole) if early else whole)])
        if self._format.changes:
            self._keep(self._run.feed.end())
        if is_last:
            self._keep(self._run.feed.finish())
        self._flush()
        return self._report(early if kept is not None else 0)

    def _read(self) -> tuple[list[Batch] | None, int, int, int]:
        """The batches, None if they are too many to keep; the changes, and how many are not in the order of time."""
        kept: list[Batch] | None = []
        count = early = too_early = 0
        latest: dict[Token, int] = {}
        account = self._account
        for batch in self._batches():
            account.rows += batch.rows
            account.left_out += batch.left_out
            count += len(batch.changes)
            is_early, is_too_early = rule.out_of_order(batch.changes, latest)
            early += int(is_early.sum())
            too_early += int(is_too_early.sum())
            kept = None if kept is None or count > _KEPT_CHANGES else [*kept, batch]
        if 0 < account.rows == account.left_out["damaged"]:
            raise ConfigError(f"none of its {account.rows:,} messages can be read.")
        return kept, count, early, too_early

    def _batches(self) -> Iterator[Batch]:
        """The batches of the file, of a damaged one those before the damage."""
        any_rows = False
        try:
            for batch in self._format.read(self._file, self._read_options):
                any_rows |= batch.rows > 0
                yield batch
        except DamagedFileError as problem:
            if not any_rows:
                raise
            if problem.problem not in self._account.notes:
                self._account.notes.append(problem.problem)

    def _add_batches(self, batches: Iterable[Batch]) -> None:
        """Add batch after batch; the last bucket of each token waits for the next one, as it may go on there."""
        waiting = rule.no_changes()
        for batch in batches:
            self._receive([batch])
            changes = rule.joined([waiting, batch.changes])
            changes = changes.take(np.argsort(changes.token, kind="stable"))
            waits = np.zeros(len(changes), bool)
            if not self._format.changes or self._format.row_per_level:
                waits = rule.in_last_bucket(changes, self._run.store.base)
            waiting = changes.take(waits)
            self._add_changes(changes.take(~waits))
        self._add_changes(waiting)

    def _receive(self, batches: list[Batch]) -> None:
        """Note markets and times of arrival before the changes of the same batches."""
        run = self._run
        run.add_markets([market for batch in batches for market in batch.markets])
        if self._format.changes:
            self._keep(run.feed.received(np.concatenate([batch.received for batch in batches])))
            run.gaps.update((run.feed.holes.sum(axis=1) // 2).tolist())

    def _add_changes(self, changes: Changes) -> None:
        """Make books of changes."""
        if not len(changes):
            return
        run, account = self._run, self._account
        changes = rule.joined([replace(changes, tokens=tuple(map(run.place, changes.tokens)))])
        if self._format.row_per_level:
            changes = replace(changes, event=rule.first_rows(changes.event, changes.token, changes.ts))
        changes, _, lost = rule.cleaned(changes)
        account.left_out += Counter({"price outside of 0 to 1 or size below 0": lost})
        self._note_spans(changes)
        run.gaps.update(changes.ts[changes.event == rule.GAP].tolist())
        if self._format.changes:
            self._keep(run.feed.push(changes))
            return
        rows = ascending(changes.row[changes.row >= 0])
        changes = changes.take(np.lexsort((changes.ts, changes.token)))
        books, used = rule.snapshots(changes, run.store.base)
        used = used[used >= 0]
        account.stored += len(used)
        account.left_out += Counter({_SUPERSEDED: len(rows) - len(used)})
        self._tally.levels += int(np.count_nonzero(~np.isnan(changes.price)))
        self._keep([books])

    def _note_spans(self, changes: Changes) -> None:
        count = len(changes.tokens)
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(low, changes.token, changes.ts)
        np.maximum.at(high, changes.token, changes.ts)
        for token, first, last in zip(changes.tokens, low.tolist(), high.tolist(), strict=True):
            if first <= last:
                begin, end = self._spans.get(token[:2], (first, last))
                self._spans[token[:2]] = min(begin, first), max(end, last)

    def _keep(self, parts: Iterable[Books]) -> None:
        for part in parts:
            self._books.append(part)
            self._levels += len(part.bids.price)
            if self._levels >= _LEVELS_PER_WRITE:
                self._flush()

    def _flush(self) -> None:
        if self._books:
            books, self._books, self._levels = self._tally.compare(rule.each_once(joined(self._books))), [], 0
            self._check()
            may_stay = self._format.changes and self._run.feed.unchanged
            self._run.put(books.sort(), may_stay=may_stay, account=self._account)

    def _check(self) -> None:
        """NotTidyError above the share of books that may disagree with what the messages state."""
        allowed = self._run.options.max_disagreement
        if self._tally.disagreements > allowed * self._tally.checked:
            raise NotTidyError(
                f"{self._file.path.name!r}: {disagreement(self._tally)}; allowed are {100 * allowed:g} %. If a part of "
                "the recording is missing there, give a smaller max_gap; max_disagreement=1 takes all books."
            )

    def _report(self, sorted_changes: int) -> ImportedFile:
        run, account, tally = self._run, self._account, self._tally
        if self._format.changes:
            account.stored = tally.applied
            account.left_out += Counter({"change before a book": tally.unknown})
        back, before = (run.feed.most_back if self._format.changes else 0), 0
        for token, (begin, end) in self._spans.items():
            before += begin < run.latest.get(token, begin) - back
            run.latest[token] = max(end, run.latest.get(token, end))
        nameless = len(run.without_market.intersection(str(name) for _, name in self._spans))
        notes = {
            "changes came after a later one of their token, so the file was sorted by time": sorted_changes,
            "time that goes back": tally.back,
            "tokens with times before those of an earlier file: of a bucket that both have, the book of this file is "
            "kept; if it should not be, add the files in the order of time to a new archive": before,
            "tokens of no known market, kept as markets of their own": nameless,
        }  # fmt: skip
        account.notes += [f"{count:,} {what}" for what, count in notes.items() if count]
        return account.report(self._file.path, self._format, run.why(self._format), tally)


def _naming(file: RecordingFile, problem: ConfigError) -> ConfigError:
    """The problem with the name of the file."""
    if file.path.name in problem.problem:
        return problem
    return ConfigError(f"{file.path.name!r}: {problem.problem}")


def _count_stored(store: ArchiveStore, view: View, columns: Data) -> int:
    """How many of these points are in an archive."""
    ranges = {market: hull_of(times, store.base.micros) for market, times in times_of(columns).items()}
    stored = query.read(store.points[view], view, list(ranges), ranges)
    keys = [
        {(points.tokens[code][:2], ts) for code, ts in zip(points.token.tolist(), points.ts.tolist(), strict=True)}
        for points in (columns, stored)
    ]
    return len(keys[0] & keys[1])


def without_gaps(books: Books, most: int, gaps: Ints) -> Iterator[Books]:
    """The books of all markets up to their first gap, then those up to the second, and so on.

    A gap is a distance above ``most`` [microseconds], or one of these times.
    """
    number_of: dict[str, int] = {}
    market = np.array([number_of.setdefault(t.market_id, len(number_of)) for t in books.tokens] or [0])[books.token]
    order = np.lexsort((books.ts, market))
    ts, market = books.ts[order], market[order]
    is_gap = (np.diff(ts) > most) | (np.diff(np.searchsorted(gaps, ts, side="right")) != 0)
    gaps_before = np.append(0, np.cumsum(is_gap & (np.diff(market) == 0)))[: len(order)]
    run = np.empty(len(order), np.int64)
    run[order] = gaps_before - gaps_before[np.searchsorted(market, market)]  # within the market
    if not run.any():
        yield books
        return
    for number in range(int(run.max()) + 1):
        yield books.take(np.flatnonzero(run == number))


def is_left_out(rows: int | None, note: str | None) -> bool:
    """Whether a row of the report tells of a file that could not be read."""
    return rows is None and note not in (IMPORTED_BEFORE, OTHER_SUFFIX)


def add_files(
    store: ArchiveStore, paths: Paths, options: Options, *, progress: bool | None, real: ArchiveStore | None = None
) -> list[ImportedFile]:
    """Add files as `Archive.add_files` does: records, then tidy points, then recordings."""
    tables, recordings = list[tuple[RecordingFile, Format]](), list[tuple[RecordingFile, Format]]()
    out: list[ImportedFile] = []
    for path in paths.files:
        file = RecordingFile(path, options.token_id, options.columns)
        try:
            if file.form is None and path not in paths.named:
                raise ConfigError(OTHER_SUFFIX)
            chosen = format_of(file, options.format)
            if chosen.kind == "trades":
                raise ConfigError(
                    f"{path.name!r} has trades ({chosen.needed}), which an archive does not store: md.read_trades "
                    "reads them. If its rows are changes of books, add a column is_snapshot."
                )
            is_table = chosen.kind != "books" or chosen.name == "books"
            (tables if is_table else recordings).append((file, chosen))
        except ConfigError as problem:
            if path in paths.named:
                raise
            out.append(ImportedFile(str(path), note=problem.problem))
    run = Import(store, options, real)
    tables.sort(key=lambda pair: _ORDER.index(pair[1].kind))
    out += [run.add_table(*pair) for pair in tables]
    out += run.add_recordings(recordings, named=paths.named, progress=progress)
    left_out = [row for row in out if is_left_out(row.rows, row.note)]
    if left_out and not any(row.format for row in out):
        raise ConfigError("None of the files can be read. " + " ".join(str(row.note) for row in left_out[:3]))
    for row in left_out:
        warn(f"Left out {row.note}", RecordingWarning)
    return out
