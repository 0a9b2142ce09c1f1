"""A table of public functions by traps: each cell warns, refuses, or says what it says without the trap.

A new public function is a new row: its arguments that are frames are found by their names, and it fails here until the
test knows its other arguments.
"""

from __future__ import annotations

import datetime as dt
import inspect
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import polars as pl
import pytest

import marketdata as md

MINUTE = dt.timedelta(minutes=1)
START = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
COUNT, MINUTES = 24, 9
CLOSED = START + MINUTES * MINUTE
# Arguments that are rows of time, and the view that each has.
FRAMES = {"frame": "books", "books": "books", "prices": "books", "trades": "trades", "left": "bbo", "frames": "books",
          "fills": "fills", "orders": "orders"}  # fmt: skip
# What has no argument of rows of time, or is between venues, with tests of its own.
OTHERS = {
    "candidates", "lead_lag", "measure", "outcomes", "pair_spread", "pairs", "read_pages", "read_trades", "rebuild",
    "replay_server", "serve", "simulate", "without_answers",
}  # fmt: skip
# Functions that list or show what is wrong, or say where two frames differ: a trap changes what they say.
LISTS = {"check", "diff", "gaps", "show"}
# The counts of what was left out, and flags of what was filled in.
COUNTS = {"left_out", "nulls", "after_close", "not_observed", "unpaired", "at_end", "observed", "n_checked"}


class Setting(NamedTuple):
    """The inputs of a call: books of Yes and No, records of their markets, and fees."""

    books: pl.DataFrame
    records: pl.DataFrame
    fees: Any = 0


def price(market: int, minute: int) -> float:
    """The mid of Yes: both outcomes happen at every price."""
    return 0.2 + 0.025 * ((market * 5 + minute * 3 + minute**2) % 24)


def books_of(markets: int = COUNT, minutes: Any = range(MINUTES), mid: Any = price) -> pl.DataFrame:
    """Books of two levels a side, the book of No the mirror of that of Yes."""
    rows = [
        (START + minute * MINUTE, f"m{m:02}", f"{m:02}{token}", label, side, level,
         (mid(m, minute) if label == "Yes" else 1 - mid(m, minute)) + sign * (0.01 + 0.01 * level), 100.0 + minute + m)
        for m in range(markets) for token, label in (("y", "Yes"), ("z", "No")) for minute in minutes
        for side, sign in (("bid", -1), ("ask", 1)) for level in range(2)
    ]  # fmt: skip
    names = ("ts", "market_id", "token_id", "token_label", "side", "level", "price", "size")
    types = {"ts": pl.Datetime("us", "UTC"), "level": pl.Int32}
    return pl.DataFrame(rows, names, orient="row", schema_overrides=types).sort(
        "market_id", "token_id", "ts", pl.col("side") != "bid", "level"
    )


def records_of(markets: int = COUNT, *, per_event: int = 1, won: Any = lambda m: m % 3 != 0) -> pl.DataFrame:
    """Records of markets that closed when their books end."""
    ids = range(markets)
    return pl.DataFrame({
        "market_id": [f"m{m:02}" for m in ids], "slug": [f"s{m}" for m in ids], "question": [f"q{m}?" for m in ids],
        "token_ids": [[f"{m:02}y", f"{m:02}z"] for m in ids], "token_labels": [["Yes", "No"]] * markets,
        "resolved_token_id": [None if won(m) is None else f"{m:02}{'y' if won(m) else 'z'}" for m in ids],
        "closed_at": [CLOSED] * markets, "end_date": [CLOSED] * markets,
        "event_id": [f"e{m // per_event}" for m in ids], "exclusive": [True] * markets, "open_list": [False] * markets,
    })  # fmt: skip


BASE = Setting(books_of(), records_of())


class Function(NamedTuple):
    """A public function with the frame of one of its arguments open."""

    name: str
    argument: str
    call: Callable[[Setting], Any]
    takes: frozenset[str]


def functions() -> Iterator[Function]:
    """Each public function, once for each of its arguments that are rows of time."""
    for name, function in inspect.getmembers(md, inspect.isfunction):
        if name.startswith("_") or name in OTHERS | LISTS:
            continue
        takes = inspect.signature(function).parameters
        frames = [one for one in takes if one in FRAMES]
        assert frames, f"{name} has no argument that is a frame: name one like those of others, or add it to OTHERS"

        def call(setting: Setting, function: Any = function, takes: Any = takes, name: str = name) -> Any:
            return function(**arguments(name, takes, setting))

        yield Function(name, frames[0], call, frozenset(takes))
        if "tokens" in takes and "markets" in takes:  # of each market alone, too

            def of_markets(setting: Setting, function: Any = function, takes: Any = takes, name: str = name) -> Any:
                return function(**arguments(name, {k: v for k, v in takes.items() if k != "markets"}, setting))

            yield Function(f"{name} of a market", frames[0], of_markets, frozenset(takes) - {"markets"})


