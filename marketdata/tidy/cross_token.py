"""The tokens of a market together: complements, overround, arbitrage, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, run
from marketdata.adapters.frame import Frame, Native
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import cross_token as rules
from marketdata.points.arguments import whole
from marketdata.points.columns import Series
from marketdata.points.cross_token import Counts
from marketdata.points.fees import schedule
from marketdata.points.schema import BOOKS, refuse_cents
from marketdata.renamed import renamed
from marketdata.tidy.measures import KINDS, top
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of


def complement(frame: F, *, tokens: Any = None) -> F:
    """The book of each token of a two-token market as the other token's book implies it.

    Selling Yes at p is in effect bidding 1 - p for No: ask = 1 - bid and bid = 1 - ask of the other token. Returns tidy
    books with the same sizes and levels; applied twice it gives the frame back (to 1e-15). ConfigError if a market
    does not have two tokens. For ``tokens`` see `overround`.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> md.complement(books).select("token_label", "side", "price", "size").row(0)
    ('Yes', 'bid', 0.39, 100.0)
    """
    counts = _token_counts(tokens)

    def mirrored(part: Frame) -> Native:
        rows = frames.level_rows(part)
        refuse_cents(price=rows.levels.price)
        entries, levels = rules.complement(*rows, counts)
        return frames.to_frame(part, entries, frames.level_values(levels), BOOKS)

    return run(frame, mirrored, ("books",), partition_by="market")


@renamed
def overround(frame: F, *, tokens: Any = None) -> F:
    """The price of all tokens of a market together, beyond the 1 that exactly one of them pays.

    Parameters
    ----------
    tokens : int or frame, optional
        Number of tokens of a market: one number for all (from 2), market records (``market_id token_ids``) or the
        result of `outcomes`. By default the number of tokens that the frame has anywhere.

    Returns
    -------
    frame
        One row per (market, ts) of books or bbo, by market and ts:

        - ``ts market_id``.
        - ``tokens``: the number of tokens with a row at that ``ts``.
        - ``bid_sum mid_sum ask_sum``: sums of their best bids, mids and best asks [probability].
        - ``overround``: ask_sum - 1.

        Sums are null where a token lacks the value or the book at ``ts``, and where only one token is known. They are
        null too where the frame has more than ``tokens``.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> md.overround(books).select("bid_sum", "ask_sum").row(0)
    (0.98, 1.02)
    """
    sums = partial(
        _of_market, rule=rules.sums, names=("tokens", *rules.SUMS, "overround"), counts=_token_counts(tokens)
    )
    return run(frame, sums, KINDS, partition_by="market")


@renamed
def arbitrage(frame: F, *, tokens: Any = None, fees: Any = None) -> F:
    """Flags where all tokens of a market could be bought below, or sold above, the 1 that one of them pays.

    Snapshots of one ``ts`` may be of different moments of the bucket.

    Parameters
    ----------
    tokens : int or frame, optional
        As for `overround`.
    fees : Fees, float or function, optional
        What a taker pays, see `Fees`: asks cost the fee of one share more, and bids bring it less. Without it the gain
        is before fees.

    Returns
    -------
    frame
        One row per (market, ts) of books or bbo:

        - ``ts market_id``.
        - ``buy_all``: ask_sum < 1 - 1e-9, false where `overround` is null.
        - ``sell_all``: bid_sum > 1 + 1e-9, false where `overround` is null.
        - ``size``: the smallest best size on the side of the flag [shares], null without a flag.
        - ``gain``: 1 - ask_sum or bid_sum - 1 [USD per set], null without a flag.

        If both flags are set, size and gain are for buying.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> cheap = books.with_columns(price=pl.col("price") - 0.05)
    >>> gains = md.arbitrage(cheap).select("buy_all", "size", pl.col("gain").round(2))
    >>> gains.row(0)
    (True, 100.0, 0.08)
    >>> md.arbitrage(cheap, fees=0.05)["gain"].round(3).to_list()
    [0.034, 0.034, 0.034]
    """
    names = ("buy_all", "sell_all", "size", "gain")
    rule = partial(rules.free_money, fees=None if fees is None else schedule(fees))
    gains = partial(_of_market, rule=rule, names=names, counts=_token_counts(tokens))
    return run(frame, gains, KINDS, partition_by="market")


def _of_market(frame: Frame, rule: Callable[[Series, Counts], Series], names: Sequence[str], counts: Counts) -> Native:
    """One row per market and time: the columns of a rule on the best prices of its tokens."""
    best = top(frame)
    refuse_cents(best_bid=best.values["best_bid"], best_ask=best.values["best_ask"])
    result = rule(best, counts)
    values = {"ts": frames.times(result.ts), **result.values}
    return frames.to_frame(frame, result, values, ["ts", "market_id", *names])


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


@renamed
def probabilities(frame: F, *, tokens: Any = None) -> F:
    """Prices (of books or bbo: mids) scaled so that the tokens of a market sum to 1.

    One row per (token, ts): ts, ids and ``probability``, the price over the sum of the prices of the market at that
    ``ts`` [0 to 1]. It is null where a token of the market lacks its value or its row, and where all are 0. It is null
    too where only one token is known, or the frame has more than ``tokens`` (see `overround`).

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1)
    >>> md.probabilities(prices)["probability"].to_list()
    [0.4, 0.6]
    """
    counts = _token_counts(tokens)

    def shares(part: Frame) -> Native:
        series, value = probability_of(part)
        return frames.to_frame(part, series, {"probability": rules.shares(series, value, counts)})

    return run(frame, shares, ("prices", *KINDS), partition_by="market")
