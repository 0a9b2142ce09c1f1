"""The markets of a pull: named, of an event or a series, found by a text, or all that the service lists."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from marketdata.archive import records
from marketdata.archive.coverage.intervals import CoverageRecord
from marketdata.archive.coverage.policy import ServerTime
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.arguments import names
from marketdata.times import SECOND

# How long a listing can be used again, by the server's clock.
LISTED_AGAIN = 600 * SECOND
# The view under which coverage has the time of each listing.
_DISCOVERY = "discovery"
# The ways to choose markets, as messages name them.
_WAYS = "markets=, event=, series=, search=, file= and all_markets=True"


class Selection:
    """Markets chosen in exactly one way (else a ConfigError), as the service lists them; their records are stored.

    The ways are the arguments of `Archive.pull`; None for those that were not chosen.
    """

    def __init__(self, store: ArchiveStore, client: Any, **given: Any) -> None:
        if not hasattr(client, "iter_columns"):
            raise ConfigError(f"client is {type(client).__name__}; pass md.Client(base_url, api_key).")
        ways = {way: value for way, value in given.items() if value is not None}
        if len(ways) != 1:
            found = f"these are {', '.join(ways)}" if ways else "there is none"
            raise ConfigError(f"pull needs exactly one of {_WAYS}; {found}.")
        ((way, value),) = ways.items()
        if isinstance(value, str) and not value:
            raise ConfigError("names nothing; all_markets=True takes every market.", argument=way, value="")
        self._store = store
        self._client = client
        self._way = way
        self._value: Any = value
        if way in ("markets", "file"):
            self._value = names("markets", value) if way == "markets" else list(dict.fromkeys(names_in(value)))
            if not self._value:
                problem = "names nothing; pass an id or slug as text, or a list of them."
                raise ConfigError(problem, argument=way, value=value)

    @property
    def is_cached(self) -> bool:
        """Whether the archive stores when it was listed."""
        return self._way in ("event", "series")

    def ids(self, clock: Callable[[], ServerTime], *, refresh: bool = False) -> list[str]:
        """Ids of the markets, unknown names unchanged; NotFoundError if none is listed; ``refresh`` lists anew."""
        if self._way in ("markets", "file"):
            return self._named()
        if self._way in ("search", "all_markets"):
            found = self._listed({"search": self._value} if self._way == "search" else {})
        else:
            events = [self._value] if self._way == "event" else self._events(clock, refresh=refresh)
            found = [m for event in events for m in self._markets(event, clock, refresh=refresh)]
        if not found:
            what = "no market" if self._way == "all_markets" else f"no market of {self._way}={self._value!r}"
            argument = self._way if self._way == "search" else "event"
            hint = "client.markets() shows slugs and questions." if self._way == "search" else _SLUGS
            raise NotFoundError(f"The service lists {what}.", argument=argument, hint=hint)
        return list(dict.fromkeys(found))

    def _named(self) -> list[str]:
        markets, events, names = self._store.catalog["markets"], self._store.catalog["events"], self._value
        absent = [name for name in names if markets.find(name) is None]
        if absent:
            found = [records.read("markets", records.plain(row)) for row in self._client.market_records(absent)]
            markets.upsert(found)
            events.upsert(records.derive("events", found, markets.records(), events.records()))
        known = [(name, markets.find(name)) for name in names]
        return list(dict.fromkeys(str(record["id"]) if record is not None else name for name, record in known))

    def _listed(self, filters: Mapping[str, Any], event: str | None = None) -> list[str]:
        """Ids of the markets that the service lists; their records are stored."""
        found = [records.read("markets", row) for row in records.rows_of(self._client.markets(**filters))]
        named = [{**m, "event_slug": m.get("event_slug") or event} for m in found]
        events = self._store.catalog["events"]
        self._store.catalog["markets"].upsert(named)
        derived = records.derive("events", [dict(m) for m in named])
        events.upsert(e for e in derived if events.find(e["id"]) is None and events.find(str(e["slug"])) is None)
        return [str(m["id"]) for m in named]

    def _events(self, clock: Callable[[], ServerTime], *, refresh: bool) -> list[str]:
        catalog, series = self._store.catalog["events"], self._value

        def listed() -> list[str]:
            found = [records.read("events", row) for row in records.rows_of(self._client.events(series_slug=series))]
            catalog.upsert([{**e, "series_slug": e.get("series_slug") or series} for e in found])
            return [str(e["id"]) for e in found]

        self._list(f"series:{series}", listed, clock, refresh=refresh)
        return [str(e["slug"]) for e in catalog.records() if e.get("series_slug") == series and e.get("slug")]

    def _markets(self, event: str, clock: Callable[[], ServerTime], *, refresh: bool) -> list[str]:
        self._list(f"event:{event}", lambda: self._listed({"event_slug": event}, event), clock, refresh=refresh)
        return [str(m["id"]) for m in self._store.catalog["markets"].records() if m.get("event_slug") == event]

    def _list(
        self, what: str, listed: Callable[[], list[str]], clock: Callable[[], ServerTime], *, refresh: bool
    ) -> None:
        """List anew, unless it was a short while ago; that there is nothing is not remembered."""
        known = self._store.coverage.records(_DISCOVERY, what)
        if (refresh or not any(is_fresh(p.fetched_at, clock().now) for p in known)) and listed():
            record = CoverageRecord(0, 1, CoverageState.FINAL, None, clock().now, 0)
            self._store.coverage.append((_DISCOVERY, what), record)


# The hint where no event or series has the name.
_SLUGS = "client.events() and client.series() show the slugs."


def is_fresh(listed_at: int, now: int) -> bool:
    """Whether a listing can be used again, by the server's clock [microseconds]."""
    # Time may seem to go back: a Date has whole seconds, and servers behind one address may differ by some.
    return abs(now - listed_at) < LISTED_AGAIN


def names_in(file: Any) -> list[str]:
    """Ids and slugs of a text file, one a line; ``#`` begins a comment, ``-`` is the standard input."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"cannot be read: {reason}.", argument="file", value=os.fspath(file)) from None
    # A comment begins a line, or follows a blank: an id may hold the sign itself.
    lines = (f" {line}".partition(" #")[0].strip() for line in text.replace("\t", " ").splitlines())
    return [line for line in lines if line]
