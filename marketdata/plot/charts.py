"""The charts: each reads its frame, collects marks in panels, and has a backend draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import collected, in_memory, names_of, opened, series_of
from marketdata.adapters.frame import Frame
from marketdata.errors import ConfigError, not_installed
from marketdata.plot.chart import (
    ACTIVE_THEME,
    ASK,
    BID,
    FAINT,
    FURTHER,
    ODDS,
    PALETTE,
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
    theme_of,
)
from marketdata.points import schema
from marketdata.points.arguments import choice, text, whole, with_flags
from marketdata.points.columns import Books
from marketdata.points.ladder import ladder as ladder_of
from marketdata.points.resample import buckets, means
from marketdata.resolution import BucketWidth
from marketdata.tidy import forecast_scores
from marketdata.tidy.baskets import event_probabilities
from marketdata.tidy.cross_token import probabilities
from marketdata.tidy.quotes import bbo
from marketdata.times import MINUTE, to_datetime, to_micros

Questions = Mapping[str, str] | Any


class Look(TypedDict, total=False):
    """Arguments of every chart; see `prices`."""

    title: str | None
    simulated: bool
    theme: Literal["light", "dark"] | None
    backend: Literal["matplotlib", "plotly"]


class LookOverTime(Look, total=False):
    """Further arguments of every chart over time."""

    events: Mapping[str, Any] | None


# Panels of a chart: more cannot be read.
_MOST_PANELS = 60
# Borders of the cells of a heat map, a cent each [probability].
_EDGES = np.linspace(0.0, 1.0, 101)
_STATES = {
    "final": BID,
    "recorded": "#7fb8d6",
    "provisional": "#f0c419",
    "unproven": "#8957e5",
    "missing": ASK,
}
# Columns of best prices that charts of books draw.
_TOUCH = ("mid", "best_bid", "best_bid_size", "best_ask", "best_ask_size")
# Rows that are named on an axis; of more, every n-th.
_MOST_NAMED = 150
_NARROWEST = 400
"""Part of a chart of coverage that can be seen, one to two pixels of it."""
_TALLEST = 40
"""Inches."""
# The label of an axis, and the width of its bars.
_SHARES, _HOUR = "shares at the price (bar) and up to it (line)", BucketWidth.of("1h")
# Columns that a chart of an account needs.
_ACCOUNT = ("profit", "profit_sold", "drawdown")
# Columns that a chart of coverage needs.
_COVERAGE = ("view", "market_id", "start", "end", "state")
# Units of metrics that a simulation makes; the service names none.
_SIMULATED_UNITS = {"volume": "USD traded so far", "liquidity": "USD"}


@with_flags
def prices(
    frame: Any,
    ax: Any = None,
    *,
    markets: Questions = None,
    both: bool = False,
    log_odds: bool = False,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw the price of each token as a line, one panel per market; of two outcomes the first.

    Returns matplotlib Axes or a plotly Figure, y: price [probability], x: start of the bucket [UTC]; gaps of the data
    are gaps of the line, a point without neighbours is a dot. Of several markets (at most 60, the earliest first) the
    Axes of the first panel; ``ax.figure.axes`` has all. Of more than six tokens the six with the highest last price are
    coloured, the others are thin grey lines.

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw a frame of one market; by default a new figure.
    markets : frame of market records, or mapping of market id to text, optional
        The questions of the panels, by default shortened ids; of records also the order of two outcomes, which is Yes,
        Up or Over first without them.
    both : bool
        Draw the second of two outcomes too, which is about what the first leaves of 1.
    log_odds : bool
        Space prices by log(p / (1 - p)), so that 1% and 2% are as far apart as 99% and 98%.
    **look
        Options of every chart: ``title``, by default the question of the market; ``simulated=True`` marks the chart as
        simulated; ``theme``, "light" or "dark", by default that of `style`; ``backend``, "matplotlib" or "plotly",
        which is interactive and needs the extra ``plotly``; and over time ``events``, a mapping of text to time, which
        names moments.

    Examples
    --------
    >>> prices = md.testing.prices()
    >>> questions = {"rain": "Will it rain?"}
    >>> ax = md.plot.prices(prices, markets=questions, both=True)
    >>> (
    ...     ax.get_title("left"),
    ...     ax.get_ylabel(),
    ...     [line.get_label() for line in ax.lines],
    ... )
    ('Will it rain?', 'price [probability]', ['Yes', 'No'])
    """
    table = in_memory(frame, ["prices"])
    columns = ["price", *(c for c in ("price_count",) if c in table.names)]

    def marks(token: _Token, colour: str, legend: str | None) -> Iterator[Line]:
        ts, price, *counts = token.broken(*columns)
        details = [Detail("points", values, ",.0f") for values in counts]
        yield Line(ts, price, token.label, colour, _width(colour), legend=legend, details=details)

    return _by_market(_tokens(table, columns), "price", marks, markets, ax, look, both=both, log_odds=log_odds)


