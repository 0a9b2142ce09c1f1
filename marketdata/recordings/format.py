"""The formats of files, one module each in `formats`, and the choice among them by what the columns of a file prove."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.columns import Floats, Ints
from marketdata.points.schema import SNAPSHOT_FIELDS
from marketdata.recordings import formats
from marketdata.recordings.changes import Changes, no_changes
from marketdata.recordings.containers import SUFFIXES
from marketdata.recordings.files import MODIFIED, RecordingFile
from marketdata.recordings.roles import ANY_TIMES, ROLES, VENUE_TIMES, Meaning, is_time, numbers, roles_of
from marketdata.recordings.units import PriceUnit, TimeUnit
from marketdata.times import SECOND

FileKind = Literal["books", "prices", "metrics", "quotes", "trades", "markets", "events", "series"]
# The whole file is read for its unit of prices up to this number of rows.
_PROVING_ROWS = 5_000_000
# The reason for which a row is left out if another row has the same values.
GIVEN_AGAIN = "given again, where the last row counts"
# Appended to the name of a column that does not mean what its name says.
DENIED = " of the file"
_OF_BOTH = ("yes_price", "yes_bid", "outcome_book", "yes_levels")
_TIMES = ("ts", "end_ts", "created_at", "received_at")


def kept_fields(keep: str | Iterable[str]) -> tuple[str, ...]:
    """The argument ``keep``; ConfigError for a name that is no field of a snapshot."""
    return tuple(choice("keep", name, SNAPSHOT_FIELDS) for name in ([keep] if isinstance(keep, str) else keep))


def no_time(clock: str, what: str, names: Iterable[str]) -> ConfigError:
    """The error for a clock that the columns of a file, or the fields of a message, do not have."""
    problem = f"has no time for clock={clock!r}; its {what} are {', '.join(names)}."
    return ConfigError(problem, argument="clock", value=clock)


@dataclass
class Batch:
    """Rows of a file in their order: changes of books, or frames of points, records or trades by their kind.

    ``rows`` were read. ``left_out`` counts those that are neither, by reason. ``received`` are times at which the
    recording is known to have gone on. ``markets`` are records as `Archive.add` takes them. ``keep`` names fields of
    snapshots. ``notes`` say what was scaled, and which rows are wrong.
    """

    changes: Changes = field(default_factory=no_changes)
    frames: dict[FileKind, Any] = field(default_factory=dict)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    received: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    markets: list[dict[str, Any]] = field(default_factory=list)
    keep: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Format:
    """A shape of files, recognised by the roles of its columns.

    Each text of ``needs`` lists roles that are enough to read the file; ``a/b`` means one of the two. ``takes`` are
    roles that it can have beside these. A role that is neither, and no context, rules the format out: so a price beside
    a trade id is no history of prices. ``proves`` counts the evidence where roles are not enough.

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
    kinds: tuple[FileKind, ...] = ()
    trades: Reader | None = None
    changes: bool = False
    row_per_level: bool = False
    proves: Callable[[Table], int] | None = None

    @property
    def needed(self) -> str:
        """The roles that are enough, for messages."""
        return " or ".join(self.needs)

    @property
    def kind_text(self) -> str:
        """All kinds, for the report."""
        return ", ".join(dict.fromkeys((self.kind, *self.kinds)))

    def fits(self, table: Table) -> int:
        """The number of columns that speak for the format; 0 if one is missing or in the way."""
        if self.proves is not None and (proof := self.proves(table)) != UNDECIDED:
            return proof
        complete = [groups for groups in self._groups() if not table.lacks(groups)]
        if not complete or self.in_the_way(table):
            return 0
        return max(map(len, complete)) + len(table.decisive & set(self.takes.split()))

    def in_the_way(self, table: Table) -> list[str]:
        """Roles of the table that rule the format out."""
        own = {*self.takes.split(), *(name for groups in self._groups() for group in groups for name in group)}
        return sorted(table.decisive - own)

    def missing(self, table: Table) -> list[str]:
        """The fewest roles that the table lacks."""
        return min((table.lacks(groups) for groups in self._groups()), key=len)

    def _groups(self) -> list[list[set[str]]]:
        return [[set(names.split("/")) for names in text.split()] for text in self.needs]


UNDECIDED = -1
# A recorder of live data receives a message sooner than this after the venue has sent it.
_MOMENT = 60 * SECOND
_DAY, _TIME_OF_DAY = r"^\d{4}-\d\d-\d\d$", r"^\d\d?:\d\d(:\d\d(\.\d+)?)?$"
Reader = Callable[["Table"], Iterator[Batch]]


