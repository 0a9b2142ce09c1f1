"""The tools: rows of an archive or a client, with their units, the range that they cover and what is missing.

Every answer is plain data for JSON: ``columns`` and ``rows`` (times as ISO 8601 in UTC, null for what is not known),
``units`` by column, and ``notes``, the warnings of the library. An answer of history has ``tokens`` (ids by label),
``range``, ``missing`` (parts of the range without any point) and, if rows were left out, ``next_start`` for the next
call.

``as_of`` hides later data. A bucket is shown once it has ended, a market once it had begun. Columns that may tell
how a market went on are left out.
"""

from __future__ import annotations

import inspect
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
import polars as pl
import polars.selectors as cs
from pydantic import Field, TypeAdapter

from marketdata.errors import ConfigError, MarketDataWarning, NotArchivedError, warn
from marketdata.mcp.statement import rows_of
from marketdata.points.arguments import whole
from marketdata.points.measures import MEASURES, units_of
from marketdata.points.schema import ASK, BID, ID_COLUMNS
from marketdata.points.views import View, empty
from marketdata.resolution import BucketWidth
from marketdata.tidy.frames import to_frame
from marketdata.tidy.measures import features
from marketdata.tidy.records import without_answers
from marketdata.times import Range, TimeLike, to_micros, to_range, to_text

Answer = dict[str, Any]
MOST_ROWS = 5_000  # a program pays for each row that it reads
# Pydantic makes the schemas of the tools from these descriptions and bounds.
Market = Annotated[str, Field(description="Slug or id of a market, as `markets` gives it.")]
Start = Annotated[str, Field(description="Start, inclusive: ISO 8601 (UTC without a zone) or Unix seconds.")]
End = Annotated[str, Field(description="End, exclusive.")]
Outcome = Annotated[str | None, Field(description="Only this outcome: its label or token id.")]
Width = Annotated[Literal["1s", "1m", "5m", "10m", "15m", "1h", "6h", "1d"], Field(description="Width of a bucket.")]
Levels = Annotated[int, Field(ge=1, le=1000, description="Levels of each side, best first.")]
Rows = Annotated[
    int, Field(ge=1, le=MOST_ROWS, description="Most rows, but all of one time; `next_start` is for the rest.")
]
AsOf = Annotated[str | None, Field(description="Hide what was known only after this time.")]

# Ids and long texts are left out, because they are most of a record.
_LISTED = (
    "slug", "question", "status", "token_labels", "start_date", "end_date", "closed_at", "resolved_token_label",
    "event_slug", "event_title", "series_slug", "tags", "simulated", "stored_from", "stored_to", "missing",
)  # fmt: skip
_MOST_BUCKETS = 100_000  # ten weeks of minutes; reading more would take minutes
_OLDEST_BOOK = 60  # minutes before the moment of an order book
_MOST_HOLES, _MOST_GAPS = 5, 20
_DIGITS = 12  # the order of a sum changes further ones
_MINUTE = "%Y-%m-%dT%H:%MZ"


