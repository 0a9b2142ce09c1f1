"""The reference decoder: one Python value at a time. It raises the errors, and the fast one is compared with it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from marketdata.errors import ContractError
from marketdata.points.columns import Books, Data, Floats, Ints, Series, Token
from marketdata.points.views import VIEWS, View, ViewSpec
from marketdata.times import Range, parse_iso

# The type that a value is to have.
T = TypeVar("T")
# A loaded object.
Json = dict[str, Any]
# A number as text.
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# A time with a zone.
_HAS_ZONE = re.compile(r"([Zz]|[+-]\d\d:?\d\d|[+-]\d\d)$", re.ASCII)
# A time with digits that microseconds do not hold.
_BELOW_MICRO = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)
# An escape of a text: two surrogates that are one character, one alone (the group), or any other.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.ASCII | re.DOTALL)


def load(body: bytes, notes: Counter[str] | None = None) -> Any:
    """The JSON of a body, strictly RFC 8259, UTF-8, every key once; else a ContractError.

    Half a surrogate pair, of a text that was cut, is read as U+FFFD and counted in ``notes``.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ContractError(f"The answer is not UTF-8 text: byte {problem.start} cannot be read.") from None
    whole = _ESCAPE.sub(lambda escape: r"\ufffd" if escape[1] else escape[0], text) if "\\u" in text else text
    if notes is not None and whole != text:
        notes["half_surrogate"] += 1
    text = whole
    try:
        return _STRICT.decode(text)
    except ContractError:
        raise
    except (ValueError, RecursionError) as problem:
        start = " ".join(text[:200].split())
        raise ContractError(f"The answer is not JSON: {str(problem)[:200]}. It starts: {start!r}") from None


def read_points(view: View, top: Json, grouped: bool, rng: Range | None, notes: Counter[str]) -> Data:
    """The points of a loaded body (``grouped``: by label); ContractError with the path of the first wrong value."""
    market, data = top["market_id"], top.get("data")
    if not VIEWS[view].has_tokens:
        name, points = "data", data
        if isinstance(data, dict) and len(data) == 1:  # the points of a market may have a name there
            name, points = next((f"data.{key}", value) for key, value in data.items())
        groups = [(Token(market), name, points)]
    elif not grouped:
        groups = [(Token(market, top["token_id"], top.get("token_label")), "data", data)]
    else:
        ids = top["tokens"]
        labelled = _expect(data, dict, "data").items()
        groups = [(Token(market, ids.get(label), label), f"data.{label}", points) for label, points in labelled]
        notes.update("label_without_token" for token, *_ in groups if token.token_label not in ids)
    return _Reader(rng, notes).rows(view, groups)


