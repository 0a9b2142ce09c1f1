"""User errors with frames of other libraries: the result is right, or an error says what to do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

import narwhals as nw
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from reference.rows import T0, at, book, prices

import marketdata as md
from marketdata.adapters import frames
from marketdata.adapters.frame import Column
from marketdata.adapters.polars import PolarsFrame
from marketdata.resolution import BucketWidth, Resolution


def hourly(count: int = 4) -> pl.DataFrame:
    return prices([60 * i for i in range(count)])


def test_prices_joined_with_metrics_stay_prices_of_each_token() -> None:
    """A further column does not change what a frame is: both tokens keep their rows."""
    both = pl.concat([prices([1, 2, 70]), prices([1, 2, 70], token_id="2")])
    metrics = pl.DataFrame(
        {"ts": [at(0), at(30)], "market_id": "m", "volume": [1.0, 2], "liquidity": 3.0, "spread": 0.1}
    )
    joined = md.asof_join(both, metrics.with_columns(pl.col("ts").dt.cast_time_unit("us")), width="1m")
    out = md.resample(joined.drop("ts_right", "available_at"), "1h")
    assert out["token_id"].to_list() == ["1", "1", "2", "2"]


OF_MINUTES = {
    "available_at": lambda f: md.available_at(f, "1m"),
    "asof_join": lambda f: md.asof_join(f, f, width="1m"),
    "replay": lambda f: list(md.replay(prices=f, width="1m")),
    "gaps": lambda f: md.gaps(f, "1m"),
    "returns": lambda f: md.returns(f, width="1m"),
    "around": lambda f: md.around(f, f.head(0)[["ts", "market_id"]], before="1h", after="1h", width="1m"),
}
TO_MINUTES: dict[str, Callable[[Any], Any]] = {
    "resample": lambda f: md.resample(f, "1m"),
    "align": lambda f: md.align(f, "1m", fill="forward"),
    "ohlc": lambda f: md.ohlc(f, "10m"),
}


@pytest.mark.fault("FR3")
def test_hours_called_minutes_are_refused_with_the_evidence() -> None:
    """If all times are of wider buckets, the error has their number, their grid and the argument to give."""
    for frame in (hourly(), hourly().to_pandas()):
        for function in OF_MINUTES.values():
            with pytest.raises(
                md.errors.GridError, match=r"all 4 distinct times .* grid of 1h,.*Give width='1h'"
            ) as error:
                function(frame)
            assert error.value.argument == "width"
        for function in TO_MINUTES.values():
            with pytest.warns(
                md.errors.CoarseGridWarning, match=r"All 4 distinct times.* grid of 1h,.*Give width='1h'"
            ):
                function(frame)
    with pytest.warns(md.errors.CoarseGridWarning, match=r"All 3 distinct times .* grid of 10m"):
        md.gaps(prices([0, 10, 20]), "1m")


@pytest.mark.fault("FR5")
def test_one_sparse_token_changes_nothing_for_the_others() -> None:
    """A token whose few rows happen to be five minutes apart moves no row and is no reason for a warning."""
    dense, sparse = prices([float(i) for i in range(9)]), prices([0, 5, 10], token_id="2")

    def of_first(rows: Any) -> list[Any]:
        if isinstance(rows, list):
            return [e for e in rows if e.token_id == "1"]
        return rows.filter(token_id="1", **({"observed": True} if "observed" in rows.columns else {})).rows()

    for function in (OF_MINUTES | TO_MINUTES).values():
        assert of_first(function(pl.concat([dense, sparse]))) == of_first(function(dense))


def test_events_have_the_width_of_the_rows() -> None:
    """Hours called minutes are warned of, rows off the grid refused; widths of archives are taken, seconds too."""

    def export(frame: pl.DataFrame, width: str) -> Any:
        return md.to_nautilus(frame, SimpleNamespace(id="1.X", price_precision=9, size_precision=9), width)

    frame = pl.concat([book(60 * i) for i in range(3)])
    with pytest.raises(md.errors.GridError, match="grid of 1h"):
        list(export(frame, "1m"))
    assert len(list(export(frame, "1h"))) > 0
    seconds = pl.concat([book(i / 60) for i in (0, 1, 7)])
    with pytest.raises(md.errors.ConfigError, match=r"off the grid of 1m.*Give the bucket width of the rows"):
        list(export(seconds, "1m"))
    events = list(export(seconds, "1s"))
    assert events[0]["ts_event"] == (int(T0.timestamp()) + 1) * 10**9
    for width, minutes in (("5m", 5), ("4h", 240), ("1w", 10_080)):
        rows = pl.concat([book(minutes * i + 4 * 1440) for i in range(3)])
        assert len(list(export(rows, width))) > 0


RELABELLED: tuple[Callable[[pl.DataFrame], Any], ...] = (
    lambda rows: rows.with_columns(pl.col("token_label").cast(pl.Categorical)),
    pl.DataFrame.lazy,
    lambda rows: rows.to_pandas().astype({"token_id": "category", "token_label": "category"}),
    pl.DataFrame.to_arrow,
)


@pytest.mark.parametrize("later", ["YES!", None])
@pytest.mark.fault("FR10")
def test_a_token_has_the_label_of_its_newest_row_that_has_one(later: str | None) -> None:
    """Whether a label changes or is missing in a part of the rows: one token, with one row a bucket."""
    rows = md.testing.books("polars", buckets=4).with_columns(
        pl.col("market_id", "token_id", "token_label").cast(pl.String)
    )
    is_later = (pl.col("ts").dt.minute() >= 2) & (pl.col("token_id") == "11")
    labelled = rows.with_columns(token_label=pl.when(is_later).then(pl.lit(later)).otherwise("token_label"))
    for frame in (function(labelled) for function in RELABELLED):
        resampled = md.resample(md.resample(frame, "2m"), "1h")
        for out in (md.bbo(frame), md.returns(frame), md.nest(frame), resampled, md.ohlc(frame, "1h")):
            ids = nw.from_native(out).lazy().collect("polars").select(nw.col("token_id", "token_label").cast(nw.String))
            assert sorted(ids.unique().rows()) == [("11", later or "Yes"), ("12", "No")]
        assert len(ids) == 2


@pytest.mark.fault("FR6")
def test_widths_that_do_not_divide_are_refused() -> None:
    """Rows of 4h are in no bucket of 6h: the second would be known two hours after its bucket had ended."""
    frame = prices([0, 240, 480])
    for call in (
        lambda: md.resample(frame, "6h", width="4h"),
        lambda: md.resample(frame.lazy(), "6h", width="4h").collect(),
        lambda: md.resample(frame, "6h", fill="forward", width="4h"),
        lambda: md.align(frame, "6h", fill="forward", width="4h"),
        lambda: md.ohlc(frame, "6h", width="4h"),
    ):
        with pytest.raises(md.errors.ConfigError, match="4h does not divide 6h"):
            call()


@pytest.mark.parametrize(("own", "wanted"), [(10, "15m"), (10_080, "10d")])
@pytest.mark.fault("FR6")
def test_a_grid_that_does_not_divide_is_refused(own: int, wanted: str) -> None:
    """Without the argument all rows on a grid that cuts the wanted buckets are an error; with it they are not."""
    books = pl.concat([book(own * i + (4 * 1440 if own == 10_080 else 0)) for i in range(6)])
    with pytest.raises(md.errors.ConfigError, match=r"All 6 distinct times.*width="):
        md.resample(books, wanted)
    assert len(md.resample(books, wanted, width="1m"))
    assert len(md.resample(books[:3], wanted)), "few times are on a grid by chance"


def test_finer_rows_need_a_fill() -> None:
    """Hours that are said to be hours become minutes with fill only."""
    for function in (md.resample, md.align, md.ohlc):
        with pytest.raises(md.errors.ConfigError, match=r"finer than the rows, which are of 1h; fill='forward'"):
            function(hourly(), "1m", width="1h")


def test_a_given_width_is_not_warned_of() -> None:
    """With width= the frame has that width, whatever its times look like."""
    rows = md.resample(hourly(), "1m", width="1m").select("ts", "price").rows()
    assert rows == hourly().select("ts", "price").rows()
    assert md.align(hourly(), "1h", width="1h")["observed"].all()


def test_upsampled_rows_are_not_there_before_they_were_known() -> None:
    """With a fill an hour appears when it has ended, in resample and align."""
    for verb in (md.resample, md.align):
        out = verb(hourly(), "1m", fill="forward", width="1h")  # type: ignore[operator]
        known = hourly().select(pl.col("ts") + pl.duration(hours=1), latest="price")
        joined = out.join_asof(known, on="ts")
        assert joined["price"].equals(joined["latest"], null_equal=True)
        assert out["ts"].min() == at(60)


@pytest.mark.parametrize("seconds", [1, 30])
def test_functions_take_seconds(seconds: int) -> None:
    """Recordings of seconds are resampled, aligned, joined, replayed and counted as such."""
    frame, width = prices([i * seconds / 60 for i in (0, 1, 2, 7)]), f"{seconds}s"
    assert md.resample(frame, width)["ts"].to_list() == frame["ts"].to_list()
    assert md.align(frame, width, fill="forward").height == 8
    assert md.gaps(frame, width)["missing"].to_list() == [4]
    assert md.ohlc(frame, width).height == 4
    assert md.returns(frame, width=width)["returns"].null_count() == 2
    known = frame["ts"] + dt.timedelta(seconds=seconds)
    assert md.available_at(frame, width)["available_at"].to_list() == known.to_list()
    assert [e.available_at for e in md.replay(prices=frame, width=width)] == known.to_list()
    joined = md.asof_join(frame, frame, width=width, allow_exact_matches=True)
    assert joined["price_right"].to_list() == [None, *frame["price"].to_list()[:3]]
    report = md.check(frame, width).filter(pl.col("check").is_in(["off_grid", "mixed_resolutions"]))
    assert report["n_failed"].to_list() == [0, 0]


@pytest.mark.fault("FR9")
def test_join_columns_do_not_overwrite() -> None:
    """A suffix that would give a column of the result the name of another one is refused."""
    frame = prices([0, 1, 2])
    for left, suffix in ((frame, ""), (frame.with_columns(price_right=9.0), "_right")):
        for one, other in ((left, frame), (left.lazy(), frame.lazy())):
            with pytest.raises(md.errors.ConfigError, match="in the result twice"):
                pl.DataFrame() if md.asof_join(one, other, width="1m", suffix=suffix) is None else None


@pytest.mark.parametrize("by", [None, (), "market_id"])
def test_market_rows_are_joined_with_token_rows(by: Any) -> None:
    """Metrics take the latest price of any token that was known; prices of two tokens at one time are refused."""
    metrics = pl.DataFrame({"ts": [at(0), at(5)], "market_id": "m", "volume": 1.0, "liquidity": 1.0, "spread": 0.1})
    metrics = metrics.with_columns(pl.col("ts").dt.cast_time_unit("us"))
    right = pl.concat([prices([0, 1, 2], [0.1, 0.2, 0.3]), prices([3], [0.7], token_id="0", token_label="No")])
    for one in (right, right.reverse()):
        out = md.asof_join(metrics, one, by=by, width="1m")
        assert out["price"].to_list() == [None, 0.7]
    with pytest.raises(md.errors.NotTidyError, match="right has two different rows"):
        md.asof_join(metrics, pl.concat([right, prices([3])]), by=by, width="1m")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (pl.col("side").str.to_uppercase(), r"also contains \['ASK', 'BID'\].*lower case"),
        (pl.lit(None, pl.String).alias("side"), "side is null in 2 rows"),
        ((pl.col("level") + 1).alias("level"), "Levels of a side are 0, 1, 2"),
        (pl.when(pl.col("side") == "ask").then("price").alias("price"), "a size and no price"),
        (pl.when(pl.col("side") == "ask").then("size").alias("size"), "a price and no size"),
        (pl.col("price").cast(pl.String), "price contains String, not numbers"),
        (pl.lit(1.0).alias("token_id"), "token_id contains Float64, not text"),
    ],
    ids=["upper case", "null side", "from 1", "no price", "no size", "text", "float ids"],
)
def test_a_book_that_cannot_be_read_is_refused(change: Any, match: str) -> None:
    """In any order of rows the same fault has the same error, which says what to do."""
    frame = book().with_columns(change)
    for rows in (frame, frame.reverse()):
        for call in (md.bbo, md.depth, partial(md.resample, resolution="1h"), partial(md.to_wide, levels=2)):
            with pytest.raises(md.errors.NotTidyError, match=match):
                call(rows)


def test_a_snapshot_in_two_frames_is_refused() -> None:
    """A stream of frames that was cut within a snapshot would tell it twice."""
    whole = book()
    with pytest.raises(md.errors.NotTidyError, match="cut them between"):
        list(md.replay(books=[whole.filter(side="bid"), whole.filter(side="ask")], width="1m"))
    assert len(list(md.replay(books=[whole, book(1)], width="1m"))) == 2


def test_frames_take_any_width_that_divides_a_day_and_a_service_does_not() -> None:
    """Frames are resampled to it; a client's resolution says that an archive and resample can."""
    for width, seconds in (
        *(("5m", 300), ("5min", 300), ("60min", 3600), ("1H", 3600), ("12h", 43_200), ("3d", 259_200), ("1w", 604_800)),
        *((dt.timedelta(minutes=15), 900), (pd.Timedelta("2h"), 7200)),
    ):
        assert BucketWidth.of(width).micros == seconds * 10**6
        ts = md.resample(prices([0, 7, 16_000]), width)["ts"].dt.timestamp("us").to_numpy()
        assert (ts == BucketWidth.of(width).floor(ts)).all()
        with pytest.raises(md.errors.ConfigError, match=r"the service has 1m.*df\.md\.resample take"):
            Resolution.of(width)


