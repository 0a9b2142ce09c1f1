from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import tables
from reference.kinds import FRAME_KINDS, ID_COLUMNS, close, few, of_kind, rows

import marketdata as md
from marketdata.points import resample as runs
from marketdata.points.columns import Columns, Token
from marketdata.points.resample import resample_columns
from marketdata.resolution import BucketWidth, Resolution
from marketdata.testing.strategies import book_columns, metric_columns, price_columns
from marketdata.tidy.frames import to_columns, to_frame

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.UnweightedMeanWarning")
resolutions = st.sampled_from(list(Resolution))


def exact_means(columns: Any, width: int) -> dict[tuple[int, int, str], tuple[Fraction | None, int]]:
    """Brute force: the mean of each value in exact fractions, and its count."""
    found: dict[tuple[int, int, str], list[Fraction]] = defaultdict(list)
    for name, values in columns.values.items():
        for i, value in enumerate(values):
            key = (int(columns.token[i]), int(columns.ts[i]) // width * width, name)
            found[key] += [] if math.isnan(value) else [Fraction(float(value))]
    return {k: ((sum(v) / len(v)) if v else None, len(v)) for k, v in found.items()}


@few
@given(
    kind=st.sampled_from(FRAME_KINDS),
    books=st.one_of(book_columns(), book_columns(step=7_000_000)),
    resolution=resolutions,
)
def test_the_last_whole_book_of_each_bucket_is_kept(kind: str, books: Any, resolution: Resolution) -> None:
    """Resampled books are the last snapshots that a query of polars finds, on regular times and on others."""
    frame = of_kind(books, kind)
    assert rows(md.resample(frame, resolution)) == rows(tables.last_books(of_kind(books, "polars"), str(resolution)))


@given(kind=st.sampled_from(FRAME_KINDS), columns=st.one_of(price_columns(), metric_columns()), resolution=resolutions)
def test_means_are_exact_sums_over_counts(kind: str, columns: Any, resolution: Resolution) -> None:
    """Each mean equals the exact fraction to 1e-12, its count is right, and no row is lost or invented."""
    out = nw.from_native(md.resample(of_kind(columns, kind), resolution))
    out = out.collect() if isinstance(out, nw.LazyFrame) else out
    want = exact_means(columns, resolution.micros)
    places = {t: i for i, t in enumerate(columns.tokens)}
    stamps = out["ts"].dt.timestamp("us").to_list()
    who = [c for c in ID_COLUMNS if c in out.columns]
    ids = list(zip(*(out[c].cast(nw.String).to_list() for c in who), strict=True))
    got = {
        (places[type(columns.tokens[0])(*key)], ts, name): (value, count)
        for name in columns.values
        for key, ts, value, count in zip(ids, stamps, out[name].to_list(), out[name + "_count"].to_list(), strict=True)
    }
    assert got.keys() == want.keys()
    for key, (mean, count) in want.items():
        value, n = got[key]
        assert n == count
        assert (value is None or math.isnan(value)) if mean is None else math.isclose(value, mean, rel_tol=1e-12)


@few
@given(
    kind=st.sampled_from(["pandas", "polars", "lazy"]),
    columns=st.one_of(price_columns(), metric_columns()),
    path=st.lists(resolutions, min_size=1, max_size=2),
)
def test_means_compose_over_any_path(kind: str, columns: Any, path: list[Resolution]) -> None:
    """Resampling in steps equals resampling at once, because counts are carried."""
    frame = of_kind(columns, kind)
    steps = sorted({*path, Resolution.D1}, key=lambda r: r.micros)
    out = frame
    for step in steps:
        out = md.resample(out, step)
    assert close(rows(out), rows(md.resample(frame, "1d")))


@few
@given(columns=price_columns(), fill=st.sampled_from(["null", "forward"]))
def test_a_filled_bucket_has_no_weight_in_later_means(columns: Any, fill: str) -> None:
    """Days made of filled hours are the days made of the hours that were observed."""
    frame = to_frame(columns, "polars")
    hours = md.resample(frame, "1h", fill=fill).drop("observed")
    days, direct = (md.resample(f, "1d").filter(pl.col("price_count") > 0) for f in (hours, frame))
    assert days["price"].to_list() == pytest.approx(direct["price"].to_list(), rel=1e-12, abs=1e-15)
    assert days["price_count"].to_list() == direct["price_count"].to_list()


@given(columns=st.one_of(book_columns(), price_columns(), metric_columns()), resolution=resolutions)
def test_columns_and_frames_follow_one_rule(columns: Any, resolution: Resolution) -> None:
    """The rule on columns, which the service and the archive use, equals the rule on frames."""
    frame = to_frame(columns, "polars")
    want = to_frame(resample_columns(columns, resolution), "polars")
    assert close(rows(md.resample(frame, resolution).select(want.columns)), rows(want))


@few
@given(
    kind=st.sampled_from(["pandas", "polars", "lazy", "arrow"]),
    columns=st.one_of(book_columns(), price_columns(), metric_columns()),
)
def test_frames_and_columns_are_each_others_inverse(kind: str, columns: Any) -> None:
    """A frame read back as columns gives the same frame again."""
    back = to_columns(md.points.views.view_of(columns), of_kind(columns, kind))
    assert rows(to_frame(back, "polars")) == rows(to_frame(columns, "polars"))


@pytest.mark.parametrize("lost", ["side", "size"])
def test_books_that_lack_a_column_are_not_averaged_as_prices(lost: str) -> None:
    """Levels without their side, level or size are refused with the name of what is missing."""
    books = to_frame(md.points.views.empty("books"), "polars").drop(lost)  # type: ignore[attr-defined]
    for verb in (lambda f: md.resample(f, "1h"), md.probabilities, md.check):
        with pytest.raises(md.errors.NotTidyError, match=f"needs the columns .*'{lost}'"):
            verb(books)


def test_books_without_levels_are_no_prints() -> None:
    """Their columns are those of prints; their sides tell that they are none."""
    books = md.testing.books("polars").drop("level")
    with pytest.raises(md.errors.NotTidyError, match="bid and ask are those of a book"):
        md.resample(books, "1h")
    with pytest.raises(md.errors.NotTidyError, match="takes books"):
        md.probabilities(books)
    checked = md.check(books)
    assert checked.filter(pl.col("check") == "unknown_side")["n_failed"].item() == len(books)


def test_prices_that_are_texts_are_refused() -> None:
    """A price column of texts is no price: it is refused, not left out of the means."""
    prices = to_frame(md.points.views.empty("prices"), "polars")  # type: ignore[attr-defined]
    with pytest.raises(md.errors.NotTidyError, match=r"price contains String, not numbers"):
        md.resample(prices.with_columns(pl.col("price").cast(pl.String)), "1h")


@given(
    steps=st.lists(st.sampled_from([0, 1, 20, 60, 61, 3_600, 50_000]), min_size=1, max_size=6),
    repeats=st.integers(1, 3_000),
    offset=st.integers(0, 7_200),
    width=resolutions,
)
def test_long_frames_have_the_buckets_of_a_division(
    steps: list[int], repeats: int, offset: int, width: Resolution
) -> None:
    """Buckets of many rows, whose starts are searched, begin where one division over all rows says."""
    gaps = np.repeat(np.array(steps, np.int64), repeats) * 1_000_000
    ts = 1_767_225_600_000_000 + offset * 1_000_000 + np.cumsum(gaps)
    long = np.concatenate([ts, ts, np.tile(ts[-1:], 2_000)])
    groups = np.array([0, len(ts), 2 * len(ts)])
    changed = np.diff(long // width.micros) != 0
    changed[groups[1:] - 1] = True
    edges = [0, *(np.flatnonzero(changed) + 1), len(long)]
    columns = Columns(tuple(map(Token, "abc")), np.append(groups, len(long)), long)
    assert runs.buckets(columns, BucketWidth.of(str(width))).tolist() == edges
