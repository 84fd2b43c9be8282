"""After kill -9 during the creation and deletion of topics, all acknowledged changes are kept, and every existing topic can be written.
`OTTLA_ADMIN_ROUNDS` is the number of rounds.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.framing import load
from ottla.wire.messages import create_topics, delete_topics, metadata, produce
from tests.clients.broker_process import BrokerProcess
from tests.clients.sample_world import batch
from tests.clients.wire_client import WireClient

ROUNDS = int(os.environ.get("OTTLA_ADMIN_ROUNDS", "10"))
NAMES = [f"topic-{number}" for number in range(8)]
PARTITIONS = 2


def create(client: WireClient, name: str) -> int:
    topic = create_topics.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
    code: int = client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7).topics[0].error_code
    return code


def delete(client: WireClient, name: str) -> int:
    topic = delete_topics.DeleteTopicState(name=name)
    code: int = client.ask(delete_topics.DeleteTopicsRequest(topics=[topic], timeout_ms=5000), 6).responses[0].error_code
    return code


def write(client: WireClient, name: str) -> list[int]:
    """Writes a record to each partition; returns the errors."""
    data = [produce.PartitionProduceData(index=index, records=batch()) for index in range(PARTITIONS)]
    topic = produce.TopicProduceData(name=name, partition_data=data)
    answer: Any = client.ask(produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
    return [one.error_code for one in answer.responses[0].partition_responses]


def topics_of(client: WireClient) -> set[str]:
    answer = client.ask(metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False), 8)
    return {topic.name for topic in answer.topics}


class Changing(threading.Thread):
    """Creates topics, deletes them and writes to them until the broker is killed. `known` says whether a topic exists, None if that is not
    certain.
    """

    def __init__(self, port: int, known: dict[str, bool | None], seed: int) -> None:
        super().__init__(daemon=True)
        self.client = WireClient(port)
        self.known = known
        self.random = random.Random(seed)
        self.problems: list[str] = []

    def run(self) -> None:
        while True:
            name = self.random.choice(NAMES)
            try:
                self.change(name)
            except (OSError, AssertionError):
                self.client.socket.close()
                return

    def change(self, name: str) -> None:
        was_there = self.known[name]
        if was_there and self.random.random() < 0.6:
            codes = write(self.client, name)
        else:
            self.known[name] = None
            codes = [delete(self.client, name) if was_there else create(self.client, name)]
            self.known[name] = not was_there
        if any(codes):
            self.problems.append(f"{name}, there: {was_there}: {codes}")


@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_topics_survive_kills_as_they_were_acknowledged(own_broker: BrokerProcess) -> None:
    own_broker.start()
    known: dict[str, bool | None] = dict.fromkeys(NAMES, False)
    moments = random.Random(1)
    for number in range(ROUNDS):
        changing = Changing(own_broker.port, known, number)
        changing.start()
        changing.join(0.02 + moments.random() * 0.2)
        own_broker.kill()
        changing.join(60)
        assert not changing.problems
        own_broker.start()
        with WireClient(own_broker.port) as client:
            there = topics_of(client)
            for name in NAMES:
                assert known[name] in (None, name in there), f"round {number}: {name}"
                known[name] = name in there
                if name in there:
                    assert write(client, name) == [ErrorCode.NONE] * PARTITIONS
            assert client.ask(load(18)[0](), 0).error_code == 0
    assert "ERROR" not in own_broker.log_text()
