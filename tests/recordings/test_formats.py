"""Each format reads its sample, and the columns of a file prove its kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import all_formats, format_of
from marketdata.recordings.table import Table

SAMPLES = {path.stem: path for path in sorted((Path(__file__).parent / "samples").iterdir())}
START = 1_767_225_600


def test_every_format_has_a_sample() -> None:
    """A format is a module of the folder, and has a file among the samples."""
    assert SAMPLES.keys() == all_formats().keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_of_its_format_alone(name: str) -> None:
    """No other format fits as well, and no format that fits would store the rows as another kind."""
    table = Table(RecordingFile(SAMPLES[name]))
    assert format_of(table).name == name
    others = {other.kind for other in all_formats().values() if other.fits(table)}
    assert others <= {"books"} or len(others) == 1


@pytest.mark.parametrize("name", [n for n in SAMPLES if all_formats()[n].kind == "books"])
def test_every_sample_of_books_has_the_same_books(name: str, tmp_path: Path) -> None:
    """All samples tell of one book; where every change is recorded it is also the book of the minute between."""
    archive = md.Archive(tmp_path, frame="polars")
    report = archive.add_files(SAMPLES[name]).row(0, named=True)
    market = next(m for m in ("m", "7") if m in archive.coverage()["market_id"])
    best = md.bbo(archive.books(market)).filter(pl.col("token_label").fill_null("Yes") == "Yes")
    rows = [(ts.minute, *prices) for ts, *prices in best.select("ts", "best_bid", "best_ask").rows()]
    between = [(1, 0.48, 0.52)] if all_formats()[name].changes else []
    assert rows == [(0, 0.48, 0.52), *between, (2, 0.4, 0.52)]
    assert (report["format"], report["rows"]) == (name, report["stored"] + report["left_out"])


def test_samples_of_points_and_records_are_stored(tmp_path: Path) -> None:
    """Prices, metrics and records are stored as such; a token without a known market is its own market."""
    archive = md.Archive(tmp_path, frame="polars")
    names = ["markets", "events", "series", "prices", "metrics", "quotes"]
    report = archive.add_files([SAMPLES[name] for name in names])
    assert sorted(report["kind"]) == sorted(names)
    assert archive.prices("m")["price"].to_list() == [0.5, 0.46]
    archive.add_files(SAMPLES["wide-prices"])
    wide = archive.prices("wide-prices")
    assert wide.select("token_label", "price").rows() == [("Alice", 0.4), ("Alice", 0.5), ("Bob", 0.6)]
    assert archive.metrics("m")["volume"].to_list() == [5.0, 6.0]
    quotes = archive.quotes("m").select("best_bid", "best_bid_size", "best_ask", "mid").rows()
    assert quotes == [(0.49, 20.0, 0.51, 0.5), (None, None, 0.47, None)]
    market = archive.markets().row(0, named=True)
    assert (market["token_ids"], market["token_labels"]) == (["7", "8"], ["Yes", "No"])


def test_ids_of_ladders_are_derived(tmp_path: Path) -> None:
    """A set without ids has the slug as the market, and slug and outcome as the token, and its record says so."""
    archive = md.Archive(tmp_path, frame="polars")
    archive.add_files(SAMPLES["ladders"])
    market = archive.markets().row(0, named=True)
    assert (market["token_ids"], market["token_labels"], market["ids_are_derived"]) == (["m:Yes"], ["Yes"], True)
    assert market["resolved_token_id"] == "m:Yes"


def test_tokens_of_a_record_may_be_objects_or_numbered_columns(tmp_path: Path) -> None:
    """A token is ``{token_id, outcome}``, or columns with its number; its outcome is its label, or else its id."""
    market = {"id": "m", "question": "?", "condition_id": "m"}
    numbered = {**market, "outcome_0_token_id": "7", "outcome_0": "Yes"}
    objects = {**market, "tokens": [{"token_id": "7", "outcome": "Yes"}]}
    others = {"id": "m", "token_ids": ["7"], "token_labels": ["Yes", "No"]}
    for i, (record, label) in enumerate([(objects, "Yes"), (numbered, "Yes"), (others, "7")]):
        (path := tmp_path / f"{i}.json").write_text(json.dumps([record]))
        archive = md.Archive(tmp_path / f"archive-{i}", frame="polars")
        archive.add_files(path)
        assert archive.markets().select("market_id", "token_ids", "token_labels").row(0) == ("m", ["7"], [label])


def test_cells_of_several_shapes_are_read_one_by_one(tmp_path: Path) -> None:
    """A cell that no side of a book can be is damaged; pairs, a mapping and nothing are sides."""
    rows = [
        '{"ticker": "m", "ts": 1767225600, "yes_levels": [["0.41", "1"]], "no_levels": "x"}',
        '{"ticker": "m", "ts": 1767225660, "yes_levels": {"0.42": 3}, "no_levels": []}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    archive = md.Archive(tmp_path / "archive", frame="polars")
    assert archive.add_files(tmp_path / "rows.jsonl")["reasons"].to_list() == ["1 damaged"]
    assert archive.books("m").filter(token_label="Yes", side="bid")["price"].to_list() == [0.42]
    cells = ['{"buys": [[0.4, 1]], "asks": []}', '{"bids": 1}', "x"]
    columns = {"token_id": ["7"] * 3, "timestamp": [START] * 3, "book": cells}
    pl.DataFrame(columns).write_parquet(tmp_path / "books.parquet")
    assert archive.add_files(tmp_path / "books.parquet")["reasons"].to_list() == ["2 damaged"]
    assert archive.books("7").filter(side="bid")["price"].to_list() == [0.4]


def test_two_formats_that_fit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is two things is refused with their names, until one is chosen."""
    both = {**all_formats(), "others": replace(all_formats()["prices"], name="others")}
    monkeypatch.setattr("marketdata.recordings.format.all_formats", lambda: both)
    archive = md.Archive(tmp_path / "archive", frame="polars")
    with pytest.raises(md.errors.ConfigError, match=r"columns of prices and of others.*format="):
        archive.add_files(SAMPLES["prices"])
    with pytest.raises(md.errors.ConfigError, match="allowed are activity"):
        archive.add_files(SAMPLES["prices"], format="price")
    assert archive.add_files(SAMPLES["prices"], format="prices")["stored"].to_list() == [2]


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "prices"])
def test_a_format_that_is_named_checks_what_it_needs(tmp_path: Path, name: str) -> None:
    """A file is not read as a format whose columns or values it lacks, whatever ``format=`` says."""
    with pytest.raises(md.errors.ConfigError, match=f"is not of the format '{name}'"):
        md.Archive(tmp_path / "archive").add_files(SAMPLES["prices"], format=name)


