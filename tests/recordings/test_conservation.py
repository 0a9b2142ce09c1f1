"""Every row of a file is stored, or left out for a reason that is counted: against a plain count of what it held."""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.shapes import MARKET

import marketdata as md

S, T, T2 = 1_767_225_600, "7" * 77, "8" * 77
pytestmark = [
    pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning"),
    pytest.mark.filterwarnings("ignore::marketdata.errors.RecordingWarning"),
]
_FEW, _MANY = 10, 500
_SIZES = [_FEW, pytest.param(_MANY, marks=pytest.mark.soak)]
# What the reasons of a report are about.
_ABOUT = {
    "time": r"without a time|time before 2015, or that cannot be read",
    "value": r"whose \w+ is no number|without a (price|best_bid)( or best_ask)?|price outside of 0 to 1.*|damaged",
    "id": r"without a (token|market)_id|without an id, or that cannot be read",
    "copy": r"equal to another row|given again.*|superseded in its bucket",
    "torn": r"with another number of columns",
    "no book": r"change before a book",
}


class Shape(NamedTuple):
    """Columns, each with its role and possible names; ``bad`` are roles whose values can be wrong."""

    view: str
    columns: dict[str, tuple[str, ...]]
    bad: tuple[str, ...]


_TIMES = ("timestamp", "ts", "t", "datetime", "event_time")
_TOKENS = ("token_id", "asset_id", "clobTokenId", "Token ID")
_PRICE_NAMES = {"price": ("price", "p", "mid", "probability")}
_TOP = {"bid": ("best_bid", "bid", "bestBid", "Bid Price"), "ask": ("best_ask", "ask", "bestAsk", "Ask Price")}
_LEVEL = {"side": ("side",), "price": ("price",), "size": ("size", "quantity", "amount")}
_TIMED = {"time": _TIMES, "token": _TOKENS}
_OF_MARKET = {"time": _TIMES, "market": ("market", "condition_id", "conditionId"), "label": ("outcome", "token_label")}
SHAPES = {
    "prices": Shape("prices", {**_TIMED, **_PRICE_NAMES}, ("time", "price", "token")),
    "labels": Shape("prices", {**_OF_MARKET, **_PRICE_NAMES}, ("time", "price")),
    "candles": Shape("prices", {**_TIMED, **{n: (n,) for n in ("open", "high", "low")}, "price": ("close",)},
                     ("time", "price")),
    "quotes": Shape("quotes", {**_TIMED, **_TOP}, ("time", "bid")),
    "metrics": Shape("metrics", {"time": _TIMES, "market": ("market_id", "market"), "volume": ("volume",),
                                 "liquidity": ("liquidity",)}, ("time", "market")),
    "yes": Shape("prices", {"time": _TIMES, "market": ("slug", "market"), "price": ("yes_price",)}, ("time", "price")),
    "wide": Shape("prices", {"time": _TIMES, "price": ("Yes",), "rest": ("No",)}, ("time",)),
    "books": Shape("books", {**_TIMED, "bids": ("bids", "bid_levels"), "asks": ("asks", "ask_levels")},
                   ("time", "bids")),
    "levels": Shape("books", {**_TIMED, "level": ("level",), **_LEVEL}, ("time", "price")),
    "changes": Shape("books", {**_TIMED, "flag": ("is_snapshot",), **_LEVEL}, ("time", "price")),
}  # fmt: skip
_WRONG = {
    "time": ["", "soon", "0"], "price": ["", "n/a", "1.7"], "bid": ["n/a", "1.7"], "token": [""], "market": [""],
    "bids": ["{", "x", '[["a", 1]]'],
}  # fmt: skip
_ABOUT_OF_ROLE = {"time": "time", "token": "id", "market": "id"}


