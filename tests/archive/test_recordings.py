"""Recordings of others become an archive: each shape with its oddities, gaps, what is left out, and stopped imports."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import multiprocessing
import random
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive.writers import import_folder

import marketdata as md
from marketdata import Archive
from marketdata.adapters.recordings import batch
from marketdata.adapters.recordings import files as recording_files
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.formats import FORMATS, format_of
from marketdata.archive import recordings, store

MS = 1_767_225_600_000
MARKET = "0x" + "ab" * 32
YES, NO = "7" * 77, "8" * 77
Event = dict[str, Any]


def book(after: float, token: str, bids: list[tuple[str, str]], asks: list[tuple[str, str]]) -> Event:
    """A whole book, worst price first, as the venue sends it."""
    sides = {"bids": sorted(bids), "asks": sorted(asks, reverse=True)}
    stamp = str(MS + round(1000 * after))
    return {
        "event_type": "book", "asset_id": token, "market": MARKET, "timestamp": stamp, "hash": "h",
        **{name: [{"price": p, "size": s} for p, s in levels] for name, levels in sides.items()},
    }  # fmt: skip


def change(after: float, token: str, side: str, price: str, size: str, **best: str) -> Event:
    """A level and its new size."""
    one = {"asset_id": token, "price": price, "size": size, "side": side, **best}
    stamp = str(MS + round(1000 * after))
    return {"event_type": "price_change", "market": MARKET, "timestamp": stamp, "price_changes": [one]}


def trade(after: float) -> Event:
    """A print of the tape, which is no level."""
    return {
        "event_type": "last_trade_price", "asset_id": YES, "market": MARKET, "price": ".5", "size": "3", "side": "BUY",
        "fee_rate_bps": "0", "timestamp": str(MS + round(1000 * after)), "transaction_hash": "0x1",
    }  # fmt: skip


EVENTS = [
    book(0, YES, [(".4", "10"), (".45", "30")], [(".9", "1"), (".55", "25")]),
    book(0.5, NO, [(".45", "25")], [(".55", "30")]),
    change(20, YES, "BUY", ".48", "5", best_bid="0.48", best_ask="0.55"),
    trade(30),
    change(70, YES, "BUY", ".48", "0", best_bid="0.45", best_ask="0.55"),
    change(80, NO, "SELL", ".55", "0", best_bid="0.45", best_ask=""),
    book(200, NO, [], []),
    change(230, YES, "SELL", ".55", "1", best_bid="0.45", best_ask="0.55"),
]


def later(events: list[Event], seconds: float) -> list[Event]:
    return [{**e, "timestamp": str(int(e["timestamp"]) + round(1000 * seconds))} for e in events]


def lines(path: Path, events: list[Any]) -> Path:
    """JSON lines, compressed by the name."""
    raw = "".join(json.dumps(one) + "\n" for one in events).encode()
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(raw))
    elif path.suffix == ".zst":
        with pa.output_stream(path, compression="zstd") as out:
            out.write(raw)
    else:
        path.write_bytes(raw)
    return path


def event_file(path: Path, events: list[Event]) -> Path:
    """An hourly event file of 16 columns, by market, token and time of arrival."""
    rows = []
    for event in events:
        for one in event.get("price_changes", [event]):
            at = dt.datetime.fromtimestamp(int(event["timestamp"]) / 1000, dt.UTC)
            sides = [
                json.dumps([[x["price"], x["size"]] for x in event[n]]) if n in event else None
                for n in ("bids", "asks")
            ]
            numbers = [Decimal(one[n]) if one.get(n) else None for n in ("price", "size", "best_bid", "best_ask")]
            rows.append((at, at, event["market"].encode(), event["event_type"], one["asset_id"], *sides, numbers[0],
                         numbers[1], one.get("side"), numbers[2], numbers[3], None, None, None, None))  # fmt: skip
    rows.sort(key=lambda row: (row[2], row[4], row[0]))
    time, price = pa.timestamp("ms", "UTC"), pa.decimal128(9, 4)
    schema = pa.schema([
        ("timestamp_received", time), ("timestamp", time), ("market", pa.binary(66)), ("event_type", pa.string()),
        ("asset_id", pa.string()), ("bids", pa.string()), ("asks", pa.string()), ("price", price),
        ("size", pa.decimal128(18, 6)), ("side", pa.string()), ("best_bid", price), ("best_ask", price),
        ("fee_rate_bps", pa.uint16()), ("transaction_hash", pa.string()), ("old_tick_size", price),
        ("new_tick_size", price),
    ])  # fmt: skip
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.table(columns, schema=schema), path, row_group_size=3)
    return path


def incremental(path: Path, events: list[Event]) -> Path:
    """A row per changed level, with ``is_snapshot``, times in microseconds; an empty book has no row."""
    out = ["exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"]
    for event in events:
        micros = int(event["timestamp"]) * 1000
        for side, name in (("bid", "bids"), ("ask", "asks")):
            out += [
                f"venue,{event['asset_id']},{micros},{micros},true,{side},{x['price']},{x['size']}"
                for x in event.get(name, ())
            ]
        for one in event.get("price_changes", ()):
            side = {"BUY": "bid", "SELL": "ask"}[one["side"]]
            out.append(f"venue,{one['asset_id']},{micros},{micros},false,{side},{one['price']},{one['size']}")
    raw = "\n".join(out).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


FEEDS: dict[str, Any] = {
    "lines.jsonl": lines,
    "lines.jsonl.gz": lines,
    "lines.ndjson.zst": lines,
    "lists.jsonl": lambda path, events: lines(path, [events[:3], events[3:]]),
    "raw.jsonl": lambda path, events: lines(
        path, [{"recv_ts": int(e["timestamp"]) / 1000, "raw": json.dumps(e)} for e in events]
    ),
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


WANT = [
    *(("7", minute, *best) for minute, best in enumerate([(0.48, 0.55), (0.45, 0.55), (0.45, 0.55), (0.45, 0.55)])),
    *(("8", minute, *best) for minute, best in enumerate([(0.45, 0.55), (0.45, None), (0.45, None), (None, None)])),
]


@pytest.mark.parametrize("name", FEEDS)
def test_a_feed_is_rebuilt_from_each_shape(archive: Archive[Any], tmp_path: Path, name: str) -> None:
    """The last book of each minute, as it stands; trades are left out and counted; the report says what was read."""
    path = FEEDS[name](tmp_path / name, EVENTS)
    report = archive.add_files(path).row(0, named=True)
    assert tops(archive) == WANT
    assert report["points"] == report["stored"] == len(WANT)
    assert (report["rows"], report["gaps"], report["disagreements"]) == (8, 0, 0)
    assert report["left_out"] == "1 last_trade_price"
    assert archive.coverage().select("view", "market_id", "state").rows() == [("books", MARKET, "recorded")]


@pytest.mark.parametrize("name", ["feed.csv", "feed.csv.gz"])
def test_incremental_rows_are_rebuilt(archive: Archive[Any], tmp_path: Path, name: str) -> None:
    """Without the market in a column, a token is a market of its own, and the report says so."""
    report = archive.add_files(incremental(tmp_path / name, EVENTS)).row(0, named=True)
    assert report["format"] == "incremental"
    assert "2 token of no known market, kept as a market of its own" in report["note"]
    assert tops(archive, YES) == WANT[:4]
    assert tops(archive, NO)[:3] == WANT[4:7]


def test_tokens_get_the_market_that_is_known(archive: Archive[Any], tmp_path: Path) -> None:
    """Records of ``markets=`` name the market and labels of tokens."""
    (tmp_path / "markets.json").write_text(
        json.dumps([{"market_id": "m", "slug": "rain", "token_ids": [YES, NO], "token_labels": ["Yes", "No"]}])
    )
    archive.add_files(incremental(tmp_path / "feed.csv", EVENTS), markets=tmp_path / "markets.json")
    assert archive.books("rain")["token_label"].unique().sort().to_list() == ["No", "Yes"]


SNAPSHOT_ROWS = [
    {"market_id": "m", "token_id": "7", "token_side": "Yes", "timestamp": MS + 1000, "best_bid": 0.4, "best_ask": 0.6},
    {
        "market_id": "m",
        "token_id": "7",
        "token_side": "Yes",
        "timestamp": MS + 59_000,
        "best_bid": 0.45,
        "best_ask": None,
    },
    {
        "market_id": "m",
        "token_id": "7",
        "token_side": "Yes",
        "timestamp": MS + 180_000,
        "best_bid": 0.4,
        "best_ask": 0.6,
    },
]
LEVELS = [
    ([(0.3, 1.0), (0.4, 2.0)], [(0.7, 1.0), (0.6, 2.0)]),
    ([(0.45, 3.0), (0.44, 0.0)], []),
    ([(0.4, 1.0)], [(0.6, 1.0), (0.6, 5.0)]),
]


def snapshot_table(path: Path, kind: str, step: int = 1) -> Path:
    """A table with a book a row; levels in any order, with a size of 0 and a level given twice."""
    shapes: dict[str, Any] = {
        "pairs": lambda levels: [list(x) for x in levels],
        "structs": lambda levels: [{"price": p, "size": s} for p, s in levels],
        "text": lambda levels: json.dumps([[str(p), str(s)] for p, s in levels]),
    }
    if kind == "book":
        rows = [
            {**row, "book": json.dumps(dict(zip(("bids", "asks"), map(shapes["structs"], both), strict=True)))}
            for row, both in zip(SNAPSHOT_ROWS, LEVELS, strict=True)
        ]
    else:
        rows = [
            {**row, "bids": shapes[kind](bids), "asks": shapes[kind](asks)}
            for row, (bids, asks) in zip(SNAPSHOT_ROWS, LEVELS, strict=True)
        ]
    frame = pl.DataFrame(rows[::step])
    frame.write_parquet(path) if path.suffix == ".parquet" else lines(path, rows[::step])
    return path


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("end", [".parquet", ".jsonl.gz"])
@pytest.mark.parametrize("kind", ["pairs", "structs", "text", "book"])
def test_a_snapshot_is_the_book_of_its_moment(
    archive: Archive[Any], tmp_path: Path, kind: str, end: str, step: int
) -> None:
    """The last one of a minute counts, also of rows that begin with the newest, and none stands in minutes between."""
    report = archive.add_files(snapshot_table(tmp_path / f"snapshots{end}", kind, step)).row(0, named=True)
    assert (report["format"], report["rows"], report["stored"], report["disagreements"]) == ("snapshots", 3, 2, 0)
    assert tops(archive, "m") == [("7", 0, 0.45, None), ("7", 3, 0.4, 0.6)]
    books = archive.books("m")
    assert books.filter(side="ask", level=0)["size"].to_list() == [5.0]
    assert books["token_label"].unique().to_list() == ["Yes"]


@pytest.mark.parametrize("end", [".json", ".jsonl.zst"])
def test_book_messages_without_a_kind_are_books_of_their_moments(
    archive: Archive[Any], tmp_path: Path, end: str
) -> None:
    """In whatever order; a token that they do not name is given, and a file is read again for another one."""
    messages = [
        {name: one[name] for name in ("timestamp", "bids", "asks")}
        for one in (book(n, YES, [(f".{n + 100}", "1")], [(".9", "2")]) for n in (50, 300, 20, 70, 119, 80))
    ]
    path = lines(tmp_path / f"messages{end}", [messages] if end == ".json" else messages)
    with pytest.raises(md.ConfigError, match="token_id="):
        archive.add_files(path)
    report = archive.add_files(path, token_id="7").row(0, named=True)
    assert (report["format"], report["rows"], report["stored"]) == ("book-messages", 6, 3)
    assert tops(archive, "7") == [("7", 0, 0.15, 0.9), ("7", 1, 0.219, 0.9), ("7", 5, 0.4, 0.9)]
    assert archive.add_files(path, token_id="7")["note"].to_list() == ["imported before"]
    assert archive.add_files(path, token_id="8")["stored"].to_list() == [3]
    broken = lines(tmp_path / f"broken{end}", [{**messages[0], "bids": [{"price": "x", "size": "1"}]}])
    with pytest.raises(md.ConfigError, match=r"broken.*none of its 1 messages"):
        archive.add_files(broken, token_id="7")


def moment_rows(kind: str, moments: list[tuple[int, str, float]]) -> list[Event]:
    """Books of two bids and an ask, one per (time, token, best bid)."""
    out: list[Event] = []
    for at, token, bid in moments:
        one: Event = {"token_id": token, "market_id": f"m{token}", "timestamp": MS + at}
        if kind == "snapshots":
            out.append({**one, "bids": f"[[{bid},1],[0.001,2]]", "asks": "[[0.9,1]]"})
        elif kind == "wide-snapshots":
            levels = {"bids[0].price": bid, "bids[1].price": 0.001, "asks[0].price": 0.9}
            out.append({**one, **levels, **{name.replace("price", "amount"): 1.0 for name in levels}})
        elif kind == "levels":
            levels = {("bid", 0): bid, ("bid", 1): 0.001, ("ask", 0): 0.9}
            out += [{**one, "side": s, "level": n, "price": price, "size": 1.0} for (s, n), price in levels.items()]
        elif kind == "outcome-bids":
            yes = f"[[{bid},1],[0.001,2]]"
            out.append({"ticker": f"m{token}", "ts": MS + at, "yes_levels": yes, "no_levels": "[[0.1,1]]"})
        else:
            bids, asks = ([{"price": str(x), "size": "1"} for x in side] for side in ([bid, 0.001], [0.9]))
            out.append({"asset_id": token, "market": f"m{token}", "timestamp": MS + at, "bids": bids, "asks": asks})
    return out


@pytest.mark.parametrize("order", ["time", "token", "newest first", "none"])
@pytest.mark.parametrize(
    ("kind", "end"),
    [(kind, end) for kind in ("snapshots", "levels", "wide-snapshots", "outcome-bids") for end in ("csv", "parquet")]
    + [(kind, "jsonl") for kind in ("snapshots", "levels", "book-messages")],
)
@pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
def test_the_last_snapshot_of_a_minute_counts_in_whatever_order_and_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, end: str, order: str
) -> None:
    """A file in the order of time, of all or of each token, is read part by part, another one as a whole."""
    chance = random.Random(f"{kind} {end} {order}")
    for name, most in (("_ROWS", 7), ("_JSON_ROWS", 5), ("_CSV_BLOCK", 500), ("_PART", 384)):
        monkeypatch.setattr(recording_files, name, most)
    monkeypatch.setattr(batch, "_ROWS", 4)
    monkeypatch.setattr(recordings, "_LEVELS", 40)
    times = chance.sample(range(0, 240_000, 500), 40)
    moments = [(at, chance.choice("12"), round(0.1 + n / 1000, 3)) for n, at in enumerate(times)]
    moments.sort(reverse=order == "newest first")
    if order == "token":
        moments.sort(key=lambda one: one[1])
    rows = moment_rows(kind, moments)
    if order == "none":
        chance.shuffle(rows)
    path = tmp_path / f"books.{end}"
    if end == "jsonl":
        lines(path, rows)
    elif end == "csv":
        pl.DataFrame(rows).write_csv(path)
    else:
        pl.DataFrame(rows).write_parquet(path)
    archive = Archive(tmp_path / "archive", frame="polars")
    report = archive.add_files(path, format=kind).row(0, named=True)
    last: dict[tuple[str, int], float] = {}
    for at, token, bid in sorted(moments):
        last[token, at // 60_000] = bid
    found: dict[tuple[str, int], float] = {}
    for token in "12":
        books = archive.books(f"m{token}")
        if kind == "outcome-bids":
            books = books.filter(pl.col("token_label") == "Yes")
        for (at,), levels_of in books.group_by("ts"):
            sides = levels_of.sort("side", "level").select("side", "level").rows()
            assert sides == [("bid", 0), ("bid", 1), ("ask", 0)]
            found[token, at.minute] = levels_of.filter(pl.col("side") == "bid")["price"].max()
    assert found == pytest.approx(last)
    assert ("read as a whole" in (report["note"] or "")) == (order in ("newest first", "none"))
    assert (report["format"], report["rows"]) == (kind, len(rows))


@pytest.mark.parametrize(("kind", "end"), [("levels", "csv"), ("snapshots", "jsonl"), ("book-messages", "jsonl")])
def test_a_large_file_in_no_order_of_time_is_refused_with_what_to_do(
    archive: Archive[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, end: str
) -> None:
    """Sorting it would take more memory than there may be."""
    for name, most in (("_ROWS", 7), ("_JSON_ROWS", 5), ("_CSV_BLOCK", 500), ("_PART", 384), ("_WHOLE", 1000)):
        monkeypatch.setattr(recording_files, name, most)
    rows = moment_rows(kind, [(at, "1", 0.25) for at in range(240_000, 0, -6000)])
    path = tmp_path / f"books.{end}"
    if end == "jsonl":
        lines(path, rows)
    else:
        pl.DataFrame(rows).write_csv(path)
    with pytest.raises(
        md.ConfigError, match=r"'books\.\w+' is not in the order of time, .* Sort its rows by their time"
    ):
        archive.add_files(path, format=kind)


@pytest.mark.parametrize("kind", ["snapshots", "market-channel"])
def test_a_file_that_is_before_the_one_above_it_is_named(archive: Archive[Any], tmp_path: Path, kind: str) -> None:
    """Of a minute that two files have, the book of the one that is read later is kept, which the report says."""
    paths = []
    for name, times in (("a", (60_000, 130_000)), ("b", (135_000, 300_000)), ("c", (20_000, 119_000))):
        if kind == "snapshots":
            rows = moment_rows(kind, [(at, "1", 0.2) for at in times])
        else:
            rows = [book(at / 1000, YES, [(".2", "1")], [(".9", "1")]) for at in times]
        paths.append(lines(tmp_path / f"{name}.jsonl", rows))
    notes = archive.add_files(paths)["note"].to_list()
    early = ["times before those of a file before" in (note or "") for note in notes]
    assert early == [False, False, True]


def test_rows_of_a_table_of_json_before_its_damaged_end_are_taken(archive: Archive[Any], tmp_path: Path) -> None:
    """Also those of a part that is not full."""
    moments = [(at, "1", 0.2) for at in range(0, 600_000, 100)]
    path = lines(tmp_path / "books.jsonl.gz", moment_rows("snapshots", moments))
    path.write_bytes(path.read_bytes()[:-2000])
    report = archive.add_files(path).row(0, named=True)
    assert 0 < report["rows"] < len(moments)
    assert "ends in the middle of its data" in report["note"]


def test_levels_and_wide_tables_are_snapshots(archive: Archive[Any], tmp_path: Path) -> None:
    """A row per level, and a column per level."""
    level_rows = pl.DataFrame(
        [
            {"token_id": "9", "timestamp": MS + at, "side": side, "level": i, "price": price, "size": 1.0}
            for at in (0, 1000)
            for side, prices in (("bid", (0.4, 0.3)), ("ask", (0.6, 0.7)))
            for i, price in enumerate(prices)
        ]
    )
    level_rows.write_parquet(tmp_path / "depth.parquet")
    wide: dict[str, Any] = {"symbol": ["10"], "timestamp": [MS * 1000], "local_timestamp": [MS * 1000]}
    for name, price in (("bids[0]", 0.5), ("bids[1]", 0.4), ("asks[0]", 0.55), ("asks[1]", None)):
        wide |= {f"{name}.price": [price], f"{name}.amount": [price and 2.0]}
    pl.DataFrame(wide).write_csv(tmp_path / "book_snapshot_2.csv")
    report = archive.add_files([tmp_path / "depth.parquet", tmp_path / "book_snapshot_2.csv"])
    assert report["format"].to_list() == ["levels", "wide-snapshots"]
    assert tops(archive, "9") == [("9", 0, 0.4, 0.6)]
    assert tops(archive, "10") == [("1", 0, 0.5, 0.55)]
    assert len(archive.books("10")) == 3


@pytest.mark.parametrize(("unit", "yes", "no"), [("cents", 40, 55), ("dollars", "0.40", "0.55")])
def test_an_ask_of_yes_is_a_bid_of_no(archive: Archive[Any], tmp_path: Path, unit: str, yes: Any, no: Any) -> None:
    """Bids of both outcomes are both books of a market, prices in cents or dollars."""
    rows = [
        {"ticker": "KX", "ts": MS // 1000, "yes_levels": json.dumps([[yes, 10]]), "no_levels": json.dumps([[no, 20]])}
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / f"{unit}.parquet")
    archive.add_files(tmp_path / f"{unit}.parquet")
    best = md.bbo(archive.books("KX")).select("token_label", "best_bid", "best_ask", "best_ask_size").rows()
    assert best == [("No", 0.55, 0.6, 10.0), ("Yes", 0.4, 0.45, 20.0)]


@pytest.mark.parametrize("after", [0.0, 0.07])
@pytest.mark.parametrize("unchanged", [True, False])
def test_over_a_missing_hour_nothing_is_carried(
    archive: Archive[Any], tmp_path: Path, unchanged: bool, after: float
) -> None:
    """Hour files follow each other; where one is missing a change waits for the next book, and nothing is covered.

    So it is whichever part of a second the last message before came in.
    """
    hour = 3600
    files = [
        event_file(tmp_path / "T19.parquet", later(EVENTS, after)),
        event_file(
            tmp_path / "T21.parquet", later([EVENTS[2], EVENTS[4]], 2 * hour) + later(EVENTS[:2], 2 * hour + 600)
        ),
    ]
    report = archive.add_files(files, unchanged=unchanged)
    assert report["gaps"].to_list() == [0, 2]  # the missing hour, and eight minutes within the second file
    assert "2 change before a book" in report["note"][1]
    covered = [((a.hour, a.minute), (b.hour, b.minute)) for a, b in archive.coverage().select("start", "end").rows()]
    assert (covered[0][0], covered[-1]) == ((0, 0), ((2, 10), (2, 11)))
    assert [end for _, end in covered[:-1]][-1] == (0, 4)
    assert not unchanged or len(covered) == 2


def test_books_that_are_not_as_stated_stop_the_import(archive: Archive[Any], tmp_path: Path) -> None:
    """Above the allowed share it is an error that names the first; below it, they are counted."""
    path = lines(
        tmp_path / "wrong.jsonl", [*EVENTS, change(300, YES, "BUY", ".49", "1", best_bid=".5", best_ask=".55")]
    )
    with pytest.raises(md.NotTidyError, match=r"'wrong.jsonl': 1 of .* at 2026-01-01T00:05:00Z: stated 0.5 / 0.55"):
        archive.add_files(path)
    assert archive.coverage().is_empty()
    assert archive.add_files(path, max_disagreement=1)["disagreements"].to_list() == [1]


def test_what_is_odd_is_counted(archive: Archive[Any], tmp_path: Path) -> None:
    """Sizes below 0, prices outside of 0 to 1, times that go back, lines that are no JSON, trades and others."""
    odd = [
        change(240, YES, "BUY", ".3", "-1"),
        change(241, YES, "BUY", "1.3", "1"),
        change(235, YES, "BUY", ".3", "1"),
        "torn",
        trade(250),
    ]
    path = lines(tmp_path / "odd.jsonl", [*EVENTS, *odd])
    with path.open("a") as file:
        file.write('{"event_type": "price_ch')
    report = archive.add_files(path).row(0, named=True)
    counts = dict(reversed(part.split(" ", 1)) for part in report["left_out"].split(", "))
    assert counts == {"last_trade_price": "2", "damaged": "2", "size below 0": "1", "price outside of 0 to 1": "1"}
    assert report["note"] == "1 time that goes back"


def by_token(archive: Archive[Any]) -> list[tuple[Any, ...]]:
    return archive.books(MARKET, on_missing="partial").select("ts", "token_id", "side", "level", "price", "size").cast(
        {"token_id": pl.String}
    ).rows()  # fmt: skip


@pytest.mark.parametrize("write", [lines, event_file])
def test_a_stopped_import_continues_as_if_it_had_not_been(tmp_path: Path, write: Any) -> None:
    """Books that are open at the end of a file are those of the next one, also in another process; twice is once."""
    end = "jsonl" if write is lines else "parquet"
    parts = [EVENTS, later(EVENTS[2:5], 240), later([EVENTS[7]], 240), later(EVENTS, 500)]
    files = [write(tmp_path / f"part-{i}.{end}", part) for i, part in enumerate(parts)]
    whole, stopped = (Archive(tmp_path / name, frame="polars") for name in ("whole", "stopped"))
    whole.add_files(files)
    for count in (1, 3, 4):
        Archive(tmp_path / "stopped", frame="polars").add_files(files[:count])
    assert by_token(stopped) == by_token(whole)
    rows = [a.coverage().drop("fetched_at").rows() for a in (whole, stopped)]
    assert rows[0] == rows[1]
    version = stopped.version("books")
    report = stopped.add_files(files)
    assert report["note"].to_list() == ["imported before"] * 4
    assert stopped.version("books") == version


def test_a_side_that_is_none_is_refused(archive: Archive[Any], tmp_path: Path) -> None:
    """A row of neither bids nor asks is no bid: the file is an error that says what sides are called."""
    path = incremental(tmp_path / "feed.csv", EVENTS)
    path.write_text(path.read_text().replace(",ask,", ",yes,", 1))
    with pytest.raises(md.ConfigError, match=r"'feed.csv': side has the value 'yes'; allowed are buy, bid"):
        archive.add_files(path)
    assert archive.coverage().is_empty()


def test_a_journal_that_cannot_be_written_is_an_error_of_the_archive(archive: Archive[Any], tmp_path: Path) -> None:
    """It says what could not be written; once it can be, the import continues."""
    file = lines(tmp_path / "feed.jsonl", EVENTS)
    Path(archive.location).mkdir()
    in_the_way = Path(archive.location, "imports")
    in_the_way.write_text("")
    with pytest.raises(md.ArchiveError, match="Writing the journal of imports"):
        archive.add_files(file)
    in_the_way.unlink()
    before = by_token(archive)
    archive.add_files(file)
    assert by_token(archive) == before


def covered(archive: Archive[Any]) -> list[list[Any]]:
    """Ranges of coverage as long as they go, with their numbers of points, which none is without after a kill."""
    out: list[list[Any]] = []
    columns = ("market_id", "state", "start", "end", "rows")
    for market, state, start, end, rows in archive.coverage().select(columns).rows():
        assert rows is not None
        if out and out[-1][:2] == [market, state] and out[-1][3] == start:
            out[-1][3:] = end, out[-1][4] + rows
        else:
            out.append([market, state, start, end, rows])
    return out


def killed_imports(tmp_path: Path, rounds: int, seed: int) -> int:
    """Imports of one folder that are killed at random moments, each continuing; how many were killed before the end."""
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(16):
        write, end = ((lines, "jsonl"), (event_file, "parquet"))[i % 2]
        write(folder / f"part-{i}.{end}", later(EVENTS, 500 * i + 3600 * (i // 6)))
    whole = Archive(tmp_path / "whole", frame="polars")
    began = time.monotonic()
    whole.add_files(folder)
    took = time.monotonic() - began
    chance, killed = random.Random(seed), 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["archive.writers"])
    for _ in range(rounds):
        process = context.Process(target=import_folder, args=(str(tmp_path / "stopped"), str(folder)))
        process.start()
        process.join(timeout=chance.uniform(0, took))
        killed += process.is_alive()
        process.kill()
        process.join()
    stopped = Archive(tmp_path / "stopped", frame="polars")
    stopped.add_files(folder)
    assert by_token(stopped) == by_token(whole)
    assert covered(stopped) == covered(whole)
    assert stopped.verify().is_empty()
    return killed


def test_an_import_that_was_killed_continues(tmp_path: Path) -> None:
    """Whenever a process ends, the same command makes the archive that one import makes."""
    print(f"{killed_imports(tmp_path, 6, 0)} of 6 imports were killed on their way")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 11))
def test_imports_that_are_killed_many_times_continue(tmp_path: Path, seed: int) -> None:
    """As above, with more moments."""
    print(f"{killed_imports(tmp_path, 20, seed)} of 20 imports were killed on their way")


def test_files_that_are_joined_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Books that do not change take little room in files; not so many of them are read at once."""
    most, read, small = 16_000, [], store._small

    def watched(*arguments: Any) -> Any:
        found = small(*arguments)
        read.append(sum(rows.nbytes for rows in found.values()))
        return found

    monkeypatch.setattr(store, "_small", watched)
    monkeypatch.setattr(store, "_TAIL_FILES", 8)
    monkeypatch.setattr(store, "_BATCH_BYTES", most)
    archive = Archive(tmp_path / "archive", frame="polars")
    files = [lines(tmp_path / f"part-{i}.jsonl", later(EVENTS, 500 * i)) for i in range(30)]
    for path in files:
        archive.add_files(path)
    whole = Archive(tmp_path / "whole", frame="polars")
    whole.add_files(files)
    assert by_token(archive) == by_token(whole)
    assert len(archive.files("books")) <= 10
    assert most / 2 < max(read) < 2 * most


