"""Records of series, events and markets: read from frames of any kind, stored, and found by id, slug and token."""

from __future__ import annotations

import datetime as dt
import difflib
import itertools
import math
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import polars as pl

from marketdata.addresses import event_in
from marketdata.archive.record_columns import (
    SCHEMAS,
    TEXT_COLUMN,
    Listing,
    Record,
    columns_of_table,
    stored_names,
    table_of,
)
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import DataFile
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.errors import EVENT_HINT, ConfigError, NotArchivedError, NotTidyError, event_text
from marketdata.points.life import RECORD_TIMES, of_record
from marketdata.points.records import (
    FIELDS,
    GAMMA_NAMES,
    ID_NAMES,
    TOKEN_LISTS,
    RecordKind,
    names,
    truth,
)
from marketdata.points.schema import ID_COLUMNS
from marketdata.times import moment_text

# Files are joined at this number. In an object store one file is enough, because each takes requests to read.
_MANY_FILES, _MANY_REMOTE = 64, 1
_OTHER_NAME = re.compile(rf'"(?:{"|".join(GAMMA_NAMES)})": "(\w{{1,80}})"', re.ASCII)


def rows_of(frame: Any) -> list[Record]:
    """Rows of a frame of any kind, or a list of dicts, as plain Python values; else a ConfigError."""
    if isinstance(frame, list | tuple):
        if not all(isinstance(row, Mapping) for row in frame):
            raise ConfigError("a list of records must hold dicts only; pass a frame or a list of dicts.")
        return [{str(k): plain(v) for k, v in row.items()} for row in frame]
    from marketdata.adapters.dispatch import in_memory

    try:
        source = in_memory(frame)
    except NotTidyError:
        raise ConfigError(
            f"{type(frame).__name__} is not a frame; pass pandas, polars, Arrow or a list of dicts."
        ) from None
    columns = [raw if isinstance(raw, list) else raw.to_list() for raw in map(source.raw, source.names)]
    return [dict(zip(source.names, map(plain, row), strict=True)) for row in zip(*columns, strict=True)]


