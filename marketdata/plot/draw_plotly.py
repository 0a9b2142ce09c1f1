"""Interactive charts drawn with plotly."""

from __future__ import annotations

import html
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from marketdata.display import without_middle
from marketdata.errors import ConfigError
from marketdata.plot.chart import (
    ASK,
    FAINT,
    Array,
    Band,
    Bars,
    Chart,
    Detail,
    Heat,
    Line,
    Mark,
    Moment,
    Panel,
    Theme,
    apart,
    finite_runs,
    isolated,
    local_times,
    odds,
)

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_PIXELS_PER_INCH = 88
_PIXELS_PER_TEXT_ROW = 14
# The width of the page is not known here, and a title must fit a phone.
_MOST_TITLE_LETTERS, _INCHES = 52, 7
# What fits over each of two columns on a phone.
_COLUMN_LETTERS, _COLUMN_LINES = 23, 3
_MOST_TICK_LETTERS = 22


def draw(chart: Chart) -> go.Figure:
    """Draw all panels on one interactive figure, as wide as its place on the page."""
    if chart.zone is not None:
        _to_local(chart, chart.zone)
    height = chart.size[1] * _PIXELS_PER_INCH
    figure = make_subplots(
        rows=len(chart.rows),
        cols=len(chart.rows[0]),
        shared_yaxes=True,
        specs=[[{} if panel else None for panel in row] for row in chart.rows],
        row_heights=chart.heights and list(chart.heights),
        column_widths=chart.widths and list(chart.widths),
        vertical_spacing=min(68 / height, 1 / len(chart.rows)),
        horizontal_spacing=0.015 if chart.widths else 0.13 if _has_labels_inside(chart) else 0.07,
    )
    in_legend: set[str] = set()
    text_rows = 0
    for row, panels in enumerate(chart.rows, 1):
        for column, panel in enumerate(panels, 1):
            if panel is not None:
                text_rows = max(text_rows, _fill(figure, panel, {"row": row, "col": column}, in_legend, chart))
    _dress(figure, chart, height, entries=len(in_legend), text_rows=text_rows)
    return figure


def _to_local(chart: Chart, zone: ZoneInfo) -> None:
    """Move all times to what clocks of a zone show: plotly knows no zones.

    ConfigError for a range with an hour that these clocks show twice, since lines would go back in it.
    """
    for panel in (one for one in chart.panels if one.time):
        if panel.x_range is not None:
            hours = np.arange(panel.x_range[0], panel.x_range[1], np.timedelta64(1, "h"))
            again = np.flatnonzero(np.diff(local_times(hours, zone)) <= np.timedelta64(0, "us"))
            if len(again):
                hour = np.datetime_as_string(hours[again[0]], unit="m").replace("T", " ")
                raise ConfigError(
                    f"has an hour twice, at {hour} UTC, which plotly cannot draw; allowed are a range without "
                    "that hour and backend='matplotlib'.",
                    argument="tz",
                    value=zone.key,
                )
            panel.x_range = (*local_times(np.array(panel.x_range, "M8[us]"), zone),)
        panel.marks = [_local(mark, zone) for mark in panel.marks]


def _local(mark: Mark, zone: ZoneInfo) -> Mark:
    x = local_times(np.atleast_1d(mark.x), zone)
    if isinstance(mark, Moment):
        return mark._replace(x=x[0])
    if isinstance(mark, Line | Bars):
        details = [
            detail._replace(values=local_times(detail.values, zone)) if detail.values.dtype.kind == "M" else detail
            for detail in mark.details
        ]
        return mark._replace(x=x, details=details)
    return mark._replace(x=x)


