"""A broker of the simulation that serves share groups: share partitions where a partition is led, share coordinators where
`__share_group_state` is.

The partition leader and the share coordinator may be on different brokers. They then use the APIs 83 to 87 (the share state requests) over
the same unreliable network. Members have their own connections, which are closed when the member or the broker ends. The world's history
notes everything that members send and receive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.types import SHARE_GROUP_STATE_TOPIC, TopicPartition
from ottla.sharing.share_partition import GroupTerms
from tests.fakes.coordinator_settings import share_state_settings
from tests.sim.broker import SimBroker, SimNode, topic_id_of
from tests.sim.share_history import DELIVERIES_MAX, LOCK_MS
from tests.sim.share_judge import ShareJudge

if TYPE_CHECKING:
    from tests.sim.share_world import ShareWorld

PARTITIONS = 2
SHARED = [TopicPartition("s", index) for index in range(PARTITIONS)]
STATES = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
SHARE_KEYS = [*SHARED, STATES]
TOPIC_ID = topic_id_of("s")
TERMS = GroupTerms(
    lock_duration_ms=LOCK_MS,
    delivery_count_max=DELIVERIES_MAX,
    in_flight_max=30,
    offset_reset="earliest",
    is_read_committed=False,
    may_renew=True,
)
STATE_SETTINGS = share_state_settings(updates_per_snapshot=4, cold_snapshot_interval_ms=600, prune_interval_ms=250)


class ShareBroker(SimBroker):
    """See above."""

    world: ShareWorld

    def prepare(self, node: SimNode) -> None:
        node.share_partitions.terms_of = lambda _group: TERMS
        node.share_states.configure(STATE_SETTINGS)
        judge = ShareJudge(self.world.history, self.world.clock, self.life, node, "s")
        judge.watch_members()
        if self.world.layout[STATES] == self.broker_id:
            judge.watch_coordinator()
