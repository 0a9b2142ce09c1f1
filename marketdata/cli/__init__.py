"""``marketdata`` on the command line: commands over the client, the archive and the service."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence

from marketdata.cli import messages

__all__ = ["main"]

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_RESUMES = {
    "pull": "; the archive keeps what was committed, the same command fetches the rest",
    "fetch": "; nothing was kept (marketdata pull keeps what arrives, and resumes)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; an error is one line on stderr and an exit code, or its traceback with ``--debug``."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            from marketdata.cli.app import app

            done = app([a for a in arguments if a != "--debug"], prog_name="marketdata", standalone_mode=False)
            sys.stdout.flush()  # here and not at the end of the process, where nobody hears of a reader that is gone
    except SystemExit as end:
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":  # the option parser met a pipe without a reader
            return _unread()
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return _stopped(arguments)
    except BrokenPipeError:
        return _unread()
    except Exception as problem:
        if debug:
            raise
        # Errors of the option parser, whose classes have moved between its versions.
        name = type(problem).__name__
        if name == "Abort":
            return _stopped(arguments)
        if name == "NoArgsIsHelpError":
            print(problem, file=sys.stderr)  # its message is the help
            return 2
        return _say(messages.line(problem), messages.code(problem))
    return _stopped(arguments) if done == _INTERRUPTED else done or 0


def _unread() -> int:
    """The reader of the output is gone (marketdata markets | head), so what is left goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _stopped(arguments: Sequence[str]) -> int:
    command = next((a for a in arguments if not a.startswith("-")), "")
    return _say(f"interrupted{_RESUMES.get(command, '')}", _INTERRUPTED)


def _say(line: str, code: int) -> int:
    print(f"marketdata: {line}", file=sys.stderr)
    return code


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(
        f"marketdata: {messages.line(message if isinstance(message, Warning) else Warning(message))}", file=sys.stderr
    )
