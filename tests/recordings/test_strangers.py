"""Files that people have are read as what they are, and every row is stored or left out for a reason."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.strangers import MARKET, OTHERS, REFUSED, TEXTS, TICKER, TRADES, VALUES, S, T

import marketdata as md
from marketdata.errors import ConfigError, NotTidyError, PartialCoverageWarning, RecordingWarning
from marketdata.recordings.explain import explained
from marketdata.recordings.files import ReadOptions, RecordingFile
from marketdata.recordings.format import format_of
from marketdata.recordings.table import Table

_AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CASES = Path(__file__).parents[3] / "shared" / "cases"
# Kinds, stored and left out rows of the files of the collection; trades have their number instead.
WANTED: dict[str, tuple[str, int, int]] = {
    "bbo_collector.csv": ("quotes", 1, 0), "daily.csv": ("prices", 2000, 0),
    "markets_with_bucket.csv": ("markets", 2, 0), "one_market_without_id.json": ("markets", 1, 1),
    "candles_marcel.csv": ("prices", 2, 0), "cents_levels.csv": ("books", 6, 0),
    "clob_markets_list.json": ("markets", 1, 0), "clob_markets_page.json": ("markets", 1, 0),
    "dome_orderbooks.json": ("books", 1, 0), "gamma_events.json": ("events, markets", 1, 0),
    "gamma_markets.json": ("markets", 1, 0), "kalshi_candles.json": ("prices, quotes, metrics", 3, 0),
    "kalshi_markets.json": ("markets", 1, 0), "kalshi_ws.jsonl": ("books", 2, 1), "level_times.csv": ("books", 8, 0),
    "ligeng_book.jsonl": ("books", 1, 0), "mixed_units.csv": ("prices", 3, 2), "mkt_slug.csv": ("prices", 2, 0),
    "nan_mid.jsonl": ("books", 2, 0), "pmxt_v1.parquet": ("books", 2, 0), "poly_markets_v1.csv": ("markets", 1, 0),
    "price_history_utc.csv": ("prices", 2, 0), "py_bool_markets.csv": ("markets", 2, 0),
    "quotes_as_records.csv": ("quotes", 3, 0), "semicolon.csv": ("prices", 1, 0),
    "telonex_full.parquet": ("books", 1, 0),
    "utf16.csv": ("prices", 1, 0), "wrong_unit_meta.parquet": ("prices", 3, 0), "zero_time.csv": ("prices", 3, 1),
}  # fmt: skip
TRADES_OF_CASES = {"activity.json": 1, "becker_kalshi_trades.parquet": 1, "dup_prints.jsonl": 1, "fills_v2.csv": 1,
                   "kalshi_trades.csv": 2, "kalshi_trades.json": 2, "poly_trades.csv": 1}  # fmt: skip


def stored(path: Path, archive: md.Archive[Any]) -> tuple[str, int, int]:
    """The kinds of a file, and how many rows were stored and left out."""
    row = archive.add_files(path).row(0, named=True)
    assert row["rows"] == row["stored"] + row["left_out"]
    return row["kind"], row["stored"], row["left_out"]


@pytest.mark.filterwarnings("ignore:1 tokens are in two markets")
def test_files_of_strangers_are_what_they_are(tmp_path: Path) -> None:
    """Each shape becomes its kinds; wrong rows are left out, and the others are stored."""
    shared = md.Archive(tmp_path / "archive", frame="polars")
    for name, (text, *wanted) in TEXTS.items():
        (path := tmp_path / name).write_text(text)
        assert stored(path, shared) == tuple(wanted), name
    for name, write in OTHERS.items():
        archive = md.Archive(tmp_path / f"of-{name}", frame="polars")
        archive.add_files(write(tmp_path))
        market = archive.markets()["market_id"][0]
        assert archive.prices(str(market))["price"].to_list() == [0.5 if name == "hive" else 0.6]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
def test_values_of_strangers_are_what_they_say(tmp_path: Path, name: str) -> None:
    """Signs, separators, offsets and nested cells are read as a person reads them."""
    text, kind, columns, wanted = VALUES[name]
    (path := tmp_path / name).write_text(text)
    archive = md.Archive(tmp_path / "archive", frame="polars")
    assert archive.add_files(path)["left_out"].to_list() == [0]
    rows = getattr(archive, kind)()
    rows = rows.sort([n for n in ("market_id", "token_id", "ts") if n in rows.columns], maintain_order=True)
    assert [tuple(row) for row in rows.select(columns).rows()] == [
        tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in wanted
    ]


@pytest.mark.filterwarnings("ignore::marketdata.errors.RecordingWarning")
@pytest.mark.parametrize("name", TRADES)
def test_trades_of_strangers_are_trades(tmp_path: Path, name: str) -> None:
    """A bad row is left out; cents and dollars are probabilities, and the taker's side is the side."""
    text, wanted = TRADES[name]
    (path := tmp_path / name).write_text(text)
    assert md.read_trades(path, frame="polars").select("side", "price", "size").rows() == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_is_in_the_way(tmp_path: Path, name: str) -> None:
    """Ids that lost digits, rows about accounts, and ambiguous dates are refused in at most six lines."""
    text, match = REFUSED[name]
    (path := tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=match) as problem:
        md.Archive(tmp_path / "archive").add_files(path)
    assert len(str(problem.value).splitlines()) <= 6


@pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
def test_a_market_can_be_given_for_prices_of_both_outcomes(tmp_path: Path) -> None:
    """A file of one market that does not say which is read with its id."""
    (path := tmp_path / "up_or_down.csv").write_text(f"recv_ts_ms,up_bid,up_ask\n{S}000,.4,.5\n")
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add_files(path, token_id="btc-5m")
    quotes = archive.quotes().select("market_id", "token_label", "best_bid", "best_ask").sort("token_label")
    assert quotes.rows() == [("btc-5m", "Down", 0.5, 0.6), ("btc-5m", "Up", 0.4, 0.5)]


@pytest.mark.parametrize("level", ["[[0.4, -5]]", "[[1.4, 5]]"])
def test_a_side_of_impossible_levels_is_not_an_empty_side(tmp_path: Path, level: str) -> None:
    """A book with a side of such levels only is left out and counted; the others of the file are stored."""
    (path := tmp_path / "books.csv").write_text(
        f'ts,token_id,bids,asks\n{S},{T},"[[0.4, 5]]","[[0.5, 4]]"\n{S + 60},{T},"{level}","[[0.5, 4]]"\n'
        f'{S + 120},{T},"[]","[[0.5, 4]]"\n'
    )
    archive = md.Archive(tmp_path / "archive", frame="polars")
    report = archive.add_files(path)
    assert report.select("stored", "left_out", "reasons").rows() == [
        (2, 1, "1 price outside of 0 to 1 or size below 0")
    ]
    sizes = md.bbo(archive.books(on_missing="partial"))
    assert sizes.select("best_bid", "best_ask").rows() == [(0.4, 0.5), (None, 0.5)]


@pytest.mark.parametrize("name", ["Unnamed: 0", ""])
def test_an_index_of_pandas_is_the_time_or_nothing(tmp_path: Path, name: str) -> None:
    """An index without a name is the time where it has times, and no column of numbers otherwise."""
    (path := tmp_path / "times.csv").write_text(f"{name},token_id,price\n2026-01-01T00:00:00Z,{T},.4\n")
    archive = md.Archive(tmp_path / "archive", frame="polars")
    assert archive.add_files(path)["start"].to_list() == [_AT]
    (path := tmp_path / "numbers.csv").write_text(f"{name},ts,token_id,price\n0,{S + 60},{T},.4\n1,{S + 120},{T},.4\n")
    archive.add_files(path)
    (path := tmp_path / "date=2026-01-02" / "dated.csv").parent.mkdir()
    path.write_text(f"{name},token_id,price\n0,{T},.4\n")
    assert archive.add_files(path)["start"].to_list() == [_AT + dt.timedelta(days=1)]
    assert archive.prices(on_missing="partial").columns == ["ts", "market_id", "token_id", "token_label", "price"]


