"""Archives that are filled and kept up to date from the command line."""

from __future__ import annotations

import io
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from cli.run import marketdata, rows_of

import marketdata as md

HOUR = ("--start", "2025-12-31T12:00", "--end", "2025-12-31T13:00", "--view", "prices")
FOLLOW = ("pull", "a", "--view", "prices", "--follow", "--start", "2025-12-31T23:00", "--every", "1s")


@pytest.fixture
def small(folder: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment that reaches a service of three markets."""
    history, archive = md.Archive(folder / "history", frame="polars"), md.Archive(tmp_path / "small", frame="polars")
    markets = history.markets().filter(pl.col("token_ids").list.len() < 4)
    prices = history.prices(markets["market_id"].to_list(), HOUR[1], HOUR[3], on_missing="partial")
    archive.add(markets=markets, prices=prices)
    with md.serve(archive) as running:
        yield {"MARKETDATA_BASE_URL": running.base_url, "MARKETDATA_API_KEY": str(running.api_key)}


def test_pull_takes_a_file_a_search_or_everything(
    small: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name of a file is named, with what is near it, in one line and exit code 4, after the rest was pulled."""
    slugs = [str(record["slug"]) for record in md.Archive(tmp_path / "small").records("markets")]
    (tmp_path / "names.txt").write_text(f"# mine\n{slugs[0]}\n{slugs[1]}x\n")
    done = marketdata("pull", "a", *HOUR, "--from-file", "names.txt", cwd=tmp_path, **small)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1), done.stderr
    assert f"{slugs[1]}x" in done.stderr
    assert f"'{slugs[1]}'" in done.stderr
    assert md.Archive(tmp_path / "a").coverage()["market_id"].nunique() == 1
    monkeypatch.setattr("sys.stdin", io.StringIO(slugs[1]))
    for given, markets in (("--from-file", "-"), 1), (("--search", slugs[0]), 1), (("--all",), len(slugs) - 1):
        archive = "a" if "-" in given else "b"
        done = marketdata("pull", archive, *HOUR, *given, cwd=tmp_path, **small)
        assert (done.returncode, len({row["market_id"] for row in rows_of(done.stdout)})) == (0, markets), done.stderr


def test_pull_takes_one_way_to_choose_markets(tmp_path: Path, service: dict[str, str]) -> None:
    """None or two ways are refused with exit code 2 and the names of all."""
    for given in ((), ("--all", "--search", "x"), ("--market", "x", "--event", "y")):
        done = marketdata("pull", "a", *HOUR, *given, cwd=tmp_path, **service)
        assert done.returncode == 2
        for option in ("MARKET", "--event", "--series", "--search", "--from-file", "--all"):
            assert option in done.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.fault("AR33")
def test_a_signal_ends_a_follow_well(
    market: str, service: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line per round; then a signal ends it with exit code 0, and nothing has to be asked again."""
    follow = md.Archive.follow

    def stopped(*args: Any, **options: Any) -> Iterator[Any]:
        yield next(follow(*args, **options))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(md.Archive, "follow", stopped)
    done = marketdata(*FOLLOW, "--market", market, cwd=tmp_path, **service)
    first, last = done.stderr.splitlines()
    assert done.returncode == 0
    assert re.fullmatch(r"marketdata: \S+Z 1 markets, [1-9]\d* ranges, [\d,]+ points", first)
    assert last == "marketdata: stopped; the same command goes on from here."
    span = ("--start", "2025-12-31T23:00", "--end", "2026-01-01", "--view", "prices", "--market", market)
    assert rows_of(marketdata("pull", "a", *span, cwd=tmp_path, **service).stdout) == []


def test_a_follow_refuses_what_it_cannot_do(service: dict[str, str], tmp_path: Path) -> None:
    """A wrong key is exit code 3; an end, a dry run or a format beside --follow, and no period are exit code 2."""
    done = marketdata(*FOLLOW, "--all", cwd=tmp_path, **{**service, "MARKETDATA_API_KEY": "mk_" + 20 * "x"})
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
    for more in (("--end", "2026-01-01"), ("--dry-run",), ("--json",), ("--every", "0s")):
        done = marketdata(*FOLLOW, "--all", *more, cwd=tmp_path, **service)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert more[0] in done.stderr
