"""Which rows of recorded prices and books count in a study, by plain loops over all of them."""

from __future__ import annotations

import datetime as dt
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reference.studies import Key, counted_rows, in_thirds

import marketdata as md

pytestmark = pytest.mark.filterwarnings(
    *(f"ignore::marketdata.errors.{name}" for name in ("FewMarketsWarning", "MissingValuesWarning"))
)
STEP, HORIZON = dt.timedelta(seconds=10), dt.timedelta(minutes=1)


@pytest.fixture(scope="module")
def records(recorded: Path) -> pl.DataFrame:
    """One row per token: its market, and its label in lower case with a capital."""
    markets = pl.read_parquet(recorded / "markets.parquet").filter(pl.col("token_labels").list.len() == 2)
    tokens = markets.select("market_id", token_id="token_ids", token_label="token_labels")
    return tokens.explode("token_id", "token_label").with_columns(pl.col("token_label").str.to_titlecase())


@pytest.fixture(scope="module")
def prices(recorded: Path, records: pl.DataFrame) -> pl.DataFrame:
    """The last recorded price of each token and hour."""
    frame = pl.read_parquet(recorded / "prices.parquet").drop("source").join(records, on="token_id")
    by = ("market_id", "token_id", "token_label")
    last = frame.sort("ts").group_by(pl.col("ts").dt.truncate("1h"), *by).agg(pl.col("price").last())
    return last.sort("market_id", "token_id", "ts")


def winners(prices: pl.DataFrame) -> dict[str, str]:
    """By market the token that won. The records do not say it, so it is read from the final prices.

    A market whose last prices are not above 0.95 and below 0.05 has no outcome.
    """
    last: dict[str, dict[str, float]] = defaultdict(dict)
    for market, token, price in prices.sort("ts").select("market_id", "token_id", "price").rows():
        last[market][token] = price
    won = {}
    for market, of_token in last.items():
        high = [token for token, price in of_token.items() if price > 0.95]
        low = [token for token, price in of_token.items() if price < 0.05]
        if len(high) == len(low) == 1:
            won[market] = high[0]
    return won


@pytest.mark.parametrize(("least", "most"), [(0.6, 0.9), (0.45, 0.9), (0.0, 1.0)])
def test_calibration_of_recorded_prices_is_the_share_of_all_rows_that_count(
    prices: pl.DataFrame, least: float, most: float
) -> None:
    """Of favourites all rows count but those of No at a time where Yes is a favourite too."""
    won = winners(prices)
    chosen = prices.filter(pl.col("price").is_between(least, most), pl.col("market_id").is_in([*won]))
    rows = chosen.select("market_id", "token_id", "token_label", "ts", "price").rows()
    has_yes = {(market, ts) for market, _, label, ts, _ in rows if label == "Yes"}
    counted, all_wins, wins, total, mirrored = 0, 0, 0, 0.0, 0
    for market, token, label, ts, price in rows:
        all_wins += token == won[market]
        if label == "No" and (market, ts) in has_yes:
            mirrored += 1
            continue
        counted, wins, total = counted + 1, wins + (token == won[market]), total + price
    assert counted > 0
    curve = md.calibration(chosen, won, 1).row(0, named=True)
    assert (curve["points"], curve["left_out"]) == (counted, mirrored)
    assert curve["outcome"] == pytest.approx(wins / counted, rel=1e-12)
    assert curve["forecast"] == pytest.approx(total / counted, rel=1e-12)
    if least > 0.5:  # favourites of both tokens at one time are rare, in books far from 1
        assert curve["outcome"] == pytest.approx(all_wins / len(rows), abs=mirrored / len(rows))
        assert mirrored < 0.02 * len(rows)
        markets_with_yes = {market for market, _ in has_yes}
        without = [row for row in rows if row[2] == "Yes" or row[0] not in markets_with_yes]
        assert len(without) < counted  # a rule by market would drop rows that mirror nothing


@pytest.fixture(scope="module")
def up_down(recorded: Path, records: pl.DataFrame) -> pl.DataFrame:
    """Books of 10 seconds of the recorded Up/Down markets."""
    books = pl.read_parquet(recorded / "books.parquet").filter(pl.col("source").is_in(["websocket", "sampled"]))
    tidy = books.drop("source").join(records, on="token_id")
    assert {*tidy["token_label"]} == {"Up", "Down"}
    return md.resample(tidy, "10s").with_columns(pl.col("market_id", "token_id", "token_label").cast(pl.String))


