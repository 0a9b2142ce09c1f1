"""What odd records and points of an archive look like through the service: text is text, and nobody's points mix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import requests
from service.web import START, Web, window

import marketdata as md
from marketdata.errors import NotTidyError
from marketdata.times import to_datetime

MINUTE = 60_000_000
BIG = 7 * 10**76


@pytest.fixture
def archive(tmp_path: Path) -> md.Archive:
    return md.Archive(tmp_path)


@contextmanager
def asked(archive: md.Archive) -> Iterator[Web]:
    with md.serve(archive) as service, requests.Session() as session:
        yield Web(service.base_url, service.api_key, session)


def prices(market: str, token: str | None, label: str | None, *values: float | None) -> pl.DataFrame:
    ts = [to_datetime(START + k * MINUTE) for k in range(len(values))]
    ids = {"market_id": market, "token_id": token, "token_label": label}
    return pl.DataFrame({"ts": ts, "price": values}, schema_overrides={"price": pl.Float64}).with_columns(
        **{name: pl.lit(value, pl.String) for name, value in ids.items()}
    )


def market(market_id: str, tokens: dict[str, str | None] | None = None, **more: Any) -> dict[str, Any]:
    given = {"1": "Yes"} if tokens is None else tokens
    return {"market_id": market_id, "token_ids": list(given), "token_labels": list(given.values()), **more}


def test_a_whole_number_of_any_length_is_listed(archive: md.Archive) -> None:
    """A field of 77 digits that is no text stands in listings and on the market's own page as it came."""
    archive.add(markets=[market("m", condition_number=BIG)])
    with asked(archive) as web:
        assert web.get("/v1/markets").body["data"][0]["condition_number"] == BIG
        assert web.get("/v1/markets/m").body["condition_number"] == BIG


def test_slugs_and_ids_that_are_numbers_are_texts(archive: md.Archive) -> None:
    """Slugs and parents that a frame held as numbers, gaps and all, are found by their digits."""
    rows = [market("a", slug=777, event_slug=2024.0, series_id=5), market("b", slug="s", event_slug="e1")]
    archive.add(markets=rows)
    with asked(archive) as web:
        assert web.get("/v1/markets/777").body["slug"] == "777"
        assert [m["id"] for m in web.get("/v1/markets", event_slug="2024").body["data"]] == ["a"]
        assert sorted(e["id"] for e in web.get("/v1/events").body["data"]) == ["2024", "e1"]
        assert [s["id"] for s in web.get("/v1/series").body["data"]] == ["5"]


@pytest.mark.parametrize(("given", "shown"), [("politics", ["politics"]), ([1, None, "a"], ["1", "a"]), (None, [])])
def test_tags_are_texts(archive: md.Archive, given: Any, shown: list[str]) -> None:
    """One tag is one tag, and what is missing is none."""
    archive.add(markets=[market("m", event_slug="e", tags=given)])
    with asked(archive) as web:
        assert web.get("/v1/tags").body["data"] == shown
        assert [m["id"] for m in web.get("/v1/markets", tags="politics").body["data"]] == ["m"] * (given == "politics")


def test_tags_that_are_not_known_stay_null(archive: md.Archive) -> None:
    """A frame has null where a market's tags are not known, and an empty list where it has none."""
    archive.add(markets=[market("a", tags=None), market("b", tags=[]), market("c", tags=["x"])])
    assert [record["tags"] for record in archive.records("markets")] == [None, [], ["x"]]
    assert archive.markets(frame="polars")["tags"].to_list() == [None, [], ["x"]]


def test_an_event_spans_markets_that_came_one_by_one(archive: md.Archive) -> None:
    """Tags, dates and state of a derived event are those of all its markets; a slug finds the event that has an id."""
    first = market("a", event_id="E", event_slug="e", tags=["x"], start_date="2026-01-01", status="closed")
    archive.add(markets=[first])
    archive.add(markets=[market("b", event_slug="e", tags=["y"], start_date="2026-02-01", status="active")])
    with asked(archive) as web:
        (event,) = web.get("/v1/events").body["data"]
        assert (event["id"], event["slug"], event["tags"]) == ("E", "e", ["x", "y"])
        assert (event["start_date"], event["status"]) == ("2026-01-01", "active")
        assert [m["id"] for m in web.get("/v1/markets", event_id="E", order="asc", sort="id").body["data"]] == [
            "a",
            "b",
        ]


