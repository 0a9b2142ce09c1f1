"""The numbers stored in the notebooks of calibration and scores, by plain loops over the same simulated data."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import pytest
from reference.bootstrap import studentized
from reference.studies import code_cells, stored_table


class Forecast(NamedTuple):
    """A price of a market, and what a share paid."""

    market: str
    price: float
    paid: float
    event: str


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
    """The 95 percent interval of the score over events."""
    sums: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for one in forecasts:
        total, count = sums[one.event]
        sums[one.event] = (total + loss(one.price, one.paid), count + 1)
    return studentized([sums[event] for event in sorted(sums)], 0, 0.95, 1000, (0.0, worst))


def bins(forecasts: Sequence[Forecast], count: int, share: float | None) -> list[dict[str, float]]:
    """The bins that have a forecast; with a share Wilson's interval over effective events."""
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
            n = points**2 / sum(k * k for k in Counter(one.event for one in inside).values())
            z = NormalDist().inv_cdf((1 + share) / 2)
            middle = (won + z * z / 2 / n) / (1 + z * z / n)
            half = z * math.sqrt(won * (1 - won) / n + z * z / 4 / n**2) / (1 + z * z / n)
            markets = {one.market for one in inside}
            row |= {"markets": len(markets), "outcome_low": middle - half, "outcome_high": middle + half}
        table.append(row)
    return table


pytestmark = pytest.mark.docs
HOUR = 3600.0


class Row(NamedTuple):
    """A price, what its token paid (None while open), and the seconds to the resolution."""

    market: str
    token: str
    ts: dt.datetime
    price: float
    paid: float | None
    left: float | None
    event: str

    @property
    def forecast(self) -> Forecast:
        assert self.paid is not None
        return Forecast(self.market, self.price, self.paid, self.event)


