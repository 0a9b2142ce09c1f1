"""Which reading of the interface (a choice that it leaves open) a service follows, by a fine and a coarse answer."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.conformance.predict import TimedValues, ValuesOfTokens, closed_buckets, predict
from marketdata.points.columns import Floats
from marketdata.resolution import Resolution
from marketdata.times import Range

# Open point -> the question, then this library's answer and the others that data can distinguish.
READINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "label": ("what t names", ("start", "end")),
    "averages": ("what a mean is taken over", ("points", "means", "last")),
    "books": ("which book of a bucket is given", ("last", "first")),
    "empty": ("what an empty bucket has", ("absent", "null", "previous")),
    "limit": ("what limit counts", ("points", "times")),
}
# Readings of the interface in words.
MEANINGS = {
    "start": "the start of the bucket",
    "end": "the end of the bucket",
    "points": "points of the finest resolution",
    "means": "means of the next finer resolution",
    "last": "the last one",
    "first": "the first one",
    "absent": "no point",
    "null": "a point without a value",
    "previous": "the value before it",
    "times": "distinct times",
}
Votes = tuple[int, int]  # how many buckets agree, of how many
_LEAST = 0.9  # of the buckets must agree before a choice is named


@dataclass(frozen=True)
class Finding:
    """The choice that a service follows in one of `READINGS` (None: undecidable), and the evidence."""

    reading: str
    found: str | None
    evidence: str

    @property
    def state(self) -> str:
        """followed, variant or not decidable."""
        if self.found is None:
            return "not decidable"
        return "followed" if self.found == READINGS[self.reading][1][0] else "variant"

    def __str__(self) -> str:
        question, choices = READINGS[self.reading]
        meaning = MEANINGS.get(self.found or "", self.found or f"{' or '.join(map(repr, choices))}?")
        if self.reading == "limit" and self.found == "points":
            meaning = "points: label x bucket"
        named = f" {self.found!r}" if self.state == "variant" else ""
        return f"{self.reading:<9} {self.state}{named}: {question}: {meaning} ({self.evidence})"


@dataclass(frozen=True)
class Verification:
    """Which readings a service follows, a finding per reading, as text and HTML."""

    market: str
    rng: Range
    fine: str
    coarse: str
    findings: tuple[Finding, ...]

    @property
    def followed(self) -> bool:
        """Whether every reading is decided and followed."""
        return all(f.state == "followed" for f in self.findings)

    @property
    def variants(self) -> dict[str, str]:
        """The readings that the service does not follow, and what it does instead."""
        return {f.reading: f.found for f in self.findings if f.state == "variant" and f.found}

    @property
    def undecided(self) -> tuple[str, ...]:
        """The readings that this data cannot decide."""
        return tuple(f.reading for f in self.findings if f.found is None)

    def __getitem__(self, reading: str) -> Finding:
        return {f.reading: f for f in self.findings}[reading]

    def __str__(self) -> str:
        head = f"Readings of {self.market}, {self.fine} against {self.coarse}, {self.rng}:"
        return "\n".join([head, *(f"  {f}" for f in self.findings)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lines = [
            (f.reading, READINGS[f.reading][0], f.state, MEANINGS.get(f.found or "", f.found or ""), f.evidence)
            for f in self.findings
        ]
        cells = "".join("<tr>" + "".join(f"<td>{html.escape(x)}</td>" for x in line) + "</tr>" for line in lines)
        head = "".join(f"<th>{h}</th>" for h in ("reading", "question", "state", "found", "evidence"))
        title = html.escape(f"{self.market}, {self.fine} against {self.coarse}, {self.rng}")
        return f"<table><caption>{title}</caption><tr>{head}</tr>{cells}</table>"


class Pair(NamedTuple):
    """The same range of one view at two resolutions."""

    rng: Range
    fine: Resolution
    coarse: Resolution
    fine_series: ValuesOfTokens
    coarse_series: ValuesOfTokens


def compared(prices: Pair, metrics: Iterable[Pair], books: Pair) -> list[Finding]:
    """The readings that two resolutions decide, in the order of `READINGS`."""
    means = [prices, *metrics]
    averages, orders, labels = (READINGS[name][1] for name in ("averages", "books", "label"))
    ways = [(pair, averages) for pair in means] + [(books, orders)]
    best = [{name: max((_agree(p, rule, name) for rule in rules), key=_share) for name in labels} for p, rules in ways]
    label = _decided("label", _summed(best))
    if label.found == "end":
        means, books = [_by_start(p) for p in means], _by_start(books)
    empty = find_empty(means[0])
    if empty.found == "previous":
        means = [_without_fills(p) for p in means]
    votes = [{rule: _agree(p, rule) for rule in averages} for p in means]
    return [
        label,
        _decided("averages", _summed(votes)),
        _decided("books", {rule: _agree(books, rule) for rule in orders}),
        empty,
    ]


def _summed(votes: list[dict[str, Votes]]) -> dict[str, Votes]:
    """The votes of all columns that one of the choices explains; of all where none is explained."""
    explained = [v for v in votes if max(map(_share, v.values())) >= _LEAST] or votes
    out = {}
    for choice in votes[0]:
        agree, total = (sum(v[choice][k] for v in explained) for k in (0, 1))
        out[choice] = agree, total
    return out


def _by_start(pair: Pair) -> Pair:
    """The same points, named by the start of their bucket."""
    fine = {token: (ts - pair.fine.micros, values) for token, (ts, values) in pair.fine_series.items()}
    coarse = {token: (ts - pair.coarse.micros, values) for token, (ts, values) in pair.coarse_series.items()}
    rng = Range(pair.rng.start, pair.rng.end - pair.coarse.micros)
    return Pair(rng, pair.fine, pair.coarse, fine, coarse)


def _share(votes: Votes) -> float:
    return votes[0] / votes[1] if votes[1] else 0.0


def _decided(reading: str, votes: Mapping[str, Votes]) -> Finding:
    """The choice that agrees best, unless another agrees as well or none does."""
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


def _agree(pair: Pair, rule: str, label: str = "start") -> Votes:
    """In how many buckets, of how many, the coarse answer is what a rule makes of the fine one."""
    agree = total = 0
    closed = closed_buckets(pair.rng, label, pair.coarse)
    for token, (ts, values) in pair.fine_series.items():
        given = _by_time(pair.coarse_series.get(token))
        for t, value in predict(ts, values, rule, label, pair.fine, pair.coarse).items():
            if value is None or t not in closed:
                continue
            total += 1
            agree += t in given and _equal(value, given[t])
    return agree, total


def _equal(a: float | bytes, b: float | bytes) -> bool:
    if isinstance(a, bytes) or isinstance(b, bytes):
        return a == b
    return bool(abs(a - b) <= 1e-9 * max(1.0, abs(a)))


def _by_time(answer: TimedValues | None) -> dict[int, float | bytes]:
    return dict(zip(answer[0].tolist(), answer[1], strict=True)) if answer is not None else {}


def find_empty(pair: Pair) -> Finding:
    """What an empty bucket has: no point, a null, or the value before."""
    holes = nulls = carried = 0
    width, step = pair.coarse.micros, pair.fine.micros
    for token, (ts, values) in pair.fine_series.items():
        holes += int((np.diff(ts) > step).sum())
        given = _by_time(pair.coarse_series.get(token))
        moments = sorted(given)
        missing = np.isnan(np.asarray(values, float))
        for before, t in pairwise(moments):
            inside = (ts >= t) & (ts < t + width)
            value, last = float(given[t]), float(given[before])
            if not inside.any() or (missing[inside].all() and inside.sum() == width // step):
                nulls += np.isnan(value)
                carried += value == last
            elif t - before == width:
                carried += _repeats(np.asarray(values, float), inside, value, last)
    if nulls:
        return Finding("empty", "null", f"{nulls} nulls in {pair.coarse} buckets without a value")
    if carried:
        return Finding("empty", "previous", f"{carried} empty {pair.coarse} buckets repeat the value before")
    if holes:
        return Finding("empty", "absent", f"{holes} holes between points")
    return Finding("empty", None, "no empty bucket in this range")


def _repeats(values: Floats, inside: NDArray[np.bool_], value: float, last: float) -> bool:
    """Whether a coarse value repeats the one before: its fine points are all equal, and their mean is another."""
    first = int(np.flatnonzero(inside)[0])
    if first == 0:
        return False
    before = values[first - 1]
    only = bool((values[inside] == before).all())
    return only and _equal(value, last) and not _equal(value, before)


def _without_fills(pair: Pair) -> Pair:
    """The fine points that are no copies of the one before."""
    kept = {}
    for token, (ts, values) in pair.fine_series.items():
        fresh = np.append(True, np.asarray(values[1:]) != np.asarray(values[:-1])) if len(ts) else np.empty(0, bool)
        kept[token] = ts[fresh], np.asarray(values)[fresh]
    return pair._replace(fine_series=kept)


class FirstPage(NamedTuple):
    """The first page of an answer, and its requested limit."""

    limit: int
    points: frozenset[tuple[str, int]]


def find_limit(pair: Pair, page: FirstPage | None) -> Finding:
    """Whether a page has so many points, or so many distinct times."""
    if page is None:
        return Finding("limit", None, "a market of one token, or too many for a page")
    each = ((t, token) for token, (ts, _) in pair.fine_series.items() for t in ts.tolist())
    points: list[tuple[int, str]] = sorted(each)
    times = sorted({t for t, _ in points})
    whole: set[tuple[str, int]] = set()
    for t in times:
        bucket = {(token, at) for at, token in points if at == t}
        if len(whole) + len(bucket) > page.limit:
            break
        whole |= bucket
    many = {(token, t) for t, token in points if t in times[: page.limit]}
    cut = {(token, t) for t, token in points[: page.limit]}
    brought = f"limit {page.limit} brought {len(page.points)} points at {len({t for _, t in page.points})} times"
    if many == whole:
        return Finding("limit", None, f"{brought}; too few points to tell")
    if page.points == whole or page.points == cut:  # noqa: PLR1714 sets are no keys
        return Finding("limit", "points", brought)
    if page.points == many:
        return Finding("limit", "times", brought)
    return Finding("limit", None, f"{brought}; neither reading explains it")
