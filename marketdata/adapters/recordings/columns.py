"""Columns of tables of recordings as numbers, times and tokens, whatever their names and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.columns import Codes, Floats, Ints, Token
from marketdata.points.order import distinct
from marketdata.times import parse_iso, unix_scale

# Names that publishers give to tokens; here and below the first name that is present counts.
TOKEN = ("token_id", "asset_id", "clob_token_id", "token", "instrument_id", "symbol", "ticker", "market_ticker")
# Markets.
MARKET = ("market_id", "condition_id", "market", "market_slug", "slug")
# Outcomes.
LABEL = ("token_label", "token_side", "outcome")
# When the venue made it, and when it was received.
VENUE_TIME = (
    "timestamp", "exchange_timestamp", "venue_timestamp", "book_timestamp", "ts", "time", "snapshot_time",
    "snapshot_ts", "snapshot_at", "created_at", "datetime",
)  # fmt: skip
# When it was received.
SEEN_TIME = (
    "timestamp_received", "received_at", "recv_ts", "receive_ts", "local_timestamp", "collected_at", "captured_at",
    "fetched_at", "collected_at_utc", "recorded_at", "ingested_at", "timestamp_created_at",
)  # fmt: skip
# Names of the question and the slug of a market.
QUESTION, SLUG = ("question", "title"), ("slug", "market_slug")


def first(names: Sequence[str], wanted: Iterable[str]) -> str | None:
    """The first wanted name that is there."""
    return next((name for name in wanted if name in names), None)


def numbers(column: pl.Series) -> Floats:
    """A column of numbers, decimals or texts as floats, NaN where it has none."""
    return column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def micros(column: pl.Series) -> Ints:
    """Times, Unix times in any unit or ISO texts as microseconds UTC; ConfigError for a missing or unreadable one."""
    if column.null_count():
        raise ConfigError(f"{column.name} has {column.null_count()} rows without a time.")
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.epoch("us").to_numpy()
    if not column.dtype.is_numeric():
        column = column.cast(pl.String).str.strip_chars()
    whole = column if column.dtype.is_numeric() else column.cast(pl.Int64, strict=False)
    if whole.null_count():
        floats = column.cast(pl.Float64, strict=False)
        whole = (floats * 1e6).round().cast(pl.Int64) if not floats.null_count() else _iso(column)
    values = whole.to_numpy()
    if len(values) and values.dtype.kind == "f":
        values = np.rint(values * 1e6).astype(np.int64) if values[0] < 10**11 else values.astype(np.int64)
    size = int(np.median(values)) if len(values) else 10**15
    try:
        times, over = unix_scale(size)
    except ValueError as problem:
        raise ConfigError(f"{column.name} cannot be read: {problem}.") from None
    return values.astype(np.int64) * times // over


def _iso(column: pl.Series) -> pl.Series:
    """ISO 8601 texts; each distinct one is read once."""
    known = {}
    for text in column.unique(maintain_order=True).to_list():
        try:
            known[text] = parse_iso(text)
        except ValueError as problem:
            place = (column.index_of(text) or 0) + 1
            raise ConfigError(
                f"{column.name} is neither an ISO 8601 time nor a Unix time: value {place}, {problem}."
            ) from None
    return column.replace_strict(known, return_dtype=pl.Int64)


def coded(*columns: pl.Series | None) -> tuple[list[tuple[str | None, ...]], Codes]:
    """The distinct rows of some columns of texts, and the number of that of each row."""
    some = [
        None if c is None else (c if c.dtype == pl.Categorical else c.cast(pl.String).cast(pl.Categorical))
        for c in columns
    ]
    key = np.zeros(next(len(c) for c in some if c is not None), np.int64)
    for column in some:
        if column is not None:
            code = column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
            key = key * (int(code.max(initial=0)) + 1) + code
    first_rows, codes = distinct(key)
    texts = [[None] * len(first_rows) if c is None else c.gather(first_rows).cast(pl.String).to_list() for c in some]
    return list(zip(*texts, strict=True)), codes.astype(np.int32)


def tokens(frame: pl.DataFrame) -> tuple[tuple[Token, ...], Codes]:
    """The tokens of the rows, and the number of that of each row; a token without an id is that of market and label."""
    names = frame.columns
    token, market, label = (first(names, some) for some in (TOKEN, MARKET, LABEL))
    if token is None and (market is None or label is None):
        raise ConfigError(
            f"No column names the token ({', '.join(TOKEN[:3])}, or {MARKET[0]} and {LABEL[0]}); there are {names}."
        )
    market = market if market != token else None
    found, codes = coded(*(frame[c] if c else None for c in (token, market, label)))
    return tuple(Token(m or "", t or f"{m}:{n}", n) for t, m, n in found), codes


def clocks(frame: pl.DataFrame, clock: str) -> tuple[Ints, Ints]:
    """The time of each row by the clock that is wanted, and that of its arrival where there is one."""
    names = frame.columns
    venue, seen = first(names, VENUE_TIME), first(names, SEEN_TIME)
    chosen = {"timestamp": venue or seen, "received": seen}.get(clock, clock)
    if chosen is None or chosen not in names:
        raise ConfigError(f"has no time for clock={clock!r}; its columns are {names}.", argument="clock", value=clock)
    ts = micros(frame[chosen])
    return ts, ts if seen in (None, chosen) else micros(frame[seen])
