"""Scores of prices as forecasts, with intervals over clusters of markets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from marketdata.adapters.dispatch import F, at_once, in_memory, is_in_memory, is_lazy, names_of, read, run
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.errors import ConfigError, OpenMarketsWarning, warn
from marketdata.points import scores
from marketdata.points.arguments import choice, number, whole
from marketdata.points.columns import Floats, Ints, group_sums
from marketdata.points.intervals import Interval, Sampling
from marketdata.points.left_out import choose, warn_of_left_out
from marketdata.points.mirrors import warn_of_mixed_labels
from marketdata.points.schema import ID_COLUMNS, TOLERANCE, Kind
from marketdata.points.scores import Forecasts
from marketdata.tidy.groups import By, Cluster, Keys, Rows, codes_of, combined
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.measures import TOP_KINDS
from marketdata.tidy.outcomes import Outcomes, Payoffs, Tokens, for_tokens
from marketdata.tidy.returns import probability_of

Of = Literal["market", "token", "all"]
Bins = int | Iterable[float] | Literal["equal counts"]
FORECAST_KINDS: tuple[Kind, ...] = ("trades", "prices", *TOP_KINDS, "series")
_IDS: dict[str, Sequence[str]] = {"market": ID_COLUMNS[:1], "token": ID_COLUMNS, "all": ()}
_BINS = _EQUAL_COUNTS = 10
# Why a row is no forecast, beside being the mirror of another one.
LEFT_OUT = ("nulls", "after_close", "not_observed")


def brier(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "market",
    by: By = None,
    cluster: Cluster = None,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean squared error of prices (of books or bbo: mids) as forecasts of the outcomes.

    Null prices are no forecasts. If both tokens of a market have a price at one time, these are one forecast, so only
    one counts, except with ``of="token"``. The token that counts is the first in the market's record, else the first by
    label: Yes before No, Up before Down, others by the alphabet. In markets of three or more tokens every row counts.
    Of trades every print counts, as a forecast of its token at its price.
    Markets that are open, or not among the outcomes, are left out.

    The score is miscalibration - discrimination + uncertainty. Miscalibration is what the best rising function of the
    prices would gain. Discrimination is what that function gains over the base rate. Uncertainty is the score of the
    base rate.

    Murphy's parts go by bins of prices, ten of equal width as of `calibration`. The score is reliability - resolution +
    uncertainty + within_bins. Prices differ within a bin, so the first three alone do not sum to it.

    Parameters
    ----------
    outcomes : frame or mapping
        The result of `outcomes`, or market records. Or a mapping of market id to the token that won, by id or label,
        None while it is open, or to the payoff of each token.
    of : {"market", "token", "all"}
        What a row is about.
    by : str or list of str, optional
        Columns of the frame to group by, such as the hours before the end, or of the frame ``outcomes``, such as
        "topic". "day" is the UTC day of ``ts``.
    cluster : str or pair of str, optional
        Of "all": a column of forecasts that share their luck, such as "market_id", "event_slug" or "day". A pair
        allows for both. By default the event, of the frame or of ``outcomes``, and the market where none is known; the
        result says which in ``cluster``.
    interval : float or None
        Of "all": probability that the interval covers [0 to 1]; None leaves it out.
    resamples, seed : int
        Of "all": number of bootstrap samples, and their seed.

    Returns
    -------
    frame
        Rows depend on ``of``; with ``by`` there is one such row per group.

        - "market": one row per market, ``market_id points brier left_out``.
        - "token": one row per token, ``market_id token_id token_label outcome points brier``.
        - "all": one row, ``markets points brier brier_low brier_high miscalibration discrimination uncertainty
          reliability resolution within_bins cluster left_out``.

        Then come ``nulls after_close not_observed``. The columns are these.

        - ``points``: the number of forecasts.
        - ``brier``: mean((p - payoff)^2) [0 to 1; 0.25: always 0.5].
        - ``outcome``: the payoff.
        - ``left_out``: forecasts of the other token that repeat them.
        - ``nulls``, ``after_close``, ``not_observed``: rows without a price, those that begin at or after the close
          (``closed_at``, or ``resolved_at`` if that is earlier), and those that were filled in. They are no forecasts.
          The bucket in which a market closed still counts: give finer rows than days of markets that live for days.
        - ``brier_low``, ``brier_high``: a studentized bootstrap interval over clusters of markets. It is null with
          fewer than five clusters, where all payoffs or all clusters are alike, and where the score hangs on a few
          clusters.

    Warns
    -----
    FewMarketsWarning
        An interval rests on fewer than ten effective clusters, or clusters of the rarer outcome, or is null.
    OpenMarketsWarning
        Markets of the frame are open, with "all".
    MissingValuesWarning
        More than 5 percent of the rows have no price.
    MixedLabelsWarning
        The tokens that count have different labels, with "all".

    References
    ----------
    Brier (1950), "Verification of forecasts expressed in terms of probability". Murphy (1973), "A new vector partition
    of the probability score". Stephenson, Coelho, Jolliffe (2008), "Two extra components in the Brier score
    decomposition". Dimitriadis, Gneiting, Jordan (2021),
    "Stable reliability diagrams for probabilistic classifiers". Cameron, Gelbach, Miller (2008), "Bootstrap-based
    improvements for inference with clustered errors".

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1)
    >>> markets = md.testing.markets("polars")
    >>> md.brier(prices, markets).select("market_id", "points", "brier", "left_out").rows()
    [('rain', 1, 0.36, 1)]
    >>> scores = md.brier(prices, markets, of="token")
    >>> scores.select("token_label", "outcome", "points", "brier").rows()
    [('Yes', 1.0, 1, 0.36), ('No', 0.0, 1, 0.36)]
    """
    return _scored(
        frame, _Question.of(frame, outcomes, of, by, cluster, Sampling.of(interval, resamples, seed)), "brier",
        scores.squared_error,
    )  # fmt: skip


