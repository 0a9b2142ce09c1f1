"""Market records without what was known only later."""

from __future__ import annotations

from typing import Any

from marketdata.adapters.dispatch import F, names_of, read, selected
from marketdata.errors import NotTidyError
from marketdata.points.records import TOKEN_LISTS, is_answer


def answers(markets: Any) -> list[str]:
    """Columns of a frame of market records that were known only later: outcome, closing time, status, final volume.

    Returns their names, in the order of the frame: fields that the library knows to be answers (``status closed_at
    resolved_at resolved_token_id resolved_token_label payoffs updated_at``), and further ones by their words, such as
    ``volume``, ``outcomePrices`` or ``last_trade_price``. A record has the newest value of every field, so a feature
    made of such a column looks ahead. ``end_date``, the scheduled end, is none. ``markets`` are market records of any
    frame kind; NotTidyError for a frame with ``ts``, whose rows have a time of their own (see `available_at`).

    Examples
    --------
    >>> md.answers(md.testing.markets("polars"))
    ['status', 'closed_at', 'resolved_token_id', 'resolved_token_label']
    """
    names = names_of(read(markets))
    if "ts" in names:
        raise NotTidyError("A frame with ts is history, whose rows were known by md.available_at; pass market records.")
    return [name for name in names if is_answer(name)]


def without_answers(markets: F) -> F:
    """Market records without the columns that were known only later; see `answers`.

    Returns the frame, rows as they were.

    Examples
    --------
    >>> md.without_answers(md.testing.markets("polars")).columns[:4]
    ['market_id', 'slug', 'question', 'start_date']
    """
    frame: Any = read(markets)
    left = set(answers(frame))
    names = [name for name in names_of(frame) if name not in left]
    return selected(frame, names)  # type: ignore[no-any-return]


def answers_of_records(names: list[str]) -> list[str]:
    """The answers among columns that are of market records; none of other frames, where volume is a metric."""
    return [name for name in names if is_answer(name)] if {"question", *TOKEN_LISTS} & {*names} else []
