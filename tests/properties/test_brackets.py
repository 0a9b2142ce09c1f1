from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from marketdata.wire.decode import find_pairs

pieces = st.sampled_from(["[", "]", ",", "7", " ", "x" * 70, "1" * 200, "\u00e9"])


@given(st.lists(pieces, max_size=80).map("".join))
def test_pairs_are_counted_as_a_plain_walk_counts_them(text: str) -> None:
    """Bit arithmetic finds each [ , ] that a regular expression finds, over word borders and long runs."""
    data = np.frombuffer(text.encode(), np.uint8)
    signs = re.sub(r"[^\[\],]", "", text)
    opens, pairs = find_pairs(data)
    assert (opens.total, pairs) == (text.count("["), len(re.findall(r"(?=\[,\])", signs)))


@given(st.lists(pieces, max_size=80).map("".join), st.data())
def test_brackets_between_two_places_are_counted(text: str, draws: st.DataObject) -> None:
    """How many brackets stand between two places is what counting them one by one gives."""
    data = text.encode()
    at = st.lists(st.integers(0, len(data)), min_size=1, max_size=20)
    begin = np.array(draws.draw(at))
    end = np.maximum(begin, np.resize(draws.draw(at), len(begin)))
    opens, _ = find_pairs(np.frombuffer(data, np.uint8))
    assert opens.between(begin, end).tolist() == [data[a:b].count(b"[") for a, b in zip(begin, end, strict=True)]
