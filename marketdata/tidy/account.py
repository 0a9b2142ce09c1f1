"""The account of a simulation through time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, series_of
from marketdata.adapters.frame import Frame, Native
from marketdata.errors import NotTidyError
from marketdata.points import account as rules
from marketdata.points.account import Quotes
from marketdata.points.arguments import number
from marketdata.points.columns import Floats, Ints
from marketdata.points.fees import Schedule, schedule
from marketdata.points.schema import ID_COLUMNS, TOLERANCE, refuse_cents, require
from marketdata.renamed import renamed
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.execute import refuse_rows, sides_of
from marketdata.tidy.grids import check_starts, refuse_off_grid
from marketdata.tidy.outcomes import Key, Payoffs
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of
from marketdata.times import to_text

_FILL_COLUMNS = ("ts", "market_id", "token_id", "side", "shares", "notional", "fee")


class Account(NamedTuple):
    """Result of `account`, frames of the kind of the prices; ``events`` is None without ``markets=``."""

    total: Any
    markets: Any
    events: Any


@renamed
def account(
    fills: Any,
    prices: Any,
    width: Width,
    *,
    outcomes: Any = None,
    cash: float = 0.0,
    fees: Any = None,
    markets: Any = None,
) -> Account:
    """Cash, positions, profit, exposure and drawdown over time, from what was known then.

    The row of a ``ts`` is known at the end of its bucket. A position has the value of the latest row of its token at or
    before ``ts``, however old; null where that row has no price. A position pays in the bucket of ``resolved_at``, or
    of ``closed_at`` where that is unknown (see `outcomes`). A payoff without either time is never counted.

    Parameters
    ----------
    fills
        A frame of any kind: ``ts market_id token_id side shares notional fee``, as `execute` gives or your own. Shares
        and notional of a sale are positive.
    prices
        Tidy books, bbo or prices of any kind.
    width : str or timedelta
        Bucket width of fills and prices, such as "1m".
    outcomes : frame or mapping, optional
        What tokens pay, and when, as for `brier`; a mapping does not say when.
    cash : float
        What the account holds at the beginning [USD].
    fees : Fees, float or function, optional
        What a sale would cost; without, ``sale`` is before fees. The fees of fills are in the fills.
    markets : frame of market records, optional
        ``market_id`` and ``event_id`` (or ``event_slug``).

    Returns
    -------
    Account
        Frames of the kind of ``prices``: in memory for a lazy one, of polars for an engine's. All amounts are USD.

        ``total`` has one row per ``ts`` of prices, fills and payoffs:

        - ``cash``, and ``value``: the positions at the mid.
        - ``sale``: what a sale into the bids would bring, level by level. It is null for a frame of prices, and where
          the bids have too few shares.
        - ``equity``: cash + value.
        - ``profit``, ``profit_sold``: equity less the ``cash`` of the beginning, and the same with ``sale`` for
          ``value``.
        - ``drawdown``: the greatest equity so far less equity.

        ``markets`` has one row per ``ts`` and market from its first fill on: ``ts market_id value sale profit``. Here
        ``value`` is the exposure, the loss if all tokens of the market pay nothing. ``events`` has the same by
        ``event_id``; it is None without ``markets=``.

    Raises
    ------
    NotTidyError
        A fill is after the payoff, or a sale is of more than was bought.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> orders = (
    ...     books.md.mid()
    ...     .head(1)
    ...     .select("ts", "market_id", "token_id", side=pl.lit("buy"), size=100.0)
    ... )
    >>> fills = md.execute(orders, books, "1m", fees=0).fills
    >>> total = md.account(fills, books, "1m", cash=100).total
    >>> total.select("cash", "value", "sale", pl.col("profit").round(2)).rows()
    [(100.0, 0.0, 0.0, 0.0), (58.0, 41.0, 40.0, -1.0), (58.0, 43.0, 42.0, 1.0)]
    """
    bucket, start = BucketWidth.of(width, "width"), number("cash", cash, least=-np.inf)
    table = in_memory(prices, ("nested", "books", "bbo", "prices"))
    quotes = _quotes(table, None if fees is None else schedule(fees))
    for one in quotes.values():
        refuse_off_grid(one.ts, bucket, "give the bucket width of the prices")
    times = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.ts for one in quotes.values())]))
    check_starts(times, bucket)
    resolved = Payoffs({} if outcomes is None else outcomes, [(*token, None) for token in quotes])
    tokens = _tokens(fills, quotes, resolved, bucket)
    ends = [token.settled_at for token in tokens.values() if token.settled_at is not None]
    times = np.unique(np.concatenate([times, *(token.ts for token in tokens.values()), np.array(ends, np.int64)]))
    amounts = {
        key: (int(np.searchsorted(times, token.ts[0])), rules.amounts(token, times)) for key, token in tokens.items()
    }
    total = np.sum([np.zeros((3, len(times))), *(amount for _, amount in amounts.values())], axis=0)
    by_market = _by(table, times, "market_id", amounts, {key: key[0] for key in amounts})
    by_event = None if markets is None else _by(table, times, "event_id", amounts, _events(markets, amounts))
    columns = {"ts": frames.times(times), **rules.equity(total, start)}
    return Account(table.build(columns, len(times)), by_market, by_event)


def _quotes(frame: Frame, fees: Schedule | None) -> dict[Key, Quotes]:
    """The quotes of each token, from books, bbo or prices."""
    if frame.kind == "prices":
        series, value = probability_of(frame)
        parts = [series.part(i, i + 1) for i in range(len(series.tokens))]
        return {part.tokens[0][:2]: Quotes(part.ts, part.values[value]) for part in parts}
    books = frames.books(frame)
    refuse_cents(best_bid=books.bids.best, best_ask=books.asks.best)
    out = {}
    for i, token in enumerate(books.tokens):
        part = books.part(i, i + 1)
        charge = None if fees is None else fees.of_market(token.market_id).charge_for(part)
        out[token[:2]] = Quotes(part.ts, part.mid, part.bids, charge)
    return out


def _tokens(fills: Native, quotes: dict[Key, Quotes], resolved: Payoffs, width: BucketWidth) -> dict[Key, rules.Token]:
    """The fills of each token, and when it pays what."""
    table = series_of(fills, "A frame of fills", _FILL_COLUMNS)
    ts, (shares, notional, fee) = table.times("ts"), (table.numbers(c) for c in ("shares", "notional", "fee"))
    refuse_off_grid(ts, width, "give the bucket width of the fills")
    buys = sides_of(table, "fills") == "buy"
    for name, values, least in (("shares", shares, 0.0), ("notional", notional, 0.0), ("fee", fee, -np.inf)):
        # An order that was not filled has no shares, and need not say what they cost.
        good = (shares == 0) | (np.isfinite(values) & (values >= least))
        refuse_rows("fills", name, values.tolist(), good, "a finite number" if least else "a number from 0")
    rows_of_token = defaultdict(list)
    for row, key in enumerate(zip(*(map(str, table.texts(c)) for c in ID_COLUMNS[:2]), strict=True)):
        if shares[row]:
            rows_of_token[key].append(row)
    out: dict[Key, rules.Token] = {}
    for key, rows in sorted(rows_of_token.items()):
        at = np.array(rows)[np.argsort(ts[rows], kind="stable")]
        sign = np.where(buys[at], 1.0, -1.0)
        moved, money = sign * shares[at], -sign * notional[at] - fee[at]
        if (np.cumsum(moved) < -TOLERANCE * np.cumsum(np.abs(moved))).any():
            raise NotTidyError(f"The fills sell more of token {key[1]!r} of market {key[0]!r} than they bought.")
        payoff, resolved_at = resolved.payoff.get(key), resolved.resolved_at.get(key[0])
        end = None if payoff is None or resolved_at is None else int(width.floor(resolved_at))
        if end is not None and ts[at[-1]] > end:
            raise NotTidyError(
                f"Token {key[1]!r} of market {key[0]!r} has a fill at {to_text(int(ts[at[-1]]))}, after its market "
                f"resolved at {to_text(resolved_at or 0)}."
            )
        none = Quotes(np.zeros(0, np.int64), np.zeros(0))
        out[key] = rules.Token(ts[at], moved, money, quotes.get(key, none), end, payoff or 0.0)
    return out


def _events(given: Native, tokens: Iterable[Key]) -> dict[Key, str]:
    data = columns_of(given, ("market_id", "event_id", "event_slug"))
    name = "event_id" if "event_id" in data else "event_slug"
    require("markets, a frame of market records,", ["market_id", name], data)
    event_of = dict(zip(data["market_id"], data[name], strict=True))
    return {key: str(event_of[key[0]]) for key in tokens if event_of.get(key[0]) is not None}


def _by(
    prices: Frame,
    times: Ints,
    name: str,
    amounts: Mapping[Key, tuple[int, Floats]],
    group_of: Mapping[Key, str],
) -> Native:
    """A frame of the sums of the tokens of each market or event, from its first fill on."""
    tokens = defaultdict(list)
    for key, group in sorted(group_of.items(), key=lambda one: one[1]):
        tokens[group].append(amounts[key])
    rows, sums = [np.zeros(0, np.int64)], [np.zeros((3, 0))]
    for of_group in tokens.values():
        first = min(first for first, _ in of_group)
        rows.append(np.arange(first, len(times)))
        sums.append(np.sum([amount for _, amount in of_group], axis=0)[:, first:])
    groups = [group for group, of_group in zip(tokens, rows[1:], strict=True) for _ in of_group]
    at, (money, value, sale) = np.concatenate(rows), np.concatenate(sums, axis=1)
    columns = {"ts": frames.times(times[at]), name: groups, "value": value, "sale": sale, "profit": money + value}
    return prices.build(columns, len(at))
