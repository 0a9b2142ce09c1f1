"""A mirror plays an archive, and a recorder of it makes the same archive."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import marketdata as md
from marketdata.archive.query import ALL_TIME
from marketdata.archive.replay import Stored
from marketdata.errors import ConfigError, NotArchivedError
from marketdata.points.columns import Books, Token, Trades, joined
from marketdata.points.views import empty
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import channel_of
from marketdata.stream.mirror import Session, _text
from marketdata.stream.recorder import Recorder
from marketdata.times import SECOND
from marketdata.wire.venues import books_of

START = 1_767_261_600 * SECOND


def drawn(
    seed: int, markets: int, width: int, buckets: int, gaps: float, *, ticks: bool = True
) -> tuple[Books, dict[str, list[Token]]]:
    """Books of some markets with gaps; some stay the same, some have an empty side."""
    draw = random.Random(seed)
    tokens = {f"0x{m}": [Token(f"0x{m}", f"{m}{k}", None) for k in (1, 2)] for m in range(markets)}
    names, times, sides, tick = [], [], [], []
    for several in tokens.values():
        is_there = True
        book: dict[Token, Any] = {}
        for at in range(draw.randint(0, 3), buckets):
            is_there = is_there if draw.random() > gaps else not is_there
            for token in several if is_there else ():
                if token not in book or draw.random() < 0.5:
                    levels = [
                        [(round(0.5 + sign * 0.01 * (n + 1), 4), draw.randint(1, 9999) / draw.choice([1, 7, 1e6]))
                         for n in sorted(draw.sample(range(20), draw.choice([0, 0, 1, 4])))] for sign in (-1, 1)
                    ]  # fmt: skip
                    book[token] = levels, draw.choice([0.01, 0.001]) if ticks else np.nan
                names.append(token)
                times.append(START + at * width)
                sides.append(book[token][0])
                tick.append(book[token][1])
    values = {"tick_size": np.array(tick, float)} if ticks else {}
    return (books_of(names, times, sides, values) if names else empty("books")), tokens  # type: ignore[return-value]


class Memory:
    """A history in memory."""

    def __init__(self, books: Books, width: int) -> None:
        self.width, self._books = BucketWidth.of_micros(width), books
        self.tokens = {str(token.token_id): token for token in books.tokens}
        self._runs: dict[str, list[Any]] = {}
        for market in {token.market_id for token in books.tokens}:
            of = [
                np.array(sorted(set(books.ts[books.token == c].tolist())))
                for c, t in enumerate(books.tokens)
                if t.market_id == market
            ]
            from marketdata.archive.replay import _runs

            self._runs[market] = _runs(of[0], width)

    def runs(self, market: str) -> list[Any]:
        return self._runs.get(market, [])

    def books(self, markets: Any, rng: Any) -> Books:
        codes = [c for c, t in enumerate(self._books.tokens) if t.market_id in set(markets)]
        inside = np.isin(self._books.token, codes) & (self._books.ts >= rng[0]) & (self._books.ts < rng[1])
        return self._books.take(np.flatnonzero(inside))

    def prints(self, markets: Any, rng: Any) -> Trades:
        return Trades.empty()


def rows(books: Books) -> list[Any]:
    """All that books have."""
    out = []
    for at in range(len(books)):
        sides = []
        for side in (books.bids, books.asks):
            here = slice(int(side.begins[at]), int(side.begins[at] + side.counts[at]))
            sides.append(list(zip(side.price[here].tolist(), side.size[here].tolist(), strict=True)))
        tick = str(books.values["tick_size"][at]) if "tick_size" in books.values else "nan"
        out.append((books.token_at(at)[:2], int(books.ts[at]), *sides, tick))
    return out


@settings(max_examples=12)
@given(st.data())
def test_a_recording_of_a_replay_is_the_archive(data: st.DataObject) -> None:
    """Bit for bit, at any width and speed, with cuts where the archive has gaps, however frames come together."""
    seed, markets = data.draw(st.integers(0, 999), "seed"), data.draw(st.integers(1, 3), "markets")
    width = data.draw(st.sampled_from([SECOND, 5 * SECOND, 60 * SECOND]), "width")
    books, tokens = drawn(
        seed, markets, width, data.draw(st.integers(1, 40)), data.draw(st.sampled_from([0, 0.1, 0.4]))
    )
    speed = data.draw(st.sampled_from([1.0, 3.7, 1000.0]), "speed")
    every = data.draw(st.integers(1, 30), "frames together")
    recorder = Recorder(channel_of("polymarket", "ws://127.0.0.1:1"), BucketWidth.of_micros(width))
    history = Memory(books, width)
    recorder.choose(tokens, 0)
    now, got, session = 2 * START, [], None
    for _ in range(500):
        ((number, wanted),) = recorder.connections(now := now + 100 * SECOND)
        session = session or Session(
            history, {str(t.token_id) for t in wanted} & history.tokens.keys(), START, custom=bool(seed % 2)
        )
        first, began = session.at, now
        for count, sent in enumerate(session.play()):
            now = began + int((sent.at - first) / speed)
            assert recorder.frame(number, json.dumps(sent.message).encode(), now) is None
            if count % every == 0:
                assert recorder.work(now) == []
        recorder.end(number, now, "cut")
        got.append(recorder.take())
        if session.over or not session.wanted:
            break
    assert all(not one.withdrawn for one in got)
    parts = [one.books for one in got if len(one.books)]
    assert rows(joined(parts).sort() if parts else empty("books")) == rows(books.sort())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marketdata.archive.recording._DECODE_EVERY", 0.02)


@pytest.fixture
def stored(tmp_path: Path) -> md.Archive[Any]:
    books, tokens = drawn(3, 2, SECOND, 30, 0.08)
    archive = md.Archive(tmp_path / "stored", frame="polars", base="1s")
    archive.add(markets=records(tokens), books=books)
    return archive


def records(tokens: dict[str, list[Token]]) -> list[dict[str, Any]]:
    return [{"market_id": m, "slug": f"slug-{m}", "token_ids": [t.token_id for t in of], "token_labels": ["Yes", "No"]}
            for m, of in tokens.items()]  # fmt: skip


def test_a_recorder_on_a_socket_makes_the_same_archive(stored: md.Archive[Any], tmp_path: Path) -> None:
    """`record(replay(archive))` equals the archive, by the public names alone."""
    with md.replay_server(stored, speed=None) as mirror:
        new = recorded(mirror, tmp_path, stored.markets(), "1s")
    again, before = (one.books(resolution="1s", on_missing="partial") for one in (new, stored))
    assert again.rows() == before.rows()
    assert set(new.coverage()["state"]) == {"recorded"}


def test_books_and_trades_of_a_day_come_back(tmp_path: Path) -> None:
    """An hour of a simulated market of the usual width, with all of its trades."""
    archive = md.simulate(events=1, days=1, seed=2)
    market, start, end = archive.markets()["market_id"][0], "2025-12-31T06:00", "2025-12-31T07:00"
    with md.replay_server(archive, market, start, end, speed=None) as mirror:
        new = recorded(mirror, tmp_path, archive.records("markets")[:1], "1m")
    assert len(before := archive.books(market, start, end, "1m")) > 100
    again = new.books(market, start, end, "1m", on_missing="partial")
    assert again.rows() == pl.from_pandas(before).rows()
    columns = ["ts", "token_id", "side", "price", "size"]
    both = [
        pl.DataFrame(one.trades(market, start, end, on_missing="partial"))[columns].sort(columns).rows()
        for one in (new, archive)
    ]
    assert both[0] == both[1] != []


def recorded(mirror: Any, folder: Path, markets: Any, every: str) -> md.Archive[Any]:
    """A new archive of all that a mirror plays of these markets."""
    new = md.Archive(folder / "new", frame="polars")
    new.add(markets=markets)
    client, idle = md.Client("polymarket", hosts={"stream": mirror.address, "clob": "http://127.0.0.1:9"}), 0
    for report in new.record(client, new.markets()["market_id"].to_list(), every=every, commit_every=0.2):
        idle = idle + 1 if not (report.messages or report.known) else 0
        if idle > 3:
            break
    return new


def test_clients_have_clocks_and_subscriptions_of_their_own(stored: md.Archive[Any]) -> None:
    """Each gets the books of its tokens from the start, may add and leave tokens, and a ping is answered."""
    with md.replay_server(stored, ["slug-0x0", "slug-0x1"], speed=None) as mirror, connect(mirror.address) as one:
        for ids in (["01", "02"], ["11"]):
            with connect(mirror.address) as socket:
                socket.send(json.dumps({"assets_ids": [*ids, "unknown"], "type": "market"}))
                seen, kinds = set(), set()
                for message in received(socket):
                    kinds.add(message["event_type"])
                    seen |= {message["asset_id"]} if "asset_id" in message else {
                        change["asset_id"] for change in message["price_changes"]
                    }  # fmt: skip
                assert seen == set(ids)
                assert kinds <= {"book", "price_change", "tick_size_change"}
        one.send("PING")
        assert one.recv(5) == "PONG"
        one.send(json.dumps({"assets_ids": ["01"], "type": "market"}))
        first = next(received(one))
        assert (first["event_type"], first["asset_id"]) == ("book", "01")


def test_a_subscription_may_grow(stored: md.Archive[Any]) -> None:
    """A token that is added comes with its book, and one that is left comes no more."""
    with md.replay_server(stored, speed=4) as mirror, connect(mirror.address) as socket:
        socket.send(json.dumps({"assets_ids": ["01"], "type": "market"}))
        messages = received(socket)
        assert next(messages)["asset_id"] == "01"
        socket.send(json.dumps({"assets_ids": ["02"], "operation": "subscribe"}))
        added = next(m for m in messages if m.get("asset_id") == "02")
        assert added["event_type"] == "book"


def received(socket: Any) -> Any:
    """The messages up to the cut of the connection."""
    try:
        while True:
            found = json.loads(socket.recv(10))
            yield from found if isinstance(found, list) else [found]
    except ConnectionClosed:
        return


def test_what_cannot_be_played_is_refused(stored: md.Archive[Any], tmp_path: Path) -> None:
    """A slower speed than real time, a market without books, and an archive without any are errors."""
    with pytest.raises(ConfigError, match="numbers from 1, and None"):
        md.replay_server(stored, speed=0.5)
    with pytest.raises(NotArchivedError, match="no books"):
        md.replay_server(stored, start="2027-01-01")
    with pytest.raises(NotArchivedError):
        md.replay_server(md.Archive(tmp_path / "nothing"))
    with md.replay_server(stored) as mirror, pytest.raises(ConfigError, match="cannot be bound"):
        md.replay_server(stored, port=int(mirror.address.split(":")[2].split("/")[0]))


@given(st.floats(0, 1e9))
def test_numbers_are_written_with_all_of_their_digits(number: float) -> None:
    """The text of a level is the same number again, without an exponent."""
    assert float(_text(number)) == number
    assert "e" not in _text(number)


def test_a_history_has_the_runs_of_all_tokens_of_a_market(tmp_path: Path) -> None:
    """A bucket in which one token has no book is a gap of its market."""
    books, tokens = drawn(1, 1, SECOND, 12, 0)
    lacking = books.take(np.flatnonzero((books.token == 0) | (books.ts != START + 6 * SECOND)))
    archive = md.Archive(tmp_path, base="1s")
    archive.add(markets=records(tokens), books=lacking)
    history = Stored(archive._store, ["0x0"], ALL_TIME)
    starts = sorted({*itertools.chain.from_iterable(history.runs("0x0"))})
    assert START + 6 * SECOND in starts
    assert len(history.runs("0x0")) == 2
