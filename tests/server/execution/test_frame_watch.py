"""The recording of frames: frames of real clients are recorded, secrets never are, the memory is bounded, and the recording ends by
itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Slice
from ottla.base.types import TopicPartition
from ottla.client.blocking import scram_admin
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.consumer import Consumer
from ottla.client.blocking.producer import Producer
from ottla.client.core import admin, token_admin
from ottla.client.core.own_apis import describe_frames
from ottla.client.security import security_of
from ottla.server.execution.frame_watch import (
    FRAME_BYTES_MAX,
    KEPT_BYTES_MAX,
    LOOKS_END_MS,
    SECRET_APIS,
    WAITING_MAX,
    FrameWatch,
    frames_of,
)
from ottla.testing.broker import Broker
from ottla.wire.apis import API_NAMES, APIS, KEYS
from ottla.wire.framing import load, write_request
from ottla.wire.messages.describe_frames import NO_ANSWER_US, DescribeFramesResponse, FramePair
from ottla.wire.schema import Struct
from tests.fakes.clock import ManualClock
from tests.fakes.timers import ManualTimers

SECRET_FIELDS = re.compile("password|hmac|auth|secret|token|salt|private")
NO_SECRET = {("StageRecords", "batch_token"), ("AttachRecords", "batch_token")}
"""Fields that match the pattern but are no secrets: a batch token is valid only for the principal that uses it."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["watched:1", "careless:1"]) as broker:
        yield broker


@pytest.fixture
def watcher(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_server, client_id="watcher", with_extensions=True) as watcher:
        yield watcher


def look(watcher: Cluster, after: int = -1, bytes_max: int = 1 << 22) -> DescribeFramesResponse:
    watcher.refresh([])
    (broker,) = watcher.metadata.brokers
    return describe_frames(watcher, broker, after=after, bytes_max=bytes_max)


def newest(watcher: Cluster) -> int:
    return max((pair.number for pair in look(watcher).pairs), default=-1)


def of(pairs: list[FramePair], client: str, api: str) -> list[FramePair]:
    return [pair for pair in pairs if pair.client_id == client and pair.api_key == KEYS[api]]


def test_requests_and_answers_of_other_clients_are_recorded(broker: Broker, watcher: Cluster) -> None:
    before = newest(watcher)
    place = TopicPartition("watched", 0)
    with Cluster(broker.bootstrap_server, client_id="writer") as cluster:
        with Producer(cluster) as producer:
            producer.produce("watched", b"the written value", partition=0)
            producer.flush()
        with Consumer(cluster) as consumer:
            consumer.assign({place: 0})
            assert [record.value for fetched in consumer.poll(10) for record in fetched.records()] == [b"the written value"]
    answer = look(watcher, before)
    (produced,), fetched = of(answer.pairs, "writer", "Produce"), of(answer.pairs, "writer", "Fetch")[0]
    assert b"the written value" in (produced.request or b"") and produced.response and produced.duration_us >= 0
    assert (produced.request_bytes, produced.response_bytes) == (len(produced.request or b""), len(produced.response))
    assert produced.request and produced.request[4:8] == produced.response[:4], "the correlation id"
    assert b"the written value" in (fetched.response or b"") and fetched.principal == "User:ANONYMOUS" and fetched.listener == "PLAINTEXT"
    numbers = [pair.number for pair in answer.pairs]
    assert answer.lost == 0 and numbers == list(range(before + 1, before + 1 + len(numbers)))
    assert not of(look(watcher).pairs, "watcher", "DescribeFrames")


def test_a_request_that_wants_no_answer_is_shown_at_once(broker: Broker, watcher: Cluster) -> None:
    before = newest(watcher)
    with Cluster(broker.bootstrap_server, client_id="careless") as cluster, Producer(cluster, acks=0, is_idempotent=False) as producer:
        producer.produce("careless", b"no answer", partition=0)
        producer.flush()
        while not (found := of(look(watcher, before).pairs, "careless", "Produce")):
            pass
    assert [(pair.duration_us, pair.response, pair.response_bytes) for pair in found] == [(NO_ANSWER_US, None, 0)]


def test_an_answer_has_whole_pairs_up_to_its_limit(watcher: Cluster) -> None:
    look(watcher)
    for _ in range(5):
        watcher.refresh([])
    found = look(watcher, bytes_max=0).pairs
    assert len(found) == 1
    assert [pair.number for pair in look(watcher, found[0].number, bytes_max=0).pairs] == [found[0].number + 1]


