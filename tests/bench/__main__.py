"""``make bench``: every figure side by side, printed and written to ``docs/benchmarks.md``."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

SECTIONS = (
    "importing",
    "decoding",
    "aggregating",
    "studying",
    "covering",
    "fetching",
    "serving",
    "days",
    "storing",
    "rebuilding",
    "many_markets",
    "following",
    "year",
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
PACKAGES = (
    "numpy",
    "pandas",
    "polars",
    "narwhals",
    "pysimdjson",
    "pyarrow",
    "deltalake",
    "duckdb",
    "pydantic",
    "fastapi",
)


def head() -> str:
    """What was measured on what, and when."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    cores = os.cpu_count()
    return (
        "# Benchmarks\n\n"
        "Written by `make bench`. All ways of a table run in turn, round after round, in one process; the ratio\n"
        "is the median over the rounds. The machine is shared: compare ratios, not absolute times.\n\n"
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {cores} cores, {platform.machine()}, "
        f"Python {platform.python_version()},\n{versions}.\n"
    )


def main() -> None:
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("sections", nargs="*", default=[], help=f"of {', '.join(SECTIONS)}; all without one")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; the page is not written")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also as ``python -m tests.bench``
    parts = [head()]
    sections = {name: import_module(f"bench.{name}") for name in SECTIONS}
    for name in options.sections or SECTIONS:
        for table in sections[name].run(quick=options.quick):
            text = table.markdown()
            print(text, flush=True)
            parts.append(text)
    if not options.quick and not options.sections:
        PAGE.write_text("\n".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    main()
