"""What the sides of prints earned until their markets resolved: takers and makers, outcomes, accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, in_memory, names_of, read, selected
from marketdata.adapters.frame import Column, Frame, Texts
from marketdata.adapters.normalization import is_missing
from marketdata.adapters.polars import typed
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import texts
from marketdata.points.bars import taker_sides
from marketdata.points.columns import Floats, Ints, Token, group_sums
from marketdata.points.fees import schedule
from marketdata.points.intervals import UNBOUNDED, Interval, Sampling, of_rows
from marketdata.points.left_out import warn_of_left_out
from marketdata.points.probability import refuse_cents, refuse_negative
from marketdata.points.schema import ID_COLUMNS, TOLERANCE, require
from marketdata.tidy.frames import check_sides
from marketdata.tidy.groups import By, Cluster, Keys, Rows
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.outcomes import Payoffs
from marketdata.tidy.scores import warn_of_open

ROLES = ("taker", "maker")
# By whom prints are grouped: not by a column of theirs, but by the accounts of both sides, or by what these were.
_BOTH_SIDES = ("account", "role")
_READ = ("ts", *ID_COLUMNS, "side", "price", "size", "fee", "transaction_hash", *ROLES, "account", "role")


def pnl(
    trades: F,
    outcomes: Any,
    *,
    by: By = "role",
    fees: Any = None,
    markets: Any = None,
    cluster: Cluster = None,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """What each print earned until its market resolved, summed up by role, account, or any column.

    A print is a bet of two sides. Its taker bought at ``price`` what pays the payoff, or sold it; its maker did the
    opposite. So merges, splits and sales before the end come out right: a sale of Yes at 0.60 is as good as buying No
    at 0.40, whatever became of the tokens.

    Parameters
    ----------
    trades
        Prints of any kind of frame, as from `Client.trades` or `Archive.trades`: ``ts market_id token_id side price
        size``, where ``side`` is what the taker did. In a row with ``role`` "maker", a fill of an account, it is what
        that account did.
    outcomes : frame or mapping
        Payoffs of the tokens, as for `brier`. Prints of open markets are left out, with a warning.
    by : str or list of str
        - "role": takers and makers.
        - "taker", "maker": each account of that side; "account": each account of both sides. Prints need a column
          ``taker``, ``maker``, or ``account`` with its ``role``.
        - other columns, of ``trades`` or ``markets``, such as "token_label", "category" or "day": what takers earned.

        A list of these groups by all of them.
    fees : Fees, 0 or function, optional
        Fees of takers. By default the column ``fee`` of the prints; where that is null, or missing, the profit is
        before fees.
    markets : frame, optional
        Market records with columns of ``by``, and with the events that are clusters.
    cluster, interval, resamples, seed
        As in `cluster_mean`: intervals are over events where these are known, else over markets.

    Returns
    -------
    frame
        One row per group, by the values of ``by``; all amounts are USD.

        - ``trades``, ``markets``: how many count.
        - ``shares``; ``volume``: price * shares.
        - ``staked``: what the side could lose: price * shares of a purchase, (1 - price) * shares of a sale.
        - ``fees``, null where none is known; ``profit``, after these.
        - ``return``: profit / staked, with ``low`` and ``high``, a bootstrap interval over clusters.
        - ``hit_rate``: the share of trades with a profit [0 to 1].
        - ``cluster``: how rows were clustered, only with ``interval``.
        - ``left_out``: prints that repeat another one from the side of the other token: of one transaction, market,
          time and number of shares, at prices that sum to 1. ``after_close``: prints after the close of their market.
          ``no_side``: prints that do not say what the taker did. ``open``: prints of markets that have not resolved.

    Raises
    ------
    NotTidyError
        A column is missing, a price is no probability, or a size is below 0.

    Warns
    -----
    OpenMarketsWarning
        Markets of the frame have not resolved.
    MissingValuesWarning
        More than 5 percent of the prints have no side.
    FewMarketsWarning
        As in `cluster_mean`.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=2).filter(pl.col("token_label") == "Yes")
    >>> prints = prices.with_columns(side=pl.lit("buy"), size=pl.lit(100.0))
    >>> found = md.pnl(prints, md.testing.markets("polars"), interval=None)
    >>> found.select("role", "trades", pl.col("staked", "profit").round(2)).rows()
    [('taker', 2, 81.0, 119.0), ('maker', 2, 119.0, -119.0)]
    """
    trades = read(trades)
    present = names_of(trades)
    require("A frame of trades", ("ts", "market_id", "token_id", "side", "price", "size"), present)
    groups = texts("by", by, "the name of a column") if by is not None else []
    both = [name for name in groups if name in _BOTH_SIDES or name in ROLES]
    if len({*both} - {"role"}) > 1:
        raise ConfigError("names accounts twice; allowed is one of taker, maker and account.", argument="by", value=by)
    keys = Keys.of([name for name in groups if name not in both], cluster, present, markets)
    sampling = Sampling.of(interval, resamples, seed)
    wanted = [name for name in dict.fromkeys((*_READ, *keys.carried(present))) if name in present]
    rows = Rows(in_memory(selected(trades, wanted)), keys)
    prints = _Prints(rows.table, Payoffs(outcomes, _tokens(rows.table)), fees)
    sides = _sides(prints, both)
    warn_of_open(prints.markets, prints.open_markets)
    return _summed(trades, rows, prints, sides, groups, sampling)


class _Prints:
    """The prints of a frame: which count, why others are left out, and what their takers staked, paid and earned."""

    def __init__(self, table: Frame, payoffs: Payoffs, fees: Any) -> None:
        self.table = table
        self.price, self.size = table.numbers("price"), table.numbers("size")
        refuse_cents(price=self.price)
        refuse_negative(size=self.size)
        side = np.array(_texts(table, "side"), object)
        check_sides(side)
        side = taker_sides(side, np.array(_texts(table, "role"), object) if "role" in table.names else None)
        tokens, token = frames.distinct_ids(table, [name for name in ID_COLUMNS if name in table.names])
        named = [Token(str(one[0]), *(*one[1:], None)[:2]) for one in tokens]
        self.market = np.array([str(one.market_id) for one in named], object)[token]
        self.is_buy = side == "buy"
        payoff = payoffs.of(named)[token]
        ts = table.times("ts")
        is_open = np.isnan(payoff)
        self.markets = {*self.market.tolist()}
        self.open_markets = {*self.market[is_open].tolist()}
        self.why = np.full(len(table), "", object)
        for reason, out in (
            ("open", is_open),
            ("no_side", np.array([one is None for one in side], bool) | np.isnan(self.price + self.size)),
            ("after_close", ts >= payoffs.over(named)[token]),
            ("left_out", self._repeated(token, ts)),
        ):
            self.why[out] = reason
        given = schedule(fees) if fees is not None else None
        if given is not None:
            fee = np.array([
                given.of_market(market, at)(price, size) if not reason else np.nan
                for market, at, price, size, reason in zip(
                    self.market, ts.tolist(), self.price, self.size, self.why, strict=True
                )
            ], float)  # fmt: skip
        else:
            fee = table.numbers("fee") if "fee" in table.names else np.full(len(table), np.nan)
        self.fee = fee
        gain = self.size * (payoff - self.price)
        self.gain = np.where(self.is_buy, gain, -gain)

    def staked(self, is_taker: NDArray[np.bool_], at: Ints) -> Floats:
        """What one side of these prints could lose."""
        is_long = self.is_buy[at] == is_taker
        return np.asarray(self.size[at] * np.where(is_long, self.price[at], 1 - self.price[at]))

    def _repeated(self, token: Ints, ts: Ints) -> NDArray[np.bool_]:
        """Prints of which the other token of the market has the same fill in the same transaction."""
        out = np.zeros(len(token), bool)
        if "transaction_hash" not in self.table.names:
            return out
        seen: dict[tuple[Any, ...], list[int]] = {}
        for at, transaction in enumerate(_texts(self.table, "transaction_hash")):
            if transaction is None:
                continue
            others = seen.setdefault((transaction, self.market[at], int(ts[at]), float(self.size[at])), [])
            twin = next(
                (o for o in others if token[o] != token[at] and abs(self.price[o] + self.price[at] - 1) <= TOLERANCE),
                None,
            )
            if twin is None:
                others.append(at)
            else:
                others.remove(twin)
                out[at] = True
        return out


def _tokens(table: Frame) -> list[tuple[str, str | None, str | None]]:
    tokens, _ = frames.distinct_ids(table, [name for name in ID_COLUMNS if name in table.names])
    return [(str(one[0]), one[1], one[2] if len(one) > 2 else None) for one in tokens]


class _Sides:
    """Rows of the result before they are summed: the print of each, whether it is its taker's side, and whose it is."""

    def __init__(self, at: Ints, is_taker: NDArray[np.bool_], owner: Sequence[str | None] | None) -> None:
        self.at, self.is_taker, self.owner = at, is_taker, owner


