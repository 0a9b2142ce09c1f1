"""Records of an archive: series, events and markets, found by id, slug and token."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Iterable, Mapping

import pyarrow as pa

from marketdata.archive.records import Record
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.errors import NotArchivedError
from marketdata.points.records import FIELDS, ID_NAMES, KINDS, RecordKind, columns

# Files are joined at this number. In an object store one file is enough, because each takes requests to read.
_MANY_FILES, _MANY_REMOTE = 64, 1
# Parquet calls the entries of a list "element".
_TEXTS = pa.list_(pa.field("element", pa.string()))


def _id_column(kind: RecordKind) -> str:
    """The column of the ids: events and series name their own id as the interface does."""
    return "market_id" if kind == "markets" else "id"


def _schema(kind: RecordKind) -> pa.Schema:
    stored = {name: field for field in FIELDS[kind] if field.stored for name in columns(kind, field)}
    types = {name: _TEXTS if field.type in ("texts", "tokens") else pa.string() for name, field in stored.items()}
    types = {_id_column(kind) if name == ID_NAMES[kind] else name: column for name, column in types.items()}
    return pa.schema({**types, "record": pa.string()})


# Engines read the columns; the archive reads the JSON in the last one.
SCHEMAS: dict[RecordKind, pa.Schema] = {kind: _schema(kind) for kind in KINDS}


class _RecordFile:
    """The records of one file as JSON by id, and the ids by slug and token."""

    def __init__(self, kind: RecordKind, columns: pa.Table) -> None:
        self._kind = kind
        ids = columns[_id_column(kind)].to_pylist()
        self.texts: dict[str, str] = dict(zip(ids, columns["record"].to_pylist(), strict=True))
        slugs = zip(columns["slug"].to_pylist(), ids, strict=True)
        self.by_slug: dict[str, str] = {slug: identity for slug, identity in reversed(list(slugs)) if slug}
        self.by_token: dict[str, list[str]] = {}
        for identity, tokens in zip(ids, columns["token_ids"].to_pylist() if kind == "markets" else (), strict=False):
            for token in tokens or ():
                if token:
                    self.by_token.setdefault(token, []).append(identity)

    def record(self, identity: str) -> Record:
        """The record of an id."""
        with errors.parsing(f"The {self._kind} table"):
            record: Record = json.loads(self.texts[identity])
        return record


class Catalog:
    """Records of one kind, of the newest version; the columns of their table but ``record`` are for engines.

    An id is in one file, and slugs and tokens may be in several. New records are a new file.
    """

    def __init__(self, table: Table, kind: RecordKind) -> None:
        self.table = table
        self.kind = kind
        self._lock = threading.RLock()
        self._number = -1
        self._files: dict[str, _RecordFile] = {}

    def records(self) -> list[Record]:
        """All records in the order of their ids."""
        files = self._current().values()
        return sorted((file.record(identity) for file in files for identity in file.texts), key=_identity)

    def find(self, id_or_slug: str) -> Record | None:
        """The record with this id, else with this slug."""
        files = self._current()
        ids = [file.by_slug[id_or_slug] for file in files.values() if id_or_slug in file.by_slug]
        return _of_id(files, id_or_slug) or (_of_id(files, min(ids)) if ids else None)

    def of_id(self, identity: str) -> Record | None:
        """The record with this id."""
        return _of_id(self._current(), identity)

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

    def labels(self, markets: Iterable[str] | None = None) -> dict[tuple[str, str], str]:
        """The label of each token of some markets (None: all) that has one, by market and token."""
        chosen = self.records() if markets is None else filter(None, map(self.of_id, markets))
        return {
            (record["id"], token["id"]): token["label"]
            for record in chosen
            for token in record["tokens"]
            if token.get("id") and token.get("label") is not None
        }

    def unknown(self, id_or_slug: str) -> NotArchivedError:
        """The error for an unknown market, with similar names."""
        files, owners = self._current().values(), self.markets_of(id_or_slug)
        names = [name for file in files for name in (*file.by_slug, *file.texts)]
        near = difflib.get_close_matches(id_or_slug, names, n=3, cutoff=0.7)
        hint = f" Similar: {', '.join(map(repr, near))}." if near else ""
        if owners:
            hint = f" It is a token of market {owners[0]!r}: give that, and filter the rows on token_id."
        count = sum(len(file.texts) for file in files)
        content = "has no market yet" if count == 0 else "has 1 market" if count == 1 else f"has {count:,} markets"
        return NotArchivedError(f"market {id_or_slug[:200]!r} is not in the archive, which {content}.{hint}")

    def _current(self, version: Version | None = None) -> dict[str, _RecordFile]:
        """The records of each file of a version, by default the newest; files never change."""
        version = version or self.table.version()
        with self._lock:
            if version.number != self._number:
                files = {file.path: self._files.get(file.path) or self._read(file) for file in version.files}
                self._number, self._files = version.number, files
            return self._files

    def _read(self, file: DataFile) -> _RecordFile:
        hint = "Run archive.verify(repair=True): it makes the records again from the points."
        with errors.parsing(f"The {self.kind} table", hint):
            return _RecordFile(self.kind, self.table.read(file).cast(SCHEMAS[self.kind]))

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, or replace those with the same id; new fields are stored too."""
        new = {r["id"]: r for r in records}

        def make(version: Version) -> Plan | None:
            files = self._current(version)
            stored = {identity: _of_id(files, identity) for identity in new}
            both = {identity: _merge(stored[identity] or {}, record) for identity, record in new.items()}
            changed = {identity: record for identity, record in both.items() if record != stored[identity]}
            if not changed:
                return None
            # Only files with a record that changes are written again, until there are many.
            is_whole = len(files) >= (_MANY_REMOTE if self.table.store.remote else _MANY_FILES)
            old = {path for path, file in files.items() if is_whole or not file.texts.keys().isdisjoint(changed)}
            kept = {identity: files[path].record(identity) for path in old for identity in files[path].texts}
            rows = _table_rows(self.kind, sorted((kept | changed).values(), key=_identity))
            return Plan(self.table.put(rows), [file for file in version.files if file.path in old])

        if new:
            self.table.plan(make)


def _of_id(files: Mapping[str, _RecordFile], identity: str) -> Record | None:
    """The record of an id, if one of the files has it."""
    return next((file.record(identity) for file in files.values() if identity in file.texts), None)


def _identity(record: Record) -> str:
    return str(record["id"])


def _merge(old: Record, new: Record) -> Record:
    """The old record with what the new one knows: what is null there stays, and lists that are empty."""
    return old | {k: v for k, v in new.items() if k not in old or (v is not None and not (v == [] and old[k]))}


def _table_rows(kind: RecordKind, records: list[Record]) -> pa.Table:
    """Records as rows of the table of their kind."""
    rows = []
    for record in records:
        tokens = record.get("tokens", ())
        lists = {"token_ids": [t["id"] for t in tokens], "token_labels": [t.get("label") for t in tokens]}
        row = {**record, **lists, "market_id": record["id"], "record": json.dumps(record, ensure_ascii=False)}
        rows.append({n: v if (v := row.get(n)) is None or isinstance(v, list) else str(v) for n in SCHEMAS[kind].names})
    return pa.Table.from_pylist(rows, schema=SCHEMAS[kind])
