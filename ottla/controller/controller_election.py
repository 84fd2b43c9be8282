"""Elects the controller: the ephemeral node `/controller`, and the epoch that its owner writes under.

A candidate creates `/controller` and raises `/controller_epoch` in one multi, conditional on the version of the epoch that it read. The
epoch and the version that this write sets are the mandate: every write of the controller is conditional on that version, and reading the
tree again never changes it (I38). A claim with an unknown outcome counts only if `/controller` belongs to this session and the epoch node
is exactly as the claim left it. A candidate that is not elected waits until `/controller` changes.

A controller that is provably dead, although its `/controller` exists, is replaced (`take_over`). The finding stays true while the store
cannot be reached, so the takeover is tried again until another broker is the controller, or the same one under another registration.

While the epoch node cannot be read there is no controller, and the node is not changed. A log line says which number belongs there: each
write of a controller raises epoch and version by one, so the version of the node is no smaller than any epoch of a controller; if an
operator wrote the epoch, the newest epoch that this broker was sent is larger. Candidates watch the node, and try again when it changes.

An epoch that an operator writes ends the mandate of the present controller at its next write. `/controller` is still its own then, and it
claims the office again, above that epoch.
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
        """`newest_epoch`: the largest that controllers have sent this broker, which obeys no smaller one any more."""
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
        """Ends the mandate, which another write has ended already, and tries to be elected again."""
        if self._mandate is not None:
            self._claim = None
            self._lose()
            self.run()

    def take_over(self, broker_id: int, broker_epoch: int) -> None:
        """Takes over from a controller that is provably dead while its `/controller` exists. Has no effect if another broker is the
        controller by now, or if the dead one has registered again."""
        if self._mandate is None:
            self._gone = (broker_id, broker_epoch)
            self._round.start(self._stand(self._take_over))

    def lapse(self) -> None:
        """Ends the mandate because the session may have ended, until the store shows the owner of `/controller`. If this session still owns
        it, and the epoch is as the claim left it, the mandate continues."""
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
        """Makes attempts, beginning with this one, until there is a controller."""
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
        """`/controller` is this session's: elects this broker if the epoch is still as its claim left it, else claims the office again. A
        successor changes both nodes in one write. So the epoch is read first, and the claim fails if there is a successor."""
        epoch, controller = yield from read_in_order(self._store, [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER])
        claim = self._claim
        if controller is None or controller.ephemeral_owner != self._store.session_id():
            return True
        if claim is not None and epoch is not None and _is_as_claimed(epoch, claim):
            self._elect(claim)
            return True
        if epoch is None or _epoch_of(epoch) is not None:
            return (yield from self._claim_office(epoch, [Delete(znodes.CONTROLLER)]))
        # Every candidate logs the damage then, and waits until it is mended.
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
        """`node`: the epoch as it was read; `before`: the operations that remove the present `/controller`."""
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
        return False  # The next attempt watches the own node: somebody may remove it.

    def _wait_for_epoch(self, damaged: StoreNode) -> Procedure[bool]:
        """Watches an epoch that cannot be read."""
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
        """Returns whether the write has happened; False if a node is not as it was read."""
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
    """None if it cannot be read."""
    try:
        return znodes.read_controller_epoch(node.data)
    except znodes.NodeError:
        return None