STRANGERS: dict[str, tuple[dict[str, Any], str | None]] = {
    "prices under a name of events": ({"token_id": "7", "timestamp": START, "price": 0.5, "event_slug": "e"}, "prices"),
    "short names": ({"t": START, "asset_id": "7", "price": 0.5}, "prices"),
    "trades of an event": (
        {"trade_id": 1, "timestamp": START, "market_id": "m", "event_id": "e", "prediction_id": "p", "price": 0.5,
         "quantity": 2},
        None,
    ),
    "trades": ({"timestamp": START, "asset_id": "7", "price": 0.5, "size": 2, "side": "BUY"}, "trades"),
    "one side of quotes": ({"timestamp": START, "token_id": "7", "price": 0.5, "side": "bid"}, None),
    "numbered tokens": (
        {"market_id": "m", "question": "?", "outcome_0_token_id": "7", "outcome_1_token_id": "8"}, "markets",
    ),
    "tokens as JSON": ({"condition_id": "m", "question": "?", "token_ids_json": '["7", "8"]'}, "markets"),
    "asset ids": ({"market_id": "m", "slug": "s", "asset_ids": ["7", "8"]}, "markets"),
    "candles": (
        {"timestamp": START, "market_id": "m", "open": 0.4, "high": 0.5, "low": 0.3, "close": 0.4, "volume": 5}, None,
    ),
    "positions": ({"wallet": "0x", "token_id": "7", "size": 5.0, "avg_price": 0.4}, None),
    "quotes": ({"timestamp": START, "market_id": "m", "best_bid": 0.4, "best_ask": 0.5, "spread": 0.1}, None),
    "top levels": (
        {"timestamp": START, "asset_id": "7", "bids_top5": "[[0.4, 1]]", "asks_top5": "[[0.5, 1]]"}, "snapshots",
    ),
    "events with times": ({"event_id": "e", "title": "t", "timestamp": START}, None),
    "orders": (
        {"order_id": "o", "asset_id": "7", "created_at": START, "price": 0.4, "size": 1, "order_type": "GTC"}, None,
    ),
    "camel case": ({"conditionId": "m", "clobTokenIds": '["7","8"]', "question": "?"}, "markets"),
}  # fmt: skip


