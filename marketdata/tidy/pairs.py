"""Pairs of markets of two venues that may be one contract: what their records say, and which pairs to look at."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import as_kind_of
from marketdata.adapters.frame import Column, Native, Texts
from marketdata.adapters.polars import typed
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import number, whole
from marketdata.points.pairs import FACETS, Comparison, Finding, Orientation, Terms, Verdict, are_far_apart, compare
from marketdata.points.records import FLAG_TEXTS, names_of
from marketdata.tidy.venue_records import read_records, rows_of
from marketdata.wire.terms import terms_of, words_of

_SIDES = ("a", "b")
_VERDICTS = ("same", "differs", "unknown")
# Words that questions of any subject have.
_COMMON = frozenset(
    ("a", "an", "and", "are", "at", "be", "by", "for", "from", "in", "is", "it", "of", "on", "or", "than", "the",
     "this", "to", "what", "when", "which", "who", "will", "with")
)  # fmt: skip
_ALLOWED = 'a frame, or a list of pairs of names, such as [("slug-of-a", "TICKER-OF-B")]'


class _Stated(NamedTuple):
    """What a table says of one pair."""

    names: tuple[str, str]
    orientation: Orientation | None
    confirmed: bool
    facets: Mapping[str, Verdict]


def pairs(table: Any, records: Any) -> Any:
    """What the records of two venues say of pairs of markets that may be one contract.

    Nothing is the same by its title. A pair is ``same`` if each term that decides is known to be equal, or if you say
    that you have read both rules (``confirmed``) and nothing contradicts you. It ``differs`` as soon as one term does,
    whatever the table says. Else it is ``unknown``, and ``unknown`` says what to read.

    Parameters
    ----------
    table : frame or list of pairs
        The pairs that you have in mind: ``market_a`` and ``market_b`` are ids or slugs. Tokens that pay alike,
        ``token_a`` and ``token_b``, may take their place, and so may a list of pairs of names. Further columns:

        - ``orientation``: "same" if Yes of one is Yes of the other, "inverted" if it is No.
        - ``confirmed``: true if a person has read the rules of both.
        - one of the terms below, such as ``source``: "same" if you know that it is, "differs", or null.
    records : frame, or pair of frames
        Market records of both venues, in any form.

    Returns
    -------
    frame
        One row per pair, in the order of the table; of the kind of ``records``.

        - ``market_a market_b question_a question_b``.
        - ``token_a``, ``token_b``: the first token of a, and the token of b that pays alike; null where unknown.
        - ``orientation``: "same", "inverted", or null.
        - ``verdict``: "same", "differs" or "unknown".
        - ``differs``, ``unknown``: the terms that differ, and those that nobody knows, with commas.
        - ``deadline close source rules strike comparison tie exclusive outcome``: the verdict of each term.
        - ``why``: what was compared, in words.

    Raises
    ------
    ConfigError
        The table has no such columns, or names a market that no record has.
    NotTidyError
        A record is not one of a market.

    Examples
    --------
    >>> markets = pl.DataFrame({
    ...     "market_id": ["poly", "kalshi"],
    ...     "question": ["Will it rain before April 1, 2026?", "Will it rain by April 1, 2026?"],
    ...     "token_ids": [["1", "2"], ["3", "4"]],
    ...     "token_labels": [["Yes", "No"], ["Yes", "No"]],
    ... })
    >>> found = md.pairs([("poly", "kalshi")], markets)
    >>> found.select("verdict", "differs").rows()
    [('differs', 'deadline')]
    """
    like, found = _terms(records)
    rows = []
    for stated in _stated(table):
        a, b = (_named(name, found) for name in stated.names)
        compared = compare(a, b, _of_tokens(stated, a, b))
        rows.append((a, b, _told(compared, stated.facets), stated.confirmed))
    return _frame(like, rows)


def candidates(a: Any, b: Any, *, least: float = 0.4, most: int = 3) -> Any:
    """Pairs of markets that may be worth reading, by their words, numbers and deadlines.

    A proposal is no statement: each pair is unknown until `pairs` and a person have compared the rules, so most of
    these are false. Of 30 such candidates that somebody read, 3 were the same contract. Questions with other numbers
    are none, nor are those whose words name ends more than two days apart.

    Parameters
    ----------
    a, b : frame
        Market records of two venues, in any form.
    least : float
        The least ``score`` [0 to 1].
    most : int
        At most so many markets of b for each market of a, the most alike first.

    Returns
    -------
    frame
        One row per proposed pair, a table for `pairs`: ``market_a market_b question_a question_b``, and ``score``, the
        share of words that both questions have, rare words counted more [0 to 1]. Of the kind of ``a``.

    Examples
    --------
    >>> markets = md.testing.markets("polars")
    >>> md.candidates(markets, markets).select("market_a", "market_b", "score").rows()
    [('rain', 'rain', 1.0)]
    """
    floor, count = number("least", least, least=0.0, most=1.0), whole("most", most)
    like, firsts = _terms(a)
    _, seconds = _terms(b)
    first, second = ([*{id(t): t for t in found.values()}.values()] for found in (firsts, seconds))
    bags = [_words(one.question) for one in (*first, *second)]
    seen = Counter(word for bag in bags for word in bag)
    weight = {word: math.log((1 + len(bags)) / times) + 0.1 for word, times in seen.items()}
    having: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(second):
        for word in _words(one.question):
            having[word].append(place)
    rows = []
    for one in first:
        words = _words(one.question)
        shared: Counter[int] = Counter()
        for word in words:
            for place in having[word]:
                shared[place] += weight[word]  # type: ignore[assignment]
        scored = []
        for place, both in shared.items():
            other = second[place]
            score = both / sum(weight[word] for word in words | _words(other.question))
            is_alike = one.strikes == other.strikes and not are_far_apart(one, other)
            if score >= floor and is_alike:
                scored.append((-score, other.market, other))
        rows += [(one, other, -score) for score, _, other in sorted(scored, key=lambda row: row[:2])[:count]]
    columns: dict[str, Column] = _names([(one, other) for one, other, _ in rows])
    return _built(like, columns | {"score": np.array([score for *_, score in rows], float)}, len(rows))


def _words(question: str) -> frozenset[str]:
    """The words of a question that tell its subject; its numbers are compared as numbers."""
    words = (word for word in words_of(question).split() if not re.search(r"\d", word))
    return frozenset(re.sub(r"(?<=\w\w)(?<!s)s$", "", word) for word in words if word not in _COMMON)


def _terms(given: Any) -> tuple[Native | None, dict[str, Terms]]:
    """A frame of the records, None for a list of dicts, and the terms of each market by all its names."""
    parts = given if isinstance(given, tuple | list) and given and not isinstance(given[0], Mapping) else [given]
    found: dict[str, Terms] = {}
    for part in parts:
        for record in read_records(part):
            terms = terms_of(record)
            for name in names_of(record):
                found.setdefault(name, terms)
    return next((part for part in parts if not isinstance(part, list)), None), found


def _built(like: Native | None, columns: Mapping[str, Column], height: int) -> Native:
    return frames.new("pandas").build(columns, height) if like is None else as_kind_of(like, columns, height)


def _stated(table: Any) -> Iterator[_Stated]:
    rows = rows_of(_as_rows(table))
    if not rows:
        return
    for row in rows:
        names = tuple(row.get(f"market_{side}", row.get(f"token_{side}")) for side in _SIDES)
        if None in names:
            raise NotTidyError.from_missing("A table of pairs", ["market_a", "market_b"], sorted(row))
        said = {name: row[name] for name in FACETS if name in row and name != "orientation"}
        if wrong := {name: value for name, value in said.items() if value not in _VERDICTS}:
            problem = f"states {wrong}; allowed are same, differs and unknown."
            raise ConfigError(problem, argument="table", value=names)
        orientation = row.get("orientation")
        if orientation not in (None, "same", "inverted"):
            problem = f"has orientation={orientation!r}; allowed are same, inverted and null."
            raise ConfigError(problem, argument="table", value=names)
        confirmed = FLAG_TEXTS.get(str(row.get("confirmed", "")).strip().lower())
        yield _Stated((str(names[0]), str(names[1])), orientation, confirmed is True, said)


def _as_rows(table: Any) -> Any:
    if isinstance(table, Mapping):
        table = list(table.items())
    if isinstance(table, list | tuple) and all(isinstance(row, tuple | list) and len(row) == 2 for row in table):
        return [{"market_a": a, "market_b": b} for a, b in table]
    return table


def _named(name: str, found: Mapping[str, Terms]) -> Terms:
    if name not in found:
        import difflib

        near = difflib.get_close_matches(name, found, n=2, cutoff=0.7)
        hint = f"Similar: {', '.join(map(repr, near))}." if near else "Pass the records of both venues."
        raise ConfigError(f"names {name!r}, of which there is no record.", argument="table", value=name, hint=hint)
    return found[name]


def _of_tokens(stated: _Stated, a: Terms, b: Terms) -> Orientation | None:
    """The orientation that the table states, by itself or by tokens that pay alike."""
    places = [
        terms.tokens.index(name) for terms, name in zip((a, b), stated.names, strict=True) if name in terms.tokens
    ]
    if len(places) < 2:
        return stated.orientation
    by_tokens: Orientation = "same" if places[0] == places[1] else "inverted"
    if stated.orientation not in (None, by_tokens):
        problem = f"says {stated.orientation}, but its tokens pay alike if it is {by_tokens}."
        raise ConfigError(problem, argument="orientation", value=stated.orientation)
    return by_tokens


def _told(compared: Comparison, said: Mapping[str, Verdict]) -> Comparison:
    """A comparison with what a person says of terms that the records leave open, or that differ."""
    facets = dict(compared.facets)
    for name, verdict in said.items():
        if verdict == "differs" or facets[name].verdict == "unknown":
            facets[name] = Finding(verdict, f"{facets[name].why}; the table says {verdict}")
    return compared._replace(facets=facets)


def _frame(like: Native | None, rows: Sequence[tuple[Terms, Terms, Comparison, bool]]) -> Any:
    columns: dict[str, Column] = _names([(a, b) for a, b, *_ in rows])
    columns["token_a"] = Texts.of([a.tokens[0] if a.tokens else None for a, *_ in rows])
    columns["token_b"] = Texts.of([_other(b, compared.orientation) for _, b, compared, _ in rows])
    columns["orientation"] = typed("text", [compared.orientation for *_, compared, _ in rows])
    columns["verdict"] = typed("text", [compared.verdict(confirmed=confirmed) for *_, compared, confirmed in rows])
    for verdict in ("differs", "unknown"):
        listed = [
            ", ".join(name for name, finding in compared.facets.items() if finding.verdict == verdict)
            for *_, compared, _ in rows
        ]
        columns[verdict] = typed("text", listed)
    for name in FACETS:
        if name != "orientation":
            columns[name] = typed("text", [compared.facets[name].verdict for *_, compared, _ in rows])
    columns["why"] = typed("text", [_why(compared.facets) for *_, compared, _ in rows])
    return _built(like, columns, len(rows))


def _names(rows: Iterable[tuple[Terms, Terms]]) -> dict[str, Column]:
    firsts, seconds = ([one[side] for one in rows] for side in (0, 1))
    return {
        "market_a": Texts.of([one.market for one in firsts]),
        "market_b": Texts.of([one.market for one in seconds]),
        "question_a": typed("text", [one.question for one in firsts]),
        "question_b": typed("text", [one.question for one in seconds]),
    }


def _other(terms: Terms, orientation: Orientation | None) -> str | None:
    """The token that pays as the first token of the other market does."""
    if orientation is None or len(terms.tokens) != 2:
        return None
    return terms.tokens[0 if orientation == "same" else 1]


def _why(facets: Mapping[str, Finding]) -> str:
    return "; ".join(f"{name}: {f.verdict} ({f.why})" for name, f in facets.items() if f.why and f.verdict != "same")
