"""The addresses at which a broker connects to other brokers, and the log line about a broker without a listener for brokers."""

from __future__ import annotations

import logging

import pytest

from ottla.base.cluster_metadata import BrokerMetadata
from ottla.base.config import BrokerConfig
from ottla.cluster.broker_addresses import BrokerAddresses


def config() -> BrokerConfig:
    return BrokerConfig({
        "broker.id": "1", "zookeeper.connect": "h:1", "listeners": "INT://:1,EXT://:2", "inter.broker.listener.name": "INT",
        "listener.security.protocol.map": "INT:PLAINTEXT,EXT:PLAINTEXT",
    })  # fmt: skip


def test_a_registration_without_the_listener_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.peers")
    brokers = {
        1: BrokerMetadata(broker_id=1, endpoints={"INT": ("a", 1), "EXT": ("a", 2)}, epoch=10),
        2: BrokerMetadata(broker_id=2, endpoints={"INT": ("b", 1), "EXT": ("b", 2)}, epoch=11),
        3: BrokerMetadata(broker_id=3, endpoints={"PLAINTEXT": ("c", 1)}, epoch=12),
    }
    addresses = BrokerAddresses(config(), brokers.get)
    assert [addresses.find(number) for number in (1, 2, 3, 4, 3, 3)] == [None, ("b", 1), None, None, None, None]
    line = "broker 3 cannot be reached: brokers speak to each other at the listener INT here (inter.broker.listener.name), it has PLAINTEXT"
    assert [record.getMessage() for record in caplog.records] == [line]
    brokers[3] = BrokerMetadata(broker_id=3, endpoints={}, epoch=13)
    assert addresses.find(3) is None and caplog.records[1].getMessage().endswith("it has none")
    brokers[3] = BrokerMetadata(broker_id=3, endpoints={"INT": ("c", 1)}, epoch=14)
    assert addresses.find(3) == ("c", 1) and len(caplog.records) == 2
