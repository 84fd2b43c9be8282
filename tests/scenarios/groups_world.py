"""The world of the group transcripts: one group coordinator on a log in memory, and clients that are names in commands.

A command is a word and arguments; `name=value` sets an option. Members are known by short names: the world keeps the ids that the
coordinator gives out and shows the names instead. Output is one line for each answer that arrives (`name: ...`), in the order of arrival,
then one for each record that was logged (`log: ...`).

    join NAME [group=g] [version=9] [type=consumer] [protocols=range,roundrobin] [topics=t] [static=INSTANCE] [session=10000]
         [rebalance=60000] [id=NAME|none]     a member joins; `id=none` comes without an id although it has one
    sync NAME [generation=N] [assign=NAME:x,NAME:y] [type=] [protocol=] [version=5]
    heartbeat NAME [generation=N] [static=INSTANCE];   leave NAME [...] [static=INSTANCE] [version=5]
    commit NAME|- TOPIC-PARTITION=OFFSET [...] [generation=N] [metadata=BYTES]
    txn-commit PID TOPIC-PARTITION=OFFSET [...] [member=NAME] [generation=N];   marker PID commit|abort
    fetch TOPIC-PARTITION|all [...] [stable];   delete-offset TOPIC-PARTITION [...];   delete-group GROUP
    list [states=...] [types=...];   describe [version=6];   state
    advance MS;   refuse CODE (the next append);   hold / release (the high watermark);   restart;   close;   drop-topic TOPIC
    set NAME=VALUE (a setting)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups import records
from ottla.groups.classic_group import ClassicGroup
from ottla.groups.draft import Caller
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupSettings
from ottla.machine.host import MachineHost
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
from ottla.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.wire.schema import encoder
from tests.fakes.clock import ManualClock
from tests.fakes.machine_log import MemoryLog
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers

UUID = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")  # behind the name of who has no answer yet


class FixedTopics:
    """`TopicsView` over a dict of partition counts; an id is the name, padded."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def topic_names(self) -> Iterable[str]:
        return list(self.counts)

    def topic_id(self, name: str) -> bytes | None:
        return name.encode().ljust(16, b"\0") if name in self.counts else None

    def topic_name(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if name in self.counts else None

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)


def name_of(code: int) -> str:
    return ErrorCode(code).name


def split_partition(text: str) -> tuple[str, int]:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


def by_topic(texts: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """`t-0=5 t-1=6` as {"t": [(0, "5"), (1, "6")]}."""
    topics: dict[str, list[tuple[int, str]]] = {}
    for text in texts:
        where, _, value = text.partition("=")
        topic, partition = split_partition(where)
        topics.setdefault(topic, []).append((partition, value))
    return topics


class Arguments:
    """The words of a command: positional ones, and options by name."""

    def __init__(self, words: list[str]) -> None:
        self.words = [word for word in words if "=" not in word or word.partition("=")[0].rpartition("-")[2].isdigit()]
        self.options = dict(word.split("=", 1) for word in words if word not in self.words)

    def text(self, name: str, default: str) -> str:
        return self.options.get(name, default)

    def maybe(self, name: str) -> str | None:
        return self.options.get(name)

    def number(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))


