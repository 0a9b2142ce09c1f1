"""Reports on the readings of the interface (choices that it leaves open) that a service follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marketdata.display import html_table
from marketdata.times import Range

# The first answer to each question is the one of this library.
READINGS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "label": ("what t names", {"start": "the start of the bucket", "end": "the end of the bucket"}),
    "averages": (
        "what a mean is taken over",
        {
            "points": "points of the finest resolution",
            "means": "means of the next finer resolution",
            "last": "the last one",
        },
    ),
    "books": ("which book of a bucket is given", {"last": "the last one", "first": "the first one"}),
    "empty": (
        "what an empty bucket has",
        {"absent": "no point", "null": "a point without a value", "previous": "the value before it"},
    ),
    "limit": ("what limit counts", {"points": "points: label x bucket", "times": "distinct times"}),
}


@dataclass(frozen=True)
class Finding:
    """The choice that a service follows in one of `READINGS` (None: undecidable), and the evidence."""

    reading: str
    found: str | None
    evidence: str

    @property
    def state(self) -> str:
        """followed, variant or not decidable."""
        if self.found is None:
            return "not decidable"
        return "followed" if self.found == next(iter(READINGS[self.reading][1])) else "variant"

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Reading, question, state, what was found in words, and evidence."""
        question, choices = READINGS[self.reading]
        meaning = f"{' or '.join(map(repr, choices))}?" if self.found is None else choices[self.found]
        state = f"variant {self.found!r}" if self.state == "variant" else self.state
        return self.reading, question, state, meaning, self.evidence

    def __str__(self) -> str:
        reading, question, state, meaning, evidence = self.cells
        return f"{reading:<9} {state}: {question}: {meaning} ({evidence})"


@dataclass(frozen=True)
class ServiceTable:
    """Facts about a service by name, as text and mapping."""

    rows: Mapping[str, str]

    def __str__(self) -> str:
        width = max(map(len, self.rows), default=0)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in self.rows.items())


@dataclass(frozen=True)
class Verification:
    """The readings that a service follows, one finding per reading, as text and HTML."""

    market: str
    rng: Range
    fine: str
    coarse: str
    findings: tuple[Finding, ...]
    service: ServiceTable = field(default_factory=lambda: ServiceTable({}))
    refused: Mapping[str, str] = field(default_factory=dict)
    """The views that the plan does not allow, and what the service says."""

    @property
    def followed(self) -> bool:
        """Whether every reading is decided and followed."""
        return all(f.state == "followed" for f in self.findings)

    @property
    def variants(self) -> dict[str, str]:
        """The readings that the service does not follow, and what it does instead."""
        return {f.reading: f.found for f in self.findings if f.state == "variant" and f.found}

    @property
    def undecided(self) -> tuple[str, ...]:
        """The readings that this data cannot decide."""
        return tuple(f.reading for f in self.findings if f.found is None)

    def __getitem__(self, reading: str) -> Finding:
        return {f.reading: f for f in self.findings}[reading]

    @property
    def _title(self) -> str:
        return f"Readings of {self.market}, {self.fine} against {self.coarse}, {self.rng}"

    def __str__(self) -> str:
        lines = [f"{self._title}:", *(f"  {f}" for f in self.findings)]
        lines += [f"  {view} could not be checked: {said}" for view, said in self.refused.items()]
        return "\n".join([*lines, *([f"The service:\n{self.service}"] if self.service.rows else [])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(f.reading, "; ".join(f.cells[1:])) for f in self.findings]
        return html_table([(self._title, ""), *rows])
