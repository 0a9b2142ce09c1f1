"""Wheel and sdist are built, installed and tried in clean environments, away from the sources."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from reference.clocks import SOON

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DISTRIBUTION = PROJECT["project"]["name"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
ENGINES = {"dask", "spark", "mcp"}
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"

PAGE = """
import marketdata as md
page = b'{"market_id": "m", "resolution": "1m", "tokens": {"Yes": "1"}, "metadata": {"count": 1, "limit": 200},' \\
       b'"data": {"Yes": [{"t": "2026-01-01T00:00:00Z", "bids": [[0.4, 1]], "asks": [[0.6, 1]]}]}}'
for frame in ("pandas", "polars"):
    assert md.read_pages("books", [page], frame=frame).md.bbo()["mid"][0] == 0.5
"""
ROUND = """
import marketdata as md
archive = md.simulate(events=1, days=0.2, markets=1)
market = archive.records("markets")[0]["id"]
span = ("2025-12-31T20:00", "2026-01-01")
fine = archive.books(market, *span)
assert len(fine) and fine.md.resample("1h").equals(archive.books(market, *span, "1h"))
"""
SERVED = (
    ROUND
    + """
with md.serve(archive) as service, md.Client(service.base_url, service.api_key) as client:
    assert client.books(market, *span, "1h").equals(fine.md.resample("1h"))
"""
)
DRAWN = (
    PAGE + "from marketdata import plot\nplot.prices(md.mid(md.read_pages('books', [page]))).figure.savefig('a.png')\n"
)
INTERACTIVE = DRAWN.replace(").figure.savefig('a.png')", ", backend='plotly').write_html('a.html')")
SMOKE = {
    "plot": DRAWN,
    "plotly": INTERACTIVE,
    "cli": "from marketdata.cli import main\nassert main(['--version']) == 0",
    "archive": ROUND,
}
SMOKE["duckdb"] = ROUND + "assert archive.sql('SELECT count(*) AS n FROM books')['n'][0] > 0"
SMOKE["service"] = SERVED
SMOKE["stream"] = ROUND + "import cryptography\nwith md.replay_server(archive) as server:\n    assert server"
SMOKE["recordings"] = "import aiohttp, fsspec\nimport marketdata as md\nassert len(md.recordings()) > 0"

INSTALLED = """
import sys
from importlib.metadata import requires, version
from packaging.requirements import Requirement
lowest = map(Requirement, open(sys.argv[1]).read().split())
assert [str(one) for one in lowest if not one.specifier.contains(version(one.name))] == []
(arrow,) = (one for one in map(Requirement, requires("deltalake")) if one.name == "pyarrow")
assert arrow.specifier.contains(version("pyarrow")), "pyarrow is older than deltalake allows"
"""


# The whole suite takes long at the lowest versions, so it is a soak.
LOWEST = (
    "tests/test_methods.py",
    "tests/tidy/test_foreign_frames.py",
    "tests/tidy/test_measures.py",
    "tests/tidy/test_resample.py",
    "tests/tidy/test_rules.py",
    "tests/wire",
    "tests/client/test_client.py",
    "tests/archive/test_pull.py",
    "tests/archive/test_scan.py",
)


class Environment:
    """A virtual environment in which nothing of the sources is on the path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        subprocess.run([sys.executable, "-m", "venv", path], check=True)
        self.bin = path / ("Scripts" if sys.platform == "win32" else "bin")
        self.pip("--upgrade", "pip")

    def pip(self, *words: object) -> None:
        self.run("-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", *words)

    def run(
        self, *words: object, ok: bool = True, cwd: Path | None = None, seconds: float = SOON
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MARKETDATA_", "VIRTUAL_ENV"))}
        done = subprocess.run(
            [self.bin / "python", *map(str, words)],
            check=False,
            capture_output=True,
            text=True,
            cwd=cwd or self.path,
            env={**clean, "MPLBACKEND": "agg"},
            timeout=seconds,
        )
        assert not ok or done.returncode == 0, f"{words[:4]}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done


def floors() -> list[str]:
    """Each requirement at the lowest version that it allows."""
    groups = [r for r in PROJECT["dependency-groups"]["test"] if isinstance(r, str)]
    extras = [r for name, extra in EXTRAS.items() if name not in ENGINES for r in extra]
    wanted = [*PROJECT["project"]["dependencies"], *extras, *groups]
    found = [
        re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", r) for r in wanted if not r.startswith(f"{DISTRIBUTION}[")
    ]
    assert all(found), "every requirement names its lowest version: name>=version"
    return [f"{m[1]}=={m[2]}" for m in found if m]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel and the sdist; the wheel is built from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory, built) -> Environment:
    env = Environment(tmp_path_factory.mktemp("clean") / "env")
    env.pip(built[0])
    return env


def test_the_wheel_has_the_package_and_nothing_else(built) -> None:
    """The wheel holds every module, the type marker and the start page, and no test."""
    names = set(zipfile.ZipFile(built[0]).namelist())
    top = {name.partition("/")[0] for name in names}
    assert {t for t in top if not t.endswith(".dist-info")} == {"marketdata"}
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "marketdata").rglob("*.py")}
    assert sources | {"marketdata/py.typed", "marketdata/service/static/page.html"} <= names


