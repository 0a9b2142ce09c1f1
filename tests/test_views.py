"""A view is a kind of history; each test names the public place that lacks one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import marketdata as md
from marketdata import testing
from marketdata.testing import strategies
from marketdata.tidy import schema
from marketdata.wire.columns import METRICS
from marketdata.wire.views import VIEWS, empty

ROOT = Path(__file__).resolve().parents[1]
CLIENT, ARCHIVE = set(dir(md.Client)), set(dir(md.Archive))


PLACES: dict[str, Callable[[], Iterable[str]]] = {
    "a method of Client": lambda: CLIENT,
    "an iter_ twin": lambda: {n.removeprefix("iter_") for n in CLIENT if n.startswith("iter_")},
    "an awaited twin": lambda: {n[1:] for n in CLIENT if n.startswith("a")},
    "a method of Archive": lambda: ARCHIVE,
    "an argument of Archive.add": lambda: md.Archive.add.__annotations__,
    "columns in tidy.schema": lambda: schema.COLUMNS,
    "sample frames": lambda: testing.__all__,
    "drawn frames": lambda: {n.removesuffix("_frames") + "s" for n in dir(strategies) if n.endswith("_frames")},
    "the start page of the service": lambda: re.findall(
        r"\w+", re.findall(r"const VIEWS = .*", source("service/static/base.js"))[0]
    ),
    "a section of docs/numbers.md": lambda: re.findall(
        r"(?m)^## (\w+)$", (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8").lower()
    ),
}


def source(path: str) -> str:
    return (ROOT / "marketdata" / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("place", PLACES)
def test_a_view_is_offered(place: str, view: str) -> None:
    """Every public place has every view."""
    assert view in PLACES[place]()


@pytest.mark.parametrize("view", VIEWS)
def test_the_service_answers_a_view(view: str, local_client: md.Client, local_archive: md.Archive) -> None:
    """The local service has a route for every view of a market."""
    market = local_archive.records("markets")[0]["id"]
    assert len(getattr(local_client, view)(market, "2025-12-31", "2026-01-01", "1d"))


def test_views_have_columns_of_their_own() -> None:
    """No view falls through to the columns of another one."""
    assert len({type(empty(view)) for view in VIEWS}) == len(VIEWS)


@pytest.mark.parametrize("kind", schema.COLUMNS)
def test_a_column_is_explained(kind: schema.Kind) -> None:
    """Every column of every tidy frame has its line on the page of numbers."""
    page = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    lines = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [c for c in schema.COLUMNS[kind] if f"`{c}`" not in lines] == []


def test_named_metrics_follow_the_ids() -> None:
    """A metrics frame has its ids, then the metrics of the interface."""
    assert schema.COLUMNS["metrics"] == ("ts", "market_id", *METRICS)
