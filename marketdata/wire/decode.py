"""Page bytes to columns, with no Python object per level.

One buffer per book side, joined once. A flat buffer can not tell ``[0.4],[0.5,1,2]`` from two pairs, so
the bytes are proven to hold pairs only; whatever is not plainly right goes to the reference decoder, which
finds the place and words the error.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import simdjson
from pydantic import ValidationError

from marketdata.errors import ContractError
from marketdata.times import Range
from marketdata.wire import reference_decoder
from marketdata.wire.columns import AnyColumns, BookColumns, Ints, Page, Token, View, empty, merged
from marketdata.wire.models import MarketEnvelope, MetricsEnvelope, TokenEnvelope
from marketdata.wire.structure import count_brackets
from marketdata.wire.validation import check

_SHAPE = np.frombuffer(b"0000-00-00T00:00:00Z", np.uint8)
_DIGIT = ord("0") == _SHAPE
_THREAD = threading.local()
Envelope = MarketEnvelope | TokenEnvelope | MetricsEnvelope


class _Unusual(Exception):  # noqa: N818
    """The fast decoder can not vouch for this page."""


class _Read(NamedTuple):
    """A page read and not yet checked; ``texts`` are the times of its points where nobody parsed them yet."""

    columns: AnyColumns
    envelope: Envelope
    notes: Counter[str]
    texts: list[str] | None = None


def decode_page(view: View, body: bytes, *, rng: Range | None = None, fast: bool = True) -> Page:
    """One answer of a history endpoint as columns (interface 2.2 to 2.6).

    Parameters
    ----------
    view : {"books", "prices", "metrics"}
    body : bytes
        The JSON of a market's or a single token's history.
    rng : Range, optional
        What was asked [microseconds UTC]; a ``t`` that is a number is read only if it lies inside.
    fast : bool
        False takes the reference decoder, the reference.

    Raises
    ------
    ContractError
        If the answer is off the interface; the message names the path of the value.
    """
    read = _read(view, body, rng, fast=fast)
    try:
        columns = _timed([read])[0]
    except _Unusual:
        read = _plain(view, body, rng)
        columns = read.columns
    envelope, notes = read.envelope, read.notes
    columns = check(columns, envelope.resolution, notes)
    if isinstance(envelope, MarketEnvelope):
        labels: dict[str, str | None] = dict(envelope.tokens)
    elif isinstance(envelope, TokenEnvelope):
        labels = {envelope.token_label or "": envelope.token_id}
    else:
        labels = {}
    meta = envelope.metadata
    return Page(
        columns, envelope.market_id, envelope.resolution, labels, meta.count, meta.limit, meta.next_cursor, notes
    )


def decode_pages(view: View, bodies: Sequence[bytes]) -> tuple[AnyColumns, Counter[str]]:
    """Many answers as one batch, in tidy order: times, order and checks are worked on once for all.

    Returns
    -------
    tuple of columns and Counter
        Every point of every page, those that stand on two pages twice; and what was repaired or looked odd.

    Raises
    ------
    ContractError
        If a page is off the interface, naming the page, or pages have different resolutions.
    """
    reads: list[_Read] = []
    with _no_collection():
        for k, body in enumerate(bodies):
            try:
                reads.append(_read(view, body, None))
            except ContractError as error:
                raise ContractError(f"Page {k}: {error}") from None
        try:
            parts = _timed(reads)
        except _Unusual:
            reads = [_plain(view, body, None) for body in bodies]
            parts = [read.columns for read in reads]
        notes: Counter[str] = Counter()
        for read in reads:
            notes.update(read.notes)
        resolutions = {read.envelope.resolution for read in reads}
        if len(resolutions) > 1:
            raise ContractError(f"The pages have the resolutions {sorted(resolutions)}; one frame holds one of them.")
        columns: AnyColumns = merged(parts) if parts else empty(view)  # type: ignore[type-var]
        return check(columns, next(iter(resolutions), ""), notes), notes


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's cyclic collector walks every object there is, again and again, while many are made."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _read(view: View, body: bytes, rng: Range | None, *, fast: bool = True) -> _Read:
    if fast and view == "books":
        try:
            return _read_books(body)
        except (_Unusual, TypeError, ValueError, KeyError, RuntimeError, AttributeError):
            pass
    return _plain(view, body, rng)


def _plain(view: View, body: bytes, rng: Range | None) -> _Read:
    top = reference_decoder.load(body)
    envelope = _envelope(view, top)
    notes: Counter[str] = Counter()
    columns = reference_decoder.read_points(view, top, isinstance(envelope, MarketEnvelope), rng, notes)
    return _Read(columns, envelope, notes)


def _envelope(view: View, top: Any) -> Envelope:
    if not isinstance(top, dict):
        raise ContractError(f"The answer is a JSON {type(top).__name__}, not an object.")
    model: Callable[..., Envelope]
    if view == "metrics":
        model = MetricsEnvelope
    else:
        model = TokenEnvelope if "token_id" in top and "tokens" not in top else MarketEnvelope
    try:
        return model(**{k: v for k, v in top.items() if k != "data"})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(p) for p in first["loc"])
        raise ContractError(f"The answer does not follow the interface: {path}: {first['msg']}.") from None


def _parse(body: bytes) -> Any:
    """The parsed body; one parser per thread keeps its memory from page to page."""
    try:
        return _THREAD.parser.parse(body)
    except (AttributeError, RuntimeError):
        # None yet, or something still refers to its last document.
        _THREAD.parser = simdjson.Parser()
        return _THREAD.parser.parse(body)


def _read_books(body: bytes) -> _Read:
    doc: Any = _parse(body)
    names = list(doc.keys())
    if len(set(names)) != len(names):
        raise _Unusual
    top = {name: _value(doc[name]) for name in names if name != "data"}
    envelope = _envelope("books", top)
    if isinstance(envelope, MarketEnvelope):
        data: Any = doc["data"]
        labels = list(data.keys())
        if len(set(labels)) != len(labels) or not set(labels) <= envelope.tokens.keys():
            raise _Unusual
        groups: list[tuple[Token, Any]] = [(Token(envelope.market_id, envelope.tokens[x], x), data[x]) for x in labels]
    elif isinstance(envelope, TokenEnvelope):
        groups = [(Token(envelope.market_id, envelope.token_id, envelope.token_label), doc["data"])]
    else:
        raise _Unusual
    texts: list[str] = []
    counts: list[int] = []
    sides: list[Any] = []
    for _, snapshots in groups:
        for snapshot in snapshots:
            if len(snapshot) != 3:
                raise _Unusual
            texts.append(snapshot["t"])
            bids, asks = snapshot["bids"], snapshot["asks"]
            sides.append(bids.as_buffer(of_type="d"))
            sides.append(asks.as_buffer(of_type="d"))
            counts.append(len(bids))
            counts.append(len(asks))
    per_group = [len(snapshots) for _, snapshots in groups]
    token = np.repeat(np.arange(len(groups), dtype=np.int32), per_group)
    lengths = np.array(counts, np.int64)
    levels = _levels(body, sides, lengths, len(groups))
    columns = BookColumns(tuple(t for t, _ in groups), token, np.empty(0, np.int64), lengths, levels)
    return _Read(columns, envelope, Counter(), texts)


def _timed(reads: Sequence[_Read]) -> list[AnyColumns]:
    """The columns of each page with their times, parsed all together."""
    stamps = _times([text for read in reads if read.texts is not None for text in read.texts])
    out, at = [], 0
    for read in reads:
        columns = read.columns
        if read.texts is not None:
            ts, at = stamps[at : at + len(read.texts)], at + len(read.texts)
            columns = replace(columns, ts=ts)
        out.append(columns)
    return out


def _value(value: Any) -> Any:
    """A JSON value as Python's own, so that nothing keeps the parser's memory."""
    if isinstance(value, simdjson.Object):
        if len(set(value.keys())) != len(value):
            raise _Unusual
        return value.as_dict()
    return value.as_list() if isinstance(value, simdjson.Array) else value


def _levels(body: bytes, sides: list[Any], counts: Ints, groups: int) -> np.ndarray:
    """All levels as one (n, 2) array, if every level is proven to be a pair.

    The proof: the text has one ``[`` per level beside those of sides and groups, as many ``[ , ]`` as
    levels, and twice as many numbers as levels; and no ``[ , ]`` is a side, because a side of two entries
    has four numbers. Then every ``[`` below a side is a ``[ , ]``, so none is nested, and all are levels.
    """
    flat = np.frombuffer(b"".join(sides), np.float64)
    total = int(counts.sum())
    if len(flat) != 2 * total:
        raise _Unusual
    if any(memoryview(sides[k]).nbytes != 4 * flat.itemsize for k in np.flatnonzero(counts == 2)):
        raise _Unusual
    opens, pairs = count_brackets(np.frombuffer(body, np.uint8))
    if opens != total + len(counts) + groups or pairs != total:
        raise _Unusual
    return flat.reshape(-1, 2)


def _times(texts: list[str]) -> Ints:
    """Microseconds of texts that are all of the form ``2026-01-31T12:00:00Z``."""
    try:
        unique = list(dict.fromkeys(texts))
        if not set(map(len, unique)) <= {20}:
            raise _Unusual
        letters = np.frombuffer("".join(unique).encode("ascii"), np.uint8).reshape(-1, 20)
        stamps = np.array([t[:19] for t in unique], "datetime64[us]").view(np.int64)
    except (TypeError, ValueError):
        raise _Unusual from None
    if (letters[:, _DIGIT] - ord("0")).max(initial=0) > 9 or np.any(letters[:, ~_DIGIT] != _SHAPE[~_DIGIT]):
        raise _Unusual
    if len(unique) == len(texts):
        return stamps
    place = {t: i for i, t in enumerate(unique)}
    return stamps[[place[t] for t in texts]]
