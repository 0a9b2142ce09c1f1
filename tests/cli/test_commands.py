"""The command line, as a user runs it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
from functools import partial
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from cli.run import get_command, marketdata, rows_of, terminal
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import marketdata as md
from marketdata.cli import main, output
from marketdata.cli.app import app
from marketdata.cli.commands import client as client_commands
from marketdata.cli.commands import demo
from marketdata.cli.messages import code
from marketdata.display import progress_bar
from marketdata.points.views import VIEWS
from marketdata.testing import no_waiting

RANGE = ("--start", "2025-12-31T12:00", "--end", "2025-12-31T13:00")


def test_serve_prints_what_another_terminal_needs_and_ends_at_an_interrupt(folder, monkeypatch) -> None:
    """Address and key are printed, as lines to copy and as a link; Ctrl-C ends the service with code 0."""
    said: list[str] = []

    def echo(text: str) -> None:
        said.extend(line.split()[-1] for line in text.splitlines())
        if "#key=" in text:
            with md.Client(said[0], said[1]) as client:
                assert len(client.markets()) > 0
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("typer.echo", echo)
    assert marketdata("serve", "history", "--port", "0", cwd=folder).returncode == 0
    address, key, _, line, _, link = said
    assert line == f"MARKETDATA_API_KEY={key}"
    assert link == f"{address}/#key={key}"


def test_every_verb_explains_itself(monkeypatch) -> None:
    """Help cuts no description, and has an example that fits into a line; verbs with data have JSON too."""
    monkeypatch.setattr("typer.testing._get_command", get_command)
    verbs = (
        "demo serve usage series events markets tokens fetch plan pull coverage verify compact mcp import export keys"
    )
    for words in ([], ["keys"]):
        said = CliRunner().invoke(app, [*words, "--help"], terminal_width=80).output
        assert not re.search(r"^  .*\.\.\.$", said, re.MULTILINE), "a description is cut"
        assert all(f"\n  {name} " in said for name in ("new list revoke" if words else verbs).split())
    for verb in [*verbs.replace(" keys", "").split(), "keys new", "keys list", "keys revoke"]:
        said = CliRunner().invoke(app, [*verb.split(), "--help"], terminal_width=80).output
        examples = re.findall(r"^    (marketdata .*)$", said, re.MULTILINE)
        assert examples
        assert all(f"{example} ".startswith(f"marketdata {verb} ") for example in examples)
        assert max(map(len, said.splitlines())) <= 80
        assert ("--json" in said) is (verb not in {"demo", "serve", "mcp", "keys new", "keys revoke"})


def test_exit_codes_are_those_of_the_guide() -> None:
    """The guide names each exit code that an error can have."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "command_line.md").read_text(encoding="utf-8")
    named = {int(one) for one in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert named == {0, 130, *(code(one()) for one in vars(md.errors).values() if is_error(one))}


def is_error(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, Exception) and not issubclass(one, Warning)


def test_the_shell_completes_commands_and_views() -> None:
    """Completion of the shell offers commands, the views after `fetch`, and resolutions after `-r`."""
    lines = {
        "marketdata cov": "coverage",
        "marketdata fetch ": "\n".join(VIEWS),
        "marketdata pull history --view p": "prices",
        "marketdata fetch books x -r ": "1m\n10m\n1h\n6h\n1d",
    }
    for line, offered in lines.items():
        env = {"_MARKETDATA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        assert CliRunner().invoke(app, [], env=env).output.strip() == offered


def test_simulated_markets_are_served_without_an_archive(folder) -> None:
    """`serve` takes an archive or `--simulated`, and says so when it gets neither or both."""
    for words in (("serve",), ("serve", "history", "--simulated")):
        done = marketdata(*words, cwd=folder)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert ("--simulated exclude each other" if "history" in words else "or pass --simulated") in done.stderr


def test_options_stand_where_python_has_arguments(folder) -> None:
    """A missing address or key is asked for in words of the command line, and simulated data is offered."""
    no_address = marketdata("usage", cwd=folder).stderr
    assert "--base-url" in no_address
    assert "marketdata serve --simulated" in no_address
    assert "base_url=" not in no_address
    no_key = marketdata("usage", "--base-url", "http://127.0.0.1:9", cwd=folder).stderr
    assert "MARKETDATA_API_KEY" in no_key
    assert "api_key=" not in no_key


def test_version_is_that_of_the_package(folder) -> None:
    """`--version` prints the package's version."""
    assert marketdata("--version", cwd=folder).stdout == f"marketdata {md.__version__}\n"


def test_usage_shows_the_plan_and_never_the_key(folder, service) -> None:
    """The plan's limits are shown; the key is not."""
    done = marketdata("usage", cwd=folder, **service)
    assert done.returncode == 0, done.stderr
    assert "requests_per_minute" in done.stdout
    assert service["MARKETDATA_API_KEY"] not in done.stdout + done.stderr
    seen = terminal("usage", cwd=folder, **service)
    assert "plan local" in seen
    assert re.search(r"59,\d\d\d of 60,000 requests left until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", seen)
    as_json = json.loads(done.stdout)
    assert as_json["limits"]["requests_per_minute"] > 0
    assert as_json["reset_at_unix_seconds"] > 1.7e9


def test_markets_are_listed_and_searched(folder, service, market) -> None:
    """Markets are found by a word of their question, as a table or as JSON."""
    assert market in terminal("markets", "--search", "Harbour", cwd=folder, **service)
    rows = json.loads(marketdata("markets", "--rows", "2", "--json", cwd=folder, **service).stdout)
    assert len(rows) == 2
    assert all(row["slug"].startswith("simulated-") for row in rows)


def test_series_events_and_tokens_are_listed(folder, service, market) -> None:
    """From a series to its events, their markets and the tokens of one, each as a table and as JSON."""
    (theme,) = json.loads(marketdata("series", "--json", cwd=folder, **service).stdout)
    events = json.loads(marketdata("events", "--series", theme["slug"], "--json", cwd=folder, **service).stdout)
    assert {event["series_id"] for event in events} == {theme["series_id"]}
    found = [
        row["slug"]
        for event in events
        for row in json.loads(marketdata("markets", "--event", event["slug"], "--json", cwd=folder, **service).stdout)
    ]
    assert market in found
    tokens = rows_of(marketdata("tokens", market, cwd=folder, **service).stdout)
    assert {row["token_label"] for row in tokens} == {"Yes", "No"}
    for words, name in ((("series",), "title"), (("events",), "title"), (("tokens", market), "token_label")):
        assert name in terminal(*words, cwd=folder, **service).splitlines()[0]


def test_fetched_rows_are_those_of_the_archive(folder, service, market) -> None:
    """A file that `fetch` writes has the rows that the archive behind the service has."""
    held = md.Archive(folder / "history", frame="polars").prices(market, RANGE[1], RANGE[3], "10m")["price"].to_list()
    readers = {".parquet": pl.read_parquet, ".csv": partial(pl.read_csv, infer_schema=False), ".ndjson": pl.read_ndjson}
    for suffix, read in readers.items():
        out = folder / f"prices{suffix}"
        done = marketdata("fetch", "prices", market, *RANGE, "-r", "10m", "--out", out, cwd=folder, **service)
        assert done.returncode == 0, done.stderr
        assert read(out)["price"].cast(pl.Float64).to_list() == held


def test_a_terminal_gets_a_table_and_a_pipe_every_row_and_character(folder, service, market) -> None:
    """A person sees the first rows with ids shortened; a pipe gets CSV of all rows and whole ids."""
    words = ("fetch", "books", market, *RANGE)
    lines = terminal(*words, "--rows", "3", cwd=folder, **service).splitlines()
    names = ["ts", "market_id", "token_id", "token_label", "side", "level", "price", "size"]
    head = next(i for i, line in enumerate(lines) if line.split() == names)
    assert len(lines[head:]) == 5
    assert "rows; --out FILE" in lines[-1]
    assert "…" in lines[head + 1]
    held = md.Archive(folder / "history", frame="polars").books(market, RANGE[1], RANGE[3])
    rows = rows_of(marketdata(*words, cwd=folder, **service).stdout)
    assert [row["token_id"] for row in rows] == held["token_id"].cast(pl.String).to_list()
    assert rows[0]["ts"] == "2025-12-31T12:00:00Z"


def test_a_pipe_gets_every_market(tmp_path, monkeypatch, capsys) -> None:
    """A listing is cut, to 50 rows, in a terminal alone, which says so; JSON lines have U+2028 within a text."""
    archive = md.Archive(tmp_path / "many", frame="polars")
    archive.add(markets=[{"market_id": f"m{n:03}", "slug": f"s{n:03}", "question": "a\u2028b"} for n in range(70)])
    with md.serve(archive) as service:
        monkeypatch.setenv("MARKETDATA_BASE_URL", service.base_url)
        monkeypatch.setenv("MARKETDATA_API_KEY", service.api_key)
        client_commands.markets()
        assert len(rows_of(capsys.readouterr().out)) == 70
        client_commands.markets(as_json=True)
        assert {row["question"] for row in json.loads(capsys.readouterr().out)} == {"a\u2028b"}
        client_commands.markets(rows=60)
        assert len(rows_of(capsys.readouterr().out)) == 60
        monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True)
        client_commands.markets()
        lines = capsys.readouterr().out.split("\n")[:-1]
        assert len(lines) == 52
        assert lines[-1] == "... the first 50 markets; --rows N shows more, --csv all"
        client_commands.markets(rows=60)
        assert len(capsys.readouterr().out.split("\n")[:-1]) == 61


def test_a_row_of_a_table_is_one_line_with_its_slug_whole(folder, service, market) -> None:
    """In a terminal of any width a market is one line, its slug whole to be copied, other texts cut to what fits."""
    for width in (60, 100, 160):
        env = {"COLUMNS": str(width), **service}
        head, *lines = terminal("markets", "--search", "Harbour", cwd=folder, **env).splitlines()
        (line,) = (line for line in lines if market in line)
        assert max(map(len, lines)) <= width
        names = ["question", "slug", "status", "start_date", "end_date"]
        left_out = "".join(line for line in lines if "simulated-" not in line)
        assert all((name in head.split()) != (name in left_out) for name in names)
        assert line.startswith("Simulat") is (width >= 100)
        assert ("…" in line) is (width == 100)


def test_colours_are_where_a_terminal_shows_them(folder, market) -> None:
    """Bids and asks of a table are coloured in a terminal with colours, unless NO_COLOR is set."""
    words = ("export", "history", "books", market, "-r", "1d", "--rows", 3)
    for env in ({}, {"NO_COLOR": "1"}):
        seen = terminal(*words, cwd=folder, TERM="xterm-256color", **env)
        assert bool(re.search(r"\x1b\[3[12]m", seen)) is (not env)


def test_coverage_is_told_in_words(folder) -> None:
    """In a terminal a range has the question of its market, and its points in how many minutes; a pipe has all."""
    head, *lines = terminal("coverage", "history", cwd=folder, COLUMNS="160").splitlines()
    assert head.split() == ["market", "view", "start", "end", "points", "state"]
    rows = rows_of(marketdata("coverage", "history", cwd=folder).stdout)
    assert len(lines) == len(rows)
    questions = {m["id"]: m["question"] for m in md.Archive(folder / "history").records("markets")}
    for line, row in zip(lines, rows, strict=True):
        span = pd.Timestamp(row["end"]) - pd.Timestamp(row["start"])
        assert line.startswith(questions[row["market_id"]])
        assert f" {int(row['rows']):,} in {span // pd.Timedelta('1min'):,} min " in line


def test_ids_in_a_narrow_terminal_are_shorter_and_differ(folder, market) -> None:
    """In 60 columns the two tokens of a market are told apart, and a row is still one line."""
    words = ("export", "history", "prices", market, "-r", "6h", "--rows", 8)
    head, *lines = terminal(*words, cwd=folder, COLUMNS="60").splitlines()
    column = head.split().index("token_id") + 1  # a time has a space
    assert len(lines) == 8
    assert len({line.split()[column] for line in lines}) == 2
    assert max(len(line) for line in lines) <= 60


def test_a_table_says_how_many_rows_it_shows(folder, market) -> None:
    """Below a table that shows a part of the rows is how many of how many."""
    lines = terminal("export", "history", "prices", market, "-r", "6h", "--rows", 4, cwd=folder).splitlines()
    assert len(lines) == 6
    assert lines[-1].startswith("... 4 of 8 rows;")


# Digits of smaller numbers would push other columns out of the table.
shown_numbers = st.none() | st.just(0.0) | st.floats(1e-15, 1e9)


@given(st.lists(st.tuples(st.none() | st.text("ab", max_size=70), shown_numbers, st.booleans())))
def test_cells_of_a_table_are_those_of_the_frame(rows) -> None:
    """Numbers are without exponents and read back to two digits at least, a null is "-", a text is whole or cut."""
    frame = pl.DataFrame(rows, {"name": pl.String, "number": pl.Float64, "flag": pl.Boolean}, orient="row")
    console = output.console()
    with console.capture() as seen:
        console.print(output.table(frame), crop=False)
    head, *lines = seen.get().splitlines()
    assert head.split() == frame.columns
    for line, (text, number, flag) in zip(lines, rows, strict=True):
        *words, seen, said = line.rsplit(maxsplit=2)
        name = words[0].strip() if words else ""
        assert name == ("-" if text is None else text) or text.startswith(name.removesuffix("…"))
        assert said == str(flag).lower()
        assert (seen == "-") if number is None else float(seen.replace(",", "")) == pytest.approx(number, rel=0.05)


def test_every_format_has_the_same_rows(folder, market) -> None:
    """CSV, JSON and JSON lines have the same rows, as many as --rows says; a written file is told in JSON too."""
    words = ("export", "history", "prices", market, "-r", "1h")
    told = {name: marketdata(*words, name, cwd=folder).stdout for name in ("--csv", "--json", "--ndjson")}
    rows = json.loads(told["--json"])
    assert len(rows) > 10
    assert [json.loads(line) for line in told["--ndjson"].splitlines()] == rows
    assert [{**row, "price": float(row["price"])} for row in rows_of(told["--csv"])] == rows
    assert json.loads(marketdata(*words, "--json", "--rows", 2, cwd=folder).stdout) == rows[:2]
    written = json.loads(marketdata(*words, "--json", "-o", "x.parquet", cwd=folder).stdout)
    assert written == {"rows": len(rows), "out": "x.parquet"}
    assert marketdata(*words, "--json", "--csv", cwd=folder).returncode == 2


def test_a_reader_that_stops_early_is_no_error(folder, monkeypatch) -> None:
    """A reader that takes one line, as `head -1` does, ends the command without a word."""

    class Reader(io.StringIO):
        def write(self, text: str) -> int:
            if self.tell():
                raise BrokenPipeError
            return super().write(text)

    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(Reader()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert main(["export", "history", "prices"]) == 0
    assert out.getvalue() == "ts,market_id,token_id,token_label,price\n"
    assert err.getvalue() == ""


def test_an_export_without_a_market_is_of_all(folder) -> None:
    """Every market that the archive holds is exported where none is named, as rows and as a file."""
    held = md.Archive(folder / "history", frame="polars").scan("prices", resolution="6h").collect()
    words = ("export", "history", "prices", "-r", "6h")
    assert len(rows_of(marketdata(*words, cwd=folder).stdout)) == len(held)
    assert marketdata(*words, "--out", "all.parquet", cwd=folder).returncode == 0
    assert pl.read_parquet(folder / "all.parquet")["market_id"].n_unique() == held["market_id"].n_unique() > 1


def test_a_bar_shows_in_a_terminal_and_nowhere_else(folder, service, market, monkeypatch) -> None:
    """Progress is shown to a person; a pipe gets rows only."""
    # A bar that is worth showing takes a second, which a quick service does not.
    monkeypatch.setattr(
        "marketdata.client.history.progress_bar", lambda shown, **look: progress_bar(shown, **look | {"delay": 0})
    )
    words = ("fetch", "books", market, "--start", "2025-12-31T20:00", "--end", "2026-01-01")
    seen = terminal(*words, cwd=folder, **service)
    assert "books:" in seen
    assert "%|" in seen
    piped = marketdata(*words, cwd=folder, **service)
    assert (piped.returncode, piped.stderr) == (0, "")


def test_a_fetch_without_an_end_goes_up_to_now(folder, service, market) -> None:
    """`fetch` and `plan` without --end mean up to now, as `pull` does."""
    start = ("--start", "2025-12-31T12:00", "-r", "1h")
    rows = rows_of(marketdata("fetch", "prices", market, *start, cwd=folder, **service).stdout)
    held = md.Archive(folder / "history", frame="polars").prices(
        market, "2025-12-31T12:00", "2026-01-02", "1h", on_missing="partial"
    )
    assert len(rows) == len(held) > 0
    cost = json.loads(marketdata("plan", "prices", market, *start, "--json", cwd=folder, **service).stdout)
    assert cost["points"] >= len(rows)
    assert cost["memory_bytes"] > 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("fetsch",), 2, "fetsch"),
        (("fetch", "books", "no-such-market", *RANGE), 4, "no-such-market"),
        (("fetch", "books", "x", *RANGE, "-r", "7m"), 2, "--resolution '7m'"),
        (("fetch", "books", "x", "y.csv", *RANGE), 2, "'y.csv' is no market; --out y.csv writes a file"),
        (("export", "history", "books", "y.parquet"), 2, "--out y.parquet writes a file"),
        (("fetch", "price", "x", *RANGE), 2, "'price' is not one of 'books', 'prices', 'metrics'"),
        (("fetch", "books", "x", "--start", "2026-01-02", "--end", "2026-01-01"), 2, "--start '2026-01-02' is not"),
        (("fetch", "books", "x", "--start", "1767225600000", "--end", "2026-01-03"), 2, "milliseconds"),
        (("export", "history", "markets", "nowhere"), 4, "nowhere"),
        (("export", "history", "markets", "--start", "2025-12-31"), 2, "--start"),
        (("import", "new", "empty"), 2, ".parquet"),
        (("coverage", "nowhere"), 2, "nowhere"),
        (("usage", "--base-url", "http://127.0.0.1:9"), 5, "127.0.0.1:9"),
    ],
)
def test_an_error_is_one_line_and_a_code(folder, service, words, code, said) -> None:
    """An error is one line on stderr, without a traceback, with its own exit code."""
    with no_waiting():
        done = marketdata(*words, cwd=folder, **service)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_a_search_without_a_match_says_so(folder, service, market) -> None:
    """A search without a match is a sentence on stderr; the header of the CSV is there."""
    done = marketdata("markets", "--search", "no such thing", cwd=folder, **service)
    assert done.returncode == 0
    assert done.stderr == "marketdata: no markets match.\n"
    assert done.stdout.startswith("market_id,slug,")
    done = marketdata("fetch", "prices", market, "--start", "2030-01-01", "--end", "2030-01-02", cwd=folder, **service)
    assert (done.returncode, "no rows" in done.stderr) == (0, True)
    assert done.stdout == "ts,market_id,token_id,token_label,price\n"


