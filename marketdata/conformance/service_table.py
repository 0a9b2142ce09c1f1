"""The table of a service: what it is, what the plan of the key allows, and how it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketdata.errors import MarketDataError, RequestError
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.plan_limits import usage_fields
from marketdata.times import Range, to_text
from marketdata.vendors import widths_in

# A service refuses these, and says what it allows.
_NO_RESOLUTION, _NO_LIMIT, _NO_FILTER = "7s", 1_000_000, "no_such_filter"
_NO_MARKET = "no-such-market-of-any-service"
_NOT_TOLD = "not told"


@dataclass(frozen=True)
class ServiceTable:
    """Facts about a service by name, as text and mapping."""

    rows: Mapping[str, str]

    def __str__(self) -> str:
        width = max(map(len, self.rows), default=0)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in self.rows.items())


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
