"""Scores of prices as forecasts: Brier score, log score and calibration, with intervals over markets."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import polars as pl

from marketdata.adapters import frames
from marketdata.adapters.dispatch import at_once, in_memory, is_dask, is_in_memory, read, run
from marketdata.adapters.engines import is_engine
from marketdata.adapters.frame import Frame
from marketdata.errors import ConfigError, FewMarketsWarning, NotTidyError, OpenMarketsWarning, warn
from marketdata.points import scores
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Series
from marketdata.points.schema import ID_COLUMNS, TOLERANCE, Kind
from marketdata.tidy.measures import KINDS
from marketdata.tidy.outcomes import Payoffs, Tokens, resolution_times, tokens_of
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of
from marketdata.times import SECOND, to_duration

F = TypeVar("F")
Of = Literal["token", "market", "all"]
By = str | Iterable[str] | None
Horizons = str | dt.timedelta | Iterable[str | dt.timedelta] | None
Payoff = dict[tuple[str, str], float]
_KINDS: tuple[Kind, ...] = ("prices", *KINDS)
_P, _PAID, _ERROR, _TOKEN, _HORIZON, _BIN = "__p", "__paid", "__error", "__token", "__horizon", "__bin"
_PARTS = ("miscalibration", "discrimination", "uncertainty")


def brier(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "token",
    by: By = None,
    horizons: Horizons = None,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean squared error of prices (of books or bbo: mids) as forecasts of the outcomes.

    of="token": one row per token: ``market_id token_id token_label outcome points brier``: its payoff, the number of
    forecasts, mean((p - payoff)^2) [0 to 1; 0.25: always 0.5]. of="market": one row per market: ``market_id points
    brier``. of="all": one row: ``markets points brier brier_low brier_high miscalibration discrimination uncertainty``,
    of which miscalibration - discrimination + uncertainty is the score. With ``by`` or ``horizons`` one such row per
    group. Null prices are no forecasts. Brier (1950), "Verification of forecasts expressed in terms of probability".

    Miscalibration is what the best rising function of the prices would gain, discrimination what these gain over the
    base rate, whose score is the uncertainty. Dimitriadis, Gneiting, Jordan (2021), "Stable reliability diagrams for
    probabilistic classifiers".

    Forecasts within a market are autocorrelated, so the interval is a studentized bootstrap over markets, with the
    error of the jackknife; null with fewer than two, FewMarketsWarning below 10. Cameron, Gelbach, Miller (2008),
    "Bootstrap-based improvements for inference with clustered errors". OpenMarketsWarning of "all" if markets of the
    frame are open.

    Parameters
    ----------
    outcomes : frame or mapping
        The result of `outcomes`, market records, or a mapping of market id to the token that won, by id or label, None
        while it is open, or to the payoff of each token. Other markets, and open ones, are left out.
    of : {"token", "market", "all"}
        What a row is about. The tokens of a two-token market are the same forecast: except for "token" one counts: Yes,
        or the first of the market's record; of a mapping, which has no order, the one with the smallest id.
    by : str or list of str, optional
        Columns of ``outcomes``, a frame, to group markets by, such as "event_slug" of market records.
    horizons : list of str or timedelta, optional
        Borders of the time to resolution (see `time_to_resolution`), rising, such as ["1h", "1d", "1w"]. Groups are
        below the first, between two, and from the last: ``horizon_start horizon_end`` [s], the last end null. Rows
        after the resolution, and markets without its time, are left out.
    interval : float or None
        Of "all": probability that the interval covers [0 to 1]; None leaves it out.
    resamples, seed
        Of "all": number of bootstrap samples, and their seed.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1)
    >>> markets = md.testing.markets("polars")
    >>> scores = md.brier(prices, markets)
    >>> scores.select("token_label", "outcome", "points", "brier").rows()
    [('Yes', 1.0, 1, 0.36), ('No', 0.0, 1, 0.36)]
    >>> scores = md.brier(prices, markets, of="market", horizons=["1h", "1d"])
    >>> scores.select("horizon_start", "brier").rows()
    [(86400.0, 0.36)]
    """
    options = _options(of, outcomes, by, horizons, interval, resamples, seed)
    return _score(frame, options, "brier", scores.squared_error, (0.0, 1.0))  # type: ignore[no-any-return]


