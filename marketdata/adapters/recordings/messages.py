"""Messages of a venue's market channel: ``book`` and both shapes of ``price_change``, bare, in lists or envelopes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from marketdata.adapters.recordings.batch import Batch, Entries
from marketdata.adapters.recordings.files import DamagedFileError, RecordingFile
from marketdata.adapters.recordings.format import Reading
from marketdata.adapters.recordings.tables import TRADE_SIDES, trades_frame
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.columns import Token
from marketdata.points.rebuild import ASKS, BIDS
from marketdata.times import parse_iso, unix_micros

# Names that recorders give to the raw message, and to the time of its arrival.
_INNER = ("raw", "message", "msg", "data", "payload", "event")
_ARRIVAL = (
    "recv_ts", "received_at", "receive_ts", "recv_time", "timestamp_received", "local_timestamp", "collected_at_utc",
    "received_ts", "recv_ts_ns", "recv_timestamp", "local_ts", "ts_recv", "ts",
)  # fmt: skip
_RECONNECTS = {"connect", "connected", "disconnect", "disconnected", "reconnect", "reconnected", "gap"}
_SIDES = {"BUY": BIDS, "SELL": ASKS, "BID": BIDS, "ASK": ASKS}
_DAMAGED = "damaged"
# A part of so many entries takes some tens of megabytes.
_PART_ENTRIES = 1 << 19


class Message(NamedTuple):
    """A message, the time of its arrival, and what its envelope says about its market."""

    fields: Mapping[str, Any]
    arrival: int | None
    envelope: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """What the message says it is, or what its fields show."""
        named = self.fields.get("event_type") or self.fields.get("type")
        if named:
            return str(named)
        if self.fields.keys() >= {"bids", "asks"} or self.fields.keys() >= {"buys", "sells"}:
            return "book"
        return "price_change" if {"price_changes", "changes"} & self.fields.keys() else "unknown"

    @property
    def venue_time(self) -> int | None:
        """The time that the venue gave to it [microseconds]."""
        value = self.fields.get("timestamp")
        return None if value is None else time_of(value)

    def received(self, venue_time: int | None) -> int | None:
        """The time of its arrival, else the venue's [microseconds]."""
        if self.arrival is not None:
            return self.arrival
        names = () if self.fields.keys().isdisjoint(_ARRIVAL) else _ARRIVAL
        return next((time_of(self.fields[n]) for n in names if self.fields.get(n) is not None), venue_time)