def _sides(prints: _Prints, by: Sequence[str]) -> _Sides:
    every, table = np.arange(len(prints.price)), prints.table
    takers, makers = np.ones(len(every), bool), np.zeros(len(every), bool)
    account = next((name for name in by if name != "role"), None)
    if account in ROLES:
        return _Sides(every, takers if account == "taker" else makers, _owners(table, account))
    if account == "account":
        if "account" in table.names and "role" in table.names:
            roles = np.array(_texts(table, "role"), object)
            if unknown := {*roles.tolist()} - {*ROLES}:
                raise NotTidyError(f"role is {min(map(str, unknown))!r}; by='account' needs taker or maker.")
            return _Sides(every, roles == "taker", _owners(table, "account"))
        owners = [*_owners(table, "taker"), *_owners(table, "maker")]
        return _Sides(np.tile(every, 2), np.concatenate((takers, makers)), owners)
    if "role" in by:
        return _Sides(np.tile(every, 2), np.concatenate((takers, makers)), None)
    return _Sides(every, takers, None)


def _owners(table: Frame, name: str) -> list[str | None]:
    require(f"A frame of trades by {name}", [name], table.names)
    return _texts(table, name)


def _texts(table: Frame, name: str) -> list[str | None]:
    return [None if is_missing(one) else str(one) for one in table.raw(name)]


