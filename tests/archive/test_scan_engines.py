"""scan and sql: each engine gives the rows that polars gives, and these are the rows of the eager reads."""

from __future__ import annotations

import _thread
import datetime as dt
import json
import shutil
import threading
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archive.source import MARKETS
from archive.stored import books, prices
from polars.testing import assert_frame_equal

import marketdata as md
from marketdata.archive import Archive
from marketdata.mcp.tools import Tools

M, N = MARKETS
IDS = ["market_id", "token_id", "token_label"]


def fetched(frame: Any) -> pl.DataFrame:
    """The rows of what an engine gave."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if hasattr(frame, "read_all"):
        return pl.DataFrame(pl.from_arrow(frame.read_all()))
    if hasattr(frame, "pl"):
        return frame.pl()
    return (
        pl.DataFrame(pl.from_arrow(frame.toArrow())) if hasattr(frame, "toArrow") else pl.from_pandas(frame.compute())
    )


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Ids and sides as texts, rows in one order."""
    texts = [c for c in (*IDS, "side") if c in frame.columns]
    keys = [c for c in ("market_id", "token_id", "ts", "side", "level") if c in frame.columns]
    return frame.with_columns(pl.col(c).cast(pl.String) for c in texts).sort(keys)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Two markets in several files, one range of them replaced, one book without bids."""
    archive = Archive(tmp_path_factory.mktemp("scan") / "archive", frame="polars")
    for market in MARKETS:
        archive.add(books=books(market, 0, 180), prices=prices(market, 0, 180))
        archive.add(books=books(market, 30, 60, size=2.0), prices=prices(market, 30, 60, value=0.25))
    one = archive.books(M).filter(pl.col("ts") == pl.col("ts").max())
    archive.add(books=one.filter(pl.col("side") == "ask"))
    return archive


@pytest.fixture(scope="module", params=["polars", "arrow", "duckdb", "dask", "spark"])
def name(request: pytest.FixtureRequest, engine: Any) -> str:
    """The name of an engine that is there, and runs."""
    if request.param == "spark":
        engine("spark")
    elif request.param not in ("polars", "arrow"):
        pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize(
    ("view", "options"),
    [
        ("prices", {}),
        ("prices", {"resolution": "1h"}),
        ("prices", {"market": M, "start": "2026-01-01T00:20", "end": "2026-01-01T00:50"}),
        ("books", {}),
        ("books", {"nested": True}),
        ("books", {"resolution": "1h", "levels": 1}),
        ("books", {"market": N, "resolution": "15m", "nested": True}),
        ("books", {"market": M, "start": "2030-01-01"}),
    ],
    ids=str,
)
def test_every_engine_scans_what_polars_scans(filled: Archive, name: Any, view: Any, options: dict[str, Any]) -> None:
    """The rows do not depend on the engine that computes them."""
    want = plain(fetched(filled.scan(view, **options)))
    rows = plain(fetched(filled.scan(view, **options, engine=name)).select(want.columns))
    assert_frame_equal(rows.cast({c: t for c, t in want.schema.items() if c != "ts"}), want, check_dtypes=False)


def test_functions_take_nested_scans_of_every_engine(filled: Archive, name: Any) -> None:
    """What a function makes of nested rows is what it makes of the rows of levels that polars scans."""
    levels = fetched(filled.scan("books"))
    functions: list[Callable[[Any], Any]] = [md.bbo, md.mid, lambda frame: md.depth(frame, levels=1)]
    for function in functions:
        want, made = plain(function(levels)), function(filled.scan("books", engine=name, nested=True))
        made = pl.DataFrame(pl.from_arrow(made)).lazy() if hasattr(made, "to_batches") else made
        got = plain(fetched(made).select(want.columns))
        assert_frame_equal(got.cast({c: t for c, t in want.schema.items() if c != "ts"}), want, check_dtypes=False)


def test_partitions_hold_whole_markets(filled: Archive) -> None:
    """No market lies in two partitions, so verbs need no shuffle."""
    pytest.importorskip("dask", reason="dask is not installed: pip install prediction-marketdata[dask]")
    frame = filled.scan("prices", engine="dask")
    homes = [
        set(part["market_id"].unique()) for part in (frame.partitions[i].compute() for i in range(frame.npartitions))
    ]
    assert sorted(m for home in homes for m in home) == sorted(MARKETS)
    hourly = md.resample(md.resample(frame, "10m"), "1h")
    assert not [key for key in hourly.optimize().__dask_graph__() if "shuffle" in str(key) or "set_index" in str(key)]
    assert plain(fetched(hourly)).equals(plain(md.resample(fetched(filled.scan("prices")), "1h")))
    apart = hourly.reset_index(drop=True)
    assert [key for key in md.resample(apart, "1d").optimize().__dask_graph__() if "shuffle" in str(key)]


def test_sql_sees_every_table_by_name(filled: Archive, tmp_path: Path) -> None:
    """Views of points are at 1m, records and coverage beside them; rows are a frame of the archive's kind."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    assert filled.sql("select count(*) from books").item() == fetched(filled.scan("books")).height
    assert filled.sql("select count(*) from snapshots").item() == fetched(filled.scan("books", nested=True)).height
    mean = filled.sql("select avg(price) from prices where market_id = 'm/1'").item()
    assert mean == pytest.approx(filled.prices(M)["price"].mean())
    joined = filled.sql("select distinct slug, state from coverage join markets using (market_id)")
    assert set(joined["state"]) == {"recorded"}
    assert type(Archive(filled.location).sql("select 1 as one")).__module__.startswith("pandas")
    (tmp_path / "empty").mkdir()
    empty = Archive(tmp_path / "empty", frame="polars")
    assert empty.sql("select * from prices").columns == ["ts", "market_id", "token_id", "token_label", "price"]