def _fill(figure: go.Figure, panel: Panel, place: dict[str, int], in_legend: set[str], chart: Chart) -> int:
    """Draw a panel at its row and column. Returns the number of rows of texts above it."""
    for mark in panel.marks:
        _add(figure, mark, panel, place, in_legend, chart.theme)
    is_narrow = chart.widths is not None and place["col"] == len(chart.widths)
    inside: dict[str, Any] = {"xref": "x domain", "yref": "y domain", "showarrow": False, **place}
    text_rows = 0
    for moment, text_row, ends_at_line in panel.moment_rows(_INCHES / len(chart.rows[0])):
        look = {"xanchor": "right" if ends_at_line else "left", "yanchor": "bottom", **inside, "xref": "x"}
        [at], yshift = _times(np.array([moment.x])), text_row * _PIXELS_PER_TEXT_ROW
        figure.add_annotation(text=_plain(moment.text), x=at, y=1, yshift=yshift, **look)
        text_rows = max(text_rows, text_row + 1 if moment.text else 0)
    if panel.title:
        title: dict[str, Any] = {"xanchor": "right" if is_narrow else "left", "yanchor": "bottom"}
        title["yshift"] = text_rows * _PIXELS_PER_TEXT_ROW
        text = "<br>".join(_title_lines(panel, chart))
        figure.add_annotation(text=text, x=int(is_narrow), y=1, align="left", **title, **inside)
    if not panel.marks:
        figure.add_annotation(text=panel.empty, x=0.5, y=0.5, font={"color": FAINT}, **inside)
    _set_x(next(figure.select_xaxes(**place)), panel, is_narrow=is_narrow)
    _set_y(next(figure.select_yaxes(**place)), panel, chart.size[1] * _PIXELS_PER_INCH / len(chart.rows))
    return text_rows


def _add(figure: go.Figure, mark: Mark, panel: Panel, place: dict[str, int], in_legend: set[str], theme: Theme) -> None:
    """One mark of a panel."""
    match mark:
        case Line():
            figure.add_trace(_line(mark, panel, in_legend, theme), **place)
        case Band():
            figure.add_trace(_band(mark, panel), **place)
        case Heat():
            low, high = next(figure.select_yaxes(**place)).domain
            figure.add_trace(_heat(mark, theme, {"y": (low + high) / 2, "len": high - low}), **place)
        case Bars():
            figure.add_trace(_bars(mark, panel, in_legend, theme), **place)
        case Moment():
            [at] = _times(np.array([mark.x]))
            figure.add_vline(at, line={"color": FAINT, "width": 1, "dash": "dot"}, **place)


def _set_x(axis: Any, panel: Panel, *, is_narrow: bool) -> None:
    """Title, range and ticks; on a phone a narrow panel has room for the first and the last tick."""
    title = {"text": panel.x_label, "font": {"size": 11, "color": FAINT}, "standoff": 4}
    axis.update(title=title, tickangle=0, ticklabelstandoff=5)
    if panel.time:
        axis.update(type="date", matches=None if axis.plotly_name == "xaxis" else "x")
    if is_narrow:
        axis.nticks = 2
    if panel.x_range:
        axis.range = _x(np.array(panel.x_range), panel)
    if panel.x_ticks:
        ticks = panel.x_ticks[:: max(1, len(panel.x_ticks) - 1)] if is_narrow else panel.x_ticks
        places, names = zip(*ticks, strict=True)
        axis.update(tickvals=places, ticktext=names)
    if not panel.marks or (panel.time and not panel.x_label):
        axis.showticklabels = False


def _set_y(axis: Any, panel: Panel, height: float) -> None:
    """Title, range and ticks of a panel of this height [pixels]."""
    axis.update(title={"text": _plain(panel.y_label), "font": {"size": 12}, "standoff": 8}, tickangle=0)
    if panel.y_range:
        axis.range = _y(np.array(panel.y_range), panel)
    if panel.y_ticks:
        ticks = panel.y_ticks
        if panel.log_odds and panel.y_range:
            low, high = odds(np.array(panel.y_range))
            ticks = apart(ticks, odds(np.array([at for at, _ in ticks])) * height / (high - low), _PIXELS_PER_TEXT_ROW)
        places, names = zip(*ticks, strict=True)
        texts = [_plain(without_middle(name, _MOST_TICK_LETTERS)) for name in names]
        axis.update(tickvals=_y(np.array(places), panel), ticktext=texts)


def _title_lines(panel: Panel, chart: Chart) -> list[str]:
    """The title of a panel in lines that fit its column on a phone."""
    if len(chart.rows[0]) == 1 or chart.widths is not None:
        return _lines(panel.title, 60)
    return _lines(without_middle(panel.title, 54), _COLUMN_LETTERS, _COLUMN_LINES)


