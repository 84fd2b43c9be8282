"""`python -m tests.golden.record [CLIENT...]`: captures the frames between real clients and a broker again, and replaces the files.

A proxy in front of the broker notes each frame before it passes it on. So the frames can be sent again in the order of the notes: an answer
is noted after its request, and before anything that the client sends because of it.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from ottla.wire.framing import read_request_header
from tests.clients.broker_process import eventually
from tests.clients.java_program import Java
from tests.golden.captures import ADVERTISED_PORT, CLIENTS, Frame, ready_broker, write

TOPIC, GROUP = "golden", "readers"
SECONDS = 60


class Recorder:
    """Listens on the advertised port and connects each client to the broker."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._frames: list[Frame] = []
        self._asked: dict[tuple[int, int], Frame] = {}
        """Requests without an answer, by connection and correlation id."""
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", ADVERTISED_PORT))
        threading.Thread(target=self._accept, daemon=True).start()

    def frames(self) -> list[Frame]:
        """The requests that were answered, and their answers."""
        with self._lock:
            unanswered = {frame.number for frame in self._asked.values()}
            return [frame for frame in self._frames if frame.number not in unanswered]

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            for connection in itertools.count(1):
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
                self._pass_on(client, broker, lambda data, connection=connection: self._note_request(connection, data))
                self._pass_on(broker, client, lambda data, connection=connection: self._note_response(connection, data))

    def _pass_on(self, source: socket.socket, target: socket.socket, note: Callable[[bytes], None]) -> None:
        def run() -> None:
            with suppress(OSError, EOFError):
                while True:
                    data = frame_from(source)
                    note(data)
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        threading.Thread(target=run, daemon=True).start()

    def _note_request(self, connection: int, data: bytes) -> None:
        key, of_version, correlation_id, _, _ = read_request_header(data, 4)
        with self._lock:
            frame = Frame(len(self._frames), connection, key, of_version, True, data)
            self._frames.append(frame)
            self._asked[connection, correlation_id] = frame

    def _note_response(self, connection: int, data: bytes) -> None:
        with self._lock:
            asked = self._asked.pop((connection, int.from_bytes(data[4:8], "big")))
            self._frames.append(Frame(len(self._frames), connection, asked.key, asked.version, False, data))


