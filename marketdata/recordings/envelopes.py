"""Rows of JSON values: entries of lists, lists in envelopes, and mappings from ids to rows."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from marketdata.recordings.roles import NO_TIME_OF_A_ROW, ROLES
from marketdata.wire.records import OUTCOME_PAIRS

# Rows are in lists, envelopes and mappings; each one that is inside another takes the memory of its content again.
MOST_NESTED = 8
_NUMBERS = re.compile(rb'\s*\[\s*[^\s\[\]{}"][^\[\]{}"]*\]\s*')
_ID_KEY = re.compile(r"\d{5,}|0x[0-9a-fA-F]+|[A-Z][A-Z0-9]*(?:-[A-Z0-9.]+)+")
_OUTCOMES = {word for pair in OUTCOME_PAIRS for word in pair}
MESSAGE_KEYS = frozenset({"event_type", "price_changes", "changes", "bids", "asks", "buys", "sells"})
# Lists that belong to a row, and are not the rows of an answer.
_LISTS_OF_A_ROW = {
    "tokens", "tags", "outcomes", "clob_token_ids", "outcome_prices",
    *(name for role in ("bids", "asks", "yes_levels", "no_levels", "bid_prices", "bid_sizes", "ask_prices", "ask_sizes")
      for name in ROLES[role].names),
}  # fmt: skip
_IDS_AROUND = {
    "ticker", "market_ticker", "market", "market_id", "condition_id", "token_id", "asset_id", "token", "asset",
    "outcome", "slug", "market_slug", "series_ticker", "period_interval",
}  # fmt: skip
# What holds the one row of an answer beside the time at which it came, and a request with its answer.
_PAYLOADS = ("response", "result", "body", "payload", "data", "answer", "content", "record", "market", "snapshot",
             "tick", "quote", "trade", "item", "row")  # fmt: skip
_PAIRS = (("request", "response"), ("req", "res"), ("req", "resp"), ("query", "response"), ("url", "response"),
          ("request", "answer"))  # fmt: skip
_PAGING = _IDS_AROUND | {
    "next_cursor", "cursor", "limit", "count", "offset", "next", "previous", "has_more", "pagination", "total",
    "page", "page_size", "per_page", "status", "success", "meta", "metadata", "error", "message", "interval",
    "fidelity", "start", "end", "start_ts", "end_ts", "fetched_at", "exported_at", "generated_at", "total_count",
    "next_page", "version", "schema", "source", "venue", "exchange", "platform",
}  # fmt: skip
# An object with one of these is a record, or a point, and no envelope of them.
_OF_A_RECORD = {"question", "title", "sub_title", "condition_id", "event_ticker", "description"}
_OF_A_POINT = {name for role in ("price", "best_bid", "best_ask", "size", "side", "close", "yes_price") for name in
               ROLES[role].names}  # fmt: skip
_TIMES = {name for role in ("ts", "end_ts", "received_at", "created_at") for name in ROLES[role].names}
_MOMENT = re.compile(r"1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?|\d{4}-\d\d-\d\d(?:[T ]\d\d:.*)?")
# Unix seconds of 2001.
_LEAST_TIME = 10**9
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODERS: dict[bytes, Any] = {b"{": _OBJECT, b"[": _LIST}


def content(value: bytes, depth: int = 0, named: Collection[str] = ()) -> Iterator[bytes]:
    """The rows of a JSON value, each as JSON: entries of lists one by one, and the one list of an answer.

    An answer is an object with one list beside cursors and ids, or a mapping from ids to lists or books, and may be in
    an envelope. Rows of it have its ids, and what is ``named`` there. Values below the depth `MOST_NESTED` stay whole.
    """
    if depth > MOST_NESTED and value[:1] == b"{" and value.count(b"{") > MOST_NESTED:
        yield b"null"  # a frame of it would take a minute
        return
    fields = fields_of(value) if depth <= MOST_NESTED else None
    if isinstance(fields, list):
        if _are_pairs(fields):
            yield from map(_point_of, fields)
            return
        for entry in fields:
            yield from content(bytes(entry), depth + 1, named)
    elif fields is None or not MESSAGE_KEYS.isdisjoint(fields) or is_question(fields):
        yield value
    else:
        yield from _content_of_object(value, fields, depth + 1, named)


def is_question(names: Iterable[str]) -> bool:
    """Whether an object is a pair of a request and its answer, whose rows do not tell what was asked."""
    names = {*names}
    return any(asked in names and answer in names for asked, answer in _PAIRS)


def times_around(value: bytes) -> list[str]:
    """The names of the times beside the rows of an answer, or of the first one of several."""
    fields = fields_of(value)
    while isinstance(fields, list):
        fields = fields_of(bytes(fields[0])) if fields else None
    return [name for name, inner in (fields or {}).items() if _is_moment(name, json_value(bytes(inner)))]


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


def _are_outcomes(lists_of: Sequence[Mapping[str, msgspec.Raw]]) -> bool:
    """Whether the names of lists are tokens or outcomes: one name in all, such as history, is that of an answer."""
    names = {name for lists in lists_of for name in lists}
    return len(names) > 1 or all(_ID_KEY.fullmatch(name) or name.title() in _OUTCOMES for name in names)


def _holders(fields: Mapping[str, msgspec.Raw], depth: int) -> list[str]:
    """The members of an object that hold rows: lists of objects, of pairs, or of lists of these; objects with such."""
    found = []
    for name, inner in fields.items():
        raw = bytes(inner)
        if _common(name) in _LISTS_OF_A_ROW or raw[:1] not in (b"[", b"{") or _common(name) in ROLES["book"].names:
            continue
        members = fields_of(raw) if depth <= MOST_NESTED or raw[:1] == b"[" else None
        if isinstance(members, list):
            of_first = next((raw[:2] for raw in map(bytes, members) if raw[:2] != b"[]"), b"")
            is_holder = of_first[:1] == b"{" or of_first in (b"[{", b"[[") or _are_pairs(members)
        else:
            is_holder = (
                members is not None
                and MESSAGE_KEYS.isdisjoint(members)
                and (bool(_holders(members, depth + 1)) or _has_book(members))
            )
        if is_holder:
            found.append(name)
    return found


def _has_book(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether a member is a book, by its name or by an id, as in the answer of a venue that stands in an envelope."""
    return any(
        bytes(inner)[:1] == b"{"
        and (
            _common(name) in ROLES["book"].names
            or (_ID_KEY.fullmatch(name) and not MESSAGE_KEYS.isdisjoint(fields_of(bytes(inner)) or ()))
        )
        for name, inner in fields.items()
    )


