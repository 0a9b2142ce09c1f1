"""Reads of an archive as columns and records, for a service and for tests: no frames, no warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marketdata.archive import query
from marketdata.archive.scan import query_of
from marketdata.points.arguments import choice
from marketdata.points.columns import Data
from marketdata.points.records import RECORD_KINDS, RecordKind
from marketdata.points.views import VIEWS, View
from marketdata.times import Range

if TYPE_CHECKING:
    from marketdata.archive.archive import Archive


class Reader:
    """Points and records of an archive, as they are stored."""

    def __init__(self, archive: Archive[Any]) -> None:
        self._store = archive._store  # noqa: SLF001  the archive has no public name for it

    @property
    def base(self) -> str:
        """Width of the stored points, such as "1m"."""
        return self._store.base.text

    def columns(
        self, view: View, market_id: str, rng: Range | None = None, resolution: Any = None, token_id: str | None = None
    ) -> Data:
        """Points of one market as Books or Series, sorted by token and time, whatever the coverage says.

        ``rng`` [microseconds UTC] selects base points, which are then aggregated; ``token_id`` selects one token.
        """
        view, wanted = choice("view", view, VIEWS), rng or query.ALL_TIME
        points = query_of(self._store, view, [market_id], wanted, resolution, token_id=token_id, counts=False)
        return points.columns()

    def stored_ranges(self, view: View, market_id: str, rng: Range) -> list[Range]:
        """Ranges [microseconds UTC] that may have points of a market, whatever the coverage says.

        ArchiveCorruptError if the coverage is damaged, as of reads of frames: nobody can tell then what is missing.
        """
        self._store.coverage[view].records(market_id)
        return query.stored_ranges(self._store.points[view], market_id, rng)

    def version(self, table: View | RecordKind) -> int:
        """Number of the newest commit of a view or of records, from 0; -1 before it."""
        return self._store.tables[choice("view", table, (*VIEWS, *RECORD_KINDS))].version().number

    def records(self, kind: RecordKind) -> list[dict[str, Any]]:
        """Records of a kind, by id."""
        return self._store.catalog[choice("kind", kind, RECORD_KINDS)].records()

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        """The record of the market with this id, else with this slug, or None."""
        return self._store.catalog["markets"].find(id_or_slug)

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The record of the market that has this token, and the token's label, or None."""
        return self._store.catalog["markets"].token(token_id)

    def coverage(self) -> Any:
        """The stored ranges as a polars frame."""
        return query.coverage_frame(self._store.coverage, "polars")