class _Reader:
    def __init__(self, rng: Range | None, notes: Counter[str]) -> None:
        self.rng = rng
        self.notes = notes

    def rows(self, view: View, groups: list[tuple[Token, str, Any]]) -> Data:
        lists = [(path, _expect(group, list, path)) for _, path, group in groups]
        points = [(f"{path}[{k}]", point) for path, group in lists for k, point in enumerate(group)]
        ts = np.array([self.time(_expect(point, dict, where), where) for where, point in points], np.int64)
        bounds = np.append(0, np.cumsum([len(group) for _, group in lists], dtype=np.int64))
        out: Data
        if VIEWS[view].columns is Books:
            out = Books.of_levels((), bounds, ts, *self.books(points))
        else:
            out = Series((), bounds, ts, self.numbers(points, VIEWS[view]))
        return out.of_tokens([token for token, *_ in groups], bounds)

    def books(self, points: list[tuple[str, Json]]) -> tuple[Ints, Floats, Floats]:
        counts: list[int] = []
        levels: list[tuple[float, float]] = []
        for where, point in points:
            for side in ("bids", "asks"):
                path = f"{where}.{side}"
                if side not in point:
                    _off(path, "is missing")
                pairs = point[side]
                if pairs is None:
                    self.notes["null_side"] += 1
                    pairs = []
                for k, pair in enumerate(_expect(pairs, list, path)):
                    levels.append(self.level(pair, f"{path}[{k}]"))
                counts.append(len(pairs))
            self.unknown(set(point) - {"t", "bids", "asks"})
        price, size = np.array(levels, np.float64).reshape(-1, 2).T
        return np.array(counts, np.int64), price, size

    def level(self, pair: object, path: str) -> tuple[float, float]:
        if not isinstance(pair, list) or len(pair) < 2:
            _off(path, f"is {_short(pair)}, not a [price, size] pair")
        if len(pair) > 2:
            self.notes["level_with_more_than_two_numbers"] += 1
        return self.number(pair[0], f"{path}[0]"), self.number(pair[1], f"{path}[1]")

    def numbers(self, points: list[tuple[str, Json]], spec: ViewSpec) -> dict[str, Floats]:
        """The named fields as float columns, then every further field that is a number."""
        out = {}
        for name, column in spec.fields.items():
            if not spec.optional and (lacking := next((where for where, point in points if name not in point), None)):
                _off(f"{lacking}.{name}", "is missing")
            self.notes.update("metric_missing" for _, point in points if name not in point)
            found = [self.number(point.get(name), f"{where}.{name}") for where, point in points]
            out[column] = np.array(found, np.float64)
        for name in dict.fromkeys(k for _, point in points for k in point if k != "t" and k not in spec.fields):
            values = [point.get(name) for _, point in points]
            if name in out or not all(v is None or type(v) in (int, float) for v in values):
                self.unknown({name})
            else:
                out[name] = np.array([self.number(v, name) for v in values], np.float64)
        return out

    def unknown(self, names: set[str]) -> None:
        self.notes.update(f"unknown_field:{name[:40]}" for name in names)

    def number(self, value: Any, path: str) -> float:
        if type(value) is str and _NUMBER.fullmatch(value):
            self.notes["number_as_text"] += 1
            value = float(value)
        if value is None and not path.endswith("]"):
            return math.nan
        if type(value) not in (int, float):
            _off(path, f"is {_short(value)}, not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            _off(path, "is beyond the range of a number")
        return number

    def time(self, point: Json, where: str) -> int:
        value: Any = point.get("t")
        path = f"{where}.t"
        if type(value) in (int, float):
            self.notes["time_as_number"] += 1
            return self.numeric_time(value, path)
        if type(value) is not str:
            _off(path, f"is {_short(value)}, not an ISO 8601 text")
        try:
            micros = parse_iso(value)
        except ValueError as problem:
            _off(path, str(problem))
        if not _HAS_ZONE.search(value[10:]):
            self.notes["time_without_zone"] += 1
        if _BELOW_MICRO.search(value):
            self.notes["time_below_a_microsecond"] += 1
        return micros

    def numeric_time(self, value: float, path: str) -> int:
        scale = 1_000_000 if 1e8 <= value < 1e11 else 1_000 if 1e11 <= value < 1e14 else 0
        micros = round(value * scale)
        if not scale or (self.rng is not None and not self.rng.start <= micros < self.rng.end):
            _off(path, f"is the number {_short(value)}, which is not a time inside the requested range")
        return micros


def _expect(value: object, kind: type[T], path: str) -> T:
    if not isinstance(value, kind):
        _off(path, f"is {_short(value)}, not {'an object' if kind is dict else 'a list'}")
    return value


def _off(path: str, what: str) -> NoReturn:
    raise ContractError(f"The answer does not follow the interface: {path} {what}.")


def _short(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:  # as deep as can be read, and not written
        text = str(type(value).__name__)
    return text if len(text) <= 60 else text[:57] + "..."


def _once(pairs: list[tuple[str, Any]]) -> Json:
    out = dict(pairs)
    if len(out) != len(pairs):
        twice = next(k for k, n in Counter(k for k, _ in pairs).items() if n > 1)
        raise ContractError(f"The answer contains the key {twice[:80]!r} twice in one object.")
    return out


def _refuse(name: str) -> Callable[[str], float]:
    raise ContractError(f"The answer contains {name}, which is not JSON.")


_STRICT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
