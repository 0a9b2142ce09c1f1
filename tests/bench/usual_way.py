"""How the usual client turns a books page into rows: models, a frame of nested lists, explode.

Written for comparison from its public behaviour: every snapshot is validated as a pydantic model, dumped to a dict, put
into a frame with list columns, and exploded side by side by the user.
"""

from __future__ import annotations

import json

import pandas as pd
from pydantic import BaseModel


class Snapshot(BaseModel):
    t: str
    bids: list[list[float]]
    asks: list[list[float]]


class Metadata(BaseModel):
    count: int
    limit: int
    next_cursor: str | None = None


class BooksPage(BaseModel):
    market_id: str
    resolution: str
    tokens: dict[str, str]
    data: dict[str, list[Snapshot]]
    metadata: Metadata


def books_frame(pages: list[bytes]) -> pd.DataFrame:
    """Level rows of pages, as a user of such a client gets them."""
    parts = []
    for body in pages:
        page = BooksPage.model_validate(json.loads(body))
        for label, snapshots in page.data.items():
            nested = pd.DataFrame([s.model_dump() for s in snapshots])
            if nested.empty:
                continue
            nested["t"] = pd.to_datetime(nested["t"], utc=True)
            for column, side in (("bids", "bid"), ("asks", "ask")):
                rows = nested[["t", column]].explode(column).dropna(subset=column)
                levels = pd.DataFrame(rows[column].tolist(), columns=["price", "size"], index=rows.index)
                levels.insert(0, "ts", rows["t"])
                levels["token_id"], levels["token_label"] = page.tokens[label], label
                levels["market_id"], levels["side"] = page.market_id, side
                levels["level"] = levels.groupby("ts").cumcount()
                parts.append(levels)
    return pd.concat(parts, ignore_index=True)
