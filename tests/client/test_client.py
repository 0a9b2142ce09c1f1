from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from reference.faults import Act, Ask, FaultServer, ok, refuse

import marketdata as md

START, END = "2025-12-31", "2026-01-01"


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    """A local service over a simulated archive."""
    with md.serve(md.simulate(events=1, days=1)) as running:
        yield running


@pytest.fixture(scope="module", params=["pandas", "polars"])
def client(service: Any, request: pytest.FixtureRequest) -> md.Client:
    return md.Client(service.base_url, service.api_key, frame=request.param)


@pytest.fixture(scope="module")
def slugs(client: md.Client) -> list[str]:
    markets = client.markets()
    narrow = [n == 2 for n in map(len, markets["token_ids"])]
    return [slug for slug, two in zip(markets["slug"], narrow, strict=True) if two]


@pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")
def test_frames_have_the_columns_of_the_schema_even_without_rows(client: md.Client, slugs: list[str]) -> None:
    """A range without data gives no rows and every column with its type."""
    for fetch, kind in ((client.books, "books"), (client.prices, "prices"), (client.metrics, "metrics")):
        full, none = fetch(slugs[0], START, END, "1h"), fetch(slugs[0], "2001-01-01", "2001-01-02", "1h")
        assert list(none.columns) == list(full.columns)
        assert list(map(str, none.dtypes)) == list(map(str, full.dtypes))
        assert (len(none), len(full) > 0) == (0, True)
        assert list(full.columns)[: len(md.points.schema.COLUMNS[kind])] == list(md.points.schema.COLUMNS[kind])  # type: ignore[attr-defined]


def test_several_markets_are_one_tidy_frame(client: md.Client, slugs: list[str]) -> None:
    """A list of markets gives the rows of each, sorted by market, token and time."""
    both, *single = (
        pl.DataFrame(client.prices(names, START, END, "1h")).cast({pl.Categorical: pl.String})
        for names in (slugs[:2], *slugs[:2])
    )
    assert [len(one) for one in single] > [0, 0]
    assert both.rows() == pl.concat(single).sort("market_id", "token_id", "ts").rows()


def test_a_market_named_twice_is_fetched_once(client: md.Client, slugs: list[str]) -> None:
    """Its id and its slug are one market, and no row comes twice."""
    market = client.market(slugs[0])
    assert len(client.prices([market.id, market.slug], START, END, "1h")) == len(
        client.prices(market.id, START, END, "1h")
    )


def test_levels_are_cut_per_side(client: md.Client, slugs: list[str]) -> None:
    """levels=2 keeps the best two of each side and every sentinel row."""
    full = pl.DataFrame(client.books(slugs[0], START, END, "1h"))
    cut = pl.DataFrame(client.books(slugs[0], START, END, "1h", levels=2))
    want = full.filter(pl.col("level").is_null() | (pl.col("level") < 2))
    assert cut.select("price", "size", "level").equals(want.select("price", "size", "level"))


def test_single_tokens_give_the_rows_of_their_market(client: md.Client, slugs: list[str]) -> None:
    """The token endpoints and the market endpoint give equal rows."""
    whole = pl.DataFrame(client.books(slugs[0], START, END, "10m"))
    tokens = list(client.tokens(slugs[0])["token_id"])
    parts = pl.DataFrame(client.token_books(tokens, START, END, "10m"))
    assert parts.drop("token_id", "token_label", "market_id", "side").equals(
        whole.drop("token_id", "token_label", "market_id", "side")
    )
    assert list(map(str, parts["token_label"])) == list(map(str, whole["token_label"]))


def test_discovery_finds_what_there_is(client: md.Client) -> None:
    """Listings are frames with one row a record; filters and max_rows hold."""
    events = client.events()
    markets = client.markets()
    assert len(client.series()) >= 1
    assert sum(len(client.markets(event_slug=slug)) for slug in events["slug"]) == len(markets)
    assert len(client.markets(max_rows=3, page_size=2)) == 3
    assert len(client.markets(search="no such thing anywhere")) == 0
    assert "market_id" in client.markets(search="no such thing anywhere").columns
    record = client.market(markets["slug"][0])
    assert record.slug == record["slug"] == markets["slug"][0]
    assert client.health().status == "ok"
    assert client.usage().limits.requests_per_minute > 0
    assert "simulated" in client.tags()


def test_a_record_that_moves_to_the_next_page_is_one_row() -> None:
    """A listing that grows at its front between two pages gives each market once, as it was said last."""
    listed = [{"id": str(i), "slug": f"s{i}", "status": "open", "tokens": []} for i in range(5)]

    def answer(ask: Ask) -> Act:
        start = int(ask.params.get("cursor", 0))
        page, following = listed[start : start + 2], start + 2 if start + 2 < len(listed) else None
        if start == 0:
            listed.insert(0, {"id": "new", "slug": "new", "status": "open", "tokens": []})
            listed[2] = {**listed[2], "status": "closed"}
        return ok({"data": page, "metadata": {"next_cursor": following and str(following)}})

    with FaultServer(answer) as server:
        markets = md.Client(server.base_url, "a-key-of-a-test-0123456789").markets(page_size=2)
    assert list(markets["market_id"]) == ["0", "1", "2", "3", "4"]
    assert list(markets["status"]) == ["open", "closed", "open", "open", "open"]


