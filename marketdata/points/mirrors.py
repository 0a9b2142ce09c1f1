"""The two tokens of a market are one forecast: which of them stands for the market, and which rows repeat its rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import MixedLabelsWarning, NotTidyError, warn
from marketdata.points.columns import Ints
from marketdata.points.order import distinct

# Market, token and label, as a `Token` has them.
Ids = tuple[str | None, ...]
# The tokens of each market in the order of its record, or a set of them, which has no order.
Records = Mapping[str, Collection[str]]
_FIRST_LABELS = ("yes", "y", "up", "over", "above", "higher", "long", "true", "home")
_LAST_LABELS = ("no", "n", "down", "under", "below", "lower", "short", "false", "away")
_OPPOSITES = dict(zip(_FIRST_LABELS + _LAST_LABELS, _LAST_LABELS + _FIRST_LABELS, strict=True))


class Mirrors(NamedTuple):
    """Rows of the other token that are left out, and the rows of the same time that they repeat."""

    left_out: NDArray[np.bool_]
    repeated: NDArray[np.bool_]


class _Pair(NamedTuple):
    """The two tokens of a market, the one that stands for it first; not ``known`` if nothing says which one does."""

    tokens: Sequence[str | None]
    known: bool


def label_rank(label: str | None) -> tuple[int, str]:
    """The place of a label among the labels of a market: Yes before No, Up before Down, others by the alphabet."""
    text = (label or "").casefold()
    return (text in _LAST_LABELS) - (text in _FIRST_LABELS), text


def has_a_third(labels: Sequence[str | None]) -> bool:
    """Whether two labels say that their market has a third one: Yes beside another than No, or Draw beside Home."""
    texts = [(label or "").casefold() for label in labels]
    return all(texts) and any(_OPPOSITES.get(a, b) != b for a, b in (texts, texts[::-1]))


def are_opposite(one: str | None, other: str | None) -> bool:
    """Whether two labels are the two of one question: Yes and No, Up and Down."""
    return _OPPOSITES.get((one or "").casefold()) == (other or "").casefold() != ""


def place_in_market(token: str | None, label: str | None, record: Sequence[str] = ()) -> tuple[Any, ...]:
    """The place of a token in its market: by the ids of the market's record, else by its label."""
    place = record.index(token) if token in record else len(record)
    return place, *label_rank(label), token or ""


def mirrors(tokens: Sequence[Ids], token: NDArray[np.integer], ts: Ints, records: Records) -> Mirrors:
    """The rows of the second token of a market where the first one has a row of the same time.

    ``token`` is the number of the token of each row. All rows count of a market with one token, or with three or more.
    NotTidyError where neither a record nor labels say which of two tokens is the first.
    """
    pairs = _pairs(tokens, records)
    place = {market: i for i, market in enumerate(pairs)}
    of_market = np.array([place.get(market, -1) for market, *_ in tokens], np.int64)
    of_first = np.array([market in pairs and pairs[market].tokens[0] == name for market, name, _ in tokens], bool)
    left_out, repeated = np.zeros((2, len(ts)), bool)
    paired = np.flatnonzero(of_market[token] >= 0)
    times, time = distinct(ts[paired])
    moment, is_first = of_market[token[paired]] * len(times) + time, of_first[token[paired]]
    _, moment = distinct(moment)
    count = int(moment.max(initial=-1)) + 1
    has_first = np.bincount(moment[is_first], minlength=count) > 0
    has_second = np.bincount(moment[~is_first], minlength=count) > 0
    left_out[paired], repeated[paired] = ~is_first & has_first[moment], is_first & has_second[moment]
    for number in np.unique(token[left_out]).tolist():
        _refuse_unknown(tokens[number][0], pairs)
    return Mirrors(left_out, repeated)


def warn_of_mixed_labels(tokens: Sequence[Ids], standing: NDArray[np.integer]) -> None:
    """MixedLabelsWarning if the tokens that stand for their markets, by their numbers, have different labels."""
    counts = Counter({tokens[i][0]: tokens[i][2] for i in np.unique(standing).tolist()}.values())
    if len({(label or "").casefold() for label in counts}) > 1:
        shown = ", ".join(f"{label!r} in {count}" for label, count in counts.most_common(3))
        further = f" and {len(counts) - 3} further labels" if len(counts) > 3 else ""
        warn(
            f"The tokens that stand for their markets have different labels: {shown}{further} of {counts.total()} "
            "markets. A mean over them has one sign only if these labels mean the same.",
            MixedLabelsWarning,
            hint="Keep the rows of one token of each market, or study markets of each label alone.",
        )


def _pairs(tokens: Sequence[Ids], records: Records) -> dict[str | None, _Pair]:
    """The markets of two tokens."""
    labels: dict[str | None, dict[str | None, str | None]] = defaultdict(dict)
    for market, token, label in tokens:
        labels[market][token] = label or labels[market].get(token)
    return {
        market: _pair(of_tokens, records.get(market or "", ()))
        for market, of_tokens in labels.items()
        # A frame may have two tokens of a market of three, and these are different forecasts.
        if len(of_tokens) == 2 and len(records.get(market or "", ())) <= 2
    }


def _pair(labels: Mapping[str | None, str | None], record: Collection[str]) -> _Pair:
    ids = record if isinstance(record, Sequence) and labels.keys() == {*record} else ()
    ordered = sorted(labels, key=lambda token: place_in_market(token, labels[token], ids))
    return _Pair(ordered, bool(ids) or len({*map(label_rank, labels.values())}) == 2)


def _refuse_unknown(market: str | None, pairs: Mapping[str | None, _Pair]) -> None:
    if not pairs[market].known:
        one, other = sorted(map(str, pairs[market].tokens))
        raise NotTidyError(
            f"Market {market!r} has rows of both of its tokens, {one!r} and {other!r}, at one time. They are mirror "
            "images, so only one of them counts, and nothing says which one. Add token_label, pass market records, or "
            "keep the rows of one token."
        )
