"""Rows of a file as the answers of a venue have them, for the functions of `wire`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import polars as pl

from marketdata.errors import ConfigError, ContractError
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.points import refuse_damage, typed

Found = TypeVar("Found")
Row = dict[str, Any]


def typed_rows(file: RecordingFile) -> tuple[list[Row], int]:
    """The rows as JSON values, with texts of a table in the types that they show, and the number of invalid rows."""
    if file.form == "json":
        values = list(file.rows())
        refuse_damage(file)
        rows = [value for value in values if isinstance(value, dict)]
        return [{**file.said_by_names, **row} for row in rows], len(values) - len(rows)
    parts = list(file.frames())
    refuse_damage(file)
    if not parts:
        return [], file.torn
    frame = pl.concat(parts, how="diagonal_relaxed")
    frame = frame.with_columns(typed(frame[name]) for name in frame.columns if frame[name].dtype == pl.String)
    try:
        values = frame.to_dicts()
    except (ValueError, OverflowError) as problem:  # a time far from the years that Python has
        raise ConfigError(f"{file.name!r} has a time that is none: {problem}.") from problem
    return [{name: _plain(value) for name, value in row.items()} for row in values], file.torn


def _plain(value: Any) -> Any:
    """A value as JSON has it; times are ISO texts."""
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return aware.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value


def converted(rows: Sequence[Row], read: Callable[[Sequence[Row]], Found]) -> tuple[list[Found], int]:
    """The results of ``read`` for the rows, in parts around refused rows, and the number of refused rows."""
    if not rows:
        return [], 0
    try:
        return [read(rows)], 0
    except (ContractError, ValueError, TypeError, KeyError, OverflowError):
        if len(rows) == 1:
            return [], 1
    halves = [converted(half, read) for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :])]
    return [part for parts, _ in halves for part in parts], sum(refused for _, refused in halves)
