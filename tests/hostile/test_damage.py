"""A broker that starts on damaged files logs one clear line and reacts as documented (storage/recovery.py), without a traceback and without
silent loss of records (I6, I43, P11).

A data directory is written once; each case damages one file of a copy and starts a broker on it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.base.errors import ErrorCode, WireError
from ottla.storage.ledger import LEDGER_FILE
from ottla.wire.batch_header import iter_batches
from ottla.wire.framing import load
from ottla.wire.messages import create_topics, delete_topics, offset_fetch
from ottla.wire.records import Record, encode_batch
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.wire_client import WireClient
from tests.hostile.damage import (
    OTHER,
    RECORDS,
    TOPIC,
    changed,
    copy_of,
    cut,
    empty,
    flip,
    gone,
    half,
    junk,
    log_lines,
    more,
    numbers_of,
    offset_at,
    read,
    refused,
    time_of,
    write_directory,
)

Damage = Callable[[Path], None]
CLEAN_MARKER, RECOVERY_POINTS = ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_directory(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def broker(data: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    """Returns a broker on a copy of the directory, not started yet; the test stops it."""
    process = copy_of(data, tmp_path)
    yield process
    if process.is_running:
        process.stop()


def nth(directory: Path, suffix: str, number: int) -> Path:
    """Returns the first, middle or last file of a kind in the damaged topic's directory."""
    return sorted((directory / f"{TOPIC}-0").glob(f"*{suffix}"))[number]


SIDE_FILES: dict[str, tuple[str, int]] = {
    "sealed index": (".index", 1),
    "active index": (".index", -1),
    "sealed time index": (".timeindex", 1),
    "active time index": (".timeindex", -1),
}
CHECKPOINTS = [f"{TOPIC}-0/leader-epoch-checkpoint", RECOVERY_POINTS, "replication-offset-checkpoint", "log-start-offset-checkpoint"]


def check_all(broker: BrokerProcess) -> None:
    """Checks that every record is read once and in order, that look-ups by time find records, and that aborted records are not shown."""
    with WireClient(broker.port) as client:
        for is_committed in (True, False):
            values, error = read(client, TOPIC, is_committed=is_committed)
            assert error == 0 and numbers_of(values) == list(range(RECORDS))
            assert values[RECORDS:] == [b"committed"] + [b"aborted"] * (not is_committed)
        for number in (0, 700, RECORDS - 1):
            assert numbers_of(read(client, TOPIC, number)[0][:1]) == [number]
            assert offset_at(client, time_of(number)) == number


@pytest.mark.parametrize("damage", [flip, junk, half, empty, gone])
@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_damaged_index_is_made_again(broker: BrokerProcess, name: str, damage: Damage) -> None:
    path = nth(broker.data, *SIDE_FILES[name])
    damage(path)
    broker.start()
    check_all(broker)
    broker.stop()
    lines = log_lines(broker)
    assert len(lines) == 1 or (not lines and damage in (flip, empty))  # with a flipped byte, or empty, it may still be a valid index
    assert all(f"{TOPIC}-0" in line and str(int(path.stem)) in line and "index" in line for line in lines)


@pytest.mark.parametrize("damage", [junk, half])
def test_a_damaged_index_of_aborted_transactions_is_made_again(broker: BrokerProcess, damage: Damage) -> None:
    damage(nth(broker.data, ".txnindex", 0))
    broker.start()
    check_all(broker)
    (line,) = log_lines(broker)
    assert ".txnindex" in line or "transaction index" in line


@pytest.mark.parametrize(("damage", "is_clean"), [(junk, True), (half, False), (empty, True)])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_is_reported_and_made_again(broker: BrokerProcess, name: str, damage: Damage, is_clean: bool) -> None:
    damage(broker.data / name)
    if not is_clean:
        (broker.data / CLEAN_MARKER).unlink()
    broker.start()
    check_all(broker)
    broker.stop()
    assert (broker.data / name).read_text().startswith("0\n")
    if damage is not half or "start" not in name:  # half of an empty list is an empty list
        (line,) = log_lines(broker)
        assert Path(name).name in line


