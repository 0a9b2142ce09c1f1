"""A key to look for, and everything in which it must not be found."""

from __future__ import annotations

import base64
import contextlib
import logging
import pickle
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEY = "canary-5f1e0c7a9b3d4e68-of-this-suite"
TESTS = str(Path(__file__).parents[1])


def _forms(key: str) -> dict[str, bytes]:
    """The key as it may be written: plain, wide, in hex, backwards, and in base64 at each of its three offsets."""
    plain = key.encode()
    forms = {"plain": plain, "wide": key.encode("utf-16-le"), "hex": plain.hex().encode(), "backwards": plain[::-1]}
    for lead in range(3):
        coded = base64.b64encode(b"\0" * lead + plain)
        forms[f"base64+{lead}"] = coded[4 if lead else 0 : -4]
    return forms


FORMS = _forms(KEY)


class Evidence:
    """Things that were seen, by name, as bytes."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, bytes]] = []

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, name: str, *things: Any) -> None:
        """All that a person, a log, a pickle or a crash dump may see of things."""
        for thing in things:
            for how, text in _dumps(thing):
                self._seen.append((f"{name}: {how}", text))

    def hits(self) -> list[str]:
        """Where the key was found."""
        return [f"{name} ({form})" for name, data in self._seen for form, key in FORMS.items() if key in data]


def _dumps(thing: Any) -> Iterator[tuple[str, bytes]]:
    if isinstance(thing, bytes):
        yield "bytes", thing
        return
    shown = {"str": str(thing), "repr": repr(thing)}
    if hasattr(thing, "__dict__"):
        shown["vars"] = repr(vars(thing)) + str(vars(thing))
    if isinstance(thing, BaseException):
        shown["traceback"] = with_locals(thing)
    for how, text in shown.items():
        yield how, text.encode("utf-8", "surrogatepass")
    with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):  # no pickle of it, no key in it
        yield "pickle", pickle.dumps(thing)


def with_locals(error: BaseException) -> str:
    """The traceback as a crash report prints it, the locals of every frame and every cause; without our tests' own."""
    chain = [traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)]
    for part in chain:
        part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(TESTS)]
        chain += [p for p in (part.__cause__, part.__context__, *(part.exceptions or ())) if p is not None]
    return "".join(line for part in chain for line in part.format())


class _Listener(logging.Handler):
    def __init__(self, evidence: Evidence) -> None:
        super().__init__(logging.DEBUG)
        self._evidence = evidence

    def emit(self, record: logging.LogRecord) -> None:
        self._evidence.add(f"log of {record.name}", record.getMessage(), repr(record.args))
        if record.exc_info and record.exc_info[1] is not None:
            self._evidence.add(f"log of {record.name}", record.exc_info[1])


@contextlib.contextmanager
def watched() -> Iterator[Evidence]:
    """Every logger at DEBUG and every warning, as evidence."""
    evidence = Evidence()
    listener = _Listener(evidence)
    root = logging.getLogger()
    loggers = [root, *(x for x in logging.Logger.manager.loggerDict.values() if isinstance(x, logging.Logger))]
    before = [(x, x.level, x.propagate) for x in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.propagate = True
    root.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield evidence
        evidence.add("warnings", *(str(w.message) for w in warned))
    finally:
        root.removeHandler(listener)
        for logger, level, propagate in before:
            logger.setLevel(level)
            logger.propagate = propagate
