"""`ottla bench`: what is wrong usage."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.bench import figures
from tests.cli.conftest import Ottla

# The arithmetic of the performance tools


def test_percentiles_are_counted_from_the_fastest() -> None:
    latencies = figures.Latencies()
    latencies.add(range(1, 1001))
    assert latencies.percentiles() == [501, 951, 991, 1000]
    assert (latencies.average_ms(), latencies.max_ms) == (500.5, 1000)


# `ottla bench e2e` on a broker: Kafka's result lines to the letter


NUMBER = r"\d+\.\d+"


def test_end_to_end(ottla: Ottla, topic: str) -> None:
    result = ottla("bench", "e2e", "--topic", topic, "--num-records", 20, "--producer-acks", "1", "--record-size", "20")
    assert re.fullmatch(rf"0\t{NUMBER}\nAvg latency: {NUMBER} ms\nPercentiles: 50th = \d+, 99th = \d+, 99.9th = \d+\n", result.out)
    made = ottla("bench", "e2e", "--topic", f"{topic}-new", "--num-records", 2, "--record-size", "20")
    assert made.out.startswith(f'Topic "{topic}-new" does not exist. Will create topic with 1 partition(s) and replication factor = 1\n')


# `ottla bench consumer` on a broker: Kafka's columns to the letter, and the same figures as JSON


def test_consumer_prints_kafkas_columns(ottla: Ottla, topic: str) -> None:
    ottla("bench", "producer", "--topic", topic, "--num-records", 300, "--record-size", 100)
    read = ["bench", "consumer", "--topic", topic, "--messages", 300]
    header, line = ottla(*read).out.splitlines()
    assert header == figures.CONSUMER_HEADER
    cells = line.split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", cells[0]) and cells[4] == "300" and cells[2] == "0.0286"
    assert len(ottla(*read, "--hide-header").out.splitlines()) == 1
    found = ottla(*read, "-o", "json").json()
    assert found["data.consumed.in.nMsg"] == 300
    assert ottla(*read, "--show-detailed-stats").out == figures.CONSUMER_DETAIL_HEADER + "\n"
    noted = ottla(*read, "--threads", 2)
    assert noted.err == "--threads has no effect any more\n"


def test_consumer_gives_up_when_nothing_comes(ottla: Ottla, topic: str) -> None:
    result = ottla("bench", "consumer", "--topic", topic, "--num-records", 5, "--timeout", 200)
    assert result.code == 0 and "timeout (200 ms) exceeded" in result.err


# `ottla bench producer` on a broker: Kafka's result lines to the letter


DECIMAL = r"\d+\.\d+"
TOTAL = re.compile(
    rf"(\d+) records sent, \d+\.\d{{6}} records/sec \(\d+\.\d\d MB/sec\), {DECIMAL} ms avg latency, {DECIMAL} ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)


@pytest.mark.parametrize(
    "options",
    [
        ["--record-size", "100"],
        ["--payload-monotonic", "--throughput", "-1"],
        ["--record-size", "100", "--throughput", "5000"],
        ["--record-size", "100", "--transactional-id", "{t}", "--transaction-duration-ms", "20"],
        ["--record-size", "100", "--producer-props", "acks=1", "linger.ms=5"],
    ],
)
def test_producer(ottla: Ottla, topic: str, options: list[str]) -> None:
    words = [option.replace("{t}", topic) for option in options]
    result = ottla("bench", "producer", "--topic", topic, "--num-records", 600, *words)
    found = TOTAL.fullmatch(result.out)
    assert result.code == 0 and found is not None and found[1] == "600", result
    assert ottla("topic", "analyze", topic, "-o", "json").json()["records"] == 600


def test_a_second_line_without_the_warm_up(ottla: Ottla, topic: str) -> None:
    """KIP-1052: the records after the first ones have a line of their own."""
    result = ottla("bench", "producer", "--topic", topic, "--num-records", 600, "--record-size", 100, "--warmup-records", 200)
    whole, steady = result.out.splitlines(keepends=True)
    found = TOTAL.fullmatch(steady.replace(" steady state", ""))
    assert TOTAL.fullmatch(whole) and " steady state records sent" in steady and found is not None and found[1] == "400"


@pytest.mark.parametrize("kind", ["range", "random"])
def test_keys(ottla: Ottla, topic: str, kind: str) -> None:
    """KIP-1299: keys from 0 on, in turn or at random; the same ones with the same seed."""
    words = ["--num-records", 40, "--record-size", 10, "--record-key-range", 4, "--key-distribution", kind]
    words += ["--random-seed", 7] if kind == "random" else []
    for _ in range(2):
        assert ottla("kafka-producer-perf-test", "--topic", topic, "--throughput", -1, *words).code == 0
    keys = [json.loads(line)["key"] for line in ottla("consume", topic, "-e", "-q", "-J").out.splitlines()]
    assert set(keys) == {"0", "1", "2", "3"} and keys[:40] == keys[40:]
    assert (keys[:40] == ["0", "1", "2", "3"] * 10) is (kind == "range")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--record-key-range", 4], "belong together"),
        (["--key-distribution", "range"], "belong together"),
        (["--record-key-range", 0, "--key-distribution", "range"], "must be 1 or more"),
        (["--random-seed", 1], "needs --key-distribution random"),
        (["--record-key-range", 4, "--key-distribution", "range", "--random-seed", 1], "needs --key-distribution random"),
        (["--record-key-range", 4, "--key-distribution", "zipf"], "zipf"),
    ],
)
def test_wrong_options_of_keys(ottla: Ottla, topic: str, options: list[Any], says: str) -> None:
    result = ottla("bench", "producer", "--topic", topic, "--num-records", 4, "--record-size", 10, *options)
    assert result.code == 2 and says in result.err and result.out == ""


def test_payloads_from_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("one;two")
    words = ["--num-records", 50, "--payload-file", payloads, "--payload-delimiter", ";"]
    assert ottla("bench", "producer", "--topic", topic, *words).code == 0
    assert set(ottla("consume", topic, "-e", "-q").out.split()) == {"one", "two"}
