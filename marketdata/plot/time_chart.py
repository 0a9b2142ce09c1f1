"""Charts of values through time: prices, candles, metrics, and the outcomes of a market or an event, stacked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np

from marketdata.adapters.dispatch import collected, in_memory, names_of, series_of
from marketdata.errors import ConfigError, NotTidyError
from marketdata.plot.chart import (
    ASK,
    BID,
    FAINT,
    ODDS_TICKS,
    PALETTE,
    Band,
    Bars,
    Detail,
    Line,
    Look,
    Mark,
    Panel,
    draw,
)
from marketdata.plot.tokens import (
    Questions,
    TokenSeries,
    broken_at_gaps,
    coloured,
    is_simulated,
    last_value,
    market_name,
    questions_of,
    token_series,
)
from marketdata.points import schema
from marketdata.points.arguments import choice, flag, text
from marketdata.points.mirrors import place_in_market
from marketdata.points.probability import refuse_cents
from marketdata.points.schema import Kind
from marketdata.tidy.cross_token import probabilities

_MOST_MARKETS = 60
_BAR_COLUMNS = ("open", "high", "low", "close")


def prices(
    frame: Any,
    ax: Any = None,
    *,
    markets: Questions = None,
    both: bool = False,
    log_odds: bool = False,
    ylim: Literal["data"] | None = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the price or mid of each token as a line, one panel per market; of two outcomes only the first.

    Returns matplotlib Axes or a plotly Figure. y is ``price``, or ``mid`` of `marketdata.mid` and `marketdata.bbo`
    [probability]. x is the start of the bucket [UTC].

    - Several markets have a panel each on one scale, at most 60 and the earliest first. Returns the Axes of the first
      panel; ``ax.figure.axes`` has all.
    - A gap of the data is a gap of the line: a missing bucket of a frame that carries its width, else ten usual steps.
      A point without neighbours is a dot.
    - Trades are joined in their order, each token by itself, also of two outcomes.
    - A market with more than six tokens has colours for the six with the highest last value.

    Parameters
    ----------
    ax : matplotlib Axes, optional
        Where to draw a frame of one market; by default a new figure.
    markets : frame of market records, one record, or mapping of market id to text, optional
        The questions of the markets, by default shortened ids. Records also give the order of two outcomes; without
        them Yes, Up or Over is first. Records of simulated markets mark the chart as simulated.
    both : bool
        Draw the second of two outcomes too. Its price is about 1 less the price of the first.
    log_odds : bool
        Space prices by log(p / (1 - p)), so that 1% and 2% are as far apart as 99% and 98%. Prices below 0.001 and
        above 0.999 are drawn at these.
    ylim : {None, "data"}
        "data" shows the range of the prices, so that small moves are seen; by default y has probabilities from 0 to 1.
    **look
        Options of every chart. ``title`` is by default the market and the range of time. ``theme`` is "light" or
        "dark". ``backend`` is "matplotlib" or "plotly", which is
        interactive and needs the extra ``plotly``. Charts over time take ``moments``, a mapping of text to time, and
        ``tz``, the time zone that the axis shows, such as "America/New_York". Times that you pass stay UTC.

    Examples
    --------
    >>> prices = md.testing.prices()
    >>> questions = {"rain": "Will it rain?"}
    >>> ax = md.plot.prices(prices, markets=questions, both=True)
    >>> ax.get_ylabel(), [line.get_label() for line in ax.lines]
    ('price [probability]', ['Yes', 'No'])
    """
    flag("both", both)
    flag("log_odds", log_odds)
    choice("ylim", ylim, (None, "data"))
    if ylim and log_odds:
        raise ConfigError(
            "is for prices on a plain scale; log_odds=True has one of its own.", argument="ylim", value=ylim
        )
    names = names_of(frame)
    if {*_BAR_COLUMNS} <= {*names} and not {"price", "mid"} & {*names}:
        raise NotTidyError("These are bars, which have four prices each: md.plot.candles(bars) draws them.")
    value, kinds = _drawn(names)
    table = in_memory(frame, kinds)
    columns = [value, *(c for c in (f"{value}_count",) if c in table.names)]
    questions, recorded = questions_of(markets)
    panels = []
    for market_id, tokens in _by_market(token_series(table, columns), recorded):
        panel = Panel(f"{value} [probability]", title=market_name(questions, market_id, 200))
        shown = tokens[:1] if len(tokens) == 2 and not both and table.kind != "trades" else tokens
        for token, colour, legend in coloured(shown, value, "tokens"):
            ts, price, *counts = token.broken(*columns)
            details = [Detail("points", values, ",.0f") for values in counts]
            panel.marks.append(Line(ts, price, token.label, colour, legend=legend, details=details))
        panels.append(panel)
    panels = panels or [Panel(f"{value} [probability]")]
    _share_scale(panels, log_odds=log_odds)
    if ylim:
        _fit_to_lines(panels)
    return _draw_markets(panels, ax, markets, look)


