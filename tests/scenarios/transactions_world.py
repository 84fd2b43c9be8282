"""Executes the commands of the transaction scenarios: on one transaction coordinator with a log in memory, for clients that are names in
commands.

A client has the transactional id `tx` unless `init` names another. It remembers its last identity: the producer id P and epoch E that
`init` returned last. With `as=P/E` a command uses another identity. Output is one line for each answer and each set of markers sent, in
order, then one line for each record that was logged.

    init NAME [id=tx] [timeout=60000] [holding | holding=P/E] [2pc] [keep]      `holding` names the identity it has (KIP-360)
    add NAME TOPIC-PARTITION [...] [v=0|2];   offsets NAME GROUP;   verify NAME TOPIC-PARTITION [...]
    admit NAME TOPIC-PARTITION [...] [v2];   end NAME commit|abort [v=1|2]
    hold-markers / release-markers (their acknowledgement);   hold / release (the high watermark)
    given TXID P/E STATE [TOPIC-PARTITION ...] [previous=P] (a record that is there already)
    advance MS;   refuse CODE (the next append);   restart (`load`, then `loaded`);   close;   set NAME=VALUE
    describe TXID;   list [state=S] [open-for=MS]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.loop.turns import run_steps
from ottla.base.types import TopicPartition
from ottla.machine.contract import Decision, LogRecord
from ottla.machine.host import MachineHost
from ottla.machine.memory import CoordinatorMemory
from ottla.transactions.coordinators import TransactionCoordinators
from ottla.transactions.init_producer_id import InitProducerId
from ottla.transactions.markers import LocalMarkers
from ottla.transactions.metadata import NO_IDENTITY, Marker, ProducerIdAndEpoch, TransactionMetadata
from ottla.transactions.producer_ids import ProducerIds
from ottla.transactions.queries import ListFilter
from ottla.transactions.records import read_record, state_record
from ottla.transactions.settings import TransactionCoordinatorSettings
from ottla.transactions.shard import EndResult
from ottla.transactions.states import TransactionState
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import transaction_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.memory_store import MemoryStore
from tests.fakes.peers import NO_OTHER_COORDINATORS
from tests.fakes.timers import ManualTimers

SHARDS = 1


def show_partitions(partitions: Sequence[TopicPartition]) -> str:
    return "[" + " ".join(str(partition) for partition in sorted(partitions)) + "]"


def show_metadata(metadata: TransactionMetadata) -> str:
    text = f"{metadata.transactional_id} {metadata.state.value} {metadata.producer_id}/{metadata.producer_epoch}"
    if metadata.previous_producer_id >= 0:
        text += f" previous={metadata.previous_producer_id}"
    if metadata.next_producer_id >= 0:
        text += f" next={metadata.next_producer_id}/{metadata.next_producer_epoch}"
    return text + (" " + show_partitions(list(metadata.partitions)) if metadata.partitions else "")


def show_record(record: LogRecord) -> str:
    decoded = read_record(record)
    if decoded is None:
        return "unreadable"
    return show_metadata(decoded.metadata) if decoded.metadata is not None else f"{decoded.transactional_id} tombstone"


def show_end(result: EndResult) -> str:
    if result.code:
        return result.code.name
    text = f"NONE {result.producer_id}/{result.producer_epoch}"
    return text + (f" ongoing={result.ongoing_producer_id}/{result.ongoing_producer_epoch}" if result.ongoing_producer_id >= 0 else "")


def parse_identity(text: str) -> ProducerIdAndEpoch:
    producer_id, _, epoch = text.partition("/")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


def parse_partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


class HeldMarkers:
    """`MarkerSender` that shows what is sent, and acknowledges at once or on demand."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.is_holding = False
        self.held: list[Callable[[], None]] = []
        self._say = say

    def send(
        self,
        marker: Marker,
        partitions: Sequence[TopicPartition],
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        kind, where = "commit" if marker.is_commit else "abort", show_partitions(partitions)
        identity, version = f"{marker.producer_id}/{marker.producer_epoch}", marker.transaction_version
        self._say(f"markers: {kind} {identity} {where} v{version} by {marker.coordinator_epoch}")
        if self.is_holding:
            self.held.append(done)
        else:
            done()

    def release(self) -> None:
        held, self.held = self.held, []
        for done in held:
            done()


class Arguments:
    """The arguments of a command: positional arguments and flags in `words`, and NAME=VALUE in `options`."""

    def __init__(self, words: list[str]) -> None:
        self.words = [word for word in words if "=" not in word]
        self.options = dict(word.split("=", 1) for word in words if "=" in word)

    def text(self, name: str, default: str) -> str:
        return self.options.get(name, default)

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))

    def has(self, flag: str) -> bool:
        return flag in self.words

    def partitions(self) -> list[TopicPartition]:
        return [parse_partition(word) for word in self.words[1:] if word.rpartition("-")[2].isdigit()]


