"""The shell: hints in its own words, what people type instead, one selection of markets, and pipes."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.run import marketdata, rows_of, terminal
from reference.polymarket_stub import START, PolymarketStub
from reference.venues import NOW, answered, simulated_clock

import marketdata as md
from marketdata import errors
from marketdata.cli import messages

PACKAGE = Path(md.__file__).parent
HOUR = "--start", "2025-12-31T12:00", "--end", "2025-12-31T13:00"


def hints() -> Iterator[str]:
    """Every hint of the package that is a plain text."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given = (
                [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
                if isinstance(node, ast.Call)
                else []
            )
            if isinstance(node, ast.Assign) and [*map(ast.unparse, node.targets)] == ["hint"]:
                given = [node.value]
            yield from (
                one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value
            )


def test_no_hint_is_lost_in_the_shell() -> None:
    """Each has a form for the shell: options and commands in the place of arguments and calls."""
    found = [*hints()]
    assert len(found) > 30
    for hint in found:
        for kind in (errors.ConfigError, errors.NotFoundError, errors.ServerError, errors.ArchiveError):
            said = messages.line(kind("It is so.", hint=hint))
            assert len(said) > len("It is so. "), hint
        assert not re.search(
            r"(?<!archive\.)\bclient\.(markets|events|series|tags)\(|\ball=True|\bstart=", messages.in_shell(hint)
        ), hint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fetch", "prices", "x", "--from", "2026-01-01"), "'--from'; did you mean --start"),
        (("markets", "--limit", "3"), "'--limit'; did you mean --rows"),
        (("markets", "--status", "open"), "'--status'; did you mean --state"),
        (("coverage", "history", "--format", "json"), "'--format'; did you mean --json"),
        (("download", "prices"), "no command 'download'; did you mean fetch or pull"),
        (("prices", "x"), "no command 'prices'; did you mean fetch prices"),
        (("list",), "no command 'list'; did you mean markets"),
        (("import", "a.csv"), "Usage: marketdata import ARCHIVE PATHS... (marketdata import --help)"),
        (("fetch", "prices"), "Usage: marketdata fetch VIEW MARKET..."),
        (("markets", "--service", "manifold"), "is no name of a service (polymarket, kalshi,"),
        (("export", "history", "prices", "--start", "noon"), "is not an ISO 8601 time. Allowed: ISO 8601 such as"),
        (("pull", "h", "x"), "Give --start, or --period 7d."),
        (("replay", "history", "--speed", "fast"), "allowed are numbers from 1, and max"),
        (("import", "x", "a.csv", "--columns", "ts"), "is no list such as ts=when,token_id=asset"),
        (("markets", "fed", "--search", "fed"), "is given twice: as WORDS and by --search"),
    ],
)
def test_what_people_type_is_answered_with_what_they_mean(words: tuple[str, ...], said: str, folder: Path) -> None:
    """A usual name of an option or a command is told the one here, with exit code 2."""
    done = marketdata(*words, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr


def test_every_answer_of_the_table_exists() -> None:
    """What is proposed is an option or a command of the program."""
    import typer.main

    from marketdata.cli.app import app

    group = typer.main.get_command(app)
    commands: dict[str, object] = group.commands  # type: ignore[attr-defined]
    options = {option for one in commands.values() for p in one.params for option in p.opts}  # type: ignore[attr-defined]
    for typed, meant in messages._MEANT.items():
        named = set(re.findall(r"--[a-z-]+", meant)) - {"--help", "--version"}
        assert named <= options, typed
        words = re.split(r", | or ", meant)
        assert meant.startswith(("--", "MARKET", "the variable")) or words[0].split()[0] in commands, typed


def test_python_proposes_no_silly_name() -> None:
    """A name that people guess is told the way here; another one is told a near name or none."""
    for name, said in (("fetch", "Client"), ("get", "Client"), ("Polymarket", "md.Client"), ("pull", "Archive")):
        # Where a module of that name was loaded before, the package has it.
        with pytest.raises(AttributeError, match=f"did you mean .*{said}"):
            md.__getattr__(name)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="did you mean 'resample'"):
        _ = md.resampl
    with pytest.raises(AttributeError) as plain:
        _ = md.zebra
    assert "did you mean" not in str(plain.value)


