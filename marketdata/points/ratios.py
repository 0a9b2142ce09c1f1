"""Quotients of columns."""

from __future__ import annotations

import numpy as np

from marketdata.points.columns import Floats


def ratio(dividend: Floats, divisor: Floats) -> Floats:
    """The quotient, NaN where the divisor is not above 0."""
    out = np.full(len(divisor), np.nan)
    np.divide(dividend, divisor, out=out, where=divisor > 0)
    return out
