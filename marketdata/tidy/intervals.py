"""Columns of intervals in results, and warnings about intervals that say little or cannot be given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from marketdata.errors import FewMarketsWarning, warn
from marketdata.points.columns import Floats
from marketdata.points.intervals import ENOUGH, LEAST, Interval, Reason, Sampling

_WHY: dict[Reason, str] = {
    "few": f"which have fewer than {LEAST} clusters",
    "alike": "whose clusters are all alike",
    "same outcome": "whose markets all paid the same",
    "one sign": "in which too few rows of the other sign show what they cost, such as favourites that lost",
    "separated": "in which a line through x separates the outcomes, so that no slope is steep enough",
    "no variation": "in which x has no variation that the other columns do not explain",
    "no spread": "whose mean hangs on a few clusters, such as those of a rare outcome",
}


def ends(name: str, intervals: Sequence[Interval]) -> dict[str, Floats]:
    """The columns of the ends of intervals."""
    low, high = np.array([(one.low, one.high) for one in intervals], float).reshape(-1, 2).T
    return {f"{name}low": low, f"{name}high": high}


def warn_of_intervals(name: str, sampling: Sampling, intervals: Sequence[Interval]) -> None:
    """FewMarketsWarning for intervals over few clusters, of a rare outcome, or that are null."""
    count, problems = len(intervals), []
    for what, numbers in (
        ("effective clusters", [one.effective for one in intervals if 0 < one.effective < ENOUGH]),
        (
            "clusters of the rarer outcome",
            [one.rarer for one in intervals if 0 < one.rarer < min(one.effective, ENOUGH)],
        ),
    ):
        if numbers:
            problems.append(f"rests on as few as {min(numbers):.3g} {what} in {len(numbers)} of {count} rows")
    reasons = Counter(one.reason for one in intervals if one.reason)
    problems += [f"is null in {null} of {count} rows, {_WHY[reason]}" for reason, null in sorted(reasons.items())]
    if problems:
        warn(
            f"The {sampling.share:.0%} interval of {name} {', and '.join(problems)}. Below {ENOUGH} clusters, also of "
            "the rarer outcome, an interval covers less often than it says.",
            FewMarketsWarning,
            hint="Add markets, or leave the interval out with interval=None.",
        )
