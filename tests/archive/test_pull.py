"""Filling an archive gap by gap."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from archive.source import MARKETS, MINUTE, START, TOKENS, CutError, Source, points_of
from archive.stored import minute, states

from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, NotArchivedError, NotFoundError, ServiceOddityWarning
from marketdata.points.views import INTERFACE_VIEWS

M = MARKETS[0]
HOUR = 60
DAY = 1440


@pytest.fixture
def source() -> Source:
    """Two hours of every view of two markets, with a one-sided and an empty book."""
    out = Source()
    for market in MARKETS:
        for n in range(2 * HOUR):
            out.points["metrics", market, 0, n] = (float(n), 5.0)
            for token in range(len(TOKENS[market])):
                bids = [(0.4, 1.0 + n), (0.3, 2.0)] if n % 3 else []
                out.points["books", market, token, n] = (bids, [(0.6, 1.0)] if n % 5 else [])
                out.points["prices", market, token, n] = n / 1000
    return out


def held(archive: Archive, market: str = M) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for view in INTERFACE_VIEWS:
        out |= points_of(view, Reader(archive).columns(view, market))
    return out


def truth(source: Source, market: str = M, below: int = 10**9) -> dict[Any, Any]:
    return {k: v for k, v in source.points.items() if k[1] == market and k[3] < below}


def test_a_second_pull_makes_no_request(archive: Archive, source: Source) -> None:
    """A pull of two markets and three views, in many windows, stores every point; what is final is never requested."""
    markets = [f"slug-{M}", MARKETS[1]]
    archive.pull(source, markets, start=minute(0), end=minute(120))
    assert {**held(archive), **held(archive, MARKETS[1])} == source.points
    source.requests.clear()
    assert len(archive.pull(source, markets, start=minute(0), end=minute(120))) == 0
    assert source.requests == []


def test_only_the_gaps_are_asked_for(archive: Archive, source: Source) -> None:
    """A range that is partly stored is requested only where it is not; a dry run says so and fetches nothing."""
    archive.pull(source, M, views=["books"], start=minute(30), end=minute(60))
    source.requests.clear()
    plan = archive.pull(source, M, views=["books"], start=minute(0), end=minute(120), dry_run=True)
    ranges = [(row["start"].timestamp(), row["end"].timestamp()) for row in plan.rows(named=True)]
    assert ranges == [(minute(0), minute(30)), (minute(60), minute(120))]
    assert source.asked == []
    assert states(archive) == [(30, 60, "final")]
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(120))
    asked = {t for _, _, r in source.asked for t in range(r.start, r.end, MINUTE)}
    assert asked == {START + n * MINUTE for n in [*range(30), *range(60, 120)]}
    assert states(archive) == [(0, 120, "final")]


def test_an_event_and_a_series_stand_for_their_markets(archive: Archive, source: Source) -> None:
    """Markets of an event or series are listed by each pull, and their records are kept."""
    archive.pull(source, series_slug="s", views=["prices"], start=minute(0), end=minute(20))
    for market in MARKETS:
        assert states(archive, "prices", market) == [(0, 20, "final")]
    source.requests.clear()
    archive.pull(source, event_slug="e", views=["prices"], start=minute(0), end=minute(20))
    assert source.asked == []
    assert {m["id"] for m in archive.records("markets")} == set(MARKETS)
    assert archive.records("events")[0]["slug"] == "e"


def test_a_search_and_all_markets_are_listed_anew_each_time(archive: Archive, source: Source) -> None:
    """`search=` pulls what the service finds, `all_markets=True` what it lists; final points are not asked again."""
    archive.pull(source, search=M, views=["prices"], start=minute(0), end=minute(20))
    assert states(archive, "prices") == [(0, 20, "final")]
    assert states(archive, "prices", MARKETS[1]) == []
    source.requests.clear()
    archive.pull(source, all_markets=True, views=["prices"], start=minute(0), end=minute(20))
    assert {market for _, market, _ in source.asked} == {MARKETS[1]}
    assert {m["id"] for m in archive.records("markets")} == set(MARKETS)
    source.requests.clear()
    assert len(archive.pull(source, all_markets=True, views=["prices"], start=minute(0), end=minute(20))) == 0
    assert source.asked == []
    with pytest.raises(NotFoundError, match="no market of search='nothing like it'"):
        archive.pull(source, search="nothing like it", start=minute(0), end=minute(20))


def test_names_come_from_a_file(
    archive: Archive, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids and slugs are read one a line, without blank lines and comments; `-` is the standard input."""
    text = f"\ufeff# what I follow\n\n  {M}  # the first\nslug-{MARKETS[1]}\r\n{M}\n"
    file = tmp_path / "names.txt"
    file.write_bytes(text.encode())
    monkeypatch.setattr("sys.stdin", io.StringIO(text.removeprefix("\ufeff")))
    for end, names in ((20, file), (40, "-")):
        report = archive.pull(source, file=names, views=["prices"], start=minute(0), end=minute(end))
        assert sorted(report["market_id"]) == sorted(MARKETS)


