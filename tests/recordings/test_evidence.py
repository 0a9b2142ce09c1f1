"""Values decide what a file is: names, options and defaults never outvote them, and two meanings are a refusal."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ConfigError
from marketdata.recordings.files import ReadOptions, tables_of
from marketdata.recordings.format import format_of
from marketdata.recordings.table import Table

S, T, T2, MARKET = 1_767_225_600, "7" * 77, "8" * 77, "0x" + "ab" * 32
CASES = Path(__file__).parents[3] / "shared" / "cases" / "2"


def read(path: Path, **options: Any) -> tuple[str, list[Any]]:
    """The format of a file and what would be stored of it, in an order of its own; ConfigError if it is refused."""
    table = Table(tables_of(path, ReadOptions(**options))[0])
    chosen = format_of(table)
    rows: list[Any] = []
    for batch in chosen.read(table):
        changes = batch.changes
        rows += [
            ("change", changes.tokens[code], *row)
            for code, *row in zip(changes.token, changes.ts, changes.event, changes.side, changes.price, changes.size,
                                  strict=True)
        ]  # fmt: skip
        for kind, points in batch.frames.items():
            records = points.rows(named=True) if isinstance(points, pl.DataFrame) else points
            rows += [(kind, *sorted((n, str(v)) for n, v in row.items() if v is not None)) for row in records]
    return chosen.name, sorted(map(str, rows))


def meaning(path: Path, **options: Any) -> tuple[str, list[Any]] | None:
    """What is stored of a file, None if it is refused."""
    try:
        return read(path, **options)
    except ConfigError:
        return None


def text_of(header: str, rows: list[list[Any]]) -> str:
    """A CSV file."""
    out = io.StringIO()
    csv.writer(out).writerows([header.split(), *rows])
    return out.getvalue()


# One file a shape: its columns, of which the first is the time, and what rows have beside it.
SHAPES: dict[str, tuple[str, Callable[[int], list[list[Any]]]]] = {
    "prices": ("timestamp token_id price", lambda i: [[T, 0.4 + i / 100]]),
    "prices of outcomes": ("timestamp market outcome price", lambda i: [[MARKET, "Yes", 0.4], [MARKET, "No", 0.6]]),
    "prices of yes and no": ("timestamp market yes_price no_price", lambda i: [[MARKET, 0.4 + i / 100, 0.6 - i / 100]]),
    "polls of markets": (
        "timestamp market_id question closed yes_price no_price", lambda i: [["m1", "q?", "False", 0.4, 0.6],
                                                                             ["m2", "q?", "False", 0.3, 0.7]],
    ),
    "quotes": ("timestamp token_id bid ask", lambda i: [[T, 0.4, 0.5 + i / 100]]),
    "metrics": ("timestamp market_id volume liquidity", lambda i: [[MARKET, 10 + i, 5]]),
    "books": ("timestamp token_id bids asks", lambda i: [[T, "[[0.4, 1]]", "[[0.5, 2]]"]]),
    "levels": (
        "timestamp token_id side price size", lambda i: [[T, "bid", 0.4, 1], [T, "bid", 0.3, 1], [T, "ask", 0.5, 2]]
    ),
    "trades": ("timestamp asset_id side price size transaction_hash", lambda i: [[T, "BUY", 0.4, 3, f"0x{i}"]]),
}  # fmt: skip
NAMES = (
    "snapshot_time_utc", "as_of", "pulled_at", "observed_at", "logged_at", "dttm", "run_utc", "trade_date", "open_ts",
    "when", "sampled", "captured",
)  # fmt: skip


def shape(path: Path, name: str, count: int = 4) -> tuple[list[str], list[list[Any]]]:
    """A file of a shape, and its columns and rows."""
    header, of = SHAPES[name]
    rows = [[S + 60 * i, *row] for i in range(count) for row in of(i)]
    path.write_text(text_of(header, rows))
    return header.split(), rows


@pytest.mark.parametrize("name", SHAPES)
def test_a_time_is_found_by_its_values(tmp_path: Path, name: str) -> None:
    """Whatever the time is called, the same is stored, or the file is refused and the column is named."""
    columns, rows = shape(tmp_path / "known.csv", name)
    wanted = read(tmp_path / "known.csv")
    for other in NAMES:
        (path := tmp_path / "other.csv").write_text(text_of(" ".join([other, *columns[1:]]), rows))
        try:
            assert read(path) == wanted, other
        except ConfigError as problem:
            assert other in str(problem)  # noqa: PT017  it may be read too
            assert read(path, columns={"ts": other}) == wanted


def test_two_times_that_differ_are_named(tmp_path: Path) -> None:
    """Neither of two unknown times is chosen by its name, unless they are equal."""
    (path := tmp_path / "two.csv").write_text(f"dttm,as_of,token_id,price\n{S},{S + 9},{T},.4\n")
    with pytest.raises(ConfigError, match="two times, as_of and dttm, which differ"):
        read(path)
    path.write_text(f"dttm,as_of,token_id,price\n{S},{S},{T},.4\n")
    assert read(path)[0] == "prices"


def test_a_poll_of_one_moment_is_a_question(tmp_path: Path) -> None:
    """A time beside the state of each market may be of a poll or a fact of the record; each option decides it."""
    (path := tmp_path / "poll.csv").write_text(f"as_of,market_id,question,closed,yes_price\n{S},m,q?,False,.4\n")
    with pytest.raises(ConfigError, match="the time as_of, which may be when its prices were seen"):
        read(path)
    assert read(path, columns={"ts": "as_of"})[0] == "outcome-prices"
    assert read(path, format="markets")[0] == "markets"


@pytest.mark.filterwarnings("ignore::marketdata.errors.RecordingWarning")
def test_rows_given_again_at_another_time_are_no_records(tmp_path: Path) -> None:
    """The last of a market's rows would hide the others, so the time is named."""
    rows = "".join(f"{S + 60 * i},m{i % 2},q?,False,.4\n" for i in range(6))
    (path := tmp_path / "polls.csv").write_text(f"open_ts,market_id,question,closed,yes_price\n{rows}")
    with pytest.raises(ConfigError, match="open_ts"):
        read(path)
    path.write_text("market_id,question,closed\nm,q?,False\nm,q?,True\nn,q?,False\n")
    assert read(path)[0] == "markets"


