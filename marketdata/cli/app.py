"""The verbs of the command line; each only reads its words and calls the library."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from marketdata.cli import keeping, keyring, show
from marketdata.cli.words import (
    LISTED,
    BaseUrl,
    Bucket,
    End,
    Json,
    Markets,
    Out,
    Rows,
    Start,
    View,
    client,
    deliver,
    existing,
)
from marketdata.errors import ConfigError

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
    out: Annotated[Path, typer.Option("--out", "-o", help="Chart: .png, .jpg, .pdf or .svg.")] = Path("demo.png"),
) -> None:
    """See the whole chain on simulated data.

    A local service, a week of books over HTTP, hours compared with the service's own, and a chart; without a key or a
    network.

    \b
    Examples:
      marketdata demo
      marketdata demo --out chart.png
    """
    from marketdata.cli.demo import run

    run(data, out)


@app.command()
def serve(
    archive: Annotated[
        str | None, typer.Argument(metavar="[ARCHIVE]", help="Folder or address of the archive.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to bind; without a key file only loopback.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    keys: Annotated[Path | None, typer.Option(help="TOML file of keys and plans; without it one key is made.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Rate of the key that is made.")] = None,
    *,
    simulated: Annotated[bool, typer.Option("--simulated", help="Serve a simulated week instead.")] = False,
) -> None:
    """Serve an archive over HTTP until interrupted.

    \b
    Examples:
      marketdata serve --simulated
      marketdata serve history --port 8000
      marketdata serve history --keys keys.toml --host 0.0.0.0
    """
    if archive is not None and simulated:
        raise ConfigError("ARCHIVE and --simulated exclude each other; give one of them.")
    if archive is None and not simulated:
        raise ConfigError("Name the folder of an archive, or pass --simulated for a week of simulated markets.")
    from marketdata.service.plans import DEFAULT_REQUESTS_PER_MINUTE
    from marketdata.service.server import run
    from marketdata.simulation import simulate

    rate = requests_per_minute or DEFAULT_REQUESTS_PER_MINUTE
    source = simulate() if archive is None else existing(archive)
    run(source, host, port, keys=keys, requests_per_minute=rate, say=typer.echo)


@app.command()
def usage(base_url: BaseUrl = None, *, as_json: Json = False) -> None:
    """Show the plan of the key and what is left of it.

    \b
    Examples:
      marketdata usage
      marketdata usage --json
    """
    answer = client(base_url).usage()
    typer.echo(show.as_json(answer) if as_json else show.fields(answer))


@app.command()
def markets(
    event: Annotated[str | None, typer.Option(help="Slug of an event.")] = None,
    search: Annotated[str | None, typer.Option(help="Text to look for.")] = None,
    rows: Annotated[int, typer.Option("--max", min=1, help="Most markets.")] = 50,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
) -> None:
    """List markets.

    \b
    Examples:
      marketdata markets --search election --max 10
      marketdata markets --event SLUG --json
    """
    frame = client(base_url).markets(event_slug=event, search=search, max_rows=rows)
    typer.echo(show.as_json(frame) if as_json else show.table(frame, columns=LISTED, widest=60))


@app.command()
def fetch(
    view: View,
    market: Markets,
    start: Start,
    end: End,
    resolution: Bucket = "1m",
    out: Out = None,
    rows: Rows = None,
    base_url: BaseUrl = None,
    *,
    as_json: Json = False,
) -> None:
    """Fetch books, prices or metrics of markets.

    \b
    Examples:
      marketdata fetch books SLUG --start 2025-12-31 --end 2026-01-01 -r 1h
      marketdata fetch prices A B --start 2025-12-31 --end 2026-01-01 -o p.csv
    """
    ask = getattr(client(base_url), view)
    deliver(lambda: ask(market, start, end, resolution), out, rows, as_json=as_json)


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
    """Say what a fetch would cost, without fetching.

    Requests, points, minutes at the key's rate, and what its plan would refuse.

    \b
    Example:
      marketdata plan books SLUG --start 2025-12-01 --end 2026-01-01
    """
    answer = client(base_url).plan(cast("Any", view), market, start, end, resolution)
    typer.echo(show.as_json(dataclasses.asdict(answer)) if as_json else str(answer))


app.command()(keeping.pull)
app.command()(keeping.coverage)
app.command()(keeping.verify)
app.command()(keeping.compact)
app.command("import")(keeping.import_)
app.command()(keeping.export)
app.add_typer(keyring.keys, name="keys")
