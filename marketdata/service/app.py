"""The routes of interface section 4 as a FastAPI application."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import APIKeyHeader
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException

from marketdata.service import bodies, refusals, start_page
from marketdata.service.chunks import Holdings, Source
from marketdata.service.cursors import Cursors
from marketdata.service.discovery import Catalogue, Kind, Parent, detail
from marketdata.service.history import History
from marketdata.service.keys import Keys
from marketdata.service.plans import Grant
from marketdata.service.queries import History as HistoryParameters
from marketdata.service.queries import IdOrSlug, Listing, TokenId, one_value_each
from marketdata.service.rates import Rates
from marketdata.service.refusals import Refusal
from marketdata.wire import models

VERSION = "0.1.1"
# Pages are made of Python and numpy, so more threads than cores only wait for each other; a few more, because
# some wait for a disk or an object store.
THREADS = 6
GZIP_FROM = 1_000


class _Segment(Convertor[str]):
    """One path segment, which may be empty: a history path without a slug is 422 and not unknown."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("segment", _Segment())
_key_header = APIKeyHeader(name="X-API-Key", auto_error=False, description="The key of your plan.")

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": models.ErrorResponse, "description": "Invalid timestamp, limit, cursor, market or host."},
    401: {"model": models.ErrorResponse, "description": "Key missing, invalid or expired."},
    414: {"model": models.ErrorResponse, "description": "The URL is too long."},
    422: {"model": models.ValidationErrorResponse, "description": "A parameter does not validate."},
    429: {"model": models.ErrorResponse, "description": "Rate limit exceeded for this key."},
    431: {"model": models.ErrorResponse, "description": "The headers are too large."},
    500: {"model": models.ErrorResponse, "description": "Unexpected error."},
    503: {"model": models.ErrorResponse, "description": "The service is busy."},
}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": models.ErrorResponse, "description": "Not found."}}
_HISTORY: dict[int | str, dict[str, Any]] = {
    403: {"model": models.ErrorResponse, "description": "The plan does not allow it."},
    **_NOT_FOUND,
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes answer from."""

    source: Source
    history: History
    catalogue: Catalogue
    cursors: Cursors
    rates: Rates
    keys: Keys
    holdings: Holdings
    clock: Callable[[], float] = time.time


def create_app(parts: Parts) -> FastAPI:
    """The application; ``guard`` stands before it and has let the request through."""

    @contextlib.asynccontextmanager
    async def bounded_threads(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = THREADS
        # Libraries and logs that the first request would otherwise wait for.
        threading.Thread(target=parts.holdings.warm, name="marketdata-warm", daemon=True).start()
        yield

    app = FastAPI(
        title="Historical Market Data Service",
        version=VERSION,
        description="Read-only historical prediction-market data." + (" Simulated." if parts.source.simulated else ""),
        redirect_slashes=False,
        lifespan=bounded_threads,
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    for part in (_history_routes(), _discovery_routes(), _utility_routes()):
        app.include_router(part)
    app.include_router(
        start_page.routes(parts.source, parts.catalogue, parts.cursors, parts.holdings, parts.keys),
    )
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _failed)
    return app


def _parts(request: Request) -> Parts:
    found = request.app.state.parts
    assert isinstance(found, Parts)
    return found


def _grant(request: Request) -> Grant:
    found = request.state.grant
    assert isinstance(found, Grant)
    return found


def _answer(request: Request, body: bytes) -> Response:
    if len(body) < GZIP_FROM or not _takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(body, media_type="application/json", headers={"Vary": "Accept-Encoding"})
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(bodies.gzipped(body), media_type="application/json", headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in {"gzip", "*"}:
            return quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def _router(tag: str) -> APIRouter:
    needs = [Depends(one_value_each), Security(_key_header)]
    return APIRouter(prefix="/v1", tags=[tag], dependencies=needs, responses=_ERRORS)


def _history_routes() -> APIRouter:
    routes = _router("History")

    @routes.get(
        "/markets/{id_or_slug:segment}/books",
        response_model=models.MarketHistory[models.OrderBookSnapshot],
        responses=_HISTORY,
    )
    def get_market_books(request: Request, id_or_slug: IdOrSlug, query: HistoryParameters) -> Response:
        """Order book snapshots of all tokens of a market; the last book of each bucket."""
        return _answer(request, _parts(request).history.market("books", id_or_slug, query, _grant(request)))

    @routes.get(
        "/markets/{id_or_slug:segment}/prices",
        response_model=models.MarketHistory[models.PricePoint],
        responses=_HISTORY,
    )
    def get_market_prices(request: Request, id_or_slug: IdOrSlug, query: HistoryParameters) -> Response:
        """Prices of all tokens of a market; the mean of each bucket."""
        return _answer(request, _parts(request).history.market("prices", id_or_slug, query, _grant(request)))

    @routes.get("/markets/{id_or_slug:segment}/metrics", response_model=models.MetricsHistory, responses=_HISTORY)
    def get_market_metrics(request: Request, id_or_slug: IdOrSlug, query: HistoryParameters) -> Response:
        """Volume, liquidity and spread of a market; the mean of each bucket."""
        return _answer(request, _parts(request).history.market("metrics", id_or_slug, query, _grant(request)))

    @routes.get(
        "/tokens/{token_id:segment}/books",
        response_model=models.TokenHistory[models.OrderBookSnapshot],
        responses=_HISTORY,
    )
    def get_token_books(request: Request, token_id: TokenId, query: HistoryParameters) -> Response:
        """Order book snapshots of one token; the last book of each bucket."""
        return _answer(request, _parts(request).history.token("books", token_id, query, _grant(request)))

    @routes.get(
        "/tokens/{token_id:segment}/prices", response_model=models.TokenHistory[models.PricePoint], responses=_HISTORY
    )
    def get_token_prices(request: Request, token_id: TokenId, query: HistoryParameters) -> Response:
        """Prices of one token; the mean of each bucket."""
        return _answer(request, _parts(request).history.token("prices", token_id, query, _grant(request)))

    return routes


def _listing(request: Request, kind: Kind, query: Listing, parent: Parent | None = None) -> Response:
    parts = _parts(request)
    records, following = parts.catalogue.page(kind, query, parts.cursors, parent)
    metadata = {"count": len(records), "limit": query.limit, "next_cursor": following}
    return _answer(request, bodies.to_json({"data": records, "metadata": metadata}))


def _discovery_routes() -> APIRouter:
    routes = _router("Discovery")

    @routes.get("/series", response_model=models.Listing)
    def list_series(request: Request, query: Listing) -> Response:
        """Series: broad themes or recurring categories."""
        return _listing(request, "series", query)

    @routes.get("/events", response_model=models.Listing)
    def list_events(
        request: Request, query: Listing, series_id: str | None = None, series_slug: str | None = None
    ) -> Response:
        """Events, of one series if its id or slug is given."""
        return _listing(request, "events", query, Parent("series", series_id, series_slug))

    @routes.get("/markets", response_model=models.Listing)
    def list_markets(
        request: Request, query: Listing, event_id: str | None = None, event_slug: str | None = None
    ) -> Response:
        """Markets, of one event if its id or slug is given."""
        return _listing(request, "markets", query, Parent("event", event_id, event_slug))

    @routes.get("/markets/{id_or_slug}", response_model=models.MarketDetail, responses=_NOT_FOUND)
    def get_market(request: Request, id_or_slug: IdOrSlug) -> Response:
        """One market."""
        record = _parts(request).source.find_market(id_or_slug)
        if record is None:
            raise refusals.market_not_found(id_or_slug)
        return _answer(request, bodies.to_json(detail(record)))

    @routes.get("/tags", response_model=models.Tags)
    def list_tags(request: Request) -> Response:
        """Every tag in use."""
        tags = _parts(request).catalogue.tags()
        return _answer(request, bodies.to_json({"count": len(tags), "data": tags}))

    return routes


def _utility_routes() -> APIRouter:
    routes = _router("Utility")

    @routes.get("/health", response_model=models.Health)
    async def get_health(request: Request) -> Response:
        """Whether the service is up."""
        parts = _parts(request)
        now = dt.datetime.fromtimestamp(parts.clock(), dt.UTC).isoformat().replace("+00:00", "Z")
        return _answer(request, bodies.to_json({"status": "ok", "timestamp": now, "simulated": parts.source.simulated}))

    @routes.get("/usage", response_model=models.Usage)
    def get_usage(grant: Annotated[Grant, Depends(_grant)], request: Request) -> Response:
        """Plan of the key, and the requests that are left in this minute."""
        parts, plan = _parts(request), grant.plan
        remaining, seconds = parts.rates.left(grant.key_id, plan.requests_per_minute)
        limits = {
            "requests_per_minute": plan.requests_per_minute,
            "requests_remaining": remaining,
            "granularity_allowed": plan.granularity_allowed,
            "max_history_days": plan.history_days,
        }
        reset_at = int(parts.clock() + seconds) + 1
        usage = {"plan": plan.name, "organization": grant.organization, "limits": limits, "reset_at": reset_at}
        return _answer(request, bodies.to_json(usage))

    return routes


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Refusal)
    return JSONResponse({"detail": problem.detail}, problem.status, problem.headers)


async def _not_valid(_: Request, problem: Exception) -> Response:
    """422 with what the interface shows and no more: FastAPI's own answer repeats the input."""
    assert isinstance(problem, RequestValidationError)
    found = [
        {"loc": [str(part) for part in error["loc"]], "msg": error["msg"], "type": error["type"]}
        for error in problem.errors()
    ]
    return JSONResponse({"detail": found}, 422)


async def _no_route(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return JSONResponse({"detail": problem.detail}, problem.status_code, problem.headers)


async def _failed(_: Request, __: Exception) -> Response:
    """The cause goes to the log only (see ``guard``)."""
    return JSONResponse({"detail": refusals.FAILED}, 500)
