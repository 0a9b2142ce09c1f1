"""Time: nothing is seen before it is known, no hole is missed, nothing is invented."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import coded_series
from reference.kinds import KINDS, close, few, of_kind, rows

import marketdata as md
from marketdata.points.columns import Series, Token
from marketdata.points.views import VIEWS, view_of
from marketdata.resolution import Resolution
from marketdata.testing.strategies import MINUTE, START, metric_columns, nullable, price_columns
from marketdata.tidy.frames import to_frame
from marketdata.times import to_datetime

TOKENS = (Token("m", "1", "No"), Token("m", "2", "Yes"))


@st.composite
def ticks(draw: st.DrawFn, most: int = 40) -> Series:
    """Prices of two tokens on a short grid of minutes, so that times meet."""
    found = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, most)), unique=True, max_size=12))
    found.sort()
    return coded_series(
        TOKENS,
        np.array([i for i, _ in found], np.int32),
        np.array([START + k * MINUTE for _, k in found], np.int64),
        {"price": np.array([draw(nullable) for _ in found], float)},
    )


def points(columns: Series) -> list[tuple[int, Token, float | None]]:
    values = (None if math.isnan(p) else float(p) for p in columns.price)
    return [(int(t), columns.tokens[i], p) for t, i, p in zip(columns.ts, columns.token, values, strict=True)]


@given(
    kind=st.sampled_from(KINDS),
    left=ticks(),
    right=ticks(),
    exact=st.booleans(),
    resolution=st.sampled_from(["1m", "10m"]),
)
def test_a_join_sees_what_was_known_and_no_more(kind: str, left: Any, right: Any, exact: bool, resolution: str) -> None:
    """Each row meets the last row of its token whose bucket had ended, as a plain search finds it."""
    width = Resolution.of(resolution).micros
    want = []
    for ts, token, price in points(left):
        known = [(t, p) for t, who, p in points(right) if who == token and (t + width < ts + exact)]
        at, value = max(known, default=(None, None), key=lambda k: k[0])
        want.append((ts, *token, price, at, value, None if at is None else at + width))
    out = md.asof_join(of_kind(left, kind), of_kind(right, kind), width=resolution, allow_exact_matches=exact)
    assert [stamped(row) for row in rows(out)] == want


def stamped(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Times as microseconds, what is not a time or number as None."""
    zero, one = to_datetime(0), to_datetime(1)
    plain = (None if v is None or str(v) in {"NaT", "nan"} else v for v in row)
    return tuple((v - zero) // (one - zero) if hasattr(v, "tzinfo") else v for v in plain)


@given(
    kind=st.sampled_from(["pandas", "polars", "lazy", "arrow"]),
    left=ticks(),
    right=ticks(),
    cut=st.integers(0, 40),
    data=st.data(),
)
def test_no_look_ahead(kind: str, left: Any, right: Any, cut: int, data: st.DataObject) -> None:
    """Whatever is changed in rows that are known only at a time or later, joins before it stay the same."""
    moment = START + cut * MINUTE
    late = right.ts + MINUTE >= moment
    price = np.where(late, data.draw(st.floats(0, 1)), right.price)
    changed = coded_series(right.tokens, right.token, right.ts, {"price": price})
    dropped = right.take(np.flatnonzero(~late))
    frame = of_kind(left, kind)

    def before(known: Any) -> list[tuple[Any, ...]]:
        return [r for r in rows(md.asof_join(frame, of_kind(known, kind), width="1m")) if r[0] <= moment]

    assert before(right) == before(changed) == before(dropped)


@few
@given(columns=ticks(), cut=st.integers(0, 40), how=st.sampled_from(["simple", "change", "log", "log_odds"]))
def test_series_do_not_look_ahead(columns: Any, cut: int, how: str) -> None:
    """Returns and grids filled from before are the same for a frame that ends at a time."""
    moment = START + cut * MINUTE
    whole, head = to_frame(columns, "polars"), to_frame(columns.between(0, moment), "polars")
    rng = {"start": to_datetime(START), "end": to_datetime(START + 41 * MINUTE), "fill": "forward"}

    def early(out: Any) -> list[tuple[Any, ...]]:
        return [r for r in rows(out) if r[0] < moment and r[2] in set(head["token_id"])]

    assert early(md.returns(whole, how=how)) == early(md.returns(head, how=how))
    assert early(md.align(whole, "1m", **rng)) == early(md.align(head, "1m", **rng))  # type: ignore[arg-type]


def test_metrics_join_prices_by_market() -> None:
    """A frame without tokens is joined by market, and its ids are not doubled."""
    archive = md.simulate(events=1, days=1)
    market = archive.records("markets")[0]["id"]
    polars_archive = md.Archive(archive.location, frame="polars")
    prices, metrics = polars_archive.prices(market), polars_archive.metrics(market)
    out = md.asof_join(prices, metrics, width="1m")
    names = ["ts", "market_id", "token_id", "token_label", "price"]
    assert out.columns == [*names, "ts_right", "volume", "liquidity", "spread", "available_at"]
    assert out.select(names).equals(prices.select(names))
    assert (out["available_at"] < out["ts"]).all()


def test_a_join_refuses_what_it_can_not_know() -> None:
    """Books, two kinds of frames and an unknown bucket width each have their error."""
    archive = md.simulate(events=1, days=1, frame="polars")
    market = archive.records("markets")[0]["id"]
    books, prices = (getattr(archive, v)(market) for v in ("books", "prices"))
    with pytest.raises(md.errors.NotTidyError, match="bbo"):
        md.asof_join(prices, books, width="1m")
    with pytest.raises(md.errors.ConfigError, match="available_at"):
        md.asof_join(prices, prices)
    with pytest.raises(md.errors.ConfigError, match=r"left is polars DataFrame, right is polars LazyFrame.*one kind"):
        md.asof_join(prices, prices.lazy(), width="1m")
    with pytest.raises(md.errors.NotTidyError, match="moment"):
        md.asof_join(prices, prices, width="1m", on="moment")
    assert len(md.asof_join(prices, md.bbo(books), width="1m")) == len(prices)


@given(kind=st.sampled_from(KINDS), columns=st.one_of(price_columns(), metric_columns()))
def test_gaps_are_the_missing_minutes(kind: str, columns: Any) -> None:
    """Rows and holes of a token together cover every minute from its first to its last row, once."""
    holes = nw.from_native(md.gaps(of_kind(columns, kind), "1m"))
    out = rows(holes.rename({"start": "ts"}).to_native())
    ids = len(VIEWS[view_of(columns)].ids)
    have: dict[Any, set[int]] = {}
    for i, ts in enumerate(columns.ts):
        have.setdefault(tuple(columns.tokens[columns.token[i]])[:ids], set()).add(int(ts) // MINUTE)
    missing: dict[Any, set[int]] = {}
    for row in out:
        start, who, end, count = row[0], row[1 : 1 + ids], row[1 + ids], row[2 + ids]
        hole = set(range(start // MINUTE, stamped((end,))[0] // MINUTE))
        assert len(hole) == count
        missing.setdefault(who, set()).update(hole)
    for who, minutes in have.items():
        assert missing.get(who, set()) == set(range(min(minutes), max(minutes))) - minutes


@given(
    kind=st.sampled_from(["pandas", "polars", "lazy", "arrow", "shuffled pandas"]),
    columns=ticks(),
    fill=st.sampled_from(["null", "forward"]),
)
def test_a_grid_holds_every_minute_and_says_what_was_seen(kind: str, columns: Any, fill: str) -> None:
    """Each token has each minute; a filled row repeats the whole row before, or is null, and is marked."""
    seen = {(token, ts): price for ts, token, price in points(columns)}
    stamps = [ts for _, ts in seen]
    want = []
    for token in sorted({t for t, _ in seen}):
        last = None
        for ts in range(min(stamps), max(stamps) + 1, MINUTE):
            there = (token, ts) in seen
            last = seen[token, ts] if there else last if fill == "forward" else None
            want.append((ts, *token, last, there))
    assert rows(md.align(of_kind(columns, kind), "1m", fill=fill)) == want


def test_align_refuses_what_does_not_fit() -> None:
    """Rows off the grid, books, and an unknown fill each have their error; an empty frame stays empty."""
    columns = coded_series(TOKENS, np.zeros(1, np.int32), np.array([START + MINUTE]), {"price": np.array([0.5])})
    frame = to_frame(columns, "polars")
    with pytest.raises(md.errors.ConfigError, match=r"resample\(frame, '1h'\)"):
        md.align(frame, "1h")
    with pytest.raises(md.errors.ConfigError, match="'forward'"):
        md.align(frame, "1m", fill="zero")
    with pytest.raises(md.errors.NotTidyError, match="bbo"):
        md.align(to_frame(md.points.views.empty("books"), "polars"), "1m")  # type: ignore[attr-defined]
    assert len(md.align(frame.clear(), "1m")) == 0
    assert md.align(frame, "1m", start="2026-01-01", end="2026-01-01T00:04")["observed"].to_list() == [
        False,
        True,
        False,
        False,
    ]


@given(kind=st.sampled_from(KINDS), columns=price_columns(), resolution=st.sampled_from(list(Resolution)))
def test_ohlc_equals_a_plain_walk(kind: str, columns: Any, resolution: Resolution) -> None:
    """First, greatest, least and last value of each bucket that has one."""
    found: dict[Any, list[float]] = {}
    for ts, token, price in points(columns):
        if price is not None:
            found.setdefault((token, ts // resolution.micros * resolution.micros), []).append(price)
    want = [(ts, *token, v[0], max(v), min(v), v[-1], len(v)) for (token, ts), v in sorted(found.items())]
    assert rows(md.ohlc(of_kind(columns, kind), resolution)) == want


@given(kind=st.sampled_from(KINDS), columns=price_columns(), near=st.booleans())
def test_returns_equal_a_loop(kind: str, columns: Any, near: bool) -> None:
    """Each move is exact, from the row before of the token; null where a value is, or across a hole if asked."""
    frame = of_kind(columns, kind)
    moves: dict[str, list[Any]] = {"simple": [], "change": [], "log": [], "log_odds": []}
    before: dict[Token, tuple[int, float | None]] = {}
    odds = [None if p is None or not 0 < p < 1 else math.log(p / (1 - p)) for _, _, p in points(columns)]
    logs: dict[Token, float | None] = {}
    for at, (ts, token, v) in enumerate(points(columns)):
        last, u = before.get(token, (ts, None))
        if near and ts - last != MINUTE:
            u = None
        both = v is not None and u is not None
        moves["change"].append(float(Fraction(v) - Fraction(u)) if both else None)
        moves["simple"].append(float(Fraction(v) / Fraction(u) - 1) if both and u else None)
        moves["log"].append(math.log(v / u) if both and u > 0 and v > 0 else None)  # type: ignore[operator]
        o, p = odds[at], logs.get(token)
        moves["log_odds"].append(o - p if both and o is not None and p is not None else None)
        before[token], logs[token] = (ts, v), o
    for how, want in moves.items():
        got = [r[-1] for r in rows(md.returns(frame, how=how, width="1m" if near else None))]
        assert close([(g,) for g in got], [(w,) for w in want], digits=1e-9, least=1e-12)


def test_a_value_that_is_not_there_is_refused() -> None:
    """The columns of numbers are named; of metrics one has to be chosen."""
    archive = md.simulate(events=1, days=1, frame="polars")
    metrics = archive.metrics(archive.records("markets")[0]["id"])
    with pytest.raises(md.errors.ConfigError, match="volume, liquidity, spread"):
        md.ohlc(metrics, "1h")
    with pytest.raises(md.errors.ConfigError, match="volume, liquidity, spread"):
        md.returns(metrics, "price")
    with pytest.raises(md.errors.ConfigError, match="'simple'"):
        md.returns(metrics, "volume", how="fast")
    assert len(md.ohlc(metrics, "1d", "volume"))
    with pytest.raises(md.errors.NotTidyError, match="ts"):
        md.gaps(pl.DataFrame({"market_id": ["m"]}), "1m")


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
def test_a_bucket_is_known_at_its_end(kind: str) -> None:
    """available_at is the start of the bucket and its width, whatever the zone of the frame."""
    columns = coded_series(TOKENS, np.zeros(1, np.int32), np.array([START]), {"price": np.array([0.5])})
    for resolution in Resolution:
        (row,) = rows(md.available_at(of_kind(columns, kind), resolution))
        assert stamped(row)[-1] == START + resolution.micros


@pytest.mark.parametrize("lazy", [False, True])
def test_ids_that_are_texts_join_ids_that_are_categories(*, lazy: bool) -> None:
    """A frame of a scan or of one's own, whose ids are plain text, joins one of a client, and the other way round."""
    archive = md.simulate(events=1, days=1)
    market = archive.records("markets")[0]["id"]
    polars_archive = md.Archive(archive.location, frame="polars")
    prices = polars_archive.prices(market, resolution="1h").select("ts", "token_id", "price")
    plain = prices.with_columns(pl.col("token_id").cast(pl.String))
    want = md.asof_join(prices, prices.rename({"price": "before"}), width="1h")
    for left, right in ((plain, prices), (prices, plain)):
        a, b = (f.lazy() if lazy else f for f in (left, right.rename({"price": "before"})))
        got = md.asof_join(a, b, width="1h")
        out = got.collect() if lazy else got
        assert out.schema["token_id"] == left.schema["token_id"]
        assert out["before"].to_list() == want["before"].to_list()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_join_takes_the_column_that_tells_when_rows_are_known(kind: Any) -> None:
    """With available_at on the right, no resolution is needed, and rows are those of the join with one."""
    prices = md.testing.prices(kind)
    known = md.available_at(prices, "1m")
    told, width = md.asof_join(prices, known), md.asof_join(prices, prices, width="1m")
    assert told["price_right"].equals(width["price_right"])
