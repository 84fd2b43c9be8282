"""`ottla bench e2e` on a broker: Kafka's result lines to the letter."""

from __future__ import annotations

import re

from tests.cli.conftest import Ottla

NUMBER = r"\d+\.\d+"


def test_end_to_end(ottla: Ottla, topic: str) -> None:
    result = ottla("bench", "e2e", "--topic", topic, "--num-records", 20, "--producer-acks", "1", "--record-size", "20")
    assert re.fullmatch(rf"0\t{NUMBER}\nAvg latency: {NUMBER} ms\nPercentiles: 50th = \d+, 99th = \d+, 99.9th = \d+\n", result.out)
    made = ottla("bench", "e2e", "--topic", f"{topic}-new", "--num-records", 2, "--record-size", "20")
    assert made.out.startswith(f'Topic "{topic}-new" does not exist. Will create topic with 1 partition(s) and replication factor = 1\n')
