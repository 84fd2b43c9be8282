"""Interrupted calls, threads and forked children: nothing gets an answer that belongs to another call."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.addresses import Address
from ottla.client.blocking.client import Client
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.core.conversation import Ask, AskAll, AskRolling, Conversation, Open
from ottla.client.errors import ConnectError, RequestTimeoutError, UsageError
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.fake_broker import FakeBroker
from tests.client.fake_group import GroupBroker

HEARTBEAT = 12


def _code(body: Any, _version: int) -> HeartbeatResponse:
    """Answers with the number in the group's name; slowly for groups from 100 on."""
    if int(body.group_id) >= 100:
        time.sleep(0.3)
    return HeartbeatResponse(error_code=int(body.group_id))


def _ask(cluster: Cluster, number: int) -> int:
    return int(cluster.ask_any(HeartbeatRequest(group_id=str(number))).error_code)


class Interruption(Exception):
    """What a signal handler raises, such as that of a test's time limit."""


@pytest.mark.parametrize("kind", [Interruption, KeyboardInterrupt])
def test_the_answer_to_an_interrupted_call_is_not_taken_by_the_next(kind: type[BaseException]) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise kind

    with FakeBroker({HEARTBEAT: _code}) as broker, Cluster(broker.address) as cluster:
        assert _ask(cluster, 1) == 1
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(kind):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                _ask(cluster, 100)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        for number in range(5):
            assert _ask(cluster, number) == number


def test_a_call_within_an_interrupted_call_gets_its_own_answer() -> None:
    found: list[int] = []

    def ask(_number: int, _frame: object) -> None:
        found.append(_ask(cluster, 7))

    with FakeBroker({HEARTBEAT: _code}) as broker, Cluster(broker.address) as cluster:
        assert _ask(cluster, 1) == 1
        before = signal.signal(signal.SIGALRM, ask)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(ConnectError):
                _ask(cluster, 100)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert found == [7] and _ask(cluster, 2) == 2


def test_threads_share_a_client_and_each_gets_its_own_answers() -> None:
    wrong: list[Any] = []

    def work(first: int) -> None:
        for number in range(first, first + 12):
            try:
                answer: Any = _ask(cluster, number)
            except BaseException as error:
                wrong.append(error)
                raise
            if answer != number:
                wrong.append(answer)

    with FakeBroker({HEARTBEAT: _code}) as broker, Cluster(broker.address) as cluster:
        threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 96, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert wrong == []


def test_a_consumer_in_a_call_refuses_a_second_thread() -> None:
    with GroupBroker(1) as broker, Client(Cluster(broker.address)) as client, client.consumer() as consumer:
        thread = threading.Thread(target=consumer.poll, args=(1.0,))
        thread.start()
        refusals: list[UsageError] = []
        while thread.is_alive() and not refusals:
            try:
                consumer.poll(0.0)
            except UsageError as error:
                refusals.append(error)
        thread.join(10)
        assert "in a call of another thread" in str(refusals[0])
        assert consumer.poll(0.0) == []  # one thread after another


def test_a_forked_child_is_refused_and_harms_nothing_of_its_parent() -> None:
    with GroupBroker(1) as broker, Client(Cluster(broker.address)) as client, client.consumer("g", topics=["t"]) as consumer:
        consumer.poll(0.1)
        calls = [client.topics, lambda: consumer.poll(0.0), consumer.commit]
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            refused = 0
            for call in calls:
                try:
                    call()
                except UsageError as error:
                    refused += "forked child" in str(error)
            consumer.close()
            client.close()
            os.write(write_end, bytes([refused]))
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read_end, 1) == bytes([len(calls)])
        os.close(read_end)
        os.close(write_end)
        assert client.topics() == ["t"] and consumer.poll(0.0) == []
        assert not broker.asked(13)  # LeaveGroup


def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    with FakeBroker({HEARTBEAT: _code}) as broker, Cluster(broker.address) as cluster:
        for number in range(3):
            assert _ask(cluster, number) == number
            while broker._sockets:
                broker._sockets.pop().shutdown(socket.SHUT_RDWR)
            link = cluster.core._first
            assert isinstance(link, BlockingConnection)
            end = time.monotonic() + 10
            while link.is_open and time.monotonic() < end:
                time.sleep(0.001)
            assert not link.is_open


STEP_S, LIMIT_S = 1.5, 2.0
WHAT_IS_LEFT = r"within 0(\.\d+)? s"
"""A step that begins after a slow one waits for the rest of the call's time: its error names less than a second and not the whole limit."""


def test_a_call_takes_no_longer_than_its_time_although_each_step_is_slow() -> None:
    def slow(body: Any, version: int) -> Any:
        time.sleep(STEP_S)
        return usual(body, version)

    with FakeBroker({HEARTBEAT: lambda _body, _version: None}) as broker:
        usual = broker.script[18]
        broker.script[18] = slow
        with Cluster(broker.address, timeout_s=LIMIT_S) as cluster, pytest.raises(RequestTimeoutError, match=WHAT_IS_LEFT):
            cluster.run(cluster.core.retrying(lambda: cluster.core.ask_any(HeartbeatRequest(group_id="1"))))


def test_a_call_of_several_requests_takes_no_longer_than_its_time() -> None:
    def slow(body: Any, version: int) -> Any:
        time.sleep(STEP_S)
        return found(body, version)

    with GroupBroker(1) as broker:
        found = broker.script[10]
        broker.script[10] = slow  # FindCoordinator
        broker.script[15] = lambda _body, _version: None  # DescribeGroups
        broker.versions[15] = (0, 5)
        with Client(Cluster(broker.address, timeout_s=LIMIT_S)) as client, pytest.raises(RequestTimeoutError, match=WHAT_IS_LEFT):
            client.describe_group("g")


def test_a_read_of_a_silent_leader_takes_no_longer_than_its_time() -> None:
    with FakeBroker({1: lambda _body, _version: None}) as broker:
        broker.topics["t"] = 1
        with Client(Cluster(broker.address, timeout_s=50)) as client, pytest.raises(RequestTimeoutError, match=WHAT_IS_LEFT):
            list(client.read(TopicPartition("t", 0), 0, 10, timeout_s=0.3))


@pytest.mark.parametrize("is_rolling", [False, True])
def test_several_silent_brokers_take_no_longer_than_one(is_rolling: bool) -> None:
    noted: list[Any] = []

    def ask_both(*brokers: FakeBroker) -> Conversation[None]:
        asks = []
        for broker in brokers:
            link = yield Open(Address("127.0.0.1", broker.port), is_own=True)
            asks.append(Ask(link, HeartbeatRequest(group_id="1")))
        if is_rolling:
            yield AskRolling(iter(asks), noted.append)
        else:
            noted.extend((yield AskAll(tuple(asks))))

    silent = {HEARTBEAT: lambda _body, _version: None}
    with FakeBroker(silent) as one, FakeBroker(silent) as two, Cluster(one.address, timeout_s=0.3) as cluster:
        cluster.run(ask_both(one, two))
    assert [type(error) for error in noted] == [RequestTimeoutError] * 2
    assert "within 0 s" in str(noted[1])  # the first one has used all the time
