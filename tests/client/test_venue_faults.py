"""Whatever fails at a venue, or however it writes its answers: exactly its data, or a typed error that has a part."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reference.dialects import DIALECTS
from reference.kalshi_stub import START, KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venue_loops import VENUES, is_equal, kalshi_views, keyed, printed
from reference.venues import FAULTS, NOW, ODD_FAULTS, client_of, proxy_page, refused

from marketdata.clock import SYSTEM
from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    ContractError,
    NetworkError,
    NotFoundError,
    PaginationStalledError,
    PlanError,
    RateLimitError,
    RequestError,
    ServerError,
)
from marketdata.times import DAY, MINUTE, SECOND, Range, to_datetime, to_text

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")
SPAN = st.tuples(st.integers(-100, 2_900), st.integers(1, 900)).map(
    lambda s: Range(START + s[0] * MINUTE, START + (s[0] + s[1]) * MINUTE)
)
ANY_FAULTS = st.lists(st.none() | st.sampled_from([*FAULTS, *ODD_FAULTS]), max_size=30)
TRANSIENT = (NetworkError, ServerError, RateLimitError, ContractError)
ROUTES = ("polymarket", "kalshi")  # where the route of prices makes no difference
WIDTHS = {"1m": MINUTE, "1h": 60 * MINUTE}


def span(rng: Range) -> tuple[Any, Any]:
    return to_datetime(rng.start), to_datetime(rng.end)


@pytest.mark.parametrize("venue", [*VENUES])
@settings(max_examples=8)
@given(st.data(), ANY_FAULTS, SPAN, st.sampled_from([*WIDTHS]))
def test_rows_are_exact_or_the_error_has_a_part_and_the_rest_can_be_resumed(
    venue: str, data: Any, faults: list[str | None], rng: Range, width: str
) -> None:
    """Any faults, or an outage of some minutes: nothing is lost, invented or twice."""
    case = VENUES[venue]
    stub = case.stub(traps=data.draw(case.any_traps), days=2.0)
    markets = [stub.markets[k] for k in data.draw(st.sets(st.integers(0, 5), min_size=1, max_size=3))]
    begin = data.draw(st.integers(0, 20))
    outage = Range(NOW + begin * SECOND // 5, NOW + data.draw(st.integers(0, 400)) * SECOND)
    with client_of(stub, **case.options) as client:
        stub.faults, stub.outages = iter(faults), (outage,)
        stub.outage = data.draw(st.sampled_from(["503", "500", "refused", "reset", "429", "429 with a wait"]))
        frames = []
        try:
            frames.append(client.prices([case.name(m) for m in markets], *span(rng), width))
        except TRANSIENT as error:
            stub.faults, stub.outages = iter(()), ()
            frames += [error.partial, client.resume(error.resume)]
        got = pl.concat(frames)
        expected = case.prices(stub, markets, rng, WIDTHS[width])
        assert is_equal(keyed(got, "price"), expected)
        assert len(got) == len(expected)


@pytest.mark.parametrize("venue", ROUTES)
@settings(max_examples=8)
@given(st.data(), ANY_FAULTS, SPAN)
def test_trades_and_records_are_exact_or_a_typed_error(
    venue: str, data: Any, faults: list[str | None], rng: Range
) -> None:
    """An error of trades has those that arrived; one of a listing has none, and the listing can be asked again."""
    case = VENUES[venue]
    stub = case.stub(traps=data.draw(case.any_traps), largest_page=data.draw(st.integers(1, 50)))
    market = stub.markets[data.draw(st.integers(0, 5))]
    with client_of(stub) as client:
        expected = case.trades(stub, market, rng)
        stub.faults = iter(faults)
        try:
            got = printed(client.trades(case.name(market), *span(rng)))
        except TRANSIENT as error:
            part = printed(error.partial)
            got = expected if set(part) <= set(expected) else part
        assert got == expected
        stub.faults = iter(faults)
        try:
            records = client.markets()
        except TRANSIENT:
            stub.faults = iter(())
            records = client.markets()
        paid = dict(zip(records["slug"], records["payoffs"].to_list(), strict=True))
        assert paid == {case.name(one): one.payoffs for one in stub.markets}


@pytest.mark.parametrize("venue", [*VENUES])
@settings(max_examples=12)
@given(st.data(), DIALECTS, SPAN, st.sampled_from([*WIDTHS]))
def test_a_client_depends_on_no_detail_of_an_answer(
    venue: str, data: Any, dialect: Any, rng: Range, width: str
) -> None:
    """Order, further and missing fields, numbers as texts, null, empty pages, points beyond the window, cents."""
    case = VENUES[venue]
    stub = case.stub(traps=data.draw(case.any_traps), dialect=dialect, largest_page=data.draw(st.integers(2, 100)))
    names = [case.name(market) for market in stub.markets]
    with client_of(stub, **case.options) as client:
        markets = stub.markets[: data.draw(st.integers(1, 6))]
        frame = client.prices(names[: len(markets)], *span(rng), width)
        assert is_equal(keyed(frame, "price"), case.prices(stub, markets, rng, WIDTHS[width]))
        trades = client.trades(names[1], *span(rng))
        assert printed(trades) == case.trades(stub, stub.markets[1], rng)
        assert trades["ts"].equals(trades.sort("token_id", "ts")["ts"])
        records = client.markets()
        paid = dict(zip(records["slug"], records["payoffs"].to_list(), strict=True))
        assert paid == {case.name(one): one.payoffs for one in stub.markets}
        assert client.market(names[2])["tokens"] == [dict(t) for t in records_tokens(records, names[2])]
        ids = {token["id"] for token in client.market(names[0])["tokens"]}
        assert {token.token_id for part in client.feed.live_columns("books", [*ids]) for token in part.tokens} == ids


def records_tokens(records: Any, slug: str) -> list[dict[str, str]]:
    """Tokens of a market in a frame of records."""
    row = records.filter(pl.col("slug") == slug).row(0, named=True)
    return [{"id": i, "label": label} for i, label in zip(row["token_ids"], row["token_labels"], strict=True)]


@pytest.mark.parametrize("venue", ROUTES)
@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (refused(451, {"error": "unavailable"}), RequestError, "country"),
        (refused(404, {"error": "not found"}), NotFoundError, "found"),
        (refused(403, {"error": "not here"}), RequestError, "not here.*takes no key"),
        (proxy_page(403), ServerError, "Just a moment"),
        (proxy_page(401), ServerError, "Just a moment"),
        (proxy_page(530), ServerError, "Just a moment"),
        (refused(425, {"error": "too early"}), ServerError, "too early"),
        (refused(400, {"error": {"message": "no", "details": {"ticker": "bad"}}}), BadRequestError, "no: ticker: bad"),
        (refused(400, {"error": "bad window"}), BadRequestError, "bad window"),
        (refused(200, {"error": "Too Many Requests"}), RateLimitError, "Too Many"),
        (refused(200, {"error": "invalid filters"}), BadRequestError, "invalid filters"),
        (refused(200, {"error": {"code": "internal", "message": "it broke"}}), RequestError, "it broke"),
        (refused(429, {"error": "slow down"}), RateLimitError, "slow down"),
        (refused(502, {"error": "bad gateway"}), ServerError, "bad gateway"),
    ],
)
def test_a_refusal_says_what_it_means(venue: str, act: Any, kind: type[Exception], words: str) -> None:
    """For records, prices, trades and listings alike; what arrived before stays in the error."""
    case = VENUES[venue]
    stub = case.stub()
    names = [case.name(market) for market in stub.markets[:2]]
    rng = to_text(START), to_text(START + DAY)
    with client_of(stub, **case.options) as client:
        arrived = client.prices(names[0], *rng, "1h")
        answer, stub.answer = stub.answer, lambda ask: act
        for ask in (
            lambda: client.market(names[1]),
            lambda: client.prices(names[1], *rng, "1h"),
            lambda: client.trades(names[1], *rng),
            client.markets,
            client.events,
            client.series,
            client.tags,
            client.health,
        ):
            with pytest.raises(kind, match=words) as refusal:
                ask()
            assert not isinstance(refusal.value, PlanError | AuthenticationError)
        stub.answer = lambda ask: answer(ask) if not_of(names[1], stub, ask) else act
        with pytest.raises(kind) as caught:
            client.prices(names, *rng, "1h")
        if kind is not NotFoundError:
            stub.answer = answer
            whole = pl.concat([caught.value.partial, client.resume(caught.value.resume)])
            assert set(arrived["token_id"]) <= set(whole["token_id"])
            assert is_equal(
                keyed(whole, "price"), case.prices(stub, stub.markets[:2], Range(START, START + DAY), 60 * MINUTE)
            )


def not_of(name: str, stub: Any, ask: Any) -> bool:
    """Whether a request is not about a market."""
    tokens = next((m.tokens for m in stub.markets if hasattr(m, "tokens") and m.slug == name), ())
    return not any(one in ask.target for one in (name, *tokens))


def rewritten(stub: Any, path: str, change: Any) -> None:
    """Let a stub answer requests for paths with a part otherwise: ``change`` takes the JSON of an answer."""
    answer = stub.answer

    def other(ask: Any) -> Any:
        act = answer(ask)
        if path not in ask.path or act.status != 200:
            return act
        return refused(200, change(json.loads(act.body)))

    stub.answer = other


def set_last(*names: str, **fields: Any) -> Any:
    """A change of the object below these names in an answer, or of each of a list."""

    def change(top: Any) -> Any:
        inner = top
        for name in names:
            inner = inner[name]
        for one in inner if isinstance(inner, list) else [inner]:
            one.update({name: value for name, value in fields.items() if one.get(name) is None})
        return top

    return change


@pytest.mark.parametrize("venue", ROUTES)
@pytest.mark.parametrize("body", [{"message": "Too Many Requests"}, {"error": "Too Many Requests"}])
def test_throttling_inside_of_200_is_waited_out(venue: str, body: dict[str, str]) -> None:
    """Whether it is called error or message, of any request: it is no answer, and the next one is."""
    case = VENUES[venue]
    stub = case.stub()
    answer, seen = stub.answer, set[str]()

    def throttled(ask: Any) -> Any:
        is_new = ask.path not in seen
        seen.add(ask.path)
        return refused(200, body) if is_new else answer(ask)

    stub.answer = throttled
    rng = Range(START, START + DAY)
    with client_of(stub, **case.options) as client:
        names = [case.name(market) for market in stub.markets[:2]]
        got = keyed(client.prices(names, *span(rng), "1h"), "price")
        assert is_equal(got, case.prices(stub, stub.markets[:2], rng, 60 * MINUTE))
        assert printed(client.trades(names[1], *span(rng))) == case.trades(stub, stub.markets[1], rng)
        assert len(client.markets()) == 6
        assert client.health()["status"] == "ok"
        assert [*client.feed.live_columns("books", [token["id"] for token in client.market(names[0])["tokens"]])]


@pytest.mark.parametrize("venue", ROUTES)
@pytest.mark.parametrize("status", [520, 524, 503])
def test_a_page_of_html_with_a_status_of_a_proxy_is_tried_again(venue: str, status: int) -> None:
    """A proxy before the venue answers in HTML, and with a status of its own."""
    case = VENUES[venue]
    stub = case.stub()
    down = refused(status, {}).with_header("Content-Type", "text/html")
    answer, left = stub.answer, iter([down, down])
    stub.answer = lambda ask: next(left, None) or answer(ask)
    with client_of(stub) as client:
        assert len(client.markets()) == 6


@pytest.mark.parametrize("body", [None, [], {}])
def test_nothing_in_place_of_a_record_is_an_unknown_market(body: Any) -> None:
    """A venue may say 404, or 200 with nothing."""
    for case in VENUES.values():
        stub = case.stub()
        name = case.name(stub.markets[0])
        nothing = {"market": body} if stub.venue == "kalshi" else body
        answer = stub.answer
        stub.answer = lambda ask, answer=answer, name=name, nothing=nothing: (
            refused(200, nothing) if ask.path.endswith(name) else answer(ask)
        )
        with client_of(stub) as client, pytest.raises(NotFoundError, match=name):
            client.market(name)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("markets", {"clobTokenIds": None}),
        ("markets", {"clobTokenIds": "[]", "umaResolutionStatus": ""}),
        ("markets", {"positionIds": [], "resolutionStatus": None}),
        ("markets", {"positionIds": None, "events": None, "tags": None, "series": []}),
    ],
)
def test_fields_of_both_versions_of_a_market_may_be_there(path: str, fields: dict[str, Any]) -> None:
    """A record of Polymarket has the empty fields of the other version beside its own, in any order."""
    stub = PolymarketStub(count=12)
    one, many = set_last(**fields), set_last("markets", **fields)
    rewritten(stub, path, lambda top: many(top) if "markets" in top else one(top))
    with client_of(stub) as client:
        frame = client.markets()
        assert dict(zip(frame["slug"], frame["token_ids"].to_list(), strict=True)) == {
            market.slug: [*market.tokens] for market in stub.markets
        }
        assert dict(zip(frame["slug"], frame["payoffs"].to_list(), strict=True)) == {
            market.slug: market.payoffs for market in stub.markets
        }


def test_resolutions_come_in_pages_or_not_at_all() -> None:
    """A page of the Data API may be short, and one about unknown markets a 404; the record counts then."""
    stub = PolymarketStub(count=60)
    tell = stub.answer

    def paged(ask: Any) -> Any:
        if not ask.path.endswith("/resolutions"):
            return tell(ask)
        rows = json.loads(tell(ask).body)["data"]
        first = int(ask.params.get("cursor", 0))
        more = first + 7 < len(rows)
        head = {"limit": 7, "has_more": more, "next_cursor": str(first + 7)}  # a cursor also at the end
        return (
            refused(200, {"data": rows[first : first + 7], "pagination": head})
            if first < len(rows)
            else refused(400, {})
        )

    expected = {market.slug: market.payoffs for market in stub.markets}
    for stub.answer in (paged, lambda ask: refused(404, {"error": "x"}) if "resolutions" in ask.path else tell(ask)):
        with client_of(stub) as client:
            frame = client.markets()
            assert dict(zip(frame["slug"], frame["payoffs"].to_list(), strict=True)) == expected
            assert client.market(stub.markets[1].slug)["payoffs"] == [1.0, 0.0]


@pytest.mark.parametrize("page", [1, 2, 1000])
@pytest.mark.parametrize("order", [1, -1])
def test_prints_of_polymarket_may_come_in_any_order_and_pages(page: int, order: int) -> None:
    """Oldest first or newest first, a fill a page, an outcome without a label: each fill once, each token one label."""
    stub = PolymarketStub(count=2, days=0.5)
    market, every = stub.markets[1], stub.prints

    def prints(one: Any) -> Any:
        rows = [dict(row) for row in every(one)]
        for row in rows[::4]:
            row["outcome_index"] = 999
        return rows

    stub.prints = prints
    answer = stub.answer

    def paged(ask: Any) -> Any:
        if not ask.path.endswith("/trades"):
            return answer(ask)
        rows, first = prints(market)[::order], int(ask.params.get("cursor", 0))
        head = {"has_more": first + page < len(rows), "next_cursor": str(first + page)}
        return refused(200, {"data": rows[first : first + page], "pagination": head})

    stub.answer = paged
    rng = Range(market.opened + 3 * 60 * MINUTE, market.opened + 9 * 60 * MINUTE)
    with client_of(stub) as client:
        frame = client.trades(market.slug, *span(rng))
    assert printed(frame) == VENUES["polymarket"].trades(stub, market, rng)
    assert frame.group_by("token_id").agg(pl.col("token_label").n_unique())["token_label"].to_list() == [1, 1]


@pytest.mark.parametrize("path", ["series", "tags", "public-search", "keyset"])
def test_a_listing_that_does_not_go_on_ends_in_an_error(path: str) -> None:
    """A host that ignores offsets, pages or cursors is no endless loop."""
    stub = PolymarketStub()
    row = {"id": "1", "slug": "same", "conditionId": "0x1"}
    bodies = {
        "public-search": {"events": [row], "pagination": {"hasMore": True}},
        "keyset": {"markets": [row], "next_cursor": "x"},
    }
    answer = stub.answer
    stub.answer = lambda ask: refused(200, bodies.get(path, [row])) if path in ask.path else answer(ask)
    with client_of(stub) as client:
        ask = {"series": client.series, "tags": client.tags, "keyset": client.markets}.get(
            path, lambda: client.markets(search="same")
        )
        with pytest.raises(PaginationStalledError):
            ask()
    assert sum(stub.paths.values()) < 20


@pytest.mark.parametrize("how", [{"search": "rain"}, {"event_slug": "weather-0"}, {}])
def test_open_markets_are_open_however_they_are_found(how: dict[str, str]) -> None:
    """include_closed=False leaves out closed markets of an event and of a search too."""
    stub = PolymarketStub(count=6)
    with client_of(stub) as client:
        for is_open in (True, False):
            wanted = {
                m.slug
                for m in stub.markets
                if (m.k < 3 or "event_slug" not in how) and (not is_open or m.closed is None)
            }
            frame = client.markets(**how, include_closed=not is_open)
            assert {*frame["slug"]} == wanted


def without_markets(act: Any) -> Any:
    """The answer about an event, which alone names no markets."""
    top = json.loads(act.body)
    return refused(act.status, {name: v for name, v in top.items() if name != "markets"})


def test_answers_of_kalshi_in_other_shapes() -> None:
    """Books by another name, an event without markets of its own, one that is not there, a void, series in pages."""
    stub = KalshiStub(count=6)
    tell = stub.answer

    def other(ask: Any) -> Any:
        act = tell(ask)
        top = json.loads(act.body)
        if ask.path.endswith("/orderbooks"):
            top = {"orderbooks": [{"market_ticker": one.pop("ticker"), **one} for one in top["orderbooks"]]}
        if ask.path.endswith("/events/KXRAIN-0"):
            top["event"]["markets"] = None
            top["markets"] = [{name: v for name, v in row.items() if name != "event_ticker"} for row in top["markets"]]
        if ask.path.endswith("/events/KXRAIN-1"):
            return refused(404, {"error": {"code": "not_found"}})
        if ask.path.endswith("/series"):
            first = "cursor" not in ask.params
            top = {"series": top["series"] if not first else [{"ticker": "KXSNOW"}], "cursor": "2" if first else ""}
        for row in [top["market"]] if "market" in top else top.get("markets") or []:
            if row.get("result") == "scalar":
                row.update(result="void", settlement_value_dollars="0.5000")
        return refused(act.status, top)

    stub.answer = other
    with client_of(stub) as client:
        assert {*client.series()["slug"]} == {"KXSNOW", "KXRAIN"}
        assert len(client.markets(event_slug="KXRAIN-0")) == 3
        record = client.market(stub.markets[4].ticker)
        assert (record["id"], record.get("series_id")) == (stub.markets[4].ticker, None)
        # An event that names no markets, and markets that do not name their event.
        bare = client.markets(event_slug="KXRAIN-0", include_closed=False)
        assert bare["event_slug"].to_list() == ["KXRAIN-0"]
        stub.answer = lambda ask: without_markets(other(ask)) if "/events/" in ask.path else other(ask)
        assert len(client.markets(event_slug="KXRAIN-0")) == 3
        void = client.market(stub.markets[3].ticker)
        assert (void["payoffs"], void["resolved_token_id"]) == ([0.5, 0.5], None)
        tokens = [f"{m.ticker}:{side}" for m in stub.markets for side in ("yes", "no")]
        books = [part for part in client.feed.live_columns("books", tokens) if len(part)]
        assert {token.token_id.partition(":")[0] for part in books for token in part.tokens} == {
            m.ticker for m in stub.markets if m.state == "active"
        }
        # An event that is not found, as that of a parlay: its series is the begin of its ticker.
        assert len(client.prices(stub.markets[4].ticker, to_text(START), to_text(START + DAY), "1h"))


@pytest.mark.parametrize(
    ("venue", "count"),
    [*((venue, 5) for venue in VENUES), *(pytest.param(venue, 200, marks=pytest.mark.soak) for venue in VENUES)],
)
@settings(max_examples=3, phases=[Phase.generate])
@given(st.data(), st.integers(0, 1 << 30), st.integers(2, 100), SPAN, st.sampled_from([*WIDTHS]))
def test_many_markets_equal_plain_loops_through_faults_and_outages(
    venue: str, count: int, data: Any, seed: int, page: int, rng: Range, width: str
) -> None:
    """Prices, trades and records at any page, with a fault in one of ten requests and an outage of some minutes."""
    case = VENUES[venue]
    stub = case.stub(count=count, days=0.5, traps=data.draw(case.any_traps), largest_page=page)
    names, tally, draw = [case.name(market) for market in stub.markets], Counter[str](), random.Random(seed)
    rng = Range(rng.start, min(rng.end, rng.start + 8 * 60 * MINUTE))

    def asked(ask: Any) -> Any:
        """The frame of a request, which is repeated, or resumed where it can be, until it is whole."""
        parts = []
        for _ in range(40):
            try:
                return pl.concat([*parts, ask()], how="diagonal")  # without rows there are no further metrics
            except TRANSIENT as error:
                tally[type(error).__name__] += 1
                SYSTEM.sleep(10)
                if (resume := getattr(error, "resume", None)) is not None:
                    parts.append(error.partial)
                    ask = partial(client.resume, resume)
        raise AssertionError("it never ends")

    with client_of(stub, **case.options) as client:
        stub.faults = iter(lambda: draw.choice(FAULTS) if draw.random() < 0.1 else None, 0)
        first = NOW + draw.randrange(30) * SECOND
        stub.outages = (Range(first, first + draw.randrange(200) * SECOND),)
        stub.outage = draw.choice(["503", "refused", "429", "429 with a wait"])
        frame = asked(lambda: client.prices(names, *span(rng), width))
        assert is_equal(keyed(frame, "price"), case.prices(stub, stub.markets, rng, WIDTHS[width]))
        tally["prices"] = len(frame)
        if "quotes" in client.views:
            views = kalshi_views(stub, stub.markets, rng, WIDTHS[width])
            quotes = asked(lambda: client.quotes(names, *span(rng), width))
            assert is_equal(keyed(quotes, "best_bid", "best_ask"), views["quotes"])
            metrics = asked(lambda: client.metrics(names, *span(rng), width))
            assert is_equal(keyed(metrics, "volume", "open_interest", "spread"), views["metrics"])
            tally |= {"quotes": len(quotes), "metrics": len(metrics)}
        trades = asked(lambda: client.trades(names, *span(rng)))
        assert printed(trades) == sorted(row for market in stub.markets for row in case.trades(stub, market, rng))
        tally["trades"] = len(trades)
        records = asked(client.markets)
        paid = dict(zip(records["slug"], records["payoffs"].to_list(), strict=True))
        assert paid == {case.name(market): market.payoffs for market in stub.markets}
        tally |= {"records": len(records), "requests": sum(stub.paths.values())}
    print(venue, count, page, width, dict(tally))


@pytest.mark.parametrize("venue", ROUTES)
def test_prints_that_came_before_a_failure_are_in_the_error(venue: str) -> None:
    """Of some pages of a market, and of other markets: none twice, none invented."""
    case = VENUES[venue]
    stub = case.stub(largest_page=1 if "poly" in venue else 10)
    answer, rng, pages = stub.answer, Range(START, NOW), Counter[str]()

    def failing(ask: Any) -> Any:
        pages[ask.path] += ask.path.endswith("/trades")
        return refused(503, {"error": "down"}) if pages[ask.path] > 3 else answer(ask)

    stub.answer = failing
    with client_of(stub) as client:
        with pytest.raises(ServerError) as caught:
            client.trades(case.name(stub.markets[1]), *span(rng))
        expected = case.trades(stub, stub.markets[1], rng)
    part = printed(caught.value.partial)
    assert 20 <= len(part) <= 30 < len(expected)
    assert Counter(part) <= Counter(expected)
