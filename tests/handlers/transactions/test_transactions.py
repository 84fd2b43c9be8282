"""The handlers of transactions: versions, rights and the form of the messages. The coordinator's decisions are tested in
`tests/scenarios/transactions`."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.handlers.context import ConnectionInfo, Pending, RequestContext
from ottla.handlers.records import describe_producers
from ottla.handlers.served_apis import TABLE
from ottla.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.security.acl import AclOperation, ResourceType
from ottla.transactions.metadata import Marker
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.fakes.answers import answer_of
from tests.fakes.authorizer import RuleAuthorizer
from tests.scenarios.transactions_world import World

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED


class FakeLocalMarkers:
    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, Marker]] = []
        self.answers: list[Any] = []

    def write(self, partition: TopicPartition, marker: Marker, done: Any) -> None:
        self.written.append((partition, marker))
        self.answers.append(done)


class BrokerWorld(RuleAuthorizer):
    """A broker that coordinates one partition of `__transaction_state`. Denied rights are denied to every client."""

    def __init__(self) -> None:
        self.scenario = World()
        self.denied: set[tuple[AclOperation, ResourceType]] = {(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)}
        self.topics = {GROUP_METADATA_TOPIC}
        self.mirror = ""
        self.producers: list[Any] = []
        self.is_leading = True
        self.is_online = True
        self.has_rules = True
        self.markers = FakeLocalMarkers()
        self.scenario.coordinators.local_markers = self.markers  # type: ignore[assignment]
        self.broker: Any = SimpleNamespace(
            authorizer=self, transactions=self.scenario.coordinators, metadata=self, partitions=SimpleNamespace(get=self._partition)
        )

    def is_allowed(self, connection: ConnectionInfo, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type) not in self.denied and name != "secret"

    def allows_clients_everything(self, connection: ConnectionInfo) -> bool:
        return not self.has_rules

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return not self.has_rules

    def topic(self, name: str) -> Any:
        return object() if name in self.topics else None

    def configs(self, _resource_type: int, name: str) -> dict[str, str]:
        return {"ottla.mirror.source": "cluster:topic"} if name == self.mirror else {}

    def partition(self, topic: str, index: int) -> Any:
        return object() if topic in ("t", "secret", GROUP_METADATA_TOPIC) and index < 4 else None

    def _partition(self, topic: str, index: int) -> Any:
        log = SimpleNamespace(producers=SimpleNamespace(active=lambda: self.producers))
        found = SimpleNamespace(is_leading=self.is_leading, is_online=self.is_online, log=log)
        return found if topic in ("t", "secret") and index == 0 else None

    def ask(self, handler: Any, body: Any, version: int | None = None, *, software: str = "", host: str = "10.0.0.1") -> Any:
        connection = ConnectionInfo(identity="c", host=host, listener="PLAINTEXT")
        connection.client_software_name = software
        request = RequestContext(newest(handler) if version is None else version, "client", connection)
        return answer_of(handler.handle(self.broker, request, body))

    def init(self, transactional_id: str | None = "tx", version: int | None = None, **fields: Any) -> Any:
        body = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields)
        return self.ask(init_producer_id, body, version)


def newest(handler: Any) -> int:
    return next(api.max_version for api in TABLE.values() if handler.__name__ == f"ottla.handlers.{api.handler}")


def topics(*names: str) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[0, 1]) for name in names]


def codes(results: list[Any]) -> dict[tuple[str, int], str]:
    return {
        (topic.name, result.partition_index): ErrorCode(result.partition_error_code).name
        for topic in results
        for result in topic.results_by_partition
    }


# InitProducerId


def test_without_a_transactional_id_each_request_gets_a_new_producer_id() -> None:
    world = BrokerWorld()
    first, second = world.init(None), world.init(None)
    assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in (first, second)] == [(0, 0, 0), (0, 1, 0)]


def test_an_idempotent_producer_that_must_wait_is_answered_later() -> None:
    world = BrokerWorld()
    world.scenario.store.hold()
    pending = world.init(None)
    assert isinstance(pending, Pending) and not pending.is_done
    world.scenario.store.release()
    assert pending.response.producer_id == 0


def test_init_passes_the_identity_on_and_half_an_identity_is_refused() -> None:
    world = BrokerWorld()
    assert world.init().producer_epoch == 0
    assert world.init(producer_id=0, producer_epoch=0).producer_epoch == 1
    halves: list[dict[str, Any]] = [{"producer_id": 0}, {"producer_epoch": 0}]
    for fields in halves:
        answer = world.init(**fields)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_init_sends_old_clients_an_error_that_they_know(version: int, code: ErrorCode) -> None:
    world = BrokerWorld()
    world.init(), world.init()
    assert world.init(version=version, producer_id=0, producer_epoch=0).error_code == code


def test_init_needs_rights() -> None:
    """A6, CVE-2023-50976."""
    world = BrokerWorld()
    assert world.init("secret").error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    world.denied = {(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), (AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)}
    assert world.init(None).error_code == NONE, "a client that may write to any topic may do it idempotently (KIP-679)"
    world.denied.add((AclOperation.WRITE, ResourceType.TOPIC))
    assert world.init(None).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    world.scenario.run("set is_two_phase_enabled=1")
    assert world.init(enable2_pc=True).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert world.init(keep_prepared_txn=True).error_code == NONE, "to take over a prepared transaction is no right of its own"
    assert world.init().error_code == NONE


def test_two_phase_commit_shows_the_ongoing_transaction() -> None:
    world = BrokerWorld()
    world.scenario.run("set is_two_phase_enabled=1")
    plain = world.init(enable2_pc=True)
    assert (plain.ongoing_txn_producer_id, plain.ongoing_txn_producer_epoch) == (-1, -1)
    world.ask(add_offsets_to_txn, AddOffsetsToTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, group_id="g"))
    kept = world.init(enable2_pc=True, keep_prepared_txn=True)
    assert (kept.producer_epoch, kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (1, 0, 0)


# Adding


def add(world: BrokerWorld, names: list[str], version: int = 3, **fields: Any) -> dict[tuple[str, int], str]:
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=fields.get("transactional_id", "tx"),
        v3_and_below_producer_id=fields.get("producer_id", 0),
        v3_and_below_producer_epoch=fields.get("producer_epoch", 0),
        v3_and_below_topics=topics(*names),
    )
    return codes(world.ask(add_partitions_to_txn, body, version).results_by_topic_v3_and_below)


def test_partitions_are_added_together_or_not_at_all() -> None:
    world = BrokerWorld()
    world.init()
    assert add(world, ["t"]) == {("t", 0): "NONE", ("t", 1): "NONE"}
    refused = add(world, ["t", "secret", "nowhere"])
    assert [refused[name, 0] for name in ("t", "secret", "nowhere")] == [
        "OPERATION_NOT_ATTEMPTED",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    assert add(world, [GROUP_METADATA_TOPIC])[GROUP_METADATA_TOPIC, 0] == "TOPIC_AUTHORIZATION_FAILED"
    assert world.scenario.run("describe tx")[0] == "tx Ongoing 0/0 [t-0 t-1]"


def test_adding_needs_rights_and_a_name() -> None:
    world = BrokerWorld()
    assert set(add(world, ["t"], transactional_id="secret").values()) == {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}
    assert set(add(world, ["t"], transactional_id="").values()) == {"INVALID_REQUEST"}


@pytest.mark.parametrize(("version", "code"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
def test_adding_sends_old_clients_an_error_that_they_know(version: int, code: str) -> None:
    world = BrokerWorld()
    world.init(), world.init()
    assert set(add(world, ["t"], version).values()) == {code}


def batch(world: BrokerWorld, version: int, *, is_verify_only: bool, name: str = "t") -> Any:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="tx", producer_id=0, producer_epoch=0, verify_only=is_verify_only, topics=topics(name)
    )
    unnamed = AddPartitionsToTxnTransaction(topics=topics("t"))
    return world.ask(add_partitions_to_txn, AddPartitionsToTxnRequest(transactions=[transaction, unnamed]), version)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_adds_in_a_batch(version: int) -> None:
    """@platformatic/kafka (Node) uses the newest version of every API, also this one, which among Kafka's own clients only brokers use."""
    world = BrokerWorld()
    world.has_rules = False
    world.init()
    answer = batch(world, version, is_verify_only=False)
    assert answer.error_code == NONE
    assert [codes(result.topic_results)["t", 0] for result in answer.results_by_transaction] == ["NONE", "INVALID_REQUEST"]
    assert world.scenario.run("describe tx")[0] == "tx Ongoing 0/0 [t-0 t-1]"
    assert world.ask(add_partitions_to_txn, AddPartitionsToTxnRequest(), version).results_by_transaction == []


