"""How frames are shown: `md.show` shortens ids in what is printed, and nowhere else."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md

LONG = ["0x" + "1" * 30 + "a", "0x" + "1" * 30 + "b"]
FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame({"market_id": LONG, "price": [0.1, 0.2]}),
    "pandas categories": pd.DataFrame({"market_id": pd.Categorical(LONG), "price": [0.1, 0.2]}),
    "pandas nulls": pd.DataFrame({"market_id": [*LONG, None], "token_ids": [LONG, None, []]}),
    "polars": pl.DataFrame({"market_id": LONG, "price": [0.1, 0.2]}),
    "polars categories": pl.DataFrame({"market_id": pl.Series(LONG, dtype=pl.Categorical)}),
    "polars enum": pl.DataFrame({"market_id": pl.Series(LONG, dtype=pl.Enum(LONG))}),
    "polars nulls": pl.DataFrame({"market_id": [*LONG, None], "token_ids": [LONG, None, []]}),
}


def test_show_shortens_ids_only_in_what_is_shown() -> None:
    """Text and HTML have short ids, each different from the others; the frame stays as it was."""
    for name, frame in FRAMES.items():
        before = frame.copy() if isinstance(frame, pd.DataFrame) else frame.clone()
        shown = md.show(frame, id_width=12)
        for text in (repr(shown), shown._repr_html_()):
            assert all(part in text for part in ("0x1111…", "1111a", "1111b")), name
            assert LONG[0] not in text, name
        assert frame.equals(before), name
        assert md.show(frame, id_width=None)._repr_html_() == frame._repr_html_()


@given(st.sets(st.text(st.sampled_from("ab1"), min_size=1, max_size=30), min_size=1), st.integers(6, 16))
def test_show_keeps_different_ids_different(ids: set[str], width: int) -> None:
    """No two ids look the same, and short ones stay whole."""
    rows = repr(md.show(pd.DataFrame({"a_id": sorted(ids)}), id_width=width)).split("\n")[1:]
    shown = [row.split()[1] for row in rows]
    assert len(set(shown)) == len(ids)
    assert all(text == name for text, name in zip(shown, sorted(ids), strict=True) if len(name) <= width)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_show_has_the_times_of_a_zone(kind: Any) -> None:
    """Times without a zone are UTC; the frame keeps its own."""
    prices = md.testing.prices(kind)
    naive = prices.assign(ts=prices["ts"].dt.tz_localize(None)) if kind == "pandas" else prices.with_columns(
        prices["ts"].dt.replace_time_zone(None))  # fmt: skip
    for frame in (prices, naive):
        assert "2025-12-31 19:00:00" in repr(md.show(frame, tz="America/New_York"))
        assert "2026-01-01 00:00:00" in repr(md.show(frame))
    with pytest.raises(md.errors.ConfigError, match="is no time zone; allowed are names such as"):
        md.show(prices, tz="Mars")


@pytest.mark.parametrize("value", [5, "text", pl.LazyFrame({"price": [0.5]})])
def test_show_refuses_what_is_no_frame_in_memory(value: Any) -> None:
    """An error about a frame or a width names what was given and what is allowed."""
    with pytest.raises(md.errors.ConfigError, match=f"pandas or polars DataFrame, not {type(value).__name__};"):
        md.show(value)
    with pytest.raises(md.errors.ConfigError, match="id_width=3 is refused; allowed are None and whole numbers from 6"):
        md.show(FRAMES["pandas"], id_width=3)


def test_a_progress_bar_without_widgets_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tqdm warns where a notebook lacks ipywidgets; a fetch does not pass that on, and changes no filter."""
    from marketdata.display import progress_bar

    for name in [name for name in sys.modules if name.startswith(("tqdm", "ipywidgets"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    before = list(warnings.filters)
    with progress_bar(progress=False, total=1) as bar:
        bar.update(1)
    assert [kept for kept in warnings.filters if kept not in before] == []


def test_objects_say_what_a_person_wants_to_know(local_client, local_service, local_archive) -> None:
    """Client, record and report show values, in notebooks as a table, and neither inner classes nor the key."""
    record = local_client.market(local_archive.records("markets")[0]["slug"])
    report = local_client.prices(record.id, "2025-12-31", "2026-01-01", "6h").md.report
    for thing, text in (
        (local_client, "http://127.0.0.1"),
        (record, record.question),
        (record, "Yes "),
        (report, "requests"),
    ):
        for seen in (repr(thing), thing._repr_html_()):
            assert text in seen
            assert not any(word in seen for word in (local_service.api_key[-4:], "Counter", "Provider"))
    fees = md.Fees.quadratic(0.04)
    for thing, text in ((local_archive, "books, prices, metrics, trades of"), (fees, "0.04 x price")):
        assert text in repr(thing)
        assert text in thing._repr_html_()


def _two_markets(labels: tuple[str, str], ids: tuple[str, str]) -> pl.DataFrame:
    """Two markets of two tokens with three rows each, sorted as frames are."""
    rows = [
        (market, market + token, label, row / 10)
        for market in ("a", "b")
        for label, token in zip(labels, ids, strict=True)
        for row in range(3)
    ]
    frame = pl.DataFrame(rows, ["market_id", "token_id", "token_label", "price"], orient="row")
    return frame.sort("market_id", "token_id", maintain_order=True)


@pytest.mark.parametrize("labels", [("Yes", "No"), ("Up", "Down"), ("Brown", "Cyan")])
def test_what_is_shown_begins_with_yes_whichever_id_is_smaller(labels: tuple[str, str]) -> None:
    """Of each market the rows of Yes come first, in order and complete; other labels stay, and so does the frame."""
    for ids in (("1", "2"), ("2", "1")):
        frame = _two_markets(labels, ids)
        before = frame.clone()
        first = labels[0] if labels[0] in ("Yes", "Up") else frame["token_label"][0]
        for shown in (frame, frame.to_pandas(), frame.with_columns(pl.col("token_label").cast(pl.Categorical))):
            lines = [line for line in repr(md.show(shown)).split("\n") if any(label in line for label in labels)]
            assert [first in line for line in lines] == ([True] * 3 + [False] * 3) * 2 or len(lines) < 12
            assert first in lines[0]
        assert frame.equals(before)


def test_rows_in_an_order_of_a_user_are_shown_in_it() -> None:
    """Rows by time, without labels or with missing ids are shown as they are."""
    frame = _two_markets(("Yes", "No"), ("2", "1"))
    others = (frame.sort("price"), frame.drop("token_label"), frame.with_columns(token_id=None), frame.clear())
    for shown in (*others, frame.rename({"market_id": "market"})):
        assert repr(md.show(shown)) == repr(shown)
        assert repr(md.show(shown.to_pandas())) == repr(shown.to_pandas())


def test_charts_and_listings_begin_with_yes(local_client, local_archive) -> None:
    """Records, listings of tokens and charts have the outcomes in the order of the market, not of the ids."""
    for markets, tokens in ((local_client.markets(max_rows=5), local_client.tokens), (local_archive.markets(), None)):
        pairs = markets[markets["token_labels"].map(lambda labels: [*labels] == ["Yes", "No"])]
        assert len(pairs) > 0
        if tokens is not None:
            assert tokens(pairs["slug"].iloc[0])["token_label"].tolist() == ["Yes", "No"]
    prices = md.testing.prices()
    record = {"id": "rain", "question": "Rain?", "tokens": [{"id": "12"}, {"id": "11"}]}
    for markets, first in ((None, "Yes"), (record, "No")):
        assert md.plot.prices(prices, markets=markets).lines[0].get_label() == first
        assert md.plot.depth(md.testing.books(), markets=markets).get_ylabel() == f"price of {first}"