@pytest.mark.parametrize("damage", [flip, junk, half, empty])
def test_a_damaged_producer_snapshot_is_reported_and_made_again(broker: BrokerProcess, damage: Damage) -> None:
    path = nth(broker.data, ".snapshot", -1)
    damage(path)
    broker.start()
    check_all(broker)
    broker.stop()
    (line,) = log_lines(broker)
    assert path.name in line
    assert path.read_bytes()


@pytest.mark.parametrize("damage", [junk, half, empty])
def test_a_damaged_partition_metadata_is_reported_and_written_again(broker: BrokerProcess, data: Path, damage: Damage) -> None:
    name = f"{TOPIC}-0/partition.metadata"
    damage(broker.data / name)
    broker.start()
    check_all(broker)
    (line,) = log_lines(broker)
    assert "partition.metadata" in line
    assert (broker.data / name).read_bytes() == (data / name).read_bytes()


def check_offline(broker: BrokerProcess, offset: int, file: str) -> None:
    """Checks that a reader at `offset` gets a typed error, other partitions are served, and one log line names the file."""
    with WireClient(broker.port) as client:
        assert read(client, TOPIC, offset)[1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(read(client, OTHER)[0]) == 3
    (line,) = log_lines(broker)
    assert f"{TOPIC}-0" in line and file in line and "ERROR" in line


def check_damaged(broker: BrokerProcess, file: str, end: int) -> None:
    """Checks that reads of the damaged offsets before `end` are refused, all other offsets are served, and two log lines say what is wrong
    and what to do.
    """
    with WireClient(broker.port) as client:

        def is_refused() -> bool:
            try:
                return read(client, TOPIC)[1] == ErrorCode.CORRUPT_MESSAGE
            except WireError:
                return False  # until the broker finds the wrong CRC, the reader finds it

        eventually(is_refused)
        values, _ = read(client, TOPIC)
        first = len(values)
        assert numbers_of(values) == list(range(first)) and 0 < first < end
        assert numbers_of(read(client, TOPIC, end)[0]) == list(range(end, RECORDS))
        assert len(read(client, OTHER)[0]) == 3
    found, advice = [line for line in log_lines(broker) if "ottla.repair" in line]
    assert all(f"{TOPIC}-0" in line and "ERROR" in line and f"offsets {first} to {end - 1}" in line for line in (found, advice))
    assert file in found and f"ottla topic trim {TOPIC} --partition 0 --before {end}" in advice


def test_a_log_of_another_topic_is_not_taken(broker: BrokerProcess) -> None:
    """I41: a log with the id of another topic is refused."""
    other = (broker.data / f"{OTHER}-0" / "partition.metadata").read_bytes()
    (broker.data / f"{TOPIC}-0" / "partition.metadata").write_bytes(other)
    broker.start()
    check_offline(broker, 0, "partition.metadata")


# Segments


@pytest.mark.parametrize("damage", [cut, more, empty, gone])
def test_a_tail_that_changed_after_a_clean_stop_is_not_cut(broker: BrokerProcess, damage: Damage) -> None:
    damage(nth(broker.data, ".log", -1))
    broker.start()
    if damage is gone:
        with WireClient(broker.port) as client:
            assert read(client, TOPIC)[1] == ErrorCode.KAFKA_STORAGE_ERROR
        assert "when it was closed" in log_lines(broker)[-1] or "ERROR" in log_lines(broker)[-1]
    else:
        check_offline(broker, 0, f"{TOPIC}-0")


def test_a_torn_tail_is_cut(broker: BrokerProcess) -> None:
    """After a kill in the middle of a write all complete batches are served, and one log line says what was cut."""
    more(nth(broker.data, ".log", -1))
    (broker.data / CLEAN_MARKER).unlink()
    (broker.data / RECOVERY_POINTS).write_text("0\n0\n")
    broker.start()
    with WireClient(broker.port) as client:
        values, error = read(client, TOPIC)
        assert error == 0 and numbers_of(values) == list(range(RECORDS))
    (line,) = log_lines(broker)
    assert f"{TOPIC}-0: cut " in line and ".log" in line


@pytest.mark.parametrize("damage", [cut, flip, empty])
def test_damage_above_the_recovery_point_is_no_torn_tail(broker: BrokerProcess, damage: Damage) -> None:
    """The ledger has the end of the log at the moment of the kill. A damaged batch before that end is not cut as a torn tail."""
    path = nth(broker.data, ".log", -1)
    damage(path)
    (broker.data / CLEAN_MARKER).unlink()
    (broker.data / RECOVERY_POINTS).write_text("0\n0\n")
    before = path.read_bytes()
    broker.start()
    with WireClient(broker.port) as client:
        assert len(read(client, OTHER)[0]) == 3
        assert read(client, TOPIC)[1] == ErrorCode.KAFKA_STORAGE_ERROR
    assert any(f"{TOPIC}-0" in line and "damage" in line for line in log_lines(broker))
    broker.stop()
    assert path.read_bytes() == before


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_damage_below_what_was_synced_is_never_cut(broker: BrokerProcess, is_clean: bool) -> None:
    """An incomplete batch at the end of a sealed segment is found when it is read. All other batches are served, and the file is not
    changed.
    """
    path, following = nth(broker.data, ".log", 1), int(nth(broker.data, ".log", 2).stem)
    cut(path)
    if not is_clean:
        (broker.data / CLEAN_MARKER).unlink()
    before = path.read_bytes()
    broker.start()
    check_damaged(broker, path.name, following)
    broker.stop()
    assert path.read_bytes() == before


def test_damage_below_the_recovery_point_after_a_kill_is_not_cut(broker: BrokerProcess) -> None:
    path = nth(broker.data, ".log", -1)
    cut(path)
    (broker.data / CLEAN_MARKER).unlink()
    before = path.read_bytes()
    broker.start()
    check_offline(broker, 0, path.name)
    broker.stop()
    assert path.read_bytes() == before


def test_a_topic_whose_log_is_damaged_can_be_deleted_and_made_again(broker: BrokerProcess) -> None:
    cut(nth(broker.data, ".log", -1))
    broker.start()
    with WireClient(broker.port) as client:
        assert read(client, TOPIC)[1] == ErrorCode.KAFKA_STORAGE_ERROR
        topic = delete_topics.DeleteTopicState(name=TOPIC)
        assert client.ask(delete_topics.DeleteTopicsRequest(topics=[topic], timeout_ms=1000), 6).responses[0].error_code == 0
        assert not (broker.data / f"{TOPIC}-0").exists()
        made = create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        assert client.ask(create_topics.CreateTopicsRequest(topics=[made], timeout_ms=1000), 7).topics[0].error_code == 0
        assert read(client, TOPIC) == ([], 0)


def ottla(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", [cut, shutil.rmtree], ids=["cut", "directory"])
def test_a_single_broker_gives_up_what_is_damaged_when_an_operator_accepts_the_loss(
    broker: BrokerProcess, damage: Damage, is_clean: bool
) -> None:
    """Accepting the loss works on a single broker too. In an earlier version it had no effect, because the controller did not know that the
    log had failed.
    """
    damage(nth(broker.data, ".log", -1) if damage is cut else broker.data / f"{TOPIC}-0")
    if not is_clean:
        (broker.data / CLEAN_MARKER).unlink()
    broker.start()
    options = ["partitions", "elect", "--accept-loss", "--topic", TOPIC, "-b", broker.address]
    with WireClient(broker.port) as client:
        assert read(client, TOPIC)[1] == ErrorCode.KAFKA_STORAGE_ERROR
        line = next(line for line in log_lines(broker) if f"{TOPIC}-0 is not available" in line)
        assert f"give up what is damaged: ottla {' '.join(options[:5])} --partition 0" in line
        asked = ottla(*options)
        assert asked.returncode == 2 and "its log is damaged or missing, and is cut at the damage" in asked.stderr
        done = ottla(*options, "--yes")
        assert done.returncode == 0, done.stderr
        eventually(lambda: read(client, TOPIC)[1] == 0)
        values, _ = read(client, TOPIC)
        kept = numbers_of(values[:RECORDS])
        assert kept == list(range(len(kept))) and (len(kept) > 100 if damage is cut else kept == [])
    broker.restart()
    with WireClient(broker.port) as client:
        assert read(client, TOPIC) == (values, 0)


def test_a_ledger_that_cannot_be_written_under_a_running_broker_ends_it_and_loses_nothing(broker: BrokerProcess) -> None:
    """The ledger's pages are mapped into memory, so the system ends the process with SIGBUS (`storage/ledger.py`). Acknowledged records are
    in the log afterwards.
    """
    broker.start()
    with (broker.data / LEDGER_FILE).open("r+b") as file:
        file.truncate(0)
    producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "message.timeout.ms": 2_000, "log_level": 0})
    acknowledged: list[int] = []
    for number in range(RECORDS, RECORDS + 100):
        producer.produce(TOPIC, b"%d" % number, on_delivery=lambda error, found: None if error else acknowledged.append(int(found.value())))
        producer.poll(0)
    eventually(lambda: not broker.is_running)
    producer.flush(10)
    ended = broker.process
    broker.kill()
    assert ended is not None and ended.returncode == -signal.SIGBUS
    broker.start()
    assert any("begins again" in line and LEDGER_FILE in line for line in log_lines(broker))
    with WireClient(broker.port) as client:
        values, error = read(client, TOPIC, is_committed=True)
        assert error == 0 and set(map(b"%d".__mod__, acknowledged)) <= set(values) and numbers_of(values[:RECORDS]) == list(range(RECORDS))


