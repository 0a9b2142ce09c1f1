"""Whole days by one request each, where a service offers them: an Arrow stream, beside the interface.

A day that does not come so is requested as pages, which say why.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    ContractError,
    MarketDataError,
    NetworkError,
    NotFoundError,
    PlanError,
    RateLimitError,
    RequestError,
)
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.retry import RETRYABLE
from marketdata.fetch.http.transport import Answer
from marketdata.fetch.reader import Fetched, Reader, collected
from marketdata.fetch.windows import Window
from marketdata.resolution import Resolution
from marketdata.times import DAY, to_text
from marketdata.wire.models import ARROW_STREAM

# At least this many days are worth a request that shows whether days are offered.
_WORTH_ASKING = 4


class Days:
    """Whether and where a service offers days."""

    def __init__(self, reader: Reader) -> None:
        self._transport = reader.transport
        self._reader = reader
        # Markets whose days are refused, such as too long ones; None: all of them.
        self._refused: set[str | None] = set() if importlib.util.find_spec("pyarrow") else {None}

    def are_worth(self, windows: Sequence[Window]) -> bool:
        """Whether windows have days that can be requested at once; may request ``usage`` to see it."""
        some = [days for w in windows if self.may_have(w) and (days := w.days) is not None]
        if not some:
            return False
        if self._transport.offers_days is None and sum(r.end - r.start for r in some) >= _WORTH_ASKING * DAY:
            self._transport.learn_limits()
            if self._transport.offers_days is None:
                with suppress(MarketDataError):
                    self._transport.get(("usage",), deadline=0.0)
        return bool(self._transport.offers_days)

    def may_have(self, window: Window) -> bool:
        """Whether days of a window may be requested: at a coarser resolution a page has as many points."""
        is_fine = window.kind == "market" and window.resolution == Resolution.of("1m")
        return is_fine and self._refused.isdisjoint((None, window.id))

    def get(self, day: Window, report: Report, stop: threading.Event) -> Fetched | None:
        """The points of a day, None if they are to be requested as pages."""
        segments, params = (day.id, day.view, to_text(day.rng.start)[:10]), {"resolution": str(day.resolution)}
        how: dict[str, Any] = {"stop": stop, "counts": report, "root": "/days", "accept": ARROW_STREAM}
        try:
            fetched: Fetched = self._transport.get(segments, params, partial(self._read, day), **how)
        except (AuthenticationError, RateLimitError):
            raise  # pages would be answered so too
        except (ContractError, RequestError, NetworkError) as error:
            if stop.is_set():
                raise
            may_pass = error.status in RETRYABLE if isinstance(error, RequestError) else isinstance(error, NetworkError)
            if may_pass or isinstance(error, BadRequestError):
                self._refused.add(day.id)
            elif not isinstance(error, PlanError) and not (isinstance(error, NotFoundError) and day.id in error.detail):
                self._refused.add(None)
            return None
        return fetched

    def _read(self, day: Window, answer: Answer) -> Fetched:
        from marketdata.wire.stream import decode

        page = decode(day.view, answer.body)
        fetched = collected(day, [page], answer.date)
        if len(fetched.columns) != page.count:
            raise ContractError(f"{day}: the answer has other points than those of the day, each once.")
        self._reader.check(day, page)  # last: the pages that follow are compared with what it takes
        return fetched
