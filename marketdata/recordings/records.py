"""Records of markets, events and series: answers of venues as `wire` reads them, tables of others by their columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marketdata.errors import ConfigError, ContractError
from marketdata.points.records import ID_NAMES, RecordKind
from marketdata.recordings.format import Reader
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


def is_listing(table: Table) -> bool:
    """Whether rows can be records: none has a time of history, and no market comes twice with another time."""
    names = table.columns.keys()
    if names & _OF_HISTORY:
        return False
    has_time = "ts" in names and table.columns["ts"] != table.columns.get("created_at")
    is_history = has_time and not names & {"state", "token_ids", "token_labels"}
    repeats = table.repeats("market_id")
    # The last of a market's rows would hide the others.
    has_prices = bool(names & _PRICES) or (repeats and "outcome_prices" in table.file.columns)
    is_polled = has_time and has_prices and ("state" not in names or repeats)
    is_price = {"token_id", "price"} <= names and "state" not in names
    return not (is_history or is_polled or is_price)


def reader(kind: RecordKind) -> Reader:
    """The reader of records of a kind; events with markets inside give these too."""

    def read(table: Table) -> Iterator[Batch]:
        rows, no_rows = typed_rows(table.file)
        batch = Batch(rows=len(rows) + no_rows)
        batch.left_out["damaged"] += no_rows
        found: dict[FileKind, list[Row]] = {kind: []}
        reasons: list[str] = []
        for number, row in enumerate(rows, 1):
            try:
                for of, record in _records(kind, _with_names(table, row)):
                    found.setdefault(of, []).append(record)
            except (ContractError, ConfigError, ValueError, TypeError, KeyError, AttributeError) as problem:
                batch.left_out["without an id, or that cannot be read"] += 1
                reasons.append(f"row {number}: {str(problem)[:120]}")
        names = (ID_NAMES[kind], "id", ID_NAMES[kind].replace("_id", "_slug"), "slug")
        ids = {next(str(row[n]) for n in names if row.get(n)) for row in found[kind]}
        batch.left_out[GIVEN_AGAIN] += len(found[kind]) - len(ids)
        batch.notes += reasons[:1]
        batch.left_out = +batch.left_out
        batch.frames.update(found)
        yield batch

    return read


def _with_names(table: Table, row: Row) -> Row:
    """The row under the names that ``columns=`` gives."""
    renamed = {column: name for name, column in table.file.options.columns.items()}
    return {renamed.get(name, name): value for name, value in row.items()}


def _records(kind: FileKind, row: Row) -> Iterator[tuple[FileKind, Row]]:
    """The records that a row holds, with their kinds."""
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
    record = {**row, "tags": as_list(row["tags"])} if "tags" in row else row
    single = kind.removesuffix("s") if kind == "events" else kind
    if not any(record.get(name) for name in ("id", "slug", f"{single}_id", f"{single}_slug")):
        raise ConfigError("it has neither an id nor a slug.")
    yield kind, record