def best_of(books: pl.DataFrame) -> pl.DataFrame:
    """The best prices of books, whatever they are."""
    ids = ["ts", "market_id", "token_id", "token_label", *({"observed"} & {*books.columns})]
    bids, asks = (books.filter(pl.col("side") == side, pl.col("level").fill_null(0) == 0) for side in ("bid", "ask"))
    both = bids.select(*ids, best_bid="price", best_bid_size="size", best_ask=asks["price"], best_ask_size=asks["size"])
    return both.with_columns(
        mid=(pl.col("best_bid") + pl.col("best_ask")) / 2, spread=pl.col("best_ask") - pl.col("best_bid")
    )


ORDERS = BASE.books.filter(side="bid", level=0, token_label="Yes").select("ts", "market_id", "token_id")
FIRST = ORDERS.filter(pl.col("ts") == START).with_columns(side=pl.lit("buy"), size=5.0)
FILLS = md.execute(FIRST, BASE.books, "1m", fees=0).fills
# Arguments that a function takes though they have a default, so that a trap reaches it.
GIVEN = {"resamples", "interval", "outcomes", "width", "fees", "markets"}
OF_PRICES = {"align", "brier", "log_score", "skill", "calibration", "before_end", "slope"}


def arguments(name: str, takes: Any, setting: Setting) -> dict[str, Any]:
    """The arguments of a call of a function that takes these."""
    books, records = setting.books, setting.records
    prices = best_of(books).select(
        "ts", "market_id", "token_id", "token_label", *({"observed"} & {*books.columns}), price="mid"
    )
    moved = books["ts"][0] - START
    prints = prices.filter(pl.col("observed")) if "observed" in books.columns else prices
    trades = prints.filter(token_label="Yes").with_columns(side=pl.lit("buy"), size=5.0).drop("observed", strict=False)
    known: dict[str, Any] = {
        "frame": prices.with_columns(x=pl.col("price") ** 2) if name in OF_PRICES else books, "books": books,
        "prices": books, "left": best_of(books), "right": best_of(books), "frames": [books, books], "trades": trades,
        "orders": FIRST.with_columns(pl.col("ts") + moved), "fills": FILLS.with_columns(pl.col("ts") + moved),
        "outcomes": records, "markets": records, "fees": setting.fees, "width": "1m", "resolution": "1m",
        "before": "1m", "after": "2m", "of": "actual",
        "moments": ORDERS.head(3).select(pl.col("ts") + moved, "market_id"),
        "reference": 0.5, "measures": ["mid", "imbalance"], "horizon": "1m", "horizons": "1m", "levels": 2, "size": 5.0,
        "signal": ORDERS.with_columns(pl.col("ts") + moved, x=(pl.int_range(pl.len()) * 7919) % 101 / 101),
        "side": "buy", "value": "net", "y": "price", "x": "x", "resamples": 60, "interval": 0.9,
    }  # fmt: skip
    if name == "cluster_mean":  # it takes what another function gives
        known["frame"] = md.forward_returns(books, "1m", latency="0s", fees=0, outcomes=records, width="1m")
    if name == "to_nautilus":
        known["instrument"] = SimpleNamespace(id="a", price_precision=9, size_precision=2)
        known["frame"] = books.filter(token_id="00y").with_columns(pl.col("price").round(6))
    if name in ("event_distribution", "event_contradictions"):  # a ladder
        known["markets"] = records.with_columns(
            exclusive=False,
            event_id=pl.lit("e"),
            strike=pl.col("market_id").str.slice(1).cast(pl.Float64),
            comparison=pl.lit(">"),
        )
    if name == "explode":
        known["frame"] = md.nest(books)
    if name == "replay":
        return {"books": books, "width": "1m"}
    special = {"account": {"cash": 1000.0}, "fill_price": {"size": 5.0}, "study": {"quantiles": 2},
               "sweep": {"size": 5.0}}  # fmt: skip
    given = {one.name for one in takes.values() if one.default is one.empty or one.name in GIVEN}
    lacking = given - known.keys()
    assert not lacking, f"{name} needs {lacking}: add them to the arguments of this test"
    return {one: known[one] for one in given} | special.get(name, {})


def rows(result: Any) -> set[tuple[Any, ...]]:
    """The rows of a result without its counts of what was left out, numbers rounded."""
    for part in ("table", "fills", "total"):
        result = getattr(result, part) if not isinstance(result, pl.DataFrame) and hasattr(result, part) else result
    if not isinstance(result, pl.DataFrame):
        return {(repr(one),) for one in result}
    names = sorted(c for c in result.columns if c not in COUNTS)
    return {tuple(round(v, 9) if isinstance(v, float) else repr(v) for v in row) for row in result.select(names).rows()}


