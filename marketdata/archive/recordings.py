"""Files into an archive: tidy rows, and recordings of others, file after file, continued where it was stopped."""

from __future__ import annotations

import copy
import glob
import hashlib
import io
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.files import ENDS, DamagedFileError, RecordingFile
from marketdata.adapters.recordings.formats import Format, format_of
from marketdata.archive import files, ingest
from marketdata.archive.records import Record
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import Store, is_url
from marketdata.archive.store import ArchiveStore
from marketdata.display import progress_bar
from marketdata.errors import ConfigError, NotTidyError, RecordingWarning, warn
from marketdata.points.columns import Books, Ints, Token, joined
from marketdata.points.rebuild import GAP, Changes, Rebuilder, Tally, cleaned, each_once
from marketdata.points.views import VIEWS
from marketdata.tidy.rebuild import disagreement
from marketdata.times import MINUTE

# Levels of books that are added to the archive at a time.
_LEVELS = 3_000_000
# A gap that no recording has [microseconds].
_EVER = 1 << 61
# So much of the beginning and the end of a file tells it from others [bytes].
_ENDS = 1 << 20
# The notes of files that are left out for a reason.
BEFORE = "imported before"
OTHER = f"of another kind; names that end in these are read: {ENDS}"


class Options(NamedTuple):
    """How recordings are read; a file is imported again if one of the first four differs."""

    clock: str
    max_gap: int
    max_age: int
    unchanged: bool
    max_disagreement: float


class ImportedFile(NamedTuple):
    """What ``Archive.add_files`` did with a file; numbers are None where they do not apply, or it was left out."""

    file: str
    kind: str | None = None
    format: str | None = None
    rows: int | None = None
    points: int | None = None
    stored: int | None = None
    changes: int | None = None
    gaps: int | None = None
    disagreements: int | None = None
    left_out: str | None = None
    note: str | None = None


# The columns of the report, and their kinds.
COLUMNS = {
    name: "text" if name in ("file", "kind", "format", "left_out", "note") else "count" for name in ImportedFile._fields
}


class Import:
    """One import of recordings into an archive, which is the only one while it runs."""

    def __init__(self, store: ArchiveStore, options: Options) -> None:
        self.store, self.options = store, options
        self._journal = Journal(store)
        # The books that are open from file to file.
        self.feed = Rebuilder(store.base, options.max_gap, options.max_age, options.unchanged)
        self._journal.restore(self.feed, self._key)
        self._placed: dict[Token, Token] = {}
        # Tokens of no known market.
        self.unknown: set[str] = set()
        # The latest time of each token in the files so far.
        self.latest: dict[tuple[str, str | None], int] = {}
        # Times within the gaps of the recordings.
        self.gaps: set[int] = set()

    @property
    def _key(self) -> str:
        return json.dumps([self.store.base.text, *self.options[:4]])

    def add(
        self, some: Sequence[tuple[RecordingFile, Format]], *, named: set[Path], progress: bool | None
    ) -> list[ImportedFile]:
        """Add files in this order; a file that cannot be read is an error if it was ``named``, else said of it."""
        out: list[ImportedFile] = []
        digests = [_digest(file, f"{self._key} {chosen.name}") for file, chosen in some]
        # The files to read, by their number, and their sizes.
        sizes = {
            i: some[i][0].path.stat().st_size
            for i, digest in enumerate(digests)
            if digest not in self._journal.files and digest not in digests[:i]
        }
        disable = None if progress is None else not progress
        with progress_bar(total=sum(sizes.values()), unit="B", unit_scale=True, disable=disable) as bar:
            for i, (file, chosen) in enumerate(some):
                bar.set_description(f"file {i + 1} of {len(some)}")
                if i in sizes:
                    is_last, is_named = i == max(sizes), file.path in named
                    out.append(self._add(file, chosen, digests[i], is_last=is_last, is_named=is_named))
                else:
                    out.append(ImportedFile(str(file.path), "books", chosen.name, note=BEFORE))
                bar.set_postfix(rows=sum(one.rows or 0 for one in out), refresh=False)
                bar.update(sizes.get(i, 0))
        return out

    def _add(self, file: RecordingFile, chosen: Format, digest: str, *, is_last: bool, is_named: bool) -> ImportedFile:
        kept = copy.copy(self.feed)
        try:
            done = _File(self, file, chosen).add(is_last=is_last)
        except ConfigError as problem:
            self.feed = kept
            for part in self.feed.finish() if is_last else ():
                self.put(part, stand=self.feed.unchanged)
            is_told = file.path.name in problem.problem
            about_file = problem if is_told else ConfigError(f"{file.path.name!r}: {problem.problem}")
            if is_named:
                raise about_file from problem
            return _refused(file.path, about_file)
        self._journal.write(digest, self.feed, self._key)
        return done

    def place(self, token: Token) -> Token:
        """The token with the market that the archive knows it of, or that the file names, or one of its own."""
        if token not in self._placed:
            markets, name = self.store.catalog["markets"], str(token.token_id)
            owners = markets.markets_of(name)
            known = owners[0] if len(owners) == 1 else token.market_id
            if not known:
                self.unknown.add(name)
            self._placed[token] = Token(known or name, name, token.token_label)
        return self._placed[token]

    def learn(self, markets: list[Record]) -> None:
        """Store records that a file tells of."""
        ingest.add_records(self.store, markets, None, None)
        self._placed.clear()

    def put(self, books: Books, *, stand: bool) -> int:
        """Add books; parts that a gap divides are added one by one, so that no range has the gap in it."""
        out, most = 0, max(self.store.base.micros, MINUTE)
        gaps = np.array(sorted(self.gaps), np.int64)
        for part in without_gaps(books, most if stand else max(most, self.options.max_age), gaps):
            out += ingest.add_points(self.store, "books", part, replace=False, complete=False)[1]
        return out


