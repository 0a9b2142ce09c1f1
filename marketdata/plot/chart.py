"""A chart before a library draws it: panels in rows, the marks of each panel, and the colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PALETTE = ("#2f6df6", "#f0883e", "#8957e5", "#2da44e", "#cf3f8f", "#9c7a2f")
BID, ASK = "#12908e", "#e5533d"
FAINT = "#8c959f"
# `Theme.colour` translates these two, because they differ between the themes.
INK, FURTHER = "ink", "further"
ODDS_TICKS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)

Array = NDArray[Any]


@dataclass(frozen=True)
class Theme:
    """Colours around the marks. ``bids`` and ``asks`` go from few shares to many."""

    ground: str
    ink: str
    grid: str
    frame: str
    further: str
    bids: Sequence[str]
    asks: Sequence[str]

    def colour(self, name: str) -> str:
        """The colour of a mark in this theme."""
        return {INK: self.ink, FURTHER: self.further}.get(name, name)


THEMES = {
    "light": Theme(
        "#ffffff", "#24292f", "#eaeef2", "#d0d7de", "#b3bac2",
        ("#cfecea", "#3aa7a0", "#064f4c"), ("#fddcd3", "#ee7f66", "#8f2413"),
    ),
    "dark": Theme(
        "#0d1117", "#d7dde4", "#1d242c", "#3b434d", "#4b545f",
        ("#0d4a47", "#27b3a4", "#d9fff7"), ("#5f1f12", "#f2714f", "#ffe3d8"),
    ),
}  # fmt: skip


class Detail(NamedTuple):
    """A number that a hover box shows next to the coordinates of a mark."""

    name: str
    values: Array
    form: str = ".3f"


class Line(NamedTuple):
    """Points joined in order. NaN in ``y`` breaks the line."""

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
    """The area between two lines over the same ``x``. NaN in either breaks it."""

    x: Array
    low: Array
    high: Array
    colour: str
    alpha: float


class Heat(NamedTuple):
    """Cells between edges. ``shade`` is positive for asks and negative for bids, as asks are above bids.

    ``shade`` and ``shares`` are NaN where the frame has no snapshot or no order.
    """

    x_edges: Array
    y_edges: Array
    shade: Array
    shares: Array
    limit: float

    def colours(self, theme: Theme) -> list[tuple[float, str]]:
        """The scale from the most bids by none to the most asks."""
        places = np.linspace(0.0, 0.5, len(theme.bids)).tolist()
        bids = zip(places, reversed(theme.bids), strict=True)
        return [*bids, *((0.5 + at, colour) for at, colour in zip(places, theme.asks, strict=True))]


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
    """A time: a dotted line from bottom to top, with a short text above the panel."""

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
    square: bool = False
    """Whether a unit of x is as long as a unit of y."""
    x_ticks: Sequence[tuple[float, str]] | None = None
    y_ticks: Sequence[tuple[float, str]] | None = None
    legend_outside: bool = False
    legend_reversed: bool = False
    """Whether the legend begins with the last mark, as the top of a stack."""
    empty: str = "no data in this range"
    """Shown in place of marks when there are none."""

    def ends(self) -> tuple[Any, Any] | None:
        """The least and the greatest x of all marks; None without any."""
        places: list[Any] = []
        for mark in self.marks:
            match mark:
                case Line() | Band():
                    places += [mark.x.min(), mark.x.max()] if len(mark.x) else []
                case Heat():
                    places += [mark.x_edges[0], mark.x_edges[-1]]
                case Bars():
                    places += [mark.start.min(), mark.end.max()] if len(mark.start) else []
                case Moment():
                    places.append(mark.x)
        return (min(places), max(places)) if places else None

    def moment_rows(self, inches: float) -> list[tuple[Moment, int, bool]]:
        """Each moment with the row of its text above the panel, and whether the text ends at its line.

        Texts of one row do not touch; ``inches`` is the width of the panel.
        """
        placed: list[tuple[Moment, int, bool]] = []
        row_ends: list[float] = []
        for moment in sorted((m for m in self.marks if isinstance(m, Moment)), key=lambda m: m.x):
            length = 0.075 * (len(moment.text) + 2) if moment.text else 0.0
            place = 0.0
            if self.x_range:
                start, end = self.x_range
                place = float((moment.x - start) / (end - start)) * inches
            ends_at_line = place + length > inches
            left = place - length if ends_at_line else place
            row = next((i for i, end in enumerate(row_ends) if end <= left), len(row_ends))
            row_ends[row : row + 1] = [left + length]
            placed.append((moment, row, ends_at_line))
        return placed


@dataclass(eq=False)
class Chart:
    """Rows of panels, from top to bottom. The panels of a row share y."""

    rows: list[list[Panel | None]]
    """All rows have as many places; None leaves one free."""
    size: tuple[float, float]
    """Width and height [inches]."""
    title: str = ""
    simulated: bool = False
    heights: Sequence[float] | None = None
    """Relative heights of the rows; equal without them."""
    widths: Sequence[float] | None = None
    """Relative widths of the panels of a row; equal without them."""
    theme: Theme = THEMES["light"]
    is_page: bool = False
    """Whether a function returns the whole figure, not its axes."""

    @property
    def panels(self) -> list[Panel]:
        """Every panel, row by row."""
        return [panel for row in self.rows for panel in row if panel]

    def inches(self, column: int) -> float:
        """The approximate width of the panels of a column."""
        widths = self.widths or [1.0] * len(self.rows[0])
        return 0.85 * self.size[0] * widths[column] / sum(widths)


def finite_runs(*columns: Array) -> list[slice]:
    """The runs of rows in which no column is NaN."""
    good = np.logical_and.reduce([np.isfinite(c) for c in columns])
    edges = np.flatnonzero(np.diff(np.r_[False, good, False].astype(np.int8)))
    return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def isolated(y: Array) -> Array:
    """Positions of values without a neighbour, which no line joins."""
    good = np.r_[False, np.isfinite(y), False]
    return np.flatnonzero(good[1:-1] & ~good[:-2] & ~good[2:])


def within_odds(p: Array) -> Array:
    """Probabilities between the ends of an axis of log-odds; others move to the nearer end."""
    inside: Array = np.clip(p, ODDS_TICKS[0], ODDS_TICKS[-1])
    return inside


def log_odds(p: Array) -> Array:
    """Places along an axis of log-odds: log(p / (1 - p))."""
    inside = within_odds(p)
    places: Array = np.log(inside / (1.0 - inside))
    return places


def shares_text(shares: float) -> str:
    """A number of shares as an axis shows it: 500, 1.5k, 2M."""
    for least, unit in ((1e6, "M"), (1e3, "k")):
        if abs(shares) >= least:
            return f"{shares / least:g}{unit}"
    return f"{shares:g}"


def decades(limit: float) -> list[tuple[float, str]]:
    """Places and texts of a scale of orders, bids negative: 1, 10, 100, 1k up to its end [log10 of 1 + shares]."""
    powers = range(1, int(limit) + 1)
    places = [(float(np.log10(1 + 10.0**k)), shares_text(10.0**k)) for k in powers]
    shown = [(at, text) for at, text in places if at <= limit]
    return [*((-at, text) for at, text in reversed(shown)), (0.0, "0"), *shown]


def unsigned_ticks(low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
    """Round places between two numbers of shares, whose texts have no sign."""
    span = max(high - low, 1e-9)
    power = 10.0 ** np.floor(np.log10(span / most))
    step = next(power * n for n in (1, 2, 5, 10, 20) if span / (power * n) <= most)
    places = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return [(float(at), shares_text(abs(float(at)))) for at in places]
