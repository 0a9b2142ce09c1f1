"""Backend-independent parts of a chart: panels in rows, the marks in each panel, and the colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOTHING, HATCH = "#eef0f2", "#c3c9d0"
PALETTE = ("#2f6df6", "#f0883e", "#8957e5", "#2da44e", "#cf3f8f", "#6e7781")
BID, ASK = "#12908e", "#e5533d"
INK, FAINT, GRID, FRAME = "#24292f", "#8c959f", "#eaeef2", "#d0d7de"
FURTHER = "#b3bac2"
"""Colour of the lines for which there is none of their own."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Detail:
    """A number that a hover box shows beside the coordinates of a mark."""

    name: str
    values: Array
    form: str = ".3f"


@dataclass(frozen=True)
class Line:
    """Points joined in order; NaN in ``y`` breaks the line."""

    x: Array
    y: Array
    name: str
    colour: str
    width: float = 1.0
    alpha: float = 1.0
    dashed: bool = False
    legend: str | None = None
    """Text of the legend; None leaves the line out of it."""
    details: Sequence[Detail] = ()


@dataclass(frozen=True)
class Band:
    """The area between two lines over the same ``x``; NaN in either breaks it."""

    x: Array
    low: Array
    high: Array
    colour: str
    alpha: float


@dataclass(frozen=True)
class Heat:
    """Cells between edges: ``shade`` is positive for bids and negative for asks, ``shares`` its number of shares.

    Both are NaN where nothing is known.
    """

    x_edges: Array
    y_edges: Array
    shade: Array
    shares: Array
    limit: float


@dataclass(frozen=True)
class Bars:
    """Horizontal bars at ``y``, from ``start`` to ``end``."""

    y: Array
    start: Array
    end: Array
    height: float
    colour: str
    name: str
    details: Sequence[Detail] = ()
    hatched: bool = False
    in_legend: bool = True


@dataclass(frozen=True)
class Dots:
    """Dots of an area [points squared], each with a short text beside it."""

    x: Array
    y: Array
    area: Array
    texts: Sequence[str]
    colour: str
    details: Sequence[Detail] = ()


Mark = Line | Band | Heat | Bars | Dots


@dataclass
class Panel:
    """One pair of axes."""

    y_label: str
    x_label: str = "time [UTC]"
    marks: list[Mark] = field(default_factory=list)
    title: str = ""
    time: bool = True
    """Whether x is time."""
    x_range: tuple[Any, Any] | None = None
    y_range: tuple[float, float] | None = None
    square: bool = False
    thousands: str = ""
    """Axes, of "x" and "y", whose numbers are shortened: 12k, 3M."""
    y_ticks: Sequence[tuple[float, str]] | None = None
    legend_outside: bool = False
    empty: str = "no data in this range"
    """Shown in place of marks when there are none."""


@dataclass
class Chart:
    """Rows of panels, from top to bottom."""

    rows: list[list[Panel | None]]
    """A row has as many panels as there are places in it; None leaves one free."""
    size: tuple[float, float]
    """Width and height [inches]."""
    title: str | None = None
    simulated: bool = False
    heights: Sequence[float] | None = None
    """Relative heights of the rows; equal without them."""
    shared_x: bool = False
    """Whether rows of as many panels as the first one have its time axis."""

    @property
    def panels(self) -> list[Panel]:
        """Every panel, row by row."""
        return [panel for row in self.rows for panel in row if panel]


def finite_runs(*columns: Array) -> list[slice]:
    """The runs of rows in which no column is NaN."""
    good = np.logical_and.reduce([np.isfinite(c) for c in columns])
    edges = np.flatnonzero(np.diff(np.r_[False, good, False].astype(np.int8)))
    return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
