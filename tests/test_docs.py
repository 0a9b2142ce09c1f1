"""The README runs here. The other pages and the notebooks run in ``make docs``."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import examples
import gallery
import pandas as pd
import pytest
from reference.faults import FaultServer
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub

import marketdata
from marketdata.archive.coverage.intervals import CoverageState

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("[!_]*/*.md"))]
PAGES += sorted((ROOT / "docs").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page", [PAGES[0], *(pytest.param(page, marks=pytest.mark.docs) for page in PAGES[1:])], ids=name
)
def test_every_block_of_a_page_runs(page: Path) -> None:
    """Python blocks run in order, share their names, and print what the page shows."""
    examples.run(page.read_text(encoding="utf-8"), name(page))


def test_code_of_a_page_fits_its_column() -> None:
    """No line of code of a page is wider than a column of text."""
    wide = []
    for page in PAGES:
        fences = re.findall(r"^( *)```[^\n]*\n(.*?)^ *```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        lines = (line.removeprefix(indent) for indent, block in fences for line in block.splitlines())
        wide += [(name(page), line) for line in lines if len(line) > 78]
    assert wide == []


OWNERS: dict[str, Any] = {
    "md": marketdata, "md.plot": marketdata.plot, "md.errors": marketdata.errors, "md.testing": marketdata.testing,
    "client": marketdata.Client, "archive": marketdata.Archive, "Fees": marketdata.Fees, "df.md": marketdata.Accessor,
    "books.md": marketdata.Accessor, "prices.md": marketdata.Accessor,
}  # fmt: skip
CALL = re.compile(
    rf"(?<![\w.])({'|'.join(map(re.escape, sorted(OWNERS, key=len, reverse=True)))})\.(\w+)(\([^()\n]*\))?"
)


def test_names_and_arguments_of_pages_exist() -> None:
    """What a page says of a client, an archive, a frame or the package is a name, and takes the arguments shown."""
    wrong = []
    for page in PAGES:
        if page.name in ("interface.md", "CONTRIBUTING.md"):  # paths of the service, and names to come
            continue
        for owner, attribute, call in CALL.findall(page.read_text("utf-8")):
            value = getattr(OWNERS[owner], attribute, None)
            if value is None and attribute != "md":  # a link to a page
                wrong.append((name(page), f"{owner}.{attribute}"))
            elif call and callable(value):
                takes = inspect.signature(value).parameters.values()
                given = re.findall(r"(?<![\w.=\"'])(\w+)=(?!=)", call)
                known = {one.name for one in takes} | {"title", "theme", "backend", "moments"}
                if not any(one.kind is one.VAR_KEYWORD and owner != "md.plot" for one in takes):
                    wrong += [(name(page), f"{owner}.{attribute}({one}=)") for one in given if one not in known]
    assert wrong == []


def first_cells(page: str) -> list[str]:
    """The names in the first cells of the tables of a page."""
    cells = re.findall(r"(?m)^\| (`[^|]*`) +\|", (ROOT / "docs" / page).read_text("utf-8"))
    return [one for cell in cells for one in re.findall(r"`(\w+)`", cell)]


def test_pages_list_every_error_and_every_warning() -> None:
    """The guide has each error and warning once that no other one refines; no list of the reference names one twice."""
    kinds = {one for one in vars(marketdata.errors).values() if isinstance(one, type)}
    kinds = {one for one in kinds if issubclass(one, (marketdata.MarketDataError, marketdata.errors.MarketDataWarning))}
    general = {"MarketDataError", "MarketDataWarning", "RequestError", "ArchiveError"}
    assert sorted(first_cells("guides/errors.md")) == sorted({one.__name__ for one in kinds} - general)
    for page in (ROOT / "docs/reference").glob("*.md"):
        listed = re.findall(r"(?m)^   (\w+(?:\.\w+)*)$", page.read_text("utf-8"))
        assert len(listed) == len(set(listed)), page


def test_pages_and_the_chart_have_the_same_states_of_coverage() -> None:
    """Glossary, guide, decisions and chart name the states that the code has."""
    states = {state.value for state in CoverageState}
    glossary = (ROOT / "docs/glossary.md").read_text("utf-8")
    [listed] = re.findall(r"each in one of these states: ([\w,\s]+)\.", glossary)
    assert set(re.split(r",\s+", listed)) == states <= set(re.findall(r"(?m)^(\w+)$", glossary))
    assert states <= set(first_cells("guides/archive.md"))
    [decided] = re.findall(
        r"\*\*\w+ states of a range\.\*\* ([^.]+)\.", (ROOT / "docs/decisions.md").read_text("utf-8")
    )
    assert set(re.findall(r"`(\w+)`", decided)) == states - {CoverageState.MISSING.value}
    ranges = [{"view": "prices", "market_id": state, "state": state, "start": 0, "end": 1} for state in states]
    frame = pd.DataFrame(ranges).assign(
        start=pd.Timestamp("2026-01-01", tz="UTC"), end=pd.Timestamp("2026-01-02", tz="UTC")
    )
    bars = {bar.name: bar.marker.color for bar in marketdata.plot.coverage(frame, backend="plotly").data}
    assert bars.keys() == states
    assert len(set(bars.values())) == len(states)


def test_files_that_a_page_names_exist() -> None:
    """Links between files and names of modules lead to a file of the project."""
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text):
            missing += [] if (page.parent / link).exists() else [(name(page), link)]
        for module in re.findall(r"`((?:\w+/)+\w+\.(?:py|js|pyi))`", text):
            if not any((root / module).exists() for root in (ROOT, ROOT / "marketdata")):
                missing.append((name(page), module))
    assert missing == []


def printed_lines(notebook: Any) -> list[set[str]]:
    """Return the lines of text that each cell shows, without logs of engines and progress bars."""
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
    """One kernel for all notebooks: it loads the libraries once. The venues that it finds are stubs."""
    from jupyter_client.manager import KernelManager

    manager = KernelManager(kernel_name="python3")
    stubs = (PolymarketStub(count=72), KalshiStub(count=72))
    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:
        for stub in stubs:
            address = running.enter_context(FaultServer(stub)).base_url
            patch.setenv(f"MARKETDATA_{stub.venue.upper()}_URL", address)
        yield manager
        manager.shutdown_kernel(now=True)


@pytest.mark.docs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_a_notebook_shows_what_it_prints(path: Path, kernel: Any) -> None:
    """Each cell of a notebook runs and prints what is stored in the file."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    stored = printed_lines(notebook)
    client = NotebookClient(notebook, km=kernel, timeout=600, resources={"metadata": {"path": ROOT}})
    client.execute()
    client.kc.execute("%reset -f", reply=True, timeout=600)
    client.kc.stop_channels()
    for printed, expected in zip(printed_lines(notebook), stored, strict=True):
        assert printed <= expected
        assert bool(printed) is bool(expected)


