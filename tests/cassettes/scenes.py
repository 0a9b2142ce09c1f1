"""Small calls of a client to record, each with its service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import marketdata as md

BASE_URL = "http://127.0.0.1:8000"  # stands for wherever the service was when it was recorded
MARKET = "simulated-will-the-harbour-party-win-district-1-1-1-1"
TOKEN = "89512923866490206252825191957961265947975050410880946952035157345930033283349"
START, END = "2025-12-31T23:00:00Z", "2025-12-31T23:10:00Z"


@dataclass(frozen=True)
class Scene:
    """A call, how the client is made for it, and how the service."""

    call: Callable[[md.Client], Any]
    client: dict[str, Any] = field(default_factory=dict)
    service: dict[str, Any] = field(default_factory=dict)


def counted(name: str, *span: str) -> Callable[[md.Client], Any]:
    """A frame, and the report of what it cost."""

    def call(client: md.Client) -> Any:
        frame = getattr(client, name)(*span)
        return frame, frame.md.report

    return call


def discovery(client: md.Client) -> dict[str, Any]:
    """Every listing, and one market by its slug."""
    markets = client.markets(event_slug="simulated-ruritania-elections-1", page_size=1)
    return {
        "series": client.series(),
        "events": client.events(),
        "markets": markets,
        "market": client.market(MARKET),
        "tokens": client.tokens(MARKET),
        "tags": client.tags(),
    }


def usage(client: md.Client) -> tuple[Any, Any]:
    """The limits of the key, and the health of the service."""
    return client.usage(), client.health()


def two_healths(client: md.Client) -> list[Any]:
    """Two requests, where the plan allows one a minute."""
    return [client.health(), client.health()]


SCENES = {
    "test_books": Scene(counted("books", MARKET, START, END, "1m")),
    "test_token_books": Scene(counted("token_books", TOKEN, START, END, "10m")),
    "test_two_pages": Scene(counted("prices", MARKET, START, END, "1m"), {"page_limit": 10}),
    "test_discovery": Scene(discovery),
    "test_usage": Scene(usage),
    "test_plan_refuses": Scene(
        lambda c: c.books(MARKET, START, END, "1m"), service={"plans": {"hourly": {"resolutions": ["1h", "6h", "1d"]}}}
    ),
    "test_rate_limit": Scene(two_healths, service={"requests_per_minute": 1}),
}
