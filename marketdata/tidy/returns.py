"""Values over time: open, high, low and close, returns."""

from __future__ import annotations

from typing import get_args

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, read, run
from marketdata.adapters.frame import Frame, Native
from marketdata.adapters.widths import width_of, with_width
from marketdata.errors import ConfigError
from marketdata.points import returns as rules
from marketdata.points.arguments import text
from marketdata.points.bars import bars
from marketdata.points.columns import Series
from marketdata.points.grids import RowWidth, widths
from marketdata.points.returns import How
from marketdata.points.schema import Kind, kind_of, value_columns
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.frames import prints_of, refuse_width_of_prints
from marketdata.tidy.measures import sorted_top

PRICED_KINDS: tuple[Kind, ...] = ("nested", "books", "series")


def value_of(frame: Frame, value: str | None) -> tuple[Frame, Series, str]:
    """The frame with one row per token (market) and time, in order, their entries, and the column of numbers.

    By default ``price``, or the ``mid`` of books. NotTidyError if rows of one token and time differ, ConfigError if the
    column has no numbers or none can be chosen.
    """
    best = None
    if frame.kind in ("books", "nested"):
        frame, best = sorted_top(frame)
    columns = value_columns(frame.names if best is None else best.values)
    numbers = [c for c in columns if best is not None or frame.is_number(c)]
    default = next((c for c in ("price", "mid") if c in columns), numbers[0] if len(numbers) == 1 else None)
    chosen = default if value is None else text("value", value, "the name of a column")
    is_other = chosen not in columns if value is None or not len(frame) else chosen not in numbers
    if chosen is None or is_other:
        raise ConfigError(
            f"value={value!r} is not a column of numbers of this frame; it has {', '.join(numbers) or 'none'}."
        )
    if best is None and frame.kind == "trades":  # several prints may share a time
        frame, rows = frames.sorted_rows(frame)
        best = Series(rows.tokens, rows.bounds, rows.ts, {chosen: frame.numbers(chosen)})
    elif best is None:
        frame, best = frames.sorted_series(frame, [chosen])
    return frame, best, chosen


def probability_of(frame: Frame) -> tuple[Frame, Series, str]:
    """`value_of` for prices or mids."""
    if frame.kind == "series" and not {"price", "mid"} & {*frame.names}:
        kind_of(frame.names, ("nested", "books", "quotes", "prices"))
    return value_of(frame, None)


def ohlc(frame: F, resolution: Width, value: str | None = None, width: Width | None = None) -> F:
    """First, greatest, least and last value of each bucket.

    One row per token (market) and bucket: ``ts`` (bucket start, UTC), ids, ``open high low close`` and ``points``, the
    number of values. ``value`` is a column of the frame, or of `bbo` for books. It is ``price`` by default, or the
    ``mid`` of books. ``resolution`` and ``width`` are bucket widths as in `resample`. Nulls are left out; a bucket
    without a value has no row. Bars of prices at 1m show extremes of means over a minute, not of trades; those of
    trades are the prices of their bars in `resample`, with ``points`` for ``count``.

    Examples
    --------
    >>> prices = md.testing.prices("polars")
    >>> bars = md.ohlc(prices, "1h")
    >>> bars.select("open", "high", "low", "close", "points").row(0)
    (0.4, 0.43, 0.4, 0.43, 3)
    """

    def made(part: Frame) -> Native:
        if part.kind == "trades":
            refuse_width_of_prints(width)
        grid = widths(resolution, RowWidth.optional(width, part.width))
        if part.kind == "trades" and value in (None, "price"):
            of_prints = bars(prints_of(part), grid.target)
            values = {name: of_prints.values[name] for name in ("open", "high", "low", "close")}
            return frames.to_frame(part, of_prints, {**values, "points": of_prints.values["count"]})
        part, series, chosen = value_of(part, value)
        if part.is_whole:
            grid.on_times(series.ts)
        bars_of_part = rules.ohlc(series, chosen, grid.target)
        return frames.to_frame(part, bars_of_part, bars_of_part.values)

    return with_width(run(frame, made, ("trades", *PRICED_KINDS), keep_extra=True), BucketWidth.of(resolution))  # type: ignore[no-any-return]


def returns(frame: F, value: str | None = None, width: Width | None = None, *, how: How = "simple") -> F:
    """Change of a value v from u, its value in the row before of the same token.

    One row per (token, ts): ts, ids and ``returns``, null where v or u is, in the first row of a token, and where the
    formula has no finite value. For ``value`` see `ohlc`.

    Parameters
    ----------
    how : {"simple", "log", "change", "log_odds"}
        v / u - 1, ln v - ln u, v - u, or the change of ln(v / (1 - v)). A value at or below 0 has no logarithm: a log
        return of it is null, also between two negative values.
    width : str or timedelta, optional
        Only between neighbouring buckets of this width, null across a gap. By default however far back u is.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=2)
    >>> md.returns(prices)["returns"].round(3).to_list()
    [None, 0.025, None, -0.017]
    """
    if str(how) not in get_args(How):
        raise ConfigError(f"how={how!r} does not exist; allowed are {', '.join(map(repr, get_args(How)))}.")
    frame = read(frame)
    rows = None if width is None else width_of(frame, width)
    neighbours = None if rows is None else rows.width

    def changes(part: Frame) -> Native:
        part, series, chosen = value_of(part, value)
        return frames.to_frame(part, series, {"returns": rules.returns(series, chosen, how, neighbours)})

    return run(frame, changes, PRICED_KINDS, keep_extra=True, width=rows)
