"""Fees in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any


def exact(kind: str, rate: float, price: Fraction, shares: Fraction) -> Fraction:
    """The fee of one trade, unrounded."""
    return Fraction(rate) * price * shares * (1 - price if kind == "quadratic" else 1)


def legs(side: list[Any], wanted: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Price and shares of each level that is taken, the last one in part."""
    out = []
    for price, size in side:
        if wanted <= 0:
            break
        out.append((price, min(size, wanted)))
        wanted -= size
    return out
