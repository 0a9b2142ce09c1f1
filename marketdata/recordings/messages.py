"""Changes of the messages of a market channel: ``book`` and both shapes of ``price_change``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from msgspec import Raw

from marketdata.decimals import parse_number
from marketdata.errors import ConfigError
from marketdata.points.columns import Floats, Token
from marketdata.points.records import TOKEN_LISTS
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.recordings import kalshi_messages
from marketdata.recordings.arrivals import UNSTATED, Arrivals
from marketdata.recordings.book_rows import levels_of, printed
from marketdata.recordings.changes import CHANGE, GAP, SNAPSHOT, STATED, Changes
from marketdata.recordings.envelopes import json_value
from marketdata.recordings.files import ReadOptions
from marketdata.recordings.message_fields import DAMAGED, NO_MESSAGE, Message, Text, as_json, messages_in, text_of
from marketdata.recordings.roles import ASK_TEXTS, BID_TEXTS, ROLES, decimals
from marketdata.recordings.rows import converted
from marketdata.recordings.table import Batch, Table, no_time
from marketdata.recordings.trades import add_prints
from marketdata.recordings.units import moments
from marketdata.recordings.wanted import NOT_WANTED
from marketdata.times import parse_moment
from marketdata.wire.records import first
from marketdata.wire.trades import trades

_ARRIVAL = (*ROLES["received_at"].names, "ts")
# Names of the venue's time in an envelope.
_VENUE_TIME = ("timestamp", *(name for name in ROLES["ts"].names if name not in ("ts", "timestamp")))
_MARKET, _TOKEN = ("market", "market_id", "condition_id"), ("asset_id", "token_id")
_FIRST = 20
_ARRIVALS = frozenset(_ARRIVAL)
_RECONNECTS = {
    "connect", "connected", "disconnect", "disconnected", "reconnect", "reconnected", "reconnecting", "gap",
    "connection_lost", "connection_closed", "ws_connected", "ws_disconnected",
}  # fmt: skip
_BEGINNINGS = {"connect", "connected", "reconnected", "ws_connected"}
# Kinds of messages, which a table of the market channel has in a column.
KINDS = ("book", "book_snapshot", "price_change", "last_trade_price", "tick_size_change", "best_bid_ask", "new_market")
# Columns of such a table whose cells are lists, or lists printed by JSON or Python.
_LISTS = ("bids", "asks", "buys", "sells", "price_changes", "changes")
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
_SIDES = (("bids", "buys"), ("asks", "sells"))
_IS_BID: dict[Any, int] = {**dict.fromkeys(BID_TEXTS, 1), **dict.fromkeys(ASK_TEXTS, 0)}
_IS_BID |= {text.upper(): bids for text, bids in _IS_BID.items()}
_NO_SIDE, _NO_LEVELS = -1, ((), ())
_STATES = ("tick_size", "last_trade_price")
# Levels are Python objects until their part ends, because a part has tens of megabytes at most.
_PART_LEVELS, _AT_ONCE = 1 << 18, 100
_LAST = 1 << 62
_Moment = tuple[str | None, str | None]


class _Level(msgspec.Struct, gc=False):
    price: str | float
    size: str | float


class _Change(msgspec.Struct, gc=False):
    """A changed level; one vendor has the outcome as the side, and prefixes."""

    price: Text = None
    size: Text = None
    side: str | None = None
    asset_id: Text = None
    token_id: Text = None
    market: Text = None
    market_id: Text = None
    condition_id: Text = None
    best_bid: Text = None
    best_ask: Text = None
    change_price: Text = None
    change_size: Text = None
    change_side: str | None = None


class _ChangeWithFields(_Change, gc=False):
    """A changed level with the fields of snapshots, for imports that keep some."""

    hash: Text = None
    tick_size: Text = None
    last_trade_price: Text = None


_levels = msgspec.json.Decoder(list[_Level]).decode


class _Part:
    """Rows of messages, each a book, a changed level or a gap of a token.

    Rows of one message have one ``event``, ``number`` and moment; ``ts`` and ``seen`` are texts of times. The levels of
    a book are in ``price`` and ``size``, bids first, with the number of them and of its bids.
    """

    def __init__(self, keep: Sequence[str]) -> None:
        self.event, self.number, self.rows = list[int](), list[int](), list[int]()
        self.ts, self.seen = list[str | None](), list[str | None]()
        self.token, self.changed = list[int](), list[_Change]()
        self.price, self.size = list[Text](), list[Text]()
        self.levels, self.bids = list[int](), list[int]()
        self.kept: dict[str, list[Text]] = {name: [] for name in keep}
        # Messages that are not wanted, and whether their time is that at which they were sent.
        self.passed: dict[int, bool] = {}

    def __len__(self) -> int:
        return len(self.changed) + len(self.price)

    def add(
        self, event: int, number: int, moment: _Moment, tokens: Sequence[int], kept: Sequence[Sequence[Text]] = ()
    ) -> None:
        """Add the rows of a message, which may be none; changed levels are added to ``changed``."""
        self.event.append(event)
        self.number.append(number)
        self.rows.append(len(tokens))
        self.ts.append(moment[0])
        self.seen.append(moment[1])
        self.token += tokens
        for at, values in enumerate(self.kept.values()):
            values.extend([row[at] for row in kept] if kept else [None] * len(tokens))

    def add_book(self, levels: Sequence[Sequence[Text]], bids: int, *row: Any) -> None:
        """Add a book with its prices and sizes, or a gap, which has none."""
        self.price += levels[0]
        self.size += levels[1]
        self.levels.append(len(levels[0]))
        self.bids.append(bids)
        self.add(*row)

    def changes(self, tokens: Sequence[Token]) -> tuple[Changes, int]:
        """The rows as changes, without those of messages that have something unreadable, and how many these are."""
        of = np.repeat(np.arange(len(self.rows)), np.array(self.rows, np.int64))
        event, number = np.array(self.event, np.int8)[of], np.array(self.number, np.int64)[of]
        ts, seen = (moments(pl.Series(texts, dtype=pl.String)) for texts in (self.ts, self.seen))
        is_change = event == CHANGE
        levels, bids = np.ones(len(of), np.int64), np.zeros(len(of), np.int64)
        levels[~is_change], bids[~is_change] = self.levels, self.bids
        bids[is_change] = [_IS_BID.get(c.side, _NO_SIDE) for c in self.changed]
        lengths = np.maximum(levels, 1)
        row = np.repeat(np.arange(len(levels)), lengths)
        place = np.arange(len(row)) - (np.cumsum(lengths) - lengths)[row]
        is_level, of_change = (levels > 0)[row], is_change[row]
        of_book = is_level & ~of_change
        price, size = np.full((2, len(row)), np.nan)
        price[of_change], size[of_change] = (_numbers([getattr(c, n) for c in self.changed]) for n in ("price", "size"))
        price[of_book], size[of_book] = _numbers(self.price), _numbers(self.size)
        wrong = (ts.is_null() | seen.is_null()).to_numpy()[of] | (bids == _NO_SIDE)
        wrong[row[is_level & (np.isnan(price) | np.isnan(size))]] = True
        damaged = np.unique(number[wrong])
        kept = ~np.isin(number, damaged)[row]
        events = np.where((place > 0) & (event == SNAPSHOT)[row], CHANGE, event[row]).astype(np.int8)
        stated = np.full((2, len(of)), np.nan)
        stated[:, is_change] = [_numbers([getattr(c, n) for c in self.changed]) for n in ("best_bid", "best_ask")]
        stated[1, stated[1] == 0] = 1.0  # a side without levels
        values: dict[str, Any] = {
            name: np.array(texts, object) if SNAPSHOT_FIELDS[name] == "text" else _numbers(texts)
            for name, texts in self.kept.items()
        }
        values |= zip(STATED, stated, strict=True)
        changes = Changes(
            tuple(tokens), np.array(self.token, np.int32)[row], ts.fill_null(0).to_numpy()[of][row],
            seen.fill_null(0).to_numpy()[of][row], events, ((place >= bids[row]) & is_level).astype(np.int8),
            price, size, np.where(event == GAP, -1, number)[row], {name: v[row] for name, v in values.items()},
        )  # fmt: skip
        return (changes if kept.all() else changes.take(kept)), len(damaged)

    def arrivals(self, latest: dict[int, int]) -> Arrivals:
        """When messages arrived; changes, and books that are newer than what was known, tell when they were sent.

        ``latest`` has the time of each token's last row in the parts before, and is updated.
        """
        ts, seen = (moments(pl.Series(texts, dtype=pl.String)) for texts in (self.ts, self.seen))
        event, rows = np.array(self.event, np.int8), np.array(self.rows, np.int64)
        passed = list(self.passed)
        is_stated = (event != GAP) & (rows > 0)
        is_stated[passed] = True
        stated = np.where(is_stated, ts.fill_null(UNSTATED).to_numpy(), UNSTATED)
        of = np.repeat(np.arange(len(rows)), rows)
        order = np.argsort(np.array(self.token, np.int32), kind="stable")
        times, codes = stated[of][order], np.array(self.token, np.int32)[order]
        first, last = np.flatnonzero(np.diff(codes, prepend=-1)), np.flatnonzero(np.diff(codes, append=-1))
        before = np.append(UNSTATED, times)[: len(times)]
        before[first] = [latest.get(code, _LAST) for code in codes[first].tolist()]
        latest.update(zip(codes[last].tolist(), times[last].tolist(), strict=True))
        is_sent = event == CHANGE
        is_sent[passed] = list(self.passed.values())
        is_sent[of[order[(times > before) & (before != UNSTATED)]]] = True
        is_timed = seen.is_not_null().to_numpy()
        return Arrivals(seen.drop_nulls().to_numpy(), stated[is_timed], is_sent[is_timed])


class MessageReader:
    """Changes, markets and counts of messages, in their order; messages that cannot be read are counted."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._decode: Callable[[bytes | Raw], list[_Change]] = msgspec.json.Decoder(
            list[_ChangeWithFields if options.keep else _Change]  # type: ignore[misc]
        ).decode
        self._count = 0
        self._codes: dict[tuple[Text, Text], int] = {}
        self._tokens: list[Token] = []
        # The venue's time of the last message of each token.
        self._latest: dict[int, int] = {}
        self._passed: dict[str | None, int] = {}
        # The tick and the last trade of each token, once they are known.
        self._state: dict[str, dict[str, float]] = {name: {} for name in _STATES}
        self._kalshi = kalshi_messages.Feed()
        self._last_seen: str | None = None
        # Whether the recording began with a line that says so, and has one at each further beginning.
        self._tells_beginnings = False
        self._begin_part()

    def _begin_part(self) -> None:
        self._batch, self._part = Batch(keep=self._options.keep), _Part(self._options.keep)

    def __len__(self) -> int:
        """The number of levels read: a book has many."""
        return len(self._part)

    def add(self, value: bytes, *, is_wanted: bool = True) -> None:
        """Add a message, a list of messages, or an envelope around one, as JSON; a damaged one is counted.

        Of messages that are not wanted only the times are read, and what they say about the connection.
        """
        for message in messages_in(value):
            self._batch.rows += 1
            self._count += 1
            try:
                if is_wanted or message.kind.lower() in _RECONNECTS:
                    self._add(message)
                else:
                    self._pass_over(message)
            except ConfigError:
                raise
            except _UNREADABLE:
                self._batch.left_out[DAMAGED] += 1

    def collected(self) -> Batch:
        """Return the rows read so far, and forget them."""
        batch, part = self._batch, self._part
        batch.changes, damaged = part.changes(self._tokens)
        batch.received = part.arrivals(self._latest)
        batch.left_out += Counter({DAMAGED: damaged})
        self._begin_part()
        return batch

    def end(self) -> None:
        """Count what waited for a later message."""
        self._batch.left_out["without a time"] += self._kalshi.waiting
        self._batch.left_out = +self._batch.left_out

    def _add(self, message: Message) -> None:
        kind = message.kind
        if kind == "book":
            self._add_book(message)
        elif kind == "price_change":
            self._add_changes(message)
        elif kind in kalshi_messages.MESSAGE_TYPES:
            self._add_kalshi(message, kind)
        else:
            before, seen = self._last_seen, self._times(message)[1]
            if kind.lower() in _RECONNECTS:
                is_beginning = kind.lower() in _BEGINNINGS
                # When the connection before it was lost is not said, and nothing after its last message is known.
                is_told = is_beginning and self._tells_beginnings and before is not None
                self._add_gap(before if is_told else seen or self._last_seen)
                self._tells_beginnings |= is_beginning and not self._tokens
            elif seen is not None:
                self._part.add(CHANGE, self._count, (seen, seen), ())
            self._note(kind, message)
            self._batch.left_out[kind] += 1

    def _pass_over(self, message: Message) -> None:
        """Note when a message arrived, and when it was sent if it tells that, and count it as not wanted."""
        kind, (at, seen) = message.kind, self._times(message)
        self._batch.left_out[NOT_WANTED] += 1
        if seen is None:
            return
        if kind in ("book", "price_change") and at is not None:
            token, time = message.text(_TOKEN), parse_moment(at)
            is_newer = time > self._passed.get(token, _LAST)
            self._passed[token] = time
            self._part.passed[len(self._part.rows)] = is_newer or kind == "price_change"
        self._part.add(CHANGE, self._count, (at, seen), ())

    def _times(self, message: Message) -> _Moment:
        """The time by the chosen clock, and the time of arrival; the venue's time may be in the envelope."""
        fields, clock = message.fields, self._options.clock
        venue = message.text(_VENUE_TIME)
        seen = message.said(_ARRIVAL) if message.envelope else None
        if seen is None and message.envelope and not fields.keys().isdisjoint(_VENUE_TIME):
            seen = message.said(_VENUE_TIME)  # a time outside of the message, beside its own, is that of the recorder
        if seen is None and not _ARRIVALS.isdisjoint(fields):
            seen = next((text for name in _ARRIVAL if name in fields and (text := text_of(fields[name]))), None)
        seen = seen or venue
        self._last_seen = seen or self._last_seen
        if clock == "timestamp":
            return venue or seen, seen
        if clock == "received":
            return seen, seen
        if clock not in fields and not self._codes:
            raise no_time(clock, "fields", sorted(fields))
        return text_of(fields[clock]), seen

    def _moment(self, message: Message) -> _Moment:
        moment = self._times(message)
        if moment[1] is None:
            raise ValueError("a message without a time")
        return moment

    def _add_book(self, message: Message) -> None:
        fields, moment = message.fields, self._moment(message)
        prices, sizes, counts = list[Text](), list[Text](), []
        for new, old in _SIDES:
            of_price, of_size = _levels_of(fields[new if new in fields else old])
            prices += of_price
            sizes += of_size
            counts.append(len(of_price))
        code = self._code(message.text(_MARKET), message.text(_TOKEN))
        kept = self._kept(code, lambda name: text_of(fields[name]) if name in fields else None)
        self._part.add_book((prices, sizes), counts[0], SNAPSHOT, self._count, moment, [code], [kept])

    def _add_changes(self, message: Message) -> None:
        fields, moment, part = message.fields, self._moment(message), self._part
        parts = fields.get("price_changes", fields.get("changes"))
        found = self._decode(b"[%b]" % msgspec.json.encode(fields) if parts is None else parts)
        market, known = message.text(_MARKET), self._codes.get
        tokens, kept = list[int](), list[Sequence[Text]]()
        for change in found:
            if change.change_side is not None:
                change.side, change.price, change.size = change.change_side, change.change_price, change.change_size
            owner = (
                change.market or change.market_id or change.condition_id or market,
                change.asset_id or change.token_id or message.text(_TOKEN),
            )
            code = known(owner)
            tokens.append(self._code(*owner) if code is None else code)
        if part.kept:
            kept = [self._kept(code, change.__getattribute__) for code, change in zip(tokens, found, strict=True)]
        part.changed += found
        part.add(CHANGE, self._count, moment, tokens, kept)

    def _add_gap(self, seen: str | None) -> None:
        """End the books of all tokens where the connection was lost: without a time, at the message before.

        A connection that begins before any book ends those of earlier files.
        """
        self._batch.restarts |= not self._tokens
        at = str(parse_moment(str(seen)))
        for code in range(len(self._tokens)):
            self._part.add_book(_NO_LEVELS, 0, GAP, self._count, (at, at), [code])

    def _add_kalshi(self, message: Message, kind: str) -> None:
        """Add the rows of a message of Kalshi, which has a book or a signed change of both outcomes."""
        fields = message.values()
        arrival = None if (said := message.said((*_ARRIVAL, *_VENUE_TIME))) is None else parse_moment(said)
        own, clock = kalshi_messages.time_of(fields), self._options.clock
        chosen = {"timestamp": (own, arrival), "received": (arrival, own)}.get(clock)
        if chosen is None:
            chosen = (None if fields.get(clock) is None else parse_moment(fields[clock]), None)
        at = next((time for time in chosen if time is not None), None)
        moment = None if at is None else (at, at if arrival is None else arrival)
        rows, books, left_out = self._kalshi.read(kind, fields, message.envelope, moment, self._count)
        self._batch.left_out.update(left_out)
        self._batch.markets += self._kalshi.new_markets()
        waiting = iter(books)
        for row in rows:
            event = row["event"]
            where = (event, self._count if event == GAP else row["__row"], (str(row["ts"]), str(row["__seen"])),
                     [self._code(row["market_id"], row["token_id"], row["token_label"])])  # fmt: skip
            if event == CHANGE:
                self._part.changed.append(_Change(row["price"], row["size"], row["side"]))
                self._part.add(*where)
            else:
                bids, asks = next(waiting) if event == SNAPSHOT else ((), ())
                levels = [*bids, *asks]
                self._part.add_book([[level[i] for level in levels] for i in range(2)], len(bids), *where)

    def _code(self, market: Any, token: Any, label: str | None = None) -> int:
        """The number of a token; ConfigError if a message names none."""
        token = token or self._options.token_id
        if token is None:
            raise ConfigError("A message does not name the token of its book; pass token_id=.")
        code = self._codes.setdefault((market, token), len(self._tokens))
        if code == len(self._tokens):
            self._tokens.append(Token(str(market or "").strip("\0 "), str(token), label))
        return code

    def _kept(self, code: int, field: Any) -> Sequence[Text]:
        """The fields of a snapshot that are kept; a tick or a last trade that is known stays."""
        if not self._part.kept:
            return ()
        token = str(self._tokens[code].token_id)
        for name, values in self._state.items():
            if field(name):
                values[token] = parse_number(str(field(name)))
        return [self._state[n].get(token) if n in self._state else field(n) for n in self._part.kept]

    def _note(self, kind: str, message: Message) -> None:
        """Remember ticks and trades, and collect records of markets."""
        state = {"tick_size_change": ("tick_size", "new_tick_size"), "last_trade_price": ("last_trade_price", "price")}
        if kind in state:
            name, field = state[kind]
            if name in self._options.keep:
                token, value = (text_of(message.fields[n]) for n in ("asset_id", field))
                self._state[name][str(token)] = parse_number(str(value))
        elif kind == "new_market":
            self._batch.markets.append(_market(message.values()))


