"""Venues as sources: what a client gives is what plain loops over the stub's data give, whatever its traps."""

from __future__ import annotations

import datetime as dt
import pickle
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import kalshi_stub, polymarket_stub
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import FAULTS, NOW, answered, client_of, simulated_clock

import marketdata as md
from marketdata.errors import ConfigError, NotFoundError, PlanError, RequestError, ServiceOddityWarning
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, HOUR, MINUTE, SECOND, Range, parse_iso, to_datetime, to_text

START = polymarket_stub.START
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")


def traps_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any setting of the traps of a stub."""
    return st.builds(kind, **{name: st.booleans() for name, v in vars(kind()).items() if isinstance(v, bool)})


FAULTY = st.lists(st.none() | st.sampled_from(FAULTS), max_size=12).map(
    # A request is given up after five attempts, so four faults may all hit one.
    lambda drawn: [one if drawn[:k].count(None) >= k - 3 else None for k, one in enumerate(drawn)]
)
WIDTH = st.sampled_from(["1m", "5m", "1h", "1d"])
SPAN = st.tuples(st.integers(-300, 2_000), st.integers(1, 3_000)).map(
    lambda s: Range(START + s[0] * MINUTE, START + (s[0] + s[1]) * MINUTE)
)


def rows_of(frame: Any, *columns: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Values of a frame by token and time [microseconds]."""
    keys = zip(
        frame["token_id" if "token_id" in frame.columns else "market_id"], frame["ts"].dt.epoch("us"), strict=True
    )
    return dict(zip(keys, zip(*(frame[c].to_list() for c in columns), strict=True), strict=True))


def about(values: dict[tuple[Any, ...], tuple[Any, ...]]) -> Any:
    return {key: pytest.approx(value, abs=1e-9) for key, value in values.items()}


