"""Batches that are as good as their members: those that are odd or refused are left out, and counted by reason."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from marketdata.errors import BadRequestError, ContractError, MarketDataError, NotFoundError, ParameterError

T = TypeVar("T")
R = TypeVar("R")
LeftOut = dict[str, list[str]]
# What left out members are noted in; without it they are left out in silence, because what follows asks for each alone.
_NOTED: ContextVar[LeftOut | None] = ContextVar("marketdata_left_out", default=None)
# Refusals that may be about one member alone.
REFUSED = (BadRequestError, ParameterError, NotFoundError)
_NAMES = ("slug", "ticker", "conditionId", "event_ticker", "id")


class Distinct:
    """Records by their id, the newest of two. One that has the id of another record, with another slug, is left out."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}

    def add(self, name: Any, row: dict[str, Any]) -> None:
        """Take a record."""
        before = self.rows.get(name, row).get("slug")
        if before is not None and row.get("slug") not in (before, None):
            leave_out("it has the id of another record", str(row["slug"]))
        else:
            self.rows[name] = row


@contextmanager
def noted() -> Iterator[LeftOut]:
    """Collect the names of what is left out meanwhile, by reason."""
    left_out: LeftOut = {}
    token = _NOTED.set(left_out)
    try:
        yield left_out
    finally:
        _NOTED.reset(token)


def leave_out(reason: str, name: str) -> None:
    """Note a member that is left out."""
    if (left_out := _NOTED.get()) is not None:
        names = left_out.setdefault(reason, [])
        names += [] if name in names else [name]


def readable(read: Callable[[Mapping[str, Any]], R], rows: Iterable[Mapping[str, Any]]) -> Iterator[R]:
    """What can be read of each row; the others are left out."""
    for row in rows:
        try:
            record = read(row)
        except ContractError as error:
            names = [str(row[name]) for name in _NAMES if row.get(name)]
            reason = str(error)
            for name in names:
                reason = reason.replace(name, "...")
            leave_out(reason, names[0] if names else f"without a name: {str(row)[:80]}")
        else:
            yield record


def halved(items: Sequence[T], size: int, ask: Callable[[Sequence[T]], R]) -> Iterator[R]:
    """The answers about items, so many a request. One that is refused is asked by halves, to find who is refused.

    If many requests in a row are refused, no member is to blame: the error is raised, and an unknown batch left out.
    """
    batches = deque(items[first : first + size] for first in range(0, len(items), size))
    while batches:
        todo, refused = deque([batches.popleft()]), 0
        most = 2 * len(todo[0]).bit_length() + 2
        while todo:
            some = todo.popleft()
            try:
                answer = ask(some)
            except REFUSED as error:
                refused += 1
                if len(some) == 1:
                    _note_refused(error, str(some[0]))
                elif refused <= most:
                    todo.extendleft([some[len(some) // 2 :], some[: len(some) // 2]])
                elif not isinstance(error, NotFoundError):
                    raise
            else:
                refused = 0
                yield answer


def _note_refused(error: MarketDataError, name: str) -> None:
    """Leave out what a venue refused alone; what it does not know is not counted."""
    if not isinstance(error, NotFoundError):
        leave_out(f"refused: {getattr(error, 'detail', '') or error}", name)
