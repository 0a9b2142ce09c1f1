"""Commands that request data from a service."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from marketdata.cli import output
from marketdata.cli.parameters import (
    BaseUrl,
    Bucket,
    Csv,
    End,
    Json,
    MarketsArgument,
    Ndjson,
    Out,
    RowsOption,
    Start,
    ViewArgument,
    check_out,
    client,
)
from marketdata.errors import NotFoundError
from marketdata.points.records import COLUMNS, TEXT_LISTS
from marketdata.resolution import Resolution
from marketdata.times import SECOND, to_datetime

# Columns of a table of markets: what it asks first; ids are long.
LISTED = sorted((name for name in COLUMNS["markets"] if name not in ("market_id", *TEXT_LISTS)), key="question".__ne__)
# Markets of a table, about a screen, unless more are asked for.
_LISTED_ROWS = 50


def usage(base_url: BaseUrl = None, *, as_json: Json = False) -> None:
    """Show the plan of the key and what is left of it.

    \b
    Example:
      marketdata usage
    """
    found = dict(client(base_url).usage())
    output.record(found, as_json=as_json, text="\n".join(_usage(found)))


def _usage(found: Mapping[str, Any]) -> Iterator[str]:
    limits, of = found["limits"], f" of {found['organization']}" if found["organization"] else ""
    yield f"plan {found['plan']}{of}"
    most, left = limits["requests_per_minute"], limits["requests_remaining"]
    if most is not None and left is not None:
        until = (
            f" until {to_datetime(int(found['reset_at'] * SECOND)):%Y-%m-%d %H:%M:%S} UTC" if found["reset_at"] else ""
        )
        yield f"{left:,} of {most:,} requests left{until}"
    yield f"resolutions: {', '.join((limits['granularity_allowed'] or 'none').split(','))}"
    yield f"days of history: {limits['max_history_days'] or 'unlimited'}"


def markets(
    event: Annotated[str | None, typer.Option(help="Slug of an event.")] = None,
    search: Annotated[str | None, typer.Option(help="Text to look for.")] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Markets to show.", show_default="50 in a terminal, else all")
    ] = None,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
    as_csv: Csv = False,
    as_ndjson: Ndjson = False,
) -> None:
    """List markets.

    \b
    Examples:
      marketdata markets --search election --rows 10
      marketdata markets --event SLUG --json
    """
    fmt = output.choose(as_json=as_json, as_csv=as_csv, as_ndjson=as_ndjson)
    most = rows or (_LISTED_ROWS if fmt == "table" else None)
    # One more than is shown tells whether there are more.
    frame = client(base_url).markets(event_slug=event, search=search, max_rows=rows or (most and most + 1))
    more = f"... the first {most} markets; --rows N shows more, --csv all" if rows is None else ""
    output.show(frame, fmt, most, columns=LISTED, empty="no market matches.", more=more)


def fetch(
    view: ViewArgument,
    market: MarketsArgument,
    start: Start,
    end: End,
    resolution: Bucket = Resolution.M1,
    out: Out = None,
    rows: RowsOption = None,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
    as_csv: Csv = False,
    as_ndjson: Ndjson = False,
) -> None:
    """Fetch books, prices or metrics of markets. JSON lines are printed as they arrive.

    \b
    Examples:
      marketdata fetch prices A B --start 2025-12-31 --end 2026-01-01 -o p.csv
      marketdata fetch books SLUG --start 2025-12-31 --end 2026-01-01 --ndjson
    """
    fmt = output.choose(as_json=as_json, as_csv=as_csv, as_ndjson=as_ndjson)
    if out is not None:
        check_out(out)
    source: Any = client(base_url)
    if out is None and fmt == "ndjson":
        parts = getattr(source, f"iter_{view}")(market, start, end, resolution)
        output.stream(_with_partial(parts), rows)
        return
    missing = None
    try:
        frame = getattr(source, view)(market, start, end, resolution)
    except NotFoundError as problem:
        frame, missing = problem.partial, problem
        if not _has_rows(frame):
            raise
    if out is not None:
        output.write(frame, out, as_json=as_json)
    else:
        output.show(frame, fmt, rows)
    if missing is not None:
        raise missing


def _with_partial(parts: Iterator[Any]) -> Iterator[Any]:
    """Frames as they arrive; before the error about an unknown market, the frame of the others."""
    try:
        yield from parts
    except NotFoundError as problem:
        if _has_rows(problem.partial):
            yield problem.partial
        raise


def _has_rows(frame: Any) -> bool:
    return frame is not None and len(frame) > 0


def plan(
    view: ViewArgument,
    market: MarketsArgument,
    start: Start,
    end: End,
    resolution: Bucket = Resolution.M1,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
) -> None:
    """Estimate what a fetch costs: requests, points, minutes, and what the plan of the key would refuse.

    \b
    Example:
      marketdata plan books SLUG --start 2025-12-01 --end 2026-01-01
    """
    estimate = client(base_url).plan(view, market, start, end, resolution)
    output.record(dataclasses.asdict(estimate), as_json=as_json, text=str(estimate))
