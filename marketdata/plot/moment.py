"""Charts that are not over time: the book at one moment, calibration; and what an archive holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
from matplotlib.dates import date2num
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from marketdata.errors import NotTidyError
from marketdata.plot.style import ASK, BID, FAINT, INK, TOKENS, chosen, dress, finish, new_axes
from marketdata.tidy import forecast_scores, ladders, schema
from marketdata.tidy.kinds import collected, floats, micros, texts, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STATES = {"final": BID, "provisional": "#f0c419", "empty": "#c9d1d9", "missing": ASK}
_COVERAGE = ("view", "market_id", "start", "end", "state")
_MOST_ROWS = 40


def ladder(
    frame: Any,
    ts: Any = None,
    ax: Axes | None = None,
    *,
    token: str | None = None,
    title: str | None = None,
    simulated: bool = False,
) -> Axes:
    """Draw the book of one token at one moment: price up, size along, bids to the left and asks to the right.

    Parameters
    ----------
    frame : tidy books frame
        Of any kind.
    ts : optional
        The moment, as `marketdata.ladder` takes it; without it the last snapshot of the token.
    ax : Axes, optional
        Where to draw; a new figure without it.
    token : str, optional
        Id or label of the token; without it the first label of the frame.
    title : str, optional
        Text above; without it the time of the snapshot.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Axes
        y: price [probability 0 to 1]; x: shares at each price, bids negative, with the running total as a line.

    Raises
    ------
    NotTidyError
        If the frame is not books.
    ConfigError
        If the frame has no such token, or ``ts`` can not be read.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> from matplotlib.figure import Figure
    >>> archive = md.simulate(events=1, days=1)
    >>> books = archive.books(archive.records("markets")[0]["id"], resolution="10m")
    >>> plot.ladder(books, "2025-12-31T12:00", Figure().subplots(), token="Yes").get_title(loc="left")
    'Yes at 2025-12-31 12:00:00 UTC'
    """
    schema.kind_of(wrapped(frame).collect_schema().names(), ("books",))
    data = collected(frame)
    ax = new_axes(ax, (7, 5))
    ax.set_ylabel("price [probability]")
    if not len(data):
        return _shares(finish(ax, title, simulated))
    token_id, label = chosen(data, token)
    ax.set_ylabel(f"price of {label}")
    one = data.filter(nw.col("token_id").cast(nw.String) == token_id)
    moment = ts if ts is not None else one["ts"].max()
    rows = nw.from_native(ladders.ladder(one.to_native(), moment), eager_only=True)
    if not len(rows):
        return _shares(finish(ax, title, simulated, none="the book is empty at this moment"))
    columns = {c: floats(rows[c]) for c in rows.columns if c.split("_")[0] in {"bid", "ask"}}
    height = 0.8 * _tick(np.concatenate([columns["bid_price"], columns["ask_price"]]))
    for side, sign, colour in (("bid", -1, BID), ("ask", 1, ASK)):
        held = ~np.isnan(columns[f"{side}_price"])
        price, size, total = (columns[f"{side}_{c}"][held] for c in ("price", "size", "total"))
        ax.barh(price, sign * size, height=height, color=colour, alpha=0.85, label=f"{side}s")
        ax.step(sign * total, price, where="mid", color=colour, linewidth=1.0, alpha=0.6)
    ax.axvline(0, color=FAINT, linewidth=0.8)
    ax.xaxis.set_major_formatter(lambda x, _: EngFormatter(sep="")(abs(x)))
    _shares(ax)
    ax.legend(loc="best", frameon=False, fontsize="small")
    at = np.datetime_as_string(micros(rows["ts"])[:1].astype("M8[us]"), unit="s")[0].replace("T", " ")
    return dress(ax, title or f"{label} at {at} UTC", simulated)


def _shares(ax: Axes) -> Axes:
    ax.set_xlabel("shares at the price (bar) and up to it (line)", fontsize="small", color=FAINT)
    return ax


def _tick(prices: Any) -> float:
    """The usual distance of two prices."""
    steps = np.diff(np.unique(prices[~np.isnan(prices)]))
    return float(np.median(steps)) if len(steps) else 0.01


def calibration(
    frame: Any,
    outcomes: Any,
    ax: Axes | None = None,
    *,
    bins: int = 10,
    title: str | None = None,
    simulated: bool = False,
) -> Axes:
    """Draw how often what was priced at p came true; on the diagonal prices were right.

    Parameters
    ----------
    frame : tidy prices, books or bbo frame
        Of any kind, as `marketdata.calibration` takes it.
    outcomes : mapping, or frame of market records
        As `marketdata.calibration` takes it.
    ax : Axes, optional
        Where to draw; a new figure without it.
    bins : int
        Number of equal bins from 0 to 1.
    title : str, optional
        Text above.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Axes
        x: mean price of the bin; y: share that came true, both [0 to 1]. The larger the dot, the more forecasts.

    Raises
    ------
    NotTidyError
        If a frame is not of its kind.
    ConfigError
        If ``outcomes`` or ``bins`` is not one of those allowed.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> from matplotlib.figure import Figure
    >>> archive = md.simulate(events=1, days=1)
    >>> won = {market["id"]: market["resolved_token_id"] for market in archive.records("markets")}
    >>> plot.calibration(archive.prices(list(won), resolution="1h"), won, Figure().subplots()).get_ylabel()
    'share that came true'
    """
    table = collected(forecast_scores.calibration(frame, outcomes, bins))
    forecast, outcome, points = (floats(table[c]) for c in ("forecast", "outcome", "points"))
    ax = new_axes(ax, (5.5, 5.5))
    ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)), label="prices are right")
    if len(points):
        area = 20 + 380 * points / points.max()
        ax.plot(forecast, outcome, color=TOKENS[0], linewidth=1.0, alpha=0.5)
        ax.scatter(forecast, outcome, s=area, color=TOKENS[0], alpha=0.75, edgecolor="white", zorder=3)
        for x, y, n, size in zip(forecast, outcome, points, area, strict=True):
            # Out of the dot, and inside of the axes.
            shift = (0, (np.sqrt(size) / 2 + 3) * (1 if y < 0.9 else -1))
            ax.annotate(
                EngFormatter(sep="", places=0)(n),
                (x, y),
                shift,
                textcoords="offset points",
                ha="center",
                va="bottom" if y < 0.9 else "top",
                fontsize="x-small",
                color=FAINT,
            )
    else:
        ax.text(0.5, 0.5, "no resolved market in the frame", transform=ax.transAxes, ha="center", color=FAINT)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.06, 1.06), aspect="equal")
    ax.set_xlabel("price [probability]", color=INK)
    ax.set_ylabel("share that came true")
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    return dress(ax, title, simulated)


def coverage(frame: Any, ax: Axes | None = None, *, title: str | None = None, simulated: bool = False) -> Axes:
    """Draw what an archive holds: one bar per market and view, coloured by what is known of each stretch.

    Parameters
    ----------
    frame : coverage frame
        What ``archive.coverage()`` gives, of any kind; the first 40 rows of bars are drawn.
    ax : Axes, optional
        Where to draw; a new figure without it.
    title : str, optional
        Text above.
    simulated : bool
        Mark the chart as simulated.

    Returns
    -------
    Axes
        x: time [UTC]; y: market and view. Grey: known to be empty; white: never asked.

    Raises
    ------
    NotTidyError
        If the frame is no coverage.

    Examples
    --------
    >>> import marketdata as md
    >>> from marketdata import plot
    >>> from matplotlib.figure import Figure
    >>> archive = md.simulate(events=1, days=1)
    >>> ax = plot.coverage(archive.coverage(), Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['final']
    """
    names = wrapped(frame).collect_schema().names()
    missing = [c for c in _COVERAGE if c not in names]
    if missing:
        raise NotTidyError.from_missing("A coverage frame", missing, names)
    data = collected(frame)
    who = list(zip(texts(data["market_id"]), texts(data["view"]), strict=True))
    bars = sorted(set(who), key=str)[:_MOST_ROWS]
    ax = new_axes(ax, (10, 1.2 + 0.2 * len(bars)))
    place = {both: i for i, both in enumerate(reversed(bars))}
    starts, ends = (date2num(micros(data[c]).astype("M8[us]")) for c in ("start", "end"))
    states = [state or "missing" for state in texts(data["state"])]
    for both, start, end, state in zip(who, starts, ends, states, strict=True):
        if both in place:
            ax.barh(place[both], end - start, left=start, height=0.7, color=_STATES.get(state, FAINT))
    names_of_bars = [f"{_short(m)} {view}" for m, view in place]
    ax.set_yticks(list(place.values()), names_of_bars, fontsize="x-small", parse_math=False)
    seen = [s for s in (*_STATES, *sorted(set(states) - _STATES.keys())) if s in set(states)]
    if seen:
        handles = [Patch(color=_STATES.get(s, FAINT), label=s) for s in seen]
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return finish(ax, title, simulated)


def _short(market: str | None) -> str:
    text = market or "?"
    return text if len(text) <= 12 else f"{text[:6]}..{text[-4:]}"
