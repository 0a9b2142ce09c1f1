"""Candles of venues: first, highest, lowest and last quotes and prices of buckets, volume and open interest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from marketdata.points.columns import Floats, Ints, Series

SIDES = ("bid", "ask", "price")
CORNERS = ("open", "high", "low", "close")
CANDLES = (*(f"{side}_{corner}" for side in SIDES for corner in CORNERS), "price_mean", "volume", "open_interest")
Values = dict[str, Floats]
_DIGITS = 6


def coarser(ts: Ints, values: Mapping[str, Floats], width: int) -> tuple[Ints, Values]:
    """Candles in the order of time as those of a width that theirs divides; a mean is weighted by volume."""
    starts, first = np.unique(ts // width * width, return_index=True)
    if not len(ts):
        return starts, {name: np.empty(0) for name in CANDLES}

    def reduced(ufunc: Callable[..., Floats], name: str, nothing: float) -> Floats:
        """One number of each bucket, NaN where it has none."""
        column = values[name]
        is_missing = np.isnan(column)
        found = ufunc.reduceat(np.where(is_missing, nothing, column), first)  # type: ignore[attr-defined]
        return np.where(np.logical_and.reduceat(is_missing, first), np.nan, found)

    def at_end(name: str, *, is_last: bool) -> Floats:
        """The last number of each bucket, or the first; NaN where it has none."""
        column, place = values[name], np.arange(len(ts), dtype=float)
        place[np.isnan(column)] = np.nan
        chosen = (np.fmax if is_last else np.fmin).reduceat(place, first)
        return np.where(np.isnan(chosen), np.nan, column[np.nan_to_num(chosen).astype(int)])

    out: Values = {}
    for side in SIDES:
        out[f"{side}_open"] = at_end(f"{side}_open", is_last=False)
        out[f"{side}_high"] = reduced(np.maximum, f"{side}_high", -np.inf)
        out[f"{side}_low"] = reduced(np.minimum, f"{side}_low", np.inf)
        out[f"{side}_close"] = at_end(f"{side}_close", is_last=True)
    weight = np.where(np.isnan(values["price_mean"]), 0.0, np.nan_to_num(values["volume"]))
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.add.reduceat(np.nan_to_num(values["price_mean"]) * weight, first)
        out["price_mean"] = total / np.add.reduceat(weight, first)
    out["volume"] = reduced(np.add, "volume", 0.0)
    out["open_interest"] = at_end("open_interest", is_last=True)
    return starts, out


def of_prices(ts: Ints, price: Floats, width: int) -> tuple[Ints, Values]:
    """Candles of prices in the order of time, each one as much as another; the venue has no quotes and volumes."""
    unknown = np.full(len(ts), np.nan)
    values = dict.fromkeys(CANDLES, unknown) | {f"price_{name}": price for name in (*CORNERS, "mean")}
    starts, out = coarser(ts, values | {"volume": np.ones(len(ts))}, width)
    return starts, out | {"volume": np.full(len(starts), np.nan)}


def none() -> Series:
    """No candles."""
    return Series((), np.zeros(1, np.int64), np.empty(0, np.int64), {name: np.empty(0) for name in CANDLES})


def mirrored(values: Mapping[str, Floats]) -> Values:
    """The candles of the other of two outcomes: its bid at p is an ask at 1 - p, and its highest price the lowest."""
    sides, corners = {"bid": "ask", "ask": "bid", "price": "price"}, {"high": "low", "low": "high"}
    out = dict(values)
    for side in SIDES:
        for corner in CORNERS:
            out[f"{side}_{corner}"] = np.round(1 - values[f"{sides[side]}_{corners.get(corner, corner)}"], _DIGITS)
    out["price_mean"] = np.round(1 - values["price_mean"], _DIGITS)
    return out
