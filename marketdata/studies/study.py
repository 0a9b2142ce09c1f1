"""A study as one object: whether a signal predicts what a trade earns, net of costs."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import as_kind_of, in_memory, read
from marketdata.adapters.widths import width_of
from marketdata.errors import ConfigError, LookAheadWarning, warn
from marketdata.points import forward as rules
from marketdata.points.arguments import choice, whole
from marketdata.points.intervals import Sampling
from marketdata.resolution import Width
from marketdata.studies.signals import signal_of
from marketdata.studies.table import Adjust, Trades, columns_of, columns_of_many
from marketdata.tidy.forward import flags_of, forward_returns, is_settled
from marketdata.tidy.groups import Cluster
from marketdata.times import Duration, to_duration


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
    MissingValuesWarning
        More than 5 % of the signals met no book (``Study.without_book`` is their number), and as for `cluster_mean`.
    FewMarketsWarning
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
    signals = [signal_of(books, one, signal_width, rows, cluster, outcomes) for one in given]
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
        trades = Trades(replace(results, values=values), outcomes, side, count, sampling, delay)
        for signal_ in signals:
            table = trades.table(signal_)
            tables.append(table)
            of_one = as_kind_of(books, columns_of(table.rows, signal_.clustered), count + 1)
            about = (signal_.name, str(one), side, (), table.given, table.without_book, table.left_out)
            studies.append(Study(of_one, *about))
    if not isinstance(signal, list) and not is_list:
        return studies[0]
    names = ([one.signal for one in studies], [one.horizon for one in studies] if is_list else None)
    many = as_kind_of(books, columns_of_many(*names, tables, signals[0].clustered, adjust), len(studies))
    given_of_all, without_book = (sum(counts) for counts in zip(*(one[2:4] for one in tables), strict=True))
    left_out: Counter[str] = Counter()
    for table in tables:
        left_out.update(table.left_out)
    name, lengths = (", ".join(dict.fromkeys(one)) for one in (names[0], [one.horizon for one in studies]))
    return Study(many, name, lengths, side, tuple(studies), given_of_all, without_book, dict(left_out))


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
