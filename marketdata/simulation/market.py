"""A simulated market: its price path, and observations of it as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Floats, Series, Token, Trades, joined
from marketdata.simulation import order_books, price_process
from marketdata.simulation.price_process import PricePath
from marketdata.simulation.prints import draw_accounts, draw_prints
from marketdata.simulation.universe import MarketSpec
from marketdata.times import MINUTE, to_micros, to_text

END = to_micros("2026-01-01", "END")
_CHUNK_LEVELS = 4_000_000  # levels in memory at a time
_SPARSE_STEP = 60  # minutes between two observations of a market of very many tokens


class SimulatedMarket(NamedTuple):
    """Price path and volume of one market; books are drawn from them."""

    spec: MarketSpec
    path: PricePath
    volume: Floats

    def record_fields(self) -> dict[str, str | float | None]:
        """Dates, status and outcome, as fields of its record."""
        ts, winner = self.path.ts, self.path.winner
        over = winner is not None
        last = int(ts[-1]) + MINUTE
        return {
            "status": "resolved" if over else "active",
            "start_date": to_text(int(ts[0])),
            "end_date": to_text(last if over else END + 10 * 1440 * MINUTE),
            "closed_at": to_text(last) if over else None,
            "resolved_token_id": None if winner is None else self.spec.token_ids[winner],
            "resolved_token_label": None if winner is None else self.spec.labels[winner],
            "tick_size": order_books.FINE / order_books.UNIT if over else order_books.COARSE / order_books.UNIT,
        }


class Observations(NamedTuple):
    """Books, prices, metrics and trades of a market in an interval."""

    books: Books
    prices: Series
    metrics: Series
    trades: Trades


def simulate_market(spec: MarketSpec, minutes: int) -> SimulatedMarket:
    """A market over the last ``minutes`` before ``END``; the key of the spec seeds it."""
    rng = _rng(spec, 0)
    tokens, turn = len(spec.labels), sum(spec.key[1:]) % 3
    ts = END - (minutes - np.arange(minutes, dtype=np.int64)) * MINUTE
    first = int(minutes * 0.2) if turn == 2 else 0
    last = minutes
    if turn != 1:
        last = max(first + 1, int(minutes * rng.uniform(*((0.95, 0.99) if turn == 0 else (0.7, 0.9)))))
    # Below 1 the market has not resolved at the end.
    final_information = rng.uniform(0.4, 0.7) if turn == 1 else 1.0
    favourite = 1.5 / tokens if tokens > 2 else rng.uniform(0.35, 0.65)
    path = price_process.simulate_path(rng, ts[first:last], tokens, favourite, final_information)
    volume = price_process.cumulative_volume(rng, path, float(np.exp(rng.normal(4.0, 1.0))))
    observed = price_process.observed_minutes(rng, path.ts, missing=0.012)
    if tokens > 3:
        on_grid = np.arange(len(path.ts)) % _SPARSE_STEP == 0
        on_grid[-1] = True
        observed &= on_grid
    return SimulatedMarket(spec, path.select(observed), volume[observed])


def observe(market: SimulatedMarket, levels: int) -> Iterator[Observations]:
    """Observations of a market, interval after interval, each in tidy order."""
    rng = _rng(market.spec, 1)
    profile = order_books.size_profile(rng)
    tick = np.stack([order_books.ticks(column) for column in market.path.probability.T], axis=1)
    size = max(1440, _CHUNK_LEVELS // (2 * levels * max(1, len(market.spec.labels) - 1)))
    for first in range(0, len(market.path.ts), size):
        cut = slice(first, first + size)
        part = SimulatedMarket(market.spec, market.path.select(cut), market.volume[cut])
        yield _observations(rng, part, tick[cut], profile, levels)


def _rng(spec: MarketSpec, part: int) -> np.random.Generator:
    return np.random.default_rng([*spec.key, part])


def _observations(
    rng: np.random.Generator, market: SimulatedMarket, tick: NDArray[np.int32], profile: Floats, levels: int
) -> Observations:
    path, count, minutes = market.path, len(market.spec.labels), len(market.path.ts)
    drawn = 1 if count == 2 else count
    levels = levels if count <= 3 else min(levels, 3)
    probability, ticks = path.probability[:, :drawn].T.reshape(-1), tick[:, :drawn].T.reshape(-1)
    remaining, activity = (np.tile(values, drawn) for values in (1.0 - path.clock, path.activity))
    book = order_books.build(rng, probability, ticks, remaining, activity, profile, levels)
    parts = [book.select(np.arange(t * minutes, (t + 1) * minutes)) for t in range(drawn)]
    if count == 2:
        parts.append(book.mirrored())
    value, spread = sum(part.resting_value() for part in parts), parts[0].spread()
    order = sorted(range(count), key=lambda i: market.spec.token_ids[i])
    tokens = tuple(market.spec.tokens[i] for i in order)
    kept = rng.random((count, minutes)) >= 0.004
    kept[:, [0, -1]] = True
    books = [parts[i].select(kept[i]).columns(tokens[at], path.ts[kept[i]]) for at, i in enumerate(order)]
    polled = rng.random(minutes) >= 0.01
    polled[[0, -1]] = True
    values = {"volume": market.volume, "liquidity": np.asarray(value), "spread": spread}
    metrics = Series((Token(market.spec.market_id),), np.array([0, minutes]), path.ts, values)
    prices, whole = _prices(rng, path, tokens, order), joined(books)
    # Prints have a generator of their own, so that what else is drawn stays the same.
    name, of_prints = f"{market.spec.market_id}-{path.ts[0]}", _rng(market.spec, 3 + int(path.ts[0] // MINUTE))
    prints = draw_prints(of_prints, whole, name, draw_accounts(_rng(market.spec, 2)))
    return Observations(whole, prices, metrics.take(np.flatnonzero(polled)), prints)


def _prices(rng: np.random.Generator, path: PricePath, tokens: tuple[Token, ...], order: list[int]) -> Series:
    """Prices near the probability; now and then one token deviates for minutes, as under thin trading."""
    minutes = len(path.ts)
    shape = (len(order), minutes)
    price = path.probability.T[order] + rng.normal(0.0, 0.001, shape) * np.sqrt(1.0 - path.clock)
    thin = (rng.random(minutes) < 4e-4).astype(np.float64)
    off = np.asarray(np.convolve(thin, np.ones(6))[:minutes] * rng.uniform(-0.3, 0.4), np.float64)
    off[-1] = 0.0
    price[-1] += off
    price = np.asarray(np.round(np.clip(price, 0.0, 1.0), 4), np.float64)
    kept = rng.random(shape) >= 0.02
    kept[:, [0, -1]] = True
    minute = np.nonzero(kept)[1]
    bounds = np.append(0, np.cumsum(kept.sum(axis=1)))
    return Series(tokens, bounds, path.ts[minute], {"price": price[kept]})
