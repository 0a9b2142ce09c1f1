"""Frames of several markets as one, with ids that stay categorical."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import narwhals.stable.v2 as nw
from narwhals.stable.v2.dependencies import is_pandas_dataframe, is_pyarrow_table

from marketdata.adapters.dispatch import read
from marketdata.adapters.normalization import check_ids
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.schema import ID_COLUMNS, check_names, kind_of

F = TypeVar("F")


def concat(frames: Iterable[F]) -> F:
    """Concatenate tidy frames, for example of several markets, and keep their ids categorical.

    ``pandas.concat`` turns categoricals of different categories into texts, which take many times the memory. Returns
    the rows of all ``frames`` (pandas, polars or Arrow, all of one library and one kind of rows) in their order, with a
    new index in pandas. Columns that a frame lacks are null, and times of several zones become UTC; nothing is sorted
    or deduplicated. ConfigError if there is no frame or libraries differ, NotTidyError if kinds of rows do.

    Examples
    --------
    >>> both = md.concat(
    ...     [md.testing.prices(markets=1), md.testing.prices(markets=2)]
    ... )
    >>> both["market_id"].cat.categories.tolist()
    ['rain', 'snow']
    """
    some: list[Any] = [read(frame) for frame in ([frames] if hasattr(frames, "columns") else frames)]
    if not some:
        raise ConfigError("frames is empty; pass a list of at least one frame.")
    opened = [_opened(frame, i) for i, frame in enumerate(some)]
    _check_rows([data.collect_schema().names() for data in opened])
    kinds = {(data.implementation, type(data).__name__) for data in opened}
    if len(kinds) > 1:
        names = sorted({f"{type(frame).__module__.partition('.')[0]}.{type(frame).__name__}" for frame in some})
        raise ConfigError(f"frames are of several libraries ({', '.join(names)}); convert them to one.")
    ((implementation, _),) = kinds
    some = _of_one_zone(opened)
    if implementation.is_pandas():
        return _pandas(some)  # type: ignore[no-any-return]
    if implementation.is_polars():
        return _polars(some)  # type: ignore[no-any-return]
    if implementation.is_pyarrow():
        return _arrow(some)  # type: ignore[no-any-return]
    raise ConfigError(f"a frame of {implementation.name.lower()} is not supported; use its own union of rows.")


def _opened(frame: Any, place: int) -> Any:
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


def _check_rows(names: list[list[str]]) -> None:
    """Refuse different kinds of rows: further columns of a kind may differ, the columns of a measure may not."""
    kinds = [_rows_kind(columns) for columns in names]
    for place, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise NotTidyError(
                f"frames[0] has rows of {kinds[0]}, frames[{place}] of {kind}; frames of one kind are concatenated."
            )


def _of_one_zone(frames: list[Any]) -> list[Any]:
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


def _rows_kind(columns: list[str]) -> str:
    if "ts" not in columns:
        return "records"
    try:
        return kind_of(columns)
    except NotTidyError:
        return f"the columns {sorted(columns)}"


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
