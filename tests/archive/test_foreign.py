"""Frames that this library did not write, into an archive and back."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.errors import ArchiveCorruptError, ArchiveError, NotTidyError

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LEVELS = [("ask", 0, 0.6, 5.0), ("ask", 1, 0.7, 6.0), ("bid", 0, 0.5, 1.0), ("bid", 1, 0.4, 2.0)]


def rows(minutes: int = 3) -> pl.DataFrame:
    """Books of two tokens, asks first and newest first."""
    return pl.DataFrame(
        [
            {"ts": T0 + dt.timedelta(minutes=n), "market_id": "m", "token_id": token, "token_label": label,
             "side": side, "level": level, "price": price, "size": size + n}
            for n in reversed(range(minutes)) for token, label in (("2", "No"), ("1", "Yes"))
            for side, level, price, size in LEVELS
        ]
    )  # fmt: skip


KINDS: dict[str, Any] = {
    "polars": lambda df: df,
    "lazy": lambda df: df.lazy(),
    "pandas": lambda df: df.to_pandas(),
    "pandas objects": lambda df: df.to_pandas().astype({"side": object, "token_id": object}),
    "pandas naive": lambda df: df.to_pandas().assign(ts=lambda f: f["ts"].dt.tz_localize(None)),
    "pandas other zone": lambda df: df.to_pandas().assign(ts=lambda f: f["ts"].dt.tz_convert("Asia/Kolkata")),
    "pandas ns": lambda df: df.to_pandas().assign(ts=lambda f: f["ts"].dt.as_unit("ns")),
    "arrow": lambda df: df.to_arrow(),
    "arrow chunks": lambda df: pa.concat_tables([df[i : i + 5].to_arrow() for i in range(0, df.height, 5)]),
    "shuffled": lambda df: df.sample(fraction=1, shuffle=True, seed=3),
    "doubled rows": lambda df: pl.concat([df, df]),
    "further columns": lambda df: df.with_columns(note=pl.lit("x")),
}


def test_a_column_of_another_program_is_named(archive: Archive) -> None:
    """A text beside the numbers is an ArchiveError that names the column, of reads and of compact, and no damage."""
    from deltalake import DeltaTable, write_deltalake

    prices = rows().filter(side="bid", level=0).drop("side", "level", "size")
    for half in (prices[:3], prices[3:]):
        archive.add(prices=half)
    table = f"{archive.location}/prices"
    found = pa.table(DeltaTable(table).to_pyarrow_table()).slice(0, 2)
    write_deltalake(table, found.append_column("note", pa.array(["x", "y"])), mode="append", schema_mode="merge")
    fresh = Archive(archive.location, frame="polars")
    for verb in (lambda: fresh.prices("m"), fresh.compact):
        with pytest.raises(ArchiveError, match="'note'") as refused:
            verb()
        assert not isinstance(refused.value, ArchiveCorruptError)


def changed(table: Path, *actions: dict[str, Any]) -> None:
    """Another engine commits these actions."""
    log = sorted((table / "_delta_log").glob("*.json"))
    commit = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, *actions]
    log[-1].with_name(f"{len(log):020d}.json").write_text("\n".join(map(json.dumps, commit)))


def action(table: Path, name: str) -> dict[str, Any]:
    """The newest action of a kind in the log of a table."""
    lines = [line for log in sorted((table / "_delta_log").glob("*.json")) for line in log.read_text().splitlines()]
    return next(one[name] for one in map(json.loads, reversed(lines)) if name in one)


def features(*names: str) -> dict[str, Any]:
    """The protocol of a table with these features."""
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {"protocol": {**versions, "readerFeatures": names, "writerFeatures": names}}


# A bitmap of one row, the first, as Delta tables write it into the log (Z85 of a roaring bitmap).
FIRST_ROW = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000"


@pytest.mark.parametrize("what", ["deletion vectors", "column mapping", "partitioned by market_id"])
def test_a_table_whose_files_do_not_tell_its_rows_is_refused(archive: Archive, what: str) -> None:
    """Rows that another engine deleted do not come back, and no column is null: every call says what to do."""
    archive.add(prices=rows().filter(side="bid", level=0).drop("side", "level", "size"))
    table = Path(archive.location, "prices")
    metadata = action(table, "metaData")
    if what == "deletion vectors":
        changed(table, features("deletionVectors"))
        assert Archive(archive.location, frame="polars").prices("m").height == 6  # none is deleted yet
        add = action(table, "add")
        vector = {"storageType": "i", "pathOrInlineDv": FIRST_ROW, "sizeInBytes": 34, "cardinality": 1}
        remove = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}
        changed(table, {"remove": remove}, {"add": {**add, "deletionVector": vector}})
    elif what == "column mapping":
        schema = json.loads(metadata["schemaString"])
        for number, field in enumerate(schema["fields"]):
            field["metadata"] |= {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
        metadata |= {"schemaString": json.dumps(schema), "configuration": {"delta.columnMapping.mode": "name"}}
        changed(table, features("columnMapping"), {"metaData": metadata})
    else:
        changed(table, {"metaData": {**metadata, "partitionColumns": ["market_id"]}})
    fresh = Archive(archive.location, frame="polars")
    calls: list[Any] = [
        lambda: fresh.prices("m"), lambda: fresh.scan("prices"), fresh.verify, fresh.compact, fresh.coverage,
        lambda: fresh.add(prices=rows().filter(side="bid", level=0).drop("side", "level", "size")),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ArchiveError, match=f"{what}.*(REORG|Write the table again)"):
            call()


def test_times_of_another_unit_are_refused(archive: Archive) -> None:
    """Microseconds that were said to be milliseconds are a NotTidyError, not points of the year 57385."""
    far = rows().with_columns(pl.col("ts").dt.epoch("us").cast(pl.Datetime("ms", "UTC")))
    with pytest.raises(NotTidyError, match="another unit"):
        archive.add(books=far)


def test_long_ids_of_json_lines_are_read(archive: Archive, tmp_path: Path) -> None:
    """An id of 77 digits that was written as a number is the text of its digits, beside one of a few digits."""
    ids = [int("1" + "57920892373161954235709850086879" * 2 + "078532699984"), 22]
    file = tmp_path / "prices.jsonl"
    file.write_text(
        "".join(f'{{"ts":"2025-06-01T12:00:00Z","market_id":"m","token_id":{i},"price":0.5}}\n' for i in ids)
    )
    archive.add_files(file)
    assert sorted(archive.prices("m")["token_id"].cast(pl.String)) == sorted(map(str, ids))


@pytest.mark.fault("FR1")
@pytest.mark.parametrize("kind", KINDS)
def test_foreign_books_are_stored_as_they_were_meant(archive: Archive, kind: str) -> None:
    """Whatever kind, order, zone, unit and doubling: the levels come back, bids as bids and asks as asks."""
    archive.add(books=KINDS[kind](rows().with_columns(market_id=pl.lit(kind))))
    got = archive.books(kind).select("ts", "token_id", "side", "level", "price", "size")
    got = got.with_columns(pl.col("token_id", "side").cast(pl.String), pl.col("level").cast(pl.Int64))
    assert sorted(got.rows()) == sorted(rows().select(got.columns).rows())
    assert archive.verify().is_empty()


@pytest.mark.parametrize("kind", ["polars", "pandas objects", "arrow chunks", "shuffled"])
@pytest.mark.fault("FR1")
def test_a_token_has_the_label_of_its_newest_row_that_has_one(archive: Archive, kind: str) -> None:
    """A token is its ids: rows that label it differently, or not at all, are rows of one token, as in verbs."""
    books = rows().filter(pl.col("token_id") == "1")
    times = books["ts"].unique().sort().to_list()
    labels = {times[0]: "Old", times[-2]: "New", times[-1]: None}
    odd = books.with_columns(token_label=pl.col("ts").replace_strict(labels, default="Old", return_dtype=pl.String))
    archive.add(markets=[{"market_id": "m", "token_ids": ["1", "2"], "token_labels": [None, "No"]}])
    for without in ([], ["market_id"]):
        archive.add(books=KINDS[kind](odd.drop(without)))
        got = archive.books("m")
        assert got.height == books.height
        assert set(got["token_label"].cast(pl.String)) == {"New"}
    assert md.bbo(odd)["token_label"].unique().to_list() == ["New"]


@pytest.mark.fault("FR1")
def test_a_label_has_an_id_in_all_rows_or_in_none(archive: Archive) -> None:
    """Rows of one label of which some have a token_id are refused: they would be stored as two tokens."""
    odd = pl.when(pl.col("ts") == T0).then(pl.lit(None, pl.String)).otherwise("token_id").alias("token_id")
    with pytest.raises(NotTidyError, match=r"Some rows .* have a token_id, others have none"):
        archive.add(books=rows().filter(pl.col("token_id") == "1").with_columns(odd))
    assert archive.coverage().is_empty()


@pytest.mark.fault("FR1")
def test_books_inside_one_microsecond_are_not_mixed(archive: Archive) -> None:
    """Of two books of a token that are some nanoseconds apart the later one is stored, whole, or they are refused."""
    early, late = (rows(1).to_pandas() for _ in range(2))
    for frame, nanos, add in ((early, 100, 0.0), (late, 300, 50.0)):
        frame["ts"] = frame["ts"].dt.as_unit("ns") + pd.Timedelta(nanos, "ns")
        frame["size"] += add
    both = pd.concat([early, late])
    try:
        archive.add(books=both)
    except NotTidyError:
        return
    got = archive.books("m")
    assert got.height == rows(1).height
    assert got["size"].min() > 50


@pytest.mark.fault("FR1")
def test_missing_prices_are_missing(archive: Archive) -> None:
    """NaN and null are one missing value in every kind of frame, and no part of a mean."""
    ts = [T0 + dt.timedelta(seconds=20 * n) for n in range(3)]
    ids = {"market_id": "m", "token_id": "1", "token_label": "Yes"}
    for missing in (None, float("nan")):
        archive.add(prices=pl.DataFrame({"ts": ts, **ids, "price": [0.25, missing, 0.75]}).to_pandas())
        assert archive.prices("m")["price"].to_list() == [0.5]


@pytest.mark.fault("FR1")
def test_what_is_infinite_is_missing_in_its_column_alone(archive: Archive) -> None:
    """An infinite number of a metric is no observation; the others of its row are."""
    ts = [T0, T0 + dt.timedelta(minutes=1)]
    frame = pl.DataFrame({"ts": ts, "market_id": "m", "volume": [float("inf"), 1.0], "liquidity": 2.0, "spread": 0.25})
    archive.add(metrics=frame)
    assert archive.metrics("m").select("volume", "liquidity", "spread").rows() == [(None, 2.0, 0.25), (1.0, 2.0, 0.25)]


def test_a_file_without_rows_adds_nothing(archive: Archive, tmp_path: Path) -> None:
    """It is read, and reports no rows, no points and nothing stored."""
    nothing = rows().select("ts", "market_id", "token_id", "token_label", "price").clear()
    for suffix in ("parquet", "csv"):
        getattr(nothing, f"write_{suffix}")(tmp_path / f"none.{suffix}")
        added = archive.add_files(tmp_path / f"none.{suffix}")
        assert added.select("rows", "points", "stored").rows() == [(0, 0, 0)]
    assert archive.coverage().is_empty()


def test_three_times_on_a_coarse_grid_are_taken_for_means(archive: Archive) -> None:
    """They are refused where they would replace finer points; two may be chance, and replace what they name."""

    def prices(at: list[int], price: float) -> pl.DataFrame:
        ts = [T0 + dt.timedelta(minutes=n) for n in at]
        return pl.DataFrame({"ts": ts, "market_id": "m", "token_id": "1", "token_label": "Yes", "price": price})

    archive.add(prices=prices([*range(200)], 0.25))
    with pytest.raises(ArchiveError, match="grid of 1h"):
        archive.add(prices=prices([0, 60, 120], 0.5))
    archive.add(prices=prices([0, 60], 0.5))
    assert archive.prices("m").filter(price=0.5).height == 2


def test_one_token_of_an_unknown_market_is_not_complete(archive: Archive) -> None:
    """Nobody knows whether the market has another token; two of them are all that anybody knows of."""
    frame = pl.DataFrame({"ts": [T0, T0], "market_id": "m", "token_id": ["1", "2"], "token_label": ["Yes", "No"]})
    frame = frame.with_columns(price=0.5)
    with pytest.raises(ArchiveError, match="hold one token of market 'm'"):
        archive.add(prices=frame.head(1), complete=True)
    archive.add(prices=frame, complete=True)
    assert archive.coverage()["state"].to_list() == ["final"]


def test_levels_that_no_book_has_are_refused(archive: Archive) -> None:
    """A price outside of 0 to 1 or a size below 0 is a NotTidyError that names its row; nothing is stored."""
    wrong = (pl.col("token_id") == "1") & (pl.col("ts") > T0) & (pl.col("level") == 1) & (pl.col("side") == "ask")
    for column, value, match in (
        ("price", 55.0, "price of the books rows is 55 .token '1' at 2026-01-01T00:01:00Z.*divide cents by 100"),
        ("price", 1.01, "price of the books rows is 1.01 .*outside of 0 to 1"),
        ("size", -100.0, "size of the books rows is -100 .token '1' at 2026-01-01T00:01:00Z.*below 0"),
    ):
        with pytest.raises(NotTidyError, match=match):
            archive.add(books=rows(2).with_columns(pl.when(wrong).then(value).otherwise(column).alias(column)))
    assert Reader(archive).version("books") == -1


def test_prices_in_cents_are_refused(archive: Archive, tmp_path: Path) -> None:
    """With a hint how to make probabilities of them; of a file that has others too, they are left out and counted."""
    frame = pl.DataFrame({"ts": [T0, T0 + dt.timedelta(minutes=1)], "market_id": "m", "token_id": "1"})
    frame = frame.with_columns(price=pl.Series([0.5, 55.0]))
    frame.write_parquet(tmp_path / "cents.parquet")
    with pytest.raises(NotTidyError, match=r"55 .token '1' at 2026-01-01T00:01:00Z.*divide cents by 100"):
        archive.add(prices=frame)
    assert Reader(archive).version("prices") == -1
    report = archive.add_files(tmp_path / "cents.parquet").row(0, named=True)
    assert (report["stored"], report["left_out"], report["reasons"]) == (1, 1, "1 price outside of 0 to 1")


RENAMED: dict[str, list[Any]] = {
    "renamed": ["Up0", "Up1"],
    "points before the record": [None, None],
    "labels that changed places": ["No", "Yes"],
}


def test_a_token_is_its_id_whatever_its_label_was(archive: Archive) -> None:
    """Points stored under another label than that of the record now are one token with the others, in every read."""
    labels, minutes = ["Yes", "No"], [T0, T0 + dt.timedelta(minutes=1)]

    def rows(market: str, minute: int, names: list[Any]) -> pl.DataFrame:
        columns = {"ts": minutes[minute], "market_id": market, "token_id": ["1", "2"], "token_label": names}
        return pl.DataFrame({**columns, "price": [0.25, 0.75]}, schema_overrides={"token_label": pl.String})

    for market, first in RENAMED.items():
        archive.add(prices=rows(market, 0, first))
        archive.add(
            markets=[{"market_id": market, "slug": market[:3], "token_ids": ["1", "2"], "token_labels": labels}]
        )
        archive.add(prices=rows(market, 1, labels))
    with md.serve(archive) as service:
        client = md.Client(service.base_url, service.api_key, frame="polars")
        reads: dict[str, Any] = {
            "read": lambda m, r: archive.prices(m, resolution=r),
            "scan": lambda m, r: archive.scan("prices", m, resolution=r).collect(),
            "duckdb": lambda m, r: archive.scan("prices", m, resolution=r, engine="duckdb").pl(),
            "service": lambda m, r: client.prices(m, T0, T0 + dt.timedelta(hours=1), r),
            "sql": lambda m, r: archive.sql(f"select * from prices where market_id = '{m}'"),
        }
        for (name, read), market in itertools.product(reads.items(), RENAMED):
            for resolution, count in (("1h", 1), ("1m", 2)):
                got = read(market, resolution).sort("token_id", "ts")
                count = 2 if name == "sql" else count  # noqa: PLW2901  its tables are at 1m
                want = [(token, label) for token, label in zip("12", labels, strict=True) for _ in range(count)]
                assert got.select(pl.col("token_id", "token_label").cast(pl.String)).rows() == want, name
    assert md.resample(archive.scan("prices"), "1h").collect().height == 6  # type: ignore[union-attr]


def test_a_record_made_of_points_learns_the_label_from_later_ones(archive: Archive) -> None:
    """A token that was first added without a label has the label of later points."""
    frame = pl.DataFrame({"ts": [T0], "market_id": "m", "token_id": "1", "price": [0.5]})
    archive.add(prices=frame)
    archive.add(prices=frame.with_columns(pl.col("ts") + dt.timedelta(minutes=1), token_label=pl.lit("Yes")))
    assert archive.prices("m")["token_label"].cast(pl.String).to_list() == ["Yes", "Yes"]
