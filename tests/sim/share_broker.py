"""A broker of the simulation that serves share groups: share partitions where a partition is led, share coordinators where
`__share_group_state` is.

Persister and coordinator may live on different brokers; then they speak by the keys 83 to 87, over the same bad network. Members have
connections of their own, which go with them or with the broker. Everything that members send and receive passes the history of the world.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.share_state import SharePartitionKey
from ottla.base.types import SHARE_GROUP_STATE_TOPIC, TopicPartition
from ottla.machine.contract import Decision, Reply
from ottla.replication.partition import Partition
from ottla.requests.context import Pending, RequestContext
from ottla.sharing.acknowledgement import ranges
from ottla.sharing.acquisition import Acquired
from ottla.sharing.commands import Command, ReadState, Result, Write
from ottla.sharing.registry import FindStart
from ottla.sharing.sessions import FINAL_EPOCH
from ottla.sharing.share_partition import GroupTerms, SharePartition
from ottla.wire.messages.share_fetch import ShareFetchResponse
from tests.fakes.coordinator_settings import share_state_settings
from tests.sim.broker import SimBroker, SimNode, topic_id_of
from tests.sim.share_history import DELIVERIES_MAX, LOCK_MS, Holder

if TYPE_CHECKING:
    from tests.sim.share_world import ShareWorld

PARTITIONS = 2
SHARED = [TopicPartition("s", index) for index in range(PARTITIONS)]
STATES = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
SHARE_KEYS = [*SHARED, STATES]
TOPIC_ID = topic_id_of("s")
SHARE_FETCH, SHARE_ACKNOWLEDGE, VERSION = 78, 79, 2
TERMS = GroupTerms(
    lock_duration_ms=LOCK_MS,
    delivery_count_max=DELIVERIES_MAX,
    in_flight_max=30,
    offset_reset="earliest",
    is_read_committed=False,
    may_renew=True,
)
STATE_SETTINGS = share_state_settings(updates_per_snapshot=4, cold_snapshot_interval_ms=600, prune_interval_ms=250)

Statement = tuple[int, int, int, int, int]
"""An acknowledgement of one record: partition, state epoch, offset, kind, deliveries so far."""


class ShareBroker(SimBroker):
    """See above."""

    world: ShareWorld

    def prepare(self, node: SimNode) -> None:
        node.share_partitions.terms_of = lambda _group: TERMS
        node.share_state_hosts.configure(STATE_SETTINGS)
        self._judge_shares(node)
        for key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            route = node.dispatcher._route(key, VERSION)
            route.handle = self._judged(route.handle)
        if self.world.layout[STATES] == self.broker_id:
            self._judge_coordinator(node)

    def _judge_coordinator(self, node: SimNode) -> None:
        """Reports to the history which leaders the coordinator accepts."""
        lead, history = node.share_state_hosts.lead, self.world.history

        def judged_lead(partition: Partition, load_bytes: int) -> None:
            lead(partition, load_bytes)
            [host] = node.share_states.all_hosts()
            decide = host.machine.decide

            def judged(now_ms: int, command: Command, reply: Reply) -> Decision:
                def answered(result: Result) -> None:
                    if not result.code and isinstance(command, ReadState):
                        history.coordinator_accepted(command.key.partition, command.leader_epoch)
                    elif not result.code and isinstance(command, Write):
                        history.coordinator_accepted(command.key.partition, command.state.leader_epoch)
                    reply(result)

                decision: Decision = decide(now_ms, command, answered)
                return decision

            host.machine.decide = judged

        node.share_state_hosts.lead = judged_lead  # type: ignore[method-assign]

    def _judge_shares(self, node: SimNode) -> None:
        """Reports each acquisition to the history, at the moment when it is decided."""
        get, judged_shares = node.share_partitions.get, dict[int, SharePartition]()

        def judged_get(key: SharePartitionKey, leader_epoch: int, find_start: FindStart) -> SharePartition:
            share = get(key, leader_epoch, find_start)
            if id(share) not in judged_shares:
                judged_shares[id(share)] = share
                self._judge_share(node, share)
            return share

        node.share_partitions.get = judged_get  # type: ignore[method-assign]

    def _judge_share(self, node: SimNode, share: SharePartition) -> None:
        acquire, world, index = share.acquire, self.world, share.key.partition

        def judged(member: str, *arguments: Any) -> list[Acquired]:
            taken = acquire(member, *arguments)
            now_ms = world.clock.monotonic_ms()
            partition = node.partitions.get("s", index)
            for first, last, count in taken:
                assert partition is not None and last < partition.high_watermark, f"s-{index}@{last} is not committed"
                for offset in range(first, last + 1):
                    world.history.acquired(index, offset, Holder(member, now_ms + LOCK_MS, share, count), now_ms)
            return taken

        share.acquire = judged  # type: ignore[method-assign]

    # Requests of members

    def _judged(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        def judged(broker: Any, request: RequestContext, body: Any) -> Any:
            life, member, history = self.life, body.member_id, self.world.history
            request.connection.call_when_closed(("judge", member), lambda _: None if life.is_over else history.left(member))
            statements = self._read(body)
            answer = handle(broker, request, body)
            if not isinstance(answer, Pending):
                self._judge_answer(answer, statements)
                return answer
            outer = Pending()
            outer.abandon = answer.abandon

            def complete(response: Any) -> None:
                if not life.is_over:
                    self._judge_answer(response, statements)
                outer.complete(response)

            answer.then(complete)
            return outer

        return judged

    def _read(self, body: Any) -> list[Statement]:
        """Reports to the history what a member acknowledges."""
        history, now_ms = self.world.history, self.world.clock.monotonic_ms()
        statements = []
        for topic in body.topics:
            for partition in topic.partitions:
                era = history.eras[partition.partition_index]
                for batch in partition.acknowledgement_batches:
                    statement = batch.first_offset, batch.last_offset, batch.acknowledge_types
                    for first, last, kind in ranges(statement):  # type: ignore[arg-type]
                        for offset in range(first, last + 1):
                            count = history.note_acknowledgement(partition.partition_index, body.member_id, offset, kind, now_ms)
                            if count:
                                statements.append((partition.partition_index, era.state_epoch, offset, kind, count))
        if body.share_session_epoch == FINAL_EPOCH:
            history.left(body.member_id)
        return statements

    def _judge_answer(self, answer: Any, statements: list[Statement]) -> None:
        if answer.error_code:
            return
        is_fetch = isinstance(answer, ShareFetchResponse)
        for topic in answer.responses:
            for found in topic.partitions:
                code = found.acknowledge_error_code if is_fetch else found.error_code
                for partition, state_epoch, offset, kind, count in statements:
                    if partition == found.partition_index and not code:
                        self.world.history.settled(partition, state_epoch, offset, kind, count)
