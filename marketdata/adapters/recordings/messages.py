"""Messages of a venue's market channel: ``book`` and both shapes of ``price_change``, bare, in lists or envelopes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from marketdata.adapters.recordings.columns import NAMES
from marketdata.adapters.recordings.files import DamagedFileError, RecordingFile
from marketdata.adapters.recordings.format import Batch, ReadOptions
from marketdata.adapters.recordings.tables import levels_of, snapshot_values
from marketdata.adapters.recordings.trades import TRADE_SIDES, trades_frame
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.columns import Token
from marketdata.points.rebuild import ASKS, BIDS, CHANGE, GAP, SNAPSHOT, Changes
from marketdata.times import parse_iso, unix_micros

_RAW_MESSAGE = ("raw", "message", "msg", "data", "payload", "event")
_ARRIVAL = (
    *NAMES["received_at"], "recv_time", "received_ts", "recv_ts_ns", "recv_timestamp", "local_ts", "ts_recv", "ts",
)  # fmt: skip
_RECONNECTS = {"connect", "connected", "disconnect", "disconnected", "reconnect", "reconnected", "gap"}
_DAMAGED = "damaged"
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
# One structured type, because that is three times as fast as an array per column.
_ENTRY = np.dtype(
    {
        "names": ["token", "ts", "seen", "event", "side", "price", "size", "stated", "row"],
        "formats": ["i4", "i8", "i8", "i1", "i1", "f8", "f8", "2f8", "i8"],
    }
)
# Entries are Python objects, because a part has tens of megabytes at most.
_PART_ENTRIES = 1 << 17
_NOTHING = (float("nan"), float("nan"))


class Message(NamedTuple):
    """A message, the time of its arrival, and what its envelope says about its market."""

    fields: Mapping[str, Any]
    arrival: int | None
    envelope: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind that the message names, or that its fields show."""
        named = self.fields.get("event_type") or self.fields.get("type")
        if named and isinstance(named, str):
            return named
        if self.fields.keys() >= {"bids", "asks"} or self.fields.keys() >= {"buys", "sells"}:
            return "book"
        return "price_change" if {"price_changes", "changes"} & self.fields.keys() else "unknown"