def test_an_event_spans_markets_that_were_pulled_one_by_one(archive: md.Archive, tmp_path: Path) -> None:
    """A pull of one market after the other makes the event that adding both makes."""
    rows = [market(name, {name: "Yes"}, event_slug="e", tags=[name]) for name in ("a", "b")]
    archive.add(markets=rows)
    copy = md.Archive(tmp_path / "copy")
    with asked(archive) as web, md.Client(web.base_url, web.api_key) as client:
        for name in ("a", "b"):
            copy.pull(client, name, views=["prices"], start="2026-01-05", end="2026-01-06")
    assert [event["tags"] for event in copy.records("events")] == [["a", "b"]]


def test_a_parent_is_told_by_its_id_where_there_is_one(archive: md.Archive) -> None:
    """Two events of one slug: the filter by id gives the markets of that one, the filter by slug those of both."""
    for name in ("1", "2"):
        archive.add(events=[{"event_id": f"E{name}", "slug": "same"}])
        archive.add(markets=[market(f"m{name}", {name: "Yes"}, event_id=f"E{name}", event_slug="same")])
    with asked(archive) as web:
        assert [m["id"] for m in web.get("/v1/markets", event_id="E1").body["data"]] == ["m1"]
        assert len(web.get("/v1/markets", event_slug="same").body["data"]) == 2
        assert web.get("/v1/markets", event_id="E1", event_slug="other").body["data"] == []


@pytest.mark.parametrize(
    ("tokens", "names"),
    [
        ({"2a": ""}, {"": "2a"}),
        ({"Yes": "Nein", "Nein": "Nein"}, {"Nein": "Yes", "Nein'": "Nein"}),
        ({"1": None, "2": None}, {"1": "1", "2": "2"}),
    ],
)
def test_points_stand_under_the_labels_of_the_tokens(
    archive: md.Archive, tokens: dict[str, str | None], names: dict[str, str]
) -> None:
    """An empty label is one, and an id that is another token's label mixes nobody's points."""
    archive.add(markets=[market("m", tokens)])
    archive.add(prices=pl.concat([prices("m", token, label, 0.25) for token, label in tokens.items()]))
    with asked(archive) as web:
        body = web.history("prices", "m").body
        assert body["tokens"] == names
        assert {name: len(points) for name, points in body["data"].items()} == dict.fromkeys(names, 1)


def test_a_token_that_the_record_lost_is_named_with_its_points(archive: md.Archive) -> None:
    """A market that was added again without a token that has points shows it beside the others."""
    archive.add(markets=[market("m", {"1": "Ja", "2": "No"})])
    archive.add(prices=pl.concat([prices("m", "1", "Ja", 0.25), prices("m", "2", "No", 0.75)]))
    archive.add(markets=[market("m", {"1": "Ja"})])
    with asked(archive) as web:
        body = web.history("prices", "m").body
        assert body["tokens"] == {"Ja": "1", "No": "2"}
        assert set(body["data"]) == {"Ja", "No"}


def test_labels_that_are_empty_and_that_are_missing_are_kept_apart(archive: md.Archive) -> None:
    """One frame with both is stored, and both come back."""
    archive.add(prices=pl.concat([prices("m", "1", None, 0.25), prices("m", "2", "", 0.75)]))
    assert archive.prices("m")["price"].tolist() == [0.25, 0.75]


def test_what_is_infinite_is_missing(archive: md.Archive) -> None:
    """S28: an infinite number is null at 1m and no part of a mean; a price or level of a book cannot be infinite."""
    archive.add(markets=[market("m")])
    numbers = prices("m", None, None, 0.5, math.inf, 1.0, -math.inf, None)
    archive.add(metrics=numbers.drop("token_id", "token_label").rename({"price": "volume"}))
    level = prices("m", "1", "Yes", math.inf).with_columns(
        side=pl.lit("bid"), level=pl.lit(0), size=pl.lit(1.0, pl.Float64)
    )
    for view, refused in (("prices", prices("m", "1", "Yes", math.inf)), ("books", level)):
        with pytest.raises(NotTidyError, match="inf"):
            archive.add(**{view: refused})
    with asked(archive) as web:
        assert [p["volume"] for p in web.history("metrics", "m").body["data"]] == [0.5, None, 1.0, None, None]
        assert [p["volume"] for p in web.history("metrics", "m", resolution="10m").body["data"]] == [0.75]