@pytest.mark.parametrize("version", [4, 5])
def test_where_rules_hold_a_batch_is_for_brokers(version: int) -> None:
    world = BrokerWorld()
    world.init()
    refused = batch(world, version, is_verify_only=False)
    assert refused.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED and refused.results_by_transaction == []
    world.denied = {(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID), (AclOperation.WRITE, ResourceType.TOPIC)}
    answer = batch(world, version, is_verify_only=False)
    assert codes(answer.results_by_transaction[0].topic_results)["t", 0] == "NONE", "a broker needs no rights of its client's"
    unknown = batch(world, version, is_verify_only=False, name="nowhere").results_by_transaction[0]
    assert set(codes(unknown.topic_results).values()) == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_batches_add_and_verify() -> None:
    world = BrokerWorld()
    world.denied.clear()
    world.init()
    verified = {version: batch(world, version, is_verify_only=True) for version in (4, 5)}
    assert [codes(verified[version].results_by_transaction[0].topic_results)["t", 0] for version in (4, 5)] == [
        "INVALID_TXN_STATE",
        "TRANSACTION_ABORTABLE",
    ]
    added = batch(world, 5, is_verify_only=False)
    assert [set(codes(result.topic_results).values()) for result in added.results_by_transaction] == [{"NONE"}, {"INVALID_REQUEST"}]
    assert set(codes(batch(world, 4, is_verify_only=True).results_by_transaction[0].topic_results).values()) == {"NONE"}


