"""The one pagination loop: history, discovery and conformance checks follow cursors with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol, TypeVar

from marketdata.errors import BadRequestError, LimitTooSmallError, PaginationStalledError

# Pages in a row without points, and with known points alone, after which pagination is stalled.
_EMPTY_PAGES = 50
_KNOWN_PAGES = 3


class Paged(Protocol):
    """A page with a cursor; an empty text as the cursor ends the pages, which does not show that all came."""

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page."""


P = TypeVar("P", bound=Paged)


def paginate(
    fetch: Callable[[str | None], P],
    keys: Callable[[P], Iterable[Hashable]],
    what: object,
    bound: Callable[[P], int] | None = None,
) -> Iterator[P]:
    """All pages, until one has a null cursor (interface 4.1); PaginationStalledError about ``what`` instead of a loop.

    ``fetch`` returns the page of a cursor (None: the first); ``keys`` what identifies its entries, only called if
    another page follows; ``bound`` the most pages there can be.
    """
    cursor: str | None = None
    cursors: set[str] = set()
    known: set[Hashable] = set()
    count = empty = repeated = 0
    while True:
        try:
            page = fetch(cursor)
        except BadRequestError as error:
            if cursor is None or isinstance(error, LimitTooSmallError):
                raise
            # The same request passed without a cursor before, so it is the cursor that was refused.
            raise PaginationStalledError(f"{what}: the cursor was refused: {error.detail}") from None
        count += 1
        yield page
        cursor = page.next_cursor
        if not cursor:
            return
        new = set(keys(page))
        empty = 0 if new else empty + 1
        repeated = repeated + 1 if new and new <= known else 0
        known |= new
        if cursor in cursors or empty > _EMPTY_PAGES or repeated >= _KNOWN_PAGES:
            raise PaginationStalledError(f"{what}: the cursor repeats or brings nothing new ({count} pages).")
        if bound is not None and count >= bound(page):
            raise PaginationStalledError(f"{what}: {count} pages, more than there can be.")
        cursors.add(cursor)
