"""Errors and warnings as lines of a terminal: arguments as options, hints as commands."""

from __future__ import annotations

import re
import shlex
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
    "base_url": "--base-url",
    "event_slug": "--event",
    "file": "--from-file",
    "market": "MARKET",
    "markets": "--market",
    "max_rows": "--rows",
    "path_or_url": "ARCHIVE",
    "series_slug": "--series",
    "tags": "--tag",
    "view": "--view",
    "views": "--view",
}
_TIMES = "Allowed: ISO 8601 such as 2026-01-31 or 2026-01-31T12:00:00Z, UTC without a zone, Unix seconds, or -1d."
# Hints where the command line has another way out than Python.
_OTHER_HINTS: dict[tuple[type[Problem], str | None], str] = {
    (errors.ConfigError, "base_url"): (
        "--service polymarket and --service kalshi are public and take no key. For another service pass --base-url or "
        "set MARKETDATA_BASE_URL to its https:// address; marketdata serve --simulated starts one on this machine."
    ),
    (
        errors.ConfigError,
        "api_key",
    ): "Set it to the key of the service, or pass --service polymarket, which takes none.",
    (errors.ConfigError, "start"): _TIMES,
    (errors.ConfigError, "end"): _TIMES,
    (errors.ConfigError, "host"): "Pass --keys FILE (marketdata keys new makes one).",
    (errors.AuthenticationError, None): "Is it the key of this service? It comes from MARKETDATA_API_KEY.",
    (errors.PartialCoverageWarning, None): "marketdata pull fetches what is missing.",
}
# What a hint says in Python, and on the command line.
_SHELL_FORMS = (
    (r"md\.Client\(('?)(\w+)\1[^)]*\)", r"--service \2"),
    (r"md\.serve\(md\.simulate\(\)\)", "marketdata serve --simulated"),
    (r"md\.Archive\(path\)", "marketdata pull ARCHIVE"),
    (r"client\.markets\(search=[^)]*\)", "marketdata markets --search WORDS"),
    (r"client\.(markets|events|series)\(series_slug='?([^')]*)'?\)", r"marketdata \1 --series \2"),
    (r"client\.(markets|events|series)\(\)", r"marketdata \1"),
    (r"client\.tags\(\) shows", "marketdata markets --json shows"),
    (r"client\.tokens\('?([^')]*)'?\)", lambda m: f"marketdata tokens {'MARKET' if m[1] == 'market' else m[1]}"),
    (r"client\.token_books and client\.token_prices take", "client.token_books and client.token_prices of Python take"),
    (r"Pass allow_insecure=True to send it all the same\.", "Give an https:// address."),
    (r"The rows that arrived are in \.partial; client\.resume\(error\.resume\) fetches the rest\.",
     "Nothing was kept: marketdata pull keeps what arrives, and goes on from there."),
    (r"The rows of the others are in \.partial\.", "The others exist."),
    (r"archive\.verify\(repair=True\)", "marketdata verify ARCHIVE --repair"),
    (r"archive\.follow\(client, market, views=\['(\w+)'\]\)", r"marketdata pull ARCHIVE MARKET --view \1 --follow"),
    (r"archive\.follow asks", "marketdata pull --follow asks"),
    (r"archive\.universe\(at\)", "archive.universe of Python"),
    (r"\b([a-z_]+)=\.\.\.", lambda m: _option(m[1])),
    (r"\b([a-z_]+)=True\b", lambda m: _option(m[1])),
    (r"\b([a-z_]+)='([^']*)'", lambda m: f"{_option(m[1])} {shlex.quote(m[2])}"),
    (r"\b([a-z_]+)=(?=[^\w<{\[]|$)", lambda m: _option(m[1])),
    (r"\b(columns|sides)=\{([^}]*)\}", lambda m: f"--{m[1]} {_pairs(m[2])}"),
)  # fmt: skip
_PYTHON_ALONE = ("md.resample(", "archive.scan(")
# What people type, and what it is here.
_MEANT = {
    "--from": "--start", "--since": "--start", "--begin": "--start", "--to": "--end", "--until": "--end",
    "--limit": "--rows", "--max-rows": "--rows", "-n": "--rows", "--top": "--rows", "--status": "--state",
    "--format": "--json, --csv or --ndjson", "--output": "--out", "--file": "--out, or --from-file for names",
    "--source": "--service", "--venue": "--service", "--exchange": "--service", "--url": "--base-url",
    "--key": "the variable MARKETDATA_API_KEY", "--api-key": "the variable MARKETDATA_API_KEY",
    "--query": "--search", "-q": "--search", "--event-slug": "--event", "--series-slug": "--series",
    "--tags": "--tag", "--order": "--sort", "--interval": "--resolution", "--width": "--resolution",
    "--slug": "MARKET, without an option", "--id": "MARKET, without an option",
    "download": "fetch or pull", "get": "fetch", "prices": "fetch prices", "books": "fetch books",
    "trades": "fetch prices, or client.trades of Python", "quotes": "fetch quotes", "metrics": "fetch metrics",
    "list": "markets", "ls": "markets", "market": "markets or tokens", "find": "markets WORDS",
    "search": "markets WORDS",
    "event": "events", "token": "tokens", "sync": "pull", "update": "pull", "follow": "pull --follow",
    "watch": "pull --follow", "add": "import", "load": "import", "read": "export", "show": "coverage or export",
    "status": "coverage", "info": "coverage", "check": "verify", "server": "serve", "start": "serve",
    "help": "--help",
    "version": "--version", "simulate": "serve --simulated", "login": "keys, or the variable MARKETDATA_API_KEY",
}  # fmt: skip


