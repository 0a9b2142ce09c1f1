"""Meanings of answers of Polymarket: records, price histories, trades, books and resolutions.

The functions take decoded JSON, of a live answer or of a file. A market is named by its condition id of 64 digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from marketdata.decimals import to_number
from marketdata.errors import ContractError
from marketdata.points.columns import Books, Floats, Ints, Token, Trades
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.times import SECOND, parse_moment, to_text
from marketdata.wire.decode import Number, Seconds, convert, numbers
from marketdata.wire.venues import (
    NOTHING,
    TRADE_SIDES,
    as_of_now,
    books_of,
    is_id,
    prints,
    refuse_no_text,
    renamed,
    say_unknown,
    word,
)

_MARKET_NAMES = {
    "market_slug": "slug", "startDate": "start_date", "endDate": "end_date", "end_date_iso": "end_date",
    "closedTime": "closed_at", "createdAt": "created_at", "updatedAt": "updated_at", "conditionId": "condition_id",
    "clobTokenIds": "token_ids", "positionIds": "token_ids", "outcomePrices": "outcome_prices",
    "gameStartTime": "game_start_time", "sportsMarketType": "sports_market_type",
    "umaResolutionStatus": "resolution_status", "resolutionStatus": "resolution_status", "seriesSlug": "series_slug",
}  # fmt: skip
_TRADE_NAMES = {
    "asset": "token_id", "asset_id": "token_id", "conditionId": "condition_id", "market": "condition_id",
    "outcomeIndex": "outcome_index", "transactionHash": "transaction_hash", "proxyWallet": "proxy_wallet",
}  # fmt: skip
# Flags of an event that hold for each of its markets: whether these exclude each other, and whether others may follow.
_OF_EVENTS = ("negRisk", "negRiskAugmented", "neg_risk", "neg_risk_augmented", "open_list")
_NUMBERS = ("volume", "liquidity", "openInterest")  # how names of texts of numbers begin, which sort as texts
_MILLIONTHS = 1_000_000
_NO_LABEL = 999  # the outcome_index of a trade whose outcome is not known
_RESOLVING = ("posed", "proposed", "challenged", "disputed")  # states of a resolution that is not final
_SHORT, _FILL = re.compile("0x[0-9a-f]{62}"), "00"  # a condition id of Protocol V2 as Gamma writes it, and its end
_TOKENS_OF = {"v1": ("clobTokenIds", "clob_token_ids"), "v2": ("positionIds", "position_ids")}


class _Group(msgspec.Struct):
    """An event, series or tag inside another record."""

    id: str | int | None = None
    slug: str | None = None
    title: str | None = None
    label: str | None = None
    series_slug: str | None = msgspec.field(default=None, name="seriesSlug")
    series: list[_Group] | None = None


class _ClobToken(msgspec.Struct):
    token_id: str
    outcome: str | None = None
    winner: bool | None = None


class _Market(msgspec.Struct):
    """Fields that are read of a market; an event has ``events``, ``tags`` and ``series`` as well."""

    id: str | int | None = None
    condition_id: str | None = None
    closed: bool | None = None
    active: bool | None = None
    resolution_status: str | None = None
    outcomes: list[str] | str | None = None
    token_ids: list[str | int] | str | None = None
    outcome_prices: list[Number] | str | None = None
    tokens: list[_ClobToken] | None = None
    events: list[_Group] | None = None
    series: list[_Group] | None = None
    tags: list[_Group | str] | str | None = None


class _Resolution(msgspec.Struct):
    status: str | None = None
    payouts: list[int] | None = None
    resolved_at: str | None = None


class _Bucket(msgspec.Struct):
    timestamp: Seconds
    price: Number
    resolution_seconds: int | None = None


class _Moment(msgspec.Struct):
    t: Seconds
    p: Number


class _Trade(msgspec.Struct):
    side: str
    token_id: str
    size: Number
    price: Number
    timestamp: int | float | str
    condition_id: str | None = None
    outcome: str | None = None
    outcome_index: int | None = None
    transaction_hash: str | None = None
    proxy_wallet: str | None = None

    @property
    def token(self) -> Token:
        """The token, with its label if that is known."""
        label = self.outcome if self.outcome_index != _NO_LABEL else None
        return Token(condition_of(self.condition_id or ""), self.token_id, label or None)


class _Level(msgspec.Struct):
    price: Number
    size: Number


class _Book(msgspec.Struct):
    market: str
    asset_id: str
    timestamp: int
    bids: list[_Level] | None
    asks: list[_Level] | None
    hash: str | None = None
    tick_size: Number | None = None
    last_trade_price: Number | None = None


class History(NamedTuple):
    """Times [microseconds UTC] and prices of a token, oldest first."""

    ts: Ints
    price: Floats


def condition_of(name: str) -> str:
    """A condition id in its one form, 64 hex digits in small letters; another name stays as it is.

    Gamma writes 62 of them for markets of Protocol V2, where the CLOB, the Data API and the chain have ``00`` after it.
    """
    small = name.lower()
    if _SHORT.fullmatch(small):
        return small + _FILL
    return small if re.fullmatch("0x[0-9a-f]{64}", small) else name


def refuse_wrong_ids(record: Mapping[str, Any], kind: Literal["market", "event", "series"]) -> None:
    """ContractError for a record of an answer of the venue with an id that the venue does not have.

    Those of the venue are 0x and 64 hex digits for a condition, and digits for a token, an event, a series and a number
    of Gamma. What else is no number may be an id too; a condition is no digits, which would be a number of Gamma.
    """
    own = record.get("id")
    if kind == "market":
        if own != record.get("gamma_id") and (not is_id(own) or str(own).isdigit()):
            raise ContractError(f"The conditionId of a market is {str(own)[:80]!r}, which is no id.")
        for token in record["tokens"]:
            if not is_id(token["id"]):
                raise ContractError(f"A token of a market is {token['id'][:80]!r}, which is no id.")
    elif own is None:
        raise ContractError(f"A record of {kind} has no id.")
    for name, said in (("id", record.get("gamma_id") if kind == "market" else own),
                       *((name, record.get(name)) for name in ("event_id", "series_id"))):  # fmt: skip
        if said is not None and not is_id(said):
            raise ContractError(f"The {name} of a record of {kind} is {str(said)[:80]!r}, which is no id.")
    refuse_no_text(record, ("slug", "question", "title"), kind)


def forms_of(condition: str) -> list[str]:
    """The forms in which Gamma may write a condition id."""
    is_long = condition.endswith(_FILL) and _SHORT.fullmatch(condition[: -len(_FILL)])
    return [condition, condition[: -len(_FILL)]] if is_long else [condition]


def with_own_tokens(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record of Gamma with the ids of tokens of its version alone, by which books, prices and trades know it.

    A market of the first version that may be a leg of a combo has ``positionIds`` too. Where the version is missing,
    they count if the record has no other ids, or a short condition id.
    """
    version = str(row.get("version") or "").lower()
    if version not in _TOKENS_OF:
        has_v1, has_v2 = (any(row.get(name) not in NOTHING for name in names) for names in _TOKENS_OF.values())
        is_short = _SHORT.fullmatch(str(row.get("conditionId") or row.get("condition_id") or "").lower()) is not None
        version = "v2" if has_v2 and (is_short or not has_v1) else "v1"
    others = _TOKENS_OF["v2" if version == "v1" else "v1"]
    return {name: value for name, value in row.items() if name not in others}


