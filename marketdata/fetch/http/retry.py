"""When a request is retried, and when that would only do harm."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from marketdata.errors import MarketDataError

RETRYABLE_STATUSES = frozenset({408, 500, 502, 503, 504})
Again = Literal["no", "yes", "soon", "at_once", "once", "throttled", "new_key"]
_BACKOFF_SECONDS: dict[Again, tuple[float, float]] = {
    "soon": (0.1, 0.8),
    "throttled": (1.0, 60.0),
    "at_once": (0.0, 0.0),
}


class Failure(NamedTuple):
    """An attempt that failed: the error, whether to retry, and the wait that the service requested [s]."""

    error: MarketDataError
    again: Again = "no"
    wait: float | None = None

    def backoff(self, tried: int, draw: random.Random) -> float:
        """Wait before the next attempt, with jitter [s]: more after a 429, less where nothing answers."""
        if self.wait is not None:
            return self.wait + draw.uniform(0, 1)
        base, cap = _BACKOFF_SECONDS.get(self.again, (0.5, 20.0))
        longest = min(cap, base * 2.0 ** min(tried - 1, 30))
        return draw.uniform(longest / 2 if self.again == "throttled" else 0, longest)


def server_date(value: str | None) -> float | None:
    """Unix seconds of a ``Date`` header [s], None if it is none."""
    with suppress(ValueError, TypeError, OverflowError, IndexError):
        return parsedate_to_datetime(value or "").timestamp()
    return None


def retry_after(value: str | None, date: float | None) -> float | None:
    """Seconds of a ``Retry-After`` header or None; a date counts from the answer's own ``Date``, as clocks skew."""
    text = (value or "").strip()
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return float(text) or None
    moment = server_date(text) if re.match(r"[A-Za-z]{3}", text) else None
    return moment - date if moment is not None and date is not None and moment > date else None


@dataclass(frozen=True)
class Policy:
    """Limits of one request, which is sent at most ``attempts`` times.

    All threads of a client share ``retries`` until a request is answered. An attempt may take ``connect`` to connect,
    ``silence`` between two bytes, and ``total`` in all [s]. A Retry-After above ``longest_wait`` [s] is an error.
    Reading stops at ``largest_body`` decoded bytes. After ``ratio_from`` bytes, it stops where the decoded size is
    ``largest_ratio`` times the sent size.
    """

    attempts: int = 5
    retries: int = 35
    connect: float = 5.0
    silence: float = 30.0
    total: float = 120.0
    longest_wait: float = 120.0
    largest_body: int = 64 << 20
    largest_ratio: int = 200
    ratio_from: int = 1 << 20
