"""Arguments and options that several commands share, and their checks."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from marketdata.cli import output
from marketdata.errors import ConfigError
from marketdata.filters import SORTS, STATES
from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.vendors import ADDRESSES, VENUES

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.client import Client


def _no_file(given: list[str] | None) -> list[str] | None:
    """The names of markets, none of which is the file that rows are to be written to."""
    for name in given or ():
        if name.endswith(_FILES):
            raise typer.BadParameter(f"{name!r} is no market; --out {name} writes a file.")
    return given


_FILES = (".parquet", ".csv", ".ndjson")
ViewArgument = Annotated[View, typer.Argument(metavar="VIEW")]
MarketsArgument = Annotated[
    list[str], typer.Argument(metavar="MARKET", help="Ids or slugs of markets.", callback=_no_file)
]
MarketsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="MARKET", help="Ids or slugs of markets; all without.", callback=_no_file),
]
Folder = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Folder or address of the archive.")]
Start = Annotated[
    str | None, typer.Option(help="Start, inclusive; -1d is a day before now.", show_default="that of the market")
]
End = Annotated[str | None, typer.Option(help="End, exclusive.", show_default="that of the market, or now")]
Period = Annotated[str | None, typer.Option(help="Length of the range in place of --start or --end: 7d, 12h.")]
Views = Annotated[
    list[str] | None,
    typer.Option(
        metavar="|".join(VIEWS), help="Only this view; may be given again.", autocompletion=lambda: list(VIEWS)
    ),
]
_width = partial(typer.Option, "--resolution", "-r", autocompletion=lambda: [width.value for width in Resolution])
_BUCKET = "Width of a bucket: 1m, 10m, 1h, 6h, 1d, or another one that the source has."
Bucket = Annotated[str | None, _width(help=_BUCKET, show_default="the finest from 1m on")]
_NEW_WIDTH = "Width of the points of a new archive."
NewWidth = Annotated[str | None, _width(help=_NEW_WIDTH, show_default="the finest of the plan from 1m on")]
Clamp = Annotated[bool, typer.Option("--clamp", help="Start at the earliest time that the plan allows.")]
_NAMES = (*VENUES, *ADDRESSES)
_SERVICE = f"Address of a service, or its name: {', '.join(_NAMES)}."
BaseUrl = Annotated[
    str | None, typer.Option("--service", "--base-url", help=_SERVICE, autocompletion=lambda: list(_NAMES))
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write to a .parquet, .csv or .ndjson file.")]
RowsOption = Annotated[int | None, typer.Option(min=1, help="Rows to show.", show_default="10 in a terminal, else all")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, as a pipe gets without an option.")]
Ndjson = Annotated[bool, typer.Option("--ndjson", help="Print a JSON object per line.")]


Event = Annotated[str | None, typer.Option(help="Slug of an event: its markets.")]
Series = Annotated[str | None, typer.Option(help="Slug of a series: its markets.")]
Tag = Annotated[list[str] | None, typer.Option(help="Tag: its markets; may be given again.")]
Search = Annotated[str | None, typer.Option(help="Words: the markets that the service finds by them.")]
State = Annotated[
    list[str] | None,
    typer.Option(metavar="|".join(STATES), help="Markets of this state; may be given again.",
                 autocompletion=lambda: list(STATES)),
]  # fmt: skip
Sort = Annotated[
    str | None,
    typer.Option(metavar="|".join(SORTS), help="What comes first; other services sort by names of fields.",
                 autocompletion=lambda: list(SORTS)),
]  # fmt: skip
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="MARKET", help="Ids, slugs or addresses of pages of markets.", callback=_no_file),
]
FromFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Ids or slugs, one a line, # begins a comment; - reads stdin.")
]


@dataclass(frozen=True)
class Filters:
    """The options that narrow a listing of markets."""

    event: Event = None
    series: Series = None
    tag: Tag = None
    search: Search = None
    state: State = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `Client.markets`."""
        return {
            "event_slug": self.event, "series_slug": self.series, "tags": self.tag or None, "search": self.search,
            "state": self.state or None,
        }  # fmt: skip


