"""The market channel of a venue: drawn books of some tokens as messages, and the venue's own books at each.

Traps, each with its source: a moment comes in several messages, and best prices are those after all of them (recorded
messages of one millisecond); `book` comes at the subscription with the time of its last change, however long ago (the
venue's page, and ten books saved together that were up to 3 minutes apart); a side without levels has the best price 0
or 1 (recorded messages); sizes are totals, and 0 removes a level (the venue's page); unknown kinds come and go (samples
of recordings).
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import random
import threading
from dataclasses import dataclass, field
from typing import Any, Self

START = 1_767_261_600_000  # [ms]
Book = dict[str, dict[str, str]]
BETTER = {"bids": max, "asks": min}
NONE = {"bids": "0", "asks": "1"}


def message_of(token: str, market: str, ts: int, book: Book) -> dict[str, Any]:
    """A whole book, worst first."""
    sides = {
        side: [
            {"price": p, "size": s}
            for p, s in sorted(book[side].items(), key=lambda x: float(x[0]), reverse=side == "asks")
        ]
        for side in ("bids", "asks")
    }
    return {"event_type": "book", "asset_id": token, "market": market, "timestamp": str(ts), "hash": "h", **sides}


@dataclass
class Stream:
    """Messages of some tokens in their order, and the book of each token after each of its moments.

    ``messages`` has (time [ms], token, message). ``truth`` has for each token the times and books of its moments.
    """

    markets: dict[str, list[str]]
    messages: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    truth: dict[str, list[tuple[int, Book]]] = field(default_factory=dict)

    @classmethod
    def drawn(
        cls, seed: int, *, markets: int = 2, seconds: int = 120, rate: float = 3.0, quiet: float = 0.3, deep: int = 8
    ) -> Stream:
        """Books that change ``rate`` times a second; some tokens are ``quiet`` and change rarely."""
        draw = random.Random(seed)
        names = {f"0xm{m}": [str(1000 + 2 * m), str(1001 + 2 * m)] for m in range(markets)}
        out = cls(names)
        for market, tokens in names.items():
            for token in tokens:
                out._draw_token(draw, market, token, seconds, 0.02 if draw.random() < quiet else rate, deep)
        out.messages.sort(key=lambda x: x[0])
        return out

    def _draw_token(self, draw: random.Random, market: str, token: str, seconds: int, rate: float, deep: int) -> None:
        book: Book = {
            "bids": {f"{0.5 - 0.01 * n:.2f}": f"{draw.randint(1, 900)}" for n in range(1, deep)},
            "asks": {f"{0.5 + 0.01 * n:.2f}": f"{draw.randint(1, 900)}" for n in range(1, deep)},
        }
        ts = START - draw.choice([0, 3_000, 600_000])
        self.truth[token] = [(ts, {s: dict(v) for s, v in book.items()})]
        ts = max(ts, START)
        while (ts := ts + 1 + int(draw.expovariate(rate) * 1000)) < START + seconds * 1000:
            changes = []
            for _ in range(draw.choice([1, 1, 2, 3, 6])):
                side = draw.choice(["bids", "asks"])
                price = f"{0.5 + draw.randint(1, 2 * deep) * (0.01 if side == 'asks' else -0.01):.2f}"
                if not 0 < float(price) < 1 or price in {c["price"] for c in changes}:
                    continue  # nothing tells the order of changes of one level in one moment
                size = "0" if draw.random() < 0.4 else f"{draw.randint(1, 900)}"
                if size == "0":
                    book[side].pop(price, None)
                else:
                    book[side][price] = size
                changes.append({"asset_id": token, "price": price, "size": size,
                                "side": "BUY" if side == "bids" else "SELL", "hash": "o"})  # fmt: skip
            best = {s: BETTER[s](book[s], key=float, default=NONE[s]) for s in book}
            for change in changes:
                change |= {"best_bid": best["bids"], "best_ask": best["asks"]}
            cuts = sorted({0, len(changes), draw.randint(0, len(changes))})
            for a, b in itertools.pairwise(cuts):
                one = {"event_type": "price_change", "market": market, "timestamp": str(ts)}
                self.messages.append((ts, token, one | {"price_changes": changes[a:b]}))
            if changes:
                self.truth[token].append((ts, {s: dict(v) for s, v in book.items()}))
            if draw.random() < 0.03:  # after a trade
                self.messages.append((ts, token, message_of(token, market, ts, book)))

    def market_of(self, token: str) -> str:
        return next(m for m, tokens in self.markets.items() if token in tokens)

    def states(self, tokens: list[str]) -> dict[str, tuple[int, Book]]:
        """The books before the first message."""
        return {t: (self.truth[t][0][0], {s: dict(v) for s, v in self.truth[t][0][1].items()}) for t in tokens}

    def second(self, token: str, second: int) -> Book:
        """The book at the end of a second [Unix s]."""
        moments = self.truth[token]
        return moments[bisect.bisect_left(moments, (second + 1) * 1000, key=lambda moment: moment[0]) - 1][1]


def applied(book: Book, message: dict[str, Any]) -> None:
    """Apply a message to the venue's own book."""
    if message["event_type"] == "book":
        for side in ("bids", "asks"):
            book[side] = {level["price"]: level["size"] for level in message[side]}
        return
    for change in message.get("price_changes", ()):
        side = book["bids" if change["side"] == "BUY" else "asks"]
        if change["size"] == "0":
            side.pop(change["price"], None)
        else:
            side[change["price"]] = change["size"]


