"""Writes a data directory that has files of all kinds, damages a file in several ways, and reads what a broker serves afterwards."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ottla.base.errors import WireError
from ottla.wire.batch_header import check_crc, iter_batches
from ottla.wire.framing import load
from ottla.wire.messages import create_topics, fetch, list_offsets
from ottla.wire.records import Record, encode_batch, read_records
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.clients.sample_world import World
from tests.clients.warm_start import WarmProcess
from tests.clients.wire_client import In, WireClient

TOPIC, OTHER = "damaged", "whole"
RECORDS, RECORDS_PER_BATCH, STEP_MS = 1200, 3, 1000
FIRST_MS = int(time.time()) * 1000 - RECORDS * STEP_MS  # recent enough that no segment is rolled because of its age
ALL_BYTES = 1 << 24
INFORMATION = re.compile(r"^\S+ \S+ INFO ")


def write_directory(directory: Path) -> Path:
    """Writes a data directory with three segments and their indexes, an aborted transaction, and a group's offsets, and stops the broker
    cleanly. Returns its path.
    """
    process = BrokerProcess(directory, SETTINGS).start()
    with WireClient(process.port) as client:
        world = World(client)
        configs = {"segment.bytes": "1048576", "index.interval.bytes": "2000"}
        entries = [create_topics.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
        client.ask(world.make_topic(7, TOPIC, configs=entries), 7)
        client.ask(world.make_topic(7, OTHER), 7)
        client.ask(world.produce(In(9), OTHER), 9)
        source = random.Random(1)
        for first in range(0, RECORDS, RECORDS_PER_BATCH):
            made = [Record(0, time_of(n), None, b"%d-%s" % (n, source.randbytes(2000))) for n in range(first, first + RECORDS_PER_BATCH)]
            assert client.ask(world.produce(In(9), TOPIC, bytes(encode_batch(made))), 9).responses[0].partition_responses[0].error_code == 0
        for is_committed in (True, False):
            write_transaction(world, is_committed)
    process.stop()
    return process.data


def time_of(number: int) -> int:
    return FIRST_MS + number * STEP_MS


def write_transaction(world: World, is_committed: bool) -> None:
    name, producer_id, epoch = world.transaction(TOPIC)
    records = encode_batch(
        [Record(0, time_of(RECORDS), None, b"committed" if is_committed else b"aborted")],
        producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    sent = world.client.ask(world.produce(In(9), TOPIC, bytes(records), transactional_id=name), 9)
    assert sent.responses[0].partition_responses[0].error_code == 0
    end = load(26)[0](transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=is_committed)
    assert world.client.ask(end, 3).error_code == 0


def copy_of(data: Path, directory: Path) -> BrokerProcess:
    """Returns a broker on a copy of the directory, not started yet."""
    process = BrokerProcess(directory, SETTINGS)
    shutil.copytree(data, process.data)
    return process


# Kinds of damage


def flip(path: Path) -> None:
    """Changes one byte in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x5A
    path.write_bytes(data)


def junk(path: Path) -> None:
    path.write_bytes(b"\x07junk" * 20)


def half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 + 1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    """Cuts the last batch."""
    path.write_bytes(path.read_bytes()[:-30])


def more(path: Path) -> None:
    """Adds bytes behind the last batch that are not a batch."""
    with path.open("ab") as file:
        file.write(b"x" * 100)


def changed(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_text()
        assert re.search(old, text, re.MULTILINE)
        path.write_text(re.sub(old, new, text, flags=re.MULTILINE))

    return change


# Afterwards


def log_lines(process: BrokerProcess) -> list[str]:
    """Returns the lines of the broker's log above level INFO."""
    return [line for line in process.log_text().splitlines() if not INFORMATION.match(line)]


def refused(process: BrokerProcess, *options: str) -> list[str]:
    """Starts the broker, which must fail with exit code 1 and nothing on stdout; returns its lines."""
    with tempfile.TemporaryFile() as errors:
        ended = WarmProcess([*process.arguments(), *options], stderr=errors, environment=os.environ)
        code = ended.wait(30)
        with ended.stdout as output:
            said = output.read()
        errors.seek(0)
        lines = errors.read().decode().splitlines()
    assert (code, said) == (1, ""), lines
    return [line for line in lines if not INFORMATION.match(line)]


def read(client: WireClient, topic: str, offset: int = 0, *, is_committed: bool = False) -> tuple[list[bytes], int]:
    """Returns the values from an offset on, and the error that ended the reading; 0 at the end of the log."""
    values: list[bytes] = []
    aborted: set[int] = set()
    while True:
        partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        asked = fetch.FetchTopic(topic=topic, partitions=[partition])
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=ALL_BYTES, isolation_level=int(is_committed), topics=[asked])
        answer: Any = client.ask(request, 12).responses[0].partitions[0]
        aborted |= {entry.producer_id for entry in answer.aborted_transactions or () if is_committed}
        if answer.error_code or not answer.records:
            return values, answer.error_code
        found, following = decoded(bytes(answer.records), offset, aborted)
        assert following > offset, f"nothing to read at {offset} of {topic}, and no error"
        values += found
        offset = following


def decoded(data: bytes, offset: int, aborted: set[int]) -> tuple[list[bytes], int]:
    """Returns the values of complete batches from an offset on, and the offset behind them."""
    values: list[bytes] = []
    for position, header in iter_batches(data):
        if not header.is_control and header.producer_id not in aborted:
            if not check_crc(data, position, header.size_bytes):
                raise WireError(f"the batch at offset {header.base_offset} has a wrong CRC")
            batch = memoryview(data)[position : position + header.size_bytes]
            values += [bytes(record.value or b"") for record in read_records(batch) if record.offset >= offset]
        offset = max(offset, header.next_offset)
    return values, offset


def offset_at(client: WireClient, timestamp: int) -> int:
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    found: int = client.ask(request, 7).topics[0].partitions[0].offset
    return found


def numbers_of(values: Sequence[bytes]) -> list[int]:
    """Returns the numbers of the plain records among the values."""
    return [int(value.split(b"-", 1)[0]) for value in values if b"-" in value]
