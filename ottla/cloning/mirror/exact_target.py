"""An Ottla cluster as the target of a mirror: its leaders append the source's batches unchanged (MirrorRecords). The target topic has the
setting `ottla.mirror.source`, so that only a mirror of this source writes to it, and `ottla.leader.epoch.min`, which is larger than every
leader epoch of the source. If the source elects a leader with a larger epoch, the setting is raised before records or committed offsets
with this epoch are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode, WireError
from ottla.base.settings.topics import LEADER_EPOCH_MIN, MIRROR_SOURCE
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.fetching import Fetched, sound_batches
from ottla.client.core.mirroring import REQUEST_BATCHES_MAX, REQUEST_BYTES_MAX, Mirrored, MirrorPart, mirror_records
from ottla.client.errors import KafkaError
from ottla.cloning.mirror.comparing import check_is_prefix
from ottla.cloning.mirror.target import GRADUATED, MirroredTopic, Outcome, Position, found_or_created
from ottla.cloning.plan import CloneError

EPOCH_STEP = 1
UNKNOWN_END = -1


class ExactTarget:
    """See the module. With `may_take_over` an existing topic becomes a mirror, if its records are the beginning of the source's log."""

    isolation = "read_uncommitted"
    is_exact = True
    omitted_settings: frozenset[str] = frozenset()

    def __init__(self, source: Client, client: Client, *, replication_factor: int, may_take_over: bool) -> None:
        self._source = source
        self._client = client
        self._replication_factor = replication_factor
        self._may_take_over = may_take_over
        self._newest_epochs: dict[str, int] = {}
        """By topic: the largest leader epoch of the source that `ottla.leader.epoch.min` at the target is larger than."""

    def prepare(self, topic: MirroredTopic, settings: Mapping[str, str], leader_epoch: int) -> None:
        mirrored = {MIRROR_SOURCE: topic.source, LEADER_EPOCH_MIN: str(leader_epoch + EPOCH_STEP)}
        found = found_or_created(self._client, topic, {**settings, **mirrored}, self._replication_factor)
        if found is None:
            self._newest_epochs[topic.name] = leader_epoch
            return
        configs = self._client.topic_configs(topic.name)
        current, epoch_min = configs.get(MIRROR_SOURCE), int(configs.get(LEADER_EPOCH_MIN) or 0)
        self._newest_epochs[topic.name] = epoch_min - EPOCH_STEP
        if current == topic.source:
            check_is_prefix(self._source, self._client, topic.partitions[: len(found.partitions)])
            self.raise_epoch(topic, leader_epoch)
            return
        if current:
            raise CloneError(f"{topic.name!r} at the target mirrors another topic ({MIRROR_SOURCE}={current}); delete it at the target")
        if not self._may_take_over and epoch_min and len(found.partitions) == topic.partition_count and self._has_all_of_source(topic):
            topic.state = GRADUATED
            return
        if not self._may_take_over:
            raise CloneError(
                f"the target has a topic {topic.name!r} already, which is no mirror; delete it, or continue it by --continue-existing"
            )
        check_is_prefix(self._source, self._client, topic.partitions[: len(found.partitions)])
        mirrored[LEADER_EPOCH_MIN] = str(max(leader_epoch + EPOCH_STEP, epoch_min))
        self._client.alter_topic_configs(topic.name, mirrored)
        self._newest_epochs[topic.name] = max(leader_epoch, epoch_min - EPOCH_STEP)

    def _has_all_of_source(self, topic: MirroredTopic) -> bool:
        """Whether the source's records are the beginning of the target's log, as after `graduate`."""
        try:
            check_is_prefix(self._client, self._source, topic.partitions)
        except CloneError:
            return False
        return True

    def positions(
        self, topics: Mapping[str, MirroredTopic], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position | KafkaError]:
        asked = {one: [MirrorPart(topics[one.topic].source, UNKNOWN_END)] for one in partitions}
        return {one: _position(found) for one, (found,) in mirror_records(self._client.cluster, asked).items()}

    def append(self, topics: Mapping[str, MirroredTopic], fetched: Sequence[Fetched]) -> dict[TopicPartition, Outcome]:
        pieces = {one.partition: _pieces(one, topics[one.partition.topic].source) for one in fetched}
        answers = mirror_records(self._client.cluster, {partition: [piece.part for piece in some] for partition, some in pieces.items()})
        outcomes: dict[TopicPartition, Outcome] = {}
        for partition, some in answers.items():
            number = next((number for number, answer in enumerate(some) if answer.error is not None), len(some) - 1)
            piece, topic = pieces[partition][number], topics[partition.topic]
            outcome = self._append_sound(topic, partition, piece.part) if _is_corrupt(some[number]) else None
            outcomes[partition] = outcome or self._outcome(topic, some[number], piece.newest_epoch)
        return outcomes

    def _append_sound(self, topic: MirroredTopic, partition: TopicPartition, part: MirrorPart) -> Outcome | None:
        """Appends the batches before the damaged one of a refused part. Returns None if no batch is damaged."""
        size = count = 0
        try:
            for _, batch in sound_batches(partition, memoryview(part.records)):
                size, count = size + len(batch), count + 1
        except WireError as error:
            sound = part._replace(records=memoryview(part.records)[:size], batch_count=count)
            (found,) = mirror_records(self._client.cluster, {partition: [sound]})[partition]
            outcome = self._outcome(topic, found, -1)
            return outcome if outcome.end is None else outcome._replace(damage=str(error))
        return None

    def restart(self, topic: MirroredTopic, partition: TopicPartition, end: int, start: int) -> Outcome:
        answers = mirror_records(self._client.cluster, {partition: [MirrorPart(topic.source, end, start)]})
        return self._outcome(topic, answers[partition][0], -1)

    def raise_epoch(self, topic: MirroredTopic, leader_epoch: int) -> None:
        if leader_epoch > self._newest_epochs[topic.name]:
            self._client.alter_topic_configs(topic.name, {LEADER_EPOCH_MIN: str(leader_epoch + EPOCH_STEP)})
            self._newest_epochs[topic.name] = leader_epoch

    def is_graduated(self, topic: MirroredTopic) -> bool:
        return not self._client.topic_configs(topic.name).get(MIRROR_SOURCE)

    def graduate(self, topic: MirroredTopic) -> None:
        self._client.alter_topic_configs(topic.name, {}, deletions=[MIRROR_SOURCE])

    def _outcome(self, topic: MirroredTopic, found: Mirrored, newest_epoch: int) -> Outcome:
        error = found.error
        if error is None:
            return Outcome(found.log_end_offset)
        if error.code is ErrorCode.UNKNOWN_LEADER_EPOCH:
            self.raise_epoch(topic, newest_epoch)
        elif error.code is ErrorCode.INVALID_REQUEST and self.is_graduated(topic):
            return Outcome(is_graduated=True)
        elif error.code is ErrorCode.INVALID_REQUEST:
            return Outcome(failure=CloneError(f"{topic.name!r} of the target has another source now: {error.message}"))
        elif error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
            return Outcome(failure=CloneError(error.message))
        return Outcome(error=error)


