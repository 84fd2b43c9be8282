"""The connections of a broker with the other brokers of its cluster. A single broker has none.

They are created in two steps, the constructor and `attach`, because the coordinators need `peers` before the controller's link exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.base.broker_ports import Ports
from ottla.base.config import BrokerConfig
from ottla.base.control_messages import ControlMessage
from ottla.base.ports import Locate, Peers
from ottla.cluster.cluster_secret import ClusterSecret
from ottla.cluster.control.messenger import PeerMessenger
from ottla.cluster.controller_link import ControllerLink
from ottla.cluster.deleted_partitions import DeletedPartitions
from ottla.cluster.failure_detector import FailureDetector
from ottla.cluster.handover import Handover
from ottla.cluster.isr_changes import IsrChanges, Key
from ottla.cluster.member import ClusterMember
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.replica_fetchers import ReplicaFetchers
from ottla.cluster.suspects import Suspects
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.security.cluster_identity import ClusterIdentity
from ottla.server.broker_access import BrokerAccess
from ottla.server.execution.forwarding import Forwarder
from ottla.server.peers import BrokerPeers


class ClusterLinks:
    """The parts of a node that only a member of a cluster has."""

    failure_detector: FailureDetector
    suspects: Suspects
    isr_changes: IsrChanges
    forwarder: Forwarder

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        metadata: MetadataCache,
        *,
        broker_epoch: Callable[[], int],
        epoch_of: Callable[[int], int],
        is_current: Callable[[int, ControlMessage], bool],
    ) -> None:
        """`epoch_of` returns the known epoch of a broker. `is_current` returns whether a controller's message to a broker is still valid.
        """
        self._ports = ports
        self._access = BrokerAccess(config, ports)
        self._config = config
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self.identity = ClusterIdentity(
            ports.random, ClusterSecret(ports.store, ports.random).read, broker_id=config.this_broker_id,
            broker_epoch=broker_epoch, cluster_id=lambda: metadata.cluster_id, epoch_of=epoch_of,
        )  # fmt: skip
        self.peers: Peers = ports.peers if ports.peers is not None else self._make_peers()
        self.fetchers = ReplicaFetchers(
            peers=self.peers, clock=ports.clock, timers=ports.timers, config=config, broker_epoch=broker_epoch
        )
        self.messenger = PeerMessenger(self.peers, ports.timers, is_current)
        self.is_deleted = DeletedPartitions(ports.store).is_deleted

    def _make_peers(self) -> BrokerPeers:
        ports, config = self._ports, self._config
        return BrokerPeers(
            ports.network,
            ports.clock,
            ports.timers,
            client_id=f"broker-{config.this_broker_id}",
            timeout_ms=lambda: config.request_timeout_ms,
            identity=self.identity,
            access=self._access,
            threads=ports.threads,
        )

    def attach(
        self,
        member: ClusterMember,
        route: ControllerLink,
        *,
        locate: Locate,
        watched: Callable[[], list[int]],
        leader_of: Callable[[Key], Leader | None],
    ) -> None:
        """Creates the parts that send requests to the controller or watch brokers. `watched` returns the brokers to watch for their end."""
        ports = self._ports
        self._member = member
        self._route = route
        self.failure_detector = FailureDetector(
            self.peers, ports.network, ports.timers, locate=locate, epoch_of=self._metadata.broker_epoch, watched=watched,
            on_gone=member.controller.on_broker_gone,
        )  # fmt: skip
        self.suspects = Suspects(ports.network, ports.timers, locate)
        self.peers.call_at_hang_up(self._on_hang_up)
        self.isr_changes = IsrChanges(
            route, broker_id=self._config.this_broker_id, broker_epoch=self._broker_epoch, leader_of=leader_of, timers=ports.timers
        )
        self.forwarder = Forwarder(route)

    def _on_hang_up(self, broker_id: int) -> None:
        self.suspects.on_hang_up(broker_id)
        self.failure_detector.on_hang_up(broker_id)

    def reviewing(self, recheck: Callable[[], object]) -> Callable[[], object]:
        """Returns a function to call when credentials have changed. It checks that the user of this broker's logins has a credential, and
        then calls `recheck`."""

        def changed() -> None:
            self._access.review_user(self._metadata.scram)
            recheck()

        return changed

    def on_metadata(self) -> None:
        self.suspects.review()
        self.failure_detector.review()

    def hand_over(self, led_partitions: Callable[[], Iterable[Partition]], done: Callable[[], object]) -> None:
        """Hands leadership to other brokers, unregisters this broker, then calls `done`."""
        Handover(self._route, self._member, led_partitions, config=self._config, timers=self._ports.timers, done=done).begin()

    def close(self) -> None:
        self.fetchers.close()
        self.isr_changes.close()
        self.failure_detector.close()
