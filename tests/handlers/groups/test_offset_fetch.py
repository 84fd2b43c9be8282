"""OffsetFetch on a broker that may no longer be the coordinator: its committed offsets may be older than its successor's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending
from ottla.handlers.groups.offset_fetch import handle
from ottla.security.authorizer import AllowClients
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.handlers.records_world import request


def test_without_a_lease_no_committed_offset_is_read() -> None:
    """A consumer that begins at an old offset would process records a second time."""
    asked: list[str] = []

    def partition_for(group_id: str) -> Any:
        asked.append(group_id)
        raise AssertionError("the group's coordinator is asked")

    broker: Any = SimpleNamespace(
        authorizer=AllowClients(), groups=SimpleNamespace(host_for=partition_for), lease=SimpleNamespace(is_held=lambda: False)
    )
    pending = handle(broker, request(9), OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]))
    assert isinstance(pending, Pending)
    assert [group.error_code for group in pending.response.groups] == [ErrorCode.NOT_COORDINATOR] and asked == []
