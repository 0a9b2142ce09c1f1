from __future__ import annotations

import itertools
import math
import re
from functools import cache
from typing import Any

import pytest
from contract.conftest import Subject
from reference.web import Web

from marketdata.resolution import Resolution
from marketdata.times import parse_iso, to_text

VIEWS = ("books", "prices", "metrics")
RESOLUTIONS = [r.value for r in Resolution]
ROUTES = (
    "/v1/series", "/v1/events", "/v1/markets", "/v1/tags", "/v1/health", "/v1/usage", "/v1/markets/x",
    "/v1/markets/x/books", "/v1/markets/x/prices", "/v1/markets/x/metrics", "/v1/tokens/x/books", "/v1/tokens/x/prices",
)  # fmt: skip


@cache
def whole(web: Web, path: str, **params: Any) -> dict[str | None, list[dict[str, Any]]]:
    """All points of a walk by label; None stands for a list without labels."""
    out: dict[str | None, list[dict[str, Any]]] = {}
    for body in web.walk(path, **params):
        groups = body["data"] if isinstance(body["data"], dict) else {None: body["data"]}
        points = sum(map(len, groups.values()))
        assert body["metadata"]["count"] == points, "count is the number of points: label x bucket"
        assert body["metadata"]["limit"] == params.get("limit", 100)
        for label, rows in groups.items():
            out.setdefault(label, []).extend(map(plain, rows))
    return out


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A point by what the interface says of it: its time in one form, and no fields that only this service has."""
    known = {"t", "bids", "asks"} if "bids" in row else {"t", "p"} if "p" in row else set(row)
    numbers = {name: x for name, x in row.items() if name in known and not isinstance(x, str)}
    return {"t": to_text(parse_iso(row["t"])), **numbers}


def value(row: dict[str, Any]) -> Any:
    return {k: v for k, v in row.items() if k != "t"}


def test_every_route_needs_a_key(web: Web) -> None:
    """Interface 5.1, 5.4: without a key, and with a wrong one, every /v1 route is 401 with a detail."""
    for path, key in itertools.product(ROUTES, (None, "no such key")):
        answer = Web(web.base_url, key, web.session).get(path)
        assert (answer.status, answer.body) == (401, {"detail": "Invalid or expired API key."}), path


def test_health_usage_and_tags(web: Web) -> None:
    """Readings: health, usage and tags have these fields."""
    assert web.get("/v1/health").body["status"] == "ok"
    tags = web.get("/v1/tags").body
    assert tags["count"] == len(tags["data"])
    usage = web.get("/v1/usage").body
    limits = usage["limits"]
    assert {"plan", "organization"} <= set(usage)
    assert 0 <= limits["requests_remaining"] <= limits["requests_per_minute"]
    assert [type(limits[name]) for name in ("granularity_allowed", "max_history_days")] == [str, str]
    assert isinstance(usage["reset_at"], int)


def test_listings_are_paged(web: Web) -> None:
    """Readings: a listing has records and metadata, and its pages repeat nothing."""
    for kind in ("series", "events", "markets"):
        first = web.get(f"/v1/{kind}", limit=2).body
        assert set(first) == {"data", "metadata"}
        assert first["metadata"]["count"] == len(first["data"]) <= 2
        ids = [r["id"] for r in first["data"]]
        if first["metadata"]["next_cursor"]:
            second = web.get(f"/v1/{kind}", limit=2, cursor=first["metadata"]["next_cursor"]).body
            ids += [r["id"] for r in second["data"]]
        assert len(ids) == len(set(ids))
        assert all(isinstance(i, str) for i in ids)


def test_markets_carry_their_tokens(web: Web, subject: Subject) -> None:
    """Readings: a market record has id, slug, question and tokens, and a single market has its details."""
    for record in web.get("/v1/markets", limit=5).body["data"]:
        assert {"id", "slug", "question", "tokens"} <= set(record)
        assert all({"id", "label"} <= set(token) for token in record["tokens"])
    one = web.get(f"/v1/markets/{subject.market['id']}").body
    assert {"description", "closed_at", "resolved_token_id", "resolved_token_label"} <= set(one)
    assert web.get(f"/v1/markets/{subject.market['slug']}").body["id"] == one["id"]


def test_an_event_filters_its_markets(web: Web, subject: Subject) -> None:
    """Interface 4.5: the markets listing can be filtered by an event slug."""
    slug = subject.market.get("event_slug")
    if not slug:
        pytest.skip("the market names no event")
    assert subject.market["id"] in [r["id"] for b in web.walk("/v1/markets", event_slug=slug) for r in b["data"]]
    assert web.get("/v1/markets", event_slug="no-such-event-at-all").body["data"] == []


def test_what_is_unknown_is_404(web: Web, subject: Subject) -> None:
    """Interface 7: the texts of an unknown market and token."""
    for view in VIEWS:
        answer = web.get(f"/v1/markets/no-such-market/{view}", resolution="1d", **subject.range)
        assert (answer.status, answer.body) == (404, {"detail": "Market not found: no-such-market"})
    answer = web.get("/v1/tokens/no-such-token/prices", resolution="1d", **subject.range)
    assert (answer.status, answer.body) == (404, {"detail": "Token not found: no-such-token"})


def test_envelopes(web: Web, subject: Subject) -> None:
    """Interface 2.2, 2.5, 2.6: the fields of the three bodies, and labels that are those of tokens."""
    for view in VIEWS:
        body = web.get(subject.path(view), resolution="1h", **subject.range).body
        assert (body["market_id"], body["resolution"]) == (subject.market["id"], "1h")
        if view == "metrics":
            assert isinstance(body["data"], list)
        else:
            assert body["tokens"] == {t["label"]: t["id"] for t in subject.market["tokens"]}
            assert set(body["data"]) <= set(body["tokens"])


def test_points_are_buckets_of_the_range(web: Web, subject: Subject) -> None:
    """Interface 2.3, 4.1 and readings: ``t`` is the start of a bucket, rising, inside [floor(start), end)."""
    for resolution, view in itertools.product(RESOLUTIONS, VIEWS):
        width = Resolution.of(resolution).micros
        low, high = parse_iso(subject.start) // width * width, parse_iso(subject.end)
        for rows in whole(web, subject.path(view), resolution=resolution, limit=200, **subject.range).values():
            times = [parse_iso(row["t"]) for row in rows]
            assert times == sorted(set(times))
            assert all(t % width == 0 and low <= t < high for t in times)


def test_books_are_best_first(web: Web, subject: Subject) -> None:
    """Interface 2.3: levels are pairs of price and size, and the best is first."""
    for rows in whole(web, subject.path("books"), resolution="1m", limit=200, **subject.range).values():
        for row in rows:
            assert set(row) >= {"t", "bids", "asks"}
            for side, sign in (("bids", -1), ("asks", 1)):
                assert all(len(level) == 2 for level in row[side])
                prices = [sign * price for price, _ in row[side]]
                assert prices == sorted(prices)


def test_prices_are_probabilities_and_metrics_numbers(web: Web, subject: Subject) -> None:
    """Interface 2.5, 2.6: p is 0 to 1 or null, and metrics are numbers or null."""
    for rows in whole(web, subject.path("prices"), resolution="1m", limit=200, **subject.range).values():
        assert all(row["p"] is None or 0 <= row["p"] <= 1 for row in rows)
    for row in whole(web, subject.path("metrics"), resolution="1m", limit=200, **subject.range)[None]:
        assert {"t", "volume", "liquidity", "spread"} <= set(row)


def test_any_page_size_gives_the_same_points(web: Web, subject: Subject) -> None:
    """Interface 4.1: following next_cursor until it is null is complete, whatever the limit."""
    for view in VIEWS:
        least = 1 if view == "metrics" else len(subject.labels)
        small, large = (
            whole(web, subject.path(view), resolution="10m", limit=n, **subject.range) for n in (least + 1, 200)
        )
        assert small == large


@pytest.mark.parametrize("view", ["books", "prices"])
def test_a_page_is_whole_buckets(web: Web, subject: Subject, view: str) -> None:
    """Readings: all points of a bucket are on one page, and a limit below the tokens names the minimum."""
    seen: set[str] = set()
    for body in web.walk(subject.path(view), resolution="10m", limit=len(subject.labels), **subject.range):
        times = {row["t"] for rows in body["data"].values() for row in rows}
        assert not times & seen
        seen |= times
    refused = web.get(subject.path(view), resolution="10m", limit=len(subject.labels) - 1, **subject.range)
    if len(subject.labels) > 1:
        assert refused.status == 400
        assert re.fullmatch(r"limit too small .*Minimum required: (\d+)", refused.body["detail"])


@pytest.mark.parametrize("view", ["books", "prices"])
def test_a_token_alone_is_what_its_market_says(web: Web, subject: Subject, view: str) -> None:
    """Readings: single-token history has the points of the market's view."""
    market = whole(web, subject.path(view), resolution="10m", limit=200, **subject.range)
    for token in subject.market["tokens"]:
        path = f"/v1/tokens/{token['id']}/{view}"
        assert whole(web, path, resolution="10m", limit=7, **subject.range).get(None) == market.get(token["label"], [])
        body = web.get(path, resolution="10m", **subject.range).body
        assert (body["token_id"], body["token_label"]) == (token["id"], token["label"])


