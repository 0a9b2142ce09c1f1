"""Messages of a venue's market channel: ``book`` and both shapes of ``price_change``, bare, in lists or envelopes."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.records import TOKEN_LISTS
from marketdata.points.schema import SNAPSHOT_FIELDS
from marketdata.recordings import kalshi_messages
from marketdata.recordings.changes import CHANGE, GAP, SNAPSHOT
from marketdata.recordings.files import ReadOptions, json_value
from marketdata.recordings.format import Batch, Table, no_time
from marketdata.recordings.roles import ROLES, first
from marketdata.recordings.tables import Sides, changes_of, levels_of
from marketdata.recordings.trades import TRADE_SIDES, add_trades
from marketdata.times import parse_iso, to_micros, unix_micros

_RAW_MESSAGE = ("raw", "raw_text", "raw_json", "message", "msg", "data", "payload", "json", "event", "body")
_ARRIVAL = (
    *ROLES["received_at"].names,
    "ts",
)
# Names of the venue's time in an envelope.
_VENUE_TIME = tuple(name for name in ROLES["ts"].names if name != "ts")
_FIRST = 20
_ARRIVALS = frozenset(_ARRIVAL)
_RECONNECTS = {"connect", "connected", "disconnect", "disconnected", "reconnect", "reconnected", "gap"}
_DAMAGED = "damaged"
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_SIDES = (("bids", "buys"), ("asks", "sells"))
_LEVEL: dict[str, Any] = {
    "ts": pl.Int64, **dict.fromkeys(("market_id", "token_id", "token_label", "side"), pl.String),
    **dict.fromkeys(("price", "size"), pl.Float64),
}  # fmt: skip
_TRADE = {**_LEVEL, "transaction_hash": pl.String, "trade_id": pl.String}
_ROW = {
    **_LEVEL, **dict.fromkeys(("__seen", "__row"), pl.Int64), "event": pl.Int8,
    **dict.fromkeys(("best_bid", "best_ask"), pl.Float64),
}  # fmt: skip
# Rows are Python objects, because a part has tens of megabytes at most.
_PART_LEVELS = 1 << 18


class Message(NamedTuple):
    """A message, the time of its arrival, and what its envelope says about its market."""

    fields: Mapping[str, Any]
    arrival: int | None
    envelope: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind that the message names, or that its fields show."""
        named = self.fields.get("event_type") or self.fields.get("update_type") or self.fields.get("type")
        if not named and self.envelope.get("type") in kalshi_messages.MESSAGE_TYPES:
            named = self.envelope["type"]
        if named and isinstance(named, str):
            return "book" if named == "book_snapshot" else named
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
        self._kalshi = kalshi_messages.Feed()
        self._begin_part()

    def _begin_part(self) -> None:
        self._batch, self._received = Batch(keep=self._options.keep), list[int]()
        # A row per book and per changed level.
        self._rows, self._books, self._levels = list[dict[str, Any]](), list[Sides](), 0

    def __len__(self) -> int:
        """The number of levels read: a book has many."""
        return len(self._rows) + self._levels

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
        batch.changes = changes_of(frame, batch, frame["event"].to_numpy(), self._books)
        batch.received = np.array(self._received, np.int64)
        self._begin_part()
        return batch

    def _add(self, message: Message) -> None:
        kind, fields = message.kind, message.fields
        if kind in kalshi_messages.MESSAGE_TYPES:
            self._add_kalshi(message)
            return
        venue_time = self._venue_time(message)
        seen = message.arrival
        if seen is None:
            # Most messages name no time of arrival: one look is faster than one for each name.
            names = () if _ARRIVALS.isdisjoint(fields) else _ARRIVAL
            seen = next((time_of(fields[name]) for name in names if fields.get(name) is not None), venue_time)
        if seen is None and kind in ("book", "price_change", *_RECONNECTS):
            raise ValueError("a message without a time")
        if seen is not None and kind not in _RECONNECTS:
            self._received.append(seen)
        if kind == "book":
            bids, asks = (levels_of(fields[new if new in fields else old]) for new, old in _SIDES)
            self._add_rows(message, [fields], (venue_time, seen), event=SNAPSHOT)
            self._books.append((bids, asks))
            self._levels += len(bids) + len(asks)
        elif kind == "price_change":
            changes = fields.get("price_changes", fields.get("changes"))
            self._add_rows(message, [fields] if changes is None else changes, (venue_time, seen), event=CHANGE)
        else:
            self._note(kind, fields, seen)
            self._batch.left_out[kind] += 1

    def end(self) -> None:
        """Count what waited for a later message."""
        self._batch.left_out["without a time"] += self._kalshi.waiting
        self._batch.left_out = +self._batch.left_out

    def _add_kalshi(self, message: Message) -> None:
        """Add the rows of a message of Kalshi, which has a book or a signed change of both outcomes."""
        rows, books, left_out = self._kalshi.read(
            message.kind, message.fields, message.envelope, message.arrival, self._count
        )
        self._batch.left_out.update(left_out)
        self._batch.markets += self._kalshi.new_markets()
        self._rows += rows
        self._books += books
        self._levels += sum(len(bids) + len(asks) for bids, asks in books)
        self._received += [row["__seen"] for row in rows]

    @staticmethod
    def _venue_time(message: Message) -> int | None:
        """The venue's time of a message, which its envelope may say."""
        if message.fields.get("timestamp") is not None:
            return time_of(message.fields["timestamp"])
        for part in (message.fields, message.envelope):
            said = next((part[n] for n in _VENUE_TIME if part.get(n) is not None), None)
            if said is not None:
                return time_of(said)
        return None

    def _add_rows(self, message: Message, parts: Any, moments: tuple[int | None, Any], *, event: int) -> None:
        """Add a row for each part of a message with its ``moments``: the venue's time, and that of arrival.

        No row is added if one of them cannot be read.
        """
        fields, clock, (venue_time, seen) = message.fields, self._options.clock, moments
        if clock not in ("timestamp", "received", *fields) and not self._rows:
            raise no_time(clock, "fields", sorted(fields))
        at = {"received": seen, "timestamp": venue_time or seen}.get(clock)
        times = {"ts": time_of(fields[clock]) if at is None else at, "__seen": seen, "__row": self._count}
        rows = []
        for part in parts:
            row = {"event": event, **times, **self._ids_and_fields(part, message)}
            if event == CHANGE:
                # One vendor has the outcome as the side, and prefixes.
                prefix = "change_" if "change_side" in part else ""
                row["side"] = TRADE_SIDES[part[f"{prefix}side"].lower()]
                row["price"], row["size"] = float(part[f"{prefix}price"]), float(part[f"{prefix}size"])
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
        market = next((m for p in named for n in ("market", "market_id", "condition_id") if (m := p.get(n))), None)
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