def test_a_width_that_does_not_divide_a_day_is_refused() -> None:
    """Seven minutes would begin somewhere else each day."""
    odd: tuple[Any, ...] = (60, None, dt.timedelta(hours=5), pd.Timedelta(3_600_000_000_001))
    for width in ("7m", "0h", "5h", "2w", "7s", "1.5h", "m", "-1h", "1M", "200ms", *odd):
        with pytest.raises(md.errors.ConfigError, match="divide a day"):
            md.resample(prices([0]), width)


def test_a_join_by_time_alone_takes_data_about_no_market() -> None:
    """With by=() an index joins every token, and a tolerance leaves out what is too old."""
    index = pl.DataFrame({"ts": [at(0), at(30)], "value": [1.0, 2.0]}).with_columns(
        pl.col("ts").dt.cast_time_unit("us")
    )
    left = pl.concat([prices([5, 100]), prices([5, 100], market_id="n")])
    out = md.asof_join(left, index, by=(), width="1m")
    assert out["value"].to_list() == [1.0, 2.0, 1.0, 2.0]
    near = md.asof_join(left, index, by=(), width="1m", tolerance="30m")
    assert near["value"].to_list() == [1.0, None, 1.0, None]
    assert near.equals(md.asof_join(left, index, by=(), width="1m", tolerance=dt.timedelta(minutes=30)))


