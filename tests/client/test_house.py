"""The main test: what the service answers at a coarse resolution is what its 1m answers resample to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals as nw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.house import MARKET, fill
from reference.kinds import close, rows
from reference.memory import MINUTE, MemoryArchive

import marketdata as md
from marketdata.testing.strategies import START, book_columns, metric_columns, price_columns
from marketdata.times import to_text

# By chance, all drawn points may be on a coarse grid.
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.UnweightedMeanWarning")
COARSE = st.sampled_from(["1m", "10m", "1h", "6h", "1d"])


@pytest.fixture(scope="module")
def house() -> Iterator[tuple[MemoryArchive, Any]]:
    """One running service over an archive whose content each example replaces."""
    archive = MemoryArchive()
    with md.serve(archive, requests_per_minute=10_000_000) as service:
        yield archive, service


def plain(frame: Any) -> list[tuple[Any, ...]]:
    """Rows without the counts that resampling adds."""
    data = nw.from_native(frame)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    return rows(data.select([c for c in data.columns if not c.endswith("_count")]).to_native())


@pytest.mark.parametrize("view", ["books", "prices", "metrics"])
@settings(max_examples=settings.get_profile("house").max_examples // 4)
@given(data=st.data())
def test_coarse_answers_are_the_fine_ones_resampled(
    house: tuple[MemoryArchive, Any], view: str, data: st.DataObject
) -> None:
    """Any view, frame kind, page limit and cut of the range: both ways give the same rows."""
    archive, service = house
    kind = data.draw(st.sampled_from(["pandas", "polars", "lazy", "arrow"]))
    columns = data.draw({"books": book_columns, "prices": price_columns, "metrics": metric_columns}[view]())
    fill(archive, view, columns)
    start = START + data.draw(st.integers(-100, 2000)) * MINUTE
    end = start + data.draw(st.integers(1, 4000)) * MINUTE
    limit = data.draw(st.sampled_from([4, 5, 17, 200]))
    resolution = data.draw(COARSE)
    client = md.Client(
        service.base_url, service.api_key, frame="pandas" if kind == "pandas" else "polars", page_limit=limit
    )
    fetch = getattr(client, view)
    fine = fetch(MARKET, to_text(start), to_text(end), "1m")
    coarse = fetch(MARKET, to_text(start), to_text(end), resolution)
    turned = fine.lazy() if kind == "lazy" else fine.to_arrow() if kind == "arrow" else fine
    derived = md.resample(turned, resolution)
    assert close(plain(derived), plain(coarse))
    if view == "books":
        assert len({row[:4] for row in rows(fine)}) == len(columns.between(start, end))
    pieces = list(getattr(client, f"iter_{view}")(MARKET, to_text(start), to_text(end), resolution))
    assert [row for piece in pieces for row in rows(piece)] == rows(coarse)
