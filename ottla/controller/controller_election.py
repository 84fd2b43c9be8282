"""Elects the controller: the ephemeral node `/controller`, and the epoch that its owner writes under.

A candidate creates `/controller` and raises `/controller_epoch` in one multi, conditional on the version of the epoch that it read. The
epoch and the version that this write sets are the mandate: every write of the controller is conditional on that version, and reading the
tree again never changes it (I38). A claim with an unknown outcome counts only if `/controller` belongs to this session and the epoch node
is exactly as the claim left it. A candidate that is not elected waits until `/controller` changes.

A controller whose process is provably dead is replaced although its `/controller` still exists (`take_over`). The takeover is tried again
while the store is unreachable, until another broker is the controller or the dead one has registered again.

While the epoch node cannot be read there is no controller, and the node is not changed. A log line gives the smallest number that an
operator may write there. Each election raises epoch and version by one, so the version of the damaged node is at least the newest epoch. If
an operator had raised the epoch, the newest epoch that this broker was sent may be larger than the version. Candidates watch the node and
try again when it changes.

If an operator writes an epoch, the mandate of the present controller ends at its next write. The controller still owns `/controller`, so it
claims the office again with a higher epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.base.immutable import immutable
from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_reads import StoreFailure, read_in_order, read_node, write
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import (
    Check,
    Clock,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SessionEvent,
    Set,
    StoreNode,
    StoreResult,
    WatchEvent,
)
from ottla.metadata_store import znodes

log = logging.getLogger("ottla.controller")

SHOWN_BYTES = 100


@immutable
class Mandate:
    """The epoch of a controller, and the version of `/controller_epoch` that its writes check."""

    epoch: int
    version: int


class ControllerElection:
    """One candidate. `on_elected(mandate)` and `on_lost()` alternate."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        retries: StoreRetries,
        clock: Clock,
        broker_id: int,
        on_elected: Callable[[Mandate], object],
        on_lost: Callable[[], object],
        newest_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """`newest_epoch` returns the largest controller epoch that this broker has been sent; the broker refuses messages with smaller
        ones."""
        self._store = store
        self._retries = retries
        self._clock = clock
        self._broker_id = broker_id
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._newest_epoch = newest_epoch
        self._claim: Mandate | None = None
        """The last claim, which may have succeeded although its answer was lost."""
        self._mandate: Mandate | None = None
        self._gone: tuple[int, int] | None = None
        """A broker that is provably dead, and the epoch of its registration. It may be the controller."""
        self._noted: tuple[int, bytes] | None = None
        """Version and data of the damaged epoch that the last log line was about."""
        self._round = Runner()
        store.listen(self._on_session)

    def run(self) -> None:
        """Becomes a candidate: tries to be elected now, and whenever the present controller ends."""
        self._round.start(self._stand(self._attempt))

    def give_up(self) -> None:
        """Ends the mandate after a write has failed because of another epoch or an expired session. Tries to be elected again."""
        if self._mandate is not None:
            self._claim = None
            self._lose()
            self.run()

    def take_over(self, broker_id: int, broker_epoch: int) -> None:
        """Takes over from the dead controller `broker_id` while its `/controller` still exists. Has no effect if another broker is the
        controller, or if the dead broker has registered again."""
        if self._mandate is None:
            self._gone = (broker_id, broker_epoch)
            self._round.start(self._stand(self._take_over))

    def lapse(self) -> None:
        """Suspends the mandate because the session may have ended. If the store shows that this session still owns `/controller` and the
        epoch is unchanged since the claim, this broker is elected again with the same mandate."""
        if self._mandate is not None:
            self._lose()
            self.run()

    def stop(self) -> list[Operation]:
        """Ends the candidature; returns the operations that give up the office, if this broker has it."""
        self._round.cancel()
        self._claim = None
        mandate = self._mandate
        if mandate is None:
            return []
        self._lose()
        return [Check(znodes.CONTROLLER_EPOCH, mandate.version), Delete(znodes.CONTROLLER)]

    def _lose(self) -> None:
        self._mandate = None
        self._on_lost()

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._round.cancel()
            self._claim = None
            if self._mandate is not None:
                self._lose()

    def _on_change(self, event: WatchEvent) -> None:
        if event is WatchEvent.LOST:
            self._round.start(self._stand_later())
        else:
            self.run()

    # The procedure of a candidate. An attempt returns whether the candidate has to wait until a node changes, which it watches.

    def _stand_later(self) -> Procedure[None]:
        yield self._retries.again
        yield from self._stand(self._attempt)

    def _stand(self, attempt: Callable[[], Procedure[bool]]) -> Procedure[None]:
        """Repeats attempts, beginning with `attempt`, until the candidate waits for a watched node. Ends when the session has expired."""
        is_waiting = False
        while not is_waiting:
            try:
                is_waiting = yield from attempt()
            except StoreFailure as failure:
                if failure.result is StoreResult.SESSION_EXPIRED:
                    return
                yield self._retries.again
            attempt = self._attempt

    def _attempt(self) -> Procedure[bool]:
        controller = yield from self._read_watched(znodes.CONTROLLER)
        is_own = controller is not None and controller.ephemeral_owner == self._store.session_id()
        if self._mandate is not None:
            if not is_own:
                self._claim = None
                self._lose()
            return is_own
        if controller is None:
            epoch = yield from read_node(self._store, znodes.CONTROLLER_EPOCH)
            return (yield from self._claim_office(epoch, []))
        if is_own:
            return (yield from self._confirm())
        if self._gone is not None:
            return (yield from self._take_over())
        return True  # Another broker is the controller.

    def _confirm(self) -> Procedure[bool]:
        """Called when this session owns `/controller`: elects this broker if the epoch is unchanged since its claim, else claims the office
        again. A successor changes both nodes in one write. So the epoch is read first, and the claim fails if there is a successor."""
        epoch, controller = yield from read_in_order(self._store, [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        claim = self._claim
        if controller is None or controller.ephemeral_owner != self._store.session_id():
            return True
        if claim is not None and epoch is not None and _is_as_claimed(epoch, claim):
            self._elect(claim)
            return True
        if epoch is None or _epoch_of(epoch) is not None:
            return (yield from self._claim_office(epoch, [Delete(znodes.CONTROLLER)]))
        # Every candidate then logs the damage and waits until the node changes.
        yield from self._write([Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(znodes.CONTROLLER)])
        return False

    def _take_over(self) -> Procedure[bool]:
        """Claims the office of a dead controller: one write deletes and creates the node, and raises the epoch from the version that was
        read first."""
        assert self._gone is not None, "a broker is dead"
        broker_id, broker_epoch = self._gone
        paths = [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER, znodes.broker_path(broker_id)]
        epoch, controller, registration = yield from read_in_order(self._store, paths)
        if (
            epoch is not None and controller is not None and registration is not None
            and registration.czxid == broker_epoch
            and registration.ephemeral_owner == controller.ephemeral_owner != self._store.session_id()
        ):  # fmt: skip
            return (yield from self._claim_office(epoch, [Delete(znodes.CONTROLLER)]))
        self._gone = None
        return False

    def _claim_office(self, node: StoreNode | None, before: Sequence[Operation]) -> Procedure[bool]:
        """Writes a claim. `node` is the epoch's node as read; `before` has the operations that remove the present `/controller`."""
        epoch, version = (0, -1) if node is None else (_epoch_of(node), node.version)
        if node is not None and epoch is None:
            return (yield from self._wait_for_epoch(node))
        claim = Mandate(max(epoch or 0, self._newest_epoch()) + 1, version + 1)
        data = znodes.controller_epoch_bytes(claim.epoch)
        self._claim = claim
        is_done = yield from self._write([
            Create(znodes.CONTROLLER_EPOCH, data) if node is None else Set(znodes.CONTROLLER_EPOCH, data, node.version),
            *before,
            Create(znodes.CONTROLLER, znodes.controller_bytes(self._broker_id, self._clock.wall_ms()), ephemeral=True),
        ])  # fmt: skip
        if is_done:
            self._elect(claim)
        return False  # The next attempt watches this broker's own node, which an operator may remove.

    def _wait_for_epoch(self, damaged: StoreNode) -> Procedure[bool]:
        """Logs a damaged epoch once, and watches its node. Returns whether the node is still the damaged one."""
        if self._noted != (damaged.version, damaged.data):
            self._noted = (damaged.version, damaged.data)
            log.error(
                "%s in the metadata store is damaged: it holds %s; there is no controller until the number of the last epoch is written "
                "there, or a larger one: at least %d",
                znodes.CONTROLLER_EPOCH, repr(damaged.data[:SHOWN_BYTES]), max(damaged.version, self._newest_epoch()),
            )  # fmt: skip
        node = yield from self._read_watched(znodes.CONTROLLER_EPOCH)
        return node is not None and node.version == damaged.version

    def _read_watched(self, path: str) -> Procedure[StoreNode | None]:
        return (yield from read_node(self._store, path, watch=self._round.bound(self._on_change)))

    def _write(self, operations: Sequence[Operation]) -> Procedure[bool]:
        """Returns True if the write was executed, False if a node has changed since it was read. Raises `StoreFailure` otherwise."""
        outcome = yield from write(self._store, operations)
        if outcome.result in (StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS, StoreResult.NO_NODE):
            return False
        if outcome.result is not StoreResult.OK:
            raise StoreFailure(outcome.result)
        return True

    def _elect(self, mandate: Mandate) -> None:
        self._mandate = mandate
        self._gone = None
        self._noted = None
        self._on_elected(mandate)


def _is_as_claimed(epoch: StoreNode, claim: Mandate) -> bool:
    return (epoch.version, epoch.data) == (claim.version, znodes.controller_epoch_bytes(claim.epoch))


def _epoch_of(node: StoreNode) -> int | None:
    """Returns the epoch in the node, or None if the node is damaged."""
    try:
        return znodes.read_controller_epoch(node.data)
    except znodes.NodeError:
        return None
