"""Ottla as a target: its leaders append the source's batches as they are (MirrorRecords).

The topic has the setting `ottla.mirror.source`, so that only a mirror of this source writes to it, and `ottla.leader.epoch.min`, which is
larger than every leader epoch of the source. If the source elects a leader with a larger epoch, the setting is raised first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.settings.topics import LEADER_EPOCH_MIN, MIRROR_SOURCE
from ottla.base.types import TopicPartition
from ottla.client.blocking.client import Client
from ottla.client.core.fetching import Fetched
from ottla.client.core.mirroring import Mirrored, MirrorPart, mirror_records
from ottla.client.errors import KafkaError, UnknownTopicError
from ottla.cloning.mirror.comparing import check_is_prefix
from ottla.cloning.mirror.target import MirroredTopic, Outcome, Position
from ottla.cloning.plan import CloneError
from ottla.wire.batch_header import iter_batches

EPOCH_STEP = 1
REQUEST_BYTES_MAX, REQUEST_BATCHES_MAX = 8 << 20, 4_000
"""Limits of a request. Brokers refuse larger requests."""
PIECE_BYTES_MAX, PIECE_BATCHES_MAX = 4 << 20, 2_000
"""Limits of one partition in a request."""
UNKNOWN_END = -1


class ExactTarget:
    """See the module. `may_take_over`: an existing topic becomes a mirror if its records are the beginning of the source's."""

    isolation = "read_uncommitted"

    def __init__(self, source: Client, client: Client, *, replication_factor: int, may_take_over: bool) -> None:
        self._source = source
        self._client = client
        self._replication_factor = replication_factor
        self._may_take_over = may_take_over

    def prepare(self, topic: MirroredTopic, settings: Mapping[str, str], leader_epoch: int) -> None:
        mirrored = {MIRROR_SOURCE: topic.source, LEADER_EPOCH_MIN: str(leader_epoch + EPOCH_STEP)}
        try:
            found = self._client.describe_topic(topic.name)
        except UnknownTopicError:
            self._client.create_topic(
                topic.name, partitions=topic.partition_count, replication_factor=self._replication_factor, configs={**settings, **mirrored}
            )
            return
        if len(found.partitions) > topic.partition_count:
            raise CloneError(f"{topic.name!r} has more partitions at the target ({len(found.partitions)}) than at the source")
        configs = self._client.topic_configs(topic.name)
        current = configs.get(MIRROR_SOURCE)
        if current == topic.source:
            check_is_prefix(self._source, self._client, topic.partitions[: len(found.partitions)])
            return
        if current:
            raise CloneError(f"{topic.name!r} at the target mirrors another topic ({MIRROR_SOURCE}={current}); delete it at the target")
        if not self._may_take_over:
            raise CloneError(
                f"the target has a topic {topic.name!r} already, which is no mirror; delete it, or continue it by --continue-existing"
            )
        check_is_prefix(self._source, self._client, topic.partitions[: len(found.partitions)])
        mirrored[LEADER_EPOCH_MIN] = str(max(leader_epoch + EPOCH_STEP, int(configs.get(LEADER_EPOCH_MIN) or 0)))
        self._client.alter_topic_configs(topic.name, mirrored)

    def positions(
        self, topics: Mapping[str, MirroredTopic], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Position | KafkaError]:
        asked = {one: MirrorPart(topics[one.topic].source, UNKNOWN_END) for one in partitions}
        return {one: _position(found) for one, found in mirror_records(self._client.cluster, asked).items()}

    def append(self, topics: Mapping[str, MirroredTopic], fetched: Sequence[Fetched]) -> dict[TopicPartition, Outcome]:
        outcomes: dict[TopicPartition, Outcome] = {}
        left = {one.partition: deque(_pieces(one)) for one in fetched}
        while left:
            pieces = _next_pieces(left)
            parts = {
                partition: MirrorPart(topics[partition.topic].source, piece.expected_end, piece.log_start_offset, piece.batches)
                for partition, piece in pieces.items()
            }
            for partition, answer in mirror_records(self._client.cluster, parts).items():
                outcome = outcomes[partition] = self._outcome(topics[partition.topic], answer, pieces[partition].newest_epoch)
                if outcome.end != pieces[partition].end or not left[partition]:
                    del left[partition]
        return outcomes

    def restart(self, topic: MirroredTopic, partition: TopicPartition, end: int, start: int) -> Outcome:
        answers = mirror_records(self._client.cluster, {partition: MirrorPart(topic.source, end, start)})
        return self._outcome(topic, answers[partition], -1)

    def is_graduated(self, topic: MirroredTopic) -> bool:
        return not self._client.topic_configs(topic.name).get(MIRROR_SOURCE)

    def graduate(self, topic: MirroredTopic) -> None:
        self._client.alter_topic_configs(topic.name, {}, deletions=[MIRROR_SOURCE])

    def _outcome(self, topic: MirroredTopic, found: Mirrored, newest_epoch: int) -> Outcome:
        error = found.error
        if error is None:
            return Outcome(found.log_end_offset)
        if error.code is ErrorCode.UNKNOWN_LEADER_EPOCH:
            self._raise_epoch(topic, newest_epoch)
        elif error.code is ErrorCode.INVALID_REQUEST and self.is_graduated(topic):
            return Outcome(is_graduated=True)
        elif error.code is ErrorCode.INVALID_REQUEST:
            return Outcome(failure=CloneError(f"{topic.name!r} of the target has another source now: {error.message}"))
        elif error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
            return Outcome(failure=CloneError(error.message))
        return Outcome(error=error)

    def _raise_epoch(self, topic: MirroredTopic, newest: int) -> None:
        leaders = self._source.describe_topic(topic.name).partitions
        epoch = max(newest, *(one.leader_epoch for one in leaders)) + EPOCH_STEP
        self._client.alter_topic_configs(topic.name, {LEADER_EPOCH_MIN: str(epoch)})


