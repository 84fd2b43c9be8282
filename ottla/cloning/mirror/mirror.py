"""Runs a mirror: copies new records from the source to the target, keeps committed offsets and settings equal, and reports the lag. The
mirror stores no state. It asks the target for the end of each partition, reads the source from there, and sends the batches with the
expected end. The target refuses batches with another expected end. After each error, and after any process was killed, the mirror asks for
the end again. Records are therefore neither lost nor duplicated. Temporary errors are shown in the state, and the requests are repeated
until they succeed. If one topic cannot be mirrored any more, because it was deleted at the source or has another writer at the target, only
this topic fails, and the other topics continue.
A partition with a damaged batch at the source waits alone before that batch. The mirror reads it again every 15 s, because another replica
may lead the partition by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core import admin
from ottla.client.core.fetching import Fetched
from ottla.client.core.mirroring import offers_mirroring
from ottla.client.core.operations import isolation_level
from ottla.client.errors import AuthenticationError, AuthorizationError, ClientError, KafkaError, UnsupportedVersionError
from ottla.cloning.mirror.exact_target import ExactTarget
from ottla.cloning.mirror.group_offsets import GroupOffsets
from ottla.cloning.mirror.lost_markers import LostMarkers
from ottla.cloning.mirror.produced_target import ProducedTarget
from ottla.cloning.mirror.reading import Reader
from ottla.cloning.mirror.state import State, make_state
from ottla.cloning.mirror.target import FAILED, GRADUATED, MIRRORING, MirroredTopic, Outcome, Position, Target
from ottla.cloning.mirror.topics import TopicFollower
from ottla.cloning.plan import CloneError

LOOK_SECONDS = 1.0
GROUPS_SECONDS = 5.0
TOPICS_SECONDS = 15.0
RETRY_SECONDS = 0.5
WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRequest:
    """The options of a mirror. `groups` None: all groups that commit offsets for the topics. `settings` replace the source's.
    `replication_factor` is for new topics; -1 is the target's default. With `may_take_over` an existing topic of the target becomes a
    mirror, if its records are the beginning of the source's log.
    """

    topics: Sequence[str]
    groups: Sequence[str] | None = None
    settings: Mapping[str, str]
    replication_factor: int = -1
    may_take_over: bool = False


class Mirror:
    """See the module. `reading` is a second client of the source, for the thread that reads. `report` gets the state every second."""

    def __init__(
        self, source: Client, reading: Client, target: Client, request: MirrorRequest, report: Callable[[State], object]
    ) -> None:
        self._source = source
        self._request = request
        self._report = report
        if offers_mirroring(target.cluster):
            may_take_over, replicas = request.may_take_over, request.replication_factor
            self._target: Target = ExactTarget(source, target, replication_factor=replicas, may_take_over=may_take_over)
        else:
            self._target = ProducedTarget(source, target, replication_factor=request.replication_factor)
        self._follower = TopicFollower(source, target, request.settings, self._target.omitted_settings)
        self._groups = GroupOffsets(source, target, request.groups)
        self._lost_markers = LostMarkers(source, target)
        self._reader = Reader(reading, self._target.isolation, is_raw=self._target.is_exact)
        self._topics: dict[str, MirroredTopic] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._unsure: dict[TopicPartition, None] = {}
        """Partitions whose end at the target has to be asked for."""
        self._damaged: dict[TopicPartition, str] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._error: str | None = None
        self._copied = 0
        self._due_s: dict[str, float] = {}

    def run(self, is_over: Callable[[], bool]) -> State:
        """Mirrors until `is_over()` is true or no topic is left, and returns the last state. Raises `CloneError` and `ClientError` if it
        cannot begin."""
        self._prepare()
        self._reader.start()
        try:
            while not is_over() and self._active():
                self._step()
        finally:
            self._reader.stop()
        return self._show()

    def graduate(self, is_over: Callable[[], bool]) -> State:
        """Ends the mirroring of the topics: mirrors until the target has all records of the source, copies committed offsets, and makes the
        topics writable. Raises the errors of `run`, and `CloneError` if a transaction of the source is open at the end.
        """
        self._prepare()
        self._reader.start()
        try:
            while not is_over() and self._active() and not self._has_all():
                self._step()
            if not is_over() and self._active():
                self._graduate()
        finally:
            self._reader.stop()
        return self._show()

    # Beginning

    def _prepare(self) -> None:
        for name in self._request.topics:
            topic, leader_epoch = self._follower.found(name)
            self._target.prepare(topic, self._follower.settings(name), leader_epoch)
            self._topics[name] = topic
        self._unsure = dict.fromkeys(self._partitions())

    def _active(self) -> list[MirroredTopic]:
        return [topic for topic in self._topics.values() if topic.state == MIRRORING]

    def _partitions(self) -> list[TopicPartition]:
        return [partition for topic in self._active() for partition in topic.partitions]

    # One step

    def _step(self) -> None:
        try:
            if self._unsure:
                self._settle(list(self._unsure))
            answer = self._reader.next(0.0 if self._is_due("look") else WAIT_SECONDS)
            if answer.fetched:
                self._append(answer.fetched)
            elif answer.failures:
                self._due_s["look"] = 0.0
            for partition, failure in answer.failures.items():
                self._note_failure(partition, failure)
            self._look()
        except ClientError as error:
            self._pass_over(error)
            time.sleep(RETRY_SECONDS)
        if self._is_due("state"):
            self._due_s["state"] = time.monotonic() + LOOK_SECONDS
            self._show()

    def _is_due(self, what: str) -> bool:
        return time.monotonic() >= self._due_s.get(what, 0.0)

    def _pass_over(self, error: ClientError) -> None:
        """Notes a temporary error in the state. Raises a permanent one: missing permissions, or an API version that a cluster does not
        support.
        """
        if isinstance(error, AuthorizationError | AuthenticationError | UnsupportedVersionError):
            raise error
        self._error = str(error)

    def _note_failure(self, partition: TopicPartition, failure: ClientError) -> None:
        if isinstance(failure, KafkaError) and failure.code is ErrorCode.CORRUPT_MESSAGE:
            self._note_damage(partition, failure.message)
        else:
            self._pass_over(failure)

    def _note_damage(self, partition: TopicPartition, damage: str) -> None:
        self._damaged[partition] = f"damaged at the source: {damage}"
        self._reader.drop([partition])

    def _settle(self, partitions: Iterable[TopicPartition]) -> None:
        """Asks the target where partitions end, and continues to read the source from there."""
        found = self._target.positions(self._topics, partitions)
        known = {partition: one.end for partition, one in found.items() if isinstance(one, Position)}
        self._positions.update(known)
        self._unsure = {partition: None for partition in found if partition not in known}
        self._reader.seek(known)
        for one in found.values():
            if isinstance(one, KafkaError):
                self._pass_over(one)

    def _append(self, answer: Sequence[Fetched]) -> None:
        """Appends the batches that continue at the target's end, and drops older answers."""
        fits = [one for one in answer if self._positions.get(one.partition) == one.start and one.partition not in self._unsure]
        fits = [one for one in fits if self._topics[one.partition.topic].state == MIRRORING]
        if not fits:
            return
        self._unsure.update({one.partition: None for one in fits})  # until the target has answered
        outcomes = self._target.append(self._topics, fits)
        for one in fits:
            del self._unsure[one.partition]
        for one in fits:
            outcome = outcomes[one.partition]
            if outcome.end is not None:
                self._copied += len(one.data)
            self._take(one.partition, outcome, one.next_offset)
        if all(outcome.error is None for outcome in outcomes.values()):
            self._error = None

    def _take(self, partition: TopicPartition, outcome: Outcome, expected: int) -> None:
        topic = self._topics[partition.topic]
        if outcome.is_graduated:
            self._end(topic, GRADUATED, None)
        elif outcome.failure is not None:
            self._end(topic, FAILED, str(outcome.failure))
        elif outcome.end is None:
            self._error = str(outcome.error)
            self._unsure[partition] = None
            time.sleep(WAIT_SECONDS)
        else:
            if outcome.end > self._positions.get(partition, outcome.end):
                self._damaged.pop(partition, None)
            self._positions[partition] = outcome.end
            if outcome.damage is not None:
                self._note_damage(partition, outcome.damage)
            elif outcome.end != expected:
                self._unsure[partition] = None

    def _end(self, topic: MirroredTopic, state: str, error: str | None) -> None:
        topic.state, topic.error = state, error
        self._reader.drop(topic.partitions)
        for partition in topic.partitions:
            self._unsure.pop(partition, None)
            self._damaged.pop(partition, None)
        self._show()

    # Periodic work

    def _look(self) -> None:
        if self._is_due("look"):
            self._due_s["look"] = time.monotonic() + LOOK_SECONDS
            self._look_at_ends()
        if self._is_due("topics"):
            self._due_s["topics"] = time.monotonic() + TOPICS_SECONDS
            self._unsure.update(dict.fromkeys(self._damaged))
            self._follow_topics()
            if self._target.is_exact:
                self._lost_markers.look_at_target(self._positions)
                self._lost_markers.look_at_source(dict.fromkeys(self._partitions(), 0))
        if self._is_due("groups"):
            self._due_s["groups"] = time.monotonic() + GROUPS_SECONDS
            self._end_graduated()
            self._copy_groups()

    def _copy_groups(self) -> None:
        """Copies committed offsets, after the target's leader epochs are larger than the offsets' epochs. Otherwise a consumer that is
        moved to the target would ignore the target's metadata as too old.
        """
        for topic in self._active():
            self._target.raise_epoch(topic, self._follower.newest_epoch(topic.name))
        self._groups.copy({one: self._positions[one] for one in self._partitions() if one in self._positions})

    def _look_at_ends(self) -> None:
        """Compares the source's log bounds with the target's ends. Restarts a partition behind records that the source has deleted, and
        fails a topic whose log was truncated at the source.
        """
        partitions = [one for one in self._partitions() if one in self._positions and one not in self._unsure]
        found = self._source_ends(partitions)
        self._ends.update(found)
        starts = self._listed(partitions, admin.EARLIEST)
        for partition, end in found.items():
            topic, position, start = self._topics[partition.topic], self._positions[partition], starts.get(partition, 0)
            if topic.state != MIRRORING:
                continue
            if position < start:
                self._restart(topic, partition, position, start)
            elif end < position:
                self._check_cut(topic, partition, position)

    def _restart(self, topic: MirroredTopic, partition: TopicPartition, position: int, start: int) -> None:
        try:
            self._take(partition, self._target.restart(topic, partition, position, start), start)
        except CloneError as failure:
            self._end(topic, FAILED, str(failure))
        else:
            self._unsure[partition] = None

    def _check_cut(self, topic: MirroredTopic, partition: TopicPartition, position: int) -> None:
        """Fails the topic if the source still ends before the target. It asks for the source's end again, because the target may have got
        records since the first answer.
        """
        end = self._source_end_of_all(partition)
        if end is not None and end < position:
            self._end(topic, FAILED, f"{partition} of the source ends at {end}, before the target's end {position}: it has lost records")

    def _source_end_of_all(self, partition: TopicPartition) -> int | None:
        found = admin.list_offsets(self._source.cluster, {partition: admin.LATEST})[partition]
        return None if isinstance(found, KafkaError) else found.offset

    def _source_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(partitions, admin.LATEST)

    def _listed(self, partitions: Sequence[TopicPartition], moment: int) -> dict[TopicPartition, int]:
        level = isolation_level(self._target.isolation)
        found = admin.list_offsets(self._source.cluster, dict.fromkeys(partitions, moment), isolation_level=level) if partitions else {}
        for one in found.values():
            if isinstance(one, KafkaError):
                self._error = str(one)
        return {partition: one.offset for partition, one in found.items() if not isinstance(one, KafkaError)}

    def _end_graduated(self) -> None:
        """Stops mirroring topics that were made writable, before offsets are copied: their groups now commit at the target, and the
        source's offsets are older.
        """
        for topic in self._active():
            if self._target.is_graduated(topic):
                self._end(topic, GRADUATED, None)

    def _follow_topics(self) -> None:
        self._end_graduated()
        for topic in self._active():
            try:
                self._follower.check(topic)
                if self._follower.follow(topic):
                    self._unsure.update(dict.fromkeys(one for one in topic.partitions if one not in self._positions))
            except CloneError as failure:
                self._end(topic, FAILED, str(failure))
            except KafkaError as error:
                self._error = str(error)
                self._due_s["topics"] = time.monotonic() + LOOK_SECONDS

    # The end

    def _has_all(self) -> bool:
        """Whether the target has all that the source has, as of now. Damaged partitions do not count."""
        partitions = [one for one in self._partitions() if one not in self._damaged]
        if not self._unsure.keys() <= self._damaged.keys() or any(one not in self._positions for one in partitions):
            return False
        if any(self._positions[one] < self._ends.get(one, 0) for one in partitions):
            return False  # a known end is not reached; asking for the newest one after each answer would cost more than a request
        try:
            ends = self._source_ends(partitions)
        except ClientError as error:
            self._error = str(error)
            return False
        self._ends.update(ends)
        return all(ends.get(one, -1) == self._positions[one] for one in partitions)

    def _graduate(self) -> None:
        if self._damaged:
            raise CloneError("; ".join(f"{partition} is {damage}" for partition, damage in self._damaged.items()))
        found_ends = self._target.positions(self._topics, self._partitions())
        lost = self._partitions_with_lost_markers() if self._target.is_exact else set()
        for partition, found in found_ends.items():
            if isinstance(found, KafkaError):
                raise found
            if not found.is_stable and partition not in lost:
                raise CloneError(f"{partition} has an open transaction of the source at its end; end it there, as `ottla txn abort` does")
        self._groups.forget()
        self._copy_groups()
        for topic in self._active():
            self._target.graduate(topic)
            topic.state = GRADUATED

    def _partitions_with_lost_markers(self) -> set[TopicPartition]:
        self._lost_markers.look_at_source(dict.fromkeys(self._partitions(), 0))
        return self._lost_markers.look_at_target(self._positions)

    def _show(self) -> State:
        notes = [*self._groups.notes, *self._lost_markers.notes, *(note for some in self._follower.notes.values() for note in some)]
        state = make_state(
            self._topics.values(), self._ends, self._positions, self._damaged, error=self._error, groups=self._groups.count,
            copied=self._copied, notes=notes,
        )  # fmt: skip
        self._report(state)
        return state
