"""Recordings become an archive: every row is accounted for, gaps stay gaps, and a stopped import continues."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.shapes import (
    EVENTS,
    MARKET,
    NO,
    START,
    TOPS,
    YES,
    book,
    change,
    event_file,
    flat,
    incremental,
    later,
    lines,
    stamped,
    trade,
)

import marketdata as md
from marketdata import Archive
from marketdata.archive import import_writer, imports
from marketdata.archive.reading import Reader
from marketdata.errors import ArchiveError, ConfigError, NotTidyError, RecordingWarning

FEEDS: dict[str, Any] = {
    "lines.jsonl.gz": lines,
    "lists.ndjson.zst": lambda path, events: lines(path, [events[:3], events[3:]]),
    "raw.jsonl": lambda path, events: lines(
        path, [{"recv_ts": int(e["timestamp"]) / 1000, "raw": json.dumps(e)} for e in events]
    ),
    "content.jsonl": lambda path, events: lines(
        path,
        [
            {"timestamp": int(e["timestamp"]) + 40, "message_type": "feed_message", "content": json.dumps(e)}
            for e in events
        ],
    ),
    "stamped.jsonl": stamped,
    "messages.csv": lambda path, events: (pd.DataFrame(events).to_csv(path, index=False), path)[1],
    "flat.csv": flat,
    "one.json": lambda path, events: (path.write_text(json.dumps(events, indent=1)), path)[1],
    "hour.parquet": event_file,
}


@pytest.fixture
def archive(tmp_path: Path) -> Archive[Any]:
    return Archive(tmp_path / "archive", frame="polars")


def tops(archive: Archive[Any], market: str = MARKET) -> list[tuple[Any, ...]]:
    """Token, minute, and best prices of each book."""
    best = md.bbo(archive.books(market))
    return [
        (t[0], at.minute, *prices) for t, at, *prices in best.select("token_id", "ts", "best_bid", "best_ask").rows()
    ]


def only(report: pl.DataFrame) -> dict[str, Any]:
    """The row of the one file, whose sums agree."""
    row = report.row(0, named=True)
    assert row["rows"] == row["stored"] + row["left_out"]
    return row


@pytest.mark.parametrize("name", FEEDS)
def test_a_feed_is_rebuilt_from_each_shape(archive: Archive[Any], tmp_path: Path, name: str) -> None:
    """Each minute has the book that is valid at its end, and the report says what was read and left out."""
    row = only(archive.add_files(FEEDS[name](tmp_path / name, EVENTS)))
    assert tops(archive) == TOPS
    assert row["reasons"] == "1 last_trade_price"
    counts = [row[c] for c in ("rows", "stored", "points", "replaced", "tokens", "gaps", "disagreements")]
    assert counts == [8, 7, len(TOPS), 0, 2, 0, 0]
    assert [row[c].minute for c in ("start", "end")] == [0, 3]
    assert archive.coverage().select("view", "market_id", "state").rows() == [("books", MARKET, "recorded")]


def test_levels_of_the_channel_as_rows_are_changes_and_books(archive: Archive[Any], tmp_path: Path) -> None:
    """``event_type`` says which levels are of a whole book; one with other events is no recording of books."""
    rows = [
        {"timestamp": e["timestamp"], "event_type": e["event_type"], "asset_id": level.get("asset_id") or e["asset_id"],
         "side": level.get("side") or side, "price": level["price"], "size": level["size"]}
        for e in EVENTS
        for name, side in (("bids", "BUY"), ("asks", "SELL"), ("price_changes", ""))
        for level in e.get(name, ())
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "levels.csv", index=False)
    assert only(archive.add_files(tmp_path / "levels.csv"))["format"] == "incremental"
    assert tops(archive, YES) == TOPS[:4]
    assert tops(archive, NO)[:3] == TOPS[4:7]
    frame["event_type"] = "fill"
    frame.to_csv(tmp_path / "fills.csv", index=False)
    with pytest.raises(ConfigError, match="event_type"):
        archive.add_files(tmp_path / "fills.csv")


@pytest.mark.parametrize("again", ["connected", "reconnected"])
def test_a_recording_that_says_where_connections_begin_has_no_book_of_the_time_between(
    tmp_path: Path, again: str
) -> None:
    """A recording that says where each begins has no book from the last message before to the next snapshot."""
    first = book(0, YES, [(".4", "10")], [(".6", "10")])
    messages = [
        {"type": "connected", "timestamp": START},
        first,
        change(1.2, YES, "BUY", ".45", "1"),
        change(3.5, YES, "BUY", ".46", "1"),
        {"type": again, "timestamp": START + 20_000},
        {**first, "timestamp": str(START + 20_400)},
        change(22, YES, "BUY", ".47", "1"),
    ]
    seconds = Archive(tmp_path / "seconds", frame="polars", base="1s")
    seconds.add_files(lines(tmp_path / "lost.jsonl", messages))
    best = md.bbo(seconds.books(MARKET, resolution="1s", on_missing="partial"))
    found = best.select((pl.col("ts").dt.epoch("ms") - START) // 1000, "best_bid").rows()
    assert found == [(0, 0.4), (1, 0.45), (2, 0.45), (20, 0.4), (21, 0.4), (22, 0.47)]


@pytest.mark.parametrize(
    "lost",
    [
        {"event": "disconnected", "ts": START + 1500},
        {"event": "disconnected"},
        {"type": "DISCONNECTED", "received_at": START + 1500},
        {"timestamp": START + 1500, "message_type": "disconnected", "content": "socket closed"},
        {"received_at": START + 1500, "raw": {"event": "reconnecting"}},
    ],
)
def test_a_lost_connection_is_a_gap(tmp_path: Path, lost: dict[str, Any]) -> None:
    """The second in which it was lost has the book from before; then there is none until the next snapshot."""
    first = book(0, YES, [(".4", "10")], [(".6", "10")])
    messages = [
        first,
        change(1.2, YES, "BUY", ".45", "1"),
        lost,
        change(3, YES, "BUY", ".5", "1"),
        {**first, "timestamp": str(START + 4000)},
    ]
    seconds = Archive(tmp_path / "seconds", frame="polars", base="1s")
    row = only(seconds.add_files(lines(tmp_path / "lost.jsonl", messages)))
    assert row["gaps"] == 1
    best = md.bbo(seconds.books(MARKET, resolution="1s", on_missing="partial"))
    found = best.select((pl.col("ts").dt.epoch("ms") - START) // 1000, "best_bid").rows()
    assert found == [(0, 0.4), (1, 0.45), (4, 0.4)]


def test_a_token_without_a_known_market_is_its_own(archive: Archive[Any], tmp_path: Path) -> None:
    """The report says so; records of `markets=` name the market and the labels of tokens."""
    path = incremental(tmp_path / "feed.csv.gz", EVENTS)
    row = only(archive.add_files(path))
    assert "2 tokens of no known market" in row["note"]
    assert tops(archive, YES) == TOPS[:4]
    assert tops(archive, NO)[:3] == TOPS[4:7]
    record = {"market_id": "m", "slug": "rain", "token_ids": [YES, NO], "token_labels": ["Yes", "No"]}
    (tmp_path / "markets.json").write_text(json.dumps([record]))
    other = Archive(tmp_path / "other", frame="polars")
    for markets, match in ((path, "not records of markets"), (tmp_path / "none.json", "does not exist")):
        with pytest.raises(ConfigError, match=match):
            other.add_files(path, markets=markets)
    other.add_files(path, markets=tmp_path / "markets.json")
    assert other.books("rain")["token_label"].unique().sort().to_list() == ["No", "Yes"]


def snapshot_rows(moments: list[tuple[int, float]], token: str = "7") -> list[dict[str, Any]]:
    """A book with this best bid at each time [ms], with a size of 0 and a level given twice."""
    return [
        {
            "token_id": token, "market_id": "m", "timestamp": START + at, "asks": [[0.9, 1.0], [0.9, 5.0]],
            "bids": [{"price": p, "size": s} for p, s in ((0.001, 2.0), (bid, 1.0), (0.99, 0.0))],
        }
        for at, bid in moments
    ]  # fmt: skip


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from("78"), st.integers(0, 300_000), st.integers(2, 800)), min_size=1, max_size=30),
    st.integers(4, 40),
)
@pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
def test_the_last_snapshot_of_a_minute_counts_in_whatever_order_and_parts(
    tmp_path_factory: Any, drawn: list[tuple[str, int, int]], part: int
) -> None:
    """Files of snapshots in any order, read at once or in parts, have the last book of each token and minute."""
    folder = tmp_path_factory.mktemp("snapshots")
    moments = list({(token, at): bid / 1000 for token, at, bid in drawn}.items())
    rows = [row for (token, at), bid in moments for row in snapshot_rows([(at, bid)], token)]
    last = {(token, at // 60_000): bid for (token, at), bid in sorted(moments)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "_KEPT_CHANGES", part)
        archive = Archive(folder / "archive", frame="polars")
        row = only(archive.add_files(lines(folder / "books.jsonl", rows)))
    assert {(t, minute): bid for t, minute, bid, _ in tops(archive, "m")} == last
    assert archive.books("m").filter(side="ask")["size"].to_list() == [5.0] * len(last)
    assert (row["stored"], row["points"]) == (len(last), len(last))
    assert row["reasons"] in (None, f"{len(rows) - len(last)} superseded in its bucket")


def test_a_file_too_large_to_sort_is_refused_with_what_would_be_lost(
    archive: Archive[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest message first: eight of nine changes come after a later one, and nothing is stored."""
    monkeypatch.setattr(imports, "_KEPT_CHANGES", 2)
    monkeypatch.setattr(imports, "_SORTED_CHANGES", 4)
    events = [change(40 * n, YES, "BUY", f".{n + 10}", "1") for n in range(8, -1, -1)]
    with pytest.raises(ConfigError, match=r"'a\.jsonl': is not in the order of time.* 88\.9 % of its 9 changes"):
        archive.add_files(lines(tmp_path / "a.jsonl", events))
    assert not Path(archive.location).exists()


