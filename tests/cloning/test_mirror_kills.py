"""kill -9 of the mirror, of its source and of the brokers of its target: every replica of the target has the source's bytes, once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ottla.client
from ottla.base.types import TopicPartition
from ottla.client import ClientError
from ottla.testing.cluster import Cluster
from ottla.testing.process import BrokerProcess
from tests.cloning.conftest import stored
from tests.cloning.test_clone import happens

ROUNDS = 9
TOPIC = "orders"


class MirrorProcess:
    """`ottla mirror` as a process, which may be killed and started again."""

    def __init__(self, source: str, target: str) -> None:
        self._words = [source, target, "--topics", TOPIC, "--replication-factor", "3"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "ottla.cli.main", "mirror", *self._words, "-q"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ensure(self) -> None:
        """Starts the process again if it has ended, as a supervisor does: it cannot begin without its source or its target."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def graduate(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ottla.cli.main", "mirror", *self._words, "--graduate"]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def writing(address: str) -> Iterator[None]:
    """Writes records and transactions meanwhile. Calls that fail while the broker is down are not repeated."""
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            try:
                with ottla.client.connect(address, timeout_s=2) as client, client.producer(transactional_id="t") as producer:
                    while not is_over.is_set():
                        producer.begin()
                        for _ in range(5):
                            producer.produce(TOPIC, b"value %d" % number * 20, partition=number % 2)
                            number += 1
                        producer.flush()
                        (producer.commit if number % 3 else producer.abort)()
                        time.sleep(0.002)
            except ClientError:
                time.sleep(0.2)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def total(address: str) -> int:
    """The number of offsets in all partitions of the topic; 0 if the cluster does not answer or has no topic."""
    try:
        with ottla.client.connect(address, timeout_s=5) as client:
            partitions = {TopicPartition(TOPIC, number): ottla.client.LATEST for number in range(2)}
            return sum(at.offset for at in client.list_offsets(partitions, isolation="read_uncommitted").values())
    except ClientError:
        return 0


def test_kills_of_everything(tmp_path: Path) -> None:
    chance = random.Random(37)
    source = BrokerProcess(tmp_path / "source", tmp_path / "source.log", {})
    host, port = source.start()
    address = f"{host}:{port}"
    try:
        with ottla.client.connect(address) as client:
            client.create_topic(TOPIC, partitions=2)
        with Cluster(3, directory=tmp_path / "target") as target:
            mirror = MirrorProcess(address, target.direct_server)
            try:
                with writing(address):
                    for number in range(ROUNDS):
                        wanted = total(target.direct_server) + chance.randint(1, 300)
                        assert happens(lambda: mirror.ensure() or total(target.direct_server) >= wanted)  # noqa: B023
                        if number % 3 == 0:
                            mirror.kill()
                        elif number % 3 == 1:
                            source.kill()
                            source.start()
                        else:
                            broker = target.brokers[number // 3]
                            broker.kill()
                            wanted = total(address) + chance.randint(0, 300)
                            assert happens(lambda: total(address) >= wanted)  # noqa: B023
                            broker.start()
                mirror.kill()
                _end_transaction(address)
                graduated = mirror.graduate()
                assert graduated.returncode == 0, graduated.stderr
                for partition in range(2):
                    expected = stored(tmp_path / "source", TOPIC, partition)
                    assert len(expected) > 10_000
                    for broker in target.brokers:
                        directory = tmp_path / "target" / f"broker-{broker.broker_id}"
                        assert happens(lambda: len(stored(directory, TOPIC, partition)) == len(expected))  # noqa: B023
                        assert stored(directory, TOPIC, partition) == expected
            finally:
                mirror.kill()
    finally:
        source.kill()


def _end_transaction(address: str) -> None:
    """Ends the transaction that the last producer may have left open."""
    with ottla.client.connect(address) as client:
        client.fence("t")
        assert happens(lambda: client.describe_transaction("t").state in ("Empty", "CompleteAbort", "CompleteCommit"))
