"""Market records in any form: of venues, of services, and of the tables of others."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from marketdata.decimals import to_number
from marketdata.errors import ContractError
from marketdata.points.records import FLAG_TEXTS, truth, with_winner
from marketdata.wire import kalshi, polymarket
from marketdata.wire.venues import word

Row = dict[str, Any]
OUTCOME_PAIRS = (("Yes", "No"), ("Up", "Down"))
_OUTCOME_WORD = f"({'|'.join(word for pair in OUTCOME_PAIRS for word in pair)})"
_TOKEN_OF_LABEL = re.compile(
    rf"(?:outcome_?)?{_OUTCOME_WORD}_?(?:clob_?)?(?:token|asset)(?:_?id)?|(?:clob_?)?(?:token|asset)_?(?:id_?)?{_OUTCOME_WORD}",
    re.IGNORECASE,
)
_TOKEN_OF_OUTCOME = re.compile(r"(?:outcome|token)_?(\d+)(?:_(?:token_)?id)?")
_LABEL_OF_OUTCOME = "outcome_{0}_label outcome_{0} answer{0} answer_{0} label_{0}"
_LISTS = ("token_ids", "clob_token_ids", "clobTokenIds", "position_ids", "positionIds", "token_ids_json",
          "clob_token_ids_json", "asset_ids", "assets_ids")  # fmt: skip
# The names of the id of a market. Beside a ticker of Kalshi, its market_id is a number that nothing else has.
MARKET_IDS = ("market_ticker", "market_id", "condition_id", "market", "ticker", "market_slug", "slug")
_LABELS = ("token_labels", "outcomes", "outcomes_json")
# The names of what a token paid, and of whether it won.
PAYOUTS = ("payoff", "payout", "payout_value", "settlement_value", "payout_numerator")
WINNERS = ("winner", "is_winner", "won")
_UNITS = (1, 100, 1_000_000)  # what the tokens of a market pay together, in dollars, cents and millionths
# The names of what differs from token to token, where a row is a token of a market.
_TOKEN_FIELDS = {
    "token_id": ("token_id", "asset_id", "clob_token_id", "token", "asset"),
    "outcome": ("outcome", "token_label", "outcome_label", "outcome_name", "label", "token_side", "side"),
    "winner": WINNERS,
    "payoff": PAYOUTS,
}
# What sources call a state; others stay as they are. The last state that a record says counts.
_STATES = {
    **dict.fromkeys(("inactive", "unopened", "initialized", "upcoming"), "inactive"),
    **dict.fromkeys(("active", "open", "live", "trading"), "active"),
    **dict.fromkeys(("closed", "ended", "halted"), "closed"),
    **dict.fromkeys(("resolved", "settled", "finalized"), "resolved"),
}
_ROUNDED = 0.011  # a void market of three may have paid 0.33 each
_IN_ORDER = ("inactive", "active", "closed", "resolved")
_FLAGS = ("resolved", "is_resolved", "isResolved")
_RESOLVED_AT = ("resolutionTime", "resolution_time", "resolved_at", "resolvedAt")
_RESULT = ("resolved_token_id", "resolved_token_label", "payoffs")
_QUESTIONS = ("question", "title", "market_question")


def is_ours(row: Mapping[str, Any]) -> bool:
    """Whether a row has the names of the interface, or of our frames, and lists of tokens."""
    tokens = row.get("tokens")
    has_tokens = isinstance(tokens, list | tuple) and all(isinstance(t, Mapping) and "id" in t for t in tokens)
    is_listed = "market_id" in row and isinstance(row.get("token_ids"), list | tuple)
    return ("id" in row and has_tokens) or (is_listed and not isinstance(row.get("token_labels"), str))


def market(row: Mapping[str, Any]) -> Row:
    """A market record in any form, as venues, services and files have it, under the names that an archive takes.

    What the row says itself about its state and its winner stays, whichever venue its names tell. ContractError for
    values that no form has.
    """
    _refuse_other_shapes(row)
    if is_ours(row):
        return completed(row)
    row = _with_payoffs(row)
    return completed(_with_result(_read(dict(row)), row))


def _refuse_other_shapes(row: Mapping[str, Any]) -> None:
    """ContractError for a value in the place of a list, or for a list in the place of an id."""
    for name in ("tokens", "token_ids", "token_labels", "tags", "payoffs"):
        given = row.get(name)
        is_list = isinstance(given, Iterable) and not isinstance(given, Mapping | bytes)
        if given is not None and not is_list:
            raise ContractError(f"its {name} are {str(given)[:60]!r}; allowed is a list.")
    tokens = row.get("tokens")
    listed = as_list(tokens, objects=True) if isinstance(tokens, str) else tokens
    if not all(isinstance(token, Mapping) for token in listed or ()):
        raise ContractError(f"its tokens are {str(tokens)[:60]!r}; allowed is a list of objects with id and label.")
    if row.get("payoffs") is not None:
        _numbers(row["payoffs"])
    won = row.get("resolved_token_id")
    if isinstance(won, Iterable) and not isinstance(won, str):
        raise ContractError(f"its resolved_token_id is {str(won)[:60]!r}; allowed is the id of a token.")


def completed(record: Mapping[str, Any]) -> Row:
    """A record under our names with the winner and the state that it tells in any way; the state is never null."""
    out = with_winner(record)
    out = _with_payoffs(out)
    if out.get("status") in (None, "") and isinstance(out.get("state"), str) and out["state"]:
        out["status"] = _STATES.get(out["state"].strip().casefold(), out["state"])
    if out.get("status") in (None, ""):
        is_over = any(out.get(name) is not None for name in _RESULT) or any(_is_true(out, name) for name in _FLAGS)
        is_closed = _is_true(out, "closed") or out.get("closed_at") is not None
        out["status"] = "resolved" if is_over else "closed" if is_closed else "active"
    return out


def by_market(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows, one a market: where rows are tokens with a market of their own, these become its ``tokens``."""
    if not rows:
        return []
    called = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower(): name for name in rows[0]}
    names = {ours: called.get(first(called, given) or "") for ours, given in _TOKEN_FIELDS.items()}
    of = first(rows[0], ("conditionId", *MARKET_IDS, "id"))
    has_lists = not rows[0].keys().isdisjoint({"tokens", *_LISTS, "bids", "asks"})
    if names["token_id"] is None or of is None or has_lists or "ts" in rows[0]:
        return [dict(row) for row in rows]
    markets: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        markets.setdefault(str(row.get(of)), []).append(row)
    out = []
    for tokens in markets.values():
        shared = {name: value for name, value in tokens[0].items() if name not in names.values()}
        facts = {name: value for name, value in shared.items() if all(row.get(name) == value for row in tokens)}
        listed = [{ours: row.get(name) for ours, name in names.items() if name is not None} for row in tokens]
        for token in listed:
            token["token_id"] = str(token["token_id"])
            if "winner" in token:
                token["winner"] = truth("winner", token["winner"])
        paid = [token.pop("payoff", None) for token in listed]
        if any(one is not None for one in paid):
            over = to_number(facts.pop("payout_denominator", None) or 1)
            facts["payouts"] = [one and one / over for one in _numbers(paid)]
        out.append({**facts, "tokens": listed})
    return out


