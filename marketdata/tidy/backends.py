"""Backend adapters: a native frame of any library in, tidy columns to work on, the same kind out.

A verb is one function of a `Table`, which `run` makes of any frame and `tidy.normalization` and `tidy.table` check:

pandas, polars, Arrow: an `EagerTable`: polars columns in tidy order, without a copy where types allow it;
polars lazy: the same, once the query runs: the verb is one step of it;
Dask: the same for each partition, after the rows of a token were brought together;
Spark, DuckDB: the same for Arrow tables of whole tokens, which the engine gives in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl
from narwhals.stable.v2.dependencies import (
    is_dask_dataframe,
    is_narwhals_dataframe,
    is_narwhals_lazyframe,
    is_pandas_dataframe,
    is_pyarrow_table,
)

from marketdata.adapters import engines, partitions
from marketdata.adapters.normalization import from_codes
from marketdata.errors import NotTidyError
from marketdata.points.columns import Ints
from marketdata.points.schema import ASK, BID, COLUMNS, ID_COLUMNS, Kind, check_names, kind_of, require
from marketdata.tidy import nested
from marketdata.tidy.table import EagerTable

if TYPE_CHECKING:
    import pandas as pd

F = TypeVar("F")
Together = Literal["row", "snapshot", "token", "market", "all"]
_TOGETHER: dict[Together, Sequence[str]] = {
    "snapshot": ID_COLUMNS[:2],
    "token": ID_COLUMNS[:2],
    "market": ID_COLUMNS[:1],
}
_WIDTHS = {"UInt8": 1, "UInt16": 2, "UInt32": 4}
_NO_TIME = np.iinfo(np.int64).min
_IDS = (*ID_COLUMNS, "side")


class Taken(NamedTuple):
    """Columns passed on unchanged: their frame, new names and rows (None: all in order; -1: null)."""

    source: Any
    names: Mapping[str, str]
    rows: Ints | None


class Overlap(Exception):  # noqa: N818 no error
    """Reduced rows do not show whether a row is in several parts."""


class Result(NamedTuple):
    """The result of a verb that is no plain frame: tidy columns, columns passed on, and the order of all."""

    data: Any
    taken: Sequence[Taken] = ()
    order: Sequence[str] | None = None


def beside(table: EagerTable, names: Sequence[str], values: Iterable[pl.Series]) -> Result:
    """Columns of a table, passed on unchanged where the frame has them in tidy types, with values beside them."""
    passed = {c: c for c in names if table.is_native(c)}
    own = [table.column(c) for c in names if c not in passed]
    data = pl.DataFrame([*own, *values])
    return Result(data, [Taken(table.source, passed, table.places)], [*names, *data.columns[len(own) :]])


def run(
    frame: F,
    function: Callable[[Any], Any],
    kinds: Iterable[Kind],
    *,
    together: Together = "token",
    further: bool = False,
    reduce: Callable[[EagerTable], Result | pl.DataFrame] | None = None,
    finish: Callable[[EagerTable], Any] | None = None,
    watch: Callable[[Any], None] | None = None,
) -> F:
    """Call a function of a `Table` for a native frame of any kind, and give its result as that kind; lazy stays lazy.

    NotTidyError if the frame is none of ``kinds`` (the first that the columns satisfy decides); ConfigError if the
    function does not support its library. ``together``: which rows of a Dask frame the function must see at once.
    ``further``: whether it needs columns beyond those of the kind; if not, a lazy frame is cut to these before it is
    read. ``reduce`` shortens any part of the rows without changing the result, so that a lazy frame larger than memory
    streams through it; ``finish`` is called for the reduced rows instead of the function. If it raises `Overlap`, as
    parts of the rows can no longer be separated, the function gets all of them. ``watch`` sees the table of a frame in
    memory first, for warnings that all rows decide.
    """
    frame, kinds = read(frame), tuple(kinds)
    again: Callable[[Any], Any] = partial(run, function=function, kinds=kinds)
    if is_dask_dataframe(frame):
        if together == "snapshot" and kind_of(frame.columns, kinds) == "nested":
            frame, again = partitions.apply(frame, again, None), _put_in_order
        return partitions.apply(frame, again, _TOGETHER.get(together), whole=together == "all")  # type: ignore[no-any-return]
    if isinstance(frame, pl.LazyFrame) or engines.is_engine(frame):
        names = names_of(frame)
        check_names(names)
        kind = kind_of(names, kinds)
        own = names if further or kind not in COLUMNS else [c for c in names if c in COLUMNS[kind]]
        if not isinstance(frame, pl.LazyFrame):
            keys, whole = _TOGETHER.get(together, ()), together == "all"
            return engines.apply(engines.selected(frame, own), again, keys, whole=whole)  # type: ignore[no-any-return]
        query = frame.select(own)
        if kind == "nested" and together in ("row", "snapshot"):
            parts = in_query(query, again, streamable=True)
            return parts if together == "row" else in_query(parts, _put_in_order)  # type: ignore[return-value]
        if reduce is None:
            return in_query(query, again)  # type: ignore[return-value]
        parts = in_query(query, partial(run, function=reduce, kinds=kinds), streamable=True)
        return in_query(parts, partial(_finished, query, again, finish or function, kinds))  # type: ignore[return-value]
    table = opened(frame, kinds)
    if watch is not None:
        watch(table)
    return closed(function(table), frame)  # type: ignore[no-any-return]


def at_once(frame: F, function: Callable[[Any], Any]) -> F:
    """A function of frames in memory for all rows of one of Dask, Spark or DuckDB."""
    if is_dask_dataframe(frame):
        return partitions.apply(frame, function, None, whole=True)  # type: ignore[no-any-return]
    return engines.apply(frame, function, (), whole=True)  # type: ignore[no-any-return]


def _put_in_order(frame: F) -> F:
    """A frame with one row per token and time in tidy order; equal rows are taken as one."""

    def ordered(table: EagerTable) -> Result:
        rows = table.in_order([c for c in table.names if c not in ("ts", *ID_COLUMNS)]).rows
        return Result(pl.DataFrame(), [Taken(table.source, {c: c for c in table.names}, rows)], table.names)

    return run(frame, ordered, ["series"], further=True)


def opened(frame: Any, kinds: Iterable[Kind]) -> EagerTable:
    """The `Table` of a native frame in memory; of nested books level rows, unless nested is wanted.

    No row is read yet. NotTidyError if its library is unknown or columns are missing.
    """
    source, kinds = source_of(frame), tuple(kinds)
    if source is None:
        raise _unknown(frame)
    check_names(source.names)
    table = EagerTable(source, kind_of(source.names, kinds))
    return nested.LevelTable(table) if table.kind == "nested" and "nested" not in kinds else table


def series_of(frame: Any, what: str, wanted: Iterable[str]) -> EagerTable:
    """The rows of a frame of any kind, read into memory, that has these columns, as a table of a series."""
    source = source_of(in_memory(frame))
    check_names(source.names)
    require(what, wanted, source.names)
    return EagerTable(source, "series")


def source_of(frame: Any) -> Any:
    """The columns of a frame in memory, read one by one; None for a frame of an engine."""
    if is_pandas_dataframe(frame):
        return _PandasSource(frame)
    if isinstance(frame, pl.DataFrame):
        return PolarsSource(frame)
    return _ArrowSource(frame) if is_pyarrow_table(frame) else None


def read(frame: F) -> F:
    """An Arrow batch, or the batches of a reader, as a table; other frames as they are, those of narwhals refused."""
    if is_narwhals_dataframe(frame) or is_narwhals_lazyframe(frame):
        raise NotTidyError("A narwhals frame is taken by its library's own: give frame.to_native().")
    if not is_batches(frame):
        return frame
    import pyarrow as pa

    batches: Any = frame
    return pa.Table.from_batches([batches]) if isinstance(batches, pa.RecordBatch) else batches.read_all()  # type: ignore[no-any-return]


def is_batches(frame: Any) -> bool:
    """Whether a frame is a batch of Arrow or a reader of batches."""
    arrow = type(frame).__module__.partition(".")[0] == "pyarrow"
    return arrow and (hasattr(frame, "read_all") or type(frame).__name__ == "RecordBatch")


def in_memory(frame: Any) -> Any:
    """The rows of a frame of any kind as a native frame in memory; NotTidyError if its library is unknown."""
    frame = read(frame)
    if is_dask_dataframe(frame):
        computed: Any = frame
        return computed.compute()
    if is_lazy(frame):
        return frame.collect()
    if engines.is_engine(frame):
        return engines.collected(frame)
    if source_of(frame) is None:
        raise _unknown(frame)
    return frame


def names_of(frame: Any) -> list[str]:
    """Names of the columns of a frame of any kind, nothing computed; NotTidyError if its library is unknown."""
    source = source_of(frame)
    if source is not None:
        return list(source.names)
    if is_batches(frame):
        return list(frame.schema.names)
    if is_lazy(frame):
        return frame.collect_schema().names()  # type: ignore[no-any-return]
    if is_dask_dataframe(frame) or engines.is_engine(frame):
        return list(frame.columns)
    raise _unknown(frame)


def closed(result: Any, frame: Any) -> Any:
    """The result of a function of a `Table` as a frame of the kind of the native one."""
    result = result if isinstance(result, Result) else Result(result)
    return source_of(frame).build(result.data, result.taken, result.order)


def is_lazy(frame: Any) -> bool:
    """Whether a frame is a polars LazyFrame."""
    return isinstance(frame, pl.LazyFrame)


def _finished(
    query: pl.LazyFrame,
    again: Callable[[Any], Any],
    finish: Callable[[EagerTable], Any],
    kinds: tuple[Kind, ...],
    parts: pl.DataFrame,
) -> pl.DataFrame:
    try:
        return run(parts, finish, kinds)
    except Overlap:
        return again(query.collect())  # type: ignore[no-any-return]


def in_query(
    frame: pl.LazyFrame, function: Callable[..., Any], *others: pl.LazyFrame, streamable: bool = False
) -> pl.LazyFrame:
    """The function of one or several frames as one step of a polars query; on no rows it shows its columns."""
    nothing = function(*(pl.DataFrame(schema=f.collect_schema()) for f in (frame, *others)))
    # A filter of the result is none of the rows that the verb sees; polars 1 would push it down if it were not told.
    after = dict.fromkeys(("predicate_pushdown", "projection_pushdown", "slice_pushdown"), False)
    return frame.map_batches(
        lambda rows: function(rows, *(f.collect() for f in others)),
        schema=nothing.schema, streamable=streamable, **after,
    )  # fmt: skip


def kind_name(frame: Any) -> str:
    """The name of a frame's kind for messages: several libraries call theirs DataFrame, and others derive from it."""
    if is_pandas_dataframe(frame):
        return "pandas DataFrame"
    return f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}".removeprefix("builtins ")