def read_messages(table: Table) -> Iterator[Batch]:
    """The messages of a file in parts."""
    reader = MessageReader(table.file.options)
    needles = table.file.needles if table.file.form == "json" else None
    pattern, values = needles and needles.pattern, _values(table)
    while some := list(itertools.islice(values, _AT_ONCE)):
        for value in some:
            reader.add(value, is_wanted=pattern is None or pattern.search(value.lower()) is not None)
        if len(reader) >= _PART_LEVELS:
            yield reader.collected()
    reader.end()
    yield reader.collected()


def read_trades(table: Table) -> Iterator[Batch]:
    """The trade prints among the messages of a file, at once."""
    rows, batch = [], Batch()
    for message in (message for value in _values(table) for message in messages_in(value)):
        batch.rows += 1
        if message.kind not in ("last_trade_price", "trade", DAMAGED):
            batch.left_out["no trades"] += 1
            continue
        try:
            rows.append(message.values())
        except _UNREADABLE:
            batch.left_out[DAMAGED] += 1
    by_venue = [[row for row in rows if ("market_ticker" in row) is of_kalshi] for of_kalshi in (False, True)]
    parts, damaged = zip(*(converted(of_venue, trades) for of_venue in by_venue), strict=True)
    batch.left_out[DAMAGED] += sum(damaged)
    add_prints([part for of_venue in parts for part in of_venue], batch)
    yield batch