@pytest.mark.parametrize("kept", [1, 1_000_000])
def test_a_feed_in_any_order_is_sorted(
    archive: Archive[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A recording with the newest message first has the books of its times, and the report says that it was sorted."""
    monkeypatch.setattr(imports, "_KEPT_CHANGES", kept)
    row = only(archive.add_files(lines(tmp_path / "feed.jsonl", EVENTS[::-1])))
    assert tops(archive) == TOPS
    assert "the file was sorted by time" in row["note"]
    with pytest.warns(RecordingWarning, match=r"of \d+ changes came after a later one of their token"):
        rebuilt = md.rebuild(EVENTS[::-1], "1m", frame="polars")
    assert rebuilt.equals(md.rebuild(EVENTS, "1m", frame="polars"))


@pytest.mark.parametrize("write", [incremental, event_file])
def test_a_large_file_in_order_is_read_in_parts(
    archive: Archive[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    """Parts cut snapshots and buckets anywhere, and the books are the same."""
    from marketdata.recordings import containers

    monkeypatch.setattr(imports, "_KEPT_CHANGES", 2)
    for name, most in (("PART_ROWS", 3), ("CSV_BLOCK", 400)):
        monkeypatch.setattr(containers, name, most)
    path = write(tmp_path / f"feed.{'csv' if write is incremental else 'parquet'}", EVENTS)
    record = {"market_id": MARKET, "token_ids": [YES, NO], "token_labels": ["a", "b"]}
    only(archive.add_files(path, markets=[record]))
    # An empty book is no row of the table of changed levels.
    assert tops(archive)[:7] == TOPS[:7]


def test_a_bucket_of_two_files_has_the_book_of_the_later_one(archive: Archive[Any], tmp_path: Path) -> None:
    """The report counts replaced points."""
    names = (("a", (60_000, 130_000)), ("b", (135_000, 300_000)), ("c", (20_000, 119_000)))
    paths = [lines(tmp_path / f"{name}.jsonl", snapshot_rows([(at, 0.2) for at in times])) for name, times in names]
    report = archive.add_files(paths)
    assert report["replaced"].to_list() == [0, 1, 1]
    assert report["points"].sum() - report["replaced"].sum() == archive.books("m")["ts"].n_unique()


def test_rows_before_the_damaged_end_of_a_file_are_taken(archive: Archive[Any], tmp_path: Path) -> None:
    """The report says that the file was cut."""
    path = lines(tmp_path / "books.jsonl.gz", snapshot_rows([(at, 0.2) for at in range(0, 60_000, 100)]))
    path.write_bytes(path.read_bytes()[:-500])
    row = only(archive.add_files(path))
    assert 0 < row["rows"] < 600
    assert "ends in the middle of its data" in row["note"]


@pytest.mark.parametrize(("unchanged", "after"), [(True, 0.0), (False, 0.07)])
def test_over_a_missing_hour_nothing_is_carried(
    archive: Archive[Any], tmp_path: Path, unchanged: bool, after: float
) -> None:
    """A change after a missing hour waits for the next book, and coverage has no range in between."""
    hour = 3600
    files = [
        event_file(tmp_path / "T19.parquet", later(EVENTS, after)),
        event_file(
            tmp_path / "T21.parquet", later([EVENTS[2], EVENTS[4]], 2 * hour) + later(EVENTS[:2], 2 * hour + 600)
        ),
    ]
    report = archive.add_files(files, unchanged=unchanged)
    assert report["gaps"].to_list() == [0, 2]  # the missing hour, and eight minutes within the second file
    assert report["reasons"][1] == "2 change before a book"
    covered = [((a.hour, a.minute), (b.hour, b.minute)) for a, b in archive.coverage().select("start", "end").rows()]
    assert (covered[0][0], covered[-1]) == ((0, 0), ((2, 10), (2, 11)))
    assert [end for _, end in covered[:-1]][-1] == (0, 4)
    assert not unchanged or len(covered) == 2


def test_books_that_disagree_with_messages_stop_the_import(archive: Archive[Any], tmp_path: Path) -> None:
    """Above the allowed share it is an error that names the first; below it they are counted."""
    path = lines(
        tmp_path / "wrong.jsonl", [*EVENTS, change(300, YES, "BUY", ".49", "1", best_bid=".5", best_ask=".55")]
    )
    with pytest.raises(NotTidyError, match=r"'wrong.jsonl': 1 of .* at 2026-01-01T00:05:00Z: stated 0.5 / 0.55"):
        archive.add_files(path)
    assert not Path(archive.location).exists()
    assert archive.add_files(path, max_disagreement=1)["disagreements"].to_list() == [1]


def test_every_row_is_accounted_for(archive: Archive[Any], tmp_path: Path) -> None:
    """Impossible levels, damaged lines, trades and empty lists of changes are each counted."""
    stamp = str(START + 231_000)
    tick = {"event_type": "tick_size_change", "asset_id": YES, "new_tick_size": "0.01", "timestamp": stamp}
    new = {
        "event_type": "new_market", "market": MARKET, "slug": "rain", "clob_token_ids": json.dumps([YES, NO]),
        "outcomes": ["Yes", "No"], "timestamp": str(START),
    }  # fmt: skip
    strange = [
        new, tick, change(240, YES, "BUY", ".3", "-1"), change(241, YES, "BUY", "1.3", "1"),
        change(242, YES, "BUY", "x", "1"),
        {**change(243, YES, "BUY", ".3", "1"), "price_changes": []}, "torn", {"recv_ts": "soon", "raw": "{}"},
        trade(250),
    ]  # fmt: skip
    path = lines(tmp_path / "strange.jsonl", [*EVENTS, *strange])
    with path.open("a") as file:
        file.write('{"event_type": "price_ch')
    row = only(archive.add_files(path))
    assert set(row["reasons"].split(", ")) == {
        "2 last_trade_price", "3 damaged", "1 unknown", "2 price outside of 0 to 1 or size below 0",
        "1 without a level", "1 tick_size_change", "1 new_market",
    }  # fmt: skip
    assert archive.books("rain")["token_label"].unique().sort().to_list() == ["No", "Yes"]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", ".5", "BUY", YES, str(START)]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["event_type", "timestamp", "raw", "bids", "asks", "price"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(EVENTS)
        | st.tuples(st.sampled_from(EVENTS), st.sampled_from(list(EVENTS[2]) + list(EVENTS[0])), _JSON).map(
            lambda drawn: {**drawn[0], drawn[1]: drawn[2]}
        )
        | _JSON,
        max_size=8,
    ),
    st.integers(1, 1000),
)
def test_every_message_is_stored_or_left_out_for_a_reason(tmp_path_factory: Any, drawn: list[Any], part: int) -> None:
    """Whatever a stranger's file contains: rows = stored + left out, and the reasons count what is left out."""
    folder = tmp_path_factory.mktemp("messages")
    path = lines(folder / "feed.jsonl", [EVENTS[0], *drawn])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imports, "_KEPT_CHANGES", part)
        row = only(Archive(folder / "archive", frame="polars").add_files(path, max_disagreement=1))
    assert row["rows"] >= 1
    assert row["left_out"] == sum(int(reason.split()[0]) for reason in (row["reasons"] or "").split(", ") if reason)


_CELLS = {
    "token_id": ["7", "8", ""], "timestamp": [str(START), str(START + 61_000), ""], "side": ["bid", "ask", ""],
    "level": ["0", "1"], "is_snapshot": ["true", "false", ""], "price": ["0.5", ".4", "1.5", "-1", "", "x"],
    "size": ["1", "0", "-2", "", "x"], "bids": ["[[0.4, 1]]", "[]", "", "[[2, 1]]", "x", "[[0.3]]"],
    "asks": ["[[0.6, 1]]", "{}", '{"0.7": 2}', '[{"price": "0.9"}]'],
}  # fmt: skip


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(["levels", "incremental", "snapshots", "prices"]))
def test_every_row_is_stored_or_left_out_for_a_reason(tmp_path_factory: Any, data: Any, name: str) -> None:
    """Tables with missing, impossible and damaged cells are accounted for in each format, or refused whole."""
    names = {
        "levels": ("side", "level", "price", "size"), "incremental": ("side", "is_snapshot", "price", "size"),
        "snapshots": ("bids", "asks"), "prices": ("price",),
    }[name]  # fmt: skip
    columns = ("token_id", "timestamp", *names)
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from(_CELLS[c]) for c in columns)), min_size=1, max_size=10))
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    pl.DataFrame(rows, schema=list(columns), orient="row").write_csv(path)
    try:
        row = only(Archive(path.parent / "archive", frame="polars").add_files(path))
    except (ConfigError, NotTidyError):
        return
    assert row["rows"] == len(rows)
    assert row["left_out"] == sum(int(reason.split()[0]) for reason in (row["reasons"] or "").split(", ") if reason)


