"""Reads the HTTP ports of brokers: their metrics, with each sample of the cluster that a `Snapshot` takes, and the last lines of their
logs.

A broker's port is the address in its setting `ottla.metrics.listen`, or one of the addresses that the console was given. The port of a
service of several brokers (`ottla.cores`) has the metrics of all of them, with the label `broker`. Only metrics that pages show are kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.analysis.metrics_text import MetricsRefused, metrics_address, samples_in, scrape
from ottla.analysis.sample import REQUESTS, TIMES, RequestActivity, rate_of, requests_in
from ottla.base.errors import ApiError, OttlaError
from ottla.base.metric_text import CLIENT_INFO
from ottla.client.blocking.cluster import Cluster

FIND_EVERY_S = 60.0
"""Seconds before a broker that has no port is asked again."""
TRAFFIC = "kafka_server_brokertopicmetrics_"
COUNTERS = {
    "messages_in": f"{TRAFFIC}messagesin_total", "bytes_in": f"{TRAFFIC}bytesin_total", "bytes_out": f"{TRAFFIC}bytesout_total",
    "committed": "ottla_transactions_committed_total", "aborted": "ottla_transactions_aborted_total",
}  # fmt: skip
"""Counters by the names of their rates."""
SESSION = "kafka_server_sessionexpirelistener_zookeeper"
SESSION_COUNTS = (("disconnects", "Lost connections to ZooKeeper"), ("expires", "Expired sessions of ZooKeeper"))
STARTED, INFO = "process_start_time_seconds", "ottla_info"
KEPT = (
    REQUESTS, TIMES, SESSION, STARTED, INFO, CLIENT_INFO, *(f"{name} " for name in COUNTERS.values()),
)  # fmt: skip
"""The beginnings of the lines that are kept."""


class Exported(NamedTuple):
    """The metrics of a broker at `at_s` (seconds since 1970). `values` has the samples without labels. `rates` has the increase per second
    of each of `COUNTERS` since the previous sample; None if there is no previous sample or the broker was started since.
    """

    at_s: float
    version: str
    values: Mapping[str, float]
    rates: Mapping[str, float | None]
    requests: list[RequestActivity]


class BrokerPorts:
    """See the module. `given` are the addresses of the only ports that are read; if it is empty, brokers are asked for theirs."""

    def __init__(self, cluster: Cluster, given: Sequence[str] = (), credentials: str | None = None) -> None:
        self._cluster = cluster
        self._given = given
        self._credentials = credentials
        self.exported: dict[int, Exported] = {}
        """By broker id; a broker whose last scrape failed is absent."""
        self._addresses: dict[int, str] = {}
        self._find_at: dict[int, float] = {}
        self._problems: dict[int, str] = {}
        self._texts: dict[int, str] = {}
        self._before: dict[int, tuple[float, dict[str, float], dict[str, float]]] = {}
        """The time, counters and counts of requests of the last scrape of each broker."""

    def read(self) -> str:
        """Reads the metrics of all brokers. Returns the kept lines of each broker. For a broker that does not answer it returns its
        previous lines, so that sums over all brokers do not jump. Raises `MetricsRefused` with the reason if no broker exports metrics.
        """
        for address in self._given:
            self._read(address, *(broker for broker, known in self._addresses.items() if known == address))
        if not self._given:
            brokers = sorted(self._cluster.metadata.brokers)
            for gone in self._texts.keys() - set(brokers):
                for known in (self._texts, self._addresses, self._before, self._problems):
                    known.pop(gone, None)
                self.exported.pop(gone, None)
            for broker in brokers:
                if address := self._find(broker):
                    self._read(address, broker)
        if not self._texts:
            raise MetricsRefused(next(iter(self._problems.values()), "no broker was asked yet"), "NO_METRICS")
        return "".join(self._texts.values())

    def log(self, broker: int) -> str:
        """Returns the last lines of a broker's log. Raises `MetricsRefused` and `OttlaError` with the reason if it cannot be read."""
        address = self._addresses.get(broker)
        if address is None:
            raise MetricsRefused(self._problems.get(broker, f"broker {broker} has not been asked for its port yet"), "NO_METRICS")
        return scrape(address, self._credentials, path="/log")

    def _find(self, broker: int) -> str:
        """Returns the address of a broker's port; an empty text if the broker has none."""
        if broker not in self._addresses and time.monotonic() >= self._find_at.get(broker, 0.0):
            self._find_at[broker] = time.monotonic() + FIND_EVERY_S
            try:
                self._addresses[broker] = metrics_address(self._cluster, broker)
            except (MetricsRefused, ApiError) as error:
                self._problems[broker] = str(error)
        return self._addresses.get(broker, "")

    def _read(self, address: str, *known: int) -> None:
        """Reads the metrics at an address. `known` are the brokers whose metrics were at this address before."""
        try:
            texts = kept_texts(scrape(address, self._credentials))
        except (MetricsRefused, OttlaError, ValueError) as error:
            for broker in known or (-1,):
                self.exported.pop(broker, None)
                self._problems[broker] = str(error)
            return
        for gone in {*known} - {self._take(address, text) for text in texts}:
            self.exported.pop(gone, None)

    def _take(self, address: str, text: str) -> int:
        """Stores the metrics of one broker. Returns its id."""
        info = next((sample.labels for sample in samples_in(text, INFO)), {})
        broker = int(info.get("broker_id", -1))
        self._addresses[broker] = address
        at_s = time.time()
        values = {sample.name: sample.value for sample in samples_in(text) if not sample.labels}
        was_s, counters, counts = self._before.get(broker, (at_s, {}, {}))
        rates = {name: rate_of(values[key], counters.get(key), at_s - was_s) for name, key in COUNTERS.items() if key in values}
        requests, counts = requests_in(text, counts, at_s - was_s)
        self._texts[broker] = text
        self._before[broker] = at_s, values, counts
        self.exported[broker] = Exported(at_s, info.get("version", ""), values, rates, requests)
        return broker

    def total(self, name: str) -> float | None:
        """Returns the sum of a rate over all brokers; None if the rate is unknown for every broker."""
        return sum_of(one.rates.get(name) for one in self.exported.values())


def sum_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def kept_texts(text: str) -> list[str]:
    """Returns the lines of a scrape that pages show. For the scrape of a service of several brokers it returns one text for each broker,
    without the label `broker`.
    """
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, label, rest = line.partition('{broker="')
        broker = ""
        if label:
            broker, _, rest = rest.partition('"')
            line = name + (rest[1:] if rest.startswith("}") else "{" + rest[1:])
        if line.startswith(KEPT):
            found.setdefault(broker, []).append(f"{line}\n")
    return ["".join(lines) for lines in found.values()]