def test_the_sdist_can_test_itself(built) -> None:
    """The sdist holds tests, documentation and the checks beside the package, and no built or cached file."""
    with tarfile.open(built[1]) as archive:
        names = [n.partition("/")[2] for n in archive.getnames()]
    for wanted in ("conftest.py", "docs/how_it_works.md", ".ci/run", "Makefile", "LICENSE", "CHANGELOG.md"):
        assert wanted in names
    assert not [n for n in names if re.search(r"__pycache__|\.pyc$|_build/|\.venv|\.png\.png", n)]


def test_the_core_alone_reads_pages(clean) -> None:
    """Without extras the package reads pages into both frame kinds; what is missing is named with its cure."""
    clean.run("-c", PAGE)
    for name, (package, extra) in {"Archive": ("deltalake", "archive"), "serve": ("fastapi", "service")}.items():
        clean.run("-c", f"import marketdata as md; from marketdata import *; assert hasattr(md, '{name}'); help(md)")
        done = clean.run("-c", f"import marketdata as md; md.{name}('folder')", ok=False)
        assert f"needs {package}" in done.stderr
        for requirement in (r for r in EXTRAS[extra] if not r.startswith(DISTRIBUTION)):
            assert f"'{requirement}'" in done.stderr
    done = clean.run("-m", "marketdata.cli", "--help", ok=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "pip install 'typer>=" in done.stderr


@pytest.mark.parametrize("extra", ["plot", "plotly", "cli", "archive", "duckdb", "service", "stream", "recordings"])
def test_an_extra_brings_what_it_promises(clean, built, extra: str) -> None:
    """Each extra, installed after the one before, makes its part work; pip finds no conflict."""
    assert set(SMOKE) == set(EXTRAS) - {"all", *ENGINES}
    clean.pip(f"{built[0]}[{extra}]")
    clean.run("-c", SMOKE[extra])
    clean.run("-m", "pip", "check")


def test_the_command_is_there(clean) -> None:
    """The wheel brings the command `marketdata`."""
    done = subprocess.run([clean.bin / "marketdata", "--help"], capture_output=True, text=True, check=True)
    assert "\n  fetch " in done.stdout


def test_hashes_of_the_constraints_hold(tmp_path) -> None:
    """The pinned versions install with their hashes checked, and the file names no address."""
    text = CONSTRAINTS.read_text(encoding="utf-8")
    assert "://" not in text
    assert all("--hash=sha256:" in line for line in text.splitlines() if not line.startswith("#"))
    made = re.search(r"Python (\d+\.\d+)\.\d+, (\w+) (\w+)", text)
    if not made or made.groups() != (".".join(platform.python_version_tuple()[:2]), sys.platform, platform.machine()):
        pytest.skip(f"the hashes are those of another platform: {made and made[0]}")
    words = ("download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-d", tmp_path, "-r")
    subprocess.run([sys.executable, "-m", "pip", *words, CONSTRAINTS], check=True, capture_output=True)


@pytest.mark.parametrize("tests", [LOWEST, pytest.param(("tests",), marks=pytest.mark.soak, id="whole suite")])
def test_the_lowest_versions_that_are_allowed_work(tmp_path, built, tests) -> None:
    """With every requirement at its lowest version the package draws, serves, and keeps to values, verbs and rules."""
    env = Environment(tmp_path / "env")
    lowest = tmp_path / "lowest.txt"
    lowest.write_text("\n".join(floors()), encoding="utf-8")
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # from 3.11.4
    source = next(p for p in tmp_path.glob("prediction_marketdata-*") if p.is_dir())
    group = f"{source / 'pyproject.toml'}:test"
    env.pip("-c", lowest, "--only-binary", ":all:", f"{built[0]}[all]", "--group", group)
    env.run("-m", "pip", "check")
    env.run("-c", INSTALLED, lowest)
    env.run("-c", SERVED)
    env.run("-c", DRAWN)
    (source / "marketdata").rename(source / "sources")  # what is tested is what is installed
    words = ("-q", "-n", "2", "--dist", "loadscope", "--hypothesis-profile=few", "-p", "no:cacheprovider", *tests)
    env.run("-m", "pytest", *words, cwd=source, seconds=1_800)
