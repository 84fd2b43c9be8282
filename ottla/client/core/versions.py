"""Chooses the version of each API on a connection: the newest version that the broker, this client and `CEILINGS` allow."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.client.errors import refused
from ottla.wire.apis import API_NAMES, API_VERSION_RANGES
from ottla.wire.framing import API_VERSIONS
from ottla.wire.messages.api_versions import ApiVersionsResponse

HANDSHAKE_VERSION = 3
"""The version of the first ApiVersions request. Brokers since 2.4 know it; a newer version would cost most brokers a second round trip."""

CEILINGS = {0: 11, 1: 12, 8: 9, 9: 9, 24: 3, 26: 4, 28: 4}
"""Newest default versions of some APIs. Later versions use topic ids, the second transaction protocol or batched transactions; callers that
want these name the version.
"""

TRANSACTION_VERSION = "transaction.version"


class Versions:
    """The versions that one broker offers in its answer to ApiVersions."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.answer = ApiVersionsResponse()
        self._offered: dict[int, tuple[int, int]] = {API_VERSIONS: (0, HANDSHAKE_VERSION)}

    def learn(self, answer: ApiVersionsResponse) -> None:
        self.answer = answer
        self._offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def version_of(self, key: int) -> int:
        """Returns the version for requests of this API. Raises `UnsupportedVersionError` if broker and client have no version in common."""
        ours = API_VERSION_RANGES[key]
        theirs = self._offered.get(key)
        if theirs is None:
            raise refused(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.peer} does not offer {API_NAMES[key]}")
        newest = CEILINGS.get(key, ours[1])
        version = min(newest, theirs[1])
        if version < max(ours[0], theirs[0]):
            raise refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.peer} speaks {API_NAMES[key]} {theirs[0]} to {theirs[1]}, this client {ours[0]} to {newest}",
            )
        return version

    def newest_of(self, key: int) -> int:
        """Returns the version for requests between brokers of one cluster: the newest that both know. Brokers do not advertise the APIs
        that only brokers use; for these it returns this program's newest version.
        """
        ours = API_VERSION_RANGES[key][1]
        theirs = self._offered.get(key)
        return ours if theirs is None else min(ours, theirs[1])

    def offers(self, key: int, version: int = 0) -> bool:
        """Whether the broker offers an API in this version or a newer one."""
        theirs = self._offered.get(key)
        return theirs is not None and theirs[1] >= version

    def feature_level(self, name: str) -> int:
        """Returns the finalized level of a feature such as `transaction.version` (KIP-584), 0 if the broker has none."""
        return max((found.max_version_level for found in self.answer.finalized_features if found.name == name), default=0)