def test_books_whose_bids_are_above_their_asks_are_refused(tmp_path: Path) -> None:
    """Sides that are called the other way round are no books, unless the caller takes all."""
    rows = "".join(f"{S + 60 * i},{T},bid,.6,1\n{S + 60 * i},{T},ask,.4,1\n" for i in range(3))
    (path := tmp_path / "levels.csv").write_text(f"ts,token_id,side,price,size\n{rows}")
    with pytest.raises(NotTidyError, match="a bid is above an ask in 3 of 3 books"):
        md.Archive(tmp_path / "archive").add_files(path)
    assert md.Archive(tmp_path / "all").add_files(path, max_disagreement=1)["stored"].tolist() == [6]


@pytest.mark.skipif(not CASES.is_dir(), reason="the collection of files lies beside the repository")
@pytest.mark.filterwarnings("ignore::marketdata.errors.RecordingWarning")
@pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
def test_files_of_the_collection_are_what_they_are(tmp_path: Path) -> None:
    """Every file of the collection is read as wanted, or refused in at most six lines."""
    for name, wanted in WANTED.items():
        assert stored(CASES / name, md.Archive(tmp_path / name, frame="polars")) == wanted, name
    for name, count in TRADES_OF_CASES.items():
        trades = md.read_trades(CASES / name, frame="polars")
        assert len(trades) == count, name
        assert trades["price"].is_between(0, 1).all()
    # What a file does not say is asked for by name.
    for name, options in (("prices_history.json", {}), ("kalshi_orderbook.json", {"clock": "modified"})):
        with pytest.raises(ConfigError, match=r"token_id='TOKEN'") as problem:
            md.Archive(tmp_path / "none").add_files(CASES / name, **options)
        assert len(str(problem.value).splitlines()) <= 6
        given = md.Archive(tmp_path / name, frame="polars")
        given.add_files(CASES / name, token_id="KXA-1", **options)
        points = given.prices("KXA-1") if "prices" in name else md.bbo(given.books("KXA-1"))
        assert set(points.columns) >= {"price"} or points["best_ask"].to_list() == [0.59, 0.44]


@pytest.mark.skipif(not CASES.is_dir(), reason="the collection of files lies beside the repository")
def test_many_markets_are_one_warning(tmp_path: Path) -> None:
    """An import of fifty markets and a read of them warn once each, with the number of markets."""
    archive = md.Archive(tmp_path / "archive", frame="polars")
    with pytest.warns(PartialCoverageWarning) as warned:
        archive.add_files(CASES / "daily.csv")
    assert len(warned) == 1
    with pytest.warns(PartialCoverageWarning, match="50 of 50 markets") as warned:
        archive.prices(archive.coverage()["market_id"].to_list())
    assert len(warned) == 1


def test_a_wrong_row_among_few_is_named(tmp_path: Path) -> None:
    """It is left out with its number and its reason, and the others are stored."""
    path = tmp_path / "few.csv"
    path.write_text(f"timestamp,token_id,price\n{S},{T},.5\n{S + 60},{T},1.7\n{S + 120},{T},n/a\nsoon,{T},.5\n")
    row = md.Archive(tmp_path / "archive", frame="polars").add_files(path).row(0, named=True)
    assert (row["rows"], row["stored"], row["left_out"]) == (4, 1, 3)
    for text in ("outside of 0 to 1, such as row 2", "price is no number, such as row 3", "time, such as row 4"):
        assert text in row["note"]


def test_winners_are_known_after_an_import_of_records(tmp_path: Path) -> None:
    """`outcomes`, `brier` and `calibration` run on records of each venue without a further step."""
    archive = md.Archive(tmp_path / "archive", frame="polars")
    for name in ("gamma_of_pandas.csv", "kalshi_list.json"):
        (path := tmp_path / name).write_text(TEXTS[name][0])
        archive.add_files(path)
    payoffs = md.outcomes(archive.markets()).group_by("market_id").agg("payoff")
    assert sorted(payoffs["payoff"].to_list()) == [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    (path := tmp_path / "prices.csv").write_text(f"timestamp,token_id,price\n{S},{T},.8\n{S},{TICKER}:yes,.3\n")
    archive.add_files(path)
    prices = archive.prices([MARKET, TICKER])
    assert sorted(md.brier(prices, archive.markets(), interval=None)["brier"]) == pytest.approx([0.2**2, 0.3**2])
    assert md.calibration(prices, archive.markets(), interval=None)["points"].sum() == 2


def test_a_path_may_begin_at_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``~`` is read as a shell reads it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "p.csv").write_text(f"timestamp,token_id,price\n{S},{T},.5\n")
    assert stored(Path("~/p.csv"), md.Archive(tmp_path / "archive", frame="polars")) == ("prices", 1, 0)


