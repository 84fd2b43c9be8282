"""Which log directories `cordoned.log.dirs` names, and what a broker refuses to start with."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, ConfigError
from ottla.base.settings.cordons import cordoned, why_not_cordonable

DIRECTORIES = ("/a", "/b")


@pytest.mark.parametrize(
    ("entries", "expected"), [((), set()), (("/a",), {"/a"}), (("/b", "/a"), {"/a", "/b"}), (("*",), {"/a", "/b"})]
)  # fmt: skip
def test_valid_entries(entries: tuple[str, ...], expected: set[str]) -> None:
    assert why_not_cordonable(entries, DIRECTORIES) == ""
    assert cordoned(entries, DIRECTORIES) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/a,/c,/d", "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /c,/d"),
        ("*,/a", "When cordoned.log.dirs is set to *, it must not contain other values"),
    ],
)
def test_a_broker_does_not_start_with_others(text: str, reason: str) -> None:
    """The error texts are those of Apache Kafka 4.3."""
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig({"log.dirs": "/a,/b", "cordoned.log.dirs": text})
    assert str(refusal.value) == f"{reason} (given)"
    assert BrokerConfig({"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"}).cordoned_log_dirs == ("/b",)
