"""Rows of JSON values: entries of lists, lists in envelopes, and mappings from ids to rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from marketdata.recordings.roles import ROLES

# Rows are in lists, envelopes and mappings; each one that is inside another takes the memory of its content again.
MOST_NESTED = 8
_NUMBERS = re.compile(rb'\s*\[\s*[^\s\[\]{}"][^\[\]{}"]*\]\s*')
_ID_KEY = re.compile(r"\d{5,}|0x[0-9a-fA-F]+|[A-Z][A-Z0-9]*(?:-[A-Z0-9.]+)+")
MESSAGE_KEYS = frozenset({"event_type", "price_changes", "changes", "bids", "asks", "buys", "sells"})
# Lists that belong to a row, and are not the rows of an answer.
_LISTS_OF_A_ROW = {"tokens", "tags", "outcomes", "bids", "asks", "clobTokenIds", "outcomePrices", "yes", "no"}
_IDS_AROUND = {
    "ticker", "market_ticker", "market", "market_id", "condition_id", "token_id", "asset_id", "token", "asset",
    "outcome", "slug", "market_slug", "series_ticker", "period_interval",
}  # fmt: skip
_PAGING = _IDS_AROUND | {
    "next_cursor", "cursor", "limit", "count", "offset", "next", "previous", "has_more", "pagination", "total",
    "page", "page_size", "per_page", "status", "success", "meta", "metadata", "error", "message", "interval",
    "fidelity", "start", "end", "start_ts", "end_ts", "fetched_at", "exported_at", "generated_at", "total_count",
    "next_page", "version", "schema", "source", "venue", "exchange", "platform",
}  # fmt: skip
# Unix seconds of 2001.
_LEAST_TIME = 10**9
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODERS: dict[bytes, Any] = {b"{": _OBJECT, b"[": _LIST}


def content(value: bytes, depth: int = 0) -> Iterator[bytes]:
    """The rows of a JSON value, each as JSON: entries of lists one by one, and the one list of an answer.

    An answer is an object with one list beside cursors and ids, or a mapping from ids to lists or books. Rows of it
    have its ids. Values below the depth `MOST_NESTED` stay whole.
    """
    fields = fields_of(value) if depth <= MOST_NESTED else None
    if isinstance(fields, list):
        if _are_pairs(fields):
            yield from map(_point_of, fields)
            return
        for entry in fields:
            yield from content(bytes(entry), depth + 1)
    elif fields is None or not MESSAGE_KEYS.isdisjoint(fields):
        yield value
    else:
        yield from _content_of_object(value, fields, depth + 1)


def _are_pairs(entries: Sequence[msgspec.Raw]) -> bool:
    """Whether entries are pairs of a Unix time and a price, as charts have them; levels have no times."""
    # Looked at only if it is short: a long list in a list is no pair.
    pair = json_value(first) if entries and (first := bytes(entries[0]))[:1] == b"[" and len(first) < 100 else None
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(n, int | float) for n in pair)
        and pair[0] > _LEAST_TIME >= pair[1]
    )


def _point_of(entry: msgspec.Raw) -> bytes:
    pair = json_value(bytes(entry))
    is_pair = isinstance(pair, list) and len(pair) == 2
    return msgspec.json.encode(dict(zip("tp", pair, strict=True))) if is_pair else bytes(entry)


def _lists_of_outcomes(value: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """The lists of a mapping from outcomes or tokens to lists of objects; None for another value."""
    fields = fields_of(bytes(value))
    if not isinstance(fields, dict) or not fields or not all(bytes(v)[:1] == b"[" for v in fields.values()):
        return None
    return fields if MESSAGE_KEYS.isdisjoint(fields) and all(map(_are_objects, fields.values())) else None


def _content_of_object(value: bytes, fields: Mapping[str, msgspec.Raw], depth: int) -> Iterator[bytes]:
    kinds = {name: bytes(inner)[:1] for name, inner in fields.items()}
    lists = [name for name, kind in kinds.items() if kind == b"["]
    around = [name for name, kind in kinds.items() if kind != b"[" and not name.startswith("$")]
    if fields.keys() == {"event", "markets"} and kinds["event"] == b"{":  # one event, and its markets beside it
        yield _with({"markets": fields["markets"]}, bytes(fields["event"]))
        return
    if len(lists) == 1 and lists[0] not in _LISTS_OF_A_ROW and _PAGING.issuperset(map(_common, around)):
        ids = {n: fields[n] for n in around if _common(n) in _IDS_AROUND and kinds[n] not in b"{n"}
        for row in content(bytes(fields[lists[0]]), depth):
            yield _with(ids, row)
    elif fields and len(lists) == len(fields) and all(map(_are_objects, fields.values())):
        for key, entries in fields.items():
            for row in content(bytes(entries), depth):
                yield _with({"token_id": msgspec.Raw(msgspec.json.encode(key))}, row)
    elif fields and {*kinds.values()} == {b"{"} and all(by_outcome := [*map(_lists_of_outcomes, fields.values())]):
        for market, lists_of in zip(fields, by_outcome, strict=True):
            for key, entries in (lists_of or {}).items():
                name = "token_id" if _ID_KEY.fullmatch(key) else "outcome"
                said = {"market": market, name: key}
                for row in content(bytes(entries), depth):
                    yield _with({n: msgspec.Raw(msgspec.json.encode(text)) for n, text in said.items()}, row)
    elif fields and {*kinds.values()} == {b"{"} and (len(fields) == 1 or all(map(_ID_KEY.fullmatch, fields))):
        names_ids = all(map(_ID_KEY.fullmatch, fields))
        for key, inner in fields.items():
            if names_ids:
                yield from content(_with({"ticker": msgspec.Raw(msgspec.json.encode(key))}, bytes(inner)), depth)
            elif key in ROLES["book"].names:
                yield value
            else:
                yield from content(bytes(inner), depth)
    else:
        yield value


def of_ticker(row: Any) -> Any:
    """The quote in a message of Kalshi's ticker, as a row beside what its envelope says."""
    if not isinstance(row, dict) or row.get("type") != "ticker" or not isinstance(row.get("msg"), dict):
        return row
    return {name: value for name, value in row.items() if name not in ("type", "sid", "seq", "msg")} | row["msg"]


