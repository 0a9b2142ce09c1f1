from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from marketdata.wire.structure import count_brackets

pieces = st.sampled_from(["[", "]", ",", "7", " ", "x" * 70, "1" * 200, "\u00e9"])


@given(st.lists(pieces, max_size=80).map("".join))
def test_pairs_are_counted_as_a_plain_walk_counts_them(text: str) -> None:
    """Bit arithmetic finds each [ , ] that a regular expression finds, over word borders and long runs."""
    data = np.frombuffer(text.encode(), np.uint8)
    signs = re.sub(r"[^\[\],]", "", text)
    assert count_brackets(data) == (text.count("["), len(re.findall(r"(?=\[,\])", signs)))
