"""Administration of groups, with answers made by the test."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.conversation import Ask, Effect, Open
from ottla.client.core.group_admin import OFFSET_FETCH, Committed, ListedGroup, committed_offsets_of, delete_group
from ottla.client.errors import ConnectError, KafkaError
from ottla.wire.messages import delete_groups, find_coordinator, offset_fetch
from tests.client.core.drive import ByHand


class OldBroker(ByHand):
    """A broker whose OffsetFetch names one group only."""

    def _perform(self, effect: Effect) -> Any:
        result = super()._perform(effect)
        if isinstance(effect, Open):
            newest = result.version_of
            result.version_of = lambda key: 7 if key == OFFSET_FETCH else newest(key)
        return result


def _coordinator(body: Any) -> find_coordinator.FindCoordinatorResponse:
    found = find_coordinator.Coordinator(key=body.coordinator_keys[0], node_id=1, host="b1", port=9092)
    return find_coordinator.FindCoordinatorResponse(coordinators=[found])


def test_the_error_of_one_group_hides_no_other_on_an_old_broker() -> None:
    def answer(ask: Ask) -> Any:
        body: Any = ask.body
        if isinstance(body, find_coordinator.FindCoordinatorRequest):
            return _coordinator(body)
        if body.group_id == "secret":
            return offset_fetch.OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        place = offset_fetch.OffsetFetchResponsePartition(partition_index=0, committed_offset=5)
        return offset_fetch.OffsetFetchResponse(topics=[offset_fetch.OffsetFetchResponseTopic(name="t", partitions=[place])])

    world = OldBroker(answer)
    groups = [ListedGroup(name, "consumer", "Stable", "Classic", 1) for name in ("secret", "open")]
    found = world.run(committed_offsets_of(world.core, groups))
    assert found["open"] == {TopicPartition("t", 0): Committed(5)}
    error = found["secret"]
    assert isinstance(error, KafkaError) and error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_group_that_a_lost_request_has_deleted_is_no_error() -> None:
    groups = {"g"}
    lost = iter([True])

    def answer(ask: Ask) -> Any:
        body: Any = ask.body
        if isinstance(body, find_coordinator.FindCoordinatorRequest):
            return _coordinator(body)
        (name,) = body.groups_names
        code = 0 if name in groups else ErrorCode.GROUP_ID_NOT_FOUND
        groups.discard(name)
        if next(lost, False):
            raise ConnectError("lost")
        return delete_groups.DeleteGroupsResponse(results=[delete_groups.DeletableGroupResult(group_id=name, error_code=code)])

    world = ByHand(answer)
    world.run(delete_group(world.core, "g"))
    assert groups == set() and len(world.pauses) == 1
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        world.run(delete_group(world.core, "g"))
