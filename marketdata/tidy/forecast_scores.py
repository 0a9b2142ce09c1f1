"""Scores of prices as forecasts: Brier score, log score and calibration, with intervals over markets."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, at_once, in_memory, is_dask, is_in_memory, read, run
from marketdata.adapters.engines import is_engine
from marketdata.adapters.frame import Column, Frame, Native, Passed, Texts
from marketdata.errors import ConfigError, FewMarketsWarning, NotTidyError, OpenMarketsWarning, warn
from marketdata.points import scores
from marketdata.points.arguments import choice, number, texts, whole
from marketdata.points.columns import Ints, Series, Token
from marketdata.points.order import NO_TIME
from marketdata.points.resample import group_starts
from marketdata.points.schema import ID_COLUMNS, Kind
from marketdata.points.scores import Forecasts, Runs
from marketdata.tidy.measures import KINDS
from marketdata.tidy.outcomes import Outcomes, Payoffs, Tokens, resolution_times, tokens_of
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of
from marketdata.times import SECOND, to_duration

Of = Literal["token", "market", "all"]
By = str | Iterable[str] | None
Horizons = str | dt.timedelta | Iterable[str | dt.timedelta] | None
Payoff = dict[tuple[str, str], float]
Counted = Callable[[Tokens], Payoff]
# Frames that have a probability: a price, or a mid.
_KINDS: tuple[Kind, ...] = ("prices", *KINDS)
# Columns of forecasts beside their market, on the way from where the frame is.
_REST = ("group", "p", "paid", "points")
# The parts of a mean score.
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
    return _scored(frame, options, _Score("brier", scores.squared_error, (0.0, 1.0)))


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
    return _scored(frame, options, _Score("log_score", scores.log_loss, (0.0, -float(np.log(least))), least))


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
    count = whole("bins", bins)
    options = _options(choice("of", of, ("token", "market")), outcomes, by, horizons, interval)
    frame = read(frame)
    counted = _counting(frame, options, together=True)
    small = partial(_small, counted=counted, groups=options.groups, clip=None, bins=count)
    return _in_two_steps(frame, small, partial(_curves, options=options, bins=count))


class _Score(NamedTuple):
    """A score, its loss, the least and greatest there is, and how close to 0 and 1 prices are taken."""

    name: str
    loss: scores.Loss
    bounds: tuple[float, float]
    clip: float | None = None


class _Groups(NamedTuple):
    """What forecasts are grouped by beside their ids: columns of the outcomes, and the time to resolution.

    The markets of a group of the columns have its ``number``, and their values are in its row of ``outcomes``. A group
    of both is this number times the number of horizons, plus the place of the horizon.
    """

    by: Sequence[str]
    outcomes: Frame | None
    number: Mapping[str, int]
    rows: Ints
    edges: tuple[int, ...]
    ends: Mapping[str, int]

    @property
    def names(self) -> list[str]:
        """The columns that name a group."""
        return [*self.columns(np.zeros(0, np.int64))]

    def of(self, series: Series) -> Ints:
        """The group of each row; -1 after the resolution, and without its time."""
        numbers = np.array([self.number.get(token.market_id, 0) for token in series.tokens], np.int64)[series.token]
        if not self.edges:
            return numbers
        # A missing time is before all rows, also before those of times before 1970.
        ends = np.array([self.ends.get(token.market_id, NO_TIME) for token in series.tokens], np.int64)[series.token]
        horizon = np.searchsorted(np.array(self.edges), ends - series.ts, side="right") - 1
        return np.where(ends < series.ts, -1, numbers * len(self.edges) + horizon)

    def columns(self, group: Ints) -> dict[str, Column]:
        """The columns that name the groups."""
        number, horizon = np.divmod(group, max(len(self.edges), 1))
        out: dict[str, Column] = {}
        if self.outcomes is not None:
            out |= {name: Passed(self.outcomes, name, self.rows[number]) for name in self.by}
        if self.edges:
            borders = np.append(np.array(self.edges) / SECOND, np.nan)
            out |= {"horizon_start": borders[horizon], "horizon_end": borders[horizon + 1]}
        return out


class _Options(NamedTuple):
    of: str
    outcomes: Outcomes
    groups: _Groups
    share: float | None
    resamples: int
    seed: int


def _options(
    of: str, outcomes: Outcomes, by: By, horizons: Horizons, interval: float | None, resamples: int = 1, seed: int = 0
) -> _Options:
    """The arguments of a score, checked before a frame is read."""
    choice("of", of, get_args(Of))
    if interval is not None and number("interval", interval) >= 1:
        raise ConfigError(f"interval={interval!r} is refused; allowed are numbers above 0 and below 1.")
    share = None if interval is None else float(interval)
    draws, start = whole("resamples", resamples), whole("seed", seed, least=0)
    edges = () if horizons is None else _edges(horizons)
    ends = resolution_times(outcomes) if edges else {}
    return _Options(of, outcomes, _Groups(*_columns_by(outcomes, by), edges, ends), share, draws, start)


def _edges(horizons: Horizons) -> tuple[int, ...]:
    is_one = isinstance(horizons, str) or not isinstance(horizons, Iterable)
    given: Any = [horizons] if is_one else horizons
    edges = (0, *(to_duration(one, "horizons") for one in given))
    if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)):
        raise ConfigError(f"horizons={horizons!r} is refused; allowed are durations that rise, as ['1h', '1d', '1w'].")
    return edges


def _columns_by(outcomes: Outcomes, by: By) -> tuple[list[str], Frame | None, dict[str, int], Ints]:
    """Columns of a frame of outcomes or records, the group of each market, in order, and a row of each group."""
    names = [] if by is None else texts("by", by, "a column of market records")
    if not names:
        return names, None, {}, np.zeros(0, np.int64)
    if isinstance(outcomes, Mapping):
        raise ConfigError(
            f"by={by!r} is a column of market records, and outcomes is a mapping; pass a frame of records."
        )
    data = columns_of(outcomes, ["market_id", *names], "a frame of market records with the columns of by")
    if lacking := sorted({"market_id", *names} - data.keys()):
        raise NotTidyError(f"outcomes has no column {', '.join(map(repr, lacking))}, which by={by!r} needs.")
    row_of: dict[str, int] = {}
    for row, market in enumerate(data["market_id"]):
        first = row_of.setdefault(market, row)
        for name in names:
            was, value = data[name][first], data[name][row]
            if name in ID_COLUMNS or isinstance(value, list | tuple | dict | np.ndarray):
                raise ConfigError(f"by={name!r} is refused; allowed are columns with one value per market.")
            if was != value:
                raise NotTidyError(f"{name} has two values for market {market!r}: {was!r} and {value!r}.")
    values = {m: tuple((data[c][row] is None, data[c][row]) for c in names) for m, row in row_of.items()}
    number = {one: i for i, one in enumerate(sorted(set(values.values())))}
    rows = {number[values[market]]: row for market, row in row_of.items()}
    of_market = {market: number[one] for market, one in values.items()}
    return names, in_memory(outcomes), of_market, np.array([rows[i] for i in range(len(rows))], np.int64)


def _scored(frame: F, options: _Options, score: _Score) -> F:
    frame = read(frame)
    counted = _counting(frame, options, together=options.of == "all")
    if options.of == "all":
        small = partial(_small, counted=counted, groups=options.groups, clip=score.clip)
        return _in_two_steps(frame, small, partial(_overall, options=options, score=score))
    ids = ID_COLUMNS if options.of == "token" else ID_COLUMNS[:1]
    means = partial(_means, counted=counted, groups=options.groups, ids=ids, score=score)
    return run(frame, means, _KINDS, partition_by="market")


def _counting(frame: Native, options: _Options, *, together: bool) -> Counted:
    """The payoffs of those of given tokens whose forecasts count; looked up here for a frame that is not in memory."""
    count = partial(_counted, outcomes=options.outcomes, of=options.of, together=together)
    if is_in_memory(frame):
        return count
    known = count(tokens_of(frame))
    return lambda _: known


def _counted(tokens: Tokens, *, outcomes: Outcomes, of: str, together: bool) -> Payoff:
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
            # The frame may lack tokens of a market of three, of which no two are the same forecast.
            if len(ranked) == 2 and len(known.named.get(market, ())) <= 2:
                payoffs.pop((market, max(ranked)[-1]), None)
    return payoffs


def _runs(frame: Frame, counted: Counted, groups: _Groups, clip: float | None) -> tuple[Sequence[Token], Runs]:
    """The forecasts of a frame that count, and its tokens."""
    series, value = probability_of(frame)
    tokens = series.tokens
    paid = counted([(market, str(token), label) for market, token, label in tokens])
    payoff = np.array([paid.get((market, str(token)), np.nan) for market, token, _ in tokens])
    # Tokens are in order, and so are the numbers of their markets.
    number = {market: i for i, market in enumerate(_markets(tokens))}
    market = np.array([number[token.market_id] for token in tokens], np.int64)
    token, group, p = series.token, groups.of(series), series.values[value]
    counts = (group >= 0) & ~np.isnan(p) & ~np.isnan(payoff)[token]
    if not counts.all():
        token, group, p = token[counts], group[counts], p[counts]
    starts = group_starts(token, group)
    of = token[starts].astype(np.int64)
    p = p if clip is None else p.clip(clip, 1 - clip)
    return tokens, Runs(starts, of, market[of], group[starts], payoff[of], p)


def _markets(tokens: Sequence[Token]) -> list[str]:
    return list(dict.fromkeys(token.market_id for token in tokens))


def _means(frame: Frame, *, counted: Counted, groups: _Groups, ids: Sequence[str], score: _Score) -> Native:
    tokens, runs = _runs(frame, counted, groups, score.clip)
    by_token = "token_id" in ids
    first, points, outcome, lost = runs.means(score.loss, runs.token if by_token else runs.market)
    columns: dict[str, Column] = {c: Texts(runs.token[first], [getattr(one, c) for one in tokens]) for c in ids}
    columns |= groups.columns(runs.group[first])
    columns |= {"outcome": outcome} if by_token else {}
    return frame.build({**columns, "points": points, score.name: lost}, len(first))


def _small(frame: Frame, *, counted: Counted, groups: _Groups, clip: float | None, bins: int | None = None) -> Native:
    """A frame of the forecasts that count, those of a token at one price as one; or of sums of those of a market."""
    tokens, runs = _runs(frame, counted, groups, clip)
    some = runs.by_price() if bins is None else runs.binned(bins)
    columns: dict[str, Column] = {"market_id": Texts(some.market, [*_markets(tokens)])}
    return frame.build(columns | dict(zip(_REST, some[1:], strict=True)), len(some.p))


def _in_two_steps(frame: F, small: Callable[[Frame], Native], finish: Callable[[Native], Native]) -> F:
    """The forecasts of each market where the frame is, and what is made of all of them in one place."""
    if is_dask(frame) or is_engine(frame):
        return at_once(run(frame, small, _KINDS, partition_by="market"), finish)
    return run(frame, lambda own: finish(small(own)), _KINDS, partition_by="all")


def _read(part: Native) -> tuple[Frame, Forecasts]:
    """The rows of `_small`."""
    frame = in_memory(part)
    group, *numbers = (frame.numbers(c) for c in _REST)
    return frame, Forecasts(frames.ranks(frame, "market_id").astype(np.int64), group.astype(np.int64), *numbers)


def _overall(part: Native, *, options: _Options, score: _Score) -> Native:
    frame, forecasts = _read(part)
    # Without columns to group by all are one group, of no forecast too.
    groups = forecasts.by_group() if options.groups.names else {0: forecasts}
    draws = (options.share, options.resamples, options.seed, score.bounds)
    rows = [scores.overall(one, score.loss, *draws) for one in groups.values()]
    ends = () if options.share is None else (f"{score.name}_low", f"{score.name}_high")
    few = [int(markets) for markets, *_ in rows if 2 <= markets < scores.ENOUGH]
    if few and ends:
        where = "" if len(rows) == 1 else f" in {len(few)} of {len(rows)} groups"
        warn(
            f"The {options.share:.0%} interval of {score.name} rests on {'as few as ' if len(few) > 1 else ''}"
            f"{min(few)} markets{where}: below {scores.ENOUGH} it covers less often than it says.",
            FewMarketsWarning,
            hint="Add markets, or leave it out with interval=None.",
        )
    names = ("markets", "points", score.name, *ends, *_PARTS)
    return _built(frame, options.groups.columns(np.array([*groups], np.int64)), names, rows)


def _curves(part: Native, *, options: _Options, bins: int) -> Native:
    frame, forecasts = _read(part)
    groups = forecasts.by_group()
    group, at = np.divmod(np.array([*groups], np.int64), bins)
    keys = {**options.groups.columns(group), "bin_start": at / bins, "bin_end": (at + 1) / bins}
    ends = () if options.share is None else ("markets", "outcome_low", "outcome_high")
    rows = [scores.of_bin(one, options.share) for one in groups.values()]
    return _built(frame, keys, ("points", "forecast", "outcome", *ends), rows)


def _built(frame: Frame, keys: dict[str, Column], names: Sequence[str], rows: Sequence[Sequence[float]]) -> Native:
    """A frame of results, each behind what names its group."""
    for name, values in zip(names, np.array(rows, float).reshape(-1, len(names)).T, strict=True):
        keys[name] = values.astype(np.int64) if name in ("markets", "points") else values
    return frame.build(keys, len(rows))
