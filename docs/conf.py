"""Settings of the documentation. ``make docs`` builds it and fails on a warning.

The tests run its examples. Sphinx executes pages with cells. Notebooks contain their output, which a test compares
with a new run.
"""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import click  # noqa: E402
import gallery  # noqa: E402
import kernel  # noqa: E402
import nbformat  # noqa: E402
import record_fields  # noqa: E402
import search  # noqa: E402
import typer  # noqa: E402
from docutils import nodes  # noqa: E402
from plotly.offline import get_plotlyjs  # noqa: E402

import marketdata  # noqa: E402
from marketdata.cli.app import app as command  # noqa: E402

project = "marketdata"
author = "marketdata contributors"
copyright = f"2026, {author}"  # noqa: A001
version = release = marketdata.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "_made/record*_*.md", "**/.ipynb_checkpoints"]
nitpicky = True
default_role = "py:obj"
nitpick_ignore_regex = [
    # base classes of the standard library, and private halves of a class
    ("py:class", r"(ValueError|Exception|UserWarning|StrEnum|enum\..*|Generic|typing\..*|object|dict|.*TypeVar.*)"),
    ("py:class", r"marketdata\.(client|archive)\.\w+\.\w+.*"),
    # short names, as docstrings read them, and names of other libraries
    ("py:obj", r"(client\.\w+|Client|Archive|Book|read_pages|pandas\.\w+|join_asof)"),
]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_excludepatterns = ["_made/*"]
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "remove"  # engines log their start there

