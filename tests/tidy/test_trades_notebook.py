"""The numbers stored in the notebook of trades, by plain loops over its prints."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from reference.studies import code_cells, stored_table

NOTEBOOK = "12_who_earns_from_trades.ipynb"
Print = dict[str, Any]


def earned(one: Print, role: str = "taker") -> tuple[float, float]:
    """What the side of a print could lose, and its profit."""
    buys = (one["side"] == "buy") == (role == "taker")
    paid = one["price"] if buys else 1 - one["price"]
    return paid * one["size"], ((one["payoff"] if buys else 1 - one["payoff"]) - paid) * one["size"]


def by_group(
    prints: Iterable[Print], group_of: Callable[[Print], Any], role: str = "taker"
) -> dict[Any, dict[str, Any]]:
    """The sums of each group, in the order of the groups."""
    groups = defaultdict(list)
    for one in prints:
        groups[group_of(one)].append(one)
    out = {}
    for group, members in sorted(groups.items()):
        sums = [earned(one, role) for one in members]
        staked, profit = math.fsum(s for s, _ in sums), math.fsum(p for _, p in sums)
        out[group] = {
            "trades": len(members), "markets": len({one["market_id"] for one in members}),
            "volume": math.fsum(one["price"] * one["size"] for one in members),
            "shares": math.fsum(one["size"] for one in members), "staked": staked, "profit": profit,
            "return": profit / staked, "hit_rate": sum(p > 1e-9 for _, p in sums) / len(sums),
        }  # fmt: skip
    return out


def assert_shown(text: str, want: Iterable[dict[str, Any]], digits: int) -> None:
    """Each stored number is that of the loop, to the digits that are shown."""
    stored, rows = stored_table(text), list(want)
    assert len(stored) == len(rows)
    for got, row in zip(stored, rows, strict=True):
        for name in got.keys() & row.keys():
            assert float(got[name]) == pytest.approx(row[name], abs=0.51 * 10**-digits), name


@pytest.mark.docs
def test_each_number_of_the_notebook_of_trades_equals_a_plain_loop() -> None:
    """Profits by role, price, size, hour and account, win rates by price, and volume over time."""
    (first, texts), *cells = code_cells(NOTEBOOK)
    space: dict[str, Any] = {}
    exec(first, space)
    payoffs = {
        token: float(token == one["resolved_token_id"])
        for one in space["resolved"].to_dict("records")
        for token in one["token_ids"]
    }
    prints = space["prints"].astype({"market_id": str, "token_id": str, "side": str}).to_dict("records")
    for one in prints:
        one["payoff"] = payoffs[one["token_id"]]
    assert texts == [f"'{len(prints):,} prints of {len({one['market_id'] for one in prints})} resolved markets'"]

    shown = {number: stored[0] for number, (_, stored) in enumerate(cells) if stored}
    assert_shown(shown[0], [by_group(prints, lambda _: 0, role)[0] for role in ("taker", "maker")], 3)

    bins = defaultdict(list)
    for one in prints:
        bins[min(int(one["price"] * 10 + 1e-9), 9)].append(one)
    curve = [
        {
            "points": len(members), "forecast": math.fsum(one["price"] for one in members) / len(members),
            "outcome": math.fsum(one["payoff"] for one in members) / len(members),
        }
        for _, members in sorted(bins.items())
    ]  # fmt: skip
    assert_shown(shown[1], curve, 3)

    bought = [one for one in prints if one["side"] == "buy"]
    assert_shown(shown[3], by_group(bought, lambda one: int(one["price"] * 5)).values(), 3)
    sizes = sorted(one["size"] for one in prints)
    place = 0.9 * (len(sizes) - 1)
    low, high = sizes[math.floor(place)], sizes[math.ceil(place)]
    border = low + (high - low) * (place - math.floor(place))
    by_size = by_group(prints, lambda one: one["size"] >= border).values()
    assert_shown(shown[4].replace("False", "0").replace("True", "1"), by_size, 3)
    assert_shown(shown[5], by_group(prints, lambda one: one["ts"].hour // 6 * 6).values(), 3)

    bars = defaultdict(lambda: [0.0, 0.0, 0])
    for one in prints:
        bar = bars[one["ts"].floor("12h")]
        bar[0] += one["size"]
        bar[1] += one["size"] if one["side"] == "buy" else -one["size"]
        bar[2] += 1
    lines = [line.split() for line in shown[6].splitlines()[2:]]
    assert [line[0] + " " + line[1] for line in lines] == [str(ts) for ts in sorted(bars)]
    for line, ts in zip(lines, sorted(bars), strict=True):
        assert [float(value) for value in line[2:]] == [pytest.approx(value, abs=0.051) for value in bars[ts]]

    takers = by_group(prints, lambda one: one["taker"])
    volumes = sorted((one["volume"] for one in takers.values()), reverse=True)
    share = sum(volumes[: len(volumes) // 10]) / sum(volumes)
    winners = sum(one["profit"] > 0 for one in takers.values()) / len(takers)
    text = f"{len(takers)} takers, {winners:.0%} with a profit; the top tenth has {share:.0%} of the volume"
    assert shown[7] == f"'{text}'"
