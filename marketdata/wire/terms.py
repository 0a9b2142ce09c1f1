"""The terms of a contract, as far as the fields and the words of a market record state them.

Words are read by fixed patterns. A text in which two of them disagree states nothing.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from marketdata.points.pairs import Terms
from marketdata.points.records import truth
from marketdata.times import DAY, first_time, to_micros
from marketdata.wire.records import as_list

_MONTHS = {name.casefold(): number for number, name in enumerate(calendar.month_name) if name}
_MONTHS |= {name.casefold(): number for number, name in enumerate(calendar.month_abbr) if name} | {"sept": 9}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DATE = re.compile(
    rf"(?P<iso>\d{{4}}-\d\d-\d\d)"
    rf"|(?P<month>{_MONTH})\.?(?: (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b)?(?:,? (?P<year>(?:19|20)\d\d)\b)?"
    rf"|(?P<day2>\d{{1,2}}) (?P<month2>{_MONTH})\.?(?:,? (?P<year2>(?:19|20)\d\d)\b)?"
    rf"|Q(?P<quarter>[1-4]),? (?P<year4>(?:19|20)\d\d)\b"
    rf"|(?<![$€£])(?P<year3>(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
# What a word before a date makes of it: the start of the period that the date names, or its end.
_LIMITS = {
    "on or before": "end", "no later than": "end", "by the end of": "end", "by end of": "end", "through": "end",
    "during": "end", "before": "start", "prior to": "start", "by": "day's end", "in": "end", "on": "day's end",
}  # fmt: skip
# The words before a date by which something happens that may happen earlier too.
_NESTING = ("on or before", "no later than", "by the end of", "by end of", "through", "before", "prior to", "by")
_LIMITED = re.compile(
    rf"\b({'|'.join(sorted(_LIMITS, key=len, reverse=True))}) (?:the )?(?={_DATE.pattern})", re.IGNORECASE
)
# A venue may schedule the end of a market so long before the day that its question names.
_LATEST = 45 * DAY
_CLOCK = re.compile(
    r"\b\d{1,2}(?::\d\d){1,2}(?: ?[ap]\.?m\.?)?(?: ?[A-Z]{2,4}\b)?|\b\d{1,2} ?[ap]\.?m\.?\b", re.IGNORECASE
)
_TIME_OF_DAY = re.compile(
    r"\b(?P<hour>[01]?\d|2[0-3])(?::(?P<minute>[0-5]\d)(?::[0-5]\d)?(?: ?(?P<half>[ap])\.?m\b\.?)?"
    r"| ?(?P<half2>[ap])\.?m\b\.?)(?: ?(?P<zone>UTC|GMT|[ECMP][SD]?T)\b)?",
    re.IGNORECASE,
)
_SCALES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "b": 1e9, "bn": 1e9, "billion": 1e9,
           "t": 1e12, "trillion": 1e12, "bps": 0.01, "bp": 0.01, "basis points": 0.01}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.])(?P<sign>-)?[$€£]?(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    rf" ?(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})?(?![\w])",
    re.IGNORECASE,
)
_COMPARISONS = {
    ">=": r"at or above|at least|or (?:more|higher|above|greater|over)\b|greater than or equal|≥|>=|no less than",
    "<=": r"at or below|at most|or (?:less|lower|below|fewer|under)\b|less than or equal|≤|<=|no more than",
    ">": r"\b(?:above|over|exceeds?|exceeding)\b|(?:more|greater|higher) than(?! or equal)|>(?!=)",
    "<": r"\b(?:below|under)\b|(?:less|lower|fewer) than(?! or equal)|<(?!=)",
    "between": r"\bbetween\b",
}
KALSHI_STRIKES = {"greater": ">", "greater_or_equal": ">=", "less": "<", "less_or_equal": "<=", "between": "between"}
_TIE = r"(?:\b(?:tie|tied|ties|draw|drawn|cancel\w*|postpone\w*|abandon\w*|void\w*)\b|no winner)"
_TIES = {
    "half": r"50[-/ ]50|\bhalf\b|0\.50?\b|50 ?(?:cents|%)",
    "no": r"(?:resolves?|resolved?|settles?) (?:to )?[\"'“]?no\b",
    "yes": r"(?:resolves?|resolved?|settles?) (?:to )?[\"'“]?yes\b",
    "refund": r"\brefund|last traded price|fair market (?:price|value)",
}
_DOMAIN = re.compile(r"https?://(?:www\.)?([\w.-]+)|^(?:www\.)?([\w-]+(?:\.[\w-]+)*\.[a-z]{2,})(?:/|$)", re.IGNORECASE)
_SOURCES = ("resolutionSource", "resolution_source", "settlement_sources", "settlement_source")
_RULES = ("description", "rules", "rules_primary", "rules_secondary")
_NAMES = ("question", "title", "subtitle", "yes_sub_title", "groupItemTitle")
_DENIALS = re.compile(
    r"\b(?:not|no|never|without|fails?|lose|loses|lost|miss|misses|rejects?|rejected)\b|n't\b|\bnot\b", re.IGNORECASE
)
# "No later than" is a limit, and "No. 1" a rank.
_NO_DENIALS = re.compile(
    r"\bnot? (?:later|earlier|sooner|longer|more|less|fewer|higher|lower|greater) than\b|\bno\. ?\d", re.IGNORECASE
)


def terms_of(record: Mapping[str, Any]) -> Terms:
    """The terms of a record in our names; fields of its venue are read beside them."""
    question = " ".join(dict.fromkeys(str(record[name]).strip() for name in _NAMES if record.get(name)))
    rules = " ".join(str(record[name]).strip() for name in _RULES if record.get(name))
    tokens = [token for token in record.get("tokens") or () if isinstance(token, Mapping)]
    ids, labels = (tuple(str(token.get(name)) for token in tokens) for name in ("id", "label"))
    deadline = first_time(record, "end_date", "ends_at")
    strikes, comparison = _strike(record, question, rules)
    return Terms(
        market=str(record.get("id", record.get("market_id"))),
        question=str(record.get("question") or record.get("title") or ""),
        tokens=ids,
        labels=labels,
        cutoff=_only(_cutoffs(question, deadline)) or _only(_cutoffs(rules, deadline)),
        clock=_clock(question),
        deadline=deadline,
        closed_at=first_time(record, "closed_at"),
        sources=_sources(record, rules),
        rules=words_of(rules),
        strikes=strikes,
        comparison=comparison,
        tie=_only(_ties(rules)),
        exclusive=_exclusive(record),
        denies=denies(question),
        payoffs=_payoffs(record, ids),
    )


class Subject(NamedTuple):
    """A question in which the numbers, and the days by which it must happen [microseconds], are not among the words."""

    words: str
    numbers: tuple[float, ...]
    deadlines: tuple[int, ...]


def subject_of(text: str, record: Mapping[str, Any]) -> Subject:
    """The subject of a text of a record, such as its question."""
    scheduled = first_time(record, "end_date", "ends_at")
    deadlines: list[int] = []
    rest, at = "", 0
    for limit in _LIMITED.finditer(text):
        date = _DATE.match(text, limit.end())
        end = None if date is None else _limit(limit[1], _period(date, scheduled))
        if date is not None and end is not None and limit.start() >= at and limit[1].casefold() in _NESTING:
            deadlines.append(end)
            rest, at = f"{rest}{text[at : limit.start()]} $$ ", date.end()
    rest += text[at:]
    # Other dates are words, with their numbers.
    dates = [date.span() for pattern in (_DATE, _CLOCK) for date in pattern.finditer(rest)]
    found = [
        match
        for match in _NUMBER.finditer(rest)
        if not any(start < match.end() and match.start() < end for start, end in dates)
    ]
    numbers = tuple(map(_number, found))
    for match in reversed(found):
        rest = f"{rest[: match.start()]} %% {rest[match.end() :]}"
    return Subject(words_of(rest), numbers, tuple(deadlines))


def comparison_of(text: str) -> str | None:
    """How a text compares the quantity that it asks for with its number; None where it does not say one way."""
    said = {*_comparisons(_without_dates(text))}
    return said.pop() if len(said) == 1 else None


def denies(text: str) -> bool:
    """Whether a text asks that something does not happen."""
    return len(_DENIALS.findall(_NO_DENIALS.sub(" ", text))) % 2 == 1


def words_of(text: str) -> str:
    """A text without case and signs, its words apart by one space."""
    return " ".join(re.findall(r"[\w.%$-]+", text.casefold())).replace(". ", " ").rstrip(".")


def _only(found: Iterable[Any]) -> Any:
    """What is found, if it is one thing."""
    different = {*found}
    return different.pop() if len(different) == 1 else None


def _cutoffs(text: str, deadline: int | None) -> Iterator[int]:
    """The ends of the times that a text names: "before 1 April" ends as 1 April begins, "by 1 April" as it ends."""
    for limit in _LIMITED.finditer(text):
        date = _DATE.match(text, limit.end())
        if date is not None and (end := _limit(limit[1], _period(date, deadline))) is not None:
            yield end


def _limit(word: str, period: tuple[int, int, bool] | None) -> int | None:
    """The end of the time that a word before a period names; None if the words do not say it."""
    if period is None:
        return None
    first, last, is_day = period
    end = _LIMITS[word.casefold()]
    # "by March" is the start of March for one reader, and its end for another.
    return None if end == "day's end" and not is_day else first if end == "start" else last


def _clock(text: str) -> tuple[tuple[int, str], ...]:
    """The times of day that a text names: minutes after midnight, and the zone in small letters, if one is named."""
    found: set[tuple[int, str]] = set()
    for time in _TIME_OF_DAY.finditer(text):
        hour, half = int(time["hour"]), (time["half"] or time["half2"] or "").casefold()
        if not half or 1 <= hour <= 12:
            hour = hour % 12 + 12 * (half == "p") if half else hour
            found.add((60 * hour + int(time["minute"] or 0), (time["zone"] or "").casefold()))
    zone = _only(zone for _, zone in found if zone) or ""
    return tuple(sorted((minutes, own or zone) for minutes, own in found))


def _period(date: re.Match[str], deadline: int | None) -> tuple[int, int, bool] | None:
    """The start and the end of what a date names, and whether it is a day; None if its year is not known."""
    if date["iso"]:
        try:
            day = dt.date.fromisoformat(date["iso"])
        except ValueError:
            return None
        return to_micros(day, "date"), to_micros(day + dt.timedelta(days=1), "date"), True
    if date["quarter"]:
        year, quarter = int(date["year4"]), int(date["quarter"])
        after = dt.date(year + quarter // 4, 3 * (quarter % 4) + 1, 1)
        return to_micros(dt.date(year, 3 * quarter - 2, 1), "date"), to_micros(after, "date"), False
    if date["year3"]:
        year = int(date["year3"])
        return to_micros(dt.date(year, 1, 1), "date"), to_micros(dt.date(year + 1, 1, 1), "date"), False
    month = _MONTHS[(date["month"] or date["month2"]).casefold()]
    named, number = date["year"] or date["year2"], date["day"] or date["day2"]
    if named is None and deadline is None:
        return None
    if named is not None:
        return _dates(int(named), month, number)
    assert deadline is not None
    year = dt.datetime.fromtimestamp(deadline / 1e6, dt.UTC).year
    known = [period for one in (year, year - 1) if (period := _dates(one, month, number)) is not None]
    # A market that ends on the 1 January asks for 31 December of the year before.
    return next((period for period in known if period[1] <= deadline + _LATEST), known[0] if known else None)


def _dates(year: int, month: int, day: str | None) -> tuple[int, int, bool] | None:
    """The start and the end of a month, or of a day of it, and whether it is a day; None if there is no such day."""
    try:
        first = dt.date(year, month, int(day or 1))
    except ValueError:
        return None
    after = first + dt.timedelta(days=1 if day else calendar.monthrange(year, month)[1])
    return to_micros(first, "date"), to_micros(after, "date"), bool(day)


def _without_dates(text: str) -> str:
    return _CLOCK.sub(" ", _DATE.sub(" ", text))


def _strike(record: Mapping[str, Any], question: str, rules: str) -> tuple[frozenset[float], str | None]:
    """The numbers of a question and how they are compared: of the fields of the venue, else of the words."""
    fields = frozenset(float(record[n]) for n in ("floor_strike", "cap_strike") if _is_number(record.get(n)))
    named = frozenset(_numbers(_without_dates(question)))
    said = comparison_of(question) or comparison_of(rules)
    stated = KALSHI_STRIKES.get(str(record.get("strike_type")))
    if stated and said and stated != said:
        said = stated = None
    return fields or named, stated or said


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(text: str) -> Iterator[float]:
    yield from map(_number, _NUMBER.finditer(text))


def _number(match: re.Match[str]) -> float:
    scale = _SCALES.get((match["scale"] or "").casefold(), 1.0)
    return float(match["number"].replace(",", "")) * scale * (-1 if match["sign"] else 1)


def _comparisons(text: str) -> Iterator[str]:
    rest = text
    for sign, pattern in _COMPARISONS.items():  # "at or above" first, which has "above" in it
        if re.search(pattern, rest, re.IGNORECASE):
            yield sign
            rest = re.sub(pattern, " ", rest, flags=re.IGNORECASE)


def _ties(rules: str) -> Iterator[str]:
    """What the sentences say that speak of a tie, or of an event that does not take place."""
    for sentence in re.split(r"(?<=[.;])\s+(?=[A-Z\"'“])|\n+", rules):
        if re.search(_TIE, sentence, re.IGNORECASE):
            yield from (name for name, pattern in _TIES.items() if re.search(pattern, sentence, re.IGNORECASE))


def _sources(record: Mapping[str, Any], rules: str) -> frozenset[str]:
    """Who says what happened: the site without its ending, from the fields, else from addresses in the rules."""
    given = [record.get(name) for name in _SOURCES]
    texts = [text for value in given for text in _texts(value)]
    found = {_site(match) for text in texts for match in _DOMAIN.finditer(text)}
    return frozenset(found or {_site(match) for match in _DOMAIN.finditer(rules)})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (str(value[name]) for name in ("url", "link") if value.get(name))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        yield from (text for one in as_list(value, objects=True) or () for text in _texts(one) if one != value)
    elif value:
        yield str(value)


def _site(match: re.Match[str]) -> str:
    parts = (match[1] or match[2]).casefold().strip(".").split(".")
    short = 3 if len(parts) > 2 and parts[-2] in ("co", "com", "gov", "org", "ac") else 2
    return parts[-short] if len(parts) >= short else parts[0]


def _exclusive(record: Mapping[str, Any]) -> bool | None:
    names = ("exclusive", "negRisk", "neg_risk", "mutually_exclusive")
    said = {truth(name, record[name]) for name in names if record.get(name) is not None}
    return said.pop() if len(said) == 1 else None


def _payoffs(record: Mapping[str, Any], ids: tuple[str, ...]) -> tuple[float | None, ...]:
    if record.get("payoffs"):
        return tuple(None if one is None else float(one) for one in record["payoffs"])
    won = record.get("resolved_token_id")
    return tuple(float(token == won) for token in ids) if won in ids else ()
