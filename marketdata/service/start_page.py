"""The start page, the page of the interface, and ``/coverage``, which needs a key: what the start page shows.

The pages are files. A policy lets them load their own files alone, and talk to their own service alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from marketdata.points.views import VIEWS
from marketdata.service.access import Context
from marketdata.service.coverage import covered_markets
from marketdata.service.parameters import ListingQuery
from marketdata.service.responses import json_response

PAGES = ("page.html", "interface.html")
SCRIPTS = ("base.js", "markets.js", "market.js", "chart.js", "page.js", "interface.js")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def create_router(*, simulated: bool) -> APIRouter:
    """The routes beside the interface, which its description leaves out."""
    router = APIRouter(include_in_schema=False)
    # By name and not by the system's table of types, in which a script may be plain text.
    types = {"page.css": "text/css", **dict.fromkeys(PAGES, "text/html"), **dict.fromkeys(SCRIPTS, "text/javascript")}
    for name, media_type in types.items():
        text = (resources.files("marketdata.service") / "static" / name).read_text("utf-8")
        if simulated:
            text = text.replace('data-simulated="no"', 'data-simulated="yes"')
        path = "/" if name == "page.html" else f"/{name}"
        router.add_route(path, _file(text, media_type), methods=["GET"])

    @router.get("/coverage")
    def get_coverage(query: Annotated[ListingQuery, Query()], context: Context) -> Response:
        state, (key, plan) = context
        plan_facts = {"name": key.plan, **plan.model_dump(), "resolutions": plan.allowed(state.derivable)}
        intervals = {view: state.covered(view) for view in VIEWS}
        markets = covered_markets(intervals, state.listings, query, state.cursors, state.clock())
        return json_response({"simulated": simulated, **markets, "plan": plan_facts})

    return router


def _file(text: str, media_type: str) -> Callable[[Request], Response]:
    # A response for each request, because the compression changes its headers.
    return lambda _: Response(text, media_type=media_type, headers=HEADERS)
