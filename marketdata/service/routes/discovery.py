"""The discovery routes (interface 4.5)."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from marketdata.points.records import RecordKind, names
from marketdata.service import errors
from marketdata.service.dependencies import Context, RequestContext
from marketdata.service.parameters import EventQuery, IdOrSlug, ListingQuery, MarketQuery
from marketdata.service.responses import NOT_FOUND, to_json
from marketdata.service.routes.router import v1_router
from marketdata.wire import models

router = v1_router("Discovery")


@router.get("/series", response_model=models.Listing)
def list_series(query: Annotated[ListingQuery, Query()], context: Context) -> Response:
    """Series: broad themes or recurring categories."""
    return _listing("series", query, context)


@router.get("/events", response_model=models.Listing)
def list_events(query: Annotated[EventQuery, Query()], context: Context) -> Response:
    """Events, of one series if its id or slug is given."""
    return _listing("events", query, context)


@router.get("/markets", response_model=models.Listing)
def list_markets(query: Annotated[MarketQuery, Query()], context: Context) -> Response:
    """Markets, of one event if its id or slug is given."""
    return _listing("markets", query, context)


@router.get("/markets/{id_or_slug}", response_model=models.MarketDetail, responses=NOT_FOUND)
def get_market(id_or_slug: IdOrSlug, context: Context) -> Response:
    """One market."""
    record = context.parts.source.find_market(id_or_slug)
    if record is None:
        raise errors.market_not_found(id_or_slug)
    # With the fields that listings lack.
    return context.respond(to_json({**dict.fromkeys(names("markets", "market")), **record}))


@router.get("/tags", response_model=models.Tags)
def list_tags(context: Context) -> Response:
    """Every tag in use."""
    tags = context.parts.listings.tags()
    return context.respond(to_json({"count": len(tags), "data": tags}))


def _listing(kind: RecordKind, query: ListingQuery, context: RequestContext) -> Response:
    records, following = context.parts.listings.page(kind, query, context.parts.cursors)
    metadata = {"count": len(records), "limit": query.limit, "next_cursor": following}
    return context.respond(to_json({"data": records, "metadata": metadata}))