class Tools:
    """The tools of one archive or client with polars frames; ``as_of`` is the latest that a call may name.

    A statement of `sql` ends once ``stop`` is set.
    """

    def __init__(self, source: Any, as_of: TimeLike | None = None) -> None:
        self._source, self._is_archive = source, hasattr(source, "coverage")
        self._as_of = None if as_of is None else to_micros(as_of, "as_of")
        self.stop = threading.Event()

    @property
    def offered(self) -> dict[str, TypeAdapter[Answer]]:
        """The tools by name, each with checks of its arguments; a service has no coverage and no SQL."""
        has = {"coverage": self._is_archive, "sql": self.has_sql}
        names = (name for name, one in vars(Tools).items() if inspect.isfunction(one) and not name.startswith("_"))
        return {name: TypeAdapter(getattr(self, name)) for name in names if has.get(name, True)}

    @property
    def has_sql(self) -> bool:
        """Whether there is SQL: of an archive, and without ``as_of``."""
        return self._is_archive and self._as_of is None

    def markets(
        self,
        search: Annotated[str | None, Field(description="Words of the question or slug.")] = None,
        event_slug: Annotated[str | None, Field(description="Slug of an event: its markets.")] = None,
        rows: Rows = 50,
        as_of: AsOf = None,
    ) -> Answer:
        """List markets, and of an archive the range that is stored and what is missing in it. Begin here.

        One row per market: its slug, question, outcomes and dates. For an archive it has the range of the points
        (`stored_from`, `stored_to`), and the first ranges without points (`missing`). With as_of it lists only markets
        that had begun, without later facts such as the outcome.
        """
        most, then = whole("rows", rows), self._then(as_of)
        with _warnings_as_notes() as notes:
            # A service may list 150,000 markets, a thousand in a request.
            bound = {} if self._is_archive else {"max_rows": most + 1}
            records = self._source.markets(event_slug=event_slug, search=search, **bound)
            if not self._is_archive and len(records) > most:
                notes.append("The service has more markets; `search` finds others.")
                records = records.head(most)
            if then is not None:
                records = without_answers(records).filter(pl.col("start_date") <= _time(then))
                # An end that was moved later would tell what happened in between.
                records = records.drop("end_date", strict=False)
            if self._is_archive:
                ids = pl.col("market_id").cast(pl.String)
                records = records.with_columns(ids).join(
                    _stored_ranges(self._coverage(then)), on="market_id", how="left", maintain_order="left"
                )
        listed = records.select(cs.by_name(*_LISTED, require_all=False))
        dates = ("start_date", "end_date", "closed_at", "stored_from", "stored_to")
        return _answer(listed, dict.fromkeys(dates, "UTC"), most, notes, then)

    def order_book(
        self,
        market: Market,
        at: Annotated[str, Field(description="The moment: ISO 8601 (UTC without a zone) or Unix seconds.")],
        outcome: Outcome = None,
        levels: Levels = 10,
        rows: Annotated[int, Field(ge=1, le=MOST_ROWS, description="Most rows of the answer.")] = 200,
        as_of: AsOf = None,
    ) -> Answer:
        """The order book of each outcome of a market as it was at a time, best levels only.

        One row per outcome and level, bids and asks side by side, with the shares up to each level.
        """
        moment, then = to_micros(at, "at"), self._then(as_of)
        minute = BucketWidth.of("1m")
        end = minute.floor(moment if then is None else min(moment, then))
        span = to_text(end - _OLDEST_BOOK * minute.micros), to_text(end)
        most, most_rows = whole("levels", levels), whole("rows", rows)

        def best_levels(frame: pl.DataFrame) -> pl.DataFrame:
            book = _side_by_side(frame, levels=most)
            if book.height > most_rows:
                warn(f"The first {most_rows:,} of {book.height:,} rows; ask for one `outcome`.", MarketDataWarning)
            return book.head(most_rows)

        answer = self._history("books", _Asked.of(market, span, "1m", rows, then, outcome), best_levels)
        if not answer["rows"]:
            answer["notes"].append(f"No book in the {_OLDEST_BOOK} minutes before; `missing` of `books` shows gaps.")
        return answer

    def books(
        self, market: Market, start: Start, end: End, resolution: Width = "1h", levels: Levels = 5,
        outcome: Outcome = None, rows: Rows = 500, as_of: AsOf = None,
    ) -> Answer:  # fmt: skip
        """Order books of a market through time: the last book of each bucket, best levels only.

        One row per outcome, bucket, side and level; an empty side is one row without a price.
        """
        most = whole("levels", levels)
        asked = _Asked.of(market, (start, end), resolution, rows, self._then(as_of), outcome)
        return self._history("books", asked, levels=most)

    def prices(
        self, market: Market, start: Start, end: End, resolution: Width = "1h", outcome: Outcome = None,
        rows: Rows = 500, as_of: AsOf = None,
    ) -> Answer:  # fmt: skip
        """Prices of a market through time: the mean of each bucket, a probability.

        One row per outcome and bucket that has points.
        """
        asked = _Asked.of(market, (start, end), resolution, rows, self._then(as_of), outcome)
        return self._history("prices", asked)

    def quotes(
        self, market: Market, start: Start, end: End, resolution: Width = "1h", outcome: Outcome = None,
        rows: Rows = 500, as_of: AsOf = None,
    ) -> Answer:  # fmt: skip
        """Best bid and ask of a market through time, the last quote of each bucket; sizes are null where unknown.

        One row per outcome and bucket that has a quote.
        """
        asked = _Asked.of(market, (start, end), resolution, rows, self._then(as_of), outcome)
        return self._history("quotes", asked)

    def metrics(
        self, market: Market, start: Start, end: End, resolution: Width = "1h", rows: Rows = 500, as_of: AsOf = None
    ) -> Answer:
        """Metrics of a market through time, such as volume and liquidity: the mean of each bucket.

        One row per bucket that has points.
        """
        return self._history("metrics", _Asked.of(market, (start, end), resolution, rows, self._then(as_of)))

    def features(
        self,
        market: Market,
        start: Start,
        end: End,
        measures: Annotated[
            list[Annotated[str, Field(json_schema_extra={"enum": [*MEASURES]})]],
            Field(description="One column or more each."),
        ],
        resolution: Width = "1h",
        outcome: Outcome = None,
        rows: Rows = 500,
        as_of: AsOf = None,
    ) -> Answer:
        """Measures of the order books of a market: mid, spread, microprice, depth, imbalance, bbo and others.

        One row per outcome and bucket, and a column or more for each measure.
        """
        asked = _Asked.of(market, (start, end), resolution, rows, self._then(as_of), outcome)
        return self._history("books", asked, partial(features, measures=measures))

    def coverage(
        self,
        market: Annotated[str | None, Field(description="Slug or id of a market; all without.")] = None,
        rows: Rows = 500,
    ) -> Answer:
        """Ranges that an archive has: one row per range of a market and kind of data, with its state."""
        if not self._is_archive:
            raise ConfigError("A client has no coverage: it reads the service. Each answer says what is missing in it.")
        with _warnings_as_notes() as notes:
            slugs = {str(one["id"]): one.get("slug") or one["id"] for one in self._source.records("markets")}
            ranges = self._coverage(self._as_of)
            if market is not None:
                ranges = ranges.filter(pl.col("market_id") == str(self._record(market)["id"]))
            ranges = ranges.select(pl.col("market_id").replace(slugs).alias("market"), pl.exclude("market_id"))
        units = {"start": "UTC, inclusive", "end": "UTC, exclusive", "rows": "points of all outcomes"}
        return _answer(ranges, {**units, "fetched_at": "UTC"}, whole("rows", rows), notes, self._as_of)

    def sql(
        self, statement: Annotated[str, Field(description="A SELECT in the dialect of DuckDB.")], rows: Rows = 200
    ) -> Answer:
        """Run a SELECT of DuckDB over an archive: `books snapshots prices quotes metrics markets events coverage`.

        Times are UTC, prices probabilities, sizes shares. `show tables` and `describe books` help. Durations are ISO
        8601, blobs base64, and decimals text.
        """
        if not self.has_sql:
            raise ConfigError("SQL needs an archive, and no as_of: a statement may read what came later.")
        most = min(whole("rows", rows), MOST_ROWS)
        with _warnings_as_notes() as notes:
            result = rows_of(self._source, statement, most + 1, self.stop)
        if result.height > most:
            notes.append(f"The first {most:,} rows; there are more.")
        return _answer(result.head(most), {}, most, notes, None)

    def _coverage(self, then: int | None) -> pl.DataFrame:
        """The coverage with ids as text; of a time only the parts before it, without what was stored or found later."""
        ranges: pl.DataFrame = self._source.coverage().with_columns(pl.col("market_id", "view").cast(pl.String))
        if then is None:
            return ranges
        ranges = ranges.filter(pl.col("state").cast(pl.String) != "missing", pl.col("start") < _time(then))
        end = pl.min_horizontal("end", _time(then)).alias("end")
        return ranges.with_columns(end).select("view", "market_id", "start", "end")

    def _record(self, market: str) -> Mapping[str, Any]:
        """The record of a market; an error for an unknown one."""
        if not self._is_archive:
            return self._source.market(market)  # type: ignore[no-any-return]
        from marketdata.archive.reading import Reader  # a client needs no extra of archives

        record = Reader(self._source).find_market(market)
        if record is None:
            raise NotArchivedError(f"market {market[:200]!r} is not in the archive; `markets` finds slugs.")
        return record

    def _then(self, as_of: str | None) -> int | None:
        """The time after which nothing is known: the earlier one of the call and of all calls."""
        given = [t for t in (self._as_of, None if as_of is None else to_micros(as_of, "as_of")) if t is not None]
        return min(given, default=None)

    def _history(
        self, view: View, asked: _Asked, make: Callable[[pl.DataFrame], pl.DataFrame] | None = None, **options: Any
    ) -> Answer:
        """Rows of a view, or what is made of them, in the part of a range that was known."""
        with _warnings_as_notes() as notes:
            if asked.is_known:
                span = to_text(asked.range.start), to_text(asked.range.end)
                frame = getattr(self._source, view)(asked.market, *span, str(asked.width), **options)
            else:
                notes.append("Nothing of this range was known then.")
                self._record(asked.market)  # an unknown one is an error at any time
                frame = to_frame(empty(view), "polars")
            frame = _of_outcome(frame, asked.outcome)
            made = (frame if make is None else make(frame)).sort("ts", maintain_order=True)
        shown = _first_times(made, asked.rows)
        if shown.height < made.height:
            notes.append(f"The first {shown.height:,} of {made.height:,} rows; next_start has the others.")
        rows, tokens = _without_repeated_ids(shown)
        rounded = rows.with_columns(cs.float().round_sig_figs(_DIGITS))
        answer = {
            "market": asked.market,
            "range": {
                "start": to_text(asked.range.start), "end": to_text(asked.range.end), "resolution": str(asked.width)
            },
            "missing": _missing_ranges(frame["ts"], asked.range, asked.width),
            "tokens": tokens,
            **_answer(rounded, units_of(view), MOST_ROWS, notes, asked.then),
        }  # fmt: skip
        if shown.height < made.height:
            answer["next_start"] = to_text(int(made["ts"].to_physical()[shown.height]))
        return answer


