"""Commands that serve: ``serve`` and ``keys`` for the local service, ``mcp`` for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from marketdata.cli import output, parameters
from marketdata.errors import ConfigError

keys = typer.Typer(help="Create, list and revoke keys of the local service.", no_args_is_help=True)
KeyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="TOML file of keys and plans; only hashes of keys are stored.")
]


def serve(
    archive: Annotated[str | None, typer.Argument(metavar="ARCHIVE", help="Folder or address of the archive.")] = None,
    host: Annotated[str, typer.Option(help="Address to bind; without a key file only loopback.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8000,
    key_file: Annotated[
        Path | None, typer.Option("--keys", help="TOML file of keys and plans; without it one key is created.")
    ] = None,
    requests_per_minute: Annotated[int, typer.Option(min=1, help="Rate of the key that is created.")] = 60_000,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(help="Address or network whose X-Forwarded headers are trusted; repeatable.")
    ] = None,
    host_name: Annotated[list[str] | None, typer.Option(help="Allowed name in the Host header; repeatable.")] = None,
    resolution: Annotated[
        list[str] | None, typer.Option(help="Resolution that requests may name; repeatable. Default: 1m 10m 1h 6h 1d.")
    ] = None,
    *,
    simulated: Annotated[bool, typer.Option("--simulated", help="Serve a simulated week instead.")] = False,
) -> None:
    """Serve an archive over HTTP until interrupted.

    \b
    Examples:
      marketdata serve --simulated
      marketdata serve history --keys keys.toml --trusted-proxy 127.0.0.1
    """
    if archive is not None and simulated:
        raise ConfigError("ARCHIVE and --simulated exclude each other; give one of them.")
    if archive is None and not simulated:
        raise ConfigError("Name the folder of an archive, or pass --simulated for a week of simulated markets.")
    from marketdata.service import run
    from marketdata.simulation import simulate

    if archive is None:
        typer.echo("marketdata: simulating a week of markets", err=True)
    run(
        simulate() if archive is None else parameters.open_archive(archive),
        host,
        port,
        keys=key_file,
        requests_per_minute=requests_per_minute,
        trusted_proxies=trusted_proxy or (),
        host_names=host_name or (),
        resolutions=resolution or None,
        say=typer.echo,
    )


@keys.command()
def new(
    file: KeyFile,
    plan: Annotated[str | None, typer.Option(help="Plan of the key: of the file, or for a new file its name.")] = None,
    organization: Annotated[str | None, typer.Option(help="Owner of the key.")] = None,
) -> None:
    """Create a key and show it once. A new file gets one plan that allows everything.

    \b
    Example:
      marketdata keys new keys.toml --plan pro --organization "My desk"
    """
    from marketdata.service.keys import add_key

    key, entry = add_key(file, plan, organization=organization)
    typer.echo(f"{entry.id} (plan {entry.plan}); this is the only time the key is shown:\n{key}")


@keys.command("list")
@parameters.grouped
def list_(file: KeyFile, *, printed: parameters.TableFormat) -> None:
    """List keys by id; never the keys themselves.

    \b
    Example:
      marketdata keys list keys.toml --json
    """
    import polars as pl

    from marketdata.service.keys import read_key_file

    entries = [entry.model_dump() for entry in read_key_file(file).keys]
    schema: dict[str, Any] = dict.fromkeys(("id", "plan", "organization"), pl.String)
    schema |= {**dict.fromkeys(("created", "expires"), pl.Datetime("us", "UTC")), "revoked": pl.Boolean}
    output.show(pl.DataFrame(entries, schema), printed.name, max(1, len(entries)))


@keys.command()
def revoke(
    file: KeyFile, key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="Id of the key, from the list.")]
) -> None:
    """Make a key invalid for ever. A running service applies it within a second.

    \b
    Example:
      marketdata keys revoke keys.toml KEY_ID
    """
    from marketdata.service.keys import revoke_key

    revoke_key(file, key_id)
    typer.echo(f"{key_id} is revoked")


def mcp(
    archive: Annotated[
        str | None, typer.Argument(metavar="ARCHIVE", help="Folder or address of an archive; without it the service.")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="Hide what was known only after this time; without SQL.")] = None,
    base_url: parameters.BaseUrl = None,
) -> None:
    """Serve tools of the Model Context Protocol.

    Programs find markets and read books, prices, metrics and SQL over standard input and output.

    \b
    Examples:
      marketdata mcp history
      marketdata mcp history --as-of 2026-01-01
    """
    from marketdata.mcp.server import Server

    Server(parameters.client(base_url) if archive is None else parameters.open_archive(archive), as_of).run()
