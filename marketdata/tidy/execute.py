"""Fills of market orders from books, positions, profit and loss, and the account of them through time."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, names_of, read, series_of
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.adapters.widths import width_beside, width_of
from marketdata.errors import (
    LeftOutWarning,
    MissingValuesWarning,
    NotTidyError,
    OverdrawnWarning,
    ReusedDepthWarning,
    UnsoldWarning,
    warn,
)
from marketdata.points import fills as rules
from marketdata.points.arguments import number
from marketdata.points.columns import Floats, Ints, Token, group_sums
from marketdata.points.fees import Schedule, schedule
from marketdata.points.fills import RESULT, Fill, Ledger, Order, Quotes
from marketdata.points.grids import RowWidth
from marketdata.points.left_out import warn_of_unmet
from marketdata.points.probability import NOT_0_1, outside_0_1, refuse_cents
from marketdata.points.schema import ID_COLUMNS, LISTS, TOLERANCE, require
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.asof import KNOWN
from marketdata.tidy.outcomes import Key, Payoffs
from marketdata.tidy.performance import Account, Execution, Traded, accounted, executed
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of
from marketdata.times import Duration, to_duration, to_text

_FILL_COLUMNS = ("ts", "market_id", "token_id", "side", "shares", "notional", "fee")
_SUMMED = ("paid", "received", "fees", "settled", "profit", "profit_sold", "profit_held", "open_at_last_bid")


def execute(
    orders: Any,
    books: Any,
    width: Width | None = None,
    *,
    fees: Any,
    outcomes: Any = None,
    latency: Duration | None = None,
    exit_after: Duration | None = None,
    tolerance: Duration | None = None,
    order_width: Width | None = None,
) -> Execution:
    """Fill market orders from books, hold what was bought until it is sold or resolves, and compute profit and loss.

    This is the last step of a study, not a backtester. Orders take shares of one snapshot, best level first, in the
    order of ``orders``. They do not change later books: ``taken_before`` says how much of the same resting shares one's
    own orders have taken already. Only shares that were bought before are sold. A bucket without a book fills no order,
    nor does a book that was filled in (``observed`` is false): nobody knows whether its orders still rested. A bucket
    that begins at or after the close (``closed_at``, or ``resolved_at`` if that is earlier) fills no order.

    Parameters
    ----------
    orders
        A frame of any kind with one row per order:

        - ``ts``: the bucket at whose end the order was decided [UTC]. A column ``available_at``, optional, says
          another time.
        - ``market_id token_id``.
        - ``side``: "buy" or "sell".
        - ``size`` [shares].
        - ``limit``, optional: the worst price [probability]. It is compared up to 1e-9, so that 0.06 + 0.01 reaches
          0.07.
    books
        Tidy books of any kind of frame; lazy ones are computed.
    width : str or timedelta, optional
        Bucket width of the books, such as "1m"; by default the one that they carry.
    fees : Fees, 0 or function
        What a taker pays, see `Fees`; 0 says that there are none.
    outcomes : frame or mapping, optional
        What open positions pay in the end, as for `brier`.
    latency : str or timedelta, optional
        From the bucket in which an order was decided to the book that fills it; by default one ``width``, the next
        snapshot. "0s" is the book that was known at the decision, too early for a real order.
    exit_after : str or timedelta, optional
        Sell what an order bought so long after its fill. Without it a position is held until the market ends. Shares
        that cannot be sold stay a position.
    tolerance : str or timedelta, optional
        How much later than ``exit_after`` the book of an exit may be; by default not at all.
    order_width : str or timedelta, optional
        Bucket width of the orders; by default the one that their frame carries, else the width of the books.

    Returns
    -------
    Execution
        Three frames of the kind of ``books``: in memory for a lazy one, of polars for an engine's.

        ``fills`` has one row per order, exits included, by token and time:

        - ``ts``, ``signal_ts``: the buckets of the book and of the signal [UTC].
        - ``market_id token_id token_label side``.
        - ``requested``, ``shares``: shares wanted, and shares filled.
        - ``average_price`` [probability], ``notional`` and ``fee`` [USD].
        - ``status``: "filled", "partial", "no book", "not observed" (the book was filled in), "no liquidity", "no
          position" or "resolved" (the market had closed).
        - ``taken_before`` [shares]: what orders at earlier books took of the levels that this one takes from, of the
          same size since. These shares are counted twice unless others came.

        ``positions`` has one row per token:

        - ``market_id token_id token_label``.
        - ``bought sold position`` [shares], ``paid received fees`` [USD], ``payoff`` [USD per share].
        - ``settled``: position * payoff [USD].
        - ``profit``: received - paid - fees + settled [USD], null while an open position has no payoff.
        - ``profit_sold``: received less fees and what the sold shares had cost on average [USD].
        - ``profit_held``: the same of the position that was held to the end, at its payoff [USD]; null as ``profit``.
        - ``open_at_last_bid``: an open position without a payoff at the best bid of the last book [USD], 0 without a
          bid. The profit does not contain it.

        ``markets`` has one row per market: ``market_id paid received fees settled profit profit_sold profit_held
        open_at_last_bid open_positions``.

    Raises
    ------
    NotTidyError
        A limit is outside of 0 to 1.
    GridError
        The times of books or orders are of no buckets of the width.
    ConfigError
        The fee of a market is not known.

    Warns
    -----
    MissingValuesWarning
        More than 5 % of the orders met no book, or one that was filled in.
    ReusedDepthWarning
        Orders take more of a level than rested there, over several books.
    UnsoldWarning
        Exits of ``exit_after`` did not sell all shares, so that ``profit`` is not that of exits alone.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=2)
    >>> signals = (
    ...     books.md.mid()
    ...     .head(1)
    ...     .select("ts", "market_id", "token_id", side=pl.lit("buy"), size=150.0)
    ... )
    >>> markets = md.testing.markets("polars")
    >>> done = md.execute(signals, books, "1m", fees=md.Fees.flat(0.01), outcomes=markets)
    >>> done.markets["profit"].to_list()
    [86.37]
    """
    orders, books = read(orders), read(books)
    _refuse_swapped(names_of(orders), names_of(books))
    buckets = width_of(books, width, what="books")
    delay = buckets.micros if latency is None else buckets.steps(to_duration(latency, "latency"), "latency", latency)
    patience = 0 if tolerance is None else to_duration(tolerance, "tolerance")
    hold = None
    if exit_after is not None:
        hold = buckets.steps(to_duration(exit_after, "exit_after", least="250ms"), "exit_after", exit_after)
    fee_schedule = schedule(fees)
    table = in_memory(books, ("books",))
    table, snapshots = frames.sorted_books(table)
    buckets.check(snapshots.ts)
    is_book = frames.observed(table, snapshots)
    given = _orders(orders, delay, buckets, width_beside(orders, order_width, "order_width", "orders", buckets))
    resolved = Payoffs({} if outcomes is None else outcomes, snapshots.tokens)
    place = {token[:2]: (i, i + 1) for i, token in enumerate(snapshots.tokens)}
    ledgers = []
    for key, of_token in sorted(given.items()):
        books_of_token = snapshots.part(*place.get(key, (0, 0)))
        token = books_of_token.tokens[0] if key in place else Token(*key)
        first, last = place.get(key, (0, 0))
        rows = slice(snapshots.bounds[first], snapshots.bounds[last])
        over = resolved.over([token])[0]
        fees_of_token = fee_schedule.of_market(token.market_id, min(order.at for order in of_token))
        ledger = Ledger(token, books_of_token, fees_of_token, hold, patience, over, is_book[rows])
        ledger.trade(of_token)
        ledgers.append(ledger)
    fills = [fill for ledger in ledgers for fill in ledger.fills]
    _warn_of_orders(ledgers, fills, buckets.width)
    _warn_of_reused(ledgers)
    _warn_of_unsold(ledgers)
    # The side of an order has other values than the side of a level.
    return _frames(ledgers, fills, resolved, table.without("side"), sum(map(len, given.values())))


def _refuse_swapped(orders: Sequence[str], books: Sequence[str]) -> None:
    """NotTidyError if books came first and orders second."""
    first, second = ("level" in names or {*LISTS} <= {*names} for names in (orders, books))
    if first and not second:
        raise NotTidyError(
            "The first argument of md.execute is the orders and the second the books; here the first is a frame of "
            "books, and the second is not. Swap them: md.execute(orders, books, ...)."
        )


def _warn_of_orders(ledgers: Sequence[Ledger], fills: Sequence[Fill], width: BucketWidth) -> None:
    """MissingValuesWarning for orders that met no book, which says why if none did, or one that was filled in."""
    for status, reason in (("no book", "without_book"), ("not observed", "filled_in")):
        count = sum(fill.status == status for fill in fills)
        if reason == "without_book" and count == len(fills) > 0:
            _warn_of_no_book(ledgers, width)
            return
        warn_of_unmet("orders", reason, count, len(fills))


def _warn_of_no_book(ledgers: Sequence[Ledger], width: BucketWidth) -> None:
    """MissingValuesWarning that says why no order met a book."""
    first = min(ledgers, key=lambda ledger: ledger.fills[0].ts)
    ts = first.books.ts
    why = f"the books have no token {first.token.token_id!r} of market {first.token.market_id!r}"
    if len(ts):
        apart = f", at least {dt.timedelta(microseconds=int(np.diff(ts).min()))} apart" if len(ts) > 1 else ""
        why = f"its {len(ts)} books begin from {to_text(int(ts[0]))} to {to_text(int(ts[-1]))}{apart}"
    warn(
        f"None of the {sum(len(ledger.fills) for ledger in ledgers)} orders met a book at width='{width}'. The first "
        f"wants one of {to_text(first.fills[0].ts)}; {why}.",
        MissingValuesWarning,
        hint="Pass the width of the books, and orders for buckets that have a book.",
    )


def _warn_of_reused(ledgers: Sequence[Ledger]) -> None:
    """ReusedDepthWarning with the shares that were filled beyond what rested."""
    if (reused := sum(ledger.reused for ledger in ledgers)) > TOLERANCE:
        filled = sum(ledger.bought + ledger.sold for ledger in ledgers)
        warn(
            f"{reused:,.6g} of {filled:,.6g} shares are more than rested at their prices: orders at several books took "
            "from levels that had not changed, as later books do not know of your orders.",
            ReusedDepthWarning,
            hint="taken_before of the fills says where. Trade less often, or smaller sizes.",
        )


def _warn_of_unsold(ledgers: Sequence[Ledger]) -> None:
    """UnsoldWarning with the share of exits that did not sell all that they should."""
    exits, unsold = (sum(counts) for counts in zip((0, 0), *((one.exits, one.unsold) for one in ledgers), strict=True))
    if unsold:
        warn(
            f"{unsold:,} of {exits:,} exits after exit_after did not sell all their shares, which were held on; profit "
            "has both.",
            UnsoldWarning,
            hint="profit_sold is of what was sold, profit_held of what was held to the end.",
        )


def _orders(given: Native, delay: int, books: RowWidth, rows: RowWidth) -> dict[Key, list[Order]]:
    """The orders of each token, at the book that they meet."""
    table = series_of(given, "A frame of orders", ("ts", "market_id", "token_id", "side", "size"))
    limits = table.numbers("limit") if "limit" in table.names else np.full(len(table), np.nan)
    if len(wrong := np.flatnonzero(outside_0_1(limits))):
        raise NotTidyError(f"limit of row {wrong[0]} of the orders is {limits[wrong[0]]:g}, {NOT_0_1}")
    buys, sizes = sides_of(table, "orders") == "buy", table.numbers("size")
    refuse_rows("orders", "size", sizes.tolist(), (sizes > 0) & np.isfinite(sizes), "a number of shares above 0")
    ts = table.times("ts")
    if KNOWN in table.names:
        known = table.times(KNOWN)
    else:
        rows.check(ts)
        known = rows.known(ts)
    at = books.decided(known) + delay
    limits = np.where(np.isnan(limits), np.where(buys, np.inf, 0.0), limits)
    orders = defaultdict(list)
    columns = (at.tolist(), ts.tolist(), buys.tolist(), sizes.tolist(), limits.tolist())
    keys = zip(*(map(str, table.texts(column)) for column in ID_COLUMNS[:2]), strict=True)
    for row, (key, meets, decided, *order) in enumerate(zip(keys, *columns, strict=True)):
        orders[key].append(Order(meets, row, decided, *order))
    return orders


def sides_of(table: Frame, what: str) -> NDArray[np.object_]:
    """The sides of a frame of orders or fills; NotTidyError for another than "buy" and "sell"."""
    sides = np.array([str(side) for side in table.raw("side")], object)
    refuse_rows(what, "side", sides.tolist(), np.isin(sides, ("buy", "sell")), "'buy' or 'sell'")
    return sides


def refuse_rows(what: str, name: str, values: Sequence[object], good: NDArray[np.bool_], allowed: str) -> None:
    """NotTidyError for the first row that is not valid, with its value."""
    if not good.all():
        row = int(np.argmin(good))
        raise NotTidyError(f"{name} is {allowed} in a frame of {what}; row {row} has {values[row]!r}.")


def _frames(ledgers: Sequence[Ledger], fills: Sequence[Fill], resolved: Payoffs, like: Frame, asked: int) -> Execution:
    """A row per fill, per token and per market."""

    def ids(rows: Ints) -> dict[str, Column]:
        return {c: Texts(rows, [getattr(ledger.token, c) for ledger in ledgers]) for c in ID_COLUMNS}

    ts, signal_ts, side, *numbers, status, taken = zip(*fills, strict=True) if fills else [()] * len(Fill._fields)
    columns: dict[str, Column] = {
        "ts": frames.times(np.array(ts, np.int64)),
        "signal_ts": frames.times(np.array(signal_ts, np.int64)),
        **ids(np.repeat(np.arange(len(ledgers)), [len(ledger.fills) for ledger in ledgers])),
        "side": [*side],
        **{name: np.array(values, float) for name, values in zip(Fill._fields[3:-2], numbers, strict=True)},
        "status": [*status],
        "taken_before": np.array(taken, float),
    }
    payoffs = resolved.of([ledger.token for ledger in ledgers]).tolist()
    results = [ledger.result(payoff) for ledger, payoff in zip(ledgers, payoffs, strict=True)]
    positions = dict(zip(RESULT, np.array(results, float).reshape(-1, len(RESULT)).T, strict=True))
    markets, market = np.unique([ledger.token.market_id for ledger in ledgers], return_inverse=True)
    is_open = (positions["position"] > 0) & np.isnan(positions["payoff"])
    totals: dict[str, Column] = {name: group_sums(market, positions[name], len(markets)) for name in _SUMMED}
    totals["open_positions"] = np.bincount(market[is_open], minlength=len(markets)).astype(np.int64)
    results_of = (
        like.build(columns, len(fills)),
        like.build({**ids(np.arange(len(ledgers))), **positions}, len(ledgers)),
        like.build({"market_id": markets.tolist(), **totals}, len(markets)),
    )
    counts = [(len(one.fills), sum(fill.shares > 0 for fill in one.fills), one.unsold) for one in ledgers]
    return executed(results_of, market, markets.tolist(), positions, np.array(counts, np.int64).reshape(-1, 3), asked)


def account(
    fills: Any,
    prices: Any,
    width: Width | None = None,
    *,
    outcomes: Any = None,
    cash: float = 0.0,
    fees: Any = None,
    markets: Any = None,
) -> Account:
    """Cash, positions, profit, exposure and drawdown over time, from what was known then.

    The row of a ``ts`` is known at the end of its bucket. A position has the value of the latest row of its token at or
    before ``ts``, however old; null where that row has no price. A position pays in the bucket of ``resolved_at``, or
    of ``closed_at`` where that is unknown (see `outcomes`). A payoff without either time is not counted, with a
    warning.

    Parameters
    ----------
    fills
        A frame of any kind: ``ts market_id token_id side shares notional fee``, as `execute` gives. Or fills of your
        own, as `read_trades` gives them: ``price`` and ``size`` in place of shares and notional, ``fee`` where it is
        known, each in the bucket of its ``ts``. Sizes of a sale are positive.
    prices
        Tidy books, bbo or prices of any kind.
    width : str or timedelta, optional
        Bucket width of fills and prices, such as "1m"; by default the one that ``prices`` carries.
    outcomes : frame or mapping, optional
        What tokens pay, and when, as for `brier`. A mapping does not say when, so a warning names what is left out.
    cash : float
        What the account holds at the beginning [USD].
    fees : Fees, 0 or function, optional
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

    Warns
    -----
    OverdrawnWarning
        A ``cash`` above 0 does not pay for the fills.
    LeftOutWarning
        Markets that are held paid, and outcomes does not say when.

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
    prices = read(prices)
    rows, start = width_of(prices, width, what="prices"), number("cash", cash, least=-np.inf)
    table = in_memory(prices, ("nested", "books", "quotes", "prices"))
    quotes, labelled = _quotes(table, None if fees is None else schedule(fees))
    times = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.ts for one in quotes.values())]))
    rows.check(times)
    resolved = Payoffs({} if outcomes is None else outcomes, labelled)
    tokens, traded = _tokens(fills, quotes, resolved, replace(rows, what="fills"))
    ends = [token.settled_at for token in tokens.values() if token.settled_at is not None]
    times = np.unique(np.concatenate([times, *(token.ts for token in tokens.values()), np.array(ends, np.int64)]))
    amounts = {
        key: (int(np.searchsorted(times, token.ts[0])), rules.amounts(token, times)) for key, token in tokens.items()
    }
    total = np.sum([np.zeros((3, len(times))), *(amount for _, amount in amounts.values())], axis=0)
    by_market = _by(table, times, "market_id", amounts, {key: key[0] for key in amounts})
    by_event = None if markets is None else _by(table, times, "event_id", amounts, _events(markets, amounts))
    amounts_of_all = rules.equity(total, start)
    _warn_of_overdrawn(times, amounts_of_all["cash"], start)
    columns = {"ts": frames.times(times), **amounts_of_all}
    each = (Traded(key[0], *traded[key], of_token) for key, (_, of_token) in amounts.items())
    return accounted((table.build(columns, len(times)), by_market, by_event), each, len(times))


