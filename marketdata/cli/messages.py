"""Errors and warnings as lines of a terminal: arguments as options, hints as commands."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata import errors

Problem = errors.MarketDataError | errors.MarketDataWarning

_EXIT_CODES = {
    (errors.AuthenticationError, errors.PlanError): 3,
    (errors.NotFoundError, errors.NotArchivedError): 4,
    (errors.ConfigError, errors.BadRequestError, errors.ParameterError, errors.NotTidyError): 2,
    (errors.NetworkError, errors.RequestError, errors.ContractError): 5,
}
# Arguments whose option has another name.
_OPTIONS = {
    "all_markets": "--all",
    "api_key": "MARKETDATA_API_KEY",
    "file": "--from-file",
    "market": "MARKET",
    "markets": "--market",
    "max_rows": "--rows",
    "path_or_url": "ARCHIVE",
    "view": "--view",
    "views": "--view",
}
_TIMES = "Allowed: ISO 8601 such as 2026-01-31 or 2026-01-31T12:00:00Z, UTC without a zone, Unix seconds, or -1d."
_COMMAND_LINE_HINTS: dict[tuple[type[Problem], str | None], str] = {
    (errors.ConfigError, "base_url"): (
        "Pass --base-url or set MARKETDATA_BASE_URL to an https:// address; without one, marketdata serve --simulated "
        "starts a service on this machine."
    ),
    (errors.ConfigError, "api_key"): "Set it to the key of the service.",
    (errors.ConfigError, "start"): _TIMES,
    (errors.ConfigError, "end"): _TIMES,
    (errors.ConfigError, "host"): "Pass --keys FILE (marketdata keys new makes one).",
    (errors.AuthenticationError, None): "Is it the key of this service? It comes from MARKETDATA_API_KEY.",
    (errors.NotFoundError, None): "marketdata markets --search TEXT finds ids and slugs.",
    (errors.NotFoundError, "event_slug"): "marketdata markets --json shows slugs of events and series.",
    (errors.ArchiveCorruptError, None): (
        "marketdata verify ARCHIVE shows damaged ranges, and with --repair a pull fetches them again."
    ),
    (errors.PartialCoverageWarning, None): "marketdata pull fetches what is missing.",
}


def line(problem: Exception | Warning) -> str:
    """One line: what was wrong and what to do."""
    return " ".join(" ".join(_parts(problem)).split())


def code(problem: Exception) -> int:
    """The exit code of an error; 1 for one that the help does not list."""
    return next(
        (code for kinds, code in _EXIT_CODES.items() if isinstance(problem, kinds)), getattr(problem, "exit_code", 1)
    )


def _parts(problem: Exception | Warning) -> Iterator[str]:
    if isinstance(problem, Problem):
        argument = getattr(problem, "argument", None)
        if argument and isinstance(problem, errors.ConfigError):
            yield _OPTIONS.get(argument, "--" + argument.replace("_", "-"))
            yield problem.value
        yield problem.problem or type(problem).__name__
        if isinstance(problem, errors.PlanError) and "base_url" not in problem.hint:
            place = " and a new archive" if problem.hint else ""
            yield f"Pass --resolution {problem.minimum_resolution}{place}." if problem.minimum_resolution else ""
            yield "--clamp starts at the earliest time that it allows." if problem.history_days else ""
        elif problem.hint and isinstance(problem, errors.RequestError) and "base_url" in problem.hint:
            yield "Is --base-url or MARKETDATA_BASE_URL the address of a service?"
        elif problem.hint:
            kind = type(problem)
            yield _COMMAND_LINE_HINTS.get((kind, argument)) or _COMMAND_LINE_HINTS.get((kind, None), "")
    elif hasattr(problem, "format_message"):  # of the option parser
        if hasattr(problem, "message"):
            problem.message = problem.message.removeprefix("Value error, ")
        yield problem.format_message()
        context = getattr(problem, "ctx", None)
        yield f"({context.command_path} --help)" if context else ""
    elif isinstance(problem, ModuleNotFoundError):
        needs = errors.not_installed("This command", problem.name or "a library")
        yield str(problem if "pip install" in str(problem) else needs)
    elif isinstance(problem, OSError | Warning):
        yield str(problem)
    else:
        yield f"unexpected {type(problem).__name__}: {problem} (--debug shows the traceback)"
