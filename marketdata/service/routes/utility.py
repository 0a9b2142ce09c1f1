"""The utility routes (readings: health, usage)."""

from __future__ import annotations

import datetime as dt

from fastapi.responses import Response

from marketdata.service.dependencies import Context
from marketdata.service.responses import to_json
from marketdata.service.routes.router import v1_router
from marketdata.wire import models

router = v1_router("Utility")


@router.get("/health", response_model=models.Health)
async def get_health(context: Context) -> Response:
    """Whether the service is up."""
    now = dt.datetime.fromtimestamp(context.parts.clock(), dt.UTC).isoformat().replace("+00:00", "Z")
    return context.respond(to_json({"status": "ok", "timestamp": now, "simulated": context.parts.source.simulated}))


@router.get("/usage", response_model=models.Usage)
async def get_usage(context: Context) -> Response:
    """Plan of the key, and the requests that are left in this minute."""
    parts, grant = context.parts, context.grant
    plan = grant.plan
    remaining, seconds = parts.rate_limiter.left(grant.key_id, plan.requests_per_minute)
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
        "reset_at": int(parts.clock() + seconds) + 1,
    }
    return context.respond(to_json(usage))
