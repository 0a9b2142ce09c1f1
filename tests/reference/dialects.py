"""How else a stub could write the same answers: what a client must not depend on, each of which can be on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from hypothesis import strategies as st
from reference.faults import Act, Ask

_CURSORS = ("cursor", "next_cursor", "after_cursor")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_OPTIONAL = {
    "active", "category", "feeSchedule", "feesEnabled", "hash", "is_block_trade", "market_type", "open_interest",
    "open_interest_fp", "open_time", "outcome", "proxy_wallet", "question", "startDate", "taker_side", "tick_size",
    "title", "transaction_hash", "volume", "volume_fp",
}  # fmt: skip
_ROWS = ("candlesticks", "history", "markets", "events", "trades", "data", "orderbooks")


@dataclass(frozen=True)
class Dialect:
    """Ways to write an answer that mean the same."""

    reversed_keys: bool = False
    further_fields: bool = False
    reversed_rows: bool = False
    repeated_rows: bool = False  # the last row of a list once more
    numbers_as_text: bool = False
    flags_as_text: bool = False
    texts_as_numbers: bool = False  # of prices, sizes and volumes
    null_cursor: bool = False  # at the end, in place of '' or of none
    empty_pages: bool = False  # each cursor leads to a page without rows first
    wider_windows: bool = False  # points beyond the window that was asked for
    cents_beside_dollars: bool = False
    more_of_a_candle: bool = False
    null_for_nothing: bool = False  # in place of an empty list or object
    times_without_zone: bool = False
    times_with_zeros: bool = False  # of their fraction
    prices_with_zeros: bool = False  # behind their digits
    fewer_fields: bool = False  # without those that nothing needs


DIALECTS = st.builds(Dialect, **{field.name: st.booleans() for field in fields(Dialect)})


def spoken(dialect: Dialect, answer: Callable[[Ask], Act]) -> Callable[[Ask], Act]:
    """The answers of a stub in a dialect."""
    if dialect == Dialect():
        return answer

    def answered(ask: Ask) -> Act:
        ask = _wider(ask) if dialect.wider_windows else ask
        name, cursor = next(((name, ask.params[name]) for name in _CURSORS if ask.params.get(name)), ("", ""))
        if dialect.empty_pages and cursor and not cursor.endswith("~"):
            act = answer(_with(ask, **{name: cursor}))
            top = json.loads(act.body)
            return replace(act, body=json.dumps(_emptied(top, cursor + "~")).encode())
        act = answer(_with(ask, **{name: cursor.removesuffix("~")}) if cursor else ask)
        if act.status != 200:
            return act
        top = _ended(json.loads(act.body)) if dialect.null_cursor else json.loads(act.body)
        return replace(act, body=json.dumps(_rewritten(dialect, top, "")).encode())

    return answered


def _with(ask: Ask, **params: str) -> Ask:
    parts = urlsplit(ask.target)
    pairs = [(name, params.get(name, value)) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
    return replace(ask, target=f"{parts.path}?{urlencode(pairs)}")


def _wider(ask: Ask) -> Ask:
    """A request for three periods more on both sides, where that stays below the limits of the venue."""
    given = ask.params
    step = int(given.get("bucket_seconds", 60 * int(given.get("period_interval", 1))))
    for first, last in (("start_ts", "end_ts"), ("startTs", "endTs"), ("start", "end")):
        if first in given and last in given and int(given[last]) - int(given[first]) < 50 * step:
            return _with(ask, **{first: str(int(given[first]) - 3 * step), last: str(int(given[last]) + 3 * step)})
    return ask


def _emptied(top: Any, cursor: str) -> Any:
    """A page without rows, after which others follow."""
    out = {name: [] if name in _ROWS else value for name, value in top.items()}
    if "pagination" in out:
        return out | {"pagination": {**out["pagination"], "has_more": True, "next_cursor": cursor}}
    return out | {"cursor" if "cursor" in out else "next_cursor": cursor}


def _ended(top: Any) -> Any:
    """The end of pages as null."""
    if isinstance(top, dict) and any(isinstance(top.get(name), list) for name in _ROWS):
        named = {"cursor": top["cursor"] or None} if "cursor" in top else {}
        return {"next_cursor": None, **top, **named} if not named else {**top, **named}
    return top


def _rewritten(dialect: Dialect, value: Any, name: str) -> Any:
    if isinstance(value, list):
        rows = [_rewritten(dialect, one, name) for one in value]
        if name in _ROWS and rows and isinstance(rows[0], dict):
            rows += rows[-1:] if dialect.repeated_rows and name == "candlesticks" else []
            rows = rows[::-1] if dialect.reversed_rows else rows
        return None if dialect.null_for_nothing and not rows and name in _ROWS else rows
    if isinstance(value, dict):
        return _of_object(dialect, value, name)
    if dialect.flags_as_text and isinstance(value, bool):
        return str(value).lower()
    is_count = isinstance(value, int | float) and not isinstance(value, bool) and name not in ("limit", "totalResults")
    if dialect.numbers_as_text and is_count:
        return str(value)
    if isinstance(value, str) and _TIME.fullmatch(value):
        value = value.replace("Z", ".000Z") if dialect.times_with_zeros and "." not in value else value
        return value.removesuffix("Z") if dialect.times_without_zone else value
    is_price = name.endswith(("_dollars", "_fp")) or name in ("price", "p", "volume", "size")
    if dialect.texts_as_numbers and isinstance(value, str) and is_price and _NUMBER.fullmatch(value):
        return float(value)
    has_zeros = dialect.prices_with_zeros and isinstance(value, str) and is_price and "." in value
    return f"{value}00" if has_zeros else value


def _of_object(dialect: Dialect, value: dict[str, Any], name: str) -> Any:
    kept = {inner: one for inner, one in value.items() if not (dialect.fewer_fields and inner in _OPTIONAL)}
    out = {inner: _rewritten(dialect, one, inner) for inner, one in kept.items()}
    if dialect.null_for_nothing and name == "price" and set(value) <= {"previous", "previous_dollars"}:
        return None
    if dialect.more_of_a_candle and name in ("yes_bid", "yes_ask"):
        suffix = "_dollars" if "close_dollars" in value else ""
        out |= {f"{one}{suffix}": "0.5000" for one in ("open", "high", "low")}
    if dialect.cents_beside_dollars:
        cents = {inner: one for inner, one in value.items() if inner.endswith("_dollars") and isinstance(one, str)}
        out |= {inner.removesuffix("_dollars"): round(float(one) * 100) for inner, one in cents.items()}
    if dialect.further_fields:
        out = {"a_new_field": {"of": [1, None, "x"]}, **out, "another": None}
    return dict(reversed(out.items())) if dialect.reversed_keys else out
