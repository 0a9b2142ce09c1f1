"""An archive as the history that a mirror plays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from marketdata.archive.archive import Archive
from marketdata.archive.market_ranges import inside
from marketdata.archive.query import ALL_TIME, Query
from marketdata.archive.store import ArchiveStore
from marketdata.archive.write_plan import rows_in
from marketdata.errors import ConfigError, NotArchivedError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Books, Ints, Token, Trades
from marketdata.points.views import empty
from marketdata.stream.mirror import Mirror
from marketdata.times import Range, TimeLike, to_micros


class Stored:
    """The books of some markets of a store in a range; see `marketdata.stream.mirror.History`.

    A bucket counts if it has a book of each token of its market that has any.
    """

    def __init__(self, store: ArchiveStore, markets: Sequence[str], within: Range) -> None:
        self.width, self._store = store.base, store
        tokens: dict[str, list[Ints]] = {}
        names: dict[Token, list[Ints]] = {}
        self._version = store.points["books"].version()
        for _, rows in rows_in(store.points["books"], "books", self._version, {key: [within] for key in markets}):
            for code, token in enumerate(rows.tokens):
                names.setdefault(token, []).append(self.width.floor(rows.ts[slice(*rows.bounds[code : code + 2])]))
        for token, parts in names.items():
            tokens.setdefault(token.market_id, []).append(np.unique(np.concatenate(parts)))
        common = {market: reduce(partial(np.intersect1d, assume_unique=True), of) for market, of in tokens.items()}
        self._runs = {market: _runs(times, self.width.micros) for market, times in common.items() if len(times)}
        self.tokens = {str(token.token_id): token for token in names}

    def runs(self, market: str) -> Sequence[Range]:
        """The ranges in which no bucket is missing."""
        return self._runs.get(market, ())

    def books(self, markets: Sequence[str], rng: Range) -> Books:
        """The books of markets in a range, as far as they are in runs."""
        if not markets:
            return empty("books")  # type: ignore[return-value]
        found = Query("books", self._store.points["books"], self._version, sorted(markets), rng).columns()
        return found.take(np.flatnonzero(inside(found, self._runs)))  # type: ignore[return-value]

    def prints(self, markets: Sequence[str], rng: Range) -> Trades:
        """The trades of markets in a range, as far as they are in runs of books."""
        table = self._store.points["trades"]
        if not markets or table.version().number < 0:
            return Trades.empty()
        found = Query("trades", table, table.version(), sorted(markets), rng).columns()
        return found.take(np.flatnonzero(inside(found, self._runs)))  # type: ignore[return-value]


def _runs(times: Ints, width: int) -> list[Range]:
    """Ranges of adjacent buckets."""
    parts = np.split(times, np.flatnonzero(np.diff(times) != width) + 1)
    return [Range(int(part[0]), int(part[-1]) + width) for part in parts]


def replay_server(
    archive: Archive[Any],
    market: Any = None,
    start: TimeLike | None = None,
    end: TimeLike | None = None,
    *,
    speed: float | None = 1.0,
    port: int = 0,
) -> Mirror:
    """Play stored books as a local websocket in the format of Polymarket's market channel, in a thread.

    Returns a Mirror with ``.address``; ``.close()`` or the end of the ``with`` block stops it. A client of that channel
    needs another address and nothing else: it sends ``{"assets_ids": [...], "type": "market"}``, and gets ``book``,
    ``price_change``, ``tick_size_change`` and ``last_trade_price`` messages. Each client has its own clock, which
    begins with its first subscription. Changes of a bucket come at its end. Where the archive has a gap the connection
    is cut; a client that subscribes to the same tokens again goes on there. After the end nothing more comes.

    Parameters
    ----------
    archive : Archive
    market : optional
        Ids, slugs, records or rows of the markets to play; by default all that have books.
    start, end : time, optional
        The range to play [UTC]; by default all that is stored.
    speed : float or None
        1 is real time, 60 an hour a minute; None as fast as the client reads.
    port : int
        0 picks a free one.

    Examples
    --------
    >>> with md.replay_server(archive, speed=None) as mirror:
    ...     print(mirror.address.startswith("ws://127.0.0.1:"))
    True
    """
    whole("port", port, 0, 65_535)
    if speed is not None and number("speed", speed) < 1:
        raise ConfigError("is refused; allowed are numbers from 1, and None.", argument="speed", value=speed)
    reading = archive._reading  # noqa: SLF001
    store = reading.store.opened()
    markets = [*(reading.market_ids(market) or sorted(store.coverage["books"].all()))]
    first = ALL_TIME.start if start is None else to_micros(start, "start")
    last = ALL_TIME.end if end is None else to_micros(end, "end")
    history = Stored(store, markets, Range(-int(store.base.floor(-first)), int(store.base.floor(last))))
    begins = [run.start for m in markets for run in history.runs(m)]
    if not begins:
        raise NotArchivedError("no books of these markets are stored in the range; a mirror plays books.")
    return Mirror(history, min(begins), speed, port)
