"""Native frames below each other, ids dictionary encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from polars import selectors

from marketdata.adapters.dispatch import names_of
from marketdata.adapters.frames import is_a
from marketdata.adapters.normalization import not_text
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.schema import ID_COLUMNS, check_names


def checked_names(frame: Any, place: int) -> list[str]:
    """The names of the columns; ConfigError for what is no frame, NotTidyError for names that are twice."""
    try:
        names = [str(name) for name in (frame.columns if is_a(frame, "pandas.DataFrame") else names_of(frame))]
    except NotTidyError:
        raise ConfigError(
            f"frames[{place}] is a {type(frame).__name__}; allowed are pandas, polars and Arrow frames."
        ) from None
    check_names(names)
    if is_a(frame, "pandas.DataFrame") and (in_index := {"ts", *ID_COLUMNS} & {*frame.index.names}):
        raise NotTidyError(f"The index of frames[{place}] is {sorted(in_index)}: call frame.reset_index() first.")
    for name in (c for c in ID_COLUMNS if c in names):
        kind = _type_name(frame, name)
        if "float" in kind.lower() or "double" in kind:
            raise NotTidyError(not_text(name, kind))
    return names


def _type_name(frame: Any, name: str) -> str:
    if is_a(frame, "pandas.DataFrame"):
        return str(frame[name].dtype)
    return str(frame.schema.field(name).type if is_a(frame, "pyarrow.Table") else frame.collect_schema()[name])


def below_each_other(frames: Sequence[Any]) -> Any:
    """The rows of all frames of one library, columns that one lacks null, times as UTC."""
    kinds = sorted({f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}" for frame in frames})
    if len(kinds) > 1:
        raise ConfigError(f"frames are of several libraries ({', '.join(kinds)}); convert them to one.")
    library = next((rule for name, rule in _LIBRARIES.items() if is_a(frames[0], name)), None)
    if library is None:
        raise ConfigError(f"a frame of {kinds[0]} is not supported; use its own union of rows.")
    try:
        return library(list(frames))
    except (TypeError, ValueError, NotImplementedError, pl.exceptions.PolarsError) as problem:
        raise NotTidyError(_differing(frames) or str(problem)) from problem


def _differing(frames: Sequence[Any]) -> str:
    """Say what to do about the first column whose types differ between frames; empty if all agree."""
    types: dict[str, dict[str, int]] = {}
    for place, frame in enumerate(frames):
        for name in map(str, frame.columns if is_a(frame, "pandas.DataFrame") else names_of(frame)):
            types.setdefault(name, {}).setdefault(_type_name(frame, name), place)
    for name, places in types.items():
        if len(places) > 1 and name not in ID_COLUMNS:
            types_and_places = ", ".join(f"{kind} in frames[{place}]" for kind, place in places.items())
            return f"The column {name!r} is {types_and_places}; cast it to one type first, such as numbers to float64."
    return ""


def _pandas(frames: list[Any]) -> Any:
    import pandas as pd

    parts: list[Any] = [frame.copy(deep=False) for frame in frames]
    for name in dict.fromkeys(column for frame in frames for column in frame.columns):
        columns = [part[name] for part in parts if name in part]
        is_everywhere = len(columns) == len(parts)
        are_categories = is_everywhere and all(isinstance(c.dtype, pd.CategoricalDtype) for c in columns)
        if are_categories and len({c.dtype for c in columns}) == 1:
            continue
        if name in ID_COLUMNS or are_categories:
            # The categories first: rows that become texts on the way would take many times the memory.
            texts = {text for c in columns for text in c.astype("category").cat.categories}
            dtype = pd.CategoricalDtype(sorted(texts, key=str))
            for part in parts:
                part[name] = (
                    part[name].astype(dtype) if name in part else pd.Categorical([None] * len(part), dtype=dtype)
                )
        elif pd.api.types.is_datetime64_any_dtype(columns[0].dtype):
            for part in parts:
                if name in part:
                    part[name] = pd.to_datetime(part[name], utc=True)
    return pd.concat(parts, ignore_index=True)


def _polars(frames: list[Any]) -> Any:
    ids = selectors.by_name(*ID_COLUMNS, require_all=False) - selectors.categorical()
    times = [
        selectors.datetime(time_zone=None).dt.replace_time_zone("UTC"),
        selectors.datetime(time_zone="*").dt.convert_time_zone("UTC"),
    ]
    parts = [frame.with_columns(*times, ids.cast(pl.String).cast(pl.Categorical)) for frame in frames]
    return pl.concat(parts, how="diagonal_relaxed")


def _arrow(tables: list[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    def prepared(table: Any) -> Any:
        for place, field in enumerate(table.schema):
            column = table.column(place)
            if field.name in ID_COLUMNS:
                column = column.cast(pa.large_string()).dictionary_encode()
            elif pa.types.is_timestamp(field.type):
                column = pc.assume_timezone(column, "UTC") if field.type.tz is None else column
                column = column.cast(pa.timestamp(field.type.unit, "UTC"))
            table = table.set_column(place, field.name, column)
        return table

    return pa.concat_tables([prepared(table) for table in tables], promote_options="permissive").unify_dictionaries()


_LIBRARIES: dict[str, Callable[[list[Any]], Any]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "polars.LazyFrame": _polars,
    "pyarrow.Table": _arrow,
}
