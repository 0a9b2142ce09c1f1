"""The requests of the questions that a user asks first, counted on stubs of the venues."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reference import polymarket_stub
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venue_loops import is_equal, keyed, polymarket_prices
from reference.venues import client_of, refused

from marketdata.times import DAY, HOUR, Range, to_datetime

START = polymarket_stub.START
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")


def asked(stub: Any, *words: str) -> int:
    """Requests so far to paths with one of some words, by default to any."""
    return sum(n for path, n in stub.paths.items() if not words or any(word in path for word in words))


def test_prices_of_twenty_slugs_take_two_questions_of_records() -> None:
    """A new client asks for closed and open markets once each, and for twenty tokens a request."""
    stub = PolymarketStub(count=20, days=1.0)
    rng = Range(START, START + DAY)
    with client_of(stub) as client:
        frame = client.prices([m.slug for m in stub.markets], to_datetime(rng.start), to_datetime(rng.end), "1h")
        assert asked(stub, "keyset", "/markets/") == 2
        assert asked(stub, "history") == 2
        assert asked(stub) == 4
        assert is_equal(keyed(frame, "price"), polymarket_prices(stub, stub.markets, rng, HOUR))
        assert frame.md.report.observed["mean_of_hourly_points"] == len(frame)


def test_a_month_of_many_markets_takes_two_requests_for_twenty_tokens() -> None:
    """Fifteen days of ten markets are one request, whenever each market was open; the plan says so before."""
    stub = PolymarketStub(count=40, days=29.5)
    rng = Range(START, START + 30 * DAY)
    names = [market.slug for market in stub.markets]
    with client_of(stub, START + 60 * DAY) as client:
        span = to_datetime(rng.start), to_datetime(rng.end), "1h"
        client.feed.market_records(names)
        before = asked(stub)
        assert client.plan("prices", names, *span).requests == 8
        frame = client.prices(names, *span)
        assert asked(stub, "history") == asked(stub, "batch-prices-history") == 8
        assert asked(stub) - before <= 8 + 4
        assert is_equal(keyed(frame, "price"), polymarket_prices(stub, stub.markets, rng, HOUR))


def test_a_venue_without_batches_of_histories_is_asked_token_by_token() -> None:
    """The first refusal of such a request is the last one."""
    stub = PolymarketStub(count=12, days=1.0)
    answer, rng = stub.answer, Range(START, START + DAY)
    stub.answer = lambda ask: refused(405, {"error": "no"}) if "batch" in ask.path else answer(ask)  # type: ignore[method-assign]
    with client_of(stub) as client:
        for _ in range(2):
            frame = client.prices([m.slug for m in stub.markets], to_datetime(rng.start), to_datetime(rng.end), "1h")
            assert is_equal(keyed(frame, "price"), polymarket_prices(stub, stub.markets, rng, HOUR))
    assert asked(stub, "batch") <= 2  # both batches may be on their way
    assert asked(stub, "/prices-history") == 48


def test_a_history_that_a_batch_lacks_is_asked_for_alone() -> None:
    """An answer without one of its tokens, or with an odd one, is no history without points."""
    stub = PolymarketStub(count=4, days=1.0)
    rng, tell = Range(START, START + DAY), stub.batch_clob

    def lacking(body: Any) -> Any:
        top = json.loads(tell(body).body)
        names = [*top["history"]]
        top["history"].pop(names[0])
        top["history"][names[3]] = [{"t": "soon"}]
        return refused(200, top)

    stub.batch_clob = lacking  # type: ignore[method-assign]
    with client_of(stub) as client:
        frame = client.prices([m.slug for m in stub.markets], to_datetime(rng.start), to_datetime(rng.end), "1h")
    assert is_equal(keyed(frame, "price"), polymarket_prices(stub, stub.markets, rng, HOUR))
    assert (asked(stub, "batch"), asked(stub, "/prices-history")) == (1, 2)


def test_days_of_kalshi_are_208_a_request() -> None:
    """Days are made of hours, of which an answer has five thousand."""
    stub = KalshiStub(count=1, days=400.0)
    with client_of(stub, START + 420 * DAY) as client:
        frame = client.prices(stub.markets[0].ticker, to_datetime(START), to_datetime(START + 400 * DAY), "1d")
    assert len(frame) == 800
    assert asked(stub, "candlesticks") == 2
