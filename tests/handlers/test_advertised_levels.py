"""`ottla.advertise.level`: the broker advertises the versions and features of an earlier release, and serves no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from ottla.base.config import BrokerConfig, ConfigError, load
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.features import FEATURES
from ottla.base.settings.network import LEVELS
from ottla.handlers.advertised_levels import CHANGES, NEWEST, features, highest_versions, require_share_groups, served
from ottla.handlers.served_apis import TABLE
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.clients.broker_process import BrokerProcess
from tests.clients.left_open import leaves_nothing_open
from tests.clients.wire_client import WireClient
from tests.fakes.kafka_python import BROKER_API_VERSIONS, KafkaAdminClient

__all__ = ["leaves_nothing_open"]


def test_the_setting_knows_the_levels() -> None:
    assert tuple(CHANGES) == LEVELS and LEVELS[-1] == NEWEST
    assert load(assignments=("ottla.advertise.level=3.9",))[0].ottla_advertise_level == "3.9"
    with pytest.raises(ConfigError, match=r"ottla\.advertise\.level"):
        load(assignments=("ottla.advertise.level=9.9",))


@pytest.mark.parametrize("level", LEVELS[:-1])
def test_the_table_agrees_with_kafka_pythons(level: str) -> None:
    known = BROKER_API_VERSIONS[tuple(map(int, level.split(".")))]
    offered = {key for key, api in TABLE.items() if api.is_advertised}
    assert highest_versions(level) == {key: versions[1] for key, versions in known.items() if key in offered}


def test_the_newest_level_is_all_there_is() -> None:
    assert served(NEWEST) == served(None) == TABLE
    assert features(NEWEST) == features(None) == FEATURES and not features("3.9")
    assert BrokerConfig().ottla_advertise_level is None


@pytest.mark.parametrize(("level", "in_force"), [("4.0", None), ("4.1", 0), ("4.2", 1), ("4.3", 1), ("4.4", 2)])
def test_share_groups_came_with_4_1_and_are_switched_on_since_4_2(level: str, in_force: int | None) -> None:
    known = features(level).get("share.version")
    assert (None if known is None else known.level) == in_force
    if in_force:
        require_share_groups(level)
        return
    with pytest.raises(ApiError) as refused:
        require_share_groups(level)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ("ottla.advertise.level=3.9", "group.initial.rebalance.delay.ms=0", "ottla.log.format=text")
    process = BrokerProcess(tmp_path_factory.mktemp("level"), settings).start()
    yield process
    process.stop()


def test_a_broker_of_3_9_offers_no_more(broker: BrokerProcess) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with WireClient(broker.port) as client:
        answer = client.ask(request, 4)
        assert {entry.api_key: entry.max_version for entry in answer.api_keys} == highest_versions("3.9")
        assert (answer.supported_features, answer.finalized_features, answer.finalized_features_epoch) == ([], [], -1)
        client.send(client.frame(request, 5))
        refused = client.answer(ApiVersionsRequest.API_KEY, 0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION and len(refused.api_keys) == len(answer.api_keys)
        assert client.ask(MetadataRequest(topics=None), 12).brokers
        client.send(client.frame(MetadataRequest(topics=None), 13))
        assert client.receive() is None, "only ApiVersions has an answer to a version that the broker has not"
    assert "version 13 of api key 3" in broker.log_text()


def test_a_client_works_with_a_broker_of_3_9(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(20)
    for value, is_committed in ((b"no", False), (b"yes", True)):
        producer.begin_transaction()
        producer.produce("t", value)
        producer.flush(60)
        if is_committed:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    settings = {"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["t"])
        message = consumer.poll(60)
        assert message is not None and message.error() is None and message.value() == b"yes"


def test_kafka_python_recognises_the_level(broker: BrokerProcess) -> None:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        assert client._manager.broker_version == (3, 9)
    finally:
        client.close()
