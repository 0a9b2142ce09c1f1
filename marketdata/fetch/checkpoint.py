"""The report of a fetch, and the windows that remain: plain data that can be pickled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from marketdata.display import described, html_table
from marketdata.fetch.windows import Window
from marketdata.times import Range

_REPAIRS = frozenset({"levels_sorted", "null_side", "points_sorted", "duplicate_points", "outside_range"})
_LIMIT_REPAIRS = frozenset({"limit_raised", "limit_lowered"})
_COUNTED_ONCE = frozenset({"limit_clamped", "cursor_empty", "content_type_not_json"})
# Services may repeat the last row of a page on the next one, or have other limits.
_ALLOWED_IN_STRICT_MODE = frozenset({"duplicate_points", "limit_lowered"})
_TRUE_OF_REAL_MARKETS = frozenset(
    {"null_value", "crossed_book", "locked_book", "size_not_positive", "mean_of_hourly_points", "candles_of_minutes"}
)


@dataclass(repr=False)
class Report:
    """Repairs, diagnostics and cost of a fetch, as ``frame.md.report`` has them; see `marketdata.Client.books`.

    ``repairs`` (such as dropped duplicates), ``warnings`` (suspect data that was kept) and ``observed`` (null values,
    crossed books) are counts by name. ``left_out`` has the names of records that cannot be read, or that the service
    refused, by reason. The numbers are ``requests``, which include ``retries``, ``restarts`` (windows
    requested again), ``pages`` and ``points``.
    """

    repairs: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    observed: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    requests: int = 0
    retries: int = 0
    restarts: int = 0
    pages: int = 0
    points: int = 0

    def _values(self) -> Iterator[tuple[str, str]]:
        for name in ("requests", "retries", "restarts", "pages", "points"):
            yield name, f"{getattr(self, name):,}"
        for kind in ("repairs", "warnings", "observed"):
            yield from ((f"{kind}: {name}", f"{count:,}") for name, count in getattr(self, kind).items())
        yield from ((f"left out: {reason}", f"{len(names):,}") for reason, names in self.left_out.items())

    def __repr__(self) -> str:
        return described("Report of a fetch", self._values())

    def _repr_html_(self) -> str:
        return html_table(self._values())

    def leave_out(self, reason: str, name: str) -> None:
        """Note a record that is left out."""
        if name not in (names := self.left_out.setdefault(reason, [])):
            names.append(name)

    def leave_out_all(self, left_out: Mapping[str, Iterable[str]]) -> None:
        """Note records that are left out, by reason."""
        for reason, names in left_out.items():
            for name in names:
                self.leave_out(reason, name)

    def note(self, notes: Mapping[str, int]) -> list[str]:
        """Count diagnostics; return the names that strict mode refuses."""
        refused = []
        for name, count in notes.items():
            if name in _TRUE_OF_REAL_MARKETS or name.startswith("unknown_field:"):
                self.observed[name] += count
                continue
            refused += [] if name in _ALLOWED_IN_STRICT_MODE else [name]
            counts = self.repairs if name in _REPAIRS | _LIMIT_REPAIRS else self.warnings
            counts[name] = 1 if name in _COUNTED_ONCE else counts[name] + count
        return refused


@dataclass(frozen=True, repr=False)
class Resume:
    """The windows that remain to fetch, in order, for `marketdata.Client.resume`; has no key and no connection."""

    windows: tuple[Window, ...]

    @property
    def remaining(self) -> tuple[Range, ...]:
        """The range of each window [microseconds UTC]."""
        return tuple(w.rng for w in self.windows)

    def __repr__(self) -> str:
        return f"<Resume: {self}>"

    def __str__(self) -> str:
        texts = [f"{w.view} of {w.kind} {w.id} in {w.rng}" for w in self.windows[:3]]
        more = len(self.windows) - len(texts)
        return "; ".join(texts) + (f"; and {more} more" if more else "") if texts else "nothing"