def _is_empty(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether an object is an answer whose list has no rows."""
    lists = [name for name, value in fields.items() if bytes(value)[:1] == b"["]
    around = {*map(_common, fields)}
    is_answer = len(fields) == 1 or bool(around & (_PAGING - _IDS_AROUND - _TIMES))
    return is_answer and len(lists) == 1 and bytes(fields[lists[0]]) == b"[]" and not around & _LISTS_OF_A_ROW


def _is_row(fields: Mapping[str, msgspec.Raw], entries: msgspec.Raw | None) -> bool:
    """Whether an object with a list is a row itself: a record whose list is a part of it, or a point with a price."""
    names = set(map(_common, fields))
    if names & _OF_A_POINT:
        return True
    if not names & _OF_A_RECORD:
        return False
    of_list = next(content(bytes(entries), MOST_NESTED - 1), b"") if entries is not None else b""
    row = json_value(of_list)
    # The points of a market are a list beside its facts.
    return not isinstance(row, dict) or not _has_time(row) or bool({*map(_common, row)} & _OF_A_RECORD)


def _has_time(row: Mapping[str, Any]) -> bool:
    return any(_is_moment(name, value) for name, value in row.items())


def _is_moment(name: str, value: Any) -> bool:
    """Whether a member is a time of rows: a Unix or ISO time whose name is that of no field of a record."""
    text, name = str(value), _common(name)
    is_known = name in _TIMES
    return (is_known or not NO_TIME_OF_A_ROW.search(name)) and _MOMENT.fullmatch(text) is not None


def _rows_in(fields: Mapping[str, msgspec.Raw], holder: str, depth: int, named: Collection[str]) -> Iterator[bytes]:
    """The rows of the member that holds them, with the ids and, where they lack it, the time beside it.

    A list of lists may have a list of their names beside it: ``market_tickers`` beside ``market_candlesticks``.
    """
    scalars = {name: value for name, value in fields.items() if bytes(value)[:1] not in (b"[", b"{", b"n")}
    ids = {name: value for name, value in scalars.items() if _common(name) in _IDS_AROUND or name in named}
    times = {name: value for name, value in scalars.items() if _is_moment(name, json_value(bytes(value)))}
    parts, members = [(ids, bytes(fields[holder]))], fields_of(bytes(fields[holder]))
    if (
        isinstance(members, list)
        and members
        and all(bytes(one)[:1] == b"[" for one in members)
        and not _are_pairs(members)
    ):
        names = {n: of for n, v in fields.items() if n != holder and isinstance(of := json_value(bytes(v)), list)
                 and len(of) == len(members)}  # fmt: skip
        said = [
            {n.removesuffix("s"): msgspec.Raw(msgspec.json.encode(of[i])) for n, of in names.items()}
            for i in range(len(members))
        ]
        parts = [({**ids, **own}, bytes(member)) for own, member in zip(said, members, strict=True)]
    for around, part in parts:
        for row in content(part, depth, named):
            found = json_value(row) if times else None
            is_timeless = isinstance(found, dict) and not _has_time(found) and not {*map(_common, found)} & _OF_A_RECORD
            yield _with({**around, **times} if is_timeless else around, row)


def _payload(fields: Mapping[str, msgspec.Raw]) -> str | None:
    """The member that is the one row of an answer, beside its time and ids; None where there is none."""
    objects = [name for name, inner in fields.items() if bytes(inner)[:1] in (b"{", b"[")]
    if len(objects) != 1 or _common(objects[0]) not in _PAYLOADS or {*map(_common, fields)} & _OF_A_POINT - {"trade"}:
        return None
    inner = fields_of(bytes(fields[objects[0]]))
    if not isinstance(inner, dict) or any(name in inner for name in ("event_type", "price_changes", "changes", "type")):
        return None
    names, holds = {*map(_common, inner)}, [*inner]
    is_message = objects[0] in ("payload", "data", "body", "content")  # of a recorder, which says when it arrived
    is_row = bool(names & (_OF_A_POINT | _OF_A_RECORD)) or ({"bids", "asks"} <= names and not is_message)
    is_time = any(_is_moment(name, json_value(bytes(said))) for name, said in fields.items())
    return objects[0] if is_time and (is_row or (len(holds) == 1 and holds[0] in _PAYLOADS)) else None


def _content_of_object(
    value: bytes, fields: Mapping[str, msgspec.Raw], depth: int, named: Collection[str]
) -> Iterator[bytes]:
    kinds = {name: bytes(inner)[:1] for name, inner in fields.items()}
    if fields.keys() == {"event", "markets"} and kinds["event"] == b"{":  # one event, and its markets beside it
        yield _with({"markets": fields["markets"]}, bytes(fields["event"]))
        return
    holders = _holders(fields, depth)
    if len(holders) == 1 and not _is_row(fields, fields[holders[0]]) and len(fields) > (kinds[holders[0]] == b"{"):
        yield from _rows_in(fields, holders[0], depth, named)
    elif not holders and (payload := _payload(fields)) is not None:
        yield from _rows_in(fields, payload, depth, named)
    elif not holders and _is_empty(fields):
        return
    elif fields and {*kinds.values()} == {b"["} and all(map(_are_objects, fields.values())):
        rows = (json_value(next(content(bytes(entries), depth), b"")) for entries in fields.values())
        if not all(map(_ID_KEY.fullmatch, fields)) and not all(
            isinstance(row, dict) and _has_time(row) for row in rows
        ):
            yield value
            return
        for key, entries in fields.items():
            for row in content(bytes(entries), depth, named):
                yield _with({"token_id": msgspec.Raw(msgspec.json.encode(key))}, row)
    elif (
        fields
        and {*kinds.values()} == {b"{"}
        and all(by_outcome := [*map(_lists_of_outcomes, fields.values())])
        and _are_outcomes([*(lists_of or {} for lists_of in by_outcome)])
    ):
        inside = [key for lists_of in by_outcome for key in lists_of or {}]
        if not any(map(_ID_KEY.fullmatch, fields)) and all(map(_ID_KEY.fullmatch, inside)):  # words around tokens
            for inner in fields.values():
                yield from content(bytes(inner), depth, named)
            return
        for market, lists_of in zip(fields, by_outcome, strict=True):
            for key, entries in (lists_of or {}).items():
                name = "token_id" if _ID_KEY.fullmatch(key) else "outcome"
                said = {"market": market, name: key}
                for row in content(bytes(entries), depth, named):
                    yield _with({n: msgspec.Raw(msgspec.json.encode(text)) for n, text in said.items()}, row)
    elif fields and {*kinds.values()} == {b"{"} and (len(fields) == 1 or all(map(_ID_KEY.fullmatch, fields))):
        names_ids = all(map(_ID_KEY.fullmatch, fields))
        for key, inner in fields.items():
            if names_ids:
                yield from content(_with(_named_by(key, bytes(inner)), bytes(inner)), depth, named)
            elif key in ROLES["book"].names:
                yield value
            else:
                yield from content(bytes(inner), depth, named)
    else:
        yield value


def _named_by(key: str, inner: bytes) -> dict[str, msgspec.Raw]:
    """The id that leads to a value as its member: nothing if the value says it itself."""
    fields, said = fields_of(inner), msgspec.Raw(msgspec.json.encode(key))
    if not isinstance(fields, dict) or any(bytes(value) == bytes(said) for value in fields.values()):
        return {}
    name = "ticker"
    if not _OF_A_RECORD.isdisjoint(map(_common, fields)) and (key.startswith("0x") or key.isdigit()):
        name = "condition_id" if key.startswith("0x") else "id"
    return {name: said}


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
