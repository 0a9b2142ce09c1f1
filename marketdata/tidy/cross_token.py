"""The tokens of a market together: complements, overround, arbitrage, implied probabilities."""

from __future__ import annotations

from typing import Any, TypeVar

import narwhals as nw

from marketdata.errors import ConfigError
from marketdata.tidy.kinds import texts
from marketdata.tidy.partitions import market_by_market
from marketdata.tidy.quotes import bbo
from marketdata.tidy.schema import ASK, BBO, BID, BOOKS, PRICES, WHO, kind_of
from marketdata.tidy.snapshots import closed, opened

F = TypeVar("F")
_MARKET = ("market_id", "ts")
_SUMS = {"bid_sum": "best_bid", "mid_sum": "mid", "ask_sum": "best_ask"}
# Sums of decimal prices miss 1 by a few bits.
_SLACK = 1e-9


@market_by_market
def complement(frame: F) -> F:
    """The book of each token of a two-token market as the other token's book implies it.

    Who sells Yes at p, in effect bids 1 - p for No: bids become asks, and each price p becomes 1 - p.

    Parameters
    ----------
    frame
        Tidy books of any frame kind, with both tokens of each market.

    Returns
    -------
    frame of the same kind
        Tidy books. The rows of a token are those of the other one, mirrored: ``token_id`` and ``token_label`` are of
        the token whose book is implied. Sizes and levels stay; an empty side stays one marker row. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If a market of a frame in memory does not have two tokens; a lazy frame leaves such markets out.

    Notes
    -----
    synthetic ask = 1 - bid, synthetic bid = 1 - ask. Twice gives the frame back (to 1e-15).

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 4, "market_id": "m", "token_id": ["1", "1", "2", "2"],
    ...     "token_label": ["No", "No", "Yes", "Yes"], "side": ["bid", "ask"] * 2, "level": [0] * 4,
    ...     "price": [0.25, 0.5, 0.5, None], "size": [1.0, 2.0, 3.0, None],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.complement(book).select("token_label", "side", "price").rows()
    [('No', 'bid', None), ('No', 'ask', 0.5), ('Yes', 'bid', 0.5), ('Yes', 'ask', 0.75)]
    """
    data = opened(frame)
    kind_of(data.collect_schema().names(), ("books",))
    tokens = data.select(*WHO).unique()
    pairs = tokens.join(tokens.rename({c: f"__{c}" for c in WHO[1:]}), on="market_id")
    pairs = pairs.filter(nw.col("token_id") != nw.col("__token_id"))
    count = tokens.group_by("market_id").agg(nw.col("token_id").n_unique().alias("__tokens"))
    if isinstance(count, nw.DataFrame):
        wrong = count.filter(nw.col("__tokens") != 2)
        if len(wrong):
            names = sorted(map(str, texts(wrong["market_id"])))[:3]
            raise ConfigError(
                f"{len(wrong)} markets of the frame do not have two tokens, for example {', '.join(names)}; a "
                "complement is of a market with two tokens, both of them in the frame."
            )
    pairs = pairs.join(count.filter(nw.col("__tokens") == 2), on="market_id").drop("__tokens")
    data = data.select(*BOOKS).join(pairs.drop("token_label"), on=["market_id", "token_id"])
    is_ask = nw.col("side").cast(nw.String) == ASK
    flipped = nw.when(is_ask).then(nw.lit(BID)).otherwise(nw.lit(ASK))
    side = data.collect_schema()["side"]
    data = data.with_columns(
        token_id=nw.col("__token_id"),
        token_label=nw.col("__token_label"),
        side=flipped if side == nw.String else flipped.cast(side),
        price=1.0 - nw.col("price"),
        __order=~is_ask,
    )
    data = data.sort(*WHO, "ts", "__order", "level", nulls_last=True)
    return closed(data.select(*BOOKS), frame)  # type: ignore[no-any-return]


@market_by_market
def overround(frame: F) -> F:
    """What all tokens of a market cost together.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind, with all tokens of each market.

    Returns
    -------
    frame of the same kind
        One row per (market, ts): ``ts market_id tokens bid_sum mid_sum ask_sum overround``: the number of tokens seen,
        sums of best bids, mids and best asks over them [probability], and ask_sum - 1. Null where a token of
        the market (any that the frame has) lacks the value or the whole book at that ``ts``. By market, ts.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Notes
    -----
    Exactly one token of a market pays 1, so fair prices sum to 1; the overround is the margin of who sells all of them.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> out = archive.books(archive.records("markets")[0]["id"]).md.overround()
    >>> bool((out["bid_sum"].dropna() < out["ask_sum"].dropna()).all())
    True
    """
    return closed(_sums(opened(bbo(frame))), frame)  # type: ignore[no-any-return]


