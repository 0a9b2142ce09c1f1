"""Answers of the tools as plain data for JSON."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from marketdata.errors import ConfigError, MarketDataWarning
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text

Answer = dict[str, Any]

MOST_ROWS = 5_000  # a program pays for each row that it reads
_MOST_GAPS = 20
_DIGITS = 12  # the order of a sum changes further ones


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """The warnings of this library during a block, each once."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, MarketDataWarning))


def answer_of(frame: pl.DataFrame, units: dict[str, str], rows: int, notes: list[str], then: int | None) -> Answer:
    """The first rows of a frame, with the units of its columns and notes; ``then`` is the time of an ``as_of``."""
    shown = frame.head(min(rows, MOST_ROWS))
    if frame.height > shown.height:
        notes = [*notes, f"The first {shown.height:,} of {frame.height:,} rows."]
    answer: Answer = {
        "columns": shown.columns,
        "units": {name: units[name] for name in shown.columns if name in units},
        "rows": [list(row) for row in _for_json(shown).iter_rows()],
        "notes": notes,
    }
    return answer if then is None else answer | {"as_of": to_text(then)}


def of_outcome(frame: pl.DataFrame, outcome: str | None) -> pl.DataFrame:
    """The rows of one outcome, given by label or token id; ConfigError if the frame has rows, and none of it."""
    if outcome is None or "token_id" not in frame.columns or not frame.height:
        return frame
    names = pl.col("token_label", "token_id").cast(pl.String)
    rows = frame.filter(pl.any_horizontal(names.fill_null("") == outcome))
    if not rows.height:
        labels = ", ".join(frame["token_label"].cast(pl.String).fill_null("?").unique().sort().head(20))
        raise ConfigError(f"does not exist; some outcomes are {labels}.", argument="outcome", value=outcome)
    return rows


def token_ids(frame: pl.DataFrame) -> dict[str, str]:
    """The token id of each outcome by its label."""
    if "token_label" not in frame.columns:
        return {}
    pairs = frame.select(pl.col("token_label", "token_id").cast(pl.String)).unique().sort("token_id").rows()
    return {label: token for label, token in pairs if label is not None}


def without_repeated_ids(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without the ids that each row repeats: of the market, and of tokens that their labels name."""
    tokens = frame.select(cs.by_name("token_id", "token_label", require_all=False)).unique()
    has_labels = "token_label" in tokens.columns and tokens["token_label"].null_count() == 0
    labels_name = has_labels and tokens["token_label"].n_unique() == tokens.height
    return frame.drop("market_id", *(["token_id"] if labels_name else []))


def first_times(frame: pl.DataFrame, rows: int) -> tuple[pl.DataFrame, str | None]:
    """The rows of the first times, as many whole times as fit in ``rows`` (one at least), and the next time."""
    most = min(rows, MOST_ROWS)
    if frame.height <= most:
        return frame, None
    first = frame.filter(pl.col("ts") < frame["ts"][most])
    first = first if first.height else frame.filter(pl.col("ts") == frame["ts"][0])
    return first, to_text(int(frame["ts"].to_physical()[first.height])) if first.height < frame.height else None


def rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers without the digits that depend on the order of a sum."""
    return frame.with_columns(cs.float().round_sig_figs(_DIGITS))


def missing_ranges(ts: pl.Series, rng: Range, width: BucketWidth) -> list[dict[str, str]]:
    """The first parts of a range in whose buckets no row begins."""
    step = width.micros
    first = width.floor(rng.start)
    edges = np.concatenate([[first - step], np.unique(ts.to_physical().to_numpy()), [-(-rng.end // step) * step]])
    at = np.flatnonzero(np.diff(edges) > step)
    return [
        {"start": to_text(int(max(edges[k] + step, rng.start))), "end": to_text(int(min(edges[k + 1], rng.end)))}
        for k in at[:_MOST_GAPS]
    ]


def time_literal(micros: int) -> pl.Expr:
    """A time in microseconds as an expression."""
    return pl.lit(micros).cast(pl.Datetime("us", "UTC"))


def _for_json(frame: pl.DataFrame) -> pl.DataFrame:
    """Times and categories as texts, as JSON has neither; NaN as null."""
    return frame.with_columns(
        cs.datetime().dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"),
        (cs.categorical() | cs.enum() | cs.duration() | cs.date() | cs.decimal()).cast(pl.String),
        cs.float().fill_nan(None),
    )
