"""A headless Chromium, driven over the WebDriver protocol with plain HTTP."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
]  # fmt: skip
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
PATIENCE = 60  # for an answer of the browser or the page [s]
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Left": "\ue012", "Right": "\ue014", "Home": "\ue011", "Space": " "}


@dataclass
class Browser:
    """One window."""

    address: str
    session: requests.Session

    def call(self, method: str, path: str, **body: Any) -> Any:
        answer = self.session.request(
            method, self.address + path, json=body if method == "POST" else None, timeout=PATIENCE
        )
        found = answer.json()["value"]
        assert answer.ok, found
        return found

    def open(self, url: str) -> None:
        self.call("POST", "/url", url=url)

    def open_anew(self, url: str) -> None:
        """Open an address as a new tab does: nothing is kept of the pages before."""
        self.open(urljoin(url, "/page.css"))
        self.run("sessionStorage.clear()")
        self.log()
        self.open(url)

    def run(self, script: str, *args: Any) -> Any:
        """The value that a function body returns in the page."""
        return self.call("POST", "/execute/sync", script=script, args=list(args))

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def click(self, selector: str) -> None:
        found = self.call("POST", "/element", using="css selector", value=selector)
        self.call("POST", f"/element/{found[ELEMENT]}/click")

    def type(self, text: str) -> None:
        """Press keys where the focus is."""
        pressed = [{"type": kind, "value": c} for c in text for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": pressed}])

    def press(self, *names: str) -> None:
        self.type("".join(KEYS[name] for name in names))

    def wait(self, ready: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        until = time.monotonic() + seconds
        while not (found := ready()):
            assert time.monotonic() < until, f"not in {seconds} s; the page says: {self.text('#message')}"
            time.sleep(0.01)
        return found

    def phone(self, width: int, height: int) -> None:
        """A screen of another size; 0 is the window's own."""
        size = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": False}
        self.call("POST", "/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=size)

    def log(self) -> list[str]:
        """Messages of the console since the last call, such as refused scripts and failed requests."""
        return [entry["message"] for entry in self.call("POST", "/se/log", type="browser")]


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; the test is skipped where none is installed."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    with (
        subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True) as running,
        requests.Session() as web,
    ):
        silent = threading.Timer(PATIENCE, running.kill)
        silent.start()
        try:
            assert running.stdout is not None
            port = next(
                int(m[1]) for line in running.stdout if (m := re.search(r"started successfully on port (\d+)", line))
            )
            silent.cancel()
            options = {"binary": program, "args": [*FLAGS, f"--user-data-dir={folder}"]}
            wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
            address = f"http://127.0.0.1:{port}/session"
            made = web.post(address, json={"capabilities": wanted}, timeout=PATIENCE).json()["value"]
            assert "sessionId" in made, made
            browser = Browser(f"{address}/{made['sessionId']}", web)
            try:
                yield browser
            finally:
                web.delete(browser.address, timeout=PATIENCE)
        finally:
            silent.cancel()
            running.kill()
