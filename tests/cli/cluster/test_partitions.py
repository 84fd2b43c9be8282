"""Moving replicas and choosing leaders, as far as one broker can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.cluster.partitions import place
from ottla.cli.kafka_tools import partitions_output as kafka
from ottla.client.core.replica_admin import Move, Replica
from tests.cli.conftest import Ottla
from tests.clients.broker_process import BrokerProcess, eventually


def _plan(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps({"version": 1, "partitions": list(entries)}))
    return path


def test_a_plan_is_shown_and_nothing_changes(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    file = _plan(tmp_path / "plan.json", {"topic": topic, "partition": 0, "replicas": [0]})
    shown = ottla("partitions", "reassign", "--reassignment-json-file", file, "-o", "json")
    assert shown.code == 0
    assert shown.json() == {
        "partitions": [{"topic": topic, "partition": 0, "replicas": [0], "new_replicas": [0], "error": None}],
        "executed": False,
    }
    assert shown.err == "nothing was changed; add --execute to do it\n"
    assert ottla("partitions", "reassign", "--reassignment-json-file", file, "--execute").code == 2
    assert ottla("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes").code == 0
    assert ottla("partitions", "verify", "--reassignment-json-file", file, "-o", "json").json()["partitions"][0]["state"] == "complete"
    assert ottla("partitions", "list", "-o", "json").json() == {"reassignments": []}
    cancelled = ottla("partitions", "cancel", "--reassignment-json-file", file, "--yes", "-o", "json")
    assert (cancelled.code, cancelled.json()["partitions"][0]["error"]) == (1, "NO_REASSIGNMENT_IN_PROGRESS")


def test_brokers_and_partitions_that_are_not_there(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    for entry, name in (
        ({"topic": topic, "partition": 0, "replicas": [0, 7]}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"topic": topic, "partition": 9, "replicas": [0]}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": topic + "x", "partition": 0, "replicas": [0]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        file = _plan(tmp_path / "plan.json", entry)
        result = ottla("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes", "-o", "json")
        assert (result.code, json.loads(result.err)["error"]["name"]) == (1, name)


def test_elections(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    one = ottla("partitions", "elect", "--topic", topic, "--partition", "0", "-o", "json")
    assert (one.code, one.json()["partitions"][0]["error"]) == (0, "ELECTION_NOT_NEEDED")
    assert ottla("partitions", "elect", "--all-topic-partitions").code == 0
    file = _plan(tmp_path / "which.json", {"topic": topic, "partition": 0}, {"topic": topic, "partition": 5})
    some = ottla("partitions", "elect", "--path-to-json-file", file, "-o", "json")
    assert some.code == 1
    assert [row["error"] for row in some.json()["partitions"]] == ["ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert ottla("partitions", "elect", "--topic", topic, "--election-type", "UNCLEAN").code == 2
    assert ottla("partitions", "elect").code == 2
    assert ottla("partitions", "elect", "--topic", topic, "--partition", "x").code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("{}", "is not {"),
        ('{"partitions": [{"topic": "t"}]}', "entry 1: needs topic and partition"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "entry 1: needs replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "names a broker twice"),
        ('{"partitions": [{"topic": "t", "partition": 4294967296, "replicas": [1]}]}', "entry 1: needs topic and partition"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [4294967296]}]}', "entry 1: needs replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": []}]}', "as many log_dirs as replicas"),
        ("[" * 100_000, "is not JSON"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t-0 twice",
        ),
    ],
)
def test_a_bad_file(offline: Ottla, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    result = offline("partitions", "verify", "--reassignment-json-file", path)
    assert result.code == 2
    assert message in result.err
    assert offline("partitions", "list", "-b", "127.0.0.1:1").code == 3


def _throttles(ottla: Ottla, topic: str) -> list[str]:
    entries = [
        entry
        for words in (("--broker", "0"), ("--topic", topic))
        for entry in ottla("config", "describe", *words, "-o", "json").json()["configs"]
    ]
    return [f"{entry['key']}={entry['value']}" for entry in entries if "thrott" in entry["key"]]


def test_throttles_are_set_and_removed(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    file = _plan(tmp_path / "plan.json", {"topic": topic, "partition": 0, "replicas": [0]})
    start = ("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes", "--additional")
    assert ottla(*start, "--throttle", "5000000", "--replica-alter-log-dirs-throttle", "7000", "--timeout", "100").code == 0
    bounds = [
        "follower.replication.throttled.rate=5000000",
        "leader.replication.throttled.rate=5000000",
        "follower.replication.throttled.replicas=",
        "leader.replication.throttled.replicas=0:0",
    ]
    assert _throttles(ottla, topic) == bounds
    assert ottla("partitions", "verify", "--reassignment-json-file", file, "--preserve-throttles").code == 0
    assert _throttles(ottla, topic) == bounds
    assert ottla("partitions", "verify", "--reassignment-json-file", file).code == 0
    assert _throttles(ottla, topic) == []
    assert ottla(*start, "--throttle", "0").code == 2
    assert ottla(*start, "--throttle", "-1", "--disallow-replication-factor-change").code == 0


def test_a_directory_that_is_not_there_is_refused_before_anything_changes(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    entry = {"topic": topic, "partition": 0, "replicas": [0], "log_dirs": ["/elsewhere"]}
    file = _plan(tmp_path / "plan.json", entry)
    start = ("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes", "--throttle", "5000")
    refused = ottla(*start, "-o", "json")
    assert (refused.code, json.loads(refused.err)["error"]["name"]) == (1, "LOG_DIR_NOT_FOUND")
    assert _throttles(ottla, topic) == []
    assert ottla("partitions", "verify", "--reassignment-json-file", file).code == 1
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    now = ottla("partitions", "generate", "--topics-to-move-json-file", topics, "--broker-list", "0", "-o", "json").json()["current"]
    file.write_text(json.dumps(now))
    assert ottla(*start[:-2]).code == 0
    assert ottla("partitions", "verify", "--reassignment-json-file", file).code == 0


def test_what_kafkas_tool_prints(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    file = _plan(tmp_path / "plan.json", {"topic": topic, "partition": 0, "replicas": [0]})
    tool = ("kafka-reassign-partitions", "--reassignment-json-file", file)
    assert ottla("kafka-reassign-partitions", "--list").out == "No partition reassignments found.\n"
    assert ottla(*tool, "--execute").out.endswith(f"Successfully started partition reassignment for {topic}-0\n")
    assert ottla(*tool, "--verify", "--preserve-throttles").out == (
        f"Status of partition reassignment:\nReassignment of partition {topic}-0 is completed.\n\n"
    )
    assert ottla(*tool, "--cancel").out.startswith("None of the specified partition reassignments are active.\n")
    elected = ottla("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert elected.out == f"Valid replica already elected for partitions {topic}-0\n"


def test_states_of_moves_as_kafka_words_them(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    kafka.show_moves({one: Move([0, 1], [1], [0]), two: Move([2], [], [])})
    kafka.show_status({one: [1], two: [1]}, {one: [0], two: [0]}, [one])
    kafka.show_cancelled([one, two])
    kafka.show_started([one], {one: ErrorCode.INVALID_REPLICA_ASSIGNMENT})
    assert capsys.readouterr().out.splitlines() == [
        "Current partition reassignments:",
        "t-0: replicas: 0,1. adding: 1. removing: 0.",
        "t-1: replicas: 2.",
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is still in progress.",
        "There is no active reassignment of partition t-1, but replica set is 0 rather than 1.",
        "Successfully cancelled partition reassignments for: t-0,t-1",
        "None of the specified partition moves are active.Error reassigning partition(s):",
        "t-0: INVALID_REPLICA_ASSIGNMENT",
    ]
    kafka.show_log_dir_status(
        {Replica(one, broker): "/b" for broker in range(5)},
        {Replica(one, 0): ("/b", ""), Replica(one, 1): ("/a", "/b"), Replica(one, 2): ("/a", "/c"), Replica(one, 3): ("/a", "")},
    )
    assert capsys.readouterr().out.splitlines() == [
        "Reassignment of replica t-0-0 completed successfully.",
        "Reassignment of replica t-0-1 is still in progress.",
        "Partition t-0 on broker 2 is being moved to log dir /c instead of /b.",
        "Partition t-0 on broker 3 is not being moved from log dir /a to /b.",
        "Partition t-0 is not found in any live log dir on broker 4. There is likely an offline log directory on the broker.",
    ]


def test_a_replica_moves_to_another_directory_of_its_broker(offline: Ottla, tmp_path: Path) -> None:
    """By our command and by Kafka's tool; over a restart in the middle."""
    paths = [f"{tmp_path}/one", f"{tmp_path}/two"]
    broker = BrokerProcess(tmp_path / "broker", [f"log.dirs={','.join(paths)}"]).start()
    try:
        connection = ("-b", broker.address)

        def lies() -> dict[str, list[bool]]:
            """By directory, of each replica in it whether it is the future one."""
            (found,) = offline("logdirs", "--topic-list", "t", *connection, "-o", "json").json()["brokers"]
            return {one["log_dir"]: [part["is_future"] for part in one["partitions"]] for one in found["log_dirs"] if one["partitions"]}

        assert offline("topic", "create", "t", *connection).code == 0
        (origin,) = lies()
        target = next(path for path in paths if path != origin)
        lines = tmp_path / "lines"
        lines.write_text(f"{'some text ' * 30}\n" * 10_000)
        assert offline("produce", "t", "--file", lines, *connection).code == 0
        file = _plan(tmp_path / "plan.json", {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [target]})
        reassign = ("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes", *connection)
        verify = ("partitions", "verify", "--reassignment-json-file", file, *connection)
        assert offline(*reassign, "--replica-alter-log-dirs-throttle", "1").code == 0
        assert lies() == {origin: [False], target: [True]}
        assert offline(*verify, "-o", "json").json()["partitions"][0]["state"] == "in progress"
        broker.crash()
        assert lies() == {origin: [False], target: [True]}
        tool = ("kafka-reassign-partitions", "--bootstrap-server", broker.address, "--reassignment-json-file", file)
        assert "Reassignment of replica t-0-0 is still in progress." in offline(*tool, "--verify").out
        throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
        assert offline("config", "alter", "--broker", "0", "--delete-config", throttle, *connection).code == 0
        eventually(lambda: lies() == {target: [False]}, 120)
        assert "Reassignment of replica t-0-0 completed successfully." in offline(*tool, "--verify").out
        assert offline("consume", "t", "--from-beginning", "-c", "10000", *connection).out.count("some text") == 300_000
    finally:
        broker.stop()