def plain(value: Any) -> Any:
    """A value as JSON has it; missing of any kind is None, times are ISO text in UTC."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = f"The text {value[:60]!r} of a record has half a character (a lone surrogate)."
            raise ConfigError(f"{problem} Repair the text first.") from None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return aware.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def text_id(value: Any, what: str) -> str | None:
    """An id as text; ConfigError if it went through a float, which has lost digits."""
    if value is None or value == "":
        return None
    if isinstance(value, float):
        if not value.is_integer() or abs(value) >= 2**53:
            raise ConfigError(f"{what} {value!r} is a float and lost digits; ids are text. Read the column as text.")
        value = int(value)
    return str(value)


def read(kind: RecordKind, row: Mapping[str, Any]) -> Record:
    """A record with the fields of its kind, and further ones; ConfigError if nothing identifies it.

    The id of an event or a series without one is its slug.
    """
    given_names, row, id_name = sorted(row), dict(row), ID_NAMES[kind]
    out: Record = {}
    for field in FIELDS[kind]:
        # As in other records, where events have an event_title.
        called = (id_name, "id") if field.name == "id" else (field.name, id_name.replace("_id", f"_{field.name}"))
        given = [row.pop(name) for name in called if name in row]
        if given or field.of in ("listing", "archive"):
            value = next((one for one in given if one is not None), None)
            # A missing list is empty if all records have the field, and null if only some do.
            nothing: Any = [] if field.type == "texts" and field.of != "some" else None
            out[field.name] = nothing if value is None else _typed(field.type, value, called[0])
    if kind != "markets" and out["id"] is None:
        out["id"] = out["slug"]
    if out["id"] is None:
        lacks = "no market_id" if kind == "markets" else "neither an id nor a slug"
        raise ConfigError(f"a row of the {kind} frame has {lacks}; it has {given_names}.")
    if kind == "markets":
        ids, labels = (_listed(name, row.pop(name, None)) for name in TOKEN_LISTS)
        if out["tokens"] is None:
            if len(ids) != len(labels):
                raise ConfigError(
                    f"market {out['id'][:80]!r} has {len(ids)} token_ids and {len(labels)} token_labels; each id needs "
                    "a label."
                )
            texts = (None if label is None else str(label) for label in labels)
            out["tokens"] = [{"id": text_id(i, "token id"), "label": text} for i, text in zip(ids, texts, strict=True)]
    if out["status"] is None and row.get("closed") is not None:
        out["status"] = "closed" if truth("closed", row["closed"]) else "active"
    return {**out, **row}


def _merged(old: Record, new: Record) -> Record:
    """A record after a newer one; a null or an empty list in that changes nothing."""
    return old | {k: v for k, v in new.items() if k not in old or not (v is None or (v == [] and old[k]))}


def _typed(kind: str, value: Any, what: str) -> Any:
    """A value that is not null, in the type of its kind of field."""
    if kind == "texts":
        return [str(one) for one in ([value] if isinstance(value, str) else value) if one is not None]
    if kind == "tokens":
        tokens = []
        for token in value:
            identity, label = token.get("id", token.get("token_id")), token.get("label", token.get("outcome"))
            tokens.append({**token, "id": text_id(identity, "token id"), "label": label})
        return tokens
    if kind == "date":
        try:
            return moment_text(value)
        except ValueError as problem:
            allowed = "Allowed are ISO 8601 texts such as 2026-01-31T12:00:00Z, dates, and Unix times."
            raise ConfigError(f"{what} of a record is no time: {problem}. {allowed}") from None
    return text_id(value, what) if kind == "id" else str(value) if kind == "text" else value


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        raise ConfigError(f"{name} is the text {value[:80]!r}; it is a list: json.loads makes one of a text of JSON.")
    return list(value or ())


def derive(
    kind: RecordKind, new: Sequence[Record], every: Sequence[Record] = (), groups: Sequence[Record] = ()
) -> list[Record]:
    """The events or series that markets ``new`` name, in that order; each spans all its markets (``every``).

    Ids of known ``groups`` are used. Events have the tags of their markets, and their state if all agree.
    """
    what = ID_NAMES[kind].removesuffix("_id")
    copied = {"slug": f"{what}_slug", "title": f"{what}_title", **{name: name for name in names(kind, "archive")}}
    ids = {group["slug"]: str(group["id"]) for group in groups if group.get("slug")}
    members: dict[str | None, list[Record]] = {_group_of(what, ids, market): [] for market in new}
    members.pop(None, None)
    for market in every or new:
        members.get(_group_of(what, ids, market), []).append(market)
    out = []
    for identity, markets in members.items():
        group = read(kind, {"id": identity})
        for name, source in copied.items():
            group[name] = next(filter(None, (market.get(source) for market in markets)), None)
        for name, choose in (("start_date", min), ("end_date", max)):
            group[name] = choose((m[name] for m in markets if m.get(name)), default=None)
        if kind == "events":
            states = {m.get("status") for m in markets}
            group["tags"] = list(dict.fromkeys(tag for m in markets for tag in m.get("tags") or ()))
            group["status"] = states.pop() if len(states) == 1 else "active"
        out.append(group)
    return out


def _group_of(what: str, ids: Mapping[str, str], record: Record) -> str | None:
    """The id of the event or series of a market; its slug where the id is not known."""
    identity, slug = record.get(f"{what}_id"), record.get(f"{what}_slug")
    return identity if identity is not None else ids.get(slug, slug) if slug is not None else None


class Labels(Mapping[tuple[str, str], str]):
    """The labels of tokens by market and token, read once they are asked for: a count of rows needs none."""

    def __init__(self, load: Callable[[], pl.DataFrame]) -> None:
        self._load = load

    @classmethod
    def of(cls, table: pl.DataFrame) -> Labels:
        """Labels that are known."""
        return cls(lambda: table)

    def __reduce__(self) -> tuple[Any, ...]:
        return Labels.of, (self.table,)

    def between(self, first: str, last: str) -> Labels:
        """The labels of the markets from one id to another one."""
        return Labels(lambda: self.table_between(first, last))

    def table_between(self, first: str, last: str) -> pl.DataFrame:
        """The rows of ``table`` of the markets from one id to another one."""
        markets = self.table["market_id"]
        begin, end = markets.search_sorted(first, "left"), markets.search_sorted(last, "right")
        return self.table[begin:end]

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row per token, in the order of the markets: ``market_id token_id token_label``."""
        return self._load().unique(["market_id", "token_id"], keep="last").sort("market_id", "token_id")

    @cached_property
    def _labels(self) -> dict[tuple[str, str], str]:
        return {(market, token): label for market, token, label in self.table.iter_rows()}

    def __getitem__(self, token: tuple[str, str]) -> str:
        return self._labels[token]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self.table)


