"""Each view has its place in client, archive, samples and docs, and each column is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import marketdata as md
from marketdata import testing
from marketdata.points import schema
from marketdata.points.records import COLUMNS, RECORD_KINDS
from marketdata.points.views import VIEWS, empty, view_of
from marketdata.testing import strategies

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("view", VIEWS)
def test_every_public_place_has_the_view(view: str, local_client: md.Client, local_archive: md.Archive) -> None:
    """Client, archive, service, schema, samples, strategies and the page of numbers know each view."""
    headings = re.findall(r"(?m)^## (\w+)$", (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8").lower())
    assert not VIEWS[view].in_interface or {view, f"iter_{view}"} <= set(dir(md.Client))
    assert view in dir(md.Archive)
    assert view in md.Archive.add.__annotations__
    assert view in schema.COLUMNS
    assert view in testing.__all__
    assert f"{view[:-1]}_frames" in dir(strategies)
    assert view in headings
    assert view_of(empty(view)) == view
    market = local_archive.records("markets")[0]["id"]
    assert len(getattr(local_archive, view)(market, resolution="1d"))
    assert VIEWS[view].is_grid or len(getattr(local_archive, view)(market)) > 1
    if VIEWS[view].in_interface:
        assert len(getattr(local_client, view)(market, "2025-12-31", "2026-01-01", "1d"))


def test_every_column_is_explained() -> None:
    """Each column of a tidy frame has its line on the page of numbers, and of a listing its word in the docstring."""
    page = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [c for columns in schema.COLUMNS.values() for c in columns if f"`{c}`" not in cells] == []
    for kind in RECORD_KINDS:
        for owner in (md.Client, md.Archive):
            words = set(re.findall(r"\w+", getattr(owner, kind).__doc__))
            assert [name for name in COLUMNS[kind] if name not in words] == []