# `partitions generate`: Kafka's formula, Kafka's two documents, and one line for what cannot be proposed


def topics_file(folder: Path, *topics: str) -> Path:
    path = folder / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": topic} for topic in topics]}))
    return path


def test_leaders_go_round_and_followers_stand_further_away_each_round() -> None:
    """The example of Kafka's own description: 10 partitions of 3 replicas on 5 brokers."""
    placed = place(10, 3, [0, 1, 2, 3, 4], start=0)
    assert placed[:5] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1]]
    assert placed[5:] == [[0, 2, 3], [1, 3, 4], [2, 4, 0], [3, 0, 1], [4, 1, 2]]
    assert place(3, 1, [7], start=4) == [[7], [7], [7]]


def test_both_documents_are_printed_and_the_second_can_be_executed(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    options = ("partitions", "generate", "--topics-to-move-json-file", topics_file(tmp_path, topic), "--broker-list", "0")
    heading, current, empty, second, proposed = ottla(*options).out.splitlines()
    assert (heading, empty, second) == ("Current partition replica assignment", "", "Proposed partition reassignment configuration")
    ((now,), (then,)) = (json.loads(text)["partitions"] for text in (current, proposed))
    assert then == {"topic": topic, "partition": 0, "replicas": [0], "log_dirs": ["any"]}
    assert now == {**then, "log_dirs": now["log_dirs"]} and Path(now["log_dirs"][0]).is_dir()
    assert ottla(*options, "-o", "json").json()["proposed"] == json.loads(proposed)
    plan = tmp_path / "plan.json"
    for text in (proposed, ottla(*options).out, ottla(*options, "-o", "json").out):
        plan.write_text(text)
        done = ottla("partitions", "reassign", "--reassignment-json-file", plan, "--execute", "--yes", "-o", "csv")
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == 2 and done.out.splitlines()[1].startswith(f"{topic},0,"), done.out
    assert ottla("kafka-reassign-partitions", "--generate", *options[2:]).out.startswith(heading)


@pytest.mark.parametrize(
    ("text", "brokers", "message"),
    [
        ('{"topics": [{"topic": "t"}]}', "0,9", "there is no broker 9"),
        ('{"topics": [{"topic": "t"}]}', "0,0", "or one twice"),
        ('{"topics": [{"topic": "t"}]}', "a", "a list of broker ids"),
        ('{"topics": []}', "0", "with each topic once"),
        ("[1]", "0", "with each topic once"),
        ("{", "0", "is not JSON"),
    ],
)
def test_bad_input_is_one_line(ottla: Ottla, tmp_path: Path, text: str, brokers: str, message: str) -> None:
    path = tmp_path / "topics.json"
    path.write_text(text)
    result = ottla("partitions", "generate", "--topics-to-move-json-file", path, "--broker-list", brokers)
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
