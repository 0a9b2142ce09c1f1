"""Markets of venues by words, state, order, tags and times: as plain loops find them, and in few requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import kalshi_stub
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import client_of

import marketdata as md
from marketdata.errors import ConfigError
from marketdata.times import DAY, parse_iso, to_text

VENUES = ("polymarket", "kalshi")
STATES = ("open", "closed", "resolved")
SORTS = ("volume_24h", "volume", "newest", "end_date")


def stub_of(venue: str, count: int = 36, **how: Any) -> Any:
    return PolymarketStub(count=count, **how) if venue == "polymarket" else KalshiStub(count=count, **how)


def state_of(venue: str, market: Any) -> str:
    """What is true of a market of a stub, whose closed ones have settled long ago."""
    if market.closed is None:
        return "open"
    return "resolved" if market.payoffs else "closed"


def id_of(venue: str, market: Any) -> str:
    return market.condition if venue == "polymarket" else market.ticker


def key_of(venue: str, market: Any, sort: str) -> float:
    """By what a stub's market is sorted, the smallest first."""
    if venue == "polymarket":
        traded = -float(market.k * 37 % 101) if market.closed is None else 0.0
        return {"volume_24h": traded, "volume": -market.k, "newest": -market.opened,
                "end_date": market.opened + DAY // 2}[sort]  # fmt: skip
    ends = market.closed or kalshi_stub.START + 365 * DAY
    return {"volume_24h": -(market.k * 37 % 101), "volume": -(12 + market.k * 7 % 50), "newest": -market.opened,
            "end_date": ends}[sort]  # fmt: skip


@pytest.mark.parametrize("venue", VENUES)
@settings(max_examples=10)
@given(states=st.sets(st.sampled_from(STATES)), sort=st.sampled_from([None, *SORTS]),
       most=st.none() | st.integers(1, 9),
       order=st.sampled_from([None, "asc", "desc"]), page=st.integers(1, 9))  # fmt: skip
def test_states_and_sorts_are_those_of_plain_loops(
    venue: str, states: set[str], sort: str | None, most: int | None, order: str | None, page: int
) -> None:
    """One spelling at both venues, with any page; the first rows are the first of all."""
    stub = stub_of(venue, 18, largest_page=page)
    how: dict[str, Any] = {"state": sorted(states) or None, "sort": sort, "max_rows": most}
    with client_of(stub) as client:
        frame = client.markets(**how, **({"order": order} if sort else {}))
    wanted = states or ({"open"} if sort == "volume_24h" else set(STATES))
    chosen = [m for m in stub.markets if state_of(venue, m) in wanted]
    assert {*frame["market_id"]} <= {id_of(venue, m) for m in chosen}
    assert len(frame) == min(len(chosen), len(chosen) if most is None else most)
    if sort:
        keys = {id_of(venue, m): key_of(venue, m, sort) for m in chosen}
        found = [keys[one] for one in frame["market_id"]]
        is_turned = order is not None and order != ("asc" if sort == "end_date" else "desc")
        assert found == sorted(keys.values(), reverse=is_turned)[: len(found)]


@pytest.mark.parametrize("venue", VENUES)
def test_an_archive_chooses_as_the_venue_does(venue: str, tmp_path: Any) -> None:
    """State, sort and tags of stored records give the markets of the venue, and the same order of their keys."""
    stub = stub_of(venue)
    archive = md.Archive(tmp_path, frame="polars")
    with client_of(stub) as client:
        archive.add(markets=client.markets())
        for state in (None, *STATES):
            for sort in (None, *SORTS):
                ours, theirs = archive.markets(state=state, sort=sort), client.markets(state=state, sort=sort)
                assert {*ours["market_id"]} == {*theirs["market_id"]}
                if sort:
                    keys = {id_of(venue, m): key_of(venue, m, sort) for m in stub.markets}
                    assert [keys[one] for one in ours["market_id"]] == [keys[one] for one in theirs["market_id"]]
        tag = "wind" if venue == "polymarket" else "weather"
        ours = archive.markets(tags=tag, state="open", sort="volume", max_rows=2)
        assert len(ours) == 2
        assert all(tag in {one.lower() for one in tags} for tags in ours["tags"])
    for at in ({"state": "open"}, {"sort": "volume"}):
        with pytest.raises(ConfigError, match=r"looks ahead of at=.*archive.universe"):
            archive.markets(at="2026-01-06", **at)  # type: ignore[arg-type]


@pytest.mark.parametrize("venue", VENUES)
def test_words_are_the_first_argument(venue: str) -> None:
    """They search, at both venues; what they do not find is an empty frame, and an event is named by its slug."""
    stub = stub_of(venue)
    words = "day 7" if venue == "polymarket" else "rain 7?"
    with client_of(stub) as client:
        found = client.markets(words, state="open" if venue == "kalshi" else None)
        wanted = (
            [m for m in stub.markets if "7" in str(m.k) and state_of(venue, m) == "open"] if venue == "kalshi" else []
        )
        if venue == "kalshi":
            assert {*found["market_id"]} == {m.ticker for m in wanted}
            before = stub.paths.total()
            again = client.markets("climate rain", state="open", sort="volume")
            assert stub.paths.total() == before  # titles are remembered for ten minutes
            assert {*again["market_id"]} == {m.ticker for m in stub.markets if state_of(venue, m) == "open"}
            settled = client.markets("rain", state="resolved")
            assert {*settled["market_id"]} == {m.ticker for m in stub.markets if state_of(venue, m) == "resolved"}
            assert len(client.series(search="rain")) == 1
            assert len(client.events(search="rain 3"))
        else:
            assert len(found)
        assert client.markets("no such words anywhere").is_empty()
        assert len(client.markets(event_slug="weather-1" if venue == "polymarket" else "KXRAIN-1")) == 3
        with pytest.raises(ConfigError, match="search"):
            client.markets("  ")


@pytest.mark.parametrize("venue", VENUES)
def test_what_is_settled_between_two_times_is_that_of_a_plain_loop(venue: str) -> None:
    """By the time at which the outcome was known, with a tag."""
    stub = stub_of(venue)
    tag, first, last = ("weather", "2026-01-07T00:10:00Z", "2026-01-07T01:20:00Z")
    with client_of(stub) as client:
        frame = client.markets(resolved_at_min=first, resolved_at_max=last, tags=tag)
    known = {m: m.closed + (0 if venue == "polymarket" else stub.settled_after) for m in stub.markets if m.payoffs}
    assert {*frame["market_id"]} == {
        id_of(venue, m) for m, at in known.items() if parse_iso(first) <= at <= parse_iso(last)
    }
    assert 0 < len(frame) < len(known)


def count(venue: str, call: Any, stub: Any = None, **how: Any) -> int:
    """The requests of a call with a new client."""
    stub = stub_of(venue, **how) if stub is None else stub
    with client_of(stub) as client:
        call(client)
    return stub.paths.total()


def test_first_questions_take_few_requests() -> None:
    """The ten most traded in one; a thousand closed markets, or those that settled in two days, a page each."""
    day = parse_iso("2026-01-07T00:00:00Z")
    settled = {"resolved_at_min": to_text(day), "resolved_at_max": to_text(day + DAY), "tags": "weather"}
    traded, resolved = {"sort": "volume_24h", "max_rows": 10}, {"state": "resolved", "max_rows": 100}
    asked: dict[tuple[str, str], tuple[int, int, Any]] = {
        ("most traded", "polymarket"): (1, 36, lambda c: c.markets(**traded)),
        ("most traded", "kalshi"): (2, 36, lambda c: c.markets(**traded)),
        ("words", "polymarket"): (1, 36, lambda c: c.markets("day 7", state="open")),
        ("words", "kalshi"): (2, 36, lambda c: c.markets("rain")),
        ("100 resolved", "polymarket"): (12, 240, lambda c: c.markets(**resolved)),
        ("100 resolved", "kalshi"): (2, 240, lambda c: c.markets(**resolved)),
        ("settled by tag", "polymarket"): (11, 240, lambda c: c.markets(**settled)),
        ("settled by tag", "kalshi"): (3, 240, lambda c: c.markets(**settled)),
        ("all open", "kalshi"): (2, 240, lambda c: c.markets(state="open")),
    }
    found = {name: count(name[1], call, count=markets) for name, (_, markets, call) in asked.items()}
    assert {name: n for name, n in found.items() if n > asked[name][0]} == {}


def test_words_of_other_services_are_refused_with_what_to_do() -> None:
    """A state of no venue, a sort of a field, an order without a sort, and a state beside include_closed."""
    with client_of(PolymarketStub()) as client:
        for how, words in (
            ({"state": "active"}, "'active' is 'open' here"),
            ({"state": "settled"}, "allowed are open, closed, resolved"),
            ({"state": []}, "allowed are open"),
            ({"sort": "volume24hr"}, "allowed are volume_24h"),
            ({"order": "desc"}, "needs sort="),
            ({"state": "open", "include_closed": True}, "give one of them"),
            ({"limit": 3}, "Did you mean max_rows=?"),
            ({"status": "open"}, "Did you mean state=?"),
        ):
            with pytest.raises(ConfigError, match=words.replace("?", r"\\?")):
                client.markets(**how)


@pytest.mark.parametrize("venue", VENUES)
def test_records_have_the_numbers_of_now_which_are_kept_from_studies(venue: str, tmp_path: Any) -> None:
    """Title of the event, volume of a day, open interest and price of now; what was not known at opening is removed."""
    stub = stub_of(venue, 6)
    tell = stub.record
    more = {"bestBid": 0.4, "bestAsk": "0.44", "gameStartTime": "2026-01-09 18:00:00+00", "openInterest": 40.0,
            "sportsMarketType": "moneyline", "yes_bid_dollars": "0.40", "yes_ask_dollars": "0.44"}  # fmt: skip
    stub.record = lambda market: {**tell(market), **more}
    with client_of(stub) as client:
        event = "weather-1" if venue == "polymarket" else "KXRAIN-1"
        frame = client.markets(event_slug=event)
        archive = md.Archive(tmp_path, frame="polars")
        archive.add(markets=frame)
        for markets in (frame, archive.markets(), archive.markets(event_slug=event)):
            rows = {row["market_id"]: row for row in markets.to_dicts()}
            for market in stub.markets[3:6]:
                row = rows[id_of(venue, market)]
                assert row["event_title"] == ("Weather 1" if venue == "polymarket" else "Rain 1")
                assert row["volume_24h"] == -key_of(venue, market, "volume_24h")
                assert row["open_interest"] == 40
                assert row["price_now"] == (0.42 if state_of(venue, market) == "open" else None)
        if venue == "polymarket":
            assert frame["game_start_time"].dt.hour().to_list() == [18] * 3
        left = md.without_answers(frame).columns
        assert "event_title" in left
        assert {"volume", "volume_24h", "open_interest", "price_now", "game_start_time"}.isdisjoint(left)


@pytest.mark.parametrize("venue", VENUES)
@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tour.md"])
def test_the_first_lines_of_the_pages_run_as_a_script(
    venue: str, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They print the most traded markets and prices of the first, save a chart; the page says how they were tried."""
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    before, _, rest = text.partition("```py\n")
    code = rest.partition("```")[0].replace('"polymarket"', f'"{venue}"')
    monkeypatch.chdir(tmp_path)
    stub = stub_of(venue)
    with client_of(stub):
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
    most = max(stub.markets, key=lambda market: -key_of(venue, market, "volume_24h") if market.closed is None else -1)
    shown = capsys.readouterr().out
    assert stub.record(most)["question" if venue == "polymarket" else "title"] in shown
    assert "rows x 5 columns" in shown
    assert (tmp_path / "prices.png").stat().st_size > 1000
    assert "recorded answers of both venues only" in " ".join(before[-600:].split())
