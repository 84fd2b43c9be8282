"""Rare combinations of faults. A world has a combination if its swarm has the switch with this name (`cluster_swarm.py`). - strand: the
followers of one leader end one after the other, the last one by a loss of power. The leader alone is then in sync, and an eligible replica
starts again with fewer records. Often the leader ends too, before that replica has fetched anything. - alter: `min.insync.replicas` of a
topic is altered, preferably while a leader is alone in sync; controller and leader learn of it at different times. - unseat: the controller
is deposed several times, and learns of it late, after it has asked the store (`cluster_lateness.py`). - hiccup: a write or a sync of a
leader's log fails, and soon its disk works again. - flap: leadership moves among running replicas while clients write. The former leader
truncates the records that only it has, immediately fetches the new leader's records, and syncs at the same time. - return: replicas are
moved away and immediately back, while requests to delete them are repeated (`cluster_lateness.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.cluster_metadata import CONFIG_TOPIC
from ottla.base.types import TopicPartition
from ottla.controller.api import ConfigOperation
from ottla.handlers.configs import incremental_alter_configs
from ottla.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.sim.cluster_broker import ClusterBroker
from tests.sim.cluster_clients import CONTROLLER
from tests.sim.cluster_lateness import depose
from tests.sim.network import Call

if TYPE_CHECKING:
    from tests.sim.cluster_world import ClusterWorld

STRAND_MS = (600, 2_500)
NEXT_MS = (60, 400)
"""Between the ends of two followers: long enough for the in-sync set to shrink, short enough for the first one to be away still."""
AWAY_MS = (400, 1_500)
BACK_MS = (20, 300)
LEADER_ENDS = 0.5
LEADER_ENDS_MS = (0, 350)
ALTER_MS = (100, 400)
SLOW_STORE_MS = (20, 200)
SLOW_FOR_MS = (100, 500)
ALTERED = 0.15
"""How often the setting is altered when there is no eligible replica; with one it always is."""
UNSEAT_MS = (200, 900)
HICCUP_MS = (500, 2_000)
FLAP_MS = (100, 500)
ELECTED_MS, CUT_MS = (20, 120), (80, 250)
RETURN_MS = (300, 1_500)
RETURNED_MS = (80, 700)


class Strands:
    """See above."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world
        self.stranded = self.altered = self.returned = 0
        self._in_sync_min = 2

    def start(self) -> None:
        world = self.world
        may_alter = "alter" in world.swarm and world.is_flushed and not world.operations.may_wipe and not world.lies
        if "strand" in world.swarm or may_alter:
            world.later(*STRAND_MS, self._strand)
        if may_alter:  # records that only one replica has are lost with its disk, and unsynced ones also with its power
            world.later(*STRAND_MS, self._alter)
        if "unseat" in world.swarm:
            world.later(*UNSEAT_MS, self._unseat)
        if "hiccup" in world.swarm:
            world.later(*HICCUP_MS, self._hiccup)
        if "flap" in world.swarm and world.is_operated:
            world.later(*FLAP_MS, self._flap)
        if "return" in world.swarm and world.is_operated:
            world.later(*RETURN_MS, self._return)

    def _strand(self) -> None:
        world, chance = self.world, self.world.chance
        if world.is_ending:
            return
        world.later(*STRAND_MS, self._strand)
        state = world.checks.store.states.get(chance.choice(world.usurped_keys))
        if state is None or state.leader < 0 or world.nemesis.is_resting:
            return
        followers = [world.brokers[member] for member in state.isr if member != state.leader]
        if not followers or not all(broker.is_up and broker.is_ready for broker in followers):
            return
        chance.shuffle(followers)
        leader = world.brokers[state.leader]
        world.note("strand", leader.broker_id, *(broker.broker_id for broker in followers))
        self.stranded += 1
        for number, broker in enumerate(followers[:-1]):
            world.later(0, NEXT_MS[0] * number, lambda broker=broker: self._kill(broker))
        world.later(*NEXT_MS, lambda: self._end_last(followers[-1], leader))

    def _kill(self, broker: ClusterBroker) -> None:
        if broker.is_up:
            self.world.crashes += 1
            broker.kill(restart_ms=AWAY_MS)

    def _end_last(self, follower: ClusterBroker, leader: ClusterBroker) -> None:
        world = self.world
        if world.is_ending:
            return
        world.nemesis.strike(follower, BACK_MS)
        if world.chance.random() < LEADER_ENDS:
            world.later(*LEADER_ENDS_MS, lambda: self._kill(leader))

    def _alter(self) -> None:
        world, states = self.world, self.world.checks.store.states
        if world.is_ending:
            return
        world.later(*ALTER_MS, self._alter)
        is_stranded = any(states[key].eligible for key in world.usurped_keys if key in states)
        if is_stranded or world.chance.random() < ALTERED:
            wanted = 1 if is_stranded else world.chance.choice((1, 2, 2, 3))
            if wanted != self._in_sync_min:
                self._set_in_sync_min(wanted)

    def _set_in_sync_min(self, wanted: int) -> None:
        """Changes `min.insync.replicas` while the store answers the controller slowly: the new setting is written first, and the partition
        states that depend on it later.
        """
        for broker in self.world.brokers.values():
            if broker.node is not None and broker.node.member.controller.is_active and broker.is_up:
                store = broker.store
                store.slow_down(self.world.chance.randint(*SLOW_STORE_MS))
                self.world.later(*SLOW_FOR_MS, lambda store=store: store.slow_down(0))
        self.world.note("alter", wanted)
        def answered(answer: Any) -> None:
            if not answer.responses[0].error_code:
                self._in_sync_min = wanted
                self.altered += 1

        setting = AlterableConfig(name="min.insync.replicas", config_operation=int(ConfigOperation.SET), value=str(wanted))
        topic = AlterConfigsResource(resource_type=CONFIG_TOPIC, resource_name="t", configs=[setting])
        body = IncrementalAlterConfigsRequest(resources=[topic], validate_only=False)
        self.world.send(Call(incremental_alter_configs, 1, lambda: body, CONTROLLER), answered)

    def _unseat(self) -> None:
        if not self.world.is_ending:
            self.world.later(*UNSEAT_MS, self._unseat)
            depose(self.world)

    def _hiccup(self) -> None:
        world = self.world
        if world.is_ending:
            return
        world.later(*HICCUP_MS, self._hiccup)
        key = world.chance.choice(world.usurped_keys)
        state = world.checks.store.states.get(key)
        if state is not None and state.leader >= 0:
            world.note("hiccup", state.leader, key)
            world.nemesis.hiccup(world.brokers[state.leader], f"/{key}/")

    def _flap(self) -> None:
        """Makes the second replica the preferred one and elects it while it lacks records of the leader, because the link from the leader
        is cut for a moment.
        """
        world = self.world
        if world.is_ending:
            return
        world.later(*FLAP_MS, self._flap)
        key = world.chance.choice(world.usurped_keys)
        replicas, state = list(world.checks.store.replicas.get(key, ())), world.checks.store.states.get(key)
        if len(replicas) > 1 and state is not None and state.leader == replicas[0]:
            world.operations.reassign(key, [*replicas[1:], replicas[0]])
            world.nemesis.cut_way(replicas[0], replicas[1], CUT_MS)
            world.later(*ELECTED_MS, lambda: world.operator.elect_leader_of(key))

    def _return(self) -> None:
        world, chance = self.world, self.world.chance
        if world.is_ending:
            return
        world.later(*RETURN_MS, self._return)
        key = chance.choice(world.moved_keys)
        replicas = list(world.checks.store.replicas.get(key, ()))
        others = [number for number in sorted(world.brokers) if number not in replicas]
        if len(replicas) < 3:
            return
        leaving = chance.choice(replicas)
        staying = [replica for replica in replicas if replica != leaving]
        self.returned += 1
        world.operations.reassign(key, [*staying, *chance.sample(others, min(1, len(others)))])
        world.later(*RETURNED_MS, lambda: self._back(key, replicas))

    def _back(self, key: TopicPartition, replicas: list[int]) -> None:
        if not self.world.is_ending:
            self.world.operations.reassign(key, replicas)
