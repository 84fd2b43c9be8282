"""The lines of the audit log: their fields, their protection against forged names, and how often they are written."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.security.acl import AclOperation, ResourceType
from ottla.security.acl_authorizer import AclAuthorizer
from ottla.security.audit import REPEAT_MS, REPEATS_BYTES_MAX, AuditLog
from tests.base.test_bounded_cache import memory_of
from tests.fakes.clock import ManualClock
from tests.security.test_acl_authorizer import ORDERS, of, rule

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ottla.audit"]


def test_a_refusal_is_one_line_that_names_everything(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(clock)
    audit.refused(of("User:a"), READ, TOPIC, "orders")
    expected = 'denied: principal="User:a" host="10.0.0.1" operation=READ resource=TOPIC "orders" listener="CLIENTS"'
    assert lines(caplog) == [expected] and caplog.records[0].levelno == logging.WARNING
    assert caplog.records[0].listener == "CLIENTS" and audit.refused_count == 1  # type: ignore[attr-defined]


def test_names_cannot_look_like_the_rest_of_a_line(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(clock)
    audit.refused(of('User:a" host="1.1.1.1'), READ, TOPIC, "x\ny\x1b[2J\u202e\u00e9" + "z" * 10_000)
    (line,) = lines(caplog)
    assert 'principal="User:a\\" host=\\"1.1.1.1" host="10.0.0.1"' in line
    assert '"x\\ny\\u001b[2J\\u202e\\u00e9zz' in line and line.isascii() and len(line) < 600


def test_the_same_refusal_is_written_once_in_a_while_with_the_number_left_out(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLog(clock)
    for _ in range(1000):
        audit.refused(of("User:a"), READ, TOPIC, "orders")
    audit.refused(of("User:b"), READ, TOPIC, "orders")
    assert len(lines(caplog)) == 2 and audit.refused_count == 1001
    clock.advance(REPEAT_MS)
    audit.refused(of("User:a"), READ, TOPIC, "orders")
    audit.refused(of("User:b"), READ, TOPIC, "orders")
    assert lines(caplog)[2].endswith("(999 more since the last such line)") and "more" not in lines(caplog)[3]


def test_memory_of_remembered_lines_is_bounded(clock: ManualClock) -> None:
    """Clients that are not logged in choose the names of refused logins, so the remembered lines must be bounded."""
    audit = AuditLog(clock)
    for number in range(3_000):
        audit.refused_authentication("10.0.0.1", "CLIENTS", "PLAIN", f"{number}".ljust(32_000, "\U0001f600"), "wrong credentials")
    assert memory_of(audit._written) <= REPEATS_BYTES_MAX


def test_a_refused_authentication_names_user_host_and_mechanism(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(clock)
    audit.refused_authentication("10.0.0.1", "CLIENTS", "PLAIN", "al\nice", "wrong credentials")
    audit.refused_authentication("10.0.0.1", "CLIENTS", "PLAIN", "al\nice", "wrong credentials")
    expected = 'authentication refused: user="al\\nice" host="10.0.0.1" mechanism="PLAIN" reason="wrong credentials" listener="CLIENTS"'
    assert lines(caplog) == [expected]


def test_granted_requests_are_written_where_asked_for(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for logs_granted in (False, True):
        made = AclAuthorizer(AuditLog(clock, logs_granted=logs_granted), super_users=["User:root"])
        made.replace({ORDERS: [rule()]})
        for principal in ("User:a", "User:root"):
            assert made.is_allowed(of(principal), READ, TOPIC, "orders")
        assert made.allows_clients_everything(of("User:root")) is not logs_granted  # so that each question is asked
    written: list[Any] = lines(caplog)
    assert [line.split(" host")[0] for line in written] == ['allowed: principal="User:a"', 'allowed: principal="User:root"']


def test_grants_are_written_also_where_a_refusal_would_not_be(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka, the granted permissions are written also where a right is one of two alternatives, or where a list is filtered."""
    caplog.set_level(logging.INFO)
    made = AclAuthorizer(AuditLog(clock, logs_granted=True))
    made.replace({ORDERS: [rule()]})
    assert made.permits(of("User:a"), READ, TOPIC, "orders") and not made.permits(of("User:a"), READ, TOPIC, "others")
    assert made.is_allowed_on_any(of("User:a"), READ, TOPIC)
    assert [line.partition("resource=")[2].split(" listener")[0] for line in lines(caplog)] == ['TOPIC "orders"', 'TOPIC "*"']


def test_lists_of_authorized_operations_write_nothing(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made = AclAuthorizer(AuditLog(clock, logs_granted=True))
    made.replace({ORDERS: [rule()]})
    assert made.has_permission(of("User:a"), READ, TOPIC, "orders") and not made.has_permission(of("User:a"), READ, TOPIC, "others")
    assert not lines(caplog)


def test_what_is_only_filtered_is_not_written(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    made = AclAuthorizer(AuditLog(clock))
    assert not made.permits(of("User:a"), READ, TOPIC, "orders")
    assert not lines(caplog)
    assert not made.is_allowed(of("User:a"), READ, TOPIC, "orders") and not made.is_allowed_on_any(of("User:a"), READ, TOPIC)
    assert len(lines(caplog)) == 2


def test_who_is_not_taken_for_a_broker_is_named_once_in_a_while(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A wrongly configured broker tries to connect several times a second, so its lines are limited."""
    audit = AuditLog(clock)
    for _ in range(30):
        audit.refused_broker(of("User:a"), "it has no right")
    clock.advance(REPEAT_MS)
    audit.refused_broker(of("User:a"), "it has no right")
    expected = 'not taken for a broker: principal="User:a" host="10.0.0.1" reason="it has no right" listener="CLIENTS"'
    assert lines(caplog) == [expected, f"{expected} (29 more since the last such line)"]