def _drawn(names: Sequence[str]) -> tuple[str, list[Kind]]:
    """The column of prices that a frame with these columns has, and the kinds of such frames."""
    if schema.is_prints(names):
        return "price", ["trades"]
    if "side" in names or ("mid" in names and "price" not in names):
        return "mid", ["quotes", "some_quotes"]
    return "price", ["prices"]


def candles(frame: Any, ax: Any = None, *, markets: Questions = None, both: bool = False, **look: Unpack[Look]) -> Any:
    """Draw the bars of `marketdata.ohlc` as candles, one panel per market; of two outcomes only the first.

    Returns the chart of price [probability] over time [UTC]. A body reaches from ``open`` to ``close``, and a wick from
    ``low`` to ``high``. A body is teal if the price rose and coral if it fell. Without ``both`` a market of more than
    two tokens shows the token with the highest last close. For other parameters see `prices`.

    Examples
    --------
    >>> bars = md.ohlc(md.testing.prices(buckets=120), "1h")
    >>> ax = md.plot.candles(bars, markets={"rain": "Will it rain?"})
    >>> ax.get_ylabel()
    'price of Yes'
    """
    flag("both", both)
    table = series_of(frame, "A chart of candles", ("ts", *_BAR_COLUMNS))
    refuse_cents(**{name: table.numbers(name) for name in _BAR_COLUMNS})
    questions, recorded = questions_of(markets)
    panels = []
    for market_id, tokens in _by_market(token_series(table, _BAR_COLUMNS), recorded):
        if len(tokens) > 2:
            tokens.sort(key=lambda t: -t.columns["close"][-1])
        for token in tokens if both else tokens[:1]:
            panel = Panel(f"price of {token.label}", title=market_name(questions, market_id, 200))
            panel.marks += _candle_marks(token)
            panels.append(panel)
    panels = panels or [Panel("price [probability]", y_range=(-0.02, 1.02))]
    _fit_to_lines(panels)
    return _draw_markets(panels, ax, markets, look)


def _fit_to_lines(panels: list[Panel]) -> None:
    """One scale of all panels, from the least to the greatest value of their lines."""
    lines = [mark.y for panel in panels for mark in panel.marks if isinstance(mark, Line)]
    every = np.concatenate([np.empty(0), *lines])
    every = every[np.isfinite(every)]
    if len(every):
        low, high = float(every.min()), float(every.max())
        margin = 0.05 * (high - low) or 0.01
        for panel in panels:
            panel.y_range = (low - margin, high + margin)


