"""How parameters and paths are read."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote, unquote

import pytest
from reference.memory import MINUTE, MemoryArchive
from reference.web import START, Web, in_process

from marketdata.service.responses import printable
from marketdata.times import to_text

RANGE = "start_ts=2026-01-05T00:00:00Z&end_ts=2026-01-05T01:00:00Z"


@pytest.fixture
def target(local: Web):
    """Ask for a request target exactly as it is written, which no client library would leave alone."""
    return lambda text: ask_target(local, text)


def ask_target(web: Web, text: str) -> tuple[int, dict]:
    """Status and body; the path and query reach the application byte for byte, as from a server."""
    path, _, query = text.partition("?")
    session = web.session

    async def application(scope, receive, send) -> None:
        raw = {"raw_path": path.encode("latin-1"), "path": unquote(path), "query_string": query.encode("latin-1")}
        await session.app({**scope, **raw}, receive, send)

    transport = type(session)(application, raise_server_exceptions=False)
    answer = transport.get("/", headers={"X-API-Key": str(web.api_key), "Host": "127.0.0.1"})
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def books(more: str) -> str:
    return f"/v1/markets/m1/books?{RANGE}&{more}"


@pytest.mark.fault("S9")
def test_a_trailing_slash_is_404_and_never_a_redirect(target) -> None:
    """Paths with one slash more are unknown, so no Location is built from a Host header."""
    for path in ("/v1/markets/", "/v1/health/", "/v1/markets/m1/books/?" + RANGE, "/v1/markets/m1/", "//v1/health"):
        assert target(path)[0] == 404


@pytest.mark.fault("S16", "S17")
@pytest.mark.parametrize("limit", [
    "0", "-1", "1e9", "abc", "", "9" * 5000, "1.0",
    "%20%205", "+5", "1_000", "%D9%A3", "5&limit=7", "5&limit=5", "5%0A",
])  # fmt: skip
def test_a_limit_is_one_whole_number_in_digits(target, limit: str) -> None:
    """No fraction, exponent, space, sign, separator or other script, and one value: else 422 at that parameter."""
    for path in (books(f"resolution=1m&limit={limit}"), f"/v1/markets?limit={limit}"):
        status, body = target(path)
        assert status == 422
        assert [problem["loc"] for problem in body["detail"]] == [["query", "limit"]]


@pytest.mark.fault("S16", "S18", "S19")
def test_a_limit_that_does_not_fit_is_400_in_the_words_of_a_live_service(target) -> None:
    """Above 200 points, below the tokens of the market, and for a market of more tokens than a page has points."""
    for limit in (201, 1000):
        expected = {"detail": f"limit too large. Requested: {limit}, Maximum: 200"}
        assert target(books(f"resolution=1m&limit={limit}")) == (400, expected)
    for view in ("books", "prices"):
        status, body = target(f"/v1/markets/m3/{view}?{RANGE}&resolution=1m&limit=2")
        assert (status, body) == (400, {"detail": "limit too small for this market. Minimum required: 3"})
        for limit in (1, 200):
            status, body = target(f"/v1/markets/wide/{view}?{RANGE}&resolution=1m&limit={limit}")
            assert status == 400
            assert "more than 200 tokens" in body["detail"]
            assert f"/v1/tokens/{{token_id}}/{view}" in body["detail"]
    assert target(f"/v1/markets/m3/metrics?{RANGE}&resolution=1m&limit=1")[0] == 200
    assert target(f"/v1/tokens/31/prices?{RANGE}&resolution=1m&limit=1")[0] == 200


@pytest.mark.fault("S20")
def test_start_must_be_before_end(target) -> None:
    """An empty and a reversed range are 400."""
    for start, end in (("5", "5"), ("6", "5"), ("2026-01-05T01:00:00+01:00", "2026-01-05")):
        status, body = target(f"/v1/markets/m1/books?start_ts={quote(start)}&end_ts={quote(end)}&resolution=1m")
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
    "2026-01-05 05:30": START + 330 * MINUTE,
    "2026-01-05T05:30:00 05:30": START,
    "0": 0,
}
BAD_TIMES = [
    "1767571200000", "-5", "1e9", "9" * 30, "0000-01-01", "10000-01-01", "2026-01-05T24:00:00Z", "2026-01-05T00:00:60Z",
    "2026-02-30", "", "abc", "nan", "inf", "%D9%A1%D9%A7", "2026-01-05T00:00:00Z&start_ts=1", "%00", "%FF", "1%20",
    "%201", "1_000", "2026-W01", "now", "2026-01-05T00:00:00+24:00", "0001-01-01T00:00:00%2B01:00",
    "2026-01-05T00:00:00%20Z", "2026-01-05 05",
]  # fmt: skip


@pytest.mark.fault("S21")
def test_times_are_read_or_refused() -> None:
    """Z, offset, no zone, seconds with a fraction, and a plus that became a space; everything else is 400."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    starts = {START: 0.25, 0: 0.5, START + 330 * MINUTE: 0.75}
    for ts, price in starts.items():
        archive.put("prices", "m", "1", ts, price)
    ask = partial(ask_target, in_process(archive))
    for text, micros in GOOD_TIMES.items():
        status, body = ask(f"/v1/markets/m/prices?start_ts={text}&end_ts=9999-12-31&resolution=1m&limit=1")
        first = min(ts for ts in starts if ts >= micros)
        assert (status, body["data"]["Yes"]) == (200, [{"t": to_text(first), "p": starts[first]}])
    for text in BAD_TIMES:
        for query in (f"start_ts={text}&end_ts=9999-12-31", f"start_ts=0&end_ts={text.replace('start', 'end')}"):
            status, body = ask(f"/v1/markets/m/prices?{query}&resolution=1d")
            assert status == 400
            assert "_ts" in body["detail"]


