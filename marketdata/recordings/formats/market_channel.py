"""Messages of a venue's market channel, one or a list of them in each line."""

from __future__ import annotations

from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Format
from marketdata.recordings.messages import messages_in, read_messages, read_trades


def proves(file: RecordingFile) -> int:
    """More than tables have columns, if the first message says its kind, or is a book in an envelope."""
    if file.form != "json" or not isinstance(file.first_message, dict):
        return 0
    message = next(messages_in(file.first_message))
    says_kind = message.fields.get("event_type") or {"price_changes", "changes"} & message.fields.keys()
    in_envelope = message.fields is not file.first_message and message.kind == "book"
    return 20 if says_kind or in_envelope else 0


FORMAT = Format(
    name="market-channel",
    description="messages `book` and `price_change`, bare, in lists, or in an envelope with a time of arrival",
    needs=("event_type/price_changes/changes",),
    read=read_messages,
    trades=read_trades,
    changes=True,
    proves=proves,
)
