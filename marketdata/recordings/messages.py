"""Messages of a venue's market channel: ``book`` and both shapes of ``price_change``, bare, in lists or envelopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.records import TOKEN_LISTS
from marketdata.points.schema import SNAPSHOT_FIELDS
from marketdata.recordings.changes import CHANGE, GAP, SNAPSHOT
from marketdata.recordings.columns import NAMES, first
from marketdata.recordings.files import ReadOptions, RecordingFile
from marketdata.recordings.format import Batch, Format, no_time
from marketdata.recordings.tables import Sides, changes_of, levels_of
from marketdata.recordings.trades import TRADE_SIDES, add_trades
from marketdata.times import parse_iso, unix_micros

_RAW_MESSAGE = ("raw", "message", "msg", "data", "payload", "event")
_ARRIVAL = (
    *NAMES["received_at"], "recv_time", "received_ts", "recv_ts_ns", "recv_timestamp", "local_ts", "ts_recv", "ts",
)  # fmt: skip
_RECONNECTS = {"connect", "connected", "disconnect", "disconnected", "reconnect", "reconnected", "gap"}
_DAMAGED = "damaged"
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_SIDES = (("bids", "buys"), ("asks", "sells"))
_TRADE: dict[str, Any] = {
    "ts": pl.Int64, **dict.fromkeys(("market_id", "token_id", "side"), pl.String),
    **dict.fromkeys(("price", "size"), pl.Float64),
}  # fmt: skip
_ROW = {
    **_TRADE, **dict.fromkeys(("__seen", "__row"), pl.Int64), "event": pl.Int8,
    **dict.fromkeys(("best_bid", "best_ask"), pl.Float64),
}  # fmt: skip
# Rows are Python objects, because a part has tens of megabytes at most.
_PART_ROWS = 1 << 16


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

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._count = 0
        self._tokens: set[tuple[str, str]] = set()
        # The tick and the last trade of each token, once they are known.
        self._state: dict[str, dict[str, float]] = {"tick_size": {}, "last_trade_price": {}}
        self._begin_part()

    def _begin_part(self) -> None:
        self._batch, self._received = Batch(keep=self._options.keep), list[int]()
        # A row per book and per changed level.
        self._rows, self._books = list[dict[str, Any]](), list[Sides]()

    def __len__(self) -> int:
        return len(self._rows)

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
        batch, keep = self._batch, self._options.keep
        types = {name: pl.String if SNAPSHOT_FIELDS[name] == "text" else pl.Float64 for name in keep}
        frame = pl.DataFrame(self._rows, {**_ROW, **types}, strict=False)
        batch.changes = changes_of(frame, keep, frame["event"].to_numpy(), self._books)
        batch.received = np.array(self._received, np.int64)
        self._begin_part()
        return batch

    def _add(self, message: Message) -> None:
        kind, fields = message.kind, message.fields
        venue_time = None if fields.get("timestamp") is None else time_of(fields["timestamp"])
        arrivals = (time_of(fields[name]) for name in _ARRIVAL if fields.get(name) is not None)
        seen = message.arrival if message.arrival is not None else next(arrivals, venue_time)
        if seen is None and kind in ("book", "price_change", *_RECONNECTS):
            raise ValueError("a message without a time")
        if seen is not None and kind not in _RECONNECTS:
            self._received.append(seen)
        if kind == "book":
            bids, asks = (levels_of(fields[new if new in fields else old]) for new, old in _SIDES)
            self._add_rows(message, [fields], seen, event=SNAPSHOT)
            self._books.append((bids, asks))
        elif kind == "price_change":
            changes = fields.get("price_changes", fields.get("changes"))
            self._add_rows(message, [fields] if changes is None else changes, seen, event=CHANGE)
        else:
            self._note(kind, fields, seen)
            self._batch.left_out[kind] += 1

    def _add_rows(self, message: Message, parts: Any, seen: Any, *, event: int) -> None:
        """Add a row for each part of a message, none if one of them cannot be read."""
        fields, clock = message.fields, self._options.clock
        if clock not in ("timestamp", "received", *fields) and not self._rows:
            raise no_time(clock, "fields", sorted(fields))
        times = {"ts": seen if clock == "received" else time_of(fields[clock]), "__seen": seen, "__row": self._count}
        rows = []
        for part in parts:
            row = {"event": event, **times, **self._ids_and_fields(part, message)}
            if event == CHANGE:
                row["side"] = TRADE_SIDES[part["side"].lower()]
                row["price"], row["size"] = float(part["price"]), float(part["size"])
                for name in ("best_bid", "best_ask"):
                    row[name] = float(part[name]) if part.get(name) not in (None, "") else None
            rows.append(row)
        self._tokens.update((row["market_id"], row["token_id"]) for row in rows)
        self._rows += rows

    def _ids_and_fields(self, part: Mapping[str, Any], message: Message) -> dict[str, Any]:
        """The ids of the token of a part, and the fields of its snapshot that are kept."""
        named = (part, message.fields, message.envelope)
        token: Any = next((n for p in named if (n := p.get("asset_id") or p.get("token_id"))), self._options.token_id)
        if token is None:
            raise ConfigError("A message does not name the token of its book; pass token_id=.")
        market = message.fields.get("market") or message.envelope.get("condition_id")
        for name, values in self._state.items():
            if part.get(name):
                values[str(token)] = float(part[name])
        kept = {n: self._state[n].get(str(token)) if n in self._state else part.get(n) for n in self._options.keep}
        return {"market_id": market if isinstance(market, str) else "", "token_id": str(token), **kept}

    def _note(self, kind: str, fields: Mapping[str, Any], seen: int | None) -> None:
        """Remember ticks and trades, and collect records of markets and gaps."""
        if kind in _RECONNECTS:
            gap = {"event": GAP, "ts": seen, "__seen": seen, "__row": -1}
            self._rows += [{**gap, "market_id": market, "token_id": token} for market, token in self._tokens]
        elif kind == "tick_size_change":
            self._state["tick_size"][str(fields["asset_id"])] = float(fields["new_tick_size"])
        elif kind == "last_trade_price" and "last_trade_price" in self._options.keep:
            self._state["last_trade_price"][str(fields["asset_id"])] = float(fields["price"])
        elif kind == "new_market":
            self._batch.markets.append(_market(fields))


def read_messages(_: Format, file: RecordingFile) -> Iterator[Batch]:
    """The messages of a file in parts."""
    reader = MessageReader(file.options)
    for value in file.messages():
        reader.add(value)
        if len(reader) >= _PART_ROWS:
            yield reader.collected()
    yield reader.collected()


def read_trades(_: Format, file: RecordingFile) -> Iterator[Batch]:
    """The trade prints among the messages of a file, at once."""
    trades, batch = [], Batch()
    for message in (message for value in file.messages() for message in messages_in(value)):
        batch.rows += 1
        if message.kind not in ("last_trade_price", _DAMAGED):
            batch.left_out["no trades"] += 1
            continue
        try:
            fields = message.fields
            trades.append({
                "ts": time_of(fields["timestamp"]), "market_id": str(fields.get("market") or ""),
                "token_id": str(fields["asset_id"]), "side": TRADE_SIDES[str(fields["side"]).lower()],
                "price": float(fields["price"]), "size": float(fields["size"]),
            })  # fmt: skip
        except _UNREADABLE:
            batch.left_out[_DAMAGED] += 1
    add_trades(pl.DataFrame(trades, _TRADE), batch)
    yield batch


def messages_in(value: Any, arrival: int | None = None, envelope: Mapping[str, Any] | None = None) -> Iterator[Message]:
    """The messages in a message, a list or an envelope; a damaged one where there is none."""
    envelope = envelope or {}
    if isinstance(value, list):
        for entry in value:
            yield from messages_in(entry, arrival, envelope)
    elif isinstance(value, str | bytes):
        try:
            inner = msgspec.json.decode(value)
        except ValueError:
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


def _market(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market from the message that announces it."""
    columns = {name: first(fields, NAMES[name]) for name in ("slug", "question", *TOKEN_LISTS)}
    record = {name: fields[column] for name, column in columns.items() if column and fields[column]}
    for name in TOKEN_LISTS:
        if isinstance(record.get(name), str):
            record[name] = msgspec.json.decode(record[name])
    return {**record, "market_id": str(fields.get("market") or fields.get("condition_id") or fields["id"])}
