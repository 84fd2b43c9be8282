"""Names that Kafka knows and this broker does not serve."""

from __future__ import annotations

from ottla.base.config import BROKER_SETTINGS, Notice, load
from ottla.base.settings.known import MISSING_PARTS, is_known_to_kafka


def test_no_name_is_both_served_and_unserved() -> None:
    assert [name for name in BROKER_SETTINGS if is_known_to_kafka(name)] == []


def test_old_and_new_names_are_known() -> None:
    for name in ("process.roles", "num.network.threads", "zookeeper.sync.time.ms", "log.message.format.version", "ssl.provider"):
        assert is_known_to_kafka(name)
    assert not is_known_to_kafka("num.partitons")


def test_a_setting_whose_part_does_not_exist_is_a_warning() -> None:
    assert MISSING_PARTS.keys().isdisjoint(BROKER_SETTINGS)
    _, notices = load(assignments=["ottla.console.listen=127.0.0.1:8080"])
    assert notices == [Notice(True, "--set: ottla.console.listen has no effect: this version has no console")]
