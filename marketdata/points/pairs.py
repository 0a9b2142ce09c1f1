"""Pairs of markets that may be one contract: what their terms say, one question after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from marketdata.times import DAY, to_text

Verdict = Literal["same", "differs", "unknown"]
Orientation = Literal["same", "inverted"]
# What two contracts are compared by.
FACETS: Mapping[str, str] = {
    "orientation": "whether Yes of one is Yes of the other",
    "deadline": "until when it must happen",
    "close": "when trading ended",
    "source": "who says what happened",
    "question": "the words of the question",
    "rules": "the text of the rules",
    "strike": "the numbers in the question",
    "comparison": "above, or at or above",
    "tie": "what a tie or a cancelled event pays",
    "exclusive": "whether it is one of several outcomes that exclude each other",
    "outcome": "what the tokens paid",
}
# A pair of open markets has no outcome and no close, and few records say what kind of event theirs is.
_MAY_BE_UNKNOWN = ("close", "outcome", "exclusive")
_COMPLEMENTS = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_YES_NO = ("yes", "no")
# Venues schedule the end of one question hours apart, by their zones and by when its result is published.
_MOST_APART = 2 * DAY


class Terms(NamedTuple):
    """What a market record says of its contract; None or an empty set where it says nothing, or two things.

    - ``cutoff``: the end of the time in which it must happen, by the calendar [microseconds]; from words
    - ``clock``: the times of day that the question names, in minutes, each with its zone
    - ``deadline``, ``closed_at``: the scheduled end and the end of trading [microseconds UTC]
    - ``sources``: who says what happened, by domain or name
    - ``rules``: the text of the rules, without case and signs
    - ``strikes``, ``comparison``: numbers that the question names, and how they are compared
    - ``tie``: what happens in a tie, or if nothing takes place
    - ``exclusive``: whether the markets of its event exclude each other
    - ``denies``: whether the question asks that something does not happen
    - ``labels``, ``payoffs``: of its tokens, in order
    """

    market: str
    question: str
    tokens: tuple[str, ...]
    labels: tuple[str, ...]
    cutoff: int | None
    clock: tuple[tuple[int, str], ...]
    deadline: int | None
    closed_at: int | None
    sources: frozenset[str]
    rules: str
    strikes: frozenset[float]
    comparison: str | None
    tie: str | None
    exclusive: bool | None
    denies: bool
    payoffs: tuple[float | None, ...]


class Finding(NamedTuple):
    """What one facet of two contracts says, and why."""

    verdict: Verdict
    why: str = ""


class Comparison(NamedTuple):
    """A pair: its orientation, None where nothing tells, and the finding of each facet."""

    orientation: Orientation | None
    facets: Mapping[str, Finding]

    def verdict(self, *, confirmed: bool) -> Verdict:
        """One facet that differs decides; what is unknown needs somebody who has read both texts."""
        said = {name: finding.verdict for name, finding in self.facets.items()}
        if "differs" in said.values():
            return "differs"
        needed = [verdict for name, verdict in said.items() if name not in _MAY_BE_UNKNOWN]
        is_oriented = self.orientation is not None
        return "same" if is_oriented and (confirmed or "unknown" not in needed) else "unknown"


def compare(a: Terms, b: Terms, stated: Orientation | None) -> Comparison:
    """Compare the terms of two contracts; ``stated`` is what somebody says of their orientation."""
    told = dict(_orientations(a, b))
    orientation = stated or (next(iter(told)) if len(told) == 1 else None)
    against = {said: why for said, why in told.items() if said != stated}
    if stated and against:
        oriented = Finding("differs", f"stated {stated}, but {', '.join(against.values())}")
    elif len(told) > 1:
        oriented = Finding("unknown", ", but ".join(told.values()))
    elif orientation is None:
        oriented = Finding(
            "unknown", 'nothing says whether Yes of one is Yes of the other: state orientation as "same" or "inverted"'
        )
    else:
        oriented = Finding("same", "" if stated else next(iter(told.values())))
    facets = {
        "orientation": oriented,
        "deadline": _deadline(a, b),
        "close": _times(a.closed_at, b.closed_at, differs=False),
        "source": _of_sets(a.sources, b.sources),
        "question": _question(a, b),
        "rules": Finding("same") if a.rules and a.rules == b.rules else Finding("unknown", "the texts are not equal"),
        "strike": _strike(a, b),
        "comparison": _comparison(a, b, orientation),
        "tie": _tie(a, b),
        "exclusive": _exclusive(a, b),
        "outcome": _outcome(a, b, orientation),
    }
    return Comparison(orientation, facets)


def _orientations(a: Terms, b: Terms) -> Iterator[tuple[Orientation, str]]:
    """What the terms say of the orientation, and by what."""
    labels = [tuple(label.casefold() for label in one.labels) for one in (a, b)]
    if len(labels[0]) == 2 and labels[0] != _YES_NO:
        if labels[0] == labels[1]:
            yield "same", f"both have the outcomes {a.labels[0]} and {a.labels[1]}"
        elif labels[0] == labels[1][::-1]:
            yield "inverted", f"the outcomes are {a.labels[0]} and {a.labels[1]}, and in the other order"
    if a.denies != b.denies:
        yield "inverted", "one question denies what the other asks"
    elif a.comparison in _COMPLEMENTS and b.comparison in _COMPLEMENTS and a.strikes == b.strikes:
        is_same = a.comparison[0] == b.comparison[0]
        yield ("same" if is_same else "inverted"), f"they ask for {a.comparison} and {b.comparison}"


def are_far_apart(a: Terms, b: Terms) -> bool:
    """Whether two questions name ends that no zone or wording explains."""
    return a.cutoff is not None and b.cutoff is not None and abs(a.cutoff - b.cutoff) > _MOST_APART


def _deadline(a: Terms, b: Terms) -> Finding:
    if a.cutoff is not None and b.cutoff is not None and a.cutoff != b.cutoff:
        return Finding("differs", f"before {_day(a.cutoff)} and {_day(b.cutoff)}")
    if a.clock != b.clock:
        zones = {zone for _, zone in (*a.clock, *b.clock)}
        is_clear = len(zones) == 1 and len(a.clock) == len(b.clock)
        return Finding("differs" if is_clear else "unknown", f"at {_clock(a.clock)} and {_clock(b.clock)}")
    if a.cutoff is not None and b.cutoff is not None:
        return Finding("same", f"before {_day(a.cutoff)}")
    return _times(a.deadline, b.deadline, differs=True)


def _clock(clock: Sequence[tuple[int, str]]) -> str:
    shown = [f"{minutes // 60}:{minutes % 60:02d} {zone.upper()}".strip() for minutes, zone in clock]
    return ", ".join(shown) or "no time of day"


def _times(a: int | None, b: int | None, *, differs: bool) -> Finding:
    if a is None or b is None:
        return Finding("unknown", "not both are known")
    why = f"{to_text(a)} and {to_text(b)}"
    if a == b:
        return Finding("same", why)
    return Finding("differs" if differs and abs(a - b) > _MOST_APART else "unknown", why)


def _day(micros: int) -> str:
    return to_text(micros)[:10]


def _of_sets(a: frozenset[str], b: frozenset[str]) -> Finding:
    if not a or not b:
        return Finding("unknown", "not both are named")
    return Finding("same" if a & b else "differs", f"{', '.join(sorted(a))} and {', '.join(sorted(b))}")


def _question(a: Terms, b: Terms) -> Finding:
    words = [frozenset(re.findall(r"\w+", one.question.casefold())) for one in (a, b)]
    if words[0] and words[0] == words[1]:
        return Finding("same")
    return Finding("unknown", f"only one has {', '.join(sorted(words[0] ^ words[1]))}")


def _strike(a: Terms, b: Terms) -> Finding:
    if a.strikes == b.strikes:
        return Finding("same")
    why = f"{_shown(a.strikes)} and {_shown(b.strikes)}"
    return Finding("differs" if a.strikes and b.strikes else "unknown", why)


def _shown(numbers: Sequence[float] | frozenset[float]) -> str:
    return ", ".join(f"{number:g}" for number in sorted(numbers)) or "none"


def _comparison(a: Terms, b: Terms, orientation: Orientation | None) -> Finding:
    if a.comparison is None and b.comparison is None and not a.strikes and not b.strikes:
        return Finding("same")
    why = f"{a.comparison or 'unknown'} and {b.comparison or 'unknown'}"
    if a.comparison is None or b.comparison is None or orientation is None:
        return Finding("unknown", why)
    wanted = a.comparison if orientation == "same" else _COMPLEMENTS.get(a.comparison)
    return Finding("same" if b.comparison == wanted else "differs", why)


def _tie(a: Terms, b: Terms) -> Finding:
    if a.tie is None or b.tie is None:
        is_one_text = bool(a.rules) and a.rules == b.rules
        return Finding("same") if is_one_text else Finding("unknown", f"{a.tie or 'unknown'} and {b.tie or 'unknown'}")
    return Finding("same" if a.tie == b.tie else "differs", f"{a.tie} and {b.tie}")


def _exclusive(a: Terms, b: Terms) -> Finding:
    if a.exclusive is None or a.exclusive != b.exclusive:
        return Finding("unknown", f"{_kind(a)} and {_kind(b)}")
    return Finding("same", _kind(a))


def _kind(terms: Terms) -> str:
    return {True: "one of several", False: "single", None: "unknown"}[terms.exclusive]


def _outcome(a: Terms, b: Terms, orientation: Orientation | None) -> Finding:
    known = [one for one in (a.payoffs, b.payoffs) if len(one) == 2 and None not in one]
    if len(known) < 2 or orientation is None:
        return Finding("unknown", "not both are resolved")
    paid = known[1] if orientation == "same" else known[1][::-1]
    return Finding("same" if known[0] == paid else "differs", f"{_paid(known[0])} and {_paid(known[1])}")


def _paid(payoffs: Sequence[float | None]) -> str:
    return "/".join(f"{one:g}" for one in payoffs if one is not None)
