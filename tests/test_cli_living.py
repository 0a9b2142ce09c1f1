"""Archives that are filled and kept up to date from the command line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cli import marketdata, rows_of

import marketdata as md

HOUR = ("--start", "2025-12-31T12:00", "--end", "2025-12-31T13:00", "--view", "prices")


@pytest.fixture(scope="module")
def origin() -> md.Archive:
    """A day of one event."""
    return md.simulate(events=1, days=1, markets=1)


@pytest.fixture(scope="module")
def service(origin: md.Archive) -> Iterator[dict[str, str]]:
    """The environment that reaches a service of it."""
    with md.serve(origin, requests_per_minute=100_000) as running:
        yield {"MARKETDATA_BASE_URL": running.base_url, "MARKETDATA_API_KEY": str(running.api_key)}


def test_pull_takes_a_file_a_search_or_everything(
    origin: md.Archive, service: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name of a file is named, with what is near it, in one line and exit code 4, after the rest was pulled."""
    slugs = [str(record["slug"]) for record in origin.records("markets")]
    (tmp_path / "names.txt").write_text(f"# mine\n{slugs[0]}\n{slugs[1]}x\n")
    done = marketdata("pull", "a", *HOUR, "--from-file", "names.txt", cwd=tmp_path, **service)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1), done.stderr
    assert f"{slugs[1]}x" in done.stderr
    assert f"'{slugs[1]}'" in done.stderr
    assert md.Archive(tmp_path / "a").coverage()["market_id"].nunique() == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(slugs[1]))
    done = marketdata("pull", "a", *HOUR, "--from-file", "-", cwd=tmp_path, **service)
    assert (done.returncode, len({row["market_id"] for row in rows_of(done.stdout)})) == (0, 1), done.stderr
    done = marketdata("pull", "b", *HOUR, "--search", slugs[0], cwd=tmp_path, **service)
    assert (done.returncode, len({row["market_id"] for row in rows_of(done.stdout)})) == (0, 1), done.stderr
    done = marketdata("pull", "b", *HOUR, "--all", cwd=tmp_path, **service)
    assert (done.returncode, len({row["market_id"] for row in rows_of(done.stdout)})) == (0, len(slugs) - 1)


@pytest.mark.parametrize("given", [(), ("--all", "--search", "x"), ("--market", "x", "--event", "y")])
def test_pull_takes_one_way_to_choose_markets(given: tuple[str, ...], tmp_path: Path, service: dict[str, str]) -> None:
    """None or two ways are refused with exit code 2 and the names of all."""
    done = marketdata("pull", "a", *HOUR, *given, cwd=tmp_path, **service)
    assert done.returncode == 2
    for option in ("--market", "--event", "--series", "--search", "--from-file", "--all"):
        assert option in done.stderr
    assert not (tmp_path / "a").exists()
