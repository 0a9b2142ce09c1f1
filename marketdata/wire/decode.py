"""Page bytes to columns, with no Python object per level.

One buffer per book side, joined once. A flat buffer can not tell ``[0.4],[0.5,1,2]`` from two pairs, so
the bytes are proven to hold pairs only; whatever is not plainly right goes to the plain decoder, which
finds the place and words the error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import simdjson
from pydantic import ValidationError

from marketdata.errors import ContractError
from marketdata.times import Range
from marketdata.wire import plain
from marketdata.wire.checks import check
from marketdata.wire.columns import BookColumns, Ints, Token, View
from marketdata.wire.models import MarketEnvelope, MetricsEnvelope, TokenEnvelope
from marketdata.wire.page import Page
from marketdata.wire.structure import count_opens, count_pairs

_SHAPE = np.frombuffer(b"0000-00-00T00:00:00Z", np.uint8)
_DIGIT = ord("0") == _SHAPE
Envelope = MarketEnvelope | TokenEnvelope | MetricsEnvelope


class _Unusual(Exception):  # noqa: N818
    """The fast decoder can not vouch for this page."""


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
        False takes the plain decoder, the reference.

    Raises
    ------
    ContractError
        If the answer is off the interface; the message names the path of the value.
    """
    if fast and view == "books":
        try:
            return _decode_books(body)
        except (_Unusual, TypeError, ValueError, KeyError, RuntimeError, AttributeError):
            pass
    top = plain.load(body)
    envelope = _envelope(view, top)
    notes: Counter[str] = Counter()
    columns = plain.read_points(view, top, isinstance(envelope, MarketEnvelope), rng, notes)
    return _page(columns, envelope, notes)


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


def _page(columns: Any, envelope: Envelope, notes: Counter[str]) -> Page:
    if isinstance(envelope, MarketEnvelope):
        labels: dict[str, str | None] = dict(envelope.tokens)
    elif isinstance(envelope, TokenEnvelope):
        labels = {envelope.token_label or "": envelope.token_id}
    else:
        labels = {}
    columns = check(columns, envelope.resolution, notes)
    meta = envelope.metadata
    return Page(
        columns, envelope.market_id, envelope.resolution, labels, meta.count, meta.limit, meta.next_cursor, notes
    )


def _decode_books(body: bytes) -> Page:
    doc: Any = simdjson.Parser().parse(body)
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
    columns = BookColumns(tuple(t for t, _ in groups), token, _times(texts), lengths, levels)
    return _page(columns, envelope, Counter())


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
    levels, and twice as many numbers as levels. Then no level is nested, and each has two numbers.
    """
    flat = np.frombuffer(b"".join(sides), np.float64)
    total = int(counts.sum())
    if len(flat) != 2 * total:
        raise _Unusual
    text = np.frombuffer(body, np.uint8)
    if count_opens(text) != total + len(counts) + groups or count_pairs(text) != total:
        raise _Unusual
    return flat.reshape(-1, 2)


def _times(texts: list[str]) -> Ints:
    """Microseconds of texts that are all of the form ``2026-01-31T12:00:00Z``."""
    unique = list(dict.fromkeys(texts))
    if not set(map(len, unique)) <= {20}:
        raise _Unusual
    letters = np.frombuffer("".join(unique).encode("ascii"), np.uint8).reshape(-1, 20)
    if (letters[:, _DIGIT] - ord("0")).max(initial=0) > 9 or np.any(letters[:, ~_DIGIT] != _SHAPE[~_DIGIT]):
        raise _Unusual
    stamps = np.array([t[:19] for t in unique], "datetime64[us]").view(np.int64)
    if len(unique) == len(texts):
        return stamps
    place = {t: i for i, t in enumerate(unique)}
    return stamps[[place[t] for t in texts]]
