"""A scrape of a real broker, read by prometheus_client's parser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.base.errors import ApiError, ErrorCode, StorageError
from ottla.base.metric_text import escape, labels_text
from ottla.base.ports import SessionEvent
from ottla.controller.api import NewTopic
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.shard import ClassicGroup
from ottla.groups.share.group import ShareGroup
from ottla.machine.host import HostState, MachineHost
from ottla.replication.partition import Partition
from ottla.replication.stage_space import CHARGE_BYTES_MIN
from ottla.replication.stages import ChunkToken
from ottla.server.app import BrokerServer
from ottla.server.monitoring.metric_families import FAMILIES, GROUPS, SESSION, SUMMARY
from ottla.server.monitoring.metric_page import Page
from ottla.server.monitoring.metrics import Metrics
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.records import Record, encode_batch
from tests.server.conftest import MakeServer
from tests.server.metric_names import exported_names
from tests.server.threads import run_until
from tools.bench import metrics_cost

Sample = Callable[..., float]


def metrics_of(server: BrokerServer) -> Metrics:
    node = server.node
    return Metrics(node)


def create(server: BrokerServer, name: str, partitions: int = 1) -> None:
    errors: list[ErrorCode] = []
    topic = NewTopic(name=name, num_partitions=partitions)
    server.node.controller.create_topics([topic], False, lambda results: errors.extend(result.error for result in results))
    assert errors == [ErrorCode.NONE]


def append(server: BrokerServer, topic: str, index: int = 0, records: int = 1) -> Partition:
    partition = server.node.partitions.get(topic, index)
    assert partition is not None
    now_ms = int(time.time() * 1000)
    batch = bytearray(encode_batch([Record(delta, now_ms, b"key", b"value") for delta in range(records)]))
    partition.require_leading().append(batch, acks=1, now_ms=now_ms)
    return partition


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} twice"
            found[key] = sample.value
    return found


def value(text: bytes, name: str, **labels: str) -> float:
    return samples(text)[name, tuple(sorted(labels.items()))]


def test_every_family_has_a_sample_or_a_reason(make_server: MakeServer) -> None:
    server = make_server()
    create(server, "orders", 2)
    found = {name for name, _ in samples(metrics_of(server).render())}
    # Those need a group with offsets or a request, which test_metrics_scrape.py has, a TLS listener, which test_tls.py has, or a client
    # that pushes, which test_metric_clients.py has.
    begins = ("kafka_consumergroup", "kafka_network_requestmetrics", "ottla_tls_", "ottla_client_info")
    conditional = {name for name in FAMILIES if name.startswith(begins)}
    missing = {name for name, family in FAMILIES.items() if name not in found and family.kind != SUMMARY}
    assert missing <= conditional
    assert found <= exported_names()


def test_traffic_is_counted_for_each_topic_and_for_all(make_server: MakeServer) -> None:
    server = make_server()
    create(server, "orders", 2)
    create(server, "payments")
    metrics = metrics_of(server)
    append(server, "orders", 0, records=3)
    append(server, "orders", 1)
    partition = append(server, "payments")
    text = metrics.render()
    counter = "kafka_server_brokertopicmetrics_messagesin_total"
    assert value(text, counter, topic="orders") == 4
    assert value(text, counter, topic="payments") == 1
    assert value(text, counter) == 5
    assert value(text, "kafka_server_brokertopicmetrics_bytesin_total", topic="payments") == partition.log.size_bytes
    assert value(text, "kafka_server_brokertopicmetrics_totalproducerequests_total") == 3
    partition.traffic.bytes_out += 7  # the answer to a fetch that was counted on arrival
    partition.traffic.failed_fetches += 1
    text = metrics.render()
    assert value(text, "kafka_server_brokertopicmetrics_bytesout_total", topic="payments") == 7
    assert value(text, "kafka_server_brokertopicmetrics_failedfetchrequests_total") == 1


def test_the_sum_of_all_topics_survives_a_deleted_one(make_server: MakeServer) -> None:
    server = make_server()
    create(server, "orders")
    create(server, "payments")
    append(server, "orders", records=4)
    append(server, "payments")
    metrics = metrics_of(server)
    metrics.render()
    server.node.controller.delete_topics(["orders"], lambda _results: None)
    text = metrics.render()
    counter = "kafka_server_brokertopicmetrics_messagesin_total"
    assert (counter, (("topic", "orders"),)) not in samples(text)
    assert value(text, counter) == 5
    create(server, "orders")
    assert value(metrics.render(), counter, topic="orders") == 0
    assert value(metrics.render(), counter) == 5


def test_a_partition_is_scraped_as_it_is_now(make_server: MakeServer) -> None:
    server = make_server()
    create(server, "orders", 2)
    metrics = metrics_of(server)
    where = {"topic": "orders", "partition": "0"}
    assert value(metrics.render(), "kafka_topic_partition_current_offset", **where) == 0
    partition = append(server, "orders", 0, records=7)
    partition.require_leading().delete_records(2)
    text = metrics.render()
    assert value(text, "kafka_topic_partition_current_offset", **where) == 7
    assert value(text, "kafka_topic_partition_oldest_offset", **where) == 2
    assert value(text, "kafka_log_log_logendoffset", **where) == 7
    assert value(text, "kafka_log_log_logstartoffset", **where) == 2
    assert value(text, "kafka_log_log_size", **where) == partition.log.size_bytes
    assert value(text, "kafka_topic_partition_leader", **where) == 0
    assert value(text, "kafka_cluster_partition_atminisr", **where) == 1
    assert value(text, "kafka_topic_partitions", topic="orders") == 2


def test_replicas_are_counted(make_server: MakeServer) -> None:
    server = make_server()
    create(server, "orders", 3)
    metrics = metrics_of(server)
    text = metrics.render()
    assert value(text, "kafka_server_replicamanager_leadercount") == 3
    assert value(text, "kafka_server_replicamanager_partitioncount") == 3
    assert value(text, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(text, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    partition = server.node.partitions.get("orders", 1)
    assert partition is not None
    partition.go_offline("a test")
    text = metrics.render()
    assert value(text, "kafka_server_replicamanager_leadercount") == 2
    assert value(text, "kafka_server_replicamanager_partitioncount") == 3


def test_unclean_elections_are_counted(make_server: MakeServer) -> None:
    server = make_server()
    server.node.controller.state.unclean_elections = 3
    sample = value(metrics_of(server).render(), "kafka_controller_controllerstats_uncleanleaderelections_total")
    assert sample == 3


def test_a_failed_directory_is_counted(make_server: MakeServer) -> None:
    server = make_server()
    metrics = metrics_of(server)
    assert value(metrics.render(), "kafka_log_logmanager_offlinelogdirectorycount") == 0
    assert b"ottla_log_directory_free_bytes{log_dir=" in metrics.render()
    server.directories[0].go_offline("a test")
    assert value(metrics.render(), "kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert b"ottla_log_directory_free_bytes{log_dir=" in metrics.render(), "the disk answers, and may be full"
    server.directories[0].is_online = True


def test_damage_of_logs_is_counted(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server()
    create(server, "orders")
    partition = append(server, "orders", records=3)
    partition.log.roll()
    path = server.directories[0].path + "/orders-0/" + f"{0:020d}.log"
    with open(path, "r+b") as file:
        file.seek(70)
        (byte,) = file.read(1)
        file.seek(70)
        file.write(bytes([byte ^ 1]))
    metrics = metrics_of(server)
    names = [f"ottla_damage_{what}" for what in ("found_total", "repaired_total", "unrepaired")]
    assert [value(metrics.render(), name) for name in names] == [0, 0, 0]
    partition.doubt(0)
    run_until(loop, lambda: value(metrics.render(), names[0]) == 1)
    assert [value(metrics.render(), name) for name in names] == [1, 0, 1]
    assert value(metrics.render(), "ottla_scrub_batches_total") == 0


def test_a_disk_that_does_not_answer_has_no_room(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()

    def fail() -> tuple[int, int]:
        raise StorageError("a test")

    monkeypatch.setattr(server.directories[0], "free_bytes", fail)
    assert b"ottla_log_directory_free_bytes{log_dir=" not in metrics_of(server).render()


def coordinator(server: BrokerServer, loop: asyncio.AbstractEventLoop) -> MachineHost:
    """Returns the host of the group coordinator when it has loaded."""
    host = server.node.groups.host_of_partition(0)
    assert host is not None
    run_until(loop, lambda: host.state is HostState.ACTIVE)
    return host


def test_lag_is_what_a_group_has_not_read(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("offsets.topic.num.partitions=1")
    create(server, "orders")
    create(server, "__consumer_offsets")
    append(server, "orders", records=10)
    host = coordinator(server, loop)
    shard = host.machine.shard
    shard.groups["billing"] = ClassicGroup("billing")
    shard.offsets.put("billing", ("orders", 0), CommittedOffset(4, 0, "", 0))
    shard.offsets.put("billing", ("gone", 5), CommittedOffset(9, 0, "", 0))
    text = metrics_of(server).render()
    where = {"consumergroup": "billing", "topic": "orders"}
    assert value(text, "kafka_consumergroup_current_offset", partition="0", **where) == 4
    assert value(text, "kafka_consumergroup_lag", partition="0", **where) == 6
    assert value(text, "kafka_consumergroup_lag_sum", **where) == 6
    assert value(text, "kafka_consumergroup_current_offset_sum", consumergroup="billing", topic="gone") == 9
    assert ("kafka_consumergroup_lag_sum", (("consumergroup", "billing"), ("topic", "gone"))) not in samples(text)
    shard.offsets.put("billing", ("orders", 1), CommittedOffset(9, 0, "", 0))  # another broker of a cluster has that one
    assert ("kafka_consumergroup_lag_sum", tuple(sorted(where.items()))) not in samples(metrics_of(server).render())
    assert value(text, "kafka_consumergroup_members", consumergroup="billing") == 0
    assert value(text, "kafka_coordinator_group_groupmetadatamanager_numgroupsempty") == 1


def test_share_groups_are_counted_by_themselves(make_server: MakeServer, loop: asyncio.AbstractEventLoop) -> None:
    server = make_server("offsets.topic.num.partitions=1")
    create(server, "__consumer_offsets")
    host = coordinator(server, loop)
    host.machine.shard.groups.update({"workers": ShareGroup("workers"), "billing": ClassicGroup("billing")})
    text = metrics_of(server).render()
    groups = "kafka_server_group_coordinator_metrics_"
    assert [value(text, f"{groups}group_count", protocol=kind) for kind in ("classic", "consumer", "share")] == [1, 0, 1]
    assert value(text, f"{groups}share_group_count", state="empty") == 1 == value(text, GROUPS)
    assert value(text, f"{groups}share_group_count", state="stable") == 0 == value(text, f"{GROUPS}stable")


def test_requests_have_counts_and_quantiles(make_server: MakeServer) -> None:
    server = make_server()
    metrics = metrics_of(server)
    route = server.node.dispatcher._route(MetadataRequest.API_KEY, 9)
    for _ in range(99):
        route.immediate[(50_000).bit_length()] += 1
    route.deferred[(40_000).bit_length()] += 1
    route.waited[(20_000_000).bit_length()] += 1
    route.nanoseconds, route.parked_nanoseconds = 5_000_000, 20_000_000
    text = metrics.render()
    name = "kafka_network_requestmetrics_"
    assert value(text, f"{name}requests_total", request="Metadata") == 100
    assert 0.03 < value(text, f"{name}localtimems", request="Metadata", quantile="0.99") < 0.1
    assert 0.03 < value(text, f"{name}totaltimems", request="Metadata", quantile="0.50") < 0.1
    assert 16 < value(text, f"{name}totaltimems", request="Metadata", quantile="0.999") < 40
    assert value(text, f"{name}remotetimems", request="Metadata", quantile="0.50") < 0.001
    assert value(text, f"{name}totaltimems_count", request="Metadata") == 100
    assert value(text, f"{name}totaltimems_sum", request="Metadata") == pytest.approx(25)


@pytest.mark.parametrize(
    ("aliases", "names"),
    [
        ("confluent", ["kafka_server_brokertopicmetrics_bytesinpersec"]),
        ("strimzi-reporter", ["kafka_server_brokertopicmetrics_bytesinpersec_total"]),
        (
            "confluent,strimzi-reporter",
            ["kafka_server_brokertopicmetrics_messagesinpersec", "kafka_server_brokertopicmetrics_messagesinpersec_total"],
        ),
    ],
)
def test_other_dialects_repeat_the_counters(make_server: MakeServer, aliases: str, names: list[str]) -> None:
    server = make_server(f"ottla.metrics.aliases={aliases}")
    create(server, "bytesin_total")  # a topic may be called like a metric
    partition = append(server, "bytesin_total", records=3)
    text = metrics_of(server).render()
    for name in names:
        expected = partition.traffic.messages_in if "messages" in name else partition.traffic.bytes_in
        assert value(text, name, topic="bytesin_total") == expected
        assert value(text, name) == expected


def test_names_of_any_kind_are_escaped() -> None:
    page = Page()
    page.put("kafka_consumergroup_members", 1, labels_text(consumergroup='a"b\\c\nd'))
    assert value(page.encode(), "kafka_consumergroup_members", consumergroup='a"b\\c\nd') == 1
    assert escape("plain") == "plain"


def test_two_scrapes_at_once_are_equal(make_server: MakeServer) -> None:
    server = make_server()
    for number in range(5):
        create(server, f"topic-{number}", 60)
    append(server, "topic-3", 7, records=2)
    metrics = metrics_of(server)
    first, second = Page(), Page()
    one, two = metrics.steps(first), metrics.steps(second)
    next(one)
    for _ in two:
        pass
    for _ in one:
        pass
    counter = "kafka_server_brokertopicmetrics_messagesin_total"
    assert value(metrics.finish(first), counter) == value(metrics.finish(second), counter) == 2


def test_a_scrape_gives_up_the_loop_after_every_hundred_partitions(make_server: MakeServer) -> None:
    server = make_server()
    create(server, "wide", 350)
    metrics = metrics_of(server)
    page = Page()
    steps = 0
    for _ in metrics._topics.collect(page):
        steps += 1
    assert steps == 3
    assert page.encode().count(b"\nkafka_log_log_size{") == 350


def test_the_cost_of_a_scrape_can_be_measured() -> None:
    costs = metrics_cost.measure(partitions=40, scrapes=2)
    assert [cost.label for cost in costs] == ["first scrape", "nothing has moved", "every partition has moved"]
    for cost in costs:
        assert cost.total_ms > 0 and cost.longest_ms > 0
        assert cost.page_bytes > 40 * 12 * 40


def test_staged_bytes_are_counted(make_server: MakeServer) -> None:
    server = make_server("ottla.stage.bytes.max=20000")
    create(server, "staged")
    partition = server.node.partitions.get("staged", 0)
    assert partition is not None
    stages = server.node.stages.of(partition.require_leading())
    batch = memoryview(encode_batch([Record(0, int(time.time() * 1000), None, b"value")], is_transactional=True))
    stages.stage(ChunkToken("User:a", b"token"), 1, 0, batch, now_ms=int(time.time() * 1000))
    with pytest.raises(ApiError):
        stages.stage(ChunkToken("User:a", b"token"), 1, 1, batch, now_ms=int(time.time() * 1000))
    found = samples(metrics_of(server).render())
    assert found["ottla_stage_bytes", ()] == CHARGE_BYTES_MIN
    assert found["ottla_stage_staged_bytes_total", ()] == len(batch)
    assert found["ottla_stage_refused_total", ()] == 1


def test_what_happens_to_the_session_with_zookeeper_is_counted(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()
    listeners: list[Callable[[SessionEvent], object]] = []
    monkeypatch.setattr(server.node.ports.store, "listen", listeners.append)
    metrics = metrics_of(server)

    def counts() -> list[float]:
        text = metrics.render()
        return [value(text, f"{SESSION}{name}_total") for name in ("disconnects", "expires", "syncconnects")]

    assert counts() == [0, 0, 0]
    for event in (SessionEvent.SUSPENDED, SessionEvent.CONNECTED, SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.NEW_SESSION):
        for listener in listeners:
            listener(event)
    assert counts() == [2, 1, 2]
