"""The gate behind every source: an answer is about the times, the market and the tokens that were asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from marketdata.errors import ContractError
from marketdata.points.columns import Ints
from marketdata.times import MINUTE, Range, to_text

# Clocks differ, and answers take a while: a venue may add its last price at the time of the answer.
_NOW = 10 * MINUTE


def outside(ts: Ints, rng: Range, width: int, what: str, now: int | None = None) -> int:
    """How many times are not those that were asked for: more than a bucket before or after the range.

    ContractError if an answer has such times alone. Times of the present (``now``) are those of a last price.
    """
    is_far = (ts < rng.start - width) | (ts >= rng.end + width)
    if now is not None:
        is_far &= ~((ts >= now - _NOW) & (ts <= now + _NOW))
    count = int(np.count_nonzero(is_far))
    if count and count == len(ts):
        first, last = (shown(int(at)) for at in (ts.min(), ts.max()))
        raise ContractError(f"{what}: the answer has points from {first} to {last} alone, and was asked for {rng}.")
    return count


def refuse_jumps(times: Sequence[int], most: int, what: str) -> None:
    """ContractError for a time that is far before or after both ends of a page in order of time."""
    if times:
        first, last = sorted((times[0], times[-1]))
        if wrong := [at for at in times if not first - most <= at <= last + most]:
            raise ContractError(f"A time of {what} is {wrong[0]}, on a page from {first} to {last}.")


def shown(micros: int) -> str:
    """A time of an answer as a text, also one that no calendar has."""
    try:
        return to_text(micros)
    except OverflowError:
        return f"{micros} microseconds"


def refuse_others(found: Iterable[object], asked: Collection[str], what: str) -> None:
    """ContractError for an answer about something else than was asked for; None says nothing."""
    wanted = {one.casefold() for one in asked}
    for one in found:
        if one is not None and str(one).casefold() not in wanted:
            names = ", ".join(map(repr, [*asked][:3]))
            raise ContractError(f"The answer is about {what} {str(one)[:100]!r}, and was asked for {names}.")


def refuse_shared_tokens(tokens: Iterable[str | None], market: str) -> None:
    """ContractError if two outcomes of a market have one token."""
    seen = set[str]()
    for token in tokens:
        if token in seen:
            raise ContractError(f"Two outcomes of market {market!r} have one token, {token[:100]!r}.")
        seen |= {token} if token is not None else set()
