"""The gallery: a page for each chart, its code and picture by each backend, from the sections of ``gallery.md``.

Run as a script it draws them into a folder.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BACKENDS = ("matplotlib", "plotly")
_BLOCK = re.compile(r"```python\n(.*?)```\n?", re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One chart of a page, with its text. The last line of the code draws it."""

    heading: str
    text: str
    code: str

    @property
    def name(self) -> str:
        """The function that draws it."""
        return re.findall(r"\bplot\.(\w+)\(", self.code)[-1]

    def by(self, backend: str, theme: str = "light") -> str:
        """The code for a backend and a theme. By default these are matplotlib and light."""
        chosen = "" if backend == "matplotlib" else f'    backend="{backend}",\n'
        chosen += "" if theme == "light" else f'    theme="{theme}",\n'
        return re.sub(r"\n\)\s*\Z", f"\n{chosen})\n", self.code)


def sections(source: str) -> tuple[str, list[list[Example]]]:
    """The code that all examples share, and the examples of each page, which is a section."""
    head, *parts = re.split(r"^## ", source, flags=re.MULTILINE)
    pages = []
    for part in parts:
        examples = []
        for one in re.split(r"^### ", part, flags=re.MULTILINE):
            heading, rest = one.split("\n", 1)
            (code,) = _BLOCK.findall(rest)
            examples.append(Example(heading, _BLOCK.sub("", rest).strip(), code))
        pages.append(examples)
    (setup,) = _BLOCK.findall(head)
    return setup, pages


def grid(source: str) -> str:
    """The page of thumbnails that stands for ``gallery.md`` on the site."""
    intro = _BLOCK.sub("", source.split("\n## ", 1)[0]).strip()
    cards, names = [], []
    for first, *_ in sections(source)[1]:
        names.append(f"_made/gallery/{first.name}")
        about = re.split(r"[.;] ", " ".join(first.text.split()))[0].rstrip(".")
        pictures = "".join(
            image(f"{names[-1]}_small{suffix}.png", f"{first.heading}, drawn", css_class) + "\n"
            for suffix, css_class in (("", "only-light"), ("_dark", "only-dark"))
        )
        cards.append(
            f":::{{grid-item-card}} {first.heading}\n:link: {names[-1]}\n:link-type: doc\n{pictures}{about}.\n:::\n"
        )
    shown = "".join(["::::{grid} 1 2 2 3\n:gutter: 3\n\n", *cards, "::::\n"])
    listed = "\n".join(["```{toctree}", ":hidden:", "", *names, "```", ""])
    return f"{intro}\n\n{shown}\n{listed}"


def image(file: str, heading: str, css_class: str) -> str:
    """A picture of the light or the dark theme of the site."""
    return f"```{{image}} {file}\n:alt: {heading}\n:class: {css_class}\n```"


def page(examples: list[Example], setup: str) -> str:
    """The source of the page of one chart."""
    first = examples[0]
    lines = [f"# {first.heading}", "", first.text, "", f"Reference: {{py:obj}}`marketdata.plot.{first.name}`."]
    lines += ["", ":::{dropdown} The data", "```python", setup.rstrip(), "```", ":::"]
    for number, example in enumerate(examples):
        if number:
            lines += ["", f"## {example.heading}", "", example.text]
        lines += ["", "::::{tab-set}", ":sync-group: backend"]
        file = f"{first.name}{number or ''}"
        for backend in BACKENDS:
            picture = f"```{{raw}} html\n:file: {file}.html\n```"
            if backend == "matplotlib":
                picture = image(f"{file}.png", example.heading, "only-light")
                picture += f"\n\n{image(f'{file}_dark.png', example.heading, 'only-dark')}"
            lines += [f":::{{tab-item}} {backend}", f":sync: {backend}"]
            lines += ["```python", example.by(backend).rstrip(), "```", "", picture, ":::"]
        lines.append("::::")
    return "\n".join(lines) + "\n"


def drawn(code: str, names: dict[str, Any]) -> Any:
    """Run some code. Returns the value of its last line."""
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), "gallery", "exec"), names)  # noqa: S102  the documentation is ours
    return eval(compile(ast.Expression(last.value), "gallery", "eval"), names)  # type: ignore[attr-defined]  # noqa: S307  as above


def draw(source: str, folder: Path) -> None:
    """Write the pages and their pictures."""
    import matplotlib as mpl

    mpl.use("Agg")
    import kernel
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    setup, pages = sections(source)
    names: dict[str, Any] = {}
    exec(compile(setup, "gallery", "exec"), names)  # noqa: S102  the documentation is ours
    for examples in pages:
        name = examples[0].name
        (folder / f"{name}.md").write_text(page(examples, setup), encoding="utf-8")
        for number, example in enumerate(examples):
            file = folder / f"{name}{number or ''}"
            for theme, suffix in (("light", ""), ("dark", "_dark")):
                chart = drawn(example.by("matplotlib", theme), names)
                figure = getattr(chart, "figure", chart)
                figure.savefig(folder / f"{file.name}{suffix}.png", dpi=110, bbox_inches="tight")
                if not number:
                    figure.savefig(folder / f"{file.name}_small{suffix}.png", dpi=45, bbox_inches="tight")
                plt.close("all")
            chart = drawn(example.by("plotly"), names)
            shown = kernel.SiteRenderer().to_mimebundle(chart.to_dict())["text/html"]
            file.with_suffix(".html").write_text(f'<div class="chart">{shown}</div>', encoding="utf-8")


if __name__ == "__main__":
    draw(Path(__file__).with_name("gallery.md").read_text(encoding="utf-8"), Path(sys.argv[1]))
