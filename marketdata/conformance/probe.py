"""Requests that distinguish the readings of a service: raw pages, without repairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from marketdata.points.views import INTERFACE_VIEWS, VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.vendors import widths_in
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT


def verify(source: Source, market: str, rng: Range, fine: Any, coarse: Any) -> Verification:
    """Compare two resolutions, with two whole coarse buckets at least, and name the readings that explain them.

    A view that the source lacks, or that the plan of the key does not allow, decides nothing. The finer one is 1m by
    default, or the finest that the plan allows.
    """
    near, far = BucketWidth.of(fine or "1m", "fine"), BucketWidth.of(coarse or "1h", "coarse")
    if near.micros >= far.micros:
        raise ConfigError(f"coarse={str(far)!r} must be coarser than fine={str(near)!r}.")
    whole = Range(-(-rng.start // far.micros) * far.micros, rng.end // far.micros * far.micros)
    if whole.end - whole.start < 2 * far.micros:
        raise ConfigError(f"{rng} has less than two whole buckets of {far}; give a longer range.")
    pages = partial(raw_pages, source) if isinstance(source, Interface) else source.pages

    def columns(view: View, resolution: BucketWidth) -> Data:
        window = Window(view, "market", market, whole, resolution, LARGEST_LIMIT)
        return joined([page.columns for page in pages(window)]).between(*whole)

    compare, refused = dict[View, list[Pair]](), dict[str, str]()
    for view in INTERFACE_VIEWS:
        compare[view] = []
        if view not in source.service.views:
            refused[view] = str(source.service.lacks(view))
            continue
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
            refused[view] = error.detail
    findings = compared(compare["prices"], compare["metrics"], compare["books"])
    findings.append(_limit(source, market, compare["prices"]))
    table = service_table(source, market, whole) if isinstance(source, Interface) else venue_table(source)
    return Verification(market, whole, str(near), str(far), tuple(findings), table, refused)


def raw_pages(source: Interface, window: Window) -> Iterator[Page]:
    """The pages of a window as a service sends them: nothing is repaired."""
    return paginate(partial(_raw_page, source, window), keys_of, window)


def _raw_page(source: Interface, window: Window, cursor: str | None = None) -> Page:
    params = {**window.params, "cursor": cursor}
    return source.transport.read(window.segments, params, lambda answer: decode_page(window.view, answer.body))


def _limit(source: Source, market: str, prices: list[Pair]) -> Finding:
    """Whether the limit of a page counts points or times."""
    if not isinstance(source, Interface):
        return Finding("limit", None, f"{source.service.name} has no such limit")
    if not prices:
        return Finding("limit", None, "no prices in this range")
    window = Window("prices", "market", market, prices[0].rng, prices[0].fine)
    return find_limit(prices[0].near, lambda limit: _raw_page(source, replace(window, limit=limit)))


def venue_table(source: Source) -> ServiceTable:
    """The table of a venue with an interface of its own, by what is known about it."""
    service, rate = source.service, source.pacer.requests_per_minute
    rows = {
        "service": f"{service.name} at {source.base_url}",
        "requests": f"{rate:,} a minute" if rate else "not told",
        "resolutions": ", ".join(service.resolutions or ()),
        "views": ", ".join(service.views),
        "of the present alone": ", ".join(service.live) or "nothing",
        "lacks": ", ".join(view for view in VIEWS if view not in service.views) or "nothing",
        "filters": ", ".join(service.filters or ()) or "not told",
    }
    return ServiceTable(rows)


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
