"""Coroutines made of blocking methods."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

from marketdata.fetch.http.workers import STOP, Stop, start

# The client.
S = TypeVar("S")
# The arguments of the method.
P = ParamSpec("P")
# The result of the method.
T = TypeVar("T")


def coroutine(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method in a thread, for code that runs in an event loop; once cancelled, nothing more is sent."""
    # A thread of asyncio.to_thread would keep a cancelled program from ending.

    @functools.wraps(method)
    async def awaited(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # so that a cancelled coroutine leaves it to the thread
        stop = Stop()

        def run() -> None:
            STOP.set(stop)
            try:
                outcome.set_result(method(self, *args, **kwargs))
            except BaseException as error:
                outcome.set_exception(error)

        context = contextvars.copy_context()
        start(functools.partial(context.run, run), "marketdata-await")
        try:
            return await asyncio.wrap_future(outcome)
        finally:
            stop.set()

    name = method.__name__
    awaited.__name__, awaited.__qualname__ = f"a{name}", method.__qualname__.replace(name, f"a{name}")
    awaited.__doc__ = f"`{name}` for code that runs in an event loop, with the same arguments; see `{name}`."
    return awaited
