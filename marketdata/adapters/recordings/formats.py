"""The table of formats: how a file of each is recognised by its columns, and what reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from marketdata.adapters.recordings import tables
from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import LABEL, MARKET, SEEN_TIME, TOKEN, VENUE_TIME, first
from marketdata.adapters.recordings.files import ENDS, DamagedFileError, RecordingFile
from marketdata.adapters.recordings.market_channel import MessageReader, is_message
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice

# Memory of a change [bytes].
_BYTES = 64


class Format(NamedTuple):
    """A shape of recordings.

    ``fits`` looks at the columns, or at the first message; ``read`` gives a file in parts, by a clock ("timestamp",
    "received", or the name of a column). ``stands``: whether the file has every change, so that a book stands until the
    next one; else each book is that of its own moment.
    """

    name: str
    fits: Callable[[RecordingFile], bool]
    read: Callable[[RecordingFile, str], Iterator[Batch]]
    stands: bool


def _messages(file: RecordingFile, clock: str) -> Iterator[Batch]:
    reader = MessageReader(clock, file.token_id)
    try:
        for found in file.messages():
            if found is None:
                reader.damaged()
            else:
                reader.add(found)
            if file.is_part(len(reader) * _BYTES):
                yield reader.collected()
    except DamagedFileError:
        yield reader.collected()
        raise
    yield reader.collected()


def _has(*names: str) -> Callable[[RecordingFile], bool]:
    return lambda file: set(names) <= set(file.columns)


def _has_time(file: RecordingFile) -> bool:
    return first(file.columns, (*VENUE_TIME, *SEEN_TIME)) is not None


def _is_snapshots(file: RecordingFile) -> bool:
    names = set(file.columns)
    sides = {*tables.BIDS_NAMES} & names and {*tables.ASKS_NAMES} & names
    named = {*TOKEN} & names or ({*MARKET} & names and {*LABEL} & names)
    is_message = file.form == "json" and {"bids", "asks"} <= names and not {*MARKET} & names
    is_book = bool((sides or {*tables.BOOK_NAMES} & names) and named) and not is_message
    return is_book and "event_type" not in names and _has_time(file)


def _is_book_messages(file: RecordingFile) -> bool:
    names = set(file.columns)
    is_book = file.form == "json" and {"bids", "asks"} <= names
    return is_book and "event_type" not in names and not _is_snapshots(file)


def _is_levels(file: RecordingFile) -> bool:
    names = set(file.columns)
    sized = {"side", "price"} <= names and {*tables.SIZE_NAMES} & names
    is_tidy = {"ts", "token_id", "level", "size"} <= names
    return bool(sized and {"level", "level_index", "rank"} & names) and not is_tidy and _has_time(file)


def _is_incremental(file: RecordingFile) -> bool:
    names = set(file.columns)
    return {"is_snapshot", "side", "price"} <= names and bool({*tables.SIZE_NAMES} & names)


# All formats by name; one that fits several is refused, so their order says nothing.
FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("market-channel", is_message, _messages, stands=True),
        Format("event-files", _has(*tables.EVENT_COLUMNS), tables.event_files, stands=True),
        Format("incremental", _is_incremental, partial(tables.level_rows, incremental=True), stands=True),
        Format("snapshots", _is_snapshots, tables.snapshots, stands=False),
        Format("levels", _is_levels, tables.level_rows, stands=False),
        Format("wide-snapshots", _has("bids[0].price", "asks[0].price"), tables.wide_snapshots, stands=False),
        Format(
            "outcome-bids",
            lambda f: bool({*tables.YES_NAMES} & {*f.columns} and {*tables.NO_NAMES} & {*f.columns}),
            tables.outcome_bids,
            stands=False,
        ),
        Format("book-messages", _is_book_messages, _messages, stands=False),
    )
}


def format_of(file: RecordingFile, name: str | None = None) -> Format | None:
    """The format of a file, or that of a name; None if none fits; ConfigError if several do, or it is unreadable."""
    if name is not None:
        return FORMATS[choice("format", name, FORMATS)]
    if file.form is None:
        raise ConfigError(f"{file.path.name!r} is not of a known kind; names that end in these are read: {ENDS}.")
    fitting = [one for one in FORMATS.values() if one.fits(file)]
    if len(fitting) > 1:
        names = " and ".join(one.name for one in fitting)
        raise ConfigError(f"{file.path.name!r} could be of the formats {names}; name one with format=.")
    return fitting[0] if fitting else None