def _scaled(prices: pl.Series, unit: PriceUnit) -> pl.Series:
    """Prices in dollars; a text that is no number stays, because it is not the same as no price."""
    dollars = pl.Series(prices.name, unit.of_file(numbers(prices)))
    if prices.dtype.is_numeric():
        return dollars
    return dollars.fill_nan(None).cast(pl.String).zip_with(dollars.is_not_nan(), prices.cast(pl.String, strict=False))


class Table:
    """The rows of a file with the roles of its columns, and the units of its times and prices."""

    def __init__(self, file: RecordingFile) -> None:
        self.file = file
        self.meanings: list[Meaning] = roles_of(file.sample, file.options.columns)
        self.columns: dict[str, str] = {m.role: m.column for m in self.meanings if m.taken}
        if isinstance(file.options.token_id, str) and "token_id" not in self.columns:
            self.columns |= {"token_id": "token_id"}
        self.has_both_outcomes = not self.columns.keys().isdisjoint(_OF_BOTH)
        if "market_id" not in self.columns and self.has_both_outcomes and isinstance(file.options.token_id, str):
            self.columns["market_id"] = "token_id"
        if "token_label" not in self.columns and "outcome_side" in self.columns:
            self.columns["token_label"] = self.columns["outcome_side"]
        if not {"token_label", "token_id"} & self.columns.keys() and "outcome_word" in self.columns:
            self.columns["token_label"] = self.columns["outcome_word"]
        if {"price", "side", "volume"} <= self.columns.keys() and "size" not in self.columns and self._has_sizes():
            self.columns["size"] = self.columns.pop("volume")
        taken = {*self.columns.values()}
        # Two roles may share a column, such as a ticker that names the market and the token.
        self.decisive = {name for name in self.columns if not ROLES[name].context and name not in ("ts", "end_ts")}
        # A time of another role serves where there is no other.
        of_candles = ("candle_start", "candle_end") if {"open", "close"} <= self.columns.keys() else ()
        for name in ("end_ts", *of_candles, "created_at", "received_at"):
            if "ts" not in self.columns and name in self.columns:
                self.columns["ts"] = self.columns[name]
        if file.options.clock == MODIFIED:
            self.columns["ts"] = MODIFIED
        self.others = [column for column in file.sample.columns if column not in taken]
        self.units: dict[str, TimeUnit] = {}

    @property
    def has_tickers(self) -> bool:
        """Whether the tokens are called by tickers of Kalshi, which name the market."""
        column = self.columns.get("token_id")
        if column not in ("ticker", "market_ticker") or column not in self.file.sample.columns:
            return False
        tickers = self.file.sample[column].cast(pl.String, strict=False).drop_nulls()
        return len(tickers) > 0 and bool(tickers.str.contains(r"^KX[^:]+$").all())

    def _has_sizes(self) -> bool:
        """Whether the volumes of prints are sizes, which rise and fall: the total of a day does not."""
        volumes = pl.Series("volume", numbers(self.file.sample[self.columns["volume"]]))
        ids = [self.columns[name] for name in ("token_id", "market_id") if name in self.columns]
        key = self.file.sample[ids[0]] if ids else pl.repeat(0, len(volumes), eager=True)
        steps = pl.DataFrame([volumes, key.alias("key")]).select(pl.col("volume").diff().over("key")).to_series()
        return bool((steps > 0).any()) and bool((steps < 0).any())

    def repeats(self, name: str) -> bool:
        """Whether a value of a role comes more than once."""
        values = self.file.sample[self.columns[name]].drop_nulls() if name in self.columns else pl.Series()
        return values.n_unique() < len(values)

    def lacks(self, groups: list[set[str]]) -> list[str]:
        """The roles of the groups, one of each, that the table lacks."""
        return [min(group) for group in groups if not group & self.columns.keys()]

    def rows(self, *only: str, prices: Iterable[str] = ()) -> Iterator[tuple[pl.DataFrame, Batch]]:
        """Frames of the rows that have a time, each with a batch that counts them and the rows without one.

        Columns have the names of their roles; those without a role keep theirs. ``ts`` is the time of the chosen clock,
        and ``__seen`` the time of arrival [microseconds]. ``__row`` is the number of the row in the file. ``prices``
        become probabilities.
        """
        file, columns, clock = self.file, self.columns, self.file.options.clock
        times = {"timestamp": columns.get("ts"), "received": columns.get("received_at")}
        time = times.get(clock, clock)
        if time not in file.sample.columns:
            raise no_time(clock, "columns", file.columns)
        if clock == "timestamp" and "ts" not in file.options.columns:
            self._refuse_other_times(time)
        seen = columns.get("received_at", time)
        unit = self.price_unit([columns[name] for name in prices if name in columns])
        chosen = {name: column for name, column in columns.items() if not only or name in only}
        count = 0
        for frame in file.frames([*chosen.values(), time, seen] if only else None):
            numbered = frame.with_row_index("__row", count)
            count += len(frame)
            lacking = [name for name in dict.fromkeys((time, seen, *chosen.values())) if name not in frame.columns]
            numbered = numbered.with_columns(pl.lit(None, pl.String).alias(name) for name in lacking)
            arrivals = [self._micros(numbered, column).alias(name) for name, column in (("ts", time), ("__seen", seen))]
            # A column that is not what its name says must not be taken for it.
            others = {c: f"{c}{DENIED}" if c in ROLES else c for c in (() if only else self.others)}
            rows = numbered.select(
                *(pl.col(column).alias(name) for name, column in chosen.items() if name != "ts"),
                *(pl.col(c).alias(name) for c, name in others.items() if c in frame.columns and c not in chosen),
                pl.col("__row").cast(pl.Int64),
            ).with_columns(*arrivals, *(pl.col(n).str.strip_prefix("'") for n in self._marked_ids))  # fmt: skip
            timed = rows.filter(pl.all_horizontal(pl.col("ts", "__seen").is_not_null()))
            scaled = [_scaled(timed[n], unit) for n in prices if n in timed.columns and unit.scale != 1]
            batch = Batch(rows=len(frame), keep=file.options.keep)
            batch.left_out = +(self._without_time(numbered, time, len(frame) - len(timed)))
            wrong = rows.filter(pl.any_horizontal(pl.col("ts", "__seen").is_null()))["__row"].head(3).to_list()
            if wrong and file.form != "json":
                batch.notes.append(f"rows without a usable time, such as row {', '.join(str(n + 1) for n in wrong)}")
            batch.notes += [note for note in (unit.note, *(u.note for u in self.units.values())) if note]
            yield timed.with_columns(scaled), batch
        if file.torn:
            yield (
                timed.clear() if count else pl.DataFrame(),
                Batch(rows=file.torn, left_out=Counter({"with another number of columns": file.torn})),
            )

    def _refuse_other_times(self, time: str) -> None:
        """ConfigError if the rows have their time in a second column too, or in another one."""
        sample = self.file.sample
        texts = sample[time].cast(pl.String, strict=False).drop_nulls()
        for other in (n for n in sample.columns if n in (*ANY_TIMES, "hour") and n != time):
            if len(texts) and texts.str.contains(_DAY).all() and _is_time_of_day(sample[other]):
                raise ConfigError(
                    f"{self.file.name!r} has days in {time} and times of day in {other}: join them in one column, such "
                    "as 2026-03-04T12:00:00Z, in UTC."
                )
        if time not in ANY_TIMES:
            return
        own = _micros_of(sample[time])
        for other in (n for n in VENUE_TIMES if n in sample.columns and is_time(sample[n].drop_nulls())):
            gap = (own - _micros_of(sample[other])).abs()
            if sample[other].n_unique() >= sample[time].n_unique() and (gap > _MOMENT).sum() * 2 > len(gap):
                raise ConfigError(
                    f"{self.file.name!r} has two times, {time} and {other}, which differ. Choose one with "
                    f"columns={{'ts': {other!r}}} or columns={{'ts': {time!r}}} (--columns ts={other})."
                )

    @cached_property
    def _marked_ids(self) -> list[str]:
        """The roles of ids that a spreadsheet has marked as texts with an apostrophe."""
        sample = self.file.sample
        ids = [(n, self.columns[n]) for n in ("market_id", "token_id") if self.columns.get(n) in sample.columns]
        return [n for n, c in ids if sample[c].dtype == pl.String and sample[c].str.starts_with("'").any()]

    def _micros(self, frame: pl.DataFrame, column: str) -> pl.Series:
        if column not in self.units:
            unit = TimeUnit.of(frame[column])
            if unit is None:
                some = next(
                    (str(value)[:60] for value in frame[column].to_physical().drop_nulls().head(1).to_list()), "nothing"
                )
                raise ConfigError(
                    f"{column} is neither an ISO 8601 time nor a Unix time since 2015: it has {some}. Name another "
                    "column with columns={'ts': ...} (--columns ts=...)."
                )
            self.units[column] = unit
        return self.units[column].micros(frame[column])

    def _without_time(self, frame: pl.DataFrame, column: str, count: int) -> Counter[str]:
        empty = int((frame[column].cast(pl.String, strict=False).fill_null("") == "").sum())
        missing = min(empty, count)
        return Counter({"without a time": missing, "time before 2015, or that cannot be read": count - missing})

    def price_unit(self, columns: list[str]) -> PriceUnit:
        """The unit that all prices of the file prove."""
        if not columns:
            return PriceUnit()
        values: list[Floats] = []
        for frame in self.file.frames(columns):
            values += [numbers(frame[column]) for column in columns if column in frame.columns]
            if sum(map(len, values)) > _PROVING_ROWS:
                break
        prices = np.concatenate(values) if values else np.empty(0)
        names = [self.file.original_name(column) for column in columns]
        units = {PriceUnit.named(prices, name) for name in names}
        if len(units) > 1:
            raise ConfigError(f"{' and '.join(names)} have prices of different units: divide one of them first.")
        return units.pop() or PriceUnit.of(prices, columns[0])


