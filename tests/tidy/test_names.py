"""Slugs, questions and labels beside ids, in every kind of frame."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import marketdata as md

MARKETS = md.testing.markets("polars", markets=3)
PRICES = md.testing.prices("polars", markets=3)
KINDS: dict[str, Any] = {
    "pandas": lambda frame: frame.to_pandas(),
    "polars": lambda frame: frame,
    "lazy": lambda frame: frame.lazy(),
    "arrow": lambda frame: frame.to_arrow(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_named_adds_what_people_call_a_market_and_keeps_the_rows(kind: str) -> None:
    """Slug, question and label are those of the record, by id; a market without a record has nulls."""
    unlabelled = PRICES.with_columns(token_label=pl.lit(None, pl.Categorical)).sample(fraction=1, shuffle=True, seed=1)
    out = md.named(KINDS[kind](unlabelled), KINDS[kind](MARKETS[:2]) if kind != "lazy" else MARKETS[:2])
    rows = out.collect() if kind == "lazy" else pl.DataFrame(out)
    assert rows.columns == [*unlabelled.columns, "slug", "question"]
    assert rows["price"].to_list() == unlabelled["price"].to_list()
    slugs = dict(MARKETS[:2].select(pl.col("market_id", "slug").cast(pl.String)).rows())
    labels = dict(PRICES.select(pl.col("token_id", "token_label").cast(pl.String)).rows())
    for row in rows.with_columns(pl.selectors.categorical().cast(pl.String)).iter_rows(named=True):
        known = row["market_id"] in slugs
        assert row["slug"] == slugs.get(row["market_id"])
        assert (row["question"] is None) is not known
        assert row["token_label"] == (labels[row["token_id"]] if known else None)


def test_named_takes_frames_without_a_time_and_trades() -> None:
    """Scores by market, fills and trades have ids too."""
    scores = PRICES.group_by("market_id").agg(pl.col("price").mean())
    assert set(md.named(scores, MARKETS)["slug"]) == set(MARKETS["slug"])
    trades = PRICES.with_columns(side=pl.lit("buy"), size=pl.lit(1.0))
    assert md.named(trades, MARKETS, "slug").columns[-1] == "slug"


def test_named_grows_by_codes_and_not_by_texts() -> None:
    """A further column of texts takes a few bytes a row."""
    long = pl.concat([PRICES] * 1000).to_pandas()
    before, after = (frame.memory_usage(deep=True).sum() for frame in (long, long.md.named(MARKETS)))
    assert after - before < 3 * len(long)


def test_named_refuses_what_has_two_meanings() -> None:
    """Two records of a market that differ, columns that are no texts or are missing, and frames without ids."""
    doubled = pl.concat([MARKETS, MARKETS.with_columns(slug=pl.lit("other"))])
    with pytest.raises(md.errors.NotTidyError, match="Two records of the market 'rain' differ in slug"):
        md.named(PRICES, doubled)
    with pytest.raises(md.errors.ConfigError, match="'end_date', which has datetimes; allowed are texts"):
        md.named(PRICES, MARKETS, ["end_date"])
    with pytest.raises(md.errors.ConfigError, match="'topic', which the records lack"):
        md.named(PRICES, MARKETS, ["topic"])
    with pytest.raises(md.errors.NotTidyError, match="market_id"):
        md.named(PRICES.drop("market_id"), MARKETS)


def test_records_join_with_histories() -> None:
    """Ids have one type in tidy frames and in records, also where a record lists its tokens."""
    for column, other in (("market_id", "market_id"), ("token_id", "resolved_token_id")):
        assert len(PRICES.join(MARKETS, left_on=column, right_on=other)) > 0
    tokens = MARKETS.select("token_ids").explode("token_ids")
    assert len(PRICES.join(tokens, left_on="token_id", right_on="token_ids")) == len(PRICES)
