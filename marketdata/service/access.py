"""The guard before every route: host, key, a place in the queue, and the rate of the plan."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import time
from collections.abc import Hashable, Iterable, Sequence
from email.utils import formatdate
from itertools import count

from starlette.exceptions import HTTPException

from marketdata.service import errors
from marketdata.service.app import create_app
from marketdata.service.auth import Grant, Keys
from marketdata.service.dependencies import Parts
from marketdata.service.exchange import Exchange
from marketdata.service.fair_queue import FairQueue
from marketdata.service.rate_limit import RateLimiter

# Paths that need a key, and beginnings of such paths.
WITH_KEY, BELOW = (b"/v1", b"/coverage"), (b"/v1/", b"/days/")
# Names in the Host header of a service that only this machine reaches: no page of another site has such a name.
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
# Wrong keys that a network may send in a minute, and networks of which they are counted.
WRONG_KEYS, _NETWORKS = 300, 4_096
_log = logging.getLogger("marketdata.service")
_access = logging.getLogger("marketdata.service.access")
# Ids count from a random start: drawing each one would release the interpreter lock, which another thread then holds.
_IDS = count(secrets.randbits(63))
# Clients that know the route of whole days see by the last one that this service has it.
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"), (b"x-days", b"1")]


class Access:
    """Answers requests by the application, for Host headers with a name of ``hosts`` (None: any)."""

    def __init__(
        self, parts: Parts, keys: Keys, *, hosts: Iterable[str] | None = None, trusted_proxies: Sequence[str] = ()
    ) -> None:
        self.parts, self.keys = parts, keys
        self._app = create_app(parts)
        self._wrong_keys = RateLimiter(most=_NETWORKS)
        self._hosts = None if hosts is None else frozenset(h.lower() for h in hosts)
        self._proxies = [ipaddress.ip_network(proxy) for proxy in trusted_proxies]
        self._always = [*_ALWAYS, (b"x-simulated", b"true")] if parts.source.simulated else _ALWAYS
        self.queue = FairQueue()
        # The page that is read ahead, if there is one.
        self._ahead: dict[Hashable, asyncio.Task[None]] = {}

    async def respond(self, head: bytes, address: str) -> tuple[bytes, bool]:
        """The answer to the head of a request, and whether the connection goes on."""
        begun, exchange = time.perf_counter(), Exchange(address, f"{next(_IDS):016x}")
        try:
            await self._answer(exchange, head)
        except HTTPException as problem:
            refusal = errors.response(problem.status_code, problem.detail, problem.headers)
            await refusal(exchange.scope, exchange.receive, exchange.send)
        except Exception:
            _log.exception("request %s failed", exchange.id)
            exchange.messages.clear()
            await errors.response(500, errors.FAILED)(exchange.scope, exchange.receive, exchange.send)
        if _access.isEnabledFor(logging.INFO):
            grant = exchange.scope.get("state", {}).get("grant")
            # The query stays out: a key may be in it by mistake.
            _access.info(
                "%s %s %d %.1f ms key=%s id=%s",
                errors.shown(exchange.method),
                errors.shown(exchange.path.decode("latin-1"), 400),
                exchange.messages[0]["status"],
                (time.perf_counter() - begun) * 1e3,
                "-" if grant is None else grant.key_id,
                exchange.id,
            )
        # The date is that of the service's clock, not the machine's.
        date = formatdate(self.parts.clock(), usegmt=True).encode()
        return exchange.answer([*self._always, (b"date", date)]), exchange.goes_on

    async def _answer(self, exchange: Exchange, head: bytes) -> None:
        address, problem = exchange.client, None
        try:
            exchange.read(head)
            if self._proxies:
                address = self._address(exchange)
            if self._hosts is not None:
                hosts = exchange.headers.get(b"host", ())
                host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
                if (host if host.endswith("]") else host.rpartition(":")[0] or host) not in self._hosts:
                    raise HTTPException(400, "Invalid host header")
        except HTTPException as found:
            problem = found
        needs_key = problem is None and (exchange.path in WITH_KEY or exchange.path.startswith(BELOW))
        given = exchange.headers.get(b"x-api-key", ()) if needs_key else ()
        key = given[0] if len(given) == 1 else b""
        grant = self.keys.find(key) if key else None
        # Refusals wait for their turn too: a client that repeats them without pause delays itself.
        exchange.client = address if grant is None else f"key {grant.key_id}"
        await self.queue.acquire(exchange.client)
        try:
            if problem is not None:
                raise problem
            if needs_key:
                # It may have been revoked meanwhile. A changed file is read beside the loop.
                if self.keys.is_stale:
                    await asyncio.to_thread(self.keys.refresh)
                grant = self.keys.find(key) if key else None
                if grant is None:
                    wait = self._wrong_keys.wait(network_of(address), WRONG_KEYS) if given and given[0] else None
                    raise HTTPException(401, errors.INVALID_KEY) if wait is None else errors.rate_exceeded(wait)
                exchange.scope["state"] = {"grant": grant, "exchange": exchange}
                wait = self.parts.rate_limiter.wait(grant.key_id, grant.plan.requests_per_minute)
                if wait is not None:
                    raise errors.rate_exceeded(wait)
            page = exchange.page
            if page in self._ahead:
                await asyncio.wait([self._ahead[page]])
            kept = self.parts.pages.cache.find(page)
            # The archive may be slow to say whether it has newer points.
            if kept is not None and await asyncio.to_thread(self.parts.pages.is_current, kept, self.parts.clock()):
                assert grant is not None
                grant.plan.check(kept.view, kept.resolution, kept.start, self.parts.clock())
                await kept.response(exchange.scope, exchange.receive, exchange.send)
            else:
                await self._app(exchange.scope, exchange.receive, exchange.send)
        finally:
            # Before the answer is sent, as a client may be slow to read.
            self.queue.release(exchange.client)
        if grant is not None and b"cursor=" in exchange.scope["query_string"]:
            self._read_ahead(exchange, grant)

    def _read_ahead(self, exchange: Exchange, grant: Grant) -> None:
        """While the client of a pagination reads, and nobody waits, have its next page made: one at a time."""
        kept = self.parts.pages.cache.find(exchange.page)
        if kept is None or kept.following is None or self.queue.in_flight or self._ahead:
            return
        following = exchange.following(kept.following)
        if self.parts.pages.cache.find(following.page) is None:
            following.scope["state"] = {"grant": grant, "exchange": following}
            self._ahead[following.page] = asyncio.create_task(self._make(following))

    async def _make(self, exchange: Exchange) -> None:
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except Exception as problem:
            # It is made again, and fails again, when it is asked for.
            _log.debug("a page could not be read ahead: %r", problem)
        finally:
            self._ahead.clear()

    def _address(self, exchange: Exchange) -> str:
        """The address of a client: behind trusted proxies the last that is none of theirs."""
        named = b",".join(exchange.headers.get(b"x-forwarded-for", ())).decode("latin-1").split(",")
        hops = [exchange.client, *(hop.strip() for hop in reversed(named) if hop.strip())]
        return next((hop for hop in hops if not self._is_proxy(hop)), hops[-1])

    def _is_proxy(self, address: str) -> bool:
        found = ip_of(address)
        return found is not None and any(found in network for network in self._proxies)


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text says, without the zone of an IPv6 one; None if it says none."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def network_of(address: str) -> str:
    """The network of a client: an IPv6 client may choose any address with the same first 64 bits."""
    found = ip_of(address)
    if found is None or found.version == 4 or found.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))
