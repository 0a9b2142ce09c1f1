"""A view is a kind of history; each test names the public place that lacks one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from still import SOON

import marketdata as md
from marketdata import testing
from marketdata.points import schema
from marketdata.points.columns import METRICS
from marketdata.points.records import COLUMNS, KINDS, RecordKind
from marketdata.points.views import VIEWS, empty, view_of
from marketdata.testing import strategies

ROOT = Path(__file__).resolve().parents[1]
CLIENT, ARCHIVE = set(dir(md.Client)), set(dir(md.Archive))


PLACES: dict[str, Callable[[], Iterable[str]]] = {
    "a method of Client": lambda: CLIENT,
    "an iter_ twin": lambda: {n.removeprefix("iter_") for n in CLIENT if n.startswith("iter_")},
    "an awaited twin": lambda: {n[1:] for n in CLIENT if n.startswith("a")},
    "a method of Archive": lambda: ARCHIVE,
    "an argument of Archive.add": lambda: md.Archive.add.__annotations__,
    "columns in points.schema": lambda: schema.COLUMNS,
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
    assert [view_of(empty(view)) for view in VIEWS] == list(VIEWS)


@pytest.mark.parametrize("kind", schema.COLUMNS)
def test_a_column_is_explained(kind: schema.Kind) -> None:
    """Every column of every tidy frame has its line on the page of numbers."""
    page = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    lines = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [c for c in schema.COLUMNS[kind] if f"`{c}`" not in lines] == []


def test_named_metrics_follow_the_ids() -> None:
    """A metrics frame has its ids, then the metrics of the interface."""
    assert schema.COLUMNS["metrics"] == ("ts", "market_id", *METRICS)


SIXTH = """
import marketdata as md, requests
from marketdata.cli.parameters import Bucket
from marketdata.fetch.estimate import _allowed
from marketdata.resolution import Resolution
from typing import get_args

assert Resolution("12h").seconds == 43_200
assert "12h" in _allowed("10m, 12h")
assert "12h" in [str(one) for one in get_args(Bucket)[0]]
archive = md.simulate(events=1, days=1, markets=1)
market = archive.records("markets")[0]["id"]
with md.serve(archive) as service, md.Client(service.base_url, service.api_key) as client:
    assert len(client.prices(market, "2025-12-31", "2026-01-01", "12h")) == 4
    assert client.plan("prices", market, "2025-12-31", "2026-01-01", "12h").refused == ()
    assert "12h" in client.usage().limits.granularity_allowed
    page = requests.get(service.base_url).text
    assert '"12h": 43200000' in page and "{{" not in page.split("<script>")[1].split("const HOUR")[0]
    refusal = requests.get(f"{service.base_url}/v1/markets/{market}/prices?start_ts=0&end_ts=1&resolution=2m",
                           headers={"X-API-Key": service.api_key})
    assert "12h" in refusal.json()["detail"][0]["msg"]
"""


FURTHER = """
import os, sys, tempfile
import marketdata as md, requests
from marketdata.cli.commands.client import LISTED
sys.path.insert(0, os.environ["DOCS"])
import record_fields

mine = md.Archive(tempfile.mkdtemp())
mine.add(markets=[{"id": "m", "tokens": []}, {"id": "n", "halted_at": "2026-01-01", "rules": 7}])
known, other = mine.records("markets")
assert known["halted_at"] is None and other["halted_at"] == "2026-01-01" and other["rules"] == "7"
assert str(mine.markets()["halted_at"].dtype) == "datetime64[us, UTC]"
assert str(mine.sql("select halted_at from markets order by market_id")["halted_at"][1]).startswith("2026-01-01")
assert "halted_at" in LISTED
assert "halted_at" in md.without_answers(mine.markets(), dry=True)
assert "| `halted_at` | markets | when it was stopped" in record_fields.tables()
with md.serve(mine) as service, md.Client(service.base_url, service.api_key, frame="polars") as client:
    listed = client.markets(search="2026-01-01")
    assert listed["market_id"].to_list() == ["n"] and listed.schema["halted_at"].time_zone == "UTC"
    assert client.market("m").halted_at is None and client.market("m").rules is None and "rules" not in known
    answer = requests.get(f"{service.base_url}/openapi.json").json()["components"]["schemas"]["MarketDetail"]
    assert {"halted_at", "rules"} <= set(answer["properties"])
"""


FIELD = '        Field("tokens", '
ADDED = """        Field("halted_at", "date", "when it was stopped [UTC]", searched=True, stored=True, leaks=True),
        Field("rules", "text", "what else holds", "market"),
"""


def test_a_sixth_resolution_is_one_line(tmp_path: Path) -> None:
    """Client, plans of keys, local service, its page and the command line have what the table of resolutions has."""
    run_with(tmp_path, "resolution.py", '    D1 = "1d"\n', '    H12 = "12h"\n', SIXTH)


def test_a_field_of_a_market_is_one_line(tmp_path: Path) -> None:
    """Client, archive, frames, local service, command line and docs have what the table of fields has."""
    run_with(tmp_path, "points/records.py", FIELD, ADDED, FURTHER)


def run_with(tmp_path: Path, module: str, line: str, added: str, code: str) -> None:
    """Run code with a package whose module has something more before a line."""
    shutil.copytree(ROOT / "marketdata", tmp_path / "marketdata", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "marketdata" / module
    text = table.read_text(encoding="utf-8")
    assert text.count(line) == 1
    table.write_text(text.replace(line, added + line), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=SOON,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "DOCS": str(ROOT / "docs")},
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("owner", [md.Client, md.Archive])
def test_docstrings_name_the_columns_of_records(owner: type, kind: RecordKind) -> None:
    """The docstring of a listing names each of its columns."""
    words = set(re.findall(r"\w+", getattr(owner, kind).__doc__))
    assert [name for name in COLUMNS[kind] if name not in words] == []