def _warn_of_overdrawn(times: Ints, cash: Floats, start: float) -> None:
    """OverdrawnWarning where a stated sum was spent more than once; no sum says that money is no question."""
    below = np.flatnonzero(cash < -TOLERANCE * start)
    if start > 0 and len(below):
        warn(
            f"The account begins with {start:,.2f} USD and goes down to {cash.min():,.2f} USD of cash, first below 0 "
            f"at {to_text(int(times[below[0]]))}: it does not pay for the fills.",
            OverdrawnWarning,
            hint="Begin with more cash, trade less, or leave cash out where money is no question.",
        )


def _quotes(frame: Frame, fees: Schedule | None) -> tuple[dict[Key, Quotes], Sequence[Token]]:
    """The quotes of each token, from books, bbo or prices, and the tokens with their labels."""
    if frame.kind == "prices":
        _, series, value = probability_of(frame)
        parts = [series.part(i, i + 1) for i in range(len(series.tokens))]
        return {part.tokens[0][:2]: Quotes(part.ts, part.values[value]) for part in parts}, series.tokens
    _, books = frames.sorted_books(frame)
    out = {}
    for i, token in enumerate(books.tokens):
        part = books.part(i, i + 1)
        charge = None if fees is None else fees.charge_for(part)
        out[token[:2]] = Quotes(part.ts, part.mid, part.bids, charge)
    return out, books.tokens


