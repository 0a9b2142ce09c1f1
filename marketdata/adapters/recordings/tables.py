"""Tables of recordings: hourly event files, incremental CSV, snapshots in several forms, bids of both outcomes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters.recordings.batch import Batch, Rows
from marketdata.adapters.recordings.columns import MARKET, QUESTION, SLUG, clocks, coded, first, micros, numbers, tokens
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.errors import ConfigError
from marketdata.points.columns import Codes, Floats, Ints, Token, ranges
from marketdata.points.rebuild import ASKS, BIDS, CHANGE, SNAPSHOT, Changes

# Columns by which event files are known.
EVENT_COLUMNS = ("timestamp_received", "event_type", "asset_id", "bids", "asks", "price", "size", "side")
# Columns read from event files.
_EVENT_READ = (*EVENT_COLUMNS, "timestamp", "market", "best_bid", "best_ask")
# Names that publishers give to sides; here and below the first name that is present counts.
BIDS_NAMES, ASKS_NAMES = ("bids", "bid_levels", "buys"), ("asks", "ask_levels", "sells")
# Whole books in one column.
BOOK_NAMES = ("book", "orderbook", "order_book", "book_json", "orderbook_json", "raw_book")
# The bids of both outcomes.
YES_NAMES, NO_NAMES = ("yes_levels", "yes_bids", "yes"), ("no_levels", "no_bids", "no")
# Sizes.
SIZE_NAMES = ("size", "amount", "quantity", "qty")
# A column of a level of a side.
WIDE = re.compile(r"(bids|asks)\[(\d+)\]\.(price|amount)")
# Names that publishers give to a side.
_SIDES = {"buy": BIDS, "bid": BIDS, "bids": BIDS, "b": BIDS, "sell": ASKS, "ask": ASKS, "asks": ASKS, "a": ASKS}
# Two times of arrival per tenth of a second are kept: enough to find gaps of many seconds [microseconds].
_TENTH = 100_000


def event_files(file: RecordingFile, clock: str) -> Iterator[Batch]:
    """Hourly event files: rows of book, price_change and other events, by token."""
    parts = [_ends(micros(frame["timestamp_received"])) for frame in file.frames(["timestamp_received"])]
    yield Batch(heard=_ends(np.concatenate(parts)) if parts else np.empty(0, np.int64))
    for frame in file.frames(_EVENT_READ):
        kinds = frame["event_type"].cast(pl.String)
        left_out = Counter({k: n for k, n in kinds.value_counts().iter_rows() if k not in ("book", "price_change")})
        is_level = kinds.is_in(["book", "price_change"])
        rows = frame.filter(is_level) if left_out else frame
        is_book = (rows["event_type"].cast(pl.String) == "book").to_numpy()
        ts, seen = clocks(rows, clock)
        names, token = coded(rows["asset_id"], rows["market"] if "market" in rows.columns else None)
        named = tuple(Token((market or "").strip("\0 "), name, None) for name, market in names)
        books = [
            [(side, *level) for side, name in enumerate(("bids", "asks")) for level in levels_of(cell[name])]
            for cell in rows.filter(is_book).select("bids", "asks").iter_rows(named=True)
        ]
        yield Batch(_interleaved(named, token, ts, seen, is_book, books, rows), messages=len(frame), left_out=left_out)


def _ends(times: Ints) -> Ints:
    """The first and the last time of each tenth of a second; as they were, for a hole begins where a message came."""
    times = np.unique(times)
    is_last = np.append(np.diff(times // _TENTH) > 0, True)[: len(times)]
    ends: Ints = times[is_last | np.append(True, is_last[:-1])[: len(times)]]
    return ends


def _interleaved(
    named: tuple[Token, ...],
    token: Codes,
    ts: Ints,
    seen: Ints,
    is_book: Any,
    books: list[list[tuple[int, float, float]]],
    rows: pl.DataFrame,
) -> Changes:
    """Changes of rows of which some are whole books, in their order."""
    width = np.ones(len(rows), np.int64)
    width[is_book] = [max(len(book), 1) for book in books]
    of = np.repeat(np.arange(len(rows)), width)
    begins = np.cumsum(width) - width
    side = _sides(rows["side"])[of]
    price, size = numbers(rows["price"])[of], numbers(rows["size"])[of]
    at = ranges(begins[is_book], width[is_book])
    flat = np.array([level for book in books for level in book or [(0, np.nan, np.nan)]]).reshape(-1, 3)
    side[at], price[at], size[at] = flat[:, 0], flat[:, 1], flat[:, 2]
    event = np.full(len(of), CHANGE, np.int8)
    event[begins[is_book]] = SNAPSHOT
    stated = np.full((len(of), 2), np.nan)
    if {"best_bid", "best_ask"} <= set(rows.columns):
        stated = np.stack((numbers(rows["best_bid"]), numbers(rows["best_ask"])), axis=1)[of]
        stated[at] = np.nan
        stated[stated[:, 1] == 0, 1] = 1.0
    return Changes(named, token[of], ts[of], seen[of], event, side, price, size, stated)


def _sides(column: pl.Series) -> NDArray[np.int8]:
    """Sides as numbers; one that is missing, as in rows of whole books, is that of bids; ConfigError for no side."""
    texts = column.cast(pl.String).str.to_lowercase()
    found = texts.replace_strict(_SIDES, default=None, return_dtype=pl.Int8)
    wrong = texts.filter(found.is_null() & (texts != ""))
    if len(wrong):
        raise ConfigError(f"{column.name} has the value {wrong[0]!r}; allowed are {', '.join(_SIDES)}.")
    return found.fill_null(BIDS).to_numpy().copy()


def level_rows(file: RecordingFile, clock: str, *, incremental: bool = False) -> Iterator[Batch]:
    """Tables with a row per level of a snapshot, or per changed level with ``is_snapshot``, in the order of time."""
    known: dict[Token, int] = {}
    amount = first(file.columns, SIZE_NAMES) or "size"
    for frame in file.frames():
        ts, seen = clocks(frame, clock)
        named, token = tokens(frame)
        if incremental:
            flags = frame["is_snapshot"].cast(pl.String).str.to_lowercase().is_in(["true", "1"]).to_numpy()
            order, at = np.argsort(token, kind="stable"), np.where(flags, seen, -1)
        else:
            order, at = np.lexsort((ts, token)), ts
        # Rows of a snapshot that came together are one book.
        begins = (at[order] >= 0) & (_before(known, named, token[order], at[order]) != at[order])
        event = np.empty(len(order), np.int8)
        event[order] = np.where(begins, SNAPSHOT, CHANGE)
        levels = _sides(frame["side"]), numbers(frame["price"]), numbers(frame[amount])
        changes = Changes(named, token, ts, seen, event, *levels, _nothing(len(frame)))
        yield Batch(changes.take(order), heard=np.unique(seen), messages=len(frame))


def _before(known: dict[Token, int], named: Sequence[Token], token: Codes, values: Ints) -> Ints:
    """The value in the row before of the same token, or in its last row of the parts before (``known``), else -1.

    Rows are sorted by token.
    """
    out = np.append(-1, values[:-1])[: len(values)]
    begins = np.flatnonzero(np.append(True, token[1:] != token[:-1])[: len(token)])
    ends = np.append(begins[1:], len(token))[: len(begins)] - 1
    out[begins] = [known.get(named[code], -1) for code in token[begins].tolist()]
    known.update((named[code], value) for code, value in zip(token[ends].tolist(), values[ends].tolist(), strict=True))
    return out


def snapshots(file: RecordingFile, clock: str) -> Iterator[Batch]:
    """Tables with a book a row: as JSON text, lists of pairs or lists of structs."""
    for frame in file.frames():
        names = frame.columns
        bids, asks, book = (first(names, some) for some in (BIDS_NAMES, ASKS_NAMES, BOOK_NAMES))
        ts, seen = clocks(frame, clock)
        named, token = tokens(frame)
        cells: Iterable[tuple[Any, Any]]
        if bids and asks:
            cells = frame.select(bids, asks).iter_rows()
        else:
            cells = (_both(cell) for cell in frame[str(book)].to_list())
        stated = [numbers(frame[c]) if c in names else np.full(len(frame), np.nan) for c in ("best_bid", "best_ask")]
        yield _batch(named, token, ts, seen, cells, np.stack(stated, axis=1), _markets(frame))


def outcome_bids(file: RecordingFile, clock: str) -> Iterator[Batch]:
    """Tables with the bids of both outcomes: an ask of Yes at p is a bid of No at 1 - p."""
    for frame in file.frames():
        names = frame.columns
        yes, no = first(names, YES_NAMES), first(names, NO_NAMES)
        name = first(names, ("ticker", "market_ticker", *MARKET, "symbol"))
        if name is None:
            raise ConfigError(f"{file.path.name!r} names no market ({', '.join(MARKET)}); its columns are {names}.")
        ts, seen = clocks(frame, clock)
        found, codes = coded(frame[name])
        named = tuple(Token(str(m), f"{m}:{label.lower()}", label) for (m,) in found for label in ("Yes", "No"))
        both = [tuple(_dollars(levels_of(cell)) for cell in row) for row in frame.select(yes, no).iter_rows()]
        cells = [
            (side, [(round(1 - price, 9), size) for price, size in other])
            for one in both
            for side, other in (one, one[::-1])
        ]
        token = np.repeat(2 * codes, 2)
        token[1::2] += 1
        batch = _batch(named, token, np.repeat(ts, 2), np.repeat(seen, 2), cells, _nothing(len(token)), _pairs(found))
        batch.messages //= 2
        yield batch


def wide_snapshots(file: RecordingFile, clock: str) -> Iterator[Batch]:
    """Tables with a column per level: ``bids[0].price``, ``bids[0].amount`` and so on."""
    pairs = sorted({match.groups()[:2] for name in file.columns if (match := WIDE.fullmatch(name))})
    for frame in file.frames():
        ts, seen = clocks(frame, clock)
        named, token = tokens(frame)
        price, size = (
            np.stack([numbers(frame[f"{side}[{i}].{value}"]) for side, i in pairs], axis=1).ravel()
            for value in ("price", "amount")
        )
        width = len(pairs)
        side = np.tile(np.array([_SIDES[side] for side, _ in pairs], np.int8), len(frame))
        event = np.full(len(price), CHANGE, np.int8)
        event[::width] = SNAPSHOT
        token, ts, arrived = np.repeat(token, width), np.repeat(ts, width), np.repeat(seen, width)
        changes = Changes(named, token, ts, arrived, event, side, price, size, _nothing(len(price)))
        yield Batch(changes, heard=np.unique(seen), messages=len(frame))


def _nothing(count: int) -> Floats:
    """No stated best prices."""
    return np.full((count, 2), np.nan)


def _batch(
    named: tuple[Token, ...],
    token: Codes,
    ts: Ints,
    seen: Ints,
    cells: Iterable[tuple[Any, Any]],
    stated: Floats,
    markets: list[dict[str, Any]],
) -> Batch:
    """Whole books, one a row."""
    rows, damaged = Rows(), 0
    keys = zip(token.tolist(), ts.tolist(), seen.tolist(), stated.tolist(), strict=True)
    for (code, at, arrived, best), (bids, asks) in zip(keys, cells, strict=True):
        try:
            rows.snapshot(named[code], at, arrived, levels_of(bids), levels_of(asks), (best[0], best[1]))
        except (KeyError, TypeError, ValueError):
            damaged += 1
    left_out = Counter({"damaged": damaged} if damaged else {})
    return Batch(rows.collected(), heard=np.unique(seen), messages=len(token), left_out=left_out, markets=markets)


def levels_of(cell: Any) -> list[tuple[float, float]]:
    """The (price, size) pairs of a side: JSON text, pairs, structs, or a mapping of prices to sizes."""
    if cell is None or cell == "":
        return []
    if isinstance(cell, str | bytes):
        found: Any = msgspec.json.decode(cell)
        return levels_of(found if found is not None else [])
    if isinstance(cell, Mapping):
        return [(float(price), float(size)) for price, size in cell.items()]
    return [_level(one) for one in cell]


def _level(one: Any) -> tuple[float, float]:
    if isinstance(one, Mapping):
        price = next(one[name] for name in ("price", "p", "px") if name in one)
        return float(price), float(next(one[name] for name in (*SIZE_NAMES, "s", "sz", "count") if name in one))
    return float(one[0]), float(one[1])


def _both(cell: Any) -> tuple[Any, Any]:
    """Bids and asks of a book as JSON text or a struct."""
    found: Any = msgspec.json.decode(cell) if isinstance(cell, str) else cell
    bids, asks = (next((found[name] for name in names if name in found), None) for names in (BIDS_NAMES, ASKS_NAMES))
    return bids, asks


def _dollars(levels: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Prices in dollars; whole numbers from 1 on are cents."""
    if levels and all(price >= 1 and price == int(price) for price, _ in levels):
        return [(price / 100, size) for price, size in levels]
    return levels


def _markets(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Records of the markets that the rows name with a question or a slug."""
    names = frame.columns
    market, question, slug = (first(names, some) for some in (MARKET, QUESTION, SLUG))
    if market is None or not (question or (slug and slug != market)):
        return []
    wanted = {k: c for k, c in {"market_id": market, "question": question, "slug": slug}.items() if c}
    distinct = frame.select(pl.col(c).cast(pl.String).alias(k) for k, c in wanted.items()).unique("market_id")
    return [{k: v for k, v in row.items() if v} for row in distinct.iter_rows(named=True) if row["market_id"]]


def _pairs(found: list[tuple[str | None, ...]]) -> list[dict[str, Any]]:
    """Records of markets of two outcomes."""
    return [
        {"market_id": m, "slug": m, "token_ids": [f"{m}:yes", f"{m}:no"], "token_labels": ["Yes", "No"]}
        for (m,) in found
        if m
    ]
