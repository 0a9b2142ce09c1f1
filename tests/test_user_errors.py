"""Mistakes in a notebook: warnings point at the line of the user, and messages say what to pass."""

from __future__ import annotations

import importlib.util
import json
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import marketdata as md


@pytest.fixture(scope="module")
def simulated() -> md.Archive:
    return md.simulate(events=1, days=0.05, markets=1, levels=2)


@pytest.fixture(scope="module")
def client(simulated: md.Archive) -> Iterator[md.Client]:
    with md.serve(simulated) as service, md.Client(service.base_url, service.api_key) as client:
        yield client


def test_a_warning_names_the_line_of_who_asked(tmp_path: Path) -> None:
    """The warning of a function, a method or an archive is at the first line outside of the library."""
    hourly = md.testing.prices(resolution="1h", buckets=24)
    for call in (lambda: md.resample(hourly, "6h"), lambda: hourly.md.resample("6h")):
        with pytest.warns(md.errors.UnweightedMeanWarning) as seen:
            call()
        assert [warning.filename for warning in seen] == [__file__]
    with pytest.warns(md.errors.PartialCoverageWarning, match="grid of 1h") as seen:
        md.Archive(tmp_path).add(prices=hourly)
    assert seen[0].filename == __file__


def test_a_typo_in_an_event_or_series_is_no_success(client: md.Client, tmp_path: Path) -> None:
    """A pull of an event that lists no market fails, is not remembered, and names where the slugs are."""
    archive = md.Archive(tmp_path)
    for wrong in ({"event_slug": "nope"}, {"series_slug": "nope"}):
        for _ in range(2):
            with pytest.raises(md.errors.NotFoundError, match=r"nope.*slugs"):
                archive.pull(client, **wrong, start="2025-12-31", end="2026-01-01")
    with pytest.raises(md.errors.ConfigError, match="names nothing"):
        archive.pull(client, [], start="2025-12-31")
    with pytest.raises(md.errors.ConfigError, match="not before the present"):
        archive.pull(client, client.markets()["slug"][0], start="2990-01-01")


def test_a_typo_in_a_listing_is_told(simulated: md.Archive) -> None:
    """Records of an event or series that there is not are none, with a warning that names those that are near."""
    event, market = (simulated.records(kind)[0]["slug"] for kind in ("events", "markets"))
    for call, told in (
        (
            lambda: simulated.markets(event_slug=event + "s"),
            rf"No markets .* event_slug='{event}s'.*Similar: '{event}'",
        ),
        (lambda: simulated.events(series_slug="nope"), "No events of the archive have series_slug='nope'"),
        (
            lambda: md.outcomes(simulated.markets(event_slug=market)),
            f"one of the markets itself, which search='{market}' finds",
        ),
        (lambda: simulated.markets(event_slug="nope"), r"event_slug='nope'.*Give search="),
    ):
        with pytest.warns(md.errors.EmptyRangeWarning, match=told):
            assert len(call()) == 0
    with pytest.raises(md.errors.ConfigError, match="event_slug=5"):
        simulated.markets(event_slug=5)  # type: ignore[call-overload]


def test_what_is_no_address_or_client_is_named(tmp_path: Path) -> None:
    """A frame as an address raises ConfigError, although a frame has no truth value."""
    for wrong in (md.testing.prices(), md.testing.prices("polars"), 0, [], object()):
        with pytest.raises(md.errors.ConfigError, match=f"base_url is a text .*not {type(wrong).__name__}"):
            md.Client(wrong)  # type: ignore[call-overload]
    with pytest.raises(md.errors.ConfigError, match=r"client is str; pass md\.Client"):
        md.Archive(tmp_path).pull("http://127.0.0.1:1", "slug", start="2025-12-31")  # type: ignore[arg-type]


