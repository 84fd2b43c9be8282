"""What can go wrong between this client and a broker, apart from refusals, which stay `ApiError`.

Each message is one line that names the host and says what to try; the command line prints it as it is.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, OttlaError


class ClientError(OttlaError):
    """No useful conversation with a broker: away, too slow, or talking nonsense."""


class ConnectError(ClientError):
    """A broker cannot be reached, or the connection to it broke."""


class RequestTimeoutError(ClientError):
    """A broker took the request and did not answer in time."""


class NonsenseError(ClientError):
    """A broker answered with bytes that are not the answer to what was asked."""


def error_code(number: int) -> ErrorCode:
    """The code of a number off the wire; a number that we do not know is an unknown server error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


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
"""Refusals that a fresh look at the metadata, or a little patience, may turn into success."""
