"""Messages that are whole books, without an event type."""

from __future__ import annotations

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, having
from marketdata.adapters.recordings.messages import read_messages


def fits(file: RecordingFile) -> int:
    """One for each side and the time, less than for a table that names the token too."""
    columns = having(("bids",), ("asks",), ("timestamp",), without=("event_type",))
    return columns(file) if file.form == "json" else 0


FORMAT = Format(
    name="book-messages",
    kind="books",
    description="JSON, a whole book per message; `token_id=` names the token where the messages do not",
    needs="JSON messages with timestamp, bids and asks",
    fits=fits,
    read=read_messages,
)
