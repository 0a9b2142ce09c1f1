"""Pairs of markets of two venues: what their records say, what they are worth, and who moves first."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import client_of

import marketdata as md
from marketdata.errors import ConfigError, NotTidyError, PairWarning

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def market(name: str, question: str, rules: str = "", **more: Any) -> dict[str, Any]:
    tokens = {"token_ids": [f"{name}-yes", f"{name}-no"], "token_labels": ["Yes", "No"]}
    return {"market_id": name, "question": question, "description": rules, **tokens, **more}


def compared(first: dict[str, Any], second: dict[str, Any], **said: Any) -> dict[str, Any]:
    """What is said of one pair, whatever the order of its markets."""
    one, other = (
        md.pairs([{"market_a": a, "market_b": b, **said}], [first, second]).to_dict("records")[0]
        for a, b in (("a", "b"), ("b", "a"))
    )
    for column in ("verdict", "orientation", "differs", "unknown"):
        assert one[column] == other[column] or (pd.isna(one[column]) and pd.isna(other[column])), column
    return one


CONFIRMED = {"orientation": "same", "confirmed": True}
SCORE = "This market resolves to Yes if A scores more than B."
# False pairs of public catalogues, each with the term that tells them apart.
FALSE_PAIRS = {
    "inverted by words": ("orientation", market("a", "Will the bill pass?"), market("b", "Will the bill not pass?")),
    "inverted by a verb": ("orientation", market("a", "Will A win the cup?"), market("b", "Will A lose the cup?")),
    "inverted outcomes": (
        "orientation",
        market("a", "Bitcoin?") | {"token_labels": ["Up", "Down"]},
        market("b", "Bitcoin?") | {"token_labels": ["Down", "Up"]},
    ),
    "before and by a day": (
        "deadline", market("a", "Will X resign before April 1, 2026?"), market("b", "Will X resign by April 1, 2026?")
    ),
    "another month": (
        "deadline", market("a", "Will rates fall in March 2026?"), market("b", "Will rates fall in April 2026?")
    ),
    "another year": ("deadline", market("a", "Will X resign in 2026?"), market("b", "Will X resign in 2027?")),
    "a day in words and an ISO day": (
        "deadline", market("a", "Will X resign by 2026-03-31?"), market("b", "Will X resign by 30 March 2026?")
    ),
    "another quarter": ("deadline", market("a", "Growth in Q4 2026?"), market("b", "Growth in Q3 2026?")),
    "another hour": (
        "deadline",
        market("a", "Bitcoin above $100k at 5pm ET on May 1, 2026?"),
        market("b", "Bitcoin above 100,000 at 12:00 ET on May 1, 2026?"),
    ),
    "another quarter of an hour": (
        "deadline",
        market("a", "Bitcoin up on May 1, 2026, 5:00PM-5:15PM ET?"),
        market("b", "Bitcoin up on May 1, 2026, 5:15 PM to 5:30 PM ET?"),
    ),
    "scheduled ends": (
        "deadline",
        market("a", "Bitcoin above 100k?", end_date="2026-03-01T00:00:00Z"),
        market("b", "Bitcoin above 100k?", end_date="2026-04-01T00:00:00Z"),
    ),
    "another source": (
        "source",
        market("a", "Bitcoin?", resolutionSource="https://www.binance.com/en/trade/BTC_USDT"),
        market("b", "Bitcoin?", settlement_sources=[{"name": "CF", "url": "https://www.cfbenchmarks.com/data"}]),
    ),
    "another source in the rules": (
        "source",
        market("a", "Rain?", "The source is https://www.weather.gov/nyc."),
        market("b", "Rain?", "The source is https://wunderground.com/nyc."),
    ),
    "above, and at or above": (
        "comparison", market("a", "Will CPI be above 3.0%?"), market("b", "Will CPI be at or above 3.0%?")
    ),
    "above by a field": (
        "comparison",
        market("a", "CPI of 3%?", strike_type="greater", floor_strike=3.0),
        market("b", "CPI of 3% or more?"),
    ),
    "no complement": (
        "comparison", market("a", "Will gold be above $4,000?"), market("b", "Will gold be below $4000?")
    ),
    "another strike": ("strike", market("a", "Bitcoin above $100k?"), market("b", "Bitcoin above 105,000?")),
    "another strike by a field": ("strike", market("a", "Over?", floor_strike=85.5), market("b", "Over 86.5?")),
    "another cut": ("strike", market("a", "Fed cuts by 25 bps?"), market("b", "Fed cuts by 0.5%?")),
    "a tie": (
        "tie",
        market("a", "Will A beat B?", "If the game ends in a tie, this market will resolve 50-50."),
        market("b", "Will A beat B?", "If the game is tied, the market resolves to No."),
    ),
    "a cancelled game": (
        "tie",
        market("a", "Will A beat B?", 'If the game is cancelled, this market will resolve to "No".'),
        market("b", "Will A beat B?", "If the game is postponed, the market is refunded."),
    ),
    "what they paid": (
        "outcome", market("a", "Rain?", resolved_token_id="a-yes"), market("b", "Rain?", resolved_token_id="b-no")
    ),
}  # fmt: skip


@pytest.mark.parametrize(("term", "first", "second"), FALSE_PAIRS.values(), ids=FALSE_PAIRS.keys())
def test_a_false_pair_differs_whatever_is_confirmed(term: str, first: Any, second: Any) -> None:
    """A term that differs decides, also against somebody who says that the rules are the same."""
    for said in (CONFIRMED, {"orientation": "same"}, {**CONFIRMED, term: "same"}):
        row = compared(first, second, **said)
        assert row["verdict"] == "differs", row["why"]
        assert term in row["differs"].split(", "), row["why"]
        assert term in row["why"]


# What no pattern of words tells apart, so that a person has to.
LOOK_ALIKES = [
    ("Will Bitcoin hit $100k by December 31, 2026?", "Bitcoin above $100,000 on December 31, 2026?"),
    ("Will A win the 2028 election?", "Will B win the 2028 election?"),
    ("Will X resign by June 30, 2026?", "Will X be fired by June 30, 2026?"),
    ("Will X announce to leave by June 30, 2026?", "Will X leave office by June 30, 2026?"),
    ("Above 80 degrees in NYC on May 1, 2026?", "Above 80 degrees in Chicago on May 1, 2026?"),
    ("Will rates be cut in March 2026?", "Will rates be cut by March 31, 2026?"),
    ("Will rates be cut 3 times in 2026?", "Will rates be cut at least 3 times in 2026?"),
    ("Exactly 3 cuts in 2026?", "3 or more cuts in 2026?"),
    ("Does A win game 1?", "Does A win the series?"),
    ("Will X resign by March 31?", "Will X resign by March 31, 2027?"),
    ("Inflation above 3% a year in May 2026?", "Inflation above 3% a month in May 2026?"),
    ("CPI above 3% in May 2026?", "Core CPI above 3% in May 2026?"),
    ("Will A have 50% of votes?", "Will A have more than 50% of votes?"),
]


def test_look_alikes_are_for_a_person() -> None:
    """Each is unknown, and names the question and the rules as what to read."""
    for first, second in LOOK_ALIKES:
        row = compared(market("a", first), market("b", second), orientation="same")
        assert row["verdict"] == "unknown", (first, second)
        assert {"question", "rules"} <= {*row["unknown"].split(", ")}


TRUE_PAIRS = {
    "by and before": (market("a", "Resign by March 31, 2026?"), market("b", "Resign before April 1, 2026?"), "same"),
    "numbers": (market("a", "Bitcoin above $100k?"), market("b", "Will Bitcoin be above 100,000?"), "same"),
    "parts of a percent": (market("a", "A cut by 25 bps?"), market("b", "A cut by 0.25%?"), "same"),
    "a limit in other words": (
        market("a", "Will X resign no later than March 31, 2026?"), market("b", "X resigns by March 31, 2026?"), "same"
    ),
    "a rank": (market("a", "Will the song be No. 1?"), market("b", "Will the song be number 1?"), "same"),
    "an hour": (
        market("a", "Bitcoin above $100k at 5pm ET on May 1, 2026?"),
        market("b", "Bitcoin above 100,000 at 17:00 ET on May 1, 2026?"),
        "same",
    ),
    "a quarter": (market("a", "Growth in Q4 2026?"), market("b", "Growth no later than December 31, 2026?"), "same"),
    "the complement": (market("a", "Bitcoin above $100k?"), market("b", "Bitcoin at or below 100k?"), "inverted"),
    "denied": (market("a", "Will it rain?"), market("b", "Will it not rain?"), "inverted"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second", "orientation"), TRUE_PAIRS.values(), ids=TRUE_PAIRS.keys())
def test_a_true_pair_needs_somebody_who_read_both(first: Any, second: Any, orientation: str) -> None:
    """Without that it is unknown and says what to read; with it the tokens that pay alike are named."""
    row = compared(first, second, orientation=orientation)
    assert row["verdict"] == "unknown"
    assert {"source", "rules", "tie"} <= set(row["unknown"].split(", "))
    row = compared(first, second, orientation=orientation, confirmed=True)
    assert (row["verdict"], row["orientation"]) == ("same", orientation)
    known = md.pairs([{"market_a": "a", "market_b": "b", "orientation": orientation}], [first, second])
    assert known["token_b"].tolist() == ["b-yes" if orientation == "same" else "b-no"]


def test_nothing_is_the_same_by_its_title() -> None:
    """Equal questions alone, and equal rules of other questions, are unknown; only all terms together are the same."""
    title = {"question": "Will it rain?"}
    assert compared(market("a", **title), market("b", **title), orientation="same")["verdict"] == "unknown"
    rules = "Yes if it rains. Source: https://www.weather.gov. If the day is cancelled, it resolves to No."
    ends = {"end_date": "2026-03-01T00:00:00Z"}
    whole = [market(name, "Will it rain?", rules, **ends) for name in "ab"]
    assert compared(*whole, orientation="same")["verdict"] == "same"
    assert compared(*whole)["verdict"] == "unknown"
    assert compared(whole[0], market("b", "Will it snow?", rules, **ends), orientation="same")["verdict"] == "unknown"


def test_a_date_that_two_readers_read_in_two_ways_states_nothing() -> None:
    """By March is its start or its end; two dates in one question are no deadline."""
    for question in ("Will it rain by March?", "Will it rain by March 3, 2026 or by April 4, 2026?"):
        row = compared(market("a", question), market("b", "Will it rain by March 31, 2026?"), **CONFIRMED)
        assert "deadline" in row["unknown"]


def test_times_of_two_zones_are_for_a_person() -> None:
    """Only times of one zone are compared; others are named as open."""
    first = market("a", "Bitcoin up at 5pm ET on May 1, 2026?")
    for other in ("Bitcoin up at 21:00 UTC on May 1, 2026?", "Bitcoin up on May 1, 2026?"):
        row = compared(first, market("b", other), orientation="same")
        assert "deadline" in row["unknown"].split(", ")
        assert "17:00 ET" in row["why"]


def test_records_and_tables_of_any_kind_are_read() -> None:
    """Raw records of both venues, frames and lists; markets are named by id, slug or token."""
    gamma = {
        "conditionId": "0x" + "a" * 64, "slug": "rain", "question": "Will it rain?", "endDate": "2026-03-01T00:00:00Z",
        "clobTokenIds": '["7", "8"]', "outcomes": '["Yes", "No"]', "negRisk": False,
    }  # fmt: skip
    kalshi = {"ticker": "KXRAIN-26", "event_ticker": "KXRAIN", "title": "Will it rain?", "status": "active"}
    want = ("0x" + "a" * 64, "KXRAIN-26", "7", "KXRAIN-26:yes")
    tables = [
        {"market_a": ["rain"], "market_b": ["KXRAIN-26"], "orientation": ["same"]},
        {"token_a": ["7"], "token_b": ["KXRAIN-26:yes"]},
        {"market_a": ["8"], "market_b": ["KXRAIN-26:no"], "orientation": ["same"]},
    ]
    columns = ["market_a", "market_b", "token_a", "token_b"]
    for table in tables:
        for frame in (pl.DataFrame(table), pd.DataFrame(table), pl.DataFrame(table).to_arrow()):
            found = md.pairs(frame, [pl.DataFrame([gamma]), pd.DataFrame([kalshi])])
            assert found.select(columns).row(0) == want
    opposite = md.pairs(pl.DataFrame({"token_a": ["7"], "token_b": ["KXRAIN-26:no"]}), [gamma, kalshi])
    assert opposite["orientation"].tolist() == ["inverted"]
    assert md.pairs({"rain": "KXRAIN-26"}, [gamma, kalshi])["verdict"].tolist() == ["unknown"]


def test_sources_of_series_are_those_of_their_markets() -> None:
    """Kalshi names the source in the record of a series or event, and pairs of listed markets are compared by it."""
    listed = []
    for stub in (PolymarketStub(count=2), KalshiStub(count=2)):
        with client_of(stub) as client:
            more = {"series_slug": "KXRAIN"} if stub.venue == "kalshi" else {}
            listed.append(client.markets(**more))
    names = [(listed[0]["market_id"][0], listed[1]["market_id"][0])]
    assert md.pairs(names, listed)["source"].to_list() == ["same"]


@pytest.mark.parametrize(
    ("table", "error", "says"),
    [
        ([("a", "nope")], ConfigError, "'nope', of which there is no record"),
        ([("a", "bb")], ConfigError, "no record"),
        ([{"first": "a"}], NotTidyError, "market_a"),
        ([{"market_a": "a", "market_b": "b", "orientation": "opposite"}], ConfigError, "same, inverted and null"),
        ([{"market_a": "a", "market_b": "b", "source": "yes"}], ConfigError, "same, differs and unknown"),
        ([{"market_a": "a-yes", "market_b": "b-no", "orientation": "same"}], ConfigError, "if it is inverted"),
    ],
)
def test_a_table_that_says_nothing_is_refused(table: Any, error: type[Exception], says: str) -> None:
    """The error names what was wrong and what is allowed."""
    with pytest.raises(error, match=says):
        md.pairs(table, [market("a", "A?"), market("b", "B?")])


def test_candidates_are_proposals_by_words_and_numbers() -> None:
    """The likeliest come first; other numbers are no candidates, and each is unknown until it is read."""
    first = [market("a1", "Will Bitcoin be above 100k in May?"), market("a2", "Will it rain in Paris?")]
    second = [
        market("b1", "Bitcoin above 105k in May?"),
        market("b2", "Bitcoin price above $100,000 in May?"),
        market("b3", "Rain in Paris tomorrow?"),
    ]
    found = md.candidates(pl.DataFrame(first), pl.DataFrame(second))
    assert found.select("market_a", "market_b").rows() == [("a1", "b2"), ("a2", "b3")]
    assert found["score"].is_between(0.4, 1).all()
    assert "same" not in set(md.pairs(found, [*first, *second])["verdict"])
    assert len(md.candidates(pl.DataFrame(first), pl.DataFrame(second), least=1.0)) == 0


def test_candidates_have_ends_that_a_day_or_a_zone_explains() -> None:
    """Before 1 April and by 1 April may be one question; March and April are not."""
    first = [market("a", "Will X resign before April 1, 2026?")]
    second = [market(f"b{n}", f"X resigns {when}?") for n, when in enumerate(("by April 1, 2026", "in April 2026"))]
    assert md.candidates(pl.DataFrame(first), pl.DataFrame(second))["market_b"].to_list() == ["b0"]


# What pairs are worth


def level_rows(market_id: str, token: str, books: dict[int, tuple[list[Any], list[Any]]]) -> list[dict[str, Any]]:
    rows = []
    for minute, sides in books.items():
        for side, levels in zip(("bid", "ask"), sides, strict=True):
            for level, (price, size) in enumerate(levels or [(None, None)]):
                ts, at = T0 + dt.timedelta(minutes=minute), None if price is None else level
                rows.append({"ts": ts, "market_id": market_id, "token_id": token, "token_label": None, "side": side,
                             "level": at, "price": price, "size": size})  # fmt: skip
    return rows


SCHEMA = {
    "ts": pl.Datetime("us", "UTC"), "market_id": pl.String, "token_id": pl.String, "token_label": pl.String,
    "side": pl.String, "level": pl.Int64, "price": pl.Float64, "size": pl.Float64,
}  # fmt: skip
sides = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 20)), max_size=3, unique_by=lambda level: level[0])
histories = st.dictionaries(st.integers(0, 6), st.tuples(sides, sides), max_size=5)


def ordered(history: dict[int, Any]) -> dict[int, Any]:
    return {
        minute: (
            sorted(((p / 100, float(s)) for p, s in bids), reverse=True),
            sorted((p / 100, float(s)) for p, s in asks),
        )
        for minute, (bids, asks) in sorted(history.items())
    }


def bought(levels: list[Any], size: float | None, rate: float) -> tuple[float, float, float] | None:
    """Mean price, shares and fees a share of buying; the best level without a size."""
    if not levels:
        return None
    if size is None:
        return levels[0][0], levels[0][1], rate
    left, paid = size, 0.0
    for price, there in levels:
        part = min(left, there)
        paid, left = paid + part * price, left - part
    return None if left > 1e-9 else (paid / size, size, paid / size * rate)


@given(histories, histories, st.sampled_from([None, 5.0, 12.0]), st.sampled_from([0, 2]), st.sampled_from([0.0, 0.02]),
       st.sampled_from(["same", "inverted"]))  # fmt: skip
def test_a_spread_is_what_a_plain_loop_buys(a, b, size, age, rate, orientation) -> None:
    """Both legs are bought with fees, of books that are young enough; a missing side or depth is null."""
    a, b = ordered(a), ordered(b)
    books = pl.DataFrame(level_rows("a", "a-yes", a) + level_rows("b", "b-yes", b), SCHEMA)
    table = [{"market_a": "a", "market_b": "b", "orientation": orientation, "confirmed": True}]
    found = md.pairs(table, [market("a", "A?"), market("b", "B?")])
    more = {} if age == 0 else {"max_age": f"{age}m"}
    out = md.pair_spread(found, books, fees=md.Fees.flat(rate), size=size, width="1m", **more)
    assert out["ts"].to_list() == [T0 + dt.timedelta(minutes=minute) for minute in sorted({*a, *b})]
    for row in out.rows(named=True):
        minute = int((row["ts"] - T0).total_seconds() // 60)
        seen = [{m: book for m, book in books.items() if minute - age <= m <= minute} for books in (a, b)]
        last = [books[max(books)] if books else ([], []) for books in seen]
        buys = [asks for _, asks in last]
        sells = [[(1 - price, there) for price, there in bids] for bids, _ in last]
        if orientation == "inverted":
            buys[1], sells[1] = sells[1], buys[1]
        gains = []
        for name, legs in (("buy_a", (buys[0], sells[1])), ("buy_b", (buys[1], sells[0]))):
            costs = [bought(levels, size, rate) for levels in legs]
            want = None
            if None not in costs:
                fees = [cost[0] * rate if size is None else cost[2] for cost in costs]
                want = 1 - sum(cost[0] for cost in costs) - sum(fees)
                gains.append((want, min(cost[1] for cost in costs)))
            assert row[name] == pytest.approx(want, abs=1e-12) if want is not None else row[name] is None
        assert (row["locked"] is None) == (not gains)
        if gains:
            assert row["locked"] == pytest.approx(max(gains)[0], abs=1e-12)
        for name, books in zip(("age_a", "age_b"), seen, strict=True):
            assert row[name] == (60.0 * (minute - max(books)) if books else None)


def test_a_pair_without_a_gap_has_none_and_a_false_one_locks_nothing_in() -> None:
    """Two books that are alike cost the spread; pairs that differ have no gain, and each doubt is a warning."""
    books = md.testing.books("polars", markets=2, buckets=3)
    rain, snow = ({"market_id": m, "question": "A?", "token_ids": [t + "1", t + "2"], "token_labels": ["Yes", "No"]}
                  for m, t in (("rain", "1"), ("snow", "2")))  # fmt: skip
    names = {"market_a": "rain", "market_b": "snow"}
    rows = books.filter(pl.col("market_id") == "rain").cast({"market_id": pl.String, "token_id": pl.String})
    copy = rows.with_columns(market_id=pl.lit("snow"), token_id=pl.col("token_id").str.replace("1", "2"))
    alike = md.pairs([{**names, **CONFIRMED}], [rain, snow])
    spread = md.pair_spread(alike, pl.concat([rows, copy]), fees=0, width="1m")
    assert (spread["locked"] <= 0).all()
    assert spread["locked"].null_count() == 0
    with pytest.warns(PairWarning, match="not known to be the same"):
        md.pair_spread(md.pairs([{**names, "orientation": "same"}], [rain, snow]), books, fees=0)
    with pytest.warns(PairWarning, match="which tokens pay alike"):
        assert len(md.pair_spread(md.pairs([names], [rain, snow]), books, fees=0)) == 0
    false = md.pairs([{**names, **CONFIRMED}], [rain | {"question": "Over 5?"}, snow | {"question": "Over 6?"}])
    with pytest.warns(PairWarning, match="nothing can be locked in"):
        assert md.pair_spread(false, books, fees=0)["locked"].null_count() == 3


def test_frames_of_two_widths_are_not_compared() -> None:
    """The error says how to bring them together, and that works; fees of each venue may be given apart."""
    books = md.testing.books("polars", markets=2, buckets=120)
    minutes, hours = (books.filter(pl.col("market_id") == name) for name in ("rain", "snow"))
    minutes, hours = md.resample(minutes, "1m", width="1m"), md.resample(hours, "1h", width="1m")
    table = [{"market_a": "rain", "market_b": "snow", **CONFIRMED}]
    records = [market("rain", "A?") | {"token_ids": ["11", "12"]}, market("snow", "A?") | {"token_ids": ["21", "22"]}]
    found = md.pairs(table, records)
    with pytest.raises(ConfigError, match=r"1m and 1h(?s:.*)md.resample\(frame, '1h'\)"):
        md.pair_spread(found, (minutes, hours), fees=0)
    out = md.pair_spread(found, (md.resample(minutes, "1h"), hours), fees=(0, md.Fees.flat(0.1)))
    assert out.height == 2
    assert (out["fees_buy_a"] > 0).all()


def walks(lag: int, seed: int, minutes: int = 150, events: int = 10) -> tuple[Any, pl.DataFrame]:
    """Pairs whose second price follows the first some minutes later, with noise of its own."""
    rng, rows, records, table = np.random.default_rng(seed), [], [], []
    for event in range(events):
        walk = np.clip(0.5 + np.cumsum(rng.normal(0, 0.004, minutes + 20)), 0.05, 0.95)
        prices = walk[10 : minutes + 10], walk[10 - lag : minutes + 10 - lag] + rng.normal(0, 0.004, minutes)
        for side, price in zip("ab", prices, strict=True):
            name = f"{side}{event}"
            records.append(market(name, f"Question {event}?"))
            times = [T0 + dt.timedelta(minutes=n) for n in range(minutes)]
            rows.append(pl.DataFrame({"ts": times, "price": price}).with_columns(
                market_id=pl.lit(name), token_id=pl.lit(f"{name}-yes"), token_label=pl.lit("Yes")))  # fmt: skip
        table.append({"market_a": f"a{event}", "market_b": f"b{event}", **CONFIRMED})
    return md.pairs(table, pl.DataFrame(records)), pl.concat(rows)


def test_a_simulated_lag_is_inside_its_interval() -> None:
    """In at least 19 of 20 samples, whichever venue moves first, and the slopes have intervals by pair."""
    lags, inside = [f"{minutes}m" for minutes in range(-3, 4)], 0
    for seed in range(20):
        lag = seed % 5 - 2
        pairs, prices = walks(lag, seed)
        found = md.lead_lag(pairs, prices, lags, width="1m", resamples=200)
        inside += found.low <= 60 * lag <= found.high
    assert inside >= 19
    table = found.lags.filter(pl.col("lag") == found.lag)
    assert table["clusters"].item() == 10
    assert table["low"].item() < table["slope"].item() < table["high"].item()
    assert "moves first" in repr(found)


def test_coarse_prices_seem_to_follow_so_they_are_refused() -> None:
    """Hours beside minutes are an error that names resample; few pairs have no interval."""
    pairs, prices = walks(1, 0, events=2)
    every_tenth = prices.filter(~pl.col("market_id").str.starts_with("b") | (pl.col("ts").dt.minute() % 10 == 0))
    with pytest.raises(ConfigError, match=r"seem to move first.*md.resample"):
        md.lead_lag(pairs, every_tenth, ["0s", "1m"], width="1m")
    found = md.lead_lag(pairs, prices, ["0s", dt.timedelta(minutes=1)], width="1m")
    assert not {"low", "high"} & {*md.lead_lag(pairs, prices, ["0s"], "1m", interval=None).lags.columns}
    assert (found.lag, math.isnan(found.low)) == (60.0, True)
    with pytest.raises(ConfigError, match="whole number of buckets"):
        md.lead_lag(pairs, prices, ["90s"], width="1m")
