"""Mistakes of users: the message says what was wrong and what to do."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from cli.run import marketdata

import marketdata as md
from marketdata.cli import main

NOBODY = {"MARKETDATA_BASE_URL": "http://127.0.0.1:9", "MARKETDATA_API_KEY": "mk_any_0123456789"}
SPAN = ("--start", "2025-12-31T12:00", "--end", "2025-12-31T13:00")


def test_a_file_that_cannot_be_written_is_refused_before_the_work(folder: Path) -> None:
    """A wrong --out costs no request: nothing listens at the address, and the demo does not run for seconds."""
    fetch = ("fetch", "prices", "slug", *SPAN, "--out")
    for words in ((*fetch, "x.xls"), (*fetch, "nowhere/x.csv"), (*fetch, "empty"), ("demo", "--out", "x.txt")):
        done = marketdata(*words, cwd=folder, **NOBODY)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert f"--out '{words[-1]}'" in done.stderr


def test_a_folder_that_holds_no_archive_is_called_so(folder: Path) -> None:
    """The wrong folder is refused as one that is not there, not called whole."""
    for words in (("coverage", "empty"), ("verify", "empty"), ("export", "empty", "books", "slug")):
        done = marketdata(*words, cwd=folder)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert "'empty' holds no archive yet" in done.stderr


def test_nothing_is_missing_before_or_after_a_market(folder: Path, market: str) -> None:
    """A range that is wider than the market needs no warning."""
    words = ("export", "history", "prices", market, "--start", "2025-12-01", "--end", "2026-01-01")
    done = marketdata(*words, cwd=folder)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_number_out_of_bounds_is_refused_with_its_bound(folder: Path) -> None:
    """No number is silently another one, and none ends in a traceback."""
    for words, allowed in (
        (("serve", "history", "--port", "99999"), "65535"),
        (("serve", "history", "--requests-per-minute", "0"), "1"),
        (("export", "history", "books", "slug", "--rows", "-5"), "1"),
        (("markets", "--rows", "0"), "1"),
    ):
        done = marketdata(*words, cwd=folder)
        assert done.returncode == 2
        assert f"'{words[-2]}'" in done.stderr
        assert allowed in done.stderr


def test_a_market_that_is_not_there_is_looked_for(folder: Path, service: dict[str, str]) -> None:
    """The error names the verb that finds slugs, and in Python the method."""
    done = marketdata("fetch", "prices", "no-such-slug", *SPAN, cwd=folder, **service)
    assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
    assert "marketdata markets --search" in done.stderr
    with (
        md.Client(service["MARKETDATA_BASE_URL"], service["MARKETDATA_API_KEY"]) as client,
        pytest.raises(md.errors.NotFoundError, match=r"client\.markets\(search="),
    ):
        client.market("no-such-slug")


def test_of_several_markets_those_that_exist_are_fetched(folder: Path, market: str, service: dict[str, str]) -> None:
    """One wrong slug of a list is named, with exit code 4, after the rows of the others."""
    alone = marketdata("fetch", "prices", market, *SPAN, "--ndjson", cwd=folder, **service).stdout
    for form in (("--json",), ("--ndjson",), ("--out", "found.ndjson")):
        done = marketdata("fetch", "prices", market, "no-such-slug", *SPAN, *form, cwd=folder, **service)
        assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
        assert "'no-such-slug'" in done.stderr
        assert ".partial" not in done.stderr
        text = (folder / "found.ndjson").read_text() if "--out" in form else done.stdout
        rows = json.loads(text) if "--json" in form else [json.loads(line) for line in text.splitlines()]
        assert rows == [json.loads(line) for line in alone.splitlines()] != []


def test_a_wrong_key_is_not_shown(folder: Path, service: dict[str, str]) -> None:
    """The error of a wrong key says where the key comes from."""
    done = marketdata("usage", cwd=folder, **{**service, "MARKETDATA_API_KEY": "mk_wrong_0123456789"})
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "MARKETDATA_API_KEY" in done.stderr
    assert "mk_wrong" not in done.stderr


def test_an_interrupt_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After Ctrl-C the one line says what was kept."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("marketdata.cli.app.app", interrupted)
    for verb, goes_on in (("pull", "fetches the rest"), ("fetch", "marketdata pull"), ("usage", "interrupted")):
        assert main([verb]) == 130
        assert goes_on in capsys.readouterr().err


def test_an_address_without_a_scheme_is_told_how_it_looks() -> None:
    """A wrong address is not repeated: it may be the key, given first."""
    for address in ("127.0.0.1:8000", "localhost:8000", "mk_secret_0123456789"):
        with pytest.raises(md.errors.ConfigError, match="http://127") as caught:
            md.Client(address, "http://127.0.0.1:8000")
        assert "secret" not in str(caught.value)


def test_a_date_of_another_spelling_is_spelled_out() -> None:
    """A date without dashes is refused with the text to write, and as a number is not taken for seconds of 1970."""
    with md.Client("http://127.0.0.1:9", "mk_any_0123456789") as client:
        for day in ("20251231", "2025/12/31", "2025.12.31", 20251231, "31/12/2025", "12-31-2025"):
            with pytest.raises(md.errors.ConfigError, match=r"write (the year first, as in )?2025-12-31"):
                client.prices("slug", day, "2026-01-01", "1h")


def test_a_file_is_no_archive(tmp_path: Path) -> None:
    """A path that is a file is refused where it is given."""
    (tmp_path / "a.parquet").touch()
    with pytest.raises(md.errors.ConfigError, match="is a file"):
        md.Archive(tmp_path / "a.parquet")


def test_levels_of_books_are_no_prices(tmp_path: Path) -> None:
    """A books frame that is added as prices is refused, not averaged over its levels."""
    for frame in (md.testing.books("pandas"), md.testing.books("polars")):
        with pytest.raises(md.errors.ConfigError, match="books="):
            md.Archive(tmp_path / "a").add(prices=frame)


def test_a_folder_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that this user may not read or write is refused at once, by its name."""
    (tmp_path / "locked").mkdir()
    # Root may do everything, so the answer of the system is set.
    monkeypatch.setattr("os.access", lambda *_: False)
    fetch = ("fetch", "prices", "slug", *SPAN, "--out", "locked/x.csv")
    for words, named in ((("coverage", "locked"), "'locked'"), (fetch, "--out 'locked")):
        done = marketdata(*words, cwd=tmp_path, **NOBODY)
        assert done.returncode == 2
        assert named in done.stderr
        assert "permissions" in done.stderr


