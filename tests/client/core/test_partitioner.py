"""Keys land where Kafka's own client puts them."""

from __future__ import annotations

import random

import pytest

from ottla.client.core.partitioner import StickyPartitioner, murmur2, partition_for_group, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_known_values(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_the_partition_drops_the_sign() -> None:
    assert partition_for_key(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_a_group_is_where_java_s_hash_of_its_name_says() -> None:
    assert partition_for_group("my-group", 50) == 12
    assert partition_for_group("polygenelubricants", 50) == 0  # its hash is the smallest int


def test_records_without_a_key_stick_until_the_batch_is_full() -> None:
    sticky = StickyPartitioner(random.Random(1).choice)
    first = sticky.current("t", [0, 1, 2])
    assert {sticky.current("t", [0, 1, 2]) for _ in range(20)} == {first}
    sticky.move_on("t", [0, 1, 2])
    assert sticky.current("t", [0, 1, 2]) != first


def test_with_one_partition_there_is_nowhere_to_move() -> None:
    sticky = StickyPartitioner(random.Random(1).choice)
    sticky.move_on("t", [4])
    assert sticky.current("t", [4]) == 4
