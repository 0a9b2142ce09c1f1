"""Discovery records as frames: one row per series, event, market or token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.records import COLUMNS, DATES, ID_NAMES, NUMBER_LISTS, TEXT_LISTS, TOKEN_LISTS, RecordKind
from marketdata.tidy.frames import FrameKind
from marketdata.times import parse_iso, to_datetime

FrameOf = RecordKind | Literal["tokens"]


def to_frame(kind: FrameOf, records: Iterable[Mapping[str, Any]], frame: FrameKind) -> Any:
    """A frame with one row per record: ids are texts, ``tokens`` become the lists ``token_ids token_labels``.

    Dates are UTC [microseconds] if all of a column can be read, else texts. Unknown fields become columns, as JSON
    where their values have no common type.
    """
    rows = [_row(kind, record) for record in records]
    names = list(dict.fromkeys([*COLUMNS[kind], *(name for row in rows for name in row)]))
    columns = {name: [row.get(name) for row in rows] for name in names}
    if frame == "pandas":
        import pandas as pd

        return pd.DataFrame({name: _pandas(name, values) for name, values in columns.items()})
    import polars as pl

    return pl.DataFrame([_polars(name, values) for name, values in columns.items()])


def _row(kind: FrameOf, record: Mapping[str, Any]) -> dict[str, Any]:
    own = "token_id" if kind == "tokens" else ID_NAMES[kind]
    out: dict[str, Any] = {}
    for name, value in record.items():
        if name == "id":
            out[own] = None if value is None else str(value)
        elif name == "tokens" and kind == "markets" and _are_tokens(value):
            lists = ([str(t["id"]) for t in value or ()], [t.get("label") for t in value or ()])
            out |= dict(zip(TOKEN_LISTS, (None, None) if value is None else lists, strict=True))
        else:
            out.setdefault(name, value)
    return out


def _are_tokens(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(t, Mapping) and t.get("id") is not None for t in value)
    )


def _dates(values: Sequence[Any]) -> list[Any] | None:
    try:
        return [None if v is None else to_datetime(parse_iso(v)) for v in values]
    except (ValueError, TypeError):
        return None


def _kind(name: str, values: Sequence[Any]) -> str:
    if name in (*TEXT_LISTS, *NUMBER_LISTS) and all(v is None or isinstance(v, list) for v in values):
        texts = name in NUMBER_LISTS and any(isinstance(one, str) for v in values for one in v or ())
        return "json" if texts else "list"
    found = {type(v) for v in values if v is not None}
    if found <= {str}:
        return "date" if name in DATES and _dates(values) is not None else "text"
    if found == {bool}:
        return "bool"
    # What 64 bits cannot hold, such as an id of 77 digits, keeps its digits as text.
    if found <= {int, float} and all(type(v) is not int or abs(v) < 2**63 for v in values):
        return "int" if found == {int} else "float"
    return "json"


def _json(values: Sequence[Any]) -> list[str | None]:
    return [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]


def _pandas(name: str, values: Sequence[Any]) -> Any:
    import pandas as pd

    kind = _kind(name, values)
    if kind == "date":
        return pd.Series(_dates(values), dtype="datetime64[us, UTC]")
    if kind == "list":
        return pd.Series(values, dtype="object")
    dtype = {"text": "str", "json": "str", "bool": "boolean", "int": "Int64", "float": "float64"}[kind]
    return pd.Series(_json(values) if kind == "json" else values, dtype=dtype)


def _polars(name: str, values: Sequence[Any]) -> Any:
    import polars as pl

    kind = _kind(name, values)
    if kind == "date":
        return pl.Series(name, _dates(values), dtype=pl.Datetime("us", "UTC"))
    if kind == "list":
        if name in NUMBER_LISTS:
            return pl.Series(name, values, dtype=pl.List(pl.Float64()))
        texts = [None if v is None else [None if x is None else str(x) for x in v] for v in values]
        return pl.Series(name, texts, dtype=pl.List(pl.String()))
    dtypes = {"text": pl.String(), "json": pl.String(), "bool": pl.Boolean(), "int": pl.Int64(), "float": pl.Float64()}
    return pl.Series(name, _json(values) if kind == "json" else values, dtype=dtypes[kind])


def columns_of(frame: Any, names: Iterable[str], allowed: str = "a frame of market records") -> dict[str, list[Any]]:
    """The wanted columns that a frame of records has, as lists, null as None; ConfigError or NotTidyError else."""
    try:
        source = in_memory(frame)
    except NotTidyError:
        raise ConfigError(f"A {type(frame).__name__} is refused here; allowed are {allowed}.") from None
    found = {c: source.raw(c) for c in names if c in source.names}
    lists = {c: raw if isinstance(raw, list) else raw.to_list() for c, raw in found.items()}
    for name in (*TEXT_LISTS, *NUMBER_LISTS):
        if any(isinstance(v, str) for v in lists.get(name, ())):
            raise NotTidyError(
                f"{name} contains texts, not lists, as columns read from a CSV file do; make lists of them, as by "
                "json.loads or ast.literal_eval."
            )
    return {c: [None if is_missing(v) else _text(c, v) for v in values] for c, values in lists.items()}


def _text(name: str, value: Any) -> Any:
    """An id that is a number as text."""
    return str(value) if name.endswith("_id") and isinstance(value, int) else value
