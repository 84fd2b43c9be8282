"""The rights that each API asks for: our table is compared with Kafka's, and with the questions that a running broker asks its authorizer.

The requests are those of the clients' tests (`tests/clients/sample_requests.py`). Some APIs have further requests, because one request
cannot need all of the API's rights. Every API of the table is tried with all rights, with none, and without each of its rights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.handlers.authorized_operations import SUPPORTED
from ottla.handlers.served_apis import TABLE, Right, ServedApi
from ottla.security.acl import DENIED, ResourceType
from ottla.wire.framing import load
from ottla.wire.messages import delete_topics, fetch, find_coordinator, metadata
from ottla.wire.schema import Request, Struct
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World, batch
from tests.clients.wire_client import In, WireClient, error_codes
from tests.security.judged_broker import DIRECTORY

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"

# "Operations and Resources on Protocols" of Kafka's documentation (`docs/security/authorization-and-acls.md`).
KAFKA: dict[str, set[tuple[str, str]]] = {
    "Produce": {("WRITE", TRANSACTIONAL_ID), ("IDEMPOTENT_WRITE", CLUSTER), ("WRITE", TOPIC)},
    "Fetch": {("CLUSTER_ACTION", CLUSTER), ("READ", TOPIC)},
    "ListOffsets": {("DESCRIBE", TOPIC)},
    "Metadata": {("DESCRIBE", TOPIC), ("CREATE", CLUSTER), ("CREATE", TOPIC)},
    "LeaderAndIsr": {("CLUSTER_ACTION", CLUSTER)},
    "StopReplica": {("CLUSTER_ACTION", CLUSTER)},
    "UpdateMetadata": {("CLUSTER_ACTION", CLUSTER)},
    "ControlledShutdown": {("CLUSTER_ACTION", CLUSTER)},
    "OffsetCommit": {("READ", GROUP), ("READ", TOPIC)},
    "OffsetFetch": {("DESCRIBE", GROUP), ("DESCRIBE", TOPIC)},
    "FindCoordinator": {("DESCRIBE", GROUP), ("DESCRIBE", TRANSACTIONAL_ID)},
    "JoinGroup": {("READ", GROUP)},
    "Heartbeat": {("READ", GROUP)},
    "LeaveGroup": {("READ", GROUP)},
    "SyncGroup": {("READ", GROUP)},
    "DescribeGroups": {("DESCRIBE", GROUP)},
    "ListGroups": {("DESCRIBE", CLUSTER), ("DESCRIBE", GROUP)},
    "SaslHandshake": set(),
    "ApiVersions": set(),
    "CreateTopics": {("CREATE", CLUSTER), ("CREATE", TOPIC)},
    "DeleteTopics": {("DELETE", TOPIC)},
    "DeleteRecords": {("DELETE", TOPIC)},
    "InitProducerId": {("WRITE", TRANSACTIONAL_ID), ("IDEMPOTENT_WRITE", CLUSTER)},
    "OffsetForLeaderEpoch": {("CLUSTER_ACTION", CLUSTER), ("DESCRIBE", TOPIC)},
    "AddPartitionsToTxn": {("WRITE", TRANSACTIONAL_ID), ("WRITE", TOPIC)},
    "AddOffsetsToTxn": {("WRITE", TRANSACTIONAL_ID), ("READ", GROUP)},
    "EndTxn": {("WRITE", TRANSACTIONAL_ID)},
    "WriteTxnMarkers": {("ALTER", CLUSTER), ("CLUSTER_ACTION", CLUSTER)},
    "TxnOffsetCommit": {("WRITE", TRANSACTIONAL_ID), ("READ", GROUP), ("READ", TOPIC)},
    "DescribeAcls": {("DESCRIBE", CLUSTER)},
    "CreateAcls": {("ALTER", CLUSTER)},
    "DeleteAcls": {("ALTER", CLUSTER)},
    "DescribeConfigs": {("DESCRIBE_CONFIGS", CLUSTER), ("DESCRIBE_CONFIGS", TOPIC)},
    "AlterConfigs": {("ALTER_CONFIGS", CLUSTER), ("ALTER_CONFIGS", TOPIC)},
    "AlterReplicaLogDirs": {("ALTER", CLUSTER)},
    "DescribeLogDirs": {("DESCRIBE", CLUSTER)},
    "SaslAuthenticate": set(),
    "CreatePartitions": {("ALTER", TOPIC)},
    "CreateDelegationToken": {("CREATE_TOKENS", "USER")},
    "RenewDelegationToken": set(),
    "ExpireDelegationToken": set(),
    "DescribeDelegationToken": {("DESCRIBE", "DELEGATION_TOKEN"), ("DESCRIBE_TOKENS", "USER")},
    "DeleteGroups": {("DELETE", GROUP)},
    "ElectLeaders": {("CLUSTER_ACTION", CLUSTER)},
    "IncrementalAlterConfigs": {("ALTER_CONFIGS", CLUSTER), ("ALTER_CONFIGS", TOPIC)},
    "AlterPartitionReassignments": {("ALTER", CLUSTER)},
    "ListPartitionReassignments": {("DESCRIBE", CLUSTER)},
    "OffsetDelete": {("DELETE", GROUP), ("READ", TOPIC)},
    "DescribeClientQuotas": {("DESCRIBE_CONFIGS", CLUSTER)},
    "AlterClientQuotas": {("ALTER_CONFIGS", CLUSTER)},
    "DescribeUserScramCredentials": {("DESCRIBE", CLUSTER)},
    "AlterUserScramCredentials": {("ALTER", CLUSTER)},
    "DescribeQuorum": {("DESCRIBE", CLUSTER)},
    "AlterPartition": {("CLUSTER_ACTION", CLUSTER)},
    "UpdateFeatures": {("ALTER", CLUSTER)},
    "Envelope": {("CLUSTER_ACTION", CLUSTER)},
    "DescribeCluster": {("DESCRIBE", CLUSTER)},
    "DescribeProducers": {("READ", TOPIC)},
    "UnregisterBroker": {("ALTER", CLUSTER)},
    "DescribeTransactions": {("DESCRIBE", TRANSACTIONAL_ID)},
    "ListTransactions": {("DESCRIBE", TRANSACTIONAL_ID)},
    "ConsumerGroupHeartbeat": {("READ", GROUP)},
    "ConsumerGroupDescribe": {("DESCRIBE", GROUP)},
    "GetTelemetrySubscriptions": set(),
    "PushTelemetry": set(),
    "ListConfigResources": {("DESCRIBE_CONFIGS", CLUSTER)},
    "DescribeTopicPartitions": {("DESCRIBE", TOPIC)},
    "AddRaftVoter": {("ALTER", CLUSTER)},
    "RemoveRaftVoter": {("ALTER", CLUSTER)},
    "ShareGroupHeartbeat": {("READ", GROUP)},
    "ShareGroupDescribe": {("DESCRIBE", GROUP)},
    "ShareFetch": {("READ", GROUP), ("READ", TOPIC)},
    "ShareAcknowledge": {("READ", GROUP), ("READ", TOPIC)},
    "InitializeShareGroupState": {("CLUSTER_ACTION", CLUSTER)},
    "ReadShareGroupState": {("CLUSTER_ACTION", CLUSTER)},
    "WriteShareGroupState": {("CLUSTER_ACTION", CLUSTER)},
    "DeleteShareGroupState": {("CLUSTER_ACTION", CLUSTER)},
    "ReadShareGroupStateSummary": {("CLUSTER_ACTION", CLUSTER)},
    "StreamsGroupHeartbeat": {("READ", GROUP)},
    "StreamsGroupDescribe": {("DESCRIBE", GROUP)},
    "StreamsGroupTopologyDescriptionUpdate": {("READ", GROUP)},
    "DescribeShareGroupOffsets": {("DESCRIBE", GROUP), ("DESCRIBE", TOPIC)},
    "AlterShareGroupOffsets": {("READ", GROUP), ("READ", TOPIC)},
    "DeleteShareGroupOffsets": {("DELETE", GROUP), ("READ", TOPIC)},
}

OURS: dict[str, set[tuple[str, str]]] = {
    "StageRecords": {("WRITE", TOPIC)},
    "AttachRecords": {("WRITE", TOPIC), ("WRITE", TRANSACTIONAL_ID)},
    "DescribeFrames": {("ALTER", CLUSTER)},
    "DescribeSegments": {("DESCRIBE", TOPIC)},
    "MirrorRecords": {("CLUSTER_ACTION", CLUSTER)},
}
"""Staging and attaching need the rights of a Produce with the same records. Frames have records of every topic, so reading them needs ALTER
on the cluster, with which a client could also create ACLs that give it every right. A mirror chooses offsets and epochs, as a broker
does."""

# APIs for which Kafka's brokers differ from Kafka's table, or which the table lacks: additional rights, missing rights, and the reason.
NOT_IN_THE_DOCUMENTATION: dict[str, tuple[set[tuple[str, str]], set[tuple[str, str]], str]] = {
    "Produce": (set(), {("IDEMPOTENT_WRITE", CLUSTER)}, "idempotent producers need no right of their own since 3.0 (KIP-679)"),
    "Metadata": ({("DESCRIBE", CLUSTER)}, set(), "the bits of the cluster are shown to those who may describe it (KIP-430)"),
    "FindCoordinator": ({("CLUSTER_ACTION", CLUSTER)}, set(), "only brokers look for the coordinators of share partitions (KIP-932)"),
    "CreateTopics": ({("DESCRIBE_CONFIGS", TOPIC)}, set(), "the answer has the topic's configs for those who may see them (KIP-525)"),
    "DeleteTopics": ({("DESCRIBE", TOPIC)}, set(), "a topic id is known only to those who may see the topic (KIP-516)"),
    "InitProducerId": (
        {("WRITE", TOPIC), ("TWO_PHASE_COMMIT", TRANSACTIONAL_ID)},
        set(),
        "the right to write to any topic will do (KIP-679); transactions without a timeout have a right of their own (KIP-939)",
    ),
    "AddPartitionsToTxn": ({("CLUSTER_ACTION", CLUSTER)}, set(), "brokers send it for their clients from version 4 on (KIP-890)"),
    "DescribeConfigs": ({("DESCRIBE_CONFIGS", GROUP)}, set(), "settings of groups (KIP-848)"),
    "AlterConfigs": ({("ALTER_CONFIGS", GROUP)}, set(), "settings of groups (KIP-848)"),
    "IncrementalAlterConfigs": ({("ALTER_CONFIGS", GROUP)}, set(), "settings of groups (KIP-848)"),
    "ElectLeaders": ({("ALTER", CLUSTER)}, {("CLUSTER_ACTION", CLUSTER)}, "as KIP-460 has it, and brokers ask"),
    "DescribeTransactions": ({("DESCRIBE", TOPIC)}, set(), "topics that may not be seen are left out (KIP-664)"),
    "ConsumerGroupHeartbeat": ({("DESCRIBE", TOPIC)}, set(), "only topics that may be seen may be subscribed to (KIP-848)"),
    "ConsumerGroupDescribe": ({("DESCRIBE", TOPIC)}, set(), "members show the topics that they read (KIP-848)"),
    "ShareGroupHeartbeat": ({("DESCRIBE", TOPIC)}, set(), "only topics that may be seen may be subscribed to (KIP-932)"),
    "ShareGroupDescribe": ({("DESCRIBE", TOPIC)}, set(), "members show the topics that they read (KIP-932)"),
    "StreamsGroupHeartbeat": (
        {("DESCRIBE", TOPIC), ("CREATE", TOPIC), ("CREATE", CLUSTER)},
        set(),
        "only topics that may be seen may be in a topology, and internal topics are created with the member's rights (KIP-1071)",
    ),
    "StreamsGroupDescribe": ({("DESCRIBE", TOPIC)}, set(), "the topology shows the topics that the group reads (KIP-1071)"),
}


def named(rights: tuple[Right, ...]) -> set[tuple[str, str]]:
    return {(right.operation.name, right.resource_type.name) for right in rights}


def test_every_api_needs_the_rights_that_kafka_asks_for() -> None:
    expected = {}
    for name, rights in KAFKA.items():
        more, less, _why = NOT_IN_THE_DOCUMENTATION.get(name, (set(), set(), ""))
        assert not rights & more and less <= rights, name
        expected[name] = (rights | more) - less
    assert {api.name: named(api.rights) for api in TABLE.values() if not api.is_extension} == expected
    assert {api.name: named(api.rights) for api in TABLE.values() if api.is_extension} == OURS


def test_only_what_needs_no_right_is_served_before_authentication() -> None:
    assert {api.name for api in TABLE.values() if api.is_before_authentication} == {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    by_secret = {"RenewDelegationToken", "ExpireDelegationToken"}  # for owners and renewers of the token
    by_subscription = {"GetTelemetrySubscriptions", "PushTelemetry"}  # for clients that match a subscription of the operator
    before = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    assert {api.name for api in TABLE.values() if not api.rights} == before | by_secret | by_subscription


def test_every_resource_has_its_refusal() -> None:
    assert set(DENIED) == set(ResourceType)


# The questions of a running broker


class Judge:
    """Sets the rights that the broker's authorizer refuses, and reads the questions that it got."""

    def __init__(self, directory: Path) -> None:
        self._denied = directory / "denied"
        self._asked = directory / "asked"
        self.deny([])

    def deny(self, rights: list[tuple[str, str]] | str) -> None:
        """Denies these rights, or "all"."""
        self._denied.write_text(json.dumps(rights))

    def asked_by(self, work: Callable[[], Any]) -> tuple[Any, set[tuple[str, str]]]:
        """Returns the result of the work, and the questions that the authorizer got meanwhile."""
        begin = self._asked.stat().st_size
        result = work()
        lines = self._asked.read_text()[begin:].splitlines()
        return result, {(operation, kind) for operation, kind, _ in map(json.loads, lines)}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return Judge(tmp_path_factory.mktemp("judge"))


