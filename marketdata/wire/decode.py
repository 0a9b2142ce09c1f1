"""Page bytes to columns, with no Python object per level.

The fast decoder of books works on all bytes of a page at once, and returns nothing unless they prove that the page
follows the interface. Every other page goes to the reference decoder, which finds the place for the error.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import simdjson
from numpy.typing import NDArray

from marketdata.errors import ContractError
from marketdata.times import Range
from marketdata.wire import reference_decoder
from marketdata.wire.columns import AnyColumns, BookColumns, Codes, Floats, Ints, Page, Token, merged, ranges
from marketdata.wire.models import MarketEnvelope, MetricsEnvelope, TokenEnvelope, parse
from marketdata.wire.validation import check
from marketdata.wire.views import VIEWS, View, empty

_THREAD = threading.local()
Envelope = MarketEnvelope | TokenEnvelope | MetricsEnvelope


class _Unusual(Exception):  # noqa: N818
    """The fast decoder cannot be sure of this page."""


# What the fast decoder raises where it cannot be sure of a page, or fails on it.
_DOUBTS = (_Unusual, ContractError, TypeError, ValueError, LookupError, RuntimeError, AttributeError)
_BATCH = 1_000_000  # bytes of pages, so that what is made of them stays in the caches of a core


class _Read(NamedTuple):
    columns: AnyColumns
    envelope: Envelope
    notes: Counter[str]


def decode_page(view: View, body: bytes, *, rng: Range | None = None, fast: bool = True) -> Page:
    """One answer of a history endpoint as columns (interface 2.2 to 2.6); ContractError with the path of a wrong value.

    A ``t`` that is a number is read only inside of ``rng`` [microseconds UTC]; ``fast=False``: the reference decoder.
    """
    columns, envelope, notes = _read(view, body, rng, fast=fast)
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
    """Many answers as one batch, in tidy order, points of two pages twice, and counts of repairs and oddities.

    ContractError names the page off the interface, or the resolutions that differ.
    """
    with _no_collection():
        reads = _read_all(view, bodies)
        parts: list[AnyColumns] = [read.columns for read in reads]
        notes: Counter[str] = Counter()
        for read in reads:
            notes.update(read.notes)
        resolutions = {read.envelope.resolution for read in reads}
        if len(resolutions) > 1:
            raise ContractError(f"The pages have the resolutions {sorted(resolutions)}; a frame has one.")
        columns: AnyColumns = merged(parts) if parts else empty(view)  # type: ignore[type-var]
        return check(columns, next(iter(resolutions), ""), notes), notes


@contextmanager
def _no_collection() -> Iterator[None]:
    """The cyclic collector visits all objects again and again while many are made."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _read(view: View, body: bytes, rng: Range | None, *, fast: bool = True) -> _Read:
    if fast and view == "books":
        for compact in (bytes.strip, _compact):
            try:
                return _read_books([compact(body)])[0]
            except _DOUBTS:
                pass
    notes: Counter[str] = Counter()
    top = reference_decoder.load(body, notes)
    envelope = _envelope(view, top)
    columns = reference_decoder.read_points(view, top, isinstance(envelope, MarketEnvelope), rng, notes)
    return _Read(columns, envelope, notes)


def _read_all(view: View, bodies: Sequence[bytes]) -> list[_Read]:
    """Pages together: small ones of books as one text, with hardly a Python step per page."""
    out: list[_Read] = []
    while len(out) < len(bodies):
        first, size = len(out), 0
        last = first
        while last < len(bodies) and (last == first or size + len(bodies[last]) <= _BATCH):
            size, last = size + len(bodies[last]), last + 1
        if view == "books" and last > first + 1:
            try:
                out += _read_books(bodies[first:last])
                continue
            except _DOUBTS:
                pass
        for k in range(first, last):
            try:
                out.append(_read(view, bodies[k], None))
            except ContractError as error:
                raise ContractError(f"Page {k}: {error}") from None
    return out


def _envelope(view: View, top: Any) -> Envelope:
    if not isinstance(top, dict):
        raise ContractError(f"The answer is a JSON {type(top).__name__}, not an object.")
    model: type[Envelope] = MetricsEnvelope
    if VIEWS[view].has_tokens:
        model = TokenEnvelope if "token_id" in top and "tokens" not in top else MarketEnvelope
    return parse(model, {k: v for k, v in top.items() if k != "data"})