def test_a_column_of_another_meaning_is_refused_by_name() -> None:
    """Periods are no times, durations no prices: NotTidyError, which names the column."""
    frame = md.testing.prices("pandas").assign(side="bid", level=0, size=1.0)
    count = len(frame)
    for values in (
        pd.period_range("2026-01-01", periods=count, freq="min"),
        pd.to_timedelta(range(count), "min"),
        pd.interval_range(0, count),
        [[1.0]] * count,
        [b"1"] * count,
    ):
        for column in ("ts", "price", "token_id", "side"):
            with pytest.raises(md.errors.NotTidyError, match=column):
                md.bbo(frame.assign(**{column: values}))


def test_sparse_numbers_are_numbers() -> None:
    """A sparse column of pandas is read as the column that it stands for."""
    frame = md.testing.prices("pandas")
    want = md.resample(frame, "1h")
    assert md.resample(frame.assign(price=pd.arrays.SparseArray(frame["price"])), "1h").equals(want)


@pytest.mark.filterwarnings("error")
def test_infinite_prices_are_refused() -> None:
    """A level without end is refused in one sentence, and no warning of arithmetic."""
    with pytest.raises(md.errors.NotTidyError, match="price is inf, outside of 0 to 1"):
        md.bbo(md.testing.books("pandas").assign(price=float("inf")))