def test_without_configuration_a_public_venue_is_named(folder: Path) -> None:
    """The help, and the error of a command in a fresh shell, name --service polymarket; so does Python."""
    for words in (("markets",), ("fetch", "prices", "x")):
        done = marketdata(*words, cwd=folder)
        assert done.returncode == 2
        assert "--service polymarket" in done.stderr
    shown = marketdata("--help", cwd=folder)
    assert "--service polymarket" in shown.stdout
    assert "recorded answers" in " ".join(shown.stdout.split())
    with pytest.raises(errors.ConfigError, match=r"md\.Client\('polymarket'\)"):
        md.Client()


def test_markets_are_chosen_in_one_way(folder: Path) -> None:
    """Commands that take markets refuse none and two ways in the same words."""
    for verb in ("pull", "record"):
        for given in ((), ("SLUG", "--event", "e"), ("--search", "x", "--from-file", "f")):
            done = marketdata(verb, "new", *given, *(HOUR if verb == "pull" else ()), cwd=folder)
            assert done.returncode == 2
            assert (
                "Give MARKET, --from-file, --all, or some of --event, --series, --tag, --search, --state" in done.stderr
            )


def test_a_pull_in_a_terminal_is_a_line_a_market_and_a_sum(folder: Path, tmp_path: Path) -> None:
    """No line is wider than 80 columns, whatever the slug; the ranges are in CSV."""
    history = md.Archive(folder / "history", frame="polars")
    with md.serve(history) as running:
        env = {"MARKETDATA_BASE_URL": running.base_url, "MARKETDATA_API_KEY": str(running.api_key)}
        shown = terminal("pull", "a", "--search", "harbour", *HOUR, cwd=tmp_path, COLUMNS="80", **env)
        ranges = rows_of(marketdata("pull", "b", "--search", "harbour", *HOUR, cwd=tmp_path, **env).stdout)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    sums = [line for line in lines if re.match(r"\d+ markets, \d+ ranges, [\d,]+ points, 2025-12-31 12:00 to ", line)]
    assert len(sums) == 1
    assert sums[0].split()[2] == str(len(ranges))
    head, *rows = lines[: lines.index(sums[0])]
    assert head.split()[:5] == ["market", "books", "metrics", "prices", "state"]
    names = [row.split()[0] for row in rows if not row.startswith("...")]
    assert len(names) == len({*names}) == len({row["market_id"] for row in ranges})
    assert {"view", "market_id", "start", "end", "state", "rows", "resolution"} <= set(ranges[0])


def test_a_frame_of_markets_is_pulled_without_asking_for_records(folder: Path, tmp_path: Path) -> None:
    """pull(client, client.markets(...)) stores the records that it is given, and fetches points alone."""
    history = md.Archive(folder / "history", frame="polars")
    with md.serve(history) as running:
        client = md.Client(running.base_url, running.api_key, frame="polars")
        frame = client.markets("harbour")
        archive = md.Archive(tmp_path / "of-a-frame", frame="polars")

        def refused(*_: object) -> None:
            raise AssertionError("records were asked for")

        feed = client.feed
        feed.market_records = feed.market = refused  # type: ignore[method-assign, assignment]
        pulled = archive.pull(feed, frame, views="prices", start="2025-12-31T12:00", end="2025-12-31T12:30")
    assert {*pulled["market_id"]} == {*frame["market_id"]} == {*archive.markets()["market_id"]}


