"""The queue of messages that wait for a broker: at most one of each kind, with the last state of each replica and topic."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ottla.base.cluster_metadata import BrokerMetadata, PartitionMetadata, TopicMetadata
from ottla.base.control_messages import ControlMessage, LeaderAndIsr, ReplicaRole, StoppedReplica, StopReplica, UpdateMetadata
from ottla.base.errors import ErrorCode
from ottla.cluster.control.queue import REMOVED_MAX, ControlQueue, Letter

Key = tuple[bytes, int]


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def state(index: int, epoch: int) -> PartitionMetadata:
    return PartitionMetadata(index=index, leader=1, leader_epoch=epoch, isr=(1, 2), replicas=(1, 2), partition_epoch=epoch)


def role(name: str, number: int, index: int = 0, *, epoch: int = 0, is_new: bool = False) -> ReplicaRole:
    return ReplicaRole(topic=name, topic_id=topic_id(number), partition=state(index, epoch), is_new=is_new)


def roles(*states: ReplicaRole, is_complete: bool = False, epoch: int = 1) -> LeaderAndIsr:
    return LeaderAndIsr(controller_id=1, controller_epoch=epoch, broker_epoch=5, states=states, is_complete=is_complete)


def stop(*replicas: tuple[str, int, int]) -> StopReplica:
    stopped = [
        StoppedReplica(topic=name, topic_id=topic_id(number), partition=index, leader_epoch=9, is_deleted=True)
        for name, number, index in replicas
    ]
    return StopReplica(controller_id=1, controller_epoch=1, broker_epoch=5, stopped=stopped)


def topic(name: str, number: int, epoch: int = 0) -> TopicMetadata:
    return TopicMetadata(name=name, topic_id=topic_id(number), partitions=(state(0, epoch),))


def metadata(
    *topics: TopicMetadata, removed: Sequence[tuple[str, bytes]] = (), is_complete: bool = False, brokers: Sequence[int] = (1,)
) -> UpdateMetadata:
    live = [BrokerMetadata(broker_id=one, endpoints={}, epoch=5) for one in brokers]
    return UpdateMetadata(
        controller_id=1, controller_epoch=1, broker_epoch=5, topics=topics, brokers=live, removed=removed, is_complete=is_complete
    )


class Filled:
    """A queue with some messages. The test recognises each by its position."""

    def __init__(self, *messages: ControlMessage) -> None:
        self.queue = ControlQueue()
        self.done: list[tuple[int, ErrorCode]] = []
        self.count = 0
        self.add(*messages)

    def add(self, *messages: ControlMessage) -> None:
        for message in messages:
            number, self.count = self.count, self.count + 1
            self.queue.add(Letter(message, lambda code, number=number: self.done.append((number, code))))  # type: ignore[misc]

    def take(self) -> ControlMessage:
        letter = self.queue.take()
        assert letter is not None
        letter.done(ErrorCode.NONE)
        return letter.message

    def take_all(self) -> list[ControlMessage]:
        return [self.take() for _ in range(len(self.queue))]


def test_one_message_of_each_kind_with_the_newest_states() -> None:
    filled = Filled(
        roles(role("a", 1, epoch=1), role("a", 1, 1, epoch=1)), metadata(topic("a", 1, 1), topic("b", 2)),
        roles(role("a", 1, epoch=2)), metadata(topic("a", 1, 2), brokers=(1, 3)), roles(role("b", 2)),
    )  # fmt: skip
    assert len(filled.queue) == 2 and filled.done == [(2, 0), (3, 0), (4, 0)], "what is joined is done; the first of its kind is not"
    first, second = filled.take_all()
    assert isinstance(first, LeaderAndIsr) and isinstance(second, UpdateMetadata)
    assert list(first.states) == [role("a", 1, epoch=2), role("a", 1, 1, epoch=1), role("b", 2)] and not first.is_complete
    assert list(second.topics) == [topic("a", 1, 2), topic("b", 2)] and [one.broker_id for one in second.brokers] == [1, 3]
    assert filled.done[3:] == [(0, 0), (1, 0)] and filled.queue.take() is None


def test_what_is_taken_begins_anew() -> None:
    filled = Filled(roles(role("a", 1)))
    filled.take()
    filled.add(roles(role("b", 2)))
    message = filled.take()
    assert isinstance(message, LeaderAndIsr) and list(message.states) == [role("b", 2)]


def test_a_replica_is_hosted_or_stopped_by_what_was_sent_last() -> None:
    filled = Filled(roles(role("a", 1), role("a", 1, 1)), stop(("a", 1, 0), ("b", 2, 0)), roles(role("b", 2, epoch=3)))
    first, second = filled.take_all()
    assert isinstance(first, StopReplica) and [(one.topic, one.partition) for one in first.stopped] == [("a", 0)]
    assert isinstance(second, LeaderAndIsr) and list(second.states) == [role("a", 1, 1), role("b", 2, epoch=3)]


def test_replicas_of_a_topic_that_was_created_anew_follow_the_end_of_the_old_ones() -> None:
    filled = Filled(roles(role("a", 1)), roles(role("a", 1, epoch=1)), stop(("a", 1, 0)), roles(role("a", 2, is_new=True)))
    first, second = filled.take_all()
    assert isinstance(first, StopReplica) and [one.topic_id for one in first.stopped] == [topic_id(1)]
    assert isinstance(second, LeaderAndIsr) and list(second.states) == [role("a", 2, is_new=True)]


def test_a_log_that_is_still_to_be_made_stays_new() -> None:
    filled = Filled(roles(role("a", 1, is_new=True)), roles(role("a", 1, epoch=1)))
    (message,) = filled.take_all()
    assert isinstance(message, LeaderAndIsr) and list(message.states) == [role("a", 1, epoch=1, is_new=True)]


def test_a_complete_message_takes_the_place_of_what_waits_and_grows() -> None:
    filled = Filled(
        metadata(topic("a", 1)), roles(role("a", 1, is_new=True), role("b", 2)),
        metadata(topic("c", 3), is_complete=True), roles(role("a", 1), is_complete=True),
        roles(role("d", 4)), metadata(topic("d", 4)),
    )  # fmt: skip
    first, second = filled.take_all()
    assert isinstance(first, UpdateMetadata) and isinstance(second, LeaderAndIsr) and first.is_complete and second.is_complete
    assert list(first.topics) == [topic("c", 3), topic("d", 4)]
    assert list(second.states) == [role("a", 1, is_new=True), role("d", 4)]
    filled.add(metadata(topic("e", 5)))
    (message,) = filled.take_all()
    assert isinstance(message, UpdateMetadata) and not message.is_complete


def test_a_removed_topic_is_no_longer_among_those_that_are_put() -> None:
    filled = Filled(metadata(topic("a", 1), topic("b", 2)), metadata(removed=[("a", topic_id(1))]), metadata(topic("a", 3)))
    (message,) = filled.take_all()
    assert isinstance(message, UpdateMetadata)
    assert list(message.topics) == [topic("b", 2), topic("a", 3)] and list(message.removed) == [("a", topic_id(1))]
    filled.add(metadata(topic("a", 3)), metadata(topic("a", 4)), metadata(removed=[("a", topic_id(3))]))
    (message,) = filled.take_all()
    assert isinstance(message, UpdateMetadata) and list(message.topics) == [topic("a", 4)], "the id says which one is removed"


def test_removed_topics_are_bounded_beside_complete_metadata() -> None:
    filled = Filled(metadata(topic("a", 0), is_complete=True))
    for number in range(1, REMOVED_MAX + 10):
        filled.add(metadata(topic(f"t{number}", number)), metadata(removed=[(f"t{number}", topic_id(number))]))
    (message,) = filled.take_all()
    assert isinstance(message, UpdateMetadata) and list(message.topics) == [topic("a", 0)]
    assert len(message.removed) == REMOVED_MAX and message.removed[-1][0] == f"t{REMOVED_MAX + 9}"


def test_another_epoch_is_not_joined_and_what_is_obsolete_is_given_up() -> None:
    filled = Filled(roles(role("a", 1)), roles(role("b", 2), epoch=2), roles(role("c", 3), epoch=2))
    assert len(filled.queue) == 2
    filled.queue.give_up(lambda message: message.controller_epoch == 2)
    assert filled.done == [(2, ErrorCode.NONE), (0, ErrorCode.NETWORK_EXCEPTION)]
    (message,) = filled.take_all()
    assert isinstance(message, LeaderAndIsr) and message.controller_epoch == 2 and len(message.states) == 2


class Receiver:
    """A slow and obvious model of a receiver: the state of a broker after it has received messages one by one."""

    def __init__(self) -> None:
        self.hosted: dict[Key, PartitionMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}

    def receive(self, message: ControlMessage) -> None:
        if isinstance(message, LeaderAndIsr):
            if message.is_complete:
                self.hosted = {}
            self.hosted.update({(one.topic_id, one.partition.index): one.partition for one in message.states})
        elif isinstance(message, StopReplica):
            for one in message.stopped:
                self.hosted.pop((one.topic_id, one.partition), None)
        elif isinstance(message, UpdateMetadata):
            for name, removed in message.removed:
                if name in self.topics and self.topics[name].topic_id == removed:
                    del self.topics[name]
            if message.is_complete:
                self.topics = {}
            self.topics.update({one.name: one for one in message.topics})


class Controller:
    """The messages that a controller sends to one broker: topics are created, changed and deleted, and a name may return with another
    id."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topics: dict[str, TopicMetadata] = {}
        self.hosted: dict[Key, ReplicaRole] = {}
        self.epoch = 0

    def messages(self) -> list[ControlMessage]:
        """Returns the messages of the next change."""
        self.epoch += 1
        name = self.chance.choice("abc")
        known = self.topics.get(name)
        if self.chance.random() < 0.1:
            everything = metadata(*self.topics.values(), is_complete=True)
            return [everything, roles(*self.hosted.values(), is_complete=True)]
        if known is not None and self.chance.random() < 0.3:
            del self.topics[name]
            number = int.from_bytes(known.topic_id, "big")
            gone = [index for topic_id_, index in self.hosted if topic_id_ == known.topic_id]
            self.hosted = {key: one for key, one in self.hosted.items() if key[0] != known.topic_id}
            return [metadata(removed=[(name, known.topic_id)]), stop(*((name, number, index) for index in gone))]
        number = self.epoch if known is None else int.from_bytes(known.topic_id, "big")
        self.topics[name] = topic(name, number, self.epoch)
        some = [role(name, number, index, epoch=self.epoch, is_new=known is None) for index in range(self.chance.randrange(3))]
        self.hosted.update({(one.topic_id, one.partition.index): one for one in some})
        moved = self.chance.randrange(3)
        is_moved = self.hosted.pop((topic_id(number), moved), None) is not None
        stopped = [stop((name, number, moved))] if is_moved else []
        return [roles(*some), *stopped, metadata(self.topics[name])]


def test_a_broker_knows_the_same_whatever_was_joined() -> None:
    for seed in range(200):
        controller, plain, joined, queue = Controller(seed), Receiver(), Receiver(), ControlQueue()
        for message in [one for _ in range(controller.chance.randrange(1, 40)) for one in controller.messages()]:
            plain.receive(message)
            queue.add(Letter(message, lambda _code: None))
            assert len(queue) <= 3
            if controller.chance.random() < 0.2 and (letter := queue.take()) is not None:
                joined.receive(letter.message)
        while (letter := queue.take()) is not None:
            joined.receive(letter.message)
        assert (joined.hosted, joined.topics) == (plain.hosted, plain.topics), f"seed {seed}"


def test_states_are_shared_not_copied() -> None:
    known = role("a", 1, epoch=4)
    (message,) = Filled(roles(known), roles(role("b", 2))).take_all()
    assert isinstance(message, LeaderAndIsr) and message.states[0] is known
