"""The formats of files, one module each in `formats`, and the choice among them by what the columns of a file prove."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.columns import Ints
from marketdata.points.schema import SNAPSHOT_FIELDS
from marketdata.recordings import formats
from marketdata.recordings.changes import Changes, no_changes
from marketdata.recordings.columns import NAMES, first, micros
from marketdata.recordings.files import SUFFIXES, RecordingFile

FileKind = Literal["books", "prices", "metrics", "quotes", "trades", "markets", "events", "series"]


def kept_fields(keep: str | Iterable[str]) -> tuple[str, ...]:
    """The argument ``keep``; ConfigError for a name that is no field of a snapshot."""
    return tuple(choice("keep", name, SNAPSHOT_FIELDS) for name in ([keep] if isinstance(keep, str) else keep))


def no_time(clock: str, what: str, names: Iterable[str]) -> ConfigError:
    """The error for a clock that the columns of a file, or the fields of a message, do not have."""
    problem = f"has no time for clock={clock!r}; its {what} are {', '.join(names)}."
    return ConfigError(problem, argument="clock", value=clock)


@dataclass
class Batch:
    """Rows of a file in their order: changes of books, or a tidy frame of points, records or trades.

    ``rows`` were read. ``left_out`` counts those that are neither, by reason. ``received`` are times at which the
    recording is known to have gone on. ``markets`` are records as `Archive.add` takes them. ``keep`` names fields of
    snapshots.
    """

    changes: Changes = field(default_factory=no_changes)
    frame: pl.DataFrame = field(default_factory=pl.DataFrame)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    received: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    markets: list[dict[str, Any]] = field(default_factory=list)
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Format:
    """A shape of files, recognised by its columns.

    Columns are called by our names. ``names`` replaces names of publishers that `NAMES` has. Each text of ``needs``
    lists columns that are enough to read the file; ``a/b`` means one of the two. A column of ``also`` speaks for the
    format, one of ``without`` rules it out. ``proves`` counts the evidence where columns are not enough.

    ``read`` gives the rows in parts, ``trades`` the trade prints among them. With ``changes`` the file has every
    change, so a book is valid until the next change. Without it a book is valid at its own moment. With
    ``row_per_level`` the rows of a snapshot are its levels.
    """

    name: str
    description: str
    needs: tuple[str, ...]
    read: Reader
    kind: FileKind = "books"
    also: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    trades: Reader | None = None
    changes: bool = False
    row_per_level: bool = False
    proves: Callable[[RecordingFile], int] | None = None

    @property
    def needed(self) -> str:
        """The columns that are enough, for messages."""
        return " or ".join(self.needs)

    def columns(self, file: RecordingFile) -> dict[str, str]:
        """The column of the file that each of our names stands for; the time of arrival if there is no other."""
        names = {**NAMES, **self.names}
        columns = {name: column for name in names if (column := first(file.columns, names[name]))}
        return {"ts": columns["received_at"], **columns} if "received_at" in columns else columns

    def fits(self, file: RecordingFile) -> int:
        """The number of columns that speak for the format; 0 if one that it needs is missing."""
        if self.proves is not None:
            return self.proves(file)
        present = {*file.columns, *self.columns(file)}
        needs = [[set(names.split("/")) for names in text.split()] for text in self.needs]
        complete = [len(groups) for groups in needs if all(present & names for names in groups)]
        if not complete or present.intersection(self.without):
            return 0
        return max(complete) + len(present.intersection(self.also))

    def rows(self, file: RecordingFile, *only: str) -> Iterator[tuple[pl.DataFrame, Batch]]:
        """Frames of the rows that have a time, each with a batch that counts them and the rows without one.

        Columns have our names; those that no format knows keep theirs. ``ts`` is the time of the chosen clock, and
        ``__seen`` the time of arrival [microseconds]. ``__row`` is the number of the row in the file.
        """
        columns, clock = self.columns(file), file.options.clock
        times = {"timestamp": columns.get("ts"), "received": columns.get("received_at")}
        time = times.get(clock, clock)
        if time not in file.columns:
            raise no_time(clock, "columns", file.columns)
        seen = columns.get("received_at", time)
        chosen = [pl.col(column).alias(name) for name, column in columns.items() if not only or name in only]
        others = set() if only else set(file.columns) - {*columns.values(), *columns}
        count = 0
        for frame in file.frames([*(columns[n] for n in only if n in columns), time, seen] if only else None):
            timed = frame.with_row_index("__row", count).filter(pl.all_horizontal(pl.col(time, seen).is_not_null()))
            count += len(frame)
            arrivals = pl.Series("ts", micros(timed[time])), pl.Series("__seen", micros(timed[seen]))
            rows = timed.select(*chosen, *others, pl.col("__row").cast(pl.Int64)).with_columns(arrivals)
            left_out = Counter({"without a time": len(frame) - len(timed)})
            yield rows, Batch(rows=len(frame), left_out=+left_out, keep=file.options.keep)


Reader = Callable[[Format, RecordingFile], Iterator[Batch]]


def by_parts(add: Callable[[pl.DataFrame, Batch], None]) -> Reader:
    """The reader of tables whose parts are read one by one: ``add`` adds the rows of a frame to its batch."""

    def read(chosen: Format, file: RecordingFile) -> Iterator[Batch]:
        for frame, batch in chosen.rows(file):
            add(frame, batch)
            yield batch

    return read


@cache
def all_formats() -> Mapping[str, Format]:
    """Every format by its name."""
    modules = (importlib.import_module(f"{formats.__name__}.{m.name}") for m in pkgutil.iter_modules(formats.__path__))
    return {module.FORMAT.name: module.FORMAT for module in modules}


def format_of(file: RecordingFile) -> Format:
    """The format that was chosen, or the one that fits best; ConfigError if none fits, or several equally well."""
    if file.options.format is not None:
        return all_formats()[choice("format", file.options.format, all_formats())]
    if file.form is None:
        raise ConfigError(f"{file.path.name!r} is of another kind; names that end in these are read: {SUFFIXES}.")
    scores = {candidate: candidate.fits(file) for candidate in all_formats().values()}
    best = [candidate for candidate, score in scores.items() if score == max(scores.values())]
    if len(best) == 1:
        return best[0]
    columns = ", ".join(file.columns[:40]) or "a JSON value that is no object"
    kinds = " and of ".join(candidate.name for candidate in best) if any(scores.values()) else "no known format"
    needs = "".join(f"\n  {candidate.name}: {candidate.needed}" for candidate in best)
    raise ConfigError(
        f"{file.path.name!r} has the columns of {kinds}: {columns}. Name the format with format= "
        f"(--format). Needed are:{needs}\nName other columns with columns={{'ts': 'when'}} (--columns ts=when)."
    )
