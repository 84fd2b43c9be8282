"""Fake connections to other brokers: they keep each request until the test answers it. There are fakes for requests as messages, and for
the interfaces through which coordinators ask other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.ports import DEFAULT_LANE, REFUSED, Channel, Locate
from ottla.base.types import TopicPartition
from ottla.sharing.commands import DoneResult, StateCommand
from ottla.sharing.persister import OtherShareCoordinators
from ottla.transactions.metadata import Marker, ProducerIdAndEpoch
from ottla.transactions.remote import DoneCodes, OtherCoordinators


class Asked(NamedTuple):
    """A request to another broker; the test answers it by `done(response, 0)` or `done(None, code)`."""

    broker_id: int
    request: Any
    done: Callable[[Any, int], None]
    lane: str


class HeldPeers:
    """`ports.Peers`."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.is_closed = False
        self.hang_up: Callable[[int], object] = lambda _broker_id: None

    def start(self, locate: Locate) -> None:
        pass

    def send(self, broker_id: int, request: Any, done: Callable[[Any, int], None], *, lane: str = DEFAULT_LANE) -> None:
        self.asked.append(Asked(broker_id, request, done, lane))

    def call_at_hang_up(self, function: Callable[[int], object]) -> None:
        self.hang_up = function

    def close(self) -> None:
        self.is_closed = True
        asked, self.asked = self.asked, []
        for one in asked:
            one.done(None, ErrorCode.NETWORK_EXCEPTION)


class HeldNetwork:
    """`ports.Network` whose connections are made or refused when the test says so, the oldest first."""

    def __init__(self) -> None:
        self.addresses: list[tuple[str, int]] = []
        self.attempts: list[tuple[Callable[[Any], None], Callable[[str], None]]] = []

    def connect(self, host: str, port: int, connected: Callable[[Channel], None], failed: Callable[[str], None]) -> None:
        self.addresses.append((host, port))
        self.attempts.append((connected, failed))

    def accept(self) -> None:
        """Accepts the oldest connection, and closes it on this side immediately."""
        closed: list[bool] = []
        self.attempts.pop(0)[0](SimpleNamespace(close=lambda: closed.append(True)))
        assert closed == [True]

    def fail(self, reason: str = REFUSED) -> None:
        self.attempts.pop(0)[1](reason)


class AskedToAdd(NamedTuple):
    """A request to the transaction coordinator on another broker."""

    broker_id: int
    transactional_id: str
    identity: ProducerIdAndEpoch
    partitions: list[TopicPartition]
    is_verify_only: bool
    done: DoneCodes


class AskedToMark(NamedTuple):
    """Markers for the leader of partitions on another broker."""

    broker_id: int
    marker: Marker
    partitions: list[TopicPartition]
    done: DoneCodes


class HeldPeerTransactions:
    """`transactions.remote.PeerCoordinators` and `transactions.markers.PeerMarkers`."""

    def __init__(self) -> None:
        self.added: list[AskedToAdd] = []
        self.marked: list[AskedToMark] = []

    def add_partitions(
        self,
        broker_id: int,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        is_verify_only: bool,
        done: DoneCodes,
    ) -> None:
        self.added.append(AskedToAdd(broker_id, transactional_id, identity, [*partitions], is_verify_only, done))

    def write_markers(self, broker_id: int, marker: Marker, partitions: Sequence[TopicPartition], done: DoneCodes) -> None:
        self.marked.append(AskedToMark(broker_id, marker, [*partitions], done))


class HeldPeerShareStates:
    """`sharing.persister.PeerShareCoordinators`."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, StateCommand, DoneResult]] = []

    def ask(self, broker_id: int, command: StateCommand, done: DoneResult) -> None:
        self.asked.append((broker_id, command, done))


class NoLeaders:
    """`transactions.remote.Leaders` that knows no other broker."""

    def leader_of(self, topic: str, partition: int) -> int | None:
        return None


NO_OTHER_COORDINATORS = OtherCoordinators(1, NoLeaders(), HeldPeerTransactions())
NO_OTHER_SHARE_COORDINATORS = OtherShareCoordinators(1, lambda _shard: None, HeldPeerShareStates())
