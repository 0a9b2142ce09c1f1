"""The simulator: what it promises about its data."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from reference.columns import levels_of

import marketdata as md
from marketdata.archive.reading import Reader
from marketdata.simulation import END
from marketdata.simulation.market import Observations, SimulatedMarket, observe, simulate_market
from marketdata.simulation.universe import MANY_TOKENS, MarketSpec, event_specs, market_specs
from marketdata.times import to_micros

MINUTES = 3 * 1440


def specs(seed: int = 0, events: int = 3, markets: int = 4) -> list[MarketSpec]:
    return [
        spec
        for event in event_specs(events)
        for spec in market_specs(event, markets, seed, three=event.number == 0, wide=event.number == events - 1)
    ]


def whole(spec: MarketSpec, minutes: int = MINUTES, levels: int = 12) -> tuple[SimulatedMarket, Observations]:
    market = simulate_market(spec, minutes)
    (part,) = observe(market, levels)
    return market, part


@pytest.fixture(scope="module")
def simulated() -> list[tuple[SimulatedMarket, Observations]]:
    return [whole(spec) for spec in specs() if len(spec.labels) == 2]


def test_equal_seeds_give_equal_data_and_others_do_not() -> None:
    """One seed gives the same books bit for bit, another seed other ones."""
    first, second = (whole(specs(seed=4)[0])[1].books for _ in range(2))
    other = whole(specs(seed=5)[0])[1].books
    assert np.array_equal(levels_of(first), levels_of(second))
    assert np.array_equal(first.ts, second.ts)
    assert levels_of(first).shape != levels_of(other).shape or not np.array_equal(levels_of(first), levels_of(other))


def test_a_market_does_not_depend_on_how_many_others_there_are() -> None:
    """The same market of a larger world has the same history."""
    assert specs(markets=1)[0] == specs(markets=6, events=8)[0]


def test_books_of_a_pair_mirror_each_other(simulated: list[tuple[SimulatedMarket, Observations]]) -> None:
    """A bid for one token at p is an ask for the other at 1 - p of the same size."""
    for _, part in simulated[:2]:
        yes, no = (part.books.part(token, token + 1) for token in (0, 1))
        both = np.intersect1d(yes.ts, no.ts)
        assert len(both) > 0.98 * len(yes)
        yes, no = (books.take(np.flatnonzero(np.isin(books.ts, both))) for books in (yes, no))
        for side, other in ((yes.bids, no.asks), (yes.asks, no.bids)):
            assert np.array_equal(side.counts, other.counts)
            assert np.allclose(1 - side.price[side.levels], other.price[other.levels], rtol=0, atol=1e-9)
            assert np.array_equal(side.size[side.levels], other.size[other.levels])


def test_every_book_is_in_order_and_inside_of_zero_and_one(
    simulated: list[tuple[SimulatedMarket, Observations]],
) -> None:
    """Bids fall, asks rise, prices lie between 0 and 1, sizes are positive, and a book is locked at most."""
    for _, part in simulated:
        books = part.books
        price, size = levels_of(books).T
        assert price.min() > 0
        assert price.max() < 1
        assert size.min() >= 0.02
        side = np.repeat(np.arange(len(books.counts)), books.counts)
        same = side[1:] == side[:-1]
        step = np.diff(price)
        assert (step[same & (side[1:] % 2 == 0)] < 0).all()
        assert (step[same & (side[1:] % 2 == 1)] > 0).all()
        counts = books.counts.reshape(-1, 2)
        starts = np.concatenate(([0], np.cumsum(books.counts)))[:-1].reshape(-1, 2)
        full = (counts > 0).all(axis=1)
        assert (price[starts[full, 1]] - price[starts[full, 0]] >= 0).all()


def test_the_odd_things_of_real_books_occur(simulated: list[tuple[SimulatedMarket, Observations]]) -> None:
    """One-sided, empty and locked books, both ticks inside one market, and missing minutes and hours are present."""
    counts = np.concatenate([s.books.counts for _, s in simulated]).reshape(-1, 2)
    sides = (counts > 0).sum(axis=1)
    assert 0.01 < (sides == 1).mean() < 0.15
    assert (sides == 0).any()
    spreads = np.concatenate([s.metrics.values["spread"] for _, s in simulated])
    assert (spreads == 0).any()
    assert np.isnan(spreads).any()
    ticks = [np.rint(levels_of(s.books)[:, 0] * 1000) % 10 == 0 for _, s in simulated]
    assert any(t.any() and not t.all() for t in ticks)
    steps = np.concatenate([np.diff(market.path.ts) for market, _ in simulated]) / 60e6
    assert (steps == 2).any()
    assert (steps > 60).any()


def test_prices_are_probabilities_that_resolve(simulated: list[tuple[SimulatedMarket, Observations]]) -> None:
    """Prices stay in [0, 1]; a resolved market ends at 1 for its winner and 0 for the others, an open one does not."""
    resolved = 0
    for market, part in simulated:
        prices = part.prices
        assert prices.price.min() >= 0
        assert prices.price.max() <= 1
        last = {prices.tokens[t].token_id: prices.price[prices.token == t][-1] for t in (0, 1)}
        facts = market.record_fields()
        if facts["status"] == "resolved":
            resolved += 1
            assert last.pop(facts["resolved_token_id"]) == 1.0
            assert list(last.values()) == [0.0]
        else:
            assert facts["resolved_token_id"] is None
            assert 0 < min(last.values()) < max(last.values()) < 1
    assert 0 < resolved < len(simulated)


def test_the_price_is_a_martingale() -> None:
    """Over many markets the favourite pays as often as its price in the middle said."""
    middles, paid = [], []
    for spec in specs(seed=11, events=50, markets=5):
        if len(spec.labels) != 2:
            continue
        path = simulate_market(spec, 100).path
        if path.winner is not None:
            middles.append(path.probability[len(path.ts) // 2, 0])
            paid.append(path.winner == 0)
    assert len(paid) > 100
    error = np.sqrt(np.mean(np.array(middles) * (1 - np.array(middles))) / len(paid))
    assert abs(np.mean(paid) - np.mean(middles)) < 4 * error


def test_volume_never_falls_and_comes_in_bursts(simulated: list[tuple[SimulatedMarket, Observations]]) -> None:
    """Volume is what was traded so far: it never falls, and a few minutes make much of it."""
    for _, part in simulated:
        step = np.diff(part.metrics.values["volume"])
        assert (step >= 0).all()
        assert step.max() > 10 * np.median(step)


def test_markets_of_three_and_of_210_tokens_exist() -> None:
    """One market has three tokens and one has 210, and the probabilities of each sum to 1."""
    by_size = {len(spec.labels): spec for spec in specs()}
    assert sorted(by_size) == [2, 3, MANY_TOKENS]
    for size in (3, MANY_TOKENS):
        market, part = whole(by_size[size])
        assert np.allclose(market.path.probability.sum(axis=1), 1.0)
        assert len(part.books.tokens) == size
        assert part.books.is_sorted
        assert part.prices.is_sorted


def test_a_long_history_is_drawn_in_parts_of_bounded_size() -> None:
    """Longer histories come in more parts, in time order and without an overlap."""
    market = simulate_market(specs()[1], 2_000)
    observed = [s.books.ts for s in observe(market, 1_400)]
    assert len(observed) > 1
    assert all(a.max() < b.min() for a, b in itertools.pairwise(observed))


@pytest.fixture(scope="module")
def archive() -> md.Archive:
    return md.simulate(events=2, days=1, markets=2, seed=3)


def test_the_archive_says_that_it_is_simulated(archive: md.Archive) -> None:
    """Every record is marked, and so is the archive."""
    assert archive.simulated
    for kind in ("series", "events", "markets"):
        records = archive.records(kind)
        assert records
        assert all(r["slug"].startswith("simulated-") for r in records)
    assert all(r["question"].startswith("Simulated:") and r["simulated"] for r in archive.records("markets"))
    assert all(r["title"].startswith("Simulated:") for kind in ("series", "events") for r in archive.records(kind))


def test_arguments_give_the_size(archive: md.Archive) -> None:
    """Events, markets of two, days and levels are what the arguments say, beside the two wide markets."""
    markets = archive.records("markets")
    assert len(archive.records("events")) == 2
    assert sorted(len(m["tokens"]) for m in markets) == [2, 2, 2, 2, 3, MANY_TOKENS]
    frame = archive.books([m["id"] for m in markets if len(m["tokens"]) == 2])
    assert frame["level"].max() == 11
    first, last = (to_micros(frame["ts"].agg(f), f) for f in ("min", "max"))
    assert END - 1440 * 60_000_000 <= first < last < END


def test_what_was_simulated_is_what_the_archive_holds(archive: md.Archive) -> None:
    """The archive gives back every level and price that was drawn."""
    spec = specs(seed=3, events=2, markets=2)[0]
    _, part = whole(spec, 1440)
    held = Reader(archive).columns("books", spec.market_id, None, "1m")
    assert np.array_equal(held.ts, part.books.ts)
    assert np.array_equal(held.counts, part.books.counts)
    assert np.array_equal(levels_of(held), levels_of(part.books))
    assert np.array_equal(Reader(archive).columns("prices", spec.market_id, None, "1m").price, part.prices.price)


def test_simulating_twice_into_one_folder_changes_nothing(tmp_path) -> None:
    """A second run with the same arguments leaves the same rows."""
    rows = []
    for _ in range(2):
        archive = md.simulate(tmp_path / "a", events=1, days=0.02, markets=1)
        market = archive.records("markets")[0]["id"]
        rows.append(archive.books(market))
    assert rows[0].equals(rows[1])


def test_arguments_out_of_range_are_named() -> None:
    """An argument out of range is refused before anything is written, by name."""
    for name, wrong in [("events", 0), ("days", 0), ("seed", -1), ("markets", 1.5), ("levels", "9"), ("days", np.nan)]:
        with pytest.raises(md.errors.ConfigError, match=name):
            md.simulate(**{name: wrong})


@pytest.mark.soak
def test_memory_does_not_grow_with_the_size(tmp_path) -> None:
    """Ten times the markets need less than twice the memory."""
    # Not ru_maxrss, which a new program inherits from what started it.
    code = (
        "import sys, marketdata as md\n"
        "md.simulate(sys.argv[1], events=int(sys.argv[2]), markets=4, days=14, levels=20)\n"
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(status['VmHWM'].split()[0])"
    )
    peaks = [
        int(subprocess.check_output([sys.executable, "-c", code, str(tmp_path / events), events], text=True))
        for events in ("2", "20")
    ]
    print(f"\npeak memory: {peaks[0] / 1024:.0f} MB for 8 markets, {peaks[1] / 1024:.0f} MB for 80")
    assert peaks[1] < 2 * peaks[0]


def test_trades_fit_the_books_of_their_minute() -> None:
    """Each print is at the best price of its side, no larger than what is there, and all of them are complete."""
    archive = md.simulate(events=1, days=0.2, seed=4, frame="polars")
    trades = archive.trades()
    assert len(trades) > 50
    best = md.bbo(archive.books()).select("ts", "token_id", "best_bid", "best_bid_size", "best_ask", "best_ask_size")
    joined = trades.with_columns(ts=pl.col("ts").dt.truncate("1m")).join(best, on=["ts", "token_id"], how="left")
    is_buy = pl.col("side").cast(pl.String) == "buy"
    price = pl.when(is_buy).then("best_ask").otherwise("best_bid")
    size = pl.when(is_buy).then("best_ask_size").otherwise("best_bid_size")
    assert joined.select((pl.col("price") == price).all(), (pl.col("size") <= size + 1e-9).all()).row(0) == (True, True)
    assert trades["trade_id"].n_unique() == len(trades)
    states = archive.coverage().filter(pl.col("view") == "trades")["state"]
    assert states.unique().to_list() == ["final"]