def fields_of(value: bytes) -> dict[str, msgspec.Raw] | list[msgspec.Raw] | None:
    """The fields of a JSON object, or the entries of a list, each as JSON; None for a list of numbers and others."""
    decode = _OBJECT if value.startswith(b"{") else _DECODERS.get(value.lstrip()[:1])
    if decode is None or (decode is _LIST and _NUMBERS.fullmatch(value)):
        return None
    try:
        return decode(value)
    except (RecursionError, ValueError):
        known = json_value(value)
        # Python writes numbers that JSON does not have.
        return None if known is None else decode(json.dumps(known).encode())


def _with(ids: Mapping[str, msgspec.Raw], row: bytes) -> bytes:
    """The row with ids that it does not have itself."""
    fields = fields_of(row) if ids else None
    return msgspec.json.encode({**ids, **fields}) if isinstance(fields, dict) else row


def _common(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _are_objects(entries: msgspec.Raw) -> bool:
    return all(bytes(entry)[:1] == b"{" for entry in _LIST(entries))


def json_value(line: bytes) -> Any:
    """The value of JSON in which NaN may stand for null; None for a damaged text."""
    try:
        return msgspec.json.decode(line)
    except (RecursionError, ValueError):
        # Python writes numbers that JSON does not have.
        if b"NaN" not in line and b"Infinity" not in line:
            return None
    try:
        return json.loads(line, parse_constant=lambda _: None)
    except (RecursionError, ValueError):
        return None
