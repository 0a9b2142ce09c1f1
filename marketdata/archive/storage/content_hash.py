"""An additive content hash of points: damage and mistakes change it, files, order and merging do not."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import AnyColumns, BookColumns, Floats, Ints

Words = NDArray[np.uint64]
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


def content_hash(columns: AnyColumns) -> int:
    """Sum over all points of a 64-bit hash of ids, time and values [modulo 2**64]."""
    if not len(columns):
        return 0
    low, high = int(columns.token.min()), int(columns.token.max())
    names = np.array([_name(t) for t in columns.tokens[low : high + 1]], dtype=np.uint64)
    with np.errstate(over="ignore"):
        row = _mix(names[columns.token - low] + _words(columns.ts) * _A)
        if isinstance(columns, BookColumns):
            return _books(columns, row)
        out = row
        for name, values in sorted(columns.values.items()):
            # A missing value counts nothing, so a column that is added later leaves older hashes alone.
            here = _mix(row + _bits(values) * _B + _text(name))
            out = out + np.where(np.isnan(values), np.uint64(0), here)
        return _total(_mix(out))


def _books(columns: BookColumns, row: Words) -> int:
    bids, asks = _words(columns.counts[0::2]), _words(columns.counts[1::2])
    total = _total(_mix(row + bids * _B + asks * _C))
    if not len(columns.levels):
        return total
    side = np.repeat(row, 2)
    side[1::2] += _C
    side -= _words(np.cumsum(columns.counts) - columns.counts) * _A
    # Token, time, side and position; then price; then size. In place: this is most of the work of a write.
    out = np.repeat(side, columns.counts)
    out += np.arange(len(out), dtype=np.uint64) * _A
    levels = (columns.levels + 0.0).view(np.uint64)
    spare = levels[:, 0] * _B
    out ^= spare
    np.right_shift(out, _SHIFT, out=spare)
    out ^= spare
    out *= _C
    np.multiply(levels[:, 1], _A, out=spare)
    out ^= spare
    np.right_shift(out, np.uint64(29), out=spare)
    out ^= spare
    out *= _B
    np.right_shift(out, _SHIFT, out=spare)
    out ^= spare
    return (total + _total(out)) % 2**64


def _words(values: Ints) -> Words:
    return np.ascontiguousarray(values, dtype=np.int64).view(np.uint64)


def _bits(values: Floats) -> Words:
    # Adding zero makes -0.0 and 0.0 one value, as they are equal in every frame.
    clean = np.ascontiguousarray(values) + 0.0
    clean[np.isnan(clean)] = np.nan
    return clean.view(np.uint64)


def _mix(words: Words) -> Words:
    words = words ^ (words >> _SHIFT)
    words *= _C
    words ^= words >> _SHIFT
    return words


def _total(words: Words) -> int:
    return int(words.sum(dtype=np.uint64))


def _text(text: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def _name(token: tuple[str | None, ...]) -> int:
    key = "\x1f".join("\x1e" if part is None else part for part in token)
    return int(_text(key))