def test_debug_shows_the_traceback(folder) -> None:
    """`--debug`, even after the verb, shows where an error came from."""
    with pytest.raises(md.errors.ConfigError, match="nowhere"):
        marketdata("coverage", "nowhere", "--debug", cwd=folder)


def test_what_is_exported_can_be_imported(folder, market) -> None:
    """Files that `export` wrote fill a new archive with the same rows, which are found by the same slugs."""
    source = folder / "source"
    source.mkdir()
    held = md.Archive(folder / "history", frame="polars")
    for view, suffix in (("books", "parquet"), ("prices", "csv"), ("metrics", "ndjson")):
        done = marketdata("export", "history", view, market, "--out", source / f"{view}.{suffix}", cwd=folder)
        assert done.returncode == 0, done.stderr
    for suffix in ("ndjson", "parquet", "csv"):
        records = folder / f"markets.{suffix}"
        assert marketdata("export", "history", "markets", "--out", records, cwd=folder).returncode == 0
        paths = [source, records] if suffix == "csv" else [records]
        done = marketdata("import", f"copy-{suffix}", *paths, cwd=folder)
        assert done.returncode == 0, done.stderr
        copy = md.Archive(folder / f"copy-{suffix}", frame="polars")
        assert copy.records("markets") == held.records("markets")
    for view in ("books", "prices", "metrics"):
        assert getattr(copy, view)(market).equals(getattr(held, view)(market))


