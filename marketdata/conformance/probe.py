"""Requests that distinguish the readings of a service: raw pages, without repairs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from marketdata.conformance.compare import Pair, compared, find_limit, pairs
from marketdata.conformance.report import Finding, ServiceTable, Verification
from marketdata.errors import ConfigError, MarketDataError, PlanError, RequestError
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.plans import usage_fields
from marketdata.fetch.reader import keys_of
from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Page, joined
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.vendors import widths_in
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT

# A service refuses these, and says what it allows.
_NO_RESOLUTION, _NO_LIMIT, _NO_FILTER = "7s", 1_000_000, "no_such_filter"
_NO_MARKET = "no-such-market-of-any-service"
_NOT_TOLD = "not told"


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

    def page(view: View, resolution: BucketWidth, limit: int, cursor: str | None = None) -> Page:
        window = Window(view, "market", market, whole, resolution, limit)
        answer: Page = transport.get(
            window.segments, {**window.params, "cursor": cursor}, lambda answer: decode_page(view, answer.body)
        )
        return answer

    def columns(view: View, resolution: BucketWidth) -> Data:
        pages = paginate(partial(page, view, resolution, LARGEST_LIMIT), keys_of, f"the {view} of {market}")
        return joined([page.columns for page in pages])

    compare, refused = dict[View, list[Pair]](), dict[str, str]()
    for view in VIEWS:
        try:
            try:
                points = columns(view, near)
            except PlanError as error:
                if fine is not None or error.minimum_resolution is None:
                    raise
                near = BucketWidth.of(error.minimum_resolution)
                points = columns(view, near)
            compare[view] = list(pairs(whole, near, far, (points, columns(view, far))))
        except PlanError as error:
            compare[view], refused[view] = [], error.detail
    findings = compared(compare["prices"], compare["metrics"], compare["books"])
    if compare["prices"]:
        findings.append(find_limit(compare["prices"][0].near, partial(page, "prices", near)))
    else:
        findings.append(Finding("limit", None, "no prices in this range"))
    table = service_table(transport, market, whole)
    return Verification(market, whole, str(near), str(far), tuple(findings), table, refused)


def service_table(transport: Transport, market: str, rng: Range) -> ServiceTable:
    """The table by five requests that a service should refuse, and one of ``usage``."""
    history = {"start_ts": to_text(rng.start), "end_ts": to_text(rng.end), "resolution": "1h", "limit": "200"}
    prices = ("markets", market, "prices")
    filters = _refusal(transport, ("markets",), {_NO_FILTER: "1", "limit": "1"})
    unknown = _refusal(transport, ("markets", _NO_MARKET), {})
    resolution = _refusal(transport, prices, {**history, "resolution": _NO_RESOLUTION})
    limit = _refusal(transport, prices, {**history, "limit": str(_NO_LIMIT)})
    listing = _refusal(transport, ("markets",), {"limit": str(_NO_LIMIT)})
    try:
        usage = transport.get_json(("usage",))
    except MarketDataError as error:
        usage = {"plan": f"not told: {error.problem}"}
    service, limits = transport.service, transport.limits
    days = str(usage_fields(usage).get("max_history_days") or _NOT_TOLD)
    names = service.resolutions or tuple(map(str, widths_in(resolution))) or tuple(map(str, limits.resolutions))
    rate = limits.requests_per_minute
    return ServiceTable(
        {
            "service": f"{service.name} at {transport.base_url}",
            "plan": str(usage_fields(usage).get("plan") or _NOT_TOLD),
            "requests": f"{rate:,} a minute" if rate else _NOT_TOLD,
            "requests a day": f"{limits.requests_per_day:,}" if limits.requests_per_day else _NOT_TOLD,
            "resolutions": ", ".join(name for name in names if name != _NO_RESOLUTION) or _NOT_TOLD,
            "plan allows": ", ".join(map(str, limits.resolutions)) or _NOT_TOLD,
            "history": f"{limits.history_days:g} days" if limits.history_days else days,
            "filters": ", ".join(service.filters) if service.filters else filters,
            "unknown market": unknown,
            "unknown resolution": resolution,
            "page too large": limit,
            "listing too large": listing,
        }
    )


def _refusal(transport: Transport, segments: tuple[str, ...], params: Mapping[str, Any]) -> str:
    """Status and text of the refusal of a request."""
    try:
        transport.get_json(segments, params)
    except RequestError as error:
        return f"{error.status}: {error.detail}"
    except MarketDataError as error:
        return f"no answer: {error.problem}"
    return "200: accepted"
