"""Requests of every kind against the description: no 5xx, all JSON, all in their schema, none without a key."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service.web import LONG_ID, Web, cases
from still import SOON

from marketdata.service.server import Service

TIMES = [
    "2026-01-05T00:00:00Z",
    "2026-01-05",
    "1767571200",
    "2026-01-05T02:00:00+01:00",
    "0",
    "9999-12-31",
    "",
    "x",
    "-1",
]
GOOD = {
    "start_ts": TIMES, "end_ts": TIMES, "resolution": ["1m", "10m", "1h", "6h", "1d", "2h", ""],
    "limit": ["1", "2", "3", "100", "200", "0", "201", "1e2"], "cursor": ["", "x", "null"],
    "search": ["will", "rain", "", "%", "*"], "sort": ["updated_at", "id", "x"], "order": ["asc", "desc", "up"],
    "tags": ["nature", "a,b"], "event_slug": ["rain", "none"], "series_id": ["s1"], "start_date_min": TIMES,
}  # fmt: skip
NAMES = ["m1", "m3", "wide", "will-it-rain", LONG_ID, "2", "w7", "none", "..", "a/b", "", "x" * 200, "x" * 201]
SHAPES = [
    "/v1/markets/{}/books", "/v1/markets/{}/prices", "/v1/markets/{}/metrics", "/v1/tokens/{}/books",
    "/v1/tokens/{}/prices", "/v1/markets/{}", "/v1/series", "/v1/events", "/v1/markets", "/v1/tags", "/v1/health",
    "/v1/usage", "/v1/{}", "/{}",
]  # fmt: skip


@st.composite
def requests_(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], str]:
    """A path, its parameters, and the shape that the path was made from."""
    shape = draw(st.sampled_from(SHAPES))
    name = draw(st.sampled_from(NAMES) | st.text(st.characters(codec="utf-8"), max_size=12))
    history = "books" in shape or "prices" in shape or "metrics" in shape
    params = [(k, draw(st.sampled_from(GOOD[k]))) for k in ("start_ts", "end_ts", "resolution") if history]
    values = st.sampled_from([v for some in GOOD.values() for v in some]) | st.text(max_size=8)
    more = st.tuples(st.sampled_from(list(GOOD)), values)
    params += draw(st.lists(more, max_size=3))
    return shape.format(quote(name, safe="")), params, shape


@pytest.fixture(scope="module")
def document(local: Service) -> dict[str, Any]:
    return requests.get(local.base_url + "/openapi.json", timeout=SOON).json()


def declared(document: dict[str, Any], shape: str, status: int) -> dict[str, Any] | None:
    for path, item in document["paths"].items():
        if path.replace("{id_or_slug}", "{}").replace("{token_id}", "{}") == shape:
            assert str(status) in item["get"]["responses"], f"{shape} does not declare {status}"
            schema = item["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
            return {**schema, "components": document["components"]}
    return None


def check(local: Service, document: dict[str, Any], asked: tuple[str, list[tuple[str, str]], str]) -> None:
    path, params, shape = asked
    url = local.base_url + path
    prepared = requests.Request("GET", url, params=params, headers={"X-API-Key": str(local.api_key)}).prepare()
    with requests.Session() as session:
        answer = session.send(prepared, timeout=SOON)
        if prepared.path_url.partition("?")[0] == "/":
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            return
        body = answer.json()
        assert answer.headers["content-type"] == "application/json"
        assert answer.status_code < 500
        schema = declared(document, shape, answer.status_code) if answer.url == prepared.url else None
        if schema is not None and not (answer.status_code == 404 and body == {"detail": "Not Found"}):
            jsonschema.validate(body, schema)
        if shape.startswith("/v1/"):
            del prepared.headers["X-API-Key"]
            assert session.send(prepared, timeout=SOON).status_code == (401 if "/v1/" in str(prepared.url) else 404)


QUIET = [*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]


@pytest.mark.fault("G14")
@settings(max_examples=200, deadline=None, suppress_health_check=QUIET)
@given(requests_())
def test_no_request_finds_a_fault(local: Service, document: dict[str, Any], asked: Any) -> None:
    """Whatever is asked, the answer is JSON, declared, in its schema, no 5xx; and without a key it is 401."""
    check(local, document, asked)


@pytest.mark.fault("G14")
@pytest.mark.soak
def test_fifty_thousand_requests_find_no_fault(local: Service, document: dict[str, Any]) -> None:
    """The same for 50,000 requests, half of them without a key."""
    count = 0

    @settings(max_examples=cases(25_000), deadline=None, suppress_health_check=QUIET)
    @given(requests_())
    def ask(asked: Any) -> None:
        nonlocal count
        check(local, document, asked)
        count += 1

    ask()
    print(f"\n{count} requests with a key, and again without one")
    assert count >= cases(25_000)


def test_a_walk_of_the_fuzzed_service_still_answers(ask: Web) -> None:
    """After all that the service answers as before."""
    assert ask.history("books", limit=200).status == 200
