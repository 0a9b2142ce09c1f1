"""``marketdata`` on the command line: thin verbs over the client, the archive and the service.

Exit codes: 0 done; 1 something else went wrong; 2 an argument was refused; 3 the key or its plan does not
allow it; 4 it does not exist, or is not archived; 5 the service or the network failed; 130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from marketdata import errors

__all__ = ["main"]

_CODES: tuple[tuple[tuple[type[errors.MarketDataError], ...], int], ...] = (
    ((errors.AuthenticationError, errors.PlanError), 3),
    ((errors.NotFoundError, errors.NotArchivedError), 4),
    ((errors.ConfigError, errors.BadRequestError, errors.ParameterError, errors.NotTidyError), 2),
    ((errors.NetworkError, errors.RequestError, errors.ContractError), 5),
)

_INTERRUPTED = 130
# Messages name arguments of Python; here they are options.
_OPTIONS = {
    "Pass base_url=...": "Pass --base-url",
    "Pass api_key=... or set": "Set",
    "api_key=... or MARKETDATA_API_KEY": "MARKETDATA_API_KEY",
    "client.markets(search=...)": "marketdata markets --search TEXT",
    "client.events() and client.series() show the slugs": "marketdata markets --json shows slugs of events and series",
    "pass on_missing='partial'": "ask for less",
    "Use https, or pass allow_insecure=True if that is what you want.": "Use https.",
    "exactly one of markets=, event= and series=": "exactly one of --market, --event and --series",
    "archive.rebuild()": "marketdata.Archive(...).rebuild() in Python",
    "keys=<file> (marketdata keys new)": "--keys FILE (marketdata keys new)",
}
# What a person does after Ctrl-C who does not want to begin anew.
_GOES_ON = {
    "pull": "; the archive keeps what had come, the same command fetches the rest",
    "fetch": "; nothing was kept (marketdata pull keeps what has come, and goes on from there)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what goes wrong is one line on stderr and an exit code, a warning is one line.

    ``--debug``, anywhere on the line, lets the traceback through.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            from marketdata.cli.app import app

            app([a for a in arguments if a != "--debug"], prog_name="marketdata")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return _stopped(arguments) if code == _INTERRUPTED else code
    except KeyboardInterrupt:
        return _stopped(arguments)
    except BrokenPipeError:
        # The reader of our output has gone (marketdata markets | head): nothing is left to say.
        sys.stderr.close()
        return 0
    except Exception as problem:
        if debug:
            raise
        return _say(_line(problem), _code(problem))
    return 0


def _stopped(arguments: Sequence[str]) -> int:
    verb = next((a for a in arguments if not a.startswith("-")), "")
    return _say(f"interrupted{_GOES_ON.get(verb, '')}", _INTERRUPTED)


def _say(line: str, code: int) -> int:
    print(f"marketdata: {line}", file=sys.stderr)
    return code


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(f"marketdata: {_in_options(message)}", file=sys.stderr)


def _in_options(message: object) -> str:
    text = " ".join(str(message).split())
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    return text


def _line(problem: Exception) -> str:
    text = _in_options(problem)
    if isinstance(problem, errors.MarketDataError):
        return text or type(problem).__name__
    if isinstance(problem, ModuleNotFoundError):
        return f"{problem.name} is not installed; pip install 'marketdata[all]' brings every part."
    if isinstance(problem, OSError):
        return text
    return f"unexpected {type(problem).__name__}: {text} (--debug shows where)"


def _code(problem: Exception) -> int:
    return next((code for kinds, code in _CODES if isinstance(problem, kinds)), 1)