@pytest.fixture(scope="module")
def judged_broker(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS, prefix=["env", f"{DIRECTORY}={judge._denied.parent}"])
    process.program = ["-m", "tests.security.judged_broker"]
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def world(judged_broker: BrokerProcess) -> Iterator[World]:
    with WireClient(judged_broker.port) as client:
        yield World(client)


Maker = Callable[[World, In], Request]


def _transactional_produce(world: World, make: In) -> Request:
    name, producer_id, epoch = world.transaction(world.topic)
    records = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    return world.produce(make, world.topic, records, transactional_id=name)


def _replica_fetch(world: World, make: In) -> Request:
    request: Any = world.request(1, make.version)
    request.replica_state = make(fetch.ReplicaState, replica_id=7, replica_epoch=1)
    return request  # type: ignore[no-any-return]


def _new_topic(world: World, make: In) -> Request:
    topic = make(metadata.MetadataRequestTopic, name=world.fresh("auto"))
    return make(metadata.MetadataRequest, topics=[topic], allow_auto_topic_creation=True)  # type: ignore[no-any-return]


def _delete_by_id(world: World, make: In) -> Request:
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=world.fresh_topic())])
    topic_id = world.client.ask(asked, 12).topics[0].topic_id
    state = make(delete_topics.DeleteTopicState, name=None, topic_id=topic_id)
    return make(delete_topics.DeleteTopicsRequest, topics=[state], timeout_ms=5000)  # type: ignore[no-any-return]


