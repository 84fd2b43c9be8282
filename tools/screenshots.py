"""Makes pictures of the console's main pages: `python -m tools.screenshots` (`make screenshots`), in build/screenshots.

A broker gets flights of 2013 (the data of `make demo`) at a rate that rises and falls. A group reads them, and a transaction stays open.
Then each page is opened in Chromium at 1280 and 360 pixels, light and dark. `DOCS` names the pictures that docs/console.md shows; `--docs`
renews them.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from ottla.adapters.console_process import ConsoleProcess
from ottla.analysis.lag import group_lag
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import group_admin
from ottla.client.errors import FencedError
from ottla.testing.broker import Broker
from tools.demo import GROUP, PARTITIONS, TOPIC, Source, load_flights
from tools.site.browser import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "build" / "screenshots"
PAGES = {
    "overview": "/", "metrics": "/metrics", "brokers": "/brokers", "topics": "/topics", "topic": f"/topics/{TOPIC}",
    "messages": f"/topics/{TOPIC}/messages?from=earliest&count=10", "log": f"/topics/{TOPIC}/log/batch?partition=0&offset=0",
    "groups": "/groups", "group": f"/group?name={GROUP}", "why": "/why?group=billing", "transactions": "/transactions",
    "transaction": "/transaction?id=payments", "wire": "/wire",
}  # fmt: skip
WIDTHS = (1280, 360)
THEMES = ("light", "dark")
HEIGHT = {1280: 800, 360: 720}
"""Height of a picture in pixels: what a user sees without scrolling."""
WIRE_HEIGHT = 620
"""Height of the pictures of the live wire, whose rows differ so much that more of them would be too many bytes."""
DOCS = {
    "overview-1280-light": "console-overview.png", "group-1280-dark": "console-group.png", "log-1280-light": "console-log.png",
    "why-360-dark": "console-why-narrow.png", "wire-1280-light": "console-wire.png",
    "session-1-stands-still": "console-session-1.png", "session-2-why": "console-session-2.png",
    "session-4-plan": "console-session-3.png", "session-5-moves": "console-session-4.png",
}  # fmt: skip
DOCS_BYTES_MAX = 150_000
TRAFFIC_S = 60.0
"""Seconds of traffic before the pictures, so that the charts have more than ten points."""
RATES = (200, 400, 900, 1500, 1100, 600, 300)
"""Records a second, each for five seconds."""


class Seen(NamedTuple):
    """A page to take a picture of."""

    name: str
    path: str
    width: int
    theme: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.width}-{self.theme}"


def all_pictures() -> Iterator[Seen]:
    for theme in THEMES:
        for width in WIDTHS:
            for name, path in PAGES.items():
                yield Seen(name, path, width, theme)


@contextmanager
def traffic(address: str, source: Source) -> Iterator[None]:
    """Writes and reads in threads, until the end of the block."""
    is_over = threading.Event()

    def write() -> None:
        records = cycle(source.records)
        with Cluster(address, client_id="flight-importer") as cluster, Producer(cluster) as producer:
            for rate in cycle(RATES):
                for _ in range(50):
                    for key, value, timestamp in islice(records, rate // 10):
                        producer.produce(TOPIC, value.encode(), key=key.encode(), timestamp=timestamp)
                    producer.flush()
                    if is_over.wait(0.1):
                        return

    def read() -> None:
        with Cluster(address, client_id="flight-board") as cluster, Consumer(cluster, group_id=GROUP, partition_bytes_max=20_000) as reader:
            reader.subscribe([TOPIC])
            while not is_over.wait(0.1):
                reader.poll(0.1)
                reader.commit()

    threads = [threading.Thread(target=work) for work in (write, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@contextmanager
def held_reader(address: str) -> Iterator[None]:
    """A group that waits behind an open transaction."""
    with Cluster(address, client_id="payment-service") as cluster, Producer(cluster) as other:
        writer = Producer(cluster, transactional_id="payments", transaction_timeout_ms=900_000)
        writer.begin()
        writer.produce("invoices", b'{"invoice": 1, "euro": 120}', partition=0)
        writer.flush()
        for number in range(2, 40):
            other.produce("invoices", b'{"invoice": %d, "euro": %d}' % (number, number * 7 % 200), partition=0)
        other.flush()
        group_admin.commit_offsets(cluster, "billing", {TopicPartition("invoices", 0): 0})
        yield
        for end in (writer.abort, writer.close):
            with suppress(FencedError):  # the session has fenced it
                end()


FENCE, RESET = "/do/transaction/fence", "/do/group/reset"


def session(browser: Browser, url: str, address: str) -> None:
    """Takes the pictures of a whole session: a group is blocked by an open transaction, which is found and ended; the group is reset, and
    its reader continues.
    """

    def show(name: str, path: str) -> Page:
        page = browser.open(url + path, width=1000, height=700)
        page.wait_until("[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('canvas'))")
        page.screenshot(PICTURES / f"session-{name}.png", height_max=700)
        return page

    def send(page: Page, action: str, typed: str) -> None:
        form = f"[...document.forms].find(one => one.getAttribute('action') === {json.dumps(action)})"
        page.follow(f"(() => {{ const form = {form}; form.elements.typed.value = {json.dumps(typed)}; form.requestSubmit(); }})()")

    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    show("1-stands-still", "/group?name=billing")
    show("2-why", "/why?group=billing")
    send(show("3-transaction", "/transaction?id=payments"), FENCE, "payments")
    send(show("4-plan", "/group/reset?name=billing&scenario=to_offset&value=10"), RESET, "billing")
    with Cluster(address, client_id="billing-service") as cluster, Consumer(cluster, group_id="billing", isolation_level=1) as reader:
        reader.subscribe(["invoices"])
        while sum(one.lag or 0 for one in group_lag(cluster, "billing")):
            reader.poll(0.5)
            reader.commit()
        show("5-moves", "/group?name=billing")


def take(browser: Browser, url: str, seen: Seen, folder: Path) -> Path:
    """Takes the picture of one page, when its charts are drawn."""
    scheme = {"name": "prefers-color-scheme", "value": seen.theme}
    browser.send("Emulation.setEmulatedMedia", features=[scheme])
    page = browser.open(url + seen.path, width=seen.width, height=HEIGHT[seen.width])
    page.wait_until("[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('canvas'))")
    if seen.path == "/wire":
        page.wait_until("document.querySelectorAll('tbody tr').length > 20")
    path = folder / f"{seen.file}.png"
    page.screenshot(path, height_max=HEIGHT[seen.width] if seen.path != "/wire" else WIRE_HEIGHT)
    for line in page.complaints():
        print(f"{seen.file}: {line}", file=sys.stderr)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots")
    parser.add_argument("--docs", action="store_true", help="renew the pictures of docs/console.md")
    is_for_docs = parser.parse_args().docs
    PICTURES.mkdir(parents=True, exist_ok=True)
    source = load_flights()
    settings = {"ottla.metrics.listen": "127.0.0.1:0", "log.retention.ms": "-1"}
    with Broker(topics=[f"{TOPIC}:{PARTITIONS}", "invoices:1", "audit-log:3"], settings=settings) as broker, Browser() as browser:
        address = broker.direct_server
        metrics = broker.log.partition("metrics and health on ")[2].split()[0].strip('"},')
        options = ["-b", address, "-X", "security.protocol=PLAINTEXT", "--metrics", metrics, "--port", "0"]
        console = ConsoleProcess(options, print)
        try:
            if not console.wait_until_decided():
                return 1
            with traffic(address, source), held_reader(address):
                browser.open(console.url, width=1280)  # an open page renews the charts every five seconds
                time.sleep(TRAFFIC_S)
                for seen in all_pictures():
                    take(browser, console.url, seen, PICTURES)
                session(browser, console.url, address)
        finally:
            console.stop()
    for file, name in DOCS.items() if is_for_docs else ():
        picture = (PICTURES / f"{file}.png").read_bytes()
        if len(picture) > DOCS_BYTES_MAX:
            print(f"{name}: {len(picture)} bytes are more than {DOCS_BYTES_MAX}", file=sys.stderr)
            return 1
        (ROOT / "docs" / name).write_bytes(picture)
    print(f"the pictures are in {PICTURES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
