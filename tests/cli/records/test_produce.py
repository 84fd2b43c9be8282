"""`ottla produce` on a broker: each way in which a line becomes a record, and what a bad line does."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.cli.records.produce import Summary, read_lines
from ottla.client.blocking.client import connect
from ottla.client.blocking.producer import Delivery
from ottla.client.errors import KafkaError
from ottla.testing.broker import Broker
from ottla.testing.handle import TopicRecord
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.cli.conftest import Ottla
from tests.client.fake_broker import FakeBroker


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return tmp_path / "lines"


def sent(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in broker.records(topic)]


@pytest.mark.parametrize(
    ("options", "text", "wanted"),
    [
        ([], "a\nb\r\n\nlast", [(None, b"a"), (None, b"b"), (None, b""), (None, b"last")]),
        (["-k", "k"], "a\n", [(b"k", b"a")]),
        (["-K", ":"], "k:v:w\n:x\n", [(b"k", b"v:w"), (b"", b"x")]),
        (["-K", r"\t", "-Z"], "k\tv\ngone\t\n", [(b"k", b"v"), (b"gone", None)]),
        (["--property", "parse.key=true"], "k\tv\n", [(b"k", b"v")]),
        (["--reader-property", "parse.key=true", "--reader-property", "key.separator=, "], "k, v\n", [(b"k", b"v")]),
        (["--reader-property", "null.marker=NULL", "-K", ":"], "NULL:v\nk:NULL\n", [(None, b"v"), (b"k", None)]),
        (["-K", ":", "--reader-property", "ignore.error=true"], "k:v\nbad\n", [(b"k", b"v"), (None, b"bad")]),
        (["--format", "%k;%v"], "k;v;w\n", [(b"k", b"v;w")]),
        (["--sync", "--acks", "1"], "a\nb\n", [(None, b"a"), (None, b"b")]),
        (["--transactional-id", "{topic}"], "a\nb\n", [(None, b"a"), (None, b"b")]),
        (["-X", "transactional.id={topic}"], "a\n", [(None, b"a")]),
        (["-X", "enable.idempotence=false,acks=0"], "a\n", [(None, b"a")]),
    ],
)
def test_lines_become_records(
    ottla: Ottla, broker: Broker, topic: str, lines: Path, options: list[str], text: str, wanted: list[tuple[bytes | None, bytes | None]]
) -> None:
    lines.write_text(text)
    with broker.assert_produces(topic, len(wanted)):  # with acks=0 the command ends before the broker has appended
        result = ottla("produce", topic, "-q", "--file", lines, *(option.replace("{topic}", topic) for option in options))
    assert (result.code, result.out, result.err) == (0, "", "")
    assert sent(broker, topic) == wanted


def only(broker: Broker, topic: str) -> TopicRecord:
    (record,) = broker.records(topic)
    return record


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(ottla: Ottla, broker: Broker, topic: str, codec: str) -> None:
    assert ottla("produce", topic, "--generate", 50, "-z", codec).code == 0
    assert [record.value for record in broker.records(topic)] == [b"record %d" % number for number in range(50)]
    assert f'"{codec}": 1' in ottla("topic", "analyze", topic, "-o", "json").out


def test_headers_from_options_and_from_lines(ottla: Ottla, broker: Broker, topic: str, lines: Path) -> None:
    lines.write_text("a:1,b:2\tk\tv\n")
    options = ["--reader-property", "parse.headers=true", "--reader-property", "parse.key=true", "-H", "fixed=0"]
    assert ottla("produce", topic, "-l", lines, *options).code == 0
    record = only(broker, topic)
    assert (record.key, record.value) == (b"k", b"v")
    assert tuple(record.headers) == (("fixed", b"0"), ("a", b"1"), ("b", b"2"))


def test_a_header_whose_key_is_the_null_marker_is_refused(ottla: Ottla, broker: Broker, topic: str, lines: Path) -> None:
    """Kafka's tool refuses it too: only a value can be null."""
    lines.write_text("a:NULL\tv\nNULL:1\tw\n")
    options = ["--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL"]
    result = ottla("produce", topic, "-l", lines, *options)
    assert (result.code, result.err) == (1, "error: line 2 has a header whose key is the null marker 'NULL'; a key cannot be null\n")
    assert only(broker, topic).headers == (("a", None),)


