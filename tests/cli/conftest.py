"""An archive and a service for the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import marketdata as md


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    (path / "empty").mkdir()
    md.simulate(path / "history", events=1, days=1, markets=1, levels=4)
    return path


@pytest.fixture(scope="session")
def market(folder) -> str:
    records = md.Archive(folder / "history").records("markets")
    return next(m["slug"] for m in records if len(m["tokens"]) == 2)


@pytest.fixture(scope="session")
def service(folder):
    """The environment that reaches a service of the archive."""
    with md.serve(md.Archive(folder / "history"), requests_per_minute=60_000) as running:
        yield {"MARKETDATA_BASE_URL": running.base_url, "MARKETDATA_API_KEY": str(running.api_key)}
