"""The table of file formats in the guide, from the modules that read them; run it after a change of a format."""

from __future__ import annotations

import re
from pathlib import Path

from marketdata.recordings.format import all_formats


def table() -> str:
    """Return the formats with the columns that each one needs, as Markdown."""
    lines = ["| format | rows | recognised by |", "|---|---|---|"]
    order = sorted(all_formats().values(), key=lambda one: (one.kind != "books", not one.changes, one.name))
    for one in order:
        needs = " or ".join(f"`{names}`" for names in one.needs)
        lines.append(f"| `{one.name}` | {one.description} | {needs} |")
    return "\n".join(lines) + "\n"


GUIDE = Path(__file__).parent / "guides" / "recordings.md"
_BEGIN, _END = "<!-- formats -->\n", "<!-- end of formats -->"


def guide() -> str:
    """Return the guide with the table of today's formats."""
    text = GUIDE.read_text(encoding="utf-8")
    return re.sub(f"{_BEGIN}.*?{_END}", lambda _: f"{_BEGIN}{table()}{_END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    GUIDE.write_text(guide(), encoding="utf-8")
