"""Write what follows from the registry of measures and from signatures; with `--check` only compare.

Types in tidy/book_measures.pyi, names in __init__.pyi, methods in accessor.py, and the pages measures.md and
signatures.md of docs/reference.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "marketdata"
sys.path.insert(0, str(PACKAGE.parent))

import marketdata as md  # noqa: E402
from marketdata.filters import FILTERS, LISTINGS  # noqa: E402
from marketdata.points.measures import MEASURES  # noqa: E402

MODULE = "marketdata.tidy.book_measures"


def signature(name: str) -> str:
    """A function of frames, with the arguments of the formula."""
    given = [*inspect.signature(MEASURES[name].formula).parameters.values()][1:]
    given = [one if one.default is one.empty else one.replace(default=...) for one in given]
    parts, keyword_only = ["frame: _F"], False
    for one in given:
        if one.kind is one.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
            keyword_only = True
        parts.append(f"{one.name}: {one.annotation}" + ("" if one.default is one.empty else " = ..."))
    return f"def {name}({', '.join(parts)}) -> _F: ...\n"


def stub(names: list[str]) -> str:
    """The text of tidy/book_measures.pyi."""
    return (
        "# Written by `make stubs` from the registry of measures.\n"
        "from collections.abc import Callable\nfrom typing import Any, TypeVar\n\n"
        f'_F = TypeVar("_F")\n\nFUNCTIONS: dict[str, Callable[..., Any]]\n\n{"".join(map(signature, names))}'
    )


def methods(text: str, names: list[str]) -> str:
    """The text of accessor.py with one line per measure, after the other methods."""
    text = re.sub(rf"(?m)^    \w+ = _method\({MODULE}\..*\n", "", text)
    lines = [
        f"    {name} = _method({MODULE}.{name}, *{'_TOP' if MEASURES[name].needs == 'top' else '_BOOKS'})\n"
        for name in names
    ]
    last = "    show = _result(marketdata.tidy.names.show)\n"
    return text.replace(last, "".join(lines) + last)


def top_level(text: str, names: list[str]) -> str:
    """The text of __init__.pyi with one line per measure."""
    lines = [line for line in text.splitlines() if not line.startswith(f"from {MODULE} import")]
    lines += [f"from {MODULE} import {name} as {name}" for name in names]
    imports = sorted({line for line in lines if line.startswith("from ")})
    others = re.split(r"(?m)(?:^from .*\n)+", "\n".join(lines) + "\n")
    return others[0] + "\n".join(imports) + "\n" + "".join(others[1:])


def page(names: list[str]) -> str:
    """The text of docs/reference/measures.md."""
    rows = []
    for name, one in sorted(MEASURES.items()):
        arguments = [*inspect.signature(one.formula).parameters][1:]
        call = f"`{name}({', '.join(arguments)})`" if name in names else f'`features(["{name}"])`'
        units = "<br>".join(f"`{column}`: {unit}" for column, unit in one.units.items())
        takes = "books, bbo" if one.needs == "top" else "books"
        null = re.sub("`", "", one.null)
        rows.append(f"| {call} | {takes} | {units} | {null} | {one.source} |")
    listed = "\n".join(f"   {name}" for name in names)
    return (
        "<!-- Written by `make stubs` from the registry of measures. -->\n\n# Measures of books\n\n"
        "Each returns one row per (token, ts), for every kind of frame. "
        "Functions that take `bbo` frames need best prices only. "
        "[Write your own](../guides/your_own_measure.md) in a notebook.\n\n"
        "| function | takes | columns and units | null where | source |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n```{eval-rst}\n.. currentmodule:: marketdata\n\n.. autosummary::\n   :nosignatures:\n"
        + f"   :toctree: ../_made/reference\n\n{listed}\n   features\n   measure\n```\n"
    )


_DURATIONS = ("horizon", "horizons", "latency", "exit_after", "tolerance", "before", "after", "max_gap", "max_age")
_COLUMNS = {
    "widths": ("width", "signal_width", "order_width"),
    "fees": ("fees",),
    "groups": ("by", "cluster"),
    "durations": _DURATIONS,
    "records": ("outcomes", "markets", "tokens"),
}


def signatures() -> str:
    """The text of docs/reference/signatures.md: each function of frames, and the arguments that many have."""
    rows = []
    for name in sorted(md.__all__):
        function = getattr(md, name)
        if not inspect.isfunction(function):
            continue
        takes = inspect.signature(function).parameters
        shared = [_named(takes, names) for names in _COLUMNS.values()]
        first = next(iter(takes), "")
        method = f"`{first}.md.{name}`" if hasattr(md.Accessor, name) else ""
        if method or shared[0]:
            rows.append(f"| `{name}` | {method} | {_returns(function)} | {' | '.join(shared)} |")
    return (
        "<!-- Written by `make stubs` from the signatures. -->\n\n# Arguments that many functions share\n\n"
        "**Bold** arguments are required. `width` is the bucket width of the rows; without it the frame says its own.\n"
        'Durations are texts such as `"5m"`, or timedeltas. A function whose first argument is a frame is a method of\n'
        "`df.md`.\n\n"
        f"| function | method | returns | {' | '.join(_COLUMNS)} |\n|{'---|' * (len(_COLUMNS) + 3)}\n"
        + "\n".join(rows)
        + "\n\n## Methods of a client\n\n"
        + methods_of(md.Client)
        + "\n## Methods of an archive\n\n"
        + methods_of(md.Archive)
    )


_METHODS = {
    "names": ("market", "markets", "token_id", "id_or_slug", "search"),
    "range": ("start", "end", "period", "at"),
    "width": ("resolution", "every"),
}


def methods_of(kind: type) -> str:
    """A table of the methods of a client or an archive that choose markets, a range, or records."""
    rows = []
    for name, method in vars(kind).items():
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        takes = inspect.signature(method).parameters
        chosen = [_named(takes, names) for names in _METHODS.values()]
        filters = [one for one in FILTERS if one in takes and one != "search"]
        is_borrowed = kind is not md.Client and {*LISTINGS["markets"]} <= {*takes}
        text = "those of `Client.markets`" if is_borrowed else ", ".join(f"`{one}`" for one in filters)
        if any(chosen):
            rows.append(f"| `{name}` | {' | '.join(chosen)} | {text} |")
    return f"| method | {' | '.join(_METHODS)} | filters |\n|{'---|' * (len(_METHODS) + 2)}\n" + "\n".join(rows) + "\n"


def _named(takes: Mapping[str, inspect.Parameter], names: Sequence[str]) -> str:
    """Those of the arguments that a function takes; bold if it needs them."""
    return ", ".join(
        f"**`{name}`**" if takes[name].default is inspect.Parameter.empty else f"`{name}`"
        for name in names
        if name in takes
    )


def _returns(function: Callable[..., object]) -> str:
    """What a function returns, by its annotation; a measure has none."""
    returned = str(inspect.signature(function).return_annotation)
    is_frame = returned in ("F", "F | list[str]", "Any") or hasattr(function, "measure")
    return "frame" if is_frame else f"`{returned}`"


def formatted(text: str) -> str:
    """The text as the formatter of the project writes it."""
    line = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "stub.pyi", "-"]
    return subprocess.run(line, input=text, capture_output=True, check=True, text=True, cwd=PACKAGE.parent).stdout


def main() -> int:
    """Write the files, or compare them."""
    names = sorted(name for name, measure in MEASURES.items() if measure.is_function)
    top = PACKAGE / "__init__.pyi"
    accessor = PACKAGE / "accessor.py"
    texts = {PACKAGE / "tidy" / "book_measures.pyi": stub(names), top: top_level(top.read_text("utf-8"), names)}
    texts = {path: formatted(text) for path, text in texts.items()}
    texts[accessor] = methods(accessor.read_text("utf-8"), names)
    stale = stale_of(texts)
    if not stale:  # a package with stale names cannot tell its signatures
        reference = PACKAGE.parent / "docs" / "reference"
        texts = {reference / "measures.md": page(names), reference / "signatures.md": signatures()}
        stale = stale_of(texts)
    if "--check" in sys.argv:
        sys.stdout.writelines(f"{path.name} is stale; run make stubs\n" for path in stale)
        return len(stale)
    for path in stale:
        path.write_text(texts[path], "utf-8")
    # The next process sees the package with its new names.
    return subprocess.call([sys.executable, __file__]) if stale else 0


def stale_of(texts: Mapping[Path, str]) -> list[Path]:
    """The files that have another text."""
    return [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]


if __name__ == "__main__":
    sys.exit(main())
