"""The order of pages in time, and what it proves: that all points before a time have arrived."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass
from itertools import chain

import numpy as np

from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Page, Token
from marketdata.points.views import VIEWS


def is_sorted(points: Data) -> bool:
    """Whether the points of each token are in order of time."""
    return not (points.steps() < 0).any()


class PageOrder:
    """What the pages of a window tell about their order.

    A venue may send its points in any order. Only in order of time does a page tell that all points before its last one
    have arrived. Two pages prove the order, and so does one page that begins with the window and ends with two tokens
    at one time.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._has_one_token = window.kind == "token" or not VIEWS[window.view].has_tokens
        self.is_kept = True  # as far as seen
        self.is_trusted = False  # whether other pages of this source have proven the order
        self.last = self.before = window.rng.start - 1  # the last point, and the last one of the page before
        self._tokens: set[Token] = set()  # those of the last page with points
        self._labels = 1  # the most that a page has
        self._filled = 0  # pages with points
        # Pages with two tokens of the page before: pages of one token after the other prove no order of time.
        self._side_by_side = 0
        self._first_is_whole = False  # whether the first page has all its tokens at its begin and at its end
        self._newest: deque[Data] = deque(maxlen=2)  # a bucket may be divided between two pages

    def see(self, points: Data, page: Page) -> None:
        """Take in the points of a page that lie in the range."""
        self.before = self.last
        self._labels = max(self._labels, len(page.labels))
        self._newest.append(points)
        if not len(points):
            return
        tokens = set(points.tokens)
        if self._filled:
            self.is_kept &= int(points.ts.min()) >= self.last
            self._side_by_side += self._has_one_token or len(tokens & self._tokens) > 1
        else:
            self._first_is_whole = bool(page.next_cursor) and self._is_whole(points)
        self._filled, self._tokens, self.last = self._filled + 1, tokens, max(self.last, int(points.ts.max()))

    def copy(self) -> PageOrder:
        """As it is now, whatever comes later."""
        other = copy(self)
        other._newest = self._newest.copy()  # noqa: SLF001
        return other

    @property
    def is_side_by_side(self) -> bool:
        """Whether the last page has points of two tokens, or there is only one."""
        return self._has_one_token or len(self._tokens) > 1

    @property
    def follow_each_other(self) -> bool:
        """Whether there are two pages or more, in order of time, each with tokens of the one before."""
        return self._filled > 1 and self._side_by_side == self._filled - 1

    @property
    def is_proven(self) -> bool:
        """Whether the pages are in order, and the order is proven: by others, by two of them, or by the only one."""
        by_one = self._filled == 1 and self._first_is_whole
        return self.is_kept and (self.is_trusted or self.follow_each_other or by_one)

    @property
    def reached(self) -> int:
        """The time before which all points have arrived if pages are in order."""
        width = self._window.resolution.micros
        at_last = (points.take(np.flatnonzero(points.ts == self.last)).tokens for points in self._newest)
        is_full = len(set(chain.from_iterable(at_last))) >= self._labels
        return self.last // width * width + width * is_full if self._filled else self._window.rng.start

    def _is_whole(self, points: Data) -> bool:
        """Whether points begin with the window, and have all of their tokens in its first bucket and at their end."""
        second_bucket = self._window.first_bucket + self._window.resolution.micros
        at_begin = points.between(self._window.first_bucket, second_bucket).tokens
        if int(points.ts.max()) < second_bucket or set(at_begin) != set(points.tokens) or not is_sorted(points):
            return False
        at_end = points.take(np.flatnonzero(np.isin(points.ts, np.unique(points.ts)[-2:]))).tokens
        return self._has_one_token or len(at_end) == len(points.tokens) > 1


@dataclass
class SourceOrder:
    """Whether pages of a source are in order of time, as far as its fetches have seen."""

    is_kept: bool = True
    is_proven: bool = False

    @property
    def is_known(self) -> bool:
        """Whether one page proves that all points before its end have arrived."""
        return self.is_kept and self.is_proven

    def see(self, pages: PageOrder) -> None:
        """Take in the pages of a window."""
        self.is_kept &= pages.is_kept
        self.is_proven |= pages.follow_each_other
