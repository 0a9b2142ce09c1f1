"""Commands that fill, check and read an archive."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from marketdata.cli import messages, output, parameters
from marketdata.cli.commands.client import LISTED
from marketdata.display import without_middle
from marketdata.errors import ConfigError, NotArchivedError
from marketdata.points.views import VIEWS, View

if TYPE_CHECKING:
    import polars as pl

    from marketdata.archive import Archive
    from marketdata.archive.pull.rounds import Round

_LONGEST_NAME = 24  # of a market in a line of 80 columns
_EVERY_ROW = 2**31  # more than any table has


@parameters.grouped
def pull(
    archive: parameters.Folder,
    start: Annotated[
        str | None,
        typer.Option(
            help="Start, inclusive: ISO 8601 (UTC without a zone), Unix seconds, or -1d for a day before now.",
            show_default="now, with --follow",
        ),
    ] = None,
    *,
    selection: parameters.Selection,
    end: Annotated[str | None, typer.Option(help="End, exclusive; up to now without it.")] = None,
    period: parameters.Period = None,
    market: Annotated[list[str] | None, typer.Option(help="The same as MARKET; may be given again.")] = None,
    view: parameters.Views = None,
    resolution: parameters.NewWidth = None,
    base_url: parameters.BaseUrl = None,
    clamp: parameters.Clamp = False,
    every_market: Annotated[bool, typer.Option("--all", help="Every market that the service lists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be fetched.")] = False,
    refresh: Annotated[bool, typer.Option("--refresh", help="Fetch also what is final.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep pulling until stopped; a line per round on stderr.")
    ] = False,
    every: Annotated[str, typer.Option(help="From round to round, with --follow: 30s, 1m, 1h.")] = "1m",
    printed: parameters.TableFormat,
) -> None:
    """Fetch what is missing in an archive. The first pull creates it.

    The table has a line for each market with the points of each view; --csv and --json have one for each range.
    With --follow, Ctrl-C or SIGTERM ends it with exit code 0, and the same command continues where it was.

    \b
    Examples:
      marketdata pull history SLUG SLUG --start 2025-12-31
      marketdata pull history --event SLUG --start 2025-12-01 --end 2026-01-01
      marketdata pull history --search fed --state open --period 7d
      marketdata pull history --from-file markets.txt --start 2025-12-01 --follow
      marketdata pull history SLUG --service polymarket --view books --follow
    """
    fmt = printed.name
    chosen = selection.chosen(*(market or ()), every_market=every_market)
    from marketdata.archive import Archive
    from marketdata.archive.store import is_archive

    options: dict[str, Any] = {
        **chosen, "views": view or None, "start": start, "resolution": resolution, "clamp": clamp
    }  # fmt: skip
    if follow:
        useless = {
            "--end": end,
            "--period": period,
            "--dry-run": dry_run,
            "--refresh": refresh,
            "--json": printed.as_json,
            "--csv": printed.as_csv,
        }
        if wrong := [name for name, value in useless.items() if value]:
            raise ConfigError(f"--follow excludes {', '.join(wrong)}.")
        rounds = Archive(archive).follow(parameters.client(base_url), every=every, **options)
        _print(_lines(rounds))
        return
    if start is None and period is None:
        raise ConfigError(
            "is missing; only --follow begins now without it.", argument="start", hint="Give --start, or --period 7d."
        )
    # A pull stores the records of its markets; a dry run creates no folder.
    scratch = dry_run and not is_archive(archive)
    with tempfile.TemporaryDirectory() if scratch else contextlib.nullcontext(archive) as place:
        store = Archive(place, frame="polars")
        fetched = store.pull(
            parameters.client(base_url),
            end=end,
            period=period,
            dry_run=dry_run,
            refresh=refresh,
            **options,
        )
        shown = _by_market(store, fetched) if fmt == "table" else fetched
    output.show(shown, fmt, _EVERY_ROW, empty="nothing is missing; no request was made for points.")
    if fmt == "table" and len(fetched):
        typer.echo(_sum(fetched))


def _by_market(archive: Archive, ranges: pl.DataFrame) -> pl.DataFrame:
    """A line for each market: the points of each view that was fetched, the states and the ends of its ranges."""
    import polars as pl

    texts = ranges.with_columns(pl.col("market_id", "view", "state").cast(pl.String))
    views = texts["view"].unique(maintain_order=True).to_list()
    # No ranges of a view are no points of it; ranges that were not fetched have no number.
    points = [pl.col("rows").filter(pl.col("view") == view) for view in views]
    summed = texts.group_by("market_id", maintain_order=True).agg(
        *(
            pl.when(rows.is_not_null().any()).then(rows.sum()).alias(view)
            for view, rows in zip(views, points, strict=True)
        ),
        pl.col("state").unique(maintain_order=True).str.join(", "),
        pl.col("start").min().alias("from"),
        pl.col("end").max().alias("to"),
    )
    slugs = {str(one["id"]): one.get("slug") or str(one["id"]) for one in archive.records("markets")}
    names = [without_middle(slugs.get(name, name), _LONGEST_NAME) for name in summed["market_id"]]
    return summed.select(pl.Series("market", names), pl.exclude("market_id"))


def _sum(ranges: pl.DataFrame) -> str:
    """All ranges in a line; a dry run has no points."""
    points = f"{int(ranges['rows'].sum()):,} points, " if ranges["rows"].count() else ""
    start, end = (f"{at:%Y-%m-%d %H:%M}" for at in (min(ranges["start"]), max(ranges["end"])))
    return f"{ranges['market_id'].n_unique():,} markets, {len(ranges):,} ranges, {points}{start} to {end}"


def _lines(rounds: Iterator[Round]) -> Iterator[str]:
    """A line per round."""
    for done in rounds:
        at = "-" if done.at is None else f"{done.at:%Y-%m-%dT%H:%M:%SZ}"
        count = f"{done.markets:,} markets, {done.ranges:,} ranges, {done.points:,} points"
        problem = f"; {messages.line(done.error)}" if done.error is not None else ""
        yield f"{at} {count}{problem}"


def _print(lines: Iterator[str], end_line: str = "stopped; the same command goes on from here.") -> None:
    """Print lines until a signal arrives, and then a last one."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        for line in lines:
            typer.echo(f"marketdata: {line}", err=True)
    except KeyboardInterrupt:
        typer.echo(f"marketdata: {end_line}", err=True)
    finally:
        signal.signal(signal.SIGTERM, before)


