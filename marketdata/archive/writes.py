"""The kinds of writes to the points of a view: which stored points go, and what the coverage says then.

================  ====================================================  ==========================================
write             stored points of its ranges that go                   coverage of its ranges after it
================  ====================================================  ==========================================
`Fetch`           all, but for added ones that are not replaced         its records; ``recorded`` around what stays
`Present`         those of equal token and bucket                       final if all tokens have a point
`Addition`        the same; if it is ``whole``, all of a token between  its state, but for complete ranges
                  its first new point and its last
`Observation`     those of equal token and bucket                       ``recorded``, but for complete ranges
`Withdrawal`      those of what is ``recorded``                         none of what was ``recorded``
`Refusal`         none                                                  its state, where nothing is stored
================  ====================================================  ==========================================

Prints have no buckets. Each stays, unless a write tells more of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from marketdata.archive.coverage.intervals import (
    CoverageRecord,
    CoverageState,
    covered,
    overlay,
    subtract,
    union,
    within,
    without,
)
from marketdata.archive.coverage.policy import SHORTEST_GAP, recorded_beside
from marketdata.archive.market_ranges import Bools, Ranges, Records, Times, count, inside, slices
from marketdata.points.columns import Data
from marketdata.points.views import View
from marketdata.times import Range

# Points in these states may be the user's own, so a fetch replaces only points that it brings.
_ADDED = (CoverageState.RECORDED, CoverageState.UNVERIFIED)


class Change(NamedTuple):
    """Sorted times of each market's points: the written ones, and the stored ones in its ranges that stay or go."""

    new: Times
    stay: Times
    gone: Times


