"""Recorded data over the service: what the archive holds, which its own tests compare with loops in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import marketdata as md
from marketdata.archive import Archive
from marketdata.points.views import INTERFACE_VIEWS

RANGE = ("2025-12-01", "2026-07-01")


@pytest.fixture(scope="module")
def service(recorded_archive: Archive) -> Iterator[Any]:
    with md.serve(recorded_archive) as running:
        yield running


def compare(service: Any, archive: Archive, view: str, resolution: str, kind: Any, every: int) -> None:
    """A share of the markets by the client and from the archive are equal."""
    coverage = Archive(archive.location, frame="polars").coverage().filter(view=view)
    markets = coverage["market_id"].unique().sort().to_list()[::every]
    with md.Client(service.base_url, service.api_key, frame=kind) as client:
        received = getattr(client, view)(markets, *RANGE, resolution)
    stored = getattr(Archive(archive.location, frame=kind), view)(markets, *RANGE, resolution, on_missing="partial")
    assert len(received)
    assert received.equals(stored)


@pytest.mark.parametrize("view", INTERFACE_VIEWS)
def test_recorded_rows_arrive(service: Any, recorded_archive: Archive, view: str) -> None:
    """A few markets at coarse and at fine resolutions: the rows of the archive, in order."""
    compare(service, recorded_archive, view, "1m", "polars", 300)
    compare(service, recorded_archive, view, "1d", "pandas", 80)


@pytest.mark.soak
@pytest.mark.parametrize("view", INTERFACE_VIEWS)
def test_every_recorded_row_arrives(service: Any, recorded_archive: Archive, view: str) -> None:
    """All rows of all markets at 1m: thousands of pages."""
    compare(service, recorded_archive, view, "1m", "polars", 1)
