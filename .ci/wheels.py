"""Check that every dependency has a wheel for the newest Python on each system: no user needs a compiler."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tomllib
from pathlib import Path

PYTHON = "3.14"
PLATFORMS = {
    "Linux": ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"],
    "macOS": ["macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64"],
    "Windows": ["win_amd64"],
}


def requirements(extra: str | None) -> list[str]:
    """The requirements of the package and of an extra, including the extras that it names."""
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
    own = f"{project['name']}["
    found, names = list(project["dependencies"]), [extra] if extra else []
    for name in names:
        for line in project["optional-dependencies"][name]:
            if line.startswith(own):
                names.extend(line.removeprefix(own).rstrip("]").split(","))
            else:
                found.append(line)
    return found


def main() -> None:
    """Ask pip for each extra and system, and exit with its last words where it finds none."""
    for extra, (system, tags) in itertools.product([None, "all"], PLATFORMS.items()):
        platforms = itertools.chain.from_iterable(("--platform", tag) for tag in tags)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--target", "unused", "--only-binary", ":all:", "--python-version", PYTHON, *platforms]
        done = subprocess.run([*command, *requirements(extra)], capture_output=True, text=True, check=False)
        what = f"Python {PYTHON}, {system}, {f'[{extra}]' if extra else 'core'}"
        if done.returncode:
            sys.exit(f"{what}: no wheel.\n{done.stderr[-2000:]}")
        print(f"{what}: wheels for everything")


if __name__ == "__main__":
    main()
