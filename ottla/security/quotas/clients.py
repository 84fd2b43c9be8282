"""Quotas of users and client ids: charges their requests, and computes how long they are throttled.

There are four kinds: bytes of produce requests, fetched bytes, request time, and mutations of the cluster (`mutations.py`). The other
charges return how many milliseconds the client must wait, 0 while it is within its quota. Answering and muting the channel are the server's
task (`server/quotas/throttling.py`).

Clients without a quota are not measured. Memory is bounded: a meter beyond `METERS_MAX` evicts the least recently used one. A meter without
use for an hour (`IDLE_MS_MAX`) is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ottla.base.bounded_cache import BoundedCache
from ottla.base.cluster_metadata import QuotaEntity
from ottla.security.principal import split_principal
from ottla.security.quotas.limits import CLIENT_KINDS, FETCH, MUTATION, PRODUCE, REQUEST, Limit, Limits, QuotaShare
from ottla.security.quotas.meter import Meter
from ottla.security.quotas.mutations import Mutations
from ottla.security.quotas.rates import THROTTLE_MS_MAX, Windows

METERS_MAX = 10_000
FOUND_BYTES_MAX = 4 << 20
"""Memory for the cached limits of clients, for one kind of quota. 4 MiB: about 8,000 clients."""
IDLE_MS_MAX = 3_600_000
USED_MS = 1000
"""Resolution of a meter's last use, in milliseconds."""
BYTES_MAX = (1 << 31) - 1
PERCENT_OF_NANOSECONDS = 100 / 1e9

QuotaClient = tuple[str, str | None]
"""Principal and client id of a request."""


class ClientQuotas:
    """The quotas of users and client ids on this broker."""

    def __init__(self, now_ms: Callable[[], int], windows: Windows, mutation_windows: Windows) -> None:
        self._now_ms = now_ms
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._limits = Limits({})
        self._found: dict[str, BoundedCache[QuotaClient, Limit | None]] = {kind: BoundedCache(FOUND_BYTES_MAX) for kind in CLIENT_KINDS}
        self._meters: dict[QuotaShare, Meter] = {}  # in LRU order
        self.is_set = False
        """Whether any user or client id has a quota."""

    def update(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], changed: Iterable[QuotaEntity] | None = None) -> None:
        """Replaces the quotas. `changed` lists the entities whose quotas changed; None means all. Keeps the measurements as long as any
        quota is left. The next request under a changed limit fills its token bucket and so cancels the debt, except for mutations."""
        if changed is None:
            self._limits = Limits(quotas)
        else:
            for entity in changed:
                self._limits.put(entity, quotas.get(entity, {}))
        for found in self._found.values():
            found.clear()
        self.is_set = any(map(self._limits.is_set, CLIENT_KINDS))
        if not self.is_set:
            self._meters.clear()

    # Charges

    def charge_produce(self, principal: str, client_id: str | None, size: int) -> int:
        return self._charge(PRODUCE, principal, client_id, size)

    def charge_fetch(self, principal: str, client_id: str | None, size: int, *, is_sent: bool = False) -> int:
        """Charges `size` bytes of records. With `is_sent` they are charged in any case, because they are sent in spite of the quota.
        Without it, nothing is charged if the client must wait."""
        meter = self._meter(FETCH, principal, client_id)
        if meter is None:
            return 0
        now_ms = self._now_ms()
        throttle_ms = meter.use(size, now_ms) if is_sent else meter.admit(size, now_ms)
        if throttle_ms:
            meter.note_throttle(throttle_ms, now_ms)
        return throttle_ms

    def charge_time(self, principal: str, client_id: str | None, nanoseconds: int) -> int:
        """Charges the time that a request took; throttles for at most one sample."""
        percent = nanoseconds * PERCENT_OF_NANOSECONDS
        return self._charge(REQUEST, principal, client_id, percent, self._windows.size_ms)

    def _charge(self, kind: str, principal: str, client_id: str | None, amount: float, throttle_ms_max: int = THROTTLE_MS_MAX) -> int:
        meter = self._meter(kind, principal, client_id)
        if meter is None:
            return 0
        now_ms = self._now_ms()
        throttle_ms = min(meter.use(amount, now_ms), throttle_ms_max)
        if throttle_ms:
            meter.note_throttle(throttle_ms, now_ms)
        return throttle_ms

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int:
        """Returns the maximum bytes that one fetch should read: a larger answer would exceed the quota."""
        meter = self._meter(FETCH, principal, client_id)
        return BYTES_MAX if meter is None else max(int(min(meter.most(self._now_ms()), BYTES_MAX)), 1)

    def mutations(self, principal: str, client_id: str | None, *, is_strict: bool) -> Mutations:
        """Returns the quota for mutations of one request. `is_strict`: its version knows THROTTLING_QUOTA_EXCEEDED."""
        return Mutations(self._meter(MUTATION, principal, client_id), self._now_ms, is_strict=is_strict)

    def owed_ms(self, principal: str, client_id: str | None) -> int:
        """Returns how long a client has to wait because of bytes that it has produced and fetched, 0 while it is within its quotas."""
        meters = [self._meter(kind, principal, client_id) for kind in (PRODUCE, FETCH)]
        return max((meter.owed_ms(self._now_ms()) for meter in meters if meter is not None), default=0)

    # Metrics

    def meters(self) -> Iterator[tuple[QuotaShare, Meter]]:
        """Iterates over all meters that are not idle."""
        self._forget_idle(self._now_ms())
        return iter(list(self._meters.items()))

    # Finding

    def _find(self, kind: str, principal: str, client_id: str | None) -> Limit | None:
        known = self._found[kind]
        client = (principal, client_id)
        try:
            return known[client]
        except KeyError:
            pass
        return known.remember(client, self._limits.find(kind, split_principal(principal)[1], client_id or ""))

    def _meter(self, kind: str, principal: str, client_id: str | None) -> Meter | None:
        limit = self._find(kind, principal, client_id)
        if limit is None:
            return None
        share, now_ms = limit.share, self._now_ms()
        meter = self._meters.get(share)
        if meter is None:
            self._forget_idle(now_ms)
            if len(self._meters) >= METERS_MAX:
                del self._meters[next(iter(self._meters))]
            windows = self._mutation_windows if kind == MUTATION else self._windows
            meter = self._meters[share] = Meter(windows, now_ms, has_bucket=kind != REQUEST, keeps_debts=kind == MUTATION)
        elif now_ms - meter.used_ms >= USED_MS:
            del self._meters[share]
            self._meters[share] = meter
            meter.used_ms = now_ms
        if meter.limit != limit.rate:
            meter.set_limit(limit.rate)
        return meter

    def _forget_idle(self, now_ms: int) -> None:
        meters = self._meters
        while meters and now_ms - next(iter(meters.values())).used_ms >= IDLE_MS_MAX:
            del meters[next(iter(meters))]
