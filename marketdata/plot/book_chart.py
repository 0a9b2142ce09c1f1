"""Charts of order books: through time, at one moment, and both."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.widths import carried_width
from marketdata.errors import ConfigError
from marketdata.plot.chart import (
    ASK,
    BID,
    FAINT,
    PALETTE,
    Array,
    Band,
    Bars,
    Detail,
    Heat,
    Line,
    Look,
    Moment,
    Panel,
    clock_text,
    draw,
    shares_text,
    time_ends,
)
from marketdata.plot.tokens import Questions, broken_at_gaps, is_simulated, market_name, questions_of, token_name
from marketdata.points.arguments import text, whole
from marketdata.points.columns import Books
from marketdata.points.mirrors import place_in_market
from marketdata.points.resample import buckets, means
from marketdata.resolution import BucketWidth
from marketdata.times import MINUTE, to_datetime, to_micros

_PRICE_EDGES = np.linspace(0.0, 1.0, 101)


def book(
    frame: Any,
    ts: Any = None,
    *,
    metrics_frame: Any | None = None,
    token: str | None = None,
    bins: int = 720,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the order book of one token through time, the book at one moment next to it, and volume beneath.

    Returns a Figure, to save with ``figure.savefig("book.png")`` or of plotly ``figure.write_html("book.html")``.

    - Left: the chart of `depth` with the mid as a line.
    - Right: the book at one moment, as in `ladder`.
    - Beneath, with ``metrics_frame``: the volume of each hour. A cumulative volume is shown as its increase.

    For other parameters see `prices`.

    Parameters
    ----------
    ts : time, optional
        The moment of the book at the right, a dotted line at the left; by default the snapshot with the most levels
        among those with both sides, the last of equal ones.
    token : str, optional
        Id or label, by default the first token of the one market of the frame (Yes before No).
    bins : int
        Columns of time.

    Examples
    --------
    >>> figure = md.plot.book(md.testing.books(), title="Will it rain?")
    >>> [ax.get_ylabel() for ax in figure.axes][:1]
    ['price of Yes']
    """
    label, books, name = _chosen(frame, token, markets)
    carried = carried_width(frame)
    heat = _depth_panel(label, books, bins)
    side = Panel("", "shares", time=False, empty="no book")
    rows: list[list[Panel | None]] = [[heat, side]]
    if books is not None:
        heat.y_range = (-0.01, 1.01)
        x, mid = broken_at_gaps(books.ts.view("M8[us]"), books.mid, width=None if carried is None else carried.micros)
        heat.marks.append(Line(x, mid, "mid", None, 1.2))
        moment = _busiest(books) if ts is None else to_micros(ts, "ts")
        at = _add_ladder(side, books, moment, bid_sign=1.0, in_legend=False)
        if at is not None:
            side.title = f"book at {clock_text(at, '%-d %b %H:%M', look.get('tz')).rpartition(' ')[0]}"
            heat.marks.append(Moment(np.datetime64(moment, "us"), ""))
        if (
            metrics_frame is not None
            and (volume := _volume_panel(metrics_frame, simulated=is_simulated(markets))).marks
        ):
            (start, end), (volume_start, volume_end) = (np.array(time_ends(panel)) for panel in (heat, volume))
            outside = np.array([(volume_start, start), (end, volume_end)])
            _hatch(heat, outside[outside[:, 0] < outside[:, 1]].T)
            volume.x_label, heat.x_label = heat.x_label, ""
            rows.append([volume, None])
    heights = [4, 1][: len(rows)]
    return draw(
        rows,
        name=name,
        size=(11, 6.2),
        heights=heights,
        widths=(5.2, 1),
        is_page=True,
        simulated=is_simulated(markets),
        **look,
    )