def test_add_offsets() -> None:
    world = BrokerWorld()
    world.init()

    def ask(version: int = 4, **fields: Any) -> ErrorCode:
        named: dict[str, Any] = {"transactional_id": "tx", "producer_id": 0, "producer_epoch": 0, "group_id": "g"} | fields
        body = AddOffsetsToTxnRequest(**named)
        return ErrorCode(world.ask(add_offsets_to_txn, body, version).error_code)

    assert ask() is NONE
    assert (ask(1, producer_epoch=9), ask(2, producer_epoch=9)) == (ErrorCode.INVALID_PRODUCER_EPOCH, FENCED)
    assert ask(transactional_id="") is ErrorCode.INVALID_REQUEST
    assert ask(transactional_id="secret") is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ask(group_id="secret") is ErrorCode.GROUP_AUTHORIZATION_FAILED


# Ending


def test_a_mirrored_topic_is_not_added() -> None:
    """No marker would ever be written to a mirrored topic, so the transaction could not end."""
    world = BrokerWorld()
    world.init()
    world.mirror = "t"
    assert set(add(world, ["t"]).values()) == {"POLICY_VIOLATION"}


def test_end() -> None:
    world = BrokerWorld()
    world.init()

    def ask(version: int, epoch: int, transactional_id: str = "tx") -> tuple[str, int, int]:
        body = EndTxnRequest(transactional_id=transactional_id, producer_id=0, producer_epoch=epoch, committed=True)
        answer = world.ask(end_txn, body, version)
        return ErrorCode(answer.error_code).name, answer.producer_id, answer.producer_epoch

    add(world, ["t"])
    assert ask(4, 0) == ("NONE", 0, 0)
    add(world, ["t"])
    assert ask(5, 0) == ("NONE", 0, 1), "transactions v2 from version 5 on"
    assert (ask(1, 0)[0], ask(2, 0)[0]) == ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    assert ask(5, 0, "")[0] == "INVALID_REQUEST"
    assert ask(5, 0, "secret")[0] == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def markers_request() -> WriteTxnMarkersRequest:
    marked = [WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])]
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=3, transaction_result=True, topics=marked, coordinator_epoch=5, transaction_version=2
    )
    return WriteTxnMarkersRequest(markers=[marker])


