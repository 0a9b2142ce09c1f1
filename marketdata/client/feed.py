"""What an archive asks of a client: points as they arrive, and what the source has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from marketdata.client.discovery import Discovery, Record
from marketdata.client.fetching import Fetching
from marketdata.client.history import History
from marketdata.client.offer import Offer
from marketdata.client.prints import fetch_prints
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.source import Source
from marketdata.points.columns import Data
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range


class Feed:
    """The requests of an archive to a client; see `marketdata.archive.feed.Feed`. A fetch fills in ``report``."""

    def __init__(
        self,
        client: Any,
        source: Source,
        history: History,
        offer: Offer,
        discovery: Discovery,
        fetching: Fetching,
        report: Report | None = None,
    ) -> None:
        self._source, self._history, self._offer = source, history, offer
        self._discovery, self._fetching, self._report = discovery, fetching, report
        self.frame, self.views, self.live_views = client.frame, client.views, client.live_views
        self.resolutions, self.server_time, self.health = client.resolutions, client.server_time, client.health
        self.market, self.markets, self.events, self.stream = (
            client.market,
            client.markets,
            client.events,
            client.stream,
        )

    @property
    def is_sparse(self) -> bool:
        """Whether the source has no point for a bucket without a change, as with candles."""
        return self._source.service.is_sparse

    def history_start(self) -> int | None:
        """The first time that the plan of the key allows [microseconds UTC]; None if it does not say."""
        self._source.learn_limits()
        return self._offer.earliest

    def market_records(self, names: Iterable[str]) -> list[Record]:
        """The records of markets (ids or slugs in ``names``) in that order, without the unknown ones."""
        return self._discovery.markets(names)

    def iter_columns(
        self,
        requests: Iterable[tuple[View, str, Range]],
        resolution: str = "1m",
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Generator[tuple[int, Range, Data, bool], None, None]:
        """Parts of any number of ranges in the order in which they arrive, for writing; for errors see `Client.books`.

        ``requests`` has (view, id or slug, Range [microseconds UTC]). Yields (index of the request, Range that is
        complete for all tokens, its points as columns, whether no page may be missing); the parts of a range touch.
        ``progress`` is called with the number of buckets that arrived since its last call, 0 while it waits.
        """
        width, asked = BucketWidth.of(resolution), list(requests)
        prints = [(k, name, rng) for k, (view, name, rng) in enumerate(asked) if not VIEWS[view].is_grid]
        grids = [k for k, (view, *_) in enumerate(asked) if VIEWS[view].is_grid]
        if prints:
            with closing(fetch_prints(self._source, prints, width.micros, progress or int)) as parts:
                for part in parts:
                    yield *part, True
        if prints and not grids:
            return
        every = [w for k in grids for w in self._fetching.windows(asked[k][0], "market", *asked[k][1:], width)]
        with closing(self._history.fetch(every, self._report, buffer=256)) as fetch:
            fetch.progress = progress or fetch.progress
            for fetched in fetch:
                if fetched.window.kind == "market":  # points of single tokens complete no range
                    yield grids[fetched.request], fetched.window.rng, fetched.columns, fetched.complete
            self._history.warn_odd(fetch.report)

    def live_columns(self, view: View, tokens: Sequence[str]) -> Iterator[Data]:
        """The points of a ``view`` of ``tokens`` (ids) at this moment, for writing; for errors see `Client.books`.

        Yields parts as they arrive. Times are as the source states them. A token that is not traded has no points.
        """
        return self._source.now(view, tokens)
