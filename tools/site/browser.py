"""Runs a headless Chromium by the DevTools protocol over a pair of pipes, without a further package.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:8000/index.html", width=1280)
        title = page.evaluate("document.title")
        page.screenshot(Path("index.png"))

`complaints` returns the errors of a page: exceptions, errors on its console, requests that failed or went to another origin.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Self

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SECONDS_MAX = 120
SCREENSHOT_HEIGHT_MAX = 12_000
"""Maximum height of a screenshot in pixels. Longer pages are cut: the command line reference would be 100,000 lines high."""


class BrowserError(Exception):
    """The browser is missing, did not answer, or refused a command."""


def find_program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """One process of Chromium. It opens pages one after the other in one tab."""

    def __init__(self) -> None:
        program = find_program()
        if program is None:
            raise BrowserError("there is no Chromium on this machine (on Debian: apt install chromium)")
        self._profile = tempfile.TemporaryDirectory(prefix="ottla-browser-", ignore_cleanup_errors=True)
        to_browser, from_browser = os.pipe(), os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--force-prefers-reduced-motion", "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}", "about:blank",
        ]  # fmt: skip
        # Reduced motion: pictures show the whole terminal recording, which is animated only without this option. Chromium reads commands
        # from descriptor 3 and writes to descriptor 4.
        shell = ["bash", "-c", f'exec "$0" "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}']
        self._process = subprocess.Popen(
            [*shell, program, *options], pass_fds=(to_browser[0], from_browser[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._out, self._in = to_browser[1], from_browser[0]
        self._unread = b""
        self._last_id = 0
        self._session: str | None = None
        self.events: deque[dict[str, Any]] = deque()

    def __enter__(self) -> Self:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def open(self, address: str, *, width: int, height: int = 900) -> Page:
        """Opens a page in a window of `width` and `height`, and waits until it has loaded."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.send("Page.navigate", url=address)
        page = Page(self, address, width)
        self.wait_for("Page.loadEventFired")
        return page

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result. Events that arrive meanwhile are kept."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last_id:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait_for(self, event: str) -> None:
        """Waits for an event that has not been waited for since the last page was opened."""
        while not any(one.get("method") == event for one in self.events):
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._in], [], [], SECONDS_MAX)[0]:
                raise BrowserError(f"Chromium was silent for {SECONDS_MAX} s")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise BrowserError("Chromium ended")
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


class Page:
    """The page that the browser shows."""

    def __init__(self, browser: Browser, address: str, width: int) -> None:
        self._browser = browser
        self._origin = address.split("/", 3)[:3]
        self._width = width

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression. Waits for a promise."""
        answer = self._browser.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression[:80]}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def follow(self, expression: str) -> None:
        """Evaluates an expression that leads to another page, such as a click, and waits until that page has loaded."""
        self._browser.events.clear()
        self.evaluate(expression)
        self._browser.wait_for("Page.loadEventFired")

    def wait_until(self, expression: str) -> None:
        """Waits until an expression is true. Raises `BrowserError` after SECONDS_MAX."""
        until = time.monotonic() + SECONDS_MAX
        while not self.evaluate(expression):
            if time.monotonic() > until:
                raise BrowserError(f"never true: {expression}")
            self.evaluate("new Promise(resolve => setTimeout(resolve, 50))")

    def screenshot(self, path: Path, *, height_max: int = SCREENSHOT_HEIGHT_MAX) -> None:
        """Writes a picture of the page, at most `height_max` pixels high."""
        height = min(int(self.evaluate("document.documentElement.scrollHeight")), height_max)
        clip = {"x": 0, "y": 0, "width": self._width, "height": height, "scale": 1}
        shot = self._browser.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Returns the errors since the page was opened, one line each."""
        return [line for event in self._browser.events if (line := self._complaint(event["method"], event["params"]))]

    def _complaint(self, method: str, parameters: dict[str, Any]) -> str | None:
        if method == "Runtime.exceptionThrown":
            return f"exception: {parameters['exceptionDetails']['text']}"
        if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert"):
            return f"console: {[one.get('value') or one.get('description') for one in parameters['args']]}"
        if method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            return f"log: {parameters['entry']['text']} {parameters['entry'].get('url', '')}"
        if method == "Page.javascriptDialogOpening":
            return f"dialog: {parameters['message']}"
        if method == "Network.requestWillBeSent":
            address = str(parameters["request"]["url"])
            if not address.startswith(("data:", "blob:")) and address.split("/", 3)[:3] != self._origin:
                return f"leaves the site: {address}"
        return None
