"""Which names a topic may have: Kafka's letters and length, and no two names that are the same in a metric."""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import TOPIC_NAME_CHARACTERS_MAX

LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def why_invalid(name: str) -> str:
    """The fault of a topic name, or an empty string."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        return f"Topic name is invalid: the length of '{name[:32]}...' is longer than the max allowed length {TOPIC_NAME_CHARACTERS_MAX}"
    if not LETTERS.issuperset(name):
        return f"Topic name is invalid: {name!r} contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return ""


def check_topic_name(name: str) -> None:
    """Raises `ApiError` INVALID_TOPIC_EXCEPTION."""
    reason = why_invalid(name)
    if reason:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def metric_name(name: str) -> str:
    """The name under which metrics know a topic: they write a dot as an underscore."""
    return name.replace(".", "_")
