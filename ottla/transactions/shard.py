"""The state of one shard (a partition of `__transaction_state`), and the interfaces of the parts that it uses.

Hard state is `transactions` and `ongoing`, a function of the log; only `apply` writes it. The other fields are soft state. `waiting` has
the requests that wait for a transaction to complete. `clients` has the last user of each id on this broker, for operators and for the
memory of each principal. `ahead` has the transactions that began on a clock ahead of this broker's clock. `is_abandoned` is set when this
broker no longer leads the partition.

Invariant: `transactions` has the order of the log, the id with the oldest record first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode
from ottla.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition
from ottla.machine.contract import Decision, LogRecord, Reply, RunDecision, run_nothing
from ottla.machine.draft import answered, same_code
from ottla.machine.memory import NO_OWNER, CoordinatorMemory
from ottla.transactions.metadata import Marker, TransactionMetadata
from ottla.transactions.records import read_record
from ottla.transactions.settings import TransactionCoordinatorSettings
from ottla.transactions.states import ONGOING, PREPARED

Waiter = Callable[[ErrorCode], None]
"""Called with NONE when the request is to be decided again, or with an error when this broker stops coordinating."""


class MarkerSender(Protocol):
    """Writes the markers of a transaction to all of its partitions, whichever brokers lead them, and repeats failed writes."""

    def send(
        self, marker: Marker, partitions: Sequence[TopicPartition], is_wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        """Calls `done` once when every partition has its marker or is deleted, possibly before this returns. Never calls `done` if a later
        coordinator has written markers. Repeats nothing once `is_wanted` returns False."""


class ProducerIdSource(Protocol):
    def take(self) -> int | None:
        """Returns a new producer id; None if there is none before the next block, which is then fetched."""

    def next(self, done: Callable[[int, ErrorCode], None]) -> None:
        """Takes an id as `take` does, but waits for the next block if necessary: `done(producer_id, NONE)` or `done(-1, error)`."""

    def when_ready(self, done: Callable[[ErrorCode], None]) -> None:
        """Calls `done` with NONE when there are ids to take, or with the error."""


ID_BYTES = 1000
"""Memory of a transactional id besides its characters, in bytes: its metadata, its dict entry, its last client."""
PARTITION_BYTES = 300
"""Memory of one partition of an open transaction, with its topic's name, in bytes."""
_ON_TIME = (NO_TIMESTAMP, 0)


class EndResult(NamedTuple):
    """The result of InitProducerId or EndTxn, with the identity that the client uses from now on.

    `ongoing_*` name a transaction that InitProducerId kept open (KIP-939).
    """

    code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_producer_epoch: int = NO_PRODUCER_EPOCH


class LastClient(NamedTuple):
    client_id: str = ""
    host: str = ""
    owner: str = NO_OWNER


UNKNOWN_CLIENT = LastClient()


class EndCounts:
    """How many transactions the coordinators of a broker have ended: committed or aborted, with all markers written."""

    def __init__(self) -> None:
        self.committed = self.aborted = 0


class Shard:
    """The state of one shard. `run` runs a decision on the shard's host."""

    def __init__(
        self,
        coordinator_epoch: int,
        settings: TransactionCoordinatorSettings,
        producer_ids: ProducerIdSource,
        markers: MarkerSender,
        memory: CoordinatorMemory,
        ended: EndCounts,
    ) -> None:
        self.transactions: dict[str, TransactionMetadata] = {}
        self.memory = memory.share(self._sizes, self.transactions)
        self.coordinator_epoch = coordinator_epoch
        self.settings = settings
        self.producer_ids = producer_ids
        self.markers = markers
        self.ended = ended
        self.run: RunDecision = run_nothing
        self.ongoing: dict[str, None] = {}
        self.waiting: dict[str, list[Waiter]] = {}
        self.clients: dict[str, LastClient] = {}
        self.ahead: dict[str, tuple[int, int]] = {}
        self.is_abandoned = False

    def apply(self, record: LogRecord) -> None:
        """Applies a record to hard state."""
        decoded = read_record(record)
        if decoded is None:
            return
        transactional_id, metadata = decoded
        # The id moves to the end: the order of updates is the order of the dict.
        self.transactions.pop(transactional_id, None)
        if metadata is not None:
            self.transactions[transactional_id] = metadata
        else:
            self.clients.pop(transactional_id, None)
        if metadata is not None and metadata.state is ONGOING:
            self.ongoing[transactional_id] = None
        else:
            self.ongoing.pop(transactional_id, None)

    def owner_of(self, transactional_id: str) -> str:
        return self.clients.get(transactional_id, UNKNOWN_CLIENT).owner

    def _sizes(self) -> Iterator[tuple[str, int]]:
        """Yields the owner and the approximate memory, in bytes, of each id that exists when the iteration begins."""
        for metadata in list(self.transactions.values()):
            yield self.owner_of(metadata.transactional_id), held_bytes(metadata.transactional_id, metadata.partitions)

    def note_clock(self, now_ms: int) -> None:
        """Called after loading. Restarts the timeouts of transactions that began in the future of this broker's clock, because this clock
        was set back or the previous coordinator's clock was fast.
        """
        for transactional_id in self.ongoing:
            start_ms = self.transactions[transactional_id].start_timestamp_ms
            if start_ms > now_ms:
                self.ahead[transactional_id] = start_ms, start_ms - now_ms

    def is_timed_out(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        start_ms, ahead_ms = self.ahead.get(metadata.transactional_id, _ON_TIME)
        return metadata.is_timed_out(now_ms + ahead_ms if start_ms == metadata.start_timestamp_ms else now_ms)

    def is_completing(self, transactional_id: str) -> bool:
        """Whether the transaction's end is logged and its markers are being written."""
        metadata = self.transactions.get(transactional_id)
        return metadata is not None and metadata.state in PREPARED

    def wait_for_completion(self, transactional_id: str, waiter: Waiter) -> None:
        assert self.is_completing(transactional_id)
        self.waiting.setdefault(transactional_id, []).append(waiter)

    def forget_waiter(self, transactional_id: str, waiter: Waiter) -> bool:
        """Removes a waiting request; returns whether it was waiting."""
        waiters = self.waiting.get(transactional_id, [])
        if waiter not in waiters:
            return False
        waiters.remove(waiter)
        if not waiters:
            del self.waiting[transactional_id]
        return True

    def wake(self, transactional_id: str) -> None:
        """Decides again the requests that wait for a transaction of this id to complete."""
        for waiter in self.waiting.pop(transactional_id, ()):
            waiter(ErrorCode.NONE)


def held_bytes(transactional_id: str, partitions: Collection[TopicPartition]) -> int:
    letters = len(transactional_id) if transactional_id.isascii() else 4 * len(transactional_id)
    return ID_BYTES + letters + PARTITION_BYTES * len(partitions)


def answer_code(reply: Reply, code: ErrorCode) -> Decision:
    """Makes a decision that answers with a code. If the host closes first, its error is the answer."""
    return answered(reply, code, same_code)


def answer_end(reply: Reply, code: ErrorCode, metadata: TransactionMetadata | None = None) -> Decision:
    """Makes a decision that answers with an `EndResult`, which has the client's identity if `metadata` is given."""
    identity = metadata.identity if metadata is not None else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return answered(reply, EndResult(code, identity[0], identity[1]), EndResult)