def test_a_partition_is_chosen(ottla: Ottla, broker: Broker, topic: str) -> None:
    ottla("topic", "add-partitions", topic, "-n", 2)
    assert ottla("produce", topic, "--generate", 4, "-p", 2).code == 0
    assert {record.partition for record in broker.records(topic)} == {2}


@pytest.mark.parametrize("options", [[], ["-k", "k"], ["--sync"]], ids=["plain", "parsed", "sync"])
def test_a_line_that_is_too_large_is_named_and_all_others_are_sent(
    ottla: Ottla, broker: Broker, topic: str, lines: Path, options: list[str]
) -> None:
    wanted = [*(b"before %d" % number for number in range(20)), *(b"%d" % number + b"after" * 1000 for number in range(500))]
    lines.write_bytes(b"\n".join([*wanted[:20], b"x" * 1_200_000, *wanted[20:]]))
    result = ottla("produce", topic, "-q", "-l", lines, *options)
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith(f"error: the record of 1200000 bytes that begins with '{'x' * 40}' was refused: ")
    assert "MESSAGE_TOO_LARGE" in line
    assert [value for _, value in sent(broker, topic)] == wanted


def test_a_line_that_is_too_large_aborts_a_transaction(ottla: Ottla, broker: Broker, topic: str, lines: Path) -> None:
    lines.write_bytes(b"a\n" + b"x" * 1_200_000 + b"\nb\n")
    assert ottla("produce", topic, "-q", "-l", lines, "--transactional-id", topic).code == 1
    assert sent(broker, topic) == []


def test_a_bad_line_is_named_and_keeps_those_before(ottla: Ottla, broker: Broker, topic: str, lines: Path) -> None:
    lines.write_text("k:v\nbad\nk:w\n")
    result = ottla("produce", topic, "-l", lines, "-K", ":")
    assert result.code == 1 and result.err == "error: line 2 has no key separator: 'bad'\n"
    assert sent(broker, topic) == [(b"k", b"v")]


def test_a_bad_line_aborts_a_transaction(ottla: Ottla, broker: Broker, topic: str, lines: Path) -> None:
    lines.write_text("k:v\nbad\n")
    assert ottla("produce", topic, "-l", lines, "-K", ":", "--transactional-id", topic).code == 1
    assert sent(broker, topic) == []
    assert "no open transaction blocks the readers" in ottla("txn", "why", topic).out, "no reader has to wait for a timeout"


def test_generated_records_have_the_headers_of_the_options(ottla: Ottla, broker: Broker, topic: str) -> None:
    assert ottla("produce", topic, "--generate", 1, "-k", "key", "-H", "source=shop").code == 0
    record = only(broker, topic)
    assert (record.key, tuple(record.headers)) == (b"key", (("source", b"shop"),))


@pytest.mark.parametrize("option", [["-k", "x"], ["-K", ":"], ["-Z"], ["--format", "%k"], ["--reader-property", "parse.key=true"]])
def test_options_about_lines_do_not_go_with_other_input(ottla: Ottla, broker: Broker, topic: str, lines: Path, option: list[str]) -> None:
    lines.write_text('["a"]')
    result = ottla("produce", topic, "-l", lines, "--input", "json", *option)
    assert result.code == 2 and f"{option[0]} goes with --input lines" in result.err
    assert sent(broker, topic) == []


def test_generate_keeps_a_rate(ottla: Ottla, broker: Broker, topic: str) -> None:
    assert ottla("produce", topic, "--generate", 6, "--rate", 60, "-v").code == 0
    times = [record.timestamp for record in broker.records(topic)]
    assert len(times) == 6 and times[-1] - times[0] >= 70


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--acks", "2"], 2, "acks '2' is none of -1, 0, 1, all"),
        (["--transactional-id", "x", "--acks", "1"], 2, "a transaction needs acks all"),
        (["-z", "rar"], 2, "invalid choice: 'rar'"),
        (["--format", "no tokens"], 2, "has none of %k, %v, %h"),
        (["--format", "%v;%s"], 2, "names the value (%v or %s) twice"),
        (["--reader-property", "parse.key"], 2, "is not KEY=VALUE"),
        (["--line-reader", "com.example.Reader"], 2, "readers in Java are not offered"),
        (["-X", "linger.ms=soon"], 2, "linger.ms=soon is not a whole number"),
        (["--generate", "1", "--rate", "0"], 2, "must be positive"),
        (["--file", "/nowhere/at/all"], 1, "cannot read /nowhere/at/all: no such file or directory"),
        (["--file", "/"], 1, "cannot read /: is a directory"),
        (["--generate", "1", "-p", "9"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["--generate", "1", "-p", "-5"], 2, "--partition is a number from 0 on, or -1 for any"),
    ],
)
def test_what_is_refused(ottla: Ottla, topic: str, lines: Path, options: list[str], code: int, message: str) -> None:
    lines.write_text("a\n")
    given = options if "--file" in options or "--generate" in options else [*options, "--file", str(lines)]
    result = ottla("produce", topic, *given)
    assert result.code == code and message in result.err and result.err.count("\n") == 1, result.err


