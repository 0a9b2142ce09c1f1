"""A view passes through every room; each test names the room that does not know it yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import get_args

import pytest

import marketdata as md
from marketdata.archive import imports, intake, layout
from marketdata.archive.archive import Archive
from marketdata.client import history
from marketdata.fetch import plan
from marketdata.service import app, chunks
from marketdata.testing import strategies
from marketdata.tidy import schema
from marketdata.wire.columns import METRICS, VIEWS, empty

ROOT = Path(__file__).resolve().parents[1]
CLIENT, ARCHIVE = set(dir(md.Client)), set(dir(Archive))


PLACES: dict[str, Callable[[], Iterable[str]]] = {
    "tidy/schema.py: COLUMNS": lambda: schema.COLUMNS,
    "fetch/plan.py: _BYTES": lambda: plan._BYTES,
    "client/history.py: _FRAME_POINTS": lambda: history._FRAME_POINTS,
    "client/views.py: a method": lambda: CLIENT,
    "client/client.py: an iter_ twin": lambda: {n.removeprefix("iter_") for n in CLIENT if n.startswith("iter_")},
    "client/client.py: an awaited twin": lambda: {n[1:] for n in CLIENT if n.startswith("a")},
    "archive/layout.py: SCHEMAS": lambda: layout.SCHEMAS,
    "archive/intake.py: _KINDS": lambda: intake._KINDS,
    "archive/imports.py: Kind and ORDER": lambda: set(get_args(imports.Kind)) & set(imports.ORDER),
    "archive/views.py: a method": lambda: ARCHIVE,
    "archive/archive.py: an argument of add": lambda: Archive.add.__annotations__,
    "service/chunks.py: POINTS and BASE_POINTS": lambda: set(chunks.POINTS) & set(chunks.BASE_POINTS),
    "service/app.py: a route": lambda: {str(vars(r)["path"]).rsplit("/", 1)[1] for r in app._history_routes().routes},
    "service/start/words.js: VIEWS": lambda: re.findall(
        r'"(\w+)"',
        re.search(r"const VIEWS = \[.*\]", source("service/start/words.js"))[0],  # type: ignore[index]
    ),
    "testing/strategies.py: columns to draw": lambda: {
        "metrics" if n == "metric_columns" else n.replace("_columns", "s") for n in dir(strategies)
    },
    "docs/numbers.md: a section": lambda: re.findall(
        r"(?m)^## (\w+)$", (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8").lower()
    ),
}


def source(path: str) -> str:
    return (ROOT / "marketdata" / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("place", PLACES)
def test_a_view_has_its_place(place: str, view: str) -> None:
    """Every room has what it needs for every view."""
    assert view in PLACES[place](), f"marketdata/{place} lacks {view}"


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
    """The metrics that are always there stand in one table, which every room reads."""
    assert schema.COLUMNS["metrics"] == ("ts", "market_id", *METRICS)
    assert layout.METRIC_ROWS.names == ["market_id", "ts", *METRICS]
