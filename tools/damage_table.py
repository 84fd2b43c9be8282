"""Damages the disk of one of three replicas, and counts the acknowledged records that are lost. It prints a row for each kind of damage and
each damaged replica.

usage: python -m tools.damage_table [--faults flip-active,cut] [--places leader,follower] [--flush no,yes]
       [--in-sync-min 2] [--seconds-max 60]

Each row starts three broker processes and a ZooKeeper, acknowledges records with acks=all (three replicas, min.insync.replicas=2), kills
with -9, damages files of one broker, and starts everything again. A consumer then reads the partition, first from the present leader, then
from the damaged broker as the leader. `lost` counts acknowledged records that it does not get, `wrong` counts records and errors that it
should not get. `whole` is the time in seconds from the start of the last broker until all replicas are in sync and all their files hold the
same good batches. The exit code is 1 if a row has lost or wrong records, or is not whole in time.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.adapters.disk import OsDisk
from ottla.base.config import BROKER_SETTINGS
from ottla.base.errors import StorageError
from ottla.storage.scan import scan_batches
from ottla.testing.cluster import Cluster, ClusterBroker
from ottla.wire.batch_header import BATCH_OVERHEAD, LOG_OVERHEAD

TOPIC = "d"
RECORDS, VALUE_BYTES = 4_000, 1_000
MORE = 200
"""Number of records that only two replicas acknowledge, for the place `last-in-sync`."""
WANTED = {"log.segment.bytes": str(1 << 20), "ottla.scrub.interval.ms": "2000"}
SETTINGS = {name: value for name, value in WANTED.items() if name in BROKER_SETTINGS}
STEP_SECONDS = 60
QUIET = {"log_level": 0}
"""An option of librdkafka, which would otherwise log each killed broker."""
ALIGNED = 4096


@dataclass
class Outcome:
    """The results of a row."""

    lost: int = 0
    wrong: int = 0
    whole_seconds: float | None = None
    lines: int = 0
    """Number of lines in the brokers' logs that name the partition and an offset."""

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.wrong and self.whole_seconds is not None


# Damage


