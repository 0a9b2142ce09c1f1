"""A market with everything that is odd, in memory."""

from __future__ import annotations

import math
from typing import Any

from reference.columns import levels_of
from reference.memory import MemoryArchive

MARKET = "0xm"


def fill(archive: MemoryArchive, view: Any, columns: Any) -> None:
    """Make the archive hold these points and nothing else."""
    archive.points.clear()
    archive._records["markets"].clear()
    tokens = {t.token_label: t.token_id for t in columns.tokens} if view != "metrics" else {}
    archive.add_market(MARKET, tokens or {"Yes": "1"})
    at = 0
    for i in range(len(columns)):
        token, ts = columns.tokens[columns.token[i]], int(columns.ts[i])
        if view == "books":
            bids, asks = int(columns.counts[2 * i]), int(columns.counts[2 * i + 1])
            levels = [tuple(level) for level in levels_of(columns)[at : at + bids + asks].tolist()]
            archive.put(view, MARKET, token.token_id, ts, (levels[:bids], levels[bids:]))
            at += bids + asks
        elif view == "prices":
            price = float(columns.price[i])
            archive.put(view, MARKET, token.token_id, ts, None if math.isnan(price) else price)
        elif token == columns.tokens[0]:
            point = {name: None if math.isnan(v[i]) else float(v[i]) for name, v in columns.values.items()}
            archive.put(view, MARKET, None, ts, point)