def rows_of(prices: Any, records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The prices with what the records say of their tokens."""
    ends, won = {}, {}
    events = {record["market_id"]: record["event_slug"] for record in records}
    for record in records:
        winner, end = record["resolved_token_id"], record["closed_at"]
        if isinstance(winner, str):
            ends[record["market_id"]] = end
        for token in record["token_ids"]:
            won[record["market_id"], token] = float(token == winner) if isinstance(winner, str) else None
    named = prices[["market_id", "token_id", "ts", "price"]].astype({"market_id": str, "token_id": str})
    rows = []
    for market, token, ts, price in named.itertuples(index=False):
        if (market, token) in won:
            left = (ends[market] - ts).total_seconds() if market in ends else None
            rows.append(Row(market, token, ts, price, won[market, token], left, events[market]))
    return rows


def counted(rows: Sequence[Row], first: Mapping[str, str]) -> tuple[list[Row], Counter[tuple[str, dt.datetime]]]:
    """The rows that count, of markets that paid; and the market and time of those that repeat them."""
    resolved = [row for row in rows if row.paid is not None and not math.isnan(row.price)]
    has_first = {(row.market, row.ts) for row in resolved if row.token == first[row.market]}
    keep, repeats = [], Counter[tuple[str, dt.datetime]]()
    for row in resolved:
        if row.token == first[row.market] or (row.market, row.ts) not in has_first:
            keep.append(row)
        else:
            repeats[row.market, row.ts] += 1
    return keep, repeats


def first_by_record(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {record["market_id"]: record["token_ids"][0] for record in records}


def first_by_label(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Yes before No, Up before Down and Over before Under, else the first by the alphabet."""
    first = {}
    for record in records:
        labels = dict(zip(record["token_labels"], record["token_ids"], strict=True))
        first[record["market_id"]] = labels[min(labels, key=lambda label: (label not in ("Yes", "Up", "Over"), label))]
    return first


def assert_shown(stored: Sequence[Mapping[str, str]], want: Sequence[Mapping[str, Any]], digits: int) -> None:
    """Each wanted number is stored, rounded; NaN is NaN, and texts are equal."""
    assert len(stored) == len(want)
    for got, row in zip(stored, want, strict=True):
        for name, value in row.items():
            if isinstance(value, str):
                assert got[name] == value
            else:
                one = pytest.approx(value, abs=0.5 * 10**-digits + 1e-9, rel=0, nan_ok=True)
                assert float(got[name]) == one, (name, row)


def score(
    kept: Sequence[Row], repeats: int, name: str, loss: Callable[[float, float], float], worst: float
) -> dict[str, Any]:
    forecasts = [row.forecast for row in kept]
    of_all, *others = parts(forecasts, loss)
    low, high = interval(forecasts, loss, worst)
    return {
        "markets": len({one.market for one in forecasts}), "points": len(forecasts), name: of_all,
        f"{name}_low": low, f"{name}_high": high,
        **dict(zip(("miscalibration", "discrimination", "uncertainty"), others, strict=True)), "left_out": repeats,
    }  # fmt: skip


def curve(kept: Sequence[Row], rows: Sequence[Row], count: int, share: float | None = None) -> list[dict[str, float]]:
    """The bins, with the rows that repeat those of the bin."""
    table = bins([row.forecast for row in kept], count, share)
    keys = {(row.market, row.token, row.ts) for row in kept}
    of_time: dict[tuple[str, dt.datetime], int] = defaultdict(int)
    for row in rows:
        if row.paid is not None and (row.market, row.token, row.ts) not in keys:
            of_time[row.market, row.ts] += 1
    left_out = Counter[int]()
    for row in kept:
        left_out[min(int(row.price * count + 1e-9), count - 1)] += of_time[row.market, row.ts]
    return [row | {"left_out": left_out[round(row["bin_start"] * count)]} for row in table]


def test_each_number_of_the_calibration_notebook_equals_a_plain_loop() -> None:
    """Counts, bins, scores and intervals of notebook 04."""
    cells = code_cells("04_are_prices_calibrated.ipynb")
    space: dict[str, Any] = {}
    with warnings.catch_warnings():
        exec(cells[0][0], space)
        prices = space["archive"].prices(space["binary"]["market_id"].tolist(), resolution="1h", on_missing="partial")
    records = space["binary"].to_dict("records")
    paid = sum(isinstance(record["resolved_token_id"], str) for record in records)
    assert cells[0][1] == [f"'{len(records)} markets of two tokens, {paid} resolved'"]
    rows = [row for row in rows_of(prices, records) if row.left is not None and row.left > 6 * HOUR]
    kept, repeats = counted(rows, first_by_label(records))
    assert_shown(stored_table(cells[1][1][0]), curve(kept, rows, 5, 0.9), 2)
    brier = score(kept, repeats.total(), "brier", squared_error, 1.0)
    log_score = score(kept, repeats.total(), "log_score", log_loss, -math.log(1e-6))
    parts_of_log = ("miscalibration", "discrimination", "uncertainty")
    shown = {name: value for name, value in log_score.items() if name not in parts_of_log} | brier
    assert_shown(stored_table(cells[3][1][0]), [shown], 3)


def test_each_number_of_the_notebook_of_scores_equals_a_plain_loop() -> None:
    """Counts, bins, scores by horizon and by series, and intervals of notebook 08."""
    cells = code_cells("08_how_good_are_these_forecasts.ipynb")
    space: dict[str, Any] = {}
    with warnings.catch_warnings():
        exec(cells[0][0], space)
    archive = space["archive"]
    binary = list(space["binary"]["market_id"].tolist())
    records = [one for one in archive.markets().to_dict("records") if one["market_id"] in {*binary}]
    assert cells[0][1] == [f"'{len(records)} markets of two tokens, columns that leak: []'"]
    rows = rows_of(archive.prices(binary, resolution="10m", on_missing="partial"), records)

    # Markets whose first token lost stay open.
    early = {one["market_id"] for one in records if one["resolved_token_id"] == one["token_ids"][0]}
    so_far = [row if row.market in early else row._replace(paid=None) for row in rows]
    kept, _ = counted(so_far, first_by_label(records))
    assert_shown(stored_table(cells[1][1][0]), curve(kept, so_far, 5), 2)

    end = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    ended = [one for one in records if one["end_date"] <= end]
    unpaid = sum(not isinstance(one["resolved_token_id"], str) for one in ended)
    assert cells[2][1] == [f"'{len(ended)} markets ended, {unpaid} of their tokens without a payoff'"]
    of_ended = {one["market_id"] for one in ended}
    rows, first = [row for row in rows if row.market in of_ended], first_by_record(ended)

    borders, want = [0, HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, math.inf], []
    for start, stop in itertools.pairwise(borders):
        part = [row for row in rows if row.left is not None and start <= row.left < stop]
        kept, repeats = counted(part, first)
        want.append(score(kept, repeats.total(), "brier", squared_error, 1.0) | {"horizon_start": start})
    assert_shown(stored_table(cells[3][1][0]), want, 3)

    kept, _ = counted([row for row in rows if row.left is not None and row.left >= 6 * HOUR], first)
    table = bins([row.forecast for row in kept], 10, 0.95)
    inside = sum(one["outcome_low"] <= one["forecast"] <= one["outcome_high"] for one in table)
    of_bin = [int(one["markets"]) for one in table]
    text = f"{inside} of {len(table)} intervals contain the mean price; {min(of_bin)} to {max(of_bin)} markets in a bin"
    assert cells[5][1] == [f"'{text}'"]

    series, want = {one["market_id"]: one["series_slug"] for one in ended}, []
    for name in sorted({*series.values()}):
        kept, repeats = counted([row for row in rows if series[row.market] == name], first)
        want.append({"series_slug": name} | score(kept, repeats.total(), "brier", squared_error, 1.0))
    assert_shown(stored_table(cells[6][1][0]), want, 3)

    few = {one["market_id"] for one in ended[:5]}
    kept, repeats = counted([row for row in rows if row.market in few], first)
    assert_shown(stored_table(cells[7][1][0]), [score(kept, repeats.total(), "brier", squared_error, 1.0)], 2)
