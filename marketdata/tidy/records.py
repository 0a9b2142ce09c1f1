"""Discovery records as frames, one row per series, event, market or token, also without what leaks the outcome."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, overload

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, in_memory, names_of, read, selected
from marketdata.adapters.frame import Column, Native, Texts
from marketdata.adapters.normalization import check_unicode, is_missing
from marketdata.adapters.polars import typed
from marketdata.decimals import to_number
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import records as fields
from marketdata.points.arguments import flag, texts
from marketdata.points.order import NO_TIME
from marketdata.tidy.frames import FrameKind, frame_kind
from marketdata.times import parse_iso
from marketdata.wire.records import as_list

FrameOf = fields.RecordKind | Literal["tokens"]


def to_frame(kind: FrameOf, records: Iterable[Mapping[str, Any]], frame: FrameKind) -> Native:
    """A frame with one row per record, ``tokens`` as the lists ``token_ids token_labels``.

    Ids are dictionary encoded, as in tidy frames, so that a join with these works in every library.

    Dates are UTC [microseconds] if all of a column can be read, else texts. Unknown fields become columns, as JSON
    where their values have no common type.
    """
    rows = [*records]
    own: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        own |= columns_of_field(kind, name, rows, own)
    return of_columns(kind, own, len(rows), frame)


def columns_of_field(
    kind: FrameOf, name: str, rows: Sequence[Mapping[str, Any]], others: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """The columns that a field adds to ``others``, as the values of all rows."""
    if name == "id":
        id_column = "token_id" if kind == "tokens" else fields.ID_NAMES[kind]
        ids = (row["id"] if "id" in row else row.get(id_column) for row in rows)
        return {id_column: [None if one is None else str(one) for one in ids]}
    if name == "tokens" and kind == "markets":
        return _token_lists(rows)
    return {} if name in others else {name: [row.get(name) for row in rows]}


def of_columns(kind: FrameOf, own: Mapping[str, Column | list[Any]], height: int, frame: FrameKind) -> Native:
    """A frame of records with these columns; lists are values as records have them."""
    nothing = [None] * height
    listed = {name: own.get(name, nothing) for name in dict.fromkeys([*fields.COLUMNS[kind], *own])}
    made = {name: _column(name, values) if isinstance(values, list) else values for name, values in listed.items()}
    return frames.new(frame_kind(frame)).build(made, height)


def _token_lists(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The ids and labels of tokens, as lists; what else is called tokens stays as it is."""
    nothing: list[Any] = [None] * len(rows)
    ids, labels, others = ([*nothing] for _ in range(3))
    for at, row in enumerate(rows):
        tokens = row.get("tokens")
        if "tokens" not in row or not _are_tokens(tokens):
            others[at], ids[at], labels[at] = tokens, *(row.get(name) for name in fields.TOKEN_LISTS)
        elif tokens is not None:
            ids[at], labels[at] = [str(one["id"]) for one in tokens], [one.get("label") for one in tokens]
    kept = {"tokens": others} if any(one is not None for one in others) else {}
    return dict(zip(fields.TOKEN_LISTS, (ids, labels), strict=True)) | kept


def _are_tokens(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(t, Mapping) and t.get("id") is not None for t in value)
    )


def _column(name: str, values: list[Any]) -> Column:
    """A column in the type that its values have in common; else as JSON."""
    are_lists = all(v is None or isinstance(v, list) for v in values)
    if are_lists and name in fields.TEXT_LISTS:
        lists = [None if v is None else [None if x is None else str(x) for x in v] for v in values]
        return typed("ids" if name.endswith("_ids") else "texts", lists)
    if are_lists and name in fields.NUMBER_LISTS and not any(str in map(type, v or ()) for v in values):
        return typed("numbers", values)
    types = {type(v) for v in values if v is not None}
    if name in fields.NUMBERS and types <= {int, float} and all(type(v) is not int or abs(v) < 2**63 for v in values):
        return np.array(values, float)
    if types <= {str}:
        if name.endswith("_id"):
            return Texts.of(values)
        if name in fields.DATES:
            with suppress(ValueError):  # texts, if one of them cannot be read
                return frames.times(np.array([NO_TIME if v is None else parse_iso(v) for v in values], np.int64))
        return typed("text", values)
    if types == {bool}:
        return typed("bool", values)
    # Whole numbers beyond 64 bits, such as an id of 77 digits, become text, which keeps their digits.
    if types <= {int, float} and all(type(v) is not int or abs(v) < 2**63 for v in values):
        return typed("int", values) if types == {int} else np.array(values, float)
    json_texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
    return typed("text", json_texts)


