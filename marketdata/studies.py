"""A study as one object: whether a signal predicts what a trade earns, net of costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import as_kind_of, in_memory, read
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.errors import ConfigError
from marketdata.points import forward as rules
from marketdata.points import scores
from marketdata.points.arguments import whole
from marketdata.points.asof import first_from
from marketdata.points.columns import Series
from marketdata.points.mirrors import mirrors, warn_of_mixed_labels
from marketdata.points.records import leaks_outcome
from marketdata.points.schema import require, value_columns
from marketdata.points.scores import Sampling
from marketdata.resolution import Width
from marketdata.tidy.forward import Duration, forward_returns
from marketdata.tidy.measures import features
from marketdata.tidy.outcomes import Payoffs
from marketdata.tidy.scores import groups_of_markets, numbers_of_distinct, warn_of_means


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
    width: Width | None = None,
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
        Its ``table`` has one row per quantile. Equal values of the signal are in one quantile. Where both tokens of a
        market have a signal at one time, one of them counts, as for `cluster_mean`.

        - ``quantile signal_from signal_to``: quantile 1 has the smallest values of the signal.
        - ``rows tokens markets effective``: how many there are, and `cluster_mean` says what is effective.
        - ``gross gross_low gross_high``: the move of the mid in favour of the trade [probability].
        - ``net net_low net_high``: after spread and fees, of rows that have an exit [probability per share].
        - ``net_worst net_worst_low net_worst_high``: the same, with missing exits at their worst.
        - ``no_entry missing_exits``: rows that could not be entered, and rows that were entered and have no exit.
        - ``left_out``: rows of the other token that repeat them.

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
    count, sampling = whole("quantiles", quantiles, least=2), Sampling.of(interval, resamples, seed)
    clusters = groups_of_markets("cluster", cluster, outcomes)
    name, signals = _signal(books, signal)
    returns = forward_returns(
        books, horizon, side=side, size=size, latency=latency, fees=fees, outcomes=outcomes, tolerance=tolerance,
        width=width,
    )  # fmt: skip
    results = frames.series(in_memory(returns), rules.Forward._fields[:-1])
    # A frame of signals may have no labels, which say what token counts for its market.
    labels = {token[:2]: token.token_label for token in results.tokens}
    tokens = [token._replace(token_label=labels.get(token[:2], token.token_label)) for token in signals.tokens]
    resolved = Payoffs({} if outcomes is None else outcomes, tokens)
    _refuse_payoffs(name, signals, resolved)
    number_of_result = {token[:2]: i for i, token in enumerate(results.tokens)}
    token_of_result = np.array([number_of_result.get(token[:2], -1) for token in tokens], np.int64)
    place = first_from(token_of_result[signals.token], signals.ts, results.token, results.ts, tolerance=0)
    counts = np.flatnonzero(~np.isnan(signals.values[name]) & (place >= 0))
    mirrored = mirrors(tokens, signals.token[counts], signals.ts[counts], resolved.records)
    standing = np.unique(signals.token[counts[mirrored.repeated]]).tolist()
    warn_of_mixed_labels([tokens[i].token_label for i in standing])
    counts, repeated = counts[~mirrored.left_out], mirrored.repeated[~mirrored.left_out]
    values, place, token = signals.values[name][counts], place[counts], signals.token[counts]
    quantile = rules.quantile_of(values, count)
    signal_from, signal_to = np.full((2, count), np.nan)
    np.fmin.at(signal_from, quantile, values)
    np.fmax.at(signal_to, quantile, values)
    markets = [market for market, *_ in tokens]
    cluster_codes = clusters.as_clusters(markets)[token]
    market_codes = np.unique(markets, return_inverse=True)[1][token]
    no_entry = np.isnan(results.values["entry"][place])
    table: dict[str, Column] = {
        "quantile": np.arange(1, count + 1), "signal_from": signal_from, "signal_to": signal_to,
        "rows": np.bincount(quantile, minlength=count), "tokens": numbers_of_distinct(token, quantile, count),
        "markets": numbers_of_distinct(market_codes, quantile, count), "effective": np.zeros(count),
    }  # fmt: skip
    for what, column in (("gross", "move"), ("net", "net"), ("net_worst", "net_low")):
        outcome = results.values[column][place] * (-1 if what == "gross" and side == "sell" else 1)
        means = scores.means(outcome, quantile, count, cluster_codes, sampling)
        table |= {"effective": means["effective"], what: means["mean"]}
        table |= {f"{what}_{end}": means[end] for end in ("low", "high") if end in means}
    missing = np.bincount(quantile[~no_entry & np.isnan(results.values["net"][place])], minlength=count)
    table |= {"no_entry": np.bincount(quantile[no_entry], minlength=count), "missing_exits": missing}
    table |= {"left_out": np.bincount(quantile[repeated], minlength=count)}
    warn_of_means("net", sampling, means["effective"], missing, np.bincount(quantile[~no_entry], minlength=count))
    return Study(as_kind_of(books, table, count), name, str(horizon), side)


def _signal(books: Native, signal: Any) -> tuple[str, Series]:
    """The name and the values of a signal."""
    table: Frame = in_memory(features(books, [signal]) if isinstance(signal, str | tuple) else signal)
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


def _refuse_payoffs(name: str, signals: Series, outcomes: Payoffs) -> None:
    """ConfigError for a signal that is the payoff of each token under another name."""
    paid, values = outcomes.of(signals.tokens)[signals.token], signals.values[name]
    has_both = ~np.isnan(paid) & ~np.isnan(values)
    paid, values = paid[has_both], values[has_both]
    if len(np.unique(paid)) > 1 and (np.array_equal(values, paid) or np.array_equal(values, 1 - paid)):
        raise ConfigError(f"signal {name!r} equals the payoff of every token, so it leaks the outcome.")
