"""The routes of interface section 4."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from marketdata.points.records import RecordKind, names
from marketdata.points.views import INTERFACE_VIEWS, VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.service import responses
from marketdata.service.access import Context, RequestContext
from marketdata.service.listings import with_outcome
from marketdata.service.pages import Subject, limit_too_small
from marketdata.service.parameters import (
    EventQuery,
    HistoryParameters,
    HistoryQuery,
    IdOrSlug,
    ListingQuery,
    MarketQuery,
    TokenId,
    invalid_parameter,
)
from marketdata.service.responses import json_response, printable, refusals
from marketdata.times import to_text
from marketdata.wire import encode, models


class _Segment(StringConvertor):
    """A path segment, which may be empty: a history path without a slug is 422 and not 404."""

    regex = "[^/]*"


register_url_convertor("segment", _Segment())
history = APIRouter(prefix="/v1", tags=["History"], responses=refusals(400, 401, 403, 404, 422, 429, 500))
discovery = APIRouter(prefix="/v1", tags=["Discovery"], responses=refusals(400, 401, 422, 429, 500))
utility = APIRouter(prefix="/v1", tags=["Utility"], responses=refusals(400, 401, 422, 429, 500))


@history.get("/markets/{id_or_slug:segment}/books", response_model=responses.MarketHistory[responses.OrderBookSnapshot])
def get_market_books(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Order book snapshots of all tokens of a market; the last book of each bucket."""
    return _history_page("books", query, context, market=id_or_slug)


