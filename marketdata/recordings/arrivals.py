"""When messages arrived, and what the venue's clock showed then.

A message has two times: the recorder's time of arrival, and the venue's time. The venue's time of a change is the time
at which it was sent. The venue's time of a book is that of its last change, which may be hours old. So the least delay
of a minute is the difference of the clocks, if a message of that minute tells when it was sent: a change, or a book
that is newer than what was known before. What a message is later than that is its own delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Ints
from marketdata.times import MINUTE, SECOND

Bools = NDArray[np.bool_]
# The venue's time of a message that states none.
UNSTATED = -(1 << 62)
# More than clocks go back, and the age from which a state is older than its message.
CLOCK_ERROR, OLD_STATE = 30 * SECOND, SECOND // 2


class Arrivals(NamedTuple):
    """The times at which messages arrived, the venue's times in them, and whether these tell when they were sent."""

    seen: Ints
    stated: Ints
    is_sent: Bools

    @classmethod
    def joined(cls, parts: Sequence[Arrivals]) -> Arrivals:
        """The arrivals of all parts."""
        none = cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))
        return cls(*(np.concatenate(arrays) for arrays in zip(none, *parts, strict=True)))


@dataclass(frozen=True, eq=False)
class VenueClock:
    """The difference of the recorder's clock and the venue's, minute by minute.

    It is the least delay in this minute and in the last minute with a message that tells when it was sent, else the one
    in the first such minute after it. Without such messages the clocks count as equal, and so they do if messages seem
    to arrive up to 30 seconds before they were sent.
    """

    minutes: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    least: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    is_told: Bools = field(default_factory=lambda: np.empty(0, bool))

    def noting(self, arrivals: Arrivals) -> VenueClock:
        """The clock that also knows the delays of these messages."""
        states = arrivals.stated != UNSTATED
        minutes = np.append(self.minutes, arrivals.seen[states] // MINUTE)
        delays = np.append(self.least, (arrivals.seen - arrivals.stated)[states])
        is_told = np.append(self.is_told, arrivals.is_sent[states])
        if not len(minutes):
            return self
        order = np.lexsort((delays, minutes))
        first = np.flatnonzero(np.diff(minutes[order], prepend=UNSTATED))
        least = order[first]
        return VenueClock(minutes[least], delays[least], np.logical_or.reduceat(is_told[order], first))

    def recent(self) -> VenueClock:
        """The last two minutes that tell of the clocks."""
        kept = np.flatnonzero(self.is_told)[-2:]
        return VenueClock(self.minutes[kept], self.least[kept], self.is_told[kept])

    def at(self, seen: Ints) -> Ints:
        """The venue's time at these times of arrival."""
        minutes, least = self.minutes[self.is_told], self.least[self.is_told]
        if not len(minutes):
            return seen
        before, this = (np.searchsorted(minutes, seen // MINUTE, side) - 1 for side in ("left", "right"))
        delay = np.minimum(least[np.maximum(before, 0)], least[np.maximum(this, 0)])
        return seen - np.where((delay < 0) & (delay >= -CLOCK_ERROR), 0, delay)
