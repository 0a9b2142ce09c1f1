"""The formats of files, one module each in `formats`, and the choice among them by what the columns of a file prove."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.records import RECORD_KINDS
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.recordings import formats
from marketdata.recordings.containers import SUFFIXES, refuse_pointer
from marketdata.recordings.envelopes import is_question
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.roles import ROLES, is_time
from marketdata.recordings.table import Batch, FileKind, Table
from marketdata.recordings.units import formats_of_dates


def kept_fields(keep: str | Iterable[str]) -> tuple[str, ...]:
    """The argument ``keep``; ConfigError for a name that is no field of a snapshot."""
    return tuple(choice("keep", name, SNAPSHOT_FIELDS) for name in ([keep] if isinstance(keep, str) else keep))


@dataclass(frozen=True, eq=False)
class Format:
    """A shape of files, recognised by the roles of its columns.

    Each text of ``needs`` lists roles that are enough to read the file; ``a/b`` means one of the two. ``takes`` are
    roles that it can have beside these. A role that is neither, and no context, rules the format out: so a price beside
    a trade id is no history of prices. Roles of ``never`` rule it out too. ``proves`` decides where roles are not
    enough; None leaves it to them. Each of the ``guards`` denies a table for a reason, whatever else is there.

    ``read`` gives the rows in parts, ``trades`` the trade prints among them. With ``changes`` the file has every
    change, so a book is valid until the next change. Without it a book is valid at its own moment. With
    ``row_per_level`` the rows of a snapshot are its levels. ``kinds`` are further kinds that the rows become.
    """

    name: str
    description: str
    needs: tuple[str, ...]
    read: Reader
    kind: FileKind = "books"
    takes: str = ""
    never: str = ""
    kinds: tuple[FileKind, ...] = ()
    trades: Reader | None = None
    changes: bool = False
    row_per_level: bool = False
    proves: Callable[[Table], bool | None] | None = None
    guards: tuple[Guard, ...] = ()

    @property
    def needed(self) -> str:
        """The roles that are enough, for messages."""
        return " or ".join(self.needs)

    @property
    def kind_text(self) -> str:
        """All kinds, for the report."""
        return ", ".join(dict.fromkeys((self.kind, *self.kinds)))

    def fits(self, table: Table) -> int:
        """The number of columns that speak for the format; 0 if one is missing or in the way, or if it is denied."""
        proof = None if self.proves is None else self.proves(table)
        complete = [groups for groups in self._groups() if not table.lacks(groups)]
        if proof is False or (proof is None and (not complete or self.in_the_way(table))) or self.denial(table):
            return 0
        return _SURE if proof else max(map(len, complete)) + len(table.decisive & set(self.takes.split()))

    def denial(self, table: Table) -> str | None:
        """Why the table is not of the format, although it may have all roles; None if nothing denies it."""
        for role in self.never.split():
            if role in table.columns:
                return f"{table.columns[role]} is {role}, which {self.name} never have."
        return next((reason for guard in self.guards if (reason := guard(table))), None)

    def refusal(self, table: Table) -> str | None:
        """Why the table cannot be read as the format that ``format=`` names; None if it can."""
        proof = None if self.proves is None else self.proves(table)
        if proof is False:
            return f"It needs {self.needed}, and its columns or values are others."
        if proof is None and (missing := self.missing(table)):
            return f"It lacks {', '.join(missing)}; {self.name} need {self.needed}."
        return self.denial(table)

    def in_the_way(self, table: Table) -> list[str]:
        """Roles of the table that rule the format out."""
        own = {*self.takes.split(), *(name for groups in self._groups() for group in groups for name in group)}
        return sorted(table.decisive - own)

    def missing(self, table: Table) -> list[str]:
        """The fewest roles that the table lacks."""
        return min((table.lacks(groups) for groups in self._groups()), key=len)

    def _groups(self) -> list[list[set[str]]]:
        return [[set(names.split("/")) for names in text.split()] for text in self.needs]


# More than the columns that there can be.
_SURE = 1_000_000
Reader = Callable[["Table"], Iterator[Batch]]
Guard = Callable[["Table"], "str | None"]


def by_parts(add: Callable[[pl.DataFrame, Batch], None], *prices: str) -> Reader:
    """The reader of tables whose parts are read one by one: ``add`` adds the rows of a frame to its batch."""

    def read(table: Table) -> Iterator[Batch]:
        for frame, batch in table.rows(prices=prices):
            if len(frame):
                add(frame, batch)
            yield batch

    return read


@cache
def all_formats() -> Mapping[str, Format]:
    """Every format by its name."""
    modules = (importlib.import_module(f"{formats.__name__}.{m.name}") for m in pkgutil.iter_modules(formats.__path__))
    return {module.FORMAT.name: module.FORMAT for module in modules}


def format_of(table: Table) -> Format:
    """The format that was chosen, or the one that fits best; ConfigError if none fits, or several equally well."""
    file = table.file
    if file.options.format is not None:
        chosen = all_formats()[choice("format", file.options.format, all_formats())]
        if reason := chosen.refusal(table):
            raise ConfigError(f"{file.name!r} is not of the format {chosen.name!r}. {reason}")
        return chosen
    scores = {candidate: candidate.fits(table) for candidate in all_formats().values()}
    best = [candidate for candidate, score in scores.items() if score == max(scores.values())]
    if len(best) == 1:
        return best[0]
    if is_question(file.columns):
        raise ConfigError(
            f"{file.name!r} has pairs of a request and its answer. What was asked, and so which token an answer is of, "
            'is in the request: write one answer a line, such as {"token_id": ..., "fetched_at": ..., "response": '
            "...}."
        )
    columns = ", ".join(file.columns[:30]) or "a JSON value that is no object"
    if any(scores.values()):
        names = " and of ".join(candidate.name for candidate in best)
        choices = " or ".join(f"format={candidate.name!r}" for candidate in best)
        raise ConfigError(f"{file.name!r} has the columns of {names}: {columns}. Choose one with {choices}.")
    raise ConfigError(f"{file.name!r} fits no known format.\n{_nearest(table)}\nIts columns are {columns}.")


# The most common of the formats that are equally near.
_PLAIN = ("prices", "quotes", "trades", "markets")
# Rows that no table of points or records has, whatever else they have.
_OF_NO_KIND = {
    "account": "its rows are of accounts, which no format stores",
    "order_id": "its rows are of orders, which no format stores",
    "size_change": "its rows change levels by a number; books need the new size, with is_snapshot",
    "book_event": "its rows are snapshots and changes of levels; a column is_snapshot of true and false says which",
}


def _nearest(table: Table) -> str:
    """The most similar format, the column that is missing or in the way, and the option that decides."""

    def distance(one: Format) -> float:
        needs = min(one.needs, key=lambda text: len(table.lacks([set(n.split("/")) for n in text.split()])))
        return len(one.missing(table)) / len(needs.split()) + len(one.in_the_way(table)) * 0.4

    wide = replace(table.file.options, format="wide-prices")
    if table.file.options.format is None and all_formats()["wide-prices"].fits(Table(table.file.with_options(wide))):
        few = ", ".join(table.others[:3])
        return (
            f"Its columns {few} may be prices of outcomes: format='wide-prices' reads them so. "
            "If they are others, write one row for each time and token, as ts, token_id, price."
        )

    def distance_of_kind(one: Format) -> float:
        is_denied = one.kind in RECORD_KINDS and "ts" in table.columns and one.denial(table) is not None
        is_of_orders = one.name == "levels" and "level" not in table.columns and _has_orders(table)
        return distance(one) + 0.34 * (is_denied or is_of_orders)

    known = [one for one in all_formats().values() if ROLES.keys() >= {*one.needed.replace("/", " ").split()} - {"or"}]
    nearest = min(known, key=lambda one: (distance_of_kind(one), one.name not in _PLAIN))
    needs = nearest.needed.replace("/", " ").split()
    has = ", ".join(f"{name} ({column})" for name, column in table.columns.items() if name in needs)
    if not has:
        return (
            "No column is one that a format needs: columns={'ts': 'when'} names columns. Prices, "
            "for example, need ts, token_id and price."
        )
    lines = [f"It looks most like {nearest.name}, {nearest.description}: it has {has}."]
    missing, in_the_way = nearest.missing(table), nearest.in_the_way(table)
    if missing:
        lines.append(_lacking(table, missing))
    elif not in_the_way:
        lines.append(nearest.denial(table) or "Its values deny that.")
    if of_no_kind := [name for name in in_the_way if name in _OF_NO_KIND]:
        called = ", ".join(f"{table.columns[name]} ({name})" for name in of_no_kind)
        lines.append(f"In the way is {called}: {_OF_NO_KIND[of_no_kind[0]]}.")
    elif in_the_way:
        called = ", ".join(f"{table.columns[name]} ({name})" for name in in_the_way[:4])
        or_format = "" if missing else f", or choose with format={nearest.name!r}"
        lines.append(f"In the way is {called}: take it out{or_format}.")
    return "\n".join(lines)


def _has_orders(table: Table) -> bool:
    """Whether the sides are buys and sells alone, as of trades."""
    column = table.columns.get("side")
    sides = [] if column is None else table.file.sample[column].drop_nulls().to_list()
    return bool(sides) and {str(side).strip().lower() for side in sides} <= {"buy", "sell"}


def _lacking(table: Table, missing: list[str]) -> str:
    """What a table lacks, and the options that say it: a column of the file where one is likely."""
    name, columns = missing[0], table.columns
    denied = [f" ({m.column} has not {m.evidence})" for m in table.meanings if m.role == name and not m.taken]
    if name == "ts" and "created_at" in columns:
        created = columns["created_at"]
        lines = f"It lacks ts: {created} is when a record was created, which is no time of a price"
        if not (table.repeats("token_id") or table.repeats("market_id")):
            return f"{lines}, and no other column is one."
        return f"{lines}. If it is the time of each row, say so with {_option('ts', created)}."
    if name == "ts" and denied:
        column = next(m.column for m in table.meanings if m.role == name and not m.taken)
        dates = formats_of_dates(table.file.sample[column].drop_nulls())
        if dates:
            return f"It lacks ts{denied[0]}: say which dates these are with {' or '.join(dates)}."
        return f"It lacks ts{denied[0]}: write them as 2026-03-04T12:00:00Z, in UTC, or as Unix times."
    sample, theirs = table.file.sample, "when" if name == "ts" else "theirs"
    if name == "ts":
        theirs = next((n for n in table.others if is_time(sample[n].drop_nulls())), theirs)
    if name == "token_id" and "market_id" in columns and not table.has_both_outcomes:
        return (
            f"It lacks token_id{''.join(denied[:1])}: which outcome of a market a row is of. If each market has one, "
            f"its id stands for the token with {_option('token_id', columns['market_id'])}; else name the column of "
            "tokens so, or that of outcomes with columns={'token_label': 'theirs'}."
        )
    options = {
        "token_id": ", or the token with token_id='TOKEN'",
        "market_id": ", or the market with token_id='TOKEN'" if table.has_both_outcomes else "",
        "ts": ", or take the time of the file with clock='modified'",
    }
    return (
        f"It lacks {', '.join(missing)}{''.join(denied[:1])}: name the column with {_option(name, theirs)}"
        f"{options.get(name, '')}."
    )


def _option(name: str, column: str) -> str:
    return f"columns={{{name!r}: {column!r}}}"


# What a user does with files of other kinds.
_OTHER_KINDS = {
    **dict.fromkeys((".xlsx", ".xls"), "archive.add(prices=pl.read_excel(path)) adds it"),
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "archive.add(prices=pl.read_ipc(path)) adds it"),
    ".zip": "unzip it, and import the folder; archive.add(prices=pl.read_csv(file)) adds a table",
}


def readable(file: RecordingFile) -> RecordingFile:
    """The file; ConfigError if its name ends in none of the suffixes."""
    if file.form is not None:
        refuse_pointer(file.path)
    else:
        if way_out := _OTHER_KINDS.get(file.path.suffix.lower()):
            raise ConfigError(f"{file.name!r} is of another kind: {way_out}.")
        raise ConfigError(f"{file.name!r} is of another kind; names that end in these are read: {SUFFIXES}.")
    return file
