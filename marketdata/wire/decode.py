"""Page bytes to columns, with no Python object per level.

The fast decoder of books reads each side as one buffer of numbers, and only pages that have exactly the form of the
interface. Every other page goes to the reference decoder, which finds the place for the error.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

import numpy as np
import simdjson

from marketdata.errors import ContractError
from marketdata.points.columns import Books, Data, Page, Token, joined
from marketdata.points.views import VIEWS, View, empty
from marketdata.times import Range
from marketdata.wire import reference_decoder
from marketdata.wire.models import Envelope, MarketEnvelope, TokenEnvelope, parse
from marketdata.wire.validation import check

# The parser of each thread.
_THREAD = threading.local()


# The parser returns the numbers of a side as one buffer, `[0.4],[0.5,1,2]` as it does two pairs. So a page without the
# characters of its numbers is compared with the text of as many snapshots and levels as the parser counts.
_OF_NUMBERS = b"0123456789.+-eE"
_SNAPSHOT = b'{"t":"T::Z","bids":[%b],"asks":[%b]}'  # without them
_is_time = re.compile(r"(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII).fullmatch


class _UnusualPageError(Exception):
    """A page that the fast decoder leaves to the reference decoder."""


# Errors of the fast decoder for a page of another form.
_UNUSUAL = (_UnusualPageError, ContractError, TypeError, ValueError, LookupError, RuntimeError, AttributeError)


def decode_page(view: View, body: bytes, *, rng: Range | None = None, fast: bool = True, checked: bool = True) -> Page:
    """One answer of a history endpoint as columns (interface 2.2 to 2.6); ContractError with the path of a wrong value.

    A ``t`` that is a number is read only inside of ``rng`` [microseconds UTC]; ``fast=False``: the reference decoder;
    ``checked=False``: points as they are, of which pages that are put together are checked at once.
    """
    for compact in (bytes.strip, _compact) if fast and view == "books" else ():
        with suppress(*_UNUSUAL):
            return page_of(*_read_books(compact(body)), Counter(), checked=checked)
    notes: Counter[str] = Counter()
    top = reference_decoder.load(body, notes)
    envelope = envelope_of(view, top)
    columns = reference_decoder.read_points(view, top, isinstance(envelope, MarketEnvelope), rng, notes)
    return page_of(columns, envelope, notes, checked=checked)


def page_of(columns: Data, envelope: Envelope, notes: Counter[str], *, checked: bool = True) -> Page:
    """A page of points as they were read, by default checked; its labels are also those of tokens without a point."""
    columns = check(columns, envelope.resolution, notes) if checked else columns
    meta = envelope.metadata
    labels: dict[str, str | None] = {}
    if isinstance(envelope, MarketEnvelope):
        labels = {**envelope.tokens}
    elif isinstance(envelope, TokenEnvelope):
        labels = {envelope.token_label or "": envelope.token_id}
    return Page(
        columns, envelope.market_id, envelope.resolution, labels, meta.count, meta.limit, meta.next_cursor, notes
    )


def decode_pages(view: View, bodies: Sequence[bytes]) -> tuple[Data, Counter[str]]:
    """Many answers as one batch, in tidy order, points of two pages twice, and counts of repairs and oddities.

    ContractError names the page off the interface, or the resolutions that differ.
    """
    notes: Counter[str] = Counter()
    parts, resolutions = [], set()
    for k, body in enumerate(bodies):
        try:
            page = decode_page(view, body, checked=False)
        except ContractError as error:
            raise ContractError(f"Page {k}: {error}") from None
        parts.append(page.columns)
        resolutions.add(page.resolution)
        notes.update(page.notes)
    if len(resolutions) > 1:
        raise ContractError(f"The pages have the resolutions {sorted(resolutions)}; a frame has one.")
    columns = joined(parts).sort() if parts else empty(view)
    return check(columns, next(iter(resolutions), ""), notes), notes


def envelope_of(view: View, top: object) -> Envelope:
    """The envelope of an answer; ContractError if it does not follow the interface."""
    if not isinstance(top, dict):
        raise ContractError(f"The answer is a JSON {type(top).__name__}, not an object.")
    model: type[Envelope] = Envelope
    if VIEWS[view].has_tokens:
        model = TokenEnvelope if "token_id" in top and "tokens" not in top else MarketEnvelope
    return parse(model, {k: v for k, v in top.items() if k != "data"})


def _read_books(body: bytes) -> tuple[Books, Envelope]:
    """A page of books in the form of the interface; else one of `_UNUSUAL`."""
    begin = body.find(b'"data":') + 7
    grouped = body[begin : begin + 1] == b"{"
    end = body.rfind(b"]}") + 2 if grouped else body.rfind(b"]") + 1
    head, known = _head(body[:begin])
    rest = {} if body[end:] == b"}" else reference_decoder.load(b"{" + body[end + 1 :])
    top = head | rest
    envelope = parse(MarketEnvelope if grouped else TokenEnvelope, top)
    data = _parse(body)["data"]
    labels = list(data) if grouped else list(known)
    groups = [list(data[label]) for label in labels] if grouped else [list(data)]
    sizes = [len(group) for group in groups]
    snapshots = [snapshot for group in groups for snapshot in group]
    sides = [snapshot[side] for snapshot in snapshots for side in ("bids", "asks")]
    counts = [len(side) for side in sides]
    times = [snapshot["t"] for snapshot in snapshots]
    levels = {count: b",".join([b"[,]"] * count) for count in {*counts}}
    written = iter([_SNAPSHOT % (levels[b], levels[a]) for b, a in zip(counts[::2], counts[1::2], strict=True)])
    lists = [b"[%b]" % b",".join(islice(written, size)) for size in sizes]
    named = [b'"%b":%b' % (str(label).encode(), points) for label, points in zip(labels, lists, strict=True)]
    expected = body[:begin] + (b"{%b}" % b",".join(named) if grouped else lists[0]) + body[end:]
    numbers = np.frombuffer(b"".join([side.as_buffer(of_type="d") for side in sides]), np.float64).reshape(-1, 2)
    if not (
        body.translate(None, _OF_NUMBERS) == expected.translate(None, _OF_NUMBERS)
        and all(map(_is_time, times))
        and grouped == ("tokens" in top)
        and len({*labels}) == len(labels)
        and head.keys().isdisjoint(rest)
        and "token_label" not in rest  # tokens are made of what stands before the points
    ):
        raise _UnusualPageError
    ts = np.array([time[:-1] for time in times], "datetime64[us]").view(np.int64)
    bounds = np.array([0, *accumulate(sizes)], np.int64)
    tokens = tuple([known[label] for label in labels])
    books = Books.of_levels(tokens, bounds, ts, np.array(counts, np.int64), numbers[:, 0], numbers[:, 1])
    return books if all(sizes) else books.of_tokens(tokens, bounds), envelope


def _compact(body: bytes) -> bytes:
    """The page as the parser writes it: without white space, and with letters instead of their escapes."""
    text: bytes = _parse(body).mini
    return text


@lru_cache(maxsize=16)
def _head(text: bytes) -> tuple[dict[str, Any], dict[str | None, Token]]:
    """The page before its points, up to ``"data":``, and its tokens by label: the same on all pages of a market."""
    top = reference_decoder.load(text + b"null}")
    if top.pop("data", "") is not None:
        raise _UnusualPageError
    ids = top["tokens"] if "tokens" in top else {top.get("token_label"): top["token_id"]}
    return top, {label: Token(top["market_id"], token_id, label) for label, token_id in ids.items()}


def _parse(body: bytes) -> Any:
    """The parsed bytes; one parser per thread reuses its memory from page to page."""
    try:
        return _THREAD.parser.parse(body)
    except (AttributeError, RuntimeError):
        # None yet, or something still refers to its last document.
        _THREAD.parser = simdjson.Parser()
        return _THREAD.parser.parse(body)
