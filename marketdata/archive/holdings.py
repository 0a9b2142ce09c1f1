"""The tables of one archive together: data first, then the claim that it is there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from marketdata.archive import points
from marketdata.archive.catalog import KINDS, Catalog, Kind
from marketdata.archive.catalog import SCHEMAS as RECORD_SCHEMAS
from marketdata.archive.coverage import Claim, CoverageState, Interval, cut, within
from marketdata.archive.hashing import content_hash
from marketdata.archive.layout import SCHEMAS
from marketdata.archive.ledger import COVERAGE, Key, Ledger
from marketdata.archive.table import Table
from marketdata.times import Range
from marketdata.wire.columns import VIEWS, AnyColumns, View, concat, empty


class Holdings:
    """Everything that is stored under one root."""

    def __init__(self, root: str, options: dict[str, str] | None, as_of: int | None = None) -> None:
        self.root = root
        self.options = options
        self._as_of = as_of

        def table(name: str, schema: Any) -> Table:
            return Table(f"{root.rstrip('/')}/{name}", schema, options, as_of=as_of)

        self.points: dict[View, Table] = {view: table(view, SCHEMAS[view]) for view in VIEWS}
        self.catalog: dict[Kind, Catalog] = {k: Catalog(table(k, RECORD_SCHEMAS[k]), k) for k in KINDS}
        self.ledger = Ledger(table("coverage", COVERAGE))

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "options": self.options, "as_of": self._as_of}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def tables(self) -> dict[str, Table]:
        """Every table by its name."""
        named: dict[str, Table] = {str(view): table for view, table in self.points.items()}
        named.update({kind: catalog.table for kind, catalog in self.catalog.items()})
        return {**named, "coverage": self.ledger.table}

    def commit(
        self, view: View, columns: AnyColumns, intervals: Sequence[Interval], *, fetched_at: int | None = None
    ) -> None:
        """Replace exactly the points inside the intervals, then record what is known of them.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        columns
            All points of all the intervals, at 1m, in tidy order.
        intervals
            Disjoint per market; several per market are allowed. An interval without points in ``columns`` is empty.
        fetched_at
            When it was fetched [microseconds UTC]; now, without it.
        """
        rounds: list[dict[str, Interval]] = []
        for interval in intervals:
            free = next((r for r in rounds if interval.market_id not in r), None)
            if free is None:
                rounds.append(free := {})
            free[interval.market_id] = interval
        parts = points.by_market(columns)
        for chosen in rounds:
            inside = [parts[m].between(i.start, i.end) for m, i in chosen.items() if m in parts]
            self.store(
                view,
                concat(inside).sort() if inside else empty(view),  # type: ignore[type-var]
                {m: Range(i.start, i.end) for m, i in chosen.items()},
                {m: i.state for m, i in chosen.items()},
                {m: i.tries for m, i in chosen.items()},
                fetched_at,
            )

    def store(
        self,
        view: View,
        columns: AnyColumns,
        ranges: Mapping[str, Range],
        state: CoverageState | Mapping[str, CoverageState] = CoverageState.FINAL,
        tries: Mapping[str, int] | None = None,
        fetched_at: int | None = None,
    ) -> None:
        """Replace a range of each market, then claim it.

        Parameters
        ----------
        columns
            All points of all the ranges, at 1m, in tidy order.
        ranges
            One range per market; a market without points in ``columns`` is empty there.
        state
            What to claim, for all or per market.
        tries
            Answers without points that a range had before.
        fetched_at
            When it was fetched [microseconds UTC]; now, without it.
        """
        if not ranges:
            return
        table = self.points[view]
        self.ledger.table.create()  # what can not be claimed is not written
        self.ledger.append(self._doubts(view, ranges))
        counters = points.replace(table, view, columns, ranges)
        now = time.time_ns() // 1000 if fetched_at is None else fetched_at
        parts = points.by_market(columns)
        claims: dict[Key, list[Claim]] = {}
        for market, wanted in ranges.items():
            part = parts.get(market, empty(view))
            what = state if isinstance(state, CoverageState) else state[market]
            seq = counters[market]
            claim = Claim(
                wanted.start, wanted.end, what, len(part), content_hash(part), now, seq, (tries or {}).get(market, 0)
            )
            claims[view, market] = [*self._left_over(view, market, wanted, seq), claim]
        self.ledger.append(claims)

    def _doubts(self, view: View, ranges: Mapping[str, Range]) -> dict[Key, list[Claim]]:
        """Claims that what is about to be replaced is unproven, and what is left of the older ones.

        A writer that ends between its data and its claim leaves no hash that its data does not have.
        """
        out: dict[Key, list[Claim]] = {}
        for market, wanted in ranges.items():
            doubts = [
                p._replace(state=CoverageState.UNPROVEN, rows=None, digest=None, fetched_at=p.fetched_at + 1)
                for p in within(self.ledger.pieces(view, market), wanted)
                if p.state != CoverageState.MISSING
            ]
            if doubts:
                left = [p._replace(fetched_at=p.fetched_at + 1) for p in self._left_over(view, market, wanted)]
                out[view, market] = [*doubts, *left]
        return out

    def _left_over(self, view: View, market: str, wanted: Range, seq: int | None = None) -> list[Claim]:
        """What is left of older claims outside of a range, with its rows counted again."""
        out = []
        for piece in self.ledger.pieces(view, market):
            for left in cut(piece, wanted.start, wanted.end):
                if left is not piece:
                    rows = points.read(self.points[view], view, market, left.range)
                    known = left._replace(rows=len(rows), digest=content_hash(rows))
                    out.append(known if seq is None else known._replace(seq=seq))
        return out
