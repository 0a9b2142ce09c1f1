"""Records of markets, events and series: answers of venues as `wire` reads them, tables of others by their columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from marketdata.errors import ConfigError, ContractError, RecordingWarning, warn
from marketdata.points.records import ID_NAMES, RecordKind
from marketdata.recordings.book_rows import printed
from marketdata.recordings.format import Reader
from marketdata.recordings.roles import INDEX_NAMES, is_time
from marketdata.recordings.rows import Row, typed_rows
from marketdata.recordings.table import GIVEN_AGAIN, Batch, FileKind, Table
from marketdata.wire import kalshi, polymarket
from marketdata.wire import records as market_records
from marketdata.wire.records import as_list

# A listing has prices and volumes of its moment, which no history has.
RECORD_ROLES = (
    "token_id price best_bid best_ask yes_bid yes_ask no_bid no_ask yes_price no_price count size close activity "
    "message taker_outcome order_id"
)
_OF_HISTORY = {
    "bids", "asks", "book", "yes_levels", "no_levels", "event_type", "trade_id", "transaction_hash", "maker", "taker",
    "maker_amount", "taker_amount", "side", "level", "is_snapshot", "order_id",
    "account",
}  # fmt: skip
_PRICES = {"best_bid", "best_ask", "yes_bid", "yes_ask", "no_bid", "no_ask", "price", "yes_price", "no_price", "close"}
# What changes from one time to the next beside prices, so that rows of a market are its history.
_VALUES = {"volume", "liquidity", "spread", "open_interest"}
_CAMEL = re.compile(r"[a-z]+[0-9]*(?:[A-Z][a-z0-9]*)+")
# Times of a record that change, because they are of its last state.
_CHANGING_TIME = re.compile(r"updat|modif|last|fetch|seen|chang|sync|clos|end_|resol|settl|expir")
_ID_NAMES: dict[RecordKind, tuple[str, ...]] = {
    "markets": ("market_id", "conditionId", "condition_id", "ticker", "market_ticker", "id", "slug", "market_slug"),
    "events": ("event_id", "event_ticker", "id", "slug", "event_slug"), "series": ("series_id", "ticker", "id", "slug"),
}  # fmt: skip
_FACTS = {"state", "token_ids", "token_labels"}
# What Kalshi says of a series alone.
OF_SERIES = {"frequency", "settlement_sources", "contract_url", "contract_terms_url"}


def is_history(table: Table) -> str | None:
    """Why rows are no records: they have what only points have, or their market comes again at another time."""
    names, columns, options = table.columns.keys(), table.columns, table.file.options
    if points := sorted(names & _OF_HISTORY):
        return f"{columns[points[0]]} is {points[0]}, which no record has."
    if {"token_id", "price"} <= names and not names & {"state", "won"}:
        return f"{columns['token_id']} and {columns['price']} are prices of tokens, which no record has."
    if "ts" not in names or columns["ts"] == columns.get("created_at"):
        return None
    has_values = bool(names & (_PRICES | _VALUES)) or "outcome_prices" in table.file.columns
    is_of_prices = names & _PRICES and "state" not in names
    if options.format is None and ("ts" in options.columns or not names & _FACTS or is_of_prices):
        return f"{columns['ts']} is the time of each row, so its rows are no records."
    if has_values and table.repeats("market_id"):
        return f"A market comes again, with the time {columns['ts']}, so its rows are no records but its history."
    if table.times and has_values and options.format is None:
        time = columns["ts"]
        raise ConfigError(
            f"{table.file.name!r} has the time {time}, which may be when its prices were seen, or a fact of each "
            f"record. columns={{'ts': {time!r}}} reads prices through time, format='markets' records."
        )
    return None


def reader(kind: RecordKind) -> Reader:
    """The reader of records of a kind; events with markets inside give these too."""

    def read(table: Table) -> Iterator[Batch]:
        rows, no_rows = typed_rows(table.file)
        batch = Batch(rows=len(rows) + no_rows)
        batch.left_out["damaged"] += no_rows
        found: dict[FileKind, list[Row]] = {kind: []}
        reasons: list[str] = []
        named = [_with_names(table, row) for row in rows]
        markets = market_records.by_market(named) if kind == "markets" else named
        if len(markets) < len(named):
            batch.rows -= len(named) - len(markets)
            batch.notes.append(f"{len(named):,} rows of tokens are {len(markets):,} markets")
        for number, row in enumerate(markets, 1):
            try:
                for of, record in _records(kind, row):
                    found.setdefault(of, []).append(record)
            except (ContractError, ConfigError, ValueError, TypeError, KeyError, AttributeError) as problem:
                batch.left_out["without an id, or that cannot be read"] += 1
                reasons.append(f"row {number}: {str(problem)[:120].removesuffix('.')}")
        _refuse_history(table, kind, markets)
        names = (ID_NAMES[kind], "id", ID_NAMES[kind].replace("_id", "_slug"), "slug")
        ids = {next(str(row[n]) for n in names if row.get(n)) for row in found[kind]}
        batch.left_out[GIVEN_AGAIN] += len(found[kind]) - len(ids)
        batch.notes += reasons[:1]
        if "ts" in table.columns and table.columns.keys() & _PRICES:
            time = table.columns["ts"]
            batch.notes.append(f"prices at {time} are not stored; columns={{'ts': {time!r}}} reads them through time")
        batch.left_out = +batch.left_out
        batch.frames.update(found)
        yield batch

    return read


def _refuse_history(table: Table, kind: RecordKind, rows: list[Row]) -> None:
    """ConfigError if rows of one id differ in more than what changes: they are a history, and not its last state.

    Prices, volumes, states and the time of an update change; another time, or other values in most rows, do not.
    """
    first_of: dict[str, Row] = {}
    others = timed = 0
    for row in rows:
        id_name = next((n for n in _ID_NAMES[kind] if row.get(n) not in (None, "")), None)
        known = first_of.setdefault(str(row.get(id_name)), row) if id_name else row
        if known is row or known == row:
            continue
        others += 1
        for name in (n for n, value in row.items() if value != known.get(n)):
            values = pl.Series([row[name], known.get(name)], strict=False)
            if not _CHANGING_TIME.search(name.lower()) and is_time(values):
                timed += 1
                column = name
                break
    about = f"{table.file.name!r} has {others:,} of {len(rows):,} rows of a record given before, with other values"
    if timed * 10 > others > 0:
        raise ConfigError(
            f"{about}, such as another {column}, so its rows are a history and not records. "
            f"columns={{'ts': {column!r}}} names their time."
        )
    if others * 2 >= len(rows) > 0:
        time = next(iter(table.file.times_around()), "when")
        raise ConfigError(
            f"{about}, so its rows are a history without a time, and not records. Name the column of their time with "
            f"columns={{'ts': {time!r}}}, or keep one row a record."
        )
    if others * 100 > len(rows):
        warn(f"{about}; the last one counts.", RecordingWarning)


def _with_names(table: Table, row: Row) -> Row:
    """The row under the names that ``columns=`` gives."""
    file = table.file
    renamed = {column: name for name, column in file.options.columns.items()}
    if file.form != "json":
        # A table was read under common names; a record is read under those that its file has.
        theirs = {ours: name for name, ours in file.common_names(file.names).items() if _CAMEL.fullmatch(name)}
        row = {theirs.get(name, name): _objects(value) for name, value in row.items() if name not in INDEX_NAMES}
    return {renamed.get(name, name): value for name, value in row.items()}


def _objects(value: Any) -> Any:
    """The objects of a cell that has them as JSON, or as Python prints them; another value as it is."""
    if not isinstance(value, str) or not value.startswith(("[{", "{")):
        return value
    try:
        return printed(value)
    except ValueError:
        return value


def _records(kind: FileKind, row: Row) -> Iterator[tuple[FileKind, Row]]:
    """The records that a row holds, with their kinds; ConfigError for one that nothing names."""
    for of, record in _read(kind, row):
        single = of if of == "series" else of.removesuffix("s")
        if not any(record.get(name) for name in ("id", "slug", f"{single}_id", f"{single}_slug")):
            raise ConfigError("it has neither an id nor a slug.")
        yield of, record


def _read(kind: FileKind, row: Row) -> Iterator[tuple[FileKind, Row]]:
    """The records that a row holds, as their venue or a table has them."""
    if kind == "markets":
        yield kind, market_records.market(row)
        return
    of_kalshi = "event_ticker" in row
    if kind == "events" and (of_kalshi or "markets" in row):
        venue: Any = kalshi if of_kalshi else polymarket
        yield kind, venue.event(row)
        yield from (("markets", venue.market(market, row)) for market in row.get("markets") or ())
        return
    if kind == "series" and "ticker" in row and "id" not in row:
        row = kalshi.series(row)
    yield kind, {**row, "tags": as_list(row["tags"])} if "tags" in row else row
