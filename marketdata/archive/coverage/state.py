"""The states of coverage."""

from __future__ import annotations

from enum import StrEnum

from marketdata.errors import ArchiveError


class CoverageState(StrEnum):
    """The state of a range of a market's view; its rows tell whether it has points.

    ``final``: complete, will not change. ``provisional``: complete when fetched, and fetched again, as it is young,
    empty or has long gaps. ``recorded``: points that were added, not stated to be complete. ``unproven``: stored, but
    perhaps incomplete or not as written. ``missing``: never fetched, or damaged.
    """

    FINAL = "final"
    PROVISIONAL = "provisional"
    RECORDED = "recorded"
    UNPROVEN = "unproven"
    MISSING = "missing"

    @classmethod
    def _missing_(cls, value: object) -> CoverageState:
        raise ArchiveError(
            f"The coverage of the archive has the state {value!r}, which this version of marketdata does not know.",
            hint="Open it with the version of marketdata that wrote it, or a later one.",
        )