def test_sql_answers_in_columns_that_frames_have(filled: Archive) -> None:
    """Intervals are durations, columns of one name get numbers, and months are refused."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    assert filled.sql("select max(ts) - min(ts) as span from prices").item() == dt.timedelta(minutes=179)
    joined = filled.sql("select a.ts, b.ts, 1 as ts_1 from prices a join prices b using (market_id, ts) limit 1")
    assert joined.columns == ["ts", "ts_1", "ts_1_1"]
    assert filled.sql("select interval 26 hours + interval 1 day as span, null::interval as gap").row(0) == (
        dt.timedelta(hours=50), None,
    )  # fmt: skip
    with pytest.raises(md.errors.ConfigError, match="months"):
        filled.sql("select interval 1 month as span")


# Values of every type of DuckDB 2; None where no frame has them.
VALUES: dict[str, Any] = {
    "timestamp 'infinity'": None,
    "timestamptz '-infinity'": None,
    "[date '12000-01-01']": None,
    "map {'a': timestamp_ns 'infinity'}": None,
    "{'a': timestamp '0044-03-15 (BC)'}": None,
    "[interval 1 day]": None,
    "union_value(k := 1)": None,
    "{'a': [1::variant]}": None,
    "map {[1]: 2}": None,
    "12::varint": None,
    "'101'::bit": None,
    "[time '12:00:00+01'::timetz]": None,
    "time_ns '12:00:00.123456789'": None,
    "1::uhugeint": None,
    "timestamp_ns '2026-01-01'": "2026-01-01T00:00:00Z",
    "date '9999-12-31'": "9999-12-31",
    "interval 26 hours": "P1DT2H",
    "'a'::blob": "YQ==",
    "time '12:00'": "12:00:00",
    "[time '12:00', null]": ["12:00:00", None],
    "{'a': date '2026-01-01', 'b': [timestamptz '2026-01-01']}": {"a": "2026-01-01", "b": ["2026-01-01T00:00:00Z"]},
    "['inf'::double, 0.5]": [None, 0.5],
    "[1, 2]::int[2]": [1, 2],
    "sum(7::bigint)": "7",
    "'a'::enum('a', 'b')": "a",
}


def test_every_type_of_duckdb_is_a_value_or_an_error(filled: Archive) -> None:
    """Frames of both kinds and JSON have the value, or the error names the column and what to write."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    tools, values = Tools(filled), {text: value for text, value in VALUES.items() if value is not None}
    for text in VALUES.keys() - values.keys():
        with pytest.raises(md.errors.ConfigError, match=r"The column v .*no frame has; cast it: v::varchar"):
            filled.sql(f"select {text} as v")
    for archive in (filled, Archive(filled.location)):
        assert len(repr(archive.sql("select " + ", ".join(f"{text} as v{n}" for n, text in enumerate(values))))) > 0
    row = tools.sql("select " + ", ".join(f"{text} as v{n}" for n, text in enumerate(values)))["rows"][0]
    assert dict(zip(values, json.loads(json.dumps(row, allow_nan=False)), strict=True)) == values
    assert any("null, because JSON has none" in note for note in tools.sql("select 'nan'::double")["notes"])


def test_a_statement_ends_with_the_rows_that_are_wanted(filled: Archive) -> None:
    """The first rows of more than memory could hold; no thread that keeps the connection is left."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    assert filled.sql("from range(20000000000)", max_rows=2).rows() == [(0,), (1,)]
    answer = Tools(filled).sql("from range(20000000000)", rows=2)
    assert answer["rows"] == [[0], [1]]
    assert answer["notes"] == ["The first 2 rows; there are more."]
    before = threading.active_count()
    with pytest.raises(md.errors.ConfigError, match="DuckDB refused"):
        filled.sql("from nowhere")
    assert threading.active_count() <= before


def test_ctrl_c_ends_a_statement(filled: Archive) -> None:
    """A notebook's cell ends in the middle of a long join, and the next statement runs."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        filled.sql("select count(*) from range(1000000) a, range(1000000) b")
    assert filled.sql("select 1").item() == 1


