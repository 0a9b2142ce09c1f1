"""The mean of a column with an interval over clusters of markets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, in_memory, names_of, read, selected
from marketdata.adapters.frame import Column, Frame, Passed
from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, FewMarketsWarning, MissingValuesWarning, NotTidyError, warn
from marketdata.points import scores
from marketdata.points.arguments import text, texts
from marketdata.points.columns import Floats, Ints
from marketdata.points.forward import one_token_per_market
from marketdata.points.schema import ID_COLUMNS, require
from marketdata.points.scores import Sampling


def cluster_mean(
    frame: F,
    value: str,
    *,
    cluster: str = "market_id",
    by: str | Iterable[str] | None = None,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """The mean of a column, with an interval for rows that depend on each other within a market.

    Rows of one market, or of one event, share their luck, so the bootstrap draws whole clusters. One token counts per
    market, because Yes and No cancel each other: Yes, or the token with the smallest id.

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

    Warns
    -----
    FewMarketsWarning
        Fewer than ten clusters are effective.
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
    rows = in_memory(selected(frame, list(dict.fromkeys([*wanted, *ids]))))
    if not rows.is_number(chosen) and len(rows):
        raise ConfigError("is refused; allowed is a column of numbers.", argument="value", value=value)
    counts = np.ones(len(rows), bool)
    if "token_id" in ids:
        tokens, token = frames.distinct_ids(rows, ids)
        counts = one_token_per_market([(*of_token, None)[:3] for of_token in tokens])[token]
    values, market, clusters = rows.numbers(chosen), rows.codes("market_id"), _codes(rows, unit, nullable=False)
    first, group = _groups(rows, groups, counts)
    means = scores.means(values, group, len(first), clusters, sampling)
    points = np.bincount(group[group >= 0], minlength=len(first))
    warn_of_means(chosen, sampling, means["effective"], points - means["points"], points)
    columns: dict[str, Column] = {name: Passed(rows, name, first) for name in groups}
    columns["markets"] = numbers_of_distinct(market, np.where(np.isnan(values), -1, group), len(first))
    return as_kind_of(frame, columns | means, len(first))  # type: ignore[no-any-return]


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


def _groups(rows: Frame, names: Sequence[str], counted: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """A row of each group, in the order of its values, and the group of each row; -1 for a row that does not count."""
    if not names:
        return np.zeros(1, np.int64), np.where(counted, 0, -1)
    group = np.zeros(len(rows), np.int64)
    for name in names:
        codes = _codes(rows, name, nullable=True)
        group = np.unique(group * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1]
    _, first, which = np.unique(group[counted], return_index=True, return_inverse=True)
    group[~counted], group[counted] = -1, which
    return np.flatnonzero(counted)[first], group


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
