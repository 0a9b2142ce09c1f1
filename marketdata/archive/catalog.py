"""Records of an archive: series, events and markets, found by id, slug and token."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marketdata.archive.records import Record
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.errors import NotArchivedError
from marketdata.points.records import FIELDS, ID_NAMES, KINDS, RecordKind, columns

# At least this many files are joined; in an object store there is one, as each takes requests to be read.
_MANY_FILES, _MANY_REMOTE = 64, 1
# Lists of texts, as the files of Parquet name their elements.
_TEXTS = pa.list_(pa.field("element", pa.string()))


def _schema(kind: RecordKind) -> pa.Schema:
    stored = {name: field for field in FIELDS[kind] if field.stored for name in columns(kind, field)}
    types = {name: _TEXTS if field.type in ("texts", "tokens") else pa.string() for name, field in stored.items()}
    # Tables of events and series name their own id as the interface does.
    types = {name if kind == "markets" or name != ID_NAMES[kind] else "id": one for name, one in types.items()}
    return pa.schema({**types, "record": pa.string()})


# The columns of each table: those that engines read, and the record as JSON.
SCHEMAS: dict[RecordKind, pa.Schema] = {kind: _schema(kind) for kind in KINDS}


class _Rows:
    """The records of one file, each parsed on first use from the JSON column ``record``."""

    def __init__(self, kind: RecordKind, columns: pa.Table) -> None:
        self.kind, self.columns = kind, columns
        self.parsed: dict[int, Record] = {}

    @cached_property
    def by_id(self) -> dict[str, int]:
        return {identity: at for at, identity in enumerate(_id_column(self.columns).to_pylist())}

    @cached_property
    def by_slug(self) -> dict[str, int]:
        slugs = self.columns["slug"].to_pylist()
        return {slug: at for at, slug in reversed(list(enumerate(slugs))) if slug}

    @cached_property
    def by_token(self) -> dict[str, list[int]]:
        if "token_ids" not in self.columns.schema.names:
            return {}
        lists = self.columns["token_ids"].combine_chunks()
        places = np.repeat(np.arange(len(lists)), lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        out: dict[str, list[int]] = {}
        for token, at in zip(lists.flatten().to_pylist(), places.tolist(), strict=True):
            if token:
                out.setdefault(token, []).append(at)
        return out

    def record(self, at: int) -> Record:
        if at not in self.parsed:
            with errors.parsing(f"The {self.kind} table"):
                self.parsed[at] = json.loads(self.columns["record"][at].as_py())
        return self.parsed[at]

    def records(self) -> list[Record]:
        if len(self.parsed) < len(self.columns):
            with errors.parsing(f"The {self.kind} table"):
                self.parsed = {at: json.loads(text) for at, text in enumerate(self.columns["record"].to_pylist())}
        return [self.parsed[at] for at in range(len(self.columns))]


class Catalog:
    """Records of one kind, of the newest version; the columns of their table but ``record`` are for engines.

    An id is in one file, and slugs and tokens may be in several. New records are a new file.
    """

    def __init__(self, table: Table, kind: RecordKind) -> None:
        self.table = table
        self.kind = kind
        self._lock = threading.RLock()
        self._number = -1
        self._files: dict[str, _Rows] = {}

    def records(self) -> list[Record]:
        """All records in the order of their ids."""
        return sorted((record for rows in self._rows().values() for record in rows.records()), key=_identity)

    def find(self, id_or_slug: str) -> Record | None:
        """The record with this id, else with this slug."""
        files = self._rows()
        with_slug = [rows.record(rows.by_slug[id_or_slug]) for rows in files.values() if id_or_slug in rows.by_slug]
        return _of_id(files, id_or_slug) or min(with_slug, key=_identity, default=None)

    def of_id(self, identity: str) -> Record | None:
        """The record with this id."""
        return _of_id(self._rows(), identity)

    def token(self, token_id: str, market_id: str | None = None) -> tuple[Record, str | None] | None:
        """The market that has this token, the first of several or the one that is named, and the token's label."""
        for record in self._with_token(token_id):
            if market_id in (None, record["id"]):
                return record, next(t.get("label") for t in record["tokens"] if t.get("id") == token_id)
        return None

    def markets_of(self, token_id: str) -> list[str]:
        """Ids of the markets that have this token: short ids repeat."""
        return [str(record["id"]) for record in self._with_token(token_id)]

    def _with_token(self, token_id: str) -> list[Record]:
        found = (rows.record(at) for rows in self._rows().values() for at in rows.by_token.get(token_id, ()))
        return sorted(found, key=_identity)

    def labels(self, markets: Iterable[str] | None = None) -> dict[tuple[str, str], str]:
        """The label of each token of some markets (None: all) that has one, by market and token."""
        wanted, out = None if markets is None else list(markets), dict[tuple[str, str], str]()
        for rows in self._rows().values():
            found = rows.columns.select(["market_id", "token_ids", "token_labels"])
            if wanted is not None:
                here = [rows.by_id[market] for market in wanted if market in rows.by_id]
                found = found.take(pa.array(here, pa.int64()))
            for market, *lists in zip(*(column.to_pylist() for column in found.columns), strict=True):
                tokens = zip(*(some or () for some in lists), strict=False)
                out |= {(market, token): label for token, label in tokens if token and label is not None}
        return out

    def unknown(self, id_or_slug: str) -> NotArchivedError:
        """The error for an unknown market, with similar names."""
        files, owners = self._rows().values(), self.markets_of(id_or_slug)
        names = [name for rows in files for name in (*rows.by_slug, *rows.by_id)]
        near = difflib.get_close_matches(id_or_slug, names, n=3, cutoff=0.7)
        hint = f" Similar: {', '.join(map(repr, near))}." if near else ""
        if owners:
            hint = f" It is a token of market {owners[0]!r}: give that, and filter the rows on token_id."
        count = sum(len(rows.by_id) for rows in files)
        content = "has no market yet" if count == 0 else "has 1 market" if count == 1 else f"has {count:,} markets"
        return NotArchivedError(f"market {id_or_slug[:200]!r} is not in the archive, which {content}.{hint}")

    def _rows(self, version: Version | None = None) -> dict[str, _Rows]:
        """The rows of each file of a version, by default the newest; files never change."""
        version = version or self.table.version()
        with self._lock:
            if version.number != self._number:
                known, files = self._files, dict[str, _Rows]()
                for file in version.files:
                    files[file.path] = known.get(file.path) or self._read(file)
                self._number, self._files = version.number, files
            return self._files

    def _read(self, file: DataFile) -> _Rows:
        hint = "Run archive.verify(repair=True): it makes the records again from the points."
        with errors.parsing(f"The {self.kind} table", hint):
            return _Rows(self.kind, self.table.read(file).cast(SCHEMAS[self.kind]))

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, or replace those with the same id; new fields are stored too."""
        new = {r["id"]: r for r in records}

        def make(version: Version) -> Plan | None:
            files = self._rows(version)
            known = {identity: _of_id(files, identity) for identity in new}
            both = {identity: _merge(known[identity] or {}, record) for identity, record in new.items()}
            changed = [identity for identity, record in both.items() if record != known[identity]]
            if not changed:
                return None
            # Only what has a record that changes is written again, but for what is joined once there are many.
            is_whole = len(files) >= (_MANY_REMOTE if self.table.store.remote else _MANY_FILES)
            old = {path for path, rows in files.items() if is_whole or not rows.by_id.keys().isdisjoint(changed)}
            gone = pa.array(changed, pa.string())
            stay = [
                rows.filter(pc.invert(pc.is_in(_id_column(rows), gone))) for rows in (files[p].columns for p in old)
            ]
            merged = pa.concat_tables([*stay, _table_rows(self.kind, [both[identity] for identity in changed])])
            merged = merged.take(pc.sort_indices(_id_column(merged))).combine_chunks()
            return Plan(self.table.put(merged), [file for file in version.files if file.path in old])

        if new:
            self.table.plan(make)


def _of_id(files: Mapping[str, _Rows], identity: str) -> Record | None:
    """The record of an id, if one of the files has it."""
    return next((rows.record(rows.by_id[identity]) for rows in files.values() if identity in rows.by_id), None)


def _identity(record: Record) -> str:
    return str(record["id"])


def _id_column(rows: pa.Table) -> Any:
    return rows["market_id" if "market_id" in rows.schema.names else "id"]


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
