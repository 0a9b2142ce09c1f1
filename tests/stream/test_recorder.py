"""What a recorder stores of drawn streams through the faults of networks and venues, on a simulated clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.stream_stub import START, Stream, encoded, message_of
from stream.simulated import Day, drawn_faults

from marketdata.points.columns import Token
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import channel_of
from marketdata.stream.recorder import Recorder
from marketdata.times import SECOND

T = START * 1000
KINDS = [(None, 0, 0), ("reset", 3, 20), ("close", 3, 0), ("stall", 2, 30), ("garbage", 3, 0), ("unknown", 8, 0),
         ("swap", 12, 0)]  # fmt: skip


@pytest.mark.parametrize(("kind", "count", "down"), KINDS)
def test_no_fault_of_the_network_makes_a_wrong_book(kind: str | None, count: int, down: int) -> None:
    """Every stored book is the venue's, what was missed is missing in the coverage, and little else is absent."""
    stream = Stream.drawn(3, seconds=90)
    day = Day(stream, drawn_faults(stream, kind, count, 5), down=down, every=60).run()
    tally = day.tally
    assert (tally["wrong"], tally["missed_but_covered"], tally["books_beside_coverage"]) == (0, 0, 0)
    assert day.missed or not down
    lost = sum({"reset": 8, "stall": 12, "close": 4, "garbage": 4}.get(kind or "", 0) for _ in range(count))
    assert tally["absent"] <= 4 * (3 + lost)


@settings(max_examples=6)
@given(st.data())
def test_faults_may_come_together(data: st.DataObject) -> None:
    """Resets, stalls, damage, reordered messages and a clock that is wrong by hours make no wrong book."""
    stream = Stream.drawn(data.draw(st.integers(0, 99), "seed"), seconds=60, markets=data.draw(st.integers(1, 3)))
    places = st.integers(1, max(2, len(stream.messages) - 2))
    kinds = st.sampled_from(["reset", "close", "stall", "garbage", "unknown", "swap"])
    faults = data.draw(st.dictionaries(places, kinds, max_size=8), "faults")
    error = data.draw(st.sampled_from([0, -3, 2, 7200, -7200]), "clock error")
    day = Day(stream, faults, down=data.draw(st.integers(0, 30)), clock_error=error * SECOND, every=50).run()
    tally = day.tally
    assert (tally["wrong"], tally["missed_but_covered"], tally["books_beside_coverage"]) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_the_venue_lost_are_found(seed: int) -> None:
    """Five minutes after a message was lost, no stored book of its token is wrong any more."""
    stream = Stream.drawn(seed, seconds=700, rate=0.3, markets=1, quiet=0.5)
    day = Day(stream, drawn_faults(stream, "drop", 4, seed), every=7).run()
    assert day.missed
    last = stream.messages[-1][0] // 1000
    lost = [at for _, at in day.missed]
    late = [(t, s) for t, s in day.wrong if s < last - 300 and not any(at <= s < at + 300 for at in lost)]
    assert late == []


def test_a_silent_connection_is_seen_up_to_the_ping_that_was_answered() -> None:
    """Nothing after the last sign of life is stored, however late the end is noticed."""
    recorder = one_token()
    recorder.answered(1, T + 10 * SECOND, T + 10_050_000)
    recorder.answered(1, T + 20 * SECOND, T + 20_050_000)
    recorder.end(1, T + 300 * SECOND, "no answer to a ping")
    ((start, end),) = recorder.take().seen["0xa"]
    assert (start, end) == (T + SECOND, T + 19 * SECOND)


def test_a_book_is_known_from_its_arrival_on() -> None:
    """A book whose last change is hours old is stored from the first bucket that was seen as a whole."""
    recorder = one_token(age=7200)
    recorder.answered(1, T + 5 * SECOND, T + 5 * SECOND)
    recorder.work(T + 5 * SECOND)
    got = recorder.take()
    assert got.seen["0xa"] == [(T + SECOND, T + 4 * SECOND)]
    assert got.books.ts.tolist() == [T + n * SECOND for n in (1, 2, 3)]


def test_a_market_counts_once_all_of_its_tokens_are_known() -> None:
    """While the book of one token is missing, nothing is stored of the other one."""
    recorder = one_token(tokens=("7", "8"))
    recorder.answered(1, T + 5 * SECOND, T + 5 * SECOND)
    recorder.work(T + 5 * SECOND)
    assert recorder.take().seen == {}
    recorder.frame(1, encoded(message_of("8", "0xa", START, {"bids": {}, "asks": {}})), T + 6 * SECOND)
    for at in (9, 12):
        recorder.answered(1, T + at * SECOND, T + at * SECOND)
    recorder.work(T + 12 * SECOND)
    assert recorder.take().seen == {"0xa": [(T + 9 * SECOND, T + 11 * SECOND)]}


