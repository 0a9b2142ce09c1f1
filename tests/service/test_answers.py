"""Every answer: JSON, headers, refusals and faults."""

from __future__ import annotations

import re

import jsonschema
import pytest
from reference.memory import MemoryArchive
from reference.web import LONG_ID, START, Web, in_process, window

from marketdata.errors import ArchiveCorruptError

BOOKS = "/v1/markets/{id_or_slug}/books"


@pytest.mark.fault("S25")
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "TRACE", "FOO"])
def test_other_methods_are_405(local: Web, method: str) -> None:
    """405 with Allow and a JSON body."""
    for path in ("/v1/health", "/v1/markets/m1/books", "/v1/markets"):
        answer = local.session.request(method, path, headers={"X-API-Key": "key"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
        assert answer.headers["content-type"] == "application/json"
        assert answer.content == b"" if method == "HEAD" else answer.json() == {"detail": "Method Not Allowed"}


@pytest.mark.fault("S26", "S39")
def test_every_refusal_is_json(local: Web) -> None:
    """Whatever the status, the body is `{"detail": ...}`, with the headers of every answer and none for other sites."""
    cases = {
        400: local.history("books", cursor="x"),
        401: local.as_key(None).get("/v1/x"),
        403: in_process(MemoryArchive(), plans={"local": {"views": []}}).history("books"),
        404: local.get("/v1/nowhere"),
        422: local.history("books", limit="x"),
        429: in_process(MemoryArchive(), plans={"local": {"requests_per_minute": 1}}).as_key("key"),
    }
    cases[429].get("/v1/health")  # type: ignore[union-attr]
    cases[429] = cases[429].get("/v1/health", {"Origin": "http://evil.example"})  # type: ignore[union-attr]
    for expected, answer in cases.items():
        assert answer.status == expected
        assert set(answer.body) == {"detail"}
        assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.fault("S27")
@pytest.mark.parametrize(
    "problem",
    [
        OSError(5, "Input/output error", "/secret/path"),
        ArchiveCorruptError("/secret/path is damaged"),
        RecursionError(),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_fault_is_500_and_tells_nothing(problem: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A fault is answered with 500 `Failed to fetch data.`; the log has its cause under the answer's id, and no key."""

    class Failing(MemoryArchive):
        def columns(self, *_: object) -> None:
            raise problem

        def find_market(self, id_or_slug: str) -> dict | None:
            if id_or_slug == "broken":
                raise problem
            return super().find_market(id_or_slug)

    archive = Failing()
    archive.add_market("m", {"Yes": "1"})
    archive.put("books", "m", "1", START, ([], []))
    web = in_process(archive, keys={"a-key-of-16-letters": "local"})
    for path in ("/v1/markets/m/books", "/v1/markets/broken/books", "/v1/markets/broken"):
        answer = web.get(path, **window())
        assert (answer.status, answer.body) == (500, {"detail": "Failed to fetch data."})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert f"request {answer.headers['x-request-id']} failed" in caplog.text
    assert web.get("/v1/health").status == 200
    assert "a-key-of-16-letters" not in caplog.text


def test_the_clock_of_the_service_dates_its_answers() -> None:
    """With a clock, health and the Date of every answer are its time."""
    web = in_process(MemoryArchive(), clock=lambda: START / 1e6)
    answer = web.get("/v1/health")
    assert answer.headers["date"] == "Mon, 05 Jan 2026 00:00:00 GMT"
    assert answer.body["timestamp"] == "2026-01-05T00:00:00Z"


def test_any_server_may_start_and_stop_it() -> None:
    """The application has the events of a server's life, which some servers insist on."""
    web = in_process(MemoryArchive())
    with web.session:
        assert web.get("/v1/health").status == 200


@pytest.fixture(scope="module")
def document(local: Web) -> dict:
    """The description, which needs no key."""
    return local.as_key(None).get("/openapi.json").body


def test_the_description_has_the_names_of_the_interface(document: dict) -> None:
    """Version, operation id, tag, key scheme, limits and statuses follow the interface; nothing else is named."""
    assert document["info"]["version"] == "0.1.1"
    books = document["paths"][BOOKS]["get"]
    assert books["operationId"] == "get_market_books_v1_markets__id_or_slug__books_get"
    assert books["tags"] == ["History"]
    scheme = document["components"]["securitySchemes"]["APIKeyHeader"]
    assert (scheme["type"], scheme["in"], scheme["name"]) == ("apiKey", "header", "X-API-Key")
    parameters = {p["name"]: p["schema"] for p in books["parameters"]}
    assert list(parameters) == ["id_or_slug", "start_ts", "end_ts", "resolution", "limit", "cursor"]
    slug, limit = parameters["id_or_slug"], parameters["limit"]
    assert (slug["minLength"], slug["maxLength"]) == (1, 200)
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 200, 100)
    assert parameters["resolution"]["enum"] == ["1m", "10m", "1h", "6h", "1d"]
    for path, item in document["paths"].items():
        assert path.startswith("/v1/")
        assert item["get"]["security"] == [{"APIKeyHeader": []}]
        assert {"200", "400", "401", "422", "429", "500"} <= set(item["get"]["responses"])
    assert {"403", "404"} <= set(books["responses"])


TAKEN = ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.5+05:30", "2026-01-31 12:00", "2026-01-31", "20260131T12",
         "1769860800", "1769860800.25"]  # fmt: skip


def test_the_description_has_patterns_of_times_and_ids(document: dict, local: Web) -> None:
    """What the service takes has the pattern, and what has it not is refused; times of answers have theirs."""
    schemas = {p["name"]: p["schema"] for p in document["paths"][BOOKS]["get"]["parameters"]}
    time, name = schemas["start_ts"]["pattern"], schemas["id_or_slug"]["pattern"]
    end = "2027-01-01"
    for text in TAKEN:
        assert re.search(time, text)
        assert local.get("/v1/markets/m1/books", start_ts=text, end_ts=end, resolution="1d").status == 200, text
    for text in ("yesterday", "-5", "1e9", "", "NaN"):
        assert not re.search(time, text)
        assert local.get("/v1/markets/m1/books", start_ts=text, end_ts=end, resolution="1d").status == 400, text
    assert all(re.search(name, text) for text in ("m1", "é-–", "a/b", " "))
    assert not any(re.search(name, text) for text in ("", "a\nb", "\x00", "\x7f"))
    t = document["components"]["schemas"]["OrderBookSnapshot"]["properties"]["t"]
    assert re.search(t["pattern"], "2026-01-31T12:00:00.25Z")
    assert not re.search(t["pattern"], "2026-01-31")


def test_every_answer_is_in_its_schema(local: Web, document: dict) -> None:
    """Answers of every route, good and refused, validate against what the document declares for them."""
    asked = {
        "/v1/markets/{id_or_slug}": "/v1/markets/m1",
        **{f"/v1/markets/{{id_or_slug}}/{view}": f"/v1/markets/m1/{view}" for view in ("books", "prices", "metrics")},
        **{f"/v1/tokens/{{token_id}}/{view}": f"/v1/tokens/{LONG_ID}/{view}" for view in ("books", "prices")},
    }
    for path, item in document["paths"].items():
        target = asked.get(path, path)
        history = window(0.2) if "{" in path and path.count("/") > 3 else {}
        for params in (history, {**history, "limit": "0"}, {**history, "cursor": "x"}, {"unknown": "x"}):
            answer = local.get(target, **params)
            schema = item["get"]["responses"][str(answer.status)]["content"]["application/json"]["schema"]
            jsonschema.validate(answer.body, {**schema, "components": document["components"]})
