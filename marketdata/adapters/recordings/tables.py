"""What the formats of tables share: rows with a time, levels in cells, records of markets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from marketdata.adapters.recordings.batch import Batch, Entries, snapshot_values
from marketdata.adapters.recordings.columns import (
    MARKET,
    PRICE,
    QUESTION,
    SIZE,
    SLUG,
    TIME,
    clocks,
    first,
    numbers,
    sides,
    tokens,
)
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Reading
from marketdata.points.columns import Codes, Floats, Ints, Token
from marketdata.points.rebuild import CHANGE, SNAPSHOT, Changes
from marketdata.points.schema import SNAPSHOT_FIELDS

BIDS_NAMES = ("bids", "bid_levels", "buys", "bids_top5", "bids_top10", "bids_top20")
ASKS_NAMES = ("asks", "ask_levels", "sells", "asks_top5", "asks_top10", "asks_top20")
Levels = list[tuple[float, float]]
TRADE_SIDES = {"buy": "buy", "b": "buy", "bid": "buy", "sell": "sell", "s": "sell", "ask": "sell", "a": "sell"}
# The names that publishers give to columns of trades.
TRADE_COLUMNS = {
    "side": ("side", "taker_side", "taker_direction"), "transaction": ("transaction_hash", "tx_hash"),
    "maker": ("maker", "maker_address"), "taker": ("taker", "taker_address"),
    "role": ("trader_side", "role", "liquidity", "maker_or_taker"),
}  # fmt: skip
# Columns of trades: those of prints, and those that tell the legs of one fill.
_TRADES = {
    "ts": pl.Int64, "market_id": pl.String, "token_id": pl.String, "token_label": pl.String, "side": pl.String,
    "price": pl.Float64, "size": pl.Float64, "transaction": pl.String, "maker": pl.String, "taker": pl.String,
    "role": pl.String,
}  # fmt: skip


def frames_with_time(file: RecordingFile, columns: Sequence[str] | None = None) -> Iterator[tuple[pl.DataFrame, Batch]]:
    """The rows with a time, with a ``__row`` number, and a batch that counts them and those without one."""
    count = 0
    for frame in file.frames(columns):
        rows = frame.with_row_index("__row", count)
        count += len(frame)
        times = [name for name in frame.columns if name in TIME]
        timed = rows.drop_nulls(times)
        left_out = Counter({"without a time": len(rows) - len(timed)} if len(timed) < len(rows) else {})
        yield timed, Batch(rows=len(rows), left_out=left_out)


def row_numbers(frame: pl.DataFrame) -> Ints:
    """The number of each row in its file."""
    return frame["__row"].cast(pl.Int64).to_numpy()


def level_changes(frame: pl.DataFrame, reading: Reading, is_snapshot: Any) -> Changes:
    """Changes of a table with one row per level; SNAPSHOT in all rows of a snapshot."""
    ts, seen = clocks(frame, reading.clock)
    names, token = tokens(frame)
    event = np.where(is_snapshot, SNAPSHOT, CHANGE).astype(np.int8)
    price, size = numbers(frame["price"]), numbers(frame[first(frame.columns, SIZE) or "size"])
    values = kept_values(frame, reading)
    return Changes(
        names, token, ts, seen, event, sides(frame["side"]), price, size, unstated(frame), row_numbers(frame), values
    )


def kept_values(frame: pl.DataFrame, reading: Reading) -> dict[str, Any]:
    """The fields of snapshots to keep, missing where the table has none."""
    none = [None] * len(frame)
    return {
        name: snapshot_values(name, frame[name].to_list() if name in frame.columns else none) for name in reading.keep
    }


def unstated(frame: pl.DataFrame) -> Floats:
    """No stated best prices."""
    return np.full((len(frame), 2), np.nan)


def book_batch(
    batch: Batch,
    frame: pl.DataFrame,
    reading: Reading,
    named: tuple[tuple[Token, ...], Codes],
    cells: Iterable[tuple[Any, Any]],
) -> Batch:
    """The batch with a book for each row, from its cells of bids and asks."""
    names, token = named
    ts, seen = clocks(frame, reading.clock)
    entries, damaged = Entries(reading.keep), 0
    present = [numbers(frame[c]) if c in frame.columns else unstated(frame)[:, 0] for c in ("best_bid", "best_ask")]
    fields = [frame[c].to_list() if c in frame.columns else [None] * len(frame) for c in SNAPSHOT_FIELDS]
    columns = (token.tolist(), ts.tolist(), seen.tolist(), row_numbers(frame).tolist())
    rows = zip(*columns, zip(*present, strict=True), zip(*fields, strict=True), cells, strict=True)
    for code, at, arrival, row, best, values, (bids, asks) in rows:
        try:
            levels = levels_of(bids), levels_of(asks)
        except (KeyError, TypeError, ValueError, StopIteration, msgspec.MsgspecError):
            damaged += 1
            continue
        fields_of = dict(zip(SNAPSHOT_FIELDS, values, strict=True)) if reading.keep else None
        entries.add_snapshot(names[code], at, arrival, row, *levels, (float(best[0]), float(best[1])), fields_of)
    if damaged:
        batch.left_out["damaged"] += damaged
    batch.changes, batch.received = entries.collected(), np.unique(seen)
    batch.markets = batch.markets or market_records(frame)
    return batch


def levels_of(cell: Any) -> Levels:
    """The (price, size) pairs of a side: JSON text, pairs, structs, or a mapping of prices to sizes."""
    if cell is None or (isinstance(cell, str) and cell == ""):
        return []
    if isinstance(cell, str | bytes):
        return levels_of(msgspec.json.decode(cell))
    if isinstance(cell, Mapping):
        return [(float(price), float(size)) for price, size in cell.items()]
    return [_level(level) for level in cell]


def _level(level: Any) -> tuple[float, float]:
    if isinstance(level, Mapping):
        price = next(level[name] for name in ("price", "p", "px") if name in level)
        return float(price), float(next(level[name] for name in (*SIZE, "s", "sz", "count") if name in level))
    price, size = level
    return float(price), float(size)


def market_records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Records of the markets that the rows name with a question or a slug."""
    market, question, slug = (first(frame.columns, names) for names in (MARKET, QUESTION, SLUG))
    if market is None or not (question or (slug and slug != market)):
        return []
    wanted = {k: c for k, c in {"market_id": market, "question": question, "slug": slug}.items() if c}
    records = frame.select(pl.col(c).cast(pl.String).alias(k) for k, c in wanted.items()).unique("market_id")
    return [{k: v for k, v in row.items() if v} for row in records.iter_rows(named=True) if row["market_id"]]