def log_score(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "market",
    by: By = None,
    cluster: Cluster = None,
    clip: float = 1e-6,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean negative log-likelihood of the outcomes by the prices: mean(-payoff ln p - (1 - payoff) ln(1 - p)).

    Rows, parameters, errors and warnings are as for `brier`, with ``log_score`` in place of ``brier``, and without
    Murphy's parts. It is a natural
    logarithm; prices that are always 0.5 have 0.693. Prices are clipped to ``clip`` and 1 - ``clip`` [above 0, below
    0.5], as 0 for the winner would score infinity. Good (1952), "Rational decisions".
    """
    sampling = Sampling.of(interval, resamples, seed)
    question = _Question.of(frame, outcomes, of, by, cluster, sampling, clip=clip_of(clip))
    return _scored(frame, question, "log_score", scores.log_loss)


def calibration(
    frame: F,
    outcomes: Any,
    bins: Bins = _BINS,
    *,
    of: Literal["market", "token"] = "market",
    by: By = None,
    cluster: Cluster = None,
    interval: float | None = 0.95,
) -> F:
    """How often tokens priced at p won.

    Other parameters, errors and warnings are as for `brier`.

    Parameters
    ----------
    bins : int, list of float or "equal counts"
        Number of bins of equal width from 0 to 1; or their borders, from 0 to 1; or ten bins with about as many
        forecasts each. Equal prices are in one bin.
    interval : float or None
        Probability that the interval of a share covers [0 to 1]; None leaves it out.

    Returns
    -------
    frame
        One row per bin that has a forecast, with ``by`` per group and bin:

        - ``bin_start bin_end``: the borders [start, end); the last bin includes 1.
        - ``points``, ``forecast``: the number and the mean of the forecasts.
        - ``outcome``: the mean payoff, which is the share that is true in the end.
        - ``markets``, only with ``interval``: the markets in the bin.
        - ``outcome_low outcome_high``, only with ``interval``: Wilson's interval of the share, null with fewer than two
          clusters, and where all markets paid the same. It is over (sum w)^2 / sum w^2 clusters, where a cluster of the
          bin has w forecasts. ``cluster``, at the end, says how rows were clustered.
        - ``left_out``: forecasts of the other token that repeat them.

    Warns
    -----
    FewMarketsWarning
        There are fewer than ten clusters, or all markets paid the same.

    References
    ----------
    Wilson (1927), "Probable inference". Kish (1965), "Survey sampling".

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> markets = md.testing.markets("polars", markets=2)
    >>> bins = md.calibration(prices, markets, bins=5, interval=None)
    >>> bins.select("bin_start", "points", "forecast", "outcome").rows()
    [(0.4, 2, 0.45, 0.5)]
    """
    borders = bins if isinstance(bins, str) else _borders(bins)
    if isinstance(borders, str):
        choice("bins", borders, ("equal counts",), "whole numbers, lists of borders, and 'equal counts'")
    choice("of", of, ("market", "token"))
    question = _Question.of(frame, outcomes, of, by, cluster, Sampling.of(interval))
    return _pooled(frame, question, partial(_curves, question=question, borders=borders))


def clip_of(clip: float) -> float:
    """The least distance of prices from 0 and 1 in a logarithm; ConfigError for no number below 0.5."""
    if number("clip", clip) >= 0.5:
        raise ConfigError("is refused; allowed are numbers above 0 and below 0.5.", argument="clip", value=clip)
    return float(clip)


@dataclass(frozen=True)
class _Question:
    """The arguments of a score of a frame with columns ``present``; prices are ``clip`` or more from 0 and 1."""

    unit: Of
    outcomes: Outcomes
    keys: Keys
    present: Sequence[str]
    sampling: Sampling | None
    clip: float

    @classmethod
    def of(
        cls, frame: Any, outcomes: Outcomes, unit: Any, by: By, cluster: Cluster, sampling: Sampling | None,
        clip: float = 0.0,
    ) -> Self:  # fmt: skip
        """The arguments, checked."""
        unit, present = choice("of", unit, get_args(Of)), names_of(read(frame))
        return cls(unit, outcomes, Keys.of(by, cluster, present, outcomes), present, sampling, clip)

    @property
    def carried(self) -> list[str]:
        """The further columns of the frame that its forecasts keep."""
        return self.keys.carried(self.present)

    def payoffs_in(self, frame: Native, *, pooled: bool) -> Callable[[Tokens], Payoffs]:
        """The payoffs of the tokens of a frame."""

        def payoffs(tokens: Tokens) -> Payoffs:
            tokens = list(tokens)
            resolved = Payoffs(self.outcomes, tokens)
            if pooled:
                warn_of_open({market for market, *_ in tokens}, resolved.open)
            return resolved

        return for_tokens(frame, payoffs)


def _scored(frame: F, question: _Question, name: str, loss: scores.Loss) -> F:
    """A score by market, token or over all."""
    finish = _overall if question.unit == "all" else _means
    return _pooled(frame, question, partial(finish, question=question, name=name, loss=loss))


def _pooled(frame: F, question: _Question, finish: Callable[[Native], Native]) -> F:
    """The forecasts, read by the library of the frame, and the result from all of them in one place."""
    frame = read(frame)
    # A score of a market says nothing of the markets that are open.
    payoffs = question.payoffs_in(frame, pooled=finish.func is not _means)  # type: ignore[attr-defined]

    def merged(part: Frame) -> Native:
        return _merged(part, question, payoffs)

    keep = bool(question.carried)
    if is_in_memory(frame) or is_lazy(frame):
        both = lambda part: finish(merged(part))  # noqa: E731
        return run(frame, both, FORECAST_KINDS, partition_by="all", keep_extra=keep)
    return at_once(run(frame, merged, FORECAST_KINDS, partition_by="market", keep_extra=keep), finish)


def _merged(part: Frame, question: _Question, payoffs: Callable[[Tokens], Payoffs]) -> Native:
    """The forecasts that count, with further columns; equal forecasts of a token are one row with their number."""
    part, series, value = probability_of(part)
    resolved = payoffs(series.tokens)
    payoff, p = resolved.of(series.tokens)[series.token], series.values[value]
    after = series.ts >= resolved.over(series.tokens)[series.token]
    chosen = choose(
        series.tokens, series.token, series.ts, known=~np.isnan(payoff), records=resolved.records,
        out={"after_close": after, "not_observed": ~part.observed(), "nulls": np.isnan(p)},
        each_token=question.unit == "token" or part.kind == "trades",  # no print is the mirror of another one
    )  # fmt: skip
    every = np.concatenate((chosen.rows, chosen.left))
    why = np.concatenate((np.zeros(len(chosen.rows), np.int64), [1 + LEFT_OUT.index(one) for one in chosen.why]))
    repeated = np.concatenate((chosen.repeated, np.zeros(len(chosen.left), bool)))
    table = Rows(part, Keys(question.carried, [], question.keys.records))
    codes = [table.codes(name)[every] for name in question.carried]
    first, which = combined([series.token[every].astype(np.int64), _place(p[every]), why.astype(np.int64), *codes])
    at, token = every[first], series.token[every[first]].astype(np.int64)
    columns: dict[str, Column] = {c: Texts(token, [getattr(one, c) for one in series.tokens]) for c in ID_COLUMNS}
    columns |= {name: table.column(name, at) for name in question.carried}
    columns |= {"p": p[at].clip(question.clip, 1 - question.clip), "paid": payoff[at]}
    columns |= {"left_out": np.bincount(which, repeated, len(first)).astype(np.int64)}
    counts = np.bincount(which, minlength=len(first))
    columns |= {name: np.where(why[first] == i, counts, 0) for i, name in enumerate(("points", *LEFT_OUT))}
    return part.build(columns, len(first))


def _place(values: Floats) -> Ints:
    """The place of each value among all that there are."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


class _Opened(NamedTuple):
    """The forecasts of the first step, and rows that were left out, in groups.

    ``first`` has a row of each group of ``rows``, ``group`` the group of each forecast, and ``left`` the counts of what
    was left out of each group by reason.
    """

    rows: Rows
    forecasts: Forecasts
    first: Ints
    group: Ints
    left: dict[str, Ints]

    def each(self) -> list[Forecasts]:
        """The forecasts of each group."""
        return [self.forecasts.take(self.group == number) for number in range(len(self.first))]


def _opened(part: Native, question: _Question, names: Sequence[str]) -> _Opened:
    """The forecasts of the first step by groups of the columns ``names``, of which each has a forecast."""
    rows = Rows(in_memory(part), question.keys)
    first, group = rows.groups(names)
    points, *counts = (np.bincount(group, rows.table.numbers(n), len(first)) for n in ("points", *LEFT_OUT))
    for reason, of_groups in zip(LEFT_OUT, counts, strict=True):
        warn_of_left_out("price", reason, of_groups, points)
    kept = np.flatnonzero((points > 0) | (not names))
    first, group = first[kept], np.where(np.isin(group, kept), np.searchsorted(kept, group), -1)
    left = {n: of_groups[kept].astype(np.int64) for n, of_groups in zip(LEFT_OUT, counts, strict=True)}
    chosen = np.flatnonzero(rows.table.numbers("points") > 0)
    table = rows.table.take(chosen)
    market = codes_of(table, "market_id")
    p, paid, weight, left_out = (table.numbers(name) for name in ("p", "paid", "points", "left_out"))
    forecasts = Forecasts(market, p, paid, weight, left_out, Rows(table, question.keys).clusters())
    if question.unit != "token":
        ids = zip(*(table.texts(c, np.flatnonzero(forecasts.left_out > 0)) for c in ID_COLUMNS), strict=True)
        warn_of_mixed_labels(tokens := [*ids], np.arange(len(tokens)))
    return _Opened(rows, forecasts, first, group[chosen], left)


def _means(part: Native, *, question: _Question, name: str, loss: scores.Loss) -> Native:
    """The score of each market or token, and group."""
    names = [*_IDS[question.unit], *question.keys.by]
    rows, forecasts, first, group, left = _opened(part, question, names)
    points = np.bincount(group, forecasts.points, len(first))
    outcome, score = (
        group_sums(group, values * forecasts.points, len(first)) / points
        for values in (forecasts.paid, loss(forecasts.p, forecasts.paid))
    )
    columns: dict[str, Column] = {c: rows.column(c, first) for c in names}
    columns |= {"outcome": outcome} if question.unit == "token" else {}
    columns |= {"points": points.astype(np.int64), name: score}
    if question.unit == "market":
        columns["left_out"] = np.bincount(group, forecasts.left_out, len(first)).astype(np.int64)
    return rows.table.build(columns | left, len(first))


def _overall(part: Native, *, question: _Question, name: str, loss: scores.Loss) -> Native:
    """The score of each group, its interval and its parts."""
    opened = _opened(part, question, question.keys.by)
    rows, first, each = opened.rows, opened.first, opened.each()
    columns: dict[str, Column] = {c: rows.column(c, first) for c in question.keys.by}
    columns |= {"markets": np.array([one.markets for one in each], np.int64), "points": _total(each, "points")}
    parts = np.array([scores.parts(one, loss) for one in each], float).reshape(-1, 4).T
    columns[name] = parts[0]
    if question.sampling is not None:
        sampling, worst = question.sampling, float(loss(np.array(question.clip), np.array(1.0)))
        intervals = [one.interval(loss(one.p, one.paid), sampling, (0.0, worst)) for one in each]
        columns |= ends(f"{name}_", intervals)
        warn_of_intervals(name, sampling, [one for one, some in zip(intervals, each, strict=True) if len(some.p)])
    columns |= dict(zip(scores.Parts._fields[1:], parts[1:], strict=True))
    if loss is scores.squared_error:
        by_bins = [scores.murphy(one, _binned(one, _borders(_BINS))[1]) for one in each]
        columns |= dict(zip(scores.Murphy._fields, np.array(by_bins, float).reshape(-1, 3).T, strict=True))
    if question.sampling is not None:
        columns["cluster"] = [question.keys.clustered] * len(first)
    return rows.table.build(columns | {"left_out": _total(each, "left_out"), **opened.left}, len(first))


def _total(each: Sequence[Forecasts], name: str) -> Ints:
    return np.array([getattr(one, name).sum() for one in each], np.int64)


def _curves(part: Native, *, question: _Question, borders: Floats | str) -> Native:
    """The bins of each group."""
    opened = _opened(part, question, question.keys.by)
    rows, forecasts = opened.rows, opened.forecasts
    edges, at = _binned(forecasts, borders)
    first, group = combined([opened.group, at])
    each = [forecasts.take(group == number) for number in range(len(first))]
    columns: dict[str, Column] = {c: rows.column(c, opened.first[opened.group[first]]) for c in question.keys.by}
    columns |= {"bin_start": edges[at[first]], "bin_end": edges[at[first] + 1]}
    known = ["markets", "outcome_low", "outcome_high"] if question.sampling else []
    names = ["points", "forecast", "outcome", *known, "left_out"]
    table = np.array([scores.bin_summary(one, question.sampling) for one in each], float).reshape(-1, len(names)).T
    whole_numbers = ("points", "markets", "left_out")
    for name, values in zip(names, table, strict=True):
        columns[name] = values.astype(np.int64) if name in whole_numbers else values
    if question.sampling is not None:
        # If all markets of a group paid alike, no bin of it shows how often those at its prices pay.
        alike = np.array([len(np.unique(one.paid)) < 2 for one in opened.each()], bool)[opened.group[first]]
        for name in ("outcome_low", "outcome_high"):
            columns[name] = np.where(alike, np.nan, np.asarray(columns[name]))
        # A bin may well have few markets; a sample of few says little in any of its bins.
        clusters = [min(len(np.unique(way)) for way in one.clusters) for one in opened.each()]
        of_bins = [
            Interval.none("same outcome") if is_alike else Interval(0.0, 1.0, np.nan, clusters[group_], np.inf)
            for is_alike, group_ in zip(alike, opened.group[first].tolist(), strict=True)
        ]
        warn_of_intervals("outcome", question.sampling, of_bins)
        columns["cluster"] = [question.keys.clustered] * len(first)
    return rows.table.build(columns, len(first))


def _binned(forecasts: Forecasts, borders: Floats | str) -> tuple[Floats, Ints]:
    """The borders of bins, and the bin of each forecast."""
    if isinstance(borders, str):
        return scores.equal_counts(forecasts.p, forecasts.points, _EQUAL_COUNTS)
    at = np.searchsorted(borders, forecasts.p + TOLERANCE, side="right") - 1
    return borders, np.clip(at, 0, len(borders) - 2)


def _borders(bins: Any) -> Floats:
    """The borders of bins from 0 to 1; ConfigError for others."""
    if not isinstance(bins, Iterable):
        count = whole("bins", bins)
        return np.arange(count + 1) / count
    try:
        borders = np.array([*bins], float)
    except (TypeError, ValueError):
        borders = np.zeros(0)
    if len(borders) < 2 or borders[0] != 0 or borders[-1] != 1 or not (np.diff(borders) > 0).all():
        raise ConfigError(
            "is refused; allowed are a whole number, 'equal counts', and rising borders from 0 to 1, such as "
            "[0, 0.1, 0.5, 1].",
            argument="bins",
            value=bins,
        )
    return borders


def warn_of_open(markets: set[str], unresolved: set[str]) -> None:
    """OpenMarketsWarning where markets of a frame have not resolved."""
    if still_open := len(markets & unresolved):
        warn(
            f"{still_open} of {len(markets)} markets of the frame are open and left out. Where a question can end "
            "early on one outcome, those that have resolved so far are no fair sample.",
            OpenMarketsWarning,
            hint="Score only markets whose scheduled end (ends_at of md.outcomes) has passed, whether they ended early "
            "or not.",
        )
