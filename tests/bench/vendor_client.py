"""The vendor's published client as its users call it; ``make bench`` runs this file in an environment of its own.

Each line on the standard input names a work and a file of pages; the answer is the seconds that it took.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pandas as pd
from polymarketdata._response import enrich_response
from polymarketdata.dataframe import to_dataframe_books
from polymarketdata.models import BooksResponseAllTokens


def answers(bodies: list[bytes]) -> Iterator[BooksResponseAllTokens]:
    """Return the client's result for each answer that has arrived."""
    for body in bodies:
        response = httpx.Response(200, content=body)
        yield enrich_response(BooksResponseAllTokens, response.json(), response)


def rows(bodies: list[bytes]) -> pd.DataFrame:
    """A row per level: the client's own frames of nested lists, put together and exploded side by side."""
    frames = []
    for page in answers(bodies):
        for label, snapshots in page.data.items():
            nested = to_dataframe_books(snapshots)
            nested["token_id"], nested["token_label"] = page.tokens[label], label
            frames.append(nested)
    nested = pd.concat(frames, ignore_index=True)
    who = nested.drop(columns=["bids", "asks"])
    parts = []
    for column, side in (("bids", "bid"), ("asks", "ask")):
        pairs = nested[column].explode().dropna()
        levels = pd.DataFrame(pairs.tolist(), columns=["price", "size"], index=pairs.index)
        levels["level"] = levels.groupby(level=0).cumcount()
        parts.append(who.join(levels, how="inner").assign(side=side))
    return pd.concat(parts, ignore_index=True)


def chain(bodies: list[bytes]) -> pd.DataFrame:
    """The top of the last book of each hour."""
    levels = rows(bodies)
    last = levels.groupby(["token_id", pd.Grouper(key="t", freq="1h")])["t"].transform("max")
    levels = levels[levels["t"] == last]
    bids = levels[levels["side"] == "bid"].groupby(["token_id", "t"])["price"].max()
    asks = levels[levels["side"] == "ask"].groupby(["token_id", "t"])["price"].min()
    return pd.concat([bids.rename("best_bid"), asks.rename("best_ask")], axis=1)


def main() -> None:
    """Answer until the input ends."""
    works = {"rows": rows, "chain": chain}
    for line in sys.stdin:
        work, path = line.split()
        bodies = pickle.loads(Path(path).read_bytes())
        gc.collect()
        began = time.perf_counter()
        works[work](bodies)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
