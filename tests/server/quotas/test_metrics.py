"""Names of users and clients as labels."""

from __future__ import annotations

import pytest

from ottla.security.quotas.limits import PRODUCE, QuotaShare
from ottla.server.monitoring.metric_families import FAMILIES
from ottla.server.quotas.metrics import RATES, THROTTLE_TIMES, labels_of, printable


@pytest.mark.parametrize(
    ("name", "shown"), [("alice", "alice"), ("CN=a, O=b c", "CN=a, O=b c"), ("é", "é"), ("a\rb c~/%", "a%0Db%20c%7E%2F%25")]
)
def test_names_that_do_not_print_are_written_as_kafka_does(name: str, shown: str) -> None:
    assert printable(name) == shown


def test_a_share_is_labelled_with_user_and_client() -> None:
    assert labels_of(QuotaShare(PRODUCE, "a", "")) == '{user="a",client_id=""}'


def test_all_kinds_have_their_families() -> None:
    assert set(THROTTLE_TIMES) == set(RATES)
    assert {*THROTTLE_TIMES.values(), *RATES.values()} <= set(FAMILIES)