def test_a_statement_that_needs_too_much_memory_is_refused(filled: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so and what to do; a program's statement has a limit of its own."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    statement = "select list(i) from range(300000000) t(i)"
    monkeypatch.setattr("marketdata.mcp.statement.DUCKDB_MEMORY", "50MB")
    for call in (partial(filled.sql, memory_limit="50MB"), Tools(filled).sql):
        with pytest.raises(md.errors.ConfigError, match=r"too much memory(?s:.*)fewer rows or groups"):
            call(statement)
    for wrong in ("much", "5", 5.5):
        with pytest.raises(md.errors.ConfigError, match=r'memory_limit=.* "2GB"'):
            filled.sql("select 1", memory_limit=wrong)  # type: ignore[arg-type]


def test_arrow_rows_become_those_of_pandas_and_polars(filled: Archive) -> None:
    """Sides have signed numbers, as pyarrow before version 23 takes no others to pandas; polars finds its type."""
    rows, want = filled.scan("books", engine="arrow").read_all(), filled.scan("books").collect()
    assert str(rows.schema.field("side").type.index_type) == "int32"
    assert_frame_equal(pl.DataFrame(pl.from_arrow(rows)), want)
    assert rows.to_pandas()["side"].tolist() == want["side"].to_list()
    both = [md.resample(one, "1h") for one in (want.to_arrow(), want)]
    assert_frame_equal(pl.DataFrame(pl.from_arrow(both[0])), both[1])
    assert both[0].to_pandas()["side"].tolist() == both[1]["side"].to_list()


@pytest.mark.fault("AR48")
def test_a_folder_that_is_named_like_a_pattern_is_read_by_all(tmp_path: Path) -> None:
    """Eager reads, scans, engines, SQL and an export have the rows of this folder, and none of one that matches."""
    folder = tmp_path / "h*[2]{h,2} 50% #1"
    archive = Archive(folder, frame="polars")
    archive.add(prices=prices(M, 0, 60))
    archive.add(prices=prices(M, 60, 60))
    shutil.copytree(folder, tmp_path / "h-22 50% #1")
    assert archive.prices([M]).height == 120
    for name in ("polars", "arrow", "dask", "duckdb"):
        if name not in ("dask", "duckdb") or find_spec(name) is not None:
            assert fetched(archive.scan("prices", engine=name)).height == 120, name  # type: ignore[call-overload]
    if find_spec("duckdb") is not None:
        assert archive.sql("select count(*) from prices").item() == 120
    archive.export("prices", tmp_path / "out.csv")
    assert pl.read_csv(tmp_path / "out.csv").height == 120
    archive.compact()
    archive.vacuum(retention_hours=0)
    assert fetched(archive.scan("prices")).height == archive.verify().height + 120


def test_what_an_engine_cannot_do_is_said(filled: Archive) -> None:
    """An unknown engine, levels of prices, and Spark without a session are refused with what is allowed."""
    with pytest.raises(md.errors.ConfigError, match="polars, arrow, duckdb, dask, spark"):
        filled.scan("prices", engine="pandas")  # type: ignore[call-overload]
    with pytest.raises(md.errors.ConfigError, match="only books have levels"):
        filled.scan("prices", levels=3)


def test_records_are_frames_as_the_client_gives_them() -> None:
    """Markets, events and series of an archive equal those of its service, which names outcomes in a second way too."""
    further = {"public_id", "is_resolved", "winner", "volume"}
    archive = md.simulate(events=2, days=0.1, frame="polars")
    with md.serve(archive) as service:
        client = md.Client(service.base_url, service.api_key, frame="polars")
        for kind, key in (("markets", "market_id"), ("events", "event_id"), ("series", "series_id")):
            ours, theirs = getattr(archive, kind)(), getattr(client, kind)()
            columns = sorted({*theirs.columns} - further)
            assert_frame_equal(ours.select(columns).sort(key), theirs.select(columns).sort(key))
        slug = archive.events()["slug"][0]
        assert set(archive.markets(event_slug=slug)["slug"]) == set(client.markets(event_slug=slug)["slug"])
    assert archive.markets(search="no such text").height == 0


def test_nested_frames_are_added_as_they_are(tmp_path: Path) -> None:
    """Nested rows and rows of levels give one archive, empty sides included; what contradicts itself is refused."""
    rows = md.testing.books("polars", buckets=3)
    rows = rows.filter(~((pl.col("side") == "bid") & (pl.col("ts") == pl.col("ts").max())))
    nested = md.nest(rows)
    one, two = (Archive(tmp_path / place, frame="polars") for place in ("levels", "nested"))
    one.add(books=rows)
    for frame in (nested.to_pandas().sample(frac=1, random_state=3), nested.lazy(), nested.to_arrow()):
        two.add(books=frame)
    assert plain(one.scan("books").collect()).equals(plain(two.scan("books").collect()))
    with pytest.raises(md.errors.NotTidyError, match="bid_price has"):
        two.add(books=nested.with_columns(pl.col("bid_size").list.head(1)))
    with pytest.raises(md.errors.ConfigError, match="pass them as books="):
        two.add(prices=nested)
    assert plain(one.scan("books").collect()).equals(plain(two.scan("books").collect()))
