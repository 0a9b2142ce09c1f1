"""What the sides of prints earned, against a plain loop."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ConfigError, MissingValuesWarning, NotTidyError, OpenMarketsWarning

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = {
    "ts": pl.Datetime("us", "UTC"), "market_id": pl.String, "token_id": pl.String, "token_label": pl.String,
    "side": pl.String, "price": pl.Float64, "size": pl.Float64, "maker": pl.String, "taker": pl.String,
    "fee": pl.Float64, "transaction_hash": pl.String,
}  # fmt: skip
PAID = {"m0": {"m0-yes": 1.0, "m0-no": 0.0}, "m1": {"m1-yes": 0.0, "m1-no": 1.0}, "m2": {"m2-yes": 0.5, "m2-no": 0.5}}


def prints(rows: list[dict[str, Any]]) -> pl.DataFrame:
    whole = [{name: row.get(name) for name in SCHEMA} for row in rows]
    return pl.DataFrame(whole, SCHEMA)


def one(market: str = "m0", label: str = "Yes", side: str | None = "buy", price: float = 0.4, size: float = 10.0,
        **more: Any) -> dict[str, Any]:  # fmt: skip
    token = f"{market}-{label.lower()}"
    return {"ts": T0, "market_id": market, "token_id": token, "token_label": label, "side": side, "price": price,
            "size": size, **more}  # fmt: skip


drawn = st.lists(
    st.builds(
        one, st.sampled_from([*PAID]), st.sampled_from(["Yes", "No"]), st.sampled_from(["buy", "sell"]),
        st.integers(0, 100).map(lambda cents: cents / 100), st.integers(1, 50).map(float),
        maker=st.sampled_from("abc"), taker=st.sampled_from("abc"), fee=st.sampled_from([0.0, 0.1]),
    ),
    max_size=12,
)  # fmt: skip


@given(drawn, st.sampled_from(["role", "taker", "maker", "account", "token_label", ["role", "token_label"]]))
def test_profits_are_those_of_a_plain_loop(rows: list[dict[str, Any]], by: Any) -> None:
    """For each side: what it staked, paid in fees and earned; takers and makers together lose the fees."""
    names = [by] if isinstance(by, str) else by
    want: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0] * 5)
    for row in rows:
        for role in ("taker", "maker"):
            if (role == "maker" and not {"role", "maker", "account"} & {*names}) or (role == "taker" and by == "maker"):
                continue
            known = {**row, "role": role, "account": row[role]}
            is_long = (row["side"] == "buy") == (role == "taker")
            payoff = PAID[row["market_id"]][row["token_id"]]
            cost, back = (row["price"], payoff) if is_long else (1 - row["price"], 1 - payoff)
            fee = row["fee"] if role == "taker" else 0.0
            profit = row["size"] * (back - cost) - fee
            sums = want[tuple(known[name] for name in names)]
            for k, value in enumerate((1, row["price"] * row["size"], cost * row["size"], profit, profit > 0)):
                sums[k] += value
    for frame in (prints(rows), prints(rows).to_pandas()):
        found = pl.DataFrame(md.pnl(frame, PAID, by=by, interval=None))
        got = {tuple(str(row[name]) for name in names): row for row in found.rows(named=True)}
        assert got.keys() == want.keys()
        for key, (count, volume, staked, profit, hits) in want.items():
            row = got[key]
            assert row["trades"] == count
            assert (row["volume"], row["staked"], row["profit"]) == pytest.approx((volume, staked, profit), abs=1e-9)
            assert row["hit_rate"] == pytest.approx(hits / count)
    if rows and by == "role":
        assert found["profit"].sum() == pytest.approx(-sum(row["fee"] for row in rows), abs=1e-9)


def test_a_merge_and_a_sale_of_split_tokens_come_out_right() -> None:
    """Buying both outcomes at 0.95 earns 0.05; selling Yes after a split is buying No."""
    both = [one(price=0.4, taker="w"), one(label="No", price=0.55, taker="w")]
    assert md.pnl(prints(both), PAID, by="taker", interval=None)["profit"].to_list() == pytest.approx([0.5])
    sale, purchase = ([one(side="sell", price=0.6)], [one(label="No", price=0.4)])
    earned = [md.pnl(prints(rows), PAID, interval=None)["profit"].to_list() for rows in (sale, purchase)]
    assert earned[0] == pytest.approx(earned[1])


def test_what_does_not_count_is_counted() -> None:
    """A fill seen from both tokens counts once; open markets, prints after the close and without a side do not."""
    seen = [one(transaction_hash="0x1"), one(label="No", price=0.6, transaction_hash="0x1", side="buy")]
    records = pl.DataFrame({
        "market_id": ["m0", "m9"], "token_ids": [["m0-yes", "m0-no"], ["m9-yes", "m9-no"]],
        "token_labels": [["Yes", "No"]] * 2, "resolved_token_id": ["m0-yes", None],
        "closed_at": [T0 + dt.timedelta(hours=1), None],
    })  # fmt: skip
    late = one(price=0.5) | {"ts": T0 + dt.timedelta(hours=2)}
    rows = prints([*seen, late, one("m9"), one(side=None)])
    with pytest.warns(OpenMarketsWarning), pytest.warns(MissingValuesWarning, match="do not say what the taker did"):
        found = md.pnl(rows, records, by=None, interval=None)
    wanted = ["trades", "left_out", "after_close", "no_side", "open"]
    assert found.select(wanted).rows() == [(1, 1, 1, 1, 1)]
    others = [
        one(transaction_hash="0x1"),
        one(label="No", price=0.5, transaction_hash="0x1"),
        one(label="No", price=0.6),
    ]
    assert md.pnl(prints(others), PAID, by=None, interval=None)["trades"].to_list() == [3]


def test_fees_are_of_the_prints_or_of_the_argument() -> None:
    """Makers pay none; without any the profit is before fees, and fees are null."""
    rows = prints([one(price=0.5)])
    assert md.pnl(rows, PAID, interval=None).select("fees", "profit").rows() == [(None, 5.0), (0.0, -5.0)]
    charged = md.pnl(rows, PAID, fees=md.Fees.flat(0.1), interval=None)
    assert charged.select("fees", "profit").rows() == [(0.5, 4.5), (0.0, -5.0)]


def test_an_interval_is_over_markets_or_events() -> None:
    """Fair prints have zero inside in most samples; the result says how they were clustered."""
    import numpy as np

    inside = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        price = rng.uniform(0.2, 0.8, 60)
        won = rng.random(60) < price
        rows = [one(f"n{n}", price=float(price[n])) for n in range(60) for _ in range(3)]
        paid = {f"n{n}": {f"n{n}-yes": float(won[n])} for n in range(60)}
        row = md.pnl(prints(rows), paid, by=None, resamples=300).row(0, named=True)
        inside.append(row["low"] <= 0 <= row["high"])
        assert row["cluster"] == "market_id"
    assert sum(inside) >= 35
    events = prints(rows).with_columns(
        event_slug=(pl.col("market_id").str.slice(1).cast(pl.Int64) // 4).cast(pl.String)
    )
    assert md.pnl(events, paid, by=None, resamples=50)["cluster"].to_list() == ["event_slug"]


@pytest.mark.parametrize(
    ("change", "words", "error", "says"),
    [
        ({"price": 40.0}, {}, NotTidyError, "0 to 1"),
        ({"size": -1.0}, {}, NotTidyError, "size"),
        ({"side": "yes"}, {}, NotTidyError, "buy or sell"),
        ({}, {"by": ["taker", "maker"]}, ConfigError, "one of taker, maker and account"),
        ({}, {"by": "nope"}, NotTidyError, "nope"),
        ({}, {"by": "account", "drop": "taker"}, NotTidyError, "taker"),
    ],
)
def test_wrong_prints_and_arguments_are_named(change: Any, words: Any, error: type[Exception], says: str) -> None:
    """The error says what was wrong and what is allowed."""
    rows = prints([one(**change)]).drop([words.pop("drop")] if "drop" in words else [])
    with pytest.raises(error, match=says):
        md.pnl(rows, PAID, **words)
