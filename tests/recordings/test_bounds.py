"""Short files that hold much once they are unpacked."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marketdata import Archive
from marketdata.errors import ConfigError

HEADER = b"ts,market_id,token_id,price"
ROW = b"2026-01-01T00:00:00Z,m,t,0.5"
MANY = [b"c%d" % n for n in range(10_000)]
TIDY = b'{"ts": "2026-01-01T00:00:00Z", "market_id": "m", "token_id": "t", "price": 0.5}'
MB = 1 << 20
# The name of a file, its content, and what is said of it where 1 MB is the most.
REFUSED = {
    "line.jsonl.gz": (b'{"a": "' + b"x" * MB + b'"}\n', "a line of more than 1 MB; write one JSON value a line"),
    "value.json.gz": (b"[\n" + b'{"a": 1},\n' * 110_000 + b'{"a": 1}\n]\n', "a JSON value of more than 1 MB"),
    "header.csv.gz": (HEADER + b"," + b"x" * MB + b"\n" + ROW, "a line of more than 1 MB"),
    "field.csv.gz": (HEADER + b"," + b"x" * 200_000 + b"\n" + ROW, "no line of column names at its start"),
    "wide.csv.gz": (b",".join([HEADER, *MANY]) + b"\n" + ROW, "10,004 columns; at most 10,000"),
    "wide.json.gz": (b"[{%b}]" % b",".join(b'"%b":1' % n for n in [b"ts", *MANY]), "10,001 columns; at most"),
    "keys.jsonl.gz": (b"\n".join([*[TIDY] * 400, *(b'{"%b":1}' % n for n in MANY)]), "10,004 columns; at most"),
    "sheet.csv.gz": ("\ufeff".encode("utf-16-le") + (HEADER + b"\n" + ROW * 40_000).decode().encode("utf-16-le"),
                     "more than 1 MB of UTF-16; save it as UTF-8"),
    "sheet-line.csv.gz": (("\ufeff" + "x" * MB).encode("utf-16-le"), "a line of more than 1 MB"),
}  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive", frame="polars")


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_take_all_memory_is_refused(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The error names the bound, and what to do."""
    monkeypatch.setattr("marketdata.recordings.files._MOST_BYTES", MB)
    content, said = REFUSED[name]
    (tmp_path / name).write_bytes(gzip.compress(content, 1))
    with pytest.raises(ConfigError, match=f"{name}' has {said}"):
        archive.add_files(tmp_path / name)


def test_a_parquet_file_has_a_most_of_columns(archive: Archive, tmp_path: Path) -> None:
    """As a CSV file has."""
    pq.write_table(pa.table({name.decode(): [1] for name in [b"ts", *MANY]}), tmp_path / "wide.parquet")
    with pytest.raises(ConfigError, match="has 10,001 columns; at most 10,000"):
        archive.add_files(tmp_path / "wide.parquet")


def test_a_row_of_any_length_is_named(archive: Archive, tmp_path: Path) -> None:
    """A file with it says how long a row may be."""
    path = tmp_path / "row.csv.gz"
    path.write_bytes(gzip.compress(HEADER + b"\n" + ROW + b"\n" + ROW + b"x" * (40 * MB), 1))
    with pytest.raises(ConfigError, match="a row of more than 16 MB"):
        archive.add_files(path)


_BOUNDED = """
import gzip, resource, sys
import marketdata as md
path, what = sys.argv[1:]
MB = 1 << 20
with gzip.open(path, "wb", 1) as file:
    file.write({"line": b'{"a": "', "value": b"[\\n", "columns": b"ts,price"}[what])
    part = {"line": b"x" * MB, "value": b'{"a": 1},\\n' * (MB // 10), "columns": b",a" * (MB // 2)}[what]
    for _ in range(3_000 if what != "columns" else 200):
        file.write(part)
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
try:
    md.Archive(path + "-archive").add_files(path)
except md.errors.ConfigError as problem:
    assert "256 MB" in str(problem) or "at most 10,000" in str(problem), problem
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits and units of memory of Linux")
@pytest.mark.parametrize(("what", "name"), [("line", "a.jsonl.gz"), ("value", "a.json.gz"), ("columns", "a.csv.gz")])
def test_three_gigabytes_in_a_short_file_take_one(tmp_path: Path, what: str, name: str) -> None:
    """A process that meets such a file stays small, and says the bound."""
    command = [sys.executable, "-c", _BOUNDED, str(tmp_path / name), what]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"{what}: {peak} MB")
    assert peak < 1_200