@with_flags
def price_band(
    frame: Any,
    ax: Any = None,
    *,
    markets: Questions = None,
    both: bool = False,
    log_odds: bool = False,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw the mid of each token of books or bbo as a line, and bid to ask as a band around it; see `prices`.

    Returns the chart, y: mid [probability]; grey lines have no band. plotly shows bid, ask and their sizes on hover.
    """
    tokens = _tokens(opened(_touch(frame), ["bbo"]), _TOUCH)
    return _by_market(tokens, "mid", _band_marks, markets, ax, look, both=both, log_odds=log_odds)


def depth(
    frame: Any,
    ax: Any = None,
    *,
    token: str | None = None,
    bins: int = 360,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw the resting orders of one token over time: price up, bids teal, asks coral, darker where more shares rest.

    Returns the chart, y: price [probability], x: time [UTC] in ``bins`` columns, shade: log10(1 + shares) in cells of
    0.01, the mean over the snapshots of a column, of a cell with bids and asks the difference of the two; hatched where
    the frame has no snapshot. ``token`` is an id or a label, by default the first token of the frame's one market (Yes
    before No). For the others see `prices`.
    """
    return draw([[_depth_panel(*_chosen(frame, token), bins)]], ax, **look)


def metrics(
    frame: Any,
    ax: Any = None,
    *,
    column: str = "volume",
    markets: Questions = None,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw one metric (``column``) over time, a line per market; see `prices`.

    Returns the chart, y: the metric in the unit of the service, which its interface does not name (simulated data: USD;
    ``spread``: probability), x: time [UTC]. For the means of hours pass ``frame.md.resample("1h")``.
    """
    table = in_memory(frame, ["metrics"])
    if text("column", column, "its name") not in (allowed := schema.value_columns(table.names)):
        raise ConfigError(f"column={column!r} is not in the frame; it has {', '.join(allowed)}.")
    known, _ = _questions(markets)
    panel, tokens = Panel(_metric_label(column, look)), list(_tokens(table, [column], known))
    for token, colour, legend in _coloured(tokens, column, "markets"):
        ts, value = token.broken(column)
        panel.marks.append(
            Line(ts, value, token.label, colour, _width(colour), legend=legend if len(tokens) > 1 else None)
        )
    if len(tokens) == 1:
        look["title"] = look.get("title") or known.get(tokens[0].market_id)
    return draw([[panel]], ax, **look)


def book(
    frame: Any,
    ts: Any = None,
    *,
    metrics_frame: Any | None = None,
    token: str | None = None,
    bins: int = 720,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw the order book of one token through time: mid, bids and asks, the book at one moment, volume beneath.

    Returns a Figure, to save with ``figure.savefig("book.png")`` or of plotly ``figure.write_html("book.html")``. Left,
    y: price [probability], x: time [UTC], shade: shares in cells of 0.01, the mean over the snapshots of a column; the
    line is the mid; hatched where the frame has no snapshot. Right: shares at each price and up to it. Beneath: the
    volume of each hour, if ``metrics_frame`` is given; of a volume that only rises what it rose by. For the
    others see `prices`.

    Parameters
    ----------
    ts : time, optional
        The moment of the book at the right, a dotted line at the left; by default the last snapshot with both sides.
    token : str, optional
        Id or label, by default the first token of the frame's one market (Yes before No).
    bins : int
        Columns of time.

    Examples
    --------
    >>> figure = md.plot.book(md.testing.books(), title="Will it rain?")
    >>> [
    ...     ax.get_ylabel()
    ...     for ax in figure.axes
    ...     if ax.get_ylabel().startswith("price")
    ... ]
    ['price of Yes']
    """
    label, one = _chosen(frame, token)
    heat, side = _depth_panel(label, one, bins), Panel("", "shares", time=False, shares_y=True, empty="no book")
    rows: list[list[Panel | None]] = [[heat, side]]
    if one is not None:
        heat.y_range = (-0.01, 1.01)
        x, mid = _broken(one.ts.view("M8[us]"), one.mid)
        heat.marks.append(Line(x, mid, "mid", theme_of(look.get("theme")).ink, 1.2))
        both = one.ts[~np.isnan(one.mid)]
        moment = to_micros(ts, "ts") if ts is not None else int((both if len(both) else one.ts)[-1])
        side.marks, at = _sides(one, moment, bids=1.0, in_legend=False)
        if at is not None:
            side.title = f"book at {at:%-d %b %H:%M}"
            heat.marks.append(Moment(np.datetime64(moment, "us"), ""))
        if metrics_frame is not None and (volume := _volume_panel(metrics_frame, look)).marks:
            heat.x_label = ""
            rows.append([volume, None])
        _share_time([panel for row in rows for panel in row if panel and panel.time], heat)
    heights = [4, 1][: len(rows)]
    return draw(rows, size=(11, 6.2), heights=heights, widths=(5.2, 1), is_page=True, **look)


def overview(books: Any, metrics_frame: Any | None = None, **look: Unpack[LookOverTime]) -> Any:
    """Draw one market on one page: `book` of its first token, with the volume of its metrics.

    Returns a Figure. ``books`` and ``metrics_frame`` are of the same market; for the others see `book` and `prices`.
    """
    return book(books, metrics_frame=metrics_frame, **look)


def ladder(
    frame: Any,
    ts: Any = None,
    ax: Any = None,
    *,
    token: str | None = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the book of one token at one time: price up, size along, bids to the left and asks to the right.

    Returns the chart, y: price [probability], x: shares at each price, bids negative, with the running total as a line.
    ``ts`` as for `marketdata.ladder`, by default the last snapshot; ``token`` as for `depth`; others see `prices`.
    """
    label, one = _chosen(frame, token)
    panel = Panel(f"price of {label}" if label else "price [probability]", _SHARES, time=False)
    if one is not None:
        panel.empty = "the book is empty at this time"
        panel.marks, at = _sides(one, int(one.ts[-1]) if ts is None else to_micros(ts, "ts"))
        if at is not None:
            look["title"] = look.get("title") or f"{label} at {at:%Y-%m-%d %H:%M:%S} UTC"
    return draw([[panel]], ax, size=(7, 5), **look)


def calibration(
    frame: Any,
    outcomes: Any,
    ax: Any = None,
    *,
    bins: int = 10,
    of: Literal["token", "market"] = "token",
    interval: float | None = None,
    **look: Unpack[Look],
) -> Any:
    """Draw how often tokens priced at p won, and below how many forecasts were at each price.

    Returns the chart, x: mean price of the bin, y: share that came true, both [0 to 1]; on the dashed line forecasts
    are perfectly calibrated. ``interval`` draws the interval of each bin. On an ``ax`` that is given there is no place
    for the histogram: the larger a dot, the more forecasts. ``outcomes bins of`` as for `marketdata.calibration`;
    others see `prices`.
    """
    table = forecast_scores.calibration(collected(frame), outcomes, bins, of=of, interval=interval)
    ends = ("outcome_low", "outcome_high") if interval is not None else ()
    start, end, points, forecast, outcome, *limits = (
        np.asarray(table[c], np.float64) for c in ("bin_start", "bin_end", "points", "forecast", "outcome", *ends)
    )
    panel = Panel("share that came true", "price [probability]", time=False, empty="no resolved market in the frame")
    panel.x_range, panel.y_range = (-0.03, 1.03), (-0.06, 1.06)
    if not len(points):
        return draw([[panel]], ax, size=(5.5, 5.5), **look)
    diagonal, name = np.array([0.0, 1.0]), "perfectly calibrated"
    panel.marks.append(Line(diagonal, diagonal, name, FAINT, dashed=True, legend=name))
    if interval is not None:
        low, high = limits
        panel.marks.append(Band(forecast, low, high, PALETTE[0], 0.14))
        x, y = np.full((2, len(forecast), 3), np.nan)
        x[:, :2], y[:, :2] = forecast[:, None], np.column_stack(limits)
        name = f"{interval:.0%} interval over markets"
        panel.marks.append(Line(x.ravel(), y.ravel(), name, PALETTE[0], 1.2, 0.6, legend=name))
    details = [Detail("forecasts", points, ",.0f")]
    dots = np.full(len(points), 36.0) if ax is None else 20 + 380 * points / points.max()
    panel.marks.append(Line(forecast, outcome, "", PALETTE[0], details=details, dots=dots))
    if ax is not None:
        return draw([[panel]], ax, **look)
    panel.x_label = ""
    below = Panel("forecasts", "price [probability]", time=False, x_range=panel.x_range)
    below.y_range = (0.0, 1.05 * float(points.max()))
    below.marks.append(Bars(start, end, 0 * points, points, PALETTE[0], "", details, in_legend=False))
    return draw([[panel], [below]], size=(5.5, 6.9), heights=(4, 1), **look)


def outcomes(
    frame: Any,
    ax: Any = None,
    *,
    events: Any = None,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the outcomes of one market, or of one event, stacked through time: each share of the prices of all.

    Returns the chart, y: `marketdata.probabilities` one upon the other [0 to 1], the greatest at the end lowest, x:
    time [UTC]. Times at which an outcome has no price are gaps. The legend has the six greatest with their last
    values; the others are one area. With ``events``, records as for `marketdata.overround`, the outcomes are the Yes
    of its markets, named by their questions (``markets``, else the records'); a mapping names moments. For the others
    see `prices`.

    Examples
    --------
    >>> ax = md.plot.outcomes(md.testing.prices())
    >>> [line.get_label() for line in ax.lines]
    ['No 57.0%', 'Yes 43.0%']
    """
    moments, events = (events, None) if isinstance(events, Mapping) else (None, events)
    rows = collected(frame)
    scaled = probabilities(rows) if events is None else event_probabilities(rows, events)
    found = list(_tokens(opened(scaled, ["series"]), ["probability"]))
    if events is None and (several := len({token.market_id for token in found})) > 1:
        raise ConfigError(f"One market is drawn, the frame has {several}; filter it on one market_id, or give events=.")
    known, _ = _questions(markets if markets is not None else events)
    if events is None and found:
        look["title"] = look.get("title") or known.get(found[0].market_id)
    panel = Panel("probability", y_range=(0.0, 1.0), legend_outside=True)
    panel.marks.extend(_stacked(found, known if events is not None else None))
    return draw([[panel]], ax, events=moments, **look)


def account(
    frame: Any,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw an account through time, ``total`` of `marketdata.account`: its profit above, its drawdown below.

    Returns the Axes of the profit (``ax.figure.axes`` has both) or a plotly Figure, y: profit with positions at the
    mid, dashed at what selling them would bring, and the drawdown downwards [USD], x: time [UTC]. Where a position has
    no known price the lines have gaps. For the others see `prices`.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> orders = (
    ...     books.md.mid()
    ...     .head(1)
    ...     .select("ts", "market_id", "token_id", side=pl.lit("buy"), size=10.0)
    ... )
    >>> ax = md.plot.account(
    ...     md.account(
    ...         md.execute(orders, books, "1m", fees=0).fills, books, "1m"
    ...     ).total
    ... )
    >>> (
    ...     [line.get_label() for line in ax.lines],
    ...     [one.get_ylabel() for one in ax.figure.axes],
    ... )
    (['at the mid', 'if sold'], ['profit [USD]', 'drawdown [USD]'])
    """
    source = series_of(frame, "A chart of an account", ("ts", *_ACCOUNT))
    order = np.argsort(ts := source.times("ts"), kind="stable")
    x, profit, sold, fall = _broken(ts[order].view("M8[us]"), *(source.numbers(c)[order] for c in _ACCOUNT))
    above, below = Panel("profit [USD]", ""), Panel("drawdown [USD]")
    if len(x):
        above.marks += [
            Line(x, profit, "at the mid", PALETTE[0], 1.2, legend="at the mid"),
            Line(x, sold, "if sold", PALETTE[1], dashed=True, legend="if sold"),
        ]
        below.marks += [Band(x, -fall, np.where(np.isnan(fall), np.nan, 0.0), ASK, 0.25), Line(x, -fall, "", ASK)]
    return draw([[above], [below]], size=(10, 5), heights=(3, 1), **look)


def coverage(
    frame: Any,
    ax: Any = None,
    *,
    markets: Questions = None,
    **look: Unpack[LookOverTime],
) -> Any:
    """Draw `marketdata.Archive.coverage`: a row of bars per market and view, coloured by state; see `prices`.

    Returns the chart, x: time [UTC], y: market and view. White: never fetched; a range is drawn
    1/400 of the chart wide at least. Of more than 150 rows some are unnamed.
    """
    source = series_of(frame, "A coverage frame", _COVERAGE)
    whose = list(zip(source.texts("market_id"), source.texts("view"), strict=True))
    place = {both: i for i, both in enumerate(sorted(set(whose), key=str, reverse=True))}
    known, _ = _questions(markets)
    # The rows of a market are together, and the topmost names it.
    top = {market: i for (market, _), i in place.items()}
    named = [
        (i, f"{_name_of(known, market, 48)}  {view}" if top[market] == i else str(view))
        for (market, view), i in place.items()
    ]
    panel = Panel("", y_ticks=named[:: len(place) // _MOST_NAMED + 1], legend_outside=True)
    starts, ends = source.times("start"), source.times("end")
    row, states = np.array([place[both] for both in whose]), np.array([s or "missing" for s in source.texts("state")])
    # A narrower range is widened and drawn above the others, or it would not be seen.
    least = (ends.max() - starts.min()) // _NARROWEST if len(row) else 0
    lacking = np.maximum(least - (ends - starts), 0)
    left, right = (starts - lacking // 2).view("M8[us]"), (ends + lacking // 2).view("M8[us]")
    named_states = set[str]()
    for narrow, state in product((False, True), (*_STATES, *sorted({*states.tolist()} - _STATES.keys()))):
        if (here := (states == state) & ((lacking > 0) == narrow)).any():
            span = [Detail("from", starts[here].view("M8[us]")), Detail("to", ends[here].view("M8[us]"))]
            bars = left[here], right[here], row[here] - 0.35, row[here] + 0.35, _STATES.get(state, FAINT), state, span
            panel.marks.append(Bars(*bars, in_legend=state not in named_states))
            named_states.add(state)
    size = (10, min(1.2 + 0.2 * len(place), _TALLEST))
    return draw([[panel]], ax, size=size, **look)


# --- from a chart to a figure -----------------------------------------------------------------------------------------


@contextmanager
def style(
    theme: Literal["light", "dark"] = "light", *, backend: Literal["matplotlib", "plotly"] = "matplotlib"
) -> Iterator[None]:
    """Draw charts of your own as these are drawn: a context manager that sets colours, grid and fonts of the library.

    Returns a context manager. In its block new figures of ``backend``, matplotlib (``rcParams``) or plotly (the default
    template), look like ours, and ours take ``theme`` unless they are given another.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> with md.plot.style("dark"):
    ...     figure, ax = plt.subplots()
    ...     line = ax.plot([1, 2], [0.4, 0.5])
    >>> ax.get_facecolor()[:3] == (1.0, 1.0, 1.0)
    False
    """
    look, before = theme_of(theme), ACTIVE_THEME.set(theme)
    try:
        with _backend(backend).style(look):
            yield
    finally:
        ACTIVE_THEME.reset(before)


@with_flags
def draw(
    rows: list[list[Panel | None]],
    ax: Any = None,
    *,
    size: tuple[float, float] | None = None,
    heights: Sequence[float] | None = None,
    widths: Sequence[float] | None = None,
    is_page: bool = False,
    title: str | None = None,
    simulated: bool = False,
    theme: Literal["light", "dark"] | None = None,
    backend: str = "matplotlib",
    events: Mapping[str, Any] | None = None,
) -> Any:
    """Draw panels with a library, and the moments of ``events`` in those over time."""
    library = _backend(backend)
    size = size or ((10, 4) if len(rows[0]) == 1 else (11, 2.6 * len(rows)))
    chart = Chart(rows, size, title, simulated, heights, widths, theme_of(theme), is_page=is_page)
    if events and not any(panel.time for panel in chart.panels):
        raise ConfigError("events= names moments, and this chart has no axis of time; leave it out.")
    moments = {text: np.datetime64(to_micros(time, "events"), "us") for text, time in (events or {}).items()}
    for panel in chart.panels:
        if panel.time and panel.marks:
            panel.marks += [Moment(at, text if panel in rows[0] else "") for text, at in moments.items()]
    if ax is not None and backend == "plotly":
        raise ConfigError("ax= is for matplotlib; with backend='plotly' a new figure is returned.")
    if ax is not None and not hasattr(ax, "set_title"):
        raise ConfigError("is refused; pass Axes of matplotlib.", argument="ax", value=ax)
    if ax is not None and len(chart.panels) > 1:
        raise ConfigError(
            f"ax= takes one market, the frame has {len(chart.panels)}; filter it on one market_id, or omit ax."
        )
    return library.draw(chart) if ax is None else library.draw_on(ax, chart)


def _backend(name: str) -> Any:
    choice("backend", name, ("matplotlib", "plotly"))
    if find_spec(name) is None:
        raise not_installed(f"backend={name!r}", name, "plot" if name == "matplotlib" else name)
    return import_module(f"marketdata.plot.draw_{name}")


# --- tokens and markets of a frame ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Token:
    """Values of one token, ordered by time."""

    market_id: str
    token_id: str
    label: str
    ts: Array
    columns: dict[str, Array]

    def broken(self, *names: str) -> list[Array]:
        """Times and columns, broken where the data has a gap."""
        return _broken(self.ts, *(self.columns[name] for name in names))

    @property
    def rank(self) -> tuple[bool, str, str]:
        """Yes, Up and Over first, then by label."""
        return self.label.lower() not in {"yes", "up", "over"}, self.label, self.token_id


def _touch(frame: Any) -> Any:
    """Best bids and offers in memory; of books only these are read into it."""
    return collected(frame if schema.kind_of(names_of(frame), ["bbo", "books"]) == "bbo" else bbo(frame))


def _by_market(
    tokens: Iterable[_Token],
    value: str,
    marks: Callable[[_Token, str, str | None], Iterable[Line | Band]],
    markets: Questions,
    ax: Any,
    look: LookOverTime,
    *,
    both: bool,
    log_odds: bool,
) -> Any:
    """Draw a panel per market, the earliest first, in rows of two; of one its question becomes the title."""
    known, first_tokens = _questions(markets)
    by_market: dict[str, list[_Token]] = {}
    for token in tokens:
        by_market.setdefault(token.market_id, []).append(token)
    if len(by_market) > _MOST_PANELS:
        raise ConfigError(
            f"The frame has {len(by_market)} markets, a chart at most {_MOST_PANELS}; filter it on market_id."
        )
    panels = []
    for market_id, own in sorted(by_market.items(), key=lambda item: min(token.ts[0] for token in item[1])):
        panel = Panel(f"{value} [probability]", title=_name_of(known, market_id, 200))
        ordered = sorted(own, key=lambda t: (t.token_id != first_tokens.get(market_id), *t.rank))
        # The other of two outcomes is the same line upside down.
        for named in _coloured(ordered[:1] if len(ordered) == 2 and not both else ordered, value, "tokens"):
            panel.marks.extend(marks(*named))
        most = 1.0 if len(own) <= len(PALETTE) else max(np.nanmax(t.columns[value], initial=0.0) for t in own)
        panel.y_range = (-0.02 * most, 1.02 * most) if most else None
        if log_odds:
            _space_by_log_odds(panel)
        panels.append(panel)
    if len(panels) < 2:
        look["title"] = look.get("title") or known.get(next(iter(by_market), ""))
        only = panels[0] if panels else Panel(f"{value} [probability]", y_range=(-0.02, 1.02))
        only.title = ""
        return draw([[only]], ax, **look)
    for panel in panels[:-2]:
        panel.x_label = ""
    for panel in panels[1::2]:
        panel.y_label = ""
    places: list[Panel | None] = [*panels, None]
    return draw([places[at : at + 2] for at in range(0, len(panels), 2)], ax, **look)


def _space_by_log_odds(panel: Panel) -> None:
    """Ticks and range of an axis of log-odds, as far as the lines go and from 25% to 75% at least."""
    values = np.concatenate([mark.y for mark in panel.marks if isinstance(mark, Line)] or [np.empty(0)])
    low = max((p for p in ODDS if p <= np.nanmin(values, initial=0.25)), default=ODDS[0])
    high = min((p for p in ODDS if p >= np.nanmax(values, initial=0.75)), default=ODDS[-1])
    panel.log_odds, panel.y_range = True, (low, high)
    panel.y_label = panel.y_label.replace("]", ", log-odds scale]")
    panel.y_ticks = [(p, f"{p:.3g}") for p in ODDS if low <= p <= high]


def _tokens(table: Frame, columns: Sequence[str], known: Mapping[str, str] | None = None) -> Iterator[_Token]:
    """Each token's rows by time, or each market's, named as ``known``; markets and tokens in the order of their ids."""
    series = frames.series(table, columns)
    ts = series.ts.view("M8[us]")
    for (market, token, label), (a, b) in zip(series.tokens, pairwise(series.bounds.tolist()), strict=True):
        name = _label(token, label) if known is None else _name_of(known, market, 60)
        yield _Token(market, token or "", name, ts[a:b], {c: v[a:b] for c, v in series.values.items()})


def _coloured(tokens: Sequence[_Token], value: str, what: str) -> list[tuple[_Token, str, str | None]]:
    """Tokens in the order in which they are drawn with colour and legend; of many the greatest at the end are named."""
    if len(tokens) <= len(PALETTE):
        return [(t, c, t.label) for t, c in zip(tokens, PALETTE, strict=False)]
    ordered = sorted(tokens, key=lambda t: -_last(t.columns[value]))
    most, rest = ordered[: len(PALETTE)], ordered[len(PALETTE) :]
    entries = [f"{len(rest)} further {what}", *[None] * (len(rest) - 1)]
    further = [(t, FURTHER, entry) for t, entry in zip(rest, entries, strict=True)]
    return [*further, *((t, c, t.label) for t, c in zip(most, PALETTE, strict=True))]


def _width(colour: str) -> float:
    return 0.5 if colour == FURTHER else 0.9


def _last(values: Array) -> float:
    there = values[~np.isnan(values)]
    return float(there[-1]) if len(there) else 0.0


def _chosen(frame: Any, token: str | None) -> tuple[str, Books | None]:
    """Label and books of the chosen token of books; None without rows."""
    if token is not None:
        text("token", token, "an id or a label")
    books, none = frames.books(in_memory(frame, ["books"])), np.empty(0)
    if not books.tokens:
        return "", None
    every = [_Token(t.market_id or "", t.token_id or "", _label(*t[1:]), none, {}) for t in books.tokens]
    found = sorted((t for t in every if token is None or token in (t.token_id, t.label)), key=lambda t: t.rank)
    if not found:
        raise ConfigError(f"token={token!r} is not in the frame; it has {', '.join(sorted({t.label for t in every}))}.")
    if (several := len({t.market_id for t in found})) > 1:
        what = "The frame has tokens" if token is None else f"token={token!r} is"
        raise ConfigError(f"{what} of {several} markets, and one is drawn; filter the frame on one market_id.")
    at = every.index(found[0])
    return found[0].label, books.part(at, at + 1)


def _questions(markets: Questions) -> tuple[dict[str, str], dict[str, str]]:
    """Question (or slug) and first token of each market id; ConfigError for neither a mapping nor market records."""
    if markets is None or isinstance(markets, Mapping):
        return dict(markets or {}), {}
    source = in_memory(markets)
    names = source.names
    key = next((c for c in ("market_id", "id") if c in names), None)
    text = next((c for c in ("question", "slug") if c in names), None)
    if key is None or text is None:
        raise ConfigError(
            "markets= is a mapping of market id to text, or a frame with market_id and question, as client.markets() "
            f"gives it; this one has {', '.join(names)}."
        )
    ids = source.texts(key)
    tokens = zip(ids, source.raw("token_ids") if "token_ids" in names else (), strict=False)
    first = {m: str(some[0]) for m, some in tokens if m and some is not None and len(some)}
    return {m: t for m, t in zip(ids, source.texts(text), strict=True) if m and t}, first


def _name_of(known: Mapping[str, str], market_id: str | None, most: int) -> str:
    """The question of a market, else its id, shortened."""
    if market_id is not None and market_id in known:
        return _shortened(known[market_id], most)
    return f"market {_shortened(market_id or '?', 13)}"


def _label(token_id: str | None, label: str | None) -> str:
    """The label of a token, else its id, shortened."""
    return label or _shortened(token_id or "", 13)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


# --- numbers that are drawn -------------------------------------------------------------------------------------------


def _broken(ts: Array, *values: Array) -> list[Array]:
    """The series with a NaN put into every gap of more than ten usual steps, so that no line bridges it."""
    if len(ts) < 3:
        return [ts, *values]
    step = np.diff(ts)
    gaps = np.flatnonzero(step > 10 * np.median(step)) + 1
    return [np.insert(ts, gaps, ts[gaps - 1] + np.median(step)), *(np.insert(v, gaps, np.nan) for v in values)]


def _stacked(tokens: Sequence[_Token], questions: Mapping[str, str] | None) -> Iterator[Line | Band]:
    """Areas one upon the other, the greatest at the end first; those that have no colour of their own as one."""
    if not tokens:
        return
    ordered = sorted(tokens, key=lambda t: -_last(t.columns["probability"]))
    ts = np.unique(np.concatenate([token.ts for token in ordered]))
    shares = np.full((len(ordered), len(ts)), np.nan)
    for row, token in zip(shares, ordered, strict=True):
        row[np.searchsorted(ts, token.ts)] = token.columns["probability"]
    names = [_name_of(questions, t.market_id, 40) if questions is not None else t.label for t in ordered]
    colours, most = list(PALETTE), len(PALETTE)
    if len(ordered) > most:
        shares = np.vstack((shares[:most], shares[most:].sum(axis=0)))
        names, colours = [*names[:most], f"{len(ordered) - most} further outcomes"], [*PALETTE, FURTHER]
    ts, *each = _broken(ts, *shares)
    edge = np.where(np.isnan(each).any(axis=0), np.nan, 0.0)
    for share, name, colour in zip(each, names, colours, strict=False):
        low, edge = edge, edge + share
        yield Band(ts, low, edge, colour, 0.8)
        legend = f"{name} {_last(share):.1%}"
        yield Line(ts, edge, name, colour, 0.6, legend=legend, details=[Detail("share", share, ".1%")])


def _band_marks(token: _Token, colour: str, legend: str | None) -> Iterator[Line | Band]:
    ts, mid, bid, bid_size, ask, ask_size = token.broken(*_TOUCH)
    if colour != FURTHER:
        yield Band(ts, bid, ask, colour, 0.4)
    sizes = Detail("size", bid_size, ",.0f"), Detail("size", ask_size, ",.0f")
    details = [Detail("bid", bid), sizes[0], Detail("ask", ask), sizes[1]]
    yield Line(ts, mid, token.label, colour, _width(colour), legend=legend, details=details)


def _depth_panel(label: str, one: Books | None, bins: int) -> Panel:
    panel = Panel(f"price of {label}" if label else "price [probability]")
    if one is not None:
        heat, gaps = _heat(one, bins)
        panel.marks.append(heat)
        _mark_gaps(panel, *gaps)
    return panel


def _mark_gaps(panel: Panel, start: Array, end: Array) -> None:
    """Hatch the times without a snapshot, which are not times without orders."""
    if len(start):
        panel.x_label = "time [UTC], hatched: no snapshot"
        height, details = np.zeros(len(start)), [Detail("from", start), Detail("to", end)]
        bars = start, end, height, height + 1, FAINT, "no snapshot", details
        panel.marks.append(Bars(*bars, hatched=True, in_legend=False))


def _heat(one: Books, bins: int) -> tuple[Heat, tuple[Array, Array]]:
    """log10 of the mean shares per cell of time and price: positive bids, negative asks; and times without a snapshot.

    NaN where nothing rests.
    """
    step = int(np.median(np.diff(one.ts))) if len(one) > 1 else MINUTE
    first, last = one.ts[0], one.ts[-1] + step
    # No column is narrower than the step of the frame: it would be empty between two snapshots.
    edges = np.linspace(first, last, max(1, min(whole("bins", bins), (last - first) // step)) + 1)
    snapshots = np.histogram(one.ts, edges)[0][:, None]
    shade, shares = np.zeros((2, len(edges) - 1, len(_EDGES) - 1))
    for side, sign in ((one.bids, 1.0), (one.asks, -1.0)):
        # Half a fine tick down for bids, up for asks, so that each side stays in its own cell.
        price = np.clip(side.price[side.levels] - sign * 5e-4, 0.0, 1.0)
        points, size = (np.repeat(one.ts, side.counts), price), side.size[side.levels]
        total = np.histogram2d(*points, (edges, _EDGES), weights=size)[0]
        mean = np.divide(total, snapshots, out=np.full_like(total, np.nan), where=snapshots > 0)
        shade += sign * np.log10(1.0 + mean)
        shares += mean
    some = np.abs(shade[np.abs(shade) > 0.0])
    limit = float(np.quantile(some, 0.99)) if len(some) else 1.0
    nothing = ~(shares > 0)
    shade[nothing] = shares[nothing] = np.nan
    x = edges.astype(np.int64).view("M8[us]")
    gaps = np.flatnonzero(np.diff(np.r_[1, snapshots[:, 0] > 0, 1].astype(np.int8)))
    return Heat(x, _EDGES, shade, shares, limit), (x[gaps[::2]], x[gaps[1::2]])


def _share_time(panels: Sequence[Panel], depth_panel: Panel) -> None:
    """Give all panels one range of time, that of all their marks."""
    edges = [mark.x_edges[[0, -1]] for mark in depth_panel.marks if isinstance(mark, Heat)]
    lines = [mark.x for panel in panels for mark in panel.marks if isinstance(mark, Line | Band) and len(mark.x)]
    if not lines:
        return
    ends = np.concatenate([*edges, *(x[[0, -1]] for x in lines)])
    first, last = ends.min(), ends.max()
    for panel in panels:
        panel.x_range = (first, last)
    for a, b in edges:
        outer = np.array([(first, a), (b, last)])
        _mark_gaps(depth_panel, *outer[outer[:, 0] < outer[:, 1]].T)


def _volume_panel(frame: Any, look: Look) -> Panel:
    """The volume of each hour of one market, as steps; of a volume that only rises what it rose by."""
    panel, table = Panel(""), in_memory(frame, ["metrics"])
    series = frames.series(table, ["volume"] if "volume" in table.names else [])
    series = series.part(0, 1).take(np.flatnonzero(~np.isnan(series.part(0, 1).values.get("volume", np.empty(0)))))
    if len(series):
        volume, edges = series.values["volume"], buckets(series, _HOUR)
        is_total = bool((np.diff(volume) >= 0).all())
        shown = np.diff(volume[edges[1:] - 1], prepend=volume[0]) if is_total else means(volume, None, edges)[0]
        unit = "USD" if look.get("simulated") else "unit of the service"
        panel.y_label = f"volume\n[{unit}{' traded per hour' if is_total else ', mean of the hour'}]"
        start = _HOUR.floor(series.ts[edges[:-1]]).view("M8[us]")
        end = start + np.timedelta64(3_240_000_000, "us")  # a tenth of an hour is left between two
        x, y = np.column_stack((start, start, end, end)).ravel(), np.outer(shown, (0, 1, 1, 0)).ravel()
        panel.marks.append(Band(x, 0 * y, y, PALETTE[0], 0.8))
    return panel


def _metric_label(column: str, look: Look) -> str:
    """The metric with its unit: the interface names none, see docs/numbers.md."""
    if column == "spread":
        return "spread of the market [probability]"
    return f"{column} [{_SIMULATED_UNITS.get(column, 'simulated') if look.get('simulated') else 'unit of the service'}]"


def _sides(
    one: Books, moment: int, bids: float = -1.0, *, in_legend: bool = True
) -> tuple[list[Mark], datetime | None]:
    """Bars of shares at each price, bids to the side of ``bids``, and lines of running totals; when the book was."""
    found, levels = ladder_of(one, moment)
    prices = np.concatenate([levels["bid_price"], levels["ask_price"]])
    steps = np.diff(np.unique(prices[~np.isnan(prices)]))
    half = 0.4 * float(np.median(steps)) if len(steps) else 0.004
    marks: list[Mark] = []
    for side, sign, colour in (("bid", bids, BID), ("ask", 1.0, ASK)):
        there = ~np.isnan(levels[f"{side}_price"])
        price, size, total = (levels[f"{side}_{c}"][there] for c in ("price", "size", "total"))
        details = [Detail("price", price), Detail("size", size, ",.0f"), Detail("total", total, ",.0f")]
        if len(price):
            bars = 0 * size, sign * size, price - half, price + half, colour, f"{side}s", details
            # The total stays that of the previous levels up to the next one.
            x, y = np.repeat(np.r_[0.0, sign * total], 2)[1:-1], np.repeat(price, 2)
            marks += [Bars(*bars, in_legend=in_legend), Line(x, y, f"{side} total", colour, 1.0, 0.6)]
    return marks, to_datetime(int(found.ts[0])) if len(found) else None
