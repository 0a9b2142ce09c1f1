"""Only what is wanted of files is stored: markets, tokens and a range of time."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.shapes import START, book, change, event_file, flat, incremental, lines, stamped

from marketdata import Archive
from marketdata.errors import ConfigError, RecordingWarning

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
MARKETS = [f"0x{n}{0:063}" for n in range(1, 7)]
TOKENS = {market: [f"{n}{side}" * 20 for side in (1, 2)] for n, market in enumerate(MARKETS, 1)}
RECORDS = [
    {"market_id": m, "slug": f"market-{n}", "token_ids": TOKENS[m], "token_labels": ["Yes", "No"]}
    for n, m in enumerate(MARKETS)
]
MINUTES = 40


def prices() -> pl.DataFrame:
    """A price of each token and minute, market after market; the first market has only prices of 0 and 1."""
    rows = [
        (START + 60_000 * minute, market, token, float(n and (7 * minute + n) % 100 / 100))
        for n, market in enumerate(MARKETS)
        for token in TOKENS[market]
        for minute in range(MINUTES)
    ]
    return pl.DataFrame(rows, schema=["timestamp", "market", "token_id", "price"], orient="row")


def quotes() -> pl.DataFrame:
    price = pl.col("price") * 0.9
    return prices().select("timestamp", "market", "token_id", best_bid=price, best_ask=price + 0.05)


WRITERS: dict[str, Any] = {
    "parquet": lambda frame, path: frame.write_parquet(path, row_group_size=50),
    "csv": lambda frame, path: frame.write_csv(path),
    "jsonl": lambda frame, path: frame.write_ndjson(path),
    "json": lambda frame, path: path.write_text(json.dumps(frame.to_dicts())),
}


def stream() -> list[dict[str, Any]]:
    """Messages of two tokens of each market, with an old first book of a quiet one, late messages and a hole."""
    out: list[dict[str, Any]] = []
    drawn = np.random.default_rng(3)
    for n, market in enumerate(MARKETS):
        for side, token in enumerate(TOKENS[market]):
            first = book(-300 * (n == 2), token, [(".4", "10")], [(".6", "10")])
            out.append({**first, "market": market, "_at": n + side})
            times = sorted(drawn.integers(5, 900 if n != 2 else 6, 12).tolist())
            changes = (change(at, token, "BUY", f".{10 + at % 30}", "3") for at in times)
            out += [{**one, "market": market, "_at": at} for one, at in zip(changes, times, strict=True)]
    for n, market in enumerate(MARKETS):
        out.append(
            {**book(1500 + n, TOKENS[market][0], [(".2", "1")], [(".8", "1")]), "market": market, "_at": 1500 + n}
        )
    return sorted(out, key=lambda message: message["_at"])


def enveloped(path: Path, messages: list[dict[str, Any]]) -> Path:
    return lines(path, [{"recv_ts": START + 1000 * m["_at"] + 130, "raw": json.dumps(m)} for m in messages])


def received(path: Path, messages: list[dict[str, Any]]) -> Path:
    return lines(path, [{**m, "received_at": START + 1000 * m["_at"] + 130} for m in messages])


RECORDINGS: dict[str, Any] = {
    "bare.jsonl": lines, "enveloped.jsonl": enveloped, "received.jsonl": received, "stamped.jsonl": stamped,
    "flat.csv": flat, "events.parquet": event_file, "incremental.csv": incremental,
}  # fmt: skip


def imported(folder: Path, path: Path, view: str, **options: Any) -> pl.DataFrame:
    """All points of a view, of an archive of the file."""
    archive = Archive(folder, frame="polars", base="10s" if view == "books" else "1m")
    archive.add_files(path, markets=RECORDS, progress=False, **options)
    found = archive.scan(view).collect()
    return found.cast({pl.Categorical: pl.String}).sort(["market_id", "token_id", "ts"], maintain_order=True)


def chosen(points: pl.DataFrame, only: list[str] | None, start: Any, end: Any) -> pl.DataFrame:
    """The points of wanted markets, tokens and times."""
    if only is not None:
        slugs = {r["market_id"]: r["slug"] for r in RECORDS}
        names = [pl.col("market_id"), pl.col("token_id"), pl.col("market_id").replace(slugs)]
        points = points.filter(pl.any_horizontal(name.is_in(only) for name in names))
    if start is not None:
        points = points.filter(pl.col("ts") >= start)
    return points if end is None else points.filter(pl.col("ts") < end)


some_of = st.lists(
    st.sampled_from([*MARKETS, *(r["slug"] for r in RECORDS), *(t for ts in TOKENS.values() for t in ts)]),
    min_size=1, max_size=3, unique=True,
)  # fmt: skip
ranges = st.none() | st.integers(0, 30).map(lambda m: dt.datetime.fromtimestamp(START / 1000 + 60 * m, dt.UTC))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([(view, form) for view in ("prices", "quotes") for form in WRITERS]),
    st.none() | some_of, ranges, st.booleans(),
)  # fmt: skip
def test_wanted_points_of_a_table_are_those_of_the_whole_one(
    tmp_path_factory: Any, kind: tuple[str, str], only: list[str] | None, start: Any, mixed: bool
) -> None:
    """In every container, by market, slug and token, rows by market or mixed, in dollars that others prove."""
    folder, (view, form) = tmp_path_factory.mktemp("wanted"), kind
    frame = prices() if view == "prices" else quotes()
    path = folder / f"{view}.{form}"
    WRITERS[form](frame.sample(fraction=1, shuffle=True, seed=1) if mixed else frame, path)
    end = None if start is None else start + dt.timedelta(minutes=7, seconds=20)
    whole = imported(folder / "whole", path, view)
    part = imported(folder / "part", path, view, only=only, start=start, end=end)
    assert part.equals(chosen(whole, only, start, end))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*RECORDINGS]), st.none() | some_of, ranges)
def test_wanted_books_of_a_recording_are_those_of_the_whole_one(
    tmp_path_factory: Any, name: str, only: list[str] | None, start: Any
) -> None:
    """Gaps, clocks and the end of a recording are those of all of its messages."""
    folder = tmp_path_factory.mktemp("wanted")
    path = RECORDINGS[name](folder / name, stream())
    end = None if start is None else start + dt.timedelta(minutes=7)
    whole = imported(folder / "whole", path, "books")
    part = imported(folder / "part", path, "books", only=only, start=start, end=end)
    assert len(whole)
    assert part.equals(chosen(whole, only, start, end))


def test_cents_of_other_markets_are_proof(tmp_path: Path) -> None:
    """A market whose prices are all 0 and 1 has cents where the whole file proves these."""
    cents = prices().with_columns((pl.col("price") * 100).round().cast(pl.Int64))
    cents = cents.with_columns(pl.when(pl.col("market") == MARKETS[0]).then(1).otherwise("price").alias("price"))
    cents.write_parquet(tmp_path / "cents.parquet", row_group_size=50)
    points = imported(tmp_path / "one", tmp_path / "cents.parquet", "prices", only=[MARKETS[0]])
    assert points["price"].unique().to_list() == [0.01]


def test_row_groups_without_a_wanted_row_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statistics of ids and times tell which ones have none."""
    path, read = tmp_path / "prices.parquet", list[int]()
    prices().write_parquet(path, row_group_size=MINUTES, statistics=True)
    groups = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **k: (read.append(i), groups(self, i, **k))[1]
    )
    assert imported(tmp_path / "a", path, "prices", only=[TOKENS[MARKETS[3]][1]]).height == MINUTES
    assert set(read) == {6, 7}  # both tokens of the market


