"""Followers fetch from their leaders over the network: several production nodes, killed and started again."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import NO_LEADER
from ottla.base.control_messages import ReplicaRole, StoppedReplica
from ottla.base.errors import ErrorCode
from ottla.cluster.replica_fetchers import fetcher_number
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.cluster.nodes import Nodes, content


def test_followers_get_what_their_leader_has_appended() -> None:
    nodes = Nodes(3)
    nodes.create("t", [1, 2, 3])
    nodes.write("a", "b")
    nodes.write("c")
    nodes.until(lambda: nodes.leader().high_watermark == 3)
    nodes.until(lambda: all(nodes.replica(number).high_watermark == 3 for number in (2, 3)))
    assert content(nodes.replica(2)) == content(nodes.replica(3)) == content(nodes.leader())


def test_a_restarted_follower_catches_up_and_is_in_sync_again() -> None:
    nodes = Nodes(3)
    nodes.create("t", [1, 2, 3])
    nodes.write("a")
    nodes.until(lambda: nodes.replica(3).high_watermark == 1)
    nodes.kill(3)
    nodes.until(lambda: nodes.leader().isr == (1, 2))
    nodes.write("b", "c")
    nodes.until(lambda: nodes.leader().high_watermark == 3)
    nodes.start(3)
    nodes.until(lambda: nodes.leader().isr == (1, 2, 3))
    nodes.until(lambda: nodes.replica(3).high_watermark == 3)
    assert content(nodes.replica(3)) == content(nodes.leader())


def test_a_new_leader_is_followed_and_nothing_acknowledged_is_lost() -> None:
    nodes = Nodes(3, "ottla.flush.on.ack=true")
    nodes.create("t", [2, 1, 3])
    nodes.write("a")
    nodes.until(lambda: nodes.leader().high_watermark == 1)
    nodes.kill(2)
    nodes.until(lambda: nodes.leader().broker_id == 1)
    nodes.write("b")
    nodes.until(lambda: nodes.leader().high_watermark == 2 and nodes.replica(3).high_watermark == 2)
    nodes.start(2)
    nodes.until(lambda: nodes.leader().isr == (1, 3, 2))
    assert content(nodes.replica(2)) == content(nodes.replica(3)) == content(nodes.leader())


def test_a_follower_that_has_more_is_cut_where_the_logs_part() -> None:
    """The records that only the old leader has are removed when it follows; the other records stay."""
    nodes = Nodes(3)
    nodes.create("t", [2, 1, 3])
    nodes.write("a")
    nodes.until(lambda: nodes.leader().high_watermark == 1)
    nodes.network.listening.pop("broker-2")  # no other broker reaches broker 2
    for number in (1, 3):
        nodes.nodes[number].links.fetchers.stop(nodes.replica(number).topic_partition)
    nodes.write("only here")
    nodes.write("and this")
    old = nodes.replica(2)
    assert (old.log.log_end_offset, old.high_watermark) == (3, 1)
    store = nodes.nodes[2].ports.store
    store.expire()  # type: ignore[attr-defined]
    nodes.until(lambda: nodes.replica(1).is_leading)
    assert nodes.replica(1).log.log_end_offset == 1
    nodes.write("b")
    nodes.until(lambda: nodes.replica(3).log.log_end_offset == 2)
    store.renew()  # type: ignore[attr-defined]
    nodes.until(lambda: not nodes.replica(2).is_leading and nodes.replica(2).high_watermark == 2)
    assert content(nodes.replica(2)) == content(nodes.replica(1))


def test_a_partition_that_begins_to_follow_does_not_wait_for_the_request_under_way() -> None:
    """The leader's acknowledgements wait for the follower, so the idle fetch request that is under way must not delay the new partition."""
    nodes = Nodes(2, "replica.fetch.wait.max.ms=20000")
    nodes.create("idle", [1, 2])
    nodes.settle(200)
    before_ms = nodes.timers.clock.monotonic_ms()
    nodes.create("t", [1, 2])
    nodes.write("a")
    nodes.until(lambda: nodes.replica(2).high_watermark == 1)
    assert nodes.timers.clock.monotonic_ms() - before_ms < 1_000