class _Asked(NamedTuple):
    """What a tool of history asks for: the part of a range that was known at the time ``then``, in buckets."""

    market: str
    range: Range
    width: BucketWidth
    rows: int
    then: int | None
    outcome: str | None

    @classmethod
    def of(
        cls, market: str, span: tuple[Any, Any], resolution: str, rows: int, then: int | None,
        outcome: str | None = None,
    ) -> Self:  # fmt: skip
        """The arguments, checked; ConfigError for more buckets than an answer may have."""
        rng, width = to_range(*span), BucketWidth.of(resolution)
        if then is not None:
            rng = Range(rng.start, max(rng.start, min(rng.end, width.floor(then))))
        if (buckets := (rng.end - rng.start) // width.micros) > _MOST_BUCKETS:
            raise ConfigError(
                f"{buckets:,} buckets are too many for one answer; at most {_MOST_BUCKETS:,} are allowed: give a "
                "shorter range, or a coarser resolution."
            )
        return cls(market, rng, width, min(whole("rows", rows), MOST_ROWS), then, outcome)

    @property
    def is_known(self) -> bool:
        """Whether anything of the range was known."""
        return self.range.end > self.range.start


@contextmanager
def _warnings_as_notes() -> Iterator[list[str]]:
    """The warnings of this library during a block, each once."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    notes += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, MarketDataWarning))


def _answer(frame: pl.DataFrame, units: dict[str, str], rows: int, notes: list[str], then: int | None) -> Answer:
    """The first rows of a frame, with the units of its columns and notes; ``then`` is the time of an ``as_of``."""
    shown = frame.head(min(rows, MOST_ROWS))
    if frame.height > shown.height:
        notes = [*notes, f"The first {shown.height:,} of {frame.height:,} rows."]
    texts = shown.with_columns(
        cs.datetime().dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"), cs.time().cast(pl.String), cs.duration().dt.to_string("iso")
    )
    if not all(map(_is_finite, texts.iter_rows())):
        notes = [*notes, "Infinities and NaN are null, because JSON has none."]
    answer: Answer = {
        "columns": texts.columns,
        "units": {name: units[name] for name in texts.columns if name in units},
        "rows": msgspec.json.decode(msgspec.json.encode(texts.rows())),
        "notes": notes,
    }
    return answer if then is None else answer | {"as_of": to_text(then)}


def _is_finite(value: Any) -> bool:
    """Whether a value and all of its parts are numbers that JSON has."""
    if isinstance(value, float):
        return math.isfinite(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return all(map(_is_finite, parts))


def _of_outcome(frame: pl.DataFrame, outcome: str | None) -> pl.DataFrame:
    """The rows of one outcome, given by label or token id; ConfigError if the frame has rows, and none of it."""
    if outcome is None or "token_id" not in frame.columns or not frame.height:
        return frame
    names = pl.col("token_label", "token_id").cast(pl.String)
    rows = frame.filter(pl.any_horizontal(names.fill_null("") == outcome))
    if not rows.height:
        labels = ", ".join(frame["token_label"].cast(pl.String).fill_null("?").unique().sort().head(20))
        raise ConfigError(f"does not exist; some outcomes are {labels}.", argument="outcome", value=outcome)
    return rows


def _without_repeated_ids(rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """The rows without the id of the market, and without the ids of tokens that their labels name; these by label."""
    repeated, tokens = ["market_id"], dict[str, str]()
    if "token_label" in rows.columns:
        ids = rows.select(pl.col("token_label", "token_id").cast(pl.String)).unique().sort("token_id")
        tokens = dict(ids.filter(pl.col("token_label").is_not_null()).rows())
        repeated += ["token_id"] if len(tokens) == len(ids) else []
    return rows.drop(repeated), tokens


def _first_times(frame: pl.DataFrame, rows: int) -> pl.DataFrame:
    """The rows of the first times, as many whole times as fit in ``rows``; one at least."""
    if frame.height <= rows:
        return frame
    first = frame.filter(pl.col("ts") < frame["ts"][rows])
    return first if first.height else frame.filter(pl.col("ts") == frame["ts"][0])


def _missing_ranges(ts: pl.Series, rng: Range, width: BucketWidth) -> list[dict[str, str]]:
    """The first parts of a range in whose buckets no row begins."""
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


def _side_by_side(books: pl.DataFrame, levels: int) -> pl.DataFrame:
    """The last book of each token: a row per level, with the shares up to each level in the columns of totals."""
    last = books.filter(pl.col("ts") == pl.col("ts").max().over("token_id"), pl.col("level") < levels)
    bids, asks = (
        last.filter(pl.col("side") == side).select(
            "ts", *ID_COLUMNS, "level",
            pl.col("size").cum_sum().over("token_id").alias(f"{side}_total"),
            pl.col("size").alias(f"{side}_size"),
            pl.col("price").alias(f"{side}_price"),
        )
        for side in (BID, ASK)
    )  # fmt: skip
    joined = bids.join(asks, on=["ts", *ID_COLUMNS, "level"], how="full", coalesce=True, nulls_equal=True)
    ask_columns = [f"{ASK}_price", f"{ASK}_size", f"{ASK}_total"]
    return joined.select(*bids.columns, *ask_columns).sort(*ID_COLUMNS, "level")


def _stored_ranges(ranges: pl.DataFrame) -> pl.DataFrame:
    """For each market the first and last time of its points, and the first ranges without points of each view."""
    if "state" in ranges.columns:
        ranges = ranges.filter(pl.col("state").cast(pl.String) != "missing")
    before = pl.col("end").cum_max().shift().over("market_id", "view")
    holes = (
        ranges.sort("market_id", "view", "start")
        .with_columns(hole_start=before)
        .filter(pl.col("hole_start") < pl.col("start"))
        .with_columns(
            hole=pl.format(
                "{} {} to {}", "view", pl.col("hole_start").dt.strftime(_MINUTE), pl.col("start").dt.strftime(_MINUTE)
            )
        )
        .group_by("market_id")
        .agg(missing=pl.col("hole").head(_MOST_HOLES))
    )
    whole_range = ranges.group_by("market_id").agg(stored_from=pl.col("start").min(), stored_to=pl.col("end").max())
    return whole_range.join(holes, on="market_id", how="left")
