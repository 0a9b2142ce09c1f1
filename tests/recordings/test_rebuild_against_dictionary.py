"""A dictionary of levels per token gives the same books; rebuild(diff(books)) gives the books back."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketdata.points.columns import Books, Token
from marketdata.recordings import changes as rule
from marketdata.recordings.changes import (
    ASKS,
    BIDS,
    CHANGE,
    GAP,
    SNAPSHOT,
    STATED,
    Changes,
    Rebuilder,
    by_time,
    rebuild,
)
from marketdata.resolution import BucketWidth

SECOND = 1_000_000
WIDTH = BucketWidth.of("1s")
START = 1_767_225_600 * SECOND
Row = tuple[int, int, int, int, int, float, float]  # token ts seen event side price size
Book = tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...]]

rows = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 40),
        st.sampled_from([CHANGE] * 6 + [SNAPSHOT, SNAPSHOT, GAP]),
        st.integers(0, 1),
        st.sampled_from([np.nan, 0.1, 0.2, 0.48, 0.5, 0.999]),
        st.sampled_from([0.0, 1.0, 2.5, 30.0]),
        st.integers(0, 3),
    ),
    max_size=60,
)


def changes_of(drawn: list[Row]) -> Changes:
    columns = list(zip(*drawn, strict=True)) or [()] * 7
    token, ts, seen, event, side, price, size = columns
    return Changes(
        tuple(Token(f"m{i}", f"t{i}", None) for i in range(3)),
        np.array(token, np.int32),
        np.array(ts, np.int64),
        np.array(seen, np.int64),
        np.array(event, np.int8),
        np.array(side, np.int8),
        np.array(price, np.float64),
        np.array(size, np.float64),
        np.arange(len(drawn)),
    )


def timed(drawn: list[tuple[int, int, int, int, float, float, int]]) -> list[Row]:
    """Drawn steps of time as times; the clock of the venue goes back now and then, and states of books are old."""
    now, out = START, []
    for token, step, event, side, price, size, late in drawn:
        now += step * SECOND // 4
        age = late * SECOND // 2 * (40 if event == SNAPSHOT and late == 3 else 1)
        out.append((token, now - age, now, event, side, price, size))
    return out


def in_plain_python(all_rows: list[Row], width: int, max_gap: int, max_age: int, *, unchanged: bool) -> dict:
    """A dictionary of levels per token, row by row; (token, bucket) to book."""
    delays = delays_of(all_rows)
    arrivals = sorted(row[2] for row in all_rows)
    holes = [(a, b) for a, b in itertools.pairwise(arrivals) if b - a > max_gap]
    most_back = min(max_gap, 30 * SECOND)
    out: dict[tuple[int, int], Book] = {}
    touched: set[tuple[int, int]] = set()
    for token in range(3):
        token_rows = [row for row in all_rows if row[0] == token]
        is_known, levels, at = False, {}, -1
        before = None
        for i, (row, after) in enumerate(itertools.pairwise([*token_rows, None])):
            _, ts, seen, event, side, price, size = row
            is_back = before is not None and event != SNAPSHOT and before[1] - ts > most_back
            if is_back or (before is not None and is_broken(before[2], seen, holes, max_age)):
                is_known = False
            known_from = ts
            if event == GAP:
                known_from = min(ts, venue_time(seen, delays))
            elif event == SNAPSHOT and not is_known:
                run = itertools.takewhile(
                    lambda pair: not breaks(*pair, holes, max_age, most_back),
                    itertools.pairwise(token_rows[i:]),
                )
                changes = [later[1] for _, later in run if later[1] > ts]
                arrival = min([venue_time(seen, delays), *changes])
                known_from = arrival if arrival - ts > SECOND // 2 else ts
            at = known_from if before is None or is_back else max(at, known_from)
            before = row
            if event != CHANGE:
                is_known, levels = event == SNAPSHOT, {}
            if not np.isnan(price):
                levels[side, price] = size
            if not is_known:
                continue
            touched.add((token, at // width))
            end = min([a for a, _ in holes if a >= seen] + [arrivals[-1]])
            last = (max(at, venue_time(min(end, seen + max_age), delays)) if end > seen else at) // width
            if after is not None:
                _, next_ts, next_seen, next_event, *_ = after
                if ts - next_ts > most_back and next_event != SNAPSHOT:
                    last = at // width
                elif not is_broken(seen, next_seen, holes, max_age):
                    gap = min(next_ts, venue_time(next_seen, delays))
                    last = max(at, gap - 1) // width if next_event == GAP else max(at, next_ts) // width - 1
            bids = sorted(((p, s) for (d, p), s in levels.items() if d == BIDS and s > 0), reverse=True)
            asks = sorted((p, s) for (d, p), s in levels.items() if d == ASKS and s > 0)
            for bucket in range(at // width, last + 1):
                out[token, bucket] = tuple(bids), tuple(asks)
    return {key: book for key, book in out.items() if unchanged or key in touched}


def delays_of(all_rows: list[Row]) -> dict[int, int]:
    """The least delay in each minute that has a change, or a book that is newer than what was known."""
    least, told = dict[int, int](), set[int]()
    for token in range(3):
        before = is_sent = None
        for _, ts, seen, event, *_ in (row for row in all_rows if row[0] == token):
            if event != CHANGE or before != (ts, seen):  # levels of a book come with it
                is_sent = event == CHANGE or (event == SNAPSHOT and before is not None and ts > before[0])
            minute, before = seen // (60 * SECOND), (ts, seen)
            if event != GAP:
                least[minute] = min(least.get(minute, seen - ts), seen - ts)
            told |= {minute} if is_sent else set()
    return {minute: delay for minute, delay in least.items() if minute in told}


def venue_time(seen: int, delays: dict[int, int]) -> int:
    """The venue's time at a time of arrival."""
    minute = seen // (60 * SECOND)
    before, after = [m for m in delays if m < minute], [m for m in delays if m > minute]
    near = [*([max(before)] if before else []), *([minute] if minute in delays else [])] or sorted(after)[:1]
    return seen - min((delays[m] for m in near), default=0)


