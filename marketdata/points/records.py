"""The fields of series, events and markets: models, archives, listings, frames, the command line and docs follow.

A record may have further fields, which are kept as they came.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from marketdata.errors import NotTidyError
from marketdata.filters import State
from marketdata.points.columns import Token
from marketdata.times import parse_iso

RecordKind = Literal["series", "events", "markets"]
GAMMA_NAMES = ("gamma_id", "gamma_condition_id")  # of markets of Polymarket: the number, and a short condition id
RECORD_KINDS: tuple[RecordKind, ...] = ("series", "events", "markets")


class Field(NamedTuple):
    """A field of a record.

    By its ``type`` an id (or a slug) is a text, a date an ISO 8601 text, and tokens are a list of ``{id, label}``.
    ``of`` says where the field is always there, null where unknown: in listings, in the response for one market, in an
    archive, or nowhere. A search looks into ``searched`` fields. An archive has a column for each. A field that
    ``leaks`` may change after the market opened, and tell the outcome.
    """

    name: str
    type: Literal["id", "text", "date", "texts", "number", "numbers", "tokens"]
    meaning: str
    of: Literal["listing", "market", "archive", "some"] = "listing"
    searched: bool = False
    leaks: bool = False


def _common(title: str, meaning: str) -> tuple[Field, ...]:
    return (
        Field("id", "id", "canonical id", searched=True),
        Field("slug", "id", "readable name in URLs", searched=True),
        Field(title, "text", meaning, searched=True),
        Field("status", "text", "`active`, `closed`, `resolved`, ..., as the service says", leaks=True),
        Field("start_date", "date", "when it opens [UTC]"),
        Field("end_date", "date", "when it is scheduled to end [UTC]; null once a venue may have moved it"),
    )


_SERIES = (
    Field("series_id", "id", "id of its series", "archive"),
    Field("series_slug", "id", "slug of its series", "archive"),
)
_TAGS = Field("tags", "texts", "its topics")
FIELDS: dict[RecordKind, tuple[Field, ...]] = {
    "series": _common("title", "its name"),
    "events": (*_common("title", "its name"), *_SERIES, _TAGS),
    "markets": (
        *_common("question", "what it asks"),
        Field("event_id", "id", "id of its event", "archive"),
        Field("event_slug", "id", "slug of its event", "archive", searched=True),
        Field("tokens", "tokens", "ids and labels of its tokens, in one order"),
        *(field._replace(of="some") for field in (*_SERIES, _TAGS)),
        Field("description", "text", "how it resolves, in words", "market"),
        Field("closed_at", "date", "when trading ended [UTC]", "market", leaks=True),
        Field("resolved_at", "date", "when its outcome was known [UTC]", "some", leaks=True),
        Field("resolved_token_id", "id", "the token that won", "market", leaks=True),
        Field("resolved_token_label", "text", "its label", "market", leaks=True),
        Field("payoffs", "numbers", "what a share of each of `token_ids` paid [USD, 0 to 1]", "some", leaks=True),
        Field("category", "text", "its topic, where its service has one of each", "some"),
        Field("liquidity", "number", "as its service says, as of now", "some", leaks=True),
        Field("created_at", "date", "when its record was made [UTC]", "some"),
        Field("updated_at", "date", "when its record was last changed [UTC]", "some", leaks=True),
        Field("event_title", "text", "name of its event", "some"),
        Field("sports_market_type", "text", "what is bet on in a game, such as `moneyline`", "some"),
        Field("game_start_time", "date", "when the game is to begin, as its record says now [UTC]", "some", leaks=True),
        Field("volume", "number", "what was traded so far, in the unit of its service, as of now", "some", leaks=True),
        Field("volume_24h", "number", "what was traded in the last day, as of now", "some", leaks=True),
        Field(
            "open_interest", "number", "open shares or USD, in the unit of its service, as of now", "some", leaks=True
        ),
        Field("price_now", "number", "price of its first token when the record was read, if open", "some", leaks=True),
    ),
}
# Frames and archives may hold ids of several kinds, so each column names its kind.
ID_NAMES: dict[RecordKind, str] = {"series": "series_id", "events": "event_id", "markets": "market_id"}
TOKEN_LISTS = ("token_ids", "token_labels")


def columns(kind: RecordKind, field: Field) -> tuple[str, ...]:
    """The columns of a field in a frame."""
    return TOKEN_LISTS if field.type == "tokens" else (ID_NAMES[kind],) if field.name == "id" else (field.name,)


def names(kind: RecordKind, *of: str) -> list[str]:
    """The fields that all records of these parts have."""
    return [field.name for field in FIELDS[kind] if field.of in of]


_ALL = [(kind, field) for kind in RECORD_KINDS for field in FIELDS[kind]]
COLUMNS: dict[RecordKind | Literal["tokens"], tuple[str, ...]] = {
    **{
        kind: tuple(name for field in FIELDS[kind] if field.of == "listing" for name in columns(kind, field))
        for kind in RECORD_KINDS
    },
    "tokens": Token._fields,
}
DATES = frozenset(field.name for _, field in _ALL if field.type == "date")
TEXT_LISTS = tuple(
    dict.fromkeys(n for kind, field in _ALL if field.type in ("texts", "tokens") for n in columns(kind, field))
)
NUMBERS = frozenset(field.name for _, field in _ALL if field.type == "number")
NUMBER_LISTS = tuple(field.name for _, field in _ALL if field.type == "numbers")
SEARCHED = tuple(dict.fromkeys(field.name for _, field in _ALL if field.searched))

# A market has these columns when it opens, and keeps them. Any other column may tell the outcome.
KNOWN_AT_OPENING = frozenset(
    {name for kind, field in _ALL if not field.leaks for name in columns(kind, field)}
    | {"category", "event_title", "series_title", "available_at", "simulated"}
    | {"exclusive", "negRisk", "neg_risk", "open_list", "negRiskAugmented", "neg_risk_augmented"}
)


def names_of(market: Mapping[str, Any]) -> set[str]:
    """All by which a market may be named: its id and slug, its names at Gamma, and the ids of its tokens."""
    own = {str(market[name]) for name in ("id", "slug", *GAMMA_NAMES) if market.get(name) is not None}
    return own | {str(token["id"]) for token in market.get("tokens") or ()}


def with_winner(market: Mapping[str, Any]) -> dict[str, Any]:
    """The record with ``resolved_token_id`` and ``resolved_token_label``, however its service names the winner.

    Services name it by either field, by ``winner`` or ``winning_outcome`` (a label in any case, or an id), by
    ``winning_asset_id``, or by ``winner`` of each token. They stay as they are where the record names no token, or two.
    """
    record = dict(market)
    lists = (record.get(name) for name in TOKEN_LISTS)
    ids, labels = (list(one) if one is not None else [] for one in lists)
    tokens = [token for token in record.get("tokens") or () if isinstance(token, Mapping)] or [
        {"id": token, "label": label} for token, label in zip(ids, labels, strict=False)
    ]
    named = {record.get(name) for name in WINNER_FIELDS if isinstance(record.get(name), str)}
    if record.get("resolved_token_id") is not None:
        named = {record["resolved_token_id"]}
    named = {str(name).casefold() for name in named}
    won = [
        t for t in tokens if _is_winner(t) or not named.isdisjoint(str(t.get(n)).casefold() for n in ("id", "label"))
    ]
    if len(won) == 1 and truth("is_resolved", record.get("is_resolved")) is not False:
        record |= {"resolved_token_id": won[0].get("id"), "resolved_token_label": won[0].get("label")}
    return record


def _is_winner(token: Mapping[str, Any]) -> bool:
    """Whether a token of a record is said to have won; a text that is no flag says nothing."""
    return FLAG_TEXTS.get(str(token.get("winner")).strip().lower()) is True


WINNER_FIELDS = (
    "resolved_token_label", "winner", "winning_outcome", "winning_asset_id", "winning_token_id", "winning_token",
    "winner_token_id", "resolved_outcome",
)  # fmt: skip
_POST_RESOLUTION_COLUMNS = {field.name for _, field in _ALL if field.leaks} | {
    "ends_at", "time_to_resolution", "exit", "move", "net", "net_low",
}  # fmt: skip
_LEAKING_WORDS = {"outcome", "outcomes", "payoff", "payoffs", "payout", "resolved", "resolution", "settled",
                  "settlement", "winner", "winning", "won"}  # fmt: skip


# The fields by which records are sorted, the first that a record has, and whether the largest comes first.
_SORTED: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "volume_24h": (("volume_24h", "volume24hr", "volume_24h_fp"), True),
    "volume": (("volume", "volumeNum", "volume_fp"), True),
    "newest": (("start_date", "created_at"), True),
    "end_date": (("end_date", "closed_at"), False),
}


# The fields by which `state_of` decides.
STATE_FIELDS = ("status", "resolved_token_id", "payoffs", "closed_at")


def state_of(record: Mapping[str, Any]) -> State:
    """Whether a market is open, closed without an outcome so far, or resolved."""
    status = record.get("status")
    if status == "resolved" or record.get("resolved_token_id") is not None or record.get("payoffs"):
        return "resolved"
    return "closed" if status == "closed" or (status is None and record.get("closed_at") is not None) else "open"


def sort_fields(sort: str) -> tuple[str, ...]:
    """The fields that `in_order` compares."""
    return _SORTED[sort][0]


def in_order(records: Iterable[Mapping[str, Any]], sort: str, order: str | None = None) -> list[Any]:
    """Records sorted: the most traded or newest first, or those that end soonest; those without a value come last.

    ``order`` is "asc" or "desc", where that is not wanted.
    """
    fields, is_falling = _SORTED[sort]
    keys = [(_sort_key(record, fields), record) for record in records]
    known = [pair for pair in keys if pair[0] is not None]
    known.sort(key=lambda pair: pair[0], reverse=is_falling if order is None else order == "desc")  # type: ignore[arg-type, return-value]
    return [record for _, record in known] + [record for key, record in keys if key is None]


def _sort_key(record: Mapping[str, Any], fields: Sequence[str]) -> float | None:
    """A number or a time as a number; None where the record has none of the fields."""
    for name in fields:
        value = record.get(name)
        with suppress(TypeError, ValueError, OverflowError):
            number = float(parse_iso(str(value))) if name in DATES else float(value)  # type: ignore[arg-type]
            if math.isfinite(number):
                return number
    return None


def searched_text(record: Mapping[str, object]) -> str:
    """The texts in which a search looks for words, without case."""
    return " ".join(str(record[name]) for name in SEARCHED if record.get(name) is not None).casefold()


def searched_words(search: str) -> list[str]:
    """The words of a search, without case; a record that is found has each of them."""
    return search.casefold().split()


# How records and files write a flag; an empty text is a null of a CSV file.
FLAG_TEXTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("true", "t", "yes", "y", "1", "1.0"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0", "0.0"), False),
    **dict.fromkeys(("", "none", "null", "nan", "<na>"), None),
}


def truth(name: str, value: object) -> bool | None:
    """Read a flag of a record: files have truth values, 1 and 0, or texts. A null is None.

    NotTidyError for anything else.
    """
    try:
        return FLAG_TEXTS[str(value).strip().lower()]
    except KeyError:
        raise NotTidyError(f"{name} is {value!r}; allowed are true and false, yes and no, 1 and 0, and null.") from None


# A void market may have paid 0.33 each.
_ROUNDED = 0.011


def refuse_payoffs(market: str, payoffs: Sequence[float | None]) -> None:
    """NotTidyError if all payoffs of two or more tokens are known, and do not sum to 1."""
    known = [one for one in payoffs if one is not None]
    if len(known) == len(payoffs) > 1 and abs(sum(known) - 1) > _ROUNDED:
        raise NotTidyError(
            f"The payoffs of market {market!r} are {known}, which sum to {sum(known):g}. The tokens of a market pay 1 "
            "together: 1 for the winner, 0.5 each if it is void. Prices of a closed market are no payoffs; leave them "
            "null until it has resolved."
        )


def label_leaking(names: Iterable[str], keep: Iterable[str] = ()) -> list[str]:
    """The columns of market records that may tell the outcome: all that no market has when it opens, less ``keep``."""
    return [name for name in names if name not in KNOWN_AT_OPENING and name not in keep]


def leaks_outcome(name: str) -> bool:
    """Whether a column of a study tells the outcome: one of records that does, or of what was known only later."""
    words = set(re.findall(r"[a-z]+", re.sub(r"(?=[A-Z])", "_", name).lower()))
    return name in _POST_RESOLUTION_COLUMNS or bool(words & _LEAKING_WORDS)
