"""Market records without the columns that leak the outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

from marketdata.adapters.dispatch import F, names_of, read, selected
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import flag, texts
from marketdata.points.records import TOKEN_LISTS, label_leaking


@overload
def without_answers(markets: F, *, keep: str | Iterable[str] = (), dry: Literal[False] = False) -> F: ...


@overload
def without_answers(markets: Any, *, keep: str | Iterable[str] = (), dry: Literal[True]) -> list[str]: ...


def without_answers(markets: F, *, keep: str | Iterable[str] = (), dry: bool = False) -> F | list[str]:
    """Market records without label-leaking columns.

    Returns the frame with the rows as they were.

    A record has the newest value of each field. A feature made of a field that changed after the market opened looks
    ahead. So only these columns stay:

    - ids, slugs, tokens, question, description, tags, category
    - the scheduled dates ``start_date`` and ``end_date``, and ``created_at``
    - whether the markets of an event exclude each other
    - ``available_at``, and the columns of ``keep``

    Parameters
    ----------
    markets
        Market records of any kind of frame. NotTidyError for a frame with ``ts``: its rows have a time of their own,
        see `available_at`.
    keep : str or list of str
        Further columns that were known when the market opened. ConfigError for a column that the frame lacks.
    dry : bool
        Return the names of the columns that would be removed, in the order of the frame.

    Examples
    --------
    >>> markets = md.testing.markets("polars")
    >>> md.without_answers(markets).columns[:4]
    ['market_id', 'slug', 'question', 'start_date']
    >>> md.without_answers(markets, dry=True)
    ['status', 'closed_at', 'resolved_token_id', 'resolved_token_label']
    """
    flag("dry", dry)
    frame: Any = read(markets)
    names = names_of(frame)
    if "ts" in names:
        raise NotTidyError("A frame with ts is history, whose rows were known by md.available_at; pass market records.")
    kept = texts("keep", keep, "the name of a column")
    if missing := [name for name in kept if name not in names]:
        raise ConfigError(f"keep names {', '.join(map(repr, missing))}, which the records lack; they have {names}.")
    removed = label_leaking(names, kept)
    if dry:
        return removed
    return selected(frame, [name for name in names if name not in removed])  # type: ignore[no-any-return]


def leaks_of_records(names: list[str]) -> list[str]:
    """The label-leaking columns of market records with times; none of a frame that has no column of records alone."""
    is_record = bool({"question", *TOKEN_LISTS} & {*names})
    return label_leaking(names, ("ts", "token_label")) if is_record else []