def depth(
    frame: Any,
    ax: Any = None,
    *,
    token: str | None = None,
    bins: int = 360,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the resting orders of one token over time: price up, bids teal, asks coral, darker where more shares rest.

    Returns the chart of price [probability] over time [UTC] in ``bins`` columns. A cell is 0.01 high. Its shade is
    log10(1 + shares), the mean over the snapshots of its column. A cell with bids and asks shows their difference.
    Times without a snapshot are hatched. ``token`` is an id or a label, by default the first token of the one market of
    the frame (Yes before No). For other parameters see `prices`.
    """
    label, books, name = _chosen(frame, token, markets)
    return draw([[_depth_panel(label, books, bins)]], ax, name=name, simulated=is_simulated(markets), **look)


def ladder(
    frame: Any,
    ts: Any = None,
    ax: Any = None,
    *,
    token: str | None = None,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the book of one token at one time: price up, shares along, bids to the left and asks to the right.

    Returns the chart of price [probability] over shares. A bar is the size at a price, and the line is the total up to
    it. The book is the last snapshot up to ``ts``, by default the last one with both sides. ``token`` is as in `depth`.
    For other parameters see `prices`.
    """
    label, books, name = _chosen(frame, token, markets)
    tz = look.pop("tz", None)
    panel = Panel(f"price of {label}" if label else "price [probability]", time=False)
    panel.x_label = "shares at the price (bar) and up to it (line)"
    if books is not None:
        panel.empty = "the book is empty at this time"
        at = _add_ladder(panel, books, _moment(books, ts))
        if panel.marks:
            panel.x_ticks = _share_ticks(np.concatenate([mark.x for mark in panel.marks if isinstance(mark, Line)]))
            prices = np.concatenate([mark.y.ravel() for mark in panel.marks if isinstance(mark, Bars)])
            low, high = prices.min(), prices.max()
            panel.y_range = low - 0.03 * (high - low), high + 0.03 * (high - low)
        if at is not None:
            name = f"{name}\n{label} at {clock_text(at, '%Y-%m-%d %H:%M:%S', tz)}"
    return draw([[panel]], ax, name=name, size=(7, 5), simulated=is_simulated(markets), **look)


def _chosen(frame: Any, token: str | None, markets: Questions) -> tuple[str, Books | None, str]:
    """Label and books of the chosen token, and the question or id of its market; None without rows."""
    if token is not None:
        text("token", token, "an id or a label")
    _, books = frames.sorted_books(in_memory(frame, ["books"]))
    if not books.tokens:
        return "", None, ""
    names = [(token_name(t.token_id, t.token_label), t.token_id or "", t.market_id) for t in books.tokens]
    fitting = [i for i, (label, token_id, _) in enumerate(names) if token is None or token in (token_id, label)]
    if not fitting:
        present = ", ".join(sorted({label for label, *_ in names}))
        raise ConfigError(f"token={token!r} is not in the frame; it has {present}.")
    if (several := len({names[i][2] for i in fitting})) > 1:
        what = "The frame has tokens" if token is None else f"token={token!r} is"
        raise ConfigError(f"{what} of {several} markets, and one is drawn; filter the frame on one market_id.")
    questions, recorded = questions_of(markets)
    at = min(fitting, key=lambda i: place_in_market(names[i][1], names[i][0], recorded.get(names[i][2] or "", ())))
    return names[at][0], books.part(at, at + 1), market_name(questions, names[at][2], 200)


def _moment(books: Books, ts: Any) -> int:
    """The time asked for, else the last snapshot with bids and asks, else the last snapshot."""
    if ts is not None:
        return to_micros(ts, "ts")
    two_sided = books.ts[~np.isnan(books.mid)]
    return int((two_sided if len(two_sided) else books.ts)[-1])


def _busiest(books: Books) -> int:
    """The last snapshot of those with the most levels among those with both sides, else the last snapshot."""
    levels = np.where(np.isnan(books.mid), -1, books.bids.counts + books.asks.counts)
    return int(books.ts[len(levels) - 1 - np.argmax(levels[::-1])])


def _depth_panel(label: str, books: Books | None, bins: int) -> Panel:
    panel = Panel(f"price of {label}" if label else "price [probability]")
    if books is not None:
        heat, gaps = _heat(books, bins)
        panel.marks.append(heat)
        _hatch(panel, gaps)
    return panel


def _hatch(panel: Panel, x: Array) -> None:
    """Hatch the times without a snapshot, which are not times without orders; ``x`` has their starts and ends."""
    if x.size:
        panel.x_label = "time [UTC], hatched: no snapshot"
        y, details = np.zeros(x.shape), [Detail("from", x[0]), Detail("to", x[1])]
        y[1] = 1
        panel.marks.append(Bars(x, y, FAINT, "no snapshot", details, hatched=True, in_legend=False))


def _heat(books: Books, bins: int) -> tuple[Heat, Array]:
    """The cells of a heat map, and starts and ends of the times without a snapshot."""
    step = int(np.median(np.diff(books.ts))) if len(books) > 1 else MINUTE
    first, last = books.ts[0], books.ts[-1] + step
    # No column is narrower than the step of the frame: it would be empty between two snapshots.
    edges = np.linspace(first, last, max(1, min(whole("bins", bins), (last - first) // step)) + 1)
    snapshots = np.histogram(books.ts, edges)[0][:, None]
    shade, shares = np.zeros((2, len(edges) - 1, len(_PRICE_EDGES) - 1))
    for side, sign in ((books.bids, -1.0), (books.asks, 1.0)):
        # Half a fine tick down for bids, up for asks, so that each side stays in its own cell.
        price = np.clip(side.price[side.levels] + sign * 5e-4, 0.0, 1.0)
        points, size = (np.repeat(books.ts, side.counts), price), side.size[side.levels]
        total = np.histogram2d(*points, (edges, _PRICE_EDGES), weights=size)[0]
        mean = np.divide(total, snapshots, out=np.full_like(total, np.nan), where=snapshots > 0)
        shade += sign * np.log10(1.0 + mean)
        shares += mean
    shaded = np.abs(shade[np.abs(shade) > 0.0])
    limit = float(np.quantile(shaded, 0.99)) if len(shaded) else 1.0
    empty = ~(shares > 0)
    shade[empty] = shares[empty] = np.nan
    x = edges.astype(np.int64).view("M8[us]")
    gaps = np.flatnonzero(np.diff(np.r_[1, snapshots[:, 0] > 0, 1].astype(np.int8)))
    return Heat(x, _PRICE_EDGES, shade, shares, limit), x[gaps.reshape(-1, 2).T]


def _volume_panel(frame: Any, *, simulated: bool) -> Panel:
    """The volume of each hour of one market, as steps. A cumulative volume is shown as its increase."""
    hour = BucketWidth.of("1h")
    panel, series = Panel(""), frames.sorted_series(in_memory(frame, ["metrics"]), ["volume"])[1].part(0, 1)
    series = series.take(np.flatnonzero(~np.isnan(series.values["volume"])))
    if len(series):
        volume, edges = series.values["volume"], buckets(series, hour)
        is_total = bool((np.diff(volume) >= 0).all())
        shown = np.diff(volume[edges[1:] - 1], prepend=volume[0]) if is_total else means(volume, None, edges)[0]
        unit = "USD" if simulated else "unit of the service"
        panel.title = f"{'volume traded in' if is_total else 'mean volume of'} each hour [{unit}]"
        start = hour.floor(series.ts[edges[:-1]]).view("M8[us]")
        end = start + np.timedelta64(3_240_000_000, "us")  # a tenth of an hour is left between two
        x, y = np.column_stack((start, start, end, end)).ravel(), np.outer(shown, (0, 1, 1, 0)).ravel()
        panel.marks.append(Band(x, 0 * y, y, PALETTE[0], 0.8))
    return panel


def _add_ladder(
    panel: Panel, books: Books, moment: int, *, bid_sign: float = -1.0, in_legend: bool = True
) -> datetime | None:
    """Add bars of shares at each price and lines of running totals. Returns the time of the book."""
    at = int(np.searchsorted(books.ts, moment, side="right")) - 1
    if at < 0:
        return None
    book = books.take(np.array([at]))
    steps = np.diff(np.unique(book.levels()[0]))
    half = 0.4 * float(steps.min()) if len(steps) else 0.004
    for side, levels, sign, colour in (("bid", book.bids, bid_sign, BID), ("ask", book.asks, 1.0, ASK)):
        price, size = levels.price[levels.levels], levels.size[levels.levels]
        total = np.cumsum(size)
        details = [Detail("price", price), Detail("size", size, ",.0f"), Detail("total", total, ",.0f")]
        if len(price):
            edges = np.stack((0 * size, sign * size)), np.stack((price - half, price + half))
            panel.marks.append(Bars(*edges, colour, f"{side}s", details, in_legend=in_legend))
            # Between two levels the total does not change.
            x, y = np.repeat(np.r_[0.0, sign * total], 2)[1:-1], np.repeat(price, 2)
            panel.marks.append(Line(x, y, f"{side} total", colour, 1.0, 0.6))
    return to_datetime(int(book.ts[0]))


def _share_ticks(totals: Array) -> list[tuple[float, str]]:
    """At most seven round places from the least to the greatest total, or 0."""
    low, high = min(0.0, totals.min()), max(0.0, totals.max())
    power = 10.0 ** np.floor(np.log10((high - low) / 6))
    step = next(power * n for n in (1, 2, 5, 10, 20) if (high - low) / (power * n) <= 6)
    return [(at, shares_text(at)) for at in (np.arange(np.ceil(low / step), high // step + 1) * step).tolist()]
