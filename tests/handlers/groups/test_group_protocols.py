"""`group.coordinator.rebalance.protocols`: requests of a protocol that the setting excludes get UNSUPPORTED_VERSION."""

from __future__ import annotations

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.handlers.admin_world import AdminWorld


def test_without_the_new_consumer_protocol_its_requests_are_refused() -> None:
    world = AdminWorld(load(assignments=["group.coordinator.rebalance.protocols=classic"])[0])
    beat = world.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"]))
    assert (beat.error_code, beat.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
    described = world.ask(ConsumerGroupDescribeRequest(group_ids=["g", "h"]))
    assert [(group.group_id, group.error_code) for group in described.groups] == [
        ("g", ErrorCode.UNSUPPORTED_VERSION),
        ("h", ErrorCode.UNSUPPORTED_VERSION),
    ]
