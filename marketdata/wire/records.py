"""Market records in any form: of venues, of services, and of the tables of others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from marketdata.errors import ContractError
from marketdata.points.records import truth, with_winner
from marketdata.wire import kalshi, polymarket

Row = dict[str, Any]
OUTCOME_PAIRS = (("Yes", "No"), ("Up", "Down"))
_OUTCOME_WORD = f"({'|'.join(word for pair in OUTCOME_PAIRS for word in pair)})"
_TOKEN_OF_LABEL = re.compile(
    rf"{_OUTCOME_WORD}_?(?:clob_?)?(?:token|asset)(?:_?id)?|(?:clob_?)?(?:token|asset)_?(?:id_?)?{_OUTCOME_WORD}",
    re.IGNORECASE,
)
_TOKEN_OF_OUTCOME = re.compile(r"(?:outcome|token)_?(\d+)(?:_(?:token_)?id)?")
_LABEL_OF_OUTCOME = "outcome_{0}_label outcome_{0} answer{0} answer_{0} label_{0}"
_LISTS = ("token_ids", "clob_token_ids", "clobTokenIds", "position_ids", "positionIds", "token_ids_json",
          "clob_token_ids_json", "asset_ids", "assets_ids")  # fmt: skip
_IDS = ("market_id", "condition_id", "market")
_LABELS = ("token_labels", "outcomes", "outcomes_json")
_QUESTIONS = ("question", "title", "market_question")


def is_ours(row: Mapping[str, Any]) -> bool:
    """Whether a row has the names of the interface, or of our frames, and lists of tokens."""
    tokens = row.get("tokens")
    has_tokens = isinstance(tokens, list | tuple) and all(isinstance(t, Mapping) and "id" in t for t in tokens)
    is_listed = "market_id" in row and isinstance(row.get("token_ids"), list | tuple)
    return ("id" in row and has_tokens) or (is_listed and not isinstance(row.get("token_labels"), str))


def market(row: Mapping[str, Any]) -> Row:
    """A market record in any form, as venues, services and files have it, under the names that an archive takes."""
    return with_winner(row if is_ours(row) else _read(dict(row)))


def _read(row: Row) -> Row:
    has_other_id = not row.keys().isdisjoint({"id", "market_id", "conditionId", "condition_id"})
    if row.get("ticker") and (row.get("event_ticker") or str(row["ticker"]).startswith("KX") or not has_other_id):
        return kalshi.market(row)
    row = _with_tokens(_flagged(polymarket.with_own_tokens(row)))
    condition = row.get("conditionId") or row.get("condition_id")
    if "market_id" not in row and not condition and {"conditionId", "condition_id"} & row.keys():
        raise ContractError("its condition id is empty.")
    if condition and "market_id" not in row:
        return polymarket.market(row)
    named = {"market_id" if name == first(row, _IDS) else name: v for name, v in row.items()}
    named.setdefault("market_id", named.get("id") or named.get("slug"))
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
        return {n: v for n, v in row.items() if n != "tokens"} | {"token_ids": ids, "token_labels": labels}
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
