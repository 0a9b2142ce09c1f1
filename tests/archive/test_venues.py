"""Venues pulled into an archive: it holds what a plain loop over the stub's data gives, and says what it lacks."""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from email.utils import formatdate
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import answered, client_of, refused, simulated_clock

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, MarketDataError, NotFoundError, PartialCoverageWarning, PlanWarning
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, SECOND, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
NOW = START + 2 * DAY + 90 * MINUTE
pytestmark = [
    pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning"),
    # What is young and empty is provisional, and a read says so.
    pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning"),
]
Points = dict[tuple[str, str, int], Any]  # by view, token and bucket


def names_of(stub: Any) -> list[str]:
    """How a user names the markets of a stub."""
    return [market.slug if stub.venue == "polymarket" else market.ticker for market in stub.markets]


def points_of(stub: Any, width: int, end: int) -> Points:
    """All that a venue has up to a time, by plain loops."""
    out: Points = {}
    if stub.venue == "polymarket":
        minutes = defaultdict(list)
        for market, i in itertools.product(stub.markets, (0, 1)):
            for ts, price in stub.minute_prices(market, i, START, end):
                if width >= 60 * MINUTE and ts % (60 * MINUTE):
                    continue  # from an hour on, the venue is asked for hours
                minutes["prices", market.tokens[i], ts // width * width].append(price)
        return {key: sum(prices) / len(prices) for key, prices in minutes.items()}
    for market in stub.markets:
        for candle in stub.candles(market, START + width, end // width * width, width // MINUTE):
            bid, ask = (None if cents is None else cents / 100 for cents in (candle["bid"], candle["ask"]))
            other = (None if ask is None else 1 - ask, None if bid is None else 1 - bid)
            for side, (b, a) in (("yes", (bid, ask)), ("no", other)):
                token = f"{market.ticker}:{side}"
                out["quotes", token, candle["start"]] = b, a
                out["prices", token, candle["start"]] = None if b is None or a is None else (a + b) / 2
            out["metrics", market.ticker, candle["start"]] = candle["volume"], 40.0
    return out


COLUMNS = {
    "prices": ["price"], "quotes": ["best_bid", "best_ask"], "metrics": ["volume", "open_interest"],
}  # fmt: skip


def stored(archive: Any, views: Any) -> Points:
    """All that an archive has."""
    out = {}
    for view in views:
        frame = getattr(archive, view)()
        keys = frame["market_id" if view == "metrics" else "token_id"], frame["ts"].dt.epoch("us")
        values = zip(*(frame[name].to_list() for name in COLUMNS[view]), strict=True)
        for key in zip(*keys, values, strict=True):
            out[view, *key[:2]] = key[2] if len(key[2]) > 1 else key[2][0]
    return out


def since(start: int, points: Points) -> Points:
    return {key: value for key, value in points.items() if key[2] >= start}


def about(points: Points) -> Points:
    return {key: value if value is None else pytest.approx(value, abs=1e-9) for key, value in points.items()}


def lacking(archive: Any, stub: Any, points: Points) -> Points:
    """The points that an archive calls complete and does not have."""
    market_of = {token: m.condition for m in stub.markets for token in m.tokens} if stub.venue == "polymarket" else {}
    coverage = archive.coverage().filter(pl.col("state").is_in(["final", "provisional"]))
    whole = defaultdict(list)
    for row in coverage.rows(named=True):
        whole[row["view"], row["market_id"]].append((row["start"].timestamp() * 1e6, row["end"].timestamp() * 1e6))
    held = stored(archive, coverage["view"].unique()) if len(coverage) else {}
    out = {}
    for (view, token, ts), value in points.items():
        market = market_of.get(token, token.partition(":")[0])
        if (view, token, ts) not in held and any(first <= ts < end for first, end in whole[view, market]):
            out[view, token, ts] = value
    return out


def history_requests(stub: Any) -> int:
    """Requests for points so far."""
    return sum(n for path, n in stub.paths.items() if "history" in path or "candlesticks" in path)


@pytest.mark.parametrize(
    ("kind", "base", "broken_after", "is_archived"),
    [
        (PolymarketStub, "1m", 1, False),
        (PolymarketStub, "1h", 1, False),
        (KalshiStub, "1m", 1, False),
        (KalshiStub, "1m", 1, True),
        (KalshiStub, "1h", 0, True),
    ],
)
def test_a_pull_that_broke_and_goes_on_holds_what_the_venue_has(
    tmp_path: Path, kind: Any, base: str, broken_after: int, is_archived: bool
) -> None:
    """Complete is only what is; the next pull asks for nothing but the open end, and a day later for that day."""
    width = BucketWidth.of(base).micros
    count = {PolymarketStub: 12, KalshiStub: 5}[kind]  # of two batches, or one
    stub = kind(count=count, days=0.15, **({"cutoff": NOW} if is_archived else {}))
    with client_of(stub, NOW) as client:
        archive = md.Archive(tmp_path, frame="polars", base=base)

        def pull() -> Any:
            return archive.pull(client, names_of(stub), start=to_datetime(START), progress=False)

        def check(began: int) -> None:
            """All that had settled when a pull began is stored, and nothing that the venue does not have."""
            settled = (began - max(600 * SECOND, 2 * width)) // width * width
            held, points = stored(archive, client.views), points_of(stub, width, stub.now)
            assert {key: v for key, v in held.items() if key[2] < settled} == about(
                {key: v for key, v in points.items() if key[2] < settled}
            )
            assert held.keys() <= points.keys()
            assert lacking(archive, stub, {key: v for key, v in points.items() if key[2] < settled}) == {}

        answer = stub.answer
        stub.answer = lambda ask: refused(503, {}) if history_requests(stub) > broken_after else answer(ask)
        with pytest.raises(MarketDataError):
            pull()
        assert lacking(archive, stub, points_of(stub, width, NOW - 3 * width)) == {}
        stub.answer = answer
        began = stub.now
        pull()
        check(began)
        for view in client.views:
            span = names_of(stub), to_datetime(START), to_datetime(began - 2 * DAY // 24)
            theirs, own = (getattr(side, view)(*span, base) for side in (client, archive))
            assert_frame_equal(own, theirs, abs_tol=1e-12)
        before = history_requests(stub)
        assert (pull()["start"] >= to_datetime(began - 3 * width - 600 * SECOND)).all()
        SYSTEM.sleep(86_400)
        began = stub.now
        pull()
        check(began)
        # The open end of each market twice, and once more what was empty, all of it in few requests.
        asked = (history_requests(stub) - before) / len(stub.markets)
        assert asked <= 4 * (2 if kind is PolymarketStub else len(client.views))
        assert archive.verify().is_empty()


@pytest.mark.parametrize("is_dated_late", [False, True])
def test_the_moment_of_an_answer_is_no_point_when_later_answers_came_before_it(
    tmp_path: Path, is_dated_late: bool
) -> None:
    """A live market appends a point at now, which is none of a minute, also where that minute has ended since."""
    stub = PolymarketStub(count=1, days=3.0)

    def overtaken(ask: Any) -> Any:
        act = stub(ask)
        if is_dated_late:  # when the next minute has begun
            return act.with_header("Date", formatdate(stub.now / SECOND + 31, usegmt=True))
        SYSTEM.sleep(61)
        client.tags()  # of another host, whose clock is later then
        return act

    with simulated_clock(NOW + 30 * SECOND), answered(dict.fromkeys(stub.hosts, stub) | {stub.hosts[2]: overtaken}):
        client = md.Client("polymarket", frame="polars", progress=False)
        archive = md.Archive(tmp_path, frame="polars")
        archive.pull(client, names_of(stub), start=to_datetime(NOW - 20 * MINUTE), progress=False)
        held, points = stored(archive, client.views), points_of(stub, MINUTE, stub.now)
    assert len(held) >= 2 * 15
    assert held == about({key: points[key] for key in held})


def test_candles_of_a_quiet_market_are_complete_between_each_other(tmp_path: Path) -> None:
    """Hours without a candle are no holes: nothing changed in them. Only the last of them may still be late."""
    stub = KalshiStub(count=3, days=1.5)
    every = stub.candles
    stub.candles = lambda *which: [one for one in every(*which) if one["start"] // (60 * MINUTE) % 3 == 1]
    with client_of(stub, NOW) as client:
        archive = md.Archive(tmp_path, frame="polars")
        archive.pull(client, names_of(stub), start=to_datetime(START), progress=False)
        coverage = archive.coverage().group_by("view", "market_id").len()
        assert coverage["len"].max() <= 4
        assert lacking(archive, stub, points_of(stub, MINUTE, NOW - 20 * MINUTE)) == {}


def test_a_market_may_be_named_in_any_way(tmp_path: Path) -> None:
    """Slugs, condition ids, numbers and tokens of one pull are found by few requests; an unknown one is an error."""
    stub = PolymarketStub(count=60, days=0.1)
    ways = [lambda m: m.slug, lambda m: m.condition, lambda m: str(1000 + m.k), lambda m: m.tokens[m.k % 2]]
    names = [ways[market.k % 4](market) for market in stub.markets]
    with client_of(stub, NOW) as client:
        archive = md.Archive(tmp_path, frame="polars", base="1h")
        what: dict[str, Any] = {"start": to_datetime(START), "end": to_datetime(START + DAY), "progress": False}
        assert archive.pull(client, names[:50], **what)["market_id"].n_unique() == 50
        assert sum(stub.paths.values()) - history_requests(stub) < 40
        with pytest.raises(NotFoundError, match="will-it-snow"):
            archive.pull(client, [*names, "will-it-snow"], **what)
        assert archive.prices()["market_id"].n_unique() == 60
        asked = sum(stub.paths.values())
        for market in stub.markets[:6]:
            by_id, others = archive.prices(market.condition), (market.slug, str(1000 + market.k))
            for name in others:
                assert_frame_equal(archive.prices(name), by_id)
                assert archive.pull(client, name, **what).is_empty()
        assert sum(stub.paths.values()) == asked
        with pytest.raises(md.errors.NotArchivedError, match=r"token of market .*0xa"):
            archive.prices(stub.markets[0].tokens[0])


@pytest.mark.parametrize("hours", [-5, 30])
@pytest.mark.parametrize("kind", [PolymarketStub, KalshiStub])
def test_a_clock_of_this_machine_that_is_wrong_by_hours_costs_nothing(tmp_path: Path, kind: Any, hours: int) -> None:
    """Nothing is final too early or invented, the venue's time is known, and once the clock is right all is there."""
    stub, first = kind(count=2, days=30.0), NOW - DAY // 8
    local, offset = SYSTEM.time, hours * 3600.0
    with client_of(stub, NOW) as client, pytest.MonkeyPatch.context() as patch:
        archive = md.Archive(tmp_path, frame="polars")

        def pull() -> None:
            began = stub.now
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", md.errors.ServiceOddityWarning)
                archive.pull(client, names_of(stub), start=to_datetime(first), progress=False)
            at = client.server_time()
            assert at is not None
            assert abs(at.timestamp() - stub.now / SECOND) < 60  # the machine may be busy
            points, held = since(first, points_of(stub, MINUTE, stub.now)), stored(archive, client.views)
            assert held == about({key: points[key] for key in held})
            final = archive.coverage().filter(state="final")
            settled = to_datetime(began - 599 * SECOND)
            assert final.is_empty() or final["end"].max() <= settled
            assert lacking(archive, stub, {key: v for key, v in points.items() if key[2] < began - MINUTE}) == {}

        # The clock jumps between two requests, while the client lives, and later back.
        client.server_time()
        patch.setattr(type(stub), "now", property(lambda _: int(local() * SECOND)))
        patch.setattr(SYSTEM, "time", lambda: local() + offset)
        pull()
        SYSTEM.sleep(3600)
        pull()
        patch.setattr(SYSTEM, "time", local)
        SYSTEM.sleep(3600)
        pull()
        until = NOW + 100 * MINUTE
        points = since(first, points_of(stub, MINUTE, until))
        prices = archive.prices(names_of(stub), to_datetime(first), to_datetime(until))
        assert prices.height == sum(view == "prices" for view, *_ in points)


@pytest.mark.parametrize("kind", [PolymarketStub, KalshiStub])
def test_events_and_series_of_a_venue_are_pulled_by_name(tmp_path: Path, kind: Any) -> None:
    """event_slug= takes its markets, series_slug= those of all its events; follow takes them too."""
    stub = kind(count=7, days=0.25)
    event, series = ("weather-0", "rain-0") if kind is PolymarketStub else ("KXRAIN-0", "KXRAIN")
    with client_of(stub, NOW) as client:
        what: dict[str, Any] = {"start": to_datetime(START), "end": to_datetime(START + DAY), "views": "prices"}
        one, every = (md.Archive(tmp_path / name, frame="polars") for name in ("one", "every"))
        assert one.pull(client, event_slug=event, **what)["market_id"].n_unique() == 3
        # Polymarket gives each two events a series, Kalshi all of them one.
        expected = 6 if kind is PolymarketStub else 7
        assert every.pull(client, series_slug=series, **what)["market_id"].n_unique() == expected
        assert every.markets()["event_id"].n_unique() == -(-expected // 3)
        rounds = one.follow(client, series_slug=series, views="prices", start=to_datetime(START), every="1h")
        first = next(rounds)
        assert (first.markets, first.error) == (expected, None)
        assert one.prices(names_of(stub)[3]).height > 0


def test_books_that_came_before_a_failure_are_stored(tmp_path: Path) -> None:
    """Of 520 tokens 500 were answered: their books are stored with labels, and the round reports the error."""
    stub = PolymarketStub(count=260, days=30.0)
    with client_of(stub, NOW) as client:
        archive = md.Archive(tmp_path, frame="polars")
        records = client.markets()
        answers, give = iter([True, *[False] * 5]), stub.books
        stub.books = lambda wanted: give(wanted) if next(answers, True) else refused(503, {"error": "down"})
        rounds = archive.follow(client, records, views="books", every="1m")
        assert next(rounds).error is not None
        books = archive.books(on_missing="partial")
        assert books["token_id"].n_unique() == 500
        assert set(books["token_label"]) == {"Yes", "No"}
        assert next(rounds).error is None
        assert archive.books(on_missing="partial")["token_id"].n_unique() == 520
        with pytest.raises(ConfigError, match=r"no books of the past.*archive\.follow"):
            archive.pull(client, records, views="books", start=to_datetime(START))


def test_the_last_book_of_a_bucket_stays_and_none_is_lost(tmp_path: Path) -> None:
    """Rounds of ten minutes into hours: a token that is gone keeps its book of before."""
    stub = PolymarketStub(count=1, days=30.0)
    yes, no = stub.markets[0].tokens
    with client_of(stub, NOW // (60 * MINUTE) * 60 * MINUTE + MINUTE) as client:
        archive = md.Archive(tmp_path, frame="polars", base="1h")
        first = stub.now
        rounds = archive.follow(client, stub.markets[0].slug, views="books", every="10m")
        next(rounds)
        give, stub.books = stub.books, lambda wanted: give([one for one in wanted if one["token_id"] == yes])
        second = next(rounds)
        assert (second.points, second.error) == (0, None)
        coverage = archive.coverage()
        assert coverage.select("view", "state", "rows").rows() == [("books", "final", 2)]
        for token, at in ((yes, stub.now), (no, first)):
            held = archive.books().filter(token_id=token, side="bid").drop_nulls("price")
            assert held.select("price", "size").rows() == stub.levels(*stub.by_token[token], at)[0]
        SYSTEM.sleep(3600)
        next(rounds)
        assert set(archive.coverage()["state"]) == {"final", "recorded"}


@pytest.mark.fault("V1")
def test_steps_that_a_venue_no_longer_keeps_are_expired(tmp_path: Path) -> None:
    """Minutes of the Data API older than a week are said to be expired, not empty; later ones are stored."""
    stub = PolymarketStub(count=2, days=10.0)
    now = START + 11 * DAY + 30 * SECOND
    kept = now - 7 * DAY
    with client_of(stub, now, route="data") as client:
        archive = md.Archive(tmp_path, frame="polars")
        with pytest.warns(PlanWarning, match="no longer keeps prices"):
            report = archive.pull(client, names_of(stub), start=to_datetime(START), progress=False)
        assert set(report.filter(pl.col("end") <= to_datetime(kept + MINUTE))["state"]) == {"expired"}
        held = stored(archive, ["prices"])
        points = points_of(stub, MINUTE, stub.now)
        first = -(-kept // MINUTE) * MINUTE
        assert held == about({key: price for key, price in points.items() if key[2] >= first})
        assert lacking(archive, stub, points) == {}
        expired = archive.coverage().filter(state="expired")
        assert set(expired["end"]) == {to_datetime(first)}
        assert set(expired["start"]) == {to_datetime(START)}
        assert archive.pull(client, names_of(stub), start=to_datetime(START), progress=False).height <= 2
        with pytest.warns(PartialCoverageWarning, match="expired"):
            archive.prices(names_of(stub)[0], to_datetime(START), to_datetime(now))
    with client_of(stub, now) as client:
        coarse = md.Archive(tmp_path / "coarse", frame="polars", base="3h")
        coarse.pull(client, names_of(stub), start=to_datetime(START), progress=False)
        assert "expired" not in set(coarse.coverage()["state"])