def segments(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.log") if path.stat().st_size)


def batch_starts(path: Path) -> list[int]:
    data, at, found = path.read_bytes(), 0, list[int]()
    while at + BATCH_OVERHEAD <= len(data):
        found.append(at)
        at += LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big")
    return found


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 6 // 10] ^= 1
    path.write_bytes(data)


def flip_sealed(directory: Path, _copy: Path) -> None:
    flip(segments(directory)[1])


def flip_active(directory: Path, _copy: Path) -> None:
    flip(segments(directory)[-1])


def cut(directory: Path, _copy: Path) -> None:
    """Cuts the active segment where a batch begins."""
    path = segments(directory)[-1]
    at = next(start for start in batch_starts(path) if start >= path.stat().st_size * 6 // 10)
    with path.open("r+b") as file:
        file.truncate(at)


def missing_segment(directory: Path, _copy: Path) -> None:
    segments(directory)[1].unlink()


def missing_directory(directory: Path, _copy: Path) -> None:
    shutil.rmtree(directory)


def old_partition(directory: Path, copy: Path) -> None:
    """Puts back an older copy of the partition's directory."""
    shutil.rmtree(directory)
    shutil.copytree(copy / directory.relative_to(directory.parent), directory)


def old_disk(directory: Path, copy: Path) -> None:
    """Puts back an older copy of the whole log directory."""
    shutil.rmtree(directory.parent)
    shutil.copytree(copy, directory.parent)


def misdirected_write(directory: Path, _copy: Path) -> None:
    """Copies two disk blocks of the active segment to another place in it."""
    path = segments(directory)[-1]
    data = bytearray(path.read_bytes())
    source, target = len(data) // 5 // ALIGNED * ALIGNED, len(data) * 6 // 10 // ALIGNED * ALIGNED
    data[target : target + 2 * ALIGNED] = data[source : source + 2 * ALIGNED]
    path.write_bytes(data)


def lost_write(directory: Path, _copy: Path) -> None:
    """Fills a disk block of the active segment with zeros."""
    path = segments(directory)[-1]
    data = bytearray(path.read_bytes())
    at = len(data) * 6 // 10 // ALIGNED * ALIGNED
    data[at : at + ALIGNED] = bytes(ALIGNED)
    path.write_bytes(data)


FAULTS: dict[str, Callable[[Path, Path], None]] = {
    "flip-sealed": flip_sealed,
    "flip-active": flip_active,
    "cut": cut,
    "missing-segment": missing_segment,
    "missing-directory": missing_directory,
    "old-partition": old_partition,
    "old-disk": old_disk,
    "misdirected-write": misdirected_write,
    "lost-write": lost_write,
}


# A row


class Row:
    """Runs one row: one cluster, one kind of damage, one place."""

    def __init__(self, cluster: Cluster, scratch: Path, seconds_max: float) -> None:
        self.cluster = cluster
        self.acknowledged: set[int] = set()
        self.copy = scratch / "copy"
        self._seconds_max = seconds_max
        self._started = 0.0
        self._admin = AdminClient({"bootstrap.servers": cluster.direct_server, **QUIET})

    def run(self, damage: Callable[[Path, Path], None], place: str) -> Outcome:
        self.cluster.create_topic(TOPIC)
        self.wait(lambda: len(self.in_sync()) == 3, "the topic is not replicated")
        self.write(RECORDS // 2)
        victim = self.choose(place)
        self.copy_disk(victim)
        self.write(RECORDS // 2)
        getattr(self, "kill_" + place.replace("-", "_"))(victim, damage)
        outcome = Outcome()
        if self.becomes(self.is_whole, self._seconds_max):
            outcome.whole_seconds = time.monotonic() - self._started
        self.judge(outcome)
        if outcome.whole_seconds is not None and self.lead_with(victim):
            self.judge(outcome)
        text = "".join(broker.log for broker in self.cluster.brokers)
        outcome.lines = sum(f"{TOPIC}-0" in line and "offset" in line for line in text.splitlines())
        return outcome

    # Places

    def kill_follower(self, victim: ClusterBroker, damage: Callable[[Path, Path], None]) -> None:
        self.kill_and_damage(victim, damage)
        self.start(victim)

    def kill_leader(self, victim: ClusterBroker, damage: Callable[[Path, Path], None]) -> None:
        self.kill_and_damage(victim, damage)
        self.start(victim)

    def kill_last_in_sync(self, victim: ClusterBroker, damage: Callable[[Path, Path], None]) -> None:
        """Damages the only replica in sync. One of the other replicas has every record; the other one lacks the last `MORE` records."""
        behind, eligible = self.others(victim)
        behind.kill()
        self.wait(lambda: len(self.in_sync()) == 2, "the dead broker stays in sync")
        self.write(MORE)
        eligible.kill()
        self.wait(lambda: self.in_sync() == [victim.broker_id], "the second dead broker stays in sync")
        self.kill_and_damage(victim, damage)
        self.start(victim, behind, eligible)

    def kill_all(self, victim: ClusterBroker, damage: Callable[[Path, Path], None]) -> None:
        """Kills all brokers, and starts the damaged one first."""
        others = self.others(victim)
        for broker in others:
            broker.kill()
        self.kill_and_damage(victim, damage)
        self.start(victim)
        self.becomes(lambda: self.leader() >= 0, 3)
        self.start(*others)

    def start(self, *brokers: ClusterBroker) -> None:
        for broker in brokers:
            self._started = time.monotonic()
            broker.start()

    def kill_and_damage(self, victim: ClusterBroker, damage: Callable[[Path, Path], None]) -> None:
        victim.kill()
        damage(self.directory(victim), self.copy)

    # Steps

    def choose(self, place: str) -> ClusterBroker:
        leader = self.cluster.leader_of(TOPIC)
        return self.others(leader)[0] if place == "follower" else leader

    def others(self, victim: ClusterBroker) -> list[ClusterBroker]:
        return [broker for broker in self.cluster.brokers if broker is not victim]

    def copy_disk(self, victim: ClusterBroker) -> None:
        """Kills the victim, copies its log directory, and starts it. If it was the leader, it becomes the leader again."""
        was_leader = self.leader() == victim.broker_id
        directory = self.directory(victim).parent
        victim.kill()
        shutil.copytree(directory, self.copy)
        victim.start()
        self.wait(lambda: len(self.in_sync()) == 3, "the broker does not come back into sync")
        if was_leader:
            assert self.lead_with(victim), "the broker does not lead again"

    def lead_with(self, broker: ClusterBroker) -> bool:
        """Makes a broker the leader, by a reassignment that puts it first among the replicas. Returns False if it is not the leader in
        time.
        """
        order = [broker.broker_id, *(other.broker_id for other in self.others(broker))]
        plan = f'{{"version":1,"partitions":[{{"topic":"{TOPIC}","partition":0,"replicas":{order}}}]}}'
        path = self.copy.parent / "plan.json"
        path.write_text(plan)
        base = [sys.executable, "-m", "ottla", "partitions"]
        address = ["--yes", "-b", self.cluster.direct_server]
        move = [*base, "reassign", "--execute", "--reassignment-json-file", str(path), *address]
        subprocess.run(move, check=True, capture_output=True)
        elect = [*base, "elect", "--election-type", "preferred", "--topic", TOPIC, "--partition", "0", *address]

        def leads() -> bool:
            subprocess.run(elect, capture_output=True, check=False)
            return self.leader() == broker.broker_id

        return self.becomes(leads, STEP_SECONDS)

    def directory(self, broker: ClusterBroker) -> Path:
        return next(path for path in sorted(broker.process.data_dir.rglob(f"{TOPIC}-0")) if path.is_dir())

    def write(self, count: int) -> None:
        """Writes `count` more records, and waits until they are acknowledged."""
        safe = {"acks": "all", "enable.idempotence": True, "batch.size": 20_000}
        settings = {"bootstrap.servers": self.cluster.direct_server, **safe, **QUIET}
        producer = Producer(settings)
        first = len(self.acknowledged)
        failed: list[object] = []
        for number in range(first, first + count):
            value = f"{number}".ljust(VALUE_BYTES, ".").encode()
            producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _message: failed.append(error) if error else None)
            producer.poll(0)
        assert producer.flush(STEP_SECONDS) == 0 and not failed, f"not acknowledged: {failed[:1]}"
        self.acknowledged.update(range(first, first + count))

    # Looking

    def partition(self) -> tuple[int, list[int]]:
        try:
            found = self._admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
        except KafkaException:
            return -1, []
        return (found[0].leader, sorted(found[0].isrs)) if 0 in found else (-1, [])

    def leader(self) -> int:
        return self.partition()[0]

    def in_sync(self) -> list[int]:
        return self.partition()[1]

    def is_whole(self) -> bool:
        """Whether all replicas are in sync, and their files hold the same good batches."""
        leader, in_sync = self.partition()
        if leader < 0 or len(in_sync) < 3:
            return False
        try:
            contents = [list(self.batches(broker)) for broker in self.cluster.brokers]
        except (OSError, ValueError, StopIteration, StorageError):
            return False
        return contents[0] == contents[1] == contents[2] and bool(contents[0])

    def batches(self, broker: ClusterBroker) -> Iterator[tuple[int, int]]:
        """Yields offset and CRC of each batch. Raises `ValueError` for a gap, `DamageError` for a damaged batch."""
        expected = 0
        for path in segments(self.directory(broker)):
            file = OsDisk().open(str(path))
            try:
                for _, header, _ in scan_batches(file, 0, file.size(), next_offset=expected, crc_from=0):
                    if header.base_offset != expected:
                        raise ValueError(f"{path} has no offset {expected}")
                    expected = header.next_offset
                    yield header.base_offset, header.crc
            finally:
                file.close()

    def judge(self, outcome: Outcome) -> None:
        """Reads the partition from the leader by a consumer that checks CRCs, and adds what is lost or wrong to `outcome`."""
        consumer = Consumer({"bootstrap.servers": self.cluster.direct_server, "group.id": "judge", "check.crcs": True, **QUIET})
        try:
            start, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=STEP_SECONDS)
            consumer.assign([TopicPartition(TOPIC, 0, start)])
            seen: dict[int, int] = {}
            deadline = time.monotonic() + STEP_SECONDS
            while (position := max(seen, default=start - 1) + 1) < end and time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is None or message.offset() is None:
                    continue
                if message.error():
                    outcome.wrong += 1
                    consumer.seek(TopicPartition(TOPIC, 0, position + 1))
                    continue
                seen[int(message.offset() or 0)] = int((message.value() or b"-1").rstrip(b"."))
        except KafkaException:
            outcome.lost = max(outcome.lost, len(self.acknowledged))
            return
        finally:
            consumer.close()
        values = list(seen.values())
        outcome.lost = max(outcome.lost, len(self.acknowledged - set(values)))
        outcome.wrong += len(values) - len(set(values)) + len(set(values) - self.acknowledged)

    def becomes(self, condition: Callable[[], bool], seconds_max: float) -> bool:
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.1)
        return False

    def wait(self, condition: Callable[[], bool], problem: str) -> None:
        if not self.becomes(condition, STEP_SECONDS):
            raise AssertionError(problem)


def run_row(fault: str, place: str, is_flushed: bool, in_sync_min: int, seconds_max: float) -> Outcome:
    settings = {**SETTINGS, "ottla.flush.on.ack": str(is_flushed).lower(), "min.insync.replicas": str(in_sync_min)}
    with tempfile.TemporaryDirectory(prefix="ottla-damage-") as scratch, Cluster(3, settings=settings) as cluster:
        return Row(cluster, Path(scratch), seconds_max).run(FAULTS[fault], place)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--places", default="follower,leader,last-in-sync,all")
    parser.add_argument("--flush", default="no,yes")
    parser.add_argument("--seconds-max", type=float, default=60)
    parser.add_argument("--in-sync-min", type=int, default=2, help="min.insync.replicas of the cluster")
    args = parser.parse_args(argv)
    print("| fault | place | flush on ack | lost | wrong | whole after | lines |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    is_good = True
    for flush, fault, place in product(args.flush.split(","), args.faults.split(","), args.places.split(",")):
        outcome = run_row(fault, place, flush == "yes", args.in_sync_min, args.seconds_max)
        whole = "never" if outcome.whole_seconds is None else f"{outcome.whole_seconds:.1f} s"
        print(f"| {fault} | {place} | {flush} | {outcome.lost} | {outcome.wrong} | {whole} | {outcome.lines} |", flush=True)
        is_good = is_good and outcome.is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
