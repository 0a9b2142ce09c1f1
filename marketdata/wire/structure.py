"""The shape of a JSON text by bit arithmetic: which brackets hold exactly two values.

One bit per byte, 64 bytes per step: a carry runs from each bracket over digits and spaces to the next
structural byte, as in the parsers that read JSON with vector instructions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_OPEN, _CLOSE, _COMMA = b"[],"
Words = NDArray[np.uint64]


def count_brackets(text: NDArray[np.uint8]) -> tuple[int, int]:
    """How many ``[`` a text holds, and how many of them are followed by ``,`` and then ``]``.

    Of the three signs no other stands in between.

    Examples
    --------
    >>> count_brackets(np.frombuffer(b"[[1, 2],[3],[4,5,6]]", np.uint8))
    (4, 1)
    """
    hits = np.empty(len(text), bool)
    opens, commas, closes = (_bits(np.equal(text, sign, out=hits)) for sign in (_OPEN, _COMMA, _CLOSE))
    rest = ~(opens | commas | closes)
    first = _next(opens, rest) & commas
    return _count(opens), _count(_next(first, rest) & closes)


def _count(bits: Words) -> int:
    return int(np.bitwise_count(bits).sum())


def _bits(hits: NDArray[np.bool_]) -> Words:
    packed = np.packbits(hits, bitorder="little")
    out = np.zeros(-(-len(packed) // 8) * 8 + 8, np.uint8)
    out[: len(packed)] = packed
    return out.view(np.uint64)


def _next(starts: Words, rest: Words) -> Words:
    """The first bit outside of ``rest`` after each of ``starts``."""
    after = starts << np.uint64(1)
    after[1:] |= starts[:-1] >> np.uint64(63)
    total = (after & rest) + rest
    carry = total < rest
    while carry.any():
        total[1:] += carry[:-1]
        again = np.zeros_like(carry)
        again[1:] = carry[:-1] & (total[1:] == 0)
        carry = again
    return (total | after) & ~rest
