"""Errors and warnings, as plain data: none refers to a request, a session, a response or a key.

::

    MarketDataError
      ConfigError               base_url, key, range or argument refused before any request
        GridError               times of no buckets of the width; also a NotTidyError
      RequestError              the service refused: status, detail, url
        BadRequestError         400: minimum, maximum
          LimitTooSmallError    the page cannot hold one bucket
          TooManyTokensError    more than 200 tokens: use the token calls
          CursorRejectedError   the cursor is expired or unknown
        AuthenticationError     401
        PlanError               403: minimum_resolution, view, history_days, earliest
          ExpiredError          the venue no longer keeps data as fine as this
        NotFoundError           404
        ParameterError          422: problems
        RateLimitError          429: retry_at
        ServerError             5xx
      NetworkError              the network failed before the response was complete
        RedirectError           the answer points elsewhere; it is never followed
        PayloadTooLargeError    the answer is larger than any page can be
      ContractError             an answer off the interface
        PaginationStalledError  the cursor does not advance
      NotTidyError              a frame without the columns a rule needs
      ArchiveError
        NotArchivedError        the archive does not have it: range
        ArchiveCorruptError     stored bytes are not what was written
        ArchiveBusyError        another process is writing the range
        ArchiveFullError        no space, or no right, to write
    MarketDataWarning
      UnweightedMeanWarning     means of unknown weight were averaged again
      CoarseGridWarning         all times look like buckets wider than those named, but it may be chance
      LeftOutWarning            columns that cannot be averaged were left out
      ServiceOddityWarning      the data looks odd
      EmptyRangeWarning         the range lies before or after the life of the market
      UnsoldWarning             exits did not sell all their shares
      ReusedDepthWarning        orders take the same resting shares again
      OverdrawnWarning          an account spends more than it has
      LookAheadWarning          a study trades with what nobody could have traded with
      PartialCoverageWarning    the archive has only a part of the range
      PlanWarning               the plan does not allow a part of what was asked
      RecordingWarning          a recording contradicts itself, or part of it cannot be read
      OpenMarketsWarning        scores leave out markets that are open
      MissingValuesWarning      a result leaves out many rows, without a value or a book
      FewMarketsWarning         an interval rests on too few markets
      MixedLabelsWarning        the tokens that stand for their markets have different labels
      MissingRecordsWarning     markets of a frame have no record
      PairWarning               pairs of markets are not known to be the same contract
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

DISTRIBUTION = "prediction-marketdata"  # what pip installs; `marketdata` on the package index is another project


class MarketDataError(Exception):
    """Base of every error of this library; the message is the problem, then the hint, what to do in Python.

    ``argument`` is the name of a wrong argument, ``attempts`` the number of requests, ``partial`` the rows that had
    arrived, ``resume`` what ``client.resume`` takes to continue after them, ``market`` the one of several that it is
    about; None where it does not apply.
    """

    attempts: int | None = None
    market: str | None = None
    partial: Any = None
    resume: Any = None

    def __init__(self, problem: str = "", *, argument: str | None = None, hint: str = "") -> None:
        super().__init__(f"{problem} {hint}" if hint else problem)
        self.argument = argument
        self.hint = hint

    @property
    def problem(self) -> str:
        """The message without the hint."""
        # Derived: where a key is removed from the message, no second text still has it.
        return str(self).removesuffix(self.hint).rstrip()


class ConfigError(MarketDataError, ValueError):
    """A base_url, key, range or argument was refused before any request: ``argument=value problem``.

    ``value`` is its text, cut to 60 characters, empty where it may be a secret.
    """

    def __init__(self, problem: str = "", *, argument: str | None = None, value: object = ..., hint: str = "") -> None:
        text = "" if value is ... else repr(value)
        self.value = text if len(text) <= 60 else text[:57] + "..."
        self._shown = f"{argument}={self.value} " if self.value else f"{argument} " if argument else ""
        super().__init__(f"{self._shown}{problem}", argument=argument, hint=hint)

    @property
    def problem(self) -> str:
        """The message without the argument and the hint."""
        return super().problem.removeprefix(self._shown)


class RequestError(MarketDataError):
    """The service refused: ``status`` (HTTP), ``detail``, its full text, and ``url``, without key and query."""

    def __init__(
        self,
        problem: str = "",
        *,
        status: int | None = None,
        detail: str = "",
        url: str | None = None,
        argument: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(problem, argument=argument, hint=hint)
        self.status = status
        self.detail = detail
        self.url = url


class BadRequestError(RequestError):
    """400: the service refused a timestamp, limit, cursor or market constraint.

    ``minimum`` and ``maximum`` are the page limits that the service names, or None.
    """

    minimum: int | None = None
    maximum: int | None = None


class LimitTooSmallError(BadRequestError):
    """The page limit cannot hold one bucket; ``minimum`` is the smallest that the service names, or None."""


class TooManyTokensError(BadRequestError):
    """The market has more tokens than one page may have; request token by token."""


class CursorRejectedError(BadRequestError):
    """The cursor is expired, or was never given for this request."""


class AuthenticationError(RequestError):
    """401: the key is missing, invalid or expired."""


class PlanError(RequestError):
    """403: the plan of the key does not allow this data, resolution or range.

    ``minimum_resolution`` is the finest that the plan allows ("10m"), ``view`` the view that it lacks ("books"),
    ``history_days`` how far back it reaches, ``earliest`` the first time that it allows [UTC datetime]. None stands for
    what the text of the service does not say.
    """

    minimum_resolution: str | None = None
    view: str | None = None
    history_days: float | None = None
    earliest: datetime | None = None


class ExpiredError(PlanError):
    """The venue no longer keeps data as fine as this from before ``earliest``, whatever the key.

    ``view`` is the one that it said so of, None if it is all of them. A pull records such a range as ``expired``.
    """


class NotFoundError(RequestError):
    """404: no such market or token.

    ``markets`` has the slugs of the markets of an event, where that was named in the place of a market.
    """

    markets: Sequence[str] = ()

    @classmethod
    def from_event(cls, name: str, markets: Sequence[str], **of: Any) -> NotFoundError:
        """Say that a name is that of an event, and list its markets."""
        error = cls(event_text(name, markets), status=404, hint=EVENT_HINT, **of)
        error.markets = tuple(markets)
        return error


class ParameterError(RequestError):
    """422, a parameter does not validate; ``problems`` has one ``{"loc", "msg", "type"}`` per parameter."""

    problems: Sequence[dict[str, Any]] = ()


class RateLimitError(RequestError):
    """429, the requests per minute are spent; ``retry_at`` is when the service takes more [Unix seconds], or None."""

    retry_at: float | None = None


class ServerError(RequestError):
    """5xx: the service failed."""


class NetworkError(MarketDataError):
    """The network failed before the response of ``url`` was complete (scheme, host and path; never a key)."""

    url: str | None = None


class RedirectError(NetworkError):
    """The answer was a redirect. It is never followed: it could carry the key to another host."""


class PayloadTooLargeError(NetworkError):
    """The answer is larger than any page can be; reading stopped."""


class ContractError(MarketDataError):
    """An answer does not follow the interface; the message names the place."""


class PaginationStalledError(ContractError):
    """Pages do not advance: the cursor repeats or brings no new rows."""


class NotTidyError(MarketDataError, ValueError):
    """A frame lacks the columns that a rule needs, which ``missing`` names, or they have the wrong type."""

    missing: tuple[str, ...] = ()
    """The columns that the frame lacks, where that is the problem."""

    @classmethod
    def from_missing(
        cls,
        needed_for: str,
        missing: Iterable[str],
        present: Iterable[str],
        likely: Mapping[str, str] | None = None,
        own: str = "",
    ) -> NotTidyError:
        """Name missing and present columns; ``likely`` are present ones that may be the missing ones.

        ``own`` says what the frame is, where it is one of this library.
        """
        names = sorted(missing)
        guesses = ", ".join(f"{theirs!r} is {ours!r}" for ours, theirs in (likely or {}).items())
        it = "it" if len(likely or {}) == 1 else "them"
        advice = f"If {guesses}, rename {it}" if guesses else "Rename your own columns to these"
        this = f"This is a frame of {own}. " if own else ""
        if own == "market records":
            advice = "Prices, books or trades come first, and records where a function asks for markets or outcomes"
        error = cls(
            f"{this}{needed_for} needs the columns {names}, which the frame lacks; it has {list(present)}. "
            f"{advice}. Frames of a client, an archive and md.read_pages have them, and md.read_trades or "
            "archive.add_files reads them from files of other names."
        )
        error.missing = tuple(names)
        return error


class GridError(ConfigError, NotTidyError):
    """The times of rows do not fit the stated width; ``argument`` names the width to give."""


class ArchiveError(MarketDataError):
    """The archive cannot do what was requested."""


class NotArchivedError(ArchiveError):
    """The archive does not have it; ``range`` is the missing half-open range (start, end) [UTC datetimes], or None."""

    range: Any = None


class ArchiveCorruptError(ArchiveError):
    """Stored bytes are not what was written; the message names what to pull again."""


class ArchiveBusyError(ArchiveError):
    """Another process is writing the same range."""


class ArchiveFullError(ArchiveError):
    """There is no space, or no right, to write; what was committed before is intact."""


class MarketDataWarning(UserWarning):
    """Base of every warning of this library; the message is the problem, then the ``hint``, what to do in Python."""

    def __init__(self, problem: str = "", *, hint: str = "") -> None:
        super().__init__(f"{problem} {hint}" if hint else problem)
        self.hint = hint

    @property
    def problem(self) -> str:
        """The message without the hint."""
        return str(self).removesuffix(self.hint).rstrip()


class UnweightedMeanWarning(MarketDataWarning):
    """Means whose counts are unknown were averaged again, each with the same weight."""


class CoarseGridWarning(MarketDataWarning):
    """All times of a frame are on a grid that is coarser than the bucket width that was given or assumed."""


class LeftOutWarning(MarketDataWarning):
    """Columns that cannot be averaged were left out of an aggregated frame."""


class RecordingWarning(MarketDataWarning):
    """A recording contradicts itself, or a part of it cannot be read; the rest was taken."""


class ServiceOddityWarning(MarketDataWarning):
    """The data is returned unchanged, but something about it looks odd."""


class EmptyRangeWarning(MarketDataWarning):
    """There are no rows: the range lies before or after the life of the market, or no record has the value."""


class UnsoldWarning(MarketDataWarning):
    """Exits of ``md.execute`` did not sell all their shares, which were held on."""


class ReusedDepthWarning(MarketDataWarning):
    """Orders of ``md.execute`` take resting shares of later books that earlier orders had taken."""


class OverdrawnWarning(MarketDataWarning):
    """The fills of ``md.account`` cost more than the cash at the beginning."""


class LookAheadWarning(MarketDataWarning):
    """A study trades with the book that gave the signal, which no real order reaches."""


class PlanWarning(MarketDataWarning):
    """The plan of the key does not allow a part of what was asked, which was left out."""


class PartialCoverageWarning(MarketDataWarning):
    """The archive has only a part of the requested range."""


class OpenMarketsWarning(MarketDataWarning):
    """Scores leave out markets that have not resolved; those that have so far may be no fair sample of all."""


class MissingValuesWarning(MarketDataWarning):
    """A result leaves out many rows, such as those without a value or a book; these are rarely missing at random."""


class MissingRecordsWarning(MarketDataWarning):
    """Markets of a frame have no record, so that no event is known to be complete."""


class MixedLabelsWarning(MarketDataWarning):
    """The tokens that stand for their markets in a mean have different labels, so that its sign has no one meaning."""


class PairWarning(MarketDataWarning):
    """Pairs of markets differ, are not known to be the same contract, or have no orientation."""


class FewMarketsWarning(MarketDataWarning):
    """An interval rests on too few markets to cover as often as it says."""


EVENT_HINT = "Name one of them, or take all of them by event_slug=."


def event_text(name: str, markets: Sequence[str], most: int = 20) -> str:
    """That a name is that of an event, with the names of its ``markets``."""
    shown = ", ".join(map(repr, markets[:most])) + (f" and {len(markets) - most} more" if len(markets) > most else "")
    what = f"whose markets are {shown}" if markets else "which has no markets"
    return f"{name!r} is an event, not a market, {what}."


def not_installed(user: str, package: str, extra: str | None = None) -> ModuleNotFoundError:
    """The error for an optional package that is absent, with the command that installs what is missing.

    With ``extra`` the command has all missing libraries of the extra.
    """
    from importlib import metadata

    installed, missing = {distribution.name for distribution in metadata.distributions()}, {package: package}
    with suppress(metadata.PackageNotFoundError):  # the package runs from its source
        for line in metadata.requires(DISTRIBUTION) or []:
            text, _, marker = line.partition("; extra == ")
            name = re.split(r"[^\w.-]", text)[0]
            if name == package or (marker.strip("'\"") == extra and name not in installed):
                missing[name] = text
    command = " ".join(["pip install", *(f"'{text}'" for text in missing.values())])
    part = f" (the extra {extra!r})" if extra else ""
    return ModuleNotFoundError(f"{user} needs {package}{part}, which is not installed: {command}", name=package)


def public_function() -> str:
    """The name of the function of this library that a user called, for messages."""
    frame, name = inspect.currentframe(), "this"
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] == "marketdata" and module != "marketdata.accessor":
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


def warn(problem: str, category: type[MarketDataWarning], *, hint: str = "") -> None:
    """Warn with the line of the first caller outside of this library."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "marketdata":
        frame, level = frame.f_back, level + 1
    warnings.warn(category(problem, hint=hint), stacklevel=level)
