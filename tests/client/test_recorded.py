"""Recorded data over the service: what the archive holds, which its own tests compare with loops in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from archive.recorded_ranges import ASKED

import marketdata as md
from marketdata.archive import Archive
from marketdata.points.views import VIEWS

RANGE = ("2025-12-01", "2026-07-01")


@pytest.fixture(scope="module")
def service(recorded_archive: Archive) -> Iterator[Any]:
    with md.serve(recorded_archive) as running:
        yield running


def compare(service: Any, archive: Archive, view: str, resolution: str, kind: Any, every: int) -> None:
    held = (
        Archive(archive.location, frame="polars")
        .coverage()
        .filter(pl.col("view") == view)["market_id"]
        .unique()
        .sort()
        .to_list()
    )
    with md.Client(service.base_url, service.api_key, frame=kind) as client:
        got = getattr(client, view)(held[::every], *RANGE, resolution)
    want = getattr(Archive(archive.location, frame=kind), view)(held[::every], *RANGE, resolution, on_missing="partial")
    assert len(got)
    assert got.equals(want)


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
@pytest.mark.parametrize("view", VIEWS)
def test_recorded_rows_arrive(service: Any, recorded_archive: Archive, view: str, resolution: str, kind: Any) -> None:
    """Each sixth market at coarse resolutions, each twentieth at fine ones: the rows of the archive, in order."""
    compare(service, recorded_archive, view, resolution, kind, 20 if resolution in ("1m", "10m") else 6)


@pytest.mark.soak
@pytest.mark.parametrize("view", VIEWS)
def test_every_recorded_row_arrives(service: Any, recorded_archive: Archive, view: str) -> None:
    """All rows of all markets at 1m: thousands of pages."""
    compare(service, recorded_archive, view, "1m", "polars", 1)