def test_a_history_needs_no_discovery() -> None:
    """A key or a service that does not tell of markets still gets their history and its plan, over many pages."""
    meta = {"count": 1, "limit": 200, "next_cursor": None}
    body = {"market_id": "m", "resolution": "1m", "tokens": {"Yes": "1"}, "metadata": meta}
    for status in (400, 403, 404, 405, 422):

        def answer(ask: Ask, status: int = status) -> Act:
            if ask.path.endswith("usage"):
                return ok({})
            if not ask.path.endswith("/prices"):
                return refuse(status)
            return ok({**body, "data": {"Yes": [{"t": ask.params["start_ts"], "p": 0.5}]}})

        with FaultServer(answer) as server:
            client = md.Client(server.base_url, "a-key-of-a-test-0123456789")
            assert set(client.prices("m", START, END, "1m")["price"]) == {0.5}
            assert client.plan("books", "Found", START, END, "1h").points == 48


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_records_of_another_shape_are_kept(kind: Any) -> None:
    """Ids that are numbers become texts, markets without tokens have none, and tokens of another shape stay as JSON."""
    records: list[dict[str, Any]] = [{"id": 5, "slug": "a", "tokens": [{"id": 7, "label": "Yes"}]}]
    records += [{"id": 6, "slug": "b", "tokens": None}]
    odd = [{"id": "8", "tokens": ["7", "9"]}]

    def answer(ask: Ask) -> Act:
        name = ask.path.rpartition("/")[2]
        listed = odd if ask.params.get("search") else records
        return ok({"data": listed, "metadata": {}} if name == "markets" else records["ab".index(name)])

    with FaultServer(answer) as server:
        client = md.Client(server.base_url, "a-key-of-a-test-0123456789", frame=kind)
        markets = client.markets()
        assert list(markets["market_id"]) == ["5", "6"]
        assert [None if x is None else list(x) for x in markets["token_ids"]] == [["7"], None]
        assert "tokens" not in markets.columns
        assert list(client.markets(search="odd")["tokens"]) == ['["7", "9"]']
        assert (client.market("a").id, list(client.tokens("a")["token_id"])) == ("5", ["7"])
        assert (client.market("b").tokens, len(client.tokens("b"))) == ([], 0)


@pytest.mark.fault("D17")
def test_half_a_character_in_a_listing_is_refused() -> None:
    """Two ids that differ in a lone surrogate alone are never merged."""
    with FaultServer(lambda ask: ok({"data": [{"id": "cut \ud83d"}]})) as server:
        client = md.Client(server.base_url, "k" * 20)
        with pytest.raises(md.errors.ContractError, match="not JSON"):
            client.markets()


def test_a_plan_tells_what_a_fetch_costs(client: md.Client, slugs: list[str]) -> None:
    """Requests and points are counted as if every bucket has data; an unknown market is refused with similar ones."""
    plan = client.plan("books", slugs[0], START, END, "1m")
    assert (plan.points, plan.requests) == (2808, 15)
    assert "requests" in repr(plan)
    record = client.market(slugs[0])
    own = client.plan("books", slugs[0], record.start_date, record.end_date, "1m")
    assert client.plan("books", record, resolution="1m") == own
    for _ in range(2):
        with pytest.raises(md.errors.NotFoundError, match=f"Market not found: {slugs[0][:-1]}.*{slugs[0]}"):
            client.plan("books", [slugs[0], slugs[0][:-1]], START, END, "1m")


def test_a_frame_has_the_report_of_its_fetch(client: md.Client, slugs: list[str]) -> None:
    """The report counts requests and points; an iterator shares one, and frames of other origin have none."""
    frame = client.prices(slugs[0], START, END, "1h")
    assert frame.md.report.points == len(frame)
    assert frame.md.report.requests >= 1
    assert frame.head(1).md.report is None
    parts = list(client.iter_prices(slugs[:2], START, END, "1h"))
    assert sum(map(len, parts)) == parts[-1].md.report.points


def test_an_error_without_a_row_speaks_of_none() -> None:
    """If no request got through, the message does not point to .partial."""
    with (
        md.testing.no_waiting(),
        md.Client("http://127.0.0.1:1", "k" * 20) as nobody,
        pytest.raises(md.errors.NetworkError) as told,
    ):
        nobody.prices("one", START, END, "1h")
    assert "partial" not in str(told.value)
    assert len(told.value.partial) == 0


def test_one_unknown_slug_of_several_is_named_and_the_rest_comes(client: md.Client, slugs: list[str]) -> None:
    """The error names the unknown one and slugs near it; the rows of the others hang on it."""
    wrong = slugs[1][:-1] + "77"
    with pytest.raises(md.errors.NotFoundError, match=f"{wrong}.*Similar: .*{slugs[1]}") as caught:
        client.prices([slugs[0], wrong], START, END, "1h")
    assert len(caught.value.partial) == len(client.prices(slugs[0], START, END, "1h"))