@pytest.mark.filterwarnings("ignore:1 tokens are in two markets")
def test_a_dry_run_gives_the_same_report_and_stores_nothing(archive: Archive[Any], tmp_path: Path) -> None:
    """Also beside points that are stored, and with no archive yet."""
    folder = tmp_path / "in"
    folder.mkdir()
    lines(folder / "a.jsonl", EVENTS)
    (folder / "p.csv").write_text(f"token_id,timestamp,price\n{YES},{START},0.5\n{YES},{START},0.5\n,{START},0.5\n")
    for number in range(2):
        version = Reader(archive).version("books") if number else None
        dry = archive.add_files(folder, dry_run=True)
        assert (number == 1) == Path(archive.location).exists()
        assert version == (Reader(archive).version("books") if number else None)
        assert dry.equals(archive.add_files(folder))
        lines(folder / "c.jsonl", later(EVENTS, 60))
    assert dry["replaced"].sum() > 0
    assert dry.filter(kind="prices")["reasons"].to_list() == ["1 without a token_id, 1 equal to another row"]


def test_the_sums_of_points_agree_with_what_is_read_back(archive: Archive[Any], tmp_path: Path) -> None:
    """Prices of seconds become one point a minute, and a second import replaces them."""
    frame = pl.DataFrame({
        "timestamp": [START + 20_000 * i for i in range(30)], "asset_id": [YES, NO] * 15,
        "price": [None, *[i / 100 for i in range(29)]],
    })  # fmt: skip
    frame.write_parquet(path := tmp_path / "prices.parquet")
    for replaced in (0, 20):
        row = only(archive.add_files(path))
        assert (row["rows"], row["stored"], row["reasons"], row["replaced"]) == (30, 29, "1 without a price", replaced)
        assert row["points"] == len(archive.prices(YES)) + len(archive.prices(NO)) == 20


