"""Long requests are answered like short ones, in order within their connection. They alternate with other requests, and their memory is
bounded."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.base.errors import ErrorCode
from ottla.handlers.context import Pending
from ottla.server.app import BrokerServer
from ottla.server.execution.long_requests import LARGE_AT_ONCE_MAX, PIECES_OUTSTANDING_MAX, SMALL_AT_ONCE_MAX, LongRequest, LongRequests
from ottla.server.memory.answer_memory import Slot
from ottla.wire.codec import decoder, encoder
from ottla.wire.framing import load, read_response_header, write_request
from ottla.wire.messages import (
    alter_client_quotas,
    create_acls,
    delete_acls,
    delete_records,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_user_scram_credentials,
    fetch,
    find_coordinator,
    init_producer_id,
    list_groups,
    list_transactions,
    metadata,
    offset_commit,
    produce,
)
from ottla.wire.messages import alter_user_scram_credentials as scram
from ottla.wire.records import Record, encode_batch
from ottla.wire.schema import Request
from tests.clients.broker_process import eventually
from tests.clients.sample_world import batch
from tests.fakes.rule_nodes import count_encoded
from tests.server.conftest import MakeServer

BROKER, GROUP = 4, 32
Ask = Callable[..., list[Any]]


@pytest.fixture
def server(make_server: MakeServer) -> BrokerServer:
    authorizer = ("authorizer.class.name=acl", "super.users=User:ANONYMOUS")
    return make_server("ottla.response.max.bytes=200000", "num.partitions=2", *authorizer)


@pytest.fixture
def ask(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> Ask:
    """`ask((request, version), ...)` sends the requests on one connection, and returns the answers in the order of their arrival."""

    async def talk(requests: tuple[tuple[Request, int], ...]) -> list[Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
        for number, (request, version) in enumerate(requests):
            body = encoder(type(request), version)(request)
            writer.write(write_request(type(request).API_KEY, version, number, "test", body))
        answers = []
        for number, (request, version) in enumerate(requests):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            data = await reader.readexactly(size)
            correlation_id, at = read_response_header(type(request).API_KEY, version, data)
            assert correlation_id == number
            answers.append(decoder(load(type(request).API_KEY)[1], version)(data, at)[0])
        writer.close()
        return answers

    return lambda *requests: loop.run_until_complete(asyncio.wait_for(talk(requests), 60))


def describe(*names: str, kind: int = GROUP) -> tuple[Request, int]:
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names
    ]
    return describe_configs.DescribeConfigsRequest(resources=resources), 4


def topics(count: int) -> tuple[Request, int]:
    wanted = [metadata.MetadataRequestTopic(name=f"topic-{number}") for number in range(count)]
    return metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 9


def test_what_is_named_often_is_answered_once(ask: Ask) -> None:
    (answer,) = ask(describe(*["0"] * 5000, kind=BROKER))
    assert [(found.resource_name, found.error_code) for found in answer.results] == [("0", 0)]


def test_a_long_request_is_answered_as_the_short_ones_that_it_is_made_of(ask: Ask) -> None:
    names = [f"group-{number}" for number in range(12)]
    (whole,) = ask(describe(*names))
    alone = ask(*(describe(name) for name in names))
    assert whole.results == [answer.results[0] for answer in alone]


def test_requests_behind_a_long_one_are_executed_after_it(ask: Ask) -> None:
    """A Produce is cut into pieces, and a DeleteRecords behind it deletes its records."""
    ask((metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 9))
    data = [produce.PartitionProduceData(index=0, records=batch(1)) for _ in range(1200)]
    written = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[produce.TopicProduceData(name="t", partition_data=data)])
    cut = delete_records.DeleteRecordsPartition(partition_index=0, offset=-1)
    deletion = delete_records.DeleteRecordsRequest(topics=[delete_records.DeleteRecordsTopic(name="t", partitions=[cut])], timeout_ms=5000)
    produced, deleted, unknown, version = ask((written, 9), (deletion, 2), topics(3000), (load(18)[0](), 0))
    results = produced.responses[0].partition_responses
    assert len(produced.responses) == 1 and [result.base_offset for result in results] == list(range(1200))
    assert deleted.topics[0].partitions[0].low_watermark == 1200
    assert [topic.name for topic in unknown.topics] == [f"topic-{number}" for number in range(3000)]
    assert version.error_code == 0


@pytest.mark.parametrize("size", [10, 100_000])
def test_records_stand_in_their_places_in_the_answer_to_a_wide_fetch(ask: Ask, size: int) -> None:
    """Small records are copied into the answer, large ones are sent from the file."""
    ask((metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True), 9))
    records = [bytes(encode_batch([Record(0, 1_700_000_000_000, None, bytes([index]) * size)])) for index in (0, 1)]
    data = [produce.PartitionProduceData(index=index, records=batch) for index, batch in enumerate(records)]
    ask((produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[produce.TopicProduceData(name="t", partition_data=data)]), 9))
    order = [*range(2000, 4000), 1, *range(4000, 10_000), 0]
    wanted = [fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in order]
    request = fetch.FetchRequest(max_bytes=1 << 24, topics=[fetch.FetchTopic(topic="t", partitions=wanted)])
    (answer,) = ask((request, 12))
    results = answer.responses[0].partitions
    assert [result.partition_index for result in results] == order
    for result in results:
        # The log writes the leader's epoch and a base offset into the first twenty bytes of a batch.
        stored = records[result.partition_index] if result.partition_index < 2 else b""
        assert bytes(result.records or b"")[20:] == stored[20:]


def make_something_of_each_kind(ask: Ask) -> None:
    user = scram.ScramCredentialUpsertion(name="u1", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32)
    quota = alter_client_quotas.EntryData(
        entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="u1")],
        ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1e6)],
    )
    ask(
        (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t1")], allow_auto_topic_creation=True), 9),
        (scram.AlterUserScramCredentialsRequest(upsertions=[user]), 0),
        (alter_client_quotas.AlterClientQuotasRequest(entries=[quota]), 1),
    )
    ask((create_acls.CreateAclsRequest(creations=[rule("t1"), rule("t2"), rule("t1", principal="User:u2")]), 3))
    offset = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    topic = offset_commit.OffsetCommitRequestTopic(name="t1", partitions=[offset])
    commit = offset_commit.OffsetCommitRequest(group_id="g1", topics=[topic])
    begin = init_producer_id.InitProducerIdRequest(transactional_id="t-1", transaction_timeout_ms=60_000)
    for kind, asked in ((0, (commit, 8)), (1, (begin, 4))):
        find = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g1"])
        eventually(lambda find=find: not ask((find, 4))[0].coordinators[0].error_code)  # type: ignore[misc]
        eventually(lambda asked=asked: is_done(ask(asked)[0]))  # type: ignore[misc]


def rule(topic: str, principal: str = "User:u1") -> create_acls.AclCreation:
    return create_acls.AclCreation(
        resource_type=2, resource_name=topic, resource_pattern_type=3, principal=principal, host="*", operation=3, permission_type=3
    )


RULES_OF_ALL_TOPICS = {
    "resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None, "host_filter": None,
    "operation": 1, "permission_type": 1,
}  # fmt: skip


def is_done(answer: Any) -> bool:
    return not (answer.topics[0].partitions[0] if hasattr(answer, "topics") else answer).error_code


@pytest.mark.parametrize(
    "request_and_version",
    [
        (metadata.MetadataRequest(topics=None), 12),
        (metadata.MetadataRequest(topics=[]), 0),
        (list_groups.ListGroupsRequest(states_filter=["EMPTY"]), 5),
        (list_transactions.ListTransactionsRequest(transactional_id_pattern="t-.*"), 2),
        (describe_log_dirs.DescribeLogDirsRequest(topics=None), 4),
        (describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False), 1),
        (describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None), 0),
        (describe_acls.DescribeAclsRequest(**RULES_OF_ALL_TOPICS), 3),
    ],
    ids=lambda asked: f"{type(asked[0]).__name__}-{asked[1]}",
)
def test_long_lists_are_the_same_as_short_ones(ask: Ask, request_and_version: tuple[Request, int], monkeypatch: pytest.MonkeyPatch) -> None:
    make_something_of_each_kind(ask)
    (short,) = ask(request_and_version)
    long_requests: list[LongRequest] = []
    begin = LongRequests.begin
    monkeypatch.setattr(LongRequests, "begin", lambda owner, request, *body: (long_requests.append(request), begin(owner, request, *body)))
    monkeypatch.setattr("ottla.server.execution.dispatch.FIRST_PIECE_NS", 0)
    monkeypatch.setattr("ottla.handlers.topics.metadata.ITEMS_PER_STEP", 1)
    (long,) = ask(request_and_version)
    for answer in (short, long):
        for directory in answer.results if isinstance(answer, describe_log_dirs.DescribeLogDirsResponse) else ():
            directory.usable_bytes = 0  # other programs fill the file system
    assert long == short and len(long_requests) == 1
    assert "1" in str(short), "there was something to list"


def test_many_producers_are_the_same_in_one_request_and_in_several(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ask((metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t1")], allow_auto_topic_creation=True), 9))
    for number in range(250):
        data = [
            produce.PartitionProduceData(index=index, records=batch(1, producer_id=2 * number + index, producer_epoch=0, base_sequence=0))
            for index in (0, 1)
        ]
        topic = produce.TopicProduceData(name="t1", partition_data=data)
        (answer,) = ask((produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9))
        assert [partition.error_code for partition in answer.responses[0].partition_responses] == [0, 0]

    def described(*indexes: int) -> list[list[int]]:
        asked = describe_producers.TopicRequest(name="t1", partition_indexes=list(indexes))
        (answer,) = ask((describe_producers.DescribeProducersRequest(topics=[asked]), 0))
        return [[producer.producer_id for producer in partition.active_producers] for partition in answer.topics[0].partitions]

    at_once = [*described(0), *described(1)]
    assert at_once == [list(range(0, 500, 2)), list(range(1, 500, 2))]
    monkeypatch.setattr("ottla.server.execution.dispatch.FIRST_PIECE_NS", 0)
    assert [*described(0), *described(1)] == at_once
    assert described(0, 1) == at_once


def test_rules_are_deleted_in_steps_as_at_once(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    deletion = delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**RULES_OF_ALL_TOPICS)] * 2)
    answers = []
    for slice_ns in (1_000_000_000, 0):
        make_something_of_each_kind(ask)
        monkeypatch.setattr("ottla.server.execution.dispatch.FIRST_PIECE_NS", slice_ns)
        deleted, left = ask((deletion, 3), (describe_acls.DescribeAclsRequest(**RULES_OF_ALL_TOPICS), 3))
        assert left.resources == [] and [len(result.matching_acls) for result in deleted.filter_results] == [3, 3]
        answers.append(deleted)
    assert answers[0] == answers[1]


def test_many_rules_of_one_resource_rewrite_its_list_a_few_times(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formerly each piece of 50 rules rewrote the list: 5,000 rules for one resource caused 100 writes of up to 56 ms each."""
    encoded = count_encoded(monkeypatch)
    creations = [rule("orders", f"User:u{number}") for number in range(2000)]
    creations[7].resource_name = ""
    (created,) = ask((create_acls.CreateAclsRequest(creations=creations), 3))
    assert [index for index, result in enumerate(created.results) if result.error_code] == [7] and len(created.results) == 2000
    assert encoded[-1] == 1999 and sum(encoded) < 3 * 2000
    (described,) = ask((describe_acls.DescribeAclsRequest(**RULES_OF_ALL_TOPICS), 3))
    assert [len(resource.acls) for resource in described.resources] == [1999]


