"""Find the reading of the interface that explains a coarse answer by a fine one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np

from marketdata.conformance.report import READINGS, Finding
from marketdata.errors import LimitTooSmallError
from marketdata.points.columns import Books, Data, Page, Series, Token, values_of
from marketdata.points.resample import aggregate
from marketdata.resolution import BucketWidth
from marketdata.times import Range
from marketdata.wire.models import LARGEST_LIMIT

# Buckets that a reading explains, and all buckets.
Votes = tuple[int, int]
_NOTHING = "no view that decides it is allowed by the plan"
_LEAST = 0.9  # of the buckets must agree before a choice is named


class Pair(NamedTuple):
    """The same range of one view at two resolutions, of each point one number, its ``price``."""

    rng: Range
    fine: BucketWidth
    coarse: BucketWidth
    near: Series
    far: Series


def pairs(rng: Range, fine: BucketWidth, coarse: BucketWidth, views: tuple[Data, Data]) -> Iterator[Pair]:
    """A pair for each column of numbers; a book is numbered by its levels."""
    codes: dict[tuple[int, bytes], int] = {}
    series = [_numbered(one.sort(), codes) if isinstance(one, Books) else cast("Series", one.sort()) for one in views]
    for name in series[0].values:
        near, far = (replace(one, values={"price": values_of(one, name, np.dtype(float))}) for one in series)
        yield Pair(rng, fine, coarse, near, far)


def _numbered(books: Books, codes: dict[tuple[int, bytes], int]) -> Series:
    """Books as numbers, equal where books are; -0.0 equals 0.0."""
    levels, sides = np.stack(books.levels(), axis=1) + 0.0, books.counts.reshape(-1, 2)
    parts = np.split(levels, np.cumsum(sides.sum(axis=1)))
    keys = [(bids, part.tobytes()) for bids, part in zip(sides[:, 0].tolist(), parts, strict=False)]
    return books.series({"book": np.array([codes.setdefault(key, len(codes)) for key in keys], float)})


def predict(near: Series, fine: BucketWidth, coarse: BucketWidth, rule: str, label: str) -> Series:
    """The coarse answer that a rule makes from a fine one; ``t`` is the start or the end of a bucket."""
    shift, width = (fine.micros, coarse.micros) if label == "end" else (0, 0)
    out = cast("Series", aggregate(replace(near, ts=near.ts - shift), coarse, rule))
    return replace(out, ts=out.ts + width)


def compared(prices: list[Pair], metrics: list[Pair], books: list[Pair]) -> list[Finding]:
    """The readings that two resolutions decide, in the order of `READINGS`; a view without a pair decides nothing."""
    means = [*prices, *metrics]
    averages, orders, labels = (READINGS[name][1] for name in ("averages", "books", "label"))
    ways = [(pair, averages) for pair in means] + [(pair, orders) for pair in books]
    best = [{name: max((_agree(p, rule, name) for rule in rules), key=_share) for name in labels} for p, rules in ways]
    label = _decided("label", best)
    if label.found == "end":
        means, books = [_by_start(p) for p in means], [_by_start(p) for p in books]
    empty = find_empty(means[0]) if means else Finding("empty", None, _NOTHING)
    if empty.found == "previous":
        # The fine points that are no copies of the one before.
        fresh = [np.union1d(np.flatnonzero(np.diff(p.near.price, prepend=np.nan)), p.near.starts) for p in means]
        means = [p._replace(near=p.near.take(rows)) for p, rows in zip(means, fresh, strict=True)]
    return [
        label,
        _decided("averages", [{rule: _agree(p, rule) for rule in averages} for p in means]),
        _decided("books", [{rule: _agree(p, rule) for rule in orders} for p in books]),
        empty,
    ]


def _agree(pair: Pair, rule: str, label: str = "start") -> Votes:
    """The buckets with all their fine points in the answer, and whether a rule makes the coarse point from them."""
    agree = total = 0
    width, later = pair.coarse.micros, pair.coarse.micros if label == "end" else 0
    # The fine point at the very end of the range may or may not be in the answer.
    first, end = -(-pair.rng.start // width) * width + later, pair.rng.end // width * width
    given = _points(pair.far)
    for (token, t), value in _points(predict(pair.near, pair.fine, pair.coarse, rule, label)).items():
        if first <= t < end and not math.isnan(value):
            total += 1
            agree += _equal(value, given.get((token, t), math.nan))
    return agree, total


def _points(series: Series) -> dict[tuple[Token, int], float]:
    tokens = (series.tokens[i] for i in series.token.tolist())
    return dict(zip(zip(tokens, series.ts.tolist(), strict=True), series.price.tolist(), strict=True))


def _equal(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(1.0, abs(a))


def _share(votes: Votes) -> float:
    return votes[0] / votes[1] if votes[1] else 0.0


def _decided(reading: str, columns: list[dict[str, Votes]]) -> Finding:
    """The choice that agrees best, unless another agrees as well or none does."""
    if not columns:
        return Finding(reading, None, _NOTHING)
    # The votes of the columns that a choice explains; of all columns if no column is explained.
    explained = [votes for votes in columns if max(map(_share, votes.values())) >= _LEAST] or columns
    votes = {c: (sum(v[c][0] for v in explained), sum(v[c][1] for v in explained)) for c in columns[0]}
    best = max(votes, key=lambda choice: _share(votes[choice]))
    agree, total = votes[best]
    if not total:
        return Finding(reading, None, "no whole bucket with points in this range")
    same = [c for c in votes if _share(votes[c]) == _share(votes[best])]
    if len(same) > 1:
        return Finding(reading, None, f"{' and '.join(map(repr, same))} give the same in all {total} buckets")
    if _share(votes[best]) < _LEAST:
        return Finding(reading, None, f"none of {', '.join(votes)} explains it; {best!r} {agree} of {total} buckets")
    return Finding(reading, best, f"{agree} of {total} buckets")


def _by_start(pair: Pair) -> Pair:
    """The same points, named by the start of their bucket."""
    near, far = (replace(one, ts=one.ts - width.micros) for one, width in zip(pair[3:], pair[1:3], strict=True))
    return pair._replace(rng=Range(pair.rng.start, pair.rng.end - pair.coarse.micros), near=near, far=far)


def find_empty(pair: Pair) -> Finding:
    """The content of empty buckets: no point, a null, or the previous value."""
    holes = nulls = carried = 0
    width, step = pair.coarse.micros, pair.fine.micros
    far, ends = list(zip(pair.far.ts.tolist(), pair.far.price.tolist(), strict=True)), pair.far.bounds.tolist()
    given = {token: far[a:b] for token, (a, b) in zip(pair.far.tokens, pairwise(ends), strict=True)}
    for token, (a, b) in zip(pair.near.tokens, pairwise(pair.near.bounds.tolist()), strict=True):
        ts, values = pair.near.ts[a:b], pair.near.price[a:b]
        holes += int((np.diff(ts) > step).sum())
        for (before, last), (t, value) in pairwise(given.get(token, ())):
            first, end = np.searchsorted(ts, (t, t + width)).tolist()
            inside = values[first:end]
            if np.isnan(inside).all() and len(inside) in (0, width // step):
                nulls += math.isnan(value)
                carried += value == last
            # A bucket that is empty in the fine answer is filled there too: with the point before it.
            elif t - before == width and first and (inside == values[first - 1]).all():
                carried += _equal(value, last) and not _equal(value, values[first - 1])
    if nulls:
        return Finding("empty", "null", f"{nulls} nulls in {pair.coarse} buckets without a value")
    if carried:
        return Finding("empty", "previous", f"{carried} empty {pair.coarse} buckets repeat the value before")
    if holes:
        return Finding("empty", "absent", f"{holes} holes between points")
    return Finding("empty", None, "no empty bucket in this range")


def find_limit(near: Series, request: Callable[[int], Page]) -> Finding:
    """The unit of a limit, by a page of some limit: points in whole buckets, points, or distinct times."""
    points, tokens = sorted((t, token) for token, t in _points(near)), len(near.tokens)
    times = sorted({t for t, _ in points})

    def readings(limit: int) -> tuple[set[tuple[int, Token]], ...]:
        whole = {p for p in points[:limit] if len(points) <= limit or p[0] < points[limit][0]}
        return whole, set(points[:limit]), {p for p in points if len(times) <= limit or p[0] < times[limit]}

    # A page of one or two buckets may not tell, because tokens may have few times in common.
    limits = [n for n in (2 * tokens + 1, tokens, 7, 20, 50, 200) if tokens <= n <= LARGEST_LIMIT]
    if tokens < 2 or not limits:
        return Finding("limit", None, "a market of one token, or too many for a page")
    limit = next((n for n in limits if readings(n)[0] != readings(n)[2]), limits[0])
    try:
        page = request(limit)
    except LimitTooSmallError as error:
        if not error.minimum or error.minimum > LARGEST_LIMIT:
            return Finding("limit", None, "no page holds a bucket of all tokens")
        page = request(limit := error.minimum)
    whole, cut, many = readings(limit := page.limit or limit)
    received = {(t, token) for token, t in _points(cast("Series", page.columns))}
    brought = f"limit {limit} brought {len(received)} points at {len({t for t, _ in received})} times"
    if many == whole:
        return Finding("limit", None, f"{brought}; too few points to tell")
    if received in (whole, cut):
        return Finding("limit", "points", brought)
    if received == many:
        return Finding("limit", "times", brought)
    return Finding("limit", None, f"{brought}; neither reading explains it")
