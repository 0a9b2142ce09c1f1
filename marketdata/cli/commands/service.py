"""``marketdata serve``: the local service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marketdata.cli.parameters import open_archive
from marketdata.errors import ConfigError


def serve(
    archive: Annotated[str | None, typer.Argument(metavar="ARCHIVE", help="Folder or address of the archive.")] = None,
    host: Annotated[str, typer.Option(help="Address to bind; without a key file only loopback.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8000,
    keys: Annotated[
        Path | None, typer.Option(help="TOML file of keys and plans; without it one key is created.")
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
    from marketdata.service.server import run
    from marketdata.simulation import simulate

    if archive is None:
        typer.echo("marketdata: simulating a week of markets", err=True)
    source = simulate() if archive is None else open_archive(archive)
    run(
        source,
        host,
        port,
        keys=keys,
        requests_per_minute=requests_per_minute,
        trusted_proxies=trusted_proxy or (),
        host_names=host_name or (),
        resolutions=resolution or None,
        say=typer.echo,
    )
