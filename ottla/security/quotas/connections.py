"""Rates at which connections may be opened: to this broker, to one of its listeners, and from one address (KIP-612).

A connection above the rate of the broker or its listener is delayed by at most one sample (`quota.window.size.seconds`), and later
connections to this listener wait behind it. A connection above the rate of its address is closed after a delay, so that clients that
reconnect immediately do not keep the broker busy. Such a connection is not included in the rates of broker and listener. A listener for
brokers alone is exempt from the broker's rate, so that clients cannot keep brokers from connecting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from ottla.base.cluster_metadata import QuotaEntity
from ottla.security.quotas.limits import CONNECTION
from ottla.security.quotas.rates import WindowedRate, Windows

HOSTS_MAX = 10_000
UNLIMITED = (1 << 31) - 1


class Delay(NamedTuple):
    """The delay of a new connection, and whether it is closed afterwards."""

    ms: int
    is_refused: bool = False


AT_ONCE = Delay(0)


class ConnectionRates:
    """The recently opened connections. Rates are in connections per second."""

    def __init__(self, now_ms: Callable[[], int], windows: Windows) -> None:
        self._now_ms = now_ms
        self._windows = windows
        self._broker_rate = UNLIMITED
        self._listener_rates: Mapping[str, int] = {}
        self._protected_listener = ""
        self._host_rates: dict[str | None, float] = {}
        self._spellings: dict[str | None, dict[str | None, float]] = {}  # rates by address and by its spelling in the quota
        self._broker = WindowedRate(windows)
        self._listeners: dict[str, WindowedRate] = {}
        self._hosts: dict[str, WindowedRate] = {}  # in LRU order
        self.is_set = False
        """Whether any rate is set."""

    def update(
        self,
        *,
        broker_rate: int,
        listener_rates: Mapping[str, int],
        protected_listener: str,
        quotas: Mapping[QuotaEntity, Mapping[str, float]],
        changed: Iterable[QuotaEntity] | None = None,
    ) -> None:
        """Replaces the rates. `protected_listener` is the brokers' listener, if clients use another one. `changed` lists the entities whose
        quotas changed; None means all."""
        self._broker_rate, self._listener_rates, self._protected_listener = broker_rate, listener_rates, protected_listener
        if changed is None:
            self._spellings.clear()
            self._host_rates.clear()
        for entity in quotas if changed is None else changed:
            if entity[0][0] == "ip":
                self._put_host(entity[0][1], quotas.get(entity, {}).get(CONNECTION, 0))
        self.is_set = broker_rate < UNLIMITED or bool(listener_rates) or bool(self._host_rates)
        if not self._host_rates:
            self._hosts.clear()

    def _put_host(self, name: str | None, rate: float) -> None:
        """Sets the rate of an address, or of all other addresses (None). An IPv6 address may have several spellings; the rate that was set
        last applies.
        """
        host = None if name is None else address(name)
        spellings = self._spellings.setdefault(host, {})
        spellings.pop(name, None)
        if rate > 0:
            spellings[name] = rate
        if spellings:
            self._host_rates[host] = next(reversed(spellings.values()))
        else:
            del self._spellings[host]
            self._host_rates.pop(host, None)

    def note(self, listener: str, host: str) -> Delay:
        """Counts an opened connection, and returns its delay."""
        now_ms = self._now_ms()
        refused_ms = self._note_host(host, now_ms) if self._host_rates else 0
        if refused_ms:
            return Delay(refused_ms, is_refused=True)
        throttle_ms = 0
        if self._broker_rate < UNLIMITED and listener != self._protected_listener:
            throttle_ms = self._note(self._broker, self._broker_rate, now_ms)
        rate = self._listener_rates.get(listener)
        if rate is not None:
            of_listener = self._listeners.setdefault(listener, WindowedRate(self._windows))
            throttle_ms = max(throttle_ms, self._note(of_listener, rate, now_ms))
        return Delay(throttle_ms) if throttle_ms else AT_ONCE

    def _note(self, measured: WindowedRate, rate: float, now_ms: int) -> int:
        measured.record(1, now_ms)
        return min(measured.throttle_ms(rate, now_ms), self._windows.size_ms)

    def _note_host(self, host: str, now_ms: int) -> int:
        rate = self._host_rates.get(host)
        if rate is None:
            rate = self._host_rates.get(None)
        if rate is None:
            return 0
        measured = self._hosts.pop(host, None)
        if measured is None:
            measured = WindowedRate(self._windows)
            if len(self._hosts) >= HOSTS_MAX:
                del self._hosts[next(iter(self._hosts))]
        self._hosts[host] = measured
        throttle_ms = self._note(measured, rate, now_ms)
        if throttle_ms:
            measured.record(-1, now_ms)
        return throttle_ms


def address(name: str) -> str:
    """Returns an IP address as sockets write it; other texts unchanged."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name