def metrics(
    frame: Any, ax: Any = None, *, column: str = "volume", markets: Questions = None, **look: Unpack[Look]
) -> Any:
    """Draw one metric (``column``) over time, a line per market; see `prices`.

    Returns the chart of the metric over time [UTC]. The service defines the unit, and the interface names none.
    Simulated volume and liquidity are in USD, and ``spread`` is a probability. For the means of hours pass
    ``frame.md.resample("1h")``.
    """
    table = in_memory(frame, ["metrics"])
    if text("column", column, "its name") not in (allowed := schema.value_columns(table.names)):
        raise ConfigError(f"column={column!r} is not in the frame; it has {', '.join(allowed)}.")
    questions, _ = questions_of(markets)
    shown = list(token_series(table, [column], questions))
    units = {"volume": "USD traded so far", "liquidity": "USD"} if is_simulated(markets) else {}
    unit = units.get(column, "unit of the service")
    panel = Panel("spread of the market [probability]" if column == "spread" else f"{column} [{unit}]")
    for market, colour, legend in coloured(shown, column, "markets"):
        ts, value = market.broken(column)
        panel.marks.append(Line(ts, value, market.label, colour, legend=legend if len(shown) > 1 else None))
    name = market_name(questions, shown[0].market_id, 200) if len(shown) == 1 else f"{len(shown)} markets"
    return draw([[panel]], ax, name=name if shown else "", simulated=is_simulated(markets), **look)


def outcomes(frame: Any, ax: Any = None, *, markets: Questions = None, **look: Unpack[Look]) -> Any:
    """Draw the outcomes of one market, or of one event, stacked through time: the share of each in the sum of prices.

    Returns the chart of stacked `marketdata.probabilities` [0 to 1] over time [UTC], the greatest at the end lowest.

    - A time at which an outcome has no price is a gap.
    - The legend has the order of the stack and the last value of each outcome.
    - With more than six outcomes, the others are one area.
    - With ``markets``, records as for `marketdata.overround`, the outcomes of several markets are the Yes of each
      market of an event, named by their questions.

    For other parameters see `prices`.

    Examples
    --------
    >>> ax = md.plot.outcomes(md.testing.prices())
    >>> [line.get_label() for line in ax.lines]
    ['No 57.0%', 'Yes 43.0%']
    """
    rows = collected(frame)
    stacked = list(token_series(in_memory(probabilities(rows), ["series"]), ["probability"]))
    count = len({token.market_id for token in stacked})
    if count > 1 and markets is None:
        raise ConfigError(
            f"One market is drawn, the frame has {count}; filter it on one market_id, or give markets=, the records of "
            "the markets of an event."
        )
    if count > 1:
        stacked = list(token_series(in_memory(probabilities(rows, markets), ["series"]), ["probability"]))
    questions, _ = questions_of(markets)
    panel = Panel("probability", y_range=(0.0, 1.0), legend_outside=True, legend_reversed=True)
    panel.marks.extend(_stack(stacked, questions if count > 1 else None))
    name = market_name(questions, stacked[0].market_id, 200) if count == 1 else f"{len(stacked)} markets of an event"
    return draw([[panel]], ax, name=name, simulated=is_simulated(markets), **look)


def _by_market(
    tokens: Iterable[TokenSeries], recorded: Mapping[str, Sequence[str]]
) -> list[tuple[str, list[TokenSeries]]]:
    """The tokens of each market in the order of its record; the earliest market first."""
    by_market: dict[str, list[TokenSeries]] = {}
    for token in sorted(tokens, key=lambda t: place_in_market(t.token_id, t.label, recorded.get(t.market_id, ()))):
        by_market.setdefault(token.market_id, []).append(token)
    if len(by_market) > _MOST_MARKETS:
        raise ConfigError(
            f"The frame has {len(by_market)} markets, a chart at most {_MOST_MARKETS}; filter it on market_id."
        )
    return sorted(by_market.items(), key=lambda item: (min(token.ts[0] for token in item[1]), item[0]))


def _draw_markets(panels: list[Panel], ax: Any, markets: Questions, look: Look) -> Any:
    """Draw panels in rows of two. A single panel passes its title to the chart."""
    if len(panels) == 1:
        name, panels[0].title = panels[0].title, ""
        return draw([[*panels]], ax, name=name, simulated=is_simulated(markets), **look)
    for panel in panels[:-2]:
        panel.x_label = ""
    for panel in panels[1::2]:
        panel.y_label = "" if panel.y_label == panels[0].y_label else panel.y_label
    places: list[Panel | None] = [*panels, None]
    rows = [places[at : at + 2] for at in range(0, len(panels), 2)]
    name = f"{len({panel.title for panel in panels})} markets"
    return draw(rows, ax, name=name, simulated=is_simulated(markets), **look)