def test_a_record_that_is_too_large_is_refused(ottla: Ottla, broker: Broker, topic: str, lines: Path) -> None:
    lines.write_text("x" * 1_200_000)
    result = ottla("produce", topic, "-l", lines)
    assert result.code == 1 and "MESSAGE_TOO_LARGE" in result.err
    assert sent(broker, topic) == []


def test_lines_from_a_pipe_go_as_they_come(broker: Broker, topic: str) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "produce", topic, "-b", broker.bootstrap_server]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        with broker.assert_produces(topic, 1):
            process.stdin.write("now\n")
            process.stdin.flush()
        process.stdin.close()
        assert process.wait(60) == 0
    assert sent(broker, topic) == [(None, b"now")]


def test_a_line_end_of_two_characters_may_arrive_in_two_pieces() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"one\r")

    def write_rest() -> None:
        os.write(writer, b"\ntwo")
        os.close(writer)

    assert list(read_lines(reader, 0, write_rest)) == [[b"one"], [b"two"]]
    os.close(reader)


def test_kafkas_tool_shows_a_prompt_on_a_terminal(broker: Broker, topic: str) -> None:
    person, program = pty.openpty()
    command = [sys.executable, "-m", "ottla.cli.main", "kafka-console-producer", "--topic", topic, "--bootstrap-server"]
    with subprocess.Popen([*command, broker.bootstrap_server], stdin=program, stdout=subprocess.PIPE) as process:
        os.close(program)
        assert process.stdout is not None
        assert process.stdout.read(1) == b">"
        os.write(person, b"typed\n")
        assert process.stdout.read(1) == b">", "one for each line"
        os.write(person, b"\x04")
        assert process.wait(60) == 0
    os.close(person)
    assert sent(broker, topic) == [(None, b"typed")]


def test_a_prompt_on_a_terminal_is_on_stderr(broker: Broker, topic: str) -> None:
    person, program = pty.openpty()
    command = [sys.executable, "-m", "ottla.cli.main", "produce", topic, "-b", broker.bootstrap_server]
    with subprocess.Popen(command, stdin=program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(program)
        assert process.stdout is not None and process.stderr is not None
        assert process.stderr.readline() == b"one record a line; Ctrl-D ends\n"
        assert process.stderr.read(2) == b"> "
        os.write(person, b"typed\n")
        assert process.stderr.read(2) == b"> ", "one for each line"
        os.write(person, b"\x04")
        assert process.wait(60) == 0
        assert process.stderr.read().decode() == f"\n1 record to {topic}, offset 0\n", "behind the last prompt"
        assert process.stdout.read() == b""
    os.close(person)
    assert sent(broker, topic) == [(None, b"typed")]


def test_a_layout_with_encoded_parts(ottla: Ottla, broker: Broker, topic: str, tmp_path: Path) -> None:
    lines = tmp_path / "encoded"
    lines.write_text("6b00;dv8=\n")
    assert ottla("produce", topic, "-q", "-l", lines, "--format", "%k{hex};%v{base64}").code == 0
    assert sent(broker, topic) == [(b"k\0", b"v\xff")]
    lines.write_text("6b0;dv8=\n")
    refused = ottla("produce", topic, "-l", lines, "--format", "%k{hex};%v{base64}")
    assert (refused.code, "line 1 has no text in hex" in refused.err) == (1, True)


# What `produce` says at its end


def delivered(partition: int, base_offset: int, count: int) -> Delivery:
    return Delivery(TopicPartition("orders", partition), base_offset, [None] * count, None)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("deliveries", "sentence"),
    [
        ([(0, 0, 5)], "5 records to orders, offsets 0-4"),
        ([(0, 7, 1)], "1 record to orders, offset 7"),
        ([(0, 0, 2), (0, 2, 3)], "5 records to orders, offsets 0-4"),
        ([(2, 9, 1), (1, 0, 4)], "5 records to orders, partition 1 offsets 0-3; partition 2 offset 9"),
        ([(number, 0, 1) for number in range(5)], "5 records to orders in 5 partitions"),
        ([(0, -1, 3)], "3 records to orders"),
        ([], "0 records to orders"),
    ],
)
def test_the_sentence(deliveries: list[tuple[int, int, int]], sentence: str) -> None:
    summary = Summary("orders")
    for found in deliveries:
        summary.add(delivered(*found))
    assert summary.sentence(sum(count for *_, count in deliveries)) == sentence


