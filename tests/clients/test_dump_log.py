"""Kafka's DumpLogSegments reads Ottla's data directories without an error, and prints the records that were written."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.conftest import SETTINGS
from tests.clients.java_program import Java

SECONDS = 120
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS_PER_CODEC = 250
TOOL = "org.apache.kafka.tools.DumpLogSegments"
PAYLOAD = re.compile(r"^\| offset: (\d+) .* payload: (\S+)$", re.MULTILINE)
KEYED = re.compile(r"^\| offset: (\d+) .* key: (\S+) payload: (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def values() -> list[bytes]:
    """Returns texts of 2 KB that do not compress well, so that the log has several segments and indexes."""
    source = random.Random(1)
    return [f"{number}-{source.randbytes(1000).hex()}".encode() for number in range(RECORDS_PER_CODEC * len(CODECS))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, values: list[bytes]) -> Path:
    """The data directory of a stopped broker that has written files of all kinds."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), [*SETTINGS, "log.cleaner.backoff.ms=50"]).start()
    try:
        write_everything(process, values)
        process.stop()
    finally:
        process.kill()
    return process.data


def write_everything(process: BrokerProcess, values: list[bytes]) -> None:
    topics = {
        "plain": {"segment.bytes": "1048576", "index.interval.bytes": "2000"},
        "transactions": {},
        "compacted": {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"},
    }
    with AdminClient({"bootstrap.servers": process.address}) as admin:
        for future in admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in topics.items()]).values():
            future.result(SECONDS)
    for at, codec in enumerate(CODECS):
        part = values[at * RECORDS_PER_CODEC : (at + 1) * RECORDS_PER_CODEC]
        settings = {"compression.type": codec, "linger.ms": 20, "batch.size": 20_000, "enable.idempotence": True}
        send(process, "plain", part, **settings)
    write_transactions(process)
    commit_an_offset(process)
    compact(process)


def send(process: BrokerProcess, topic: str, values: Sequence[bytes], **settings: object) -> None:
    client = Producer({"bootstrap.servers": process.address, **settings})
    for value in values:
        client.produce(topic, value, key=value[:1], partition=0)
    assert client.flush(SECONDS) == 0


def write_transactions(process: BrokerProcess) -> None:
    client = Producer({"bootstrap.servers": process.address, "transactional.id": "writer"})
    client.init_transactions(SECONDS)
    # The last batch is large, because a clean stop writes no producer snapshot for a few new bytes.
    for value, is_committed in ((b"kept", True), (b"dropped", False), (b"kept-too" * 700, True)):
        client.begin_transaction()
        client.produce("transactions", value, partition=0)
        client.flush(SECONDS)
        if is_committed:
            client.commit_transaction(SECONDS)
        else:
            client.abort_transaction(SECONDS)


def commit_an_offset(process: BrokerProcess) -> None:
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    client = Consumer({"bootstrap.servers": process.address, **settings})
    client.subscribe(["transactions"])
    eventually(lambda: client.poll(0.1) is not None)
    client.commit(offsets=[TopicPartition("transactions", 0, 3)], asynchronous=False)
    client.close()


def compact(process: BrokerProcess) -> None:
    """Writes the same keys until the log no longer begins with the batch of offset 0."""
    log = process.data / "compacted-0" / f"{0:020}.log"

    def is_compacted() -> bool:
        send(process, "compacted", [b"%d-%s" % (key, os.urandom(5).hex().encode()) for key in range(10)])
        try:
            first = log.read_bytes()[:8]
        except FileNotFoundError:  # the moment in which the compacted segment replaces the old one
            return False
        return len(first) == 8 and int.from_bytes(first, "big") > 0

    eventually(is_compacted, 30, 0.15)


@pytest.fixture
def dump(need_program: Callable[[str], str]) -> Callable[..., str]:
    """`dump(files, "--option")` returns the output of the tool; errors and warnings fail the test."""
    java = Java(need_program)

    def run(files: Sequence[Path], *options: str) -> str:
        assert files
        done = java.run(TOOL, *options, "--files", ",".join(map(str, files)))
        text = done.stdout + done.stderr
        assert done.returncode == 0, text[-4000:]
        complaint = re.search(r"(?i)mismatch|exception|error|corrupt|could not|out of order|not found|isvalid: false", text)
        assert complaint is None, text[max(0, complaint.start() - 500) :][:2000]
        return text

    return run


