"""The answers of the tools: rows of an archive or a client, with their units, the range they cover and what is missing.

Every answer is plain data for JSON: ``columns`` and ``rows`` (times as ISO 8601 in UTC, null where nothing is known),
``units`` by column, ``notes`` (the warnings of the library). Answers of history have ``tokens`` (ids by label),
``range``, ``missing`` (parts of it without any point) and, if rows were left out, ``next_start``, at which the next
call goes on.

``as_of`` hides what came later: a bucket is known when it has ended, so that rows are of buckets that ended by then,
and records have none of the columns that tell how a market went on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from marketdata.errors import ConfigError, MarketDataWarning, NotArchivedError
from marketdata.points.arguments import whole
from marketdata.points.columns import METRICS
from marketdata.points.views import View, empty
from marketdata.resolution import BucketWidth
from marketdata.tidy.answers import without_answers
from marketdata.tidy.features import features
from marketdata.tidy.frames import to_frame
from marketdata.tidy.shapes import ladder
from marketdata.times import Range, TimeLike, to_micros, to_range, to_text

Answer = dict[str, Any]
# A call is refused rather than read for minutes: ten weeks of minutes.
_MOST_BUCKETS = 100_000
# An answer is read by a program that pays for each row.
_MOST_ROWS = 5_000
# Missing ranges that are listed, the first ones.
_MOST_GAPS = 20
# Significant digits of a mean: further ones depend on the order in which it was summed.
_DIGITS = 12
# Units that several columns have.
_PRICE, _SHARES, _AMOUNT = "probability, 0 to 1", "shares", "in the unit of the service, which names none"
# The unit of each column.
UNITS = {
    "ts": "start of the bucket, UTC",
    "level": "0 is the best",
    **dict.fromkeys(("price", "best_bid", "best_ask", "mid", "microprice", "bid_price", "ask_price"), _PRICE),
    "spread": "probability: best ask less best bid",
    "spread_bps": "1/10000 of the mid",
    **dict.fromkeys(("size", "best_bid_size", "best_ask_size", "bid_size", "ask_size"), _SHARES),
    **dict.fromkeys(("bid_depth", "ask_depth", "bid_total", "ask_total"), _SHARES),
    "imbalance": "-1 to 1: difference of the depths of both sides over their sum",
    **dict.fromkeys(("bid_fill_price", "ask_fill_price"), f"{_PRICE}, average of all levels"),
}
# Units of metrics, whose spread is another number than that of a book.
_METRIC_UNITS = dict(zip(METRICS, (_AMOUNT, _AMOUNT, "probability, of the market and not of a book"), strict=True))


class Tools:
    """The tools of one archive or client, whose frames are polars; ``as_of`` bounds that of every call."""

    def __init__(self, source: Any, as_of: TimeLike | None = None) -> None:
        self._source = source
        self._as_of = None if as_of is None else to_micros(as_of, "as_of")

    @property
    def has_sql(self) -> bool:
        """Whether there is SQL: of an archive, where nothing is hidden from it."""
        return hasattr(self._source, "sql") and self._as_of is None

    def markets(
        self, search: str | None = None, event_slug: str | None = None, rows: int = 50, as_of: str | None = None
    ) -> Answer:
        """Find markets by words of their question or slug, or by the slug of their event.

        One row per market, with its slug, question, outcomes and dates. With as_of only markets that had begun, without
        anything that was known later, such as the outcome.
        """
        with _noted() as notes:
            found = self._source.markets(event_slug=event_slug, search=search)
            then = self._then(as_of)
            if then is not None:
                found = without_answers(found).filter(pl.col("start_date") <= _time(then))
        listed = found.select(cs.by_name(*_LISTED, require_all=False))
        return _answer(listed, dict.fromkeys(("start_date", "end_date", "closed_at"), "UTC"), rows, notes, then)

    def order_book(self, market: str, at: str, as_of: str | None = None) -> Answer:
        """The order book of each outcome of a market as it was at a time, all levels.

        One row per outcome and level, bids and asks side by side, with the shares up to each level.
        """
        moment = to_micros(at, "at")
        then = self._then(as_of)
        moment = moment if then is None else min(moment, then)
        width = BucketWidth.of("1m").micros
        end = moment // width * width
        span = to_text(end - _LATEST * width), to_text(end)
        answer = self._history("books", market, span, "1m", _MOST_ROWS, as_of, partial(ladder, ts=span[1]))
        if not answer["rows"]:
            answer["notes"].append(
                f"No book in the {_LATEST} minutes before; `missing` of `books` has the gaps of a day."
            )
        return answer

    def books(
        self, market: str, start: str, end: str, resolution: str = "1h", levels: int = 5, rows: int = 500,
        as_of: str | None = None,
    ) -> Answer:  # fmt: skip
        """Order books of a market through time: the last book of each bucket, best levels only.

        One row per outcome, bucket, side and level; an empty side is one row without price. start is inclusive, end is
        not; resolution is 1m, 10m, 1h, 6h or 1d.
        """
        most = whole("levels", levels)
        return self._history("books", market, (start, end), resolution, rows, as_of, levels=most)

    def prices(
        self, market: str, start: str, end: str, resolution: str = "1h", rows: int = 500, as_of: str | None = None
    ) -> Answer:
        """Prices of a market through time: the mean of each bucket, a probability.

        One row per outcome and bucket that has points; start is inclusive, end is not; resolution is 1m, 10m, 1h, 6h or
        1d.
        """
        return self._history("prices", market, (start, end), resolution, rows, as_of)

    def metrics(
        self, market: str, start: str, end: str, resolution: str = "1h", rows: int = 500, as_of: str | None = None
    ) -> Answer:
        """Metrics of a market through time, such as volume and liquidity: the mean of each bucket.

        One row per bucket that has points; start is inclusive, end is not; resolution is 1m, 10m, 1h, 6h or 1d.
        """
        return self._history("metrics", market, (start, end), resolution, rows, as_of)

    def features(
        self, market: str, start: str, end: str, measures: list[str], resolution: str = "1h", rows: int = 500,
        as_of: str | None = None,
    ) -> Answer:  # fmt: skip
        """Measures of the order books of a market: mid, spread, microprice, depth, imbalance, bbo and others.

        One row per outcome and bucket, a column each; start is inclusive, end is not; resolution is 1m, 10m, 1h, 6h or
        1d.
        """
        made = partial(features, measures=measures)
        return self._history("books", market, (start, end), resolution, rows, as_of, made)

    def coverage(self, market: str | None = None, rows: int = 500) -> Answer:
        """Coverage of an archive: one row per range of a market and kind of data, with its state."""
        if not hasattr(self._source, "coverage"):
            raise ConfigError("A client has no coverage: it reads the service. Each answer says what is missing in it.")
        with _noted() as notes:
            found = self._source.coverage()
            slugs = {str(one["id"]): one.get("slug") or one["id"] for one in self._source.records("markets")}
            if market is not None:
                found = found.filter(pl.col("market_id").cast(pl.String) == self._record(market)["id"])
            if self._as_of is not None:
                found = found.filter(pl.col("start") < _time(self._as_of))
            names = pl.col("market_id").cast(pl.String).replace(slugs).alias("market")
            found = found.select(names, pl.exclude("market_id"))
        units = {"start": "UTC, inclusive", "end": "UTC, exclusive", "rows": "points of all outcomes"}
        return _answer(found, {**units, "fetched_at": "UTC"}, rows, notes, self._as_of)

    def sql(self, statement: str, rows: int = 200) -> Answer:
        """Run a SELECT of DuckDB over an archive: tables books, snapshots, prices, metrics, markets, events, coverage.

        Times are UTC, prices probabilities, sizes shares.
        """
        if not self.has_sql:
            raise ConfigError("SQL needs an archive, and no as_of: a statement may read what came later.")
        with _noted() as notes:
            found = self._source.sql(statement)
        return _answer(found, {}, rows, notes, None)

    def _record(self, market: str) -> Mapping[str, Any]:
        """The record of a market; an error where there is none."""
        if not hasattr(self._source, "find_market"):
            return self._source.market(market)  # type: ignore[no-any-return]
        found: Mapping[str, Any] | None = self._source.find_market(market)
        if found is None:
            raise NotArchivedError(f"market {market[:200]!r} is not in the archive; `markets` finds slugs.")
        return found

    def _then(self, as_of: str | None) -> int | None:
        """The time after which nothing is known; that of a call cannot be later than that of all."""
        given = [t for t in (self._as_of, None if as_of is None else to_micros(as_of, "as_of")) if t is not None]
        return min(given, default=None)

    def _history(
        self,
        view: View,
        market: str,
        span: tuple[Any, Any],
        resolution: str,
        rows: int,
        as_of: str | None,
        make: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
        **how: Any,
    ) -> Answer:
        """Rows of a view, or what is made of them, in the part of a range that was known."""
        rng, width = to_range(*span), BucketWidth.of(resolution)
        then = self._then(as_of)
        if then is not None:
            rng = Range(rng.start, max(rng.start, min(rng.end, width.floor(then))))
        if (rng.end - rng.start) // width.micros > _MOST_BUCKETS:
            raise ConfigError(
                f"{(rng.end - rng.start) // width.micros:,} buckets are too many for one answer; at most "
                f"{_MOST_BUCKETS:,} are allowed: give a shorter range, or a coarser resolution."
            )
        with _noted() as notes:
            if rng.end > rng.start:
                frame = getattr(self._source, view)(market, to_text(rng.start), to_text(rng.end), resolution, **how)
            else:
                notes.append("Nothing of this range was known then.")
                self._record(market)  # an unknown one is an error at any time
                frame = to_frame(empty(view), "polars")
            made = frame if make is None else make(frame)
        units = UNITS | (_METRIC_UNITS if view == "metrics" else {})
        # By time, so that what is left out of an answer is what came last.
        shown, next_start = _first_times(made.sort("ts", maintain_order=True), whole("rows", rows))
        answer = {
            "market": market,
            "range": {"start": to_text(rng.start), "end": to_text(rng.end), "resolution": resolution},
            "missing": _missing(frame["ts"], rng, width),
            "tokens": _tokens(shown),
            **_answer(
                _without_ids(shown).with_columns(cs.float().round_sig_figs(_DIGITS)), units, _MOST_ROWS, notes, then
            ),
        }
        if next_start is not None:
            answer["next_start"] = next_start
            answer["notes"].append(f"The first {shown.height:,} of {made.height:,} rows; next_start has the others.")
        return answer


# Columns of a list of markets: what tells them apart, not the ids and texts that make most of a record.
_LISTED = (
    "slug", "question", "status", "token_labels", "start_date", "end_date", "closed_at", "resolved_token_label",
    "event_slug", "event_title", "series_slug", "tags", "simulated",
)  # fmt: skip


# The latest book before a moment is looked for in so many minutes.
_LATEST = 60


@contextmanager
def _noted() -> Iterator[list[str]]:
    """The warnings of this library that come meanwhile, each once."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    said = (str(one.message) for one in caught if issubclass(one.category, MarketDataWarning))
    notes += dict.fromkeys(said)


