"""Elects the controller: the ephemeral node `/controller`, and the epoch that its owner writes under.

A candidate creates `/controller` and raises `/controller_epoch` in one multi, conditional on the version of the epoch that it read. The
epoch and the version that this write sets are the mandate: every write of the controller is conditional on that version, and reading the
tree again never changes it (I38). A claim with an unknown outcome counts only if `/controller` belongs to this session and the epoch node
is exactly as the claim left it. A candidate that is not elected waits until `/controller` changes.

A controller that is provably dead, although its `/controller` exists, is replaced (`take_over`). The finding stays true while the store
cannot be reached, so the takeover is tried again until another broker is the controller, or the same one under another registration.

While the epoch node cannot be read there is no controller, and the node is not changed. A log line says which number belongs there: each
write of a controller raises epoch and version by one, so the version of the node is no smaller than any epoch of a controller; if an
operator wrote the epoch, the newest epoch that this broker was sent is larger. Candidates watch the node, and stand again when it changes.

An epoch that an operator writes ends the mandate of the present controller at its next write. `/controller` is still its own then, and it
claims the office again, above that epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from ottla.base.immutable import immutable
from ottla.base.loop.store_retries import StoreRetries
from ottla.base.ports import (
    Check,
    Clock,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Outcome,
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
        self._mandate: Mandate | None = None
        self._gone: tuple[int, int] | None = None  # a broker and the epoch of its registration: perhaps the controller
        self._noted: tuple[int, bytes] | None = None
        """Version and data of the damaged epoch that the last line was about."""
        self._round = 0
        store.listen(self._on_session)

    def run(self) -> None:
        """Stands for election, now or when the present controller ends."""
        self._round += 1
        number = self._round
        self._store.get(
            znodes.CONTROLLER,
            lambda result, node: self._on_controller(result, node) if number == self._round else None,
            watch=lambda event: self._on_change(event) if number == self._round else None,
        )

    def give_up(self) -> None:
        """Ends the mandate, which another write has ended already, and stands again."""
        if self._mandate is not None:
            self._mandate = self._claim = None
            self._on_lost()
            self.run()

    def take_over(self, broker_id: int, broker_epoch: int) -> None:
        """Takes over from a controller that is provably dead while its `/controller` exists: one write deletes and creates the node and
        raises the epoch from the version that was read first. Without effect if another broker is the controller by now, or the dead one
        has registered again."""
        if self._mandate is not None:
            return
        self._gone = (broker_id, broker_epoch)
        self._round += 1
        number = self._round
        paths = [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER, znodes.broker_path(broker_id)]
        found: dict[str, StoreNode] = {}

        def read(path: str, result: StoreResult, node: StoreNode | None) -> None:
            if number != self._round:
                return
            if node is None:
                if result is StoreResult.NO_NODE:
                    self._gone = None
                self.run()
                return
            found[path] = node
            if len(found) < len(paths):
                return
            epoch, controller, registration = (found[path] for path in paths)
            is_its = controller.ephemeral_owner == registration.ephemeral_owner
            if registration.czxid == broker_epoch and is_its and controller.ephemeral_owner != self._store.session_id():
                self._claim_office(epoch, [Delete(znodes.CONTROLLER)])
            else:
                self._gone = None
                self.run()

        for path in paths:  # answered in this order, so what is read later is not older than the epoch
            self._store.get(path, partial(read, path))

    def stop(self) -> list[Operation]:
        """Ends the candidature; returns the operations that give up the office, if this broker has it."""
        self._round += 1
        mandate, self._mandate, self._claim = self._mandate, None, None
        if mandate is None:
            return []
        self._on_lost()
        return [Check(znodes.CONTROLLER_EPOCH, mandate.version), Delete(znodes.CONTROLLER)]

    def lapse(self) -> None:
        """Ends the mandate because the session may have ended, until the store shows the owner of `/controller`. If this session still owns
        it, and the epoch is as the claim left it, the mandate continues."""
        if self._mandate is not None:
            self._mandate = None
            self._on_lost()
            self.run()

    def _on_session(self, event: SessionEvent) -> None:
        if event is not SessionEvent.EXPIRED:
            return
        self._round += 1
        self._claim = None
        if self._mandate is not None:
            self._mandate = None
            self._on_lost()

    def _on_change(self, event: WatchEvent) -> None:
        if event is WatchEvent.LOST:
            self._retries.again(self.run)
        else:
            self.run()

    def _on_controller(self, result: StoreResult, node: StoreNode | None) -> None:
        if result is StoreResult.NO_NODE:
            if self._mandate is not None:
                self.give_up()
            else:
                self._read_epoch()
        elif node is None:
            self._retry(result)
        elif node.ephemeral_owner == self._store.session_id():
            self._confirm()
        elif self._mandate is not None:
            self.give_up()
        elif self._gone is not None:
            self.take_over(*self._gone)
        # Else another broker is the controller; the watch is called when that changes.

    def _confirm(self) -> None:
        """`/controller` is this session's: elected, if the epoch is still as the claim left it."""
        if self._mandate is not None:
            return
        if self._claim is None:
            self._renew()
            return
        claim, number = self._claim, self._round

        def confirmed(result: StoreResult, node: StoreNode | None) -> None:
            if number != self._round or self._mandate is not None:
                return
            if node is None:
                self._retry(result)
            elif (node.version, node.data) == (claim.version, znodes.controller_epoch_bytes(claim.epoch)):
                self._elect(claim)
            else:
                self._renew()

        self._store.get(znodes.CONTROLLER_EPOCH, confirmed)

    def _renew(self) -> None:
        """Claims the office again, if `/controller` still belongs to this session though the epoch has changed. The epoch is read first: a
        successor changes both in one write, so the claim fails if there is one."""
        number = self._round
        epochs: list[StoreNode | None] = []

        def read_epoch(result: StoreResult, node: StoreNode | None) -> None:
            if number != self._round:
                return
            if node is None and result is not StoreResult.NO_NODE:
                self._retry(result)
                return
            epochs.append(node)
            self._store.get(znodes.CONTROLLER, read_controller)

        def read_controller(result: StoreResult, node: StoreNode | None) -> None:
            if number != self._round:
                return
            if node is not None and node.ephemeral_owner == self._store.session_id():
                self._claim_again(epochs[0])
            elif node is None and result is not StoreResult.NO_NODE:
                self._retry(result)
            # Else the watch is called.

        self._store.get(znodes.CONTROLLER_EPOCH, read_epoch)

    def _claim_again(self, epoch: StoreNode | None) -> None:
        """Gives `/controller` away instead if the epoch cannot be read: every candidate says so then, and waits until it is mended."""
        if epoch is None or _epoch_of(epoch) is not None:
            self._claim_office(epoch, [Delete(znodes.CONTROLLER)])
            return
        number = self._round
        self._store.multi(
            [Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(znodes.CONTROLLER)],
            lambda outcome: self._retry(outcome.result) if number == self._round else None,
        )

    def _read_epoch(self) -> None:
        number = self._round
        self._store.get(
            znodes.CONTROLLER_EPOCH, lambda result, node: self._stand(result, node) if number == self._round else None
        )

    def _stand(self, result: StoreResult, node: StoreNode | None) -> None:
        if node is None and result is not StoreResult.NO_NODE:
            self._retry(result)
            return
        self._claim_office(node, [])

    def _claim_office(self, node: StoreNode | None, before: Sequence[Operation]) -> None:
        """`node`: the epoch as it was read; `before`: what makes room for `/controller`."""
        claim = Mandate(1, 0)
        if node is not None:
            epoch = _epoch_of(node)
            if epoch is None:
                self._wait_for_epoch(node)
                return
            claim = Mandate(max(epoch, self._newest_epoch()) + 1, node.version + 1)
        data = znodes.controller_epoch_bytes(claim.epoch)
        operations: list[Operation] = [
            Create(znodes.CONTROLLER_EPOCH, data) if node is None else Set(znodes.CONTROLLER_EPOCH, data, node.version),
            *before,
            Create(znodes.CONTROLLER, znodes.controller_bytes(self._broker_id, self._clock.wall_ms()), ephemeral=True),
        ]
        self._claim = claim
        number = self._round
        self._store.multi(operations, lambda outcome: self._on_claimed(outcome, claim) if number == self._round else None)

    def _on_claimed(self, outcome: Outcome, claim: Mandate) -> None:
        if outcome.result is StoreResult.OK:
            self._elect(claim)
            self.run()  # watches the own node: it may be removed
        elif outcome.result in (StoreResult.BAD_VERSION, StoreResult.NODE_EXISTS, StoreResult.NO_NODE):
            self.run()
        else:
            self._retry(outcome.result)

    def _wait_for_epoch(self, damaged: StoreNode) -> None:
        """Until the epoch is another than this one, which cannot be read."""
        if self._noted != (damaged.version, damaged.data):
            self._noted = (damaged.version, damaged.data)
            log.error(
                "%s in the metadata store is damaged: it holds %s; there is no controller until the number of the last epoch is written "
                "there, or a larger one: at least %d",
                znodes.CONTROLLER_EPOCH, repr(damaged.data[:SHOWN_BYTES]), max(damaged.version, self._newest_epoch()),
            )  # fmt: skip
        number = self._round

        def look(result: StoreResult, node: StoreNode | None) -> None:
            if number == self._round and (node is None or node.version != damaged.version):
                self._retry(result)

        def changed(event: WatchEvent) -> None:
            if number == self._round:
                self._on_change(event)

        self._store.get(znodes.CONTROLLER_EPOCH, look, watch=changed)

    def _elect(self, mandate: Mandate) -> None:
        self._mandate = mandate
        self._gone = None
        self._noted = None
        self._on_elected(mandate)

    def _retry(self, result: StoreResult) -> None:
        if result is not StoreResult.SESSION_EXPIRED:
            number = self._round
            self._retries.again(lambda: self.run() if number == self._round else None)


def _epoch_of(node: StoreNode) -> int | None:
    """None if it cannot be read."""
    try:
        return znodes.read_controller_epoch(node.data)
    except znodes.NodeError:
        return None