@pytest.mark.parametrize("name", SHAPES)
def test_what_means_nothing_changes_nothing(tmp_path: Path, name: str) -> None:
    """The order of columns, that of rows of other times, and a column without a meaning store the same, or refuse."""
    columns, rows = shape(tmp_path / "a.csv", name)
    wanted = read(tmp_path / "a.csv")
    path = tmp_path / "b.csv"
    for order in ([*range(1, len(columns)), 0], [*range(len(columns))][::-1]):
        path.write_text(text_of(" ".join(columns[i] for i in order), [[row[i] for i in order] for row in rows]))
        assert read(path) == wanted
    by_time = sorted(rows, key=lambda row: -row[0])
    path.write_text(text_of(" ".join(columns), by_time))
    assert read(path) == wanted
    # A further number is a metric.
    numbers = {} if name == "metrics" else {"weight": 0.5}
    for noise, value in {"note": "x", "Unnamed: 0": 3, "flag": "True", "blank": "", **numbers}.items():
        path.write_text(text_of(" ".join(columns), rows).replace("\n", f",{value}\n").replace("\r", ""))
        lines = path.read_text().splitlines()
        path.write_text("\n".join([f"{lines[0].rpartition(',')[0]},{noise}", *lines[1:]]) + "\n")
        assert meaning(path) in (wanted, None), noise
    half = len(rows) // 4 * 2
    parts = []
    for part in (rows[:half], rows[half:]):
        path.write_text(text_of(" ".join(columns), part))
        parts.append(read(path))
    assert sorted(parts[0][1] + parts[1][1]) == wanted[1]


def written(folder: Path, rows: list[dict[str, Any]]) -> list[Path]:
    """The rows in each container, as users write them."""
    frame = pd.DataFrame(rows)
    cells = frame.map(lambda value: json.dumps(value) if isinstance(value, list | dict) else value)
    (folder / "a.json").write_text(json.dumps(rows))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells.to_csv(folder / "a.csv")
    cells.to_csv(folder / "a.csv.gz", index=False)
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / "a.parquet")
    (folder / "a.sqlite").unlink(missing_ok=True)
    database = sqlite3.connect(folder / "a.sqlite")
    cells.to_sql("rows", database, index=False)
    database.close()
    return [folder / f"a.{suffix}" for suffix in ("json", "jsonl", "csv", "csv.gz", "parquet", "sqlite")]