class Piece(NamedTuple):
    """The part of a Fetch answer that fits into one MirrorRecords request."""

    part: MirrorPart
    newest_epoch: int


def _pieces(fetched: Fetched, source: str) -> list[Piece]:
    """Splits the complete batches of a Fetch answer into pieces; an incomplete batch at its end is dropped. A batch that is larger than a
    request is a piece by itself.
    """
    data = memoryview(fetched.data)
    pieces: list[Piece] = []
    begin = size = count = 0
    expected_end, end, newest = fetched.start, fetched.start, -1

    def add() -> None:
        pieces.append(Piece(MirrorPart(source, expected_end, fetched.log_start_offset, data[begin:size], count), newest))

    for header, batch in fetched.batches:
        following = size + len(batch)
        if count and (count == REQUEST_BATCHES_MAX or following - begin > REQUEST_BYTES_MAX):
            add()
            begin, expected_end, count = size, end, 0
        size, end, count, newest = following, header.next_offset, count + 1, header.partition_leader_epoch
    add()
    return pieces


def _is_corrupt(found: Mirrored) -> bool:
    return found.error is not None and found.error.code is ErrorCode.CORRUPT_MESSAGE


def _position(found: Mirrored) -> Position | KafkaError:
    if found.log_end_offset < 0:
        assert found.error is not None, "a broker that leads a partition sends its bounds"
        return found.error
    return Position(found.log_end_offset, found.last_stable_offset == found.high_watermark == found.log_end_offset)