def test_a_flipped_bit_is_found_by_the_reader(broker: BrokerProcess) -> None:
    """P11: the broker does not check batches again when it sends them, so the client finds the flipped bit by the batch's CRC. Later
    batches are still served.
    """
    flip(nth(broker.data, ".log", 1))
    broker.start()
    with WireClient(broker.port) as client:
        assert len(read(client, OTHER)[0]) == 3
        with pytest.raises(WireError, match="CRC"):
            read(client, TOPIC)
        assert numbers_of(read(client, TOPIC, 1100)[0]) == list(range(1100, RECORDS))


def test_a_flipped_bit_is_found_by_the_scrub(broker: BrokerProcess) -> None:
    """P11: after the scrub has found the flipped bit, reads of this batch are refused, and all other batches are served."""
    path = nth(broker.data, ".log", 1)
    flip(path)
    with path.open("rb") as file:
        (end,) = [header.next_offset for at, header in iter_batches(file.read()) if at <= path.stat().st_size // 2 < at + header.size_bytes]
    broker.settings.append("ottla.scrub.interval.ms=100")
    broker.start()
    check_damaged(broker, path.name, end)


def test_a_segment_that_is_gone_does_not_lead_readers_past_it(broker: BrokerProcess) -> None:
    path, following = nth(broker.data, ".log", 1), int(nth(broker.data, ".log", 2).stem)
    path.unlink()
    broker.start()
    check_damaged(broker, nth(broker.data, ".log", 0).name, following)


def test_an_empty_segment_in_the_middle_is_reported(broker: BrokerProcess) -> None:
    path = nth(broker.data, ".log", 1)
    empty(path)
    broker.start()
    (line,) = [line for line in log_lines(broker) if "missing" in line]
    assert path.name in line


POISON = {
    "a key of an unknown version": Record(0, 1, b"\x7f\xff", b"value"),
    "a key that is cut off": Record(0, 1, b"\0\1\0\x20group", b"value"),
    "no key": Record(0, 1, None, b"value"),
    "a value of an unknown version": Record(0, 1, b"\0\2\0\1g", b"\x7f\xffvalue"),
    "a value that is cut off": Record(0, 1, b"\0\2\0\1g", b"\0\3"),
}


@pytest.mark.parametrize("name", POISON)
def test_poisoned_coordinator_records_are_skipped(broker: BrokerProcess, name: str) -> None:
    """C3: malformed records in the middle of a coordinator's log are skipped, and groups and transactions are loaded from the other
    records.
    """
    poisoned = 0
    for path in [*broker.data.glob("__consumer_offsets-*/*.log"), *broker.data.glob("__transaction_state-*/*.log")]:
        ends = [header.next_offset for _, header in iter_batches(path.read_bytes())]
        with path.open("ab") as file:
            file.write(encode_batch([POISON[name]], base_offset=ends[-1] if ends else 0, leader_epoch=0))
        poisoned += 1
    assert poisoned == 10
    broker.start()
    with WireClient(broker.port) as client:
        wanted = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group_id="offsets", topics=None)])
        begin = load(22)[0](transactional_id="after", transaction_timeout_ms=1000)
        eventually(lambda: client.ask(wanted, 8).groups[0].error_code == 0)
        eventually(lambda: client.ask(begin, 4).error_code == 0)
        (topic,) = client.ask(wanted, 8).groups[0].topics
        assert topic.partitions[0].committed_offset == 2


