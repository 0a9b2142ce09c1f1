"""Call a function of frames in memory for a native frame of any kind, and return its result as that kind.

pandas, polars and Arrow frames are in memory. The function is one step of a lazy polars query. Dask calls it for each
partition, after the rows of a token were brought together. Spark and DuckDB call it for Arrow tables of whole tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import polars as pl

from marketdata.adapters import engines, frames, partitions
from marketdata.adapters.frame import Column, Frame, Native, Passed
from marketdata.adapters.polars import ArrowFrame, PolarsFrame, table_of
from marketdata.adapters.widths import carried_width, with_width
from marketdata.errors import NotTidyError
from marketdata.points.columns import Ints
from marketdata.points.grids import RowWidth
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
    refuse_cents,
    refuse_negative,
    require,
)

F = TypeVar("F")
PartitionBy = Literal["row", "snapshot", "token", "market", "all"]
_KEYS: dict[PartitionBy, Sequence[str]] = {
    "snapshot": ID_COLUMNS[:2],
    "token": ID_COLUMNS[:2],
    "market": ID_COLUMNS[:1],
}


def run(
    frame: F,
    function: Callable[[Frame], Native],
    kinds: Iterable[Kind],
    *,
    partition_by: PartitionBy = "token",
    keep_extra: bool = False,
    reduce: Callable[[Frame], Native] | None = None,
    finish: Callable[[Frame], Native | None] | None = None,
    on_times: Callable[[Ints], object] | None = None,
    width: RowWidth | None = None,
) -> F:
    """Call a function of a `Frame` for a native frame of any kind, and give its result as that kind; lazy stays lazy.

    NotTidyError if the frame is none of ``kinds``; the first that the columns satisfy decides. ConfigError if the
    function does not support its library. ``partition_by`` says which rows of a Dask frame the function must see at
    once. Without ``keep_extra`` a lazy frame is cut to the columns of its kind before it is read.

    ``reduce`` shortens any part of the rows without changing the result. So a lazy frame larger than memory streams
    through it, and ``finish`` is called for the reduced rows instead of the function. If it returns None, because
    they do not show whether a row is in several parts, the function gets all rows. ``on_times`` sees the times of a
    frame in memory first, for warnings that all rows decide. A ``width`` is checked on all times, whatever the kind
    of frame. The result carries the width that the frame carries.
    """
    kinds = tuple(kinds)
    if is_in_memory(frame):
        opened = in_memory(frame, kinds)
        for check in (on_times, None if width is None else width.check):
            if check is not None:
                check(*opened.read("ts"))
        return _with_width_of(frame, function(opened))  # type: ignore[no-any-return]
    refuse_narwhals(frame)
    names, step = names_of(frame), partial(run, function=function, kinds=kinds)
    kind = kind_of(names, kinds)
    columns = names if keep_extra or kind not in COLUMNS else [c for c in names if c in (*COLUMNS[kind], OBSERVED)]
    if isinstance(frame, pl.LazyFrame):
        query = frame.select(columns)
        if width is not None:  # all rows at once, as all times decide
            out = in_query(query, partial(step, width=width))
        elif kind == "nested" and partition_by in ("row", "snapshot"):
            parts = in_query(query, step, streamable=True)
            out = parts if partition_by == "row" else in_query(parts, _put_in_order)
        elif reduce is not None:
            out = _streamed(query, step, partial(run, function=reduce, kinds=kinds), kinds, finish or function)
        else:
            out = in_query(query, step)
        return _with_width_of(frame, out)  # type: ignore[no-any-return]
    if width is not None:
        width.check(in_memory(distinct_rows(frame, ["ts"])).read("ts")[0])
    keys, all_rows = _KEYS.get(partition_by, ()), partition_by == "all"
    if is_dask(frame):
        if partition_by == "snapshot" and kind == "nested":
            return partitions.apply(partitions.apply(frame, step, ()), _put_in_order, ())  # type: ignore[no-any-return]
        return partitions.apply(frame, step, keys, all_rows=all_rows)  # type: ignore[no-any-return]
    return engines.apply(engines.selected(frame, columns), step, keys, all_rows=all_rows)  # type: ignore[no-any-return]


def _streamed(
    query: pl.LazyFrame,
    whole: Callable[[pl.DataFrame], pl.DataFrame],
    reduce: Callable[[pl.DataFrame], pl.DataFrame],
    kinds: Sequence[Kind],
    finish: Callable[[Frame], Native | None],
) -> pl.LazyFrame:
    """A query that reduces parts as they stream, then finishes them; without ``finish`` the function gets all rows."""

    def finished(parts: pl.DataFrame) -> pl.DataFrame:
        result = finish(in_memory(parts, kinds))
        return whole(query.collect()) if result is None else result

    return in_query(in_query(query, reduce, streamable=True), finished)


def _with_width_of(frame: Native, result: Native) -> Native:
    """The result, which carries the width of the frame that it was made from."""
    carried = carried_width(frame)
    return result if carried is None else with_width(result, carried)


def at_once(frame: F, function: Callable[[Native], Native]) -> F:
    """Call a function for all rows of a Dask, Spark or DuckDB frame at once."""
    return (partitions if is_dask(frame) else engines).apply(frame, function, (), all_rows=True)  # type: ignore[no-any-return]


def _put_in_order(frame: F) -> F:
    """A frame with one row per token and time in tidy order; equal rows are deduplicated."""

    def ordered(part: Frame) -> Native:
        in_order, _ = frames.sorted_series(part, same=[c for c in part.names if c not in ("ts", *ID_COLUMNS)])
        return frames.rows_to_frame(in_order, None)

    return run(frame, ordered, ["series"], keep_extra=True)


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
    present = frame.names if frame.kind == "nested" else [name for name in frame.names if name not in LISTS]
    # A series may have a column of this name which is none.
    sizes = () if frame.kind == "series" else SIZES
    for names, refuse in ((PRICES, refuse_cents), (sizes, refuse_negative)):
        for name in (name for name in names if name in present):
            if frame.kind != "series" or frame.is_number(name):
                lists = frame.lists(name).explode(empty_as_null=False) if name in LISTS else None
                refuse(**{name: frame.numbers(name) if lists is None else lists.to_numpy()})


def unchecked(native: Native, kinds: Iterable[Kind] | None = None) -> Frame:
    """`in_memory` whatever the prices are, to find those that are none."""
    native = collected(native)
    frame = _library_of(native).of(native)
    check_names(frame.names)
    if kinds is None:
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
        raise NotTidyError(
            f"A {kind_name(native)} is not a frame of a supported library; allowed are pandas, polars (eager and "
            "lazy), Arrow, Dask, Spark and DuckDB frames."
        )
    return library
