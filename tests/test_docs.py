"""The documentation runs: every Python block, the notebook, and the links between files."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import benchmark_chart
import call_map
import examples
import fault_matrix
import gallery
import pytest
from still import SOON

import marketdata

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "_" not in p.relative_to(ROOT / "docs").parts[0][:1]),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_of_a_page_runs(page: Path) -> None:
    """Python blocks run in order, share their names, and print what the page says."""
    examples.run(page.read_text(encoding="utf-8"), name(page))


WIDTH = 78  # columns of code that a page shows without scrolling, also where windows are small


def too_wide(code: Iterable[str]) -> list[str]:
    return [line for line in code if len(line) > WIDTH]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_of_a_page_fits_its_column(page: Path) -> None:
    """No line of code, of its output or of a file that a page shows is wider than a column of text."""
    fences = re.findall(r"^( *)```[^\n]*\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert too_wide(line.removeprefix(indent) for indent, block in fences for line in block.splitlines()) == []


def test_examples_of_docstrings_fit_their_column() -> None:
    """No line of an example, prompt and output included, is wider than a column of text."""
    parser, wide = doctest.DocTestParser(), []
    for path in sorted((ROOT / "marketdata").rglob("*.py")):
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(one, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for example in parser.get_examples(ast.get_docstring(one) or ""):
                    code = [f">>> {line}" for line in example.source.splitlines()]
                    wide += too_wide([*code, *example.want.splitlines()])
    assert wide == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_code_of_a_notebook_fits_its_column(path: Path) -> None:
    """No line of a cell is wider than a column of text."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert too_wide(line.rstrip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every link to a file of the project finds it."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """A module of the package or a file of the tests that a page names is there."""
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|js|pyi))`", page.read_text(encoding="utf-8"))
    assert not [one for one in named if not any((root / one).exists() for root in (ROOT, ROOT / "marketdata"))]


def lines(notebook: Any) -> list[set[str]]:
    """The lines of text that each cell shows; not the logs of engines and the bars of slow fetches."""
    return [
        {
            " ".join(line.split())
            for output in cell.get("outputs", ())
            if output.get("name") != "stderr"
            and "application/vnd.jupyter.widget-view+json" not in output.get("data", {})
            for line in (output.get("text") or output.get("data", {}).get("text/plain", "")).splitlines()
        }
        for cell in notebook.cells
    ]


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """One kernel for all notebooks: it loads the libraries once."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_runs_and_shows_what_it_says(path: Path, kernel: Any) -> None:
    """Without a name in the kernel each cell runs and shows what is in the file; lines of absent engines are not."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    committed = lines(notebook)
    patience = dict.fromkeys(("timeout", "startup_timeout", "iopub_timeout"), SOON)
    client = NotebookClient(notebook, km=kernel, resources={"metadata": {"path": ROOT}}, **patience)
    client.execute()
    client.kc.execute("%reset -f", reply=True, timeout=SOON)
    client.kc.stop_channels()
    for shown, known in zip(lines(notebook), committed, strict=True):
        assert shown <= known
        assert bool(shown) is bool(known)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_is_small_and_was_run(path: Path) -> None:
    """The notebook is committed with its outputs, in order, under 400 kB, without a path of a machine."""
    import nbformat

    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert len(text) < 400_000
    assert not re.search(r"/(home|root|tmp|work)/", text)


def test_the_gallery_has_a_page_for_every_chart() -> None:
    """A chart that is added has a page in the gallery, with its code for each backend and a place for its picture."""
    setup, pages = gallery.sections((ROOT / "docs/gallery.md").read_text(encoding="utf-8"))
    assert {page[0].name for page in pages} == set(marketdata.plot.__all__) - {"style"}
    for page in pages:
        text = gallery.page(page, setup)
        assert text.count('    backend="plotly",\n)\n```') == len(page)
        assert text.count(f"]({page[0].name}") == text.count(f":file: {page[0].name}") == len(page)


def test_the_gallery_draws_its_pages(tmp_path: Path) -> None:
    """Each page is written with a picture, a thumbnail and an interactive chart."""
    source = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    head, *parts = re.split(r"(?m)^(?=## )", source)
    gallery.draw(head + next(part for part in parts if "plot.ladder(" in part), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "ladder.html",
        "ladder.md",
        "ladder.png",
        "ladder_small.png",
    ]
    assert 'class="plotly-chart"' in (tmp_path / "ladder.html").read_text(encoding="utf-8")


def test_the_chart_of_benchmarks_has_its_tables() -> None:
    """Each table of the first chart is on the page, with a row of ours and one of another way."""
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    jobs = benchmark_chart.ways(page)
    assert len(jobs) == len(benchmark_chart.JOBS)
    for rows in jobs.values():
        assert any(way.ratio == 1 and "marketdata" in way.name for way in rows)
        assert any("marketdata" not in way.name for way in rows)


