"""Names, order and meaning of the columns of tidy frames.

=========  ===========================  =====================================================================
frame      one row per                  columns
=========  ===========================  =====================================================================
books      level of a book side         ts market_id token_id token_label side level price size
prices     token and bucket             ts market_id token_id token_label price
metrics    market and bucket            ts market_id volume liquidity spread + further numeric metrics
bbo        token and bucket             ts market_id token_id token_label best_bid best_bid_size best_ask
                                        best_ask_size mid spread
=========  ===========================  =====================================================================

``ts`` is the start of the bucket, UTC, microseconds. An empty side of a book is one marker row: its side,
and null level, price and size. ``<value>_count`` beside an averaged value is the number of base points
that its mean was taken over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from marketdata.errors import NotTidyError
from marketdata.wire.columns import METRICS as MEASURED

Kind = Literal["books", "prices", "metrics", "bbo", "quotes"]

WHO = ("market_id", "token_id", "token_label")
BOOKS = ("ts", *WHO, "side", "level", "price", "size")
PRICES = ("ts", *WHO, "price")
METRICS = ("ts", "market_id", *MEASURED)
BBO = ("ts", *WHO, "best_bid", "best_bid_size", "best_ask", "best_ask_size", "mid", "spread")
# What ``mid`` and ``spread`` give: some columns of bbo, aggregated like the books they come from.
QUOTES = frozenset(BBO) - {"ts", *WHO}
COLUMNS: dict[Kind, tuple[str, ...]] = {"books": BOOKS, "prices": PRICES, "metrics": METRICS, "bbo": BBO}

BID, ASK = "bid", "ask"
COUNT = "_count"


def kind_of(columns: Iterable[str], wanted: Iterable[Kind] = ("books", "bbo", "metrics", "prices")) -> Kind:
    """Which tidy frame has these columns.

    Raises
    ------
    NotTidyError
        If it is none of those wanted; the message names what the nearest one lacks.
    """
    present = list(columns)
    lacks = {kind: [c for c in COLUMNS[kind] if c not in present] for kind in wanted if kind in COLUMNS}
    if "books" in lacks and {"side", "level"} & set(present):
        # Levels of a book that lack a column are no prices: a mean over them would mean nothing.
        lacks.pop("prices", None)
    for kind, missing in lacks.items():
        if not missing:
            return kind
    if "quotes" in wanted and QUOTES & set(present) and set(present) >= {"ts", *WHO}:
        return "quotes"
    # Of a book and its top people know the book.
    known = {kind: some for kind, some in lacks.items() if kind != "bbo" or "books" not in lacks}
    nearest = min(known, key=lambda kind: len(lacks[kind]) / len(COLUMNS[kind]))
    raise NotTidyError.from_missing(f"A tidy {nearest} frame", lacks[nearest], present)


def value_columns(columns: Iterable[str]) -> list[str]:
    """The columns of a prices or metrics frame that hold values, without their counts."""
    present = list(columns)
    who = set(WHO) | {"ts"}
    return [c for c in present if c not in who and not is_count(c, present)]


def is_count(column: str, present: Iterable[str]) -> bool:
    """Whether a column carries the counts of another one."""
    return column.endswith(COUNT) and column.removesuffix(COUNT) in set(present)
