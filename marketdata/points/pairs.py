"""Pairs of markets that may be one contract: what a comparison of their terms says, one question after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Verdict = Literal["same", "differs", "unknown"]
# What two contracts are compared by.
FACETS: Mapping[str, str] = {
    "orientation": "whether Yes of one is Yes of the other",
    "deadline": "until when it must happen",
    "close": "when trading ended",
    "source": "who says what happened",
    "rules": "the text of the rules",
    "strike": "the numbers in the question",
    "comparison": "above, or at or above",
    "tie": "what a tie or a cancelled event pays",
    "exclusive": "whether it is one of several outcomes that exclude each other",
    "outcome": "what the tokens paid",
}
# A pair of open markets has no outcome and no close, and few records say what kind of event theirs is.
MAY_BE_UNKNOWN = ("close", "outcome", "exclusive")


def verdict_of(facets: Mapping[str, Verdict], *, confirmed: bool) -> Verdict:
    """The verdict of a pair: one facet that differs decides, and what is unknown needs somebody who read both texts."""
    if "differs" in facets.values():
        return "differs"
    needed = [verdict for name, verdict in facets.items() if name not in MAY_BE_UNKNOWN]
    return "same" if confirmed or "unknown" not in needed else "unknown"
