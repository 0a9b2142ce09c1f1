"""Series, events, markets and tokens of a simulation, each marked as simulated."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from marketdata.points.columns import Token

SERIES = (
    ("simulated-ruritania-elections", "Simulated: Elections of Ruritania", "politics"),
    ("simulated-harbour-league", "Simulated: Harbour League", "sports"),
    ("simulated-florin", "Simulated: The florin, up or down", "economy"),
)
_EVENT_NAMES = {"politics": "District vote", "sports": "Match day", "economy": "Fixing week"}
EVENTS_PER_SERIES = 2
MANY_TOKENS = 210  # more than a page of the interface can have
_FIRST_ID = 0x100000  # ids rise with event and market: listings start with a pair of the first event
_TEAMS = ("Northport Comets", "Lakeview Owls", "Fenwick Rovers", "St. Alban's Kites", "Höganäs BK", "Port 17")
_PARTIES = ("Harbour Party", "Civic Union", "Green List", "Free Farmers")


class MarketSpec(NamedTuple):
    """Names and ids of a market."""

    key: tuple[int, ...]
    event: int
    market_id: str
    slug: str
    question: str
    labels: tuple[str, ...]
    token_ids: tuple[str, ...]

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Its tokens, as columns have them."""
        return tuple(Token(self.market_id, i, label) for i, label in zip(self.token_ids, self.labels, strict=True))


class EventSpec(NamedTuple):
    """An event and its series."""

    number: int
    slug: str
    title: str
    series: tuple[str, str, str]


def event_specs(events: int) -> list[EventSpec]:
    """The events, over three series; two adjacent events share a series."""
    out = []
    for number in range(events):
        series = SERIES[number // EVENTS_PER_SERIES % len(SERIES)]
        title = f"Simulated: {_EVENT_NAMES[series[2]]} {number + 1}"
        out.append(EventSpec(number, f"{series[0]}-{number + 1}", title, series))
    return out


def market_specs(event: EventSpec, markets: int, seed: int, *, three: bool, wide: bool) -> list[MarketSpec]:
    """Markets of an event: pairs, and on demand one of three tokens and one of 210."""
    out = [_spec(event, k, seed, *_pair(event, k)) for k in range(markets)]
    if three:
        question = f"Who leads after {_EVENT_NAMES[event.series[2]]} {event.number + 1}?"
        out.append(_spec(event, len(out), seed, question, ("Alder", "Birch & Sons", "Neither")))
    if wide:
        runners = tuple(f"Runner {n:03d}" for n in range(1, MANY_TOKENS + 1))
        question = f"Which of {MANY_TOKENS} runners wins the Ruritania marathon?"
        out.append(_spec(event, len(out), seed, question, runners))
    return out


def _pair(event: EventSpec, k: int) -> tuple[str, tuple[str, str]]:
    nth = event.number * 7 + k
    if event.series[2] == "politics":
        return f"Will the {_PARTIES[nth % 4]} win district {event.number + 1}-{k + 1}?", ("Yes", "No")
    if event.series[2] == "sports":
        home, away = _TEAMS[nth % 6], _TEAMS[(nth + 1 + k % 4) % 6]
        return f"{home} v {away}, match {event.number + 1}-{k + 1}", (home, away)
    return f"Florin up or down, week {event.number + 1}-{k + 1}?", ("Up", "Down")


def _spec(event: EventSpec, k: int, seed: int, question: str, labels: tuple[str, ...]) -> MarketSpec:
    name = f"{seed}/{event.number}/{k}"
    plain = "".join(c if c.isascii() and c.isalnum() else " " for c in question.lower())
    return MarketSpec(
        key=(seed, event.number, k),
        event=event.number,
        market_id=f"0x{_FIRST_ID + event.number * 1024 + k:06x}{_digest(name)[6:]}",
        slug=f"simulated-{'-'.join(plain.split())}"[:180] + f"-{event.number + 1}-{k + 1}",
        question=f"Simulated: {question}",
        labels=labels,
        # Numbers of 77 digits, as exchanges with 256-bit ids have.
        token_ids=tuple(str(10**76 + int(_digest(f"{name}/{label}"), 16) % (9 * 10**76)) for label in labels),
    )


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def market_record(spec: MarketSpec, event: EventSpec, **more: object) -> dict[str, object]:
    """A market as a row of a markets frame."""
    return {
        "market_id": spec.market_id,
        "slug": spec.slug,
        "question": spec.question,
        "description": "Made by marketdata.simulate; no such market exists.",
        "event_id": str(900_001 + event.number),
        "event_slug": event.slug,
        "event_title": event.title,
        "series_id": str(9_001 + SERIES.index(event.series)),
        "series_slug": event.series[0],
        "series_title": event.series[1],
        "token_ids": list(spec.token_ids),
        "token_labels": list(spec.labels),
        "tags": ["simulated", event.series[2]],
        **more,
        "simulated": True,
    }
