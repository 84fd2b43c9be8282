"""Errors of the client: one base class, and one subclass for each kind of reaction by the caller.

`ClientError` is the base of all. `TransportError` means that a broker is unreachable (`ConnectError`), too slow (`RequestTimeoutError`), or
does not speak Kafka's protocol (`MalformedResponseError`). `KafkaError` is a refusal with Kafka's error code; `refused` makes an instance
of the subclass for a code. `OutcomeUnknownError` means that a request may have taken effect or not. `UsageError` means that the call itself
is wrong.

Each message is one line that names the host, topic, group or id, and says what to try if that helps. The command line prints the message
as it is.
"""

from __future__ import annotations

from ottla.base.errors import ApiError, ErrorCode, OttlaError


class ClientError(OttlaError):
    """The base of every error that the client raises."""


class TransportError(ClientError):
    """A broker is unreachable, too slow, or does not speak Kafka's protocol."""


class ConnectError(TransportError):
    """A broker cannot be reached, the connection to it broke, or no valid bearer token could be fetched for the login."""


class NotSentError(ConnectError):
    """The connection was closed before the whole request was written, so the broker cannot have executed it."""


class RequestTimeoutError(TransportError):
    """A broker did not accept or answer a request in time, or the time for the whole call was over."""


class MalformedResponseError(TransportError):
    """A broker answered with bytes that are not the answer to the request."""


class OutcomeUnknownError(ClientError):
    """A request was sent, and no answer showed whether it took effect: an answer was lost. The caller has to check the outcome, or repeats
    the request.
    """


class UsageError(ClientError, ValueError):
    """A wrong call: an argument of the wrong type, a second thread at the same time, a forked child. The call had no effect."""


class KafkaError(ClientError, ApiError):
    """A broker, or this client in its place, refused a request. `code` is Kafka's error code, `name` its name; `message` describes the
    request and the reason.
    """

    @property
    def name(self) -> str:
        """Kafka's name of the code, such as `UNKNOWN_TOPIC_OR_PARTITION`."""
        return self.code.name

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE


class AuthenticationError(KafkaError):
    """The broker did not accept the SASL mechanism, the password or the token, or the token endpoint refused to issue a token."""


class AuthorizationError(KafkaError):
    """The principal has no permission for this topic, group, transactional id, delegation token or cluster."""


class FencedError(KafkaError):
    """Another producer or member has taken over the id, or the transaction timed out. The fenced producer or member must stop: if both
    initialized the id again and again, they would fence each other.
    """


class UnknownTopicError(KafkaError):
    """No such topic or partition."""


class OffsetOutOfRangeError(KafkaError):
    """The offset is before the start of the log or after its end."""


class UnsupportedVersionError(KafkaError):
    """The broker does not offer this API, or no version that this client knows, or the version does not have a field of the request."""


def refused(code: ErrorCode, message: str = "") -> KafkaError:
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
"""Errors after which the same request may succeed with new metadata, or after a short wait."""

COORDINATOR_MOVED: frozenset[ErrorCode] = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors after which the coordinator has to be looked up again."""

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
