"""Options of the source and the sink: they have the names and meanings of Spark's Kafka connector, and every wrong option gets a clear
error of one line.
"""

from __future__ import annotations

import logging
import pickle

import pytest

from ottla.client import TopicPartition
from ottla.client.addresses import VARIABLES
from ottla.spark.errors import OptionError
from ottla.spark.option_tables import MAX_BYTES_PER_TRIGGER, SINK_TABLE, SOURCE_TABLE, WITHOUT_EFFECT
from ottla.spark.options import is_source, parse_sink, parse_source
from ottla.spark.pipeline import Pipeline

HERE = {"kafka.bootstrap.servers": "localhost:9092"}
READ = {**HERE, "subscribe": "orders"}


def test_defaults_of_the_source() -> None:
    found = parse_source(READ)
    assert found.connection.bootstrap == "localhost:9092"
    assert found.subscription.topics == ("orders",)
    assert (found.group, found.isolation, found.starting, found.ending) == (None, "read_committed", None, None)
    assert (found.max_offsets, found.max_bytes, found.min_offsets, found.min_partitions) == (0, MAX_BYTES_PER_TRIGGER, 0, 0)
    assert found.is_loss_fatal and not found.with_headers


def test_names_are_compared_without_case() -> None:
    found = parse_source({"KAFKA.BOOTSTRAP.SERVERS": "a:1", "SubScribe": "x", "STARTINGOFFSETS": "Earliest", "failondataloss": "FALSE"})
    assert found.starting is not None and found.starting.kind == "earliest"
    assert not found.is_loss_fatal


def test_each_way_to_subscribe() -> None:
    assert parse_source({**HERE, "subscribe": " b, a ,b,"}).subscription.topics == ("a", "b")
    assert parse_source({**HERE, "subscribePattern": "or.*"}).subscription.pattern == "or.*"
    assigned = parse_source({**HERE, "assign": '{"t":[1,0],"s":[2]}'}).subscription
    assert assigned.partitions == (TopicPartition("s", 2), TopicPartition("t", 0), TopicPartition("t", 1))
    assert [is_source({name: "x"}) for name in ("Subscribe", "subscribepattern", "ASSIGN", "topic")] == [True, True, True, False]


def test_positions_and_their_order() -> None:
    offsets = {"startingOffsets": '{"t":{"0":5,"1":-2}}'}
    by_timestamp = {"startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    assert parse_source({**READ, **offsets}).starting.numbers == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -2}  # type: ignore[union-attr]
    assert parse_source({**READ, **offsets, **by_timestamp}).starting.kind == "timestamps"  # type: ignore[union-attr]
    found = parse_source({**READ, **offsets, **by_timestamp, "startingTimestamp": "7"}).starting
    assert found is not None and (found.kind, found.timestamp) == ("timestamp", 7)


def test_security_is_passed_on_and_not_shown() -> None:
    secret = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "u", "kafka.sasl.password": "hidden"}
    found = parse_source({**READ, **secret})
    assert dict(found.connection.security) == {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "hidden"}
    assert "hidden" not in repr(found)


