"""Each fault that is put into a frame is named by the report, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import marketdata as md

HOURS = 3


def books() -> pl.DataFrame:
    """A sound market: two tokens, two hours of minutes, mirrored books that change every minute."""
    rows = []
    for minute in range(60 * HOURS):
        tick = minute % 7 / 1000
        for token, label, base in (("1", "No", 0.4 - tick), ("2", "Yes", 0.6 + tick)):
            for side, sign in (("bid", -1), ("ask", 1)):
                rows += [
                    (minute, "m", token, label, side, level, base + sign * (0.01 + level / 100), 10.0 + level)
                    for level in range(2)
                ]
    frame = pl.DataFrame(
        rows, schema=["ts", "market_id", "token_id", "token_label", "side", "level", "price", "size"], orient="row"
    )
    start = pl.datetime(2026, 1, 1, time_zone="UTC").dt.cast_time_unit("us")
    return frame.with_columns(ts=start + pl.duration(minutes="ts"))


def prices() -> pl.DataFrame:
    top = md.bbo(books())
    return top.select("ts", "market_id", "token_id", "token_label", price="mid")


yes = (pl.col("token_id") == "2") & (pl.col("side") == "bid")
top = pl.col("level") == 0
third = pl.col("ts").dt.minute() == 3


def at(rows: pl.Expr, **values: pl.Expr) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda f: f.with_columns(**{c: pl.when(rows).then(v).otherwise(pl.col(c)) for c, v in values.items()})


FAULTS: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], int]] = {
    "gaps": (lambda f: f.filter(~third), 2 * HOURS),
    "duplicates": (lambda f: pl.concat([f, f.filter(third & yes & top)]), HOURS),
    "outside_0_1": (at(third & yes & ~top, price=pl.lit(-0.5)), HOURS),
    "bad_size": (at(third & yes, size=pl.lit(0.0)), 2 * HOURS),
    "unsorted_levels": (at(third & yes & ~top, price=pl.lit(0.6)), HOURS),
    "one_sided": (lambda f: f.filter(~(third & yes)), HOURS),
    "crossed": (at(third & yes, price=pl.col("price") + 0.021), HOURS),
    "sums_far_from_1": (at((pl.col("token_id") == "2") & third, price=pl.col("price") + 0.2), HOURS),
    "stale": (at(pl.col("ts").dt.hour() == 1, price=pl.lit(0.5), size=pl.lit(1.0)), 2),
}


def found(report: Any) -> dict[str, int]:
    return dict(report.filter(pl.col("n_failed") > 0).select("check", "n_failed").rows())


def test_a_sound_frame_has_no_finding() -> None:
    """Every check applies, and none finds anything."""
    report = md.check(books(), "1m")
    assert found(report) == {}
    assert set(report["severity"]) == {"ok"}
    assert set(report["check"]) >= FAULTS.keys()
    assert found(md.check(prices())) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_counted(fault: str) -> None:
    """The report names the fault, its number is right, and an example shows it."""
    make, count = FAULTS[fault]
    report = md.check(make(books()), "1m")
    assert found(report)[fault] == count
    allowed = {"stale": {"stale", "locked", "sums_far_from_1"}}
    assert found(report).keys() <= allowed.get(fault, {fault})
    row = report.row(by_predicate=pl.col("check") == fault, named=True)
    assert row["examples"].startswith("2026-01-01T")
    assert row["severity"] in {"error", "warning", "info"}


def test_rows_off_the_grid_and_finer_rows_are_found() -> None:
    """Half minutes are no starts of minutes, and make steps that are too short."""
    frame = prices()
    extra = frame.filter(third).with_columns(ts=pl.col("ts") + pl.duration(seconds=30))
    report = found(md.check(pl.concat([frame, extra])))
    assert report["off_grid"] == 2 * HOURS
    assert report["mixed_resolutions"] == 4 * HOURS


def test_empty_and_locked_books_are_told_apart() -> None:
    """A book without levels is empty, not one-sided; equal best prices are locked, not crossed."""
    none = {c: pl.lit(None) for c in ("level", "price", "size")}
    frame = books().filter(~third | top)
    frame = at(third & (pl.col("token_id") == "2"), **none)(frame)
    frame = at((pl.col("ts").dt.minute() == 5) & (pl.col("token_id") == "1") & top, price=pl.lit(0.4))(frame)
    assert found(md.check(frame, "1m")) == {"empty": HOURS, "locked": HOURS}


@pytest.mark.parametrize("kind", ["pandas", "lazy", "arrow", "shuffled"])
def test_each_kind_of_frame_has_the_same_report(kind: str) -> None:
    """The report is of the kind of the frame, and says the same."""
    frame = FAULTS["crossed"][0](books())
    want = md.check(frame)
    make: dict[str, Callable[[], Any]] = {
        "pandas": lambda: md.check(frame.to_pandas()),
        "lazy": lambda: md.check(frame.lazy()).collect(),
        "arrow": lambda: pl.from_arrow(md.check(frame.to_arrow())),
        "shuffled": lambda: md.check(frame.sample(fraction=1, shuffle=True, seed=1)),
    }
    got = make[kind]()
    rows = got.to_dict("records") if kind == "pandas" else got.to_dicts()
    assert [(r["check"], r["severity"], r["n_failed"], r["n_checked"]) for r in rows] == want.drop(
        "meaning", "examples"
    ).rows()


def test_a_frame_without_rows_has_nothing_odd() -> None:
    """Nothing is found in nothing."""
    for frame in (books(), prices()):
        assert found(md.check(frame.clear())) == {}


def test_metrics_are_checked_too() -> None:
    """Holes and nulls of metrics are found."""
    minutes = prices().filter(pl.col("token_id") == "2", ~third)
    report = found(md.check(minutes.select("ts", "market_id", volume="price", liquidity=None, spread=0.1), "1m"))
    assert report["gaps"] == HOURS
    assert report["null"] == len(minutes)


def test_an_example_shows_further_columns_of_any_type() -> None:
    """Lists and arrays, of which none is equal to itself, are shown; NaN and null are null."""
    frame = md.testing.prices("polars", buckets=4)[[0, 3]]
    odd = frame.with_columns(tags=pl.lit([1, 2]), note=pl.lit(None), weight=float("nan"))
    for one in (odd, odd.to_pandas(), odd.to_arrow()):
        examples = md.check(one, "1m")["examples"]
        assert any("note=null weight=null" in str(text) and "tags=" in str(text) for text in examples), examples