def outcome(function: Function, clean: Setting, trapped: Setting, alone: Callable[[Any], bool] | None) -> str:
    """What a function does with a trap: "warns", "refuses", "right", or what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = None if alone is not None else rows(function.call(clean))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = function.call(trapped)
            got = rows(result)
        except md.MarketDataError:
            return "refuses"
    if any(issubclass(one.category, md.errors.MarketDataWarning) for one in said):
        return "warns"
    if alone is not None:
        return "right" if alone(result) else "gives an interval in silence"
    return (
        "right"
        if want is not None and want <= got
        else f"is another one: {sorted(map(str, (want or set()) - got))[:1]}"
    )


def has_no_interval(result: Any) -> bool:
    """Whether all ends of intervals of a result are null."""
    table = getattr(result, "table", result)
    ends = [c for c in table.columns if c == "low" or c.endswith("_low")]
    return all(table[c].fill_nan(None).is_null().all() for c in ends if table[c].dtype == pl.Float64)


def survivors() -> Setting:
    """The markets that resolved so far are all Yes; the other ones are open."""
    return Setting(BASE.books, records_of(won=lambda m: True if m % 2 else None))


def carried() -> tuple[Setting, Setting]:
    """Books with a gap, and the same filled in."""
    gap = books_of(minutes=[0, 1, 2, 5, 6, 7, 8])
    return Setting(gap, BASE.records), Setting(md.resample(gap, "1m", fill="forward", width="1m"), BASE.records)


def after_close() -> Setting:
    """Rows of after the close, at the payoff."""
    late = books_of(minutes=range(MINUTES, 4 * MINUTES), mid=lambda m, _: 0.97 if m % 3 else 0.03)
    return Setting(pl.concat([BASE.books, late]), BASE.records)


def nulls() -> Setting:
    """A third of the prices of Yes and No is missing, where they are far from the outcome."""

    def is_missing(m: int, minute: int) -> bool:
        return abs(price(m, minute) - (m % 3 != 0)) < 0.4

    gone = pl.struct("market_id", "ts").map_elements(
        lambda row: is_missing(int(row["market_id"][1:]), round((row["ts"] - START) / MINUTE)), return_dtype=pl.Boolean
    )
    empty = BASE.books.with_columns(gone=gone).with_columns(
        pl.when("gone").then(None).otherwise(c).alias(c) for c in ("price", "size", "level")
    )
    return Setting(empty.drop("gone").unique(maintain_order=True), BASE.records)


RATED = BASE.records.with_columns(feeSchedule=pl.lit('{"rate": 0.05, "exponent": 1}'))
MOVED = dt.datetime(2025, 5, 1, tzinfo=dt.UTC) - START
TRAPS: dict[str, tuple[Setting, Setting, str, Callable[[Any], bool] | None]] = {
    # The trap: without it, with it, the argument that a function must have for it, and what else is right.
    "after the close": (BASE, after_close(), "", None),
    "carried forward": (*carried(), "", None),
    "cents": (BASE, Setting(BASE.books.with_columns(pl.col("price") * 100), BASE.records), "refuses", None),
    "equal times": (BASE, Setting(pl.concat([BASE.books, BASE.books.with_columns(pl.col("price") + 0.001)]),
                                  BASE.records), "", None),
    "null": (BASE, nulls(), "interval", lambda _: False),
    "survivors": (BASE, survivors(), "interval", has_no_interval),
    "one event": (BASE, Setting(BASE.books, records_of(per_event=COUNT)), "interval", has_no_interval),
    "few clusters": (BASE, Setting(books_of(3), records_of(3)), "interval", has_no_interval),
    "revised record": (BASE, Setting(BASE.books, pl.concat([BASE.records, BASE.records.with_columns(
        closed_at=pl.col("closed_at") - 4 * MINUTE)])), "records", None),
    "fees by date": (BASE, Setting(BASE.books.with_columns(pl.col("ts") + MOVED), RATED, md.Fees.of(RATED)), "fees",
                     None),
}  # fmt: skip
# Cells in which a function is right to say another thing, with the reason.
RIGHT = {
    ("asof_join", "cents"): "rows of any frame are joined, also of an index",
    ("slope", "cents"): "its columns may have any meaning",
    ("slope", "survivors"): "a slope needs no outcomes",
    ("slope", "equal times"): "its rows may be of any kind, such as trades",
    ("vwap", "equal times"): "several prints share a time",
    ("pnl", "equal times"): "several prints share a time",
    ("align", "carried forward"): "it fills in itself what the clean frame lacks",
    ("asof_join", "carried forward"): "the value is the same, beside its own observed and a later available_at",
    ("effective_spread", "carried forward"): "the mid is the same, with a later available_at",
    ("returns", "carried forward"): "a return is from the row before, whatever that is",
}
FUNCTIONS = list(functions())


def applies(function: Function, needs: str) -> bool:
    """Whether a trap is one for a function."""
    return {
        "": True, "refuses": True, "interval": "interval" in function.takes,
        "records": bool({"outcomes", "markets"} & function.takes), "fees": "fees" in function.takes,
    }[needs]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_warned_of_refused_or_right(trap: str) -> None:
    """No function says in silence what it would not say without the trap, or what it cannot know."""
    clean, trapped, needs, alone = TRAPS[trap]
    wrong = []
    for function in FUNCTIONS:
        if applies(function, needs):
            got = outcome(function, clean, trapped, alone)
            allowed = ("refuses",) if needs in ("refuses", "fees") else ("warns", "refuses", "right")
            if (got in allowed) is ((function.name, trap) in RIGHT):
                wrong.append((function.name, got))
    assert wrong == []
