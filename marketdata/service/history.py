"""Answers of the five history routes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from marketdata.service import bodies, refusals
from marketdata.service.chunks import Source, Subject
from marketdata.service.cursors import Cursors
from marketdata.service.pages import Page, Pages, labels_of
from marketdata.service.plans import Grant
from marketdata.service.queries import HistoryQuery
from marketdata.wire.columns import View

Record = dict[str, Any]


class History:
    """Pages of an archive as bodies, for keys whose plan allows them.

    Parameters
    ----------
    source : archive
        Where the points are.
    pages, cursors
        Pages out of it, and the cursors that lead through them.
    clock : callable
        Unix time [seconds], for the lookback of plans.
    """

    def __init__(
        self, source: Source, pages: Pages, cursors: Cursors, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._source = source
        self._pages = pages
        self._cursors = cursors
        self._clock = clock

    def market(self, view: View, id_or_slug: str, query: HistoryQuery, grant: Grant) -> bytes:
        """Books, prices or metrics of a market.

        Raises
        ------
        Refusal
            403, 404 or 400 as interface section 7 says.
        """
        self._check_plan(view, query, grant)
        record = self._source.find_market(id_or_slug)
        if record is None:
            raise refusals.market_not_found(id_or_slug)
        market_id = str(record["id"])
        if view == "metrics":
            page, metadata = self._page(Subject(view, market_id, None, query.resolution, 1), query)
            return bodies.metrics_body(page, market_id, query.resolution, metadata)
        tokens = labels_of(record)
        if len(tokens) > refusals.MAX_TOKENS:
            raise refusals.too_many_tokens(view)
        if len(tokens) > query.limit:
            raise refusals.limit_too_small(len(tokens))
        page, metadata = self._page(Subject(view, market_id, None, query.resolution, len(tokens)), query)
        return bodies.market_body(page, market_id, query.resolution, tokens, metadata)

    def token(self, view: View, token_id: str, query: HistoryQuery, grant: Grant) -> bytes:
        """Books or prices of one token.

        Raises
        ------
        Refusal
            403, 404 or 400 as interface section 7 says.
        """
        self._check_plan(view, query, grant)
        found = self._source.find_token(token_id)
        if found is None:
            raise refusals.token_not_found(token_id)
        record, label = found
        market_id = str(record["id"])
        page, metadata = self._page(Subject(view, market_id, token_id, query.resolution, 1), query)
        return bodies.token_body(page, market_id, token_id, label, query.resolution, metadata)

    def _check_plan(self, view: View, query: HistoryQuery, grant: Grant) -> None:
        # On every page: a cursor carries no rights.
        grant.plan.check(view, query.resolution, query.range.start, self._clock())

    def _page(self, subject: Subject, query: HistoryQuery) -> tuple[Page, dict[str, Any]]:
        facts = [subject.view, subject.market_id, subject.token_id, query.resolution.value, *query.range]
        position = None if query.cursor is None else int(self._cursors.read(facts, query.cursor))
        page = self._pages.page(subject, query.range, query.limit, position)
        following = None if page.position is None else self._cursors.give(facts, str(page.position))
        return page, {"count": page.count, "limit": query.limit, "next_cursor": following}
