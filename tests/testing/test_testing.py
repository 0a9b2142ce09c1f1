"""The test kit for users: strategies, fixtures, and the message without hypothesis."""

from __future__ import annotations

import importlib
import sys

import pytest
from hypothesis import given

import marketdata as md
from marketdata.testing import strategies

VIEWS = {"books": strategies.book_frames, "prices": strategies.price_frames, "metrics": strategies.metric_frames}


@pytest.mark.parametrize("frame", ["pandas", "polars"])
@pytest.mark.parametrize("view", VIEWS)
def test_drawn_frames_are_tidy(view: str, frame: str) -> None:
    """A drawn frame belongs to the requested library, and functions accept it."""

    @given(VIEWS[view](frame))
    def check(drawn) -> None:
        assert type(drawn).__module__.partition(".")[0] == frame
        assert md.resample(drawn, "1d").columns[0] == "ts"

    check()


@pytest.mark.parametrize("view", VIEWS)
def test_drawn_pages_are_read(view: str) -> None:
    """A drawn page follows the interface."""

    @given(strategies.pages(view))
    def check(page) -> None:
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
