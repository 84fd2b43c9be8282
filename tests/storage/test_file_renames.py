"""Replaced segments: a crash at any moment of the swap leaves the old records or the compacted ones, never fewer (I8, I43)."""

from __future__ import annotations

import pytest

from ottla.base.log_config import LogConfig
from ottla.storage.file_renames import deleted_directory
from ottla.storage.log import Log
from tests.fakes.disk import MemDisk
from tests.fakes.log_settings import log_settings
from tests.fakes.randomness import SeededRandom
from tests.storage.log_builder import DIRECTORY, PARTITION, ROOT, TOPIC_ID, LogBuilder, batch_of, names, offsets_of, read_all

SIZE = len(batch_of())
CONFIG = log_settings(segment_bytes=4 * SIZE, index_interval_bytes=SIZE, is_compacted=True, is_deleted=False)
KEPT = [1, 6, 11]


def built() -> LogBuilder:
    """Returns a log with three sealed segments of four batches and an active segment. Everything is durable."""
    made = LogBuilder(CONFIG)
    made.append_many(14)
    assert [segment.base_offset for segment in made.log.segments] == [0, 4, 8, 12]
    made.log.flush()
    made.checkpoint()
    return made


def clean(made: LogBuilder, groups: list[tuple[int, list[int]]]) -> None:
    """Writes the `.cleaned` files that the rewriter would write: a segment for each base, with the batches at these offsets."""
    batches = {header.base_offset: data for header, data in read_all(made.log)}
    for base, offsets in groups:
        file = made.disk.open(f"{DIRECTORY}/{base:020d}.log.cleaned", create=True)
        file.pwrite(b"".join(batches[offset] for offset in offsets), 0)
        file.sync()
    made.disk.sync_directory(DIRECTORY)


@pytest.mark.parametrize("groups", [[(0, KEPT)], [(0, [1]), (4, [6, 11])], [(0, [1, 6]), (8, [11])]])
def test_the_compacted_segments_are_served_and_survive(groups: list[tuple[int, list[int]]]) -> None:
    made = built()
    clean(made, groups)
    retired = made.log.replace_segments(made.log.segments[:3], [base for base, _ in groups])
    assert offsets_of(made.log) == [*KEPT, 12, 13]
    assert [segment.base_offset for segment in made.log.segments] == [*(base for base, _ in groups), 12]
    assert retired and all(path.endswith(".deleted") for path in retired)
    for offset in range(14):
        piece = made.log.read(offset, 1, end_offset=14)
        assert piece is not None
    made.append(batch_of())
    assert offsets_of(made.kill()) == offsets_of(made.reopen()) == [*KEPT, 12, 13, 14]


def test_a_reader_of_the_old_segments_is_not_disturbed() -> None:
    made = built()
    piece = made.log.read(0, 1 << 20, end_offset=14)
    assert piece is not None
    before = piece.read()
    clean(made, [(0, KEPT)])
    for path in made.log.replace_segments(made.log.segments[:3], [0]):
        made.disk.remove(path)
    assert piece.read() == before


PLAIN = log_settings(segment_bytes=4 * SIZE, index_interval_bytes=SIZE)
GAPS = [(0, [1]), (4, [5]), (8, [11])]


def test_what_compaction_left_out_is_no_damage_under_another_policy() -> None:
    """The topic was compacted and is now `cleanup.policy=delete`: the next recovery keeps every record behind the gap."""
    made = built()
    clean(made, GAPS)
    made.log.replace_segments(made.log.segments[:3], [0, 4, 8])
    made.config, made.recovery_point = PLAIN, 0
    assert offsets_of(made.kill()) == [1, 5, 11, 12, 13]
    assert not any("cut" in note or "missing" in note for note in made.log.recovery_notes)
    made.append_many(4)
    assert offsets_of(made.reopen()) == [1, 5, 11, 12, 13, 14, 15, 16, 17]


@pytest.mark.parametrize("config", [PLAIN, CONFIG])
def test_a_gap_behind_what_was_compacted_is_damage(config: LogConfig) -> None:
    """A power failure has lost the end of a segment that was never compacted, but not the next segment. Nothing behind the hole is used
    (I5)."""
    made = built()
    clean(made, [(0, [1])])
    made.log.replace_segments(made.log.segments[:1], [0])
    assert isinstance(made.disk, MemDisk)
    path = f"{DIRECTORY}/{8:020d}.log"
    made.disk.write_file(path, made.disk.read_file(path)[: 2 * SIZE])
    made.config, made.recovery_point = config, 0
    assert offsets_of(made.kill()) == [1, 4, 5, 6, 7, 8, 9]