def _numbers(listed: Any) -> list[float | None]:
    entries = as_list(listed, objects=True) or ()
    try:
        numbers = [to_number(one) for one in entries]
    except (ValueError, TypeError) as problem:
        raise ContractError(f"What a market paid cannot be read: {problem}.") from None
    return [None if math.isnan(one) else one for one in numbers]


def _in_dollars(paid: Sequence[float | None]) -> list[float] | None:
    """What each token of a market paid [USD]; None if that is not known, ContractError for another sum than one."""
    known = [one for one in paid if one is not None]
    if len(known) < len(paid) or not any(known):
        return None
    unit = next((unit for unit in _UNITS if abs(sum(known) - unit) <= unit * _ROUNDED), None)
    if unit is None:
        raise ContractError(
            f"The tokens of a market paid {known}, which sum to {sum(known):g}; together they pay 1 (100 cents, "
            "1,000,000 millionths)."
        )
    return [one / unit for one in known]


def _with_payoffs(row: Mapping[str, Any]) -> Row:
    """The row with the payoffs that its payouts tell."""
    if row.get("payouts") is None or row.get("payoffs") is not None:
        return dict(row)
    return {**row, "payoffs": _in_dollars(_numbers(row["payouts"])) if _is_final(row) else None}


def _is_final(row: Mapping[str, Any]) -> bool:
    """Whether nothing in a row denies that what it paid is final."""
    state = word(str(row.get("status") or row.get("state") or ""))
    return state in ("resolved", "settled", "finalized", None) and not any(
        FLAG_TEXTS.get(str(row.get(name)).strip().lower()) is False for name in _FLAGS
    )


