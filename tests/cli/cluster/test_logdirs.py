"""Sizes of logs, by broker and directory."""

from __future__ import annotations

import json

from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


def test_sizes(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, "x" * 100)
    found = json.loads(ottla("logdirs", "--topic-list", topic, "-o", "json").out)["brokers"]
    (directory,) = found[0]["log_dirs"]
    (partition,) = directory["partitions"]
    assert (partition["topic"], partition["partition"], partition["size"] > 100) == (topic, 0, True)
    assert directory["error"] is None
    table = ottla("logdirs", "--topic-list", topic, "--broker-list", "0").out.splitlines()
    assert table[0].split() == ["BROKER", "LOG-DIR", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "FUTURE"]
    assert table[2] == ""
    assert table[3].split() == ["BROKER", "LOG-DIR", "PARTITIONS", "SIZE", "DISK-FREE", "DISK-SIZE", "FREE-%", "ERROR"]
    total = table[4].split()
    assert total[:4] == ["0", str(broker.data_dir), "1", str(partition["size"])]
    assert len(table) == 5
    assert (directory["size"], directory["partition_count"]) == (partition["size"], 1)
    assert 0 <= directory["free_percent"] <= 100
    assert 0 <= directory["usable_bytes"] <= directory["total_bytes"]
    assert len(ottla("logdirs", "--topic-list", topic, "-o", "csv").out.splitlines()) == 2


def test_internal_topics_can_be_left_out(ottla: Ottla, broker: Broker, topic: str) -> None:
    broker.add_record(topic, "x" * 100)
    ottla("consume", topic, "-g", f"{topic}-readers", "--from-beginning", "-c", "1", "-q")

    def topics(*options: str) -> set[str]:
        brokers = json.loads(ottla("logdirs", *options, "-o", "json").out)["brokers"]
        return {partition["topic"] for directory in brokers[0]["log_dirs"] for partition in directory["partitions"]}

    assert {topic, "__consumer_offsets"} <= topics()
    assert {name for name in topics("--exclude-internal") if name.startswith("__")} == set()
    assert topic in topics("--exclude-internal")
    (directory,) = json.loads(ottla("logdirs", "--exclude-internal", "-o", "json").out)["brokers"][0]["log_dirs"]
    assert directory["partition_count"] == len(directory["partitions"]) > 0
    assert directory["size"] == sum(partition["size"] for partition in directory["partitions"])


def test_wrong_brokers(ottla: Ottla) -> None:
    assert ottla("logdirs", "--broker-list", "x").code == 2
    result = ottla("logdirs", "--broker-list", "77")
    assert (result.code in (1, 3), result.err.count("\n")) == (True, 1)