def test_a_coarse_book_is_the_last_fine_one(web: Web, subject: Subject) -> None:
    """Interface 4.2: the last book of the bucket, whole, an empty one included."""
    fine = whole(web, subject.path("books"), resolution="1m", limit=200, **subject.range)
    for resolution in RESOLUTIONS[1:]:
        width = Resolution.of(resolution).micros
        coarse = whole(web, subject.path("books"), resolution=resolution, limit=200, **subject.range)
        for label, rows in fine.items():
            last = {parse_iso(row["t"]) // width: value(row) for row in rows}
            assert {parse_iso(row["t"]) // width: value(row) for row in coarse[label]} == last


@pytest.mark.parametrize("view", ["prices", "metrics"])
def test_a_coarse_mean_is_over_the_fine_points(web: Web, subject: Subject, view: str) -> None:
    """Interface 4.3, 4.4 and readings: the mean of the 1m points of the bucket, nulls left out."""
    fine = whole(web, subject.path(view), resolution="1m", limit=200, **subject.range)
    for resolution in RESOLUTIONS[1:]:
        width = Resolution.of(resolution).micros
        coarse = whole(web, subject.path(view), resolution=resolution, limit=200, **subject.range)
        for rows, row in ((fine[label], row) for label in fine for row in coarse[label]):
            inside = [r for r in rows if parse_iso(r["t"]) // width * width == parse_iso(row["t"])]
            for name, mean in value(row).items():
                numbers = [r[name] for r in inside if r[name] is not None]
                assert (mean is None) == (not numbers)
                assert not numbers or math.isclose(mean, math.fsum(numbers) / len(numbers), rel_tol=1e-12)


def test_start_is_inside_and_end_is_not(web: Web, subject: Subject) -> None:
    """Interface 4.1: the range of one minute gives that minute and no other."""
    rows = next(
        r for r in whole(web, subject.path("prices"), resolution="1m", limit=200, **subject.range).values() if r
    )
    at = parse_iso(rows[len(rows) // 2]["t"])
    one = {"start_ts": to_text(at), "end_ts": to_text(at + 60_000_000)}
    for found in whole(web, subject.path("prices"), resolution="1m", **one).values():
        assert {row["t"] for row in found} <= {to_text(at)}
    seconds = {"start_ts": str(at // 10**6), "end_ts": str(at // 10**6 + 60)}
    assert whole(web, subject.path("prices"), resolution="1m", **seconds) == whole(
        web, subject.path("prices"), resolution="1m", **one
    )


def test_a_limit_is_a_number_from_1_to_200(web: Web, subject: Subject) -> None:
    """Interface 4.1 and readings: anything else is 422 at the parameter."""
    for limit in ("0", "-1", "1.5", "x"):
        answer = web.get(subject.path("metrics"), resolution="1d", limit=limit, **subject.range)
        assert (answer.status, answer.body["detail"][0]["loc"]) == (422, ["query", "limit"])


def test_a_resolution_is_one_of_five(web: Web, subject: Subject) -> None:
    """Interface 7: 422 whose message states the allowed values."""
    answer = web.get(subject.path("books"), resolution="2h", **subject.range)
    assert answer.status == 422
    problem = answer.body["detail"][0]
    assert problem["loc"] == ["query", "resolution"]
    assert all(r in problem["msg"] for r in RESOLUTIONS)


def test_a_range_that_can_not_be_is_400(web: Web, subject: Subject) -> None:
    """Interface 7 and readings: unreadable times, and start not before end."""
    for start in ("junk", "2026-01-03", "2026-01-02"):
        answer = web.get(subject.path("prices"), resolution="1d", start_ts=start, end_ts="2026-01-02")
        assert answer.status == 400
        assert isinstance(answer.body["detail"], str)


def test_a_cursor_is_good_for_its_request_only(web: Web, subject: Subject) -> None:
    """Interface 7: a changed or foreign cursor is 400."""
    asked = {"resolution": "10m", "limit": len(subject.labels), **subject.range}
    cursor = web.get(subject.path("prices"), **asked).body["metadata"]["next_cursor"]
    if cursor is None:
        pytest.skip("the range has one page only")
    assert web.get(subject.path("prices"), cursor=cursor, **asked).status == 200
    changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "E")
    for view, text, change in (
        ("prices", changed, {}),
        ("prices", "x", {}),
        ("books", cursor, {}),
        ("prices", cursor, {"resolution": "1h"}),
    ):
        assert web.get(subject.path(view), cursor=text, **(asked | change)).status == 400
