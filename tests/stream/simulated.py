"""A recorder on a simulated clock: a drawn stream with the faults of a network, and what must be stored after it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from reference.stream_stub import START, Book, Stream, applied, encoded, message_of

from marketdata.points.columns import Books, Token
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import channel_of
from marketdata.stream.recorder import Recorder
from marketdata.times import SECOND
from marketdata.wire import polymarket as wire

LAG = 50_000  # from the venue to the recorder [microseconds]


class Day:
    """The venue and the network around one recorder.

    ``faults`` by the number of a message: "drop" (lost by the venue itself), "reset" and "stall" (``down`` messages are
    missed), "close" (none is), "garbage", "unknown", "swap". The clock of the recorder is wrong by ``clock_error``.
    """

    def __init__(
        self, stream: Stream, faults: Mapping[int, str], *, down: int = 0, clock_error: int = 0, every: int = 40
    ) -> None:
        self.stream, self.faults, self.down, self.every = stream, dict(faults), down, every
        self._ahead = LAG + clock_error
        self.recorder = Recorder(channel_of("polymarket", "ws://127.0.0.1:1"), BucketWidth.of("1s"))
        self.books: dict[str, Book] = {}
        self.since: dict[str, int] = {}
        self.messages = list(stream.messages)
        self.missed: list[tuple[str, int]] = []
        self.seen: defaultdict[str, set[int]] = defaultdict(set)
        self.held: dict[tuple[str, int], Book] = {}
        self.lost_at: dict[tuple[str, int], int] = {}
        self.subscribed: dict[int, set[str]] = {}

    def run(self) -> Day:
        """Play all messages."""
        every_token = [t for tokens in self.stream.markets.values() for t in tokens]
        for token, (ts, book) in self.stream.states(every_token).items():
            self.books[token], self.since[token] = book, ts
        self.recorder.choose({m: [Token(m, t) for t in tokens] for m, tokens in self.stream.markets.items()}, 0)
        at = 0
        while at < len(self.messages):
            at = self._step(at)
            if at % self.every == 0:
                self._work(self._now(at))
        now = self._now(len(self.messages) - 1)
        self._pong(now, now)
        self._work(now)
        for number in [*self.recorder.lines]:
            self.recorder.end(number, now, "over")
        self._take()
        return self

    def _now(self, at: int) -> int:
        return self.messages[min(at, len(self.messages) - 1)][0] * 1000 + self._ahead

    def _step(self, at: int) -> int:
        now = self._now(at)
        for number, tokens in self.recorder.connections(now):
            self.subscribed[number] = {str(token.token_id) for token in tokens}
            given = [
                message_of(t, self.stream.market_of(t), self.since[t], self.books[t]) for t in self.subscribed[number]
            ]
            self._send(number, encoded(given), now)
        fault = self.faults.pop(at, None)
        if fault in ("reset", "stall", "close"):
            if fault == "stall":  # noticed when a ping fails; no frame came meanwhile
                self._work(now)
            for ts, token, message in self.messages[at : at + self.down]:
                self._happen(ts, token, message)
                self.missed.append((token, ts // 1000))
            for number in [*self.recorder.lines]:
                self.recorder.end(number, self._now(at + self.down), fault)
            return at + self.down
        if fault == "swap" and at + 1 < len(self.messages):
            first, second = self.messages[at], self.messages[at + 1]
            for ts, token, message in (first, second):
                self._happen(ts, token, message)
            self._give(second, now)
            self._give(first, now)
            return at + 2
        ts, token, message = self.messages[at]
        self._happen(ts, token, message)
        if fault == "drop":
            self.missed.append((token, ts // 1000))
        elif fault == "garbage":
            self.missed.append((token, ts // 1000))
            for number in [*self.recorder.lines]:
                self._send(number, b'{"event_type": "book", "asset', now)
        else:
            if fault == "unknown":
                for number in [*self.recorder.lines]:
                    self._send(number, encoded({"event_type": "new_thing", "id": "1", "timestamp": str(ts)}), now)
            self._give(self.messages[at], now)
        return at + 1

    def _given(self, tokens: Iterable[str]) -> list[dict[str, Any]]:
        """The books of the venue at this moment."""
        return [message_of(t, self.stream.market_of(t), self.since[t], self.books[t]) for t in tokens]

    def _happen(self, ts: int, token: str, message: dict[str, Any]) -> None:
        applied(self.books[token], message)
        self.since[token] = ts

    def _give(self, one: tuple[int, str, dict[str, Any]], now: int) -> None:
        _, token, message = one
        for number in [*self.recorder.lines]:
            if token in self.subscribed[number]:
                self._send(number, encoded(message), now)

    def _send(self, number: int, frame: bytes, now: int) -> None:
        if (why := self.recorder.frame(number, frame, now)) is not None:
            self.recorder.end(number, now, why)

    def _pong(self, sent: int, now: int) -> None:
        for number in [*self.recorder.lines]:
            self.recorder.answered(number, sent, now)

    def _work(self, now: int) -> None:
        for number, why in self.recorder.work(now):
            self.recorder.end(number, now, why)
        for number in self.recorder.surplus():
            self.recorder.end(number, now, "surplus")
        if asked := self.recorder.questions(now):
            self.recorder.compare(asked, wire.books(self._given(asked)), now - 2 * LAG, now)
        self._take()

    def _take(self) -> None:
        got = self.recorder.take()
        for (token, second), book in stored(got.books).items():
            self.held[token, second] = book
        for market, ranges in got.seen.items():
            self.seen[market].update(s for a, b in ranges for s in range(a // SECOND, b // SECOND))
        for market, ranges in got.withdrawn.items():
            gone = {s for a, b in ranges for s in range(a // SECOND, b // SECOND)}
            self.seen[market] -= gone
            for token in self.stream.markets[market]:
                for second in gone:
                    self.held.pop((token, second), None)

    # What came of it

    @property
    def wrong(self) -> list[tuple[str, int]]:
        """Tokens and seconds whose stored book is not that of the venue."""
        numbers = {key: as_numbers(book) for key, book in self.held.items()}
        return [key for key, book in numbers.items() if as_numbers(self.stream.second(*key)) != book]

    @property
    def tally(self) -> Counter[str]:
        """Stored books that are right and wrong, token seconds without one, and missed seconds that are covered."""
        last = self.messages[-1][0] // 1000
        every = len(self.books) * (last - START // 1000)
        wrong = len(self.wrong)
        covered = sum(s in self.seen[self.stream.market_of(t)] for t, s in set(self.missed))
        beside = set(self.held) ^ {
            (t, s) for m, seconds in self.seen.items() for t in self.stream.markets[m] for s in seconds
        }
        return Counter(
            right=len(self.held) - wrong, wrong=wrong, absent=every - len(self.held), missed=len(set(self.missed)),
            missed_but_covered=covered, books_beside_coverage=len(beside),
        )  # fmt: skip


def stored(books: Books) -> dict[tuple[str, int], Book]:
    """Books by token and second."""
    out = {}
    for at, ts in enumerate(books.ts.tolist()):
        sides = {}
        for name, side in (("bids", books.bids), ("asks", books.asks)):
            here = slice(int(side.begins[at]), int(side.begins[at] + side.counts[at]))
            sides[name] = dict(zip(side.price[here].tolist(), side.size[here].tolist(), strict=True))
        out[str(books.token_at(at).token_id), ts // SECOND] = sides
    return out


def as_numbers(book: Book) -> dict[str, dict[float, float]]:
    """Levels by their prices as numbers."""
    return {side: {float(p): float(s) for p, s in levels.items()} for side, levels in book.items()}


def drawn_faults(stream: Stream, kind: str | None, count: int, seed: int) -> dict[int, str]:
    """So many faults of a kind at drawn places."""
    draw, last = random.Random(seed), len(stream.messages) - 1
    return {draw.randrange(last // 8, last - last // 8): kind for _ in range(count)} if kind else {}
