"""What a read may answer: the range that is held, a warning or an error for what is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from marketdata.archive.coverage import gaps, held, merged
from marketdata.archive.ledger import Ledger
from marketdata.errors import ConfigError, NotArchivedError, PartialCoverageWarning, warn
from marketdata.resolution import Resolution
from marketdata.times import Range, to_datetime, to_micros, to_range
from marketdata.wire.columns import VIEWS, AnyColumns, View

Frame = Literal["pandas", "polars"]
Missing = Literal["warn", "raise", "partial", "fetch"]


def checked_view(view: Any) -> View:
    """Check a ``view`` argument.

    Raises
    ------
    ConfigError
        If it is none of the three.
    """
    if view not in VIEWS:
        raise ConfigError(f"view {view!r} does not exist; allowed are {', '.join(VIEWS)}.")
    return cast("View", view)


def checked_missing(on_missing: Any) -> Missing:
    """Check an ``on_missing`` argument; None is "warn"."""
    if on_missing not in (None, "warn", "raise", "partial", "fetch"):
        raise ConfigError(
            f"on_missing={on_missing!r} does not exist; allowed are 'warn', 'raise', 'partial' and 'fetch'."
        )
    return on_missing or "warn"


def checked_markets(market: Any) -> list[str]:
    """Check a ``market`` argument: an id or slug, or several."""
    some = [market] if isinstance(market, str) else list(market) if isinstance(market, Iterable) else [market]
    for one in some:
        if not isinstance(one, str) or not one:
            raise ConfigError(f"market={one!r} is refused; pass an id or slug as text, or a list of them.")
    return some


def checked_levels(levels: Any) -> int | None:
    """Check a ``levels`` argument."""
    if levels is not None and (isinstance(levels, bool) or not isinstance(levels, int) or levels < 1):
        raise ConfigError(f"levels={levels!r} is refused; allowed is a whole number from 1 on.")
    return levels


def held_range(ledger: Ledger, view: View, market_id: str, start: Any, end: Any, on_missing: Missing) -> Range:
    """The range to read, once what is missing of it has been told.

    Raises
    ------
    NotArchivedError
        If nothing of it is held, or a part is missing and that was to be an error.
    """
    have = held(ledger.pieces(view, market_id))
    name = f"{view} of market {market_id[:200]!r}"
    if not have:
        raise NotArchivedError(f"no {name} are held; pull or add them first.")
    first = have[0].start if start is None else to_micros(start, "start")
    last = have[-1].end if end is None else to_micros(end, "end")
    if start is not None and end is not None:
        first, last = to_range(start, end)
    wanted = Range(first, last)
    missing = gaps(have, wanted) if first < last else [wanted]
    if missing == [wanted]:
        raise not_held(f"{name} are not held in {wanted}; held: {_show(have)}.", wanted)
    if missing and on_missing == "raise":
        raise not_held(f"{name} are missing in {_show(missing)}.", missing[0])
    if missing and on_missing == "warn":
        warn(
            f"{name} are missing in {_show(missing)}; the answer holds the rest.",
            PartialCoverageWarning,
            hint="Pull the range, or pass on_missing='partial' to read what is there without this warning.",
        )
    return wanted


def not_held(message: str, missing: Range) -> NotArchivedError:
    """The error that names the missing range."""
    error = NotArchivedError(message)
    error.range = (to_datetime(missing.start), to_datetime(missing.end))
    return error


def _show(ranges: list[Range]) -> str:
    more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
    return ", ".join(map(str, ranges[:3])) + more


def coarser(columns: AnyColumns, resolution: Resolution) -> AnyColumns:
    """Base points by the aggregation rules at a resolution."""
    if resolution is Resolution.M1:
        return columns
    from marketdata.tidy.runs import resample_columns

    return resample_columns(columns, resolution)  # type: ignore[type-var]


def coverage_frame(ledger: Ledger, frame: Frame) -> Any:
    """The coverage of all markets and views as a frame, touching ranges as one."""
    rows: list[tuple[Any, ...]] = []
    for view, market_id in ledger.keys():  # noqa: SIM118  not a dict
        if view not in VIEWS:
            continue
        for p in merged(ledger.pieces(view, market_id)):
            digest = None if p.digest is None else f"{p.digest:016x}"
            times = to_datetime(p.start), to_datetime(p.end)
            rows.append((view, market_id, *times, p.state.value, p.rows, digest, to_datetime(p.fetched_at)))
    return frame_of(rows, COVERAGE_COLUMNS, frame)


COVERAGE_COLUMNS = {
    "view": "text",
    "market_id": "text",
    "start": "time",
    "end": "time",
    "state": "text",
    "rows": "count",
    "content_hash": "text",
    "fetched_at": "time",
}


def frame_of(rows: list[tuple[Any, ...]], columns: dict[str, str], frame: Frame) -> Any:
    """A frame of a few rows; each column is "text", "time" [UTC] or "count"."""
    import polars as pl

    from marketdata.accessor import register

    register(frame)
    types: dict[str, Any] = {"text": pl.String, "time": pl.Datetime("us", "UTC"), "count": pl.Int64}
    out = pl.DataFrame(rows, schema={name: types[kind] for name, kind in columns.items()}, orient="row")
    return out if frame == "polars" else out.to_pandas()
