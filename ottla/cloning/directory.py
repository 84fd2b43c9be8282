"""Makes the data directory of a single broker from cloned logs: metadata, checkpoints, ledger (`ottla/storage`), committed offsets. To the
broker that starts on it, the directory looks as if broker 0 of a new cluster had closed it cleanly. The broker's first leader epochs are
larger than the source's. New producers get ids that no record of the clone has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from ottla.adapters.disk import OsDisk
from ottla.adapters.local_store import FILE_NAME, LocalStore
from ottla.adapters.randomness import SystemRandom
from ottla.base.cluster_metadata import CONFIG_TOPIC, PartitionMetadata, TopicMetadata
from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.base.ports import Create, Operation, Outcome, StoreResult
from ottla.base.types import GROUP_METADATA_TOPIC, TopicPartition
from ottla.base.uuids import fresh_uuid, uuid_to_text
from ottla.cloning.plan import ClonePlan
from ottla.controller.internal_topics import new_internal_topic
from ottla.groups.offsets.store import CommittedOffset
from ottla.groups.records import offset_commit
from ottla.metadata_store import znodes
from ottla.storage import ledger
from ottla.storage.log import Log
from ottla.storage.offset_checkpoints import LogOffsets, write_entries
from ottla.storage.small_files import META_PROPERTIES_FILE, MetaProperties, write_clean_shutdown, write_meta_properties
from ottla.transactions.producer_ids import BLOCK_PATH, BLOCK_SIZE, block_bytes
from ottla.wire.records import Record, encode_batch

BROKER_ID = 0
RECORDS_IN_BATCH = 1000
OPERATIONS_IN_MULTI = 1000


class ClonedLog(NamedTuple):
    """A log that was copied and closed. `leader_epoch` is the largest one of the source and of the records."""

    partition: TopicPartition
    topic_id: bytes
    log_start_offset: int
    log_end_offset: int
    leader_epoch: int
    producer_id_max: int


def closed(log: Log, topic_id: bytes, leader_epoch: int) -> ClonedLog:
    """Closes a log cleanly and returns its description. Raises `StorageError`."""
    producer_id_max = max((one.producer_id for one in log.producers.active()), default=-1)
    log.close(clean=True)
    epoch = max(leader_epoch, log.epochs.latest)
    return ClonedLog(log.topic_partition, topic_id, log.log_start_offset, log.log_end_offset, epoch, producer_id_max)


def finish_directory(directory: str, plan: ClonePlan, logs: Sequence[ClonedLog], now_ms: int) -> None:
    """Writes everything except the logs of the topics. It may be called again after a kill. Raises `StorageError`."""
    disk, random = OsDisk(), SystemRandom()
    for name in disk.listdir(directory):
        if name.startswith((FILE_NAME, ledger.LEDGER_FILE, META_PROPERTIES_FILE)):
            disk.remove(f"{directory}/{name}")
    config, configs = BrokerConfig(), {topic.name: topic.settings for topic in plan.topics}
    everything = [*logs]
    if plan.offsets:
        internal = new_internal_topic(GROUP_METADATA_TOPIC, config)
        configs[GROUP_METADATA_TOPIC] = {name: text for name, text in internal.configs.items() if text is not None}
        everything.append(_write_offsets(directory, plan, config, configs[GROUP_METADATA_TOPIC], random, now_ms))
    cluster_id = uuid_to_text(fresh_uuid(random.token_bytes(16)))
    _note_ends(directory, everything)
    with closing(LocalStore(f"{directory}/{FILE_NAME}")) as store:
        operations = [*_nodes(plan, everything, configs, cluster_id)]
        for first in range(0, len(operations), OPERATIONS_IN_MULTI):
            store.multi(operations[first : first + OPERATIONS_IN_MULTI], _check)
    owner = MetaProperties(broker_id=BROKER_ID, cluster_id=cluster_id, directory_id=uuid_to_text(random.token_bytes(16)))
    write_meta_properties(disk, directory, owner)
    write_clean_shutdown(disk, directory)


def _check(outcome: Outcome) -> None:
    if outcome.result is not StoreResult.OK:
        raise StorageError(f"the metadata of the clone cannot be written: {outcome.result.name}")


def _write_offsets(
    directory: str, plan: ClonePlan, config: BrokerConfig, settings: Mapping[str, str], random: SystemRandom, now_ms: int
) -> ClonedLog:
    """Writes `__consumer_offsets` with one partition, which is enough for a single broker."""
    key, topic_id = TopicPartition(GROUP_METADATA_TOPIC, 0), fresh_uuid(random.token_bytes(16))
    disk, path = OsDisk(), f"{directory}/{key}"
    if disk.exists(path):
        disk.remove_tree(path)
    log = Log.open(disk, path, key, config.log_config(settings), now_ms=now_ms, was_clean=False, topic_id=topic_id)
    ids = {topic.name: bytes.fromhex(topic.topic_id) for topic in plan.topics}
    encoded = []
    for one in plan.offsets:
        committed = CommittedOffset(one.offset, one.leader_epoch, one.metadata, now_ms, topic_id=ids[one.topic])
        encoded.append(offset_commit(one.group, one.topic, one.partition, committed))
    for first in range(0, len(encoded), RECORDS_IN_BATCH):
        records = [Record(0, now_ms, one.key, one.value) for one in encoded[first : first + RECORDS_IN_BATCH]]
        log.append_as_follower(memoryview(encode_batch(records, base_offset=log.log_end_offset, leader_epoch=0)))
    return closed(log, topic_id, 0)


def _note_ends(directory: str, logs: Sequence[ClonedLog]) -> None:
    """Writes the checkpoints and the ledger, which say that all records are synced to disk and below the high watermark."""
    disk = OsDisk()
    notes: list[str] = []
    rows = ledger.Ledger(disk, directory, notes.append, is_new=True)
    for one in logs:
        row = rows.row(one.topic_id, one.partition.partition)
        row.enter(one.log_end_offset, 0, one.log_start_offset, one.leader_epoch)
        row.cells[row.at + ledger.SYNCED] = row.cells[row.at + ledger.WATERMARK] = one.log_end_offset
    rows.sync()
    if notes:
        raise StorageError(notes[0], directory)
    entries = {one.partition: LogOffsets(one.topic_id, one.log_end_offset, one.log_end_offset, one.log_start_offset) for one in logs}
    write_entries(disk, directory, entries)


def _nodes(plan: ClonePlan, logs: Sequence[ClonedLog], configs: Mapping[str, Mapping[str, str]], cluster_id: str) -> Iterable[Operation]:
    """Yields the nodes of the metadata, parents first."""
    for path in znodes.BASE_PATHS:
        yield Create(path)
    yield Create(znodes.CLUSTER_ID, znodes.cluster_id_bytes(cluster_id))
    producer_id_max = max((one.producer_id_max for one in logs), default=-1)
    if producer_id_max >= 0:
        yield Create(BLOCK_PATH, block_bytes(BROKER_ID, producer_id_max // BLOCK_SIZE * BLOCK_SIZE))
    of_topics: dict[str, list[ClonedLog]] = {}
    for one in logs:
        of_topics.setdefault(one.partition.topic, []).append(one)
    committed: dict[TopicPartition, int] = {}
    for offset in plan.offsets:
        key = TopicPartition(offset.topic, offset.partition)
        committed[key] = max(committed.get(key, 0), offset.leader_epoch)
    for name, of_topic in of_topics.items():
        partitions = tuple(
            PartitionMetadata(
                index=one.partition.partition, leader=BROKER_ID, leader_epoch=max(one.leader_epoch, committed.get(one.partition, 0)),
                replicas=(BROKER_ID,), isr=(BROKER_ID,),
            )
            for one in of_topic
        )  # fmt: skip
        topic = TopicMetadata(name=name, topic_id=of_topic[0].topic_id, partitions=partitions)
        yield Create(znodes.config_path(CONFIG_TOPIC, name), znodes.config_bytes(configs[name]))
        yield Create(znodes.topic_path(name), znodes.topic_bytes(topic))
        yield Create(znodes.partitions_path(name))
        for partition in partitions:
            yield Create(znodes.partition_path(name, partition.index))
            yield Create(znodes.state_path(name, partition.index), znodes.partition_bytes(partition))
