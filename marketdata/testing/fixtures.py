"""Fixtures for pytest, a local service over simulated data: ``pytest_plugins = ["marketdata.testing.fixtures"]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.client import Client
    from marketdata.service.server import Service
    from marketdata.typing import PandasFrame

__all__ = ["local_archive", "local_client", "local_service"]


@pytest.fixture(scope="session")
def local_archive(tmp_path_factory: pytest.TempPathFactory) -> Archive[PandasFrame]:
    """One simulated day, 2025-12-31, of one event: two markets of two tokens, one of three, one of 210."""
    from marketdata.simulation import simulate

    return simulate(tmp_path_factory.mktemp("simulated"), events=1, days=1, seed=0)


@pytest.fixture(scope="session")
def local_service(local_archive: Archive[PandasFrame]) -> Iterator[Service]:
    """A service over `local_archive` on a free port of this machine: ``.base_url`` and ``.api_key``."""
    from marketdata.service.server import serve

    with serve(local_archive) as service:
        yield service


@pytest.fixture
def local_client(local_service: Service) -> Iterator[Client[PandasFrame]]:
    """A client of `local_service` that returns pandas frames."""
    from marketdata.client import Client

    with Client(local_service.base_url, local_service.api_key) as client:
        yield client
