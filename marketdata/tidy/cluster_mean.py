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
from marketdata.points import intervals
from marketdata.points.arguments import number, text, texts, whole
from marketdata.points.columns import Ints
from marketdata.points.forward import one_token_per_market
from marketdata.points.schema import ID_COLUMNS, require


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
    share = checked_share(interval)
    draws, start = whole("resamples", resamples), whole("seed", seed, least=0)
    present = names_of(frame)
    wanted = list(dict.fromkeys(["market_id", chosen, unit, *groups]))
    require("A frame with a mean over markets", wanted, present)
    ids = [name for name in ID_COLUMNS if name in present and name not in wanted]
    rows = in_memory(selected(frame, [*wanted, *ids]))
    if not rows.is_number(chosen) and len(rows):
        raise ConfigError("is refused; allowed is a column of numbers.", argument="value", value=value)
    values, market, cluster_of_row = rows.numbers(chosen), rows.codes("market_id"), _codes(rows, unit, nullable=False)
    first, group = _groups(rows, groups, stands_for_its_market(rows))
    means, markets, missing = [], [], []
    for number_of_group in range(len(first)):
        inside = np.flatnonzero(group == number_of_group)
        is_missing_value = np.isnan(values[inside])
        means.append(intervals.mean_over(values[inside], cluster_of_row[inside], share, resamples=draws, seed=start))
        markets.append(len(np.unique(market[inside[~is_missing_value]])))
        missing.append(is_missing_value.mean() if len(inside) else 0.0)
    warn_of_means(chosen, share, [mean.effective for mean in means], missing)
    columns: dict[str, Column] = {name: Passed(rows, name, first) for name in groups}
    columns["markets"] = np.array(markets, np.int64)
    for name in intervals.Mean._fields if share is not None else ("points", "effective", "mean"):
        columns[name] = np.array([getattr(mean, name) for mean in means], np.int64 if name == "points" else float)
    return as_kind_of(frame, columns, len(first))  # type: ignore[no-any-return]


def checked_share(interval: float | None) -> float | None:
    """The argument ``interval``: a number above 0 and below 1, or None."""
    if interval is not None and number("interval", interval) >= 1:
        raise ConfigError(f"interval={interval!r} is refused; allowed are numbers above 0 and below 1.")
    return None if interval is None else float(interval)


def stands_for_its_market(rows: Frame) -> NDArray[np.bool_]:
    """Which rows are of the one token that counts for its market; all rows if the frame has no token_id."""
    if "token_id" not in rows.names:
        return np.ones(len(rows), bool)
    names = [name for name in ID_COLUMNS if name in rows.names]
    tokens, token = frames.distinct_ids(rows, names)
    return one_token_per_market([(*ids, None)[:3] for ids in tokens])[token]


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


def warn_of_means(name: str, share: float | None, effective: Sequence[float], missing: Sequence[float]) -> None:
    """Warnings for intervals over few clusters, and for means that leave many rows out."""
    warn_of_few(name, share, effective)
    often = [share_missing for share_missing in missing if share_missing > 0.05]
    if often:
        warn(
            f"Up to {max(often):.0%} of the rows have no {name}, in {len(often)} of {len(missing)} groups; the mean "
            "leaves them out.",
            MissingValuesWarning,
            hint="Rows without an exit are not missing at random: give the mean of net_low beside it.",
        )


def warn_of_few(name: str, share: float | None, effective: Sequence[float], problem: str = "") -> None:
    """FewMarketsWarning for intervals over few clusters, and for another ``problem`` of the intervals."""
    few = [clusters for clusters in effective if 0 < clusters < intervals.ENOUGH]
    fewest = (
        f"rests on as few as {min(few):.3g} effective clusters in {len(few)} of {len(effective)} rows" if few else ""
    )
    problems = [text for text in (fewest, problem) if text]
    if problems and share is not None:
        warn(
            f"The {share:.0%} interval of {name} {', and '.join(problems)}. Below {intervals.ENOUGH} clusters an "
            "interval covers less often than it says.",
            FewMarketsWarning,
            hint="Add markets, or leave the interval out with interval=None.",
        )
