"""Names in the sentences of the pages exist: settings of the broker and of Kafka, and what the code defines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.base.config import SETTINGS
from ottla.base.settings.client_metrics import CLIENT_METRICS_SETTINGS
from ottla.base.settings.known import is_known_to_kafka
from tests.docs.pages import DOCS, ROOT
from tests.docs.test_statements import inline_code

PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
FILES = (".md", ".py", ".zip", ".yml", ".yaml", ".json", ".txt", ".toml", ".pem", ".key", ".log", ".pcap", ".sqlite",
         ".properties", ".metadata")  # fmt: skip
OF_CLIENTS = {
    "check.crcs", "org.apache.kafka.producer.record.send.total",
    "client.rack", "enable.idempotence", "enable.sparse.connections", "group.protocol", "https.ca.location", "isolation.level",
    "sasl.mechanism", "sasl.mechanisms", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.password", "sasl.username",
    "security.protocol", "share.acknowledgement.mode", "socket.timeout.ms", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "transaction.timeout.ms",
}  # fmt: skip
OF_SPARK_S_CONNECTOR = {
    "kafka.batch.size", "kafka.enable.idempotence", "kafka.group.id", "kafka.isolation.level", "kafka.transaction.timeout.ms", "spark.read",
}  # fmt: skip
OF_SPARK = {"fs.file.impl", "java.io.tmpdir", "spark.python.unix.domain.socket.enabled", "spark.sql.shuffle.partitions"}
FEATURES = {"group.version", "metadata.version", "share.version", "transaction.version"}
OTHERS = {
    "broker.example.org", "client.users", "directory.id", "enforce.auth.enabled", "gc.enabled", "gc.freeze",
    "history.expire.max-snapshot-age-ms", "ottla.audit", "ottla.console.listen",
    "ottla.frame", "staged.chunks", "staged.refused",
}  # fmt: skip
"""A host, a setting of an image's scripts, a field of a file, ZooKeeper's, two of Iceberg's, a function, a logger, a part that is missing,
two attributes."""
FOREIGN = {
    "ConsumerProtocolMigrationTest", "DATA_SOURCE_NOT_FOUND", "ExampleConnectIntegrationTest", "KGO_TEST_CHAOS", "KafkaShareConsumer",
    "SubscriptionPattern", "Test848RegexBrokerResolves", "TestConn", "TestTransactionalProducer",
    "TransactionManager", "VerifiableConsumer", "VerifiableProducer",
    "KAFKA_BROKERCONNECT", "KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS",
    "bytesinpersec_total", "commitSync", "config.the_name", "endOffset", "exactly_once_v2", "from_protobuf",
    "group_by", "keepPreparedTxn", "place_order",
    "remove_orphan_files",
    "test_base_producer_timeout", "with_bind_ports", "with_command", "with_volume_mapping",
}  # fmt: skip
"""What others define, and what an example does."""


def unknown_settings(codes: list[str]) -> list[str]:
    """What has the form of a setting, `log.retention.ms` or `log.retention.ms=5`, and is none."""
    names = {re.sub(r"=.*", "", code) for code in codes}
    formed = {name for name in names if re.fullmatch(r"[a-z][a-z0-9]*(\.[a-z0-9-]+)+", name) and not name.endswith(FILES)}
    served = {str(setting.name) for setting in SETTINGS} | set(CLIENT_METRICS_SETTINGS)
    known = served | OF_CLIENTS | OF_SPARK | OF_SPARK_S_CONNECTOR | FEATURES | OTHERS
    return sorted(name for name in formed - known if not is_known_to_kafka(name) and not is_module(name))


def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def unknown_symbols(codes: list[str], words: frozenset[str]) -> list[str]:
    """What has the form of a class, a constant or a function with two words, and stands nowhere in the code."""
    found = set()
    for code in codes:
        name = re.fullmatch(r"([A-Za-z_][\w.]*\w)(\([^()]*\))?", code)
        if name and (re.search(r"\w_\w|[a-z][A-Z]", name[1]) or name[2]) and name[1] not in FOREIGN:
            found.update(code for part in name[1].split(".") if part not in words)
    return sorted(found)


@pytest.fixture(scope="module")
def words() -> frozenset[str]:
    """Every word of the code."""
    folders = ("ottla", "pyspark_ottla", "tests", "tools", "examples")
    sources = (path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))
    return frozenset(word for source in sources for word in re.findall(r"[A-Za-z_]\w*", source))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_on_a_page(page: Path, words: frozenset[str]) -> None:
    codes = inline_code(page)
    assert unknown_settings(codes) == []
    assert unknown_symbols(codes, words) == []


def test_a_name_that_is_gone_is_found(words: frozenset[str]) -> None:
    assert unknown_settings(["log.retention.ms", "log.retencion.ms=5", "ottla.open.files.max", "ottla.opened.files.max", "data.json"]) == [
        "log.retencion.ms",
        "ottla.opened.files.max",
    ]
    gone = "No" + "SuchClass"
    assert unknown_symbols([f"{gone}.append", "kafka_broker", f"{gone.lower()}_()", "assert_produces(topic, 1)"], words) == [
        f"{gone}.append",
        f"{gone.lower()}_()",
    ]
