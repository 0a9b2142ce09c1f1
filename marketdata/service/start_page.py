"""The start page at ``/``, isolated by its policy, and its data at ``/coverage``, which needs a key."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from marketdata.points.views import VIEWS
from marketdata.resolution import Resolution
from marketdata.service.context import Context, State
from marketdata.service.parameters import ListingQuery
from marketdata.service.responses import json_response
from marketdata.times import Range, to_text

# In this order they are one script.
SCRIPTS = ("base.js", "markets.js", "market.js", "chart.js", "page.js")
# Gaps below this part of the covered range of a market cannot be seen on the page.
FINEST = 200
Record = dict[str, Any]
# Fields of a market that the page shows.
_SHOWN = ("id", "slug", "question", "status", "event_slug", "tokens")


def document(*, simulated: bool) -> tuple[bytes, dict[str, str]]:
    """The page, and its security headers."""
    files = resources.files("marketdata.service") / "static"
    page, style, *scripts = ((files / name).read_text("utf-8") for name in ("page.html", "page.css", *SCRIPTS))
    # One block, so that its names are not global.
    script = "\n".join(['"use strict";', "{", *scripts, "}"])
    script = script.replace("{{widths}}", json.dumps({r.value: r.micros // 1000 for r in Resolution}))
    parts = {"style": style, "script": script, "simulated": "yes" if simulated else "no"}
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], page)
    policy = (
        f"default-src 'none'; style-src {_hash(parts['style'])}; script-src {_hash(parts['script'])}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def create_router(*, simulated: bool) -> APIRouter:
    """The two routes beside the interface, which its description leaves out."""
    body, headers = document(simulated=simulated)
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def get_start_page() -> Response:
        return Response(body, media_type="text/html", headers=headers)

    @router.get("/coverage")
    def get_coverage(query: Annotated[ListingQuery, Query()], context: Context) -> Response:
        state, (key, plan) = context
        shown = {"name": key.plan, **plan.model_dump(), "resolutions": plan.allowed(state.derivable)}
        return json_response({"simulated": simulated, **covered(state, query), "plan": shown})

    return router


def covered(state: State, query: ListingQuery) -> dict[str, Any]:
    """Markets of a page of the listing with covered intervals of each view; the first page also has totals."""
    spans = {view: state.covered(view) for view in VIEWS}
    records, following = state.listings.page("markets", query, state.cursors, state.clock())
    rows = []
    for record in records:
        found = {view: _visible_intervals(spans[view].get(str(record.get("id")), ())) for view in VIEWS}
        rows.append({**{name: record.get(name) for name in _SHOWN}, "coverage": found})
    answer: dict[str, Any] = {
        "data": rows,
        "metadata": {"count": len(rows), "limit": query.limit, "next_cursor": following},
    }
    if query.cursor is None:
        answer["totals"] = {view: _total(spans[view]) for view in VIEWS}
        answer["markets"] = len(state.listings.records("markets"))
    return answer


def _visible_intervals(found: Sequence[Range]) -> list[tuple[str, str]]:
    """Covered intervals, without gaps too short to be seen."""
    out: list[Range] = []
    for one in found:
        seen = not out or one.start - out[-1].end > (found[-1].end - found[0].start) // FINEST
        out.append(one if seen else Range(out.pop().start, one.end))
    return [(to_text(one.start), to_text(one.end)) for one in out]


def _total(by_market: Mapping[str, Sequence[Range]]) -> Record | None:
    if not by_market:
        return None
    first, last = min(found[0].start for found in by_market.values()), max(f[-1].end for f in by_market.values())
    return {"markets": len(by_market), "start": to_text(first), "end": to_text(last)}
