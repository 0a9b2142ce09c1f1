"""Refusals of arguments, frames, files and answers that no other test meets: each says what is wrong."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from reference.memory import MemoryArchive
from reference.web import START, in_process

import marketdata as md
from marketdata.archive.replay import replay_server
from marketdata.errors import ConfigError, ContractError, MarketDataError, NotTidyError
from marketdata.fetch.checkpoint import Resume
from marketdata.mcp.server import Server
from marketdata.stream.channel import KalshiChannel, PolymarketChannel, _private_key
from marketdata.stream.connection import Connections, Event
from marketdata.stream.raw import RawFiles
from marketdata.wire import kalshi, polymarket, venues

BOOKS, PRICES, MARKETS = md.testing.books(), md.testing.prices(), md.testing.markets()
TRADES, OUTCOMES = md.testing.trades(), md.outcomes(md.testing.markets())
SIGNAL = PRICES.assign(signal=PRICES["price"])[["ts", "market_id", "token_id", "token_label", "signal"]]
EVENTS = MARKETS.assign(exclusive=True, open_list=False, event_id="e")
TWO_RECORDS = pd.concat([EVENTS, EVENTS.assign(token_ids=[["98", "99"]])])
TWO_FEES = pd.concat([MARKETS.assign(fees_enabled=False), MARKETS.assign(fee_type="quadratic", fee_multiplier=1.0)])
NOBODY = md.Client("http://127.0.0.1:9", "mk_any_0123456789", progress=False)
S = 1_767_225_600  # 2026-01-01


def page(resolution: str) -> bytes:
    """A page of prices of a market."""
    data = {"Yes": [{"t": "2026-01-01T00:00:00Z", "p": 0.5}]}
    return json.dumps({
        "market_id": "m", "resolution": resolution, "tokens": {"Yes": "1"}, "data": data,
        "metadata": {"count": 1, "limit": 100, "next_cursor": None},
    }).encode()  # fmt: skip


FRAMES: list[tuple[Callable[[], Any], type[MarketDataError], str]] = [
    (lambda: md.concat([PRICES.set_index("ts")]), NotTidyError, "call frame.reset_index"),
    (lambda: md.concat([PRICES.assign(market_id=1.5)]), NotTidyError, "market_id"),
    (lambda: md.Fees.flat(0.01)("x", 1), ConfigError, "allowed are a number and an array"),
    (lambda: md.Fees.flat(0.01)([0.1, 0.2], [1, 2, 3]), ConfigError, "different shapes"),
    (lambda: md.study(BOOKS, SIGNAL.assign(more=1.0), "1m", fees=0), ConfigError, "allowed is one column of"),
    (lambda: md.study(BOOKS, [], "1m", fees=0), ConfigError, "is empty; allowed are a signal"),
    (lambda: md.study(BOOKS, SIGNAL, [], fees=0), ConfigError, "is empty; allowed are a horizon"),
    (lambda: md.cluster_mean(PRICES, "token_label"), ConfigError, "allowed is a column of numbers"),
    (lambda: md.cluster_mean(PRICES, "price", bounds=(0.9, 0.1)), ConfigError, "a pair of rising numbers"),
    (lambda: md.cluster_mean(PRICES, "price", bounds="ab"), ConfigError, "rising numbers, with no"),
    (lambda: md.measure(needs="top", units={}, null="")(type("", (), {"__call__": None})()), ConfigError, "no name"),
    (
        lambda: PRICES.md.brier(pd.concat([OUTCOMES, OUTCOMES.assign(payoff=1 - OUTCOMES["payoff"])])),
        NotTidyError,
        "two payoffs of token",
    ),
    (lambda: md.pnl(TRADES.assign(account="a", role="boss"), OUTCOMES, by="account"), NotTidyError, "role is 'boss'"),
    (lambda: md.skill(PRICES, OUTCOMES, reference=1.5), ConfigError, "allowed are numbers from 0 to 1"),
    (lambda: md.pair_spread({}, [BOOKS] * 3, fees=0), ConfigError, "has 3 frames"),
    (lambda: md.pairs(5, MARKETS), ConfigError, "A int is refused here"),
    (lambda: md.pairs([("a", "b")], [{"market_id": "a", "payouts": ["x"]}]), NotTidyError, "A record is not read"),
    (lambda: md.resample(PRICES, "1h", fill="x"), ConfigError, "fill"),
    (lambda: NOBODY.prices("m", -70_000_000_000, 0), ConfigError, "outside of the years 1 to 9999"),
    (lambda: NOBODY.resume("x"), ConfigError, "give the .resume of an error"),
    (lambda: NOBODY.resume(Resume(())), ConfigError, "all rows are in .partial"),
    (lambda: NOBODY.markets(series_slug="a", event_slug="b"), ConfigError, "and an event exclude each other"),
    (lambda: NOBODY.markets(state=["open", "closed"]), ConfigError, "a service takes one at a time"),
    (lambda: NOBODY.markets(tags="a", params={"tags": "b"}), ConfigError, "say it once"),
    (lambda: md.Client("polymarket", progress=False).trades("x"), ConfigError, "Give start= or period="),
    (lambda: md.forward_returns(PRICES, ["1m", "60s"], "1m", fees=0), ConfigError, "list of different durations"),
    (lambda: md.slope(PRICES.assign(x=np.inf), "price", "x"), NotTidyError, "is infinite"),
    (
        lambda: md.arbitrage(BOOKS, markets=TWO_RECORDS, fees=0),
        NotTidyError,
        "records that differ",
    ),
    (
        lambda: md.Fees.of(TWO_FEES),
        NotTidyError,
        "two records with different fees",
    ),
    (lambda: md.outcomes(MARKETS.assign(payoffs="[1, x]")), NotTidyError, "not a list of numbers"),
    (lambda: PolymarketChannel("ftp://127.0.0.1"), ConfigError, "is no address of a stream"),
    (lambda: md.cluster_mean(PRICES.assign(c=None), "price", cluster="c"), NotTidyError, "in no cluster"),
    (
        lambda: md.cluster_mean(PRICES, "price", by="sport", markets=MARKETS.assign(market_id="x", sport="s")),
        NotTidyError,
        "not among the market records",
    ),
    (
        lambda: md.cluster_mean(PRICES, "price", by="sport", markets=pd.DataFrame({"sport": ["s"]})),
        NotTidyError,
        "market records, needs",
    ),
    (lambda: md.study(BOOKS, [SIGNAL, SIGNAL], "1m", fees=0, interval=None).plot(), ConfigError, "has no chart"),
    (lambda: md.read_pages("prices", [page("1m"), page("1h")]), ContractError, "a frame has one"),
    (lambda: kalshi.market(5), ContractError, "A market is no object"),  # type: ignore[arg-type]
    (lambda: polymarket.market(5), ContractError, "market is no object: '5'"),  # type: ignore[arg-type]
    (lambda: venues.renamed(5, {}), ContractError, "A record is no object"),  # type: ignore[arg-type]
    (lambda: kalshi.bids_of(5), ContractError, "The book is no object"),  # type: ignore[arg-type]
    (lambda: md.read_pages("prices", [b"{}"]), ContractError, "Page 0: "),
]


@pytest.mark.parametrize(("call", "kind", "said"), FRAMES)
def test_a_frame_or_an_argument_is_refused(call: Callable[[], Any], kind: type[MarketDataError], said: str) -> None:
    """The error has its class, and says what was wrong."""
    with pytest.raises(kind) as caught:
        call()
    assert said in str(caught.value)


CANDLE = {"end_period_ts": S, "yes_bid": {"close": 49}, "yes_ask": {"close": 51}, "price": {"close": 50}, "volume": 5}
BOOK_OF_NOBODY = {
    "event_type": "book", "market": "m", "timestamp": f"{S}000", "bids": [{"price": ".4", "size": "9"}], "asks": []
}  # fmt: skip
LATE_ZERO = "asset_id,market,timestamp,side,level,price,size\n" + "".join(
    f"7,m,{S + 60 * i}000,bid,0,.4,{0 if i == 5_999 else 5}\n7,m,{S + 60 * i}000,ask,0,.5,5\n" for i in range(6_000)
)
FILES: list[tuple[str, str | bytes, dict[str, Any], str]] = [
    ("a.db", b"no database at all, but some text", {}, "is no SQLite file"),
    ("a.ndjson", '{"ts": 1}\n'.encode("utf-16"), {}, "is UTF-16"),
    ("a.csv", f"ts,token_id,price\n{S},1,.5\n", {"columns": ["ts"]}, "is no dict such as"),
    ("a.csv", f"ts,token_id,price\n{S},1,.5\n", {"clock": "nothing"}, "nothing"),
    ("a.csv", f"end_period_ts,token_id,open,high,low,close\n{S},1,.5,.5,.5,.5\n", {}, "width is not known"),
    ("a.csv", f"ts,token_id,price\n{S},1,.5\n{S},1,250\n{S},1,7.5\n", {}, "not all cents from 0 to 100"),
    ("a.csv", f"ts,token_id,best_bid,best_ask_cents\n{S},1,.45,46\n{S + 60},1,.44,47\n", {}, "different units"),
    ("a.csv", "ts,token_id,price\nnoon,1,.5\nlater,1,.6\n", {"columns": {"ts": "ts"}}, "name another column"),
    (
        "a.jsonl",
        json.dumps({"event_id": "", "title": "t", "event_slug": ""}) + "\n",
        {"format": "events"},
        "nor a slug",
    ),
    ("a.jsonl", json.dumps({"id": None, "title": "t", "markets": None}) + "\n", {"format": "events"}, "neither an id"),
    ("a.csv", LATE_ZERO, {"format": "levels"}, "size has zeros, as changes"),
    ("a.json", json.dumps({"ticker": "KXA-1", "candlesticks": [CANDLE]}), {}, "a file needs two of a market"),
    ("a.jsonl", json.dumps(BOOK_OF_NOBODY) + "\n", {}, "pass token_id="),
    (
        "a.csv",
        f"token_id,ts,side,level,price,size\n7,{S},bid,0,.4,0\n7,{S},ask,0,.5,1\n",
        {"format": "levels"},
        "as changes have",
    ),
]


@pytest.mark.parametrize(("name", "content", "options", "said"), FILES, ids=range(len(FILES)))
def test_a_file_is_refused(name: str, content: str | bytes, options: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The error says what the file lacks."""
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        md.Archive(tmp_path / "archive").add_files(path, **options)
    assert said in str(caught.value)


