"""Fees as data: the class `Fees`, and what is known of rates by category."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from marketdata.adapters.frame import Native
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import number
from marketdata.points.fees import Schedule
from marketdata.points.schema import require
from marketdata.tidy.records import columns_of
from marketdata.times import to_micros

# Fields of market records that have a schedule of fees.
_SCHEDULES = ("feeSchedule", "fee_schedule", "fd")
# Whether there are fees.
_SWITCHES = ("feesEnabled", "fees_enabled")
# The columns of a table of rates.
_TABLE = ("category", "since", "rate", "source")


class CategoryRate(NamedTuple):
    """The rate of a category of markets, and since when a source states it."""

    category: str
    since: str
    """First date on which the source states the rate; the day on which it began may be earlier."""
    rate: float
    source: str


# A date on which a source states rates, and the source.
_JUNE = ("2026-06-17", "github.com/DarriEy/Auramaur/pull/141, after docs.polymarket.com/trading/fees")
CATEGORIES: tuple[CategoryRate, ...] = (
    CategoryRate("crypto", _JUNE[0], 0.07, _JUNE[1]),
    CategoryRate("sports", _JUNE[0], 0.03, _JUNE[1]),
    CategoryRate("sports", "2026-09-01", 0.05, "github.com/raymizzou/open_trader/issues/112"),
    *(CategoryRate(name, _JUNE[0], 0.04, _JUNE[1]) for name in ("finance", "politics", "tech", "mentions")),
    *(CategoryRate(name, _JUNE[0], 0.05, _JUNE[1]) for name in ("economics", "culture", "weather")),
    CategoryRate("geopolitics", _JUNE[0], 0.0, _JUNE[1]),
)
"""Rates of quadratic fees by category, as two sources state them; others disagree: a market's own rate is better."""


class Fees(Schedule):
    """What a taker pays for a trade, as data: a formula with its rate and rounding, for all markets or by market.

    ``Fees.flat(rate)`` is a share of the notional, ``Fees.quadratic(rate)`` is shares * rate * price * (1 - price) of
    each trade, rounded to 5 decimals, and ``Fees.of(markets)`` takes the rates of market records. Wherever an argument
    ``fees`` is allowed, so is a number (as for ``flat``; 0 says that there are none) and a function of the prices and
    shares of trades (arrays) that gives their fees [USD]. Each level of a book that is filled counts as one trade. A
    market whose fee is not known is a ConfigError. Makers pay nothing.

    ``fees(price, shares)`` gives the fee [USD], ``fees.of_market(market_id)`` those of one market; ``text``, ``rate``
    and ``markets`` are the formula in words, its number, and the fees of each market, None where they have none.

    Examples
    --------
    >>> fees = md.Fees.quadratic(0.04)
    >>> fees, fees(0.5, 100), fees(0.95, 100)
    (<Fees: shares x 0.04 x price x (1 - price), rounded to 5 decimals>,
     1.0, 0.19)
    """

    @classmethod
    def of(cls, markets: Any, *, categories: Any = None, at: Any = None) -> Fees:
        """Fees from the fields of market records, a frame of any kind.

        The rate of a market is ``rate`` (or ``r``) of its ``feeSchedule`` (also ``fee_schedule``, ``fd``: a dict, or
        its JSON), and 0 where ``feesEnabled`` (``fees_enabled``) is false. Neither the field ``fee_rate_bps`` of trades
        nor the path ``/fee-rate`` of the venue is that rate. Where a record has neither field, and a table
        ``categories`` is given, its ``category`` decides. A market without any has no known fee. NotTidyError for a
        schedule of another formula (an exponent that is not 1).

        Parameters
        ----------
        categories : frame or sequence of rows, optional
            A table ``category since rate source``, such as ``md.fees.CATEGORIES`` or your own; ``since`` is a date.
        at : time, optional
            When the trades are, which with ``categories`` has to be said: the latest rate since before then counts.

        Examples
        --------
        >>> markets = md.testing.markets("polars", markets=2).with_columns(
        ...     feeSchedule=pl.Series(['{"exponent": 1, "rate": 0.05}', None]),
        ...     category=pl.lit("sports"),
        ... )
        >>> md.Fees.of(markets).of_market("rain")
        <Fees: shares x 0.05 x price x (1 - price), rounded to 5 decimals>
        >>> fees = md.Fees.of(markets, categories=md.fees.CATEGORIES, at="2026-07-01")
        >>> fees.of_market("snow").rate
        0.03
        """
        if (categories is None) != (at is None):
            raise ConfigError("categories= and at= go together: a rate by category is one of a date.")
        data = columns_of(markets, ("market_id", "category", *_SCHEDULES, *_SWITCHES))
        require("A frame of market records", ["market_id"], data)
        table = {} if categories is None else _rates(categories, to_micros(at, "at"))
        made: dict[float, Fees] = {}
        found: dict[str, Schedule] = {}
        for i, market in enumerate(map(str, data["market_id"])):
            rate = _own_rate(market, {name: column[i] for name, column in data.items()})
            if rate is None and "category" in data:
                rate = table.get(str(data["category"][i]).lower())
            if rate is None:
                continue
            fees = made.setdefault(rate, cls.quadratic(rate))
            if found.setdefault(market, fees) is not fees:
                raise NotTidyError(f"Market {market!r} has two records with different fees; keep the right one.")
        return cls(f"by market, of {len(found)} markets", markets=found)


def _own_rate(market: str, record: Mapping[str, object]) -> float | None:
    if any(record.get(name) is False for name in _SWITCHES):
        return 0.0
    for name in _SCHEDULES:
        given = record.get(name)
        if given is None:
            continue
        schedule = _decoded(given) if isinstance(given, str) else given
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


def _decoded(text: str) -> object:
    """JSON, or the text if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rates(categories: Native | Sequence[CategoryRate], at: int) -> dict[str, float]:
    """The rate of each category at a time."""
    if isinstance(categories, list | tuple):
        try:
            columns = dict(zip(_TABLE, zip(*categories, strict=True), strict=True))
        except (TypeError, ValueError):
            wanted = f"is refused; it is a frame, or rows of {' '.join(_TABLE)}, as md.fees.CATEGORIES."
            raise ConfigError(wanted, argument="categories", value=categories) from None
    else:
        columns = {name: tuple(values) for name, values in columns_of(categories, _TABLE, "a table of rates").items()}
        require("A table of rates", _TABLE, columns)
    given = zip(columns["category"], columns["since"], columns["rate"], strict=True)
    rows = sorted((to_micros(since, "since"), str(name).lower(), rate) for name, since, rate in given)
    return {name: number(f"The rate of {name}", rate, least=0.0, most=1.0) for since, name, rate in rows if since <= at}


__all__ = ["CATEGORIES", "CategoryRate", "Fees"]
