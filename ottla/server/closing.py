"""The clean stop of a node: finishes requests in progress, closes the coordinators, flushes and closes every log, writes checkpoints and
markers.

The stop waits until replicas are opened, syncs have ended and running requests are answered, in all at most `ottla.shutdown.timeout.ms`.
Closing the logs (`log_closing.py`) has no time limit. A log that fails takes its directory offline. The other directories are closed
cleanly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.base.broker_ports import Ports
from ottla.base.config import BrokerConfig
from ottla.base.errors import StorageError
from ottla.base.ports import Peers, TimerHandle
from ottla.replication.stage_space import StageSpace
from ottla.server.coordinators import Coordinators
from ottla.server.directories.log_directories import LogDirectoryState
from ottla.server.directories.moves import DirectoryMoves
from ottla.server.execution.waiters import Waiters
from ottla.server.flusher import Flusher
from ottla.server.housekeeping import Housekeeping
from ottla.server.inspections import Inspections
from ottla.server.listener import Listeners
from ottla.server.log_closing import LogClosing
from ottla.server.partition_table import PartitionTable
from ottla.server.replica_changes import ReplicaChanges
from ottla.sharing.persister import SharePersister
from ottla.sharing.registry import SharePartitions

if TYPE_CHECKING:
    from ottla.handlers.share_groups.dead_letters import DeadLetterCopies
    from ottla.server.cluster_links import ClusterLinks
    from ottla.server.connection import Connection

log = logging.getLogger("ottla")

STILL_MS = 2000
"""Interval in milliseconds at which a stop looks for stuck clients. A client that has received no byte of its answers in one interval is
disconnected, so that it does not delay the stop."""


class Parts(Protocol):
    """The parts of `server/node.py` that a stop needs."""

    ports: Ports
    config: BrokerConfig
    directories: list[LogDirectoryState]
    partitions: PartitionTable
    flusher: Flusher
    replicas: ReplicaChanges
    waiters: Waiters
    inspections: Inspections
    hosts: Coordinators
    share_partitions: SharePartitions
    dead_letters: DeadLetterCopies | None
    share_persister: SharePersister
    housekeeping: Housekeeping
    listeners: Listeners
    peers: Peers
    moves: DirectoryMoves
    links: ClusterLinks | None
    stages: StageSpace
    is_ready: bool


class CleanStop:
    """One stop of one node. Calls `done` with whether everything was closed cleanly."""

    def __init__(self, node: Parts, done: Callable[[bool], object]) -> None:
        self._node = node
        self._done = done
        self._next_look: TimerHandle | None = None
        self._deadline_ms = node.ports.clock.monotonic_ms() + node.config.ottla_shutdown_timeout_ms

    def begin(self) -> None:
        node = self._node
        node.is_ready = False
        node.housekeeping.stop()
        node.listeners.stop_accepting()
        node.listeners.pause_all()
        self._go_on_when(self._settled, self._close_coordinators)

    def _settled(self, function: Callable[[], None]) -> None:
        """Calls `function` when all orders of the controller are executed and no flush is in progress."""
        flusher, turns = self._node.flusher, self._node.replicas.turns

        def opened() -> None:
            if flusher.is_idle:
                function()
            else:
                look()

        def look() -> None:
            flusher.call_when_idle(lambda: turns.call_when_idle(opened))

        look()

    def _close_coordinators(self) -> None:
        node = self._node
        node.waiters.expire_all()
        if node.dead_letters is not None:
            node.dead_letters.close()
        node.share_partitions.close_all()
        node.share_persister.close()
        node.hosts.close()
        node.stages.close()
        if node.links is not None:
            node.links.close()
        node.peers.close()
        self._drop_still({})
        self._go_on_when(node.listeners.finish, self._close_connections)

    def _drop_still(self, sent_before: Mapping[Connection, int]) -> None:
        """Closes connections whose peer has taken no byte since the last look, and schedules the next look."""
        sent = {}
        for connection in list(self._node.listeners.connections):
            channel = connection.channel
            if not channel.queued_bytes:
                continue
            if sent_before.get(connection) == channel.bytes_sent:
                channel.close()
            else:
                sent[connection] = channel.bytes_sent
        self._next_look = self._node.ports.timers.call_later(STILL_MS, lambda: self._drop_still(sent))

    def _close_connections(self) -> None:
        node = self._node
        if self._next_look is not None:
            self._next_look.cancel()
        node.listeners.close_all()
        node.inspections.close()
        self._node.moves.close()
        LogClosing(node.ports, node.partitions, self._close_directories).begin()

    def _close_directories(self, is_clean: bool) -> None:
        node = self._node
        node.ports.threads.close()
        for directory in node.directories:
            if directory.is_online:
                is_clean = close_directory(directory, node.partitions) and is_clean
        self._done(is_clean)

    def _go_on_when(self, notify: Callable[[Callable[[], None]], object], step: Callable[[], None]) -> None:
        """Runs `step` when `notify` calls back, or at the deadline."""
        is_over = False

        def go_on() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                step()

        left_ms = max(self._deadline_ms - self._node.ports.clock.monotonic_ms(), 0)
        timer = self._node.ports.timers.call_later(left_ms, go_on)
        notify(go_on)


def close_directory(directory: LogDirectoryState, partitions: PartitionTable) -> bool:
    """Writes the checkpoints and, if every log in the directory is whole, the marker of a clean shutdown. Without the marker, the next
    start checks the logs. Returns False if a write failed."""
    try:
        error = directory.plan_checkpoints(partitions.all())()
        if error is not None:
            raise error
        directory.close(is_clean=partitions.is_whole(directory))
    except StorageError as failure:
        log.error("%s", failure)
        return False
    return True
