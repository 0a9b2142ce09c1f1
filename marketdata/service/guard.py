"""The outer wall: what every request passes before a route sees it.

In this order: size of the request, host, room, key, rate. So a request without a good key learns nothing
of routes and parameters, and every answer is JSON with the same headers.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from marketdata.service import refusals
from marketdata.service.keys import Keys
from marketdata.service.plans import Grant
from marketdata.service.rates import Rates, WrongKeys
from marketdata.service.refusals import Refusal
from marketdata.service.sockets import HEADERS_TOO_LARGE, MAX_URL, URL_TOO_LONG
from marketdata.service.start_page import HOLDINGS

MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
MAX_IN_FLIGHT = 512
# Requests of one key that are worked on at once. More would only wait for each other, and two keys that
# ask without pause leave threads for a third.
KEY_SLOTS = 2
KEY_HEADER = b"x-api-key"
# Around the value of a header they are no part of it (RFC 9110, 5.5).
_BLANKS = b" \t"
# Paths beside those below /v1 that need a key.
KEYED = (b"/v1", HOLDINGS.encode())
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_log = logging.getLogger("marketdata.service")
_access = logging.getLogger("marketdata.service.access")
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


@dataclass(slots=True)
class _Exchange:
    """One request and what was answered."""

    scope: Scope
    send_on: Send
    simulated: bool
    request_id: str = field(default_factory=lambda: uuid4().hex[:16])
    begun: float = field(default_factory=time.perf_counter)
    status: int = 0
    slot: asyncio.Semaphore | None = None

    async def work(self, slot: asyncio.Semaphore) -> None:
        """Wait for a place among the requests of a key that are worked on."""
        await slot.acquire()
        self.slot = slot

    def worked(self) -> None:
        """Give the place away: what is left is to send, and a client may be slow to read."""
        if self.slot is not None:
            self.slot.release()
            self.slot = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.worked()
            self.status = message["status"]
            headers = [*message.get("headers", ()), *_ALWAYS, (b"x-request-id", self.request_id.encode())]
            if self.simulated:
                headers.append((b"x-simulated", b"true"))
            if _has_body(self.scope):
                # The body of a GET is never read; the connection ends instead of waiting for the rest of it.
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self.send_on(message)

    async def refuse(self, refusal: Refusal) -> None:
        body = json.dumps({"detail": refusal.detail}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


class Guard:
    """Lets good requests through to an application.

    Parameters
    ----------
    app : ASGI application
        What is behind the wall.
    keys, rates
        Who may ask, and how often.
    hosts : iterable of str or None
        Names that the Host header may have; None: any.
    simulated : bool
        Whether every answer says that its data is simulated.
    """

    def __init__(
        self,
        app: App,
        *,
        keys: Keys,
        rates: Rates,
        hosts: Iterable[str] | None = None,
        simulated: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._app = app
        self._keys = keys
        self._rates = rates
        self._wrong = WrongKeys()
        self._hosts = None if hosts is None else frozenset(h.lower() for h in hosts)
        self._simulated = simulated
        self._max_in_flight = max_in_flight
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(KEY_SLOTS))
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        exchange = _Exchange(scope, send, self._simulated)
        self.in_flight += 1
        try:
            await self._answer(exchange, receive)
        finally:
            self.in_flight -= 1
            _log_access(exchange)

    async def _answer(self, exchange: _Exchange, receive: Receive) -> None:
        try:
            grant = await self._admit(exchange.scope)
            if grant is not None:
                await exchange.work(self._slots[grant.key_id])
            await self._app(exchange.scope, receive, exchange.send)
        except Refusal as refusal:
            await exchange.refuse(refusal)
        except Exception:
            _log.exception("request %s failed", exchange.request_id)
            if not exchange.status:
                await exchange.refuse(Refusal(500, refusals.FAILED))
        finally:
            exchange.worked()

    async def _admit(self, scope: Scope) -> Grant | None:
        _check_size(scope)
        self._check_host(scope)
        if self.in_flight > self._max_in_flight:
            raise Refusal(503, refusals.OVERLOADED, {"Retry-After": "1"})
        # The raw path stays encoded: what the server decoded can not tell "a%2Fb" from "a/b".
        raw = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = raw.decode("latin-1")
        if raw not in KEYED and not raw.startswith(b"/v1/"):
            return None
        grant = await self._grant(scope)
        scope["state"] = {**scope.get("state", {}), "grant": grant}
        return grant

    def _check_host(self, scope: Scope) -> None:
        if self._hosts is None:
            return
        named = [value for name, value in scope["headers"] if name == b"host"]
        host = named[0].strip(_BLANKS).decode("latin-1").lower() if len(named) == 1 else ""
        if not host.endswith("]"):
            host = host.rpartition(":")[0] or host
        if host not in self._hosts:
            raise Refusal(400, "Invalid host header")

    async def _grant(self, scope: Scope) -> Grant:
        shown = [value.strip(_BLANKS) for name, value in scope["headers"] if name == KEY_HEADER]
        grant = self._keys.grant(shown[0]) if len(shown) == 1 and shown[0] else None
        if grant is None:
            client = scope.get("client") or ("", 0)
            wait = self._wrong.wait(client[0]) if shown and shown[0] else None
            if wait is not None:
                raise refusals.rate_exceeded(wait)
            raise Refusal(401, refusals.INVALID_KEY)
        wait = await self._wait(grant)
        if wait is not None:
            raise refusals.rate_exceeded(wait)
        return grant

    async def _wait(self, grant: Grant) -> int | None:
        if not self._rates.shared:
            return self._rates.wait(grant.key_id, grant.plan.requests_per_minute)
        from anyio.to_thread import run_sync

        return await run_sync(self._rates.wait, grant.key_id, grant.plan.requests_per_minute)


def _check_size(scope: Scope) -> None:
    url = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    if url > MAX_URL:
        raise Refusal(414, URL_TOO_LONG, {"Connection": "close"})
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS or sum(len(n) + len(v) for n, v in headers) > MAX_HEADER_BYTES:
        raise Refusal(431, HEADERS_TOO_LARGE, {"Connection": "close"})


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ") != b"")
        for name, value in scope["headers"]
    )


def _log_access(exchange: _Exchange) -> None:
    if not _access.isEnabledFor(logging.INFO):
        return
    scope = exchange.scope
    grant = scope.get("state", {}).get("grant")
    # The query stays out: a key may stand there by mistake.
    _access.info(
        "%s %s %d %.1f ms key=%s id=%s",
        refusals.shown(scope["method"]),
        refusals.shown(scope["path"], 400),
        exchange.status,
        (time.perf_counter() - exchange.begun) * 1e3,
        grant.key_id if isinstance(grant, Grant) else "-",
        exchange.request_id,
    )