class _RecordFile:
    """The records of one file: their columns and texts, and what is made of these, each when it is asked for."""

    def __init__(self, kind: RecordKind, table: Table, file: DataFile) -> None:
        self._kind, self._table, self._file = kind, table, file
        self._texts: dict[int, pl.Series] = {}  # by row group

    def __len__(self) -> int:
        return self._file.rows

    @cached_property
    def _content(self) -> memoryview:
        """The compressed bytes, so that an object store is asked once."""
        return self._table.content(self._file)

    def columns(self, *names: str) -> pl.DataFrame:
        """Columns of all records, the id as ``of``."""
        hint = "Run archive.verify(repair=True): it makes the records again from the points."
        with errors.parsing(f"The {self._kind} table", hint):
            has = self._table.footer(self._file).metadata.schema.to_arrow_schema().names
            wanted = [name for name in stored_names(self._kind, names) if name in has]
            return columns_of_table(self._kind, self._table.read(self._file, None, wanted, self._content), names)

    @cached_property
    def _begins(self) -> list[int]:
        """The first record of each row group, and their number."""
        return [0, *itertools.accumulate(group.rows for group in self._table.footer(self._file).groups)]

    def _group(self, number: int) -> pl.Series:
        if number not in self._texts:
            rows = self._table.read(self._file, [number], [TEXT_COLUMN], self._content)
            self._texts[number] = pl.Series(rows[TEXT_COLUMN])
        return self._texts[number]

    def text(self, place: int) -> str:
        """The JSON of the record in a row."""
        number = bisect_right(self._begins, place) - 1
        return str(self._group(number)[place - self._begins[number]])

    def texts(self) -> list[str]:
        """The JSON of each record."""
        return [text for number in range(len(self._begins) - 1) for text in self._group(number)]

    @cached_property
    def ids(self) -> pl.Series:
        """The id of each record."""
        return self.columns("of")["of"]

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each id."""
        return {identity: place for place, identity in enumerate(self.ids)}

    @cached_property
    def by_slug(self) -> dict[str, str]:
        """The first id of each slug."""
        return dict(self.columns("slug", "of").filter(pl.col("slug") != "").reverse().iter_rows())

    @cached_property
    def tokens(self) -> pl.DataFrame:
        """The tokens that have a label: ``of`` is their market."""
        lists = ("token_ids", "token_labels")
        is_whole = pl.col(lists[0]).list.len() == pl.col(lists[1]).list.len()
        rows = self.columns("of", *lists).filter(is_whole & (pl.col(lists[0]).list.len() > 0))
        return rows.explode(lists).filter(pl.col(lists[0]) != "", pl.col(lists[1]).is_not_null())

    @cached_property
    def by_token(self) -> dict[str, list[str]]:
        """The ids of the markets of each token."""
        if self._kind != "markets":
            return {}
        rows = self.columns("of", "token_ids").explode("token_ids")
        return {name: ids for name, ids in rows.group_by("token_ids").agg("of").iter_rows() if name}

    @cached_property
    def by_event(self) -> dict[str, list[str]]:
        """The ids of the markets of each event, by its slug."""
        if self._kind != "markets":
            return {}
        rows = self.columns("of", "event_slug")
        return {slug: ids for slug, ids in rows.group_by("event_slug").agg("of").iter_rows() if slug}


class _Files(NamedTuple):
    """The records of several files, one after the other."""

    kind: RecordKind
    files: Sequence[_RecordFile]

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """See `record_columns.Source`."""
        none = columns_of_table(self.kind, SCHEMAS[self.kind].empty_table(), names)
        return pl.concat([none, *(file.columns(*names) for file in self.files)])

    def texts(self, places: Iterable[int]) -> Iterator[str]:
        """See `record_columns.Source`."""
        begins = [0, *itertools.accumulate(map(len, self.files))]
        for place in places:
            number = bisect_right(begins, place) - 1
            yield self.files[number].text(place - begins[number])


# The fields of a record that `active_times` reads.
ACTIVE_FIELDS = (*RECORD_TIMES, "status", "resolved_token_id")


def active_times(record: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """When a market began and closed, by its record [microseconds]; None if the record does not say, or it is open."""
    # A market that is over and does not say when had its scheduled end.
    is_over = record.get("status") in ("closed", "resolved") or record.get("resolved_token_id") is not None
    life = of_record(record)
    closed = life.end("actual")
    return life.starts_at, life.ends_at if closed is None and is_over else closed


class Catalog:
    """Records of one kind, of the newest version; the columns of their table but ``record`` are for engines.

    An id is in one file, and slugs and tokens may be in several. New records are a new file.
    """

    def __init__(self, table: Table, kind: RecordKind) -> None:
        self.table = table
        self.kind = kind
        self._lock = threading.RLock()
        self._number = -1
        self._files: Mapping[str, _RecordFile] = {}  # by the paths of the files of the last version
        self._others: tuple[Any, dict[str, str]] = self._files, {}  # ids by other names

    def listing(self, version: Version | None = None) -> Listing:
        """All records in the order of their ids."""
        files = [*self._current(version).values()]
        ids = pl.concat([pl.Series(dtype=pl.String), *(file.ids for file in files)])
        rows = pl.DataFrame({"of": ids}).with_row_index("place")
        # Another program may have stored an id again.
        rows = (rows if ids.is_sorted() else rows.sort("of")).unique("of", keep="last", maintain_order=True)
        return Listing(self.kind, _Files(self.kind, files), rows["place"])

    def records(self) -> list[Record]:
        """All records in the order of their ids."""
        return [*self.listing().parsed()]

    def find(self, id_or_slug: str, version: Version | None = None) -> Record | None:
        """The record with this id, else with this slug or name at Gamma; name the ``version`` to look up many."""
        identity = self.find_id(id_or_slug, version)
        return None if identity is None else self.of_id(identity, version)

    def find_id(self, id_or_slug: str, version: Version | None = None) -> str | None:
        """The id of the record with this id, else this slug or name at Gamma; name the ``version`` to look up many."""
        stored = self._current(version)
        if any(id_or_slug in file.places for file in stored.values()):
            return id_or_slug
        found = min((f.by_slug[id_or_slug] for f in stored.values() if id_or_slug in f.by_slug), default=None)
        may_be_other = found is None and (id_or_slug.isdigit() or id_or_slug.startswith("0x"))
        return self._by_other_name(stored).get(id_or_slug) if may_be_other else found

    def named(self, name: str, version: Version | None = None) -> str | None:
        """The id of the market that a user names: as `find_id`, in any case, or by an event that has no other one.

        A name of data is looked up by `find_id`, where spelling counts.
        """
        if (event := event_in(name)) is not None:
            members = self.members(event, version)
            return members[0] if len(members) == 1 else None
        bare = name.strip()
        spelled = (self.find_id(one, version) for one in dict.fromkeys([name, bare, bare.lower(), bare.upper()]))
        if (found := next(filter(None, spelled), None)) is None and len(members := self.members(bare, version)) == 1:
            return members[0]
        return found

    def members(self, event_slug: str, version: Version | None = None) -> list[str]:
        """Ids of the markets of an event, by its slug in any case."""
        spelled = dict.fromkeys([event_slug, event_slug.lower(), event_slug.upper()])
        files = self._current(version).values()
        return sorted({one for file in files for slug in spelled for one in file.by_event.get(slug, ())})

    def _by_other_name(self, stored: Mapping[str, _RecordFile]) -> dict[str, str]:
        """The ids of markets by their names at Gamma, read once a version."""
        version, ids = self._others
        if version is not stored:
            every = (pair for file in stored.values() for pair in zip(file.ids, file.texts(), strict=True))
            texts = sorted(every, reverse=True)
            ids = {name: identity for identity, text in texts for name in _OTHER_NAME.findall(text)}
            self._others = stored, ids
        return ids

    def of_id(self, identity: str, version: Version | None = None) -> Record | None:
        """The record with this id."""
        file = next((file for file in self._current(version).values() if identity in file.places), None)
        return None if file is None else self._parsed(file.text(file.places[identity]))

    def token(self, token_id: str, market_id: str | None = None) -> tuple[Record, str | None] | None:
        """The market that has this token, the first of several or the one that is named, and the token's label."""
        ids = self.markets_of(token_id)
        record = self.of_id(market_id or ids[0]) if ids and market_id in (None, *ids) else None
        if record is None:
            return None
        return record, next(token.get("label") for token in record["tokens"] if token.get("id") == token_id)

    def markets_of(self, token_id: str) -> list[str]:
        """Ids of the markets that have this token: short ids repeat."""
        return sorted(identity for file in self._current().values() for identity in file.by_token.get(token_id, ()))

    def labels(self, markets: Iterable[str] | None = None) -> Labels:
        """The label of each token of some markets (None: all) that has one, by market and token."""
        version, wanted = self.table.version(), None if markets is None else [*markets]
        return Labels(lambda: self._labels(version, wanted))

    def _labels(self, version: Version, markets: Sequence[str] | None) -> pl.DataFrame:
        parts = [file.tokens for file in self._current(version).values()]
        names = ("of", *TOKEN_LISTS)
        rows = pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        rows = rows if markets is None else rows.filter(pl.col("of").is_in(markets))
        return rows.rename(dict(zip(names, ID_COLUMNS, strict=True)))

    def unknown(self, id_or_slug: str) -> NotArchivedError:
        """The error for an unknown market, with similar names."""
        market, _, side = id_or_slug.strip().rpartition(":")
        tokens = dict.fromkeys([id_or_slug, f"{market.upper()}:{side.lower()}"])  # of Kalshi, in any case
        files, owners = self._current().values(), [owner for one in tokens for owner in self.markets_of(one)]
        event = event_in(id_or_slug) or id_or_slug.strip()
        if members := [str((self.of_id(one) or {}).get("slug") or one) for one in self.members(event)]:
            return NotArchivedError(event_text(event, members), hint=EVENT_HINT)
        names = dict.fromkeys(name for file in files for name in (*file.by_slug, *file.places))
        near = difflib.get_close_matches(id_or_slug, names, n=3, cutoff=0.7)
        hint = f" Similar: {', '.join(map(repr, near))}." if near else ""
        if owners:
            hint = f" It is a token of market {owners[0]!r}: give that, and filter the rows on token_id."
        count = sum(map(len, files))
        content = f"has {count:,} market{'' if count == 1 else 's'}" if count else "has no market yet"
        return NotArchivedError(f"market {id_or_slug[:200]!r} is not in the archive, which {content}.{hint}")

    def _current(self, version: Version | None = None) -> Mapping[str, _RecordFile]:
        """The files of a version, by default of the newest one; they never change."""
        version = version or self.table.version()
        with self._lock:
            if version.number != self._number:
                known = self._files
                self._files = {
                    f.path: known.get(f.path) or _RecordFile(self.kind, self.table, f) for f in version.files
                }
                self._number = version.number
            return self._files

    def _parsed(self, text: str) -> Record:
        with errors.parsing(f"The {self.kind} table"):
            record: Record = msgspec.json.decode(text)
        return record

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, or replace those with the same id; new fields are stored too."""
        new: dict[str, Record] = {}
        for record in records:
            new[record["id"]] = _merged(new.get(record["id"], {}), record)

        def make(version: Version) -> Plan | None:
            files, changed = self._current(version), {}
            for identity, record in new.items():
                old = self.of_id(identity, version) or {}
                if (merged := _merged(old, record)) != old:
                    changed[identity] = merged
            if not changed:
                return None
            # Only files with a record that changes are written again, until there are many.
            is_whole = len(files) >= (_MANY_REMOTE if self.table.store.remote else _MANY_FILES)
            old_files = {path for path, file in files.items() if is_whole or not file.places.keys().isdisjoint(changed)}
            kept = {
                identity: self._parsed(text)
                for path in old_files for identity, text in zip(files[path].ids, files[path].texts(), strict=True)
            }  # fmt: skip
            rows = table_of(self.kind, [record for _, record in sorted((kept | changed).items())])
            written = self.table.put(rows)
            return Plan(written, [file for file in version.files if file.path in old_files])

        if new:
            self.table.plan(make)