def log_score(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "token",
    by: By = None,
    horizons: Horizons = None,
    clip: float = 1e-6,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean negative log-likelihood of the outcomes by the prices: mean(-payoff ln p - (1 - payoff) ln(1 - p)).

    Rows, parameters, errors and warnings as `brier`, with ``log_score`` in place of ``brier`` [natural logarithm;
    0.693: always 0.5]. Prices are clipped to ``clip`` and 1 - ``clip`` [above 0, below 0.5], as 0 for the winner would
    score infinity. Good (1952), "Rational decisions".
    """
    least = number("clip", clip)
    if least >= 0.5:
        raise ConfigError(f"clip={clip!r} is refused; allowed are numbers above 0 and below 0.5.")
    options = _options(of, outcomes, by, horizons, interval, resamples, seed)
    return _score(frame, options, "log_score", scores.log_loss, (0.0, -float(np.log(least))), least)  # type: ignore[no-any-return]


def calibration(
    frame: F,
    outcomes: Any,
    bins: int = 10,
    *,
    of: Literal["token", "market"] = "token",
    by: By = None,
    horizons: Horizons = None,
    interval: float | None = None,
) -> F:
    """How often tokens priced at p won.

    One row per bin that has a forecast: ``bin_start bin_end points forecast outcome``: borders [start, end) (the last
    with 1) of ``bins`` equal bins from 0 to 1, number of forecasts, their mean, and the share that came true (the mean
    payoff). With ``interval`` also ``markets outcome_low outcome_high``: the markets in the bin, and the interval of
    the share over markets, null with fewer than two; with ``by`` or ``horizons`` such rows per group. Other parameters,
    errors and warnings as `brier`.

    The interval is Wilson's, with as many markets as weigh the same as those of the bin: (sum w)^2 / sum w^2 of w
    forecasts each. Wilson (1927), "Probable inference"; Kish (1965), "Survey sampling".

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> markets = md.testing.markets("polars", markets=2)
    >>> bins = md.calibration(prices, markets, bins=5, of="market")
    >>> bins.select("bin_start", "points", "forecast", "outcome").rows()
    [(0.4, 2, 0.45, 0.5)]
    """
    if of not in ("token", "market"):
        raise ConfigError(f"of={of!r} does not exist; allowed are 'token' and 'market'.")
    count = whole("bins", bins)
    options = _options(of, outcomes, by, horizons, interval)
    frame = read(frame)
    counted = _counting(frame, options, together=True)
    finish = partial(_curves, options=options, count=count)
    small = partial(_forecasts, counted=counted, groups=options.groups, bins=count)
    return _in_two_steps(frame, small, finish)  # type: ignore[no-any-return]


class _Groups(NamedTuple):
    """What forecasts are grouped by beside their ids: columns of the outcomes, and the time to resolution."""

    by: Mapping[str, tuple[Mapping[str, Any], pl.DataType]]
    edges: tuple[int, ...] | None
    ends: Mapping[str, int]

    @property
    def names(self) -> list[str]:
        return [*self.by, *(() if self.edges is None else ("horizon_start", "horizon_end"))]

    @property
    def keys(self) -> list[str]:
        return [*self.by, *(() if self.edges is None else (_HORIZON,))]

    def of_rows(self, series: Series) -> dict[str, pl.Series]:
        """The horizon of each row, from 0; null after the resolution and without its time."""
        if self.edges is None:
            return {}
        ends = np.array([self.ends.get(market, -1) for market, *_ in series.tokens], np.int64)
        end = ends[series.token]
        left = end - series.ts
        at = np.searchsorted(np.array(self.edges), left, side="right") - 1
        return {_HORIZON: pl.select(pl.when(pl.Series((end >= 0) & (left >= 0))).then(pl.Series(at))).to_series()}

    def of_markets(self, series: Series) -> list[pl.Series]:
        """The columns of the outcomes for each token."""
        return [
            pl.Series(name, [of_market.get(t.market_id) for t in series.tokens], dtype=dtype)
            for name, (of_market, dtype) in self.by.items()
        ]

    def named(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with the borders of their horizon."""
        if self.edges is None:
            return rows
        borders = pl.Series([edge / SECOND for edge in self.edges] + [None], dtype=pl.Float64)
        start, end = (borders.gather(rows[_HORIZON] + k) for k in (0, 1))
        return rows.with_columns(start.alias("horizon_start"), end.alias("horizon_end"))


class _Options(NamedTuple):
    of: str
    outcomes: Any
    groups: _Groups
    share: float | None
    resamples: int
    seed: int


def _options(
    of: str, outcomes: Any, by: By, horizons: Horizons, interval: float | None, resamples: int = 1, seed: int = 0
) -> _Options:
    """The arguments of a score, checked before a frame is read."""
    if of not in get_args(Of):
        raise ConfigError(f"of={of!r} does not exist; allowed are {', '.join(map(repr, get_args(Of)))}.")
    if interval is not None and number("interval", interval) >= 1:
        raise ConfigError(f"interval={interval!r} is refused; allowed are numbers above 0 and below 1.")
    share = None if interval is None else float(interval)
    draws, start = whole("resamples", resamples), whole("seed", seed, least=0)
    edges = None if horizons is None else _edges(horizons)
    ends = {} if edges is None else resolution_times(outcomes)
    return _Options(of, outcomes, _Groups(_columns_by(outcomes, by), edges, ends), share, draws, start)


def _edges(horizons: Horizons) -> tuple[int, ...]:
    given = [horizons] if isinstance(horizons, str | dt.timedelta) else list(horizons or ())
    edges = (0, *(to_duration(one, "horizons") for one in given))
    if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)):
        raise ConfigError(f"horizons={horizons!r} is refused; allowed are durations that rise, as ['1h', '1d', '1w'].")
    return edges


