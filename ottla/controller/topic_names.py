"""Checks topic names by Kafka's rules for characters and length, and maps them to names in metrics."""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.identifiers import TOPIC_NAME_CHARACTERS_MAX

LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def why_invalid(name: str) -> str:
    """Returns the reason why a topic name is invalid, or an empty string."""
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
    """Raises `ApiError` INVALID_TOPIC_EXCEPTION if the name is invalid."""
    reason = why_invalid(name)
    if reason:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def metric_name(name: str) -> str:
    """Returns the name of a topic in metrics, where a dot becomes an underscore. Two topics must not have the same one."""
    return name.replace(".", "_")
