"""Words that several verbs share, and what they become."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from marketdata.cli import files, show

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.client import Client

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


def client(base_url: str | None) -> Client:
    """A client with the key of the environment."""
    from marketdata.client import Client

    return Client(base_url, frame="polars")


def existing(path: str) -> Archive:
    """The archive of a folder that is there.

    Raises
    ------
    ConfigError
        If there is no such folder, or it can not be read.
    """
    from marketdata.archive import Archive
    from marketdata.errors import ConfigError

    if "://" not in path and not Path(path).is_dir():
        raise ConfigError(f"{path!r} is no folder; marketdata pull or marketdata import make an archive.")
    if "://" not in path and not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path!r} can not be read: its permissions do not allow it to this user.")
    if "://" not in path and not any(Path(path).glob("*/_delta_log")):
        typer.echo(f"marketdata: {path!r} holds no archive yet; marketdata pull or import fill it.", err=True)
    return Archive(path, frame="polars")


def deliver(ask: Callable[[], Any], out: Path | None, rows: int, *, as_json: bool) -> None:
    """Ask for a frame, and write it to a file or print its first rows."""
    if out is not None:
        files.writable(out)
    frame = ask()
    if not len(frame):
        typer.echo("marketdata: there are no points in this range.", err=True)
    if out is not None:
        files.write(frame, out)
        typer.echo(f"{len(frame):,} rows in {out}")
    elif as_json:
        typer.echo(show.as_json(frame))
    else:
        typer.echo(show.table(frame, rows))
        if len(frame) > rows:
            typer.echo(f"... {len(frame):,} rows; --out FILE writes them all")