def _columns_by(outcomes: Any, by: By) -> dict[str, tuple[dict[str, Any], pl.DataType]]:
    """Columns of a frame of outcomes or records, by market, with their types."""
    names = [by] if isinstance(by, str) else list(by or ())
    if not names:
        return {}
    if isinstance(outcomes, Mapping):
        raise ConfigError(
            f"by={by!r} is a column of market records, and outcomes is a mapping; pass a frame of records."
        )
    data = columns_of(outcomes, ["market_id", *names], "a frame of market records with the columns of by")
    if lacking := sorted({"market_id", *names} - data.keys()):
        raise NotTidyError(f"outcomes has no column {', '.join(map(repr, lacking))}, which by={by!r} needs.")
    out = {}
    for name in names:
        of_market: dict[str, Any] = {}
        for market, value in zip(data["market_id"], data[name], strict=True):
            if name in ID_COLUMNS or isinstance(value, list | tuple | np.ndarray | pl.Series):
                raise ConfigError(f"by={name!r} is refused; allowed are columns with one value per market.")
            if of_market.setdefault(market, value) != value:
                raise NotTidyError(f"{name} has two values for market {market!r}: {of_market[market]!r} and {value!r}.")
        out[name] = (of_market, pl.Series(list(of_market.values())).dtype)
    return out


def _score(
    frame: Any, options: _Options, name: str, loss: scores.Loss, bounds: tuple[float, float], clip: float | None = None
) -> Any:
    frame = read(frame)
    counted = _counting(frame, options, together=options.of == "all")
    if options.of == "all":
        finish = partial(_overall, options=options, name=name, loss=loss, bounds=bounds)
        return _in_two_steps(frame, partial(_forecasts, counted=counted, groups=options.groups, clip=clip), finish)
    ids = ID_COLUMNS if options.of == "token" else ID_COLUMNS[:1]
    means = partial(_means, counted=counted, groups=options.groups, ids=ids, name=name, loss=loss, clip=clip)
    return run(frame, means, _KINDS, together="market")


def _counting(frame: Any, options: _Options, *, together: bool) -> Callable[[Tokens], Payoff]:
    """The payoffs of those of given tokens whose forecasts count; looked up here for a frame that is not in memory."""
    count = partial(_counted, outcomes=options.outcomes, of=options.of, together=together)
    if is_in_memory(frame):
        return count
    known = count(tokens_of(frame))
    return lambda _: known


def _counted(tokens: Tokens, *, outcomes: Any, of: str, together: bool) -> Payoff:
    tokens = list(tokens)
    known = Payoffs(outcomes, tokens)
    payoffs = known.payoff
    markets = {market for market, *_ in tokens}
    if together and (still := len(markets & known.open)):
        warn(
            f"{still} of {len(markets)} markets of the frame are open and left out. Where a question can end early on "
            "one outcome, those that have resolved so far are no fair sample.",
            OpenMarketsWarning,
            hint="Score only markets whose scheduled end (ends_at of md.outcomes) has passed, whether they ended early "
            "or not.",
        )
    if of != "token":
        by_market = defaultdict(list)
        for market, token, label in tokens:
            is_yes, is_first = str(label).casefold() == "yes", token == known.first.get(market)
            by_market[market].append((not is_yes, not is_first, token))
        for market, ranked in by_market.items():
            if len(ranked) == 2:
                payoffs.pop((market, max(ranked)[-1]), None)
    return payoffs


