"""Tools for other programs: what an answer says, and what ``as_of`` hides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import polars as pl
import pytest

import marketdata as md
from marketdata.archive.reading import Reader
from marketdata.errors import ConfigError
from marketdata.mcp.tools import Tools

START, END = "2025-12-30", "2026-01-01"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> md.Archive:
    """A simulated event of two days."""
    return md.simulate(
        tmp_path_factory.mktemp("mcp") / "history", events=1, days=2, markets=1, levels=3, frame="polars"
    )


@pytest.fixture(scope="module")
def market(archive) -> str:
    return archive.markets()["slug"][0]


def test_an_answer_is_plain_data_with_units_and_range(archive, market) -> None:
    """Rows equal the archive's. Each answer explains its columns and names the part of the range that it covers."""
    answer = json.loads(json.dumps(Tools(archive).prices(market, START, END, "1h")))
    frame = archive.prices(market, START, END, "1h", on_missing="partial")
    assert answer["columns"] == ["ts", "token_label", "price"]
    assert answer["units"]["price"] == "probability, 0 to 1"
    assert answer["range"] == {"start": "2025-12-30T00:00:00Z", "end": "2026-01-01T00:00:00Z", "resolution": "1h"}
    assert sorted(row[2] for row in answer["rows"]) == pytest.approx(sorted(frame["price"]), rel=1e-11)
    assert answer["tokens"] == dict(frame.select(pl.col("token_label", "token_id").cast(str)).unique().rows())


def test_quotes_are_the_last_of_each_bucket(archive, market) -> None:
    """As the archive has them, with a unit for each number."""
    answer = Tools(archive).quotes(market, START, END, "6h", outcome="Yes")
    frame = archive.quotes(market, START, END, "6h", on_missing="partial").filter(pl.col("token_label") == "Yes")
    place = answer["columns"].index("best_bid")
    assert [row[place] for row in answer["rows"]] == pytest.approx(frame["best_bid"].to_list())
    assert set(answer["units"]) >= {"best_bid", "best_ask", "best_bid_size", "mid"}


def test_a_list_of_markets_tells_them_apart_and_what_is_stored_and_missing(archive, market) -> None:
    """The slug is first, without ids and descriptions; the range of points and the ranges without any follow."""
    answer = Tools(archive).markets()
    assert answer["columns"][:2] == ["slug", "question"]
    assert not [name for name in answer["columns"] if name.endswith(("_id", "_ids", "description"))]
    listed = {row[0]: dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]}
    ranges = archive.coverage().filter(pl.col("market_id").cast(str) == Reader(archive).find_market(market)["id"])
    assert listed[market]["stored_from"] == f"{ranges['start'].min():%Y-%m-%dT%H:%M:%SZ}"
    assert listed[market]["stored_to"] == f"{ranges['end'].max():%Y-%m-%dT%H:%M:%SZ}"
    holed = md.Archive(archive.location + "-holed", frame="polars")
    prices = md.testing.prices("polars", buckets=1)
    later = prices.with_columns(pl.col("ts") + pl.duration(hours=2))
    holed.add(prices=prices, markets=md.testing.markets("polars"))
    holed.add(prices=later)
    rows = Tools(holed).markets()
    hole = dict(zip(rows["columns"], rows["rows"][0], strict=True))["missing"]
    assert hole == ["prices 2026-01-01T00:01Z to 2026-01-01T02:00Z"]


def test_an_answer_is_of_one_outcome_and_few_levels(archive, market) -> None:
    """Rows of one outcome only, by label or token id; an unknown one is named with those there are."""
    tools = Tools(archive)
    at = tools.books(market, START, END, "1h", rows=5_000)["rows"][-1][0]
    book = tools.order_book(market, at, outcome="Yes", levels=2)
    assert {row[book["columns"].index("token_label")] for row in book["rows"]} == {"Yes"}
    assert len(book["rows"]) <= 2
    cut = tools.order_book(market, at, rows=1)
    assert len(cut["rows"]) == 1
    assert any("ask for one `outcome`" in note for note in cut["notes"])
    token = tools.prices(market, START, END)["tokens"]["Yes"]
    assert tools.prices(market, START, END, outcome=token) == tools.prices(market, START, END, outcome="Yes")
    with pytest.raises(ConfigError, match=r"outcome='Maybe' does not exist; some outcomes are No, Yes"):
        tools.prices(market, START, END, outcome="Maybe")


def test_a_time_without_a_book_is_said(archive, market) -> None:
    """If the last hour has no book, the answer is empty and says why."""
    gap = Tools(archive).books(market, START, END, "1h")["missing"][0]
    answer = Tools(archive).order_book(market, gap["end"])
    assert answer["rows"] == []
    assert any("No book in the 60 minutes before" in note for note in answer["notes"])


