"""Calls that block, awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def awaited(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The result of a call that runs in a thread of its own.

    The thread is a daemon: unlike the ones of ``asyncio.to_thread``, it does not keep a cancelled program from
    ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:
            future.set_exception(error)

    def run() -> None:
        outcome: tuple[T | None, BaseException | None]
        try:
            outcome = call(*args, **kwargs), None
        except BaseException as error:
            outcome = None, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="marketdata-await", daemon=True).start()
    return await future
