"""Metrics of markets, one time a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import PRICE, SIDE, SIZE, TOKEN, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.formats.prices import TIME
from marketdata.adapters.recordings.points import points_of
from marketdata.points.columns import METRICS

_MARKET = ("market_id", "condition_id", "market", "slug")
# A volume beside one of these is of a trade, a candle or a token, and a spread that of a quote.
_NOT_METRICS = (
    *TOKEN, *PRICE, *SIDE, *SIZE, "open", "high", "low", "close", "best_bid", "best_ask", "bids", "asks", "outcome",
    "trade_id", "order_id", "transaction_hash", "event_type",
)  # fmt: skip


def read(file: RecordingFile, _: Reading) -> Iterator[Batch]:
    """The metrics; further columns of numbers are metrics too."""

    def choose(present: Sequence[str]) -> dict[str, str]:
        market = first(present, _MARKET) or ""
        # A slug is looked up in the archive.
        ours = "slug" if market == "slug" else "market_id"
        return {"ts": str(first(present, TIME)), ours: market, **{m: m for m in METRICS if m in present}}

    market = "slug" if first(file.columns, _MARKET) == "slug" else "market_id"
    yield from points_of(file, choose, ("ts", market), extra=True)


FORMAT = Format(
    name="metrics",
    kind="metrics",
    description="a table of metrics of markets, which are averaged over each bucket",
    needs="a time, a market, and volume, liquidity or spread, and nothing of a token, a trade or a quote",
    fits=having(TIME, _MARKET, METRICS, without=_NOT_METRICS),
    read=read,
)
