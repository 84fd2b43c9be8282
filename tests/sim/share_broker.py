"""A broker of the simulation that serves share groups: share partitions where a partition is led, share coordinators where
`__share_group_state` is.

Persister and coordinator may live on different brokers; then they speak by the keys 83 to 87, over the same bad network. Members have
connections of their own, which go with them or with the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ottla.base.config import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.base.share_state import SharePartitionKey
from ottla.base.types import SHARE_GROUP_STATE_TOPIC, TopicPartition
from ottla.handlers import (
    share_acknowledge,
    share_fetch,
)
from ottla.machine.contract import Decision, Reply
from ottla.requests.context import ConnectionInfo, Pending, RequestContext
from ottla.security.authorizer import AllowClients
from ottla.server.hosts import ShareStateHosts
from ottla.server.waiters import Waiters
from ottla.sharing.acknowledgement import ranges
from ottla.sharing.acquisition import Acquired
from ottla.sharing.commands import Command, ReadState, Result, Write
from ottla.sharing.registry import FindStart, SharePartitions
from ottla.sharing.remote import OtherShareCoordinators
from ottla.sharing.routing import SharePersister, ShareStateCoordinators
from ottla.sharing.sessions import FINAL_EPOCH, ShareSessions
from ottla.sharing.share_partition import GroupTerms, SharePartition
from ottla.wire.messages.share_fetch import ShareFetchResponse
from tests.fakes.coordinator_settings import share_state_settings
from tests.sim.broker import LOAD_BYTES, LifeTimers, SimBroker
from tests.sim.network import Call
from tests.sim.peers import SimPeers
from tests.sim.share_history import DELIVERIES_MAX, LOCK_MS, Holder

if TYPE_CHECKING:
    from tests.sim.share_world import ShareWorld

PARTITIONS = 2
SHARED = [TopicPartition("s", index) for index in range(PARTITIONS)]
STATES = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
SHARE_KEYS = [*SHARED, STATES]
TOPIC_ID = b"s".ljust(16, b"\0")
TERMS = GroupTerms(
    lock_duration_ms=LOCK_MS,
    delivery_count_max=DELIVERIES_MAX,
    in_flight_max=30,
    offset_reset="earliest",
    is_read_committed=False,
    may_renew=True,
)
STATE_SETTINGS = share_state_settings(updates_per_snapshot=4, cold_snapshot_interval_ms=600, prune_interval_ms=250)
CONFIG = BrokerConfig()


Word = tuple[int, int, int, int, int]
"""Of what a member says: partition, state epoch, offset, kind, deliveries so far."""


class ShareTopics:
    """What the controller would have told."""

    def __init__(self, layout: dict[TopicPartition, int], epoch_of: Callable[[int], int]) -> None:
        self._layout = layout
        self._epoch_of = epoch_of
        self.brokers: dict[int, Any] = {}

    def topic(self, name: str) -> Any:
        led = [number for key, number in self._layout.items() if key.topic == name]
        partitions = [SimpleNamespace(leader=number, leader_epoch=self._epoch_of(number)) for number in led]
        return SimpleNamespace(name=name, topic_id=TOPIC_ID, partitions=partitions) if led else None

    def topic_by_id(self, topic_id: bytes) -> Any:
        return self.topic("s") if topic_id == TOPIC_ID else None


class ShareBroker(SimBroker):
    """See above. Everything that members hear and say passes the history of the world."""

    world: ShareWorld  # type: ignore[assignment]

    def start(self) -> None:
        clock, layout = self.world.clock, self.world.layout
        self.epoch += 1
        self.is_up = True
        self.life = timers = LifeTimers(self.world.timers)
        self._flushing = set()
        self._connections: dict[str, ConnectionInfo] = {}
        topics: Any = ShareTopics(layout, lambda number: self.world.brokers[number].epoch)
        self.partitions = {}
        for key in SHARE_KEYS:
            if layout[key] == self.broker_id:
                self.partitions[key] = self._open(key)
        self.share_states = ShareStateCoordinators(lambda: 1)
        others = OtherShareCoordinators(self.broker_id, lambda _shard: layout[STATES], SimPeers(self, timers))
        self.persister = SharePersister(self.share_states, lambda _topic, done: done(ErrorCode.NONE), timers, others)
        self.shares = JudgedShares(self, persister=self.persister, clock=clock, timers=timers, terms_of=lambda _group: TERMS)
        self._context = SimpleNamespace(
            broker_id=self.broker_id,
            clock=clock,
            timers=timers,
            config=CONFIG,
            metadata=topics,
            partitions=SimpleNamespace(
                get=self.get,
                get_by_id=lambda _topic_id, index: self.get("s", index),
                topic_name=lambda topic_id: "s" if topic_id == TOPIC_ID else None,
                absence=lambda _topic, _index: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ),
            share_states=self.share_states,
            share_persister=self.persister,
            share_partitions=self.shares,
            share_sessions=ShareSessions(self.shares, 100),
            waiters=Waiters(timers),
            authorizer=AllowClients(),
        )
        if STATES in self.partitions:
            hosts = ShareStateHosts(clock, timers, topics, self.share_states, STATE_SETTINGS, self._request_flush)
            hosts.lead(self.partitions[STATES], LOAD_BYTES)
            self._watch_coordinator()

    def _watch_coordinator(self) -> None:
        """Tells the history which leaders the coordinator hears."""
        [host] = self.share_states.all_hosts()
        decide, history = host.machine.decide, self.world.history

        def judged(now_ms: int, command: Command, reply: Reply) -> Decision:
            def heard(result: Result) -> None:
                if not result.code and isinstance(command, ReadState):
                    history.heard(command.key.partition, command.leader_epoch)
                elif not result.code and isinstance(command, Write):
                    history.heard(command.key.partition, command.state.leader_epoch)
                reply(result)

            decision: Decision = decide(now_ms, command, heard)
            return decision

        host.machine.decide = judged

    def crash(self) -> None:
        """The checkpoint of where the logs start may be of any moment before."""
        for key, partition in self.partitions.items():
            start = partition.log.log_start_offset
            self.log_starts[key] = self._chance.randint(self.log_starts.get(key, 0), start)
        super().crash()

    def disconnect(self, member: str) -> None:
        """The member's connection is closed."""
        connection = self._connections.pop(member, None)
        if self.is_up and connection is not None:
            self.world.history.left(member)
            connection.closed()

    # The door

    def handle(self, call: Call, answered: Callable[[Any], None], *, is_peer: bool = False) -> None:
        if not self.is_up:
            return
        if is_peer or call.handler not in (share_fetch, share_acknowledge):
            super().handle(call, answered, is_peer=is_peer)
            return
        life, body = self.life, call.body()
        words = self._listen(body)

        def alive(answer: Any) -> None:
            if not life.is_over:
                self._tell(answer, words)
                answered(answer)

        connection = self._connections.get(body.member_id)
        if connection is None:
            connection = ConnectionInfo(identity=body.member_id, host="10.0.0.1", listener="PLAINTEXT")
            self._connections[body.member_id] = connection
        answer = call.handler.handle(self._context, RequestContext(call.version, "sim", connection), body)
        if isinstance(answer, Pending):
            answer.then(alive)
        else:
            alive(answer)

    def _listen(self, body: Any) -> list[Word]:
        """What a member says of records that it has."""
        history, now_ms = self.world.history, self.world.clock.monotonic_ms()
        words = []
        for topic in body.topics:
            for said in topic.partitions:
                era = history.eras[said.partition_index]
                for batch in said.acknowledgement_batches:
                    statement = batch.first_offset, batch.last_offset, batch.acknowledge_types
                    for first, last, kind in ranges(statement):  # type: ignore[arg-type]
                        for offset in range(first, last + 1):
                            count = history.said(said.partition_index, body.member_id, offset, kind, now_ms)
                            if count:
                                words.append((said.partition_index, era.state_epoch, offset, kind, count))
        if body.share_session_epoch == FINAL_EPOCH:
            history.left(body.member_id)
        return words

    def _tell(self, answer: Any, words: list[Word]) -> None:
        if answer.error_code:
            return
        is_fetch = isinstance(answer, ShareFetchResponse)
        for topic in answer.responses:
            for told in topic.partitions:
                code = told.acknowledge_error_code if is_fetch else told.error_code
                for partition, state_epoch, offset, kind, count in words:
                    if partition == told.partition_index and not code:
                        self.world.history.settled(partition, state_epoch, offset, kind, count)
                if is_fetch and hasattr(told.records, "read"):
                    told.records = bytes(told.records.read())


class JudgedShares(SharePartitions):
    """Tells the history who gets what, at the moment when it is decided."""

    def __init__(self, broker: ShareBroker, **options: Any) -> None:
        super().__init__(**options)
        self._broker = broker
        self._seen: dict[int, SharePartition] = {}

    def get(self, key: SharePartitionKey, leader_epoch: int, find_start: FindStart) -> SharePartition:
        share = super().get(key, leader_epoch, find_start)
        if id(share) not in self._seen:
            self._seen[id(share)] = share
            self._watch(share)
        return share

    def _watch(self, share: SharePartition) -> None:
        acquire, world = share.acquire, self._broker.world
        index = share.key.partition

        def judged(member: str, *arguments: Any) -> list[Acquired]:
            taken = acquire(member, *arguments)
            now_ms = world.clock.monotonic_ms()
            for first, last, count in taken:
                assert last < self._broker.partitions[SHARED[index]].high_watermark, f"s-{index}@{last} is not committed"
                for offset in range(first, last + 1):
                    world.history.acquired(index, offset, Holder(member, now_ms + LOCK_MS, share, count), now_ms)
            return taken

        share.acquire = judged  # type: ignore[method-assign]