def test_markers_are_answered_when_all_are_there() -> None:
    world = BrokerWorld()
    pending = world.ask(write_txn_markers, markers_request())
    assert world.markers.written == [(TopicPartition("t", index), Marker(7, 3, 5, True, 2)) for index in (0, 1)]
    world.markers.answers[1](ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not pending.is_done
    world.markers.answers[0](NONE)
    [topic] = pending.response.markers[0].topics
    assert [(result.partition_index, result.error_code) for result in topic.partitions] == [(0, 0), (1, 6)]


def test_markers_need_rights() -> None:
    """A5: ALTER on the cluster is needed, which operators have and clients do not."""
    world = BrokerWorld()
    world.denied.add((AclOperation.ALTER, ResourceType.CLUSTER))
    answer = world.ask(write_txn_markers, markers_request())
    assert {result.error_code for result in answer.markers[0].topics[0].partitions} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert world.markers.written == []
    assert world.ask(write_txn_markers, WriteTxnMarkersRequest()).markers == []


# Looking


def test_describe_producers() -> None:
    world = BrokerWorld()
    world.producers = [
        SimpleNamespace(producer_id=7, epoch=3, last_sequence=9, last_timestamp=100, coordinator_epoch=5, transaction_first_offset=40)
    ]
    asked = [TopicRequest(name=name, partition_indexes=[0, 1, 9]) for name in ("t", "secret")]
    answer = world.ask(describe_producers, DescribeProducersRequest(topics=asked))
    assert [[partition.error_code for partition in topic.partitions] for topic in answer.topics] == [[0, 6, 3], [29, 29, 29]]
    [producer] = answer.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset) == (7, 3, 9, 40)


def test_a_follower_describes_the_producers_of_its_replica() -> None:
    """Kafka's kafka-transactions --broker-id compares replicas with such answers."""
    world = BrokerWorld()
    world.producers = [
        SimpleNamespace(producer_id=7, epoch=3, last_sequence=9, last_timestamp=100, coordinator_epoch=5, transaction_first_offset=40)
    ]
    world.is_leading = False
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    [partition] = world.ask(describe_producers, request).topics[0].partitions
    assert (partition.error_code, [producer.producer_id for producer in partition.active_producers]) == (0, [7])
    world.is_online = False
    assert world.ask(describe_producers, request).topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_thousands_of_producers_are_described_in_steps() -> None:
    """Formerly all producers of a partition were described in one turn of the loop: half a second for 100,000."""
    world = BrokerWorld()
    world.producers = [
        SimpleNamespace(producer_id=number, epoch=0, last_sequence=0, last_timestamp=1, coordinator_epoch=-1, transaction_first_offset=-1)
        for number in range(1000)
    ]
    body = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    connection = ConnectionInfo(identity="c", host="10.0.0.1", listener="PLAINTEXT")
    steps = describe_producers.handle(world.broker, RequestContext(0, "client", connection), body)
    assert sum(1 for _ in steps) == 5
    assert world.ask(describe_producers, body).topics[0].partitions[0].active_producers[-1].producer_id == 999


def test_describe_transactions() -> None:
    world = BrokerWorld()
    world.init()
    world.scenario.run("add A t-0 secret-0 t-1 as=0/0")
    asked = DescribeTransactionsRequest(transactional_ids=["tx", "missing", "", "secret"])
    states = world.ask(describe_transactions, asked).transaction_states
    assert [ErrorCode(state.error_code).name for state in states] == [
        "NONE",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "INVALID_REQUEST",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ]
    assert (states[0].transaction_state, states[0].producer_id, states[0].transaction_timeout_ms) == ("Ongoing", 0, 60_000)
    assert (states[1].producer_id, states[1].producer_epoch, states[1].transaction_start_time_ms) == (0, 0, 0), "as Kafka leaves them"
    assert [(topic.topic, topic.partitions) for topic in states[0].topics] == [("t", [0, 1])], "secret topics are left out"
    world.scenario.run("close")
    states = world.ask(describe_transactions, DescribeTransactionsRequest(transactional_ids=["tx"])).transaction_states
    assert states[0].error_code == ErrorCode.NOT_COORDINATOR
    assert world.ask(describe_transactions, DescribeTransactionsRequest()).transaction_states == []


