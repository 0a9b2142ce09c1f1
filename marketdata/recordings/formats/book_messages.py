"""Messages that are whole books, without an event type."""

from __future__ import annotations

from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Format
from marketdata.recordings.messages import read_messages


def proves(file: RecordingFile) -> int:
    """One for each side and the time, less than for a table that names the token too."""
    is_book = {*file.columns} >= {"timestamp", "bids", "asks"} and "event_type" not in file.columns
    return 3 if file.form == "json" and is_book else 0


FORMAT = Format(
    name="book-messages",
    description="JSON, a whole book per message; `token_id=` names the token where the messages do not",
    needs=("timestamp bids asks",),
    read=read_messages,
    proves=proves,
)