@history.get("/markets/{id_or_slug:segment}/prices", response_model=responses.MarketHistory[responses.PricePoint])
def get_market_prices(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Prices of all tokens of a market; the mean of each bucket."""
    return _history_page("prices", query, context, market=id_or_slug)


@history.get("/markets/{id_or_slug:segment}/metrics", response_model=responses.MetricsHistory)
def get_market_metrics(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Volume, liquidity and spread of a market; the mean of each bucket."""
    return _history_page("metrics", query, context, market=id_or_slug)


@history.get("/tokens/{token_id:segment}/books", response_model=responses.TokenHistory[responses.OrderBookSnapshot])
def get_token_books(token_id: TokenId, query: HistoryParameters, context: Context) -> Response:
    """Order book snapshots of one token; the last book of each bucket."""
    return _history_page("books", query, context, token_id=token_id)


@history.get("/tokens/{token_id:segment}/prices", response_model=responses.TokenHistory[responses.PricePoint])
def get_token_prices(token_id: TokenId, query: HistoryParameters, context: Context) -> Response:
    """Prices of one token; the mean of each bucket."""
    return _history_page("prices", query, context, token_id=token_id)


def refuse_view(request: Request, _: Context) -> Response:
    """A view of archives that the interface does not have; HTTPException 404."""
    view = request.url.path.rpartition("/")[2]
    raise HTTPException(404, f"This service has no {view}; its views are {', '.join(INTERFACE_VIEWS)}.")


for _view in (view for view in VIEWS if view not in INTERFACE_VIEWS):
    for _path in ("/markets/{id_or_slug}", "/tokens/{token_id}"):  # whatever these are
        history.add_api_route(f"{_path}/{_view}", refuse_view, include_in_schema=False)


@discovery.get("/series", response_model=models.Listing)
def list_series(query: Annotated[ListingQuery, Query()], context: Context) -> Response:
    """Series: broad themes or recurring categories."""
    return _listing("series", query, context)


@discovery.get("/events", response_model=models.Listing)
def list_events(query: Annotated[EventQuery, Query()], context: Context) -> Response:
    """Events, of one series if its id or slug is given."""
    return _listing("events", query, context)


@discovery.get("/markets", response_model=models.Listing)
def list_markets(query: Annotated[MarketQuery, Query()], context: Context) -> Response:
    """Markets, of one event if its id or slug is given."""
    return _listing("markets", query, context)


@discovery.get("/markets/{id_or_slug}", response_model=models.MarketDetail, responses=refusals(404))
def get_market(id_or_slug: IdOrSlug, context: Context) -> Response:
    """One market, with the fields that listings lack."""
    return json_response({**dict.fromkeys(names("markets", "market")), **with_outcome(_market(id_or_slug, context))})


@discovery.get("/tags", response_model=models.Tags)
def list_tags(context: Context) -> Response:
    """Every tag in use."""
    tags = context.state.listings.tags()
    return json_response({"count": len(tags), "data": tags})


@utility.get("/health", response_model=models.Health)
async def get_health(context: Context) -> Response:
    """Whether the service is up."""
    state = context.state
    now = to_text(int(state.clock() * 1e6))
    return json_response({"status": "ok", "timestamp": now, "simulated": state.simulated})


@utility.get("/usage", response_model=responses.Usage)
async def get_usage(context: Context) -> Response:
    """Plan of the key, and the requests that are left in this minute."""
    state, key, plan = context
    remaining, seconds = state.limiter.remaining(key.id, plan.requests_per_minute)
    limits = {
        "requests_per_minute": plan.requests_per_minute,
        "requests_remaining": remaining,
        "granularity_allowed": ",".join(plan.allowed(state.derivable)),
        "max_history_days": "unlimited" if plan.max_history_days is None else f"{plan.max_history_days:g}",
    }
    usage = {"plan": key.plan, "organization": key.organization, "limits": limits}
    return json_response({**usage, "reset_at": int(state.clock() + seconds) + 1})


def _market(id_or_slug: str, context: RequestContext) -> dict[str, Any]:
    """The record of a market; HTTPException 404."""
    record = context.state.archive.find_market(id_or_slug)
    if record is None:
        raise HTTPException(404, f"Market not found: {printable(id_or_slug)}")
    return record


def _history_page(
    view: View, query: HistoryQuery, context: RequestContext, *, market: str = "", token_id: str | None = None
) -> Response:
    """A page of a market or of one token; HTTPException 403, 404 or 400 (interface section 7)."""
    state, _, plan = context
    rng, width, tokens = query.range, query.resolution, None
    if width not in state.resolutions:
        raise invalid_parameter("resolution", f"Input should be one of {', '.join(state.resolutions)}", "enum")
    # On every page, because a cursor carries no rights.
    plan.check(view, width, rng.start, state.clock(), state.derivable)
    if token_id is None:
        record = _market(market, context)
        tokens = encode.labels_of(record) if VIEWS[view].has_tokens else None
        body: dict[str, Any] = {"market_id": str(record["id"])}
    else:
        owner = state.archive.find_token(token_id)
        if owner is None:
            raise HTTPException(404, f"Token not found: {printable(token_id)}")
        body = {"market_id": str(owner[0]["id"]), "token_id": token_id, "token_label": owner[1]}
    point_count = 1 if tokens is None else len(tokens)
    if point_count > models.LARGEST_LIMIT:
        endpoint = f"Use the single-token {view} endpoint instead: /v1/tokens/{{token_id}}/{view}"
        raise HTTPException(400, f"This market has more than {models.LARGEST_LIMIT} tokens. {endpoint}")
    if point_count > query.limit:
        raise limit_too_small(point_count)
    facts = [view, body["market_id"], token_id, width, *rng]
    position = None if query.cursor is None else int(state.cursors.read(facts, query.cursor))
    subject = Subject(view, body["market_id"], token_id, BucketWidth.of(width), point_count)
    page = state.pages.page(subject, rng, query.limit, position)
    next_cursor = None if page.position is None else state.cursors.issue(facts, page.position)
    body["resolution"] = width
    if tokens is None:
        body["data"] = [point for columns in page.parts for point in encode.points_of(columns)]
    else:
        body["tokens"], body["data"] = encode.points_by_label(page.parts, tokens)
    body["metadata"] = {"count": page.count, "limit": query.limit, "next_cursor": next_cursor}
    return json_response(body)


def _listing(kind: RecordKind, query: ListingQuery, context: RequestContext) -> Response:
    records, next_cursor = context.state.listings.page(kind, query)
    metadata = {"count": len(records), "limit": query.limit, "next_cursor": next_cursor}
    return json_response({"data": records, "metadata": metadata})
