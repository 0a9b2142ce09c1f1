"""A view, a resolution and a field of a record are one line each: every public place has what the table has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import marketdata as md
from marketdata import testing
from marketdata.points import schema
from marketdata.points.records import COLUMNS, KINDS
from marketdata.points.views import VIEWS, empty, view_of
from marketdata.testing import strategies

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("view", VIEWS)
def test_every_public_place_has_the_view(view: str, local_client: md.Client, local_archive: md.Archive) -> None:
    """Client, archive, service, schema, samples, strategies and the page of numbers know each view."""
    headings = re.findall(r"(?m)^## (\w+)$", (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8").lower())
    assert {view, f"iter_{view}"} <= set(dir(md.Client))
    assert view in dir(md.Archive)
    assert view in md.Archive.add.__annotations__
    assert view in schema.COLUMNS
    assert view in testing.__all__
    assert f"{view[:-1]}_frames" in dir(strategies)
    assert view in headings
    assert view_of(empty(view)) == view
    market = local_archive.records("markets")[0]["id"]
    assert len(getattr(local_client, view)(market, "2025-12-31", "2026-01-01", "1d"))


def test_every_column_is_explained() -> None:
    """Each column of a tidy frame has its line on the page of numbers, and of a listing its word in the docstring."""
    page = (ROOT / "docs" / "numbers.md").read_text(encoding="utf-8")
    cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert [c for columns in schema.COLUMNS.values() for c in columns if f"`{c}`" not in cells] == []
    for kind in KINDS:
        for owner in (md.Client, md.Archive):
            words = set(re.findall(r"\w+", getattr(owner, kind).__doc__))
            assert [name for name in COLUMNS[kind] if name not in words] == []


FIELDS = """        Field("halted_at", "date", "when it was stopped [UTC]", searched=True, stored=True, leaks=True),
        Field("rules", "text", "what else holds", "market"),
"""
# The module, a line of it, and what is added before that line.
ADDED = (
    ("resolution.py", '    D1 = "1d"\n', '    H12 = "12h"\n'),
    ("points/records.py", '        Field("tokens", ', FIELDS),
)
USED = """
import tempfile, marketdata as md, requests

archive = md.simulate(events=1, days=1, markets=1)
market = archive.records("markets")[0]["id"]
day = "2025-12-31", "2026-01-01"
with md.serve(archive) as service, md.Client(service.base_url, service.api_key) as client:
    assert len(client.prices(market, *day, "12h")) == 4
    assert client.plan("prices", market, *day, "12h").refused == ()
    assert "12h" in client.usage().limits.granularity_allowed
    refusal = requests.get(f"{service.base_url}/v1/markets/{market}/prices?start_ts=0&end_ts=1&resolution=2m",
                           headers={"X-API-Key": service.api_key})
    assert "12h" in refusal.json()["detail"][0]["msg"]

mine = md.Archive(tempfile.mkdtemp())
mine.add(markets=[{"id": "m", "tokens": []}, {"id": "n", "halted_at": "2026-01-01", "rules": 7}])
first, second = mine.records("markets")
assert first["halted_at"] is None and second["halted_at"] == "2026-01-01" and second["rules"] == "7"
assert str(mine.markets()["halted_at"].dtype) == "datetime64[us, UTC]"
assert str(mine.sql("select halted_at from markets order by market_id")["halted_at"][1]).startswith("2026-01-01")
assert "halted_at" in md.without_answers(mine.markets(), dry=True)
with md.serve(mine) as service, md.Client(service.base_url, service.api_key, frame="polars") as client:
    listed = client.markets(search="2026-01-01")
    assert listed["market_id"].to_list() == ["n"] and listed.schema["halted_at"].time_zone == "UTC"
    assert client.market("m").halted_at is None and client.market("m").rules is None
"""


def test_a_resolution_and_a_field_are_one_line(tmp_path: Path) -> None:
    """Client, plans, archive, SQL and service take a resolution and fields of markets that a line each adds."""
    shutil.copytree(ROOT / "marketdata", tmp_path / "marketdata", ignore=shutil.ignore_patterns("__pycache__"))
    for module, line, added in ADDED:
        table = tmp_path / "marketdata" / module
        text = table.read_text(encoding="utf-8")
        assert text.count(line) == 1
        table.write_text(text.replace(line, added + line), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", USED]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
