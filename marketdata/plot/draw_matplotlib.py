"""Charts drawn with matplotlib."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import EngFormatter, NullLocator

from marketdata.plot.chart import (
    ASK,
    FAINT,
    Band,
    Bars,
    Chart,
    Heat,
    Line,
    Moment,
    Panel,
    Theme,
    decades,
    isolated,
    within_odds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# A longer legend inside a panel would hide its lines.
_MOST_ENTRIES_INSIDE = 8
_POINTS_PER_TEXT_ROW = 10


def _settings(theme: Theme) -> Any:
    return {
        "figure.facecolor": theme.ground,
        "axes.facecolor": theme.ground,
        "axes.edgecolor": theme.frame,
        "axes.labelcolor": theme.ink,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
        "text.color": theme.ink,
        "xtick.color": theme.frame,
        "xtick.labelcolor": theme.ink,
        "xtick.labelsize": "small",
        "ytick.color": theme.frame,
        "ytick.labelcolor": theme.ink,
        "ytick.labelsize": "small",
    }


def draw(chart: Chart) -> Axes | Figure:
    """Draw all panels on a new figure. Returns the figure of a page, else the first Axes."""
    import matplotlib.pyplot as plt

    # Loads the backend, which changes settings: rc_context would take them back, and notebooks show nothing.
    plt.draw_if_interactive()
    with rc_context(_settings(chart.theme)):
        figure = plt.figure(figsize=chart.size, layout="constrained")
        if len(chart.panels) == 1:
            return draw_on(figure.add_subplot(), chart)
        axes = _fill_figure(figure, chart)
    if not chart.is_page:
        return axes[0]
    # A notebook shows a returned figure and every open one, so this one would appear twice.
    plt.close(figure)
    return figure


def draw_on(ax: Axes, chart: Chart) -> Axes:
    """Draw a chart of one panel on Axes, whose colours and grid stay."""
    [panel] = chart.panels
    pad = _fill_axes(ax, panel, chart.theme, ax)
    _legend(ax, panel, [])
    figure = ax.get_figure(root=True)
    assert figure is not None
    # The title may be as wide as the axes and what is to the right of them.
    left = ax.get_window_extent().x0
    room = figure.bbox.x1 - left if len(figure.axes) <= 2 else ax.get_window_extent().width
    if chart.simulated:
        ax.set_title("simulated data", loc="right", fontsize="small", color=ASK, pad=pad)
        room -= 110
    if chart.title:
        _wrap(ax.set_title(chart.title, loc="left", fontsize="medium", pad=pad), room)
    return ax


def _fill_figure(figure: Figure, chart: Chart) -> list[Axes]:
    grid = figure.subplots(
        len(chart.rows), len(chart.rows[0]), squeeze=False, sharey="row",
        sharex="all" if all(panel.time for panel in chart.panels) else "col",
        gridspec_kw={"height_ratios": chart.heights, "width_ratios": chart.widths},
    )  # fmt: skip
    legends: list[list[str]] = []
    out: list[Axes] = []
    for panels, axes in zip(chart.rows, grid, strict=True):
        for column, (panel, ax) in enumerate(zip(panels, axes, strict=True)):
            if panel is None:
                ax.remove()
                continue
            last = axes[len([p for p in panels if p]) - 1]
            pad = _fill_axes(ax, panel, chart.theme, last, chart.inches(column))
            if panel.title:
                title = ax.set_title(panel.title, loc="left", fontsize="small", pad=pad)
                _wrap(title, chart.inches(column) * figure.dpi)
            # Sharing x hides the labels of all but the lowest row; a panel above a free place needs its own.
            ax.tick_params(labelbottom=bool(panel.x_label))
            ax.xaxis.get_offset_text().set_visible(bool(panel.x_label))
            _legend(ax, panel, legends)
            out.append(ax)
    if chart.simulated:
        box = {"boxstyle": "round,pad=0.35", "facecolor": chart.theme.ground, "edgecolor": ASK}
        figure.text(0.99, 0.985, "simulated data", ha="right", va="top", fontsize="small", color=ASK, bbox=box)
    if chart.title or chart.simulated:
        title = figure.suptitle(chart.title or " ", x=0.01, ha="left", fontsize="large")
        _wrap(title, figure.bbox.width * (0.84 if chart.simulated else 0.97))
    return out


def _wrap(text: Text, room: float) -> None:
    """Break the lines of a text so that none is wider than ``room`` [pixels]."""
    text.set_parse_math(False)
    lines = []
    for line in text.get_text().split("\n"):
        text.set_text(line)
        width = text.get_window_extent().width if line.strip() else 0.0
        lines.append(fill(line, max(10, int(len(line) * room / width))) if width > room else line)
    text.set_text("\n".join(lines))


def _fill_axes(ax: Axes, panel: Panel, theme: Theme, last: Axes, inches: float | None = None) -> int:
    """Draw a panel, with the scale of a heat map to the right of the ``last`` axes of its row.

    Returns the distance from the panel to a title above its other texts [points].
    """
    for mark in panel.marks:
        match mark:
            case Line():
                _line(ax, mark, panel, theme)
            case Band():
                ax.fill_between(
                    mark.x, mark.low, mark.high, color=theme.colour(mark.colour), alpha=mark.alpha, linewidth=0
                )
            case Heat():
                _heat(ax, mark, theme, last)
            case Bars():
                start, end = (date2num(x) if panel.time else x for x in (mark.start, mark.end))
                look: dict[str, Any] = {"color": mark.colour, "label": mark.name if mark.in_legend else None}
                if mark.hatched:
                    look |= {"color": theme.grid, "hatch": "//", "edgecolor": theme.frame, "linewidth": 0}
                ax.barh(mark.low, end - start, mark.high - mark.low, left=start, align="edge", alpha=0.9, **look)
            case Moment():
                ax.axvline(date2num(mark.x), color=FAINT, linewidth=0.8, linestyle=":")
    moments = panel.moment_rows(inches or ax.get_window_extent().width / ax.figure.dpi)
    text_rows = max((row + 1 for moment, row, _ in moments if moment.text), default=0)
    for moment, row, ends_at_line in moments:
        label = ax.annotate(
            moment.text, (date2num(moment.x), 1), (0, 3 + row * _POINTS_PER_TEXT_ROW), fontsize="x-small",
            xycoords=("data", "axes fraction"), textcoords="offset points", va="bottom",
            ha="right" if ends_at_line else "left",
        )  # fmt: skip
        _show_as_text(label)
    if not panel.marks:
        ax.text(0.5, 0.5, panel.empty, transform=ax.transAxes, ha="center", color=FAINT)
    if panel.time and panel.marks:
        dates = AutoDateLocator(minticks=3, maxticks=8)
        ax.xaxis.set_major_locator(dates)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz="UTC"))
    if panel.log_odds:
        ax.set_yscale("logit", nonpositive="clip")
        ax.yaxis.set_minor_locator(NullLocator())
    if panel.x_range:
        ax.set_xlim(*panel.x_range)
    if panel.y_range:
        ax.set_ylim(*panel.y_range)
    if panel.square:
        ax.set_aspect("equal")
    for axis in (ax.yaxis,) if panel.time else (ax.xaxis, ax.yaxis):
        if max(map(abs, axis.get_view_interval())) >= 1000:
            axis.set_major_formatter(EngFormatter(sep=""))
    if panel.x_ticks:
        ax.set_xticks(*zip(*panel.x_ticks, strict=True), fontsize="small")
    if panel.y_ticks:
        ax.set_yticks(*zip(*panel.y_ticks, strict=True), fontsize="x-small", parse_math=False)
    ax.set_xlabel(panel.x_label, fontsize="small", color=FAINT)
    _show_as_text(ax.set_ylabel(panel.y_label))
    return 6 + text_rows * _POINTS_PER_TEXT_ROW


def _legend(ax: Axes, panel: Panel, earlier: list[list[str]]) -> None:
    """Add a legend, unless an earlier panel has the same one."""
    _, labels = ax.get_legend_handles_labels()
    if not labels or labels in earlier:
        return
    earlier.append(labels)
    look: dict[str, Any] = {"loc": "best", "ncols": min(2, len(labels))}
    if panel.legend_outside or len(labels) > _MOST_ENTRIES_INSIDE:
        look = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    legend = ax.legend(frameon=False, fontsize="small", reverse=panel.legend_reversed, **look)
    _show_as_text(*legend.get_texts())


def _line(ax: Axes, mark: Line, panel: Panel, theme: Theme) -> None:
    y = within_odds(mark.y) if panel.log_odds else mark.y
    colour = theme.colour(mark.colour)
    look: dict[str, Any] = {"color": colour, "linewidth": mark.width, "alpha": mark.alpha, "label": mark.legend}
    if mark.dashed:
        look["linestyle"] = (0, (4, 3))
    if len(alone := isolated(mark.y)):
        look |= {"marker": ".", "markevery": alone.tolist()}
    ax.plot(mark.x, y, clip_on=not panel.log_odds, **look)
    if mark.dots is not None:
        ax.scatter(mark.x, mark.y, s=mark.dots, color=colour, alpha=0.75, edgecolor="white", zorder=3)


def _heat(ax: Axes, mark: Heat, theme: Theme, last: Axes) -> None:
    """The map, and its scale to the right of the ``last`` axes: asks above bids, as in the chart."""
    colours = LinearSegmentedColormap.from_list("book", mark.colours(theme), N=512)
    limits: dict[str, Any] = {"vmin": -mark.limit, "vmax": mark.limit, "cmap": colours}
    mesh = ax.pcolormesh(date2num(mark.x_edges), mark.y_edges, mark.shade.T, rasterized=True, **limits)
    bar = ax.figure.colorbar(mesh, ax=last, pad=0.01, aspect=22, fraction=0.15 if last is not ax else 0.03)
    places, texts = zip(*decades(mark.limit), strict=True)
    bar.set_ticks(places, labels=texts, fontsize="x-small", color=theme.ink)
    bar.set_label("shares per 0.01: asks above, bids below", fontsize="x-small", color=FAINT)
    bar.outline.set_visible(False)


def _show_as_text(*texts: Text) -> None:
    """Switch off formulas, because questions and labels contain dollar signs."""
    for text in texts:
        text.set_parse_math(False)
