"""`ottla bench consumer` on a broker: Kafka's columns to the letter, and the same figures as JSON."""

from __future__ import annotations

import json
import re

from ottla.cli.bench import figures
from tests.cli.conftest import Ottla


def test_consumer_prints_kafkas_columns(ottla: Ottla, topic: str) -> None:
    ottla("bench", "producer", "--topic", topic, "--num-records", 300, "--record-size", 100)
    read = ["bench", "consumer", "--topic", topic, "--messages", 300]
    header, line = ottla(*read).out.splitlines()
    assert header == figures.CONSUMER_HEADER
    cells = line.split(", ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", cells[0]) and cells[4] == "300" and cells[2] == "0.0286"
    assert len(ottla(*read, "--hide-header").out.splitlines()) == 1
    found = json.loads(ottla(*read, "-o", "json").out)
    assert found["data.consumed.in.nMsg"] == 300
    assert ottla(*read, "--show-detailed-stats").out == figures.CONSUMER_DETAIL_HEADER + "\n"
    noted = ottla(*read, "--threads", 2)
    assert noted.err == "--threads has no effect any more\n"


def test_consumer_gives_up_when_nothing_comes(ottla: Ottla, topic: str) -> None:
    result = ottla("bench", "consumer", "--topic", topic, "--num-records", 5, "--timeout", 200)
    assert result.code == 0 and "timeout (200 ms) exceeded" in result.err
