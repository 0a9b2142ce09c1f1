"""Each guard of a format and each step of a table is needed: a small file is read wrongly without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recordings.test_evidence import MARKET, S, T, meaning

from marketdata.recordings import table as steps
from marketdata.recordings.format import Format, all_formats

TICKER = "KXA-26JAN01-T5"
# For each guard a file that only it refuses, or reads as what it is: the format, the guard, the file and options.
GUARDS: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("levels", "is_snapshot"): (
        (f"ts,token_id,side,level,price,size,is_snapshot\n{S},{T},bid,0,.4,1,true\n{S},{T},ask,0,.5,1,true\n"
        f"{S + 60},{T},bid,0,.4,2,false\n"),
        {"format": "levels"},
    ),
    ("levels", "has_sides_of_trades"): (
        f"ts,token_id,side,price,size\n{S},{T},buy,.4,1\n{S},{T},sell,.5,1\n", {"format": "levels"},
    ),
    ("levels", "has_changes"): (
        (f"ts,token_id,side,price,size\n{S},{T},bid,.4,1\n{S + 60},{T},bid,.4,2\n{S + 60},{T},ask,.5,2\n"
        f"{S + 90},{T},bid,.4,3\n"), {},
    ),
    **{
        ("metrics", role): (
            f"ts,market_id,{column},volume\n" + "".join(f"{S + 60 * i},m1,{value},{i}\n" for i in range(3)),
            {"format": "metrics"},
        )
        for role, column, value in (
            ("state", "status", "active"), ("token_ids", "clob_token_ids", '"[""7""]"'), ("open", "open", 0.4),
            ("high", "high", 0.4), ("low", "low", 0.4), ("token_label", "outcome", "Yes"),
        )
    },
    **{
        (of, "is_of_records"): (
            f"ts,ticker,status,{columns}\n{S},KXA-1,active,.4,.6\n{S},KXA-2,active,.3,.7\n", {"format": of},
        )
        for of, columns in (("outcome-quotes", "yes_bid,yes_ask"), ("outcome-prices", "yes_price,no_price"))
    },
    ("markets", "is_history"): (
        f"ts,market_id,question,token_id,price\n{S},m,q?,{T},.4\n", {"format": "markets"},
    ),
    ("events", "is_history"): (
        f"ts,event_id,title,token_id,price\n{S},e,t,{T},.4\n", {"format": "events"},
    ),
    ("incremental", "other_events"): (
        f"ts,token_id,event_type,side,price,size\n{S},{T},filled,bid,.4,1\n", {"format": "incremental"},
    ),
    ("series", "is_history"): (
        f"ts,series_id,title,token_id,price\n{S},e,t,{T},.4\n", {"format": "series"},
    ),
    ("trades", "is_of_an_outcome"): (f"ts,ticker,side,price,size\n{S},{TICKER},no,.55,10\n", {}),
    ("trades", "has_outcomes_elsewhere"): (
        f"ts,ticker,contract,price,size\n{S},{TICKER},YES,.45,10\n{S + 1},{TICKER},NO,.6,10\n", {},
    ),
    ("prices", "has_outcomes_elsewhere"): (
        f"ts,ticker,deal,price\n{S},{TICKER},Sell Yes,.45\n{S + 1},{TICKER},Buy No,.6\n", {},
    ),
    ("trades", "has_removed_levels"): (
        f"ts,token_id,side,price,size\n{S},{T},BUY,.4,10\n{S + 1},{T},BUY,.4,0\n", {},
    ),
    ("trades", "has_unknown_sides"): (f"ts,token_id,side,price,size,trade_id\n{S},{T},LONG,.4,10,a\n", {}),
    ("trades", "has_sides_of_a_book"): (
        f"ts,token_id,side,price,size\n{S},{T},bid,.4,10\n{S + 1},{T},ask,.5,9\n", {"format": "trades"},
    ),
}  # fmt: skip


def guards() -> list[tuple[Format, str]]:
    """Every role that a format never has, and every guard."""
    return [
        (one, name)
        for one in all_formats().values()
        for name in (*one.never.split(), *(guard.__name__ for guard in one.guards))
    ]


def without(one: Format, name: str) -> Format:
    """The format without a guard."""
    never = " ".join(role for role in one.never.split() if role != name)
    return replace(one, never=never, guards=tuple(guard for guard in one.guards if guard.__name__ != name))


@pytest.mark.parametrize(("chosen", "name"), [pytest.param(*pair, id=f"{pair[0].name}-{pair[1]}") for pair in guards()])
@pytest.mark.filterwarnings("ignore::marketdata.errors.RecordingWarning")
def test_a_guard_refuses_what_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Format, name: str
) -> None:
    """With the guard the file is refused; without it, it would be stored as something else."""
    text, options = GUARDS[chosen.name, name]
    (path := tmp_path / "a.csv").write_text(text)
    assert meaning(path, **options) is None
    fewer = {**all_formats(), chosen.name: without(chosen, name)}
    monkeypatch.setattr("marketdata.recordings.format.all_formats", lambda: fewer)
    assert meaning(path, **options) is not None


_PRICE = f"ts,token_id,price\n{S},{T},.4\n"
# For each step of a table, a file of which something else would be stored without it, or nothing.
STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "token_of_the_option": (f"ts,up_bid,up_ask\n{S},.4,.5\n", {"token_id": "btc"}),
    "side_of_the_option": (f"ts,token_id,side,price,size\n{S},{T},LONG,.4,3\n", {"sides": {"long": "buy"}}),
    "sides_as_given": (f"ts,token_id,side,price,size\n{S},{T},BUY,.4,3\n", {"sides": {"buy": "sell"}}),
    "side_of_an_action": (f"ts,token_id,action,price,size\n{S},{T},Sell,.4,3\n", {}),
    "label_of_the_side": (f"ts,market,side,price\n{S},{MARKET},yes,.4\n", {}),
    "label_of_a_word": (f"ts,slug,label,last\n{S},a-b,Yes,.4\n", {}),
    "sizes_called_volume": (
        f"ts,token_id,trade_side,price,volume\n{S},{T},Sell,.4,9\n{S + 1},{T},Buy,.5,7\n{S + 2},{T},Buy,.5,8\n",
        {},
    ),
    "whole_books_and_changes": (
        (f"ts,token_id,side,price,size,kind\n{S},{T},bid,.4,1,snapshot\n{S},{T},ask,.5,1,snapshot\n"
        f"{S + 60},{T},bid,.4,2,update\n"), {},
    ),
    "time_by_value": (_PRICE.replace("ts", "dttm"), {}),
    "time_of_another_role": (_PRICE.replace("ts", "fetched_at"), {}),
    "time_of_the_file": (f"token_id,price\n{T},.4\n", {"clock": "modified"}),
    "one_time": (f"timestamp,block_time,token_id,price\n{S + 9000},{S},{T},.4\n{S + 9001},{S + 60},{T},.5\n", {}),
    "one_column_a_name": (f"Price,ts,token_id,price\n.5,{S},{T},.4\n", {}),
    "rows_of_failed_polls": (
        f'ts,token_id,bids,asks,error\n{S},{T},"[[0.4, 1]]","[[0.5, 1]]",\n{S + 60},{T},[],[],timeout\n', {},
    ),
    "ids_without_apostrophes": (f"ts,token_id,price\n{S},'{T},.4\n", {}),
    "rows_with_an_id": (f"ts,market,yes_price\n{S}, {MARKET} ,.4\n", {}),
    "flags_of_whole_books": (
        (f"ts,token_id,side,price,size,is_delta\n{S},{T},bid,.4,1,false\n{S},{T},ask,.5,1,false\n"
        f"{S + 60},{T},bid,.4,0,true\n"), {},
    ),
    "prices_in_dollars": (f"ts,token_id,price\n{S},{T},40\n{S + 60},{T},41\n", {}),
}  # fmt: skip


def test_every_step_has_its_file() -> None:
    """A step that is added needs a file that shows what it is for."""
    assert STEPS.keys() == {step.__name__ for step in (*steps.ROLE_STEPS, *steps.ROW_STEPS)}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_decides_what_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without the step the file is stored otherwise, or not at all."""
    text, options = STEPS[name]
    (path := tmp_path / "a.csv").write_text(text)
    wanted = meaning(path, **options)
    for of in ("ROLE_STEPS", "ROW_STEPS"):
        fewer = tuple(step for step in getattr(steps, of) if step.__name__ != name)
        monkeypatch.setattr(steps, of, fewer)
    assert meaning(path, **options) != wanted