_PRICE = st.integers(1, 99).map(lambda n: n / 100)
_LABEL = st.sampled_from(["Yes", "No", "None", "NA"])
_LEVELS = st.lists(st.tuples(_PRICE, st.integers(1, 9)), max_size=2).map(lambda pairs: [list(p) for p in pairs])
_ROWS: dict[str, Any] = {
    "prices": {"token_id": st.sampled_from([T, T2]), "price": _PRICE},
    "labels": {"market": st.sampled_from(["a-b", "c-d"]), "outcome": _LABEL, "price": _PRICE},
    "quotes": {"token_id": st.sampled_from([T, T2]), "bid": _PRICE, "ask": _PRICE},
    "books": {"token_id": st.sampled_from([T, T2]), "bids": _LEVELS, "asks": _LEVELS},
    "trades": {"token_id": st.sampled_from([T, T2]), "side": st.sampled_from(["BUY", "SELL"]), "price": _PRICE,
               "size": st.integers(1, 9)},
}  # fmt: skip


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("kind", _ROWS)
@pytest.mark.filterwarnings("ignore::marketdata.errors.RecordingWarning")
def test_the_container_does_not_matter(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    """Rows are the same as JSON, JSON lines, CSV by pandas, Parquet and SQLite; or each is refused."""
    drawn = data.draw(st.lists(st.fixed_dictionaries(_ROWS[kind]), min_size=1, max_size=5))
    rows = [{"timestamp": S + 60 * i, **row} for i, row in enumerate(drawn)]
    results = [meaning(path) for path in written(tmp_path, rows)]
    assert all(result == results[0] for result in results), results


# Ways to say that a level is a change: each is read as such, or is a question.
FLAGS: dict[str, tuple[Any, Any]] = {
    "delta": (False, True), "is_delta": (0, 1), "is_update": ("false", "true"), "snapshot": (True, False),
    "is_full": (1, 0), "action": ("snapshot", "update"), "event": ("snapshot", "delta"), "type": ("book", "change"),
    "record_type": ("snapshot", "l2update"), "kind": ("full", "incremental"), "msg": ("snap", "diff"),
    "flag": ("S", "U"), "is_snapshot": (True, False), "mode": ("a", "b"), "update_type": ("snapshot", "set"),
    "source": ("rest", "ws"),
}  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
def test_changes_of_levels_are_never_whole_books(tmp_path: Path, flag: str) -> None:
    """However changes are flagged, they are read as changes or refused, with a way out that works."""
    whole, change = FLAGS[flag]
    rows = [
        [S, T, "bid", 0.4, 10, whole], [S, T, "bid", 0.3, 5, whole], [S, T, "ask", 0.5, 9, whole],
        [S + 60, T, "bid", 0.4, 0, change], [S + 60, T, "ask", 0.45, 2, change],
    ]  # fmt: skip
    (path := tmp_path / "known.csv").write_text(
        text_of("ts token_id side price size is_snapshot", [[*row[:5], row[5] == whole] for row in rows])
    )
    wanted = read(path)
    assert wanted[0] == "incremental"
    (path := tmp_path / "flagged.csv").write_text(text_of(f"ts token_id side price size {flag}", rows))
    try:
        assert read(path) == wanted
    except ConfigError as problem:
        assert "is_snapshot" in str(problem)  # noqa: PT017  it may be read too


def test_an_unknown_side_is_not_an_empty_one(tmp_path: Path) -> None:
    """A poll that failed is no book, a row without an id is none, and an outcome may be called None."""
    (path := tmp_path / "polls.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [
            {"ts": S, "token_id": T, "bids": [[0.4, 1]], "asks": []},
            {"ts": S + 60, "token_id": T, "bids": None, "asks": [[0.5, 1]]},
            {"ts": S + 120, "token_id": None, "bids": [], "asks": []},
        ])
    )  # fmt: skip
    assert len(read(path)[1]) == 1
    (path := tmp_path / "labels.csv").write_text(f"ts,market,outcome,price\n{S},m,None,.4\n{S},m,,.3\n{S},,Yes,.2\n")
    (row,) = read(path)[1]
    assert "m:None" in row