def columns_of(frame: Native, names: Iterable[str], allowed: str = "a frame of market records") -> dict[str, list[Any]]:
    """The wanted columns that a frame of records has, as lists, null as None; ConfigError or NotTidyError else."""
    try:
        source = in_memory(frame)
    except NotTidyError:
        raise ConfigError(f"A {type(frame).__name__} is refused here; allowed are {allowed}.") from None
    columns = {c: source.raw(c) for c in names if c in source.names}
    lists = {c: raw if isinstance(raw, list) else raw.to_list() for c, raw in columns.items()}
    for name in (*fields.TEXT_LISTS, *fields.NUMBER_LISTS):
        if any(isinstance(v, str) for v in lists.get(name, ())):  # as columns of a CSV file are
            lists[name] = [_list_of(name, value) for value in lists[name]]
    for name, values in lists.items():
        check_unicode(name, values)
        lists[name] = [None if is_missing(value) else value for value in values]
        if name.endswith("_id"):
            lists[name] = [str(value) if isinstance(value, int) else value for value in lists[name]]
    return lists


def _list_of(name: str, value: Any) -> list[Any] | None:
    """The list that a text has; NotTidyError for another text in a column of numbers."""
    found = as_list(value) if isinstance(value, str) else value
    if found is None or name not in fields.NUMBER_LISTS:
        return found
    try:
        return [to_number(one) for one in found]
    except ValueError as problem:
        raise NotTidyError(f"{name} contains {value!r}, not a list of numbers: {problem}.") from None


@overload
def without_answers(markets: F, *, keep: str | Iterable[str] = (), dry: Literal[False] = False) -> F: ...


@overload
def without_answers(markets: Any, *, keep: str | Iterable[str] = (), dry: Literal[True]) -> list[str]: ...


def without_answers(markets: F, *, keep: str | Iterable[str] = (), dry: bool = False) -> F | list[str]:
    """Market records without label-leaking columns.

    Returns the frame with the rows as they were.

    A record has the newest value of each field. A feature made of a field that changed after the market opened looks
    ahead. So only these columns stay:

    - ids, slugs, tokens, question, description, tags, category
    - the scheduled dates ``start_date`` and ``end_date``, and ``created_at``
    - whether the markets of an event exclude each other
    - ``available_at``, and the columns of ``keep``

    Parameters
    ----------
    markets
        Market records of any kind of frame. NotTidyError for a frame with ``ts``: its rows have a time of their own,
        see `available_at`.
    keep : str or list of str
        Further columns that were known when the market opened. ConfigError for a column that the frame lacks.
    dry : bool
        Return the names of the columns that would be removed, in the order of the frame.

    Examples
    --------
    >>> markets = md.testing.markets("polars")
    >>> md.without_answers(markets).columns[:4]
    ['market_id', 'slug', 'question', 'start_date']
    >>> md.without_answers(markets, dry=True)
    ['status', 'closed_at', 'resolved_token_id', 'resolved_token_label']
    """
    flag("dry", dry)
    frame: Any = read(markets)
    names = names_of(frame)
    if "ts" in names:
        raise NotTidyError("A frame with ts is history, whose rows were known by md.available_at; pass market records.")
    kept = texts("keep", keep, "the name of a column")
    if missing := [name for name in kept if name not in names]:
        raise ConfigError(f"keep names {', '.join(map(repr, missing))}, which the records lack; they have {names}.")
    removed = fields.label_leaking(names, kept)
    if dry:
        return removed
    return selected(frame, [name for name in names if name not in removed])  # type: ignore[no-any-return]