def test_files_are_taken_in_the_order_of_the_numbers_in_their_names(archive: Archive[Any], tmp_path: Path) -> None:
    """Folders with all that is in them, and patterns."""
    folder = tmp_path / "day"
    folder.mkdir()
    for number, part in ((9, EVENTS[:2]), (10, EVENTS[2:4]), (11, EVENTS[4:])):
        lines(folder / f"part-{number}.jsonl", part)
    report = archive.add_files(str(tmp_path / "d*" / "*.jsonl"))
    assert [Path(file).stem for file in report["file"]] == ["part-9", "part-10", "part-11"]
    assert tops(archive) == WANT
    assert archive.add_files(folder)["note"].to_list() == ["imported before"] * 3


def test_of_a_folder_what_is_good_is_taken_and_the_rest_is_named(archive: Archive[Any], tmp_path: Path) -> None:
    """One good file, one truncated, one of an unknown shape, one empty, and one of another kind."""
    folder = tmp_path / "in"
    folder.mkdir()
    lines(folder / "a-good.jsonl.gz", EVENTS)
    more = gzip.compress("".join(json.dumps(e) + "\n" for e in later(EVENTS * 200, 300)).encode(), 1)
    (folder / "b-cut.jsonl.gz").write_bytes(more[: len(more) // 2])
    event_file(folder / "c-cut.parquet", EVENTS)
    (folder / "c-cut.parquet").write_bytes((folder / "c-cut.parquet").read_bytes()[:-100])
    (folder / "d-unknown.csv").write_text("a,b\n1,2\n")
    (folder / "e-empty.jsonl").write_text("")
    (folder / "README.md").write_text("# about")
    with pytest.warns(md.RecordingWarning, match="Left out") as warned:
        report = archive.add_files(folder)
    notes = {Path(file).name: str(note) for file, note in report.select("file", "note").rows()}
    assert notes["a-good.jsonl.gz"] == "None"
    assert "ends in the middle of its data: fetch it again" in notes["b-cut.jsonl.gz"]
    assert "no whole Parquet file" in notes["c-cut.parquet"]
    assert "columns are ['a', 'b']" in notes["d-unknown.csv"]
    assert "is empty: fetch it again, or leave it out" in notes["e-empty.jsonl"]
    assert "of another kind" in notes["README.md"]
    assert len(warned) == 3
    assert tops(archive)[:3] == WANT[:3]
    with pytest.raises(md.ConfigError, match="None of the files can be read"):
        archive.add_files(str(folder / "[de]-*"))
    with pytest.raises(md.ConfigError, match=r"c-cut\.parquet"):
        archive.add_files(folder / "c-cut.parquet")


def test_a_format_is_chosen_by_name_where_several_fit(tmp_path: Path, archive: Archive[Any]) -> None:
    """The columns of a table may be those of two formats; an unknown name is refused with those that there are."""
    path = tmp_path / "both.parquet"
    columns = {"token_id": ["7"], "timestamp": [MS], "side": ["bid"], "price": [0.5], "size": [1.0], "level": [0]}
    pl.DataFrame({**columns, "is_snapshot": [True]}).write_parquet(path)
    with pytest.raises(md.ConfigError, match="formats incremental and levels; name one with format="):
        archive.add_files(path)
    with pytest.raises(md.ConfigError, match="allowed are market-channel, event-files"):
        archive.add_files(path, format="levles")
    assert archive.add_files(path, format="levels")["stored"].to_list() == [1]


def test_each_format_is_recognised_alone(tmp_path: Path) -> None:
    """No file of the tests fits two formats, and each format of the table is met."""
    found = {
        str(one.name)
        for name, write in FEEDS.items()
        if (one := format_of(RecordingFile(write(tmp_path / name, EVENTS))))
    }
    others = [
        format_of(RecordingFile(incremental(tmp_path / "feed.csv", EVENTS))),
        format_of(RecordingFile(snapshot_table(tmp_path / "s.parquet", "pairs"))),
    ]
    assert found | {one.name for one in others if one} == {"market-channel", "event-files", "incremental", "snapshots"}
    assert FORMATS.keys() > found


def test_the_recorded_messages_are_rebuilt(archive: Archive[Any], recorded: Path, tmp_path: Path) -> None:
    """Real messages, sent as a feed: the books of a second are those of the last message of it."""
    messages = [
        {**m, "event_type": "book", "asset_id": YES, "market": MARKET}
        for m in json.loads((recorded / "book_messages.json").read_text())
    ]
    seconds = Archive(tmp_path / "seconds", frame="polars", base="1s")
    report = seconds.add_files(lines(tmp_path / "real.jsonl", messages), unchanged=False).row(0, named=True)
    last = {int(m["timestamp"]) // 1000: m for m in messages}
    assert report["stored"] == len(last)
    best = md.bbo(seconds.books(MARKET, resolution="1s"))
    for at, bid, ask in best.select(pl.col("ts").dt.epoch("s"), "best_bid", "best_ask").rows():
        assert bid == max((float(x["price"]) for x in last[at]["bids"]), default=None)
        assert ask == min((float(x["price"]) for x in last[at]["asks"]), default=None)
