"""The contract with the service, replayed from recordings: no network, no service, no key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vcr
import yaml
from cassettes.scenes import BASE_URL, MARKET, SCENES, TOKEN

import marketdata as md
from marketdata.testing import no_waiting, vcr_config

FOLDER = Path(__file__).parents[1] / "cassettes" / "test_cassettes"
Replay = Callable[[], Any]


@pytest.fixture
def played() -> list[str]:
    """Path and query of each request that was replayed."""
    return []


@pytest.fixture
def replay(request: pytest.FixtureRequest, played: list[str]) -> Replay:
    """Plays the scene of the test's own name."""
    name = request.node.originalname
    scene = SCENES[name]

    def run() -> Any:
        cassette = vcr.use_cassette(str(FOLDER / f"{name}.yaml"), record_mode="none", **vcr_config())
        key = f"replays-{name}-0123456789"  # a key of its own, so that no pacer remembers another test
        with cassette as tape, no_waiting(), md.Client(BASE_URL, key, frame="polars", **scene.client) as client:
            try:
                return scene.call(client)
            finally:
                assert tape.all_played
                played.extend(r.uri.removeprefix(BASE_URL) for r in tape.requests)

    return run


def test_books(replay: Replay, played: list[str]) -> None:
    """One request brings ten minutes of both tokens, best level first, a marker row for each empty side."""
    books, report = replay()
    assert books.columns == ["ts", "market_id", "token_id", "token_label", "side", "level", "price", "size"]
    assert dict(books.group_by("token_label").agg(pl.col("ts").n_unique()).rows()) == {"Yes": 10, "No": 10}
    best = books.md.bbo()
    assert best.filter(pl.col("best_bid") >= pl.col("best_ask")).is_empty()
    assert (report.requests, report.points, report.warnings) == (1, 20, {})
    assert [p.partition("?")[0] for p in played] == [f"/v1/markets/{MARKET}/books"]
    assert "limit=200" in played[0]
    assert "start_ts=2025-12-31T23%3A00%3A00Z" in played[0]


def test_token_books(replay: Replay, played: list[str]) -> None:
    """A token alone has its own path, and an id of 77 digits arrives whole."""
    books, _ = replay()
    assert books["token_id"].cast(pl.String).unique().to_list() == [TOKEN]
    assert played[0].startswith(f"/v1/tokens/{TOKEN}/books?")


def test_two_pages(replay: Replay, played: list[str]) -> None:
    """A second page follows the cursor of the first, and the rows of both are one frame."""
    prices, report = replay()
    assert (prices.height, report.pages, report.requests) == (20, 2, 2)
    assert ["cursor=" in page for page in played] == [False, True]


def test_discovery(replay: Replay) -> None:
    """Listings are followed to their last page; a market is found by its slug, its tokens with their labels."""
    listed = replay()
    assert [listed[kind].height for kind in ("series", "events", "markets")] == [1, 2, 2]
    assert listed["market"].slug == MARKET
    assert listed["tokens"]["token_id"].to_list()[0] == TOKEN
    assert "simulated" in listed["tags"]


def test_usage(replay: Replay) -> None:
    """Plan, rate and what is left of it are told; so is that the data is simulated."""
    usage, health = replay()
    assert usage.limits.requests_remaining < usage.limits.requests_per_minute
    assert (health.status, health.simulated) == ("ok", True)


def test_plan_refuses(replay: Replay) -> None:
    """403 names what the plan does not allow."""
    with pytest.raises(md.errors.PlanError, match="does not allow resolution 1m") as caught:
        replay()
    assert caught.value.partial.is_empty()


def test_rate_limit(replay: Replay, played: list[str]) -> None:
    """429 is waited out as long as Retry-After says, then the same request passes."""
    healths = replay()
    assert [h.status for h in healths] == ["ok", "ok"]
    assert played == ["/v1/health"] * 3


def test_recordings_hold_no_key_cookie_or_host() -> None:
    """Each is of the local service, and holds only the headers that a replay needs."""
    for path in FOLDER.glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert "simulated data" in text.splitlines()[0]
        exchanges = yaml.safe_load(text)["interactions"]
        sent = {name.lower() for one in exchanges for name in one["request"]["headers"]}
        assert sent <= {"accept", "accept-encoding", "user-agent"}
        kept = {name.lower() for one in exchanges for name in one["response"]["headers"]}
        assert kept <= {"content-type", "date", "retry-after", "x-simulated"}
        assert all(one["request"]["uri"].startswith(f"{BASE_URL}/v1/") for one in exchanges)


def test_a_recording_stands_for_the_service_to_users_too(tmp_path: Path) -> None:
    """A recording by vcr_config replays row for row after the service is gone."""
    tape = str(tmp_path / "books.yaml")
    with md.serve(md.simulate(events=1, days=0.04, markets=1, levels=2, seed=3)) as service:
        assert service.api_key is not None
        with vcr.use_cassette(tape, **vcr_config(service.api_key)):
            client = md.Client(service.base_url, service.api_key)
            slug = client.markets(max_rows=1)["slug"][0]
            live = client.books(slug, "2025-12-31", "2026-01-01", "1m")
    with vcr.use_cassette(tape, record_mode="none", **vcr_config()):
        client = md.Client("http://127.0.0.1:1", "another-key-0123456789")
        again = client.books(client.markets(max_rows=1)["slug"][0], "2025-12-31", "2026-01-01", "1m")
    assert len(again) > 0
    assert again.equals(live)
    assert service.api_key not in Path(tape).read_text(encoding="utf-8")


def test_secrets_are_starred_where_an_answer_repeats_them() -> None:
    """Header lists and bodies lose each secret; what a replay needs stays."""
    answer = {
        "status": {"code": 302, "message": "Found"},
        "headers": {"Location": ["https://x/s3cret/y"], "Set-Cookie": ["s3cret"], "X-Served-By": ["s3cret"]},
        "body": {"string": b'{"detail": "s3cret is no key"}'},
    }
    scrubbed = vcr_config("s3cret")["before_record_response"](answer)
    assert scrubbed["headers"] == {"Location": ["https://x/***/y"]}
    assert scrubbed["body"] == {"string": b'{"detail": "*** is no key"}'}
    assert answer["body"] == {"string": b'{"detail": "s3cret is no key"}'}
