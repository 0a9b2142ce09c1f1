"""Events as baskets, by a plain loop in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import ladders
from reference.kinds import FRAME_KINDS, close, fewest, of_kind, rows
from reference.markets import pairs, tops
from reference.measures import SLACK, exact, legs

import marketdata as md
from marketdata.tidy.frames import to_frame

RATE = 0.05


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, pl.DataFrame, dict[str, Any]]:
    """Books of two markets, their records (the second token may be Yes, a third market has no books), and events."""
    books = draw(pairs())
    markets = ["m0", "m1"] + ["m2"] * draw(st.booleans())
    ids = [draw(st.permutations([f"{market[1]}0", f"{market[1]}1"])) for market in markets]
    alone = draw(st.booleans())
    event = ["e1" if alone and market == "m1" else "e0" for market in markets]
    said = {name: (draw(st.sampled_from([True, True, False, None])), draw(st.sampled_from([False, False, True, None])))
            for name in ("e0", "e1")}  # fmt: skip
    records = pl.DataFrame(
        {
            "market_id": markets,
            "token_ids": ids,
            "event_id": event,
            "exclusive": [said[e][0] for e in event],
            "open_list": [said[e][1] for e in event],
        },
        schema_overrides={"exclusive": pl.Boolean, "open_list": pl.Boolean},
    ).sample(fraction=1, shuffle=True, seed=1)
    events = {
        e: {
            "legs": {m: i for m, i, of in zip(markets, ids, event, strict=True) if of == e},
            "basket": said[e][0] is True and said[e][1] is False,
        }
        for e in event
    }
    return books, records, events


def times(books: Any, event: dict[str, Any]) -> list[int]:
    tokens = [books.tokens[i].market_id for i in books.token]
    return sorted({int(ts) for ts, market in zip(books.ts, tokens, strict=True) if market in event["legs"]})


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), case=cases(), size=st.sampled_from([None, 0.5, 100, 1e5]))
def test_costs_of_a_basket_equal_a_plain_walk(kind: str, case: Any, size: float | None) -> None:
    """All Yes and all No, level by level with fees; null where a leg lacks depth, or the event is no basket."""
    books, records, events = case
    sides = {(*token[:2], ts): asks for (token, ts), (_, asks) in ladders(books).items()}
    want = []
    for name, event in sorted(events.items()):
        for ts in times(books, event):
            row: list[Any] = [ts, name, len(event["legs"])]
            for side, pays in ((0, 1), (1, len(event["legs"]) - 1)):
                each = [sides.get((market, ids[side], ts), []) for market, ids in event["legs"].items()]
                sets = (
                    None if not all(each) else min(levels[0][1] for levels in each) if size is None else Fraction(size)
                )
                short = sets is None or any(sum(s for _, s in levels) < sets * (1 - SLACK) for levels in each)
                if short or not event["basket"]:
                    row += [None] * 4
                    continue
                taken = [one for levels in each for one in legs(levels, sets)]  # type: ignore[arg-type]
                cost = sum(p * s + exact("quadratic", RATE, p, s) for p, s in taken)
                row += [float(sets), float(cost), float(sets * pays), float(sets * pays - cost)]  # type: ignore[arg-type, operator]
            want.append(tuple(row))
    fees = md.Fees.quadratic(RATE, decimals=None)
    got = rows(md.arbitrage(of_kind(books, kind), records, fees=fees, size=size))
    # The edge of large sums that cancel is exact to their last bits.
    assert close(got, want, digits=1e-9, least=1e-9 * max((row[i] or 0 for row in want for i in (4, 8)), default=0))


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), case=cases())
def test_sums_and_probabilities_of_an_event_equal_a_plain_walk(kind: str, case: Any) -> None:
    """The Yes of all markets of a basket; null where one lacks the value."""
    books, records, events = case
    seen = {(t.market_id, t.token_id, ts): values for (t, ts), values in tops(books).items()}
    labels = {(t.market_id, t.token_id): t.token_label for t in books.tokens}
    sums, shares = [], []
    for name, event in sorted(events.items()):
        for ts in times(books, event):
            each = {m: seen.get((m, ids[0], ts)) for m, ids in event["legs"].items()}
            there = [values for values in each.values() if values is not None]
            whole = event["basket"] and len(there) == len(each)
            found = []
            for column in (0, 4, 2):
                values = [v[column] for v in there]
                found.append(float(sum(map(Fraction, values))) if whole and None not in values else None)
            bid, mid, ask = found
            sums.append((ts, name, len(there), bid, mid, ask, None if ask is None else ask - 1))
            for market, values in each.items():
                if values is not None:
                    yes = event["legs"][market][0]
                    share = None if not mid else values[4] / mid
                    shares.append((ts, market, yes, labels[market, yes], share))
    frame = of_kind(books, kind)
    assert close(rows(md.overround(frame, records)), sums, least=1e-14)
    shares.sort(key=lambda row: (row[1:3], row[0]))
    assert close(rows(md.probabilities(frame, records)), shares)


@fewest
@given(case=cases())
def test_a_basket_of_the_best_prices_needs_no_levels(case: Any) -> None:
    """A frame of bbo offers the size at the best ask."""
    books, records, _ = case
    frame = to_frame(books, "polars")
    of_bbo = md.arbitrage(md.bbo(frame), records, fees=0)
    assert close(rows(of_bbo), rows(md.arbitrage(frame, records, fees=0)))


@pytest.mark.fault("FR4")
def test_an_event_that_is_no_basket_is_no_gain() -> None:
    """All Yes cost 0.3 here: no free money if another outcome may win, that is not known, or a market has no book."""
    books = md.testing.books("polars", markets=3).with_columns(price=pl.col("price") / 8)
    events = md.testing.markets("polars", markets=4).with_columns(exclusive=True, open_list=False)
    assert books.md.arbitrage(events.head(3), fees=0)["yes_edge"].min() > 50
    unsure = [
        events.head(3).with_columns(**{name: pl.lit(value, pl.Boolean)})
        for name, value in (("exclusive", False), ("exclusive", None), ("open_list", True), ("open_list", None))
    ]
    for records in (*unsure, events):
        assert {row[3:] for row in books.md.arbitrage(records, fees=0).rows()} == {(None,) * 8}
        assert set(books.md.overround(records)["overround"]) == {None}
        assert set(books.md.probabilities(records)["probability"]) == {None}


@pytest.mark.fault("FR4")
def test_a_market_without_a_record_may_be_of_the_event() -> None:
    """Records of two of three markets say nothing of the event: null and a warning, and no certain payoff."""
    books = md.testing.books("polars", markets=3).with_columns(price=pl.col("price") / 8)
    events = md.testing.markets("polars", markets=3).with_columns(exclusive=True, open_list=False)
    with pytest.warns(md.errors.MissingRecordsWarning, match="without a record, such as"):
        assert {row[3:] for row in books.md.arbitrage(events.head(2), fees=0).rows()} == {(None,) * 8}
    with pytest.warns(md.errors.MissingRecordsWarning):
        assert set(books.md.overround(events.head(2))["overround"]) == {None}
    with pytest.warns(md.errors.MissingRecordsWarning):
        assert set(books.md.probabilities(events.head(2))["probability"]) == {None}
    of_others = events.with_columns(event_id=pl.Series(["e", "e", "f"]))
    assert books.md.arbitrage(of_others, fees=0).filter(event_id="e")["yes_edge"].min() > 50


@pytest.mark.parametrize("off", ["False", "false", "0", "no", 0, False, None], ids=repr)
@pytest.mark.parametrize("on", ["True", "true", "1", "yes", 1, True], ids=repr)
def test_flags_of_records_are_read_in_any_form(on: Any, off: Any) -> None:
    """A text of false is false: not exclusive, a closed list, no fees; null is not known."""
    books = md.testing.books("polars", markets=3, buckets=1)
    records = md.testing.markets("polars", markets=3)

    def edge(exclusive: Any, open_list: Any) -> Any:
        return md.overround(books, records.with_columns(exclusive=exclusive, open_list=open_list))["overround"][0]

    exclusive, not_exclusive = (pl.lit(on), pl.lit(off))
    assert (edge(exclusive, not_exclusive) is None) == (off is None)
    assert edge(not_exclusive, pl.lit(value=False)) is None
    assert edge(exclusive, exclusive) is None
    rated = records.with_columns(feesEnabled=not_exclusive, feeSchedule=pl.lit('{"rate": 0.05}'))
    assert md.Fees.of(rated).of_market("rain").rate == (0.05 if off is None else 0)
    assert md.Fees.of(rated.with_columns(feesEnabled=exclusive)).of_market("rain").rate == 0.05
    for wrong in (records.with_columns(exclusive=pl.lit("maybe"), open_list=False), rated.with_columns(feesEnabled=2)):
        with pytest.raises(md.errors.NotTidyError, match="allowed are true and false"):
            md.overround(books, wrong) if "exclusive" in wrong.columns else md.Fees.of(wrong)


def test_records_of_any_kind_name_yes_first() -> None:
    """A record whose first token has the greater id names Yes, in every kind of frame of records."""
    books = md.testing.books("polars", markets=2, buckets=1)
    records = md.testing.markets("polars", markets=2).with_columns(negRisk=True, negRiskAugmented=False)
    turned = records.with_columns(pl.col("token_ids", "token_labels").list.reverse())
    for events in (turned, turned.to_pandas(), turned.to_arrow(), turned.lazy()):
        assert books.md.overround(events)["ask_sum"].to_list() == [pytest.approx(0.61 + 0.51)]


def test_what_is_missing_or_contradicts_itself_is_named() -> None:
    """Records without the two facts, with three tokens, or that contradict each other are errors."""
    books = md.testing.books("polars", markets=2)
    records = md.testing.markets("polars", markets=2)
    events = records.with_columns(exclusive=True, open_list=False)
    for function in (md.overround, md.probabilities, md.arbitrage):
        more = {"fees": 0} if function is md.arbitrage else {}
        with pytest.raises(md.errors.NotTidyError, match=r"'exclusive', 'open_list'"):
            function(books, records, **more)
        three = events.with_columns(token_ids=pl.lit(["1", "2", "3"]))
        with pytest.raises(md.errors.NotTidyError, match="3 tokens"):
            function(books, three, **more)
        differs = events.with_columns(exclusive=pl.col("market_id") == "rain")
        with pytest.raises(md.errors.NotTidyError, match="differ in exclusive or open_list"):
            function(books, differs, **more)
        with pytest.raises(md.errors.ConfigError, match=r"tokens= and markets= exclude each other"):
            function(books, events, tokens=2, **more)
        assert len(function(books, tokens=records)) > 0  # which the error about lacking columns advises
    with pytest.raises(md.errors.ConfigError, match=r"^size=5 is of sets of the markets of an event"):
        md.arbitrage(books, size=5)
    with pytest.raises(md.errors.ConfigError, match=r"^fees=None is refused.*md\.Fees\.flat"):
        md.arbitrage(books, events, fees=None)
    with pytest.raises(md.errors.ConfigError, match="not known"):
        md.arbitrage(books, events, fees=md.Fees.of(records.with_columns(fd=pl.lit(None, pl.String))))
    with pytest.raises(md.errors.ConfigError, match="size"):
        md.arbitrage(books, events, fees=0, size=np.nan)
    cents = books.with_columns(price=pl.col("price") * 100)
    with pytest.raises(md.errors.NotTidyError, match="divide cents by 100"):
        md.arbitrage(cents, events, fees=0)
