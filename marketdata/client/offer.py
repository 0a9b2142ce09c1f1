"""Resolutions and ranges that a service and a plan offer, and requests that they accept."""

from __future__ import annotations

import time
from typing import NamedTuple

from marketdata.errors import BadRequestError, ParameterError, PlanError, RequestError
from marketdata.fetch.source import Source
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, SECOND, Range, to_micros
from marketdata.vendors import INTERFACE, widths_in

_INTERFACE = [BucketWidth.of(name) for name in INTERFACE]


class Request(NamedTuple):
    """A range and resolution to request; ``target`` is the coarser one that is made of it, or None."""

    rng: Range
    resolution: BucketWidth
    target: BucketWidth | None


class Offer:
    """Resolutions and ranges, as the service is known to have them; each refusal teaches more."""

    def __init__(self, source: Source) -> None:
        self._source = source
        names = source.service.resolutions
        self._resolutions = None if names is None else [BucketWidth.of(name) for name in names]
        self._finest: BucketWidth | None = None  # that the plan allows, by a refusal
        self._earliest: int | None = None
        self._refuses_future = False

    def request(self, rng: Range, target: BucketWidth | None, *, clamp: bool) -> Request:
        """The request for a range and resolution; by default 1m, or the finest of a plan that lacks it."""
        width = self._resolution_for(target)
        start, end = rng
        if clamp and (earliest := self.earliest) is not None:
            # A minute more, as the window of a plan moves while requests are made.
            first = -(-(earliest + MINUTE) // width.micros) * width.micros
            start = max(start, first) if first < end else start
        if self._refuses_future:
            end = min(end, max(start + 1, self._now - MINUTE))
        return Request(Range(start, end), width, target if target is not None and target != width else None)

    def learn(self, error: RequestError, request: Request) -> None:
        """Take in why a request was refused."""
        if isinstance(error, PlanError):
            if error.minimum_resolution is not None:
                self._finest = BucketWidth.of(error.minimum_resolution)
            if error.earliest is not None:
                self._earliest = to_micros(error.earliest, "earliest")
        elif isinstance(error, BadRequestError | ParameterError) and "resolution" in error.detail.lower():
            named = [width for width in widths_in(error.detail) if width != request.resolution]
            self._resolutions = named or self._resolutions or _INTERFACE
        elif type(error) is BadRequestError and request.rng.end > self._now:
            self._refuses_future = True

    @property
    def resolutions(self) -> list[BucketWidth]:
        """The resolutions that service and plan have, the finest first."""
        limits = self._source.limits
        offered = {*(self._resolutions or _INTERFACE), *limits.resolutions}
        allowed = [width for width in offered if limits.allows(width)]
        finest = 0 if self._finest is None else self._finest.micros
        return sorted((width for width in allowed if width.micros >= finest), key=lambda width: width.micros)

    @property
    def earliest(self) -> int | None:
        """The first time that the plan allows [microseconds UTC], None if that is not known."""
        days = self._source.limits.history_days
        return self._earliest if days is None else self._now - round(days * DAY)

    def _resolution_for(self, target: BucketWidth | None) -> BucketWidth:
        """The resolution itself if the service may have it, else the finest from 1m on that divides it."""
        known = (*(self._resolutions or ()), *self._source.limits.resolutions)
        if target is not None and (self._resolutions is None or target in known):
            return target
        fine = [width for width in self.resolutions if target is None or width.divides(target)]
        finest = fine[0] if fine else target
        return next((width for width in fine if width.micros >= MINUTE), finest if target else None) or _INTERFACE[0]

    @property
    def _now(self) -> int:
        server = self._source.server_time
        return round((time.time() if server is None else server) * SECOND)
