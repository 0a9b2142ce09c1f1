"""Records of markets, events and series: answers of venues as `wire` reads them, tables of others by their columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from marketdata.errors import ConfigError, ContractError
from marketdata.points.records import ID_NAMES, RecordKind, truth
from marketdata.recordings.format import GIVEN_AGAIN, Batch, FileKind, Reader, Table
from marketdata.recordings.points import as_list
from marketdata.recordings.roles import ROLES, first, tokens_of_outcomes
from marketdata.recordings.rows import Row, typed_rows
from marketdata.wire import kalshi, polymarket

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
_TOKEN_OF_OUTCOME = re.compile(r"(?:outcome|token)_?(\d+)(?:_(?:token_)?id)?")
_LABEL_OF_OUTCOME = "outcome_{0}_label outcome_{0} answer{0} answer_{0} label_{0}"
_LISTS = ("token_ids", "clob_token_ids", "clobTokenIds", "token_ids_json", "clob_token_ids_json", "asset_ids",
          "assets_ids")  # fmt: skip
_IDS = ("market_id", "condition_id", "market")
_LABELS = ("token_labels", "outcomes", "outcomes_json")


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
        yield kind, _market(row)
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


def _market(row: Row) -> Row:
    """The record of a market."""
    if row.get("ticker") and (row.get("event_ticker") or str(row["ticker"]).startswith("KX")):
        return kalshi.market(row)
    row = _with_tokens(_flagged(row))
    condition = row.get("conditionId") or row.get("condition_id")
    if "market_id" not in row and not condition and {"conditionId", "condition_id"} & row.keys():
        raise ContractError("its condition id is empty.")
    if condition and "market_id" not in row:
        return polymarket.market(row)
    named = {"market_id" if name == first(row, _IDS) else name: v for name, v in row.items()}
    named.setdefault("market_id", named.get("id") or named.get("slug"))
    if named.get("market_id") in (None, ""):
        raise ContractError("it has no id.")
    if question := first(named, ROLES["question"].names):
        named.setdefault("question", named[question])
    if "market_slug" in named:
        named.setdefault("slug", named["market_slug"])
    named["market_id"] = str(named["market_id"])
    for name in ("tags", "payoffs"):
        if isinstance(named.get(name), str):
            named[name] = as_list(named[name])
    if "outcomes" in named and "token_ids" in named:
        named["token_labels"] = named.pop("outcomes")
    return named


def _flagged(row: Row) -> Row:
    """The row with flags as truth values: files have 0 and 1, and texts."""
    return {
        name: truth(name, value) if name in ("closed", "active", "archived") else value for name, value in row.items()
    }


def _with_tokens(row: Row) -> Row:
    """The row with the ids of its tokens as ``token_ids`` and their labels as ``outcomes``, both lists."""
    tokens = row.get("tokens")
    if isinstance(tokens, str):
        tokens = as_list(tokens, objects=True)
        row = {**row, "tokens": tokens}
    if isinstance(tokens, list) and tokens and isinstance(tokens[0], dict) and "token_id" in tokens[0]:
        if "conditionId" in row or ("condition_id" in row and "market_id" not in row):
            return row
        ids, labels = [str(t["token_id"]) for t in tokens], [t.get("outcome") for t in tokens]
        return {n: v for n, v in row.items() if n != "tokens"} | {"token_ids": ids, "token_labels": labels}
    pair = tokens_of_outcomes(row)
    if pair and not first(row, _LISTS) and all(row[column] for column in pair.values()):
        row = {n: v for n, v in row.items() if n not in (*pair.values(), *_LABELS)} | {
            "token_ids": [str(row[column]) for column in pair.values()],
            "outcomes": as_list(row.get(first(row, _LABELS) or "")) or [*pair],
        }
    name = first(row, _LISTS)
    numbered = {int(m[1]): m.group() for m in map(_TOKEN_OF_OUTCOME.fullmatch, row) if m and _is_id(m.group())}
    if name and row[name] is not None:
        ids, used = [str(one) for one in as_list(row[name]) or ()], [name]
    elif numbered and "tokens" not in row:
        ids, used = [str(row[c]) for _, c in sorted(numbered.items()) if row[c] is not None], [*numbered.values()]
    else:
        return {**row, "outcomes": as_list(row["outcomes"])} if isinstance(row.get("outcomes"), str) else row
    names = [first(row, _LABEL_OF_OUTCOME.format(number).split()) for number in sorted(numbered)]
    labels = as_list(row.get(first(row, _LABELS) or "")) or [str(row[n]) for n in names if n is not None]
    labels = [str(label) for label in labels] if len(labels) == len(ids) else ids
    facts = {}
    for name, given in (("outcomePrices", "outcome_prices"), ("uma_resolution_status", "resolution_status")):
        if (said := row.get(name) or row.get(given)) is not None:
            facts[given] = as_list(said) if given == "outcome_prices" else said
    rest = {n: v for n, v in row.items() if n not in (*used, *_LABELS, "outcomePrices", *facts)}
    return {**rest, "token_ids": ids, "outcomes": labels, **facts}


def _is_id(name: str) -> bool:
    return name.endswith("_id") or re.fullmatch(r"token_?\d+", name) is not None
