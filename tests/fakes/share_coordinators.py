"""Makes a share coordinator without a broker."""

from __future__ import annotations

from collections.abc import Callable

from ottla.sharing.state_coordinators import ShareStateCoordinators
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import share_state_settings
from tests.fakes.timers import ManualTimers
from tests.sharing.state_world import Topics


def share_coordinators(
    clock: ManualClock,
    timers: ManualTimers,
    partition_count: Callable[[], int] = lambda: 1,
    is_lease_held: Callable[[], bool] = lambda: True,
) -> ShareStateCoordinators:
    return ShareStateCoordinators(
        partition_count=partition_count,
        topics=Topics(),
        settings=share_state_settings(),
        clock=clock,
        timers=timers,
        load_bytes=lambda: 1 << 20,
        prune=lambda _partition: lambda _end: None,
        is_lease_held=is_lease_held,
    )
