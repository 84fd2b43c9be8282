"""Checks every page of the built site and README in headless Chromium, in a wide and in a narrow window.

`python -m tools.site.check` (`make site-check`) requires that no element is wider than the window, every diagram is drawn, the console has
no error, no request leads to another site, and the search finds pages. It writes pictures of all pages to build/site-check, README's as
`README.png`.

It takes minutes on two busy cores and needs a browser, so it is a separate target and not part of `make test`. First it checks a page that
has one fault of each kind; it must find all of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.site.browser import Browser, BrowserError, Page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
README = ROOT / "build" / "readme"
PICTURES = ROOT / "build" / "site-check"
WIDTHS = (1280, 400)

DIAGRAMS_ARE_DRAWN = "document.querySelectorAll('pre.mermaid').length === 0"
DIAGRAMS = "[...document.querySelectorAll('div.mermaid')].map(drawn => Math.round(drawn.getBoundingClientRect().height))"
PICTURES_ARE_MISSING = "[...document.images].filter(one => one.complete && one.naturalWidth === 0).map(one => one.src)"
# An element may be wider than the window only inside an element that scrolls or cuts it, and that fits itself.
TOO_WIDE = """
(() => {
  const limit = document.documentElement.clientWidth + 1;
  const holds = (element) => {
    for (let outer = element.parentElement; outer && outer !== document.body; outer = outer.parentElement) {
      if (getComputedStyle(outer).overflowX !== 'visible' && outer.getBoundingClientRect().right <= limit) return true;
    }
    return false;
  };
  const name = (element) => element.tagName.toLowerCase() + '.' + [...element.classList].join('.')
    + ' ' + element.textContent.trim().slice(0, 40);
  const wide = [...document.body.querySelectorAll('*')].filter((element) => {
    const place = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return place.width > 0 && place.right > limit && style.visibility !== 'hidden' && !holds(element);
  });
  const whole = document.documentElement.scrollWidth > limit ? ['the page: ' + document.documentElement.scrollWidth + ' px'] : [];
  return whole.concat(wide.map(name)).slice(0, 5);
})()
"""
RAW = """
[...document.querySelectorAll('pre code')].filter(code => /^(stateDiagram|flowchart|graph |sequenceDiagram)/.test(code.textContent.trim()))
  .map(code => code.textContent.trim().slice(0, 40))
"""


PLANTED = """<!doctype html><title>planted</title><body>
<div class="wide" style="width: 2000px">wide</div>
<div style="width: 100px; overflow-x: auto"><div class="held" style="width: 2000px">held</div></div>
<pre><code>stateDiagram-v2</code></pre>
<div class="mermaid">not drawn</div>
<img src="missing.png">
<script>console.error("planted error"); fetch("http://127.0.0.1:1/elsewhere").catch(() => 0); undefinedName()</script>
"""
FOUND_THERE = (
    "is wider than the window: the page", "is wider than the window: div.wide", "a diagram is left as text", "a diagram of ",
    "a picture is missing", "console: ['planted error']", "leaves the site: http://127.0.0.1:1/elsewhere", "exception: ",
)  # fmt: skip


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serves a directory over HTTP on a free port of the loopback address. Yields its address, without a slash at the end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pages_of(site: Path) -> list[str]:
    return sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))


def faults_of(page: Page) -> list[str]:
    """Returns the faults of an open page."""
    page.wait_until(DIAGRAMS_ARE_DRAWN)
    faults = [f"is wider than the window: {one}" for one in page.evaluate(TOO_WIDE)]
    faults += [f"a diagram is left as text: {one}" for one in page.evaluate(RAW)]
    faults += [f"a diagram of {height} px" for height in page.evaluate(DIAGRAMS) if height < 40]
    faults += [f"a picture is missing: {one}" for one in page.evaluate(PICTURES_ARE_MISSING)]
    return faults + page.complaints()


def blind_spots() -> list[str]:
    """Checks the page that has one fault of each kind. Returns the faults that are not found, and the faults that are reported but do not
    exist.
    """
    with tempfile.TemporaryDirectory() as directory, served(Path(directory)) as address, Browser() as browser:
        (Path(directory) / "index.html").write_text(PLANTED, encoding="utf-8")
        faults = faults_of(browser.open(f"{address}/index.html", width=400))
    missed = [f"a planted fault is not found: {wanted}" for wanted in FOUND_THERE if not any(one.startswith(wanted) for one in faults)]
    return missed + [f"found without being a fault: {one}" for one in faults if "div.held" in one]


def check(site: Path, *, pictures: Path, widths: Sequence[int] = WIDTHS) -> list[str]:
    """Returns the faults of all pages and of the search. Writes a picture of each page."""
    with served(site) as address, Browser() as browser:
        found = [fault for name in pages_of(site) for fault in page_faults(browser, f"{address}/{name}", name, pictures, widths)]
        return found + search_faults(browser, address)


def check_readme(readme: Path, *, pictures: Path, widths: Sequence[int] = WIDTHS) -> list[str]:
    """Returns the faults of README as `tools.site.readme` has rendered it. Writes its pictures."""
    with served(readme) as address, Browser() as browser:
        return page_faults(browser, f"{address}/index.html", "README.html", pictures, widths)


def page_faults(browser: Browser, address: str, name: str, pictures: Path, widths: Sequence[int]) -> list[str]:
    """Returns the faults of one page in windows of these widths, as `PAGE at N px: FAULT`. Writes a picture of each."""
    found: list[str] = []
    for width in widths:
        page = browser.open(address, width=width)
        found += [f"{name} at {width} px: {fault}" for fault in faults_of(page)]
        path = pictures / str(width) / f"{name.removesuffix('.html').replace('/', '-')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path)
    return found


def search_faults(browser: Browser, address: str) -> list[str]:
    """Types a word into the search of the front page, and waits for a result. Returns the faults."""
    page = browser.open(f"{address}/index.html", width=1280)
    page.evaluate("document.querySelector('input.md-search__input').focus()")
    browser.send("Input.insertText", text="kafka_broker")
    try:
        page.wait_until("[...document.querySelectorAll('.md-search-result__link')].some(one => one.href.includes('testing.html'))")
    except BrowserError as error:
        return [f"the search finds no page about kafka_broker: {error}"]
    return []


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site.check", description="Looks at every page of the built site in a browser.")
    parser.add_argument("--site", type=Path, default=SITE)
    parser.add_argument("--readme", type=Path, default=README, help="where tools.site.readme has put its page")
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    options = parser.parse_args(arguments)
    try:
        faults = blind_spots()
        faults = faults or check_readme(options.readme, pictures=options.pictures) + check(options.site, pictures=options.pictures)
    except BrowserError as error:
        faults = [str(error)]
    for fault in faults:
        print(fault, file=sys.stderr)
    count = len(pages_of(options.site))
    print(f"README and {count} pages at {' and '.join(map(str, WIDTHS))} px, {len(faults)} faults; pictures: {options.pictures}")
    return 1 if faults or not count else 0


if __name__ == "__main__":
    sys.exit(main())
