"""Commands that request data from a service."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from marketdata.cli import output, parameters
from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.records import COLUMNS, TEXT_LISTS, RecordKind
from marketdata.points.views import VIEWS
from marketdata.times import SECOND, to_datetime

_TEXTS: dict[RecordKind, str] = {"series": "title", "events": "title", "markets": "question"}
# A table begins with the text of a record. It has no ids, because they are long.
LISTED = {
    kind: sorted((c for c in COLUMNS[kind] if not c.endswith("_id") and c not in TEXT_LISTS), key=text.__ne__)
    for kind, text in _TEXTS.items()
}
_LISTED_ROWS = 50  # about a screen
ListedRows = Annotated[int | None, typer.Option(min=1, help="Rows to show.", show_default="50 in a terminal, else all")]


def usage(base_url: parameters.BaseUrl = None, *, as_json: parameters.Json = False) -> None:
    """Show the plan of the key and what is left of it.

    \b
    Example:
      marketdata usage
    """
    facts = dict(parameters.client(base_url).usage())
    limits, organization = facts["limits"], facts["organization"]
    most, left = limits["requests_per_minute"], limits["requests_remaining"]
    lines = [f"plan {facts['plan']}{f' of {organization}' if organization else ''}"]
    reset_at = facts["reset_at_unix_seconds"] = facts.pop("reset_at", None)
    if most is not None and left is not None:
        until = f" until {to_datetime(int(reset_at * SECOND)):%Y-%m-%d %H:%M:%S} UTC" if reset_at else ""
        lines.append(f"{left:,} of {most:,} requests left{until}")
    lines.append(f"resolutions: {', '.join((limits['granularity_allowed'] or 'none').split(','))}")
    lines.append(f"days of history: {limits['max_history_days'] or 'unlimited'}")
    output.record(facts, as_json=as_json, text="\n".join(lines))


@parameters.grouped
def series(
    search: parameters.Search = None,
    rows: ListedRows = None,
    base_url: parameters.BaseUrl = None,
    *,
    printed: parameters.LinesFormat,
) -> None:
    """List series, the themes that events belong to.

    \b
    Example:
      marketdata series --search election
    """
    fmt = printed.name
    _list("series", base_url, fmt, rows, search=search)


@parameters.grouped
def events(
    of_series: Annotated[str | None, typer.Option("--series", help="Slug of a series.")] = None,
    search: parameters.Search = None,
    rows: ListedRows = None,
    base_url: parameters.BaseUrl = None,
    *,
    printed: parameters.LinesFormat,
) -> None:
    """List events, the happenings that markets ask about.

    \b
    Examples:
      marketdata events --search election
      marketdata events --series SLUG --json
    """
    fmt = printed.name
    _list("events", base_url, fmt, rows, series_slug=of_series, search=search)


@parameters.grouped
def markets(
    words: Annotated[list[str] | None, typer.Argument(metavar="WORDS", help="Words to look for.")] = None,
    *,
    filters: parameters.Filters,
    sort: parameters.Sort = None,
    rows: ListedRows = None,
    base_url: parameters.BaseUrl = None,
    printed: parameters.LinesFormat,
) -> None:
    """List markets.

    \b
    Examples:
      marketdata markets fed --service polymarket --rows 10
      marketdata markets --sort volume_24h --rows 10 --service polymarket
      marketdata markets --event SLUG --json
    """
    fmt = printed.name
    if words and filters.search is not None:
        raise ConfigError("is given twice: as WORDS and by --search.", argument="search")
    filters = dataclasses.replace(filters, search=" ".join(words)) if words else filters
    _list("markets", base_url, fmt, rows, **filters.arguments, sort=sort)


@parameters.grouped
def tokens(
    market: Annotated[str, typer.Argument(metavar="MARKET", help="Id or slug of a market.")],
    base_url: parameters.BaseUrl = None,
    *,
    printed: parameters.LinesFormat,
) -> None:
    """List the tokens of a market, one for each outcome.

    \b
    Example:
      marketdata tokens SLUG
    """
    fmt = printed.name
    frame: Any = parameters.client(base_url).tokens(market)
    output.show(frame, fmt, max(1, len(frame)), columns=[c for c in frame.columns if c != "market_id"])


def _list(kind: RecordKind, base_url: str | None, fmt: output.Format, rows: int | None, **filters: Any) -> None:
    """Print the records of a service that pass the filters."""
    shown = rows or (_LISTED_ROWS if fmt == "table" else None)
    # One more record than a table shows tells whether there are more.
    frame = getattr(parameters.client(base_url), kind)(**filters, max_rows=rows or (shown and shown + 1))
    more = f"... the first {shown} {kind}; --rows N shows more, --csv all" if rows is None else ""
    columns = [name for name in LISTED[kind] if name in frame.columns]
    output.show(frame, fmt, shown, columns=columns, empty=f"no {kind} match.", more=more)


@parameters.grouped
def fetch(
    asked: parameters.History,
    out: parameters.Out = None,
    rows: parameters.RowsOption = None,
    base_url: parameters.BaseUrl = None,
    *,
    clamp: parameters.Clamp = False,
    every_page: Annotated[
        bool, typer.Option("--all", help="Also more than 50 requests where --start or --end is left out.")
    ] = False,
    printed: parameters.LinesFormat,
) -> None:
    """Fetch books, prices, metrics, quotes or trades of markets. JSON lines of buckets are printed as they arrive.

    \b
    Examples:
      marketdata fetch prices SLUG --service polymarket -r 1h --period 7d
      marketdata fetch prices A B --start 2025-12-31 --end 2026-01-01 -o p.csv
      marketdata fetch books SLUG --start 2025-12-31 --ndjson
    """
    fmt = printed.name
    if out is not None:
        parameters.check_out(out)
    source: Any = parameters.client(base_url)
    view, wanted = asked.view, (asked.market, asked.start, asked.end)
    how: Any = {"clamp": clamp, "all": every_page, "period": asked.period, "resolution": asked.resolution}
    if not VIEWS[view].is_grid:
        options = {"--resolution": asked.resolution, "--clamp": clamp, "--all": every_page}
        if given := [option for option, value in options.items() if value]:
            raise ConfigError(f"{view} have no buckets, and all of a range are fetched: leave out {', '.join(given)}.")
        how = {"period": asked.period}
    if out is None and fmt == "ndjson" and VIEWS[view].is_grid:
        output.stream(_with_partial(getattr(source, f"iter_{view}")(*wanted, **how)), rows)
        return
    missing = None
    try:
        frame = getattr(source, view)(*wanted, **how)
    except NotFoundError as problem:
        # Of several markets it shows the ones that exist.
        frame, missing = problem.partial, problem
        if frame is None or not len(frame):
            raise
    if out is not None:
        output.write(frame, out, as_json=printed.as_json)
    else:
        output.show(frame, fmt, rows)
    if missing is not None:
        raise missing


def _with_partial(parts: Iterator[Any]) -> Iterator[Any]:
    """Frames as they arrive; before the error about an unknown market, the frame of the others."""
    try:
        yield from parts
    except NotFoundError as problem:
        if problem.partial is not None:
            yield problem.partial
        raise


@parameters.grouped
def plan(
    asked: parameters.History,
    base_url: parameters.BaseUrl = None,
    *,
    as_json: parameters.Json = False,
) -> None:
    """Estimate what a fetch costs, and what the plan would refuse.

    \b
    Example:
      marketdata plan books SLUG
    """
    estimate = parameters.client(base_url).plan(**dataclasses.asdict(asked))
    costs = dataclasses.asdict(estimate)
    costs["memory_bytes"] = costs.pop("memory")
    output.record(costs, as_json=as_json, text=str(estimate))
