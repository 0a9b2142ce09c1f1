"""A whole answer as an Arrow stream: points as rows, and in the schema what a page of JSON has beside them."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from marketdata.errors import ArchiveError, ContractError
from marketdata.points.columns import Data, Page
from marketdata.points.views import View
from marketdata.wire import reference_decoder
from marketdata.wire.arrow import TS, from_tables, to_table
from marketdata.wire.decode import envelope_of, page_of

# The key of the schema under which the JSON beside points stands.
_ENVELOPE = b"marketdata"


def encode(columns: Data, envelope: bytes) -> bytes:
    """The stream of points; ``envelope`` is the JSON of what is beside them."""
    table, sink = to_table(columns).replace_schema_metadata({_ENVELOPE: envelope}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def decode(view: View, body: bytes) -> Page:
    """A stream as one page; ContractError if it is damaged, or has other columns or tokens."""
    try:
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
        if (kind := table.schema.field("ts").type) != TS:
            raise ContractError(f"The Arrow stream has times of {kind} instead of {TS}.")
        top = reference_decoder.load(table.schema.metadata[_ENVELOPE])
        columns = from_tables(view, [table], of_one_market=True)
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, ArchiveError) as problem:
        raise ContractError(f"The answer is no Arrow stream of {view}: {problem}") from None
    page = page_of(columns, envelope_of(view, top), Counter())
    for token in page.columns.tokens:
        if (token.market_id, token.token_id) != (page.market_id, page.labels.get(token.token_label or "")):
            raise ContractError(f"The Arrow stream has rows of {token}, which is not what its schema is about.")
    return page
