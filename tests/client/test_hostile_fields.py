"""Every field of every answer, wrong in every way: the rows are right, what lacks is counted, or an error says so."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import polars as pl
import pytest
from reference.faults import Act, Ask
from reference.kalshi_stub import START, KalshiStub, Traps
from reference.polymarket_stub import PolymarketStub
from reference.venues import client_of

import marketdata as md
from marketdata.errors import MarketDataError, MarketDataWarning
from marketdata.points.columns import joined
from marketdata.points.views import empty
from marketdata.tidy.frames import to_frame
from marketdata.times import DAY, MINUTE, SECOND, to_datetime

ABSENT, TWICE, OTHER = object(), object(), object()
SPAN = to_datetime(START + 60 * MINUTE), to_datetime(START + 90 * MINUTE)
WRONG: dict[str, Any] = {
    "an object": {"a": 1}, "true": True, "null": None, "absent": ABSENT, "infinite": "Infinity", "too large": "1e400",
    "an underscore": "0_1", "10^30": 10**30, "10^18": 10**18, "below 0": -1, "twice": TWICE, "of another": OTHER,
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """An answer of a venue: what asks for it, its path, and where its rows are."""

    stub: Callable[[], Any]
    path: str
    call: Callable[[Any, Any], Any]
    rows: Callable[[Any], list[dict[str, Any]]]
    keys: tuple[str, ...]  # what tells two rows apart


def polymarket() -> PolymarketStub:
    return PolymarketStub(count=3)


def kalshi() -> KalshiStub:
    return KalshiStub(count=3, traps=Traps(one_book_a_request=True))


def first(stub: Any) -> str:
    """The name of the first market."""
    market = stub.markets[0]
    return str(getattr(market, "slug", None) or market.ticker)


def tokens(stub: Any) -> list[str]:
    """The tokens of the first market."""
    market = stub.markets[0]
    return list(getattr(market, "tokens", None) or [f"{market.ticker}:yes", f"{market.ticker}:no"])


def record(client: Any, stub: Any) -> pl.DataFrame:
    found = client.market(first(stub))
    return pl.DataFrame(
        {"market_id": [found.get("slug") or first(stub)], "volume": [found.get("volume")]}, strict=False
    )


def prices(client: Any, stub: Any) -> Any:
    return client.prices(first(stub), *SPAN, "1m")


def trades(client: Any, stub: Any) -> Any:
    return client.trades(first(stub), SPAN[0], to_datetime(START + 4 * DAY))


def books(client: Any, stub: Any) -> Any:
    client.market(first(stub))
    parts = [part for part in client.live_columns("books", tokens(stub)) if len(part)]
    return to_frame(joined(parts) if parts else empty("books"), "polars").drop("ts")


def history(top: Any) -> Any:
    """The points of the only token, or of the first one of a batch."""
    found = top["history"]
    return next(iter(found.values())) if isinstance(found, dict) else found


ANSWERS = {
    "prices of Polymarket": Answer(polymarket, "prices-history", prices, history, ("t",)),
    "trades of Polymarket": Answer(polymarket, "/v2/trades", trades, lambda top: top["data"], ()),
    "books of Polymarket": Answer(polymarket, "/books", books, lambda top: top, ("asset_id",)),
    "record of Polymarket": Answer(
        polymarket, "/markets/slug/will-it-rain-0", record, lambda top: [top], ("id",)
    ),
    "candles of Kalshi": Answer(kalshi, "/candlesticks", prices, lambda top: top["candlesticks"], ("end_period_ts",)),
    "trades of Kalshi": Answer(kalshi, "/markets/trades", trades, lambda top: top["trades"], ("trade_id",)),
    "book of Kalshi": Answer(kalshi, "/orderbook", books, lambda top: [top["orderbook_fp"]], ()),
    "record of Kalshi": Answer(kalshi, "/markets/KXRAIN-0-T0", record, lambda top: [top["market"]], ("ticker",)),
}  # fmt: skip


def changed(stub: Any, path: str, change: Callable[[Any], Any]) -> Any:
    """The stub with another answer at a path."""
    answer = stub.answer

    def changed_answer(ask: Ask) -> Act:
        act = answer(ask)
        if not ask.path.endswith(path) or act.status != 200:
            return act
        return replace(act, body=json.dumps(change(json.loads(act.body))).encode())

    stub.answer = changed_answer
    return stub


def rows_of(frame: Any) -> set[tuple[Any, ...]]:
    return set(pl.DataFrame(frame).with_columns(pl.col(pl.Categorical).cast(pl.String)).rows())


def asked(answer: Answer, change: Callable[[Any], Any]) -> tuple[set[tuple[Any, ...]], Any, str] | MarketDataError:
    """The rows, the frame and the warnings of a call, or its error."""
    stub = changed(answer.stub(), answer.path, change)
    with warnings.catch_warnings(record=True) as caught, client_of(stub) as client:
        warnings.simplefilter("always")
        try:
            frame = answer.call(client, stub)
        except MarketDataError as error:
            return error
    return (
        rows_of(frame),
        frame,
        " ".join(str(one.message) for one in caught if issubclass(one.category, MarketDataWarning)),
    )


def fields(answer: Answer) -> list[str]:
    """The fields of the first row of an answer."""
    seen: list[str] = []

    def look(top: Any) -> Any:
        rows = answer.rows(top)
        seen.extend(name for name in (rows[0] if rows else ()) if name not in seen)
        return top

    asked(answer, look)
    return seen


def is_finite(frame: pl.DataFrame) -> bool:
    return all(frame[name].drop_nulls().is_finite().all() for name in frame.columns if frame[name].dtype.is_float())


def spoiled(answer: Answer, field: str, wrong: Any) -> Callable[[Any], Any]:
    """The answer with a wrong value in a row in the middle."""

    def change(top: Any) -> Any:
        rows = answer.rows(top)
        if not rows:
            return top
        row = rows[len(rows) // 2]
        if wrong is TWICE:
            again = copy.deepcopy(row)
            if isinstance(again.get(field), int | float) and field not in answer.keys:
                again[field] += 0.125
            rows.append(again)
        elif wrong is ABSENT:
            row.pop(field, None)
        elif wrong is OTHER:
            row[field] = "another" if isinstance(row.get(field), str) else row.get(field)
        else:
            row[field] = wrong
        return top

    return change


@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_field_is_refused_or_counted_or_changes_nothing(name: str) -> None:
    """No number is infinite, no row is of another market or time, and none is lost or made in silence."""
    answer = ANSWERS[name]
    truth = asked(answer, lambda top: top)
    assert not isinstance(truth, MarketDataError), truth
    right, frame, _ = truth
    assert right
    known = fields(answer)
    assert known
    failed = []
    for field in known:
        for what, wrong in WRONG.items():
            got = asked(answer, spoiled(answer, field, wrong))
            if isinstance(got, MarketDataError):
                continue
            rows, result, said = got
            problem, counted = "", said or (result.md.report and result.md.report.repairs)
            if len(rows) < len(right) and not counted:
                problem = "rows are lost in silence"
            elif not is_finite(result):
                problem = "an infinite number"
            elif set(result.get_column("market_id", default=pl.Series()).cast(pl.String)) - {
                str(one) for one in frame["market_id"].cast(pl.String)
            }:
                problem = "another market"
            elif "token_id" in result.columns and set(result["token_id"].cast(pl.String)) - set(
                frame["token_id"].cast(pl.String)
            ):
                problem = "another token"
            elif (
                "ts" in result.columns
                and len(result)
                and not result["ts"].is_between(frame["ts"].min(), frame["ts"].max()).all()
                and not said
            ):
                problem = "another time"
            if problem:
                failed.append(f"{field} is {what}: {problem}")
    assert not failed, "\n".join(failed)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "a list": lambda _: [], "a text": lambda _: "nothing", "a number": lambda _: 5, "an object": lambda _: {"a": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("what", WHOLE)
def test_an_answer_of_another_kind_is_no_empty_answer(name: str, what: str) -> None:
    """Where an object is documented, a list, a text or another object is an error, and never "there is nothing"."""
    answer = ANSWERS[name]
    if name == "books of Polymarket" and what == "a list":
        pytest.skip("no books at all: these tokens are no longer traded")
    got = asked(answer, WHOLE[what])
    assert isinstance(got, MarketDataError), got


@pytest.mark.parametrize("days", [-1, 1, 400])
@pytest.mark.parametrize("name", ["prices of Polymarket", "candles of Kalshi"])
def test_points_of_another_time_are_no_empty_range(name: str, days: int) -> None:
    """If all points of an answer lie outside of what was asked for, that is an error; some are counted."""
    answer = ANSWERS[name]
    field = answer.keys[0]

    def shifted(top: Any, every: int = 1) -> Any:
        for row in answer.rows(top)[::every]:
            row[field] += days * DAY // SECOND
        return top

    got = asked(answer, shifted)
    assert isinstance(got, MarketDataError), got
    assert "was asked for" in str(got)
    got = asked(answer, lambda top: shifted(top, 2))
    assert not isinstance(got, MarketDataError), got
    assert got[1].md.report.repairs["outside_range"] > 0


def test_a_pull_warns_of_odd_prices_and_counts_them(tmp_path: Any) -> None:
    """A price of 40 or -0.2 is kept as it came: client.prices and archive.pull say so, the latter by range."""
    answer = ANSWERS["prices of Polymarket"]

    def odd(top: Any) -> Any:
        rows = answer.rows(top)
        rows[1]["p"], rows[2]["p"] = 40.0, -0.2
        return top

    got = asked(answer, odd)
    assert not isinstance(got, MarketDataError), got
    assert "price_outside_0_1" in got[2]
    stub = changed(polymarket(), answer.path, odd)
    archive = md.Archive(tmp_path / "a", frame="polars")
    with client_of(stub) as client:
        pull = partial(archive.pull, client, [first(stub)], views=["prices"], start=SPAN[0], end=SPAN[1])
        with pytest.warns(MarketDataWarning, match="price_outside_0_1"):
            report = pull()
    assert report["odd"].sum() == 2  # of the token that is odd


def test_one_token_of_two_outcomes_is_refused() -> None:
    """Ten rows for five, and a market that pays twice, would come of it."""
    answer = ANSWERS["record of Polymarket"]

    def shared(top: Any) -> Any:
        return {**top, "clobTokenIds": json.dumps([tokens(polymarket())[0]] * 2)}

    got = asked(answer, shared)
    assert isinstance(got, MarketDataError)
    assert "one token" in str(got)
