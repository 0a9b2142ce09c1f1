from __future__ import annotations

import pytest
from service.memory import MemoryArchive
from service.web import HOUR, LONG_ID, START, Web, window

from marketdata.resolution import Resolution
from marketdata.times import Range, parse_iso, to_text

RESOLUTIONS = [r.value for r in Resolution]


def expected_books(archive: MemoryArchive, token: str, rng: Range, resolution: str) -> list[dict[str, object]]:
    width = Resolution.of(resolution).micros
    last: dict[int, tuple[int, object]] = {}
    for (owner, ts), book in archive.points["books", "m1"].items():
        if owner == token and rng.start <= ts < rng.end:
            last[ts // width] = max(last.get(ts // width, (-1, None)), (ts, book), key=lambda pair: pair[0])
    return [
        {"t": to_text(bucket * width), "bids": [list(x) for x in book[0]], "asks": [list(x) for x in book[1]]}
        for bucket, (_, book) in sorted(last.items())
    ]


@pytest.mark.parametrize("resolution", RESOLUTIONS)
@pytest.mark.parametrize("limit", [2, 3, 7, 200])
def test_every_snapshot_is_served_once_whatever_the_page_size(web: Web, archive, resolution: str, limit: int) -> None:
    """Pages of any size put together are the last book of every bucket, empty books included."""
    got: dict[str, list[object]] = {"Yes": [], "No": []}
    for body in web.walk("/v1/markets/will-it-rain/books", limit=limit, **window(3, resolution)):
        assert body["market_id"] == "m1"
        assert body["tokens"] == {"Yes": LONG_ID, "No": "2"}
        assert body["resolution"] == resolution
        points = {label: len(rows) for label, rows in body["data"].items()}
        assert body["metadata"]["count"] == sum(points.values()) <= limit
        assert body["metadata"]["limit"] == limit
        for label, rows in body["data"].items():
            got[label] += rows
    rng = Range(START, START + 3 * HOUR)
    assert got["Yes"] == expected_books(archive, LONG_ID, rng, resolution)
    assert got["No"] == expected_books(archive, "2", rng, resolution)


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_a_page_holds_whole_buckets(web: Web, resolution: str) -> None:
    """No bucket goes on in a second page."""
    seen: set[str] = set()
    for body in web.walk("/v1/markets/m1/books", limit=3, **window(3, resolution)):
        times = {row["t"] for rows in body["data"].values() for row in rows}
        assert not times & seen
        seen |= times


@pytest.mark.parametrize("cut", [(90, 5400), (0, 30), (61, 7201), (3599, 3600)])
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_the_range_selects_base_points(web: Web, archive, resolution: str, cut: tuple[int, int]) -> None:
    """A range that cuts a bucket gives that bucket over the points inside of the range, start inclusive."""
    rng = Range(START + cut[0] * 1_000_000, START + cut[1] * 1_000_000)
    asked = {"start_ts": to_text(rng.start), "end_ts": to_text(rng.end), "resolution": resolution}
    rows = [row for body in web.walk("/v1/markets/m1/books", limit=2, **asked) for row in body["data"]["Yes"]]
    assert rows == expected_books(archive, LONG_ID, rng, resolution)


def test_a_null_price_is_null_and_a_mean_leaves_it_out(web: Web) -> None:
    """A bucket of nulls is a null price; among numbers nulls do not count."""
    minute = {"start_ts": "2026-01-05T00:09:00Z", "end_ts": "2026-01-05T00:10:00Z"}
    one = web.get("/v1/markets/m1/prices", resolution="1m", **minute)
    assert one.body["data"]["Yes"] == [{"t": "2026-01-05T00:09:00Z", "p": None}]
    ten = web.get("/v1/markets/m1/prices", start_ts="1767571200", end_ts="1767571800", resolution="10m")
    wanted = [0.4 + m / 1000 for m in range(10) if m % 7 != 3 and m != 9]
    assert ten.body["data"]["Yes"][0]["p"] == pytest.approx(sum(wanted) / len(wanted), rel=1e-12)


def test_metrics_are_a_list_of_points(web: Web) -> None:
    """Metrics answer with the market's points, with null where nothing was recorded."""
    body = web.history("metrics", resolution="1h").body
    assert [p["t"] for p in body["data"]] == [to_text(START + i * HOUR) for i in range(3)]
    assert set(body["data"][0]) == {"t", "volume", "liquidity", "spread"}
    assert body["data"][0]["liquidity"] is None
    assert body["metadata"] == {"count": 3, "limit": 100, "next_cursor": None}
    assert "tokens" not in body


def test_a_token_alone_is_what_its_market_says(web: Web) -> None:
    """The single-token views answer with the same points as the market's."""
    for view in ("books", "prices"):
        whole = web.history(view, limit=200, hours=1).body
        alone = web.get(f"/v1/tokens/{LONG_ID}/{view}", limit=200, **window(1)).body
        assert alone["data"] == whole["data"]["Yes"]
        assert (alone["market_id"], alone["token_id"], alone["token_label"]) == ("m1", LONG_ID, "Yes")
        assert len(list(web.walk(f"/v1/tokens/2/{view}", limit=1, **window(0.2)))) > 3


def test_a_wide_market_is_served_token_by_token(web: Web) -> None:
    """More than 200 tokens: books and prices are refused and name the token endpoint, which answers."""
    for view in ("books", "prices"):
        refused = web.history(view, "wide", limit=200)
        assert refused.status == 400
        assert "more than 200 tokens" in refused.body["detail"]
        assert f"/v1/tokens/{{token_id}}/{view}" in refused.body["detail"]
    assert web.get("/v1/tokens/w209/prices", **window()).body["metadata"]["count"] == 1
    assert web.history("metrics", "wide").status == 200


def test_a_limit_below_the_tokens_names_the_minimum(web: Web) -> None:
    """A market of three tokens needs a limit of three."""
    refused = web.history("prices", "m3", limit=2)
    assert (refused.status, refused.body["detail"]) == (
        400,
        "limit too small for this market. Minimum required: 3",
    )
    assert web.history("prices", "m3", limit=3).body["metadata"]["count"] == 3


def test_a_range_without_points_is_an_empty_page(web: Web) -> None:
    """An unknown range of a known market answers 200 with its labels and no points, quickly."""
    body = web.get("/v1/markets/m1/books", start_ts="0001-01-01", end_ts="2020-01-01", resolution="1m").body
    assert body["data"] == {"Yes": [], "No": []}
    assert body["metadata"] == {"count": 0, "limit": 100, "next_cursor": None}


def test_all_of_time_reads_only_what_is_held(web: Web, source) -> None:
    """A request over all years reads the chunks that hold points and no other."""
    before = len(source.reads)
    body = web.get("/v1/markets/m1/prices", start_ts="0001-01-01", end_ts="9999-12-31", resolution="1m", limit=7).body
    assert body["metadata"]["count"] == 6
    assert len(source.reads) - before <= 2


def test_consecutive_pages_do_not_read_the_archive_again(web: Web, source) -> None:
    """A walk of a hundred pages reads each chunk once."""
    before = len(source.reads)
    pages = list(web.walk("/v1/markets/m1/books", limit=3, **window(2.5)))
    assert len(pages) > 60
    assert len(source.reads) - before <= 1


def test_times_are_utc_bucket_starts(web: Web) -> None:
    """``t`` is ISO 8601 in UTC with a Z, at the start of its bucket."""
    for resolution in RESOLUTIONS:
        for row in web.history("prices", resolution=resolution).body["data"]["No"]:
            assert row["t"].endswith("Z")
            assert parse_iso(row["t"]) % Resolution.of(resolution).micros == 0


def test_gzip_is_sent_when_asked(web: Web) -> None:
    """A large answer is compressed for who accepts it, and is the same."""
    plain = web.history("books", limit=200, headers={"Accept-Encoding": "identity"})
    packed = web.history("books", limit=200, headers={"Accept-Encoding": "gzip"})
    never = web.history("books", limit=200, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in never.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    assert packed.body["data"] == plain.body["data"]