def test_one_token_is_of_one_file(tmp_path: Path) -> None:
    """``token_id=`` of several files is refused; ``{name}`` gives each its own, and rows of one time must agree."""
    for name in ("a", "KXB-1.5"):
        (tmp_path / f"{name}.csv").write_text(f"ts,price\n{S},.4\n")
    archive = md.Archive(tmp_path / "archive", frame="polars")
    with pytest.raises(ConfigError, match="there are 2"):
        archive.add_files(tmp_path, token_id="x")
    archive.add_files(sorted(tmp_path.glob("*.csv")), token_id="{name}")
    assert set(archive.coverage()["market_id"]) == {"a", "KXB-1.5"}
    (path := tmp_path / "c.csv").write_text(f"ts,question,price\n{S},a?,.4\n{S},b?,.6\n")
    with pytest.raises(ConfigError, match="differ by question"):
        archive.add_files(path, token_id="x")


@pytest.mark.parametrize("form", ["%m/%d/%Y", "%d/%m/%Y", "%d %b %Y", "%m/%d/%Y %H:%M"])
def test_dates_as_people_write_them(tmp_path: Path, form: str) -> None:
    """A form that all dates have is offered, and read; a written date may be older than any number."""
    times = pd.to_datetime(["2008-10-10", "2008-11-10"])
    rows = "".join(f"{time.strftime(form)},{T},.4\n" for time in times)
    (path := tmp_path / "dates.csv").write_text(f"date,token_id,price\n{rows}")
    with pytest.raises(ConfigError, match="time_format=") as problem:
        read(path)
    assert form in str(problem.value)
    (tmp_path / "iso.csv").write_text(text_of("date token_id price", [[t.isoformat(), T, 0.4] for t in times]))
    assert read(path, time_format=form) == read(tmp_path / "iso.csv")


CONTAINERS: dict[str, tuple[bytes, str]] = {
    "twice.csv": (b"ts,token_id,price,price\n1,2,3,4\n", "several columns called 'price'"),
    "title.csv": (b"Export of a site\nts,token_id,price\n1767225600,7,.5\n1767225660,7,.5\n", "a title above"),
    "cp1252.csv": ("ts,token_id,price,name\n1767225600,7,.5,Café\n".encode("cp1252"), "not UTF-8.*cp1252"),
    "lfs.parquet": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
    "page.csv": (b"<!DOCTYPE html><html></html>", "is a web page"),
    "a.xlsx": (b"PK", "pl.read_excel"), "a.feather": (b"x", "archive.add"), "a.zip": (b"PK", "archive.add"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTAINERS)
def test_what_is_no_table_is_named_with_the_way_out(tmp_path: Path, name: str) -> None:
    """Each is refused in one line."""
    content, match = CONTAINERS[name]
    (path := tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=match) as problem:
        md.Archive(tmp_path / "archive").add_files(path)
    assert len(str(problem.value).splitlines()) == 1


# Files that are refused, and what a message says first to do about each is enough.
ADVISED: dict[str, tuple[str, dict[str, Any]]] = {
    "plain dump": (f"time,market,price,volume\n{S},a-b,.4,9\n{S},c-d,.3,8\n", {}),
    "daily": ("market,market_question,date,price,change\nm,q?,2026-01-01,.4,0.0\nn,r?,2026-01-01,.3,.1\n", {}),
    "us dates": (f"date,token_id,price\n10/31/2025,{T},.4\n11/01/2025,{T},.5\n", {}),
    "us dates of candles": ("ContractID,Date,Close\n12819,10/31/2025,.4\n", {"columns": {"token_id": "ContractID"}}),
    "columns of outcomes": (f"ts,model_a,model_b\n{S},.35,.60\n", {}),
    "a poll": (f"as_of,market_id,question,closed,yes_price\n{S},m,q?,False,.4\n", {}),
    "two times": (f"dttm,as_of,token_id,price\n{S},{S + 9},{T},.4\n", {}),
    "rows of a database": (f"token_id,price,created_at\n{T},.4,{S}\n{T},.5,{S + 60}\n", {}),
    "questions": (f"ts,question,price\n{S},a?,.4\n{S},b?,.6\n", {"token_id": "x"}),
    "opened": (f"open_ts,token_id,price\n{S},{T},.4\n", {}),
}  # fmt: skip
_OPTION = re.compile(
    r"columns=(?P<columns>\{[^}]*\})|time_format='(?P<time_format>[^']*)'|\bformat='(?P<format>[^']*)'"
)


@pytest.mark.parametrize("name", ADVISED)
def test_advice_works_to_the_letter(tmp_path: Path, name: str) -> None:
    """Whoever takes the first option that a message names has the file read in at most two steps."""
    text, options = ADVISED[name]
    (path := tmp_path / "a.csv").write_text(text)
    for _ in range(2):
        with pytest.raises(ConfigError) as problem:
            read(path, **options)
        (match, *_others) = _OPTION.finditer(str(problem.value))
        said = {option: value for option, value in match.groupdict().items() if value is not None}
        if "columns" in said:
            said = {"columns": {**options.get("columns", {}), **ast.literal_eval(said["columns"])}}
            options = {n: v for n, v in options.items() if n not in {*said["columns"]}}
        options = {**options, **said}
        if meaning(path, **options) is not None:
            return
    raise AssertionError(options)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["NA", "nan", "None", "1e400", "7.5", "0x12...ab", "Yes"]), min_size=1, unique=True))
