"""The tokens of a market, or the markets of an event, together: complements, overround, arbitrage, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl

from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import whole
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import ASK, BID, BOOKS, ID_COLUMNS, TOLERANCE
from marketdata.tidy import baskets
from marketdata.tidy.backends import Result, beside, run
from marketdata.tidy.measures import KINDS, top
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of
from marketdata.tidy.table import EagerTable, refuse_cents

F = TypeVar("F")
By = Literal["market", "event"]
Counts = int | Mapping[str, int] | None
_MARKET = ("market_id", "ts")
_SUMS = {"bid_sum": "best_bid", "mid_sum": "mid", "ask_sum": "best_ask"}
_HELD, _ALL = "__held", "__all"


def complement(frame: F, *, tokens: Any = None) -> F:
    """The book of each token of a two-token market as the other token's book implies it.

    Selling Yes at p is in effect bidding 1 - p for No: ask = 1 - bid and bid = 1 - ask of the other token. Returns tidy
    books with the same sizes and levels; applied twice it gives the frame back (to 1e-15). ConfigError if a market
    does not have two tokens. For ``tokens`` see `overround`.

    Examples
    --------
    >>> md.complement(md.testing.books("polars")).select("token_label", "side", "price", "size").row(0)
    ('Yes', 'bid', 0.39, 100.0)
    """
    return run(frame, partial(_mirrored, counts=_token_counts(tokens)), ("books",), together="market")


def _mirrored(table: EagerTable, counts: Counts) -> pl.DataFrame:
    book = table.book()
    refuse_cents(book, "price")
    data = book.frame()
    ids = data.select(*ID_COLUMNS).unique()
    pairs = ids.join(ids.rename({c: f"__{c}" for c in ID_COLUMNS[1:]}), on="market_id")
    pairs = pairs.filter(pl.col("token_id") != pl.col("__token_id"))
    known = _known(ids, counts).with_columns(good=((pl.col(_HELD) == 2) & (pl.col(_ALL) == 2)).fill_null(value=False))
    wrong = known.filter(~pl.col("good"))
    if len(wrong):
        names = sorted(map(str, wrong["market_id"].cast(pl.String).to_list()))[:3]
        raise ConfigError(
            f"{len(wrong)} markets of the frame do not have two tokens, for example {', '.join(names)}; a "
            "complement is of a market with two tokens, both of them in the frame."
        )
    data = data.join(pairs.drop("token_label"), on=["market_id", "token_id"])
    is_ask = pl.col("side").cast(pl.String) == ASK
    flipped = pl.when(is_ask).then(pl.lit(BID)).otherwise(pl.lit(ASK))
    side = data.collect_schema()["side"]
    data = data.with_columns(
        token_id=pl.col("__token_id"),
        token_label=pl.col("__token_label"),
        side=flipped if side == pl.String else flipped.cast(side),
        price=1.0 - pl.col("price"),
        __order=~is_ask,
    )
    return data.sort(*ID_COLUMNS, "ts", "__order", "level", nulls_last=True).select(*BOOKS)


def overround(frame: F, *, tokens: Any = None, by: By = "market", events: Any = None) -> F:
    """The price of all tokens of a market together, beyond the 1 that exactly one of them pays.

    One row per (market, ts) of books or bbo: ``ts market_id tokens bid_sum mid_sum ask_sum overround``: number of
    tokens in the frame, sums of their best bids, mids and best asks [probability], and ask_sum - 1. By market, ts. Null
    where a token of the market lacks the value or the entire book at that ``ts``, where only one token is known, and
    where the frame has more than ``tokens``.

    With ``by="event"`` one row per (event, ts) of the Yes of all its markets, of which exactly one pays: ``ts event_id
    markets bid_sum mid_sum ask_sum overround``. Null where a market lacks the value or the book, or the event is no
    basket: its markets do not exclude each other, its list is open, so that an outcome without a market may win, or
    that is not known.

    Parameters
    ----------
    tokens : int or frame, optional
        Number of tokens of a market: one number for all (from 2), market records (``market_id token_ids``) or the
        result of `outcomes`. By default the number of tokens that the frame has anywhere.
    by : "market" or "event"
        Whose tokens are added up.
    events : frame of market records, for by="event"
        One row per market: ``market_id``, ``token_ids`` (two, Yes first), ``event_id`` (or ``event_slug``), and of its
        event ``exclusive`` and ``open_list`` (the venue's own fields ``negRisk`` and ``negRiskAugmented`` are taken
        too). All markets of an event, those without a book too.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> md.overround(books).select("bid_sum", "ask_sum").row(0)
    (0.98, 1.02)
    >>> events = md.testing.markets("polars", markets=3).with_columns(exclusive=True, open_list=False)
    >>> md.overround(books, by="event", events=events).select("event_id", "markets", pl.col("ask_sum").round(9)).rows()
    [('weather-tomorrow', 3, 1.53)]
    """
    if by == "event":
        baskets.refuse_unused(by, tokens=tokens)
        return run(frame, partial(baskets.overround, events=baskets.events_of(events)), KINDS, together="all")
    baskets.refuse_unused(by, events=events)
    return run(frame, partial(_sums, counts=_token_counts(tokens)), KINDS, together="market")


def arbitrage(
    frame: F,
    *,
    tokens: Any = None,
    by: By = "market",
    events: Any = None,
    fees: Any = None,
    size: float | None = None,
) -> F:
    """Where all tokens of a market could be bought below, or sold above, the 1 that one of them pays; see `overround`.

    One row per (market, ts) of books or bbo: ``ts market_id buy_all sell_all size gain``. ``buy_all``: ask_sum < 1 -
    1e-9, ``sell_all``: bid_sum > 1 + 1e-9 (false where `overround` is null); ``size``: the smallest best size of that
    side [shares]; ``gain``: 1 - ask_sum or bid_sum - 1 [USD per set]. Size and gain are null without a flag, and those
    of buying if both are set. Fees are not counted, and snapshots of one ``ts`` may be of different moments of the
    bucket.

    With ``by="event"`` one row per (event, ts), net of fees and of depth: ``ts event_id legs`` (number of markets n),
    and for buying all Yes, of which one pays 1, and all No, of which n - 1 do, each: ``yes_size yes_cost yes_payoff
    yes_edge`` and ``no_size no_cost no_payoff no_edge``: sets of shares, what they cost in all, best asks first and
    with fees, what they pay for certain, and payoff - cost [USD]. Null where a market has no such book or not so many
    shares, and where the event is no basket (see `overround`). A market that pays something else than 0 or 1 breaks
    the sum.

    Parameters
    ----------
    fees : Fees, float or function, for by="event"
        What a taker pays, see `Fees`; has to be given, 0 says that there are none.
    size : float, optional, for by="event"
        Sets to buy [shares of each leg]; by default the smallest size at the best ask of the legs.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> events = md.testing.markets("polars", markets=3).with_columns(exclusive=True, open_list=False)
    >>> baskets = md.arbitrage(books, by="event", events=events, fees=md.Fees.quadratic(0.05), size=200)
    >>> baskets.select("legs", pl.col("no_cost", "no_payoff", "no_edge").round(2)).row(0)
    (3, 316.29, 400.0, 83.71)
    """
    if by == "event":
        baskets.refuse_unused(by, tokens=tokens)
        known, sets = baskets.known_fees(fees), baskets.size_of(size)
        costs = partial(baskets.arbitrage, events=baskets.events_of(events), fees=known, size=sets)
        return run(frame, costs, KINDS, together="all")
    baskets.refuse_unused(by, events=events, fees=fees, size=size)
    return run(frame, partial(_free_money, counts=_token_counts(tokens)), KINDS, together="market")


def _free_money(table: EagerTable, counts: Counts) -> pl.DataFrame:
    out = _sums(table, counts, sizes=True)
    buy = (pl.col("ask_sum") < 1 - TOLERANCE).fill_null(value=False)
    sell = (pl.col("bid_sum") > 1 + TOLERANCE).fill_null(value=False)
    size = pl.when(buy).then(pl.col("__ask_size")).otherwise(pl.when(sell).then(pl.col("__bid_size")))
    gain = pl.when(buy).then(1 - pl.col("ask_sum")).otherwise(pl.when(sell).then(pl.col("bid_sum") - 1))
    names = ("ts", "market_id", "buy_all", "sell_all", "size", "gain")
    return out.with_columns(buy_all=buy, sell_all=sell, size=size, gain=gain).select(*names)


def _token_counts(tokens: Any) -> Counts:
    """Number of tokens of a market, from ``tokens=``: one number (from 2), by market of a frame, or None."""
    if tokens is None:
        return None
    if isinstance(tokens, int | float | str):
        if whole("tokens", tokens) < 2:
            raise ConfigError(f"tokens={tokens!r} is refused; a market has two tokens or more.")
        return int(tokens)
    data = columns_of(
        tokens, ("market_id", "token_ids", "token_id"), "whole numbers from 2 and frames of market records"
    )
    if "market_id" in data and "token_ids" in data:
        lists = zip(data["market_id"], data["token_ids"], strict=True)
        return {str(market): len(ids) for market, ids in lists if ids is not None}
    if "market_id" in data and "token_id" in data:
        return Counter(market for market, _ in {*zip(data["market_id"], data["token_id"], strict=True)})
    raise NotTidyError.from_missing("tokens, a frame of market records,", ["market_id", "token_ids"], list(data))


def _known(ids: pl.DataFrame, counts: Counts) -> pl.DataFrame:
    """Per market: the tokens in the frame, and how many it has; null where that is not known."""
    out = ids.select(*ID_COLUMNS[:2]).unique().group_by("market_id").agg(pl.len().cast(pl.Int64).alias(_HELD))
    held, has = pl.col(_HELD), pl.col(_ALL)
    if counts is None:
        return out.with_columns(pl.when(held > 1).then(held).alias(_ALL))
    if isinstance(counts, int):
        return out.with_columns(pl.when(held <= counts).then(pl.lit(counts)).alias(_ALL))
    small = pl.DataFrame(
        {"market_id": pl.Series([*counts], dtype=pl.String), _ALL: pl.Series([*counts.values()], dtype=pl.Int64)}
    )
    small = small.with_columns(pl.col("market_id").cast(out.schema["market_id"], strict=False))
    out = out.join(small, on="market_id", how="left")
    return out.with_columns(pl.when(held <= has).then(has).alias(_ALL))


def _sums(table: EagerTable, counts: Counts, *, sizes: bool = False) -> pl.DataFrame:
    best = top(table)
    refuse_cents(best, "best_bid", "best_ask")
    data = best.frame()
    values = {name: pl.col(c).fill_null(0.0) for name, c in _SUMS.items()}
    there = {f"__{c}": (~pl.col(c).is_null()).cast(pl.Int64) for c in _SUMS.values()}
    least = {f"__{side}_size": pl.col(f"best_{side}_size") for side in (BID, ASK)} if sizes else {}
    rows = data.select(*_MARKET, **values, **there, **least).group_by(*_MARKET)
    out = rows.agg(pl.len().alias("tokens"), pl.col(*values, *there).sum(), *(pl.col(c).min() for c in least))
    out = out.join(_known(data, counts), on="market_id").with_columns(pl.col("tokens").cast(pl.Int64))
    complete = {name: pl.col(f"__{c}") == pl.col(_ALL) for name, c in _SUMS.items()}
    out = out.with_columns(pl.when(whole).then(pl.col(name)).alias(name) for name, whole in complete.items())
    out = out.with_columns(overround=pl.col("ask_sum") - 1).sort(*_MARKET, nulls_last=True)
    return out.select("ts", "market_id", "tokens", *_SUMS, "overround", *least)


def probabilities(frame: F, *, tokens: Any = None, by: By = "market", events: Any = None) -> F:
    """Prices (of books or bbo: mids) scaled so that the tokens of a market sum to 1.

    One row per (token, ts): ts, ids and ``probability``: price / sum of prices of the market at that ``ts`` [0 to 1].
    Null where a token of the market lacks its value or its row, or all are 0, where only one token is known, and where
    the frame has more than ``tokens``; see `overround`. With ``by="event"`` the Yes of all markets of an event
    sum to 1, and only they have rows; null where `overround` is.

    Examples
    --------
    >>> md.probabilities(md.testing.prices("polars", buckets=1))["probability"].to_list()
    [0.4, 0.6]
    """
    if by == "event":
        baskets.refuse_unused(by, tokens=tokens)
        scaled = partial(baskets.probabilities, events=baskets.events_of(events))
        return run(frame, scaled, ("prices", *KINDS), together="all")
    baskets.refuse_unused(by, events=events)
    counts = _token_counts(tokens)
    return run(frame, partial(_scaled, counts=counts), ("prices", *KINDS), together="market")


def _scaled(table: EagerTable, counts: Counts) -> Result:
    """Sums over the rows of a market and time, which a stable sort brings together."""
    table, value = probability_of(table)
    heads = table.take(table.groups)
    ids = pl.DataFrame([heads.column(c) for c in ID_COLUMNS[:2]])
    known = _known(ids, counts)
    tokens = ids.join(known, on="market_id", how="left", maintain_order="left")[_ALL].fill_null(0).to_numpy()
    lengths = run_ends(table.groups, len(table)) - table.groups
    market = np.repeat(np.cumsum(np.diff(heads.array("market_id"), prepend=-1) != 0), lengths)
    ts, values = table.array("ts"), table.array(value)
    order = np.lexsort((ts, market))
    starts = group_starts(market[order], ts[order])
    sorted_values = values[order]
    there, total = ~np.isnan(sorted_values), np.nan_to_num(sorted_values, nan=0.0, posinf=np.inf, neginf=-np.inf)
    if len(starts):
        there, total = np.add.reduceat(there.astype(np.int64), starts), np.add.reduceat(total, starts)
    whole = (there == np.repeat(tokens, lengths)[order[starts]]) & (total > 0)
    scale = np.empty(len(ts))
    scale[order] = np.repeat(np.where(whole, total, np.nan), run_ends(starts, len(ts)) - starts)
    probability = pl.Series("probability", values / scale, nan_to_null=True)
    return beside(table, ["ts", *ID_COLUMNS], [probability])
