"""Frames of polars, and Arrow tables, which polars reads without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters.frame import TEXTS, Column, Frame, Native, Passed, Texts
from marketdata.adapters.normalization import Raw
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.columns import Floats, Ints
from marketdata.points.schema import ASK, BID, ID_COLUMNS, LISTS, check_names

if TYPE_CHECKING:
    import pyarrow as pa

_SIDES = pl.Enum([BID, ASK])
_TIDY = {
    "ts": pl.Datetime("us", "UTC"),
    "side": _SIDES,
    "level": pl.Int32(),
    **dict.fromkeys(LISTS, pl.List(pl.Float64)),
}
_TYPES: dict[str, Any] = {
    "text": pl.String, "bool": pl.Boolean, "int": pl.Int64,
    "ids": pl.List(pl.Categorical), "texts": pl.List(pl.String), "numbers": pl.List(pl.Float64),
}  # fmt: skip
ARROW = ("Table", "RecordBatch", "RecordBatchReader", "RecordBatchFileReader")


class PolarsFrame(Frame):
    """A polars DataFrame."""

    native: pl.DataFrame

    def raw(self, name: str, rows: Ints | None = None) -> Raw:
        """See `Frame`."""
        column, rows = self.native[name], self.rows if rows is None else rows
        column = column if rows is None else column[rows]  # much faster than gather
        return column.to_list() if column.dtype == pl.Object else column

    def is_tidy(self, name: str) -> bool:
        """See `Frame`; NaN becomes null in numbers, and null becomes an empty list in lists."""
        column = self.native[name]
        if name in ID_COLUMNS:
            return isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)
        return column.dtype == _TIDY.get(name) and not (name in LISTS and column.null_count())

    def build(self, columns: Mapping[str, Column], height: int) -> Native:  # noqa: ARG002 columns have it
        """See `Frame`."""
        schema = self.native.schema
        wanted = {c: schema[c] for c in TEXTS if c in schema}
        return pl.DataFrame({name: made(name, column, wanted.get(name)) for name, column in columns.items()})


class ArrowFrame(PolarsFrame):
    """A table, a batch or a reader of Arrow, read as columns of polars."""

    @classmethod
    def of(cls, native: Native) -> Self:
        """See `Frame`."""
        table = table_of(native)
        check_names(table.column_names)
        return super().of(from_arrow(table))

    def build(self, columns: Mapping[str, Column], height: int) -> Native:
        """See `Frame`."""
        return signed(super().build(columns, height).to_arrow())


def signed(rows: pa.Table) -> pa.Table:
    """Categories of polars with signed numbers, as pyarrow before version 23 needs them for pandas."""
    import pyarrow as pa

    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            kind = pa.dictionary(pa.int32(), field.type.value_type, field.type.ordered)
            rows = rows.set_column(place, field.with_type(kind), rows.column(place).cast(kind))
    return rows


def made(name: str, column: Column, wanted: pl.DataType | None = None) -> pl.Series:
    """A column of polars; texts in the wanted type if it can hold them."""
    if isinstance(column, pl.Series):
        return column
    if isinstance(column, Passed):
        return _passed(column)
    if isinstance(column, list):
        if name not in ID_COLUMNS:
            return pl.Series(column, dtype=pl.String)
        column = Texts.of(column)
    if isinstance(column, Texts):
        codes, texts, lengths = column
        dtype: Any = _SIDES if name == "side" and texts == [BID, ASK] and wanted is None else pl.Categorical
        if wanted == pl.String or (isinstance(wanted, pl.Enum) and {*texts} - {None} <= {*wanted.categories}):
            dtype = wanted
        # The last entry is the null of code -1.
        lookup = pl.Series([*texts, None], dtype=pl.String).cast(dtype)
        codes = codes.astype(np.int64) % len(lookup)
        return lookup[codes if lengths is None else np.repeat(codes, lengths)]
    if column.dtype.kind == "M":
        whole = pl.Series(column.view(np.int64))
        return whole.set(pl.Series(np.isnat(column)), None).cast(pl.Datetime("us", "UTC"))
    return pl.Series(column, nan_to_null=column.dtype.kind == "f")


def typed(kind: Literal["text", "bool", "int", "ids", "texts", "numbers"], values: Sequence[object]) -> pl.Series:
    """A column of Python values of one type, None where one is missing."""
    dtype = _TYPES[kind]
    if not isinstance(dtype, pl.List) or not values:
        return pl.Series(values, dtype=dtype, strict=False)
    # A list at a time takes polars ten times as long as all their values at once.
    lists: Sequence[Any] = values
    flat = pl.Series([one for each in lists for one in each or ()], dtype=dtype.inner, strict=False)
    made = made_lists(np.array([len(each or ()) for each in lists]), flat)
    is_missing = pl.Series([each is None for each in lists])
    return pl.select(pl.when(~is_missing).then(made)).to_series()


def nullable(flags: NDArray[np.bool_], known: NDArray[np.bool_]) -> pl.Series:
    """Flags, null where they are not known."""
    return pl.select(pl.when(pl.Series(known)).then(pl.Series(flags))).to_series()


def made_lists(counts: Ints, values: Floats | pl.Series) -> pl.Series:
    """A column of lists: how many values each has, and the values of all, list after list."""
    place = np.arange(len(counts))
    table = (
        pl.DataFrame({"at": np.repeat(place, counts), "values": values})
        .group_by("at", maintain_order=True)
        .agg("values")
    )
    every = pl.DataFrame({"at": place}).join(table, on="at", how="left", maintain_order="left")
    return every["values"].fill_null([])


def _passed(column: Passed) -> pl.Series:
    frame, name, rows = column
    if isinstance(frame, PolarsFrame):
        native = frame.native[name]
    else:
        try:
            native = pl.Series(name, frame.raw(name, np.arange(len(frame.native))))
        except OverflowError:
            raise NotTidyError(f"{name} contains a whole number that no column holds; make it a text.") from None
    if rows is None or rows.min(initial=0) >= 0:
        return native if rows is None else native[rows]
    return native.gather(pl.Series(rows).set(pl.Series(rows < 0), None))


def table_of(arrow: Native) -> pa.Table:
    """A table of Arrow, a batch, or all batches of a reader, as a table."""
    import pyarrow as pa

    return arrow.read_all() if hasattr(arrow, "read_all") else pa.table(arrow)


def from_arrow(table: Any) -> pl.DataFrame:
    """An Arrow table as polars columns; NotTidyError names the columns that polars cannot read."""
    import pyarrow as pa

    unread = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    columns, wrong = {}, []
    for place, field in enumerate(table.schema):
        part = table.select([place])
        # Zones of polars have names, not offsets.
        if str(getattr(field.type, "tz", None)).startswith(("+", "-")):
            part = part.cast(pa.schema([field.with_type(pa.timestamp(field.type.unit, "UTC"))]))
        try:
            columns[field.name] = pl.DataFrame(pl.from_arrow(part)).to_series()
        except unread:
            wrong.append(f"{field.name} ({field.type})")
    if wrong:
        raise NotTidyError(
            f"Arrow columns of types that polars cannot read: {', '.join(wrong)}; cast numbers to float64 and "
            "others to text (an INTERVAL: CAST(name AS VARCHAR)), or drop the columns."
        )
    return pl.DataFrame(columns)


def write_file(rows: pl.LazyFrame, path: Path) -> None:
    """Write rows in the format of the suffix, completely or not at all; ConfigError for another suffix.

    The file gets its name when it is whole. Categories are written as texts, because pyarrow before version 23 cannot
    read categories of polars into a pandas frame.
    """
    rows = rows.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    ways: dict[str, Callable[[IO[bytes]], object]] = {
        ".parquet": rows.sink_parquet, ".csv": rows.sink_csv, ".jsonl": rows.sink_ndjson, ".ndjson": rows.sink_ndjson
    }  # fmt: skip
    if path.suffix not in ways:
        raise ConfigError(f"{path.name!r}: names that end in .parquet, .csv, .jsonl and .ndjson can be written.")
    path = path.resolve()
    part = path.with_name(f".{path.name}.part")
    try:
        # Polars may open a path after it has raised an error, and the part would be there again.
        with part.open("wb") as file:
            ways[path.suffix](file)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
