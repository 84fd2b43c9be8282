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
    list [states=...] [types=...];   describe [version=6];   state;   consumer-describe
    beat NAME [epoch=N] [topics=t,u] [regex=R] [owned=t:0,1/u:0|none] [static=INSTANCE] [assignor=range] [rebalance=60000] [version=1]
         the consumer protocol's heartbeat; epoch 0 joins, -1 leaves, -2 leaves for a moment; `owned` without a value means nothing
    advance MS;   refuse CODE (the next append);   hold / release (the high watermark);   restart;   close;   drop-topic TOPIC
    set NAME=VALUE (a setting);   set-group NAME=VALUE [group=g] (a setting of the group's own)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups import records
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.draft import Caller
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupSettings
from ottla.groups.share.group import ShareGroup
from ottla.machine.host import MachineHost
from ottla.wire.codec import encoder
from ottla.wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup
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
from tests.fakes.clock import ManualClock
from tests.fakes.machine_log import MemoryLog
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers
from tests.scenarios.groups_text import (
    Arguments,
    FixedTopics,
    by_topic,
    name_of,
    show_partitions,
    show_record,
    show_share,
    show_topics,
    write_share,
)

UUID = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")  # behind the name of who has no answer yet


class World:
    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings if settings is not None else GroupSettings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0)
        self.topics = FixedTopics({"t": 4, "u": 2, "v": 1})
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.log = MemoryLog()
        self.random = SeededRandom(1)
        self.ids: dict[str, str] = {}  # short name -> member id
        self.generations: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.lines: list[str] = []
        self.own: dict[str, dict[str, int]] = {}
        self._seen = 0
        self.host = self._new_host()
        self.host.activate()

    def _new_host(self) -> MachineHost:
        return MachineHost(GroupMachine(self.settings, self.topics, self.random, self.own_settings), self.log, self.clock, self.timers)

    def own_settings(self, group_id: str) -> Mapping[str, int]:
        return self.own.get(group_id, {})

    @property
    def machine(self) -> GroupMachine:
        machine: GroupMachine = self.host.machine
        return machine

    def run(self, command: str) -> list[str]:
        self.lines = []
        word, *rest = command.split()
        getattr(self, "do_" + word.replace("-", "_"))(Arguments(rest))
        self.timers.run_due()  # what was put off to the loop's next turn
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
        owned = [
            TopicPartition(topic=self.topics.topic_name(part.topic_id) or "", partitions=part.partitions)
            for part in self._owned(arguments.text("owned", ""))
        ]
        subscription = ConsumerProtocolSubscription(topics=arguments.text("topics", "t").split(","), owned_partitions=owned)
        metadata = b"\0\1" + encoder(ConsumerProtocolSubscription, 1)(subscription)
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
        caller = Caller(version, name, "/10.0.0.1", software=arguments.text("software", ""))

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
            assignments=[SyncGroupRequestAssignment(member_id=self.id_of(who), assignment=write_share(what)) for who, what in pairs],
        )

        def answer(response: SyncGroupResponse) -> None:
            what = name_of(response.error_code) if response.error_code else f"assigned {show_share(bytes(response.assignment))!r}"
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

    # The consumer protocol

    def do_beat(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        epoch, topics, regex = arguments.number("epoch", self.epochs.get(name, 0)), arguments.maybe("topics"), arguments.maybe("regex")
        owned = arguments.maybe("owned")
        if epoch == 0:
            owned = owned if owned is not None else ""
            topics = topics if topics is not None or regex is not None else "t"
        request = ConsumerGroupHeartbeatRequest(
            group_id=arguments.text("group", "g"),
            member_id=self.id_of(arguments.text("id", name)),
            member_epoch=epoch,
            instance_id=arguments.maybe("static"),
            rebalance_timeout_ms=arguments.number("rebalance", 60_000 if epoch == 0 else -1),
            subscribed_topic_names=None if topics is None else [topic for topic in topics.split(",") if topic],
            subscribed_topic_regex=regex,
            server_assignor=arguments.maybe("assignor"),
            topic_partitions=None if owned in (None, "none") else self._owned(owned),
        )
        caller = Caller(arguments.number("version", 1), name, "/10.0.0.1")

        def answer(response: ConsumerGroupHeartbeatResponse) -> None:
            if response.error_code:
                self.say(f"{name}: {name_of(response.error_code)} {response.error_message or ''}".rstrip())
                return
            assert response.member_id is not None
            self.ids[name], self.epochs[name] = response.member_id, response.member_epoch
            has = "" if response.assignment is None else f" has {show_topics(response.assignment.topic_partitions)}"
            self.say(f"{name}: epoch={response.member_epoch}{has}")

        self.host.run(lambda now: self.machine.consumer_heartbeat(request, caller, answer, now))

    def _owned(self, text: str) -> list[TopicPartitions]:
        """`t:0,1/u:0` as topics with partitions."""
        topics = []
        for part in text.split("/") if text else []:
            topic, _, partitions = part.partition(":")
            numbers = [int(number) for number in partitions.split(",")]
            topics.append(TopicPartitions(topic_id=self.topics.topic_id(topic) or ZERO_UUID, partitions=numbers))
        return topics

    def do_consumer_describe(self, arguments: Arguments) -> None:
        def answer(groups: list[DescribedConsumerGroup]) -> None:
            for group in groups:
                if group.error_code:
                    self.say(f"{group.group_id} {group.group_state} {name_of(group.error_code)} {group.error_message!r}")
                    continue
                epochs = f"epoch={group.group_epoch} assigned={group.assignment_epoch}"
                self.say(f"{group.group_id} {group.group_state} {epochs} {group.assignor_name}")
                for member in group.members:
                    wants = ",".join(member.subscribed_topic_names) or member.subscribed_topic_regex
                    has, goal = (show_topics(part.topic_partitions) for part in (member.assignment, member.target_assignment))
                    kind = ["classic", "consumer"][member.member_type]
                    self.say(f"  {member.member_id} epoch={member.member_epoch} {kind} reads {wants} has {has} of {goal}")

        self.host.run(lambda _now: self.machine.describe_consumer_groups([arguments.text("group", "g")], answer))

    def do_topic(self, arguments: Arguments) -> None:
        """`topic NAME COUNT`: made, or given more partitions."""
        self.topics.counts[arguments.words[0]] = int(arguments.words[1])
        self.machine.topics_changed()

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
                    assignment = show_share(bytes(member.member_assignment))
                    self.say(f"  {member.member_id} {member.group_instance_id or '-'} {member.client_host} {assignment!r}")

        self.host.run(lambda _now: self.machine.describe_groups([arguments.text("group", "g")], caller, answer))

    def do_state(self, arguments: Arguments) -> None:
        group = self.machine.shard.groups.get(arguments.text("group", "g"))
        if group is None:
            self.say("no group")
            return
        if isinstance(group, ConsumerGroup):
            members = " ".join(
                f"{member_id}:{position.epoch}:{position.state.name.split('_')[0].lower()}:{show_partitions(position.assigned)}"
                + (f":revoking {show_partitions(position.revoking)}" if position.revoking else "")
                for member_id, position in group.positions.items()
            )
            self.say(f"{group.state.value} epoch={group.epoch} target={group.target_epoch} {members or '-'}")
            return
        if isinstance(group, ShareGroup):
            members = " ".join(f"{name}:{at.epoch}:{show_partitions(at.assigned)}" for name, at in group.positions.items())
            self.say(f"{group.state.value} epoch={group.epoch} target={group.target_epoch} {members or '-'}")
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

    def do_set_group(self, arguments: Arguments) -> None:
        group = arguments.text("group", "g")
        own = {name: int(value) for name, value in arguments.options.items() if name != "group"}
        self.own.setdefault(group, {}).update(own)

    def do_restart(self, _arguments: Arguments) -> None:
        """The coordinator moves: a new machine reads the log; what lives must be what is replayed (I36)."""
        before = self.machine.hard_state()
        self.host.close()
        self.log.commit()
        replica = GroupMachine(self.settings, self.topics, self.random)
        self.log.replay(replica)
        assert replica.hard_state() == before, "the log and the machine have drifted apart"
        self.host = self._new_host()
        self.host.load(self.log.reader(), 0)
        self.timers.run_due()  # which may log what a refusal had left undone

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
