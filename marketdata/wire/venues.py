"""The common part of the answers of all venues: names of other records, and books of two sides."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.decimals import to_number
from marketdata.errors import ContractError, ServiceOddityWarning, warn
from marketdata.points.columns import Books, Floats, Token, Trades
from marketdata.points.probability import no_probability
from marketdata.times import moment_text

NOTHING: tuple[object, ...] = (None, "", "[]", [])
_DATES = ("start_date", "end_date", "closed_at", "resolved_at", "created_at", "updated_at", "game_start_time")


def renamed(row: Mapping[str, Any], names: Mapping[str, str], numbers: Iterable[str] = ()) -> dict[str, Any]:
    """A row under the names of our records: times as ISO texts, ``numbers`` as numbers, and the rest unchanged.

    If two fields get the same name, the last one with a value counts. ContractError for a time that is none.
    """
    if not isinstance(row, Mapping):
        raise ContractError(f"A record is no object: {str(row)[:80]!r}.")
    out: dict[str, Any] = {}
    for given, value in row.items():
        if (name := names.get(given, given)) not in out or value not in NOTHING:
            out[name] = value
    for name in (name for name in _DATES if name in out):
        try:
            out[name] = moment_text(out[name])
        except ValueError as problem:
            raise ContractError(f"The {name} of a record is no time: {problem}.") from None
    for name in (name for name in numbers if name in out):
        out[name] = _number(out[name], name)
    return out


def word(value: str | None) -> str | None:
    """A word of a venue without case and spaces; None for an empty one and for null as programs print it."""
    said = "" if value is None else value.strip().casefold()
    return None if said in ("", "none", "null", "nan", "<na>") else said


def say_unknown(what: str, said: object, known: Iterable[str]) -> None:
    """Warn of a word that decides an outcome and is not known."""
    problem = f"The {what} of a market is {str(said)[:40]!r}; known are {', '.join(known)}. Its outcome is not known."
    warn(problem, ServiceOddityWarning)


def is_id(value: object) -> bool:
    """Whether a value may be an id: digits, or a visible text that is no number, as Infinity and 0_1 are."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or re.fullmatch("[!-~]{1,200}", text) is None:
        return False
    try:
        float(text)
    except ValueError:
        return word(text) is not None
    return text.isdigit()


def refuse_no_text(row: Mapping[str, Any], names: Iterable[str], kind: str) -> None:
    """ContractError for a field of a record that is neither a text nor null."""
    for name in names:
        if not isinstance(said := row.get(name), str | None):
            raise ContractError(f"The {name} of a record of {kind} is {str(said)[:80]!r}; it is a text.")


def _number(value: Any, name: str) -> float | None:
    """A number that a record states; None for what is none, which would sort as a text, with a warning."""
    try:
        is_none = isinstance(value, float) and math.isnan(value)
        return None if is_none or math.isnan(number := to_number(value)) else number
    except ValueError:
        warn(f"The {name} of a record is {str(value)[:40]!r}, which is no number; it is null.", ServiceOddityWarning)
        return None


def as_of_now(record: Mapping[str, Any], bid: Any, ask: Any, last: Any, **numbers: Any) -> dict[str, Any]:
    """The numbers of a record that are true of the moment at which it was read, as far as it has them.

    The price is the mid of the best quotes of the first token, else its last trade, and none if the market is over.
    """
    out = {name: read for name, value in numbers.items() if (read := _number(value, name)) is not None}
    quotes = [one for one in (_number(bid, "best bid"), _number(ask, "best ask")) if one is not None and 0 < one < 1]
    price = sum(quotes) / 2 if len(quotes) == 2 else _number(last, "last price")
    if record.get("status") not in ("closed", "resolved") and price is not None and 0 < price < 1:
        out["price_now"] = round(price, 6)
    return out


def books_of(
    tokens: Sequence[Token],
    ts: Sequence[int],
    sides: Sequence[tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]]],
    values: Mapping[str, NDArray[Any]] | None = None,
) -> Books:
    """Books at times [microseconds UTC] from (price, size) of bids and of asks, in any order; size 0 is no level."""
    each = [[level for level in side if level[1] > 0] for book in sides for side in book]
    flat = np.array([level for side in each for level in side], float).reshape(-1, 2)
    head = (), np.zeros(1, np.int64), np.array(ts, np.int64), np.array([*map(len, each)], np.int64)
    books, _ = Books.of_levels(*head, flat[:, 0], flat[:, 1], values).best_first()
    return books.grouped(tokens, np.arange(len(tokens))).sort()


# What programs call the side of a trade, which is what the taker did.
TRADE_SIDES = {
    **dict.fromkeys(("buy", "b", "bid", "bought", "buyer"), "buy"),
    **dict.fromkeys(("sell", "s", "ask", "a", "sold", "seller"), "sell"),
}
_NUMBERS = ("price", "size", "fee", "is_block")  # a flag is 1 and 0, NaN where it is not known
_ALWAYS = ("side", "price", "size", "trade_id", "transaction_hash")


def prints(tokens: Sequence[Token], ts: Sequence[int], values: Mapping[str, Sequence[object] | Floats]) -> Trades:
    """Prints by rows, from the token, time [microseconds UTC] and values of each; the newest may come first.

    Prints of one time keep their order. Values that no print has are left out, but for those that every print may have.
    ContractError for a price that is below 0 or above 1.
    """
    price = np.array(values["price"], float)
    if len(wrong := price[no_probability(price)]):
        raise ContractError(f"The price of a trade is {wrong[0]:g}; prices are dollars from 0 to 1.")
    if len(ts) and ts[0] > ts[-1]:
        tokens, ts = tokens[::-1], ts[::-1]
        values = {name: of_prints[::-1] for name, of_prints in values.items()}
    place = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    columns = {
        name: np.array(of_prints, float if name in _NUMBERS else object)
        for name, of_prints in values.items()
        if name in _ALWAYS or not all(value is None or value != value for value in of_prints)  # noqa: PLR0124 NaN
    }
    return Trades.of([*place], np.array([place[t] for t in tokens], np.int64), np.array(ts, np.int64), columns)
