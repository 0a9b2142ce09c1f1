"""Every verb of an archive while the n-th call of its storage fails, in a process that has the shim ``stutter.c``."""

from __future__ import annotations

import ctypes
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from archive.source import MARKETS, START, Source, points_of
from archive.test_faults import books, held

from marketdata.archive import Archive
from marketdata.errors import ArchiveCorruptError, MarketDataError, MarketDataWarning

M = MARKETS[0]


def pulled(archive: Archive) -> None:
    """Pull what is there already, again."""
    source = Source()
    source.points = {("books", M, t, n): ([(0.5, float(n + 1))], []) for t in (0, 1) for n in range(10, 40)}
    start = START / 1e6
    archive.pull(source, M, views=["books"], start=start + 600, end=start + 2400, refresh=True, progress=False)


VERBS: dict[str, Callable[[Archive], Any]] = {
    "add": lambda a: a.add(books=books(M, 10, 30, size=5.0), markets=[{"market_id": M, "slug": "new"}]),
    "pull": pulled,
    "verify": lambda a: a.verify(),
    "verify(repair=True)": lambda a: a.verify(repair=True),
    "compact": lambda a: a.compact(),
    "vacuum": lambda a: a.vacuum(0),
    "books": lambda a: a.books(M, on_missing="partial"),
    "export": lambda a: a.export("books", Path(a.location).with_suffix(".csv")),
    "coverage": lambda a: a.coverage(),
}


def main(base: str, code: int, seconds: float) -> None:
    """Let each call of each verb fail once; print what was seen."""
    shim = ctypes.CDLL(None)
    shim.stutter_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    warnings.simplefilter("error", MarketDataWarning)
    until = time.monotonic() + seconds
    seen: Counter[str] = Counter()
    old = held(Archive(base))
    new = {**old, **points_of("books", books(M, 10, 30, size=5.0))}
    pull = {**old, **{("books", M, t, n): ([(0.5, float(n + 1))], []) for t in (0, 1) for n in range(10, 40)}}
    for name, verb in VERBS.items():
        for n in range(1, 1000):
            if time.monotonic() > until:
                print("stopped in", name, "at call", n, end="; ")
                print(sum(seen.values()), dict(sorted(seen.items())))
                return
            root = Path(f"{base}-{n}")
            shutil.copytree(base, root)
            shim.stutter_arm(str(root).encode(), n, code)
            try:
                verb(Archive(root, frame="polars"))
                seen[f"{name}: done"] += 1
            except ArchiveCorruptError:
                raise
            except MarketDataError as problem:
                seen[f"{name}: {type(problem).__name__}"] += 1
            fired = shim.stutter_fired()
            shim.stutter_arm(b"", 0, 0)
            fresh = Archive(root, frame="polars")
            assert held(fresh) in (old, new if name == "add" else pull if name == "pull" else old), (name, n)
            assert "missing" not in set(fresh.coverage()["state"]), (name, n)
            assert fresh.verify().is_empty(), (name, n)
            shutil.rmtree(root)
            if not fired:
                break
    print(sum(seen.values()), dict(sorted(seen.items())))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
