"""Native frames below each other, ids dictionary encoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals.stable.v2 as nw
from narwhals.stable.v2.dependencies import is_pandas_dataframe, is_pyarrow_table

from marketdata.adapters.normalization import check_ids
from marketdata.errors import ConfigError
from marketdata.points.schema import ID_COLUMNS, check_names


def opened(frame: Any, place: int) -> Any:
    """A native frame as one of narwhals; ConfigError for what is none, NotTidyError for names that are twice."""
    if is_pandas_dataframe(frame) or is_pyarrow_table(frame):
        check_names(frame.columns if is_pandas_dataframe(frame) else frame.column_names)
    try:
        data = nw.from_native(frame)
    except TypeError:
        raise ConfigError(
            f"frames[{place}] is a {type(frame).__name__}; allowed are pandas, polars and Arrow frames."
        ) from None
    check_ids(data.collect_schema())
    return data


def below_each_other(frames: Sequence[Any]) -> Any:
    """The rows of all frames of one library, columns that one lacks null, times of several zones as UTC."""
    kinds = {(data.implementation, type(data).__name__) for data in frames}
    natives = _of_one_zone(frames)
    if len(kinds) > 1:
        names = sorted({f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}" for frame in natives})
        raise ConfigError(f"frames are of several libraries ({', '.join(names)}); convert them to one.")
    ((library, _),) = kinds
    if library not in _LIBRARIES:
        raise ConfigError(f"a frame of {library.name.lower()} is not supported; use its own union of rows.")
    return _LIBRARIES[library](natives)


def _of_one_zone(frames: Sequence[Any]) -> list[Any]:
    """The native frames, times of a column that are of several zones as UTC; without a zone they are UTC."""
    schemas = [data.collect_schema() for data in frames]
    zones: dict[str, set[str | None]] = {}
    for schema in schemas:
        for name, dtype in schema.items():
            if isinstance(dtype, nw.Datetime):
                zones.setdefault(name, set()).add(dtype.time_zone)
    mixed = {name for name, found in zones.items() if len(found) > 1}
    out = []
    for data, schema in zip(frames, schemas, strict=True):
        times = {c: t.time_zone for c, t in schema.items() if c in mixed and isinstance(t, nw.Datetime)}
        bare = [nw.col(c).dt.replace_time_zone("UTC") for c, zone in times.items() if zone is None]
        other = [nw.col(c).dt.convert_time_zone("UTC") for c, zone in times.items() if zone not in (None, "UTC")]
        out.append((data.with_columns(*bare, *other) if bare or other else data).to_native())
    return out


def _pandas(frames: list[Any]) -> Any:
    import pandas as pd

    parts: list[Any] = [frame.copy(deep=False) for frame in frames]
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

    def prepared(frame: Any) -> Any:
        schema = frame.collect_schema()
        return frame.with_columns(
            pl.col(name).cast(pl.String).cast(pl.Categorical)
            for name in ID_COLUMNS
            if name in schema and schema[name] != pl.Categorical
        )

    return pl.concat([prepared(frame) for frame in frames], how="diagonal_relaxed")


def _arrow(tables: list[Any]) -> Any:
    import pyarrow as pa

    def prepared(table: Any) -> Any:
        for place, field in enumerate(table.schema):
            if field.name in ID_COLUMNS:
                texts = table.column(place).cast(pa.large_string())
                table = table.set_column(place, field.name, texts.dictionary_encode())
        return table

    return pa.concat_tables([prepared(table) for table in tables], promote_options="permissive").unify_dictionaries()


_LIBRARIES = {
    nw.Implementation.PANDAS: _pandas,
    nw.Implementation.POLARS: _polars,
    nw.Implementation.PYARROW: _arrow,
}
