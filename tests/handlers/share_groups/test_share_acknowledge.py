"""ShareAcknowledge with real partitions: it is answered when the acknowledgements are durable, and each partition has a result of its
own."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending
from ottla.security.principal import ANONYMOUS
from ottla.sharing.sessions import SESSION_PARTITIONS_MAX
from tests.handlers.share_world import GROUP, LOCK_MS, ShareWorld, acquired, codes

ACCEPT, RELEASE, RENEW = 1, 2, 4


def holding(partitions: int = 1) -> ShareWorld:
    """Member `a` has ten records of each partition."""
    world = ShareWorld(partitions=partitions)
    for index in range(partitions):
        world.append(10, partition=index)
    world.fetch(0, partitions=tuple(range(partitions)))
    return world


def test_more_batches_than_a_request_may_have() -> None:
    assert holding().acknowledge(1, *[(0, 0, 0, [ACCEPT])] * 20_001).error_code == ErrorCode.INVALID_REQUEST


def test_a_refused_request_does_not_count_for_the_session() -> None:
    """As in Kafka, the next request has the epoch of the refused one."""
    world = holding()
    for refused in (
        world.acknowledge(1, *[(0, 0, 0, [ACCEPT])] * 20_001),
        world.acknowledge(1, *[(index, 0, 0, [ACCEPT]) for index in range(SESSION_PARTITIONS_MAX + 1)]),
        world.acknowledge(0, (0, 0, 0, [ACCEPT])),
        world.acknowledge(2, (0, 0, 0, [ACCEPT])),
    ):
        assert refused.error_code and refused.responses == []
    assert codes(world.acknowledge(1, (0, 0, 9, [ACCEPT]))) == {0: ErrorCode.NONE}


def test_accepted_records_are_done_with() -> None:
    world = holding()
    answer = world.acknowledge(1, (0, 0, 9, [ACCEPT]))
    assert (codes(answer), answer.acquisition_lock_timeout_ms) == ({0: ErrorCode.NONE}, LOCK_MS)
    assert acquired(world.fetch(2, max_wait_ms=0)) == {}


def test_released_records_come_again() -> None:
    world = holding()
    world.acknowledge(1, (0, 2, 4, [RELEASE]), (0, 6, 6, [RELEASE]))
    assert acquired(world.fetch(2)) == {0: [(2, 4, 2), (6, 6, 2)]}


def test_each_partition_for_itself() -> None:
    world = holding(2)
    answer = world.acknowledge(1, (0, 0, 9, [ACCEPT]), (1, 0, 10, [ACCEPT]), (7, 0, 0, [ACCEPT]))
    assert codes(answer) == {0: ErrorCode.NONE, 1: ErrorCode.INVALID_REQUEST, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_what_others_have() -> None:
    world = holding()
    world.fetch(0, member="b", partitions=(0,), max_wait_ms=0)
    assert codes(world.acknowledge(1, (0, 0, 9, [ACCEPT]), member="b")) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_it_is_answered_when_it_is_durable() -> None:
    world = holding(2)
    world.persister.is_held = True
    pending = world.acknowledge(1, (0, 0, 9, [ACCEPT]), (1, 0, 9, [ACCEPT]))
    assert isinstance(pending, Pending) and not pending.is_done
    world.persister.release()
    assert codes(pending.response) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}


def test_what_could_not_be_written_may_be_said_again() -> None:
    world = holding()
    world.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert codes(world.acknowledge(1, (0, 0, 9, [ACCEPT]))) == {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.persister.fail_with = None
    assert codes(world.acknowledge(2, (0, 0, 9, [ACCEPT]))) == {0: ErrorCode.NONE}


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (2, ErrorCode.INVALID_SHARE_SESSION_EPOCH), (1, ErrorCode.NONE), (-1, ErrorCode.NONE)],
)
def test_epochs(epoch: int, code: ErrorCode) -> None:
    assert holding().acknowledge(epoch, (0, 0, 9, [ACCEPT])).error_code == code


def test_another_principal_cannot_use_or_replace_a_session() -> None:
    world = ShareWorld()
    world.append(2)
    assert acquired(world.fetch(0, partitions=(0,)))
    world.connection.principal = "User:other"
    for refused in (world.fetch(1), world.fetch(0, partitions=(0,)), world.acknowledge(1, (0, 0, 0, [1])), world.fetch(-1)):
        assert refused.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    world.connection.principal = ANONYMOUS
    assert not codes(world.acknowledge(1, (0, 0, 1, [1])))[0]


def test_no_session() -> None:
    assert ShareWorld().acknowledge(1, (0, 0, 9, [ACCEPT])).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize(("group", "member"), [(None, "a"), (GROUP, None), (GROUP, ""), (GROUP, "x" * 37)])
def test_group_and_member_must_be_named(group: str | None, member: str | None) -> None:
    assert holding().acknowledge(1, (0, 0, 9, [ACCEPT]), group=group, member=member).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_not_there() -> None:
    assert codes(holding().acknowledge(1, (0, 0, 9, [ACCEPT]), topic_id=b"x" * 16)) == {0: ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_request_without_acknowledgements() -> None:
    answer = holding().acknowledge(1)
    assert (answer.error_code, answer.responses) == (ErrorCode.NONE, [])


def test_the_final_epoch_gives_back_the_rest() -> None:
    world = holding()
    world.fetch(0, member="b", partitions=(0,), max_wait_ms=0)
    assert codes(world.acknowledge(-1, (0, 0, 4, [ACCEPT]))) == {0: ErrorCode.NONE}
    assert acquired(world.fetch(1, member="b")) == {0: [(5, 9, 2)]}


def test_a_lock_is_renewed_only_where_the_request_says_so() -> None:
    world = holding()
    assert codes(world.acknowledge(1, (0, 0, 9, [RENEW]))) == {0: ErrorCode.INVALID_REQUEST}
    world.timers.advance(LOCK_MS - 1)
    assert codes(world.acknowledge(2, (0, 0, 4, [RENEW]), is_renewing=True)) == {0: ErrorCode.NONE}
    world.timers.advance(LOCK_MS - 1)
    assert codes(world.acknowledge(3, (0, 0, 4, [ACCEPT]))) == {0: ErrorCode.NONE}
    assert codes(world.acknowledge(4, (0, 5, 9, [ACCEPT]))) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_version_1_knows_no_renewal() -> None:
    assert codes(holding().acknowledge(1, (0, 0, 9, [RENEW]), is_renewing=True, version=1)) == {0: ErrorCode.INVALID_REQUEST}


def test_a_partition_that_is_led_elsewhere_names_its_leader() -> None:
    world = holding()
    world.partitions[0].become_follower(leader_id=3, leader_epoch=9, partition_epoch=1, replicas=(0, 3), isr=(3,))
    answer = world.acknowledge(1, (0, 0, 9, [ACCEPT]))
    assert codes(answer) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert answer.responses[0].partitions[0].current_leader.leader_id == 3
    assert [node.node_id for node in answer.node_endpoints] == [3]
