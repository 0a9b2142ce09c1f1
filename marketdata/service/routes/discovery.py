"""The discovery routes (interface 4.5)."""

from __future__ import annotations

from fastapi.responses import Response

from marketdata.service import errors
from marketdata.service.dependencies import CursorsDep, GzipDep, IdOrSlug, ListingParameters, ListingsDep, SourceDep
from marketdata.service.listings import ListingQuery, Listings, Parent, RecordKind, detail
from marketdata.service.pagination import Cursors
from marketdata.service.responses import NOT_FOUND, json_response
from marketdata.service.routes.router import v1_router
from marketdata.wire import models

router = v1_router("Discovery")


@router.get("/series", response_model=models.Listing)
def list_series(query: ListingParameters, listings: ListingsDep, cursors: CursorsDep, gzip: GzipDep) -> Response:
    """Series: broad themes or recurring categories."""
    return _listing("series", query, listings, cursors, gzip)


@router.get("/events", response_model=models.Listing)
def list_events(
    query: ListingParameters,
    listings: ListingsDep,
    cursors: CursorsDep,
    gzip: GzipDep,
    series_id: str | None = None,
    series_slug: str | None = None,
) -> Response:
    """Events, of one series if its id or slug is given."""
    return _listing("events", query, listings, cursors, gzip, Parent("series", series_id, series_slug))


@router.get("/markets", response_model=models.Listing)
def list_markets(
    query: ListingParameters,
    listings: ListingsDep,
    cursors: CursorsDep,
    gzip: GzipDep,
    event_id: str | None = None,
    event_slug: str | None = None,
) -> Response:
    """Markets, of one event if its id or slug is given."""
    return _listing("markets", query, listings, cursors, gzip, Parent("event", event_id, event_slug))


@router.get("/markets/{id_or_slug}", response_model=models.MarketDetail, responses=NOT_FOUND)
def get_market(id_or_slug: IdOrSlug, source: SourceDep, gzip: GzipDep) -> Response:
    """One market."""
    record = source.find_market(id_or_slug)
    if record is None:
        raise errors.market_not_found(id_or_slug)
    return json_response(detail(record), gzip=gzip)


@router.get("/tags", response_model=models.Tags)
def list_tags(listings: ListingsDep, gzip: GzipDep) -> Response:
    """Every tag in use."""
    tags = listings.tags()
    return json_response({"count": len(tags), "data": tags}, gzip=gzip)


def _listing(
    kind: RecordKind,
    query: ListingQuery,
    listings: Listings,
    cursors: Cursors,
    gzip: GzipDep,
    parent: Parent | None = None,
) -> Response:
    records, following = listings.page(kind, query, cursors, parent)
    metadata = {"count": len(records), "limit": query.limit, "next_cursor": following}
    return json_response({"data": records, "metadata": metadata}, gzip=gzip)
