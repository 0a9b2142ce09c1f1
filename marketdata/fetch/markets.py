"""Known markets: their tokens, when they were active, and slugs similar to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from marketdata.errors import (
    EVENT_HINT,
    AuthenticationError,
    MarketDataError,
    NotFoundError,
    RateLimitError,
    RequestError,
    ServerError,
    event_text,
)
from marketdata.fetch.source import Source
from marketdata.fetch.threads import run_all
from marketdata.fetch.windows import MarketInfo, Window
from marketdata.points.life import of_record
from marketdata.vendors import VENUES

_MOST_MEMBERS = 100  # of an event that are named in an error


class Markets:
    """Looks each market up once; a service without discovery is no obstacle."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._infos: dict[str, MarketInfo] = {}
        self._missing: dict[str, NotFoundError] = {}

    def known(self, window: Window) -> MarketInfo | None:
        """The record of the market of a window as known without a request; empty for a token."""
        return self._infos.get(window.id) if window.kind == "market" else MarketInfo()

    def remember(self, record: Any) -> None:
        """Take in a record that a listing brought."""
        info = _info(record)
        for name in ("id", "slug") if info.tokens else ():
            if isinstance(record.get(name), str | int):
                self._infos[str(record[name])] = info

    def look_up(self, id_or_slug: str) -> MarketInfo:
        """The record of a market by the service, empty if it has none; raises only if it cannot be reached."""
        if id_or_slug not in self._infos:
            try:
                self._infos[id_or_slug] = _info(self._source.record(id_or_slug))
            except (AuthenticationError, RateLimitError, ServerError):
                raise
            except RequestError as error:
                # The market is unknown, the route is missing, or the key may not use it: the history request will tell
                # which.
                self._infos[id_or_slug] = MarketInfo()
                is_venue = self._source.service.short in VENUES  # which has no other way to its histories
                if isinstance(error, NotFoundError) and (is_venue or error.detail.endswith(f": {id_or_slug}")):
                    self._missing[id_or_slug] = error
        return self._infos[id_or_slug]

    def look_up_all(self, ids: Iterable[str]) -> dict[str, MarketInfo]:
        """The records of many, concurrently; NotFoundError for the first that the service does not have."""
        names = list(dict.fromkeys(ids))
        unknown = [name for name in names if name not in self._infos]
        if (by := self._source.service.names_filter) is not None and len(unknown) > 1:
            for record in self._source.records("markets", {by: ",".join(unknown)}):
                self.remember(record)
            unknown = [name for name in unknown if name not in self._infos]
        run_all(self._source, [partial(self.look_up, name) for name in unknown])
        for name in names:
            if (error := self._missing.pop(name, None)) is not None:
                del self._infos[name]
                self.name_near_ones(error, [name])
                raise error
        return {name: self._infos[name] for name in names}

    def name_near_ones(self, error: NotFoundError, names: Iterable[str]) -> None:
        """Add the markets of the event that one of these names is of, or similar slugs, to an error about it."""
        name = next((n for n in names if n in error.detail), None)
        if name is None:
            return
        if self._source.service.short not in VENUES and (members := self._members(name)):
            error.markets, error.hint = members, EVENT_HINT
            error.args = (f"{error.problem} {event_text(name, members)} {error.hint}",)
        elif near := self._near(name):
            error.args = (f"{error.problem} Similar: {', '.join(map(repr, near))}. {error.hint}",)

    def _members(self, name: str) -> list[str]:
        """The slugs of the markets of an event; none if it is none, or they cannot be listed."""
        for slug in dict.fromkeys([name, name.lower(), name.upper()]):
            with suppress(MarketDataError):
                listed = self._source.records("markets", {"event_slug": slug}, max_rows=_MOST_MEMBERS)
                if found := [str(one.get("slug") or one["id"]) for one in listed if one.get("event_slug") == slug]:
                    return found
        return []

    def _near(self, name: str) -> list[str]:
        """Slugs similar to an unknown name, nearest first; none if they cannot be listed."""
        with suppress(MarketDataError, AttributeError):
            for listed in self._source.similar(name):
                slugs = {str(slug).lower(): str(slug) for slug in listed}
                if matches := difflib.get_close_matches(name.strip().lower(), slugs, n=3, cutoff=0.75):
                    return [slugs[slug] for slug in matches]
        return []


def _info(record: Any) -> MarketInfo:
    fields: dict[str, Any] = record if isinstance(record, dict) else {}
    try:
        ids = tuple(str(token["id"]) for token in fields.get("tokens") or ())
    except (KeyError, TypeError):
        ids = ()
    # The end date is a deadline, and a market may be traded after it.
    is_traded = fields.get("closed_at") is None and fields.get("status") == "active"
    life = of_record(fields)
    ends = [] if is_traded else [life.ends_at, life.closed_at]
    end = max((one for one in ends if one is not None), default=None)
    volumes = [fields.get(name) for name in ("volume", "volume_fp") if fields.get("status") in ("closed", "resolved")]
    volume = next((float(one) for one in volumes if isinstance(one, int | float)), 0.0)
    return MarketInfo(ids, life.starts_at if fields.get("start_date") else None, end, volume)