def test_the_readme_is_narrow() -> None:
    """Lines of the README fit a terminal of 80 columns."""
    assert too_wide((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) == []


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/index.md"], ids=name)
def test_the_picture_of_a_page_is_what_its_lines_draw(page: Path, tmp_path: Path) -> None:
    """The first lines of Python draw the committed picture, but for fonts and edges of another matplotlib."""
    import matplotlib.pyplot as plt

    figure = gallery.drawn(examples.blocks(page.read_text(encoding="utf-8"))[0], {})
    figure.savefig(tmp_path / "book.png")
    plt.close("all")
    made, known = plt.imread(tmp_path / "book.png"), plt.imread(ROOT / "docs/demo.png")
    assert made.shape == known.shape
    assert abs(made - known).mean() < 0.02


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """Decoding and resampling are more than ten times as fast as the ways that the README names."""
    decoding, resampling, *_ = benchmark_chart.ways((ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")).values()
    named = [way.ratio for way in decoding if way.name.startswith("json.loads")]
    named += [way.ratio for way in resampling if way.name.startswith("pandas") and "transform" in way.name]
    assert len(named) == 3
    assert min(named) > 10


def test_references_to_the_interface_lead_to_its_page() -> None:
    """Docstrings name sections that the page has, by number; other pages name them in words, with a link."""
    page = ROOT / "docs/interface.md"
    sections = set(re.findall(r"^\(interface-([\d-]+)\)=$", page.read_text(encoding="utf-8"), re.MULTILINE))
    numbers = re.compile(r"\binterface (?:sections? )?(\d(?:\.\d)?(?:(?:,| and| to)\s+\d(?:\.\d)?)*)", re.IGNORECASE)
    named = set()
    for path in (ROOT / "marketdata").rglob("*.py"):
        for found in numbers.findall(path.read_text("utf-8")):
            named |= {number.replace(".", "-") for number in re.findall(r"\d(?:\.\d)?", found)}
    assert named
    assert sorted(named - sections) == []
    assert [name(one) for one in PAGES if one != page and numbers.search(one.read_text("utf-8"))] == []


def test_figures_of_reliability_are_those_of_the_benchmarks() -> None:
    """What the page on reliability says of fetching holds in the tables that ``make bench`` wrote."""
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    fetched = re.findall(r"\*\*marketdata\*\* \| \d+ \| \d+ ms \| \S+ \| (\S+)% \| \S+ \| (\d+) \| (\S+) \|", page)
    assert len(fetched) > 5
    assert min(float(used) for used, _, _ in fetched) >= 96
    assert {refused for _, refused, _ in fetched} == {"0"}
    assert max(float(each) for _, _, each in fetched) <= 1.05
    assert "| second | 0 | 0 |" in page


def test_the_fault_matrix_is_written_from_the_tests() -> None:
    """A test that carries a row is a sentence of that row."""
    page = fault_matrix.page(ROOT / "tests")
    (row,) = re.findall(r"^\| N9 \| (.*) \|$", page, re.MULTILINE)
    assert "A gzip stream without its end or checksum is tried again" in row
    assert "## Long runs" in page


def test_the_map_says_where_calls_are_and_what_they_run_through() -> None:
    """Each public function has its row; a fetch runs from windows to frames, a pull to the tables of the archive."""
    rows = dict(re.findall(r"^\| \{py:obj\}`([\w.]+) <.*?>` \| (.*) \|$", call_map.page(), re.MULTILINE))
    functions = {name for name in marketdata.__all__ if inspect.isfunction(getattr(marketdata, name))}
    assert functions <= rows.keys()
    assert rows["bbo"].startswith("`tidy/quotes.py`")
    order = [rows["Client.books"].index(part) for part in ("scheduler", "decode", "**tidy** frames")]
    assert order == sorted(order)
    assert "storage/tables" in rows["Archive.pull"]


def test_the_steps_of_a_page_are_those_of_the_page_about_them() -> None:
    """The page on how it works names every function through which a fetched page of books becomes a frame."""
    rows = re.findall(
        r"(?m)^\| [a-z ]+ \| (`[^|]+) \| (`[^|]+) \|", (ROOT / "docs" / "how_it_works.md").read_text("utf-8")
    )
    named = {name for _, functions in rows for name in re.findall(r"`([\w.]+)`", functions)}
    files = {name for where, _ in rows for name in re.findall(r"`([\w./]+)`", where)}
    seen: set[tuple[str, str]] = set()
    package = ROOT / "marketdata"
    ends = ("read_body", "_read_books", "check", "joined", "_release", "expanded")

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name in ends:
            stack: set[tuple[str, str]] = set()
            while frame is not None:
                file = Path(frame.f_code.co_filename)
                if package in file.parents and frame.f_code.co_name != "<lambda>":
                    name = frame.f_code.co_qualname.replace(".<locals>", "")
                    stack.add((file.relative_to(package).as_posix(), name))
                frame = frame.f_back
            # Whether a thread of the service is a new one, and watched, is a matter of chance.
            if not any(file.startswith(("service/", "archive/")) for file, _ in stack):
                seen.update(stack)

    archive = marketdata.simulate(events=1, days=0.1, markets=1)
    market = archive.records("markets")[0]["id"]
    with marketdata.serve(archive) as service, marketdata.Client(service.base_url, service.api_key) as client:
        client.books(market, "2025-12-31 23:00", "2026-01-01", "1m")  # the archive is read
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            client.books(market, "2025-12-31 23:00", "2026-01-01", "1m")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert {name for _, name in seen} == named
    assert {file for file, _ in seen} == files


def test_the_changelog_knows_the_version() -> None:
    """The version of the package has its section in the changelog."""
    assert f"## [{marketdata.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