def derived_markets(labels: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Records of markets without ids, which are derived: the slug, and for a token ``slug:outcome``."""
    return [
        {
            "market_id": slug, "slug": slug, "token_ids": [f"{slug}:{label}" for label in of_market],
            "token_labels": list(of_market), "ids_are_derived": True,
        }
        for slug, of_market in labels.items()
        if slug
    ]  # fmt: skip


def trades_of_rows(frame: pl.DataFrame, reading: Reading, batch: Batch) -> pl.DataFrame:
    """Trades of a table with one row per trade or leg; rows without a number or a side are counted in the batch."""
    ts, _ = clocks(frame, reading.clock)
    names, token = tokens(frame)
    given = {ours: first(frame.columns, theirs) for ours, theirs in TRADE_COLUMNS.items()}
    trades = trades_frame(
        {
            "ts": ts,
            **{name: [names[code][i] for code in token.tolist()] for i, name in enumerate(Token._fields)},
            **{ours: frame[theirs].cast(pl.String) for ours, theirs in given.items() if theirs},
            "price": numbers(frame[first(frame.columns, PRICE) or "price"]),
            "size": numbers(frame[first(frame.columns, SIZE) or "size"]),
        }
    )
    trades = trades.with_columns(
        pl.col("side").str.to_lowercase().replace_strict(TRADE_SIDES, default=None, return_dtype=pl.String),
        pl.col("market_id").str.strip_chars("\0 "),
    )
    is_whole = trades["price"].is_between(0, 1) & (trades["size"] > 0) & trades["size"].is_finite()
    if not is_whole.all():
        batch.left_out["price outside of 0 to 1, or no size"] += int((~is_whole).sum())
    return trades.filter(is_whole)


def trades_frame(rows: Any) -> pl.DataFrame:
    """A frame, or rows as dicts, with all columns of trades, null where there are none."""
    frame = pl.DataFrame(rows)
    return frame.select(
        (pl.col(n) if n in frame.columns else pl.lit(None).alias(n)).cast(t) for n, t in _TRADES.items()
    )
