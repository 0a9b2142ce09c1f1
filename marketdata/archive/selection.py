"""The markets of a pull: named, of an event or a series, found by a text, or all that the service lists."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from marketdata.archive import records
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.arguments import names


class Selection:
    """Markets chosen in exactly one way (else a ConfigError), as the service lists them; their records are stored.

    The ways are the arguments of `Archive.pull`; None for those that were not chosen.
    """

    def __init__(self, store: ArchiveStore, client: Any, **ways: Any) -> None:
        if not hasattr(client, "iter_columns"):
            raise ConfigError(f"client is {type(client).__name__}; pass md.Client(base_url, api_key).")
        given = {way: value for way, value in ways.items() if value is not None}
        if len(given) != 1:
            allowed = "markets=, event=, series=, tags=, search=, file= and all_markets=True"
            problem = f"these are {', '.join(given)}" if given else "there is none"
            raise ConfigError(f"pull needs exactly one of {allowed}; {problem}.")
        ((self._way, value),) = given.items()
        if isinstance(value, str) and not value:
            raise ConfigError("names nothing; all_markets=True takes every market.", argument=self._way, value="")
        self._store, self._client, self._value = store, client, value
        if self._way in ("markets", "tags", "file"):
            self._value = names(self._way, value) if self._way != "file" else list(dict.fromkeys(names_in(value)))
            if not self._value:
                problem = "names nothing; pass an id or slug as text, or a list of them."
                raise ConfigError(problem, argument=self._way, value=value)

    def ids(self) -> list[str]:
        """Ids of the markets, unknown names unchanged; NotFoundError if the service lists none."""
        if self._way in ("markets", "file"):
            return self._named()
        if self._way == "series":
            listed = [market for slug in self._listed_events() for market in self._listed(event_slug=slug)]
        elif self._way == "all_markets":
            listed = self._listed()
        else:
            listed = self._listed(**{"event_slug" if self._way == "event" else self._way: self._value})
        if not listed:
            what = "no market" if self._way == "all_markets" else f"no market of {self._way}={self._value!r}"
            argument = self._way if self._way in ("search", "tags") else "event"
            hints = {"search": "client.markets() shows slugs and questions.", "tags": "client.tags() shows the tags."}
            hint = hints.get(self._way, "client.events() and client.series() show the slugs.")
            raise NotFoundError(f"The service lists {what}.", argument=argument, hint=hint)
        return list(dict.fromkeys(listed))

    def _named(self) -> list[str]:
        markets, events, names = self._store.catalog["markets"], self._store.catalog["events"], self._value
        absent = [name for name in names if markets.find(name) is None]
        if absent:
            fetched = [records.read("markets", records.plain(row)) for row in self._client.market_records(absent)]
            markets.upsert(fetched)
            events.upsert(records.derive("events", fetched, markets.records(), events.records()))
        stored = [(name, markets.find(name)) for name in names]
        return list(dict.fromkeys(str(record["id"]) if record is not None else name for name, record in stored))

    def _listed(self, **filters: Any) -> list[str]:
        """Ids of the markets that the service lists; their records are stored."""
        rows, slug = records.rows_of(self._client.markets(**filters)), filters.get("event_slug")
        listed = [records.read("markets", row) for row in rows]
        listed = [{**m, "event_slug": m.get("event_slug") or slug} for m in listed]
        events = self._store.catalog["events"]
        self._store.catalog["markets"].upsert(listed)
        derived = records.derive("events", listed)
        events.upsert(e for e in derived if events.find(e["id"]) is None and events.find(str(e["slug"])) is None)
        return [str(m["id"]) for m in listed]

    def _listed_events(self) -> list[str]:
        """Slugs of the events of the series that the service lists; their records are stored."""
        rows = records.rows_of(self._client.events(series_slug=self._value))
        events = [records.read("events", row) for row in rows]
        events = [{**e, "series_slug": e.get("series_slug") or self._value} for e in events]
        self._store.catalog["events"].upsert(events)
        return [str(e["slug"]) for e in events if e.get("slug")]


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
