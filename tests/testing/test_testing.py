"""The test kit for users: strategies, fixtures, and the message without hypothesis."""

from __future__ import annotations

import importlib
import sys

import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings

import marketdata as md
from marketdata.testing import strategies

VIEWS = {"books": strategies.book_frames, "prices": strategies.price_frames, "metrics": strategies.metric_frames}


@pytest.mark.parametrize("view", VIEWS)
def test_drawn_frames_are_tidy_and_drawn_pages_are_read(view: str) -> None:
    """A drawn frame belongs to the requested library, and functions accept it; a page follows the interface."""

    @settings(max_examples=4)
    @given(VIEWS[view]("pandas"), VIEWS[view]("polars"), strategies.pages(view))
    def check(panda, polar, page) -> None:
        assert isinstance(panda, pd.DataFrame)
        assert isinstance(polar, pl.DataFrame)
        assert all(md.resample(frame, "1d", width="1m").columns[0] == "ts" for frame in (panda, polar))
        assert set(md.read_pages(view, [page], frame="polars")["market_id"]) <= {"0xm"}

    check()


def test_the_fixtures_are_a_client_and_its_archive(local_client, local_archive) -> None:
    """The client of the fixture reads what the archive of the fixture has."""
    market = local_archive.records("markets")[0]["slug"]
    span = ("2025-12-31", "2026-01-01", "6h")
    assert local_client.prices(market, *span).equals(local_archive.prices(market, *span, on_missing="partial"))


def test_a_missing_hypothesis_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hypothesis the strategies say what to install."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "marketdata.testing.strategies")
    with pytest.raises(ModuleNotFoundError, match="pip install hypothesis"):
        importlib.import_module("marketdata.testing.strategies")
