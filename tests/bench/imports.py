"""Imports of messages and of tables: their speed, and the most memory, beside reading and writing them alone."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from bench.measure import print_table

_START, _MEGABYTE = 1_767_225_600_000, 1e6
_WORK = """
import resource, sys, time
from pathlib import Path
import msgspec
import marketdata as md
way, path, folder = sys.argv[1:]
began = time.perf_counter()
if way == "polars":
    import polars
    polars.read_parquet(path).write_parquet(folder + ".parquet")
elif way == "import":
    row = md.Archive(folder, frame="polars").add_files(path, progress=False).row(0, named=True)
    assert row["rows"] == row["stored"] + row["left_out"], row
else:
    decode = msgspec.json.Decoder().decode
    for line in Path(path).open("rb"):
        decode(line)
seconds = time.perf_counter() - began
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def run(*, quick: bool) -> None:
    """Print a table for whole books, and for books, changes and prints mixed."""
    size, rounds = (4, 1) if quick else (200, 3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, mixed in (("whole books", False), ("mixed messages", True)):
            path = Path(folder) / f"{mixed}.jsonl"
            write_messages(path, size, mixed=mixed)
            megabytes = path.stat().st_size / _MEGABYTE
            figures: dict[str, list[tuple[float, float]]] = {"import": [], "JSON alone": []}
            for number in range(rounds):
                for way, measured in figures.items():
                    measured.append(_measured(way, path, f"{folder}/{mixed}-{number}"))
            for way, measured in figures.items():
                seconds, memory = (statistics.median(values) for values in zip(*measured, strict=True))
                rows.append((f"{name}, {megabytes:.0f} MB: {way}", f"{megabytes / seconds:.1f}", f"{memory:.2f}"))
    print_table("Messages into an archive", ("work", "MB a second", "most GB"), rows)
    _tables((0.05,) if quick else (2.1, 6.3), rounds)


def _tables(sizes: tuple[float, ...], rounds: int) -> None:
    """Print a table for prices and quotes of these millions of rows, in Parquet."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, millions in ((kind, size) for kind in ("prices", "quotes") for size in sizes):
            path = Path(folder) / f"{kind}.parquet"
            write_table(path, int(millions * 1e6), kind)
            found: dict[str, list[tuple[float, float]]] = {"import": [], "polars": []}
            for number in range(rounds):
                for way, measured in found.items():
                    measured.append(_measured(way, path, f"{folder}/{kind}-{millions}-{number}"))
            ratio = statistics.median(a[0] / b[0] for a, b in zip(found["import"], found["polars"], strict=True))
            memory = statistics.median(most for _, most in found["import"])
            rows.append((f"{kind}, {millions:g} M rows", f"{ratio:.1f}", f"{memory:.2f}"))
    print_table("Tables into an archive", ("work", "x read and write by polars", "most GB"), rows)


def write_table(path: Path, rows: int, kind: str) -> None:
    """Write prices or quotes of three hundred tokens at each minute, token after token."""
    per, drawn = rows // 300, np.random.default_rng(0)
    names = pl.DataFrame({
        "token": range(300), "market": [f"0x{n // 2:02x}{'0' * 62}" for n in range(300)],
        "token_id": [str(10**76 + n) for n in range(300)],
    })  # fmt: skip
    frame = pl.DataFrame({
        "token": np.repeat(np.arange(300), per), "timestamp": _START // 1000 + 60 * np.tile(np.arange(per), 300),
        "price": drawn.integers(10, 980, per * 300) / 1000,
    }).join(names, on="token", maintain_order="left").drop("token")  # fmt: skip
    if kind == "quotes":
        frame = frame.with_columns(best_bid="price", best_ask=pl.col("price") + 0.01).drop("price")
    frame.write_parquet(path)


def _measured(way: str, path: Path, folder: str) -> tuple[float, float]:
    """The seconds, and the most memory [GB], of one way in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", _WORK, way, path, folder], capture_output=True, text=True, check=True
    )
    seconds, memory = result.stdout.split()
    return float(seconds), float(memory)


def write_messages(path: Path, megabytes: float, *, mixed: bool) -> None:
    """Write messages of twenty tokens in the order of time: whole books alone, or one to some thirty changes."""
    drawn = random.Random(0)
    tokens = [str(drawn.randrange(10**76, 10**77)) for _ in range(20)]
    at, written = _START, 0.0
    with path.open("w") as file:
        while written < megabytes * _MEGABYTE:
            at += drawn.randrange(1, 40)
            number = drawn.randrange(len(tokens))
            kind = drawn.choices(("book", "price_change", "last_trade_price"), (1, 30, 1))[0] if mixed else "book"
            text = json.dumps(_message(drawn, kind, tokens, number, at), separators=(",", ":")) + "\n"
            file.write(text)
            written += len(text)


def _message(drawn: random.Random, kind: str, tokens: list[str], number: int, at: int) -> dict[str, object]:
    market = f"0x{number // 2:064x}"
    message: dict[str, object] = {"event_type": kind, "market": market, "timestamp": str(at)}
    if kind == "price_change":
        changes = [
            {"asset_id": tokens[number], "side": side,
             "price": f"{drawn.randrange(*((1, 30) if side == 'BUY' else (71, 99))) / 100:g}",
             "size": f"{drawn.randrange(0, 5000) / 10:g}", "hash": f"{drawn.randrange(16**40):040x}"}
            for side in drawn.sample(("BUY", "SELL"), drawn.randrange(1, 3))
        ]  # fmt: skip
        return {**message, "price_changes": changes}
    if kind == "last_trade_price":
        trade = {"asset_id": tokens[number], "price": "0.5", "size": "12.5", "side": "BUY", "fee_rate_bps": "0"}
        return {**message, **trade}
    middle = drawn.randrange(30, 70)
    bids, asks = (
        [{"price": f"{price / 100:g}", "size": f"{drawn.randrange(1, 50_000) / 10:g}"} for price in prices]
        for prices in (range(1, middle), range(99, middle, -1))
    )
    return {**message, "asset_id": tokens[number], "hash": f"{drawn.randrange(16**40):040x}", "bids": bids,
            "asks": asks}  # fmt: skip
