from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from contract.finding import find
from reference.web import Web
from service.conftest import small_archive

from marketdata.service.server import Service, serve


@pytest.fixture(scope="module")
def old() -> Iterator[Service]:
    """A service of old data: most markets have none, one has prices only."""
    archive = small_archive()
    archive.add_market("empty", {"Yes": "e1"}, end_date="2026-01-01T00:00:00Z")
    plans = {"all": {}, "short": {"max_history_days": 30}, "coarse": {"resolutions": ["1d"]}}
    with serve(archive, keys={name: name for name in plans}, plans=plans) as service:
        yield service


def web(service: Service, key: str) -> Web:
    return Web(service.base_url, key, requests.Session())


def test_a_market_with_books_is_found_without_being_named(old: Service) -> None:
    """The listing is walked to a market with prices and books, and three hours at the end of its history."""
    asking = web(old, "all")
    found = find(asking)
    assert found is not None
    market, start, end = found
    assert market["id"] == "m1"
    assert (start, end) == ("2026-01-05T00:00:00Z", "2026-01-05T03:00:00Z")
    asking.session.close()


def test_a_named_market_is_looked_through(old: Service) -> None:
    """With a market named only its hours are looked for, also where it has no books."""
    asking = web(old, "all")
    found = find(asking, "m3")
    assert found is not None
    assert found[0]["id"] == "m3"
    asking.session.close()


@pytest.mark.parametrize("key", ["short", "coarse"])
def test_what_a_plan_hides_is_not_found(old: Service, key: str) -> None:
    """Where the plan refuses the range or the resolution there is nothing to find, and no error."""
    asking = web(old, key)
    assert find(asking) is None
    asking.session.close()