def test_a_follower_that_has_fallen_out_of_the_log_begins_where_it_starts_now() -> None:
    nodes = Nodes(2, "log.retention.check.interval.ms=1000000")
    nodes.create("t", [1, 2])
    nodes.write("a", "b")
    nodes.until(lambda: nodes.replica(2).high_watermark == 2)
    nodes.kill(2)
    nodes.until(lambda: nodes.leader().isr == (1,))
    nodes.write("c", "d")
    nodes.leader().require_leading().delete_records(4)
    nodes.write("e")
    nodes.start(2)
    nodes.until(lambda: nodes.leader().isr == (1, 2))
    replica = nodes.replica(2)
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (4, 5)


def test_p1_with_flush_on_ack_no_watermark_is_above_what_every_replica_has_synced() -> None:
    nodes = Nodes(3, "ottla.flush.on.ack=true")
    nodes.create("t", [1, 2, 3])
    for number in range(20):
        nodes.write(f"{number}")
        for _ in range(5):
            nodes.settle(3)
            high_watermark = nodes.leader().high_watermark
            assert all(nodes.replica(broker_id).log.recovery_point >= high_watermark for broker_id in (1, 2, 3))
    nodes.until(lambda: nodes.leader().high_watermark == 20)


@pytest.fixture
def refused() -> Nodes:
    """Returns a cluster in which both brokers have lost their power. The leader has lost records that the follower has below its high
    watermark, and leads again."""
    nodes = Nodes(2)
    nodes.create("t", [1, 2])
    nodes.write("a")
    nodes.until(lambda: nodes.replica(2).high_watermark == 1)
    nodes.replica(2).log.flush()
    nodes.nodes[2].housekeeping.write_checkpoints()
    nodes.settle(100)
    nodes.kill(2)
    nodes.until(lambda: nodes.leader().isr == (1,))
    nodes.kill(1, keeps_some=False)
    nodes.start(1)
    nodes.until(lambda: nodes.replica(1).is_leading)
    nodes.write("b")
    nodes.start(2)
    nodes.until(lambda: not nodes.replica(2).is_online)
    return nodes


def test_i17_what_is_below_the_watermark_is_not_cut_and_a_leader_without_it_leads_no_more(refused: Nodes) -> None:
    replica = refused.replica(2)
    refused.until(lambda: refused.nodes[2].metadata.partition("t", 0).leader == NO_LEADER)  # type: ignore[union-attr]
    refused.settle(5_000)
    assert (replica.high_watermark, replica.log.log_end_offset) == (1, 1)
    assert not refused.replica(1).is_leading and not replica.is_leading


