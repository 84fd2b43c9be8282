"""Copies dead letters of share groups to their dead-letter topics (KIP-1191).

The name of a group's topic must begin with `errors.deadletterqueue.topic.name.prefix`, and the topic must have the setting
`errors.deadletterqueue.group.enable=true`. Without these rules, a client that configures a group could write into any topic. A missing
topic is created if `errors.deadletterqueue.auto.create.topics.enable` permits it. The records go to the partition of the topic with the
original partition's number, modulo the number of partitions, with acks=all. They are appended here if this broker leads that partition,
otherwise on its leader.

A failed write is tried again up to `ATTEMPTS_MAX` times, with rising pauses. After that, and at once if the topic is not permitted or
refuses the records, the copy is given up: the log says why, and the records are archived without a copy, as in Kafka. They stay in their
topic. A missing topic is also looked up `ATTEMPTS_MAX` times, because this broker may not know it yet. Once a log line has said that it is
missing, later records do not wait for it.

At most `COPIES_MAX` copies are in progress, because each of them has some megabytes in memory. The others wait in order. Each share
partition has one copy at most.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

from ottla.base.bounded_cache import BoundedCache
from ottla.base.cluster_metadata import CONFIG_GROUP, NO_LEADER, TopicMetadata
from ottla.base.errors import ApiError, ErrorCode, error_code
from ottla.base.loop.procedure import Answer, Procedure, Runner, pause
from ottla.base.ports import Peers, Threads, Timers
from ottla.controller.api import NewTopic, TopicResult
from ottla.handlers.context import Broker
from ottla.handlers.share_groups.dead_letter_records import Originals, read_originals, write_batch
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.sharing.dead_letters import Copied, DeadLetters
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

log = logging.getLogger("ottla.sharing")

COPIES_MAX = 4
READ_BYTES = 1 << 20
"""Bytes of the log that are read at once for a run of dead letters. For a single one, only its batch is read."""
ATTEMPTS_MAX = 5
RETRY_FIRST_MS, RETRY_MAX_MS = 1_000, 30_000
PROBLEM_BYTES = 1 << 20
"""Memory for the last problem of each group, which is logged once and not for each record."""
ALL = -1
LANE = "dead letters"
"""Connections to other brokers for these writes, because a write may wait for replicas."""
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
RETRIABLE = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        MISSING,
    }
)


class DeadLetterCopies:
    """Copies the dead letters of one broker. `copy` implements `sharing.dead_letters.CopyDeadLetters`."""

    def __init__(self, broker: Broker, peers: Peers, threads: Threads, timers: Timers) -> None:
        self._broker = broker
        self._peers = peers
        self._threads = threads
        self._timers = timers
        self._waiting: deque[tuple[DeadLetters, Copied]] = deque()
        self._running: set[Runner] = set()
        self._is_starting = False
        self._logged = BoundedCache[str, str](PROBLEM_BYTES)

    def copy(self, letters: DeadLetters, done: Copied) -> None:
        self._waiting.append((letters, done))
        self._start()

    def close(self) -> None:
        """Ends all copies without an answer. The dead letters that are not archived are copied by the next leader."""
        self._waiting.clear()
        running, self._running = self._running, set()
        for runner in running:
            runner.cancel()

    def _start(self) -> None:
        if self._is_starting:
            return
        self._is_starting = True
        while self._waiting and len(self._running) < COPIES_MAX:
            letters, done = self._waiting.popleft()
            runner = Runner()
            self._running.add(runner)
            runner.start(self._run(runner, letters, done))
        self._is_starting = False

    def _run(self, runner: Runner, letters: DeadLetters, done: Copied) -> Procedure[None]:
        may_archive = yield from self._copy(letters)
        self._running.discard(runner)
        done(may_archive)
        self._start()

    def _copy(self, letters: DeadLetters) -> Procedure[bool]:
        """Copies the dead letters, a batch at a time. Returns whether they may be archived (`Copied`)."""
        group_id, failures, offset = letters.key.group_id, 0, letters.first_offset
        while offset <= letters.last_offset:
            source = self._broker.partitions.get_by_id(letters.key.topic_id, letters.key.partition)
            if source is None or source.leader is None or source.leader_epoch != letters.leader_epoch:
                return False
            try:
                topic = yield from self._topic_of(group_id)
                last_offset = yield from self._copy_some(letters, offset, source, topic)
            except ApiError as error:
                failures += 1
                is_known = error.code is MISSING and self._logged.get(group_id) == error.message
                if error.code not in RETRIABLE or failures == ATTEMPTS_MAX or is_known:
                    self._give_up(letters, offset, source, error)
                    return True
                yield from pause(self._timers, min(RETRY_FIRST_MS << (failures - 1), RETRY_MAX_MS))
            else:
                self._broker.dead_letters.copied += last_offset - offset + 1
                self._logged.forget(group_id)
                failures, offset = 0, last_offset + 1
        return True

    def _give_up(self, letters: DeadLetters, offset: int, source: Partition, error: ApiError) -> None:
        group_id = letters.key.group_id
        self._broker.dead_letters.given_up += letters.last_offset - offset + 1
        if self._logged.get(group_id) != error.message:
            self._logged.remember(group_id, error.message)
            log.error(
                "share group %r: dead letters are archived without a copy, the first one at offset %d of %s: %s",
                group_id, offset, source.topic_partition, error.message or error.code.name,
            )  # fmt: skip

    # The topic

    def _topic_of(self, group_id: str) -> Procedure[TopicMetadata]:
        """Returns the group's dead-letter topic, which is created if necessary. Raises `ApiError`, INVALID_CONFIG if a setting forbids it.
        """
        config, metadata = self._broker.config, self._broker.metadata
        name = str(config.group_value("errors.deadletterqueue.topic.name", metadata.configs(CONFIG_GROUP, group_id)))
        prefix = config.errors_deadletterqueue_topic_name_prefix
        topic = metadata.topic(name)
        if not name:
            raise ApiError(ErrorCode.INVALID_CONFIG, "the group has no errors.deadletterqueue.topic.name")
        if topic is not None and not config.topic_value(GROUP_ENABLE, topic.configs):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"the topic {name!r} does not permit it; set its {GROUP_ENABLE}=true")
        if not name.startswith(prefix):
            message = f"the name of the topic {name!r} does not begin with {prefix!r} (errors.deadletterqueue.topic.name.prefix)"
            raise ApiError(ErrorCode.INVALID_CONFIG, message)
        if topic is None:
            topic = yield from self._created(name)
        return topic

    def _created(self, name: str) -> Procedure[TopicMetadata]:
        if not self._broker.config.errors_deadletterqueue_auto_create_topics_enable:
            message = f"the topic {name!r} does not exist; create it, or set errors.deadletterqueue.auto.create.topics.enable=true"
            raise ApiError(MISSING, message)
        wanted = NewTopic(name=name, configs={GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"})
        results: list[TopicResult] = yield partial(self._broker.controller_link.create_topics, [wanted], False)
        (result,) = results
        if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise ApiError(result.error, f"the topic {name!r} cannot be created: {result.message or result.error.name}")
        topic = self._broker.metadata.topic(name)
        if topic is None:
            raise ApiError(MISSING, f"the topic {name!r} is not known yet")
        return topic

    # The records

    def _copy_some(self, letters: DeadLetters, offset: int, source: Partition, topic: TopicMetadata) -> Procedure[int]:
        """Writes a batch of dead letters from `offset` on. Returns the offset of its last one. Raises `ApiError`."""
        config, key = self._broker.config, letters.key
        bytes_max = int(config.topic_value("max.message.bytes", topic.configs))
        originals = Originals({}, letters.last_offset)
        if config.group_value("errors.deadletterqueue.copy.record.enable", self._broker.metadata.configs(CONFIG_GROUP, key.group_id)):
            originals = yield from self._read(letters, offset, source, bytes_max)
        now_ms = self._broker.clock.wall_ms()
        batch, last_offset = write_batch(source.topic_partition.topic, letters, offset, originals, now_ms, bytes_max)
        yield from self._write(topic, key.partition % len(topic.partitions), batch, now_ms)
        return last_offset

    def _read(self, letters: DeadLetters, offset: int, source: Partition, bytes_max: int) -> Procedure[Originals]:
        found = (
            source.read(offset, 1 if offset == letters.last_offset else READ_BYTES).slice if offset >= source.log.log_start_offset else None
        )
        if found is None:
            return Originals({}, letters.last_offset)  # retention has removed the records
        read = partial(
            read_originals, found, offset, letters.last_offset,
            bytes_max=bytes_max, decompressed_bytes_max=source.log.config.decompressed_bytes_max,
        )  # fmt: skip
        originals: Originals = yield partial(self._threads.run, read)
        return originals

    def _write(self, topic: TopicMetadata, index: int, batch: bytearray, now_ms: int) -> Procedure[None]:
        """Writes a batch with acks=all. Raises `ApiError`."""
        local = self._broker.partitions.get(topic.name, index)
        if local is not None and local.leader is not None:
            yield from self._write_here(local.leader, batch, now_ms)
            return
        leader_id = topic.partitions[index].leader
        if leader_id == NO_LEADER:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic.name}-{index} has no leader")
        data = TopicProduceData(
            name=topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=index, records=memoryview(batch))]
        )
        body = ProduceRequest(acks=ALL, timeout_ms=self._broker.config.request_timeout_ms, topic_data=[data])
        response, code = yield partial(self._peers.send, leader_id, body, lane=LANE)
        if response is not None:
            results = [result for found in response.responses for result in found.partition_responses]
            code = results[0].error_code if len(results) == 1 else ErrorCode.UNKNOWN_SERVER_ERROR
        if code:
            raise ApiError(error_code(code), f"broker {leader_id} answers {error_code(code).name} for {topic.name}-{index}")

    def _write_here(self, leader: Leader, batch: bytearray, now_ms: int) -> Procedure[None]:
        last_offset = leader.append(batch, acks=ALL, now_ms=now_ms).last_offset
        code = leader.acknowledgement(last_offset, ALL)
        if code is None:
            acknowledged: Answer[None] = Answer()
            leader.call_when_acknowledged(last_offset, ALL, acknowledged)
            yield from acknowledged.wait(self._timers, self._broker.config.request_timeout_ms)
            leader.forget_acknowledgement(acknowledged)
            code = leader.acknowledgement(last_offset, ALL)
        if code is None or code:
            refusal = code or ErrorCode.REQUEST_TIMED_OUT
            raise ApiError(refusal, f"{leader.log.topic_partition} does not acknowledge the dead letters: {refusal.name}")
