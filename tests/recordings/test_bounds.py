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
    monkeypatch.setattr("marketdata.recordings.containers._MOST_BYTES", MB)
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


BOOK = b'{"event_type":"book","asset_id":"t","market":"m","timestamp":"%d","bids":[["0.5","1"]],"asks":[]}'


@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"data":[', b"]}"), (b'{"body":', b"}")])
def test_rows_may_be_in_some_lists_and_envelopes(archive: Archive, tmp_path: Path, opens: bytes, closes: bytes) -> None:
    """In hundreds they are not found: each would hold the whole content once more."""
    for depth in (1, 4, 25, 400):
        path = tmp_path / f"{depth}.json"
        path.write_bytes(opens * depth + BOOK % (1_767_225_600_000 + 60_000 * depth) + closes * depth)
        if depth < 25:
            assert archive.add_files(path)["stored"].to_list() == [1]
        else:
            with pytest.raises(ConfigError, match=rf"{depth}.json' fits no|{depth}.json': none of its 1 messages can"):
                archive.add_files(path)


def test_a_list_of_numbers_is_one_row_that_is_none(archive: Archive, tmp_path: Path) -> None:
    """An empty list is no row."""
    book = BOOK % 1_767_225_600_000
    (tmp_path / "a.json").write_bytes(b'[[%b], [], {"data": []}, {"data": [1, 2, 3]}, [true, -1e-3]]' % book)
    report = archive.add_files(tmp_path / "a.json").row(0, named=True)
    assert (report["rows"], report["left_out"]) == (3, 2)


_BOUNDED = """
import gzip, resource, sys
import marketdata as md
path, what = sys.argv[1:]
MB = 1 << 20
begin, part, count, end = {
    "line": (b'{"a": "', b"x" * MB, 3_000, b""),
    "value": (b"[\\n", b'{"a": 1},\\n' * (MB // 10), 3_000, b""),
    "columns": (b"ts,price", b",a" * (MB // 2), 200, b""),
    "numbers": (b"[", b"1," * (MB // 2), 60, b"1]"),
    "objects": (b"[", b"{}," * (MB // 3), 60, b"{}]"),
    "nested": (b"[" * 500, b'{"a": 1},' * (MB // 9), 60, b"{}" + b"]" * 500),
    "answers": (b'{"data":[' * 300, b'{"a": 1},' * (MB // 9), 60, b"{}" + b"]}" * 300),
    "keys": (b"{", b"".join(b'"%d":[],' % n for n in range(MB // 12)), 10, b'"a":[]}'),
}[what]
with gzip.open(path, "wb", 1) as file:
    file.write(begin)
    for _ in range(count):
        file.write(part)
    file.write(end)
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
try:
    md.Archive(path + "-archive").add_files(path)
except md.errors.ConfigError as problem:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, problem)
"""


# What is said of a file, and the most memory that it may take [MB]: each entry of a list is an object.
@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits and units of memory of Linux")
@pytest.mark.parametrize(
    ("what", "name", "said", "most"),
    [
        ("line", "a.jsonl.gz", "a line of more than 256 MB", 1_200),
        ("value", "a.json.gz", "a JSON value of more than 256 MB", 1_200),
        ("columns", "a.csv.gz", "at most 10,000", 1_200),
        ("numbers", "a.json.gz", "fits no known format", 1_200),
        ("objects", "a.json.gz", "fits no known format", 3_000),
        ("nested", "a.json.gz", "fits no known format", 3_000),
        ("answers", "a.json.gz", "fits no known format", 3_000),
        ("keys", "a.json.gz", "fits no known format", 1_200),
    ],
)
def test_a_short_file_that_holds_much_takes_little(tmp_path: Path, what: str, name: str, said: str, most: int) -> None:
    """A process that meets such a file stays small, ends in two minutes, and says what is wrong."""
    command = [sys.executable, "-c", _BOUNDED, str(tmp_path / name), what]
    peak, message = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(" ", 1)
    print(f"{what}: {peak} MB")
    assert said in message
    assert int(peak) < most
