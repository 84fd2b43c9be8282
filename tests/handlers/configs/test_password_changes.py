"""Settings that are passwords, altered in a cluster in memory: what is stored, by which broker, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.cluster_metadata import ALL_BROKERS, CONFIG_BROKER
from ottla.base.errors import ErrorCode
from ottla.controller.api import ConfigEntry, ConfigOperation, ConfigRequest, ConfigResult
from ottla.security.acl import AclOperation
from tests.handlers.configs.test_named_brokers import CONTROLLER, answered, request
from tests.server.execution.test_forwarding import OTHER, Nodes, RecordingAuthorizer

NAME, VALUE = "listener.name.a.ssl.keystore.password", "at run time"
SECRET = "password.encoder.secret=s"


def stored(nodes: Nodes, broker: int) -> dict[str, str]:
    return dict(nodes.nodes[CONTROLLER].controller.state.configs(CONFIG_BROKER, str(broker)))


@pytest.mark.parametrize("is_replacing", [True, False])
@pytest.mark.parametrize("broker", [CONTROLLER, OTHER])
def test_a_password_is_stored_encrypted_and_other_settings_as_they_are(broker: int, is_replacing: bool) -> None:
    nodes = Nodes(2, SECRET)
    body = request((CONFIG_BROKER, str(broker), {NAME: VALUE, "log.cleaner.threads": "2"}), is_replacing=is_replacing)
    assert answered(nodes, broker, body) == {str(broker): (0, None)}
    found = stored(nodes, broker)
    assert found["log.cleaner.threads"] == "2" and found[NAME].startswith("encryptedPassword:") and VALUE not in found[NAME]
    nodes.until(lambda: nodes.nodes[broker].metadata.configs(CONFIG_BROKER, str(broker)))
    assert nodes.nodes[broker].config.passwords.readable(found)[NAME] == VALUE


@pytest.mark.parametrize("broker", [CONTROLLER, OTHER])
def test_a_broker_of_a_cluster_without_a_secret_refuses_passwords_and_alters_the_rest(broker: int) -> None:
    nodes = Nodes(2)
    body = request((CONFIG_BROKER, str(broker), {NAME: VALUE}), (CONFIG_BROKER, ALL_BROKERS, {"log.retention.ms": "5"}))
    found = answered(nodes, broker, body)
    code, message = found[str(broker)]
    assert code == ErrorCode.INVALID_REQUEST and message is not None and VALUE not in message
    assert "Password encoder secret not configured: set password.encoder.secret" in message
    assert found[""] == (0, None) and stored(nodes, broker) == {}


def test_a_broker_without_a_secret_removes_a_password() -> None:
    nodes = Nodes(2)
    body = request((CONFIG_BROKER, str(OTHER), {NAME: ""}))
    body.resources[0].configs[0].config_operation, body.resources[0].configs[0].value = ConfigOperation.DELETE, None
    assert answered(nodes, OTHER, body) == {str(OTHER): (0, None)}


def test_what_a_client_has_encrypted_is_encrypted_again() -> None:
    """So a client cannot choose how many iterations a broker needs to derive a key."""
    nodes = Nodes(2, SECRET)
    answered(nodes, OTHER, request((CONFIG_BROKER, str(OTHER), {NAME: VALUE})))
    first = stored(nodes, OTHER)[NAME]
    answered(nodes, OTHER, request((CONFIG_BROKER, str(OTHER), {NAME: first})))
    assert nodes.nodes[OTHER].config.passwords.readable(stored(nodes, OTHER))[NAME] == first


def test_a_password_that_is_too_long_when_it_is_encrypted_is_refused() -> None:
    nodes = Nodes(2, SECRET)
    code, message = answered(nodes, OTHER, request((CONFIG_BROKER, str(OTHER), {NAME: "x" * 30_000})))[str(OTHER)]
    assert code == ErrorCode.INVALID_REQUEST and message is not None and "32767 bytes when it is encrypted" in message


@pytest.mark.parametrize("name", ["ssl.keystore.password", "my.plugin.password"])
def test_no_password_is_for_all_brokers(name: str) -> None:
    nodes = Nodes(2, SECRET)
    assert answered(nodes, OTHER, request((CONFIG_BROKER, ALL_BROKERS, {name: VALUE})))[""][0] == ErrorCode.INVALID_REQUEST
    assert stored(nodes, 0) == {} and nodes.nodes[CONTROLLER].metadata.configs(CONFIG_BROKER, ALL_BROKERS) == {}


def test_no_key_is_derived_for_a_client_without_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(2, SECRET)
    authorizer = RecordingAuthorizer()
    authorizer.denied = AclOperation.ALTER_CONFIGS
    nodes.nodes[OTHER].broker.authorizer = authorizer
    passwords = nodes.nodes[OTHER].config.passwords
    monkeypatch.setattr(type(passwords), "encrypt", lambda *_: pytest.fail("a key is derived"))
    body = request((CONFIG_BROKER, str(OTHER), {NAME: VALUE}))
    assert answered(nodes, OTHER, body)[str(OTHER)][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert stored(nodes, OTHER) == {}


def test_a_single_broker_without_a_secret_stores_passwords_in_clear_and_with_one_encrypted() -> None:
    for settings, is_in_clear in (((), True), ((SECRET,), False)):
        nodes = Nodes(1, *settings, "zookeeper.connect=")
        assert answered(nodes, CONTROLLER, request((CONFIG_BROKER, str(CONTROLLER), {NAME: VALUE})))[str(CONTROLLER)] == (0, None)
        assert (stored(nodes, CONTROLLER)[NAME] == VALUE) == is_in_clear


def alter_as_before(nodes: Nodes, broker: int, until: Callable[[], Any]) -> None:
    """Stores a password in clear, as a broker of an earlier version does."""
    answers: list[ConfigResult] = []
    entry = ConfigEntry(name=NAME, operation=ConfigOperation.SET, value=VALUE)
    nodes.nodes[broker].route.alter_configs([ConfigRequest(resource_type=CONFIG_BROKER, name=str(broker), entries=[entry])], False,
                                            answers.extend)  # fmt: skip
    nodes.until(lambda: answers)
    assert [one.error for one in answers] == [ErrorCode.NONE]
    nodes.until(until)


@pytest.mark.parametrize("broker", [CONTROLLER, OTHER])
def test_a_broker_encrypts_what_it_finds_in_clear(broker: int) -> None:
    nodes = Nodes(2, SECRET)
    alter_as_before(nodes, broker, lambda: stored(nodes, broker)[NAME].startswith("encryptedPassword:"))
    assert nodes.nodes[broker].config.passwords.readable(stored(nodes, broker)) == {NAME: VALUE}


def test_a_broker_without_a_secret_says_once_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes(2)
    for _ in range(2):
        alter_as_before(nodes, OTHER, lambda: "stored in clear" in caplog.text)
    assert caplog.text.count(f"stored in clear: {NAME}; set password.encoder.secret and start this broker again") == 1
    assert stored(nodes, OTHER) == {NAME: VALUE}
