"""What a pull asks for: a base, and of each view the range that the plan of the key allows, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from marketdata.archive.coverage.intervals import CoverageState
from marketdata.archive.coverage.policy import MINUTE, whole_buckets
from marketdata.archive.feed import Feed
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError, ExpiredError, PlanError, PlanWarning, warn
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, Range, to_micros, to_text


class PullOptions(NamedTuple):
    """The options of `Archive.pull`; with ``needs_views`` a view that the plan lacks is an error."""

    resolution: str | None = None
    clamp: bool = False
    dry_run: bool = False
    refresh: bool = False
    progress: bool | None = None
    needs_views: bool = False


class LeftOut(NamedTuple):
    """Ranges of views that are not asked for, their state, and why."""

    ranges: Mapping[View, Range]
    state: CoverageState
    why: str

    def warn_of(self, views: Iterable[View]) -> None:
        """Warn about the ranges of some views."""
        who = "The venue no longer keeps" if self.state == CoverageState.EXPIRED else "The plan does not allow"
        warn(f"{who} {', '.join(sorted(views))} of a part of this pull: {self.why}", PlanWarning)


class PullPlan(NamedTuple):
    """What a pull asks for. It is made before the first request, and made again if the service refuses a part of it.

    ``is_base_open``: the archive has no base, and nobody named one. No service says beforehand which views a plan has,
    and not all say which resolutions and times, so a refusal may come. Each takes something away: there are few.
    """

    archive: str
    base: BucketWidth
    is_base_open: bool
    ranges: Mapping[View, Range] = MappingProxyType({})
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def of(cls, store: ArchiveStore, options: PullOptions) -> PullPlan:
        """The plan by the options of a pull alone; ConfigError for a resolution that is not the base."""
        base, is_open = store.base, store.stored_base is None and store.given_base is None
        if options.resolution is not None:
            named = BucketWidth.of(options.resolution)
            if not is_open and named != base:
                problem = f"is refused. {_stored(store.root, base)} Leave it out, or pull into a new archive."
                raise ConfigError(problem, argument="resolution", value=options.resolution)
            base, is_open = named, False
        return cls(store.root, base, is_open)

    def allowed(self, feed: Feed, options: PullOptions) -> PullPlan:
        """The plan with what the service says that the key allows: a base for a new archive, and with clamp a start."""
        plan = self._at(_finest(map(BucketWidth.of, feed.resolutions()), self.base)) if self.is_base_open else self
        earliest = feed.history_start() if options.clamp else None
        return plan if earliest is None else plan.clamped(earliest)

    def clamped(self, earliest: int) -> PullPlan:
        """The plan without what is before the history of the plan of the key."""
        # A minute more, because the history of a plan begins later with each minute that requests take.
        first = self._first_bucket(earliest + MINUTE)
        late = {view: rng for view, rng in self.ranges.items() if rng.start < first < rng.end}
        return self._from(first, late, CoverageState.NOT_ALLOWED, f"It reaches back to {to_text(first)}.")

    def after(self, refusal: PlanError, options: PullOptions, now: int) -> PullPlan:
        """The plan without what was refused: a view, a base, or what is before a time; else the refusal itself."""
        is_expired = isinstance(refusal, ExpiredError)
        refused = {view: rng for view, rng in self.ranges.items() if view == refusal.view}
        if refused and not is_expired and not options.needs_views:
            return self._without(refused, CoverageState.NOT_ALLOWED, refusal.problem)
        if (finest := refusal.minimum_resolution) is not None and BucketWidth.of(finest).micros > self.base.micros:
            if self.is_base_open:
                return self._at(BucketWidth.of(finest))
            hint = f"{_stored(self.archive, self.base)} Pull with resolution={finest!r} into a new archive."
            raise _hinted(refusal, hint)
        if (earliest := _earliest(refusal, now)) is None:
            raise refusal
        first = self._first_bucket(earliest)
        if not (options.clamp or is_expired):
            raise _hinted(refusal, f"Pull with clamp=True to start at {to_text(first)}, the earliest time it allows.")
        chosen = refused if is_expired and refused else self.ranges
        start, end = next(iter(chosen.values()))
        if is_expired and first >= end > start:
            first = end
        elif not start < first < end:
            raise refusal
        state = CoverageState.EXPIRED if is_expired else CoverageState.NOT_ALLOWED
        return self._from(first, chosen, state, refusal.problem)

    def _first_bucket(self, at: int) -> int:
        return whole_buckets(Range(at, at), self.base.micros).start

    def _at(self, base: BucketWidth) -> PullPlan:
        if base != self.base:
            warn(f"The plan allows {base} at finest, so that is the base of the new archive.", PlanWarning)
        return self._replace(base=base)

    def _without(self, refused: Mapping[View, Range], state: CoverageState, why: str) -> PullPlan:
        kept = {view: rng for view, rng in self.ranges.items() if view not in refused}
        return self._replace(ranges=kept, left_out=(*self.left_out, LeftOut(refused, state, why)))

    def _from(self, first: int, chosen: Mapping[View, Range], state: CoverageState, why: str) -> PullPlan:
        """The plan without the part of some ranges that is before a time."""
        if not chosen:
            return self
        early = {view: Range(rng.start, first) for view, rng in chosen.items()}
        late = {view: Range(first, rng.end) for view, rng in chosen.items()}
        return self._replace(ranges={**self.ranges, **late}, left_out=(*self.left_out, LeftOut(early, state, why)))


def _finest(widths: Iterable[BucketWidth], base: BucketWidth) -> BucketWidth:
    """The first width, of the finest first, that is no finer than a base; else the base."""
    return next((width for width in widths if width.micros >= base.micros), base)


def _earliest(refusal: PlanError, now: int) -> int | None:
    """The first time that a refusal names [microseconds]; None if it names none."""
    if refusal.earliest is not None:
        return to_micros(refusal.earliest, "earliest")
    return None if refusal.history_days is None else now - round(refusal.history_days * DAY)


def _stored(archive: str, base: BucketWidth) -> str:
    return f"The archive {archive!r} has base={base.text!r}."


def _hinted(problem: PlanError, hint: str) -> PlanError:
    """The error, which says what to do at the end of its message."""
    problem.args, problem.hint = (f"{problem.problem} {hint}",), hint
    return problem