html_theme = "pydata_sphinx_theme"
html_title = "marketdata"
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "navigation_with_keys": True,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False
# These pages have no siblings to navigate to, and their wide tables need the room.
html_sidebars = {
    name: [] for name in ("index", "install", "tour", "gallery", "_made/gallery/*", "_made/[0-9]*", "analytics")
}
html_static_path = ["_static", "_made/static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_js_files = [("quiet.js", {"priority": 0}), ("site.js", {"defer": "defer"})]
# The copy button leaves out prompts and output, so that a copy runs.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

MADE = HERE / "_made"
KERNEL = MADE / "ipython"
os.environ["IPYTHONDIR"] = str(KERNEL)


def _help() -> str:
    """The help of every command, as ``--help`` prints it."""
    root = typer.main.get_command(command)
    parts: list[str] = []

    def add(one: Any, name: str, above: Any = None) -> None:
        context = click.Context(one, info_name=name, parent=above, max_content_width=100, terminal_width=100)
        parts.append(f"## {context.command_path}\n\n```text\n{one.get_help(context)}\n```\n")
        for verb, inner in getattr(one, "commands", {}).items():
            add(inner, verb, context)

    add(root, "marketdata")
    return "\n".join(parts)


def _gather(*_: Any) -> None:
    """Write the pages that come from other files: notebooks, the command line, tables and the gallery."""
    shutil.rmtree(MADE, ignore_errors=True)
    startup = KERNEL / "profile_default" / "startup"
    static = MADE / "static"
    for folder in (startup, static):
        folder.mkdir(parents=True)
    for path in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        nbformat.write(_drawn(nbformat.read(path, as_version=4)), MADE / path.name)
    shutil.copy(HERE / "kernel.py", startup)
    (static / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    (MADE / "record_fields.md").write_text(record_fields.tables(), encoding="utf-8")
    _run("gallery.py", MADE / "gallery")
    (MADE / "command_line.md").write_text(f"# Command line\n\n{_help()}", encoding="utf-8")


def _run(script: str, *arguments: Path) -> str:
    """Run a script and return what it prints.

    It is a process of its own, because Sphinx forks and Delta's runtime does not survive a fork.
    """
    line = [sys.executable, HERE / script, *arguments]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout  # noqa: S603  ours


def _drawn(notebook: Any) -> Any:
    """A notebook with its interactive charts as HTML, which share the script of the site."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        figure = output.get("data", {}).pop("application/vnd.plotly.v1+json", None)
        if figure is not None:
            output["data"].update(kernel.SiteRenderer().to_mimebundle(figure))
    return notebook


def _script(app: Any, _page: str, _template: str, _context: Any, doctree: Any) -> None:
    """Load plotly's script on pages with interactive charts only, because it has 5 MB."""
    if doctree is not None and any("plotly-chart" in node.astext() for node in doctree.findall(nodes.raw)):
        app.add_js_file("plotly.min.js", loading_method="defer")


def _edit(_app: Any, name: str, source: list[str]) -> None:
    if name == "gallery":
        source[0] = gallery.grid(source[0])
    if name == "analytics":
        source[0] = _link_measures(source[0])
    if name == "reference/index":
        source[0] = re.sub(r"`(md\.(\w+))`", r"{py:obj}`\1 <marketdata.\2>`", source[0])
    source[0] = search.with_entries(name, source[0])
    if name in _INTERNAL:
        source[0] = f"---\nnosearch: true\n---\n{source[0]}"


# A search for a function should not find these pages about internals.
_INTERNAL = ("inside", "how_it_works", "benchmarks", "decisions")


def _plain_function(name: str) -> str:
    """The page of a function as Markdown: its signature and docstring."""
    one = pydoc.locate(name)
    signature = inspect.signature(one) if callable(one) else ""
    return f"# {name}\n\n```python\n{name}{signature}\n```\n\n{inspect.getdoc(one)}\n"


def _plain_pages(app: Any, problem: Exception | None) -> None:
    """Write every page as Markdown next to its HTML, and ``llms.txt``, which lists them with a line each."""
    if problem is not None or app.builder.name != "html":
        return
    lines = [f"# {project}", "", "> Historical prediction-market data as tidy pandas and polars frames.", ""]
    for name in sorted(app.env.found_docs):
        source = Path(app.env.doc2path(name))
        if name in _INTERNAL or source.suffix == ".ipynb":
            continue
        text = source.read_text(encoding="utf-8") if source.suffix == ".md" else _plain_function(source.stem)
        copy = Path(app.outdir) / f"{name}.md"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        words = re.sub(r"^```.*?^```\n\n", "", text, flags=re.MULTILINE | re.DOTALL)
        about = re.search(r"^# .*\n\n([A-Z][^\n]*(?:\n[^\n]+)*)", words, re.MULTILINE)
        first = " ".join(about[1].split()).split(". ")[0].rstrip(".") if about else ""
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.md)" + (f": {first}" if first else ""))
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


_SECTIONS = re.compile(r"\binterface (?:sections? )?(\d(?:\.\d)?(?:(?:,| and| to)\s+\d(?:\.\d)?)*)")
_TITLES = dict(
    re.findall(
        r"^\(interface-[\d-]+\)=\n#+ (\d(?:\.\d)?)\.? (.*)$", (HERE / "interface.md").read_text("utf-8"), re.MULTILINE
    )
)


def _link_docstring(_app: Any, _what: str, _name: str, _one: Any, _options: Any, lines: list[str]) -> None:
    """Replace references such as "interface 4.2" by links with the names of these sections."""

    def named(number: re.Match[str]) -> str:
        return f":ref:`{_TITLES[number[0]]} <interface-{number[0].replace('.', '-')}>`"

    text = _SECTIONS.sub(lambda reference: re.sub(r"\d(?:\.\d)?", named, reference[1]), "\n".join(lines))
    lines[:] = text.split("\n")


def _short_methods(_app: Any, _what: str, name: str, _one: Any, _options: Any, lines: list[str]) -> None:
    """Leave the first line and the link of a method of ``df.md``, whose function has a page."""
    if name.startswith("marketdata.Accessor.") and (link := [line for line in lines if "; see `marketdata." in line]):
        lines[:] = [lines[0], "", link[-1]] if len(lines) > 1 else lines


def _link_measures(text: str) -> str:
    """Link the names in the first cell of each row to their reference."""

    def link(call: re.Match[str]) -> str:
        name, arguments = call[1], call[2] or ""
        is_public = name in marketdata.__all__
        return f"{{py:obj}}`{name}{arguments} <marketdata.{name}>`" if is_public else call[0]

    def row(cell: re.Match[str]) -> str:
        return re.sub(r"`(\w+)(\([^`]*\))?`", link, cell[0])

    return re.sub(r"^\| `[^|]*\|", row, text, flags=re.MULTILINE)


# First lines on these pages may name a method without its class.
_LISTED = {"reference/client": "Client", "reference/archive": "Archive", "reference/plot": "plot"}


def _sibling(app: Any, env: Any, node: Any, shown: Any) -> Any:
    """Resolve the bare name of a method on the page of its class."""
    owner = _LISTED.get(node["refdoc"])
    if owner is None or node.get("refdomain") != "py":
        return None
    target = f"marketdata.{owner}.{node['reftarget']}"
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, shown)


def setup(app: Any) -> None:
    """Register the changes to pages."""
    app.connect("config-inited", _gather, priority=100)  # before Sphinx looks for the static files
    app.connect("html-page-context", _script)
    app.connect("autodoc-process-docstring", _short_methods, priority=100)  # before numpydoc reads sections
    app.connect("autodoc-process-docstring", _link_docstring)
    app.connect("source-read", _edit)
    app.connect("missing-reference", _sibling)
    app.connect("build-finished", _plain_pages)