def test_paths_without_data_are_refused(tmp_path: Path) -> None:
    """A pattern that matches nothing, a database without a table and files without trades are told apart."""
    archive = md.Archive(tmp_path / "archive")
    with pytest.raises(ConfigError, match="matches no file"):
        archive.add_files(tmp_path / "*.csv")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("create table t (x)")
        database.execute("drop table t")
    database.close()
    with pytest.raises(ConfigError, match="has no table"):
        archive.add_files(tmp_path / "a.db")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.csv").write_text(f"ts,token_id,price\n{S},1,.5\n")
    with pytest.raises(ConfigError, match="No file has trades"), pytest.warns(md.errors.RecordingWarning):
        md.read_trades(tmp_path / "files")


def test_a_time_of_another_age_is_named(tmp_path: Path) -> None:
    """A record whose time no calendar of Python has is refused with the file's name."""
    far = pl.DataFrame(
        {"market_id": ["a"], "question": ["?"], "end_date": pl.Series([10**18], dtype=pl.Datetime("us"))}
    )
    far.write_parquet(tmp_path / "far.parquet")
    with pytest.raises(ConfigError, match="has a time that is none"):
        md.Archive(tmp_path / "archive").add_files(tmp_path / "far.parquet")


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's refusal is the error of the file."""

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("not yours")

    (tmp_path / "a.jsonl").write_text(json.dumps(BOOK_OF_NOBODY))
    monkeypatch.setattr("marketdata.recordings.containers.Container._stream", refused)
    with pytest.raises(ConfigError, match=r"'a\.jsonl' cannot be read: not yours"):
        md.Archive(tmp_path / "archive").add_files(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tokens", value) for value in (7, "x", {"a": 1}, [5], [None], True)),
        *((name, value) for name in ("token_ids", "token_labels", "tags", "payoffs") for value in (7, True, {"a": 1})),
        *(("payoffs", value) for value in (["x"], [["a"]], "1e400")),
        *(("resolved_token_id", value) for value in ([], ["x"], {"a": 1})),
    ],
)
def test_a_record_of_other_shapes_is_refused_through_every_door(name: str, value: Any, tmp_path: Path) -> None:
    """A frame, a file and a list of records say so alike, whatever stands in the place of a list or of an id."""
    record = {"market_id": "a", "token_ids": ["1", "2"], "token_labels": ["Yes", "No"], name: value}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    for call in (
        lambda: md.Archive(tmp_path / "added").add(markets=[record]),
        lambda: md.Archive(tmp_path / "read").add_files(tmp_path / "a.jsonl", format="markets"),
        lambda: md.pairs([("a", "a")], [record]),
    ):
        with pytest.raises((ConfigError, NotTidyError), match=f"{name}|paid"):
            call()


