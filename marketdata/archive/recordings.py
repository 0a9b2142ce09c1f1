"""Files into an archive: tidy rows, and recordings of others, file after file, continued where it was stopped."""

from __future__ import annotations

import contextlib
import copy
import glob
import hashlib
import io
import json
import os
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
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import Store
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
    """Options of reading recordings; a file is imported again if one of the first four differs."""

    clock: str
    max_gap: int
    max_age: int
    unchanged: bool
    max_disagreement: float
    token_id: str | None
    format: str | None


class ImportedFile(NamedTuple):
    """The result of ``Archive.add_files`` for a file; numbers are None if they do not apply, or it was left out."""

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


class Import:
    """One import of recordings into an archive, which is the only one while it runs."""

    def __init__(self, store: ArchiveStore, options: Options) -> None:
        self.store, self.options = store, options
        self._key = json.dumps([store.base.text, *options[:4]])
        # The books that are open from file to file.
        self.feed = Rebuilder(store.base, options.max_gap, options.max_age, options.unchanged)
        self._journal = Journal(store)
        self._journal.restore(self.feed, self._key)
        # The tokens of files as they are stored, and those of no known market.
        self.placed: dict[Token, Token] = {}
        self.unknown: set[str] = set()
        # The latest time of each token in the files so far, and times within the gaps of the recordings.
        self.latest: dict[tuple[str, str | None], int] = {}
        self.gaps: set[int] = set()

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
        with progress_bar(progress, total=sum(sizes.values()), unit="B", unit_scale=True) as bar:
            for i, (file, chosen) in enumerate(some):
                bar.set_description(f"file {i + 1} of {len(some)}")
                done = ImportedFile(str(file.path), "books", chosen.name, note=BEFORE)
                if i in sizes:
                    try:
                        done = self._add(file, chosen, is_last=i == max(sizes))
                        self._journal.write(digests[i], self.feed, self._key)
                    except ConfigError as problem:
                        if file.path in named:
                            raise
                        done = ImportedFile(str(file.path), note=problem.problem)
                out.append(done)
                bar.set_postfix(rows=sum(one.rows or 0 for one in out), refresh=False)
                bar.update(sizes.get(i, 0))
        return out

    def _add(self, file: RecordingFile, chosen: Format, *, is_last: bool) -> ImportedFile:
        """Add a file, of the last one also what stands at its end; ConfigError that names it, with nothing of it open.

        A snapshot table is taken to be in the order of time. Where it turns out not to be, it is read again as one
        part, which is sorted: of each bucket that is in the archive by then it has the last book.
        """
        kept = copy.copy(self.feed)
        try:
            try:
                return _File(self, file, chosen).add(is_last=is_last)
            except _NotInOrderError:
                note = "not in the order of time, so it was read as a whole"
                return _File(self, replace(file, whole=True), chosen, note).add(is_last=is_last)
        except ConfigError as problem:
            self.feed = kept
            for part in self.feed.finish() if is_last else ():
                self.put(part, stand=self.feed.unchanged)
            if file.path.name in problem.problem:
                raise
            raise ConfigError(f"{file.path.name!r}: {problem.problem}") from problem

    def place(self, token: Token) -> Token:
        """The token with the market that the archive knows it of, or that the file names, or one of its own."""
        if token not in self.placed:
            owners, name = self.store.catalog["markets"].markets_of(str(token.token_id)), str(token.token_id)
            known = owners[0] if len(owners) == 1 else token.market_id
            if not known:
                self.unknown.add(name)
            self.placed[token] = Token(known or name, name, token.token_label)
        return self.placed[token]

    def put(self, books: Books, *, stand: bool) -> int:
        """Add books; parts that a gap divides are added one by one, so that no range has the gap in it."""
        most = max(self.store.base.micros, MINUTE)
        gaps = np.array(sorted(self.gaps), np.int64)
        parts = without_gaps(books, most if stand else max(most, self.options.max_age), gaps)
        return sum(ingest.add_points(self.store, "books", part)[1] for part in parts)


# Messages about files in no order of time, and about times that two files have.
_EARLY = (
    "token with times before those of a file before this one: of a bucket that both have, the book of this file is "
    "kept; if it should not be, add the files in the order of time to a new archive"
)


class _NotInOrderError(Exception):
    """A part of a file has books of a time before that of a part before it."""


