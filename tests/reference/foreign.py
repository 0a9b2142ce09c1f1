"""Frames that this library did not write: the same points in any library, with any types, in any order.

They are built natively, as from a CSV file or a database. Some have a fault that cannot be repaired and is refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import strategies as st
from reference import tables
from reference.tables import IDS

from marketdata.points.schema import LISTS

__all__ = ["CONTAINERS", "FAULTS", "Foreign", "books", "metrics", "nested", "prices"]


CONTAINERS = ("pandas", "pandas nullable", "pandas pyarrow", "pandas object", "polars", "polars lazy", "arrow")
# No rule can repair these: such a frame is refused by an error that says what to do.
FAULTS = (
    "null ts",
    "null market",
    "null token",
    "float ids",
    "text numbers",
    "two columns of one name",
    "times within a microsecond",
    "two rows that differ",
    "a token with two labels",
)
BOOK_FAULTS = (
    *FAULTS,
    "null side",
    "sides in upper case",
    "levels from 1",
    "levels from the worst price",
    "a level is left out",
    "a price without a size",
    "a size without a price",
)
NESTED_FAULTS = (
    *FAULTS,
    "levels from the worst price",
    "lists of differing length",
    "a price without a size",
    "a size without a price",
    "no lists",
)
_BASES = (1_767_225_600, -86_400 * 400, 0, 1_700_000_040)
_ZONES = ("UTC", "America/New_York", "Asia/Kolkata", None)
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Foreign:
    """A frame and its rows: ``container`` is one of ``CONTAINERS``, ``how`` the types and order that were drawn.

    ``rows`` are in tidy order, once each, as plain values with ``ts`` in seconds UTC; ``fault`` is what is wrong beyond
    repair, or None.
    """

    frame: Any
    container: str
    rows: Rows
    fault: str | None
    how: dict[str, Any] = field(default_factory=dict)
    view: str = "prices"

    def tidy(self) -> pl.DataFrame:
        """The rows as a tidy frame; those of nested books are levels."""
        return tables.tidy(self.rows, _VIEWS["books" if self.view == "nested" else self.view].names)


@st.composite
def drawn(draw: st.DrawFn, view: str, *, faults: bool = True, width: int = 60) -> Foreign:
    """Strategy of `Foreign` frames of a view, some with ``faults``, on a grid of ``width`` [seconds].

    Books are one-sided, empty, crossed or locked, and have sizes of zero; the rows of nested ones have a level each.
    """
    container = draw(st.sampled_from(CONTAINERS))
    wrong = _VIEWS[view].faults if faults else ()
    fault = draw(st.sampled_from([None, *wrong])) if draw(st.booleans()) else None
    return made(view, draw(st.integers(0, 2**32 - 1)), container, fault, width)


prices, metrics, books, nested = (partial(drawn, view) for view in ("prices", "metrics", "books", "nested"))


def of_seed(view: str, seed: str) -> Foreign:
    """The foreign frame of a text, half of them with a fault."""
    rng = random.Random(seed)
    fault = rng.choice(_VIEWS[view].faults) if rng.random() < 0.5 else None
    return made(view, rng.getrandbits(32), rng.choice(CONTAINERS), fault)


def made(view: str, seed: int, container: str, fault: str | None, width: int = 60) -> Foreign:
    """One foreign frame; a fault that its rows have no room for is left out."""
    rng = random.Random(seed)
    names = _VIEWS[view].names
    rows = _VIEWS[view].points(rng, width)
    how: dict[str, Any] = {
        "ts": (rng.choice(["us", "ns", "ms", "s"]), rng.choice(_ZONES)),
        "ids": rng.choice(["text", "category", "large", "enum", "view"]),
        "numbers": rng.choice(["float", "float", "float32", "decimal", "nan"]),
        "levels": rng.choice(["int", "int64", "float", "unsigned"]),
        "lists": rng.choice(["list", "large", "array"]),
        "order": rng.choice(["tidy", "shuffled", "asks first"]),
        "markers": rng.choice([True, True, False]),
        "doubled": rng.random() < 0.15,
        "extra": rng.random() < 0.3,
        "index": rng.random() < 0.3,
        "chunks": rng.randint(1, 3),
    }
    if "side" in names and not how["markers"]:
        rows = [row for row in rows if row["price"] is not None]
    more = {"note": "a", "extra": 1.5} if how["extra"] else {}
    table = [{**row, **more, "ts": row["ts"] * 10**9} for row in (_snapshots(rows, how) if LISTS[0] in names else rows)]
    if how["doubled"]:
        table += [dict(rng.choice(table)) for _ in range(2 if table else 0)]
    if how["order"] == "shuffled":
        rng.shuffle(table)
    elif how["order"] == "asks first" and "side" in names:
        table.sort(key=lambda row: row["side"])
    if fault is not None:
        fault = _spoil(rng, table, fault, how, container)
    columns = [*names, *(["note", "extra"] if how["extra"] else [])]
    if rng.random() < 0.3:
        rng.shuffle(columns)
    frame = _BUILD[container.partition(" ")[0]](table, columns, container, how)
    if fault == "two columns of one name":
        frame = _with_twice(frame)
    return Foreign(frame, container, rows, fault, how, view)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["market_id"], row["token_id"], row["ts"]


def _tokens(rng: random.Random) -> list[tuple[str, str, str | None]]:
    # Short ids are used again by other markets.
    long = str(10**76)
    every = [
        ("m", "1", "Yes"),
        ("m", "2", "No"),
        ("n", "1", "Up"),
        ("n", "2", "Down"),
        ("0xé", long + "1", None),
        ("0xé", long + "2", "No"),
    ]
    first = rng.choice([0, 0, 2, 4])
    return sorted(rng.choice([every[first : first + 1], every[first : first + 2], every[:4], every[:3]]))


def _times(rng: random.Random, base: int, width: int) -> list[int]:
    count = rng.choice([0, 1, 1, 2, 3, 6])
    return [base // width * width + k * width for k in sorted(rng.sample(range(200), count))]


def _price(rng: random.Random) -> float:
    return rng.randint(0, 64) / 64


def _price_rows(rng: random.Random, width: int) -> Rows:
    base = rng.choice(_BASES)
    return [
        {**dict(zip(IDS, token, strict=True)), "ts": ts, "price": None if rng.random() < 0.15 else _price(rng)}
        for token in _tokens(rng)
        for ts in _times(rng, base, width)
    ]


def _metric_rows(rng: random.Random, width: int) -> Rows:
    base = rng.choice(_BASES)
    return [
        {"market_id": market, "ts": ts}
        | {c: None if rng.random() < 0.15 else rng.randint(0, 4000) / 4 for c in ("volume", "liquidity", "spread")}
        for market in sorted({m for m, _, _ in _tokens(rng)})
        for ts in _times(rng, base, width)
    ]


def _book_rows(rng: random.Random, width: int) -> Rows:
    base, out = rng.choice(_BASES), []
    for token in _tokens(rng):
        for ts in _times(rng, base, width):
            for side in ("bid", "ask"):
                found = sorted({_price(rng) for _ in range(rng.choice([0, 1, 2, 3]))}, reverse=side == "bid")
                row = {**dict(zip(IDS, token, strict=True)), "ts": ts, "side": side}
                for level, price in enumerate(found):
                    out.append({**row, "level": level, "price": price, "size": rng.randint(0, 4000) / 4})
                if not found:
                    out.append({**row, "level": None, "price": None, "size": None})
    return out


def _snapshots(rows: Rows, how: dict[str, Any]) -> Rows:
    found: dict[Any, dict[str, Any]] = {}
    for row in rows:
        head = {c: row[c] for c in ("ts", *IDS)}
        one = found.setdefault(_key(row), {**head, **{name: [] for name in LISTS}})
        for what in ("price", "size") if row["price"] is not None else ():
            one[f"{row['side']}_{what}"].append(row[what])
    # An empty side is an empty list, or none.
    return [{c: None if v == [] and not how["markers"] else v for c, v in row.items()} for row in found.values()]


def _spoil_lists(rng: random.Random, table: Rows, fault: str, how: dict[str, Any]) -> str | None:
    long = [(row, side) for row in table for side in ("bid", "ask") if row[f"{side}_price"]]
    if fault == "no lists":
        how["lists"] = "none"
        for one in table:
            one.update(dict.fromkeys(LISTS, 1.0))
        return fault
    if not long:
        return None
    row, side = rng.choice(long)
    price, size = list(row[f"{side}_price"]), list(row[f"{side}_size"])
    if fault == "two rows that differ":
        table.append({**row, f"{side}_size": [size[0] + 0.5, *size[1:]]})
        return fault
    if fault == "levels from the worst price":
        if len(price) < 2:
            return None
        price.reverse()
    elif fault == "lists of differing length":
        size = size[1:]
    else:
        part = size if fault == "a price without a size" else price
        part[rng.randrange(len(part))] = None
    row |= {f"{side}_price": price, f"{side}_size": size}
    return fault


def _spoil(rng: random.Random, table: Rows, fault: str, how: dict[str, Any], container: str) -> str | None:
    """Put a fault into the rows; None where they have no room for it."""
    if not table:
        return None
    row = rng.choice(table)
    levels = [r for r in table if r.get("level") is not None]
    nulls = {"null ts": "ts", "null market": "market_id", "null token": "token_id", "null side": "side"}
    if fault in nulls:
        row[nulls[fault]] = None
    elif fault == "float ids":
        how["ids"] = "float"
    elif fault == "text numbers":
        how["numbers"] = "text"
    elif fault == "two columns of one name":
        return fault if container.startswith(("pandas", "arrow")) else None
    elif fault == "times within a microsecond":
        how["ts"] = ("ns", how["ts"][1])
        if row["ts"] is None or "side" in row:
            return None
        table.append({**row, "ts": row["ts"] + 1})
    elif LISTS[0] in row and fault in (*NESTED_FAULTS[len(FAULTS) :], "two rows that differ"):
        return _spoil_lists(rng, table, fault, how)
    elif fault == "two rows that differ":
        value = "price" if "price" in row else "volume"
        if row[value] is None:
            return None
        table.append({**row, value: row[value] + 0.5})
    elif fault == "a token with two labels":
        others = [r for r in table if r["token_id"] == row["token_id"] and r["market_id"] == row["market_id"]]
        if len({r["ts"] for r in others}) < 2:
            return None
        for r in others:
            if r["ts"] == row["ts"]:
                r |= {"token_label": "other"}
    elif fault == "sides in upper case":
        for r in table:
            r["side"] = r["side"].upper()
    elif not levels:
        return None
    elif fault == "levels from 1":
        for r in levels:
            r["level"] += 1
    elif fault == "levels from the worst price":
        sides: dict[Any, Rows] = {}
        for r in levels:
            sides.setdefault((*_key(r), r["side"]), []).append(r)
        if all(len({r["level"] for r in side}) < 2 for side in sides.values()):
            return None
        for side in sides.values():
            most = max(r["level"] for r in side)
            for r in side:
                r["level"] = most - r["level"]
    elif fault == "a level is left out":
        deep = [r for r in levels if r["level"] > 0]
        if not deep:
            return None
        one = rng.choice(deep)
        gone = [r for r in table if r["level"] == 0 and (*_key(r), r["side"]) == (*_key(one), one["side"])]
        for r in gone:
            table.remove(r)
    else:
        rng.choice(levels)["size" if fault == "a price without a size" else "price"] = None
    return fault


def _with_twice(frame: Any) -> Any:
    if hasattr(frame, "append_column"):
        return frame.append_column("ts", frame.column("ts"))
    return pd.concat([frame, frame[["market_id"]]], axis=1)


def _numbers(values: list[Any], how: str) -> list[Any]:
    if how == "decimal":
        return [None if v is None else Decimal(str(v)) for v in values]
    if how == "text":
        return [None if v is None else str(v) for v in values]
    return values


def _pandas(table: Rows, columns: list[str], container: str, how: dict[str, Any]) -> pd.DataFrame:
    style = container.partition(" ")[2]
    if style == "pyarrow" and how["ids"] == "view":  # pandas cannot put rows of them in another order
        how = {**how, "ids": "large"}
    arrow = _arrow(table, columns, container, how)
    mappers: dict[str, Any] = {"pyarrow": pd.ArrowDtype, "nullable": _NULLABLE_TYPES.get}
    frame = arrow.to_pandas(types_mapper=mappers.get(style))
    for name in (c for c in columns if style != "pyarrow"):
        if pa.types.is_dictionary(arrow.schema.field(name).type):
            frame[name] = pd.Categorical(frame[name], categories=_categories(table, name))
        elif name in LISTS and how["lists"] == "list":
            frame[name] = frame[name].map(list, na_action="ignore")
    if style == "object":
        frame = frame.astype(object).where(frame.notna(), None)
    return frame.set_axis([f"r{i % 3}" for i in range(len(table))], axis=0) if how["index"] else frame


def _categories(table: Rows, name: str) -> list[str]:
    return ["unused", *sorted({row[name] for row in table if row[name] is not None}, reverse=True)]


def _polars(table: Rows, columns: list[str], container: str, how: dict[str, Any]) -> pl.DataFrame | pl.LazyFrame:
    arrow = _arrow(table, columns, container, how)
    frame = pl.DataFrame(arrow)
    if how["ids"] == "enum":
        frame = frame.with_columns(
            pl.col(name).cast(pl.Enum(_categories(table, name)))
            for name in columns
            if pa.types.is_dictionary(arrow.schema.field(name).type)
        )
    return frame.lazy() if container == "polars lazy" else frame


def _arrow(table: Rows, columns: list[str], container: str, how: dict[str, Any]) -> Any:
    cuts = sorted({0, len(table), *(len(table) * k // how["chunks"] for k in range(1, how["chunks"]))})
    parts = [table[a:b] for a, b in pairwise(cuts)] or [[]]
    out = {
        name: pa.chunked_array([_arrow_column(name, [row[name] for row in part], how) for part in parts])
        for name in columns
    }
    return pa.table(out)


def _arrow_column(name: str, values: list[Any], how: dict[str, Any]) -> Any:
    if name == "ts":
        unit, zone = how["ts"]
        size = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}[unit]
        return pa.array([None if v is None else v // size for v in values], pa.int64()).cast(pa.timestamp(unit, zone))
    if name in (*IDS, "side", "note"):
        if how["ids"] == "float" and name == "token_id":
            return pa.array([None if v is None else float(len(v)) for v in values], pa.float64())
        types = {"large": pa.large_string(), "view": pa.string_view()}
        column = pa.array(values, types.get(how["ids"], pa.string()))
        # Each chunk has a dictionary of its own.
        return column.dictionary_encode() if how["ids"] in ("category", "enum") else column
    if name == "level":
        kinds = {"int": pa.int32(), "int64": pa.int64(), "float": pa.float64(), "unsigned": pa.uint8()}
        return pa.array(values, kinds[how["levels"]])
    kind = how["numbers"]
    if name in LISTS and how["lists"] != "none":
        return _arrow_lists(values, how)
    if kind in ("decimal", "text"):
        return pa.array(_numbers(values, kind), pa.decimal128(20, 6) if kind == "decimal" else pa.string())
    values = [float("nan") if v is None and kind == "nan" else v for v in values]
    return pa.array(values, pa.float32() if kind == "float32" else pa.float64(), from_pandas=False)


def _arrow_lists(values: list[Any], how: dict[str, Any]) -> Any:
    kind = how["numbers"]
    inner = {"decimal": pa.decimal128(20, 6), "text": pa.string(), "float32": pa.float32()}.get(kind, pa.float64())
    of = pa.large_list if how["lists"] == "large" else pa.list_
    return pa.array([None if v is None else _numbers(v, kind) for v in values], of(inner))


_NULLABLE_TYPES: dict[pa.DataType, Any] = {
    pa.float64(): pd.Float64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.string(): pd.StringDtype("python"),
}
_BUILD: dict[str, Callable[..., Any]] = {"pandas": _pandas, "polars": _polars, "arrow": _arrow}


class _View(NamedTuple):
    """The points, columns and possible faults of a view."""

    points: Callable[[random.Random, int], Rows]
    names: tuple[str, ...]
    faults: tuple[str, ...]


_VIEWS = {
    "prices": _View(_price_rows, ("ts", *IDS, "price"), FAULTS),
    "metrics": _View(
        _metric_rows,
        ("ts", "market_id", "volume", "liquidity", "spread"),
        tuple(f for f in FAULTS if f not in ("null token", "a token with two labels")),
    ),
    "books": _View(_book_rows, ("ts", *IDS, "side", "level", "price", "size"), BOOK_FAULTS),
    "nested": _View(_book_rows, ("ts", *IDS, *LISTS), NESTED_FAULTS),
}