@parameters.grouped
def record(
    archive: parameters.Folder,
    *,
    selection: parameters.Selection,
    every: Annotated[str | None, typer.Option(help="Width of a bucket of a new archive.", show_default="1s")] = None,
    base_url: parameters.BaseUrl = None,
    commit_every: Annotated[float, typer.Option(help="Seconds between commits, with a line each on stderr.")] = 15.0,
    raw: Annotated[str | None, typer.Option(metavar="FOLDER", help="Keep the frames as they came, in files.")] = None,
) -> None:
    """Record order books from the stream of a venue.

    Books are stored at full depth, and trades beside them. Ctrl-C or SIGTERM stores what was seen and ends it with exit
    code 0; the same command goes on. What was not seen is missing in the coverage. Kalshi needs KALSHI_API_KEY_ID and
    KALSHI_PRIVATE_KEY_PATH.

    \b
    Examples:
      marketdata record seconds SLUG --service polymarket
      marketdata record minutes --event SLUG --service polymarket --every 1m
    """
    chosen = selection.chosen()
    from marketdata.archive import Archive

    client = parameters.client(base_url)
    reports = Archive(archive).record(client, every=every, commit_every=commit_every, raw=raw, **chosen)
    _print(str(report) for report in reports)


def replay(
    archive: parameters.Folder,
    market: parameters.MarketsOrAll = None,
    start: Annotated[str | None, typer.Option(help="Start, inclusive.", show_default="of what is stored")] = None,
    end: Annotated[str | None, typer.Option(help="End, exclusive.", show_default="of what is stored")] = None,
    speed: Annotated[
        str, typer.Option(help="1 for real time, a multiple such as 60, or max: as fast as a client reads.")
    ] = "1",
    port: Annotated[int, typer.Option(help="Port on this machine; 0 picks a free one.")] = 8765,
) -> None:
    """Play stored books as a local websocket.

    It has the format of Polymarket's market channel: a client of that needs the address that is printed, and nothing
    else. Each client begins at the start. At a
    gap the connection is cut, and a client that subscribes again goes on there. Ctrl-C or SIGTERM ends it.

    \b
    Example:
      marketdata replay seconds SLUG --speed 60 --port 8765
    """
    from marketdata.archive.replay import replay_server

    try:
        factor = None if speed == "max" else float(speed)
    except ValueError:
        raise ConfigError("is refused; allowed are numbers from 1, and max.", argument="speed", value=speed) from None
    stored = parameters.open_archive(archive)
    with replay_server(stored, market or None, start, end, speed=factor, port=port) as mirror:
        _print(_address(mirror.address), "stopped.")


