"""What the public interfaces of venues have in common: no key, a rate for each host, and no plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, NotFoundError
from marketdata.fetch.http.rate_limit import pacer_for
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.plans import PlanLimits
from marketdata.times import SECOND
from marketdata.vendors import Service

T = TypeVar("T")


class Host(NamedTuple):
    """An address of a venue, and the requests a minute that are a polite share of what it allows."""

    address: str
    rate: int


class Listing(NamedTuple):
    """A page of records."""

    data: list[dict[str, Any]]
    next_cursor: str | None


class Venue:
    """A venue with some hosts, of which ``main`` has its histories; see `Source`. All sources share a host's pacer."""

    service: Service

    def __init__(
        self, hosts: Mapping[str, str], rates: Mapping[str, Host], main: str, *, allow_insecure: bool = False
    ) -> None:
        self._hosts = dict(hosts)
        self.to = {
            name: Transport(
                address,
                service=self.service,
                allow_insecure=allow_insecure,
                pacer=pacer_for(f"{name} {address}"),
            )
            for name, address in hosts.items()
        }
        for name, transport in self.to.items():
            if not transport.pacer.known:
                transport.pacer.allow(rates[name].rate)
        self._main = self.to[main]
        self.base_url, self.pacer = self._main.base_url, self._main.pacer
        self.limits = PlanLimits(requests_per_minute=rates[main].rate)
        self._records: dict[str, dict[str, Any]] = {}  # by each of their names
        self._lock = threading.Lock()

    @property
    def latency(self) -> float | None:
        """The smoothed time from request to answer [s]."""
        return self._main.latency

    @property
    def server_time(self) -> float | None:
        """The clock of the host of histories [Unix s]."""
        return self._main.server_time

    def usage(self) -> dict[str, Any]:
        """There is no plan; the rate is our own."""
        return {"plan": "public", "limits": {"requests_per_minute": self.limits.requests_per_minute}}

    def learn_limits(self) -> None:
        """Known from the start."""

    def close(self) -> None:
        """Close idle connections."""
        for transport in self.to.values():
            transport.close()

    def _known(self, name: str) -> dict[str, Any]:
        """The record of a market by a name that was seen before, without a request."""
        with self._lock:
            known = self._records.get(name)
        return self.record(name) if known is None else known

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market."""
        raise NotImplementedError

    def _keep(self, record: dict[str, Any], *names: str) -> dict[str, Any]:
        """Remember a record under its names."""
        tokens = (token["id"] for token in record["tokens"])
        with self._lock:
            self._records.update(
                dict.fromkeys([record["id"], record.get("slug") or record["id"], *tokens, *names], record)
            )
        return record

    def _now(self) -> int:
        """Microseconds by the venue's clock."""
        seconds = self.server_time
        return int((SYSTEM.time() if seconds is None else seconds) * SECOND)

    def _pages(self, ask: Callable[[str | None], Listing], what: str, key: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of each page of a listing, by its cursor, never by their number."""
        for page in paginate(
            ask, lambda page: (str(row.get(key)) for row in page.data), f"{what} of {self.service.name}"
        ):
            yield page.data


def unknown_market(name: str) -> NotFoundError:
    """The error for a name that the venue does not have."""
    text = f"Market not found: {name}"
    return NotFoundError(text, status=404, detail=text)


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, some at a time."""
    return (items[first : first + size] for first in range(0, len(items), size))


def distinct(rows: Iterable[dict[str, Any]], max_rows: int | None) -> list[dict[str, Any]]:
    """Records, each id once, the newest of two."""
    out: dict[str, dict[str, Any]] = {}
    if max_rows == 0:
        return []
    for row in rows:
        out[row["id"]] = row
        if len(out) == max_rows:
            break
    return [*out.values()]


def refuse_filters(given: Iterable[str], allowed: Iterable[str], kind: str, name: str) -> None:
    """ConfigError for a filter that a listing of a venue does not have."""
    allowed = [*allowed]
    for one in given:
        if one not in allowed:
            hint = f"They have {', '.join(allowed)}."
            raise ConfigError(f"is no filter of the {kind} of {name}.", argument=one, hint=hint)
