"""The start page, the page of the interface, and ``/coverage``, which needs a key: what the start page shows.

The pages are files. A policy lets them load their own files alone, and talk to their own service alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from typing import Annotated, Any

import polars as pl
from fastapi import APIRouter, HTTPException, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from marketdata.archive.query import ALL_TIME
from marketdata.points.views import INTERFACE_VIEWS
from marketdata.service.access import Context, State
from marketdata.service.keys import AccessPlan
from marketdata.service.listings import with_outcome
from marketdata.service.parameters import ListingQuery
from marketdata.service.responses import json_response
from marketdata.times import Range

PAGES = ("page.html", "interface.html")
SCRIPTS = ("base.js", "markets.js", "market.js", "chart.js", "page.js", "interface.js")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
_SHOWN_FIELDS = ("id", "slug", "question", "status", "event_slug", "tokens")
_LAST_PRICES = 3_600_000_000  # an hour [microseconds]
_FINEST_GAP = 200  # a page cannot show a gap below this part of a range


class CoverageQuery(ListingQuery):
    """Parameters of a listing of markets, or the id or slug of one."""

    market: Annotated[str | None, Field(max_length=200)] = None


def create_router(state: State) -> APIRouter:
    """The routes beside the interface, which its description leaves out."""
    router = APIRouter(include_in_schema=False)
    # By name and not by the system's table of types, in which a script may be plain text.
    types = {"page.css": "text/css", **dict.fromkeys(PAGES, "text/html"), **dict.fromkeys(SCRIPTS, "text/javascript")}
    for name, media_type in types.items():
        text = (resources.files("marketdata.service") / "static" / name).read_text("utf-8")
        if state.simulated:
            text = text.replace('data-simulated="no"', 'data-simulated="yes"')
        path = "/" if name == "page.html" else f"/{name}"
        router.add_route(path, _file(text, media_type), methods=["GET"])

    @lru_cache(1)
    def stored(*_versions: int) -> pl.DataFrame:
        return shown_ranges(state.archive.coverage().filter(pl.col("view").is_in(INTERFACE_VIEWS)))

    @router.get("/coverage")
    def get_coverage(query: Annotated[CoverageQuery, Query()], context: Context) -> Response:
        """Markets of a page of the listing with the ranges of each view; the first page also has totals.

        With one ``market`` also the last price of each token, as far as the plan reaches.
        """
        _, key, plan = context
        ranges = stored(*map(state.archive.version, INTERFACE_VIEWS))
        if query.market is None:
            records, next_cursor = state.listings.page("markets", query)
        else:
            record, next_cursor = state.archive.find_market(query.market), None
            records = [] if record is None else [with_outcome(record)]
        listed = ranges.filter(pl.col("market_id").is_in([str(record.get("id")) for record in records]))
        by_market = {
            (market, view): list(zip(starts, ends, strict=True))
            for market, view, starts, ends in listed.group_by("market_id", "view").agg("start", "end").iter_rows()
        }
        body: dict[str, Any] = {
            "simulated": state.simulated,
            "data": [
                {name: record.get(name) for name in _SHOWN_FIELDS}
                | {"coverage": {view: by_market.get((str(record.get("id")), view), []) for view in INTERFACE_VIEWS}}
                for record in records
            ],
            "metadata": {"count": len(records), "limit": query.limit, "next_cursor": next_cursor},
            "plan": {"name": key.plan, **plan.model_dump(), "resolutions": plan.allowed(state.derivable)},
        }
        if query.market is not None:
            body["last_prices"] = last_prices(state, plan, records)
        elif query.cursor is None:
            totals = ranges.group_by("view").agg(pl.n_unique("market_id"), pl.min("start"), pl.max("end"))
            names = ("markets", "start", "end")
            body["totals"] = dict.fromkeys(INTERFACE_VIEWS) | {
                view: dict(zip(names, total, strict=True)) for view, *total in totals.iter_rows()
            }
            body["markets"] = len(state.archive.listing("markets"))
        return json_response(body)

    return router


def last_prices(state: State, plan: AccessPlan, records: list[dict[str, Any]]) -> dict[str, float]:
    """The last price of each token of a market in the last hour of its prices; nothing that the plan refuses."""
    found: dict[str, float] = {}
    for market in (str(record["id"]) for record in records):
        ranges = state.archive.stored_ranges("prices", market, ALL_TIME)
        resolutions = plan.allowed(state.derivable)
        if not ranges or not resolutions:
            continue
        recent = Range(ranges[-1].end - _LAST_PRICES, ranges[-1].end)
        with suppress(HTTPException):
            plan.check("prices", resolutions[0], recent.start, state.clock(), resolutions)
            prices = state.archive.columns("prices", market, recent, resolutions[0])
            for place, price in zip(prices.token.tolist(), prices.values["price"].tolist(), strict=True):
                if not math.isnan(price):
                    found[str(prices.tokens[place].token_id)] = price
    return found


def shown_ranges(coverage: pl.DataFrame) -> pl.DataFrame:
    """Disjoint ranges that may have rows, in order, as texts; those that a page would show as one are one."""
    each = ("market_id", "view")
    may_have = pl.when(pl.col("rows").is_null()).then(pl.col("state") != "missing").otherwise(pl.col("rows") > 0)
    length = (pl.col("end").max() - pl.col("start").min()).over(each)
    gap = pl.col("start") - pl.col("end").cum_max().shift().over(each)
    return (
        coverage.with_columns(pl.col(each).cast(pl.String))
        .filter(may_have)
        .sort(*each, "start")
        .with_columns(part=(gap > length / _FINEST_GAP).fill_null(value=False).cum_sum().over(each))
        .group_by(*each, "part", maintain_order=True)
        .agg(pl.min("start"), pl.max("end"))
        .with_columns(pl.col("start", "end").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"))
    )


def _file(text: str, media_type: str) -> Callable[[Request], Response]:
    # A response for each request, because the compression changes its headers.
    return lambda _: Response(text, media_type=media_type, headers=HEADERS)
