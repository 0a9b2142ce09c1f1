"""Books in other shapes: the ladder at one moment, one wide row per snapshot, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import narwhals as nw
import numpy as np

from marketdata.errors import ConfigError, NotTidyError
from marketdata.tidy import frames
from marketdata.tidy.arguments import whole
from marketdata.tidy.kinds import floats, identity, micros, new_series, texts
from marketdata.tidy.partitions import token_by_token
from marketdata.tidy.runs import group_starts
from marketdata.tidy.schema import ASK, BID, WHO, kind_of
from marketdata.tidy.snapshots import HELD, KEYS, Runs, closed, is_ask_row, is_bid_row, only, opened, snapshots
from marketdata.times import to_datetime, to_micros
from marketdata.wire.columns import BookColumns, Token

F = TypeVar("F")
_TOTAL = "__total"
_WIDE = re.compile(r"bid_px_(\d\d+)")


@token_by_token
def ladder(frame: F, ts: Any) -> F:
    """The book of each token as it stood at one moment, bids and asks side by side.

    Parameters
    ----------
    frame
        Tidy books of any frame kind.
    ts
        The moment, as `client.books` takes it. The last snapshot whose ``ts`` is not later is shown, one per token;
        a bucket is named by its start, so a snapshot stands for the end of its bucket (`available_at`).

    Returns
    -------
    frame of the same kind
        One row per (token, level): ``ts market_id token_id token_label level bid_total bid_size bid_price ask_price
        ask_size ask_total``: prices [probability 0 to 1], sizes and running totals from the best level [shares]. Null
        where a side has no such level; an empty book has no row. By token, then level.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If ``ts`` can not be read.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 3, "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "side": ["bid", "ask", "ask"], "level": [0, 0, 1], "price": [0.25, 0.5, 0.75], "size": [10.0, 10.0, 20.0],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.ladder(book, "2026-01-01T00:05").select("bid_size", "bid_price", "ask_price", "ask_total").rows()
    [(10.0, 0.25, 0.5, 10.0), (None, None, 0.75, 30.0)]
    """
    moment = to_datetime(to_micros(ts, "ts"))
    data = opened(frame)
    kind_of(data.collect_schema().names(), ("books",))
    zone = data.collect_schema()["ts"]
    naive = isinstance(zone, nw.Datetime) and zone.time_zone is None
    data = data.filter(nw.col("ts") <= nw.lit(moment.replace(tzinfo=None) if naive else moment))
    data = data.filter(nw.col("ts") == nw.col("ts").max().over(*WHO))
    rows = snapshots(data.to_native()).with_before(**{_TOTAL: only(nw.col(HELD), nw.col("size"))}).data
    parts = []
    for side, held in ((BID, is_bid_row), (ASK, is_ask_row)):
        values = {"total": nw.col(_TOTAL) + nw.col("size"), "size": nw.col("size"), "price": nw.col("price")}
        parts += [nw.when(held).then(v).alias(f"{side}_{name}") for name, v in values.items()]
    names = ("bid_total", "bid_size", "bid_price", "ask_price", "ask_size", "ask_total")
    rows = rows.filter(nw.col(HELD)).select(*KEYS, "level", *parts).group_by(*KEYS, "level").agg(nw.col(*names).max())
    # A level beside marker rows may be held as a float.
    rows = rows.select(*KEYS, nw.col("level").cast(nw.Int32), *names)
    return closed(rows.sort(*WHO, "level", nulls_last=True), frame)  # type: ignore[no-any-return]


def wide_names(levels: int) -> list[str]:
    """The value columns of a wide frame: price and size of each level, best first."""
    parts = ("bid_px", "ask_px", "bid_sz", "ask_sz")
    return [f"{part}_{level:02d}" for level in range(levels) for part in parts]


def to_wide(frame: F, levels: int | None = None) -> F:
    """Books with one row per snapshot and the levels side by side.

    Parameters
    ----------
    frame
        Tidy books of any frame kind.
    levels : int, optional
        How many levels of each side; deeper ones are cut. Without it as many as the deepest book has; a lazy frame
        does not know that and needs the number.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label bid_px_00 ask_px_00 bid_sz_00 ask_sz_00 bid_px_01
        ...``: prices [probability 0 to 1] and sizes [shares], level 00 the best. Null where a side has no such
        level. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If ``levels`` is no whole number from 1, or missing for a lazy frame.

    Notes
    -----
    Names and order of the columns are those of databento's ``mbp-10`` schema. `from_wide` is the way back.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> books = archive.books(archive.records("markets")[0]["id"], levels=2)
    >>> list(md.to_wide(books).columns)[4:]
    ['bid_px_00', 'ask_px_00', 'bid_sz_00', 'ask_sz_00', 'bid_px_01', 'ask_px_01', 'bid_sz_01', 'ask_sz_01']
    """
    data = opened(frame)
    kind_of(data.collect_schema().names(), ("books",))
    if levels is not None:
        whole("levels", levels)
    elif isinstance(data, nw.DataFrame):
        levels = int(np.nanmax(floats(data["level"]), initial=0.0)) + 1
    else:
        raise ConfigError("levels is missing; a lazy frame needs it, for example to_wide(levels=10).")
    return _widened(frame, levels)


@token_by_token
def _widened(frame: F, levels: int) -> F:
    book = snapshots(frame)
    data = book.data
    if isinstance(book, Runs):
        return closed(_wide_runs(book, levels), frame)  # type: ignore[no-any-return]
    parts = []
    for name in (names := wide_names(levels)):
        side, what, level = name.split("_")
        held = is_bid_row if side == BID else is_ask_row
        here = held & (nw.col("level") == int(level)).fill_null(value=False)
        parts.append(nw.when(here).then(nw.col("price" if what == "px" else "size")).alias(name))
    out = data.select(*KEYS, *parts).group_by(*KEYS).agg(nw.col(*names).max())
    return closed(out.select(*KEYS, *names).sort(*WHO, "ts", nulls_last=True), frame)  # type: ignore[no-any-return]


def _wide_runs(book: Runs, levels: int) -> Any:
    data, (bids, asks) = book.data, book.starts
    numbers = {"px": floats(data["price"]), "sz": floats(data["size"])}
    ends = {BID: asks, ASK: np.append(bids[1:], len(data))}
    begins = {BID: bids, ASK: asks}
    out = data.select(*KEYS)[bids]
    columns = []
    for name in wide_names(levels):
        side, what, level = name.split("_")
        at = begins[side] + int(level)
        values = np.full(len(bids), np.nan)
        there = at < ends[side]
        values[there] = numbers[what][at[there]]
        columns.append(new_series(out, name, values))
    return out.with_columns(*columns)


@token_by_token
def from_wide(frame: F) -> F:
    """Tidy books of wide ones: the way back from `to_wide`.

    Parameters
    ----------
    frame
        Wide books of any frame kind, with the columns that `to_wide` gives; others are left out.

    Returns
    -------
    frame of the same kind
        Tidy books: one row per level of a book side ``ts market_id token_id token_label side level price size``; a side
        without levels is its marker row. In memory with the types of tidy frames; tidy order.

    Raises
    ------
    NotTidyError
        If ids, ``ts`` or the four columns of a level are missing.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> books = archive.books(archive.records("markets")[0]["id"])
    >>> bool(md.from_wide(md.to_wide(books)).equals(books))
    True
    """
    data = opened(frame)
    present = data.collect_schema().names()
    levels = _levels(present)
    data = data.select(*KEYS, *wide_names(levels))
    if isinstance(data, nw.DataFrame):
        return closed(_tidy_runs(data, levels), frame)  # type: ignore[no-any-return]
    parts = []
    for side in (BID, ASK):
        for level in range(levels):
            price, size = nw.col(f"{side}_px_{level:02d}"), nw.col(f"{side}_sz_{level:02d}")
            number = nw.when(~price.is_null()).then(nw.lit(level)).cast(nw.Int32)
            one = data.select(
                *KEYS, side=nw.lit(side), level=number, price=price.cast(nw.Float64), size=size.cast(nw.Float64)
            )
            parts.append(one if level == 0 else one.filter(~nw.col("price").is_null()))
    out = nw.concat(parts).with_columns((nw.col("side") == ASK).alias("__order"))
    out = out.sort(*WHO, "ts", "__order", "level", nulls_last=True)
    return closed(out.select(*KEYS, "side", "level", "price", "size"), frame)  # type: ignore[no-any-return]


def _levels(present: Iterable[str]) -> int:
    names = set(present)
    levels = max((int(m[1]) + 1 for m in map(_WIDE.fullmatch, names) if m), default=1)
    missing = [c for c in (*KEYS, *wide_names(levels)) if c not in names]
    if missing:
        raise NotTidyError.from_missing("A wide books frame", missing, names)
    return levels


def _tidy_runs(data: nw.DataFrame[Any], levels: int) -> Any:
    """Over columns, so that types and order are those of every tidy frame."""
    if len(data):
        order = [nw.col(c).cast(nw.String) for c in WHO]
        data = data.with_columns(*order).sort(*WHO, "ts", nulls_last=True)
    ts = micros(data["ts"])
    groups = group_starts(*(identity(data[c]) for c in WHO))
    heads = [texts(data[c][groups]) for c in WHO]
    tokens = tuple(Token(m or "", t, label) for m, t, label in zip(*heads, strict=True))
    token = np.repeat(np.arange(len(groups), dtype=np.int32), np.diff(np.append(groups, len(data))))
    pairs = np.full((len(data), 2, levels, 2), np.nan)
    for name in wide_names(levels):
        side, what, level = name.split("_")
        pairs[:, int(side == ASK), int(level), int(what == "sz")] = floats(data[name])
    held = ~np.isnan(pairs[..., 0])
    if np.isnan(pairs[held]).any():
        raise NotTidyError("A level has a price and no size; give both, or neither.")
    books = BookColumns(tokens, token, ts, held.sum(axis=2).ravel(), pairs[held])
    kind: frames.FrameKind = "pandas" if data.implementation.is_pandas() else "polars"
    return nw.from_native(frames.to_frame(books, kind))
