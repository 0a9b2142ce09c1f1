"""Books from recorded changes, and changes from books; the rules are in `marketdata.recordings.changes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import polars as pl

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.frame import Frame, Texts
from marketdata.adapters.widths import width_of
from marketdata.errors import NotTidyError, RecordingWarning, warn
from marketdata.points.arguments import choice, with_flags
from marketdata.points.columns import Books, Token
from marketdata.points.probability import refuse_cents, refuse_negative
from marketdata.points.schema import ASK, BID, ID_COLUMNS, check_names, require
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.recordings import changes as rule
from marketdata.recordings.arrivals import Arrivals
from marketdata.recordings.files import ReadOptions
from marketdata.recordings.format import kept_fields
from marketdata.recordings.message_fields import as_json
from marketdata.recordings.messages import MessageReader
from marketdata.recordings.roles import flags
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.frames import FrameKind, frame_kind, to_columns, to_frame
from marketdata.times import Duration, to_duration

Clock = Literal["timestamp", "received"]


@with_flags("unchanged")
def rebuild(
    messages_or_frame: Any,
    resolution: Width = "1s",
    *,
    max_gap: Duration = "5m",
    max_age: Duration = "1h",
    unchanged: bool = True,
    keep: Sequence[str] = (),
    clock: Clock = "timestamp",
    frame: FrameKind = "pandas",
) -> Any:
    """Tidy books from recorded changes: the last book that was known in each bucket.

    A snapshot starts the book of a token, a change sets the size of a level, and size 0 removes the level. Buckets in
    which nothing changed have the book too. A book is valid while the recording goes on: until a hole above
    ``max_gap``, a row that says "gap", or ``max_age`` without a row of the token. The bucket in which that happens has
    the book from before. From there to the next snapshot there is no book, and changes in between are not applied. Rows
    that are not in the order of time are sorted.

    Returns a tidy frame of books, of the kind of the frame given (polars for a frame of an engine). RecordingWarning if
    rows had to be sorted, if books disagree with best prices that rows state, or if messages cannot be read.

    Parameters
    ----------
    messages_or_frame
        A frame with one row per changed level, as `diff` gives: ``ts token_id side price size`` [UTC, probability,
        shares], and ``event`` ("snapshot" in all rows of a whole book, "change", "gap") or ``is_snapshot``. A row
        without a price says that a book is empty or the same. Optional are ``market_id``, by default the token's id,
        ``token_label``, ``best_bid best_ask`` and ``received_at`` [UTC]. Or a list of messages of a venue's market
        channel: ``book``, ``price_change`` and others, which are left out.
    resolution : str or timedelta
        Width of a bucket, such as "1s" or "1m".
    max_gap, max_age : str or timedelta
        Longest time between two rows, of whatever token, and of one token; at least two buckets.
    unchanged : bool
        Whether buckets without a row of the token have its book.
    keep : list of str
        Fields of snapshots that become columns: "hash", "last_trade_price" [probability], "tick_size".
    clock : {"timestamp", "received"}
        Whether ``ts`` is the venue's time, or that of arrival. Gaps are found by the time of arrival where it is known.
    frame : {"pandas", "polars"}
        Kind of the result for messages.

    Examples
    --------
    >>> book = {"event_type": "book", "asset_id": "7",
    ...         "timestamp": "1767225600000",
    ...         "bids": [{"price": ".48", "size": "30"}],
    ...         "asks": [{"price": ".52", "size": "25"}]}
    >>> change = {"event_type": "price_change", "timestamp": "1767225602000",
    ...           "price_changes": [{"asset_id": "7", "price": ".5",
    ...                              "size": "10", "side": "BUY"}]}
    >>> md.bbo(md.rebuild([book, change]))["best_bid"].tolist()
    [0.48, 0.48, 0.5]
    """
    width = BucketWidth.of(resolution)
    options = ReadOptions(choice("clock", clock, ("timestamp", "received")), kept_fields(keep))
    if isinstance(messages_or_frame, list | tuple | Mapping):
        like: Any = frame_kind(frame)
        changes, received = _changes_of_messages(messages_or_frame, options)
    else:
        like = in_memory(messages_or_frame)
        changes, received = _changes_of_frame(like, options), None
    early, _ = rule.out_of_order(changes, {})
    if early:
        warn(
            f"{early} of {len(changes)} changes came after a later one of their token; all were sorted by time.",
            RecordingWarning,
        )
        changes = rule.by_time(changes)
    if isinstance(like, Frame):
        changes = rule.first_rows(changes)
    changes, wrong_levels, _ = rule.cleaned(changes)
    if wrong_levels:
        warn(
            f"{wrong_levels} of {len(changes)} changes have a price outside of 0 to 1, or a size below 0, and are "
            "left out.",
            RecordingWarning,
        )
    gap, age = (
        max(to_duration(value, name, least="1s"), 2 * width.micros)
        for name, value in (("max_gap", max_gap), ("max_age", max_age))
    )
    books, tally = rule.rebuild(changes, width, max_gap=gap, max_age=age, unchanged=unchanged, received=received)
    if tally.disagreements:
        warn(tally.disagreement, RecordingWarning)
    return to_frame(books, like)


def diff(books: Any, width: Width | None = None) -> Any:
    """The changes from each book to the next; `rebuild` makes the same books from them.

    Books are tidy or nested, of any kind, their buckets ``width`` wide, by default as they carry. One row per changed
    level: ``ts market_id token_id token_label event side price size`` with the new size [shares], 0 where the level is
    gone, in the order of times per token. The first book of a token, and one after a missing bucket, is a "snapshot"
    with all its levels. A row "gap" before it ends the book of the bucket before. Other rows are a "change". A book
    that is empty or as before is one row with null price and size. Levels of size 0 are left out.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> md.rebuild(md.diff(books), "1m").equals(books)
    True
    """
    rows = width_of(books, width, what="the books")
    like = in_memory(books)
    columns = to_columns("books", like.native)
    assert isinstance(columns, Books)
    price, size = columns.levels()
    refuse_cents(price=price)
    refuse_negative(size=size)
    changes = rule.diff(columns, rows.width)
    return like.build(
        {
            "ts": frames.times(changes.ts),
            **{name: Texts(changes.token, [t[i] for t in changes.tokens]) for i, name in enumerate(ID_COLUMNS)},
            "event": Texts(changes.event, [*rule.EVENTS]),
            "side": Texts(changes.side, [BID, ASK]),
            "price": changes.price,
            "size": changes.size,
        },
        len(changes),
    )


def _changes_of_messages(messages: Any, options: ReadOptions) -> tuple[rule.Changes, Arrivals | None]:
    reader = MessageReader(options)
    for message in [messages] if isinstance(messages, Mapping) else messages:
        reader.add(as_json(message))
    batch = reader.collected()
    if damaged := batch.left_out["damaged"]:
        warn(f"{damaged} of {batch.rows} messages cannot be read; they were left out.", RecordingWarning)
    tokens = tuple(t._replace(market_id=t.market_id or str(t.token_id)) for t in batch.changes.tokens)
    return replace(batch.changes, tokens=tokens), batch.received


def _changes_of_frame(source: Frame, options: ReadOptions) -> rule.Changes:
    """The changes of a frame, a snapshot in all of its rows."""
    names = list(source.names)
    check_names(names)
    require("A frame of changes", ("ts", "token_id", "side", "price", "size", *options.keep), names)
    if options.clock == "received":
        require("A frame of changes with clock='received'", ["received_at"], names)
    if "event" in names:
        events, which = frames.distinct_ids(source, ["event"])
        texts = [str(text) for (text,) in events]
        if unknown := {*texts} - {*rule.EVENTS}:
            raise NotTidyError(f"event is one of {', '.join(rule.EVENTS)}; the frame also contains {sorted(unknown)}.")
        event = np.array([rule.EVENTS.index(text) for text in texts], np.int8)[which]
    elif "is_snapshot" in names:
        given = pl.Series("is_snapshot", source.raw("is_snapshot"))
        said = flags(given)
        if len(wrong := given.filter(said.is_null() & given.is_not_null())):
            raise NotTidyError(
                f"is_snapshot is {wrong[0]!r}; allowed are true and false, yes and no, 1 and 0, and null."
            )
        event = said.fill_null(value=False).to_numpy().astype(np.int8)
    else:
        raise NotTidyError(
            f"A frame of changes lacks a column 'event' ({', '.join(rule.EVENTS)}) or 'is_snapshot'; without one it is "
            "not known where a book begins."
        )
    seen = source.times("received_at" if "received_at" in names else "ts")
    source.codes("token_id")
    id_names = [c for c in ID_COLUMNS if c in names]
    distinct, token = frames.distinct_ids(source, id_names)
    ids = (dict(zip(id_names, texts, strict=True)) for texts in distinct)
    stated = zip(rule.STATED, ("best_bid", "best_ask"), strict=True)
    return rule.Changes(
        tuple(Token(t.get("market_id") or str(t["token_id"]), t["token_id"], t.get("token_label")) for t in ids),
        token.astype(np.int32),
        seen if options.clock == "received" else source.times("ts"),
        seen,
        event,
        source.read("side")[0].astype(np.int8),
        source.numbers("price"),
        source.numbers("size"),
        np.arange(len(source)),
        {
            n: np.array(source.texts(n), object) if SNAPSHOT_FIELDS[n] == "text" else source.numbers(n)
            for n in options.keep
        }
        | {ours: source.numbers(name) for ours, name in stated if name in names},
    )