def _read_books(bodies: Sequence[bytes]) -> list[_Read]:
    """Pages of books, none of them unusual: what a page has before its points is shared with others, and read once."""
    envelopes: list[Envelope] = []
    heads: list[_Head] = []
    texts: list[memoryview] = []
    for body in bodies:
        envelope, head, text = _without_points(body)
        envelopes.append(envelope)
        heads.append(head)
        texts.append(text)
    return [
        _Read(BookColumns(head.tokens_of(p.labels), p.token, p.ts, p.counts, p.levels), envelope, Counter())
        for head, envelope, p in zip(heads, envelopes, _read_points(texts), strict=True)
    ]


def _compact(body: bytes) -> bytes:
    """The page as the parser writes it: without white space, and with letters instead of their escapes."""
    text: bytes = _parse(body).mini
    return text


def _without_points(body: bytes) -> tuple[Envelope, _Head, memoryview]:
    """A page without its points, and these as ``"label":[point,...],...``."""
    begin = body.find(b'"data":') + 7
    grouped = body[begin : begin + 1] == b"{"
    end = body.rfind(b"]}") + 2 if grouped else body.rfind(b"]") + 1
    if b"\\" in body or body[end : end + 1] not in (b",", b"}"):  # without escapes each quote begins or ends a text
        raise _Unusual
    head = _head(body[:begin])
    rest = {} if body[end:] == b"}" else reference_decoder.load(b"{" + body[end + 1 :])
    envelope = _envelope("books", head.top | rest)
    if not rest.keys().isdisjoint(head.top) or grouped != isinstance(envelope, MarketEnvelope):
        raise _Unusual
    points = memoryview(body)[begin + 1 : end - 1] if grouped else memoryview(b'"":%b' % body[begin:end])
    return envelope, head, points


class _Head(NamedTuple):
    """A page before its points; ``labels`` as in `_Points`."""

    top: dict[str, Any]
    labels: bytes
    tokens: tuple[Token, ...]

    def tokens_of(self, labels: bytes) -> tuple[Token, ...]:
        if labels == self.labels:
            return self.tokens
        known = dict(zip(_split(self.labels), self.tokens, strict=True))
        named = _split(labels)
        if len(set(named)) != len(named):
            raise _Unusual
        return tuple(known[label] for label in named)


def _split(labels: bytes) -> list[bytes]:
    return labels.split(b'"')[1::2]


@lru_cache(maxsize=16)
def _head(text: bytes) -> _Head:
    """The page before its points, up to ``"data":``, the same on all pages of a market."""
    top = reference_decoder.load(text + b"null}")
    if top.pop("data", "") is not None:
        raise _Unusual
    if "token_id" in top and "tokens" not in top:
        return _Head(top, b'"":', (Token(top["market_id"], top["token_id"], top.get("token_label")),))
    tokens = top["tokens"].items()
    labels = b"".join([b'"%b":' % label.encode() for label, _ in tokens])
    return _Head(top, labels, tuple(Token(top["market_id"], token_id, label) for label, token_id in tokens))


class _Points(NamedTuple):
    """The points of a page as columns, and the labels that ``token`` counts, as ``"one":"other":``."""

    labels: bytes
    token: Codes
    ts: Ints
    counts: Ints
    levels: Floats


# A snapshot: {"t":"2026-01-31T12:00:00Z","bids":[...],"asks":[...]}. Up to its first level it has one length.
_SNAPSHOT = np.frombuffer(b'{"t":"0000-00-00T00:00:00Z","bids":[', np.uint8)
_SPREAD = np.where(ord("0") == _SNAPSHOT, 9, 0).astype(
    np.uint8
)  # a digit is at most 9 above "0"; no other byte differs
_TIME = slice(6, 25)
_ASKS = np.frombuffer(b',"asks":', "<u8")
# What the parser is given in their place.
_OPENED = np.frombuffer(b"[".ljust(35) + b"[", "V36")
_BETWEEN_SIDES = np.frombuffer(b" " * 7, "V7")
# The four bytes before what comes next. Rows: after a label, after a snapshot. Columns: a label, a snapshot, the end.
_LABEL, _POINT, _END = range(3)
_JOINTS = np.frombuffer(b':[],":[{:[]}' + b"]}],]},{]}]}", "<u4").reshape(2, 3)
_OPEN, _CLOSE, _COMMA, _QUOTE = b'[],"'
_BRACKET = np.isin(np.arange(256), (_OPEN, _CLOSE))
_ROOM = b" " * 36  # what begins at the last quote can still be compared
_YEAR_1 = np.datetime64("0001-01-01", "us").astype(np.int64)


