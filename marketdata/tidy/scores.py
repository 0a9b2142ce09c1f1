"""Means and scores of prices as forecasts, with intervals over clusters of markets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import (
    F,
    as_kind_of,
    at_once,
    in_memory,
    is_in_memory,
    is_lazy,
    names_of,
    read,
    run,
    selected,
)
from marketdata.adapters.frame import Column, Frame, Native, Passed, Texts
from marketdata.adapters.normalization import is_missing
from marketdata.errors import (
    ConfigError,
    FewMarketsWarning,
    MissingValuesWarning,
    NotTidyError,
    OpenMarketsWarning,
    warn,
)
from marketdata.points import scores
from marketdata.points.arguments import choice, number, text, texts, whole
from marketdata.points.columns import Floats, Ints, Token
from marketdata.points.mirrors import Records, mirrors, warn_of_mixed_labels
from marketdata.points.schema import ID_COLUMNS, TOLERANCE, Kind, require
from marketdata.points.scores import Forecasts, Sampling
from marketdata.tidy.measures import KINDS
from marketdata.tidy.outcomes import Outcomes, Payoffs, Tokens, for_tokens, orders_of
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of

Of = Literal["market", "token", "all"]
By = str | Iterable[str] | None
_WHOLE = ("markets", "points", "left_out")
_PROBABILITY_KINDS: tuple[Kind, ...] = ("prices", *KINDS)


def brier(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "market",
    by: By = None,
    cluster: str = "market_id",
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean squared error of prices (of books or bbo: mids) as forecasts of the outcomes.

    Null prices are no forecasts. Where both tokens of a market have a price at one time, these are the same forecast,
    so one of them counts, except with ``of="token"``. It is the first token of the market's record, else the one whose
    label is first: Yes before No, Up before Down, others by the alphabet. Markets of three tokens count all. Markets
    that are open, or not among the outcomes, are left out.

    The score is miscalibration - discrimination + uncertainty. Miscalibration is what the best rising function of the
    prices would gain. Discrimination is what that function gains over the base rate. Uncertainty is the score of the
    base rate.

    Parameters
    ----------
    outcomes : frame or mapping
        The result of `outcomes`, or market records. Or a mapping of market id to the token that won, by id or label,
        None while it is open, or to the payoff of each token.
    of : {"market", "token", "all"}
        What a row is about.
    by : str or list of str, optional
        Columns of the frame ``outcomes`` to group markets by, such as "topic".
    cluster : str
        Of "all": "market_id", or a column of the frame ``outcomes`` whose markets share their luck: "event_slug".
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
          left_out``.

        The columns are these.

        - ``points``: the number of forecasts.
        - ``brier``: mean((p - payoff)^2) [0 to 1; 0.25: always 0.5].
        - ``outcome``: the payoff.
        - ``left_out``: forecasts of the other token that repeat them.
        - ``brier_low``, ``brier_high``: a studentized bootstrap interval over clusters of markets. It is null with
          fewer than two clusters, and where all payoffs are alike.

    Warns
    -----
    FewMarketsWarning
        An interval rests on fewer than ten effective clusters, or is null as all payoffs are alike.
    OpenMarketsWarning
        Markets of the frame are open, with "all".
    MixedLabelsWarning
        The tokens that count have different labels, with "all".

    References
    ----------
    Brier (1950), "Verification of forecasts expressed in terms of probability". Dimitriadis, Gneiting, Jordan (2021),
    "Stable reliability diagrams for probabilistic classifiers". Cameron, Gelbach, Miller (2008), "Bootstrap-based
    improvements for inference with clustered errors".

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1)
    >>> markets = md.testing.markets("polars")
    >>> md.brier(prices, markets).rows()
    [('rain', 1, 0.36, 1)]
    >>> scores = md.brier(prices, markets, of="token")
    >>> scores.select("token_label", "outcome", "points", "brier").rows()
    [('Yes', 1.0, 1, 0.36), ('No', 0.0, 1, 0.36)]
    """
    scoring = _Scoring(
        choice("of", of, get_args(Of)),
        outcomes,
        groups_of_markets("by", by, outcomes),
        groups_of_markets("cluster", cluster, outcomes),
        Sampling.of(interval, resamples, seed),
    )
    return scoring.score(frame, "brier", scores.squared_error)


