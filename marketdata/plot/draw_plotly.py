"""Interactive charts drawn with plotly."""

from __future__ import annotations

import html
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

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
    Moment,
    Panel,
    Theme,
    decades,
    finite_runs,
    isolated,
    log_odds,
)

_PIXELS_PER_INCH = 88
_PIXELS_PER_TEXT_ROW = 14
# The width of the page is not known here, and a title must fit a phone.
_MOST_TITLE_LETTERS = 52


def _template(theme: Theme) -> go.layout.Template:
    axis: dict[str, Any] = {"gridcolor": theme.grid, "linecolor": theme.frame, "zeroline": False, "automargin": True}
    axis["tickfont"] = {"size": 11}
    return go.layout.Template(
        layout={
            "font": {"family": "system-ui, sans-serif", "color": theme.ink, "size": 12},
            "paper_bgcolor": theme.ground,
            "plot_bgcolor": theme.ground,
            "xaxis": axis,
            "yaxis": axis,
        }
    )


def draw(chart: Chart) -> go.Figure:
    """Draw all panels on one interactive figure, as wide as its place on the page."""
    height = chart.size[1] * _PIXELS_PER_INCH
    figure = make_subplots(
        rows=len(chart.rows),
        cols=len(chart.rows[0]),
        shared_yaxes=True,
        specs=[[{} if panel else None for panel in row] for row in chart.rows],
        row_heights=list(chart.heights) if chart.heights else None,
        column_widths=list(chart.widths) if chart.widths else None,
        vertical_spacing=min(68 / height, 1 / len(chart.rows)),
        horizontal_spacing=0.015 if chart.widths else 0.07,
    )
    figure.update_layout(template=_template(chart.theme))
    in_legend: set[str] = set()
    text_rows = 0
    for row, panels in enumerate(chart.rows, 1):
        for column, panel in enumerate(panels, 1):
            if panel is not None:
                inches = min(chart.inches(column - 1), 7 / len(panels))
                rows_above = _fill(figure, panel, (row, column), inches, in_legend, chart.theme)
                text_rows = max(text_rows, rows_above)
    _dress(figure, chart, height, entries=len(in_legend), text_rows=text_rows)
    return figure


