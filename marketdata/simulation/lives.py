"""One market from its first minute to its last, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.simulation import ladders, paths
from marketdata.simulation.world import Plan
from marketdata.times import to_micros, to_text
from marketdata.wire.columns import BookColumns, Floats, Ints, MetricColumns, PriceColumns, Token

END = to_micros("2026-01-01", "END")
_CHUNK_LEVELS = 4_000_000  # levels held at a time
_WIDE_STEP = 60  # minutes between two looks at a market of very many tokens


@dataclass(frozen=True, slots=True)
class Life:
    """What happens in one market, before any book is drawn."""

    plan: Plan
    path: paths.Path
    volume: Floats

    def facts(self) -> dict[str, Any]:
        """Dates, status and outcome, as fields of the market's record."""
        ts, winner = self.path.ts, self.path.winner
        over = winner is not None
        last = int(ts[-1]) + paths.MINUTE
        return {
            "status": "resolved" if over else "active",
            "start_date": to_text(int(ts[0])),
            "end_date": to_text(last if over else END + 10 * 1440 * paths.MINUTE),
            "closed_at": to_text(last) if over else None,
            "resolved_token_id": None if winner is None else self.plan.token_ids[winner],
            "resolved_token_label": None if winner is None else self.plan.labels[winner],
            "tick_size": ladders.FINE / ladders.UNIT if over else ladders.COARSE / ladders.UNIT,
        }


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was observed of a market in one stretch of time."""

    books: BookColumns
    prices: PriceColumns
    metrics: MetricColumns


def live(plan: Plan, minutes: int) -> Life:
    """The path of a market over the last ``minutes`` before ``END``; the plan's key decides all chance."""
    rng = _rng(plan, 0)
    tokens, turn = len(plan.labels), sum(plan.key[1:]) % 3
    ts = END - (minutes - np.arange(minutes, dtype=np.int64)) * paths.MINUTE
    first = int(minutes * 0.2) if turn == 2 else 0
    last = (
        minutes
        if turn == 1
        else max(first + 1, int(minutes * rng.uniform(*((0.95, 0.99) if turn == 0 else (0.7, 0.9)))))
    )
    known = rng.uniform(0.4, 0.7) if turn == 1 else 1.0
    favourite = 1.5 / tokens if tokens > 2 else rng.uniform(0.35, 0.65)
    path = paths.walk(rng, ts[first:last], tokens, favourite=favourite, known_by_end=known)
    volume = paths.traded(rng, path, float(np.exp(rng.normal(4.0, 1.0))))
    seen = paths.holes(rng, path.ts, missing=0.012)
    if tokens > 3:
        late = len(path.ts) - 1
        seen &= (np.arange(len(path.ts)) % _WIDE_STEP == 0) | (np.arange(len(path.ts)) == late)
    return Life(plan, path.take(seen), volume[seen])


def observe(life: Life, levels: int) -> Iterator[Stretch]:
    """Books, prices and metrics of a market, stretch by stretch in time order, each in tidy order."""
    rng = _rng(life.plan, 1)
    wall, tick = ladders.walls(rng), _ticks(life.path.probability)
    size = max(1440, _CHUNK_LEVELS // (2 * levels * max(1, len(life.plan.labels) - 1)))
    for first in range(0, len(life.path.ts), size):
        cut = slice(first, first + size)
        piece = Life(life.plan, life.path.take(np.arange(len(life.path.ts))[cut]), life.volume[cut])
        yield _stretch(rng, piece, tick[cut], wall, levels)


def _rng(plan: Plan, part: int) -> np.random.Generator:
    return np.random.default_rng([*plan.key, part])


def _ticks(probability: Floats) -> NDArray[np.int32]:
    return np.stack([ladders.ticks(column) for column in probability.T], axis=1)


def _stretch(rng: np.random.Generator, life: Life, tick: NDArray[np.int32], wall: Floats, levels: int) -> Stretch:
    path, count = life.path, len(life.plan.labels)
    drawn = 1 if count == 2 else count
    levels = levels if count <= 3 else min(levels, 3)
    left, minutes = 1.0 - path.clock, len(path.ts)
    book = ladders.build(
        rng,
        path.probability[:, :drawn].T.reshape(-1),
        tick[:, :drawn].T.reshape(-1),
        np.tile(left, drawn),
        np.tile(path.activity, drawn),
        wall,
        levels,
    )
    parts = [book.take(np.arange(t * minutes, (t + 1) * minutes)) for t in range(drawn)]
    if count == 2:
        parts.append(book.mirrored())
    value, spread = sum(part.value() for part in parts), parts[0].spread()
    order = sorted(range(count), key=lambda i: life.plan.token_ids[i])
    tokens = tuple(life.plan.tokens[i] for i in order)
    kept = rng.random((count, minutes)) >= 0.004
    kept[:, [0, -1]] = True
    books = [
        parts[i].take(kept[i]).columns((tokens[at],), np.zeros(kept[i].sum(), np.int32), path.ts[kept[i]])
        for at, i in enumerate(order)
    ]
    polled = rng.random(minutes) >= 0.01
    polled[[0, -1]] = True
    values = {"volume": life.volume, "liquidity": np.asarray(value), "spread": spread}
    metrics = MetricColumns((Token(life.plan.market_id),), np.zeros(minutes, np.int32), path.ts, values)
    return Stretch(_join(books, tokens), _prices(rng, path, tokens, order), metrics.take(np.flatnonzero(polled)))


def _join(books: list[BookColumns], tokens: tuple[Token, ...]) -> BookColumns:
    token = np.repeat(np.arange(len(books), dtype=np.int32), [len(b) for b in books])
    ts: Ints = np.concatenate([b.ts for b in books])
    return BookColumns(
        tokens, token, ts, np.concatenate([b.counts for b in books]), np.concatenate([b.levels for b in books])
    )


def _prices(rng: np.random.Generator, path: paths.Path, tokens: tuple[Token, ...], order: list[int]) -> PriceColumns:
    """Prices near the probability; now and then one token is off for minutes, as thin trading makes it."""
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
    token, minute = np.nonzero(kept)
    return PriceColumns(tokens, token.astype(np.int32), path.ts[minute], price[kept])