def test_a_file_that_names_nothing_is_refused(archive: Archive, source: Source, tmp_path: Path) -> None:
    """A file that is not there, is no text, or holds comments only is an error that names it."""
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary"
    empty.write_text("# nothing\n\n")
    binary.write_bytes(b"\xff\xfe\x00")
    for file, said in ((empty, "names nothing"), (binary, "UTF-8"), (tmp_path / "none", "No such file")):
        with pytest.raises(ConfigError, match=said) as info:
            archive.pull(source, file=file, start=minute(0))
        assert info.value.argument == "file"
    assert source.requests == []


@pytest.mark.fault("AR26")
def test_a_stopped_pull_goes_on_where_it_was(archive: Archive, source: Source) -> None:
    """After a cut in any page the pages before it are kept, and at most one is asked for again."""
    for pages in range(6):
        source.cut_after = 2
        with pytest.raises(CutError):
            archive.pull(source, M, views=["books"], start=minute(0), end=minute(120))
        assert states(archive) == [(0, 14 * (pages + 1), "final")]
    source.cut_after = None
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(120))
    asked = [t for _, _, r in source.asked for t in range(r.start, r.end, MINUTE)]
    assert len(asked) == len(set(asked)) == 120
    assert held(archive) == {k: v for k, v in truth(source).items() if k[0] == "books"}


@pytest.mark.fault("AR33")
def test_an_interrupted_pull_keeps_what_had_come(archive: Archive, source: Source) -> None:
    """Ctrl-C during a page loses that page and nothing else."""
    whole = source.iter_columns

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        for n, item in enumerate(whole(*args, **kwargs)):
            if n == 3:
                raise KeyboardInterrupt
            yield item

    source.iter_columns = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        archive.pull(source, M, views=["metrics"], start=minute(0), end=minute(120))
    assert states(archive, "metrics") == [(0, 21, "final")]


@pytest.mark.fault("AR24")
def test_the_live_edge_is_provisional_and_fetched_until_it_has_settled(archive: Archive, source: Source) -> None:
    """Buckets that are open, or closed for less than ten minutes, are fetched again; later ones are never covered."""
    source.now = START + 100 * MINUTE + 30_000_000
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(DAY))
    assert states(archive) == [(0, 90, "final"), (90, 101, "provisional")]
    source.points["books", M, 0, 95] = ([(0.1, 1.0)], [])
    source.now = START + 105 * MINUTE
    source.requests.clear()
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(DAY))
    assert min(r.start for _, _, r in source.asked) == START + 90 * MINUTE
    assert states(archive) == [(0, 95, "final"), (95, 106, "provisional")]
    source.now = START + 5_000 * MINUTE
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(120))
    assert states(archive) == [(0, 120, "final")]
    assert held(archive)["books", M, 0, 95] == ([(0.1, 1.0)], [])


