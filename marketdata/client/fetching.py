"""Fetches of histories: of which range, at which resolution, and in how many requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, Optional

from marketdata.client.discovery import Discovery
from marketdata.client.history import History
from marketdata.client.offer import Offer, Request
from marketdata.errors import ConfigError, PlanWarning, RequestError, warn
from marketdata.fetch.plans import Plan, make_plan
from marketdata.fetch.source import Source
from marketdata.fetch.windows import IdKind, Window
from marketdata.points.arguments import flag
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.times import MINUTE, SECOND, Range, TimeLike, to_datetime, to_range, to_text
from marketdata.typing import FrameKind

Span = tuple[Optional[TimeLike], Optional[TimeLike]]  # noqa: UP045 a name in quotes has no |
# A fetch without times that takes more requests needs ``all=True``.
_MOST_REQUESTS = 50


class Wanted(NamedTuple):
    """What a user asks for: a view of markets or tokens in a span, without which it is that of the markets."""

    view: View
    kind: IdKind
    ids: Any
    span: Span
    resolution: str | None
    levels: int | None = None
    clamp: bool = False
    every_page: bool = False


class Fetching:
    """Turns what users ask for into windows that source and plan accept."""

    def __init__(self, source: Source, history: History, offer: Offer, discovery: Discovery, page_limit: int) -> None:
        self._source, self._history, self._offer, self._discovery = source, history, offer, discovery
        self._page_limit = page_limit

    def frames(self, wanted: Wanted, frame: FrameKind, *, is_whole: bool = False) -> Iterator[Any]:
        """Frames at the requested resolution, or made from a finer one of the service; arguments are checked first."""
        flag("clamp", wanted.clamp)
        rng = to_range(*self.span_of(wanted))
        target = None if wanted.resolution is None else BucketWidth.of(wanted.resolution)

        def asked() -> tuple[Request, list[Window]]:
            request = self._offer.request(rng, target, clamp=wanted.clamp)
            return request, self.windows(wanted.view, wanted.kind, wanted.ids, request.rng, request.resolution)

        def frames(request: Request, windows: list[Window]) -> Iterator[Any]:
            while True:
                how: dict[str, Any] = {"target": request.target, "is_whole": is_whole}
                fetched = self._history.frames(windows, wanted.levels, frame, **how)
                try:
                    first = next(fetched, None)
                    break
                except RequestError as error:
                    self._offer.learn(error, request)
                    refused, (request, windows) = request, asked()
                    if request == refused:
                        raise
            if first is not None:
                yield first
                yield from fetched

        return frames(*asked())

    def span_of(self, wanted: Wanted) -> tuple[TimeLike, TimeLike]:
        """The times of a fetch, if it takes few requests, or all are wanted."""
        flag("all", wanted.every_page)
        self.check_view(wanted.view)
        start, end = self._own_span(wanted.ids, wanted.span)
        if wanted.every_page or all(one is not None for one in wanted.span):
            return start, end
        cost = self.plan(wanted._replace(kind="market", span=(start, end)))
        if cost.requests > _MOST_REQUESTS:
            of = ", ".join(self._discovery.names(wanted.ids)[:3])
            first, last = map(to_datetime, to_range(start, end))
            what = f"{wanted.view} of {of} from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
            hint = "Give start= and end=, a coarser resolution=, or all=True."
            raise ConfigError(f"{what} takes more than {_MOST_REQUESTS} requests: {cost}", hint=hint)
        return start, end

    def plan(self, wanted: Wanted) -> Plan:
        """The cost of a fetch of markets, without fetching."""
        self.check_view(wanted.view)
        target = None if wanted.resolution is None else BucketWidth.of(wanted.resolution)
        rng = to_range(*self._own_span(wanted.ids, wanted.span))
        width = target or BucketWidth.of("1m")
        names = [window.id for window in self.windows(wanted.view, "market", wanted.ids, rng, width)]
        infos = self._history.markets.look_up_all(names)
        self._source.usage()
        request = self._offer.request(rng, target, clamp=False)
        windows = self.windows(wanted.view, "market", names, request.rng, request.resolution)
        now = int(time.time() * SECOND)
        return make_plan(windows, infos, self._source.limits, now, self._source.requests)

    def check_view(self, view: View) -> None:
        """ConfigError for a view that the source does not have, before anything is asked."""
        if view not in self._source.service.views:
            raise self._source.service.lacks(view)

    def windows(self, view: View, kind: IdKind, ids: Any, rng: Range, width: BucketWidth) -> list[Window]:
        """One window of the whole range per id, each id once; ConfigError if there are none, or they are not text."""
        self.check_view(view)
        name, what = ("market", "an id or slug") if kind == "market" else ("token_id", "an id")
        given = self._discovery.names(ids, name, what)
        if not given:
            raise ConfigError(f"{name}={ids!r} is refused; pass {what} as text, or a list of them.")
        return [Window(view, kind, i, rng, width, self._page_limit) for i in given]

    def _own_span(self, ids: Any, span: Span) -> tuple[TimeLike, TimeLike]:
        """The times of a fetch. Without them it takes the active range of its markets, as far as the plan reaches."""
        start, end = span
        if start is not None and end is not None:
            return start, end
        given = self._discovery.names(ids)
        infos = self._history.markets.look_up_all(given).values()
        if start is None:
            starts = [info.start for info in infos if info.start is not None]
            if len(starts) < len(given) or not given:
                raise ConfigError("is missing, and a market has no start date; give start=.", argument="start")
            start = to_datetime(min(starts))
        if end is None:
            now = round((self._source.server_time or time.time()) * SECOND)
            end = to_datetime(min(now, max(now if info.end is None else info.end for info in infos)))
        return self._within_plan(to_range(start, end))

    def _within_plan(self, rng: Range) -> tuple[datetime, datetime]:
        """A range without the part before the history of the plan, with a warning."""
        start, earliest = rng.start, self._offer.earliest
        if earliest is not None and start < earliest < rng.end:
            start = -(-(earliest + MINUTE) // MINUTE) * MINUTE
            text = f"The market begins at {to_text(rng.start)}; the plan reaches back to {to_text(start)}."
            warn(text, PlanWarning)
        return to_datetime(start), to_datetime(rng.end)
