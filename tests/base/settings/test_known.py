"""Names of settings that Kafka knows and this broker does not use."""

from __future__ import annotations

from ottla.base.config import BROKER_SETTINGS
from ottla.base.settings.known import is_known_to_kafka


def test_no_name_is_both_served_and_unserved() -> None:
    assert [name for name in BROKER_SETTINGS if is_known_to_kafka(name)] == []


def test_old_and_new_names_are_known() -> None:
    for name in ("process.roles", "num.network.threads", "zookeeper.sync.time.ms", "log.message.format.version", "ssl.provider"):
        assert is_known_to_kafka(name)
    assert not is_known_to_kafka("num.partitons")
