"""Frames and records as plain text for a terminal."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import narwhals as nw

_WIDEST = 22


def table(frame: Any, rows: int | None = None, *, columns: Sequence[str] | None = None, widest: int = _WIDEST) -> str:
    """The first rows of a frame of any kind, ids shortened in the middle, null as a dot."""
    data = nw.from_native(frame)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    names = [c for c in (columns or data.columns) if c in data.columns]
    head = data.select(names) if rows is None else data.select(names).head(rows)
    return grid(names, head.rows(), widest=widest)


def grid(names: Sequence[str], rows: Iterable[Sequence[Any]], *, widest: int = _WIDEST) -> str:
    """Rows under their names; numbers to the right."""
    body = [[short(value, widest) for value in row] for row in rows]
    numeric = [bool(body) and all(_is_number(row[i]) for row in body) for i in range(len(names))]
    widths = [max(len(name), *(len(row[i]) for row in body)) if body else len(name) for i, name in enumerate(names)]

    def line(cells: Sequence[str]) -> str:
        at = zip(cells, widths, numeric, strict=True)
        return "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in at).rstrip()

    return "\n".join([line(names), *(line(row) for row in body)])


def short(value: Any, widest: int = _WIDEST) -> str:
    """One value as a cell."""
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) in {"NaT", "<NA>"}:
        return "."
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1000 else f"{value:.6g}"
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    text = " ".join(str(value).split())
    if len(text) <= widest:
        return text
    return f"{text[: widest - 7]}…{text[-6:]}"


def as_json(value: Any) -> str:
    """Records, models and frames as JSON text."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    elif not isinstance(value, Mapping | list | tuple | str | int | float):
        data = nw.from_native(value)
        value = (data.collect() if isinstance(data, nw.LazyFrame) else data).rows(named=True)
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if hasattr(value, "to_list"):
        return value.to_list()
    return str(value)


def _is_number(cell: str) -> bool:
    return cell == "." or cell.replace(",", "").replace(".", "", 1).lstrip("-").replace("e-", "", 1).isdigit()


def fields(record: Any, indent: str = "") -> str:
    """A record or model, one field a line."""
    if hasattr(record, "model_dump"):
        record = record.model_dump()
    lines = []
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}", fields(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_field(name, value)}")
    return "\n".join(lines)


def _field(name: str, value: Any) -> str:
    """A value on a line of its own: whole, Unix seconds as a time."""
    if name.endswith("_at") and isinstance(value, int | float):
        return f"{dt.datetime.fromtimestamp(value, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    return "." if value is None else str(value)
