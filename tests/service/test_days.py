"""A whole day of a market in one answer: as an Arrow stream and as JSON, final or not, within keys and plans."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
import requests
from service.conftest import small_archive
from service.memory import MINUTE
from service.web import START, Web, stop_minute, window
from still import SOON

import marketdata as md
from marketdata.service.server import Service, serve
from marketdata.times import DAY, to_text
from marketdata.wire.decode import decode_page, decode_pages
from marketdata.wire.models import ARROW_STREAM
from marketdata.wire.stream import decode

VIEWS = ["books", "prices", "metrics"]
RESOLUTIONS = ["1m", "10m", "1h", "6h", "1d"]


def ask_day(service: Service, path: str, **headers: str) -> requests.Response:
    """A day as an Arrow stream, unless other headers say so."""
    given = {"X-API-Key": service.api_key or "", "Accept": ARROW_STREAM, **headers}
    return requests.get(f"{service.base_url}/days/{path}", headers=given, timeout=SOON)


@pytest.mark.parametrize("resolution", RESOLUTIONS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_day_has_the_points_of_its_pages(service: Service, web: Web, view: str, resolution: str) -> None:
    """Stream, JSON and pages have the same points, labels and oddities at every resolution."""
    day = f"m1/{view}/2026-01-05?resolution={resolution}"
    stream = decode(view, ask_day(service, day).content)  # type: ignore[arg-type]
    text = decode_page(view, ask_day(service, day, Accept="application/json").content)  # type: ignore[arg-type]
    bodies = web.walk(f"/v1/markets/m1/{view}", **window(24, resolution), limit=7)
    pages = decode_pages(view, [json.dumps(body).encode() for body in bodies])[0]  # type: ignore[arg-type]
    for page in (stream, text):
        assert (page.market_id, page.resolution, page.next_cursor) == ("m1", resolution, None)
        assert page.count == len(pages)
        assert same_points(page.columns.sort(), pages)
    assert stream.labels == text.labels
    assert stream.notes == text.notes


def same_points(one: Any, other: Any) -> bool:
    numbers = (
        [one.levels(), other.levels()] if hasattr(one, "levels") else [list(c.values.values()) for c in (one, other)]
    )
    head = one.tokens == other.tokens and one.ts.tolist() == other.ts.tolist()
    return head and str([n.tolist() for n in numbers[0]]) == str([n.tolist() for n in numbers[1]])


def test_a_stream_is_read_by_arrow_alone(service: Service) -> None:
    """Other programs read one row per snapshot, with its levels as lists."""
    rows = pa.ipc.open_stream(ask_day(service, "m1/books/2026-01-05?resolution=1h").content).read_all()
    assert rows.schema.names == [
        *("market_id", "token_id", "token_label", "ts", "bid_price", "bid_size", "ask_price", "ask_size")
    ]
    assert rows["ts"][0].as_py().isoformat() == "2026-01-05T00:00:00+00:00"
    assert set(rows["token_label"].to_pylist()) == {"Yes", "No"}


def test_a_day_without_points_is_an_empty_answer(service: Service) -> None:
    """A day before all points is no error."""
    for view in VIEWS:
        page = decode(view, ask_day(service, f"m1/{view}/2020-02-29?resolution=1m").content)  # type: ignore[arg-type]
        assert (len(page.columns), page.count) == (0, 0)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("nope/books/2026-01-05?resolution=1m", 404, "Market not found: nope"),
        ("m1/trades/2026-01-05?resolution=1m", 422, "'books', 'prices' or 'metrics'"),
        ("m1/books/2026-01-05?resolution=2m", 422, "'1m', '10m'"),
        ("m1/books/2026-01-05", 422, "Field required"),
        ("m1/books/2026-01-05?resolution=1m&resolution=1h", 422, "given once"),
        ("m1/books/2026-02-30?resolution=1m", 400, "Invalid timestamp"),
        ("m1/books/1767571200?resolution=1m", 422, "pattern"),
        ("wide/prices/2026-01-05?resolution=1m", 400, "more than 10000 points; request its pages instead"),
    ],
)
def test_what_cannot_be_answered_is_an_error_of_the_interface(
    service: Service, path: str, status: int, text: str
) -> None:
    """An unknown market, view, day or resolution, and a market of too many tokens, are refused as pages are."""
    answer = ask_day(service, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert text in str(answer.json()["detail"])


def test_keys_plans_and_rates_are_those_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key 401, beyond the plan 403 with the text of a page, beyond the rate 429; a day counts as one."""
    plans = {"p": {"resolutions": ["1h"], "views": ["prices"], "max_history_days": 2, "requests_per_minute": 6}}
    clock = lambda: (START + 2 * DAY) / 1e6  # noqa: E731
    with serve(small_archive(), keys={"k": "p"}, plans=plans, clock=clock) as service:
        stop_minute(service, monkeypatch)
        assert ask_day(service, "m1/prices/2026-01-05?resolution=1h").status_code == 401
        refused = {
            "m1/books/2026-01-05?resolution=1h": "historical order books",
            "m1/prices/2026-01-05?resolution=1m": "resolution 1m",
            "m1/prices/2026-01-04?resolution=1h": "older than 2 days",
        }
        for path, text in refused.items():
            answer = ask_day(service, path, **{"X-API-Key": "k"})
            assert (answer.status_code, text in answer.json()["detail"]) == (403, True)
        codes = [
            ask_day(service, "m1/prices/2026-01-05?resolution=1h", **{"X-API-Key": "k"}).status_code for _ in "1234"
        ]
    assert codes == [200, 200, 200, 429]