@pytest.mark.fault("AR23")
def test_a_local_clock_ahead_finalises_nothing(
    archive: Archive, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has settled is told by the server's clock; without it nothing of the last day is final."""
    source.now = START + 60 * MINUTE
    monkeypatch.setattr(SYSTEM, "_ahead", 0.0)
    monkeypatch.setattr("time.time_ns", lambda: (START + 90 * DAY * MINUTE) * 1000)
    archive.pull(source, M, views=["prices"], start=minute(0), end=minute(120))
    assert states(archive, "prices") == [(0, 50, "final"), (50, 61, "provisional")]
    monkeypatch.setattr("time.time_ns", lambda: (START + 120 * MINUTE) * 1000)
    monkeypatch.setattr(source, "health", lambda: {"status": "ok"})
    archive.pull(source, M, views=["metrics"], start=minute(0), end=minute(120))
    assert states(archive, "metrics") == [(0, 120, "provisional")]


@pytest.mark.fault("AR25")
def test_a_revised_bucket_counts_only_with_refresh(archive: Archive, source: Source) -> None:
    """A final bucket that the source revises or withdraws stays, until a refresh: then the last fetch wins."""
    archive.pull(source, M, views=["prices"], start=minute(0), end=minute(60))
    before = held(archive)
    source.points["prices", M, 1, 30] = 0.9
    del source.points["prices", M, 0, 35]
    archive.pull(source, M, views=["prices"], start=minute(0), end=minute(60))
    assert held(archive) == before
    archive.pull(source, M, views=["prices"], start=minute(20), end=minute(40), refresh=True)
    assert held(archive) == {k: v for k, v in truth(source, below=60).items() if k[0] == "prices"}
    assert archive.verify().is_empty()


@pytest.mark.fault("AR27")
def test_an_empty_answer_near_now_is_asked_again_before_it_is_believed(archive: Archive, source: Source) -> None:
    """No points near now: observed empty, asked again after an hour, a day and a week, then final."""
    source.now = START + 500 * MINUTE
    for wait in (0, 61, DAY + 1, 7 * DAY + 1):
        assert states(archive, "prices") in ([], [(200, 300, "provisional")])
        source.now += wait * MINUTE
        source.requests.clear()
        archive.pull(source, M, views=["prices"], start=minute(200), end=minute(300))
        assert source.asked
        source.requests.clear()
        archive.pull(source, M, views=["prices"], start=minute(200), end=minute(300))
        assert source.asked == []
    assert states(archive, "prices") == [(200, 300, "final")]


@pytest.mark.fault("AR28")
def test_a_walk_without_a_proven_end_is_not_final(archive: Archive, source: Source) -> None:
    """The last page of an unverified walk is held but unverified, and asked for again."""
    source.proves_its_end = False
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(20))
    assert states(archive) == [(0, 14, "final"), (14, 20, "unverified")]
    source.proves_its_end = True
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(20))
    assert states(archive) == [(0, 20, "final")]


