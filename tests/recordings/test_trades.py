"""Trade prints of recordings, one row each, and what they cost."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from cli.run import marketdata
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings.shapes import EVENTS, MARKET, START, YES, event_file, lines, trade
from reference.markets import in_kind

import marketdata as md
from marketdata.cli.messages import in_shell
from marketdata.errors import ConfigError, NotTidyError, RecordingWarning
from marketdata.points.schema import TRADES

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("name", ["trades.csv", "fills.csv"])
def test_a_trade_is_one_row(name: str) -> None:
    """A taker's own leg on chain repeats its makers' legs and is left out."""
    trades = md.read_trades(SAMPLES / name, frame="polars")
    parties = ["maker", "taker"] if name == "fills.csv" else []
    assert trades.columns == [*TRADES, "transaction_hash", *parties]
    assert trades.select("side", "price", "size").rows() == [("buy", 0.52, 3.0), ("sell", 0.4, 2.0)]
    assert trades["ts"].dt.epoch("s").to_list() == [START // 1000, START // 1000 + 125]


@pytest.mark.parametrize("write", [lines, event_file])
def test_trades_are_found_among_the_messages_of_a_recording(tmp_path: Path, write: Any) -> None:
    """Books and changes are no trades."""
    path = write(tmp_path / f"feed.{'jsonl' if write is lines else 'parquet'}", EVENTS)
    trades = md.read_trades(path, frame="polars")
    assert trades.drop("ts", "token_label", "transaction_hash", strict=False).rows() == [(MARKET, YES, "buy", 0.5, 3.0)]
    assert md.read_trades(path)["side"].tolist() == ["buy"]


def test_roles_tell_the_legs_of_a_fill(tmp_path: Path) -> None:
    """The makers' legs of a transaction are its prints, and the taker's leg is left out."""
    rows = {
        "tx_hash": ["a", "a", "a", "b"], "trader_side": ["TAKER", "MAKER", "MAKER", "TAKER"], "timestamp": [START] * 4,
        "asset_id": ["7"] * 4, "side": ["buy"] * 4, "price": [0.5, 0.4, 0.6, 0.3], "size": [2.0, 1.0, 1.0, 9.0],
    }  # fmt: skip
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    assert md.read_trades(tmp_path / "a.parquet", frame="polars")["size"].to_list() == [1.0, 1.0, 9.0]


def test_what_is_no_trade_is_named(tmp_path: Path) -> None:
    """Rows that cannot be trades are counted; a file without trades is an error, or in a folder a warning."""
    (tmp_path / "a.csv").write_text(f"timestamp,asset_id,side,price,size\n{START},7,BUY,1.5,1\n{START},7,BUY,.5,1\n")
    with pytest.warns(RecordingWarning, match="1 price outside of 0 to 1, or no size"):
        assert len(md.read_trades(tmp_path / "a.csv")) == 1
    with pytest.raises(ConfigError, match=r"'prices.csv' has prices .*, and no trades"):
        md.read_trades(SAMPLES / "prices.csv")
    (tmp_path / "in").mkdir()
    lines(tmp_path / "in" / "a.jsonl", [trade(0), {"event_type": "last_trade_price", "price": "x"}])
    (tmp_path / "in" / "b.csv").write_text("a,b\n1,2\n")
    with pytest.warns(RecordingWarning) as warned:
        assert len(md.read_trades(tmp_path / "in")) == 1
    assert {str(w.message).split()[0] for w in warned} == {"Left", "Rows"}


MOMENTS = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(["buy", "sell", None]), st.integers(1, 99), st.integers(1, 9)),
    min_size=1,
    max_size=20,
)


@settings(max_examples=6, deadline=None)
@given(MOMENTS, st.sampled_from(["pandas", "polars", "lazy", "arrow"]))
def test_effective_spread_and_vwap_equal_a_loop(moments: list[tuple[int, Any, int, int]], kind: str) -> None:
    """The mid comes from the last book whose bucket ended before the trade."""
    books = md.testing.books("polars", buckets=4)
    token, start = books["token_id"][0], books["ts"].min()
    trades = pl.DataFrame(
        [(second, side, price / 100, float(size)) for second, side, price, size in moments],
        schema={"second": pl.Int64, "side": pl.String, "price": pl.Float64, "size": pl.Float64},
        orient="row",
    ).select(
        ts=start + pl.duration(seconds="second"), market_id=pl.lit(str(books["market_id"][0])),
        token_id=pl.lit(str(token)), side="side", price="price", size="size",
    )  # fmt: skip
    mids = dict(md.mid(books).filter(pl.col("token_id") == token).select("ts", "mid").rows())
    spreads = []
    for ts, side, price in trades.sort("ts", maintain_order=True).select("ts", "side", "price").rows():
        known = [mid for at, mid in mids.items() if at + pl.Series([60_000_000]).cast(pl.Duration("us"))[0] < ts]
        value = 2 * (price - known[-1]) * (1 if side == "buy" else -1) if known and side else None
        spreads.append(value)
    given: Any = in_kind(trades, kind)
    result, averages = (
        frame.collect() if isinstance(frame, pl.LazyFrame) else pl.DataFrame(frame)
        for frame in (md.effective_spread(given, in_kind(books, kind), width="1m"), md.vwap(given, "1m"))
    )
    assert result["effective_spread"].fill_nan(None).to_list() == pytest.approx(spreads)
    groups: dict[int, list[tuple[float, float]]] = {}
    for second, _, price, size in moments:
        groups.setdefault(second // 60, []).append((price / 100, size))
    loop = [
        (sum(p * s for p, s in g) / sum(s for _, s in g), sum(s for _, s in g), len(g))
        for _, g in sorted(groups.items())
    ]
    assert averages.select("vwap", "size", "trades").rows() == [pytest.approx(row) for row in loop]


def test_another_side_is_refused() -> None:
    """The side of a trade is what the taker did."""
    books = md.testing.books("polars")
    trades = md.bbo(books).select("ts", "market_id", "token_id", side=pl.lit("bid"), price="mid")
    with pytest.raises(NotTidyError, match="side of a trade is buy or sell"):
        md.effective_spread(trades, books, width="1m")


def test_an_average_of_trades_refuses_levels_of_books() -> None:
    """A frame of books is no frame of trades."""
    with pytest.raises(md.errors.NotTidyError, match="takes trades"):
        md.vwap(md.testing.books(), "1m")


_LEGS = "timestamp,tx_hash,market_id,asset_id,side,price,size\n"


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        # Several makers against one taker, who sold.
        ([("7", "BUY", 0.6, 60), ("7", "BUY", 0.59, 40), ("7", "SELL", 0.596, 100)], [("sell", 60.0), ("sell", 40.0)]),
        # One against one: who took is not known.
        ([("7", "BUY", 0.6, 10), ("7", "SELL", 0.6, 10)], [(None, 10.0)]),
        # A buyer of the one outcome against a seller of it and a buyer of the other one.
        ([("7", "BUY", 0.6, 100), ("7", "SELL", 0.6, 60), ("8", "BUY", 0.4, 40)], [("buy", 100.0)]),
        # Sizes that do not add up are fills of their own.
        ([("7", "BUY", 0.6, 100), ("7", "SELL", 0.6, 60)], [("buy", 100.0), ("sell", 60.0)]),
    ],
)
def test_both_sides_of_a_transaction_are_one_fill(tmp_path: Path, rows: Any, wanted: Any) -> None:
    """Where the sizes of both sides add up to the same, one side counts, with what the taker did."""
    lines = "".join(f"1780000000,0x1,m,{token},{side},{price},{size}\n" for token, side, price, size in rows)
    (path := tmp_path / "legs.csv").write_text(_LEGS + lines)
    assert md.read_trades(path, frame="polars").select("side", "size").rows() == wanted


def test_two_logs_are_two_fills(tmp_path: Path) -> None:
    """Equal fills of one transaction differ by their log, and the last log is the taker's own leg."""
    rows = [(5, "BUY", 250), (9, "BUY", 250), (11, "SELL", 500)]
    lines = "".join(f"1780000000,0x1,{log},7,{side},.59,{size}\n" for log, side, size in rows)
    (path := tmp_path / "logs.csv").write_text("timestamp,tx_hash,log_index,asset_id,side,price,size\n" + lines)
    assert md.read_trades(path, frame="polars").select("side", "size").rows() == [("sell", 250.0)] * 2


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_frame_is_named_as_no_file(kind: Any) -> None:
    """A frame in the place of a path is refused as what it is, alone and in a list."""
    frame = md.testing.prices(kind)
    for passed in (frame, [frame], *([frame.lazy()] if kind == "polars" else [])):
        with pytest.raises(md.errors.ConfigError, match=f"paths has a {kind} .*Frame, which is no file"):
            md.read_trades(passed)


