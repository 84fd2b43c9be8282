"""AlterReplicaLogDirs: what is where it should be stays there, and what cannot be done is said for each replica."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from tests.handlers.admin_world import DenyAll
from tests.handlers.test_describe_log_dirs import Directory, admin


def move(path: str, version: int = 2, authorizer: Any = None) -> dict[str, list[tuple[int, int]]]:
    """The codes of partitions 0 and 7 of the topic that exists, and of one that does not."""
    world = admin(Directory("/data"), Directory("/other"), Directory("/gone", is_online=False), authorizer=authorizer)
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0, 7]), AlterReplicaLogDirTopic(name="u", partitions=[0])]
    answer = world.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]), version)
    return {topic.topic_name: [(part.partition_index, part.error_code) for part in topic.partitions] for topic in answer.results}


@pytest.mark.parametrize("version", (1, 2))
def test_a_replica_that_is_there_already_stays(version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move("/data", version) == {"t": [(0, 0), (7, unknown)], "u": [(0, unknown)]}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/other", ErrorCode.OPERATION_NOT_ATTEMPTED),
        ("/gone", ErrorCode.KAFKA_STORAGE_ERROR),
        ("/nowhere", ErrorCode.LOG_DIR_NOT_FOUND),
    ],
)
def test_a_move_that_cannot_be_made(path: str, code: ErrorCode) -> None:
    assert move(path)["t"][0] == (0, code)


def test_without_the_right_to_alter_the_cluster() -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert move("/data", authorizer=DenyAll()) == {"t": [(0, denied), (7, denied)], "u": [(0, denied)]}
