"""Verbs that fill, check and read an archive."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from marketdata.cli import files, show
from marketdata.cli.words import (
    LISTED,
    VIEWS,
    BaseUrl,
    Bucket,
    Folder,
    Json,
    Out,
    Rows,
    client,
    deliver,
    existing,
    holds,
    one_of,
)
from marketdata.errors import ConfigError, NotArchivedError

if TYPE_CHECKING:
    from marketdata.archive import Archive


def pull(
    archive: Folder,
    start: Annotated[str, typer.Option(help="First moment: ISO 8601 (UTC without a zone) or Unix seconds.")],
    end: Annotated[str | None, typer.Option(help="End, exclusive; up to now without it.", show_default=False)] = None,
    market: Annotated[list[str] | None, typer.Option(help="Id or slug; may be given again.")] = None,
    event: Annotated[str | None, typer.Option(help="Slug of an event: all its markets.")] = None,
    series: Annotated[str | None, typer.Option(help="Slug of a series: all its markets.")] = None,
    view: Annotated[list[str] | None, typer.Option(help="Only this view; may be given again.", **one_of(VIEWS))] = None,
    base_url: BaseUrl = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be asked.")] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask also for what is final.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch into an archive what it lacks.

    What is held already is not asked again: a second pull asks for nothing. The folder is made by the first one.

    \b
    Examples:
      marketdata pull history --market SLUG --start 2025-12-31
      marketdata pull history --event SLUG --start 2025-12-01 --end 2026-01-01
      marketdata pull history --event SLUG --start 2025-12-01 --dry-run
    """
    from marketdata.archive import Archive

    # A pull keeps the records of the markets it meets, and a question leaves no folder behind.
    scratch = dry_run and not holds(archive)
    with tempfile.TemporaryDirectory() if scratch else contextlib.nullcontext(archive) as place:
        asked = Archive(place, frame="polars").pull(
            client(base_url),
            market or None,
            event=event,
            series=series,
            views=cast("Any", view or VIEWS),
            start=start,
            end=end,
            dry_run=dry_run,
            refresh=refresh,
        )
    if as_json:
        typer.echo(show.as_json(asked))
    elif len(asked):
        typer.echo(show.table(asked))
    else:
        typer.echo("Nothing is missing; no request was made for points.")


def verify(
    archive: Annotated[str | None, typer.Argument(help="Folder or address of the archive.", show_default=False)] = None,
    service: Annotated[
        str | None, typer.Option(metavar="MARKET", help="Ask the service about this market instead.")
    ] = None,
    start: Annotated[str | None, typer.Option(help="First moment, with --service.")] = None,
    end: Annotated[str | None, typer.Option(help="End, exclusive, with --service.")] = None,
    base_url: BaseUrl = None,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Give up what is damaged, so that a pull fills it.")] = False,
    as_json: Json = False,
) -> None:
    """Compare an archive with its hashes.

    Reads everything back; code 1 when anything is damaged. With --service it is told instead which reading of the
    interface the service follows; code 1 when it is another one than ours.

    \b
    Examples:
      marketdata verify history --repair
      marketdata verify --service SLUG --start 2026-01-01 --end 2026-01-02
    """
    if (archive is None) == (service is None):
        raise ConfigError("Give the folder of an archive, or --service MARKET with --start and --end.")
    if service is not None:
        if start is None or end is None:
            raise ConfigError("--service needs --start and --end; a day is enough.")
        told = client(base_url).verify(service, start, end)
        typer.echo(show.as_json({f.reading: f.found for f in told.findings}) if as_json else str(told))
        if told.variants:
            raise typer.Exit(1)
        return
    damaged = existing(str(archive)).verify(repair=repair)
    if as_json:
        typer.echo(show.as_json(damaged))
    else:
        typer.echo(show.table(damaged, widest=60) if len(damaged) else "All that is held is as it was written.")
    if len(damaged) and not repair:
        raise typer.Exit(1)


def compact(archive: Folder, *, as_json: Json = False) -> None:
    """Rewrite many small files as few large ones.

    \b
    Example:
      marketdata compact history
    """
    fewer = existing(archive).compact()
    typer.echo(show.as_json({"files_fewer": fewer}) if as_json else f"{fewer:,} files fewer")


def coverage(archive: Folder, *, as_json: Json = False) -> None:
    """Show which ranges an archive holds.

    \b
    Example:
      marketdata coverage history --json
    """
    frame = existing(archive).coverage()
    typer.echo(show.as_json(frame) if as_json else show.table(frame))


def import_(
    archive: Folder,
    source: Annotated[Path, typer.Argument(help="Folder with markets, series, events, books, prices, metrics.")],
) -> None:
    """Add recorded files to an archive.

    Files are .parquet, .csv, .ndjson or .jsonl. Recordings that are finer than 1m are reduced to 1m. The folder of the
    archive is made by the first import.

    \b
    Example:
      marketdata import history recordings/
    """
    from marketdata.archive import Archive

    for line in files.load(Archive(archive), source):
        typer.echo(line)


def export(
    archive: Folder,
    view: Annotated[str, typer.Argument(show_default=False, **one_of((*VIEWS, "markets")))],
    market: Annotated[
        list[str] | None, typer.Argument(help="Ids or slugs of markets; all records without.", show_default=False)
    ] = None,
    start: Annotated[str | None, typer.Option(help="First moment; all there is without it.")] = None,
    end: Annotated[str | None, typer.Option(help="End, exclusive.")] = None,
    resolution: Bucket = "1m",
    out: Out = None,
    rows: Rows = None,
    *,
    as_json: Json = False,
) -> None:
    """Read books, prices, metrics or market records of an archive.

    Files of both, named by what they hold, are what import takes: points at 1m, and the records for their slugs.

    \b
    Examples:
      marketdata export history prices SLUG -r 1h
      marketdata export history books SLUG --out copy/books.parquet
      marketdata export history markets --out copy/markets.ndjson
    """
    source = existing(archive)
    if view == "markets":
        if start or end:
            raise ConfigError("Records of markets have no range: leave out --start and --end.")
        deliver(lambda: _records(source, market or []), out, rows, as_json=as_json, columns=LISTED, widest=60)
    elif market:
        ask = getattr(source, view)
        deliver(lambda: ask(market, start, end, resolution), out, rows, as_json=as_json)
    else:
        raise ConfigError(f"Name the markets whose {view} are wanted; marketdata export ARCHIVE markets lists them.")


def _records(archive: Archive, wanted: list[str]) -> Any:
    """The records of these markets, or of all, as a frame; dates are written as the service writes them."""
    import polars as pl

    from marketdata.tidy.records import to_frame

    found = [archive.find_market(name) for name in wanted] if wanted else archive.records("markets")
    lost = [name for name, record in zip(wanted, found, strict=False) if record is None]
    if lost or not found:
        raise NotArchivedError(f"The archive holds no market {', '.join(map(repr, lost)) or 'at all'}.")
    frame = to_frame("markets", cast("Any", found), "polars")
    return frame.with_columns(pl.col(pl.Datetime).dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"))