def _fill(
    figure: go.Figure,
    panel: Panel,
    place: tuple[int, int],
    inches: float,
    in_legend: set[str],
    theme: Theme,
) -> int:
    """Draw a panel at a row and a column. Returns the number of rows of texts above it."""
    row, col = place
    moments = panel.moment_rows(inches)
    text_rows = max((text_row + 1 for moment, text_row, _ in moments if moment.text), default=0)
    x_axis, y_axis = next(figure.select_xaxes(row=row, col=col)), next(figure.select_yaxes(row=row, col=col))
    x, y = (axis.plotly_name.replace("axis", "") for axis in (x_axis, y_axis))
    inside: dict[str, Any] = {"xref": f"{x} domain", "yref": f"{y} domain", "showarrow": False}
    if panel.title:
        figure.add_annotation(
            text=_wrapped(panel.title, 60), x=0, y=1, xanchor="left", yanchor="bottom",
            yshift=text_rows * _PIXELS_PER_TEXT_ROW, **inside,
        )  # fmt: skip
    for mark in panel.marks:
        match mark:
            case Line():
                figure.add_trace(_line(mark, panel, in_legend, theme), row, col)
            case Band():
                figure.add_trace(_band(mark, panel, theme), row, col)
            case Heat():
                low, high = y_axis.domain
                figure.add_trace(_heat(mark, theme, {"y": (low + high) / 2, "len": high - low}), row, col)
            case Bars():
                figure.add_trace(_bars(mark, panel, in_legend, theme), row, col)
            case Moment():
                at, line = _times(np.array([mark.x]))[0], {"color": FAINT, "width": 1, "dash": "dot"}
                figure.add_shape(x0=at, x1=at, y0=0, y1=1, line=line, xref=x, yref=f"{y} domain")
    for moment, text_row, ends_at_line in moments:
        figure.add_annotation(
            text=_plain(moment.text), x=_times(np.array([moment.x]))[0], y=1, xref=x, yref=f"{y} domain",
            showarrow=False, xanchor="right" if ends_at_line else "left", yanchor="bottom",
            yshift=text_row * _PIXELS_PER_TEXT_ROW,
        )  # fmt: skip
    if not panel.marks:
        figure.add_annotation(text=panel.empty, x=0.5, y=0.5, font={"color": FAINT}, **inside)
    small = {"font": {"size": 11, "color": FAINT}, "standoff": 4}
    x_axis.update(title={"text": panel.x_label, **small}, tickangle=0, ticklabelstandoff=5)
    y_axis.update(title={"text": _plain(panel.y_label), "font": {"size": 12}, "standoff": 8}, tickangle=0)
    if panel.time:
        x_axis.update(type="date", matches="x" if x != "x" else None)
    if panel.x_range:
        x_axis.range = _axis(np.array(panel.x_range), panel)
    if panel.y_range:
        y_axis.range = _height(np.array(panel.y_range), panel)
    if panel.x_ticks:
        places, names = zip(*panel.x_ticks, strict=True)
        x_axis.update(tickvals=places, ticktext=names)
    if panel.y_ticks:
        places, names = zip(*panel.y_ticks, strict=True)
        y_axis.update(tickvals=_height(np.array(places), panel), ticktext=[_plain(name) for name in names])
    if not panel.marks or (panel.time and not panel.x_label):
        x_axis.showticklabels = False
    return text_rows


def _line(mark: Line, panel: Panel, in_legend: set[str], theme: Theme) -> go.Scatter:
    details = list(mark.details)
    if panel.log_odds:
        details.insert(0, Detail("price", mark.y, ".4~f"))
    point = "" if panel.log_odds else "%{y:.4~f}" if panel.y_range else "%{y:,.6~g}"
    dots = np.zeros(len(mark.y))
    dots[isolated(mark.y)] = 5
    if mark.dots is not None:
        point, dots = "%{x:.3f}, %{y:.3f}", np.sqrt(mark.dots) * 1.3
    dash = "5px,4px" if mark.dashed else None
    return go.Scatter(
        x=_axis(mark.x, panel),
        y=_height(mark.y, panel),
        mode="lines+markers" if dots.any() else "lines",
        marker={"size": dots} if dots.any() else None,
        line={"color": theme.colour(mark.colour), "width": mark.width * 1.4, "dash": dash},
        opacity=mark.alpha,
        **_entry(mark.legend, in_legend),
        **_hover(mark.name, point, details),
    )


def _band(mark: Band, panel: Panel, theme: Theme) -> go.Scatter:
    """One closed shape for each run without a gap, all in one trace."""
    x, y = [mark.x[:0]], [mark.low[:0]]
    for run in finite_runs(mark.low, mark.high):
        x += [mark.x[run], mark.x[run][::-1], mark.x[run][:1]]
        y += [mark.low[run], mark.high[run][::-1], np.array([np.nan])]
    shape = {"line": {"width": 0}, "fill": "toself", "fillcolor": theme.colour(mark.colour), "opacity": mark.alpha}
    places = _axis(np.concatenate(x), panel), _height(np.concatenate(y), panel)
    return go.Scatter(x=places[0], y=places[1], mode="lines", hoverinfo="skip", showlegend=False, **shape)