def in_shell(text: str) -> str:
    """A text with options and commands in the place of arguments and calls of Python."""
    if any(call in text for call in _PYTHON_ALONE):
        return text
    for pattern, shell in _SHELL_FORMS:
        text = re.sub(pattern, shell, text)
    return text


def _pairs(renamed: str) -> str:
    """The pairs of a dict of Python, as ``--columns`` takes them."""
    found = re.findall(r"""(['"])(.*?)\1: (?:(['"])(.*?)\3|\.\.\.)""", renamed)
    return shlex.quote(",".join(f"{ours}={theirs or '...'}" for _, ours, _, theirs in found))


def _option(argument: str) -> str:
    return _OPTIONS.get(argument, "--" + argument.replace("_", "-"))


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
            yield _option(argument)
            yield problem.value.removeprefix("[").removesuffix("]")
        # What a service answered is shown as it is.
        said = problem.problem or type(problem).__name__
        yield said if isinstance(problem, errors.RequestError | errors.NetworkError) else in_shell(said)
        if isinstance(problem, errors.PlanError) and "base_url" not in problem.hint:
            place = " and a new archive" if problem.hint else ""
            yield f"Pass --resolution {problem.minimum_resolution}{place}." if problem.minimum_resolution else ""
            yield "--clamp starts at the earliest time that it allows." if problem.history_days else ""
        elif problem.hint and isinstance(problem, errors.RequestError) and "base_url" in problem.hint:
            yield "Is --base-url or MARKETDATA_BASE_URL the address of a service?"
        elif problem.hint:
            kind = type(problem)
            # A time that cannot be read is told what can; one that is missing has a hint of its own.
            is_missing = argument in ("start", "end") and not getattr(problem, "value", "")
            other = None if is_missing else _OTHER_HINTS.get((kind, argument)) or _OTHER_HINTS.get((kind, None))
            yield other or in_shell(problem.hint)
    elif hasattr(problem, "format_message"):  # of the option parser
        if hasattr(problem, "message"):
            problem.message = problem.message.removeprefix("Value error, ")
        said = _meant(problem) or problem.format_message()
        context = getattr(problem, "ctx", None)
        if context and type(problem).__name__ == "MissingParameter":
            pieces = [re.sub(r"[{}]", "", piece) for piece in context.command.collect_usage_pieces(context)[1:]]
            said = f"{said.removesuffix('.')}. Usage: {' '.join([context.command_path, *pieces])}"
        yield said
        yield f"({context.command_path} --help)" if context else ""
    elif isinstance(problem, ModuleNotFoundError):
        needs = errors.not_installed("This command", problem.name or "a library")
        yield str(problem if "pip install" in str(problem) else needs)
    elif isinstance(problem, OSError | Warning):
        yield str(problem)
    else:
        yield f"unexpected {type(problem).__name__}: {problem} (--debug shows the traceback)"


def _meant(problem: Exception) -> str:
    """The message about an option or a command that does not exist, with the one that people mean by its name."""
    said = problem.format_message()  # type: ignore[attr-defined]
    name = getattr(problem, "option_name", None) or next(iter(re.findall(r"No such command '([^']*)'", said)), "")
    if name not in _MEANT:
        return ""
    kind = "option" if name.startswith("-") else "command"
    return f"There is no {kind} {name!r}; did you mean {_MEANT[name]}?"