def _unknown(frame: Any) -> NotTidyError:
    return NotTidyError(
        f"A {kind_name(frame)} is not a frame of a supported library; allowed are pandas, polars (eager and lazy), "
        "Arrow, Dask, Spark and DuckDB frames."
    )


class PolarsSource:
    """A polars DataFrame as a `Source`."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = self.native = frame
        self.names = frame.columns
        self._integers: pl.DataFrame | None = None

    def __len__(self) -> int:
        return self.frame.height

    def raw(self, name: str, rows: Ints | None = None) -> Any:
        """See `Source`."""
        column = self.frame[name] if rows is None else self.frame[name].gather(rows)
        return column.to_list() if column.dtype == pl.Object else column

    def integers(self, name: str, rows: Ints | None = None) -> Any:
        """See `Source`."""
        if self._integers is None:
            # All in one step, for each step of polars costs as much as a look at 100,000 rows.
            tidy = {c: t for c, t in self.frame.schema.items() if _is_integer(c, t) and not self.frame[c].null_count()}
            self._integers = self.frame.select(pl.col(*tidy).to_physical()) if tidy else pl.DataFrame()
        if name not in self._integers.columns:
            return None
        found = self._integers[name].to_numpy()
        return found if rows is None else found[rows]

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None] | None:
        """See `Source`."""
        if not isinstance(self.frame.schema[name], pl.String | pl.Categorical | pl.Enum):
            return None
        column = self.frame[[name]] if rows is None else self.frame[[name]][rows]
        return column.to_series().cast(pl.String).to_list()

    def is_tidy(self, name: str) -> bool:
        """See `Source`: times, ids, sides and levels; NaN of numbers becomes null, which is read anyway."""
        dtype = self.frame.schema[name]
        # The categories of ids that are read are sorted, so those that are passed on are too.
        unsorted = name in ID_COLUMNS and isinstance(dtype, pl.Enum) and not dtype.categories.is_sorted()
        return _is_integer(name, dtype) and not unsorted

    def build(self, data: pl.DataFrame, taken: Sequence[Taken], order: Sequence[str] | None = None) -> Any:
        """A frame of this kind from tidy columns, ids in their original type, and from columns passed on."""
        columns = {c: data[c] for c in data.columns}
        for name in {*_IDS} & {*columns} & {*self.names}:
            wanted = self.frame.schema[name]
            if columns[name].dtype != wanted and _has_texts_of(wanted, columns[name].dtype):
                texts = columns[name].cast(pl.String) if isinstance(wanted, pl.Enum) else columns[name]
                columns[name] = texts.cast(wanted)
        for source, names, rows in taken:
            if not names:
                continue
            part = source.frame[list(names)]
            if rows is None:
                found = part.get_columns()
            elif not len(rows) or rows.min() >= 0:
                found = part[rows].get_columns()
            else:
                at = pl.DataFrame({"at": rows}).select(pl.when(pl.col("at") >= 0).then("at")).to_series()
                found = [column.gather(at) for column in part]
            columns |= dict(zip(names.values(), found, strict=True))
        return pl.DataFrame({c: columns[c] for c in order} if order is not None else columns)


def _has_texts_of(wanted: pl.DataType, made: pl.DataType) -> bool:
    """Whether a column of texts can be of the type that the column of the native frame has."""
    if isinstance(wanted, pl.Enum):
        return isinstance(made, pl.Enum) and {*made.categories} <= {*wanted.categories}
    return wanted in (pl.String, pl.Categorical)


def _is_integer(name: str, dtype: pl.DataType) -> bool:
    """Whether a polars column has times, ids, sides or levels in the types of tidy frames."""
    if name in ID_COLUMNS:
        return isinstance(dtype, pl.Categorical | pl.Enum)
    tidy = {"ts": pl.Datetime("us", "UTC"), "side": pl.Enum([BID, ASK]), "level": pl.Int32()}
    return name in tidy and dtype == tidy[name]


class _ArrowSource(PolarsSource):
    """A pyarrow Table as a `Source`, its columns those of polars without a copy."""

    def __init__(self, table: Any) -> None:
        check_names(table.column_names)
        super().__init__(_from_arrow(table))
        self.native = table

    def build(self, data: pl.DataFrame, taken: Sequence[Taken], order: Sequence[str] | None = None) -> Any:
        return super().build(data, taken, order).to_arrow()


def _from_arrow(table: Any) -> pl.DataFrame:
    """An Arrow table as polars columns; NotTidyError naming those of types that polars does not have."""
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
            f"Arrow columns of types that polars cannot read: {', '.join(wrong)}; cast numbers to float64, or drop the "
            "columns."
        ) from None


class _PandasSource:
    """A pandas DataFrame as a `Source`; its index is ignored."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = self.native = frame
        self.names = [str(c) for c in frame.columns]
        check_names(self.names)
        self._tidy: dict[str, bool] = {}

    def __len__(self) -> int:
        return len(self.frame)

    def raw(self, name: str, rows: Ints | None = None) -> Any:
        import pandas as pd

        column = self.frame[name] if rows is None else pd.Series(self.frame[name].array.take(rows), copy=False)
        if isinstance(column.dtype, pd.SparseDtype):
            column = pd.Series(column.to_numpy())
        dtype, array = column.dtype, column.array
        masked: Any = dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return _categories(array)
        # pandas has no kind for the newer types of Arrow.
        if not isinstance(dtype, pd.ArrowDtype) and dtype.kind == "M":
            return _instants(array)
        if isinstance(dtype, np.dtype):
            return column.tolist() if dtype.kind == "O" else pl.Series(_plain(column.to_numpy()))
        if isinstance(dtype, pd.StringDtype) and dtype.storage == "python":
            return column.astype(object).tolist()
        if isinstance(dtype, pd.ArrowDtype | pd.StringDtype):
            import pyarrow as pa

            values = pa.chunked_array(array.__arrow_array__()) if len(array) else pa.array(array)
            return _from_arrow(pa.table({name: values}))[name]
        if dtype.kind in "iufb":
            values = pl.Series(_plain(array.to_numpy(dtype=masked.numpy_dtype, na_value=0)))
            missing = pl.Series(np.asarray(array.isna()))
            return values.set(missing, None) if missing.any() else values
        return column.astype(object).tolist()

    def integers(self, name: str, rows: Ints | None = None) -> Any:
        if name not in (*_IDS, "ts", "level") or not self.is_tidy(name):
            return None
        array = self.frame[name].array
        if name == "ts":
            return array.asi8 if rows is None else array.asi8[rows]
        if name == "level":
            return (array if rows is None else array.take(rows)).to_numpy(dtype="int32", na_value=0)
        return array.codes if rows is None else array.codes[rows]

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None] | None:
        if not self.is_tidy(name):
            return None
        array = self.frame[name].array
        texts = [*array.categories.tolist(), None]
        return [texts[code] for code in (array.codes if rows is None else array.codes[rows]).tolist()]

    def is_tidy(self, name: str) -> bool:
        if name not in self._tidy:
            self._tidy[name] = self._is_tidy(name)
        return self._tidy[name]

    def _is_tidy(self, name: str) -> bool:
        import pandas as pd

        dtype = self.frame[name].dtype
        if name in _IDS:
            texts = dtype.categories.tolist() if isinstance(dtype, pd.CategoricalDtype) else [None]
            return texts == [BID, ASK] if name == "side" else all(isinstance(t, str) for t in texts)
        return str(dtype) == {"ts": "datetime64[us, UTC]", "level": "Int32"}.get(name, "float64")

    def build(self, data: pl.DataFrame, taken: Sequence[Taken], order: Sequence[str] | None = None) -> Any:
        import pandas as pd

        columns = {c: _pandas_column(data[c], self.frame[c].dtype if c in self.names else None) for c in data.columns}
        for source, names, rows in taken:
            if rows is None:
                # A copy, so that writing into the result does not write into the frame that was given.
                columns |= {new: source.frame[old].array.copy() for old, new in names.items()}
            elif not len(rows) or rows.min() >= 0:
                columns |= {new: source.frame[old].array.take(rows) for old, new in names.items()}
            else:
                part = source.frame[list(names)].reset_index(drop=True).reindex(rows)
                columns |= {new: part[old].array for old, new in names.items()}
        height = data.height
        if taken and not data.columns:
            height = len(taken[0].source) if taken[0].rows is None else len(taken[0].rows)
        columns = columns if order is None else {c: columns[c] for c in order}
        return pd.DataFrame(columns, index=pd.RangeIndex(height), copy=False)