def _address(address: str) -> Iterator[str]:
    """The address, and then nothing until the end."""
    yield f"playing at {address}"
    while True:
        time.sleep(1)


@parameters.grouped
def verify(
    archive: Annotated[str | None, typer.Argument(metavar="ARCHIVE", help="Folder or address of the archive.")] = None,
    market: Annotated[
        str | None, typer.Option(help="Id or slug of a market: check the service with it instead.")
    ] = None,
    start: Annotated[str | None, typer.Option(help="Start, with --market.")] = None,
    end: Annotated[str | None, typer.Option(help="End, exclusive, with --market.")] = None,
    base_url: parameters.BaseUrl = None,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mark damaged ranges as missing, for the next pull.")
    ] = False,
    printed: parameters.TableFormat,
) -> None:
    """Check an archive, or how a service reads the interface.

    Exit code 1 if anything in the archive is damaged, or if the service is not as this library assumes where the
    interface leaves a choice.

    \b
    Examples:
      marketdata verify history --repair
      marketdata verify --market SLUG --start 2026-01-01 --end 2026-01-02
      marketdata verify --service kalshi --market SLUG --start DAY --end DAY
    """
    if (archive is None) == (market is None) or (archive is not None and base_url is not None):
        raise ConfigError("Give the folder of an archive, or --market MARKET of a --service with --start and --end.")
    fmt = printed.name
    if market is not None:
        if start is None or end is None:
            raise ConfigError("--market needs --start and --end; a day is enough.")
        report = parameters.client(base_url).verify(market, start, end)
        facts = {finding.reading: finding.found for finding in report.findings} | {"service": report.service.rows}
        output.record(facts, as_json=printed.as_json, text=str(report))
        if report.variants:
            raise typer.Exit(1)
        return
    damaged = parameters.open_archive(str(archive)).verify(repair=repair)
    output.show(damaged, fmt, _EVERY_ROW, empty="nothing is damaged: every file and point is as it was written.")
    if len(damaged) and not repair:
        raise typer.Exit(1)


def compact(archive: parameters.Folder, *, as_json: parameters.Json = False) -> None:
    """Rewrite many small files as few large ones.

    \b
    Example:
      marketdata compact history
    """
    fewer = parameters.open_archive(archive).compact()
    output.record({"files_fewer": fewer}, as_json=as_json, text=f"{fewer:,} files fewer")


@parameters.grouped
def coverage(
    archive: parameters.Folder,
    *,
    printed: parameters.LinesFormat,
) -> None:
    """Show which ranges an archive has.

    \b
    Example:
      marketdata coverage history
    """
    fmt = printed.name
    source = parameters.open_archive(archive)
    ranges: Any = source.coverage()
    shown = _legible(source, ranges) if fmt == "table" else ranges
    output.show(shown, fmt, _EVERY_ROW, empty="the archive is empty.")


