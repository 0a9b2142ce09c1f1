"""A market with everything that is odd, in memory."""

from __future__ import annotations

import math
from typing import Any

from reference.columns import each_book
from reference.memory import MemoryArchive

MARKET = "0xm"


def fill(archive: MemoryArchive, view: Any, columns: Any) -> None:
    """Make the archive hold these points and nothing else."""
    archive.points.clear()
    archive._records["markets"].clear()
    tokens = {t.token_label: t.token_id for t in columns.tokens} if view != "metrics" else {}
    archive.add_market(MARKET, tokens or {"Yes": "1"})
    if view == "books":
        for token, ts, *sides in each_book(columns):
            archive.put(view, MARKET, token.token_id, ts, tuple([*map(tuple, side)] for side in sides))
        return
    for i in range(len(columns)):
        token, ts = columns.tokens[columns.token[i]], int(columns.ts[i])
        if view == "prices":
            price = float(columns.price[i])
            archive.put(view, MARKET, token.token_id, ts, None if math.isnan(price) else price)
        elif token == columns.tokens[0]:
            point = {name: None if math.isnan(v[i]) else float(v[i]) for name, v in columns.values.items()}
            archive.put(view, MARKET, None, ts, point)
