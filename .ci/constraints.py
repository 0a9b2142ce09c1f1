"""Print the newest versions that pip chooses for the runtime dependencies, each with its hash and no address.

The hashes belong to the wheels for this Python and platform: ``make constraints``.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys

COMMAND = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
COMMAND += ["--only-binary", ":all:", "--report", "-", ".[all]"]


def main() -> None:
    """Print one line for each package that pip would install."""
    done = subprocess.run(COMMAND, check=True, stdout=subprocess.PIPE, text=True)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        if name != "prediction-marketdata":
            lines.append(f"{name.lower().replace('_', '-')}=={version} --hash=sha256:{hashes['sha256']}")
    print(f"# make constraints: Python {platform.python_version()}, {sys.platform} {platform.machine()}")
    print("# pip install --require-hashes -r .ci/constraints.txt && pip install --no-deps .")
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
