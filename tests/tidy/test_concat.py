"""Frames of several markets as one frame."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import marketdata as md

KINDS = {
    "pandas": lambda frame: pl.DataFrame(frame).to_pandas() if isinstance(frame, pa.Table) else frame,
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": lambda frame: pl.from_pandas(frame).to_arrow(),
}
VIEWS = {"books": md.testing.books, "prices": md.testing.prices, "metrics": md.testing.metrics}


def as_polars(frame: Any) -> pl.DataFrame:
    """Any of the kinds, with ids as texts."""
    out = frame.collect() if isinstance(frame, pl.LazyFrame) else pl.DataFrame(frame)
    return out.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String), pl.col("ts").dt.cast_time_unit("us"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", VIEWS)
def test_rows_stay_as_they_are_and_ids_stay_categorical(view: str, kind: str) -> None:
    """The rows of the frames follow each other, and ids are dictionary encoded in each kind."""
    parts = [VIEWS[view](markets=1), VIEWS[view](markets=3, buckets=5), VIEWS[view](markets=2, buckets=0)]
    out: Any = md.concat(KINDS[kind](part) for part in parts)
    assert as_polars(out).equals(pl.concat([as_polars(part) for part in parts]))
    if kind == "pandas":
        assert all(isinstance(out[c].dtype, pd.CategoricalDtype) for c in out if c.endswith("_id"))
        assert out["market_id"].cat.categories.tolist() == ["frost", "rain", "snow", "wind"][1:4]
        assert out.index.equals(pd.RangeIndex(len(out)))
    elif kind == "arrow":
        assert all(pa.types.is_dictionary(f.type) for f in out.schema if f.name.endswith("_id"))
    else:
        schema = out.collect_schema()
        assert all(schema[c] == pl.Categorical for c in schema if c.endswith("_id"))


def test_dictionaries_of_pyarrow_in_pandas_may_have_nulls() -> None:
    """Pandas frames of pyarrow's types are joined, though a row has no label."""
    one = md.testing.prices(markets=1)
    one["token_label"] = one["token_label"].where(one.index != 1)
    of_arrow = pa.Table.from_pandas(one, preserve_index=False).to_pandas(types_mapper=pd.ArrowDtype)
    assert str(of_arrow["token_label"].dtype).startswith("dictionary<")
    out = md.concat([of_arrow, of_arrow.assign(market_id="other")])
    assert out["token_label"].tolist()[2:4] == one["token_label"].tolist()[2:4]
    assert out["token_label"].isna().sum() == 2
    assert out["market_id"].tolist() == ["rain"] * len(one) + ["other"] * len(one)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_of_other_writers_are_joined(kind: str) -> None:
    """Ids that are texts, or another enumeration, become categories as the others are; the input stays as it was."""
    one, two = md.testing.prices(markets=1), md.testing.prices(markets=2)
    texts = one.assign(market_id=one["market_id"].astype("str"), token_id=one["token_id"].astype(object))
    first = KINDS[kind](texts)
    if kind in ("polars", "lazy"):
        first = first.with_columns(pl.col("market_id").cast(pl.Enum(["rain"])))
    out: Any = md.concat([first, KINDS[kind](two)])
    assert as_polars(out).equals(pl.concat([as_polars(one), as_polars(two)]))
    if kind == "pandas":
        assert str(out["token_id"].dtype) == "category"
        assert str(texts["market_id"].dtype) != "category"


def test_further_columns_are_null_where_a_frame_lacks_them() -> None:
    """A further metric of one service stays, and is missing in the rows of another."""
    plain = md.testing.metrics()
    for kind in (KINDS["pandas"], KINDS["polars"]):
        out: Any = md.concat([kind(plain), kind(plain.assign(trades=1.0))])
        assert out["trades"].to_list()[-1] == 1.0
        assert pd.isna(out["trades"].to_list()[0])


TWICE = pd.concat([md.testing.prices(), md.testing.prices()[["market_id"]]], axis=1)


def test_what_was_put_together_takes_every_verb() -> None:
    """Measures of the whole equal the measures of the parts."""
    parts = [md.testing.books(markets=3).query("market_id == @name") for name in ("rain", "snow", "wind")]
    whole = md.concat([part.assign(market_id=part["market_id"].cat.remove_unused_categories()) for part in parts])
    assert as_polars(md.bbo(whole)).equals(as_polars(md.bbo(md.testing.books(markets=3))))


@pytest.mark.parametrize(
    ("frames", "error", "said"),
    [
        ([], md.errors.ConfigError, "at least one"),
        (
            [md.testing.prices(), md.testing.prices("polars")],
            md.errors.ConfigError,
            r"pandas\.DataFrame, polars\.DataFrame",
        ),
        ([md.testing.prices("polars"), md.testing.prices("polars").lazy()], md.errors.ConfigError, "LazyFrame"),
        ([md.testing.books(), md.testing.prices()], md.errors.NotTidyError, r"books, frames\[1\] of prices"),
        ([md.bbo(md.testing.books()), md.mid(md.testing.books())], md.errors.NotTidyError, "of quotes"),
        ([TWICE], md.errors.NotTidyError, r"several columns of one name: \['market_id'\]"),
        ([TWICE, pa.Table.from_pandas(md.testing.prices())], md.errors.NotTidyError, "several columns of one name"),
        ([md.testing.books(), 5], md.errors.ConfigError, r"frames\[1\] is a int"),
    ],
    ids=["none", "libraries", "lazy", "views", "measures", "twice", "twice and Arrow", "no frame"],
)
def test_frames_that_do_not_fit_are_refused(frames: list[Any], error: type[Exception], said: str) -> None:
    """Frames of several libraries, or rows of several kinds, are named."""
    with pytest.raises(error, match=said):
        md.concat(frames)


@pytest.mark.parametrize("kind", KINDS)
def test_the_width_of_all_frames_is_carried(kind: str) -> None:
    """Frames of one width have it together, with one that lost it none, and frames of two widths are an error."""
    minutes = [KINDS[kind](md.testing.books(markets=count, buckets=120)) for count in (1, 2)]
    both: Any = md.concat(md.resample(one, "1m", width="1m") for one in minutes)
    assert md.available_at(both) is not None
    lost: Any = KINDS[kind](md.testing.books(markets=1).copy())
    lost = lost.replace_schema_metadata(None) if kind == "arrow" else lost
    if kind == "pandas":
        lost.attrs = {}
    with pytest.raises(md.errors.ConfigError, match=r"^width.*is missing"):
        md.available_at(md.concat([both, lost]))
    with pytest.raises(md.errors.ConfigError, match=r"1m \(frames\[0\]\), 1h \(frames\[1\]\)"):
        md.concat([both, md.resample(minutes[0], "1h", width="1m")])