def test_a_mistyped_slug_names_near_ones(client: md.Client, slugs: list[str]) -> None:
    """Calls of history and of one market name slugs that look like the one that is unknown."""
    wrong = slugs[0].replace("harbour", "harbor")
    for call in (lambda: client.market(wrong), lambda: client.books(wrong, START, END, "1h")):
        with pytest.raises(md.errors.NotFoundError, match=f"Similar: '{slugs[0]}'"):
            call()
    with pytest.raises(md.errors.NotFoundError, match="Market not found: qqq") as caught:
        client.market("qqq")
    assert "Similar" not in str(caught.value)


def test_a_range_outside_of_the_active_range_is_warned_of(client: md.Client, slugs: list[str]) -> None:
    """Before the market began, and after it ended, there are no rows and a warning says why."""
    with pytest.warns(md.errors.EmptyRangeWarning, match="the market begins at 2025"):
        assert len(client.prices(slugs[0], "2001-01-01", "2001-01-02", "1h")) == 0
    with pytest.warns(md.errors.EmptyRangeWarning, match="the market ended at 202"):
        assert len(client.books(slugs[0], "2035-01-01", "2035-01-02", "1h")) == 0


def test_bad_arguments_fail_before_any_request() -> None:
    """The error names what was wrong and what is allowed; no service is needed to say so."""
    client = md.Client("http://127.0.0.1:9", "a-key-that-is-never-sent")
    cases: list[tuple[Any, str, str]] = [
        ("m", END, "not before"), ("m", 1_767_139_200_000, "milliseconds"),
        ("m", "yesterday", "start='yesterday'"), ("", START, "market"), ([], START, "market"),
        (None, START, "market"), ("..", START, r"\.\."), ("x" * 201, START, "200"),
    ]  # fmt: skip
    for market, start, words in cases:
        for call in (client.books, client.prices, client.metrics):
            with pytest.raises(md.errors.ConfigError, match=words):
                call(market, start, END, "1h")
    with pytest.raises(md.errors.ConfigError, match="7h"):
        client.books("m", START, END, "7h")


def test_other_bad_arguments_are_named() -> None:
    """Levels, frame kinds, pages and views each say what is allowed."""
    client = md.Client("http://127.0.0.1:9", "a-key-that-is-never-sent")
    with pytest.raises(md.errors.ConfigError, match="levels=0"):
        client.books("m", START, END, "1h", levels=0)
    with pytest.raises(md.errors.ConfigError, match="'pandas' and 'polars'"):
        md.Client("http://127.0.0.1:9", "k" * 20, frame="arrow")  # type: ignore[arg-type]
    with pytest.raises(md.errors.ConfigError, match="page_size=5000"):
        client.markets(page_size=5000)
    with pytest.raises(md.errors.ConfigError, match="books, prices, metrics"):
        client.plan("trades", "m", START, END, "1h")  # type: ignore[arg-type]
    with pytest.raises(md.errors.ConfigError, match="MARKETDATA_BASE_URL"):
        md.Client(None, "k" * 20)
    with pytest.raises(md.errors.ConfigError, match="MARKETDATA_API_KEY"):
        md.Client("http://127.0.0.1:9")
    for pages in ("{}", b"{}", None):
        with pytest.raises(md.errors.ConfigError, match="list of page bodies"):
            md.read_pages("prices", pages)  # type: ignore[call-overload]
    with pytest.raises(md.errors.ConfigError, match=r"pages\[1\] is a str"):
        md.read_pages("prices", [b"{}", "{}"])  # type: ignore[list-item]


def test_a_market_without_times_comes_whole_or_says_what_it_costs(client: md.Client, slugs: list[str]) -> None:
    """The times are those of the market; more than 50 requests are sent only if that is asked for."""
    whole = client.prices(slugs[0], resolution="1h")
    record = client.market(slugs[0])
    assert whole.equals(client.prices(slugs[0], record.start_date, record.end_date, "1h"))
    later = client.prices(slugs[0], start="2025-12-31T12:00", resolution="1h")
    assert whole["ts"].min() < later["ts"].min()
    assert whole["ts"].max() == later["ts"].max()
    with pytest.raises(md.errors.ConfigError, match=r"more than 50 requests.*all=True"):
        client.books(slugs, resolution="1m")


def test_what_a_service_lacks_is_refused_before_any_request() -> None:
    """The error has what the service has."""
    client = md.Client("http://127.0.0.1:9", "k" * 20)
    for call in (lambda: client.trades("m", 0, 60), lambda: client.quotes("m", 0, 60)):
        with pytest.raises(md.errors.ConfigError, match="it has books, prices, metrics"):
            call()
    with pytest.raises(md.errors.ConfigError, match="did you mean 'polymarket'"):
        md.Client("polymarkt")
    with pytest.raises(md.errors.ConfigError, match="takes no key"):
        md.Client("kalshi", "k" * 20)
