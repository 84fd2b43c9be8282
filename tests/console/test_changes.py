"""Elections and changes of the in-sync replicas, found in the metadata of two looks."""

from __future__ import annotations

from ottla.console.changes import Changes
from ottla.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


def topic_of(leader: int, epoch: int, in_sync: list[int]) -> dict[str, MetadataResponseTopic]:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=in_sync)
    return {"t": MetadataResponseTopic(name="t", partitions=[partition])}


def test_each_change_is_noted_once_and_the_first_sight_is_none() -> None:
    changes = Changes()
    for at, topics in enumerate((
        topic_of(1, 0, [1, 2]), topic_of(1, 0, [2, 1]), topic_of(2, 1, [2]), topic_of(2, 1, [2]), topic_of(-1, 1, [2]),
        topic_of(2, 2, [1, 2]),
    )):  # fmt: skip
        changes.note(at, topics)
    assert [(one.at_s, one.what, one.before, one.after) for one in changes.seen] == [
        (2, "election", "leader 1, epoch 0", "leader 2, epoch 1"),
        (2, "fewer in sync", "1, 2", "2"),
        (4, "offline", "leader 2, epoch 1", "leader -1, epoch 1"),
        (5, "election", "leader -1, epoch 1", "leader 2, epoch 2"),
        (5, "more in sync", "2", "1, 2"),
    ]
    assert changes.seen[0].partition == "t-0"