class World:
    def __init__(self, settings: TransactionCoordinatorSettings | None = None, memory: CoordinatorMemory | None = None) -> None:
        self.memory = memory
        self.settings = settings if settings is not None else transaction_settings()
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.log = MemoryLog()
        self.store = MemoryStore()
        self.markers = HeldMarkers(self.say)
        self.identities: dict[str, ProducerIdAndEpoch] = {}
        self.transactional_ids: dict[str, str] = {}
        self.lines: list[str] = []
        self._seen = 0
        self.epoch = 0
        self._start()
        self.host.activate()

    def _start(self) -> None:
        self.coordinators = TransactionCoordinators(
            partition_count=lambda: SHARDS,
            group_partition=lambda group_id: 0,
            settings=self.settings,
            producer_ids=ProducerIds(self.store, 1),
            markers=self.markers,
            local_markers=LocalMarkers(lambda topic, partition: None, lambda *marker: None, self.clock),
            clock=self.clock,
            timers=self.timers,
            load_bytes=lambda: 1 << 20,
            elsewhere=NO_OTHER_COORDINATORS,
            memory=self.memory,
        )
        self.host = MachineHost(self.coordinators.new_machine(self.epoch), self.log, self.clock, self.timers)
        self.coordinators.attach(0, self.host)

    def run(self, command: str) -> list[str]:
        self.lines = []
        word, *rest = command.split()
        getattr(self, "do_" + word.replace("-", "_"))(Arguments(rest))
        for entry in self.log.entries[self._seen :]:
            assert isinstance(entry.what, LogRecord)
            self.lines.append("log: " + show_record(entry.what))
        self._seen = len(self.log.entries)
        return self.lines

    def say(self, line: str) -> None:
        self.lines.append(line.rstrip())

    def identity(self, name: str, arguments: Arguments) -> ProducerIdAndEpoch:
        return parse_identity(arguments.options["as"]) if "as" in arguments.options else self.identities[name]

    def _show_end_to(self, name: str) -> Callable[[EndResult], None]:
        def show(result: EndResult) -> None:
            self.say(f"{name}: {show_end(result)}")
            if not result.code and result.producer_id >= 0:
                self.identities[name] = ProducerIdAndEpoch(result.producer_id, result.producer_epoch)

        return show

    # Clients

    def do_init(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        expected = NO_IDENTITY
        if arguments.has("holding"):
            expected = self.identities[name]
        elif "holding" in arguments.options:
            expected = parse_identity(arguments.options["holding"])
        transactional_id = self.transactional_ids[name] = arguments.text("id", "tx")
        command = InitProducerId(
            transactional_id=transactional_id,
            timeout_ms=arguments.number("timeout", 60_000),
            expected=expected,
            is_two_phase=arguments.has("2pc"),
            keeps_prepared=arguments.has("keep"),
            owner=arguments.text("owner", ""),
        )
        self.coordinators.init_producer_id(command, self._show_end_to(name))

    def do_add(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        self.coordinators.add_partitions(
            self.transactional_ids.get(name, "tx"),
            self.identity(name, arguments),
            arguments.partitions(),
            arguments.number("v", 0),
            lambda code: self.say(f"{name}: {code.name}"),
        )

    def do_offsets(self, arguments: Arguments) -> None:
        name, group_id = arguments.words
        self.coordinators.add_offsets(
            self.transactional_ids.get(name, "tx"),
            self.identity(name, arguments),
            group_id,
            0,
            lambda code: self.say(f"{name}: {code.name}"),
        )

    def _say_codes(self, name: str) -> Callable[[dict[TopicPartition, ErrorCode]], None]:
        def said(codes: dict[TopicPartition, ErrorCode]) -> None:
            self.say(f"{name}: " + " ".join(f"{partition}={code.name}" for partition, code in codes.items()))

        return said

    def do_verify(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        self.coordinators.verify_partitions(
            self.transactional_ids.get(name, "tx"), self.identity(name, arguments), arguments.partitions(), self._say_codes(name)
        )

    def do_admit(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        identity = self.identity(name, arguments)
        self.coordinators.admit(
            self.transactional_ids.get(name, "tx"),
            identity.producer_id,
            identity.epoch,
            arguments.partitions(),
            arguments.has("v2"),
            self._say_codes(name),
        )

    def do_end(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        version = arguments.number("v", 2)
        done = self._show_end_to(name) if version >= 2 else lambda result: self.say(f"{name}: {result.code.name}")
        self.coordinators.end(
            self.transactional_ids.get(name, "tx"),
            self.identity(name, arguments),
            arguments.has("commit"),
            version if version >= 2 else 0,
            done,
        )

    # Operators

    def do_describe(self, arguments: Arguments) -> None:
        def described(found: Any) -> None:
            self.say(show_metadata(found) if isinstance(found, TransactionMetadata) else "unknown" if found is None else found.name)

        self.coordinators.describe(arguments.words[0], described)

    def do_list(self, arguments: Arguments) -> None:
        states = frozenset(TransactionState(name) for name in arguments.text("state", "").split(",") if name)
        wanted = ListFilter(states=states, duration_ms=arguments.number("open-for", -1))

        def listed(found: list[TransactionMetadata], code: ErrorCode) -> None:
            self.say(f"{code.name} " + " ".join(f"{metadata.transactional_id}={metadata.state.value}" for metadata in found))

        run_steps(self.coordinators.list_transactions(wanted, listed))

    # The world

    def do_given(self, arguments: Arguments) -> None:
        transactional_id, identity, state = arguments.words[:3]
        producer_id, epoch = parse_identity(identity)
        now_ms = self.clock.wall_ms()
        metadata = TransactionMetadata(
            transactional_id,
            producer_id,
            epoch,
            60_000,
            TransactionState(state),
            frozenset(arguments.partitions()),
            now_ms,
            now_ms,
            arguments.number("previous", -1),
        )
        self.host.run(lambda _now_ms: Decision(records=(state_record(metadata),)))

    def do_hold_markers(self, arguments: Arguments) -> None:
        self.markers.is_holding = True

    def do_release_markers(self, arguments: Arguments) -> None:
        self.markers.is_holding = False
        self.markers.release()

    def do_hold(self, arguments: Arguments) -> None:
        self.log.is_instant = False

    def do_release(self, arguments: Arguments) -> None:
        self.log.is_instant = True
        self.log.commit()

    def do_advance(self, arguments: Arguments) -> None:
        self.timers.advance(int(arguments.words[0]))

    def do_set_clock(self, arguments: Arguments) -> None:
        self.clock.jump_wall(int(arguments.words[0]))

    def do_refuse(self, arguments: Arguments) -> None:
        self.log.refuse_next = ErrorCode[arguments.words[0]]

    def do_close(self, arguments: Arguments) -> None:
        self.host.close()

    def do_restart(self, arguments: Arguments) -> None:
        self.do_load(arguments)
        self.do_loaded(arguments)

    def do_load(self, arguments: Arguments) -> None:
        """The leader is gone with its soft state; another one begins to load the log."""
        self.host.close()
        self.markers.held.clear()
        self.log.commit()
        self.epoch += 1
        self._start()
        self.host.load(self.log.reader(), 0)

    def do_loaded(self, arguments: Arguments) -> None:
        self.timers.run_due()

    def do_set(self, arguments: Arguments) -> None:
        for name, value in arguments.options.items():
            kind = type(getattr(self.settings, name))
            self.settings = dataclasses.replace(self.settings, **{name: kind(int(value))})
        self.coordinators.configure(self.settings)