@market_by_market
def arbitrage(frame: F) -> F:
    """Where all tokens of a market could be bought below, or sold above, the 1 that one of them pays.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind, with all tokens of each market.

    Returns
    -------
    frame of the same kind
        One row per (market, ts): ``ts market_id buy_all sell_all size gain``: whether the asks sum to less than 1,
        whether the bids sum to more [true or false; false where a token lacks the side]; the number of sets at the best
        prices, the smallest best size of that side [shares]; and what one set gains [USD]. Size and gain are
        null without a flag. By market, ts.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Notes
    -----
    buy_all: ask_sum < 1 - 1e-9, gain = 1 - ask_sum. sell_all: bid_sum > 1 + 1e-9, gain = bid_sum - 1. Where both hold,
    which takes a crossed book, size and gain are those of buying. Fees are not counted, and snapshots of one ``ts`` may
    have been taken at different moments of the bucket.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> list(archive.books(archive.records("markets")[0]["id"]).md.arbitrage().columns)
    ['ts', 'market_id', 'buy_all', 'sell_all', 'size', 'gain']
    """
    out = _sums(opened(bbo(frame)), sizes=True)
    buy = nw.col("ask_sum") < 1 - _SLACK
    sell = nw.col("bid_sum") > 1 + _SLACK
    either = [nw.when(flag).then(1.0).otherwise(0.0).alias(c) for flag, c in ((buy, "__buy"), (sell, "__sell"))]
    out = out.with_columns(*either)
    buy, sell = nw.col("__buy") > 0, nw.col("__sell") > 0
    size = nw.when(buy).then(nw.col("__ask_size")).otherwise(nw.when(sell).then(nw.col("__bid_size")))
    gain = nw.when(buy).then(1 - nw.col("ask_sum")).otherwise(nw.when(sell).then(nw.col("bid_sum") - 1))
    names = ("ts", "market_id", "buy_all", "sell_all", "size", "gain")
    return closed(out.with_columns(buy_all=buy, sell_all=sell, size=size, gain=gain).select(*names), frame)  # type: ignore[no-any-return]


def _sums(data: Any, *, sizes: bool = False) -> Any:
    """Sums over the tokens of a market; null where one of them is missing."""
    tokens = data.select(*WHO[:2]).unique().group_by("market_id").agg(nw.len().alias("__all"))
    # One column per aggregate, made before: pandas groups by plain sums only.
    values = {name: nw.col(c).fill_null(0.0) for name, c in _SUMS.items()}
    there = {f"__{c}": (~nw.col(c).is_null()).cast(nw.Int64) for c in _SUMS.values()}
    least = {f"__{side}_size": nw.col(f"best_{side}_size") for side in (BID, ASK)} if sizes else {}
    data = data.select(*_MARKET, **values, **there, **least).group_by(*_MARKET)
    out = data.agg(nw.len().alias("tokens"), nw.col(*values, *there).sum(), *(nw.col(c).min() for c in least))
    out = out.join(tokens, on="market_id").with_columns(nw.col("tokens").cast(nw.Int64))
    for name, c in _SUMS.items():
        out = out.with_columns(nw.when(nw.col(f"__{c}") == nw.col("__all")).then(nw.col(name)).alias(name))
    out = out.with_columns(overround=nw.col("ask_sum") - 1).sort(*_MARKET, nulls_last=True)
    return out.select("ts", "market_id", "tokens", *_SUMS, "overround", *least)


@market_by_market
def probabilities(frame: F) -> F:
    """Prices scaled so that the tokens of a market sum to 1.

    Parameters
    ----------
    frame
        Tidy prices, books or bbo of any frame kind, with all tokens of each market; of books the mid is taken.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label probability`` [0 to 1]. Null where a token of the
        market lacks its value or its row at that ``ts``, or all are 0. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy prices, books or bbo.

    Notes
    -----
    probability = price / sum of prices over the tokens of the market at the same ``ts`` (proportional scaling).

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> out = archive.prices(archive.records("markets")[0]["id"]).md.probabilities()
    >>> bool((out.dropna().groupby("ts")["probability"].sum().round(9) == 1).all())
    True
    """
    data, value = forecasts(frame)
    count = data.select(*WHO[:2]).unique().group_by("market_id").agg(nw.len().alias("__all"))
    there = (~nw.col(value).is_null()).cast(nw.Int64)
    data = data.with_columns(__value=nw.col(value).fill_null(0.0), __there=there)
    data = data.with_columns(nw.col("__value", "__there").sum().over(*_MARKET)).join(count, on="market_id")
    good = (nw.col("__there") == nw.col("__all")) & (nw.col("__value") > 0)
    out = data.with_columns(probability=nw.when(good).then(nw.col(value) / nw.col("__value")))
    return closed(out.select("ts", *WHO, "probability").sort(*WHO, "ts", nulls_last=True), frame)  # type: ignore[no-any-return]


def forecasts(frame: Any) -> tuple[Any, str]:
    """Prices with their value column, or the mids of books."""
    names = opened(frame).collect_schema().names()
    if kind_of(names, ("books", "prices", "bbo")) == "prices":
        return opened(frame).select(*PRICES), "price"
    return opened(bbo(frame)).select(*BBO), "mid"
