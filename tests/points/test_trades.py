"""Prints as columns and frames: each stays, in the order of time, with the newest label of its token."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from marketdata.points.columns import Token, Trades, joined
from marketdata.tidy.frames import to_frame
from marketdata.times import SECOND

PRINT = st.tuples(
    st.sampled_from([Token("m", "a"), Token("m", "a", "Yes"), Token("m", "b", "No"), Token("k", "a")]),
    st.integers(0, 4),
    st.sampled_from(["buy", "sell", None]),
    st.sampled_from([0.1, 0.5]),
)


def columns_of(prints: list[tuple[Token, int, str | None, float]]) -> Trades:
    sides, names = (np.array(texts, object) for texts in ([p[2] for p in prints], [f"t{p[1]}" for p in prints]))
    numbers = np.array([p[3] for p in prints], float)
    values = {"side": sides, "price": numbers, "size": 2 * numbers, "trade_id": names}
    ts = np.array([p[1] * SECOND for p in prints], np.int64)
    return Trades.of([p[0] for p in prints], np.arange(len(prints)), ts, values)


@given(st.lists(PRINT), st.integers(0, 20), st.sampled_from(["pandas", "polars"]))
def test_prints_stay_in_order_and_keep_their_values(
    prints: list[tuple[Token, int, str | None, float]], cut: int, frame: str
) -> None:
    """Parts of prints, joined, are the frame that a plain sort gives, and so is a frame without a print."""
    parts = [part for part in (prints[:cut], prints[cut:]) if part]
    trades = joined([columns_of(part) for part in parts]) if parts else Trades.empty()
    table = to_frame(trades, frame)
    order = sorted(prints, key=lambda p: (p[0].market_id, p[0].token_id or "", p[1]))
    assert list(table.columns)[:7] == ["ts", "market_id", "token_id", "token_label", "side", "price", "size"]
    columns = {name: table[name].to_list() for name in table.columns}
    assert columns["price"] == [p[3] for p in order]
    assert [x if isinstance(x, str) else None for x in columns["side"]] == [p[2] for p in order]
    assert [t.timestamp() for t in columns["ts"]] == [p[1] for p in order]
    assert not prints or columns["trade_id"] == [f"t{p[1]}" for p in order]