def test_a_flag_is_true_false_or_null(tmp_path: Path) -> None:
    """Prints with another value of a flag are not stored."""
    with pytest.raises(NotTidyError, match="is_block has other values than true, false and null"):
        md.Archive(tmp_path / "archive").add(trades=TRADES.assign(is_block=2))


def test_a_folder_with_real_data_is_not_simulated_into(tmp_path: Path) -> None:
    """Simulated markets are not added to real ones."""
    md.Archive(tmp_path / "real").add(markets=MARKETS)
    with pytest.raises(ConfigError, match="has data that is not simulated"):
        md.simulate(tmp_path / "real", events=1, days=0.01)


def test_what_cannot_be_served_says_so(tmp_path: Path) -> None:
    """An archive that cannot be read, and a key file that is no text, are refused before the service starts."""
    md.Archive(tmp_path / "torn").add(markets=MARKETS)
    for log in (tmp_path / "torn" / "markets" / "_delta_log").iterdir():
        log.write_text("{torn")
    with pytest.raises(ConfigError, match="torn' cannot be served: The commit log"):
        md.serve(md.Archive(tmp_path / "torn")).__enter__()
    (tmp_path / "keys.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        md.serve(MemoryArchive(), keys=tmp_path / "keys.toml").__enter__()


def test_a_market_without_times_needs_a_start() -> None:
    """Nothing says where its history begins, so nothing is guessed."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"}, start_date=None)
    archive.put("prices", "m", "1", START, 0.5)
    with md.serve(archive) as service, md.Client(service.base_url, service.api_key) as client:
        with pytest.raises(ConfigError, match="a market has no start date; give start="):
            client.prices("m")
        with pytest.raises(TypeError, match=r"Client\.iter_prices\(\): missing"):
            client.iter_prices()  # type: ignore[call-arg]


def test_a_cursor_of_a_record_that_is_gone_is_refused() -> None:
    """A listing does not begin anew in silence."""
    archive = MemoryArchive()
    for name in ("a", "b", "c"):
        archive.add_market(name, {"Yes": name})
    web = in_process(archive)
    cursor = web.get("/v1/markets", limit=1).body["metadata"]["next_cursor"]
    archive._records["markets"].clear()
    archive.put("prices", "a", "a", START, 0.5)
    assert web.get("/v1/markets", limit=1, cursor=cursor).status == 400


def test_a_stream_says_what_a_venue_answered_and_what_is_of_another_time() -> None:
    """An error of the venue and a message from the future end the connection; neither is a book."""
    channel = KalshiChannel.__new__(KalshiChannel)
    with pytest.raises(ValueError, match="error 8: unknown market"):
        channel.heads(b'{"type": "error", "msg": {"code": 8, "msg": "unknown market"}}', 0)
    late = {"type": "trade", "sid": 1, "seq": 1, "msg": {"market_ticker": "KXA-1", "ts": 2_000_000_000}}
    with pytest.raises(ValueError, match="from the future"):
        channel.heads(json.dumps(late).encode(), S * 1_000_000)


def test_raw_frames_need_a_folder_with_room(tmp_path: Path) -> None:
    """A file in the place of the folder is refused, and a full or missing disk is an error of the archive."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is no folder"):
        RawFiles(tmp_path / "file")
    for folder, is_begun in ((tmp_path / "file" / "below", False), (tmp_path / "raw", True)):
        files = RawFiles(folder)
        if is_begun:
            files.write(Event(1, "frame", S * 1_000_000, b"{}"))
            files._files[1].write = _no_room  # type: ignore[method-assign]
        with pytest.raises(md.errors.ArchiveFullError, match="What was committed before is intact"):
            files.write(Event(1, "frame", S * 1_000_000, b"{}"))