def test_the_answer_has_a_maximum_and_says_so(ask: Ask) -> None:
    (answer,) = ask(describe(*(f"group-{number}" for number in range(1000))))
    codes = [found.error_code for found in answer.results]
    assert len(codes) == 1000 and codes[0] == 0 and codes[-1] == ErrorCode.POLICY_VIOLATION
    assert codes == sorted(codes), "what comes first is answered"
    assert len(encoder(type(answer), 4)(answer)) < 400_000
    assert "ottla.response.max.bytes" in answer.results[-1].error_message


def test_others_are_served_while_a_long_request_goes_on(loop: asyncio.AbstractEventLoop, server: BrokerServer, ask: Ask) -> None:
    """A request takes seconds, and another client is answered meanwhile."""
    request, version = topics(60_000)
    long_frame = write_request(3, version, 1, "long", encoder(type(request), version)(request))
    short_frame = write_request(18, 0, 1, "short", b"")

    async def talk() -> int:
        long_reader, long_writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
        answered = 0
        long_writer.write(long_frame)
        whole = asyncio.ensure_future(long_reader.readexactly(4))
        while not whole.done():
            writer.write(short_frame)
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)
            answered += 1
        long_writer.close()
        writer.close()
        return answered

    assert loop.run_until_complete(asyncio.wait_for(talk(), 60)) > 3