@st.composite
def files(draw: Any) -> tuple[Shape, list[str], list[tuple[list[Any], str]], str, bool]:
    """A shape, names of its columns, rows with what becomes of each, a form, and whether prices are cents."""
    shape = draw(st.sampled_from([*SHAPES.values()]))
    names = [draw(st.sampled_from(options)) for options in shape.columns.values()]
    form, unit = draw(st.sampled_from(["csv", "jsonl", "parquet"])), draw(st.sampled_from(["s", "ms", "us", "iso"]))
    in_cents = "price" in shape.columns and "rest" not in shape.columns and draw(st.booleans())
    count = draw(st.integers(3, 9))
    faults = draw(st.lists(st.sampled_from([*shape.bad, "copy", *["torn"] * (form == "csv")]), max_size=count // 3))
    rows: list[tuple[list[Any], str]] = []
    good: list[list[Any]] = []
    for i, fault in enumerate(draw(st.permutations(["stored"] * count + faults))):
        row, fate = _values(shape, i, draw(st.integers(2, 97)), unit, in_cents=in_cents), fault
        if fault == "stored" or (fault == "copy" and not good):
            good.append(row)
            fate = "stored"
        elif fault == "copy":
            row = draw(st.sampled_from(good))
        elif fault == "torn":
            row = [*row, "x"]
        else:
            wrong = [text for text in _WRONG[fault] if not (text == "1.7" and in_cents)]
            # In a table of levels no price says that the side is empty, and in a tidy table that the value is missing.
            is_tidy = {"ts", "token_id", "price"} <= {name.lower().replace(" ", "_") for name in names}
            wrong = [text for text in wrong if text or fault != "price" or not (is_tidy or shape.view == "books")]
            row[[*shape.columns].index(fault)] = draw(st.sampled_from(wrong))
            fate = _ABOUT_OF_ROLE.get(fault, "value")
        rows.append((row, fate))
    return shape, names, rows, form, in_cents


def _values(shape: Shape, i: int, cents: int, unit: str, *, in_cents: bool) -> list[Any]:
    at = S + 60 * i
    time: Any = {"s": at, "ms": at * 1000, "us": at * 10**6}.get(unit) or dt.datetime.fromtimestamp(at, dt.UTC)
    price = str(cents if in_cents else cents / 100)
    of = {
        "time": str(time), "token": T, "market": "m", "label": "Yes", "price": price, "bid": str(cents / 100),
        "rest": str(round(1 - cents / 100, 2)), "ask": str((cents + 2) / 100), "open": price, "high": price,
        "low": price, "volume": "5", "liquidity": "7.5", "bids": f"[[{cents / 100}, 1]]", "asks": "[]", "level": "0",
        "side": "bid", "size": "3", "flag": "true",
    }  # fmt: skip
    return [of[role] for role in shape.columns]


def _write(path: Path, names: list[str], rows: list[list[Any]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *rows])
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    else:
        pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row").write_parquet(path)


def _reasons(row: dict[str, Any]) -> Counter[str]:
    """The counts of a report by what they are about; a reason that is none of these is an error."""
    found: Counter[str] = Counter()
    for count, reason in re.findall(r"(\d[\d,]*) (.*?)(?=, \d[\d,]* |$)", row["reasons"] or ""):
        about = [name for name, pattern in _ABOUT.items() if re.fullmatch(pattern, reason)] or [reason]
        found[about[0]] += int(count.replace(",", ""))
    return found


@pytest.mark.parametrize("examples", _SIZES)
def test_rows_read_are_rows_stored_and_rows_left_out_by_reason(tmp_path_factory: Any, examples: int) -> None:
    """The figures of a report are those of a plain count, and the archive has the stored rows and no other."""

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(files())
    def holds(drawn: tuple[Shape, list[str], list[tuple[list[Any], str]], str, bool]) -> None:
        shape, names, rows, form, in_cents = drawn
        folder = tmp_path_factory.mktemp("drawn")
        _write(path := folder / f"rain.{form}", names, [row for row, _ in rows])
        archive = md.Archive(folder / "archive", frame="polars")
        report = archive.add_files(path).row(0, named=True)
        wanted = Counter(fate for _, fate in rows)
        assert (report["rows"], report["stored"]) == (len(rows), wanted.pop("stored"))
        assert _reasons(report) == wanted
        assert report["left_out"] == wanted.total()
        roles = [*shape.columns]
        market = "m" if "market" in roles else "rain" if "rest" in roles else T
        stored = getattr(archive, shape.view)(market)
        shown = next(r for r in ("price", "bid", "bids", "volume") if r in roles)
        column = {"price": "price", "bid": "best_bid", "bids": "price", "volume": "volume"}[shown]
        if shown == "price" and shape.view == "prices" and {"rest", "label"} & {*roles} == {"rest"}:
            stored = stored.filter(token_label="Yes")
        if "yes_price" in names:
            stored = stored.filter(token_label="Yes")
        if shape.view == "books":
            stored = stored.filter(pl.col("price").is_not_null())
        expected = sorted(
            {i: _number(row[roles.index(shown)], in_cents=in_cents) for i, (row, fate) in enumerate(rows)
             if fate == "stored"}.items()
        )  # fmt: skip
        if shape is SHAPES["changes"]:  # a book stays until the next one
            stored = stored.filter(((pl.col("ts").dt.epoch("s") - S) // 60).is_in([i for i, _ in expected]))
        assert [(t // 60, v) for t, v in stored.select(pl.col("ts").dt.epoch("s") - S, column).rows()] == [
            (i, pytest.approx(value)) for i, value in expected
        ]

    holds()


def _number(text: str, *, in_cents: bool) -> float:
    return json.loads(text)[0][0] if text.startswith("[[") else float(text) / (100 if in_cents else 1)


_KINDS = ["book", "change", "old change", "changes", "trade", "tick", "damaged", "cut", "no time", "wrong side"]


def _message(kind: str, token: str, at: int, cents: int) -> Any:
    stamp = {"timestamp": str(at * 1000)}
    level = {"price": str(cents / 100), "size": str(cents), "side": "BUY"}
    if kind in ("book", "damaged", "no time"):
        bids: Any = [{"price": level["price"], "size": "x" if kind == "damaged" else "5"}]
        message = {"event_type": "book", "asset_id": token, "market": MARKET, "bids": bids, "asks": [], **stamp}
        return {n: v for n, v in message.items() if kind != "no time" or n != "timestamp"}
    if kind in ("change", "wrong side"):
        side = "BUY" if kind == "change" else "up"
        changes = [{"asset_id": token, **level, "side": side}]
        return {"event_type": "price_change", "market": MARKET, "price_changes": changes, **stamp}
    if kind == "old change":
        return {"event_type": "price_change", "asset_id": token, "market": MARKET, "changes": [level], **stamp}
    if kind == "changes":
        changes = [{"asset_id": one, **level} for one in (T, T2)]
        return {"event_type": "price_change", "market": MARKET, "price_changes": changes, **stamp}
    if kind == "trade":
        return {"event_type": "last_trade_price", "asset_id": token, "market": MARKET, **level, **stamp}
    if kind == "tick":
        return {"event_type": "tick_size_change", "asset_id": token, "market": MARKET, "new_tick_size": "1", **stamp}
    return "{"


@pytest.mark.parametrize("examples", _SIZES)
def test_messages_read_are_messages_stored_and_messages_left_out(tmp_path_factory: Any, examples: int) -> None:
    """A dictionary of levels that goes through the messages one by one has the same counts and the same books."""
    messages = st.lists(
        st.tuples(st.sampled_from([*_KINDS, "book", "change", "changes"]), st.sampled_from([T, T2]),
                  st.integers(1, 40), st.integers(1, 99), st.sampled_from(["bare", "list", "msg", "text"])),
        min_size=1, max_size=25,
    )  # fmt: skip

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(messages)
    def holds(drawn: list[tuple[str, str, int, int, str]]) -> None:
        drawn = [("book", T, 1, 50, "bare"), *drawn, ("book", T, 1, 50, "bare")]
        at, lines, held = S, [], []
        for kind, token, step, cents, around in drawn:
            at += step
            message = _message(kind, token, at, cents)
            held.append((kind, token, at, cents))
            wrapped = {"list": [message], "msg": {"msg": message}, "text": {"raw": json.dumps(message)}}
            lines.append("{" if kind == "cut" else json.dumps(wrapped.get(around, message)))
        folder = tmp_path_factory.mktemp("drawn")
        (path := folder / "messages.jsonl").write_text("\n".join(lines))
        archive = md.Archive(folder / "archive", frame="polars")
        report = archive.add_files(path).row(0, named=True)
        wanted, books = _in_plain_python(held)
        assert (report["rows"], report["stored"]) == (len(drawn), wanted.pop("stored"))
        assert _reasons(report) == wanted
        assert report["left_out"] == wanted.total()
        rows = archive.books(MARKET).drop_nulls("price").select("token_id", pl.col("ts").dt.epoch("s"), "price", "size")
        found: dict[Any, dict[float, float]] = {}
        for token, time, price, size in rows.rows():
            found.setdefault((token, time), {})[price] = size
        assert found == {key: levels for key, levels in books.items() if levels}

    holds()


def _in_plain_python(held: list[tuple[str, str, int, int]]) -> tuple[Counter[str], dict[Any, dict[float, float]]]:
    """The count of what becomes of the messages, and the bids of each token at the end of each minute."""
    counts: Counter[str] = Counter()
    levels: dict[str, dict[float, float]] = {}
    books: dict[Any, dict[float, float]] = {}
    end = held[-1][2]
    for number, (kind, token, at, cents) in enumerate(held):
        if kind == "book":
            levels[token] = {cents / 100: 5.0}
            counts["stored"] += 1
        elif kind in ("change", "old change", "changes"):
            known = [one for one in ((T, T2) if kind == "changes" else (token,)) if one in levels]
            counts["stored" if known else "no book"] += 1
            for one in known:
                levels[one][cents / 100] = float(cents)
        else:
            named = {"trade": "last_trade_price", "tick": "tick_size_change"}
            counts[named.get(kind, "value")] += 1
        until = held[number + 1][2] if number + 1 < len(held) else end + 1
        for minute in range(at // 60 * 60, until // 60 * 60 + 1, 60):
            if minute <= end:
                books |= {(one, minute): dict(found) for one, found in levels.items()}
    return counts, books


@pytest.mark.parametrize("examples", _SIZES)
def test_records_read_are_records_stored_and_records_left_out(tmp_path_factory: Any, examples: int) -> None:
    """An archive has one record for each id; what only an earlier row of an id says stays."""
    row = st.tuples(st.sampled_from("abcd"), st.sampled_from(["whole", "whole", "bare", "no id", "no row"]))

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(row, max_size=9), st.sampled_from(["json", "jsonl", "csv"]))
    def holds(drawn: list[tuple[str, str]], form: str) -> None:
        drawn = [("a", "whole"), *(one for one in drawn if one[1] != "no row" or form == "json"), ("b", "whole")]
        rows: list[Any] = []
        for name, kind in drawn:
            tokens = json.dumps([f"{i}{ord(name)}" * 12 for i in (1, 2)]) if kind == "whole" else None
            named = {"id": name if kind != "no id" else None, "question": f"{name} {len(rows)}?"}
            record = {**named, "clobTokenIds": tokens, "outcomes": tokens and '["Yes", "No"]'}
            rows.append(record if kind != "no row" else 5)
        folder = tmp_path_factory.mktemp("drawn")
        path = folder / f"records.{form}"
        if form == "csv":
            pl.DataFrame(rows).write_csv(path)
        else:
            path.write_text(json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows)))
        archive = md.Archive(folder / "archive", frame="polars")
        report = archive.add_files(path).row(0, named=True)
        good = [i for i, (_, kind) in enumerate(drawn) if kind in ("whole", "bare")]
        last = {drawn[i][0]: i for i in good}
        wanted = Counter({"id": sum(k == "no id" for _, k in drawn), "value": sum(k == "no row" for _, k in drawn),
                          "copy": len(good) - len(last)})  # fmt: skip
        assert (report["rows"], report["stored"], _reasons(report)) == (len(drawn), len(last), +wanted)
        assert report["left_out"] == wanted.total()
        has_tokens = {name for name, kind in drawn if kind == "whole"}
        stored = archive.markets().select("market_id", "question", pl.col("token_ids").list.len()).rows()
        assert sorted(stored) == sorted((n, f"{n} {i}?", 2 * (n in has_tokens)) for n, i in last.items())

    holds()


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
@pytest.mark.parametrize("unit", [1, 100])
def test_a_text_that_is_no_price_is_no_missing_price(tmp_path: Path, dtype: Any, unit: int) -> None:
    """It is left out and counted, whatever the unit of the prices and the type of their column."""
    prices = pl.Series([*(str(k / 100 * unit) for k in range(2, 12)), "n/a", None], dtype=pl.String).cast(dtype)
    ids = [T] * len(prices)
    frame = pl.DataFrame({"ts": [S + 60 * k for k in range(len(ids))], "token_id": ids, "price": prices})
    frame.write_parquet(path := tmp_path / "prices.parquet")
    report = md.Archive(tmp_path / "archive", frame="polars").add_files(path).row(0, named=True)
    assert (report["rows"], report["stored"]) == (12, 11)
    assert "1 whose price is no number" in report["reasons"]