@pytest.mark.fault("S22")
@pytest.mark.parametrize("query", ["1M", "1H", "1m%20", "", "5m", "1m&resolution=1m", "1m&resolution=1h"])
def test_a_resolution_is_one_of_the_service(target, query: str) -> None:
    """Another one is 422 and names those that there are; so is one that is given twice, or not at all."""
    status, body = target(books(f"resolution={query}"))
    assert (status, body["detail"][0]["loc"]) == (422, ["query", "resolution"])
    if "&" not in query:
        assert body["detail"][0]["type"] == "enum"
        assert body["detail"][0]["msg"].endswith("1m, 10m, 1h, 6h, 1d")
    assert target(books("a=1"))[0] == 422


def test_422_says_where_what_and_which_kind_and_no_more(target) -> None:
    """One object per parameter with loc, msg and type; the input is not repeated."""
    status, body = target("/v1/markets/m1/books?limit=canary")
    assert status == 422
    assert {tuple(p["loc"]) for p in body["detail"]} == {
        ("query", "start_ts"), ("query", "end_ts"), ("query", "resolution"), ("query", "limit"),
    }  # fmt: skip
    assert all(set(p) == {"loc", "msg", "type"} for p in body["detail"])
    assert "canary" not in str(body)


@pytest.mark.fault("S23")
def test_a_slug_is_what_is_between_the_slashes() -> None:
    """Encoded slashes, dots and other script are part of the slug; each answers with its own data."""
    slugs = ["a/b", "..", ".", "a b", "a%2Fb", "x/books", "é", "e\u0301", "?", "#", "+", "😀" * 200, "m;1", "\u202eabc"]
    archive = MemoryArchive()
    for number, slug in enumerate(slugs):
        archive.add_market(f"id{number}", {"Yes": f"t{number}"}, slug=slug)
        archive.put("prices", f"id{number}", f"t{number}", START + number * MINUTE, 0.5)
    web = in_process(archive)
    for number, slug in enumerate(slugs):
        path = f"/v1/markets/{quote(slug, safe='')}"
        assert ask_target(web, path)[1]["id"] == f"id{number}"
        status, body = ask_target(web, f"{path}/prices?{RANGE}&resolution=1m")
        assert (status, body["market_id"]) == (200, f"id{number}")
        assert body["data"]["Yes"] == [{"t": to_text(START + number * MINUTE), "p": 0.5}]


@pytest.mark.fault("S23")
@pytest.mark.parametrize(
    "slug", ["x" * 201, "%00", "a%0Ab", "%7F", "%C2%85", "%ff", "%C3", "%ED%A0%80", "😀" * 201, ""]
)
def test_a_slug_that_can_not_be_is_422(target, slug: str) -> None:
    """No character or more than 200, control characters and invalid UTF-8 are 422."""
    encoded = quote(slug, safe="%")
    for path in (f"/v1/markets/{encoded}/metrics", f"/v1/tokens/{encoded}/books"):
        status, body = target(f"{path}?{RANGE}&resolution=1m")
        assert (status, body["detail"][0]["loc"][0]) == (422, "path")
    assert target(f"/v1/markets/{encoded}")[0] == (422 if slug else 404)


@pytest.mark.fault("S23")
@pytest.mark.parametrize("slug", ["nope", "..", "%2e%2e", "a%2Fb", "x" * 200, "%E2%80%AEtxt", "%3Cscript%3E", "m1%20"])
def test_an_unknown_slug_is_404_with_its_name(target, slug: str) -> None:
    """The text of the interface names it, with what does not print escaped."""
    expected = (404, {"detail": f"Market not found: {printable(unquote(slug))}"})
    assert target(f"/v1/markets/{slug}") == expected
    assert target(f"/v1/markets/{slug}/books?{RANGE}&resolution=1m") == expected
    assert target(f"/v1/tokens/{slug}/books?{RANGE}&resolution=1m")[1]["detail"].startswith("Token not found: ")
    assert "\u202e" not in str(target(f"/v1/markets/{slug}"))


@pytest.mark.parametrize("name", ["levels", "request", "query", "context"])
def test_history_ignores_parameters_that_the_interface_does_not_have(local: Web, name: str) -> None:
    """A name of the framework is no parameter."""
    assert local.history("books", **{name: "x"}).status == 200