@given(traps_of(polymarket_stub.Traps), FAULTY, st.integers(0, 5), SPAN, WIDTH)
def test_prices_of_polymarket_are_means_of_its_minutes(
    traps: Any, faults: list[str | None], k: int, rng: Range, width: str
) -> None:
    """A bucket is the mean of its minutes, or whole hours, without the point of the present, in any window."""
    stub = PolymarketStub(traps=traps, days=3.0)
    market, micros = stub.markets[k], BucketWidth.of(width).micros
    now = START + 2 * DAY + 12 * MINUTE // 10
    with client_of(stub, now) as client:
        stub.faults = iter(faults)
        frame = client.prices(market.slug, to_datetime(rng.start), to_datetime(rng.end), width)
        expected: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        first = rng.start // micros * micros
        last = min(-(-rng.end // micros) * micros, now // MINUTE * MINUTE)
        for i, token in enumerate(market.tokens):
            for ts, price in stub.minute_prices(market, i, first, last):
                if micros < HOUR or ts % HOUR == 0:  # from an hour on, the venue is asked for hours
                    expected[token, ts // micros * micros].append(price)
    means = {key: (sum(p) / len(p),) for key, p in expected.items() if rng.start <= key[1] or key[1] == first}
    assert rows_of(frame, "price") == about(means)


@given(traps_of(polymarket_stub.Traps), st.integers(0, 5), SPAN, st.sampled_from(["1m", "1h"]))
def test_buckets_of_the_data_api_are_whole_or_refused(traps: Any, k: int, rng: Range, width: str) -> None:
    """With route="data" a bucket is the venue's own; a step that it no longer keeps is a PlanError, never a hole."""
    stub = PolymarketStub(traps=traps)
    market, micros = stub.markets[k], BucketWidth.of(width).micros
    for now in (START + 3 * DAY, START + 80 * DAY):
        with client_of(stub, now, route="data") as client:
            ask = partial(client.prices, market.slug, to_datetime(rng.start), to_datetime(rng.end), width)
            is_alive = rng.end > market.opened and rng.start < (market.closed or now)
            if now == START + 80 * DAY and width == "1m" and is_alive:
                with pytest.raises(PlanError, match="clob"):
                    ask()
                continue
            frame = ask()
            expected = {}
            first, end = rng.start // micros * micros, -(-rng.end // micros) * micros
            for i, token in enumerate(market.tokens):
                for ts, price in stub.minute_prices(market, i, first, end):
                    expected[token, ts // micros * micros] = (price,)
            assert rows_of(frame, "price") == about(expected)


@settings(max_examples=4)
@given(st.sampled_from(["polymarket", "kalshi"]), FAULTY, st.integers(1, 100), st.booleans())
def test_records_of_200_markets_are_each_listed_once(
    venue: str, faults: list[str | None], page: int, is_sticky: bool
) -> None:
    """Open and closed markets are all there, with what each paid, at any page of the venue and through any fault."""
    kind = PolymarketStub if venue == "polymarket" else KalshiStub
    traps = (polymarket_stub if venue == "polymarket" else kalshi_stub).Traps(sticky_cursor=is_sticky)
    stub: Any = kind(count=200, traps=traps, largest_page=max(page, 60))
    with client_of(stub) as client:
        stub.faults = iter(faults)
        frame = client.markets()
        names = [market.slug if venue == "polymarket" else market.ticker for market in stub.markets]
        assert sorted(frame["slug"]) == sorted(names)
        paid = dict(zip(frame["slug"], frame["payoffs"].to_list(), strict=True))
        assert [paid[name] for name in names] == [market.payoffs for market in stub.markets]
        outcomes = md.outcomes(frame)
        assert len(outcomes) == 400
        open_only = client.markets(include_closed=False)
        assert set(open_only["status"]) <= {"active"}
        assert len(client.markets(max_rows=7)) == 7


@given(traps_of(kalshi_stub.Traps), FAULTY, st.integers(0, 5), SPAN, st.sampled_from(["1m", "1h", "1d"]), st.booleans())
def test_candles_of_kalshi_are_read_from_both_tiers(
    traps: Any, faults: list[str | None], k: int, rng: Range, width: str, is_archived: bool
) -> None:
    """Prices, quotes and metrics are those of the candles that begin in a range, live or archived."""
    stub = KalshiStub(traps=traps, cutoff=START + 30 * DAY if is_archived else START)
    market, micros = stub.markets[k], BucketWidth.of(width).micros
    with client_of(stub) as client:
        stub.faults = iter(faults)
        span = to_datetime(rng.start), to_datetime(rng.end), width
        prices, quotes, metrics = (
            getattr(client, view)(market.ticker, *span) for view in ("prices", "quotes", "metrics")
        )
        first = rng.start // micros * micros
        candles = stub.buckets(market, first, -(-rng.end // micros) * micros, micros)
    tops, mids, volumes = {}, {}, {}
    for candle in candles:
        bid, ask = (None if cents is None else cents / 100 for cents in (candle["bid"], candle["ask"]))
        other = tuple(None if price is None else 1 - price for price in (ask, bid))
        for side, (b, a) in (("yes", (bid, ask)), ("no", other)):
            tops[f"{market.ticker}:{side}", candle["start"]] = b, a
            mids[f"{market.ticker}:{side}", candle["start"]] = (None if b is None or a is None else (a + b) / 2,)
        volumes[market.ticker, candle["start"]] = candle["volume"], 40.0
    assert rows_of(quotes, "best_bid", "best_ask") == about(tops)
    assert rows_of(prices, "price") == about(mids)
    assert rows_of(metrics, "volume", "open_interest") == about(volumes)


@given(st.sampled_from(["polymarket", "kalshi"]), FAULTY, st.integers(0, 5), SPAN, st.booleans())
def test_trades_are_each_fill_once(venue: str, faults: list[str | None], k: int, rng: Range, is_archived: bool) -> None:
    """Prints of a range come in the order of time, equal fills of one transaction stay apart."""
    cut = {} if venue == "polymarket" else {"cutoff": START + (30 if is_archived else 0) * DAY}
    stub: Any = (PolymarketStub if venue == "polymarket" else KalshiStub)(**cut)
    market = stub.markets[k]
    with client_of(stub) as client:
        stub.faults = iter(faults)
        name = market.slug if venue == "polymarket" else market.ticker
        frame = client.trades(name, to_datetime(rng.start), to_datetime(rng.end))
        rows = stub.prints(market)
    if venue == "polymarket":
        expected = [(r["timestamp"] * SECOND, r["token_id"], r["price"], r["size"], r["side"].lower()) for r in rows]
    else:
        times = (int(r["trade_id"].split("-")[1]) * MINUTE + 123_456 for r in rows)
        bought = [row["taker_outcome_side"] for row in rows]
        expected = [
            (t, f"{market.ticker}:{side}", float(row[f"{side}_price_dollars"]), 2.5, "buy")
            for t, row, side in zip(times, rows, bought, strict=True)
        ]
    columns = ("token_id", "price", "size", "side")
    got = zip(frame["ts"].dt.epoch("us"), *(frame[c].to_list() for c in columns), strict=True)
    inside = [row for row in expected if rng.start <= row[0] < rng.end]
    assert [*got] == sorted(inside, key=lambda row: (row[1], row[0]))


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
@pytest.mark.parametrize("venue", ["polymarket", "kalshi"])
def test_prints_of_a_venue_are_trades_of_every_function(venue: str, kind: str) -> None:
    """Effective spread and VWAP of a venue's prints, one by one or of several markets together, by plain loops."""
    stub: Any = (PolymarketStub if venue == "polymarket" else KalshiStub)()
    with client_of(stub) as client:
        parts = [
            client.trades(m.slug if venue == "polymarket" else m.ticker, to_datetime(START), to_datetime(NOW))
            for m in stub.markets[:2]
        ]
    polars = md.concat(parts)
    assert polars.height > 4
    trades = {"pandas": polars.to_pandas, "polars": polars.clone, "lazy": polars.lazy, "arrow": polars.to_arrow}[kind]()
    tokens = polars.select("market_id", "token_id").unique().rows()
    minute = dt.timedelta(minutes=1)
    first = polars["ts"].min().replace(second=0, microsecond=0) - 2 * minute
    books = pl.DataFrame(
        [
            {"ts": first + k * 61 * minute, "market_id": m, "token_id": t, "token_label": None, "side": side,
             "level": 0, "price": 0.2 + 0.01 * (k % 40) + 0.02 * (side == "ask"), "size": 10.0}
            for m, t in tokens for k in range(400) for side in ("bid", "ask")
        ],
        schema_overrides={"token_label": pl.String},
    )  # fmt: skip
    of_kind = {"pandas": books.to_pandas, "polars": books.clone, "lazy": books.lazy, "arrow": books.to_arrow}[kind]()
    got: Any = md.effective_spread(trades, of_kind, width="1m")
    got = got.collect() if kind == "lazy" else pl.DataFrame(got)
    assert got.height == polars.height
    mids = {(t, known + minute): 0.21 + 0.01 * (k % 40) for _, t in tokens for k in range(400)
            for known in [first + k * 61 * minute]}  # fmt: skip
    for row in got.iter_rows(named=True):
        before = [known for t, known in mids if t == row["token_id"] and known <= row["ts"]]
        mid = mids[row["token_id"], max(before)]
        sign = {"buy": 1, "sell": -1}.get(row["side"])
        want = None if sign is None else pytest.approx(2 * sign * (row["price"] - mid))
        assert row["effective_spread"] == want
    averages: Any = md.vwap(trades, "1h")
    averages = averages.collect() if kind == "lazy" else pl.DataFrame(averages)
    assert averages["trades"].sum() == polars.height
    for row in averages.iter_rows(named=True):
        of = [
            (p, s) for ts, t, p, s in polars.select("ts", "token_id", "price", "size").iter_rows()
            if t == row["token_id"] and ts.replace(minute=0, second=0, microsecond=0) == row["ts"]
        ]  # fmt: skip
        shares = sum(s for _, s in of)
        assert (row["vwap"], row["size"]) == pytest.approx((sum(p * s for p, s in of) / shares, shares))


def test_a_market_has_many_names_and_a_source_can_be_pickled() -> None:
    """Slug, number, condition id and token name a market of Polymarket, a ticker and a token one of Kalshi."""
    stub, other = PolymarketStub(count=12), KalshiStub()
    with client_of(stub) as client:
        for market in stub.markets:
            for name in (market.slug, str(1000 + market.k), market.condition, *market.tokens):
                assert client.market(name)["id"] == market.condition
        assert len(client.markets(event_slug="weather-1")) == 3
        assert len(client.markets(search="day 7")) == 3
        assert len(client.token_prices(stub.markets[1].tokens[1], to_text(START), to_text(START + DAY), "1d")) == 1
        again = pickle.loads(pickle.dumps(client))
        assert again.tags() == [*polymarket_stub.TAGS]
        with pytest.raises(NotFoundError, match="will-it-rain-1"):
            client.market("will-it-rain-x1")
        with pytest.raises(ConfigError, match="has prices"):
            client.books("will-it-rain-1", to_text(START), to_text(START + DAY))
    with client_of(other, price="last") as client:
        assert client.market(f"{other.markets[1].ticker}:no")["id"] == other.markets[1].ticker
        assert len(client.markets(event_slug="KXRAIN-1")) == 3
        assert client.markets()["fee_multiplier"].to_list() == [1] * 6
        assert len(client.markets("rain")) == 2  # of open events alone


def test_the_resolution_of_a_market_counts_whatever_its_record_says() -> None:
    """One warning names the markets whose records tell another outcome; nothing is refused."""
    stub = PolymarketStub(count=60)
    won, unknown, open_again = stub.markets[1], stub.markets[2], stub.markets[7]
    said = {
        won.condition: {"status": "resolved", "payouts": ["500000", 500000]},
        unknown.condition: {"payouts": None},
        open_again.condition: {"status": "disputed", "payouts": [0, 0]},
    }
    tell = stub.resolution
    stub.resolution = lambda m: {"condition_id": m.condition, **said[m.condition]} if m.condition in said else tell(m)
    with client_of(stub) as client:
        with pytest.warns(ServiceOddityWarning, match=f"2 records .*{won.condition}, {open_again.condition}") as warned:
            records = client.feed.market_records([market.slug for market in stub.markets])
        paid, state = ({one["id"]: one[name] for one in records} for name in ("payoffs", "status"))
        asked = stub.paths["/v2/resolutions"]
    assert len(warned) == 1
    assert (paid[won.condition], paid[open_again.condition]) == ([0.5, 0.5], None)
    assert (state[won.condition], state[open_again.condition]) == ("resolved", "closed")
    others = [m for m in stub.markets if m.condition not in said]
    assert [paid[m.condition] for m in others] == [m.payoffs for m in others]
    # Twenty markets a request, and only those that are closed.
    assert asked == -(-sum(m.closed is not None for m in stub.markets) // 20)


def test_refusals_of_a_venue_say_what_they_mean() -> None:
    """No key is sent; 451 names the country; an option of another venue is a ConfigError."""
    for options, words in (
        ({"api_key": "a" * 20}, "takes no key"),
        ({"price": "last"}, "route"),
        ({"route": "x"}, "clob"),
    ):
        with pytest.raises(ConfigError, match=words):
            md.Client("polymarket", **options)
    stub = PolymarketStub()
    stub.answer = lambda ask: polymarket_stub.refused(451, {"error": "unavailable"})  # type: ignore[method-assign]
    with client_of(stub) as client, pytest.raises(RequestError, match="country"):
        client.market("will-it-rain-1")


TIMES = st.none() | st.integers(-60, 60 * 24).map(lambda m: to_text(START + m * MINUTE))


@settings(max_examples=8)
@given(
    st.fixed_dictionaries(dict.fromkeys(("start_date_min", "start_date_max", "end_date_min", "end_date_max"), TIMES)),
    st.none() | st.integers(0, 2_000),
    st.none() | st.sets(st.sampled_from([*polymarket_stub.TAGS]), min_size=1),
    st.none() | st.sampled_from(["any", "all"]),
    st.booleans(),
    st.integers(1, 100),
)
def test_filters_of_polymarket_are_those_of_its_markets(
    dates: Any, liquidity: Any, tags: Any, match: Any, are_closed: bool, page: int
) -> None:
    """Dates, liquidity and tags go to the venue in its words, at any page; by default any of the tags is enough."""
    stub = PolymarketStub(count=30, largest_page=page)

    def has(market: Any) -> bool:
        ends = {"start_date": market.opened, "end_date": market.opened + DAY // 2}
        limits = [(ends[name[:-4]], name[-3:], parse_iso(at)) for name, at in dates.items() if at is not None]
        of_market = {*polymarket_stub.tags_of(market.k // 3)}
        return (
            all(at >= limit if end == "min" else at <= limit for at, end, limit in limits)
            and (liquidity is None or 100 * market.k >= liquidity)
            and (tags is None or (tags <= of_market if match == "all" else not tags.isdisjoint(of_market)))
            and (are_closed or market.closed is None)
        )

    how = {"min_liquidity": liquidity, "tags": sorted(tags) if tags else None, "tags_match": match, **dates}
    with client_of(stub) as client:
        frame = client.markets(include_closed=are_closed, **how)
        assert sorted(frame["slug"]) == sorted(market.slug for market in stub.markets if has(market))
        assert client.tags() == [*polymarket_stub.TAGS]
        assert len(client.series()) == 5
        assert len(client.markets(search="rain")) == 30
        assert len(client.events(tags="rain")) == 5
        with pytest.raises(ConfigError, match="one tag"):
            client.events(tags=["rain", "wind"])
        with pytest.raises(NotFoundError, match="tag"):
            client.markets(tags="no-such-tag")


@pytest.mark.parametrize("venue", ["polymarket", "kalshi"])
def test_no_key_is_sent_and_the_address_may_be_another(venue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keys the environment has; an address may be in upper case, and has the path of the venue."""
    for name in ("MARKETDATA_API_KEY", "POLYMARKETDATA_API_KEY", "POLYORDERBOOKS_API_KEY"):
        monkeypatch.setenv(name, "secret-of-this-machine")
    stub: Any = (PolymarketStub if venue == "polymarket" else KalshiStub)()
    asks = list[Any]()

    def logged(ask: Any) -> Any:
        asks.append(ask)
        return stub(ask)

    path = "" if venue == "polymarket" else "/trade-api/v2"
    with simulated_clock(NOW), answered({"api.elections.kalshi.com": logged}):
        client = md.Client(venue, hosts=f"HTTPS://API.Elections.Kalshi.com{path}", frame="polars", progress=False)
        assert len(client.markets()) == 6
        assert client.health()["status"] == "ok"
        span = to_datetime(START), to_datetime(START + DAY)
        assert len(client.prices(client.markets()["slug"][1], *span, "1h")) > 20
    assert asks
    assert not any("secret" in f"{ask.target} {ask.headers} {ask.body!r}" for ask in asks)


def test_names_of_polymarket_may_look_like_others() -> None:
    """A slug that begins like a condition id, and a token of few digits, are found alone and among others."""
    stub = PolymarketStub(count=3)
    tell = stub.record
    others: dict[int, dict[str, Any]] = {0: {"slug": "0x-protocol-rises"}, 1: {"clobTokenIds": '["41", "42"]'}}
    stub.record = lambda m: tell(m) | others.get(m.k, {})  # type: ignore[method-assign]
    answer = stub.answer

    def by_slug(ask: Any) -> Any:
        is_it = ask.path.endswith("/slug/0x-protocol-rises")
        return answer(
            replace(ask, target=ask.target.replace("0x-protocol-rises", stub.markets[0].slug)) if is_it else ask
        )

    stub.answer = by_slug  # type: ignore[method-assign]
    with client_of(stub) as client:
        assert client.market("0x-protocol-rises")["id"] == stub.markets[0].condition
        assert client.market("42")["id"] == stub.markets[1].condition
        records = client.feed.market_records(["0x-protocol-rises", stub.markets[2].condition, str(1001)])
        assert [one["id"] for one in records] == [stub.markets[k].condition for k in (0, 2, 1)]


def test_an_empty_history_of_a_market_that_was_traded_is_no_silence() -> None:
    """A closed market with a volume and no points in its life is named by a warning; a quiet open one is not."""
    stub = PolymarketStub(days=2.0)
    stub.minute_prices = lambda *_: []  # type: ignore[method-assign]
    with client_of(stub) as client:
        for market in stub.markets:
            span = to_datetime(market.opened + HOUR), to_datetime(market.opened + 5 * HOUR), "1h"
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                assert client.prices(market.slug, *span).is_empty()
            assert [("volume" in str(one.message)) for one in warned] == [True] * (market.closed is not None)