def test_an_export_comes_back_as_it_was(tmp_path: Path, ids: list[str]) -> None:
    """A tidy table is read by its schema, whatever its ids look like, from CSV and Parquet."""
    rows = {"market_id": ids, "token_id": ids, "token_label": ids, "price": [0.4] * len(ids)}
    moment = pl.Series("ts", [S * 10**6] * len(ids)).cast(pl.Datetime("us", "UTC"))
    frame = pl.DataFrame([moment, *(pl.Series(name, values) for name, values in rows.items())])
    frame.write_csv(tmp_path / "own.csv")
    frame.write_parquet(tmp_path / "own.parquet")
    for suffix in ("csv", "parquet"):
        (batch,) = format_of(table := Table(tables_of(tmp_path / f"own.{suffix}", ReadOptions())[0])).read(table)
        assert batch.frames["prices"].sort("token_id").rows() == frame.sort("token_id").rows()


def test_a_record_is_the_same_from_every_container(tmp_path: Path) -> None:
    """Times, states, lists and objects in cells come out of CSV, Parquet and SQLite as out of JSON."""
    record = {
        "id": "12", "conditionId": MARKET, "question": "q?", "slug": "q", "outcomes": '["Yes", "No"]',
        "outcomePrices": '["1", "0"]', "clobTokenIds": json.dumps([T, T2]), "closed": True,
        "closedTime": "2026-01-02 03:04:05+00", "umaResolutionStatus": "resolved", "endDate": "2026-01-02T00:00:00Z",
        "tags": [{"id": "1", "label": "x"}], "events": [{"id": "5", "slug": "e", "title": "E"}],
    }  # fmt: skip
    paths = written(tmp_path, [record])
    pd.DataFrame([record]).to_csv(tmp_path / "of_pandas.csv")
    stored = []
    for i, path in enumerate([*paths, tmp_path / "of_pandas.csv"]):
        archive = md.Archive(tmp_path / f"archive-{i}", frame="polars")
        archive.add_files(path)
        stored.append(archive.markets().row(0, named=True))
    assert all(one == stored[0] for one in stored[1:])
    assert (stored[0]["status"], stored[0]["event_slug"]) == ("resolved", "e")
    assert stored[0]["closed_at"].day == 2


