"""Makes a valid sample request for every supported API in every version, whose answer has contents such as topics and members. `REQUESTS`
has a function for each API key. The functions are in `sample_*_requests.py`, one file for each subject; they name the topics and groups of
a `World` (`sample_world.py`). `MAY_ANSWER` has the errors that an API may answer.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from tests.clients.sample_access_requests import ACCESS_REQUESTS
from tests.clients.sample_broker_requests import BROKER_REQUESTS
from tests.clients.sample_cluster_requests import CLUSTER_REQUESTS
from tests.clients.sample_group_requests import GROUP_REQUESTS
from tests.clients.sample_share_requests import SHARE_REQUESTS
from tests.clients.sample_streams_requests import STREAMS_REQUESTS
from tests.clients.sample_topic_requests import TOPIC_REQUESTS
from tests.clients.sample_transaction_requests import TRANSACTION_REQUESTS
from tests.clients.sample_world import Maker

ONLY_FROM_BROKERS = {4, 5, 6, 7, 27, 56, 58, 83, 84, 85, 86, 87}

MAY_ANSWER: dict[int, set[ErrorCode]] = {
    **{key: {ErrorCode.CLUSTER_AUTHORIZATION_FAILED} for key in ONLY_FROM_BROKERS},
    11: {ErrorCode.MEMBER_ID_REQUIRED},
    17: {ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE},
    24: {ErrorCode.CLUSTER_AUTHORIZATION_FAILED},  # from version 4 on, which only brokers send
    29: {ErrorCode.SECURITY_DISABLED},
    30: {ErrorCode.SECURITY_DISABLED},
    31: {ErrorCode.SECURITY_DISABLED},
    34: {ErrorCode.LOG_DIR_NOT_FOUND},
    36: {ErrorCode.ILLEGAL_SASL_STATE},
    **{key: {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED} for key in (38, 39, 40, 41)},
    43: {ErrorCode.ELECTION_NOT_NEEDED},
    57: {ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FEATURE_UPDATE_FAILED},
    64: {ErrorCode.BROKER_ID_NOT_REGISTERED},
    80: {ErrorCode.UNSUPPORTED_VERSION},
    81: {ErrorCode.UNSUPPORTED_VERSION},
}
"""What a right answer may say besides NONE, by API key."""

REQUESTS: dict[int, Maker] = {
    **TOPIC_REQUESTS,
    **GROUP_REQUESTS,
    **SHARE_REQUESTS,
    **STREAMS_REQUESTS,
    **TRANSACTION_REQUESTS,
    **BROKER_REQUESTS,
    **ACCESS_REQUESTS,
    **CLUSTER_REQUESTS,
}
