"""`ottla mirror`: what it prints, its refusals and exit codes, and the rights that it needs. `tests/cloning` has the mirroring itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.client
from ottla.base.uuids import uuid_to_text
from ottla.testing.broker import Broker
from tests.cli.conftest import Ottla


@pytest.fixture(scope="module")
def other() -> Iterator[Broker]:
    """The target."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def orders(broker: Broker, topic: str) -> str:
    for number in range(5):
        broker.add_record(topic, str(number))
    return topic


def test_status_and_graduation(offline: Ottla, broker: Broker, other: Broker, orders: str) -> None:
    words = ("mirror", broker.direct_server, other.direct_server, "--topics", orders)
    missing = offline(*words, "--status")
    assert missing.code == 1 and f"{orders}: the target has no topic '{orders}'" in missing.err, missing
    done = offline(*words, "--graduate")
    assert (done.code, done.out) == (0, f"Graduated {orders}: it is writable at {other.direct_server}.\n"), done
    found = offline(*words, "--status", "-o", "json").json()
    row = {"topic": orders, "partition": 0, "state": "graduated", "source_end": 5, "end": 5, "lag": 0, "rate": 0, "error": None}
    assert found == {"partitions": [row], "lag": 0}
    assert [record.value for record in other.records(orders)] == [b"0", b"1", b"2", b"3", b"4"]


def test_status_of_a_mirror_that_does_not_run(offline: Ottla, broker: Broker, other: Broker, orders: str) -> None:
    """And on the way back, where the addresses are exchanged."""
    words = ("mirror", broker.direct_server, other.direct_server, "--topics", orders)
    back = ("mirror", other.direct_server, broker.direct_server, "--topics", orders)
    assert offline(*words, "--graduate").code == 0
    assert "is no mirror" in offline(*back, "--status").err
    other.add_record(orders, "new")
    with ottla.client.connect(other.direct_server) as client:
        source = f"{client.cluster_id}:{uuid_to_text(client.describe_topic(orders).topic_id)}"
    altered = offline("topic", "alter", orders, "-b", broker.direct_server, "-c", f"ottla.mirror.source={source}")
    assert altered.code == 0, altered
    found = offline(*back, "--status")
    assert found.code == 0 and f"{orders}: the target lacks records and got none for a second; does the mirror run?" in found.err, found
    assert offline(*back, "--graduate").code == 0
    found = offline(*back, "--status")
    assert (found.code, found.err) == (0, "") and "graduated" in found.out, found


def test_a_topic_that_the_target_has(offline: Ottla, broker: Broker, other: Broker, orders: str) -> None:
    other.create_topic(orders)
    done = offline("mirror", broker.direct_server, other.direct_server, "--topics", orders)
    assert (done.code, done.err.count("\n")) == (1, 1), done
    assert f"the target has a topic '{orders}' already, which is no mirror; delete it, or continue it by --continue-existing" in done.err


def test_refusals(offline: Ottla, broker: Broker, other: Broker, orders: str) -> None:
    """Each is one line."""
    source, target = broker.direct_server, other.direct_server
    for words, code, message in (
        ((source, source, "--topics", orders), 2, "are the same cluster"),
        ((source, target, "--topics", ""), 2, "--topics names no topic"),
        ((source, target, "--topics", orders + "x"), 1, "did you mean"),
        ((source, target, "--topics", "__consumer_offsets"), 1, "is an internal topic"),
        ((source, target, "--topics", orders, "--metrics-listen", "9404"), 2, "--metrics-listen '9404' is not HOST:PORT"),
        ((source, target, "--topics", orders, "--metrics-listen", source), 2, f"cannot listen on {source}: address already in use"),
        ((source, "127.0.0.1:1", "--topics", orders), 3, "cannot reach 127.0.0.1:1"),
        ((source, target, "--topics", orders, "--status", "--graduate"), 2, "not allowed with argument"),
    ):
        done = offline("mirror", *words)
        assert (done.code, done.err.count("\n")) == (code, 1) and message in done.err, done


def test_rights(offline: Ottla, broker: Broker, orders: str, tmp_path: Path) -> None:
    """Without a right at the target the mirror is refused with one line, and the target has no record."""
    users = {"admin": "admin-secret", "mover": "mover-secret"}
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    with Broker(settings=settings, users=users) as secured:
        mover = secured.write_java_config(tmp_path / "mover.properties", user="mover")
        admin = secured.write_java_config(tmp_path / "admin.properties", user="admin")
        words = ("mirror", broker.direct_server, secured.direct_server, "--topics", orders, "--target-config", mover, "--graduate")

        def allow(*rights: str) -> None:
            done = offline(
                "acl", "add", "--allow-principal", "User:mover", *rights, "-b", secured.direct_server, "--command-config", admin
            )  # fmt: skip
            assert done.code == 0, done

        refused = offline(*words)
        assert (refused.code, refused.err.count("\n")) == (1, 1) and "AUTHORIZATION_FAILED" in refused.err, refused
        operations = [part for one in ("create", "describe", "alter", "describe-configs", "alter-configs") for part in ("--operation", one)]
        allow(*operations, "--topic", orders)
        refused = offline(*words)
        assert (refused.code, refused.err.count("\n")) == (1, 1) and "CLUSTER_AUTHORIZATION_FAILED" in refused.err, refused
        allow("--operation", "cluster-action", "--cluster")
        done = offline(*words)
        assert done.code == 0, done


def test_rights_at_the_source(offline: Ottla, other: Broker, topic: str, tmp_path: Path) -> None:
    """READ is needed. Without DESCRIBE_CONFIGS and DESCRIBE for groups, a note says what does not follow."""
    users = {"admin": "admin-secret", "reader": "reader-secret"}
    settings = {"authorizer.class.name": "acl", "super.users": "User:admin"}
    with Broker(settings=settings, users=users) as secured:
        secured.create_topic(topic, **{"retention.ms": "-1"})
        secured.add_record(topic, "0")
        reader = secured.write_java_config(tmp_path / "reader.properties", user="reader")
        admin = secured.write_java_config(tmp_path / "admin.properties", user="admin")
        words = ("mirror", secured.direct_server, other.direct_server, "--topics", topic, "--source-config", reader, "--graduate")
        refused = offline(*words)
        assert (refused.code, refused.err.count("\n")) == (1, 1) and "AUTHORIZATION_FAILED" in refused.err, refused
        allowed = offline(
            "acl", "add", "--allow-principal", "User:reader", "--operation", "read", "--topic", topic, "-b", secured.direct_server,
            "--command-config", admin,
        )  # fmt: skip
        assert allowed.code == 0, allowed
        done = offline(*words)
        assert done.code == 0 and f"settings of '{topic}' are the defaults: the source allows no DESCRIBE_CONFIGS" in done.err, done
    assert [record.value for record in other.records(topic)] == [b"0"]