def _summed(trades: F, rows: Rows, prints: _Prints, sides: _Sides, by: Sequence[str], sampling: Sampling | None) -> F:
    """The sums of each group."""
    at, is_taker = sides.at, sides.is_taker
    codes: list[Ints] = []
    shown: dict[str, Any] = {}
    for name in by:
        if name == "role":
            codes.append(np.where(is_taker, 0, 1))
            shown[name] = lambda first: typed("text", [ROLES[0] if one else ROLES[1] for one in is_taker[first]])
        elif name in (*ROLES, "account"):
            owners = np.array([one or "" for one in sides.owner or ()], object)
            codes.append(np.unique(owners, return_inverse=True)[1] if len(owners) else np.zeros(0, np.int64))
            shown[name] = lambda first: Texts.of([(sides.owner or ())[one] for one in first])
        else:
            codes.append(rows.codes(name)[at])
            shown[name] = lambda first, name=name: rows.column(name, at[first])
    group = np.zeros(len(at), np.int64)
    for one in codes:
        group = np.unique(np.stack((group, one)), axis=1, return_inverse=True)[1] if len(at) else group
    _, first = np.unique(group, return_index=True)
    count = len(first)
    why, counts = prints.why[at], prints.why[at] == ""
    gain = np.where(is_taker, prints.gain[at], -prints.gain[at])
    fee = np.where(is_taker, prints.fee[at], 0.0)
    known = np.nan_to_num(fee)
    profit, staked = gain - known, prints.staked(is_taker, at)
    volume, size = prints.price[at] * prints.size[at], prints.size[at]
    inside = np.flatnonzero(counts)
    of = group[inside]
    number = np.bincount(of, minlength=count)
    amounts = {"shares": size, "volume": volume, "staked": staked, "fees": known, "profit": profit}
    sums = {name: group_sums(of, values[inside], count) for name, values in amounts.items()}
    has_fee = np.bincount(of, ~np.isnan(fee[inside]), minlength=count) > 0
    market = np.unique(prints.market, return_inverse=True)[1][at] if len(at) else group
    pairs = np.unique(np.stack((of, market[inside])), axis=1)
    out: dict[str, Column] = {name: column(first) for name, column in shown.items()}
    out |= {"trades": number, "markets": np.bincount(pairs[0], minlength=count) if len(at) else number}
    out |= sums | {"fees": np.where(has_fee, sums["fees"], np.nan)}
    with np.errstate(divide="ignore", invalid="ignore"):
        out["return"] = np.where(sums["staked"] > 0, sums["profit"] / sums["staked"], np.nan)
        hits = np.bincount(of, profit[inside] > 0, minlength=count) / number
    if sampling is not None:
        clusters = rows.clusters()[:, at]
        intervals = [_interval(profit[some], staked[some], clusters[:, some], sampling) for some in
                     (inside[of == one] for one in range(count))]  # fmt: skip
        out |= ends("", intervals)
        warn_of_intervals("return", sampling, [one for one in intervals if one.effective or one.reason != "few"])
    out["hit_rate"] = hits
    if sampling is not None:
        out["cluster"] = typed("text", [rows.keys.clustered] * count)
    lost = {reason: np.bincount(group[why == reason], minlength=count) for reason in
            ("left_out", "after_close", "no_side", "open")}  # fmt: skip
    warn_of_left_out("side", "no_side", lost["no_side"], number)
    return as_kind_of(trades, out | lost, count)  # type: ignore[no-any-return]


def _interval(profit: Floats, staked: Floats, clusters: Ints, sampling: Sampling) -> Interval:
    """The interval of profit over stakes; of a side that staked nothing there is none."""
    good = staked > 0
    if not good.any():
        return Interval.none("few")
    return of_rows(
        profit[good] / staked[good], staked[good], clusters[:, good], sampling, bounds=UNBOUNDED, signs=profit[good]
    )
