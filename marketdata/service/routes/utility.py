"""The utility routes (readings: health, usage)."""

from __future__ import annotations

import datetime as dt

from fastapi.responses import Response

from marketdata.service.dependencies import ClockDep, GrantDep, GzipDep, RateLimiterDep, SimulatedDep
from marketdata.service.responses import json_response
from marketdata.service.routes.router import v1_router
from marketdata.wire import models

router = v1_router("Utility")


@router.get("/health", response_model=models.Health)
async def get_health(simulated: SimulatedDep, clock: ClockDep, gzip: GzipDep) -> Response:
    """Whether the service is up."""
    now = dt.datetime.fromtimestamp(clock(), dt.UTC).isoformat().replace("+00:00", "Z")
    return json_response({"status": "ok", "timestamp": now, "simulated": simulated}, gzip=gzip)


@router.get("/usage", response_model=models.Usage)
async def get_usage(grant: GrantDep, rate_limiter: RateLimiterDep, clock: ClockDep, gzip: GzipDep) -> Response:
    """Plan of the key, and the requests that are left in this minute."""
    plan = grant.plan
    remaining, seconds = rate_limiter.left(grant.key_id, plan.requests_per_minute)
    limits = {
        "requests_per_minute": plan.requests_per_minute,
        "requests_remaining": remaining,
        "granularity_allowed": ",".join(plan.resolutions),
        "max_history_days": "unlimited" if plan.max_history_days is None else f"{plan.max_history_days:g}",
    }
    usage = {
        "plan": plan.name,
        "organization": grant.organization,
        "limits": limits,
        "reset_at": int(clock() + seconds) + 1,
    }
    return json_response(usage, gzip=gzip)
