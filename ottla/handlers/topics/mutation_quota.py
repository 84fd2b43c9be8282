"""The quota of partitions that a client may create or delete (KIP-599), for CreateTopics, DeleteTopics, CreatePartitions and Metadata."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.base.errors import ErrorCode
from ottla.controller.api import TopicResult
from ottla.handlers.context import Broker, RequestContext

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
NEVER = 1 << 15
"""Higher than any version."""
EXCEEDED_TEXT = "The throttling quota has been exceeded."


class MutationQuota:
    """Charges the topics of one request; without a quota it admits everything."""

    def __init__(self, broker: Broker, request: RequestContext, *, strict_since: int, is_validation: bool = False) -> None:
        """`strict_since` is the first version that knows THROTTLING_QUOTA_EXCEEDED. Topics in older requests are always admitted."""
        quotas, principal = broker.quotas, request.connection.principal
        is_strict = request.version >= strict_since
        self._quota = None if quotas is None or is_validation else quotas.mutations(principal, request.client_id, is_strict=is_strict)
        self._charged: dict[str, int] = {}

    def admits(self, topic: str, partitions: int) -> bool:
        """Charges a topic with its partitions and returns True, or returns False: it must be refused with `EXCEEDED`."""
        if self._quota is None or partitions <= 0:
            return True
        is_admitted = self._quota.take(partitions)
        if is_admitted:
            self._charged[topic] = partitions
        return is_admitted

    def settle(self, results: Iterable[TopicResult]) -> int:
        """Gives back the charges of refused topics. Returns the throttle time of the answer."""
        if self._quota is None:
            return 0
        for result in results:
            if result.error:
                self._quota.give_back(self._charged.get(result.name, 0))
        return self._quota.throttle_ms
