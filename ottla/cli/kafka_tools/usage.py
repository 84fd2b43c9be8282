"""Usage checks and error texts of Kafka's tools: exactly one action, options that may be given once, and Java's names of errors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.base.errors import ApiError, ErrorCode
from ottla.cli.command import Args, UsageError

_JAVA: dict[ErrorCode, tuple[str, str]] = {
    ErrorCode.BROKER_ID_NOT_REGISTERED: ("BrokerIdNotRegisteredException", "The given broker ID was not registered."),
    ErrorCode.GROUP_ID_NOT_FOUND: ("GroupIdNotFoundException", "The group id does not exist."),
    ErrorCode.NON_EMPTY_GROUP: ("GroupNotEmptyException", "The group is not empty."),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "OffsetOutOfRangeException",
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    ErrorCode.SECURITY_DISABLED: ("SecurityDisabledException", "Security features are disabled."),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ("ClusterAuthorizationException", "Cluster authorization failed."),
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: ("DelegationTokenDisabledException", "Delegation Token feature is not enabled."),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: ("DelegationTokenNotFoundException", "Delegation Token is not found on server."),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: ("DelegationTokenOwnerMismatchException", "Specified Principal is not valid Owner/Renewer."),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "UnsupportedByAuthenticationException",
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token authenticated channels.",
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: ("DelegationTokenAuthorizationException", "Delegation Token authorization failed."),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: ("DelegationTokenExpiredException", "Delegation Token is expired."),
    ErrorCode.INVALID_PRINCIPAL_TYPE: ("InvalidPrincipalTypeException", "Supplied principalType is not supported."),
    ErrorCode.INVALID_REQUEST: ("InvalidRequestException", "The request is malformed or otherwise invalid."),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ("UnknownTopicOrPartitionException", "This server does not host this topic-partition."),
}
"""Java exceptions by error code: class name and message. The message of INVALID_REQUEST is not Java's."""


def java_error(error: ApiError, message: str = "") -> str:
    """Returns an error as Kafka's tools print it, with `message` if given. An error that is not in `_JAVA` has the name of its code."""
    name, sentence = _JAVA.get(error.code, (error.code.name, error.message))
    prefix = "org.apache.kafka.common.errors." if error.code in _JAVA else ""
    return f"{prefix}{name}: {message or sentence}"


def plain_message(error: ApiError) -> str:
    """Returns the broker's message without the prefix that Ottla's client adds, such as `topic 'orders': `."""
    head, colon, rest = error.message.partition("': ")
    return rest if colon and head.startswith(("topic '", "settings of '", "group '")) else error.message


class Once(argparse.Action):
    """An option that Kafka's tools accept only once. Raises UsageError at the second."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Args, values: Any, option_string: str | None = None) -> None:
        if getattr(namespace, self.dest, None) is not None:
            name = (option_string or self.dest).lstrip("-")
            raise UsageError(f"found multiple arguments for option {name}, but it takes only one")
        setattr(namespace, self.dest, values)


def refuse_options(args: Args, action: str, names: Sequence[str]) -> None:
    """Raises UsageError if an option is given that the action does not take."""
    for name in names:
        if (value := getattr(args, name)) is not None and value is not False:
            raise UsageError(f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"')


def action_of(args: Args, actions: Sequence[str]) -> str:
    """Returns the chosen action by its attribute in `args`, such as `describe` for `--describe`. Raises UsageError unless exactly one is
    chosen."""
    chosen = [action for action in actions if getattr(args, action)]
    if len(chosen) != 1:
        words = ["--" + action.replace("_", "-") for action in actions]
        raise UsageError(f"Command must include exactly one action: {', '.join(words[:-1])} or {words[-1]}")
    return chosen[0]
