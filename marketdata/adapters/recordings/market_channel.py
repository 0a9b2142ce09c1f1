"""Messages of a venue's market channel: ``book`` and both shapes of ``price_change``, bare, in lists or envelopes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from marketdata.adapters.recordings.batch import Batch, Rows
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.errors import ConfigError
from marketdata.points.columns import Token
from marketdata.points.rebuild import ASKS, BIDS
from marketdata.times import parse_iso, unix_micros

# Names that recorders give to the raw message.
_INNER = ("raw", "message", "msg", "data", "payload", "event")
# Names that recorders give to the time of arrival.
RECEIVED = (
    "recv_ts", "received_at", "receive_ts", "recv_time", "timestamp_received", "local_timestamp", "collected_at_utc",
    "received_ts", "recv_ts_ns", "recv_timestamp", "local_ts", "ts_recv", "ts",
)  # fmt: skip
_ARRIVAL = frozenset(RECEIVED)
# Events after which books are unknown.
_RECONNECTS = {"connect", "connected", "disconnect", "disconnected", "reconnect", "reconnected", "gap"}
# Sides as venues write them.
_SIDES = {"BUY": BIDS, "SELL": ASKS, "BID": BIDS, "ASK": ASKS}
# Kinds of messages: those with levels, and what cannot be read.
_BOOK, _CHANGE, _DAMAGED = "book", "price_change", "damaged"
# Fields of a book message in the order in which venues have hashed them.
_HASHED = ("market", "asset_id", "timestamp", "hash", "bids", "asks")
# A price over its tick may miss a whole number by up to this: floats are off by far less, another tick by more.
_TICK_ROUNDING = 1e-6


class MessageReader:
    """Changes, markets and counts of messages, in their order; what cannot be read of them is counted."""

    def __init__(self, clock: str = "timestamp", token_id: str | None = None) -> None:
        self._clock, self._token_id = clock, token_id
        self._rows, self._heard = Rows(), list[int]()
        self._batch = Batch()
        self._ticks: dict[str, float] = {}
        self._hash_form: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def damaged(self) -> None:
        """Count a line that is no JSON."""
        self._batch.messages += 1
        self._batch.left_out[_DAMAGED] += 1

    def add(self, found: Any) -> None:
        """A message, a list of messages, or an envelope around one."""
        for message, seen, outer in _messages(found, None, {}):
            self._batch.messages += 1
            try:
                self._add(message, seen, outer)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
                if isinstance(problem, ConfigError):
                    raise
                self._batch.left_out[_DAMAGED] += 1

    def collected(self) -> Batch:
        """Return the rows read so far, and forget them."""
        batch, self._batch = self._batch, Batch()
        batch.changes, batch.heard = self._rows.collected(), np.array(self._heard, np.int64)
        self._heard = []
        return batch

    def _add(self, message: Mapping[str, Any], seen: int | None, outer: Mapping[str, Any]) -> None:
        kind = str(message.get("event_type") or message.get("type") or _shape(message))
        if kind in _RECONNECTS:
            at = seen if seen is not None else _time(message["timestamp"])
            self._rows.gap(at, at)
            self._batch.left_out[kind] += 1
            return
        venue = _time(message["timestamp"]) if message.get("timestamp") is not None else None
        if seen is None:
            names = () if _ARRIVAL.isdisjoint(message) else RECEIVED
            seen = next((_time(message[name]) for name in names if message.get(name) is not None), venue)
        if seen is not None:
            self._heard.append(seen)
        if kind not in (_BOOK, _CHANGE):
            self._about(kind, message)
            self._batch.left_out[kind] += 1
            return
        own = {"timestamp": venue, "received": seen}
        ts = own[self._clock] if self._clock in own else self._other_time(message)
        if ts is None or seen is None:
            raise ValueError("a message without a time")
        if kind == _BOOK:
            self._book(message, ts, seen, outer)
        else:
            self._change(message, ts, seen)

    def _other_time(self, message: Mapping[str, Any]) -> int:
        """The time by a clock that is a field; ConfigError if the first message that needs one does not have it."""
        if self._clock not in message and not self._rows:
            problem = f"has no time for clock={self._clock!r}; its fields are {sorted(message)}."
            raise ConfigError(problem, argument="clock", value=self._clock)
        return _time(message[self._clock])

    def _book(self, message: Mapping[str, Any], ts: int, seen: int, outer: Mapping[str, Any]) -> None:
        token = self._token(message, message, outer)
        bids, asks = (
            _levels(message[new] if new in message else message[old])
            for new, old in (("bids", "buys"), ("asks", "sells"))
        )
        if message.get("tick_size"):
            self._ticks[str(token.token_id)] = float(message["tick_size"])
        for price, _ in (*bids, *asks):
            self._check_tick(token, price)
        if message.get("hash"):
            self._check_hash(message)
        self._rows.snapshot(token, ts, seen, bids, asks)

    def _change(self, message: Mapping[str, Any], ts: int, seen: int) -> None:
        some = message.get("price_changes", message.get("changes"))
        found = []
        for one in [message] if some is None else some:
            stated = _best(one.get("best_bid"), 0.0), _best(one.get("best_ask"), 1.0)
            token = self._token(one, message, {})
            found.append((token, _SIDES[one["side"].upper()], float(one["price"]), float(one["size"]), stated))
        for token, side, price, size, stated in found:
            if self._ticks:
                self._check_tick(token, price)
            self._rows.change(token, ts, seen, side, price, size, stated)

    def _token(self, one: Mapping[str, Any], message: Mapping[str, Any], outer: Mapping[str, Any]) -> Token:
        parts = (one, message, outer)
        name: Any = next((n for part in parts if (n := part.get("asset_id") or part.get("token_id"))), self._token_id)
        if name is None:
            raise ConfigError("A message does not name the token of its book; pass token_id=.")
        market = message.get("market") or outer.get("condition_id") or ""
        return Token(market if isinstance(market, str) else "", str(name))

    def _about(self, kind: str, message: Mapping[str, Any]) -> None:
        """Ticks and records of markets that other messages tell of."""
        if kind == "tick_size_change":
            self._ticks[str(message["asset_id"])] = float(message["new_tick_size"])
        elif kind == "new_market":
            self._batch.markets.append(_market(message))

    def _check_tick(self, token: Token, price: float) -> None:
        tick = self._ticks.get(str(token.token_id))
        if tick and abs(price / tick - round(price / tick)) > _TICK_ROUNDING:
            self._batch.odd["price off the tick"] += 1

    def _check_hash(self, message: Mapping[str, Any]) -> None:
        """Compare the hash of a book message with that of its content, once it is known how the venue makes it."""
        forms = [self._hash_form] if self._hash_form else [_HASHED, tuple(k for k in message if k != "event_type")]
        for form in forms:
            content = {name: "" if name == "hash" else message.get(name) for name in form}
            text = json.dumps(content, separators=(",", ":"))
            if hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() == message["hash"]:
                self._hash_form = form
                return
        if self._hash_form:
            self._batch.odd["hash of another book"] += 1


def _messages(
    found: Any, seen: int | None, outer: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], int | None, Mapping[str, Any]]]:
    """The messages in a message, a list or an envelope, with the time of arrival and what the envelope says."""
    if isinstance(found, list):
        for one in found:
            yield from _messages(one, seen, outer)
    elif isinstance(found, str | bytes):
        try:
            inner = json.loads(found)
        except ValueError:
            inner = None
        yield from _messages(inner if isinstance(inner, Mapping | list) else None, seen, outer)
    elif isinstance(found, Mapping) and not (found.get("event_type") or {"bids", "asks"} <= found.keys()):
        name = next((name for name in _INNER if isinstance(found.get(name), str | bytes | list | Mapping)), None)
        if name is None or (isinstance(found[name], str) and found[name].lstrip()[:1] not in ("{", "[")):
            yield found, seen, outer
            return
        parts = (found.get(part) for part in ("market", "collection"))
        about = {k: v for part in parts if isinstance(part, Mapping) for k, v in part.items()}
        said = next((part[k] for part in (found, about) for k in RECEIVED if part.get(k) is not None), None)
        yield from _messages(found[name], _time(said) if said is not None else seen, {**outer, **about})
    elif isinstance(found, Mapping):
        yield found, seen, outer
    else:
        yield {"event_type": _DAMAGED}, seen, outer


def _shape(message: Mapping[str, Any]) -> str:
    """The kind of a message that does not say it."""
    if {"bids", "asks"} <= message.keys() or {"buys", "sells"} <= message.keys():
        return _BOOK
    return _CHANGE if {"price_changes", "changes"} & message.keys() else "unknown"


def _levels(levels: Iterable[Any]) -> list[tuple[float, float]]:
    """Levels as numbers, whether objects or pairs."""
    return [
        (float(one["price"]), float(one["size"])) if isinstance(one, Mapping) else (float(one[0]), float(one[1]))
        for one in levels
    ]


def _best(stated: Any, empty: float) -> float:
    """A stated best price, NaN without one; a side without levels is stated as 0 or, of asks, as 1."""
    if stated is None or stated == "":
        return float("nan")
    return float(stated) or empty


def _time(value: Any) -> int:
    """Microseconds of a Unix time in any unit, or of an ISO 8601 text."""
    if isinstance(value, str) and not value.isdigit():
        return unix_micros(float(value)) if value.replace(".", "", 1).isdigit() else parse_iso(value)
    return unix_micros(value)


def _market(message: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market from the message that announces it."""

    def listed(*names: str) -> list[str]:
        found: Any = next((message[name] for name in names if message.get(name)), [])
        return [str(one) for one in (json.loads(found) if isinstance(found, str) else found)]

    record = {
        "market_id": str(message.get("market") or message.get("condition_id") or message["id"]),
        "slug": message.get("slug"),
        "question": message.get("question"),
        "token_ids": listed("clob_token_ids", "assets_ids", "token_ids"),
        "token_labels": listed("outcomes", "token_labels"),
    }
    return {name: value for name, value in record.items() if value}


def is_message(file: RecordingFile) -> bool:
    """Whether the first message of a file is one of a market channel; one that does not say its kind is not."""
    if file.form != "json" or not isinstance(file.first_message, Mapping):
        return False
    for message, _, _ in _messages(file.first_message, None, {}):
        known = message.get("event_type") or {"price_changes", "changes"} & message.keys()
        return bool(known or (message is not file.first_message and _shape(message) == _BOOK))
    return False
