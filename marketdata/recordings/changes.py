"""Books from the changes of their levels, and changes from books.

A snapshot starts the book of a token, a change sets the size of one level, and size 0 removes it. Rows are not applied
one by one. Each row sets its level until the next row of the same level. So one sort by (token, side, price) tells for
which buckets every level stays, and a book has the levels that stay in its bucket.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Codes, Floats, Ints, Token, joined, ranges, values_of
from marketdata.points.order import ascending
from marketdata.points.probability import no_probability
from marketdata.points.resample import run_ends
from marketdata.points.schema import TOLERANCE
from marketdata.points.views import empty
from marketdata.recordings.arrivals import CLOCK_ERROR, OLD_STATE, UNSTATED, Arrivals, VenueClock
from marketdata.resolution import BucketWidth
from marketdata.times import to_text

Bools = NDArray[np.bool_]
EVENTS = ("change", "snapshot", "gap")
CHANGE, SNAPSHOT, GAP = range(len(EVENTS))
BIDS, ASKS = 0, 1
# Millionths tell prices apart, because the finest tick of a venue is a ten-thousandth.
_TICKS, _TICK_BITS = 1_000_000, 20
# Parts of this many rows and tokens are fast, because they stay in the processor's cache. More levels need much memory.
_PART_ROWS, _PART_TOKENS, _PART_LEVELS = 1 << 18, 256, 1 << 21
_NEVER = 1 << 62
# The row of the levels of a book that was open before.
_OPEN = -2
STATED = ("stated_bid", "stated_ask")


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """One entry per changed level, in the order of messages for each token.

    ``event`` is SNAPSHOT in the first entry of a whole book, GAP where the book became unknown, else CHANGE. An entry
    whose price is NaN has no level: the book was empty, unknown or the same. ``ts`` is the time that buckets go by, and
    ``seen`` the time at which the recording is known to have gone on. ``row`` is the number of the row or message in
    its file, negative for none. ``values`` are fields of the snapshot after the change. Among them `STATED` are the
    best bid and ask that the message names, NaN if it names none; a side that it calls empty is 0 for bids and 1 for
    asks.
    """

    tokens: tuple[Token, ...]
    token: Codes
    ts: Ints
    seen: Ints
    event: NDArray[np.int8]
    side: NDArray[np.int8]
    price: Floats
    size: Floats
    row: Ints
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The columns with one value per entry, by name, without ``values``."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("tokens", "values")}

    def take(self, index: NDArray[np.integer] | Bools | slice) -> Changes:
        """The entries at these positions."""
        arrays = {name: array[index] for name, array in self.arrays().items()}
        return Changes(self.tokens, **arrays, values={name: v[index] for name, v in self.values.items()})

    def arrivals(self) -> Arrivals:
        """When the entries arrived; changes, and books newer than an entry before, tell when they were sent."""
        order = np.argsort(self.token, kind="stable")
        token, event, ts, seen = self.token[order], self.event[order], self.ts[order], self.seen[order]
        same_token = np.diff(token, prepend=-1) == 0
        is_newer = same_token & (np.diff(ts, prepend=0) > 0)
        continues = same_token & (event == CHANGE) & (np.diff(ts, prepend=0) == 0) & (np.diff(seen, prepend=0) == 0)
        first = np.maximum.accumulate(np.where(continues, 0, np.arange(len(ts))))
        is_sent = ((event == CHANGE) | ((event == SNAPSHOT) & is_newer))[first]
        return Arrivals(seen, np.where(event == GAP, UNSTATED, ts), is_sent)


def no_changes() -> Changes:
    """Changes without an entry."""
    codes, ints = np.empty(0, np.int32), np.empty(0, np.int64)
    flags, floats = np.empty(0, np.int8), np.empty(0)
    return Changes((), codes, ints, ints, flags, flags, floats, floats, ints)


def concatenated(parts: list[Changes]) -> Changes:
    """The entries of all parts, part after part; equal tokens become one, and a token without an entry goes."""
    code_of: dict[Token, int] = {}
    codes = []
    parts = [part for part in parts if len(part)] or [no_changes()]
    for part in parts:
        used = np.bincount(part.token, minlength=len(part.tokens)) > 0
        new = [code_of.setdefault(t, len(code_of)) if u else 0 for t, u in zip(part.tokens, used.tolist(), strict=True)]
        codes.append(np.array(new, np.int32)[part.token])
    if len(parts) == 1:  # no copy, because a recording may be large
        return replace(parts[0], tokens=tuple(code_of), token=codes[0])
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0].arrays()}
    types = {name: v.dtype for part in parts for name, v in part.values.items()}
    values = {name: np.concatenate([values_of(part, name, types[name]) for part in parts]) for name in types}
    return Changes(tuple(code_of), **{**arrays, "token": np.concatenate(codes)}, values=values)


def in_last_bucket(changes: Changes, width: BucketWidth) -> Bools:
    """True for entries in the last bucket of their token; entries of a token are adjacent."""
    if not len(changes):
        return np.zeros(0, bool)
    bucket, place = width.floor(changes.ts), np.arange(len(changes))
    starts = np.flatnonzero(np.diff(changes.token, prepend=-1))
    lengths = run_ends(starts, len(changes)) - starts
    last_bucket = np.repeat(bucket[starts + lengths - 1], lengths)
    # The last place that is in another bucket.
    border = np.maximum.reduceat(np.where(bucket != last_bucket, place, -1), starts)
    return place > np.repeat(border, lengths)


def first_rows(changes: Changes) -> Changes:
    """The entries token after token, with SNAPSHOT only in the first of adjacent rows of equal time."""
    changes = changes.take(np.argsort(changes.token, kind="stable"))
    again = changes.event == SNAPSHOT
    for column in (changes.event, changes.token, changes.ts):
        again &= np.diff(column, prepend=-1) == 0
    return replace(changes, event=np.where(again, CHANGE, changes.event).astype(np.int8))


def out_of_order(changes: Changes, latest: dict[Token, int]) -> tuple[int, int]:
    """How many entries are earlier than a previous one of their token, and how many are too early for clock errors.

    ``latest`` has the latest time of each token in the parts before, and is updated.
    """
    early = too_early = 0
    order = np.argsort(changes.token, kind="stable")
    borders = np.searchsorted(changes.token[order], np.arange(1, len(changes.tokens)))
    for token, entries in zip(changes.tokens, np.split(order, borders), strict=False):
        if len(entries):
            highest = np.maximum.accumulate(np.append(latest.get(token, 0), changes.seen[entries]))
            back = highest[:-1] - changes.seen[entries]
            early += int(np.count_nonzero(back > 0))
            too_early += int(np.count_nonzero(back > CLOCK_ERROR))
            latest[token] = int(highest[-1])
    return early, too_early


def by_time(changes: Changes) -> Changes:
    """Entries by token and time; entries of one message stay together and in their order.

    Messages of one moment stay in the order of the file, or in the opposite order if the file has the newest first.
    """
    steps = np.diff(changes.seen)
    row = -changes.row if (steps < 0).sum() > (steps > 0).sum() else changes.row
    return changes.take(np.lexsort((np.arange(len(changes)), row, changes.ts, changes.seen, changes.token)))


class StatedBest(NamedTuple):
    """Which books have best prices as stated, which of these differ, and both pairs of prices, 0 and 1 for no level."""

    checked: Bools
    wrong: Bools
    stated: Floats
    best: Floats


def stated_best(books: Books) -> StatedBest:
    """Compare the best prices of books with those that their messages state."""
    stated = np.stack([values_of(books, name, np.dtype(float)) for name in STATED], axis=1)
    best = np.nan_to_num(np.stack((books.bids.best, books.asks.best), axis=1))
    best[books.asks.counts == 0, 1] = 1.0
    checked = ~np.isnan(stated).any(axis=1)
    return StatedBest(checked, checked & (np.abs(best - stated) > TOLERANCE).any(axis=1), stated, best)


@dataclass
class Tally:
    """Counts of what the changes contained.

    ``levels`` were set, ``applied`` rows took part in a book, ``unknown`` rows came before one. Times went ``back``.
    ``checked`` books have stated best prices, and ``disagreements`` of these differ; ``first`` tells of one that does.
    ``two_sided`` books have both sides, and ``crossed`` of these a bid above an ask.
    """

    levels: int = 0
    applied: int = 0
    unknown: int = 0
    gaps: int = 0
    back: int = 0
    checked: int = 0
    disagreements: int = 0
    first: str = ""
    two_sided: int = 0
    crossed: int = 0

    @property
    def disagreement(self) -> str:
        """The message about books that differ from the best prices that messages state."""
        count = f"{self.disagreements} of {self.checked} books"
        return f"{count} do not have the best prices that are stated. The first is of {self.first}"

    def books_of(self, parts: list[Books]) -> Books:
        """One book per token and bucket, the later of two; counts books whose best prices are not as stated."""
        books: Books = joined(parts) if parts else empty("books")  # type: ignore[assignment]
        order = np.lexsort((books.ts, books.token))
        token, ts = books.token[order], books.ts[order]
        books = books.take(order[np.append((np.diff(token) != 0) | (np.diff(ts) != 0), True)[: len(order)]])
        is_two_sided = (books.bids.counts > 0) & (books.asks.counts > 0)
        self.two_sided += int(is_two_sided.sum())
        self.crossed += int((books.bids.best > books.asks.best)[is_two_sided].sum())
        checked, is_wrong, stated, best = stated_best(books)
        wrong = np.flatnonzero(is_wrong)
        self.checked += int(checked.sum())
        self.disagreements += len(wrong)
        if len(wrong) and not self.first:
            at = int(wrong[0])
            names, rebuilt = (" / ".join(f"{price:g}" for price in pair[at]) for pair in (stated, best))
            token_id = str(books.token_at(at).token_id)[:100]
            self.first = f"token {token_id!r} at {to_text(int(books.ts[at]))}: stated {names}, rebuilt {rebuilt}"
        return replace(books, values={name: v for name, v in books.values.items() if name not in STATED})


# Which open books end: none, those that are no longer valid ("over"), all, or all with a new start.
_Closing = Literal["none", "over", "all", "restart"]


@dataclass
class Rebuilder:
    """The last book that was known in each bucket, from parts of a recording, in bounded memory.

    A book is valid from its snapshot on while the recording goes on. A snapshot that ends an unknown time is known from
    its arrival on, by the venue's clock, however old its state is. A book ends at a hole above ``max_gap``
    [microseconds] between two messages of whatever token, and after ``max_age`` without a message of its own token.
    After that, and where a message says so, the book is unknown until the next snapshot. The bucket in which a book
    ends has it, and so has the one in which the recording ends. With ``whole`` a bucket in which a row says that the
    book became unknown has none, unless a snapshot follows in it. With ``unchanged`` a bucket
    without a message of the token has its valid book, without it none. Books still open at the end of a part are in
    ``open``, as rows of snapshots.
    """

    width: BucketWidth
    max_gap: int
    max_age: int
    unchanged: bool = True
    whole: bool = False
    open: Changes = field(default_factory=no_changes)
    last_seen: int | None = None
    # The last time before this file, whether this file has a token that was open then, and its holes.
    last_seen_before: int | None = None
    met_open_token: bool = False
    holes: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    clock: VenueClock = field(default_factory=VenueClock)
    tally: Tally = field(default_factory=Tally)

    @property
    def most_back(self) -> int:
        """Largest step back in time within a recording [microseconds]."""
        return min(self.max_gap, CLOCK_ERROR)

    def received(self, arrivals: Arrivals) -> Iterator[Books]:
        """Note the times of messages; yields the books that end where another recording begins at an earlier time."""
        if not len(arrivals.seen):
            return
        times = np.sort(arrivals.seen)
        if self.last_seen is not None and times[0] < self.last_seen - self.most_back:
            yield from self.finish()
            self.open, self.last_seen, self.last_seen_before = no_changes(), None, None
            self.holes, self.clock = self.holes[:0], VenueClock()
        self.clock = self.clock.noting(arrivals)
        if self.last_seen is not None:
            times = np.append(self.last_seen, times[times > self.last_seen])
        wide = np.flatnonzero(np.diff(times) > self.max_gap)
        new_holes = np.column_stack((times[wide], times[wide + 1]))
        self.tally.gaps += len(new_holes)
        self.holes, self.last_seen = np.concatenate((self.holes, new_holes)), int(times[-1])

    def push(self, changes: Changes) -> Iterator[Books]:
        """Books of the buckets that ended before the last row of each token; its times must have been `received`."""
        tokens = set(changes.tokens)
        continues = np.array([t in tokens for t in self.open.tokens], bool)[self.open.token]
        self.tally.levels += int(np.count_nonzero(~np.isnan(changes.price)))
        self.tally.gaps += int(np.count_nonzero(changes.event == GAP))
        self.met_open_token |= bool(continues.any())
        untouched, applied = self.open.take(~continues), self.tally.applied
        yield from self.rebuilt(concatenated([self.open.take(continues), changes]), "none")
        self.open = concatenated([untouched, self.open])
        self.tally.unknown += _count_rows(changes.row) - (self.tally.applied - applied)

    def end(self) -> Iterator[Books]:
        """The end of a file: books that are no longer valid come out, and are forgotten.

        A file without any token that was open before it belongs to another recording, which ends these books.
        """
        yield from self.rebuilt(self.open, "over")
        self.last_seen_before, self.holes, self.met_open_token = self.last_seen, self.holes[:0], False
        self.clock = self.clock.recent()

    def finish(self) -> Iterator[Books]:
        """All books that are valid until now; they stay open, in case the recording goes on."""
        yield from self.rebuilt(self.open, "all")

    def restart(self) -> Iterator[Books]:
        """The books that are valid until now, which end here, as another connection begins."""
        yield from self.rebuilt(self.open, "restart" if self.whole else "all")
        self.open = no_changes()

    def rebuilt(self, rows: Changes, closing: _Closing) -> Iterator[Books]:
        """Books of rows, in order within each token; ``open`` becomes the books that are open after them."""
        if np.any(rows.token[1:] < rows.token[:-1]):
            rows = rows.take(np.argsort(rows.token, kind="stable"))
        still_open, applied = list[Changes](), [rows.row[:0]]
        starts = np.flatnonzero(np.diff(rows.token, prepend=-1))
        number = starts // _PART_ROWS + np.arange(len(starts)) // _PART_TOKENS
        cuts = np.append(starts[np.flatnonzero(np.diff(number, prepend=-1))], len(rows))
        for a, b in itertools.pairwise(cuts.tolist()):
            part = _Part(rows.take(slice(a, b)), self, closing)
            applied.append(part.rows.row[part.has_book[part.of]])
            still_open.append(part.open())
            yield from part.books(self.width, unchanged=self.unchanged)
        self.open = concatenated(still_open)
        self.tally.applied += _count_rows(np.concatenate(applied))

    def valid_until(self, ts: Ints, seen: Ints) -> tuple[Ints, Bools]:
        """The end of validity of the books of these last rows, and whether it has passed."""
        last_seen = seen if self.last_seen is None else np.maximum(self.last_seen, seen)
        limit, over = last_seen, np.zeros(len(ts), bool)
        if self.last_seen_before is not None and not self.met_open_token:
            over = (seen <= self.last_seen_before) & (last_seen > self.last_seen_before)
            limit = np.where(over, self.last_seen_before, limit)
        next_hole = np.append(self.holes[:, 0], _NEVER)[np.searchsorted(self.holes[:, 0], seen)]
        limit = np.minimum(limit, next_hole)
        over |= (next_hole < _NEVER) | (limit - seen > self.max_age)
        until = self.clock.at(np.minimum(limit, seen + self.max_age))
        return np.where(limit > seen, np.maximum(ts, until), ts), over


def _count_rows(row: Ints) -> int:
    return int((ascending(row) >= 0).sum())


class _Part:
    """Rows in runs without a gap, and the edges of buckets from which on, and before which, each level stays.

    Row i belongs to run ``of[i]`` and to a ``bucket``. A run begins in ``starts``, is a book if it begins with one, and
    has a number of ``edges``: the ends of the buckets that its book fills. ``last_row`` has for each edge the last row
    before it, -1 if that is in an earlier bucket. Levels are by run, side and price; ``row`` set one.
    """

    def __init__(self, rows: Changes, state: Rebuilder, closing: _Closing) -> None:
        self.rows, width = rows, state.width
        same_token = rows.token[1:] == rows.token[:-1]
        is_snapshot = rows.event == SNAPSHOT
        # The state of a book may be much older than its message.
        step = np.where(is_snapshot[1:] & (np.diff(rows.seen) >= 0), 0, np.diff(rows.ts))
        went_back = same_token & (step < -state.most_back)
        hole = np.searchsorted(state.holes[:, 1], rows.seen, side="right")
        broken = went_back | (same_token & ((np.diff(rows.seen) > state.max_age) | (np.diff(hole) != 0)))
        begins = np.append(True, ~same_token | broken | (rows.event[1:] != CHANGE))
        self.starts, self.of = np.flatnonzero(begins), np.cumsum(begins) - 1
        self.has_book = is_snapshot[self.starts]
        steps_back = np.count_nonzero(same_token & (step < 0))
        state.tally.back += int(steps_back)
        ts = self._known_from(state, np.append(True, ~same_token | broken))
        if np.any(same_token & (np.diff(ts) < 0)):  # the latest time so far counts
            restarts = np.flatnonzero(~same_token | went_back) + 1
            ts = np.concatenate([np.maximum.accumulate(part) for part in np.split(ts, restarts)])
        self.bucket = width.floor(ts)
        self.last = run_ends(self.starts, len(rows)) - 1
        self.last_ts = ts[self.last]
        until, over = state.valid_until(self.last_ts, rows.seen[self.last])
        # A run fills buckets up to the next run of its token, unless the book ends before.
        borders, next_start = self.starts[1:] - 1, np.append(self.starts[1:], 0)
        follows, in_break, going_back = (np.append(flags[borders], False) for flags in (same_token, broken, went_back))
        is_over = ~follows & (over if closing == "over" else closing != "none")
        ended = [going_back, in_break | is_over, follows & (rows.event[next_start] == GAP)]
        end_of_book = np.select(ended, [self.last_ts, until, np.maximum(self.last_ts, ts[next_start] - 1)])
        next_bucket = self.bucket[np.where(follows, next_start, self.last)]
        end = np.where(np.any(ended, axis=0), width.floor(end_of_book) + width.micros, next_bucket)
        if state.whole:  # what came after the gap in its bucket is not known
            last_whole = width.floor(np.where(ended[2], end_of_book + 1, end_of_book))
            end = np.where(ended[2] | (closing == "restart"), np.minimum(end, last_whole), end)
        has_book = self.has_book
        self.is_open = ~follows & has_book & ~(is_over & (closing == "over"))
        first_bucket = self.bucket[self.starts]
        if state.unchanged:
            place = (self.bucket - first_bucket[self.of]) // width.micros
            edges = np.maximum((end - first_bucket) // width.micros, 0)
        else:  # only buckets with a row are edges
            number = np.cumsum(begins | (np.diff(self.bucket, prepend=0) != 0))
            place = number - number[self.starts][self.of]
            edges = np.maximum.reduceat(np.where(self.bucket < end[self.of], place + 1, 0), self.starts)
        self.edges = np.where(has_book, edges, 0)
        self._find_levels(place, np.flatnonzero(has_book[self.of] & ~np.isnan(rows.price)))

    def _known_from(self, state: Rebuilder, is_cut: Bools) -> Ints:
        """The times of the rows: what ends an unknown time is known from its arrival on, however old its state is."""
        rows, starts = self.rows, self.starts
        follows_a_book = np.append(np.zeros(len(starts[:1]), bool), self.has_book[:-1]) & ~is_cut[starts]
        first = starts[self.has_book & ~follows_a_book & (rows.row[starts] != _OPEN)]
        gaps = np.flatnonzero(rows.event == GAP)
        if not len(first) and not len(gaps):
            return rows.ts
        ts = rows.ts.copy()
        # A change was sent after the book that it changes had arrived.
        later = np.where(rows.ts > rows.ts[starts][self.of], rows.ts, _NEVER)
        next_change = np.minimum.reduceat(later, starts)[self.of[first]]
        arrival = np.minimum(state.clock.at(rows.seen[first]), next_change)
        ts[first] = np.where(arrival - ts[first] > OLD_STATE, arrival, ts[first])
        ts[gaps] = np.minimum(ts[gaps], state.clock.at(rows.seen[gaps]))
        return ts

    def _find_levels(self, place: Ints, setting: Ints) -> None:
        """Find where the levels of the ``setting`` rows stay; ``place`` numbers the edge of each row in its run."""
        self.ends = np.cumsum(self.edges)
        fills = self.edges[self.of]
        in_a_bucket = np.flatnonzero(place < fills)
        edge = np.minimum(place, fills) + (self.ends - self.edges)[self.of]
        self.last_row = np.full(int(self.ends[-1]), -1)
        self.last_row[edge[in_a_bucket]] = in_a_bucket  # of several rows the last one stays
        order, is_last = _order(self.of[setting], self.rows.side[setting], ticks(self.rows.price[setting]))
        self.row = setting[order]
        self.begin = edge[self.row]
        self.stop = np.append(self.begin[1:], 0)[: len(order)]
        self.last_of_level = self.row[is_last]
        self.stop[is_last] = self.ends[self.of[self.last_of_level]]

    def books(self, width: BucketWidth, *, unchanged: bool) -> Iterator[Books]:
        """The books at the edges, in parts of whole runs."""
        rows, ends = self.rows, self.ends
        run = np.repeat(np.arange(len(ends)), self.edges)
        if unchanged:
            number = np.arange(len(run)) - (ends - self.edges)[run]
            bucket = self.bucket[self.starts[run]] + number * width.micros
        else:
            bucket = self.bucket[self.last_row]
        stays = np.flatnonzero((rows.size[self.row] > 0) & (self.stop > self.begin))
        begin, stop, row = self.begin[stays], self.stop[stays], self.row[stays]
        of, side, price, size = self.of[row], rows.side[row], rows.price[row], rows.size[row]
        weights = np.bincount(of, stop - begin, minlength=len(ends))
        part = (np.cumsum(weights) - weights) // _PART_LEVELS
        cuts = np.append(np.flatnonzero(np.diff(part, prepend=-1)), len(ends))
        for a, b in itertools.pairwise(cuts.tolist()):
            low, high = int(ends[a] - self.edges[a]), int(ends[b - 1])
            if low == high:
                continue
            here = slice(*np.searchsorted(of, [a, b]))
            lengths = stop[here] - begin[here]
            # The edge of each level in the upper half and its place in the lower half, because numbers are sorted fast.
            packed = ranges(begin[here] - low, lengths) << 32
            packed |= np.repeat(np.arange(here.stop - here.start), lengths)
            packed.sort()
            pick = (packed & 0xFFFFFFFF) + here.start
            counts = np.bincount((packed >> 32 << 1) + side[pick], minlength=2 * (high - low))
            values = self._values(self.last_row[low:high])
            no_bounds = np.zeros(1, np.int64)
            books = Books.of_levels((), no_bounds, bucket[low:high], counts, price[pick], size[pick], values)
            yield books.grouped(rows.tokens, rows.token[self.starts[run[low:high]]])

    def _values(self, last_row: Ints) -> dict[str, NDArray[Any]]:
        """Values of books by their last rows: best prices as stated in their bucket, fields as last stated."""
        # The first edge of each run has a row, so the running maximum stays in the run.
        latest = np.maximum.accumulate(last_row)
        return {
            name: np.where(last_row >= 0, v[latest], np.nan) if name in STATED else v[latest]
            for name, v in self.rows.values.items()
        }

    def open(self) -> Changes:
        """The open books, each a snapshot at the time of its last row; an empty one is a row without a level."""
        rows = self.rows
        last_of_level = self.last_of_level[rows.size[self.last_of_level] > 0]
        kept = last_of_level[self.is_open[self.of[last_of_level]]]
        empty = self.last[np.setdiff1d(np.flatnonzero(self.is_open), self.of[kept])]
        index = np.concatenate((kept, empty))
        index = index[np.argsort(self.of[index], kind="stable")]
        run = self.of[index]
        event = np.where(np.diff(run, prepend=-1) != 0, SNAPSHOT, CHANGE).astype(np.int8)
        price = np.where(np.isin(index, empty), np.nan, rows.price[index])
        state, side, size = rows.take(self.last[run]), rows.side[index], rows.size[index]
        row = np.full(len(index), _OPEN)
        books = replace(state, ts=self.last_ts[run], event=event, side=side, price=price, size=size, row=row)
        return concatenated([books])


def ticks(price: Floats) -> Ints:
    """Prices as whole numbers in their order: millionths, or ranks if millionths are too coarse."""
    scaled = price * _TICKS
    whole = np.rint(scaled)
    scaled -= whole
    if not len(price) or (
        -1e-3 < scaled.min() <= scaled.max() < 1e-3 and whole.min() >= 0 and whole.max() < 1 << _TICK_BITS
    ):
        return whole.astype(np.int64)
    return np.unique(price, return_inverse=True)[1].astype(np.int64)


def _order(run: Ints, side: NDArray[np.int8], tick: Ints) -> tuple[Ints, Bools]:
    """The order by run, side (bids first), price (best first) and place, and whether each is the last of its level."""
    most = int(tick.max(initial=0))
    key = run << 1
    key |= side
    key <<= most.bit_length()
    np.subtract(most, tick, out=tick, where=side == BIDS)  # the best bid is the highest
    key |= tick
    place_bits = len(key).bit_length()
    if int(key.max(initial=0)).bit_length() + place_bits > 64:
        key = np.unique(key, return_inverse=True)[1].astype(np.int64)
    # Numbers with their place in the lowest bits are sorted many times faster than places by their numbers.
    key <<= place_bits
    key |= np.arange(len(key))
    packed = key.view(np.uint64)
    packed.sort()
    key = (packed >> np.uint64(place_bits)).view(np.int64)
    order = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
    return order, np.append(key[1:] != key[:-1], True)[: len(key)]


def rebuild(
    changes: Changes,
    width: BucketWidth,
    *,
    max_gap: int,
    max_age: int,
    unchanged: bool = True,
    received: Arrivals | None = None,
) -> tuple[Books, Tally]:
    """Books of all rows at once, as `Rebuilder` says; ``received`` are all messages, by default those of the rows."""
    state = Rebuilder(width, max_gap, max_age, unchanged)
    arrivals = changes.arrivals() if received is None else received
    steps = (state.received(arrivals), state.push(changes), state.finish())
    return state.tally.books_of([part for step in steps for part in step]), state.tally


def snapshots(changes: Changes, width: BucketWidth) -> tuple[list[Books], Ints]:
    """The last snapshot of each token and bucket, and the numbers of its rows.

    Entries are by token and time. Each snapshot, from a SNAPSHOT to the next one, is the book of its own moment.
    """
    state = Rebuilder(width, _NEVER, _NEVER, unchanged=False)
    starts, of = np.flatnonzero(changes.event == SNAPSHOT), np.cumsum(changes.event == SNAPSHOT) - 1
    token, bucket = changes.token[starts], width.floor(changes.ts[starts])
    is_last = np.append((np.diff(token) != 0) | (np.diff(bucket) != 0), True)
    return list(state.rebuilt(changes, "all")), ascending(changes.row[is_last[of]])


def diff(books: Books, width: BucketWidth) -> Changes:
    """The changes between books of this width, in tidy order; `rebuild` makes the same books from them.

    The first book of a token, and a book after a missing bucket, is a snapshot in all of its rows. A gap marks the end
    of the bucket before it. A book that equals the one before is a row without a level.
    """
    books = books.sort()
    count = len(books)
    follows = np.zeros(count, bool)
    follows[1:] = (books.token[1:] == books.token[:-1]) & (np.diff(books.ts) <= width.micros)
    book, side, price, size = _moved_levels(books, follows)
    unmoved = np.delete(np.arange(count), book)
    ends = np.flatnonzero(~np.append(follows[1:], False)[:count])
    ends = ends[books.ts[ends] + width.micros <= books.ts.max(initial=0)]
    of = np.concatenate((book, unmoved, ends))
    is_gap = np.arange(len(of)) >= len(book) + len(unmoved)
    order = np.lexsort((np.arange(len(of)), is_gap, of))
    without_level = np.full(len(unmoved) + len(ends), np.nan)
    of, is_gap = of[order], is_gap[order]
    side = np.append(side, np.zeros(len(without_level), np.int8))[order]
    price, size = (np.append(values, without_level)[order] for values in (price, size))
    event = np.where(is_gap, GAP, np.where(follows[of], CHANGE, SNAPSHOT)).astype(np.int8)
    ts = books.ts[of] + np.where(is_gap, width.micros, 0)
    return Changes(books.tokens, books.token[of], ts, ts, event, side, price, size, np.arange(len(of)))


def _moved_levels(books: Books, follows: Bools) -> tuple[Ints, NDArray[np.int8], Floats, Floats]:
    """Levels whose size differs from the book before: book, side, price and new size."""
    book = np.repeat(np.arange(len(books)), books.counts.reshape(-1, 2).sum(axis=1))
    side = np.repeat(np.tile([BIDS, ASKS], len(books)), books.counts).astype(np.int8)
    price, size = books.levels()
    # Each level is repeated as size 0 of the next book, before the levels of the next book.
    repeats = np.append(follows[1:], False)[book]
    count = int(repeats.sum())
    of = np.concatenate((book[repeats] + 1, book))
    side, price = np.concatenate((side[repeats], side)), np.concatenate((price[repeats], price))
    old = np.append(size[repeats], np.zeros(len(book)))
    new = np.append(np.zeros(count), size)
    order, is_last = _order(of, side, ticks(price))
    last = np.flatnonzero(is_last)
    first = np.append(0, last + 1)[: len(last)]
    repeated = np.add.reduceat((order < count).astype(np.int64), first) if len(first) else first
    before = np.where(repeated > 0, old[order[first + repeated - 1]], 0.0)
    kept = order[last]
    kept = kept[new[kept] != before]
    return of[kept], side[kept], price[kept], new[kept]


def cleaned(changes: Changes) -> tuple[Changes, int, int]:
    """Entries without impossible levels: prices outside of 0 to 1, sizes below 0 or infinite.

    A snapshot that has only such levels on a side becomes a gap, because the side is unknown and not empty. Also
    returns the number of these levels, and of rows of which nothing remains.
    """
    with np.errstate(invalid="ignore"):
        possible = ~no_probability(changes.price) & (changes.size >= 0) & np.isfinite(changes.size)
    wrong = ~np.isnan(changes.price) & ~possible
    if not wrong.any():
        return changes, 0, 0
    price, row = np.where(wrong, np.nan, changes.price), np.where(wrong, -1, changes.row)
    order = np.argsort(changes.token, kind="stable")
    event = changes.event[order]
    run = np.cumsum((event != CHANGE) | (np.diff(changes.token[order], prepend=-1) != 0)) - 1
    first = np.flatnonzero(np.diff(run, prepend=-1))
    ts, side = changes.ts[order], run * 2 + (changes.side[order] > BIDS)
    starts = event[first][run]
    of_snapshot = (ts == ts[first][run]) & (starts == SNAPSHOT)
    has_wrong, has_level = (
        np.bincount(side, values[order] & of_snapshot, minlength=2 * len(first)) > 0
        for values in (wrong, ~np.isnan(price))
    )
    is_side_unknown = has_wrong & ~has_level
    is_unknown = (is_side_unknown[::2] | is_side_unknown[1::2])[run] & of_snapshot
    events = changes.event.copy()
    events[order[is_unknown & (event == SNAPSHOT)]] = GAP
    price[order[is_unknown]], row[order[is_unknown]] = np.nan, -1
    rows = ascending(changes.row[row != changes.row])
    lost = ~np.isin(rows, row)
    return replace(changes, price=price, row=row, event=events), int(wrong.sum()), int(lost.sum())
