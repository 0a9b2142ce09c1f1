"""The routes of interface section 4 as a FastAPI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from marketdata.service import errors
from marketdata.service.cache import ServedArchive
from marketdata.service.dependencies import Parts
from marketdata.service.listings import Listings
from marketdata.service.middleware import SLOTS
from marketdata.service.pagination import Cursors, Pages
from marketdata.service.rate_limit import RateLimiter
from marketdata.service.routes import discovery, history, start_page, utility

VERSION = "0.1.1"


def create_app(
    source: ServedArchive,
    *,
    pages: Pages,
    cursors: Cursors,
    rate_limiter: RateLimiter,
    clock: Callable[[], float],
    when_warm: Callable[[], object] | None = None,
) -> FastAPI:
    """The application behind ``AccessMiddleware``; ``when_warm`` is called once all for the first request is loaded."""
    listings, simulated = Listings(source), source.simulated

    @contextlib.asynccontextmanager
    async def bounded_threads(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = SLOTS
        # Libraries, logs and listings that the first request would otherwise wait for.
        pages.in_background(pages.coverage.warm)
        pages.in_background(listings.warm)
        if when_warm is not None:
            pages.in_background(when_warm)
        yield
        pages.close()

    app = FastAPI(
        title="Historical Market Data Service",
        version=VERSION,
        description="Read-only historical prediction-market data." + (" Simulated." if simulated else ""),
        redirect_slashes=False,
        lifespan=bounded_threads,
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = Parts(source, pages, cursors, listings, rate_limiter, clock, simulated)
    for routes in (history, discovery, utility):
        app.include_router(routes.router)
    app.include_router(start_page.create_router(simulated=simulated))
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


async def _not_valid(_: Request, problem: Exception) -> Response:
    """422 as the interface has it: FastAPI's own answer repeats the input."""
    assert isinstance(problem, RequestValidationError)
    found = [
        {"loc": [str(part) for part in error["loc"]], "msg": error["msg"], "type": error["type"]}
        for error in problem.errors()
    ]
    return errors.response(422, found)


async def _refused(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return errors.response(problem.status_code, problem.detail, problem.headers)


async def _failed(_: Request, __: Exception) -> Response:
    """500; the cause is only logged (see ``middleware``)."""
    return errors.response(500, errors.FAILED)
