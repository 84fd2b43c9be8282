"""The lease of a session: held until its end on the monotonic clock, and one call when it has lapsed."""

from __future__ import annotations

from math import inf
from typing import Any, cast

from ottla.base.loop.lease import Lease
from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.ports import MetadataStore
from tests.fakes.timers import ManualTimers


class Store:
    def __init__(self, ends_ms: float) -> None:
        self.ends_ms = ends_ms

    def lease_ends_ms(self) -> float:
        return self.ends_ms


def lease_of(store: Any, timers: ManualTimers) -> Lease:
    return Lease(cast("MetadataStore", store), timers.clock, timers)


def note_the_end(lease: Lease, calls: list[str]) -> Procedure[None]:
    yield from lease.lapse()
    calls.append("lapsed")


def test_it_is_held_until_its_end_and_renewed_by_the_store() -> None:
    timers = ManualTimers()
    now_ms = timers.clock.monotonic_ms()
    store = Store(now_ms + 100)
    lease = lease_of(store, timers)
    calls: list[str] = []
    Runner().start(note_the_end(lease, calls))
    cancelled = Runner()
    cancelled.start(note_the_end(lease, calls))
    cancelled.cancel()
    timers.advance(99)
    assert lease.is_held() and lease.may_lapse
    store.ends_ms = now_ms + 150
    timers.advance(50)
    assert lease.is_held() and calls == []
    timers.advance(1)
    assert not lease.is_held() and calls == ["lapsed"]
    timers.advance(1_000)
    assert calls == ["lapsed"]


def test_the_embedded_stores_lease_never_ends_and_costs_no_timer() -> None:
    timers = ManualTimers()
    lease = lease_of(Store(inf), timers)
    Runner().start(note_the_end(lease, []))
    assert lease.is_held() and not lease.may_lapse and timers.pending() == 0