def test_a_print_in_two_files_counts_once(tmp_path: Path) -> None:
    """The count of those recorded twice is said."""
    text, wanted = TRADES["dollars.jsonl"]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(text)
    with pytest.warns(RecordingWarning, match="2 recorded twice"):
        assert len(md.read_trades(tmp_path, frame="polars")) == len(wanted)


def test_explain_says_roles_evidence_and_rows(tmp_path: Path) -> None:
    """A column that is not what its name says is named with its values, and nothing is stored."""
    (path := tmp_path / "coins.csv").write_text(f"timestamp,asset,price,token_id\n{S},btc,0.5,7\n")
    ((text, _),) = explained([str(path)], ReadOptions())
    assert "timestamp is ts" in text
    assert "prices, the first rows as stored" in text
    (path := tmp_path / "none.csv").write_text(f"timestamp,asset,price\n{S},btc,0.5\n")
    ((text, _),) = explained([str(path)], ReadOptions())
    assert "asset is no token_id" in text
    assert "token_id=" in text


_VALUES = {
    "times": [str(S), str(S + 60)], "ids": ["7" * 30, "8" * 30], "words": ["politics", "sports"],
    "prices": ["0.4", "0.55"], "sizes": ["10", "2500"], "sides": ["bid", "ask"], "trades": ["BUY", "SELL"],
    "flags": ["True", "False"], "lists": ["[[0.4, 1]]", "[]"], "nothing": ["", ""],
}  # fmt: skip
_NAMES = ["timestamp", "ts", "bucket", "token_id", "asset", "price", "size", "side", "bids", "asks", "best_bid",
          "best_ask", "level", "is_snapshot", "close", "yes_bid", "yes_ask", "market_id", "volume", "question",
          "outcome"]  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(sorted(_VALUES)), min_size=2, max_size=9))
def test_no_file_is_of_a_kind_that_its_values_deny(tmp_path: Path, drawn: dict[str, str]) -> None:
    """Whatever the names: a history has times, its prices are numbers, its sides are sides, and books have levels."""
    path = tmp_path / "drawn.csv"
    pl.DataFrame({name: _VALUES[values] for name, values in drawn.items()}).write_csv(path)
    table = Table(RecordingFile(path))
    try:
        chosen = format_of(table)
    except ConfigError:
        return
    of: dict[str, Any] = {role: drawn.get(column) for role, column in table.columns.items()}
    if chosen.kind in ("prices", "quotes", "books", "metrics", "trades"):
        assert of["ts"] in ("times", "nothing")
        for role in ("price", "best_bid", "best_ask", "size"):
            assert of.get(role) in (None, "times", "ids", "prices", "sizes", "nothing")
        assert of.get("side") in (None, "sides", "trades", "nothing")
    if chosen.name == "snapshots":
        assert {of["bids"], of["asks"]} <= {"lists", "nothing"}
    if chosen.kind == "markets":
        assert not {"price", "side", "bids", "is_snapshot"} & of.keys() or "state" in of or "token_ids" in of


def test_explain_shows_each_shape(tmp_path: Path) -> None:
    """Whatever a file is, its format and the first rows are shown, also of prints alone."""
    texts = {**{name: text for name, (text, *_) in TEXTS.items()}, **{name: text for name, (text, _) in TRADES.items()}}
    texts["prints.jsonl"] = (
        f'{{"event_type":"last_trade_price","asset_id":"{T}","price":".5","size":"1","side":"BUY","timestamp":"{S}"}}'
    )
    for name, text in texts.items():
        (path := tmp_path / name).write_text(text)
        ((shown, _),) = explained([str(path)], ReadOptions())
        assert "shape: (" in shown, shown
        assert ("md.read_trades" in shown.splitlines()[-1]) == (name in TRADES or name == "prints.jsonl")
        assert "left out of its first part: 0" not in shown
