"""Print the newest versions that pip chooses for the runtime dependencies, each with its hash and no address.

The hashes are those of the wheels for the Python and platform that run this: ``make constraints``.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys

CHOSEN = [
    sys.executable,
    "-m",
    "pip",
    "install",
    "--quiet",
    "--dry-run",
    "--ignore-installed",
    "--report",
    "-",
    ".[all]",
]


def main() -> None:
    """Ask pip, and write one line a package."""
    done = subprocess.run([*CHOSEN, "--only-binary", ":all:"], check=True, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    print(f"# make constraints: Python {platform.python_version()}, {sys.platform} {platform.machine()}")
    print("# pip install --require-hashes -r .ci/constraints.txt && pip install --no-deps .")
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        if name != "prediction-marketdata":
            lines.append(f"{name.lower().replace('_', '-')}=={version} --hash=sha256:{hashes['sha256']}")
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
