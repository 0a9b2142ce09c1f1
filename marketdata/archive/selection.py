"""The markets of a pull: named, of an event or a series, found by a text, or all that the service lists."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from marketdata.adapters.names import names
from marketdata.addresses import event_in
from marketdata.archive import records
from marketdata.archive.feed import Feed
from marketdata.archive.record_columns import Record
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError, NotFoundError
from marketdata.filters import LISTINGS
from marketdata.points.records import RecordKind, names_of

_FILTERS = LISTINGS["markets"]


class Selection:
    """Markets that are named, listed in a file, all, or those of a listing with filters (else a ConfigError).

    The arguments are those of `Archive.pull`, None if not given. Records of the markets are stored.
    """

    def __init__(
        self,
        store: ArchiveStore,
        feed: Feed,
        markets: Any = None,
        file: Any = None,
        *,
        all_markets: bool = False,
        filters: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._filters = {name: value for name, value in filters.items() if value is not None}
        named = {"markets": markets, "file": file, "all_markets": all_markets or None}
        given = {name: value for name, value in named.items() if value is not None}
        _check_one(given, self._filters)
        self._store, self._feed = store, feed
        self._way, value = next(iter((given or self._filters).items()))
        self._ids: dict[str, str] = {}  # of markets that were given by other names than their slugs
        # A frame of a listing has the records.
        has_records = self._way == "markets" and {"market_id", "token_ids"} <= {*getattr(value, "columns", ())}
        self._records = value if has_records else None
        if "tags" in self._filters:
            self._filters["tags"] = _several("tags", self._filters["tags"])
        self._names = _several(self._way, _lines(value) if file is not None else value) if self.is_named else []

    @property
    def is_named(self) -> bool:
        """Whether each market was named."""
        return self._way in ("markets", "file")

    def ids(self) -> list[str]:
        """Ids of the markets, unknown names unchanged; NotFoundError if the service lists none."""
        if self.is_named:
            return self._named()
        filters: list[dict[str, Any]] = [self._filters]
        if (series := self._filters.get("series_slug")) is not None:
            events = _read("events", self._feed.events(series_slug=series), series_slug=series)
            self._store.catalog["events"].upsert(events)
            others = {name: value for name, value in self._filters.items() if name != "series_slug"}
            filters = [{**others, "event_slug": event["slug"]} for event in events if event.get("slug")]
        listed = [market for one in filters for market in self._listed(one)]
        if not listed:
            chosen = ", ".join(f"{name}={value!r}" for name, value in self._filters.items())
            what = f"no market of {chosen}" if chosen else "no market"
            argument = self._way if self._way in ("search", "tags") else "event_slug"
            hints = {"search": "client.markets() shows slugs and questions.", "tags": "client.tags() shows the tags."}
            hint = hints.get(self._way, "client.events() and client.series() show the slugs.")
            raise NotFoundError(f"The service lists {what}.", argument=argument, hint=hint)
        return list(dict.fromkeys(listed))

    def _named(self) -> list[str]:
        markets, events = self._store.catalog["markets"], self._store.catalog["events"]
        if self._records is not None:
            self._store_records(_read("markets", self._records))
            self._records = None
        events_named = {name: event for name in self._names if (event := event_in(name)) is not None}
        for name, event in events_named.items():
            if len(members := self._listed({"event_slug": event})) != 1:
                raise NotFoundError.from_event(event, [str((markets.find(m) or {}).get("slug") or m) for m in members])
            self._ids[name.casefold()] = members[0]
        absent = [name for name in self._names if name.casefold() not in self._ids and markets.find(name) is None]
        if absent:
            fetched = [records.read("markets", records.plain(row)) for row in self._feed.market_records(absent)]
            markets.upsert(fetched)
            events.upsert(records.derive("events", fetched, markets.records(), events.records()))
            self._ids |= {name.casefold(): str(one["id"]) for one in fetched for name in names_of(one)}
            asked = {name.strip().casefold() for name in absent}
            if any(asked.isdisjoint(map(str.casefold, names_of(one))) for one in fetched):
                self._ids |= self._otherwise_named(
                    [name for name in absent if name.strip().casefold() not in self._ids]
                )
        found = ((name, name.strip().casefold(), markets.find(name)) for name in self._names)
        ids = (self._ids.get(bare, name) if one is None else str(one["id"]) for name, bare, one in found)
        return list(dict.fromkeys(ids))

    def _otherwise_named(self, names: list[str]) -> dict[str, str]:
        """The ids of markets that the service finds by a name that their record has not, such as that of an event."""
        out = {}
        for name in names:
            with suppress(NotFoundError):
                out[name.strip().casefold()] = str(self._feed.market(name)["id"])
        return out

    def _listed(self, filters: dict[str, Any]) -> list[str]:
        """Ids of the markets that the service lists; their records are stored."""
        listed = _read("markets", self._feed.markets(**filters), event_slug=filters.get("event_slug"))
        self._store_records(listed)
        return [str(m["id"]) for m in listed]

    def _store_records(self, listed: list[Record]) -> None:
        """Store the records of markets, and those of their events that are not known yet."""
        events = self._store.catalog["events"]
        self._store.catalog["markets"].upsert(listed)
        derived = records.derive("events", listed)
        events.upsert(e for e in derived if events.find(e["id"]) is None and events.find(str(e["slug"])) is None)


def _check_one(named: Mapping[str, Any], filters: Mapping[str, Any]) -> None:
    """ConfigError unless markets are chosen in one way, and by something."""
    if len(named) + bool(filters) != 1:
        allowed = f"markets=, file=, all_markets=True and the filters of client.markets ({'=, '.join(_FILTERS)}=)"
        given = [*named, *filters]
        problem = f"these are {', '.join(given)}" if given else "there is none"
        raise ConfigError(f"pull needs exactly one of {allowed}; {problem}.")
    for name, value in {**named, **filters}.items():
        if isinstance(value, str) and not value:
            raise ConfigError("names nothing; all_markets=True takes every market.", argument=name, value="")


def _several(argument: str, given: Any) -> list[str]:
    """The names of an argument; ConfigError if there are none."""
    if not (out := names(argument, given)):
        problem = "names nothing; pass an id or slug as text, or a list of them."
        raise ConfigError(problem, argument=argument, value=given)
    return out


def _read(kind: RecordKind, frame: Any, **known: str | None) -> list[Record]:
    """Records of a listing; ``known`` fields of all fill in what they lack."""
    rows = [records.read(kind, row) for row in records.rows_of(frame)]
    return [{**row, **{name: row.get(name) or value for name, value in known.items()}} for row in rows]


def _lines(file: Any) -> list[str]:
    """Ids and slugs of a text file, one a line; ``#`` begins a comment, ``-`` is the standard input."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"cannot be read: {reason}.", argument="file", value=os.fspath(file)) from None
    # A comment begins a line, or follows a blank: an id may hold the sign itself.
    lines = (f" {line}".partition(" #")[0].strip() for line in text.replace("\t", " ").splitlines())
    return [line for line in lines if line]
