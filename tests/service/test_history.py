"""Pages of history: any walk over any data against plain loops."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.memory import MINUTE, MemoryArchive
from reference.web import LONG_ID, START, Web, in_process

import marketdata as md
from marketdata.points.columns import Series
from marketdata.resolution import BucketWidth, Resolution
from marketdata.service.pages import Pages, Subject
from marketdata.service.start_page import shown_ranges
from marketdata.times import Range, parse_iso, to_datetime, to_text

RESOLUTIONS = [r.value for r in Resolution]


def expected_books(archive: MemoryArchive, token: str, rng: Range, resolution: str) -> list[dict[str, object]]:
    """The last book of every bucket, by a loop over the base points."""
    width = BucketWidth.of(resolution).micros
    last: dict[int, tuple[int, Any]] = {}
    for (owner, ts), book in archive.points["books", "m1"].items():
        if owner == token and rng.start <= ts < rng.end:
            last[ts // width] = max(last.get(ts // width, (-1, None)), (ts, book), key=lambda pair: pair[0])
    return [
        {"t": to_text(bucket * width), "bids": [list(x) for x in book[0]], "asks": [list(x) for x in book[1]]}
        for bucket, (_, book) in sorted(last.items())
    ]


@pytest.mark.parametrize(("resolution", "cut"), [("1m", (61, 7201)), ("1h", (0, 10_800)), ("1d", (61, 7201))])
def test_pages_are_the_last_books_of_all_buckets(
    web: Web, archive: MemoryArchive, resolution: str, cut: tuple[int, int]
) -> None:
    """Whole buckets, each once, whatever the size of the page; a range that cuts a bucket selects its base points."""
    rng = Range(START + cut[0] * 1_000_000, START + cut[1] * 1_000_000)
    asked = {"start_ts": to_text(rng.start), "end_ts": to_text(rng.end), "resolution": resolution}
    for limit in (20, 200):
        got: dict[str, list[object]] = {"Yes": [], "No": []}
        seen: set[str] = set()
        for body in web.walk("/v1/markets/will-it-rain/books", limit=limit, **asked):
            assert (body["market_id"], body["resolution"]) == ("m1", resolution)
            assert body["tokens"] == {"Yes": LONG_ID, "No": "2"}
            assert body["metadata"]["count"] == sum(len(rows) for rows in body["data"].values()) <= limit
            assert body["metadata"]["limit"] == limit
            times = {row["t"] for rows in body["data"].values() for row in rows}
            assert not times & seen
            seen |= times
            for label, rows in body["data"].items():
                got[label] += rows
        assert got["Yes"] == expected_books(archive, LONG_ID, rng, resolution)
        assert got["No"] == expected_books(archive, "2", rng, resolution)
    assert all(t.endswith("Z") and parse_iso(t) % Resolution.of(resolution).micros == 0 for t in seen)


def test_prices_and_metrics_are_means_of_what_is_there(web: Web, archive: MemoryArchive) -> None:
    """A mean leaves nulls out; a bucket or a metric without any value is null."""
    minutes = [m for m in range(60) if m % 7 != 3]
    (point,) = web.history("prices", hours=1, resolution="1h").body["data"]["Yes"]
    assert point["p"] == pytest.approx(
        sum(0.4 + m / 1000 for m in minutes if m % 10 != 9) / len([m for m in minutes if m % 10 != 9])
    )
    assert web.history("prices", hours=0.2).body["data"]["Yes"][8]["p"] is None
    (point,) = web.history("metrics", hours=1, resolution="1h").body["data"]
    assert point == {"t": "2026-01-05T00:00:00Z", "volume": pytest.approx(sum(minutes) / len(minutes)),
                     "liquidity": None, "spread": pytest.approx(0.02)}  # fmt: skip


def test_a_range_without_points_is_an_empty_page(web: Web) -> None:
    """An unknown range of a known market answers 200 with its labels; all years answer what there is."""
    body = web.get("/v1/markets/m1/books", start_ts="0001-01-01", end_ts="2020-01-01", resolution="1m").body
    assert body["data"] == {"Yes": [], "No": []}
    assert body["metadata"] == {"count": 0, "limit": 100, "next_cursor": None}
    body = web.get("/v1/markets/m1/prices", start_ts="0001-01-01", end_ts="9999-12-31", resolution="1m", limit=7).body
    assert body["metadata"]["count"] == 6


def test_gzip_is_sent_to_who_accepts_it(web: Web) -> None:
    """A large answer is compressed, and is the same."""
    plain, small = (web.history("books", limit=200, headers={"Accept-Encoding": c}) for c in ("identity", "gzip"))
    assert [answer.headers.get("content-encoding") for answer in (plain, small)] == [None, "gzip"]
    assert plain.body["data"] == small.body["data"]


@pytest.mark.fault("S28")
def test_what_is_not_a_number_is_null() -> None:
    """NaN and infinities in the archive are null in JSON, never a word that JSON lacks, never 500."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    archive.put("books", "m", "1", START, ([(math.nan, math.inf)], [(0.5, -math.inf)]))
    archive.put("prices", "m", "1", START, math.inf)
    archive.put("metrics", "m", None, START, {"volume": math.nan, "liquidity": -math.inf, "spread": None, "x": 1.0})
    web = in_process(archive)
    book = web.history("books", "m").body["data"]["Yes"][0]
    assert (book["bids"], book["asks"]) == ([[None, None]], [[0.5, None]])
    assert web.history("prices", "m").body["data"]["Yes"][0]["p"] is None
    (point,) = web.history("metrics", "m").body["data"]
    assert point == {"t": to_text(START), "volume": None, "liquidity": None, "spread": None, "x": 1.0}


