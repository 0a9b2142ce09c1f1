"""Processes that answer: the loop of one of them, and several at one address."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from marketdata.errors import ConfigError
from marketdata.service.access import Access
from marketdata.service.connections import GRACE_SECONDS, Connections

# New objects after which garbage is collected: a page has thousands, nearly all of which are gone by then anyway.
GARBAGE = 20_000
# The modules of the process that starts it, and the function that reads the rest from its input.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from marketdata.service.server import work; work()"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  a folder of its own is made there


class Worker:
    """A loop in a thread of this process that answers the connections of a listening socket."""

    def __init__(self, access: Access, listener: socket.socket) -> None:
        self.connections = Connections(listener, access.respond)
        self._warm = access.parts.warm
        self._started, self._is_warm, self._end = threading.Event(), threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="marketdata-service", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Finish the running requests, then end; from any thread."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(GRACE_SECONDS + 5)

    def settle(self) -> None:
        """Once what the first request needs is loaded, have this process do nothing but serve."""
        self._is_warm.wait()
        # Modules and records stay; a garbage collection that looks at them would stop all threads for 0.1 s.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        warming = self.loop.run_in_executor(None, self._warm)
        warming.add_done_callback(lambda _: self._is_warm.set())
        self._started.set()
        await self.connections.serve(self._end)
        # An error here comes again when a request needs the same.
        await asyncio.gather(warming, return_exceptions=True)


class Workers:
    """Processes that share a listening socket, and count the requests of a key in one folder.

    One that dies is replaced. They end with this process: the end of their input tells them to finish.
    """

    def __init__(self, listener: socket.socket, number: int, build: Callable[..., Access]) -> None:
        if os.name != "posix":
            listener.close()
            raise ConfigError("needs POSIX for more than 1.", argument="workers", value=number)
        home = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="marketdata-service-", dir=home)
        try:
            self._input = pickle.dumps(partial(build, folder=Path(self._folder.name)))
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            self._folder.cleanup()
            listener.close()
            raise ConfigError(
                f"cannot pass the archive, the keys or the clock to other processes: {problem}.",
                argument="workers",
                value=number,
                hint="Define functions and classes in a module, not in a function.",
            ) from problem
        self._listener = listener
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped = threading.Event()
        self._ready, self._failed = threading.Semaphore(0), False
        self._threads = [threading.Thread(target=self._keep, args=(i,), daemon=True) for i in range(number)]

    def start(self) -> None:
        """Start the processes, and wait until each answers."""
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            self._ready.acquire()
        if self._failed:
            self.stop()
            raise ConfigError("The processes of the service could not start; see what they wrote.")

    def stop(self) -> None:
        """Have every process finish its running requests, then end."""
        self._stopped.set()
        for process in self._running.values():
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
        for thread in self._threads:
            thread.join(GRACE_SECONDS + 5)
        for process in self._running.values():
            process.kill()  # one that did not end
        self._listener.close()
        self._folder.cleanup()

    def settle(self) -> None:
        """The processes do so themselves."""

    def _keep(self, place: int) -> None:
        """Run a process, and another one when it dies."""
        descriptor = self._listener.fileno()
        command = [sys.executable, "-c", _PROGRAM, str(descriptor), *sys.path]
        while not self._stopped.is_set():
            with subprocess.Popen(  # noqa: S603  this interpreter
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[descriptor]
            ) as process:
                assert process.stdin is not None
                assert process.stdout is not None
                self._running[place] = process
                with contextlib.suppress(OSError):
                    process.stdin.write(self._input)
                    process.stdin.flush()
                if not process.stdout.readline():
                    self._failed = True
                self._ready.release()
                if self._stopped.is_set():
                    process.stdin.close()
                process.wait()
            # Not in a circle without a pause where it cannot start.
            self._stopped.wait(1)
