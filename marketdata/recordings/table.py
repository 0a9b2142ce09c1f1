"""The rows of a file with the roles of its columns: a list of steps decides what they are, and each says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.columns import Floats
from marketdata.recordings.arrivals import Arrivals
from marketdata.recordings.changes import Changes, no_changes
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
# A recorder of live data receives a message sooner than this after the venue has sent it.
_MOMENT = 60 * SECOND
_DAY, _TIME_OF_DAY = r"^\d{4}-\d\d-\d\d$", r"^\d\d?:\d\d(:\d\d(\.\d+)?)?$"
_IDS = ("market_id", "token_id")


def no_time(clock: str, what: str, names: Iterable[str]) -> ConfigError:
    """The error for a clock that the columns of a file, or the fields of a message, do not have."""
    problem = f"has no time for clock={clock!r}; its {what} are {', '.join(names)}."
    return ConfigError(problem, argument="clock", value=clock)


@dataclass
class Batch:
    """Rows of a file in their order: changes of books, or frames of points, records or trades by their kind.

    ``rows`` were read. ``left_out`` counts those that are neither, by reason. ``received`` are the messages by which
    the recording is known to have gone on. ``markets`` are records as `Archive.add` takes them. ``keep`` names fields
    of snapshots. ``notes`` say what was scaled, and which rows are wrong.
    """

    changes: Changes = field(default_factory=no_changes)
    frames: dict[FileKind, Any] = field(default_factory=dict)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    received: Arrivals = field(default_factory=lambda: Arrivals.joined([]))
    markets: list[dict[str, Any]] = field(default_factory=list)
    keep: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


class Change(NamedTuple):
    """What a step found in a table, for `--explain`, and what it changes in each part of its rows."""

    note: str
    rows: Callable[[pl.DataFrame], pl.DataFrame] | None = None


class Table:
    """The rows of a file with the roles of its columns, and the units of its times and prices.

    The steps `ROLE_STEPS` decide the roles that values or other columns decide, once; `ROW_STEPS` change rows as they
    are read. Each step says what it found in ``found``.
    """

    def __init__(self, file: RecordingFile) -> None:
        self.file = file
        self.meanings: list[Meaning] = roles_of(file.sample, file.options.columns)
        self.columns: dict[str, str] = {m.role: m.column for m in self.meanings if m.taken}
        self.units: dict[str, TimeUnit] = {}
        self.found: dict[str, str] = {}
        for step in ROLE_STEPS:
            self._take(step.__name__, step(self))

    def _take(self, step: str, change: Change | None) -> Change | None:
        if change is not None and change.note:
            self.found[step] = change.note
        return change

    @property
    def decisive(self) -> set[str]:
        """Roles that decide what the file is. Two may share a column, such as a ticker of the market and the token."""
        return {name for name in self.columns if not ROLES[name].context and name not in ("ts", "end_ts")}

    @property
    def others(self) -> list[str]:
        """The columns without a role."""
        taken = {*self.columns.values(), MODIFIED}
        return [column for column in self.file.sample.columns if column not in taken]

    @property
    def has_both_outcomes(self) -> bool:
        """Whether rows are of both outcomes of a market."""
        return not self.columns.keys().isdisjoint(_OF_BOTH)

    @property
    def has_tickers(self) -> bool:
        """Whether the tokens are called by tickers of Kalshi, which name the market."""
        column = self.columns.get("token_id")
        if column not in ("ticker", "market_ticker") or column not in self.file.sample.columns:
            return False
        tickers = self.file.sample[column].cast(pl.String, strict=False).drop_nulls()
        return len(tickers) > 0 and bool(tickers.str.contains(r"^KX[^:]+$").all())

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
        file, (time, seen) = self.file, self.clock()
        changes = [self._take(step.__name__, step(self, tuple(prices))) for step in ROW_STEPS]
        chosen = {name: column for name, column in self.columns.items() if not only or name in only}
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
            ).with_columns(*arrivals)
            timed = rows.filter(pl.all_horizontal(pl.col("ts", "__seen").is_not_null()))
            batch = Batch(rows=len(frame), keep=file.options.keep)
            batch.left_out = +_without_time(numbered[time], len(frame) - len(timed))
            wrong = rows.filter(pl.any_horizontal(pl.col("ts", "__seen").is_null()))["__row"].head(3).to_list()
            if wrong and file.form != "json":
                batch.notes.append(f"rows without a usable time, such as row {', '.join(str(n + 1) for n in wrong)}")
            batch.notes += [self.found[name] for name in _SAID if name in self.found]
            batch.notes += [unit.note for unit in self.units.values() if unit.note]
            for change in changes:
                timed = timed if change is None or change.rows is None else change.rows(timed)
            yield timed, batch
        if file.torn:
            yield (
                timed.clear() if count else pl.DataFrame(),
                Batch(rows=file.torn, left_out=Counter({"with another number of columns": file.torn})),
            )

    def clock(self) -> tuple[str, str]:
        """The columns of the chosen time and of the arrival; ConfigError if the file has none."""
        clock = self.file.options.clock
        times = {"timestamp": self.columns.get("ts"), "received": self.columns.get("received_at")}
        time = times.get(clock, clock)
        if time not in self.file.sample.columns:
            raise no_time(clock, "columns", self.file.columns)
        return time, self.columns.get("received_at", time)

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


def token_of_the_option(table: Table) -> Change | None:
    """The token that ``token_id=`` gives to rows that name none; of rows of both outcomes it is the market."""
    given, columns = table.file.options.token_id, table.columns
    if given is None:
        return None
    columns.setdefault("token_id", "token_id")
    if "market_id" not in columns and table.has_both_outcomes:
        columns["market_id"] = "token_id"
    return Change(f"the token of all rows is {given!r}, as token_id= says")


def label_of_the_side(table: Table) -> Change | None:
    """A side of yes and no is the outcome where no other column is."""
    if "token_label" in table.columns or "outcome_side" not in table.columns:
        return None
    table.columns["token_label"] = table.columns["outcome_side"]
    return Change(f"{table.columns['outcome_side']} has yes and no, so it is the outcome")


def label_of_a_word(table: Table) -> Change | None:
    """A label is the outcome only where no token has an id, because it may be of a model."""
    if {"token_label", "token_id"} & table.columns.keys() or "outcome_word" not in table.columns:
        return None
    table.columns["token_label"] = table.columns["outcome_word"]
    return Change(f"{table.columns['outcome_word']} has words and no token has an id, so it is the outcome")


def sizes_called_volume(table: Table) -> Change | None:
    """The volumes of prints are sizes where they rise and fall; the total of a day does not."""
    columns = table.columns
    if not {"price", "side", "volume"} <= columns.keys() or "size" in columns:
        return None
    volumes = pl.Series("volume", numbers(table.file.sample[columns["volume"]]))
    ids = [columns[name] for name in ("token_id", "market_id") if name in columns]
    key = table.file.sample[ids[0]] if ids else pl.repeat(0, len(volumes), eager=True)
    steps = pl.DataFrame([volumes, key.alias("key")]).select(pl.col("volume").diff().over("key")).to_series()
    if not (steps > 0).any() or not (steps < 0).any():
        return None
    columns["size"] = columns.pop("volume")
    return Change(f"{columns['size']} rises and falls, so it is the size of each print")


def time_of_another_role(table: Table) -> Change | None:
    """A time of another role serves where there is no other."""
    columns = table.columns
    of_candles = ("candle_start", "candle_end") if {"open", "close"} <= columns.keys() else ()
    names = ("end_ts", *of_candles, "created_at", "received_at")
    found = next((columns[name] for name in names if name in columns), None)
    if found is None or "ts" in columns:
        return None
    columns["ts"] = found
    return Change(f"{found} is the time, as no column says another one")


def time_of_the_file(table: Table) -> Change | None:
    """The time of the file itself, if the clock says so."""
    if table.file.options.clock != MODIFIED:
        return None
    table.columns["ts"] = MODIFIED
    return Change("the time of all rows is that of the file, as clock= says")


ROLE_STEPS: tuple[Callable[[Table], Change | None], ...] = (
    token_of_the_option, label_of_the_side, label_of_a_word, sizes_called_volume, time_of_another_role,
    time_of_the_file,
)  # fmt: skip


def one_time(table: Table, _: tuple[str, ...]) -> Change | None:
    """ConfigError if the rows have their time in a second column too, or in another one."""
    file, sample = table.file, table.file.sample
    time, _seen = table.clock()
    if file.options.clock != "timestamp" or "ts" in file.options.columns:
        return None
    texts = sample[time].cast(pl.String, strict=False).drop_nulls()
    for other in (n for n in sample.columns if n in (*ANY_TIMES, "hour") and n != time):
        if len(texts) and texts.str.contains(_DAY).all() and _is_time_of_day(sample[other]):
            raise ConfigError(
                f"{file.name!r} has days in {time} and times of day in {other}: join them in one column, such "
                "as 2026-03-04T12:00:00Z, in UTC."
            )
    if time not in ANY_TIMES:
        return None
    own = _micros_of(sample[time])
    for other in (n for n in VENUE_TIMES if n in sample.columns and is_time(sample[n].drop_nulls())):
        gap = (own - _micros_of(sample[other])).abs()
        if sample[other].n_unique() >= sample[time].n_unique() and (gap > _MOMENT).sum() * 2 > len(gap):
            raise ConfigError(
                f"{file.name!r} has two times, {time} and {other}, which differ. Choose one with "
                f"columns={{'ts': {other!r}}} or columns={{'ts': {time!r}}} (--columns ts={other})."
            )
    return None


def ids_without_apostrophes(table: Table, _: tuple[str, ...]) -> Change | None:
    """Ids that a spreadsheet has marked as texts lose the apostrophe."""
    sample = table.file.sample
    ids = [(n, table.columns[n]) for n in _IDS if table.columns.get(n) in sample.columns]
    marked = [n for n, c in ids if sample[c].dtype == pl.String and sample[c].str.starts_with("'").any()]
    if not marked:
        return None
    note = f"{' and '.join(marked)} of texts that a spreadsheet has marked lose the apostrophe"
    return Change(note, lambda rows: rows.with_columns(
        pl.col(n).str.strip_prefix("'") for n in marked if n in rows.columns
    ))  # fmt: skip


def prices_in_dollars(table: Table, prices: tuple[str, ...]) -> Change | None:
    """Prices in another unit, which the whole file proves, become probabilities."""
    unit = table.price_unit([table.columns[name] for name in prices if name in table.columns])
    if unit.scale == 1:
        return None
    return Change(unit.note or "", lambda rows: rows.with_columns(
        _scaled(rows[name], unit) for name in prices if name in rows.columns
    ))  # fmt: skip


ROW_STEPS: tuple[Callable[[Table, tuple[str, ...]], Change | None], ...] = (
    one_time, ids_without_apostrophes, prices_in_dollars
)  # fmt: skip
# Steps whose note the report has.
_SAID = ("prices_in_dollars",)


def _scaled(prices: pl.Series, unit: PriceUnit) -> pl.Series:
    """Prices in dollars; a text that is no number stays, because it is not the same as no price."""
    dollars = pl.Series(prices.name, unit.of_file(numbers(prices)))
    if prices.dtype.is_numeric():
        return dollars
    return dollars.fill_nan(None).cast(pl.String).zip_with(dollars.is_not_nan(), prices.cast(pl.String, strict=False))


def _without_time(times: pl.Series, count: int) -> Counter[str]:
    """Why ``count`` rows have no time."""
    empty = int((times.cast(pl.String, strict=False).fill_null("") == "").sum())
    missing = min(empty, count)
    return Counter({"without a time": missing, "time before 2015, or that cannot be read": count - missing})


def _micros_of(values: pl.Series) -> pl.Series:
    unit = TimeUnit.of(values)
    return pl.Series([None] * len(values), dtype=pl.Int64) if unit is None else unit.micros(values)


def _is_time_of_day(values: pl.Series) -> bool:
    texts = values.cast(pl.String, strict=False).drop_nulls()
    return values.dtype == pl.Time or (len(texts) > 0 and texts.str.contains(_TIME_OF_DAY).all())
