"""Means with intervals over clusters, and studies of signals, against plain loops."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.kinds import close, plain
from reference.markets import books_of, in_kind

import marketdata as md
from marketdata.points.intervals import Sampling, of_rows

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::marketdata.errors.{name}")
    for name in ("FewMarketsWarning", "MissingValuesWarning", "CoarseGridWarning")
]
# market, token, minute, group, value
entries = st.tuples(
    st.sampled_from("abc"), st.sampled_from("12"), st.integers(0, 2), st.sampled_from(["x", "y", None]),
    st.one_of(st.none(), st.integers(-8, 8).map(float)),
)  # fmt: skip


@given(
    drawn=st.lists(entries, max_size=12), kind=st.sampled_from(["pandas", "polars", "lazy", "arrow"]),
    by=st.booleans(),
)  # fmt: skip
def test_a_cluster_mean_equals_a_plain_loop(drawn: list[Any], kind: str, by: bool) -> None:
    """A row counts unless Yes, here the second token, has one of that time; intervals are over sums of each market."""
    names = {"market_id": pl.String, "token_id": pl.String, "ts": pl.Int64, "group": pl.String, "value": pl.Float64}
    frame = pl.DataFrame(drawn, names, orient="row")
    frame = frame.with_columns(
        pl.from_epoch("ts").dt.cast_time_unit("us").dt.replace_time_zone("UTC"),
        token_label=pl.when(pl.col("token_id") == "2").then(pl.lit("Yes")).otherwise(None),
    )
    of_yes = {(market, ts) for market, token, ts, *_ in drawn if token == "2"}
    left_out: dict[Any, int] = defaultdict(int)
    nulls: dict[Any, int] = defaultdict(int)
    groups: dict[Any, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    if not by:
        groups[()] = defaultdict(list)
    for market, token, ts, group, value in drawn:
        key = (group,) if by else ()
        held = groups[key]
        if token == "1" and (market, ts) in of_yes:
            left_out[key] += 1
        elif value is not None:
            held[market].append(value)
        else:
            nulls[key] += 1
    want = []
    for key in sorted(groups, key=lambda k: [(v is None, v or "") for v in k]):
        held = {market: values for market, values in groups[key].items() if values}
        weight = np.array([len(held[m]) for m in sorted(held)], float)
        total = np.array([sum(held[m]) for m in sorted(held)], float)
        ends = of_rows(total / weight, weight, np.arange(len(total))[None], Sampling(0.9, 30, 2))[:2]
        points = int(weight.sum())
        mean = total.sum() / points if points else None
        effective = points**2 / float((weight**2).sum()) if points else 0.0
        of_ends = (None if math.isnan(e) else e for e in ends)
        counts = (left_out[key], nulls[key], 0, 0)
        want.append((*key, len(held), points, effective, mean, *of_ends, "market_id", *counts))
    options: Any = {"interval": 0.9, "resamples": 30, "seed": 2, **({"by": "group"} if by else {})}
    got = md.cluster_mean(in_kind(frame, kind), "value", **options)
    assert type(got) is type(in_kind(frame, kind))
    assert close(plain(got), want, digits=1e-9, least=1e-12)


def test_a_mean_says_where_it_is_doubtful() -> None:
    """Below ten effective clusters, and where many rows have no value; enough of both say nothing."""
    many = pl.DataFrame({"market_id": [f"m{i}" for i in range(40)], "value": [float(i % 7) for i in range(40)]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        md.cluster_mean(many, "value")
        md.cluster_mean(many.head(3), "value", interval=None)
    with pytest.warns(md.errors.FewMarketsWarning, match="as few as 3 effective clusters"):
        md.cluster_mean(many.head(3), "value")
    with pytest.warns(md.errors.MissingValuesWarning, match="Up to 10% of the rows have no value"):
        md.cluster_mean(many.with_columns(value=pl.when(pl.int_range(40) >= 4).then("value")), "value")


def test_markets_of_one_event_count_once() -> None:
    """Clusters by event have the interval of the sums of each event."""
    frame = pl.DataFrame({
        "market_id": [f"m{i:02}" for i in range(24)], "event": [f"e{i // 2:02}" for i in range(24)],
        "value": [float((i // 2) % 5) for i in range(24)],
    })  # fmt: skip
    by_event = md.cluster_mean(frame, "value", cluster="event").row(0, named=True)
    one_each = md.cluster_mean(frame.gather_every(2), "value").row(0, named=True)
    assert by_event["effective"] == 12
    assert [by_event[end] for end in ("low", "high")] == pytest.approx([one_each[end] for end in ("low", "high")])


def walk(markets: int, minutes: int = 30, edge: float = 0.0, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Books whose mid moves at random, plus ``edge`` times a signal that is known before; and the signal."""
    rng = np.random.default_rng(seed)
    signal = rng.choice([-1.0, 1.0], (markets, minutes))
    moves = 0.004 * rng.standard_normal((markets, minutes)) + edge * signal
    return books_of(np.clip(0.5 + np.cumsum(moves, axis=1) - moves, 0.05, 0.95), signal)


