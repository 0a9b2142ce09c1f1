"""Half-open interval arithmetic of what an archive holds. Pure: no clock, no files.

A claim says what one fetch or one addition established for a range. Later claims lie over earlier ones;
what shows is the coverage. All times are microseconds since the epoch, every range is [start, end).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from marketdata.times import Range


class CoverageState(StrEnum):
    """What is known about a range of a market's view.

    ``final``: held, will not change. ``provisional``: held, but its buckets were still open or had not
    settled. ``empty_observed``: asked, and no points came. ``unproven``: held, but the end of the walk was not
    proven. ``missing``: never asked, or damaged.
    """

    FINAL = "final"
    PROVISIONAL = "provisional"
    EMPTY = "empty_observed"
    UNPROVEN = "unproven"
    MISSING = "missing"


class Interval(NamedTuple):
    """A half-open range of a market's view to replace, and the state to record for it [microseconds UTC].

    ``tries`` counts the answers without points that the range had before.
    """

    market_id: str
    start: int
    end: int
    state: CoverageState
    tries: int = 0


class Claim(NamedTuple):
    """What is established for [start, end): how many points, and the hash of their content.

    ``rows`` and ``digest`` are None where a later claim has cut this one, so they are not known.
    """

    start: int
    end: int
    state: CoverageState
    rows: int | None
    digest: int | None
    fetched_at: int
    seq: int
    tries: int = 0

    @property
    def range(self) -> Range:
        """The range of the claim."""
        return Range(self.start, self.end)


def effective(claims: Iterable[Claim]) -> list[Claim]:
    """Disjoint claims in time order: of overlapping ones the latest shows.

    Examples
    --------
    >>> old = Claim(0, 10, CoverageState.FINAL, 5, 1, 0, 1)
    >>> new = Claim(4, 6, CoverageState.FINAL, 2, 7, 0, 2)
    >>> [(c.start, c.end, c.rows) for c in effective([old, new])]
    [(0, 4, None), (4, 6, 2), (6, 10, None)]
    """
    out: list[Claim] = []
    for claim in sorted(claims, key=lambda c: (c.seq, c.fetched_at)):
        lay_over(out, claim)
    return out


def lay_over(pieces: list[Claim], claim: Claim) -> None:
    """Put a claim over disjoint sorted pieces, in place."""
    if claim.start >= claim.end:
        return
    low = bisect_right(pieces, claim.start, key=lambda c: c.end)
    high = low
    kept: list[Claim] = []
    while high < len(pieces) and pieces[high].start < claim.end:
        kept.extend(cut(pieces[high], claim.start, claim.end))
        high += 1
    kept.append(claim)
    kept.sort(key=lambda c: c.start)
    pieces[low:high] = kept


def cut(piece: Claim, start: int, end: int) -> list[Claim]:
    """What is left of a piece outside of [start, end)."""
    if end <= piece.start or piece.end <= start:
        return [piece]
    out = []
    if piece.start < start:
        out.append(piece._replace(end=start, rows=None, digest=None))
    if end < piece.end:
        out.append(piece._replace(start=end, rows=None, digest=None))
    return out


def merged(pieces: Sequence[Claim], *, may_merge: Callable[[Claim, Claim], bool] | None = None) -> list[Claim]:
    """Touching pieces of one state as one; their rows and hashes add up."""
    out: list[Claim] = []
    for piece in pieces:
        last = out[-1] if out else None
        if (
            last is not None
            and last.end == piece.start
            and last.state == piece.state
            and (last.rows is None) == (piece.rows is None)
            and (may_merge is None or may_merge(last, piece))
        ):
            out[-1] = Claim(
                last.start,
                piece.end,
                last.state,
                None if last.rows is None or piece.rows is None else last.rows + piece.rows,
                None if last.digest is None or piece.digest is None else (last.digest + piece.digest) % 2**64,
                min(last.fetched_at, piece.fetched_at),
                max(last.seq, piece.seq),
                min(last.tries, piece.tries),
            )
        else:
            out.append(piece)
    return out


def within(pieces: Iterable[Claim], wanted: Range) -> list[Claim]:
    """The pieces inside of a range, cut at its ends."""
    out = []
    for piece in pieces:
        start, end = max(piece.start, wanted.start), min(piece.end, wanted.end)
        if start < end:
            whole = (start, end) == (piece.start, piece.end)
            out.append(piece if whole else piece._replace(start=start, end=end, rows=None, digest=None))
    return out


def union(ranges: Iterable[Range]) -> list[Range]:
    """Disjoint, sorted, with gaps between.

    Examples
    --------
    >>> [tuple(r) for r in union([Range(5, 7), Range(0, 2), Range(2, 5), Range(9, 9)])]
    [(0, 7)]
    """
    out: list[Range] = []
    for one in sorted(r for r in ranges if r.start < r.end):
        if out and one.start <= out[-1].end:
            out[-1] = Range(out[-1].start, max(out[-1].end, one.end))
        else:
            out.append(one)
    return out


def gaps(held: Iterable[Range], wanted: Range) -> list[Range]:
    """The parts of a range that none of the held ones covers.

    Examples
    --------
    >>> [tuple(r) for r in gaps([Range(2, 4), Range(6, 8)], Range(0, 10))]
    [(0, 2), (4, 6), (8, 10)]
    """
    out, at = [], wanted.start
    for one in union(held):
        if one.end <= at:
            continue
        if one.start >= wanted.end:
            break
        if one.start > at:
            out.append(Range(at, one.start))
        at = one.end
    if at < wanted.end:
        out.append(Range(at, wanted.end))
    return out


def held(pieces: Iterable[Claim]) -> list[Range]:
    """Ranges that were asked and answered, whatever came."""
    return union(p.range for p in pieces if p.state != CoverageState.MISSING)
