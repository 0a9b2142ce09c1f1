"""Every verb of an archive while the n-th call of its storage fails.

`disturb` tries it on any storage. Run as a program it is the storage of a folder, in a process that has ``stutter.c``
loaded: ``python -m archive.stutter FOLDER ERRNOS SECONDS STEP``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
from archive.source import MARKETS, START, TOKENS, Source, columns_of, points_of
from archive.test_faults import books, prices

from marketdata.archive import Archive
from marketdata.errors import ArchiveCorruptError, ArchiveError, MarketDataWarning

M, N = MARKETS
_IMPORTED = [
    {"ts": START // 1_000_000 + 60 * n, "market_id": N, "token_id": f"{N}-no", "price": 0.25} for n in range(9)
]


def fill(archive: Archive) -> None:
    """What the verbs are tried on: three files of books that overlap, two of prices, one replaced file, records."""
    for first, count, size in ((0, 20, 1.0), (20, 10, 1.0), (5, 10, 2.0)):
        archive.add(books=books(M, first, count, size=size))
    tokens = [{"id": token.token_id, "label": token.token_label} for token in TOKENS[N]]
    archive.add(prices=prices(N, 0, 10), markets=[{"market_id": M, "slug": "old"}, {"market_id": N, "tokens": tokens}])
    archive.add(prices=prices(N, 20, 10))


def pull(archive: Archive) -> None:
    """Pull what is there already, again."""
    source = Source()
    source.page = 100
    source.points = {("books", M, t, n): ([(0.5, float(n + 1))], []) for t in (0, 1) for n in range(10, 40)}
    start = START / 1e6
    archive.pull(source, M, views=["books"], start=start + 600, end=start + 2400, refresh=True, progress=False)


def metrics(market: str, first: int, count: int) -> Any:
    """Points of a table that `fill` does not create."""
    return columns_of("metrics", market, [(0, n) for n in range(first, first + count)], [(1.0, 2.0)] * count)


def elsewhere(end: str) -> Path:
    """A path in a folder that does not stutter."""
    return Path(tempfile.gettempdir(), f"stuttered{end}")


def exported(archive: Archive, end: str, *arguments: Any) -> bytes:
    path = elsewhere(end)
    archive.export("books", path, *arguments)
    return path.read_bytes()


def imported(archive: Archive) -> None:
    path = elsewhere("-prices.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in _IMPORTED))
    archive.add_files(path)


WRITES: dict[str, Callable[[Archive], Any]] = {
    "add": lambda a: a.add(books=books(M, 10, 30, size=5.0), markets=[{"market_id": M, "slug": "new"}]),
    "add metrics": lambda a: a.add(metrics=metrics(M, 0, 30)),
    "add(replace=True)": lambda a: a.add(books=books(M, 10, 25, size=6.0), replace=True),
    "pull": pull,
    "import": imported,
    "compact": lambda a: a.compact(),
    "vacuum": lambda a: a.vacuum(0),
    "verify(repair=True)": lambda a: a.verify(repair=True),
    "rebuild": lambda a: a.rebuild(),
}
READS: dict[str, Callable[[Archive], Any]] = {
    "books": lambda a: a.books(M, on_missing="partial"),
    "books at 1h": lambda a: a.books(M, resolution="1h", on_missing="partial"),
    "prices": lambda a: a.prices([N], on_missing="partial"),
    "scan": lambda a: a.scan("books").collect().sort(pl.all()),
    "scan by Arrow": lambda a: a.scan("books", engine="arrow").read_all().num_rows,
    # Decimals: a sum of floats differs with the order in which threads add them.
    "sql": lambda a: a.sql(
        "select token_id, sum(price::decimal(18, 9)) p, sum(size::decimal(18, 9)) s, count(*) n "
        "from books group by all order by all"
    ),
    "coverage": lambda a: a.coverage(),
    "markets": lambda a: a.markets(),
    "files": lambda a: sorted(Path(f).name for f in a.files("prices", N)),
    "verify": lambda a: a.verify(),
    "export": lambda a: exported(a, ".csv"),
    "export of a market": lambda a: exported(a, "-market.parquet", M),
}


# What an engine reads raises the errors of the engine.
ENGINES = {"scan": (OSError, pl.exceptions.PolarsError), "scan by Arrow": (OSError, pl.exceptions.PolarsError)}


def again(archive: Archive) -> Archive:
    """The same archive as another process sees it."""
    return Archive(archive.location, frame="polars", storage_options=archive._store.options)


def points(archive: Archive) -> dict[Any, Any]:
    """All points, as a dict; a doubled one is an error."""
    return {
        **points_of("books", archive.columns("books", M)),
        **points_of("prices", archive.columns("prices", N)),
        **points_of("metrics", archive.columns("metrics", M)),
    }


def minutes(archive: Archive) -> set[Any]:
    """Every minute of every view and market that the archive says it holds."""
    rows = archive.coverage().filter(pl.col("state") != "missing")
    spans = rows.select("view", "market_id", pl.col("start", "end").dt.epoch("s")).iter_rows()
    return {(view, market, at) for view, market, start, end in spans for at in range(start, end, 60)}


def disturb(
    name: str,
    made: Callable[[], Archive],
    armed: Callable[[Archive, int], None],
    disarmed: Callable[[], bool],
    calls: Iterable[int],
) -> Counter[str]:
    """Let the n-th call of a verb fail, for each n; what the verb did each time, counted.

    Asserted each time: success or an ArchiveError that does not say that data are damaged, the points of before or of
    after, none of them given up, nothing to verify, and that the verb then does its work.

    Parameters
    ----------
    made
        Gives a filled archive of its own.
    armed, disarmed
        Begin to count calls; end it, and say whether one failed.
    calls
        Which; it ends with the first that the verb does not make.
    """
    verb = {**WRITES, **READS}[name]
    plain = made()
    old = points(plain)
    answer = verb(plain)
    new = points(again(plain))
    seen: Counter[str] = Counter()
    archive = made()
    held = minutes(archive)
    for n in calls:
        if name in WRITES and n > 1:
            archive = made()
        fresh = again(archive)
        armed(fresh, n)
        try:
            found = verb(fresh)
            said = "done"
            assert name in WRITES or same(found, answer), (name, n)
        except ArchiveCorruptError as problem:
            raise AssertionError((name, n, "taken for damage")) from problem
        except ArchiveError as problem:
            said = type(problem).__name__
        except ENGINES.get(name, ()) as problem:
            said = "missing" if isinstance(problem, FileNotFoundError) else "error of the engine"
        finally:
            fired = disarmed()
        seen[f"{name}: {said}"] += 1
        assert said == "done" if not fired else said != "missing", (name, n)
        if name in WRITES:
            fresh = again(archive)
            assert points(fresh) in (old, new), (name, n)
            assert minutes(fresh) >= held, (name, n)
            assert fresh.verify().is_empty(), (name, n)
            verb(fresh)
            fresh = again(archive)
            assert points(fresh) == new, (name, n)
            assert fresh.verify(repair=True).is_empty(), (name, n)
        if not fired:
            break
    assert points(again(archive)) == new
    return seen


def same(found: Any, wanted: Any) -> bool:
    return bool(found.equals(wanted)) if isinstance(wanted, pl.DataFrame) else bool(found == wanted)


def main(folder: str, codes: str, seconds: float, step: int) -> None:
    """Each verb on a folder, with the errnos in turn; each call, or the first and then every so many."""
    shim = ctypes.CDLL(None)
    shim.stutter_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    warnings.simplefilter("error", MarketDataWarning)
    base = Path(folder, "base")
    fill(Archive(base, frame="polars"))
    errnos = [getattr(errno, code) for code in codes.split(",")]
    copies = 0

    def made() -> Archive:
        nonlocal copies
        shutil.rmtree(Path(folder, f"copy-{copies}"), ignore_errors=True)
        copies += 1
        return Archive(shutil.copytree(base, Path(folder, f"copy-{copies}")), frame="polars")

    def armed(archive: Archive, n: int) -> None:
        shim.stutter_arm(str(archive.location).encode(), n, errnos[n // step % len(errnos)])

    def disarmed() -> bool:
        fired = bool(shim.stutter_fired())
        shim.stutter_arm(b"", 0, 0)
        return fired

    seen: Counter[str] = Counter()
    until = time.monotonic() + seconds
    for name in [*WRITES, *READS]:
        if time.monotonic() > until:
            print("no time for", name, end="; ")
            continue
        seen += disturb(name, made, armed, disarmed, range(1, 2000, step))
    print(sum(seen.values()), json.dumps(seen, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
