"""Scores of prices as forecasts: Brier score, log score and calibration, with intervals over markets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import polars as pl
from narwhals.stable.v2.dependencies import is_dask_dataframe

from marketdata.errors import ConfigError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Floats
from marketdata.points.schema import ID_COLUMNS, TOLERANCE, Kind
from marketdata.tidy.backends import at_once, closed, read, run, source_of
from marketdata.tidy.engines import is_engine
from marketdata.tidy.measures import KINDS
from marketdata.tidy.outcomes import Payoffs, Tokens, tokens_of
from marketdata.tidy.returns import probability_of
from marketdata.tidy.table import EagerTable

F = TypeVar("F")
Of = Literal["token", "market", "all"]
Payoff = dict[tuple[str, str], float]
_KINDS: tuple[Kind, ...] = ("prices", *KINDS)
_P, _PAID, _ERROR, _TOKEN = "__p", "__paid", "__error", "__token"
_DRAWS = 200_000  # markets drawn at a time


def brier(
    frame: F, outcomes: Any, *, of: Of = "token", interval: float = 0.95, resamples: int = 1000, seed: int = 0
) -> F:
    """Mean squared error of prices (of books or bbo: mids) as forecasts of the outcomes.

    of="token": one row per token: ``market_id token_id token_label outcome points brier``: its payoff, the number of
    forecasts, mean((p - payoff)^2) [0 to 1; 0.25: always 0.5]. of="market": one row per market: ``market_id points
    brier``. of="all": one row: ``markets points brier brier_low brier_high``. Null prices are no forecasts. Cut the
    frame to the forecasts you mean: prices shortly before the end are good ones. Brier (1950), "Verification of
    forecasts expressed in terms of probability".

    Forecasts within a market are autocorrelated, so the interval is a percentile bootstrap over markets, null with
    fewer than two. Cameron, Gelbach, Miller (2008), "Bootstrap-based improvements for inference with clustered errors".

    Parameters
    ----------
    outcomes : frame or mapping
        The result of `outcomes`, market records, or a mapping of market id to the token that won, by id or label, None
        while it is open. Other markets, and open ones, are left out.
    of : {"token", "market", "all"}
        What a row is about. The tokens of a two-token market are the same forecast: except for "token" one counts: Yes,
        or the first of the market's record; of a mapping, which has no order, the one with the smallest id.
    interval, resamples, seed
        Of "all": probability that the interval covers [0 to 1], number of bootstrap samples, and their seed.

    Examples
    --------
    >>> prices, markets = md.testing.prices("polars", buckets=1), md.testing.markets("polars")
    >>> md.brier(prices, markets).select("token_label", "outcome", "points", "brier").rows()
    [('Yes', 1.0, 1, 0.36), ('No', 0.0, 1, 0.36)]
    """
    error = (pl.col(_P) - pl.col(_PAID)) ** 2
    return _score(frame, outcomes, of, interval, resamples, seed, name="brier", error=error)  # type: ignore[no-any-return]


def log_score(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "token",
    clip: float = 1e-6,
    interval: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean negative log-likelihood of the outcomes by the prices: mean(-payoff ln p - (1 - payoff) ln(1 - p)).

    Rows, parameters and errors as `brier`, with ``log_score`` in place of ``brier`` [natural logarithm; 0.693: always
    0.5]. Prices are clipped to ``clip`` and 1 - ``clip`` [above 0, below 0.5], as 0 for the winner would score
    infinity. Good (1952), "Rational decisions".
    """
    least = number("clip", clip)
    if least >= 0.5:
        raise ConfigError(f"clip={clip!r} is refused; allowed are numbers above 0 and below 0.5.")
    p = pl.col(_P).clip(least, 1 - least)
    error = (pl.col(_PAID) - 1) * (1 - p).log() - pl.col(_PAID) * p.log()
    return _score(frame, outcomes, of, interval, resamples, seed, name="log_score", error=error)  # type: ignore[no-any-return]


