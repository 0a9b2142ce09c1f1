"""Archives that are filled and kept up to date from the command line."""

from __future__ import annotations

import io
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.run import marketdata, rows_of, started
from reference.clocks import SOON

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


@pytest.mark.fault("AR33")
def test_a_signal_ends_a_follow_well(origin: md.Archive, service: dict[str, str], tmp_path: Path) -> None:
    """A line per round, without end; then a signal ends it with exit code 0, and nothing has to be asked again."""
    words = ("pull", "a", "--view", "prices", "--follow", "--all", "--start", "2025-12-31", "--every", "1s")
    with started(*words, cwd=tmp_path, **service) as process:
        lines = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        lines += process.stderr.readlines()
        assert process.wait(SOON) == 0, lines
    markets = len(origin.records("markets"))
    assert re.fullmatch(rf"marketdata: \S+Z {markets} markets, [1-9]\d* ranges, [\d,]+ points\n", lines[0]), lines
    assert lines[-1] == "marketdata: stopped; the same command goes on from here.\n"
    archive = md.Archive(tmp_path / "a", frame="polars")
    mine, theirs = (a.scan("prices").collect().height for a in (archive, origin))
    assert mine == theirs
    done = marketdata("pull", "a", *HOUR, "--all", cwd=tmp_path, **service)
    assert rows_of(done.stdout) == []


def test_a_follow_ends_at_a_wrong_key(service: dict[str, str], tmp_path: Path) -> None:
    """A wrong key is exit code 3 at once, in one line."""
    words = ("pull", "a", "--follow", "--all", "--start", "2025-12-31", "--every", "1s")
    done = marketdata(*words, cwd=tmp_path, **{**service, "MARKETDATA_API_KEY": "mk_" + 20 * "x"})
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr


def test_a_follow_refuses_what_it_cannot_do(service: dict[str, str], tmp_path: Path) -> None:
    """An end, a dry run or a format beside --follow, and a period that is none, are refused with exit code 2."""
    words = ("pull", "a", "--all", "--start", "2025-12-31", "--follow")
    for more in (("--end", "2026-01-01"), ("--dry-run",), ("--json",), ("--every", "0s")):
        done = marketdata(*words, *more, cwd=tmp_path, **service)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert more[0] in done.stderr
