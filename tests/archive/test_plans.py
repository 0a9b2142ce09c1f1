"""Pulls with a plan that refuses a resolution, a view or a part of the range."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from archive.source import MARKETS, MINUTE, START, Source, columns_of
from archive.stored import again

from marketdata.archive import Archive
from marketdata.errors import (
    ConfigError,
    ExpiredError,
    NotArchivedError,
    PartialCoverageWarning,
    PlanError,
    PlanWarning,
)
from marketdata.points.columns import Data
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.times import Range

M = MARKETS[0]
DAY = 1440
HOURS = START // (600 * MINUTE) * 600 * MINUTE


class Planned(Source):
    """A service whose plan allows a finest resolution, some views, and times from ``earliest`` on."""

    finest = "10m"
    allowed_views = frozenset({"prices", "metrics"})
    earliest = 0
    refusal = PlanError

    def iter_columns(
        self, asked: Iterable[tuple[View, str, Range]], resolution: str = "1m", *, progress: Any = None
    ) -> Generator[tuple[int, Range, Data, bool], None, None]:
        width = BucketWidth.of(resolution)
        for k, (view, market, rng) in enumerate(asked):
            problem = self.refusal("Your plan does not allow this.", status=403)
            if width.micros < BucketWidth.of(self.finest).micros:
                problem.minimum_resolution = self.finest
                raise problem
            if view not in self.allowed_views:
                problem.view = view
                raise problem
            if rng.start < self.earliest:
                problem.earliest = dt.datetime.fromtimestamp(self.earliest / 1e6, dt.UTC)
                raise problem
            assert rng.start % width.micros == rng.end % width.micros == 0
            step = width.micros // MINUTE
            minutes = range((rng.start - START) // MINUTE, (rng.end - START) // MINUTE, step)
            yield k, rng, columns_of(view, market, [(0, n) for n in minutes], [self.value(view)] * len(minutes)), True

    @staticmethod
    def value(view: View) -> Any:
        return 0.5 if view == "prices" else (1.0, 2.0)


@pytest.fixture
def source() -> Planned:
    made = Planned()
    made.now = HOURS + 3 * DAY * MINUTE
    return made


def pull(archive: Archive, source: Planned, **more: Any) -> Any:
    """A day of all views."""
    start = HOURS / 1e6
    return archive.pull(source, M, start=start, end=start + 86_400, progress=False, **more)


@pytest.mark.fault("V1")
def test_a_new_archive_has_the_finest_base_that_the_plan_allows(archive: Archive, source: Planned) -> None:
    """The view that the plan lacks is left out and said to be not allowed; the others are complete at 10m."""
    with pytest.warns(PlanWarning):
        report = pull(archive, source)
    assert set(report["resolution"]) == {"10m"}
    assert {(r["view"], r["state"]) for r in report.rows(named=True)} == {
        ("books", "not_allowed"), ("prices", "final"), ("metrics", "final"),
    }  # fmt: skip
    assert len(archive.prices(M)) == len(archive.metrics(M)) == 144
    coverage = again(archive).coverage().filter(view="books")
    assert coverage["state"].to_list() == ["not_allowed"]
    assert again(archive).prices(M, resolution="1h").height == 24
    assert archive.verify().is_empty()


@pytest.mark.fault("V1")
def test_what_was_not_allowed_is_asked_for_again(archive: Archive, source: Planned) -> None:
    """With another plan the next pull fetches what the earlier one refused, and only that."""
    with pytest.warns(PlanWarning):
        pull(archive, source, views=["prices", "metrics", "books"])
    source.allowed_views = frozenset({"prices", "metrics", "books"})
    source.value = lambda view: ([(0.5, 1.0)], []) if view == "books" else 0.5  # type: ignore[method-assign]
    report = pull(archive, source)
    assert set(report["view"]) == {"books"}
    assert set(archive.coverage()["state"]) == {"final"}


@pytest.mark.fault("V1")
def test_an_archive_of_a_finer_base_says_what_to_do(archive: Archive, source: Planned) -> None:
    """The error names resolution= and a new archive; a resolution that is not the base is refused."""
    source.finest = "1m"
    pull(archive, source, views=["prices"])
    source.finest = "10m"
    with pytest.raises(PlanError, match=r"resolution='10m' into a new archive"):
        pull(archive, source, views=["prices"], refresh=True)
    with pytest.raises(ConfigError, match="has base='1m'"):
        pull(archive, source, views=["prices"], resolution="10m")


@pytest.mark.fault("V1", "V3")
def test_a_pull_starts_where_the_plan_begins_if_that_is_wanted(archive: Archive, source: Planned) -> None:
    """Without clamp the error names it; with it the refused range is not allowed, and the remaining one complete."""
    source.finest, source.earliest = "1m", HOURS + 600 * MINUTE
    with pytest.raises(PlanError, match="clamp=True"):
        pull(archive, source, views=["prices"])
    with pytest.warns(PlanWarning):
        report = pull(archive, source, views=["prices"], clamp=True)
    assert report.select("state", "rows").rows() == [("not_allowed", None), ("final", DAY - 600)]
    assert archive.coverage().select("state", "rows").rows() == [("not_allowed", 0), ("final", DAY - 600)]
    with pytest.warns(match="not_allowed"):
        archive.prices(M, HOURS / 1e6, HOURS / 1e6 + 86_400)


@pytest.mark.fault("V1", "V3")
def test_a_known_plan_is_followed_from_the_first_request(archive: Archive, source: Planned) -> None:
    """Where the service says what its plan allows, nothing else is asked for, so that nothing is refused."""
    asked, fetch = list[Any](), source.iter_columns

    def noted(*args: Any, **more: Any) -> Any:
        asked.append(args)
        return fetch(*args, **more)

    source.iter_columns = noted  # type: ignore[method-assign]
    source.earliest = HOURS + 600 * MINUTE
    source.resolutions = lambda: ["10m", "1h"]  # type: ignore[method-assign]
    source.history_start = lambda: source.earliest  # type: ignore[method-assign]
    with pytest.warns(PlanWarning):
        report = pull(archive, source, views=["prices"], clamp=True)
    assert report.select("state", "rows", "resolution").rows() == [("not_allowed", None, "10m"), ("final", 83, "10m")]
    assert len(asked) == 1


@pytest.mark.fault("V1")
def test_what_a_venue_no_longer_keeps_is_expired_and_not_empty(archive: Archive, source: Planned) -> None:
    """No clamp is needed; a pull does not ask for it again, a refresh does, and a read says what it is."""
    source.finest, source.earliest, source.refusal = "1m", HOURS + 600 * MINUTE, ExpiredError
    with pytest.warns(PlanWarning, match="no longer keeps metrics, prices"):
        report = pull(archive, source, views=["prices", "metrics"])
    states = report.sort("view", "start").select("view", "state", "rows").rows()
    assert states == [(view, *row) for view in ("metrics", "prices") for row in (("expired", None), ("final", 840))]
    assert set(again(archive).coverage().filter(rows=0)["state"]) == {"expired"}
    assert len(pull(archive, source, views=["prices", "metrics"])) == 0
    assert len(pull(archive, source, views=["prices"], refresh=True, dry_run=True)) == 1
    whole, early = (HOURS / 1e6, HOURS / 1e6 + 86_400), (HOURS / 1e6, HOURS / 1e6 + 3600)
    with pytest.warns(PartialCoverageWarning, match="are expired in .*import a recording") as said:
        assert archive.prices(M, *whole).height == 840
    assert "are missing" not in str(said[0].message)
    with pytest.raises(NotArchivedError, match=r"not stored.*import a recording"):
        archive.prices(M, *early)


@pytest.mark.fault("V4")
def test_an_old_empty_answer_about_a_traded_market_is_asked_for_again(archive: Archive) -> None:
    """It is final at once for a market without volume, and otherwise after another answer a week later."""
    source, start = Source(), START / 1e6
    source.now = START + 30 * DAY * MINUTE
    archive.add(markets=[{"market_id": M, "slug": "s", "volume": 5.0}])
    what: dict[str, Any] = {"views": ["prices"], "start": start, "end": start + 3600, "progress": False}
    archive.pull(source, MARKETS, **what)
    states = {r["market_id"]: r["state"] for r in archive.coverage().rows(named=True)}
    assert states == {M: "provisional", MARKETS[1]: "final"}
    assert len(archive.pull(source, MARKETS, **what)) == 0
    source.now += 8 * DAY * MINUTE
    assert archive.pull(source, MARKETS, **what)["market_id"].to_list() == [M]
    assert set(archive.coverage()["state"]) == {"final"}