def test_a_client_that_goes_away_leaves_nothing(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    """There are more large requests than are decoded at a time, and all of their clients disconnect. The next large request is served."""
    request, version = topics(50_000)
    frame = write_request(3, version, 1, "gone", encoder(type(request), version)(request))

    async def go() -> None:
        for _ in range(LARGE_AT_ONCE_MAX + 2):
            _reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
            writer.write(frame)
            await writer.drain()
            writer.transport.abort()

    loop.run_until_complete(asyncio.wait_for(go(), 60))
    (answer,) = ask((request, version))
    assert len(answer.topics) == 50_000
    turns = server.node.dispatcher.long_requests.turns

    async def until_idle() -> None:
        while not turns.is_idle:
            await asyncio.sleep(0)

    loop.run_until_complete(asyncio.wait_for(until_idle(), 60))
    assert "a request failed" not in caplog.text


@pytest.mark.parametrize(("memory", "at_once_max"), [(64 << 20, 1), (255 << 20, 1), (256 << 20, 2), (1 << 30, 8)])
def test_a_broker_of_little_memory_decodes_one_large_request_at_a_time(make_server: MakeServer, memory: int, at_once_max: int) -> None:
    node = make_server(f"ottla.memory.max.bytes={memory}").node
    none = cast("Any", None)
    lane_of: list[object] = []

    def request(*, is_large: bool) -> LongRequest:
        made = LongRequest(node.dispatcher.long_requests, node.broker, none, none, none, 1, Slot(None, 0))
        made.is_large = is_large
        return made

    assert request(is_large=True).at_once_max == at_once_max and request(is_large=False).at_once_max == SMALL_AT_ONCE_MAX
    long_requests = node.dispatcher.long_requests
    long_requests.run = lambda request, _steps: lane_of.append(request)  # type: ignore[method-assign,assignment]
    for _ in range(3):
        long_requests.begin(request(is_large=True), None)
    assert len(lane_of) == min(at_once_max, LARGE_AT_ONCE_MAX)


def test_a_request_whose_client_goes_before_its_first_step_does_nothing(server: BrokerServer, ask: Ask) -> None:
    ask(topics(1))
    dispatcher = server.node.dispatcher
    no_connection, no_context = cast("Any", None), cast("Any", None)
    route, slot = dispatcher.routes[3 << 16 | 9], Slot(None, 0)
    request = LongRequest(dispatcher.long_requests, server.node.broker, no_connection, route, no_context, 1, slot)
    request.body = topics(2)[0]
    steps = request.begin()
    request.abandon()
    assert list(steps) == []


def test_a_client_that_goes_while_its_request_is_decoded_has_nothing_executed(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, ask: Ask
) -> None:
    """After the disconnect, another connection may already use the buffer of the request's frame."""
    ask(topics(1))
    dispatcher = server.node.dispatcher
    route = dispatcher.routes[3 << 16 | 9]
    handled = []
    handle = route.handle
    route.handle = lambda *arguments: handled.append(arguments) or handle(*arguments)  # type: ignore[func-returns-value]
    request, version = topics(50_000)
    frame = write_request(3, version, 1, "gone", encoder(type(request), version)(request))

    async def go() -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
        writer.write(frame)
        await writer.drain()
        while dispatcher.long_requests.turns.is_idle:  # the decoding has begun, and is not done
            await asyncio.sleep(0)
        for connection in list(server.node.listeners.connections):
            connection.channel.close()
        while not dispatcher.long_requests.turns.is_idle:
            await asyncio.sleep(0)
        writer.transport.abort()

    loop.run_until_complete(asyncio.wait_for(go(), 60))
    assert not handled
    (answer,) = ask((request, version))
    assert len(answer.topics) == 50_000 and handled


def test_requests_that_wait_for_others_hold_up_no_long_one(
    loop: asyncio.AbstractEventLoop, server: BrokerServer, ask: Ask
) -> None:
    """As many long requests as may run at a time wait for a coordinator that never answers. The long request of another client runs
    nevertheless."""
    ask(describe("0"))
    dispatcher = server.node.dispatcher
    route = dispatcher.routes[32 << 16 | 4]
    handle = route.handle
    waiting: list[Pending] = []

    def wait(*arguments: Any) -> Any:
        waiting.append(Pending())
        return waiting[-1]

    route.handle = wait
    request, version = describe(*(f"group-{number}" for number in range(600)))
    frame = write_request(32, version, 1, "waits", encoder(type(request), version)(request))

    async def wait_all() -> list[asyncio.StreamWriter]:
        writers = []
        for number in range(SMALL_AT_ONCE_MAX):
            _reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
            writers.append(writer)
            writer.write(frame)
            while len(waiting) < (number + 1) * PIECES_OUTSTANDING_MAX:
                await asyncio.sleep(0)
        return writers

    writers = loop.run_until_complete(asyncio.wait_for(wait_all(), 60))
    route.handle = handle
    (answer,) = ask((request, version))
    assert len(answer.results) == 600
    for writer in writers:
        writer.close()


def test_a_long_request_that_ends_too_late_closes_the_connection(loop: asyncio.AbstractEventLoop, server: BrokerServer) -> None:
    request, version = describe(*(f"group-{number}" for number in range(3000)))
    frame = write_request(32, version, 1, "stray", encoder(type(request), version)(request) + b"\0")

    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.node.endpoints[0].port)
        writer.write(frame)
        data = await reader.read()
        writer.close()
        return data

    assert loop.run_until_complete(asyncio.wait_for(talk(), 60)) == b""