def _rows(
    frame: Frame,
    counted: Callable[[Tokens], Payoff],
    groups: _Groups,
    clip: float | None,
    loss: scores.Loss | None = None,
) -> tuple[Series, pl.DataFrame]:
    """The prices, and of each forecast that counts its token, value, payoff, horizon and loss."""
    series, value = probability_of(frame)
    tokens = [(market, str(token), label) for market, token, label in series.tokens]
    paid = counted(tokens)
    payoff = [paid.get(token[:2], np.nan) for token in tokens]
    # Rows are added up by the number of their token, a sorted column, and then by ids.
    p, y = series.values[value], np.array(payoff, float)[series.token]
    p = p if clip is None else np.clip(p, clip, 1 - clip)
    columns = {_TOKEN: pl.Series(series.token).set_sorted(), _P: p, _PAID: y}
    if loss is not None:
        columns[_ERROR] = loss(p, y)
    return series, pl.DataFrame({**columns, **groups.of_rows(series)}, nan_to_null=True).drop_nulls()


def _ids(series: Series, names: Sequence[str]) -> list[pl.Series]:
    """The ids of each token."""
    return [pl.Series(name, [getattr(t, name) for t in series.tokens], dtype=pl.Categorical) for name in names]


def _means(
    frame: Frame,
    *,
    counted: Callable[[Tokens], Payoff],
    groups: _Groups,
    ids: Sequence[str],
    name: str,
    loss: scores.Loss,
    clip: float | None,
) -> Any:
    series, rows = _rows(frame, counted, groups, clip, loss)
    of_rows = [c for c in groups.keys if c == _HORIZON]
    small = rows.group_by(_TOKEN, *of_rows).agg(pl.len().cast(pl.Int64).alias("points"), pl.col(_PAID, _ERROR).sum())
    owners = [one.gather(small[_TOKEN]) for one in (*_ids(series, ids), *groups.of_markets(series))]
    sums = small.with_columns(*owners).group_by(*ids, *groups.keys).agg(pl.col("points", _PAID, _ERROR).sum())
    out = groups.named(sums.sort(*ids, *groups.keys, nulls_last=True))
    means = [(pl.col(c) / pl.col("points")).alias(n) for c, n in ((_PAID, "outcome"), (_ERROR, name))]
    outcome = ("outcome",) if "token_id" in ids else ()
    return frames.of_table(frame, out.with_columns(means).select(*ids, *groups.names, *outcome, "points", name))


def _forecasts(
    frame: Frame,
    *,
    counted: Callable[[Tokens], Payoff],
    groups: _Groups,
    clip: float | None = None,
    bins: int | None = None,
) -> pl.DataFrame:
    """The forecasts that count: how many are of the same market, group, value and payoff; or sums of those in a bin."""
    series, rows = _rows(frame, counted, groups, clip)
    keys, sums = [_P, _PAID], [pl.len().cast(pl.Int64).alias("points")]
    if bins is not None:
        at = np.clip(np.floor(rows[_P].to_numpy() * bins + TOLERANCE), 0, bins - 1)
        rows, keys, sums = rows.with_columns(pl.Series(_BIN, at)), [_BIN], [*sums, pl.col(_P, _PAID).sum()]
    keys += [c for c in groups.keys if c == _HORIZON]
    small = rows.group_by(_TOKEN, *keys).agg(sums)
    owners = [one.gather(small[_TOKEN]) for one in (*_ids(series, ["market_id"]), *groups.of_markets(series))]
    return small.with_columns(*owners).group_by("market_id", *groups.by, *keys).agg(pl.exclude(_TOKEN).sum())


def _in_two_steps(
    frame: Any, small: Callable[[Frame], pl.DataFrame], finish: Callable[[pl.DataFrame], pl.DataFrame]
) -> Any:
    """The forecasts of each market where the frame is, and what is made of all of them in one place."""
    if is_dask(frame) or is_engine(frame):
        first = run(frame, partial(_small, small=small), _KINDS, together="market")
        return at_once(first, partial(_finished, finish=finish))
    return run(frame, lambda own: frames.of_table(own, finish(small(own))), _KINDS, together="all")


