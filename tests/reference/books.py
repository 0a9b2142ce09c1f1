"""The last whole book of each bucket, by a loop over all snapshots."""

from __future__ import annotations

from typing import Any

from reference.columns import each_book

import marketdata as md


def last_books(books: md.points.columns.Books, width: int) -> list[tuple[Any, ...]]:  # type: ignore[name-defined]
    """Brute force: walk every snapshot, remember the latest of each token and bucket."""
    latest: dict[tuple[Any, int], tuple[int, list[Any], list[Any]]] = {}
    for token, ts, bids, asks in each_book(books):
        key = (token, ts // width * width)
        if key not in latest or ts >= latest[key][0]:
            latest[key] = ts, bids, asks
    out = []
    place = {token: i for i, token in enumerate(books.tokens)}
    for (token, start), (_, bids, asks) in sorted(latest.items(), key=lambda one: (place[one[0][0]], one[0][1])):
        for side, levels in (("bid", bids), ("ask", asks)):
            for k, (price, size) in enumerate(levels):
                out.append((start, *token, side, k, price, size))
            if not levels:
                out.append((start, *token, side, None, None, None))
    return out
