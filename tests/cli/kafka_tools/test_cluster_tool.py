"""`kafka-cluster unregister`: what it prints for brokers that are not registered and for a running broker."""

from __future__ import annotations

from tests.cli.conftest import Ottla


def test_the_request_is_sent_and_its_refusal_printed(ottla: Ottla) -> None:
    unknown = ottla("kafka-cluster", "unregister", "--id", "77")
    text = "org.apache.kafka.common.errors.BrokerIdNotRegisteredException: Broker ID 77 is not currently registered\n"
    assert (unknown.code, unknown.out, unknown.err.count("\n")) == (1, "", 1) and unknown.err.endswith(text)


def test_a_running_broker_is_not_unregistered(ottla: Ottla) -> None:
    listed = ottla("kafka-cluster", "list-endpoints").out
    running = listed.splitlines()[1].split()[0]
    refused = ottla("kafka-cluster", "unregister", "--id", running)
    assert refused.code == 1 and "is running and cannot be unregistered" in refused.err
    assert ottla("kafka-cluster", "list-endpoints").out == listed
