"""Units of times and prices, which the values of a whole file prove or deny."""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.columns import Floats
from marketdata.times import SECOND, parse_iso, to_micros

# Numbers are times since 2015 only, as they may be others. A date that is written out may be older: the first market
# with public data opened in 1988. No recording comes from the far future.
_FIRST, _FIRST_DATE = to_micros("2015-01-01", "start"), to_micros("1988-01-01", "start")
_LAST = to_micros("2100-01-01", "end")
# Dates as people write them.
_DATES = ("%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%y", "%d/%m/%y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y",
          "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%Y%m%d")  # fmt: skip
_TIMES_OF_DAY = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M:%S", "T%H:%M:%S")
_UNITS = {"s": (SECOND, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_MOST_WRONG = 0.5
_OFFSET = re.compile(r"\s+([+-]\d\d:?\d\d|Z)$")
# With dots the day is first everywhere; with slashes it depends on the country.
_DOTTED = re.compile(r"^(\d\d)\.(\d\d)\.(\d{4})\b")
# Decimal odds are from 1 on, most of a file are small, and few are whole.
_ODDS, _MOST_WHOLE = 10, 0.75
_FEW = 0.1
# Fewer different wrong prices are errors of a file, or one number that stands for a missing price.
_SEVERAL = 3
# Ends of names that say the unit of a price.
_SCALES = {"cents": 100.0, "cent": 100.0, "pct": 100.0, "percent": 100.0, "bps": 10_000.0}
PRICE_ENDS = tuple(_SCALES)
_NAMED = re.compile(rf"(?:_|(?<=[a-z]))({'|'.join(_SCALES)})$", re.IGNORECASE)


def is_probability(*names: str) -> pl.Expr:
    """Whether all of these prices of a row are from 0 to 1 or missing, as `points.probability` says."""
    return pl.all_horizontal(pl.col(name).is_between(0, 1).fill_null(value=True) for name in names)


class TimeUnit(NamedTuple):
    """The unit of a column of times: "iso", or the unit of Unix times.

    ``labelled`` is the unit of the column's type, if the values prove another unit. ``form`` is that of dates which are
    no ISO 8601.
    """

    name: str
    labelled: str | None = None
    form: str | None = None

    @classmethod
    def of(cls, values: pl.Series, form: str | None = None) -> TimeUnit | None:
        """The unit in which most values are times; None if there is none. Numbers are times since 2015 only."""
        values = values.drop_nulls()
        if form is not None and len(dates := _dates(values, form)):
            return cls("form", form=form) if dates.null_count() * 2 < len(dates) else cls.of(values)
        if isinstance(values.dtype, pl.Datetime):
            stated = values.dt.epoch("us")
            if not len(values) or stated.is_between(_FIRST_DATE, _LAST).sum() * 2 > len(values):
                return cls("datetime")
            unit = _unit_of(values.to_physical().cast(pl.Float64).to_numpy(), len(values))
            return None if unit is None else cls(unit, values.dtype.time_unit)
        if values.dtype == pl.Date:
            return cls("date")
        if values.dtype.is_nested() or values.dtype in (pl.Boolean, pl.Time, pl.Duration):
            return None
        texts = values if values.dtype.is_numeric() else values.cast(pl.String, strict=False).str.strip_chars()
        numbers = texts.cast(pl.Float64, strict=False).drop_nulls().drop_nans().to_numpy()
        if unit := _unit_of(numbers, len(values)):
            return cls(unit)
        if values.dtype.is_numeric():
            return None
        some = texts.head(200).to_list()
        return cls("iso") if sum(_iso(text) is not None for text in some) * 2 > len(some) else None

    @property
    def note(self) -> str | None:
        """The note of the report on a unit that differs from the one that the file states."""
        return self.labelled and f"times are labelled {self.labelled} and are {self.name}: all values prove it"

    def micros(self, values: pl.Series) -> pl.Series:
        """Times as microseconds UTC; null where a value is none, or a number before 2015."""
        first = _FIRST_DATE if self.name in ("form", "date", "datetime", "iso") else _FIRST
        if self.form is not None:
            found = _dates(values, self.form)
        elif self.name == "date":
            found = values.cast(pl.Datetime("us"), strict=False).dt.epoch("us")
        elif self.name == "datetime":
            found = values.dt.epoch("us")
        elif self.name == "iso":
            texts = values.cast(pl.String, strict=False).str.strip_chars()
            known = {text: _iso(text) for text in texts.unique().drop_nulls().to_list()}
            found = texts.replace_strict(known, default=None, return_dtype=pl.Int64)
        else:
            times, over = _UNITS[self.name]
            raw = values.to_physical() if isinstance(values.dtype, pl.Datetime) else values
            if not raw.dtype.is_numeric():
                raw = raw.cast(pl.String, strict=False).str.strip_chars()
            whole = raw.cast(pl.Int64, strict=False) if not raw.dtype.is_float() else None
            if whole is not None and whole.null_count() == raw.null_count():
                # Larger values would leave the range of the type.
                whole = whole.set(whole.abs() > (1 << 62) // times, None)
                found = whole * times // over
            else:
                scaled = (raw.cast(pl.Float64, strict=False) * times / over).round()
                found = scaled.set(~scaled.is_between(0, 2.0**62), None).cast(pl.Int64, strict=False)
        return found.set(~found.is_between(first, _LAST), None)


def _dates(values: pl.Series, form: str) -> pl.Series:
    """The times of texts in a form; null for another text."""
    if values.dtype.is_nested() or values.dtype.is_temporal():
        return pl.Series(values.name, [], dtype=pl.Int64)
    texts = values.cast(pl.String, strict=False).str.strip_chars()
    known = {text: _date(text, form) for text in texts.unique().drop_nulls().to_list()}
    return texts.replace_strict(known, default=None, return_dtype=pl.Int64)


def _date(text: str, form: str) -> int | None:
    """The time of a text in a form [microseconds]; None for another text."""
    try:
        moment = dt.datetime.strptime(text, form)  # noqa: DTZ007  without a zone it is UTC
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return to_micros(aware, "time_format")


def formats_of_dates(values: pl.Series) -> list[str]:
    """The option ``time_format=`` for each form of dates that all values may have, at most three."""
    if values.dtype.is_nested() or not len(values):
        return []
    texts = values.cast(pl.String, strict=False).str.strip_chars().head(200).to_list()
    forms = [date + time for time in _TIMES_OF_DAY for date in _DATES]
    found = [form for form in forms if all(_date(text, form) is not None for text in texts)]
    return [f"time_format={form!r}" for form in found[:3]]


def moments(texts: pl.Series) -> pl.Series:
    """Times of messages as microseconds, the unit of each by its magnitude; null if missing or before 2015."""
    whole = texts.cast(pl.Int64, strict=False)
    found = _by_magnitude(whole, whole // 1000)
    rest = texts.filter(whole.is_null() & texts.is_not_null())
    if len(rest):
        numbers = rest.cast(pl.Float64, strict=False)
        known = _by_magnitude(numbers, numbers / 1000).round().cast(pl.Int64, strict=False)
        iso = {text: _iso(text) for text in rest.filter(numbers.is_null()).unique().to_list()}
        known = known.fill_null(rest.replace_strict(iso, default=None, return_dtype=pl.Int64))
        found = found.scatter((whole.is_null() & texts.is_not_null()).arg_true(), known)
    return found.set(~found.is_between(_FIRST, _LAST), None)


def _by_magnitude(times: pl.Series, thousandths: pl.Series) -> pl.Series:
    """Unix times of any unit as microseconds."""
    unit, over = pl.col("unit"), pl.col("over")
    of_seconds = pl.when(unit < 10**11).then(unit * SECOND)
    scaled = of_seconds.when(unit < 10**14).then(unit * 1000).when(unit < 10**17).then(unit).otherwise(over)
    return pl.DataFrame({"unit": times, "over": thousandths}).select(scaled).to_series()


def _count_possible(micros: np.ndarray) -> int:
    return int(((micros >= _FIRST) & (micros < _LAST)).sum())


def _unit_of(values: Floats, count: int) -> str | None:
    """The unit in which most numbers are times since 2015."""
    possible = {name: _count_possible(values * times / over) for name, (times, over) in _UNITS.items()}
    best = max(possible, key=lambda name: possible[name])
    return best if possible[best] * 2 > count > 0 else None


def _iso(text: str) -> int | None:
    """The time of an ISO text, of a text that ends in UTC, or of a date; None for another text."""
    text = _DOTTED.sub(r"\3-\2-\1", _OFFSET.sub(r"\1", text.removesuffix(" UTC")))
    try:
        return parse_iso(text)
    except (ValueError, OverflowError):
        return None


def _are_small_cents(prices: Floats, what: str) -> bool:
    """Whether whole numbers are cents, few of them above 1; ConfigError if they may as well be prices of 0 and 1."""
    above = (prices > 1) & (prices <= 100)
    if not above.any() or (prices != np.rint(prices)).any():
        return False
    if above.sum() >= len(prices) * _FEW:
        return True
    raise ConfigError(
        f"{what} may be cents or prices of 0 and 1 with wrong rows: all are whole numbers, and {int(above.sum()):,} of "
        f"{len(prices):,} are above 1, such as {prices[above][0]:g}. Divide the column by 100, or take these rows out."
    )


class PriceUnit(NamedTuple):
    """The number that is 1 dollar in a file: 1, 100 where the whole file proves cents, or what names of columns say."""

    scale: float = 1.0
    is_named: bool = False

    @property
    def note(self) -> str | None:
        """The note of the report on cents."""
        if self.is_named:
            return f"prices are divided by {self.scale:g}, as the name of their column says"
        return "prices are cents: all values prove it" if self.scale != 1 else None

    @classmethod
    def named(cls, prices: Floats, name: str) -> PriceUnit | None:
        """The unit that a name such as ``price_cents`` says, None for another one; ConfigError if values deny it."""
        match = _NAMED.search(name)
        if match is None:
            return None
        scale = _SCALES[match[1].lower()]
        known = prices[np.isfinite(prices)]
        # Ticks are tenths of a cent.
        is_tick = np.abs(known * 10 - np.rint(known * 10)) < 1e-6
        is_probability = len(known) > 0 and known.max() <= 1 and not is_tick.all()
        if is_probability or (known > scale).sum() > len(known) * _MOST_WRONG:
            raise ConfigError(
                f"{name} says {match[1]}, and its values, such as {known[0]:g}, may be of another unit. Rename "
                "the column price if they are from 0 to 1, or divide it first."
            )
        return cls(scale, is_named=True)

    @classmethod
    def of(cls, prices: Floats, what: str = "price") -> PriceUnit:
        """Cents if all prices are from 0 to 100, most of them are above 1, and none is a fraction below 1.

        ConfigError if most prices are outside of 0 to 1 and are not proven to be cents.
        """
        known = prices[np.isfinite(prices)]
        above = known > 1
        if above.sum() <= len(known) * _MOST_WRONG and not _are_small_cents(known, what):
            outside = known[(known < 0) | above]
            if len(outside) > len(known) * _FEW and len(np.unique(outside)) >= _SEVERAL:
                raise ConfigError(
                    f"{len(outside):,} of {len(known):,} values of {what} are outside of 0 to 1, such as "
                    f"{outside[0]:g}, so they may be returns, another scale or two units in one column. Name another "
                    "column with columns={'price': ...}, or take these rows out."
                )
            return cls()
        possible = (known >= 0) & (known <= 100)
        fractions = (known > 0) & (known < 1)
        # A file of thousands may have a wrong row, which is left out.
        if fractions.any() or (~possible).sum() * 100 > len(known):
            raise ConfigError(
                f"{int(above.sum()):,} of {len(known):,} values of {what} are above 1, such as {known[above][0]:g}, "
                "and they are not all cents from 0 to 100. A price is a probability from 0 to 1: divide the column "
                "first, or name another one with columns={'price': ...}."
            )
        is_whole = known == np.rint(known)
        if is_whole.mean() < _MOST_WHOLE and known.min() >= 1 and np.median(known) < _ODDS:
            raise ConfigError(
                f"{what} may be decimal odds or cents: most values are small fractions above 1, such as "
                f"{known[above][0]:g}. A price is a probability from 0 to 1: write 1 / odds or cents / 100 into "
                "the column first."
            )
        return cls(100.0)

    def of_file(self, prices: Floats) -> Floats:
        """Prices as probabilities."""
        return prices if self.scale == 1 else np.round(prices / self.scale, 9)