def test_a_notebook_is_small_and_was_run() -> None:
    """Notebooks are stored with their outputs, in order, under 400 kB, and without a path of a machine."""
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), path
        assert len(text) < 400_000, path
        assert not re.search(r"/(home|root|tmp|work)/", text), path


def test_the_gallery_has_a_page_for_every_chart() -> None:
    """Each chart has a page in the gallery, with its code for each backend."""
    setup, pages = gallery.sections((ROOT / "docs/gallery.md").read_text(encoding="utf-8"))
    assert {page[0].name for page in pages} == set(marketdata.plot.__all__)
    for page in pages:
        assert gallery.page(page, setup).count('    backend="plotly",\n)\n```') == len(page)


@pytest.mark.docs
def test_the_gallery_draws_its_pages(tmp_path: Path) -> None:
    """A page of the gallery is written with a picture, a thumbnail and an interactive chart."""
    head, *parts = re.split(r"(?m)^(?=## )", (ROOT / "docs/gallery.md").read_text(encoding="utf-8"))
    gallery.draw(head + next(part for part in parts if "plot.ladder(" in part), tmp_path)
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {"ladder.html", "ladder.md"} | {f"ladder{n}{t}.png" for n in ("", "_small") for t in ("", "_dark")}


@pytest.mark.docs
def test_the_first_picture_is_what_its_lines_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lines of the README and of the site save the picture beside them."""
    import matplotlib.pyplot as plt

    stored = plt.imread(ROOT / "docs/demo.png")
    monkeypatch.chdir(tmp_path)
    for page in (ROOT / "README.md", ROOT / "docs/index.md"):
        exec(next(block for block in examples.blocks(page.read_text("utf-8")) if "plot.book" in block), {})
        drawn = plt.imread(tmp_path / "book.png")
        assert drawn.shape == stored.shape
        assert abs(drawn - stored).mean() < 0.02  # fonts of another matplotlib
