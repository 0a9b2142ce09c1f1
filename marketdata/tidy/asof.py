"""Time without looking ahead: when a bucket is known, joins as of then, and gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import (
    F,
    collected,
    distinct_rows,
    in_memory,
    in_query,
    is_dask,
    is_lazy,
    kind_name,
    missing_in_index_named,
    names_of,
    read,
    run,
)
from marketdata.adapters.engines import apply, apply_to_both, in_order_of, is_engine
from marketdata.adapters.frame import Column, Frame, Native, Passed
from marketdata.adapters.widths import carried_width, width_of, with_width
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import order
from marketdata.points.arguments import text, texts, with_flags
from marketdata.points.asof import latest
from marketdata.points.columns import Ints
from marketdata.points.grids import RowWidth
from marketdata.points.records import TOKEN_LISTS, label_leaking
from marketdata.points.schema import ID_COLUMNS, check_names, require
from marketdata.resolution import Width
from marketdata.times import Duration, to_duration

KNOWN = "available_at"
_CHOSEN = (
    "If they are some of the rows of narrower buckets, or no buckets, such as polls, say when each was known in a "
    "column available_at."
)


def available_at(frame: F, width: Width | None = None) -> F:
    """Add when each row was known at the earliest: the end of its bucket.

    ``ts`` is the start of a bucket, and the row covers what happened until its end. Using it at ``ts`` looks ahead.
    Returns the tidy frame, rows as they were, with the column ``available_at`` [UTC] = ``ts`` + ``width``, the bucket
    width of the rows, by default the one that the frame carries. GridError if the times do not fit it.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1, resolution="1h")
    >>> md.available_at(prices, "1h")["available_at"][0].isoformat()
    '2026-01-01T01:00:00+00:00'
    """
    frame = read(frame)
    rows = width_of(frame, width)

    def with_end(part: Frame) -> Native:
        return frames.with_columns(part, {KNOWN: frames.times(part.times("ts") + rows.micros)})

    return run(frame, with_end, ["books", "series"], partition_by="row", keep_extra=True, width=rows)


@with_flags("allow_exact_matches")
def asof_join(
    left: F,
    right: Any,
    width: Width | None = None,
    *,
    on: str = "ts",
    by: str | Iterable[str] | None = None,
    tolerance: Duration | None = None,
    allow_exact_matches: bool = False,
    suffix: str = "_right",
) -> F:
    """Add to each row the latest row of another frame that was known before.

    A join on ``ts``, as by `pandas.merge_asof`, would match the bucket that has just begun and so look ahead.

    Parameters
    ----------
    left, right
        Frames of the same kind. ``right`` has one row per id and time, so of books pass `bbo` or `to_wide`.
    on : str
        Time column of ``left``.
    by : str or list of str, optional
        Columns to match; by default the ids that both frames have. ``()`` matches by time alone, for data about no
        market such as an index, the weather or polls.
    width : str or timedelta, optional
        Bucket width of ``right``, if it has no column ``available_at``; by default the one that it carries.
    tolerance : str or timedelta, optional
        Greatest age of a match, ``on`` - ``available_at``: "30m", "2h", "1d".
    allow_exact_matches : bool
        Also match what became known at the moment itself.
    suffix : str
        Ending of the names of columns of ``right`` that ``left`` has too.

    Returns
    -------
    frame
        The rows of ``left`` by ids, then by the time ``on``, with further columns. They are null where nothing was
        known yet:

        - the columns of ``right``, with ``suffix`` where ``left`` has one of that name.
        - ``ts_right``, the ``ts`` of the match with ``suffix``, even if ``left`` has no ``ts``.
        - ``available_at`` of the match, the greatest below ``on``.

    Raises
    ------
    NotTidyError
        ``right`` has two different rows of one id and time.
    ConfigError
        ``right`` has market records with label-leaking columns.
    GridError
        The times of ``right`` are of no buckets of ``width``.

    Examples
    --------
    >>> prices = md.testing.prices("polars")
    >>> metrics = md.testing.metrics("polars")
    >>> md.asof_join(prices, metrics, width="1m")["volume"].to_list()
    [None, None, 100.0, None, None, 100.0]
    """
    left, right = read(left), read(right)
    how = _Join(
        text("on", on, "the name of a column"),
        None if by is None else tuple(texts("by", by, "the name of a column")),
        None if KNOWN in names_of(right) else width_of(right, width, what="right", otherwise=_CHOSEN),
        None if tolerance is None else to_duration(tolerance, "tolerance"),
        allow_exact_matches,
        text("suffix", suffix, "what is added to a name"),
    )
    if is_dask(left) or is_dask(right):
        raise ConfigError("Dask frames are not joined as of a time; compute() both, or write Parquet and use polars.")
    if kind_name(left) != kind_name(right):
        raise ConfigError(
            f"left is {kind_name(left)}, right is {kind_name(right)}; a join takes two frames of one kind."
        )
    if is_lazy(left):
        out = in_query(left, partial(_checked_join, how=how), right)  # type: ignore[arg-type]
    else:
        out = (_join_in_engine if is_engine(left) else _checked_join)(left, right, how=how)
    return with_width(out, carried_width(left))  # type: ignore[no-any-return]


class _Join(NamedTuple):
    on: str
    by: tuple[str, ...] | None
    width: RowWidth | None
    tolerance: int | None
    exact: bool
    suffix: str


def _join_in_engine(left: Native, right: Native, how: _Join) -> Native:
    """Join token by token; data without a market is read into memory."""
    keys, ids = _keys(names_of(left), names_of(right), how), [c for c in ID_COLUMNS[:2] if c in names_of(left)]
    if keys:
        out = apply_to_both(left, right, partial(_join, how=how), keys)
    else:
        out = apply(left, partial(_join, right=collected(right), how=how), ids)
    if how.width is not None:
        how.width.check(in_memory(distinct_rows(right, ["ts"])).times("ts"))
    return out if ids and {*keys} <= {*ids} else in_order_of(out, [*ids, how.on])


def _keys(names: Sequence[str], others: Sequence[str], how: _Join) -> tuple[str, ...]:
    """The columns to match; an error if a frame lacks one."""
    check_names(names)
    check_names(others)
    require("The left frame", [how.on], names)
    keys = tuple(c for c in ID_COLUMNS[:2] if c in names and c in others) if how.by is None else how.by
    missing = [c for c in keys if c not in names or c not in others]
    if missing or (how.by is None and not keys):
        raise NotTidyError.from_missing("A join by ids (by=() joins by time alone)", missing or ["market_id"], others)
    require("The right frame", [] if KNOWN in others else ["ts"], others)
    is_record = bool({"question", *TOKEN_LISTS} & {*others})
    if is_record and (later := label_leaking(others, ("ts", "token_label"))):
        raise ConfigError(
            f"right has market records with the label-leaking columns {', '.join(map(repr, later))}; pass "
            "md.without_answers(records) with available_at, or select the ids, available_at and the columns you need."
        )
    return keys


def _added(left: Sequence[str], right: Sequence[str], keys: tuple[str, ...], suffix: str) -> dict[str, str]:
    """The columns of ``right`` by their names in the result; ConfigError if one would be there twice."""
    added = [c for c in right if c not in left or c not in (*keys, *ID_COLUMNS)]
    # A time of another frame is never called ts: a later function would take it for the time of the row.
    names = [c + suffix if c in left or c == "ts" else c for c in added]
    twice = sorted(c for c, count in Counter([*left, *names]).items() if count > 1)
    if twice:
        raise ConfigError(
            f"suffix={suffix!r} is refused: {', '.join(map(repr, twice))} would be in the result twice; give another "
            "suffix, or rename the columns."
        )
    return dict(zip(names, added, strict=True))


def _checked_join(left: Native, right: Native, how: _Join) -> Native:
    """Join two frames in memory without null times."""
    known_rows = in_memory(right)
    if how.width is not None and "ts" in known_rows.names:
        how.width.check(known_rows.times("ts"))
    return _join(left, right, how)


def _join(left: Native, right: Native, how: _Join) -> Native:
    """Join frames in memory, of whole tokens."""
    rows, known_rows = in_memory(left), in_memory(right)
    with missing_in_index_named(rows), missing_in_index_named(known_rows):
        keys = _keys(rows.names, known_rows.names, how)
    if how.width is not None and KNOWN not in known_rows.names:
        ends = frames.times(known_rows.times("ts") + how.width.micros)
        known_rows = in_memory(frames.with_columns(known_rows, {KNOWN: ends}))
    rows.check_numbers()
    known_rows.check_numbers()
    key, known_key = _codes(rows, known_rows, keys)
    moments, known_at = rows.times(how.on), known_rows.times(KNOWN)
    by_key = order.sorted_by(known_key, known_at)
    known_key, known_at = known_key[by_key], known_at[by_key]
    same = order.same_as_before(known_key, known_at)
    if same.any():
        ordered = known_rows.take(by_key)
        if (same & ~order.same_as_before(*(ordered.comparable(c) for c in ordered.names))).any():
            raise NotTidyError(
                f"right has two different rows with the same {', '.join((*keys, KNOWN))}; a join takes one. Of books "
                "give md.bbo(books) or md.to_wide(books)."
            )
    match = latest(key, moments, known_key, known_at, exact=how.exact)
    if how.tolerance is not None:
        match[moments - np.append(known_at, 0)[match] > how.tolerance] = -1
    place = order.sorted_by(*(frames.ranks(rows, c) for c in ID_COLUMNS[:2] if c in rows.names), moments)
    match = np.append(by_key, -1)[match[place]]
    names = _added(rows.names, known_rows.names, keys, how.suffix)
    return frames.rows_to_frame(rows, place, {new: Passed(known_rows, old, match) for new, old in names.items()})


def _codes(left: Frame, right: Frame, keys: tuple[str, ...]) -> tuple[Ints, Ints]:
    """One integer per row of both frames, equal for equal ids; a missing id equals no other."""
    place: dict[tuple[str | None, ...], int] = {}
    out = []
    for none, frame in ((-1, left), (-2, right)):
        texts, which = frames.distinct_ids(frame, keys)
        codes = [none if None in t else place.setdefault(t, len(place)) for t in texts]
        out.append(np.array(codes, np.int64)[which])
    return out[0], out[1]


def gaps(frame: F, width: Width | None = None) -> F:
    """Ranges of missing buckets between the first and the last row of each token.

    One row per gap of a token (market): ids and ``start end missing``, the half-open range [start, end) [UTC] and its
    number of buckets. A row off the grid counts for the bucket that contains it. ``width`` is by default the one that
    the frame carries. GridError if all times fit wider buckets.

    Examples
    --------
    >>> gaps = md.gaps(md.testing.prices("polars", buckets=4)[[0, 3]], "1m")
    >>> gaps["missing"].to_list()
    [2]
    """
    frame = read(frame)
    buckets = width_of(frame, width)

    def missing(part: Frame) -> Native:
        part, rows = frames.sorted_rows(part)
        if part.is_whole:
            buckets.check_coarser(rows.ts)
        ts = buckets.width.floor(rows.ts)
        step = np.diff(ts, prepend=ts[:1])
        step[rows.starts] = 0
        at = np.flatnonzero(step > buckets.micros)
        values: dict[str, Column] = {
            "start": frames.times(ts[at - 1] + buckets.micros),
            "end": frames.times(ts[at]),
            "missing": step[at] // buckets.micros - 1,
        }
        return frames.to_frame(part, rows.take(at), values, [*part.ids, *values])

    return run(frame, missing, ["books", "series"])