def test_our_own_tools_get_the_client_that_used_the_id_last() -> None:
    """The client is a tagged field. Other clients do not get it, because strict decoders refuse tags that they do not know."""
    world = BrokerWorld()
    asked = DescribeTransactionsRequest(transactional_ids=["tx"])

    def client(software: str = "ottla") -> tuple[str, str]:
        (state,) = world.ask(describe_transactions, asked, software=software).transaction_states
        return state.ottla_client_id, state.ottla_client_host

    world.init()
    assert (client(), client("apache-kafka-java")) == (("client", "10.0.0.1"), ("", ""))
    end = EndTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, committed=False)
    assert world.ask(end_txn, end, host="10.0.0.2").error_code == NONE
    assert client() == ("client", "10.0.0.2")
    assert world.ask(end_txn, end, 4, host="10.6.6.6").error_code != NONE
    assert client() == ("client", "10.0.0.2"), "a refused client is not the owner"
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=topics("t"),
    )
    world.ask(add_partitions_to_txn, add, 3, host="10.0.0.3")
    assert client() == ("client", "10.0.0.3")
    offsets = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=1, group_id="g")
    world.ask(add_offsets_to_txn, offsets, host="10.0.0.4")
    assert client() == ("client", "10.0.0.4")


@pytest.mark.parametrize("code", [NONE, ErrorCode.INVALID_REPLICATION_FACTOR])
def test_offsets_are_added_before_any_group_exists(code: ErrorCode) -> None:
    """A producer asks for the group's coordinator only after AddOffsetsToTxn, so AddOffsetsToTxn must create the topic of offsets."""
    world = BrokerWorld()
    world.topics.clear()
    world.broker.internal_topics = SimpleNamespace(ensure=lambda name, done: (world.topics.add(name), done(code)))
    world.init()
    answer = world.ask(add_offsets_to_txn, AddOffsetsToTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, group_id="g"))
    assert answer.error_code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if code else NONE)
    assert world.topics == {GROUP_METADATA_TOPIC}


def listed(world: BrokerWorld, **fields: Any) -> tuple[ErrorCode, list[str], list[str]]:
    answer = world.ask(list_transactions, ListTransactionsRequest(**fields))
    return ErrorCode(answer.error_code), [found.transactional_id for found in answer.transaction_states], answer.unknown_state_filters


def test_list_transactions() -> None:
    world = BrokerWorld()
    for name in ("tx", "ty", "eos/copy"):
        world.init(name)
    world.scenario.run("given secret 99/0 Empty")
    world.scenario.run("add A t-0 as=0/0")
    assert listed(world) == (NONE, ["ty", "eos/copy", "tx"], [])
    assert listed(world, state_filters=["Ongoing", "Strange"]) == (NONE, ["tx"], ["Strange"])
    assert listed(world, state_filters=["Strange"]) == (NONE, [], ["Strange"])
    assert listed(world, producer_id_filters=[1]) == (NONE, ["ty"], [])
    assert listed(world, transactional_id_pattern="t.") == (NONE, ["ty", "tx"], [])
    assert listed(world, transactional_id_pattern="eos/(copy|move)") == (NONE, ["eos/copy"], [])
    world.scenario.run("advance 1000")
    assert listed(world, duration_filter=999) == (NONE, ["tx"], [])
    assert listed(world, duration_filter=1000) == (NONE, [], [])


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "x" * 600, "a**", "[b-a]", "((a{100}){100}){100}", r"\pL" * 60])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    assert listed(BrokerWorld(), transactional_id_pattern=pattern)[0] is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", ".*.*.*.*b", "((a)*)*b"])
def test_no_pattern_runs_wild(pattern: str) -> None:
    """A backtracking matcher would take minutes for each of these patterns, and years for some."""
    world = BrokerWorld()
    world.init("a" * 1_000)
    world.init("a" * 999 + "b")
    begun = time.process_time()
    assert listed(world, transactional_id_pattern=pattern) == (NONE, ["a" * 999 + "b"], [])
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NONE, 3, ErrorCode.NONE),
    ],
)
def test_a_refused_offset_commit_speaks_the_language_of_groups(code: ErrorCode, version: int, expected: ErrorCode) -> None:
    assert txn_offset_commit.offset_error(code, version) is expected
