"""Market records in any form, in a frame: their tokens, ends and payoffs under the names of records here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.frame import Frame, Native
from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, ContractError, NotTidyError
from marketdata.points.records import WINNER_FIELDS
from marketdata.wire import records

_RESULT = ("resolved_token_id", "resolved_token_label", "payoffs")
_TIMES = ("ends_at", "end_date", "closed_at", "resolved_at")
# The event of a market, by the column that says it.
EVENTS = ("event_slug", "event_id")
# Columns that a frame of records has in none of our forms.
_OTHERS = {
    "conditionId", "condition_id", "ticker", "market_ticker", "tokens", "outcomePrices", "outcome_prices", "payouts",
    *WINNER_FIELDS[1:],
}  # fmt: skip


def venue_columns(given: Native, data: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of records, as the one reader of records reads them."""
    table = in_memory(given)
    is_record = "market_id" not in data or "token_ids" in data or "tokens" in table.names or "winner" in table.names
    is_of_outcomes = "token_id" in data and ("payoff" in data or "winner" not in table.names)
    if _OTHERS.isdisjoint(table.names) or not is_record or is_of_outcomes:
        return data
    read = [records.market(row) for row in records.by_market(_rows(table))]
    tokens = [
        row.get("tokens")
        or [
            {"id": i, "label": n}
            for i, n in zip(row.get("token_ids") or (), row.get("token_labels") or (), strict=True)
        ]
        for row in read
    ]
    return {
        "market_id": [str(row.get("market_id", row.get("id"))) for row in read],
        "token_ids": [[str(one["id"]) for one in of_market] for of_market in tokens],
        "token_labels": [[one.get("label") for one in of_market] for of_market in tokens],
        **{name: [row.get(name) for row in read] for name in (*_RESULT, *_TIMES, *EVENTS)},
    }


def read_records(given: Any) -> list[dict[str, Any]]:
    """Market records in any form, each with an id and a list of tokens; NotTidyError for one that is none."""
    found = []
    for row in records.by_market(rows_of(given)):
        try:
            record = records.market(row)
        except ContractError as problem:
            raise NotTidyError(f"A record is not read: {problem}") from None
        ids, labels = (list(record.get(name) or ()) for name in ("token_ids", "token_labels"))
        tokens = [{"id": str(i), "label": label} for i, label in zip(ids, labels, strict=False)]
        found.append({"id": record.get("market_id"), "tokens": tokens, **record})
    return found


def rows_of(given: Any, allowed: str = "frames of market records and lists of dicts") -> list[dict[str, Any]]:
    """The rows of a frame of any kind, or of a list of dicts, without what is missing; else a ConfigError."""
    if isinstance(given, list | tuple) and all(isinstance(row, Mapping) for row in given):
        plain = ({str(name): _plain(value) for name, value in row.items()} for row in given)
        return [{name: value for name, value in row.items() if value is not None} for row in plain]
    try:
        return _rows(in_memory(given))
    except NotTidyError:
        raise ConfigError(f"A {type(given).__name__} is refused here; allowed are {allowed}.") from None


def _rows(table: Frame) -> list[dict[str, Any]]:
    """The rows of a frame without what is missing, numpy arrays as lists."""
    columns = {name: table.raw(name) for name in table.names}
    lists = {name: raw if isinstance(raw, list) else raw.to_list() for name, raw in columns.items()}
    values = ([_plain(value) for value in values] for values in lists.values())
    return [
        {name: value for name, value in zip(lists, row, strict=True) if value is not None}
        for row in zip(*values, strict=True)
    ]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if is_missing(value) else value
