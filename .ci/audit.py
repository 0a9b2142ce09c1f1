"""Look the chosen versions up among known advisories: ``make audit``. What cannot be looked up is only reported."""

from __future__ import annotations

import json
import subprocess
import sys

ASKED = [
    sys.executable,
    "-m",
    "pip_audit",
    "--requirement",
    ".ci/constraints.txt",
    "--no-deps",
    "--disable-pip",
    "--progress-spinner=off",
    "--format=json",
]


def main() -> int:
    """Ask, and give the exit code: 1 if an advisory names a version."""
    done = subprocess.run(ASKED, check=False, capture_output=True, text=True)
    if not done.stdout:
        sys.stdout.write(f"advisories cannot be reached: {(done.stderr.splitlines() or ['no answer'])[-1][:200]}\n")
        return 0
    found = json.loads(done.stdout)["dependencies"]
    known = [one for one in found if "vulns" in one]
    for one in known:
        for advisory in one["vulns"]:
            mended = ", ".join(advisory["fix_versions"]) or "no version"
            sys.stdout.write(f"{one['name']} {one['version']}: {advisory['id']}, mended in {mended}\n")
    sys.stdout.write(f"{len(known)} of {len(found)} packages looked up\n")
    return int(any(one["vulns"] for one in known))


if __name__ == "__main__":
    sys.exit(main())
