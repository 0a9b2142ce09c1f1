"""Charts over time: price with its band, depth, metrics, and a page of all three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import date2num
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.plot.style import ASK, BID, FAINT, INK, TOKENS, Page, chosen, finish, mark, new_axes, plain, tokens_of
from marketdata.tidy import schema
from marketdata.tidy.book import bbo
from marketdata.tidy.kinds import collected, floats, micros, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MINUTE = 60_000_000
_PRICES = np.linspace(0.0, 1.0, 101)
_UNITS = {
    "volume": "volume so far [USD]",
    "liquidity": "liquidity [USD]",
    "spread": "spread, by the service",
}


def price_band(frame: Any, ax: Axes | None = None, *, title: str | None = None, simulated: bool = False) -> Axes:
    """Draw the mid of each token as a line, and bid to ask as a band around it.

    Parameters
    ----------
    frame : tidy bbo or books frame
        Of any kind; of a market with more than six tokens the six with the highest last mid are drawn.
    ax : Axes, optional
        Where to draw; a new figure without it.
    title : str, optional
        Text above.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Axes
        y: probability [0 to 1]; x: time [UTC]. Gaps of the data are gaps of the line.

    Raises
    ------
    NotTidyError
        If the frame is neither books nor bbo.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> from matplotlib.figure import Figure
    >>> archive = md.simulate(events=1, days=1)
    >>> books = archive.books(archive.records("markets")[0]["id"], resolution="10m")
    >>> ax = plot.price_band(books, Figure().subplots(), simulated=archive.simulated)
    >>> ax.get_ylabel(), [line.get_label() for line in ax.lines]
    ('probability', ['Yes', 'No'])
    """
    data = _bbo(frame)
    ax = new_axes(ax)
    tokens = tokens_of(data)
    if len(tokens) > len(TOKENS):
        last = {both: np.nan_to_num(floats(_of(data, both[0])["mid"])[-1]) for both in tokens}
        tokens = sorted(tokens, key=lambda both: -last[both])[: len(TOKENS)]
    for colour, (token_id, label) in zip(TOKENS, tokens, strict=False):
        one = _of(data, token_id)
        ts, bid, ask, mid = _broken(_times(one), *(floats(one[c]) for c in ("best_bid", "best_ask", "mid")))
        ax.fill_between(ts, bid, ask, color=colour, alpha=0.45, linewidth=0)
        ax.plot(ts, mid, color=colour, linewidth=0.7, label=label)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("probability")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="best", frameon=False, fontsize="small", ncols=2)
    return finish(ax, title, simulated)


def depth(
    frame: Any,
    ax: Axes | None = None,
    *,
    token: str | None = None,
    bins: int = 360,
    title: str | None = None,
    simulated: bool = False,
) -> Axes:
    """Draw what rests in the book: time along, price up, bids teal and asks coral, darker where more shares rest.

    Parameters
    ----------
    frame : tidy books frame
        Of any kind.
    ax : Axes, optional
        Where to draw; a new figure without it.
    token : str, optional
        Id or label of the token; without it the first label of the frame.
    bins : int
        Columns of the picture; each shows the mean over its snapshots.
    title : str, optional
        Text above.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Axes
        y: price [probability 0 to 1]; x: time [UTC].

    Raises
    ------
    NotTidyError
        If the frame is not books.
    ConfigError
        If the frame has no such token.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> from matplotlib.figure import Figure
    >>> archive = md.simulate(events=1, days=1)
    >>> books = archive.books(archive.records("markets")[0]["id"], resolution="10m")
    >>> plot.depth(books, Figure().subplots(), token="No").get_ylabel()
    'price of No'
    """
    schema.kind_of(_names(frame), ["books"])
    data = collected(frame)
    ax = new_axes(ax)
    if not len(data):
        return finish(ax, title, simulated)
    token_id, label = chosen(data, token)
    ax.set_ylabel(f"price of {label}")
    one = _of(data, token_id)
    edges, shade = _shade(one, bins)
    most = np.quantile(np.abs(shade[shade != 0.0]), 0.99) if shade.any() else 1.0
    colours = LinearSegmentedColormap.from_list("book", [ASK, "#ffffff", BID])
    x = date2num(edges.astype("int64").astype("datetime64[us]"))
    mesh = ax.pcolormesh(x, _PRICES, shade.T, cmap=colours, vmin=-most, vmax=most, rasterized=True)
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.01, aspect=14, ticks=[-most, 0.0, most])
    bar.ax.set_yticklabels([f"asks\n{10**most:,.0f}", "0", f"bids\n{10**most:,.0f}"], fontsize="x-small", color=INK)
    bar.set_label("shares per 0.01, log", fontsize="x-small", color=FAINT)
    bar.outline.set_visible(False)
    return finish(ax, title, simulated)


def metrics(
    frame: Any, ax: Axes | None = None, *, column: str = "volume", title: str | None = None, simulated: bool = False
) -> Axes:
    """Draw one metric of one market over time.

    Parameters
    ----------
    frame : tidy metrics frame
        Of any kind, of one market.
    ax : Axes, optional
        Where to draw; a new figure without it.
    column : str
        Which metric.
    title : str, optional
        Text above.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Axes
        y: the metric in its unit; x: time [UTC]. Metrics that go up and down also have their median drawn.

    Raises
    ------
    NotTidyError
        If the frame is not metrics.
    ConfigError
        If it has no such column.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> from matplotlib.figure import Figure
    >>> archive = md.simulate(events=1, days=1)
    >>> metrics = archive.metrics(archive.records("markets")[0]["id"], resolution="10m")
    >>> plot.metrics(metrics, Figure().subplots(), column="liquidity").get_ylabel()
    'liquidity [USD]'
    """
    names = _names(frame)
    schema.kind_of(names, ["metrics"])
    if column not in (allowed := schema.value_columns(names)):
        raise ConfigError(f"column={column!r} is not in the frame; it has {', '.join(allowed)}.")
    data = collected(frame).sort("ts")
    ax = new_axes(ax)
    ts, value = _broken(_times(data), floats(data[column]))
    if column == "volume":
        ax.fill_between(ts, 0.0, value, color=TOKENS[0], alpha=0.18, linewidth=0)
        ax.plot(ts, value, color=TOKENS[0], linewidth=1.0)
    else:
        ax.plot(ts, value, color=TOKENS[0], linewidth=0.5, alpha=0.35)
        ax.plot(*_medians(ts, value), color=TOKENS[0], linewidth=1.2)
    ax.set_ylabel(_UNITS.get(column, column))
    if np.nanmax(np.abs(value), initial=0.0) >= 1000:
        ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    return finish(ax, title, simulated)


def overview(
    books: Any, metrics_frame: Any | None = None, *, title: str | None = None, simulated: bool = False
) -> Page:
    """Draw one market on one page: price with its band, depth below, metrics at the bottom.

    Parameters
    ----------
    books : tidy books frame
        Of one market, of any kind.
    metrics_frame : tidy metrics frame, optional
        Of the same market.
    title : str, optional
        Text above, the question of the market for one.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Page
        A matplotlib Figure; save it with ``figure.savefig("chart.png")``.

    Raises
    ------
    NotTidyError
        If a frame is not of its kind.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> archive = md.simulate(events=1, days=1)
    >>> market = archive.records("markets")[0]
    >>> books, metrics = (read(market["id"], resolution="10m") for read in (archive.books, archive.metrics))
    >>> page = plot.overview(books, metrics, title=market["question"], simulated=archive.simulated)
    >>> page.axes[0].get_ylabel(), page.axes[-1].get_title(loc="left")
    ('probability', 'spread, by the service')
    """
    columns = [] if metrics_frame is None else [c for c in _UNITS if _has_values(metrics_frame, c)]
    figure = Page(figsize=(11, 8.2 if columns else 6.4), layout="constrained", facecolor="white")
    rows = figure.add_gridspec(3 if columns else 2, 1, height_ratios=[3, 2.4, 1.7][: 3 if columns else 2])
    top = figure.add_subplot(rows[0])
    price_band(books, top)
    depth(books, figure.add_subplot(rows[1], sharex=top))
    top.tick_params(labelbottom=False)
    top.set_xlabel("")
    if columns:
        below = rows[2].subgridspec(1, len(columns), wspace=0.08)
        for at, column in enumerate(columns):
            ax = figure.add_subplot(below[at])
            metrics(metrics_frame, ax, column=column)
            ax.set_ylabel("")
            ax.set_title(_UNITS[column], loc="left", fontsize="small", color=INK)
    if title:
        plain(figure.suptitle(title, x=0.01, ha="left", fontsize="large", fontweight="bold", color=INK))
    if simulated:
        mark(figure)
    return figure


def _shade(data: nw.DataFrame[Any], bins: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Edges of the time cells [us], and log10 of the mean shares per cell: positive bids, negative asks."""
    every = micros(data["ts"])
    first, last = every.min(), every.max() + _MINUTE
    edges = np.linspace(first, last, max(1, min(bins, (last - first) // _MINUTE)) + 1)
    snapshots = np.histogram(np.unique(every), edges)[0][:, None]
    shade = np.zeros((len(edges) - 1, len(_PRICES) - 1))
    for side, sign in ((schema.BID, 1.0), (schema.ASK, -1.0)):
        there = data.filter((nw.col("side") == side) & ~nw.col("price").is_null())
        # Half a fine tick down for bids, up for asks, so that each side keeps to its own cell.
        price = np.clip(floats(there["price"]) - sign * 5e-4, 0.0, 1.0)
        total = np.histogram2d(micros(there["ts"]), price, (edges, _PRICES), weights=floats(there["size"]))[0]
        mean = np.divide(total, snapshots, out=np.zeros_like(total), where=snapshots > 0)
        shade += sign * np.log10(1.0 + mean)
    return edges, shade


def _medians(ts: NDArray[Any], value: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The usual level: medians of 120 stretches of the drawn time; NaN where nothing was seen."""
    if len(ts) < 240:
        return ts, value
    cell = np.minimum((ts - ts[0]) * 120 // (ts[-1] - ts[0]), 119).astype(int)
    inside = [value[cell == i] for i in range(120)]
    middle = ts[0] + (ts[-1] - ts[0]) * (2 * np.arange(120) + 1) // 240
    return middle, np.array([np.nanmedian(v) if np.isfinite(v).any() else np.nan for v in inside])


def _has_values(frame: Any, column: str) -> bool:
    data = collected(frame)
    return column in data.columns and not np.isnan(floats(data[column])).all()


def _names(frame: Any) -> list[str]:
    return list(wrapped(frame).collect_schema().names())


def _bbo(frame: Any) -> nw.DataFrame[Any]:
    kind = schema.kind_of(_names(frame), ["bbo", "books"])
    return collected(frame if kind == "bbo" else bbo(frame)).sort("ts")


def _of(data: nw.DataFrame[Any], token_id: str) -> nw.DataFrame[Any]:
    return data.filter(nw.col("token_id") == token_id)


def _times(data: nw.DataFrame[Any]) -> NDArray[np.datetime64]:
    return micros(data["ts"]).astype("datetime64[us]")


def _broken(ts: NDArray[Any], *values: NDArray[Any]) -> list[NDArray[Any]]:
    """The series with a NaN put into every gap of more than ten usual steps, so that no line bridges it."""
    if len(ts) < 3:
        return [ts, *values]
    step = np.diff(ts)
    gaps = np.flatnonzero(step > 10 * np.median(step)) + 1
    return [np.insert(ts, gaps, ts[gaps - 1] + np.median(step)), *(np.insert(v, gaps, np.nan) for v in values)]