def test_books_that_differ_from_stated_prices_are_taken_back() -> None:
    """The range from the last agreement to the disagreement is withdrawn, and the market is subscribed again."""
    recorder = one_token()
    level = {"asset_id": "7", "price": "0.41", "size": "5", "side": "BUY", "best_bid": "0.41", "best_ask": "0.6"}
    change = {"event_type": "price_change", "market": "0xa", "price_changes": [level]}
    recorder.frame(1, encoded(change | {"timestamp": str(START + 1500)}), T + 1_500_000)
    recorder.answered(1, T + 8 * SECOND, T + 8 * SECOND)
    recorder.work(T + 8 * SECOND)
    assert recorder.take().seen == {"0xa": [(T + 1 * SECOND, T + 7 * SECOND)]}
    level |= {"best_bid": "0.45", "price": "0.3"}
    recorder.frame(1, encoded(change | {"timestamp": str(START + 9000)}), T + 9_000_000)
    recorder.answered(1, T + 12 * SECOND, T + 12 * SECOND)
    assert [number for number, _ in recorder.work(T + 12 * SECOND)] == [1]
    assert recorder.take().withdrawn == {"0xa": [(T + SECOND, T + 11 * SECOND)]}
    assert [len(tokens) for _, tokens in recorder.connections(T + 20 * SECOND)] == [1]


def test_more_tokens_than_a_connection_takes_are_divided() -> None:
    """Each connection has at most 500 tokens, and both tokens of a market are on one."""
    recorder = Recorder(channel_of("polymarket", "ws://127.0.0.1:1"), BucketWidth.of("1s"))
    recorder.choose({f"0x{m}": [Token(f"0x{m}", f"{m}{n}") for n in (0, 1)] for m in range(601)}, T)
    opened = recorder.connections(T)
    assert [len(tokens) for _, tokens in opened] == [500, 500, 202]
    assert recorder.connections(T) == []
    recorder.choose({"0xnew": [Token("0xnew", "5")]}, T + SECOND)
    assert [len(tokens) for _, tokens in recorder.connections(T + SECOND)] == [1]
    assert sorted(number for number, _ in recorder.work(T + SECOND)) == [1, 2, 3]


def test_a_market_that_is_resolved_ends() -> None:
    """The message of its resolution ends it, and it is not subscribed again."""
    recorder = one_token()
    recorder.frame(1, encoded({"event_type": "market_resolved", "market": "0xa", "timestamp": str(START)}), T)
    recorder.work(T)
    assert recorder.markets == []


def one_token(tokens: tuple[str, ...] = ("7",), age: int = 0) -> Recorder:
    """A recorder of a market, with the book of its first token at T and one message in the same millisecond."""
    recorder = Recorder(channel_of("polymarket", "ws://127.0.0.1:1"), BucketWidth.of("1s"))
    recorder.choose({"0xa": [Token("0xa", name) for name in tokens]}, T)
    recorder.connections(T)
    book = {"bids": {"0.4": "10"}, "asks": {"0.6": "10"}}
    recorder.frame(1, encoded([message_of("7", "0xa", START - age * 1000, book)]), T)
    recorder.frame(1, encoded({"event_type": "best_bid_ask", "asset_id": "7", "timestamp": str(START + 1)}), T + 1000)
    return recorder


def test_wide_buckets_are_compared_as_they_come() -> None:
    """A disagreement within an hour ends the market at once, and nothing of the hour is stored."""
    recorder = Recorder(channel_of("polymarket", "ws://127.0.0.1:1"), BucketWidth.of("1h"))
    recorder.choose({"0xa": [Token("0xa", "7")]}, T)
    recorder.connections(T)
    recorder.frame(1, encoded(message_of("7", "0xa", START, {"bids": {"0.4": "10"}, "asks": {"0.6": "10"}})), T)
    level = {"asset_id": "7", "price": "0.3", "size": "5", "side": "BUY", "best_bid": "0.45", "best_ask": "0.6"}
    change = {"event_type": "price_change", "market": "0xa", "timestamp": str(START + 9000), "price_changes": [level]}
    recorder.frame(1, encoded(change), T + 9 * SECOND)
    recorder.answered(1, T + 12 * SECOND, T + 12 * SECOND)
    assert [number for number, _ in recorder.work(T + 12 * SECOND)] == [1]
    assert recorder.take().seen == {}
