"""From panels to a figure: the options of every chart, and the library that draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypedDict

import numpy as np

from marketdata.errors import ConfigError, not_installed
from marketdata.plot.chart import THEMES, Chart, Moment, Panel
from marketdata.points.arguments import choice, flag
from marketdata.times import to_micros


class Look(TypedDict, total=False):
    """Arguments of every chart; see `prices`."""

    title: str | None
    simulated: bool
    theme: Literal["light", "dark"]
    backend: Literal["matplotlib", "plotly"]
    moments: Mapping[str, Any] | None


def draw(
    rows: list[list[Panel | None]],
    ax: Any = None,
    *,
    name: str = "",
    size: tuple[float, float] | None = None,
    heights: Sequence[float] | None = None,
    widths: Sequence[float] | None = None,
    is_page: bool = False,
    title: str | None = None,
    simulated: bool = False,
    theme: str = "light",
    backend: str = "matplotlib",
    moments: Mapping[str, Any] | None = None,
) -> Any:
    """Draw panels with a library, and ``moments`` in those over time.

    The title is ``title``, else the ``name`` of what is drawn and the range of its times.
    """
    flag("simulated", simulated)
    look = THEMES[choice("theme", theme, THEMES)]
    choice("backend", backend, ("matplotlib", "plotly"))
    if find_spec(backend) is None:
        raise not_installed(f"backend={backend!r}", backend, "plot" if backend == "matplotlib" else backend)
    library = import_module(f"marketdata.plot.draw_{backend}")
    size = size or ((10, 4) if len(rows[0]) == 1 else (11, 2.6 * len(rows)))
    chart = Chart(rows, size, "", simulated, heights, widths, look, is_page=is_page)
    panels = chart.panels
    over_time = [panel for panel in panels if panel.time]
    chart.title = title if title is not None else "\n".join(filter(None, (name, _range_text(*_time_ends(over_time)))))
    if moments and not over_time:
        raise ConfigError("moments= names times, and this chart has no axis of time; leave it out.")
    times = {text: np.datetime64(to_micros(time, "moments"), "us") for text, time in (moments or {}).items()}
    for panel in over_time:
        if panel.marks:
            panel.marks += [Moment(at, text if panel in rows[0] else "") for text, at in times.items()]
    first, last = _time_ends(over_time)
    for panel in over_time:
        panel.x_range = (first, last) if first < last else None
    if ax is None:
        return library.draw(chart)
    if backend == "plotly":
        raise ConfigError("ax= is for matplotlib; with backend='plotly' a new figure is returned.")
    if not hasattr(ax, "set_title"):
        raise ConfigError("is refused; pass Axes of matplotlib.", argument="ax", value=ax)
    if len(panels) > 1:
        raise ConfigError(f"ax= takes one market, the frame has {len(panels)}; filter it on one market_id, or omit ax.")
    return library.draw_on(ax, chart)


def _time_ends(panels: Sequence[Panel]) -> tuple[np.datetime64, np.datetime64]:
    """The first and the last time of all panels; NaT without any."""
    ends = [time for panel in panels for time in panel.ends() or ()]
    return min(ends, default=np.datetime64("NaT")), max(ends, default=np.datetime64("NaT"))


def _range_text(first: np.datetime64, last: np.datetime64) -> str:
    if np.isnat(first):
        return ""
    start, end = (np.datetime_as_string(time, unit="m").replace("T", " ") for time in (first, last))
    return f"{start} to {end} UTC"