def _answer(frame: pl.DataFrame, units: dict[str, str], rows: int, notes: list[str], then: int | None) -> Answer:
    most = min(whole("rows", rows), _MOST_ROWS)
    shown = frame.head(most)
    out: Answer = {
        "columns": shown.columns,
        "units": {name: units[name] for name in shown.columns if name in units},
        "rows": [list(row) for row in _plain(shown).iter_rows()],
        "notes": notes,
    }
    if then is not None:
        out["as_of"] = to_text(then)
    if frame.height > most:
        left = frame.height - most
        out["notes"] = [*notes, f"The first {most:,} of {frame.height:,} rows; {left:,} were left out."]
    return out


def _tokens(frame: pl.DataFrame) -> dict[str, str]:
    """The id of each outcome by its label."""
    if "token_label" not in frame.columns:
        return {}
    pairs = frame.select(pl.col("token_label", "token_id").cast(pl.String)).unique().sort("token_id").rows()
    return {label: token for label, token in pairs if label is not None}


def _without_ids(frame: pl.DataFrame) -> pl.DataFrame:
    """Without the ids that each row repeats: of the market, and of tokens whose label says which they are."""
    tokens = frame.select(cs.by_name("token_id", "token_label", require_all=False)).unique()
    named = "token_label" in tokens.columns and tokens["token_label"].null_count() == 0
    said = named and tokens["token_label"].n_unique() == tokens.height
    return frame.drop("market_id", *(["token_id"] if said else []))


