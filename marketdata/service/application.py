"""The service as an ASGI application, which any ASGI server can run."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response

from marketdata.archive.reading import Reader
from marketdata.archive.store import check_folder
from marketdata.errors import ArchiveError, ConfigError
from marketdata.service import routes, start_page
from marketdata.service.access import State, read_resolutions
from marketdata.service.cursors import Cursors, stored_secret
from marketdata.service.keys import AccessPlan, Keys, KeyStore
from marketdata.service.listings import Listings
from marketdata.service.pages import CACHE_BYTES, Pages
from marketdata.service.responses import json_response, printable

if TYPE_CHECKING:
    from marketdata.archive import Archive

_log = logging.getLogger("marketdata.service")
_access_log = logging.getLogger("marketdata.service.access")


def create_application(
    archive: Archive,
    keys: str | Path | Mapping[str, str],
    *,
    plans: Mapping[str, AccessPlan | Mapping[str, Any]] | None = None,
    secret: bytes | None = None,
    cache_bytes: int = CACHE_BYTES,
    host_names: Sequence[str] = (),
    resolutions: Sequence[str] | None = None,
    clock: Callable[[], float] | None = None,
) -> FastAPI:
    """An ASGI application that answers the interface from an archive; arguments as `marketdata.serve`.

    Returns a FastAPI application. ConfigError if the archive cannot be read, or keys, plans or resolutions are refused.
    """
    _check_archive(archive)
    now = clock or time.time
    store = KeyStore(Path(keys) if isinstance(keys, str | Path) else Keys.given(keys, plans), now)
    # An object store has no file for the secret: each start of the service makes one.
    cursors = Cursors(secret or stored_secret(Path(archive.location, "_cursor.secret")), now)
    try:
        reader = archive if isinstance(archive, Reader) else Reader(archive)
        state = State(
            archive=reader,
            simulated=archive.simulated,
            keys=store,
            cursors=cursors,
            clock=now,
            resolutions=read_resolutions(resolutions, reader),
            host_names={name.lower() for name in host_names},
            pages=Pages(reader, cache_bytes=cache_bytes),
            listings=Listings(reader, cursors, now),
        )
    except ArchiveError as problem:
        raise ConfigError(f"The archive {archive.location!r} cannot be served: {problem}") from problem
    application = FastAPI(
        title="Historical Market Data Service",
        version="0.1.1",  # of the interface (its section 9)
        description="Read-only historical prediction-market data." + (" Simulated." if state.simulated else ""),
        redirect_slashes=False,
        docs_url=None,  # its page loads scripts from the internet
        redoc_url=None,
    )
    application.state.service = state
    for router in (routes.history, routes.discovery, routes.utility, start_page.create_router(state)):
        application.include_router(router)
    application.add_exception_handler(RequestValidationError, _not_valid)
    application.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=1)
    application.add_middleware(BaseHTTPMiddleware, dispatch=partial(_guard, state))
    application.openapi = partial(_describe, application)  # type: ignore[method-assign]
    return application


def _check_archive(archive: object) -> None:
    """ConfigError for a path in place of an archive, and for a folder that is missing or holds other files."""
    location = getattr(archive, "location", None)
    if location is None:
        folder = repr(str(archive)) if isinstance(archive, str | Path) else "folder"
        raise ConfigError(f"serve takes an archive, not {type(archive).__name__}; pass md.Archive({folder}).")
    try:
        check_folder(location)
    except ArchiveError as problem:
        raise ConfigError(str(problem)) from problem


async def _guard(state: State, request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Check host, key and rate before any route is chosen; add headers, and log."""
    # As it was sent: decoded, "a%2Fb" is "a/b".
    path = request.scope["path"] = request.scope["raw_path"].decode("latin-1")
    begun, request_id, key_id = time.perf_counter(), secrets.token_hex(8), "-"
    try:
        _check_host(request.headers, state.host_names)
        if path.startswith(("/v1/", "/coverage")) or path == "/v1":
            request.state.grant = key, _ = await state.admit(request.headers)
            key_id = key.id
        response = await call_next(request)
    except HTTPException as problem:
        response = json_response({"detail": problem.detail}, problem.status_code, problem.headers)
    except Exception:
        _log.exception("request %s failed", request_id)
        response = json_response({"detail": "Failed to fetch data."}, 500)
    headers = {"x-content-type-options": "nosniff", "cache-control": "no-store", "x-request-id": request_id}
    if state.clock is not time.time:
        headers["date"] = formatdate(state.clock(), usegmt=True)
    if state.simulated:
        headers["x-simulated"] = "true"
    response.headers.update(headers)
    client, took = request.client.host if request.client else "-", (time.perf_counter() - begun) * 1e3
    # The query stays out: a key may be in it by mistake.
    facts = (client, printable(request.method), printable(path, 400), response.status_code, took, key_id, request_id)
    _access_log.info("%s %s %s %d %.1f ms key=%s id=%s", *facts)
    return response


def _check_host(headers: Headers, host_names: set[str]) -> None:
    """HTTPException 400 for another name in the Host header; without names any is accepted."""
    host = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:/@?#\\\s]+))(?::\d*)?", headers.get("host", "").lower())
    name = host and (host[1] or host[2])
    if host_names and (name not in host_names or len(headers.getlist("host")) > 1):
        raise HTTPException(400, "Invalid host header")


async def _not_valid(request: Request, problem: Exception) -> Response:
    """422 as the interface has it: FastAPI's own answer repeats the input, and does not say what is allowed."""
    assert isinstance(problem, RequestValidationError)
    problems = []
    for error in problem.errors():
        message = error["msg"]
        if error["type"] == "extra_forbidden":
            (filters,) = request.scope["route"].dependant.query_params
            message = f"Unknown filter; allowed are {', '.join(filters.field_info.annotation.model_fields)}"
        loc = [printable(str(part)) for part in error["loc"]]
        problems.append({"loc": loc, "msg": message, "type": error["type"]})
    return json_response({"detail": problems}, 422)


def _describe(application: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, with the resolutions that this service has."""
    schema = FastAPI.openapi(application)
    for path in schema["paths"].values():
        for parameter in path["get"].get("parameters", ()):
            if parameter["name"] == "resolution":
                parameter["schema"]["enum"] = application.state.service.resolutions
    return schema
