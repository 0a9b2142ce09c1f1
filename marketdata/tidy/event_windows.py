"""Rows around moments, with times relative to the moment."""

from __future__ import annotations

from functools import partial
from typing import Any

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, read, run, series_of
from marketdata.adapters.frame import Column, Frame, Native, Passed
from marketdata.adapters.polars import made
from marketdata.adapters.widths import width_of
from marketdata.errors import ConfigError
from marketdata.points import asof as rules
from marketdata.points.grids import RowWidth
from marketdata.points.schema import ID_COLUMNS, require
from marketdata.resolution import Width
from marketdata.times import SECOND, Duration, to_duration


def around(frame: F, moments: Any, width: Width | None = None, *, before: Duration, after: Duration) -> F:
    """Cut windows around moments out of a frame, with times relative to the moment.

    Returns the rows with moment - before <= ts < moment + after, once for each such moment. They have the further
    columns of ``moments``, ``moment`` [UTC] and ``offset`` = ts - moment [s]. They are sorted by moment as in
    ``moments``, then in tidy order. The row at offset 0 covers the time after the moment; the last row that was known
    by then is one bucket earlier. MacKinlay (1997), "Event studies in economics and finance".

    Parameters
    ----------
    moments
        Frame of any kind in memory: ``ts`` [UTC], and ``market_id`` or ``market_id token_id``; without ids a moment is
        one of every market. ConfigError if another column is also one of the frame.
    before, after : str or timedelta
        Length of the window before and after the moment: "90s", "30m", "1h", "2d", "1w".
    width : str or timedelta, optional
        Bucket width of the rows: offsets are rounded down to it, so that windows can be averaged. Exact by default.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=5).filter(token_label="Yes")
    >>> moments = prices.slice(2, 1).select(
    ...     "ts", "market_id", news=pl.lit("forecast")
    ... )
    >>> rows = md.around(prices, moments, before="1m", after="2m")
    >>> rows.select("offset", "price", "news").rows()
    [(-60.0, 0.41, 'forecast'), (0.0, 0.43, 'forecast'), (60.0, 0.42, 'forecast')]
    """
    reach = to_duration(before, "before"), to_duration(after, "after")
    frame = read(frame)
    rows = None if width is None else width_of(frame, width)
    table = series_of(moments, "A frame of moments", ["ts"])
    windows = partial(_windows, moments=table, reach=reach, width=rows)
    return run(frame, windows, ("books", "series"), partition_by="token", keep_extra=True, width=rows)


def _windows(frame: Frame, moments: Frame, reach: tuple[int, int], width: RowWidth | None) -> Native:
    keys = [c for c in ID_COLUMNS[:2] if c in moments.names]
    further = [c for c in moments.names if c not in (*ID_COLUMNS, "ts")]
    twice = sorted({*further, "moment", "offset"} & set(frame.names))
    if twice:
        raise ConfigError(
            f"{', '.join(map(repr, twice))} would be in the result twice; rename the column of one frame."
        )
    require("A frame with moments of markets", keys, frame.names)
    if frame.kind == "books":
        frame = frames.sorted_snapshots(frame, all_levels=False)[0]  # in order by side and level too
    frame, entries = frames.sorted_rows(frame)
    owners = zip(*(moments.texts(c) for c in keys), strict=True) if keys else [()] * len(moments)
    at, rows = rules.around(entries, moments.times("ts"), list(owners), keys, reach)
    moment = moments.times("ts")[at]
    offset = entries.ts[rows] - moment
    if width is not None:
        offset = offset // width.micros * width.micros
    values: dict[str, Column] = {c: made(c, Passed(moments, c, at)) for c in further}
    values |= {"moment": frames.times(moment), "offset": offset / SECOND}
    return frames.rows_to_frame(frame, rows, values)