@pytest.mark.parametrize(("kind", "side"), [("pandas", "buy"), ("lazy", "sell")])
def test_a_study_equals_the_means_of_its_rows(kind: str, side: str) -> None:
    """Each quantile has the rows of its values, and the means of their forward returns by cluster_mean."""
    books, signal = walk(12)
    signal = signal.with_columns(signal=pl.col("signal") * pl.int_range(pl.len()).mod(17))
    options: Any = {"fees": md.Fees.flat(0.01), "latency": "1m", "tolerance": "1m", "side": side, "width": "1m"}
    table = md.study(in_kind(books, kind), signal, "3m", quantiles=3, resamples=50, **options).table
    assert type(table) is type(in_kind(books, kind))
    returns = md.forward_returns(books, "3m", **options).join(signal, on=["ts", "market_id", "token_id"])
    below = pl.col("signal").rank("min") - 1 + (pl.len().over("signal") / 2)
    sign = 1 if side == "buy" else -1  # a seller earns the fall of the mid
    returns = returns.with_columns(pl.col("move") * sign, number=(below / pl.len() * 3).floor())
    got = (table.collect() if kind == "lazy" else pl.DataFrame(table)).rows(named=True)
    assert got[-1]["quantile"] is None
    assert got[-1]["gross"] == pytest.approx(got[-2]["gross"] - got[0]["gross"])
    for number, row in enumerate(got[:-1]):
        part = returns.filter(number=number)
        assert (row["quantile"], row["rows"], row["markets"]) == (number + 1, len(part), part["market_id"].n_unique())
        assert row["no_entry"] == len(part.filter(status="no_entry"))
        assert row["missing_exits"] == len(part.filter(pl.col("status").cast(str).str.starts_with("no_exit")))
        for name, column in (("gross", "move"), ("net", "net"), ("net_worst", "net_low")):
            mean = md.cluster_mean(part, column, resamples=50).row(0, named=True)
            assert close(
                [(row[name], row[f"{name}_low"], row[f"{name}_high"])], [(mean["mean"], mean["low"], mean["high"])]
            )
        assert row["effective"] == pytest.approx(mean["effective"])


