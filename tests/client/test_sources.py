"""What the client does with any source: a venue that lacks views, records what there is now, and names winners."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from reference.clocks import stop_time

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, NetworkError
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.plans import PlanLimits
from marketdata.points.columns import Books, Page, Series, Token, Trades
from marketdata.points.records import with_winner
from marketdata.times import SECOND, Range, to_text
from marketdata.vendors import Service

START = 1_767_225_600 * SECOND
TOKENS = [Token("m", "m:yes", "Yes"), Token("m", "m:no", "No")]
RECORD = {
    "id": "m", "slug": "slug", "question": "?", "status": "active", "start_date": to_text(START), "end_date": None,
    "tokens": [{"id": one.token_id, "label": one.token_label} for one in TOKENS],
}  # fmt: skip


class Venue:
    """Prices of one market, its trades, and its books at this moment."""

    base_url = "http://127.0.0.1:1"
    service = Service("venue", base_url, None, ("1m", "1h"), 100, views=("prices",), live=("books",))
    limits, latency = PlanLimits(requests_per_minute=600), None

    def __init__(self) -> None:
        self.pacer = Pacer(600)
        self.begin = SYSTEM.time()
        self.traded = list(TOKENS)
        self.is_down = False

    @property
    def server_time(self) -> float:
        return START / SECOND + SYSTEM.time() - self.begin

    def pages(self, window: Any, **_: object) -> Iterator[Page]:
        ts = np.arange(window.first_bucket, window.rng.end, window.resolution.micros)
        bounds = np.array([0, len(ts), 2 * len(ts)])
        columns = Series((), bounds, np.tile(ts, 2), {"price": np.full(2 * len(ts), 0.5)}).with_tokens(TOKENS, bounds)
        labels = {str(one.token_label): one.token_id for one in TOKENS}
        yield Page(columns, "m", str(window.resolution), labels, None, None, None)

    def requests(self, window: Any, tokens: int) -> int:
        return tokens * -(-window.buckets // 10_000)

    def record(self, market: str) -> dict[str, Any]:
        return dict(RECORD)

    def records(self, *_: object) -> list[dict[str, Any]]:
        return [dict(RECORD)]

    def trades(self, market: str, rng: Range) -> Iterator[Trades]:
        values = {"side": np.array(["buy", "sell"], object), "price": np.array([0.4, 0.6]), "size": np.ones(2)}
        ts = np.array([rng.start, rng.end])
        yield Trades.of(TOKENS[:1], np.zeros(2, np.int64), ts, values)
        if self.is_down:
            raise NetworkError("no answer")

    def now(self, view: str, tokens: Any) -> Iterator[Books]:
        if self.is_down:
            raise NetworkError("no answer")
        ts = np.full(len(self.traded), round(self.server_time * SECOND) - 3600 * SECOND)  # of the last change
        price = np.tile([0.4, 0.6], len(self.traded))
        counts = np.ones(2 * len(self.traded), np.int64)
        token = np.arange(len(self.traded))
        books = Books.of_levels((), np.zeros(1, np.int64), ts, counts, price, np.full(len(price), 9.0), {})
        yield books.grouped(self.traded, token)

    def health(self) -> dict[str, Any]:
        return {"status": "ok", "timestamp": self.server_time}

    def usage(self) -> dict[str, Any]:
        return {}

    def learn_limits(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def venue(monkeypatch: pytest.MonkeyPatch) -> Venue:
    source = Venue()
    monkeypatch.setattr("marketdata.client.client.connect", lambda *_, **__: source)
    return source


def test_a_source_says_what_it_lacks_before_anything_is_sent(venue: Venue) -> None:
    client = md.Client("venue", frame="polars")
    assert client.plan("prices", "slug", "2026-01-01", "2026-01-02", "1m").requests == 2
    for ask in (client.books, client.quotes, client.metrics):
        with pytest.raises(ConfigError, match=r"venue has no (books|quotes|metrics).*; it has prices"):
            ask("slug", "2026-01-01", "2026-01-02")
    report = client.verify("slug", "2026-01-01", "2026-01-02")
    assert report.refused["books"].endswith("records them from now on.")
    assert report["averages"].state == "not decidable"
    assert report.service.rows["lacks"] == "books, metrics, quotes, trades"


def test_trades_are_those_of_the_range_and_an_error_keeps_them(venue: Venue) -> None:
    client = md.Client("venue", frame="polars")
    span = ("2026-01-01", "2026-01-02")
    frame = client.trades("slug", *span)
    assert frame["side"].to_list() == ["buy"]
    venue.is_down = True
    with pytest.raises(NetworkError) as caught:
        client.trades(["slug", "other"], *span)
    assert len(caught.value.partial) >= 1


def test_follow_records_the_present_and_leaves_gaps_where_it_did_not_run(
    venue: Venue, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_time(monkeypatch)
    with md.testing.no_waiting():
        _record(venue, tmp_path)


def _record(venue: Venue, tmp_path: Any) -> None:
    venue.begin = SYSTEM.time()
    archive = md.Archive(tmp_path, frame="polars")
    client = md.Client("venue", frame="polars")

    def run(rounds: int) -> list[Any]:
        return list(itertools.islice(archive.follow(client, "slug", views=["books"], every="1m"), rounds))

    run(3)
    SYSTEM.sleep(600)  # nobody is there
    venue.is_down = True
    assert isinstance(run(1)[0].error, NetworkError)
    venue.is_down, venue.traded = False, TOKENS[:1]
    SYSTEM.sleep(60)
    run(1)
    covered = archive.coverage().filter(view="books")
    minutes = [
        (int(a.timestamp()), int(b.timestamp()), s) for a, b, s in covered.select("start", "end", "state").rows()
    ]
    assert [state for *_, state in minutes] == ["final", "recorded"]
    assert minutes[0][1] - minutes[0][0] == 180
    assert minutes[1][0] - minutes[0][1] >= 600
    books = archive.books("slug", on_missing="partial").select("ts", "token_label").unique()
    assert books.group_by("token_label").len().sort("token_label").rows() == [("No", 3), ("Yes", 4)]
    assert all(ts.timestamp() >= START / SECOND for ts in books["ts"])  # not when a book last changed


@pytest.mark.parametrize(
    "named",
    [
        {"winner": "No"},
        {"winner": "m:no", "is_resolved": True},
        {"winning_outcome": "No"},
        {"winner": "NO"},
        {"winning_outcome": "no", "winning_asset_id": "m:no"},
        {"winning_asset_id": "m:no"},
        {"resolved_token_label": "No", "resolved_token_id": None},
        {"resolved_token_id": "m:no"},
        {"tokens": [{"id": "m:yes", "label": "Yes", "winner": False}, {"id": "m:no", "label": "No", "winner": True}]},
    ],
)
def test_a_winner_is_found_in_every_form(named: dict[str, Any]) -> None:
    record = with_winner({**RECORD, **named})
    assert (record["resolved_token_id"], record["resolved_token_label"]) == ("m:no", "No")


@pytest.mark.parametrize("named", [{}, {"winner": None}, {"winner": "Maybe"}, {"winner": "No", "is_resolved": False}])
def test_no_winner_is_invented(named: dict[str, Any]) -> None:
    assert with_winner({**RECORD, **named}) == {**RECORD, **named}


def test_a_number_of_400_digits_stops_nothing(tmp_path: Any, venue: Venue, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = {**RECORD, "volume": 10**400, "liquidity": 10**400, "other": [10**400]}
    monkeypatch.setattr(Venue, "record", lambda *_: dict(huge))
    monkeypatch.setattr(Venue, "records", lambda *_: [dict(huge)])
    client, archive = md.Client("venue", frame="polars"), md.Archive(tmp_path, frame="polars")
    assert client.markets()["volume"].to_list() == [str(10**400)]
    archive.pull(client, "slug", views="prices", start="2026-01-01", end="2026-01-02")
    with md.serve(archive) as served:
        again = md.Client(served.base_url, served.api_key, frame="polars")
        assert again.markets()["volume"].to_list() == [str(10**400)]
        assert again.market("slug").volume == 10**400


def test_two_winners_are_none() -> None:
    record = with_winner({**RECORD, "winner": "No", "winning_outcome": "Yes"})
    assert "resolved_token_id" not in record


def test_the_winner_of_a_record_pays_in_outcomes_and_scores(tmp_path: Any) -> None:
    """A service that names the winner by its label scores as one that names the token."""
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add(markets=[with_winner({**RECORD, "winner": "Yes"})])
    payoffs = md.outcomes(archive.markets())
    assert dict(payoffs.select("token_label", "payoff").rows()) == {"Yes": 1.0, "No": 0.0}
    prices = md.testing.prices("polars").with_columns(market_id=pl.lit("m"), token_id=pl.lit("m:yes"))
    assert md.brier(prices.unique("ts"), payoffs, of="token").height > 0
