"""The verbs as plain loops over dictionaries: what any frame is to give, written without the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
IDS = ("market_id", "token_id", "token_label")
WEEK, MONDAY = 604_800, 4 * 86_400


def floor(ts: int, width: int) -> int:
    """Start of the bucket."""
    offset = MONDAY if width == WEEK else 0
    return (ts - offset) // width * width + offset


def who(row: Row) -> Row:
    """The ids of a row."""
    return {c: row[c] for c in IDS if c in row}


def by_token(rows: Rows) -> dict[Any, Rows]:
    """Rows of each token (market), in order."""
    out: dict[Any, Rows] = {}
    for row in rows:
        out.setdefault((row["market_id"], row.get("token_id")), []).append(row)
    return out


def snapshots(rows: Rows) -> list[tuple[Row, list[tuple[float, float]], list[tuple[float, float]]]]:
    """Each snapshot: time and ids, bids and asks, best first."""
    out: dict[Any, tuple[Row, list[Any], list[Any]]] = {}
    for row in rows:
        one = out.setdefault((row["market_id"], row["token_id"], row["ts"]), ({"ts": row["ts"], **who(row)}, [], []))
        if row["price"] is not None:
            one[1 if row["side"] == "bid" else 2].append((row["price"], row["size"]))
    return list(out.values())


def top(bids: list[tuple[float, float]], asks: list[tuple[float, float]]) -> Row:
    """Best prices and sizes, mid and spread."""
    bid, bid_size = bids[0] if bids else (None, None)
    ask, ask_size = asks[0] if asks else (None, None)
    both = bid is not None and ask is not None
    return {
        "best_bid": bid,
        "best_bid_size": bid_size,
        "best_ask": ask,
        "best_ask_size": ask_size,
        "mid": (bid + ask) / 2 if both else None,  # type: ignore[operator]
        "spread": ask - bid if both else None,  # type: ignore[operator]
    }


def bbo(rows: Rows) -> Rows:
    """Best prices of each snapshot."""
    return [{**head, **top(bids, asks)} for head, bids, asks in snapshots(rows)]


def resampled_books(rows: Rows, width: int) -> Rows:
    """The rows of the last snapshot of each token and bucket."""
    last: dict[Any, int] = {}
    for row in rows:
        key = (row["market_id"], row["token_id"], floor(row["ts"], width))
        last[key] = max(last.get(key, row["ts"]), row["ts"])
    kept = [r for r in rows if r["ts"] == last[r["market_id"], r["token_id"], floor(r["ts"], width)]]
    return [{**r, "ts": floor(r["ts"], width)} for r in kept]


def means(rows: Rows, width: int, values: tuple[str, ...]) -> Rows:
    """Mean and count of each token and bucket."""
    out: dict[Any, tuple[Row, dict[str, list[float]]]] = {}
    for row in rows:
        ts = floor(row["ts"], width)
        key = (row["market_id"], row.get("token_id"), ts)
        _, found = out.setdefault(key, ({"ts": ts, **who(row)}, {v: [] for v in values}))
        for v in values:
            found[v] += [] if row[v] is None else [row[v]]
    return [
        {
            **head,
            **{v: math.fsum(f) / len(f) if f else None for v, f in found.items()},
            **{f"{v}_count": len(f) for v, f in found.items()},
        }
        for head, found in out.values()
    ]


def on_grid(rows: Rows, width: int, forward: bool, blank: Callable[[Row], Rows]) -> Rows:
    """Each token has each bucket from the first to the last of all; rows of one time belong together."""
    if not rows:
        return []
    first, last = min(r["ts"] for r in rows), max(r["ts"] for r in rows)
    out: Rows = []
    for token in by_token(rows).values():
        at: dict[int, Rows] = {}
        for row in token:
            at.setdefault(row["ts"], []).append(row)
        before: Rows | None = None
        for ts in range(first, last + 1, width):
            there = at.get(ts)
            if there is not None:
                before = there
            shown = there or (before if forward else None) or blank(token[0])
            for row in shown:
                filled = {c: 0 if c.endswith("_count") and there is None else v for c, v in row.items()}
                out.append({**filled, "ts": ts, "observed": there is not None})
    return out


def joined(left: Rows, right: Rows, width: int, value: str, *, exact: bool, tolerance: int | None) -> Rows:
    """Each row with the last one of its token that was known before."""
    out = []
    for row in left:
        known = [
            r
            for r in right
            if all(r[c] == row[c] for c in IDS[:2] if c in r and c in row)
            and (r["ts"] + width < row["ts"] or (exact and r["ts"] + width == row["ts"]))
        ]
        best = max(known, key=lambda r: r["ts"], default=None)
        if best is not None and tolerance is not None and row["ts"] - best["ts"] - width > tolerance:
            best = None
        found = (
            {"joined": None, "known": None} if best is None else {"joined": best[value], "known": best["ts"] + width}
        )
        out.append({**row, **found})
    return out


def gaps(rows: Rows, width: int) -> Rows:
    """Ranges of missing buckets."""
    out = []
    for token in by_token(rows).values():
        times = sorted({floor(row["ts"], width) for row in token})
        for a, b in pairwise(times):
            if b - a > width:
                out.append({**who(token[0]), "start": a + width, "end": b, "missing": (b - a) // width - 1})
    return out


def ohlc(rows: Rows, width: int, value: str) -> Rows:
    """Open, high, low, close and number of points."""
    out: dict[Any, tuple[Row, list[float]]] = {}
    for row in rows:
        if row[value] is not None:
            ts = floor(row["ts"], width)
            out.setdefault((row["market_id"], row.get("token_id"), ts), ({"ts": ts, **who(row)}, []))[1].append(
                row[value]
            )
    return [
        {**head, "open": v[0], "high": max(v), "low": min(v), "close": v[-1], "points": len(v)}
        for head, v in out.values()
    ]


def log_odds(p: float | None) -> float | None:
    """Logarithm of the odds."""
    return None if p is None or not 0 < p < 1 else math.log(p / (1 - p))


def returns(rows: Rows, value: str, how: str, width: int | None) -> Rows:
    """The move of each row from the one before of its token."""
    out = []
    for token in by_token(rows).values():
        before: Row | None = None
        for row in token:
            v, u = row[value], None if before is None else before[value]
            if before is not None and width is not None and row["ts"] - before["ts"] != width:
                u = None
            move = None
            if how == "log_odds":
                v, u = log_odds(v), log_odds(u)
            if v is not None and u is not None:
                if how == "simple":
                    move = v / u - 1 if u else None
                elif how == "log":
                    move = math.log(v / u) if u > 0 and v > 0 else None
                else:
                    move = v - u
            out.append({"ts": row["ts"], **who(row), "returns": move})
            before = row
    return out


def wide(rows: Rows, levels: int) -> Rows:
    """One row per snapshot, levels side by side."""
    out = []
    for head, bids, asks in snapshots(rows):
        row = dict(head)
        for k in range(levels):
            for name, side in (("bid", bids), ("ask", asks)):
                row[f"{name}_px_{k:02d}"], row[f"{name}_sz_{k:02d}"] = side[k] if k < len(side) else (None, None)
        out.append(row)
    return out


def with_markers(rows: Rows) -> Rows:
    """Tidy rows of the snapshots: a marker row for each empty side."""
    out = []
    for head, bids, asks in snapshots(rows):
        for side, found in (("bid", bids), ("ask", asks)):
            for k, (price, size) in enumerate(found):
                out.append({**head, "side": side, "level": k, "price": price, "size": size})
            if not found:
                out.append({**head, "side": side, "level": None, "price": None, "size": None})
    return out


def tokens_of(rows: Rows) -> dict[str, list[str]]:
    """The tokens of each market."""
    out: dict[str, list[str]] = {}
    for row in rows:
        found = out.setdefault(row["market_id"], [])
        found += [] if row["token_id"] in found else [row["token_id"]]
    return out


def overround(rows: Rows) -> Rows:
    """Sums of the best prices over all tokens of a market."""
    every, tops = tokens_of(rows), bbo(rows)
    out = []
    for market, ts in sorted({(r["market_id"], r["ts"]) for r in tops}):
        here = [r for r in tops if (r["market_id"], r["ts"]) == (market, ts)]
        row = {"ts": ts, "market_id": market, "tokens": len(here)}
        for name, column in (("bid_sum", "best_bid"), ("mid_sum", "mid"), ("ask_sum", "best_ask")):
            values = [r[column] for r in here]
            whole = len(every[market]) > 1 and len(values) == len(every[market]) and None not in values
            row[name] = math.fsum(values) if whole else None
        row["overround"] = None if row["ask_sum"] is None else row["ask_sum"] - 1
        out.append(row)
    return out


def arbitrage(rows: Rows) -> Rows:
    """The times at which a set of all tokens costs less, or brings more, than 1."""
    tops, out = bbo(rows), []
    for row in overround(rows):
        here = [r for r in tops if (r["market_id"], r["ts"]) == (row["market_id"], row["ts"])]
        buy = row["ask_sum"] is not None and row["ask_sum"] < 1 - 1e-9
        sell = row["bid_sum"] is not None and row["bid_sum"] > 1 + 1e-9
        side = "best_ask_size" if buy else "best_bid_size"
        size = min(r[side] for r in here) if buy or sell else None
        gain = 1 - row["ask_sum"] if buy else row["bid_sum"] - 1 if sell else None
        if not len(here) == len(tokens_of(rows)[row["market_id"]]) > 1:
            buy = sell = None
        flags = {"buy_all": buy, "sell_all": sell, "size": size, "gain": gain}
        out.append({"ts": row["ts"], "market_id": row["market_id"], **flags})
    return out


def complement(rows: Rows) -> Rows:
    """Each token with the mirrored book of the other one."""
    every, out = tokens_of(rows), []
    labels = {(r["market_id"], r["token_id"]): r["token_label"] for r in rows}
    marked = {(r["market_id"], r["token_id"], r["ts"], r["side"]) for r in rows if r["price"] is None}
    for head, bids, asks in snapshots(rows):
        (other,) = [t for t in every[head["market_id"]] if t != head["token_id"]]
        ids = {"token_id": other, "token_label": labels[head["market_id"], other]}
        for side, levels in (("bid", asks), ("ask", bids)):
            mirrored = [
                {**head, **ids, "side": side, "level": k, "price": 1 - p, "size": s} for k, (p, s) in enumerate(levels)
            ]
            empty = (head["market_id"], head["token_id"], head["ts"], "ask" if side == "bid" else "bid") in marked
            out += mirrored
            out += [{**head, **ids, "side": side, "level": None, "price": None, "size": None}] if empty else []
    return sorted(out, key=lambda r: (r["market_id"], r["token_id"], r["ts"], r["side"] == "ask", r["level"] or 0))
