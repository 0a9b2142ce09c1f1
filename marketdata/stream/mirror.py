"""A local socket that plays stored books in the format of Polymarket's market channel.

A bucket has the last book in it, so its changes come at its end, before the next bucket begins. The first book after a
gap comes at the start of its bucket. At a gap of the history the connection is cut, so that clients see it. A client
that subscribes to the same tokens again goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, not_installed
from marketdata.points.columns import Books, Token, Trades
from marketdata.recordings import changes as rule
from marketdata.recordings.changes import ASKS, SNAPSHOT
from marketdata.resolution import BucketWidth
from marketdata.stream.line import LATENESS
from marketdata.times import SECOND, Range

PATH = "/ws/market"
_MILLI = 1000
# Books of a range of time are read together, about so many of them.
_BOOKS_AT_ONCE, _MESSAGES_AT_ONCE = 50_000, 256
# A client that comes back after so long begins anew [s].
_RETURNS = 120.0


class History(Protocol):
    """What a mirror plays: books at a width, in runs of buckets without a gap."""

    @property
    def width(self) -> BucketWidth:
        """The width of a bucket."""

    @property
    def tokens(self) -> Mapping[str, Token]:
        """Every token by its id."""

    def runs(self, market: str) -> Sequence[Range]:
        """The ranges of a market that are stored, which do not touch."""

    def books(self, markets: Sequence[str], rng: Range) -> Books:
        """The books of markets in a range."""

    def prints(self, markets: Sequence[str], rng: Range) -> Trades:
        """The trades of markets in a range."""


class Sent(NamedTuple):
    """A message at a time [microseconds]."""

    at: int
    message: Any


@dataclass
class Session:
    """The place of one client in the history: the tokens that it wants, and the time up to which it was played."""

    history: History
    wanted: set[str]
    at: int
    custom: bool = False
    known: dict[str, Books] = field(default_factory=dict)
    over: bool = False
    # Everything before this time was sent; how far the clock of this machine was ahead of messages, at least; and the
    # pings that wait for their answer, by their time.
    position: int | None = None
    ahead: int | None = None
    pings: list[int] = field(default_factory=list)

    @property
    def markets(self) -> list[str]:
        """The markets of the tokens."""
        return sorted({self.history.tokens[name].market_id for name in self.wanted})

    def next_cut(self) -> int | None:
        """The next end of a run; None if nothing follows."""
        return min((r.end for m in self.markets for r in self.history.runs(m) if r.end > self.at), default=None)

    def play(self) -> Iterator[Sent]:
        """The messages up to the next cut, the first books included."""
        cut = self.next_cut()
        if cut is None:
            self.over = True
            return
        first = self._first_books()
        if first:
            yield Sent(self.at, [message for _, message in first])
            yield from self._clock(self.at)
        width = self.history.width.micros
        step = max(1, _BOOKS_AT_ONCE // max(1, len(self.wanted))) * width
        while self.at < cut:
            part = Range(self.at, min(cut, self.at + step))
            yield from heapq.merge(self._part(part), self._printed(part), key=lambda sent: sent.at)
            self.at = part.end
        # Nothing happened so far, whatever was on its way.
        yield from self._clock(cut + LATENESS)

    def _first_books(self) -> list[tuple[str, Any]]:
        """The books that are valid at the start: those of the bucket before, or of a run that begins here."""
        width = self.history.width.micros
        runs = {m: next((r for r in self.history.runs(m) if r.start <= self.at < r.end), None) for m in self.markets}
        begun = [m for m, run in runs.items() if run is not None and run.start < self.at]
        self.known = {}
        books = self.history.books(begun, Range(self.at - width, self.at))
        return [(name, self._book(books, at, self.at)) for at, name in self._entries(books)]

    def _entries(self, books: Books) -> list[tuple[int, str]]:
        """The wanted entries; the last book of each token is remembered."""
        out = []
        for at in range(len(books)):
            name = str(books.token_at(at).token_id)
            if name in self.wanted:
                out.append((at, name))
                self.known[name] = books.take(np.array([at]))
        return out

    def _part(self, part: Range) -> Iterator[Sent]:
        """The messages of a range of time."""
        width = self.history.width
        before = Range(part.start - width.micros, part.end)
        books = self.history.books(self.markets, before).sort()
        place = {key: at for at, key in enumerate(zip(books.token.tolist(), books.ts.tolist(), strict=True))}
        moves = rule.diff(books, width)
        moves = moves.take(np.flatnonzero((moves.ts >= part.start) & (moves.event != rule.GAP)))
        moves = moves.take(np.lexsort((np.arange(len(moves)), moves.token, moves.ts)))
        begins = np.flatnonzero((np.diff(moves.ts, prepend=-1) != 0) | (np.diff(moves.token, prepend=-1) != 0))
        pairs = itertools.pairwise([*begins.tolist(), len(moves)])
        groups = [(int(moves.ts[a]), int(moves.token[a]), a, b) for a, b in pairs]
        for ts, of_bucket in itertools.groupby(groups, key=lambda group: group[0]):
            several = [g for g in of_bucket if str(moves.tokens[g[1]].token_id) in self.wanted]
            starts = [g for g in several if moves.event[g[2]] == SNAPSHOT]
            if starts:
                yield Sent(ts, [self._book(books, place[g[1], ts], ts) for g in starts])
                for _, code, _, _ in starts:
                    self._remember(books, place[code, ts], str(moves.tokens[code].token_id))
                yield from self._clock(ts)
            end = ts + width.micros - _MILLI
            for _, code, a, b in several:
                if moves.event[a] != SNAPSHOT:
                    yield from self._change(books, place[code, ts], moves.take(slice(a, b)), end)
        for code, token in enumerate(books.tokens):
            if len(last := np.flatnonzero(books.token == code)):
                self._remember(books, int(last[-1]), str(token.token_id))

    def _printed(self, part: Range) -> Iterator[Sent]:
        """The trades of a range in the order of time; the channel has none whose side is not known."""
        prints = self.history.prints(self.markets, part)
        hashes = prints.values.get("transaction_hash", np.full(len(prints), None))
        for at in np.argsort(prints.ts, kind="stable").tolist():
            token, side = prints.token_at(at), prints.values["side"][at]
            if str(token.token_id) in self.wanted and side is not None:
                yield Sent(int(prints.ts[at]), {
                    "event_type": "last_trade_price", "asset_id": token.token_id, "market": token.market_id,
                    "price": _text(float(prints.values["price"][at])), "size": _text(float(prints.values["size"][at])),
                    "side": str(side).upper(), "timestamp": _ms(int(prints.ts[at])), "fee_rate_bps": "0",
                    "transaction_hash": hashes[at],
                })  # fmt: skip

    def _remember(self, books: Books, at: int, name: str) -> None:
        if name in self.wanted:
            self.known[name] = books.take(np.array([at]))

    def _change(self, books: Books, at: int, moves: rule.Changes, ts: int) -> Iterator[Sent]:
        """The messages of the change of one book."""
        token = books.token_at(at)
        name, best = str(token.token_id), _best(books, at)
        before = self.known.get(name)
        tick, old = _value(books, at, "tick_size"), None if before is None else _value(before, 0, "tick_size")
        changes = [
            _level(name, int(side), price, size, best)
            for side, price, size in zip(moves.side.tolist(), moves.price.tolist(), moves.size.tolist(), strict=True)
            if price == price  # noqa: PLR0124  a row without a level
        ]
        if tick is not None and tick != old:
            yield Sent(ts, {
                "event_type": "tick_size_change", "asset_id": name, "market": token.market_id,
                "old_tick_size": None if old is None else _text(old), "new_tick_size": _text(tick),
                "timestamp": _ms(ts),
            })  # fmt: skip
            changes = changes or _same_level(books, at, name, best)
        if changes:
            yield Sent(ts, _price_change(token.market_id, ts, changes))
        elif tick != old:
            yield Sent(ts, self._book(books, at, ts))
        self._remember(books, at, name)

    def _clock(self, ts: int) -> Iterator[Sent]:
        """A message that changes nothing, and so tells the time."""
        for name, book in self.known.items():
            token, best = book.tokens[0], _best(book, 0)
            if self.custom:
                yield Sent(ts, {
                    "event_type": "best_bid_ask", "asset_id": name, "market": token.market_id, "best_bid": best[0],
                    "best_ask": best[1], "spread": _text(float(best[1]) - float(best[0])), "timestamp": _ms(ts),
                })  # fmt: skip
            else:
                yield Sent(ts, _price_change(token.market_id, ts, _same_level(book, 0, name, best)))
            return

    def _book(self, books: Books, at: int, ts: int) -> dict[str, Any]:
        """A whole book, worst first."""
        token, sides = books.token_at(at), {}
        for name, side in (("bids", books.bids), ("asks", books.asks)):
            here = slice(int(side.begins[at]), int(side.begins[at] + side.counts[at]))
            levels = zip(side.price[here].tolist(), side.size[here].tolist(), strict=True)
            sides[name] = [{"price": _text(price), "size": _text(size)} for price, size in levels][::-1]
        values = {n: v for n in ("tick_size", "last_trade_price") if (v := _value(books, at, n)) is not None}
        return {
            "event_type": "book", "asset_id": token.token_id, "market": token.market_id, "timestamp": _ms(ts),
            "hash": books.values["hash"][at] if "hash" in books.values else "", **sides,
            **{name: _text(value) for name, value in values.items()},
        }  # fmt: skip


def _price_change(market: str, ts: int, changes: list[dict[str, Any]]) -> dict[str, Any]:
    return {"event_type": "price_change", "market": market, "timestamp": _ms(ts), "price_changes": changes}


def _level(name: str, side: int, price: float, size: float, best: tuple[str, str]) -> dict[str, Any]:
    return {
        "asset_id": name, "price": _text(price), "size": _text(size), "side": "SELL" if side == ASKS else "BUY",
        "hash": "", "best_bid": best[0], "best_ask": best[1],
    }  # fmt: skip


def _same_level(books: Books, at: int, name: str, best: tuple[str, str]) -> list[dict[str, Any]]:
    """The best level of a book once more; nothing for an empty book."""
    for number, side in enumerate((books.bids, books.asks)):
        if side.counts[at]:
            first = int(side.begins[at])
            return [_level(name, number, float(side.price[first]), float(side.size[first]), best)]
    return []


def _best(books: Books, at: int) -> tuple[str, str]:
    """Best prices as the venue states them: 0 and 1 for sides without levels."""
    bid = float(books.bids.price[books.bids.begins[at]]) if books.bids.counts[at] else 0.0
    ask = float(books.asks.price[books.asks.begins[at]]) if books.asks.counts[at] else 1.0
    return _text(bid), _text(ask)


def _value(books: Books, at: int, name: str) -> float | None:
    value = float(books.values[name][at]) if name in books.values else np.nan
    return None if np.isnan(value) else value


def _text(number: float) -> str:
    """A number with all of its digits, without an exponent."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def _ms(ts: int) -> str:
    """A time as the channel has it; one between milliseconds keeps its digits."""
    return f"{ts // _MILLI}.{ts % _MILLI:03d}" if ts % _MILLI else str(ts // _MILLI)


class Mirror(AbstractContextManager["Mirror"]):
    """A mirror that plays until it is closed, also a context manager. ``address`` is where clients connect."""

    def __init__(self, history: History, start: int, speed: float | None, port: int) -> None:
        try:
            import websockets  # noqa: F401
        except ModuleNotFoundError:
            raise not_installed("md.replay_server", "websockets", "stream") from None
        self._history, self._start, self._speed = history, start, speed
        # Clients whose connection was cut, by their host and tokens, and when.
        self._cut: dict[tuple[str, frozenset[str]], tuple[Session, float]] = {}
        self._ready, self._problem = threading.Event(), list[OSError]()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(port)), name="marketdata-mirror", daemon=True
        )
        self._thread.start()
        self._ready.wait(30)
        if self._problem:
            what = f"127.0.0.1:{port} cannot be bound: {self._problem[0]}. Choose another port, or 0."
            raise ConfigError(what) from self._problem[0]

    def __repr__(self) -> str:
        return f"<mirror at {self.address}>"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections, and stop."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(10)

    async def _serve(self, port: int) -> None:
        from websockets.asyncio.server import serve

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await serve(self._connection, "127.0.0.1", port, ping_interval=None, close_timeout=2)
        except OSError as problem:
            self._problem.append(problem)
            self._ready.set()
            return
        self.address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}"
        self._ready.set()
        async with server:
            await self._end.wait()

    async def _connection(self, socket: Any) -> None:
        """One client from its subscription to the next cut."""
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed):
            async for text in socket:
                if (asked := _asked(text)) is not None:
                    break
                if _is_ping(text):
                    await socket.send("PONG")
            else:
                return
            session = self._session(socket, asked)
            changes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            reader = asyncio.create_task(_read(socket, session, changes))
            try:
                while not await self._play(socket, session, changes):
                    pass
                if session.over:
                    await _answer(socket, session)
                    await reader  # silent, until the client leaves
                else:
                    self._cut[self._key(socket, session.wanted)] = session, SYSTEM.monotonic()
            finally:
                reader.cancel()

    def _key(self, socket: Any, wanted: set[str]) -> tuple[str, frozenset[str]]:
        return str(socket.remote_address[0]), frozenset(wanted)

    def _session(self, socket: Any, asked: dict[str, Any]) -> Session:
        """The session of a client: the one that was cut, or a new one from the start."""
        wanted = {str(name) for name in asked["assets_ids"]} & self._history.tokens.keys()
        before = self._cut.pop(self._key(socket, wanted), None)
        session = Session(self._history, wanted, self._start)
        if before is not None and SYSTEM.monotonic() - before[1] < _RETURNS:
            session = before[0]
        session.custom = bool(asked.get("custom_feature_enabled"))
        return session

    async def _play(self, socket: Any, session: Session, changes: asyncio.Queue[dict[str, Any]]) -> bool:
        """Send the messages up to the next cut; False if the subscription changed meanwhile."""
        began, first = SYSTEM.monotonic(), session.at
        messages = session.play()
        while several := await asyncio.to_thread(lambda: [*itertools.islice(messages, _MESSAGES_AT_ONCE)]):
            for sent in several:
                session.position = sent.at
                await _answer(socket, session)
                if self._speed is not None:
                    await asyncio.sleep(began + (sent.at - first) / SECOND / self._speed - SYSTEM.monotonic())
                await socket.send(msgspec.json.encode(sent.message).decode())
                ahead = _now() - sent.at
                session.ahead = ahead if session.ahead is None else min(session.ahead, ahead)
                if not changes.empty():
                    self._change(session, changes.get_nowait(), sent.at)
                    return False
        return True

    def _change(self, session: Session, asked: dict[str, Any], at: int) -> None:
        """Take a change of the subscription; it counts from the next bucket on."""
        names = {str(name) for name in asked["assets_ids"]} & self._history.tokens.keys()
        gone = asked.get("operation") == "unsubscribe"
        session.custom = bool(asked.get("custom_feature_enabled", session.custom))
        session.wanted = session.wanted - names if gone else session.wanted | names
        width = self._history.width
        session.at = max(session.at, int(width.floor(at)) + width.micros)


async def _read(socket: Any, session: Session, changes: asyncio.Queue[dict[str, Any]]) -> None:
    """Take pings, and changes of the subscription, until the client leaves."""
    async for text in socket:
        if (asked := _asked(text)) is not None:
            changes.put_nowait(asked)
        elif _is_ping(text):
            session.pings.append(_now())
            await _answer(socket, session)


async def _answer(socket: Any, session: Session) -> None:
    """Answer the pings of which everything earlier was sent.

    An answer says that nothing else happened up to the ping, and clients count the time since a message by their own
    clock: while this machine is late, they must wait.
    """
    while session.pings:
        is_sent = session.ahead is None or (session.position or 0) >= session.pings[0] - session.ahead
        if not (is_sent or session.over):
            return
        session.pings.pop(0)
        await socket.send("PONG")


def _is_ping(text: str | bytes) -> bool:
    return text in ("PING", b"PING")


def _now() -> int:
    return int(SYSTEM.time() * SECOND)


def _asked(text: str | bytes) -> dict[str, Any] | None:
    """A subscription; None for another message."""
    with contextlib.suppress(ValueError):
        asked = json.loads(text)
        if isinstance(asked, dict) and isinstance(asked.get("assets_ids"), list):
            return asked
    return None
