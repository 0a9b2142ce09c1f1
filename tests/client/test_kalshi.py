"""Kalshi as a source: both tiers, many markets by one request, records, books and fees against loops over the stub."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.kalshi_stub import START, KalshiStub, Traps
from reference.venue_loops import VENUES, is_equal, kalshi_trades, kalshi_views, keyed, printed
from reference.venues import client_of

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.columns import joined
from marketdata.times import DAY, MINUTE, SECOND, Range, to_datetime, to_text

NOW = START + 4 * DAY
HOUR = 60 * MINUTE
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")
TRAPS = VENUES["kalshi"].any_traps
TIERS = st.sampled_from([START, START + 2 * DAY + 70 * MINUTE, START + 30 * DAY])  # nothing, some, all is archived


COLUMNS = {
    "prices": ("price",),
    "quotes": ("best_bid", "best_ask"),
    "metrics": ("volume", "open_interest", "spread"),
}


@settings(max_examples=4)
@given(
    TRAPS, TIERS, st.sampled_from(["1m", "1h"]), st.integers(-100, 3_000), st.booleans(), st.sampled_from([*COLUMNS])
)
def test_candles_of_200_markets_are_few_requests(
    traps: Traps, cutoff: int, width: str, first: int, is_listed: bool, view: str
) -> None:
    """What several markets share is asked once, whatever tier each is in; every view equals a loop."""
    stub = KalshiStub(count=200, traps=traps, cutoff=cutoff)
    rng = Range(START + first * MINUTE, START + (first + (40 if width == "1m" else 500)) * MINUTE)
    span = to_datetime(rng.start), to_datetime(rng.end), width
    with client_of(stub, NOW) as client:
        if is_listed:
            client.markets()
        names = [market.ticker for market in stub.markets]
        stub.paths.clear()
        got = keyed(getattr(client, view)(names, *span), *COLUMNS[view])
        asked = sum(stub.paths.values())
        expected = kalshi_views(stub, stub.markets, rng, MINUTE if width == "1m" else HOUR)[view]
    assert is_equal(got, expected)
    if cutoff == START and not traps.omits_settlement:  # all are live
        traded = {key[0].partition(":")[0] for key in expected}
        alone = sum(market.payoffs is not None and market.ticker not in traded for market in stub.markets)
        assert asked <= 8 + 2 * alone


def test_the_views_of_a_market_share_their_candles(tmp_path: Any) -> None:
    """A pull of prices, quotes and metrics asks for each candle once."""
    stub = KalshiStub(count=2, days=5.0)
    archive = md.Archive(tmp_path, frame="polars")
    with client_of(stub, START + 6 * DAY) as client:
        names = [market.ticker for market in stub.markets]
        archive.pull(client, names, start=to_text(START), end=to_text(START + 5 * DAY), progress=False)
        candles = sum(n for path, n in stub.paths.items() if path.endswith("candlesticks"))
        expected = kalshi_views(stub, stub.markets, Range(START, START + DAY), MINUTE)
    assert candles <= 2 * 3
    for view, columns in COLUMNS.items():
        frame = getattr(archive, view)([m.ticker for m in stub.markets], to_text(START), to_text(START + DAY))
        assert is_equal(keyed(frame, *columns), expected[view])


@pytest.mark.parametrize("price", ["mid", "last", "mean"])
def test_the_price_of_a_candle_is_the_one_that_was_chosen(price: Any) -> None:
    """By default the mid of the closes, else the last or the mean trade, null where nothing traded."""
    stub = KalshiStub()
    market = stub.markets[1]
    with client_of(stub, NOW, price=price) as client:
        got = keyed(client.prices(market.ticker, to_text(START), to_text(START + DAY), "1h"), "price")
        candles = stub.candles(market, START + HOUR, START + DAY, 60)
    expected = {}
    for candle in candles:
        mid = None if candle["bid"] is None or candle["ask"] is None else (candle["bid"] + candle["ask"]) / 2
        cents = mid if price == "mid" else candle[price]
        cents = None if cents is None else round(cents, 2)
        for side in ("yes", "no"):
            value = None if cents is None else cents / 100 if side == "yes" else 1 - cents / 100
            expected[f"{market.ticker}:{side}", candle["start"]] = (value,)
    assert is_equal(got, expected)


@settings(max_examples=10)
@given(TRAPS, TIERS, st.integers(1, 40), st.integers(1, 9))
def test_records_are_found_by_series_event_and_ticker(traps: Traps, cutoff: int, count: int, page: int) -> None:
    """Archived markets are in every listing that takes closed ones, with results, payoffs and fees, each once."""
    stub = KalshiStub(count=count, traps=traps, cutoff=cutoff, largest_page=page)
    every = {market.ticker for market in stub.markets}
    with client_of(stub, NOW) as client:
        for listed in (client.markets(), client.markets(series_slug="KXRAIN")):
            assert sorted(listed["slug"]) == sorted(every)
            paid = dict(zip(listed["slug"], listed["payoffs"].to_list(), strict=True))
            assert paid == {market.ticker: market.payoffs for market in stub.markets}
        assert set(client.markets(event_slug="KXRAIN-0")["slug"]) == {m.ticker for m in stub.markets if m.k < 3}
        assert set(client.markets(include_closed=False)["slug"]) == {
            m.ticker for m in stub.markets if m.state == "active"
        }
        assert client.markets(category="Sports").is_empty()
        assert set(client.markets(category="climate", tags=["Weather"])["slug"]) == every
        late = client.markets(end_date_min=to_text(START + 10 * DAY))
        assert set(late["slug"]) == {m.ticker for m in stub.markets if m.state == "active"}
        names = [f"{ticker}:no" for ticker in sorted(every)]
        stub.paths.clear()
        found = client.feed.market_records([*names, "KXNONE"])
        assert [record["id"] for record in found] == sorted(every)
        assert sum(stub.paths.values()) <= 2 * -(-(count + traps.parlays) // page) + 8 + -(-count // 3)
        outcomes = md.outcomes(listed)
        fees = md.Fees.of(listed)
    won = {m.ticker: m.payoffs for m in stub.markets}
    got = {(row["market_id"], row["token_id"]): row["payoff"] for row in outcomes.iter_rows(named=True)}
    assert got == {
        (ticker, f"{ticker}:{side}"): paid and paid[i]
        for ticker, paid in won.items()
        for i, side in enumerate(("yes", "no"))
    }
    assert fees.of_market(stub.markets[0].ticker)(0.5, 100) == pytest.approx(1.75)


def test_a_close_that_the_venue_moved_is_no_schedule() -> None:
    """A record of a market that is over has its close, and a scheduled end only where an older record said it."""
    stub = KalshiStub(count=4)
    closed, early = stub.markets[1], stub.by_ticker[stub.markets[1].ticker].scheduled
    assert closed.closed is not None
    with client_of(stub, closed.opened + HOUR) as client:
        first = client.markets(include_closed=False)
    with client_of(stub, NOW) as client:
        last = client.markets()
    ends = [
        md.outcomes(listed.filter(pl.col("market_id") == closed.ticker))["ends_at"].to_list()
        for listed in (first, last)
    ]
    assert ends == [[to_datetime(early)] * 2, [None, None]]
    prices = pl.DataFrame({
        "ts": [to_datetime(closed.opened)], "market_id": closed.ticker, "token_id": f"{closed.ticker}:yes",
        "token_label": "Yes", "price": 0.5,
    })  # fmt: skip
    with pytest.warns(md.errors.EmptyRangeWarning, match="latest_expiration_time"):
        assert md.before_end(prices, last, "1h", of="scheduled").is_empty()
    named = last.rename({"latest_expiration_time": "ends_at"})
    rows = md.before_end(prices, named, "1h", of="scheduled")
    assert rows["ts"].to_list() == [to_datetime(early + 7 * DAY - 60 * MINUTE)]


def test_a_name_that_kalshi_does_not_have_is_an_error() -> None:
    """Alone and among others, for candles, trades and records."""
    stub = KalshiStub()
    with client_of(stub, NOW) as client:
        span = to_text(START), to_text(START + DAY)
        for ask in (lambda: client.market("KXNONE-1"), lambda: client.prices("KXNONE-1", *span),
                    lambda: client.prices(["KXNONE-1", stub.markets[0].ticker], *span),
                    lambda: client.trades("KXNONE-1", *span), lambda: client.markets(event_slug="KXNONE")):  # fmt: skip
            with pytest.raises(NotFoundError):
                ask()
        assert client.markets(series_slug="KXNONE").is_empty()
        with pytest.raises(ConfigError, match="of the markets of kalshi"):
            client.markets(params={"tag": "x"})


@given(TRAPS, st.integers(0, 300))
def test_books_of_the_moment_are_those_of_open_markets(traps: Traps, minutes: int) -> None:
    """A hundred markets a request; an ask of one side is a bid of the other; a closed market has no book."""
    stub = KalshiStub(count=7, traps=traps)
    with client_of(stub, START + minutes * MINUTE + DAY) as client:
        tokens = [f"{market.ticker}:{side}" for market in stub.markets for side in ("yes", "no")]
        books: Any = joined([*client.feed.live_columns("books", tokens)])
        now, got = stub.now, {}
        for i, code in enumerate(books.token.tolist()):
            sides = [
                [(round(p * 100), s) for p, s in zip(side.price[b:e], side.size[b:e], strict=True)]
                for side in (books.bids, books.asks)
                for b, e in [(side.begins[i], side.begins[i] + side.counts[i])]
            ]
            got[books.tokens[code].token_id] = sides
        asked = stub.paths["/trade-api/v2/markets/orderbooks"]
    expected = {}
    for market in stub.markets:
        yes, no = stub.levels(market, now)
        mirrored = [[(100 - cents, size) for cents, size in side] for side in (yes, no)]
        expected |= {f"{market.ticker}:yes": [yes, mirrored[1]], f"{market.ticker}:no": [no, mirrored[0]]}
    assert got == expected
    assert asked == 1


def test_follow_records_the_books_of_kalshi(tmp_path: Any) -> None:
    """The books of each minute, of the markets that are open."""
    stub = KalshiStub(count=3)
    archive = md.Archive(tmp_path, frame="polars")
    with client_of(stub, START + DAY + MINUTE // 2) as client:
        rounds = archive.follow(client, [m.ticker for m in stub.markets], views=["books"], every="1m")
        for _, one in zip(range(3), rounds, strict=False):
            assert one.error is None
    books = archive.books([m.ticker for m in stub.markets], on_missing="partial")
    assert books["ts"].n_unique() == 3
    assert books["token_id"].n_unique() == 6


@settings(max_examples=4)
@given(TRAPS, TIERS, st.integers(30, 1000))
def test_trades_of_200_markets_equal_a_loop(traps: Traps, cutoff: int, page: int) -> None:
    """Each print of a range once, from both tiers, at any page."""
    stub = KalshiStub(count=200, days=0.4, traps=traps, cutoff=cutoff, largest_page=page)
    rng = Range(START + 100 * MINUTE, START + 400 * MINUTE)
    with client_of(stub, NOW) as client:
        frame = client.trades([m.ticker for m in stub.markets], to_text(rng.start), to_text(rng.end))
        expected = sorted(row for market in stub.markets for row in kalshi_trades(stub, market, rng))
    assert printed(frame) == expected
    assert frame["trade_id"].is_unique().all()


@settings(max_examples=4)
@given(TRAPS, st.booleans(), st.sampled_from([1.0, 10.0]))
def test_a_market_that_is_archived_meanwhile_is_found_there(traps: Traps, is_listed: bool, days: float) -> None:
    """A client that lives for months finds what was live, open or settled, when it asked before."""
    stub = KalshiStub(count=4, traps=traps, days=days)
    first, later = (Range(START + k * 2 * HOUR, START + (k + 1) * 2 * HOUR) for k in (1, 2))
    with client_of(stub, NOW) as client:
        names = [market.ticker for market in stub.markets]
        if is_listed:
            client.markets()
        for rng in (first, later):
            for asked in (names, names[1:2]):
                got = keyed(client.prices(asked, to_datetime(rng.start), to_datetime(rng.end), "1h"), "price")
                markets = stub.markets if asked == names else stub.markets[1:2]
                assert is_equal(got, kalshi_views(stub, markets, rng, HOUR)["prices"])
            trades = client.trades(names, to_text(rng.start), to_text(rng.end))
            assert printed(trades) == sorted(row for m in stub.markets for row in kalshi_trades(stub, m, rng))
            SYSTEM.sleep(70 * DAY / SECOND)
            stub.cutoff = START + 20 * DAY


@settings(max_examples=4)
@given(TRAPS, st.integers(0, 3))
def test_a_cutoff_that_has_just_moved_hides_nothing(traps: Traps, days: int) -> None:
    """What was archived since the cutoff was read is found: the other tier is asked too."""
    stub = KalshiStub(count=5, traps=traps, days=1.0)
    rng = Range(START + 6 * HOUR, START + 12 * HOUR)
    names, span = [market.ticker for market in stub.markets], (to_text(rng.start), to_text(rng.end))
    with client_of(stub, NOW) as client:
        for _ in range(2):
            trades = client.trades(names, *span)
            assert printed(trades) == sorted(row for m in stub.markets for row in kalshi_trades(stub, m, rng))
            got = keyed(client.prices(names, *span, "1h"), "price")
            assert is_equal(got, kalshi_views(stub, stub.markets, rng, HOUR)["prices"])
            stub.cutoff = START + days * DAY
