"""Pipelines and reads on a broker that requires a login, with Kafka's client options and only the permissions that they need."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.acls import AclOperation, Binding, Pattern, Permission, ResourceType, Rule
from ottla.client import Client, connect
from ottla.client.core.acl_admin import create_acls
from ottla.spark import Pipeline
from ottla.spark.runner import run_pipelines
from ottla.spark.state_file import STOPPED
from ottla.spark.verify import verify
from ottla.testing.broker import Broker
from tests.clients.broker_process import BrokerProcess
from tests.clients.conftest import SETTINGS
from tests.fakes.issuer import AUDIENCE, ISSUER, claims_at, jwks, public_jwk, rsa_key, signed
from tests.fakes.token_endpoint import TokenEndpoint
from tests.spark_jobs.queries import failure, reader, run, stream, stream_writer

PASSWORDS = {"etl": 'a "secret"; with, all = of it'}
SECRET = PASSWORDS["etl"]
GROUP = "cleaning"
RIGHTS = (
    (ResourceType.TOPIC, "raw", AclOperation.READ),
    (ResourceType.TOPIC, "clean", AclOperation.WRITE),
    (ResourceType.GROUP, GROUP, AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, f"eos/{GROUP}", AclOperation.WRITE),
)
"""Those that docs/pipelines.md names."""
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TO_KEEP_ITS_STATE = (ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(settings={"authorizer.class.name": "acl"}, users=PASSWORDS, topics=["raw:2", "clean:2"]) as broker:
        for number in range(20):
            broker.add_record("raw", f"value {number}", partition=number % 2)
        yield broker


@pytest.fixture(scope="module")
def administrator(guarded: Broker) -> Iterator[Client]:
    with connect(guarded.direct_server, guarded.config()) as client:
        yield client


def login(broker: Broker, *, is_java: bool) -> dict[str, str]:
    """Returns the options for the login in the form of Kafka's Java client, or of librdkafka."""
    found = broker.java_config(user="etl", mechanism="SCRAM-SHA-512") if is_java else broker.config(user="etl")
    return {name: value for name, value in found.items() if name != "bootstrap.servers"}


def allow(administrator: Client, *rights: tuple[ResourceType, str, AclOperation]) -> None:
    bindings = [Binding(Pattern(kind, name), Rule("User:etl", "*", operation, Permission.ALLOW)) for kind, name, operation in rights]
    administrator.cluster.run(create_acls(administrator.cluster.core, bindings))


@pytest.mark.timeout(400)  # two runs of a pipeline, each of which waits for a missing permission
def test_a_pipeline_needs_its_login_and_its_rights(spark: Any, guarded: Broker, administrator: Client, tmp_path: Path) -> None:
    def run(connection: dict[str, str]) -> Any:
        pipeline = Pipeline(
            group=GROUP, source="raw", sink="clean", transform=lambda rows: rows.selectExpr("upper(cast(value AS string)) AS value"),
            bootstrap=guarded.direct_server, connection=connection, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now",
        )  # fmt: skip
        (state,) = run_pipelines([pipeline], spark)
        return state

    by_java = login(guarded, is_java=True)
    refused = failure(lambda: reader(spark, guarded, subscribe="raw", **prefixed(by_java)).load().count())
    assert "raw" in refused and SECRET not in refused
    allow(administrator, *RIGHTS)
    state = run(by_java)
    assert (state.state, state.rows_in, state.rows_out) == (STOPPED, 20, 0), "the pipeline may run, and may not read its group's log"
    allow(administrator, TO_KEEP_ITS_STATE)
    guarded.add_record("raw", "one more")
    assert run(login(guarded, is_java=False)).rows_out == 21
    assert verify(administrator, GROUP, ["clean"]).is_proved
    assert sorted(record.value or b"" for record in guarded.records("clean"))[0] == b"ONE MORE"


def prefixed(properties: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in properties.items()}


