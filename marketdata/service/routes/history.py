"""The history routes (interface 4.1 to 4.4) and their bodies."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from marketdata.points.views import VIEWS, View
from marketdata.service import errors
from marketdata.service.cache import Subject
from marketdata.service.dependencies import Context, RequestContext
from marketdata.service.pagination import KeptPage
from marketdata.service.parameters import HistoryParameters, HistoryQuery, IdOrSlug, TokenId
from marketdata.service.responses import NOT_FOUND, PLAN_REFUSES, points, points_by_label, to_json
from marketdata.service.routes.router import v1_router
from marketdata.wire import models
from marketdata.wire.models import LARGEST_LIMIT


def _market_page(view: View, id_or_slug: str, query: HistoryQuery, context: RequestContext) -> Response:
    """Books, prices or metrics of a market; HTTPException 403, 404 or 400 (interface section 7)."""
    parts = context.parts
    # On every page: a cursor carries no rights.
    context.grant.plan.check(view, query.resolution, query.range.start, parts.clock())
    versions, (market_id, tokens) = parts.pages.versions(view), parts.pages.market(id_or_slug)
    has_tokens = VIEWS[view].has_tokens
    each = len(tokens) if has_tokens else 1
    if each > LARGEST_LIMIT:
        raise errors.too_many_tokens(view)
    if each > query.limit:
        raise errors.limit_too_small(each)
    subject = Subject(view, market_id, None, query.resolution, each)
    return _page(subject, {"market_id": market_id}, tokens if has_tokens else None, query, context, versions)


def _token_page(view: View, token_id: str, query: HistoryQuery, context: RequestContext) -> Response:
    """Books or prices of one token; errors as for a market."""
    parts = context.parts
    context.grant.plan.check(view, query.resolution, query.range.start, parts.clock())
    versions, found = parts.pages.versions(view), parts.source.find_token(token_id)
    if found is None:
        raise errors.token_not_found(token_id)
    market_id = str(found[0]["id"])
    named = {"market_id": market_id, "token_id": token_id, "token_label": found[1]}
    subject = Subject(view, market_id, token_id, query.resolution, 1)
    return _page(subject, named, None, query, context, versions)


def _page(
    subject: Subject,
    named: dict[str, Any],
    tokens: dict[str, str] | None,
    query: HistoryQuery,
    context: RequestContext,
    versions: tuple[int, int],
) -> Response:
    """The answer, which is kept, with points by label if there are ``tokens``."""
    pages, cursors = context.parts.pages, context.parts.cursors
    facts = [subject.view, subject.market_id, subject.token_id, query.resolution.value, *query.range]
    position = None if query.cursor is None else int(cursors.read(facts, query.cursor))
    page = pages.page(subject, query.range, query.limit, position)
    following = None if page.position is None else cursors.give(facts, str(page.position))
    body = {**named, "resolution": query.resolution}
    if tokens is None:
        body["data"] = points(page)
    else:
        body["tokens"], body["data"] = points_by_label(page, tokens)
    body["metadata"] = {"count": page.count, "limit": query.limit, "next_cursor": following}
    response, until = context.respond(to_json(body)), cursors.until(query.cursor)
    size = len(response.body) + 2_000
    kept = KeptPage(subject.view, query.resolution, query.range.start, versions, until, following, response, size)
    pages.cache.keep(context.exchange.page, kept)
    return response


router = v1_router("History", {**NOT_FOUND, **PLAN_REFUSES})


@router.get("/markets/{id_or_slug:segment}/books", response_model=models.MarketHistory[models.OrderBookSnapshot])
def get_market_books(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Order book snapshots of all tokens of a market; the last book of each bucket."""
    return _market_page("books", id_or_slug, query, context)


@router.get("/markets/{id_or_slug:segment}/prices", response_model=models.MarketHistory[models.PricePoint])
def get_market_prices(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Prices of all tokens of a market; the mean of each bucket."""
    return _market_page("prices", id_or_slug, query, context)


@router.get("/markets/{id_or_slug:segment}/metrics", response_model=models.MetricsHistory)
def get_market_metrics(id_or_slug: IdOrSlug, query: HistoryParameters, context: Context) -> Response:
    """Volume, liquidity and spread of a market; the mean of each bucket."""
    return _market_page("metrics", id_or_slug, query, context)


@router.get("/tokens/{token_id:segment}/books", response_model=models.TokenHistory[models.OrderBookSnapshot])
def get_token_books(token_id: TokenId, query: HistoryParameters, context: Context) -> Response:
    """Order book snapshots of one token; the last book of each bucket."""
    return _token_page("books", token_id, query, context)


@router.get("/tokens/{token_id:segment}/prices", response_model=models.TokenHistory[models.PricePoint])
def get_token_prices(token_id: TokenId, query: HistoryParameters, context: Context) -> Response:
    """Prices of one token; the mean of each bucket."""
    return _token_page("prices", token_id, query, context)
