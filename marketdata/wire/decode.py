"""JSON pages of history to columns, by one strict decoder; an error names the path of the wrong value."""

from __future__ import annotations

import gc
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from operator import attrgetter
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from marketdata.decimals import to_number
from marketdata.errors import ConfigError, ContractError
from marketdata.points.columns import (
    METRICS,
    Books,
    Data,
    Floats,
    Ints,
    Page,
    Series,
    Token,
    joined,
)
from marketdata.points.probability import no_probability
from marketdata.points.views import SNAPSHOT_FIELDS, VIEWS, View, empty, view_of
from marketdata.resolution import BucketWidth
from marketdata.times import SECOND, TOO_FAR, parse_iso

Point = TypeVar("Point")
Levels = list[tuple[float, float]]
# A number of a venue, which `numbers` reads: msgspec takes the text Infinity for one, and .5 for none.
Number = float | str
# Whole Unix seconds from 1970 to the year 5138; larger ones are milliseconds.
Seconds = Annotated[int, msgspec.Meta(ge=0, lt=TOO_FAR // SECOND)]
_is_plain_time = re.compile(r"(?!0000)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII).fullmatch
_HAS_ZONE = re.compile(r"([Zz]|[+-]\d\d:?\d\d|[+-]\d\d)$", re.ASCII)
_BELOW_MICROSECOND = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)


class _Metadata(msgspec.Struct):
    count: int
    limit: int
    next_cursor: str | None = None


class _Snapshot(msgspec.Struct, gc=False):
    t: str
    bids: Levels | None
    asks: Levels | None


# A field of another type than ours is left out, and is no error of the page.
_SnapshotWithFields = msgspec.defstruct(
    "_SnapshotWithFields", [(name, Any, None) for name in SNAPSHOT_FIELDS], bases=(_Snapshot,), gc=False
)


class _Price(msgspec.Struct, gc=False):
    t: str
    p: float | None


class _Page(msgspec.Struct, Generic[Point]):
    """A page of a market (points by label, or of metrics a list) or of a token (a list, and the token's id)."""

    market_id: str
    resolution: str
    metadata: _Metadata
    data: dict[str, list[Point]] | list[Point]
    tokens: dict[str, str] | None = None
    token_id: str | None = None
    token_label: str | None = None


_Metric = msgspec.defstruct("_Metric", [("t", str), *((name, float | None, None) for name in METRICS)])
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_BOOKS = msgspec.json.Decoder(_Page[_SnapshotWithFields])  # type: ignore[valid-type]
_PRICES = msgspec.json.Decoder(_Page[_Price])
_METRICS = _Page[_Metric]  # type: ignore[valid-type]
# While msgspec 0.22 learns a type in one thread, its use in another one ends the process.
msgspec.json.Decoder(_METRICS)
_LEARNED, _LEARNING = set[Any](), threading.Lock()


def load(body: bytes, decoder: msgspec.json.Decoder[Any] = _ANY) -> Any:
    """The JSON of a body as the decoder's type; ContractError with the path of a value of another type."""
    try:
        if not body.isascii():
            body = body.decode("utf-8-sig").encode()
        return decoder.decode(body)
    except UnicodeDecodeError as problem:
        raise ContractError(f"The answer is not UTF-8 text: byte {problem.start} cannot be read.") from None
    except msgspec.ValidationError as problem:
        _refuse(str(problem))
    except (msgspec.DecodeError, RecursionError, ValueError) as problem:
        start = " ".join(body[:200].decode("utf-8", "replace").split())
        raise ContractError(f"The answer is not JSON: {str(problem)[:200]}. It starts: {start!r}") from None


def convert(value: Any, kind: Any, what: str) -> Any:
    """Decoded JSON of a venue as a typed value, where numbers and flags may be texts.

    ContractError with the path of a wrong value.
    """
    if kind not in _LEARNED:
        with _LEARNING:
            msgspec.json.Decoder(kind)
            _LEARNED.add(kind)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise ContractError(f"{what} is not of its form: {problem}.") from None


def numbers(values: Sequence[object], what: str, *, null: bool = True) -> Floats:
    """Numbers and texts of numbers of a venue; null and an empty text are NaN, or refused. Else a ContractError."""
    if {*map(type, values)} <= {float}:
        found = np.array(values, float)
    else:
        try:
            found = np.array([to_number(value) for value in values], float)
        except ValueError as problem:
            raise ContractError(f"{what} cannot be read: {problem}.") from None
        if null:
            return found
    if not np.isfinite(found).all():
        raise ContractError(f"{what} is missing or infinite; each needs a finite number.")
    return found


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the collection of cycles: the objects of a page have none, and there are ten thousand of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_without_collector()
def decode_page(view: View, body: bytes, *, checked: bool = True) -> Page:
    """One answer of a history endpoint as columns (interface 2.2 to 2.6); ContractError with the path of a wrong value.

    With ``checked=False`` the points stay as they came, for pages that are joined and then checked together.
    """
    notes: Counter[str] = Counter()
    if view == "metrics":
        top = load(body)
        try:
            page = msgspec.convert(top, _METRICS)
        except msgspec.ValidationError as problem:
            _refuse(str(problem))
    else:
        page = load(body, _BOOKS if view == "books" else _PRICES)
    tokens, groups, labels = _grouped(view, page, notes)
    points = list(chain.from_iterable(groups))
    ts = _times(page.data, groups, notes)
    bounds = np.array([0, *accumulate(map(len, groups))], np.int64)
    columns: Data
    if view == "books":
        columns = Books.of_levels((), bounds, ts, *_levels(points, notes), values=_fields(points))
    elif view == "prices":
        columns = Series((), bounds, ts, {"price": np.array([point.p for point in points], np.float64)})
    else:
        data = top["data"]
        columns = Series((), bounds, ts, _metrics(data if isinstance(data, list) else next(iter(data.values())), notes))
    columns = columns.with_tokens(tokens, bounds)
    columns = _check(columns, page.resolution, notes) if checked else columns
    meta = page.metadata
    return Page(columns, page.market_id, page.resolution, labels, meta.count, meta.limit, meta.next_cursor, notes)


def decode_pages(view: View, bodies: Sequence[bytes]) -> tuple[Data, str, Counter[str]]:
    """Many answers as one batch in tidy order, with points of two pages twice, their resolution, and diagnostics.

    ContractError names the page off the interface, or the resolutions that differ.
    """
    notes: Counter[str] = Counter()
    batches, resolutions = [], set()
    for k, body in enumerate(bodies):
        try:
            page = decode_page(view, body, checked=False)
        except ContractError as error:
            raise ContractError(f"Page {k}: {error}") from None
        batches.append(page.columns)
        resolutions.add(page.resolution)
        notes.update(page.notes)
    if len(resolutions) > 1:
        raise ContractError(f"The pages have the resolutions {sorted(resolutions)}; a frame has one.")
    columns = joined(batches).sort() if batches else empty(view)
    resolution = next(iter(resolutions), "")
    return _check(columns, resolution, notes), resolution, notes


def _grouped(
    view: View, page: _Page[Any], notes: Counter[str]
) -> tuple[list[Token], list[list[Any]], dict[str, str | None]]:
    """The tokens of a page, the points of each, and the token id of each label."""
    market, data = page.market_id, page.data
    if not VIEWS[view].has_tokens:
        if isinstance(data, dict) and len(data) != 1:
            _refuse(f"Expected a list or an object with one list, got {len(data)} lists - at `$.data`")
        return [Token(market)], [data] if isinstance(data, list) else list(data.values()), {}
    if isinstance(data, list):
        if page.token_id is None:
            _refuse("Object missing required field `token_id`")
        token = Token(market, page.token_id, page.token_label)
        return [token], [data], {page.token_label or "": page.token_id}
    if page.tokens is None:
        _refuse("Object missing required field `tokens`")
    notes.update("label_without_token" for label in data if label not in page.tokens)
    return [Token(market, page.tokens.get(label), label) for label in data], list(data.values()), {**page.tokens}


def _times(data: object, groups: list[list[Any]], notes: Counter[str]) -> Ints:
    """The times of all points [microseconds UTC]."""
    texts = [point.t for group in groups for point in group]
    if all(map(_is_plain_time, texts)):
        try:
            return np.array([text[:-1] for text in texts], "datetime64[us]").view(np.int64)
        except ValueError:  # such as a 30th of February: its path is found below
            pass
    ts = []
    for group in groups:
        for k, point in enumerate(group):
            try:
                ts.append(parse_iso(point.t))
            except ValueError as problem:
                _refuse(f"{problem} - at `$.data{'[...]' if isinstance(data, dict) else ''}[{k}].t`")
    notes["time_without_zone"] += sum(_HAS_ZONE.search(text[10:]) is None for text in texts)
    notes["time_below_a_microsecond"] += sum(_BELOW_MICROSECOND.search(text) is not None for text in texts)
    notes += Counter()  # drops zeros
    return np.array(ts, np.int64)


def _levels(snapshots: list[_Snapshot], notes: Counter[str]) -> tuple[Ints, Floats, Floats]:
    """Numbers of levels, prices and sizes as `Books.of_levels` takes them."""
    sides = [side for snapshot in snapshots for side in (snapshot.bids, snapshot.asks)]
    if None in sides:
        notes["null_side"] += sides.count(None)
    levels = [side or () for side in sides]
    counts = np.fromiter(map(len, levels), np.int64, len(levels))
    flat = chain.from_iterable(chain.from_iterable(levels))
    numbers = np.fromiter(flat, np.float64, 2 * int(counts.sum()))
    return counts, numbers[::2], numbers[1::2]


def _fields(snapshots: list[_Snapshot]) -> dict[str, NDArray[Any]]:
    """The fields that some snapshot has, if all their values have the right type."""
    fields: dict[str, NDArray[Any]] = {}
    for name, kind in SNAPSHOT_FIELDS.items():
        values = list(map(attrgetter(name), snapshots))
        types = set(map(type, values)) - {type(None)}
        if types and types <= ({str} if kind == "text" else {int, float}):
            fields[name] = np.array(values, object if kind == "text" else np.float64)
    return fields


def _metrics(points: list[dict[str, Any]], notes: Counter[str]) -> dict[str, Floats]:
    """The metrics of the interface, then every further field that is a number or null in all points."""
    out = {}
    for name in dict.fromkeys((*METRICS, *(name for point in points for name in point if name != "t"))):
        values = [point.get(name) for point in points]
        if name in METRICS:
            notes["metric_missing"] += sum(name not in point for point in points)
        elif not all(value is None or type(value) in (int, float) for value in values):
            notes[f"unknown_field:{name[:40]}"] += 1
            continue
        try:
            out[name] = np.array(values, np.float64)
        except OverflowError:
            _refuse(f"Number out of range - at `$.data[...].{name}`")
    notes += Counter()
    return out


def _check(columns: Data, resolution: str, notes: Counter[str]) -> Data:
    """The columns with levels best first; diagnostics are counted in ``notes``."""
    odd: list[tuple[str, NDArray[np.bool_]]] = []
    with suppress(ConfigError):  # a resolution that is none is refused where pages are compared with the request
        odd.append(("time_not_on_a_bucket", columns.ts != BucketWidth.of(resolution).floor(columns.ts)))
    if isinstance(columns, Books):
        columns, unsorted = columns.best_first()
        if len(unsorted):
            notes["levels_sorted"] += len(unsorted)
        (price, size), counts = columns.levels(), columns.counts
        equal = price[1:] == price[:-1]
        equal[np.cumsum(counts[counts > 0])[:-1] - 1] = False
        odd.append(("same_price_twice", equal))
        if len(price) and not (price.min() >= 0 and price.max() <= 1 and size.min() > 0):
            odd += [("price_outside_0_1", no_probability(price)), ("size_not_positive", size <= 0)]
        (bid, _), (ask, _) = columns.bids.top, columns.asks.top
        odd += [("crossed_book", bid > ask), ("locked_book", bid == ask)]
    else:
        odd += [("null_value", np.isnan(values)) for values in columns.values.values()]
        if view_of(columns) == "prices":
            price = columns.values["price"]
            odd.append(("price_outside_0_1", no_probability(price)))
    for name, hits in odd:
        if count := np.count_nonzero(hits):
            notes[name] += int(count)
    return columns


def _refuse(problem: str) -> NoReturn:
    raise ContractError(f"The answer does not follow the interface: {problem}.")
