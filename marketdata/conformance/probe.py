"""Requests that distinguish the readings of a service: raw pages, without repairs."""

from __future__ import annotations

from functools import partial
from typing import Any

from marketdata.conformance.compare import Pair, compared, find_limit, pairs
from marketdata.conformance.report import Finding, ServiceTable, Verification
from marketdata.errors import ConfigError, MarketDataError, PlanError, RequestError
from marketdata.fetch.pagination import paginate
from marketdata.fetch.plans import usage_fields
from marketdata.fetch.source import Source
from marketdata.fetch.sources.interface import Interface, keys_of
from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Page, joined
from marketdata.points.views import INTERFACE_VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.vendors import widths_in
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT


def verify(source: Source, market: str, rng: Range, fine: Any, coarse: Any) -> Verification:
    """Compare two resolutions, with two whole coarse buckets at least, and name the readings that explain them.

    A view that the plan of the key does not allow decides nothing. The finer one is 1m by default, or the finest that
    the plan allows.
    """
    if not isinstance(source, Interface):
        raise ConfigError(f"verify compares a service with the interface; {source.service.name} has one of its own.")
    near, far = BucketWidth.of(fine or "1m", "fine"), BucketWidth.of(coarse or "1h", "coarse")
    if near.micros >= far.micros:
        raise ConfigError(f"coarse={str(far)!r} must be coarser than fine={str(near)!r}.")
    whole = Range(-(-rng.start // far.micros) * far.micros, rng.end // far.micros * far.micros)
    if whole.end - whole.start < 2 * far.micros:
        raise ConfigError(f"{rng} has less than two whole buckets of {far}; give a longer range.")

    def page(view: View, resolution: BucketWidth, limit: int, cursor: str | None = None) -> Page:
        window = Window(view, "market", market, whole, resolution, limit)
        params = {**window.params, "cursor": cursor}
        return source.transport.read(window.segments, params, lambda answer: decode_page(view, answer.body))

    def columns(view: View, resolution: BucketWidth) -> Data:
        pages = paginate(partial(page, view, resolution, LARGEST_LIMIT), keys_of, f"the {view} of {market}")
        return joined([page.columns for page in pages])

    compare, refused = dict[View, list[Pair]](), dict[str, str]()
    for view in INTERFACE_VIEWS:
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
    table = service_table(source, market, whole)
    return Verification(market, whole, str(near), str(far), tuple(findings), table, refused)


def service_table(source: Interface, market: str, rng: Range) -> ServiceTable:
    """The table by five requests that a service should refuse, and one of ``usage``."""
    history = {"start_ts": to_text(rng.start), "end_ts": to_text(rng.end), "resolution": "1h", "limit": "200"}
    prices = ("markets", market, "prices")
    requests: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "filters": (("markets",), {"no_such_filter": "1", "limit": "1"}),
        "unknown market": (("markets", "no-such-market-of-any-service"), {}),
        "unknown resolution": (prices, {**history, "resolution": "7s"}),
        "page too large": (prices, {**history, "limit": "1000000"}),
        "listing too large": (("markets",), {"limit": "1000000"}),
    }
    refusals = dict.fromkeys(requests, "200: accepted")
    for name, (segments, params) in requests.items():
        try:
            source.transport.get_json(segments, params)
        except RequestError as error:
            refusals[name] = f"{error.status}: {error.detail}"
        except MarketDataError as error:
            refusals[name] = f"no answer: {error.problem}"
    try:
        usage = usage_fields(source.usage())
    except MarketDataError as error:
        usage = {"plan": f"not told: {error.problem}"}
    service, limits = source.service, source.limits
    widths = service.resolutions or widths_in(refusals["unknown resolution"]) or limits.resolutions
    rate, daily = limits.requests_per_minute, limits.requests_per_day
    rows = {
        "service": f"{service.name} at {source.base_url}",
        "plan": usage.get("plan"),
        "requests": rate and f"{rate:,} a minute",
        "requests a day": daily and f"{daily:,}",
        "resolutions": ", ".join(name for name in map(str, widths) if name != "7s"),
        "plan allows": ", ".join(map(str, limits.resolutions)),
        "history": f"{limits.history_days:g} days" if limits.history_days else usage.get("max_history_days"),
        **refusals,
    }
    if service.filters:
        rows["filters"] = ", ".join(service.filters)
    return ServiceTable({name: str(value or "not told") for name, value in rows.items()})