def frame_from(source: socket.socket) -> bytes:
    """The next frame with its size; raises EOFError at the end of the stream."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        wanted = 4 if len(data) < 4 else 4 + int.from_bytes(data[:4], "big")
        piece = source.recv(wanted - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


# Conversations: each client creates a topic, writes with and without a transaction, reads in a group, asks about things, and cleans up.


def librdkafka(address: str) -> str:
    from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition, libversion
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

    settings = {"bootstrap.servers": address, "client.id": "golden"}
    first = TopicPartition(TOPIC, 0)
    with AdminClient(settings) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(SECONDS)
        producer = Producer({**settings, "enable.idempotence": True, "compression.type": "lz4"})
        for number in range(3):
            producer.produce(TOPIC, b"value %d" % number, b"key", partition=0, timestamp=1_700_000_000_000 + number, headers={"h": b"1"})
        producer.flush(SECONDS)
        producer = Producer({**settings, "transactional.id": "copier"})
        producer.init_transactions(SECONDS)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce(TOPIC, b"in a transaction", partition=0, timestamp=1_700_000_000_003)
            producer.flush(SECONDS)
            end(SECONDS)
        reading = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        consumer = Consumer({**settings, **reading})
        consumer.subscribe([TOPIC])
        read = [eventually(lambda: consumer.poll(1)) for _ in range(4)]
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, read[-1].offset() + 1)], asynchronous=False)
        consumer.close()
        admin.list_offsets({first: OffsetSpec.latest()})[first].result(SECONDS)
        admin.list_consumer_groups().result()
        admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS)
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(SECONDS)
        retention = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[retention])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        admin.create_partitions([NewPartitions(TOPIC, 2)])[TOPIC].result(SECONDS)
        admin.delete_records([TopicPartition(TOPIC, 0, 2)])[first].result(SECONDS)
        admin.delete_consumer_groups([GROUP])[GROUP].result(SECONDS)
        admin.delete_topics([TOPIC])[TOPIC].result(SECONDS)
    return f"confluent-kafka {version('confluent-kafka')} with librdkafka {libversion()[0]}"


def kafka_python(address: str) -> str:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import NewTopic

    settings = {"bootstrap_servers": address, "client_id": "golden"}
    with closing(KafkaAdminClient(**settings)) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with closing(KafkaProducer(**settings, compression_type="gzip", enable_idempotence=True)) as producer:
            for number in range(3):
                producer.send(TOPIC, b"value %d" % number, b"key", partition=0, timestamp_ms=1_700_000_000_000 + number).get(SECONDS)
        with closing(KafkaProducer(**settings, transactional_id="copier")) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, b"in a transaction", partition=0, timestamp_ms=1_700_000_000_003).get(SECONDS)
            producer.commit_transaction()
        reading = {"group_id": GROUP, "auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 100}
        with closing(KafkaConsumer(TOPIC, **settings, **reading)) as consumer:
            read = [next(consumer) for _ in range(4)]
            assert [record.value for record in read][-1] == b"in a transaction"
            consumer.commit()
        admin.list_groups()
        admin.describe_groups([GROUP])
        admin.list_group_offsets(GROUP)
        admin.delete_groups([GROUP])
        admin.delete_topics([TOPIC])
    return f"kafka-python {version('kafka-python')}"


def aiokafka(address: str) -> str:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    settings = {"bootstrap_servers": address, "client_id": "golden"}

    async def talk() -> None:
        admin = AIOKafkaAdminClient(**settings)
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, 1, 1)])
        async with AIOKafkaProducer(**settings, compression_type="zstd", enable_idempotence=True) as producer:
            for number in range(3):
                await producer.send_and_wait(TOPIC, b"value %d" % number, b"key", partition=0, timestamp_ms=1_700_000_000_000 + number)
        async with AIOKafkaProducer(**settings, transactional_id="copier") as producer, producer.transaction():
            await producer.send_and_wait(TOPIC, b"in a transaction", partition=0, timestamp_ms=1_700_000_000_003)
        reading = {"group_id": GROUP, "auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 100}
        async with AIOKafkaConsumer(TOPIC, **settings, **reading) as consumer:
            read = [await consumer.getone() for _ in range(4)]
            assert read[-1].value == b"in a transaction"
            await consumer.commit()
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups([GROUP])
        await admin.list_consumer_group_offsets(GROUP)
        await admin.delete_topics([TOPIC])
        await admin.close()

    asyncio.run(asyncio.wait_for(talk(), 5 * SECONDS))
    return f"aiokafka {version('aiokafka')}"


def java(address: str) -> str:
    program = Java(need_program)

    def run(tool: str, line: str) -> None:
        done = program.run(f"org.apache.kafka.tools.{tool}", *line.split())
        assert done.returncode == 0, done.stdout + done.stderr

    server = f"--bootstrap-server {address}"
    run("TopicCommand", f"{server} --create --topic {TOPIC} --partitions 1")
    load = f"--topic {TOPIC} --num-records 3 --record-size 20 --throughput -1"
    run("ProducerPerformance", f"{load} --producer-props bootstrap.servers={address} client.id=golden compression.type=snappy")
    run("ProducerPerformance", f"{load} --producer-props bootstrap.servers={address} client.id=golden --transactional-id copier")
    reading = f"{server} --topic {TOPIC} --group {GROUP} --from-beginning --max-messages 6"
    for protocol in ("classic", "consumer"):
        properties = f"--consumer-property group.protocol={protocol} --consumer-property client.id=golden"
        run("consumer.ConsoleConsumer", f"{reading.replace(GROUP, f'{GROUP}-{protocol}')} {properties}")
        run("consumer.group.ConsumerGroupCommand", f"{server} --describe --group {GROUP}-{protocol}")
    run("GetOffsetShell", f"{server} --topic {TOPIC}")
    run("TopicCommand", f"{server} --describe --topic {TOPIC}")
    run("TopicCommand", f"{server} --delete --topic {TOPIC}")
    library = next(path.stem for path in program.directory.glob("lib/kafka-clients-*.jar"))
    return f"the Java client of {library}"


def need_program(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed"
    return found


TALKS: dict[str, Callable[[str], str]] = dict(zip(CLIENTS, (librdkafka, kafka_python, aiokafka, java), strict=True))


@contextmanager
def recorded_broker() -> Iterator[Recorder]:
    with tempfile.TemporaryDirectory() as directory:
        broker = ready_broker(Path(directory))
        recorder = Recorder(broker.port)
        try:
            yield recorder
        finally:
            recorder.close()
            broker.stop()


def main(clients: list[str]) -> None:
    for client in clients or CLIENTS:
        with recorded_broker() as recorder:
            title = TALKS[client](f"127.0.0.1:{ADVERTISED_PORT}")
            frames = recorder.frames()
        write(client, title, frames)
        print(f"{client}: {len(frames)} frames of {title}")


if __name__ == "__main__":
    main(sys.argv[1:])