PAID: dict[str, tuple[str, list[float] | None]] = {
    "dollars": ("payout|1|0", [1, 0]), "a loss": ("payoff|0|1", [0, 1]), "void": ("payout_value|.5|.5", [0.5, 0.5]),
    "millionths": ("payout|0|1000000", [0, 1]), "cents": ("settlement_value|30|70", [0.3, 0.7]),
    "one is missing": ("payout|1|", None), "nothing was paid": ("payout|0|0", None),
    "not final": ("payout,resolved|1,false|0,false", None), "still open": ("payout,status|1,proposed|0,proposed", None),
    "of a vector": ("payout_numerator,payout_denominator|1,2|1,2", [0.5, 0.5]), "a flag": ("winner|1|0", [1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("question", [None, "Rain?"])
@pytest.mark.parametrize("name", PAID)
def test_what_each_token_paid_is_the_outcome_of_its_market(tmp_path: Path, name: str, question: str | None) -> None:
    """A row a token, in any unit in which the tokens of a market pay one together."""
    text, expected = PAID[name]
    head, *values = text.split("|")
    more = "" if question is None else ",question"
    rows = [f"0xa,{token},{label},{value}{more and ',Rain?'}" for token, label, value in
            zip(("7" * 40, "8" * 40), ("Yes", "No"), values, strict=True)]  # fmt: skip
    (path := tmp_path / "paid.csv").write_text("\n".join([f"condition_id,token_id,outcome,{head}{more}", *rows]))
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add_files(path)
    assert md.outcomes(archive.markets())["payoff"].to_list() == (expected or [None, None])
    assert archive.markets()["status"].to_list() == ["resolved" if expected else ANY]


def test_tokens_that_do_not_pay_one_together_are_refused(tmp_path: Path) -> None:
    """What is paid to an account, or a price, is no payout of a token."""
    (path := tmp_path / "paid.csv").write_text(f"condition_id,token_id,payout\n0xa,{'7' * 40},17.5\n0xa,{'8' * 40},3")
    with pytest.raises(ConfigError, match=r"paid \[17.5, 3.0\], which sum to 20.5; together they pay 1"):
        md.Archive(tmp_path / "archive").add_files(path)


POLLED = {
    "a book": {"asset_id": T, "market": "0xa", "bids": [{"price": ".4", "size": "5"}], "asks": []},
    "a price": {"token_id": T, "price": 0.4},
    "prices": [{"token_id": T, "price": 0.4}, {"token_id": "8" * 40, "price": 0.6}],
    "a record": {"conditionId": "0xa", "question": "Rain?", "clobTokenIds": f'["{T}", "8"]',
                 "outcomes": '["Yes", "No"]',
                 "closed": False, "outcomePrices": '["0.4", "0.6"]'},
    "records": [{"ticker": "KXA-1-2", "event_ticker": "KXA-1", "title": "Rain?", "status": "active",
                 "yes_bid_dollars": "0.40", "yes_ask_dollars": "0.50"}],
}  # fmt: skip


@pytest.mark.parametrize("time", ["polled_at", "ts", "as_of"])
@pytest.mark.parametrize("what", POLLED)
def test_the_time_of_a_poll_is_that_of_its_answer(tmp_path: Path, what: str, time: str) -> None:
    """Beside the one object or the list of an answer; of records, which need none, where ``columns`` names it."""
    polls = [{time: S + 60 * k, "response": POLLED[what]} for k in range(3)]
    (path := tmp_path / "polls.jsonl").write_text("\n".join(map(json.dumps, polls)))
    options: dict[str, Any] = {"columns": {"ts": time}} if "record" in what else {}
    archive = md.Archive(tmp_path / "archive", frame="polars")
    (row,) = archive.add_files(path, **options).to_dicts()
    view = {"a book": "books", "records": "quotes"}.get(what, "prices")
    assert row["kind"] == view
    assert set(getattr(archive, view)()["ts"].dt.epoch("s")) == {S + 60 * k for k in range(3)}


@pytest.mark.parametrize("time", ["polled_at", "taken"])
def test_polls_that_are_a_history_say_where_their_time_is(tmp_path: Path, time: str) -> None:
    """The option that the message names is enough."""
    records = [{**POLLED["a record"], "outcomePrices": f'["0.{k}", "0.{10 - k}"]', "volume": k} for k in range(1, 6)]
    polls = [{time: S + 60 * k, "markets": [record]} for k, record in enumerate(records)]
    (path := tmp_path / "polls.jsonl").write_text("\n".join(map(json.dumps, polls)))
    with pytest.raises(ConfigError, match="history without a time") as problem:
        md.Archive(tmp_path / "a").add_files(path)
    columns = ast.literal_eval(re.search(r"columns=(\{[^}]+\})", str(problem.value))[1])  # type: ignore[index]
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add_files(path, columns=columns)
    assert archive.prices().height == 10


@pytest.mark.parametrize("names", [("request", "response"), ("req", "res"), ("url", "response")])
def test_pairs_of_a_request_and_its_answer_are_named(tmp_path: Path, names: tuple[str, str]) -> None:
    """What was asked is not in the answer; the form that the message shows is read."""
    answer = {"history": [{"t": S, "p": 0.4}]}
    (path := tmp_path / "pairs.json").write_text(json.dumps([dict(zip(names, ("/x", {"body": answer}), strict=True))]))
    with pytest.raises(ConfigError, match="pairs of a request and its answer") as problem:
        md.Archive(tmp_path / "a").add_files(path)
    form = re.search(r"\{.*\}", str(problem.value))[0]  # type: ignore[index]
    assert [*json.loads(form.replace("...", "0"))] == ["token_id", "fetched_at", "response"]
    path.write_text(json.dumps({"token_id": T, "fetched_at": S + 9, "response": answer}))
    (row,) = md.Archive(tmp_path / "archive", frame="polars").add_files(path).to_dicts()
    assert (row["kind"], row["stored"]) == ("prices", 1)
