"""Candles of Kalshi, with bids, asks, prices and volumes of Yes; their time is the end of the period."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from marketdata.adapters import frames
from marketdata.errors import ConfigError
from marketdata.points.columns import Series
from marketdata.recordings.format import Format
from marketdata.recordings.rows import converted, typed_rows
from marketdata.recordings.table import GIVEN_AGAIN, Batch, FileKind, Table
from marketdata.tidy.frames import to_frame
from marketdata.times import DAY, MINUTE
from marketdata.wire import kalshi

_CELL = re.compile(r"(yes_bid|yes_ask|price)[._](open|high|low|close|mean|previous)(_dollars)?")
_WIDTHS = (DAY, 60 * MINUTE, MINUTE)


def proves(table: Table) -> bool | None:
    """Candles with the end of their period, nested or flat."""
    names = set(table.file.columns)
    is_candle = names & {"yes_bid", "yes_ask", "price"} or any(map(_CELL.fullmatch, names))
    return True if "end_period_ts" in names and is_candle and "market_id" in table.columns else None


def read(table: Table) -> Iterator[Batch]:
    """Prices, quotes and metrics at the start of each period."""
    market = table.columns["market_id"]
    by_ticker: dict[str, list[dict[str, Any]]] = {}
    answer, no_rows = typed_rows(table.file)
    batch = Batch(rows=len(answer) + no_rows)
    batch.left_out["damaged"] += no_rows
    for row in answer:
        by_ticker.setdefault(str(row.get(market)), []).append(_nested(row))
    for ticker, rows in by_ticker.items():
        by_end = {str(row.get("end_period_ts")): row for row in rows}
        batch.left_out[GIVEN_AGAIN] += len(rows) - len(by_end)
        by_ticker[ticker] = [*by_end.values()]
    found: dict[FileKind, list[Series]] = {"prices": [], "quotes": [], "metrics": []}
    for ticker, rows in by_ticker.items():
        parts, bad = converted(rows, kalshi.candles)
        batch.left_out["damaged"] += bad
        batch.markets.append(kalshi.market({"ticker": ticker}))
        ends = np.unique(np.concatenate([part.end for part in parts])) if parts else np.empty(0, np.int64)
        width = _width(ends, ticker, rows[0].get("period_interval"))
        for part in parts:
            found["prices"].append(part.prices(ticker, width))
            found["quotes"].append(part.quotes(ticker, width))
            found["metrics"].append(part.metrics(ticker, width))
    like = frames.new("polars")
    for kind, series in found.items():
        tables = [to_frame(part, like) for part in series]
        if tables:
            batch.frames[kind] = pl.concat(tables, how="diagonal_relaxed").unique(maintain_order=True)
    batch.left_out = +batch.left_out
    batch.notes.append("times are the start of each candle; prices are the mid of its last quote")
    yield batch


def _width(ends: Any, ticker: str, stated: Any) -> int:
    """The width of the candles [microseconds]: as stated in minutes, else the finest step between their ends."""
    if isinstance(stated, int):
        return stated * MINUTE
    if len(ends) > 1:
        step = int(np.diff(ends).min())
        return next((width for width in _WIDTHS if step % width == 0), step)
    raise ConfigError(f"has one candle of {ticker}, whose width is not known; a file needs two of a market.")


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its flat columns as the objects of an answer."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if match := _CELL.fullmatch(name):
            out.setdefault(match[1], {})[match[2] + (match[3] or "")] = value
        else:
            out[name] = value
    return out


FORMAT = Format(
    name="kalshi-candles",
    kind="prices",
    kinds=("quotes", "metrics"),
    description="candles of Kalshi with bids, asks, prices and volumes: prices are mids, times the start",
    needs=("end_ts market_id candle_bid candle_ask",),
    takes="candle_price token_id",
    read=read,
    proves=proves,
)
