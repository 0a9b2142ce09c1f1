"""What the markets of an event claim, in order: by columns that say it, by fields of a venue, or by their questions.

Words prove an order only where the questions are equal but for one number, or for the day by which it must happen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from marketdata.errors import NotTidyError
from marketdata.points.claims import COMPARISONS, FIRST, LAST, Border, Claim, Event, Of
from marketdata.points.mirrors import label_rank
from marketdata.points.records import truth
from marketdata.times import to_micros
from marketdata.wire.terms import KALSHI_STRIKES, comparison_of, denies, subject_of

Record = Mapping[str, Any]
EVENT_IDS = ("event_id", "event_slug")
EXCLUSIVE = ("exclusive", "negRisk", "neg_risk")
OPEN_LIST = ("open_list", "negRiskAugmented", "neg_risk_augmented")
_TEXTS = ("question", "title", "subtitle", "yes_sub_title", "groupItemTitle", "group_item_title")
_CLAIMING = (
    *_TEXTS, "strike", "comparison", "deadline", "floor_strike", "cap_strike", "strike_type", "tokens", *EXCLUSIVE,
    *OPEN_LIST,
)  # fmt: skip
REMEDY = (
    "Add columns to the records: strike and comparison ('>', '>=', '<' or '<=') where they ask for a number, or "
    "deadline where they ask whether something happens by a time. floor_strike, cap_strike and "
    "strike_type='between' name a range. Or leave the records of the event out."
)


class _Range(NamedTuple):
    """Of what a market asks, and between which borders it pays."""

    of: Of
    low: Border
    high: Border


def event_of(name: str, records: Sequence[Record]) -> Event:
    """The event of the records of its markets; NotTidyError where nothing says their order, or records contradict."""
    own = [_own(record) for record in records]
    if any(own):
        lacking = [record for record, found in zip(records, own, strict=True) if found is None]
        if lacking:
            raise _unknown(
                name, f"of {name_of(lacking[0])!r} nothing says it, and of {len(own) - len(lacking)} it is said"
            )
        found = [one for one in own if one is not None]
    else:
        found = _of_questions(name, records)
    if len({one.of for one in found}) > 1:
        raise _unknown(name, "some markets ask for a number, and others for a time")
    claims = sorted(
        (
            Claim(name_of(record), _tokens(record), one.low, one.high)
            for record, one in zip(records, found, strict=True)
        ),
        key=lambda claim: (claim.border or claim.low, claim.high),
    )
    exclusive, open_list = (_flag(name, records, names) for names in (EXCLUSIVE, OPEN_LIST))
    pairs = [*combinations(claims, 2)]
    if all(one.border for one in claims) and exclusive is not True:
        if double := next((pair for pair in pairs if pair[0].border == pair[1].border), None):
            raise NotTidyError(
                f"Markets {double[0].market!r} and {double[1].market!r} of event {name!r} have one border, "
                f"{double[0].border}; leave the record of one out."
            )
        return Event(name, found[0].of, tuple(claims), is_nested=True, is_whole=True)
    if overlapping := next((pair for pair in pairs if not pair[0].excludes(pair[1])), None):
        said = (
            "exclude each other, by the records" if exclusive else "are in no order of which one follows from the next"
        )
        raise NotTidyError(
            f"The markets of event {name!r} {said}, but {overlapping[0].market!r} and {overlapping[1].market!r} may "
            "both come true. Correct exclusive, or strike and comparison, in the records."
        )
    if exclusive is not True:
        raise NotTidyError(
            f"The markets of event {name!r} are ranges, and no record says that exactly one of them comes true. Where "
            "you know it, add exclusive=True and open_list=False to the records."
        )
    if open_list is None:
        raise NotTidyError(
            f"The records of event {name!r} lack open_list: whether an outcome without a market may win. Where you "
            "know that the markets are all of its outcomes, add open_list=False."
        )
    return Event(name, found[0].of, tuple(claims), is_nested=False, is_whole=not open_list)


def _own(record: Record) -> _Range | None:
    """What the columns of a user, or the fields of a venue, say of one market."""
    if record.get("deadline") is not None:
        return _Range("deadline", FIRST, (to_micros(record["deadline"], "deadline", is_data=True), 0))
    named = str(record.get("comparison") or record.get("strike_type") or "")
    comparison = KALSHI_STRIKES.get(named, named)
    floor, cap = (_number(record, one) for one in ("floor_strike", "cap_strike"))
    strike = _number(record, "strike")
    if comparison == "between" and floor is not None and cap is not None:
        return _Range("strike", (floor, 0), (cap, 1))
    if comparison in COMPARISONS:
        end = COMPARISONS[comparison][0]
        said = comparison_of(_every_text(record))
        if said is not None and said in COMPARISONS and COMPARISONS[said][0] != end and not denies(_every_text(record)):
            raise NotTidyError(
                f"Market {name_of(record)!r} is {named} by its columns, and its question {_every_text(record)!r} says "
                f"{said}; correct comparison, or the question."
            )
        value = strike if strike is not None else floor if end == "low" else cap
        if value is not None:
            return _compared(comparison, value)
    if strike is not None or record.get("comparison") is not None:
        raise NotTidyError(
            f"Market {name_of(record)!r} has strike {record.get('strike')!r} and comparison "
            f"{record.get('comparison')!r}; allowed are a number and one of {', '.join(COMPARISONS)}. A range has "
            "floor_strike, cap_strike and strike_type='between'."
        )
    return None


def _compared(comparison: str, value: float) -> _Range:
    end, after = COMPARISONS[comparison]
    border = (value, after)
    return _Range("strike", border, LAST) if end == "low" else _Range("strike", FIRST, border)


def _of_questions(name: str, records: Sequence[Record]) -> list[_Range]:
    """What questions say that are equal but for one number or one deadline; NotTidyError where they do not."""
    texts = [[str(r.get("question") or r.get("title") or "") for r in records], [*map(_every_text, records)]]
    questions = texts[0] if len({*texts[0]}) > 1 else texts[1]
    subjects = [subject_of(text, record) for text, record in zip(questions, records, strict=True)]
    if len({(one.words, len(one.numbers), len(one.deadlines)) for one in subjects}) > 1 or not subjects[0].words:
        differ = next(
            (text for one, text in zip(subjects, questions, strict=True) if one.words != subjects[0].words), ""
        )
        raise _unknown(name, f"the questions {questions[0]!r} and {differ!r} differ in more than a number or a day")
    if any(map(denies, questions)):
        raise _unknown(name, f"the question {questions[0]!r} denies something")
    varying = [
        (of, column)
        for of, columns in (
            ("strike", zip(*(one.numbers for one in subjects), strict=True)),
            ("deadline", zip(*(one.deadlines for one in subjects), strict=True)),
        )
        for column in columns
        if len({*column}) > 1
    ]
    if len(varying) != 1:
        why = f"differ in {len(varying)} numbers and days" if varying else "do not differ in a number or a day"
        raise _unknown(name, f"the questions, such as {questions[0]!r}, {why}")
    of, column = varying[0]
    if of == "deadline":
        return [_Range("deadline", FIRST, (time, 0)) for time in column]
    comparison = comparison_of(questions[0])
    if comparison is None or comparison not in COMPARISONS:
        raise _unknown(name, f"the question {questions[0]!r} does not say whether above or below its number")
    return [_compared(comparison, value) for value in column]


def _every_text(record: Record) -> str:
    return " ".join(dict.fromkeys(str(record[name]).strip() for name in _TEXTS if record.get(name)))


def _flag(event: str, records: Sequence[Record], names: Sequence[str]) -> bool | None:
    """What the records of an event say of it; NotTidyError if they differ."""
    said = {truth(n, record[n]) for record in records for n in names if record.get(n) is not None}
    if len(said) > 1:
        raise NotTidyError(f"Records of event {event!r} differ in {names[0]}; it is of the event.")
    return said.pop() if said else None


def _number(record: Record, name: str) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise NotTidyError(f"{name} of market {name_of(record)!r} is {value!r}; allowed are numbers.")
    return number


def _tokens(record: Record) -> tuple[str, ...]:
    """The tokens of a market, Yes first; NotTidyError unless they are two."""
    tokens = [(str(token.get("id")), token.get("label")) for token in record.get("tokens") or ()]
    if len(tokens) != 2:
        raise NotTidyError(
            f"Market {name_of(record)!r} has {len(tokens)} tokens; what it claims is paid by the first of two."
        )
    said_last = [label_rank(label)[0] for _, label in tokens]
    return tuple(token for token, _ in (reversed(tokens) if said_last[0] > said_last[1] else tokens))


def name_of(record: Record) -> str:
    """The id of the market of a record."""
    return str(record.get("id", record.get("market_id")))


def _unknown(event: str, why: str) -> NotTidyError:
    return NotTidyError(f"The order of the markets of event {event!r} is not known: {why}.", hint=REMEDY)


def by_event(records: Sequence[Record]) -> Iterator[tuple[str, list[Record]]]:
    """The records of each event of two markets or more, one a market."""
    groups: dict[str, dict[str, Record]] = {}
    for record in records:
        event = next((record[name] for name in EVENT_IDS if record.get(name) is not None), None)
        if event is not None:
            first = groups.setdefault(str(event), {}).setdefault(name_of(record), record)
            if any(first.get(name) != record.get(name) for name in _CLAIMING):
                raise NotTidyError(f"Market {name_of(record)!r} has two records that differ; keep the right one.")
    yield from ((event, [*markets.values()]) for event, markets in sorted(groups.items()) if len(markets) > 1)