def test_an_arrow_batch_and_a_reader_are_taken_as_tables() -> None:
    """One record batch, and a reader of batches, give what their table gives, on a regular grid too."""
    table = prices([0, 1, 3]).to_arrow()
    verbs = (lambda f: md.resample(f, "1h"), lambda f: md.align(f, "1m", fill="forward"), md.check)
    for verb in verbs:
        want = verb(table)
        batch = table.combine_chunks().to_batches()[0]
        assert verb(batch).equals(want)
        assert verb(table.to_reader()).equals(want)
    assert md.concat([table.to_reader(), *table.to_batches()]).num_rows == 6


def test_an_arrow_type_that_polars_does_not_have_is_named() -> None:
    """A column that cannot be read is refused by its name and type, with what to do."""
    for column in (
        pa.array([Decimal("0.5")] * 2, pa.decimal256(50, 2)),
        pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()),
        pa.RunEndEncodedArray.from_arrays([2], [5]),
    ):
        table = prices([0, 1]).to_arrow().append_column("odd", column)
        with pytest.raises(md.errors.NotTidyError, match=r"odd \(.*; cast numbers to float64 .* or drop"):
            md.resample(table, "1h")


def test_arrow_texts_of_the_newer_kind_are_ids() -> None:
    """A pandas column of Arrow string views is a column of texts, and comes back as one."""
    frame = prices([0, 1]).to_pandas()
    want = md.resample(frame, "1h")["token_id"].tolist()
    for dtype in (pa.string_view(), pa.large_string()):
        given = frame.assign(token_id=pd.array(frame["token_id"].tolist(), dtype=pd.ArrowDtype(dtype)))
        out = md.resample(given, "1h")["token_id"]
        assert out.tolist() == want
        assert out.dtype == given["token_id"].dtype


