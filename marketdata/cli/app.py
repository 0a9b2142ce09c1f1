"""The verbs of the command line; each only reads its words and calls the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from marketdata.cli import files, show

if TYPE_CHECKING:
    from marketdata.client import Client

_EPILOG = (
    "The key comes from MARKETDATA_API_KEY, the address from --base-url or MARKETDATA_BASE_URL. "
    "Exit codes: 0 done, 1 failed, 2 argument refused, 3 key or plan, 4 not found, 5 service or network."
)
app = typer.Typer(
    name="marketdata",
    help="Historical prediction-market data as tidy frames.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

View = Literal["books", "prices", "metrics"]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Address of the service.", show_default=False)]
Start = Annotated[str, typer.Option(help="First moment: ISO 8601 (UTC without a zone) or Unix seconds.")]
End = Annotated[str, typer.Option(help="End, exclusive.")]
Bucket = Annotated[str, typer.Option("--resolution", "-r", help="1m, 10m, 1h, 6h or 1d.")]
Markets = Annotated[list[str], typer.Argument(help="Ids or slugs of markets.", show_default=False)]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to a .parquet, .csv or .ndjson file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Rows = Annotated[int, typer.Option(help="Rows to show.")]
Folder = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Folder or address of the archive.", show_default=False)]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001  main reads it
) -> None:
    if version:
        import marketdata

        typer.echo(f"marketdata {marketdata.__version__}")
        raise typer.Exit


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder of recorded markets, books, prices and metrics as Parquet.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the chart goes.")] = Path("demo.png"),
) -> None:
    """Show the whole chain on a local service over simulated data, without a key or a network.

    Example: marketdata demo --out chart.png
    """
    from marketdata.cli.demo import run

    run(data, out)


@app.command()
def serve(
    archive: Folder,
    host: Annotated[str, typer.Option(help="Address to bind; without a key file only loopback.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    keys: Annotated[Path | None, typer.Option(help="TOML file of keys and plans; without it one key is made.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Rate of the key that is made.")] = None,
) -> None:
    """Serve an archive over HTTP until interrupted.

    Example: marketdata serve history --port 8000
    """
    from marketdata.service.plans import DEFAULT_REQUESTS_PER_MINUTE
    from marketdata.service.server import run

    rate = requests_per_minute or DEFAULT_REQUESTS_PER_MINUTE
    run(_existing(archive), host, port, keys=keys, requests_per_minute=rate, say=typer.echo)


@app.command()
def usage(base_url: BaseUrl = None, *, as_json: Json = False) -> None:
    """Show the plan of the key and what is left of it."""
    answer = _client(base_url).usage()
    typer.echo(show.as_json(answer) if as_json else show.fields(answer))


@app.command()
def markets(
    event: Annotated[str | None, typer.Option(help="Slug of an event.")] = None,
    search: Annotated[str | None, typer.Option(help="Text to look for.")] = None,
    rows: Annotated[int, typer.Option("--max", help="Most markets.")] = 50,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
) -> None:
    """List markets.

    Example: marketdata markets --search election --max 10
    """
    frame = _client(base_url).markets(event_slug=event, search=search, max_rows=rows)
    columns = ("slug", "question", "status", "start_date", "end_date")
    typer.echo(show.as_json(frame) if as_json else show.table(frame, columns=columns, widest=60))


@app.command()
def fetch(
    view: View,
    market: Markets,
    start: Start,
    end: End,
    resolution: Bucket = "1m",
    out: Out = None,
    rows: Rows = 10,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
) -> None:
    """Fetch books, prices or metrics of markets.

    Example: marketdata fetch prices SLUG --start 2025-12-31 --end 2026-01-01 -r 1h --out prices.parquet
    """
    client = _client(base_url)
    _deliver(getattr(client, view)(market, start, end, resolution), out, rows, as_json=as_json)


@app.command()
def plan(
    view: View,
    market: Markets,
    start: Start,
    end: End,
    resolution: Bucket = "1m",
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
) -> None:
    """Say what a fetch would cost: requests, points, minutes, and what the plan would refuse."""
    for name in market:
        answer = _client(base_url).plan(view, name, start, end, resolution)
        typer.echo(show.as_json(answer) if as_json else str(answer))


@app.command()
def coverage(archive: Folder, *, as_json: Json = False) -> None:
    """Show which ranges an archive holds."""
    frame = _existing(archive).coverage()
    typer.echo(show.as_json(frame) if as_json else show.table(frame))


@app.command("import")
def import_(
    archive: Folder,
    source: Annotated[
        Path, typer.Argument(help="Folder with markets, series, events, books, prices, metrics as .parquet or .csv.")
    ],
) -> None:
    """Add recorded files to an archive; recordings finer than 1m are reduced to 1m.

    Example: marketdata import history recordings/
    """
    from marketdata.archive import Archive

    for line in files.load(Archive(archive), source):
        typer.echo(line)


@app.command()
def export(
    archive: Folder,
    view: View,
    market: Markets,
    start: Annotated[str | None, typer.Option(help="First moment; all there is without it.")] = None,
    end: Annotated[str | None, typer.Option(help="End, exclusive.")] = None,
    resolution: Bucket = "1m",
    out: Out = None,
    rows: Rows = 10,
    *,
    as_json: Json = False,
) -> None:
    """Read books, prices or metrics from an archive, as a file or a table.

    Example: marketdata export history books SLUG -r 1h --out books.parquet
    """
    _deliver(getattr(_existing(archive), view)(market, start, end, resolution), out, rows, as_json=as_json)


def _client(base_url: str | None) -> Client:
    from marketdata.client import Client

    return Client(base_url, frame="polars")


def _existing(path: str) -> Any:
    from marketdata.archive import Archive
    from marketdata.errors import ConfigError

    if "://" not in path and not Path(path).is_dir():
        raise ConfigError(f"{path!r} is no folder; make an archive with: marketdata import {path} RECORDINGS")
    return Archive(path, frame="polars")


def _deliver(frame: Any, out: Path | None, rows: int, *, as_json: bool) -> None:
    if out is not None:
        files.write(frame, out)
        typer.echo(f"{len(frame):,} rows in {out}")
    elif as_json:
        typer.echo(show.as_json(frame))
    else:
        typer.echo(show.table(frame, rows))
        if len(frame) > rows:
            typer.echo(f"... {len(frame):,} rows; --out FILE writes them all")
