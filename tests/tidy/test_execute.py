"""Orders against books, by a plain loop in exact fractions."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import ladders
from reference.fills import MINUTE, as_floats, called, cases, settled_cases, signals_of
from reference.kinds import fewest, of_kind, rows
from reference.markets import in_kind

import marketdata as md

IGNORED = [
    f"ignore::marketdata.errors.{name}" for name in ("MissingValuesWarning", "UnsoldWarning", "CoarseGridWarning")
]


def plain(books: Any, orders: list[tuple[Any, ...]], options: dict[str, Any], ends: Any = None) -> list[Any]:
    """Each order level by level: time of the book, signal, token, side, requested, shares, notional, fee.

    ``ends``: when markets resolved, from which on no order is filled.
    """
    ends, levels = ends or {}, {at: {"sell": bids, "buy": asks} for at, (bids, asks) in ladders(books).items()}
    latency, exit_after, rate = options["latency"], options["exit_after"], options["fees"]
    held: dict[Any, Fraction] = defaultdict(Fraction)
    queue = [
        (ts + latency * MINUTE, i, ts, who, side, Fraction(size), lim)
        for i, (ts, who, side, size, lim) in enumerate(orders)
    ]
    out = []
    while queue:
        queue.sort(key=lambda o: o[:3])
        when, place, ts, who, side, size, limit = queue.pop(0)
        book = levels.get((who, when)) if when < ends.get(who[0], when + 1) else None
        wanted = size if side == "buy" else min(size, held[who])
        shares = paid = fee = Fraction(0)
        for level in book[side] if book and wanted > 0 else ():
            worse = limit is not None and (level[0] > Fraction(limit) if side == "buy" else level[0] < Fraction(limit))
            part = Fraction(0) if worse else min(level[1], wanted - shares)
            level[1] -= part
            shares, paid = shares + part, paid + part * level[0]
            fee += part * level[0] * (1 - level[0]) if rate == "odds" else part * level[0] * Fraction(rate)
        held[who] += shares if side == "buy" else -shares
        out.append((when, ts, *who, side, size, shares, paid, fee))
        if side == "buy" and shares and exit_after is not None:
            due = when + exit_after * MINUTE
            waits = (due + i * MINUTE for i in range(options["tolerance"] + 1))
            due = next((t for t in waits if (who, t) in levels), due)
            queue.append((due, place, when, who, "sell", shares, None))
    return sorted(out, key=lambda o: (o[2:4], o[0]))


@pytest.mark.filterwarnings(*IGNORED)
@fewest
@given(kind=st.sampled_from(["pandas", "polars", "lazy", "shuffled polars", "arrow"]), case=cases())
def test_fills_equal_a_plain_walk(kind: str, case: Any) -> None:
    """Each order gets what is left at its levels, best first, and never a share that is not there or not held."""
    books, orders, options = case
    out = md.execute(signals_of(orders), of_kind(books, kind), "1m", **called(options))
    got = sorted(rows(out.fills), key=lambda row: (row[2:4], row[0]))
    want = plain(books, as_floats(orders), options)
    assert len(got) == len(want)
    key = lambda row: (row[2:4], row[0], row[5], row[6])  # noqa: E731
    for g, w in zip(sorted(got, key=key), sorted(want, key=key), strict=True):
        assert (g[0], g[2:4], g[5]) == (w[0], w[2:4], w[5])
        assert np.allclose([g[6], g[7], g[9], g[10]], [float(v) for v in w[6:]], rtol=1e-9, atol=1e-6)
        assert (g[8] is None) == (g[7] == 0)
        assert g[7] <= g[6] * (1 + 1e-9)


def test_a_position_sold_in_other_parts_than_it_was_bought_is_none() -> None:
    """The last bits of 0.1 + 0.2 + 0.3 - 0.3 - 0.2 - 0.1 are no position that wants a payoff."""
    books = md.testing.books("polars", buckets=8)
    signals = books.md.mid().filter(token_label="Yes").head(6).select("ts", "market_id", "token_id")
    sides, sizes = pl.Series("side", ["buy"] * 3 + ["sell"] * 3), pl.Series("size", [0.1, 0.2, 0.3, 0.3, 0.2, 0.1])
    out = md.execute(signals.with_columns(sides, sizes), books, "1m", fees=0)
    assert out.positions.select("position", "settled").rows() == [(0.0, 0.0)]
    assert out.markets["profit"].null_count() == 0


def orders_on(books: pl.DataFrame, n: int = 1, **columns: Any) -> pl.DataFrame:
    """Orders of one share of the first token, at its first times."""
    ids = books.filter(token_label="Yes").select("ts", "market_id", "token_id").unique(maintain_order=True).head(n)
    return ids.with_columns(**{"side": pl.lit("buy"), "size": pl.lit(1.0), **columns})


def sized(*sizes: float) -> pl.DataFrame:
    """Books with these sizes of the levels of both sides."""
    books = md.testing.books("polars", buckets=2, levels=len(sizes))
    return books.with_columns(size=pl.col("level").replace_strict(range(len(sizes)), sizes, return_dtype=pl.Float64))


@pytest.mark.parametrize(("side", "limit"), [("buy", 0.06 + 0.01), ("sell", 0.05 + 0.01)])
@pytest.mark.fault("FR11")
def test_a_limit_is_reached_by_the_decimal_price_that_is_meant(side: str, limit: float) -> None:
    """0.06 + 0.01 is a few bits below 0.07, and reaches an ask at 0.07 as in all other comparisons of prices."""
    books = md.testing.books("polars", buckets=2, levels=1)
    books = books.with_columns(price=pl.when(side="bid").then(pl.lit(0.06)).otherwise(pl.lit(0.07)))
    orders = pl.concat([orders_on(books), orders_on(books, side=pl.lit(side), limit=pl.lit(limit))], how="diagonal")
    fills = md.execute(orders, books, "1m", fees=0).fills
    assert fills["status"].to_list() == ["filled", "filled"]


@pytest.mark.fault("FR11")
def test_what_rounding_leaves_of_a_level_is_not_filled() -> None:
    """The last bits of a sum of levels fill nothing: not the level behind them, nor a later order."""
    fees = lambda price, shares: np.full(len(price), 1 / len(price))  # noqa: E731
    books = sized(1.3, 7.6, 6.9)
    orders = pl.concat([orders_on(books, size=pl.lit(size)) for size in (4.1, 11.7, 5.0)])
    fills = md.execute(orders, books, "1m", fees=fees).fills
    assert fills["status"].to_list() == ["filled", "filled", "no liquidity"]
    assert fills["fee"].to_list() == [1.0, 1.0, 0.0]
    books, levels = sized(0.3, 2.1, 1.7), []
    fees = lambda price, shares: levels.append(len(price)) or 0.0 * price  # noqa: E731
    assert md.execute(orders_on(books, size=pl.lit(2.4)), books, "1m", fees=fees).fills["status"].to_list() == [
        "filled"
    ]
    assert levels == [2]


@pytest.mark.fault("FR11")
def test_a_limit_that_is_no_probability_is_refused() -> None:
    """A limit of 41 cents would be no limit."""
    books = md.testing.books("polars", buckets=3)
    for limit in (41.0, -0.5):
        orders = orders_on(books, 2).with_columns(limit=pl.Series([0.5, limit]))
        told = f"limit of row 1 of the orders is {limit:g}, .*divide cents by 100"
        with pytest.raises(md.errors.NotTidyError, match=told):
            md.execute(orders, books, "1m", fees=0)


@pytest.mark.fault("FR11")
def test_times_off_the_grid_are_refused() -> None:
    """An order would never meet a book; the error names the frame and the first time."""
    books = md.testing.books("polars", buckets=3)
    off = pl.col("ts") + pl.duration(seconds=7)
    for signals, rows_, match in (
        (orders_on(books, 2, ts=off), books, "2 of 2 rows of orders are off the grid of 1m, .*00:00:07Z"),
        (orders_on(books), books.with_columns(ts=off), "rows of books are off the grid .*00:00:07Z.*md.resample"),
    ):
        with pytest.raises(md.errors.NotTidyError, match=match):
            md.execute(signals, rows_, "1m", fees=0)


@pytest.mark.parametrize("kind", ["polars", "pandas", "lazy", "arrow"])
@pytest.mark.parametrize("nest", [False, True])
@pytest.mark.parametrize("width", ["1m", None])
def test_swapped_arguments_are_named(kind: Any, nest: bool, width: str | None) -> None:
    """The error of books in the place of orders says which argument is which."""
    books = md.testing.books("polars")
    first = in_kind(md.nest(books) if nest else books, kind)
    with pytest.raises(md.errors.NotTidyError, match=r"first argument .* is the orders and the second the"):
        md.execute(first, in_kind(orders_on(books), kind), width, fees=0)


def test_orders_of_weeks_meet_the_books_of_weeks() -> None:
    """Weeks begin on Mondays, the epoch on a Thursday."""
    books = md.resample(md.testing.books("polars", buckets=3), "1w")
    assert books["ts"].dt.weekday().unique().to_list() == [1]
    assert md.execute(orders_on(books, 1), books, "1w", fees=0, latency="0s").fills["status"].to_list() == ["filled"]


def test_orders_that_all_miss_the_books_are_warned_of() -> None:
    """Books of hours that are called minutes, and a token that the books do not have: the warning says which."""
    books = md.testing.books("polars", buckets=4, resolution="1h")
    with pytest.raises(md.errors.GridError, match="all 4 distinct times of books are on a grid of 1h"):
        md.execute(orders_on(books, 2), books, "1m", fees=0)
    early = books.with_columns(pl.col("ts") - pl.duration(days=1))
    with pytest.warns(
        md.errors.MissingValuesWarning, match="of 2026-01-01T01:00:00Z; its 4 books .* at least 1:00:00 apart"
    ):
        md.execute(orders_on(books, 2), early, "1h", fees=0)
    with pytest.warns(md.errors.MissingValuesWarning, match="the books have no token 'x' of market 'rain'"):
        md.execute(orders_on(books, 2, token_id=pl.lit("x")), books, "1h", fees=0)


@pytest.mark.filterwarnings(*IGNORED)
@fewest
@given(kind=st.sampled_from(["pandas", "polars", "lazy", "shuffled pandas", "arrow"]), drawn=settled_cases())
def test_positions_and_profits_equal_a_plain_sum_of_the_fills(kind: str, drawn: Any) -> None:
    """A token settles at position times payoff, a market is the sum of its tokens, and what is not known is null."""
    (books, orders, options), outcomes, ends, paid_out = drawn
    out = md.execute(signals_of(orders), of_kind(books, kind), "1m", outcomes=outcomes, **called(options))
    done = plain(books, as_floats(orders), options, ends)
    tokens: dict[Any, dict[str, Any]] = {}
    for _, _, *who, side, _, shares, money, fee in done:
        own = tokens.setdefault(tuple(who), dict.fromkeys(("bought", "sold", "paid", "received", "fees"), Fraction(0)))
        for name, value in zip(
            ("bought", "paid") if side == "buy" else ("sold", "received"), (shares, money), strict=True
        ):
            own[name] += value
        own["fees"] += fee
        own["cost"] = own.get("cost", Fraction(0)) + (money + fee if side == "buy" else 0)
    markets: dict[str, Any] = {}
    last_bid = {
        row[1:3]: row[4] or 0.0 for row in sorted(rows(md.bbo(of_kind(books, "polars"))), key=lambda row: row[0])
    }
    for who, own in tokens.items():
        held = own["bought"] - own["sold"]
        held = held if held > own["bought"] * Fraction(1e-9) else Fraction(0)
        payoff = paid_out.get(who[:2])
        settled = Fraction(0) if not held else None if payoff is None else held * Fraction(payoff)
        profit = None if settled is None else own["received"] - own["paid"] - own["fees"] + settled
        is_open = bool(held) and payoff is None
        cost = own.pop("cost") * held / own["bought"] if held else 0 * own.pop("cost")
        own["profit_sold"] = own["received"] - own["paid"] - own["fees"] + cost
        own["profit_held"] = None if settled is None else settled - cost
        own |= {"position": held, "payoff": payoff, "settled": settled, "profit": profit}
        own["open_at_last_bid"] = held * Fraction(last_bid.get(who[:2], 0.0)) if is_open else Fraction(0)
        of_market = markets.setdefault(who[0], {c: Fraction(0) for c in (*SUMS, "open_positions")})
        of_market["open_positions"] += is_open
        for name in SUMS:
            of_market[name] = None if None in (of_market[name], own[name]) else of_market[name] + own[name]
    expect(out.positions, [{"who": who[:2], **own} for who, own in sorted(tokens.items())], ("market_id", "token_id"))
    expect(out.markets, [{"who": (who,), **own} for who, own in sorted(markets.items())], ("market_id",))


SUMS = ("paid", "received", "fees", "settled", "profit", "profit_sold", "profit_held", "open_at_last_bid")


def expect(frame: Any, want: list[dict[str, Any]], ids: tuple[str, ...]) -> None:
    """The rows of a frame, to nine digits of the money that moved."""
    data = nw.from_native(frame)
    got = data.with_columns(nw.col(*ids).cast(nw.String)).rows(named=True)
    assert [tuple(row[c] for c in ids) for row in got] == [row["who"] for row in want]
    for g, w in zip(got, want, strict=True):
        moved = 1 + sum(float(w[c] or 0) for c in ("paid", "received", "bought") if c in w)
        for name in w.keys() - {"who"}:
            missing = g[name] is None or g[name] != g[name]
            assert missing == (w[name] is None), (name, g, w)
            assert missing or abs(g[name] - float(w[name])) <= 1e-9 * moved, (name, g, w)


@pytest.mark.filterwarnings("ignore::marketdata.errors.MissingValuesWarning")
def test_an_order_for_a_token_without_books_keeps_its_ids() -> None:
    """An order whose token no book has is listed under its ids, also where ids are categories."""
    books = md.testing.books("polars", buckets=2)
    order = orders_on(books, market_id=pl.lit("other"), token_id=pl.lit("99"))
    for frame in (books, md.testing.books("pandas", buckets=2)):
        out = md.execute(order, frame, "1m", fees=0)
        ((_, _, market, token, *_, status, _),) = rows(out.fills)
        assert (market, token, status) == ("other", "99", "no book")
        assert len(out.positions) == len(out.markets) == 1


def test_exits_that_do_not_sell_are_counted_and_kept_apart() -> None:
    """A warning gives the share, and what was held to the end has a column of its own."""
    books = md.testing.books("polars", buckets=4)
    first = books.filter(token_label="Yes").select("ts", "market_id", "token_id").unique().sort("ts").head(2)
    orders = first.with_columns(side=pl.lit("buy"), size=pl.Series([100.0, 100.0]))
    last = books["ts"].max()
    no_bids = books.filter(~((pl.col("ts") == last) & (pl.col("side") == "bid") & (pl.col("token_label") == "Yes")))
    options: Any = {"fees": 0, "exit_after": "1m", "outcomes": {"rain": "Yes"}}
    with pytest.warns(md.errors.UnsoldWarning, match="1 of 2 exits after exit_after did not sell all their shares"):
        done = md.execute(orders, no_bids, "1m", **options)
    sold, held, profit = done.markets.select("profit_sold", "profit_held", "profit").row(0)
    assert profit == pytest.approx(sold + held)
    buys, sales = (done.fills.filter(side=side)["notional"].to_list() for side in ("buy", "sell"))
    assert sold == pytest.approx(sales[0] - sum(buys) / 2)
    assert held == pytest.approx(100 - sum(buys) / 2)