def breaks(row: Row, after: Row, holes: list[tuple[int, int]], max_age: int, most_back: int) -> bool:
    """Whether the book of a row does not go on in the next one."""
    is_back = row[1] - after[1] > most_back
    return after[3] != CHANGE or is_back or is_broken(row[2], after[2], holes, max_age)


def is_broken(seen: int, next_seen: int, holes: list[tuple[int, int]], max_age: int) -> bool:
    """Whether a recording has a hole, or a token is silent, between two of its rows."""
    return next_seen - seen > max_age or any(seen <= a and b <= next_seen for a, b in holes)


def as_dict(books: Books) -> dict[tuple[str, int], Book]:
    price, size = books.levels()
    pairs = list(zip(price.tolist(), size.tolist(), strict=True))
    cuts = np.concatenate(([0], np.cumsum(books.counts))).tolist()
    out = {}
    for i, (code, ts) in enumerate(zip(books.token.tolist(), books.ts.tolist(), strict=True)):
        key = str(books.tokens[code].token_id), ts
        assert key not in out, "one book per token and bucket"
        out[key] = tuple(pairs[cuts[2 * i] : cuts[2 * i + 1]]), tuple(pairs[cuts[2 * i + 1] : cuts[2 * i + 2]])
    return out


@settings(max_examples=15, deadline=None)
@given(
    rows,
    st.lists(st.integers(0, 60), max_size=4),
    st.sampled_from(["1s", "5s", "1m"]),
    st.sampled_from([3, 8, 1000]),
    st.sampled_from([5, 20, 1000]),
    st.booleans(),
)
def test_books_are_those_of_a_dictionary_of_levels(
    drawn: list, cuts: list[int], every: str, max_gap: int, max_age: int, unchanged: bool
) -> None:
    """A plain loop gives the same books, however the recording, with gaps and times that go back, is cut into parts."""
    width, all_rows = BucketWidth.of(every), timed(drawn)
    limits = max_gap * SECOND, max_age * SECOND
    state = Rebuilder(width, *limits, unchanged)
    parts = list(state.received(changes_of(all_rows).arrivals()))
    for a, b in itertools.pairwise([0, *sorted(cuts), 60]):
        parts += state.push(changes_of(all_rows[a:b]))
    parts += state.finish()
    plain = in_plain_python(all_rows, width.micros, *limits, unchanged=unchanged)
    expected = {(f"t{t}", b * width.micros): book for (t, b), book in plain.items()}
    assert as_dict(state.tally.books_of(parts)) == expected
    whole, tally = rebuild(changes_of(all_rows), width, max_gap=limits[0], max_age=limits[1], unchanged=unchanged)
    assert as_dict(whole) == expected
    assert tally.levels == state.tally.levels == sum(not np.isnan(row[5]) for row in all_rows)
    assert tally.applied + tally.unknown == len(all_rows)


books = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 12)),
    st.tuples(*[st.dictionaries(st.integers(1, 999), st.sampled_from([1.0, 2.5, 30.0]), max_size=4)] * 2),
    max_size=20,
)