def test_a_limit_in_offsets_replaces_that_in_bytes_unless_both_are_set() -> None:
    limits = [
        parse_source({**READ, **given})
        for given in ({"maxOffsetsPerTrigger": "5"}, {"maxBytesPerTrigger": "7"}, {"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "7"})
    ]
    assert [(found.max_offsets, found.max_bytes) for found in limits] == [(5, 0), (0, 7), (5, 7)]


def test_durations() -> None:
    assert [parse_source({**READ, "maxTriggerDelay": text}).max_delay_ms for text in ("10", "5ms", "2s", "15m", "1h", "1d")] == [
        10, 5, 2000, 900_000, 3_600_000, 86_400_000,
    ]  # fmt: skip


def test_the_same_setting_by_its_name_of_kafka() -> None:
    assert parse_source({**READ, "kafka.isolation.level": "read_uncommitted"}).isolation == "read_uncommitted"
    assert parse_sink({**HERE, "kafka.compression.type": "ZSTD"}).compression == "zstd"
    assert parse_sink({**HERE, "kafka.request.timeout.ms": "1500"}).connection.timeout_s == 1.5


def test_settings_that_ask_for_what_is_done_anyway_are_accepted() -> None:
    assert parse_sink({**HERE, "topic": "t", "kafka.enable.idempotence": "True", "kafka.acks": "all"}).topic == "t"
    assert parse_source({**READ, "kafka.enable.auto.commit": "false"}).group is None
    with pytest.raises(OptionError, match=r"kafka\.enable\.idempotence: cannot be set; the sink is always idempotent"):
        parse_sink({**HERE, "topic": "t", "kafka.enable.idempotence": "false"})


def test_the_sink_gets_what_spark_passes() -> None:
    found = parse_sink({**HERE, "topic": "out", "group": "g", "checkpointlocation": "/c", "queryname": "q", "path": "p"})
    assert (found.topic, found.group, found.checkpoint, found.compression) == ("out", "g", "/c", "lz4")
    assert found.max_output_bytes is None, "the bound depends on whether output is in files"
    assert parse_sink({**HERE, "maxOutputBytes": "5", "kafka.delivery.timeout.ms": "1500"}).retry_s == 1.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "x"}, "kafka.bootstrap.servers: missing"),
        (HERE, "subscribe, subscribePattern, assign: exactly one"),
        ({"kafka.bootstrap.servers": "b:1", "topic": "t"}, "none is set; a view to write to names its columns: CREATE TEMPORARY VIEW"),
        ({**READ, "assign": '{"a":[0]}'}, "exactly one of them says what to read, but subscribe and assign are set"),
        ({**HERE, "subscribe": " , "}, "subscribe: names no topic"),
        ({**HERE, "subscribePattern": "("}, "subscribePattern: '(' is no regular expression"),
        ({**HERE, "assign": "orders"}, "assign: 'orders' is no JSON"),
        ({**HERE, "assign": '{"a":0}'}, "assign: "),
        ({**HERE, "assign": '{"a":[true]}'}, "assign: "),
        ({**READ, "startingOffsets": "5"}, "startingOffsets: '5' is neither earliest nor latest nor JSON"),
        ({**READ, "startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets: -3 for t-0 is less than -2"),
        ({**READ, "startingOffsets": '{"t":{"x":1}}'}, "startingOffsets: "),
        ({**READ, "endingOffsets": '{"t":[1]}'}, "endingOffsets: "),
        ({**READ, "startingTimestamp": "today"}, "startingTimestamp: 'today' is no whole number"),
        ({**READ, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: 0 is less than 1"),
        ({**READ, "maxOffsetsPerTrigger": "1e6"}, "maxOffsetsPerTrigger: '1e6' is no whole number"),
        ({**READ, "failOnDataLoss": "no"}, "failOnDataLoss: 'no' is none of true, false"),
        ({**READ, "isolation": "committed"}, "isolation: 'committed' is none of read_committed, read_uncommitted"),
        ({**READ, "maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is no duration"),
        ({**READ, "startingOffset": "latest"}, "startingoffset: no such option; did you mean startingOffsets?"),
        ({**READ, "kafka.group.id": "g"}, "kafka.group.id: cannot be set; the group is the option `group`"),
        ({**READ, "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit: cannot be set"),
        ({**READ, "kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset: cannot be set; set `startingOffsets`"),
        ({**READ, "kafka.value.deserializer": "x"}, "kafka.value.deserializer: cannot be set"),
    ],
)
def test_options_of_the_source_that_make_no_sense(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_source(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "x"}, "kafka.bootstrap.servers: missing"),
        ({**HERE, "compression": "lz5"}, "compression: 'lz5' is none of none, gzip, snappy, lz4, zstd"),
        ({**HERE, "maxOutputBytes": "256m"}, "maxOutputBytes: '256m' is no whole number"),
        ({**HERE, "trustCheckpoint": "yes"}, "trustCheckpoint: 'yes' is none of true, false"),
        ({**HERE, "kafka.transactional.id": "t"}, "kafka.transactional.id: cannot be set; it is made from the option `group`"),
        ({**HERE, "kafka.key.serializer": "t"}, "kafka.key.serializer: cannot be set"),
        ({**HERE, "topics": "t"}, "topics: no such option; did you mean topic?"),
    ],
)
def test_options_of_the_sink_that_make_no_sense(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_sink(given)
    assert message in str(caught.value)


def test_unknown_keys_warn_once_and_those_without_effect_do_not(caplog: pytest.LogCaptureFixture) -> None:
    given = {**READ, "kafka.acks": "all", "fetchOffset.numRetries": "3", "kafka.no.such.setting.at.all": "1"}
    with caplog.at_level(logging.WARNING, logger="ottla.spark"):
        parse_source(given)
        parse_source(given)
    assert [record.getMessage() for record in caplog.records] == ["option kafka.no.such.setting.at.all is unknown and has no effect"]


OF_THE_CONNECTOR = {
    "assign": '{"t":[0]}', "subscribe": "t", "subscribePattern": "t.*", "kafka.bootstrap.servers": "b:1", "startingTimestamp": "5",
    "startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest", "endingTimestamp": "5", "failOnDataLoss": "false",
    "endingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsets": "latest", "kafkaConsumer.pollTimeoutMs": "5", "minPartitions": "5",
    "fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "5", "maxRecordsPerPartition": "5", "maxOffsetsPerTrigger": "5",
    "minOffsetsPerTrigger": "5", "maxTriggerDelay": "5m", "groupIdPrefix": "p", "includeHeaders": "true", "topic": "t",
    "startingOffsetsByTimestampStrategy": "latest",
}  # fmt: skip
"""The options of Spark's Kafka connector, for sources and sinks, each with a value; `kafka.group.id` alone is refused."""


@pytest.mark.parametrize("name", OF_THE_CONNECTOR)
def test_every_option_of_spark_s_kafka_connector_is_taken_and_documented(name: str, caplog: pytest.LogCaptureFixture) -> None:
    ways = {} if name in ("assign", "subscribePattern") else READ
    with caplog.at_level(logging.WARNING, logger="ottla.spark"):
        parse_source({**HERE, **ways, name: OF_THE_CONNECTOR[name]})
        parse_sink({**HERE, "topic": "t", name: OF_THE_CONNECTOR[name]})
    assert caplog.records == []
    named = {option.name for option in (*SOURCE_TABLE, *SINK_TABLE)} | set(WITHOUT_EFFECT)
    assert name in named


def test_options_of_a_table_in_sql_come_twice() -> None:
    twice = {**READ, **{f"option.{name}": value for name, value in READ.items()}, "provider": "ottla", "owner": "me", "location": "file:/x"}
    assert parse_source(twice) == parse_source(READ)


def test_options_reach_the_tasks() -> None:
    found = parse_source({**READ, "startingOffsets": '{"orders":{"0":5}}'})
    assert pickle.loads(pickle.dumps(found)) == found
    assert pickle.loads(pickle.dumps(parse_sink({**HERE, "topic": "t"}))) == parse_sink({**HERE, "topic": "t"})


def test_the_tables_of_the_reference_are_whole() -> None:
    assert all(option.meaning.endswith((".", "`")) and option.used_by for option in (*SOURCE_TABLE, *SINK_TABLE))
    assert len({option.name.lower() for option in SOURCE_TABLE}) == len(SOURCE_TABLE)


def test_a_pipeline_uses_the_brokers_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def bootstrap() -> str:
        return Pipeline(group="g", source="a", sink="b", transform=lambda rows: rows).bootstrap

    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert bootstrap() == "localhost:9092"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka:1")
    assert bootstrap() == "kafka:1"
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "ours:1")
    assert bootstrap() == "ours:1"
