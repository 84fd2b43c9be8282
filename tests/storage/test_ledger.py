"""The ledger shows the difference between damage and a torn tail; no crash at any moment looks like damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from ottla.base.errors import DamagedLogError
from ottla.replication.partition import Partition
from ottla.storage.ledger import CELL_BYTES, FIRST_ROWS, LEDGER_FILE, NO_PROOF, ROW_CELLS, UNKNOWN, WATERMARK, Ledger, Proof, enter
from ottla.storage.log import Log
from ottla.storage.segment import LOG_SUFFIX
from ottla.storage.small_files import LEADER_EPOCH_FILE
from ottla.wire.batch_header import iter_batches, read_batch_header
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import DIRECTORY, PARTITION, ROOT, TOPIC_ID, batch_of, read_all

SEGMENT = f"{DIRECTORY}/{0:020d}{LOG_SUFFIX}"
EPOCH_BIT = 120
"""The lowest bit of a leader epoch."""
KEY = (TOPIC_ID, PARTITION.partition)


@dataclass
class Kept:
    """A log with a ledger, and its checkpoints."""

    disk: MemDisk = field(default_factory=lambda: MemDisk(ROOT))
    recovery_point: int = 0
    notes: list[str] = field(default_factory=list)

    def open(self, *, was_clean: bool = False, has_rebooted: bool = False, is_replaceable: bool = False) -> Log:
        self.ledger = Ledger(self.disk, ROOT, self.notes.append, is_new=not self.disk.exists(DIRECTORY))
        if has_rebooted:
            self.ledger.settle()
        self.log = Log.open(
            self.disk, DIRECTORY, PARTITION, log_settings(segment_bytes=2_000), now_ms=2_000, was_clean=was_clean,
            recovery_point=self.recovery_point, topic_id=TOPIC_ID, notes=self.notes, proof=self.ledger.proof(*KEY),
            is_replaceable=is_replaceable,
        )  # fmt: skip
        enter(self.log, self.ledger.row(*KEY))
        return self.log

    def append(self, count: int = 1, epoch: int = 0) -> None:
        batch = batch_of(count)
        self.log.append(memoryview(batch), read_batch_header(batch), leader_epoch=epoch, now_ms=2_000)

    def after_kill(self) -> Kept:
        """Returns the log on the same disk after the process was killed."""
        disk = MemDisk(ROOT)
        for path, data in self.disk.all_files().items():
            disk.write_file(path, data)
        return Kept(disk, self.recovery_point)


def kept(*counts: int) -> Kept:
    found = Kept()
    found.open()
    for count in counts:
        found.append(count)
    return found


def test_what_was_noted_is_proved_after_a_kill() -> None:
    found = kept(2, 3)
    found.log.row.cells[found.log.row.at + WATERMARK] = 4
    later = found.after_kill()
    later.open()
    assert later.log.log_end_offset == 5
    assert found.ledger.proof(*KEY) == Proof(5, 0, 4, 0, 0)
    found.log.flush()
    assert found.ledger.proof(*KEY).synced == 5


def test_a_flipped_bit_above_the_recovery_point_is_damage_and_not_a_torn_tail() -> None:
    found = kept(2, 2, 2).after_kill()
    size = len(found.disk.read_file(SEGMENT))
    found.disk.flip_bits(SEGMENT, size // 2)
    with pytest.raises(DamagedLogError, match="damage, not a torn tail") as raised:
        found.open()
    assert raised.value.first_offset == 2
    assert len(found.disk.read_file(SEGMENT)) == size, "the file stays as it is"


def damaged_heads(found: Kept, path: str) -> Iterator[tuple[int, int]]:
    """Flips each bit of base offset, length and leader epoch of each batch in a file, one at a time. Yields the batch's position and the
    number of the bit."""
    data = found.disk.read_file(path)
    for position, _ in iter_batches(data):
        for bit in range(8 * 16):
            found.disk.flip_bits(path, position + bit // 8, 1 << bit % 8)
            yield position, bit
            found.disk.flip_bits(path, position + bit // 8, 1 << bit % 8)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_flipped_bit_of_a_header_that_no_crc_covers_is_damage(is_flushed: bool) -> None:
    """The test covers base offset and leader epoch, also of the first and the last batch. Otherwise the replica would serve a record at a
    wrong offset."""
    found = kept()
    for count, epoch in [(1, 1), (2, 1), (1, 2), (3, 2), (1, 5), (2, 5)]:
        found.append(count, epoch)
    before = read_all(found.log)
    *_, before_5, at_5, _ = [position for position, _ in iter_batches(found.disk.read_file(SEGMENT))]
    if is_flushed:
        found.log.flush()
    missed = []
    killed = found.after_kill()
    for position, bit in damaged_heads(killed, SEGMENT):
        later = killed.after_kill()
        try:
            if read_all(later.open()) != before:
                missed.append((position, bit))
        except DamagedLogError as damage:
            again = killed.after_kill()
            assert read_all(again.open(is_replaceable=True)) == before[: len(read_all(again.log))], "a damaged batch is kept"
            assert again.log.log_end_offset == damage.first_offset
    # Without the file of epochs, a new epoch may have begun with this batch: 0 before 1, 3 behind 2, 4 before 5.
    assert missed == ([] if is_flushed else [(0, EPOCH_BIT), (before_5, EPOCH_BIT), (at_5, EPOCH_BIT)])


def test_a_leader_epoch_without_a_record_is_not_written() -> None:
    """A replica led in epoch 5 and wrote nothing. The next leader sends a record of epoch 4, which is no damage after a kill."""
    found = kept()
    found.append(2, epoch=4)
    partition = Partition(found.log, broker_id=1)
    partition.become_leader(leader_epoch=5, partition_epoch=1, replicas=[1, 2], isr=[1, 2], now_ms=0)
    found.log.flush()
    assert found.disk.read_file(f"{DIRECTORY}/{LEADER_EPOCH_FILE}") == b"0\n1\n4 0\n"
    partition.become_follower(leader_id=2, leader_epoch=6, partition_epoch=2, replicas=[1, 2], isr=[1, 2])
    found.log.append_as_follower(memoryview(batch_of(1, base_offset=2, leader_epoch=4)), 6)
    assert read_all(found.after_kill().open()) == read_all(found.log)


def test_what_was_being_written_is_a_torn_tail() -> None:
    found = kept(2, 2)
    data = found.disk.read_file(SEGMENT)
    found = found.after_kill()
    found.disk.write_file(SEGMENT, data + data[:70])
    assert found.open().log_end_offset == 4
    assert any("cut 70 bytes from offset 4" in note for note in found.notes)


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_log_that_ends_at_an_earlier_batch_is_damaged(was_clean: bool) -> None:
    found = kept(2, 2)
    data = found.disk.read_file(SEGMENT)
    found.append(2)
    found.log.close(clean=was_clean)
    found = found.after_kill()
    found.disk.write_file(SEGMENT, data)
    with pytest.raises(DamagedLogError, match="ends at offset 4, and it ended at 6") as raised:
        found.open(was_clean=was_clean)
    assert (raised.value.first_offset, raised.value.last_offset) == (4, 5)


@pytest.mark.parametrize("number", [0, -1])
def test_a_missing_segment_is_damage(number: int) -> None:
    found = kept(*[5] * 60)
    path = found.log.segments[number].path(LOG_SUFFIX)
    assert len(found.log.segments) > 2
    found = found.after_kill()
    found.disk.remove(path)
    with pytest.raises(DamagedLogError, match="damage"):
        found.open()


def test_after_a_restart_of_the_machine_what_was_synced_is_proved() -> None:
    found = kept(2, 2)
    found.log.flush()
    found.ledger.sync()
    data = found.disk.read_file(SEGMENT)
    found.append(2)
    found = found.after_kill()
    found.disk.write_file(SEGMENT, data)
    assert found.open(has_rebooted=True).log_end_offset == 4
    found = found.after_kill()
    found.disk.write_file(SEGMENT, data[: len(data) // 2])
    with pytest.raises(DamagedLogError):
        found.open(has_rebooted=True)


def test_a_replaceable_log_is_cut_at_the_damage_and_says_so() -> None:
    found = kept(*[5] * 60).after_kill()
    found.disk.flip_bits(SEGMENT, len(found.disk.read_file(SEGMENT)) // 2)
    log = found.open(is_replaceable=True)
    assert 0 < log.log_end_offset < 60 and log.log_end_offset % 5 == 0
    (note,) = [note for note in found.notes if "cut everything" in note]
    assert f"from offset {log.log_end_offset} on, up to offset 299" in note and str(PARTITION) in note and "damage" in note
    found.append(5)
    assert found.after_kill().open().log_end_offset == log.log_end_offset


def test_a_log_without_its_first_segment_begins_again_when_it_is_replaceable() -> None:
    found = kept(*[5] * 60).after_kill()
    found.disk.remove(SEGMENT)
    assert found.open(is_replaceable=True).log_end_offset == 0


@pytest.mark.parametrize("damage", [b"", b"x", bytes(4096)])
def test_a_damaged_ledger_proves_nothing(damage: bytes) -> None:
    found = kept(2).after_kill()
    found.disk.write_file(f"{ROOT}/{LEDGER_FILE}", damage)
    assert found.open().log_end_offset == 2
    assert found.ledger.is_lost and not found.ledger.is_known and "begins again" in found.notes[0]
    later = found.after_kill()
    later.open()
    assert not later.ledger.is_lost and not later.ledger.is_known


def test_a_row_that_names_no_log_proves_nothing() -> None:
    found = kept(2).after_kill()
    found.disk.flip_bits(f"{ROOT}/{LEDGER_FILE}", (FIRST_ROWS - 1) * ROW_CELLS * CELL_BYTES + 3)
    again = Ledger(found.disk, ROOT, found.notes.append)
    assert not again.has(*KEY) and again.is_known
    assert again.row(*KEY).cells[again.row(*KEY).at] == UNKNOWN


def test_rows_are_given_out_again_and_the_ledger_grows() -> None:
    disk = MemDisk(ROOT)
    ledger = Ledger(disk, ROOT, lambda _line: None, is_new=True)
    count = 10 * FIRST_ROWS
    for partition in range(count):
        ledger.row(TOPIC_ID, partition).enter(partition, 0, 0, 0)
    for partition in range(0, count, 2):
        ledger.free(TOPIC_ID, partition)
    files = disk.all_files()
    for partition in range(count, count + count // 2):
        ledger.row(TOPIC_ID, partition).enter(partition, 0, 0, 0)
    assert disk.all_files().keys() == files.keys()
    again = Ledger(disk, ROOT, lambda _line: None)
    for partition in range(count + count // 2):
        is_there = partition % 2 == 1 or partition >= count
        assert again.has(TOPIC_ID, partition) == is_there
        assert again.proof(TOPIC_ID, partition).end == (partition if is_there else UNKNOWN)


def test_a_row_that_was_freed_is_not_written_by_the_log_that_had_it() -> None:
    found = kept(2)
    found.ledger.free(*KEY)
    other = found.ledger.row(TOPIC_ID, 99)
    other.enter(7, 7, 0, 0)
    found.append(3)
    assert found.ledger.proof(TOPIC_ID, 99) == Proof(7, 0, 0, 0, 0) and found.ledger.proof(*KEY) == NO_PROOF


@pytest.mark.parametrize("seed", range(12))
def test_no_crash_at_any_change_of_the_disk_looks_like_damage(seed: int) -> None:
    chance = random.Random(seed)
    found = kept()
    crashes: list[tuple[MemDisk, MemDisk, int]] = []

    def note(_operation: str, _path: str) -> None:
        if chance.randrange(3) == 0:
            crashes.append((found.after_kill().disk, found.disk.image(SeededRandom(len(crashes))), found.recovery_point))

    found.disk.on_change = note
    for step in range(60):
        end, start = found.log.log_end_offset, found.log.log_start_offset
        kind = chance.choice(["append"] * 5 + ["flush", "truncate", "restart", "start", "roll", "checkpoint"])
        if kind == "append":
            found.append(chance.randrange(1, 6), epoch=step)
        elif kind == "flush":
            found.log.flush()
        elif kind == "truncate":
            found.log.truncate_to(chance.randrange(start, end + 1))
        elif kind == "restart" and chance.randrange(4) == 0:
            found.log.truncate_fully_and_start_at(end + chance.randrange(3))
        elif kind == "start":
            found.log.advance_log_start(chance.randrange(start, end + 1))
            found.log.delete_expired(2_000, end)
        elif kind == "roll":
            found.log.roll()
        elif kind == "checkpoint":
            found.recovery_point = found.log.recovery_point
            found.ledger.sync()
    for killed, without_power, recovery_point in crashes:
        log = Kept(killed, recovery_point).open()
        assert log.log_start_offset <= log.log_end_offset
        if without_power.exists(DIRECTORY):
            Kept(without_power, recovery_point).open(has_rebooted=True)
