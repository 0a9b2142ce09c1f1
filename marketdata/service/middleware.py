"""Checks of every request before a route: size, host, key, a fair queue, and the rate of the plan."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import count
from typing import Any

from starlette.exceptions import HTTPException

from marketdata.service import errors
from marketdata.service.auth import Grant, Keys
from marketdata.service.protocol import HEADERS_TOO_LARGE, MAX_URL, URL_TOO_LONG
from marketdata.service.rate_limit import FailedAttempts, RateLimiter

MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
MAX_PARAMETERS = 64
TOO_MANY_PARAMETERS = f"The URL has more than {MAX_PARAMETERS} parameters."
# Requests that wait or run, of all clients together.
MAX_IN_FLIGHT = 2048
# Requests that run at once, of all clients and of one that is alone. Pages take Python and numpy, so more than cores
# only wait for each other; a few more, because some wait for a disk or an object store.
SLOTS = 6
CLIENT_SLOTS = 2
KEY_HEADER = b"x-api-key"
# Not part of the value of a header (RFC 9110, 5.5).
_BLANKS = b" \t"
# Paths that need a key, beside those below /v1.
WITH_KEY = (b"/v1", b"/coverage")
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_log = logging.getLogger("marketdata.service")
_access = logging.getLogger("marketdata.service.access")
# From a random start; counted, as drawing each one releases the interpreter lock, which another thread then holds.
_IDS = count(secrets.randbits(63))
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class FairQueue:
    """A queue in which clients take turns, however many requests one of them has waiting.

    ``slots``: requests that run at once; ``client_slots``: those of one client while no other runs one, else one.
    ``room``: requests that wait or run; beyond it the client with the most waiting loses its newest one.
    """

    def __init__(self, slots: int = SLOTS, client_slots: int = CLIENT_SLOTS, room: int = MAX_IN_FLIGHT) -> None:
        self._slots = slots
        self._client_slots = client_slots
        self._room = room
        self._running: Counter[str] = Counter()
        # Clients with waiting requests, in the order of their turns.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.in_flight = 0

    async def acquire(self, client: str) -> None:
        """Wait for a slot; HTTPException 503 if there is no room for another waiting request of this client."""
        if self._may_start(client):
            self._running[client] += 1
            self.in_flight += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self.in_flight += 1
        if self.in_flight > self._room:
            busiest = max(self._waiting, key=lambda name: (len(self._waiting[name]), name == client))
            newest = self._waiting[busiest][-1]
            self._leave(busiest, newest)
            newest.set_exception(errors.overloaded())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(client, turn)
            elif turn.exception() is None:
                self.release(client)
            raise

    def release(self, client: str) -> None:
        """Free a slot for the next client: the first of those with the fewest running."""
        self.in_flight -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        if client in self._waiting:
            self._waiting.move_to_end(client)
        while self._waiting:
            name = min(self._waiting, key=self._running.__getitem__)
            if not self._may_start(name):
                return
            turn = self._waiting[name][0]
            self._waiting.move_to_end(name)
            self._leave(name, turn)
            if not turn.cancelled():
                self.in_flight += 1
                self._running[name] += 1
                turn.set_result(None)

    def _may_start(self, client: str) -> bool:
        running, own = self._running.total(), self._running[client]
        return running < self._slots and own < (self._client_slots if own == running else 1)

    def _leave(self, client: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(client)
        if turns and turn in turns:
            self.in_flight -= 1
            turns.remove(turn)
            if not turns:
                del self._waiting[client]


@dataclass(slots=True)
class _Exchange:
    scope: Scope
    receive: Receive
    send_on: Send
    queue: FairQueue
    # Headers of every answer.
    headers: list[tuple[bytes, bytes]]
    request_id: str
    begun: float = field(default_factory=time.perf_counter)
    status: int = 0
    client: str | None = None

    def release_slot(self) -> None:
        """Before sending, as a client may be slow to read."""
        if self.client is not None:
            self.queue.release(self.client)
            self.client = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.release_slot()
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        await self.send_on(message)

    async def refuse(self, problem: HTTPException) -> None:
        await errors.response(problem.status_code, problem.detail, problem.headers)(self.scope, self.receive, self.send)


class AccessMiddleware:
    """Passes valid requests to an application, for Host headers with a name of ``hosts`` (None: any)."""

    def __init__(
        self,
        app: App,
        *,
        keys: Keys,
        rate_limiter: RateLimiter,
        hosts: Iterable[str] | None = None,
        simulated: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._clock = clock
        self._keys = keys
        self._rate_limiter = rate_limiter
        self._failed = FailedAttempts()
        self._hosts = None if hosts is None else frozenset(h.lower() for h in hosts)
        self._always = [*_ALWAYS, (b"x-simulated", b"true")] if simulated else _ALWAYS
        self.queue = FairQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        request_id = f"{next(_IDS):016x}"
        # The date is not that of the server library, whose clock is the machine's.
        date = formatdate(self._clock(), usegmt=True).encode()
        headers = [*self._always, (b"x-request-id", request_id.encode()), (b"date", date)]
        exchange = _Exchange(scope, receive, send, self.queue, headers, request_id)
        try:
            await self._admit(exchange)
            await self._app(scope, receive, exchange.send)
        except HTTPException as problem:
            await exchange.refuse(problem)
        except Exception:
            _log.exception("request %s failed", request_id)
            if not exchange.status:
                await exchange.refuse(HTTPException(500, errors.FAILED))
        finally:
            exchange.release_slot()
            _log_access(exchange)

    async def _admit(self, exchange: _Exchange) -> None:
        scope = exchange.scope
        # The raw path stays encoded: what the server decoded cannot tell "a%2Fb" from "a/b".
        raw, query = scope.get("raw_path") or scope["path"].encode(), scope.get("query_string", b"")
        scope["path"] = raw.decode("latin-1")
        size, named = 0, dict[bytes, list[bytes]]()
        for name, value in scope["headers"][: MAX_HEADERS + 1]:
            size += len(name) + len(value)
            named.setdefault(name, []).append(value.strip(_BLANKS))
        lengths = named.get(b"content-length", ())
        if b"transfer-encoding" in named or any(length.strip(b"0") for length in lengths):
            # The body of a GET is never read: the connection is closed instead.
            exchange.headers.append((b"connection", b"close"))
        if len(raw) + len(query) > MAX_URL:
            raise HTTPException(414, URL_TOO_LONG, {"Connection": "close"})
        if query.count(b"&") >= MAX_PARAMETERS:
            raise HTTPException(400, TOO_MANY_PARAMETERS)
        if len(scope["headers"]) > MAX_HEADERS or size > MAX_HEADER_BYTES:
            raise HTTPException(431, HEADERS_TOO_LARGE, {"Connection": "close"})
        if self._hosts is not None:
            hosts = named.get(b"host", ())
            host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
            if (host if host.endswith("]") else host.rpartition(":")[0] or host) not in self._hosts:
                raise HTTPException(400, "Invalid host header")
        address = (scope.get("client") or ("", 0))[0]
        if raw in WITH_KEY or raw.startswith(b"/v1/"):
            await self._identify(exchange, named, address)
        else:
            await self.queue.acquire(address)
            exchange.client = address

    async def _identify(self, exchange: _Exchange, named: dict[bytes, list[bytes]], address: str) -> None:
        """Wait for a slot, and give the application the rights of the key; HTTPException 401 or 429."""
        given = named.get(KEY_HEADER, ())
        key = given[0] if len(given) == 1 else b""
        await self._refresh_keys()
        grant = self._keys.find(key) if key else None
        # Refusals wait for their turn too: a client that repeats them without pause delays itself.
        client = address if grant is None else f"key {grant.key_id}"
        await self.queue.acquire(client)
        exchange.client = client
        # The key may have been revoked while it waited.
        if grant is not None:
            await self._refresh_keys()
            grant = self._keys.find(key)
        if grant is None:
            wait = self._failed.wait(address) if given and given[0] else None
            raise HTTPException(401, errors.INVALID_KEY) if wait is None else errors.rate_exceeded(wait)
        exchange.scope["state"] = {**exchange.scope.get("state", {}), "grant": grant}
        wait = self._rate_limiter.wait(grant.key_id, grant.plan.requests_per_minute)
        if wait is not None:
            raise errors.rate_exceeded(wait)

    async def _refresh_keys(self) -> None:
        """Read changed keys beside the loop; other requests pass with the keys before."""
        if self._keys.is_stale:
            await asyncio.to_thread(self._keys.refresh)


def _log_access(exchange: _Exchange) -> None:
    if not _access.isEnabledFor(logging.INFO):
        return
    scope = exchange.scope
    grant = scope.get("state", {}).get("grant")
    # The query stays out: a key may be in it by mistake.
    _access.info(
        "%s %s %d %.1f ms key=%s id=%s",
        errors.shown(scope["method"]),
        errors.shown(scope["path"], 400),
        exchange.status,
        (time.perf_counter() - exchange.begun) * 1e3,
        grant.key_id if isinstance(grant, Grant) else "-",
        exchange.request_id,
    )
