"""Fees of takers as data: the class `Fees`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import number
from marketdata.points.fees import Formula, Schedule
from marketdata.points.schema import require
from marketdata.tidy.records import columns_of

# Venues and their interfaces write these fields differently.
_SCHEDULES = ("feeSchedule", "fee_schedule", "fd")
_SWITCHES = ("feesEnabled", "fees_enabled")


class Fees(Schedule):
    """The fees of a taker: one formula for all markets, or one per market.

    An argument ``fees`` takes any of these.

    - ``Fees.flat(rate)`` is a share of the notional.
    - ``Fees.quadratic(rate)`` is shares * rate * price * (1 - price), rounded to 5 decimals.
    - ``Fees.of(markets)`` has the rates of market records.
    - A number is the rate of ``Fees.flat``, and 0 says that there are no fees.
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
                "md.Fees() has no rate; allowed are md.Fees.flat(rate), md.Fees.quadratic(rate) and "
                "md.Fees.of(markets); fees=0 says that there are none."
            )
        super().__init__(text, formula, rate, markets)

    @classmethod
    def of(cls, markets: Any) -> Fees:
        """Fees from the fields of market records, a frame of any kind.

        The rate of a market is ``rate`` (or ``r``) of its ``feeSchedule`` (also ``fee_schedule``, ``fd``: a dict, or
        its JSON). It is 0 where ``feesEnabled`` (``fees_enabled``) is false, 0 or "false". A market without these
        fields has no known fee. Neither the field ``fee_rate_bps`` of trades nor the path ``/fee-rate`` of the venue is
        that rate. NotTidyError for a schedule of another formula, and for a switch that is neither on nor off.

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
        data = columns_of(markets, ("market_id", *_SCHEDULES, *_SWITCHES))
        require("A frame of market records", ["market_id"], data)
        by_rate: dict[float, Fees] = {}
        by_market: dict[str, Schedule] = {}
        for i, market in enumerate(map(str, data["market_id"])):
            rate = _rate(market, {name: column[i] for name, column in data.items()})
            if rate is None:
                continue
            fees = by_rate.setdefault(rate, cls.quadratic(rate))
            if by_market.setdefault(market, fees) is not fees:
                raise NotTidyError(f"Market {market!r} has two records with different fees; keep the right one.")
        return cls(f"by market, of {len(by_market)} markets", markets=by_market)


def _rate(market: str, record: Mapping[str, object]) -> float | None:
    """The rate in a market record; None where the record has none."""
    for name in _SWITCHES:
        switch = str(record.get(name)).strip().lower()
        if switch in ("false", "0", "0.0"):
            return 0.0
        if switch not in ("none", "true", "1", "1.0"):
            raise NotTidyError(f"{name} of market {market!r} is {switch!r}; allowed are true, false, 1, 0 and null.")
    for name in _SCHEDULES:
        schedule = given = record.get(name)
        if given is None:
            continue
        if isinstance(given, str):
            with suppress(ValueError):
                schedule = json.loads(given)
        if not isinstance(schedule, Mapping):
            raise NotTidyError(f"{name} of market {market!r} is {given!r}; a schedule of fees is a dict or its JSON.")
        exponent = schedule.get("exponent", schedule.get("e"))
        if exponent not in (None, 1):
            raise NotTidyError(
                f"{name} of market {market!r} has the exponent {exponent!r}; only 1, shares x rate x p x (1 - p), is "
                "known here. Name another formula as a function of prices and shares."
            )
        rate = schedule.get("rate", schedule.get("r"))
        if rate is not None:
            return number(f"The rate in {name} of market {market!r}", rate, least=0.0, most=1.0)
    return None
