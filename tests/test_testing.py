"""The test kit for users: strategies, fixtures, and what happens without their packages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given

import marketdata as md
from marketdata.testing import strategies

VIEWS = {"books": strategies.book_frames, "prices": strategies.price_frames, "metrics": strategies.metric_frames}


@pytest.mark.parametrize("frame", ["pandas", "polars"])
@pytest.mark.parametrize("view", VIEWS)
def test_drawn_frames_are_tidy(view: str, frame: str) -> None:
    """A drawn frame is of the kind asked for and passes where frames of the client pass."""

    @given(VIEWS[view](frame))
    def holds(drawn) -> None:
        assert type(drawn).__module__.partition(".")[0] == frame
        assert md.resample(drawn, "1d").columns[0] == "ts"

    holds()


@pytest.mark.parametrize("view", VIEWS)
def test_drawn_pages_are_read(view: str) -> None:
    """A drawn page follows the interface: it is read whole, point by point."""

    @given(strategies.pages(view))
    def holds(page) -> None:
        frame = md.read_pages(view, [page], frame="polars")
        assert set(frame["market_id"]) <= {"0xm"}

    holds()


def test_a_local_service_is_one_fixture_away(local_client, local_archive) -> None:
    """The client of the fixture reads what the archive of the fixture holds."""
    market = local_archive.records("markets")[0]["slug"]
    span = ("2025-12-31", "2026-01-01", "6h")
    assert local_client.prices(market, *span).equals(local_archive.prices(market, *span, on_missing="partial"))


def test_the_fixtures_are_asked_for_by_name_only(tmp_path) -> None:
    """A project that does not name the plugin has no fixture of ours."""
    (tmp_path / "test_it.py").write_text("def test_it(local_service): pass\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    without = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "fixture 'local_service' not found" in without.stdout
    named = subprocess.run([*words, "-p", "marketdata.testing.fixtures"], check=False, cwd=tmp_path)
    assert named.returncode == 0


def test_a_missing_hypothesis_is_named() -> None:
    """Without hypothesis the kit imports, and its strategies say what to install."""
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import marketdata.testing\n"
        "try:\n    import marketdata.testing.strategies\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install hypothesis" in done.stdout