def _with_result(record: Row, row: Mapping[str, Any]) -> Row:
    """The record that a venue's names told, with the result and the state that the row names itself."""
    own = {name: row[name] for name in _RESULT if row.get(name) not in (None, "")}
    if isinstance(own.get("payoffs"), str):
        own["payoffs"] = _numbers(own["payoffs"])
    if record.get("payoffs") is None:
        record = {**record, **own}
        if own.get("payoffs") and len(own["payoffs"]) == len(record.get("tokens") or ()) and _is_final(row):
            record = polymarket.with_payoffs(record, own["payoffs"])
    else:
        won = [record.get(name) for name in _RESULT[:2]]
        if wrong := [own[name] for name in _RESULT[:2] if name in own and str(own[name]) not in won]:
            raise ContractError(f"its winner is {wrong[0]!r}, and its prices or its result say {won[1] or won[0]!r}.")
    said = row.get("status") or row.get("state")
    if not isinstance(said, str) or "venue_status" in record:  # Kalshi's own word, which its reader has read
        return _resolved(record, row)
    state = _STATES.get(said.strip().casefold(), said)
    known = [one for one in (record.get("status"), state) if one in _IN_ORDER]
    return {**record, "status": max(known, key=_IN_ORDER.index) if state in _IN_ORDER else state}


def _resolved(record: Row, row: Mapping[str, Any]) -> Row:
    """The record, resolved if the row only says that it is."""
    if not any(_is_true(row, name) for name in _FLAGS):
        won = with_winner(record).get("resolved_token_id") is not None
        return {**record, "status": "resolved"} if won else record
    return {**record, "status": "resolved"}


def _is_true(row: Mapping[str, Any], name: str) -> bool:
    """Whether a flag is true; another value, such as a time, is no flag."""
    return FLAG_TEXTS.get(str(row.get(name)).strip().lower()) is True


def _read(row: Row) -> Row:
    has_other_id = not row.keys().isdisjoint({"id", "market_id", "conditionId", "condition_id"})
    ticker = row.get("market_ticker") or row.get("ticker")
    if not ticker and str(row.get("market_id")).startswith("KX"):
        ticker = row.pop("market_id")
    if ticker and (row.get("event_ticker") or str(ticker).startswith("KX") or not has_other_id):
        return kalshi.market(
            {name: value for name, value in row.items() if name != "market_ticker"} | {"ticker": ticker}
        )
    row = _with_tokens(_flagged(polymarket.with_own_tokens(row)))
    condition = row.get("conditionId") or row.get("condition_id")
    if "market_id" not in row and not condition and {"conditionId", "condition_id"} & row.keys():
        raise ContractError("its condition id is empty.")
    if condition and "market_id" not in row:
        return polymarket.market(row)
    named = {"market_id" if name == first(row, MARKET_IDS[:4]) else name: v for name, v in row.items()}
    named.setdefault("market_id", named.get("id") or named.get("market_slug") or named.get("slug"))
    if named.get("market_id") in (None, ""):
        raise ContractError("it has no id.")
    if question := first(named, _QUESTIONS):
        named.setdefault("question", named[question])
    if "market_slug" in named:
        named.setdefault("slug", named["market_slug"])
    named["market_id"] = polymarket.condition_of(str(named["market_id"]))
    for name in ("tags", "payoffs"):
        if isinstance(named.get(name), str):
            named[name] = as_list(named[name])
    said = str(named.get("resolution")).strip().title()
    is_over = any(_is_true(named, name) for name in _FLAGS) or first(named, _RESOLVED_AT) is not None
    if is_over and any(said in pair for pair in OUTCOME_PAIRS):
        named.setdefault("resolved_token_label", said)
    if "outcomes" in named and "token_ids" in named:
        named["token_labels"] = named.pop("outcomes")
    return named


def _flagged(row: Row) -> Row:
    """The row with flags as truth values: files have 0 and 1, and texts."""
    return {
        name: truth(name, value) if name in ("closed", "active", "archived") else value for name, value in row.items()
    }


