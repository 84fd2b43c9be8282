"""The summary at the end of `produce`: the number of records, their offsets, and whether the topic was created.

When a broker refuses a single record for its content, such as a too large one, the error is printed immediately, and the other records are
still sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.counted import counted
from ottla.base.errors import ErrorCode
from ottla.cli.output import write_error
from ottla.cli.render.ottla import Output
from ottla.client.errors import KafkaError

if TYPE_CHECKING:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.producer import Delivery

SHOWN_PARTITIONS_MAX = 4
SHOWN_BYTES_MAX = 40
OF_ONE_RECORD = frozenset(
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
)
"""Errors of a single record. The producer has split the batch until the refused record was alone, so other records may succeed."""


class Summary:
    """Collects the offsets of delivered records. With `goes_on`, it prints and counts refused single records instead of raising."""

    def __init__(self, topic: str, *, goes_on: bool = False) -> None:
        self.refused = 0
        self._topic = topic
        self._goes_on = goes_on
        self._offsets: dict[int, tuple[int, int]] = {}
        self._is_without_offsets = False

    def add(self, delivery: Delivery) -> None:
        """Adds a delivered batch. Raises the error of a failed batch, unless it is an error of a single record and `goes_on`."""
        error = delivery.error
        if self._goes_on and isinstance(error, KafkaError) and error.code in OF_ONE_RECORD and len(delivery.records) == 1:
            self.refused += 1
            value = bytes(delivery.records[0].value or b"")
            beginning = value[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
            write_error(f"error: the record of {counted(len(value), 'byte')} that begins with {beginning!r} was refused: {error}\n")
            return
        if error is not None:
            raise error
        if delivery.base_offset < 0:  # acks=0 has no answer
            self._is_without_offsets = True
            return
        last = delivery.base_offset + len(delivery.records) - 1
        number = delivery.partition.partition
        first, highest = self._offsets.get(number, (delivery.base_offset, last))
        self._offsets[number] = (min(first, delivery.base_offset), max(highest, last))

    def show(self, output: Output, cluster: Cluster, count: int, *, is_new: bool) -> None:
        """Prints the summary: in table form as sentences on stderr, unless `-q`; in other forms as an object on stdout."""
        if output.form != "table":
            offsets = [{"partition": number, "first": first, "last": last} for number, (first, last) in sorted(self._offsets.items())]
            output.show_object({"topic": self._topic, "records": count, "is_new_topic": is_new, "offsets": offsets})
            return
        if is_new and count:
            many = counted(len(cluster.partitions(self._topic)), "partition")
            output.note(f"topic {self._topic} did not exist and was created, with {many}")
        output.note(self.sentence(count))

    def sentence(self, count: int) -> str:
        """Returns the summary in one sentence: `5 records to orders, offsets 0-4`."""
        start = f"{counted(count, 'record')} to {self._topic}"
        if not self._offsets or self._is_without_offsets:
            return start
        ranges = {number: str(first) if first == last else f"{first}-{last}" for number, (first, last) in sorted(self._offsets.items())}
        if len(ranges) > SHOWN_PARTITIONS_MAX:
            return f"{start} in {counted(len(ranges), 'partition')}"
        if list(ranges) == [0]:
            return f"{start}, offset{'' if '-' not in ranges[0] else 's'} {ranges[0]}"
        return f"{start}, " + "; ".join(f"partition {number} offset{'s' if '-' in text else ''} {text}" for number, text in ranges.items())