def _micros_of(values: pl.Series) -> pl.Series:
    unit = TimeUnit.of(values)
    return pl.Series([None] * len(values), dtype=pl.Int64) if unit is None else unit.micros(values)


def _is_time_of_day(values: pl.Series) -> bool:
    texts = values.cast(pl.String, strict=False).drop_nulls()
    return values.dtype == pl.Time or (len(texts) > 0 and texts.str.contains(_TIME_OF_DAY).all())


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
        return all_formats()[choice("format", file.options.format, all_formats())]
    scores = {candidate: candidate.fits(table) for candidate in all_formats().values()}
    best = [candidate for candidate, score in scores.items() if score == max(scores.values())]
    if len(best) == 1:
        return best[0]
    columns = ", ".join(file.columns[:30]) or "a JSON value that is no object"
    if any(scores.values()):
        names = " and of ".join(candidate.name for candidate in best)
        raise ConfigError(f"{file.name!r} has the columns of {names}: {columns}. Choose one with format= (--format).")
    raise ConfigError(f"{file.name!r} fits no known format.\n{_nearest(table)}\nIts columns are {columns}.")


# The most common of the formats that are equally near.
_PLAIN = ("prices", "quotes", "trades")
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
        return len(one.missing(table)) / len(needs.split()) + len(one.in_the_way(table)) / 4

    known = [one for one in all_formats().values() if ROLES.keys() >= {*one.needed.replace("/", " ").split()} - {"or"}]
    nearest = min(known, key=lambda one: (distance(one), one.name not in _PLAIN))
    needs = nearest.needed.replace("/", " ").split()
    has = ", ".join(f"{name} ({column})" for name, column in table.columns.items() if name in needs)
    if not has:
        return (
            "No column is one that a format needs: columns={'ts': 'when'} (--columns ts=when) names columns. Prices, "
            "for example, need ts, token_id and price."
        )
    lines = [f"It looks most like {nearest.name}, {nearest.description}: it has {has}."]
    missing, in_the_way = nearest.missing(table), nearest.in_the_way(table)
    for name in missing[:1]:
        denied = [f" ({m.column} has not {m.evidence})" for m in table.meanings if m.role == name and not m.taken]
        if name == "ts" and denied:
            lines.append(f"It lacks ts{denied[0]}: write them as 2026-03-04T12:00:00Z, in UTC, or as Unix times.")
            break
        theirs = "when" if name == "ts" else "theirs"
        options = {
            "token_id": ", or the token with token_id= (--token-id)",
            "market_id": ", or the market with token_id= (--token-id)" if table.has_both_outcomes else "",
            "ts": ", or take the time of the file with clock='modified' (--clock modified)",
        }
        lines.append(
            f"It lacks {', '.join(missing)}{''.join(denied[:1])}: name the column with "
            f"columns={{{name!r}: {theirs!r}}} (--columns {name}={theirs}){options.get(name, '')}."
        )
    if not missing and not in_the_way:
        lines.append(f"Its values deny that; format={nearest.name!r} (--format) reads it nevertheless.")
    if of_no_kind := [name for name in in_the_way if name in _OF_NO_KIND]:
        called = ", ".join(f"{table.columns[name]} ({name})" for name in of_no_kind)
        lines.append(f"In the way is {called}: {_OF_NO_KIND[of_no_kind[0]]}.")
    elif in_the_way:
        called = ", ".join(f"{table.columns[name]} ({name})" for name in in_the_way[:4])
        lines.append(f"In the way is {called}: take it out, or choose with format={nearest.name!r} (--format).")
    return "\n".join(lines)


def readable(file: RecordingFile) -> RecordingFile:
    """The file; ConfigError if its name ends in none of the suffixes."""
    if file.form is None:
        raise ConfigError(f"{file.name!r} is of another kind; names that end in these are read: {SUFFIXES}.")
    return file
