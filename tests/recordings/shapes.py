"""Recordings as their publishers write them."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

START = 1_767_225_600_000
MARKET = "0x" + "ab" * 32
YES, NO = "7" * 77, "8" * 77
Event = dict[str, Any]


def book(after: float, token: str, bids: list[tuple[str, str]], asks: list[tuple[str, str]]) -> Event:
    """A whole book, worst price first, as the venue sends it."""
    sides = {"bids": sorted(bids), "asks": sorted(asks, reverse=True)}
    stamp = str(START + round(1000 * after))
    return {
        "event_type": "book", "asset_id": token, "market": MARKET, "timestamp": stamp, "hash": "h",
        **{name: [{"price": p, "size": s} for p, s in levels] for name, levels in sides.items()},
    }  # fmt: skip


def change(after: float, token: str, side: str, price: str, size: str, **best: str) -> Event:
    """A level and its new size."""
    level = {"asset_id": token, "price": price, "size": size, "side": side, **best}
    stamp = str(START + round(1000 * after))
    return {"event_type": "price_change", "market": MARKET, "timestamp": stamp, "price_changes": [level]}


def trade(after: float) -> Event:
    """A trade print."""
    return {
        "event_type": "last_trade_price", "asset_id": YES, "market": MARKET, "price": ".5", "size": "3", "side": "BUY",
        "fee_rate_bps": "0", "timestamp": str(START + round(1000 * after)), "transaction_hash": "0x1",
    }  # fmt: skip


EVENTS = [
    book(0, YES, [(".4", "10"), (".45", "30")], [(".9", "1"), (".55", "25")]),
    book(0.5, NO, [(".45", "25")], [(".55", "30")]),
    change(20, YES, "BUY", ".48", "5", best_bid="0.48", best_ask="0.55"),
    trade(30),
    change(70, YES, "BUY", ".48", "0", best_bid="0.45", best_ask="0.55"),
    change(80, NO, "SELL", ".55", "0", best_bid="0.45", best_ask=""),
    book(200, NO, [], []),
    change(230, YES, "SELL", ".55", "1", best_bid="0.45", best_ask="0.55"),
]
# Token, minute and best prices of each book that the events make.
TOPS = [
    *(("7", minute, *best) for minute, best in enumerate([(0.48, 0.55), (0.45, 0.55), (0.45, 0.55), (0.45, 0.55)])),
    *(("8", minute, *best) for minute, best in enumerate([(0.45, 0.55), (0.45, None), (0.45, None), (None, None)])),
]


def later(events: list[Event], seconds: float) -> list[Event]:
    """The events so much later."""
    return [{**event, "timestamp": str(int(event["timestamp"]) + round(1000 * seconds))} for event in events]


def lines(path: Path, values: list[Any]) -> Path:
    """JSON lines, compressed as the name says."""
    raw = "".join(json.dumps(value) + "\n" for value in values).encode()
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(raw))
    elif path.suffix == ".zst":
        with pa.output_stream(path, compression="zstd") as out:
            out.write(raw)
    else:
        path.write_bytes(raw)
    return path


def event_file(path: Path, events: list[Event]) -> Path:
    """An hourly event file of 16 columns, by market, token and time of arrival."""
    rows = []
    for event in events:
        for entry in event.get("price_changes", [event]):
            at = dt.datetime.fromtimestamp(int(event["timestamp"]) / 1000, dt.UTC)
            sides = [
                json.dumps([[x["price"], x["size"]] for x in event[n]]) if n in event else None
                for n in ("bids", "asks")
            ]
            numbers = [Decimal(entry[n]) if entry.get(n) else None for n in ("price", "size", "best_bid", "best_ask")]
            rows.append((at, at, event["market"].encode(), event["event_type"], entry["asset_id"], *sides, numbers[0],
                         numbers[1], entry.get("side"), numbers[2], numbers[3], None, None, None, None))  # fmt: skip
    rows.sort(key=lambda row: (row[2], row[4], row[0]))
    time, price = pa.timestamp("ms", "UTC"), pa.decimal128(9, 4)
    schema = pa.schema([
        ("timestamp_received", time), ("timestamp", time), ("market", pa.binary(66)), ("event_type", pa.string()),
        ("asset_id", pa.string()), ("bids", pa.string()), ("asks", pa.string()), ("price", price),
        ("size", pa.decimal128(18, 6)), ("side", pa.string()), ("best_bid", price), ("best_ask", price),
        ("fee_rate_bps", pa.uint16()), ("transaction_hash", pa.string()), ("old_tick_size", price),
        ("new_tick_size", price),
    ])  # fmt: skip
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.table(columns, schema=schema), path, row_group_size=3)
    return path


def flat(path: Path, events: list[Event]) -> Path:
    """A CSV of messages as pandas writes it: a row for a book and for each change, lists as Python prints them."""
    rows: list[Event] = [
        {name: value for name, value in event.items() if name != "price_changes"} | entry
        for event in events
        for entry in event.get("price_changes", [{}])
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def stamped(path: Path, events: list[Event]) -> Path:
    """Lines with a time of arrival, a tab and the message."""
    path.write_text("".join(f"{int(event['timestamp']) + 40}\t{json.dumps(event)}\n" for event in events))
    return path


def incremental(path: Path, events: list[Event]) -> Path:
    """A row per changed level, with ``is_snapshot``, times in microseconds; an empty book has no row."""
    out = ["exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"]
    for event in events:
        micros = int(event["timestamp"]) * 1000
        for side, name in (("bid", "bids"), ("ask", "asks")):
            out += [
                f"venue,{event['asset_id']},{micros},{micros},true,{side},{x['price']},{x['size']}"
                for x in event.get(name, ())
            ]
        for level in event.get("price_changes", ()):
            side = {"BUY": "bid", "SELL": "ask"}[level["side"]]
            out.append(f"venue,{level['asset_id']},{micros},{micros},false,{side},{level['price']},{level['size']}")
    raw = "\n".join(out).encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path
