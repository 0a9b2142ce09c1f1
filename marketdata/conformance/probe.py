"""Requests that distinguish the readings of a service: raw pages, without repairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from marketdata.conformance.compare import Pair, compared, find_limit, pairs, readings_of_limit
from marketdata.conformance.report import Finding, Verification
from marketdata.conformance.service_table import service_table
from marketdata.errors import ConfigError, LimitTooSmallError, PlanError
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.reader import keys_of
from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Page, Series, joined
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT

# Limits of a page to see what it counts, where one of a bucket or two does not tell.
_LIMITS = (7, 20, 50, 200)


class Probe:
    """Requests of one market and range."""

    def __init__(self, transport: Transport, market: str, rng: Range) -> None:
        self._transport = transport
        self._market = market
        self._rng = rng

    def page(self, view: View, resolution: BucketWidth, limit: int, cursor: str | None = None) -> Page:
        """One raw page."""
        window = Window(view, "market", self._market, self._rng, resolution, limit)
        params = {**window.params, "cursor": cursor}
        page: Page = self._transport.get(window.segments, params, lambda answer: decode_page(view, answer.body))
        return page

    def columns(self, view: View, resolution: BucketWidth) -> Data:
        """All points, page after page; PaginationStalledError if pages do not end."""
        what = f"the {view} of {self._market}"
        pages = paginate(lambda cursor: self.page(view, resolution, LARGEST_LIMIT, cursor), keys_of, what)
        return joined([page.columns for page in pages])

    def pairs(self, view: View, fine: BucketWidth, coarse: BucketWidth) -> list[Pair]:
        """The view at both resolutions, once per column of numbers."""
        return list(pairs(self._rng, fine, coarse, self.columns(view, fine), self.columns(view, coarse)))

    def first_page(self, resolution: BucketWidth, near: Series) -> Page | None:
        """A page whose limit tells what it counts, by the points of the range; tokens may have few times in common."""
        tokens = len(near.tokens)
        limits = [limit for limit in (2 * tokens + 1, tokens, *_LIMITS) if tokens <= limit <= LARGEST_LIMIT]
        if tokens < 2 or not limits:
            return None

        def tells(limit: int) -> bool:
            points, _, times = readings_of_limit(near, limit)
            return points != times

        limit = next(filter(tells, limits), limits[0])
        try:
            page = self.page("prices", resolution, limit)
        except LimitTooSmallError as error:
            if not error.minimum or error.minimum > LARGEST_LIMIT:
                return None
            limit = error.minimum
            page = self.page("prices", resolution, limit)
        return replace(page, limit=page.limit or limit)


def verify(transport: Transport, market: str, rng: Range, fine: Any, coarse: Any) -> Verification:
    """Compare two resolutions, with two whole coarse buckets at least, and name the readings that explain them.

    A view that the plan of the key does not allow decides nothing. The finer one is 1m by default, or the finest that
    the plan allows.
    """
    near, far = BucketWidth.of(fine or "1m", "fine"), BucketWidth.of(coarse or "1h", "coarse")
    if near.micros >= far.micros:
        raise ConfigError(f"coarse={str(far)!r} must be coarser than fine={str(near)!r}.")
    whole = Range(-(-rng.start // far.micros) * far.micros, rng.end // far.micros * far.micros)
    if whole.end - whole.start < 2 * far.micros:
        raise ConfigError(f"{rng} has less than two whole buckets of {far}; give a longer range.")
    probe, pairs, refused = Probe(transport, market, whole), dict[View, list[Pair]](), dict[str, str]()
    for view in VIEWS:
        try:
            try:
                pairs[view] = probe.pairs(view, near, far)
            except PlanError as error:
                if fine is not None or error.minimum_resolution is None:
                    raise
                near = BucketWidth.of(error.minimum_resolution)
                pairs[view] = probe.pairs(view, near, far)
        except PlanError as error:
            pairs[view], refused[view] = [], error.detail
    findings = compared(pairs["prices"], pairs["metrics"], pairs["books"])
    if pairs["prices"]:
        points = pairs["prices"][0].near
        findings.append(find_limit(points, probe.first_page(near, points)))
    else:
        findings.append(Finding("limit", None, "no prices in this range"))
    table = service_table(transport, market, whole)
    return Verification(market, whole, str(near), str(far), tuple(findings), table, refused)