def test_how_far_a_log_was_compacted_is_noted_once() -> None:
    made = built()
    for base in (0, 4, 0):
        clean(made, [(base, [base + 1])])
        segment = next(found for found in made.log.segments if found.base_offset == base)
        for path in made.log.replace_segments([segment], [base]):
            made.disk.remove(path)
    assert [name for name in names(made.disk) if name.endswith(".compacted")] == [f"{8:020d}.compacted"]


def test_a_log_of_kafka_with_a_clean_offset_may_have_gaps_too() -> None:
    made = built()
    clean(made, GAPS)
    made.log.replace_segments(made.log.segments[:3], [0, 4, 8])
    made.disk.remove(f"{DIRECTORY}/{12:020d}.compacted")
    made.log.close(clean=False)
    opened = Log.open(made.disk, DIRECTORY, PARTITION, PLAIN, now_ms=0, was_clean=False, clean_offset=4, topic_id=TOPIC_ID)
    assert offsets_of(opened) == [1, 5, 11, 12, 13]


def test_only_a_run_of_sealed_segments_can_be_replaced() -> None:
    made = built()
    for old, bases in [
        (made.log.segments[2:], [8]),
        ([made.log.segments[0], made.log.segments[2]], [0]),
        (made.log.segments[:2], [1]),
        (made.log.segments[:2], [0, 8]),
    ]:
        with pytest.raises(AssertionError):
            made.log.replace_segments(old, bases)


@pytest.mark.parametrize("groups", [[(0, KEPT)], [(0, [1]), (4, [6, 11])]])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_power_loss_at_every_step_of_a_swap(groups: list[tuple[int, list[int]]], seed: int | None) -> None:
    made = built()
    disk = made.disk
    assert isinstance(disk, MemDisk)
    clean(made, groups)
    images: list[MemDisk] = []
    random = SeededRandom(seed) if seed is not None else None
    disk.on_change = lambda _operation, _path: images.append(disk.image(random))
    made.log.replace_segments(made.log.segments[:3], [base for base, _ in groups])
    disk.on_change = None
    images.append(disk.image(random))
    compacted = 0
    for image in images:
        after = LogBuilder(CONFIG, disk=image, recovery_point=made.recovery_point)
        found = offsets_of(after.log)
        assert found in ([*range(14)], [*KEPT, 12, 13]), "the old or the new"
        compacted += found == [*KEPT, 12, 13]
        assert not [name for name in image.listdir(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert offsets_of(after.reopen()) == found
    assert 0 < compacted < len(images)


@pytest.mark.parametrize("groups", [[(0, KEPT)], [(0, [1]), (4, [6, 11])]])
@pytest.mark.parametrize("seed", range(4))
def test_power_loss_at_every_step_of_a_start_that_finishes_a_swap(groups: list[tuple[int, list[int]]], seed: int) -> None:
    made = built()
    clean(made, groups)
    disk, random = made.disk, SeededRandom(seed)
    assert isinstance(disk, MemDisk)
    images: list[MemDisk] = []
    disk.on_change = lambda _operation, _path: images.append(disk.image(random))
    made.log.replace_segments(made.log.segments[:3], [base for base, _ in groups])
    disk.on_change = None
    again: list[MemDisk] = []
    for image in images:
        image.on_change = lambda _operation, _path, image=image: again.append(image.image(random))  # type: ignore[misc]
        LogBuilder(CONFIG, disk=image, recovery_point=made.recovery_point)
        image.on_change = None
    before, after = ([*range(14)], [0, 4, 8, 12]), ([*KEPT, 12, 13], [*(base for base, _ in groups), 12])
    for image in again:
        log = LogBuilder(CONFIG, disk=image, recovery_point=made.recovery_point).log
        assert (offsets_of(log), [segment.base_offset for segment in log.segments]) in (before, after), "no segments of both"


def test_names_of_deleted_directories_are_free_and_fit() -> None:
    disk = MemDisk(ROOT)
    first = deleted_directory(disk, f"{ROOT}/{'t' * 249}-12", bytes(16))
    assert len(first.rpartition("/")[2]) <= 255 and first.endswith("-delete")
    disk.makedirs(first)
    second = deleted_directory(disk, f"{ROOT}/{'t' * 249}-12", bytes(16))
    assert second != first and len(second.rpartition("/")[2]) <= 255