def read_messages(table: Table) -> Iterator[Batch]:
    """The messages of a file in parts."""
    reader = MessageReader(table.file.options)
    for value in _values(table):
        reader.add(value)
        if len(reader) >= _PART_LEVELS:
            yield reader.collected()
    reader.end()
    yield reader.collected()


def read_trades(table: Table) -> Iterator[Batch]:
    """The trade prints among the messages of a file, at once."""
    trades, batch = [], Batch()
    for message in (message for value in _values(table) for message in messages_in(value)):
        batch.rows += 1
        if message.kind not in ("last_trade_price", "trade", _DAMAGED):
            batch.left_out["no trades"] += 1
            continue
        try:
            trades.append(_print_of(message))
        except _UNREADABLE:
            batch.left_out[_DAMAGED] += 1
    add_trades(pl.DataFrame(trades, _TRADE), batch)
    yield batch


def _print_of(message: Message) -> dict[str, Any]:
    """The columns of a print."""
    fields = message.fields
    if message.kind == "trade":
        return kalshi_messages.trade_of(fields)
    return {
        "ts": time_of(fields["timestamp"]), "market_id": str(fields.get("market") or ""),
        "token_id": str(fields["asset_id"]), "side": TRADE_SIDES[str(fields["side"]).lower()],
        "price": float(fields["price"]), "size": float(fields["size"]),
        "transaction_hash": fields.get("transaction_hash"), "trade_id": None, "token_label": None,
    }  # fmt: skip


def _values(table: Table) -> Iterator[Any]:
    """The messages of lines, or those in a column of a table, whose other columns are their envelope."""
    if table.file.form == "json":
        yield from table.file.rows()
        return
    for frame in table.file.frames():
        yield from frame.to_dicts()
    yield from [None] * table.file.torn


def first_message(table: Table) -> list[tuple[Message, bool]]:
    """The first messages of a file, and whether each was in an envelope."""
    if table.file.form == "json":
        values = list(itertools.islice(table.file.rows(), _FIRST))
    elif "message" in table.columns:
        values = table.file.sample.head(_FIRST).to_dicts()
    else:
        return []
    found = ((value, message) for value in values for message in messages_in(value))
    return [(message, message.fields is not value) for value, message in found]


def messages_in(value: Any, arrival: int | None = None, envelope: Mapping[str, Any] | None = None) -> Iterator[Message]:
    """The messages in a message, a list or an envelope; a damaged one where there is none."""
    envelope = envelope or {}
    if isinstance(value, list):
        for entry in value:
            yield from messages_in(entry, arrival, envelope)
    elif isinstance(value, str | bytes):
        inner = json_value(value.encode() if isinstance(value, str) else value)
        yield from messages_in(inner if isinstance(inner, dict | list) else None, arrival, envelope)
    elif not isinstance(value, Mapping):
        yield Message({"event_type": _DAMAGED}, arrival, envelope)
    elif value.get("event_type") or {"bids", "asks"} <= value.keys() or (inner := _inner(value)) is None:
        yield Message(value, arrival, envelope)
    else:
        parts = (value.get(part) for part in ("market", "collection"))
        about = {k: v for k, v in value.items() if not isinstance(v, Mapping | list) and k not in _RAW_MESSAGE}
        about |= {k: v for part in parts if isinstance(part, Mapping) for k, v in part.items()}
        said = next((about[k] for k in _ARRIVAL if about.get(k) is not None), None)
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
    """Microseconds of a Unix time in any unit, of an ISO 8601 text, or of a datetime."""
    if isinstance(value, dt.datetime):
        return to_micros(value, "timestamp")
    if isinstance(value, str) and not value.isdigit():
        return unix_micros(float(value)) if value.replace(".", "", 1).isdigit() else parse_iso(value)
    return unix_micros(value)


def _market(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market from the message that announces it."""
    columns = {name: first(fields, ROLES[name].names) for name in ("slug", "question", *TOKEN_LISTS)}
    record = {name: fields[column] for name, column in columns.items() if column and fields[column]}
    for name in TOKEN_LISTS:
        if isinstance(record.get(name), str):
            record[name] = msgspec.json.decode(record[name])
    return {**record, "market_id": str(fields.get("market") or fields.get("condition_id") or fields["id"])}