def _no_room(_line: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("missing", "call", "needs"),
    [
        ("websockets", lambda path: replay_server(md.Archive(path), None, None).__enter__(), "md.replay_server"),
        ("websockets", lambda _: Connections(PolymarketChannel("wss://127.0.0.1")), "archive.record"),
        ("mcp.server.mcpserver", lambda path: Server(md.Archive(path))._protocol(), "marketdata mcp"),
        ("cryptography.hazmat.primitives.serialization", lambda path: _private_key(str(path)), "The stream of kalshi"),
    ],
)
def test_what_is_not_installed_is_named(
    missing: str, call: Callable[[Path], Any], needs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which package is needed, and by which extra it is installed."""
    md.Archive(tmp_path / "a").add(markets=MARKETS, books=BOOKS)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{needs} needs .*the extra '.*pip install"):
        call(tmp_path / "a")
    assert not hasattr(md._NotInstalled(needs, missing, "all"), "_private")  # as inspection asks


def test_a_book_of_texts_that_are_none_is_left_out(tmp_path: Path) -> None:
    """Levels without a number, and texts that neither JSON nor Python wrote, are counted with their reason."""
    rows = ["ts,token_id,bids,asks", f'{S},1,"[[0.4, 9]]","[[0.6, 9]]"']
    rows += [f'{S + 60},1,"[[NaN, 9]]","[[0.6, 9]]"', f'{S + 120},1,"[[0.4, 9","[[0.6, 9]]"']
    (tmp_path / "a.csv").write_text("\n".join(rows))
    added = md.Archive(tmp_path / "archive", frame="polars").add_files(tmp_path / "a.csv").row(0, named=True)
    assert (added["rows"], added["left_out"]) == (3, 2)
