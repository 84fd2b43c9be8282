"""The generations of a log directory: which ids each run of the broker appends."""

from __future__ import annotations

import pytest

from ottla.base.cluster_metadata import Renewal
from ottla.storage import generations
from ottla.storage.generations import GENERATIONS_FILE, KEPT_MAX
from tests.fakes.disk import MemDisk
from tests.fakes.randomness import SeededRandom

ROOT = "/data"
RANDOM = SeededRandom(1)


def test_each_life_whose_generation_was_noted_is_followed_by_another_one() -> None:
    disk = MemDisk(ROOT)
    first = generations.begin(disk, ROOT, RANDOM)
    assert len(first) == 1
    disk.crash()
    assert generations.begin(disk, ROOT, RANDOM) == first, "it was durable, and perhaps no controller has noted it"
    for _ in range(2):
        generations.note(disk, ROOT)
        disk.crash()
    second = generations.begin(disk, ROOT, RANDOM)
    assert second[:1] == first and len(set(second)) == 2


def test_a_directory_remembers_a_bounded_number_of_them() -> None:
    disk = MemDisk(ROOT)
    seen: list[str] = []
    for _ in range(KEPT_MAX + 5):
        found = generations.begin(disk, ROOT, RANDOM)
        seen.append(found[-1])
        generations.note(disk, ROOT)
    assert list(found) == seen[-KEPT_MAX:]


@pytest.mark.parametrize("data", [b"", b"\xff\x00garbage", b"noted\n", b"\n\n"])
def test_a_damaged_file_is_no_proof(data: bytes) -> None:
    disk = MemDisk(ROOT)
    generations.begin(disk, ROOT, RANDOM)
    generations.note(disk, ROOT)
    (known,) = generations.begin(disk, ROOT, RANDOM)[:1]
    disk.write_file(f"{ROOT}/{GENERATIONS_FILE}", data)
    assert known not in generations.begin(disk, ROOT, RANDOM)


def test_nothing_is_noted_in_a_directory_without_generations() -> None:
    disk = MemDisk(ROOT)
    generations.note(disk, ROOT)
    assert disk.listdir(ROOT) == []


def test_a_copy_from_before_a_renewal_in_the_store_forgets_its_ids() -> None:
    disk = MemDisk(ROOT)
    assert generations.renew(disk, ROOT) is None, "there is no generation"
    (first,) = generations.begin(disk, ROOT, RANDOM)
    assert generations.renew(disk, ROOT) is None, "no controller has noted it"
    generations.note(disk, ROOT)
    renewed = [generations.renew(disk, ROOT) for _ in range(3)]
    assert renewed == [Renewal(first, number) for number in (1, 2, 3)]
    copy = disk.image()
    assert generations.compare(copy, ROOT, RANDOM, Renewal(first, 3)) == (first,)
    assert generations.compare(copy, ROOT, RANDOM, Renewal(first, 2)) == (first,), "killed between the file and the store"
    (other,) = generations.compare(copy, ROOT, RANDOM, Renewal(first, 4))
    assert other != first
    assert generations.compare(copy, ROOT, RANDOM, Renewal(first, 4)) == (other,), "that is final"
    assert generations.begin(copy, ROOT, RANDOM) == (other,)


def test_a_next_life_is_not_behind_the_renewals_of_the_one_before_it_but_its_copy_is() -> None:
    disk = MemDisk(ROOT)
    generations.begin(disk, ROOT, RANDOM)
    generations.note(disk, ROOT)
    copy = disk.image()
    stored = generations.renew(disk, ROOT)
    assert stored is not None
    ids = generations.begin(disk, ROOT, RANDOM)
    assert len(ids) == 2 and generations.compare(disk, ROOT, RANDOM, stored) == ids
    begun = generations.begin(copy, ROOT, RANDOM)
    assert len(begun) == 2 and not {*begun} & {*generations.compare(copy, ROOT, RANDOM, stored)}
    assert generations.compare(disk, ROOT, RANDOM, Renewal("of another directory", 9)) == ids


def test_a_number_of_thousands_of_digits_is_damage() -> None:
    disk = MemDisk(ROOT)
    disk.write_file(f"{ROOT}/{GENERATIONS_FILE}", b"a:" + b"9" * 5_000 + b"\nnoted\n")
    assert generations.renew(disk, ROOT) == Renewal("a", 1)
