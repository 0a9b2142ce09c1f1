"""Signals of a study: their values, when each was known, their clusters, and what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, read
from marketdata.adapters.frame import Frame, Native
from marketdata.adapters.widths import width_beside
from marketdata.errors import ConfigError
from marketdata.points.columns import Floats, Ints, Series
from marketdata.points.grids import RowWidth
from marketdata.points.records import leaks_outcome
from marketdata.points.schema import OBSERVED, require, value_columns
from marketdata.resolution import Width
from marketdata.tidy.asof import KNOWN
from marketdata.tidy.groups import Cluster, Keys, Rows
from marketdata.tidy.measures import features
from marketdata.tidy.outcomes import Payoffs


class Signal(NamedTuple):
    """A signal: its name, its values, the bucket of the books that each was decided in, and clusters.

    There is a line of clusters for each way to cluster, and ``clustered`` names the ways. ``observed`` is False for
    rows that were filled in.
    """

    name: str
    values: Series
    decided: Ints
    clusters: Ints
    clustered: str
    observed: NDArray[np.bool_]


def signal_of(
    books: Native, signal: Any, width: Width | None, rows: RowWidth, cluster: Cluster, outcomes: Any
) -> Signal:
    """The name, the values, the times and the clusters of a signal."""
    native = features(books, [signal]) if isinstance(signal, str | tuple) else read(signal)
    table: Frame = in_memory(native)
    require("A frame of signals", ["ts", "market_id", "token_id"], table.names)
    keys = Keys.of(None, cluster, table.names, outcomes)
    columns = [name for name in value_columns(table.names) if name not in (OBSERVED, KNOWN, *keys.cluster)]
    leaking = [name for name in columns if leaks_outcome(name)]
    if leaking:
        raise ConfigError(
            f"signal has {', '.join(map(repr, leaking))}, which leaks the outcome; make it of what was known at ts."
        )
    if len(columns) != 1 or not table.is_number(columns[0]):
        raise ConfigError(
            f"signal has the columns {', '.join(map(repr, columns)) or 'of ids alone'}; allowed is one column of "
            "numbers beside ts, ids and columns of cluster. Pass several signals as a list of frames."
        )
    table, values = frames.sorted_series(table, columns)
    if KNOWN in table.names:
        known = table.times(KNOWN)
    else:
        is_measure = isinstance(signal, str | tuple)
        own = rows if is_measure else width_beside(native, width, "signal_width", "the signal", rows)
        own.check(values.ts)
        known = own.known(values.ts)
    clusters, clustered = Rows(table, keys).clusters(), keys.clustered
    return Signal(columns[0], values, rows.decided(known), clusters, clustered, table.observed())


def refuse_payoffs(name: str, signals: Series, outcomes: Payoffs) -> None:
    """ConfigError for a signal that is the payoff of each token under another name."""
    paid, values = outcomes.of(signals.tokens)[signals.token], signals.values[name]
    has_both = ~np.isnan(paid) & ~np.isnan(values)
    paid, values = paid[has_both], values[has_both]
    if len(np.unique(paid)) > 1 and (np.array_equal(values, paid) or np.array_equal(values, 1 - paid)):
        raise ConfigError(f"signal {name!r} equals the payoff of every token, so it leaks the outcome.")


def refuse_few_values(name: str, values: Floats, quantiles: int) -> None:
    """ConfigError for a signal of fewer values than quantiles: some would be empty, whatever the sample."""
    if len(values) >= quantiles > 1 and 1 < (different := len(np.unique(values))) < quantiles:
        raise ConfigError(
            f"is refused: the signal {name!r} has {different} different values, and equal ones are in one quantile, so "
            f"that others would be empty. Give quantiles={different}.",
            argument="quantiles",
            value=quantiles,
        )