def books_of(drawn: dict, width: BucketWidth) -> Books:
    keys = sorted(drawn)
    sides = [sorted(((p / 1000, s) for p, s in drawn[k][i].items()), reverse=not i) for k in keys for i in (0, 1)]
    levels = np.array([level for side in sides for level in side], np.float64).reshape(-1, 2)
    ts = np.array([START // width.micros * width.micros + b * width.micros for _, b in keys], np.int64)
    counts = np.array([len(side) for side in sides], np.int64)
    tokens = tuple(Token("m", f"t{i}", None) for i in range(3))
    out = Books.of_levels((), np.zeros(1, np.int64), ts, counts, levels[:, 0], levels[:, 1])
    return out.grouped(tokens, np.array([token for token, _ in keys], np.int32))


@settings(max_examples=8, deadline=None)
@given(books, st.sampled_from(["1s", "1m", "1h"]), st.booleans())
def test_books_from_the_changes_between_books_are_the_books(drawn: dict, every: str, unchanged: bool) -> None:
    """rebuild(diff(books)) is the books, with missing buckets, unchanged and empty books."""
    width = BucketWidth.of(every)
    given_books = books_of(drawn, width)
    changes = rule.first_rows(rule.diff(given_books, width))
    limits = {"max_gap": 2 * width.micros, "max_age": 2 * width.micros}
    books, _ = rebuild(changes, width, **limits, unchanged=unchanged)
    assert as_dict(books) == as_dict(given_books)
    assert books.sort().is_sorted


@pytest.mark.parametrize(("stated", "wrong"), [((0.4, 1.0), 0), ((0.41, 1.0), 1), ((0.4, 0.5), 1)])
def test_stated_best_prices_are_compared(stated: tuple[float, float], wrong: int) -> None:
    """The last message of a bucket states best bid and ask; a side without levels is stated as 0 or 1."""
    changes = changes_of([(0, START, START, SNAPSHOT, BIDS, 0.4, 10.0)])
    changes.values.update(zip(STATED, np.array([stated]).T, strict=True))
    books, tally = rebuild(changes, WIDTH, max_gap=SECOND, max_age=SECOND)
    assert (tally.checked, tally.disagreements, dict(books.values)) == (1, wrong, {})


def test_a_superseded_book_does_not_disagree() -> None:
    """A book that a later one of its bucket replaces, after a gap, is not compared."""
    late = START + SECOND // 2
    changes = changes_of([
        (0, START, START, SNAPSHOT, BIDS, 0.4, 10.0),
        (0, START + 1000, START + 1000, GAP, BIDS, np.nan, 0.0),
        (0, late, late, SNAPSHOT, BIDS, 0.5, 10.0),
    ])  # fmt: skip
    stated = np.array([(0.45, 1.0), (np.nan, np.nan), (0.5, 1.0)])
    changes.values.update(zip(STATED, stated.T, strict=True))
    _, tally = rebuild(changes, WIDTH, max_gap=SECOND, max_age=SECOND)
    assert (tally.checked, tally.disagreements) == (1, 0)


@settings(max_examples=8, deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_rows_in_any_order_give_the_books_of_their_times(drawn: list, random: Any) -> None:
    """Sorting by time undoes any order of the rows, where no two rows of a token have one time."""
    in_order = [(token, START + i * SECOND, START + i * SECOND, *row) for i, (token, _, *row, _) in enumerate(drawn)]
    shuffled = random.sample(in_order, len(in_order))
    limits = {"max_gap": 1000 * SECOND, "max_age": 1000 * SECOND}
    expected, _ = rebuild(changes_of(in_order), WIDTH, **limits)
    early, _ = rule.out_of_order(changes_of(shuffled), {})
    books, _ = rebuild(by_time(changes_of(shuffled)), WIDTH, **limits)
    assert as_dict(books) == as_dict(expected)
    times = {token: [row[1] for row in shuffled if row[0] == token] for token in range(3)}
    assert early == sum(t < max(ts[:i], default=0) for ts in times.values() for i, t in enumerate(ts))


def test_messages_of_one_moment_stay_in_order_when_the_newest_comes_first() -> None:
    """In a file with the newest message first, equal times are turned around too."""
    ts = [START, START, START + SECOND]
    rows_in_order = [
        (0, t, t, event, BIDS, 0.4, size) for t, event, size in zip(ts, (1, 0, 0), (1.0, 2.0, 3.0), strict=True)
    ]
    books, _ = rebuild(by_time(changes_of(rows_in_order[::-1])), WIDTH, max_gap=SECOND, max_age=SECOND)
    assert [book[0][0][1] for book in as_dict(books).values()] == [2.0, 3.0]
