"""The mean of a column with an interval over clusters of markets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, in_memory, names_of, read, selected
from marketdata.adapters.frame import Frame
from marketdata.errors import ConfigError
from marketdata.points.arguments import text
from marketdata.points.columns import Floats, Ints, group_sums
from marketdata.points.intervals import UNBOUNDED, Sampling, effective, of_rows
from marketdata.points.left_out import warn_of_exits, warn_of_left_out
from marketdata.points.mirrors import Records, mirrors, warn_of_mixed_labels
from marketdata.points.schema import ID_COLUMNS, OBSERVED, require
from marketdata.tidy.forward import flags_of, is_settled
from marketdata.tidy.groups import By, Cluster, Keys, Rows, numbers_of_distinct
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.outcomes import orders_of

# Columns of forward returns, and of frames that were filled in, which say what a value is.
_LOOKED_AT = ("ts", "status", "horizon", "net_low", "at_end", OBSERVED)


def cluster_mean(
    frame: F,
    value: str,
    *,
    cluster: Cluster = None,
    by: By = None,
    bounds: tuple[float, float] | None = None,
    markets: Any = None,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> F:
    """The mean of a column, with an interval for rows that depend on each other within a market.

    Rows of one market, or of one event, share their luck, so the bootstrap draws whole clusters. If both tokens of a
    market have a row of one ``ts``, only one row counts, because Yes and No cancel each other. The token that counts is
    the first in the market's record in ``markets``, else the first by label: Yes before No, Up before Down, others by
    the alphabet. In markets of three or more tokens every row counts.

    Parameters
    ----------
    frame
        Rows with ``market_id``, of any kind of frame; the columns that are needed are read into memory.
    value : str
        A column of numbers, such as ``net`` of `forward_returns`. Rows without a value are left out.
    cluster : str or pair of str, optional
        Column of rows that share their luck: "market_id", "event_slug" where markets of one event do, "day" where
        shocks of a day are common. A pair, such as ("market_id", "day"), allows for both. By default the event, of the
        frame or of ``markets``, and the market where none is known; the result says which in ``cluster``.
    by : str or list of str, optional
        Columns to group by, such as "horizon". Columns that the frame lacks may be in ``markets``, and "day" is the
        UTC day of ``ts``; ``cluster`` too.
    bounds : pair of float, optional
        The least and the greatest mean there can be; the interval is within. By default -1 and 1, what a share can
        earn, if no value is outside. Say (0, 1) of values that cannot be negative.
    markets : frame, optional
        Market records, whose order of tokens says which one counts, and whose events are clusters.
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
        - ``low``, ``high``: a studentized bootstrap interval over clusters, not within that of Student's t with as many
          degrees of freedom as clusters carry the variance. It is null with fewer than five, where all are alike, and
          where the mean hangs on a few of them. It is null too where ``bounds`` have 0 inside and fewer than three
          clusters would have the rarer sign if the mean were 0, as of favourites that nearly all won.
        - ``cluster``: how rows were clustered, only with ``interval``.
        - ``left_out``: rows of the other token that repeat a row of the one that counts.
        - ``nulls``, ``at_end``, ``not_observed``: rows without a value, those of them whose exit is after the last
          book (see `forward_returns`), which are no nulls then, and rows that were filled in.

    Raises
    ------
    NotTidyError
        Neither a record nor labels say which of two tokens counts.

    Warns
    -----
    FewMarketsWarning
        Fewer than ten clusters are effective, or are of the rarer outcome, or an interval is null.
    MixedLabelsWarning
        The tokens that count have different labels, so that the sign of the mean has no one meaning.
    MissingValuesWarning
        More than 5 percent of the rows have no value. For ``net`` of forward returns: trades without an exit may move
        the mean by more than a quarter of half the interval, or by 0.001 without one. ``net_low`` says how far.

    References
    ----------
    Cameron, Gelbach, Miller (2008), "Bootstrap-based improvements for inference with clustered errors".

    Examples
    --------
    >>> books = md.testing.books("polars", markets=4, buckets=4)
    >>> rows = md.forward_returns(books, "1m", fees=0).filter(pl.col("move").is_not_null())
    >>> mean = md.cluster_mean(rows, "move", by="horizon", interval=None)
    >>> mean.select("horizon", "markets", "points", pl.col("mean").round(4)).rows()
    [('1m', 4, 8, 0.005)]
    """
    frame = read(frame)
    chosen, present = text("value", value, "the name of a column"), names_of(frame)
    keys, sampling = Keys.of(by, cluster, present, markets), Sampling.of(interval, resamples, seed)
    require("A frame with a mean over markets", ["market_id", chosen], present)
    wanted = ["market_id", chosen, *keys.carried(present), *ID_COLUMNS, *_LOOKED_AT]
    rows = Rows(in_memory(selected(frame, [name for name in dict.fromkeys(wanted) if name in present])), keys)
    table = rows.table
    if not table.is_number(chosen) and len(table):
        raise ConfigError("is refused; allowed is a column of numbers.", argument="value", value=value)
    left_out = mirrored_rows(table, {} if markets is None else orders_of(markets))
    values, clusters = table.numbers(chosen), rows.clusters()
    observed = table.observed()
    first, group = rows.groups(keys.by)
    repeats, counted = np.bincount(group[left_out], minlength=len(first)), np.where(left_out, -1, group)
    at_end = np.isnan(values) & flags_of(table, "at_end")
    has_value = np.where(np.isnan(values) | ~observed, -1, counted)
    left = {
        reason: np.bincount(counted[out & (counted >= 0)], minlength=len(first))
        for reason, out in (
            ("nulls", np.isnan(values) & observed & ~at_end),
            ("at_end", at_end & observed),
            ("not_observed", ~observed),
        )
    }
    limits = _bounds(bounds, values)
    columns: dict[str, Any] = {name: rows.column(name, first) for name in keys.by}
    columns["markets"] = numbers_of_distinct(rows.codes("market_id"), has_value, len(first))
    columns |= means(values, has_value, len(first), clusters)
    if sampling is not None:
        signs = _decided(table, values) if limits[0] < 0 < limits[1] < np.inf else None
        intervals = [
            of_rows(
                values[inside],
                np.ones(int(inside.sum())),
                clusters[:, inside],
                sampling,
                bounds=limits,
                signs=None if signs is None else signs[inside],
            )
            for inside in (has_value == number for number in range(len(first)))
        ]
        columns |= ends("", intervals)
        warn_of_intervals(chosen, sampling, [one for one in intervals if one.effective or one.reason != "few"])
        columns["cluster"] = [keys.clustered] * len(first)
    if chosen == "net" and "net_low" in table.names:
        low = table.numbers("net_low")
        counts = np.where(np.isnan(low) | at_end | ~observed, -1, counted)
        half = (columns["high"] - columns["low"]) / 2 if sampling else np.full(len(first), np.nan)
        warn_of_exits(columns["mean"], means(low, counts, len(first), clusters)["mean"], half)
    else:
        warn_of_left_out(chosen, "nulls", left["nulls"], columns["points"])
    return as_kind_of(frame, columns | {"left_out": repeats, **left}, len(first))  # type: ignore[no-any-return]


def means(values: Floats, group: Ints, count: int, clusters: Ints) -> dict[str, Any]:
    """The number of values, the effective number of clusters and the mean of each group; -1 is no group."""
    inside = np.flatnonzero(group >= 0)
    points = np.bincount(group[inside], minlength=count)
    with np.errstate(invalid="ignore"):
        mean = group_sums(group[inside], values[inside], count) / points
    known = [min(_effective(way[group == number]) for way in clusters) for number in range(count)]
    return {"points": points, "effective": np.array(known, float), "mean": mean}


def _effective(clusters: Ints) -> float:
    return effective(np.unique(clusters, return_counts=True)[1].astype(float))


def _bounds(given: tuple[float, float] | None, values: Floats) -> tuple[float, float]:
    """The range of a mean: -1 to 1 if nothing else is said and no value is outside."""
    if given is None:
        return (-1.0, 1.0) if not (np.abs(values) > 1).any() else UNBOUNDED
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        low, high = 0.0, 0.0
    if not low < high or (values < low).any() or (values > high).any():
        raise ConfigError(
            "is refused; allowed is a pair of rising numbers, with no value outside.", argument="bounds", value=given
        )
    return low, high


def _decided(table: Frame, values: Floats) -> Floats:
    """The values whose signs outcomes decided: settled trades among forward returns, else all."""
    if not {"status", "horizon"} <= {*table.names}:
        return values
    return np.where(is_settled(table), values, np.nan)


def mirrored_rows(rows: Frame, records: Records) -> NDArray[np.bool_]:
    """The rows of a token that repeat a row of the other token of their market; only the other one counts."""
    if "token_id" not in rows.names:
        return np.zeros(len(rows), bool)
    tokens, token = frames.distinct_ids(rows, [name for name in ID_COLUMNS if name in rows.names])
    named = [(*of_token, None)[:3] for of_token in tokens]
    ts = rows.times("ts") if "ts" in rows.names else np.zeros(len(rows), np.int64)
    mirrored = mirrors(named, token, ts, records)
    warn_of_mixed_labels(named, token[mirrored.repeated])
    return mirrored.left_out
