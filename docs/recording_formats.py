"""A table of the file formats, from the modules that read them."""

from __future__ import annotations

import sys

from marketdata.recordings.format import all_formats


def table() -> str:
    """Return the formats with the columns that each one needs, as Markdown."""
    lines = ["| format | rows | recognised by |", "|---|---|---|"]
    order = sorted(all_formats().values(), key=lambda one: (one.kind != "books", not one.changes, one.name))
    for one in order:
        needs = " or ".join(f"`{names}`" for names in one.needs)
        lines.append(f"| `{one.name}` | {one.description} | {needs} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
