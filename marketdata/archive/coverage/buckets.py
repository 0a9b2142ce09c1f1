"""The coverage of a view: files of 16 buckets of markets, which the commits of the points name."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, merged
from marketdata.archive.storage import errors
from marketdata.archive.storage.tables import Table, Version

FOLDER = "_coverage"
FILE_NAME = re.compile(r"(\d{1,2})-(\d{1,19})")  # bucket and number of the transaction
_BUCKETS = 16  # fixed with the format
_HINT = "Run archive.verify(repair=True): it makes the coverage again from the points, as unverified."


class Coverage:
    """The stored ranges of each market of a view.

    A coverage file has all markets of a bucket, and never changes. A commit writes new files for the buckets that it
    touches, and names each by a transaction, so that points and their coverage are one commit.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # The file of each bucket that was read last: its number and its content.
        self._files: dict[int, tuple[int | None, dict[str, list[CoverageRecord]]]] = {}

    def records(self, market: str, version: Version | None = None) -> list[CoverageRecord]:
        """Disjoint records of a market in time order."""
        return self.of([market], version)[market]

    def of(self, markets: Iterable[str], version: Version | None = None) -> dict[str, list[CoverageRecord]]:
        """Disjoint records of each of these markets."""
        version = version or self._table.version()
        return {market: self._bucket(bucket_of(market), version).get(market, []) for market in markets}

    def all(self, version: Version | None = None, *, without: Collection[int] = ()) -> dict[str, list[CoverageRecord]]:
        """Disjoint records of every market that has some, in the order of their ids; ``without`` some buckets."""
        version = version or self._table.version()
        buckets = [self._bucket(bucket, version) for bucket in range(_BUCKETS) if bucket not in without]
        return dict(sorted((market, records) for bucket in buckets for market, records in bucket.items() if records))

    def put(
        self, changed: Mapping[str, Sequence[CoverageRecord]], version: Version, *, damaged: Collection[int] = ()
    ) -> dict[str, int]:
        """Write the coverage of a version with the new records of some markets; returns transactions that name it.

        The buckets whose file is ``damaged`` have these markets only.
        """
        buckets: dict[int, dict[str, Sequence[CoverageRecord]]] = {bucket: {} for bucket in damaged}
        for market, records in changed.items():
            buckets.setdefault(bucket_of(market), {})[market] = merged(records)
        return {
            transaction_name(bucket): self._write(
                bucket, markets if bucket in damaged else {**self._bucket(bucket, version), **markets}
            )
            for bucket, markets in buckets.items()
        }

    def damaged(self, version: Version) -> dict[int, str]:
        """The damage of the file of each bucket that cannot be read."""
        from marketdata.errors import ArchiveCorruptError

        problems = {}
        for bucket in range(_BUCKETS):
            self._files.pop(bucket, None)
            try:
                self._bucket(bucket, version)
            except ArchiveCorruptError as problem:
                problems[bucket] = problem.problem
        return problems

    def named_files(self, moment: int | None) -> set[str]:
        """Names of the coverage files of the newest version (None), or of a time [microseconds UTC]."""
        numbers = self._table.transactions_at(moment, map(transaction_name, range(_BUCKETS)))
        return {f"{name.removeprefix('coverage-')}-{number}" for name, number in numbers.items() if number is not None}

    def _bucket(self, bucket: int, version: Version) -> dict[str, list[CoverageRecord]]:
        number = self._table.transaction(transaction_name(bucket), version)
        stored, records = self._files.get(bucket, (None, {}))
        if number is None or stored == number:
            return records if number is not None else {}
        name = f"{FOLDER}/{bucket}-{number}"
        try:
            with errors.reading(f"The coverage file {name}", _HINT), self._table.store.open(name) as file:
                body = bytes(file.read())
            with errors.parsing(f"The coverage file {name}", _HINT):
                records = _decoded(body)
        finally:
            self._files.pop(bucket, None)
        self._files[bucket] = number, records
        return records

    def _write(self, bucket: int, markets: Mapping[str, Sequence[CoverageRecord]]) -> int:
        number = random.SystemRandom().getrandbits(62)
        with errors.writing(f"Writing the coverage of {self._table.uri}"):
            self._table.store.write(f"{FOLDER}/{bucket}-{number}", _encoded(markets))
        return number


def transaction_name(bucket: int) -> str:
    """The transaction whose number is in the name of the coverage file of a bucket."""
    return f"coverage-{bucket}"


def bucket_of(market: str) -> int:
    """The bucket of a market."""
    return zlib.crc32(market.encode()) % _BUCKETS


def _encoded(markets: Mapping[str, Sequence[CoverageRecord]]) -> bytes:
    plain = {market: [[*r[:2], str(r.state), *r[3:]] for r in records] for market, records in markets.items()}
    body = zlib.compress(json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode(), 1)
    return zlib.crc32(body).to_bytes(4, "big") + body


def _decoded(body: bytes) -> dict[str, list[CoverageRecord]]:
    if zlib.crc32(body[4:]) != int.from_bytes(body[:4], "big"):
        raise ValueError("it has another checksum than was written")
    plain = json.loads(zlib.decompress(body[4:]))
    return {
        market: [CoverageRecord(start, end, CoverageState(state), *more) for start, end, state, *more in records]
        for market, records in plain.items()
    }
