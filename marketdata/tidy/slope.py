"""Coefficients of a regression with intervals over clusters of markets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, in_memory, names_of, read, selected
from marketdata.adapters.frame import Column
from marketdata.adapters.polars import typed
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import choice, text
from marketdata.points.columns import Floats
from marketdata.points.intervals import Sampling
from marketdata.points.left_out import warn_of_left_out
from marketdata.points.life import over
from marketdata.points.regression import Link, fit
from marketdata.points.schema import ID_COLUMNS, require
from marketdata.tidy.cluster_mean import mirrored_rows
from marketdata.tidy.groups import By, Cluster, Keys, Rows
from marketdata.tidy.intervals import ends, warn_of_intervals
from marketdata.tidy.outcomes import lives_of, orders_of

INTERCEPT = "intercept"


def slope(
    frame: F,
    y: str,
    x: str | Iterable[str],
    *,
    cluster: Cluster = None,
    link: Link = "identity",
    by: By = None,
    markets: Any = None,
    interval: float | None = 0.95,
) -> F:
    """The slope of one column on others, with intervals for rows that depend on each other within a market.

    With ``link="logit"`` it is a recalibration: ``y`` is whether a token paid, ``x`` the log-odds of its price, and a
    slope of 1 with an intercept of 0 means that prices are right. With ``link="identity"`` it is the price that orders
    move (Kyle's lambda), or how much of a signal a return follows.

    Parameters
    ----------
    frame
        Rows with ``market_id``, of any kind of frame; the columns that are needed are read into memory.
    y : str
        The column of numbers that is explained. With ``link="logit"`` a probability or a payoff [0 to 1].
    x : str or list of str
        Columns of numbers that explain it. An intercept is always there.
    cluster : str or pair of str, optional
        As in `cluster_mean`: by default the event, of the frame or of ``markets``, and the market where none is known.
    link : "identity" or "logit"
        Whether ``y`` is linear in ``x``, or its log-odds are.
    by : str or list of str, optional
        Columns to group by, such as "horizon": one regression for each group.
    markets : frame, optional
        Market records, whose order of tokens says which token counts, and whose events are clusters.
    interval : float or None
        Probability that an interval covers [0 to 1]; None leaves ``low``, ``high`` and ``p_value`` out.

    Returns
    -------
    frame
        One row per group and coefficient: the values of ``by``, and

        - ``term``: "intercept", or the column of ``x``.
        - ``points``, ``clusters``: rows and clusters that count.
        - ``coefficient``, in units of ``y`` (log-odds with "logit") per unit of ``x``. It is null where nothing tells
          it: fewer than five clusters, a column without variation, or outcomes that a column separates.
        - ``std_error``: by the sums of clusters, with the usual factor for few clusters.
        - ``low``, ``high``, ``p_value``: of Student's t with as many degrees of freedom as clusters carry the variance.
          The error is that of leaving each cluster out, where it is greater.
        - ``cluster``: how rows were clustered.
        - ``left_out``: rows of the other token that repeat a row of the one that counts; ``nulls``: rows without a
          value of ``y`` or ``x``; ``after_close``: rows that begin after the close of their market, by ``markets``;
          ``not_observed``: rows that were filled in.

    Raises
    ------
    NotTidyError
        A value of ``y`` is no probability although ``link="logit"``, or neither a record nor labels say which of two
        tokens counts.

    Warns
    -----
    FewMarketsWarning
        Fewer than ten clusters are effective, or a coefficient is null.
    MissingValuesWarning
        More than 5 percent of the rows have no value.

    References
    ----------
    Cameron, Miller (2015), "A practitioner's guide to cluster-robust inference".

    Examples
    --------
    >>> rows = pl.DataFrame({
    ...     "market_id": [f"m{n // 4}" for n in range(40)],
    ...     "signal": [float(n % 7) for n in range(40)],
    ...     "move": [0.5 * (n % 7) + (n // 4) % 3 for n in range(40)],
    ... })
    >>> found = md.slope(rows, "move", "signal")
    >>> found.select("term", "clusters", pl.col("coefficient").round(2)).rows()
    [('intercept', 10, 0.91), ('signal', 10, 0.5)]
    """
    frame = read(frame)
    explained, present = text("y", y, "the name of a column"), names_of(frame)
    columns = [x] if isinstance(x, str) else [*x]
    choice("link", link, ("identity", "logit"))
    if explained in columns or len({*columns}) < len(columns) or not columns:
        raise ConfigError("is refused; allowed are other columns than y, each once.", argument="x", value=columns)
    keys, sampling = Keys.of(by, cluster, present, markets), Sampling.of(interval)
    require("A frame of a regression", ["market_id", explained, *columns], present)
    wanted = ["market_id", explained, *columns, *keys.carried(present), *ID_COLUMNS, "ts", "observed"]
    rows = Rows(in_memory(selected(frame, [name for name in dict.fromkeys(wanted) if name in present])), keys)
    table = rows.table
    for argument, name in (("y", explained), *(("x", name) for name in columns)):
        if not table.is_number(name) and len(table):
            raise ConfigError("is refused; allowed is a column of numbers.", argument=argument, value=name)
    values = np.stack([table.numbers(name) for name in (explained, *columns)])
    _refuse(explained, columns, values, link)
    repeated = mirrored_rows(table, {} if markets is None else orders_of(markets))
    observed, unknown = table.observed(), np.isnan(values).any(axis=0)
    is_over = _after_close(rows, markets)
    first, group = rows.groups(keys.by)
    counts = ~repeated & observed & ~unknown & ~is_over
    clusters, terms = rows.clusters(), [INTERCEPT, *columns]
    design = np.concatenate((np.ones((1, len(table))), values[1:])).T
    fits = [
        fit(values[0, some], design[some], clusters[:, some], link, interval)
        for some in (counts & (group == number) for number in range(len(first)))
    ]
    points = np.bincount(group[counts], minlength=len(first))
    left = {
        "left_out": repeated,
        "nulls": ~repeated & observed & unknown & ~is_over,
        "after_close": ~repeated & is_over,
        "not_observed": ~repeated & ~observed & ~is_over,
    }
    lost = {reason: np.bincount(group[one], minlength=len(first)) for reason, one in left.items()}
    each = len(terms)
    out: dict[str, Column] = {name: rows.column(name, np.repeat(first, each)) for name in keys.by}
    out["term"] = typed("text", terms * len(first))
    out["points"] = np.repeat(points, each)
    out["clusters"] = np.repeat([one.clusters for one in fits], each).astype(np.int64)
    out["coefficient"] = np.concatenate([np.zeros(0), *(one.coefficients for one in fits)])
    out["std_error"] = np.concatenate([np.zeros(0), *(one.errors for one in fits)])
    intervals = [interval_of_term for one in fits for interval_of_term in one.intervals]
    if sampling is not None:
        out |= ends("", intervals)
        out["p_value"] = np.array([one.p_value for one in intervals], float)
        warn_of_intervals(explained, sampling, [one for one in intervals if one.effective or one.reason != "few"])
    out["cluster"] = typed("text", [keys.clustered] * each * len(first))
    warn_of_left_out(explained, "nulls", lost["nulls"], points)
    return as_kind_of(  # type: ignore[no-any-return]
        frame, out | {reason: np.repeat(one, each) for reason, one in lost.items()}, each * len(first)
    )


def _after_close(rows: Rows, markets: Any) -> NDArray[np.bool_]:
    """Which rows begin at or after the close of their market, where records say it."""
    if markets is None or "ts" not in rows.table.names:
        return np.zeros(len(rows.table), bool)
    ids, market = frames.distinct_ids(rows.table, ["market_id"])
    return np.asarray(rows.table.times("ts") >= over(lives_of(markets), [name for (name,) in ids])[market])


def _refuse(y: str, columns: Iterable[str], values: Floats, link: Link) -> None:
    """NotTidyError for values that have no place in a regression."""
    for name, numbers in zip((y, *columns), values, strict=True):
        if np.isinf(numbers).any():
            raise NotTidyError(
                f"{name} is infinite in {int(np.isinf(numbers).sum())} rows; the log-odds of 0 and 1 are."
            )
    wrong = (values[0] < 0) | (values[0] > 1)
    if link == "logit" and wrong.any():
        raise NotTidyError(
            f"{y} is {values[0][wrong][0]:g}; with link='logit' it is a payoff or a probability, 0 to 1. "
            "link='identity' takes any number."
        )
