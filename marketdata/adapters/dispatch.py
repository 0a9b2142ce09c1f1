"""Call a function of frames in memory for a native frame of any kind, and return its result as that kind.

pandas, polars and Arrow frames are in memory. The function is one step of a lazy polars query. Dask calls it for each
partition, after the rows of a token were brought together. Spark and DuckDB call it for Arrow tables of whole tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, TypeVar

import polars as pl

from marketdata.adapters import engines, frames, partitions
from marketdata.adapters.frame import Column, Frame, Native, Passed
from marketdata.adapters.polars import ArrowFrame, PolarsFrame, table_of
from marketdata.adapters.widths import carried_width, with_width
from marketdata.errors import NotTidyError
from marketdata.points.columns import Floats
from marketdata.points.grids import RowWidth
from marketdata.points.probability import refuse_cents, refuse_negative
from marketdata.points.schema import (
    COLUMNS,
    ID_COLUMNS,
    LISTS,
    OBSERVED,
    PRICES,
    SIZES,
    Kind,
    check_names,
    kind_of,
    require,
)
from marketdata.resolution import BucketWidth

F = TypeVar("F")
PartitionBy = Literal["row", "snapshot", "token", "market", "all"]
_KEYS: dict[PartitionBy, Sequence[str]] = {
    "snapshot": ID_COLUMNS[:2],
    "token": ID_COLUMNS[:2],
    "market": ID_COLUMNS[:1],
}


@dataclass(frozen=True)
class Reduction:
    """How a lazy frame that is larger than memory is read: parts of its rows, each made shorter."""

    reduce: Callable[[Frame], Native]
    """Shortens any part of the rows, which does not change the result."""
    finish: Callable[[Frame], Native | None] | None = None
    """Called for the reduced rows instead of the function; None says that a row may be in several parts."""


@dataclass(frozen=True)
class Step:
    """A function of frames in memory, the kinds of frames that it takes, and what it needs to see."""

    function: Callable[[Frame], Native]
    kinds: tuple[Kind, ...]
    partition_by: PartitionBy
    keep_extra: bool
    width: RowWidth | None
    reduction: Reduction | None
    carried: BucketWidth | None
    """The width that the whole frame carries."""

    def opened(self, rows: Native) -> Frame:
        """Some rows, as the function takes them."""
        return replace(in_memory(rows, self.kinds), width=self.carried)

    def of_part(self, rows: Native) -> Native:
        """The result for rows of a part of the frame."""
        return self.function(self.opened(rows))

    def of_all(self, rows: Native, *, is_whole: bool = False) -> Native:
        """The result for all rows at once; ``is_whole`` if they are a frame that the user has in memory."""
        part = replace(self.opened(rows), is_whole=is_whole)
        if self.width is not None:
            self.width.check(*part.read("ts"))
        return self.function(part)


def run(
    frame: F,
    function: Callable[[Frame], Native],
    kinds: Iterable[Kind],
    *,
    partition_by: PartitionBy = "token",
    keep_extra: bool = False,
    width: RowWidth | None = None,
    reduction: Reduction | None = None,
) -> F:
    """Call a function of a `Frame` for a native frame of any kind, and give its result as that kind; lazy stays lazy.

    NotTidyError if the frame is none of ``kinds``; the first that the columns satisfy decides. ConfigError if the
    function does not support its library. ``partition_by`` says which rows of an engine the function must see at once.
    Without ``keep_extra`` only the columns of its kind are read from a lazy frame. A ``width`` is checked on all times,
    whatever the kind of frame. The result carries the width that the frame carries.
    """
    frame = read(frame)
    carried = carried_width(frame)
    step = Step(function, tuple(kinds), partition_by, keep_extra, width, reduction, carried)
    if is_in_memory(frame):
        result = step.of_all(frame, is_whole=True)
    elif isinstance(frame, pl.LazyFrame):
        result = run_streamed(frame, step)
    else:
        result = run_in_engine(frame, step)
    return result if carried is None else with_width(result, carried)  # type: ignore[no-any-return]


def run_streamed(frame: pl.LazyFrame, step: Step) -> pl.LazyFrame:
    """The function as a step of a polars query: part after part where parts are enough, else of all rows at once."""
    kind, names = _read_from(frame, step)
    query = frame.select(names)
    if kind == "nested" and step.width is None and step.partition_by in ("row", "snapshot"):
        parts = in_query(query, step.of_part, streamable=True)
        return parts if step.partition_by == "row" else in_query(parts, _put_in_order)
    if step.reduction is None:
        return in_query(query, step.of_all)
    finish = step.reduction.finish or step.function

    def finished(parts: pl.DataFrame) -> pl.DataFrame:
        result = finish(step.opened(parts))
        return step.of_all(query.collect()) if result is None else result  # type: ignore[no-any-return]

    return in_query(in_query(query, replace(step, function=step.reduction.reduce).of_part, streamable=True), finished)


def run_in_engine(frame: Native, step: Step) -> Native:
    """The function of the partitions of a Dask frame, or of Arrow tables of whole tokens of Spark and DuckDB."""
    kind, names = _read_from(frame, step)
    if step.width is not None:
        step.width.check(in_memory(distinct_rows(frame, ["ts"])).read("ts")[0])
    keys, all_rows = _KEYS.get(step.partition_by, ()), step.partition_by == "all"
    if not is_dask(frame):
        return engines.apply(engines.selected(frame, names), step.of_part, keys, all_rows=all_rows)
    if step.partition_by == "snapshot" and kind == "nested":
        return partitions.apply(partitions.apply(frame, step.of_part, ()), _put_in_order, ())
    return partitions.apply(frame, step.of_part, keys, all_rows=all_rows)


def _read_from(frame: Native, step: Step) -> tuple[Kind, list[str]]:
    """The kind of a lazy frame or one of an engine, and the columns that the function needs of it."""
    names = names_of(frame)
    kind = kind_of(names, step.kinds)
    if step.keep_extra or kind not in COLUMNS:
        return kind, names
    return kind, [c for c in names if c in (*COLUMNS[kind], OBSERVED)]


def at_once(frame: F, function: Callable[[Native], Native]) -> F:
    """Call a function for all rows of a Dask, Spark or DuckDB frame at once."""
    return (partitions if is_dask(frame) else engines).apply(frame, function, (), all_rows=True)  # type: ignore[no-any-return]


def _put_in_order(rows: Native) -> Native:
    """Rows with one per token and time, in tidy order; equal rows are deduplicated."""
    frame = in_memory(rows, ["series"])
    in_order, _ = frames.sorted_series(frame, same=[c for c in frame.names if c not in ("ts", *ID_COLUMNS)])
    return frames.rows_to_frame(in_order, None)


def in_query(
    frame: pl.LazyFrame, function: Callable[..., Any], *others: pl.LazyFrame, streamable: bool = False
) -> pl.LazyFrame:
    """The function of one or several frames as one step of a polars query; empty frames tell its columns."""
    nothing = function(*(pl.DataFrame(schema=f.collect_schema()) for f in (frame, *others)))
    # A filter of the result is no filter of the rows that the function sees; polars 1 would push it down.
    after = dict.fromkeys(("predicate_pushdown", "projection_pushdown", "slice_pushdown"), False)
    return frame.map_batches(
        lambda rows: function(rows, *(f.collect() for f in others)),
        schema=nothing.schema, streamable=streamable, **after,
    )  # fmt: skip


@contextmanager
def missing_in_index_named(frame: Frame | Native) -> Iterator[None]:
    """The error about a missing column; it says if the column is the index of a pandas frame."""
    try:
        yield
    except NotTidyError as problem:
        index = getattr(getattr(frame, "native", frame), "index", None)
        in_index = [name for name in problem.missing if name in getattr(index, "names", ())]
        if not in_index:
            raise
        raise NotTidyError(f"{problem} The index is {in_index}: call frame.reset_index() first.") from None


def in_memory(native: Native, kinds: Iterable[Kind] | None = None) -> Frame:
    """A frame of any kind, read into memory and opened, of ``kinds`` as `tidy` says.

    NotTidyError if its library is unknown, a name is twice, it is none of ``kinds``, or a price of it is none.
    """
    frame = unchecked(native, kinds)
    if kinds is not None:
        refuse_no_prices(frame)
    return frame


def refuse_no_prices(frame: Frame) -> None:
    """NotTidyError if a price of a tidy frame is no probability, or a number of shares is below 0."""
    if frame.kind == "metrics":
        return
    # A series may have a column of sizes of another meaning.
    prices, sizes = (_numbers(frame, names) for names in (PRICES, () if frame.kind == "series" else SIZES))
    refuse_cents(**prices)
    refuse_negative(**sizes)


def _numbers(frame: Frame, wanted: Iterable[str]) -> dict[str, Floats]:
    """The columns of a tidy frame with these names, those of lists as one array of all levels."""
    out = {}
    for name in wanted:
        if name not in frame.names or (name in LISTS and frame.kind != "nested"):
            continue
        if name in LISTS:
            out[name] = frame.lists(name).explode(empty_as_null=False).to_numpy()
        elif frame.kind != "series" or frame.is_number(name):
            out[name] = frame.numbers(name)
    return out


def unchecked(native: Native, kinds: Iterable[Kind] | None = None) -> Frame:
    """`in_memory` whatever the prices are, to find those that are none."""
    native = collected(native)
    frame = _library_of(native).of(native)
    if kinds is None:
        check_names(frame.names)
        return frame
    with missing_in_index_named(frame):
        return replace(frame, kind=kind_of(frame.names, kinds))


def series_of(native: Native, what: str, wanted: Iterable[str]) -> Frame:
    """A frame of any kind that has these columns, read into memory and opened."""
    frame = in_memory(native)
    with missing_in_index_named(frame):
        require(what, wanted, frame.names)
    return frame


def collected(native: Native) -> Native:
    """A frame of any kind as a native frame in memory; NotTidyError if its library is unknown."""
    native = read(native)
    if is_dask(native):
        return native.compute()
    if is_lazy(native):
        return native.collect()
    return engines.collected(native) if engines.is_engine(native) else native


def distinct_rows(native: Native, names: Sequence[str]) -> Native:
    """The distinct rows of some columns, computed by polars or the engine."""
    chosen = selected(native, names)
    if is_dask(native):
        return chosen.drop_duplicates()
    return chosen.unique() if is_lazy(native) else chosen.distinct()


def selected(native: Native, names: Sequence[str]) -> Native:
    """Some columns of a frame of any kind."""
    if frames.is_a(native, "pandas.DataFrame", "dask.DataFrame"):
        return native[[c for c in native.columns if str(c) in names]]
    if engines.is_engine(native):
        return engines.selected(native, names)
    if is_lazy(native) or frames.library_of(native) in (PolarsFrame, ArrowFrame):
        return native.select(names)
    return frames.rows_to_frame(in_memory(native), None, names=names)


def read(frame: F) -> F:
    """Return an Arrow batch or reader as a table, other frames unchanged; NotTidyError for a narwhals frame."""
    refuse_narwhals(frame)
    return table_of(frame) if frames.library_of(frame) is ArrowFrame else frame


def refuse_narwhals(frame: object) -> None:
    """NotTidyError for a frame of narwhals."""
    if frames.is_a(frame, "narwhals.DataFrame", "narwhals.LazyFrame"):
        raise NotTidyError("A narwhals frame is refused; pass frame.to_native().")


def as_polars(native: Native) -> pl.DataFrame:
    """A frame of any kind as a polars frame in memory, columns in their own types."""
    frame = in_memory(native)
    columns = {name: Passed(frame, name, None) for name in frame.names}
    return frames.new("polars").build(columns, len(frame))  # type: ignore[no-any-return]


def names_of(native: Native) -> list[str]:
    """Names of the columns of a frame of any kind, nothing computed; NotTidyError if its library is unknown."""
    if is_lazy(native):
        return native.collect_schema().names()  # type: ignore[no-any-return]
    if is_dask(native) or engines.is_engine(native):
        return list(native.columns)
    # A reader of Arrow is read once, so it is not opened here.
    return list(native.schema.names) if _library_of(native) is ArrowFrame else [*in_memory(native).names]


def is_lazy(frame: object) -> bool:
    """Whether a frame is a polars LazyFrame."""
    return isinstance(frame, pl.LazyFrame)


def is_dask(frame: object) -> bool:
    """Whether a frame is one of Dask."""
    return frames.is_a(frame, "dask.DataFrame")


def is_in_memory(frame: object) -> bool:
    """Whether a frame is in memory: pandas, polars or Arrow."""
    return frames.library_of(frame) is not None


def as_frame_of(native: Native, build: Callable[[Frame], Native]) -> Native:
    """The frame that ``build`` makes, like another frame: lazy for a lazy one, polars for an engine's."""
    library = frames.library_of(native)
    out = build(frames.new("polars") if library is None else library.of(native))
    return out.lazy() if is_lazy(native) else out


def as_kind_of(native: Native, columns: Mapping[str, Column], height: int) -> Native:
    """A small table as the kind that another frame is, in its session or connection."""
    if is_dask(native):
        import dask.dataframe

        dd: Any = dask.dataframe
        return dd.from_pandas(as_kind_of(native._meta, columns, height), npartitions=1)  # noqa: SLF001 an empty frame
    table = as_frame_of(native, lambda like: like.build(columns, height))
    return engines.small(native, table) if engines.is_engine(native) else table


def kind_name(frame: object) -> str:
    """The name of a frame's kind for messages: several libraries call theirs DataFrame, and others derive from it."""
    if frames.is_a(frame, "pandas.DataFrame"):
        return "pandas DataFrame"
    return f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}".removeprefix("builtins ")


def _library_of(native: object) -> type[Frame]:
    library = frames.library_of(native)
    if library is None:
        is_path = isinstance(native, str | PathLike)
        raise NotTidyError(
            f"A {kind_name(native)} is not a frame of a supported library; allowed are pandas, polars (eager and "
            "lazy), Arrow, Dask, Spark and DuckDB frames."
            + is_path
            * " Files: md.read_trades(path) reads trades and fills, archive.add_files(path) the others."
        )
    return library
