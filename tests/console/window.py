"""A window of a real browser that shows a console, and the faults that can be seen there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ottla.adapters.console_process import ConsoleProcess
from tools.site.browser import Browser, Page
from tools.site.check import TOO_WIDE

NARROW, WIDE = 360, 1280
AXE = Path(__file__).parent / "vendor" / "axe-4.14.1.min.js"
SERIOUS = """
axe.run({include: [document], exclude: ['tbody tr:nth-child(n+6)']}, {resultTypes: ['violations']}).then(found => found.violations
  .filter(one => one.impact === 'serious' || one.impact === 'critical')
  .flatMap(one => one.nodes.map(node => one.id + ': ' + node.target.join(' ') + ' ' + node.html.slice(0, 120))))
"""
"""Runs axe-core on the page. It looks at five rows of each table: the others have the same form, and would take most of its time."""
REFUSALS = tuple(f"Failed to load resource: the server responded with a status of {status}" for status in ("4", "503"))
"""The browser's lines about a page that says why something was refused, or that the cluster does not answer."""


@contextmanager
def console_process(address: str, *options: str) -> Iterator[str]:
    """A console as a process of its own, by default with a plain connection. Yields its URL."""
    said: list[str] = []
    console = ConsoleProcess(["-b", address, *(options or ("-X", "security.protocol=PLAINTEXT")), "--port", "0"], said.append)
    try:
        assert console.wait_until_decided(), said
        yield console.url
    finally:
        console.stop()


class Window:
    """One tab at a console."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser = browser
        self.url = url
        self.page: Page

    def open(self, path: str, width: int = WIDE) -> None:
        self.page = self.browser.open(self.url + path, width=width)

    def text(self) -> str:
        return str(self.page.evaluate("document.body.innerText"))

    def shows(self, text: str) -> None:
        """Waits until the page shows a text."""
        self.page.wait_until(f"document.body.innerText.includes({json.dumps(text)})")

    def fill(self, action: str, **fields: str) -> None:
        """Opens the form of an action, and fills its fields."""
        self.page.evaluate(f"""(() => {{
            const form = {_form(action)};
            const place = form.closest('details');
            if (place) place.open = true;
            for (const [name, value] of Object.entries({json.dumps(fields)})) form.elements[name].value = value;
        }})()""")

    def send(self, action: str, **fields: str) -> None:
        """Fills a form, presses its button, and waits for the answer."""
        self.fill(action, **fields)
        self.page.follow(f"{_form(action)}.querySelector('button:not([type])').click()")

    def click(self, text: str) -> None:
        """Follows the link with this text."""
        self.page.follow(f"[...document.querySelectorAll('main a')].find(one => one.textContent.trim() === {json.dumps(text)}).click()")

    def forms(self) -> list[str]:
        """Returns the actions of the page's forms that change something."""
        return list(self.page.evaluate("[...document.querySelectorAll('main form[method=post]')].map(one => one.getAttribute('action'))"))

    def send_unfilled(self, action: str) -> None:
        """Sends a form as it is. The browser does not check its required fields."""
        self.page.follow(f"(() => {{ const form = {_form(action)}; form.noValidate = true; form.requestSubmit(); }})()")

    def rows(self) -> int:
        """Returns the number of rows of the first table."""
        return int(self.page.evaluate("document.querySelector('tbody').rows.length"))

    def faults(self) -> list[str]:
        """Returns the faults of the page: content that was executed, complaints of the browser, content wider than the window."""
        found = [line for line in self.page.complaints() if not any(refusal in line for refusal in REFUSALS)]
        if self.page.evaluate("typeof window.ran") != "undefined":
            found.append("content of the cluster was executed")
        if self.page.evaluate("document.body.innerText.includes('The console failed at this page')"):
            found.append("the console failed")
        return found + [f"wider than the window: {one}" for one in self.page.evaluate(TOO_WIDE)]

    def accessibility_faults(self) -> list[Any]:
        """Returns the serious and critical faults that axe-core finds."""
        self.page.evaluate(f"typeof axe === 'undefined' && ({_axe()}, 0)")
        return list(self.page.evaluate(SERIOUS))


@cache
def _axe() -> str:
    return f"(() => {{ {AXE.read_text()} }})()"


def _form(action: str) -> str:
    return f"[...document.forms].find(one => one.getAttribute('action') === {json.dumps(action)})"