def _candle_marks(token: TokenSeries) -> list[Mark]:
    """Wicks as one broken line, and bodies in two colours. A body without a change is as high as a thin line."""
    ts, (first, high, low, last) = token.ts, (token.columns[c] for c in _BAR_COLUMNS)
    step = np.median(np.diff(ts)).astype("m8[us]") if len(ts) > 1 else np.timedelta64(3_600_000_000, "us")
    wick = np.column_stack((low, high, np.full(len(ts), np.nan))).ravel()
    least = max(float(np.nanmax(high) - np.nanmin(low)), 0.02) / 300
    thin = np.maximum(least - np.abs(last - first), 0.0) / 2
    x = np.stack((ts + step // 8, ts + step - step // 8))
    y = np.stack((np.minimum(first, last) - thin, np.maximum(first, last) + thin))
    marks: list[Mark] = [Line(np.repeat(ts + step // 2, 3), wick, "", FAINT, 1.0)]
    for rose, colour, name in ((last >= first, BID, "rose"), (last < first, ASK, "fell")):
        if rose.any():
            details = [Detail(c, token.columns[c][rose]) for c in _BAR_COLUMNS]
            marks.append(Bars(x[:, rose], y[:, rose], colour, name, details))
    return marks


def _share_scale(panels: list[Panel], *, log_odds: bool) -> None:
    """Give all panels one y axis: 0 to 1, or less for many low tokens, or log-odds as far as the lines go."""
    lines = [mark for panel in panels for mark in panel.marks if isinstance(mark, Line)]
    values = np.concatenate([line.y for line in lines] or [np.empty(0)])
    few = all(len(panel.marks) <= len(PALETTE) for panel in panels)
    most = 1.0 if few else float(np.nanmax(values, initial=0.0)) or 1.0
    for panel in panels:
        panel.y_range = (-0.02 * most, 1.02 * most)
        if log_odds:
            low = max((p for p in ODDS_TICKS if p <= np.nanmin(values, initial=0.25)), default=ODDS_TICKS[0])
            high = min((p for p in ODDS_TICKS if p >= np.nanmax(values, initial=0.75)), default=ODDS_TICKS[-1])
            panel.log_odds, panel.y_range = True, (low, high)
            panel.y_label = panel.y_label.replace("]", ", log-odds scale]")
            panel.y_ticks = [(p, f"{p:.3g}") for p in ODDS_TICKS if low <= p <= high]


def _stack(tokens: Sequence[TokenSeries], questions: Mapping[str, str] | None) -> Iterator[Line | Band]:
    """Stacked areas, the greatest at the end first; tokens without a colour of their own are one area."""
    if not tokens:
        return
    ordered, most = sorted(tokens, key=lambda t: -last_value(t.columns["probability"])), len(PALETTE)
    ts = np.unique(np.concatenate([token.ts for token in ordered]))
    shares = np.full((len(ordered), len(ts)), np.nan)
    for row, token in zip(shares, ordered, strict=True):
        row[np.searchsorted(ts, token.ts)] = token.columns["probability"]
    names = [t.label if questions is None else market_name(questions, t.market_id, 40) for t in ordered]
    if len(ordered) > most:
        shares = np.vstack((shares[:most], shares[most:].sum(axis=0)))
        names[most:] = [f"{len(ordered) - most} further outcomes"]
    ts, *each = broken_at_gaps(ts, *shares)
    edge = np.where(np.isnan(each).any(axis=0), np.nan, 0.0)
    for share, name, colour in zip(each, names, (*PALETTE, FAINT), strict=False):
        low, edge = edge, edge + share
        yield Band(ts, low, edge, colour, 0.8)
        legend = f"{name} {last_value(share):.1%}"
        yield Line(ts, edge, name, colour, 2.0, legend=legend, details=[Detail("share", share, ".1%")])
