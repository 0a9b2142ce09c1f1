"""The `raise` statements that no test runs, from the JSON of coverage: a refusal that is never tried may be wrong."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent


def raises(path: Path) -> Iterator[ast.Raise]:
    """Every `raise` of a module, without those of abstract methods."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and "NotImplementedError" not in ast.unparse(node):
            yield node


def main() -> None:
    """Print each as file, line and text; the exit code says whether there are any."""
    files = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["files"]
    total, found = 0, []
    for path in sorted((ROOT / "marketdata").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        executed = set(files.get(name, {}).get("executed_lines", ()))
        for node in raises(path):
            total += 1
            if node.lineno not in executed:
                found.append(f"{name}:{node.lineno}: {' '.join(ast.unparse(node).split())[:100]}")
    print("\n".join(found))
    print(f"{len(found)} of {total} raises run in no test")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