def _categories(array: Any) -> Any:
    """A pandas categorical as an enum in the order of the texts; bid is before ask."""
    texts, codes = list(array.categories), array.codes
    if not all(isinstance(t, str) for t in texts):
        return list(array)
    ordered = sorted(texts)
    if texts not in (ordered, [BID, ASK]):
        place = {t: i for i, t in enumerate(ordered)}
        codes = np.array([*(place[t] for t in texts), -1], np.int64)[codes]
        texts = ordered
    dtype = pl.Enum(texts)
    width = _code_width(len(texts))
    missing = codes < 0 if len(codes) and codes.min() < 0 else None
    if missing is not None:
        codes = np.where(missing, 0, codes) if texts else np.zeros(len(codes), codes.dtype)
    if not texts:
        return pl.Series([None] * len(codes), dtype=dtype)
    codes = codes.view(width) if codes.dtype.itemsize == width.itemsize else codes.astype(width)
    out = from_codes(codes, dtype)
    return out if missing is None else out.to_frame("x").select(pl.when(~pl.Series(missing)).then("x")).to_series()


@cache
def _code_width(count: int) -> np.dtype[Any]:
    kind = str(pl.Series([], dtype=pl.Enum(map(str, range(count)))).to_physical().dtype)
    return np.dtype(f"u{_WIDTHS[kind]}")


