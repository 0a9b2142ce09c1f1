"""The pagination loop: it ends where the service says so, and a service that does not end is an error."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from marketdata.errors import BadRequestError, LimitTooSmallError, PaginationStalledError
from marketdata.fetch.pagination import paginate


@dataclass
class Page:
    """Entries, and the cursor of what follows."""

    entries: list[int]
    next_cursor: str | None


def walk(pages: list[Page], bound: Callable[[Page], int] | None = None) -> list[Page]:
    """The pages that paginate yields, each requested by the cursor of the one before."""
    asked: list[str | None] = []

    def ask(cursor: str | None) -> Page:
        assert cursor == (pages[len(asked) - 1].next_cursor if asked else None)
        asked.append(cursor)
        return pages[len(asked) - 1]

    return list(paginate(ask, lambda page: page.entries, "what", bound))


def chain(entries: list[list[int]]) -> list[Page]:
    """Pages with cursors of their own; the last has none."""
    return [Page(some, f"c{n}" if n < len(entries) - 1 else None) for n, some in enumerate(entries)]


@pytest.mark.parametrize("last", [None, ""])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_pages_end_where_no_cursor_follows(count, last) -> None:
    """All pages come, in order; neither null nor an empty text is followed."""
    pages = chain([[n] for n in range(count)])
    pages[-1].next_cursor = last
    assert walk(pages) == pages


def test_the_keys_of_the_last_page_are_not_asked_for() -> None:
    """They only tell whether a page brings something new, which matters where another follows."""
    seen: list[int] = []
    pages = iter(chain([[1], [2]]))
    list(paginate(lambda _: next(pages), lambda page: seen.extend(page.entries) or [*page.entries], "what"))
    assert seen == [1]


@pytest.mark.parametrize("back", [0, 1, 2])
def test_a_cursor_that_was_given_before_is_an_error(back) -> None:
    """Once the page that repeats it has come; the error counts the pages."""
    pages = [Page([n], f"c{n}") for n in range(4)]
    pages[3].next_cursor = f"c{back}"
    with pytest.raises(PaginationStalledError, match=r"what: the cursor repeats .* \(4 pages\)"):
        walk(pages)


@pytest.mark.fault("P17")
def test_fifty_empty_pages_may_follow_each_other() -> None:
    """Silence may be long; the fifty-first in a row is an error, and a page with something begins the count anew."""
    silence: list[list[int]] = [[]] * 50
    assert len(walk(chain([[1], *silence, [2], *silence, [3]]))) == 103
    with pytest.raises(PaginationStalledError, match=r"brings nothing new \(52 pages\)"):
        walk(chain([[1], *silence, [], [2], [3]]))


def test_three_known_pages_in_a_row_are_an_error() -> None:
    """Two may come, as where pages overlap; a new or an empty one between begins the count anew."""
    assert len(walk(chain([[1, 2], [1], [2], [3], [1], [], [1, 2], [3], [4, 1], [5]]))) == 10
    with pytest.raises(PaginationStalledError, match=r"brings nothing new \(4 pages\)"):
        walk(chain([[1, 2], [1], [2], [1, 2], [3]]))


def test_a_page_with_one_new_entry_is_new() -> None:
    """Each of many pages repeats the entries before it and adds one."""
    assert len(walk(chain([list(range(n + 1)) for n in range(12)]))) == 12


def test_more_pages_than_there_can_be_are_an_error() -> None:
    """The bound may grow with each page; the last allowed page must have no cursor."""
    assert len(walk(chain([[1], [2], [3]]), lambda _: 3)) == 3
    with pytest.raises(PaginationStalledError, match="what: 3 pages, more than there can be"):
        walk(chain([[1], [2], [3], [4]]), lambda _: 3)
    grows = itertools.count(2)
    assert len(walk(chain([[n] for n in range(9)]), lambda _: next(grows))) == 9


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [BadRequestError, LimitTooSmallError])
def test_only_a_refused_cursor_is_a_stalled_pagination(kind, first) -> None:
    """A refusal of the question itself, or of its limit, stays what it is."""
    pages = chain([[1], [2]])

    def ask(cursor: str | None) -> Page:
        if first or cursor is not None:
            raise kind("no", status=400, detail="not this one")
        return pages[0]

    stalled = kind is BadRequestError and not first
    with pytest.raises(PaginationStalledError if stalled else kind) as info:
        list(paginate(ask, lambda page: page.entries, "what"))
    assert ("what: the cursor was refused: not this one" in str(info.value)) is stalled
