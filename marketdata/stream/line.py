"""One connection's life: its frames become books of buckets that were seen from beginning to end.

All times are the venue's. A frame that states a time proves that everything up to it has arrived, but for messages that
overtake each other by less than `LATENESS`. So does the answer to a ping, up to the moment at which the ping was sent.
When the connection ends, all later is unknown: a gap begins at the last frame received, not where it is noticed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from marketdata.points.columns import Books, Token, Trades
from marketdata.recordings import changes as rule
from marketdata.recordings.changes import CHANGE, SNAPSHOT, STATED, Changes, Rebuilder
from marketdata.recordings.files import ReadOptions
from marketdata.recordings.messages import MessageReader
from marketdata.recordings.rows import converted
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import Channel, Head
from marketdata.times import SECOND, Range
from marketdata.wire.trades import trades

# Messages of different tokens may overtake each other by less than this.
LATENESS = SECOND
# How far from the time of an answer about a book the stream may be, and for how long its books are remembered.
_NEAR, _REMEMBERED = 2 * SECOND, 30 * SECOND
_MOMENT = BucketWidth.of_micros(1000)
_NEVER = 1 << 60
# So many levels are made at once, as a jump of the time may have many buckets.
_MOST_LEVELS = 2_000_000


class Seen(NamedTuple):
    """Books of buckets and prints, and the ranges of each market that were seen from beginning to end."""

    books: list[Books]
    prints: list[Trades]
    ranges: dict[str, list[Range]]


class Line:
    """The books of some markets by the frames of one connection, in their order.

    ``breaks`` are the markets whose books turned out to be unknown since a time. The line ignores them from then on. A
    market counts once the book of each of its tokens has come. ``ended`` are markets that are over by a message.
    """

    def __init__(
        self,
        tokens: Sequence[Token],
        channel: Channel,
        width: BucketWidth,
        keep: Sequence[str],
        offset: int | None = None,
    ) -> None:
        self.tokens = {str(token.token_id): token for token in tokens}
        self.counts = Counter[str]()
        self.breaks: list[tuple[str, int]] = []
        self._ignored: set[str] = set()
        self.ended: set[str] = set()
        # The venue's time up to which everything has arrived, and how far the clock of arrivals is ahead of it.
        self.seen: int | None = None
        self.offset = offset
        self.settled: int | None = None
        self._is_live = False
        self.last_arrival: int | None = None
        self._channel, self._width, self._keep = channel, width, tuple(keep)
        # Wide buckets are not waited for: what came is compared with what the venue states, and need not be kept.
        self._grid = SECOND if width.micros % SECOND == 0 else width.micros
        self._members: dict[str, set[str]] = {}
        for name, token in self.tokens.items():
            self._members.setdefault(token.market_id, set()).add(name)
        self._reader = MessageReader(ReadOptions(keep=self._keep))
        self._pending: list[Changes] = []
        self._rows_of_prints: list[dict[str, Any]] = []
        self._prints: list[Trades] = []
        self._rebuilder = Rebuilder(width, _NEVER, _NEVER)
        self._moments = Rebuilder(_MOMENT, _NEVER, _NEVER, unchanged=False)
        # From when on the book of a token is known; None as long as no later message has told the time.
        self._known: dict[str, int | None] = {}
        self._arrived: dict[str, int] = {}
        self._numbers: dict[Any, int] = {}
        self._last_change: dict[Token, int] = {}
        self._fields: dict[Token, dict[str, Any]] = {}
        # When the best prices of a token, and its whole book, were last as the venue states them.
        self._agreed: dict[str, int] = {}
        self._compared: dict[str, int] = {}
        self._books: dict[str, deque[tuple[int, int]]] = {}
        self._questions: list[tuple[str, int | None, int, int]] = []
        self.doubts: Counter[str] = Counter()

    @property
    def markets(self) -> list[str]:
        """The markets that it does not ignore."""
        return [market for market in self._members if market not in self._ignored]

    @property
    def known_markets(self) -> list[str]:
        """The markets of which all books are known."""
        return [market for market in self.markets if self.first(market) is not None]

    def drop(self, market: str) -> None:
        """Ignore a market from now on."""
        self._ignored.add(market)

    def add(self, frame: bytes, arrival: int) -> str | None:
        """Take a frame. Returns why the connection cannot go on, None if it can; the frame is not taken then."""
        try:
            heads = self._channel.heads(frame, arrival)
        except (ValueError, OverflowError, RecursionError) as problem:
            self.counts["damaged"] += 1
            return f"a frame cannot be read: {str(problem)[:120]}"
        for head in heads:
            if head.number is not None:
                last = self._numbers.get(head.stream)
                if last is not None and head.number != last + 1:
                    self.counts["holes"] += 1
                    return f"message {last + 1} is missing, {head.number} came"
                self._numbers[head.stream] = head.number
        self._reader.add(b'{"received_at":%d,"message":%b}' % (arrival, frame))
        self.last_arrival = arrival
        self.counts["messages"] += len(heads)
        for head in heads:
            self._note(head, arrival)
        if any(head.is_print for head in heads):
            self._rows_of_prints += self._channel.prints(frame)
        return None

    def _note(self, head: Head, arrival: int) -> None:
        for token in head.tokens:
            self._arrived.setdefault(token, arrival)
            if self._known.get(token) is None and token in self.tokens:
                # Known from its arrival on, and a later message tells when that was.
                self._known[token] = None
        if head.ended is not None and head.ended in self._members:
            self.ended.add(head.ended)
        if head.ts is None:
            return
        if not head.is_book:
            if not self._is_live and self.settled is None:  # what was known of the clock may be of another connection
                self.offset, self.seen = arrival - head.ts, head.ts
            self._is_live = True
            self.offset = min(arrival - head.ts, _NEVER if self.offset is None else self.offset)
            for token, since in self._known.items():
                if since is None:
                    self._known[token] = head.ts
        self.seen = max(head.ts, head.ts if self.seen is None else self.seen)

    def answered(self, sent: int, arrival: int) -> None:
        """Take the answer to a ping that was sent at a time, by the clock of arrivals."""
        self.last_arrival = arrival
        at = sent - (self.offset or 0)
        for token, since in self._known.items():
            if since is None and self._arrived[token] <= sent:
                self._known[token] = at
        self.seen = at if self.seen is None else max(self.seen, at)

    def collect(self) -> str | None:
        """Decode the frames so far. Returns why the connection cannot go on, None if it can."""
        batch = self._reader.collected()
        if batch.left_out["damaged"]:
            self.counts["damaged"] += batch.left_out["damaged"]
            return "a message has something unreadable"
        prints, damaged = converted(self._rows_of_prints, trades)
        self._rows_of_prints = []
        self._prints += map(self._own, prints)
        if damaged:
            self.counts["damaged"] += damaged
            return "a trade cannot be read"
        found, _, _ = rule.cleaned(batch.changes)
        tokens = [self.tokens.get(str(token.token_id)) for token in found.tokens]
        wanted = np.array([t is not None and t.market_id not in self._ignored for t in tokens], bool)
        if len(found) and wanted.any():
            mine = [token or Token("") for token in tokens]
            kept = replace(found, tokens=tuple(mine)).take(wanted[found.token])
            gaps = np.flatnonzero(kept.event == rule.GAP)
            for at in gaps.tolist():  # a side without any possible level
                self._break(kept.tokens[kept.token[at]].market_id, int(kept.ts[at]), "unreadable books")
            if not self._channel.dates_books:  # a book is earlier than the changes after it, whatever the clocks say
                of_book = np.isin(kept.row, kept.row[kept.event == SNAPSHOT])
                kept = replace(kept, ts=np.where(of_book, 0, kept.ts))
            if len(kept := self._in_time(kept)):
                self._pending.append(kept)
        return None

    def _own(self, prints: Trades) -> Trades:
        """The prints of the tokens of this line."""
        names = [str(token.token_id) for token in prints.tokens]
        kept = np.array([name in self.tokens for name in names], bool)[prints.token]
        own = [self.tokens.get(name, token) for name, token in zip(names, prints.tokens, strict=True)]
        return prints.with_tokens(own, prints.bounds).take(np.flatnonzero(kept))

    def _in_time(self, rows: Changes) -> Changes:
        """The rows without those that come too late: a change ends what is known of its market."""
        if self.settled is None or not len(early := np.flatnonzero(rows.ts < self.settled)):
            return rows
        of_book = np.isin(rows.row, rows.row[rows.event == SNAPSHOT])
        for at in early[~of_book[early]].tolist():
            market = rows.tokens[rows.token[at]].market_id
            self._break(market, int(rows.ts[at]), "late")
        # A book that is older than the changes that were applied says nothing new.
        last = np.array([self._last_change.get(token, 0) for token in rows.tokens], np.int64)
        return rows.take(~(of_book & (rows.ts < last[rows.token])))

    def _break(self, market: str, since: int, why: str) -> None:
        if market not in self._ignored:
            self.counts[why] += 1
            self.breaks.append((market, since))
            self._ignored.add(market)

    def ready(self) -> int | None:
        """The time up to which everything has arrived, None if there is none yet, or no later one."""
        starts = [since for since in self._known.values() if since is not None]
        if self.seen is None or not starts:
            return None
        if self.settled is None:
            self.settled = min(starts) // self._grid * self._grid
        edge = (self.seen - LATENESS) // self._grid * self._grid
        return edge if edge > self.settled else None

    def settle(self) -> Iterator[Seen]:
        """What was seen since the last call, in parts of bounded size."""
        edge = self.ready()
        while edge is not None and self.settled is not None and self.settled < edge:
            levels = max(1, len(self._rebuilder.open))
            step = max(1, _MOST_LEVELS // levels) * self._width.micros
            yield self._settle(self.settled, min(edge, self.settled + step))

    def _settle(self, start: int, end: int) -> Seen:
        rows = rule.concatenated(self._pending)
        is_now = rows.ts < end
        self._pending = [rows.take(~is_now)]
        rows = rows.take(is_now & self._of_healthy(rows))
        rows = rows.take(np.lexsort((np.arange(len(rows)), rows.ts, rows.token)))
        self._note_last(rows)
        ts = np.maximum(rows.ts, start)
        rows = replace(rows, ts=ts, seen=ts)  # in the order of the venue, from when the books are known
        self._compare_best(rows, end)
        books = [*self._rebuilder.push(rule.concatenated([rows, self._beats(end)]))]
        self._answer(end)
        firsts = {market: first for market in self.markets if (first := self.first(market)) is not None}
        begin, edge = int(self._width.floor(start)), int(self._width.floor(end))
        now = {m: Range(max(first, begin), edge) for m, first in firsts.items() if max(first, begin) < edge}
        prints, late = self._printed(firsts, begin, edge)
        ranges = {m: [*late.get(m, ()), *([now[m]] if m in now else [])] for m in now.keys() | late.keys()}
        self.settled = end
        return Seen([one for part in books if len(one := _inside(part, now))], prints, ranges)

    def _printed(self, firsts: Mapping[str, int], begin: int, end: int) -> tuple[list[Trades], dict[str, list[Range]]]:
        """The prints of known markets in buckets up to a time, and the buckets of those that came after these."""
        prints, waiting, late = list[Trades](), list[Trades](), dict[str, list[Range]]()
        for part in self._prints:
            first = np.array([firsts.get(token.market_id, _NEVER) for token in part.tokens], np.int64)[part.token]
            now = part.take(np.flatnonzero((part.ts < end) & (part.ts >= first)))
            waiting.append(part.take(np.flatnonzero(part.ts >= end)))
            if len(now):
                prints.append(now)
            for at in np.flatnonzero(now.ts < begin).tolist():
                bucket = int(self._width.floor(now.ts[at]))
                late.setdefault(now.token_at(at).market_id, []).append(Range(bucket, bucket + self._width.micros))
        self._prints = [part for part in waiting if len(part)]
        return prints, late

    def _of_healthy(self, rows: Changes) -> Any:
        healthy = np.array([token.market_id not in self._ignored for token in rows.tokens], bool)
        return healthy[rows.token]

    def first(self, market: str) -> int | None:
        """The first bucket in which all books of a market were known from its beginning."""
        known = [self._known.get(name) for name in self._members[market]]
        if any(since is None for since in known):
            return None
        return -int(self._width.floor(-max(since for since in known if since is not None)))

    def _note_last(self, rows: Changes) -> None:
        """Remember the last time, and the last fields, of each token."""
        if not len(rows):
            return
        ends = np.flatnonzero(np.diff(rows.token, append=-1))
        for at in ends.tolist():
            token = rows.tokens[rows.token[at]]
            self._last_change[token] = max(self._last_change.get(token, 0), int(rows.ts[at]))
            self._fields[token] = {name: rows.values[name][at] for name in self._keep if name in rows.values}

    def _beats(self, at: int, only: set[Token] | None = None) -> Changes:
        """A row for each token that says that its book is the same at a time."""
        tokens = [t for t in self._last_change if t.market_id not in self._ignored and (only is None or t in only)]
        count = len(tokens)
        times, floats = np.full(count, at, np.int64), np.full(count, np.nan)
        flags = np.zeros(count, np.int8)
        values: dict[str, Any] = dict.fromkeys(STATED, floats)
        for name in self._keep:
            of = [self._fields[token].get(name) for token in tokens]
            values[name] = np.array(of, object if name == "hash" else float)
        codes = np.arange(count, dtype=np.int32)
        event = np.full(count, CHANGE, np.int8)
        return Changes(tuple(tokens), codes, times, times, event, flags, floats, floats, np.full(count, -1), values)

    # Comparison with what the venue states

    def _compare_best(self, rows: Changes, end: int) -> None:
        """Compare the best prices of each moment, and remember its book."""
        plain = replace(rows, values={name: rows.values[name] for name in STATED if name in rows.values})
        of_book = rows.event == SNAPSHOT
        moments = _MOMENT.floor(rows.ts[of_book]).tolist()
        given = {*zip((rows.tokens[code] for code in rows.token[of_book]), moments, strict=True)}
        moved = set(rows.tokens)
        beats = self._beats(end, moved)
        beats = replace(beats, values={name: beats.values[name] for name in STATED})
        for books in self._moments.push(rule.concatenated([plain, beats])):
            stated = rule.stated_best(books)
            digests = _digests(books)
            for at, (ts, is_checked, is_wrong) in enumerate(
                zip(books.ts.tolist(), stated.checked.tolist(), stated.wrong.tolist(), strict=True)
            ):
                token = books.tokens[books.token[at]]
                name, market = str(token.token_id), token.market_id
                self.counts["checked"] += is_checked
                if is_wrong:
                    self._break(market, self._agreed.get(name, 0), "disagreements")
                elif market not in self._ignored and (is_checked or (token, ts) in given):
                    self._agreed[name] = ts
                self._books.setdefault(name, deque()).append((ts, digests[at]))

    def compare(self, tokens: Iterable[str], books: Books, asked: int, answered: int) -> None:
        """Compare the books of tokens with those that the venue gave between two times, once that is settled.

        The times are by the clock of arrivals. A token without a book there is not traded.
        """
        ids = [str(books.token_at(at).token_id) for at in range(len(books))]
        given = dict(zip(ids, _digests(books), strict=True))
        offset = self.offset or 0
        for name in tokens:
            if name in self._books and self.tokens[name].market_id not in self._ignored:
                self._questions.append((name, given.get(name), asked - offset, answered - offset))

    def _answer(self, end: int) -> None:
        """Judge the comparisons whose time has passed."""
        waiting = []
        for name, digest, asked, answered in self._questions:
            if answered + _NEAR >= end:
                waiting.append((name, digest, asked, answered))
                continue
            known = self._books.get(name, deque())
            ends = [*(ts for ts, _ in known), _NEVER][1:]
            spans = zip(known, ends, strict=True)
            inside = [d for (ts, d), end_of in spans if ts <= answered + _NEAR and end_of > asked - _NEAR]
            self.counts["compared"] += 1
            if digest in inside:
                self._compared[name] = asked - _NEAR
                self.doubts.pop(name, None)
            else:
                self.doubts[name] += 1
                self.counts["doubts"] += 1
        self._questions = waiting
        for known in self._books.values():
            while len(known) > 1 and known[1][0] < end - _REMEMBERED:
                known.popleft()

    def condemn(self, name: str) -> None:
        """End what is known of the market of a token, whose books are no longer those that the venue gives."""
        since = max(self._compared.get(name, 0), self._known.get(name) or 0)
        self.doubts.pop(name, None)
        self._break(self.tokens[name].market_id, since, "deep disagreements")


def _inside(books: Books, ranges: Mapping[str, Range]) -> Books:
    """The books of buckets inside of the range of their market."""
    limits = np.array([ranges.get(token.market_id, (0, 0)) for token in books.tokens], np.int64).reshape(-1, 2)
    start, end = limits[books.token].T if len(books) else (books.ts, books.ts)
    inside = (books.ts >= start) & (books.ts < end)
    return books if inside.all() else books.take(np.flatnonzero(inside))


def _digests(books: Books) -> list[int]:
    """A number of each book that tells it from others."""
    bids, asks = books.bids, books.asks
    limits = (side_limits for side in (bids, asks) for side_limits in (side.begins.tolist(), side.counts.tolist()))
    out = []
    for bid, bids_count, ask, asks_count in zip(*limits, strict=True):
        b, a = slice(bid, bid + bids_count), slice(ask, ask + asks_count)
        parts = (bids.price[b], bids.size[b], asks.price[a], asks.size[a])
        out.append(hash((bids_count, *(part.tobytes() for part in parts))))
    return out
