"""TxnOffsetCommit between the question to the transaction coordinator and the writing of the offsets: an answer that a marker has overtaken
admits nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.handlers.context import ConnectionInfo, RequestContext
from ottla.handlers.transactions import txn_offset_commit
from ottla.replication.verification import VerificationGuard, Verifications
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.authorizer import AllowClients
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.groups.classic.coordinator import Coordinator as GroupCoordinator

OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
Answer = Callable[[dict[TopicPartition, ErrorCode]], None]


class Coordinator:
    """A broker for which another broker coordinates the transactions, and answers late."""

    def __init__(self) -> None:
        self.verifications = Verifications()
        self.asked: list[Answer] = []
        self.committed = 0
        self.is_open = False
        groups = GroupCoordinator()
        topic = SimpleNamespace(name="in", partitions=[0], topic_id=bytes(16))
        self.broker: Any = SimpleNamespace(
            authorizer=AllowClients(),
            quotas=None,
            metadata=SimpleNamespace(topic=lambda _name: topic, partition=lambda _topic, index: index),
            groups=SimpleNamespace(host_of=lambda _group_id: SimpleNamespace(machine=groups.machine, run=self._run, is_full=False)),
            partitions=SimpleNamespace(get=lambda _topic, _index: SimpleNamespace(leader=self)),
            transactions=SimpleNamespace(admit=lambda *arguments: self.asked.append(arguments[-1])),
            clock=SimpleNamespace(wall_ms=lambda: 0),
        )
        self.claims: list[str] = []

    def may_continue(self, _producer_id: int, _producer_epoch: int, principal: str) -> bool:
        return self.is_open and self.claims[-1:] == [principal]

    def claim_producer(self, _producer_id: int, principal: str, _now_ms: int) -> None:
        self.claims.append(principal)

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> VerificationGuard:
        return self.verifications.begin(producer_id, producer_epoch, base_sequence)

    def _run(self, decide: Callable[[int], Any]) -> None:
        decision = decide(0)
        self.committed += len(decision.records)
        for effect in decision.effects:
            effect.reply(effect.response)

    def ask(self, group_id: str = "g") -> Any:
        topic = TxnOffsetCommitRequestTopic(name="in", partitions=[TxnOffsetCommitRequestPartition(committed_offset=5)])
        body = TxnOffsetCommitRequest(transactional_id="tx", group_id=group_id, producer_id=7, producer_epoch=0, topics=[topic])
        connection = ConnectionInfo(identity="c", host="10.0.0.1", listener="PLAINTEXT")
        return txn_offset_commit.handle(self.broker, RequestContext(3, "c", connection), body)


def test_an_answer_in_time_lets_the_offsets_in() -> None:
    coordinator = Coordinator()
    pending = coordinator.ask()
    coordinator.asked[0]({OFFSETS: ErrorCode.NONE})
    assert pending.is_done and coordinator.committed == 1


def test_a_group_has_a_name() -> None:
    coordinator = Coordinator()
    answer = coordinator.ask(group_id="")
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID
    assert (coordinator.committed, coordinator.asked) == (0, [])


def test_an_answer_that_a_marker_has_overtaken_counts_for_nothing() -> None:
    """KIP-890. Otherwise the offsets would open a transaction in this partition that no marker ends (found by the simulation)."""
    coordinator = Coordinator()
    pending = coordinator.ask()
    coordinator.verifications.forget(7)
    coordinator.asked[0]({OFFSETS: ErrorCode.NONE})
    (topic,) = pending.response.topics
    assert [partition.error_code for partition in topic.partitions] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert coordinator.committed == 0
    coordinator.ask()
    coordinator.asked[1]({OFFSETS: ErrorCode.NONE})
    assert coordinator.committed == 1, "the client asks again"


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_a_refusal_is_answered(code: ErrorCode) -> None:
    coordinator = Coordinator()
    pending = coordinator.ask()
    coordinator.asked[0]({OFFSETS: code})
    assert pending.response.topics[0].partitions[0].error_code == code and coordinator.committed == 0


def test_a_transaction_that_has_written_here_is_not_asked_about() -> None:
    coordinator = Coordinator()
    coordinator.ask()
    coordinator.asked.pop()({OFFSETS: ErrorCode.NONE})
    coordinator.is_open = True
    assert coordinator.ask().is_done
    assert (coordinator.committed, coordinator.asked) == (2, [])


def test_a_transaction_of_another_principal_is_asked_about() -> None:
    coordinator = Coordinator()
    coordinator.claims, coordinator.is_open = ["User:owner"], True
    pending = coordinator.ask()
    coordinator.asked[0]({OFFSETS: ErrorCode.INVALID_PRODUCER_ID_MAPPING})
    assert pending.response.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (coordinator.committed, coordinator.claims) == (0, ["User:owner"])


@pytest.mark.parametrize(
    ("operation", "kind", "code"),
    [
        (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (AclOperation.READ, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (AclOperation.READ, ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_each_right_is_needed(operation: AclOperation, kind: ResourceType, code: ErrorCode) -> None:
    """A6: rights to the transactional id, to the group, and to the topics. Without one of them no coordinator is asked and nothing is
    written."""
    coordinator = Coordinator()
    coordinator.broker.authorizer = SimpleNamespace(is_allowed=lambda _connection, *asked: asked[:2] != (operation, kind))
    answer = coordinator.ask()
    (topic,) = answer.topics
    assert [partition.error_code for partition in topic.partitions] == [code]
    assert (coordinator.committed, coordinator.asked) == (0, [])
