"""Who is who in an archive: series, events and markets, by id, slug and token."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from marketdata.archive import faults
from marketdata.archive.records import Record
from marketdata.archive.table import State, Table
from marketdata.errors import NotArchivedError

Kind = Literal["series", "events", "markets"]
KINDS: tuple[Kind, ...] = ("series", "events", "markets")
_TEXTS = pa.list_(pa.field("element", pa.string()))
_GROUP = [("id", pa.string()), ("slug", pa.string()), ("title", pa.string())]
SCHEMAS: dict[Kind, pa.Schema] = {
    "series": pa.schema([*_GROUP, ("record", pa.string())]),
    "events": pa.schema([*_GROUP, ("series_slug", pa.string()), ("record", pa.string())]),
    "markets": pa.schema(
        [
            ("market_id", pa.string()),
            ("slug", pa.string()),
            ("question", pa.string()),
            ("event_slug", pa.string()),
            ("token_ids", _TEXTS),
            ("token_labels", _TEXTS),
            ("record", pa.string()),
        ]
    ),
}


class Catalog:
    """Records of one kind, whole in memory, read again when the table has moved.

    The typed columns are for other engines; the column ``record`` holds the whole record as JSON.
    """

    def __init__(self, table: Table, kind: Kind) -> None:
        self.table = table
        self.kind = kind
        self._version = -2
        self._by_id: dict[str, Record] = {}
        self._by_slug: dict[str, Record] = {}
        self._by_token: dict[str, tuple[Record, str | None]] = {}

    def records(self) -> list[Record]:
        """All records in the order of their ids."""
        self._refresh()
        return list(self._by_id.values())

    def find(self, id_or_slug: str) -> Record | None:
        """The record with this id, else with this slug."""
        self._refresh()
        return self._by_id.get(id_or_slug) or self._by_slug.get(id_or_slug)

    def token(self, token_id: str) -> tuple[Record, str | None] | None:
        """The market that has this token, and the token's label."""
        self._refresh()
        return self._by_token.get(token_id)

    def unknown(self, id_or_slug: str) -> NotArchivedError:
        """The error for a market that is not here; names what is spelled nearly so."""
        self._refresh()
        near = difflib.get_close_matches(id_or_slug, [*self._by_slug, *self._by_id], n=3, cutoff=0.7)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        count = len(self._by_id)
        held = "holds no market yet" if count == 0 else "has 1 market" if count == 1 else f"has {count:,} markets"
        return NotArchivedError(f"market {id_or_slug[:200]!r} is not in the archive, which {held}.{hint}")

    def _refresh(self) -> None:
        state = self.table.state()
        if state.version != self._version:
            self._load(state)

    def _load(self, state: State) -> None:
        by_id: dict[str, Record] = {}
        for file in state.files:
            texts = self.table.read(file).column("record").to_pylist()
            with faults.reading(f"The {self.kind} table"):
                for record in map(json.loads, texts):
                    by_id[record["id"]] = record
        self._by_id = dict(sorted(by_id.items()))
        self._by_slug = {r["slug"]: r for r in reversed(self._by_id.values()) if r.get("slug")}
        self._by_token = {
            t["id"]: (r, t.get("label")) for r in self._by_id.values() for t in r.get("tokens", ()) if t.get("id")
        }
        self._version = state.version

    def upsert(self, records: Iterable[Record]) -> None:
        """Add records, or replace those with the same id; fields that are new to it are kept."""
        new = {r["id"]: r for r in records}
        written: list[Any] = []

        def plan(state: State) -> tuple[list[Any], Iterable[Any]] | None:
            self._load(state)
            both = dict(self._by_id)
            for identity, record in new.items():
                both[identity] = _merge(both.get(identity, {}), record)
            if both == self._by_id:
                return None
            for stale in written:
                self.table.store.delete(stale.path)
            rows = record_table(self.kind, [both[i] for i in sorted(both)])
            written[:] = self.table.put(rows, np.ones(rows.num_rows, dtype=np.int64))
            return written, state.files

        if new:
            self.table.commit(plan, ["catalog"])


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> Record:
    out = dict(old)
    for name, value in new.items():
        if value is not None and not (value == [] and out.get(name)):
            out[name] = value
        else:
            out.setdefault(name, value)
    return out


def record_table(kind: Kind, records: list[Record]) -> pa.Table:
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