def _legible(archive: Archive, ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges with the question of their market, and in words how many points are in how many minutes."""
    import polars as pl

    names = {str(one["id"]): one.get("question") or one.get("slug") for one in archive.records("markets")}
    minutes = (ranges["end"] - ranges["start"]).dt.total_minutes()
    points = ["-" if rows is None else f"{rows:,} in {length:,} min"
              for rows, length in zip(ranges["rows"], minutes, strict=True)]  # fmt: skip
    market = pl.col("market_id").cast(pl.String).replace(names).alias("market")
    return ranges.select(market, "view", "start", "end", pl.Series("points", points), "state")


def _given_sides(text: str) -> dict[str, str | None]:
    """The sides of words, as ``1=buy,-1=sell``; an empty text names none."""
    pairs = [pair.rpartition("=") for pair in text.split(",") if pair.strip()]
    if not all(word and side.strip() in ("buy", "sell") for word, _, side in pairs):
        raise ConfigError("is no list such as 1=buy,-1=sell.", argument="--sides", value=text)
    return {word: side.strip() for word, _, side in pairs}


@parameters.grouped
def import_(
    archive: parameters.Folder,
    source: Annotated[
        list[str],
        typer.Argument(metavar="PATHS", help="Files, folders and patterns, of records, points and recordings."),
    ],
    market: Annotated[
        list[str] | None, typer.Option(help="Store only this market or token; may be given again.")
    ] = None,
    start: Annotated[str | None, typer.Option(help="Store only buckets from here on.")] = None,
    end: Annotated[str | None, typer.Option(help="Store only buckets before this.")] = None,
    base: Annotated[str | None, typer.Option(help="Width of the points of a new archive.", show_default="1m")] = None,
    form: Annotated[str | None, typer.Option("--format", help="Format of all files, where several fit.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option(metavar="OURS=THEIRS,...", help="Names of columns, as ts=when,token_id=asset.")
    ] = None,
    markets: Annotated[str | None, typer.Option(metavar="FILE", help="Records of the markets.")] = None,
    token_id: Annotated[
        str | None, typer.Option(help="The token of rows that name none; '{name}' is the name of the file.")
    ] = None,
    time_format: Annotated[
        str | None, typer.Option(help="Form of dates that are no ISO 8601, such as %m/%d/%Y.")
    ] = None,
    sides: Annotated[
        list[str] | None, typer.Option(metavar="THEIRS=SIDE,...", help="What words for a side mean, as 1=buy,-1=sell.")
    ] = None,
    clock: Annotated[
        str, typer.Option(help="timestamp (of the venue), received, a column, or modified (of the file).")
    ] = "timestamp",
    keep: Annotated[
        list[str] | None, typer.Option(help="A field of books to store, such as hash; may be given again.")
    ] = None,
    max_gap: Annotated[str, typer.Option(help="Longest hole in a recording over which books remain valid.")] = "5m",
    max_age: Annotated[str, typer.Option(help="Longest silence of a token over which its book remains valid.")] = "1h",
    max_disagreement: Annotated[
        float, typer.Option(help="Share of books that may have other best prices than messages state.")
    ] = 0.01,
    *,
    changed_only: Annotated[
        bool, typer.Option("--changed-only", help="No books in buckets without a message of their token.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Give the report, and store nothing.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what the columns are taken for, and why; store nothing.")
    ] = False,
    printed: parameters.TableFormat,
) -> None:
    """Add files to an archive. The first import creates it.

    Columns decide what a file is: records, prices, quotes, metrics or books as tables, answers of venues, or a
    recording of books. Names end in .json, .jsonl, .ndjson, .csv or .tsv, also with .gz or .zst, or in .parquet,
    .sqlite or .db; a folder may be a Delta table. --explain says why a file is what it is. The table accounts for every
    row: those read, stored and left out, and the points they became. A file is imported once; a stopped import
    continues. Exit code 1 if a file of a folder or pattern cannot be read.

    \b
    Examples:
      marketdata import history markets.ndjson books.parquet
      marketdata import history prices.csv --columns ts=when --dry-run
      marketdata import history prices.csv --explain
      marketdata import history prices.parquet --market SLUG --start 2026-01-01
      marketdata import seconds "2026-*/*.jsonl.gz" --base 1s
    """
    from marketdata.archive import Archive
    from marketdata.archive.imports import is_left_out

    fmt = printed.name
    renamed = None
    if columns:
        pairs = [[name.strip() for name in pair.split("=")] for pair in ",".join(columns).split(",")]
        if not all(len(pair) == 2 and all(pair) for pair in pairs):
            raise ConfigError(
                "is no list such as ts=when,token_id=asset.", argument="--columns", value=",".join(columns)
            )
        renamed = dict(pairs)
    meant = None if sides is None else _given_sides(",".join(sides))
    if explain:
        from marketdata.recordings.explain import explained
        from marketdata.recordings.files import ReadOptions
        from marketdata.recordings.format import kept_fields
        from marketdata.recordings.roles import given_sides, renamed_columns

        options = ReadOptions(
            clock, kept_fields(keep or ()), form, renamed_columns(renamed), token_id, time_format, given_sides(meant)
        )
        refused = 0
        for text, problem in explained(source, options):
            typer.echo(messages.in_shell(text))
            refused = refused or (0 if problem is None else messages.code(problem))
        if refused:
            raise typer.Exit(refused)
        return
    added = Archive(archive, frame="polars", base=base).add_files(
        source,
        only=market or None,
        start=start,
        end=end,
        format=form,
        columns=renamed,
        markets=markets,
        clock=clock,
        token_id=token_id,
        time_format=time_format,
        sides=meant,
        keep=keep or (),
        max_gap=max_gap,
        max_age=max_age,
        unchanged=not changed_only,
        max_disagreement=max_disagreement,
        dry_run=dry_run,
    )
    counts = ("file", "format", "rows", "stored", "left_out", "points", "replaced", "tokens", "start", "end")
    output.show(added, fmt, _EVERY_ROW, columns=counts)
    for file, *details in added.select("file", "why", "reasons", "note").rows() if fmt == "table" else ():
        words = ("it", "left out", "note:")
        typer.echo(f"{file}: " + "; ".join(f"{word} {text}" for word, text in zip(words, details, strict=True) if text))
    if any(is_left_out(rows, note) for rows, note in added.select("rows", "note").rows()):
        raise typer.Exit(1)


@parameters.grouped
def export(
    archive: parameters.Folder,
    view: Annotated[Literal[View, "markets"], typer.Argument(metavar="VIEW")],
    market: parameters.MarketsOrAll = None,
    start: Annotated[str | None, typer.Option(help="Start, inclusive.")] = None,
    end: Annotated[str | None, typer.Option(help="End, exclusive.")] = None,
    period: parameters.Period = None,
    resolution: parameters.Bucket = None,
    out: parameters.Out = None,
    rows: parameters.RowsOption = None,
    *,
    printed: parameters.LinesFormat,
) -> None:
    """Read points or market records of an archive.

    Files of points at 1m and of market records can be imported again.

    \b
    Examples:
      marketdata export history prices SLUG -r 1h
      marketdata export history books --out copy/books.parquet
    """
    fmt = printed.name
    source = parameters.open_archive(archive)
    if out is not None:
        parameters.check_out(out)
    if view == "markets" and (start or end or period):
        raise ConfigError("Records of markets have no range: leave out --start, --end and --period.")
    if view == "markets":
        data: Any = _records(source, market or [])
    elif market and VIEWS[view].is_grid:
        data = getattr(source, view)(market, start, end, resolution, period=period)
    else:
        data = source.scan(view, market or None, start, end, resolution, period=period)
    if out is not None:
        output.write(data, out, as_json=printed.as_json)
    else:
        output.show(data, fmt, rows, columns=LISTED["markets"] if view == "markets" else None)


def _records(archive: Archive, wanted: list[str]) -> pl.DataFrame:
    """The records of these markets, or of all, as a frame."""
    from marketdata.archive.reading import Reader
    from marketdata.tidy.records import to_frame

    records = [Reader(archive).find_market(name) for name in wanted] if wanted else archive.records("markets")
    lost = [name for name, record in zip(wanted, records, strict=False) if record is None]
    if lost or not records:
        raise NotArchivedError(f"The archive has no market {', '.join(map(repr, lost)) or 'at all'}.")
    return cast("pl.DataFrame", to_frame("markets", cast("Any", records), "polars"))