def gross_of_thirds(books: pl.DataFrame, labels: Mapping[tuple[str, str], str]) -> list[tuple[int, float | None]]:
    """Rows, and the mean move of the mid, of the thirds of imbalance; by loops over levels."""
    best: dict[Key, dict[str, float]] = defaultdict(dict)
    shares: dict[Key, dict[str, float]] = defaultdict(dict)
    columns = ("market_id", "token_id", "ts", "side", "level", "price", "size")
    for market, token, ts, side, level, price, size in books.select(columns).rows():
        of_time = best[market, token, ts]
        if level == 0:
            of_time[side] = price
        if size is not None:
            shares[market, token, ts][side] = shares[market, token, ts].get(side, 0.0) + size

    def moved(market: str, token: str, ts: dt.datetime) -> float | None:
        enter, leave = (best.get((market, token, time), {}) for time in (ts + STEP, ts + STEP + HORIZON))
        if len(enter) < 2 or len(leave) < 2:
            return None
        return (leave["bid"] + leave["ask"]) / 2 - (enter["bid"] + enter["ask"]) / 2

    both = [key for key, of_side in shares.items() if len(of_side) == 2]
    signal = {
        key: (shares[key]["bid"] - shares[key]["ask"]) / (shares[key]["bid"] + shares[key]["ask"])
        for key in counted_rows(both, labels)
    }
    out = []
    for keys in in_thirds(signal):
        moves = [move for move in (moved(*key) for key in keys) if move is not None]
        out.append((len(keys), sum(moves) / len(moves) if moves else None))
    return out


def table_of(books: pl.DataFrame, outcomes: Any = None) -> list[tuple[int, float | None]]:
    study = md.study(
        books, "imbalance", "1m", width="10s", quantiles=3, fees=0, outcomes=outcomes, interval=None
    )  # fmt: skip
    return [*study.table.filter(pl.col("quantile").is_not_null()).select("rows", "gross").iter_rows()]


def assert_close(got: Sequence[tuple[int, float | None]], want: Sequence[tuple[int, float | None]]) -> None:
    assert [rows for rows, _ in got] == [rows for rows, _ in want]
    assert [gross for _, gross in got] == pytest.approx([gross for _, gross in want], rel=1e-9, abs=1e-12)


def test_the_sign_of_a_recorded_study_does_not_turn_with_the_ids(up_down: pl.DataFrame) -> None:
    """Up stands for each market, whichever of its ids is the smaller one."""
    pairs = up_down.select("market_id", "token_id", "token_label").unique().rows()
    labels = {(market, token): label for market, token, label in pairs}
    smallest = {labels[market, min(t for m, t in labels if m == market)] for market, _ in labels}
    assert smallest == {"Up", "Down"}  # the smallest id would mix them
    want = gross_of_thirds(up_down, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", md.errors.MixedLabelsWarning)
        assert_close(table_of(up_down), want)
        for rename in ("Up", "Down"):
            is_first = pl.col("token_label") == rename
            ids = pl.when(is_first).then(pl.lit("1")).otherwise(pl.lit("2"))
            renamed = up_down.with_columns(token_id=pl.concat_str(ids, "token_id"))
            assert_close(table_of(renamed), want)
        alone = {label: table_of(up_down.filter(token_label=label)) for label in ("Up", "Down")}
    for label, got in alone.items():
        assert_close(got, gross_of_thirds(up_down.filter(token_label=label), labels))


def test_a_recorded_study_whose_tokens_differ_in_label_says_so(up_down: pl.DataFrame) -> None:
    """Where records name Down first in some markets, the study follows them and warns."""
    pairs = sorted(up_down.select("market_id", "token_label", "token_id").unique().rows())
    tokens: dict[str, dict[str, str]] = defaultdict(dict)
    for market, label, token in pairs:
        tokens[market][token] = label  # Down is first
    ordered = {
        market: [*ids] if number % 2 else [*ids][::-1] for number, (market, ids) in enumerate(sorted(tokens.items()))
    }
    open_markets = pl.DataFrame({
        "market_id": [*ordered], "token_ids": [*ordered.values()],
        "token_labels": [[tokens[market][token] for token in ids] for market, ids in ordered.items()],
        "resolved_token_id": [None] * len(ordered), "closed_at": [None] * len(ordered),
    }, schema_overrides={"resolved_token_id": pl.String, "closed_at": pl.Datetime("us", "UTC")})  # fmt: skip
    # For the loop the token that stands for its market is Up, whatever its own label is.
    labels = {(market, token): "Up" if token == ordered[market][0] else "Down" for market, _, token in pairs}
    with pytest.warns(md.errors.MixedLabelsWarning, match=r"'(Up|Down)' in \d, '(Up|Down)' in \d of 7 markets"):
        got = table_of(up_down, open_markets)
    assert_close(got, gross_of_thirds(up_down, labels))