def test_secrets_are_never_recorded() -> None:
    """A login, a password, a delegation token and a secret setting are sent while all requests are recorded."""
    settings = {"delegation.token.secret.key": "a-key-for-tokens", "authorizer.class.name": "acl", "super.users": "User:admin"}
    with Broker(users={"admin": "admin-secret", "guest": "guest-secret"}, settings=settings, topics=["watched:1"]) as broker:

        def login(user: str, password: str, **options: Any) -> Cluster:
            properties = {
                "security.protocol": broker.protocol, "sasl.mechanism": broker.config()["sasl.mechanism"], "sasl.username": user,
                "sasl.password": password,
            }  # fmt: skip
            return Cluster(broker.bootstrap_server, client_id=user, security=security_of(properties), **options)

        with login("admin", "admin-secret", with_extensions=True) as watcher, login("admin", "admin-secret") as other:
            look(watcher)
            scram_admin.alter_scram(other, "new", passwords={"SCRAM-SHA-256": ("new-secret", 4096)})
            token = token_admin.create_token(other)
            (number,) = watcher.metadata.brokers
            admin.alter_configs(other, admin.BROKER_RESOURCE, str(number), changes={"ssl.key.password": "key-secret"}, validate_only=True)
            with login("new", "new-secret") as third:
                third.refresh([])
            pairs = look(watcher).pairs
            kept = b"".join((pair.request or b"") + (pair.response or b"") for pair in pairs)
            seen = {API_NAMES[pair.api_key] for pair in pairs if pair.is_secret}
            assert {"SaslAuthenticate", "AlterUserScramCredentials", "CreateDelegationToken", "IncrementalAlterConfigs"} <= seen
            assert all(pair.request is None and pair.response is None and pair.request_bytes for pair in pairs if pair.is_secret)
            assert not any(secret in kept for secret in (b"secret", token.hmac)) and b"SCRAM" in kept
        with login("guest", "guest-secret", with_extensions=True) as guest, pytest.raises(ApiError) as refused:
            look(guest)
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def fields_of(cls: type[Struct]) -> Iterator[str]:
    for field in cls.__fields__:
        yield field.name
        inner = (
            field.struct
            if field.kind == "nested"
            else field.element.struct
            if field.kind == "array" and field.element.kind == "nested"
            else None
        )
        if inner is not None:
            yield from fields_of(inner)


def test_every_api_with_a_secret_in_its_messages_is_secret() -> None:
    found = {
        (APIS[key].name, name) for key in APIS for message in load(key) for name in fields_of(message) if SECRET_FIELDS.search(name)
        and "authorized" not in name
    }  # fmt: skip
    assert {name for name, field in found - NO_SECRET if KEYS[name] not in SECRET_APIS} == {"DescribeFrames"}, (
        "its field is_secret says that there was one"
    )
    assert len(found) > 8


# Bounds, with a dispatcher whose time and answers the test makes


