"""The tokens of a market together: sums of their prices, shares of the sum, and the book that another token implies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.columns import Columns, Floats, Ints, Series, Token, ranges
from marketdata.points.fees import Schedule
from marketdata.points.order import LevelRows, sorted_by
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import TOLERANCE

_ROWS_WORTH_A_LOOP = 100
Counts = int | Mapping[str, int] | None
SUMS = {"bid_sum": "best_bid", "mid_sum": "mid", "ask_sum": "best_ask"}


def numbers_of_tokens(tokens: Sequence[Token], counts: Counts) -> Ints:
    """The number of tokens of each token's market; 0 if it is unknown, 1, or less than the number of tokens here."""
    here = Counter(token.market_id for token in tokens)

    def complete_count(market: str, seen: int) -> int:
        has = counts.get(market, 0) if isinstance(counts, Mapping) else counts
        has = seen if has is None else has
        return has if max(seen, 2) <= has else 0

    by_market = {market: complete_count(market, seen) for market, seen in here.items()}
    return np.array([by_market[token.market_id] for token in tokens], np.int64)


def _by_market(series: Series) -> tuple[Ints, Ints, Ints]:
    """The market of each entry, entries by market and time, and where each market and time begins among them."""
    markets = [token.market_id for token in series.tokens]
    new = [int(i > 0 and market != markets[i - 1]) for i, market in enumerate(markets)]
    market = np.cumsum(np.array(new, np.int64))
    order = _side_by_side(series, market)
    market = np.repeat(market, np.diff(series.bounds))
    order = sorted_by(market, series.ts) if order is None else order
    return market, order, group_starts(market[order], series.ts[order])


def _side_by_side(series: Series, market: Ints) -> Ints | None:
    """Entries by market and time, without a sort: where the tokens of each market have the same times."""
    if len(series) < _ROWS_WORTH_A_LOOP * len(market):
        return None
    out, firsts = [], np.append(group_starts(market), len(market)).tolist()
    for i, j in pairwise(firsts):
        starts, ends = series.bounds[i:j], series.bounds[i + 1 : j + 1]
        first = series.ts[starts[0] : ends[0]]
        if any(not np.array_equal(first, series.ts[a:b]) for a, b in zip(starts[1:], ends[1:], strict=True)):
            return None
        out.append((np.arange(len(first))[:, None] + starts).ravel())
    return np.concatenate(out) if out else None


def sums(best: Series, counts: Counts) -> Series:
    """Sums of bids, mids and asks of each market and time; NaN unless all of its tokens have one."""
    market, order, starts = _by_market(best)
    has = np.repeat(numbers_of_tokens(best.tokens, counts), np.diff(best.bounds))[order[starts]]
    out: dict[str, Floats] = {"tokens": run_ends(starts, len(order)) - starts}  # type: ignore[dict-item] # whole
    for name, column in SUMS.items():
        values = best.values[column][order]
        there = ~np.isnan(values)
        total, number = (_sums(v, starts) for v in (np.where(there, values, 0.0), there.astype(np.int64)))
        out[name] = np.where((number == has) & (has > 0), total, np.nan)
    out["overround"] = out["ask_sum"] - 1
    for side in ("bid", "ask"):
        size = best.values[f"best_{side}_size"][order]
        out[f"{side}_size"] = np.fmin.reduceat(size, starts) if len(starts) else size
    tokens = list(dict.fromkeys(token.market_id for token in best.tokens))
    bounds = np.searchsorted(market[order[starts]], np.arange(len(tokens) + 1))
    return Series(tuple(map(Token, tokens)), bounds, best.ts[order[starts]], out)


def free_money(best: Series, counts: Counts, *, fees: Schedule | None = None) -> Series:
    """True where all tokens together cost less, or bring more, than the 1 that one of them pays."""
    totals = sums(best if fees is None else _after_fees(best, fees), counts)
    bid, ask = totals.values["bid_sum"], totals.values["ask_sum"]
    buy, sell = ask < 1 - TOLERANCE, bid > 1 + TOLERANCE
    size = np.where(buy, totals.values["ask_size"], np.where(sell, totals.values["bid_size"], np.nan))
    gain = np.where(buy, 1 - ask, np.where(sell, bid - 1, np.nan))
    values = {"buy_all": buy, "sell_all": sell, "size": size, "gain": gain}
    return replace(totals, values=values)


def _after_fees(best: Series, fees: Schedule) -> Series:
    """Best prices with the fee of one share: an ask costs more, and a bid brings less."""
    values = dict(best.values)
    for name, sign in (("best_bid", -1.0), ("best_ask", 1.0)):
        price = values[name].copy()
        for token, start, end in zip(best.tokens, best.bounds[:-1].tolist(), best.bounds[1:].tolist(), strict=True):
            rows = start + np.flatnonzero(~np.isnan(price[start:end]))
            price[rows] += sign * fees.of_market(token.market_id)(price[rows], np.ones(len(rows)))
        values[name] = price
    return replace(best, values=values)


def shares(series: Series, value: str, counts: Counts) -> Floats:
    """Each value over the sum of its market at the time; NaN unless all tokens of the market have one."""
    values = series.values[value]
    has = np.repeat(numbers_of_tokens(series.tokens, counts), np.diff(series.bounds))
    _, order, starts = _by_market(series)
    ordered = values[order]
    there = _sums((~np.isnan(ordered)).astype(np.int64), starts)
    total = _sums(np.nan_to_num(ordered, nan=0.0, posinf=np.inf, neginf=-np.inf), starts)
    whole = (there == has[order[starts]]) & (total > 0)
    scale = np.empty(len(values))
    scale[order] = np.repeat(np.where(whole, total, np.nan), run_ends(starts, len(values)) - starts)
    return values / scale


def _sums(values: Floats | Ints, starts: Ints) -> Floats:
    return np.add.reduceat(values, starts).astype(float) if len(starts) else np.empty(0)


def complement(rows: Columns, levels: LevelRows, edges: Ints, counts: Counts) -> tuple[Columns, LevelRows]:
    """The level rows of each token that the other token of its market implies.

    ``edges``: where the bids and the asks of each snapshot begin, and behind them the number of rows.
    """
    numbers, here = numbers_of_tokens(rows.tokens, counts), Counter(token.market_id for token in rows.tokens)
    pairs = zip(rows.tokens, numbers.tolist(), strict=True)
    wrong = sorted({token.market_id for token, n in pairs if n != 2 or here[token.market_id] != 2})
    if wrong:
        raise ConfigError(
            # An engine sees some markets at a time, so they are not counted.
            f"Some markets of the frame do not have two tokens, for example {wrong[0]!r}; a complement is of a market "
            "with two tokens, both of them in the frame."
        )
    # Levels of each snapshot: first its asks, which become bids, then its bids.
    begins, lengths = (pairs.reshape(-1, 2)[:, ::-1].ravel() for pairs in (edges[:-1], np.diff(edges)))
    mirrored = ranges(begins, lengths)
    other = np.arange(len(rows.tokens)) ^ 1  # tokens are by market, two of each
    lengths = np.diff(rows.bounds)[other]
    index = mirrored[ranges(rows.starts[other], lengths)]
    ts = levels.ts[index]
    out = Columns(rows.tokens, np.append(0, np.cumsum(lengths)), ts)
    return out, LevelRows(
        ts, 1 - levels.side[index], levels.level[index], 1.0 - levels.price[index], levels.size[index]
    )