def _read_points(pages: Sequence[memoryview]) -> list[_Points]:
    """The points of texts such as ``"label":[{"t":...,"bids":[...],"asks":[...]},...],...``, read as one such text.

    Each quote is shown to belong to a label or to the eight of a snapshot, and each byte between texts and levels to be
    the required one. All of it is written over, which leaves arrays of arrays of numbers for the parser. Levels are
    pairs: as many ``[`` have exactly two values as there are levels, counted by their numbers, and no other ``[`` does,
    as each of them is followed by ``[`` or ``]``. A side ends where it seems to: each has one ``]`` beyond those of its
    levels, at its end, and the parser found as many ``]`` as ``[``.
    """
    parts = [part for page in pages for part in (b",", page)]
    text = np.frombuffer(bytearray().join([b"{", *parts[1:], b"}", _ROOM]), np.uint8)
    size = len(text) - len(_ROOM)
    borders = np.cumsum([1, *[len(page) + 1 for page in pages[:-1]]])  # where the first label of each page begins
    quotes = np.flatnonzero(text == _QUOTE)
    first = np.flatnonzero(np.diff(quotes) == 21) - 2  # the time is the only text of 20 letters, labels apart
    heads = _windows(text, "V37")[quotes[first] - 1].view(np.uint8).reshape(-1, 37)
    fits = heads[:, :36] - _SNAPSHOT <= _SPREAD
    if not fits.all():
        held = fits.all(axis=1)
        first, heads = first[held], heads[held]
    begin, asks = quotes[first] - 1, quotes[first + 6]

    of_point = np.zeros(len(quotes), bool)
    of_point[first[:, None] + np.arange(8)] = True
    of_label = np.flatnonzero(~of_point)
    opening, closing = of_label[::2], of_label[1::2]
    # Labels and snapshots in their order, and where the next one begins.
    items = np.sort(np.concatenate((opening, first)))
    kind = of_point[items].astype(np.int64)
    next_kind, following = np.append(kind[1:], _END), np.append(quotes[items[1:]], size)
    ends = following[kind == _POINT] - 3
    empty_label = following[(kind == _LABEL) & (next_kind != _POINT)]
    of_page = np.searchsorted(quotes[opening], borders)
    if not (
        np.array_equal(quotes[opening[of_page]], borders)
        and len(of_label) == len(quotes) - 8 * len(first)
        and np.array_equal(opening + 1, closing)
        and np.array_equal(_windows(text, "<u4")[following - 4], _JOINTS[kind, next_kind])
        and (text[empty_label - 5] == _QUOTE).all()
        and (quotes[first + 7] - asks == 5).all()
        and (_windows(text, "<u8")[asks - 1] == _ASKS).all()
        and (text[asks - 2] == _CLOSE).all()
        and (text[asks + 7] == _OPEN).all()
        and _BRACKET[np.concatenate((heads[:, 36], text[asks - 3], text[asks + 8], text[ends - 2]))].all()
    ):
        raise _Unusual

    opening, closing = quotes[opening], quotes[closing]
    lengths = closing - opening + 2
    in_labels = ranges(opening, lengths)
    labels = text[in_labels].tobytes()
    _windows(text, "V36")[begin] = _OPENED
    _windows(text, "V7")[asks] = _BETWEEN_SIDES
    text[ends] = _CLOSE
    text[in_labels] = ord(" ")
    text[[0, size - 1]] = _OPEN, _CLOSE
    levels = np.frombuffer(_parse(text).as_buffer(of_type="d"), np.float64).reshape(-1, 2)
    opens, pairs = find_pairs(text)
    counts = np.column_stack((opens.between(begin + 36, asks), opens.between(asks + 8, ends))).reshape(-1)
    if not len(levels) == pairs == opens.total - (3 * len(first) + len(opening) + 1):
        raise _Unusual
    stamps = np.ascontiguousarray(heads[:, _TIME]).view("S19")[:, 0].astype("datetime64[us]").view(np.int64)
    if stamps.min(initial=0) < _YEAR_1:
        raise _Unusual
    token = (np.cumsum(kind == _LABEL, dtype=np.int32) - 1)[kind == _POINT]
    if len(pages) == 1:
        return [_Points(labels, token, stamps, counts, levels)]
    point = np.append(np.searchsorted(token, of_page), len(token))
    level = np.append(0, np.cumsum(counts))[2 * point]
    name = np.append(np.append(0, np.cumsum(lengths))[of_page], len(labels))
    cuts = zip(name.tolist(), point.tolist(), level.tolist(), strict=True)
    return [
        _Points(labels[i:j], token[a:b] - of_page[k].astype(np.int32), stamps[a:b], counts[2 * a : 2 * b], levels[u:v])
        for k, ((i, a, u), (j, b, v)) in enumerate(pairwise(cuts))
    ]