def _config_kinds(cls: Any, field: str) -> Maker:
    """Makes a request about one resource of each type whose settings need a right of their own."""

    def maker(world: World, make: In) -> Request:
        request: Any = world.request(cls.API_KEY, make.version)
        kinds = ((2, world.topic), (4, "0"), (32, "group"))
        first = getattr(request, field)[0]
        fields = {name: getattr(first, name) for name in ("configs", "configuration_keys") if hasattr(first, name)}
        resources = [type(first)(resource_type=kind, resource_name=name, **fields) for kind, name in kinds]
        setattr(request, field, resources)
        return request  # type: ignore[no-any-return]

    return maker


def _regex_heartbeat(world: World, make: In) -> Request:
    fields = {**world.first_heartbeat(world.fresh("pattern")), "subscribed_topic_names": None, "subscribed_topic_regex": "wor.*"}
    return make(load(68)[0], **fields)  # type: ignore[no-any-return]


def _list_an_open_transaction(world: World, make: In) -> Request:
    world.transaction(world.fresh_topic())
    return world.request(66, make.version)


def _add_as_a_client(world: World, _make: In) -> Request:
    return world.request(24, CLIENTS_LAST)


CLIENTS_LAST = 3
"""The last version of AddPartitionsToTxn that clients send; brokers send the later ones."""