def test_trades_are_fetched_and_exported_like_other_views(tmp_path: Path) -> None:
    """Prints of a venue are fetched in every format, pulled and exported, and what needs buckets is refused."""
    stub = PolymarketStub(count=1)
    words = (stub.markets[0].slug, "--start", START // 10**6, "--period", "1d", "--service", "polymarket")
    with simulated_clock(NOW), answered(dict.fromkeys(stub.hosts, stub)):
        for form in ("--csv", "--ndjson"):
            fetched = marketdata("fetch", "trades", *words, form, cwd=tmp_path)
            assert fetched.returncode == 0, fetched.stderr
            assert len(fetched.stdout.splitlines()) > 2
        refused = marketdata("fetch", "trades", *words, "-r", "1h", cwd=tmp_path)
        pulled = marketdata("pull", "h", *words, "--view", "trades", cwd=tmp_path)
    assert (refused.returncode, "leave out --resolution" in refused.stderr) == (2, True)
    assert pulled.returncode == 0, pulled.stderr
    for market in ((), (stub.markets[0].slug,)):
        exported = rows_of(marketdata("export", "h", "trades", *market, cwd=tmp_path).stdout)
        assert len(exported) == len(fetched.stdout.splitlines())
        assert {"ts", "price", "size", "side"} <= {*exported[0]}


def test_what_a_refused_file_needs_is_said_in_options_that_work(tmp_path: Path) -> None:
    """The remedy is an option of the command, quoted where a shell needs it, and works as it is printed."""
    (tmp_path / "a.csv").write_text("timestamp,token_id,price\n13/01/2026 10:00,7,.5\n14/01/2026 11:00,7,.6\n")
    refused = marketdata("import", "x", "a.csv", cwd=tmp_path)
    assert refused.returncode == 2
    [option] = re.findall(r"--time-format '.*'", refused.stderr)
    assert "time_format=" not in refused.stderr
    assert marketdata("import", "x", "a.csv", *shlex.split(option), cwd=tmp_path).returncode == 0
    said = messages.in_shell("columns={'best_bid': 'My Bid', 'best_ask': ...}")
    assert said == "--columns 'best_bid=My Bid,best_ask=...'"


def test_a_refused_file_has_its_exit_code_with_explain_too(tmp_path: Path) -> None:
    """It says why, as without --explain, and a program sees it."""
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    told, refused = (marketdata("import", "x", "odd.csv", *more, cwd=tmp_path) for more in (("--explain",), ()))
    assert told.returncode == refused.returncode == 2
    assert "fits no known format" in told.stdout


def test_an_import_of_a_folder_with_an_odd_file_fails_after_the_others(tmp_path: Path) -> None:
    """The file that cannot be read is named, the others are stored, and the exit code is 1."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "odd.csv").write_text("a,b\n1,2\n")
    (tmp_path / "files" / "prices.csv").write_text("ts,token_id,price\n2026-01-01T00:00:00Z,7,.5\n")
    done = marketdata("import", "h", "files", cwd=tmp_path)
    assert (done.returncode, "odd.csv" in done.stderr) == (1, True)
    assert len(rows_of(marketdata("export", "h", "prices", cwd=tmp_path).stdout)) == 1


def test_a_closed_market_is_pulled_to_its_end(tmp_path: Path) -> None:
    """Its range is final, asked for once, and read to any end without a warning."""
    history = md.simulate(tmp_path / "history", events=1, days=1, markets=1, levels=2, frame="polars")
    [record, *_] = history.records("markets")
    archive = md.Archive(tmp_path / "pulled", frame="polars")
    with md.serve(history) as running:
        client = md.Client(running.base_url, running.api_key, frame="polars")
        how = {"markets": record["id"], "views": "prices", "start": "2025-12-31T20:00"}
        first = archive.pull(client, **how)
        assert {*first["state"]} == {"final"}
        assert len(archive.pull(client, **how)) == 0
    assert len(archive.prices(record["id"], "2025-12-31T20:00", "2027-01-01"))


@pytest.mark.skipif(sys.platform == "win32", reason="a shell with pipefail is needed")
@pytest.mark.parametrize("lines", [1, 3])
def test_a_pipe_that_ends_early_is_no_failure(folder: Path, lines: int) -> None:
    """`marketdata export ... | head -1` exits with 0 under pipefail, and says nothing."""
    command = f"set -o pipefail; {sys.executable} -m marketdata.cli export history prices | head -{lines}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == lines


def test_the_bar_of_an_import_counts_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, points and files that cannot be read count as recordings do."""
    import polars as pl

    md.testing.markets("polars").write_parquet(tmp_path / "markets.parquet")
    prices = md.testing.prices("polars").with_columns(pl.col("market_id", "token_id", "token_label").cast(pl.String))
    prices.write_parquet(tmp_path / "prices.parquet")
    prices.write_csv(tmp_path / "more.csv")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    with pytest.warns(errors.RecordingWarning, match="odd"):
        md.Archive(tmp_path / "history").add_files([tmp_path / "*.parquet", tmp_path / "*.csv"], progress=True)
    assert "4/4" in capsys.readouterr().err
