"""Listings, one market, tags, health and usage."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from service.memory import MemoryArchive
from service.web import Web, stop_minute
from still import SOON

from marketdata.archive import Archive
from marketdata.service.listings import Listings
from marketdata.service.pagination import Cursors
from marketdata.service.parameters import ListingQuery, MarketQuery
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
        ("/v1/markets", {"status": "closed"}, {"m3"}),
        ("/v1/markets", {"status": "nonsense"}, set()),
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


@pytest.mark.parametrize("path", ["/v1/series", "/v1/events", "/v1/markets", "/coverage"])
def test_a_misspelt_filter_is_refused(web: Web, path: str) -> None:
    """A filter that a listing does not have is 422 and names those that it has; it never lists everything."""
    answer = web.get(path, query="rain", states="open")
    assert answer.status == 422
    assert [item["loc"] for item in answer.body["detail"]] == [["query", "query"], ["query", "states"]]
    for item in answer.body["detail"]:
        assert {"limit", "cursor", "search", "sort", "order", "status", "tags"} <= set(re.findall(r"\w+", item["msg"]))


texts = st.sampled_from(["", "a", "b", "Ab", "B a", "ß", "2026-01-02T00:00:00Z"])
found_records = st.lists(
    st.fixed_dictionaries(
        {"slug": texts},
        optional={
            "title": texts, "question": texts, "status": texts, "start_date": texts, "updated_at": texts,
            "tags": st.lists(st.sampled_from(["a", "b"])), "event_slug": texts, "event_id": texts,
        },
    ),
    max_size=12,
)  # fmt: skip
queries = st.builds(
    MarketQuery,
    limit=st.integers(1, 5),
    cursor=st.none(),
    search=st.one_of(st.none(), texts),
    sort=st.sampled_from(["updated_at", "start_date", "end_date", "id", "slug", "title", "status"]),
    order=st.sampled_from(["asc", "desc"]),
    status=st.one_of(st.none(), texts),
    tags=st.lists(st.sampled_from(["a", "b"]), max_size=2).map(",".join),
    tags_match=st.sampled_from(["any", "all"]),
    start_date_min=st.sampled_from([None, "1970-01-01"]),
    start_date_max=st.sampled_from([None, "2026-01-03"]),
)


def plainly_listed(markets: list[dict], query: ListingQuery, event_slug: str | None) -> list[str]:
    """Ids of a listing, filtered and sorted record by record."""
    wanted = query.wanted_tags

    def passes(market: dict) -> bool:
        text = " ".join(str(market[n]) for n in ("id", "slug", "title", "question") if market.get(n) is not None)
        tags = market.get("tags", [])
        return (
            all(word in text.casefold() for word in (query.search or "").casefold().split())
            and (query.status is None or market.get("status") == query.status)
            and (not wanted or (any if query.tags_match == "any" else all)(tag in tags for tag in wanted))
            and (not query.bounds or str(market.get("start_date", "")).startswith("2026"))
            and (event_slug is None or market.get("event_slug") == event_slug)
        )

    def value(market: dict) -> str | None:
        found = market.get(query.sort)
        return market.get("question") if found is None and query.sort == "title" else found

    some = sorted(filter(passes, markets), key=lambda m: m["id"])
    known = sorted(
        (m for m in some if value(m) is not None), key=lambda m: str(value(m)), reverse=query.order == "desc"
    )
    return [m["id"] for m in known + [m for m in some if value(m) is None]]


@given(found_records, queries, st.one_of(st.none(), texts))
def test_a_listing_is_what_a_plain_loop_lists(markets: list[dict], query: MarketQuery, event_slug: str | None) -> None:
    """Filters, order and pages give what a loop over all records gives, whatever they hold."""
    archive, cursors = MemoryArchive(), Cursors(b"0123456789abcdef")
    for i, market in enumerate(markets):
        archive.add_record("markets", id=f"{i:02}", tokens=[], **market)
    listings, got = Listings(archive), list[str]()
    query = query.model_copy(update={"event_slug": event_slug})
    while True:
        records, following = listings.page("markets", query, cursors)
        got += [record["id"] for record in records]
        if following is None:
            break
        query = query.model_copy(update={"cursor": following})
    assert got == plainly_listed(archive.records("markets"), query, event_slug)


def test_a_page_reads_no_records_again() -> None:
    """At any depth, and with any filter, the records of one version of the archive are read once."""
    reads = []

    class Counting(MemoryArchive):
        def records(self, kind: str) -> list[dict]:
            reads.append(kind)
            return super().records(kind)

    archive = Counting()
    for i in range(300):
        archive.add_market(f"{i:03}", {"Yes": f"y{i}"})
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        for search in (None, "market", "slug"):
            assert sum(len(body["data"]) for body in web.walk("/v1/markets", limit=7, search=search)) in {300, 0}
        assert reads.count("markets") == 1
        archive.add_market("new", {"Yes": "n"})
        assert len(web.get("/v1/markets", limit=200, search="new").body["data"]) == 1
        assert reads.count("markets") == 2


def test_a_walk_goes_on_behind_a_record_that_has_changed() -> None:
    """A record that no longer passes the filter, or a new one, neither ends a walk nor repeats or skips others."""
    archive = MemoryArchive()
    for i in range(9):
        archive.add_market(f"{i}", {"Yes": f"y{i}"}, status="open")
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        asked = {"limit": 3, "sort": "id", "order": "asc", "status": "open"}
        first = web.get("/v1/markets", **asked).body
        archive._records["markets"][2]["status"] = "closed"
        archive.add_market("5a", {"Yes": "new"}, status="open")
        rest = [r["id"] for body in walk_on(web, first, asked) for r in body["data"]]
    assert rest == ["3", "4", "5", "5a", "6", "7", "8"]


def walk_on(web: Web, body: dict, asked: dict) -> Iterator[dict]:
    while (cursor := body["metadata"]["next_cursor"]) is not None:
        body = web.get("/v1/markets", cursor=cursor, **asked).body
        yield body


def test_an_event_without_a_title_has_its_slug_for_one(tmp_path) -> None:
    """Events and series that an archive derives from markets have a title, because clients ask for one."""
    archive = Archive(tmp_path)
    tokens = {"token_ids": ["1"], "token_labels": ["Yes"]}
    archive.add(markets=[{"market_id": "m", "event_slug": "rain-in-may", "series_slug": "weather", **tokens}])
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        assert [(e["slug"], e["title"]) for e in web.get("/v1/events").body["data"]] == [("rain-in-may", "rain-in-may")]
        assert [s["title"] for s in web.get("/v1/series").body["data"]] == ["weather"]


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


def test_health_and_usage_answer(service: Service, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health says ok and when; usage counts itself."""
    health = web.get("/v1/health").body
    assert health["status"] == "ok"
    assert health["timestamp"].endswith("Z")
    stop_minute(service, monkeypatch)
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
        assert (
            "Simulated" in session.get(service.base_url + "/openapi.json", timeout=SOON).json()["info"]["description"]
        )
