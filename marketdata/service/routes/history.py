"""The history routes (interface 4.1 to 4.4) and their bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends
from fastapi.responses import Response

from marketdata.service import errors, responses
from marketdata.service.auth import Grant
from marketdata.service.cache import ServedArchive, Subject
from marketdata.service.dependencies import (
    GrantDep,
    GzipDep,
    HistoryParameters,
    HistoryQuery,
    IdOrSlug,
    TokenId,
    from_state,
)
from marketdata.service.pagination import Cursors, Pages, ServedPage, labels_of
from marketdata.service.responses import NOT_FOUND, PLAN_REFUSES, json_response
from marketdata.service.routes.router import v1_router
from marketdata.wire import models
from marketdata.wire.views import VIEWS, View


class HistoryPages:
    """Bodies of pages of an archive, if the plan of the key allows them at the time of ``clock`` [Unix s]."""

    def __init__(self, source: ServedArchive, pages: Pages, cursors: Cursors, clock: Callable[[], float]) -> None:
        self._source = source
        self._pages = pages
        self._cursors = cursors
        self._clock = clock

    def market(self, view: View, id_or_slug: str, query: HistoryQuery, grant: Grant) -> bytes:
        """Books, prices or metrics of a market; HTTPException 403, 404 or 400 (interface section 7)."""
        self._check_plan(view, query, grant)
        record = self._source.find_market(id_or_slug)
        if record is None:
            raise errors.market_not_found(id_or_slug)
        market_id = str(record["id"])
        if not VIEWS[view].has_tokens:
            page, metadata = self._page(Subject(view, market_id, None, query.resolution, 1), query)
            return responses.metrics_body(page, market_id, query.resolution, metadata)
        tokens = labels_of(record)
        if len(tokens) > errors.MAX_TOKENS:
            raise errors.too_many_tokens(view)
        if len(tokens) > query.limit:
            raise errors.limit_too_small(len(tokens))
        page, metadata = self._page(Subject(view, market_id, None, query.resolution, len(tokens)), query)
        return responses.market_body(page, market_id, query.resolution, tokens, metadata)

    def token(self, view: View, token_id: str, query: HistoryQuery, grant: Grant) -> bytes:
        """Books or prices of one token; errors as for `market`."""
        self._check_plan(view, query, grant)
        found = self._source.find_token(token_id)
        if found is None:
            raise errors.token_not_found(token_id)
        record, label = found
        market_id = str(record["id"])
        page, metadata = self._page(Subject(view, market_id, token_id, query.resolution, 1), query)
        return responses.token_body(page, market_id, token_id, label, query.resolution, metadata)

    def _check_plan(self, view: View, query: HistoryQuery, grant: Grant) -> None:
        # On every page: a cursor carries no rights.
        grant.plan.check(view, query.resolution, query.range.start, self._clock())

    def _page(self, subject: Subject, query: HistoryQuery) -> tuple[ServedPage, dict[str, Any]]:
        facts = [subject.view, subject.market_id, subject.token_id, query.resolution.value, *query.range]
        position = None if query.cursor is None else int(self._cursors.read(facts, query.cursor))
        page = self._pages.page(subject, query.range, query.limit, position)
        following = None if page.position is None else self._cursors.give(facts, str(page.position))
        return page, {"count": page.count, "limit": query.limit, "next_cursor": following}


HistoryDep = Annotated[HistoryPages, Depends(from_state("history"))]
router = v1_router("History", {**NOT_FOUND, **PLAN_REFUSES})


@router.get("/markets/{id_or_slug:segment}/books", response_model=models.MarketHistory[models.OrderBookSnapshot])
def get_market_books(
    id_or_slug: IdOrSlug, query: HistoryParameters, history: HistoryDep, grant: GrantDep, gzip: GzipDep
) -> Response:
    """Order book snapshots of all tokens of a market; the last book of each bucket."""
    return json_response(history.market("books", id_or_slug, query, grant), gzip=gzip)


@router.get("/markets/{id_or_slug:segment}/prices", response_model=models.MarketHistory[models.PricePoint])
def get_market_prices(
    id_or_slug: IdOrSlug, query: HistoryParameters, history: HistoryDep, grant: GrantDep, gzip: GzipDep
) -> Response:
    """Prices of all tokens of a market; the mean of each bucket."""
    return json_response(history.market("prices", id_or_slug, query, grant), gzip=gzip)


@router.get("/markets/{id_or_slug:segment}/metrics", response_model=models.MetricsHistory)
def get_market_metrics(
    id_or_slug: IdOrSlug, query: HistoryParameters, history: HistoryDep, grant: GrantDep, gzip: GzipDep
) -> Response:
    """Volume, liquidity and spread of a market; the mean of each bucket."""
    return json_response(history.market("metrics", id_or_slug, query, grant), gzip=gzip)


@router.get("/tokens/{token_id:segment}/books", response_model=models.TokenHistory[models.OrderBookSnapshot])
def get_token_books(
    token_id: TokenId, query: HistoryParameters, history: HistoryDep, grant: GrantDep, gzip: GzipDep
) -> Response:
    """Order book snapshots of one token; the last book of each bucket."""
    return json_response(history.token("books", token_id, query, grant), gzip=gzip)


@router.get("/tokens/{token_id:segment}/prices", response_model=models.TokenHistory[models.PricePoint])
def get_token_prices(
    token_id: TokenId, query: HistoryParameters, history: HistoryDep, grant: GrantDep, gzip: GzipDep
) -> Response:
    """Prices of one token; the mean of each bucket."""
    return json_response(history.token("prices", token_id, query, grant), gzip=gzip)