def _values(table: Table) -> Iterator[bytes]:
    """The messages of lines, or those in a column of a table, whose other columns are their envelope."""
    if table.file.form == "json":
        yield from table.file.all_values()
        return
    for frame in table.file.frames():
        texts = frame.with_columns(pl.col(pl.Binary).cast(pl.String, strict=False))
        yield from (as_json(_without_nulls(row)) for row in texts.iter_rows(named=True))
    yield from [b""] * table.file.torn


def _without_nulls(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as a message, which has only the fields of its kind, and its lists as lists."""
    return {
        name: printed(value) if name in _LISTS and isinstance(value, str) else value
        for name, value in row.items()
        if value is not None and value != ""
    }


def _has_rows_of_messages(table: Table) -> bool:
    """Whether rows are messages: a column has their kinds, and others have the lists of books or changes."""
    columns = table.file.columns
    kinds = table.file.sample[table.columns["event_type"]] if "event_type" in table.columns else None
    if kinds is None or not {*kinds.drop_nulls().cast(pl.String)} & {"book", "price_change"}:
        return False
    return bool({"price_changes", "changes"} & {*columns}) or (
        {"bids", "asks"} <= table.columns.keys() and "received_at" not in table.columns
    )


def first_messages(table: Table) -> list[Message]:
    """The first messages of a file that can be read."""
    if table.file.form != "json" and "message" not in table.columns and not _has_rows_of_messages(table):
        return []
    found = (message for value in _values(table) for message in messages_in(value))
    return [message for message in itertools.islice(found, _FIRST) if message is not NO_MESSAGE]


def _levels_of(side: Raw) -> tuple[list[Text], list[Text]]:
    """The prices and the sizes of a side."""
    try:
        levels = _levels(side)
    except msgspec.ValidationError:
        pairs = levels_of(json_value(bytes(side)))
        return [price for price, _ in pairs], [size for _, size in pairs]
    return [level.price for level in levels], [level.size for level in levels]


def _numbers(values: Sequence[Text]) -> Floats:
    """Numbers and texts of numbers, NaN for others."""
    try:
        texts = pl.Series(values, dtype=pl.String)
    except TypeError:
        texts = pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)
    return decimals(texts).fill_null(np.nan).to_numpy().copy()


def _market(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market from the message that announces it."""
    columns = {name: first(fields, ROLES[name].names) for name in ("slug", "question", *TOKEN_LISTS)}
    record = {name: fields[column] for name, column in columns.items() if column and fields[column]}
    for name in TOKEN_LISTS:
        if isinstance(record.get(name), str):
            record[name] = msgspec.json.decode(record[name])
    return {**record, "market_id": str(fields.get("market") or fields.get("condition_id") or fields["id"])}
