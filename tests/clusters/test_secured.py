"""Three brokers whose only listener is secured, for clients and for each other: by SASL_SSL as a user of SCRAM, by certificates, or by
tokens."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.adapters.zookeeper_tools import ZooKeeperTools
from ottla.base.errors import ErrorCode
from ottla.client.addresses import Address
from ottla.client.blocking.connection import BlockingConnection
from ottla.client.security import security_of
from ottla.testing.zookeeper_process import ZooKeeperProcess, free_port
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.wire.schema import Request
from tests.clients.broker_process import BrokerProcess, eventually
from tests.clients.certificates import Authority
from tests.clusters.cluster import WAIT_SECONDS, Cluster, Load
from tests.clusters.conftest import running
from tests.clusters.secured import SCRAM, secured_cluster
from tests.fakes.issuer import AUDIENCE, ISSUER, claims_at, jwks, public_jwk, rsa_key, signed
from tests.fakes.token_endpoint import TokenEndpoint


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, need_program: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), need_program)


def test_brokers_without_their_user_name_it_and_go_on_when_it_exists(
    zookeeper: ZooKeeperProcess, make_broker: Callable[..., BrokerProcess]
) -> None:
    """Without their user, brokers name it in their logs; they work when the user exists. The first broker is the controller and cannot log
    in to the second one before.
    """
    connect = f"{zookeeper.connect}/userless"
    brokers = [
        make_broker(
            f"userless-{number}", broker_id=number, zookeeper_connect=connect, sasl_enabled_mechanisms=SCRAM,
            security_inter_broker_protocol="SASL_PLAINTEXT", sasl_mechanism_inter_broker_protocol=SCRAM,
            ottla_inter_broker_login="broker=between brokers", listeners=f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        )
        for number in (1, 2)
    ]  # fmt: skip
    said = f"create it: ottla user add broker --mechanism {SCRAM} --zookeeper {connect} --password-file FILE"
    brokers[0].start()
    brokers[1].log_path.touch()
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(brokers[1].start)
        eventually(lambda: all(said in broker.log_path.read_text() for broker in brokers))
        assert not starting.done()
        with ZooKeeperTools(connect) as tools:
            tools.alter_credentials("broker", {SCRAM: ("between brokers", 4096)}, ())
        starting.result()


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with secured_cluster(tmp_path_factory.mktemp("secured"), zookeeper, authority) as made:
        yield made


def test_a_stock_producer_goes_on_while_a_broker_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    cluster.wait_until_healthy("killed")
    with Load(cluster, "killed") as load:
        victim = cluster.brokers[cluster.leader_of("killed")]
        victim.kill()
        load.flows()
        victim.start()
        cluster.wait_until_healthy("killed")
        load.flows()
    assert load.verdict() == ""


def test_nothing_readable_is_answered_without_tls(cluster: Cluster, authority: Authority) -> None:
    broker = cluster.brokers[1]
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as plain:
        plain.sendall(bytes.fromhex("00000014 0012 0000 00000001 000a") + b"confluent!")
        assert len(plain.recv(4096)) < 100, "an alert at most"
    context = ssl.create_default_context(cafile=str(authority.ca))
    with context.wrap_socket(socket.create_connection(("127.0.0.1", broker.port), timeout=60), server_hostname="127.0.0.1") as tls:
        assert tls.version() == "TLSv1.3"


@pytest.fixture(scope="module")
def mutual(zookeeper: ZooKeeperProcess, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The subject of the brokers' certificate has the permission CLUSTER_ACTION; the client's certificate is signed by the same authority.
    """
    own = str(authority.issue("client", "/CN=client"))
    client = {
        "security.protocol": "SSL", "ssl.ca.location": str(authority.ca), "ssl.certificate.location": own, "ssl.key.location": own,
    }  # fmt: skip
    made = Cluster(
        tmp_path_factory.mktemp("mutual"), zookeeper, protocol="SSL", client=client, security_inter_broker_protocol="SSL",
        ssl_keystore_location=authority.issue("broker"), ssl_truststore_location=authority.ca, ssl_client_auth="required",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer", allow_everyone_if_no_acl_found="true",
        ssl_principal_mapping_rules="RULE:^CN=(.*)$/$1/,DEFAULT", super_users="User:broker",
    )  # fmt: skip
    with running(made):
        yield made


def test_the_controller_is_killed_among_brokers_that_know_each_other_by_certificates(mutual: Cluster) -> None:
    mutual.create_topic("mutual")
    mutual.wait_until_healthy("mutual")
    with Load(mutual, "mutual") as load:
        victim = mutual.controller()
        mutual.brokers[victim].kill()
        load.flows()
        eventually(lambda: mutual.controller() != victim, WAIT_SECONDS)
        mutual.brokers[victim].start()
        mutual.wait_until_healthy("mutual")
        load.flows()
    assert load.verdict() == ""
    assert "not taken for a broker" not in mutual.logs()


KEYSTORE = "listener.name.ssl.ssl.keystore.location"


