"""Compare the chosen versions with known advisories: ``make audit``. Reports it if they cannot be reached."""

from __future__ import annotations

import json
import subprocess
import sys

COMMAND = [sys.executable, "-m", "pip_audit", "--requirement", ".ci/constraints.txt"]
COMMAND += ["--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json"]


def main() -> int:
    """Print each advisory and return 1 if there is one."""
    done = subprocess.run(COMMAND, check=False, capture_output=True, text=True)
    if not done.stdout:
        sys.stdout.write(f"advisories cannot be reached: {(done.stderr.splitlines() or ['no answer'])[-1][:200]}\n")
        return 0
    packages = json.loads(done.stdout)["dependencies"]
    checked = [package for package in packages if "vulns" in package]
    for package in checked:
        for advisory in package["vulns"]:
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            sys.stdout.write(f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}\n")
    sys.stdout.write(f"{len(checked)} of {len(packages)} packages checked\n")
    return int(any(package["vulns"] for package in checked))


if __name__ == "__main__":
    sys.exit(main())