def files(data: Path, pattern: str) -> list[Path]:
    return sorted(data.glob(pattern))


@pytest.mark.timeout(900)  # the first run fetches Kafka's jars
def test_records_are_what_was_written(data: Path, dump: Callable[..., str], values: list[bytes]) -> None:
    logs = files(data, "plain-0/*.log")
    assert len(logs) > 1
    text = dump(logs, "--deep-iteration", "--print-data-log")
    found = sorted((int(offset), payload.encode()) for offset, payload in PAYLOAD.findall(text))
    assert found == list(enumerate(values))
    assert {codec for codec in CODECS if f"compresscodec: {codec}" in text} == set(CODECS)


def test_batches_are_sound_in_every_log(data: Path, dump: Callable[..., str]) -> None:
    text = dump([path for path in files(data, "*/*.log") if path.stat().st_size])
    assert text.count("isvalid: true") == text.count("baseOffset:") > 20


def test_indexes_are_sound(data: Path, dump: Callable[..., str]) -> None:
    indexes = files(data, "*/*index")
    assert len(files(data, "plain-0/*.index")) > 1
    assert "passed sanity check" in dump(indexes, "--index-sanity-check")
    dump(indexes, "--verify-index-only")
    text = dump(files(data, "plain-0/*index"))
    offsets = [int(offset) for offset in re.findall(r"^offset: (\d+) position: \d+$", text, re.MULTILINE)]
    assert len(offsets) > 20 and len(set(offsets)) == len(offsets)
    assert re.search(r"^timestamp: \d{13} offset: \d+$", text, re.MULTILINE)


def test_transactions_are_what_was_written(data: Path, dump: Callable[..., str]) -> None:
    text = dump([*files(data, "transactions-0/*.log"), *files(data, "transactions-0/*.txnindex")], "--print-data-log")
    assert [payload for _, payload in PAYLOAD.findall(text)] == ["kept", "dropped", "kept-too" * 700]
    assert re.findall(r"endTxnMarker: (\w+)", text) == ["COMMIT", "ABORT", "COMMIT"]
    (aborted,) = re.findall(r"version: 0 producerId: \d+ firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert aborted == ("2", "3", "4")


def test_producer_snapshots_are_sound(data: Path, dump: Callable[..., str]) -> None:
    snapshots = files(data, "transactions-0/*.snapshot")
    text = dump(snapshots[-1:])
    (known,) = re.findall(r"producerId: \d+ producerEpoch: \d+ coordinatorEpoch: (\d+) currentTxnFirstOffset: (\S+)", text)
    assert known == ("0", "OptionalLong.empty")
    assert "lastOffset: " in dump(files(data, "plain-0/*.snapshot")[-1:])


def test_committed_offsets_are_what_was_committed(data: Path, dump: Callable[..., str]) -> None:
    text = dump(files(data, "__consumer_offsets-*/*.log"), "--offsets-decoder")
    offsets = [
        re.sub(r"\s", "", payload) for _, key, payload in KEYED.findall(text) if '"type":"1"' in key and '"group":"readers"' in key
    ]
    assert offsets and '"offset":3' in offsets[-1]
    assert '"type":"2","data":{"group":"readers"}' in text and '"protocolType":"consumer"' in text


def test_the_transaction_log_is_what_was_done(data: Path, dump: Callable[..., str]) -> None:
    text = dump(files(data, "__transaction_state-*/*.log"), "--transaction-log-decoder")
    states = [int(state) for state in re.findall(r'"transactionStatus":(\d+)', text)]
    empty, ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort = range(6)
    assert '"transactionalId":"writer"' in text
    assert states[0] == empty
    for state in (ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort):
        assert state in states


def test_a_compacted_log_is_sound(data: Path, dump: Callable[..., str]) -> None:
    text = dump(files(data, "compacted-0/*.log"), "--print-data-log")
    found = PAYLOAD.findall(text)
    offsets = [int(offset) for offset, _ in found]
    assert offsets == sorted(set(offsets)) and len(offsets) <= offsets[-1]
    assert {payload.split("-")[0] for _, payload in found} == {str(key) for key in range(10)}