@st.composite
def drawn_markets(draw: st.DrawFn) -> tuple[MemoryArchive, int]:
    """A market of one to four tokens with clusters of points over three days."""
    archive = MemoryArchive()
    count = draw(st.integers(1, 4))
    archive.add_market("m", {f"L{i}": str(i) for i in range(count)})
    clusters = draw(st.lists(st.tuples(st.integers(0, 4319), st.integers(1, 30), st.integers(1, 7)), max_size=4))
    for begin, length, step in clusters:
        for minute in range(begin, min(begin + length * step, 4320), step):
            for token in range(count):
                if (minute + token) % 10 or count == 1:
                    archive.put("prices", "m", str(token), START + minute * MINUTE, (None, 0.25, 0.5)[minute % 3])
    return archive, count


@settings(max_examples=10)
@given(
    drawn_markets(),
    st.sampled_from(RESOLUTIONS),
    st.tuples(st.integers(-90, 4320 * 60), st.integers(1, 4320 * 60)),
    st.integers(0, 9),
    st.integers(1, 30),
    st.booleans(),
)
def test_every_walk_is_the_loop(
    drawn: tuple[MemoryArchive, int], resolution: str, cut: tuple[int, int], extra: int, small: int, one_token: bool
) -> None:
    """Pages of any size over any range and any length of chunks are what plain loops over the base points give."""
    archive, count = drawn
    rng = Range(START + cut[0] * 1_000_000, START + (cut[0] + cut[1]) * 1_000_000)
    token, width = "0" if one_token else None, BucketWidth.of(resolution)
    subject = Subject("prices", "m", token, width, 1 if one_token else count)
    pages, limit = Pages(archive), subject.tokens + extra
    got: dict[tuple[str | None, int], float] = {}
    position, turns = None, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marketdata.service.pages.chunk_micros", lambda *_: small * width.micros)
        while turns == 0 or position is not None:
            page = pages.page(subject, rng, limit, position)
            assert page.count == sum(len(columns) for columns in page.parts) <= limit
            for columns in page.parts:
                assert isinstance(columns, Series)
                for i in range(len(columns)):
                    key = columns.tokens[columns.token[i]].token_id, int(columns.ts[i])
                    assert key not in got
                    got[key] = float(columns.price[i])
            assert page.position is None or position is None or page.position > position
            position, turns = page.position, turns + 1
    expected: dict[tuple[str | None, int], list[float]] = defaultdict(list)
    for (owner, ts), price in archive.points["prices", "m"].items():
        if rng.start <= ts < rng.end and token in {None, owner}:
            expected[owner, ts // width.micros * width.micros] += [] if price is None else [price]
    means = {key: sum(prices) / len(prices) if prices else math.nan for key, prices in expected.items()}
    assert got == pytest.approx(means, rel=1e-12, nan_ok=True)


def test_a_year_with_few_points_is_read_at_once() -> None:
    """An almost empty range of a market of many tokens is one page, after a few dozen reads of the archive."""
    reads = []

    class Counting(MemoryArchive):
        def columns(self, *given: Any) -> Any:
            reads.append(given)
            return super().columns(*given)

        def stored_ranges(self, *_: Any) -> list[Range]:
            return [Range(START, START + 525_600 * MINUTE)]

    archive = Counting()
    archive.add_market("m", {f"L{i}": str(i) for i in range(20)})
    for minute in (0, 300_000):
        archive.put("books", "m", "7", START + minute * MINUTE, ([], []))
    body = in_process(archive).history("books", "m", hours=24 * 365).body
    assert body["metadata"] == {"count": 2, "limit": 100, "next_cursor": None}
    assert len(reads) < 200


def test_a_bucket_that_no_page_can_hold_names_its_size() -> None:
    """Rows of more tokens than the record names are 400, and do not make a client turn on the spot."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "a"})
    for token in "abc":
        archive.put("prices", "m", token, START, 0.5)
    answer = in_process(archive).history("prices", "m", limit=2)
    assert (answer.status, answer.body["detail"].partition(". ")[2]) == (400, "Minimum required: 3")


def test_new_points_are_served_at_once() -> None:
    """The next answer of history and of the coverage has the points of a commit."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    web = in_process(archive)
    for minute in range(3):
        archive.put("prices", "m", "1", START + 2 * minute * MINUTE, 0.5)
        assert web.history("prices", "m").body["metadata"]["count"] == minute + 1
        assert len(web.get("/coverage").body["data"][0]["coverage"]["prices"]) == minute + 1


def test_coverage_without_rows_is_not_history() -> None:
    """Ranges of unknown size count, missing and empty ones do not; neighbours are one."""
    rows = [("final", None, 0), ("missing", 0, 2), ("provisional", 0, 4), ("provisional", 1, 8), ("final", 1, 9)]
    ranges = [("prices", "m", to_datetime(m * MINUTE), to_datetime((m + 1) * MINUTE), state, n) for state, n, m in rows]
    time = pl.Datetime("us", "UTC")
    schema = {
        "view": pl.String,
        "market_id": pl.String,
        "start": time,
        "end": time,
        "state": pl.String,
        "rows": pl.Int64,
    }
    frame = pl.DataFrame(ranges, schema=schema, orient="row")
    shown = shown_ranges(frame).select("view", "start", "end").rows()
    assert shown == [("prices", to_text(a * MINUTE), to_text(b * MINUTE)) for a, b in ((0, 1), (8, 10))]


def prices(market: str, token: str, label: str | None, *values: float | None) -> pl.DataFrame:
    ts = [to_datetime(START + k * MINUTE) for k in range(len(values))]
    ids = {"market_id": market, "token_id": token, "token_label": label}
    return pl.DataFrame({"ts": ts, "price": values}, schema_overrides={"price": pl.Float64}).with_columns(
        **{name: pl.lit(value, pl.String) for name, value in ids.items()}
    )


@pytest.mark.fault("S47")
def test_points_are_under_the_labels_of_their_tokens(tmp_path) -> None:
    """An empty label is one, an id that is another token's label mixes nobody's points, further numbers are served."""
    archive = md.Archive(tmp_path)
    expected = {
        "a": ({"2a": ""}, {"": "2a"}),
        "b": ({"Yes": "Nein", "Nein": "Nein"}, {"Nein": "Yes", "Nein'": "Nein"}),
        "c": ({"1": None, "2": None}, {"1": "1", "2": "2"}),
        "d": ({"1": "Yes", "2": "Yes", "3": None}, {"Yes": "1", "2": "2", "3": "3"}),
    }
    archive.add(
        markets=[
            {"market_id": market, "token_ids": list(tokens), "token_labels": list(tokens.values())}
            for market, (tokens, _) in expected.items()
        ],
        prices=pl.concat(
            prices(market, token, label, 0.25).with_columns(volume_24h=3.0)
            for market, (tokens, _) in expected.items()
            for token, label in tokens.items()
        ),
    )
    web = in_process(archive)
    for market, (_, served) in expected.items():
        body = web.history("prices", market).body
        assert body["tokens"] == served
        point = {"t": "2026-01-05T00:00:00Z", "p": 0.25, "volume_24h": 3.0}
        assert body["data"] == {label: [point] for label in served}


@pytest.mark.fault("S47")
def test_a_token_that_the_record_lost_is_served_with_its_points(tmp_path) -> None:
    """A market that was added again without a token that has points shows it beside the others."""
    archive = md.Archive(tmp_path)
    market = {"market_id": "m", "token_ids": ["1", "2"], "token_labels": ["Ja", "No"]}
    archive.add(markets=[market], prices=pl.concat([prices("m", "1", "Ja", 0.25), prices("m", "2", "No", 0.75)]))
    archive.add(markets=[{"market_id": "m", "token_ids": ["1"], "token_labels": ["Ja"]}])
    body = in_process(archive).history("prices", "m").body
    assert body["tokens"] == {"Ja": "1", "No": "2"}
    assert {label: len(points) for label, points in body["data"].items()} == {"Ja": 1, "No": 1}


def test_an_archive_of_seconds_serves_them(tmp_path) -> None:
    """Its own base is one of its resolutions, and more are an option; an archive of minutes has none below."""
    archive = md.Archive(tmp_path, base="1s")
    archive.add(markets=[{"market_id": "m", "token_ids": ["1"], "token_labels": ["Yes"]}])
    ts = [to_datetime(START + k * 1_000_000) for k in range(20)]
    archive.add(prices=prices("m", "1", "Yes", *[0.5] * 20).with_columns(ts=pl.Series(ts)))
    web = in_process(archive)
    assert web.get("/v1/usage").body["limits"]["granularity_allowed"] == "1s,1m,10m,1h,6h,1d"
    body = web.history("prices", "m", resolution="1s", hours=0.01).body
    assert [point["t"] for point in body["data"]["Yes"]][:2] == ["2026-01-05T00:00:00Z", "2026-01-05T00:00:01Z"]
    web = in_process(archive, resolutions=["5m", "5s"], keys={"a": "all", "b": "coarse"},
                     plans={"all": {}, "coarse": {"resolutions": ["5m"]}})  # fmt: skip
    assert web.get("/openapi.json").body["paths"]["/v1/markets/{id_or_slug}/books"]["get"]["parameters"][3]["schema"][
        "enum"
    ] == ["5s", "5m"]
    assert web.history("prices", "m", resolution="5s", hours=0.01).body["metadata"]["count"] == 4
    refused = web.as_key("b").history("prices", "m", resolution="5s")
    assert (refused.status, refused.body["detail"]) == (403, "Your plan does not allow 5s granularity. Minimum: 5m")
    assert web.history("prices", "m", resolution="1m").status == 422


def test_an_archive_that_is_coarser_than_asked_says_so() -> None:
    """A resolution of the interface that the archive cannot be read at is 403 with the finest that it can."""
    archive = MemoryArchive()
    archive.base = "10m"
    archive.add_market("m", {"Yes": "1"})
    web = in_process(archive)
    assert web.get("/v1/usage").body["limits"]["granularity_allowed"] == "10m,1h,6h,1d"
    answer = web.history("prices", "m", resolution="1m")
    assert answer.status == 403
    assert answer.body["detail"].startswith("Your plan does not allow 1m granularity. Minimum: 10m")
