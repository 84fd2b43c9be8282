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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID, Uuid
from ottla.groups import admin, classic_requests, describe, records
from ottla.groups.answers import (
    Beat,
    DeletedOffsets,
    DescribedClassicGroup,
    DescribedEpochGroup,
    FetchedOffsets,
    GroupList,
    Joined,
    Left,
    Synced,
)
from ottla.groups.commands import (
    Caller,
    CommitOffsets,
    CommitOffsetsInTransaction,
    ConsumerHeartbeat,
    DeleteOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    MemberName,
    OffsetToCommit,
    Sync,
    TopicPartitions,
)
from ottla.groups.consumer import heartbeat
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.machine import GroupMachine
from ottla.groups.offsets import commit, delete, fetch
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.settings import GroupCoordinatorSettings
from ottla.groups.shard import GroupShard
from ottla.groups.share.group import ShareGroup
from ottla.machine.host import MachineHost
from ottla.wire.codec import encoder
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.fakes.clock import ManualClock
from tests.fakes.coordinator_settings import group_settings
from tests.fakes.machine_log import MemoryLog
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers
from tests.groups.hard_state import hard_state
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

UUID = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")  # behind the name of a member without an answer yet


class World:
    def __init__(self, settings: GroupCoordinatorSettings | None = None) -> None:
        fast = group_settings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0)
        self.settings = settings if settings is not None else fast
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

    @property
    def shard(self) -> GroupShard:
        return self.machine.shard

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
            TopicPartition(topic=self.topics.topic_name(topic_id) or "", partitions=sorted(partitions))
            for topic_id, partitions in self._owned(arguments.text("owned", "")).items()
        ]
        subscription = ConsumerProtocolSubscription(topics=arguments.text("topics", "t").split(","), owned_partitions=owned)
        metadata = b"\0\1" + encoder(ConsumerProtocolSubscription, 1)(subscription)
        given = arguments.text("id", name)
        command = Join(
            group_id=arguments.text("group", "g"),
            caller=Caller(name, "/10.0.0.1", software=arguments.text("software", "")),
            session_timeout_ms=arguments.number("session", 10_000),
            rebalance_timeout_ms=arguments.number("rebalance", 60_000),
            member_id="" if given == "none" else self.ids.get(given, "" if given == name else given),
            instance_id=static,
            protocol_type=arguments.text("type", "consumer"),
            protocols=tuple((protocol, metadata) for protocol in arguments.text("protocols", "range").split(",") if protocol),
            needs_member_id=version >= 4,
            may_skip_assignment=version >= 9,
        )

        def answer(joined: Joined) -> None:
            if joined.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[name] = joined.member_id
            self._say_joined(name, joined)

        self.host.run(lambda now: classic_requests.join_group(self.shard, command, answer, now))

    def _say_joined(self, name: str, joined: Joined) -> None:
        if joined.error:
            self.say(f"{name}: {name_of(joined.error)}")
            return
        self.generations[name] = joined.generation
        role = f"leader of {','.join(member.member_id for member in joined.members)}" if joined.members else "follower"
        skip = " skip_assignment" if joined.skip_assignment else ""
        self.say(f"{name}: joined generation={joined.generation} protocol={joined.protocol_name} {role} leader={joined.leader_id}{skip}")

    def do_sync(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        pairs = [pair.split(":") for pair in arguments.text("assign", "").split(",") if pair]
        command = Sync(
            group_id=arguments.text("group", "g"),
            generation=arguments.number("generation", self.generations.get(name, 0)),
            member_id=self.id_of(name),
            instance_id=arguments.maybe("static"),
            protocol_type=arguments.maybe("type"),
            protocol_name=arguments.maybe("protocol"),
            assignments={self.id_of(who): write_share(what) for who, what in pairs},
        )

        def answer(synced: Synced) -> None:
            self.say(f"{name}: {name_of(synced.error) if synced.error else f'assigned {show_share(synced.assignment)!r}'}")

        self.host.run(lambda now: classic_requests.sync_group(self.shard, command, answer, now))

    def do_heartbeat(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        command = Heartbeat(
            arguments.text("group", "g"),
            self.id_of(name),
            arguments.maybe("static"),
            arguments.number("generation", self.generations.get(name, 0)),
        )

        def answer(code: ErrorCode) -> None:
            self.say(f"{name}: {name_of(code)}")

        self.host.run(lambda now: classic_requests.heartbeat(self.shard, command, answer, now))

    def do_leave(self, arguments: Arguments) -> None:
        static = arguments.maybe("static")
        members = [MemberName(self.id_of(name), static) for name in arguments.words]
        if not members and static is not None:
            members = [MemberName("", static)]
        command = Leave(group_id=arguments.text("group", "g"), members=members)

        def answer(left: Left) -> None:
            self.say("leave: " + (name_of(left.error) if left.error else ""))
            for member_id, instance_id, code in left.members:
                self.say(f"  {member_id or instance_id} {name_of(code)}")

        self.host.run(lambda now: classic_requests.leave_group(self.shard, command, answer, now))

    # The consumer protocol

    def do_beat(self, arguments: Arguments) -> None:
        name = arguments.words[0]
        epoch, topics, regex = arguments.number("epoch", self.epochs.get(name, 0)), arguments.maybe("topics"), arguments.maybe("regex")
        owned = arguments.maybe("owned")
        if epoch == 0:
            owned = owned if owned is not None else ""
            topics = topics if topics is not None or regex is not None else "t"
        command = ConsumerHeartbeat(
            group_id=arguments.text("group", "g"),
            caller=Caller(name, "/10.0.0.1"),
            member_id=self.id_of(arguments.text("id", name)),
            member_epoch=epoch,
            instance_id=arguments.maybe("static"),
            rebalance_timeout_ms=arguments.number("rebalance", 60_000 if epoch == 0 else -1),
            topics=None if topics is None else [topic for topic in topics.split(",") if topic],
            regex=regex,
            assignor=arguments.maybe("assignor"),
            owned=None if owned in (None, "none") else self._owned(owned),
            makes_member_id=arguments.number("version", 1) >= 1,
        )

        def answer(beat: Beat) -> None:
            if beat.error:
                self.say(f"{name}: {name_of(beat.error)} {beat.message or ''}".rstrip())
                return
            assert beat.member_id is not None
            self.ids[name], self.epochs[name] = beat.member_id, beat.member_epoch
            has = "" if beat.assignment is None else f" has {show_partitions(beat.assignment)}"
            self.say(f"{name}: epoch={beat.member_epoch}{has}")

        self.host.run(lambda now: heartbeat.heartbeat(self.shard, command, answer, now))

    def _owned(self, text: str) -> dict[Uuid, frozenset[int]]:
        """`t:0,1/u:0` as topics with partitions."""
        owned = {}
        for part in text.split("/") if text else []:
            topic, _, partitions = part.partition(":")
            owned[self.topics.topic_id(topic) or ZERO_UUID] = frozenset(int(number) for number in partitions.split(","))
        return owned

    def do_consumer_describe(self, arguments: Arguments) -> None:
        def answer(groups: list[DescribedEpochGroup]) -> None:
            for group in groups:
                if group.error:
                    self.say(f"{group.group_id} {group.state} {name_of(group.error)} {group.message!r}")
                    continue
                self.say(f"{group.group_id} {group.state} epoch={group.epoch} assigned={group.assignment_epoch} {group.assignor}")
                for member in group.members:
                    wants = ",".join(member.topics) or member.regex
                    has, goal = (show_topics(topics) for topics in (member.assigned, member.target))
                    kind = "classic" if member.is_classic else "consumer"
                    self.say(f"  {member.member_id} epoch={member.epoch} {kind} reads {wants} has {has} of {goal}")

        self.host.run(lambda _now: describe.describe_consumer_groups(self.shard, [arguments.text("group", "g")], answer))

    def do_topic(self, arguments: Arguments) -> None:
        """`topic NAME COUNT`: made, or given more partitions."""
        self.topics.counts[arguments.words[0]] = int(arguments.words[1])
        self.machine.topics_changed()

    # Offsets

    def do_commit(self, arguments: Arguments) -> None:
        name, *offsets = arguments.words
        command = CommitOffsets(
            group_id=arguments.text("group", "g"),
            generation=arguments.number("generation", self.generations.get(name, -1)),
            member_id=self.id_of(name),
            instance_id=arguments.maybe("static"),
            retention_ms=arguments.number("retention", -1),
            offsets=self._offsets(offsets, arguments.number("metadata", 0)),
            knows_epochs=arguments.number("version", 9) >= 9,
        )
        answer = self._results(name, command.offsets)
        self.host.run(lambda now: commit.commit_offsets(self.shard, command, answer, now))

    def _offsets(self, words: Iterable[str], metadata_length: int) -> list[OffsetToCommit]:
        return [
            OffsetToCommit(topic, self.topics.topic_id(topic) or ZERO_UUID, partition, int(value), -1, "m" * metadata_length)
            for topic, partitions in by_topic(words).items()
            for partition, value in partitions
        ]

    def _results(self, name: str, offsets: Iterable[OffsetToCommit]) -> Callable[[Sequence[ErrorCode]], None]:
        places = [f"{offset.topic}-{offset.partition}" for offset in offsets]

        def answer(codes: Sequence[ErrorCode]) -> None:
            self.say(f"{name}: " + " ".join(f"{place} {name_of(code)}" for place, code in zip(places, codes, strict=True)))

        return answer

    def do_txn_commit(self, arguments: Arguments) -> None:
        producer_id, *offsets = arguments.words
        member = arguments.text("member", "-")
        command = CommitOffsetsInTransaction(
            group_id=arguments.text("group", "g"),
            producer_id=int(producer_id),
            producer_epoch=0,
            generation=arguments.number("generation", self.generations.get(member, -1)),
            member_id=self.id_of(member),
            instance_id=arguments.maybe("static"),
            offsets=[offset._replace(topic_id=ZERO_UUID) for offset in self._offsets(offsets, arguments.number("metadata", 0))],
        )
        answer = self._results(f"producer {producer_id}", command.offsets)
        self.host.run(lambda now: commit.commit_in_transaction(self.shard, command, answer, now))

    def do_marker(self, arguments: Arguments) -> None:
        producer_id, is_commit = int(arguments.words[0]), arguments.words[1] == "commit"
        offset = self.log.append_marker(producer_id, 0, is_commit)
        self.host.apply_marker(offset, producer_id, 0, is_commit)

    def do_fetch(self, arguments: Arguments) -> None:
        is_stable = "stable" in arguments.words
        wanted = [word for word in arguments.words if word != "stable"]
        topics = [
            TopicPartitions(topic, [partition for partition, _ in partitions])
            for topic, partitions in by_topic(word for word in wanted if word != "all").items()
        ]
        member = arguments.maybe("member")
        command = FetchOffsets(
            group_id=arguments.text("group", "g"),
            member_id=None if member is None else self.id_of(member),
            member_epoch=arguments.number("epoch", -1),
            topics=None if "all" in wanted else topics,
            require_stable=is_stable,
        )

        def answer(fetched: FetchedOffsets) -> None:
            if fetched.error:
                self.say(f"fetch: {name_of(fetched.error)}")
            for topic, offsets in zip(fetched.topics, fetched.offsets, strict=True):
                for partition, found in zip(topic.partitions, offsets, strict=True):
                    error = f" {name_of(found)}" if isinstance(found, ErrorCode) else ""
                    self.say(f"{topic.topic}-{partition} {found.offset if isinstance(found, CommittedOffset) else -1}{error}")

        self.host.run(lambda _now: fetch.fetch_offsets(self.shard, command, answer))

    def do_delete_offset(self, arguments: Arguments) -> None:
        topics = [TopicPartitions(topic, [p for p, _ in partitions]) for topic, partitions in by_topic(arguments.words).items()]
        command = DeleteOffsets(group_id=arguments.text("group", "g"), topics=topics)

        def answer(deleted: DeletedOffsets) -> None:
            results = [
                f"{topic.topic}-{partition} {name_of(code)}"
                for topic, code in zip(topics, deleted.topics, strict=False)
                for partition in topic.partitions
            ]
            self.say(f"delete: {name_of(deleted.error) if deleted.error else ' '.join(results)}")

        self.host.run(lambda _now: delete.delete_offsets(self.shard, command, answer))

    def do_drop_topic(self, arguments: Arguments) -> None:
        self.machine.topics_deleted(arguments.words)
        self.host.run(self.machine.forget_topics)

    # Operators

    def do_delete_group(self, arguments: Arguments) -> None:
        group_id = arguments.words[0]

        def answer(code: ErrorCode) -> None:
            self.say(f"delete {group_id}: {name_of(code)}")

        self.host.run(lambda _now: admin.delete_group(self.shard, group_id, answer))
        self.timers.run_due()

    def do_list(self, arguments: Arguments) -> None:
        command = ListGroups(
            states=frozenset(state.lower() for state in arguments.text("states", "").split(",") if state),
            types=frozenset(type_.lower() for type_ in arguments.text("types", "").split(",") if type_),
        )

        def answer(found: GroupList) -> None:
            for group in found.groups:
                self.say(f"{group.group_id} {group.protocol_type or '-'} {group.state} {group.type}")

        self.host.run(lambda _now: admin.list_groups(self.shard, command, answer))

    def do_describe(self, arguments: Arguments) -> None:
        def answer(groups: list[DescribedClassicGroup]) -> None:
            for group in groups:
                error = f" {name_of(group.error)} {group.message!r}" if group.error else ""
                self.say(f"{group.group_id} {group.state} {group.protocol_type or '-'} {group.protocol_name or '-'}{error}")
                for member in group.members:
                    self.say(f"  {member.member_id} {member.instance_id or '-'} {member.client_host} {show_share(member.assignment)!r}")

        self.host.run(lambda _now: admin.describe_groups(self.shard, [arguments.text("group", "g")], answer))

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
        before = hard_state(self.machine)
        self.host.close()
        self.log.commit()
        replica = GroupMachine(self.settings, self.topics, self.random)
        self.log.replay(replica)
        assert hard_state(replica) == before, "the log and the machine have drifted apart"
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
