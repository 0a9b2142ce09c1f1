"""An archive that is kept up to date, on a clock that need not be waited for."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from archive.source import MARKETS, MINUTE, START, CutError, Source, points_of
from archive.stored import states
from reference.clocks import stop_time

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.coverage.policy import ServerTime
from marketdata.archive.reading import Reader
from marketdata.clock import SYSTEM
from marketdata.errors import (
    AuthenticationError,
    ConfigError,
    NetworkError,
    NotFoundError,
    RateLimitError,
    ServerError,
)
from marketdata.points.views import View
from marketdata.times import Range, to_text

M = MARKETS[0]
DAY = 1440
HOURS = 140
START_TIME = START / 1e6


class Living(Source):
    """A source whose time is that of the clock, and which shows no bucket before it has begun."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = SYSTEM.time()
        self.log: list[tuple[int, View, str, Range]] = []
        self.errors: list[Exception] = []

    @property
    def now(self) -> int:
        return START + round((SYSTEM.time() - self._begin) * 1e6)

    @now.setter
    def now(self, value: int) -> None:
        pass

    def health(self) -> dict[str, Any]:
        self.told = self.now
        return {"status": "ok", "timestamp": to_text(self.told)}

    def iter_columns(self, asked: Any, resolution: str = "1m", *, progress: Any = None) -> Iterator[Any]:
        if self.errors:
            raise self.errors.pop(0)
        for k, done, columns, proven in super().iter_columns(asked := list(asked), resolution):
            self.log.append((self.told, asked[k][0], asked[k][1], done))
            yield k, done, columns.between(0, self.now), proven


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stop_time(monkeypatch)
    with md.testing.no_waiting():
        yield


@pytest.fixture
def source() -> Living:
    """A day of prices of two markets."""
    out = Living()
    for market, token, n in itertools.product(MARKETS, (0, 1), range(DAY)):
        out.points["prices", market, token, n] = 0.25 + n / 10_000
    return out


def finally_asked(source: Living, market: str, view: View = "prices") -> Counter[int]:
    """How often each minute was asked after it had settled."""
    out: Counter[int] = Counter()
    for now, of, name, rng in source.log:
        if (of, name) == (view, market):
            out.update(t for t in range(rng.start, min(rng.end, ServerTime(now).final_before), MINUTE))
    return out


def follow(archive: Archive, source: Any, **how: Any) -> Any:
    chosen = {"markets": M, "views": "prices", "start": START_TIME, **how}
    return Archive(archive.location, frame="polars").follow(source, **chosen)