class _File:
    """One file on its way into the archive."""

    def __init__(self, run: Import, file: RecordingFile, chosen: Format, *notes: str) -> None:
        self._run, self._file, self._format, self._notes = run, file, chosen, [*notes]
        # A book of a snapshot table is that of its own moment.
        self.feed = run.feed if chosen.stands else Rebuilder(run.store.base, _EVER, _EVER, unchanged=False)
        self.feed.tally = Tally()
        # Books that are to be added together.
        self._parts: list[Books] = []
        self._levels = self._books = self._stored = self._messages = 0
        self._left_out, self._odd = Counter[str](), Counter[str]()
        # The first and the last time of each token so far.
        self._spans: dict[tuple[str, str | None], tuple[int, int]] = {}

    def add(self, *, is_last: bool) -> ImportedFile:
        """Read the file to its end."""
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
        run, stands = self._run, self._format.stands
        self._messages += batch.messages
        self._left_out += batch.left_out
        self._odd += batch.odd
        if batch.markets:
            ingest.add_records(run.store, batch.markets)
            run.placed.clear()
        if stands:
            self._keep(self.feed.heard(batch.heard))
            run.gaps.update((self.feed.holes.sum(axis=1) // 2).tolist())
        if batch.changes is not None and len(batch.changes):
            changes, odd = cleaned(batch.changes)
            if not stands:
                # A book of its own moment is so in whatever order the rows are.
                changes = changes.take(np.lexsort((changes.ts, changes.token)))
            run.gaps.update(changes.ts[changes.event == GAP].tolist())
            self._left_out.update(odd)
            changes = replace(changes, tokens=tuple(map(run.place, changes.tokens)))
            self._check_order(changes)
            self._keep(self.feed.push(changes))

    def _check_order(self, changes: Changes) -> None:
        """Note the times of each token; of a snapshot table no part may begin before one that came before it."""
        count = len(changes.tokens)
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
        np.minimum.at(low, changes.token, changes.ts)
        np.maximum.at(high, changes.token, changes.ts)
        for token, first, last in zip(changes.tokens, low.tolist(), high.tolist(), strict=True):
            if first <= last:
                begin, end = self._spans.get(token[:2], (first, first))
                if first < end and not self._format.stands:
                    raise _NotInOrderError
                self._spans[token[:2]] = min(begin, first), max(end, last)

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
        tally, latest = self.feed.tally, self._run.latest
        back, early = self.feed.most_back if self._format.stands else 0, 0
        for token, (begin, end) in self._spans.items():
            early += begin < latest.get(token, begin) - back
            latest[token] = max(end, latest.get(token, end))
        said = {
            "change before a book": tally.unknown, "time that goes back": tally.back, **self._odd, _EARLY: early,
            "token of no known market, kept as a market of its own": len(
                self._run.unknown.intersection(str(name) for _, name in self._spans)
            ),
        }  # fmt: skip
        notes = [*self._notes, *(f"{count:,} {what}" for what, count in said.items() if count)]
        counts = self._messages, self._books, self._stored, tally.changes, tally.gaps, tally.disagreements
        left_out = ", ".join(f"{count:,} {kind}" for kind, count in self._left_out.most_common())
        found = "books", self._format.name, *counts, left_out or None, "; ".join(notes) or None
        return ImportedFile(str(self._file.path), *found)


# The name of the file of the journal, in the format of numpy.
_JOURNAL = "journal.npz"


class Journal:
    """The imported files, and the books that were open at the end of the last one: one file, replaced."""

    def __init__(self, store: ArchiveStore) -> None:
        self._place = Store(f"{store.root.rstrip('/')}/imports", store.options)
        self._state: dict[str, Any] = {}
        self._arrays: dict[str, Any] = {}
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with errors.reading(f"The journal of imports of {store.root}"), absent, self._place.open(_JOURNAL) as file:
            self._arrays = dict(np.load(io.BytesIO(file.read()), allow_pickle=False))
            self._state = json.loads(bytes(self._arrays.pop("state")).decode())
        self.files: set[str] = set(self._state.get("files", ()))

    def restore(self, feed: Rebuilder, key: str) -> None:
        """The open books of the last import, if it was of these options."""
        if self._state.get("key") == key:
            feed.open = Changes(tuple(Token(*one) for one in self._state["tokens"]), **self._arrays)
            feed.alive, feed.before = self._state["alive"], self._state["before"]

    def write(self, digest: str, feed: Rebuilder, key: str) -> None:
        """A file is in the archive, and these books are open."""
        self.files.add(digest)
        about = {"key": key, "tokens": feed.open.tokens, "alive": feed.alive, "before": feed.before}
        state = json.dumps({"files": sorted(self.files), **about}).encode()
        arrays = {f.name: getattr(feed.open, f.name) for f in fields(Changes) if f.name != "tokens"}
        np.savez(file := io.BytesIO(), state=np.frombuffer(state, np.uint8), **arrays)
        body = file.getvalue()
        with errors.writing(f"Writing the journal of imports to {self._place.uri}"):
            if self._place.remote:
                self._place.write(_JOURNAL, body)
                return
            # Written beside the old one, so that there is always a whole one.
            Path(self._place.uri).mkdir(parents=True, exist_ok=True)
            self._place.write(made := f"{uuid.uuid4().hex}.part", body)
            self._place.files.move(made, _JOURNAL)


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


def is_left_out(rows: int | None, note: str | None) -> bool:
    """Whether a row of the report is of a file that should have been read."""
    return rows is None and note not in (BEFORE, OTHER)


def _in_order(paths: Iterable[Path]) -> list[Path]:
    """Files by name, numbers in names by their value."""

    def key(path: Path) -> list[tuple[int, str]]:
        return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"([0-9]+)", str(path))]

    return sorted(paths, key=key)


