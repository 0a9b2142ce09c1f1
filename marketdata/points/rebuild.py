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

from marketdata.points.columns import Books, Codes, Floats, Ints, Token, ranges, values_of
from marketdata.points.order import ascending
from marketdata.points.resample import run_ends
from marketdata.points.schema import TOLERANCE
from marketdata.resolution import BucketWidth

Bools = NDArray[np.bool_]
EVENTS = ("change", "snapshot", "gap")
CHANGE, SNAPSHOT, GAP = range(len(EVENTS))
BIDS, ASKS = 0, 1
# Millionths tell prices apart, because the finest tick of a venue is a ten-thousandth.
_TICKS, _TICK_BITS = 1_000_000, 20
# Parts of so many rows and tokens are fast, because they stay in the processor's cache. More levels need much memory.
_PART_ROWS, _PART_TOKENS, _PART_LEVELS = 1 << 18, 256, 1 << 21
_CLOCK_ERROR_MICROS = 30 * 10**6
_STATED = ("stated_bid", "stated_ask")


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """One entry per changed level, in the order of messages for each token.

    ``event`` is SNAPSHOT in the first entry of a whole book, GAP where the book became unknown, else CHANGE. An entry
    whose price is NaN has no level: the book was empty, unknown or the same. ``ts`` is the time that buckets go by, and
    ``seen`` the time at which the recording is known to have gone on. ``stated`` are the best bid and ask that the
    message names, NaN if it names none; a side that it calls empty is 0 for bids and 1 for asks. ``row`` is the number
    of the row or message in its file, -1 for none. ``values`` are fields of the snapshot after the change.
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


def no_changes() -> Changes:
    """Changes without an entry."""
    codes, ints = np.empty(0, np.int32), np.empty(0, np.int64)
    flags, floats = np.empty(0, np.int8), np.empty(0)
    return Changes((), codes, ints, ints, flags, flags, floats, floats, np.empty((0, 2)), ints)


def joined(parts: list[Changes]) -> Changes:
    """The entries of all parts, part after part; equal tokens become one, and a token without an entry goes."""
    code_of: dict[Token, int] = {}
    codes = []
    parts = [part for part in parts if len(part)] or parts[:1]
    for part in parts:
        used = np.bincount(part.token, minlength=len(part.tokens)) > 0
        new = [code_of.setdefault(t, len(code_of)) if u else 0 for t, u in zip(part.tokens, used.tolist(), strict=True)]
        codes.append(np.array(new, np.int32)[part.token])
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0].arrays()}
    types = {name: v.dtype for part in parts for name, v in part.values.items()}
    values = {name: np.concatenate([values_of(part, name, types[name]) for part in parts]) for name in types}
    return Changes(tuple(code_of), **{**arrays, "token": np.concatenate(codes)}, values=values)


def in_last_bucket(changes: Changes, width: BucketWidth) -> Bools:
    """Entries at the end of their token, which are together, that are in its last bucket."""
    if not len(changes):
        return np.zeros(0, bool)
    bucket, place = width.floor(changes.ts), np.arange(len(changes))
    starts = np.flatnonzero(np.diff(changes.token, prepend=-1))
    lengths = run_ends(starts, len(changes)) - starts
    last_bucket = np.repeat(bucket[starts + lengths - 1], lengths)
    # The last place that is in another bucket.
    border = np.maximum.reduceat(np.where(bucket != last_bucket, place, -1), starts)
    return place > np.repeat(border, lengths)


def first_rows(event: NDArray[np.int8], token: Codes, ts: Ints) -> NDArray[np.int8]:
    """Events with SNAPSHOT only in the first of adjacent rows with equal token and time."""
    order = np.argsort(token, kind="stable")
    before = np.empty(len(token), np.int64)
    before[order] = np.concatenate(([-1], order[:-1]))[: len(order)]
    again = (before >= 0) & (event == SNAPSHOT) & (event[before] == event)
    again &= (token[before] == token) & (ts[before] == ts)
    return np.where(again, CHANGE, event).astype(np.int8)


def with_snapshot_in_all_rows(changes: Changes) -> NDArray[np.int8]:
    """Events with SNAPSHOT in all rows of a snapshot, which are those up to the next time."""
    begins = np.flatnonzero(changes.event != CHANGE)
    run = np.searchsorted(begins, np.arange(len(changes)), side="right") - 1
    head = begins[np.maximum(run, 0)] if len(begins) else np.zeros(len(changes), np.int64)
    same = (run >= 0) & (changes.ts == changes.ts[head]) & (changes.token == changes.token[head])
    return np.where(same & (changes.event[head] == SNAPSHOT), SNAPSHOT, changes.event).astype(np.int8)


def out_of_order(changes: Changes, latest: dict[Token, int]) -> tuple[Bools, Bools]:
    """Entries that are earlier than an entry before them of their token, and entries too early for clock errors.

    ``latest`` has the latest time of each token in the parts before, and is updated.
    """
    order = np.argsort(changes.token, kind="stable")
    token, seen = changes.token[order].astype(np.int64), changes.seen[order]
    if not len(order):
        return np.zeros(0, bool), np.zeros(0, bool)
    starts = np.flatnonzero(np.diff(token, prepend=-1))
    last_seen = np.array([latest.get(changes.tokens[code], 0) for code in token[starts].tolist()], np.int64)
    low = min(int(seen.min()), int(last_seen.min()))
    # The running maximum of each token: a token is above all tokens before it by a whole span of times.
    lift = token * (int(max(seen.max(), last_seen.max())) - low + 1) - low
    highest = seen + lift
    before = np.concatenate(([0], highest[:-1]))
    before[starts] = last_seen + lift[starts]
    before = np.maximum.accumulate(before)
    ends = run_ends(starts, len(token)) - 1
    after = np.maximum(before, highest)[ends] - lift[ends]
    latest.update((changes.tokens[c], t) for c, t in zip(token[ends].tolist(), after.tolist(), strict=True))
    early, too_early = np.zeros(len(token), bool), np.zeros(len(token), bool)
    early[order], too_early[order] = highest < before, highest < before - _CLOCK_ERROR_MICROS
    return early, too_early


def by_time(changes: Changes) -> Changes:
    """Entries by token and time; entries of one message stay together and in their order.

    Messages of one moment stay in the order of the file, or in the opposite order if the file has the newest first.
    """
    steps = np.diff(changes.seen)
    row = -changes.row if (steps < 0).sum() > (steps > 0).sum() else changes.row
    return changes.take(np.lexsort((np.arange(len(changes)), row, changes.ts, changes.seen, changes.token)))


class Disagreement(NamedTuple):
    """A book whose best prices are not those that the last message of its bucket states."""

    token: Token
    ts: int
    stated: tuple[float, float]
    rebuilt: tuple[float, float]


@dataclass
class Tally:
    """Counts of what the changes contained.

    ``levels`` were set, ``applied`` rows took part in a book, ``unknown`` rows came before one. Times went ``back``.
    ``checked`` books have stated best prices, and ``disagreements`` of these differ; ``first`` is one that does.
    """

    levels: int = 0
    applied: int = 0
    unknown: int = 0
    gaps: int = 0
    back: int = 0
    checked: int = 0
    disagreements: int = 0
    first: Disagreement | None = None

    def compare(self, books: Books) -> Books:
        """Count books whose best prices are not the stated ones; returns them without the stated prices."""
        stated = np.stack([values_of(books, name, np.dtype(float)) for name in _STATED], axis=1)
        best = np.nan_to_num(np.stack((books.bids.best, books.asks.best), axis=1))
        best[books.asks.counts == 0, 1] = 1.0
        checked = ~np.isnan(stated).any(axis=1)
        wrong = np.flatnonzero(checked & (np.abs(best - stated) > TOLERANCE).any(axis=1))
        self.checked += int(checked.sum())
        self.disagreements += len(wrong)
        if len(wrong) and self.first is None:
            at = int(wrong[0])
            pairs: list[Any] = [tuple(map(float, pair[at])) for pair in (stated, best)]
            self.first = Disagreement(books.token_at(at), int(books.ts[at]), *pairs)
        return replace(books, values={name: v for name, v in books.values.items() if name not in _STATED})


# "over" closes only books that are no longer valid.
_Closing = Literal["none", "over", "all"]


@dataclass
class Rebuilder:
    """Books at the end of each bucket from parts of a recording, in bounded memory.

    A book is valid from its snapshot on while the recording goes on. It ends at a hole above ``max_gap`` [microseconds]
    between two messages of whatever token, and after ``max_age`` without a message of its own token. After that, and
    where a message says so, the book is unknown until the next snapshot. With ``unchanged`` a bucket without a message
    of the token has its valid book, without it none. Books still open at the end of a part are in ``open``, as rows of
    snapshots.
    """

    width: BucketWidth
    max_gap: int
    max_age: int
    unchanged: bool = True
    open: Changes = field(default_factory=no_changes)
    last_seen: int | None = None
    # The last time before the current file, whether a token open then was met since, and the holes of this file.
    last_seen_before: int | None = None
    met_open_token: bool = False
    holes: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    tally: Tally = field(default_factory=Tally)

    @property
    def most_back(self) -> int:
        """Largest step back in time within a recording [microseconds]."""
        return min(self.max_gap, _CLOCK_ERROR_MICROS)

    def received(self, seen: Ints) -> Iterator[Books]:
        """Note the times of messages; yields the books that end where another recording begins at an earlier time."""
        if not len(seen):
            return
        times = np.sort(seen)
        if self.last_seen is not None and times[0] < self.last_seen - self.most_back:
            yield from self.finish()
            self.open, self.last_seen, self.last_seen_before = no_changes(), None, None
            self.holes = self.holes[:0]
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
        untouched = self.open.take(~continues)
        applied: list[Ints] = []
        yield from self._rebuilt(joined([self.open.take(continues), changes]), "none", applied)
        self.open = joined([untouched, self.open])
        count = _count_rows(changes.row)
        count_applied = _count_rows(np.concatenate([changes.row[:0], *applied]))
        self.tally.applied += count_applied
        self.tally.unknown += count - count_applied

    def end(self) -> Iterator[Books]:
        """The end of a file: books that are no longer valid come out, and are forgotten.

        A file without any token that was open before it belongs to another recording, which ends these books.
        """
        yield from self._rebuilt(self.open, "over", [])
        self.last_seen_before, self.holes, self.met_open_token = self.last_seen, self.holes[:0], False

    def finish(self) -> Iterator[Books]:
        """All books that are valid until now; they stay open, in case the recording goes on."""
        yield from self._rebuilt(self.open, "all", [])

    def _rebuilt(self, rows: Changes, closing: _Closing, applied: list[Ints]) -> Iterator[Books]:
        """Books of rows, in order within each token; ``open`` becomes the open books, ``applied`` gets row numbers."""
        if np.any(rows.token[1:] < rows.token[:-1]):
            rows = rows.take(np.argsort(rows.token, kind="stable"))
        if not len(rows):
            self.open = rows
            return
        still_open = []
        starts = np.flatnonzero(np.append(True, rows.token[1:] != rows.token[:-1]))
        part = starts // _PART_ROWS + np.arange(len(starts)) // _PART_TOKENS
        cuts = np.append(starts[np.flatnonzero(np.diff(part, prepend=-1))], len(rows))
        for a, b in itertools.pairwise(cuts.tolist()):
            part_rows = rows.take(slice(a, b))
            runs = _split_into_runs(part_rows, self, closing)
            applied.append(part_rows.row[runs.has_book[runs.of]])
            levels = _levels(part_rows, runs)
            still_open.append(_open(part_rows, runs, levels))
            yield from _books(part_rows, runs, levels, self.width, unchanged=self.unchanged)
        self.open = joined(still_open)

    def valid_until(self, ts: Ints, seen: Ints) -> tuple[Ints, Bools]:
        """Until when the books of these last rows are valid, and for which of them that time has passed."""
        last_seen = seen if self.last_seen is None else np.maximum(self.last_seen, seen)
        limit, over = last_seen, np.zeros(len(ts), bool)
        if self.last_seen_before is not None and not self.met_open_token:
            over = (seen <= self.last_seen_before) & (last_seen > self.last_seen_before)
            limit = np.where(over, self.last_seen_before, limit)
        if len(self.holes):
            place = np.searchsorted(self.holes[:, 0], seen)
            meets_hole = place < len(self.holes)
            hole = self.holes[np.minimum(place, len(self.holes) - 1), 0]
            limit = np.where(meets_hole, np.minimum(limit, hole), limit)
            over |= meets_hole
        over |= limit - seen > self.max_age
        return ts + np.clip(limit - seen, 0, self.max_age), over


def _count_rows(row: Ints) -> int:
    return int((ascending(row) >= 0).sum())


class _Runs(NamedTuple):
    """Runs of rows without a gap: where each begins, its number of bucket edges, and whether it begins with a book.

    ``of``, ``bucket`` and ``place`` have one entry per row: its run, its bucket, and its edge in the run.
    """

    starts: Ints
    of: Ints
    bucket: Ints
    place: Ints
    edges: Ints
    has_book: Bools
    is_open: Bools
    last_ts: Ints


def _split_into_runs(rows: Changes, state: Rebuilder, closing: _Closing) -> _Runs:
    width, count = state.width, len(rows)
    same_token = rows.token[1:] == rows.token[:-1]
    step = np.diff(rows.ts)
    went_back = step < -state.most_back
    broken = same_token & (went_back | (np.diff(rows.seen) > state.max_age))
    if len(state.holes):
        broken |= same_token & (np.diff(np.searchsorted(state.holes[:, 1], rows.seen, side="right")) != 0)
    state.tally.back += int(np.count_nonzero(same_token & (step < 0)))
    begins = np.ones(count, bool)
    begins[1:] = ~same_token | broken | (rows.event[1:] != CHANGE)
    starts, of = np.flatnonzero(begins), np.cumsum(begins) - 1
    ts = _never_back(rows.ts, ~same_token | went_back) if (same_token & (step < 0)).any() else rows.ts
    bucket = (ts - width.offset) // width.micros
    last = run_ends(starts, count) - 1
    has_book = rows.event[starts] == SNAPSHOT
    until, over = state.valid_until(ts[last], rows.seen[last])

    def bucket_after(micros: Ints) -> Ints:
        return (micros - width.offset) // width.micros + 1

    # A run fills buckets up to the next run of its token, unless the book ends before.
    last_row, next_start = starts[1:] - 1, np.append(starts[1:], 0)
    follows, ends_in_break, ends_going_back = (
        np.append(flags[last_row], False) for flags in (same_token, broken, went_back)
    )
    end = np.where(follows & (rows.event[next_start] == GAP), bucket_after(ts[next_start] - 1), bucket[next_start])
    end = np.where(follows & ends_in_break, bucket_after(np.where(ends_going_back, ts[last], until)), end)
    is_over = ~follows & (over if closing == "over" else closing == "all")
    end = np.where(follows, end, np.where(is_over, bucket_after(until), bucket[last]))
    is_open = ~follows & has_book & ~(is_over & (closing == "over"))
    if state.unchanged:
        place, edges = bucket - bucket[starts][of], np.maximum(end - bucket[starts], 0)
    else:  # only buckets with a row are edges
        is_new = begins.copy()
        is_new[1:] |= np.diff(bucket) != 0
        number = np.cumsum(is_new)
        place = number - number[starts][of]
        edges = np.maximum.reduceat(np.where(bucket < end[of], place + 1, 0), starts)
    return _Runs(starts, of, bucket, place, np.where(has_book, edges, 0), has_book, is_open, ts[last])


def _never_back(ts: Ints, restarts: Bools) -> Ints:
    """Times that never fall: the latest time since the last restart."""
    low = int(ts.min())
    span = int(ts.max()) - low + 1
    lift = np.cumsum(np.concatenate(([0], restarts))) * span - low
    latest: Ints = np.maximum.accumulate(ts + lift) - lift
    return latest


class _Levels(NamedTuple):
    """Rows that set a level, by run, side and price: from which edge to before which one they stay."""

    row: Ints
    begin: Ints
    stop: Ints
    is_last: Bools
    # For each edge the last row before it, -1 if that is in an earlier bucket.
    last_row: Ints


def _levels(rows: Changes, runs: _Runs) -> _Levels:
    ends = np.cumsum(runs.edges)
    fills = runs.edges[runs.of]
    in_a_bucket = np.flatnonzero(runs.place < fills)
    edge = np.minimum(runs.place, fills, out=fills)
    edge += (ends - runs.edges)[runs.of]
    last_row = np.full(int(ends[-1]), -1)
    last_row[edge[in_a_bucket]] = in_a_bucket  # of several rows the last one stays
    setting = np.flatnonzero(runs.has_book[runs.of] & ~np.isnan(rows.price))
    place, is_last = _order(runs.of[setting], rows.side[setting], ticks(rows.price[setting]))
    row = setting[place]
    begin = edge[row]
    stop = np.append(begin[1:], 0)[: len(begin)]
    stop[is_last] = ends[runs.of[row[is_last]]]
    return _Levels(row, begin, stop, is_last, last_row)


def _books(rows: Changes, runs: _Runs, levels: _Levels, width: BucketWidth, *, unchanged: bool) -> Iterator[Books]:
    ends = np.cumsum(runs.edges)
    run = np.repeat(np.arange(len(ends)), runs.edges)
    if unchanged:
        bucket = runs.bucket[runs.starts][run] + np.arange(len(run)) - (ends - runs.edges)[run]
    else:
        bucket = runs.bucket[levels.last_row]
    stays = np.flatnonzero((rows.size[levels.row] > 0) & (levels.stop > levels.begin))
    begin, stop, row = levels.begin[stays], levels.stop[stays], levels.row[stays]
    of, side, price, size = runs.of[row], rows.side[row], rows.price[row], rows.size[row]
    # Parts of whole runs.
    weights = np.bincount(of, stop - begin, minlength=len(ends))
    part = (np.cumsum(weights) - weights) // _PART_LEVELS
    cuts = np.append(np.flatnonzero(np.diff(part, prepend=-1)), len(ends))
    for a, b in itertools.pairwise(cuts.tolist()):
        low, high = int(ends[a] - runs.edges[a]), int(ends[b - 1])
        if low == high:
            continue
        here = slice(*np.searchsorted(of, [a, b]))
        lengths = stop[here] - begin[here]
        # The edge of each level, with its place in the lower half: few bytes, sorted as numbers.
        packed = ranges(begin[here] - low, lengths)
        packed <<= 32
        packed |= np.repeat(np.arange(here.stop - here.start), lengths)
        packed.sort()
        pick = packed & 0xFFFFFFFF
        pick += here.start
        packed >>= 32
        packed <<= 1
        counts = np.bincount(packed + side[pick], minlength=2 * (high - low))
        times = bucket[low:high] * width.micros + width.offset
        values = _values(rows, levels.last_row[low:high])
        books = Books.of_levels((), np.zeros(1, np.int64), times, counts, price[pick], size[pick], values)
        yield each_once(books.grouped(rows.tokens, rows.token[runs.starts[run[low:high]]]))


def _values(rows: Changes, last_row: Ints) -> dict[str, NDArray[Any]]:
    """The values of books whose last rows are these: best prices as stated in their bucket, fields as last stated."""
    values: dict[str, NDArray[Any]] = {}
    if not np.isnan(rows.stated).all():
        stated = np.where((last_row >= 0)[:, None], rows.stated[last_row], np.nan)
        values = dict(zip(_STATED, stated.T, strict=True))
    # The first edge of each run has a row, so the running maximum stays in the run.
    return values | {name: v[np.maximum.accumulate(last_row)] for name, v in rows.values.items()}


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


def _open(rows: Changes, runs: _Runs, levels: _Levels) -> Changes:
    """The open books, each a snapshot at the time of its last row; an empty one is a row without a level."""
    last_of_level = levels.row[levels.is_last & (rows.size[levels.row] > 0)]
    kept = last_of_level[runs.is_open[runs.of[last_of_level]]]
    last = run_ends(runs.starts, len(rows)) - 1
    has_level = np.zeros(len(last), bool)
    has_level[runs.of[kept]] = True
    empty = last[runs.is_open & ~has_level]
    index = np.concatenate((kept, empty))
    index = index[np.argsort(runs.of[index], kind="stable")]
    run = runs.of[index]
    event = np.full(len(index), CHANGE, np.int8)
    event[np.flatnonzero(np.diff(run, prepend=-1))] = SNAPSHOT
    used, token = np.unique(rows.token[index], return_inverse=True)
    state = rows.take(last[run])
    return replace(
        state,
        tokens=tuple(rows.tokens[i] for i in used.tolist()),
        token=token.astype(np.int32),
        ts=runs.last_ts[run],
        event=event,
        side=rows.side[index],
        price=np.where(np.isin(index, empty), np.nan, rows.price[index]),
        size=rows.size[index],
        row=np.full(len(index), -1),
    )


def each_once(books: Books) -> Books:
    """One book per token and bucket, the later one where a recording has two."""
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
    steps = (state.received(changes.seen), state.push(changes), state.finish())
    return [part for step in steps for part in step], state.tally


def snapshots(changes: Changes, width: BucketWidth) -> tuple[Books, Ints]:
    """The last snapshot of each token and bucket, and the numbers of the rows that these are made of.

    Entries are by token and time. Each snapshot, from a SNAPSHOT to the next one, is the book of its own moment.
    """
    starts = np.flatnonzero(changes.event == SNAPSHOT)
    of = np.cumsum(changes.event == SNAPSHOT) - 1
    token, ts = changes.token[starts], width.floor(changes.ts[starts])
    is_last = np.append((np.diff(token) != 0) | (np.diff(ts) != 0), True)[: len(starts)]
    setting = np.flatnonzero(~np.isnan(changes.price) & is_last[of])
    place, is_last_of_level = _order(of[setting], changes.side[setting], ticks(changes.price[setting]))
    level = setting[place[is_last_of_level]]
    level = level[changes.size[level] > 0]
    counts = np.bincount(2 * of[level] + changes.side[level], minlength=2 * len(starts))
    counts = counts.reshape(-1, 2)[is_last].ravel()
    kept = starts[is_last]
    values = {name: v[kept] for name, v in changes.values.items()}
    values |= dict(zip(_STATED, changes.stated[kept].T, strict=True))
    price, size = changes.price[level], changes.size[level]
    books = Books.of_levels((), np.zeros(1, np.int64), ts[is_last], counts, price, size, values)
    return books.grouped(changes.tokens, token[is_last]), ascending(changes.row[is_last[of]])


def diff(books: Books, width: BucketWidth) -> Changes:
    """The changes between books of this width, in tidy order: what `rebuild` makes the same books of.

    The first book of a token, and a book after a missing bucket, is a snapshot. A gap marks the end of the bucket
    before it. A book that equals the one before is a row without a level.
    """
    books = books.sort()
    count = len(books)
    if not count:
        return no_changes()
    follows = np.zeros(count, bool)
    follows[1:] = (books.token[1:] == books.token[:-1]) & (np.diff(books.ts) <= width.micros)
    book, side, price, size = _moved_levels(books, follows)
    unmoved = np.delete(np.arange(count), book)
    ends = np.flatnonzero(~np.append(follows[1:], False))
    ends = ends[books.ts[ends] + width.micros <= books.ts.max()]
    of = np.concatenate((book, unmoved, ends))
    is_gap = np.arange(len(of)) >= len(book) + len(unmoved)
    order = np.lexsort((np.arange(len(of)), is_gap, of))
    of, is_gap = of[order], is_gap[order]
    event = np.where(is_gap, GAP, CHANGE).astype(np.int8)
    event[np.append(True, np.diff(of) != 0) & ~follows[of]] = SNAPSHOT
    ts = books.ts[of] + np.where(is_gap, width.micros, 0)
    without_level = len(unmoved) + len(ends)
    side = np.append(side, np.zeros(without_level, np.int8))[order]
    price, size = (np.append(values, np.full(without_level, np.nan))[order] for values in (price, size))
    stated = np.full((len(of), 2), np.nan)
    return Changes(books.tokens, books.token[of], ts, ts, event, side, price, size, stated, np.arange(len(of)))


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
    """Entries without levels that cannot be: prices outside of 0 to 1, sizes below 0 or infinite.

    Also the number of these levels, and of rows that had no other level.
    """
    with np.errstate(invalid="ignore"):
        possible = (changes.price >= 0) & (changes.price <= 1) & (changes.size >= 0) & np.isfinite(changes.size)
    wrong = ~np.isnan(changes.price) & ~possible
    if not wrong.any():
        return changes, 0, 0
    price, row = np.where(wrong, np.nan, changes.price), np.where(wrong, -1, changes.row)
    rows = ascending(changes.row[wrong])
    lost = ~np.isin(rows, changes.row[~wrong])
    return replace(changes, price=price, row=row), int(wrong.sum()), int(lost.sum())