def altered(cluster: Cluster, asked: int, named: int, name: str, value: str) -> tuple[int, str | None]:
    """Asks a broker to alter the settings of a broker, itself or another one; returns the answer."""
    resource = AlterConfigsResource(resource_type=4, resource_name=str(named), configs=[AlterableConfig(name=name, value=value)])
    (found,) = ask_at(cluster, asked, IncrementalAlterConfigsRequest(resources=[resource])).responses
    return found.error_code, found.error_message


def described(cluster: Cluster, asked: int, named: int) -> tuple[int, str | None, str]:
    """Asks a broker to describe the settings of a broker; returns error, message and key store."""
    resource = DescribeConfigsResource(resource_type=4, resource_name=str(named), configuration_keys=[KEYSTORE])
    (found,) = ask_at(cluster, asked, DescribeConfigsRequest(resources=[resource])).results
    return found.error_code, found.error_message or None, "".join(entry.value for entry in found.configs)


def ask_at(cluster: Cluster, broker: int, body: Request) -> Any:
    security = security_of({name: str(value) for name, value in cluster.client.items()})
    connection = BlockingConnection(Address("127.0.0.1", cluster.brokers[broker].port), security=security)
    try:
        return connection.open().request(body, timeout_s=WAIT_SECONDS)
    finally:
        connection.close()


def test_a_key_store_is_for_the_broker_that_is_named_whichever_is_asked(mutual: Cluster, authority: Authority) -> None:
    """A key store is changed on the named broker, also if a client sends the request to another broker, unlike kafka-configs."""
    invalid = ErrorCode.INVALID_REQUEST
    named, (first, second) = 2, (1, 3)
    good = str(authority.issue("good", "/CN=broker"))
    for store in (good, "/absent.pem"):
        for asked in (first, second):
            expected = f"Unexpected broker id, expected {asked}, but received {named}"
            assert altered(mutual, asked, named, KEYSTORE, store) == (invalid, expected)
            expected = f"Unexpected broker id, expected {asked} or empty string, but received {named}"
            assert described(mutual, asked, named) == (invalid, expected, "")
    code, message = altered(mutual, named, named, KEYSTORE, "/absent.pem")
    assert code == invalid and message is not None and "/absent.pem" in message
    resource = ConfigResource(ConfigResource.Type.BROKER, str(named), incremental_configs=[
        ConfigEntry(KEYSTORE, "/absent.pem", incremental_operation=AlterConfigOpType.SET)
    ])  # fmt: skip
    admin = mutual.admin()
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)
    assert refused.value.args[0].str() == message, "a stock client asks the broker that it names"
    assert described(mutual, named, named) == (0, None, ""), "nothing has come of all this"
    assert altered(mutual, named, named, KEYSTORE, good)[0] == 0
    eventually(lambda: described(mutual, named, named) == (0, None, good), WAIT_SECONDS)


TOKEN_SECONDS = 10
BEARER = "org.apache.kafka.common.security.oauthbearer"


def token_settings(keys: Path, endpoint: TokenEndpoint) -> dict[str, object]:
    """Returns settings for bearer tokens with the names of Apache Kafka's brokers."""
    own = "listener.name.sasl_plaintext.oauthbearer."
    return {
        "security.inter.broker.protocol": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{own}sasl.jaas.config":
            f'{BEARER}.OAuthBearerLoginModule required clientId="brokers" clientSecret="s3cret" scope="kafka" extension_pool="x";',
        f"{own}sasl.login.callback.handler.class": f"{BEARER}.OAuthBearerLoginCallbackHandler",
        f"{own}sasl.server.callback.handler.class": f"{BEARER}.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url, "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.issuer": ISSUER, "sasl.oauthbearer.expected.audience": AUDIENCE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:brokers;User:alice",
    }  # fmt: skip


def test_brokers_log_in_by_tokens_and_again_before_those_end(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    """Brokers log in with bearer tokens, and log in again before the tokens expire: records are replicated over the same connections long
    after the first tokens have expired.
    """
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(public_jwk(rsa_key(), "first")))
    ends: list[float] = []

    def token(subject: str, seconds: int) -> str:
        now_s = int(time.time())
        if subject == "brokers":
            ends.append(now_s + seconds)
        return signed(claims_at(now_s, sub=subject, exp=now_s + seconds))

    client = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (token("alice", 3600), time.time() + 3600),
    }  # fmt: skip
    with TokenEndpoint(lambda: token("brokers", TOKEN_SECONDS)).serving() as endpoint:
        made = Cluster(tmp_path, zookeeper, protocol="SASL_PLAINTEXT", client=client, **token_settings(keys, endpoint))
        with running(made):
            made.create_topic("tokens")
            made.wait_until_healthy("tokens")
            with Load(made, "tokens") as load:
                first = max(ends)
                eventually(lambda: time.time() > first, WAIT_SECONDS)
                load.flows()
                asked = len(ends)
                eventually(lambda: len(ends) >= asked + 3, WAIT_SECONDS)  # every broker has fetched another one
                load.flows()
            assert load.verdict() == ""
            made.wait_until_healthy("tokens")
            for broker in made.brokers.values():
                log = broker.log_path.read_text()
                assert "authentication refused" not in log and "not taken for a broker" not in log, log
    authorization = {one.authorization for one in endpoint.asked}
    assert len(authorization) == 1 and all("scope=kafka" in one.body for one in endpoint.asked)
