"""Conformance to the interface and its readings, for any address.

    pytest tests/contract --base-url https://... --api-key ... --market SLUG --start ISO --end ISO

Without an address it runs against the local service. It waits where the rate of the key asks for it. A failure on a
remote service means that it follows another reading of a silent point of the interface.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from reference.web import Answer, Web
from service.conftest import delta_archive, small_archive

from marketdata.service.server import serve

HERE = "contract"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contract", "conformance of a service")
    group.addoption("--base-url", help="address of the service, without /v1")
    group.addoption("--api-key", help="key for it")
    group.addoption("--market", help="id or slug of a market with history")
    group.addoption("--start", help="start of a range of at most some hours in which it has history")
    group.addoption("--end", help="end of that range")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    address = config.getoption("base_url", default=None)
    if address:
        for item in items:
            if HERE in item.path.parts:
                item.add_marker(pytest.mark.allow_hosts([urlsplit(address).hostname, "127.0.0.1"]))


@dataclass
class Subject:
    """A market with history, and a range in which it has some."""

    market: dict[str, Any]
    start: str
    end: str

    @property
    def range(self) -> dict[str, str]:
        return {"start_ts": self.start, "end_ts": self.end}

    @property
    def labels(self) -> list[str]:
        return [token["label"] for token in self.market["tokens"]]

    def path(self, view: str) -> str:
        return f"/v1/markets/{self.market['id']}/{view}"


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Base URL and key."""
    given = request.config.getoption("base_url", default=None)
    if given:
        yield given.rstrip("/").removesuffix("/v1"), request.config.getoption("api_key") or ""
        return
    with serve(delta_archive(small_archive(), tmp_path_factory.mktemp("contract"))) as service:
        yield service.base_url, str(service.api_key)


class Patient(Web):
    """Waits where the service says that the key has asked often enough."""

    def get(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> Answer:
        answer = super().get(path, headers, **params)
        while answer.status == 429:
            wait = answer.headers.get("Retry-After", "")  # may be a date
            time.sleep(min(60, int(wait) if wait.isdigit() else 5))
            answer = super().get(path, headers, **params)
        return answer


@pytest.fixture(scope="session")
def web(address: tuple[str, str]) -> Iterator[Web]:
    with requests.Session() as session:
        yield Patient(*address, session)


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest, web: Web) -> Subject:
    """The market of the options, or the local one."""
    option = request.config.getoption
    if option("base_url", default=None) is None:
        return Subject(web.get("/v1/markets/will-it-rain").body, "2026-01-05T00:00:00Z", "2026-01-05T02:30:00Z")
    if not (option("market") and option("start") and option("end")):
        pytest.skip("name a market that has history with --market, --start and --end")
    return Subject(web.get(f"/v1/markets/{option('market')}").body, option("start"), option("end"))
