"""Negotiates the version of each API on a connection: the newest that the broker, this client and `CEILINGS` allow."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.client.errors import refused
from ottla.wire.apis import API_NAMES, API_VERSION_RANGES
from ottla.wire.framing import API_VERSIONS
from ottla.wire.messages.api_versions import ApiVersionsResponse

HANDSHAKE_VERSION = 3
"""The version of ApiVersions that is asked first: every broker since 2.4 knows it; a newer one would cost today's a second round trip."""

CEILINGS = {0: 11, 1: 12, 8: 9, 9: 9, 24: 3, 26: 4, 28: 4}
"""Newer versions of these name topics by id or speak the second transaction protocol; a caller that wants them names the version."""

TRANSACTION_VERSION = "transaction.version"


class Versions:
    """The versions that one broker offers, from its answer to ApiVersions."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.answer = ApiVersionsResponse()
        self._offered: dict[int, tuple[int, int]] = {API_VERSIONS: (0, HANDSHAKE_VERSION)}

    def learn(self, answer: ApiVersionsResponse) -> None:
        self.answer = answer
        self._offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def version_of(self, key: int) -> int:
        """The version for requests of this API. `UnsupportedVersionError` when there is none in common."""
        ours = API_VERSION_RANGES[key]
        theirs = self._offered.get(key)
        if theirs is None:
            raise refused(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.peer} does not offer {API_NAMES[key]}")
        version = min(CEILINGS.get(key, ours[1]), theirs[1])
        if version < max(ours[0], theirs[0]):
            raise refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.peer} speaks {API_NAMES[key]} {theirs[0]} to {theirs[1]}, this client {ours[0]} to {ours[1]}",
            )
        return version

    def newest_of(self, key: int) -> int:
        """The version for requests between brokers of one cluster: the newest that both know. APIs between brokers are
        not advertised, so their requests have this program's newest version."""
        ours = API_VERSION_RANGES[key][1]
        theirs = self._offered.get(key)
        return ours if theirs is None else min(ours, theirs[1])

    def offers(self, key: int, version: int = 0) -> bool:
        """Whether the broker serves an API, at least in this version."""
        theirs = self._offered.get(key)
        return theirs is not None and theirs[1] >= version

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature such as `transaction.version` (KIP-584); 0 when the broker has none."""
        return max((found.max_version_level for found in self.answer.finalized_features if found.name == name), default=0)
