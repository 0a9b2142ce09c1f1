"""Whole days by one request each are what their pages are; a service that has none of them sees no request for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import requests
from client.test_house import MARKET, fill
from faults import Act, Ask, FaultServer, refuse
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle
from polars.testing import assert_frame_equal
from service.memory import MINUTE, MemoryArchive
from still import SOON

import marketdata as md
from marketdata.testing import no_waiting
from marketdata.testing.strategies import START, book_columns, metric_columns, price_columns
from marketdata.times import DAY, to_text

COLUMNS = {"books": book_columns, "prices": price_columns, "metrics": metric_columns}
VIEWS = list(COLUMNS)
WEEK = ("2025-12-25T07:30", "2026-01-01")


@dataclass
class Front:
    """Passes requests on to a service; ``days`` may answer those for days, ``offers`` says whether they are known."""

    base_url: str
    days: Callable[[Act], Act] = lambda act: act
    offers: bool = True
    last_day: str = "9999-12-31"  # those behind it fail
    failure: int = 500
    only_days: bool = False  # pages fail
    paths: list[str] = field(default_factory=list)

    def __call__(self, ask: Ask) -> Act:
        self.paths.append(ask.path)
        names = ("X-API-Key", "Accept")
        sent = {name: value for name in names for value in ask.header(name)}
        found = requests.get(self.base_url + ask.target, headers=sent, timeout=SOON)
        act = Act(found.status_code, found.content).with_header("Content-Type", found.headers["Content-Type"])
        if self.offers:
            act = act.with_header("X-Days", found.headers["X-Days"])
        if not ask.path.startswith("/days/"):
            return refuse(500) if self.only_days and ask.path.endswith("/books") else act
        return self.days(act) if ask.path[-10:] <= self.last_day else refuse(self.failure)

    @property
    def asked_days(self) -> list[str]:
        return [path for path in self.paths if path.startswith("/days/")]


@pytest.fixture(scope="module")
def house() -> Iterator[tuple[MemoryArchive, Any]]:
    """One running service over an archive whose content each example replaces."""
    archive = MemoryArchive()
    with md.serve(archive, requests_per_minute=10_000_000) as service:
        yield archive, service


@pytest.fixture(scope="module")
def week() -> Iterator[tuple[Any, str]]:
    """A service over a week of simulated history, and its first market of two tokens."""
    archive = md.simulate(events=1, days=6, markets=2, levels=3, seed=4, frame="polars")
    slug = archive.markets().filter(pl.col("token_ids").list.len() == 2)["slug"][0]
    with md.serve(archive) as service:
        yield service, slug


@pytest.fixture
def front(week: tuple[Any, str]) -> Iterator[tuple[Front, FaultServer]]:
    passing = Front(week[0].base_url)
    with FaultServer(passing) as server:
        yield passing, server


def client_of(base_url: str, week: tuple[Any, str], **options: Any) -> md.Client[Any]:
    return md.Client(base_url, week[0].api_key, frame="polars", **options)


def by_pages(week: tuple[Any, str], view: str = "books", **how: Any) -> Any:
    """What the same service answers as pages to a client that is not told of days."""
    with FaultServer(Front(week[0].base_url, offers=False)) as server:
        return getattr(client_of(server.base_url, week), view)(week[1], *WEEK, **how)


@pytest.mark.parametrize("view", VIEWS)
@given(data=st.data())
def test_days_are_what_their_pages_are(house: tuple[MemoryArchive, Any], view: str, data: st.DataObject) -> None:
    """Any view, range, page limit and number of levels: gaps, empty books and nulls, at once and frame after frame."""
    archive, service = house
    fill(archive, view, data.draw(COLUMNS[view]()))
    start = START + data.draw(st.integers(-3000, 2000)) * MINUTE
    end = start + data.draw(st.integers(1, 9000)) * MINUTE
    how = {"levels": data.draw(st.sampled_from([None, 1, 2]))} if view == "books" else {}
    limit = data.draw(st.sampled_from([3, 4, 200]))
    found, parts, reports = [], [], []
    for offers in (True, False):
        with FaultServer(Front(service.base_url, offers=offers)) as server:
            client = md.Client(server.base_url, service.api_key, frame="polars", page_limit=limit)
            client.usage()
            report = md.Report()
            found.append(getattr(client, view)(MARKET, to_text(start), to_text(end), **how, report=report))
            frames = list(getattr(client, f"iter_{view}")(MARKET, to_text(start), to_text(end), **how))
            parts.append(pl.concat([found[-1].clear(), *frames]))
            # How often is not compared: a bucket that pages bring twice is counted twice.
            reports.append((report.points, set(report.observed)))
    assert_frame_equal(found[0], found[1])
    assert_frame_equal(parts[0], parts[1])
    assert reports[0] == reports[1]


@pytest.mark.parametrize("view", VIEWS)
def test_a_whole_day_is_one_request(week: tuple[Any, str], view: str) -> None:
    """Of a range that begins within a day, that day comes as pages, and every other one by one request."""
    client, report = client_of(week[0].base_url, week), md.Report()
    client.usage()
    found = getattr(client, view)(week[1], *WEEK, report=report)
    assert_frame_equal(found, by_pages(week, view))
    days = found["ts"].dt.date().n_unique()
    assert report.pages <= days + 9  # the pages of a part of a day
    assert report.points == found.select(pl.col(c) for c in ("ts", "market_id", "token_id") if c in found).n_unique()


def test_a_first_large_fetch_looks_whether_days_are_offered(front: tuple[Front, FaultServer], week: Any) -> None:
    """A client that has no answer yet requests usage, which every service has, and then days."""
    found = client_of(front[1].base_url, week).books(week[1], "2025-12-26", "2026-01-01")
    assert front[0].paths[0] == "/v1/usage"
    assert len(front[0].asked_days) == found["ts"].dt.date().n_unique()


def test_another_implementation_sees_no_request_for_days() -> None:
    """A service that does not say that it has days is asked for what the interface has, and once for usage."""
    oracle = Oracle.of_prices(5 * 1440)
    with FaultServer(lambda ask: refuse(404) if ask.path == "/v1/usage" else oracle(ask)) as server:
        client = md.Client(server.base_url, "some-key-of-mine-1", frame="polars")
        assert len(client.prices("m1", "2026-01-01", "2026-01-06")) == 2 * 5 * 1440
        paths = [ask.path for ask in server.asks]
    assert all(path.startswith("/v1/") for path in paths)
    assert paths.count("/v1/usage") == 1


@pytest.mark.parametrize(
    "broken",
    [
        lambda _: refuse(404, "Not Found"),
        lambda _: refuse(405, "Method Not Allowed"),
        lambda _: refuse(501, "Not Implemented"),
        lambda act: Act(act.status, act.body[:-100], act.headers),
        lambda act: Act(act.status, b"{}", act.headers),
        lambda act: Act(act.status, b"", act.headers),
    ],
    ids=["not passed on", "not allowed", "not implemented", "cut", "json", "empty"],
)
def test_days_that_cannot_be_had_come_as_pages(front: tuple[Front, FaultServer], week: Any, broken: Any) -> None:
    """A proxy that does not pass days on, or damages them, costs a few requests, and later fetches none."""
    passing, server = front
    passing.days = broken
    client = client_of(server.base_url, week)
    client.usage()
    with no_waiting():
        assert_frame_equal(client.books(week[1], *WEEK), by_pages(week))
        asked = len(passing.asked_days)
        client.books(week[1], *WEEK)
    assert 1 <= asked <= 2
    assert len(passing.asked_days) == asked


def test_days_with_other_points_are_refused(front: tuple[Front, FaultServer], week: tuple[Any, str]) -> None:
    """An answer with the points of another day is not taken."""
    passing, server = front
    path = f"/days/{week[1]}/books/2025-12-29?resolution=1m"
    headers = {"X-API-Key": week[0].api_key, "Accept": "application/vnd.apache.arrow.stream"}
    other = requests.get(week[0].base_url + path, headers=headers, timeout=SOON).content
    passing.days = lambda act: Act(act.status, other, act.headers)
    client = client_of(server.base_url, week)
    client.usage()
    with no_waiting():
        assert_frame_equal(client.books(week[1], *WEEK), by_pages(week))


@pytest.mark.parametrize("column", ["market_id", "token_id", "token_label"])
def test_rows_of_other_tokens_are_refused(front: tuple[Front, FaultServer], week: tuple[Any, str], column: str) -> None:
    """An answer whose rows are not those of the market that it names is not taken."""

    def renamed(act: Act) -> Act:
        table = pa.ipc.open_stream(act.body).read_all()
        changed = table.set_column(table.column_names.index(column), column, pa.array(["7"] * len(table)))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, changed.schema) as writer:
            writer.write_table(changed)
        return Act(act.status, sink.getvalue().to_pybytes(), act.headers)

    front[0].days = renamed
    client = client_of(front[1].base_url, week)
    client.usage()
    with no_waiting():
        assert_frame_equal(client.books(week[1], *WEEK), by_pages(week))


def test_days_of_another_market_are_refused(front: tuple[Front, FaultServer], week: tuple[Any, str]) -> None:
    """A day of another market than that of the pages before, as a cache in between may give, is not taken."""
    passing, server = front
    headers = {"X-API-Key": week[0].api_key, "Accept": "application/vnd.apache.arrow.stream"}
    client = client_of(server.base_url, week)
    other = next(slug for slug in client.markets()["slug"] if slug != week[1])

    def of_another(act: Act) -> Act:
        path = passing.asked_days[-1].replace(week[1], other)
        found = requests.get(week[0].base_url + path + "?resolution=1m", headers=headers, timeout=SOON)
        return Act(found.status_code, found.content, act.headers)

    passing.days = of_another
    client.books(week[1], "2025-12-28", "2025-12-28T01:00")
    with no_waiting():
        assert_frame_equal(client.books(week[1], *WEEK), by_pages(week))
    assert passing.asked_days


def test_days_that_are_cut_each_time_come_as_pages(front: tuple[Front, FaultServer], week: Any) -> None:
    """A proxy that ends long answers does so again: that market comes by pages."""
    passing, server = front
    passing.days = lambda act: replace(act, limit_data=len(act.body) // 2)
    client = client_of(server.base_url, week)
    client.usage()
    with no_waiting():
        assert_frame_equal(client.books(week[1], *WEEK), by_pages(week))


def test_a_market_of_few_points_comes_as_pages() -> None:
    """Days that a page has several of are not requested one by one: one shows it, and pages bring the rest."""
    archive = MemoryArchive()
    archive.add_market("m1", {"Yes": "1", "No": "2"})
    first = START // DAY * DAY
    for day in range(30):
        archive.put("prices", "m1", "1", first + day * DAY, 0.5)
    with md.serve(archive) as service, FaultServer(passing := Front(service.base_url)) as server:
        client = md.Client(server.base_url, service.api_key, frame="polars")
        client.usage()
        assert len(client.prices("m1", to_text(first), to_text(first + 30 * DAY))) == 30
    assert len(passing.asked_days) == 1
    assert len(passing.paths) <= 5


def test_a_range_before_a_market_costs_few_requests(front: tuple[Front, FaultServer], week: tuple[Any, str]) -> None:
    """Where a market begins later than the range, its days are still requested at once."""
    passing, server = front
    client = client_of(server.base_url, week)
    client.usage()
    found = client.books(week[1], "2025-06-01", WEEK[1])
    market = client.market(week[1])
    assert_frame_equal(found, client.books(week[1], market["start_date"], WEEK[1]))
    assert len(set(passing.asked_days)) >= found["ts"].dt.date().n_unique() - 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_days_that_fail_come_as_pages(front: tuple[Front, FaultServer], week: tuple[Any, str], status: int) -> None:
    """Where days fail after some that came, and pages do not, the rest comes as pages."""
    passing, server = front
    passing.last_day, passing.failure = "2025-12-27", status
    client = client_of(server.base_url, week)
    client.usage()
    with no_waiting():
        assert_frame_equal(client.books(week[1], *WEEK), by_pages(week))


def test_a_fetch_that_fails_between_days_goes_on_there(front: tuple[Front, FaultServer], week: tuple[Any, str]) -> None:
    """The rows that came are in .partial, and the rest comes by resume."""
    passing, server = front
    passing.last_day, passing.only_days = "2025-12-27", True
    client = client_of(server.base_url, week)
    client.usage()
    with no_waiting(), pytest.raises(md.ServerError) as caught:
        client.books(week[1], "2025-12-26", WEEK[1])
    assert caught.value.partial["ts"].dt.date().n_unique() == 2
    passing.last_day, passing.only_days = "9999-12-31", False
    both = pl.concat([caught.value.partial, client.resume(caught.value.resume)])
    keys = ["ts", "token_id", "side", "level"]
    assert_frame_equal(both.sort(keys), client.books(week[1], "2025-12-26", WEEK[1]).sort(keys))


def test_an_unknown_market_of_several_is_an_error_once_the_others_came(week: tuple[Any, str]) -> None:
    """The others are in .partial, and in the frames of an iteration."""
    client = client_of(week[0].base_url, week)
    client.usage()
    with pytest.raises(md.NotFoundError, match="Not found: 'nope'") as caught:
        client.books(["nope", week[1]], *WEEK)
    assert_frame_equal(caught.value.partial, by_pages(week))
    frames = []
    with pytest.raises(md.NotFoundError, match="Market not found: nope") as caught:
        frames.extend(client.iter_books(["nope", week[1]], *WEEK))
    assert_frame_equal(pl.concat([*frames, caught.value.partial]), by_pages(week))


def test_a_plan_that_forbids_a_range_is_the_error_of_pages(week: tuple[Any, str]) -> None:
    """What a plan refuses is refused in the same words."""
    plans = {"recent": {"max_history_days": 3}, "coarse": {"resolutions": ["1h"]}}
    keys = {"a-key-of-my-own-0123456789": "recent", "another-of-my-own-0123456789": "coarse"}
    archive = md.simulate(events=1, days=6, markets=1, seed=4)
    slug = archive.markets()["slug"][0]
    with md.serve(archive, keys=keys, plans=plans) as service:
        for key, text in zip(keys, ("older than 3 days", "resolution 1m"), strict=True):
            client = md.Client(service.base_url, key)
            client.usage()
            with pytest.raises(md.PlanError, match=text):
                client.books(slug, *WEEK)


def test_pull_and_client_bring_the_same(week: tuple[Any, str], tmp_path: Any) -> None:
    """An archive that is pulled by days has the rows that a client reads as pages."""
    archive: Any = md.Archive(tmp_path, frame="polars")
    archive.pull(client_of(week[0].base_url, week), [week[1]], start=WEEK[0], end=WEEK[1], views=["books"])
    assert_frame_equal(archive.books(week[1], *WEEK), by_pages(week))


def test_strict_clients_name_what_they_refuse(front: tuple[Front, FaultServer], week: tuple[Any, str]) -> None:
    """An oddity in a day is the error that it is in a page."""
    archive = MemoryArchive()
    archive.add_market("m1", {"Yes": "1"})
    for minute in range(1440):
        archive.put("books", "m1", "1", START // DAY * DAY + minute * MINUTE, ([(0.4, 1.0), (0.5, 1.0)], []))
    with md.serve(archive) as service:
        client = md.Client(service.base_url, service.api_key, strict=True)
        client.usage()
        with pytest.raises(md.ContractError, match="strict mode refuses levels_sorted"):
            client.books("m1", to_text(START // DAY * DAY), to_text(START // DAY * DAY + DAY))