def market(row: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record of a market of Gamma or the CLOB; ``event`` is the one that contains it.

    It has a winner, or ``payoffs`` of a void market, only where the venue says that the market is closed and resolved.
    """
    if not isinstance(row, Mapping):
        raise ContractError(f"A market is no object: {str(row)[:80]!r}.")
    out = _renamed(with_own_tokens(row))
    got = convert(out, _Market, f"The market {row.get('slug') or row.get('id')}")
    number = None if got.id is None else str(got.id)
    if not (name := condition_of(got.condition_id or "") or number):
        raise ContractError("A market has neither a conditionId nor an id.")
    if got.tokens is not None:
        tokens = [{"id": token.token_id, "label": token.outcome} for token in got.tokens]
    else:
        ids, labels = _listed(got.token_ids, name), _listed(got.outcomes, name)
        if ids and len(ids) != len(labels):
            raise ContractError(f"The market {name} has {len(ids)} tokens and {len(labels)} outcomes.")
        if wrong := [label for label in labels if not isinstance(label, str | int | None)]:
            raise ContractError(f"An outcome of the market {name} is {str(wrong[0])[:80]!r}; it is a text.")
        texts = (None if label is None else str(label) for label in labels)
        tokens = [{"id": str(token), "label": label} for token, label in zip(ids, texts, strict=False)]
    if len({token["id"] for token in tokens}) < len(tokens):
        raise ContractError(f"Two outcomes of the market {name} have one token.")
    if out.get("closed_at") is not None and out.get("end_date") == out["closed_at"]:
        out["end_date"] = None  # no deadline, but the close under another name
    state = "closed" if got.closed else "active" if got.active is not False else "inactive"
    out |= {"id": name, "gamma_id": number, "status": state, "tokens": tokens, **_parents(got, event)}
    for around in _around(row, event):
        out |= {flag: around[flag] for flag in _OF_EVENTS if out.get(flag) is None and flag in around}
    if got.condition_id and got.condition_id != name:
        out["gamma_condition_id"] = got.condition_id
    for read in ("condition_id", "token_ids", "outcomes", "outcome_prices", "events"):
        out.pop(read, None)
    record = with_payoffs(out, _payoffs(got, name))
    traded, open_interest = row.get("volume24hr"), row.get("openInterest")
    now = as_of_now(record, *map(row.get, ("bestBid", "bestAsk", "lastTradePrice")),
                    volume_24h=traded, open_interest=open_interest)  # fmt: skip
    return {**record, **now}


def _renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row under the names of our records, with numbers where the venue has texts of them."""
    return renamed(row, _MARKET_NAMES, (name for name in row if name.startswith(_NUMBERS)))


def _around(row: Mapping[str, Any], event: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The event of a market: the one that contains it, or the first that it names."""
    events = [event] if event is not None else row.get("events")
    return [one for one in events[:1] if isinstance(one, Mapping)] if isinstance(events, list) else []


def with_payoffs(record: dict[str, Any], payoffs: Sequence[float] | None) -> dict[str, Any]:
    """The record with the payoff of each token, and the winner if one token paid all; None if it is not resolved."""
    known = payoffs if payoffs is not None and len(payoffs) == len(record["tokens"]) else ()
    won = record["tokens"][known.index(1.0)] if 1.0 in known else {}
    names = {"resolved_token_id": won.get("id"), "resolved_token_label": won.get("label")}
    status = "resolved" if known else "closed" if record["status"] == "resolved" else record["status"]
    return {**record, **names, "payoffs": list(known) or None, "status": status}


def event(row: Mapping[str, Any]) -> dict[str, Any]:
    """The record of an event, or of a series, without its markets."""
    out = _renamed(row)
    got = convert(out, _Market, f"The event {row.get('slug') or row.get('id')}")
    state = "closed" if got.closed else "active" if got.active is not False else "inactive"
    out |= {"id": None if got.id is None else str(got.id), "status": state, **_parents(got, None)}
    return {name: value for name, value in out.items() if name not in ("markets", "events", "series")}


def markets_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of the markets inside an event."""
    return [market(one, row) for one in row.get("markets") or ()]


def resolution(row: Mapping[str, Any]) -> tuple[list[float] | None, str | None]:
    """The payoff of each outcome [USD], None until it is final, and when it was known."""
    got = convert(row, _Resolution, f"The resolution of {row.get('condition_id')}")
    if word(got.status) not in (*_RESOLVING, "resolved", None):
        say_unknown("resolution", got.status, (*_RESOLVING, "resolved"))
    # Each is rounded, as of a void market of three outcomes.
    return payoffs_of(got.status, got.payouts), got.resolved_at


def payoffs_of(status: object, payouts: Sequence[Any] | None) -> list[float] | None:
    """The payoffs of the ``payouts`` of a resolution, in millionths; None unless it is final."""
    if word(str(status)) != "resolved" or not payouts or None in payouts:
        return None
    if abs(sum(payouts) - _MILLIONTHS) >= len(payouts):
        return None
    return [paid / _MILLIONTHS for paid in payouts]


def resolved(record: dict[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a market with what its resolution says that it paid, nothing as long as that is not final.

    If the row lacks the status, or the payouts of a resolved market, the record keeps its own.
    """
    paid, at = resolution(row)
    if paid is not None and record["tokens"] and len(paid) != len(record["tokens"]):
        raise ContractError(f"The market {record['id']} has {len(record['tokens'])} tokens and {len(paid)} payouts.")
    if paid is not None or (word(str(row.get("status"))) or "resolved") != "resolved":
        record = with_payoffs(record, paid)
    return {**record, "resolved_at": at} if at else record


def prices(answer: Any, token_id: str | None = None) -> dict[str | None, History]:
    """The histories of an answer by token. A list names no token: it is the history of ``token_id``.

    Single ticks and the payout at the end of a history, which are no buckets, are left out. Of the newest time, which
    may still change, the last point counts; ContractError if another time has two values. Null is no history.
    """
    top = answer.get("data", answer.get("history", answer)) if isinstance(answer, Mapping) else answer
    histories = top if isinstance(top, Mapping) else {token_id: top}
    out = {}
    for token, points in ((token, points or []) for token, points in histories.items()):
        first = points[0] if points and isinstance(points, list) else None
        is_bucket = isinstance(first, Mapping) and "timestamp" in first
        got = convert(points, list[_Bucket] if is_bucket else list[_Moment], f"The history of prices of {token}")
        pairs = [(p.timestamp, p.price) for p in got if p.resolution_seconds != 0] if is_bucket else [
            (p.t, p.p) for p in got
        ]  # fmt: skip
        newest, by_time = max((t for t, _ in pairs), default=0), dict[int, Any]()
        for t, p in pairs:
            if by_time.setdefault(t, p) != p and t != newest:
                raise ContractError(f"The history of prices of {token} has two values at {to_text(t * SECOND)}.")
            by_time[t] = p
        ts = np.array(sorted(by_time), np.int64)
        values = numbers([by_time[t] for t in ts.tolist()], f"A price of the history of {token}", null=False)
        out[token] = History(ts * SECOND, values)
    return out


def trades(rows: Sequence[Mapping[str, Any]], role: Literal["taker"] | None = None) -> Trades:
    """Prints of the Data API or of the market channel, newest first or oldest first.

    Rows of an activity that are no trade are left out. The wallet of a row is its account, and the taker where the
    answer has takers alone, which ``role`` says.
    """
    named = [
        {_TRADE_NAMES.get(name, name): value for name, value in row.items()}
        for row in rows
        if str(row.get("type") or "TRADE").upper() == "TRADE"
    ]
    got = convert(named, list[_Trade], "The list of trades")
    if wrong := [trade.side for trade in got if word(trade.side) not in TRADE_SIDES]:
        raise ContractError(f"The side of a trade is {wrong[0][:40]!r}; allowed are BUY and SELL.")
    return prints(
        [trade.token for trade in got],
        [_moment(trade.timestamp) for trade in got],
        {
            "side": [TRADE_SIDES[word(trade.side) or ""] for trade in got],
            "price": numbers([trade.price for trade in got], "The price of a trade", null=False),
            "size": numbers([trade.size for trade in got], "The size of a trade", null=False),
            "transaction_hash": [trade.transaction_hash for trade in got],
            role or "account": [trade.proxy_wallet or None for trade in got],
            "role": [role] * len(got),
        },
    )


def _moment(value: object) -> int:
    try:
        return parse_moment(value)
    except (ValueError, OverflowError) as problem:
        raise ContractError(f"A time of Polymarket cannot be read: {problem}.") from None


def books(rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str | None] | None = None) -> Books:
    """The books of an answer, which has the best level last, each at its own time; ``labels`` are by token."""
    got = convert(rows, list[_Book], "The list of books")
    tokens = [Token(condition_of(book.market), book.asset_id, (labels or {}).get(book.asset_id)) for book in got]
    values = {
        name: np.array(found, object) if kind == "text" else numbers(found, f"The {name} of a book")
        for name, kind in SNAPSHOT_FIELDS.items()
        for found in [[getattr(book, name) for book in got]]
        if any(value is not None for value in found)
    }
    sides = [(_levels(book.bids), _levels(book.asks)) for book in got]
    return books_of(tokens, [_moment(book.timestamp) for book in got], sides, values)


def _levels(side: Sequence[_Level] | None) -> list[tuple[float, float]]:
    price, size = (
        numbers([getattr(level, name) for level in side or ()], f"The {name} of a level", null=False).tolist()
        for name in ("price", "size")
    )
    return [*zip(price, size, strict=True)]


def _listed(value: Any, name: str) -> list[Any]:
    """A list, which some answers have as JSON inside of a text."""
    if not isinstance(value, str):
        return value or []
    with suppress(msgspec.DecodeError):
        if isinstance(got := msgspec.json.decode(value or "[]"), list):
            return got
    raise ContractError(f"The market {name} has the text {value[:80]!r} where a list of JSON belongs.")


def _parents(got: _Market, event: Mapping[str, Any] | None) -> dict[str, Any]:
    """The event, series and topics of a market or event, as far as known."""
    around = got if event is None else convert(event, _Market, f"The event {event.get('slug')}")
    parent = convert(event, _Group, "The event") if event is not None else next(iter(got.events or ()), None)
    within = around.series or (parent.series if parent is not None else None)
    series = next(iter(within or ()), None) or _Group(slug=None if parent is None else parent.series_slug)
    out: dict[str, Any] = {}
    if parent is not None:
        out |= {"event_id": None if parent.id is None else str(parent.id), "event_slug": parent.slug}
        out |= {} if parent.title is None else {"event_title": parent.title}
    if series.slug is not None:
        out |= {"series_id": None if series.id is None else str(series.id), "series_slug": series.slug}
    if (tags := got.tags or around.tags) is not None:
        listed = _listed(tags, str(got.id)) if isinstance(tags, str) else tags
        out["tags"] = [tag if isinstance(tag, str) else tag.slug or tag.label for tag in listed]
    return out


def _payoffs(got: _Market, name: str) -> list[float] | None:
    """The payoff of each token of a market, None until it is final: prices alone prove nothing."""
    if got.tokens is not None:
        won = [float(token.winner is True) for token in got.tokens]
        return won if got.closed is not False and sum(won) == 1 else None
    try:
        paid = [to_number(price) for price in _listed(got.outcome_prices, name)]
    except (TypeError, ValueError):
        raise ContractError(f"The market {name} has outcomePrices that are no numbers.") from None
    is_final = got.closed and word(got.resolution_status) == "resolved"
    return paid if is_final and (paid == [0.5, 0.5] or sorted(paid) == [*[0.0] * (len(paid) - 1), 1.0]) else None
