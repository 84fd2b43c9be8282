"""Measures the console: the time from process start to the first page, a list of 2,000 topics, memory, its load on an idle broker, and the
live tail in Chromium, if there is one. Run alone: `python -m tools.bench.console`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import ottla.console
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from tools.bench.brokers import cpu_seconds_of, resident_mib_of, start_ottla
from tools.bench.report import Row
from tools.site.browser import Browser, find_program

TOPICS = 2_000
STARTS = 3
REQUESTS = 30
IDLE_S = 30.0
TAIL_RATE, TAIL_S = 1_000, 10.0
STATIC = Path(ottla.console.__file__).parent / "static"


def measure() -> list[Row]:
    broker = start_ottla()
    try:
        starts = [_first_page(broker.address) for _ in range(STARTS)]
        rows = [
            ("console: process start to the first page", "ms", statistics.median(wall for wall, _ in starts)),
            ("console: the same", "ms of CPU", statistics.median(cpu for _, cpu in starts)),
        ]
        before_s = cpu_seconds_of(broker.process.pid)
        with _console(broker.address) as (process, url):
            for _ in range(int(IDLE_S / 5)):
                _get(url)  # as an open page does
                time.sleep(5)
        share = 100 * (cpu_seconds_of(broker.process.pid) - before_s) / IDLE_S
        rows.append(("console: load on an idle broker beside an open page", "% of a core", share))
        admin = AdminClient({"bootstrap.servers": broker.address})
        for made in admin.create_topics([NewTopic(f"topic-{number:04}", 1, 1) for number in range(TOPICS)]).values():
            made.result(120)
        del admin  # it would print errors when the broker has ended
        with _console(broker.address) as (process, url):
            _get(f"{url}/topics")
            times, page, before_s = [], b"", cpu_seconds_of(process.pid)
            for _ in range(REQUESTS):
                begun = time.perf_counter()
                page = _get(f"{url}/topics")
                times.append((time.perf_counter() - begun) * 1000)
            cpu_ms = (cpu_seconds_of(process.pid) - before_s) * 1000 / REQUESTS
            assets = sum(file.stat().st_size for file in STATIC.rglob("*") if file.suffix in (".js", ".css", ".svg"))
            rows += [
                (f"console: list page of {TOPICS:,} topics", "ms", statistics.median(times)),
                ("console: the same", "ms of CPU", cpu_ms),
                ("console: that page with its scripts and styles", "kB", (len(page) + assets) / 1000),
                (f"console: memory with {TOPICS:,} topics", "MiB", resident_mib_of(process.pid)),
            ]
            if find_program() is not None:
                rows += _tail(broker.address, process.pid, url)
        return rows
    finally:
        broker.stop()


def _tail(address: str, console: int, url: str) -> list[Row]:
    """Opens the live tail of a topic while records arrive. A browser with tasks of less than 50 ms answers clicks and keys at once."""
    is_over, topic = threading.Event(), "topic-0000"

    def write() -> None:
        with Cluster(address) as cluster, Producer(cluster) as producer:
            started, sent = time.monotonic(), 0
            while not is_over.wait(0.02):
                due = int((time.monotonic() - started) * TAIL_RATE)
                for number in range(sent, due):
                    producer.produce(topic, b'{"number": %d, "text": "%s"}' % (number, b"x" * 80), partition=0)
                producer.flush()
                sent = due

    with Browser() as browser:
        page = browser.open(f"{url}/topics/{topic}/live", width=1280)
        page.wait_until("document.getElementById('tail-state').textContent.startsWith('Waiting')")
        page.evaluate("""
            window.longest = 0;
            const note = (list) => { window.longest = Math.max(window.longest, ...list.getEntries().map((one) => one.duration)); };
            new PerformanceObserver(note).observe({ entryTypes: ["longtask"] });
        """)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            page.wait_until("document.querySelectorAll('#tail li').length > 0")
            before_s, begun = cpu_seconds_of(console), time.monotonic()
            time.sleep(TAIL_S)
            share = 100 * (cpu_seconds_of(console) - before_s) / (time.monotonic() - begun)
            longest = float(page.evaluate("window.longest"))
        finally:
            is_over.set()
            writer.join()
    what = f"console: live tail of {TAIL_RATE:,} records a second"
    return [
        (f"{what}, the browser's longest task (0: below 50)", "ms", longest),
        (f"{what}, load of the console", "% of a core", share),
    ]


@contextmanager
def _console(address: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A console process that serves. Yields it with its URL."""
    command = [sys.executable, "-m", "ottla.cli.main", "console", "-b", address, "-X", "security.protocol=PLAINTEXT", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[1]
        finally:
            process.terminate()


def _first_page(address: str) -> tuple[float, float]:
    """Returns the milliseconds from process start to the first page, and the console's CPU time in milliseconds."""
    begun = time.perf_counter()
    with _console(address) as (process, url):
        _get(url)
        return (time.perf_counter() - begun) * 1000, cpu_seconds_of(process.pid) * 1000


def _get(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        body: bytes = answer.read()
        return body


if __name__ == "__main__":
    for name, unit, value in measure():
        print(f"{name:<90} {value:10.2f} {unit}")
