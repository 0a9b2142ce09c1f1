"""The rows of a file with the roles of its columns: a list of steps decides what they are, and each says why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.columns import Floats
from marketdata.points.schema import COLUMNS
from marketdata.recordings.arrivals import Arrivals
from marketdata.recordings.changes import Changes, no_changes
from marketdata.recordings.containers import ROW, SAMPLE_ROWS
from marketdata.recordings.files import MODIFIED, RecordingFile
from marketdata.recordings.roles import (
    ANY_TIMES,
    NO_TIME_OF_A_ROW,
    ROLES,
    VENUE_TIMES,
    Meaning,
    is_deal,
    is_side,
    is_time,
    numbers,
    roles_of,
    snapshot_flags,
    words_of_sides,
)
from marketdata.recordings.units import PriceUnit, TimeUnit, formats_of_dates
from marketdata.recordings.wanted import Wanted
from marketdata.times import DAY, SECOND

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
_ID_ROLES = ("market_id", "slug", "token_id", "maker_asset_id", "taker_asset_id")
# Names of the side that do not need the word buy or sell.
_ACTIONS: tuple[str, ...] = ("action", "direction")
# Columns that say that a poll failed, or succeeded, and roles whose values it would have.
_SUCCESS = ("success", "ok", "succeeded")
_OF_A_FAILURE = re.compile(
    rf"(?:{'|'.join(_SUCCESS)}|(?:last_|fetch_|poll_)?(?:err|error|exception)(?:_message|_msg)?)"
)
_NO_FAILURE = ["", "none", "null", "nan", "false", "0", "ok"]
_POLLED = ("bids", "asks", "best_bid", "best_ask", "yes_bid", "yes_ask", "no_bid", "no_ask")
# Null as programs print it, which no id is.
_NO_IDS = ["", "nan", "none", "null", "<na>"]


def no_time(clock: str, what: str, names: Iterable[str]) -> ConfigError:
    """The error for a clock that the columns of a file, or the fields of a message, do not have."""
    problem = f"has no time for clock={clock!r}; its {what} are {', '.join(names)}."
    return ConfigError(problem, argument="clock", value=clock)


@dataclass
class Batch:
    """Rows of a file in their order: changes of books, or frames of points, records or trades by their kind.

    ``rows`` were read. ``left_out`` counts those that are neither, by reason. ``received`` are the messages by which
    the recording is known to have gone on. ``markets`` are records as `Archive.add` takes them. ``keep`` names fields
    of snapshots. ``notes`` say what was scaled, and which rows are wrong. ``restarts``: another connection begins, so
    that no book from before is valid.
    """

    changes: Changes = field(default_factory=no_changes)
    frames: dict[FileKind, Any] = field(default_factory=dict)
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    received: Arrivals = field(default_factory=lambda: Arrivals.joined([]))
    markets: list[dict[str, Any]] = field(default_factory=list)
    keep: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    # The greatest width on whose grid are the times of all parts of a table, 0 if it is one part.
    grid: int = 0
    restarts: bool = False


class Change(NamedTuple):
    """What a step found in a table, for `--explain`, and what it changes in each part of its rows.

    Rows that it takes out are left out for the ``reason``.
    """

    note: str
    rows: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    reason: str = ""


class Table:
    """The rows of a file with the roles of its columns, and the units of its times and prices.

    The steps `ROLE_STEPS` decide the roles that values or other columns decide, once; `ROW_STEPS` change rows as they
    are read. Each step says what it found in ``found``.
    """

    def __init__(self, file: RecordingFile) -> None:
        self.file = file
        self.meanings: list[Meaning] = roles_of(
            file.sample, {*file.options.columns, *self.own_columns()}, file.options.time_format
        )
        self.columns: dict[str, str] = {m.role: m.column for m in self.meanings if m.taken}
        self.units: dict[str, TimeUnit] = {}
        self.found: dict[str, str] = {}
        # The width of the points into which rows go [microseconds].
        self.bucket = DAY
        # Columns of times whose names have no role, if two of them differ: nobody knows which one counts.
        self.times: tuple[str, ...] = ()
        for step in ROLE_STEPS:
            self._take(step.__name__, step(self))

    def own_columns(self) -> tuple[str, ...]:
        """The columns of a tidy table, which has all of them in their order: an export is read by its schema.

        So ids that look like something else, such as NA or 1e400, come back as they are.
        """
        names = self.file.names
        views = sorted(COLUMNS.values(), key=len, reverse=True)
        return next((view for view in views if names[: len(view)] == view and "token_id" in view), ())

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
        """Whether a value of a role comes more than once in the file."""
        if name not in self.columns:
            return False
        column, parts = self.columns[name], [self.file.sample]
        if len(parts[0]) == SAMPLE_ROWS:
            parts = [part for part in self.file.frames([column]) if column in part.columns]
        values = pl.concat([part[column].cast(pl.String, strict=False).drop_nulls() for part in parts])
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
        # A column that is not what its name says must not be taken for it.
        others = {c: f"{c}{DENIED}" if c in ROLES else c for c in (() if only else self.others) if c not in chosen}
        count, made = 0, None
        for frame in file.frames([*chosen.values(), time, seen] if only else None):
            numbered = frame if ROW in frame.columns else frame.with_row_index(ROW, count)
            count += len(frame)
            lacking = [name for name in dict.fromkeys((time, seen, *chosen.values())) if name not in frame.columns]
            numbered = numbered.with_columns(pl.lit(None, pl.String).alias(name) for name in lacking)
            rows = numbered.select(
                *(pl.col(column).alias(name) for name, column in chosen.items() if name != "ts"),
                *(pl.col(c).alias(name) for c, name in others.items() if c in frame.columns),
                pl.col("__row").cast(pl.Int64),
                self._micros(numbered, time).alias("ts"),
                self._micros(numbered, seen).alias("__seen"),
            )
            made, batch = self._changed(rows, self._counted(numbered[time], rows), changes)
            yield made, batch
        if file.torn:
            batch = Batch(rows=file.torn, left_out=Counter({"with another number of columns": file.torn}))
            yield made.clear() if made is not None else pl.DataFrame(), batch

    def _counted(self, times: pl.Series, rows: pl.DataFrame) -> Batch:
        """A batch that counts rows, and those without a usable time among them."""
        without = rows.filter(pl.any_horizontal(pl.col("ts", "__seen").is_null()))["__row"]
        batch = Batch(rows=len(rows), left_out=+_without_time(times, len(without)), keep=self.file.options.keep)
        if len(without) and self.file.form != "json":
            first = ", ".join(str(row + 1) for row in without.head(3).to_list())
            batch.notes.append(f"rows without a usable time, such as row {first}")
        batch.notes += [self.found[name] for name in _SAID if name in self.found]
        batch.notes += [unit.note for unit in self.units.values() if unit.note]
        return batch

    @staticmethod
    def _changed(rows: pl.DataFrame, batch: Batch, changes: Iterable[Change | None]) -> tuple[pl.DataFrame, Batch]:
        """The rows that have a time, as the steps change them; the batch counts those that a step takes out."""
        rows = rows.drop_nulls(["ts", "__seen"])
        for change in changes:
            if change is not None and change.rows is not None:
                kept = change.rows(rows)
                batch.left_out += Counter({change.reason: len(rows) - len(kept)})
                rows = kept
        return rows, batch

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
            unit = TimeUnit.of(frame[column], self.file.options.time_format)
            if unit is None:
                some = next(
                    (str(value)[:60] for value in frame[column].to_physical().drop_nulls().head(1).to_list()), "nothing"
                )
                dates = formats_of_dates(frame[column].drop_nulls())
                say = f"say which dates these are with {' or '.join(dates)}"
                name = "name another column with columns={'ts': ...}"
                raise ConfigError(
                    f"{column} is neither an ISO 8601 time nor a Unix time since 2015: it has {some}. Else "
                    f"{say if dates else name}."
                )
            self.units[column] = unit
        return self.units[column].micros(frame[column])

    def keep_only(self, wanted: Wanted, *, in_time: bool) -> None:
        """Leave rows of other markets, tokens and times out before they are decoded, where columns tell them."""
        file, names = self.file, [self.columns[n] for n in _ID_ROLES if n in self.columns]
        names += [n for n in ROLES["token_ids"].names if n in file.sample.columns and "token_ids" in self.columns]
        is_said = file.options.token_id is not None or {*names} & file.said_by_names.keys()
        own = [] if is_said else [file.original_name(name) for name in dict.fromkeys(names)]
        time = self.columns.get("ts") if in_time and file.options.clock == "timestamp" else None
        unit = TimeUnit.of(file.sample[time]) if time in file.sample.columns and time is not None else None
        is_own = time is not None and unit is not None and time in file.common_names(file.names).values()
        file.needles = wanted.needles(own, (file.original_name(str(time)), unit) if is_own and unit else None)

    def _proving_frames(self, columns: list[str]) -> Iterator[pl.DataFrame]:
        """Rows that prove units: all of them in Parquet, else also the first ones where not all rows are wanted."""
        file, needles = self.file, self.file.needles
        bounds = file.price_bounds([file.original_name(name) for name in columns]) if needles is not None else None
        if needles is not None and file.form == "parquet" and not (bounds and 0 <= bounds[0] <= bounds[1] <= 1):
            file.needles = None
        elif needles is not None:
            yield file.sample.select(name for name in columns if name in file.sample.columns)
        try:
            yield from file.frames(columns)
        finally:
            file.needles = needles

    def price_unit(self, columns: list[str]) -> PriceUnit:
        """The unit that all prices of the file prove."""
        if not columns:
            return PriceUnit()
        values: list[Floats] = []
        for frame in self._proving_frames(columns):
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


def side_of_the_option(table: Table) -> Change | None:
    """The column whose words ``sides=`` explains: the one that is chosen, else the first that is called a side."""
    sample, columns = table.file.sample, table.columns
    if table.file.options.sides is None:
        return None
    called = (*ROLES["side"].names, *ROLES["taker_outcome"].names, *_ACTIONS)
    column = columns.get("side") or next((name for name in called if name in sample.columns), None)
    if column is None:
        raise ConfigError(f"{table.file.name!r} has no column of sides; name it with columns={{'side': ...}}.")
    for name in [name for name, of in columns.items() if of == column]:
        del columns[name]
    columns["side"] = column
    return Change(f"{column} has the sides, as sides= says")


def side_of_an_action(table: Table) -> Change | None:
    """An action of buys and sells is the side where no other column is; beside a side of yes and no it is not."""
    if {"side", "outcome_side", "taker_outcome"} & table.columns.keys():
        return None
    sample, activity = table.file.sample, table.columns.get("activity")
    named = [n for n in _ACTIONS if n in table.others and is_side(sample[n].drop_nulls())]
    is_print = not {"size", "count"}.isdisjoint(table.columns)  # without a size it may be a signal
    others = sorted({*table.others, *([activity] if activity else [])}) if is_print else []
    found = named or [n for n in others if is_deal(sample[n].drop_nulls())]
    if named or len(found) == 1:
        table.columns["side"] = found[0]
        if activity == found[0]:
            del table.columns["activity"]
        return Change(f"{found[0]} has buys and sells, so it is the side")
    return None


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


def time_by_value(table: Table) -> Change | None:
    """A column of times that is no field of a record is the time, whatever its name; two that differ are a question."""
    columns, sample = table.columns, table.file.sample
    if {"ts", "end_ts"} & columns.keys() or table.file.options.clock == MODIFIED or _times_of_candles(table):
        return None
    found = sorted(n for n in table.others if not NO_TIME_OF_A_ROW.search(n) and is_time(sample[n].drop_nulls()))
    if not found:
        return None
    columns["ts"] = found[0]
    own, times = _micros_of(sample[found[0]]), [*found[1:]]
    differing = [n for n in times if not own.equals(_micros_of(sample[n]))]
    if not differing and "received_at" in columns and columns["received_at"] != found[0]:
        gap = (own - _micros_of(sample[columns["received_at"]])).abs()
        differing = [columns["received_at"]] if (gap > _MOMENT).sum() * 2 > len(gap) else []
    table.times = (found[0], *differing[:1])
    return Change(f"{found[0]} is the time of each row: it has times, and no name of a field of a record")


def time_of_another_role(table: Table) -> Change | None:
    """A time of another role serves where there is no other; created is one of prints only."""
    columns = table.columns
    is_print = {"trade_id", "transaction_hash"} & columns.keys() or (
        {"side", "outcome_side", "taker_outcome"} & columns.keys() and {"size", "count"} & columns.keys()
    )
    names = ("end_ts", *_times_of_candles(table), *(["created_at"] if is_print else []), "received_at")
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


def whole_books_and_changes(table: Table) -> Change | None:
    """Rows of levels that a column tells to be of whole books or changes, by its words or as a flag that says so."""
    columns, sample = table.columns, table.file.sample
    if not {"side", "price", "size"} <= columns.keys() or {"is_snapshot", "bids", "asks"} & columns.keys():
        return None
    sizes = pl.Series(numbers(sample[columns["size"]]))
    named = [columns[name] for name in ("book_event", "event_type", "size_change", "activity") if name in columns]
    for column in sorted({*table.others, *named}):
        is_whole = snapshot_flags(sample[column], table.file.original_name(column))
        changed = sizes.filter(~is_whole.fill_null(value=True))
        if is_whole.null_count() > sample[column].null_count() or not is_whole.drop_nulls().len():
            continue
        if not len(changed) or (changed < 0).any() or not (is_whole.any() or (changed == 0).any()):
            continue
        columns["is_snapshot"] = column
        for name in [name for name, of in columns.items() if of == column and name != "is_snapshot"]:
            del columns[name]
        return Change(f"{column} says which rows are of whole books and which are changes")
    return None


def _times_of_candles(table: Table) -> tuple[str, ...]:
    """The roles of times that only candles have."""
    names = ("candle_start", "candle_end") if {"open", "close"} <= table.columns.keys() else ()
    return tuple(name for name in names if name in table.columns)


ROLE_STEPS: tuple[Callable[[Table], Change | None], ...] = (
    token_of_the_option, side_of_the_option, side_of_an_action, label_of_the_side, label_of_a_word, sizes_called_volume,
    whole_books_and_changes, time_by_value, time_of_another_role, time_of_the_file,
)  # fmt: skip


def one_time(table: Table, _: tuple[str, ...]) -> Change | None:
    """ConfigError if the rows have their time in a second column too, or in another one."""
    file, sample = table.file, table.file.sample
    time, _seen = table.clock()
    if file.options.clock != "timestamp" or "ts" in file.options.columns:
        return None
    if len(table.times) > 1:
        raise two_times(table)
    texts = sample[time].cast(pl.String, strict=False).drop_nulls()
    for other in (n for n in sample.columns if n in (*ANY_TIMES, "hour") and n != time):
        if len(texts) and texts.str.contains(_DAY).all() and (other == "hour" or _is_time_of_day(sample[other])):
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
            table.times = (time, other)
            raise two_times(table)
    return None


def two_times(table: Table) -> ConfigError:
    """The error for a file with two times of which either may be that of its rows."""
    time, other = table.times
    return ConfigError(
        f"{table.file.name!r} has two times, {time} and {other}, which differ. Choose one with "
        f"columns={{'ts': {other!r}}} or columns={{'ts': {time!r}}}."
    )


def one_column_a_name(table: Table, _: tuple[str, ...]) -> Change | None:
    """ConfigError if another column has the same name but for its case and blanks, and other values."""
    sample = table.file.sample
    for column in (c for c in table.columns.values() if c in sample.columns):
        for other in (n for n in table.others if re.sub(r"[\s_]+", "_", n.strip()).lower() == column):
            if not sample[other].cast(pl.String, strict=False).equals(sample[column].cast(pl.String, strict=False)):
                raise ConfigError(
                    f"{table.file.name!r} has {other!r} and {column!r}, which differ: rename one, or take it out."
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


def rows_with_an_id(table: Table, _: tuple[str, ...]) -> Change | None:
    """A blank id is none, and a row without any has no place; an outcome keeps its name, also where it is None."""
    assets = ("maker_asset_id", "taker_asset_id")
    labels = [name for name in ("token_label", "token_number") if name in table.columns]
    ids = [name for name in (*_IDS, *assets) if name in table.columns]
    names = [*ids, *labels]
    blanks = [""] if table.own_columns() else _NO_IDS
    is_of_tokens = not table.has_both_outcomes and ("token_id" in ids or labels)

    def kept(rows: pl.DataFrame) -> pl.DataFrame:
        of_rows = [name for name in names if name in rows.columns and rows.schema[name] in (pl.String, pl.Categorical)]
        texts = {name: pl.col(name).cast(pl.String).str.strip_chars("\0 ") for name in of_rows}
        no_id = {name: text.str.to_lowercase().is_in(blanks if name in ids else [""]) for name, text in texts.items()}
        rows = rows.with_columns(pl.when(~no_id[name]).then(text).alias(name) for name, text in texts.items())
        present = {name: pl.col(name).is_not_null() for name in names if name in rows.columns}
        ways = [{name} for name in ids if name != "market_id" or not is_of_tokens]
        ways += [{"market_id", name} for name in labels if is_of_tokens]
        known = [pl.all_horizontal(present[name] for name in way) for way in ways if way <= present.keys()]
        return rows.filter(pl.any_horizontal(known)) if known else rows

    return Change("", kept, f"without a {'token_id' if is_of_tokens else 'market_id'}")


def rows_of_failed_polls(table: Table, _: tuple[str, ...]) -> Change | None:
    """A row that says that it failed and has no value is a failed poll, and no empty book."""
    said = [name for name in table.others if _OF_A_FAILURE.fullmatch(name)]
    values = [name for name in _POLLED if name in table.columns]
    if not said or not values:
        return None

    def kept(rows: pl.DataFrame) -> pl.DataFrame:
        texts = {n: rows[n].cast(pl.String, strict=False).str.strip_chars().str.to_lowercase()
                 for n in said if n in rows.columns and not rows[n].dtype.is_nested()}  # fmt: skip
        wrong = [
            (text == "false") if name in _SUCCESS else ~text.is_in(_NO_FAILURE) & text.is_not_null()
            for name, text in texts.items()
        ]
        empty = [
            (rows[n].list.len() == 0) | rows[n].is_null() if isinstance(rows[n].dtype, pl.List)
            else rows[n].cast(pl.String, strict=False).str.strip_chars().fill_null("").is_in(["", "[]"])
            for n in values if n in rows.columns and not isinstance(rows[n].dtype, pl.Struct)
        ]  # fmt: skip
        if not wrong or not empty:
            return rows
        failed = pl.any_horizontal(wrong).fill_null(value=False) & pl.all_horizontal(empty)
        return rows.filter(~failed)

    return Change("", kept, "of a failed poll")


def flags_of_whole_books(table: Table, _: tuple[str, ...]) -> Change | None:
    """Whether a row is of a whole book or a change, as its word or its flag says."""
    column = table.columns.get("is_snapshot")
    if column is None:
        return None
    name = table.file.original_name(column)
    return Change("", lambda rows: rows.with_columns(
        is_snapshot=snapshot_flags(rows["is_snapshot"], name)
    ) if "is_snapshot" in rows.columns else rows)  # fmt: skip


def sides_as_given(table: Table, _: tuple[str, ...]) -> Change | None:
    """The sides that ``sides=`` gives for words; a word that it does not name is none."""
    given = table.file.options.sides
    if given is None:
        return None
    column = table.columns["side"]
    words = words_of_sides(table.file.sample[column]).drop_nulls().unique()
    if given and len(words) and not words.is_in([*given]).any():
        shown = " and ".join(map(repr, words.sort()[:3].to_list()))
        raise ConfigError(f"names no word of {column}, which has {shown}.", argument="sides", value=given)
    return Change("", lambda rows: rows.with_columns(
        words_of_sides(rows["side"]).replace_strict(given, default=None, return_dtype=pl.String).alias("side")
    ) if "side" in rows.columns else rows)  # fmt: skip


def prices_in_dollars(table: Table, prices: tuple[str, ...]) -> Change | None:
    """Prices in another unit, which the whole file proves, become probabilities."""
    unit = table.price_unit([table.columns[name] for name in prices if name in table.columns])
    if unit.scale == 1:
        return None
    return Change(unit.note or "", lambda rows: rows.with_columns(
        _scaled(rows[name], unit) for name in prices if name in rows.columns
    ))  # fmt: skip


ROW_STEPS: tuple[Callable[[Table, tuple[str, ...]], Change | None], ...] = (
    one_time, one_column_a_name, ids_without_apostrophes, rows_with_an_id, rows_of_failed_polls, flags_of_whole_books,
    sides_as_given, prices_in_dollars,
)  # fmt: skip
# Steps whose note the report has.
_SAID = ("prices_in_dollars", "time_by_value")


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
