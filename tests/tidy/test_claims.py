"""Ladders of thresholds, nested deadlines and ranges: distributions and contradictions, by loops over worlds."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import coded_series as coded
from reference.columns import ladders
from reference.kinds import FRAME_KINDS, close, fewest, of_kind, rows
from reference.markets import pairs, tops
from reference.measures import SLACK, exact, legs

import marketdata as md
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.columns import Token

START = 1_767_225_600_000_000
MINUTE = 60_000_000
COMPARE = {">": float.__gt__, ">=": float.__ge__, "<": float.__lt__, "<=": float.__le__}
T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def records(markets: int, **columns: Any) -> pl.DataFrame:
    """Records of the markets of one event."""
    ids = [f"m{i}" for i in range(markets)]
    return pl.DataFrame({
        "market_id": ids, "token_ids": [[f"{i}0", f"{i}1"] for i in range(markets)],
        "token_labels": [["Yes", "No"]] * markets, "event_id": ["e"] * markets, **columns,
    })  # fmt: skip


@st.composite
def ladders_of_prices(draw: st.DrawFn) -> tuple[Any, list[tuple[str, float]], dict[tuple[int, int], float]]:
    """Prices of Yes at two times, some of them missing, and what each market claims, no border twice."""
    borders = draw(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=5, unique=True))
    claims = [
        ({True: (">", "<="), False: (">=", "<")}[is_above][draw(st.integers(0, 1))], float(value))
        for value, is_above in borders
    ]
    price = {
        (i, k): draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0]))
        for i in range(len(claims)) for k in range(2) if draw(st.integers(0, 4))
    }  # fmt: skip
    who = [Token(f"m{i}", f"{i}0", "Yes") for i in range(len(claims))]
    picks = sorted(price)
    series = coded(
        tuple(who), np.array([i for i, _ in picks], np.int32),
        np.array([START + k * MINUTE for _, k in picks], np.int64), {"price": np.array([price[one] for one in picks])},
    )  # fmt: skip
    return series, claims, price


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), case=ladders_of_prices())
def test_the_distribution_of_a_ladder_is_the_difference_of_its_prices(kind: str, case: Any) -> None:
    """Between two borders lies what the one leaves of the other; null where a market of the interval has no price."""
    series, claims, price = case
    border = {i: (value, comparison in (">", "<=")) for i, (comparison, value) in enumerate(claims)}
    order = sorted(border, key=border.__getitem__)
    want = []
    for k in sorted({k for _, k in price}):
        below: list[float | None] = [0.0]
        for i in order:
            p = price.get((i, k))
            below.append(None if p is None else 1 - p if claims[i][0].startswith(">") else p)
        ends = [None, *(claims[i][1] for i in order), None]
        for low, high, a, b in zip(ends[:-1], ends[1:], below, [*below[1:], 1.0], strict=True):
            mass = None if a is None or b is None else b - a
            want.append((START + k * MINUTE, "e", low, high, mass, None))
    given_records = records(len(claims), strike=[v for _, v in claims], comparison=[c for c, _ in claims])
    got = md.event_distribution(of_kind(series, kind), given_records)
    assert close([(*row[:4], *row[6:]) for row in rows(got)], want)


@fewest
@given(case=ladders_of_prices())
def test_the_hazard_of_deadlines_is_of_those_that_are_left(case: Any) -> None:
    """F(t2) - F(t1) over 1 - F(t1); the last interval has none."""
    series, claims, price = case
    days = [T0 + dt.timedelta(days=float(v), hours=float(c in (">", "<="))) for c, v in claims]
    order = sorted(range(len(days)), key=days.__getitem__)
    want = []
    for k in sorted({k for _, k in price}):
        before: float | None = 0.0
        for i in order:
            p = price.get((i, k))
            known = p is not None and before is not None and before < 1
            want.append((p - before) / (1 - before) if known else None)  # type: ignore[operator]
            before = p
        want.append(None)
    got = md.event_distribution(of_kind(series, "polars"), records(len(claims), deadline=days))
    assert got["hazard"].to_list() == pytest.approx(want)
    assert got["until"].drop_nulls().to_list() == [days[i] for i in order] * (len(got) // (len(days) + 1))


def worlds(claims: list[tuple[str, float]]) -> list[tuple[bool, ...]]:
    """What all markets pay, for each number that there could be."""
    return [tuple(COMPARE[c](x / 2, v) for c, v in claims) for x in range(-3, 13)]


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), case=ladders_of_prices())
def test_contradictions_are_pairs_of_tokens_of_which_one_pays_in_every_world(kind: str, case: Any) -> None:
    """Two tokens that cost less than 1 although one of them pays, whatever happens."""
    series, claims, price = case
    border = {i: (value, comparison in (">", "<=")) for i, (comparison, value) in enumerate(claims)}
    want = set()
    for k, (i, j) in product(range(2), product(range(len(claims)), repeat=2)):
        if i == j or border[i] > border[j]:
            continue
        for a, b in product((0, 1), repeat=2):
            is_sure = all((world[i] != a) or (world[j] != b) for world in worlds(claims))
            p, q = price.get((i, k)), price.get((j, k))
            if is_sure and p is not None and q is not None:
                amount = 1 - (1 - p if a else p) - (1 - q if b else q)
                if amount > 1e-9:
                    want.add((START + k * MINUTE, f"m{i}", f"{i}{a}", f"m{j}", f"{j}{b}", round(amount, 9)))
    given_records = records(len(claims), strike=[v for _, v in claims], comparison=[c for c, _ in claims])
    got = rows(md.event_contradictions(of_kind(series, kind), given_records))
    assert {(ts, *map(str, ids), round(amount, 9)) for ts, _, *ids, amount in got} == want
    assert len(got) == len(want)


@fewest
@given(books=pairs(), size=st.sampled_from([None, 0.5, 100]), fee=st.sampled_from([0.0, 0.05]))
def test_the_profit_of_a_contradiction_equals_a_plain_walk(books: Any, size: float | None, fee: float) -> None:
    """Yes of the wider claim and No of the narrower one, level by level, with the fees of both; null without a book."""
    sides = {(*token[:2], ts): asks for (token, ts), (_, asks) in ladders(books).items()}
    mids = {(token.token_id, ts): values[4] for (token, ts), values in tops(books).items()}
    fees = md.Fees.quadratic(fee, decimals=None)
    want = []
    for ts in sorted({ts for *_, ts in sides}):
        # m0 is above 1, and m1 above 2, so that Yes of m0 or No of m1 pays.
        each = [sides.get(("m0", "00", ts), []), sides.get(("m1", "11", ts), [])]
        wide, narrow = mids.get(("00", ts)), mids.get(("10", ts))
        amount = None if wide is None or narrow is None else narrow - wide
        is_cheap = all(each) and sum(levels[0][0] for levels in each) < 1 - SLACK
        if not is_cheap and (amount is None or amount <= 1e-9):
            continue
        sets = None if not all(each) else min(levels[0][1] for levels in each) if size is None else Fraction(size)
        if sets is None or any(sum(s for _, s in levels) < sets * (1 - SLACK) for levels in each):
            want.append((ts, amount, None, None, None))
            continue
        taken = [one for levels in each for one in legs(levels, sets)]
        cost = sum(p * s + exact("quadratic", fee, p, s) for p, s in taken)
        want.append((ts, amount, float(sets), float(cost), float(sets - cost)))
    ladder = records(2, strike=[1.0, 2.0], comparison=[">", ">"])
    got = rows(md.event_contradictions(of_kind(books, "polars"), ladder, fees=fees, size=size))
    assert {row[1:6] for row in got} <= {("e", "m0", "00", "m1", "11")}
    least = 1e-9 * max((row[3] or 0 for row in want), default=0)
    assert close([(row[0], *row[6:]) for row in got], want, digits=1e-9, least=max(least, 1e-12))


PRICES = md.testing.prices("polars", markets=3, buckets=1)
THREE = md.testing.markets("polars", markets=3)
EXCLUSIVE = THREE.with_columns(
    floor_strike=pl.Series([None, 40.0, 42.0]), cap_strike=pl.Series([40.0, 41.0, None]),
    strike_type=pl.Series(["less", "between", "greater"]), exclusive=True, open_list=False,
)  # fmt: skip


def test_ranges_that_exclude_each_other_are_scaled_as_probabilities() -> None:
    """Less than 40, 40 to 41, more than 42: their prices over the sum; null where the list of markets is open."""
    got = md.event_distribution(PRICES, EXCLUSIVE)
    assert got.select("lower", "upper").rows() == [(None, 40.0), (40.0, 41.0), (42.0, None)]
    shares = md.probabilities(PRICES, EXCLUSIVE)
    by_market = dict(zip(shares["market_id"].to_list(), shares["probability"].to_list(), strict=True))
    assert got["probability"].to_list() == pytest.approx([by_market[m] for m in THREE["market_id"]])
    opened = md.event_distribution(PRICES, EXCLUSIVE.with_columns(open_list=True))
    assert opened["probability"].to_list() == [None] * 3
    with pytest.warns(md.errors.MissingRecordsWarning):
        fewer = md.event_distribution(PRICES, EXCLUSIVE.head(2))
    assert fewer["probability"].to_list() == [None] * 2


def asked(*questions: str, **more: Any) -> pl.DataFrame:
    return THREE.head(len(questions)).with_columns(question=pl.Series(questions)).with_columns(**more)


@pytest.mark.parametrize(("questions", "ends"), [
    (("Will X be above $100k on March 3?", "Will X be above $1.1M on March 3?"), [1e5, 1.1e6]),
    (("Will ETH be above $2000 on May 5?", "Will ETH be above $2100 on May 5?"), [2000.0, 2100.0]),
    (("Will CPI be at or below 3.0% in May 2026?", "Will CPI be at or below 2.5% in May 2026?"), [2.5, 3.0]),
    (("Will A resign by March 31, 2026?", "Will A resign before 2027?"),
     [dt.datetime(2026, 4, 1, tzinfo=dt.UTC), dt.datetime(2027, 1, 1, tzinfo=dt.UTC)]),
])  # fmt: skip
def test_an_order_is_read_from_questions_that_differ_in_one_number_or_deadline(questions: Any, ends: list[Any]) -> None:
    """Nothing needs to be given where the questions say it."""
    got = md.event_distribution(PRICES, asked(*questions))
    column = "upper" if isinstance(ends[0], float) else "until"
    assert got[column].drop_nulls().to_list() == ends


@pytest.mark.parametrize(("found", "why"), [
    (asked("Will X reach $100k by May 1?", "Will X reach $110k by May 1?"), "does not say whether above or below"),
    (asked("Above 100 on March 3?", "Above 110 on March 4?"), "differ in more than a number"),
    (asked("Above 100 by March 3, 2026?", "Above 110 by March 4, 2026?"), "differ in 2 numbers and days"),
    (asked("Above 100?", "Above 100?"), "do not differ"),
    (asked("Will A win?", "Will B win?"), "differ in more than a number"),
    (asked("Will A not resign by May 1, 2026?", "Will A not resign by June 1, 2026?"), "denies"),
    (asked("Will A resign by March?", "Will A resign by June?"), "differ in more than a number or a day"),
    (asked("A?", "B?", strike=pl.Series([1.0, None]), comparison=pl.lit(">")), "strike None"),
    (asked("A?", "B?", strike=1.0, comparison=pl.lit(">")), "have one border"),
    (asked("A?", "B?", strike=pl.Series([1.0, 2.0]), comparison=pl.lit("above")), "allowed are a number and one of"),
    (asked("Below 1?", "Below 2?", strike=pl.Series([1.0, 2.0]), comparison=pl.lit(">")), "says <"),
    (asked("A?", "B?", strike=pl.Series([1.0, 2.0]), comparison=pl.lit(">"), exclusive=True), "exclude each other"),
    (EXCLUSIVE.with_columns(exclusive=False), "add exclusive=True and open_list=False"),
    (EXCLUSIVE.drop("open_list"), "add open_list=False"),
    (THREE.drop("event_id", "event_slug", strict=False), "event_id"),
])  # fmt: skip
def test_an_order_that_is_not_known_is_an_error_that_says_what_to_give(found: Any, why: str) -> None:
    """No order is guessed."""
    with pytest.raises(NotTidyError, match=why):
        md.event_distribution(PRICES, found)
    with pytest.raises(NotTidyError, match=why):
        md.event_contradictions(PRICES, found)


def test_records_of_venues_say_their_order_themselves() -> None:
    """Strikes in the fields of Kalshi, days in the questions of Polymarket; a frame of rows and a list are alike."""
    stated = [("a", "greater", 5800.0), ("b", "greater", 5825.0)]
    of_kalshi = [
        {"ticker": f"KX-{name}", "event_ticker": "KX", "title": "Will the index be above on May 5?", "status": "active",
         "strike_type": kind, "floor_strike": floor, "mutually_exclusive": False}
        for name, kind, floor in stated
    ]  # fmt: skip
    days = [("March 31", "2026-03-31T12:00:00Z"), ("December 31", "2027-01-01T00:00:00Z")]
    of_polymarket = [
        {"conditionId": f"0x{i}" + "0" * 63, "slug": f"by-{i}", "question": f"Will A resign by {day}?",
         "outcomes": '["Yes", "No"]', "clobTokenIds": f'["{i}1", "{i}2"]', "endDate": end, "negRisk": False,
         "events": [{"slug": "resigns"}]}
        for i, (day, end) in enumerate(days)
    ]  # fmt: skip
    ends = {
        "upper": [5800.0, 5825.0],
        "until": [dt.datetime(y, m, 1, tzinfo=dt.UTC) for y, m in ((2026, 4), (2027, 1))],
    }
    for rows_of_venue, ids, column in (
        (of_kalshi, [("KX-a", "KX-a:yes"), ("KX-b", "KX-b:yes")], "upper"),
        (of_polymarket, [("0x0" + "0" * 63, "01"), ("0x1" + "0" * 63, "11")], "until"),
    ):
        prices = pl.DataFrame({
            "ts": T0, "market_id": [market for market, _ in ids], "token_id": [token for _, token in ids],
            "token_label": "Yes", "price": [0.3, 0.4],
        }, schema_overrides={"ts": pl.Datetime("us", "UTC")})  # fmt: skip
        got = [md.event_distribution(prices, given) for given in (rows_of_venue, pl.DataFrame(rows_of_venue))]
        assert got[0].equals(got[1])
        assert got[0][column].drop_nulls().to_list() == ends[column]
        mass = [0.7, -0.1, 0.4] if column == "upper" else [0.3, 0.1, 0.6]
        assert got[0]["probability"].to_list() == pytest.approx(mass)


def test_what_the_error_asks_for_is_enough() -> None:
    """Thresholds that a question only touches get their order from two columns."""
    touched = asked("Will X reach $100k by May 1?", "Will X reach $110k by May 1?")
    told = touched.with_columns(strike=pl.Series([100.0, 110.0]), comparison=pl.lit(">="))
    assert md.event_distribution(PRICES, told)["upper"].drop_nulls().to_list() == [100.0, 110.0]


def test_no_profit_is_certain_with_a_book_that_nobody_saw_or_after_the_close() -> None:
    """The contradiction of the prices stays; size, cost and profit are null."""
    books = md.testing.books("polars", markets=2, buckets=1)
    ladder = THREE.head(2).with_columns(strike=pl.Series([1.0, 2.0]), comparison=pl.lit(">"))
    seen = md.event_contradictions(books, ladder, fees=0)
    assert seen["profit"].to_list() == pytest.approx([8.0])
    with pytest.raises(ConfigError, match="needs fees"):
        md.event_contradictions(books, ladder, size=5)
    closed = ladder.with_columns(closed_at=books["ts"][0])
    for frame, found in ((books.with_columns(observed=False), ladder), (books, closed)):
        got = md.event_contradictions(frame, found, fees=0)
        assert got["amount"].to_list() == seen["amount"].to_list()
        assert got.select("size", "cost", "profit").row(0) == (None, None, None)


@pytest.mark.parametrize("observed", [True, False])
def test_a_book_that_was_filled_in_is_no_free_money(observed: bool) -> None:
    """`arbitrage` says of no market and of no event that an order reaches it."""
    books = md.testing.books("polars", markets=3, buckets=1).with_columns(price=pl.col("price") / 8, observed=observed)
    assert set(md.arbitrage(books)["buy_all"]) == {True if observed else None}
    whole = THREE.with_columns(exclusive=True, open_list=False)
    assert (md.arbitrage(books, whole, fees=0)["yes_edge"].null_count() == 0) is observed