class MessageReader:
    """Changes, markets and counts of messages, in their order; messages that cannot be read are counted."""

    def __init__(self, reading: Reading, token_id: str | None = None) -> None:
        self._reading, self._token_id = reading, token_id
        self._entries, self._received = Entries(reading.keep), list[int]()
        self._batch, self._count = Batch(), 0
        # The tick and the last trade of each token, and the fields that the venue hashes, once they are known.
        self._ticks: dict[str, float] = {}
        self._last_trades: dict[str, float] = {}
        self._hashed: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, value: Any) -> None:
        """Add a message, a list of messages, or an envelope around one; None counts as damaged."""
        for message in messages_in(value):
            self._batch.rows += 1
            self._count += 1
            try:
                self._add(message)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
                if isinstance(problem, ConfigError):
                    raise
                self._batch.left_out[_DAMAGED] += 1

    def collected(self) -> Batch:
        """Return the rows read so far, and forget them."""
        batch, self._batch = self._batch, Batch()
        batch.changes, batch.received = self._entries.collected(), np.array(self._received, np.int64)
        self._received = []
        return batch

    def _add(self, message: Message) -> None:
        kind, venue_time = message.kind, message.venue_time
        seen = message.received(venue_time)
        if kind in _RECONNECTS:
            if seen is None:
                raise ValueError("a message without a time")
            self._entries.add_gap(seen, seen)
            self._batch.left_out[kind] += 1
            return
        if seen is not None:
            self._received.append(seen)
        if kind not in ("book", "price_change"):
            self._note(kind, message.fields)
            self._batch.left_out[kind] += 1
            return
        ts = self._time(message, venue_time, seen)
        if ts is None or seen is None:
            raise ValueError("a message without a time")
        if kind == "book":
            self._book(message, ts, seen)
        else:
            self._change(message, ts, seen)

    def _time(self, message: Message, venue_time: int | None, seen: int | None) -> int | None:
        """The time by the clock; ConfigError if the first message lacks a field that is the clock."""
        clock = self._reading.clock
        if clock in ("timestamp", "received"):
            return venue_time if clock == "timestamp" else seen
        if clock not in message.fields and not self._entries:
            problem = f"has no time for clock={clock!r}; its fields are {', '.join(sorted(message.fields))}."
            raise ConfigError(problem, argument="clock", value=clock)
        return time_of(message.fields[clock])

    def _book(self, message: Message, ts: int, seen: int) -> None:
        fields = message.fields
        token = self._token(fields, message)
        bids, asks = (_levels(fields[new if new in fields else old]) for new, old in _SIDE_NAMES)
        name = str(token.token_id)
        if fields.get("tick_size"):
            self._ticks[name] = float(fields["tick_size"])
        if fields.get("last_trade_price"):
            self._last_trades[name] = float(fields["last_trade_price"])
        for price, _ in (*bids, *asks):
            self._check_tick(name, price)
        if fields.get("hash"):
            self._check_hash(fields)
        self._entries.add_snapshot(token, ts, seen, self._count, bids, asks, values=self._values(name, fields))

    def _change(self, message: Message, ts: int, seen: int) -> None:
        fields = message.fields
        changes = fields.get("price_changes", fields.get("changes"))
        read = []
        for change in [fields] if changes is None else changes:
            stated = _best(change.get("best_bid"), 0.0), _best(change.get("best_ask"), 1.0)
            level = _SIDES[change["side"].upper()], float(change["price"]), float(change["size"])
            read.append((self._token(change, message), level, stated, change))
        # Nothing of a message is taken before all of it was read.
        for token, level, stated, change in read:
            name = str(token.token_id)
            self._check_tick(name, level[1])
            self._entries.add_change(token, ts, seen, self._count, level, stated, self._values(name, change))

    def _values(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the snapshot after a message of the token."""
        if not self._reading.keep:
            return {}
        state = {"tick_size": self._ticks.get(name), "last_trade_price": self._last_trades.get(name)}
        return {field: state.get(field, fields.get(field)) for field in self._reading.keep}

    def _token(self, fields: Mapping[str, Any], message: Message) -> Token:
        parts = (fields, message.fields, message.envelope)
        name: Any = next((n for part in parts if (n := part.get("asset_id") or part.get("token_id"))), self._token_id)
        if name is None:
            raise ConfigError("A message does not name the token of its book; pass token_id=.")
        market = message.fields.get("market") or message.envelope.get("condition_id") or ""
        return Token(market if isinstance(market, str) else "", str(name))

    def _note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Note ticks, trades and records of markets of which other messages tell."""
        if kind == "tick_size_change":
            self._ticks[str(fields["asset_id"])] = float(fields["new_tick_size"])
        elif kind == "last_trade_price" and "last_trade_price" in self._reading.keep:
            self._last_trades[str(fields["asset_id"])] = float(fields["price"])
        elif kind == "new_market":
            self._batch.markets.append(_market(fields))

    def _check_tick(self, name: str, price: float) -> None:
        tick = self._ticks.get(name)
        if tick and abs(price / tick - round(price / tick)) > 1e-6:
            self._batch.diagnostics["price off the tick"] += 1

    def _check_hash(self, fields: Mapping[str, Any]) -> None:
        """Compare the hash of a book with that of its content, once it is known which fields the venue hashes."""
        default = ("market", "asset_id", "timestamp", "hash", "bids", "asks")
        for names in [self._hashed] if self._hashed else [default, tuple(n for n in fields if n != "event_type")]:
            content = {name: "" if name == "hash" else fields.get(name) for name in names}
            text = json.dumps(content, separators=(",", ":"))
            if hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() == fields["hash"]:
                self._hashed = names
                return
        if self._hashed:
            self._batch.diagnostics["hash of another book"] += 1


_SIDE_NAMES = (("bids", "buys"), ("asks", "sells"))


def read_messages(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """The messages of a file in parts."""
    reader = MessageReader(reading, file.token_id)
    try:
        for value in file.messages():
            reader.add(value)
            if len(reader) >= _PART_ENTRIES:
                yield reader.collected()
    except DamagedFileError:
        yield reader.collected()
        raise
    yield reader.collected()


def read_trades(file: RecordingFile, _: Reading) -> Iterator[Batch]:
    """The trade prints among the messages of a file, at once."""
    trades, damaged, count = [], 0, 0
    try:
        for message in (message for value in file.messages() for message in messages_in(value)):
            count += 1
            if message.kind in ("last_trade_price", _DAMAGED):
                try:
                    trades.append(_trade(message.fields))
                except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
                    damaged += 1
    except DamagedFileError as problem:
        warn(problem.problem, RecordingWarning)
    left_out = Counter({_DAMAGED: damaged, "no trades": count - damaged - len(trades)})
    yield Batch(frame=trades_frame(trades), rows=count, left_out=+left_out)


def _trade(fields: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: float(fields[name]) for name in ("price", "size")}
    side = TRADE_SIDES[str(fields["side"]).lower()]
    market, token = str(fields.get("market") or ""), str(fields["asset_id"])
    return {"ts": time_of(fields["timestamp"]), "market_id": market, "token_id": token, "side": side, **numbers}


def messages_in(value: Any, arrival: int | None = None, envelope: Mapping[str, Any] | None = None) -> Iterator[Message]:
    """The messages in a message, a list or an envelope; a damaged one where there is none."""
    envelope = envelope or {}
    if isinstance(value, list):
        for entry in value:
            yield from messages_in(entry, arrival, envelope)
    elif isinstance(value, str | bytes):
        try:
            inner = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError):
            inner = None
        yield from messages_in(inner if isinstance(inner, dict | list) else None, arrival, envelope)
    elif not isinstance(value, Mapping):
        yield Message({"event_type": _DAMAGED}, arrival, envelope)
    elif value.get("event_type") or {"bids", "asks"} <= value.keys() or (inner := _inner(value)) is None:
        yield Message(value, arrival, envelope)
    else:
        parts = (value.get(part) for part in ("market", "collection"))
        about = {k: v for part in parts if isinstance(part, Mapping) for k, v in part.items()}
        said = next((part[k] for part in (value, about) for k in _ARRIVAL if part.get(k) is not None), None)
        try:
            arrival = time_of(said) if said is not None else arrival
        except (TypeError, ValueError, OverflowError):
            inner = None
        yield from messages_in(inner, arrival, {**envelope, **about})


def _inner(envelope: Mapping[str, Any]) -> Any:
    """The raw message in an envelope, None if it is no envelope."""
    inner = next((envelope[n] for n in _INNER if isinstance(envelope.get(n), str | bytes | list | Mapping)), None)
    return None if isinstance(inner, str) and inner.lstrip()[:1] not in ("{", "[") else inner


def time_of(value: Any) -> int:
    """Microseconds of a Unix time in any unit, or of an ISO 8601 text."""
    if isinstance(value, str) and not value.isdigit():
        return unix_micros(float(value)) if value.replace(".", "", 1).isdigit() else parse_iso(value)
    return unix_micros(value)


def _levels(levels: Iterable[Any]) -> list[tuple[float, float]]:
    """Levels as numbers, whether objects or pairs."""
    return [
        (float(level["price"]), float(level["size"]))
        if isinstance(level, Mapping)
        else (float(level[0]), float(level[1]))
        for level in levels
    ]


def _best(stated: Any, empty: float) -> float:
    """A stated best price, NaN without one; a side without levels is stated as 0 or, of asks, as 1."""
    if stated is None or stated == "":
        return float("nan")
    return float(stated) or empty


def _market(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market from the message that announces it."""

    def texts(*names: str) -> list[str]:
        value: Any = next((fields[name] for name in names if fields.get(name)), [])
        return [str(entry) for entry in (msgspec.json.decode(value) if isinstance(value, str) else value)]

    record = {
        "market_id": str(fields.get("market") or fields.get("condition_id") or fields["id"]),
        "slug": fields.get("slug"),
        "question": fields.get("question"),
        "token_ids": texts("clob_token_ids", "assets_ids", "token_ids"),
        "token_labels": texts("outcomes", "token_labels"),
    }
    return {name: value for name, value in record.items() if value}