def _heat(mark: Heat, theme: Theme, place: dict[str, float]) -> go.Heatmap:
    middle = mark.x_edges[:-1] + (mark.x_edges[1:] - mark.x_edges[:-1]) // 2
    ticks, texts = zip(*decades(mark.limit), strict=True)
    title = {"text": "shares per 0.01: asks above, bids below", "side": "right", "font": {"size": 10}}
    scale = {"tickvals": ticks, "ticktext": texts, "thickness": 10, "outlinewidth": 0, "tickfont": {"size": 10}}
    return go.Heatmap(
        x=_times(middle),
        y=(mark.y_edges[1:] + mark.y_edges[:-1]) / 2,
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
    width = mark.end - mark.start
    pattern = {"shape": "/", "fgcolor": theme.frame, "size": 7, "solidity": 0.2} if mark.hatched else None
    return go.Bar(
        y=(mark.low + mark.high) / 2,
        x=width.astype("m8[ms]").astype(np.int64) if panel.time else width,
        base=_axis(mark.start, panel),
        width=mark.high - mark.low,
        orientation="h",
        marker={"color": theme.grid if mark.hatched else mark.colour, "line": {"width": 0}, "pattern": pattern},
        **_entry(mark.name if mark.in_legend else None, in_legend),
        **_hover(mark.name, "", mark.details),
    )


def _entry(legend: str | None, in_legend: set[str]) -> dict[str, Any]:
    """Join marks of one name to one entry of the legend."""
    if legend is None:
        return {"showlegend": False}
    first = legend not in in_legend
    in_legend.add(legend)
    return {"name": _plain(legend), "legendgroup": legend, "showlegend": first}


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
    panels = chart.panels
    marks = [[m for m in p.marks if not isinstance(m, Band)] for p in panels]
    unified = panels[0].time and all(isinstance(m, Line) for panel_marks in marks for m in panel_marks)
    unified = unified and max(map(len, marks)) <= 8  # a longer box hides the lines
    square = any(panel.square for panel in panels)
    first, _, second = chart.title.partition("\n")
    lines = [_wrapped(first, _MOST_TITLE_LETTERS)] if first else []
    lines += [f"<span style='font-size:12px'>{_wrapped(second, _MOST_TITLE_LETTERS)}</span>"] if second else []
    lines += [f"<span style='color:{ASK};font-size:12px'>simulated data</span>"] if chart.simulated else []
    title = "<br>".join(lines)
    top = 24 + (22 * (title.count("<br>") + 1) if title else 0) + (18 if any(p.title for p in panels) else 0)
    top += text_rows * _PIXELS_PER_TEXT_ROW
    bottom = 62
    legend: dict[str, Any] = {"orientation": "h", "y": -bottom / height, "yanchor": "top", "x": 0, "xanchor": "left"}
    legend_rows = 1 + entries // 6 if entries else 0
    if any(panel.legend_reversed for panel in panels):
        legend |= {"orientation": "v", "traceorder": "reversed"}
        legend_rows = entries
    figure.update_layout(
        title={"text": title, "x": 0.01, "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 16}},
        title_font_size=13,
        legend={"font": {"size": 11}, **legend},
        height=int(height + top + bottom + 24 * legend_rows),
        margin={"l": 56, "r": 16, "t": top, "b": bottom},
        hovermode="x unified" if unified else "closest",
        barmode="overlay",
        modebar_remove=["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    )
    if square:
        shares = chart.heights or [1]
        figure.update_layout(width=int(height * shares[0] / sum(shares)) + 72)
    figure.update_annotations(font_size=12)


def _axis(values: Array, panel: Panel) -> Any:
    return _times(values) if panel.time else values


def _height(values: Array, panel: Panel) -> Array:
    """Places along y: plotly has no axis of log-odds."""
    return log_odds(values) if panel.log_odds else values


def _times(values: Array) -> Any:
    texts = np.datetime_as_string(values.astype("M8[us]"), unit="auto").tolist()
    return [None if t == "NaT" else t for t in texts]


def _plain(text: str) -> str:
    """Text as it is: neither tags nor formulas."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def _wrapped(text: str, width: int) -> str:
    return "<br>".join(_plain(part) for part in wrap(text, width))
