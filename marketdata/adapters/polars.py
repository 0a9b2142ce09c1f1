"""Frames of polars, and Arrow tables, which polars reads without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters.frame import TEXTS, Column, Frame, Levels, Lists, Native, Passed, Texts, Values
from marketdata.adapters.normalization import RULES, Raw, from_codes
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.columns import Ints
from marketdata.points.order import NO_TIME
from marketdata.points.schema import ASK, BID, ID_COLUMNS, check_names

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: dict[str, pl.DataType] = {
    "text": pl.String(),
    "bool": pl.Boolean(),
    "int": pl.Int64(),
    "texts": pl.List(pl.String()),
    "numbers": pl.List(pl.Float64()),
}
_SIDES = pl.Enum([BID, ASK])
_CODED = (pl.Categorical, pl.Enum)
_TIDY = {"ts": pl.Datetime("us", "UTC"), "side": _SIDES, "level": pl.Int32()}
ARROW = ("Table", "RecordBatch", "RecordBatchReader", "RecordBatchFileReader")
# A fill beats a lookup of each row only in long runs of one id.
_LONG_RUN = 4_000


class PolarsFrame(Frame):
    """A polars DataFrame."""

    native: pl.DataFrame

    def raw(self, name: str, rows: Ints | None = None) -> Raw:
        """See `Frame`."""
        column, rows = self.native[name], self.rows if rows is None else rows
        column = column if rows is None else column[rows]  # much faster than gather
        return column.to_list() if column.dtype == pl.Object else column

    def fast(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """See `Frame`.

        One step of polars costs as much as a look at 100,000 rows, so all columns are one step. It runs in this thread,
        because on a busy machine the wait for other threads takes longer than the step.
        """
        schema = self.native.schema
        tidy_columns = [
            c for c in names if schema[c] == _TIDY.get(c) or (c in ID_COLUMNS and isinstance(schema[c], _CODED))
        ]
        # NaN of numbers becomes null, so they are not passed on.
        self.tidy.update(tidy_columns, (c for c in names if c in ID_COLUMNS and schema[c] == pl.String))
        ready = (pl.col(c).fill_null(0) if c == "level" else pl.col(c) for c in tidy_columns)
        table = self.native.select_seq(column.to_physical() for column in ready) if tidy_columns else ()
        arrays = {c.name: c.to_numpy() for c in table if not c.null_count()}
        numbers = (c for c in names if c not in RULES and schema[c] == pl.Float64)
        return arrays | {c: self.native[c].to_numpy() for c in numbers}

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None]:
        """See `Frame`; columns of texts and categories have them already."""
        column = self.native[name]
        if not isinstance(column.dtype, (pl.String, *_CODED)):
            return super().texts(name, rows)
        at = self.rows if rows is None else rows if self.rows is None else self.rows[rows]
        return (column if at is None else column[at]).cast(pl.String).to_list()

    def lists(self, name: str) -> Lists:
        """See `Frame`."""
        if self.native.schema[name] == pl.List(pl.Float64) and not self.native[name].null_count():
            self.tidy.add(name)
        return super().lists(name)

    def build(self, columns: Mapping[str, Column], height: int) -> Native:  # noqa: ARG002 columns have it
        """See `Frame`."""
        schema = self.native.schema
        wanted = {c: schema[c] for c in TEXTS if c in schema}
        return pl.DataFrame([made(name, column, wanted.get(name)).alias(name) for name, column in columns.items()])


class ArrowFrame(PolarsFrame):
    """A table, a batch or a reader of Arrow, read as columns of polars."""

    def __init__(self, native: Native) -> None:
        table = table_of(native)
        check_names(table.column_names)
        super().__init__(from_arrow(table))

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
    """A column of polars; texts in the wanted type, if they can be of it."""
    if isinstance(column, list) and name in ID_COLUMNS:
        column = Texts.of(column)
    if isinstance(column, Passed):
        return _passed(column)
    if isinstance(column, Texts):
        return _texts(name, column, wanted)
    if isinstance(column, Values):
        return pl.Series(name, column.values, dtype=_TYPES[column.type])
    if isinstance(column, Lists):
        return _lists(column)
    if isinstance(column, Levels):
        level, missing = pl.Series(column.level.astype(np.int32, copy=False)), column.missing
        return level.scatter(np.flatnonzero(missing).astype(np.uint32), None) if missing.any() else level
    if isinstance(column, list):
        return pl.Series(name, column, dtype=pl.String)
    if column.dtype.kind == "M":
        whole = column.view(np.int64)
        times = pl.Series(whole)
        has_missing = whole.min(initial=0) == NO_TIME
        return (times.set(times == NO_TIME, None) if has_missing else times).cast(pl.Datetime("us", "UTC"))
    # Most columns have no NaN, and to look costs less than the pass that makes nulls.
    return pl.Series(name, column, nan_to_null=column.dtype.kind == "f" and bool(np.isnan(column).any()))


def _texts(name: str, column: Texts, wanted: pl.DataType | None) -> pl.Series:
    codes, texts, lengths = column
    if name == "side" and wanted in (None, _SIDES) and texts == [BID, ASK]:
        return from_codes(codes.astype(np.uint8), _SIDES)
    dtype: Any = pl.Categorical()
    if wanted in (pl.String, pl.Categorical) or (
        isinstance(wanted, pl.Enum) and {*texts} - {None} <= {*wanted.categories}
    ):
        dtype = wanted
    # The last entry is the null of code -1.
    lookup = pl.Series([*texts, None], dtype=pl.String).cast(dtype)
    codes = codes.astype(np.int64) % len(lookup)
    if lengths is None or lengths.sum() <= len(codes) * _LONG_RUN:
        return lookup[codes if lengths is None else np.repeat(codes, lengths)]
    runs = zip(codes.tolist(), lengths.tolist(), strict=True)
    return pl.concat([lookup.new_from_index(code, length) for code, length in runs], rechunk=True)


def _lists(column: Lists) -> pl.Series:
    counts, values = column
    filled = np.flatnonzero(counts)
    keys = pl.Series("of", np.repeat(filled, counts[filled])).set_sorted()
    numbers = pl.Series("values", values, dtype=pl.Float64)
    lists = pl.DataFrame([keys, numbers]).group_by("of", maintain_order=True).agg(pl.all())["values"]
    if len(filled) == len(counts):
        return lists
    places = pl.Series(np.where(counts > 0, np.cumsum(counts > 0) - 1, -1), dtype=pl.Int64)
    return lists.gather(places.set(places < 0, None)).fill_null([])


def _passed(column: Passed) -> pl.Series:
    frame, name, rows = column
    if isinstance(frame, PolarsFrame):
        native = frame.native[name]
    else:
        try:
            native = pl.Series(name, frame.raw(name, np.arange(len(frame.native))))
        except OverflowError:
            raise NotTidyError(f"{name} contains a whole number that no column holds; make it a text.") from None
    if rows is None or not len(rows) or rows.min() >= 0:
        return native if rows is None else native[rows]
    at = pl.DataFrame({"at": rows}).select(pl.when(pl.col("at") >= 0).then("at")).to_series()
    return native.gather(at)


def table_of(arrow: Native) -> pa.Table:
    """A table of Arrow, a batch, or all batches of a reader, as a table."""
    import pyarrow as pa

    if isinstance(arrow, pa.RecordBatch):
        return pa.Table.from_batches([arrow])
    return arrow if isinstance(arrow, pa.Table) else arrow.read_all()


def from_arrow(table: Any) -> pl.DataFrame:
    """An Arrow table as polars columns; NotTidyError names the columns that polars cannot read."""
    import pyarrow as pa

    unread = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    for place, field in enumerate(table.schema):
        # Zones of polars have names, not offsets.
        if str(getattr(field.type, "tz", None)).startswith(("+", "-")):
            instants = table.column(place).cast(pa.timestamp(field.type.unit, "UTC"))
            table = table.set_column(place, field.name, instants)
    try:
        return pl.from_arrow(table)  # type: ignore[return-value]
    except unread:
        wrong = []
        for name in table.column_names:
            try:
                pl.from_arrow(table.select([name]))
            except unread:
                wrong.append(f"{name} ({table.schema.field(name).type})")
        raise NotTidyError(
            f"Arrow columns of types that polars cannot read: {', '.join(wrong)}; cast numbers to float64 and "
            "others to text (an INTERVAL: CAST(name AS VARCHAR)), or drop the columns."
        ) from None


def write_file(rows: pl.LazyFrame, path: Path) -> None:
    """Write rows in the format of the suffix, whole or not at all; ConfigError for another suffix.

    The file gets its name when it is whole. Categories are written as texts, because pyarrow before version 23 cannot
    read categories of polars into a pandas frame.
    """
    rows = rows.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    ways: dict[str, Callable[[Path], object]] = {
        ".parquet": rows.sink_parquet, ".csv": rows.sink_csv, ".jsonl": rows.sink_ndjson, ".ndjson": rows.sink_ndjson
    }  # fmt: skip
    if path.suffix not in ways:
        raise ConfigError(f"{path.name!r}: names that end in .parquet, .csv, .jsonl and .ndjson can be written.")
    path = path.resolve()
    part = path.with_name(f".{path.name}.part")
    try:
        ways[path.suffix](part)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
