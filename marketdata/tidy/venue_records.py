"""Market records as venues give them, in a frame: their tokens, ends and payoffs under the names of records here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.frame import Frame, Native
from marketdata.adapters.normalization import is_missing
from marketdata.wire import kalshi, polymarket

# Names of the id in records of a venue, and what reads such a record.
_READERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "conditionId": polymarket.market, "condition_id": polymarket.market, "ticker": kalshi.market,
}  # fmt: skip
_RESULT = ("resolved_token_id", "resolved_token_label", "payoffs")
_TIMES = ("end_date", "closed_at", "resolved_at")
# Fields of Polymarket that say the result of a market whose tokens are known.
_PRICES = ("outcomePrices", "outcome_prices")
_STATUSES = ("closed", "umaResolutionStatus", "uma_resolution_status", "resolutionStatus", "resolution_status")


def venue_columns(given: Native, data: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of records, completed from the venue's own fields."""
    table = in_memory(given)
    reader = next((read for name, read in _READERS.items() if name in table.names), None)
    if "market_id" not in data and reader is not None:
        return _columns([reader(row) for row in _rows(table)])
    if {"market_id", "token_ids"} <= data.keys() and not {*_PRICES, "payouts", "winner"}.isdisjoint(table.names):
        return _with_results(data, _rows(table))
    return data


def _columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Records as the columns of a frame of records."""
    tokens = [record["tokens"] for record in records]
    return {
        "market_id": [record["id"] for record in records],
        "token_ids": [[one["id"] for one in of_market] for of_market in tokens],
        "token_labels": [[one["label"] for one in of_market] for of_market in tokens],
        **{name: [record.get(name) for record in records] for name in (*_RESULT, *_TIMES)},
    }


def _with_results(data: dict[str, list[Any]], rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The columns, with payoffs and winners from the venue's fields for records without a result of their own."""
    none = [None] * len(rows)
    out = {**data, **{name: [*data.get(name, none)] for name in _RESULT}}
    for i, row in enumerate(rows):
        if all(out[name][i] is None for name in _RESULT):
            out["payoffs"][i] = _payoffs(row)
            won = row.get("winner") if out["payoffs"][i] is None else None
            is_id = isinstance(won, str) and won in [str(token) for token in row.get("token_ids", ())]
            out["resolved_token_id" if is_id else "resolved_token_label"][i] = won if isinstance(won, str) else None
    return out


def _payoffs(row: Mapping[str, Any]) -> list[float] | None:
    """The payoffs of the tokens of a market, by a resolution or by final prices."""
    if "payouts" in row:
        return polymarket.resolution(row)[0]
    if any(name in row for name in _PRICES):
        fields = {name: row[name] for name in (*_PRICES, *_STATUSES) if name in row}
        tokens = {"clobTokenIds": row.get("token_ids", []), "outcomes": row.get("token_labels", [])}
        paid: list[float] | None = polymarket.market({"conditionId": row["market_id"], **tokens, **fields})["payoffs"]
        return paid
    return None


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
