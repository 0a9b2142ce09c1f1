"""Best bids and asks of Yes and No of markets, one row a moment."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.points.records import ID_NAMES
from marketdata.recordings.format import UNDECIDED, Batch, Format, Table
from marketdata.recordings.points import add_points, left, listed, one_batch
from marketdata.recordings.roles import numbers
from marketdata.recordings.tables import derived_markets
from marketdata.wire import kalshi

_PRICES = ("yes_bid", "yes_ask", "no_bid", "no_ask")
_LABELS = ("Yes", "No")


def proves(table: Table) -> int:
    """A listing has such prices too: its rows say the state of a market, and no market comes twice."""
    if "state" in table.columns and not table.repeats("market_id"):
        return 0
    return UNDECIDED


def read(table: Table) -> Iterator[Batch]:
    """Two quotes a row; the prices of No that are not stated are those of Yes from the other side."""
    rows, batch = one_batch(table, _PRICES)
    if not len(rows):
        yield batch
        return
    rows = rows.with_columns(pl.Series(n, numbers(rows[n])).fill_nan(None) for n in _PRICES if n in rows.columns)
    absent = [(pl.lit(1.0) - pl.col(of)).round(9).alias(n) for n, of in (("no_bid", "yes_ask"), ("no_ask", "yes_bid"))
              if n not in rows.columns]  # fmt: skip
    stated = [n for n in _PRICES if n in rows.columns]
    is_price = pl.all_horizontal(pl.col(n).is_between(0, 1) | pl.col(n).is_null() for n in stated)
    is_whole = is_price & pl.col("market_id").is_not_null()
    rows = left(rows, is_whole, "price outside of 0 to 1, or no market", batch)
    rows = rows.with_columns(absent).with_columns(pl.col("market_id").cast(pl.String))
    columns = table.file.columns
    is_ticker = table.columns["market_id"] in ("ticker", "market_ticker")
    names = [pl.format("{}:{}", ID_NAMES["markets"], pl.lit(n.lower() if is_ticker else n)) for n in _LABELS]
    if "token_ids" in table.columns and rows["token_ids"].dtype == pl.String:
        lists = listed(rows["token_ids"])
        names = [pl.coalesce(pl.lit(lists.list.get(i, null_on_oob=True)), names[i]) for i in range(2)]
    elif {"token1", "token2"} <= set(columns):
        names = [pl.col("token_ids").cast(pl.String), pl.col("token2").cast(pl.String)]
    both = pl.concat([
        rows.select("ts", "market_id", token.alias("token_id"), pl.lit(label).alias("token_label"),
                    best_bid=f"{label.lower()}_bid", best_ask=f"{label.lower()}_ask")
        for label, token in zip(_LABELS, names, strict=True)
    ])  # fmt: skip
    # A bid of 0 and an ask of 1 mean that nobody is there.
    both = both.with_columns(
        pl.when(pl.col("best_bid") > 0).then("best_bid"), pl.when(pl.col("best_ask") < 1).then("best_ask")
    )
    if "token_ids" not in table.columns:
        markets = rows["market_id"].drop_nulls().unique(maintain_order=True).to_list()
        derived = [kalshi.market({"ticker": market}) for market in markets]
        batch.markets = derived if is_ticker else derived_markets(dict.fromkeys(markets, _LABELS), {})
    yield add_points(batch, "quotes", both.unique(maintain_order=True))


FORMAT = Format(
    name="outcome-quotes",
    kind="quotes",
    description="a table of best bids and asks of Yes and No",
    needs=("ts market_id yes_bid yes_ask",),
    takes="no_bid no_ask token_id price yes_price no_price",
    read=read,
    proves=proves,
)
