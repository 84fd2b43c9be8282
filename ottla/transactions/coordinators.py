"""Routes commands to the shard of a transactional id; a request waits while the previous transaction completes.

`TransactionCoordinators` finds the shard (Java's hash of the id, as in Kafka), runs the command on its host and passes the result to
`done`. If this broker is not the coordinator, the result is NOT_COORDINATOR. While the shard loads, it is COORDINATOR_LOAD_IN_PROGRESS. If
`__transaction_state` does not exist, or too many answers of the shard wait for replicas, it is COORDINATOR_NOT_AVAILABLE.

Between Prepare* and Complete* Kafka answers CONCURRENT_TRANSACTIONS, and the client tries again after a pause. Here InitProducerId and
added partitions wait for the completion, at most `completion_wait_ms`, and are then decided again, at most `ATTEMPTS_MAX` times in all.
EndTxn and the verification of partitions are answered at once. EndTxn does not wait because it must never end the next transaction
(ydb #52731).

`admit` checks a transactional write (Produce, TxnOffsetCommit, staged records): with transactions v2 its partitions are added to the
transaction, with older versions they are verified, unless verification is switched off. If another broker is the coordinator, that broker
is asked (`remote.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import ID_CHARACTERS_MAX, is_too_long
from ottla.base.ports import Clock, TimerHandle, Timers
from ottla.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.machine.contract import Decision, Reply
from ottla.machine.coordinator import Coordinator
from ottla.machine.draft import same_code
from ottla.machine.host import HostState, MachineHost
from ottla.machine.memory import CoordinatorMemory
from ottla.transactions.add_partitions import decide_add, decide_verify
from ottla.transactions.end_transaction import decide_end
from ottla.transactions.init_producer_id import InitProducerId, decide_init, validate
from ottla.transactions.machine import TransactionMachine
from ottla.transactions.markers import LocalMarkers
from ottla.transactions.metadata import TRANSACTIONS_V2, ProducerIdAndEpoch, TransactionMetadata
from ottla.transactions.queries import ListFilter, decide_describe, decide_list
from ottla.transactions.remote import DoneCodes, OtherCoordinators
from ottla.transactions.settings import TransactionCoordinatorSettings
from ottla.transactions.shard import UNKNOWN_CLIENT, EndCounts, EndResult, LastClient, MarkerSender, ProducerIdSource, Shard

ATTEMPTS_MAX = 4

DoneCode = Callable[[ErrorCode], None]
DoneEnd = Callable[[EndResult], None]
TransactionCommand = Callable[[Shard, int, Reply], Decision]
"""Decides a command on a shard, given the time in milliseconds, and replies."""

# Errors of a refused Produce. A producer looks for no coordinator after Produce, so errors of coordinators become a retriable error.
PRODUCE_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.BROKER_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class HasHost(Protocol):
    @property
    def host(self) -> str: ...

    @property
    def owner(self) -> str: ...


class TransactionClient(Protocol):
    """The client that used a transactional id. `handlers.context.RequestContext` has these properties."""

    @property
    def client_id(self) -> str | None: ...

    @property
    def connection(self) -> HasHost: ...


class TransactionCoordinators(Coordinator[str]):
    """The transaction coordinators of this broker. The key of the base class is the transactional id."""

    settings: TransactionCoordinatorSettings

    def __init__(
        self,
        *,
        partition_count: Callable[[], int],
        group_partition: Callable[[str], int],
        settings: TransactionCoordinatorSettings,
        producer_ids: ProducerIdSource,
        markers: MarkerSender,
        local_markers: LocalMarkers,
        clock: Clock,
        timers: Timers,
        elsewhere: OtherCoordinators,
        load_bytes: Callable[[], int],
        memory: CoordinatorMemory | None = None,
    ) -> None:
        """`group_partition` returns the partition of `__consumer_offsets` for a group."""
        super().__init__(
            TRANSACTION_STATE_TOPIC,
            partition_count=partition_count,
            settings=settings,
            clock=clock,
            timers=timers,
            load_bytes=load_bytes,
        )
        self.ended = EndCounts()
        self.producer_ids = producer_ids
        self.local_markers = local_markers
        self._group_partition = group_partition
        self._markers = markers
        self._elsewhere = elsewhere
        self._memory = memory

    # Shards

    def _new_machine(self, partition: Any) -> TransactionMachine:
        return self.new_machine(partition.leader.epoch)

    def new_machine(self, coordinator_epoch: int) -> TransactionMachine:
        """Makes the machine for a partition that this broker leads in the leader epoch `coordinator_epoch`."""
        return TransactionMachine(coordinator_epoch, self.settings, self.producer_ids, self._markers, self._memory, self.ended)

    def host_of(self, transactional_id: str) -> MachineHost:
        """Returns the active host of an id's shard. Raises ApiError INVALID_REQUEST for an id that is too long, COORDINATOR_NOT_AVAILABLE
        without the topic, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        if is_too_long(transactional_id):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a transactional id has at most {ID_CHARACTERS_MAX} characters")
        return self._active(self._hosts.get(self.partition_for(transactional_id)), transactional_id)

    def note_client(self, transactional_id: str, client: TransactionClient) -> None:
        """Records the client that used the id last. It is kept until the coordinator moves or the id expires."""
        shard = self._shard_of(transactional_id)
        if shard is not None and transactional_id in shard.transactions:
            shard.clients[transactional_id] = LastClient(client.client_id or "", client.connection.host, client.connection.owner)

    def client_of(self, transactional_id: str) -> LastClient:
        """Returns the client that used the id last; `UNKNOWN_CLIENT` if this coordinator does not know the client."""
        shard = self._shard_of(transactional_id)
        return shard.clients.get(transactional_id, UNKNOWN_CLIENT) if shard is not None else UNKNOWN_CLIENT

    def _shard_of(self, transactional_id: str) -> Shard | None:
        host = self.find(transactional_id)
        return host.machine.shard if host is not None else None

    # Commands

    def init_producer_id(self, command: InitProducerId, done: DoneEnd) -> None:
        """Runs InitProducerId. An invalid command is refused at once, as in Kafka, even if the shard is loading or on another broker."""
        code = validate(command, self.settings)
        if code:
            done(EndResult(code))
            return
        self._run_or_wait(
            command.transactional_id, lambda shard, now_ms, reply: decide_init(shard, now_ms, command, reply), done, EndResult
        )

    def add_partitions(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], version: int, done: DoneCode
    ) -> None:
        wanted = frozenset(partitions)
        self._run_or_wait(
            transactional_id,
            lambda shard, now_ms, reply: decide_add(shard, now_ms, transactional_id, identity, wanted, version, reply),
            done,
            same_code,
        )

    def add_offsets(self, transactional_id: str, identity: ProducerIdAndEpoch, group_id: str, version: int, done: DoneCode) -> None:
        try:
            offsets = TopicPartition(GROUP_METADATA_TOPIC, self._group_partition(group_id))
        except ApiError as error:
            done(error.code)
            return
        self.add_partitions(transactional_id, identity, (offsets,), version, done)

    def verify_partitions(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Sequence[TopicPartition], done: DoneCodes
    ) -> None:
        def refuse(code: ErrorCode) -> None:
            done(dict.fromkeys(partitions, code))

        self._run(
            transactional_id,
            lambda shard, _now_ms, reply: decide_verify(shard, transactional_id, identity, partitions, reply),
            lambda result: refuse(result) if isinstance(result, ErrorCode) else done(result),
            same_code,
        )

    def end(self, transactional_id: str, identity: ProducerIdAndEpoch, is_commit: bool, version: int, done: DoneEnd) -> None:
        self._run(
            transactional_id,
            lambda shard, now_ms, reply: decide_end(shard, now_ms, transactional_id, identity, is_commit, version, reply),
            done,
            EndResult,
        )

    def describe(self, transactional_id: str, done: Callable[[TransactionMetadata | ErrorCode | None], None]) -> None:
        """Passes to `done` the transaction, None if the id is unknown, or an error."""
        self._run(transactional_id, lambda shard, _now_ms, reply: decide_describe(shard, transactional_id, reply), done, same_code)

    def list_transactions(
        self, wanted: ListFilter, done: Callable[[list[TransactionMetadata], ErrorCode], None]
    ) -> Generator[None, None, None]:
        """Lists the transactions of this broker's shards, one shard in each step. If a shard was loading at the beginning, its transactions
        are missing and the error code is COORDINATOR_LOAD_IN_PROGRESS. Shards that this broker resigns meanwhile are missing, too.
        """
        hosts = [host for host in self.all_hosts() if host.state is HostState.ACTIVE]
        is_loading = any(host.state is HostState.LOADING for host in self._hosts.values())
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        found: list[TransactionMetadata] = []
        missing = len(hosts)
        if not hosts:
            done(found, code)

        def collect(result: list[TransactionMetadata]) -> None:
            nonlocal missing
            found.extend(result)
            missing -= 1
            if not missing:
                done(found, code)

        for host in hosts:
            try:
                host.run(lambda now_ms, shard=host.machine.shard: decide_list(shard, now_ms, wanted, collect))  # type: ignore[misc]
            except ApiError:
                collect([])  # this broker has resigned since the first step
            yield

    # Produce

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        is_v2: bool,
        done: DoneCodes,
    ) -> None:
        """Passes to `done` whether a transactional batch may be appended, as an error code of Produce for each partition."""
        identity = ProducerIdAndEpoch(producer_id, producer_epoch)
        if not is_v2 and not self.settings.is_verification_enabled:
            done(dict.fromkeys(partitions, ErrorCode.NONE))
            return

        def answered(codes: dict[TopicPartition, ErrorCode]) -> None:
            done({partition: produce_error(code, is_v2) for partition, code in codes.items()})

        try:
            shard = self.partition_for(transactional_id)
        except ApiError as error:  # without `__transaction_state` there is no transaction
            answered(dict.fromkeys(partitions, error.code))
            return
        if shard not in self._hosts:
            self._elsewhere.add_partitions(shard, transactional_id, identity, partitions, not is_v2, answered)
        elif is_v2:
            self.add_partitions(
                transactional_id, identity, partitions, TRANSACTIONS_V2, lambda code: answered(dict.fromkeys(partitions, code))
            )
        else:
            self.verify_partitions(transactional_id, identity, partitions, answered)

    # Running

    def _run(self, transactional_id: str, command: TransactionCommand, done: Reply, refuse: Callable[[Any], Any]) -> None:
        try:
            host = self.host_of(transactional_id)
        except ApiError as error:
            done(refuse(error.code))
            return
        if host.is_full:
            done(refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        shard = host.machine.shard
        host.run(lambda now_ms: command(shard, now_ms, done))

    def _run_or_wait(self, transactional_id: str, command: TransactionCommand, done: Reply, refuse: Callable[[Any], Any]) -> None:
        waiting = _CompletionWait(self, transactional_id, command, done, refuse)
        self._run(transactional_id, command, waiting.answered, refuse)


class _CompletionWait:
    """One request that waits for the previous transaction to complete instead of failing with CONCURRENT_TRANSACTIONS."""

    __slots__ = ("_attempts", "_command", "_coordinators", "_done", "_last", "_refuse", "_timer", "_transactional_id")

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        transactional_id: str,
        command: TransactionCommand,
        done: Reply,
        refuse: Callable[[Any], Any],
    ) -> None:
        self._coordinators = coordinators
        self._transactional_id = transactional_id
        self._command = command
        self._done = done
        self._refuse = refuse
        self._attempts = 1
        self._last: Any = None
        self._timer: TimerHandle | None = None

    def answered(self, result: Any) -> None:
        code = result.code if isinstance(result, EndResult) else result
        wait_ms = self._coordinators.settings.completion_wait_ms
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or wait_ms <= 0 or self._attempts >= ATTEMPTS_MAX:
            self._finish(result)
            return
        self._attempts += 1
        try:
            shard = self._coordinators.host_of(self._transactional_id).machine.shard
        except ApiError as error:
            self._finish(self._refuse(error.code))
            return
        if not shard.is_completing(self._transactional_id):
            self._again()
            return
        self._last = result
        shard.wait_for_completion(self._transactional_id, self._woken)
        if self._timer is None:
            self._timer = self._coordinators._timers.call_later(wait_ms, lambda: self._give_up(shard))

    def _woken(self, code: ErrorCode) -> None:
        if code:
            self._finish(self._refuse(code))
        else:
            self._again()

    def _again(self) -> None:
        self._coordinators._run(self._transactional_id, self._command, self.answered, self._refuse)

    def _give_up(self, shard: Any) -> None:
        """Answers the request with its last result after the maximum wait, unless it was decided again and that decision still waits for
        its replicas; the decision then answers the request."""
        self._attempts = ATTEMPTS_MAX
        if shard.forget_waiter(self._transactional_id, self._woken):
            self._finish(self._last)

    def _finish(self, result: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._done(result)


def produce_error(code: ErrorCode, is_v2: bool) -> ErrorCode:
    """Returns the error code of a transactional write for a coordinator's error. Clients before transactions v2 (Produce 12,
    TxnOffsetCommit 5) do not expect CONCURRENT_TRANSACTIONS."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not is_v2:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return PRODUCE_ERRORS.get(code, code)