def _has_labels_inside(chart: Chart) -> bool:
    """Whether a panel beside another one has a label of its own."""
    return any(panel is not None and panel.y_label for panels in chart.rows for panel in panels[1:])


def _line(mark: Line, panel: Panel, in_legend: set[str], theme: Theme) -> go.Scatter:
    details = list(mark.details)
    point = "%{y:.4~f}" if panel.y_range else "%{y:,.6~g}"
    if panel.log_odds:
        point, details = "", [Detail("price", mark.y, ".4~f"), *details]
    dots = np.zeros(len(mark.y))
    if mark.marks_alone:
        dots[isolated(mark.y)] = 5
    if mark.dots is not None:
        point, dots = "%{x:.3f}, %{y:.3f}", np.sqrt(mark.dots) * 1.3
    dash = "5px,4px" if mark.dashed else None
    return go.Scatter(
        x=_x(mark.x, panel),
        y=_y(mark.y, panel),
        mode="lines+markers" if dots.any() else "lines",
        marker={"size": dots} if dots.any() else None,
        line={"color": mark.colour or theme.ink, "width": mark.width * 1.4, "dash": dash},
        opacity=mark.alpha,
        **_entry(mark.legend, in_legend),
        **_hover(mark.name, point, details),
    )


def _band(mark: Band, panel: Panel) -> go.Scatter:
    """One closed shape for each run without a gap, all in one trace."""
    x, y = [mark.x[:0]], [mark.low[:0]]
    for run in finite_runs(mark.low, mark.high):
        x += [mark.x[run], mark.x[run][::-1], mark.x[run][:1]]
        y += [mark.low[run], mark.high[run][::-1], np.array([np.nan])]
    shape = {"line": {"width": 0}, "fill": "toself", "fillcolor": mark.colour, "opacity": mark.alpha}
    places = {"x": _x(np.concatenate(x), panel), "y": _y(np.concatenate(y), panel)}
    return go.Scatter(**places, mode="lines", hoverinfo="skip", showlegend=False, **shape)


