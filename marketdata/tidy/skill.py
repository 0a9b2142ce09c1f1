"""Forecasts against a reference: how much better, in pairs of the same market and time."""

from __future__ import annotations

from typing import Any

import numpy as np

from marketdata.adapters.dispatch import F, as_kind_of, in_memory, names_of, read
from marketdata.adapters.frame import Column, Frame
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import scores
from marketdata.points.arguments import number
from marketdata.points.asof import first_from
from marketdata.points.columns import Floats, Series
from marketdata.points.intervals import Sampling
from marketdata.points.left_out import choose, warn_of_left_out
from marketdata.points.mirrors import warn_of_mixed_labels
from marketdata.points.probability import refuse_cents
from marketdata.points.scores import Forecasts
from marketdata.tidy.groups import By, Cluster, Keys, Rows, codes_of
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.outcomes import Payoffs
from marketdata.tidy.returns import probability_of
from marketdata.tidy.scores import FORECAST_KINDS, LEFT_OUT, clip_of, warn_of_open

_LOSSES: dict[str, scores.Loss] = {"brier": scores.squared_error, "log_score": scores.log_loss}


def skill(
    frame: F,
    outcomes: Any,
    *,
    reference: Any,
    by: By = None,
    cluster: Cluster = None,
    clip: float = 1e-6,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Brier and log score of forecasts beside the scores of a reference forecast, in pairs.

    A forecast counts where the reference has one of the same token and time. Both are in memory.

    Parameters
    ----------
    frame
        Prices of any kind of frame, or books or bbo, whose mids count.
    outcomes : frame or mapping
        As for `brier`.
    reference : frame, str or float
        Another such frame, a column of ``frame``, or one forecast for all, such as 0.5.
    by, cluster, interval, resamples, seed
        As for `brier`.
    clip : float
        As for `log_score`.

    Returns
    -------
    frame
        Two rows, of "brier" and of "log_score"; with ``by`` per group, whose columns come first.

        - ``score``: its name.
        - ``markets points``: markets and pairs of forecasts.
        - ``forecast reference``: the mean score of each.
        - ``difference``: reference - forecast; above 0 the forecasts are better.
        - ``difference_low difference_high``: its interval, from pairs and over clusters, null as for `brier`.
        - ``skill``: 1 - forecast / reference [1: perfect; 0: as the reference].
        - ``cluster``: how rows were clustered, only with ``interval``.
        - ``left_out``: forecasts of the other token that repeat them.
        - ``nulls after_close not_observed``: as for `brier`. ``unpaired``: forecasts without a reference.

    Warns
    -----
    FewMarketsWarning, MissingValuesWarning, MixedLabelsWarning, OpenMarketsWarning
        As for `brier`. MissingValuesWarning also where more than 5 percent of the forecasts have no reference.

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=3)
    >>> markets = md.testing.markets("polars", markets=3)
    >>> both = md.skill(prices, markets, reference=0.5, interval=None)
    >>> both.select("score", "points", pl.col("skill").round(3)).rows()
    [('brier', 9, -0.01), ('log_score', 9, -0.007)]
    """
    frame, sampling, least = read(frame), Sampling.of(interval, resamples, seed), clip_of(clip)
    present = names_of(frame)
    keys = Keys.of(by, cluster, present, outcomes)
    table = in_memory(frame, FORECAST_KINDS)
    table, series, name = probability_of(table)
    other = _reference(table, series, reference)
    resolved = Payoffs(outcomes, series.tokens)
    warn_of_open({token.market_id for token in series.tokens}, resolved.open)
    p, paid = series.values[name], resolved.of(series.tokens)[series.token]
    chosen = choose(
        series.tokens, series.token, series.ts, known=~np.isnan(paid), records=resolved.records,
        each_token=table.kind == "trades",  # as for `brier`
        out={
            "after_close": series.ts >= resolved.over(series.tokens)[series.token],
            "not_observed": ~table.observed(), "nulls": np.isnan(p), "unpaired": np.isnan(other),
        },
    )  # fmt: skip
    known, repeated = chosen.rows, chosen.repeated.astype(float)
    warn_of_mixed_labels(series.tokens, series.token[known[chosen.repeated]])
    every = Rows(table.take(np.concatenate((known, chosen.left))), keys).groups(keys.by)[1]
    rows = Rows(table.take(known), keys)
    market = codes_of(rows.table, "market_id")
    forecasts = Forecasts(market, p[known], paid[known], np.ones(len(known)), repeated, rows.clusters())
    first, group = rows.groups(keys.by)
    # Groups without a pair have no row.
    of_group = {number: place for place, number in enumerate(every[first].tolist())}
    left_group = np.array([of_group.get(number, -1) for number in every[len(known) :].tolist()], np.int64)
    left = {
        reason: np.bincount(left_group[(chosen.why == reason) & (left_group >= 0)], minlength=len(first))
        for reason in (*LEFT_OUT, "unpaired")
    }
    for reason, counts in left.items():
        warn_of_left_out("price", reason, counts, np.bincount(group, minlength=len(first)))
    each = [np.flatnonzero(group == n) for n in range(len(first))]
    results = [_compared(forecasts.take(at), other[known][at], loss, least, sampling)
               for at in each for loss in _LOSSES.values()]  # fmt: skip
    columns: dict[str, Column] = {c: rows.column(c, np.repeat(first, len(_LOSSES))) for c in keys.by}
    columns["score"] = [*_LOSSES] * len(each)
    numbers = np.array([row for row, _ in results], float).reshape(-1, 6).T
    names = ("markets", "points", "forecast", "reference", "difference", "left_out")
    made = dict(zip(names, numbers, strict=True))
    columns |= {c: made[c].astype(np.int64) if c in ("markets", "points") else made[c] for c in names[:5]}
    if sampling is not None:
        intervals = [one for _, one in results if one is not None]
        columns |= ends("difference_", intervals)
        warn_of_intervals("difference", sampling, [one for one, n in zip(intervals, made["points"], strict=True) if n])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = 1 - made["forecast"] / made["reference"]
    columns["skill"] = np.where(made["reference"] > 0, share, np.nan)
    if sampling is not None:
        columns["cluster"] = [keys.clustered] * len(results)
    columns["left_out"] = made["left_out"].astype(np.int64)
    columns |= {reason: np.repeat(counts, len(_LOSSES)) for reason, counts in left.items()}
    return as_kind_of(frame, columns, len(results))  # type: ignore[no-any-return]


def _compared(
    forecasts: Forecasts, reference: Floats, loss: scores.Loss, least: float, sampling: Sampling | None
) -> tuple[list[float], Any]:
    """Counts, scores and their difference for pairs of forecasts, and the interval of the difference."""
    is_log = loss is scores.log_loss
    own, other = (loss(p.clip(least, 1 - least) if is_log else p, forecasts.paid) for p in (forecasts.p, reference))
    worst = float(loss(np.array(least if is_log else 0.0), np.array(1.0)))
    got = None if sampling is None else forecasts.interval(other - own, sampling, (-worst, worst))
    means = [forecasts.mean(own), forecasts.mean(other), forecasts.mean(other - own)]
    return [forecasts.markets, len(own), *means, forecasts.left_out.sum()], got


def _reference(table: Frame, series: Series, given: Any) -> Floats:
    """The reference forecast at each entry of the forecasts, NaN where there is none."""
    if isinstance(given, str):
        if given not in table.names or not table.is_number(given):
            raise NotTidyError(
                f"reference={given!r} is no column of numbers of the frame; it has {', '.join(table.names)}."
            )
        values = table.numbers(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        if not 0 <= number("reference", given, least=0) <= 1:
            raise ConfigError("is refused; allowed are numbers from 0 to 1.", argument="reference", value=given)
        return np.full(len(series), float(given))
    else:
        _, other, name = probability_of(in_memory(given, FORECAST_KINDS))
        place = {token[:2]: i for i, token in enumerate(other.tokens)}
        token = np.array([place.get(one[:2], -1) for one in series.tokens], np.int64)[series.token]
        row = first_from(token, series.ts, other.token, other.ts, tolerance=0)
        return np.where(row < 0, np.nan, np.append(other.values[name], np.nan)[row])
    refuse_cents(**{given: values})
    return values
