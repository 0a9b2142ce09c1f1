"""The coverage table: claims are appended after the data that they speak of, and read as coverage."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from marketdata.archive.coverage import Claim, CoverageState, effective, merged
from marketdata.archive.table import State, Table
from marketdata.times import SECOND

Key = tuple[str, str]
TS = pa.timestamp("us", "UTC")
COVERAGE = pa.schema(
    [
        ("view", pa.string()),
        ("market_id", pa.string()),
        ("start", TS),
        ("end", TS),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("content_hash", pa.string()),
        ("fetched_at", TS),
        ("seq", pa.int64()),
        ("tries", pa.int64()),
    ]
)
_FILES = 64
# A writer that has committed data but not yet its claim is at most this old.
_IN_FLIGHT = 600 * SECOND


class Ledger:
    """Which ranges of which market and view are held, as the claims of the coverage table say."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._state: State | None = None
        self._files: dict[str, list[tuple[Key, Claim]]] = {}
        self._claims: dict[Key, list[Claim]] = {}
        self._pieces: dict[Key, list[Claim]] = {}

    def pieces(self, view: str, market_id: str) -> list[Claim]:
        """Disjoint claims of one market's view in time order."""
        self._refresh()
        key = (view, market_id)
        if key not in self._pieces:
            self._pieces[key] = effective(self._claims.get(key, ()))
        return self._pieces[key]

    def keys(self) -> list[Key]:
        """Every (view, market_id) with a claim, sorted."""
        self._refresh()
        return sorted(self._claims)

    def _refresh(self) -> None:
        state = self.table.state()
        if self._state is not None and state.version == self._state.version:
            return
        paths = {f.path: f for f in state.files}
        if any(path not in paths for path in self._files):
            self._files, self._claims, self._pieces = {}, {}, {}
        for path, file in paths.items():
            if path in self._files:
                continue
            rows = _claims(self.table.read(file))
            self._files[path] = rows
            for key, claim in rows:
                self._claims.setdefault(key, []).append(claim)
                self._pieces.pop(key, None)
        self._state = state

    def append(self, claims: Mapping[Key, Sequence[Claim]]) -> None:
        """Write claims; call it after the data is committed, never before."""
        flat = [(key, claim) for key, some in claims.items() for claim in some]
        if not flat:
            return
        rows = claim_table(flat)
        adds = self.table.put(rows, np.ones(rows.num_rows, dtype=np.int64))
        self.table.commit(lambda _: (adds, ()), ())
        if len(self.table.state().files) > _FILES:
            self.compact()

    def compact(self) -> None:
        """All claims as one file; touching ones become one where nobody can still be between two steps."""
        written: list[Any] = []

        def plan(state: State) -> tuple[list[Any], Iterable[Any]]:
            self._refresh()
            settled = time.time_ns() // 1000 - _IN_FLIGHT

            def may_merge(a: Claim, b: Claim) -> bool:
                return max(a.fetched_at, b.fetched_at) < settled

            flat = [(key, claim) for key in self.keys() for claim in merged(self.pieces(*key), may_merge=may_merge)]
            rows = claim_table(flat)
            for stale in written:
                self.table.store.delete(stale.path)
            written[:] = self.table.put(rows, np.ones(rows.num_rows, dtype=np.int64))
            return written, [f for f in state.files if f.path in self._files]

        self.table.commit(plan, ["compact"], data_change=False)


def claim_table(flat: Sequence[tuple[Key, Claim]]) -> pa.Table:
    """Claims as rows of the coverage table."""
    return pa.table(
        {
            "view": [key[0] for key, _ in flat],
            "market_id": [key[1] for key, _ in flat],
            "start": pa.array([c.start for _, c in flat], pa.int64()).cast(TS),
            "end": pa.array([c.end for _, c in flat], pa.int64()).cast(TS),
            "state": [c.state.value for _, c in flat],
            "rows": pa.array([c.rows for _, c in flat], pa.int64()),
            "content_hash": pa.array([None if c.digest is None else f"{c.digest:016x}" for _, c in flat], pa.string()),
            "fetched_at": pa.array([c.fetched_at for _, c in flat], pa.int64()).cast(TS),
            "seq": pa.array([c.seq for _, c in flat], pa.int64()),
            "tries": pa.array([c.tries for _, c in flat], pa.int64()),
        },
        schema=COVERAGE,
    )


def _claims(rows: pa.Table) -> list[tuple[Key, Claim]]:
    def ints(name: str) -> list[int]:
        values: list[int] = rows.column(name).cast(pa.int64()).to_pylist()
        return values

    texts = {n: rows.column(n).cast(pa.string()).to_pylist() for n in ("view", "market_id", "state", "content_hash")}
    return [
        (
            (view, market),
            Claim(start, end, CoverageState(state), count, None if h is None else int(h, 16), fetched, seq, tries),
        )
        for view, market, start, end, state, count, h, fetched, seq, tries in zip(
            texts["view"],
            texts["market_id"],
            ints("start"),
            ints("end"),
            texts["state"],
            rows.column("rows").to_pylist(),
            texts["content_hash"],
            ints("fetched_at"),
            ints("seq"),
            ints("tries"),
            strict=True,
        )
    ]
