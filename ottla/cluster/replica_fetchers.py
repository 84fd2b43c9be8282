"""Drives the fetchers of this broker: one `replication/fetcher.py` for each broker that leads what it follows, over `Peers`.

`ReplicaChanges` passes on which partition follows whom. What changes within one turn of the loop goes into one request. A fetcher rests
after failures as it says itself; a timer wakes it. One connection a leader carries everything, whatever `num.replica.fetchers` says: one
loop does all the work, and more connections would only cut it into smaller requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.ports import FETCH_LANE, Clock, Peers, TimerHandle, Timers
from ottla.base.types import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.throttle import Throttle

if TYPE_CHECKING:
    from ottla.replication.fetcher import Fetcher, FetchLimits, Sent
    from ottla.replication.followed import Key


class ReplicaFetchers:
    """What this broker follows. `broker_epoch` is that of its present registration."""

    def __init__(self, *, peers: Peers, clock: Clock, timers: Timers, config: BrokerConfig, broker_epoch: Callable[[], int]) -> None:
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._config = config
        self._broker_epoch = broker_epoch
        self._throttle = Throttle(lambda: config.follower_replication_throttled_rate)
        self._driven: dict[int, _Driven] = {}
        self._followed: dict[TopicPartition, tuple[_Driven, Key]] = {}
        self._is_closed = False
        self._bytes_in = 0  # from leaders that are followed no longer

    @property
    def bytes_in(self) -> int:
        """Bytes of records that leaders have sent this broker."""
        return self._bytes_in + sum(driven.fetcher.bytes_in for driven in self._driven.values())

    @property
    def lag_max(self) -> int:
        """The largest lag of a replica here behind its leader's high watermark, in records."""
        return max((driven.fetcher.lag_max for driven in self._driven.values()), default=0)

    def follow(self, partition: Partition) -> None:
        """The partition follows `partition.leader_id` now; none if that is -1."""
        key = (partition.topic_id, partition.topic_partition.partition)
        driven = None if self._is_closed or partition.leader_id < 0 else self._driven_for(partition.leader_id)
        known = self._followed.pop(partition.topic_partition, None)
        if known is not None and known != (driven, key):
            self._stop(*known)
        if driven is not None:
            self._followed[partition.topic_partition] = driven, key
            driven.fetcher.follow(partition)
            driven.schedule()

    def stop(self, topic_partition: TopicPartition) -> None:
        """The partition follows no leader any more: it leads, or it was stopped, or its disk failed."""
        known = self._followed.pop(topic_partition, None)
        if known is not None:
            self._stop(*known)

    def close(self) -> None:
        """Sends nothing more, and passes over what is still answered."""
        self._is_closed = True
        for driven in self._driven.values():
            driven.close()
        self._driven.clear()
        self._followed.clear()

    def _stop(self, driven: _Driven, key: Key) -> None:
        driven.fetcher.stop(key)
        driven.schedule()

    def _driven_for(self, leader_id: int) -> _Driven:
        from ottla.replication.fetcher import Fetcher  # on use: a broker by itself follows no other

        driven = self._driven.get(leader_id)
        if driven is None:
            driven = self._driven[leader_id] = _Driven(self._peers, self._clock, self._timers, self._ended)
            driven.fetcher = Fetcher(
                leader_id,
                broker_id=self._config.this_broker_id,
                broker_epoch=self._broker_epoch,
                limits=self._limits,
                wake=driven.schedule,
                throttle=self._throttle,
            )
        return driven

    def _limits(self) -> FetchLimits:
        from ottla.replication.fetcher import FetchLimits

        config = self._config
        return FetchLimits(
            bytes_max=config.replica_fetch_max_bytes,
            response_bytes_max=config.replica_fetch_response_max_bytes,
            bytes_min=config.replica_fetch_min_bytes,
            wait_ms_max=config.replica_fetch_wait_max_ms,
            backoff_ms=config.replica_fetch_backoff_ms,
        )

    def _ended(self, leader_id: int) -> None:
        self._bytes_in += self._driven.pop(leader_id).fetcher.bytes_in


class _Driven:
    """One fetcher with its timer."""

    fetcher: Fetcher

    def __init__(self, peers: Peers, clock: Clock, timers: Timers, ended: Callable[[int], None]) -> None:
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._ended = ended
        self._timer: TimerHandle | None = None
        self._is_scheduled = False
        self._is_closed = False

    def schedule(self) -> None:
        """Sends what is due in a turn of the loop of its own, together with what else changes until then."""
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
        self._cancel_timer()
        now_ms = self._clock.monotonic_ms()
        while (sent := self.fetcher.next_request(now_ms)) is not None:
            self._peers.send(self.fetcher.leader_id, sent.body, partial(self._answered, sent), lane=FETCH_LANE)
        if self.fetcher.is_idle:
            self.close()
            self._ended(self.fetcher.leader_id)
            return
        wake_at_ms = self.fetcher.wake_at_ms(now_ms)
        if wake_at_ms is not None:
            self._timer = self._timers.call_later(max(wake_at_ms - now_ms, 1), self._run)

    def _answered(self, sent: Sent, response: Any, code: int) -> None:
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        if code or response is None:
            self.fetcher.on_failure(sent, ErrorCode(code), now_ms)
            self.schedule()
            return
        self.fetcher.on_answer(sent, response, now_ms)
        self._go_on()

    def _go_on(self) -> None:
        """The next request goes out in the same turn as its answer came, unless one is being made already."""
        if not self._is_scheduled:
            self._run()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