def test_what_looks_like_books_is_told_what_it_lacks() -> None:
    """The error names books, which everyone knows; a frame that looks like bbo is called bbo."""
    with pytest.raises(md.errors.NotTidyError, match="A tidy books frame"):
        md.mid(md.testing.metrics()[["ts", "market_id", "volume"]])
    best = md.bbo(md.testing.books())
    with pytest.raises(md.errors.NotTidyError, match=r"md\.bbo are taken too, with \['best_ask', 'best_bid'\]"):
        md.mid(best.rename(columns={"best_bid": "bid", "best_ask": "ask"}))
    with pytest.raises(md.errors.NotTidyError, match="a frame of best prices; depth takes books or nested books"):
        md.depth(best)


def test_columns_of_other_names_are_asked_for() -> None:
    """A frame with columns of its own is told what is missing, what it has, and to rename."""
    with pytest.raises(md.errors.NotTidyError, match=r"'price', 'side'.*it has \['time', 'bid'\].*ename") as refused:
        md.bbo(pd.DataFrame({"time": [1], "bid": [0.5]}))
    assert "ts" in str(refused.value)


@pytest.mark.parametrize(("name", "package"), [("Archive", "deltalake"), ("simulate", "pyarrow"), ("serve", "uvicorn")])
def test_a_missing_extra_is_named_where_it_is_used(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name can be looked at and imported; a use of it names what is absent, with the command that installs it."""
    is_there = importlib.util.find_spec
    monkeypatch.delitem(vars(md), name, raising=False)
    monkeypatch.setattr(md, "find_spec", lambda one: None if one == package else is_there(one))
    absent = getattr(md, name)
    assert package in pydoc.render_doc(absent)
    said = rf"md\.{name} needs {package}.*pip install .*{package}"
    assert re.search(said, repr(absent))
    for use in (lambda: absent("path"), lambda: absent.anything):
        with pytest.raises(ModuleNotFoundError, match=said):
            use()


def test_a_storage_that_does_not_answer_is_not_called_damaged() -> None:
    """An object store that nobody listens for is away; nothing says that stored bytes are wrong."""
    options = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    options |= {"AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "max_retries": "1", "retry_timeout": "2s"}
    with pytest.raises(md.errors.ArchiveError, match="storage failed") as failed:
        md.Archive("s3://bucket/x", storage_options=options).coverage()
    assert not isinstance(failed.value, md.errors.ArchiveCorruptError)
    assert "\x1b" not in str(failed.value)
    assert "\n" not in str(failed.value)


def test_an_unknown_slug_names_a_similar_one(simulated: md.Archive, client: md.Client) -> None:
    """A slug with a slip is not found, and the error names the market that it resembles; its case does not count."""
    slug = simulated.records("markets")[0]["slug"]
    with pytest.raises(md.errors.NotFoundError, match=f"Similar: '{slug}'"):
        client.books(slug[:-3] + slug[-2:], "2025-12-31", "2026-01-01")
    assert len(client.books(f" {slug.upper()} ", "2025-12-31", "2026-01-01"))


def test_reads_of_an_archive_name_the_slip(tmp_path: Path) -> None:
    """An empty list, a range that ends before it starts, a token for a market, and a folder that is not there."""
    archive = md.Archive(tmp_path)
    archive.add(markets=md.testing.markets(), prices=md.testing.prices())
    reads = [archive.prices, lambda *a: archive.scan("prices", *a), lambda *a: archive.export("prices", "x.csv", *a)]
    for read in reads:
        with pytest.raises(md.errors.ConfigError, match=r"market=\[\] names nothing"):
            read([])
        with pytest.raises(md.errors.ConfigError, match="not before the end"):
            read(None, "2026-01-02", "2026-01-01")
        with pytest.raises(md.errors.NotArchivedError, match=r"'11' is not .* It is a token of market 'rain'"):
            read("11")
    with pytest.raises(md.errors.NotArchivedError, match="prices of market 'rain-tomorrow' are not stored in"):
        archive.prices("rain-tomorrow", "2020-01-01", "2020-01-02")
    with pytest.raises(md.errors.NotArchivedError, match="no folder"):
        md.Archive(tmp_path / "typo").scan("prices")


def test_records_name_the_slip(tmp_path: Path) -> None:
    """A record without an id, whose fields are named; token ids as JSON text are read."""
    with pytest.raises(md.errors.ConfigError, match=r"no market_id; it has \['question'\]"):
        md.Archive(tmp_path).add(markets=[{"question": "m"}])
    texts = {"market_id": "m", "token_ids": '["1"]', "token_labels": '["Yes"]'}
    archive = md.Archive(tmp_path)
    archive.add(markets=[texts])
    assert [*archive.markets()["token_ids"][0]] == ["1"]


def test_imports_name_the_slip(tmp_path: Path) -> None:
    """No file, and a clock that no message has: nothing is imported, so that the file can be imported by another."""
    archive, path = md.Archive(tmp_path / "a", frame="polars"), tmp_path / "feed.jsonl"
    message = {"event_type": "book", "asset_id": "1", "market": "m", "timestamp": 1767225600000, "bids": [], "asks": []}
    path.write_text(json.dumps(message))
    with pytest.raises(md.errors.ConfigError, match=r"paths=\[\] .*at least one"):
        archive.add_files([])
    with pytest.raises(md.errors.ConfigError, match=r"no time for clock='seen'; its fields are .*asset_id"):
        archive.add_files(path, clock="seen")
    assert archive.add_files(path)["points"].to_list() == [1]


def test_a_method_that_people_guess_is_told_the_one_here() -> None:
    """A name of another library is answered with a method that exists; any other name is plain."""
    from marketdata.client.client import MEANT

    client = md.Client("polymarket")
    for name, meant in MEANT.items():
        assert hasattr(md.Client, meant), meant
        if not hasattr(md.Client, name):
            with pytest.raises(AttributeError, match=rf"'{name}'; did you mean client\.{meant}\("):
                getattr(client, name)
    with pytest.raises(AttributeError, match=r"'get_markets'; did you mean client\.markets\("):
        client.get_markets()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'zebra'$"):
        _ = client.zebra  # type: ignore[attr-defined]


FILLS = """Date,Market,Outcome,Action,Shares,Avg Price
01/15/2026 10:15,rain,Yes,Buy,100,46¢
01/16/2026 12:00,rain,Yes,Sell,40,52¢
"""


def test_own_fills_are_read_by_what_the_errors_say(tmp_path: Path) -> None:
    """A file, a path and a frame of fills in the place of trades each lead to the profit."""
    path, won = tmp_path / "fills.csv", {"rain": "Yes"}
    path.write_text(FILLS, encoding="utf-8")
    with pytest.raises(md.errors.NotTidyError, match=r"md\.read_trades\(path\) reads trades and fills"):
        md.pnl(path, won)
    with pytest.raises(md.errors.NotTidyError, match=r"'Date' is 'ts'.*'Action' is 'side'.*md\.read_trades"):
        md.pnl(pd.read_csv(path), won)
    with pytest.raises(md.errors.ConfigError, match=r"looks most like trades(?s:.*)time_format='%m/%d/%Y %H:%M'"):
        md.read_trades(path)
    with pytest.raises(md.errors.ConfigError, match=r"It lacks price: name the column with columns="):
        md.read_trades(path, time_format="%m/%d/%Y %H:%M")
    fills = md.read_trades(path, time_format="%m/%d/%Y %H:%M", columns={"price": "Avg Price"})
    found = md.pnl(fills, won, by="market_id", interval=None)
    assert found["profit"].tolist() == pytest.approx([100 * 0.54 - 40 * 0.48])


def test_records_in_the_place_of_prices_are_told_where_they_belong() -> None:
    """Prices come first, and records second."""
    with pytest.raises(md.errors.NotTidyError, match="records where a function asks for markets or outcomes"):
        md.brier(md.testing.markets(), md.testing.prices())
