"""`kafka-delegation-tokens`: what Kafka's tool refuses; tests/clients compares the rest with that program itself."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ottla


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one action: --create, --renew, --expire or --describe"),
        (("--create", "--describe"), "exactly one action"),
        (("--create",), 'Missing required argument "[max-life-time-period]"'),
        (("--renew", "--renew-time-period", "1"), 'Missing required argument "[hmac]"'),
        (("--expire", "--hmac", "YQ=="), 'Missing required argument "[expiry-time-period]"'),
        (("--describe", "--hmac", "YQ=="), 'Option "[describe]" can\'t be used with option "[hmac]"'),
        (("--create", "--max-life-time-period", "1", "--renew-time-period", "1"), 'can\'t be used with option "[renew-time-period]"'),
    ],
)
def test_wrong_usage_is_one_line(offline: Ottla, words: tuple[str, ...], message: str) -> None:
    refused = offline("kafka-delegation-tokens", *words)
    assert refused.code == 2 and message in refused.err and refused.err.count("\n") == 1 and not refused.out