def _windows(text: NDArray[np.uint8], dtype: str) -> NDArray[Any]:
    """The value of this type that begins at each byte of a text."""
    width = np.dtype(dtype).itemsize
    return np.ndarray(len(text) - width + 1, dtype, text.data, strides=(1,))


def _parse(body: Any) -> Any:
    """The parsed bytes; one parser per thread reuses its memory from page to page."""
    try:
        return _THREAD.parser.parse(body)
    except (AttributeError, RuntimeError):
        # None yet, or something still refers to its last document.
        _THREAD.parser = simdjson.Parser()
        return _THREAD.parser.parse(body)


Words = NDArray[np.uint64]


class _Bits:
    """One bit per byte of a text, 64 to a word."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.before = np.append(0, np.cumsum(np.bitwise_count(words), dtype=np.int64))

    @property
    def total(self) -> int:
        return int(self.before[-1])

    def between(self, begin: Ints, end: Ints) -> Ints:
        """The number of bits at ``begin`` or later and before ``end``."""
        return self._before(end) - self._before(begin)

    def _before(self, at: Ints) -> Ints:
        word, bit = np.divmod(at, 64)
        below = (np.uint64(1) << bit.astype(np.uint64)) - np.uint64(1)
        return self.before[word] + np.bitwise_count(self.words[word] & below)


def find_pairs(text: NDArray[np.uint8]) -> tuple[_Bits, int]:
    """Where ``[`` is in a text, and how many are followed by ``,`` and then ``]``, none of the three in between.

    A carry runs from each of them over digits and spaces to the next one, as in parsers that read JSON with vector
    instructions. ``[[1, 2],[3],[4,5,6]]`` has four ``[``, one of which begins a pair.
    """
    hits = np.zeros((len(text) // 64 + 2) * 64, bool)  # whole words, and one more for what is carried out
    opens, commas, closes = (_bits(text, sign, hits) for sign in (_OPEN, _COMMA, _CLOSE))
    rest = ~(opens | commas | closes)
    first = _next(opens, rest) & commas
    return _Bits(opens), int(np.bitwise_count(_next(first, rest) & closes).sum())


def _bits(text: NDArray[np.uint8], sign: int, hits: NDArray[np.bool_]) -> Words:
    np.equal(text, sign, out=hits[: len(text)])
    return np.packbits(hits, bitorder="little").view(np.uint64)


def _next(starts: Words, rest: Words) -> Words:
    """The first bit outside of ``rest`` after each of ``starts``."""
    after = starts << np.uint64(1)
    after[1:] |= starts[:-1] >> np.uint64(63)
    total = (after & rest) + rest
    carry = total < rest
    while carry.any():
        total[1:] += carry[:-1]
        again = np.zeros_like(carry)
        again[1:] = carry[:-1] & (total[1:] == 0)
        carry = again
    return (total | after) & ~rest