def test_a_year_without_points_are_few_pages(archive: md.Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two books a year apart, covered as one interval: what is read in vain between them ends no page."""
    monkeypatch.setattr("marketdata.service.pagination.MAX_SECONDS", 60)
    ts = [to_datetime(START), to_datetime(START + 365 * 1440 * MINUTE + MINUTE)]
    rows = [
        {"ts": t, "market_id": "m", "token_id": str(k), "token_label": str(k), "side": side, "level": 0, "price": p}
        for t in ts
        for k in range(2)
        for side, p in (("bid", 0.25), ("ask", 0.75))
    ]
    archive.add(books=pl.DataFrame(rows).with_columns(size=pl.lit(1.0)))
    with asked(archive) as web:
        wanted = {**window(2 * 365 * 24), "limit": "200"}
        counts = [body["metadata"]["count"] for body in web.walk("/v1/markets/m/books", **wanted)]
        assert sum(counts) == 4
        assert len(counts) <= 2


def test_further_numbers_of_prices_are_kept(archive: md.Archive) -> None:
    """P26: a number beside the price is stored, proven and served; other markets have no trace of it."""
    archive.add(prices=prices("n", "9", "Yes", 0.75))
    archive.add(prices=prices("m", "1", "Yes", 0.25, 0.5).with_columns(volume_24h=pl.Series([3.0, None])))
    assert archive.verify().empty
    assert archive.prices("m")["volume_24h"].tolist()[0] == 3.0
    assert "volume_24h" not in archive.prices("n")
    with asked(archive) as web:
        assert web.history("prices", "m").body["data"]["Yes"][0]["volume_24h"] == 3.0
        copy = md.Archive(Path(archive.location) / "copy")
        with md.Client(web.base_url, web.api_key) as client:
            copy.pull(client, "m", views=["prices"], start="2026-01-05", end="2026-01-06")
    assert copy.verify().empty
    assert copy.prices("m", on_missing="partial").equals(archive.prices("m"))


def test_tokens_that_come_one_by_one_do_not_drop_each_other(archive: md.Archive) -> None:
    """Points of one token replace its own; those of the others stay where they were."""
    yes, no = prices("m", "1", "Yes", 0.1, 0.2, 0.3), prices("m", "2", "No", 0.9, 0.8, 0.7)
    archive.add(prices=yes)
    archive.add(prices=no)
    archive.add(prices=prices("m", "1", "Yes", 0.15))
    held = archive.prices("m", frame="polars")
    assert held.filter(pl.col("token_label").cast(pl.String) == "No")["price"].to_list() == [0.9, 0.8, 0.7]
    assert held.filter(pl.col("token_label").cast(pl.String) == "Yes")["price"].to_list() == [0.15, 0.2, 0.3]
    assert archive.verify().empty


@pytest.mark.parametrize("further", [-1, 0, 1])
def test_an_archive_put_in_the_place_of_the_served_one_is_not_mixed_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, further: int
) -> None:
    """Once another folder has the place of the served archive, with fewer, as many or more commits, no page of the
    old one is served, and the log says to open the archive again; back in its place it is served as before.
    """
    served, other = md.Archive(tmp_path / "served"), md.Archive(tmp_path / "other")
    for archive, count, price in ((served, 2, 0.25), (other, 2 + further, 0.75)):
        archive.add(markets=[market("m")])
        for k in range(count):
            archive.add(prices=prices("m", "1", "Yes", *[price] * (k + 1)))
    with asked(served) as web:
        before = web.history("prices", "m")
        assert [point["p"] for point in before.body["data"]["Yes"]] == [0.25, 0.25]
        for name, new in (("served", "old"), ("other", "served")):
            (tmp_path / name).rename(tmp_path / new)
        for _ in range(2):
            answers = [web.history("prices", "m"), web.get("/v1/markets"), web.get("/v1/markets/m")]
            assert [answer.status for answer in answers] == [500] * 3
            md.Archive(tmp_path / "served").add(prices=prices("m", "1", "Yes", *[0.75] * 9))
        assert "was replaced by another table. Open the archive again." in caplog.text
        for name, new in (("served", "other"), ("old", "served")):
            (tmp_path / name).rename(tmp_path / new)
        assert web.history("prices", "m").body == before.body