class World:
    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings if settings is not None else GroupSettings(initial_rebalance_delay_ms=0)
        self.topics = FixedTopics({"t": 4, "u": 2, "v": 1})
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.log = MemoryLog()
        self.random = SeededRandom(1)
        self.ids: dict[str, str] = {}  # short name -> member id
        self.generations: dict[str, int] = {}
        self.lines: list[str] = []
        self._seen = 0
        self.host = self._new_host()
        self.host.activate()

    def _new_host(self) -> MachineHost:
        return MachineHost(GroupMachine(self.settings, self.topics, self.random), self.log, self.clock, self.timers)

    @property
    def machine(self) -> GroupMachine:
        machine: GroupMachine = self.host.machine
        return machine

    def run(self, command: str) -> list[str]:
        self.lines = []
        word, *rest = command.split()
        getattr(self, "do_" + word.replace("-", "_"))(Arguments(rest))
        for entry in self.log.entries[self._seen :]:
            self.lines.append("log: " + self._show(self.show_entry(entry)))
        self._seen = len(self.log.entries)
        return self.lines

    # Names instead of ids

    def _show(self, text: str) -> str:
        for name, member_id in self.ids.items():
            text = text.replace(member_id, name)
        return UUID.sub("", text)

    def say(self, line: str) -> None:
        self.lines.append(self._show(line))

    def id_of(self, name: str) -> str:
        return self.ids.get(name, "" if name == "-" else name)

    # The classic protocol

    def do_join(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        version, static = arguments.number("version", 9), arguments.maybe("static")
        subscription = ConsumerProtocolSubscription(topics=arguments.text("topics", "t").split(","))
        metadata = b"\0\0" + encoder(ConsumerProtocolSubscription, 0)(subscription)
        given = arguments.text("id", name)
        request = JoinGroupRequest(
            group_id=arguments.text("group", "g"),
            session_timeout_ms=arguments.number("session", 10_000),
            rebalance_timeout_ms=arguments.number("rebalance", 60_000),
            member_id="" if given == "none" else self.ids.get(given, "" if given == name else given),
            group_instance_id=static,
            protocol_type=arguments.text("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=protocol, metadata=metadata)
                for protocol in arguments.text("protocols", "range").split(",")
                if protocol
            ],
        )
        caller = Caller(version, name, "/10.0.0.1")

        def answer(response: JoinGroupResponse) -> None:
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[name] = response.member_id
            self._say_joined(name, response)

        self.host.run(lambda now: self.machine.join_group(request, caller, answer, now))

    def _say_joined(self, name: str, response: JoinGroupResponse) -> None:
        if response.error_code:
            self.say(f"{name}: {name_of(response.error_code)}")
            return
        self.generations[name] = response.generation_id
        role = f"leader of {','.join(member.member_id for member in response.members)}" if response.members else "follower"
        skip = " skip_assignment" if response.skip_assignment else ""
        self.say(
            f"{name}: joined generation={response.generation_id} protocol={response.protocol_name} {role} leader={response.leader}{skip}"
        )

    def do_sync(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        pairs = [pair.split(":") for pair in arguments.text("assign", "").split(",") if pair]
        request = SyncGroupRequest(
            group_id=arguments.text("group", "g"),
            generation_id=arguments.number("generation", self.generations.get(name, 0)),
            member_id=self.id_of(name),
            group_instance_id=arguments.maybe("static"),
            protocol_type=arguments.maybe("type"),
            protocol_name=arguments.maybe("protocol"),
            assignments=[SyncGroupRequestAssignment(member_id=self.id_of(who), assignment=what.encode()) for who, what in pairs],
        )

        def answer(response: SyncGroupResponse) -> None:
            what = name_of(response.error_code) if response.error_code else f"assigned {bytes(response.assignment).decode()!r}"
            self.say(f"{name}: {what}")

        self.host.run(lambda now: self.machine.sync_group(request, answer, now))

    def do_heartbeat(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        request = HeartbeatRequest(
            group_id=arguments.text("group", "g"),
            generation_id=arguments.number("generation", self.generations.get(name, 0)),
            member_id=self.id_of(name),
            group_instance_id=arguments.maybe("static"),
        )

        def answer(response: HeartbeatResponse) -> None:
            self.say(f"{name}: {name_of(response.error_code)}")

        self.host.run(lambda now: self.machine.heartbeat(request, answer, now))

    def do_leave(self, arguments: Arguments) -> None:
        static = arguments.maybe("static")
        members = [MemberIdentity(member_id=self.id_of(name), group_instance_id=static) for name in arguments.words]
        if not members and static is not None:
            members = [MemberIdentity(group_instance_id=static)]
        request = LeaveGroupRequest(group_id=arguments.text("group", "g"), members=members)

        def answer(response: LeaveGroupResponse) -> None:
            self.say("leave: " + (name_of(response.error_code) if response.error_code else ""))
            for member in response.members:
                self.say(f"  {member.member_id or member.group_instance_id} {name_of(member.error_code)}")

        self.host.run(lambda now: self.machine.leave_group(request, answer, now))

    # Offsets

    def do_commit(self, arguments: Arguments) -> None:
        name, *offsets = arguments.words
        request = OffsetCommitRequest(
            group_id=arguments.text("group", "g"),
            generation_id_or_member_epoch=arguments.number("generation", self.generations.get(name, -1)),
            member_id=self.id_of(name),
            group_instance_id=arguments.maybe("static"),
            retention_time_ms=arguments.number("retention", -1),
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topics.topic_id(topic) or ZERO_UUID,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=int(value), committed_metadata="m" * arguments.number("metadata", 0)
                        )
                        for partition, value in partitions
                    ],
                )
                for topic, partitions in by_topic(offsets).items()
            ],
        )
        caller = Caller(arguments.number("version", 9), name, "/10.0.0.1")

        def answer(response: OffsetCommitResponse) -> None:
            self.say(f"{name}: {self._results(response)}")

        self.host.run(lambda now: self.machine.commit_offsets(request, caller, answer, now))

    @staticmethod
    def _results(response: Any) -> str:
        return " ".join(
            f"{topic.name}-{partition.partition_index} {name_of(partition.error_code)}"
            for topic in response.topics
            for partition in topic.partitions
        )

    def do_txn_commit(self, arguments: Arguments) -> None:
        producer_id, *offsets = arguments.words
        member = arguments.text("member", "-")
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=arguments.text("group", "g"),
            producer_id=int(producer_id),
            generation_id_or_member_epoch=arguments.number("generation", self.generations.get(member, -1)),
            member_id=self.id_of(member),
            group_instance_id=arguments.maybe("static"),
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=int(value), committed_metadata="m" * arguments.number("metadata", 0)
                        )
                        for partition, value in partitions
                    ],
                )
                for topic, partitions in by_topic(offsets).items()
            ],
        )

        def answer(response: TxnOffsetCommitResponse) -> None:
            self.say(f"producer {producer_id}: {self._results(response)}")

        self.host.run(lambda now: self.machine.commit_in_transaction(request, answer, now))

    def do_marker(self, arguments: Arguments) -> None:
        producer_id, is_commit = int(arguments.words[0]), arguments.words[1] == "commit"
        offset = self.log.append_marker(producer_id, 0, is_commit)
        self.host.apply_marker(offset, producer_id, 0, is_commit)

    def do_fetch(self, arguments: Arguments) -> None:
        is_stable = "stable" in arguments.words
        wanted = [word for word in arguments.words if word != "stable"]
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[partition for partition, _ in partitions])
            for topic, partitions in by_topic(word for word in wanted if word != "all").items()
        ]
        member = arguments.maybe("member")
        request = OffsetFetchRequestGroup(
            group_id=arguments.text("group", "g"),
            member_id=None if member is None else self.id_of(member),
            member_epoch=arguments.number("epoch", -1),
            topics=None if "all" in wanted else topics,
        )

        def answer(response: OffsetFetchResponseGroup) -> None:
            if response.error_code:
                self.say(f"fetch: {name_of(response.error_code)}")
            for topic in response.topics:
                for partition in topic.partitions:
                    error = f" {name_of(partition.error_code)}" if partition.error_code else ""
                    self.say(f"{topic.name}-{partition.partition_index} {partition.committed_offset}{error}")

        self.host.run(lambda _now: self.machine.fetch_offsets(request, is_stable, answer))

    def do_delete_offset(self, arguments: Arguments) -> None:
        request = OffsetDeleteRequest(
            group_id=arguments.text("group", "g"),
            topics=[
                OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p, _ in partitions])
                for topic, partitions in by_topic(arguments.words).items()
            ],
        )

        def answer(response: OffsetDeleteResponse) -> None:
            self.say(f"delete: {name_of(response.error_code) if response.error_code else self._results(response)}")

        self.host.run(lambda _now: self.machine.delete_offsets(request, answer))

    def do_drop_topic(self, arguments: Arguments) -> None:
        self.host.run(lambda _now: self.machine.forget_topics(arguments.words))

    # Operators

    def do_delete_group(self, arguments: Arguments) -> None:
        def answer(result: DeletableGroupResult) -> None:
            self.say(f"delete {result.group_id}: {name_of(result.error_code)}")

        self.host.run(lambda _now: self.machine.delete_group(arguments.words[0], answer))
        self.timers.run_due()

    def do_list(self, arguments: Arguments) -> None:
        request = ListGroupsRequest(
            states_filter=[state for state in arguments.text("states", "").split(",") if state],
            types_filter=[type_ for type_ in arguments.text("types", "").split(",") if type_],
        )

        def answer(response: ListGroupsResponse) -> None:
            for group in response.groups:
                self.say(f"{group.group_id} {group.protocol_type or '-'} {group.group_state} {group.group_type}")

        self.host.run(lambda _now: self.machine.list_groups(request, answer))

    def do_describe(self, arguments: Arguments) -> None:
        caller = Caller(arguments.number("version", 6), "admin", "/10.0.0.1")

        def answer(groups: list[DescribedGroup]) -> None:
            for group in groups:
                error = f" {name_of(group.error_code)} {group.error_message!r}" if group.error_code else ""
                self.say(f"{group.group_id} {group.group_state} {group.protocol_type or '-'} {group.protocol_data or '-'}{error}")
                for member in group.members:
                    assignment = bytes(member.member_assignment).decode()
                    self.say(f"  {member.member_id} {member.group_instance_id or '-'} {member.client_host} {assignment!r}")

        self.host.run(lambda _now: self.machine.describe_groups([arguments.text("group", "g")], caller, answer))

    def do_state(self, arguments: Arguments) -> None:
        group = self.machine.shard.groups.get(arguments.text("group", "g"))
        if not isinstance(group, ClassicGroup):
            self.say("no group")
            return
        members = ",".join(group.members) or "-"
        pending = f" pending={len(group.pending_members)}" if group.pending_members else ""
        self.say(f"{group.state.value} generation={group.generation} members={members}{pending}")

    # The world around

    def do_advance(self, arguments: Arguments) -> None:
        self.timers.advance(int(arguments.words[0]))

    def do_refuse(self, arguments: Arguments) -> None:
        self.log.refuse_next = ErrorCode[arguments.words[0]]

    def do_hold(self, _arguments: Arguments) -> None:
        self.log.is_instant = False

    def do_release(self, _arguments: Arguments) -> None:
        self.log.is_instant = True
        self.log.commit()

    def do_set(self, arguments: Arguments) -> None:
        changes: dict[str, Any] = {name: int(value) if value.lstrip("-").isdigit() else value for name, value in arguments.options.items()}
        self.settings = dataclasses.replace(self.settings, **changes)
        self.machine.configure(self.settings)

    def do_restart(self, _arguments: Arguments) -> None:
        """The coordinator moves: a new machine reads the log; what lives must be what is replayed (I36)."""
        before = self.machine.hard_state()
        self.host.close()
        self.log.commit()
        self.host = self._new_host()
        self.host.load(self.log.reader(), 0)
        self.timers.run_due()
        assert self.machine.hard_state() == before, "the log and the machine have drifted apart"

    def do_close(self, _arguments: Arguments) -> None:
        self.host.close()

    # Records

    def show_entry(self, entry: Any) -> str:
        what = entry.what
        if not hasattr(what, "key"):
            return f"{'commit' if what.is_commit else 'abort'} marker of producer {what.producer_id}"
        key = records.read_key(what.key)
        value = None if key is None or what.value is None else records.read_value(key, what.value)
        inside = f" in transaction of {entry.transactional.producer_id}" if entry.transactional else ""
        return show_record(key, value) + inside


def show_record(key: Any, value: Any) -> str:
    if isinstance(key, OffsetCommitKey):
        where = f"offset {key.group} {key.topic}-{key.partition}"
        return f"{where} {value.offset}" if isinstance(value, OffsetCommitValue) else f"{where} tombstone"
    if isinstance(key, GroupMetadataKey):
        if not isinstance(value, GroupMetadataValue):
            return f"group {key.group} tombstone"
        members = ",".join(f"{member.member_id}:{bytes(member.assignment).decode()}" for member in value.members) or "-"
        return f"group {key.group} generation={value.generation} protocol={value.protocol} leader={value.leader} members={members}"
    return f"{key!r} {value!r}"
