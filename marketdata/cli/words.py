"""Words that several verbs share, and what they become."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marketdata.cli import files, show
from marketdata.errors import ConfigError
from marketdata.resolution import Resolution

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.client import Client

VIEWS = ("books", "prices", "metrics")
# Columns of a list of markets.
LISTED = ("slug", "question", "status", "start_date", "end_date")
_SHOWN = 10


def one_of(names: tuple[str, ...]) -> dict[str, Any]:
    """What makes a word one of some names: the help lists them, the shell completes them, others are refused."""

    def checked(parameter: typer.CallbackParam, value: Any) -> Any:
        for one in [value] if isinstance(value, str) else value or ():
            if one not in names:
                raise ConfigError(f"{parameter.name} {one!r} does not exist; allowed are {', '.join(names)}.")
        return value

    return {"metavar": "|".join(names), "autocompletion": lambda: list(names), "callback": checked}


View = Annotated[str, typer.Argument(show_default=False, **one_of(VIEWS))]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="Address of the service.", show_default=False)]
Start = Annotated[str, typer.Option(help="First moment: ISO 8601 (UTC without a zone) or Unix seconds.")]
End = Annotated[str, typer.Option(help="End, exclusive.")]
Bucket = Annotated[str, typer.Option("--resolution", "-r", help="Width of a bucket.", **one_of(tuple(Resolution)))]
Markets = Annotated[list[str], typer.Argument(help="Ids or slugs of markets.", show_default=False)]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to a .parquet, .csv or .ndjson file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Rows = Annotated[
    int | None,
    typer.Option(min=1, help=f"Rows to show; without it {_SHOWN} of a table, all of JSON.", show_default=False),
]
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
        If there is no such folder, it can not be read, or it holds no archive.
    """
    from marketdata.archive import Archive

    if "://" not in path and not Path(path).is_dir():
        raise ConfigError(f"{path!r} is no folder; marketdata pull or marketdata import make an archive.")
    if "://" not in path and not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path!r} can not be read: its permissions do not allow it to this user.")
    if not holds(path):
        raise ConfigError(f"{path!r} holds no archive yet; marketdata pull or marketdata import fill it.")
    return Archive(path, frame="polars")


def holds(path: str) -> bool:
    """Whether a folder has an archive; an address is taken at its word."""
    return "://" in path or any(Path(path).glob("*/_delta_log"))


def deliver(ask: Callable[[], Any], out: Path | None, rows: int | None, *, as_json: bool, **look: Any) -> None:
    """Ask for a frame, and write it to a file or print its first rows; `look` goes to `show.table`."""
    if out is not None:
        files.writable(out)
    frame = ask()
    if not len(frame):
        typer.echo("marketdata: there are no points in this range.", err=True)
    if out is not None:
        files.write(frame, out)
        typer.echo(show.as_json({"rows": len(frame), "out": str(out)}) if as_json else f"{len(frame):,} rows in {out}")
    elif as_json:
        typer.echo(show.as_json(frame if rows is None else frame.head(rows)))
    else:
        first = rows or _SHOWN
        typer.echo(show.table(frame, first, **look))
        if len(frame) > first:
            typer.echo(f"... {len(frame):,} rows; --out FILE writes them all")
