"""Runs the fetchers of this broker: `num.replica.fetchers` of `replication/fetcher.py` for each broker that it follows, each over a
connection of its own.

`ReplicaChanges` calls `follow` and `stop`. The partition's hash selects the fetcher, as in Kafka. The changes of one iteration of the event
loop are sent in one request. A fetcher pauses after failures, and a timer wakes it. All fetchers share one event loop, so one fetcher per
leader is usually fastest. More fetchers help if one connection cannot use the whole bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.java_hash import java_abs, java_hash
from ottla.base.ports import FETCH_LANE, Clock, Peers, TimerHandle, Timers
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.throttle import ReplicationThrottle

if TYPE_CHECKING:
    from ottla.replication.fetcher import Fetcher, FollowerFetchLimits, SentFetch
    from ottla.replication.followed import Key


Place = tuple[int, int]
"""A leader's broker id, and the number of a fetcher for this leader."""


class ReplicaFetchers:
    """Fetchers of the partitions that this broker follows. `broker_epoch` returns the epoch of its current registration."""

    def __init__(self, *, peers: Peers, clock: Clock, timers: Timers, config: BrokerConfig, broker_epoch: Callable[[], int]) -> None:
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._config = config
        self._broker_epoch = broker_epoch
        self._throttle = ReplicationThrottle(lambda: config.follower_replication_throttled_rate)
        self._driven: dict[Place, _Driven] = {}
        self._followed: dict[TopicPartition, tuple[_Driven, Key, Partition]] = {}
        self._is_closed = False
        self._bytes_in = 0  # of ended fetchers

    @property
    def bytes_in(self) -> int:
        return self._bytes_in + sum(driven.fetcher.bytes_in for driven in self._driven.values())

    @property
    def lag_max(self) -> int:
        """Returns the largest lag of a replica here behind its leader's high watermark, in records."""
        return max((driven.fetcher.lag_max for driven in self._driven.values()), default=0)

    def follow(self, partition: Partition) -> None:
        """Fetches the partition from `partition.leader_id`. Stops fetching if that is -1."""
        key = (partition.topic_id, partition.topic_partition.partition)
        driven = None if self._is_closed or partition.leader_id < 0 else self._driven_for(self._place_of(partition))
        known = self._followed.pop(partition.topic_partition, None)
        if known is not None and known[:2] != (driven, key):
            self._stop(*known[:2])
        if driven is not None:
            self._followed[partition.topic_partition] = driven, key, partition
            driven.fetcher.follow(partition)
            driven.schedule()

    def stop(self, topic_partition: TopicPartition) -> None:
        """Stops fetching the partition, because it leads, was stopped, or its disk has failed."""
        known = self._followed.pop(topic_partition, None)
        if known is not None:
            self._stop(*known[:2])

    def configure(self) -> None:
        """Moves partitions to other fetchers after `num.replica.fetchers` has changed."""
        for driven, _, partition in list(self._followed.values()):
            if driven.place != self._place_of(partition) and partition.leader_id >= 0:
                self.follow(partition)

    def _place_of(self, partition: Partition) -> Place:
        topic, number = partition.topic_partition
        return partition.leader_id, fetcher_number(topic, number, self._config.num_replica_fetchers)

    def close(self) -> None:
        self._is_closed = True
        for driven in self._driven.values():
            driven.close()
        self._driven.clear()
        self._followed.clear()

    def _stop(self, driven: _Driven, key: Key) -> None:
        driven.fetcher.stop(key)
        driven.schedule()

    def _driven_for(self, place: Place) -> _Driven:
        from ottla.replication.fetcher import Fetcher  # imported on use: a single broker has no fetchers

        driven = self._driven.get(place)
        if driven is None:
            driven = self._driven[place] = _Driven(place, self._peers, self._clock, self._timers, self._ended)
            driven.fetcher = Fetcher(
                place[0],
                broker_id=self._config.this_broker_id,
                broker_epoch=self._broker_epoch,
                limits=self._limits,
                wake=driven.schedule,
                throttle=self._throttle,
            )
        return driven

    def _limits(self) -> FollowerFetchLimits:
        from ottla.replication.fetcher import FollowerFetchLimits

        config = self._config
        return FollowerFetchLimits(
            bytes_max=config.replica_fetch_max_bytes,
            response_bytes_max=config.replica_fetch_response_max_bytes,
            bytes_min=config.replica_fetch_min_bytes,
            wait_ms_max=config.replica_fetch_wait_max_ms,
            backoff_ms=config.replica_fetch_backoff_ms,
        )

    def _ended(self, place: Place) -> None:
        self._bytes_in += self._driven.pop(place).fetcher.bytes_in


def fetcher_number(topic: str, partition: int, count: int) -> int:
    """Returns the number of the fetcher for a partition, as in Kafka."""
    return 0 if count <= 1 else java_abs(31 * java_hash(topic) + partition) % count


class _Driven:
    """One fetcher with its timer."""

    fetcher: Fetcher

    def __init__(self, place: Place, peers: Peers, clock: Clock, timers: Timers, ended: Callable[[Place], None]) -> None:
        self.place = place
        self._lane = f"{FETCH_LANE}-{place[1]}" if place[1] else FETCH_LANE
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._ended = ended
        self._timer: TimerHandle | None = None
        self._is_scheduled = False
        self._is_closed = False

    def schedule(self) -> None:
        """Schedules the next request in a later iteration of the event loop, so that it contains all changes until then."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._timers.call_soon(self._run)

    def close(self) -> None:
        self._is_closed = True
        self._cancel_timer()

    def _run(self) -> None:
        self._is_scheduled = False
        if self._is_closed:
            return
        if self._timer is not None:
            self._cancel_timer()
        now_ms = self._clock.monotonic_ms()
        while (sent := self.fetcher.next_request(now_ms)) is not None:
            self._peers.send(self.fetcher.leader_id, sent.body, partial(self._answered, sent), lane=self._lane)
        if self.fetcher.is_idle:
            self.close()
            self._ended(self.place)
            return
        wake_at_ms = self.fetcher.wake_at_ms(now_ms)
        if wake_at_ms is not None:
            self._timer = self._timers.call_later(max(wake_at_ms - now_ms, 1), self._run)

    def _answered(self, sent: SentFetch, response: Any, code: int) -> None:
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        if code or response is None:
            self.fetcher.on_failure(sent, ErrorCode(code), now_ms)
            self.schedule()
            return
        self.fetcher.on_answer(sent, response, now_ms)
        if not self._is_scheduled:
            self._run()  # The next request is sent in the same iteration of the event loop as the answer.

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