def _plain(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that polars takes, if possible without a copy."""
    if values.dtype.byteorder not in "=|<":
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    return np.ascontiguousarray(values)


def _instants(array: Any) -> pl.Series:
    """A pandas datetime array: instants, which are UTC where they have no zone."""
    whole, unit = array.asi8, array.unit
    missing = whole == _NO_TIME if len(whole) and whole.min() == _NO_TIME else None
    if unit == "s":
        whole, unit = whole * 1000, "ms"
    out = pl.Series(np.ascontiguousarray(whole)).cast(pl.Datetime(unit, "UTC"))
    return out if missing is None else out.set(pl.Series(missing), None)


def _pandas_column(column: pl.Series, wanted: Any) -> Any:
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pl.Enum | pl.Categorical) or (dtype == pl.String and column.name in _IDS):
        return _pandas_texts(column, wanted)
    if isinstance(dtype, pl.Datetime):
        instants = column.to_physical()
        instants = instants.fill_null(_NO_TIME) if instants.null_count() else instants
        return pd.Series(instants.to_numpy(writable=True), copy=False).astype("datetime64[us, UTC]")
    if dtype == pl.String:
        return pd.array(column.to_list(), dtype="str")
    if column.name == "level" or (dtype.is_integer() and column.null_count()):
        return pd.arrays.IntegerArray(
            column.fill_null(0).to_numpy(writable=True), column.is_null().to_numpy(writable=True)
        )
    if dtype == pl.Boolean and column.null_count():
        return pd.array(column.to_list(), dtype="boolean")
    if dtype.is_nested():
        return _pandas_lists(column, wanted)
    return column.to_numpy(writable=True)


def _pandas_lists(column: pl.Series, wanted: Any) -> Any:
    """Lists as Arrow has them, where it is installed: Dask makes texts of objects."""
    import pandas as pd

    if wanted != np.dtype(object) and find_spec("pyarrow") is not None:
        import pyarrow as pa

        return pd.array(column.to_arrow(), dtype=pd.ArrowDtype(pa.list_(pa.float64())))
    return pd.Series(column.to_list(), dtype=object)


def _pandas_texts(column: pl.Series, wanted: Any) -> Any:
    import pandas as pd

    if not isinstance(column.dtype, pl.Enum):
        present = column.unique().cast(pl.String).drop_nulls().sort()
        column = column.cast(pl.String).cast(pl.Enum(present))
    texts = column.dtype.categories.to_list()  # type: ignore[attr-defined]
    whole = column.to_physical().cast(pl.Int64)
    codes = (whole.fill_null(-1) if whole.null_count() else whole).to_numpy()
    if isinstance(wanted, pd.CategoricalDtype) and wanted.categories.tolist() == texts:
        return pd.Categorical.from_codes(codes, dtype=wanted)
    if wanted is None:
        wanted = pd.CategoricalDtype(pd.Index(texts, dtype="str"))
    if isinstance(wanted, pd.CategoricalDtype):
        # Values of another frame, such as orders for a token without books, have categories of their own.
        more = [text for text in texts if text not in wanted.categories]
        wanted = pd.CategoricalDtype(wanted.categories.append(pd.Index(more))) if more else wanted
        place = np.append(wanted.categories.get_indexer(texts), -1)
        return pd.Categorical.from_codes(place[codes], dtype=wanted)
    values = np.array([*texts, None], dtype=object)[codes]
    if isinstance(wanted, pd.ArrowDtype):
        return pd.array(values, dtype=wanted)
    return pd.Series(values, dtype=object if wanted.kind not in "OU" else wanted)
