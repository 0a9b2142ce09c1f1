"""The table of a study: a row for each quantile of a signal, with means and intervals of what trades earned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters.frame import Column
from marketdata.adapters.polars import typed
from marketdata.points import forward as rules
from marketdata.points.asof import first_from
from marketdata.points.columns import Floats, Ints, Series
from marketdata.points.intervals import Interval, Sampling, Sums, adjusted, of_rows
from marketdata.points.left_out import warn_of_exits, warn_of_unmet
from marketdata.points.mirrors import mirrors, warn_of_mixed_labels
from marketdata.studies.signals import Signal, refuse_few_values, refuse_payoffs
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.outcomes import Payoffs

Adjust = Literal["holm", "benjamini-hochberg"]


class Row(NamedTuple):
    """A row of a table: what is counted, then the means and intervals of gross, net and net_worst."""

    counts: dict[str, float]
    means: dict[str, float]
    intervals: dict[str, Interval]


class Table(NamedTuple):
    """The rows of a study, the p-value of its difference, the signals given, without a book, and left out by reason."""

    rows: list[Row]
    p_value: float
    given: int
    without_book: int
    left_out: dict[str, int]


class Trades(NamedTuple):
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

    def table(self, signal: Signal) -> Table:
        """A row for each quantile and one for the difference of the last and the first, with its p-value."""
        signals, results = signal.values, self.results
        # A frame of signals may have no labels, which say what token counts for its market.
        labels = {token[:2]: token.token_label for token in results.tokens}
        tokens = [token._replace(token_label=labels.get(token[:2], token.token_label)) for token in signals.tokens]
        resolved = Payoffs({} if self.outcomes is None else self.outcomes, tokens)
        refuse_payoffs(signal.name, signals, resolved)
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
        warn_of_unmet("signals", "without_book", without_book, given)
        counts = np.flatnonzero(has_value & met)
        mirrored = mirrors(tokens, signals.token[counts], signals.ts[counts], resolved.records)
        warn_of_mixed_labels(tokens, signals.token[counts[mirrored.repeated]])
        counts, repeated = counts[~mirrored.left_out], mirrored.repeated[~mirrored.left_out]
        market = np.unique([token.market_id for token in tokens], return_inverse=True)[1]
        sample = Sample(
            signals.values[signal.name][counts], signals.token[counts].astype(np.int64),
            market[signals.token[counts]].astype(np.int64), place[counts], repeated, signal.clusters[:, counts],
        )  # fmt: skip
        refuse_few_values(signal.name, sample.values, self.quantiles)
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
        return Table(rows, p_value, given, without_book, {**left_out, "without_book": without_book})

    def _row(self, sample: Sample, chosen: NDArray[np.bool_], part: Ints | None = None) -> Row:
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
        return Row(counts, means, intervals)

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


class Sample(NamedTuple):
    """The rows of a signal that count: value, token, market, row of the result, whether repeated, and clusters."""

    values: Floats
    token: Ints
    market: Ints
    place: Ints
    repeated: NDArray[np.bool_]
    clusters: Ints


_COUNTS = ("rows", "tokens", "markets")
_ENDS = ("no_entry", "missing_exits", "left_out", "at_end")


def columns_of(rows: Sequence[Row], clustered: str) -> dict[str, Column]:
    """The table of a study; the row of the difference has no quantile."""
    out: dict[str, Column] = {"quantile": typed("int", [*range(1, len(rows)), None])}
    out |= {name: np.array([row.counts[name] for row in rows], float) for name in ("signal_from", "signal_to")}
    return out | _results(rows, clustered)


def _results(rows: Sequence[Row], clustered: str) -> dict[str, Column]:
    """Counts, means and intervals of rows."""
    out: dict[str, Column] = {name: np.array([row.counts[name] for row in rows], np.int64) for name in _COUNTS}
    out["effective"] = np.array([row.counts["effective"] for row in rows], float)
    for name in ("gross", "net", "net_worst"):
        out[name] = np.array([row.means[name] for row in rows], float)
        if rows[0].intervals:
            out |= ends(f"{name}_", [row.intervals[name] for row in rows])
    out |= {name: np.array([row.counts[name] for row in rows], np.int64) for name in _ENDS}
    return out | ({"cluster": [clustered] * len(rows)} if rows[0].intervals else {})


def columns_of_many(
    names: Sequence[str], horizons: Sequence[str] | None, tables: Sequence[Table], clustered: str, adjust: Adjust
) -> dict[str, Column]:
    """The differences of several signals and horizons, with p-values adjusted for their number."""
    p_values = np.array([one.p_value for one in tables], float)
    table: dict[str, Column] = {"signal": [*names]}
    if horizons is not None:
        table["horizon"] = [*horizons]
    table |= _results([one.rows[-1] for one in tables], clustered)
    return table | {"p_value": p_values, "p_adjusted": adjusted(p_values, adjust)}