def test_batches_of_any_size_hold_the_same(archive: Archive, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many windows go into a commit, every point is there, and every range final."""
    monkeypatch.setattr("marketdata.archive.pull.commits._BATCH_LEVELS", 50)
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(60))
    assert states(archive) == [(0, 60, "final")]
    assert held(archive) == {k: v for k, v in truth(source, below=60).items() if k[0] == "books"}


@pytest.mark.fault("AR9")
def test_two_pulls_of_one_range_leave_each_point_once(archive: Archive, source: Source) -> None:
    """Two writers that fetch the same range at the same time replace each other's points; nothing is doubled."""
    with ThreadPoolExecutor(2) as pool:
        pulls = [
            pool.submit(Archive(archive.location).pull, source, M, start=minute(0), end=minute(120)) for _ in range(2)
        ]
        for pull in pulls:
            pull.result()
    fresh = Archive(archive.location, frame="polars")
    assert held(fresh) == truth(source)
    assert len(fresh.pull(source, M, start=minute(0), end=minute(120))) == 0


def test_reads_of_what_is_not_held_name_the_range(archive: Archive, source: Source) -> None:
    """A range outside of what is held is an error with that range; inside of a gap too, when asked for."""
    archive.pull(source, M, views=["books"], start=minute(0), end=minute(20))
    with pytest.raises(NotArchivedError) as info:
        archive.books(M, minute(40), minute(50))
    assert [t.timestamp() for t in info.value.range] == [minute(40), minute(50)]
    with pytest.raises(NotArchivedError) as info:
        archive.books(M, minute(10), minute(30), on_missing="raise")
    assert [t.timestamp() for t in info.value.range] == [minute(20), minute(30)]
    assert len(archive.books(M, minute(10), minute(30), on_missing="partial")) > 0


def test_a_pull_of_nothing_or_of_two_things_is_refused(archive: Archive, source: Source) -> None:
    """Exactly one way to choose markets is needed, which the error names, and views that exist."""
    not_one = ({}, {"markets": M, "event_slug": "e"}, {"search": "x", "all_markets": True}, {"all_markets": False})
    others = ({"search": ""}, {"markets": []}, {"markets": 7}, {"markets": M, "views": ["orders"]})
    for wrong in (*not_one, *others):
        with pytest.raises(ConfigError) as info:
            archive.pull(source, start=minute(0), end=minute(1), **wrong)
        ways = ("markets=", "event_slug=", "series_slug=", "search=", "file=", "all_")
        assert wrong in others or all(way in str(info.value) for way in ways)
    assert source.requests == []


@pytest.mark.fault("AR27")
@pytest.mark.fault("AR50")
def test_an_hour_that_comes_late_is_fetched_by_hourly_pulls(archive: Archive, source: Source) -> None:
    """Silence that lies on both sides of a pull's settle time is a hole as one that an answer holds whole."""
    source.points = {("prices", M, 0, n): n / 1000 for n in range(600)}
    late = {key: source.points.pop(key) for key in list(source.points) if 150 <= key[3] < 240}
    for hour in range(9 * 24):
        source.now = START + (200 + 60 * hour) * MINUTE
        if hour == 6:
            source.points |= late
        archive.pull(source, M, views=["prices"], start=minute(0), end=minute(600), progress=False)
    assert held(archive) == source.points


@pytest.mark.fault("AR23")
def test_a_server_clock_that_is_ahead_makes_nothing_final(
    archive: Archive, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier of both clocks decides what is final, with a warning: a pull an hour later has all points."""
    here = [START + 200 * MINUTE]
    monkeypatch.setattr(SYSTEM, "time", lambda: here[0] / 1e6)
    source.points = {("prices", M, 0, n): n / 1000 for n in range(200)}
    for hour in range(3):
        here[0] = START + (200 + 60 * hour) * MINUTE
        source.now = here[0] + HOUR * MINUTE
        source.points |= {("prices", M, 0, n): n / 1000 for n in range(200 + 60 * hour)}
        with pytest.warns(ServiceOddityWarning, match="3600 s ahead"):
            archive.pull(source, M, views=["prices"], start=minute(0))
        assert states(archive, "prices")[0] == (0, 190 + 60 * hour, "final")
    assert held(archive) == source.points


@pytest.mark.parametrize(("wrong", "meant"), [("event", "event_slug"), ("view", "views"), ("status", "state")])
def test_a_keyword_that_no_pull_has_is_refused_before_anything_is_asked(
    archive: Archive, source: Source, wrong: str, meant: str
) -> None:
    """The error names the argument or filter that it resembles; all filters of a listing may be given."""
    for method in (archive.pull, archive.follow, *([] if wrong == "view" else [archive.record])):
        with pytest.raises(ConfigError, match=rf"{wrong} is no argument of {method.__name__}.*{meant}="):
            method(source, MARKETS[0], **{wrong: "x"})
    assert source.requests == []
