"""Files into an archive: records, tidy points, and recordings of others, file after file."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from marketdata.archive import ingest
from marketdata.archive.import_writer import Writer
from marketdata.archive.token_markets import TokenMarkets, is_told
from marketdata.display import progress_bar
from marketdata.errors import ConfigError, NotTidyError, RecordingWarning, warn
from marketdata.points.columns import Books, Ints, Token
from marketdata.points.order import ascending
from marketdata.points.views import VIEWS, View
from marketdata.recordings import changes as rule
from marketdata.recordings.arrivals import Arrivals
from marketdata.recordings.changes import Changes, Rebuilder
from marketdata.recordings.containers import SUFFIXES
from marketdata.recordings.files import ReadOptions, RecordingFile, tables_of
from marketdata.recordings.format import Format, format_of, readable
from marketdata.recordings.partitions import Partitions
from marketdata.recordings.table import Batch, FileKind, Table
from marketdata.recordings.trades import prints_once
from marketdata.recordings.units import PriceUnit
from marketdata.recordings.wanted import EVERYTHING, NOT_WANTED, Selection, Wanted, wanted_in
from marketdata.times import MINUTE

_FEW_BOOKS = 3
_LEVELS_PER_WRITE = 3_000_000
# A file with fewer changes is read once, and kept in memory; only one with fewer than the second number is sorted.
_KEPT_CHANGES, _SORTED_CHANGES = 4_000_000, 16_000_000
IMPORTED_BEFORE = "imported before"
_SUPERSEDED = "superseded in its bucket"
OTHER_SUFFIX = f"of another kind; names that end in these are read: {SUFFIXES}"
_NUMBERS_OF_ROWS = re.compile(r", such as row [\d, ]+")
_ORDER: tuple[FileKind, ...] = ("series", "events", "markets", *VIEWS)
# The columns of the report; numbers are null where a file was left out.
_REPORT: dict[str, Any] = {
    **dict.fromkeys(("file", "kind", "format", "why"), pl.String),
    **dict.fromkeys(("rows", "stored", "left_out"), pl.Int64), "reasons": pl.String,
    **dict.fromkeys(("points", "replaced", "tokens"), pl.Int64),
    **dict.fromkeys(("start", "end"), pl.Datetime("us", "UTC")),
    **dict.fromkeys(("changes", "gaps", "disagreements"), pl.Int64), "note": pl.String,
}  # fmt: skip


def market_records(path: Path) -> list[dict[str, Any]]:
    """The records of markets in a file."""
    path = path.expanduser()
    if not path.is_file():
        raise ConfigError(f"{str(path)!r} does not exist.")
    table = Table(readable(RecordingFile(path)))
    chosen = format_of(table)
    if "markets" not in (chosen.kind, *chosen.kinds):
        raise ConfigError(f"{path.name!r} has {chosen.kind}, not records of markets ({chosen.needed}).")
    return [record for batch in chosen.read(table) for record in batch.frames.get("markets", [])]


class Import:
    """One import of files into an archive.

    Books are rebuilt by ``feed``, which has those that are open from file to file. Points go to the ``writer``.
    """

    def __init__(
        self,
        writer: Writer,
        feed: Rebuilder,
        options: ReadOptions,
        most_wrong: float,
        selection: Selection,
    ) -> None:
        self.writer, self.feed, self.most_wrong = writer, feed, most_wrong
        self.store = store = writer.store
        self.selection = selection.aligned(store.base)
        # The names of markets and tokens that were wanted and found.
        self.found: set[str | None] = set()
        # A file is imported again if one of these differs.
        limits = (store.base.text, feed.max_gap, feed.max_age, feed.unchanged)
        read_as = (options.clock, options.keep, dict(options.columns), options.token_id, options.time_format)
        self._key = json.dumps([*limits, *read_as, options.sides, *self.selection])
        self._journal = writer.journal
        self._journal.restore(feed, self._key)
        self._has_points = bool(self._journal.files)
        self.tokens = TokenMarkets(store)
        self.in_two_markets: list[str] = []
        # Times within the gaps of the recordings.
        self.gaps: set[int] = set()

    def add_recordings(
        self, files: Sequence[tuple[Table, Format]], named: Mapping[Path, bool], done: Callable[[], object]
    ) -> Iterator[dict[str, Any]]:
        """Add recordings in this order. An unreadable one is an error if it was ``named``, else the report says so."""
        prints = [self._fingerprint(table.file, chosen) for table, chosen in files]
        new = [i for i, file in enumerate(prints) if file not in self._journal.files and file not in prints[:i]]
        read: list[str] = []
        for i, (table, chosen) in enumerate(files):
            file = table.file
            if i:
                done()
            if i not in new:
                about = {"file": called(file), "kind": chosen.kind, "format": chosen.name}
                yield {**about, "note": IMPORTED_BEFORE}
                continue
            before, refused = copy.copy(self.feed), None
            part = ImportedFile(self, table, chosen)
            if i == new[-1] and not chosen.changes:  # open books end before books of single moments begin
                part.keep(self.feed.finish())
            try:
                part.add_recording()
            except ConfigError as problem:  # a file that is refused leaves no book open
                refused, self.feed = _naming(file, problem), before
                part = ImportedFile(self, table, chosen)
            if i == new[-1] and (chosen.changes or refused is not None):
                part.keep(self.feed.finish())
            part.flush()
            if refused is not None:
                if named[file.path]:
                    raise refused
                yield {"file": called(file), "note": refused.problem}
                continue
            read.append(prints[i])
            row = part.report()
            # An import that stores nothing leaves nothing.
            self._has_points |= bool(row["points"])
            if self._has_points:
                self.writer.imported(read, self.feed, self._key)
            yield row

    def _fingerprint(self, file: RecordingFile, chosen: Format) -> str:
        """A text that is equal for equal files and options."""
        options = f"{self._key} {chosen.name} {file.table or ''}".encode()
        if file.path.is_dir():  # a Delta table; its log names its files
            logs = sorted(file.path.glob("_delta_log/*.json"))
            return hashlib.blake2b(options + b"".join(log.read_bytes() for log in logs), digest_size=16).hexdigest()
        with file.path.open("rb") as stream:
            return hashlib.file_digest(stream, partial(hashlib.blake2b, options, digest_size=16)).hexdigest()

    def wanted(self) -> Wanted:
        """What is wanted, with all names that the records so far give to it."""
        return wanted_in(self.selection, self.store.catalog["markets"])

    def not_found(self) -> list[str]:
        """The names of ``only`` that no file has."""
        catalog = self.store.catalog["markets"]
        return [name for name in self.selection.only or () if not self.found & {name, catalog.named(name)}]

    def add_records(self, kind: FileKind, records: Any) -> None:
        """Add records of a file; a record with derived ids changes nothing of a known market."""
        if kind == "markets":
            find = self.store.catalog["markets"].find
            derived = [row for row in records if row.get("ids_are_derived")]
            known = {row["market_id"] for row in derived if is_told(found := find(row["market_id"])) and found
                     and not found.get("ids_are_derived")}  # fmt: skip
            records = [row for row in records if row.get("market_id") not in known]
        if records:
            ingest.add_records(self.store, **{kind: records})
            self.tokens.place_anew()


class ImportedFile:
    """One file on its way into the archive, and the counts of its rows that were stored or left out."""

    def __init__(self, run: Import, table: Table, chosen: Format) -> None:
        self._run, self._table, self._file, self._format = run, table, table.file, chosen
        self._wanted = run.wanted()
        # A book depends on all rows of its token before it, and on the times of all rows.
        is_pruned = not chosen.changes or chosen.name == "market-channel"
        table.bucket = run.store.base.micros
        table.keep_only(self._wanted if is_pruned else Wanted(), in_time=not chosen.changes)
        self._rows = self._stored = self._points = self._replaced = self._sorted = 0
        self._left_out, self._notes = Counter[str](), list[str]()
        self._kinds = 0
        self._tally = run.feed.tally = rule.Tally()
        # Books that are to be added together, and how many levels they have.
        self._books, self._levels = list[Books](), 0
        # The tokens whose market is unknown, and the tokens and times that are stored.
        self._nameless = set[str]()
        self._stored_tokens, self._stored_times = set[tuple[str, str | None]](), list[int]()

    def report(self) -> dict[str, Any]:
        """The row of the report."""
        chosen, tally = self._format, self._tally
        if chosen.changes:
            self._stored = tally.applied
            self._left_out += Counter({"change before a book": tally.unknown})
        self._left_out += Counter({"without a level": self._rows - self._stored - self._left_out.total()})
        reasons = self._reasons()
        counts = {
            "changes came after a later one of their token, so the file was sorted by time": self._sorted,
            "time that goes back": tally.back,
            "tokens of no known market, kept as markets of their own": len(self._nameless),
        }
        if self._file.needles is not None and self._file.form != "parquet":  # rows that were skipped have no number
            self._notes = [_NUMBERS_OF_ROWS.sub("", note) for note in self._notes]
        notes = [*([self._file.damage] if self._file.damage else []), *dict.fromkeys(self._notes)]
        notes += [f"{count:,} {what}" for what, count in counts.items() if count]
        notes += (in_two := [*self._in_other_markets()])
        self._run.in_two_markets += in_two
        row = {
            "file": called(self._file), "kind": chosen.kind_text if self._kinds > 1 else chosen.kind,
            "format": chosen.name,
            "why": f"format={chosen.name}" if self._file.options.format else f"has {chosen.needed}",
            "rows": self._rows, "stored": self._stored, "left_out": self._left_out.total(), "reasons": reasons or None,
            "points": self._points, "replaced": self._replaced, "tokens": len(self._stored_tokens),
            "start": min(self._stored_times, default=None), "end": max(self._stored_times, default=None),
            "note": "; ".join(notes) or None,
        }  # fmt: skip
        if _is_recording(chosen):
            row |= {"changes": tally.levels, "gaps": tally.gaps, "disagreements": tally.disagreements}
        return row

    def _in_other_markets(self) -> Iterator[str]:
        """The note about tokens that are in another market too."""
        elsewhere = self._run.tokens.elsewhere
        both = sorted(key for key in elsewhere if key in self._stored_tokens)
        if both:
            market, token = both[0]
            yield (
                f"{len(both):,} tokens are in two markets, such as {token[:24]!r} in {market[:70]!r} and "
                f"{elsewhere[both[0]][:70]!r}: import with markets= records that name the tokens of each market"
            )

    def add_table(self) -> None:
        """Add tidy points or records."""
        batches = self._format.read(self._table)
        try:
            first = next(batches, Batch())
            # Parts of a large table are read one by one; the first one tells whether the file is refused.
            rest: Iterable[Batch] = batches if first.grid else list(batches)
        except ConfigError as problem:
            raise _naming(self._file, problem) from problem
        for batch in chain([first], rest):
            self._rows += batch.rows
            self._left_out += batch.left_out
            self._notes += batch.notes
            self._run.add_records("markets", self._wanted_records(batch.markets))
            for kind in sorted(batch.frames, key=_ORDER.index):
                rows = batch.frames[kind]
                if kind not in VIEWS:
                    rows = self._of_wanted(kind, rows, batch.frames)
                self._kinds += bool(len(rows))
                if kind in VIEWS:
                    self._add_points(kind, rows, batch.grid)
                else:
                    self._run.add_records(kind, rows)
                    self._check_tokens(kind, rows)
        self._stored = self._rows - self._left_out.total()
        if self._rows and not self._stored and self._left_out.keys() != {NOT_WANTED}:
            raise _naming(self._file, ConfigError(f"stores none of its {self._rows:,} rows: {self._why()}."))

    def _why(self) -> str:
        """Why rows were left out, with the first one that cannot be read."""
        return "; ".join([self._reasons(), *(note for note in self._notes if note.startswith("row "))][:2])

    def add_trades(self) -> None:
        """Add prints, market after market; each once, as `marketdata.read_trades` has them."""
        with Partitions(bucket=1) as prints:
            try:
                for batch in self._format.read(self._table):
                    self._rows += batch.rows
                    self._left_out += batch.left_out
                    self._notes += batch.notes
                    self._run.add_records("markets", self._wanted_records(batch.markets))
                    if (rows := batch.frames.get("trades")) is not None and len(rows):
                        prints.add(self._wanted_rows(rows, self._placed_rows(rows)))
            except ConfigError as problem:
                raise _naming(self._file, problem) from problem
            for part in prints.parts():
                once = prints_once(part)
                self._left_out["recorded twice, or the repeated leg of a taker"] += len(part) - len(once)
                self._add_prints(once)
        self._left_out = +self._left_out
        self._stored = self._rows - self._left_out.total()
        if self._rows and not self._stored and self._left_out.keys() != {NOT_WANTED}:
            raise _naming(self._file, ConfigError(f"stores none of its {self._rows:,} rows: {self._reasons()}."))

    def _add_prints(self, rows: pl.DataFrame) -> None:
        """Store the prints of whole markets. An id that several of them have is that of a trade, not of a print."""
        if "trade_id" in rows.columns:
            values = ("market_id", "token_id", "side", "price", "size")
            of_id = rows.filter(pl.col("trade_id").is_not_null()).select("trade_id", *values).unique()
            several = of_id.filter(pl.col("trade_id").is_duplicated())["trade_id"].unique()
            if len(several):
                self._notes.append("an id of a trade with several prints does not tell these apart, and is left out")
                known = pl.when(~pl.col("trade_id").is_in(several.implode())).then("trade_id")
                rows = rows.with_columns(known.alias("trade_id"))
        if len(rows):
            self._store("trades", rows.with_columns(pl.col("ts").cast(pl.Int64).cast(pl.Datetime("us", "UTC"))))

    def _wanted_records(self, markets: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [record for record in markets if self._wanted.has_record(record)]

    def _of_wanted(self, kind: FileKind, rows: list[dict[str, Any]], frames: Mapping[FileKind, Any]) -> Any:
        """The records of a file that are wanted: markets, and the events that come with them."""
        if self._wanted.markets is None:
            return rows
        markets = self._wanted_records(frames.get("markets", []))
        if kind == "markets":
            kept = markets
            self._run.found.update(name for record in kept for name in self._wanted.names_of(record))
        else:
            of = {str(record.get(name)) for record in markets for name in ("event_id", "event_slug", "event_ticker")}
            kept = [row for row in rows if {str(row.get(n)) for n in ("id", "slug", "event_id", "event_slug")} & of]
        self._left_out[NOT_WANTED] += len(rows) - len(kept)
        return kept

    def _check_tokens(self, kind: FileKind, records: list[dict[str, Any]]) -> None:
        empty = sum(not (row.get("tokens") or row.get("token_ids")) for row in records)
        if kind == "markets" and empty:
            self._notes.append(f"{empty:,} markets without tokens")
            warn(
                f"{self._file.name!r} has {empty:,} markets without tokens, of {len(records):,}: their books "
                "cannot be found by the market. Name the column with columns={'token_ids': ...}.",
                RecordingWarning,
            )

    def _reasons(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self._left_out.most_common())

    def _add_points(self, view: View, frame: pl.DataFrame, grid: int = 0) -> None:
        frame = self._wanted_rows(frame, self._placed_rows(frame))
        if view == "books":
            ids = [name for name in ("market_id", "token_id") if name in frame.columns]
            bucket = pl.col("ts").dt.epoch("us") // self._run.store.base.micros
            last = frame.filter(pl.col("ts") == pl.col("ts").max().over(*ids, bucket))
            self._left_out += Counter({_SUPERSEDED: len(frame) - len(last)})
            frame = last
        if len(frame):
            try:
                self._store(view, frame, grid)
            except NotTidyError as problem:
                raise NotTidyError(f"{self._file.name!r}: {problem}") from problem

    def _wanted_rows(self, given: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
        """The rows of wanted markets, tokens and times; ``given`` has the ids of the file."""
        wanted = self._wanted
        if not wanted:
            return placed
        frames = ((placed, "market_id"), (placed, "token_id"), (given, "market_id"))
        ids = pl.DataFrame([
            (frame[name].cast(pl.String) if name in frame.columns else pl.Series([None] * len(frame), dtype=pl.String))
            .alias(str(number)) for number, (frame, name) in enumerate(frames)
        ])  # fmt: skip
        found = [one for one in ids.unique().rows() if wanted.has(one[0], one[1]) or wanted.has(one[2], None)]
        self._run.found.update(name for one in found for name in one)
        of_token = ids.with_row_index("at").join(
            pl.DataFrame(found, ids.schema, orient="row"), on=ids.columns, how="semi", nulls_equal=True
        )
        kept = np.zeros(len(placed), bool)
        kept[of_token["at"].to_numpy()] = True
        kept &= wanted.in_time(placed["ts"].dt.epoch("us").to_numpy())
        self._left_out[NOT_WANTED] += int((~kept).sum())
        return placed.filter(kept)

    def _placed_rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with the market of each token or slug."""
        names = [name for name in ("market_id", "token_id") if name in frame.columns]
        if "token_id" not in names:
            if "market_id" not in names:
                return frame
            find = self._run.store.catalog["markets"].find
            markets = frame["market_id"].cast(pl.String).unique().drop_nulls().to_list()
            known = {market: str((find(market) or {"id": market})["id"]) for market in markets}
            return frame.with_columns(pl.col("market_id").cast(pl.String).replace(known))
        if "market_id" not in names:
            frame = frame.with_columns(pl.lit(None, pl.String).alias("market_id"))
        ids_of_rows = [name for name in Token._fields if name in frame.columns]
        # Few ids repeat in many rows, so their numbers are joined and not their texts.
        frame = frame.with_columns(
            pl.col(name).cast(pl.String).cast(pl.Categorical)
            for name in ids_of_rows
            if frame[name].dtype != pl.Categorical
        )
        ids = frame.select(ids_of_rows).unique(maintain_order=True).drop_nulls("token_id")
        texts = ids.cast(pl.String)
        tokens = [Token(row["market_id"] or "", row["token_id"], row.get("token_label")) for row in texts.to_dicts()]
        placed = self._run.tokens.place(tokens)
        self._nameless.update(texts.filter(pl.col("market_id").fill_null("") == "")["token_id"])
        self._nameless &= self._run.tokens.without_market
        columns = {f"placed_{name}": [getattr(t, name) for t in placed] for name in ("market_id", "token_id")}
        new = ids.with_columns(pl.Series(name, values, pl.Categorical) for name, values in columns.items())
        joined = frame.join(new, on=ids_of_rows, how="left", nulls_equal=True, maintain_order="left")
        both = [pl.coalesce(f"placed_{name}", name).alias(name) for name in ("market_id", "token_id")]
        return joined.with_columns(both).drop(columns)

    def _store(self, view: View, data: Any, grid: int = 0) -> None:
        """Add points and count them."""
        columns, replaced = self._run.writer.add(view, data, grid)
        if not len(columns):
            return
        self._points += len(columns)
        self._replaced += replaced
        self._stored_tokens.update(token[:2] for token in columns.tokens)
        self._stored_times += int(columns.ts.min()), int(columns.ts.max())

    def add_recording(self) -> None:
        """Read the file to its end: once if it fits into memory, else again after its order is known."""
        kept: list[Batch] | None = []
        count = early = too_early = 0
        latest: dict[Token, int] = {}
        for batch in self._format.read(self._table):
            self._rows += batch.rows
            self._left_out += batch.left_out
            self._notes += batch.notes
            count += len(batch.changes)
            counts = rule.out_of_order(batch.changes, latest)
            early, too_early = early + counts[0], too_early + counts[1]
            kept = None if kept is None or count > _KEPT_CHANGES else [*kept, batch]
        if not self._rows and self._file.damage:
            raise ConfigError(self._file.damage)
        if 0 < self._rows == self._left_out["damaged"]:
            raise ConfigError(f"none of its {self._rows:,} messages can be read.")
        out_of_order = too_early if self._format.changes else early
        if kept is None and out_of_order:
            if count > _SORTED_CHANGES:
                raise ConfigError(
                    f"is not in the order of time, and too large to be sorted in memory. "
                    f"{100 * out_of_order / count:.1f} % of its {count:,} changes come after a later one of their "
                    "token and would be lost. Sort its rows by time first, or divide it into files of a range of time "
                    "each that are named in that order."
                )
            kept = list(self._format.read(self._table))
        if kept is None:
            self._add_batches(self._format.read(self._table))
        else:
            self._sorted = early
            whole = rule.concatenated([batch.changes for batch in kept])
            received = Arrivals.joined([batch.received for batch in kept])
            whole = self._in_dollars(whole)
            markets = [market for batch in kept for market in batch.markets]
            restarts = any(batch.restarts for batch in kept)
            kept.clear()  # memory
            self._add_batches([Batch(rule.by_time(whole) if early else whole, received=received, markets=markets,
                                     restarts=restarts)])  # fmt: skip
        if self._format.changes:
            self.keep(self._run.feed.end())

    def _in_dollars(self, changes: Changes) -> Changes:
        """The changes with prices as probabilities: cents where the whole file proves them."""
        unit = PriceUnit.of(changes.price)
        if unit.scale == 1:
            return changes
        self._notes.append(str(unit.note))
        stated = {name: unit.of_file(changes.values[name]) for name in rule.STATED if name in changes.values}
        return replace(changes, price=unit.of_file(changes.price), values={**changes.values, **stated})

    def _add_batches(self, batches: Iterable[Batch]) -> None:
        """Add batch after batch; the last bucket of each token waits for the next one, as it may go on there."""
        run, waiting = self._run, rule.no_changes()
        for batch in batches:
            run.add_records("markets", self._wanted_records(batch.markets))
            if self._format.changes:
                # Whoever writes down where connections begin knows that the bucket in which one ended was seen in part.
                run.feed.whole |= batch.restarts
                self.keep(run.feed.restart() if batch.restarts else ())
                self.keep(run.feed.received(batch.received))
                run.gaps.update((run.feed.holes.sum(axis=1) // 2).tolist())
            changes = rule.concatenated([waiting, batch.changes])
            batch.changes = rule.no_changes()
            changes = changes.take(np.argsort(changes.token, kind="stable"))
            if self._format.changes and not self._format.row_per_level:
                self._add_changes(changes)
                continue
            waits = rule.in_last_bucket(changes, run.store.base)
            waiting = changes.take(waits)
            self._add_changes(changes.take(~waits))
        self._add_changes(waiting)

    def _add_changes(self, changes: Changes) -> None:
        """Make books of changes."""
        if not len(changes):
            return
        run = self._run
        changes = self._wanted_changes(changes, run.tokens.place(changes.tokens))
        changes = rule.concatenated([changes])
        if self._format.row_per_level:
            changes = rule.first_rows(changes)
        changes, _, lost = rule.cleaned(changes)
        self._left_out += Counter({"price outside of 0 to 1 or size below 0": lost})
        self._nameless.update(run.tokens.without_market.intersection(str(token.token_id) for token in changes.tokens))
        run.gaps.update(changes.ts[changes.event == rule.GAP].tolist())
        if self._format.changes:
            self.keep(run.feed.push(changes))
            return
        rows = ascending(changes.row[changes.row >= 0])
        changes = changes.take(np.lexsort((changes.ts, changes.token)))
        books, used = rule.snapshots(changes, run.store.base)
        used = used[used >= 0]
        self._stored += len(used)
        self._left_out += Counter({_SUPERSEDED: len(rows) - len(used)})
        self._tally.levels += int(np.count_nonzero(~np.isnan(changes.price)))
        self.keep(books)

    def _wanted_changes(self, changes: Changes, placed: Sequence[Token]) -> Changes:
        """The changes of wanted tokens, which are placed; where books do not last, also of wanted times."""
        wanted, given = self._wanted, changes.tokens
        changes = replace(changes, tokens=tuple(placed))
        if not wanted:
            return changes
        pairs = zip(placed, given, strict=True)
        is_token = np.array([wanted.has(*one[:2]) or wanted.has(said.market_id, None) for one, said in pairs], bool)
        met = [pair for pair, kept in zip(zip(placed, given, strict=True), is_token, strict=True) if kept]
        self._run.found.update(name for pair in met for token in pair for name in token[:2])
        kept = is_token[changes.token]
        if not self._format.changes:
            kept &= wanted.in_time(changes.ts)
        rows = [ascending(changes.row[which & (changes.row >= 0)]) for which in (kept, ~kept)]
        self._left_out[NOT_WANTED] += int((~np.isin(rows[1], rows[0])).sum())
        return changes.take(kept)

    def keep(self, parts: Iterable[Books]) -> None:
        """Keep books of wanted times for the next add, and add them before they are too many."""
        for part in parts:
            if not (in_time := self._wanted.in_time(part.ts)).all():
                part = part.take(np.flatnonzero(in_time))  # noqa: PLW2901
            self._books.append(part)
            self._levels += len(part.bids.price)
            if self._levels >= _LEVELS_PER_WRITE:
                self.flush()

    def flush(self) -> None:
        """Add the books that were kept; NotTidyError if more than allowed disagree with what the messages state."""
        if not self._books:
            return
        run, tally = self._run, self._tally
        books, self._books, self._levels = run.tokens.labelled(tally.books_of(self._books)), [], 0
        if tally.disagreements > run.most_wrong * tally.checked:
            raise NotTidyError(
                f"{self._file.name!r}: {tally.disagreement}; allowed are {100 * run.most_wrong:g} %. If a part of "
                "the recording is missing there, give a smaller max_gap; max_disagreement=1 takes all books."
            )
        if tally.two_sided >= _FEW_BOOKS and tally.crossed * 2 > tally.two_sided and run.most_wrong < 1:
            raise NotTidyError(
                f"{self._file.name!r}: a bid is above an ask in {tally.crossed:,} of {tally.two_sided:,} books. If the "
                "sides are called the other way round, rename them; max_disagreement=1 takes all books."
            )
        may_stay = self._format.changes and run.feed.unchanged
        most = max(run.store.base.micros, MINUTE, 0 if may_stay else run.feed.max_age)
        for part in _without_gaps(books.sort(), most, np.array(sorted(run.gaps), np.int64)):
            self._store("books", part)


def called(file: RecordingFile) -> str:
    """The file in the report: its path, and the table of an SQLite file."""
    return str(file.path) if file.table is None else f"{file.path}: {file.table}"


def _naming(file: RecordingFile, problem: ConfigError) -> ConfigError:
    """The problem with the name of the file."""
    if file.name in problem.problem:
        return problem
    return ConfigError(f"{file.name!r}: {problem.problem}")


def _without_gaps(books: Books, most: int, gaps: Ints) -> Iterator[Books]:
    """The books of all markets up to their first gap, then up to their second gap, and so on.

    A gap is a distance above ``most`` [microseconds], or one of these times. No range of the archive may have one.
    """
    markets = pl.Series([token.market_id for token in books.tokens], dtype=pl.String)
    entries = pl.DataFrame({
        "market": markets.gather(books.token), "ts": books.ts, "before": np.searchsorted(gaps, books.ts, side="right")
    })  # fmt: skip
    is_gap = (pl.col("ts").diff() > most) | (pl.col("before").diff() != 0)
    gaps_before = is_gap.fill_null(value=False).cum_sum().over("market").alias("run")
    runs = entries.with_row_index().sort("market", "ts").select("index", gaps_before)
    for run in runs.sort("run", maintain_order=True).partition_by("run", maintain_order=True):
        yield books.take(run["index"].to_numpy())


def _is_recording(chosen: Format) -> bool:
    return chosen.kind == "books" and chosen.name != "books"


def is_left_out(rows: int | None, note: str | None) -> bool:
    """Whether a row of the report tells of a file that could not be read."""
    return rows is None and note not in (IMPORTED_BEFORE, OTHER_SUFFIX)


def add_files(
    writer: Writer,
    paths: Mapping[Path, bool],
    options: ReadOptions,
    feed: Rebuilder,
    *,
    max_disagreement: float,
    progress: bool | None,
    selection: Selection = EVERYTHING,
) -> pl.DataFrame:
    """Add files as `Archive.add_files` does: records, then tidy points, then recordings."""
    tables, recordings = list[tuple[Table, Format]](), list[tuple[Table, Format]]()
    out: list[dict[str, Any]] = []
    for path, is_named in paths.items():
        parts = tables_of(path, options)
        for file in parts:
            try:
                if file.form is None and not is_named:
                    raise ConfigError(OTHER_SUFFIX)
                table = Table(readable(file))
                chosen = format_of(table)
                (recordings if _is_recording(chosen) else tables).append((table, chosen))
            except ConfigError as problem:
                if is_named and len(parts) == 1:
                    raise
                out.append({"file": called(file), "note": problem.problem})
    run = Import(writer, feed, options, max_disagreement, selection)
    with progress_bar(progress, total=len(out) + len(tables) + len(recordings), unit="file") as bar:
        bar.update(len(out))
        for table, chosen in sorted(tables, key=lambda pair: _ORDER.index(pair[1].kind)):
            imported = ImportedFile(run, table, chosen)
            try:
                (imported.add_trades if chosen.kind == "trades" else imported.add_table)()
            except (ConfigError, NotTidyError) as problem:
                if paths[table.file.path] and table.file.table is None:
                    raise
                out.append({"file": called(table.file), "note": problem.problem})
            else:
                out.append(imported.report())
            bar.update()
        out += run.add_recordings(recordings, paths, bar.update)
        bar.update(bool(recordings))
    left_out = [row for row in out if is_left_out(row.get("rows"), row["note"])]
    if left_out and not any(row.get("format") for row in out):
        raise ConfigError("None of the files can be read. " + " ".join(row["note"] for row in left_out[:3]))
    if lacking := run.not_found():
        called_so = ", ".join(map(repr, lacking[:5])) + (", ..." if len(lacking) > 5 else "")
        lack = f"No file has {called_so}; only= names markets and tokens by their ids and slugs."
        if len(lacking) == len(selection.only or ()):
            raise ConfigError(lack)
        warn(lack, RecordingWarning)
    for row in left_out:
        warn(f"Left out {row['note']}", RecordingWarning)
    for note in dict.fromkeys(run.in_two_markets):
        warn(f"{note}.", RecordingWarning)
    return pl.DataFrame(out, _REPORT)
