"""`ottla consume --share-group GROUP`: prints records acquired from a share group, then accepts, rejects or releases them.

Exactly the printed records are acknowledged. Output is written before the acknowledgement is sent, so a crash in between prints a record
twice, but loses none. With `-c N` at most N records are acquired; the leaders of the partitions are asked one after the other, so that they
do not acquire N records each. A broker that does not support the limit (ShareFetch 1), or the property
`share.acquire.mode=batch_optimized`, acquires more; these records are released at the end of the command. Refused acknowledgements are
reported at the end, with exit code 1, because the group delivers those records again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from ottla.base.counted import counted
from ottla.base.errors import ApiError
from ottla.base.types import TopicPartition
from ottla.cli.command import Args, UsageError, flag, headed, option
from ottla.cli.options import output_of, properties_of
from ottla.cli.output import bytes_writer
from ottla.cli.records.client_options import make_share_consumer
from ottla.cli.records.record_format import processed_count

if TYPE_CHECKING:
    from ottla.cli.records.record_format import Formatter
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.share_consumer import ShareConsumer
    from ottla.client.core.share_session import AcquiredRecord, Run

POLL_S = 0.5
ACTIONS = ("accept", "reject", "release")
_SETTINGS = "such a group's start and isolation are settings of the group"
_MEMBERS = "the group's coordinator gives its members partitions, and more records arrive behind each end"
_ALL = "each record that was acquired is printed and acknowledged"
NOT_SHARED = {
    "group": ("--group", "a consumer is a member of one group"),
    "from_beginning": ("--from-beginning", _SETTINGS),
    "offset": ("--offset", _SETTINGS),
    "isolation_level": ("--isolation-level", _SETTINGS),
    "partition": ("--partition", _MEMBERS),
    "at_end": ("-e", _MEMBERS),
    "grep": ("--grep", _ALL),
    "where": ("--where", _ALL),
    "print_control_records": ("--print-control-records", "a share group delivers none"),
}
"""Options that `--share-group` excludes, each with the reason."""

OPTIONS = headed(
    "share groups",
    option("--share-group", metavar="GROUP", help="take records from this share group"),
    flag("--accept", help="acknowledge what was printed (the default)"),
    flag("--reject", help="reject the printed records: no consumer gets them again"),
    flag("--release", help="release the printed records: other consumers may get them"),
)


def check_usage(args: Args) -> None:
    """Raises UsageError for options that exclude each other."""
    chosen = [action for action in ACTIONS if getattr(args, action)]
    if args.share_group is None:
        if chosen:
            raise UsageError(f"--{chosen[0]} is for share groups: add --share-group GROUP")
        return
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} exclude each other")
    for name, (shown, why) in NOT_SHARED.items():
        if getattr(args, name):
            raise UsageError(f"{shown} does not go with --share-group: {why}")


def run(cluster: Cluster, args: Args, topics: list[str], formatter: Formatter | None) -> int:
    reading = _ShareReading(cluster, args, formatter)
    output = output_of(args)
    with processed_count(output, lambda: reading.count):
        reading.run(topics)
    for error, count in reading.refused.items():
        output.error(f"{counted(count, 'acknowledgement')} too late or refused, so others get the records, too ({error})", error)
    return 1 if reading.refused else 0


class _ShareReading:
    """One run of `consume --share-group`: prints records, acknowledges them, and knows when to stop."""

    def __init__(self, cluster: Cluster, args: Args, formatter: Formatter | None) -> None:
        from ottla.client.core.share_session import ACCEPT, REJECT, RELEASE

        self.cluster = cluster
        self.args = args
        self.formatter = formatter
        self.kind = REJECT if args.reject else RELEASE if args.release else ACCEPT
        self.limit: int | None = None if args.max_messages == -1 else args.max_messages
        self.count = 0
        self.refused: dict[str, int] = {}
        self._write = bytes_writer(sys.stdout)

    def run(self, topics: list[str]) -> None:
        consumer = self._consumer()
        with consumer:
            consumer.subscribe(topics)
            try:
                self._read(consumer)
            except OSError:  # stdout is closed, so the records must be delivered again
                consumer.abandon()
                raise
            except KeyboardInterrupt:
                from ottla.client.errors import ClientError

                sys.stdout.buffer.flush()
                with contextlib.suppress(ApiError, ClientError):
                    consumer.close()  # acknowledges the printed records and releases all others
                raise

    def _consumer(self) -> ShareConsumer:
        timeout_ms = self.args.timeout_ms
        return make_share_consumer(
            self.cluster,
            properties_of(self.args),
            self.args.share_group,
            is_explicit=True,
            has_record_limit=self.limit is not None,
            max_wait_ms=500 if timeout_ms is None else max(1, min(500, timeout_ms // 2)),
            on_acknowledged=self._acknowledged,
        )

    def _acknowledged(self, _: TopicPartition, runs: list[Run], error: ApiError | None) -> None:
        if error is not None:
            self.refused[error.code.name] = self.refused.get(error.code.name, 0) + sum(run.size for run in runs)

    def _read(self, consumer: ShareConsumer) -> None:
        waited_since = time.monotonic()
        most = consumer.limits.max_records
        while self.limit is None or self.count < self.limit:
            if self.limit is not None:
                consumer.limits = consumer.limits._replace(max_records=min(most, self.limit - self.count))
            found = consumer.poll(POLL_S if self.args.timeout_ms is None else min(POLL_S, self.args.timeout_ms / 1000))
            for delivery in found:
                if self.count == self.limit:
                    break  # `close` releases the rest
                self._print(delivery)
                consumer.acknowledge(delivery, self.kind)
            sys.stdout.buffer.flush()
            now = time.monotonic()
            if found:
                waited_since = now
            elif self.args.timeout_ms is not None and (now - waited_since) * 1000 >= self.args.timeout_ms:
                return

    def _print(self, delivery: AcquiredRecord) -> None:
        record = delivery.record
        if self.formatter is None:
            self._write((b"null" if record.value is None else record.value) + b"\n")
        else:
            self._write(self.formatter(*delivery.partition, delivery.header, record, delivery.number))
        self.count += 1
