"""Prices of tokens, one a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import LABEL, LEVEL, MARKET, SIDE, SIZE, TOKEN, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.points import points_of

TIME = ("ts", "timestamp", "time", "t", "datetime", "snapshot_time", "bucket", "bucket_start")
_TOKEN = TOKEN[:5]
_PRICE = ("price", "p")
# A price beside one of these is of a trade, an order or one side of a book.
_NOT_PRICES = (
    *SIDE,
    *SIZE,
    *LEVEL,
    "trade_id",
    "order_id",
    "transaction_hash",
    "tx_hash",
    "event_type",
    "maker",
    "taker",
)


def read(file: RecordingFile, _: Reading) -> Iterator[Batch]:
    """The prices; further columns of numbers stay in a tidy table."""

    def choose(present: Sequence[str]) -> dict[str, str]:
        names = {"ts": TIME, "market_id": MARKET, "token_id": _TOKEN, "token_label": LABEL, "price": _PRICE}
        return {ours: column for ours, theirs in names.items() if (column := first(present, theirs))}

    is_tidy = {"ts", "token_id"} <= set(file.columns)
    yield from points_of(file, choose, ("ts", "token_id", "price"), extra=is_tidy)


FORMAT = Format(
    name="prices",
    kind="prices",
    description="a table of prices, which are averaged over each bucket",
    needs="a time, a token and price, and nothing of a trade or a side",
    fits=having(TIME, _TOKEN, _PRICE, without=_NOT_PRICES),
    read=read,
)