def test_markets_without_tokens_are_a_warning_with_their_number(archive: Archive[Any], tmp_path: Path) -> None:
    """Their books could not be found."""
    (tmp_path / "a.csv").write_text("market_id,question,slug\n1,Rain?,rain\n2,Sun?,sun\n")
    with pytest.warns(RecordingWarning, match="2 markets without tokens, of 2"):
        archive.add_files(tmp_path / "a.csv")


def test_trades_are_stored_as_prints(archive: Archive[Any], tmp_path: Path) -> None:
    """A table of trades is prints, which a second import of it does not double, and no books."""
    (tmp_path / "a.csv").write_text(f"asset_id,timestamp,side,price,size\n7,{START},BUY,.5,1\n7,{START},BUY,.5,1\n")
    for _ in range(2):
        row = only(archive.add_files(tmp_path / "a.csv"))
        assert (row["kind"], row["rows"], row["points"]) == ("trades", 2, 2)
    assert archive.trades("7").select("side", "price", "size").rows() == [("buy", 0.5, 1.0)] * 2
    assert archive.coverage()["view"].to_list() == ["trades"]


def test_an_import_without_a_book_leaves_no_archive(archive: Archive[Any], tmp_path: Path) -> None:
    """Changes before any book are left out, and reading afterwards is as before."""
    row = only(archive.add_files(lines(tmp_path / "a.jsonl", [EVENTS[2]])))
    assert (row["points"], row["reasons"]) == (0, "1 change before a book")
    assert not (Path(archive.location) / "imports").exists()


