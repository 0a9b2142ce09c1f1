"""Columns of tables of recordings as numbers, times and tokens, whatever their names and types."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.columns import Codes, Floats, Ints, Token
from marketdata.points.order import distinct
from marketdata.points.rebuild import ASKS, BIDS
from marketdata.times import parse_iso, unix_scale

# The names that publishers give to a column, the best known first.
TOKEN = (
    "token_id", "asset_id", "clob_token_id", "token", "asset", "instrument_id", "symbol", "ticker", "market_ticker",
)  # fmt: skip
MARKET = ("market_id", "condition_id", "market", "market_slug", "slug")
LABEL = ("token_label", "token_side", "outcome", "outcome_label")
VENUE_TIME = (
    "ts", "timestamp", "exchange_timestamp", "venue_timestamp", "book_timestamp", "time", "t", "snapshot_time",
    "snapshot_ts", "snapshot_at", "datetime", "block_timestamp", "match_time", "created_at",
)  # fmt: skip
ARRIVAL_TIME = (
    "timestamp_received", "received_at", "recv_ts", "receive_ts", "local_timestamp", "collected_at", "captured_at",
    "fetched_at", "collected_at_utc", "recorded_at", "ingested_at", "timestamp_created_at",
)  # fmt: skip
TIME = (*VENUE_TIME, *ARRIVAL_TIME)
SIDE = ("side",)
PRICE = ("price", "p")
SIZE = ("size", "amount", "quantity", "qty", "shares")
LEVEL = ("level", "level_index", "rank")
QUESTION, SLUG = ("question", "title"), ("slug", "market_slug")


def first(present: Iterable[str], names: Iterable[str]) -> str | None:
    """The first of some names that is present."""
    present = set(present)
    return next((name for name in names if name in present), None)


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
    micros_of = {}
    for text in column.unique(maintain_order=True).to_list():
        try:
            micros_of[text] = parse_iso(text)
        except ValueError as problem:
            place = (column.index_of(text) or 0) + 1
            raise ConfigError(
                f"{column.name} is neither an ISO 8601 time nor a Unix time: value {place}, {problem}."
            ) from None
    return column.replace_strict(micros_of, return_dtype=pl.Int64)


def coded(*columns: pl.Series | None) -> tuple[list[tuple[str | None, ...]], Codes]:
    """The distinct rows of columns of texts, and for each row the number of its distinct row."""
    given = [c for c in columns if c is not None]
    categories = [c if c.dtype == pl.Categorical else c.cast(pl.String).cast(pl.Categorical) for c in given]
    key = np.zeros(len(given[0]), np.int64)
    for column in categories:
        code = column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
        key = key * (int(code.max(initial=0)) + 1) + code
    first_rows, codes = distinct(key)
    texts = iter([c.gather(first_rows).cast(pl.String).to_list() for c in categories])
    rows = [[None] * len(first_rows) if c is None else next(texts) for c in columns]
    return list(zip(*rows, strict=True)), codes.astype(np.int32)


def tokens(frame: pl.DataFrame) -> tuple[tuple[Token, ...], Codes]:
    """The tokens, and for each row the number of its token; one without an id is called by its market and label."""
    token, market, label = (first(frame.columns, names) for names in (TOKEN, MARKET, LABEL))
    if token is None and (market is None or label is None):
        raise ConfigError(
            f"No column names the token ({', '.join(TOKEN[:3])}, or {MARKET[0]} and {LABEL[0]}); its columns are "
            f"{', '.join(frame.columns)}."
        )
    rows, codes = coded(*(frame[c] if c else None for c in (token, market, label)))
    return tuple(Token(m or "", t or f"{m}:{n}", n) for t, m, n in rows), codes


def clocks(frame: pl.DataFrame, clock: str) -> tuple[Ints, Ints]:
    """The time of each row by the chosen clock, and the time of its arrival, where there is none the same."""
    venue, arrival = first(frame.columns, VENUE_TIME), first(frame.columns, ARRIVAL_TIME)
    column = {"timestamp": venue or arrival, "received": arrival}.get(clock, clock)
    if column is None or column not in frame.columns:
        raise ConfigError(
            f"has no time for clock={clock!r}; its columns are {', '.join(frame.columns)}.",
            argument="clock",
            value=clock,
        )
    ts = micros(frame[column])
    return ts, ts if arrival in (None, column) else micros(frame[arrival])


def sides(column: pl.Series) -> NDArray[np.int8]:
    """Sides as numbers, that of bids where one is missing; ConfigError for another text."""
    codes_of = dict.fromkeys(("buy", "bid", "bids", "b"), BIDS) | dict.fromkeys(("sell", "ask", "asks", "a"), ASKS)
    texts = column.cast(pl.String).str.to_lowercase()
    codes = texts.replace_strict(codes_of, default=None, return_dtype=pl.Int8)
    wrong = texts.filter(codes.is_null() & (texts != ""))
    if len(wrong):
        raise ConfigError(f"{column.name} has the value {wrong[0]!r}; allowed are {', '.join(codes_of)}.")
    return codes.fill_null(BIDS).to_numpy().copy()
