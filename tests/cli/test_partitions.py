"""Moving replicas and choosing leaders, as far as one broker can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ottla


def _plan(path: Path, *entries: object) -> Path:
    path.write_text(json.dumps({"version": 1, "partitions": list(entries)}))
    return path


def test_a_plan_is_shown_and_nothing_changes(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    file = _plan(tmp_path / "plan.json", {"topic": topic, "partition": 0, "replicas": [0]})
    shown = ottla("partitions", "reassign", "--reassignment-json-file", file, "-o", "json")
    assert shown.code == 0
    assert json.loads(shown.out) == {
        "partitions": [{"topic": topic, "partition": 0, "replicas": [0], "new_replicas": [0], "error": None}],
        "executed": False,
    }
    assert shown.err == "nothing was changed; add --execute to do it\n"
    assert ottla("partitions", "reassign", "--reassignment-json-file", file, "--execute").code == 2
    assert ottla("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes").code == 0
    assert (
        json.loads(ottla("partitions", "verify", "--reassignment-json-file", file, "-o", "json").out)["partitions"][0]["state"]
        == "complete"
    )
    assert json.loads(ottla("partitions", "list", "-o", "json").out) == {"reassignments": []}
    cancelled = ottla("partitions", "cancel", "--reassignment-json-file", file, "--yes", "-o", "json")
    assert (cancelled.code, json.loads(cancelled.out)["partitions"][0]["error"]) == (1, "NO_REASSIGNMENT_IN_PROGRESS")


def test_brokers_and_partitions_that_are_not_there(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    for entry, name in (
        ({"topic": topic, "partition": 0, "replicas": [0, 7]}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"topic": topic, "partition": 9, "replicas": [0]}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": topic + "x", "partition": 0, "replicas": [0]}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        file = _plan(tmp_path / "plan.json", entry)
        result = ottla("partitions", "reassign", "--reassignment-json-file", file, "--execute", "--yes", "-o", "json")
        assert (result.code, json.loads(result.out)["error"]["name"]) == (1, name)


def test_elections(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    one = ottla("partitions", "elect", "--topic", topic, "--partition", "0", "-o", "json")
    assert (one.code, json.loads(one.out)["partitions"][0]["error"]) == (0, "ELECTION_NOT_NEEDED")
    assert ottla("partitions", "elect", "--all-topic-partitions").code == 0
    file = _plan(tmp_path / "which.json", {"topic": topic, "partition": 0}, {"topic": topic, "partition": 5})
    some = ottla("partitions", "elect", "--path-to-json-file", file, "-o", "json")
    assert some.code == 1
    assert [row["error"] for row in json.loads(some.out)["partitions"]] == ["ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"]
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
