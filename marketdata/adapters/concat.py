"""Native frames below each other, ids dictionary encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

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
    """The rows of all frames of one library, columns that one lacks null, times of several zones as UTC."""
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
    """What to do about the first column whose types differ between frames; empty if there is none."""
    types: dict[str, dict[str, int]] = {}
    for place, frame in enumerate(frames):
        for name in map(str, frame.columns if is_a(frame, "pandas.DataFrame") else names_of(frame)):
            types.setdefault(name, {}).setdefault(_type_name(frame, name), place)
    for name, places in types.items():
        if len(places) > 1 and name not in ID_COLUMNS:
            found = ", ".join(f"{kind} in frames[{place}]" for kind, place in places.items())
            return f"The column {name!r} is {found}; cast it to one type first, such as numbers to float64."
    return ""


def _mixed(zones: Sequence[dict[str, str | None]]) -> set[str]:
    """The columns of times whose zone differs between frames."""
    names = {name for of_frame in zones for name in of_frame}
    return {name for name in names if len({of_frame[name] for of_frame in zones if name in of_frame}) > 1}


def _pandas(frames: list[Any]) -> Any:
    import pandas as pd

    def zones(frame: Any) -> dict[str, str | None]:
        times = (name for name in frame.columns if pd.api.types.is_datetime64_any_dtype(frame[name].dtype))
        return {name: None if (zone := frame[name].dt.tz) is None else str(zone) for name in times}

    parts: list[Any] = [frame.copy(deep=False) for frame in frames]
    each = [zones(part) for part in parts]
    for name in _mixed(each):
        for part, own in zip(parts, each, strict=True):
            if name in own:
                part[name] = pd.to_datetime(part[name], utc=True)
    for name in dict.fromkeys(column for frame in frames for column in frame.columns):
        have = [part[name] for part in parts if name in part]
        if name not in ID_COLUMNS and not (len(have) == len(parts) and all(hasattr(one, "cat") for one in have)):
            continue
        if len({one.dtype for one in have}) == 1 and len(have) == len(parts) and hasattr(have[0], "cat"):
            continue
        # The categories first: rows that become texts on the way would take many times the memory.
        encoded = [one.astype("category").cat.categories for one in have]
        dtype = pd.CategoricalDtype(sorted({value for categories in encoded for value in categories}, key=str))
        for part in parts:
            rows = part[name].astype("category").cat.set_categories(dtype.categories) if name in part else None
            part[name] = pd.Categorical([None] * len(part), dtype=dtype) if rows is None else rows.cat.as_unordered()
    return pd.concat(parts, ignore_index=True)


def _polars(frames: list[Any]) -> Any:
    import polars as pl

    schemas = [frame.collect_schema() for frame in frames]
    zones = [{c: t.time_zone for c, t in schema.items() if isinstance(t, pl.Datetime)} for schema in schemas]
    mixed = _mixed(zones)

    def prepared(frame: Any, schema: Any, own: dict[str, str | None]) -> Any:
        times = [
            pl.col(c).dt.replace_time_zone("UTC") if own[c] is None else pl.col(c).dt.convert_time_zone("UTC")
            for c in mixed & own.keys()
        ]
        return frame.with_columns(times).with_columns(
            pl.col(name).cast(pl.String).cast(pl.Categorical)
            for name in ID_COLUMNS
            if name in schema and schema[name] != pl.Categorical
        )

    parts = [prepared(*one) for one in zip(frames, schemas, zones, strict=True)]
    return pl.concat(parts, how="diagonal_relaxed")


def _arrow(tables: list[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    zones = [{f.name: f.type.tz for f in table.schema if pa.types.is_timestamp(f.type)} for table in tables]
    mixed = _mixed(zones)

    def prepared(table: Any) -> Any:
        for place, field in enumerate(table.schema):
            if field.name in mixed and pa.types.is_timestamp(field.type):
                times = table.column(place)
                times = pc.assume_timezone(times, "UTC") if field.type.tz is None else times
                table = table.set_column(place, field.name, times.cast(pa.timestamp(field.type.unit, "UTC")))
            if field.name in ID_COLUMNS:
                texts = table.column(place).cast(pa.large_string())
                table = table.set_column(place, field.name, texts.dictionary_encode())
        return table

    return pa.concat_tables([prepared(table) for table in tables], promote_options="permissive").unify_dictionaries()


_LIBRARIES: dict[str, Callable[[list[Any]], Any]] = {
    "pandas.DataFrame": _pandas,
    "polars.DataFrame": _polars,
    "polars.LazyFrame": _polars,
    "pyarrow.Table": _arrow,
}
