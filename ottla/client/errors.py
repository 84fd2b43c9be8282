"""Errors of the client: one base class, one subclass for each thing that a caller can do about an error.

`ClientError` is the base of all. `TransportError` means that there was no useful conversation with a broker: away (`ConnectError`), too
slow (`RequestTimeoutError`), or answering with other bytes than Kafka's (`MalformedResponseError`). `KafkaError` is a broker's refusal with
Kafka's error code; `refused` makes the subclass that belongs to a code. `OutcomeUnknownError` means that a request was sent and may or may
not have taken effect. `UsageError` means that the call itself is wrong.

Each message is one line that names the host, topic, group or id and says what to try; the command line prints it as it is.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, OttlaError


class ClientError(OttlaError):
    """The base of every error that the client raises."""


class TransportError(ClientError):
    """No useful conversation with a broker: away, too slow, or not speaking Kafka's protocol."""


class ConnectError(TransportError):
    """A broker cannot be reached, or the connection to it broke."""


class NotSentError(ConnectError):
    """The connection broke before the whole request was written, so the broker cannot have executed it."""


class RequestTimeoutError(TransportError):
    """A broker took the request and did not answer in time."""


class MalformedResponseError(TransportError):
    """A broker answered with bytes that are not the answer to the request."""


class OutcomeUnknownError(ClientError):
    """The request was sent, its answer was lost: it may or may not have taken effect. Repeat it, or read what is there."""


class UsageError(ClientError, ValueError):
    """A call that cannot be right: an argument of the wrong type, a second thread at the same time, a forked child. Nothing was done."""


class KafkaError(ClientError, ApiError):
    """A broker refused a request. `code` is Kafka's error code, `name` its name, `message` says what was refused and why."""

    @property
    def name(self) -> str:
        """Kafka's name of the code, such as `UNKNOWN_TOPIC_OR_PARTITION`."""
        return self.code.name

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed a little later."""
        return self.code in RETRIABLE


class AuthenticationError(KafkaError):
    """The broker did not accept the name, the password or the SASL mechanism."""


class AuthorizationError(KafkaError):
    """The principal has no permission for this topic, group, transactional id or cluster."""


class FencedError(KafkaError):
    """Another producer or member took over the id; this one must stop. Never initialize again in a loop: two would fence each other."""


class UnknownTopicError(KafkaError):
    """No such topic or partition."""


class OffsetOutOfRangeError(KafkaError):
    """The offset lies before the start of the log or behind its end."""


class UnsupportedVersionError(KafkaError):
    """The broker does not serve this API, or no version of it that this client knows."""


def refused(code: ErrorCode, message: str = "") -> KafkaError:
    """The error for a code, of the subclass that belongs to it."""
    return _CLASSES.get(code, KafkaError)(code, message)


RETRIABLE: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Refusals that fresh metadata, or a short wait, may turn into success."""

COORDINATOR_MOVED: frozenset[ErrorCode] = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Refusals after which the coordinator has to be found again."""

_CLASSES: dict[ErrorCode, type[KafkaError]] = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.PRODUCER_FENCED: FencedError,
    ErrorCode.INVALID_PRODUCER_EPOCH: FencedError,
    ErrorCode.FENCED_INSTANCE_ID: FencedError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
}
