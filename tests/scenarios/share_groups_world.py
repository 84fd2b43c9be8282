"""The world of the share group transcripts: that of the groups, with share coordinators beside it.

    share NAME [epoch=N] [topics=t,u] [rack=R] [group=g] [id=ID] [via=CONNECTION]
                                          ShareGroupHeartbeat; epoch 0 joins (topics t by default), -1 leaves
    share-describe [group=g];   share-state [group=g];   share-known [group=g]   (the partitions whose offsets can be described)
    share-alter [t-0=5 ...] [group=g];   share-forget TOPIC [...] [group=g]
    persister fail=CODE|fine|hold|release|show;   drop-topic TOPIC (and the coordinators are notified);   lose-topic TOPIC (they are not)

What the share coordinators were asked is shown after each command (`asked: ...`), between the answers and the log.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.base.uuids import ZERO_UUID
from ottla.groups.answers import Beat, DescribedEpochGroup, ShareOffsetOutcomes
from ottla.groups.commands import AlterShareOffsets, Caller, DeleteShareOffsets, ShareHeartbeat, StartOffset
from ottla.groups.describe import describe_share_groups
from ottla.groups.machine import GroupMachine
from ottla.groups.settings import GroupCoordinatorSettings
from ottla.groups.shard import Group
from ottla.groups.share.group import ShareGroup
from ottla.groups.share.heartbeat import share_heartbeat
from ottla.groups.share.offsets import KnownTopic, alter_share_offsets, delete_share_offsets, known_share_topics
from ottla.machine.host import HostState, MachineHost
from tests.fakes.coordinator_settings import group_settings
from tests.fakes.persister import MemoryPersister
from tests.scenarios import groups_world
from tests.scenarios.groups_text import Arguments, by_topic, name_of, show_partitions, show_topics


class World(groups_world.World):
    def __init__(self, settings: GroupCoordinatorSettings | None = None) -> None:
        self.persister = MemoryPersister()
        fast = group_settings(initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0, share_assignment_interval_ms=0)
        super().__init__(settings if settings is not None else fast)

    def _new_host(self) -> MachineHost:
        machine = GroupMachine(self.settings, self.topics, self.random, self.own_settings, self.persister)
        host = MachineHost(machine, self.log, self.clock, self.timers)
        machine.shard.run = lambda decide: host.run(decide) if host.state is HostState.ACTIVE else None
        return host

    def run(self, command: str) -> list[str]:
        self.persister.calls.clear()
        lines = super().run(command)
        logged = next((index for index, line in enumerate(lines) if line.startswith("log: ")), len(lines))
        lines[logged:logged] = [f"asked: {call}" for call in self.persister.calls]
        return lines

    def do_share(self, arguments: Arguments) -> None:
        name, group = arguments.words[0], arguments.text("group", "g")
        epoch, topics = arguments.number("epoch", self.epochs.get(f"{group}/{name}", 0)), arguments.maybe("topics")
        if epoch == 0 and topics is None:
            topics = "t"
        command = ShareHeartbeat(
            group_id=group,
            caller=Caller(name, "/10.0.0.1", arguments.text("via", "")),
            member_id=arguments.text("id", name),
            member_epoch=epoch,
            rack_id=arguments.maybe("rack"),
            topics=None if topics is None else [topic for topic in topics.split(",") if topic],
        )

        def answer(beat: Beat) -> None:
            if beat.error:
                self.say(f"{name}: {name_of(beat.error)} {beat.message or ''}".rstrip())
                return
            self.epochs[f"{group}/{name}"] = max(beat.member_epoch, 0)
            has = "" if beat.assignment is None else f" has {show_partitions(beat.assignment)}"
            self.say(f"{name}: epoch={beat.member_epoch}{has}")

        self.host.run(lambda now: share_heartbeat(self.shard, command, answer, now))

    def do_share_describe(self, arguments: Arguments) -> None:
        def answer(groups: list[DescribedEpochGroup]) -> None:
            for group in groups:
                if group.error:
                    self.say(f"{group.group_id} {name_of(group.error)} {group.message!r}")
                    continue
                self.say(f"{group.group_id} {group.state} epoch={group.epoch} assigned={group.assignment_epoch} {group.assignor}")
                for member in group.members:
                    reads, has = ",".join(member.topics), show_topics(member.assigned)
                    self.say(f"  {member.member_id} epoch={member.epoch} rack={member.rack_id} reads {reads} has {has}")

        self.host.run(lambda _now: describe_share_groups(self.shard, [arguments.text("group", "g")], answer))

    def do_share_state(self, arguments: Arguments) -> None:
        """The calls that the share coordinators got for the group's partitions."""
        group: Group | None = self.machine.shard.groups.get(arguments.text("group", "g"))
        if not isinstance(group, ShareGroup):
            self.say("no share group")
            return
        topics = group.state_topics
        shown = (
            ("initializing", show_partitions({topic_id: share.partitions for topic_id, share in topics.initializing.items()})),
            ("initialized", show_partitions({topic_id: share.partitions for topic_id, share in topics.initialized.items()})),
            ("deleting", ",".join(topics.deleting.values()) or "nothing"),
        )
        self.say(f"{group.state.value} " + " ".join(f"{name} {what}" for name, what in shown if what != "nothing"))

    def do_share_known(self, arguments: Arguments) -> None:
        def answer(known: list[KnownTopic]) -> None:
            self.say(show_partitions({topic.topic_id: topic.partitions for topic in known}))

        self.host.run(lambda _now: known_share_topics(self.shard, arguments.text("group", "g"), answer))

    def do_share_alter(self, arguments: Arguments) -> None:
        starts = [
            StartOffset(topic, partition, int(offset))
            for topic, places in by_topic(arguments.words).items()
            for partition, offset in places
        ]
        command = AlterShareOffsets(group_id=arguments.text("group", "g"), starts=starts)

        def answer(altered: ShareOffsetOutcomes) -> None:
            results = [f"{outcome.topic}-{outcome.partition} {name_of(outcome.error)}" for outcome in altered.outcomes]
            self.say(f"alter: {name_of(altered.error)} {' '.join(results)}".rstrip())

        self.host.run(lambda _now: alter_share_offsets(self.shard, command, answer))

    def do_share_forget(self, arguments: Arguments) -> None:
        command = DeleteShareOffsets(group_id=arguments.text("group", "g"), topics=arguments.words)

        def answer(forgotten: ShareOffsetOutcomes) -> None:
            results = [
                f"{outcome.topic} {name_of(outcome.error)}{' without id' if outcome.topic_id == ZERO_UUID else ''}"
                for outcome in forgotten.outcomes
            ]
            self.say(f"forget: {name_of(forgotten.error)} {', '.join(results)}".rstrip())

        self.host.run(lambda _now: delete_share_offsets(self.shard, command, answer))

    def do_persister(self, arguments: Arguments) -> None:
        failure = arguments.maybe("fail")
        if failure is not None:
            self.persister.fail_with = ErrorCode[failure]
        for word in arguments.words:
            if word == "fine":
                self.persister.fail_with = None
            elif word == "hold":
                self.persister.is_held = True
            elif word == "release":
                self.persister.release()
            elif word == "show":
                for key, state in sorted(self.persister.states.items()):
                    where = f"{key.topic_id.rstrip(bytes(1)).decode()}-{key.partition}"
                    self.say(f"{key.group_id} {where} epoch={state.state_epoch} start={state.start_offset}")
            else:
                raise AssertionError(f"a persister does not {word}")

    def do_drop_topic(self, arguments: Arguments) -> None:
        """Deletes the topics and notifies the coordinators."""
        for name in arguments.words:
            self.topics.counts.pop(name, None)
        self.machine.topics_changed()
        super().do_drop_topic(arguments)

    def do_lose_topic(self, arguments: Arguments) -> None:
        """Deletes the topics without notifying the coordinators."""
        for name in arguments.words:
            self.topics.counts.pop(name, None)