def _first_times(frame: pl.DataFrame, rows: int) -> tuple[pl.DataFrame, str | None]:
    """The rows of the first times, as many times as are whole in so many rows (one at least), and the next time."""
    if frame.height <= min(rows, _MOST_ROWS):
        return frame, None
    edge = frame["ts"][min(rows, _MOST_ROWS)]
    first = frame.filter(pl.col("ts") < edge)
    first = first if first.height else frame.filter(pl.col("ts") == frame["ts"][0])
    return first, f"{frame['ts'][first.height]:%Y-%m-%dT%H:%M:%SZ}" if first.height < frame.height else None


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts instead of times and categories, as JSON has neither; NaN is null."""
    return frame.with_columns(
        cs.datetime().dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
        (cs.categorical() | cs.enum() | cs.duration() | cs.date() | cs.decimal()).cast(pl.String),
        cs.float().fill_nan(None),
    )


def _missing(ts: pl.Series, rng: Range, width: BucketWidth) -> list[dict[str, str]]:
    """Parts of a range in whose buckets no row begins, the first ones if there are many."""
    step = width.micros
    first = width.floor(rng.start)
    edges = np.concatenate([[first - step], np.unique(ts.to_physical().to_numpy()), [-(-rng.end // step) * step]])
    at = np.flatnonzero(np.diff(edges) > step)
    return [
        {"start": to_text(int(max(edges[k] + step, rng.start))), "end": to_text(int(min(edges[k + 1], rng.end)))}
        for k in at[:_MOST_GAPS]
    ]


def _time(micros: int) -> pl.Expr:
    return pl.lit(micros).cast(pl.Datetime("us", "UTC"))