class MessageReader:
    """Changes, markets and counts of messages, in their order; messages that cannot be read are counted."""

    def __init__(self, options: ReadOptions, token_id: str | None = None) -> None:
        self._options, self._token_id = options, token_id
        self._count = 0
        self._code_of: dict[Token, int] = {}
        # The tick and the last trade of each token, once they are known.
        self._state: dict[str, dict[str, float]] = {"tick_size": {}, "last_trade_price": {}}
        self._forget()

    def _forget(self) -> None:
        self._batch, self._received = Batch(), list[int]()
        self._entries: list[tuple[int, int, int, int, int, float, float, tuple[float, float], int]] = []
        self._values: dict[str, list[Any]] = {name: [] for name in self._options.keep}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, value: Any) -> None:
        """Add a message, a list of messages, or an envelope around one; None counts as damaged."""
        for message in messages_in(value):
            self._batch.rows += 1
            self._count += 1
            try:
                self._add(message)
            except ConfigError:
                raise
            except _UNREADABLE:
                self._batch.left_out[_DAMAGED] += 1

    def collected(self) -> Batch:
        """Return the rows read so far, and forget them."""
        batch, entries = self._batch, np.array(self._entries, _ENTRY)
        arrays: dict[str, Any] = {name: np.ascontiguousarray(entries[name]) for name in _ENTRY.names or ()}
        values = {name: snapshot_values(name, column) for name, column in self._values.items()}
        batch.changes = Changes(tuple(self._code_of), values=values, **arrays)
        batch.received = np.array(self._received, np.int64)
        self._forget()
        return batch

    def _add(self, message: Message) -> None:
        kind, fields = message.kind, message.fields
        venue_time = None if fields.get("timestamp") is None else time_of(fields["timestamp"])
        seen = message.arrival
        if seen is None:
            seen = next((time_of(fields[name]) for name in _ARRIVAL if fields.get(name) is not None), venue_time)
        if seen is not None and kind not in _RECONNECTS:
            self._received.append(seen)
        if kind not in ("book", "price_change", *_RECONNECTS):
            self._note(kind, fields)
            self._batch.left_out[kind] += 1
        elif seen is None:
            raise ValueError("a message without a time")
        elif kind == "book":
            self._add_book(message, self._time(fields, venue_time, seen), seen)
        elif kind == "price_change":
            self._add_changes(message, self._time(fields, venue_time, seen), seen)
        else:
            for code in self._code_of.values():
                self._append((code, seen, seen, GAP, BIDS, *_NOTHING, _NOTHING, -1), {})
            self._batch.left_out[kind] += 1

    def _time(self, fields: Mapping[str, Any], venue_time: int | None, seen: int) -> int:
        """The time by the clock; ConfigError if the first message lacks a field that is the clock."""
        clock = self._options.clock
        if clock not in ("timestamp", "received", *fields) and not self._entries:
            problem = f"has no time for clock={clock!r}; its fields are {', '.join(sorted(fields))}."
            raise ConfigError(problem, argument="clock", value=clock)
        if clock == "received":
            return seen
        time = venue_time if clock == "timestamp" else time_of(fields[clock])
        if time is None:
            raise ValueError("a message without a time")
        return time

    def _append(self, entry: Any, values: Mapping[str, Any]) -> None:
        self._entries.append(entry)
        for name, column in self._values.items():
            column.append(values.get(name))

    def _add_book(self, message: Message, ts: int, seen: int) -> None:
        fields = message.fields
        token = self._token(fields, message)
        sides = [levels_of(fields[new if new in fields else old]) for new, old in (("bids", "buys"), ("asks", "sells"))]
        for name, values in self._state.items():
            if fields.get(name):
                values[str(token.token_id)] = float(fields[name])
        levels = [(side, *level) for side, pairs in enumerate(sides) for level in pairs] or [(BIDS, *_NOTHING)]
        code, event, kept = self._code(token), SNAPSHOT, self._kept(token, fields)
        for level in levels:
            self._append((code, ts, seen, event, *level, _NOTHING, self._count), kept)
            event = CHANGE

    def _add_changes(self, message: Message, ts: int, seen: int) -> None:
        fields = message.fields
        changes = fields.get("price_changes", fields.get("changes"))
        entries = []
        for change in [fields] if changes is None else changes:
            token = self._token(change, message)
            side = ASKS if TRADE_SIDES[change["side"].lower()] == "sell" else BIDS
            level = side, float(change["price"]), float(change["size"])
            best = _best(change.get("best_bid"), 0.0), _best(change.get("best_ask"), 1.0)
            entries.append((token, level, best, self._kept(token, change)))
        # No entry is added before all of the message was read.
        for token, level, best, kept in entries:
            self._append((self._code(token), ts, seen, CHANGE, *level, best, self._count), kept)

    def _code(self, token: Token) -> int:
        return self._code_of.setdefault(token, len(self._code_of))

    def _kept(self, token: Token, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of the snapshot after a message of the token."""
        state = {name: values.get(str(token.token_id)) for name, values in self._state.items()}
        return {name: state.get(name, fields.get(name)) for name in self._options.keep}

    def _token(self, fields: Mapping[str, Any], message: Message) -> Token:
        parts = (fields, message.fields, message.envelope)
        name: Any = next((n for part in parts if (n := part.get("asset_id") or part.get("token_id"))), self._token_id)
        if name is None:
            raise ConfigError("A message does not name the token of its book; pass token_id=.")
        market = message.fields.get("market") or message.envelope.get("condition_id") or ""
        return Token(market if isinstance(market, str) else "", str(name))

    def _note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Remember ticks and trades, and collect records of markets."""
        if kind == "tick_size_change":
            self._state["tick_size"][str(fields["asset_id"])] = float(fields["new_tick_size"])
        elif kind == "last_trade_price" and "last_trade_price" in self._options.keep:
            self._state["last_trade_price"][str(fields["asset_id"])] = float(fields["price"])
        elif kind == "new_market":
            self._batch.markets.append(_market(fields))


def read_messages(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """The messages of a file in parts."""
    reader = MessageReader(options, file.token_id)
    try:
        for value in file.messages():
            reader.add(value)
            if len(reader) >= _PART_ENTRIES:
                yield reader.collected()
    except DamagedFileError:
        yield reader.collected()
        raise
    yield reader.collected()


def read_trades(file: RecordingFile, _: ReadOptions) -> Iterator[Batch]:
    """The trade prints among the messages of a file, at once."""
    trades, left_out, count = [], Counter[str](), 0
    try:
        for message in (message for value in file.messages() for message in messages_in(value)):
            count += 1
            if message.kind not in ("last_trade_price", _DAMAGED):
                left_out["no trades"] += 1
                continue
            try:
                trades.append(_trade(message.fields))
            except _UNREADABLE:
                left_out[_DAMAGED] += 1
    except DamagedFileError as problem:
        warn(problem.problem, RecordingWarning)
    yield Batch(frame=trades_frame(trades), rows=count, left_out=left_out)


def _trade(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ts": time_of(fields["timestamp"]),
        "market_id": str(fields.get("market") or ""),
        "token_id": str(fields["asset_id"]),
        "side": TRADE_SIDES[str(fields["side"]).lower()],
        "price": float(fields["price"]),
        "size": float(fields["size"]),
    }


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
    inner = next((envelope[n] for n in _RAW_MESSAGE if isinstance(envelope.get(n), str | bytes | list | Mapping)), None)
    return None if isinstance(inner, str) and inner.lstrip()[:1] not in ("{", "[") else inner


def time_of(value: Any) -> int:
    """Microseconds of a Unix time in any unit, or of an ISO 8601 text."""
    if isinstance(value, str) and not value.isdigit():
        return unix_micros(float(value)) if value.replace(".", "", 1).isdigit() else parse_iso(value)
    return unix_micros(value)


def _best(stated: Any, empty: float) -> float:
    """A stated best price, NaN without one; a side without levels is stated as 0 or, of asks, as 1."""
    if stated is None or stated == "":
        return float("nan")
    return float(stated) or empty


def _market(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market from the message that announces it."""
    record = {
        "market_id": str(fields.get("market") or fields.get("condition_id") or fields["id"]),
        "slug": fields.get("slug"),
        "question": fields.get("question"),
    }
    for name, others in (("token_ids", ("clob_token_ids", "assets_ids")), ("token_labels", ("outcomes",))):
        value: Any = next((fields[n] for n in (*others, name) if fields.get(n)), [])
        record[name] = [str(entry) for entry in (msgspec.json.decode(value) if isinstance(value, str) else value)]
    return {name: value for name, value in record.items() if value}
