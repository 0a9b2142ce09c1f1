"""The argument ``columns`` of imports."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from marketdata.errors import ConfigError

# Our names of columns that a file may have under other names.
_RENAMABLE = (
    "ts", "received_at", "market_id", "token_id", "token_label", "side", "level", "price", "size", "bids", "asks",
    "best_bid", "best_ask", "is_snapshot", "event_type", "yes_levels", "no_levels", "question", "slug", "token_ids",
    "token_labels", "event_id", "event_slug", "series_id", "series_slug", "title", "volume", "liquidity", "spread",
    "transaction_hash", "maker", "taker", "trader_side", "hash", "last_trade_price", "tick_size",
)  # fmt: skip


def renamed_columns(columns: Any) -> dict[str, str]:
    """The argument ``columns``; ConfigError for a name that is not ours, with the nearest one that is."""
    if columns is not None and not isinstance(columns, Mapping):
        raise ConfigError("is no dict such as {'ts': 'when'}.", argument="columns", value=columns)
    for name in columns or {}:
        if name not in _RENAMABLE:
            near = "".join(f"; did you mean {n!r}?" for n in difflib.get_close_matches(str(name), _RENAMABLE, n=1))
            raise ConfigError(
                f"has {name!r}, which is no column of ours{near} They are {', '.join(_RENAMABLE)}.",
                argument="columns",
                value=columns,
            )
    return {str(name): str(column) for name, column in (columns or {}).items()}
