"""Recorded data through archive, service and client, every row against loops in plain Python."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from archive.test_recorded import RECORDED_METRICS, WIDTHS, coarser_books, means, minutes_of, minutes_of_books

import marketdata as md
from marketdata.archive import Archive

KINDS = ["pandas", "polars"]
# Each resolution once, in the libraries by turns: which rows come does not depend on the library.
ASKED = [(r, KINDS[(k + 1) % 2]) for k, r in enumerate(WIDTHS)]
RANGE = ("2025-12-01", "2026-07-01")


@pytest.fixture(scope="module")
def service(recorded_archive: Archive) -> Iterator[Any]:
    with md.serve(recorded_archive) as running:
        yield running


@pytest.fixture(scope="module")
def market_of(recorded: Path) -> dict[str, str]:
    """The market of each recorded token."""
    markets = pl.read_parquet(recorded / "markets.parquet")
    rows = markets.select("market_id", "token_ids").explode("token_ids").drop_nulls()
    return dict(zip(rows["token_ids"], rows["market_id"], strict=True))


@pytest.fixture(scope="module")
def oracle(recorded: Path) -> dict[str, Any]:
    """The recorded rows reduced to minutes by loops."""
    metrics = pl.read_parquet(recorded / "metrics.parquet")
    return {
        "books": minutes_of_books(pl.read_parquet(recorded / "books.parquet")),
        "prices": minutes_of(pl.read_parquet(recorded / "prices.parquet").select("token_id", "ts", "price")),
        "metrics": {name: minutes_of(metrics.select("market_id", "ts", name)) for name in RECORDED_METRICS},
    }


def columns(frame: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of these columns as plain values; null is None."""
    data = nw.from_native(frame, eager_only=True)
    texts = [c for c in names if not data[c].dtype.is_numeric() and c != "ts"]
    data = data.with_columns(nw.col(*texts).cast(nw.String)) if texts else data
    lists = [data[c].to_list() for c in names]
    plain = [[None if v is None or str(v) in ("<NA>", "nan") else v for v in values] for values in lists]
    return zip(*plain, strict=True)


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
def test_every_recorded_book_arrives(
    service: Any, oracle: dict[str, Any], market_of: dict[str, str], resolution: str, kind: Any
) -> None:
    """Websocket, sampled and polled markets: each level of each last book, one-sided ones and 77-digit ids intact."""
    want = coarser_books(oracle["books"], WIDTHS[resolution])
    markets = sorted({market_of[token] for token, _ in want})
    assert len(markets) == 67
    frame = md.Client(service.base_url, service.api_key, frame=kind).books(markets, *RANGE, resolution)
    got = defaultdict(list)
    for token, ts, side, level, price, size in columns(frame, "token_id", "ts", "side", "level", "price", "size"):
        got[token, ts].append((side, level, price, size))
    assert got.keys() == want.keys()
    for key, rows in want.items():
        assert sorted(got[key], key=str) == sorted(rows, key=str), key
    pairs = set(columns(frame, "market_id", "token_id"))
    assert pairs == {(market_of[token], token) for token, _ in want}


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
def test_every_recorded_price_arrives(
    service: Any, oracle: dict[str, Any], market_of: dict[str, str], resolution: str, kind: Any
) -> None:
    """280 tokens: each bucket with points has the mean of its 1m means, and no other bucket is there."""
    want = means(oracle["prices"], WIDTHS[resolution])
    markets = sorted({market_of[token] for token, _ in want})
    frame = md.Client(service.base_url, service.api_key, frame=kind).prices(markets, *RANGE, resolution)
    got = {(token, ts): price for token, ts, price in columns(frame, "token_id", "ts", "price")}
    assert len(frame) == len(got)
    assert len({token for token, _ in got}) == 280
    assert got.keys() == want.keys()
    assert all(math.isclose(got[key], value, rel_tol=1e-12) for key, value in want.items())


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
def test_every_recorded_metric_arrives(service: Any, oracle: dict[str, Any], resolution: str, kind: Any) -> None:
    """77 markets: every metric is averaged, further ones become columns, and spread, not recorded, is null."""
    markets = sorted({market for market, _ in oracle["metrics"]["volume"]})
    assert len(markets) == 77
    frame = md.Client(service.base_url, service.api_key, frame=kind).metrics(markets, *RANGE, resolution)
    assert {spread for (spread,) in columns(frame, "spread")} == {None}
    for name in RECORDED_METRICS:
        want = means(oracle["metrics"][name], WIDTHS[resolution])
        got = {(market, ts): value for market, ts, value in columns(frame, "market_id", "ts", name)}
        assert got.keys() == want.keys()
        assert all(math.isclose(got[key], value, rel_tol=1e-12) for key, value in want.items())


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_minutes_resample_to_what_the_service_answers(
    service: Any, oracle: dict[str, Any], market_of: dict[str, str], kind: Any
) -> None:
    """On real data too, 1m books resampled are the service's coarser books, row for row."""
    markets = sorted({market_of[token] for token, _ in oracle["books"]})
    client = md.Client(service.base_url, service.api_key, frame=kind)
    fine = client.books(markets, *RANGE, "1m")
    for resolution in ("10m", "1h", "6h", "1d"):
        assert fine.md.resample(resolution).equals(client.books(markets, *RANGE, resolution))
