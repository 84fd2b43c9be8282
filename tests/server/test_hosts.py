"""Which broker coordinates a group, as long as nobody has committed anything anywhere."""

from __future__ import annotations

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.controller.state import ClusterMetadata
from ottla.groups.settings import GroupSettings
from ottla.server.hosts import GroupHosts
from tests.fakes.clock import ManualClock
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers


def test_without_the_offsets_topic_no_broker_is_the_coordinator() -> None:
    """As in Kafka: a client that asks before it has looked for the coordinator is told to look for it, which makes the topic."""
    clock = ManualClock()
    hosts = GroupHosts(clock, ManualTimers(clock), SeededRandom(1), ClusterMetadata(), GroupSettings())
    with pytest.raises(ApiError) as refused:
        hosts.host_of("g")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
