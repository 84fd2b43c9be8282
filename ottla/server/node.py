"""One broker: creates its parts, starts and stops them in order, and handles their failures.

It uses clock, disk, network and threads only through its ports (`base/ports.py`): real ones in production (`app.py`), simulated ones in
`tests/sim`. An import contract checks that this module and the modules that it uses import none of them directly.

The constructor claims the log directories and creates the parts. `start` binds the listeners, registers in the metadata store and accepts
connections. Then the controller sends this broker its replicas: logs are recovered, and coordinators load. `stop` hands leadership over and
then stops by `closing.py`. A failed read, write or sync takes the log directory offline. A damaged log is taken offline without its
directory. A broken invariant is passed to `on_broken_invariant`, which ends the process without the clean-shutdown marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.base.broker_ports import Ports
from ottla.base.cluster_metadata import NO_LEADER, BrokerMetadata, LogDirectoryHistory, QuotaEntity, Renewal
from ottla.base.config import BrokerConfig, Endpoint
from ottla.base.control_messages import ControlMessage
from ottla.base.errors import DamagedLogError, ErrorCode, StorageError
from ottla.base.loop.fair_slots import SESSION_PARTITION_BYTES
from ottla.base.ports import Peers
from ottla.base.settings.access import parse_super_users
from ottla.base.types import SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.cluster.broker_addresses import BrokerAddresses
from ottla.cluster.control.inbox import ControlInbox
from ottla.cluster.controller_link import ControllerLink
from ottla.cluster.member import ClusterMember
from ottla.cluster.metadata_cache import MetadataCache
from ottla.cluster.password_upkeep import PasswordUpkeep
from ottla.cluster.peer_share_states import PeerShareStates
from ottla.cluster.peer_transactions import PeerTransactions
from ottla.cluster.registration import Registration
from ottla.controller.api import NewTopic, TopicResult
from ottla.controller.internal_topics import InternalTopics
from ottla.groups.coordinator import GroupCoordinator
from ottla.handlers.context import Broker, ConnectionInfo, ForwardedAnswer
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.follower_sessions import FollowerSessions
from ottla.replication.leader import Leader
from ottla.replication.partition import Partition
from ottla.replication.stage_space import StageSpace
from ottla.security.audit import AuditLog
from ottla.security.authorizer import AllowClients
from ottla.server.closing import CleanStop
from ottla.server.coordinator_views import (
    MetadataLeaders,
    MetadataTopics,
    group_settings,
    own_group_settings,
    share_state_settings,
    share_terms,
    transaction_settings,
)
from ottla.server.coordinators import CoordinatorMemories, Coordinators
from ottla.server.directories.claims import claim_directories, note_start
from ottla.server.directories.cordons import cordon, file_cordons
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.directories.moves import DirectoryMoves
from ottla.server.execution.dispatch import Dispatcher
from ottla.server.execution.frame_watch import FrameWatch
from ottla.server.execution.waiters import Waiters
from ottla.server.flusher import Flusher
from ottla.server.housekeeping import Housekeeping
from ottla.server.inspections import Inspections
from ottla.server.listener import Listeners, no_mechanisms
from ottla.server.partition_table import SEALED_FILES_MAX, PartitionTable
from ottla.server.peers import BrokerPeers
from ottla.server.replica_changes import NoFetchers, ReplicaChanges
from ottla.sharing.dead_letters import Copied, DeadLetters
from ottla.sharing.persister import OtherShareCoordinators, SharePersister
from ottla.sharing.pruning import Pruner
from ottla.sharing.registry import SharePartitions
from ottla.sharing.sessions import ShareSessions
from ottla.sharing.state_coordinators import ShareStateCoordinators
from ottla.storage.log import Log
from ottla.telemetry.clients import ReportingClients
from ottla.telemetry.subscriptions import Subscriptions
from ottla.transactions.coordinators import TransactionCoordinators
from ottla.transactions.markers import IsDeleted, LocalMarkers, MarkerDelivery, always_deleted
from ottla.transactions.producer_ids import ProducerIds
from ottla.transactions.remote import OtherCoordinators

if TYPE_CHECKING:
    from ottla.handlers.share_groups.dead_letters import DeadLetterCopies
    from ottla.replication.isr import IsrProposal
    from ottla.replication.state import PartitionState
    from ottla.security.acl_authorizer import AclAuthorizer
    from ottla.security.mechanisms import ListenerMechanisms
    from ottla.server.cluster_links import ClusterLinks
    from ottla.server.quotas.enforcement import Quotas

log = logging.getLogger("ottla")

CONNECTIONS_MAX = 1 << 30
TELEMETRY_PART = 128
"""Divisor of `ottla.memory.max.bytes` for the metrics of clients. 128: 8 MiB by default, some 30,000 series."""
EVERY_ADDRESS = ("", "0.0.0.0", "::")


class Node:
    """One broker. `directories` are locked, in the order of `log.dirs`."""

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        directories: Sequence[LogDirectoryState],
        *,
        on_broken_invariant: Callable[[AssertionError], None],
        store_name: str = "the metadata store",
        cluster_id: str = "",
        files_max: int = SEALED_FILES_MAX,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """`cluster_id` is empty for the embedded metadata store, which is read here. Raises `StorageError` if the directories cannot be
        claimed."""
        self.ports = ports
        self.config = config
        self.directories = list(directories)
        self.is_ready = False
        self.endpoints: list[Endpoint] = []
        self.advertised: dict[str, tuple[str, int]] = {}
        self.cluster_id = claim_directories(ports, config, self.directories, store_name, cluster_id)
        self.metadata = MetadataCache(now_ms=ports.clock.monotonic_ms)
        self.metadata.is_of_cluster = not config.is_single_broker
        self.waiters = Waiters(ports.clock, ports.timers)
        self.inspections = Inspections(ports.threads, ports.timers)
        self.flusher = Flusher(ports.threads.run, self._partition_failed, ports.clock.nanoseconds)
        # All partitions share these bound methods; one for each would take 128 bytes.
        self._request_flush, self._on_partition_failed = self.flusher.request, self._partition_failed
        self._note_starts: Callable[[], None] = lambda: self.housekeeping.note_log_starts()  # noqa: PLW0108 (it is made later)
        self._broker_epoch_of = self.metadata.broker_epoch
        self.partitions = PartitionTable(
            ports.disk, ports.ages.clock, self.directories, self._make_partition,
            metadata=self.metadata, files_max=files_max, producers_max=lambda: config.ottla_producers_max,
        )  # fmt: skip
        self._addresses = BrokerAddresses(config, self._known_broker)
        self.links = None if config.is_single_broker else self._make_links()
        self.peers = self.links.peers if self.links is not None else self._make_peers()
        self.audit = AuditLog(ports.clock, logs_granted=config.ottla_audit_granted)
        self.acl_authorizer = self._make_acl_authorizer()
        self.peers.start(self._addresses.find)
        self.stages = StageSpace(config=config, disk=ports.disk, ages=ports.ages, remove_later=self._remove_files)
        self._make_coordinators()
        self._make_controller()
        self.frames = FrameWatch(ports.clock, ports.timers)
        self.broker = self._make_broker()
        self.dispatcher = Dispatcher(self.broker, self.waiters, self.links.forwarder if self.links is not None else None)
        self.mechanisms = self._make_mechanisms()
        self.listeners = Listeners(
            ports.network, config, self.dispatcher, self.storage_failed, on_broken_invariant, connections_max=connections_max,
            mechanisms=self.mechanisms.of if self.mechanisms is not None else no_mechanisms, audit=self.audit)  # fmt: skip
        self.frames.attach(self.dispatcher, self.listeners)
        self.metadata.on_credentials = self.listeners.recheck if self.links is None else self.links.reviewing(self.listeners.recheck)
        self.housekeeping = Housekeeping(
            ports=ports, config=config, partitions=self.partitions, replicas=self.replicas, listeners=self.listeners,
            flusher=self.flusher, peers=self.peers, metadata=self.metadata,
        )  # fmt: skip
        cordon(config, self.directories)
        config.on_change(lambda _names: self._reconfigure())
        self.quotas: Quotas | None = None
        self.metadata.on_quotas = self._on_quotas
        self._on_quotas()

    # The parts

    def _make_links(self) -> ClusterLinks:
        from ottla.server.cluster_links import ClusterLinks  # imported on use: not needed by a single broker

        return ClusterLinks(
            self.ports, self.config, self.metadata, broker_epoch=self._broker_epoch, epoch_of=self._epoch_of, is_current=self._is_current
        )

    def _make_peers(self) -> Peers:
        """Creates the peers of a single broker, which has no addresses of other brokers."""
        ports, config = self.ports, self.config
        if ports.peers is not None:
            return ports.peers
        client_id = f"broker-{config.this_broker_id}"
        return BrokerPeers(ports.network, ports.clock, ports.timers, client_id=client_id, timeout_ms=lambda: config.request_timeout_ms)

    def _make_acl_authorizer(self) -> AclAuthorizer | None:
        config = self.config
        if not config.authorizer_class_name:
            return None
        from ottla.security.acl_authorizer import AclAuthorizer  # imported on use: not needed without an authorizer

        super_users = parse_super_users(config.super_users)
        return AclAuthorizer(self.audit, super_users=super_users, allows_without_rules=config.allow_everyone_if_no_acl_found)

    def _make_coordinators(self) -> None:
        config, (clock, timers) = self.config, self.ports.ages
        topics, leaders = MetadataTopics(self.metadata), MetadataLeaders(self.metadata)
        memories = CoordinatorMemories(config.ottla_memory_max_bytes)
        self.share_states = ShareStateCoordinators(
            partition_count=lambda: self._partition_count(SHARE_GROUP_STATE_TOPIC), topics=topics, settings=share_state_settings(config),
            clock=clock, timers=timers, load_bytes=lambda: config.share_coordinator_load_buffer_size,
            prune=lambda partition: Pruner(partition.leader, lambda: self.flusher.request(partition)),
            is_lease_held=self._is_lease_held, memory=memories.share_states,
        )  # fmt: skip
        other_share_coordinators = OtherShareCoordinators(
            config.this_broker_id, lambda shard: leaders.leader_of(SHARE_GROUP_STATE_TOPIC, shard), PeerShareStates(self.peers)
        )
        self.dead_letters: DeadLetterCopies | None = None
        self.share_persister = SharePersister(self.share_states, self._ensure_internal_topic, self.ports.timers, other_share_coordinators)
        self.share_partitions = SharePartitions(
            persister=self.share_persister, clock=clock, timers=timers, terms_of=share_terms(config, self.metadata),
            memory=memories.share_partitions, in_turn=self.waiters.turns.call_in_turn, copy_dead_letters=self._copy_dead_letters,
        )  # fmt: skip
        self.groups = GroupCoordinator(
            clock=clock, timers=timers, random=self.ports.random, topics=topics, settings=group_settings(config),
            load_bytes=lambda: config.offsets_load_buffer_size, own_settings=own_group_settings(config, self.metadata),
            persister=self.share_persister, memory=memories.groups, offset_memory=memories.offsets,
        )  # fmt: skip
        markers = LocalMarkers(self.partitions.get, self.groups.apply_marker, clock)
        peer_transactions = PeerTransactions(self.peers)
        self.transactions = TransactionCoordinators(
            partition_count=lambda: self._partition_count(TRANSACTION_STATE_TOPIC), group_partition=self.groups.partition_for,
            settings=transaction_settings(config), producer_ids=ProducerIds(self.ports.store, config.this_broker_id),
            markers=MarkerDelivery(config.this_broker_id, markers, leaders, peer_transactions, self.ports.timers, self._is_deleted()),
            local_markers=markers, elsewhere=OtherCoordinators(config.this_broker_id, leaders, peer_transactions), clock=clock,
            timers=timers, load_bytes=lambda: config.transaction_state_log_load_buffer_size, memory=memories.transactional_ids,
        )  # fmt: skip
        self.hosts = Coordinators(self.groups, self.transactions, self.share_states)

    def _copy_dead_letters(self, letters: DeadLetters, done: Copied) -> None:
        if self.dead_letters is None:
            from ottla.handlers.share_groups.dead_letters import DeadLetterCopies  # imported on use: few brokers have dead letters

            self.dead_letters = DeadLetterCopies(self.broker, self.peers, self.ports.threads, self.ports.timers)
        self.dead_letters.copy(letters, done)

    def _is_deleted(self) -> IsDeleted:
        return always_deleted if self.links is None else self.links.is_deleted

    def _make_controller(self) -> None:
        ports, config = self.ports, self.config
        self.moves = DirectoryMoves(
            config=config, clock=ports.clock, timers=ports.timers, random=ports.random, threads=ports.threads, disk=ports.disk,
            partitions=self.partitions, remove_later=self._remove_later, fail=self._directory_failed,
        )  # fmt: skip
        self.replicas = ReplicaChanges(
            config=config, clock=ports.ages.clock, timers=ports.timers, partitions=self.partitions, metadata=self.metadata,
            hosts=self.hosts, groups=self.groups, share_states=self.share_states,
            share_partitions=self.share_partitions, moves=self.moves, remove_later=self._remove_later,
            fetchers=self.links.fetchers if self.links is not None else NoFetchers(),
        )  # fmt: skip
        self.member = ClusterMember(
            store=ports.store, config=config, clock=ports.clock, timers=ports.timers, ages=ports.ages, random=ports.random,
            metadata=self.metadata, replicas=self.replicas, later=self.replicas.turns.call_next,
            remote=self.links.messenger if self.links is not None else None, acl_table=self.acl_authorizer,
        )  # fmt: skip
        self.controller = self.member.controller
        self.route = ControllerLink(
            self.controller, broker_id=config.this_broker_id, metadata=self.metadata, peers=self.peers, timers=ports.timers,
            timeout_ms=lambda: config.request_timeout_ms, is_alone=config.is_single_broker,
        )  # fmt: skip
        self.member.on_own_settings = PasswordUpkeep(config, self.metadata, self.route, random=ports.random, timers=ports.timers).review
        self._propose_isr: Callable[[PartitionState, IsrProposal], None] | None = None
        if self.links is not None:
            self.links.attach(self.member, self.route, locate=self._addresses.find, watched=self._watched, leader_of=self._leader_of)
            self._propose_isr = self.links.isr_changes.propose
        self.replicas.on_metadata = self._on_metadata
        self.replicas.on_replicas = self.member.report_replicas
        self.internal_topics = InternalTopics(self.route, self.metadata, config)

    def _on_metadata(self) -> None:
        if self.links is not None:
            self.links.on_metadata()
        self.member.review_reports()

    def _watched(self) -> list[int]:
        """Returns the brokers to watch for their end: all others on the controller, only the controller on other brokers."""
        own = self.config.this_broker_id
        if self.controller.is_active:
            return [broker_id for broker_id in self.metadata.brokers if broker_id != own]
        controller_id = self.metadata.controller_id
        return [] if controller_id in (own, NO_LEADER) else [controller_id]

    def _is_current(self, broker_id: int, message: ControlMessage) -> bool:
        return self.member.is_current(broker_id, message)

    def _make_mechanisms(self) -> ListenerMechanisms | None:
        """Creates the SASL mechanisms of the listeners. Returns None if no listener uses SASL."""
        if not any(endpoint.is_authenticated_by_sasl for endpoint in self.config.endpoints):
            return None
        from ottla.cluster.cluster_secret import ClusterSecret
        from ottla.security.mechanisms import ListenerMechanisms

        read_secret = ClusterSecret(self.ports.store, self.ports.random).read
        return ListenerMechanisms(self.config, self.ports, lambda: self.metadata.scram, read_secret, self.member.find_token)

    def _make_broker(self) -> Broker:
        ports, config = self.ports, self.config
        session_partitions = config.ottla_memory_max_bytes // SESSION_PARTITION_BYTES
        self.follower_sessions = FollowerSessions(lambda: config.leader_replication_throttled_rate)
        return Broker(
            broker_id=config.this_broker_id, config=config, clock=ports.ages.clock, timers=ports.timers, ages=ports.ages,
            random=ports.random, metadata=self.metadata, controller=self.controller, controller_link=self.route,
            peers=self.peers, control=ControlInbox(self.member.receiver), forwarded=self,
            cluster_identity=self.links.identity if self.links is not None else None,
            partitions=self.partitions, groups=self.groups, transactions=self.transactions, share_states=self.share_states,
            share_persister=self.share_persister, share_partitions=self.share_partitions,
            share_sessions=ShareSessions(
                self.share_partitions, config.group_share_max_share_sessions, session_partitions, self.waiters.turns
            ),
            internal_topics=self.internal_topics, waiters=self.waiters, inspections=self.inspections,
            fetch_sessions=FetchSessions(ports.random, config.max_incremental_fetch_session_cache_slots, session_partitions),
            stages=self.stages, authorizer=AllowClients() if self.acl_authorizer is None else self.acl_authorizer, audit=self.audit,
            reporting_clients=ReportingClients(
                Subscriptions(self.metadata), ports.ages.clock, ports.random, config.ottla_memory_max_bytes // TELEMETRY_PART
            ),
            acl_rules=self.member.acl_rules, delegation_tokens=self.member.delegation_tokens, follower_sessions=self.follower_sessions,
            directory_moves=self.moves, frames=self.frames, isr_changes=self.links.isr_changes if self.links is not None else None,
            suspects=self.links.suspects if self.links is not None else None,
            lease=self.member.lease if self.member.lease.may_lapse else None,
        )  # fmt: skip

    def _make_partition(self, opened: Log, high_watermark: int) -> Partition:
        config = self.config
        partition = Partition(
            opened, broker_id=config.this_broker_id, high_watermark=high_watermark, is_flush_on_ack=config.is_flush_on_ack(opened.config),
            request_flush=self._request_flush, is_verification_required=config.transaction_partition_verification_enable,
        )  # fmt: skip
        partition.on_storage_error = self._on_partition_failed
        state = partition.state
        state.broker_epoch_of, state.on_isr_proposal, state.request_checkpoint = self._broker_epoch_of, self._propose_isr, self._note_starts
        state.on_short_leader = self.member.report_short_leader
        return partition

    # Life

    def start(self, on_ready: Callable[[], object], on_refused: Callable[[str], object]) -> None:
        """Starts the broker. Calls `on_ready` when a controller has sent the replicas of this broker, and the broker has opened all
        replicas that it can open. Calls `on_refused` with the reason if the registration is refused. A single broker is ready before
        `start` returns, unless the metadata store cannot be written. Raises `StorageError` or `AddressError`."""
        self.endpoints = self.listeners.bind(self.config.endpoints)

        def ready() -> None:
            self.is_ready = True
            self.dispatcher.first_metadata.arrived()
            note_start(self.ports.disk, self.config, self.directories)
            on_ready()

        self.member.call_when_ready(ready)
        self._register(on_refused)

    def begin_turns(self) -> None:
        """From now on spreads long work over iterations of the event loop."""
        for turns in (self.replicas.turns, self.stages.turns, self.housekeeping.turns):
            turns.begin()

    def stop(self, done: Callable[[bool], object]) -> None:
        """Hands leadership to other brokers, then stops cleanly. Calls `done` with whether everything was closed cleanly."""
        self.is_ready = False
        if self.links is not None:
            self.links.hand_over(self._led_partitions, lambda: CleanStop(self, done).begin())
        else:
            CleanStop(self, done).begin()

    def _led_partitions(self) -> Iterator[Partition]:
        return (partition for partition in self.partitions.all() if partition.is_leading)

    def create_topics(self, topics: Sequence[tuple[str, int]]) -> None:
        """Creates the topics that are missing (`--seed-topic`)."""
        wanted = [NewTopic(name=name, num_partitions=count) for name, count in topics if self.metadata.topic(name) is None]

        def created(results: list[TopicResult]) -> None:
            for result in results:
                if result.error:
                    log.error("topic %s was not created: %s", result.name, result.message or result.error.name)

        if wanted:
            self.route.create_topics(wanted, False, created)

    def reachable_host(self, host: str) -> str:
        """Returns the host to advertise for a listener on `host`: this machine's name if it listens on every address."""
        return self.ports.network.host_name() if host in EVERY_ADDRESS else host

    def _register(self, on_refused: Callable[[str], object]) -> None:
        self.advertised = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in self.config.advertised_endpoints}
        for endpoint in self.endpoints:
            self.advertised.setdefault(endpoint.name, (self.reachable_host(endpoint.host), endpoint.port))
        registration = Registration(
            broker_id=self.config.this_broker_id, endpoints=self.advertised, rack=self.config.broker_rack, cluster_id=self.cluster_id,
            protocols={endpoint.name: endpoint.protocol for endpoint in self.endpoints},
            incarnation=",".join(directory.directory_id for directory in self.directories if directory.directory_id),
            histories=self._histories,
            cordons=file_cordons(self.config, self.directories),
            is_clean=self._is_clean,
        )  # fmt: skip
        self.member.start(registration, on_registered=self._serve, refused=on_refused)

    def _histories(self, stored: Mapping[str, Renewal]) -> dict[str, LogDirectoryHistory]:
        named = {directory.directory_id: directory for directory in self.directories if directory.directory_id}
        return {key: directory.history(stored.get(key), self.ports.random) for key, directory in named.items()}

    def _is_clean(self) -> bool:
        """Whether the log directories are proved to have lost no records. See `Registration.is_clean`."""
        return all(directory.is_proved and directory.is_claimed and not directory.has_failed for directory in self.directories)

    def _serve(self) -> None:
        """Accepts connections, through which a controller on another broker sends this broker its replicas."""
        self.housekeeping.start()
        if self.mechanisms is not None:
            self.mechanisms.prepare(self.endpoints)
        self.listeners.start()

    # Failures

    def storage_failed(self, error: StorageError) -> None:
        """Handles a failed read outside of a partition's methods: finds the partition by the path, and takes its log or log directory
        offline. Only logs the error if no partition has this path."""
        for partition in self.partitions.all():
            if f"{error.path}/".startswith(f"{partition.log.directory}/"):
                self._partition_failed(partition, error)
                return
        log.error("%s", error)

    def _partition_failed(self, partition: Partition, error: StorageError) -> None:
        """Takes the directory of a failed log offline, and closes the coordinators of its partitions; of a damaged log only the log."""
        if isinstance(error, DamagedLogError):
            log.error("%s goes offline: %s", partition.topic_partition, error)
            self.hosts.resign(*partition.topic_partition)
            self.replicas.stop_fetching(partition.topic_partition)
            self.replicas.mark_offline([partition.topic_partition])
            self.housekeeping.repairs.doubt(partition, error.path)
            return
        self._directory_failed(self.partitions.directory_of(partition), str(error))

    def _directory_failed(self, directory: LogDirectoryState, reason: str) -> None:
        stopped = [found.topic_partition for found in self.partitions.take_offline(directory, reason)]
        self.moves.on_offline(directory)
        for key in stopped:
            self.hosts.resign(*key)
            self.replicas.stop_fetching(key)
        self.replicas.mark_offline(stopped)

    # For the parts

    def execute_forwarded(self, request: bytes, client: ConnectionInfo, done: ForwardedAnswer) -> None:
        """Implements `handlers.context.ForwardedRequests`."""
        self.dispatcher.execute_forwarded(request, client, done)

    def _remove_later(self, path: str, delay_ms: int) -> None:
        self.housekeeping.remove_tree_later(path, delay_ms)

    def _remove_files(self, paths: list[str]) -> None:
        self.housekeeping.remove_later(paths, 0)

    def _reconfigure(self) -> None:
        cordon(self.config, self.directories)
        if self.links is not None:
            self.links.fetchers.configure()
        self.replicas.configure_all()
        self.groups.configure(group_settings(self.config))
        self.transactions.configure(transaction_settings(self.config))
        self.share_states.configure(share_state_settings(self.config))
        self.listeners.recheck()
        self._on_quotas(())

    def _on_quotas(self, changed: Collection[QuotaEntity] | None = None) -> None:
        """Applies changed quotas of these entities (None for all) and connection rates."""
        quotas = self.metadata.quotas
        if self.quotas is None:
            if not quotas and not self.config.of_listeners.has_connection_rates(self.config.endpoints):
                return
            from ottla.server.quotas.enforcement import Quotas  # imported on use: not needed without quotas

            self.quotas, changed = Quotas(self.broker, self.dispatcher, self.listeners), None
        self.quotas.update(quotas, changed)

    def _is_lease_held(self) -> bool:
        return self.member.lease.is_held()

    def _broker_epoch(self) -> int:
        return self.member.broker_epoch()

    def _leader_of(self, key: tuple[bytes, int]) -> Leader | None:
        partition = self.partitions.get_by_id(*key)
        return None if partition is None else partition.leader

    def _ensure_internal_topic(self, topic: str, done: Callable[[ErrorCode], None]) -> None:
        self.internal_topics.ensure(topic, done)

    def _epoch_of(self, broker_id: int) -> int:
        known = self._known_broker(broker_id)
        return known.epoch if known is not None else -1

    def _known_broker(self, broker_id: int) -> BrokerMetadata | None:
        """Returns a broker's registration from the controller's state if this broker is the controller, else from the metadata."""
        brokers = self.controller.state.brokers if self.controller.is_active else self.metadata.brokers
        return brokers.get(broker_id)

    def _partition_count(self, topic: str) -> int:
        return 0 if (known := self.metadata.topic(topic)) is None else len(known.partitions)