def calibration(
    frame: F,
    outcomes: Any,
    bins: int = 10,
    *,
    of: Literal["token", "market"] = "token",
    interval: float | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """How often tokens priced at p won.

    One row per bin that has a forecast: ``bin_start bin_end points forecast outcome``: borders [start, end) (the last
    with 1) of ``bins`` equal bins from 0 to 1, number of forecasts, their mean, and the share that came true. With
    ``interval`` also ``markets outcome_low outcome_high``: the markets in the bin, and the bootstrap interval of the
    share over markets; other parameters and errors as `brier`.

    Examples
    --------
    >>> prices, markets = md.testing.prices("polars", markets=2, buckets=1), md.testing.markets("polars", markets=2)
    >>> md.calibration(prices, markets, bins=5, of="market").select("bin_start", "points", "forecast", "outcome").rows()
    [(0.4, 2, 0.45, 0.5)]
    """
    if of not in ("token", "market"):
        raise ConfigError(f"of={of!r} does not exist; allowed are 'token' and 'market'.")
    count, resamples, seed = whole("bins", bins), whole("resamples", resamples), whole("seed", seed, least=0)
    share = None if interval is None else _share(interval)
    frame = read(frame)
    counted = _counting(frame, outcomes, of)
    at = (pl.col(_P) * count + TOLERANCE).floor()
    bin_ = pl.when(at >= count).then(count - 1.0).otherwise(pl.when(at < 0).then(0.0).otherwise(at))
    sums = partial(_sums, counted=counted, ids=ID_COLUMNS[:1], bins=bin_)
    finish = partial(_curve, count=count, share=share, resamples=resamples, seed=seed)
    return _in_two_steps(frame, sums, finish)  # type: ignore[no-any-return]


def _score(
    frame: Any, outcomes: Any, of: Of, interval: float, resamples: int, seed: int, *, name: str, error: pl.Expr
) -> Any:
    share, resamples, seed = _share(interval), whole("resamples", resamples), whole("seed", seed, least=0)
    frame = read(frame)
    counted = _counting(frame, outcomes, of)
    ids = {"token": ID_COLUMNS, "market": ID_COLUMNS[:1], "all": ID_COLUMNS[:1]}[of]
    sums = partial(_sums, counted=counted, ids=ids, error=error)
    if of == "all":
        finish = partial(_overall, name=name, share=share, resamples=resamples, seed=seed)
        return _in_two_steps(frame, sums, finish)
    return run(frame, partial(_means, sums=sums, ids=ids, name=name), _KINDS, together="market")


def _share(interval: float) -> float:
    if number("interval", interval) >= 1:
        raise ConfigError(f"interval={interval!r} is refused; allowed are numbers above 0 and below 1.")
    return float(interval)


def _counting(frame: Any, outcomes: Any, of: str) -> Callable[[Tokens], Payoff]:
    """The payoffs of those of given tokens whose forecasts count; looked up here for a frame that is not in memory."""
    if of not in get_args(Of):
        raise ConfigError(f"of={of!r} does not exist; allowed are {', '.join(map(repr, get_args(Of)))}.")
    count = partial(_counted, outcomes=outcomes, of=of)
    if source_of(frame) is not None:
        return count
    known = count(tokens_of(frame))
    return lambda _: known


def _counted(tokens: Tokens, *, outcomes: Any, of: str) -> Payoff:
    tokens = list(tokens)
    known = Payoffs(outcomes, tokens)
    payoffs = known.payoff
    if of != "token":
        by_market = defaultdict(list)
        for market, token, label in tokens:
            is_yes, is_first = str(label).casefold() == "yes", token == known.first.get(market)
            by_market[market].append((not is_yes, not is_first, token))
        for market, held in by_market.items():
            if len(held) == 2:
                payoffs.pop((market, max(held)[-1]), None)
    return payoffs


def _sums(
    table: EagerTable,
    *,
    counted: Callable[[Tokens], Payoff],
    ids: Sequence[str],
    error: pl.Expr | None = None,
    bins: pl.Expr | None = None,
) -> pl.DataFrame:
    """Number of forecasts by ids (and bin), and sums of the forecasts, their payoffs and their errors."""
    of_rows = {_ERROR: error} if error is not None else {}
    by = {"bin": bins} if bins is not None else {}
    sums = [pl.col(c).sum() for c in (_P, _PAID, *of_rows)]
    table, value = probability_of(table)
    heads = table.take(table.groups)
    paid = counted(zip(*(heads.texts(c) for c in ID_COLUMNS), strict=True))
    payoff = [paid.get(token, np.nan) for token in zip(*(heads.texts(c) for c in ID_COLUMNS[:2]), strict=True)]
    # Rows are added up by the number of their token, a sorted column, and then by ids.
    number_of = table.token_numbers
    columns = {
        _TOKEN: pl.Series(number_of).set_sorted(),
        _P: table.array(value),
        _PAID: np.array(payoff, float)[number_of],
    }
    data = pl.DataFrame(columns, nan_to_null=True).drop_nulls()
    rows = data.with_columns(**of_rows, **by).group_by(_TOKEN, *by)
    small = rows.agg(pl.len().cast(pl.Int64).alias("points"), *sums)
    owners = [heads.column(c).gather(small[_TOKEN]) for c in ids]
    return small.with_columns(*owners).group_by(*ids, *by).agg(pl.col("points", _P, _PAID, *of_rows).sum())


def _means(
    table: EagerTable, *, sums: Callable[[EagerTable], pl.DataFrame], ids: tuple[str, ...], name: str
) -> pl.DataFrame:
    out = sums(table).with_columns((pl.col(_PAID) / pl.col("points")).alias("outcome"))
    out = out.with_columns((pl.col(_ERROR) / pl.col("points")).alias(name))
    outcome = ("outcome",) if "token_id" in ids else ()
    return out.select(*ids, *outcome, "points", name).sort(*ids, nulls_last=True)


def _in_two_steps(
    frame: Any, sums: Callable[[EagerTable], pl.DataFrame], finish: Callable[[pl.DataFrame], pl.DataFrame]
) -> Any:
    """The sums of each market where the frame is, and what is made of all of them in one place."""
    if is_dask_dataframe(frame) or is_engine(frame):
        first = run(frame, sums, _KINDS, together="market")
        return at_once(first, partial(_finished, finish=finish))
    return run(frame, lambda table: finish(sums(table)), _KINDS, together="all")


def _finished(part: Any, finish: Callable[[pl.DataFrame], pl.DataFrame]) -> Any:
    source = source_of(part)
    columns = {c: source.raw(c) for c in source.names}
    return closed(finish(pl.DataFrame(columns)), part)


def _overall(sums: Any, *, name: str, share: float, resamples: int, seed: int) -> Any:
    sums = sums.sort(pl.col("market_id").cast(pl.String))
    errors, points = (sums[c].to_numpy().astype(float)[:, None] for c in (_ERROR, "points"))
    low, high = bootstrap(errors, points, share, resamples, seed)
    row = {"markets": [len(sums)], "points": [int(points.sum())]}
    mean = errors.sum(axis=0) / points.sum(axis=0) if len(sums) else np.full(1, np.nan)
    values = {name: mean, f"{name}_low": low, f"{name}_high": high}
    return pl.DataFrame(row).with_columns(pl.Series(c, v, dtype=pl.Float64).fill_nan(None) for c, v in values.items())


def _curve(sums: Any, *, count: int, share: float | None, resamples: int, seed: int) -> Any:
    out = sums.group_by("bin").agg(pl.col("points", _P, _PAID).sum(), markets=pl.len().cast(pl.Int64)).sort("bin")
    out = out.with_columns(
        bin_start=pl.col("bin") / count,
        bin_end=(pl.col("bin") + 1) / count,
        forecast=pl.col(_P) / pl.col("points"),
        outcome=pl.col(_PAID) / pl.col("points"),
    )
    names = ["bin_start", "bin_end", "points", "forecast", "outcome"]
    if share is None:
        return out.select(names)
    markets = sums["market_id"].cast(pl.String)
    row = np.searchsorted(np.unique(markets.to_numpy()), markets.to_numpy())
    column = np.searchsorted(out["bin"].to_numpy(), sums["bin"].to_numpy())
    paid, points = (np.zeros((int(row.max(initial=-1)) + 1, len(out))) for _ in range(2))
    paid[row, column], points[row, column] = sums[_PAID].to_numpy(), sums["points"].to_numpy()
    low, high = bootstrap(paid, points, share, resamples, seed)
    ends = [pl.Series(c, v, dtype=pl.Float64).fill_nan(None) for c, v in (("outcome_low", low), ("outcome_high", high))]
    return out.with_columns(ends).select(*names, "markets", "outcome_low", "outcome_high")


def bootstrap(total: Floats, weight: Floats, share: float, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Percentile interval, per column, of the ratio of sums over markets drawn with replacement; NaN below two."""
    markets = len(total)
    enough = (weight > 0).sum(axis=0) >= 2
    low, high = (np.full(total.shape[1], np.nan) for _ in range(2))
    if enough.any():
        rng, ratios = np.random.default_rng(seed), []
        step = max(1, _DRAWS // markets)
        for first in range(0, resamples, step):
            drawn = rng.multinomial(markets, np.full(markets, 1 / markets), size=min(step, resamples - first))
            over = drawn @ weight[:, enough]
            # A sample without a market of a bin says nothing about the bin.
            ratios.append(np.divide(drawn @ total[:, enough], over, out=np.full(over.shape, np.nan), where=over > 0))
        tail = (1 - share) / 2
        low[enough], high[enough] = np.nanquantile(np.concatenate(ratios), [tail, 1 - tail], axis=0)
    return low, high
