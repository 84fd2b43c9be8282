"""Share groups with Kafka's Java client: one JVM runs the steps of `ShareGroups` and `ShareAdministration`, and other JVMs are killed while
they consume. A record is printed as `value:delivery count`. Apache Kafka 4.3 with the same settings prints the same in every step; it does
not know the settings of dead letters (KIP-1191, Kafka 4.4).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.blocking.producer import Producer
from ottla.client.core.admin import GROUP_RESOURCE, alter_configs, create_topic
from ottla.client.core.share_admin import share_offsets
from ottla.client.errors import ClientError
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.java_program import Java

SETTINGS = (
    "group.share.assignment.interval.ms=0",
    "group.share.heartbeat.interval.ms=100",
    "group.share.min.heartbeat.interval.ms=100",
    "group.share.min.record.lock.duration.ms=1000",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "share.coordinator.state.topic.num.partitions=3",
    "ottla.log.format=text",
)
EMPTY_AGAIN = "GroupNotEmptyException, GroupNotEmptyException, GroupNotEmptyException, Empty 0"
WANTED = {
    "implicit": "[[0:1, 1:1, 2:1], [], [0:1], [ok], []]",
    "explicit": "[[ok], [1:2, 3:2], not before all are acknowledged, [ok], []]",
    "renew": "[5000, [ok], 0:1, [ok], 0:1, [ok], 0:1, [ok], []]",
    "delivery count": "[0:1, 0:2, 0:3, []]",
    "two members": "200 both=true",
    "lock time-out": "[0 again, 1 again, [InvalidRecordStateException], [ok]]",
    "closing": "[0:2, 2:2]",
    "record limit": "[[0:1, 1:1], [2:1, 3:1]]",
    "isolation read_uncommitted": "[[committed:1, aborted:1, also committed:1, open:1], [], [0:1]]",
    "isolation read_committed": "[[committed:1, also committed:1], [], [open:1, 0:1]]",
    "reset latest": "[[]]",
    "reset by_duration": "[half an hour ago:1, now:1]",
    "callback": "[[0, 1] null]",
    "dead letters": "[[ok], [ok], [k=0, the topic, 0, 0, the group, 1], [k=2, the topic, 0, 2, the group, 2]]",
    "described": f"[Stable it /127.0.0.1, Share share Stable, {EMPTY_AGAIN}]",
    "offsets": "[{0=4 lag 6}, [4:1, 5:1, 6:1, 7:1, 8:1, 9:1], [0, 1], [8:1, 9:1], {}, 10]",
    "deleted": "[[0:1, 1:1], false, [0:1, 1:1]]",
    "unknown": "[GroupIdNotFoundException, done, GroupIdNotFoundException, GroupIdNotFoundException, UnknownTopicOrPartitionException]",
}


@pytest.fixture(scope="module")
def java(need_program: Callable[[str], str]) -> Java:
    return Java(need_program)


@pytest.fixture(scope="module")
def sharing_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def seen(sharing_broker: BrokerProcess, java: Java) -> dict[str, str]:
    """The output of the steps."""
    done = java.run("steps.Steps", sharing_broker.address, "share")
    print(done.stderr)  # pytest shows it beside a step that failed
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines, done.stderr[-4000:]
    return lines


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
@pytest.mark.parametrize("step", WANTED)
def test_a_step_sees_what_it_must(seen: dict[str, str], step: str) -> None:
    assert seen[step] == WANTED[step]


def test_every_step_is_judged(seen: dict[str, str]) -> None:
    assert sorted(seen) == sorted(WANTED)


# Members and brokers that are killed


RECORDS_IN_FLIGHT = 10
PATIENCE_SECONDS = 150


class Worker:
    """A share consumer in its own JVM, and its output so far."""

    def __init__(self, java: Java, broker: BrokerProcess, group: str, topic: str, task: str) -> None:
        command = java.command("steps.ShareWorker", broker.address, group, topic, task)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.said: list[tuple[str, ...]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(tuple(line.split()))

    def got(self) -> list[tuple[int, int]]:
        """Returns offsets and delivery counts, in the order of their output."""
        return [(int(line[1]), int(line[2])) for line in list(self.said) if line[0] == "got"]

    def done(self) -> set[int]:
        return {int(line[1]) for line in list(self.said) if line[0] == "done"}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def worker(java: Java) -> Iterator[Callable[..., Worker]]:
    """Starts workers, and ends them with the test."""
    started: list[Worker] = []

    def start(*arguments: object) -> Worker:
        started.append(Worker(java, *arguments))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, SETTINGS).start()
    yield process
    process.stop()


def prepare(broker: BrokerProcess, group: str, topic: str) -> None:
    with Cluster(broker.address) as cluster:
        create_topic(cluster, topic, partitions=1)
        changes = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
        alter_configs(cluster, GROUP_RESOURCE, group, changes=changes)


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    with Cluster(broker.address) as cluster, Producer(cluster) as producer:
        for number in range(count):
            producer.produce(topic, b"%d" % number)
        producer.flush()


def still_to_do(broker: BrokerProcess, group: str, topic: str) -> int | None:
    """Returns how many records are not completed; None while the broker does not answer."""
    try:
        with Cluster(broker.address) as cluster:
            return share_offsets(cluster, group)[TopicPartition(topic, 0)].lag
    except (ApiError, ClientError):
        return None


def test_killed_members_and_killed_brokers_lose_nothing_and_repeat_nothing_that_was_done(
    crashing: BrokerProcess, worker: Callable[..., Worker]
) -> None:
    """A member is killed while it has acquired records. Then the broker is killed twice while another member processes two hundred records.
    No record is lost, and no accepted record is delivered again. Locks last for a minute, so records that are delivered again earlier were
    released because a connection was closed.
    """
    prepare(crashing, "g", "t")
    produce(crashing, "t", 5)
    holder = worker(crashing, "g", "t", "hold")
    eventually(lambda: len(holder.got()) == 5, seconds=PATIENCE_SECONDS)
    assert holder.got() == [(offset, 1) for offset in range(5)]
    holder.kill()
    working = worker(crashing, "g", "t", "work")
    eventually(lambda: len(working.done()) == 5, seconds=PATIENCE_SECONDS)
    assert working.got() == [(offset, 2) for offset in range(5)]

    for goal in (50, 250):
        produce(crashing, "t", 200)
        eventually(lambda: len(working.done()) > goal, seconds=PATIENCE_SECONDS)  # noqa: B023 - called before the next round
        crashing.crash()
        eventually(lambda: still_to_do(crashing, "g", "t") == 0, seconds=PATIENCE_SECONDS)
    assert {offset for offset, _ in working.got()} == set(range(405))
    # Acknowledgements that were sent when the broker died may have been applied; confirmed ones were applied.
    assert len(working.done()) >= 405 - 2 * RECORDS_IN_FLIGHT
    finished: set[int] = set()
    for line in working.said:
        if line[0] == "done":
            finished.add(int(line[1]))
        elif line[0] == "got":
            assert int(line[1]) not in finished, f"offset {line[1]} was delivered again after it had been accepted"
