"""Records of an archive: series, events and markets, found by id, slug and token."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from marketdata.archive.records import Record
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import DataFile
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


class _RecordFile(NamedTuple):
    """The records of one file as JSON by id, and the ids by slug and token."""

    texts: dict[str, str]
    by_slug: dict[str, str]
    by_token: dict[str, list[str]]


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
        texts = {identity: text for file in self._current().values() for identity, text in file.texts.items()}
        return [self._parsed(texts[identity]) for identity in sorted(texts)]

    def find(self, id_or_slug: str) -> Record | None:
        """The record with this id, else with this slug."""
        slugs = (file.by_slug for file in self._current().values())
        ids = [id_or_slug, *sorted(by_slug[id_or_slug] for by_slug in slugs if id_or_slug in by_slug)]
        return next(filter(None, map(self.of_id, ids)), None)

    def of_id(self, identity: str, version: Version | None = None) -> Record | None:
        """The record with this id."""
        texts = (file.texts.get(identity) for file in self._current(version).values())
        text = next(filter(None, texts), None)
        return None if text is None else self._parsed(text)

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
        content = f"has {count:,} market{'' if count == 1 else 's'}" if count else "has no market yet"
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
        import polars as pl

        hint = "Run archive.verify(repair=True): it makes the records again from the points."
        with errors.parsing(f"The {self.kind} table", hint):
            rows = pl.DataFrame(pl.from_arrow(self.table.read(file).cast(SCHEMAS[self.kind])))
        rows = rows.rename({_id_column(self.kind): "of"})
        # The first of several that have a slug.
        slugs = rows.filter(pl.col("slug") != "").reverse().select("slug", "of")
        listed = [rows.select("of", "token_ids").explode("token_ids")] if self.kind == "markets" else []
        by_token = {
            name: ids for one in listed for name, ids in one.group_by("token_ids").agg("of").iter_rows() if name
        }
        return _RecordFile(dict(rows.select("of", "record").iter_rows()), dict(slugs.iter_rows()), by_token)

    def _parsed(self, text: str) -> Record:
        with errors.parsing(f"The {self.kind} table"):
            record: Record = json.loads(text)
        return record

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, or replace those with the same id; new fields are stored too."""
        new = {r["id"]: r for r in records}

        def make(version: Version) -> Plan | None:
            files, changed = self._current(version), {}
            for identity, record in new.items():
                old = self.of_id(identity, version) or {}
                # What is null in the new record stays, and lists that are empty.
                keeps = {k for k, v in record.items() if k in old and (v is None or (v == [] and old[k]))}
                merged = old | {k: v for k, v in record.items() if k not in keeps}
                if merged != old:
                    changed[identity] = merged
            if not changed:
                return None
            # Only files with a record that changes are written again, until there are many.
            is_whole = len(files) >= (_MANY_REMOTE if self.table.store.remote else _MANY_FILES)
            old_files = {path for path, file in files.items() if is_whole or not file.texts.keys().isdisjoint(changed)}
            kept = {identity: self._parsed(text) for path in old_files for identity, text in files[path].texts.items()}
            rows = [self._row(record) for _, record in sorted((kept | changed).items())]
            written = self.table.put(pa.Table.from_pylist(rows, schema=SCHEMAS[self.kind]))
            return Plan(written, [file for file in version.files if file.path in old_files])

        if new:
            self.table.plan(make)

    def _row(self, record: Record) -> dict[str, Any]:
        """A record as a row of the table of its kind."""
        tokens = record.get("tokens", ())
        lists = {"token_ids": [t["id"] for t in tokens], "token_labels": [t.get("label") for t in tokens]}
        row = {**record, **lists, "market_id": record["id"], "record": json.dumps(record, ensure_ascii=False)}
        values = {name: row.get(name) for name in SCHEMAS[self.kind].names}
        return {name: v if v is None or isinstance(v, list) else str(v) for name, v in values.items()}
