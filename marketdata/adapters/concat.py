"""Native frames below each other, ids dictionary encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from polars import selectors

from marketdata.adapters.frames import is_a
from marketdata.adapters.normalization import not_text
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.schema import ID_COLUMNS, check_names


def checked_names(frame: Any, place: int) -> list[str]:
    """The names of the columns; ConfigError for an object that is no frame, NotTidyError for a repeated name."""
    if not is_a(frame, "pandas.DataFrame", "polars.DataFrame", "polars.LazyFrame", "pyarrow.Table"):
        raise ConfigError(f"frames[{place}] is a {type(frame).__name__}; allowed are pandas, polars and Arrow frames.")
    types = _types(frame)
    check_names(name for name, _ in types)
    if is_a(frame, "pandas.DataFrame") and (in_index := {"ts", *ID_COLUMNS} & {*frame.index.names}):
        raise NotTidyError(f"The index of frames[{place}] is {sorted(in_index)}: call frame.reset_index() first.")
    for name, kind in types:
        if name in ID_COLUMNS and ("float" in kind.lower() or "double" in kind):
            raise NotTidyError(not_text(name, kind))
    return [name for name, _ in types]


def _types(frame: Any) -> list[tuple[str, str]]:
    """The name and the type of each column."""
    if is_a(frame, "pandas.DataFrame"):
        return [(str(name), str(dtype)) for name, dtype in frame.dtypes.items()]
    if is_a(frame, "pyarrow.Table"):
        return [(field.name, str(field.type)) for field in frame.schema]
    return [(name, str(dtype)) for name, dtype in frame.collect_schema().items()]


def below_each_other(frames: Sequence[Any]) -> Any:
    """The rows of all frames of one library; missing columns are null, and times are UTC."""
    kinds = sorted({f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}" for frame in frames})
    if len(kinds) > 1:
        raise ConfigError(f"frames are of several libraries ({', '.join(kinds)}); convert them to one.")
    try:
        if is_a(frames[0], "pandas.DataFrame"):
            return _pandas(frames)
        return _arrow(frames) if is_a(frames[0], "pyarrow.Table") else _polars(frames)
    except (TypeError, ValueError, NotImplementedError, pl.exceptions.PolarsError) as problem:
        raise NotTidyError(_differing(frames) or str(problem)) from problem


def _differing(frames: Sequence[Any]) -> str:
    """Say what to do about the first column whose types differ between frames; empty if all agree."""
    places: dict[str, dict[str, int]] = {}
    for place, frame in enumerate(frames):
        for name, kind in _types(frame):
            places.setdefault(name, {}).setdefault(kind, place)
    for name, kinds in places.items():
        if len(kinds) > 1 and name not in ID_COLUMNS:
            kinds_and_places = ", ".join(f"{kind} in frames[{place}]" for kind, place in kinds.items())
            return f"The column {name!r} is {kinds_and_places}; cast it to one type first, such as numbers to float64."
    return ""


def _pandas(frames: Sequence[Any]) -> Any:
    import pandas as pd

    parts: list[Any] = [_without_arrow_categories(frame.reset_index(drop=True)) for frame in frames]
    for name in dict.fromkeys(column for frame in frames for column in frame.columns):
        columns = [part[name] for part in parts if name in part]
        types = {column.dtype for column in columns}
        are_categories = len(columns) == len(parts) and all(isinstance(d, pd.CategoricalDtype) for d in types)
        if name in ID_COLUMNS or (are_categories and len(types) > 1):
            # The categories first: rows that become texts on the way would take many times the memory.
            texts = {text for c in columns for text in c.astype("category").cat.categories}
            dtype = pd.CategoricalDtype(sorted(texts, key=str))
            for part in parts:
                part[name] = pd.Series(part.get(name), part.index, dtype)
        elif pd.api.types.is_datetime64_any_dtype(columns[0].dtype):
            for part in parts:
                if name in part:
                    part[name] = pd.to_datetime(part[name], utc=True)
    return pd.concat(parts, ignore_index=True)


def _without_arrow_categories(frame: Any) -> Any:
    """The frame, its dictionaries of pyarrow as categories of pandas: pandas does not cast those that have nulls."""
    names = [name for name, dtype in frame.dtypes.items() if str(dtype).startswith("dictionary<")]
    return frame.assign(**{name: frame[name].array.__arrow_array__().to_pandas() for name in names})


def _polars(frames: Sequence[Any]) -> Any:
    ids = selectors.by_name(*ID_COLUMNS, require_all=False) - selectors.categorical()
    times = [
        selectors.datetime(time_zone=None).dt.replace_time_zone("UTC"),
        selectors.datetime(time_zone="*").dt.convert_time_zone("UTC"),
    ]
    parts = [frame.with_columns(*times, ids.cast(pl.String).cast(pl.Categorical)) for frame in frames]
    return pl.concat(parts, how="diagonal_relaxed")


def _arrow(tables: Sequence[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for table in tables:
        columns = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            columns[name] = column
            if name in ID_COLUMNS:
                columns[name] = column.cast(pa.large_string()).dictionary_encode()
            elif pa.types.is_timestamp(column.type):
                zoned = pc.assume_timezone(column, "UTC") if column.type.tz is None else column
                columns[name] = zoned.cast(pa.timestamp(column.type.unit, "UTC"))
        parts.append(pa.table(columns))
    return pa.concat_tables(parts, promote_options="permissive").unify_dictionaries()