def _with_tokens(row: Row) -> Row:
    """The row with the ids of its tokens as ``token_ids`` and their labels as ``outcomes``, both lists."""
    tokens = row.get("tokens")
    if isinstance(tokens, str):
        tokens = as_list(tokens, objects=True)
        row = {**row, "tokens": tokens}
    if isinstance(tokens, list) and tokens and isinstance(tokens[0], dict) and "token_id" in tokens[0]:
        if "conditionId" in row or ("condition_id" in row and "market_id" not in row):
            return row
        ids, labels = [str(t["token_id"]) for t in tokens], [t.get("outcome") for t in tokens]
        won = [token for t, token in zip(tokens, ids, strict=True) if _is_true(t, "winner")]
        of_winner = {"winning_token_id": won[0]} if len(won) == 1 else {}
        rest = {n: v for n, v in row.items() if n != "tokens"}
        return {**of_winner, **rest, "token_ids": ids, "token_labels": labels}
    pair = tokens_of_outcomes(row)
    if pair and not first(row, _LISTS) and all(row[column] for column in pair.values()):
        row = {n: v for n, v in row.items() if n not in (*pair.values(), *_LABELS)} | {
            "token_ids": [str(row[column]) for column in pair.values()],
            "outcomes": as_list(row.get(first(row, _LABELS) or "")) or [*pair],
        }
    name = first(row, _LISTS)
    numbered = {int(m[1]): m.group() for m in map(_TOKEN_OF_OUTCOME.fullmatch, row) if m and _is_id(m.group())}
    if name and row[name] is not None:
        ids, used = [str(one) for one in as_list(row[name]) or ()], [name]
    elif numbered and "tokens" not in row:
        ids, used = [str(row[c]) for _, c in sorted(numbered.items()) if row[c] is not None], [*numbered.values()]
    else:
        return {**row, "outcomes": as_list(row["outcomes"])} if isinstance(row.get("outcomes"), str) else row
    names = [first(row, _LABEL_OF_OUTCOME.format(number).split()) for number in sorted(numbered)]
    labels = as_list(row.get(first(row, _LABELS) or "")) or [str(row[n]) for n in names if n is not None]
    labels = [str(label) for label in labels] if len(labels) == len(ids) else ids
    facts = {}
    for name, given in (("outcomePrices", "outcome_prices"), ("uma_resolution_status", "resolution_status")):
        if (said := row.get(name) or row.get(given)) is not None:
            facts[given] = as_list(said) if given == "outcome_prices" else said
    rest = {n: v for n, v in row.items() if n not in (*used, *_LABELS, "outcomePrices", *facts)}
    return {**rest, "token_ids": ids, "outcomes": labels, **facts}


def _is_id(name: str) -> bool:
    return name.endswith("_id") or re.fullmatch(r"token_?\d+", name) is not None


def tokens_of_outcomes(columns: Iterable[str]) -> dict[str, str]:
    """The columns of the tokens of both outcomes by their labels, such as ``yes_token_id``; empty without both."""
    matches = [match for match in map(_TOKEN_OF_LABEL.fullmatch, columns) if match]
    columns_of = {(match[1] or match[2]).title(): match.group() for match in matches}
    pairs = [{label: columns_of[label] for label in pair if label in columns_of} for pair in OUTCOME_PAIRS]
    return next((pair for pair in pairs if len(pair) == len(OUTCOME_PAIRS[0])), {})


def first(present: Iterable[str], names: Iterable[str]) -> str | None:
    """The first of ``names`` that is present."""
    present = set(present)
    return next((name for name in names if name in present), None)


def as_list(value: Any, *, objects: bool = False) -> list[Any] | None:
    """A list of texts from JSON, from a list as Python prints it, or from words with commas; None for nothing."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    found = value
    if isinstance(value, str):
        found = _json(value)
        if isinstance(found, str):  # JSON inside of JSON
            found = _json(found)
        if not isinstance(found, list):
            try:
                found = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                found = [part.strip() for part in value.split(",")]
    entries = list(found) if isinstance(found, list | tuple) else [found]
    return entries if objects else [str(entry) for entry in entries]


def _json(text: str) -> Any:
    """The value of JSON, None for another text."""
    try:
        return msgspec.json.decode(text.encode())
    except (RecursionError, ValueError):
        return None
