"""Backend-independent parts of a chart: panels in rows, the marks in each panel, and the colours."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    bids: Sequence[str]
    asks: Sequence[str]


THEMES = {
    "light": Theme(
        "#ffffff", "#24292f", "#eaeef2", "#d0d7de",
        ("#cfecea", "#3aa7a0", "#064f4c"), ("#fddcd3", "#ee7f66", "#8f2413"),
    ),
    "dark": Theme(
        "#0d1117", "#d7dde4", "#1d242c", "#3b434d",
        ("#0d4a47", "#27b3a4", "#d9fff7"), ("#5f1f12", "#f2714f", "#ffe3d8"),
    ),
}  # fmt: skip


# The theme of charts that are given none; `style` sets it for a block.
ACTIVE_THEME: ContextVar[str] = ContextVar("theme", default="light")


def theme_of(name: str | None) -> Theme:
    """The theme of a chart: the one given, or the active one."""
    return THEMES[choice("theme", name or ACTIVE_THEME.get(), THEMES)]


class Detail(NamedTuple):
    """A number that a hover box shows beside the coordinates of a mark."""

    name: str
    values: Array
    form: str = ".3f"


class Line(NamedTuple):
    """Points joined in order; NaN in ``y`` breaks the line."""

    x: Array
    y: Array
    name: str
    colour: str
    width: float = 0.9
    alpha: float = 1.0
    dashed: bool = False
    legend: str | None = None
    """Text of the legend; None leaves the line out of it."""
    details: Sequence[Detail] = ()
    dots: Array | None = None
    """Areas of dots at the points [points squared]."""


class Band(NamedTuple):
    """The area between two lines over the same ``x``; NaN in either breaks it."""

    x: Array
    low: Array
    high: Array
    colour: str
    alpha: float


class Heat(NamedTuple):
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


class Bars(NamedTuple):
    """Rectangles from ``start`` to ``end`` along x and from ``low`` to ``high`` along y."""

    start: Array
    end: Array
    low: Array
    high: Array
    colour: str
    name: str
    details: Sequence[Detail] = ()
    hatched: bool = False
    in_legend: bool = True


class Moment(NamedTuple):
    """A time, as a dotted line from bottom to top with a short text beside it."""

    x: np.datetime64
    text: str


Mark = Line | Band | Heat | Bars | Moment


@dataclass(eq=False)
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
    y_ticks: Sequence[tuple[float, str]] | None = None
    legend_outside: bool = False
    shares_y: bool = False
    """Whether its y is that of the panel to the left."""
    empty: str = "no data in this range"
    """Shown in place of marks when there are none."""


@dataclass(eq=False)
class Chart:
    """Rows of panels, from top to bottom."""

    rows: list[list[Panel | None]]
    """All rows have as many places; None leaves one free."""
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
