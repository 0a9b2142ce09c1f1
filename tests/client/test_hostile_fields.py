"""Every field of every answer, wrong in every way: the rows are right, what lacks is counted, or an error says so."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import polars as pl
import pytest
from reference.faults import Act, Ask, ok
from reference.kalshi_stub import START, KalshiStub, Traps
from reference.polymarket_stub import PolymarketStub
from reference.venues import VenueStub, client_of

import marketdata as md
from marketdata.errors import MarketDataError, MarketDataWarning
from marketdata.points.columns import joined
from marketdata.points.records import FIELDS
from marketdata.points.views import empty
from marketdata.tidy.frames import to_frame
from marketdata.times import DAY, MINUTE, SECOND, to_datetime, to_text

ABSENT, TWICE, OTHER, THOUSANDTHS = object(), object(), object(), object()
SPAN = to_datetime(START + 60 * MINUTE), to_datetime(START + 90 * MINUTE)
WRONG: dict[str, Any] = {
    "an object": {"a": 1}, "true": True, "null": None, "absent": ABSENT, "infinite": "Infinity", "too large": "1e400",
    "an underscore": "0_1", "10^30": 10**30, "10^18": 10**18, "below 0": -1, "twice": TWICE, "of another": OTHER,
    "in thousandths": THOUSANDTHS,
}  # fmt: skip


@dataclass
class House(VenueStub):
    """A service of the interface with ten markets, of which the first has a history."""

    venue: ClassVar[str] = "https://data.test"
    hosts: ClassVar[tuple[str, ...]] = ("data.test",)
    count: int = 16

    def __post_init__(self) -> None:
        self.markets = [self.record(k) for k in range(self.count)]

    def record(self, k: int) -> dict[str, Any]:
        tokens = [{"id": str(10**40 + 2 * k + i), "label": label} for i, label in enumerate(("Yes", "No"))]
        dates = {"start_date": to_text(START), "end_date": to_text(START + DAY), "closed_at": to_text(START + DAY)}
        won = {"resolved_token_id": tokens[0]["id"], "resolved_token_label": "Yes", "volume": 2.5 + k}
        return {"id": str(7000 + k), "slug": f"rain-{k}", "question": "Rain?", "status": "resolved", "tags": ["rain"],
                "tokens": tokens, **dates, **won}  # fmt: skip

    def answer(self, ask: Ask) -> Act:
        name, _, view = ask.path.removeprefix("/v1/").removeprefix("markets/").partition("/")
        if view:
            return ok(self.history(name, view))
        groups = [{"id": str(k), "slug": f"group-{k}", "title": "Rain", "status": "active", "tags": ["rain"],
                   "start_date": to_text(START), "end_date": to_text(START + DAY)}
                  for k in range(self.count)]  # fmt: skip
        metadata = {"count": self.count, "limit": 1000, "next_cursor": None}
        limits = {"requests_per_minute": 60, "requests_remaining": 9, "granularity_allowed": "1m",
                  "max_history_days": "30"}  # fmt: skip
        return ok({
            "series": {"data": groups, "metadata": metadata}, "events": {"data": groups, "metadata": metadata},
            "markets": {"data": self.markets, "metadata": metadata}, "tags": {"count": 1, "data": ["rain"]},
            "health": {"status": "ok", "timestamp": to_text(START)},
            "usage": {"plan": "free", "organization": "o", "limits": limits, "reset_at": START // SECOND},
            "rain-0": self.markets[0],
        }[name])  # fmt: skip

    def history(self, name: str, view: str) -> dict[str, Any]:
        times = [to_text(START + (60 + k) * MINUTE) for k in range(6)]
        point = {
            "prices": {"p": 0.25}, "metrics": {"volume": 5.0, "liquidity": 7.5, "spread": 0.5},
            "books": {"bids": [[0.25, 5.0], [0.125, 1.5]], "asks": [[0.5, 2.5]]},
        }[view]  # fmt: skip
        points = [{"t": t, **copy.deepcopy(point)} for t in times]
        tokens = {token["label"]: token["id"] for token in self.markets[0]["tokens"]}
        data: Any = points if view == "metrics" else {label: copy.deepcopy(points) for label in tokens}
        count = len(points) if view == "metrics" else 2 * len(points)
        return {"market_id": self.markets[0]["id"], "resolution": "1m", "tokens": tokens, "data": data,
                "metadata": {"count": count, "limit": 200, "next_cursor": None}}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """An answer of a venue or a service: what asks for it, its path, and where its rows are."""

    stub: Callable[[], Any]
    path: str
    call: Callable[[Any, Any], Any]
    rows: Callable[[Any], list[dict[str, Any]]]
    keys: tuple[str, ...]  # what tells two rows apart
    opaque: tuple[str, ...] = ()  # ids that may be any text


def polymarket() -> PolymarketStub:
    return PolymarketStub(count=3, days=0.2)


def kalshi() -> KalshiStub:
    return KalshiStub(count=3, days=0.2, traps=Traps(one_book_a_request=True))


def first(stub: Any) -> str:
    """The name of the first market."""
    market = stub.markets[0]
    if isinstance(market, dict):
        return str(market["slug"])
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
    parts = [part for part in client.feed.live_columns("books", tokens(stub)) if len(part)]
    return to_frame(joined(parts) if parts else empty("books"), "polars").drop("ts")


def frame_of(record: Any) -> pl.DataFrame:
    """A record as a frame of one row, for what is shown as it is."""
    numbers = {f"n{k}": [value] for k, value in enumerate(record.values()) if isinstance(value, float)}
    return pl.DataFrame({"market_id": ["known"], **numbers})


def settled(client: Any, stub: Any) -> pl.DataFrame:
    """What the market paid that resolved as Yes."""
    found = client.market(next(market.slug for market in stub.markets if market.state == "yes"))
    return pl.DataFrame({"market_id": [found["id"]], "paid": [found["payoffs"][0] if found["payoffs"] else None]})


def of_view(view: str) -> Callable[[Any, Any], Any]:
    return lambda client, stub: getattr(client, view)(first(stub), *SPAN, "1m")


def house_points(top: Any) -> list[dict[str, Any]]:
    """The points of the first token, or of the market."""
    return list(top["data"]) if isinstance(top["data"], list) else next(iter(top["data"].values()))


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
    "resolutions of Polymarket": Answer(polymarket, "/v2/resolutions", settled, lambda top: top["data"], ()),
    **{f"{view} of the interface": Answer(House, f"/{view}", of_view(view), house_points, ("t",))
       for view in ("books", "prices", "metrics")},
    "pages of the interface": Answer(House, "/prices", of_view("prices"), lambda top: [top], (), ("market_id",)),
    "paging of the interface": Answer(House, "/prices", of_view("prices"), lambda top: [top["metadata"]], ()),
    "record of the interface": Answer(House, "/markets/rain-0", record, lambda top: [top], ("id",)),
    "tokens of the interface": Answer(
        House, "/markets/rain-0", lambda client, _: client.tokens("rain-0"), lambda top: top["tokens"], ("id",), ("id",)
    ),
    "usage of the interface": Answer(House, "/usage", lambda c, _: frame_of(c.usage()), lambda top: [top], ()),
    "limits of the interface": Answer(
        House, "/usage", lambda c, _: frame_of(c.usage()), lambda top: [top["limits"]], ()
    ),
    "health of the interface": Answer(House, "/health", lambda c, _: frame_of(c.health()), lambda top: [top], ()),
}  # fmt: skip


def nested(top: Any) -> list[dict[str, Any]]:
    """The markets inside of events."""
    return [row for event in top["events"] for row in event["markets"]]


# Rows that are each a record, so that all faults of a field are tried by one call.
LISTINGS = {
    "markets of Polymarket": ("polymarket", "/markets/keyset", "markets", lambda top: top["markets"]),
    "events of Polymarket": ("polymarket", "/events/keyset", "events", lambda top: top["events"]),
    "series of Polymarket": ("polymarket", "/series", "series", lambda top: top),
    "markets of Kalshi": ("kalshi", "/events", "markets", nested),
    "events of Kalshi": ("kalshi", "/events", "events", lambda top: top["events"]),
    "series of Kalshi": ("kalshi", "/series", "series", lambda top: top["series"]),
    **{f"{kind} of the interface": ("house", f"/v1/{kind}", kind, lambda top: top["data"])
       for kind in ("series", "events", "markets")},
}  # fmt: skip
STUBS: dict[str, Callable[[int], Any]] = {
    "polymarket": lambda count: PolymarketStub(count=count, days=3.0),
    "kalshi": lambda count: KalshiStub(count=count), "house": lambda count: House(count=count),
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


def a_client_of(stub: Any) -> Any:
    return client_of(stub, api_key="k" * 32) if isinstance(stub, House) else client_of(stub)


def rows_of(frame: Any) -> set[tuple[Any, ...]]:
    return set(pl.DataFrame(frame).with_columns(pl.col(pl.Categorical).cast(pl.String)).rows())


def asked(answer: Answer, change: Callable[[Any], Any]) -> tuple[set[tuple[Any, ...]], Any, str] | MarketDataError:
    """The rows, the frame and the warnings of a call, or its error."""
    stub = changed(answer.stub(), answer.path, change)
    with warnings.catch_warnings(record=True) as caught, a_client_of(stub) as client:
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


def thousandths(value: Any) -> Any:
    """A number in a unit that is a thousand times smaller."""
    return value * 1000 if isinstance(value, int | float) and not isinstance(value, bool) else value


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
        elif wrong is THOUSANDTHS:
            row[field] = thousandths(row.get(field))
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
            if field in answer.opaque and isinstance(wrong, str | int):
                continue
            got = asked(answer, spoiled(answer, field, wrong))
            if isinstance(got, MarketDataError):
                continue
            rows, result, said = got
            problem, counted = "", said or (result.md.report and result.md.report.repairs)
            if len(rows) < len(right) and not counted:
                problem = "rows are lost in silence"
            elif not is_finite(result):
                problem = "an infinite number"
            elif field in answer.opaque and wrong is OTHER:
                continue
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


def known_types(kind: Any) -> set[str]:
    """The columns of records that have one type, and texts of numbers."""
    return {field.name for field in FIELDS[kind] if field.type in ("date", "number", "numbers", "texts")}


def payoffs_in(found: pl.DataFrame) -> dict[Any, list[float] | None]:
    """The payoffs of records by their ids."""
    return dict(zip(found.to_series(0), found["payoffs"].to_list(), strict=True)) if "payoffs" in found.columns else {}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_wrong_field_of_a_listing_costs_no_other_record(name: str) -> None:
    """Each record is right, or left out and counted: none is lost, has another type, or another outcome."""
    of, path, kind, rows_in = LISTINGS[name]
    count = {"series": 6, "events": 3}.get(kind, 1) * (len(WRONG) + 1)

    def listed(change: Callable[[Any], Any]) -> tuple[pl.DataFrame, set[str], str]:
        stub = changed(STUBS[of](count), path, change)
        with warnings.catch_warnings(record=True) as caught, a_client_of(stub) as client:
            warnings.simplefilter("always")
            found = getattr(client, kind)()
            left_out = {one for some in client.last_report.left_out.values() for one in some}
        said = " ".join(str(one.message) for one in caught if issubclass(one.category, MarketDataWarning))
        return found.with_columns(pl.col(pl.Categorical).cast(pl.String)), left_out, said

    names: list[str] = []

    def look(top: Any) -> Any:
        names.extend(field for row in rows_in(top) for field in row if field not in names)
        return top

    right, _, _ = listed(look)
    own_id, paid = right.columns[0], payoffs_in(right)
    failed = []
    for field in names:
        spoiled_rows = 0

        def spoil(top: Any, field: str = field) -> Any:
            nonlocal spoiled_rows
            rows = rows_in(top)
            todo = [*WRONG.items()][spoiled_rows:]
            spoiled_rows += min(len(todo), len(rows))
            others = [row.get(field) for row in rows[1:]]
            for (_, wrong), row, other in zip(todo, list(rows), [*others, None], strict=False):
                if wrong is TWICE:
                    rows.append(copy.deepcopy(row)) if rows_in is not nested else None
                elif wrong is ABSENT:
                    row.pop(field, None)
                elif wrong is THOUSANDTHS:
                    row[field] = thousandths(row.get(field))
                else:
                    row[field] = other if wrong is OTHER else wrong
            return top

        found, left_out, said = listed(spoil)
        # With the name of another record it may be that record as it is now.
        if len(found) + len(left_out) < len(right) - (field in ("ticker", "event_ticker")):
            failed.append(f"{field}: {len(right) - len(found)} records are lost, and {len(left_out)} are counted")
        others = {one for one in set(found[own_id]) - set(right[own_id]) if not str(one).isdigit()}
        if of != "house" and others:  # ids of a service are any texts
            failed.append(f"{field}: other ids {sorted(map(str, others))[:5]}")
        if left_out and "left out" not in said:
            failed.append(f"{field}: no warning")
        both = known_types(kind) & set(right.columns) & set(found.columns)
        others = {column for column in both if found[column].dtype not in (right[column].dtype, pl.Null)}
        failed += [f"{field}: {column} has the type {found[column].dtype}" for column in others]
        if not is_finite(found):
            failed.append(f"{field}: an infinite number")
        for identity, payoffs in payoffs_in(found).items():
            if payoffs is not None and paid.get(identity, payoffs) != payoffs:
                failed.append(f"{field}: {identity} pays {payoffs}")
    assert not failed, "\n".join(failed)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "a list": lambda _: [], "a text": lambda _: "nothing", "a number": lambda _: 5, "an object": lambda _: {"a": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("what", WHOLE)
def test_an_answer_of_another_kind_is_no_empty_answer(name: str, what: str) -> None:
    """Where an object is documented, a list, a text or another object is an error, and never "there is nothing"."""
    answer = ANSWERS[name]
    if answer.path == "/usage" and what == "an object":
        pytest.skip("what a plan has is shown as it is")
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
