"""AlterReplicaLogDirs: each replica is moved, or its directory is noted for its creation, or it gets an error of its own."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from tests.handlers.admin_world import AdminWorld, DenyAll
from tests.handlers.topics.test_describe_log_dirs import Directory, admin


def move(world: AdminWorld, path: str, version: int = 2) -> dict[str, list[tuple[int, int]]]:
    """Returns the error codes of partitions 0 and 7 of the topic on this broker, and of a topic that does not exist."""
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0, 7]), AlterReplicaLogDirTopic(name="u", partitions=[0])]
    answer = world.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]), version)
    return {topic.topic_name: [(part.partition_index, part.error_code) for part in topic.partitions] for topic in answer.results}


@pytest.mark.parametrize("version", (1, 2))
def test_each_replica_has_its_answer(version: int) -> None:
    world, unknown = admin(Directory("/data")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(world, "/other", version) == {"t": [(0, 0), (7, unknown)], "u": [(0, unknown)]}
    assert world.broker.directory_moves.asked == [("t", 0, "/other")]


def test_a_replica_that_the_metadata_names_may_come_later() -> None:
    world = admin(Directory("/data"))
    world.cluster.create("u")
    assert move(world, "/other")["u"] == [(0, ErrorCode.REPLICA_NOT_AVAILABLE)]
    assert world.broker.directory_moves.asked[-1] == ("u", 0, "/other")


def test_a_directory_that_there_is_not_refuses_whatever_the_replica() -> None:
    world, none = admin(Directory("/data")), ErrorCode.LOG_DIR_NOT_FOUND
    assert move(world, "/none") == {"t": [(0, none), (7, none)], "u": [(0, none)]}
    assert world.broker.directory_moves.asked == []


def test_without_the_right_to_alter_the_cluster() -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert move(admin(Directory("/data"), authorizer=DenyAll()), "/data") == {"t": [(0, denied), (7, denied)], "u": [(0, denied)]}
