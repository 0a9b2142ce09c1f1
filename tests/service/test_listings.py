"""Listings, one market, tags, health and usage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.memory import MemoryArchive
from reference.web import Web, in_process

from marketdata.archive import Archive


def ids(body: dict) -> list[str]:
    return [record["id"] for record in body["data"]]


def test_listings_have_records_and_metadata(web: Web) -> None:
    """Series, events and markets answer with their records, which keep every field."""
    series, events, markets = (web.get(f"/v1/{kind}").body for kind in ("series", "events", "markets"))
    assert ids(series) == ["s1"]
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
        ("/v1/events", {"series_id": "s1", "series_slug": "weather"}, {"e1", "e2"}),
        ("/v1/events", {"series_id": "s1", "series_slug": "other"}, set()),
        ("/v1/events", {"series_slug": "other"}, set()),
        ("/v1/markets", {"event_id": "e2"}, {"m3", "wide"}),
        ("/v1/events", {"tags": "nature,none"}, {"e1"}),
        ("/v1/events", {"tags": ["nature", "none"]}, {"e1"}),
        ("/v1/events", {"start_date_min": "2026-01-05"}, {"e2"}),
        ("/v1/events", {"start_date_max": "2026-01-05"}, {"e2"}),
        ("/v1/events", {"start_date_max": "2026-01-04"}, set()),
        ("/v1/events", {"end_date_min": "2026-01-04"}, set()),
        ("/v1/markets", {"include_closed": "true"}, {"m1", "m3", "wide"}),
        ("/v1/markets", {"include_closed": "false"}, {"m1", "wide"}),
        ("/v1/markets", {"category": "crypto"}, set()),
        ("/v1/markets", {"min_liquidity": "0"}, set()),
    ],
)
def test_listings_are_filtered(local: Web, path: str, params: dict, expected: set[str]) -> None:
    """The filters of both vendors: parents, tags, dates, closed markets, category and liquidity."""
    assert set(ids(local.get(path, **params).body)) == expected


def test_a_market_is_closed_by_its_status_or_its_time() -> None:
    """Without closed markets, one that closes later is listed; category and liquidity come from the record."""
    archive = MemoryArchive()
    times = {"past": "2026-01-01T00:00:00Z", "later": "2026-03-01T00:00:00Z", "none": None}
    for number, (name, closed_at) in enumerate(times.items()):
        archive.add_market(name, {"Yes": name}, closed_at=closed_at, category="crypto", liquidity=10 * number)
    archive.add_market("resolved", {"Yes": "r"}, status="resolved", liquidity=None)
    web = in_process(archive, clock=lambda: 1_769_904_000)
    assert set(ids(web.get("/v1/markets", include_closed="false").body)) == {"later", "none"}
    assert set(ids(web.get("/v1/markets", category="crypto", min_liquidity="10").body)) == {"later", "none"}


@pytest.mark.parametrize(
    "params",
    [{"limit": 1001}, {"sort": "volume"}, {"order": "up"}, {"search": ["a", "b"]}, {"include_closed": "maybe"},
     {"min_liquidity": "nan"}, {"tags_match": "some"}],
)  # fmt: skip
def test_listings_refuse_what_they_do_not_know(local: Web, params: dict) -> None:
    """A value that is not allowed, and a parameter given twice, are 422; a date that cannot be read is 400."""
    assert local.get("/v1/markets", **params).status == 422
    assert local.get("/v1/events", start_date_min="soon").status == 400


def test_a_misspelt_filter_is_refused(local: Web) -> None:
    """It is 422 and names the filters that there are; it never lists everything."""
    for path in ("/v1/series", "/v1/events", "/v1/markets", "/coverage"):
        answer = local.get(path, query="rain", states="open")
        assert answer.status == 422
        assert [item["loc"] for item in answer.body["detail"]] == [["query", "query"], ["query", "states"]]
        for item in answer.body["detail"]:
            assert {"limit", "cursor", "search", "sort", "order", "status", "tags"} <= set(
                re.findall(r"\w+", item["msg"])
            )


texts = st.sampled_from(["", "a", "b", "Ab", "B a", "ß", "2026-01-02T00:00:00Z"])
drawn_records = st.lists(
    st.fixed_dictionaries(
        {"slug": texts},
        optional={
            "title": texts, "question": texts, "status": texts, "start_date": texts, "updated_at": texts,
            "tags": st.lists(st.sampled_from(["a", "b"])), "event_slug": texts,
        },
    ),
    max_size=12,
)  # fmt: skip
drawn_queries = st.fixed_dictionaries(
    {"limit": st.integers(1, 5)},
    optional={
        "search": texts,
        "sort": st.sampled_from(["updated_at", "start_date", "end_date", "id", "slug", "title", "status"]),
        "order": st.sampled_from(["asc", "desc"]),
        "status": texts,
        "tags": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2, unique=True),
        "tags_match": st.sampled_from(["any", "all"]),
        "start_date_min": st.just("1970-01-01"),
        "event_slug": texts,
    },
)


def listed_plainly(markets: list[dict], query: dict[str, Any]) -> list[str]:
    """Ids of a listing, filtered and sorted record by record."""

    def passes(market: dict) -> bool:
        text = " ".join(str(market[n]) for n in ("id", "slug", "title", "question") if market.get(n) is not None)
        tags, wanted = market.get("tags", []), query.get("tags", [])
        matches = any if query.get("tags_match", "any") == "any" else all
        return (
            all(word in text.casefold() for word in query.get("search", "").casefold().split())
            and ("status" not in query or market.get("status") == query["status"])
            and (not wanted or matches(tag in tags for tag in wanted))
            and ("start_date_min" not in query or str(market.get("start_date", "")).startswith("2026"))
            and ("event_slug" not in query or market.get("event_slug") == query["event_slug"])
        )

    sort = query.get("sort", "updated_at")
    field = "question" if sort == "title" else sort
    passing = sorted(filter(passes, markets), key=lambda m: m["id"])
    dated = [m for m in passing if m.get(field) is not None]
    dated.sort(key=lambda m: str(m[field]), reverse=query.get("order", "desc") == "desc")
    return [m["id"] for m in dated + [m for m in passing if m.get(field) is None]]


drawn_archive = MemoryArchive()
drawn_web = in_process(drawn_archive)


@given(drawn_records, drawn_queries)
def test_a_listing_is_what_a_plain_loop_lists(markets: list[dict], query: dict[str, Any]) -> None:
    """Filters, order and pages give what a loop over all records gives, whatever they hold."""
    drawn_archive._records["markets"].clear()
    drawn_archive._version += 1
    for number, market in enumerate(markets):
        drawn_archive.add_record("markets", id=f"{number:02}", tokens=[], **market)
    pages = drawn_web.walk("/v1/markets", **query)
    listed = [record_id for body in pages for record_id in ids(body)]
    assert listed == listed_plainly(drawn_archive.records("markets"), query)


def test_a_listing_goes_on_behind_a_record_that_has_changed() -> None:
    """A record that no longer passes the filter, or a new one, neither ends the listing nor repeats or skips others."""
    archive = MemoryArchive()
    for number in range(9):
        archive.add_market(f"{number}", {"Yes": f"y{number}"}, status="open")
    web, asked = in_process(archive), {"limit": 3, "sort": "id", "order": "asc", "status": "open"}
    body = web.get("/v1/markets", **asked).body
    archive._records["markets"][2]["status"] = "closed"
    archive.add_market("5a", {"Yes": "new"}, status="open")

    def following() -> Iterator[str]:
        nonlocal body
        while (cursor := body["metadata"]["next_cursor"]) is not None:
            body = web.get("/v1/markets", cursor=cursor, **asked).body
            yield from ids(body)

    assert list(following()) == ["3", "4", "5", "5a", "6", "7", "8"]


def test_a_cursor_is_bound_to_its_listing() -> None:
    """A cursor of one listing is no cursor of another one, nor with another filter, whatever the length of an id."""
    archive = MemoryArchive()
    for number in range(9):
        archive.add_market(f"{number}" * 800, {"Yes": f"y{number}"})
    web = in_process(archive)
    cursor = web.get("/v1/markets", limit=3, search="slug").body["metadata"]["next_cursor"]
    assert len(cursor) <= 512
    assert web.get("/v1/markets", limit=50, search="slug", cursor=cursor).status == 200
    for other in ({"search": "lug"}, {"search": "slug", "sort": "id"}, {"search": "slug", "order": "asc"}, {}):
        assert web.get("/v1/markets", limit=3, cursor=cursor, **other).body == {"detail": "Invalid cursor"}
    assert web.get("/v1/events", limit=3, search="slug", cursor=cursor).status == 400


def test_one_market_has_every_detail(web: Web) -> None:
    """By id or slug, with the fields of the single market present though unknown."""
    by_id, by_slug = web.get("/v1/markets/m1"), web.get("/v1/markets/will-it-rain")
    assert by_id.body == by_slug.body
    detail = {"description", "closed_at", "resolved_token_id", "resolved_token_label", "question", "tokens"}
    assert detail <= set(by_id.body)


def test_tags_health_and_usage_answer(web: Web) -> None:
    """Tags are sorted and distinct, health says ok and when, and usage counts itself."""
    assert web.get("/v1/tags").body == {"count": 2, "data": ["daily", "nature"]}
    health = web.get("/v1/health").body
    assert health["status"] == "ok"
    assert health["timestamp"].endswith("Z")
    web.session.app.state.service.limiter.clock = lambda: 1e9
    first, second = (web.get("/v1/usage").body["limits"] for _ in range(2))
    assert first["requests_remaining"] - second["requests_remaining"] == 1
    assert second["granularity_allowed"] == "1m,10m,1h,6h,1d"
    assert second["max_history_days"] == "unlimited"


def test_simulated_data_says_so() -> None:
    """A simulated archive is named so in every answer."""
    archive = MemoryArchive(simulated=True)
    archive.add_market("m", {"Yes": "1"})
    web = in_process(archive)
    assert web.get("/v1/markets/m").headers["x-simulated"] == "true"
    assert web.get("/v1/health").body["simulated"] is True
    assert "Simulated" in web.get("/openapi.json").body["info"]["description"]


BIG = 7 * 10**76


def market(market_id: str, **more: Any) -> dict[str, Any]:
    return {"market_id": market_id, "token_ids": ["1"], "token_labels": ["Yes"], **more}


def test_records_of_an_archive_are_served_as_texts_that_clients_expect(tmp_path) -> None:
    """Long numbers stay, numeric slugs and parents are texts, and an event without a title has its slug for one."""
    archive = Archive(tmp_path)
    archive.add(
        markets=[
            market("a", slug=777, event_slug=2024.0, series_id=5, condition_number=BIG, tags="politics"),
            market("b", slug="s", event_slug="e1", tags=[1, None, "a"]),
        ]
    )
    web = in_process(archive)
    assert web.get("/v1/markets/777").body["slug"] == "777"
    assert web.get("/v1/markets/a").body["condition_number"] == BIG
    assert ids(web.get("/v1/markets", event_slug="2024").body) == ["a"]
    assert sorted((e["id"], e["title"]) for e in web.get("/v1/events").body["data"]) == [("2024", "2024"), ("e1", "e1")]
    assert [s["id"] for s in web.get("/v1/series").body["data"]] == ["5"]
    assert web.get("/v1/tags").body["data"] == ["1", "a", "politics"]


def test_a_parent_is_told_by_its_id_where_there_is_one(tmp_path) -> None:
    """Two events have one slug: the filter by id gives the markets of one event, the filter by slug of both."""
    archive = Archive(tmp_path)
    archive.add(markets=[market(f"m{k}", event_id=f"E{k}", event_slug="same") for k in (1, 2)])
    web = in_process(archive)
    assert ids(web.get("/v1/markets", event_id="E1").body) == ["m1"]
    assert len(web.get("/v1/markets", event_slug="same").body["data"]) == 2
    assert web.get("/v1/markets", event_id="E1", event_slug="other").body["data"] == []