def log_score(
    frame: F,
    outcomes: Any,
    *,
    of: Of = "market",
    by: By = None,
    cluster: str = "market_id",
    clip: float = 1e-6,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """Mean negative log-likelihood of the outcomes by the prices: mean(-payoff ln p - (1 - payoff) ln(1 - p)).

    Rows, parameters, errors and warnings are as for `brier`, with ``log_score`` in place of ``brier``. It is a natural
    logarithm; prices that are always 0.5 have 0.693. Prices are clipped to ``clip`` and 1 - ``clip`` [above 0, below
    0.5], as 0 for the winner would score infinity. Good (1952), "Rational decisions".
    """
    least = number("clip", clip)
    if least >= 0.5:
        raise ConfigError(f"clip={clip!r} is refused; allowed are numbers above 0 and below 0.5.")
    scoring = _Scoring(
        choice("of", of, get_args(Of)),
        outcomes,
        groups_of_markets("by", by, outcomes),
        groups_of_markets("cluster", cluster, outcomes),
        Sampling.of(interval, resamples, seed),
    )
    return replace(scoring, clip=least).score(frame, "log_score", scores.log_loss)


def calibration(
    frame: F,
    outcomes: Any,
    bins: int = 10,
    *,
    of: Literal["market", "token"] = "market",
    by: By = None,
    cluster: str = "market_id",
    interval: float | None = None,
) -> F:
    """How often tokens priced at p won.

    Other parameters, errors and warnings are as for `brier`.

    Parameters
    ----------
    bins : int
        Number of equal bins from 0 to 1.
    interval : float, optional
        Probability that the interval of a share covers [0 to 1].

    Returns
    -------
    frame
        One row per bin that has a forecast, with ``by`` per group and bin:

        - ``bin_start bin_end``: the borders [start, end); the last bin includes 1.
        - ``points``, ``forecast``: the number and the mean of the forecasts.
        - ``outcome``: the mean payoff, which is the share that is true in the end.
        - ``markets``, only with ``interval``: the markets in the bin.
        - ``outcome_low outcome_high``, only with ``interval``: Wilson's interval of the share, null with fewer than two
          clusters. It is over (sum w)^2 / sum w^2 clusters, where a cluster of the bin has w forecasts.
        - ``left_out``: forecasts of the other token that repeat them.

    References
    ----------
    Wilson (1927), "Probable inference". Kish (1965), "Survey sampling".

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> markets = md.testing.markets("polars", markets=2)
    >>> bins = md.calibration(prices, markets, bins=5)
    >>> bins.select("bin_start", "points", "forecast", "outcome").rows()
    [(0.4, 2, 0.45, 0.5)]
    """
    count = whole("bins", bins)
    scoring = _Scoring(
        choice("of", of, ("market", "token")),
        outcomes,
        groups_of_markets("by", by, outcomes),
        groups_of_markets("cluster", cluster, outcomes),
        Sampling.of(interval),
    )
    return scoring.in_two_steps(frame, partial(scoring.curves, bins=count))


class _Groups(NamedTuple):
    """Groups of markets with equal values in columns of the outcomes: their numbers, in order, and a row of each."""

    by: Sequence[str] = ()
    outcomes: Frame | None = None
    number: Mapping[str, int] = {}
    rows: Ints = np.zeros(0, np.int64)

    def of(self, markets: Iterable[str]) -> Ints:
        """The group of each market; one that the outcomes lack is in the first, where it has no payoff."""
        return np.array([self.number.get(market, 0) for market in markets], np.int64)

    def as_clusters(self, markets: Sequence[str]) -> Ints:
        """The group of each market; without columns each market is its own."""
        return self.of(markets) if self.by else np.unique(markets, return_inverse=True)[1]

    def columns(self, group: Ints) -> dict[str, Column]:
        """The columns that name the groups."""
        return {name: Passed(self.outcomes, name, self.rows[group]) for name in self.by} if self.outcomes else {}


@dataclass(frozen=True)
class _Scoring:
    """The arguments of a score; prices are taken not closer to 0 and 1 than ``clip``."""

    unit: str
    outcomes: Outcomes
    groups: _Groups
    clusters: _Groups
    sampling: Sampling | None
    clip: float = 0.0

    def score(self, frame: F, name: str, loss: scores.Loss) -> F:
        """A score by market, token or over all."""
        if self.unit == "all":
            return self.in_two_steps(frame, partial(self.overall, name=name, loss=loss))
        frame = read(frame)
        payoffs = self.payoffs_in(frame, pooled=False)

        def means(part: Frame) -> Native:
            tokens, token, forecasts = self.forecasts(part, payoffs)
            by_token = self.unit == "token"
            _, first, which = np.unique(token if by_token else forecasts.market, return_index=True, return_inverse=True)
            points = np.bincount(which)
            outcome, score = (
                np.bincount(which, values) / points for values in (forecasts.paid, loss(forecasts.p, forecasts.paid))
            )
            left_out = np.bincount(which, forecasts.left_out).astype(np.int64)
            ids = ID_COLUMNS if by_token else ID_COLUMNS[:1]
            columns: dict[str, Column] = {c: Texts(token[first], [getattr(one, c) for one in tokens]) for c in ids}
            columns |= self.groups.columns(self.groups.of(tokens[i].market_id for i in token[first].tolist()))
            columns |= {"outcome": outcome} if by_token else {}
            columns |= {"points": points, name: score}
            columns |= {} if by_token else {"left_out": left_out}
            return part.build(columns, len(first))

        return run(frame, means, _PROBABILITY_KINDS, partition_by="market")

    def payoffs_in(self, frame: Native, *, pooled: bool) -> Callable[[Tokens], Payoffs]:
        """The payoffs of the tokens of a frame."""

        def payoffs(tokens: Tokens) -> Payoffs:
            tokens = list(tokens)
            resolved = Payoffs(self.outcomes, tokens)
            if pooled:
                _warn_of_open({market for market, *_ in tokens}, resolved.open)
            return resolved

        return for_tokens(frame, payoffs)

    def forecasts(self, frame: Frame, payoffs: Callable[[Tokens], Payoffs]) -> tuple[Sequence[Token], Ints, Forecasts]:
        """The tokens of a frame, and its forecasts that count with the number of their token."""
        series, value = probability_of(frame)
        resolved = payoffs(series.tokens)
        payoff = resolved.of(series.tokens)
        # Tokens are in order, and so are the numbers of their markets.
        market = np.unique([token.market_id for token in series.tokens], return_inverse=True)[1]
        known = np.flatnonzero(~np.isnan(series.values[value]) & ~np.isnan(payoff)[series.token])
        repeated = np.zeros(len(known), bool)
        if self.unit != "token":
            mirrored = mirrors(series.tokens, series.token[known], series.ts[known], resolved.records)
            known, repeated = known[~mirrored.left_out], mirrored.repeated[~mirrored.left_out]
        token, p = series.token[known].astype(np.int64), series.values[value][known].clip(self.clip, 1 - self.clip)
        return series.tokens, token, Forecasts(market[token], p, payoff[token], np.ones(len(p)), repeated.astype(float))

    def in_two_steps(self, frame: F, finish: Callable[[Native], Native]) -> F:
        """The forecasts of each market where the frame is, and what is computed from all of them in one place."""
        frame = read(frame)
        payoffs = self.payoffs_in(frame, pooled=True)

        def merged(part: Frame) -> Native:
            tokens, token, forecasts = self.forecasts(part, payoffs)
            prices, price = np.unique(forecasts.p, return_inverse=True)
            _, first, which = np.unique(token * len(prices) + price, return_index=True, return_inverse=True)
            columns: dict[str, Column] = {
                c: Texts(token[first], [getattr(one, c) for one in tokens]) for c in ("market_id", "token_label")
            }
            columns |= {"p": forecasts.p[first], "paid": forecasts.paid[first], "points": np.bincount(which)}
            columns |= {"left_out": np.bincount(which, forecasts.left_out).astype(np.int64)}
            return part.build(columns, len(first))

        if is_in_memory(frame) or is_lazy(frame):
            return run(frame, lambda part: finish(merged(part)), _PROBABILITY_KINDS, partition_by="all")
        return at_once(run(frame, merged, _PROBABILITY_KINDS, partition_by="market"), finish)

    def overall(self, part: Native, *, name: str, loss: scores.Loss) -> Native:
        """The score of each group, from the forecasts of the first step."""
        frame, forecasts, group, clusters = self.grouped(part)
        # Without columns to group by there is one group, even if it has no forecast.
        numbers = np.unique(group) if self.groups.by else np.zeros(1, np.int64)
        worst = float(loss(np.array(self.clip), np.array(1.0)))
        rows = [scores.overall(forecasts.take(group == n), loss, clusters, self.sampling, worst) for n in numbers]
        names = ["markets", "points", name, f"{name}_low", f"{name}_high"]
        names += ["miscalibration", "discrimination", "uncertainty", "left_out", "effective"]
        columns = _columns(names, rows)
        effective = columns.pop("effective")
        if self.sampling:
            alike = int(((columns["markets"] > 1) & (effective == 0)).sum())
            problem = f"is null in {alike} of {len(rows)} rows, whose markets all paid the same" if alike else ""
            warn_of_few(name, self.sampling, effective, problem)
        else:
            del columns[f"{name}_low"], columns[f"{name}_high"]
        return frame.build(self.groups.columns(numbers) | columns, len(rows))

    def curves(self, part: Native, *, bins: int) -> Native:
        """The bins of each group, from the forecasts of the first step."""
        frame, forecasts, group, clusters = self.grouped(part)
        bin_of_group = group * bins + np.clip(np.floor(forecasts.p * bins + TOLERANCE), 0, bins - 1).astype(np.int64)
        numbers = np.unique(bin_of_group)
        rows = [scores.bin_summary(forecasts.take(bin_of_group == n), clusters, self.sampling) for n in numbers]
        at = numbers % bins
        keys = {**self.groups.columns(numbers // bins), "bin_start": at / bins, "bin_end": (at + 1) / bins}
        ends = ["markets", "outcome_low", "outcome_high"] if self.sampling else []
        names = ["points", "forecast", "outcome", *ends, "left_out"]
        return frame.build(keys | _columns(names, rows), len(rows))

    def grouped(self, part: Native) -> tuple[Frame, Forecasts, Ints, Ints]:
        """The forecasts by market, price and payoff; the group of each, and the cluster of each market."""
        frame = in_memory(part)
        ids, which = frames.distinct_ids(frame, ["market_id"])
        markets, number_of_id = np.unique([str(market) for (market,) in ids], return_inverse=True)
        forecasts = Forecasts(number_of_id[which], *(frame.numbers(c) for c in Forecasts._fields[1:]))
        forecasts = forecasts.take(np.lexsort((forecasts.paid, forecasts.p, forecasts.market)))
        stands = frame.numbers("left_out") > 0
        labels = frame.texts("token_label", np.flatnonzero(stands))
        warn_of_mixed_labels(dict(zip(number_of_id[which[stands]].tolist(), labels, strict=True)).values())
        group = self.groups.of(markets.tolist())[forecasts.market]
        return frame, forecasts, group, self.clusters.as_clusters(markets.tolist())


def _warn_of_open(markets: set[str], unresolved: set[str]) -> None:
    if still_open := len(markets & unresolved):
        warn(
            f"{still_open} of {len(markets)} markets of the frame are open and left out. Where a question can end "
            "early on one outcome, those that have resolved so far are no fair sample.",
            OpenMarketsWarning,
            hint="Score only markets whose scheduled end (ends_at of md.outcomes) has passed, whether they ended early "
            "or not.",
        )


def groups_of_markets(argument: str, given: By, outcomes: Outcomes) -> _Groups:
    """Markets grouped by columns of a frame of outcomes or records; by none if they are None or "market_id" itself."""
    names = [] if given is None else texts(argument, given, "a column of market records")
    if not names or (argument == "cluster" and names == ["market_id"]):
        return _Groups()
    if isinstance(outcomes, Mapping):
        raise ConfigError(
            f"{argument}={names!r} names columns of market records, and outcomes is a mapping; pass a frame of records."
        )
    data = columns_of(outcomes, ["market_id", *names], f"a frame of market records with the columns of {argument}")
    if lacking := sorted({"market_id", *names} - data.keys()):
        raise NotTidyError(f"outcomes has no column {', '.join(map(repr, lacking))}, which {argument}={names!r} needs.")
    first_row: dict[str, int] = {}
    for row, market in enumerate(data["market_id"]):
        first = first_row.setdefault(market, row)
        for name in names:
            was, value = data[name][first], data[name][row]
            if name in ID_COLUMNS or isinstance(value, list | tuple | dict | np.ndarray):
                raise ConfigError(f"{argument}={name!r} is refused; allowed are columns with one value per market.")
            if was != value:
                raise NotTidyError(f"{name} has two values for market {market!r}: {was!r} and {value!r}.")
    values = {m: tuple((data[c][row] is None, data[c][row]) for c in names) for m, row in first_row.items()}
    row_of_group = {values[market]: row for market, row in first_row.items()}
    number = {value: i for i, value in enumerate(sorted(row_of_group))}
    rows = np.array([row_of_group[value] for value in number], np.int64)
    return _Groups(names, in_memory(outcomes), {market: number[value] for market, value in values.items()}, rows)


def _columns(names: Sequence[str], rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The numbers of rows as columns."""
    columns = zip(names, np.array(rows, float).reshape(-1, len(names)).T, strict=True)
    return {name: values.astype(np.int64) if name in _WHOLE else values for name, values in columns}


def cluster_mean(
    frame: F,
    value: str,
    *,
    cluster: str = "market_id",
    by: str | Iterable[str] | None = None,
    markets: Any = None,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """The mean of a column, with an interval for rows that depend on each other within a market.

    Rows of one market, or of one event, share their luck, so the bootstrap draws whole clusters. Where both tokens of a
    market have a row of one ``ts``, one of them counts, because Yes and No cancel each other. It is the first of the
    record of the market in ``markets``, else the one whose label is first: Yes before No, Up before Down, others by the
    alphabet. Markets of three tokens count all.

    Parameters
    ----------
    frame
        Rows with ``market_id``, of any kind of frame; the columns that are needed are read into memory.
    value : str
        A column of numbers, such as ``net`` of `forward_returns`. Rows without a value are left out.
    cluster : str
        Column of rows that share their luck: "market_id", or "event_slug" where markets of one event do.
    by : str or list of str, optional
        Columns to group by, such as "horizon".
    markets : frame, optional
        Market records, whose order of tokens says which one counts.
    interval : float or None
        Probability that the interval covers [0 to 1]; None leaves ``low`` and ``high`` out.
    resamples, seed : int
        Number of bootstrap samples, and their seed.

    Returns
    -------
    frame
        One row per group, by the values of the columns ``by``, which come first.

        - ``markets``, ``points``: markets and rows that have a value.
        - ``effective``: the number of equal clusters with as much information, (sum w)^2 / sum w^2. A cluster has w
          rows.
        - ``mean``: the mean over rows.
        - ``low``, ``high``: a studentized bootstrap interval over clusters, null with fewer than two.
        - ``left_out``: rows of the other token that repeat a row of the one that counts.

    Raises
    ------
    NotTidyError
        Neither a record nor labels say which of two tokens counts.

    Warns
    -----
    FewMarketsWarning
        Fewer than ten clusters are effective.
    MixedLabelsWarning
        The tokens that count have different labels, so that the sign of the mean has no one meaning.
    MissingValuesWarning
        More than 5 percent of the rows have no value.

    References
    ----------
    Cameron, Gelbach, Miller (2008), "Bootstrap-based improvements for inference with clustered errors".

    Examples
    --------
    >>> books = md.testing.books("polars", markets=4, buckets=4)
    >>> rows = md.forward_returns(books, "1m").filter(pl.col("move").is_not_null())
    >>> mean = md.cluster_mean(rows, "move", by="horizon", interval=None)
    >>> mean.select("horizon", "markets", "points", pl.col("mean").round(4)).rows()
    [('1m', 4, 8, 0.005)]
    """
    frame = read(frame)
    chosen = text("value", value, "the name of a column")
    groups = [] if by is None else texts("by", by, "the name of a column")
    unit = text("cluster", cluster, "the name of a column")
    sampling = Sampling.of(interval, resamples, seed)
    present = names_of(frame)
    wanted = list(dict.fromkeys(["market_id", chosen, unit, *groups]))
    require("A frame with a mean over markets", wanted, present)
    ids = [name for name in ID_COLUMNS if name in present]
    times = [name for name in ("ts",) if name in present]
    rows = in_memory(selected(frame, list(dict.fromkeys([*wanted, *ids, *times]))))
    if not rows.is_number(chosen) and len(rows):
        raise ConfigError("is refused; allowed is a column of numbers.", argument="value", value=value)
    left_out = _mirrored(rows, ids, {} if markets is None else orders_of(markets))
    values, market, clusters = rows.numbers(chosen), rows.codes("market_id"), _codes(rows, unit, nullable=False)
    first, group = _groups(rows, groups)
    repeats, group = np.bincount(group[left_out], minlength=len(first)), np.where(left_out, -1, group)
    means = scores.means(values, group, len(first), clusters, sampling)
    points = np.bincount(group[group >= 0], minlength=len(first))
    warn_of_means(chosen, sampling, means["effective"], points - means["points"], points)
    columns: dict[str, Column] = {name: Passed(rows, name, first) for name in groups}
    columns["markets"] = numbers_of_distinct(market, np.where(np.isnan(values), -1, group), len(first))
    return as_kind_of(frame, columns | means | {"left_out": repeats}, len(first))  # type: ignore[no-any-return]


def _mirrored(rows: Frame, ids: Sequence[str], records: Records) -> NDArray[np.bool_]:
    """The rows of a token that repeat a row of the other token of their market, which stands for it."""
    if "token_id" not in ids:
        return np.zeros(len(rows), bool)
    tokens, token = frames.distinct_ids(rows, ids)
    named = [(*of_token, None)[:3] for of_token in tokens]
    ts = rows.times("ts") if "ts" in rows.names else np.zeros(len(rows), np.int64)
    mirrored = mirrors(named, token, ts, records)
    standing = np.unique(token[mirrored.repeated]).tolist()
    warn_of_mixed_labels({named[i][0]: named[i][2] for i in standing}.values())
    return mirrored.left_out


def numbers_of_distinct(codes: NDArray[np.integer], group: Ints, count: int) -> Ints:
    """How many different codes each of the groups has."""
    return np.array([len(np.unique(codes[group == number])) for number in range(count)], np.int64)


def _codes(rows: Frame, name: str, *, nullable: bool) -> Ints:
    """A column as whole numbers in the order of its values, null last."""
    _, first, which = np.unique(rows.comparable(name), return_index=True, return_inverse=True)
    raw = rows.raw(name, first)
    values = [None if is_missing(value) else value for value in raw]
    if None in values and not nullable:
        raise NotTidyError(f"{name} has missing values; fill them, or drop these rows.")
    order = sorted(range(len(values)), key=lambda i: (values[i] is None, values[i] if values[i] is not None else ""))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    return rank[which]


def _groups(rows: Frame, names: Sequence[str]) -> tuple[Ints, Ints]:
    """A row of each group, in the order of its values, and the group of each row."""
    if not names:
        return np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
    codes = np.stack([_codes(rows, name, nullable=True) for name in names])
    _, first, group = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    return first, group


def warn_of_means(name: str, sampling: Sampling | None, effective: Floats, missing: Ints, rows: Ints) -> None:
    """Warnings for intervals over few clusters, and for means that leave out many ``missing`` of the rows."""
    warn_of_few(name, sampling, effective)
    shares = missing / np.maximum(rows, 1)
    often = shares[shares > 0.05]
    if len(often):
        warn(
            f"Up to {often.max():.0%} of the rows have no {name}, in {len(often)} of {len(shares)} groups; the mean "
            "leaves them out.",
            MissingValuesWarning,
            hint="Rows without an exit are not missing at random: give the mean of net_low beside it.",
        )


def warn_of_few(name: str, sampling: Sampling | None, effective: Floats, problem: str = "") -> None:
    """FewMarketsWarning for intervals over few clusters, and for another ``problem`` of the scores."""
    few = effective[(effective > 0) & (effective < scores.ENOUGH)]
    problems = [problem] if problem else []
    if len(few):
        least = f"rests on as few as {few.min():.3g} effective clusters in {len(few)} of {len(effective)} rows"
        problems.insert(0, least)
    if problems and sampling is not None:
        warn(
            f"The {sampling.share:.0%} interval of {name} {', and '.join(problems)}. Below {scores.ENOUGH} clusters "
            "an interval covers less often than it says.",
            FewMarketsWarning,
            hint="Add markets, or leave the interval out with interval=None.",
        )
