"""The ladder: bids and asks of one book side by side."""

from __future__ import annotations

import numpy as np

from marketdata.points.columns import Books, Columns, Floats, Ints


def ladder(books: Books, moment: int) -> tuple[Columns, dict[str, Floats | Ints]]:
    """The last book of each token up to a moment, an entry a level, with running totals from the best level."""
    pairs = zip(books.bounds[:-1].tolist(), books.bounds[1:].tolist(), strict=True)
    last = [a + int(np.searchsorted(books.ts[a:b], moment, side="right")) - 1 for a, b in pairs]
    books = books.take(np.array([i for i, a in zip(last, books.bounds.tolist(), strict=False) if i >= a], np.int64))
    depths = np.maximum(books.bids.counts, books.asks.counts)
    width = np.arange(int(depths.max(initial=0)))
    there = width < depths[:, None]
    columns: dict[str, Floats | Ints] = {"level": np.broadcast_to(width, there.shape)[there]}
    for name, side in (("bid", books.bids), ("ask", books.asks)):
        is_level = width < side.counts[:, None]
        size, price = np.zeros(is_level.shape), np.full(is_level.shape, np.nan)
        size[is_level], price[is_level] = side.size[side.levels], side.price[side.levels]
        total = np.where(is_level, np.cumsum(size, axis=1), np.nan)
        size[~is_level] = np.nan
        columns |= {f"{name}_total": total[there], f"{name}_size": size[there], f"{name}_price": price[there]}
    of = np.repeat(np.arange(len(books)), depths)
    names = ("level", "bid_total", "bid_size", "bid_price", "ask_price", "ask_size", "ask_total")
    bounds = np.append(0, np.cumsum(depths))[books.bounds]
    entries = Columns((), bounds, books.ts[of]).of_tokens(books.tokens, bounds)
    return entries, {name: columns[name] for name in names}
