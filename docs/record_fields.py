"""Tables of the columns of record frames, from the one list of fields."""

from __future__ import annotations

import sys

from marketdata.points.records import COLUMNS, FIELDS, RECORD_KINDS, columns

_OF = {
    "listing": "",
    "market": "the answer for one market, and records that have it",
    "archive": "archives, and records that have it",
    "some": "records that have it",
}


def tables() -> str:
    """Return tables of frames and of columns with their meaning, as Markdown."""
    lines = ["| frame | one row per | columns |", "|---|---|---|"]
    for kind, names in COLUMNS.items():
        argument = "market" if kind == "tokens" else ""
        one = kind if kind == "series" else kind.removesuffix("s")
        lines.append(f"| `client.{kind}({argument})` | {one} | `{' '.join(names)}` and any others |")
    lines += ["", "| column | of | meaning | only in |", "|---|---|---|---|"]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for kind in RECORD_KINDS:
        for field in FIELDS[kind]:
            names = ", ".join(f"`{name}`" for name in columns(kind, field))
            rows.setdefault((names, field.meaning, _OF[field.of]), []).append(kind)
    lines += [f"| {names} | {', '.join(kinds)} | {meaning} | {of} |" for (names, meaning, of), kinds in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(tables())
