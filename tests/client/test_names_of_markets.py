"""A market has many names, and each of them finds it through every door: client, archive, command line, service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli.run import marketdata, rows_of
from reference import polymarket_stub
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import VenueStub, client_of

import marketdata as md
from marketdata.errors import ConfigError, NotArchivedError, NotFoundError
from marketdata.times import DAY, MINUTE, to_text

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
PAGE, GAMMA = "https://polymarket.com", "https://gamma-api.polymarket.com"
KALSHI, API = "https://kalshi.com", "https://external-api.kalshi.com/trade-api/v2"
SLUG, NUMBER = "will-it-rain-4", "1004"
CONDITION, TOKENS = polymarket_stub.Market(4, 2).condition, polymarket_stub.Market(4, 2).tokens
TICKER, EVENT = "KXRAIN-1-T4", "KXRAIN-1"
NAMES: dict[str, dict[str, str]] = {
    "polymarket": {
        "slug": SLUG,
        "slug in capitals": SLUG.upper(),
        "slug with blanks": f"  {SLUG} ",
        "condition id": CONDITION,
        "condition id in capitals": "0x" + CONDITION[2:].upper(),
        "number": NUMBER,
        "first token": TOKENS[0],
        "second token": TOKENS[1],
        "page of the market": f"{PAGE}/event/weather-1/{SLUG}",
        "page with a question": f"{PAGE}/event/weather-1/{SLUG}?tid=1767225600",
        "page without https": f"polymarket.com/event/weather-1/{SLUG}",
        "page with www": f"https://www.polymarket.com/event/weather-1/{SLUG}/",
        "page in another language": f"{PAGE}/es/event/weather-1/{SLUG}",
        "page of a market alone": f"{PAGE}/market/{SLUG}",
        "answer by its slug": f"{GAMMA}/markets/slug/{SLUG}",
        "answer of a listing": f"{GAMMA}/markets?slug={SLUG}",
        "answer by its number": f"{GAMMA}/markets/{NUMBER}",
        "slug of its event": "weather-1",
        "page of its event": f"{PAGE}/event/weather-1",
        "page of its game": f"{PAGE}/sports/rain/games/week/1/weather-1",
    },
    "kalshi": {
        "ticker": TICKER,
        "ticker in small letters": TICKER.lower(),
        "ticker with blanks": f" {TICKER} ",
        "Yes": f"{TICKER}:yes",
        "No": f"{TICKER}:no",
        "No in small letters": f"{TICKER.lower()}:no",
        "page": f"{KALSHI}/markets/kxrain/rain/{TICKER.lower()}",
        "page in capitals": f"{KALSHI}/markets/KXRAIN/rain/{TICKER}",
        "page with a question": f"{KALSHI}/markets/kxrain/rain/{TICKER.lower()}?op=1",
        "page without https": f"kalshi.com/markets/kxrain/rain/{TICKER.lower()}",
        "page with www": f"https://www.kalshi.com/markets/kxrain/rain/{TICKER.lower()}/",
        "page of a series": f"{KALSHI}/markets/kxrain/{TICKER.lower()}",
        "page of an event": f"{KALSHI}/events/{EVENT.lower()}/{TICKER.lower()}",
        "page with a fragment": f"{KALSHI}/markets/kxrain/rain#{TICKER.lower()}",
        "page alone": f"{KALSHI}/markets/{TICKER}",
        "answer": f"{API}/markets/{TICKER}",
        "archived answer": f"{API}/historical/markets/{TICKER}",
        "answer of the other host": f"https://api.elections.kalshi.com/trade-api/v2/markets/{TICKER}",
        "event of one market": EVENT,
        "page of an event of one market": f"{KALSHI}/markets/kxrain/rain/{EVENT.lower()}",
    },
}
ONE_MARKET = {"slug of its event", "page of its event", "page of its game", "event of one market",
              "page of an event of one market"}  # fmt: skip
TOKENS_OF = {"first token", "second token", "Yes", "No", "No in small letters"}
EVERY = [(venue, name) for venue, names in NAMES.items() for name in names]
START = polymarket_stub.START
SPAN = to_text(START + DAY), to_text(START + DAY + 60 * MINUTE)


def stub_of(venue: str, count: int = 6) -> VenueStub:
    """A stub, whose second event has three markets, or one of four in all."""
    return PolymarketStub(count=count) if venue == "polymarket" else KalshiStub(count=count)


def asked(venue: str, way: str) -> tuple[VenueStub, str, str]:
    """The stub, the name, and the id that is meant."""
    stub: Any = stub_of(venue, 4 if way in ONE_MARKET else 6)
    market = stub.markets[3 if way in ONE_MARKET else 4]
    return stub, NAMES[venue][way], market.condition if venue == "polymarket" else market.ticker


@pytest.fixture(scope="module")
def stores(tmp_path_factory: Any) -> Iterator[Callable[[str, int], tuple[Path, Any, Any]]]:
    """The folder, the archive and a client of the service of each stub, with an hour of prices of all its markets."""
    with ExitStack() as stack:

        @cache
        def store(venue: str, count: int) -> tuple[Path, Any, Any]:
            folder = tmp_path_factory.mktemp("names")
            archive = md.Archive(folder / "archive", frame="polars")
            with client_of(stub_of(venue, count)) as client:
                archive.pull(client, all_markets=True, views="prices", start=SPAN[0], end=SPAN[1])
            running = stack.enter_context(md.serve(archive))
            return folder, archive, md.Client(running.base_url, running.api_key, frame="polars")

        yield store


@pytest.mark.parametrize(("venue", "way"), EVERY)
def test_every_name_of_a_market_finds_it(venue: str, way: str, stores: Any) -> None:
    """Records, prices, pulls, reads, commands and a service know one market by each of its names."""
    stub, name, identity = asked(venue, way)
    folder, archive, service = stores(venue, 4 if way in ONE_MARKET else 6)
    with client_of(stub) as client:
        assert client.market(name)["id"] == identity
        # With the event and the series, which tell fees, or the payoffs of a closed market.
        assert stub.paths.total() <= 4
        assert {*client.prices(name, *SPAN, "1m")["market_id"]} == {identity}
        assert client.tokens(name).height == 2
        ranges = archive.pull(client, [name], views="prices", start=SPAN[0], end=SPAN[1], refresh=True)
        assert {*ranges["market_id"]} == {identity}
        span = "--start", SPAN[0], "--end", SPAN[1]
        fetched = marketdata("fetch", "prices", name, "--service", venue, *span, "-r", "1m", cwd=folder)
    assert identity in fetched.stdout, fetched.stderr
    if way in TOKENS_OF:  # an archive reads markets, and says whose token it is
        with pytest.raises(NotArchivedError, match=rf"It is a token of market '{identity}'"):
            archive.prices(name, *SPAN)
        return
    stored = archive.prices(name, *SPAN)
    assert {*stored["market_id"]} == {identity}
    exported = marketdata("export", "archive", "prices", name, cwd=folder)
    assert {row["market_id"] for row in rows_of(exported.stdout)} == {identity}, exported.stderr
    assert service.market(name)["id"] == identity
    assert service.prices(name, *SPAN, "1m").equals(stored)


@pytest.mark.parametrize("venue", ["polymarket", "kalshi"])
def test_an_event_in_the_place_of_a_market_is_answered_with_its_markets(venue: str, stores: Any) -> None:
    """By its slug or ticker in any case, or its page, after one or two requests; through every door."""
    stub: Any = stub_of(venue)
    event = "weather-1" if venue == "polymarket" else EVENT
    slugs = [m.slug if venue == "polymarket" else m.ticker for m in stub.markets[3:6]]
    page = f"{PAGE}/event/{event}" if venue == "polymarket" else f"{KALSHI}/markets/kxrain/rain/{event.lower()}"
    folder, archive, service = stores(venue, 6)
    for name in (event, event.lower(), event.upper(), page):
        with client_of(stub_of(venue)) as client:
            calls: list[Callable[[], Any]] = [
                lambda name=name: client.market(name),
                lambda name=name: client.prices(name, *SPAN, "1h"),
                lambda name=name: client.prices(name),
                lambda name=name: client.prices([name, slugs[0]], *SPAN, "1h"),
                lambda name=name: client.trades(name, *SPAN),
                lambda name=name: archive.pull(client, [name], start=SPAN[0], end=SPAN[1]),
            ]  # fmt: skip
            for call in calls:
                with pytest.raises(NotFoundError, match="is an event, not a market") as refused:
                    call()
                assert all(slug in str(refused.value) for slug in slugs)
                assert list(refused.value.markets) == slugs
        with client_of(one := stub_of(venue)) as client:
            with pytest.raises(NotFoundError, match="is an event"):
                client.market(name)
            assert one.paths.total() <= 2
            done = marketdata("tokens", name, "--service", venue, cwd=folder)
            assert done.returncode == 4
            assert all(slug in done.stderr for slug in slugs)
        with pytest.raises(NotArchivedError, match="is an event, not a market") as missing:
            archive.prices(name)
        assert all(slug in str(missing.value) for slug in slugs)
        for ask in (service.market, lambda one: service.prices(one, *SPAN, "1h")):
            with pytest.raises(NotFoundError, match="is an event, not a market") as refused:
                ask(name)
            assert all(slug in str(refused.value) for slug in slugs)


def test_names_that_cannot_be_meant_are_refused() -> None:
    """An address of the other venue, a series of Kalshi, and a name of nothing say what to do."""
    with client_of(PolymarketStub()) as client:
        with pytest.raises(ConfigError, match=r"is an address of kalshi.*md.Client\('kalshi'\) asks"):
            client.prices(NAMES["kalshi"]["page"], *SPAN, "1h")
        with pytest.raises(NotFoundError, match="Market not found: nothing-at-all"):
            client.market("nothing-at-all")
    with client_of(KalshiStub()) as client:
        with pytest.raises(ConfigError, match=r"is an address of polymarket"):
            client.market(NAMES["polymarket"]["page of the market"])
        for name in ("KXRAIN", "kxrain", f"{KALSHI}/markets/kxrain/how-much-rain"):
            with pytest.raises(NotFoundError, match=r"'KXRAIN' is a series.*series_slug='KXRAIN'"):
                client.market(name)
        with pytest.raises(NotFoundError, match=rf"Market not found: kxrain-1-t99.*Similar: .*'{TICKER}'"):
            client.market("kxrain-1-t99")
        assert len(client.markets(event_slug=f"{KALSHI}/markets/kxrain/rain/{EVENT.lower()}")) == 3
    with client_of(PolymarketStub()) as client:
        assert len(client.markets(event_slug=f"{PAGE}/event/weather-1")) == 3
