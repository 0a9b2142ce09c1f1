"""A price is a probability, from 0 to 1: exactly so if a venue states it, but for a rounding if it was computed.

`recordings.units.is_probability` is the same rule as an expression of a query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Floats

NOT_0_1 = "outside of 0 to 1; prices are probabilities: divide cents by 100."
_ROUNDING = 1e-6


def no_probability(values: Floats, rounding: float = 0.0) -> NDArray[np.bool_]:
    """True for values outside of 0 to 1; False where one is missing."""
    return np.asarray((values < -rounding) | (values > 1 + rounding))


def outside_0_1(values: Floats) -> NDArray[np.bool_]:
    """The same for values that were computed."""
    return no_probability(values, _ROUNDING)


def refuse_cents(**columns: Floats) -> None:
    """NotTidyError for a column, called by its name, with a value outside of 0 to 1."""
    for name, values in columns.items():
        # Extremes are found many times as fast as the rows that have them.
        extremes = np.array([np.fmin.reduce(values, initial=0.0), np.fmax.reduce(values, initial=1.0)])
        if outside_0_1(extremes).any():
            raise NotTidyError(f"{name} is {values[outside_0_1(values)][0]:g}, {NOT_0_1} md.check lists such rows.")


def refuse_negative(**columns: Floats) -> None:
    """NotTidyError where a column of sizes, by its name, has one below 0."""
    for name, values in columns.items():
        if np.fmin.reduce(values, initial=0.0) < 0:
            raise NotTidyError(f"{name} is {values[values < 0][0]:g}; a number of shares is not negative.")
