"""A recorder of books: which markets are on which connection, what was seen of them, and what must be taken back.

It knows no socket, no archive and no clock of its own, so that a day can be tried in seconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from marketdata.points.columns import Books, Token, Trades, joined
from marketdata.points.views import empty
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import Channel
from marketdata.stream.line import Line
from marketdata.times import MINUTE, SECOND, Range

# Books at full depth are compared with those that the venue gives on request this often, so that a message that the
# venue itself lost is found within five minutes; a doubt is asked about again, and the third one ends the book.
COMPARED_EVERY, _ASKED_AGAIN, _MOST_DOUBTS = 150 * SECOND, 4 * SECOND, 3
_FIRST_WAIT, _LONGEST_WAIT = SECOND // 4, MINUTE
# More connections than are needed, before the markets of small ones are put together.
_SPARE = 3


class Recorded(NamedTuple):
    """Books of buckets, prints, and the ranges of each market that were seen.

    What was ``withdrawn`` turned out to be wrong, whether it is among these or was taken before.
    """

    books: Books
    prints: Trades
    seen: dict[str, list[Range]]
    withdrawn: dict[str, list[Range]]


class Recorder:
    """Gives frames to the `Line` of their connection, and markets to connections.

    ``counts`` has messages, gaps and what was found wrong. All times that it is told are those of one clock
    [microseconds].
    """

    def __init__(self, channel: Channel, width: BucketWidth, keep: Sequence[str] = ("tick_size",)) -> None:
        self.channel, self.width, self.keep = channel, width, tuple(keep)
        self.lines: dict[int, Line] = {}
        self.counts = Counter[str]()
        self.reasons = Counter[str]()
        self._wanted: dict[str, tuple[Token, ...]] = {}
        self._due: dict[str, int] = {}  # markets without a connection, and when they may have one
        self._failures: Counter[str] = Counter()
        self._number = 0
        # How far the clock of arrivals is ahead of that of the venue.
        self.offset: int | None = None
        self._books: list[Books] = []
        self._prints: list[Trades] = []
        self._seen: defaultdict[str, list[Range]] = defaultdict(list)
        self._withdrawn: defaultdict[str, list[Range]] = defaultdict(list)
        self._asked: dict[str, int] = {}

    @property
    def markets(self) -> list[str]:
        """The markets that are to be recorded."""
        return [*self._wanted]

    @property
    def known_markets(self) -> int:
        """How many markets have a book of each of their tokens."""
        return sum(len(line.known_markets) for line in self.lines.values())

    @property
    def at(self) -> int | None:
        """The venue's time up to which every connection is settled; None before the first bucket."""
        settled = min((line.settled for line in self.lines.values() if line.settled is not None), default=None)
        return None if settled is None else int(self.width.floor(settled))

    @property
    def levels(self) -> int:
        """How many levels wait to be taken."""
        return sum(int(part.counts.sum()) for part in self._books)

    def choose(self, markets: Mapping[str, Sequence[Token]], now: int) -> None:
        """Record these markets from now on; those that are not among them end."""
        for market in [m for m in self._wanted if m not in markets]:
            del self._wanted[market]
            self._due.pop(market, None)
            for line in self.lines.values():
                if market in line.markets:
                    line.drop(market)
        for market, tokens in markets.items():
            if market not in self._wanted:
                self._wanted[market] = tuple(tokens)
                self._due[market] = now

    def connections(self, now: int) -> list[tuple[int, tuple[Token, ...]]]:
        """Connections to open now, and their tokens; `end` must be told of each that ends."""
        due = [market for market, at in self._due.items() if at <= now]
        if not due:
            return []
        groups: list[list[Token]] = []
        for market in due:
            del self._due[market]
            members = self._wanted[market]
            if not groups or len(groups[-1]) + len(members) > self.channel.most_tokens:
                groups.append([])
            groups[-1] += members
        out = []
        for tokens in groups:
            self._number += 1
            self.lines[self._number] = Line(tokens, self.channel, self.width, self.keep, self.offset)
            out.append((self._number, tuple(tokens)))
        return out

    def surplus(self) -> list[int]:
        """Connections to end, because there are many with few markets: their markets are put together."""
        sizes = {number: sum(len(self._wanted[m]) for m in line.markets) for number, line in self.lines.items()}
        needed = -(-sum(sizes.values()) // self.channel.most_tokens)
        if len(sizes) <= needed + _SPARE:
            return []
        return sorted(sizes, key=sizes.__getitem__)[: len(sizes) - needed]

    def frame(self, number: int, frame: bytes, arrival: int) -> str | None:
        """Take a frame of a connection. Returns why it must end, None if it goes on."""
        return self.lines[number].add(frame, arrival) if number in self.lines else None

    def answered(self, number: int, sent: int, arrival: int) -> None:
        """Take the answer to a ping that was sent at a time."""
        if number in self.lines:
            self.lines[number].answered(sent, arrival)

    def end(self, number: int, now: int, why: str) -> None:
        """A connection has ended: what it saw to its end is taken, and its markets wait for another one."""
        line = self.lines.get(number)
        if line is None:
            return
        self._settle(line, now)
        del self.lines[number]
        if line.known_markets:
            self.counts["gaps"] += 1
        self.reasons[why] += 1
        for market in line.markets:
            first = line.first(market)
            is_healthy = first is not None and line.settled is not None and line.settled > first
            self._wait(market, now, is_healthy=is_healthy)

    def work(self, now: int) -> list[tuple[int, str]]:
        """Decode and settle what has come. Returns connections to end, and why."""
        over = {number: why for number, line in self.lines.items() if (why := self._settle(line, now)) is not None}
        empty_lines = {number: "no market is left on it" for number, line in self.lines.items() if not line.markets}
        return [*{**empty_lines, **over}.items()]

    def _wait(self, market: str, now: int, *, is_healthy: bool) -> None:
        """Let a market wait for its next connection, longer each time that nothing was seen of it."""
        self._failures[market] = 0 if is_healthy else self._failures[market] + 1
        self._due[market] = now + min(_FIRST_WAIT << min(self._failures[market], 10), _LONGEST_WAIT)

    def _settle(self, line: Line, now: int) -> str | None:
        why = line.collect()
        for seen in line.settle() if why is None else ():
            self._books += seen.books
            self._prints += seen.prints
            for market, ranges in seen.ranges.items():
                self._seen[market] += ranges
        for market in line.ended & self._wanted.keys():
            self.counts["ended"] += 1
            del self._wanted[market]
            line.drop(market)
        for token in [name for name, count in line.doubts.items() if count >= _MOST_DOUBTS]:
            line.condemn(token)
        for market, since in line.breaks:
            self._withdraw(line, market, since)
            if market in self._wanted:
                self._wait(market, now, is_healthy=False)
        line.breaks.clear()
        self.offset = line.offset if line.offset is not None else self.offset
        self.counts += line.counts
        line.counts.clear()
        return why

    def _withdraw(self, line: Line, market: str, since: int) -> None:
        """Take back what was seen of a market since a time."""
        self.counts["gaps"] += 1
        first, end = line.first(market), line.settled
        if first is not None and end is not None:
            rng = Range(max(int(self.width.floor(since)), first), end)
            self._withdrawn[market] += [rng] if rng.start < rng.end else []

    def take(self) -> Recorded:
        """What was recorded since the last call."""
        books: Books = joined(self._books).sort() if self._books else empty("books")  # type: ignore[assignment]
        prints: Trades = joined(self._prints).sort() if self._prints else Trades.empty()
        out = Recorded(books, prints, dict(self._seen), dict(self._withdrawn))
        self._prints = []
        self._books, self._seen, self._withdrawn = [], defaultdict(list), defaultdict(list)
        return out

    # Comparison with books that the venue gives on request

    def questions(self, now: int) -> list[str]:
        """Tokens whose books are to be asked for now."""
        out = []
        for line in self.lines.values():
            for market in line.known_markets:
                for token in self._wanted.get(market, ()):
                    name = str(token.token_id)
                    every = _ASKED_AGAIN if line.doubts[name] else COMPARED_EVERY
                    if now - self._asked.setdefault(name, now) >= every:
                        self._asked[name] = now
                        out.append(name)
        return out

    def compare(self, tokens: Sequence[str], books: Books, asked: int, answered: int) -> None:
        """Compare books that the venue gave between two times for these tokens."""
        for line in self.lines.values():
            line.compare([name for name in tokens if name in line.tokens], books, asked, answered)
