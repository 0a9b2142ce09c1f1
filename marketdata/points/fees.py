"""Fees of takers: formulas on numpy arrays of prices and shares, and the schedule that says which holds for a market.

A fee belongs to a trade at one price, in USD; the fee of several levels of a book is the sum over the levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from marketdata.display import html_table
from marketdata.errors import ConfigError
from marketdata.points.arguments import number, numbers, whole, with_flags
from marketdata.points.columns import Books, Floats, Ints
from marketdata.points.probability import NOT_0_1, outside_0_1
from marketdata.times import to_text

Formula = Callable[[Floats, Floats], Floats]
ALLOWED = (
    "allowed are 0 (there are none), md.Fees.flat(rate), md.Fees.quadratic(rate), md.Fees.kalshi(), "
    "md.Fees.of(markets), and a function of the prices and shares of trades"
)
_DEFAULT_DECIMALS = 5
# A product of decimals is off by less than this in the last digit of a fee, so no fee is rounded by its error.
_LAST_BITS = 1e-7


@dataclass(frozen=True)
class Charge:
    """Fees of trades with books, by the market of each book: of the levels that are taken, then of whole orders.

    ``levels`` takes prices, shares and numbers of books, ``orders`` the fees of all levels of an order and its book.
    """

    levels: Callable[[Floats, Floats, Ints], Floats]
    orders: Callable[[Floats, Ints], Floats]

    def __call__(self, price: Floats, shares: Floats, book: Ints) -> Floats:
        """Fees of levels, before an order of them is rounded."""
        return self.levels(price, shares, book)


def flat(price: Floats, shares: Floats, *, rate: float) -> Floats:
    """A share of the notional: rate * price * shares."""
    return rate * price * shares


def quadratic(
    price: Floats,
    shares: Floats,
    *,
    rate: float,
    decimals: int | None = _DEFAULT_DECIMALS,
    up: bool = False,
    exponent: float = 1.0,
) -> Floats:
    """Shares * rate * (price * (1 - price)) ** exponent, rounded to the nearest, a half up, or up; 0 at 0 and 1."""
    odds = price * (1 - price)
    fee = shares * rate * (odds if exponent == 1 else np.maximum(odds, 0.0) ** exponent)
    return fee if decimals is None else _rounded(fee, decimals, up=up)


def _rounded(fee: Floats, decimals: int, *, up: bool) -> Floats:
    scale = 10.0**decimals
    # A half is rounded up whatever the last bits of the product are; numpy's round goes by these, or to even.
    return (np.ceil(fee * scale - _LAST_BITS) if up else np.floor(fee * scale + 0.5 + _LAST_BITS)) / scale


@dataclass(frozen=True, eq=False)
class Schedule:
    """The fee of a taker: one formula for all markets, or one per market.

    ``text`` is the formula in words, ``rate`` its one number, where it has one, and ``markets`` the schedule of each
    market, where they differ.
    """

    text: str
    formula: Formula | None = None
    rate: float | None = None
    markets: Mapping[str, Schedule] | None = None
    up_to_cent: bool = field(default=False, init=False)
    """Whether the fee of a whole order is rounded up to the cent."""
    since: int | None = field(default=None, init=False)
    """From when on the rate holds [microseconds]; None: always."""

    def __repr__(self) -> str:
        return f"<Fees: {self.text}>"

    def _repr_html_(self) -> str:
        fees_of_markets = ((market, fees.text) for market, fees in (self.markets or {}).items())
        return html_table([("fees", self.text), *fees_of_markets])

    def __call__(self, price: Floats | float, shares: Floats | float) -> Any:
        """Fees of orders of ``shares`` at one ``price`` each [USD]: a number or an array."""
        fees = self.of_orders(np.asarray(self.of_levels(price, shares)))
        return fees if fees.ndim else float(fees)

    def of_orders(self, fees: Floats) -> Floats:
        """The fees of whole orders, from the sums over their levels."""
        return _rounded(fees, 2, up=True) if self.up_to_cent else fees

    def of_levels(self, price: Floats | float, shares: Floats | float) -> Any:
        """Fees of the levels of orders [USD each]: a number or an array."""
        if self.formula is None:
            raise ConfigError("These fees differ by market; fees.of_market(market_id) gives those of one.")
        p, s = numbers(price=price, shares=shares)
        for name, wrong, why in (
            ("price", p[outside_0_1(p)], NOT_0_1),
            ("shares", s[s < 0], "below 0; allowed are numbers from 0."),
        ):
            if wrong.size:
                raise ConfigError(f"{name} is {wrong[0]:g}, {why}")
        given = self.formula(p, s)
        try:
            fees = np.asarray(given, float)
        except (TypeError, ValueError):
            fees = np.array(None, float)
        if fees.shape != p.shape or not np.isfinite(fees[np.isfinite(p) & np.isfinite(s)]).all():
            raise ConfigError(
                f"The function of fees gave {given!r} for {p.size} trades; it takes their prices and their shares, and "
                "gives an array of finite fees, one of each trade."
            )
        return fees if fees.ndim else float(fees)

    def holding_since(self, since: int) -> Self:
        """The same fees, which hold for trades from this time on [microseconds]."""
        object.__setattr__(self, "since", since)  # no argument, as only a record says it
        return self

    def check_time(self, first: int, market_id: str) -> None:
        """ConfigError if the first trade in a market is from before the rate held."""
        if self.since is not None and first < self.since:
            raise ConfigError(
                f"The fee of market {market_id!r} is not known for {to_text(first)}: the rate in its record holds from "
                f"{to_text(self.since)} on. Name what was paid then, such as md.Fees.quadratic(0.25, exponent=2) or 0, "
                "or keep the rows from then on."
            )

    def of_market(self, market_id: str, at: int | None = None) -> Schedule:
        """The fees of one market, for trades from ``at`` on [microseconds]; ConfigError if they are not known."""
        if self.markets is None:
            if at is not None:
                self.check_time(at, market_id)
            return self
        if market_id not in self.markets:
            raise ConfigError(
                f"The fee of market {market_id!r} is not known, and none is not assumed. Name it: {ALLOWED}, whose "
                "records have it."
            )
        return self.markets[market_id].of_market(market_id, at)

    def charge_for(self, books: Books) -> Charge:
        """Fees of trades with books, by the market of each book."""
        each = [self.of_market(token.market_id) for token in books.tokens]
        for fees, token, start, end in zip(each, books.tokens, books.bounds[:-1], books.bounds[1:], strict=True):
            if fees.since is not None and end > start:
                fees.check_time(int(books.ts[start:end].min()), token.market_id)
        if self.markets is None:
            return Charge(
                lambda price, shares, _book: self.of_levels(price, shares), lambda fees, _book: self.of_orders(fees)
            )
        different = list({id(one): one for one in each}.values())
        which = np.array([different.index(one) for one in each], np.int64)[books.token]

        def levels(price: Floats, shares: Floats, book: Ints) -> Floats:
            out, of = np.empty(len(book)), which[book]
            for i, one in enumerate(different):
                out[of == i] = one.of_levels(price[of == i], shares[of == i])
            return out

        def orders(fees: Floats, book: Ints) -> Floats:
            out, of = np.empty(len(book)), which[book]
            for i, one in enumerate(different):
                out[of == i] = one.of_orders(fees[of == i])
            return out

        return Charge(levels, orders)

    @classmethod
    def flat(cls, rate: float) -> Self:
        """Fees that are a share of the notional, rate * price * shares; 0 says that there are none."""
        rate = number("rate", rate, least=0.0, most=1.0)
        return cls(f"{rate:g} x price x shares" if rate else "none", partial(flat, rate=rate), rate)

    @classmethod
    @with_flags("up")
    def quadratic(
        cls, rate: float, *, decimals: int | None = _DEFAULT_DECIMALS, up: bool = False, exponent: float = 1
    ) -> Self:
        """Fees of shares * rate * (price * (1 - price)) ** exponent for each trade, rounded to ``decimals``.

        A half is rounded up, and with ``up`` every digit behind. ``decimals=None`` does not round. Each
        level that is taken is one trade. ``quadratic(0.25, exponent=2)`` was a schedule of Polymarket in early 2026.
        """
        rate = number("rate", rate, least=0.0, most=1.0)
        if decimals is not None:
            whole("decimals", decimals, least=0, most=12)
        rounded = "" if decimals is None else f", rounded {'up ' if up else ''}to {decimals} decimals"
        power = number("exponent", exponent)
        odds = "price x (1 - price)" if power == 1 else f"(price x (1 - price)) ** {power:g}"
        formula = partial(quadratic, rate=rate, decimals=decimals, up=up, exponent=power)
        return cls(f"shares x {rate:g} x {odds}{rounded}" if rate else "none", formula, rate)

    @classmethod
    def kalshi(cls, multiplier: float = 1) -> Self:
        """Kalshi's fee of takers: 0.07 * multiplier * contracts * price * (1 - price), an order rounded up to the cent.

        The whole order is rounded to the cent, not each level of the book. Without the size of an order a result is per
        share and not rounded. ``multiplier`` is the ``fee_multiplier`` of the series.

        Examples
        --------
        >>> md.Fees.kalshi()(0.5, 100), md.Fees.kalshi()(0.5, 1)
        (1.75, 0.02)
        """
        rate = 0.07 * number("multiplier", multiplier, least=0.0, most=10.0)
        formula = partial(quadratic, rate=rate, decimals=None)
        text = f"contracts x {rate:g} x price x (1 - price), an order rounded up to the cent" if rate else "none"
        fees = cls(text, formula, rate)
        object.__setattr__(fees, "up_to_cent", bool(rate))  # no argument, as no other schedule has it
        return fees


def schedule(fees: object) -> Schedule:
    """The schedule that an argument ``fees`` names; ConfigError if it names none."""
    if isinstance(fees, Schedule):
        return fees
    if isinstance(fees, bool | str) or not (callable(fees) or isinstance(fees, int | float)):
        raise ConfigError(f"fees={fees!r} is refused; {ALLOWED}.")
    if callable(fees):
        return Schedule("a function", fees)
    rate = number("fees", fees, least=0.0, most=1.0)
    if rate:
        raise ConfigError(
            f"has two meanings: md.Fees.flat({rate:g}) is {rate:.4g} of the notional, price x shares, and "
            f"md.Fees.quadratic({rate:g}) is shares x {rate:g} x price x (1 - price). Name one of them; {ALLOWED}.",
            argument="fees",
            value=fees,
        )
    return Schedule.flat(0.0)
