"""An answer, and asking for a better one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from marketdata.errors import ContractError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with status 200.

    Attributes
    ----------
    body : bytes
    date : float or None
        The server's own time [Unix s].
    url : str
        Scheme, host and path; never a key.
    attempts : int
        How many requests it took.
    notes : tuple of str
        Oddities that put no data at risk.
    """

    body: bytes
    date: float | None
    url: str
    attempts: int = 1
    notes: tuple[str, ...] = ()


def ask_twice(
    get: Callable[..., Answer],
    segments: Sequence[str],
    params: Mapping[str, str] | None,
    read: Callable[[Answer], T],
) -> tuple[Answer, T]:
    """An answer and what ``read`` makes of it; where ``read`` finds it off the interface, it is asked for once more.

    Raises
    ------
    ContractError
        If ``read`` refuses the second answer too; ``attempts`` counts both.
    """
    first = get(segments, params)
    try:
        return first, read(first)
    except ContractError:
        pass
    second = get(segments, params)
    answer = Answer(second.body, second.date, second.url, first.attempts + second.attempts, second.notes)
    try:
        return answer, read(answer)
    except ContractError as error:
        error.attempts = answer.attempts
        raise
