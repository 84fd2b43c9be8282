"""`ottla consume` on a broker: where it starts and stops, what it prints, what it leaves out."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.analysis.where import parse_where
from ottla.testing.broker import Broker
from ottla.wire.records import Record
from tests.cli.conftest import Ottla
from tests.client.fake_group import ShrinkingBroker

STARTED_MS = 1_600_000_000_000


@pytest.fixture
def filled(broker: Broker, topic: str) -> str:
    """Six records, one a second from 2020-09-13T12:26:40Z on: keys k0 and k1 by turns, JSON, one header."""
    for number in range(6):
        value = json.dumps({"n": number, "user": {"id": f"u{number}"}})
        broker.add_record(topic, value, key=f"k{number % 2}", headers={"h": str(number)}, timestamp=STARTED_MS + number * 1000)
    return topic


OFFSETS = ["-q", "-f", r"%o\n"]


def test_the_end_is_not_reached_while_a_position_is_looked_up(offline: Ottla) -> None:
    with ShrinkingBroker() as broker:
        result = offline("consume", "t", "-e", "-q", "-b", broker.address)
    assert (result.code, result.out) == (0, "a\nb\n")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["-e"], "012345"),
        (["-e", "--from-beginning"], "012345"),
        (["-e", "-o", "beginning"], "012345"),
        (["-e", "-o", "end"], ""),
        (["-e", "-o", "4"], "45"),
        (["-e", "-o", "-2"], "45"),
        (["-e", "-o", "-99"], "012345"),
        (["-e", "--offset", "earliest", "--partition", "0"], "012345"),
        (["-e", "-o", f"s@{STARTED_MS + 2500}"], "345"),
        (["-e", "-o", "s@2020-09-13T12:26:44"], "45"),
        (["-e", "-o", "@2020-09-13T12:26:44:"], "45"),
        (["-o", f"s@{STARTED_MS + 1000}", "-o", f"e@{STARTED_MS + 3000}"], "12"),
        (["-o", f"e@{STARTED_MS + 3000}"], "012"),
        (["-e", "-o", "@-1h"], ""),
        (["-o", ":end"], "012345"),
        (["-o", "2:4"], "23"),
        (["-o", ":2"], "01"),
        (["-o", "4:end"], "45"),
        (["-o", "4:", "-e"], "45"),
        (["-o", "2-4"], "234"),
        (["-o", "4:99"], "45"),
        (["-o", "50:99"], ""),
        (["-o", "3:3"], ""),
        (["-o", f"@{STARTED_MS + 1000}:{STARTED_MS + 3000}"], "12"),
        (["-o", "@2020-09-13T12:26:41:2020-09-13T12:26:43"], "12"),
        (["-o", f"@:{STARTED_MS + 1000}"], "0"),
        (["-o", "@2020-09-13T12:26", "-e"], "012345"),
        (["-e", "-c", "2"], "01"),
        (["-e", "-n", "9"], "012345"),
        (["--from-beginning", "--max-messages", "3"], "012"),
        (["--from-beginning", "--timeout-ms", "200"], "012345"),
        (["-e", "--grep", "u[23]"], "23"),
        (["-e", "--grep", "k1", "-c", "2"], "13"),
        (["-e", "--where", "value.n >= 4 or key == 'k1'"], "1345"),
        (["-e", "--where", "headers.h == '2' and timestamp < 1600000003000"], "2"),
        (["-e", "--where", "value.user.id in ['u0', 'u5']"], "05"),
        (["-e", "--where", "value.nothing.more > 1"], ""),
    ],
)
def test_start_stop_and_filters(ottla: Ottla, filled: str, options: list[str], wanted: str) -> None:
    result = ottla("consume", filled, *OFFSETS, *options)
    assert (result.code, "".join(result.out.split())) == (0, wanted)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], '{"n": 1, "user": {"id": "u1"}}\n'),
        (["-K", ":"], 'k1:{"n": 1, "user": {"id": "u1"}}\n'),
        (["-f", r"%t [%p] %o %k %T %K %S %h %%\n"], "TOPIC [0] 1 k1 1600000001000 2 30 h=1 %\n"),
        (["--property", "print.key=true", "--property", "print.value=false"], "k1\n"),
        (
            [f"--formatter-property=print.{name}=true" for name in ("timestamp", "partition", "offset", "epoch", "headers", "key")]
            + ["--formatter-property", "key.separator=|", "--formatter-property", "print.value=false"],
            "CreateTime:1600000001000|Partition:0|Offset:1|Epoch:0|h:1|k1\n",
        ),
        (["--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"], ""),
    ],
)
def test_forms(ottla: Ottla, filled: str, options: list[str], wanted: str) -> None:
    result = ottla("consume", filled, "-q", "-o", "1", "-c", "1", *options)
    assert (result.code, result.out) == (0, wanted.replace("TOPIC", filled))


def test_json_has_the_members_of_kcat(ottla: Ottla, filled: str, broker: Broker) -> None:
    broker.add_record(filled, b"\xff\x00", key=None)
    first, *_, last = [json.loads(line) for line in ottla("consume", filled, "-e", "-q", "-J").out.splitlines()]
    assert first == {
        "topic": filled, "partition": 0, "offset": 0, "tstype": "create", "ts": STARTED_MS, "headers": ["h", "0"], "key": "k0",
        "payload": '{"n": 0, "user": {"id": "u0"}}',
    }  # fmt: skip
    assert last["key"] is None and last["payload_base64"] == "/wA="


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("LongDeserializer", struct.pack(">q", -7), "-7"),
        ("IntegerDeserializer", struct.pack(">i", 70_000), "70000"),
        ("ShortDeserializer", struct.pack(">h", 3), "3"),
        ("DoubleDeserializer", struct.pack(">d", 0.1), "0.1"),
        ("FloatDeserializer", struct.pack(">f", 0.1), "0.1"),
        ("BooleanDeserializer", b"\1", "true"),
        ("StringDeserializer", b"text", "text"),
    ],
)
def test_kafkas_deserializers(ottla: Ottla, broker: Broker, topic: str, name: str, data: bytes, wanted: str) -> None:
    broker.add_record(topic, data, key=data)
    read = ["consume", topic, "-e", "-q", "--property", "print.key=true"]
    properties = [f"--property={part}.deserializer=org.apache.kafka.common.serialization.{name}" for part in ("key", "value")]
    assert ottla(*read, *properties).out == f"{wanted}\t{wanted}\n"
    assert ottla(*read, "--value-deserializer", name, "--key-deserializer", name).out == f"{wanted}\t{wanted}\n"


def test_a_value_of_another_size_is_refused(ottla: Ottla, filled: str) -> None:
    result = ottla("consume", filled, "-e", "-q", "--value-deserializer", "LongDeserializer")
    assert result.code == 1 and result.err == "error: LongDeserializer needs 8 bytes, this record has 30\n"


def test_read_committed_leaves_out_aborted_and_open_records(ottla: Ottla, broker: Broker, topic: str) -> None:
    from ottla.client.blocking.cluster import Cluster
    from ottla.client.blocking.producer import Producer

    with Cluster(broker.bootstrap_server, timeout_s=10) as cluster, Producer(cluster, transactional_id=topic) as producer:
        for value, is_kept in ((b"kept", True), (b"dropped", False), (b"too", True)):
            producer.begin()
            producer.produce(topic, value)
            producer.flush()
            producer.commit() if is_kept else producer.abort()
        producer.begin()
        producer.produce(topic, b"open")
        producer.flush()
        read = ["consume", topic, "-e", "-q"]
        assert ottla(*read, "--isolation-level", "read_committed").out == "kept\ntoo\n"
        assert ottla(*read, "-X", "isolation.level=read_committed").out == "kept\ntoo\n"
        assert ottla(*read).out == "kept\ndropped\ntoo\nopen\n"
        markers = ottla(*read, "--print-control-records").out
        producer.abort()
    assert re.findall(r"-- (COMMIT|ABORT) \S+ offset (\d+)", markers) == [("COMMIT", "1"), ("ABORT", "3"), ("COMMIT", "5")]
    assert [line.split()[0] for line in markers.splitlines()] == ["kept", "--", "dropped", "--", "too", "--", "open"], "in their order"


def test_a_group_goes_on_where_it_stopped(ottla: Ottla, filled: str) -> None:
    read = ["consume", filled, *OFFSETS, "-g", f"group-{filled}", "--from-beginning"]
    assert ottla(*read, "-c", "2").out.split() == ["0", "1"]
    assert ottla(*read, "-c", "3").out.split() == ["2", "3", "4"], "what was fetched and not printed is not committed"
    assert ottla(*read, "-e").out.split() == ["5"]
    assert ottla("consume", filled, *OFFSETS, "-e", "-g", f"group-{filled}", "-o", "stored").out == ""


def test_several_topics_by_name_and_by_pattern(ottla: Ottla, broker: Broker, topic: str) -> None:
    for suffix in ("a", "b"):
        broker.create_topic(f"{topic}-{suffix}")
        broker.add_record(f"{topic}-{suffix}", suffix)
    assert sorted(ottla("consume", "-e", "-q", f"{topic}-a", "-t", f"{topic}-b").out.split()) == ["a", "b"]
    assert sorted(ottla("consume", "-e", "-q", "--whitelist", f"{topic}-.").out.split()) == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-e", "-F"], 2, "-e stops at the end"),
        (["-J", "-f", "%s"], 2, "exclude each other"),
        (["-f", "%x"], 2, "-f has no token %x"),
        (["-o", "soon"], 2, "-o 'soon' is none of"),
        (["-o", "1", "-o", "2"], 2, "two starts"),
        (["-o", "1", "--from-beginning"], 2, "exclude each other"),
        (["-o", "stored", "-e"], 2, "-o stored needs a group"),
        (["-p", "7"], 1, "so no partition 7"),
        (["--grep", "("], 2, "is not a regular expression"),
        (["--where", "open('x')"], 2, "--where takes comparisons"),
        (["--where", "valu == 1"], 2, "has no name 'valu'"),
        (["--formatter", "org.example.OffsetsPrinter"], 2, "is not offered"),
        (["--value-deserializer", "com.example.Thing"], 2, "no deserializer 'com.example.Thing'"),
        (["--where", "timestamp > 'soon'"], 2, "'soon' is not a date and time"),
        (["-n", "-5", "-e"], 2, "--max-messages is a number from 0 on, or -1 for all"),
        (["-o", "99", "-c", "1", "-X", "auto.offset.reset=none"], 1, "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_what_is_refused(ottla: Ottla, filled: str, options: list[str], code: int, message: str) -> None:
    result = ottla("consume", filled, *options)
    assert result.code == code and message in result.err and result.err.count("\n") == 1, result.err


def test_minus_one_is_no_limit_as_in_kafkas_tool(ottla: Ottla, filled: str) -> None:
    assert ottla("consume", filled, "-e", "-q", "-n", "-1").out == ottla("consume", filled, "-e", "-q").out != ""
    assert ottla("consume", filled, "-e", "-q", "-n", "0").out == ""


def test_an_unknown_topic_gets_a_suggestion(ottla: Ottla, topic: str) -> None:
    result = ottla("consume", f"{topic}x", "-e")
    assert result.code == 1 and f"did you mean {topic!r}?" in result.err


def test_kafkas_tool_makes_a_topic_that_is_not_there(offline: Ottla, broker: Broker, topic: str) -> None:
    words = ["--topic", f"{topic}-new", "--timeout-ms", "200", "--bootstrap-server", broker.bootstrap_server]
    result = offline("kafka-console-consumer", *words)
    assert (result.code, result.out) == (0, ""), result.err
    assert f"{topic}-new" in broker.topics()


def follow(broker: Broker, topic: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "ottla.cli.main", "consume", topic, "-b", broker.bootstrap_server, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_in_a_follow_leaves_the_group_and_is_130(ottla: Ottla, broker: Broker, filled: str) -> None:
    group = f"group-{filled}"
    with follow(broker, filled, "-g", group, "--from-beginning", "-f", r"%o\n") as process:
        assert process.stdout is not None and process.stderr is not None
        assert [process.stdout.readline() for _ in range(6)] == [f"{number}\n" for number in range(6)]
        broker.add_record(filled, "one more")
        assert process.stdout.readline() == "6\n"  # so the six before are done with
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() in ("Processed a total of 6 messages\n", "Processed a total of 7 messages\n")
    (described,) = ottla("group", "describe", group, "-o", "json").json()["groups"]
    assert described["state"] == "Empty" and described["offsets"][0]["current_offset"] in (6, 7)


def test_a_closed_pipe_ends_in_silence(broker: Broker, topic: str, ottla: Ottla) -> None:
    ottla("produce", topic, "--generate", 20_000)
    with follow(broker, topic, "-e", "-q") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "record 0\n"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_nothing_to_read_ends_a_follow_in_time(broker: Broker, topic: str, ottla: Ottla) -> None:
    """Without a record for so long, `--timeout-ms` ends a follow, with code 0, as in Kafka."""
    started = time.monotonic()
    assert ottla("consume", topic, "--timeout-ms", 300, "-q").code == 0
    assert time.monotonic() - started >= 0.25


@pytest.mark.parametrize("prefix", ["org.apache.kafka.tools.consumer.", "kafka.coordinator.group.GroupMetadataManager$", ""])
def test_offsets_as_kafkas_formatter_writes_them(ottla: Ottla, topic: str, prefix: str) -> None:
    group = f"group-{topic}"
    assert ottla("group", "reset-offsets", "--group", group, "--topic", topic, "--to-offset", "0", "--execute").code == 0
    shown = ottla("consume", "__consumer_offsets", "-e", "-q", "--formatter", f"{prefix}OffsetsMessageFormatter")
    records = [json.loads(line) for line in shown.out.splitlines()]
    assert {record["key"]["type"] for record in records} == {1}
    (mine,) = [record for record in records if record["key"]["data"]["group"] == group]
    assert mine["key"]["data"] == {"group": group, "topic": topic, "partition": 0}
    assert mine["value"]["data"]["offset"] == 0


def test_other_formatters_of_kafkas_own_topics(ottla: Ottla, topic: str) -> None:
    assert ottla("produce", topic, "--generate", "1", "--transactional-id", f"id-{topic}").code == 0
    shown = ottla(
        "consume", "__transaction_state", "-e", "-q", "--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    )
    mine = [record for record in map(json.loads, shown.out.splitlines()) if record["key"]["data"]["transactionalId"] == f"id-{topic}"]
    assert len(mine) >= 3 and mine[-1]["value"]["data"]["producerId"] >= 0
    assert ottla("consume", topic, "-e", "-q", "--formatter", "OffsetsMessageFormatter").out == "", "records of other kinds are skipped"
    assert ottla("consume", topic, "-e", "-q", "--formatter", "org.example.Mine").code == 2


# The expression language of `consume --where`: its results, and that it can do nothing else


RECORD = Record(
    7, 1000, b"k1", b'{"amount": 12.5, "user": {"id": 3, "tags": ["a", "b"]}, "ok": true, "none": null}', (("h", b"x"), ("n", None))
)


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 10",
        "value.user.id == 3 and key == 'k1'",
        "value['user']['tags'][1] == 'b'",
        "'a' in value.user.tags",
        "'c' not in value.user.tags",
        "offset % 2 == 1",
        "5 < offset <= 7",
        "headers['h'] == 'x' and headers.n is null",
        "value.ok is true",
        "not value.none",
        "value.missing.deeper is null",
        "value.missing > 1 or key == 'k1'",
        "'x' in value.amount or not key > 5",
        "partition == 1 or topic == 't'",
        "-offset == -7",
        "timestamp + 1 == 1001",
        "offset in [1, 7]",
        "value.user.tags[9] is null",
        "timestamp < '2020-01-31'",
        "'1970-01-01T00:00:01Z' <= timestamp < '-1h'",
        "timestamp in ['1970-01-01T00:00:01Z', '2020-01-31']",
        "timestamp not in ('2020-01-31', 5)",
        "'k1' == key != timestamp < '2020-01-31'",
    ],
)
def test_true(text: str) -> None:
    assert parse_where(text)("t", 0, RECORD)


@pytest.mark.parametrize(
    "text", ["value.amount > 'x'", "offset / 0 == 1", "key > 5", "value.missing > 1", "headers.none == 'x'", "partition", "value.none",
             "key * 9999999999 != 1", "'%9999999999d' % 5 != 1", "[1] * 9999999999 != 1"]
)
def test_false_or_senseless(text: str) -> None:
    assert not parse_where(text)("t", 0, RECORD)


def test_text_that_is_no_json_stays_text() -> None:
    assert parse_where("value == '{broken'")("t", 0, Record(0, 0, None, b"{broken"))
    assert parse_where("key is null and value is null")("t", 0, Record(0, 0, None, None))
    assert parse_where("value == 5")("t", 0, Record(0, 0, None, b"5"))
    assert parse_where("value.a == 5")("t", 0, Record(0, 0, None, b' \r\n\t{"a": 5}'))
    assert parse_where("value == ' x'")("t", 0, Record(0, 0, None, b" x"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "key ==",
        "open('x')",
        "__import__('os')",
        "lambda: 1",
        "[x for x in headers]",
        "x := 1",
        "missing == 1",
        "f'{key}'",
        "key if 1 else 2",
        "*key",
        *(pytest.param(text, id=f"{text[:4]} deep") for text in ("-" * 2000 + "1", "not " * 2000 + "1", "value" + ".a" * 2000)),
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--where"):
        parse_where(text)


@pytest.mark.parametrize("options", [[], ["-g", "g"]])
def test_a_follow_survives_the_death_of_its_broker(tmp_path: Path, options: list[str]) -> None:
    with Broker(topics=["orders"]) as broker:
        broker.add_record("orders", "before")
        line = [sys.executable, "-m", "ottla.cli.main", "consume", "orders", "-F", "-q", "--from-beginning", *options]
        command = [*line, "-b", broker.direct_server]
        reading = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert reading.stdout is not None and reading.stderr is not None
        try:
            assert reading.stdout.readline() == "before\n"
            for value in ("after", "again"):
                broker.process.kill()
                assert re.fullmatch(r"waiting: .*127\.0\.0\.1:\d+.*; Ctrl-C gives up\n", reading.stderr.readline())
                broker.process.start()
                broker.add_record("orders", value)
                assert reading.stdout.readline() == f"{value}\n"
            reading.send_signal(signal.SIGINT)
            assert reading.wait(60) == 130 and reading.stderr.read() == ""
        finally:
            reading.kill()
            reading.communicate()
