"""Backend-independent parts of a chart: panels in rows, the marks in each panel, and the colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.points.arguments import choice

PALETTE = ("#2f6df6", "#f0883e", "#8957e5", "#2da44e", "#cf3f8f", "#6e7781")
BID, ASK = "#12908e", "#e5533d"
FAINT = "#8c959f"
FURTHER = "#b3bac2"
"""Colour of the lines for which there is none of their own."""

ODDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Ticks of an axis of log-odds."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Theme:
    """Colours of what is around the marks; ``bids`` and ``asks`` go from few shares to many."""

    ground: str
    ink: str
    grid: str
    frame: str
    nothing: str
    hatch: str
    bids: Sequence[str]
    asks: Sequence[str]
    line: str


THEMES = {
    "light": Theme(
        "#ffffff", "#24292f", "#eaeef2", "#d0d7de", "#eef0f2", "#c3c9d0",
        ("#cfecea", "#3aa7a0", "#064f4c"), ("#fddcd3", "#ee7f66", "#8f2413"), "#24292f",
    ),
    "dark": Theme(
        "#0d1117", "#d7dde4", "#1d242c", "#3b434d", "#161b22", "#30373f",
        ("#0d4a47", "#27b3a4", "#d9fff7"), ("#5f1f12", "#f2714f", "#ffe3d8"), "#ffffff",
    ),
}  # fmt: skip


# The theme of charts that are given none, for the length of a block.
_THEME: ContextVar[str] = ContextVar("theme", default="light")


@contextmanager
def active(theme: str) -> Iterator[None]:
    """Have charts without a theme of their own take this one."""
    before = _THEME.set(theme)
    try:
        yield
    finally:
        _THEME.reset(before)


def theme_of(name: str | None) -> Theme:
    """The theme of a chart: the one given, or the active one."""
    return THEMES[choice("theme", name or _THEME.get(), THEMES)]


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

    Both are NaN where nothing is known, or nothing rests.
    """

    x_edges: Array
    y_edges: Array
    shade: Array
    shares: Array
    limit: float

    def colours(self, theme: Theme) -> list[tuple[float, str]]:
        """The scale from most asks by none to most bids."""
        places = np.linspace(0.0, 0.5, len(theme.asks)).tolist()
        asks = zip(places, reversed(theme.asks), strict=True)
        return [*asks, *((0.5 + at, colour) for at, colour in zip(places, theme.bids, strict=True))]


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
class Histogram:
    """Vertical bars from 0 to ``height``, each from ``start`` to ``end``."""

    start: Array
    end: Array
    height: Array
    colour: str
    details: Sequence[Detail] = ()


@dataclass(frozen=True)
class Dots:
    """Dots of an area [points squared]."""

    x: Array
    y: Array
    area: Array
    colour: str
    details: Sequence[Detail] = ()


@dataclass(frozen=True)
class Moment:
    """A time, as a dotted line from bottom to top with a short text beside it."""

    x: Any
    text: str


Mark = Line | Band | Heat | Bars | Histogram | Dots | Moment


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
    log_odds: bool = False
    """Whether y, of probabilities, is spaced by log-odds."""
    square: bool = False
    thousands: str = ""
    """Axes, of "x" and "y", whose numbers are shortened: 12k, 3M."""
    y_ticks: Sequence[tuple[float, str]] | None = None
    legend_outside: bool = False
    shares_y: bool = False
    """Whether its y is that of the panel to the left."""
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
    widths: Sequence[float] | None = None
    """Relative widths of the panels of a row; equal without them."""
    theme: Theme = THEMES["light"]
    is_page: bool = False
    """Whether the whole figure is the answer, not its axes."""

    @property
    def panels(self) -> list[Panel]:
        """Every panel, row by row."""
        return [panel for row in self.rows for panel in row if panel]


def finite_runs(*columns: Array) -> list[slice]:
    """The runs of rows in which no column is NaN."""
    good = np.logical_and.reduce([np.isfinite(c) for c in columns])
    edges = np.flatnonzero(np.diff(np.r_[False, good, False].astype(np.int8)))
    return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def isolated(y: Array) -> Array:
    """Positions of values without a neighbour, which no line joins."""
    good = np.r_[False, np.isfinite(y), False]
    return np.flatnonzero(good[1:-1] & ~good[:-2] & ~good[2:])


def log_odds(p: Array) -> Array:
    """log(p / (1 - p)) of probabilities, kept within the ticks of its axis."""
    inside = np.clip(p, ODDS[0], ODDS[-1])
    places: Array = np.log(inside / (1.0 - inside))
    return places


def decades(limit: float) -> list[tuple[float, str]]:
    """Places and texts of a scale of orders, asks negative: 1, 10, 100, 1k up to its end [log10 of 1 + shares]."""
    powers = range(1, int(limit) + 1)
    places = [(float(np.log10(1 + 10.0**k)), f"{10**k // 1000}k" if k > 2 else f"{10**k}") for k in powers]
    shown = [(at, text) for at, text in places if at <= limit]
    return [*((-at, text) for at, text in reversed(shown)), (0.0, "0"), *shown]


def thinned(y: Array, most: int) -> Array:
    """Positions of the least and the greatest value of each of ``most`` / 2 parts, and where NaN breaks a line."""
    if len(y) <= 2 * most:
        return np.arange(len(y))
    broken = np.isnan(y)
    parts = np.array_split(np.arange(len(y)), most // 2)
    low, high = np.where(broken, np.inf, y), np.where(broken, -np.inf, y)
    ends = [at for part in parts for at in (part[np.argmin(low[part])], part[np.argmax(high[part])])]
    edges = np.flatnonzero(broken & ~np.roll(broken, 1))
    return np.unique(np.concatenate([[0, len(y) - 1], ends, edges]))