@dataclass(frozen=True)
class Selection(Filters):
    """The arguments and options that choose markets: by name, from a file, or by filters."""

    markets: Names = None
    from_file: FromFile = None

    def chosen(self, *more: str, every_market: bool = False) -> dict[str, Any]:
        """The arguments of `Archive.pull` that choose markets; ConfigError unless they are named, or filtered."""
        names = [*(self.markets or ()), *more]
        filters = {f"--{field.name}": getattr(self, field.name) for field in dataclasses.fields(Filters)}
        used = [option for option, value in filters.items() if value]
        named = {"MARKET": names, "--from-file": self.from_file, "--all": every_market}
        given = [option for option, value in named.items() if value]
        if len(given) + bool(used) != 1:
            every = f"Give MARKET, --from-file, --all, or some of {', '.join(filters)}"
            raise ConfigError(f"{every}; given are {', '.join([*given, *used]) or 'none'}.")
        return {"markets": names or None, "file": self.from_file, "all_markets": every_market, **self.arguments}


@dataclass(frozen=True)
class History:
    """What is asked for of which markets, of a fetch and of its plan."""

    view: ViewArgument
    market: MarketsArgument
    start: Start = None
    end: End = None
    period: Period = None
    resolution: Bucket = None


@dataclass(frozen=True)
class TableFormat:
    """The formats of a table that has an end."""

    as_json: Json = False
    as_csv: Csv = False

    @property
    def name(self) -> output.Format:
        """The format that the options name; ConfigError for two."""
        return output.choose(**dataclasses.asdict(self))


@dataclass(frozen=True)
class LinesFormat(TableFormat):
    """The formats of a table that may be printed as it arrives."""

    as_ndjson: Ndjson = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of its groups: a parameter that is a dataclass becomes one for each of its fields."""
    types = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(command).parameters.values():
        fields = dataclasses.fields(groups[one.name]) if one.name in groups else ()
        kinds = get_type_hints(groups[one.name], include_extras=True) if fields else {}
        parameters += [
            one.replace(
                name=field.name,
                default=one.empty if field.default is dataclasses.MISSING else field.default,
                annotation=kinds[field.name],
            )
            for field in fields
        ] or [one.replace(annotation=types[one.name])]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            names = [field.name for field in dataclasses.fields(kind) if field.name in given]
            given[name] = kind(**{name: given.pop(name) for name in names})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def client(base_url: str | None) -> Client:
    """A client with the key of the environment."""
    from marketdata.client import Client

    return Client(base_url, frame="polars")


def open_archive(path: str) -> Archive:
    """The archive of a folder; ConfigError if there is none, it cannot be read, or it has no archive."""
    from marketdata.archive import Archive

    if "://" not in path and not Path(path).is_dir():
        raise ConfigError(f"{path!r} is not a folder; marketdata pull or marketdata import creates an archive.")
    if "://" not in path and not os.access(path, os.R_OK | os.X_OK):
        raise ConfigError(f"{path!r} cannot be read: its permissions do not allow it to this user.")
    from marketdata.archive.store import is_archive

    if not is_archive(path):
        raise ConfigError(f"{path!r} holds no archive yet; marketdata pull or marketdata import fills it.")
    return Archive(path, frame="polars")


def check_out(path: Path, ends: tuple[str, ...] = _FILES) -> None:
    """ConfigError for a file that could not be written, before its content is fetched."""
    problem = ""
    if path.suffix not in ends:
        problem = f"is refused; allowed are names that end in {', '.join(ends)}."
    elif path.is_dir():
        problem = "is a folder; give the name of a file."
    elif not path.parent.is_dir():
        problem = f"cannot be written: there is no folder {str(path.parent)!r}; create it first."
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "cannot be written: its permissions do not allow it to this user."
    if problem:
        raise ConfigError(problem, argument="out", value=str(path))
