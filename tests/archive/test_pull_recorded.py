"""A pull over points that somebody added: what the service has replaces its equals, the rest stays."""

from __future__ import annotations

from typing import Any

import pytest
from archive.source import MARKETS, MINUTE, START, Source, columns_of, points_of
from archive.stored import minute, states

from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.points.views import View
from marketdata.times import Range

M = MARKETS[0]
HOUR, DAY = 60, 1440
Points = dict[tuple[int, int], Any]


def add(archive: Archive, points: Points, view: View = "prices", **how: bool) -> None:
    archive.add(**{view: columns_of(view, M, sorted(points), [points[key] for key in sorted(points)])}, **how)


def offer(source: Source, points: Points, view: View = "prices") -> None:
    source.points |= {(view, M, *key): value for key, value in points.items()}


def pull(archive: Archive, source: Source, start: int, end: int, view: View = "prices", **how: bool) -> list[Range]:
    """Fill a range; what was asked."""
    source.requests.clear()
    archive.pull(source, M, views=[view], start=minute(start), end=minute(end), **how)
    return [r for _, _, r in source.asked]


def held(archive: Archive, view: View = "prices") -> Points:
    return {key[2:]: value for key, value in points_of(view, Reader(archive).columns(view, M)).items()}


@pytest.fixture
def source() -> Source:
    """Now is long after all that is pulled here."""
    out = Source()
    out.now = START + 30 * DAY * MINUTE
    return out


def test_points_that_the_service_has_not_survive_a_pull(archive: Archive, source: Source) -> None:
    """Equal tokens and times are the service's, all others stay; nothing is asked again, a refresh changes nothing."""
    mine = {(token, n): 0.5 for token in (0, 1) for n in range(120)}
    theirs = {(token, n): 0.25 for token in (0, 1) for n in range(60)} | {(1, 60): 0.125}
    add(archive, mine)
    offer(source, theirs)
    for refresh in (False, False, True):
        asked = pull(archive, source, 0, 240, refresh=refresh)
        assert held(archive) == mine | theirs
        assert states(archive, "prices") == [(0, 60, "final"), (60, 120, "recorded"), (120, 240, "final")]
        assert archive.verify().is_empty()
    assert asked
    assert pull(archive, source, 0, 240) == []


def test_points_between_those_of_the_service_are_one_record(archive: Archive, source: Source) -> None:
    """Recordings of odd minutes beside a service of even ones are one range, not one for each minute."""
    mine, theirs = {(0, n): 0.5 for n in range(1, 600, 2)}, {(0, n): 0.25 for n in range(0, 600, 2)}
    add(archive, mine)
    offer(source, theirs)
    pull(archive, source, 0, 600)
    assert held(archive) == mine | theirs
    assert states(archive, "prices") == [(0, 1, "final"), (1, 600, "recorded")]
    assert pull(archive, source, 0, 600) == []


@pytest.mark.fault("AR39")
@pytest.mark.fault("AR27")
def test_points_where_the_service_is_silent_near_now_are_asked_again_three_times(
    archive: Archive, source: Source
) -> None:
    """An hour, a day and a week after an answer without points it is asked again; the points stay throughout."""
    mine = {(0, n): 0.5 for n in range(100, 130)}
    add(archive, mine)
    source.now = START + 300 * MINUTE
    for wait in (0, 61, DAY + 1, 7 * DAY + 1):
        source.now += wait * MINUTE
        assert Range(START + 121 * MINUTE, START + 128 * MINUTE) in pull(archive, source, 100, 135)
        assert pull(archive, source, 100, 135) == []
        assert held(archive) == mine
        assert (100, 130, "recorded") in states(archive, "prices")
    source.now += 60 * DAY * MINUTE
    assert pull(archive, source, 100, 130) == []


@pytest.mark.parametrize("view", ["books", "metrics"])
def test_books_and_metrics_survive_too(archive: Archive, source: Source, view: View) -> None:
    """A snapshot, or a row of metrics, that the service lacks stays whole beside those that it has."""
    old, new = (([(0.4, 1.0)], [(0.6, 2.0)]), ([(0.3, 9.0)], [])) if view == "books" else ((1.0, 2.0), (3.0, 4.0))
    mine, theirs = {(0, n): old for n in range(40)}, {(0, n): new for n in range(0, 40, 3)}
    add(archive, mine, view)
    offer(source, theirs, view)
    pull(archive, source, 0, 40, view)
    assert held(archive, view) == mine | theirs
    assert archive.verify().is_empty()


def test_points_that_are_added_at_the_live_edge_survive(archive: Archive, source: Source) -> None:
    """What is added to minutes that are still provisional is the user's, and stays when they become final."""
    source.now = START + 20 * MINUTE
    offer(source, {(0, n): 0.25 for n in range(0, 21, 2)})
    pull(archive, source, 0, 30)
    mine = {(0, n): 0.5 for n in (15, 17)}
    add(archive, mine)
    source.now += DAY * MINUTE
    pull(archive, source, 0, 30)
    assert mine.items() <= held(archive).items()
    assert len(held(archive)) == 13


def test_aggregates_that_were_added_survive(archive: Archive, source: Source) -> None:
    """Rows on the grid of hours, which are unverified, are replaced where the service has the minute, and else stay."""
    first = -(START // MINUTE) % HOUR
    mine = {(0, n): 0.5 for n in range(first, first + 24 * HOUR, HOUR)}
    with pytest.warns(match="grid of 1h"):
        add(archive, mine)
    theirs = {(0, n): 0.25 for n in range(6 * HOUR)}
    offer(source, theirs)
    pull(archive, source, 0, 25 * HOUR)
    assert held(archive) == mine | theirs
