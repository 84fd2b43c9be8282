"""Computes the figures of Kafka's performance tools and formats their lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from ottla.cli.output import write
from ottla.cli.render.ottla import Output

BYTES_IN_MB = 1024.0 * 1024.0
PERCENTILES = (0.5, 0.95, 0.99, 0.999)


class Latencies:
    """A histogram of latencies in milliseconds. Its memory depends on the largest latency, not on the number of records."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.count = 0
        self.total_ms = 0
        self.max_ms = 0

    def add(self, latencies_ms: Iterable[int]) -> None:
        counts = self.counts
        for latency in latencies_ms:
            counts[latency] = counts.get(latency, 0) + 1
            self.count += 1
            self.total_ms += latency
            if latency > self.max_ms:
                self.max_ms = latency

    def average_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0

    def percentiles(self, wanted: Iterable[float] = PERCENTILES) -> list[int]:
        """Returns the latency in milliseconds at each wanted quantile (0.5 is the median). Returns an empty list without records."""
        ordered = sorted(self.counts.items())
        found = []
        for share in wanted:
            rank = min(int(share * self.count), self.count - 1)
            seen = 0
            for value, count in ordered:
                seen += count
                if seen > rank:
                    found.append(value)
                    break
        return found


def progress_line(count: int, size: int, elapsed_ms: float, latencies: Latencies) -> str:
    """Formats the line that the producer test prints for one reporting interval."""
    seconds = max(elapsed_ms, 1e-3) / 1000
    rates = f"{count / seconds:.1f} records/sec ({size / BYTES_IN_MB / seconds:.2f} MB/sec)"
    return f"{count} records sent, {rates}, {latencies.average_ms():.1f} ms avg latency, {float(latencies.max_ms):.1f} ms max latency."


def total_line(count: int, size: int, elapsed_ms: float, latencies: Latencies) -> str:
    """Formats the last line of the producer test. Needs at least one record."""
    seconds = max(elapsed_ms, 1e-3) / 1000
    p50, p95, p99, p999 = latencies.percentiles()
    return (
        f"{count} records sent, {count / seconds:f} records/sec ({size / BYTES_IN_MB / seconds:.2f} MB/sec), "
        f"{latencies.average_ms():.2f} ms avg latency, {float(latencies.max_ms):.2f} ms max latency, "
        f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
    )


CONSUMER_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
CONSUMER_DETAIL_HEADER = CONSUMER_HEADER.replace("start.time, end.time", "time, threadId")


def consumer_figures(count: int, size: int, elapsed_ms: float, rebalance_ms: float) -> dict[str, float]:
    """Returns the numbers of a line of the consumer test by column. `fetch.time.ms` is the elapsed time without the rebalance."""
    megabytes = size / BYTES_IN_MB
    seconds = max(elapsed_ms, 1.0) / 1000
    fetch_ms = max(elapsed_ms - rebalance_ms, 1.0)
    return {
        "data.consumed.in.MB": megabytes,
        "MB.sec": megabytes / seconds,
        "data.consumed.in.nMsg": count,
        "nMsg.sec": count / seconds,
        "rebalance.time.ms": int(rebalance_ms),
        "fetch.time.ms": int(fetch_ms),
        "fetch.MB.sec": megabytes / (fetch_ms / 1000),
        "fetch.nMsg.sec": count / (fetch_ms / 1000),
    }


def consumer_line(first: str, second: str, figures: dict[str, float]) -> str:
    """Formats a line of the consumer or share consumer test. The first two columns are start and end, or time and thread id."""
    cells = [str(value) if isinstance(value, int) else f"{value:.4f}" for value in figures.values()]
    return ", ".join([first, second, *cells])


SHARE_HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"


def share_figures(count: int, size: int, elapsed_ms: float) -> dict[str, float]:
    megabytes = size / BYTES_IN_MB
    seconds = max(elapsed_ms, 1.0) / 1000
    return {
        "data.consumed.in.MB": megabytes,
        "MB.sec": megabytes / seconds,
        "nMsg.sec": count / seconds,
        "data.consumed.in.nMsg": count,
        "fetch.time.ms": int(elapsed_ms),
    }


_JAVA_DATE = (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"))


def format_date(wall_ms: int, pattern: str = "yyyy-MM-dd HH:mm:ss:SSS") -> str:
    """Formats a time in the local time zone by a pattern of Java's SimpleDateFormat. Only yyyy, MM, dd, HH, mm, ss and SSS are replaced."""
    for letters, directive in _JAVA_DATE:
        pattern = pattern.replace(letters, directive)
    return time.strftime(pattern.replace("SSS", f"{wall_ms % 1000:03d}"), time.localtime(wall_ms / 1000))


def end_to_end_lines(latencies_ms: list[float]) -> list[str]:
    ordered = sorted(latencies_ms)
    found = [int(ordered[min(int(len(ordered) * share), len(ordered) - 1)]) for share in (0.5, 0.99, 0.999)]
    average = sum(ordered) / len(ordered)
    return [f"Avg latency: {average:.4f} ms", f"Percentiles: 50th = {found[0]}, 99th = {found[1]}, 99.9th = {found[2]}"]


def write_line(output: Output, text: str) -> None:
    """Prints and flushes a line. Prints nothing with structured output (-o json), where the command prints one object at its end."""
    if not output.is_structured:
        write(text + "\n")
        sys.stdout.flush()
