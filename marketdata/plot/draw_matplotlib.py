"""Charts drawn with matplotlib."""

from __future__ import annotations

import io
from math import lcm
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from marketdata.plot.chart import (
    ASK,
    BID,
    FAINT,
    FRAME,
    GRID,
    HATCH,
    INK,
    Array,
    Band,
    Bars,
    Chart,
    Dots,
    Heat,
    Line,
    Panel,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_SCREEN_DPI = 80
_BOOK = LinearSegmentedColormap.from_list("book", [ASK, "#ffffff", BID])
_MOST_ENTRIES = 8


class ChartFigure(Figure):
    """A figure that shows itself in a notebook without pyplot."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=_SCREEN_DPI)
        return out.getvalue()


def draw(chart: Chart, ax: Axes | None = None) -> Axes:
    """Draw on the Axes given, which takes a chart of one panel, or on a new figure; returns the (first) Axes."""
    if ax is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=chart.size, layout="constrained")
        if len(chart.panels) > 1:
            return _fill_figure(figure, chart)[0]
        ax = figure.add_subplot()
    panel = chart.panels[0]
    _fill_axes(ax, panel)
    _legend(ax, panel)
    if chart.title:
        _plain(ax.set_title(chart.title, loc="left", color=INK))
    if chart.simulated:
        ax.set_title("simulated data", loc="right", fontsize="small", color=ASK)
    return ax


def page(chart: Chart) -> ChartFigure:
    """Draw all panels on one page, unknown to pyplot."""
    out = ChartFigure(figsize=chart.size, layout="constrained", facecolor="white")
    _fill_figure(out, chart)
    return out


def _fill_figure(figure: Figure, chart: Chart) -> list[Axes]:
    columns = lcm(*(len(row) for row in chart.rows))
    grid = figure.add_gridspec(len(chart.rows), columns, height_ratios=chart.heights)
    out: list[Axes] = []
    for at, row in enumerate(chart.rows):
        width = columns // len(row)
        shares = chart.shared_x and len(row) == len(chart.rows[0])
        for column, panel in enumerate(row):
            if panel is None:
                continue
            place = grid[at, column * width : (column + 1) * width]
            ax = figure.add_subplot(place, sharex=out[0] if out and shares else None)
            _fill_axes(ax, panel)
            if panel.title:
                title = fill(panel.title, int(chart.size[0] * 11 / len(row)))
                _plain(ax.set_title(title, loc="left", fontsize="small", color=INK))
            if not panel.x_label and panel.time:
                ax.tick_params(labelbottom=False)
                ax.xaxis.get_offset_text().set_visible(False)
            _legend(ax, panel)
            out.append(ax)
    if chart.title:
        _plain(figure.suptitle(chart.title, x=0.01, ha="left", fontsize="large", fontweight="bold", color=INK))
    if chart.simulated:
        style = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": ASK}
        figure.text(0.99, 0.985, "simulated data", ha="right", va="top", fontsize="small", color=ASK, bbox=style)
        if not chart.title:
            figure.suptitle(" ")  # room for the box
    return out


def _fill_axes(ax: Axes, panel: Panel) -> None:
    for mark in panel.marks:
        match mark:
            case Line():
                _line(ax, mark)
            case Band():
                ax.fill_between(mark.x, mark.low, mark.high, color=mark.colour, alpha=mark.alpha, linewidth=0)
            case Heat():
                _heat(ax, mark)
            case Bars():
                start, end = (date2num(x) if panel.time else x for x in (mark.start, mark.end))
                style: dict[str, Any] = {"height": mark.height, "color": mark.colour}
                if mark.in_legend:
                    style["label"] = mark.name
                if mark.hatched:
                    style |= {"hatch": "//", "edgecolor": HATCH, "linewidth": 0}
                ax.barh(mark.y, end - start, left=start, alpha=0.9, **style)
            case Dots():
                _dots(ax, mark)
    if not panel.marks:
        ax.text(0.5, 0.5, panel.empty, transform=ax.transAxes, ha="center", color=FAINT)
    if panel.time and panel.marks:
        place = AutoDateLocator(minticks=3, maxticks=8)
        ax.xaxis.set_major_locator(place)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(place, tz="UTC"))
    if panel.x_range:
        ax.set_xlim(*panel.x_range)
    if panel.y_range:
        ax.set_ylim(*panel.y_range)
    if panel.square:
        ax.set_aspect("equal")
    for letter, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        if letter in panel.thousands:
            axis.set_major_formatter(EngFormatter(sep=""))
    if panel.y_ticks:
        ax.set_yticks(*zip(*panel.y_ticks, strict=True), fontsize="x-small", parse_math=False)
    ax.set_xlabel(panel.x_label, fontsize="small", color=FAINT)
    _plain(ax.set_ylabel(panel.y_label, color=INK, fontsize="medium"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FRAME)
    ax.tick_params(colors=INK, labelsize="small", length=3, color=FRAME)
    ax.grid(visible=True, color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)


def _legend(ax: Axes, panel: Panel) -> None:
    entries = len(ax.get_legend_handles_labels()[0])
    if not entries:
        return
    if panel.legend_outside or entries > _MOST_ENTRIES:
        legend = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    else:
        legend = ax.legend(loc="best", frameon=False, fontsize="small", ncols=2 if entries > 1 else 1)
    _plain(*legend.get_texts())


def _line(ax: Axes, mark: Line) -> None:
    style: dict[str, Any] = {"color": mark.colour, "linewidth": mark.width, "alpha": mark.alpha, "label": mark.legend}
    if mark.dashed:
        style["linestyle"] = (0, (4, 3))
    ax.plot(mark.x, mark.y, **style)


def _heat(ax: Axes, mark: Heat) -> None:
    x: Array = date2num(mark.x_edges)
    limit = mark.limit
    mesh = ax.pcolormesh(x, mark.y_edges, mark.shade.T, cmap=_BOOK, vmin=-limit, vmax=limit, rasterized=True)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.01, aspect=14, ticks=[-limit, 0.0, limit])
    most = f"{10**limit:,.0f}"
    bar.ax.set_yticklabels([f"asks\n{most}", "0", f"bids\n{most}"], fontsize="x-small", color=INK)
    bar.set_label("shares per 0.01, log", fontsize="x-small", color=FAINT)
    bar.outline.set_visible(False)


def _dots(ax: Axes, mark: Dots) -> None:
    ax.scatter(mark.x, mark.y, s=mark.area, color=mark.colour, alpha=0.75, edgecolor="white", zorder=3)
    for x, y, text, area in zip(mark.x, mark.y, mark.texts, mark.area, strict=True):
        # Beside the dot, and inside of the axes.
        right = x < 0.9
        shift = ((np.sqrt(area) / 2 + 3) * (1 if right else -1), 0)
        where: dict[str, Any] = {"ha": "left" if right else "right", "va": "center"}
        ax.annotate(text, (x, y), shift, textcoords="offset points", fontsize="x-small", color=FAINT, **where)


def _plain(*some: Text) -> None:
    """Show texts as they are: questions and labels contain dollars, which are no formulas."""
    for text in some:
        text.set_parse_math(False)