def test_a_verb_that_is_nearly_right_is_suggested() -> None:
    """In a notebook, where Python suggests nothing, a misspelt verb or chart names the near one; others name none."""
    prices = md.testing.prices()
    with pytest.raises(AttributeError, match="has no 'resampel'; did you mean 'resample'"):
        prices.md.resampel("1h")
    with pytest.raises(AttributeError, match="did you mean 'resample'"):
        md.resampel  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="has no 'candle'; did you mean 'candles'"):
        prices.md.plot.candle()
    with pytest.raises(AttributeError, match=r"has no 'zzzz'$"):
        prices.md.zzzz  # noqa: B018  looked up
    assert not hasattr(prices.md, "resampel")
    assert copy.copy(prices.md).resample("1h").equals(prices.md.resample("1h"))


def test_the_accessor_shows_its_functions() -> None:
    """`df.md` at a prompt lists what can be called on the frame."""
    assert "bbo" in repr(md.testing.books().md)


def test_a_short_plan_is_said_in_words() -> None:
    """One request is one request, and what takes seconds is not 0.0 minutes."""
    from marketdata.fetch.plans import Plan

    assert repr(Plan(1, 2, 0.001, 1000, (), 60)).startswith("1 request, 2 points, a few seconds at")


def test_sides_of_other_names_are_refused() -> None:
    """A frame with buy and sell for bid and ask is refused, not taken for books without levels."""
    sides = pl.col("side").cast(pl.String).replace({"bid": "buy", "ask": "sell"})
    frame = md.testing.books("polars").with_columns(sides)
    for given in (frame.to_pandas(), frame, frame.to_arrow()):
        for measure in (md.bbo, md.depth, md.to_wide):
            with pytest.raises(md.errors.NotTidyError, match=r"the frame also contains .'buy', 'sell'"):
                measure(given)


def test_pandas_columns_without_a_text_for_a_name_are_columns() -> None:
    """As ``Series.reset_index()`` leaves them: their names become texts, and no verb fails on them."""
    for name in (5, ("a", 1), None):
        prices, books, markets = (
            make().assign(more=1.0).rename(columns={"more": name})
            for make in (md.testing.prices, md.testing.books, md.testing.markets)
        )
        text = str(prices.columns[-1])
        assert md.resample(prices, "1h")[text].tolist() == [1.0, 1.0]
        assert md.available_at(prices, "1m").columns.tolist()[-2:] == [text, "available_at"]
        assert md.bbo(books).equals(md.bbo(md.testing.books()))
        assert md.nest(books)[text].eq(1.0).all()
        left_out = md.without_answers(markets, dry=True)
        assert len(md.without_answers(markets).columns) == len(markets.columns) - len(left_out)


def test_a_frame_of_another_kind_is_named(archive: md.Archive) -> None:
    """An error about a frame of ours says what it is and what the function takes, for functions and methods."""
    books, prices, metrics = md.testing.books(), md.testing.prices(), md.testing.metrics()
    for call, words in (
        (prices.md.bbo, "This is a frame of prices; bbo takes books or nested books or best prices"),
        (lambda: md.depth(books.md.bbo()), "This is a frame of best prices; depth takes books or nested books"),
        (lambda: metrics.md.brier({}), "This is a frame of metrics; brier takes books .* or prices"),
        (md.testing.markets().md.mid, "This is a frame of market records; mid takes books"),
        (lambda: books.md.vwap("1h"), "This is a frame of books, .*; vwap takes trades"),
        (lambda: prices.md.vwap("1h"), r"This is a frame of prices. A frame of trades needs the columns \['size'\]"),
        (lambda: prices.md.brier(pd.DataFrame({"market_id": ["rain"], "won": [1]})), "'won'.* do not say who won"),
    ):
        with pytest.raises(md.errors.NotTidyError, match=words):
            call()
    for wrong, words in ((lambda: archive.add(prices), r"archive\.add\(prices=frame\)"), (md.Fees, "Fees.flat")):
        with pytest.raises(md.errors.ConfigError, match=words):
            wrong()
    with pytest.raises(AttributeError, match=r"pandas\.read_csv"):
        md.read_csv  # type: ignore[attr-defined]  # noqa: B018
