"""The metrics of all brokers of the service on one page: each sample gets the label `broker`.

The lines of a metric family must follow its header, so the brokers' pages are taken apart by family. A broker that is down is missing on
the page; `ottla_cores_broker_up` says so.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Sequence

from ottla.server.cores.members import LOOPBACK
from ottla.server.cores.process import BrokerProcess
from ottla.server.monitoring.metric_families import SERVICE_FAMILIES

SCRAPE_S_MAX = 10.0
UP = "ottla_cores_broker_up"
STARTS = "ottla_cores_broker_starts_total"


class MergedMetrics:
    """The page of the service. `credentials` is `user:password` of the brokers' own HTTP ports."""

    def __init__(self, brokers: Sequence[BrokerProcess], credentials: str) -> None:
        self._brokers = brokers
        self._authorization = f"Basic {b64encode(credentials.encode()).decode()}"

    def start(self) -> None:
        """Does nothing: the page is made of the brokers' pages."""

    def stop(self) -> None:
        """Does nothing."""

    async def make(self) -> bytes:
        pages = await asyncio.gather(*map(self._page_of, self._brokers))
        merged = merge((broker.member.broker_id, page) for broker, page in zip(self._brokers, pages, strict=True))
        return (self._own_page() + merged).encode()

    def _own_page(self) -> str:
        lines = [SERVICE_FAMILIES[UP].header]
        lines += [f'{UP}{{broker="{broker.member.broker_id}"}} {int(broker.is_ready)}\n' for broker in self._brokers]
        lines.append(SERVICE_FAMILIES[STARTS].header)
        lines += [f'{STARTS}{{broker="{broker.member.broker_id}"}} {broker.starts}\n' for broker in self._brokers]
        return "".join(lines)

    async def _page_of(self, broker: BrokerProcess) -> str:
        """Returns the broker's page; an empty text if it does not answer in time."""
        if not broker.is_ready:
            return ""
        try:
            async with asyncio.timeout(SCRAPE_S_MAX):
                return await self._get(broker.member.http_port)
        except (OSError, TimeoutError):
            return ""

    async def _get(self, port: int) -> str:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            writer.write(f"GET /metrics HTTP/1.0\r\nAuthorization: {self._authorization}\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        return body.decode() if b" 200 " in head.partition(b"\r\n")[0] else ""


def merge(pages: Iterable[tuple[int, str]]) -> str:
    """Returns one page of the pages, given with their brokers' ids."""
    headers: dict[str, dict[str, None]] = {}
    samples: dict[str, list[str]] = {}
    for broker_id, page in pages:
        family = ""
        for line in page.splitlines(keepends=True):
            if line.startswith("# "):  # "# HELP name text" or "# TYPE name kind", before the family's samples
                family = line.split(" ", 3)[2]
                headers.setdefault(family, {})[line] = None
            else:
                samples.setdefault(family, []).append(_with_broker(line, broker_id))
    return "".join("".join([*lines, *samples.get(family, ())]) for family, lines in headers.items())


def _with_broker(line: str, broker_id: int) -> str:
    """Adds the label `broker` to a sample, before its other labels."""
    name, brace, rest = line.partition("{")
    if brace and " " not in name:
        return f'{name}{{broker="{broker_id}",{rest}'
    name, _, value = line.partition(" ")
    return f'{name}{{broker="{broker_id}"}} {value}'
