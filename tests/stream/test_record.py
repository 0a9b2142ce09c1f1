"""`Archive.record` from a local socket, through faults, kills and full disks."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from archive.steps import steps
from reference.stream_stub import START, Book, Socket, Stream, message_of
from stream.simulated import Day, as_numbers, drawn_faults

import marketdata as md
from marketdata.archive.recording import Recording
from marketdata.errors import ArchiveFullError, ConfigError
from marketdata.stream.connection import Event
from marketdata.stream.raw import RawFiles
from marketdata.times import SECOND
from marketdata.wire import polymarket as wire

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marketdata.stream.connection.PING_EVERY", 0.2)
    monkeypatch.setattr("marketdata.stream.connection.SILENCE", 0.6)
    monkeypatch.setattr("marketdata.archive.recording._DECODE_EVERY", 0.05)


def archive_of(folder: Path, stream: Stream) -> md.Archive[Any]:
    archive = md.Archive(folder, frame="polars")
    records = [
        {"market_id": m, "slug": m, "token_ids": t, "token_labels": ["Yes", "No"]} for m, t in stream.markets.items()
    ]
    archive.add(markets=records)
    return archive


def client_of(socket: Socket) -> md.Client[Any]:
    return md.Client("polymarket", hosts={"stream": socket.address, "clob": NOWHERE})


def recorded(archive: md.Archive[Any], socket: Socket, **options: Any) -> list[Recording]:
    """Record until the stream is over and nothing new comes."""
    out: list[Recording] = []
    for report in archive.record(client_of(socket), [*socket.stream.markets], commit_every=0.3, **options):
        out.append(report)
        if socket.is_over.is_set() and len(out) > 2 and out[-1].messages == 0:
            break
    return out


def held(archive: md.Archive[Any]) -> dict[tuple[str, int], Book]:
    """Stored books by token and second."""
    out: dict[tuple[str, int], Book] = {}
    frame = archive.books(resolution="1s", on_missing="partial")
    for token, ts, side, price, size in frame.select("token_id", "ts", "side", "price", "size").iter_rows():
        book = out.setdefault((token, int(ts.timestamp())), {"bids": {}, "asks": {}})
        if price is not None:
            book[f"{side}s"][price] = size
    return out


def check(archive: md.Archive[Any], socket: Socket) -> int:
    """Compare what is stored with the venue; gives the number of books."""
    stream, books = socket.stream, held(archive)
    for key, book in books.items():
        assert as_numbers(book) == as_numbers(stream.second(*key)), key
    covered = {
        (row["market_id"], second)
        for row in archive.coverage().rows(named=True)
        for second in range(int(row["start"].timestamp()), int(row["end"].timestamp()))
    }
    assert {(stream.market_of(token), second) for token, second in books} == covered
    assert set(archive.coverage()["state"]) <= {"recorded"}
    assert not [one for one in socket.missed if (stream.market_of(one[0]), one[1]) in covered]
    assert archive.verify().is_empty()
    return len(books)


@pytest.mark.parametrize(("kind", "count", "down"), [(None, 0, 0), ("reset", 2, 9), ("stall", 1, 9), ("garbage", 2, 0)])
def test_a_socket_is_recorded_through_its_faults(tmp_path: Path, kind: str | None, count: int, down: int) -> None:
    """Books and coverage are those of the venue without what was missed."""
    stream = Stream.drawn(1, seconds=40)
    with Socket(stream, drawn_faults(stream, kind, count, 2), down=down) as socket:
        reports = recorded(archive := archive_of(tmp_path, stream), socket)
        assert check(archive, socket) > 4 * 10
    assert 0 < reports[-1].books <= len(held(archive))
    assert reports[-1].gaps >= min(count, 1)
    assert f"{reports[-1].books:,} books" in str(reports[-1])


class RawDay(Day):
    """A day whose frames are kept."""

    def __init__(self, folder: Path, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.raw, end = RawFiles(folder), self.recorder.end

        def ended(number: int, now: int, why: str) -> None:
            self.raw.end(number)
            end(number, now, why)

        self.recorder.end = ended  # type: ignore[method-assign]

    def _send(self, number: int, frame: bytes, now: int) -> None:
        super()._send(number, frame, now)
        if number in self.recorder.lines:
            self.raw.write(Event(number, "frame", now, frame))


@pytest.mark.parametrize("kind", ["reset", "stall", "garbage", "close"])
def test_raw_frames_make_the_same_books_later(tmp_path: Path, kind: str) -> None:
    """An import of the frames has every recorded book, and more where one was known, all as the venue had them."""
    stream = Stream.drawn(6, seconds=60)
    day = RawDay(tmp_path / "raw", stream, drawn_faults(stream, kind, 3, 6), down=9)
    day.run()
    later = md.Archive(tmp_path / "later", frame="polars", base="1s")
    later.add_files(tmp_path / "raw", max_age="1d", progress=False)
    now, again = ({key: as_numbers(book) for key, book in books.items()} for books in (day.held, held(later)))
    assert {key: again.get(key) for key in now} == now
    assert again == {key: as_numbers(stream.second(*key)) for key in again}
    assert len(again) > len(now)


def test_raw_frames_of_a_recording_are_kept(tmp_path: Path) -> None:
    """A folder has a file of each connection, whose frames can be imported."""
    stream = Stream.drawn(4, seconds=20)
    with Socket(stream, drawn_faults(stream, "reset", 1, 5), down=9) as socket:
        recorded(archive_of(tmp_path / "now", stream), socket, raw=tmp_path / "raw")
    later = md.Archive(tmp_path / "later", frame="polars", base="1s")
    report = later.add_files(tmp_path / "raw", progress=False)
    assert len(report) == 2
    assert report["disagreements"].sum() == 0 < report["points"].min()


@pytest.mark.parametrize("is_right", [True, False])
def test_books_are_compared_with_those_of_the_venue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_right: bool
) -> None:
    """Books that the venue gives are the same, or what was stored since the last agreement is removed again."""
    monkeypatch.setattr("marketdata.stream.recorder.COMPARED_EVERY", SECOND // 5)
    monkeypatch.setattr("marketdata.stream.recorder._ASKED_AGAIN", SECOND // 10)
    monkeypatch.setattr("marketdata.stream.line._NEAR", SECOND // 10)
    stream, asked = Stream.drawn(2, seconds=5, markets=1), list[str]()
    with Socket(stream) as socket:
        archive, client = archive_of(tmp_path, stream), client_of(socket)

        def live(_: Any, __: str, tokens: Any) -> Any:
            asked.extend(tokens)
            given = [message_of(t, stream.market_of(t), START, socket.book(t)) for t in tokens]
            yield wire.books(given if is_right else [{**one, "bids": []} for one in given])

        monkeypatch.setattr("marketdata.client.feed.Feed.live_columns", live)
        for report in archive.record(client, [*stream.markets], commit_every=0.2):
            if socket.is_over.is_set() and (report.gaps if not is_right else len(asked) > 20):
                break
        assert report.gaps == (0 if is_right else report.gaps)
    assert asked
    assert (len(archive.coverage()) > 0) is is_right


def test_an_error_of_a_comparison_that_nobody_expects_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no error of a venue ends the recording, and what was seen is stored."""
    monkeypatch.setattr("marketdata.stream.recorder.COMPARED_EVERY", SECOND // 5)

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("marketdata.client.feed.Feed.live_columns", broken)
    stream = Stream.drawn(2, seconds=20, markets=1)
    with Socket(stream, pace=0.002) as socket:
        archive = archive_of(tmp_path, stream)
        with pytest.raises(ZeroDivisionError):
            recorded(archive, socket)
        assert check(archive, socket) > 0


def test_leaving_the_loop_stores_what_was_seen(tmp_path: Path) -> None:
    """The last commit is made when the loop is left, and when ``stop`` is set."""
    stream, stop = Stream.drawn(2, seconds=40), threading.Event()
    with Socket(stream, pace=0.001) as socket:
        archive = archive_of(tmp_path, stream)
        first = next(archive.record(client_of(socket), [*stream.markets], commit_every=0.3))
        assert check(archive, socket) >= first.books
        for report in archive.record(client_of(socket), [*stream.markets], commit_every=0.3, stop=stop):
            if report.books:
                stop.set()
        assert check(archive, socket) > report.books > 0


@pytest.mark.fault("AR7")
def test_a_full_disk_ends_it_and_keeps_what_was_committed(tmp_path: Path) -> None:
    """The error is typed, and a later recording goes on."""
    stream = Stream.drawn(2, seconds=300, markets=1)
    with Socket(stream, pace=0.004) as socket:
        archive = archive_of(tmp_path, stream)
        reports = archive.record(client_of(socket), [*stream.markets], commit_every=0.2)
        while not next(reports).books:
            pass
        before = check(archive, socket)

        def full(step: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with steps(full), pytest.raises(ArchiveFullError):
            for _ in reports:
                pass
        assert check(archive, socket) == before
        for report in archive.record(client_of(socket), [*stream.markets], commit_every=0.2):
            if report.books:
                break
        assert check(archive, socket) > before


def test_arguments_that_cannot_be_recorded_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream, a finer or another width, no open market, and no key of Kalshi are errors that say so."""
    archive = archive_of(tmp_path, Stream.drawn(0, seconds=1, markets=1))
    polymarket = md.Client("polymarket", hosts={"stream": "ws://127.0.0.1:9"})
    with pytest.raises(ConfigError, match="no stream; polymarket and kalshi"):
        archive.record(md.Client("http://127.0.0.1:9", "k"), "0xm0")
    with pytest.raises(ConfigError, match="not encrypted"):
        archive.record(md.Client("polymarket", hosts={"stream": "ws://example.com"}), "0xm0")
    for base, every, words in (("1m", "1s", "base='1m'"), ("250ms", None, "1s or coarser")):
        with pytest.raises(ConfigError, match=words):
            md.Archive(tmp_path / base, base=base).record(polymarket, "0xm0", every=every)
    for name in ("KALSHI_API_KEY_ID", "KALSHI_PRIVATE_KEY_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="KALSHI_API_KEY_ID and KALSHI_PRIVATE_KEY_PATH is not set"):
        archive.record(md.Client("kalshi"), "KXA")
