"""Messages of a venue's market channel, one or a list of them in each line, in a column, or in rows of a table."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.message_fields import Message
from marketdata.recordings.messages import KINDS, first_messages, read_messages, read_trades
from marketdata.recordings.table import Table

_KINDS = {*KINDS}
_OF_KALSHI = {"orderbook_snapshot", "orderbook_delta", "subscribed", "trade", "ticker"}


def proves(table: Table) -> bool:
    """Whether the first messages say their kind, or are books in an envelope.

    Tickers alone are quotes.
    """
    messages = first_messages(table)
    return any(m.kind != "ticker" for m in messages) and any(map(_is_of_channel, messages))


def _is_of_channel(message: Message) -> bool:
    if not message.fields.keys().isdisjoint({"price_changes", "changes"}) or "event_type" in message.fields:
        return True
    return message.kind in (_KINDS | _OF_KALSHI if message.is_inner else _KINDS - {"book"})


FORMAT = Format(
    name="market-channel",
    description="messages `book` and `price_change`, and those of Kalshi, bare, in lists, envelopes, a column or rows",
    needs=("event_type/message",),
    read=read_messages,
    trades=read_trades,
    changes=True,
    proves=proves,
)
