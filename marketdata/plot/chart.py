"""A chart before a library draws it: panels in rows, the marks of each panel, colours, and options of every chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError, not_installed
from marketdata.points.arguments import choice
from marketdata.times import SECOND, to_micros, to_zone

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

PALETTE = ("#2f6df6", "#f0883e", "#8957e5", "#2da44e", "#cf3f8f", "#9c7a2f")
BID, ASK = "#12908e", "#e5533d"
FAINT = "#8c959f"
ODDS_TICKS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)

Array = NDArray[Any]


class Theme(NamedTuple):
    """Colours around the marks. ``bids`` and ``asks`` go from few shares to many."""

    ground: str
    ink: str
    grid: str
    frame: str
    bids: Sequence[str]
    asks: Sequence[str]


THEMES = {
    "light": Theme(
        "#ffffff", "#24292f", "#eaeef2", "#d0d7de", ("#cfecea", "#3aa7a0", "#064f4c"), ("#fddcd3", "#ee7f66", "#8f2413")
    ),
    "dark": Theme(
        "#0d1117", "#d7dde4", "#1d242c", "#3b434d", ("#0d4a47", "#27b3a4", "#d9fff7"), ("#5f1f12", "#f2714f", "#ffe3d8")
    ),
}


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
    colour: str | None
    """None is the colour of texts."""
    width: float = 0.9
    alpha: float = 1.0
    dashed: bool = False
    legend: str | None = None
    """Text of the legend, which lines may share; None leaves the line out of it."""
    details: Sequence[Detail] = ()
    dots: Array | None = None
    """Areas of dots at the points [points squared]."""
    marks_alone: bool = True
    """Whether a point between two gaps is a dot."""


class Band(NamedTuple):
    """The area between two lines over the same ``x``. NaN in either breaks it."""

    x: Array
    low: Array
    high: Array
    colour: str
    alpha: float


class Heat(NamedTuple):
    """Cells between the edges ``x`` and ``y``. ``shade`` is positive for asks and negative for bids.

    ``shade`` and ``shares`` are NaN where the frame has no snapshot or no order.
    """

    x: Array
    y: Array
    shade: Array
    shares: Array
    limit: float

    def colours(self, theme: Theme) -> list[tuple[float, str]]:
        """The scale from the most bids by none to the most asks."""
        places = np.linspace(0.0, 0.5, len(theme.bids)).tolist()
        bids = zip(places, reversed(theme.bids), strict=True)
        return [*bids, *((0.5 + at, colour) for at, colour in zip(places, theme.asks, strict=True))]

    def ticks(self) -> tuple[list[float], list[str]]:
        """Places and texts of the scale: 1, 10, 100, 1k shares up to its end, bids below 0 [log10 of 1 + shares]."""
        shares = 10.0 ** np.arange(1, int(self.limit) + 1)
        shares = shares[np.log10(1 + shares) <= self.limit]
        places = np.log10(1 + shares)
        texts = [shares_text(one) for one in shares]
        return [*-places[::-1], 0.0, *places], [*texts[::-1], "0", *texts]


class Bars(NamedTuple):
    """Rectangles: ``x`` has a row of starts and a row of ends, ``y`` a row of lower and a row of upper edges."""

    x: Array
    y: Array
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
    x_ticks: Sequence[tuple[float, str]] = ()
    y_ticks: Sequence[tuple[float, str]] = ()
    legend_outside: bool = False
    legend_reversed: bool = False
    """Whether the legend begins with the last mark, as the top of a stack."""
    empty: str = "no data in this range"
    """Shown in place of marks when there are none."""

    def moment_rows(self, inches: float) -> list[tuple[Moment, int, bool]]:
        """Each moment with the row of its text above the panel, and whether the text ends at its line.

        Texts of one row do not touch; ``inches`` is the width of the panel.
        """
        placed: list[tuple[Moment, int, bool]] = []
        row_ends: list[float] = []
        for moment in sorted((m for m in self.marks if isinstance(m, Moment)), key=lambda m: m.x):
            length = 0.09 * (len(moment.text) + 2) if moment.text else 0.0
            left = 0.0
            if self.x_range:
                left = inches * float((moment.x - self.x_range[0]) / (self.x_range[1] - self.x_range[0]))
            ends_at_line = left + length > inches
            left -= length if ends_at_line else 0.0
            row = next((i for i, end_of_row in enumerate(row_ends) if end_of_row <= left), len(row_ends))
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
    heights: Sequence[float] | None
    """Relative heights of the rows; equal without them."""
    widths: Sequence[float] | None
    """Relative widths of the panels of a row; equal without them."""
    is_page: bool
    """Whether a function returns the whole figure, not its axes."""
    theme: Theme
    simulated: bool
    title: str = ""
    zone: ZoneInfo | None = None
    """The time zone of the axes of time, by default UTC; x stays UTC."""

    @property
    def panels(self) -> list[Panel]:
        """Every panel, row by row."""
        return [panel for row in self.rows for panel in row if panel]

    @property
    def over_time(self) -> list[Panel]:
        """The panels whose x is time."""
        return [panel for panel in self.panels if panel.time]


class Look(TypedDict, total=False):
    """Arguments of every chart; see `prices`."""

    title: str | None
    theme: Literal["light", "dark"]
    backend: Literal["matplotlib", "plotly"]
    moments: Mapping[str, Any] | None
    tz: str | None


def draw(
    rows: list[list[Panel | None]],
    ax: Any = None,
    *,
    name: str = "",
    size: tuple[float, float] | None = None,
    heights: Sequence[float] | None = None,
    widths: Sequence[float] | None = None,
    is_page: bool = False,
    simulated: bool = False,
    title: str | None = None,
    theme: str = "light",
    backend: str = "matplotlib",
    moments: Mapping[str, Any] | None = None,
    tz: str | None = None,
) -> Any:
    """Draw panels with a library, and ``moments`` in those over time, whose axes have the time zone ``tz``.

    The title is ``title``, else the ``name`` of what is drawn and the range of its times.
    """
    look = THEMES[choice("theme", theme, THEMES)]
    choice("backend", backend, ("matplotlib", "plotly"))
    if find_spec(backend) is None:
        raise not_installed(f"backend={backend!r}", backend, "plot" if backend == "matplotlib" else backend)
    library = import_module(f"marketdata.plot.draw_{backend}")
    size = size or ((10, 4) if len(rows[0]) == 1 else (11, 2.6 * len(rows)))
    chart = Chart(rows, size, heights, widths, is_page, look, simulated, zone=None if tz is None else to_zone(tz, "tz"))
    if (moments or tz) and not chart.over_time:
        which = "moments= names times" if moments else "tz= is of times"
        raise ConfigError(f"{which}, and this chart has no axis of time; leave it out.")
    chart.title = title if title is not None else "\n".join(filter(None, (name, _range_text(chart, tz))))
    _add_moments(chart, moments or {})
    _share_times(chart, tz)
    if ax is None:
        return library.draw(chart)
    if backend == "plotly":
        raise ConfigError("ax= is for matplotlib; with backend='plotly' a new figure is returned.")
    if not hasattr(ax, "set_title"):
        raise ConfigError("is refused; pass Axes of matplotlib.", argument="ax", value=ax)
    if (count := len(chart.panels)) > 1:
        raise ConfigError(f"ax= takes one market, the frame has {count}; filter it on one market_id, or omit ax.")
    return library.draw(chart, ax)


def _range_text(chart: Chart, tz: str | None) -> str:
    """The range of the times of a chart, as its title shows it; empty without any."""
    ends = time_ends(*chart.over_time)
    local = local_times(np.array(ends or (), "M8[us]"), chart.zone)
    texts = [text.replace("T", " ") for text in np.datetime_as_string(local, unit="m")]
    return f"{' to '.join(texts)} {tz or 'UTC'}" if texts else ""


def _add_moments(chart: Chart, moments: Mapping[str, Any]) -> None:
    """Lines at moments in the panels over time, with texts above those of the first row."""
    times = {text: np.datetime64(to_micros(time, "moments"), "us") for text, time in moments.items()}
    for panel in chart.over_time:
        if panel.marks:
            panel.marks += [Moment(at, text if panel in chart.rows[0] else "") for text, at in times.items()]


def _share_times(chart: Chart, tz: str | None) -> None:
    """One range of times of all panels over time, whose labels say the zone."""
    ends = time_ends(*chart.over_time)
    for panel in chart.over_time:
        panel.x_range = ends if ends and ends[0] < ends[1] else None
        panel.x_label = panel.x_label.replace("[UTC]", f"[{tz}]") if tz else panel.x_label


def time_ends(*panels: Panel) -> tuple[Any, Any] | None:
    """The first and the last time of all marks of panels; None without any."""
    times = [np.ravel(mark.x) for panel in panels for mark in panel.marks]
    every = np.concatenate([np.empty(0, "M8[us]"), *times])
    return (every.min(), every.max()) if len(every) else None


def local_times(times: Array, zone: ZoneInfo | None) -> Array:
    """What clocks of a zone show at times of UTC, or the times themselves without a zone."""
    if zone is None or not times.size:
        return times
    from datetime import datetime

    # No zone changes its clocks within a quarter of an hour.
    quarter = 900 * SECOND
    whole = times.astype("M8[us]").astype(np.int64) // quarter
    known = ~np.isnat(times)
    each, which = np.unique(whole[known], return_inverse=True)
    moments = [datetime.fromtimestamp(int(one) * 900, zone).utcoffset() for one in each]
    offsets = np.array([0 if one is None else one.total_seconds() for one in moments], np.int64) * SECOND
    out = times.astype("M8[us]")
    out[known] += offsets[which].astype("m8[us]")
    return out


def clock_text(moment: datetime, form: str, tz: str | None) -> str:
    """A time as a title shows it, and its zone."""
    local = moment if tz is None else moment.astimezone(to_zone(tz, "tz"))
    return f"{local:{form}} {tz or 'UTC'}"


def apart(ticks: Sequence[tuple[float, str]], places: Array, least: float) -> Sequence[tuple[float, str]]:
    """The ticks that are ``least`` apart along the axis, those with short texts first."""
    kept: list[int] = []
    for one in sorted(range(len(ticks)), key=lambda i: (len(ticks[i][1]), i)):
        if all(abs(places[one] - places[other]) >= least for other in kept):
            kept.append(one)
    return [ticks[one] for one in sorted(kept)]


def odds(p: Array) -> Array:
    """Probabilities as log-odds, those beyond the ends of the axis at these."""
    inside = within_odds(p)
    return np.asarray(np.log(inside / (1.0 - inside)))


def finite_runs(*columns: Array) -> list[slice]:
    """The runs of rows in which no column is NaN."""
    good = np.logical_and.reduce([np.isfinite(c) for c in columns])
    edges = np.flatnonzero(np.diff(np.r_[False, good, False].astype(np.int8)))
    return [slice(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def isolated(y: Array) -> Array:
    """Positions of values without a neighbour, which no line joins."""
    return np.array([run.start for run in finite_runs(y) if run.stop == run.start + 1], np.int64)


def within_odds(p: Array) -> Array:
    """Probabilities between the ends of an axis of log-odds; others move to the nearer end."""
    return np.clip(p, ODDS_TICKS[0], ODDS_TICKS[-1])


def shares_text(shares: float) -> str:
    """A number of shares as an axis shows it, without its sign: 500, 1.5k, 2M."""
    unit, text = next(((u, t) for u, t in ((1e6, "M"), (1e3, "k")) if abs(shares) >= u), (1.0, ""))
    return f"{abs(shares) / unit:g}{text}"