WORDS = [("1", "-1"), ("LONG", "SHORT"), ("0", "1"), ("1.0", "-1.0"), ("up", "down"), ("taker", "maker")]


def sided(path: Path, words: tuple[str, ...]) -> Path:
    """A table of twelve trades with these words for their sides, in turn."""
    rows = [f"{START // 1000 + 60 * k},m,{YES},{words[k % len(words)]},0.4,{1 + k},t{k}" for k in range(12)]
    path.write_text("\n".join(["ts,market_id,token_id,side,price,size,trade_id", *rows]))
    return path


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_words_for_a_side_that_may_mean_anything_are_asked_for(tmp_path: Path, words: tuple[str, str]) -> None:
    """They are never null in silence, and what the message says is enough, in Python and in the shell."""
    path = sided(tmp_path / "trades.csv", words)
    with pytest.raises(ConfigError, match="say what they mean") as problem:
        md.read_trades(path)
    with pytest.raises(ConfigError, match="say what they mean"):
        md.Archive(tmp_path / "a").add_files(path)
    said = ast.literal_eval(re.search(r"sides=(\{[^}]+\})", str(problem.value))[1])  # type: ignore[index]
    named = [word.lower().removesuffix(".0") for word in words]
    assert {*said} == {*named}
    expected = [said[named[k % 2]] for k in range(12)]
    assert md.read_trades(path, sides=said)["side"].tolist() == expected
    archive = md.Archive(tmp_path / "a", frame="polars")
    archive.add_files(path, sides=said)
    assert archive.trades()["side"].to_list() == expected
    shell = in_shell(str(problem.value))
    option = shlex.split(re.search(r"--sides \S+", shell)[0].rstrip("."))  # type: ignore[index]
    imported = marketdata("import", "b", path.name, *option, cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr
    assert md.Archive(tmp_path / "b", frame="polars").trades()["side"].to_list() == expected
    assert md.read_trades(path, sides={}, frame="polars")["side"].null_count() == 12


def test_some_words_that_are_no_side_are_said(tmp_path: Path) -> None:
    """They are null, with a warning or a note; nothing, in any form, is no side. A wrong name is refused."""
    path = sided(tmp_path / "trades.csv", ("BUY", "Sell ", "hold"))
    with pytest.warns(RecordingWarning, match="4 sides are no word for buy or sell and are null, such as 'hold'"):
        assert md.read_trades(path, frame="polars")["side"].to_list()[:3] == ["buy", "sell", None]
    assert "4 sides" in md.Archive(tmp_path / "a").add_files(path)["note"][0]
    nothing = md.read_trades(sided(tmp_path / "none.csv", ("", "unknown", "NaN")), frame="polars")
    assert nothing["side"].null_count() == 12
    with pytest.raises(ConfigError, match="names no word of side"):
        md.read_trades(path, sides={"x": "buy"})
    with pytest.raises(ConfigError, match="is no dict"):
        md.read_trades(path, sides={"hold": "hold"})


def test_one_token_of_yes_and_no_is_refused(tmp_path: Path) -> None:
    """A side of Yes and No beside one token says two things of it."""
    with pytest.raises(ConfigError, match="is called No and Yes"):
        md.read_trades(sided(tmp_path / "trades.csv", ("yes", "no")))
