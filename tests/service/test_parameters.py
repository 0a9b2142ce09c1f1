"""Rows S9 and S16 to S23: how parameters and paths are read."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, unquote

import pytest
import requests
from service.memory import MINUTE, MemoryArchive
from service.web import START, Web, raw, strict_json, window
from starlette.exceptions import HTTPException

from marketdata.service.errors import shown
from marketdata.service.parameters import read_time
from marketdata.service.server import Service, serve
from marketdata.times import to_text

RANGE = "start_ts=2026-01-05T00:00:00Z&end_ts=2026-01-05T01:00:00Z"


@pytest.fixture
def target(local: Service):
    """Ask for a request target exactly as it is written, which no client library would leave alone."""

    def asked(path: str) -> tuple[int, dict]:
        text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {local.api_key}\r\nConnection: close\r\n\r\n"
        status, headers, body = raw(local.base_url, text.encode("latin-1"))
        assert headers["content-type"] == "application/json"
        return status, strict_json(body)

    return asked


def books(more: str) -> str:
    return f"/v1/markets/m1/books?{RANGE}&{more}"


@pytest.mark.fault("S9")
def test_a_trailing_slash_is_404_and_never_a_redirect(target) -> None:
    """Paths with a slash more are unknown, so no Location is built from a Host header."""
    for path in ("/v1/markets/", "/v1/health/", "/v1/markets/m1/books/?" + RANGE, "/v1/markets/m1/", "//v1/health"):
        assert target(path)[0] == 404


@pytest.mark.fault("S16")
@pytest.mark.parametrize("limit", ["0", "-1", "201", "1e9", "abc", "", "9" * 5000])
def test_a_limit_off_the_range_is_422(target, limit: str) -> None:
    """A limit that is no number from 1 to 200 is 422 at that parameter."""
    status, body = target(books(f"resolution=1m&limit={limit}"))
    assert status == 422
    assert [p["loc"] for p in body["detail"]] == [["query", "limit"]]


@pytest.mark.fault("S17")
@pytest.mark.parametrize("limit", ["1.0", "%20%205", "+5", "1_000", "%D9%A3", "5&limit=7", "5&limit=5", "0x10", "5%0A"])
def test_a_limit_has_digits_only_and_stands_once(target, limit: str) -> None:
    """No fraction, space, sign, separator or other script, and one value."""
    status, body = target(books(f"resolution=1m&limit={limit}"))
    assert status == 422
    assert body["detail"][0]["loc"] == ["query", "limit"]


@pytest.mark.fault("S18")
def test_a_limit_below_the_tokens_names_the_minimum(target) -> None:
    """The text of the interface, with the number of tokens."""
    for view in ("books", "prices"):
        asked = f"/v1/markets/m3/{view}?{RANGE}&resolution=1m&limit=2"
        assert target(asked) == (400, {"detail": "limit too small for this market. Minimum required: 3"})
    assert target(f"/v1/markets/m3/metrics?{RANGE}&resolution=1m&limit=1")[0] == 200
    assert target(f"/v1/tokens/31/prices?{RANGE}&resolution=1m&limit=1")[0] == 200


@pytest.mark.fault("S19")
def test_too_many_tokens_name_the_token_endpoint(target) -> None:
    """More than 200 tokens are 400 whatever the limit, and the text says where to ask."""
    for limit in (1, 100, 200):
        status, body = target(f"/v1/markets/wide/books?{RANGE}&resolution=1m&limit={limit}")
        assert status == 400
        assert "more than 200 tokens" in body["detail"]
        assert "single-token books endpoint" in body["detail"]


@pytest.mark.fault("S20")
def test_start_must_be_before_end(target) -> None:
    """An empty and a turned range are 400."""
    for start, end in (("5", "5"), ("6", "5"), ("2026-01-05T01:00:00+01:00", "2026-01-05")):
        asked = f"/v1/markets/m1/books?start_ts={quote(start)}&end_ts={quote(end)}&resolution=1m"
        status, body = target(asked)
        assert status == 400
        assert "start_ts" in body["detail"]


GOOD_TIMES = {
    "2026-01-05T00:00:00Z": START,
    "2026-01-05t00:00:00z": START,
    "2026-01-05T05:30:00%2B05:30": START,
    "2026-01-05T05:30:00+05:30": START,
    "2026-01-05T05:30:00.0+0530": START,
    "2026-01-05T00:00:00": START,
    "2026-01-05%2000:00": START,
    "2026-01-05": START,
    "1767571200": START,
    "1767571200.000001": START + 1,
    "0": 0,
    "253402300799": None,
}
BAD_TIMES = [
    "1767571200000", "-5", "1e9", "9" * 30, "0000-01-01", "10000-01-01", "2026-01-05T24:00:00Z", "2026-01-05T00:00:60Z",
    "2026-02-30", "", "abc", "nan", "inf", "%D9%A1%D9%A7", "2026-01-05T00:00:00Z&start_ts=1", "%00", "%FF", "1%20",
    "%201", "1_000", "2026-W01", "now", "2026-01-05T00:00:00+24:00", "0001-01-01T00:00:00%2B01:00",
    "2026-01-05T00:00:00%20Z",
]  # fmt: skip


@pytest.mark.fault("S21")
@pytest.mark.parametrize("text", GOOD_TIMES)
def test_times_that_are_read(target, text: str) -> None:
    """Z, offset, no zone, whole and fractional seconds, and a plus that became a space."""
    status, _ = target(f"/v1/markets/m1/prices?start_ts={text}&end_ts=9999-12-31&resolution=1d&limit=2")
    expected = GOOD_TIMES[text]
    if expected is None:  # the last second of the year 9999 is behind the end
        assert status == 400
        return
    assert status == 200
    assert read_time(unquote(text.replace("%2B", "+")), "t") == expected


@pytest.mark.fault("S21")
@pytest.mark.parametrize("text", BAD_TIMES)
def test_times_that_are_refused(target, text: str) -> None:
    """Milliseconds, negative numbers, exponents, years off the calendar, leap seconds and junk are 400."""
    for asked in (f"start_ts={text}&end_ts=9999-12-31", f"start_ts=0&end_ts={text.replace('start', 'end')}"):
        status, body = target(f"/v1/markets/m1/prices?{asked}&resolution=1d")
        assert status == 400
        assert "_ts" in body["detail"]


@pytest.mark.fault("S21")
def test_a_space_between_date_and_time_is_no_lost_plus() -> None:
    """Only a space behind a time of day was a plus."""
    assert to_text(read_time("2026-01-05 05:30", "t")) == "2026-01-05T05:30:00Z"
    assert to_text(read_time("2026-01-05T05:30:00 05:30", "t")) == "2026-01-05T00:00:00Z"
    with pytest.raises(HTTPException, match="Invalid timestamp"):
        read_time("2026-01-05 05", "t")


@pytest.mark.fault("S22")
@pytest.mark.parametrize(
    "resolution", ["resolution=1M", "resolution=1H", "resolution=1m%20", "a=1", "resolution=", "resolution=5m"]
)
def test_a_resolution_is_one_of_five(target, resolution: str) -> None:
    """Anything else, or none, is 422; a wrong one names the five."""
    status, body = target(books(resolution))
    assert status == 422
    assert body["detail"][0]["loc"] == ["query", "resolution"]
    if resolution != "a=1":
        assert body["detail"][0]["type"] == "enum"
        assert all(r in body["detail"][0]["msg"] for r in ("1m", "10m", "1h", "6h", "1d"))


@pytest.mark.fault("S22")
def test_a_resolution_stands_once(target) -> None:
    """Two resolutions, also two equal ones, are 422."""
    for pair in ("resolution=1m&resolution=1m", "resolution=1m&resolution=1h"):
        assert target(books(pair))[0] == 422


def test_422_says_where_what_and_which_kind_and_no_more(target) -> None:
    """A 422 has one object per parameter with loc, msg and type; the input is not repeated."""
    status, body = target("/v1/markets/m1/books?resolution=canary&limit=canary")
    assert status == 422
    assert {tuple(p["loc"]) for p in body["detail"]} == {
        ("query", "start_ts"), ("query", "end_ts"), ("query", "resolution"), ("query", "limit"),
    }  # fmt: skip
    assert all(set(p) == {"loc", "msg", "type"} for p in body["detail"])
    assert "canary" not in str(body)


ODD_SLUGS = ["a/b", "..", ".", "a b", "a%2Fb", "x/books", "é", "e\u0301", "?", "#", "+", "😀" * 200, "m;1", "\u202eabc"]


@pytest.fixture(scope="module")
def odd() -> Iterator[Service]:
    archive = MemoryArchive()
    archive.add_market("x", {"Yes": "1"}, slug="x")
    for i, slug in enumerate(ODD_SLUGS):
        archive.add_market(f"id{i}", {"Yes": f"t{i}"}, slug=slug)
        archive.put("prices", f"id{i}", f"t{i}", START + i * MINUTE, 0.5)
    with serve(archive) as service:
        yield service


@pytest.mark.fault("S23")
@pytest.mark.parametrize("number", range(len(ODD_SLUGS)))
def test_a_slug_is_what_stands_between_the_slashes(odd: Service, number: int) -> None:
    """Encoded slashes, dots and other script are part of the slug; each answers with its own data."""
    slug = quote(ODD_SLUGS[number], safe="")
    for path in (f"/v1/markets/{slug}", f"/v1/markets/{slug}/prices?{RANGE}&resolution=1m"):
        text = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {odd.api_key}\r\n\r\n"
        status, _, body = raw(odd.base_url, text.encode())
        found = strict_json(body)
        assert status == 200
        assert found.get("id", found.get("market_id")) == f"id{number}"
        if "data" in found:
            assert found["data"]["Yes"] == [{"t": to_text(START + number * MINUTE), "p": 0.5}]


@pytest.mark.fault("S23")
@pytest.mark.parametrize("slug", ["x" * 201, "%00", "a%0Ab", "%7F", "%C2%85", "%ff", "%C3", "%ED%A0%80", "😀" * 201])
@pytest.mark.parametrize("path", ["/v1/markets/{}", "/v1/markets/{}/books?" + RANGE + "&resolution=1m"])
def test_a_slug_that_can_not_be_is_422(target, slug: str, path: str) -> None:
    """More than 200 characters, control characters and invalid UTF-8 are 422."""
    encoded = quote(slug, safe="%")
    status, body = target(path.format(encoded))
    assert status == 422
    assert body["detail"][0]["loc"] == ["path", "id_or_slug"]


@pytest.mark.fault("S23")
def test_no_slug_is_no_market(target) -> None:
    """An empty slug is 422, for tokens too."""
    for path in ("/v1/markets//books", "/v1/markets//metrics", "/v1/tokens//prices"):
        status, body = target(f"{path}?{RANGE}&resolution=1m")
        assert status == 422
        assert body["detail"][0]["loc"][0] == "path"


@pytest.mark.fault("S23")
@pytest.mark.parametrize("slug", ["nope", "..", "%2e%2e", "a%2Fb", "x" * 200, "%E2%80%AEtxt", "%3Cscript%3E", "m1%20"])
def test_an_unknown_slug_is_404_with_its_name(target, slug: str) -> None:
    """The text of the interface names what was asked, with what does not print escaped."""
    expected = (404, {"detail": f"Market not found: {shown(unquote(slug))}"})
    assert target(f"/v1/markets/{slug}") == expected
    assert target(f"/v1/markets/{slug}/books?{RANGE}&resolution=1m") == expected
    assert target(f"/v1/tokens/{slug}/books?{RANGE}&resolution=1m")[1]["detail"].startswith("Token not found: ")
    assert "\u202e" not in str(target(f"/v1/markets/{slug}"))


@pytest.mark.parametrize("name", ["levels", "request", "query", "kwargs"])
def test_a_name_of_the_framework_is_no_parameter(ask: Web, name: str) -> None:
    """History ignores parameters that the interface does not have."""
    assert ask.get("/v1/markets/m1/books", **{name: "x"}, **window()).status == 200


def test_a_session_may_ask_by_id_or_slug(ask: Web) -> None:
    """Id and slug are the same market, and the answer has the id."""
    # A cursor holds the second in which it was given, so the whole range stands on one page.
    by_id, by_slug = ask.history("prices", hours=0.5), ask.history("prices", "will-it-rain", hours=0.5)
    assert by_id.body == by_slug.body
    assert by_id.body["metadata"]["next_cursor"] is None
    assert by_slug.body["market_id"] == "m1"
    assert isinstance(ask.session, requests.Session)
