"""The same columns as every kind of frame, and the rows of any frame as plain values."""

from __future__ import annotations

import math
from typing import Any

import narwhals as nw
import pandas as pd
import polars as pl
import polars.selectors as cs
from hypothesis import settings
from reference.columns import levels_of

from marketdata.points.columns import Books
from marketdata.points.views import VIEWS, view_of

FRAME_KINDS = ["pandas", "polars", "lazy", "shuffled pandas", "shuffled polars", "arrow"]
# Each kind adds its examples, so tests over every kind need fewer.
few = settings(max_examples=max(6, settings().max_examples // 5))
# Where each example compares whole frames with a loop in fractions.
fewest = settings(max_examples=max(5, settings().max_examples // 5))
ID_COLUMNS = ["market_id", "token_id", "token_label"]


def of_kind(columns: Any, kind: str) -> Any:
    """The same columns as a frame of one kind, built by its own library from rows."""
    table = table_of(columns)
    ids = [c for c in (*ID_COLUMNS, "side") if c in table]
    if "pandas" in kind:
        panda = pd.DataFrame(
            {c: pd.Series(v, dtype=None if c in ids or c == "ts" else "float64") for c, v in table.items()}
        )
        panda["ts"] = pd.to_datetime(panda["ts"].astype("int64"), unit="us", utc=True).astype("datetime64[us, UTC]")
        panda = panda.astype(dict.fromkeys(ids, "category"))
        panda = panda.astype({"level": "Int32"}) if "level" in table else panda
        return panda.sample(frac=1, random_state=7) if kind == "shuffled pandas" else panda
    kinds = {c: pl.Categorical if c in ids else pl.Float64 for c in table} | {"ts": pl.Int64, "level": pl.Int32}
    frame = pl.DataFrame({c: pl.Series(v, dtype=kinds[c]) for c, v in table.items()})
    frame = frame.with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
    if kind == "lazy":
        return frame.lazy()
    if kind == "arrow":
        return frame.to_arrow()
    return frame.sample(fraction=1, shuffle=True, seed=7) if kind == "shuffled polars" else frame


def table_of(columns: Any) -> dict[str, list[Any]]:
    """The rows of columns as plain lists by name; an empty side of a book is one marker row."""
    who = VIEWS[view_of(columns)].ids
    heads = [(t, *columns.tokens[i][: len(who)]) for t, i in zip(columns.ts.tolist(), columns.token, strict=True)]
    if not isinstance(columns, Books):
        values = {c: [None if math.isnan(v) else v for v in values.tolist()] for c, values in columns.values.items()}  # noqa: PD011
        return {**{c: [head[i] for head in heads] for i, c in enumerate(["ts", *who])}, **values}
    rows_, at = [], 0
    for i, head in enumerate(heads):
        for side, count in zip(("bid", "ask"), columns.counts[2 * i : 2 * i + 2].tolist(), strict=True):
            levels = levels_of(columns)[at : at + count].tolist()
            at += count
            rows_ += [(*head, side, k, *level) for k, level in enumerate(levels)] or [(*head, side, None, None, None)]
    names = ["ts", *who, "side", "level", "price", "size"]
    return {c: [row[i] for row in rows_] for i, c in enumerate(names)}


def polars_of(frame: Any) -> pl.DataFrame:
    """Any frame as polars: texts without dictionaries, null for NaN."""
    data = nw.from_native(frame).lazy().collect("polars").to_native()
    texts = pl.col(pl.Categorical, pl.Enum).cast(pl.String)
    return data.with_columns(texts, cs.float().fill_nan(None))  # type: ignore[no-any-return]


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Rows of any frame as plain Python values, the time first [microseconds]; null and NaN are None."""
    return polars_of(frame).select(pl.col("ts").dt.epoch("us"), pl.exclude("ts")).rows()


def plain(frame: Any) -> list[tuple[Any, ...]]:
    """The same of a frame without times."""
    return polars_of(frame).rows()


def close(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]], *, digits: float = 1e-12, least: float = 1e-15) -> bool:
    """Equal rows; floats to 1e-12, or to other digits where a formula cancels some."""
    return len(a) == len(b) and all(
        len(x) == len(y)
        and all(
            (
                math.isclose(p, q, rel_tol=digits, abs_tol=least)
                if isinstance(p, float) and isinstance(q, float)
                else p == q
            )
            for p, q in zip(x, y, strict=True)
        )
        for x, y in zip(a, b, strict=True)
    )
