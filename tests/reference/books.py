"""The last whole book of each bucket, by a loop over all snapshots."""

from __future__ import annotations

from typing import Any

from reference.columns import levels_of

import marketdata as md


def last_books(books: md.points.columns.Books, width: int) -> list[tuple[Any, ...]]:  # type: ignore[name-defined]
    """Brute force: walk every snapshot, remember the latest of each token and bucket."""
    latest: dict[tuple[int, int], tuple[int, list[Any], list[Any]]] = {}
    at = 0
    for i in range(len(books)):
        nb, na = books.counts[2 * i], books.counts[2 * i + 1]
        bids, asks = levels_of(books)[at : at + nb].tolist(), levels_of(books)[at + nb : at + nb + na].tolist()
        at += nb + na
        key = (int(books.token[i]), int(books.ts[i]) // width * width)
        if key not in latest or books.ts[i] >= latest[key][0]:
            latest[key] = (int(books.ts[i]), bids, asks)
    out = []
    for (token, start), (_, bids, asks) in sorted(latest.items()):
        for side, levels in (("bid", bids), ("ask", asks)):
            for k, (price, size) in enumerate(levels):
                out.append((start, *books.tokens[token], side, k, price, size))
            if not levels:
                out.append((start, *books.tokens[token], side, None, None, None))
    return out