def test_what_is_missing_is_said(archive, market) -> None:
    """The hours without a point, and only these, are in ``missing``."""
    answer = Tools(archive).prices(market, START, END, "1h")
    present = {row[0] for row in answer["rows"]}
    hours = pl.datetime_range(pl.datetime(2025, 12, 30), pl.datetime(2026, 1, 1), "1h", closed="left", eager=True)
    absent = [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours if f"{hour:%Y-%m-%dT%H:%M:%SZ}" not in present]
    said = [hour for hour in (f"{h:%Y-%m-%dT%H:%M:%SZ}" for h in hours) for gap in answer["missing"]
            if gap["start"] <= hour < gap["end"]]  # fmt: skip
    assert absent
    assert said == absent


def test_answers_go_on_where_the_last_one_ended(archive, market) -> None:
    """Following ``next_start`` gives every row once."""
    tools = Tools(archive)
    whole = tools.books(market, START, END, "6h", levels=2, rows=5_000)
    assert "next_start" not in whole
    for rows in (1, 20):
        start, walked = START, []
        while start is not None:
            answer = tools.books(market, start, END, "6h", levels=2, rows=rows)
            walked += answer["rows"]
            start = answer.get("next_start")
        assert sorted(map(str, walked)) == sorted(map(str, whole["rows"]))


@pytest.mark.parametrize("as_of", ["2025-12-30T12:34:56Z", "2025-12-31", "2025-12-29"])
def test_nothing_is_shown_that_came_later(archive, market, as_of) -> None:
    """A bucket is shown once it has ended, and a market once it had begun, without its outcome."""
    tools = Tools(archive, as_of)
    moment = pl.Series([as_of if "T" in as_of else f"{as_of}T00:00:00Z"]).str.to_datetime(time_zone="UTC")[0]
    for answer in (
        tools.prices(market, START, END, "1h"),
        tools.features(market, START, END, ["mid"], "10m", rows=5_000),
        tools.prices(market, START, END, "1h", as_of="2026-01-01"),
    ):
        width = 3600 if answer["range"]["resolution"] == "1h" else 600
        times = pl.Series([row[0] for row in answer["rows"]], dtype=pl.String).str.to_datetime(time_zone="UTC")
        assert bool((times.dt.epoch("s") + width <= moment.timestamp()).all())
    records = tools.markets()
    hidden = {"resolved_token_id", "resolved_token_label", "closed_at", "status", "end_date"}
    assert hidden.isdisjoint(records["columns"])
    ranges = tools.coverage()
    assert {"state", "rows", "fetched_at"}.isdisjoint(ranges["columns"])
    ends = [row[ranges["columns"].index("end")] for row in ranges["rows"]]
    ends += [row[records["columns"].index("stored_to")] for row in records["rows"]]
    assert all(end is None or end <= f"{moment:%Y-%m-%dT%H:%M:%SZ}" for end in ends)
    known = archive.markets().filter(pl.col("start_date") <= moment)
    assert sorted(row[records["columns"].index("slug")] for row in records["rows"]) == sorted(known["slug"])


def test_sql_is_of_an_archive_that_hides_nothing(archive) -> None:
    """There is no SQL with ``as_of`` or on a client, because a statement could read later rows."""
    assert Tools(archive).sql("select count(*) as n from prices")["rows"][0][0] > 0
    assert not Tools(archive, "2025-12-31").has_sql
    with pytest.raises(ConfigError, match="no as_of"):
        Tools(archive, "2025-12-31").sql("select 1")


def test_coverage_is_of_one_market_or_of_all(archive, market) -> None:
    """The ranges of a market are the ranges of its rows. An unknown market is named before any other problem."""
    everything, one = Tools(archive).coverage(), Tools(archive).coverage(market)
    place = everything["columns"].index("market")
    assert one["rows"] == [row for row in everything["rows"] if row[place] == market] != []
    assert Tools(archive, "2025-12-01").books(market, START, END)["rows"] == []
    for call in (lambda t: t.coverage("nope"), lambda t: t.books("nope", START, END)):
        with pytest.raises(md.errors.NotArchivedError, match="market 'nope' is not in the archive"):
            call(Tools(archive, "2025-12-01"))


def test_a_call_for_too_much_is_refused(archive, market) -> None:
    """A year of minutes is refused before anything is read, with what to do."""
    with pytest.raises(ConfigError, match=r"at most 100,000 are allowed: give a shorter range"):
        Tools(archive).prices(market, "2025-01-01", "2026-01-01", "1m")


def test_a_client_answers_like_an_archive(archive, market) -> None:
    """The same tools over the service give the same rows."""
    with md.serve(archive) as service, md.Client(service.base_url, service.api_key, frame="polars") as client:
        for tool in ("prices", "metrics", "books"):
            ours = getattr(Tools(archive), tool)(market, START, "2025-12-31", "1h")
            theirs = getattr(Tools(client), tool)(market, START, "2025-12-31", "1h")
            assert ours["rows"] == theirs["rows"]
            assert ours["missing"] == theirs["missing"]
        with pytest.raises(ConfigError, match="A client has no coverage"):
            Tools(client).coverage()
        few = Tools(client).markets(rows=1)
        assert (len(few["rows"]), few["notes"]) == (1, ["The service has more markets; `search` finds others."])


