"""How many producers a broker remembers, of all its partitions together: a new one must find room.

A producer id is a number that a client makes up or asks for, and each partition remembers it, in some 600 bytes, for
`producer.id.expiration.ms` (a day). Apache Kafka has no bound. Here a leader refuses the first batch of a further producer with
POLICY_VIOLATION once there are `ottla.producers.max`; producers that are known go on. What has expired is not counted off: where there
seems to be no room the partitions are asked anew.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ApiError, ErrorCode

UNCOUNTED = -1


class ProducerRoom:
    """The bound of one broker; `count` returns how many producers its partitions remember."""

    def __init__(self, count: Callable[[], int], producers_max: Callable[[], int]) -> None:
        self._count = count
        self._producers_max = producers_max
        self._known = UNCOUNTED
        """At least as many as there are, save those that came by following other leaders."""

    def admit(self) -> None:
        """A leader is about to append the first batch of a producer. Raises `ApiError`."""
        producers_max = self._producers_max()
        if self._known == UNCOUNTED or self._known >= producers_max:
            self._known = self._count()
        if self._known >= producers_max:
            reason = f"this broker remembers {self._known:,} producers already (ottla.producers.max)"
            raise ApiError(ErrorCode.POLICY_VIOLATION, reason)
        self._known += 1
