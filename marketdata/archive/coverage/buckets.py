"""The coverage of a view: files of 64 buckets of markets, which the commits of the points name."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from marketdata.archive.coverage.intervals import CoverageRecord, merged
from marketdata.archive.storage import errors
from marketdata.archive.storage.tables import COVERAGE, Table, Version
from marketdata.errors import ArchiveCorruptError

_FILE_NAME = re.compile(r"(\d{1,2})-(\d{1,19})")  # bucket and number of the transaction
_BUCKETS = 64  # part of the format of archives, so it stays
_MOST_BYTES = 64_000_000  # of a file: a million ranges; a bucket of 100,000 markets has about 1 MB
_HINT = "Run archive.verify(repair=True): it makes the coverage again from the points, as unverified."
_records = msgspec.json.Decoder(dict[str, list[CoverageRecord]]).decode


class Coverage:
    """The stored ranges of each market of a view.

    A coverage file has all markets of a bucket, and never changes. A commit writes new files for the buckets that it
    touches, and names each by a transaction, so that points and their coverage are one commit.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        # The last file that was read of each bucket: its number and its content.
        self._files: dict[int, tuple[int, dict[str, list[CoverageRecord]]]] = {}

    def records(self, market: str, version: Version | None = None) -> list[CoverageRecord]:
        """Disjoint records of a market in time order."""
        return self.of([market], version)[market]

    def of(self, markets: Iterable[str] | None, version: Version | None = None) -> dict[str, list[CoverageRecord]]:
        """Disjoint records by market: of these markets, or (None) of all."""
        if markets is None:
            return self.all(version)
        version = version or self._table.version()
        return {market: self._bucket(_bucket_of(market), version).get(market, []) for market in markets}

    def all(self, version: Version | None = None, *, without: Collection[int] = ()) -> dict[str, list[CoverageRecord]]:
        """Disjoint records by market, in the order of their ids; ``without`` leaves out buckets."""
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
            bucket = _bucket_of(market)
            if bucket not in buckets:
                buckets[bucket] = {**self._bucket(bucket, version)}
            buckets[bucket][market] = merged(records)
        numbers = {bucket: random.SystemRandom().getrandbits(62) for bucket in buckets}
        with errors.writing(f"Writing the coverage of {self._table.uri}"):
            for bucket, number in numbers.items():
                body = zlib.compress(msgspec.json.encode(buckets[bucket]), 1)
                checked = zlib.crc32(body).to_bytes(4, "big") + body
                self._table.store.write(f"{COVERAGE}/{bucket}-{number}", checked)
        return {_transaction_name(bucket): number for bucket, number in numbers.items()}

    def damaged(self, version: Version) -> dict[int, str]:
        """The problem of each bucket whose file cannot be read."""
        problems = {}
        for bucket in range(_BUCKETS):
            self._files.pop(bucket, None)
            try:
                self._bucket(bucket, version)
            except ArchiveCorruptError as problem:
                problems[bucket] = problem.problem
        return problems

    def unused_files(self, retained: int, margin: int) -> list[str]:
        """Coverage files that no version since a time names, and that are older than it by a margin [microseconds]."""
        if self._table.version().number < 0:
            return []
        store, used, names = self._table.store, set[str](), {_transaction_name(b): b for b in range(_BUCKETS)}
        # A retained version names files written since that time, or files that the version of that time named.
        for moment in (None, retained):
            numbers = self._table.transactions_at(moment, names)
            used |= {f"{COVERAGE}/{names[name]}-{number}" for name, number in numbers.items()}
        files = {f"{COVERAGE}/{name}": at for name, at in store.written(COVERAGE).items() if _FILE_NAME.fullmatch(name)}
        return [file for file, at in files.items() if file not in used and at < retained - margin]

    def _bucket(self, bucket: int, version: Version) -> dict[str, list[CoverageRecord]]:
        number = self._table.transaction(_transaction_name(bucket), version)
        if number is None:
            return {}
        stored = self._files.get(bucket)
        if stored is None or stored[0] != number:
            name = f"{COVERAGE}/{bucket}-{number}"
            with errors.reading(f"The coverage file {name}", _HINT), self._table.store.open(name) as file:
                body = bytes(file.read())
            with errors.parsing(f"The coverage file {name}", _HINT):
                if zlib.crc32(body[4:]) != int.from_bytes(body[:4], "big"):
                    raise ValueError("it has another checksum than was written")
                records = _records(_decompressed(body[4:]))
            self._files[bucket] = stored = number, records
        return stored[1]


def _decompressed(body: bytes) -> bytes:
    """The content of a coverage file; ValueError for one that would fill the memory."""
    reader = zlib.decompressobj()
    content = reader.decompress(body, _MOST_BYTES)
    if not reader.eof:
        raise ValueError(f"it is cut, or has more than {_MOST_BYTES:,} bytes")
    return content


def _transaction_name(bucket: int) -> str:
    """The name of the transaction of a bucket; its number is part of the name of the coverage file."""
    return f"coverage-{bucket}"


def _bucket_of(market: str) -> int:
    return zlib.crc32(market.encode()) % _BUCKETS