class Piece(NamedTuple):
    """Whole batches of one partition that one request has room for. `end` is the end of the log with them."""

    expected_end: int
    end: int
    batches: memoryview
    batch_count: int
    newest_epoch: int
    log_start_offset: int


def _pieces(fetched: Fetched) -> list[Piece]:
    """Splits an answer into pieces, without the first part of another batch at its end."""
    data = memoryview(fetched.data)
    pieces: list[Piece] = []
    begin = size = count = 0
    expected_end, end, newest = fetched.start, fetched.start, -1
    for position, header in iter_batches(data):
        if count and (count == PIECE_BATCHES_MAX or position + header.size_bytes - begin > PIECE_BYTES_MAX):
            pieces.append(Piece(expected_end, end, data[begin:size], count, newest, fetched.log_start_offset))
            begin, expected_end, count = position, end, 0
        size, end, count, newest = position + header.size_bytes, header.next_offset, count + 1, header.partition_leader_epoch
    if count:
        pieces.append(Piece(expected_end, end, data[begin:size], count, newest, fetched.log_start_offset))
    return pieces


def _next_pieces(left: Mapping[TopicPartition, deque[Piece]]) -> dict[TopicPartition, Piece]:
    """Takes the pieces of the next request: the first piece of as many partitions as it has room for."""
    chosen: dict[TopicPartition, Piece] = {}
    size = count = 0
    for partition, pieces in left.items():
        piece = pieces[0]
        if chosen and (size + len(piece.batches) > REQUEST_BYTES_MAX or count + piece.batch_count > REQUEST_BATCHES_MAX):
            continue
        chosen[partition] = pieces.popleft()
        size, count = size + len(piece.batches), count + piece.batch_count
    return chosen


def _position(found: Mirrored) -> Position | KafkaError:
    if found.log_end_offset < 0:
        assert found.error is not None, "a broker that leads a partition sends its bounds"
        return found.error
    return Position(found.log_end_offset, found.last_stable_offset == found.high_watermark == found.log_end_offset)