def _heat(mark: Heat, theme: Theme, place: dict[str, float]) -> go.Heatmap:
    ticks, texts = mark.ticks()
    title = {"text": "shares per 0.01: asks above, bids below", "side": "right", "font": {"size": 10}}
    scale = {"tickvals": ticks, "ticktext": texts, "thickness": 10, "outlinewidth": 0, "tickfont": {"size": 10}}
    return go.Heatmap(
        x=_times(mark.x[:-1] + np.diff(mark.x) // 2),
        y=(mark.y[1:] + mark.y[:-1]) / 2,
        z=mark.shade.T.astype(np.float32),
        customdata=mark.shares.T.astype(np.float32),
        zmin=-mark.limit,
        zmax=mark.limit,
        colorscale=[list(stop) for stop in mark.colours(theme)],
        hoverongaps=False,
        hovertemplate="%{x}<br>price %{y:.3f}<br>%{customdata:,.0f} shares<extra></extra>",
        colorbar={"title": title, **scale, **place},
    )


def _bars(mark: Bars, panel: Panel, in_legend: set[str], theme: Theme) -> go.Bar:
    (start, end), (low, high) = mark.x, mark.y
    pattern = {"shape": "/", "fgcolor": theme.frame, "size": 7, "solidity": 0.2} if mark.hatched else None
    return go.Bar(
        y=(low + high) / 2,
        x=(end - start).astype("m8[ms]").astype(np.int64) if panel.time else end - start,
        base=_x(start, panel),
        width=high - low,
        orientation="h",
        marker={"color": theme.grid if mark.hatched else mark.colour, "line": {"width": 0}, "pattern": pattern},
        **_entry(mark.name if mark.in_legend else None, in_legend),
        **_hover(mark.name, "", mark.details),
    )


def _entry(legend: str | None, in_legend: set[str]) -> dict[str, Any]:
    """Join marks of one name to one entry of the legend."""
    if legend is None:
        return {"showlegend": False}
    is_first = legend not in in_legend
    in_legend.add(legend)
    return {"name": _plain(legend), "legendgroup": legend, "showlegend": is_first}


def _hover(name: str, point: str, details: Sequence[Detail]) -> dict[str, Any]:
    are_times = any(d.values.dtype.kind == "M" for d in details)
    columns = [_times(d.values) if are_times else d.values for d in details]
    shown = [f"{d.name} %{{customdata[{i}]{'' if are_times else f':{d.form}'}}}" for i, d in enumerate(details)]
    text = ", ".join(part for part in (point, *shown) if part)
    return {
        "customdata": np.column_stack(columns) if columns else None,
        "hovertemplate": (f"{_plain(name)}: " if name else "") + text + "<extra></extra>",
    }


def _dress(figure: go.Figure, chart: Chart, height: float, *, entries: int, text_rows: int) -> None:
    """Set colours, title, legend and margins of the whole figure."""
    panels, theme = chart.panels, chart.theme
    marks = [[m for m in panel.marks if not isinstance(m, Band)] for panel in panels]
    # One box for all lines at a time, unless it is so long that it hides them.
    is_unified = panels[0].time and all(len(m) <= 8 and all(isinstance(one, Line) for one in m) for m in marks)
    first, _, second = chart.title.partition("\n")
    lines = ["<br>".join(_lines(first, _MOST_TITLE_LETTERS))] if first else []
    if second:
        lines.append(f"<span style='font-size:12px'>{'<br>'.join(_lines(second, _MOST_TITLE_LETTERS))}</span>")
    lines += [f"<span style='color:{ASK};font-size:12px'>simulated data</span>"] if chart.simulated else []
    title = "<br>".join(lines)
    top = 24 + (22 * (title.count("<br>") + 1) if title else 0)
    lines_above = max(len(_title_lines(panel, chart)) for panel in panels)
    top += 4 + 14 * lines_above if lines_above else 0
    top += text_rows * _PIXELS_PER_TEXT_ROW
    bottom = 62
    legend: dict[str, Any] = {"orientation": "h", "y": -bottom / height, "yanchor": "top", "x": 0, "xanchor": "left"}
    legend_rows = 1 + entries // 6 if entries else 0
    if any(panel.legend_reversed for panel in panels):
        legend |= {"orientation": "v", "traceorder": "reversed"}
        legend_rows = entries
    axis: dict[str, Any] = {"gridcolor": theme.grid, "linecolor": theme.frame, "zeroline": False, "automargin": True}
    axis["tickfont"] = {"size": 11}
    font = {"family": "system-ui, sans-serif", "color": theme.ink, "size": 12}
    ground = {"paper_bgcolor": theme.ground, "plot_bgcolor": theme.ground}
    figure.update_layout(
        template=go.layout.Template(layout={"font": font, **ground, "xaxis": axis, "yaxis": axis}),
        title={"text": title, "x": 0.01, "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 16}},
        title_font_size=13,
        legend={"font": {"size": 11}, **legend},
        height=int(height + top + bottom + 24 * legend_rows),
        margin={"l": 56, "r": 16, "t": top, "b": bottom},
        hovermode="x unified" if is_unified else "closest",
        barmode="overlay",
        modebar_remove=["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    )
    if any(panel.square for panel in panels):
        shares = chart.heights or [1]
        figure.update_layout(width=int(height * shares[0] / sum(shares)) + 72)
    figure.update_annotations(font_size=12)


def _x(values: Array, panel: Panel) -> Any:
    return _times(values) if panel.time else values


def _y(values: Array, panel: Panel) -> Array:
    """Places along y: plotly has no axis of log-odds, so they are log(p / (1 - p))."""
    if not panel.log_odds:
        return values
    return odds(values)


def _times(values: Array) -> Any:
    texts = np.datetime_as_string(values.astype("M8[us]"), unit="auto").tolist()
    return [None if t == "NaT" else t for t in texts]


def _plain(text: str) -> str:
    """Text as it is: neither tags nor formulas."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def _lines(text: str, width: int, most: int | None = None) -> list[str]:
    return [_plain(part) for part in wrap(text, width, max_lines=most, placeholder="…")]
