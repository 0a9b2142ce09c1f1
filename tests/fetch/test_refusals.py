"""What the sources refuse, and what they pass on: each with its class and the words that say what to do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from reference.faults import Act, Ask, FaultServer, ok, refuse
from reference.kalshi_stub import START as KALSHI_START
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import START, PolymarketStub
from reference.ranges import serving
from reference.venues import client_of, refused

import marketdata as md
from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigError,
    ContractError,
    NotFoundError,
    RateLimitError,
    TooManyTokensError,
)
from marketdata.fetch.http.url import check_segment
from marketdata.fetch.ranges import Ranges, Remote
from marketdata.fetch.sources.venue import Host, Venue
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth
from marketdata.times import HOUR, Range, to_datetime
from marketdata.vendors import Service

SLUG, TICKER = "will-it-rain-0", "KXRAIN-0-T0"
SPAN = to_datetime(START), to_datetime(START + HOUR)
KALSHI_SPAN = to_datetime(KALSHI_START), to_datetime(KALSHI_START + HOUR)
Stub = Any


@contextmanager
def asking(stub: Stub, **paths: Callable[[Ask], Act]) -> Iterator[md.Client[Any]]:
    """A client of a venue that answers some paths, which begin or end so, otherwise."""
    answer = stub.answer

    def other(ask: Ask) -> Act:
        for name, act in paths.items():
            if name in ask.path.replace("-", "_").split("/"):
                return act(ask)
        return answer(ask)

    stub.answer = other
    with client_of(stub) as client:
        yield client


def polymarket(call: Callable[[md.Client[Any]], Any], **paths: Callable[[Ask], Act]) -> Callable[[], Any]:
    def run() -> Any:
        with asking(PolymarketStub(count=4), **paths) as client:
            return call(client)

    return run


def kalshi(call: Callable[[md.Client[Any]], Any], **paths: Callable[[Ask], Act]) -> Callable[[], Any]:
    def run() -> Any:
        with asking(KalshiStub(count=4), **paths) as client:
            return call(client)

    return run


def missing(_: Ask) -> Act:
    return refused(404, {"error": "not found"})


def bad(_: Ask) -> Act:
    return refused(400, {"error": "a bad request"})


def busy(_: Ask) -> Act:
    return refused(429, {"error": "slow down"}).with_header("Retry-After", "100000")


def another(_: Ask) -> Act:
    other = PolymarketStub(count=4)
    return ok({"markets": [other.record(other.markets[2])]})


def house(call: Callable[[md.Client[Any]], Any], answer: Callable[[Ask], Act]) -> Callable[[], Any]:
    def run() -> Any:
        with FaultServer(answer) as server:
            return call(md.Client(server.base_url, "a-key-of-a-test-0123456789", frame="polars"))

    return run


def crowded(ask: Ask) -> Act:
    if ask.path.endswith("/m"):
        return ok({"id": "m", "slug": "m", "tokens": [{"id": "1", "label": "Yes"}, {"id": "2", "label": "No"}]})
    return refuse(400, "The market has more than 200 tokens; use the token endpoint.")


def changed_path() -> Any:
    """A library that writes an address otherwise than it was told."""
    with pytest.MonkeyPatch.context() as patch:
        prepare = md.fetch.http.transport.requests.Session.prepare_request  # type: ignore[attr-defined]

        def other(*args: Any) -> Any:
            prepared = prepare(*args)
            prepared.url += "/.."
            return prepared

        patch.setattr("requests.Session.prepare_request", other)
        return house(lambda client: client.market("m"), crowded)()


def without_a_size() -> Any:
    """A server that does not say how long a file is."""

    def answer(_: Ask) -> Act:
        return Act(body=b"x" * 100, framing="chunked")

    with FaultServer(answer) as server:
        return Ranges().about(f"{server.base_url}/a.parquet")


def parquet(name: str, content: bytes) -> Callable[[], Any]:
    """A file of a server whose length is known, read by its parts."""

    def run() -> Any:
        with (
            serving({"a.parquet": content}) as server,
            Ranges().parquet(Remote(f"{server.url}/{name}", 100, "x")) as file,
        ):
            return file.metadata

    return run


def no_library() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "aiohttp", None)
        return Ranges()


def names(count: int) -> list[str]:
    return [f"name-{k}" for k in range(count)]


CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "hosts of a service": (lambda: md.Client("http://127.0.0.1:9", "k" * 32, hosts={"x": "y"}), ConfigError, "address"),
    "a host that a venue lacks": (lambda: md.Client("kalshi", hosts={"gamma": "x"}), ConfigError, "does not have"),
    "a key of a venue": (lambda: md.Client("kalshi", "k" * 32), ConfigError, "takes no key"),
    "an id that is no text": (lambda: check_segment(5), ConfigError, "write it in quotes"),  # type: ignore[arg-type]
    "a path that is changed": (changed_path, ConfigError, "changed on its way"),
    "more tokens than there are": (
        house(lambda client: client.books("m", *SPAN, "1h"), crowded), TooManyTokensError, "200 tokens",
    ),
    "a record that the key may not see": (
        house(lambda client: client.prices("m", resolution="1h"), lambda _: refuse(401, "Invalid or expired API key.")),
        AuthenticationError, "API key",
    ),
    "a file without a size": (without_a_size, ContractError, "no size"),
    "a file that is no Parquet": (parquet("a.parquet", b"x" * 100), ContractError, "no whole Parquet file"),
    "no library for ranges": (no_library, ModuleNotFoundError, "pip install"),
    "sorted events of Polymarket": (polymarket(lambda c: c.events(sort="volume")), ConfigError, "sort"),
    "sorted events of Kalshi": (kalshi(lambda c: c.events(sort="volume")), ConfigError, "sort"),
    "a tag without an id": (
        polymarket(lambda c: c.markets(tags="weather"), tags=lambda _: ok({"slug": "weather"})),
        ContractError, "has no id",
    ),
    "one thing said twice": (
        polymarket(lambda c: c.markets(min_liquidity=5, params={"liquidity_num_min": 9})), ConfigError, "says it",
    ),
    "a series that is not there": (
        polymarket(lambda c: c.events(series_slug="no-such")), ConfigError, "names no series",
    ),
    "the market of another token": (
        polymarket(lambda c: c.market(str(9 * 10**76)), keyset=another), ContractError, "was asked for",
    ),
    "books that are no list": (
        polymarket(lambda c: [*c.feed.live_columns("books", ["1"])], books=lambda _: ok({"a": 1})),
        ContractError, "list of books",
    ),
    "a batch of which all is refused": (
        polymarket(lambda c: c.feed.market_records(names(40)), keyset=bad), BadRequestError, "bad request",
    ),
    "a token that its market lacks": (
        polymarket(lambda c: c.token_prices(SLUG, *SPAN, "1h")), NotFoundError, "Token not found",
    ),
    "a view of a venue that lacks it": (polymarket(lambda c: c.metrics(SLUG, *SPAN, "1h")), ConfigError, "metrics"),
    "candles that are nowhere": (
        kalshi(lambda c: c.prices(TICKER, *KALSHI_SPAN, "1h"), candlesticks=missing), NotFoundError, "not found",
    ),
    "trades that are nowhere": (
        kalshi(lambda c: c.trades(TICKER, *KALSHI_SPAN), trades=missing), NotFoundError, "not found",
    ),
    "books that come too often": (
        kalshi(lambda c: [*c.feed.live_columns("books", [f"{TICKER}:yes"])], orderbooks=busy),
        RateLimitError, "slow down",
    ),
}  # fmt: skip


class Bare(Venue):
    """A venue that has prices and nothing else."""

    service = Service(name="bare", base_url="https://bare.test", key_variable=None, views=("prices",), live=("books",),
                      resolutions=("1m",), listing_page=100)  # fmt: skip
    rates: ClassVar[dict[str, Host]] = {"bare": Host("https://bare.test", 60)}

    def _buckets(self, width: int) -> int:
        return 100


BARE: dict[str, Callable[[Bare], Any]] = {
    "candles": lambda venue: venue.candles("m", Range(0, HOUR), BucketWidth.of("1m")),
    "trades": lambda venue: next(venue.trades("m", Range(0, HOUR))),
    "prints": lambda venue: next(venue.prints("m", Range(0, HOUR))),
    "metrics": lambda venue: next(venue.pages(Window("metrics", "market", "m", Range(0, HOUR), BucketWidth.of("1m")))),
}


@pytest.mark.parametrize("what", BARE)
def test_a_venue_says_what_it_lacks(what: str) -> None:
    """What a new venue does not write is refused with what it has."""
    venue = Bare({"bare": "https://bare.test"}, "bare", allow_insecure=False)
    venue._keep({"id": "m", "status": "active", "tokens": []})
    with pytest.raises(ConfigError, match=f"bare has no {what.replace('prints', 'trades')}; it has prices"):
        BARE[what](venue)


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_says_what_to_do(name: str) -> None:
    """Each is an error of its own class."""
    call, kind, words = CASES[name]
    with pytest.raises(kind, match=words):
        call()
