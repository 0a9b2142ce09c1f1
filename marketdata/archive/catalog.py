"""Records of an archive: series, events and markets, found by id, slug and token."""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marketdata.archive.records import Record
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.tables import Table, Version
from marketdata.errors import NotArchivedError
from marketdata.points.records import FIELDS, ID_NAMES, KINDS, RecordKind, columns

_TEXTS = pa.list_(pa.field("element", pa.string()))


def _schema(kind: RecordKind) -> pa.Schema:
    stored = {name: field for field in FIELDS[kind] if field.stored for name in columns(kind, field)}
    types = {name: _TEXTS if field.type in ("texts", "tokens") else pa.string() for name, field in stored.items()}
    # Tables of events and series name their own id as the interface does.
    types = {name if kind == "markets" or name != ID_NAMES[kind] else "id": one for name, one in types.items()}
    return pa.schema({**types, "record": pa.string()})


SCHEMAS: dict[RecordKind, pa.Schema] = {kind: _schema(kind) for kind in KINDS}


class _Rows:
    """The records of one version, each parsed on first use from the JSON column ``record``."""

    def __init__(self, kind: RecordKind, number: int, columns: pa.Table) -> None:
        self.kind, self.number, self.columns = kind, number, columns
        self._parsed: dict[int, Record] = {}

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

    @cached_property
    def records(self) -> list[Record]:
        with errors.parsing(f"The {self.kind} table"):
            return [json.loads(text) for text in self.columns["record"].to_pylist()]

    def record(self, at: int | None) -> Record | None:
        if at is None:
            return None
        if "records" in self.__dict__:
            return self.records[at]
        if at not in self._parsed:
            with errors.parsing(f"The {self.kind} table"):
                self._parsed[at] = json.loads(self.columns["record"][at].as_py())
        return self._parsed[at]


class Catalog:
    """Records of one kind, of the newest version; the columns of their table but ``record`` are for engines."""

    def __init__(self, table: Table, kind: RecordKind) -> None:
        self.table = table
        self.kind = kind
        self._lock = threading.RLock()
        self._shown = _Rows(kind, -2, table_rows(kind, []))

    def records(self) -> list[Record]:
        """All records in the order of their ids."""
        return list(self._newest().records)

    def find(self, id_or_slug: str) -> Record | None:
        """The record with this id, else with this slug."""
        rows = self._newest()
        at = rows.by_id.get(id_or_slug)
        return rows.record(rows.by_slug.get(id_or_slug) if at is None else at)

    def token(self, token_id: str, market_id: str | None = None) -> tuple[Record, str | None] | None:
        """The market that has this token, the first of several or the one that is named, and the token's label."""
        rows = self._newest()
        for at in rows.by_token.get(token_id, ()):
            record = rows.record(at)
            if record is not None and market_id in (None, record["id"]):
                return record, next(t.get("label") for t in record["tokens"] if t.get("id") == token_id)
        return None

    def markets_of(self, token_id: str) -> list[str]:
        """Ids of the markets that have this token: short ids repeat."""
        rows = self._newest()
        return [str(rows.columns["market_id"][at]) for at in rows.by_token.get(token_id, ())]

    def labels(self, markets: Iterable[str] | None = None) -> dict[tuple[str, str], str]:
        """The label of each token of some markets (None: all) that has one, by market and token."""
        newest = self._newest()
        rows = newest.columns.select(["market_id", "token_ids", "token_labels"])
        if markets is not None:
            rows = rows.take(pa.array([newest.by_id[m] for m in markets if m in newest.by_id], pa.int64()))
        return {
            (market, token): label
            for market, tokens, labels in zip(*(column.to_pylist() for column in rows.columns), strict=True)
            for token, label in zip(tokens or (), labels or (), strict=False)
            if token and label is not None
        }

    def unknown(self, id_or_slug: str) -> NotArchivedError:
        """The error for an unknown market, with similar names."""
        rows, owners = self._newest(), self.markets_of(id_or_slug)
        near = difflib.get_close_matches(id_or_slug, [*rows.by_slug, *rows.by_id], n=3, cutoff=0.7)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        if owners:
            hint = f" It is a token of market {owners[0]!r}: give that, and filter the rows on token_id."
        count = len(rows.by_id)
        content = "has no market yet" if count == 0 else "has 1 market" if count == 1 else f"has {count:,} markets"
        return NotArchivedError(f"market {id_or_slug[:200]!r} is not in the archive, which {content}.{hint}")

    def _newest(self) -> _Rows:
        return self._of(self.table.version())

    def _of(self, version: Version) -> _Rows:
        with self._lock:
            if version.number != self._shown.number:
                with errors.repairable():
                    parts = [self.table.read(file) for file in version.files]
                with errors.parsing(f"The {self.kind} table"):
                    parts = [part.cast(SCHEMAS[self.kind]) for part in parts]
                    self._shown = _Rows(self.kind, version.number, _by_id([table_rows(self.kind, []), *parts]))
            return self._shown

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, or replace those with the same id; new fields are stored too."""
        new = {r["id"]: r for r in records}

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]] | None:
            rows = self._of(version)
            known = {identity: rows.record(rows.by_id.get(identity)) for identity in new}
            both = {identity: _merge(known[identity] or {}, record) for identity, record in new.items()}
            changed = [record for identity, record in both.items() if record != known[identity]]
            if not changed:
                return None
            others = pc.invert(pc.is_in(_id_column(rows.columns), pa.array([r["id"] for r in changed], pa.string())))
            merged = _by_id([rows.columns.filter(others), table_rows(self.kind, changed)])
            return self.table.put(merged, np.ones(merged.num_rows, dtype=np.int64)), list(version.files)

        if new:
            self.table.plan(make)


def _id_column(rows: pa.Table) -> Any:
    return rows["market_id" if "market_id" in rows.schema.names else "id"]


def _by_id(parts: list[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts)
    return rows.take(pc.sort_indices(_id_column(rows))).combine_chunks()


def _merge(old: Record, new: Record) -> Record:
    out = dict(old)
    for name, value in new.items():
        if value is not None and not (value == [] and out.get(name)):
            out[name] = value
        else:
            out.setdefault(name, value)
    return out


def table_rows(kind: RecordKind, records: list[Record]) -> pa.Table:
    """Records as rows of the table of their kind."""
    rows: list[Record] = []
    for record in records:
        row = {**record, "market_id": record["id"], "record": json.dumps(record, ensure_ascii=False)}
        row["token_ids"] = [t["id"] for t in record.get("tokens", ())]
        row["token_labels"] = [t.get("label") for t in record.get("tokens", ())]
        rows.append({name: _text(row.get(name)) for name in SCHEMAS[kind].names})
    return pa.Table.from_pylist(rows, schema=SCHEMAS[kind])


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str | list) else str(value)
