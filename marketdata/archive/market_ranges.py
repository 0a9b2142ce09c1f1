"""Points by market: which lie in ranges, at which times, and how many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.archive.coverage.intervals import CoverageRecord
from marketdata.archive.coverage.policy import MINUTE
from marketdata.points.columns import Data, Ints
from marketdata.times import Range

Bools = NDArray[np.bool_]
# By market.
Ranges = Mapping[str, Sequence[Range]]
Records = Mapping[str, Sequence[CoverageRecord]]
Times = Mapping[str, Ints]


def slices(points: Data) -> Iterator[tuple[Any, slice]]:
    """Each token, and the place of its points."""
    return zip(points.tokens, itertools.starmap(slice, itertools.pairwise(points.bounds.tolist())), strict=True)


def inside(points: Data, ranges: Ranges) -> Bools:
    """True for points that lie in a range of their market."""
    out = np.zeros(len(points), bool)
    for token, place in slices(points):
        for start, end in ranges.get(token.market_id, ()):
            out[place] |= (points.ts[place] >= start) & (points.ts[place] < end)
    return out


def times_of(*parts: Data) -> dict[str, Ints]:
    """For each market the sorted times of its points."""
    times: dict[str, list[Ints]] = {}
    for part in parts:
        for token, place in slices(part):
            times.setdefault(token.market_id, []).append(part.ts[place])
    return {market: np.sort(np.concatenate(of_market)) for market, of_market in times.items()}


def count(market: str, record: CoverageRecord, *times: Times) -> int:
    """How many points a market has inside a record."""
    return int(sum(np.diff(np.searchsorted(of[market], record.range))[0] for of in times if market in of))


def hull_of(times: Ints, width: int) -> Range:
    """The range of whole buckets, at least of whole minutes, from the first time to the last."""
    step = max(width, MINUTE)
    return Range(int(times.min()) // step * step, int(times.max()) // step * step + step)
