"""Buckets without data, filled only on request: every row against a plain walk."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, close, of_kind, rows

import marketdata as md
from marketdata.resolution import Resolution
from marketdata.testing.strategies import book_columns, metric_columns, price_columns
from marketdata.tidy.frames import to_frame

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.UnweightedMeanWarning")
fills = st.sampled_from(["null", "forward"])
# Drawn times may lie far apart: finer grids would have millions of rows.
resolutions = st.sampled_from([Resolution.H1, Resolution.H6, Resolution.D1])
Rows = list[tuple[Any, ...]]


def on_grid(plain: Rows, ids: int, width: int, fill: str, counts: list[int]) -> Rows:
    """Brute force: each token's groups of rows, bucket after bucket, with what stands in a hole."""
    groups: dict[Any, dict[int, Rows]] = {}
    for row in plain:
        groups.setdefault(row[1 : 1 + ids], {}).setdefault(row[0], []).append(row)
    stamps = [row[0] for row in plain]
    out: Rows = []
    for who, of in groups.items():
        last: Rows = []
        for ts in range(min(stamps), max(stamps) + 1, width) if stamps else ():
            here = of.get(ts, last if fill == "forward" else [])
            last = here
            values = [row[1 + ids :] for row in here]
            if not values:
                books = isinstance(plain[0][1 + ids], str)
                values = [(side, None, None, None) for side in ("bid", "ask")] if books else [(None,) * len(plain[0])]
            for value in values:
                row = [ts, *who, *value][: len(plain[0])]
                if ts not in of:
                    row = [0 if k in counts else v for k, v in enumerate(row)]
                out.append((*row, ts in of))
    return out


@given(
    kind=st.sampled_from(KINDS),
    columns=st.one_of(book_columns(), price_columns(), metric_columns()),
    resolution=resolutions,
    fill=fills,
)
def test_filled_buckets_equal_a_plain_walk_and_are_marked(
    kind: str, columns: Any, resolution: Resolution, fill: str
) -> None:
    """With a fill each token has every bucket: null or the whole bucket before, never observed, and without weight."""
    plain = md.resample(to_frame(columns, "polars"), str(resolution))
    ids = 3 if "token_id" in plain.columns else 1
    counts = [k for k, name in enumerate(plain.columns) if name.endswith("_count")]
    want = on_grid(rows(plain), ids, resolution.micros, fill, counts)
    out = md.resample(of_kind(columns, kind), str(resolution), fill=fill)
    assert type(out) is type(of_kind(columns, kind))
    assert close(rows(out), want)


@given(columns=price_columns(), fill=fills)
def test_what_was_filled_in_has_no_weight_in_later_means(columns: Any, fill: str) -> None:
    """Days made of filled hours are the days made of the hours that were observed."""
    frame = to_frame(columns, "polars")
    hours = md.resample(frame, "1h", fill=fill).drop("observed")
    direct = md.resample(frame, "1d")
    by_way = md.resample(hours, "1d").filter(pl.col("price_count") > 0)
    direct = direct.filter(pl.col("price_count") > 0)
    assert by_way["price"].to_list() == pytest.approx(direct["price"].to_list(), rel=1e-12, abs=1e-15)
    assert by_way["price_count"].to_list() == direct["price_count"].to_list()


def test_nothing_is_filled_unless_asked_and_an_unknown_fill_is_refused() -> None:
    """Without a fill no row is made; a fill that does not exist, or a frame elsewhere, has an error that says so."""
    stamps = pl.Series(["2026-01-01T00:00", "2026-01-01T03:00"]).str.to_datetime(time_zone="UTC")
    prices = pl.DataFrame({"ts": stamps, "market_id": "m", "token_id": "1", "token_label": "Y", "price": [0.25, 0.5]})
    assert prices.pipe(md.resample, "1h")["price"].to_list() == [0.25, 0.5]
    assert md.Accessor(prices).resample("1h", fill="null")["price"].to_list() == [0.25, None, None, 0.5]
    with pytest.raises(md.ConfigError, match="'null' and 'forward'"):
        md.resample(prices, "1h", fill="zero")
    duckdb = pytest.importorskip("duckdb")
    with pytest.raises(md.ConfigError, match="pandas, polars or Arrow"):
        md.resample(duckdb.sql("SELECT * FROM prices"), "1h", fill="null")