def _tokens(
    fills: Native, quotes: dict[Key, Quotes], resolved: Payoffs, rows: RowWidth
) -> tuple[dict[Key, rules.Holding], dict[Key, tuple[int, float, float]]]:
    """The fills of each token, and the time and amount of its payoff; and its fills, their turnover and their fees."""
    table, ts, shares, notional, fee = _read_fills(fills, rows)
    buys = sides_of(table, "fills") == "buy"
    for name, values, least in (("shares", shares, 0.0), ("notional", notional, 0.0), ("fee", fee, -np.inf)):
        # An order that was not filled has no shares, and needs no cost.
        good = (shares == 0) | (np.isfinite(values) & (values >= least))
        refuse_rows("fills", name, values.tolist(), good, "a finite number" if least else "a number from 0")
    rows_of_token = defaultdict(list)
    for row, key in enumerate(zip(*(map(str, table.texts(c)) for c in ID_COLUMNS[:2]), strict=True)):
        if shares[row]:
            rows_of_token[key].append(row)
    out: dict[Key, rules.Holding] = {}
    traded, never_paid = {}, []
    for key, numbers in sorted(rows_of_token.items()):
        at = np.array(numbers)[np.argsort(ts[numbers], kind="stable")]
        sign = np.where(buys[at], 1.0, -1.0)
        moved, money = sign * shares[at], -sign * notional[at] - fee[at]
        short = np.flatnonzero(np.cumsum(moved) < -TOLERANCE * np.cumsum(np.abs(moved)))
        if len(short):
            raise NotTidyError(
                f"The fills sell more of token {key[1]!r} of market {key[0]!r} than they bought, first at "
                f"{to_text(int(ts[at[short[0]]]))}.",
                hint="Add the fills that bought these shares; shares of a split are bought at 0.5 of each outcome. "
                "md.pnl needs no purchases: it sums what each fill earned by itself.",
            )
        payoff, resolved_at = resolved.payoff.get(key), resolved.resolved_at.get(key[0])
        end = None if payoff is None or resolved_at is None else int(rows.width.floor(resolved_at))
        if payoff is not None and end is None and moved.sum() > TOLERANCE * np.abs(moved).sum():
            never_paid.append(key[0])
        if end is not None and ts[at[-1]] > end:
            raise NotTidyError(
                f"Token {key[1]!r} of market {key[0]!r} has a fill at {to_text(int(ts[at[-1]]))}, after its market "
                f"resolved at {to_text(resolved_at or 0)}."
            )
        none = Quotes(np.zeros(0, np.int64), np.zeros(0))
        traded[key] = len(at), float(notional[at].sum()), float(fee[at].sum())
        out[key] = rules.Holding(ts[at], moved, money, quotes.get(key, none), end, payoff or 0.0)
    if never_paid:
        warn(
            f"Payoffs of {len(set(never_paid)):,} of {len({key[0] for key in out}):,} markets are not counted, such as "
            f"that of {never_paid[0]!r}: outcomes does not say when they were paid, so positions keep the value of "
            "their last price.",
            LeftOutWarning,
            hint="Pass a frame with market_id, resolved_token_id and resolved_at, such as market records.",
        )
    return out, traded


def _read_fills(fills: Native, rows: RowWidth) -> tuple[Frame, Ints, Floats, Floats, Floats]:
    """The fills with the start of their bucket, their shares, notional and fee.

    Fills of one's own have a price, a size and a time within a bucket, as prints do; without a fee they had none.
    """
    names = {*names_of(fills)}
    if names >= {"price", "size"} and not {"shares", "notional"} & names:
        table = series_of(fills, "A frame of fills", ("ts", *ID_COLUMNS[:2], "side", "price", "size"))
        price, size = table.numbers("price"), table.numbers("size")
        refuse_cents(price=price)
        fee = table.numbers("fee") if "fee" in table.names else np.zeros(len(table))
        return table, rows.width.floor(table.times("ts")), size, price * size, fee
    table = series_of(fills, "A frame of fills", _FILL_COLUMNS)
    ts, (shares, notional, fee) = table.times("ts"), (table.numbers(c) for c in ("shares", "notional", "fee"))
    rows.check_starts(ts)
    return table, ts, shares, notional, fee


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
