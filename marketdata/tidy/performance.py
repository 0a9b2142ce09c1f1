"""Results of trading: frames of fills and of accounts, how they are shown, and the figures of a backtest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters.dispatch import as_kind_of
from marketdata.adapters.frame import Column, Native
from marketdata.display import html_table
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.columns import Floats, Ints, group_sums

By = Literal["market_id"] | None


class Figures(NamedTuple):
    """The columns of a summary: one row per market in ``markets``, one row in ``total``; ``text`` is one line."""

    text: str
    total: Mapping[str, Column]
    markets: Mapping[str, Column]


class _Figured:
    """Shows the figures of a result; one that was made by hand, or by ``_replace``, has none."""

    _figures: Figures | None = None

    def __repr__(self) -> str:
        if self._figures is None:
            return tuple.__repr__(self)
        return f"<{type(self).__name__}: {self._figures.text}>"

    def _repr_html_(self) -> str:
        if self._figures is None:
            return html_table(self._asdict().items())  # type: ignore[attr-defined]
        shown = ((name, values[0]) for name, values in self._figures.total.items())
        return html_table([
            (type(self).__name__, self._figures.text), *((name, f"{value:,.6g}") for name, value in shown)
        ])  # fmt: skip


class _ExecutionFrames(NamedTuple):
    fills: Any
    positions: Any
    markets: Any


class _AccountFrames(NamedTuple):
    total: Any
    markets: Any
    events: Any


class Execution(_Figured, _ExecutionFrames):
    """Result of `marketdata.execute`: the frames ``fills``, ``positions`` and ``markets``, of the kind of the books."""

    def summary(self, by: By = None) -> Any:
        """The usual figures of a backtest; for drawdown and exposure see `marketdata.account`.

        Parameters
        ----------
        by : "market_id", optional
            One row per market; without, one row for all.

        Returns
        -------
        frame
            ``market_id`` with ``by``, then:

            - ``orders``: rows of the fills, exits included. ``fills``: those that took shares.
            - ``turnover``: what was paid and received [USD]. ``fees`` [USD].
            - ``profit`` [USD]: null while an open position has no payoff.
            - ``hit_rate``: the share of the tokens that were bought whose profit is above 0 [0 to 1], among those whose
              profit is known; null without any.

        Examples
        --------
        >>> books = md.testing.books("polars")
        >>> first = books.md.mid().head(1).select("ts", "market_id", "token_id")
        >>> orders = first.with_columns(side=pl.lit("buy"), size=100.0)
        >>> paid = md.testing.markets("polars")
        >>> done = md.execute(orders, books, "1m", fees=0, outcomes=paid)
        >>> done
        <Execution: 1 fill of 1 order, fees 0 USD, profit 58 USD>
        >>> done.summary().row(0)
        (1, 1, 42.0, 0.0, 58.0, 1.0)
        """
        return _frame(self.fills, self._figures, by)


class Account(_Figured, _AccountFrames):
    """Result of `marketdata.account`: frames of the kind of the prices; ``events`` is None without ``markets=``."""

    def summary(self, by: By = None) -> Any:
        """The usual figures of a backtest, with drawdown and exposure.

        Parameters
        ----------
        by : "market_id", optional
            One row per market; without, one row for all.

        Returns
        -------
        frame
            ``market_id`` with ``by``, then:

            - ``fills``: how many took shares.
            - ``turnover``: what was paid and received [USD]. ``fees`` [USD].
            - ``profit`` [USD]: at the last time, open positions at the mid; null where that is not known.
            - ``hit_rate``: the share of the tokens that were bought whose profit is above 0 [0 to 1], among those whose
              profit is known; null without any.
            - ``drawdown``: the greatest fall of the profit below its highest before [USD].
            - ``exposure``: the greatest value of the positions at a time [USD].

            The last two are of the times at which all values are known; null without any.

        Examples
        --------
        >>> books = md.testing.books("polars")
        >>> first = books.md.mid().head(1).select("ts", "market_id", "token_id")
        >>> orders = first.with_columns(side=pl.lit("buy"), size=100.0)
        >>> fills = md.execute(orders, books, "1m", fees=0).fills
        >>> account = md.account(fills, books, "1m")
        >>> account
        <Account: 1 fill, fees 0 USD, profit 1 USD, drawdown 1 USD, exposure 43 USD>
        """
        return _frame(self.total, self._figures, by)


def executed(
    frames: Sequence[Native],
    market: Ints,
    names: Sequence[str],
    results: Mapping[str, Floats],
    counts: Ints,
    orders: int,
) -> Execution:
    """An `Execution` with its figures, from the market and the results of each token.

    ``counts`` has a row per token: its orders with exits, fills, and exits that did not sell all. ``orders`` is how
    many were given.
    """
    out = Execution(*frames)
    unsold = int(counts[:, 2].sum())
    total, by_market = (
        {
            "orders": _counts(counts[:, 0], group, number),
            "fills": _counts(counts[:, 1], group, number),
            "turnover": group_sums(group, results["paid"] + results["received"], number),
            "fees": group_sums(group, results["fees"], number),
            "profit": group_sums(group, results["profit"], number),
            "hit_rate": _hit_rate(results["profit"][results["bought"] > 0], group[results["bought"] > 0], number),
        }
        for group, number in ((np.zeros_like(market), 1), (market, len(names)))
    )
    parts = [f"{_number(int(total['fills'][0]), 'fill')} of {_number(orders, 'order')}"]
    parts += [f"{unsold:,} unsold"] * bool(unsold)
    is_open = np.isnan(results["profit"])
    if is_open.any():
        settled = round(float(results["profit"][~is_open].sum()), 2)
        parts += [
            *_money(total, ("fees",)),
            f"profit {_amount(settled)} USD without {_number(int(is_open.sum()), 'open position')}",
        ]
    else:
        parts += _money(total, ("fees", "profit"))
    text = ", ".join(parts)
    out._figures = Figures(text, total, {"market_id": [*names], **by_market})  # noqa: SLF001 a tuple is made without it
    return out


class Traded(NamedTuple):
    """One token of an account: its fills, what they moved [USD], its fees, and its amounts at each time."""

    market_id: str
    fills: int
    turnover: float
    fees: float
    amounts: Floats


def accounted(frames: Sequence[Native], tokens: Iterable[Traded], height: int) -> Account:
    """An `Account` with its figures, from its tokens and the number of its times."""
    out, tokens = Account(*frames), list(tokens)
    names: list[str | None] = [*sorted({token.market_id for token in tokens})]
    total = _of_tokens([tokens], height)
    by_market = _of_tokens([[token for token in tokens if token.market_id == name] for name in names], height)
    amounts = _money(total, ("fees", "profit", "drawdown", "exposure"))
    text = ", ".join([_number(int(total["fills"][0]), "fill"), *amounts])
    out._figures = Figures(text, total, {"market_id": names, **by_market})  # noqa: SLF001 a tuple is made without it
    return out


def _of_tokens(groups: Sequence[Sequence[Traded]], height: int) -> dict[str, Any]:
    rows = []
    for tokens in groups:
        money, value, _ = np.sum([np.zeros((3, height)), *(token.amounts for token in tokens)], axis=0)
        profit = money + value
        highest = np.maximum.accumulate(np.where(np.isnan(profit), -np.inf, profit))
        profits = np.array([token.amounts[0, -1] + token.amounts[1, -1] for token in tokens])
        rows.append((
            sum(token.fills for token in tokens), sum(token.turnover for token in tokens),
            sum(token.fees for token in tokens), profit[-1] if height else 0.0,
            _hit_rate(profits, np.zeros(len(profits), np.int64), 1)[0], _greatest(highest - profit), _greatest(value),
        ))  # fmt: skip
    columns = np.array(rows, float).reshape(-1, 7).T
    names = ("fills", "turnover", "fees", "profit", "hit_rate", "drawdown", "exposure")
    return {**dict(zip(names, columns, strict=True)), "fills": columns[0].astype(np.int64)}


def _greatest(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else np.nan


def _counts(values: Ints, group: Ints, number: int) -> NDArray[np.int64]:
    return np.bincount(group, values, number).astype(np.int64)


def _hit_rate(profit: Floats, group: Ints, number: int) -> Floats:
    """The share of the known profits of each group that are above 0; NaN without any."""
    known = ~np.isnan(profit)
    hits, all_known = (np.bincount(group[rows], minlength=number) for rows in (known & (profit > 0), known))
    return np.where(all_known > 0, hits / np.maximum(all_known, 1), np.nan)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _money(figures: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    values = [(name, round(float(figures[name][0]), 2)) for name in names if not np.isnan(figures[name][0])]
    unknown = [f"{name} not known" for name in names if np.isnan(figures[name][0])]
    return [f"{name} {_amount(value)} USD" for name, value in values] + unknown


def _amount(value: float) -> str:
    """A large amount in dollars, a small one with its cents; never -0."""
    return f"{value + 0.0:,.{0 if abs(value) >= 100 or value == int(value) else 2}f}"


def _frame(like: Native, figures: Figures | None, by: By) -> Native:
    choice("by", by, (None, "market_id"))
    if figures is None:
        raise ConfigError("A result that was put together by hand has no summary; take the one of the function.")
    columns = figures.total if by is None else figures.markets
    height = len(figures.markets["market_id"]) if by else 1
    return as_kind_of(like, columns, height)