def test_fields_of_snapshots_are_kept_on_request(archive: Archive[Any], tmp_path: Path) -> None:
    """A bucket has the last tick and trade before its end, and the hash of its last message."""
    first = {**EVENTS[0], "tick_size": "0.01", "last_trade_price": ".44", "hash": "a"}
    second = change(130, YES, "BUY", ".41", "1", hash="b")
    fields = ["hash", "tick_size", "last_trade_price"]
    books = md.rebuild([first, EVENTS[3], second], "1m", keep=fields, frame="polars").select("ts", *fields).unique()
    assert [row[1:] for row in books.sort("ts").rows()] == [("a", 0.01, 0.44), ("a", 0.01, 0.44), ("b", 0.01, 0.5)]
    with pytest.raises(ConfigError, match="allowed are hash, last_trade_price, tick_size"):
        md.rebuild([first], keep=["hsah"])
    archive.add_files(lines(tmp_path / "feed.jsonl", [first, EVENTS[3], second]), keep=fields)
    nested = md.explode(archive.scan("books", MARKET, nested=True)).collect()
    for stored in (archive.books(MARKET), archive.scan("books", MARKET).collect(), nested):
        assert stored.select("ts", *fields).unique().sort("ts").rows() == books.sort("ts").rows()
    assert archive.books(MARKET, resolution="1h").select(fields).unique().rows() == [("b", 0.01, 0.5)]
    again = Archive(tmp_path / "again", frame="polars")
    again.add(books=archive.books(MARKET))
    assert again.books(MARKET).equals(archive.books(MARKET))