def test_an_operator_accepts_the_loss_and_the_replica_that_holds_more_leads(refused: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    refused.until(lambda: refused.nodes[2].metadata.partition("t", 0).leader == NO_LEADER)  # type: ignore[union-attr]
    asked = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    assert refused.ask(refused.controller_id, asked).error_code == ErrorCode.NONE
    refused.until(lambda: refused.replica(2).is_leading and set(refused.leader().isr) == {1, 2})
    assert content(refused.replica(2)) == content(refused.replica(1))
    assert "t-0: cuts the offsets 0 to 0, which were below the high watermark: broker 2 leads without them" in caplog.text


def test_a_stopped_replica_follows_again_with_its_next_role() -> None:
    """The replica was stopped without deletion, so its log is unchanged."""
    nodes = Nodes(2)
    nodes.create("t", [1, 2])
    nodes.write("a")
    nodes.until(lambda: nodes.replica(2).high_watermark == 1)
    replica = nodes.replica(2)
    stopped = StoppedReplica(topic="t", topic_id=replica.topic_id, partition=0, leader_epoch=replica.leader_epoch, is_deleted=False)
    nodes.nodes[2].replicas.on_stop_replica([stopped])
    assert not replica.is_online
    topic = nodes.nodes[2].metadata.topic("t")
    assert topic is not None
    nodes.nodes[2].replicas.on_leader_and_isr([ReplicaRole(topic="t", topic_id=topic.topic_id, partition=topic.partitions[0])])
    nodes.write("b")
    nodes.until(lambda: replica.high_watermark == 2)
    assert content(replica) == content(nodes.leader())


def test_replication_is_counted_for_metrics() -> None:
    nodes = Nodes(2, "replica.lag.time.max.ms=400")
    nodes.create("t", [1, 2])
    nodes.write("a")
    nodes.until(lambda: nodes.replica(2).high_watermark == 1)
    leader, follower = nodes.nodes[1], nodes.nodes[2]
    assert leader.follower_sessions.bytes_out == follower.links.fetchers.bytes_in == len(content(nodes.leader()))
    assert follower.links.fetchers.lag_max == 0
    nodes.kill(2)
    nodes.until(lambda: nodes.leader().isr == (1,))
    nodes.start(2)
    nodes.until(lambda: nodes.leader().isr == (1, 2))
    assert leader.links.isr_changes.expansions == 1
    nodes.nodes[2].links.fetchers.close()
    nodes.write("b")
    nodes.until(lambda: nodes.leader().isr == (1,))
    assert leader.links.isr_changes.shrinks == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"leader.replication.throttled.replicas": "0:1", "rate": "leader.replication.throttled.rate=2000"},
        {"follower.replication.throttled.replicas": "0:2", "rate": "follower.replication.throttled.rate=2000"},
    ],
    ids=["leader", "follower"],
)
def test_kip_73_a_throttled_replica_is_copied_slowly_until_it_is_in_sync(settings: dict[str, str]) -> None:
    rate = settings.pop("rate")
    nodes = Nodes(2, rate, "replica.fetch.max.bytes=1000")
    nodes.create("t", [1, 2], **{name.replace(".", "_"): value for name, value in settings.items()})
    nodes.kill(2)
    nodes.until(lambda: nodes.leader().isr == (1,))
    for _ in range(20):
        nodes.write("x" * 900)
    started_ms = nodes.timers.clock.monotonic_ms()
    nodes.start(2)
    nodes.until(lambda: nodes.leader().isr == (1, 2))
    took_ms = nodes.timers.clock.monotonic_ms() - started_ms
    assert 7_000 < took_ms < 15_000, "some 19,000 bytes at 2,000 a second, the first second of them at once"
    started_ms = nodes.timers.clock.monotonic_ms()
    for _ in range(10):
        nodes.write("x" * 900)
        nodes.until(lambda: nodes.leader().high_watermark == nodes.leader().log.log_end_offset)
    assert nodes.timers.clock.monotonic_ms() - started_ms < 2_000, "in sync it is not held up"


def lanes(nodes: Nodes, follower: int, leader: int) -> list[str]:
    """Returns the names of the open connections by which one node fetches from another."""
    found = nodes.nodes[follower].peers._connections.items()  # type: ignore[attr-defined]
    return sorted(lane for (broker_id, lane), one in found if broker_id == leader and lane.startswith("fetch") and not one.is_closed)


def test_partitions_are_spread_over_the_fetchers_of_a_leader_and_move_when_their_number_changes() -> None:
    nodes = Nodes(2, "num.replica.fetchers=3")
    names = [f"t{number}" for number in range(8)]
    for name in names:
        nodes.create(name, [1, 2])
    assert {fetcher_number(name, 0, 3) for name in names} == {0, 1, 2}

    def write_to_all(value: str) -> None:
        ends = {name: nodes.write(value, topic=name).last_offset + 1 for name in names}
        nodes.until(lambda: all(nodes.leader(name).high_watermark == end for name, end in ends.items()))

    write_to_all("a")
    assert lanes(nodes, 2, 1) == ["fetch", "fetch-1", "fetch-2"]
    for count in (1, 2):
        nodes.nodes[2].config.set_dynamic({"num.replica.fetchers": str(count)}, {})
        write_to_all("b")
        driven = nodes.nodes[2].links.fetchers._driven
        nodes.until(lambda: sorted(driven) == [(1, number) for number in range(count)])  # noqa: B023
        write_to_all("c")
    for name in names:
        assert content(nodes.replica(2, name)) == content(nodes.leader(name))


def test_a_partitions_fetcher_is_that_of_kafka() -> None:
    """In Java "orders" has the hash -1008770331, and 31 times that is -1207109189 in 32 bits."""
    assert [fetcher_number("orders", number, 4) for number in range(5)] == [1, 0, 3, 2, 1]
    assert fetcher_number("orders", 7, 1) == 0