def test_a_signal_without_labels_counts_the_token_that_the_books_label_yes() -> None:
    """The labels of the books decide, so that a signal has the same table with and without them."""
    books, signal = walk(12)
    no = books.with_columns(
        token_id=pl.lit("0") + pl.col("token_id"), token_label=pl.lit("No"), price=1 - pl.col("price")
    )
    no = no.with_columns(side=pl.when(side="bid").then(pl.lit("ask")).otherwise(pl.lit("bid")))
    signal = pl.concat([signal, signal.with_columns(token_id=pl.lit("0") + pl.col("token_id"))])
    with pytest.warns(md.errors.MissingValuesWarning, match="360 of 720 signals met no book of their token"):
        assert md.study(books, signal, "1m", quantiles=2, interval=None, fees=0, width="1m").without_book == 360
    both = md.study(pl.concat([books, no]), signal, "1m", quantiles=2, interval=None, fees=0, width="1m").table
    alone = signal.head(len(signal) // 2)
    one = md.study(books, alone, "1m", quantiles=2, interval=None, fees=0, width="1m").table
    assert both.drop("left_out").equals(one.drop("left_out"))
    assert both["left_out"].to_list() == one["rows"].to_list()


def test_a_planted_edge_is_found_and_none_where_there_is_none() -> None:
    """The intervals of the best quantile tell them apart, before costs and after."""
    for edge, is_found in ((0.0, False), (0.02, True)):
        books, signal = walk(30, edge=edge)
        with pytest.warns(md.errors.LookAheadWarning, match="flickers looks like a profit"):
            study = md.study(books, signal, "1m", quantiles=2, latency="0s", fees=0, width="1m")
        best = study.table.row(1, named=True)
        assert (study.table.row(-1, named=True)["gross_low"] > 0) is is_found
        assert (best["gross_low"] > 0) is is_found
        assert (best["net_low"] > 0) is is_found
        assert "signal" in repr(study)


def test_a_signal_that_leaks_is_refused() -> None:
    """The name of its column tells, or its values if they are the payoffs."""
    books, signal = walk(3, minutes=6)
    for name in ("payoff", "resolved_at", "status", "outcome", "winningToken", "time_to_resolution", "net"):
        with pytest.raises(md.errors.ConfigError, match="leaks the outcome"):
            md.study(books, signal.rename({"signal": name}), "1m", fees=0, width="1m")
    outcomes = pl.DataFrame({"market_id": ["m000", "m001"], "token_id": ["m000", "m001"], "payoff": [1.0, 0.0]})
    is_first = (pl.col("market_id") == "m000").cast(pl.Float64)
    hidden = signal.filter(pl.col("market_id") != "m002").with_columns(signal=is_first)
    with pytest.raises(md.errors.ConfigError, match="equals the payoff"):
        md.study(books, hidden, "1m", outcomes=outcomes, fees=0, width="1m")


def test_a_study_is_drawn() -> None:
    """The means of each quantile are in the chart."""
    pytest.importorskip("matplotlib")
    books, signal = walk(6)
    axes = md.study(books, signal, "1m", quantiles=2, resamples=20, fees=0, width="1m").plot()
    assert "signal" in axes.get_title("left")
    named = md.study(books, "imbalance", "1m", quantiles=2, interval=None, fees=0, width="1m")
    assert named.signal == "imbalance"
    assert "quantile" in named._repr_html_()


def hourly_momentum(markets: int, hours: int, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Books of minutes whose mids are martingales, and a signal of hours: the move of the mid within its hour."""
    rng = np.random.default_rng(seed)
    minutes = 60 * hours
    mids = 0.5 + np.cumsum(0.001 * rng.standard_normal((markets, minutes)), axis=1)
    books, _ = books_of(mids, np.zeros((markets, minutes)))
    quotes = md.mid(books).sort("market_id", "ts")
    signal = quotes.group_by("market_id", "token_id", pl.col("ts").dt.truncate("1h"), maintain_order=True).agg(
        signal=pl.col("mid").last() - pl.col("mid").first()
    )
    return books, signal.select("ts", "market_id", "token_id", "signal")


def test_a_signal_of_hours_is_known_at_the_end_of_its_hour() -> None:
    """On martingales the move of an hour earns nothing; read as of minutes it is refused, as it would earn itself."""
    books, signal = hourly_momentum(12, 8, seed=3)
    options: Any = {"quantiles": 3, "resamples": 200, "width": "1m", "fees": 0}
    for wrong in ({}, {"signal_width": "1m"}):
        with pytest.raises(md.errors.GridError, match="distinct times of the signal are on a grid of 1h") as error:
            md.study(books, signal, "30m", **options, **wrong)
        assert error.value.argument == "signal_width"
    early = md.study(books, signal.with_columns(available_at=pl.col("ts") + pl.duration(minutes=1)), "30m", **options)
    assert early.table["gross_low"][-1] > 0, "known before it happened, it earns itself"
    known = md.study(books, signal, "30m", signal_width="1h", **options)
    assert (known.signals, known.without_book, known.table["no_entry"][:-1].sum()) == (96, 0, 12)
    assert known.table["gross_low"][-1] < 0 < known.table["gross_high"][-1]
    orders = signal.select("ts", "market_id", "token_id", side=pl.lit("buy"), size=1.0)
    with pytest.raises(md.errors.GridError, match="orders are on a grid of 1h"):
        md.execute(orders, books, "1m", fees=0)
    fills = md.execute(orders, books, "1m", fees=0, order_width="1h").fills
    assert set((fills["ts"] - fills["signal_ts"]).to_list()) == {dt.timedelta(hours=1)}
    for name, value in (("latency", "90s"), ("exit_after", "90s")):
        with pytest.raises(md.errors.ConfigError, match=f"{name}='90s' is refused: it is no whole number of buckets"):
            md.execute(orders, books, "1m", fees=0, order_width="1h", **{name: value})


@pytest.mark.filterwarnings("default::marketdata.errors.CoarseGridWarning")
def test_two_orders_on_full_hours_are_no_orders_of_minutes_in_silence() -> None:
    """Both may be of hours, and then they are known an hour later; a warning names the way to say either."""
    books, _ = hourly_momentum(1, 3, seed=1)
    hours = books["ts"].dt.truncate("1h").unique().sort().head(2)
    ids = books.select("market_id", "token_id").head(1)
    orders = pl.DataFrame({"ts": hours}).join(ids, how="cross").with_columns(side=pl.lit("buy"), size=1.0)
    signal = orders.select("ts", "market_id", "token_id", x=pl.Series([1.0, 2.0]))
    options: Any = {"quantiles": 2, "interval": None, "width": "1m", "fees": 0}
    with pytest.warns(md.errors.CoarseGridWarning, match="order_width='1h'"):
        md.execute(orders, books, "1m", fees=0)
    with pytest.warns(md.errors.CoarseGridWarning, match="signal_width='1h'"):
        md.study(books, signal, "1m", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", md.errors.CoarseGridWarning)
        md.execute(orders, books, "1m", fees=0, order_width="1h")
        said = {"available_at": pl.col("ts") + pl.duration(minutes=1)}
        md.execute(orders.with_columns(**said), books, "1m", fees=0)
        md.study(books, signal.with_columns(**said), "1m", **options)
        md.execute(orders.with_columns(pl.col("ts") + pl.duration(minutes=pl.Series([0, 7]))), books, "1m", fees=0)


@pytest.mark.parametrize("frame", ["polars", "pandas"])
def test_the_event_of_a_market_is_joined_as_the_guide_says(frame: Any, local_archive: md.Archive) -> None:
    """Ids of prices, records and outcomes have one type, so joins by them work, and events are clusters."""
    archive: Any = md.Archive(local_archive.location, frame=frame)
    markets = archive.markets()
    prices = archive.prices(list(markets["market_id"]), resolution="1h", on_missing="partial")
    columns = ["market_id", "event_slug"]
    joined = (
        prices.join(markets.select(columns), on="market_id")
        if frame == "polars"
        else prices.merge(markets[columns], on="market_id")
    )
    assert len(joined) == len(prices) > 0
    tokens = md.outcomes(markets)
    keys = ["market_id", "token_id"]
    paid = joined.join(tokens, on=keys) if frame == "polars" else joined.merge(tokens, on=keys)
    assert len(paid) == len(prices)
    by_column, by_record = (
        md.cluster_mean(joined, "price", cluster="event_slug", interval=None, bounds=(0, 1)),
        md.cluster_mean(prices, "price", cluster="event_slug", by="event_slug", interval=None, markets=markets),
    )
    assert by_column["points"].sum() == by_record["points"].sum() > 0


def test_horizons_are_questions_as_signals_are() -> None:
    """A list of horizons gives a row for each pair, and p-values that allow for their number."""
    books, signal = walk(12)
    noise = signal.with_columns(signal=(pl.int_range(pl.len()) * 7919 % 1009) / 1009)
    many = md.study(books, [signal, noise], ["1m", "2m"], quantiles=2, fees=0, width="1m", resamples=200)
    assert many.table.select("signal", "horizon").rows() == [
        ("signal", "1m"), ("signal", "1m"), ("signal", "2m"), ("signal", "2m")
    ]  # fmt: skip
    p_values, adjusted = (many.table[name].to_numpy() for name in ("p_value", "p_adjusted"))
    assert np.all(adjusted >= p_values)
    assert np.isclose(adjusted.min(), min(1, 4 * p_values.min()))
    one = md.study(books, noise, ["2m"], quantiles=2, fees=0, width="1m", resamples=200).table
    assert one.drop("p_adjusted").equals(many.table[3].drop("p_adjusted"))
    with pytest.raises(md.errors.ConfigError, match="refused for 2 signals and 30 horizons"):
        md.study(books, [signal, noise], [f"{n}m" for n in range(1, 31)], fees=0, width="1m")


def test_a_signal_says_what_of_it_counts_nowhere() -> None:
    """Nulls and rows that were filled in are counted; a flag has no five quantiles."""
    books, signal = walk(12)
    at = pl.int_range(pl.len())
    holes = signal.with_columns(signal=pl.when(at % 5 == 0).then(None).otherwise("signal"), observed=at % 7 != 0)
    study = md.study(books, holes, "1m", quantiles=2, fees=0, width="1m", interval=None)
    kept = holes.filter(pl.col("observed") & pl.col("signal").is_not_null())
    assert study.left_out["no_signal"] == holes["signal"].null_count()
    assert study.left_out["not_observed"] == len(signal) - len(kept) - study.left_out["no_signal"]
    assert study.table.equals(md.study(books, kept, "1m", quantiles=2, fees=0, width="1m", interval=None).table)
    flag = signal.with_columns(signal=(at % 3 == 0).cast(pl.Float64))
    with pytest.raises(md.errors.ConfigError, match=r"2 different values.*Give quantiles=2"):
        md.study(books, flag, "1m", fees=0, width="1m", interval=None)
    assert len(md.study(books, flag, "1m", fees=0, width="1m", interval=None, quantiles=2).table) == 3