@dataclass(frozen=True)
class Write:
    """New points of a view at the base, in tidy order, and by market the ``ranges`` where something may change.

    Prints are `points.prints.distinct`. ``now`` is the time of the write.
    """

    view: View
    columns: Data
    ranges: Ranges
    width: int  # of the base
    now: int

    @property
    def joins_prints(self) -> bool:
        """Whether new prints are added to those that are stored; else these go as points of other views do."""
        return True

    def stays(self, rows: Data, before: Records) -> Bools:  # noqa: ARG002  of kinds that keep what was added
        """True for stored points that stay; ``before`` is the coverage of their markets."""
        return ~_replaced(rows, self.columns, self.width)

    def entries(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Iterable[CoverageRecord]:
        """The new records of a market; those without ``rows`` are counted."""
        raise NotImplementedError

    def coverage(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Sequence[CoverageRecord]:
        """All records of a market after the write."""
        return overlay(self.entries(market, before, change), before)


@dataclass(frozen=True)
class Fetch(Write):
    """All points that a service has of the ranges of ``fresh`` records."""

    fresh: Records

    def stays(self, rows: Data, before: Records) -> Bools:
        """Of what was fetched nothing stays; added points stay that no new one replaces."""
        added = {market: [r.range for r in records if r.state in _ADDED] for market, records in before.items()}
        return super().stays(rows, before) & inside(rows, added)

    def entries(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Iterable[CoverageRecord]:
        """The records of the fetch; where added points stay, it is ``recorded``."""
        fresh = self.fresh[market]
        added = (r.range for one in union(self.ranges[market]) for r in within(before, one) if r.state in _ADDED)
        occupied = _occupied(change.stay.get(market, np.empty(0)), union(added), self.width)
        return [*fresh, *(recorded_beside(r) for one in occupied for r in within(fresh, one))]


@dataclass(frozen=True)
class Present(Write):
    """Points of one bucket; ``tokens`` counts the tokens of each market."""

    bucket: Range
    tokens: Mapping[str, int]

    def entries(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Iterable[CoverageRecord]:  # noqa: ARG002
        """Final if every token of the market has a point."""
        entry = CoverageRecord(*self.bucket, CoverageState.FINAL, None, self.now)
        has_all = count(market, entry, change.new, change.stay) >= self.tokens[market]
        return [entry if has_all else entry._replace(state=CoverageState.RECORDED)]


@dataclass(frozen=True)
class Addition(Write):
    """Points of a user, whose ranges get ``state``."""

    state: CoverageState
    whole: bool

    @property
    def joins_prints(self) -> bool:
        """Prints between the first and the last new one go if the addition is ``whole``."""
        return not self.whole

    def stays(self, rows: Data, before: Records) -> Bools:  # noqa: ARG002
        """The points that the new ones leave."""
        return ~_replaced(rows, self.columns, self.width, whole=self.whole)

    def entries(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Iterable[CoverageRecord]:
        """The state outside of what is complete."""
        is_final = self.state == CoverageState.FINAL
        states = () if is_final else (CoverageState.FINAL, CoverageState.RECORDED)
        return _around([r for r in before if r.state in states], self, market, change)


@dataclass(frozen=True)
class Observation(Write):
    """Points of a live stream, in the ranges in which it was seen."""

    state = CoverageState.RECORDED

    def entries(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Iterable[CoverageRecord]:
        """``recorded`` outside of what is complete."""
        complete = [r for r in before if r.state == CoverageState.FINAL]
        return _around(complete, self, market, change)


@dataclass(frozen=True)
class Withdrawal(Write):
    """Removes what a live stream recorded."""

    @property
    def joins_prints(self) -> bool:
        """Nothing is added."""
        return False

    def stays(self, rows: Data, before: Records) -> Bools:
        """The points that no stream recorded."""
        return ~inside(rows, {market: _recorded(before[market], self.ranges[market]) for market in self.ranges})

    def coverage(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Sequence[CoverageRecord]:  # noqa: ARG002
        """The records without what was ``recorded``."""
        return without(before, _recorded(before, self.ranges[market]))


@dataclass(frozen=True)
class Refusal(Write):
    """Ranges that a service does not give, which get ``state``."""

    state: CoverageState

    def entries(self, market: str, before: Sequence[CoverageRecord], change: Change) -> Iterable[CoverageRecord]:  # noqa: ARG002
        """The state where nothing is stored."""
        return [CoverageRecord(*one, self.state, 0, self.now) for one in subtract(self.ranges[market], covered(before))]


def _around(
    complete: Sequence[CoverageRecord], write: Addition | Observation, market: str, change: Change
) -> list[CoverageRecord]:
    """Records of the state of a write outside of complete ranges, and these with the points that they have now."""
    free = subtract(write.ranges[market], [record.range for record in complete])
    return [*(CoverageRecord(*one, write.state, None, write.now) for one in free), *_grown(market, complete, change)]


def _grown(market: str, records: Iterable[CoverageRecord], change: Change) -> Iterator[CoverageRecord]:
    """The records whose number of points a write changes, with the new number."""
    for record in records:
        if grown := count(market, record, change.new) - count(market, record, change.gone):
            yield record._replace(rows=(record.rows or 0) + grown)


def _recorded(before: Sequence[CoverageRecord], ranges: Sequence[Range]) -> list[Range]:
    """The parts of ranges of a market that are recorded."""
    parts = (record for one in union(ranges) for record in within(before, one))
    return [record.range for record in parts if record.state == CoverageState.RECORDED]


def _replaced(rows: Data, columns: Data, width: int, *, whole: bool = False) -> Bools:
    """True for rows with a token and bucket of the columns; with ``whole`` also for rows of the token between these."""

    def identity(token: Any) -> tuple[str | None, ...]:
        return (token.market_id, token.token_id, None if token.token_id else token.token_label)

    out, places = np.zeros(len(rows), bool), {identity(token): place for token, place in slices(columns)}
    for token, place in slices(rows):
        if identity(token) in places:
            ts, times = rows.ts[place], columns.ts[places[identity(token)]]
            out[place] = (ts >= times[0]) & (ts <= times[-1]) if whole else np.isin(ts // width, times // width)
    return out


def _occupied(times: Any, where: Sequence[Range], width: int) -> Iterator[Range]:
    """Ranges of buckets from point to point inside ``where``, with less than an hour between two points."""
    for limits in where:
        starts = np.unique(times[(times >= limits.start) & (times < limits.end)] // width * width)
        for part in np.split(starts, np.flatnonzero(np.diff(starts) > max(SHORTEST_GAP, width)) + 1):
            if len(part):
                yield Range(int(part[0]), int(part[-1]) + width)
