"""Cordoned log directories of a broker that serves (KIP-1066), as Apache Kafka 4.3 treats them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.server.app import BrokerServer
from ottla.wire.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.server.conftest import MakeServer
from tests.server.threads import run_until, with_client

CORDONED, BROKER = "cordoned.log.dirs", 4


def ask(server: BrokerServer, request: Any, version: int) -> Any:
    return with_client(server.loop, server, lambda client: client.ask(request, version))


def cordon(server: BrokerServer, value: str) -> ErrorCode:
    entry = AlterableConfig(name=CORDONED, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=[entry])
    (result,) = ask(server, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return ErrorCode(result.error_code)


def create(server: BrokerServer, name: str, count: int = 1, *, is_assigned: bool = False) -> tuple[ErrorCode, str]:
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
    if is_assigned:
        given = [CreatableReplicaAssignment(partition_index=index, broker_ids=[0]) for index in range(count)]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=given)
    (result,) = ask(server, CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5).topics
    return ErrorCode(result.error_code), result.error_message or ""


def described(server: BrokerServer) -> Mapping[str, tuple[bool, int]]:
    """Returns for each directory whether it is cordoned, and the number of its partitions."""
    results = ask(server, DescribeLogDirsRequest(topics=None), 5).results
    return {one.log_dir.rpartition("/")[2]: (one.is_cordoned, sum(len(topic.partitions) for topic in one.topics)) for one in results}


def test_new_replicas_are_placed_beside_a_cordoned_directory(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(f"log.dirs={tmp_path}/a,{tmp_path}/b")
    assert cordon(server, f"{tmp_path}/a") is ErrorCode.NONE
    assert create(server, "t", 5)[0] is ErrorCode.NONE
    assert described(server) == {"a": (True, 0), "b": (False, 5)}
    move = AlterReplicaLogDir(path=f"{tmp_path}/a", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0, 9])])
    results = ask(server, AlterReplicaLogDirsRequest(dirs=[move]), 2).results[0].partitions
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 2
    assert cordon(server, "") is ErrorCode.NONE
    assert ask(server, AlterReplicaLogDirsRequest(dirs=[move]), 2).results[0].partitions[0].error_code == ErrorCode.NONE
    run_until(server.loop, lambda: not list(server.node.moves.under_way()))
    assert described(server) == {"a": (False, 1), "b": (False, 4)}


def test_without_an_uncordoned_directory_only_assigned_replicas_are_placed(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(f"log.dirs={tmp_path}/a,{tmp_path}/b", f"{CORDONED}=*")
    none_left = "All brokers are currently fenced, or have all their log directories cordoned."
    assert create(server, "t") == (
        ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition 1 time(s): {none_left}",
    )  # fmt: skip
    assert create(server, "t", 2, is_assigned=True)[0] is ErrorCode.NONE
    assert described(server) == {"a": (True, 1), "b": (True, 1)}
    more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)], timeout_ms=5_000)
    (refused,) = ask(server, more, 3).results
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REPLICATION_FACTOR, none_left)
    assert cordon(server, f"{tmp_path}/b") is ErrorCode.NONE  # a dynamic setting has precedence over the file
    (grown,) = ask(server, more, 3).results
    assert (grown.error_code, described(server)) == (ErrorCode.NONE, {"a": (False, 2), "b": (True, 1)})
    assert cordon(server, f"{tmp_path}/a,{tmp_path}/b") is ErrorCode.NONE
    assert create(server, "u")[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert cordon(server, f"{tmp_path}/c") is ErrorCode.INVALID_REQUEST