# Damage that prevents the start


@pytest.mark.parametrize("damage", [junk, half, empty])
def test_damaged_meta_properties_stop_the_start(broker: BrokerProcess, damage: Damage) -> None:
    damage(broker.data / "meta.properties")
    (line,) = refused(broker)
    assert "meta.properties" in line or "belongs to cluster" in line


def test_the_directory_of_another_cluster_is_refused(broker: BrokerProcess) -> None:
    changed(r"^cluster\.id=.*$", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA")(broker.data / "meta.properties")
    (line,) = refused(broker)
    assert "cluster" in line and "AAAAAAAAAAAAAAAAAAAAAA" in line


def test_the_directory_of_another_broker_is_refused(broker: BrokerProcess) -> None:
    (line,) = refused(broker, "--set", "broker.id=7")
    assert "belongs to broker 0, not 7" in line


@pytest.mark.parametrize("damage", [junk, half, empty, gone])
def test_a_damaged_metadata_store_stops_the_start(broker: BrokerProcess, damage: Damage) -> None:
    damage(broker.data / "ottla-metadata.sqlite")
    (line,) = refused(broker)
    assert "ottla-metadata.sqlite" in line and "restore the file" in line
    (again,) = refused(broker)
    assert "restore the file" in again


def test_a_second_broker_on_the_directory_is_refused(broker: BrokerProcess) -> None:
    broker.start()
    (line,) = refused(broker, "--port", "0")
    assert str(broker.data) in line
    check_all(broker)


def test_a_port_in_use_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.start()
    other = BrokerProcess(tmp_path / "other", ["ottla.log.format=text"])
    other.port = broker.port
    (line,) = refused(other)
    assert str(broker.port) in line


CONFIGURATIONS = {
    "no value": ("num.partitions=\n", "num.partitions"),
    "not a number": ("log.retention.hours=many\n", "log.retention.hours"),
    "out of range": ("num.partitions=-5\n", "num.partitions"),
    "not UTF-8": ("num.partitions=\udcff1\n", "UTF-8"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_damaged_configuration_file_stops_the_start(broker: BrokerProcess, tmp_path: Path, name: str) -> None:
    text, wanted = CONFIGURATIONS[name]
    path = tmp_path / "server.properties"
    path.write_bytes(text.encode(errors="surrogateescape"))
    (line,) = refused(broker, "--config", str(path))
    assert wanted in line


def test_a_configuration_file_that_is_not_there_stops_the_start(broker: BrokerProcess, tmp_path: Path) -> None:
    (line,) = refused(broker, "--config", str(tmp_path / "nowhere"))
    assert "cannot read" in line and "nowhere" in line