class World:
    """A frame watch over a dispatcher that answers only when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.executed = 0
        self.dispatcher: Any = SimpleNamespace(execute=self._execute)
        self.plain = self.dispatcher.execute
        self.note: Any = None
        self.watch = FrameWatch(self.clock, self.timers)
        listeners: Any = SimpleNamespace(watch_answers=self._watch_answers)
        self.watch.attach(self.dispatcher, listeners)

    def _execute(self, connection: Any, frame: memoryview) -> bool:
        self.executed += 1
        connection.answers.slots.append(frame)
        return False

    def _watch_answers(self, note: Any) -> None:
        self.note = note

    def connection(self) -> Any:
        closing: list[Any] = []
        info = SimpleNamespace(
            identity="host:1", listener="L", principal="User:a", call_when_closed=lambda subject, function: closing.append(function),
            closing=closing,
        )  # fmt: skip
        return SimpleNamespace(answers=Answers(), info=info, client_id="c")

    def send(self, connection: Any, correlation_id: int, size: int = 0, key: int = 3) -> None:
        self.dispatcher.execute(connection, memoryview(write_request(key, 0, correlation_id, "c", bytes(size)))[4:])

    def answer(self, connection: Any, *correlation_ids: int, size: int = 4) -> None:
        frames = [(size).to_bytes(4, "big") + number.to_bytes(4, "big") + bytes(size - 4) for number in correlation_ids]
        self.note(connection.answers, [b"".join(frames)])


class Answers:
    """The queue of a connection, which is the key of its waiting requests."""

    def __init__(self) -> None:
        self.slots: list[Any] = []
        self.out_bytes = 0


def test_nothing_is_recorded_until_a_client_looks_and_after_the_last_look() -> None:
    world = World()
    assert world.dispatcher.execute == world.plain and world.note is None
    world.watch.since(-1, 0)
    connection = world.connection()
    world.send(connection, 1)
    world.answer(connection, 1)
    assert [pair.correlation_id for pair in world.watch.since(-1, 1 << 20)[1]] == [1]
    world.timers.advance(LOOKS_END_MS - 1)
    assert world.watch.is_recording and world.watch.since(0, 0) == (0, [])
    world.timers.advance(LOOKS_END_MS)
    assert not world.watch.is_recording and world.dispatcher.execute == world.plain and world.note is None
    assert world.watch.kept_bytes == 0 and world.executed == 1
    assert world.watch.since(-1, 1 << 20) == (0, [])
    world.send(connection, 2)
    world.answer(connection, 2)
    assert [pair.number for pair in world.watch.since(-1, 1 << 20)[1]] == [1], "a number is not used again"


def test_answers_have_the_order_of_the_requests() -> None:
    world, first, second = World(), None, None
    world.watch.since(-1, 0)
    first, second = world.connection(), world.connection()
    for number in (1, 2, 3):
        world.send(first, number)
    world.send(second, 1)
    world.answer(second, 1)
    world.answer(first, 9)  # a request that began before the recording
    world.answer(first, 1, 3)
    world.send(first, 4)
    first.info.closing[0](None)
    found = world.watch.since(-1, 1 << 20)[1]
    assert [(pair.number, pair.correlation_id, pair.response is None) for pair in found] == [
        (0, 1, False), (1, 1, False), (2, 2, True), (3, 3, False), (4, 4, True),
    ]  # fmt: skip


def test_the_memory_is_bounded() -> None:
    world = World()
    world.watch.since(-1, 0)
    busy, silent = world.connection(), world.connection()
    for number in range(2_000):
        world.send(busy, number, size=100_000)
        world.answer(busy, number, size=100_000)
        assert world.watch.kept_bytes <= KEPT_BYTES_MAX
    lost, found = world.watch.since(0, KEPT_BYTES_MAX)
    assert lost == found[0].number - 1 > 1_000 and found[-1].number == 1_999
    assert all(len(pair.request or b"") == len(pair.response or b"") == FRAME_BYTES_MAX for pair in found)
    assert all(pair.request_bytes > 100_000 and pair.response_bytes == 100_000 for pair in found)
    for number in range(2 * WAITING_MAX):
        world.send(silent, number)
    assert [pair.correlation_id for pair in world.watch.since(1_999, 1 << 20)[1]] == list(range(WAITING_MAX))
    many = [world.connection() for _ in range(400)]
    for connection in many:
        world.send(connection, 1, size=100_000)
    assert world.watch.kept_bytes <= KEPT_BYTES_MAX and world.watch.since(-1, 1 << 20) == (0, []), "requests in flight take all memory"
    world.answer(many[0], 1, size=100_000)
    ((pair,), lost) = reversed(world.watch.since(-1, 1 << 20))
    assert pair.response is None and pair.response_bytes == 100_000 and world.executed == 2_000 + 2 * WAITING_MAX + 400


class SliceOfBytes(Slice):
    """A slice of a file with its bytes in memory, or without them (the file is damaged)."""

    def __init__(self, data: bytes, *, is_lost: bool = False) -> None:
        self.data, self.is_lost = data, is_lost

    def __len__(self) -> int:
        return len(self.data)

    def fileno(self) -> int:
        return -1

    def read_piece(self, start: int, length: int) -> bytes:
        if self.is_lost:
            raise OSError("the file is gone")
        return self.data[start : start + length]

    def failed(self) -> None:
        raise AssertionError("only the channel reports it")


def test_answers_are_found_in_parts() -> None:
    whole = [(5).to_bytes(4, "big") + b"12345", (6).to_bytes(4, "big") + b"abcdef"]
    assert list(frames_of(whole)) == list(frames_of([b"".join(whole)])) == [(5, b"12345"), (6, b"abcdef")]
    assert list(frames_of([b"\0\0\0\x09head", SliceOfBytes(b"slice"), *whole])) == [(9, b"headslice"), (5, b"12345"), (6, b"abcdef")]
    assert list(frames_of([b"\0\0\0\x0ahead", SliceOfBytes(b"slice", is_lost=True), b"x", whole[0]])) == [(10, b"head"), (5, b"12345")]
