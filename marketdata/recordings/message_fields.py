"""A message as it was written down: its fields, its kind, and what the envelopes around it say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from marketdata.recordings import kalshi_messages
from marketdata.recordings.envelopes import MESSAGE_KEYS, MOST_NESTED, content, fields_of, json_value

_RAW_MESSAGE = (
    "raw", "raw_text", "raw_json", "message", "msg", "data", "payload", "json", "event", "body", "content", "frame",
)  # fmt: skip
DAMAGED = "damaged"
Text = str | float | int | None
_scalar = msgspec.json.Decoder(str | int | float | bool | None).decode


class Message(NamedTuple):
    """The fields of a message, each as JSON, and what its envelopes say about it as texts."""

    fields: Mapping[str, Raw]
    envelope: Mapping[str, str]
    is_inner: bool = False

    @property
    def kind(self) -> str:
        """The kind that the message names, or that its fields show."""
        fields = self.fields
        for name in ("event_type", "update_type", "type"):
            if name in fields:
                text = text_of(fields[name])
                break
        else:
            text = None
        if not text and self.envelope.get("type") in kalshi_messages.MESSAGE_TYPES:
            text = self.envelope["type"]
        if text:
            return "book" if text == "book_snapshot" else text
        if fields.keys() >= {"bids", "asks"} or fields.keys() >= {"buys", "sells"}:
            return "book"
        if {"price_changes", "changes"} & fields.keys():
            return "price_change"
        said = (text_of(fields[name]) for name in ("event", "message_type") if name in fields)
        return next((text.lower() for text in said if text), "unknown")

    def text(self, names: Iterable[str]) -> str | None:
        """The first of these fields that is not empty, else the first of the envelope."""
        fields = self.fields
        for name in names:
            if name in fields and (found := text_of(fields[name])):
                return found
        return self.said(names) if self.envelope else None

    def said(self, names: Iterable[str]) -> str | None:
        """Fields of the envelope, which come first."""
        return next((text for name in names if (text := self.envelope.get(name))), None)

    def values(self) -> dict[str, Any]:
        """The fields as Python has them."""
        return {name: json_value(bytes(value)) for name, value in self.fields.items()}


NO_MESSAGE = Message({"event_type": Raw(msgspec.json.encode(DAMAGED))}, {})


def messages_in(value: bytes) -> Iterable[Message]:
    """The messages in a message, a list, an answer or an envelope; a damaged one where there is none."""
    fields = fields_of(value) if value.lstrip().startswith(b"{") else None
    if type(fields) is dict and not MESSAGE_KEYS.isdisjoint(fields):
        return (Message(fields, {}),)
    return (message for row in content(value) for message in _messages(row, {}))


def _messages(value: bytes, envelope: Mapping[str, str], depth: int = 0) -> Iterator[Message]:
    """The messages in a message, a list or an envelope, which may be in another envelope."""
    fields = fields_of(value) if depth <= MOST_NESTED else None
    if isinstance(fields, list):
        for entry in fields:
            yield from _messages(bytes(entry), envelope, depth + 1)
    elif fields is None:
        inner = json_value(value) if value[:1] == b'"' and depth <= MOST_NESTED else None
        is_json = isinstance(inner, str) and inner.lstrip()[:1] in ("{", "[")
        yield from _messages(str(inner).encode(), envelope, depth + 1) if is_json else [NO_MESSAGE]
    else:
        is_message = {"bids", "asks"} <= fields.keys() or bytes(fields.get("event_type", b"null")) != b"null"
        inner = None if is_message else _inner(fields)
        if inner is None:
            yield Message(fields, envelope, depth > 0)
        else:
            parts = [fields_of(bytes(fields[name])) for name in ("market", "collection") if name in fields]
            named = [fields, *(part for part in parts if isinstance(part, dict))]
            about = {
                n: text
                for part in named
                for n, v in part.items()
                if n not in _RAW_MESSAGE and (text := text_of(v)) is not None
            }
            yield from _messages(inner, {**envelope, **about}, depth + 1)


def _inner(envelope: Mapping[str, Raw]) -> bytes | None:
    """The message in an envelope, None if it is no envelope."""
    for name in _RAW_MESSAGE:
        value = bytes(envelope.get(name, b""))
        if value[:1] in (b"{", b"["):
            return value
        if value[:1] == b'"':
            text = msgspec.json.decode(value)
            return text.encode() if text.lstrip()[:1] in ("{", "[") else None
    return None


def text_of(value: Raw) -> str | None:
    """A value as text, None for null, lists and objects."""
    try:
        found = _scalar(value)
    except msgspec.ValidationError:
        return None
    return found if found is None or type(found) is str else str(found)


def as_json(value: Any) -> bytes:
    """A message that Python has as JSON."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return json.dumps(value, default=str).encode() if isinstance(value, Mapping) else b""
