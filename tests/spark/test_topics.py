"""The requests of the driver before it plans: offsets of a group whose pipeline may be committing, and topics that it may not read."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client import AuthorizationError, ClientError, Committed, ErrorCode, KafkaError, TopicPartition
from ottla.spark.options import SourcePartitions
from ottla.spark.topics import STABLE_S, committed_offsets, present_partitions
from ottla.testing.broker import Broker

PARTITION = TopicPartition("t", 0)


class Unstable:
    """A fake client of a group with pending offsets. `state` is the state of its transactional id, or the error of the request for it."""

    def __init__(self, state: str | ClientError) -> None:
        self._state = state
        self.asked: list[dict[str, Any]] = []

    def committed(self, group: str, partitions: list[TopicPartition], **options: Any) -> dict[TopicPartition, Committed]:
        self.asked.append(options)
        if len(self.asked) == 1:
            raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, "pending")
        return {PARTITION: Committed(5)}

    def describe_transaction(self, transactional_id: str) -> Any:
        assert transactional_id == "eos/g"
        if isinstance(self._state, ClientError):
            raise self._state
        return self

    @property
    def state(self) -> str | ClientError:
        return self._state


@pytest.mark.parametrize(
    ("state", "is_waited_for"),
    [
        ("Ongoing", False),
        ("PrepareCommit", True),
        ("PrepareAbort", True),
        ("CompleteCommit", True),
        (AuthorizationError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"), False),
    ],
)
def test_only_a_transaction_that_is_not_about_to_end_is_not_waited_for(state: str | ClientError, is_waited_for: bool) -> None:
    client: Any = Unstable(state)
    assert committed_offsets(client, "g", [PARTITION]) == {PARTITION: Committed(5)}
    assert client.asked == [{"timeout_s": STABLE_S}, {"require_stable": is_waited_for}]


def test_other_refusals_are_passed_on() -> None:
    class Denied:
        def committed(self, *_: Any, **__: Any) -> None:
            raise AuthorizationError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")

    denied: Any = Denied()
    with pytest.raises(AuthorizationError):
        committed_offsets(denied, "g", [PARTITION])


def test_a_topic_that_may_not_be_read_is_not_taken_for_a_deleted_one(broker: Broker) -> None:
    from ottla.client import connect

    name = broker.create_topic("secret")
    with connect(broker.bootstrap_server) as client:
        found = present_partitions(client, SourcePartitions(option="subscribe", topics=(name,)))
        assert found == ([TopicPartition(name, 0)], frozenset())
        broker.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(AuthorizationError, match=f"topic '{name}'"):
            present_partitions(client, SourcePartitions(option="subscribe", topics=(name,)))
