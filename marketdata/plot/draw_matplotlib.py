"""Charts drawn with matplotlib."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
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
    Mark,
    Moment,
    Panel,
    Theme,
    apart,
    isolated,
    odds,
    within_odds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# A longer legend inside a panel would hide its lines.
_MOST_ENTRIES_INSIDE = 8
_POINTS_PER_TEXT_ROW = 10
# Questions and labels have dollar signs and are no formulas.
_PLAIN: Any = {"text.parse_math": False}


def _settings(theme: Theme) -> Any:
    return {
        **_PLAIN,
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), theme.ground),
        **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), theme.frame),
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), theme.ink),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), "small"),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
        **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
        "grid.color": theme.grid,
        "grid.linewidth": 0.7,
    }


def draw(chart: Chart, ax: Axes | None = None) -> Axes | Figure:
    """Draw one panel on Axes, whose colours and grid stay, or all panels on a new figure.

    Returns the figure of a page, else the first Axes.
    """
    if ax is not None:
        with rc_context(_PLAIN):
            _fill_panels(chart, np.array([[ax]]))
        return ax
    import matplotlib.pyplot as plt

    # Loads the backend, which changes settings: rc_context would take them back, and notebooks show nothing.
    plt.draw_if_interactive()
    with rc_context(_settings(chart.theme)):
        figure = plt.figure(figsize=chart.size, layout="constrained")
        axes = figure.subplots(
            len(chart.rows), len(chart.rows[0]), squeeze=False, sharey="row",
            sharex="all" if all(panel.time for panel in chart.panels) else "col",
            gridspec_kw={"height_ratios": chart.heights, "width_ratios": chart.widths},
        )  # fmt: skip
        _fill_panels(chart, axes)
    if not chart.is_page:
        return axes[0, 0]  # type: ignore[no-any-return]
    # A notebook shows a returned figure and every open one, so this one would appear twice.
    plt.close(figure)
    return figure


def _fill_panels(chart: Chart, grid: Any) -> None:
    figure, is_alone = grid[0, 0].get_figure(root=True), len(chart.panels) == 1
    legends: list[list[str]] = []
    shares = np.array(chart.widths or [1.0] * len(chart.rows[0]))
    for panels, axes in zip(chart.rows, grid, strict=True):
        for panel, ax, share in zip(panels, axes, shares, strict=True):
            if panel is None:
                ax.remove()
                continue
            box = ax.get_window_extent()
            room = box.width if is_alone else 0.85 * figure.bbox.width * share / shares.sum()
            pad = _fill_axes(ax, panel, chart, axes[len([p for p in panels if p]) - 1], room / figure.dpi)
            _legend(ax, panel, legends)
            # Sharing x hides the labels of all but the lowest row; a panel above a free place needs its own.
            ax.tick_params(labelbottom=bool(panel.x_label))
            ax.xaxis.get_offset_text().set_visible(bool(panel.x_label))
            # The title of a chart may be as wide as the axes and what is to the right of them.
            room = figure.bbox.x1 - box.x0 if is_alone and len(figure.axes) <= 2 else room
            if chart.simulated and is_alone:
                ax.set_title("simulated data", loc="right", fontsize="small", color=ASK, pad=pad)
                room -= 110
            if title := chart.title if is_alone else panel.title:
                _wrap(ax.set_title(title, loc="left", fontsize="medium" if is_alone else "small", pad=pad), room)
    if chart.simulated and not is_alone:
        look = {"boxstyle": "round,pad=0.35", "facecolor": chart.theme.ground, "edgecolor": ASK}
        figure.text(0.99, 0.985, "simulated data", ha="right", va="top", fontsize="small", color=ASK, bbox=look)
    if (chart.title or chart.simulated) and not is_alone:
        title = figure.suptitle(chart.title or " ", x=0.01, ha="left", fontsize="large")
        _wrap(title, figure.bbox.width * (0.84 if chart.simulated else 0.97))


def _wrap(text: Text, room: float) -> None:
    """Break the lines of a text so that none is wider than ``room`` [pixels]."""
    text.set_parse_math(False)
    lines = []
    for line in text.get_text().split("\n"):
        text.set_text(line)
        width = text.get_window_extent().width if line.strip() else 0.0
        lines.append(fill(line, max(10, int(len(line) * room / width))) if width > room else line)
    text.set_text("\n".join(lines))


def _fill_axes(ax: Axes, panel: Panel, chart: Chart, last: Axes, inches: float) -> int:
    """Draw a panel of a chart, with the scale of a heat map to the right of the ``last`` axes of its row.

    Returns the distance from the panel to a title above its other texts [points].
    """
    for mark in panel.marks:
        _add(ax, mark, panel, chart.theme, last)
    text_rows = _add_texts_of_moments(ax, panel, inches)
    if not panel.marks:
        ax.text(0.5, 0.5, panel.empty, transform=ax.transAxes, ha="center", color=FAINT)
    _set_scales(ax, panel, chart)
    _set_ticks(ax, panel)
    ax.set_xlabel(panel.x_label, fontsize="small", color=FAINT)
    ax.set_ylabel(panel.y_label, parse_math=False)
    return 6 + text_rows * _POINTS_PER_TEXT_ROW


def _add(ax: Axes, mark: Mark, panel: Panel, theme: Theme, last: Axes) -> None:
    """One mark of a panel."""
    match mark:
        case Line():
            _line(ax, mark, theme, clip=panel.log_odds)
        case Band():
            ax.fill_between(mark.x, mark.low, mark.high, color=mark.colour, alpha=mark.alpha, linewidth=0)
        case Heat():
            _heat(ax, mark, theme, last)
        case Bars():
            (start, end), (low, high) = date2num(mark.x) if panel.time else mark.x, mark.y
            look: dict[str, Any] = {"color": mark.colour, "label": mark.name if mark.in_legend else None}
            if mark.hatched:
                look |= {"color": theme.grid, "hatch": "//", "edgecolor": theme.frame, "linewidth": 0}
            ax.barh(low, end - start, high - low, left=start, align="edge", alpha=0.9, **look)
        case Moment():
            ax.axvline(date2num(mark.x), color=FAINT, linewidth=0.8, linestyle=":")


def _add_texts_of_moments(ax: Axes, panel: Panel, inches: float) -> int:
    """The texts above a panel ``inches`` wide. Returns their rows."""
    text_rows = 0
    for moment, row, ends_at_line in panel.moment_rows(inches):
        ax.annotate(
            moment.text, (date2num(moment.x), 1), (0, 3 + row * _POINTS_PER_TEXT_ROW), fontsize="small",
            xycoords=("data", "axes fraction"), textcoords="offset points", va="bottom",
            ha="right" if ends_at_line else "left",
        )  # fmt: skip
        text_rows = max(text_rows, row + 1 if moment.text else 0)
    return text_rows


def _set_scales(ax: Axes, panel: Panel, chart: Chart) -> None:
    """Zones of times, log-odds, ranges, and large numbers as 1k and 2M."""
    if panel.time and panel.marks:
        zone = chart.zone or "UTC"
        dates = AutoDateLocator(minticks=3, maxticks=8, tz=zone)
        ax.xaxis.set_major_locator(dates)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(dates, tz=zone))
    if panel.log_odds:
        ax.set_yscale("logit", nonpositive="clip")
        ax.yaxis.set_minor_locator(NullLocator())
    if panel.square:
        ax.set_aspect("equal")
    ax.set(**{name: ends for name, ends in (("xlim", panel.x_range), ("ylim", panel.y_range)) if ends})
    for axis in (ax.yaxis,) if panel.time else (ax.xaxis, ax.yaxis):
        if max(map(abs, axis.get_view_interval())) >= 1000:
            axis.set_major_formatter(EngFormatter(sep=""))


def _set_ticks(ax: Axes, panel: Panel) -> None:
    """The ticks that a panel names, those of log-odds no nearer than their texts are high."""
    if panel.x_ticks:
        ax.set_xticks(*zip(*panel.x_ticks, strict=True), fontsize="small")
    if panel.y_ticks:
        ticks = panel.y_ticks
        if panel.log_odds and panel.y_range:
            places, ends = (odds(np.array(one)) for one in ([at for at, _ in ticks], panel.y_range))
            height = ax.get_window_extent().height * 72 / ax.figure.dpi
            ticks = apart(ticks, places * height / (ends[1] - ends[0]), _POINTS_PER_TEXT_ROW)
        ax.set_yticks(*zip(*ticks, strict=True), fontsize="small")


def _legend(ax: Axes, panel: Panel, earlier: list[list[str]]) -> None:
    """Add a legend, unless an earlier panel has the same one."""
    handles, labels = ax.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    if not entries or [*entries] in earlier:
        return
    earlier.append([*entries])
    look: dict[str, Any] = {"loc": "best", "ncols": min(2, len(entries))}
    if panel.legend_outside or len(entries) > _MOST_ENTRIES_INSIDE:
        look = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    ax.legend([*entries.values()], [*entries], frameon=False, fontsize="small", reverse=panel.legend_reversed, **look)


def _line(ax: Axes, mark: Line, theme: Theme, *, clip: bool) -> None:
    colour = mark.colour or theme.ink
    look: dict[str, Any] = {"color": colour, "linewidth": mark.width, "alpha": mark.alpha, "label": mark.legend}
    if mark.dashed:
        look["linestyle"] = (0, (4, 3))
    if mark.marks_alone and len(alone := isolated(mark.y)):
        look |= {"marker": ".", "markevery": alone.tolist()}
    ax.plot(mark.x, within_odds(mark.y) if clip else mark.y, clip_on=not clip, **look)
    if mark.dots is not None:
        ax.scatter(mark.x, mark.y, s=mark.dots, color=colour, alpha=0.75, edgecolor="white", zorder=3)


def _heat(ax: Axes, mark: Heat, theme: Theme, last: Axes) -> None:
    """The map, and its scale to the right of the ``last`` axes: asks above bids, as in the chart."""
    colours = LinearSegmentedColormap.from_list("book", mark.colours(theme), N=512)
    limits: dict[str, Any] = {"vmin": -mark.limit, "vmax": mark.limit, "cmap": colours}
    mesh = ax.pcolormesh(date2num(mark.x), mark.y, mark.shade.T, rasterized=True, **limits)
    bar = ax.figure.colorbar(mesh, ax=last, pad=0.01, aspect=22, fraction=0.15 if last is not ax else 0.03)
    places, texts = mark.ticks()
    bar.set_ticks(places, labels=texts, fontsize="small", color=theme.ink)
    bar.set_label("shares per 0.01: asks above, bids below", fontsize="small", color=FAINT)
    bar.outline.set_visible(False)
