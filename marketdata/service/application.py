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
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marketdata.errors import ArchiveError, ConfigError
from marketdata.service import errors, start_page
from marketdata.service.access import State
from marketdata.service.cursors import Cursors, stored_secret
from marketdata.service.keys import AccessPlan, Keys, KeyStore, digest
from marketdata.service.pages import CACHE_BYTES
from marketdata.service.routes import router

if TYPE_CHECKING:
    from marketdata.archive import Archive

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
_log = logging.getLogger("marketdata.service")
_GZIP_REFUSED = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)")
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
    check_archive(archive)
    now = clock or time.time
    store, cursors = KeyStore(_read_keys(keys, plans), now), Cursors(secret or _stored_secret(archive), now)
    try:
        state = State(archive, store, cursors, resolutions=resolutions, cache_bytes=cache_bytes, clock=now)
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
    application.include_router(router)
    application.include_router(start_page.create_router(simulated=state.simulated))
    application.add_exception_handler(RequestValidationError, _not_valid)
    application.add_middleware(_Compression, minimum_size=1_000, compresslevel=1)
    application.add_middleware(_Guard, service=state, host_names=host_names, own_date=clock is not None)
    application.openapi = partial(_describe, application)  # type: ignore[method-assign]
    return application


def check_archive(archive: object) -> None:
    """ConfigError for a path in place of an archive, and for a folder that is missing or holds other files."""
    location = getattr(archive, "location", None)
    if location is None:
        folder = repr(str(archive)) if isinstance(archive, str | Path) else "folder"
        raise ConfigError(f"serve takes an archive, not {type(archive).__name__}; pass md.Archive({folder}).")
    if "://" in location:
        return
    try:
        visible = [path for path in Path(location).iterdir() if path.name[0] not in "._"]
    except OSError as problem:
        hint = "An archive is made by its first add or pull."
        raise ConfigError(f"The folder {location!r} cannot be read: {problem.strerror}.", hint=hint) from problem
    if visible and not any(Path(location).glob("*/_delta_log")):
        raise ConfigError(f"The folder {location!r} holds other files, and no archive. Is the path right?")


class _Compression(GZipMiddleware):
    """GZip, but not for a client that refuses it: ``gzip;q=0`` also contains the word."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        codings = Headers(scope=scope).get("accept-encoding", "") if scope["type"] == "http" else ""
        application = self.app if _GZIP_REFUSED.search(codings) else super().__call__
        await application(scope, receive, send)


class _Guard:
    """Middleware of every path: it checks host, key and rate before any route is chosen, adds headers, and logs."""

    def __init__(self, app: ASGIApp, service: State, host_names: Sequence[str], *, own_date: bool) -> None:
        self._app, self._service, self._own_date = app, service, own_date
        self._host_names = {name.lower() for name in host_names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # As it was sent: decoded, "a%2Fb" is "a/b".
        path = scope["path"] = scope["raw_path"].decode("latin-1")
        begun, request_id, statuses = time.perf_counter(), secrets.token_hex(8), []

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                message["headers"] = [*message["headers"], *self._headers(request_id)]
            await send(message)

        headers, state = Headers(scope=scope), scope.setdefault("state", {})
        try:
            self._check_host(headers)
            if path.startswith(("/v1/", "/coverage")) or path == "/v1":
                state["grant"] = await self._service.admit(headers)
            await self._app(scope, receive, send_with_headers)
        except HTTPException as problem:
            refusal = errors.response(problem.status_code, problem.detail, problem.headers)
            await refusal(scope, receive, send_with_headers)
        except Exception:
            _log.exception("request %s failed", request_id)
            if statuses:
                raise
            await errors.failed()(scope, receive, send_with_headers)
        grant, client = state.get("grant"), scope.get("client") or ("-",)
        # The query stays out: a key may be in it by mistake.
        _access_log.info(
            "%s %s %s %d %.1f ms key=%s id=%s",
            client[0],
            errors.printable(scope["method"]),
            errors.printable(path, 400),
            statuses[0],
            (time.perf_counter() - begun) * 1e3,
            grant.key.id if grant else "-",
            request_id,
        )

    def _check_host(self, headers: Headers) -> None:
        """HTTPException 400 for another name in the Host header; without names any is accepted."""
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname
        except ValueError:
            name = None
        if self._host_names and (name not in self._host_names or len(headers.getlist("host")) > 1):
            raise HTTPException(400, "Invalid host header")

    def _headers(self, request_id: str) -> list[tuple[bytes, bytes]]:
        headers = {"x-content-type-options": "nosniff", "cache-control": "no-store", "x-request-id": request_id}
        if self._own_date:
            headers["date"] = formatdate(self._service.clock(), usegmt=True)
        if self._service.simulated:
            headers["x-simulated"] = "true"
        return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _not_valid(request: Request, problem: Exception) -> Response:
    """422 as the interface has it: FastAPI's own answer repeats the input, and does not say what is allowed."""
    assert isinstance(problem, RequestValidationError)
    problems = []
    for error in problem.errors():
        message = error["msg"]
        if error["type"] == "extra_forbidden":
            (filters,) = request.scope["route"].dependant.query_params
            message = f"Unknown filter; allowed are {', '.join(filters.field_info.annotation.model_fields)}"
        loc = [errors.printable(str(part)) for part in error["loc"]]
        problems.append({"loc": loc, "msg": message, "type": error["type"]})
    return errors.response(422, problems)


def _describe(application: FastAPI) -> dict[str, Any]:
    """The OpenAPI description, with the resolutions that this service has."""
    schema = FastAPI.openapi(application)
    for path in schema["paths"].values():
        for parameter in path["get"].get("parameters", ()):
            if parameter["name"] == "resolution":
                parameter["schema"]["enum"] = application.state.service.resolutions
    return schema


def _read_keys(
    keys: str | Path | Mapping[str, str], plans: Mapping[str, AccessPlan | Mapping[str, Any]] | None
) -> Keys | Path:
    if isinstance(keys, str | Path):
        return Path(keys)
    if not all(keys):
        raise ConfigError("keys has an empty key; a key is a text that is not empty.")
    entries = [
        {"id": f"key{number}", "hash": digest(key.encode()), "plan": plan}
        for number, (key, plan) in enumerate(keys.items())
    ]
    return Keys.read("keys and plans", {"plans": plans or {"local": {}}, "keys": entries})


def _stored_secret(archive: Archive) -> bytes:
    """The secret beside the tables of the archive; a fresh one for an object store."""
    if "://" in archive.location:
        return secrets.token_bytes(32)
    return stored_secret(Path(archive.location, "_cursor.secret"))
