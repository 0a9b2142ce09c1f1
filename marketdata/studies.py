"""A study as one object: whether a signal predicts what a trade earns, net of costs."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import as_kind_of, in_memory, read
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.adapters.polars import typed
from marketdata.adapters.widths import width_beside, width_of
from marketdata.errors import ConfigError, LookAheadWarning, NoBookWarning, warn
from marketdata.points import forward as rules
from marketdata.points.arguments import choice, whole
from marketdata.points.asof import first_from
from marketdata.points.columns import Floats, Ints, Series
from marketdata.points.grids import RowWidth
from marketdata.points.intervals import Interval, Sampling, Sums, adjusted, of_rows
from marketdata.points.left_out import warn_of_exits
from marketdata.points.mirrors import mirrors, warn_of_mixed_labels
from marketdata.points.records import leaks_outcome
from marketdata.points.schema import OBSERVED, require, value_columns
from marketdata.resolution import Width
from marketdata.tidy.asof import KNOWN
from marketdata.tidy.forward import flags_of, forward_returns, is_settled
from marketdata.tidy.groups import Cluster, Keys, Rows
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.measures import features
from marketdata.tidy.outcomes import Payoffs
from marketdata.times import Duration, to_duration

Adjust = Literal["holm", "benjamini-hochberg"]
# A share of signals without a book that chance and the ends of books explain.
_MOST_WITHOUT_BOOK = 0.01


@dataclass(frozen=True)
class Study:
    """The result of a study, see `study`: its ``table``, what was asked, and the studies of several signals."""

    table: Any
    signal: str
    horizon: str
    side: str
    studies: tuple[Study, ...] = ()
    signals: int = 0
    """How many signals with a value were given, of both tokens of a market."""
    without_book: int = 0
    """How many of these met no book when they were known, and count nowhere."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Rows of the signal that count nowhere, by reason: ``no_signal`` (null), ``not_observed`` and ``without_book``."""

    def plot(self, ax: Any = None, **look: Any) -> Any:
        """Draw the forward return of each quantile, gross, net and net with missing exits at their worst."""
        if self.studies:
            raise ConfigError("A study of several signals has no chart; plot one of its .studies.")
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
    horizon: Duration | Iterable[Duration],
    width: Width | None = None,
    *,
    quantiles: int = 5,
    side: Literal["buy", "sell"] = "buy",
    size: float | None = None,
    latency: Duration | None = None,
    fees: Any,
    outcomes: Any = None,
    tolerance: Duration | None = None,
    signal_width: Width | None = None,
    cluster: Cluster = None,
    adjust: Adjust = "holm",
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
    signal : str, pair, frame or list of them
        A measure of books by name, if it has one column: "imbalance", or ("depth", {"levels": 5}) as for `features`.
        Or a frame with ``ts market_id token_id`` and one more column of numbers, known at the end of its bucket, or
        at the time in its column ``available_at``. A list of signals gives one table of all.
    horizon : str, timedelta or list of them
        From the entry to the exit. A list gives one table of all, as a list of signals does.
    quantiles : int
        Number of groups of equal size [2 or more]. A signal of fewer values, such as a flag, needs fewer quantiles.
    side, size, latency, fees, outcomes, tolerance, width
        As for `forward_returns`. Trades enter ``latency`` after the bucket of the books in which the signal became
        known.
    signal_width : str or timedelta, optional
        Bucket width of the signal; by default the one that its frame carries, else the width of the books.
    cluster : str or pair of str
        "market_id", or rows that share their luck: "day" (the UTC day of ``ts``), a column of the frame ``signal`` or
        of the frame ``outcomes``, such as "event_slug". A pair, such as ("market_id", "day"), allows for both.
    adjust : {"holm", "benjamini-hochberg"}
        How the p-values of lists of signals and horizons allow for their number: Holm bounds the probability of any
        false find, Benjamini and Hochberg the share of false ones among the finds.
    interval, resamples, seed
        As for `cluster_mean`.

    Returns
    -------
    Study
        Its ``table`` has one row per quantile, and as last row the difference of the highest and the lowest one, with
        the interval of paired clusters: the test of the signal itself. There ``quantile`` is null. Equal values of the
        signal are in one quantile. Where both tokens of a market have a signal at one time, one of them counts, as for
        `cluster_mean`.

        - ``quantile signal_from signal_to``: quantile 1 has the smallest values of the signal.
        - ``rows tokens markets effective``: how many there are, and `cluster_mean` says what is effective.
        - ``gross gross_low gross_high``: the move of the mid in favour of the trade [probability].
        - ``net net_low net_high``: after spread and fees, of rows that have an exit [probability per share].
        - ``net_worst net_worst_low net_worst_high``: the same, with missing exits at their worst.
        - ``no_entry missing_exits``: rows that could not be entered, and rows that were entered and have no exit.
        - ``left_out``: rows of the other token that repeat them.
        - ``at_end``: missing exits that would be after the last book.
        - ``cluster``: how rows were clustered, only with ``interval``.

        For a list of signals, or of horizons, ``table`` has one row per signal (and horizon), the difference of its
        highest and lowest quantile, with ``signal``, for a list of horizons ``horizon``, and the columns from ``rows``
        on. Then come ``p_value``, how likely such a gross difference is by
        luck, and ``p_adjusted``, the same for that many signals. ``studies`` has the `Study` of each.

    Raises
    ------
    ConfigError
        A column of the signal leaks the outcome, or the signal equals the payoff, or has fewer values than quantiles.
    GridError
        The times of books or signals are of no buckets of their width.

    Warns
    -----
    NoBookWarning
        More than 1 % of the signals met no book; ``Study.without_book`` is their number.
    FewMarketsWarning, MissingValuesWarning
        As for `cluster_mean`.
    LookAheadWarning
        With ``latency="0s"`` a trade meets the book that gave the signal: quotes that flicker look like profits.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=4)
    >>> first = md.mid(books).filter(pl.col("ts") == pl.col("ts").min())
    >>> study = md.study(books, first, "1m", quantiles=2, fees=0, interval=None)
    >>> table = study.table.select("quantile", "markets", pl.col("gross").round(4))
    >>> table.drop_nulls("quantile").rows()
    [(1, 2, 0.02), (2, 2, 0.02)]
    """
    books = read(books)
    count, sampling = whole("quantiles", quantiles, least=2), Sampling.of(interval, resamples, seed)
    choice("adjust", adjust, ("holm", "benjamini-hochberg"))
    given = signal if isinstance(signal, list) else [signal]
    is_list = not isinstance(horizon, str | dt.timedelta | int) and isinstance(horizon, Iterable)
    horizons: list[Any] = [*horizon] if is_list else [horizon]  # type: ignore[misc]
    _check_resamples(given, horizons, sampling)
    rows = width_of(books, width, what="the books")
    delay = rows.micros if latency is None else rows.steps(to_duration(latency, "latency"), "latency", latency)
    if not delay:
        warn(
            "latency='0s' trades with the book that gave the signal, which no real order reaches: a quote that "
            "flickers looks like a profit.",
            LookAheadWarning,
            hint="Leave latency out: then a trade meets the next book.",
        )
    signals = [_signal(books, one, signal_width, rows, cluster, outcomes) for one in given]
    studies, tables = [], []
    for one in horizons:
        # Each row is a trade that enters at its own book, so that a signal needs a book only where it enters.
        returns = forward_returns(
            books, one, side=side, size=size, latency="0s", fees=fees, outcomes=outcomes, tolerance=tolerance,
            width=width,
        )  # fmt: skip
        rows_of_trades, results = frames.sorted_series(in_memory(returns), rules.Forward._fields[:-2])
        flags = {"settled": is_settled(rows_of_trades), "at_end": flags_of(rows_of_trades, "at_end")}
        values = {**results.values, **{name: flag.astype(float) for name, flag in flags.items()}}
        trades = _Trades(replace(results, values=values), outcomes, side, count, sampling, delay)
        for signal_ in signals:
            table = trades.table(signal_)
            tables.append(table)
            of_one = as_kind_of(books, _columns(table.rows, signal_.clustered), count + 1)
            about = (signal_.name, str(one), side, (), table.given, table.without_book, table.left_out)
            studies.append(Study(of_one, *about))
    if not isinstance(signal, list) and not is_list:
        return studies[0]
    names = ([one.signal for one in studies], [one.horizon for one in studies] if is_list else None)
    many = as_kind_of(books, _of_many(*names, tables, signals[0].clustered, adjust), len(studies))
    given_of_all, without_book = (sum(counts) for counts in zip(*(one[2:4] for one in tables), strict=True))
    left_out: Counter[str] = Counter()
    for table in tables:
        left_out.update(table.left_out)
    name, lengths = (", ".join(dict.fromkeys(one)) for one in (names[0], [one.horizon for one in studies]))
    return Study(many, name, lengths, side, tuple(studies), given_of_all, without_book, dict(left_out))


class _Signal(NamedTuple):
    """A signal: its name, its values, the bucket of the books that each was decided in, and clusters.

    There is a line of clusters for each way to cluster, and ``clustered`` names the ways. ``observed`` is False for
    rows that were filled in.
    """

    name: str
    values: Series
    decided: Ints
    clusters: Ints
    clustered: str
    observed: NDArray[np.bool_]


class _Row(NamedTuple):
    """A row of a table: what is counted, then the means and intervals of gross, net and net_worst."""

    counts: dict[str, float]
    means: dict[str, float]
    intervals: dict[str, Interval]


class _Table(NamedTuple):
    """The rows of a study, the p-value of its difference, the signals given, without a book, and left out by reason."""

    rows: list[_Row]
    p_value: float
    given: int
    without_book: int
    left_out: dict[str, int]


class _Trades(NamedTuple):
    """The results of trades that enter at every book, and how they are put together."""

    results: Series
    outcomes: Any
    side: str
    quantiles: int
    sampling: Sampling | None
    delay: int

    def column(self, name: str, place: Ints) -> Floats:
        """A column of results at these places; a signal without a book where it enters has place -1, and no value."""
        return np.append(self.results.values[name], np.nan)[place]

    def table(self, signal: _Signal) -> _Table:
        """A row for each quantile and one for the difference of the last and the first, with its p-value."""
        signals, results = signal.values, self.results
        # A frame of signals may have no labels, which say what token counts for its market.
        labels = {token[:2]: token.token_label for token in results.tokens}
        tokens = [token._replace(token_label=labels.get(token[:2], token.token_label)) for token in signals.tokens]
        resolved = Payoffs({} if self.outcomes is None else self.outcomes, tokens)
        _refuse_payoffs(signal.name, signals, resolved)
        number_of_result = {token[:2]: i for i, token in enumerate(results.tokens)}
        token_of_result = np.array([number_of_result.get(token[:2], -1) for token in tokens], np.int64)
        place, at_decision = (
            first_from(token_of_result[signals.token], ts, results.token, results.ts)
            for ts in (signal.decided + self.delay, signal.decided)
        )
        is_null, met = np.isnan(signals.values[signal.name]), (place >= 0) | (at_decision >= 0)
        has_value = ~is_null & signal.observed
        left_out = {"no_signal": int(is_null.sum()), "not_observed": int((~is_null & ~signal.observed).sum())}
        given, without_book = int(has_value.sum()), int((has_value & ~met).sum())
        _warn_of_no_book(given, without_book)
        counts = np.flatnonzero(has_value & met)
        mirrored = mirrors(tokens, signals.token[counts], signals.ts[counts], resolved.records)
        standing = np.unique(signals.token[counts[mirrored.repeated]]).tolist()
        warn_of_mixed_labels([tokens[i].token_label for i in standing])
        counts, repeated = counts[~mirrored.left_out], mirrored.repeated[~mirrored.left_out]
        market = np.unique([token.market_id for token in tokens], return_inverse=True)[1]
        sample = _Sample(
            signals.values[signal.name][counts], signals.token[counts].astype(np.int64),
            market[signals.token[counts]].astype(np.int64), place[counts], repeated, signal.clusters[:, counts],
        )  # fmt: skip
        _refuse_few_values(signal.name, sample.values, self.quantiles)
        quantile = rules.quantile_of(sample.values, self.quantiles)
        rows = [self._row(sample, quantile == number) for number in range(self.quantiles)]
        top, bottom = quantile == self.quantiles - 1, quantile == 0
        rows.append(self._row(sample, top | bottom, np.where(top, 0, 1)))
        if self.sampling is not None:
            warn_of_intervals("net", self.sampling, [row.intervals["net"] for row in rows])
        half = [(row.intervals["net"].high - row.intervals["net"].low) / 2 if self.sampling else np.nan for row in rows]
        net, worst = (np.array([row.means[name] for row in rows[:-1]], float) for name in ("net", "net_before_end"))
        warn_of_exits(net, worst, np.array(half[:-1], float))
        p_value = rows[-1].intervals["gross"].p_value if self.sampling else np.nan
        return _Table(rows, p_value, given, without_book, {**left_out, "without_book": without_book})

    def _row(self, sample: _Sample, chosen: NDArray[np.bool_], part: Ints | None = None) -> _Row:
        """The row of chosen trades; with ``part`` the row of the mean of part 0 minus the mean of part 1."""
        inside = np.flatnonzero(chosen)
        place, values = sample.place[inside], sample.values[inside]
        no_entry, no_exit = (np.isnan(self.column(name, place)) for name in ("entry", "net"))
        counts: dict[str, float] = {
            "signal_from": np.nan if part is not None or not len(values) else values.min(),
            "signal_to": np.nan if part is not None or not len(values) else values.max(),
            "rows": len(inside), "tokens": len(np.unique(sample.token[inside])),
            "markets": len(np.unique(sample.market[inside])), "no_entry": int(no_entry.sum()),
            "missing_exits": int((no_exit & ~no_entry).sum()), "left_out": int(sample.repeated[inside].sum()),
            "at_end": int((self.column("at_end", place) == 1).sum()),
        }  # fmt: skip
        parts = np.zeros(len(inside), np.int64) if part is None else part[inside]
        means, intervals = {}, {}
        for name, column in (("gross", "move"), ("net", "net"), ("net_worst", "net_low")):
            earned = self.column(column, place) * (-1 if name == "gross" and self.side == "sell" else 1)
            known = ~np.isnan(earned)
            clusters = sample.clusters[:, inside[known]]
            sums = [Sums.of(earned[known], np.ones(known.sum()), way, None if part is None else parts[known])
                    for way in clusters]  # fmt: skip
            means[name] = sums[0].difference
            counts["effective"] = min(one.effective for one in sums)
            if self.sampling is not None:
                bounds = self._possible(name, place[known], parts[known])
                of_parts = None if part is None else parts[known]
                intervals[name] = of_rows(
                    earned[known],
                    np.ones(known.sum()),
                    clusters,
                    self.sampling,
                    part=of_parts,
                    bounds=bounds,
                    signs=self._decided(place[known]),
                )
        before_end = self.column("net_low", place[self.column("at_end", place) != 1])
        known = before_end[~np.isnan(before_end)]
        means["net_before_end"] = float(known.mean()) if len(known) else np.nan
        return _Row(counts, means, intervals)

    def _decided(self, place: Ints) -> Floats:
        """The earnings before costs of trades that the outcome of their market decided, NaN for other trades."""
        settled = self.column("settled", place) == 1
        move = self.column("move", place) * (-1 if self.side == "sell" else 1)
        return np.where(settled, move, np.nan)

    def _possible(self, name: str, place: Ints, part: Ints) -> tuple[float, float]:
        """The range of a mean of these trades: a share is worth 0 to 1 in the end, minus the cost of its trades."""
        if part.any():
            return -2.0, 2.0
        entry, exits, net = (self.column(column, place) for column in ("entry", "exit", "net"))
        if name == "gross" or not len(place):
            return -1.0, 1.0
        sign = 1.0 if self.side == "buy" else -1.0
        costs = np.nan_to_num(sign * (exits - entry) - net).max(initial=0.0)
        worst, best = (0.0, 1.0) if self.side == "buy" else (1.0, 0.0)
        return float((sign * (worst - entry)).mean() - costs), float((sign * (best - entry)).mean())


class _Sample(NamedTuple):
    """The rows of a signal that count: value, token, market, row of the result, whether repeated, and clusters."""

    values: Floats
    token: Ints
    market: Ints
    place: Ints
    repeated: NDArray[np.bool_]
    clusters: Ints


_COUNTS = ("rows", "tokens", "markets")
_ENDS = ("no_entry", "missing_exits", "left_out", "at_end")


def _columns(rows: Sequence[_Row], clustered: str) -> dict[str, Column]:
    """The table of a study; the row of the difference has no quantile."""
    out: dict[str, Column] = {"quantile": typed("int", [*range(1, len(rows)), None])}
    out |= {name: np.array([row.counts[name] for row in rows], float) for name in ("signal_from", "signal_to")}
    return out | _results(rows, clustered)


def _results(rows: Sequence[_Row], clustered: str) -> dict[str, Column]:
    """Counts, means and intervals of rows."""
    out: dict[str, Column] = {name: np.array([row.counts[name] for row in rows], np.int64) for name in _COUNTS}
    out["effective"] = np.array([row.counts["effective"] for row in rows], float)
    for name in ("gross", "net", "net_worst"):
        out[name] = np.array([row.means[name] for row in rows], float)
        if rows[0].intervals:
            out |= ends(f"{name}_", [row.intervals[name] for row in rows])
    out |= {name: np.array([row.counts[name] for row in rows], np.int64) for name in _ENDS}
    return out | ({"cluster": [clustered] * len(rows)} if rows[0].intervals else {})


def _of_many(
    names: Sequence[str], horizons: Sequence[str] | None, tables: Sequence[_Table], clustered: str, adjust: Adjust
) -> dict[str, Column]:
    """The differences of several signals and horizons, with p-values adjusted for their number."""
    p_values = np.array([one.p_value for one in tables], float)
    table: dict[str, Column] = {"signal": [*names]}
    if horizons is not None:
        table["horizon"] = [*horizons]
    table |= _results([one.rows[-1] for one in tables], clustered)
    return table | {"p_value": p_values, "p_adjusted": adjusted(p_values, adjust)}


def _check_resamples(signals: Sequence[Any], horizons: Sequence[Any], sampling: Sampling | None) -> None:
    """ConfigError if the least p-value of so few samples is too great for so many signals and horizons."""
    for name, given in (("signal", signals), ("horizon", horizons)):
        if not given:
            raise ConfigError(f"is empty; allowed are a {name} and a list of them.", argument=name, value=given)
    count = len(signals) * len(horizons)
    if sampling is not None and count > 1:
        enough = int(np.ceil(2 * count / (1 - sampling.share) - 1e-9))
        if sampling.resamples < enough:
            of = f"{len(signals)} signals" + (f" and {len(horizons)} horizons" if len(horizons) > 1 else "")
            raise ConfigError(
                f"is refused for {of}: no adjusted p-value could be below {1 - sampling.share:.2g}; "
                f"allowed are {enough} and more.",
                argument="resamples",
                value=sampling.resamples,
            )


def _refuse_few_values(name: str, values: Floats, quantiles: int) -> None:
    """ConfigError for a signal of fewer values than quantiles: some would be empty, whatever the sample."""
    if len(values) >= quantiles > 1 and 1 < (different := len(np.unique(values))) < quantiles:
        raise ConfigError(
            f"is refused: the signal {name!r} has {different} different values, and equal ones are in one quantile, so "
            f"that others would be empty. Give quantiles={different}.",
            argument="quantiles",
            value=quantiles,
        )


def _warn_of_no_book(given: int, without: int) -> None:
    if without > given * _MOST_WITHOUT_BOOK:
        warn(
            f"{without:,} of {given:,} signals met no book of their token when they were known, and count nowhere.",
            NoBookWarning,
            hint="Give the books of these tokens and times. A book that was filled in with md.resample is none.",
        )


def _signal(
    books: Native, signal: Any, width: Width | None, rows: RowWidth, cluster: Cluster, outcomes: Any
) -> _Signal:
    """The name, the values, the times and the clusters of a signal."""
    native = features(books, [signal]) if isinstance(signal, str | tuple) else read(signal)
    table: Frame = in_memory(native)
    require("A frame of signals", ["ts", "market_id", "token_id"], table.names)
    keys = Keys.of(None, cluster, table.names, outcomes)
    columns = [name for name in value_columns(table.names) if name not in (OBSERVED, KNOWN, *keys.cluster)]
    leaking = [name for name in columns if leaks_outcome(name)]
    if leaking:
        raise ConfigError(
            f"signal has {', '.join(map(repr, leaking))}, which leaks the outcome; make it of what was known at ts."
        )
    if len(columns) != 1 or not table.is_number(columns[0]):
        raise ConfigError(
            f"signal has the columns {', '.join(map(repr, columns)) or 'of ids alone'}; allowed is one column of "
            "numbers beside ts, ids and columns of cluster. Pass several signals as a list of frames."
        )
    table, values = frames.sorted_series(table, columns)
    if KNOWN in table.names:
        known = table.times(KNOWN)
    else:
        is_measure = isinstance(signal, str | tuple)
        own = rows if is_measure else width_beside(native, width, "signal_width", "the signal", rows)
        own.check(values.ts)
        known = own.known(values.ts)
    clusters, clustered = Rows(table, keys).clusters(), keys.clustered
    return _Signal(columns[0], values, rows.decided(known), clusters, clustered, table.observed())


def _refuse_payoffs(name: str, signals: Series, outcomes: Payoffs) -> None:
    """ConfigError for a signal that is the payoff of each token under another name."""
    paid, values = outcomes.of(signals.tokens)[signals.token], signals.values[name]
    has_both = ~np.isnan(paid) & ~np.isnan(values)
    paid, values = paid[has_both], values[has_both]
    if len(np.unique(paid)) > 1 and (np.array_equal(values, paid) or np.array_equal(values, 1 - paid)):
        raise ConfigError(f"signal {name!r} equals the payoff of every token, so it leaks the outcome.")
