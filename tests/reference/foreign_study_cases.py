"""Measures of frames that the library did not write: right by a plain loop, or refused with what to do."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import narwhals as nw
import polars as pl
from reference import loops as plain
from reference.foreign_cases import Case, in_order, once, plain_rows
from reference.measures import LOOPS

import marketdata as md
from marketdata.tidy.outcomes import tokens_of
from marketdata.times import to_datetime

Rows = plain.Rows
Levels = list[tuple[float, float]]
BINS, SIZE, MONEY, MOMENT = 4, 150.0, 40.0, 1_767_229_200
HALF, FEE = 0.05, 0.02


def each(measure: Callable[[Levels, Levels], dict[str, Any]]) -> Callable[[Rows], Rows]:
    """A measure of every snapshot."""
    return lambda rows: [{**head, **measure(bids, asks)} for head, bids, asks in plain.snapshots(rows)]


def of_features(bids: Levels, asks: Levels) -> dict[str, Any]:
    out: dict[str, Any] = {}
    exact = [[(Fraction(price), Fraction(size)) for price, size in side if size > 0] for side in (bids, asks)]
    for name, arguments in (
        ("microprice", {}),
        ("locked", {}),
        ("depth", {"within": HALF}),
        ("sweep", {"side": "buy", "size": SIZE}),
    ):
        suffix = "".join(f"_{k}_{v}" for k, v in arguments.items())
        columns = LOOPS[name][0](*exact, **arguments)
        out |= {
            c + suffix: float(v) if isinstance(v, int | Fraction) and not isinstance(v, bool) else v
            for c, v in columns.items()
        }
    return out


def taken(side: Levels, wanted: float, *, money: bool) -> tuple[float, float]:
    shares = paid = 0.0
    for price, size in side:
        left = wanted - (paid if money else shares)
        if left <= 0:
            break
        part = max(0.0, min(size, left) if not money else size if left >= price * size else left / price)
        shares, paid = shares + part, paid + part * price
    return shares, paid


def together(rows: Rows) -> Rows:
    """Each market and time with the values of all its tokens: None where one is missing or only one is known."""
    known, at = defaultdict(set), defaultdict(dict)
    for row in rows:
        known[row["market_id"]].add(row["token_id"])
        at[row["market_id"], row["ts"]][row["token_id"]] = row
    return [
        {"ts": ts, "market_id": market, "rows": found, "whole": len(found) == len(known[market]) > 1}
        for (market, ts), found in sorted(at.items(), key=lambda item: (item[0][0], item[0][1]))
    ]


def scaled(rows: Rows, value: str) -> Rows:
    found = {(one["market_id"], one["ts"]): one for one in together(rows)}
    out = []
    for row in rows:
        one = found[row["market_id"], row["ts"]]
        values = [other[value] for other in one["rows"].values()]
        total = sum(values) if one["whole"] and None not in values else 0
        out.append({"ts": row["ts"], **plain.who(row), "probability": row[value] / total if total > 0 else None})
    return out


def won(tokens: Any) -> dict[str, str]:
    """The first token of each market came true."""
    found: dict[str, str] = {}
    for market, token, *_ in sorted(tokens):
        found.setdefault(market, token)
    return found


def told(frame: Any) -> dict[str, str]:
    return won((market, token) for market, token, _ in tokens_of(frame))


def errors(rows: Rows, value: str) -> Rows:
    first, out = won({(r["market_id"], r["token_id"]) for r in rows}), []
    for (market, token), some in plain.by_token(rows).items():
        outcome = float(first[market] == token)
        wrong = [(row[value] - outcome) ** 2 for row in some if row[value] is not None]
        if wrong:
            out.append(
                {**plain.who(some[0]), "outcome": outcome, "points": len(wrong), "brier": sum(wrong) / len(wrong)}
            )
    return out


def curve(rows: Rows) -> Rows:
    first, bins = won({(r["market_id"], r["token_id"]) for r in rows}), defaultdict(list)
    for row in rows:
        if row["price"] is not None:
            at = min(int(row["price"] * BINS + 1e-9), BINS - 1)
            bins[at].append((row["price"], float(first[row["market_id"]] == row["token_id"])))
    return [
        {
            "bin_start": k / BINS,
            "points": len(v),
            "forecast": sum(p for p, _ in v) / len(v),
            "outcome": sum(o for _, o in v) / len(v),
        }
        for k, v in sorted(bins.items())
    ]


def windows(rows: Rows) -> Rows:
    return [{**row, "offset": float(row["ts"] - MOMENT)} for row in rows if -7200 <= row["ts"] - MOMENT < 86_400]


def log_errors(rows: Rows, clip: float = 1e-6) -> Rows:
    """Of each market the mean over the token whose forecasts count."""
    first, out = won({(r["market_id"], r["token_id"]) for r in rows}), []
    every = plain.tokens_of(rows)
    label = {(r["market_id"], r["token_id"]): str(r["token_label"]).casefold() for r in rows}
    for market, tokens in sorted(every.items()):
        ranked = sorted(tokens, key=lambda t, m=market: (label[m, t] != "yes", t))
        counted = ranked[:1] if len(tokens) == 2 else ranked
        found = [r for r in rows if r["market_id"] == market and r["token_id"] in counted and r["price"] is not None]
        each_ = [
            -math.log(p if first[market] == r["token_id"] else 1 - p)
            for r in found
            for p in [min(max(r["price"], clip), 1 - clip)]
        ]
        if each_:
            out.append({"market_id": market, "points": len(each_), "log_score": math.fsum(each_) / len(each_)})
    return out


def left(rows: Rows) -> Rows:
    return [{**r, "time_to_resolution": float(MOMENT - r["ts"]) if r["market_id"] == "m" else None} for r in rows]


def filled(frame: Any) -> Rows:
    """A buy order at each snapshot, filled from the snapshot of the next minute."""
    signals = nw.from_native(md.bbo(frame)).lazy().collect("polars").to_native().select("ts", "market_id", "token_id")
    signals = signals.with_columns(side=pl.lit("buy"), size=pl.lit(SIZE))
    return plain_rows(md.execute(signals, frame, "1m", fees=md.Fees.flat(FEE)).fills)


def fills(rows: Rows) -> Rows:
    books = {(h["market_id"], h["token_id"], h["ts"]): asks for h, _, asks in plain.snapshots(rows)}
    out = []
    for head, *_ in plain.snapshots(rows):
        asks = books.get((head["market_id"], head["token_id"], head["ts"] + 60))
        shares, paid = taken(asks or [], SIZE, money=False)
        status = "no book" if asks is None else "no liquidity" if not shares else ""
        status = status or ("filled" if math.isclose(shares, SIZE) else "partial")
        found = {"requested": SIZE, "shares": shares, "notional": paid, "fee": FEE * paid, "status": status}
        out.append({**head, "ts": head["ts"] + 60, "signal_ts": head["ts"], **found})
    return out


def held(frame: Any) -> Rows:
    """A buy order at each snapshot, sold two minutes after its fill or held until the first token of a market wins."""
    signals = nw.from_native(md.bbo(frame)).lazy().collect("polars").to_native().select("ts", "market_id", "token_id")
    signals = signals.with_columns(side=pl.lit("buy"), size=pl.lit(SIZE))
    return plain_rows(
        md.execute(signals, frame, "1m", outcomes=told(frame), exit_after="2m", fees=md.Fees.flat(FEE)).positions
    )


def positions(rows: Rows) -> Rows:
    books = {(h["market_id"], h["token_id"], h["ts"]): (bids, asks) for h, bids, asks in plain.snapshots(rows)}
    first, out = won({(r["market_id"], r["token_id"]) for r in rows}), []
    for (market, token), some in plain.by_token(rows).items():
        own = dict.fromkeys(("bought", "sold", "paid", "received"), 0.0)
        for ts in sorted({row["ts"] for row in some}):
            shares, paid = taken(books.get((market, token, ts + 60), ((), ()))[1], SIZE, money=False)
            sold, received = taken(books.get((market, token, ts + 180), ((), ()))[0], shares, money=False)
            for name, value in zip(own, (shares, sold, paid, received), strict=True):
                own[name] += value
        position = own["bought"] - own["sold"]
        position = position if position > 1e-9 * own["bought"] else 0.0
        fees, settled = FEE * (own["paid"] + own["received"]), position * float(first[market] == token)
        profit = own["received"] - own["paid"] - fees + settled
        out.append(
            {"market_id": market, "token_id": token, **own, "position": position, "fees": fees, "profit": profit}
        )
    return out


MOMENTS = pl.DataFrame({"ts": [to_datetime(MOMENT * 1_000_000)]})
ENDS = MOMENTS.select(pl.lit("m").alias("market_id"), resolved_at="ts")
STUDY_CASES: dict[str, Case] = {
    "features": Case(
        "books",
        lambda f: md.features(
            f, ["microprice", "locked", ("depth", {"within": HALF}), ("sweep", {"side": "buy", "size": SIZE})]
        ),
        each(of_features),
    ),
    "probabilities": Case("prices", md.probabilities, lambda r: scaled(r, "price")),
    "probabilities of books": Case("books", md.probabilities, lambda r: scaled(plain.bbo(r), "mid")),
    "brier": Case("prices", lambda f: md.brier(f, told(f), of="token"), lambda r: errors(r, "price")),
    "brier of books": Case("books", lambda f: md.brier(f, told(f), of="token"), lambda r: errors(plain.bbo(r), "mid")),
    "calibration": Case("prices", lambda f: md.calibration(f, told(f), BINS, of="token"), curve),
    "log_score": Case("prices", lambda f: md.log_score(f, told(f), of="market"), log_errors),
    "trades": Case("books", filled, fills),
    "positions of trades": Case("books", held, positions),
    "time_to_resolution": Case("prices", lambda f: in_order(once(md.time_to_resolution(f, ENDS))), left),
    "around": Case("prices", lambda f: once(md.around(f, MOMENTS, before="2h", after="1d")), windows),
}