@pytest.mark.fault("AR26")
def test_hours_with_restarts_ask_each_final_minute_once(archive: Archive, source: Living) -> None:
    """Left, cut in a page, interrupted and started again, it asks each minute once after it has settled."""
    draw = random.Random(1)
    while source.now < START + HOURS * MINUTE:
        source.cut_after = draw.choice([None, 0, 1])
        rounds = follow(archive, source, every="10m")
        try:
            for _ in range(draw.randrange(1, 20)):
                next(rounds)
                source.cut_after = draw.choice([None] * 20 + [0, 1])
        except CutError:
            SYSTEM.sleep(draw.randrange(3_000))
        rounds.close()
    source.cut_after = None
    next(follow(archive, source))
    end, times = ServerTime(source.told).final_before, finally_asked(source, M)
    assert {t: times[t] for t in range(START, end, MINUTE) if times[t] != 1} == {}
    assert end >= START + (HOURS - 20) * MINUTE
    assert states(archive, "prices")[0] == (0, (end - START) // MINUTE, "final")
    held = points_of("prices", Reader(Archive(archive.location)).columns("prices", M))
    upto = max(key[3] for key in held)
    assert held == {k: v for k, v in source.points.items() if k[1] == M and k[3] <= upto}
    assert upto >= (end - START) // MINUTE
    assert archive.verify().is_empty()


def test_new_markets_of_an_event_appear(archive: Archive, source: Living) -> None:
    """A market that an event gains is followed from its next listing on, which comes within ten minutes."""
    source.listed = [M]
    rounds = follow(archive, source, markets=None, event_slug="e")
    assert next(rounds).markets == 1
    source.listed = list(MARKETS)
    counts = [next(rounds).markets for _ in range(11)]
    assert counts[:9] == [1] * 9
    assert counts[-1] == 2
    assert states(archive, "prices", MARKETS[1])[0][0] == 0


def test_a_server_time_that_goes_back_is_no_reason_to_list_anew(archive: Archive, source: Living) -> None:
    """Servers behind one address may differ by seconds: what was listed a moment ago is not listed again."""
    rounds = follow(archive, source, search=MARKETS[0], markets=None)
    next(rounds)
    source.requests.clear()
    source._begin += 90
    next(rounds)
    assert ("markets", MARKETS[0], Range(0, 0)) not in source.requests


def test_an_outage_is_waited_for(archive: Archive, source: Living) -> None:
    """A round that fails is reported, and the next one asks for what it lacks."""
    outages = [NetworkError("no route"), ServerError("503", status=503), md.errors.ContractError("a page for people")]
    source.errors = list(outages)
    reports = list(itertools.islice(follow(archive, source), 4))
    assert [report.error for report in reports] == [*outages, None]
    assert [report.ranges > 0 for report in reports] == [False, False, False, True]
    assert all(report.at is not None for report in reports)


def test_a_refusal_for_a_time_is_waited_out(archive: Archive, source: Living) -> None:
    """Where the service says when it takes requests again, the next round comes not before."""
    error = RateLimitError("429", status=429)
    error.retry_at = SYSTEM.time() + 900
    source.errors = [error]
    rounds = follow(archive, source)
    next(rounds)
    assert next(rounds).error is None
    assert SYSTEM.time() >= error.retry_at


def test_a_wrong_key_or_event_ends_it_at_once(archive: Archive, source: Living) -> None:
    """Where waiting does not help the typed error comes out of the first round."""
    for problem in (AuthenticationError("401", status=401), md.errors.PlanError("403", status=403)):
        source.errors = [problem]
        with pytest.raises(type(problem)):
            next(follow(archive, source))
    source.listed = []
    with pytest.raises(NotFoundError, match="event_slug='e'"):
        next(follow(archive, source, markets=None, event_slug="e"))


def test_a_stop_ends_it_in_the_middle_of_a_round(archive: Archive, source: Living) -> None:
    """Set from outside, `stop` ends a long first round at the next window; what came is kept, and asked only once."""
    stop = threading.Event()
    SYSTEM.sleep(5 * 3600)
    whole = source.iter_columns

    def stopping(*args: Any, **options: Any) -> Iterator[Any]:
        for n, item in enumerate(whole(*args, **options)):
            if n == 3:
                stop.set()
            yield item

    source.iter_columns = stopping  # type: ignore[method-assign]
    done = list(follow(archive, source, stop=stop))
    assert [one.error for one in done] == [None]
    assert states(archive, "prices") == [(0, 4 * source.page, "final")]
    assert list(follow(archive, source, stop=stop)) == []
    source.iter_columns = whole  # type: ignore[method-assign]
    next(follow(archive, source))
    assert set(finally_asked(source, M).values()) == {1}


def test_wrong_arguments_are_refused_at_the_call(archive: Archive, source: Living) -> None:
    """A wrong argument is an error before the first round is asked for."""
    every = [{"every": step} for step in ("0s", "2d", "1 fortnight", True)]
    for wrong in (*every, {"event_slug": "e"}, {"views": ["orders"]}, {"start": "2999-01-01"}):
        with pytest.raises(ConfigError):
            follow(archive, source, **wrong)
    assert source.requests == []


@pytest.mark.fault("AR27")
def test_pauses_of_a_followed_market_are_asked_twice_and_then_final(archive: Archive, source: Living) -> None:
    """Of a market with a point every half an hour silent minutes are asked again after an hour, and are one range."""
    source.points = {k: v for k, v in source.points.items() if k[3] % 30 == 0}
    rounds = follow(archive, source, every="4m")
    for _ in range(46):
        next(rounds)
    times = finally_asked(source, M)
    # A round answers four minutes or five: those beside a point are known to be silent at once.
    assert {times[START + n * MINUTE] for n in range(120) if 6 <= n % 30 <= 24} == {2}
    assert {times[START + n * MINUTE] for n in range(0, 150, 30)} == {1}
    assert states(archive, "prices")[0][::2] == (0, "final")
    assert states(archive, "prices")[0][1] >= 120
    assert len(states(archive, "prices")) <= 12


@pytest.mark.fault("AR27")
def test_a_source_that_is_late_is_asked_again(archive: Archive, source: Living) -> None:
    """Points that come three hours after their time are fetched within a day, though they had not been there."""
    late = {k: v for k, v in source.points.items() if 60 <= k[3] < 240}
    for key in late:
        del source.points[key]
    rounds = follow(archive, source, every="30m")
    for _ in range(9):
        next(rounds)
    assert not archive.coverage().filter(state="provisional", rows=0).is_empty()
    source.points |= late
    for _ in range(8):
        SYSTEM.sleep(3 * 3600)
        next(rounds)
    held = points_of("prices", Reader(Archive(archive.location)).columns("prices", M))
    assert {k for k in late if k[1] == M} <= held.keys()


def test_points_of_a_round_are_those_that_are_new(archive: Archive, source: Living) -> None:
    """Minutes that are fetched again because they are young are not counted again."""
    points = [report.points for report in itertools.islice(follow(archive, source), 15)]
    assert sum(points) == len(Reader(archive).columns("prices", M))
    assert set(points[1:]) == {2}
