"""What is wanted of files: some markets and tokens, and a range of time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.points.columns import Ints
from marketdata.recordings.units import TimeUnit
from marketdata.resolution import BucketWidth
from marketdata.times import DAY

# More texts than these are not looked for in the bytes of a file.
_MOST_TEXTS = 64
# Texts that JSON and CSV write as they are.
_AS_IT_IS = re.compile(r"[\w.:-]+", re.ASCII)
# The reason for which rows of other markets and times are left out.
NOT_WANTED = "not wanted"
# What readers strip from ids.
_AROUND_IDS = "\0 '"


class TimeBounds(NamedTuple):
    """The range of wanted times [microseconds] of a column, with the unit of its values."""

    column: str
    unit: TimeUnit
    start: int | None
    end: int | None

    def may_be_between(self, least: Any, most: Any) -> bool:
        """Whether a column with these bounds may have a wanted time; that of a candle may be its end."""
        if isinstance(least, str | bytes) or (isinstance(least, int) and self.unit.name in ("datetime", "date")):
            return True
        first, last = self.unit.micros(pl.Series([least, most])).to_list()
        if first is None or last is None:
            return True
        return (self.start is None or last >= self.start - DAY) and (self.end is None or first < self.end + DAY)


class Needles(NamedTuple):
    """The texts, in lower case, of which a wanted row has one in one of these columns."""

    columns: tuple[str, ...]
    texts: frozenset[str]
    times: TimeBounds | None = None

    @property
    def pattern(self) -> re.Pattern[bytes] | None:
        """A pattern that finds them in bytes in lower case; None if these may have them in another form."""
        if not self.columns or len(self.texts) > _MOST_TEXTS or not all(map(_AS_IT_IS.fullmatch, self.texts)):
            return None
        return re.compile(b"|".join(re.escape(text.encode()) for text in sorted(self.texts)))

    def rows(self, table: Any) -> NDArray[np.bool_]:
        """Whether each row of an Arrow table has one of the texts."""
        found = np.zeros(len(table), bool)
        for name in self.columns:
            parts = [self._entries(chunk) for chunk in table.column(name).chunks]
            found |= np.concatenate([np.zeros(0, bool), *parts])
        return found

    def _entries(self, values: Any) -> NDArray[np.bool_]:
        """Whether each entry of an Arrow array is one of the texts."""
        if hasattr(values, "dictionary"):
            # The last one is for nulls.
            of_value = np.append(self._entries(values.dictionary), False)
            entries: NDArray[np.bool_] = of_value[values.indices.fill_null(-1).to_numpy()]
            return entries
        texts = pl.Series(values).cast(pl.String, strict=False).str.strip_chars(_AROUND_IDS).str.to_lowercase()
        return texts.is_in(self.texts).fill_null(value=False).to_numpy()

    def may_be_between(self, least: Any, most: Any) -> bool:
        """Whether a column with these bounds may have one of the texts."""
        if isinstance(least, bytes) and isinstance(most, bytes):
            least, most = (bound.decode(errors="replace") for bound in (least, most))
        if isinstance(least, int) and isinstance(most, int):
            return any(text.isdigit() and least <= int(text) <= most for text in self.texts)
        if not isinstance(least, str) or not isinstance(most, str):
            return True
        # Bounds of texts in several cases, or with signs around them, say nothing about other spellings.
        if not (least == least.lower() and most == most.lower()) or {*_AROUND_IDS} & {least[:1], most[:1]}:
            return least != most or least.strip(_AROUND_IDS).lower() in self.texts
        return any(least <= text <= most.rstrip(_AROUND_IDS) for text in self.texts)


@dataclass(frozen=True)
class Wanted:
    """Markets and tokens that are wanted, None for all; and the range of time [microseconds], without its end.

    ``names`` are all names that rows may give to a wanted market or token.
    """

    markets: frozenset[str] | None = None
    tokens: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    start: int | None = None
    end: int | None = None

    def __bool__(self) -> bool:
        return self.markets is not None or self.start is not None or self.end is not None

    def needles(self, columns: Collection[str], time: tuple[str, TimeUnit] | None) -> Needles | None:
        """What to look for in these columns of ids and the column of times; None if all rows are wanted."""
        has_range = time is not None and not self.start is self.end is None
        times = TimeBounds(*time, self.start, self.end) if has_range and time is not None else None
        if (self.markets is None or not columns) and times is None:
            return None
        texts = frozenset(text.lower() for text in self.names)
        return Needles(tuple(columns) if self.markets is not None else (), texts, times)

    def has(self, market: str | None, token: str | None) -> bool:
        """Whether a market or a token is wanted."""
        return self.markets is None or market in self.markets or token in self.tokens

    def in_time(self, ts: Ints) -> NDArray[np.bool_]:
        """Whether times are in the range."""
        after = np.ones(len(ts), bool) if self.start is None else ts >= self.start
        return after if self.end is None else after & (ts < self.end)

    def has_record(self, record: Mapping[str, Any]) -> bool:
        """Whether the record of a market is wanted."""
        return self.markets is None or bool({*self.names_of(record)} & (self.markets | self.tokens))

    @staticmethod
    def names_of(record: Mapping[str, Any]) -> Iterator[str]:
        """The names of the market and its tokens."""
        yield from names_of_record(record)
        tokens = record.get("token_ids") or [token.get("id") for token in record.get("tokens") or ()]
        yield from map(str, tokens)


def names_of_record(record: Mapping[str, Any]) -> Iterator[str]:
    """The names that a record gives to its market."""
    for name in ("id", "market_id", "condition_id", "slug", "market_slug", "ticker", "market_ticker"):
        if record.get(name):
            yield str(record[name])


class Selection(NamedTuple):
    """The arguments ``only``, ``start`` and ``end`` of an import; times in microseconds."""

    only: tuple[str, ...] | None = None
    start: int | None = None
    end: int | None = None

    def aligned(self, base: BucketWidth) -> Selection:
        """The times of the rows whose buckets are in the range."""
        bounds = (None if at is None else int(base.floor(np.array([at + base.micros - 1]))[0]) for at in self[1:])
        return Selection(self.only, *bounds)


EVERYTHING = Selection()


def wanted_of(selection: Selection, records: Iterable[Mapping[str, Any]]) -> Wanted:
    """What is wanted, where names may be those of the records and others."""
    only, start, end = selection
    if only is None:
        return Wanted(start=start, end=end)
    markets, tokens, names = {*only}, {*only}, {*only}
    # A token of a market without ids is called by the market and its label.
    names |= {name.rpartition(":")[0] for name in only if ":" in name}
    for record in records:
        called = {*names_of_record(record)}
        ids = [str(token["id"]) for token in record.get("tokens") or () if token.get("id")]
        if called & {*only} or not {*ids} & {*only}:
            markets |= called
            names |= {*ids}
        names |= called
    return Wanted(frozenset(markets), frozenset(tokens), frozenset(names), start, end)


def wanted_in(selection: Selection, catalog: Any) -> Wanted:
    """What is wanted, with all names that a catalog of markets gives to it."""
    ids = {id_ for name in selection.only or () for id_ in (catalog.named(name), *catalog.markets_of(name)) if id_}
    return wanted_of(selection, filter(None, map(catalog.of_id, sorted(ids))))
