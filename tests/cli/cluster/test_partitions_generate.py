"""`partitions generate`: Kafka's formula, Kafka's two documents, and one line for what cannot be proposed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.cluster.partitions_generate import place
from tests.cli.conftest import Ottla


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
    assert json.loads(ottla(*options, "-o", "json").out)["proposed"] == json.loads(proposed)
    plan = tmp_path / "plan.json"
    plan.write_text(proposed)
    assert ottla("partitions", "reassign", "--reassignment-json-file", plan, "--execute", "--yes").code == 0
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
