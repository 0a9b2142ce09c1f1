"""Files of several publishers in one archive: what an import accepts can be read, in whatever order it came."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import RecordingWarning

YES, NO, MARKET, S = "7" * 77, "8" * 77, "0x" + "ab" * 32, 1_767_225_600
_BOOK = {"event_type": "book", "asset_id": YES, "market": MARKET, "timestamp": str(S * 1000), "asks": []}
# One token, called by the slug of its market, by the id, with and without a label, or by nothing else.
FILES = {
    "slug.csv": f"timestamp,market_slug,token_id,price\n{S},rain,{YES},.5\n{S + 60},rain,{YES},.6\n",
    "id.csv": f"timestamp,condition_id,token_id,outcome,price\n{S},{MARKET},{YES},Yes,.4\n",
    "none.csv": f"timestamp,token_id,price\n{S},{YES},.3\n",
    "messages.jsonl": json.dumps({**_BOOK, "bids": [{"price": ".4", "size": "1"}]}),
    "labelled.csv": f'timestamp,market_slug,token_id,outcome,bids,asks\n{S},rain,{YES},Yes,"[[0.3,1]]","[]"\n',
    "nameless.csv": f'timestamp,token_id,bids,asks\n{S + 1},{YES},"[[0.2,1]]","[]"\n',
    "records.json": json.dumps([
        {"conditionId": MARKET, "slug": "rain", "outcomes": '["Yes", "No"]', "clobTokenIds": json.dumps([YES, NO])}
    ]),
}  # fmt: skip


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(sorted(FILES)), st.integers(1, len(FILES)))
@pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
def test_what_is_accepted_can_be_read(tmp_path_factory: pytest.TempPathFactory, order: list[str], first: int) -> None:
    """Whatever the order, and however many files come at once: every view reads, market by market and together."""
    folder = tmp_path_factory.mktemp("files")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    archive = md.Archive(folder / "archive", frame="polars")
    for names in (order[:first], *([name] for name in order[first:])):
        archive.add_files([folder / name for name in names], progress=False)
    covered = archive.coverage()
    for view in ("books", "prices"):
        markets = sorted(covered.filter(pl.col("view") == view)["market_id"].cast(pl.String).unique())
        together = getattr(archive, view)(markets)
        assert together["market_id"].n_unique() == len(markets)
        assert len(together) == sum(len(getattr(archive, view)(market)) for market in markets)
        assert len(archive.scan(view).collect()) == len(together)
    assert archive.verify().is_empty()


@pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
def test_a_record_tells_the_market_of_each_name(tmp_path: Path) -> None:
    """With the record first, the slug, the id and no name are one market; the label is that of the token."""
    archive = md.Archive(tmp_path / "archive", frame="polars")
    for name in ("records.json", *FILES):
        (tmp_path / name).write_text(FILES[name])
        archive.add_files(tmp_path / name)
    assert archive.coverage()["market_id"].cast(pl.String).unique().to_list() == [MARKET]
    assert archive.books("rain")["token_label"].cast(pl.String).unique().to_list() == ["Yes"]
    # The file that came last counts.
    assert archive.books("rain").filter(pl.col("level") == 0)["price"].to_list() == [0.2]


@pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
def test_a_record_tells_the_token_of_an_outcome(tmp_path: Path) -> None:
    """Rows that name the market and the outcome alone are of the token that has this label, in each view."""
    texts = {
        "prices.csv": f"timestamp,market_slug,outcome,price\n{S},rain,yes,.5\n",
        "quotes.csv": f"timestamp,market_slug,outcome,bid,ask\n{S},rain,Yes,.4,.6\n",
        "both.csv": f"timestamp,market_slug,yes_price,no_price\n{S + 60},rain,.5,.5\n",
        "books.csv": f'timestamp,market_slug,outcome,bids,asks\n{S},rain,Yes,"[[0.3,1]]","[]"\n',
    }
    archive = md.Archive(tmp_path / "archive", frame="polars")
    for name, text in {"records.json": FILES["records.json"], **texts}.items():
        (tmp_path / name).write_text(text)
        archive.add_files(tmp_path / name)
    assert archive.coverage()["market_id"].cast(pl.String).unique().to_list() == [MARKET]
    for view, count in (("prices", 3), ("quotes", 1), ("books", 2)):
        rows = getattr(archive, view)("rain")
        assert len(rows) == count
        assert set(rows["token_id"].cast(pl.String)) <= {YES, NO}


@pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
def test_a_token_that_a_resolved_record_lacks_spoils_no_outcome(tmp_path: Path) -> None:
    """Its points are read by the market, and `outcomes` runs as before."""
    record = {
        "conditionId": MARKET, "slug": "rain", "outcomes": '["Yes", "No"]', "clobTokenIds": json.dumps([YES, NO]),
        "closed": True, "outcomePrices": '["1", "0"]', "umaResolutionStatus": "resolved",
    }  # fmt: skip
    (tmp_path / "records.json").write_text(json.dumps([record]))
    (tmp_path / "other.csv").write_text(f"timestamp,condition_id,token_id,price\n{S},{MARKET},{'9' * 77},.5\n")
    archive = md.Archive(tmp_path / "archive", frame="polars")
    for name in ("records.json", "other.csv"):
        archive.add_files(tmp_path / name)
    assert md.outcomes(archive.markets())["payoff"].to_list() == [1.0, 0.0]
    assert archive.prices(MARKET)["price"].to_list() == [0.5]


def test_a_token_in_two_markets_is_said(tmp_path: Path) -> None:
    """Without a record nobody knows that two names are one market: both stay, and the warning says what to do."""
    for name in ("slug.csv", "id.csv"):
        (tmp_path / name).write_text(FILES[name])
    archive = md.Archive(tmp_path / "archive", frame="polars")
    with pytest.warns(RecordingWarning, match=r"1 tokens are in two markets.*import with markets= records"):
        report = archive.add_files([tmp_path / "slug.csv", tmp_path / "id.csv"])
    assert "1 tokens are in two markets" in report["note"][1]
    assert [len(archive.prices(market)) for market in ("rain", MARKET)] == [2, 1]
    record = {"market_id": MARKET, "slug": "rain", "token_ids": [YES, NO], "token_labels": ["Yes", "No"]}
    other = md.Archive(tmp_path / "other", frame="polars")
    other.add_files([tmp_path / "slug.csv", tmp_path / "id.csv"], markets=[record])
    assert other.coverage()["market_id"].cast(pl.String).to_list() == [MARKET]


@pytest.mark.parametrize(
    ("header", "rows", "stored"),
    [
        ("timestamp,token_id,price", [f"{S},{YES},.5", f"{S},{YES},.6"], ("prices", YES, "price", 0.6)),
        ("timestamp,token_id,bid,ask", [f"{S},{YES},.5,.6", f"{S},{YES},.5,.7"], ("quotes", YES, "best_ask", 0.7)),
        ("timestamp,market_id,volume", [f"{S},m,5", f"{S},m,7"], ("metrics", "m", "volume", 7.0)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*1 of 2 are given again with other values")
def test_of_two_rows_of_one_time_the_last_counts(
    tmp_path: Path, header: str, rows: list[str], stored: tuple[str, str, str, float]
) -> None:
    """They refuse no file; the other one is counted."""
    view, market, column, value = stored
    (path := tmp_path / "rows.csv").write_text("\n".join([header, *rows]))
    archive = md.Archive(tmp_path / "archive", frame="polars")
    row = archive.add_files(path).row(0, named=True)
    assert (row["rows"], row["stored"]) == (2, 1)
    assert row["reasons"] == "1 given again, where the last row counts"
    assert getattr(archive, view)(market)[column].to_list() == [value]