VARIANTS: dict[str, list[Maker]] = {
    "AddPartitionsToTxn": [_add_as_a_client],
    "Produce": [_transactional_produce],
    "Fetch": [_replica_fetch],
    "Metadata": [_new_topic, lambda world, make: _with(world.request(3, make.version), include_topic_authorized_operations=False)],
    "FindCoordinator": [
        lambda world, make: make(find_coordinator.FindCoordinatorRequest, key_type=1, coordinator_keys=["transaction"]),
        lambda world, make: make(find_coordinator.FindCoordinatorRequest, key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"]),
    ],
    "DeleteTopics": [_delete_by_id],
    "InitProducerId": [
        lambda world, make: make(load(22)[0], transactional_id=None, transaction_timeout_ms=1000),
        lambda world, make: make(load(22)[0], transactional_id=world.fresh("2pc"), transaction_timeout_ms=1000, enable2_pc=True),
    ],
    "DescribeConfigs": [_config_kinds(load(32)[0], "resources")],
    "AlterConfigs": [_config_kinds(load(33)[0], "resources")],
    "IncrementalAlterConfigs": [_config_kinds(load(44)[0], "resources")],
    "DescribeCluster": [lambda world, make: _with(world.request(60, make.version), include_cluster_authorized_operations=True)],
    "ListTransactions": [_list_an_open_transaction],
    "ConsumerGroupHeartbeat": [_regex_heartbeat],
}
"""Further requests, which need rights that the sample request of their API does not need."""

TRIED_IN = {"Metadata": 10}
"""APIs that are tried in another version than the newest: Metadata in the last version with the authorized operations of the cluster."""
VERSIONS_OF: dict[Maker, int] = {_add_as_a_client: CLIENTS_LAST}


def version_of(api: ServedApi, maker: Maker) -> int:
    return VERSIONS_OF.get(maker, TRIED_IN.get(api.name, api.max_version))


BITS_OF_CLUSTER = {("DESCRIBE", CLUSTER), *((operation.name, CLUSTER) for operation in SUPPORTED[ResourceType.CLUSTER])}
BITS_OF_TOPIC = {(operation.name, TOPIC) for operation in SUPPORTED[ResourceType.TOPIC]}
ASKED_FOR_BITS = {"Metadata": BITS_OF_CLUSTER, "DescribeCluster": BITS_OF_CLUSTER, "DescribeTopicPartitions": BITS_OF_TOPIC}
"""Further questions, which the broker asks to fill in the bits of authorized operations."""


def _with(request: Any, **fields: Any) -> Request:
    for name, value in fields.items():
        setattr(request, name, value)
    return request  # type: ignore[no-any-return]


def _sensible(world: World, make: In, api: ServedApi) -> Request:
    """Returns the sample request without a wish for authorized operations, which would cause further questions."""
    request = world.request(api.key, make.version)
    bits = [field.name for field in request.__fields__ if field.name.endswith("authorized_operations")]
    return _with(request, **dict.fromkeys(bits, False))


def _makers(api: ServedApi) -> list[Maker]:
    return [lambda world, make: _sensible(world, make, api), *VARIANTS.get(api.name, [])]


def _ask(
    world: World, port: int, judge: Judge, maker: Maker, api: ServedApi, denied: list[tuple[str, str]] | str
) -> tuple[Any, set[tuple[str, str]]]:
    """Returns the answer, and the questions that the authorizer got for it."""
    version = version_of(api, maker)
    request = maker(world, In(version))
    judge.deny(denied)
    try:
        with WireClient(port) as client:
            return judge.asked_by(lambda: client.ask(request, version))
    finally:
        judge.deny([])


AFTER_A_LOGIN = {"CreateDelegationToken", "DescribeDelegationToken"}
"""APIs that refuse clients without a login before any question about rights. tests/handlers/access/test_delegation_tokens.py tries them."""

APIS = sorted(api for api in TABLE.values() if api.name not in AFTER_A_LOGIN)
ids = [api.name for api in APIS]


@pytest.mark.parametrize("api", APIS, ids=ids)
def test_a_broker_asks_what_the_table_says(api: ServedApi, world: World, judged_broker: BrokerProcess, judge: Judge) -> None:
    """Some request asks for each declared right, and no request asks for another right."""
    rights = named(api.rights)
    asked: set[tuple[str, str]] = set()
    for maker in _makers(api):
        for denied in ([], "all", *([right] for right in sorted(rights))):
            asked |= _ask(world, judged_broker.port, judge, maker, api, denied)[1]
    assert asked >= rights
    assert asked - ASKED_FOR_BITS.get(api.name, set()) <= rights


REFUSALS = {int(code) for code in DENIED.values()} | {int(ErrorCode.OPERATION_NOT_ATTEMPTED)}
SHOWS_ONLY_WHAT_IS_ALLOWED = {"ListGroups", "ListTransactions", "DescribeCluster"}
"""APIs that answer without an error, and exclude what the client may not see."""


@pytest.mark.parametrize("api", [api for api in APIS if api.rights], ids=[api.name for api in APIS if api.rights])
def test_without_any_right_every_api_refuses(api: ServedApi, world: World, judged_broker: BrokerProcess, judge: Judge) -> None:
    for maker in _makers(api):
        answer, _ = _ask(world, judged_broker.port, judge, maker, api, "all")
        codes = set(error_codes(answer)) | {getattr(answer, "partition_error_code", 0)} - {0}
        codes |= set(nested(answer, "partition_error_code"))
        if api.name in SHOWS_ONLY_WHAT_IS_ALLOWED:
            assert codes <= {0} and not getattr(answer, "groups", None) and not getattr(answer, "transaction_states", None)
        else:
            assert codes - {0} <= REFUSALS, answer
            assert codes - {0}, answer


ABSENT = {"world": "absent", "group": "no-group", "offsets": "no-offsets", "share-group": "no-share-group"}

_NAMES = re.compile(rf"(?<![\w-])({'|'.join(ABSENT)})(?![\w-])")


@pytest.mark.parametrize("api", [api for api in APIS if api.rights], ids=[api.name for api in APIS if api.rights])
def test_without_any_right_what_exists_looks_like_what_does_not(
    api: ServedApi, world: World, judged_broker: BrokerProcess, judge: Judge
) -> None:
    for maker in _makers(api):
        version = version_of(api, maker)
        request = maker(world, In(version))
        judge.deny("all")
        try:
            with WireClient(judged_broker.port) as client:
                existing, absent = client.ask(request, version), client.ask(renamed(request, ABSENT), version)
        finally:
            judge.deny([])
        assert text_of(absent) == _NAMES.sub(lambda found: ABSENT[found[0]], text_of(existing))


def text_of(answer: Any) -> str:
    """Returns the whole answer as text, without its random parts."""
    return re.sub(r"session_id=\d+|<memory at \w+>", "", repr(answer))


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Returns the same message about resources with other names."""
    if isinstance(value, list):
        return [renamed(inner, names) for inner in value]
    if isinstance(value, Struct):
        fields = {field.name: renamed(getattr(value, field.name), names) for field in value.__fields__}
        is_same = all(inner is getattr(value, name) for name, inner in fields.items())
        return value if is_same else type(value)(**fields)
    return names.get(value, value) if isinstance(value, str) else value


def nested(value: Any, name: str) -> Iterator[int]:
    """Yields the values of this field anywhere in an answer."""
    if isinstance(value, list):
        for inner in value:
            yield from nested(inner, name)
    for field in getattr(value, "__fields__", ()):
        if field.name == name:
            yield getattr(value, name)
        else:
            yield from nested(getattr(value, field.name), name)


def test_a_pattern_matches_only_topics_that_may_be_seen(world: World, judged_broker: BrokerProcess, judge: Judge) -> None:
    """KIP-848: other topics that the pattern would match stay hidden, without an error."""
    api = next(api for api in APIS if api.name == "ConsumerGroupHeartbeat")
    blind, _ = _ask(world, judged_broker.port, judge, _regex_heartbeat, api, [("DESCRIBE", TOPIC)])
    assert blind.error_code == 0 and not blind.assignment.topic_partitions
    seeing, _ = _ask(world, judged_broker.port, judge, _regex_heartbeat, api, [])
    assert [topic.topic_id for topic in seeing.assignment.topic_partitions] == [world.topic_id]


def test_groups_are_refused_before_their_topics(world: World, judged_broker: BrokerProcess, judge: Judge) -> None:
    for api in (api for api in APIS if api.name.endswith("GroupHeartbeat")):
        answer, asked = _ask(world, judged_broker.port, judge, _makers(api)[0], api, "all")
        assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED and asked == {("READ", GROUP)}


def test_a_created_topic_shows_its_configs_with_describe_configs(world: World, judged_broker: BrokerProcess, judge: Judge) -> None:
    api = next(api for api in APIS if api.name == "CreateTopics")
    answer, _ = _ask(world, judged_broker.port, judge, _makers(api)[0], api, [("DESCRIBE_CONFIGS", TOPIC)])
    (made,) = answer.topics
    assert made.error_code == 0 and made.topic_id != ZERO_UUID
    assert (made.topic_config_error_code, made.num_partitions, made.replication_factor) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1)
    assert not made.configs
