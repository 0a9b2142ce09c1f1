"""The routes of interface section 4."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.responses import Response

from marketdata.points.records import RecordKind, names
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.service import errors
from marketdata.service.access import Context, RequestContext
from marketdata.service.pages import Subject, labels_of
from marketdata.service.parameters import (
    EventQuery,
    HistoryParameters,
    HistoryQuery,
    IdOrSlug,
    ListingQuery,
    MarketQuery,
    TokenId,
)
from marketdata.service.responses import (
    NOT_FOUND,
    PLAN_REFUSES,
    REFUSALS,
    MarketHistory,
    MetricsHistory,
    OrderBookSnapshot,
    PricePoint,
    TokenHistory,
    Usage,
    json_response,
    points,
    points_by_label,
)
from marketdata.times import Range
from marketdata.wire import models
from marketdata.wire.models import LARGEST_LIMIT


class _Segment(StringConvertor):
    """A path segment, which may be empty: a history path without a slug is 422 and not 404."""

    regex = "[^/]*"


register_url_convertor("segment", _Segment())
router = APIRouter(prefix="/v1", responses=REFUSALS)
history: dict[str, Any] = {"tags": ["History"], "responses": {**NOT_FOUND, **PLAN_REFUSES}}
discovery: dict[str, Any] = {"tags": ["Discovery"]}
utility: dict[str, Any] = {"tags": ["Utility"]}


@router.get("/markets/{id_or_slug:segment}/books", response_model=MarketHistory[OrderBookSnapshot], **history)
def get_market_books(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Order book snapshots of all tokens of a market; the last book of each bucket."""
    return _market_page("books", id_or_slug, query, context)


