"""The numbers stored in the notebook of studies, by plain loops over its file."""

from __future__ import annotations

import ast
import datetime as dt
import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from reference.bootstrap import studentized
from reference.studies import Key, code_cells, counted_rows, in_thirds

NOTEBOOK = "10_from_a_recording_to_a_table.ipynb"
MINUTE = dt.timedelta(minutes=1)


def read(text: str) -> list[tuple[Any, ...]] | str:
    """The rows of a table of polars as text, or another value as it is."""
    if "│" not in text:
        return str(ast.literal_eval(text))
    _, *lines = (line for line in text.splitlines() if line.startswith("│"))
    rows = [[part.strip() for part in line.strip("│").split("┆")] for line in lines]
    return [tuple(_value(part) for part in row) for row in rows[2:]]  # after a line and the types of columns


def _value(text: str) -> Any:
    try:
        return None if text == "null" else ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def fee(price: float) -> float:
    """4 percent of price * (1 - price), rounded to 5 decimals."""
    return math.floor(0.04 * price * (1 - price) * 1e5 + 0.5 + 1e-7) / 1e5


def mid(bid: float | None, ask: float | None) -> float | None:
    return None if bid is None or ask is None else (bid + ask) / 2


def returns(quotes: dict[Key, list[float | None]]) -> dict[Key, tuple[str, float | None, float | None]]:
    """Status, move and net of a share bought a minute later and sold after five minutes, or up to two later."""
    out: dict[Key, tuple[str, float | None, float | None]] = {}
    for market, token, ts in sorted(quotes):
        bid, ask = quotes.get((market, token, ts + MINUTE), [None, None])
        times = (ts + minutes * MINUTE for minutes in (6, 7, 8))
        leave = next((quotes[market, token, time] for time in times if (market, token, time) in quotes), None)
        if ask is None:
            out[market, token, ts] = ("no_entry", None, None)
        elif leave is None:
            out[market, token, ts] = ("no_exit_book", None, None)
        else:
            before, after, paid = mid(bid, ask), mid(*leave), leave[0]
            move = None if before is None or after is None else after - before
            net = None if paid is None else paid - ask - fee(ask) - fee(paid)
            out[market, token, ts] = ("no_exit_bid" if net is None else "exit", move, net)
    return out


def mean_and_interval(rows: list[tuple[str, float | None]]) -> tuple[float, float, float]:
    """The mean of (market, value) rows, and its interval over markets."""
    by_market = defaultdict(list)
    for market, value in rows:
        if value is not None:
            by_market[market].append(value)
    sums = [(sum(values), len(values)) for _, values in sorted(by_market.items())]
    low, high = studentized(sums, 0, 0.95, 1000)
    return sum(total for total, _ in sums) / sum(count for _, count in sums), low, high


@pytest.mark.docs
def test_each_number_of_the_notebook_equals_a_plain_loop() -> None:
    """Counts, means and intervals that the notebook stores come from its file without the package."""
    (first, _), *cells = code_cells(NOTEBOOK)
    space: dict[str, Any] = {}
    exec(first, space)
    frame = pl.read_parquet(space["path"]).with_columns(pl.col("market_id", "token_id", "token_label").cast(pl.String))
    quotes: dict[Key, list[float | None]] = {}
    shares: dict[Key, list[float]] = {}
    labels = {}
    for ts, market, token, label, side, level, price, size in frame.rows():
        key, place = (market, token, ts), 0 if side == "bid" else 1
        labels[market, token] = label
        quote, depth = quotes.setdefault(key, [None, None]), shares.setdefault(key, [0.0, 0.0])
        quote[place] = price if level == 0 else quote[place]
        depth[place] += size or 0.0
    results = returns(quotes)
    counted = {key: results[key] for key in counted_rows([*results], labels)}

    stored: list[Any] = [read(texts[0]) if texts else None for _, texts in cells]
    assert stored[0] == f"{len({market for market, _ in labels})} markets, {len(frame):,} rows of books"
    assert dict(stored[1]) == Counter(status for status, _, _ in results.values())
    first_token = next(iter(results))[:2]
    assert stored[2] == f"0 of {sum(key[:2] == first_token for key in results)} rows differ from a loop"

    net = [(market, net) for (market, _, _), (_, _, net) in counted.items()]
    per_market = Counter(market for market, value in net if value is not None)
    effective = per_market.total() ** 2 / sum(n * n for n in per_market.values())
    want = (effective, *mean_and_interval(net))
    assert stored[3] == [(len(per_market), per_market.total(), *(round(value, 4) for value in want))]

    present = [key for key, (bid, ask) in shares.items() if bid and ask and key in results]
    both = {key: shares[key] for key in counted_rows(present, labels)}
    table = []
    for number, keys in enumerate(in_thirds({key: (bid - ask) / (bid + ask) for key, (bid, ask) in both.items()})):
        gross = mean_and_interval([(key[0], results[key][1]) for key in keys])
        missing = sum(results[key][0].startswith("no_exit") for key in keys)
        table.append((number + 1, len(keys), len({key[0] for key in keys}), missing, *(round(v, 4) for v in gross)))
    assert stored[4][:3] == table
    assert stored[4][3][0] is None
    assert stored[4][3][4] == pytest.approx(table[2][4] - table[0][4], abs=1e-4)

    moved = {key: move for key, (_, move, _) in results.items() if move is not None}
    noise = dict(zip(moved, np.random.default_rng(0).normal(0, 0.02, len(moved)).tolist(), strict=True))
    best = []
    for signal in (noise, {key: move + noise[key] for key, move in moved.items()}):
        keys = in_thirds({key: signal[key] for key in counted_rows([*signal], labels)})[-1]
        _, low, high = mean_and_interval([(key[0], results[key][1]) for key in keys])
        best.append((round(low, 4), round(high, 4)))
    assert stored[7] == [(name, *ends) for name, ends in zip(("luck", "planted"), best, strict=True)]
