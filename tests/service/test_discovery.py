"""Listings, one market, tags, health and usage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests
from service.memory import MemoryArchive
from service.web import Web

from marketdata.service.server import Service, serve


def ids(body: dict) -> list[str]:
    return [record["id"] for record in body["data"]]


def test_listings_have_records_and_metadata(web: Web) -> None:
    """Series, events and markets answer with their records, which keep every field."""
    series, events, markets = (web.get(f"/v1/{kind}").body for kind in ("series", "events", "markets"))
    assert ids(series) == ["s1"]
    assert series["data"][0]["slug"] == "weather"
    assert set(ids(events)) == {"e1", "e2"}
    assert set(ids(markets)) == {"m1", "m3", "wide"}
    assert markets["metadata"] == {"count": 3, "limit": 100, "next_cursor": None}
    rain = next(m for m in markets["data"] if m["id"] == "m1")
    assert rain["event_slug"] == "rain"
    assert {t["label"]: t["id"] for t in rain["tokens"]} == {"Yes": "7" * 77, "No": "2"}


@pytest.mark.parametrize(
    ("path", "params", "expected"),
    [
        ("/v1/events", {"series_slug": "weather"}, {"e1", "e2"}),
        ("/v1/events", {"series_id": "s1"}, {"e1", "e2"}),
        ("/v1/events", {"series_id": "s1", "series_slug": "weather"}, {"e1", "e2"}),
        ("/v1/events", {"series_id": "s1", "series_slug": "other"}, set()),
        ("/v1/events", {"series_slug": "other"}, set()),
        ("/v1/markets", {"event_slug": "rain"}, {"m1"}),
        ("/v1/markets", {"event_id": "e1"}, {"m1"}),
        ("/v1/markets", {"event_id": "e2"}, {"m3", "wide"}),
        ("/v1/markets", {"event_slug": ""}, set()),
        ("/v1/markets", {"search": "RAIN"}, {"m1"}),
        ("/v1/markets", {"search": "will wide"}, {"wide"}),
        ("/v1/markets", {"search": "nothing like it"}, set()),
        ("/v1/events", {"tags": "daily"}, {"e1"}),
        ("/v1/events", {"tags": "nature,none"}, {"e1"}),
        ("/v1/events", {"tags": "nature,none", "tags_match": "all"}, set()),
        ("/v1/events", {"start_date_min": "2026-01-05"}, {"e2"}),
        ("/v1/events", {"start_date_max": "2026-01-05"}, {"e2"}),
        ("/v1/events", {"start_date_max": "2026-01-04"}, set()),
        ("/v1/events", {"end_date_min": "2026-01-04"}, set()),
    ],
)
def test_listings_are_filtered(web: Web, path: str, params: dict, expected: set[str]) -> None:
    """Parents by id and slug, search in slug and title, tags and date bounds."""
    assert set(ids(web.get(path, **params).body)) == expected


@pytest.mark.parametrize(
    "params", [{"limit": 0}, {"limit": 201}, {"sort": "secret"}, {"order": "up"}, {"search": ["a", "b"]}]
)
def test_listings_refuse_what_they_do_not_know(web: Web, params: dict) -> None:
    """A wrong limit, sort or order, and a doubled parameter are 422."""
    assert web.get("/v1/markets", **params).status == 422
    assert web.get("/v1/events", start_date_min="soon").status == 400


@pytest.fixture(scope="module")
def many() -> Iterator[tuple[MemoryArchive, Service]]:
    archive = MemoryArchive()
    for i in range(57):
        more = {} if i % 4 == 0 else {"start_date": f"2026-01-{i % 9 + 1:02}T00:00:00Z"}
        archive.add_market(f"{i:03}", {"Yes": f"y{i}"}, slug=f"slug-{99 - i}", **more)
    with serve(archive) as service:
        yield archive, service


@pytest.mark.parametrize("limit", [1, 7, 57, 200])
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("sort", ["start_date", "slug", "id", "updated_at", "title"])
def test_a_listing_is_walked_whole_in_order(many, sort: str, order: str, limit: int) -> None:
    """Pages of any size give every record once, sorted, those without the field last."""
    archive, service = many
    with requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        got = [r for body in web.walk("/v1/markets", sort=sort, order=order, limit=limit) for r in body["data"]]
    assert sorted(r["id"] for r in got) == [r["id"] for r in archive.records("markets")]
    values = [r.get("question" if sort == "title" else sort) for r in got]
    known = [v for v in values if v is not None]
    assert values == known + [None] * (len(values) - len(known))
    assert known == sorted(known, reverse=order == "desc")


def test_a_listing_cursor_is_bound_to_its_listing(many) -> None:
    """A cursor of one listing is no cursor of another one, nor with another filter."""
    _, service = many
    with requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        cursor = web.get("/v1/markets", limit=3, search="slug").body["metadata"]["next_cursor"]
        assert len(cursor) < 200
        assert web.get("/v1/markets", limit=50, search="slug", cursor=cursor).status == 200
        for other in ({"search": "lug"}, {"search": "slug", "sort": "id"}, {"search": "slug", "order": "asc"}, {}):
            assert web.get("/v1/markets", limit=3, cursor=cursor, **other).body == {"detail": "Invalid cursor"}
        assert web.get("/v1/events", limit=3, search="slug", cursor=cursor).status == 400


def test_one_market_has_every_detail(web: Web) -> None:
    """By id or slug, with the fields of readings.md present though unknown."""
    by_id, by_slug = web.get("/v1/markets/m1"), web.get("/v1/markets/will-it-rain")
    assert by_id.body == by_slug.body
    detail = {"description", "closed_at", "resolved_token_id", "resolved_token_label", "question", "tokens"}
    assert detail <= set(by_id.body)
    assert web.get("/v1/markets/none").body == {"detail": "Market not found: none"}


def test_tags_are_every_tag_in_use(web: Web) -> None:
    """Sorted, each once, with their number."""
    assert web.get("/v1/tags").body == {"count": 2, "data": ["daily", "nature"]}


def test_health_and_usage_answer(web: Web) -> None:
    """Health says ok and when; usage counts itself."""
    health = web.get("/v1/health").body
    assert health["status"] == "ok"
    assert health["timestamp"].endswith("Z")
    first, second = (web.get("/v1/usage").body["limits"]["requests_remaining"] for _ in range(2))
    assert first - second == 1


def test_simulated_data_says_so() -> None:
    """A simulated archive is named so in every answer."""
    archive = MemoryArchive(simulated=True)
    archive.add_market("m", {"Yes": "1"})
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        assert web.get("/v1/markets/m").headers["x-simulated"] == "true"
        assert web.get("/v1/health").body["simulated"] is True
        assert "Simulated" in session.get(service.base_url + "/openapi.json", timeout=20).json()["info"]["description"]
