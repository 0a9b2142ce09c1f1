"""When a market was alive: its start, the end that was scheduled, its close and its resolution.

A time is None where nobody knows it. A venue may move the scheduled end to the close; then it is no schedule, and None.
Rows after the close are neither forecasts nor fills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from marketdata.points.columns import Floats
from marketdata.times import first_time

End = Literal["scheduled", "actual"]
ENDS: tuple[End, ...] = ("scheduled", "actual")
# The columns of outcomes, and of records, that say the times of a life.
TIMES = ("ends_at", "closed_at", "resolved_at")
SCHEDULES = ("ends_at", "end_date")
# The fields of a record that `of_record` reads.
RECORD_TIMES = ("start_date", "created_at", *SCHEDULES, *TIMES[1:])


class Life(NamedTuple):
    """The times of a market [microseconds], None where unknown."""

    starts_at: int | None = None
    ends_at: int | None = None
    closed_at: int | None = None
    resolved_at: int | None = None

    def end(self, which: End) -> int | None:
        """The end that was scheduled, or the end of trading, and the resolution where that is not known."""
        return self.ends_at if which == "scheduled" else self.resolved_at if self.closed_at is None else self.closed_at

    @property
    def over(self) -> float:
        """From when on nothing was to forecast, and nobody traded; infinity if that is not known."""
        return float(min((time for time in (self.closed_at, self.resolved_at) if time is not None), default=np.inf))

    @property
    def paid_at(self) -> int | None:
        """When it was known what a market pays that has a payoff."""
        return self.closed_at if self.resolved_at is None else self.resolved_at


UNKNOWN = Life()


def of_record(record: Mapping[str, Any]) -> Life:
    """The life in a record, whose times are ISO 8601 texts."""
    starts_at = first_time(record, "start_date", "created_at")
    return Life(starts_at, first_time(record, *SCHEDULES), *(first_time(record, name) for name in TIMES[1:]))


def over(lives: Mapping[str, Life], markets: Sequence[str | None]) -> Floats:
    """When each of these markets was over [microseconds], infinity where that is not known."""
    return np.array([lives.get(market or "", UNKNOWN).over for market in markets], float)