def test_a_final_day_has_a_tag_that_saves_it() -> None:
    """A day that is final is answered with 304 to whoever has it; another form or resolution has another tag."""
    simulated = md.simulate(events=1, days=2, markets=1, seed=3)
    slug = simulated.markets()["slug"][0]
    with serve(simulated) as service:
        path = f"{slug}/prices/2025-12-30?resolution="
        first = ask_day(service, path + "1m")
        assert (first.status_code, first.headers["cache-control"]) == (200, "private, no-cache")
        for tag in (first.headers["etag"], f'"x", W/{first.headers["etag"]}', "*"):
            again = ask_day(service, path + "1m", **{"If-None-Match": tag})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
        others = [ask_day(service, path + "1m", Accept="application/json"), ask_day(service, path + "10m")]
        others.append(ask_day(service, path + "1m", **{"Accept-Encoding": "identity"}))
        assert len({answer.headers["etag"] for answer in (first, *others)}) == 4
        assert all(
            ask_day(service, path + "1m", **{"If-None-Match": tag}).status_code == 200 for tag in ('"x"', "", "W/")
        )


def test_a_tag_changes_with_the_points() -> None:
    """A day that was changed is no longer answered with 304; one that is not final has no tag, and is not stored."""
    archive: Any = md.simulate(events=1, days=3, markets=1, seed=3, frame="polars")
    slug = archive.markets()["slug"][0]
    with serve(archive) as service:
        path = f"{slug}/prices/2025-12-30?resolution=1m"
        first = ask_day(service, path)
        rows = archive.prices(slug, "2025-12-30", "2025-12-31")[:1]
        archive.add(prices=rows.with_columns(price=rows["price"] / 2))
        changed = ask_day(service, path, **{"If-None-Match": first.headers["etag"]})
        assert changed.status_code == 200
        assert changed.content != first.content
        assert changed.headers["etag"] != first.headers["etag"]
        unknown = ask_day(service, f"{slug}/prices/2020-12-30?resolution=1m")
        assert "etag" not in unknown.headers
        assert unknown.headers["cache-control"] == "no-store"
        again = ask_day(service, path, **{"If-None-Match": changed.headers["etag"]})
        assert again.status_code == 304


def test_every_answer_says_that_days_can_be_requested(service: Service, web: Web) -> None:
    """A client sees it in the header of any answer."""
    assert web.get("/v1/usage").headers["x-days"] == "1"
    assert web.get("/v1/markets/nope").headers["x-days"] == "1"


def test_a_day_is_read_up_to_its_last_minute() -> None:
    """The first and the last minute of a day belong to it, those beside it do not."""
    archive = small_archive()
    archive.points.clear()
    for ts in (START - MINUTE, START, START + DAY - MINUTE, START + DAY):
        archive.put("prices", "m1", "2", ts, 0.5)
    with serve(archive) as service:
        page = decode("prices", ask_day(service, "m1/prices/2026-01-05?resolution=1m").content)
    assert [to_text(ts) for ts in page.columns.ts.tolist()] == ["2026-01-05T00:00:00Z", "2026-01-05T23:59:00Z"]