def _small(frame: Frame, small: Callable[[Frame], pl.DataFrame]) -> Any:
    return frames.of_table(frame, small(frame))


def _finished(part: Any, finish: Callable[[pl.DataFrame], pl.DataFrame]) -> Any:
    frame = in_memory(part)
    return frames.of_table(frame, finish(pl.DataFrame({c: frame.raw(c) for c in frame.names})))


def _grouped(rows: pl.DataFrame, groups: _Groups) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Each group of forecasts, in order; without columns to group by all are one group, of no forecast too."""
    rows = rows.with_columns(pl.col("market_id").cast(pl.String)).sort("market_id", _P, _PAID)
    if not groups.keys:
        return [((), rows)]
    found = rows.sort(groups.keys, nulls_last=True, maintain_order=True).partition_by(
        groups.keys, maintain_order=True, as_dict=True
    )
    return list(found.items())


def _table(
    groups: _Groups, keys: Sequence[tuple[Any, ...]], names: Mapping[str, Any], rows: Sequence[Sequence[Any]]
) -> pl.DataFrame:
    """Rows of results, each with the values of its group before it."""
    types = {name: dtype for name, (_, dtype) in groups.by.items()}
    schema: dict[str, Any] = {**types, **({} if groups.edges is None else {_HORIZON: pl.Int64}), **names}
    data = [(*key, *row) for key, row in zip(keys, rows, strict=True)]
    out = groups.named(pl.DataFrame(data, schema, orient="row"))
    return out.select(*groups.names, *names).with_columns(pl.selectors.float().fill_nan(None))


def _overall(
    sums: pl.DataFrame, *, options: _Options, name: str, loss: scores.Loss, bounds: tuple[float, float]
) -> pl.DataFrame:
    ends = () if options.share is None else (f"{name}_low", f"{name}_high")
    keys, rows, few = [], [], []
    for key, group in _grouped(sums, options.groups):
        p, y, points = (group[c].to_numpy().astype(float) for c in (_P, _PAID, "points"))
        whose = group["market_id"].rle_id().to_numpy()
        markets = int(whose[-1]) + 1 if len(whose) else 0
        lost = loss(p, y)
        row = [markets, int(points.sum()), float(np.average(lost, weights=points)) if markets else None]
        if options.share is not None:
            totals, weights = (scores.by_market(whose, v, markets) for v in (points * lost, points))
            row += scores.interval_of_mean(totals, weights, options.share, options.resamples, options.seed, bounds)
            few += [markets] * (2 <= markets < scores.ENOUGH)
        rows.append([*row, *(scores.decomposed(p, y, points, loss) if markets else [None] * 3)])
        keys.append(key)
    if few:
        _warn_of_few(few, len(rows), f"{options.share:.0%} interval of {name}")
    floats = dict.fromkeys((name, *ends, *_PARTS), pl.Float64)
    return _table(options.groups, keys, {"markets": pl.Int64, "points": pl.Int64, **floats}, rows)


def _warn_of_few(few: Sequence[int], groups: int, what: str) -> None:
    where = "" if groups == 1 else f" in {len(few)} of {groups} groups"
    warn(
        f"The {what} rests on {'as few as ' if len(few) > 1 else ''}{min(few)} markets{where}: below "
        f"{scores.ENOUGH} it covers less often than it says.",
        FewMarketsWarning,
        hint="Add markets, or leave it out with interval=None.",
    )


def _curves(sums: pl.DataFrame, *, options: _Options, count: int) -> pl.DataFrame:
    types = {"bin_start": pl.Float64, "bin_end": pl.Float64, "points": pl.Int64, "forecast": pl.Float64}
    types |= {"outcome": pl.Float64}
    if options.share is not None:
        types |= {"markets": pl.Int64, "outcome_low": pl.Float64, "outcome_high": pl.Float64}
    keys, rows = [], []
    for key, group in _grouped(sums, options.groups):
        p, paid, points, at = (group[c].to_numpy().astype(float) for c in (_P, _PAID, "points", _BIN))
        for bin_ in np.unique(at):
            here = at == bin_
            n = points[here].sum()
            row = [bin_ / count, (bin_ + 1) / count, int(n), p[here].sum() / n, paid[here].sum() / n]
            if options.share is not None:
                row += [int(here.sum()), *scores.interval_of_share(paid[here], points[here], options.share)]
            rows.append(row)
            keys.append(key)
    return _table(options.groups, keys, types, rows)
