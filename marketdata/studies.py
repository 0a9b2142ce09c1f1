"""A study as one object: whether a signal predicts what a trade earns, net of costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import as_kind_of, in_memory, read
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.errors import ConfigError
from marketdata.points import forward as rules
from marketdata.points import intervals
from marketdata.points.arguments import text, whole
from marketdata.points.asof import first_from
from marketdata.points.columns import Ints, Series
from marketdata.points.records import leaks_outcome
from marketdata.points.schema import require, value_columns
from marketdata.tidy.cluster_mean import checked_share, warn_of_means
from marketdata.tidy.forecast_scores import groups_of_markets
from marketdata.tidy.forward import Duration, forward_returns
from marketdata.tidy.measures import features
from marketdata.tidy.outcomes import Payoffs


@dataclass(frozen=True)
class Study:
    """The result of a study, see `study`: its ``table`` and what was asked."""

    table: Any
    signal: str
    horizon: str
    side: str

    def plot(self, ax: Any = None, **look: Any) -> Any:
        """Draw the forward return of each quantile, gross, net and net with missing exits at their worst."""
        from marketdata.plot.study_chart import study as draw  # only who draws loads it

        title = f"{self.signal}: what a {self.side} earns in {self.horizon}"
        return draw(self.table, ax, **({"title": title} | look))

    def __repr__(self) -> str:
        return f"<Study of {self.signal}, {self.side}, {self.horizon}>\n{self.table}"

    def _repr_html_(self) -> str:
        return str(getattr(self.table, "_repr_html_", lambda: f"<pre>{self.table}</pre>")())


def study(
    books: Any,
    signal: Any,
    horizon: Duration,
    *,
    quantiles: int = 5,
    side: Literal["buy", "sell"] = "buy",
    size: float | None = None,
    latency: Duration | None = None,
    fees: Any = None,
    outcomes: Any = None,
    tolerance: Duration | None = None,
    width: str = "1m",
    cluster: str = "market_id",
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Study:
    """A `Study`, whose table says whether a signal predicts what a trade earns, net of costs.

    A study asks whether a signal predicts, and is no trading rule: nobody knew the quantiles of the whole sample at the
    time. ``Study.plot()`` draws the table.

    Parameters
    ----------
    books
        Tidy or nested books of any kind of frame.
    signal : str, pair or frame
        A measure of books by name, if it has one column: "imbalance", or ("depth", {"levels": 5}) as for `features`.
        Or a frame with ``ts market_id token_id`` and one more column of numbers, known at the end of its bucket.
    horizon : str or timedelta
        From the entry to the exit.
    quantiles : int
        Number of groups of equal size [2 or more].
    side, size, latency, fees, outcomes, tolerance, width
        As for `forward_returns`.
    cluster : str
        "market_id", or a column of the frame ``outcomes`` whose markets share their luck, such as "event_slug".
    interval, resamples, seed
        As for `cluster_mean`.

    Returns
    -------
    Study
        Its ``table`` has one row per quantile. Equal values of the signal are in one quantile. One token counts per
        market: Yes, or the token with the smallest id.

        - ``quantile signal_from signal_to``: quantile 1 has the smallest values of the signal.
        - ``rows tokens markets effective``: how many there are, and `cluster_mean` says what is effective.
        - ``gross gross_low gross_high``: the move of the mid in favour of the trade [probability].
        - ``net net_low net_high``: after spread and fees, of rows that have an exit [probability per share].
        - ``net_worst net_worst_low net_worst_high``: the same, with missing exits at their worst.
        - ``no_entry missing_exits``: rows that could not be entered, and rows that were entered and have no exit.

    Raises
    ------
    ConfigError
        A column of the signal leaks the outcome, or the signal equals the payoff.

    Warns
    -----
    FewMarketsWarning, MissingValuesWarning
        As for `cluster_mean`.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=4)
    >>> first = md.mid(books).filter(pl.col("ts") == pl.col("ts").min())
    >>> study = md.study(books, first, "1m", quantiles=2, interval=None)
    >>> table = study.table.select("quantile", "markets", pl.col("gross").round(4))
    >>> table.rows()
    [(1, 2, 0.02), (2, 2, 0.02)]
    """
    books = read(books)
    count, share = whole("quantiles", quantiles, least=2), checked_share(interval)
    draws, start = whole("resamples", resamples), whole("seed", seed, least=0)
    clusters = groups_of_markets(
        "cluster", [] if cluster == "market_id" else [text("cluster", cluster, "a column")], outcomes
    )
    name, signals = _signal(books, signal)
    returns = forward_returns(
        books, horizon, side=side, size=size, latency=latency, fees=fees, outcomes=outcomes, tolerance=tolerance,
        width=width,
    )  # fmt: skip
    results = frames.series(in_memory(returns), rules.Forward._fields[:-1])
    # A frame of signals may have no labels, which say what token counts for its market.
    labels = {token[:2]: token.token_label for token in results.tokens}
    tokens = [
        (token.market_id, str(token.token_id), labels.get(token[:2], token.token_label)) for token in signals.tokens
    ]
    if outcomes is not None:
        _refuse_payoffs(name, signals, Payoffs(outcomes, tokens).payoff)
    place = _matches(signals, results)
    counts = rules.one_token_per_market(tokens)[signals.token] & ~np.isnan(signals.values[name]) & (place >= 0)
    values, place, token = signals.values[name][counts], place[counts], signals.token[counts]
    quantile = rules.quantile_of(values, count)
    entry, move, net, net_low = (results.values[c][place] for c in ("entry", "move", "net", "net_low"))
    gross = move if side == "buy" else -move
    markets = [market for market, *_ in tokens]
    number_of_market = {market: number for number, market in enumerate(markets)}
    market_codes = np.array([number_of_market[market] for market in markets], np.int64)[token]
    cluster_codes = clusters.of(markets)[token] if clusters.by else market_codes
    table, missing = [], []
    for number in range(count):
        rows = np.flatnonzero(quantile == number)
        entered = ~np.isnan(entry[rows])
        missing_exits = int((entered & np.isnan(net[rows])).sum())
        missing.append(missing_exits / max(int(entered.sum()), 1))
        row: dict[str, float] = {
            "quantile": number + 1,
            "signal_from": values[rows].min() if len(rows) else np.nan,
            "signal_to": values[rows].max() if len(rows) else np.nan,
            "rows": len(rows),
            "tokens": len(np.unique(token[rows])),
            "markets": len(np.unique(market_codes[rows])),
        }
        for what, outcome in (("gross", gross), ("net", net), ("net_worst", net_low)):
            mean = intervals.mean_over(outcome[rows], cluster_codes[rows], share, resamples=draws, seed=start)
            row |= {"effective": mean.effective, what: mean.mean}
            row |= {} if share is None else {f"{what}_low": mean.low, f"{what}_high": mean.high}
        table.append(row | {"no_entry": int((~entered).sum()), "missing_exits": missing_exits})
    warn_of_means("net", share, [row["effective"] for row in table], missing)
    columns: dict[str, Column] = {column: np.array([row[column] for row in table]) for column in table[0]}
    return Study(as_kind_of(books, columns, count), name, str(horizon), side)


def _signal(books: Native, signal: Any) -> tuple[str, Series]:
    """The name and the values of a signal."""
    frame: Any = signal
    if isinstance(signal, str | tuple):
        frame = features(books, [signal])
    table: Frame = in_memory(frame)
    require("A frame of signals", ["ts", "market_id", "token_id"], table.names)
    columns = [name for name in value_columns(table.names) if name != "observed"]
    leaking = [name for name in columns if leaks_outcome(name)]
    if leaking:
        raise ConfigError(
            f"signal has {', '.join(map(repr, leaking))}, which leaks the outcome; make it of what was known at ts."
        )
    if len(columns) != 1 or not table.is_number(columns[0]):
        raise ConfigError(
            f"signal has the columns {', '.join(map(repr, columns)) or 'of ids alone'}; allowed is one column of "
            "numbers beside ts and ids."
        )
    return columns[0], frames.series(table, columns)


def _refuse_payoffs(name: str, signals: Series, payoff: Mapping[tuple[str, str], float]) -> None:
    """ConfigError for a signal that is the payoff of each token under another name."""
    paid = np.array([payoff.get((t.market_id, str(t.token_id)), np.nan) for t in signals.tokens])[signals.token]
    has_both = ~np.isnan(paid) & ~np.isnan(signals.values[name])
    values = signals.values[name][has_both]
    if len(np.unique(paid[has_both])) > 1 and (
        np.array_equal(values, paid[has_both]) or np.array_equal(values, 1 - paid[has_both])
    ):
        raise ConfigError(f"signal {name!r} equals the payoff of every token, so it leaks the outcome.")


def _matches(signals: Series, results: Series) -> Ints:
    """The place among the results of the row with the same token and time as each signal, -1 for none."""
    number = {token[:2]: i for i, token in enumerate(results.tokens)}
    token = np.array([number.get(token[:2], -1) for token in signals.tokens], np.int64)[signals.token]
    return first_from(token, signals.ts, results.token, results.ts)
