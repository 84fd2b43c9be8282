"""ShareFetch with real partitions: what a member gets, when its request waits, what ends the wait, and the errors."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.config import load
from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.handlers.context import Pending
from ottla.security.acl import ResourceType
from ottla.wire.batch_header import iter_batches
from ottla.wire.messages.share_fetch import ShareFetchResponse
from tests.fakes.authorizer import StrictAuthorizer
from tests.handlers.records_world import TOPIC_ID
from tests.handlers.share_world import GROUP, LOCK_MS, ShareWorld, acquired, codes, connection

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def bases(response: ShareFetchResponse) -> list[int]:
    """The first offset of each log batch in the answer."""
    (topic,) = response.responses
    found = [
        header.base_offset for partition in topic.partitions if partition.records for _, header in iter_batches(partition.records.read())
    ]
    return found


def test_records_and_then_those_behind_them() -> None:
    world = ShareWorld()
    world.append(10, 10, 10)
    answer = world.fetch(0, partitions=(0,), max_records=15)
    assert (acquired(answer), bases(answer), answer.acquisition_lock_timeout_ms) == ({0: [(0, 19, 1)]}, [0, 10], LOCK_MS)
    answer = world.fetch(1, max_records=15)
    assert (acquired(answer), bases(answer)) == ({0: [(20, 29, 1)]}, [20])


def test_two_members_share_a_partition() -> None:
    world = ShareWorld()
    world.append(10, 10)
    assert acquired(world.fetch(0, partitions=(0,), max_records=5)) == {0: [(0, 9, 1)]}
    assert acquired(world.fetch(0, member="b", partitions=(0,))) == {0: [(10, 19, 1)]}


def test_a_strict_limit_of_records() -> None:
    world = ShareWorld()
    world.append(10)
    answer = world.fetch(0, partitions=(0,), max_records=3, share_acquire_mode=1)
    assert (acquired(answer), bases(answer)) == ({0: [(0, 2, 1)]}, [0])


def test_batches_of_the_wanted_size() -> None:
    world = ShareWorld()
    world.append(10, 10, 10)
    assert acquired(world.fetch(0, partitions=(0,), batch_size=10)) == {0: [(0, 9, 1), (10, 19, 1), (20, 29, 1)]}


def test_partitions_come_in_turn() -> None:
    world = ShareWorld(partitions=2)
    for partition in (0, 1):
        world.append(10, 10, partition=partition)
    served = [acquired(world.fetch(epoch, partitions=(0, 1) if epoch == 0 else (), max_records=10)) for epoch in range(4)]
    assert served == [{0: [(0, 9, 1)]}, {1: [(0, 9, 1)]}, {0: [(10, 19, 1)]}, {1: [(10, 19, 1)]}]


def test_a_waiting_member_gets_what_is_appended() -> None:
    world = ShareWorld()
    pending = world.fetch(0, partitions=(0,))
    assert isinstance(pending, Pending)
    world.append(5)
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(0, 4, 1)]}


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_read_error_fails_only_the_partition(is_waiting: bool) -> None:
    """The log is read again for the batches' headers. A failure of this second read too is answered by an error, and takes the replica
    offline."""
    world = ShareWorld()
    if is_waiting:
        response = world.fetch(0, partitions=(0,))
        other = world.fetch(0, member="b", partitions=(0,))
    world.append(5)
    world.disk.fail_next("read", path_part="t-0")
    if is_waiting:
        world.timers.run_due()
        response = response.response
        assert codes(other.response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}, "it tries again"
    else:
        response = world.fetch(0, partitions=(0,))
    assert codes(response) == {0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert not world.partitions[0].is_leading


def test_a_waiting_member_gets_what_another_releases() -> None:
    world = ShareWorld()
    world.append(5)
    world.fetch(0, partitions=(0,))
    pending = world.fetch(0, member="b", partitions=(0,), max_wait_ms=60_000)
    world.acknowledge(1, (0, 1, 2, [RELEASE]))
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(1, 2, 2)]}


def test_a_waiting_member_gets_what_another_has_kept_for_too_long() -> None:
    world = ShareWorld()
    world.append(5)
    world.fetch(0, partitions=(0,))
    pending = world.fetch(0, member="b", partitions=(0,), max_wait_ms=60_000)
    world.timers.advance(LOCK_MS)
    assert acquired(pending.response) == {0: [(0, 4, 2)]}


def test_a_wait_ends_with_the_session_of_its_client() -> None:
    world = ShareWorld()
    client = connection()
    client.session_ends_ms = world.clock.monotonic_ms() + 200
    pending = world.fetch(0, partitions=(0,), max_wait_ms=60_000, connection=client)
    world.timers.advance(199)
    assert not pending.is_done
    world.timers.advance(1)
    assert pending.is_done and codes(pending.response) == {0: ErrorCode.NONE}


def test_a_wait_ends_after_max_wait() -> None:
    world = ShareWorld()
    pending = world.fetch(0, partitions=(0,))
    world.timers.advance(500)
    assert (acquired(pending.response), codes(pending.response)) == ({}, {0: ErrorCode.NONE})
    pending = world.fetch(1)
    world.timers.advance(500)
    assert pending.response.responses == []


@pytest.mark.parametrize("options", [{"max_wait_ms": 0}, {"min_bytes": 0}, {"max_records": 0}])
def test_requests_that_do_not_wait(options: dict[str, int]) -> None:
    answer = ShareWorld().fetch(0, partitions=(0,), **options)
    assert acquired(answer) == {}


@pytest.mark.parametrize("options", [{"max_bytes": 0}, {"max_records": 0}])
def test_a_request_for_nothing_gets_nothing_and_does_not_wait(options: dict[str, int]) -> None:
    """Such a request opens a session or acknowledges, and acquires no records."""
    world = ShareWorld()
    world.append(10)
    answer = world.fetch(0, partitions=(0,), **options)
    assert (acquired(answer), codes(answer)) == ({}, {0: ErrorCode.NONE})
    assert world.fetch(1, **options).responses == []
    assert acquired(world.fetch(2)) == {0: [(0, 9, 1)]}, "the records were free, and this is their first delivery"


def test_enough_bytes_are_waited_for() -> None:
    world = ShareWorld()
    world.append(5)
    pending = world.fetch(0, partitions=(0,), min_bytes=1000)
    assert isinstance(pending, Pending)
    world.append(190)
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(0, 194, 1)]}
    world.append(5)
    pending = world.fetch(1, min_bytes=1000)
    world.timers.advance(500)
    assert acquired(pending.response) == {0: [(195, 199, 1)]}


def test_acknowledgements_come_along() -> None:
    world = ShareWorld()
    world.append(10, 10)
    world.fetch(0, partitions=(0,), max_records=10)
    answer = world.fetch(1, said=((0, 0, 4, [ACCEPT]), (0, 5, 9, [RELEASE])))
    assert (acquired(answer), codes(answer)) == ({0: [(5, 9, 2), (10, 19, 1)]}, {0: ErrorCode.NONE})
    answer = world.fetch(2, said=((0, 0, 9, [ACCEPT]),), max_wait_ms=0)
    assert codes(answer) == {0: ErrorCode.NONE}
    answer = world.fetch(3, said=((0, 9, 5, [ACCEPT]),), max_wait_ms=0)
    assert codes(answer) == {0: ErrorCode.INVALID_REQUEST}


def test_the_answer_waits_until_what_was_said_is_durable() -> None:
    world = ShareWorld()
    world.append(10)
    world.fetch(0, partitions=(0,))
    world.persister.is_held = True
    pending = world.fetch(1, said=((0, 0, 9, [ACCEPT]),), max_wait_ms=0)
    assert isinstance(pending, Pending) and not pending.is_done
    world.persister.release()
    assert codes(pending.response) == {0: ErrorCode.NONE}


def test_it_waits_for_what_is_remembered() -> None:
    world = ShareWorld()
    world.append(10)
    world.persister.is_held = True
    pending = world.fetch(0, partitions=(0,))
    world.persister.release()
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(0, 9, 1)]}


def test_the_share_coordinator_is_missing_at_first() -> None:
    world = ShareWorld()
    world.append(10)
    world.persister.fail_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    pending = world.fetch(0, partitions=(0,))
    world.timers.advance(500)
    assert (acquired(pending.response), codes(pending.response)) == ({}, {0: ErrorCode.NONE})
    world.persister.fail_with = None
    assert acquired(world.fetch(1)) == {0: [(0, 9, 1)]}


def test_a_group_that_does_not_exist() -> None:
    world = ShareWorld(is_initialized=False)
    world.persister.fail_with = ErrorCode.INVALID_REQUEST
    assert codes(world.fetch(0, partitions=(0,))) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize(
    ("epoch", "options", "code"),
    [
        (1, {}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (-1, {}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        (0, {"group": None}, ErrorCode.INVALID_REQUEST),
        (0, {"group": "x" * 1001}, ErrorCode.INVALID_GROUP_ID),
        (0, {"member": None}, ErrorCode.INVALID_REQUEST),
        (0, {"member": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"member": "x" * 37}, ErrorCode.INVALID_REQUEST),
        (0, {"said": ((0, 0, 1, [ACCEPT]),)}, ErrorCode.INVALID_REQUEST),
        (0, {"is_renew_ack": True}, ErrorCode.INVALID_REQUEST),
        (0, {"share_acquire_mode": 2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_that_are_refused(epoch: int, options: dict[str, Any], code: ErrorCode) -> None:
    world = ShareWorld()
    answer = world.fetch(epoch, **{"partitions": (0,), **options})
    assert (answer.error_code, answer.responses) == (code, [])
    assert "group" not in options or len(world.broker.share_sessions) == 0, "2,000 sessions of long ids kept 64 MB"


@pytest.mark.parametrize(
    "options",
    [{"partitions": tuple(range(20_001))}, {"forgotten": tuple(range(20_001))}, {"said": ((0, 0, 1, [ACCEPT]),) * 20_001}],
)
def test_a_request_that_names_too_much_is_refused_before_it_is_looked_at(options: dict[str, Any]) -> None:
    world = ShareWorld()
    world.fetch(0, partitions=(0,), max_wait_ms=0)
    assert world.fetch(1, **options).error_code == ErrorCode.INVALID_REQUEST
    assert world.fetch(1, max_wait_ms=0).error_code == ErrorCode.NONE, "the session goes on"


def test_an_epoch_out_of_order() -> None:
    world = ShareWorld()
    world.fetch(0, partitions=(0,), max_wait_ms=0)
    assert world.fetch(2, max_wait_ms=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert world.fetch(1, max_wait_ms=0).error_code == ErrorCode.NONE


def test_too_many_sessions() -> None:
    world = ShareWorld(sessions_max=1)
    world.fetch(0, partitions=(0,), max_wait_ms=0)
    pending = world.fetch(0, member="b", partitions=(0,))
    world.timers.advance(499)
    assert not pending.is_done
    world.timers.advance(1)
    assert pending.response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert world.fetch(0, partitions=(0,), max_wait_ms=0).error_code == ErrorCode.NONE


def test_the_final_epoch_ends_the_session_and_gives_back_the_rest() -> None:
    world = ShareWorld()
    world.append(10)
    world.fetch(0, partitions=(0,))
    world.fetch(0, member="b", partitions=(0,), max_wait_ms=0)
    answer = world.fetch(-1, said=((0, 0, 4, [ACCEPT]),))
    assert codes(answer) == {0: ErrorCode.NONE}
    assert acquired(world.fetch(1, member="b")) == {0: [(5, 9, 2)]}
    assert world.fetch(1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_connection_ends_and_gives_back_what_its_member_has() -> None:
    world = ShareWorld()
    world.append(10)
    gone = connection()
    world.fetch(0, partitions=(0,), connection=gone)
    pending = world.fetch(0, member="b", partitions=(0,))
    gone.closed()
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(0, 9, 2)]}


def test_a_member_that_has_left_gets_no_records() -> None:
    world = ShareWorld()
    pending = world.fetch(0, partitions=(0,))
    world.fetch(-1)
    world.append(10)
    world.timers.run_due()
    assert (acquired(pending.response), list(world.shares)) == ({}, [])


def test_the_client_is_gone_before_the_answer() -> None:
    world = ShareWorld()
    pending = world.fetch(0, partitions=(0,))
    pending.abandon()
    world.append(10)
    world.timers.run_due()
    assert not pending.is_done
    assert world.waiters.deadlines.waits() == []


def test_a_forgotten_partition_is_read_no_more() -> None:
    world = ShareWorld(partitions=2)
    world.append(5, partition=0)
    world.append(5, partition=1)
    world.fetch(0, partitions=(0, 1), max_records=1, max_wait_ms=0)
    assert acquired(world.fetch(1, forgotten=(1,), max_wait_ms=0)) == {}
    assert acquired(world.fetch(2, partitions=(1,))) == {1: [(0, 4, 1)]}


def test_a_renewal_reads_nothing() -> None:
    world = ShareWorld()
    world.append(10, 10)
    world.fetch(0, partitions=(0,), max_records=10)
    world.timers.advance(20_000)
    answer = world.fetch(1, said=((0, 0, 9, [RENEW]),), is_renew_ack=True, max_wait_ms=0, min_bytes=0, max_records=0, max_bytes=0)
    assert (acquired(answer), codes(answer)) == ({}, {0: ErrorCode.NONE})
    world.timers.advance(20_000)
    assert world.fetch(2, said=((0, 0, 9, [ACCEPT]),)).responses[0].partitions[0].acknowledge_error_code == ErrorCode.NONE


def test_partitions_that_are_not_there() -> None:
    world = ShareWorld()
    assert codes(world.fetch(0, partitions=(7,))) == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(world.fetch(1, partitions=(0,), topic_id=b"x" * 16)) == {
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0: ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_a_partition_that_is_led_elsewhere_names_its_leader() -> None:
    world = ShareWorld()
    world.append(5)
    world.fetch(0, partitions=(0,))
    world.partitions[0].become_follower(leader_id=3, leader_epoch=9, partition_epoch=1, replicas=(0, 3), isr=(3,))
    answer = world.fetch(1, said=((0, 0, 4, [ACCEPT]),))
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, partition.acknowledge_error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 2
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 9)
    assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [(3, "three", 9092)]


def test_a_wait_ends_when_the_partition_is_led_elsewhere() -> None:
    world = ShareWorld()
    pending = world.fetch(0, partitions=(0,))
    world.partitions[0].become_follower(leader_id=3, leader_epoch=9, partition_epoch=1, replicas=(0, 3), isr=(3,))
    world.timers.run_due()
    assert codes(pending.response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_new_term_of_leadership_reads_what_is_remembered() -> None:
    world = ShareWorld()
    world.append(10)
    world.fetch(0, partitions=(0,))
    world.acknowledge(1, (0, 0, 4, [ACCEPT]))
    world.partitions[0].become_leader(leader_epoch=1, partition_epoch=1, replicas=(0,), isr=(0,), now_ms=0)
    assert acquired(world.fetch(2)) == {0: [(5, 9, 1)]}


def test_uncommitted_and_aborted_records_are_hidden_from_readers_of_committed_data() -> None:
    world = ShareWorld()
    world.terms = world.terms._replace(is_read_committed=True)
    partition = world.partitions[0]
    world.append(3)
    world.append(4, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    partition.require_leading().write_marker(7, 0, 0, False, world.clock.wall_ms())
    world.append(2)
    world.append(2, producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert acquired(world.fetch(0, partitions=(0,))) == {0: [(0, 2, 1), (8, 9, 1)]}
    pending = world.fetch(1)
    assert isinstance(pending, Pending)
    partition.require_leading().write_marker(8, 0, 0, True, world.clock.wall_ms())
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(10, 11, 1)]}


def test_a_stretch_without_deliverable_records_is_passed_over_at_once() -> None:
    world = ShareWorld()
    world.terms = world.terms._replace(is_read_committed=True)
    partition = world.partitions[0]
    for sequence in range(5):
        world.append(20, producer_id=7, producer_epoch=0, base_sequence=20 * sequence, is_transactional=True)
    partition.require_leading().write_marker(7, 0, 0, False, world.clock.wall_ms())
    world.append(2)
    assert acquired(world.fetch(0, partitions=(0,), max_bytes=100)) == {0: [(101, 102, 1)]}


def test_records_below_the_logs_start_are_not_delivered() -> None:
    world = ShareWorld()
    world.append(10, 10)
    world.fetch(0, partitions=(0,), max_records=5)
    world.partitions[0].require_leading().delete_records(15)
    assert acquired(world.fetch(1)) == {0: [(15, 19, 1)]}
    assert codes(world.acknowledge(2, (0, 0, 9, [ACCEPT]))) == {0: ErrorCode.NONE}


def test_what_is_remembered_reaches_beyond_a_log_that_a_crash_has_cut() -> None:
    world = ShareWorld()
    world.append(5)
    key = SharePartitionKey(GROUP, TOPIC_ID, 0)
    world.persister.states[key] = ShareState(0, 0, 20, 5, (StateBatch(25, 29, 2, 1),))
    pending = world.fetch(0, partitions=(0,))
    world.append(3)
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(5, 7, 1)]}


def test_no_more_records_in_flight_than_the_group_may_have() -> None:
    world = ShareWorld()
    world.append(150, 150, 150)
    assert acquired(world.fetch(0, partitions=(0,))) == {0: [(0, 299, 1)]}
    pending = world.fetch(1)
    world.acknowledge(2, (0, 0, 149, [ACCEPT]))
    world.timers.run_due()
    assert acquired(pending.response) == {0: [(300, 449, 1)]}


def test_a_client_without_the_right_to_read() -> None:
    world = ShareWorld()
    world.broker.authorizer = StrictAuthorizer(ResourceType.GROUP)
    assert world.fetch(0, partitions=(0,)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert world.acknowledge(1, (0, 0, 0, [ACCEPT])).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    world.broker.authorizer = StrictAuthorizer(ResourceType.TOPIC)
    assert codes(world.fetch(0, partitions=(0,))) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert codes(world.acknowledge(1, (0, 0, 0, [ACCEPT]))) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize(("denied", "expected"), [("t", {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}), (GROUP, {})])
@pytest.mark.parametrize("is_woken", [True, False])
def test_rights_are_asked_for_again_after_a_wait(denied: str, expected: dict[int, ErrorCode], is_woken: bool) -> None:
    """A member that loses the right to its topic or its group during the wait acquires nothing, and its next request is refused."""
    world = ShareWorld()
    world.broker.authorizer = StrictAuthorizer()
    world.fetch(0, partitions=(0,), max_wait_ms=0)
    pending = world.fetch(1, min_bytes=1 if is_woken else 1_000_000)
    assert isinstance(pending, Pending)
    world.broker.authorizer.denied.add(denied)
    world.append(10)
    world.timers.advance(0 if is_woken else 500)
    assert codes(pending.response) == expected and not acquired(pending.response)
    world.broker.authorizer.denied.clear()
    assert acquired(world.fetch(0, member="b", partitions=(0,))) == {0: [(0, 9, 1)]}, "the first delivery"


def test_share_groups_are_switched_off_before_4_2() -> None:
    world = ShareWorld()
    world.broker.config = load(assignments=("ottla.advertise.level=4.1",))[0]
    assert world.fetch(0, partitions=(0,)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world.acknowledge(1, (0, 0, 0, [ACCEPT])).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_topic_of_an_answer_is_named_by_its_id() -> None:
    world = ShareWorld()
    world.append(1)
    assert [topic.topic_id for topic in world.fetch(0, partitions=(0,)).responses] == [TOPIC_ID]


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_new_member_reads_what_was_altered_though_another_is_there_yet(is_slow: bool) -> None:
    """The other member has left the group without closing its session, so the leader still has the share partition in memory (I55)."""
    world = ShareWorld()
    world.append(5, 5)
    assert acquired(world.fetch(0, partitions=(0,), max_records=1)) == {0: [(0, 4, 1)]}
    key = SharePartitionKey(GROUP, TOPIC_ID, 0)
    world.persister.states[key] = world.persister.states[key]._replace(state_epoch=7, start_offset=2)
    world.persister.is_held = is_slow
    answer = world.fetch(0, member="b", partitions=(0,))
    if is_slow:
        assert isinstance(answer, Pending) and not answer.is_done
        world.persister.release()
        world.timers.run_due()
        assert codes(answer.response) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        answer = world.fetch(1, member="b")
    assert acquired(answer) == {0: [(2, 9, 1)]}


def test_what_a_session_has_had_is_not_checked_again() -> None:
    world = ShareWorld()
    world.append(5)
    world.fetch(0, partitions=(0,))
    world.fetch(0, member="b", partitions=(0,), max_wait_ms=0)
    world.persister.calls.clear()
    world.append(5)
    world.fetch(1, member="b")
    assert world.persister.calls == []
