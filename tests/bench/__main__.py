"""Print tables of ratios: ``make bench`` for all scripts, ``python -m tests.bench pages`` for one."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

SCRIPTS = ("pages", "frames", "fetching", "scans", "listings", "imports")


def main() -> None:
    """Run the scripts that are named, or all."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("scripts", nargs="*", help=f"of {', '.join(SCRIPTS)}; all without one")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the scripts import from bench
    for name in options.scripts or SCRIPTS:
        import_module(f"bench.{name}").run(quick=options.quick)


if __name__ == "__main__":
    main()