def test_a_table_with_other_names_becomes_an_archive(folder) -> None:
    """Names of columns are given at once or one by one; what is stored is exported, quotes too."""
    (folder / "own.csv").write_text("when,contract,bid,ask\n2026-01-01 12:00,rain,40,42\n2026-01-01 12:01,rain,41,43\n")
    pairs = ("ts=when", "token_id=contract", "best_bid=bid", "best_ask=ask")
    for name, words in (
        ("one", ["--columns", ",".join(pairs)]),
        ("each", [w for p in pairs for w in ("--columns", p)]),
    ):
        done = marketdata("import", name, "own.csv", *words, cwd=folder)
        assert done.returncode == 0, done.stderr
        rows = rows_of(marketdata("export", name, "quotes", cwd=folder).stdout)
        assert [(float(row["best_bid"]), float(row["best_ask"])) for row in rows] == [(0.4, 0.42), (0.41, 0.43)]


def test_an_import_counts_what_is_reduced(folder) -> None:
    """The report has the rows read, those stored without copies, and their points at the base."""
    (folder / "fine").mkdir()
    prices = md.testing.prices("polars", buckets=10)
    seconds = prices.with_columns(ts=pl.col("ts") - pl.duration(seconds=pl.col("ts").dt.minute().cast(pl.Int64) * 40))
    md.testing.markets("polars").write_parquet(folder / "fine" / "markets.parquet")
    pl.concat([seconds, seconds]).write_parquet(folder / "fine" / "prices.parquet")
    md.testing.books("polars", buckets=4, levels=3).write_parquet(folder / "fine" / "books.parquet")
    done = marketdata("import", "fine-copy", folder / "fine", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = {row["kind"]: (row["rows"], row["stored"], row["points"]) for row in json.loads(done.stdout)}
    assert told["books"] == (4 * 2 * 2 * 3, 4 * 2 * 2 * 3, 8)
    assert told["prices"] == (40, 20, 2 * seconds["ts"].dt.truncate("1m").n_unique())
    done = marketdata("import", "seconds", folder / "fine", "--base", "1s", "--json", cwd=folder)
    assert {row["kind"]: row["points"] for row in json.loads(done.stdout)} == {"markets": 0, "books": 8, "prices": 20}
    assert len(rows_of(marketdata("export", "seconds", "prices", "-r", "1s", cwd=folder).stdout)) == 20
    done = marketdata("import", "fine-copy", folder / "fine", "--base", "1s", cwd=folder)
    assert (done.returncode, "--base 1m" in done.stderr) == (2, True)


def test_records_are_listed_as_markets_are(folder, market) -> None:
    """`export ARCHIVE markets` shows every market, or those that are named."""
    every = terminal("export", "history", "markets", cwd=folder).splitlines()
    assert every[0].split() == ["question", "slug", "status", "start_date", "end_date"]
    piped = rows_of(marketdata("export", "history", "markets", cwd=folder).stdout)
    records = md.Archive(folder / "history").records("markets")
    assert len(every) == 1 + len(piped) == 1 + len(records)
    assert [json.loads(row["token_ids"]) for row in piped] == [[t["id"] for t in r["tokens"]] for r in records]
    one = json.loads(marketdata("export", "history", "markets", market, "--json", cwd=folder).stdout)
    assert [row["slug"] for row in one] == [market]


def test_a_dry_run_leaves_nothing_behind(folder, service, market) -> None:
    """Only to ask what a pull would ask makes no folder, and puts nothing into an empty one."""
    (folder / "bare").mkdir()
    for name in ("dry", "bare"):
        done = marketdata("pull", name, *RANGE, "--market", market, "--dry-run", cwd=folder, **service)
        assert done.returncode == 0, done.stderr
        assert "missing" in done.stdout
    assert not (folder / "dry").exists()
    assert not list((folder / "bare").iterdir())


def test_a_second_pull_asks_for_nothing(folder, service, market) -> None:
    """`pull` fills an archive with what the service has, and then has nothing left to do."""
    (folder / "pulled").mkdir()
    words = ("pull", "pulled", market, *RANGE)
    done = marketdata(*words, "--json", cwd=folder, **service)
    assert done.returncode == 0, done.stderr
    assert {row["view"] for row in json.loads(done.stdout)} == {"books", "prices", "metrics"}
    assert "nothing is missing" in terminal(*words, cwd=folder, **service)
    assert rows_of(marketdata(*words, cwd=folder, **service).stdout) == []
    archives = [md.Archive(folder / name, frame="polars") for name in ("history", "pulled")]
    held, pulled = (archive.books(market, RANGE[1], RANGE[3]) for archive in archives)
    assert held.equals(pulled)


def test_a_free_plan_is_enough(folder, market) -> None:
    """Without books, minutes and older days, `fetch` and `pull` take what the plan allows."""
    plan = {"resolutions": ["10m", "1h"], "views": ["prices", "metrics"], "max_history_days": 0.75}
    archive = md.Archive(folder / "history")
    with md.serve(archive, keys={"a-free-key": "free"}, plans={"free": plan}, clock=lambda: 1_767_225_600) as running:
        free = {"MARKETDATA_BASE_URL": running.base_url, "MARKETDATA_API_KEY": "a-free-key"}
        refused = marketdata("fetch", "prices", market, "--start", "2025-12-31", cwd=folder, **free)
        assert refused.returncode == 3
        assert "--clamp starts at the earliest time" in refused.stderr
        refused = marketdata("fetch", "prices", market, *RANGE, "-r", "1m", cwd=folder, **free)
        assert "Pass --resolution 10m." in refused.stderr
        words = ("--start", "2025-12-31", "--end", "2026-01-01", "--clamp")
        fetched = marketdata("fetch", "prices", market, *words, cwd=folder, **free)
        assert {row["ts"][15:] for row in rows_of(fetched.stdout)} == {"0:00Z"}
        pulled = marketdata("pull", "free", "--market", market, *words, "--json", cwd=folder, **free)
        assert pulled.returncode == 0, pulled.stderr
    states = {row["view"]: row["state"] for row in json.loads(pulled.stdout) if row["rows"] != 0}
    assert states["books"] == "not_allowed"
    stored = rows_of(marketdata("export", "free", "prices", cwd=folder).stdout)
    assert {(row["ts"], row["price"]) for row in rows_of(fetched.stdout)} <= {
        (row["ts"], row["price"]) for row in stored
    }


def test_verify_names_the_readings_of_a_service(folder, service, market) -> None:
    """With --market every reading is told, and the local service follows those that its data can show."""
    words = ("verify", "--market", market, "--start", "2025-12-31T20:00", "--end", "2026-01-01")
    assert "label     followed" in terminal(*words, cwd=folder, **service)
    told = json.loads(marketdata(*words, "--json", cwd=folder, **service).stdout)
    assert list(told) == ["label", "averages", "books", "empty", "limit", "service"]
    assert told["service"]["plan"] == "local"
    for wrong in (("verify",), ("verify", "history", "--market", market), ("verify", "--market", market)):
        refused = marketdata(*wrong, cwd=folder, **service)
        assert refused.returncode != 0
        assert "--market" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_verify_finds_what_is_damaged(folder) -> None:
    """An archive that is whole ends with code 0, one with a file gone with code 1 and the name of the market."""
    path = folder / "damaged"
    md.Archive(path).add(markets=md.testing.markets(), prices=md.testing.prices())
    assert marketdata("verify", path, cwd=folder).returncode == 0
    next((path / "prices").glob("*.parquet")).unlink()
    done = marketdata("verify", path, cwd=folder)
    assert done.returncode == 1
    assert "rain" in done.stdout


def test_keys_are_made_listed_and_revoked(folder) -> None:
    """A key is shown once when it is made, listed by id only, and revoked by id."""
    made = marketdata("keys", "new", "keys.toml", cwd=folder)
    assert made.returncode == 0, made.stderr
    key_id, key = made.stdout.split()[0], made.stdout.split()[-1]
    assert key not in (folder / "keys.toml").read_text()
    assert marketdata("keys", "revoke", "keys.toml", key_id, cwd=folder).returncode == 0
    listed = marketdata("keys", "list", "keys.toml", cwd=folder).stdout
    assert [(row["id"], row["revoked"]) for row in rows_of(listed)] == [(key_id, "true")]
    assert json.loads(marketdata("keys", "list", "keys.toml", "--json", cwd=folder).stdout)[0]["id"] == key_id
    assert key not in listed


def test_a_further_key_takes_a_plan_of_the_file(folder) -> None:
    """A file with one plan needs no --plan, one with more names them, and one it lacks or an empty one is refused."""
    one, two = folder / "one.toml", folder / "two.toml"
    assert marketdata("keys", "new", one, "--plan", "pro", cwd=folder).returncode == 0
    assert "(plan pro)" in marketdata("keys", "new", one, cwd=folder).stdout
    refused = marketdata("keys", "new", one, "--plan", "other", cwd=folder)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    assert "pro" in refused.stderr
    for path in (one, folder / "new.toml"):
        empty = marketdata("keys", "new", path, "--plan", "", cwd=folder)
        assert (empty.returncode, empty.stdout) == (2, "")
        assert "--plan '' does not exist" in empty.stderr
    assert not (folder / "new.toml").exists()
    marketdata("keys", "new", two, "--plan", "basic", cwd=folder)
    two.write_text(two.read_text() + "\n[plans.pro]\n")
    several = marketdata("keys", "new", two, cwd=folder)
    assert several.returncode == 2
    assert "--plan is missing; allowed are basic, pro" in several.stderr


def test_the_proof_of_the_demo_sees_one_changed_number(folder, market) -> None:
    """Two answers that differ in one number, or by one row, are not equal."""
    for view, column in (("books", "size"), ("prices", "price"), ("metrics", "volume")):
        hourly = getattr(md.Archive(folder / "history", frame="polars"), view)(market, resolution="1h")
        demo.compare(view, hourly, hourly.clone())
        is_first = pl.int_range(pl.len()) == hourly[column].is_not_null().arg_max()
        changed = hourly.with_columns(pl.when(is_first).then(pl.col(column) * (1 + 1e-9)).otherwise(column))
        for other in (changed, hourly[1:], hourly.with_columns(pl.lit("x").alias("market_id").cast(pl.Categorical))):
            with pytest.raises(md.errors.ContractError, match=view):
                demo.compare(view, hourly, other)


def test_the_demo_proves_itself_and_draws(tmp_path, monkeypatch) -> None:
    """The demo, here of some hours, compares every row with the service's own answer and saves a chart."""
    monkeypatch.setattr("marketdata.simulation.simulate", partial(md.simulate, days=0.06))
    done = marketdata("demo", "--out", tmp_path / "chart.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"([\d,]+) rows here, \1 from the service, every one equal", done.stdout)) == 3
    assert "Simulating a week" in done.stdout
    assert (tmp_path / "chart.png").read_bytes()[1:4] == b"PNG"
