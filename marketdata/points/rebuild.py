"""Books from the changes of their levels, and changes from books.

A snapshot starts the book of a token, a change sets one level, size 0 removes it. Rows are not applied one by one: each
sets its level until the next row of the same level, so that one sort by (token, side, price) says from which bucket to
which every level stands, and books are these ranges cut at the edges of buckets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Codes, Floats, Ints, Token, ranges
from marketdata.points.resample import run_ends
from marketdata.points.schema import TOLERANCE
from marketdata.resolution import BucketWidth

Bools = NDArray[np.bool_]
# Codes of events.
CHANGE, SNAPSHOT, GAP = 0, 1, 2
# Events by their code.
EVENTS = ("change", "snapshot", "gap")
# Codes of sides.
BIDS, ASKS = 0, 1
# Prices are told apart to a millionth, the finest tick of a venue being a ten-thousandth.
_TICKS = 1_000_000
# Bits of a price in millionths, up to 1.
_TICK_BITS = 20
# Levels that are made at a time.
_LEVELS = 1 << 21
# Clocks differ by up to this [microseconds]; a time further back begins another recording.
_BACK = 30 * 10**6
# Bounds of books that are yet to be given tokens.
_NO_BOUNDS = np.zeros(1, np.int64)
# Rows and tokens that are made books of at a time: they stay in the processor's cache, and books in memory.
_ROWS, _TOKENS = 1 << 18, 256


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """One entry per changed level, those of a token in the order of their messages.

    ``event`` is SNAPSHOT in the first row of a whole book, GAP where the book became unknown, else CHANGE. A row whose
    price is NaN has no level: it says that the book was empty, unknown, or the same. ``ts`` is the time that buckets
    go by, ``seen`` the one by which the recording is known to have gone on. ``stated`` are the best bid and ask that
    the message names, NaN if it does not; a side that it says is empty is 0 of bids and 1 of asks.
    """

    tokens: tuple[Token, ...]
    token: Codes
    ts: Ints
    seen: Ints
    event: NDArray[np.int8]
    side: NDArray[np.int8]
    price: Floats
    size: Floats
    stated: Floats

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, index: NDArray[np.integer] | Bools | slice) -> Changes:
        """The rows at these positions."""
        arrays = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "tokens"}
        return Changes(self.tokens, **arrays)


def no_changes() -> Changes:
    """Changes without a row."""
    codes, ints = np.empty(0, np.int32), np.empty(0, np.int64)
    flags, floats = np.empty(0, np.int8), np.empty(0)
    return Changes((), codes, ints, ints, flags, flags, floats, floats, np.empty((0, 2)))


def joined(parts: list[Changes]) -> Changes:
    """The rows of all parts, part after part; equal tokens become one, and those without a row none."""
    index: dict[Token, int] = {}
    tokens = []
    parts = [part for part in parts if len(part)] or parts[:1]
    for part in parts:
        used = np.bincount(part.token, minlength=len(part.tokens)) > 0
        codes = [index.setdefault(t, len(index)) if u else 0 for t, u in zip(part.tokens, used.tolist(), strict=True)]
        tokens.append(np.array(codes, np.int32)[part.token])
    names = [f.name for f in fields(Changes)[2:]]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Changes(tuple(index), np.concatenate(tokens), **arrays)


def first_rows(event: NDArray[np.int8], token: Codes, ts: Ints) -> NDArray[np.int8]:
    """Events, a snapshot in the first row alone of those of one token and time that are beside each other."""
    order = np.argsort(token, kind="stable")
    before = np.empty(len(token), np.int64)
    before[order] = np.concatenate(([-1], order[:-1]))[: len(order)]
    again = (before >= 0) & (event == SNAPSHOT) & (event[before] == event)
    again &= (token[before] == token) & (ts[before] == ts)
    return np.where(again, CHANGE, event).astype(np.int8)


def of_all_rows(changes: Changes) -> NDArray[np.int8]:
    """Events, a snapshot in all of its rows: those up to the next time."""
    begins = np.flatnonzero(changes.event != CHANGE)
    run = np.searchsorted(begins, np.arange(len(changes)), side="right") - 1
    head = begins[np.maximum(run, 0)] if len(begins) else np.zeros(len(changes), np.int64)
    same = (run >= 0) & (changes.ts == changes.ts[head]) & (changes.token == changes.token[head])
    return np.where(same & (changes.event[head] == SNAPSHOT), SNAPSHOT, changes.event).astype(np.int8)


class Disagreement(NamedTuple):
    """A book whose best prices are not those that the last message of its bucket states."""

    token: Token
    ts: int
    stated: tuple[float, float]
    rebuilt: tuple[float, float]


@dataclass
class Tally:
    """Counts of what was found in the changes."""

    changes: int = 0
    gaps: int = 0
    back: int = 0
    unknown: int = 0
    checked: int = 0
    disagreements: int = 0
    first: Disagreement | None = None


@dataclass
class Rebuilder:
    """Books at the end of each bucket from parts of a recording, in bounded memory.

    A book stands from its snapshot on, while the recording goes on: until a hole above ``max_gap`` [microseconds]
    between two of its messages, of whatever token, or until its own token was silent for ``max_age``. After that, and
    where a message says so, the book is unknown until the next snapshot. With ``unchanged`` a bucket in which no
    message of a token came has the book that stands; without it, it has none. What is open at the end of a part is in
    ``open``, as rows of snapshots.
    """

    width: BucketWidth
    max_gap: int
    max_age: int
    unchanged: bool = True
    open: Changes = field(default_factory=no_changes)
    alive: int | None = None
    # Until when it went on at the last `end`; whether a token that was open then came since; and the holes since.
    before: int | None = None
    met: bool = False
    holes: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    tally: Tally = field(default_factory=Tally)

    @property
    def most_back(self) -> int:
        """Largest step back in time within a recording [microseconds]."""
        return min(self.max_gap, _BACK)

    def heard(self, seen: Ints) -> Iterator[Books]:
        """Messages came at these times; yields books that end as another recording begins, at an earlier time."""
        if not len(seen):
            return
        times = np.sort(seen)
        if self.alive is not None and times[0] < self.alive - self.most_back:
            yield from self.finish()
            self.open, self.alive, self.before, self.holes = no_changes(), None, None, self.holes[:0]
        if self.alive is not None:
            times = np.append(self.alive, times[times > self.alive])
        wide = np.flatnonzero(np.diff(times) > self.max_gap)
        found = np.column_stack((times[wide], times[wide + 1]))
        self.tally.gaps += len(found)
        self.holes, self.alive = np.concatenate((self.holes, found)), int(times[-1])

    def push(self, changes: Changes) -> Iterator[Books]:
        """Books of the buckets that ended before the last row of each token; the times must have been `heard`."""
        tokens = set(changes.tokens)
        here = np.array([t in tokens for t in self.open.tokens], bool)[self.open.token]
        self.tally.changes += int(np.count_nonzero(~np.isnan(changes.price)))
        self.tally.gaps += int(np.count_nonzero(changes.event == GAP))
        rest = self.open.take(~here)
        self.met |= bool(here.any())
        yield from self._rebuilt(joined([self.open.take(here), changes]), closing="none")
        self.open = joined([rest, self.open])

    def end(self) -> Iterator[Books]:
        """The end of a file: books that no longer stand come out, and are forgotten.

        A file with none of the tokens that were open before it is of another recording, in which these do not stand.
        """
        yield from self._rebuilt(self.open, "over")
        self.before, self.holes, self.met = self.alive, self.holes[:0], False

    def finish(self) -> Iterator[Books]:
        """All that stands until now; books stay open, in case that the recording goes on."""
        yield from self._rebuilt(self.open, "all")

    def _rebuilt(self, rows: Changes, closing: str) -> Iterator[Books]:
        """Books of rows, those of each token in order; ``open`` becomes what is open of them."""
        if np.any(rows.token[1:] < rows.token[:-1]):
            rows = rows.take(np.argsort(rows.token, kind="stable"))
        if not len(rows):
            self.open = rows
            return
        left = []
        starts = np.flatnonzero(np.append(True, rows.token[1:] != rows.token[:-1]))
        part = starts // _ROWS + np.arange(len(starts)) // _TOKENS
        cuts = np.append(starts[np.flatnonzero(np.diff(part, prepend=-1))], len(rows))
        for a, b in itertools.pairwise(cuts.tolist()):
            some = rows.take(slice(a, b))
            yield from _books(some, _runs(some, self, closing), self)
            left.append(self.open)
        self.open = joined(left)

    def until(self, ts: Ints, seen: Ints) -> tuple[Ints, Bools]:
        """Until when books of these last rows stand, and for which of them that is over already."""
        alive = seen if self.alive is None else np.maximum(self.alive, seen)
        limit, over = alive, np.zeros(len(ts), bool)
        if self.before is not None and not self.met:
            over = (seen <= self.before) & (alive > self.before)
            limit = np.where(over, self.before, limit)
        if len(self.holes):
            place = np.searchsorted(self.holes[:, 0], seen)
            hit = place < len(self.holes)
            limit = np.where(hit, np.minimum(limit, self.holes[np.minimum(place, len(self.holes) - 1), 0]), limit)
            over |= hit
        over |= limit - seen > self.max_age
        return ts + np.clip(limit - seen, 0, self.max_age), over


class _Runs(NamedTuple):
    """Runs of rows without a gap: where each begins, how many buckets it fills, and whether its book stays open.

    Of each row: its run, its bucket, and the place of that among the buckets of the run.
    """

    starts: Ints
    of: Ints
    bucket: Ints
    place: Ints
    edges: Ints
    known: Bools
    is_open: Bools
    last_ts: Ints


def _runs(rows: Changes, state: Rebuilder, closing: str) -> _Runs:
    width, count = state.width, len(rows)
    same = rows.token[1:] == rows.token[:-1]
    silence = np.diff(rows.seen)
    broken = same & (silence > state.max_age)
    if len(state.holes):
        broken |= same & (np.diff(np.searchsorted(state.holes[:, 1], rows.seen, side="right")) != 0)
    step = np.diff(rows.ts)
    backward = same & (step < 0)
    ts = rows.ts
    state.tally.back += int(np.count_nonzero(backward))
    broken |= same & (step < -state.most_back)
    begins = np.ones(count, bool)
    begins[1:] = ~same | broken | (rows.event[1:] != CHANGE)
    starts = np.flatnonzero(begins)
    of = np.cumsum(begins) - 1
    if backward.any():
        # The order of messages is kept: what comes later applies from the latest time on.
        low = int(ts.min())
        span = int(ts.max()) - low + 1
        chain = np.cumsum(np.concatenate(([0], (~same | (step < -state.most_back)))))
        ts = np.maximum.accumulate(ts - low + chain * span) - chain * span + low
    last = run_ends(starts, count) - 1
    bucket = (ts - width.offset) // width.micros
    until, over = state.until(ts[last], rows.seen[last])
    known = rows.event[starts] == SNAPSHOT
    state.tally.unknown += int(np.count_nonzero(~known[of] & ~np.isnan(rows.price)))

    def after(micros: Ints) -> Ints:
        return (micros - width.offset) // width.micros + 1

    # The bucket after the last one that a run fills.
    before, nexts = starts[1:] - 1, np.append(starts[1:], 0)
    follows, is_broken, went_back = (
        np.append(flags[before], False) for flags in (same, broken, step < -state.most_back)
    )
    end = np.where(follows & (rows.event[nexts] == GAP), after(ts[nexts] - 1), bucket[nexts])
    end = np.where(follows & is_broken, after(np.where(went_back, ts[last], until)), end)
    # A book that is said to be unknown has nothing left that a hole could end.
    is_over = ~follows & (over if closing == "over" else closing == "all")
    end = np.where(follows, end, np.where(is_over, after(until), bucket[last]))
    is_open = ~follows & known & ~(is_over & (closing == "over"))
    first = bucket[starts]
    if state.unchanged:
        place, edges = bucket - first[of], np.maximum(end - first, 0)
    else:  # only buckets with a row: they are numbered within their run
        fresh = np.ones(count, bool)
        fresh[1:] = begins[1:] | (np.diff(bucket) != 0)
        number = np.cumsum(fresh)
        place = number - number[starts][of]
        edges = np.maximum.reduceat(np.where(bucket < end[of], place + 1, 0), starts)
    return _Runs(starts, of, bucket, place, np.where(known, edges, 0), known, is_open, ts[last])


def _books(rows: Changes, runs: _Runs, state: Rebuilder) -> Iterator[Books]:
    ends = np.cumsum(runs.edges)
    offset = ends - runs.edges
    total = int(ends[-1])
    # The time of each edge, and the last row before it if that is in its bucket.
    run = np.repeat(np.arange(len(ends)), runs.edges)
    number = np.arange(total) - offset[run]
    fills = runs.edges[runs.of]
    inside = np.flatnonzero(runs.place < fills)
    edge = np.minimum(runs.place, fills, out=fills)
    edge += offset[runs.of]
    last_row = np.full(total, -1)
    last_row[edge[inside]] = inside  # of several rows the last one stays
    bucket = runs.bucket[runs.starts][run] + number if state.unchanged else runs.bucket[last_row]
    levels = np.flatnonzero(runs.known[runs.of] & ~np.isnan(rows.price))
    place, is_last = _order(runs.of[levels], rows.side[levels], ticks(rows.price[levels]))
    order = levels[place]
    begin = edge[order]
    stop = np.append(begin[1:], 0)[: len(begin)]
    stop[is_last] = ends[runs.of[order[is_last]]]
    live = rows.size[order] > 0
    state.open = _open(rows, runs, order[is_last & live])
    stands = np.flatnonzero(live & (stop > begin))
    begin, stop, order = begin[stands], stop[stands], order[stands]
    of, side, price, size = runs.of[order], rows.side[order], rows.price[order], rows.size[order]
    # Parts of whole runs, of about so many levels.
    weights = np.bincount(of, stop - begin, minlength=len(ends))
    part = (np.cumsum(weights) - weights) // _LEVELS
    cuts = np.append(np.flatnonzero(np.diff(part, prepend=-1)), len(ends))
    for a, b in itertools.pairwise(cuts.tolist()):
        low, high = int(offset[a]), int(ends[b - 1])
        if low == high:
            continue
        here = slice(*np.searchsorted(of, [a, b]))
        n = stop[here] - begin[here]
        # The edge of each level, with its place in the lower half: few bytes, sorted as numbers.
        packed = ranges(begin[here] - low, n)
        packed <<= 32
        packed |= np.repeat(np.arange(here.stop - here.start), n)
        packed.sort()
        pick = packed & 0xFFFFFFFF
        pick += here.start
        packed >>= 32
        packed <<= 1
        sides = packed + side[pick]
        counts = np.bincount(sides, minlength=2 * (high - low))
        token = rows.token[runs.starts[run[low:high]]]
        times = bucket[low:high] * state.width.micros + state.width.offset
        books = Books.of_levels((), _NO_BOUNDS, times, counts, price[pick], size[pick]).of_codes(rows.tokens, token)
        _compare(books, rows, last_row[low:high], state.tally)
        yield each_once(books)


def ticks(price: Floats) -> Ints:
    """Prices as whole numbers in their order: millionths, or where those are not enough their rank."""
    scaled = price * _TICKS
    whole = np.rint(scaled)
    scaled -= whole
    if not len(price) or (
        -1e-3 < scaled.min() <= scaled.max() < 1e-3 and whole.min() >= 0 and whole.max() < 1 << _TICK_BITS
    ):
        return whole.astype(np.int64)
    return np.unique(price, return_inverse=True)[1].astype(np.int64)


def _order(run: Ints, side: NDArray[np.int8], tick: Ints) -> tuple[Ints, Bools]:
    """The order by run, side (bids first), price (best first) and place; and which is the last one of its level."""
    most = int(tick.max(initial=0))
    key = run << 1
    key |= side
    key <<= most.bit_length()
    np.subtract(most, tick, out=tick, where=side == BIDS)  # the best bid is the highest
    key |= tick
    place_bits = len(key).bit_length()
    if int(key.max(initial=0)).bit_length() + place_bits > 64:
        order = np.argsort(key, kind="stable")
        key = key[order]
    else:
        # Numbers with their place in the lowest bits are sorted many times faster than places by their numbers.
        key <<= place_bits
        packed = key.view(np.uint64)
        packed |= np.arange(len(packed), dtype=np.uint64)
        packed.sort()
        key = (packed >> np.uint64(place_bits)).view(np.int64)
        packed &= np.uint64((1 << place_bits) - 1)
        order = packed.view(np.int64)
    return order, np.append(key[1:] != key[:-1], True)[: len(key)]


def _open(rows: Changes, runs: _Runs, standing: Ints) -> Changes:
    """The books that are open, each a snapshot at the time of its last row; an empty one is a row without a level."""
    standing = standing[runs.is_open[runs.of[standing]]]
    last = run_ends(runs.starts, len(rows)) - 1
    empty = last[np.setdiff1d(np.flatnonzero(runs.is_open), runs.of[standing])]
    index = np.concatenate((standing, empty))
    index = index[np.argsort(runs.of[index], kind="stable")]
    out = rows.take(index)
    run = runs.of[index]
    event = np.full(len(index), CHANGE, np.int8)
    event[np.flatnonzero(np.diff(run, prepend=-1))] = SNAPSHOT
    price, size = out.price.copy(), out.size.copy()
    price[np.isin(index, empty)] = np.nan
    used, token = np.unique(out.token, return_inverse=True)
    tokens, seen, stated = tuple(rows.tokens[i] for i in used.tolist()), rows.seen[last[run]], rows.stated[last[run]]
    return Changes(tokens, token.astype(np.int32), runs.last_ts[run], seen, event, out.side, price, size, stated)


def _compare(books: Books, rows: Changes, last_row: Ints, tally: Tally) -> None:
    """Count books whose best prices are not those that the last message of their bucket states."""
    stated = np.where((last_row >= 0)[:, None], rows.stated[last_row], np.nan)
    where = np.flatnonzero(~np.isnan(stated).any(axis=1))
    if not len(where):
        return
    best = np.stack((books.bids.best, books.asks.best), axis=1)[where]
    best = np.where(np.isnan(best), [0.0, 1.0], best)
    wrong = np.flatnonzero((np.abs(best - stated[where]) > TOLERANCE).any(axis=1))
    tally.checked += len(where)
    tally.disagreements += len(wrong)
    if len(wrong) and tally.first is None:
        at = int(where[wrong[0]])
        said, found = (tuple(float(v) for v in pair) for pair in (stated[at], best[wrong[0]]))
        tally.first = Disagreement(books.tokens[int(books.token[at])], int(books.ts[at]), said, found)  # type: ignore[arg-type]


def each_once(books: Books) -> Books:
    """One book per token and bucket, the later one, where a recording says two."""
    if np.all((np.diff(books.token) != 0) | (np.diff(books.ts) > 0)):
        return books
    order = np.lexsort((books.ts, books.token))
    token, ts = books.token[order], books.ts[order]
    return books.take(order[np.append((np.diff(token) != 0) | (np.diff(ts) != 0), True)])


def rebuild(
    changes: Changes, width: BucketWidth, *, max_gap: int, max_age: int, unchanged: bool = True
) -> tuple[list[Books], Tally]:
    """Books of all rows at once, as `Rebuilder` says."""
    state = Rebuilder(width, max_gap, max_age, unchanged)
    parts = [part for step in (state.heard(changes.seen), state.push(changes), state.finish()) for part in step]
    return parts, state.tally


def diff(books: Books, width: BucketWidth) -> Changes:
    """The changes between books of this width, in tidy order: what `rebuild` makes the same books of.

    The first book of a token, and one whose bucket does not follow that of the one before, is a snapshot; a gap is the
    end of the bucket before it. A book that is as the one before is a row without a level.
    """
    books = books.sort()
    count = len(books)
    if not count:
        return no_changes()
    pairs = books.counts.reshape(-1, 2)
    entry = np.repeat(np.arange(count), pairs.sum(axis=1))
    side = np.repeat(np.tile([BIDS, ASKS], count), books.counts).astype(np.int8)
    price, size = books.levels()
    follows = np.zeros(count, bool)
    follows[1:] = (books.token[1:] == books.token[:-1]) & (np.diff(books.ts) <= width.micros)
    # Levels of a book beside those of the one before it, which are counted as size 0 of the book.
    ghost = np.append(follows[1:], False)[entry]
    ghosts = int(ghost.sum())
    every = np.concatenate((entry[ghost] + 1, entry))
    side = np.concatenate((side[ghost], side))
    old = np.append(size[ghost], np.zeros(len(entry)))
    size = np.append(np.zeros(ghosts), size)
    price = np.concatenate((price[ghost], price))
    tick = ticks(price)
    order, is_last = _order(every, side, tick)
    last = np.flatnonzero(is_last)
    first = np.append(0, last + 1)[: len(last)]
    # If a level is given twice the last one counts; levels of the previous book stand first.
    kept = order[last]
    before = np.add.reduceat((order < ghosts).astype(np.int64), first) if len(first) else first
    was = np.where(before > 0, old[order[first + before - 1]], 0.0)
    moved = size[kept] != was
    kept = kept[moved]
    rows_of = every[kept]
    bare = np.setdiff1d(np.arange(count), rows_of)
    ends = np.flatnonzero(~np.append(follows[1:], False))
    ends = ends[books.ts[ends] + width.micros <= books.ts.max()]
    of = np.concatenate((rows_of, bare, ends))
    kind = np.concatenate((np.zeros(len(kept) + len(bare)), np.ones(len(ends)))).astype(np.int8)
    place = np.lexsort((np.arange(len(of)), kind, of))
    of, kind = of[place], kind[place]
    blank = len(bare) + len(ends)
    event = np.where(kind == 1, GAP, CHANGE).astype(np.int8)
    event[np.append(True, np.diff(of) != 0) & ~follows[of]] = SNAPSHOT
    ts = books.ts[of] + np.where(kind == 1, width.micros, 0)
    side = np.append(side[kept], np.zeros(blank, np.int8))[place]
    price, size = (np.append(values[kept], np.full(blank, np.nan))[place] for values in (price, size))
    return Changes(books.tokens, books.token[of], ts, ts, event, side, price, size, np.full((len(of), 2), np.nan))


def cleaned(changes: Changes) -> tuple[Changes, dict[str, int]]:
    """Rows without levels that cannot be: prices outside of 0 to 1, sizes below 0 or no numbers; and how many."""
    has = ~np.isnan(changes.price)
    with np.errstate(invalid="ignore"):
        outside = has & ~((changes.price >= 0) & (changes.price <= 1))
        negative = has & ~outside & ~((changes.size >= 0) & np.isfinite(changes.size))
    wrong = outside | negative
    found = {"price outside of 0 to 1": int(outside.sum()), "size below 0": int(negative.sum())}
    if wrong.any():
        changes = replace(changes, price=np.where(wrong, np.nan, changes.price))
    return changes, {name: number for name, number in found.items() if number}
