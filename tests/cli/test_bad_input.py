"""Bad arguments and bad files: one line, the right exit code, nothing changed, never a traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Ottla

DEEP = "[" * 50_000
FILES = {
    "deep.json": DEEP,
    "big.json": '{"version":1,"partitions":[{"topic":"t","partition":99999999999,"offset":1,"replicas":[99999999999]}]}',
    "text.properties": "a=\\u12\n",
    "bad.csv": "t,0,99999999999999999999999\n",
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "records delete --yes --offset-json-file {files}/deep.json",
        "partitions verify --reassignment-json-file {files}/deep.json",
        "partitions generate --broker-list 0 --topics-to-move-json-file {files}/deep.json",
        "partitions elect --path-to-json-file {files}/big.json",
        "produce {topic} --schema {files}/deep.json",
        "topic list --command-config {files}/text.properties",
        "config alter --topic {topic} --add-config-file {files}/text.properties",
        "partitions generate --broker-list=-- --topics-to-move-json-file {files}/deep.json",
        "topic list --producer-property=--",
        "wire --api=-- 00",
        "topic create \udcff",
        "txn why \udcff --partition 0",
        "group reset-offsets --group g --from-file {files}/bad.csv",
        "kafka-topics --create --topic \udcff",
        "kafka-consumer-groups --describe --group \udcff",
        "kafka-console-consumer --topic \udcff",
    ],
)
def test_one_line_and_wrong_usage(ottla: Ottla, offline: Ottla, topic: str, files: Path, line: str) -> None:
    words = [word.format(files=files, topic=topic) for word in line.split()]
    result = (offline if words[0] == "wire" else ottla)(*words)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result


def test_one_line_and_a_refusal(ottla: Ottla) -> None:
    result = ottla("topic", "describe", "\udcff")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1), result


def test_offsets_beyond_all_numbers(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    huge = "99999999999999999999999"
    csv, offsets = tmp_path / "huge.csv", tmp_path / "huge.json"
    csv.write_text(f"{topic},0,{huge}\n")
    offsets.write_text(f'{{"partitions":[{{"topic":"{topic}","partition":0,"offset":{huge}}}],"version":1}}')
    moved = ottla("group", "reset-offsets", "--group", "g", "--from-file", csv)
    assert moved.code == 2 and "Traceback" not in moved.err
    for words in (
        ("records", "delete", "--yes", "--offset-json-file", offsets),
        ("offsets", topic, "--time", huge),
        ("topic", "trim", topic, "--offset", huge, "--yes"),
        ("consume", topic, "-p", "0", "-o", huge, "-e"),
        ("topic", "create", "huge", "-p", huge),
        ("group", "reset-offsets", "--group", "g", "--topic", topic, "--shift-by", huge),
    ):
        result = ottla(*words)
        assert result.code in (0, 1, 2), (words, result)
        assert result.err.count("\n") <= 2, (words, result)
        assert "Traceback" not in result.err


def test_values_nested_too_deep_are_only_text(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(DEEP + '\n{"a": 1}\n')
    assert ottla("produce", topic, "-l", lines).code == 0
    found = ottla("consume", topic, "-e", "-q", "--where", "value.a == 1")
    assert (found.code, found.out) == (0, '{"a": 1}\n')
    schema = tmp_path / "schema.json"
    schema.write_text("{}")
    refused = ottla("produce", topic, "-l", lines, "--schema", schema)
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_a_long_argument_makes_no_long_error(offline: Ottla) -> None:
    result = offline("topic", "list", "-X", "a" * 100_000)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert len(result.err) < 1_100


@pytest.mark.parametrize("line", ["group list --timeout 300", "group describe g --timeout 300", "topic list -X request.timeout.ms=300"])
def test_a_silent_broker_costs_no_more_than_the_timeout(offline: Ottla, line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        result = offline(*line.split(), "-b", f"127.0.0.1:{silent.getsockname()[1]}")
    assert result.code == 3 and result.err.count("\n") == 1 and "did not answer within 0." in result.err
