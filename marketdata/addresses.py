"""Names of markets and events in web addresses of venues, as people paste them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

_HOSTS = {"polymarket.com": "polymarket", "kalshi.com": "kalshi"}  # by the end of a host
_PAGE = "https://polymarket.com/event/"


class Named(NamedTuple):
    """What an address names: a market, an event, or any of a market, an event and a series of Kalshi."""

    venue: str
    kind: Literal["market", "event", "any"]
    name: str


def read(text: str) -> Named | None:
    """What the address of a page, or of an answer, of a venue names; None for another text."""
    bare = text.strip()
    if not any(end in bare.lower() for end in _HOSTS):
        return None
    try:
        parts = urlsplit(bare if "://" in bare else f"https://{bare}")
    except ValueError:
        return None
    host = (parts.netloc or "").rpartition("@")[2].partition(":")[0].lower()
    venue = next((venue for end, venue in _HOSTS.items() if host == end or host.endswith("." + end)), None)
    path = [unquote(part) for part in parts.path.split("/") if part]
    if venue is None or not path:
        return None
    if venue == "kalshi":
        return Named(venue, "any", _ticker(path, unquote(parts.fragment)).upper())
    slugs = parse_qs(parts.query).get("slug", [])
    for place, kind in (("event", "event"), ("events", "event"), ("market", "market"), ("markets", "market")):
        if place in path:
            inside = [part for part in path[path.index(place) + 1 :] if part not in ("slug", "keyset")]
            inside = [*inside, *slugs]
            if len(inside) == 1:
                return Named(venue, "event" if kind == "event" else "market", inside[0].lower())
            return Named(venue, "market", inside[-1].lower()) if inside else None
    return Named(venue, "event", path[-1].lower())  # such as /sports/nba/EVENT


def _ticker(path: Sequence[str], fragment: str) -> str:
    """The ticker in a path such as /markets/SERIES/words/EVENT, whose last part may be words or be missing."""
    if re.fullmatch(r"[A-Za-z0-9.]+-[A-Za-z0-9.-]+", fragment):
        return fragment
    places = ("markets", "events", "series")
    first = next((place for place, part in enumerate(path) if part in places), -1)
    inside = [part for part in path[first + 1 :] if part not in places]
    if len(inside) == 2 and not inside[1].lower().startswith(f"{inside[0].lower()}-"):
        return inside[0]
    return inside[-1] if inside else path[-1]


def name_in(text: str) -> str:
    """The name that an address of a venue names; an event of Polymarket stays an address, another text as it is.

    A slug may be both of an event and of one of its markets, so the address alone tells which is meant.
    """
    named = read(text)
    if named is None:
        return text
    return _PAGE + named.name if named.kind == "event" and named.venue == "polymarket" else named.name


def group_in(text: str) -> str:
    """The slug or ticker of an event or a series, which may be in an address."""
    named = read(text)
    return text if named is None else named.name


def event_in(name: str) -> str | None:
    """The slug of the event that an address of `name_in` is about; None for the name of a market."""
    return name.removeprefix(_PAGE) if name.startswith(_PAGE) else None
