"""The asyncio shell, against a scripted broker on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from ottla.base.types import TopicPartition
from ottla.client import aio
from ottla.client.addresses import Address
from ottla.client.core.admin import describe_cluster
from ottla.client.core.conversation import Ask, AskAll, Conversation
from ottla.client.errors import AuthenticationError, ConnectError, KafkaError, MalformedResponseError, RequestTimeoutError
from ottla.client.security import Security
from ottla.wire.messages.describe_cluster import DescribeClusterResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.client.core.drive import rolling
from tests.client.fake_broker import FakeBroker, HangUp

HEARTBEAT, HANDSHAKE, AUTHENTICATE, DESCRIBE_CLUSTER = 12, 17, 36, 60
PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s3cret"}

T = TypeVar("T")


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60), debug=False)


def _code(body: Any, _version: int) -> HeartbeatResponse:
    """Answers with the number in the group's name."""
    return HeartbeatResponse(error_code=int(body.group_id))


def test_conversations_run_and_tasks_share_a_connection() -> None:
    async def work(broker: FakeBroker) -> None:
        async with aio.AsyncCluster(broker.address) as cluster:
            leaders = await asyncio.gather(*(cluster.run(cluster.core.leader(TopicPartition("t", number))) for number in range(3)))
            assert leaders == [1, 1, 1]
            answers = await asyncio.gather(*(cluster.run(cluster.core.ask_broker(1, HeartbeatRequest(group_id=str(n)))) for n in range(20)))
            assert [answer.error_code for answer in answers] == list(range(20))

    with FakeBroker({HEARTBEAT: _code}) as broker:
        broker.topics["t"] = 3
        _run(work(broker))
        assert len(broker.asked(18)) <= 2


def test_several_requests_leave_at_once() -> None:
    def conversation(cluster: aio.AsyncCluster) -> Conversation[list[Any]]:
        link = yield from cluster.core.any_link()
        return (yield AskAll(tuple(Ask(link, HeartbeatRequest(group_id=name)) for name in ("1", "x" * 70_000, "2"))))

    async def work(broker: FakeBroker) -> list[Any]:
        async with aio.AsyncCluster(broker.address) as cluster:
            return await cluster.run(conversation(cluster))

    with FakeBroker({HEARTBEAT: _code}) as broker:
        first, refused, second = _run(work(broker))
    assert (first.error_code, second.error_code) == (1, 2)
    assert isinstance(refused, KafkaError)


def test_requests_leave_as_answers_come_in() -> None:
    noted: list[Any] = []

    async def work(broker: FakeBroker) -> None:
        async with aio.AsyncCluster(broker.address) as cluster:
            await cluster.run(rolling(cluster.core, noted))

    with FakeBroker({HEARTBEAT: _code}) as broker:
        _run(work(broker))
    assert [answer.error_code for answer in noted[:-1]] == list(range(6))
    assert isinstance(noted[-1], KafkaError)


def test_the_conversations_of_an_administrator_run_too() -> None:
    async def work(broker: FakeBroker) -> Any:
        async with aio.AsyncCluster(broker.address) as cluster:
            return await cluster.run(describe_cluster(cluster.core))

    with FakeBroker({DESCRIBE_CLUSTER: lambda _body, _version: DescribeClusterResponse(cluster_id="fake")}) as broker:
        assert _run(work(broker)).cluster_id == "fake"


def test_tasks_that_share_a_connection_to_open_wait_for_their_own_time() -> None:
    """The hasty task neither waits longer nor ends the connection of the patient one, whichever began to open it."""

    async def work(address: str, *, is_hasty_first: bool) -> None:
        async with aio.AsyncCluster(address, timeout_s=50) as cluster:
            limits = [0.1, 50.0] if is_hasty_first else [50.0, 0.1]
            tasks = {limit: asyncio.create_task(cluster.run(cluster.core.in_time(cluster.core.any_link(), limit))) for limit in limits}
            with pytest.raises(ConnectError, match=r"no answer within 0\.\d+ s"):
                await tasks[0.1]
            await asyncio.sleep(0)
            assert not tasks[50.0].done()
            tasks[50.0].cancel()

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        for is_hasty_first in (True, False):
            _run(work(f"127.0.0.1:{deaf.getsockname()[1]}", is_hasty_first=is_hasty_first))


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def work() -> None:
        async with aio.AsyncCluster(f"127.0.0.1:{port}") as cluster:
            await cluster.run(cluster.core.refresh([]))

    with pytest.raises(ConnectError, match=f"cannot reach 127.0.0.1:{port}"):
        _run(work())


def test_a_late_answer_closes_the_connection() -> None:
    async def work(broker: FakeBroker) -> None:
        connection = await aio.AsyncConnection.connect(Address("127.0.0.1", broker.port))
        behind = connection.send(HeartbeatRequest(group_id="1"))
        with pytest.raises(RequestTimeoutError, match=r"did not answer within 0\.05 s"):
            await connection.request(HeartbeatRequest(group_id="2"), timeout_s=0.05)
        assert not connection.is_open
        with pytest.raises(RequestTimeoutError):
            await behind
        with pytest.raises(ConnectError, match="is closed"):
            await connection.request(HeartbeatRequest(group_id="3"))

    with FakeBroker({HEARTBEAT: lambda _body, _version: None}) as broker:
        _run(work(broker))


def _hang_up(_body: Any, _version: int) -> Any:
    raise HangUp


@pytest.mark.parametrize(
    ("answer", "error"),
    [(_hang_up, ConnectError), (lambda _body, _version: b"HTTP/1.1 400 Bad Request\r\n\r\n", MalformedResponseError)],
)
def test_a_broken_conversation_is_an_error(answer: Any, error: type[Exception]) -> None:
    async def work(broker: FakeBroker) -> None:
        async with aio.AsyncCluster(broker.address) as cluster:
            await cluster.run(cluster.core.ask_any(HeartbeatRequest(group_id="1")))

    with FakeBroker({HEARTBEAT: answer}) as broker, pytest.raises(error, match=f"127.0.0.1:{broker.port}"):
        _run(work(broker))


@pytest.mark.parametrize(("code", "is_accepted"), [(0, True), (58, False)])
def test_authentication(code: int, is_accepted: bool) -> None:
    script = {
        HANDSHAKE: lambda _body, _version: SaslHandshakeResponse(),
        AUTHENTICATE: lambda _body, _version: SaslAuthenticateResponse(error_code=code),
    }

    async def work(broker: FakeBroker) -> None:
        async with aio.AsyncCluster(broker.address, security=Security(PLAIN)) as cluster:
            await cluster.run(cluster.core.refresh([]))

    with FakeBroker(script) as broker:
        if is_accepted:
            _run(work(broker))
        else:
            with pytest.raises(AuthenticationError, match="name or password is wrong"):
                _run(work(broker))
        assert [bytes(body.auth_bytes) for body in broker.asked(AUTHENTICATE)] == [b"\0alice\0s3cret"]


def test_a_name_that_cannot_be_looked_up_is_one_line() -> None:
    with pytest.raises(ConnectError, match=r"^cannot reach a\.\.b:9092: it is no host name$"):
        _run(aio.AsyncConnection.connect(Address("a..b", 9092)))
