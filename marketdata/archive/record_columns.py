"""The table of records: what of a record has columns of its own, and the columns of all records at once.

The text of a record is the truth. Columns are derived from it, so that listings of 100,000 markets parse no text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec
import polars as pl
import pyarrow as pa

from marketdata.adapters import frames
from marketdata.adapters.frame import Column, Texts
from marketdata.archive.arrow import TS
from marketdata.archive.storage import errors
from marketdata.points.order import NO_TIME
from marketdata.points.records import FIELDS, RECORD_KINDS, Field, RecordKind, columns
from marketdata.tidy.records import columns_of_field, of_columns
from marketdata.times import parse_iso
from marketdata.typing import FrameKind

Record = dict[str, Any]


def _listed(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))  # as Parquet calls the entries of a list


_TYPES: Mapping[str, pa.DataType] = {
    "id": pa.string(), "text": pa.string(), "date": TS, "number": pa.float64(), "numbers": _listed(pa.float64()),
    "texts": _listed(pa.string()), "tokens": _listed(pa.string()),
}  # fmt: skip
# The names of the fields of a record, in order, and those of them that its columns do not tell, as a list of two lists.
FIELDS_COLUMN, TEXT_COLUMN = "fields", "record"
_CODES = pa.dictionary(pa.int32(), pa.string())  # most records have the fields of others
_shape = msgspec.json.Decoder(tuple[list[str], list[str]]).decode


def _id_column(kind: RecordKind) -> str:
    """The column of the ids: events and series name their own id as the interface does."""
    return "market_id" if kind == "markets" else "id"


def _columns(kind: RecordKind, field: Field) -> tuple[str, ...]:
    return (_id_column(kind),) if field.name == "id" else columns(kind, field)


def _schema(kind: RecordKind) -> pa.Schema:
    types = {name: _TYPES[field.type] for field in FIELDS[kind] for name in _columns(kind, field)}
    return pa.schema({**types, FIELDS_COLUMN: pa.string(), TEXT_COLUMN: pa.string()})


SCHEMAS: dict[RecordKind, pa.Schema] = {kind: _schema(kind) for kind in RECORD_KINDS}


def table_of(kind: RecordKind, records: Iterable[Record]) -> pa.Table:
    """The rows of records, as they are stored."""
    return pa.Table.from_pylist([_row(kind, record) for record in records], schema=SCHEMAS[kind])


def stored_names(kind: RecordKind, names: Iterable[str]) -> list[str]:
    """What columns are called in the table, where that of the ids has another name than ``of`` for each kind."""
    return [_id_column(kind) if name == "of" else name for name in names]


def columns_of_table(kind: RecordKind, stored: pa.Table, names: Sequence[str]) -> pl.DataFrame:
    """Columns of stored records, the id as ``of``; null where a file lacks one."""
    types = {field.name: field.type for field in SCHEMAS[kind]} | {FIELDS_COLUMN: _CODES}
    has, columns = {*stored.schema.names}, {}
    for name, called in zip(names, stored_names(kind, names), strict=True):
        kind_of = types[called]
        columns[name] = stored[called].cast(kind_of) if called in has else pa.nulls(len(stored), kind_of)
    return pl.DataFrame(pl.from_arrow(pa.table(columns)))


def rows_again(kind: RecordKind, stored: pa.Table) -> tuple[pa.Table, list[str]]:
    """Stored rows with columns that are made again of the texts, and the ids of the records whose columns differ."""
    with errors.parsing(f"The {kind} table"):
        made = table_of(kind, map(msgspec.json.decode, stored[TEXT_COLUMN].to_pylist()))
    has, identity = [name for name in made.schema.names if name in stored.schema.names], _id_column(kind)
    pairs = zip(made.select(has).to_pylist(), stored.select(has).to_pylist(), strict=True)
    return made, [str(old[identity]) for new, old in pairs if new != old]


def _row(kind: RecordKind, record: Record) -> dict[str, Any]:
    """The columns of a record; what has another type than its column is null there, and only in the text."""
    row, unheld = dict[str, Any](), {*record} - {field.name for field in FIELDS[kind]}
    for field in FIELDS[kind]:
        values = _values(field.type, record.get(field.name))
        if values is None:
            unheld.add(field.name)
        else:
            row |= zip(_columns(kind, field), values, strict=True)
    names = [*record]
    shape = [names, [name for name in names if name in unheld]]
    text = json.dumps(record, ensure_ascii=False)
    return {**row, FIELDS_COLUMN: msgspec.json.encode(shape).decode(), TEXT_COLUMN: text}


def _values(kind: str, value: Any) -> tuple[Any, ...] | None:
    """The value of each column of a field; None for a value that they do not hold."""
    if value is None:
        return (None, None) if kind == "tokens" else (None,)
    is_list = isinstance(value, list)
    if kind in ("id", "text"):
        return (value,) if isinstance(value, str) else None
    if kind == "date":
        try:
            return (parse_iso(value),) if isinstance(value, str) else None
        except (ValueError, OverflowError):
            return None
    if kind == "number":
        return (float(value),) if _is_number(value) else None
    if kind == "numbers":
        return (value,) if is_list and all(one is None or _is_number(one) for one in value) else None
    if kind == "texts":
        return (value,) if is_list and all(isinstance(one, str) for one in value) else None
    if not is_list or not all(
        isinstance(token, dict) and isinstance(token.get("id"), str) and isinstance(token.get("label"), str | None)
        for token in value
    ):
        return None
    return [token["id"] for token in value], [token.get("label") for token in value]


def _is_number(value: Any) -> bool:
    """Whether a column of numbers tells a value as it is."""
    return type(value) is float or (type(value) is int and abs(value) < 2**53)


class Source(Protocol):
    """Where stored records are."""

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Columns of all records, the id as ``of``."""

    def texts(self, places: Iterable[int]) -> Iterator[str]:
        """The texts of the records in some places."""


