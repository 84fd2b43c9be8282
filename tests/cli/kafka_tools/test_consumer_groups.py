"""`kafka-consumer-groups` without a broker; with one, tests/clients compares it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ottla


@pytest.mark.parametrize(
    ("pattern", "verdict"),
    [
        ("orders-.*", "valid"),
        ("a(?=b)", "invalid: invalid or unsupported Perl syntax"),
        (r"(a)\1", r"invalid: invalid escape sequence: `\1`"),
        ("a[", "invalid: missing ]: `[`"),
        ("(?<name>a)", "valid"),
    ],
)
def test_regular_expressions_are_judged_as_groups_take_them(offline: Ottla, pattern: str, verdict: str) -> None:
    message = offline("kafka-consumer-groups", "--bootstrap-server", "h:1", "--validate-regex", pattern).out
    assert message == f"The regular expression `{pattern}` is {verdict}.\n"
