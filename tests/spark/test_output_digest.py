"""The digest of an output does not depend on stamps or on the order of partitions, and changes with any record."""

from __future__ import annotations

from ottla.client import TopicPartition
from ottla.spark.output_digest import DigestPart, OutputDigest
from ottla.wire.batch_header import stamp_producer
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