class InMemory(NamedTuple):
    """The records of a table in memory."""

    kind: RecordKind
    table: pa.Table

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """See `Source`."""
        return columns_of_table(self.kind, self.table, names)

    def texts(self, places: Iterable[int]) -> Iterator[str]:
        """See `Source`."""
        return (self.table[TEXT_COLUMN][place].as_py() for place in places)


@dataclass(frozen=True)
class Listing:
    """Some records, in an order, by their places in a source; columns and texts are read when they are asked for."""

    kind: RecordKind
    source: Source
    places: pl.Series

    @classmethod
    def of(cls, kind: RecordKind, records: Iterable[Record]) -> Listing:
        """Records in memory."""
        table = table_of(kind, records)
        return cls(kind, InMemory(kind, table), pl.Series(range(len(table)), dtype=pl.UInt32))

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: Sequence[int]) -> Listing:
        """Some of the records, in this order."""
        return Listing(self.kind, self.source, self.places.gather([*rows]))

    def columns(self, *names: str) -> pl.DataFrame:
        """Columns of the records, the id as ``of``."""
        rows = self.source.columns(names)
        return rows if self.places.equals(pl.int_range(len(rows), dtype=pl.UInt32, eager=True)) else rows[self.places]

    @property
    def ids(self) -> list[str]:
        """The id of each record."""
        return self.columns("of")["of"].to_list()

    @cached_property
    def named(self) -> dict[str, bool]:
        """The fields of all records, in order, and whether their columns tell them."""
        texts = self.columns(FIELDS_COLUMN)[FIELDS_COLUMN].unique(maintain_order=True).cast(pl.String)
        with errors.parsing(f"The {self.kind} table"):
            shapes = [_shape(text) for text in texts]
        unheld = {name for _, names in shapes for name in names}
        return {name: name not in unheld for names, _ in shapes for name in names}

    def field(self, name: str) -> pl.Series | list[Any]:
        """The values of a field of one column: the column, if it tells all of them; else as the texts have them."""
        return self._fields([name])[0]

    def _fields(self, names: Sequence[str]) -> list[pl.Series | list[Any]]:
        stored = {name: "of" if name == "id" else name for name in names if self.named.get(name)}
        rows = self.columns(*stored.values()) if stored else pl.DataFrame()
        parsed = self._parsed({name for name in names if not self.named.get(name, True)})
        nothing = [None] * len(self)
        return [
            rows[stored[name]] if name in stored else [one.get(name) for one in parsed] if parsed else nothing
            for name in names
        ]

    def records(self, names: Sequence[str]) -> Iterator[Record]:
        """Each record with these fields alone, None where it has none; dates are ISO texts."""
        lists = [
            values if isinstance(values, list)
            else (_iso(values) if isinstance(values.dtype, pl.Datetime) else values).to_list()
            for values in self._fields(names)
        ]  # fmt: skip
        return (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))

    def frame(self, library: FrameKind) -> Any:
        """The records as a frame, as `tidy.records.to_frame` makes it of the texts."""
        fields = {field.name: field for field in FIELDS[self.kind]}
        stored = {
            name: ("of",) if name == "id" else columns(self.kind, fields[name])
            for name, is_held in self.named.items() if is_held
        }  # fmt: skip
        parsed = self._parsed({name for name, is_held in self.named.items() if not is_held})
        out: dict[str, Column | list[Any]] = {}
        for name in self.named:
            if name in stored:  # one after the other, because what the library reads at once costs memory as often
                rows = self.columns(*stored[name])
                shown = zip(columns(self.kind, fields[name]), stored[name], strict=True)
                out |= {new: _shown(new, rows[old], library) for new, old in shown}
            else:
                out |= columns_of_field(self.kind, name, parsed, out)
        return of_columns(self.kind, out, len(self), library)

    def parsed(self) -> Iterator[Record]:
        """Each record as its text has it."""
        for text in self.source.texts(self.places):
            with errors.parsing(f"The {self.kind} table"):
                record: Record = msgspec.json.decode(text)
            yield record

    def _parsed(self, names: AbstractSet[str]) -> list[Record]:
        """These fields of each record, as its text has them."""
        return [{n: record[n] for n in names if n in record} for record in self.parsed()] if names else []


def _iso(times: pl.Series) -> pl.Series:
    return times.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")


def _shown(name: str, stored: pl.Series, library: FrameKind) -> Column:
    """A column of the table as one of a frame."""
    if isinstance(stored.dtype, pl.Datetime):
        return frames.times(stored.dt.timestamp("us").fill_null(NO_TIME).to_numpy(writable=True))
    if stored.dtype == pl.Float64:
        return stored.to_numpy(writable=True)
    if stored.dtype == pl.String and name.endswith("_id") and library == "polars":
        return stored.cast(pl.Categorical)
    if stored.dtype == pl.String and name.endswith("_id"):
        known = stored.drop_nulls().unique().sort()
        codes = stored.cast(pl.Enum(known)).to_physical().cast(pl.Int64).fill_null(-1)
        return Texts(codes.to_numpy(), known.to_list())
    is_encoded = library == "polars" and name.endswith("_ids")
    return stored.cast(pl.List(pl.Categorical)) if is_encoded else stored