def test_a_wrong_password_is_one_line_that_names_the_option(spark: Any, guarded: Broker) -> None:
    wrong = prefixed({**login(guarded, is_java=False), "sasl.password": "topsecret"})
    said = failure(lambda: reader(spark, guarded, subscribe="raw", **wrong).load().count())
    assert "kafka.sasl.*" in said and "topsecret" not in said
    none = failure(lambda: reader(spark, guarded, subscribe="raw").load().count())
    assert "may want a login" in none


def test_rows_travel_by_tls_to_a_broker_whose_authority_is_named(spark: Any, tmp_path: Path) -> None:
    with Broker(tls=True, topics=["raw:2", "clean:2"]) as broker:
        for number in range(20):
            broker.add_record("raw", f"{number}", partition=number % 2)
        given = prefixed({name: value for name, value in broker.config().items() if name != "bootstrap.servers"})
        assert given["kafka.security.protocol"] == "SSL"
        rows = stream(spark, broker, subscribe="raw", group=GROUP, startingOffsets="earliest", **given).load()
        writer = stream_writer(rows.select("value"), broker, str(tmp_path / "checkpoint"), topic="clean", group=GROUP, **given)
        run(writer.option("taskOutput", "staged"))
        assert sorted(int(record.value or b"") for record in broker.records("clean")) == list(range(20))
        unknown = {"kafka.security.protocol": "SSL", "kafka.request.timeout.ms": "2000"}
        said = failure(lambda: reader(spark, broker, subscribe="raw", **unknown).load().count())
        assert f"kafka.bootstrap.servers={broker.direct_server}" in said and "certificate" in said and "Traceback" not in said


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    """The endpoint from which clients get their tokens."""
    with TokenEndpoint(lambda: signed(claims_at(int(time.time())))).serving() as made:
        yield made


@pytest.fixture(scope="module")
def wants_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose clients can log in only with tokens of that issuer."""
    directory = tmp_path_factory.mktemp("issuer")
    keys = directory / "keys.json"
    keys.write_bytes(jwks(public_jwk(rsa_key("first"), "first")))
    settings = (
        *SETTINGS, "listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=OAUTHBEARER", "num.partitions=2",
        f"sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}", f"sasl.oauthbearer.expected.issuer={ISSUER}",
        f"sasl.oauthbearer.expected.audience={AUDIENCE}",
    )  # fmt: skip
    process = BrokerProcess(directory, settings).start()
    yield process
    process.stop()


def test_a_pipeline_logs_in_by_bearer_tokens(spark: Any, wants_tokens: BrokerProcess, endpoint: TokenEndpoint, tmp_path: Path) -> None:
    """A pipeline logs in with bearer tokens: the driver and the tasks get them from the endpoint in Kafka's client options."""
    connection = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.jaas.config": f'{MODULE} required clientId="app" clientSecret="s3cret";',
    }  # fmt: skip
    with connect(wants_tokens.address, connection) as client, client.producer() as producer:
        for topic in ("raw", "clean"):
            client.create_topic(topic, partitions=2)
        for number in range(20):
            producer.produce("raw", b"value %d" % number, partition=number % 2)
    pipeline = Pipeline(
        group=GROUP, source="raw", sink="clean", transform=lambda rows: rows.selectExpr("upper(cast(value AS string)) AS value"),
        bootstrap=wants_tokens.address, connection=connection, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now",
    )  # fmt: skip
    (state,) = run_pipelines([pipeline], spark)
    assert (state.state, state.rows_in, state.rows_out) == (STOPPED, 20, 20)
    with connect(wants_tokens.address, connection) as client:
        assert verify(client, GROUP, ["clean"]).is_proved
    assert all("s3cret" not in asked.body for asked in endpoint.asked)
    endpoint.script.extend([(401, b'{"error":"invalid_client"}')] * 50)
    reading = spark.read.format("ottla").option("kafka.bootstrap.servers", wants_tokens.address).options(subscribe="clean")
    said = failure(lambda: reading.options(**prefixed(connection)).load().count())
    assert "invalid_client" in said and "s3cret" not in said
