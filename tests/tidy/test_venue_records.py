"""Outcomes of records as venues give them, in every kind of frame: what the venue said that each token paid."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from reference.markets import in_kind

import marketdata as md

IDS = [str(7 * 10**76), str(7 * 10**76 + 1)]
GAMMA: dict[str, dict[str, Any]] = {
    "a winner": {"closed": True, "umaResolutionStatus": "resolved", "outcomePrices": ["0", "1"]},
    "a void": {"closed": True, "umaResolutionStatus": "resolved", "outcomePrices": ["0.5", "0.5"]},
    "proposed": {"closed": False, "umaResolutionStatus": "proposed", "outcomePrices": ["0.5", "0.5"]},
    "disputed": {"closed": True, "umaResolutionStatus": "disputed", "outcomePrices": ["1", "0"]},
    "rounded": {"closed": True, "umaResolutionStatus": "resolved", "outcomePrices": ["0.9995", "0.0005"]},
    "second version": {"closed": True, "resolutionStatus": "resolved", "outcomePrices": ["1", "0"]},
    "second version, active": {"closed": False, "resolutionStatus": "active", "outcomePrices": ["1", "0"]},
}
KALSHI: dict[str, dict[str, Any]] = {
    "yes": {"status": "finalized", "result": "yes", "settlement_value_dollars": "1.0000"},
    "no": {"status": "finalized", "result": "no", "settlement_value_dollars": "0.0000"},
    "scalar": {"status": "finalized", "result": "scalar", "settlement_value_dollars": "0.3700"},
    "void": {"status": "finalized", "result": "void", "settlement_value_dollars": "0.5000"},
    "nothing": {"status": "finalized", "result": "", "settlement_value_dollars": "0.0000"},
    "determined": {"status": "determined", "result": "yes"},
    "disputed": {"status": "disputed", "result": "yes", "settlement_value_dollars": "1.0000"},
    "amended": {"status": "amended", "result": "no", "settlement_value_dollars": "0.0000"},
    "active": {"status": "active", "result": "", "settlement_value_dollars": None},
}
PAID: dict[str, list[float | None]] = {
    "a winner": [0.0, 1.0], "a void": [0.5, 0.5], "second version": [1.0, 0.0], "yes": [1.0, 0.0], "no": [0.0, 1.0],
    "scalar": [0.37, 0.63], "void": [0.5, 0.5],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "lazy"])
@pytest.mark.parametrize("are_texts", [True, False])
def test_outcomes_of_raw_records_are_what_the_venue_said(kind: str, are_texts: bool) -> None:
    """Only what is final pays: void and scalar markets a share; prices, proposals and disputes prove nothing."""
    text = json.dumps if are_texts else list
    gamma = [
        {"conditionId": f"0x{name}", **row, "outcomes": text(["Yes", "No"]),
         "outcomePrices": text(row["outcomePrices"]),
         **({"positionIds": IDS} if "second" in name else {"clobTokenIds": text(IDS)})}
        for name, row in GAMMA.items()
    ]  # fmt: skip
    kalshi = [{"ticker": name, "close_time": "2026-01-01T00:00:00Z", **row} for name, row in KALSHI.items()]
    for rows, names, prefix in ((gamma, GAMMA, "0x"), (kalshi, KALSHI, "")):
        frame = in_kind(pl.DataFrame(rows, infer_schema_length=None), kind)
        got: Any = md.outcomes(frame)
        got = got.collect() if kind == "lazy" else pl.DataFrame(got)
        paid = {
            name: got.filter(pl.col("market_id") == prefix + name)["payoff"].fill_nan(None).to_list() for name in names
        }
        assert paid == {name: PAID.get(name, [None, None]) for name in names}


@pytest.mark.parametrize("are_texts", [True, False])
def test_outcomes_of_the_clob_name_the_winner(are_texts: bool) -> None:
    """tokens[].winner of a closed market; of an open one, or where none or both won, nothing."""
    flag = (lambda is_so: str(is_so).lower()) if are_texts else bool
    cases = {
        "no": (True, [False, True]),
        "open": (False, [False, True]),
        "none": (True, [False, False]),
        "both": (True, [True, True]),
    }
    rows = [
        {"condition_id": f"0x{name}", "closed": flag(is_closed),
         "tokens": [{"token_id": IDS[i], "outcome": ("Yes", "No")[i], "winner": flag(won[i])} for i in (0, 1)]}
        for name, (is_closed, won) in cases.items()
    ]  # fmt: skip
    got = md.outcomes(pl.DataFrame(rows))
    paid = {name: got.filter(pl.col("market_id") == f"0x{name}")["payoff"].to_list() for name in cases}
    assert paid == {"no": [0.0, 1.0], **{name: [None, None] for name in ("open", "none", "both")}}
