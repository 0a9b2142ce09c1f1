"""Find the reading of the interface that explains a coarse answer by a fine one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np

from marketdata.conformance.report import READINGS, Finding
from marketdata.points.columns import Books, Data, Page, Series, Token
from marketdata.points.resample import aggregate
from marketdata.resolution import BucketWidth
from marketdata.times import Range

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


def pairs(rng: Range, fine: BucketWidth, coarse: BucketWidth, near: Data, far: Data) -> Iterator[Pair]:
    """A pair for each column of numbers; a book is numbered by its levels."""
    codes: dict[bytes, int] = {}
    series = [_numbered(columns.sort(), codes) for columns in (near, far)]
    for name in series[0].values:
        none = np.empty(0)
        yield Pair(rng, fine, coarse, *(replace(one, values={"price": one.values.get(name, none)}) for one in series))


def _numbered(columns: Data, codes: dict[bytes, int]) -> Series:
    """Books as numbers, equal where books are."""
    if isinstance(columns, Series):
        return columns
    return columns.series({"book": np.array([codes.setdefault(book, len(codes)) for book in _texts(columns)], float)})


def _texts(books: Books) -> Iterator[bytes]:
    """Each book as bytes; -0.0 equals 0.0."""
    data, sides = (np.stack(books.levels(), axis=1) + 0.0).tobytes(), books.counts.reshape(-1, 2)
    ends = (np.cumsum(sides.sum(axis=1)) * 16).tolist()
    for begin, end, bids in zip([0, *ends], ends, sides[:, 0].tolist(), strict=False):
        yield data[begin:end] + bids.to_bytes(8, "little")


def predict(near: Series, fine: BucketWidth, coarse: BucketWidth, rule: str, label: str) -> Series:
    """The coarse answer that a rule makes of a fine one, where ``t`` is the start or the end of a bucket."""
    shift, width = (fine.micros, coarse.micros) if label == "end" else (0, 0)
    out = cast("Series", aggregate(replace(near, ts=near.ts - shift), coarse, rule))
    return replace(out, ts=out.ts + width)


def compared(prices: list[Pair], metrics: list[Pair], books: list[Pair]) -> list[Finding]:
    """The readings that two resolutions decide, in the order of `READINGS`; a view without a pair decides nothing."""
    means = [*prices, *metrics]
    averages, orders, labels = (READINGS[name][1] for name in ("averages", "books", "label"))
    ways = [(pair, averages) for pair in means] + [(pair, orders) for pair in books]
    best = [{name: max((_agree(p, rule, name) for rule in rules), key=_share) for name in labels} for p, rules in ways]
    label = _decided("label", _summed(best))
    if label.found == "end":
        means, books = [_by_start(p) for p in means], [_by_start(p) for p in books]
    empty = find_empty(means[0]) if means else Finding("empty", None, _NOTHING)
    if empty.found == "previous":
        means = [_without_fills(p) for p in means]
    votes = [{rule: _agree(p, rule) for rule in averages} for p in means]
    return [
        label,
        _decided("averages", _summed(votes)),
        _decided("books", _summed([{rule: _agree(p, rule) for rule in orders} for p in books])),
        empty,
    ]


def _agree(pair: Pair, rule: str, label: str = "start") -> Votes:
    """The buckets whose fine points are all in the answer, in which the coarse one is what a rule makes of them."""
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


def _summed(votes: list[dict[str, Votes]]) -> dict[str, Votes]:
    """The votes of all columns that one of the choices explains; of all where none is explained."""
    explained = [v for v in votes if max(map(_share, v.values())) >= _LEAST] or votes
    choices = votes[0] if votes else ()
    return {c: (sum(v[c][0] for v in explained), sum(v[c][1] for v in explained)) for c in choices}


def _decided(reading: str, votes: Mapping[str, Votes]) -> Finding:
    """The choice that agrees best, unless another agrees as well or none does."""
    if not votes:
        return Finding(reading, None, _NOTHING)
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
    near, far = (
        replace(one, ts=one.ts - width.micros) for one, width in ((pair.near, pair.fine), (pair.far, pair.coarse))
    )
    return pair._replace(rng=Range(pair.rng.start, pair.rng.end - pair.coarse.micros), near=near, far=far)


def _without_fills(pair: Pair) -> Pair:
    """The fine points that are no copies of the one before."""
    fresh = np.diff(pair.near.price, prepend=np.nan) != 0
    fresh[pair.near.starts] = True
    return pair._replace(near=pair.near.take(np.flatnonzero(fresh)))


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


def readings_of_limit(near: Series, limit: int) -> tuple[set[tuple[int, Token]], ...]:
    """The units that ``limit`` may count: points in whole buckets, points, or distinct times."""
    points = sorted((t, token) for token, t in _points(near))
    times = sorted({t for t, _ in points})
    whole = {p for p in points[:limit] if len(points) <= limit or p[0] < points[limit][0]}
    return whole, set(points[:limit]), {p for p in points if len(times) <= limit or p[0] < times[limit]}


def find_limit(near: Series, page: Page | None) -> Finding:
    """The unit of a limit: the points of a page, or its distinct times."""
    if page is None or page.limit is None:
        return Finding("limit", None, "a market of one token, or too many for a page")
    limit, received = page.limit, {(t, token) for token, t in _points(cast("Series", page.columns))}
    whole, cut, many = readings_of_limit(near, limit)
    brought = f"limit {limit} brought {len(received)} points at {len({t for t, _ in received})} times"
    if many == whole:
        return Finding("limit", None, f"{brought}; too few points to tell")
    if received in (whole, cut):
        return Finding("limit", "points", brought)
    if received == many:
        return Finding("limit", "times", brought)
    return Finding("limit", None, f"{brought}; neither reading explains it")