def test_a_frame_of_another_library_is_refused_by_its_name() -> None:
    """A frame of narwhals is refused with the call that unwraps it, not with an error of an engine."""
    frame = prices([0, 1])
    for given in (nw.from_native(frame), nw.from_native(frame.lazy())):
        for verb in (lambda f: md.resample(f, "1h"), lambda f: md.concat([f])):
            with pytest.raises(md.errors.NotTidyError, match="to_native"):
                verb(given)
    with pytest.raises(md.errors.NotTidyError, match="polars Series is not a frame of a supported library"):
        md.resample(frame["price"], "1h")


def test_times_that_are_numbers_or_texts_are_refused_with_how_to_convert_them() -> None:
    """Milliseconds, seconds and texts are guessed to be nothing: the message has the call that makes times of them."""
    for ts in ([1_767_225_600_000, 1_767_225_660_000], ["2026-01-01", "2026-01-02"], [0.5, 1.5]):
        with pytest.raises(md.errors.NotTidyError, match=r"pandas.to_datetime\(ts, utc=True\), of numbers with unit="):
            md.resample(prices([0, 1]).with_columns(pl.Series("ts", ts)), "1h")


class Derived(pd.DataFrame):
    """A pandas frame of another library's class, as geopandas has one."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return Derived


def test_a_class_derived_from_a_pandas_frame_joins_with_one() -> None:
    """A join takes a pandas frame and one of a class derived from it, in both orders, and an Arrow reader."""
    frame = prices([0, 1, 3])
    want = md.asof_join(frame, frame, width="1m")
    panda = frame.to_pandas()
    for left, right in ((panda, Derived(panda)), (Derived(panda), panda)):
        assert md.asof_join(left, right, width="1m").equals(md.asof_join(panda, panda, width="1m"))
    table = frame.to_arrow()
    got = pl.from_arrow(md.asof_join(table, table.to_reader(), width="1m"))
    assert isinstance(got, pl.DataFrame)
    assert got.rows() == want.rows()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_lists_of_tokens_that_became_text_are_lists(kind: Any) -> None:
    """Market records read from CSV have texts for lists: they are read, and not taken apart letter by letter."""
    markets = md.testing.markets(kind)
    texts = {c: [str(list(v)) for v in markets[c]] for c in ("token_ids", "token_labels")}
    given = (
        markets.assign(**texts) if kind == "pandas" else markets.with_columns(pl.Series(c, v) for c, v in texts.items())
    )
    assert pl.DataFrame(md.outcomes(given)).equals(pl.DataFrame(md.outcomes(markets)))
    prices = md.testing.prices(kind)
    assert len(md.probabilities(prices, tokens=given)) == len(md.probabilities(prices, tokens=markets)) > 0


def test_a_market_that_is_listed_twice_has_one_row_per_token() -> None:
    """Equal records are one; records of one market that differ are refused."""
    markets = md.testing.markets("polars", markets=2)
    assert md.outcomes(pl.concat([markets, markets[:1]])).equals(md.outcomes(markets))
    other = markets[:1].with_columns(resolved_token_id=pl.lit("12", pl.Categorical), resolved_token_label=pl.lit("No"))
    with pytest.raises(md.errors.NotTidyError, match="Market 'rain' has two records that differ"):
        md.outcomes(pl.concat([markets, other]))


def test_payoffs_that_are_texts_are_refused_as_texts() -> None:
    """A payoff of "1.0" is a text, and not a second payoff of the token."""
    outcomes = md.outcomes(md.testing.markets("polars")).with_columns(pl.col("payoff").cast(pl.String))
    with pytest.raises(md.errors.NotTidyError, match=r"payoff contains texts, such as '1\.0', not numbers"):
        md.brier(md.testing.prices("polars"), outcomes)


def test_arrow_times_with_a_fixed_offset_are_instants() -> None:
    """An offset instead of the name of a zone is read, from tables, readers and pandas columns of Arrow types."""
    frame = prices([0, 1, 70])
    want = md.resample(frame, "1h").select("ts", "price").rows()
    for zone in ("+02:00", "-05:30"):
        table = frame.to_arrow()
        table = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us", zone)))
        for zoned in (table, table.to_reader(), table.to_pandas(types_mapper=pd.ArrowDtype)):
            assert pl.DataFrame(md.resample(zoned, "1h")).select("ts", "price").rows() == want


@pytest.mark.parametrize("zone", ["Europe/Berlin", None])
def test_frames_of_two_zones_are_concatenated_as_instants(zone: str | None) -> None:
    """Times of another zone become UTC, and times without a zone are UTC."""
    one, minute = prices([0, 1]), dt.timedelta(minutes=2)
    zoned = pl.col("ts").dt.convert_time_zone(zone) if zone else pl.col("ts").dt.replace_time_zone(None)
    other = one.with_columns(pl.col("ts") + minute).with_columns(zoned)
    for convert in (pl.DataFrame.clone, pl.DataFrame.to_pandas, pl.DataFrame.to_arrow, pl.DataFrame.lazy):
        out: Any = md.concat([convert(frame) for frame in (one, other)])
        assert not isinstance(out, pd.DataFrame) or str(out["ts"].dtype).endswith(", UTC]")
        got = out.collect() if isinstance(out, pl.LazyFrame) else pl.DataFrame(out)
        assert got["ts"].to_list() == [at(n) for n in range(4)]


def test_ids_that_are_numbers_are_texts_in_records_too() -> None:
    """A winner given as a number of 77 digits is the token with these digits; what no float holds is refused."""
    big = int("9" * 77)
    records = pd.DataFrame(
        {"market_id": ["m"], "token_ids": [[big, 5]], "token_labels": [["Yes", "No"]], "resolved_token_id": [big]}
    )
    out = md.outcomes(records)
    assert dict(zip(out["token_id"], out["payoff"], strict=True)) == {str(big): 1.0, "5": 0.0}
    thin = records[["market_id", "resolved_token_id"]]
    frame = prices([0], token_id=str(big)).to_pandas()
    assert md.brier(frame, thin, of="token")["outcome"].tolist() == [1.0]
    with pytest.raises(md.errors.NotTidyError, match="price contains a number above"):
        md.returns(prices([0]).to_pandas().assign(price=pd.Series([10**400], dtype=object)))
    moments = pd.DataFrame({"ts": [T0], "market_id": ["m"], "note": [big]})
    with pytest.raises(md.errors.NotTidyError, match="note contains a whole number"):
        md.around(frame, moments, before="1m", after="1m")


class ToyTable:
    """A frame of a library that nobody has: lists by name."""

    def __init__(self, columns: dict[str, list[object]]) -> None:
        self.columns = columns


class ToyFrame(PolarsFrame):
    """The class that supports it; see "Add a frame kind" of the documentation."""

    @classmethod
    def of(cls, native: ToyTable) -> Self:
        return super().of(pl.DataFrame(native.columns))

    def build(self, columns: Mapping[str, Column], height: int) -> ToyTable:
        return ToyTable(super().build(columns, height).to_dict(as_series=False))


def test_a_frame_library_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb takes frames of a library that is registered, and gives frames of it."""
    monkeypatch.setitem(frames.LIBRARIES, f"{ToyTable.__module__.partition('.')[0]}.ToyTable", ToyFrame)
    books, prices = md.testing.books("polars", buckets=3), md.testing.prices("polars", buckets=3)
    for function, frame in (
        (md.bbo, books),
        (partial(md.resample, resolution="2m"), books),
        (partial(md.resample, resolution="2m", fill="null"), prices),
        (md.nest, books),
        (md.returns, prices),
        (md.check, prices),
    ):
        toy: Any = function(ToyTable(frame.to_dict(as_series=False)))
        assert isinstance(toy, ToyTable)
        assert toy.columns == function(frame).to_dict(as_series=False)


def test_a_return_that_no_number_holds_is_null() -> None:
    """From the least number above 0 the simple return is beyond all numbers; the others are finite."""
    for how in ("simple", "log", "change", "log_odds"):
        first, second = md.returns(prices([0, 1], [5e-324, 0.5]), how=how)["returns"].to_list()
        assert first is None
        assert (second is None) == (how == "simple")


def test_a_missing_column_names_what_may_be_meant() -> None:
    """A renamed column and an index are named, with what to do."""
    frame = md.testing.prices()
    with pytest.raises(md.errors.NotTidyError, match="'timestamp' is 'ts', rename it"):
        md.resample(frame.rename(columns={"ts": "timestamp"}), "1h")
    with pytest.raises(md.errors.NotTidyError, match=r"The index is \['ts'\]: call frame.reset_index\(\)"):
        md.resample(frame.set_index("ts"), "1h")
    with pytest.raises(md.errors.NotTidyError, match="'asset_id' is 'token_id', rename it"):
        md.bbo(md.testing.books("polars").rename({"token_id": "asset_id"}))