@router.get("/markets/{id_or_slug:segment}/prices", response_model=MarketHistory[PricePoint], **history)
def get_market_prices(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Prices of all tokens of a market; the mean of each bucket."""
    return _market_page("prices", id_or_slug, query, context)


@router.get("/markets/{id_or_slug:segment}/metrics", response_model=MetricsHistory, **history)
def get_market_metrics(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Volume, liquidity and spread of a market; the mean of each bucket."""
    return _market_page("metrics", id_or_slug, query, context)


@router.get("/tokens/{token_id:segment}/books", response_model=TokenHistory[OrderBookSnapshot], **history)
def get_token_books(token_id: TokenId, query: HistoryParameters, context: Context) -> Response:
    """Order book snapshots of one token; the last book of each bucket."""
    return _token_page("books", token_id, query, context)


@router.get("/tokens/{token_id:segment}/prices", response_model=TokenHistory[PricePoint], **history)
def get_token_prices(token_id: TokenId, query: HistoryParameters, context: Context) -> Response:
    """Prices of one token; the mean of each bucket."""
    return _token_page("prices", token_id, query, context)


@router.get("/series", response_model=models.Listing, **discovery)
def list_series(query: Annotated[ListingQuery, Query()], context: Context) -> Response:
    """Series: broad themes or recurring categories."""
    return _listing("series", query, context)


@router.get("/events", response_model=models.Listing, **discovery)
def list_events(query: Annotated[EventQuery, Query()], context: Context) -> Response:
    """Events, of one series if its id or slug is given."""
    return _listing("events", query, context)


@router.get("/markets", response_model=models.Listing, **discovery)
def list_markets(query: Annotated[MarketQuery, Query()], context: Context) -> Response:
    """Markets, of one event if its id or slug is given."""
    return _listing("markets", query, context)


@router.get("/markets/{id_or_slug}", response_model=models.MarketDetail, responses=NOT_FOUND, **discovery)
def get_market(id_or_slug: IdOrSlug, context: Context) -> Response:
    """One market, with the fields that listings lack."""
    record = context.state.archive.find_market(id_or_slug)
    if record is None:
        raise errors.market_not_found(id_or_slug)
    return json_response({**dict.fromkeys(names("markets", "market")), **record})


@router.get("/tags", response_model=models.Tags, **discovery)
def list_tags(context: Context) -> Response:
    """Every tag in use."""
    tags = context.state.listings.tags()
    return json_response({"count": len(tags), "data": tags})


@router.get("/health", response_model=models.Health, **utility)
async def get_health(context: Context) -> Response:
    """Whether the service is up."""
    now = dt.datetime.fromtimestamp(context.state.clock(), dt.UTC).isoformat().replace("+00:00", "Z")
    return json_response({"status": "ok", "timestamp": now, "simulated": context.state.simulated})


@router.get("/usage", response_model=Usage, **utility)
async def get_usage(context: Context) -> Response:
    """Plan of the key, and the requests that are left in this minute."""
    state, (key, plan) = context
    remaining, seconds = state.limiter.remaining(key.id, plan.requests_per_minute)
    limits = {
        "requests_per_minute": plan.requests_per_minute,
        "requests_remaining": remaining,
        "granularity_allowed": ",".join(plan.allowed(state.derivable)),
        "max_history_days": "unlimited" if plan.max_history_days is None else f"{plan.max_history_days:g}",
    }
    reset_at = int(state.clock() + seconds) + 1
    return json_response({"plan": key.plan, "organization": key.organization, "limits": limits, "reset_at": reset_at})


def _market_page(view: View, id_or_slug: str, query: HistoryQuery, context: RequestContext) -> Response:
    """A page of a market; HTTPException 403, 404 or 400 (interface section 7)."""
    rng = _allowed_range(view, query, context)
    record = context.state.archive.find_market(id_or_slug)
    if record is None:
        raise errors.market_not_found(id_or_slug)
    market_id, tokens = str(record["id"]), labels_of(record) if VIEWS[view].has_tokens else None
    each = 1 if tokens is None else len(tokens)
    if each > LARGEST_LIMIT:
        raise errors.too_many_tokens(view)
    if each > query.limit:
        raise errors.limit_too_small(each)
    subject = Subject(view, market_id, None, BucketWidth.of(query.resolution), each)
    return _page(subject, {"market_id": market_id}, tokens, rng, query, context)


def _token_page(view: View, token_id: str, query: HistoryQuery, context: RequestContext) -> Response:
    """A page of one token; errors as for a market."""
    rng = _allowed_range(view, query, context)
    owner = context.state.archive.find_token(token_id)
    if owner is None:
        raise errors.token_not_found(token_id)
    record, label = owner
    market_id = str(record["id"])
    subject = Subject(view, market_id, token_id, BucketWidth.of(query.resolution), 1)
    ids = {"market_id": market_id, "token_id": token_id, "token_label": label}
    return _page(subject, ids, None, rng, query, context)


def _allowed_range(view: View, query: HistoryQuery, context: RequestContext) -> Range:
    """The range of a request that the plan allows; checked on every page, because a cursor carries no rights."""
    state, (_, plan) = context
    rng = query.read_range(state.resolutions)
    plan.check(view, query.resolution, rng.start, state.clock(), state.derivable)
    return rng


def _page(
    subject: Subject,
    ids: dict[str, Any],
    tokens: dict[str, str] | None,
    rng: Range,
    query: HistoryQuery,
    context: RequestContext,
) -> Response:
    """The answer, with points by label if there are ``tokens``."""
    pages, cursors = context.state.pages, context.state.cursors
    facts = [subject.view, subject.market_id, subject.token_id, query.resolution, *rng]
    position = None if query.cursor is None else int(cursors.read(facts, query.cursor))
    page = pages.page(subject, rng, query.limit, position)
    next_cursor = None if page.position is None else cursors.issue(facts, page.position)
    body = {**ids, "resolution": query.resolution}
    if tokens is None:
        body["data"] = points(page)
    else:
        body["tokens"], body["data"] = points_by_label(page, tokens)
    body["metadata"] = {"count": page.count, "limit": query.limit, "next_cursor": next_cursor}
    return json_response(body)


def _listing(kind: RecordKind, query: ListingQuery, context: RequestContext) -> Response:
    state = context.state
    records, next_cursor = state.listings.page(kind, query, state.cursors, state.clock())
    metadata = {"count": len(records), "limit": query.limit, "next_cursor": next_cursor}
    return json_response({"data": records, "metadata": metadata})