def test_a_table_is_of_the_kind_that_its_columns_prove(tmp_path: Path) -> None:
    """A name says nothing; a table that proves no kind is refused with its columns and what is needed."""
    for row, kind in STRANGERS.values():
        pl.DataFrame([row]).write_parquet(tmp_path / "events.parquet")
        pl.DataFrame([{k: str(v).replace("'", '"') for k, v in row.items()}]).write_csv(tmp_path / "events.csv")
        for file in [Table(RecordingFile(path)) for path in tmp_path.iterdir()]:
            if kind is None:
                with pytest.raises(md.errors.ConfigError, match=r"fits no known format"):
                    format_of(file)
            else:
                assert kind in (format_of(file).kind, format_of(file).name)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from([
            "timestamp", "ts", "created_at", "token_id", "asset_id", "market_id", "condition_id", "event_id",
            "event_slug",
            "title", "question", "slug", "side", "price", "size", "volume", "level", "outcome", "token_ids", "bids",
            "asks", "trade_id", "best_bid", "spread", "fee", "user", "is_snapshot", "end_date", "name",
        ]),
        min_size=1, max_size=12, unique=True,
    ),
)  # fmt: skip
def test_no_table_is_stored_as_a_wrong_kind(tmp_path_factory: Any, names: list[str]) -> None:
    """Whatever the columns: records have no times, tokens, prices or trades, and points have what they need."""
    path = tmp_path_factory.mktemp("table") / "events.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    try:
        kind = format_of(Table(RecordingFile(path))).kind
    except md.errors.ConfigError:
        return
    present = set(names)
    if kind in ("markets", "events", "series"):
        assert not present & {"timestamp", "ts", "token_id", "asset_id", "price", "side", "size", "trade_id", "bids"}
    elif kind in ("prices", "metrics", "quotes"):
        assert present & {"timestamp", "ts"}
        assert not present & {"side", "size", "trade_id", "level"}
        assert {"prices": {"price"}, "metrics": {"volume", "spread"}, "quotes": {"best_bid"}}[kind] & present
    elif kind == "trades":
        assert present >= {"price", "size"}
        assert present & {"token_id", "asset_id", "outcome"}
    else:
        assert {"bids", "asks"} <= present or {"side", "price", "size"} <= present


def test_columns_are_renamed_and_checked(tmp_path: Path) -> None:
    """`columns=` names a column; a name that is not ours, or not in the file, is refused with the nearest one."""
    path = tmp_path / "p.csv"
    path.write_text(f"when,asset,p,ts\n{START},7,0.5,x\n")
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add_files(path, columns={"ts": "when", "token_id": "asset", "price": "p"})
    assert archive.prices("7")["price"].to_list() == [0.5]
    with pytest.raises(md.errors.ConfigError, match=r"'token', which is no column of ours; did you mean 'token_id'"):
        archive.add_files(path, columns={"token": "asset"})
    with pytest.raises(md.errors.ConfigError, match=r"no column 'when_'; did you mean 'when'"):
        archive.add_files(path, columns={"ts": "when_"})


def test_a_file_that_is_not_compressed_is_named(tmp_path: Path) -> None:
    """Plain text under the name of a compressed file is refused with what to do."""
    for end in ("csv.gz", "csv.zst", "jsonl.gz"):
        (path := tmp_path / f"prices.{end}").write_text("token_id,timestamp,price\n7,1767225600,0.5\n")
        with pytest.raises(md.errors.ConfigError, match=f"{path.name}.* not compressed"):
            md.Archive(tmp_path / "archive").add_files(path)


def test_the_guide_has_the_table_of_formats() -> None:
    """The table in the repository is the one that the formats give: run docs/recording_formats.py."""
    docs = Path(__file__).parents[2] / "docs"
    path = docs / "recording_formats.py"
    module: dict[str, Any] = {"__name__": "recording_formats", "__file__": str(path)}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module)
    assert module["guide"]() == module["GUIDE"].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_row_of_a_sample_is_stored_or_counted(name: str, tmp_path: Path) -> None:
    """A new format needs its sample alone: what it stores is in the archive, and its trades are read.

    Those of books are all stored by another test.
    """
    chosen = all_formats()[name]
    if chosen.trades is not None:
        assert len(md.read_trades(SAMPLES[name], frame="polars"))
    if chosen.kind in ("trades", "books"):
        return
    report = md.Archive(tmp_path, frame="polars").add_files(SAMPLES[name]).row(0, named=True)
    assert (report["format"], report["rows"]) == (name, report["stored"] + report["left_out"])
    assert report["stored"]