def encoded(message: Any) -> bytes:
    """A frame."""
    return json.dumps(message).encode()


class Socket:
    """The channel on a local socket: one stream for all connections, with faults by the number of a message.

    "reset" and "close" end all connections, "stall" is silent for ever; ``down`` messages are missed meanwhile.
    "garbage" is a damaged frame. Messages come as fast as ``pace`` [s] allows, and ``between`` of them pass from one
    connection to the next.
    """

    def __init__(
        self,
        stream: Stream,
        faults: dict[int, str] | None = None,
        *,
        down: int = 0,
        pace: float = 0.0,
        between: int = 0,
    ) -> None:
        self.stream, self.faults, self.down, self.pace = stream, dict(faults or {}), down, pace
        self.between, self._connections = between, 0
        self.at = 0
        self.missed: list[tuple[str, int]] = []
        self.is_half, self.is_over = threading.Event(), threading.Event()
        every = [t for tokens in stream.markets.values() for t in tokens]
        self._books = {t: [ts, book] for t, (ts, book) in stream.states(every).items()}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def book(self, token: str) -> Book:
        """The book of a token at this moment."""
        return self._books[token][1]

    async def _serve(self) -> None:
        from websockets.asyncio.server import serve

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._turn = asyncio.Lock()
        async with serve(self._connection, "127.0.0.1", 0) as server:
            self.address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._ready.set()
            await self._end.wait()

    async def _connection(self, socket: Any) -> None:
        asked = json.loads(await socket.recv())
        tokens = set(asked["assets_ids"])
        reader = asyncio.create_task(self._answer(socket))
        market = self.stream.market_of
        self._connections += 1
        for _ in range(self.between if self._connections > 1 else 0):
            self._next(missed=True)
        try:
            given = [message_of(t, market(t), ts, book) for t, (ts, book) in self._books.items() if t in tokens]
            if given and not self.is_over.is_set():
                await socket.send(json.dumps(given))
            while self.at < len(self.stream.messages):
                fault = self.faults.pop(self.at, None)
                if fault in ("reset", "close", "stall"):
                    for _ in range(self.down):
                        self._next(missed=True)
                    if fault == "reset":
                        socket.transport.abort()
                        return
                    if fault == "close":
                        return
                    reader.cancel()
                    await socket.wait_closed()
                    return
                if fault == "garbage":
                    self._next(missed=True)
                    await socket.send('{"event_type": "book", "asset')
                    continue
                token, message = self._next()
                if token in tokens:
                    await socket.send(json.dumps(message))
                await asyncio.sleep(self.pace)
            self.is_over.set()
            await socket.wait_closed()
        finally:
            reader.cancel()

    def _next(self, *, missed: bool = False) -> tuple[str, dict[str, Any]]:
        last = len(self.stream.messages) - 1
        ts, token, message = self.stream.messages[min(self.at, last)]
        applied(self._books[token][1], message)
        self._books[token][0] = ts
        self.at += 1
        if self.at * 2 > last:
            self.is_half.set()
        if missed:
            self.missed.append((token, ts // 1000))
        return token, message

    async def _answer(self, socket: Any) -> None:
        async for frame in socket:
            if frame == "PING":
                await socket.send("PONG")
