"""`ottla bench producer` on a broker: Kafka's result lines to the letter."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Ottla

NUMBER = r"\d+\.\d+"
TOTAL = re.compile(
    rf"(\d+) records sent, \d+\.\d{{6}} records/sec \(\d+\.\d\d MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency, "
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
    assert json.loads(ottla("topic", "analyze", topic, "-o", "json").out)["records"] == 600


def test_payloads_from_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    payloads = tmp_path / "payloads"
    payloads.write_text("one;two")
    words = ["--num-records", 50, "--payload-file", payloads, "--payload-delimiter", ";"]
    assert ottla("bench", "producer", "--topic", topic, *words).code == 0
    assert set(ottla("consume", topic, "-e", "-q").out.split()) == {"one", "two"}