# What is said of files in other than time order, or of times that two of them have.
_EARLY = (
    "token with times before those of a file before this one: of a bucket that both have, the book of this file is "
    "kept; if it should not be, add the files in the order of time to a new archive"
)


class _NotInOrderError(Exception):
    """A part of a file has books of a time before that of a part before it."""


class _File:
    """One file on its way into the archive."""

    def __init__(self, run: Import, file: RecordingFile, chosen: Format) -> None:
        self._run, self._file, self._format = run, file, chosen
        width = run.store.base
        # A book of a snapshot table is that of its own moment.
        self.feed = run.feed if chosen.stands else Rebuilder(width, _EVER, _EVER, unchanged=False)
        self.feed.tally = Tally()
        self._parts: list[Books] = []
        self._levels = self._books = self._stored = self._messages = 0
        self._left_out, self._odd = Counter[str](), Counter[str]()
        self._tokens: set[Token] = set()
        self._notes: list[str] = []
        # The first and the last time of each token so far.
        self._spans: dict[tuple[str, str | None], tuple[int, int]] = {}

    def add(self, *, is_last: bool) -> ImportedFile:
        """Read the file to its end; of the last one also what stands there.

        A snapshot table is taken to be in the order of time. Where it turns out not to be, it is read again as one
        part, which is sorted: of each bucket that is in the archive by then it has the last book.
        """
        try:
            return self._read(is_last=is_last)
        except _NotInOrderError:
            again = _File(self._run, replace(self._file, whole=True), self._format)
            again._notes.append("not in the order of time, so it was read as a whole")
            return again._read(is_last=is_last)

    def _read(self, *, is_last: bool) -> ImportedFile:
        try:
            for batch in self._format.read(self._file, self._run.options.clock):
                self._take(batch)
        except DamagedFileError as problem:
            if not self._messages:
                raise
            self._notes.append(problem.problem)
        if 0 < self._messages == self._left_out["damaged"]:
            raise ConfigError(f"none of its {self._messages:,} messages can be read.")
        if self._format.stands:
            self._keep(self.feed.end())
        if is_last or not self._format.stands:
            self._keep(self.feed.finish())
        self._flush()
        return self._report()

    def _take(self, batch: Batch) -> None:
        self._messages += batch.messages
        self._left_out += batch.left_out
        self._odd += batch.odd
        if batch.markets:
            self._run.learn(batch.markets)
        if self._format.stands:
            self._keep(self.feed.heard(batch.heard))
            self._run.gaps.update((self.feed.holes.sum(axis=1) // 2).tolist())
        if batch.changes is not None and len(batch.changes):
            changes, odd = cleaned(batch.changes)
            if not self._format.stands:
                # A book of its own moment is so in whatever order the rows are.
                changes = changes.take(np.lexsort((changes.ts, changes.token)))
            self._run.gaps.update(changes.ts[changes.event == GAP].tolist())
            self._left_out.update(odd)
            tokens = tuple(map(self._run.place, changes.tokens))
            self._tokens.update(tokens)
            self._check_order(changes, tokens)
            self._keep(self.feed.push(replace(changes, tokens=tokens)))

    def _check_order(self, changes: Changes, tokens: Sequence[Token]) -> None:
        """Note the times of each token; of a snapshot table no part may begin before one that came before it."""
        low, high = np.full(len(tokens), np.iinfo(np.int64).max), np.full(len(tokens), -1)
        np.minimum.at(low, changes.token, changes.ts)
        np.maximum.at(high, changes.token, changes.ts)
        for token, first, last in zip(tokens, low.tolist(), high.tolist(), strict=True):
            if first <= last:
                begin, end = self._spans.get(token[:2], (first, first))
                if first < end and not self._format.stands:
                    raise _NotInOrderError
                self._spans[token[:2]] = min(begin, first), max(end, last)

    def _count_early(self) -> int:
        """How many tokens have times before those of the files before this one, whose times are then noted too."""
        latest, most_back = self._run.latest, self.feed.most_back if self._format.stands else 0
        out = sum(begin < latest.get(token, begin) - most_back for token, (begin, _) in self._spans.items())
        latest.update({token: max(end, latest.get(token, end)) for token, (_, end) in self._spans.items()})
        return out

    def _keep(self, parts: Iterator[Books]) -> None:
        for part in parts:
            self._parts.append(part)
            self._books += len(part)
            self._levels += len(part.bids.price)
            if self._levels >= _LEVELS:
                self._flush()

    def _flush(self) -> None:
        tally = self.feed.tally
        if tally.disagreements > self._run.options.max_disagreement * tally.checked:
            raise NotTidyError(
                f"{self._file.path.name!r}: {disagreement(tally)}; allowed are "
                f"{100 * self._run.options.max_disagreement:g} %. If a part of the recording is missing there, give a "
                "smaller max_gap; max_disagreement=1 takes the books as they are.",
            )
        if self._parts:
            parts, self._parts, self._levels = self._parts, [], 0
            self._stored += self._run.put(each_once(joined(parts)).sort(), stand=self.feed.unchanged)

    def _report(self) -> ImportedFile:
        tally = self.feed.tally
        unknown = {t.token_id for t in self._tokens} & self._run.unknown
        said = {
            "change before a book": tally.unknown, "time that goes back": tally.back, **self._odd,
            _EARLY: self._count_early(),
            "token of no known market, kept as a market of its own": len(unknown),
        }  # fmt: skip
        notes = [*self._notes, *(f"{count:,} {what}" for what, count in said.items() if count)]
        counts = self._messages, self._books, self._stored, tally.changes, tally.gaps, tally.disagreements
        left_out = ", ".join(f"{count:,} {kind}" for kind, count in self._left_out.most_common())
        found = "books", self._format.name, *counts, left_out or None, "; ".join(notes) or None
        return ImportedFile(str(self._file.path), *found)


class Journal:
    """Which files are in the archive, and the books that were open at the end of the last one: one file, replaced."""

    def __init__(self, store: ArchiveStore) -> None:
        self._place = Store(f"{store.root.rstrip('/')}/imports", store.options)
        self.files: set[str] = set()
        self._state: dict[str, Any] = {}
        self._arrays: dict[str, Any] = {}
        with errors.reading(f"The journal of imports of {store.root}"):
            try:
                with self._place.open(_JOURNAL) as file:
                    body = file.read()
            except (FileNotFoundError, NotADirectoryError):
                return
        with np.load(io.BytesIO(body), allow_pickle=False) as found:
            self._state = json.loads(bytes(found["state"]).decode())
            self._arrays = {name: found[name] for name in found.files if name != "state"}
        self.files = set(self._state["files"])

    def restore(self, feed: Rebuilder, key: str) -> None:
        """The open books of the last import, if it was of these options."""
        if self._state.get("key") == key:
            tokens = tuple(Token(*one) for one in self._state["tokens"])
            feed.open = Changes(tokens, **self._arrays)
            feed.alive, feed.before = self._state["alive"], self._state["before"]

    def write(self, digest: str, feed: Rebuilder, key: str) -> None:
        """A file is in the archive, and these books are open."""
        self.files.add(digest)
        state = {
            "files": sorted(self.files), "key": key, "tokens": feed.open.tokens, "alive": feed.alive,
            "before": feed.before,
        }  # fmt: skip
        body = io.BytesIO()
        arrays = {f.name: getattr(feed.open, f.name) for f in fields(Changes) if f.name != "tokens"}
        np.savez(body, state=np.frombuffer(json.dumps(state).encode(), np.uint8), **arrays)
        with errors.writing(f"Writing the journal of imports to {self._place.uri}"):
            self._replace(body.getbuffer())

    def _replace(self, body: memoryview) -> None:
        if is_url(self._place.uri):
            self._place.write(_JOURNAL, body)
            return
        folder = Path(self._place.uri.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        made = f"{uuid.uuid4().hex}.part"
        self._place.write(made, body)
        (folder / made).replace(folder / _JOURNAL)


# The name of the file of the journal, in the format of numpy.
_JOURNAL = "journal.npz"


def without_gaps(books: Books, most: int, gaps: Ints) -> Iterator[Books]:
    """The books of all markets up to their first gap, then those up to the second, and so on.

    A gap is a distance above ``most`` [microseconds], or one of these times.
    """
    names: dict[str, int] = {}
    market = np.array([names.setdefault(t.market_id, len(names)) for t in books.tokens] or [0])[books.token]
    order = np.lexsort((books.ts, market))
    ts, market = books.ts[order], market[order]
    step = (np.diff(ts) > most) | (np.diff(np.searchsorted(gaps, ts, side="right")) != 0)
    number = np.append(0, np.cumsum(step & (np.diff(market) == 0)))[: len(order)]
    run = np.empty(len(order), np.int64)
    run[order] = number - number[np.searchsorted(market, market)]  # less that of the first of its market
    if not run.any():
        yield books
        return
    for one in range(int(run.max()) + 1):
        yield books.take(np.flatnonzero(run == one))


def _refused(path: Path, problem: ConfigError) -> ImportedFile:
    """The row of a file that was left out."""
    return ImportedFile(str(path), note=problem.problem)


def is_left_out(rows: int | None, note: str | None) -> bool:
    """Whether a row of the report is of a file that should have been read."""
    return rows is None and note not in (BEFORE, OTHER)


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """Files by name, numbers in names by their value."""

    def key(path: Path) -> list[tuple[int, str]]:
        return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"([0-9]+)", str(path))]

    return sorted(paths, key=key)


def _digest(recording: RecordingFile, key: str) -> str:
    """What tells a file from others: its size, how it begins and ends, and how it is read."""
    key = key if recording.token_id is None else f"{key} {recording.token_id}"
    with recording.path.open("rb") as file:
        size = recording.path.stat().st_size
        head = file.read(_ENDS)
        file.seek(max(size - _ENDS, 0))
        return hashlib.blake2b(f"{size} {key} ".encode() + head + file.read(), digest_size=16).hexdigest()


def _expanded(paths: Iterable[Path]) -> tuple[list[Path], set[Path]]:
    """The files of paths, folders and patterns, each once, and those that were named; ConfigError without any."""
    out: list[Path] = []
    named = set()
    for path in paths:
        if path.is_dir():
            inside = _in_order(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(path)))
            if not any(RecordingFile(p).form for p in inside):
                raise ConfigError(f"{str(path)!r} has no file whose name ends in these: {ENDS}.")
            out += inside
        elif glob.has_magic(str(path)) and not path.exists():
            found = _in_order(p for p in map(Path, glob.iglob(str(path), recursive=True)) if p.is_file())  # noqa: PTH207  of any folder
            if not found:
                raise ConfigError(f"{str(path)!r} matches no file.")
            out += found
        elif not path.is_file():
            raise ConfigError(f"{str(path)!r} does not exist.")
        else:
            out.append(path)
            named.add(path)
    return list(dict.fromkeys(out)), named


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def add_files(
    store: ArchiveStore,
    paths: Iterable[Path],
    options: Options,
    *,
    token_id: str | None,
    format: str | None,  # noqa: A002  as the option of the command is called
    progress: bool | None,
) -> list[ImportedFile]:
    """Add files as `Archive.add_files` does: records, then tidy points, then recordings."""
    every, named = _expanded(paths)
    tidy: list[files.Found] = []
    recordings: list[tuple[RecordingFile, Format]] = []
    out: list[ImportedFile] = []
    for path in every:
        file = RecordingFile(path, token_id)
        if file.form is None and path not in named:
            out.append(_refused(path, ConfigError(OTHER)))
            continue
        try:
            chosen = format_of(file, format) if file.form else None
            if chosen is not None:
                recordings.append((file, chosen))
            else:
                tidy.append(files.read(path))
        except ConfigError as problem:
            if path in named:
                raise
            out.append(_refused(path, problem))
    out += [_add_tidy(store, found) for found in sorted(tidy, key=lambda one: files.ORDER.index(one.kind))]
    if recordings:
        with store.writer("recordings"):
            out += Import(store, options).add(recordings, named=named, progress=progress)
    left = [one for one in out if is_left_out(one.rows, one.note)]
    if left and not any(one.format for one in out):
        raise ConfigError("None of the files can be read. " + " ".join(str(one.note) for one in left[:3]))
    for one in left:
        warn(f"Left out {one.note}", RecordingWarning)
    return out


def _add_tidy(store: ArchiveStore, one: files.Found) -> ImportedFile:
    points = stored = one.rows
    if one.kind in VIEWS:
        try:
            points, stored = ingest.add_points(store, one.kind, one.data, replace=False, complete=False)
        except NotTidyError as problem:
            raise NotTidyError(f"{one.path.name!r}: {problem}") from problem
    else:
        kinds = ("markets", "events", "series")
        ingest.add_records(store, *(one.data if kind == one.kind else None for kind in kinds))
    return ImportedFile(str(one.path), one.kind, "tidy", one.rows, points, stored)