def test_names_that_no_file_has_are_named(tmp_path: Path) -> None:
    """One is a warning, and an error if no file has any."""
    path = tmp_path / "prices.csv"
    prices().write_csv(path)
    with pytest.warns(RecordingWarning, match="No file has 'marquet-1'"):
        Archive(tmp_path / "a").add_files(path, only=["marquet-1", MARKETS[1]])
    with pytest.raises(ConfigError, match="No file has 'marquet-1', 'x'"):
        Archive(tmp_path / "b").add_files(path, only=["marquet-1", "x"])
    with pytest.raises(ConfigError, match="start"):
        Archive(tmp_path / "b").add_files(path, start="2026-01-02", end="2026-01-01")


def test_only_wanted_records_are_stored(tmp_path: Path) -> None:
    """A record that comes with the points tells their names."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "markets.json").write_text(json.dumps(RECORDS))
    prices().drop("market").write_csv(tmp_path / "files" / "prices.csv")
    archive = Archive(tmp_path / "archive", frame="polars")
    report = archive.add_files(tmp_path / "files", only="market-2")
    assert archive.markets()["slug"].to_list() == ["market-2"]
    assert archive.prices("market-2")["token_id"].cast(pl.String).unique().sort().to_list() == sorted(
        TOKENS[MARKETS[2]]
    )
    assert dict(report.select("kind", "stored").rows()) == {"markets": 1, "prices": 2 * MINUTES}
