"""Fees of takers as data: the class `Fees`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import number
from marketdata.points.fees import Formula, Schedule
from marketdata.points.records import truth
from marketdata.points.schema import require
from marketdata.tidy.records import columns_of
from marketdata.times import TimeLike, to_micros, to_text

# Venues and their interfaces write these fields differently.
_SCHEDULES = ("feeSchedule", "fee_schedule", "fd")
_SWITCHES = ("feesEnabled", "fees_enabled")
_KALSHI = ("fee_type", "fee_multiplier")
# Before, Polymarket had no fees in most markets, and another formula in some.
_RATES_SINCE = "2026-04-01"


class Fees(Schedule):
    """The fees of a taker: one formula for all markets, or one per market.

    An argument ``fees`` takes any of these.

    - ``Fees.flat(rate)`` is a share of the notional.
    - ``Fees.quadratic(rate)`` is shares * rate * price * (1 - price), rounded to 5 decimals.
    - ``Fees.of(markets)`` has the rates of market records.
    - ``Fees.kalshi()`` is the quadratic fee of Kalshi, an order rounded up to the cent.
    - 0 says that there are no fees. Another number is refused, as it may be the rate of either formula.
    - A function takes arrays of prices and shares, and gives the fee of each trade [USD].

    Each level of a book that is filled counts as one trade. A market whose fee is not known is a ConfigError. Makers
    pay nothing. ``fees(price, shares)`` gives the fee [USD], and ``fees.of_market(market_id)`` the fees of one market.
    ``text``, ``rate`` and ``markets`` are the formula in words, its number, and the fees of each market, or None.

    Examples
    --------
    >>> fees = md.Fees.quadratic(0.04)
    >>> fees, fees(0.5, 100), fees(0.95, 100)
    (<Fees: shares x 0.04 x price x (1 - price), rounded to 5 decimals>,
     1.0, 0.19)
    """

    def __init__(
        self,
        text: str = "",
        formula: Formula | None = None,
        rate: float | None = None,
        markets: Mapping[str, Schedule] | None = None,
    ) -> None:
        if not text:
            raise ConfigError(
                "md.Fees() has no rate; allowed are md.Fees.flat(rate), md.Fees.quadratic(rate), "
                "md.Fees.kalshi() and md.Fees.of(markets); fees=0 says that there are none."
            )
        super().__init__(text, formula, rate, markets)

    @classmethod
    def of(cls, markets: Any, *, traded: TimeLike | Iterable[TimeLike] | None = None) -> Fees:
        """Fees from the fields of market records, a frame of any kind.

        The rate of a market is ``rate`` (or ``r``) of its ``feeSchedule`` (also ``fee_schedule``, ``fd``: a dict, or
        its JSON). It is 0 where ``feesEnabled`` (``fees_enabled``) is false, also as 0 or text. A market without these
        fields has no known fee. Neither the field ``fee_rate_bps`` of trades nor the path ``/fee-rate`` of the venue is
        that rate. For ``exponent`` see `quadratic`. Records of Kalshi have ``fee_type`` and ``fee_multiplier``,
        as its series do. NotTidyError for another formula, and for a switch that is neither on nor off.

        Records have the rates of today, which hold for trades from 2026-04-01 on, when the schedule of Polymarket
        began. A function that meets books of before refuses a rate above 0 with a ConfigError, as trades of then paid
        another fee, or none. ``traded``, a time or a column of times of trades, has the same check at once.

        Examples
        --------
        >>> markets = md.testing.markets("polars", markets=2).with_columns(
        ...     feeSchedule=pl.Series(['{"exponent": 1, "rate": 0.05}', None]),
        ...     feesEnabled=pl.Series([True, False]),
        ... )
        >>> fees = md.Fees.of(markets)
        >>> fees.of_market("rain")
        <Fees: shares x 0.05 x price x (1 - price), rounded to 5 decimals>
        >>> fees.of_market("snow").rate
        0.0
        """
        data = columns_of(markets, ("market_id", *_SCHEDULES, *_SWITCHES, *_KALSHI))
        require("A frame of market records", ["market_id"], data)
        first = None if traded is None else _first(traded)
        by_terms: dict[tuple[float, float | None], Fees] = {}
        by_market: dict[str, Schedule] = {}
        for i, market in enumerate(map(str, data["market_id"])):
            record = {name: column[i] for name, column in data.items()}
            terms = _kalshi(market, record) or _terms(market, record)
            if terms is None:
                continue
            rate, exponent = terms
            new = cls.kalshi(rate) if exponent is None else cls.quadratic(rate, exponent=exponent)
            if exponent is not None and rate:
                new = new.holding_since(to_micros(_RATES_SINCE, "traded"))
            fees = by_terms.setdefault(terms, new)
            if first is not None and fees.since is not None and first < fees.since:
                raise ConfigError(
                    f"is before {_RATES_SINCE}, and the rate of market {market!r} is of today. Name what was paid "
                    "then, such as md.Fees.quadratic(0.25, exponent=2) or 0.",
                    argument="traded",
                    value=traded if isinstance(traded, str) else to_text(first),
                )
            if by_market.setdefault(market, fees) is not fees:
                raise NotTidyError(f"Market {market!r} has two records with different fees; keep the right one.")
        return cls(f"by market, of {len(by_market)} markets", markets=by_market)


def _first(traded: Any) -> int:
    """The first of one or several times."""
    if isinstance(traded, str | int | float | dt.date) or not isinstance(traded, Iterable):
        return to_micros(traded, "traded")
    times = [to_micros(one, "traded") for one in traded if not is_missing(one)]
    if not times:
        raise ConfigError("has no time; allowed are a time and a column of times.", argument="traded")
    return min(times)


def _kalshi(market: str, record: Mapping[str, object]) -> tuple[float, None] | None:
    """The multiplier in a record of Kalshi, and no exponent; None for a record of another venue."""
    kind, multiplier = (record.get(name) for name in _KALSHI)
    if kind is None and multiplier is None:
        return None
    if kind not in (None, "quadratic", "quadratic_with_maker_fees"):
        raise NotTidyError(
            f"fee_type of market {market!r} is {kind!r}; known are quadratic and quadratic_with_maker_fees. Name the "
            "formula as a function of prices and shares."
        )
    return number(f"fee_multiplier of market {market!r}", 1 if multiplier is None else multiplier, least=0.0), None


def _terms(market: str, record: Mapping[str, object]) -> tuple[float, float] | None:
    """The rate and the exponent in a market record; None where the record has none."""
    for name in _SWITCHES:
        if truth(f"{name} of market {market!r}", record.get(name)) is False:
            return 0.0, 1.0
    for name in _SCHEDULES:
        schedule = given = record.get(name)
        if given is None:
            continue
        if isinstance(given, str):
            with suppress(ValueError):
                schedule = json.loads(given)
        if not isinstance(schedule, Mapping):
            raise NotTidyError(f"{name} of market {market!r} is {given!r}; a schedule of fees is a dict or its JSON.")
        exponent, rate = schedule.get("exponent", schedule.get("e")), schedule.get("rate", schedule.get("r"))
        if rate is not None:
            power = number(f"The exponent in {name} of market {market!r}", 1 if exponent is None else exponent)
            return number(f"The rate in {name} of market {market!r}", rate, least=0.0, most=1.0), power
    return None