def test_wrong_arguments_are_refused_in_plain_words(archive, market) -> None:
    """A misspelt, missing or impossible argument is named with what is allowed, without addresses of a library."""
    from marketdata.mcp.server import Server

    tools = Server(archive)
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("prices", {"market": market, "start": START, "ends": END}, "'ends' does not exist; allowed are market, start"),
        ("prices", {"market": market, "start": START}, "'end' is missing"),
        ("prices", {"market": market, "start": START, "end": END, "resolution": "2h"}, "'1h'"),
        ("books", {"market": market, "start": START, "end": END, "rows": 0}, "greater than or equal to 1"),
        ("prizes", {}, "there are markets, order_book"),
    ]
    for name, arguments, said in calls:
        answer, problem = tools.answer(name, arguments, threading.Event())
        assert answer is None
        assert said in str(problem)
        assert "http" not in str(problem)
    for name, call in Tools(archive).offered.items():
        made = call.json_schema()
        assert made["additionalProperties"] is False
        assert all("description" in field for field in made["properties"].values()), name
        assert getattr(Tools, name).__doc__


def test_an_unforeseen_failure_is_an_answer(archive, monkeypatch) -> None:
    """A panic in a library, which is no Exception, ends its call only, and so does a cell that is too large."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    from marketdata.mcp.server import Server

    server = Server(archive)
    large = {"statement": "select repeat('x', 20000000)"}
    assert "at most 10,000,000 are allowed" in server.answer("sql", large, threading.Event())[1]

    def panic(*_: object, **__: object) -> None:
        raise BaseException("the inner text")  # noqa: TRY002

    monkeypatch.setattr(archive, "markets", panic)
    answer, problem = server.answer("markets", {}, threading.Event())
    assert (answer, problem) == (None, "The tool markets failed (BaseException); the log of the server has more.")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process")
def test_one_value_does_not_take_all_memory(archive, monkeypatch) -> None:
    """DuckDB does not count it, so its process is bounded; neither its death nor a large answer ends the server."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    from marketdata.mcp.server import Server

    monkeypatch.setattr("marketdata.mcp.statement.PROCESS_MEMORY", 1_500_000_000)
    server = Server(archive)

    def said(statement: str) -> tuple[Any, str]:
        return server.answer("sql", {"statement": statement}, threading.Event())

    assert said("select 1 as n")[0]["rows"] == [[1]]
    for statement in ("select len(range(300000000))", "select list(repeat('x', 100)) from range(4000000)"):
        assert "needs too much memory" in said(statement)[1]
    monkeypatch.setattr("marketdata.mcp.statement.MOST_BYTES", 1_000)
    assert "at most 1,000 are allowed" in said("from range(1000)")[1]
    assert said("select 1 as n")[0]["rows"] == [[1]]


def test_a_statement_is_answered_however_slow_its_process_begins(archive, monkeypatch) -> None:
    """A wait that ends before the process reads its statement loses nothing of it."""
    waits = iter([True])

    def communicate(process, given=None, timeout=None, really=subprocess.Popen.communicate):
        if next(waits, None):
            raise subprocess.TimeoutExpired(process.args, timeout)
        return really(process, given, timeout)

    monkeypatch.setattr("subprocess.Popen.communicate", communicate)
    assert Tools(archive).sql("select 1 as n")["rows"] == [[1]]


def test_a_statement_ends_once_it_is_stopped(archive) -> None:
    """A statement without end stops when its event is set, and says so."""
    tools = Tools(archive)
    threading.Timer(0.1, tools.stop.set).start()
    with pytest.raises(ConfigError, match="stopped"):
        tools.sql("select count(*) from range(1000000) a, range(1000000) b")


def test_a_program_calls_the_tools_of_a_process(archive, market) -> None:
    """``marketdata mcp`` answers the official client in compact JSON, and goes on after a call is cancelled."""
    mcp = pytest.importorskip("mcp", reason="mcp is not installed: make engines")
    anyio = pytest.importorskip("anyio")
    command = [sys.executable, "-m", "marketdata.cli", "mcp", archive.location]
    process = mcp.StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))

    async def talk() -> None:
        async with mcp.Client(process, read_timeout_seconds=60) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {
                "markets",
                "order_book",
                "books",
                "prices",
                "quotes",
                "metrics",
                "features",
                "coverage",
                "sql",
            } == set(tools)
            assert client.server_info.version == md.__version__
            assert all(tool.annotations.read_only_hint for tool in tools.values())
            with anyio.move_on_after(0.3):
                await client.call_tool("sql", {"statement": "select count(*) from range(1000000) a, range(1000000) b"})
            answer = await client.call_tool("prices", {"market": market, "start": START, "end": END})
            assert answer.structured_content == Tools(archive).prices(market, START, END)
            assert json.loads(answer.content[0].text) == answer.structured_content
            assert "\n" not in answer.content[0].text
            wrong = await client.call_tool("prices", {"market": "nope", "start": START, "end": END})
            assert wrong.is_error
            assert "market 'nope' is not in the archive" in wrong.content[0].text

    anyio.run(talk)
