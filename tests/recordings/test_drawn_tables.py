"""Tables of any columns: what is taken is what the rows say, and what is not is counted or refused."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marketdata.errors import ConfigError
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import format_of
from marketdata.recordings.table import Table

S, TOKENS = 1_767_225_600, ("7" * 77, "8" * 77)
_TEMPLATES = [
    text.split()
    for text in (
        "timestamp token_id price", "ts market outcome price", "t asset_id p", "timestamp token_id bid ask",
        "time token_id open high low close", "timestamp market volume liquidity", "timestamp ticker yes_bid yes_ask",
        "timestamp slug yes_price no_price", "market question slug outcomes clobTokenIds closed",
        "timestamp token_id side price size", "timestamp token_id side level price size", "ts token_id bids asks",
    )
]  # fmt: skip
_KIND_OF_NAME = {
    **dict.fromkeys(("timestamp", "ts", "t", "time", "created_at", "received_at", "updated_at", "bucket"), "seconds"),
    **dict.fromkeys(("token_id", "asset_id", "asset", "symbol"), "token"), "outcome": "label", "side": "side",
    **dict.fromkeys(("market", "slug", "ticker", "condition_id"), "market"), "level": "level", "closed": "flag",
    **dict.fromkeys(("volume", "liquidity", "size", "amount", "spread", "imbalance"), "number"), "bids": "levels",
    "asks": "levels", "outcomes": "list", "clobTokenIds": "tokens", **dict.fromkeys(("question", "title"), "word"),
}  # fmt: skip
_VALUES: dict[str, Any] = {
    "seconds": lambda i: st.just(str(S + 60 * i)),
    "iso": lambda i: st.just(dt.datetime.fromtimestamp(S + 60 * i, dt.UTC).isoformat()),
    "token": lambda _: st.sampled_from(TOKENS), "market": lambda _: st.sampled_from(("m1", "m2")),
    "label": lambda _: st.sampled_from(("Yes", "No")), "side": lambda _: st.sampled_from(("BUY", "SELL")),
    "price": lambda _: st.integers(1, 99).map(lambda n: str(n / 100)),
    "flag": lambda _: st.sampled_from(("True", "False")),
    "cents": lambda _: st.integers(2, 99).map(str), "number": lambda _: st.floats(0, 900).map(lambda x: f"{x:.3f}"),
    "level": lambda _: st.integers(0, 2).map(str), "word": lambda _: st.sampled_from(("alpha", "beta")),
    "levels": lambda _: st.just("[[0.4, 1]]"), "list": lambda _: st.just('["Yes", "No"]'),
    "tokens": lambda _: st.just(json.dumps(TOKENS)), "nothing": lambda _: st.just(""), "bad": lambda _: st.just("n/a"),
}  # fmt: skip


@st.composite
def tables(draw: Any) -> tuple[list[str], list[list[str]]]:
    """A header near to one that is known, and rows whose values are mostly what the names say."""
    names = [name for name in draw(st.sampled_from(_TEMPLATES)) if draw(st.integers(0, 24))]
    names += draw(st.lists(st.sampled_from(sorted(_KIND_OF_NAME)), max_size=2))
    names = draw(st.permutations(list(dict.fromkeys(names)))) or ["timestamp"]
    usual = [_KIND_OF_NAME.get(name, "price") for name in names]
    kinds = [draw(st.sampled_from([*[kind] * 12, *sorted(_VALUES)])) for kind in usual]
    rows = [
        [draw(_VALUES[draw(st.sampled_from([*[kind] * 30, "nothing", "bad"]))](i)) for kind in kinds]
        for i in range(draw(st.integers(1, 8)))
    ]
    return names, rows


def told(row: list[str]) -> set[float]:
    """The numbers that a row says, also in cents, and as the price of the other outcome."""
    found = set()
    for cell in row:
        try:
            number = float(cell)
        except ValueError:
            continue
        found |= {round(x, 9) for x in (number, number / 100, 1 - number, 1 - number / 100)}
    return found


@pytest.mark.parametrize("examples", [20, pytest.param(3_000, marks=pytest.mark.soak)])
def test_no_row_is_taken_for_what_its_values_deny(tmp_path: Path, examples: int) -> None:
    """Each point has the time, the ids and the numbers of one row; others are counted, or the file is refused."""

    @settings(max_examples=examples)
    @given(tables())
    def holds(drawn: tuple[list[str], list[list[str]]]) -> None:
        _holds(tmp_path / "drawn.csv", *drawn)

    holds()


def _holds(path: Path, names: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    try:
        table = Table(RecordingFile(path))
        chosen = format_of(table)
        batches = list(chosen.read(table))
    except ConfigError as problem:
        lines = str(problem).splitlines()
    else:
        lines = []
    assert len(lines) <= 6
    if lines:
        return
    assert sum(batch.rows for batch in batches) == len(rows)
    assert all(0 <= batch.left_out.total() <= batch.rows for batch in batches)
    for kind, points in [pair for batch in batches for pair in batch.frames.items() if pair[0] in ("prices", "quotes")]:
        for point in points.iter_rows(named=True):
            row = rows[int(point["ts"].timestamp() - S) // 60]
            told_here = told(row)
            values = [point[name] for name in ("price", "best_bid", "best_ask") if point.get(name) is not None]
            assert all(0 <= value <= 1 and round(value, 9) in told_here for value in values), (kind, point, row)
            ids = point["token_id"] if point["token_id"] in row else point["token_id"].split(":")[0]
            assert any(ids in cell for cell in row), (kind, point, row)


_HEADERS = {
    "snake": ("timestamp", "token_id", "price"), "capitals": ("TIMESTAMP", "TOKEN_ID", "PRICE"),
    "spaces": ("Time Stamp", "Token ID", "Price"), "camel": ("timeStamp", "tokenId", "price"),
    "words": ("Timestamp (UTC)", "asset-id", "last price"),
}  # fmt: skip
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(2, 99), min_size=3, max_size=12),
    st.sampled_from([*_UNITS, "iso", "space", "utc"]),
    st.booleans(),
    st.sampled_from(sorted(_HEADERS)),
    st.sampled_from([",", ";", "\t", "|", "json", "parquet", "labelled"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.booleans(),
)
def test_one_table_is_the_same_in_every_form(
    tmp_path: Path, cents: list[int], unit: str, in_cents: bool, header: str, form: str, encoding: str, index: bool
) -> None:
    """Units of times and prices, capitals, separators, decimal commas, encodings and index columns change nothing."""
    times = [S + 60 * i for i in range(len(cents))]
    moments = [dt.datetime.fromtimestamp(at, dt.UTC).isoformat() for at in times]
    iso = {"iso": "T", "space": " ", "utc": " "}.get(unit)
    texts = (
        [text.replace("T", iso).replace("+00:00", " UTC" if unit == "utc" else "Z") for text in moments] if iso else ()
    )
    prices = [n if in_cents else n / 100 for n in cents]
    values = (texts or [at * _UNITS[unit] for at in times], [TOKENS[0]] * len(cents), prices)
    frame = pl.DataFrame(dict(zip(_HEADERS[header], values, strict=True)))
    if form == "json":
        path = tmp_path / "drawn.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))
    elif form in ("parquet", "labelled"):
        path = tmp_path / "drawn.parquet"
        if form == "labelled" and not iso:  # the type says microseconds, whatever the numbers are
            frame = frame.with_columns(pl.col(_HEADERS[header][0]).cast(pl.Datetime("us")))
        frame.write_parquet(path)
    else:
        path = tmp_path / "drawn.csv"
        if index:
            frame = frame.select(pl.int_range(len(frame)).alias(""), pl.all())
        frame.write_csv(text := io.BytesIO(), separator=form)
        lines = text.getvalue().decode()
        path.write_text(lines.replace(".", ",") if form == ";" and not in_cents else lines, encoding=encoding)
    table = Table(RecordingFile(path))
    (batch,) = format_of(table).read(table)
    stored = batch.frames["prices"]
    assert batch.left_out.total() == 0
    assert stored["ts"].dt.epoch("s").to_list() == times
    assert stored["price"].to_list() == pytest.approx([n / 100 for n in cents])
    assert set(stored["token_id"]) == {TOKENS[0]}
