"""Scores of forecasts and bins of a calibration curve, by loops over forecasts."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

from reference.bootstrap import studentized


class Forecast(NamedTuple):
    """A price of a market, and what a share paid."""

    market: str
    price: float
    paid: float


def squared_error(price: float, paid: float) -> float:
    return (price - paid) ** 2


def log_loss(price: float, paid: float) -> float:
    """The negative logarithm of the probability of what came true, of prices that are 1e-6 or more from 0 and 1."""
    price = min(max(price, 1e-6), 1 - 1e-6)
    return -math.log(price) if paid == 1 else -math.log(1 - price)


def best_rising(forecasts: Sequence[Forecast]) -> list[float]:
    """The best rising function of the price: slopes of the hull below the sums of what was paid, by price."""
    at_price: dict[float, list[float]] = defaultdict(list)
    for one in forecasts:
        at_price[one.price].append(one.paid)
    hull: list[tuple[int, float]] = [(0, 0.0)]
    count, total, place = 0, 0.0, {}
    for price in sorted(at_price):
        count, total = count + len(at_price[price]), total + sum(at_price[price])
        place[price] = count
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (count - hull[-1][0]) >= (total - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((count, total))
    slope_of = {}
    ends = iter(itertools.pairwise(hull))
    (x0, y0), (x1, y1) = next(ends)
    for price in sorted(place):
        while place[price] > x1:
            (x0, y0), (x1, y1) = next(ends)
        slope_of[price] = (y1 - y0) / (x1 - x0)
    return [slope_of[one.price] for one in forecasts]


def parts(forecasts: Sequence[Forecast], loss: Callable[[float, float], float]) -> tuple[float, float, float, float]:
    """Score, miscalibration, discrimination and uncertainty."""

    def mean(prices: Iterable[float]) -> float:
        return math.fsum(loss(p, one.paid) for p, one in zip(prices, forecasts, strict=True)) / len(forecasts)

    base_rate = math.fsum(one.paid for one in forecasts) / len(forecasts)
    score, base = mean(one.price for one in forecasts), mean([base_rate] * len(forecasts))
    best = mean(best_rising(forecasts))
    return score, score - best, base - best, base


def interval(forecasts: Sequence[Forecast], loss: Callable[[float, float], float], worst: float) -> tuple[float, float]:
    """The 95 percent interval of the score over markets."""
    sums: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for one in forecasts:
        total, count = sums[one.market]
        sums[one.market] = (total + loss(one.price, one.paid), count + 1)
    return studentized([sums[market] for market in sorted(sums)], 0, 0.95, 1000, (0.0, worst))


def bins(forecasts: Sequence[Forecast], count: int, share: float | None) -> list[dict[str, float]]:
    """The bins that have a forecast; with a share Wilson's interval over effective markets."""
    members: dict[int, list[Forecast]] = defaultdict(list)
    for one in forecasts:
        members[min(int(one.price * count + 1e-9), count - 1)].append(one)
    table = []
    for number, inside in sorted(members.items()):
        points = len(inside)
        won = math.fsum(one.paid for one in inside) / points
        row = {
            "bin_start": number / count, "bin_end": (number + 1) / count, "points": points,
            "forecast": math.fsum(one.price for one in inside) / points, "outcome": won,
        }  # fmt: skip
        if share is not None:
            of_market: dict[str, int] = defaultdict(int)
            for one in inside:
                of_market[one.market] += 1
            n = points**2 / sum(k * k for k in of_market.values())
            z = NormalDist().inv_cdf((1 + share) / 2)
            middle = (won + z * z / 2 / n) / (1 + z * z / n)
            half = z * math.sqrt(won * (1 - won) / n + z * z / 4 / n**2) / (1 + z * z / n)
            row |= {"markets": len(of_market), "outcome_low": middle - half, "outcome_high": middle + half}
        table.append(row)
    return table
