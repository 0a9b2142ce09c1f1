"""The account by a plain loop over time, in exact fractions; the stake by trying many."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import ladders
from reference.fills import MINUTE, as_floats, called, settled_cases, signals_of
from reference.kinds import close, fewest, of_kind, rows
from reference.measures import SLACK, taken

import marketdata as md
from marketdata.errors import LeftOutWarning
from marketdata.points.schema import TOLERANCE
from marketdata.times import to_datetime


def plain(books: Any, fills: list[dict[str, Any]], ends: Any, payoffs: Any, cash: float) -> dict[str, list[Any]]:
    """Row after row: what was bought and sold so far, and what the latest book of each token says."""
    known: dict[Any, dict[int, Any]] = defaultdict(dict)
    for (token, ts), sides in ladders(books).items():
        known[token[:2]][ts] = sides
    fills = [{**f, "ts": int(f["ts"].timestamp() * 1e6 + 0.5)} for f in fills if f["shares"] > 0]
    held_by = {(f["market_id"], f["token_id"]) for f in fills}
    over = {who: ends[who[0]] // MINUTE * MINUTE for who in held_by if who[0] in ends and who in payoffs}
    times = {ts for books_ in known.values() for ts in books_} | {f["ts"] for f in fills} | {*over.values()}
    out: dict[str, list[Any]] = {"total": [], "markets": []}
    best = None
    for now in sorted(times):
        sums, markets = [Fraction(0)] * 3, {}
        for who in sorted(held_by):
            done = [f for f in fills if (f["market_id"], f["token_id"]) == who and f["ts"] <= now]
            if not done:
                continue
            sign = {"buy": 1, "sell": -1}
            held = sum(sign[f["side"]] * Fraction(f["shares"]) for f in done)
            moved = sum(Fraction(f["shares"]) for f in done)
            held = held if held > Fraction(TOLERANCE) * moved else Fraction(0)
            money = -sum(sign[f["side"]] * Fraction(f["notional"]) + Fraction(f["fee"]) for f in done)
            if who in over and now >= over[who]:
                money, held = money + held * Fraction(payoffs[who]), Fraction(0)
            value: Any = Fraction(0)
            sale: Any = Fraction(0)
            if held:
                seen = [ts for ts in known[who] if ts <= now]
                bids, asks = known[who][max(seen)] if seen else ([], [])
                value = held * (bids[0][0] + asks[0][0]) / 2 if bids and asks else None
                enough = sum(s for _, s in bids) >= held * (1 - SLACK)
                sale = taken(bids, held, money=False)[1] if enough else None
            one = [money, value, sale]
            sums = [None if a is None or b is None else a + b for a, b in zip(sums, one, strict=True)]
            before = markets.get(who[0], [Fraction(0)] * 3)
            markets[who[0]] = [None if a is None or b is None else a + b for a, b in zip(before, one, strict=True)]
        money, value, sale = sums
        equity = None if value is None else Fraction(cash) + money + value
        best = best if equity is None else equity if best is None else max(best, equity)
        row = [Fraction(cash) + money, value, sale, equity, None if value is None else money + value]
        row += [None if sale is None else money + sale, None if equity is None else best - equity]
        out["total"].append((now, *(None if v is None else float(v) for v in row)))
        for market, (m, v, s) in sorted(markets.items()):
            profit = None if v is None else m + v
            out["markets"].append((now, market, *(None if x is None else float(x) for x in (v, s, profit))))
    out["markets"].sort(key=lambda row: (row[1], row[0]))
    return out


@pytest.mark.filterwarnings("ignore::marketdata.errors.MissingValuesWarning", "ignore::marketdata.errors.UnsoldWarning")
@fewest
@given(
    kind=st.sampled_from(["pandas", "polars", "lazy", "shuffled pandas", "arrow"]),
    drawn=settled_cases(),
    cash=st.sampled_from([0.0, 1000.0]),
)
def test_an_account_equals_a_plain_loop_over_time(kind: str, drawn: Any, cash: float) -> None:
    """Cash, positions at the latest book, payoffs from their bucket on, and the fall from the greatest equity."""
    (books, orders, options), outcomes, ends, paid_out = drawn
    frame = of_kind(books, kind)
    fills = md.execute(signals_of(as_floats(orders)), frame, "1m", outcomes=outcomes, **called(options)).fills
    got = md.account(fills, frame, "1m", outcomes=outcomes, cash=cash)
    done = pl.DataFrame(fills) if kind == "arrow" else pl.from_pandas(fills) if "pandas" in kind else fills
    columns = ["ts", "market_id", "token_id", "side", "shares", "notional", "fee"]
    done = done.with_columns(pl.col("market_id", "token_id", "side").cast(pl.String)).select(columns)
    want = plain(books, done.rows(named=True), ends, paid_out, cash)
    moved = 1e-9 * (1 + cash + sum(f["notional"] + f["shares"] for f in done.rows(named=True)))
    assert close(rows(got.total), want["total"], least=moved)
    assert close(rows(got.markets), want["markets"], least=moved)
    assert got.events is None


def bought(books: pl.DataFrame, size: float = 100.0) -> pl.DataFrame:
    orders = books.md.mid().filter(pl.col("ts") == pl.col("ts").min(), token_label="Yes")
    orders = orders.select("ts", "market_id", "token_id", side=pl.lit("buy"), size=size)
    return md.execute(orders, books, "1m", fees=0).fills


def test_a_later_price_or_payoff_changes_no_earlier_row() -> None:
    """The account of the first rows is the same whatever comes later."""
    books, outcomes = md.testing.books("polars", buckets=6), md.outcomes(md.testing.markets("polars"))
    fills = bought(books)
    cut = books["ts"].unique().sort()[3]
    early = md.account(fills, books.filter(pl.col("ts") < cut), "1m").total
    for more in (books, books.with_columns(price=pl.when(pl.col("ts") < cut).then("price").otherwise(0.5))):
        told = outcomes.with_columns(resolved_at=pl.lit(cut))
        assert md.account(fills, more, "1m", outcomes=told).total.head(3).equals(early)
    unknown = outcomes.with_columns(
        pl.lit(None, pl.Datetime("us", "UTC")).alias(c) for c in ("resolved_at", "closed_at")
    )
    winner = outcomes.filter(payoff=1.0)["token_label"].first()
    for timeless in (unknown, {outcomes["market_id"].first(): winner}):
        with pytest.warns(LeftOutWarning, match="does not say when"):
            left_out = md.account(fills, books, "1m", outcomes=timeless).total
        assert left_out.equals(md.account(fills, books, "1m").total)


def test_short_records_say_when_a_market_paid() -> None:
    """market_id, resolved_token_id and resolved_at are enough, as whole records are."""
    books, outcomes = md.testing.books("polars", buckets=6), md.outcomes(md.testing.markets("polars"))
    cut, won = books["ts"].unique().sort()[3], outcomes.filter(payoff=1.0)
    short = won.select("market_id", resolved_token_id="token_id", resolved_at=pl.lit(cut))
    whole = outcomes.with_columns(resolved_at=pl.lit(cut))
    fills = bought(books)
    given = [md.account(fills, books, "1m", outcomes=one).total for one in (short, whole)]
    assert given[0].equals(given[1])
    assert not given[0].equals(md.account(fills, books, "1m").total)


def test_prices_of_any_kind_of_quote() -> None:
    """Bbo holds the best bid alone, prices hold no bids: a sale that they do not show is null."""
    books = md.testing.books("polars")
    whole, top, mids = (
        md.account(bought(books, 150), frame, "1m").total
        for frame in (books, books.md.bbo(), md.testing.prices("polars"))
    )
    nested = md.account(bought(books, 150), books.md.nest(), "1m").total
    assert nested.equals(whole)
    assert whole["sale"].null_count() == 0
    assert top["sale"].is_null().to_list() == [False, True, True]
    assert mids["sale"].is_null().to_list() == [False, True, True]
    for other in (top, mids):
        assert whole["value"].to_list() == pytest.approx(other["value"].to_list())
    net = md.account(bought(books, 150), books, "1m", fees=md.Fees.flat(0.01)).total
    assert (whole["sale"] - net["sale"]).to_list() == pytest.approx([0, *(0.01 * whole["sale"][1:])])


def test_exposure_by_event_is_the_sum_of_its_markets() -> None:
    """Markets of one event are one exposure; a market without an event is left out."""
    books, markets = md.testing.books("polars", markets=3), md.testing.markets("polars", markets=3)
    fills = bought(books)
    events = markets.with_columns(event_slug=pl.Series(["a", "a", None]))
    got = md.account(fills, books, "1m", markets=events)
    assert got.markets.height == 6
    two = got.markets.filter(pl.col("market_id") != "wind").group_by("ts").agg(pl.col("value").sum()).sort("ts")
    assert got.events["event_id"].unique().to_list() == ["a"]
    assert got.events["value"].to_list() == pytest.approx(two["value"].to_list())


def test_fills_that_cannot_be_are_refused() -> None:
    """A sale of what was not bought, a fill after the payoff, another side, and prices of wider buckets."""
    books, outcomes = md.testing.books("polars"), md.outcomes(md.testing.markets("polars"))
    fills = bought(books)
    with pytest.raises(md.errors.NotTidyError, match="sell more of token '11'"):
        md.account(fills.with_columns(side=pl.lit("sell")), books, "1m")
    with pytest.raises(md.errors.NotTidyError, match="side is 'buy' or 'sell'"):
        md.account(fills.with_columns(side=pl.lit("bid")), books, "1m")
    told = outcomes.with_columns(resolved_at=pl.lit(to_datetime(1_767_225_600_000_000)))
    with pytest.raises(md.errors.NotTidyError, match="after its market resolved at 2026-01-01T00:00:00Z"):
        md.account(fills, books, "1m", outcomes=told)
    with pytest.raises(md.errors.NotTidyError, match="notional"):
        md.account(fills.drop("notional"), books, "1m")
    hours = md.testing.books("polars", buckets=8, resolution="1h")
    with pytest.raises(md.errors.GridError, match="on a grid of 1h"):
        md.account(fills, hours, "1m")
    with pytest.raises(md.errors.ConfigError, match="off the grid"):
        md.account(fills, hours, "1h")
    none = md.account(fills.head(0), books, "1m", cash=5)
    assert none.total["equity"].to_list() == [5.0] * 3
    assert none.markets.height == 0


def test_fills_of_ones_own_are_numbers() -> None:
    """A sale of negative shares would be left out in silence, and a missing cost would be one of all later money."""
    books = md.testing.books("polars")
    fills = bought(books)
    for column, wrong, told in (
        ("shares", -10.0, "shares is a number from 0 in a frame of fills; row 0 has -10.0"),
        ("shares", None, "shares is a number from 0 in a frame of fills; row 0 has nan"),
        ("notional", -4.2, "notional is a number from 0"),
        ("notional", None, "notional is a number from 0"),
        ("fee", math.inf, "fee is a finite number in a frame of fills; row 0 has inf"),
    ):
        with pytest.raises(md.errors.NotTidyError, match=told):
            md.account(fills.with_columns(pl.lit(wrong, pl.Float64).alias(column)), books, "1m")
    nothing = fills.with_columns(shares=0.0, notional=None, fee=None)
    assert md.account(nothing, books, "1m", cash=5).total["cash"].to_list() == [5.0] * 3


def test_a_file_of_ones_own_fills_is_a_profit_in_one_line(tmp_path: Path) -> None:
    """Prices, sizes and fees of a file are positions and profit; a sale before its purchase is named with its time."""
    header = "Date,Market,Outcome,Side,Shares,Price,Fee\n"
    bought, sold = (f"2026-01-01 00:0{n}:30,rain,Yes,{side},{size},{cents}¢,$0.03\n" for n, side, size, cents in
                    ((0, "Buy", 100, 41), (1, "Sell", 40, 44)))  # fmt: skip
    file = tmp_path / "fills.csv"
    file.write_text(header + bought + sold, encoding="utf-8")
    fills = md.read_trades(file, frame="polars")
    prices = (
        md.testing.prices("polars").filter(pl.col("token_label") == "Yes").with_columns(token_id=pl.lit("rain:Yes"))
    )
    total = md.account(fills, prices, "1m").total
    assert total["cash"].to_list() == pytest.approx([-41.03, -41.03 + 17.57, -41.03 + 17.57])
    last = prices["price"].to_list()[-1]
    assert total["profit"].to_list()[-1] == pytest.approx(-41.03 + 17.57 + 60 * last)
    file.write_text(header + sold, encoding="utf-8")
    with pytest.raises(md.errors.NotTidyError, match=r"first at 2026-01-01T00:01(?s:.*)md.pnl"):
        md.account(md.read_trades(file), prices, "1m")
    outcomes = {"rain": {"rain:Yes": 1.0, "rain:No": 0.0}}
    assert md.pnl(md.read_trades(file), outcomes, by=None, interval=None)["profit"].tolist() == [40 * (0.44 - 1) - 0.03]


@pytest.mark.filterwarnings("ignore::marketdata.errors.MissingValuesWarning", "ignore::marketdata.errors.UnsoldWarning")
@fewest
@given(drawn=settled_cases())
def test_summaries_equal_plain_sums_of_fills_and_positions(drawn: Any) -> None:
    """Turnover, fees, profit and hit rate are sums over the frames; drawdown and exposure are of the account's rows."""
    (columns, orders, options), outcomes, *_ = drawn
    books = of_kind(columns, "polars")
    done = md.execute(signals_of(as_floats(orders)), books, "1m", outcomes=outcomes, **called(options))
    account = md.account(done.fills, books, "1m", outcomes=outcomes, cash=50)
    bought = done.positions.filter(pl.col("bought") > 0)
    for by in (None, "market_id"):
        mine, theirs = done.summary(by).rows(named=True), account.summary(by).rows(named=True)
        for row in mine:
            of_market = [pl.col("market_id") == row["market_id"]] if by else []
            fills = done.fills.filter(pl.col("shares") > 0, *of_market)
            profits = bought.filter(*of_market)["profit"].to_list()
            known = [p for p in profits if p is not None and not math.isnan(p)]
            assert (row["orders"], row["fills"]) == (len(done.fills.filter(*of_market)), len(fills))
            assert row["turnover"] == pytest.approx(fills["notional"].sum())
            assert row["fees"] == pytest.approx(fills["fee"].sum())
            assert row["profit"] == (pytest.approx(sum(known)) if len(known) == len(profits) else None)
            assert row["hit_rate"] == (pytest.approx(sum(p > 0 for p in known) / len(known)) if known else None)
        for row in theirs:
            same = next(one for one in mine if row.get("market_id") == one.get("market_id"))
            assert row["fills"] == same["fills"]
            assert (row["turnover"], row["fees"]) == (pytest.approx(same["turnover"]), pytest.approx(same["fees"]))
            frame = account.markets.filter(pl.col("market_id") == row["market_id"]) if by else account.total
            assert row["profit"] == (pytest.approx(frame["profit"][-1], abs=1e-9) if len(frame) else 0)
            assert row["exposure"] == pytest.approx(frame["value"].max(), abs=1e-9)
            if not by:
                assert row["drawdown"] == pytest.approx(frame["drawdown"].max(), abs=1e-9)


def test_results_say_their_figures_in_text_and_in_notebooks() -> None:
    """The first line has what is asked for first; a result that was changed by hand is a plain tuple."""
    books = md.testing.books("polars")
    orders = (
        books.md.mid().filter(token_label="Yes").select("ts", "market_id", "token_id", side=pl.lit("buy"), size=9.0)
    )
    done = md.execute(orders.head(1), books, "1m", fees=0)
    account = md.account(done.fills, books, "1m")
    assert repr(done) == "<Execution: 1 fill of 1 order, fees 0 USD, profit 0 USD without 1 open position>"
    assert repr(account).startswith("<Account: 1 fill, fees 0 USD, profit 0.09 USD, drawdown ")
    assert "1 open position" in done._repr_html_()
    assert "exposure" in account._repr_html_()
    fills, positions, markets = done
    assert (fills is done.fills, positions is done.positions, markets is done.markets) == (True, True, True)
    by_hand = done._replace(markets=None)
    assert "None" in by_hand._repr_html_()
    assert "None" in repr(by_hand)
    with pytest.raises(md.errors.ConfigError, match="put together by hand"):
        by_hand.summary()
    with pytest.raises(md.errors.ConfigError, match="allowed are None, market_id"):
        done.summary("event")