def _digest(recording: RecordingFile, key: str) -> str:
    """The fingerprint of a file: its size, its beginning and end, and the options by which it is read."""
    key = key if recording.token_id is None else f"{key} {recording.token_id}"
    with recording.path.open("rb") as file:
        size = recording.path.stat().st_size
        head = file.read(_ENDS)
        file.seek(max(size - _ENDS, 0))
        return hashlib.blake2b(f"{size} {key} ".encode() + head + file.read(), digest_size=16).hexdigest()


def expanded(paths: Any) -> tuple[list[Path], set[Path]]:
    """The files of paths, folders and patterns, each once, and those that were named; ConfigError without any."""
    some = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    refused = [one for one in some if not isinstance(one, str | os.PathLike)] if some else [paths]
    if refused:
        problem = f"{'is refused' if some else 'names nothing'}; pass paths of files and folders, at least one."
        raise ConfigError(problem, argument="paths", value=refused[0])
    out, named = list[Path](), set[Path]()
    for path in map(Path, some):
        if path.is_dir():
            inside = (p.relative_to(path) for p in path.rglob("*") if p.is_file())
            found = _in_order(path / p for p in inside if not any(part.startswith((".", "_")) for part in p.parts))
            if not any(RecordingFile(p).form for p in found):
                raise ConfigError(f"{str(path)!r} has no file whose name ends in these: {ENDS}.")
        elif glob.has_magic(str(path)) and not path.exists():
            found = _in_order(p for p in map(Path, glob.iglob(str(path), recursive=True)) if p.is_file())  # noqa: PTH207  of any folder
            if not found:
                raise ConfigError(f"{str(path)!r} matches no file.")
        elif not path.is_file():
            raise ConfigError(f"{str(path)!r} does not exist.")
        else:
            found = [path]
            named.add(path)
        out += found
    return list(dict.fromkeys(out)), named


def add_files(
    store: ArchiveStore, paths: tuple[list[Path], set[Path]], options: Options, *, progress: bool | None
) -> list[ImportedFile]:
    """Add `expanded` files as `Archive.add_files` does: records, then tidy points, then recordings."""
    every, named = paths
    tidy, recordings = list[files.Found](), list[tuple[RecordingFile, Format]]()
    out: list[ImportedFile] = []
    for path in every:
        file = RecordingFile(path, options.token_id)
        try:
            if file.form is None and path not in named:
                raise ConfigError(OTHER)
            chosen = format_of(file, options.format) if file.form else None
            if chosen is not None:
                recordings.append((file, chosen))
            else:
                tidy.append(files.read(path))
        except ConfigError as problem:
            if path in named:
                raise
            out.append(ImportedFile(str(path), note=problem.problem))
    out += [_add_tidy(store, found) for found in sorted(tidy, key=lambda one: files.ORDER.index(one.kind))]
    if recordings:
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
            points, stored = ingest.add_points(store, one.kind, one.data)
        except NotTidyError as problem:
            raise NotTidyError(f"{one.path.name!r}: {problem}") from problem
    else:
        ingest.add_records(store, **{one.kind: one.data})
    return ImportedFile(str(one.path), one.kind, "tidy", one.rows, points, stored)
