"""Rows by groups and by clusters: columns of their frame, of market records, or the day of ``ts``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.frame import Column, Frame, Native, Passed
from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import texts
from marketdata.points.columns import Ints
from marketdata.points.order import distinct
from marketdata.points.schema import ID_COLUMNS
from marketdata.tidy.outcomes import events_of
from marketdata.tidy.records import columns_of
from marketdata.tidy.venue_records import EVENTS
from marketdata.times import SECOND

By = str | Iterable[str] | None
Cluster = str | Iterable[str] | None
DAY = "day"
_MICROS_OF_DAY = 86_400 * SECOND


class Records(NamedTuple):
    """Columns of market records, and the row of each market."""

    names: Sequence[str] = ()
    frame: Frame | None = None
    row: Mapping[str, int] = {}


class Keys(NamedTuple):
    """Columns to group and cluster rows by, and the records that have the columns that the frame lacks."""

    by: list[str]
    cluster: list[str]
    records: Records
    events: Mapping[str, Any] | None = None
    """The event of each market, where ``cluster`` is the event because nothing else was asked for."""

    @classmethod
    def of(cls, by: By, cluster: Cluster, present: Sequence[str], records: Any) -> Keys:
        """The arguments of a function of a frame with the columns ``present``, checked."""
        groups = [] if by is None else texts("by", by, "the name of a column")
        if cluster is None:
            return cls._by_events(groups, present, records)
        clusters = texts("cluster", cluster, "the name of a column")
        if not 1 <= len(clusters) <= 2:
            raise ConfigError("is refused; allowed are a column and a pair.", argument="cluster", value=clusters)
        wanted = {"by": groups, "cluster": clusters}
        lacking = {a: [n for n in names if n not in present] for a, names in wanted.items()}
        given = _records(lacking, records, has_times="ts" in present)
        return cls(groups, clusters, given)

    @classmethod
    def _by_events(cls, groups: list[str], present: Sequence[str], records: Any) -> Keys:
        """Clusters of events, of the frame or of the records; of markets where no event is known."""
        given = _records({"by": [n for n in groups if n not in present]}, records, has_times="ts" in present)
        column = next((name for name in EVENTS if name in present), "")
        name, events = (column, {}) if column else events_of(records)
        return cls(groups, [name], given, events) if name else cls(groups, ["market_id"], given)

    @property
    def clustered(self) -> str:
        """How rows were clustered, for results."""
        return ", ".join(self.cluster)

    def carried(self, present: Sequence[str]) -> list[str]:
        """The further columns that the rows of a frame must keep."""
        names = dict.fromkeys([*self.by, *self.cluster])
        return [n for n in names if n in present or (n == DAY and self.events is None and n not in self.records.names)]


class Rows:
    """Rows in memory, with their columns to group by."""

    def __init__(self, table: Frame, keys: Keys) -> None:
        self.table, self.keys = table, keys
        ids, self._market = frames.distinct_ids(table, ["market_id"])
        self._markets = [str(market) for (market,) in ids]

    def codes(self, name: str, *, nullable: bool = True) -> Ints:
        """A column as whole numbers in the order of its values, null last; NotTidyError for a null, if not allowed."""
        records = self.keys.records
        if name in self.table.names:
            return codes_of(self.table, name, nullable=nullable)
        if records.frame is not None and name in records.names:
            row = np.array([self._row(market, name) for market in self._markets], np.int64)
            wanted = records.frame.take(row) if len(row) else records.frame
            return codes_of(wanted, name, nullable=nullable)[self._market]
        return self.table.times("ts") // _MICROS_OF_DAY

    def column(self, name: str, rows: Ints) -> Column:
        """The values of a column at these rows, in their own type."""
        records = self.keys.records
        if name in self.table.names:
            native = rows if self.table.rows is None else self.table.rows[rows]
            return Passed(self.table, name, native)
        if records.frame is not None and name in records.names:
            row = np.array([records.row[market] for market in self._markets], np.int64)
            return Passed(records.frame, name, row[self._market[rows]])
        return frames.times(self.table.times("ts")[rows] // _MICROS_OF_DAY * _MICROS_OF_DAY)

    def groups(self, names: Sequence[str]) -> tuple[Ints, Ints]:
        """One row per group, in the order of its values, and the group of each row; without names one group."""
        if not names:
            return np.zeros(1, np.int64), np.zeros(len(self.table), np.int64)
        return combined([self.codes(name) for name in names])

    def clusters(self) -> Ints:
        """The cluster of each row, one line for each way to cluster."""
        if self.keys.events is not None:
            return self._events(self.keys.cluster[0])[None]
        return np.stack([self.codes(name, nullable=False) for name in self.keys.cluster])

    def _events(self, name: str) -> Ints:
        """The event of each row, and the market of a row whose event is not known."""
        if name not in self.table.names:
            events = self.keys.events or {}
            place = {event: i for i, event in enumerate(sorted({*events.values()}, key=lambda e: (str(type(e)), e)))}
            alone = {market: len(place) + i for i, market in enumerate(sorted(self._markets))}
            of_market = [place[events[one]] if one in events else alone[one] for one in self._markets]
            return np.array(of_market, np.int64)[self._market]
        codes = codes_of(self.table, name)
        _, first = np.unique(codes, return_index=True)
        lacking = [is_missing(one) for one in self.table.take(first).raw(name)]
        is_unknown = np.array(lacking, bool)[codes]
        return np.where(is_unknown, codes.max(initial=-1) + 1 + codes_of(self.table, "market_id"), codes)

    def _row(self, market: str, name: str) -> int:
        if market not in self.keys.records.row:
            raise NotTidyError(
                f"Market {market!r} is not among the market records, so its {name} is not known; add its record, or "
                f"join {name} to the frame."
            )
        return self.keys.records.row[market]


def combined(codes: Sequence[Ints]) -> tuple[Ints, Ints]:
    """One row per combination of codes, in their order, and the number of the combination of each row."""
    which = np.zeros(len(codes[0]), np.int64)
    for one in codes:
        _, number = distinct(one)
        _, which = distinct(which * (int(number.max(initial=0)) + 1) + number)
    return distinct(which)[0], which


def codes_of(rows: Frame, name: str, *, nullable: bool = True) -> Ints:
    """A column as whole numbers in the order of its values, null last; NotTidyError for a null, if not allowed."""
    _, first, which = np.unique(rows.comparable(name), return_index=True, return_inverse=True)
    raw = rows.raw(name, first if rows.rows is None else rows.rows[first])
    values = [None if is_missing(value) else value for value in raw]
    if None in values and not nullable:
        raise NotTidyError(f"{name} has missing values, which are in no cluster; fill them, or drop these rows.")
    order = sorted(range(len(values)), key=lambda i: (values[i] is None, values[i] if values[i] is not None else ""))
    # Null and NaN are one value.
    missing = sum(value is None for value in values)
    rank = np.empty(len(values), np.int64)
    rank[order] = np.minimum(np.arange(len(values)), len(values) - max(missing, 1))
    return rank[which]


def numbers_of_distinct(codes: Ints, group: Ints, count: int) -> Ints:
    """How many different codes each group has; -1 marks rows without a group."""
    first, _ = combined([group, codes])
    owners = group[first]
    return np.bincount(owners[owners >= 0], minlength=count)


def _records(lacking: Mapping[str, list[str]], given: Native | Mapping[str, object], *, has_times: bool) -> Records:
    """Market records with the columns that a frame lacks; a frame with times has a day itself."""
    names = list(dict.fromkeys(name for wanted in lacking.values() for name in wanted))
    is_frame = given is not None and not isinstance(given, Mapping)
    data = columns_of(given, ["market_id", *names]) if names and is_frame else {}
    for argument, wanted in lacking.items():
        for name in wanted:
            if name in data or (name == DAY and has_times):
                continue
            if isinstance(given, Mapping):
                raise ConfigError(
                    f"{argument}={name!r} is no column of the frame, and outcomes is a mapping; join the column, or "
                    "pass a frame of records."
                )
            where = "frame" if given is None else "frame and the market records"
            raise NotTidyError(f"There is no column {name!r} in the {where}, which {argument}={wanted!r} needs.")
    names = [name for name in names if name in data]
    if not names:
        return Records()
    if "market_id" not in data:
        raise NotTidyError.from_missing("market records,", ["market_id"], list(data))
    row: dict[str, int] = {}
    for i, market in enumerate(map(str, data["market_id"])):
        first = row.setdefault(market, i)
        for name in names:
            was, value = data[name][first], data[name][i]
            if name in ID_COLUMNS or isinstance(value, list | tuple | dict | np.ndarray):
                raise ConfigError(f"{name!r} is refused; allowed are columns with one value per market.")
            if was != value:
                raise NotTidyError(f"{name} has two values for market {market!r}: {was!r} and {value!r}.")
    return Records(names, in_memory(given), row)