def test_a_failed_batch_raises() -> None:
    with pytest.raises(KafkaError):
        Summary("orders").add(delivered(0, -1, 1)._replace(error=KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")))


def test_a_topic_that_was_created_by_use_is_named(ottla: Ottla, broker: Broker, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    first = ottla("produce", "made-by-use", "-l", lines)
    assert first.err == "topic made-by-use did not exist and was created, with 1 partition\n2 records to made-by-use, offsets 0-1\n"
    assert ottla("produce", "made-by-use", "-l", lines).err == "2 records to made-by-use, offsets 2-3\n"
    quiet = ottla("produce", "made-quietly", "-l", lines, "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert len(broker.records("made-quietly")) == 2
    objects = ottla("produce", "made-for-programs", "-l", lines, "-o", "json")
    assert (objects.code, objects.err) == (0, "")
    assert objects.json() == {
        "topic": "made-for-programs", "records": 2, "is_new_topic": True, "offsets": [{"partition": 0, "first": 0, "last": 1}],
    }  # fmt: skip


def test_what_it_waits_for_is_said(offline: Ottla, lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition gets a leader only after the line about it was written."""
    monkeypatch.setattr("ottla.cli.records.produce.SILENT_S", 0.3)
    lines.write_text("a\n")
    said: list[str] = []
    with FakeBroker({0: lambda request, _: placed(request)}) as fake:
        fake.topics["orders"] = 1
        usual = fake.script[3]

        def metadata(request: Any, version: int) -> Any:
            answer = usual(request, version)
            for partition in [partition for topic in answer.topics for partition in topic.partitions if not said]:
                partition.leader_id, partition.offline_replicas = -1, [1, 2]
            return answer

        fake.script[3] = metadata
        monkeypatch.setattr("ottla.cli.records.produce.write_error", said.append)
        result = offline("produce", "orders", "-q", "--acks", 1, "--file", lines, "-b", fake.address)
    assert result.code == 0
    reason = "orders-0 has no leader at the moment: the log directory on broker 1 is offline, broker 2 is not running"
    assert said == [f"waiting: {reason} (LEADER_NOT_AVAILABLE); Ctrl-C gives up\n"]


def placed(request: Any, error: ErrorCode = ErrorCode.NONE) -> ProduceResponse:
    """Each batch at offset 0, or refused."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, base_offset=0, error_code=error) for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def test_a_flush_may_end_earlier(broker: Broker, topic: str) -> None:
    with connect(broker.bootstrap_server) as client, client.producer() as producer:
        producer.produce(topic, b"a")
        assert producer.flush(60) == 0
        with broker.pause():
            producer.produce(topic, b"b")
            assert producer.flush(0.01) == 1
        assert producer.flush() == 0


@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
def test_a_batch_is_given_up_after_the_time_of_either_name(offline: Ottla, lines: Path, name: str) -> None:
    """The second name is librdkafka's. The default is two minutes."""
    lines.write_text("hello\n")
    with FakeBroker({0: lambda request, _: placed(request, ErrorCode.NOT_ENOUGH_REPLICAS)}) as fake:
        fake.topics["orders"] = 1
        began = time.monotonic()
        result = offline("produce", "orders", "-q", "--acks", 1, "--file", lines, "-b", fake.address, "-X", f"{name}=100")
    assert result.code == 1 and "NOT_ENOUGH_REPLICAS" in result.err
    assert time.monotonic() - began < 60
