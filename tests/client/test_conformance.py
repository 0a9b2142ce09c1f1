"""What every source promises: one set of tests for the interface and each venue, which a new venue joins by one entry.

A venue joins by its entry in ``reference.venue_loops.VENUES``.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from reference.kalshi_stub import START
from reference.memory import MemoryArchive
from reference.venue_loops import VENUES, is_equal, keyed
from reference.venues import client_of

import marketdata as md
from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.records import COLUMNS
from marketdata.points.views import VIEWS
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, Range, to_datetime, to_text

HOUR = 60 * MINUTE
HISTORIES = [view for view in VIEWS if view != "trades"]  # views of buckets


@dataclass(frozen=True)
class Case:
    """A client of a source, two of its markets by name, when they have points, and the requests so far."""

    name: str
    client: md.Client[Any]
    markets: list[str]
    rng: Range
    asked: Callable[[], int]

    @property
    def span(self) -> tuple[Any, Any]:
        return to_datetime(self.rng.start), to_datetime(self.rng.end)


@contextmanager
def interface() -> Iterator[Case]:
    """A service of this package."""
    archive = MemoryArchive()
    for k, market in enumerate(("rain", "snow")):
        archive.add_market(market, {"Yes": f"{k}0", "No": f"{k}1"})
        for minute in (m for m in range(360) if m % 11):
            ts, yes = START + minute * MINUTE, (minute * 7 + k) % 89 / 100
            for i, price in enumerate((yes, 1 - yes)):
                archive.put("prices", market, f"{k}{i}", ts, price)
                archive.put("books", market, f"{k}{i}", ts, ([(price / 2, 5.0)], [(price / 2 + 0.5, 5.0)]))
            archive.put("metrics", market, None, ts, {"volume": yes, "liquidity": 2.0, "spread": 0.02})
    with md.serve(archive, requests_per_minute=1_000_000) as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARKETDATA_API_KEY", service.api_key)  # a key is in no pickle
        client = md.Client(service.base_url, service.api_key, frame="polars", progress=False)
        transport: Any = client._source
        yield Case(
            "interface", client, ["rain", "snow"], Range(START, START + 6 * HOUR), lambda: transport.transport.requests
        )


@contextmanager
def venue(name: str) -> Iterator[Case]:
    """The stub of a venue."""
    case = VENUES[name]
    stub = case.stub()
    opened = stub.markets[2].opened // HOUR * HOUR + HOUR
    with client_of(stub, **case.options) as client:
        names = [case.name(market) for market in stub.markets[1:3]]
        yield Case(name, client, names, Range(opened, opened + 6 * HOUR), lambda: sum(stub.paths.values()))


@pytest.fixture(params=["interface", *VENUES])
def source(request: pytest.FixtureRequest) -> Iterator[Case]:
    with interface() if request.param == "interface" else venue(request.param) as case:
        yield case


# What `verify` finds of each reading (None: not decidable, for lack of the view), and the views that are lacking.
FOUND = {
    "interface": (("start", "points", "last", "absent", "points"), ["quotes"]),
    # Its hours are points of hours, no means of minutes.
    "polymarket": ((None, None, None, "absent", None), ["books", "metrics", "quotes"]),
    "polymarket by the data api": (("start", "last", None, "absent", None), ["books", "metrics", "quotes"]),
    "kalshi": (("start", "last", None, "absent", None), ["books"]),
}


def test_what_verify_promises_holds_or_is_lacking(source: Case) -> None:
    """Times are starts, empty buckets have no point; a view that the source lacks is refused by name, and no other."""
    report = source.client.verify(source.markets[0], *source.span)
    found, lacking = FOUND[source.name]
    assert tuple(report[name].found for name in ("label", "averages", "books", "empty", "limit")) == found
    assert [view for view in sorted(HISTORIES) if view not in source.client.views] == lacking
    assert report.refused.keys() == {"books", "prices", "metrics"} & {*lacking}
    assert all(source.client.views[0] in words for words in report.refused.values())


def test_a_view_that_is_lacking_costs_no_request(source: Case) -> None:
    """The error says what there is."""
    before = source.asked()
    for view in HISTORIES:
        if view not in source.client.views:
            with pytest.raises(ConfigError, match=f"no {view}.*{source.client.views[0]}"):
                getattr(source.client, view)(source.markets[0], *source.span, "1h")
    for view in VIEWS:
        if view not in source.client.live_views:
            with pytest.raises(ConfigError, match=view):
                list(source.client.feed.live_columns(view, ["1"]))
    assert source.asked() == before


@pytest.mark.parametrize("name", [*VENUES])
def test_the_time_before_and_after_a_market_costs_no_request(name: str) -> None:
    """A market that was traded for two days takes a few requests of a range of months, and has all of its rows."""
    case = VENUES[name]
    stub = case.stub(days=2.0)
    market, rng = stub.markets[1], Range(START - 60 * DAY, START + 60 * DAY)
    with client_of(stub, START + 70 * DAY, **case.options) as client:
        frame = client.prices(case.name(market), to_datetime(rng.start), to_datetime(rng.end), case.kept, all=True)
        width = BucketWidth.of(case.kept).micros
        assert is_equal(keyed(frame, "price"), case.prices(stub, [market], rng, width))
    assert sum(stub.paths.values()) <= 10


@pytest.mark.parametrize("width", ["1m", "1h"])
def test_any_cut_of_a_range_has_the_same_rows(source: Case, width: str) -> None:
    """Parts that touch are the whole, two markets are both, a token is its part; frames are tidy."""
    start, end = source.span
    middle = to_datetime(source.rng.start + 2 * HOUR)
    for view in source.client.views:
        get = getattr(source.client, view)
        one, other = (get(market, start, end, width) for market in source.markets)
        assert len(one) > 3
        md.available_at(one)  # the frame carries its width
        both = pl.concat([one, other]).sort("market_id", maintain_order=True)
        assert_frame_equal(get(source.markets, start, end, width), both, check_dtypes=False)
        cut = pl.concat([get(source.markets[0], *part, width) for part in ((start, middle), (middle, end))])
        keys = [name for name in ("market_id", "token_id", "ts", "side", "level") if name in one.columns]
        assert_frame_equal(cut.sort(keys), one.sort(keys), check_dtypes=False)
        assert get(source.markets[0], to_datetime(source.rng.start - 48 * HOUR), end, width).equals(
            pl.concat([get(source.markets[0], to_datetime(source.rng.start - 48 * HOUR), start, width), one])
            .sort("token_id" if "token_id" in one.columns else "market_id", "ts", maintain_order=True)
        ) or view == "books"  # fmt: skip
        if view in ("books", "prices"):
            token = one["token_id"][0]
            alone = getattr(source.client, f"token_{view}")(token, start, end, width)
            assert_frame_equal(alone, one.filter(pl.col("token_id") == token), check_dtypes=False)


def test_a_plan_says_at_least_what_is_requested(source: Case) -> None:
    """Before anything is fetched; what is shared may cost less."""
    for view in source.client.views:
        plan = source.client.plan(view, source.markets, *source.span, "1m")
        source.client.markets()
        before = source.asked()
        getattr(source.client, view)(source.markets, *source.span, "1m")
        assert source.asked() - before <= plan.requests + 3  # and what is learned once


def test_records_have_the_fields_of_the_interface(source: Case) -> None:
    """Each id once, by id and by slug, in listings and alone; an unknown name is an error."""
    for kind in ("series", "events", "markets"):
        frame = getattr(source.client, kind)()
        assert set(COLUMNS[kind]) <= {*frame.columns}
        assert frame[COLUMNS[kind][0]].is_unique().all()
        assert len(getattr(source.client, kind)(max_rows=1)) == min(1, len(frame))
    markets = source.client.markets()
    for name in source.markets:
        record = source.client.market(name)
        assert source.client.market(record["id"])["id"] == record["id"]
        row = markets.filter(pl.col("market_id") == record["id"]).row(0, named=True)
        assert row["token_ids"] == [token["id"] for token in record["tokens"]]
        assert source.client.tokens(name)["token_label"].to_list() == row["token_labels"]
    records = source.client.feed.market_records([*source.markets, "no-such-market"])
    assert [record["id"] for record in records] == [source.client.market(name)["id"] for name in source.markets]
    for ask in (source.client.market, lambda name: source.client.prices(name, *source.span, "1h")):
        with pytest.raises(NotFoundError, match="no-such-market"):
            ask("no-such-market")


def test_a_source_has_a_clock_a_rate_and_tags_and_can_be_pickled(source: Case) -> None:
    """A copy asks the same."""
    again = pickle.loads(pickle.dumps(source.client))
    assert again.health()["status"] == "ok"
    assert again.server_time() is not None
    assert again.usage()["limits"]["requests_per_minute"] > 0
    assert all(isinstance(tag, str) for tag in again.tags())
    span = (*source.span, "1h")
    assert again.prices(source.markets[0], *span).equals(source.client.prices(source.markets[0], *span))


def test_trades_are_those_of_the_range_or_lacking(source: Case) -> None:
    """Parts that touch are the whole; a source without trades says so."""
    marks = [to_text(source.rng.start + k * 2 * HOUR) for k in range(4)]
    try:
        whole = source.client.trades(source.markets[0], marks[0], marks[-1])
    except ConfigError as error:
        whole, words = None, str(error)
    if whole is None:
        assert "no trades; it has" in words
        return
    parts = [source.client.trades(source.markets[0], *pair) for pair in itertools.pairwise(marks)]
    assert len(whole) > 3
    keys = ["token_id", "ts"]
    assert_frame_equal(pl.concat(parts).sort(keys, maintain_order=True), whole.sort(keys, maintain_order=True))


@pytest.mark.parametrize("name", [*VENUES])
def test_two_ranges_that_touch_are_one_at_every_resolution(name: str) -> None:
    """Wherever the cut is on the grid of a resolution, in every view of a venue."""
    case = VENUES[name]
    stub = case.stub(days=4.0)
    market, (start, end) = stub.markets[1], (START - START % DAY, START - START % DAY + 4 * DAY)
    with client_of(stub, end + 2 * HOUR, **case.options) as client:
        for resolution, view in itertools.product(client.resolutions(), set(client.views) - {"trades"}):
            width, get = BucketWidth.of(resolution).micros, partial(getattr(client, view), case.name(market))
            middle = start + (end - start) // 2 // width * width + (width if width < DAY else 0)
            whole, *parts = (
                get(to_datetime(first), to_datetime(last), resolution)
                for first, last in ((start, end), (start, middle), (middle, end))
            )
            assert len(parts[0])
            assert len(parts[1])
            keys = [key for key in ("market_id", "token_id", "ts") if key in whole.columns]
            assert_frame_equal(pl.concat(parts).sort(keys), whole.sort(keys), check_dtypes=False)
