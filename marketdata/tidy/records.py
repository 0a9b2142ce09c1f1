"""Discovery records as frames: one row per series, event, market or token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.frame import Column, Native, Values
from marketdata.adapters.normalization import check_unicode, is_missing
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.order import NO_TIME
from marketdata.points.records import COLUMNS, DATES, ID_NAMES, NUMBER_LISTS, TEXT_LISTS, TOKEN_LISTS, RecordKind
from marketdata.tidy.frames import FrameKind
from marketdata.times import parse_iso

FrameOf = RecordKind | Literal["tokens"]


def to_frame(kind: FrameOf, records: Iterable[Mapping[str, Any]], frame: FrameKind) -> Native:
    """A frame with one row per record: ids are texts, ``tokens`` become the lists ``token_ids token_labels``.

    Dates are UTC [microseconds] if all of a column can be read, else texts. Unknown fields become columns, as JSON
    where their values have no common type.
    """
    rows = [_row(kind, record) for record in records]
    names = dict.fromkeys([*COLUMNS[kind], *(name for row in rows for name in row)])
    return frames.new(frame).build({name: _column(name, [row.get(name) for row in rows]) for name in names}, len(rows))


def _row(kind: FrameOf, record: Mapping[str, Any]) -> dict[str, object]:
    id_column = "token_id" if kind == "tokens" else ID_NAMES[kind]
    out: dict[str, object] = {}
    for name, value in record.items():
        if name == "id":
            out[id_column] = None if value is None else str(value)
        elif name == "tokens" and kind == "markets" and _are_tokens(value):
            lists = ([str(t["id"]) for t in value or ()], [t.get("label") for t in value or ()])
            out |= dict(zip(TOKEN_LISTS, (None, None) if value is None else lists, strict=True))
        else:
            out.setdefault(name, value)
    return out


def _are_tokens(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(t, Mapping) and t.get("id") is not None for t in value)
    )


def _column(name: str, values: list[Any]) -> Column:
    """A column in the type that its values have in common; else as JSON."""
    if name in TEXT_LISTS and all(v is None or isinstance(v, list) for v in values):
        return Values("texts", [None if v is None else [None if x is None else str(x) for x in v] for v in values])
    if name in NUMBER_LISTS and all(v is None or (isinstance(v, list) and str not in map(type, v)) for v in values):
        return Values("numbers", values)
    types = {type(v) for v in values if v is not None}
    if types <= {str}:
        dates = _dates(values) if name in DATES else None
        return Values("text", values) if dates is None else dates
    if types == {bool}:
        return Values("bool", values)
    # Whole numbers beyond 64 bits, such as an id of 77 digits, become text, which keeps their digits.
    if types <= {int, float} and all(type(v) is not int or abs(v) < 2**63 for v in values):
        return Values("int", values) if types == {int} else np.array(values, float)
    return Values("text", [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values])


def _dates(values: list[str | None]) -> Column | None:
    """Times, if all can be read."""
    try:
        return frames.times(np.array([NO_TIME if v is None else parse_iso(v) for v in values], np.int64))
    except ValueError:
        return None


def columns_of(frame: Native, names: Iterable[str], allowed: str = "a frame of market records") -> dict[str, list[Any]]:
    """The wanted columns that a frame of records has, as lists, null as None; ConfigError or NotTidyError else."""
    try:
        source = in_memory(frame)
    except NotTidyError:
        raise ConfigError(f"A {type(frame).__name__} is refused here; allowed are {allowed}.") from None
    columns = {c: source.raw(c) for c in names if c in source.names}
    lists = {c: raw if isinstance(raw, list) else raw.to_list() for c, raw in columns.items()}
    for name in (*TEXT_LISTS, *NUMBER_LISTS):
        if any(isinstance(v, str) for v in lists.get(name, ())):
            raise NotTidyError(
                f"{name} contains texts, not lists, as columns read from a CSV file do; make lists of them, as by "
                "json.loads or ast.literal_eval."
            )
    for name, values in lists.items():
        check_unicode(name, values)
    return {c: [None if is_missing(v) else _text(c, v) for v in values] for c, values in lists.items()}


def _text(name: str, value: object) -> object:
    """An id that is a number as text."""
    return str(value) if name.endswith("_id") and isinstance(value, int) else value
