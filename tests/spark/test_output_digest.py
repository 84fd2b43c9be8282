"""The digest of an output does not depend on stamps or on the order of partitions, and changes with any record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.client import TopicPartition
from ottla.spark.output_digest import DigestPart, OutputDigest, combine_crc32c
from ottla.wire.batch_header import stamp_producer
from ottla.wire.checksum import crc32c
from ottla.wire.records import Record, encode_batch

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def batch(*values: bytes) -> bytearray:
    return bytearray(encode_batch([Record(number, 1356998400000, None, value, ()) for number, value in enumerate(values)]))


def digest(*parts: tuple[TopicPartition, bytearray]) -> str:
    found = OutputDigest()
    for partition, data in parts:
        found.add(partition, data)
    return found.text()


def test_stamps_change_nothing() -> None:
    stamped = batch(b"one", b"two")
    stamp_producer(stamped, 0, len(stamped), producer_id=7, producer_epoch=3, base_sequence=40)
    assert digest((A, stamped)) == digest((A, batch(b"one", b"two")))


def test_partitions_may_come_in_any_order_and_batches_may_not() -> None:
    one, two = batch(b"one"), batch(b"two")
    assert digest((A, one), (B, two)) == digest((B, two), (A, one))
    assert digest((A, one), (A, two)) != digest((A, two), (A, one))


def test_other_records_and_other_partitions_give_another_digest() -> None:
    found = {digest((A, batch(b"one"))), digest((B, batch(b"one"))), digest((A, batch(b"two"))), digest((A, batch(b"one"))), digest()}
    assert len(found) == 4


def test_what_tasks_have_computed_apart_gives_the_same_digest() -> None:
    batches = [batch(b"one"), batch(b"two", b"three"), batch(b"four")]
    parts = [DigestPart().add(batches[0]).add(batches[1]), DigestPart().add(batches[2])]
    found = OutputDigest()
    for part in parts:
        found.add_part(A, part)
    found.add(B, batches[0])
    assert found.text() == digest(*((A, one) for one in batches), (B, batches[0]))
    assert found.rows == 5


def test_rows_of_all_partitions_are_counted() -> None:
    found = OutputDigest()
    found.add(A, batch(b"one", b"two"))
    found.add(A, batch(b"three"))
    found.add(B, batch(b"four"))
    assert found.rows == 4


# The checksum of two pieces


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_pieces_have_the_checksum_of_the_whole(first: bytes, second: bytes) -> None:
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


def test_a_piece_longer_than_any_power_of_the_polynomial_repeats() -> None:
    half = crc32c(bytes(1 << 20))
    length = 1 << 20
    while length < 1 << 33:
        half, length = combine_crc32c(half, half, length), length * 2
    assert combine_crc32c(half, crc32c(b"x"), 1) == crc32c(b"x", half)
    left = combine_crc32c(combine_crc32c(crc32c(b"x"), half, length), half, length)
    assert left == combine_crc32c(crc32c(b"x"), combine_crc32c(half, half, length), 2 * length), "however the pieces are put together"


def test_long_pieces_and_empty_ones() -> None:
    first, second = b"a", bytes(range(256)) * 40_000
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
    assert combine_crc32c(0, crc32c(second), len(second)) == crc32c(second)
    assert combine_crc32c(crc32c(second), 0, 0) == crc32c(second)
