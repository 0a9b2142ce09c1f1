"""Refusals of arguments, frames, files and answers that no other test meets: each says what is wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from reference.memory import MINUTE, MemoryArchive
from reference.web import START

import marketdata as md
from marketdata.errors import ConfigError, ContractError, MarketDataError, NotTidyError
from marketdata.fetch.checkpoint import Resume
from marketdata.wire import kalshi, polymarket, venues

BOOKS, PRICES, MARKETS = md.testing.books(), md.testing.prices(), md.testing.markets()
TRADES, OUTCOMES = md.testing.trades(), md.outcomes(md.testing.markets())
SIGNAL = PRICES.assign(signal=PRICES["price"])[["ts", "market_id", "token_id", "token_label", "signal"]]
S = 1_767_225_600  # 2026-01-01

FRAMES: list[tuple[Callable[[], Any], type[MarketDataError], str]] = [
    (lambda: md.concat([PRICES.set_index("ts")]), NotTidyError, "call frame.reset_index"),
    (lambda: md.concat([PRICES.assign(market_id=1.5)]), NotTidyError, "market_id"),
    (lambda: md.Fees.flat(0.01)("x", 1), ConfigError, "allowed are a number and an array"),
    (lambda: md.Fees.flat(0.01)([0.1, 0.2], [1, 2, 3]), ConfigError, "different shapes"),
    (lambda: md.study(BOOKS, SIGNAL.assign(more=1.0), "1m", fees=0), ConfigError, "allowed is one column of"),
    (lambda: md.study(BOOKS, [], "1m", fees=0), ConfigError, "is empty; allowed are a signal"),
    (lambda: md.study(BOOKS, SIGNAL, [], fees=0), ConfigError, "is empty; allowed are a horizon"),
    (lambda: md.cluster_mean(PRICES, "token_label"), ConfigError, "allowed is a column of numbers"),
    (lambda: md.cluster_mean(PRICES, "price", bounds=(0.9, 0.1)), ConfigError, "a pair of rising numbers"),
    (lambda: md.cluster_mean(PRICES, "price", bounds="ab"), ConfigError, "rising numbers, with no"),
    (lambda: md.measure(needs="top", units={}, null="")(type("", (), {"__call__": None})()), ConfigError, "no name"),
    (
        lambda: PRICES.md.brier(pd.concat([OUTCOMES, OUTCOMES.assign(payoff=1 - OUTCOMES["payoff"])])),
        NotTidyError,
        "two payoffs of token",
    ),
    (lambda: md.pnl(TRADES.assign(account="a", role="boss"), OUTCOMES, by="account"), NotTidyError, "role is 'boss'"),
    (lambda: md.skill(PRICES, OUTCOMES, reference=1.5), ConfigError, "allowed are numbers from 0 to 1"),
    (lambda: md.pair_spread({}, [BOOKS] * 3, fees=0), ConfigError, "has 3 frames"),
    (lambda: md.pairs(5, MARKETS), ConfigError, "A int is refused here"),
    (lambda: md.pairs([{"market_id": 5.5, "tokens": 7}], MARKETS), NotTidyError, "A record is not read"),
    (lambda: md.resample(PRICES, "1h", fill="x"), ConfigError, "fill"),
    (lambda: md.Archive("x").prices("m", "0000-01-01", "2026-01-01"), ConfigError, "year"),
    (lambda: md.read_pages("prices", [b"{}"]), ContractError, "Page 0: "),
]


@pytest.mark.parametrize(("call", "kind", "said"), FRAMES)
def test_a_frame_or_an_argument_is_refused(call: Callable[[], Any], kind: type[MarketDataError], said: str) -> None:
    """The error has its class, and says what was wrong."""
    with pytest.raises(kind) as caught:
        call()
    assert said in str(caught.value)


FILES: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    ("a.db", b"no database at all, but some text", {}, "is no SQLite file"),
    ("a.ndjson", '{"ts": 1}\n'.encode("utf-16"), {}, "is UTF-16"),
    ("a.csv", f"ts,token_id,price\n{S},1,.5\n", {"columns": ["ts"]}, "is no dict such as"),
    ("a.csv", f"ts,token_id,price\n{S},1,.5\n", {"clock": "nothing"}, "nothing"),
    ("a.csv", f"end_period_ts,token_id,open,high,low,close\n{S},1,.5,.5,.5,.5\n", {}, "width is not known"),
    ("a.csv", f"ts,token_id,price\n{S},1,.5\n{S},1,250\n{S},1,7.5\n", {}, "not all cents from 0 to 100"),
    ("a.csv", f"ts,token_id,best_bid,best_ask\n{S},1,.45,46\n{S},1,.44,47\n", {}, "different units"),
    ("a.csv", "ts,token_id,price\nnoon,1,.5\nlater,1,.6\n", {"columns": {"ts": "ts"}}, "name another column"),
    ("markets.ndjson", json.dumps({"question": "?", "status": "open"}) + "\n", {"format": "markets"}, "neither an id"),
]


@pytest.mark.parametrize(("name", "content", "options", "said"), FILES)
def test_a_file_is_refused(name: str, content: str | bytes, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The error says what the file lacks."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        md.Archive(tmp_path / "archive").add_files(path, **options)
    assert said in str(caught.value)