def by_token(archive: Archive[Any]) -> list[tuple[Any, ...]]:
    return archive.books(MARKET, on_missing="partial").select("ts", "token_id", "side", "level", "price", "size").cast(
        {"token_id": pl.String}
    ).rows()  # fmt: skip


def test_a_stopped_import_continues_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Books that are open at the end of a file go on in the next one, and a file is imported once."""
    parts = [EVENTS, later(EVENTS[2:5], 240), later([EVENTS[7]], 240), later(EVENTS, 500)]
    files = [
        event_file(tmp_path / f"part-{i}.parquet", part) if i else lines(tmp_path / "part-0.jsonl", part)
        for i, part in enumerate(parts)
    ]
    whole, stopped = (Archive(tmp_path / name, frame="polars") for name in ("whole", "stopped"))
    whole.add_files(files)
    for count in (1, 4):
        Archive(tmp_path / "stopped", frame="polars").add_files(files[:count])
    assert by_token(stopped) == by_token(whole)
    rows = [a.coverage().drop("fetched_at").rows() for a in (whole, stopped)]
    assert rows[0] == rows[1]
    version = Reader(stopped).version("books")
    assert stopped.add_files(files)["note"].to_list() == ["imported before"] * 4
    assert Reader(stopped).version("books") == version


def test_an_import_that_fails_anywhere_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever writing fails, the same import made again gives the archive of one import."""
    files = [lines(tmp_path / f"part-{i}.jsonl", later(EVENTS, 500 * i)) for i in range(3)]
    whole = Archive(tmp_path / "whole", frame="polars")
    whole.add_files(files)
    add, write = imports.ingest.add_points, import_writer.Journal.write
    steps = itertools.count()
    fails = random.Random(0).sample(range(9), 4)

    def failing(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(steps) in fails:
                raise ArchiveError("no space")
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(imports.ingest, "add_points", failing(add))
    monkeypatch.setattr(import_writer.Journal, "write", failing(write))
    for _ in range(6):
        try:
            Archive(tmp_path / "stopped", frame="polars").add_files(files)
        except ArchiveError:
            continue
    stopped = Archive(tmp_path / "stopped", frame="polars")
    assert by_token(stopped) == by_token(whole)
    assert stopped.verify().is_empty()


def test_a_corrected_file_is_imported_again(archive: Archive[Any], tmp_path: Path) -> None:
    """A file of equal size that was changed in its middle is another file."""
    rows = [{**row, "comment": "x" * 900} for row in snapshot_rows([(60_000 * at, 0.2) for at in range(9)])]
    path = lines(tmp_path / "books.jsonl", rows)
    archive.add_files(path)
    size = path.stat().st_size
    rows[4]["bids"][1]["price"] = 0.3
    lines(path, rows)
    assert (path.stat().st_size, archive.add_files(path)["note"].to_list()) == (size, [None])


def test_a_side_that_is_none_is_left_out(archive: Archive[Any], tmp_path: Path) -> None:
    """A row of neither bids nor asks is no bid: it is counted, and a file of such rows is refused."""
    path = incremental(tmp_path / "feed.csv", EVENTS)
    text = path.read_text()
    path.write_text(text.replace(",ask,", ",yes,", 1))
    assert only(archive.add_files(path))["reasons"] == "1 whose side is neither bid nor ask"
    path.write_text(text.replace(",ask,", ",yes,").replace(",bid,", ",no,"))
    with pytest.raises(ConfigError, match=r"(?s)'feed.csv' fits no known format.*lacks side"):
        archive.add_files(path)


def test_messages_without_a_token_need_one(archive: Archive[Any], tmp_path: Path) -> None:
    """`token_id=` names it, and the file is read again for another token."""
    messages = [{n: book(i, YES, [(".4", "1")], [])[n] for n in ("timestamp", "bids", "asks")} for i in (50, 300, 20)]
    path = lines(tmp_path / "messages.jsonl", messages)
    with pytest.raises(ConfigError, match="token_id="):
        archive.add_files(path)
    assert archive.add_files(path, token_id="7")["points"].to_list() == [2]
    assert archive.add_files(path, token_id="8")["points"].to_list() == [2]


def test_files_are_taken_in_the_order_of_the_numbers_in_their_names(archive: Archive[Any], tmp_path: Path) -> None:
    """Folders with all that is in them, and patterns."""
    folder = tmp_path / "day"
    folder.mkdir()
    for number, part in ((9, EVENTS[:2]), (10, EVENTS[2:4]), (11, EVENTS[4:])):
        lines(folder / f"part-{number}.jsonl", part)
    report = archive.add_files(str(tmp_path / "d*" / "*.jsonl"))
    assert [Path(file).stem for file in report["file"]] == ["part-9", "part-10", "part-11"]
    assert tops(archive) == TOPS
    assert archive.add_files(folder)["note"].to_list() == ["imported before"] * 3


def test_the_good_files_of_a_folder_are_taken_and_the_others_named(archive: Archive[Any], tmp_path: Path) -> None:
    """A folder has a good file, a truncated one, an unknown shape, an empty file and a text."""
    folder = tmp_path / "in"
    folder.mkdir()
    lines(folder / "a-good.jsonl.gz", EVENTS)
    more = gzip.compress("".join(json.dumps(e) + "\n" for e in later(EVENTS * 20, 300)).encode(), 1)
    (folder / "b-cut.jsonl.gz").write_bytes(more[: len(more) // 2])
    event_file(folder / "c-cut.parquet", EVENTS)
    (folder / "c-cut.parquet").write_bytes((folder / "c-cut.parquet").read_bytes()[:-100])
    (folder / "d-unknown.csv").write_text("a,b\n1,2\n")
    (folder / "e-empty.jsonl").write_text("")
    lines(folder / "f-torn.jsonl", [{"event_type": "book"}] * 2)
    (folder / "README.md").write_text("# about")
    with pytest.warns(RecordingWarning, match="Left out") as warned:
        report = archive.add_files(folder)
    notes = {Path(file).name: str(note) for file, note in report.select("file", "note").rows()}
    assert notes["a-good.jsonl.gz"] == "None"
    assert "ends in the middle of its data: fetch it again" in notes["b-cut.jsonl.gz"]
    assert "no whole Parquet file" in notes["c-cut.parquet"]
    assert "Its columns are a, b." in notes["d-unknown.csv"]
    assert "is empty: fetch it again, or leave it out" in notes["e-empty.jsonl"]
    assert "none of its 2 messages can be read" in notes["f-torn.jsonl"]
    assert "of another kind" in notes["README.md"]
    assert len(warned) == 4
    assert tops(archive)[:3] == TOPS[:3]
    with pytest.raises(ConfigError, match="None of the files can be read"):
        archive.add_files(str(folder / "[de]-*"))
    with pytest.raises(ConfigError, match=r"c-cut\.parquet"):
        archive.add_files(folder / "c-cut.parquet")


def test_the_recorded_messages_are_rebuilt(recorded: Path, tmp_path: Path) -> None:
    """The book of a second is the last real message of it."""
    messages = [
        {**m, "event_type": "book", "asset_id": YES, "market": MARKET}
        for m in json.loads((recorded / "book_messages.json").read_text())
    ]
    seconds = Archive(tmp_path / "seconds", frame="polars", base="1s")
    row = only(seconds.add_files(lines(tmp_path / "real.jsonl", messages), unchanged=False))
    # The first book is known from its arrival on, 5.8 seconds after its last change.
    known = [int(messages[0]["local_timestamp"]) - 126, *(int(m["timestamp"]) for m in messages[1:])]
    last = {at // 1000: m for at, m in zip(known, messages, strict=True)}
    assert row["points"] == len(last)
    best = md.bbo(seconds.books(MARKET, resolution="1s"))
    for at, bid, ask in best.select(pl.col("ts").dt.epoch("s"), "best_bid", "best_ask").rows():
        assert bid == max((float(x["price"]) for x in last[at]["bids"]), default=None)
        assert ask == min((float(x["price"]) for x in last[at]["asks"]), default=None)
