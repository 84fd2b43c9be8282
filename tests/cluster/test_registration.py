"""The registration of one broker in the metadata store: the nodes that it writes, the states in which it refuses to start, and its next
step after each failure."""

from __future__ import annotations

import pytest

from ottla.base.loop.procedure import Procedure, Runner
from ottla.base.loop.store_retries import RETRY_MS, StoreRetries
from ottla.base.ports import Create, Set, StoreResult
from ottla.cluster.registration import Registrar, Registration, RegistrationRefused
from ottla.metadata_store import znodes
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.timers import ManualTimers
from tests.fakes.world import World

PATH = znodes.broker_path(5)


class RegistrationWorld(World):
    """Broker 5 and its metadata store. `done` has the broker epoch and the cluster id of each registration."""

    def __init__(
        self, model: ZooKeeperModel | None = None, *, cluster_id: str = "c", incarnation: str = "", is_clean: bool = False
    ) -> None:
        self.store: MemoryStore = (model or ZooKeeperModel()).session()
        self.done: list[tuple[int, str]] = []
        self.refused: list[str] = []
        self.registering = Runner()
        registration = Registration(
            broker_id=5, endpoints={"PLAINTEXT": ("h", 9092)}, protocols={"PLAINTEXT": "PLAINTEXT"}, cluster_id=cluster_id, rack="r",
            incarnation=incarnation, is_clean=lambda: is_clean,
        )  # fmt: skip
        self.registrar = Registrar(self.store, self.retries, self.clock, registration)

    def register(self) -> None:
        self.registering.start(self._register())

    def _register(self) -> Procedure[None]:
        try:
            self.done.append((yield from self.registrar.register()))
        except RegistrationRefused as refusal:
            self.refused.append(str(refusal))

    def is_registered(self) -> bool:
        node = self.store.nodes().get(PATH)
        return node is not None and self.done == [(node.czxid, "c")] and node.ephemeral_owner == self.store.session_id()


def test_the_first_broker_lays_the_ground() -> None:
    world = RegistrationWorld()
    world.register()
    nodes = world.store.nodes()
    assert world.is_registered() and not world.refused and set(znodes.BASE_PATHS) <= nodes.keys()
    assert znodes.read_cluster_id(nodes[znodes.CLUSTER_ID].data) == "c"
    shown = znodes.read_broker(5, nodes[PATH].data, 1)
    assert (shown.endpoints, shown.rack) == ({"PLAINTEXT": ("h", 9092)}, "r")


def test_the_next_broker_makes_only_its_own_node() -> None:
    world = RegistrationWorld()
    world.register()
    other = RegistrationWorld(world.store.model)
    before = len(world.store.multis)
    world.store.expire()
    other.register()
    assert other.is_registered() and len(other.store.multis) == before + 1


def test_ground_that_is_laid_in_part_is_completed() -> None:
    world = RegistrationWorld()
    world.store.put(znodes.BROKER_IDS, b"")
    world.register()
    assert world.is_registered() and set(znodes.BASE_PATHS) <= world.store.nodes().keys()


def test_a_store_of_another_cluster_is_refused() -> None:
    world = RegistrationWorld()
    world.store.put(znodes.CLUSTER_ID, znodes.cluster_id_bytes("other"))
    world.register()
    assert world.refused == ["the metadata store belongs to cluster other, this broker to c"] and not world.done
    assert PATH not in world.store.nodes()


def test_an_id_that_is_in_use_is_refused() -> None:
    first = RegistrationWorld()
    first.register()
    second = RegistrationWorld(first.store.model)
    second.register()
    (reason,) = second.refused
    assert reason.startswith("broker.id 5 is in use: another broker is registered at /brokers/ids/5") and not second.done


@pytest.mark.parametrize(
    ("former", "present", "is_replaced"),
    [("d1", "d1", True), ("d1,d2", "d3,d2", True), ("d1", "d2", False), ("", "", False), ("d1", "", False), ("", "d1", False)],
)
def test_a_node_that_an_earlier_life_left_behind_is_replaced(former: str, present: str, is_replaced: bool) -> None:
    first = RegistrationWorld(incarnation=former, is_clean=True)
    first.register()
    second = RegistrationWorld(first.store.model, incarnation=present)
    second.register()
    assert bool(second.done) is is_replaced and bool(second.refused) is not is_replaced
    node = second.store.nodes()[PATH]
    assert (node.ephemeral_owner == second.store.session_id()) is is_replaced
    assert znodes.read_broker(5, node.data, node.czxid).is_clean is not is_replaced
    if is_replaced:
        assert second.done[0][0] > first.done[0][0], "a new broker epoch"


def test_garbage_in_the_place_of_a_registration_is_no_earlier_life() -> None:
    first = RegistrationWorld()
    first.register()
    first.store.multi([Set(PATH, b"garbage")], lambda outcome: None)
    second = RegistrationWorld(first.store.model, incarnation="d1")
    second.register()
    assert second.refused and second.store.nodes()[PATH].data == b"garbage"


def elect(world: RegistrationWorld, epoch: int) -> None:
    """Makes the broker the controller in its session, with the nodes that an election writes."""
    data = znodes.controller_epoch_bytes(epoch)
    raised = Create(znodes.CONTROLLER_EPOCH, data) if epoch == 1 else Set(znodes.CONTROLLER_EPOCH, data, epoch - 2)
    outcomes: list[StoreResult] = []
    world.store.multi([raised, Create(znodes.CONTROLLER, b"", ephemeral=True)], lambda outcome: outcomes.append(outcome.result))
    assert outcomes == [StoreResult.OK]


def test_the_controllership_of_an_earlier_life_ends_with_it() -> None:
    first = RegistrationWorld(incarnation="d1")
    first.register()
    elect(first, 1)
    second = RegistrationWorld(first.store.model, incarnation="d1")
    second.register()
    assert second.is_registered() and znodes.CONTROLLER not in second.store.nodes()


def test_the_controllership_of_another_broker_stays() -> None:
    first = RegistrationWorld(incarnation="d1")
    first.register()
    other = RegistrationWorld(first.store.model)
    elect(other, 1)
    second = RegistrationWorld(first.store.model, incarnation="d1")
    second.register()
    assert second.is_registered() and second.store.nodes()[znodes.CONTROLLER].ephemeral_owner == other.store.session_id()


def test_a_controller_that_is_elected_in_the_meantime_stays() -> None:
    """The left-over `/controller` was read. Then its session ended and another broker was elected, whose node the condition on the epoch
    protects."""
    model, timers = ZooKeeperModel(), ManualTimers()
    first = RegistrationWorld(model, incarnation="d1")
    first.register()
    elect(first, 1)
    other = RegistrationWorld(model)
    second = RegistrationWorld(model, incarnation="d1")
    second.store = model.session(timers)
    second.registrar = Registrar(second.store, StoreRetries(second.store, timers), timers.clock, second.registrar._registration)
    controllers: list[int] = []

    def read(result: StoreResult, node: object) -> None:
        controllers.append(1)
        first.store.expire()
        elect(other, 2)

    get = second.store.get

    def get_and_elect(path: str, done: object, **options: object) -> None:
        if path != znodes.CONTROLLER or controllers:
            get(path, done, **options)  # type: ignore[arg-type]
            return
        get(path, lambda result, node: (read(result, node), done(result, node)), **options)  # type: ignore[arg-type, func-returns-value, operator]

    second.store.get = get_and_elect  # type: ignore[method-assign, assignment]
    second.register()
    timers.advance(60_000)
    assert controllers and second.is_registered()
    assert second.store.nodes()[znodes.CONTROLLER].ephemeral_owner == other.store.session_id()


def test_a_broker_that_is_registered_by_this_session_is_registered() -> None:
    world = RegistrationWorld()
    world.register()
    world.register()
    assert len(world.done) == 2 and world.done[0] == world.done[1] and not world.refused


def test_after_an_expiry_the_epoch_is_larger() -> None:
    world = RegistrationWorld()
    world.register()
    world.store.expire()
    world.store.renew()
    world.register()
    assert world.done[1][0] > world.done[0][0]


def test_brokers_that_start_together_make_the_ground_between_them() -> None:
    """The other broker was faster, so this one gets NODE_EXISTS, and reads the nodes that the other one made."""
    world = RegistrationWorld()
    world.store.fail_next(StoreResult.NODE_EXISTS)
    world.register()
    assert world.is_registered()


# Failures


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_write_of_unknown_outcome_is_found_or_repeated(is_prepared: bool, is_applied: bool) -> None:
    world = RegistrationWorld()
    if is_prepared:
        RegistrationWorld(world.store.model).register()
        for session in list(world.store.model.sessions.values()):
            if session is not world.store:
                session.expire()
    world.store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)
    world.register()
    assert not world.done and not world.refused
    world.timers.advance(RETRY_MS)
    assert world.is_registered()


def test_a_read_that_fails_is_repeated() -> None:
    world = RegistrationWorld()
    world.store.fail_next_read()
    world.register()
    assert not world.done
    world.timers.advance(RETRY_MS)
    assert world.is_registered()


def test_a_broker_that_is_cut_off_registers_when_it_is_connected() -> None:
    world = RegistrationWorld()
    world.store.disconnect()
    world.register()
    world.timers.advance(100 * RETRY_MS)
    assert not world.done and not world.refused
    world.store.reconnect()
    assert world.is_registered()


def test_a_disk_that_fails_is_a_refusal_of_one_line() -> None:
    """With the embedded metadata store: a start that waited for free space would look as if it hung."""
    world = RegistrationWorld()
    world.store.fail_next(StoreResult.DISK_FAILED)
    world.register()
    assert world.refused == ["broker 5 cannot register: DISK_FAILED in the metadata store"]


def test_an_expired_session_neither_registers_nor_refuses() -> None:
    """The next session begins anew."""
    world = RegistrationWorld()
    world.store.fail_next(StoreResult.SESSION_EXPIRED)
    world.register()
    world.timers.advance(10 * RETRY_MS)
    assert not world.done and not world.refused


def test_a_node_of_a_former_session_that_is_about_to_end_is_in_use() -> None:
    """A broker was killed and restarted. Its former session lives until it times out, and the caller tries again."""
    world = RegistrationWorld()
    former = world.store.model.session()
    world.store.put(znodes.BROKER_IDS, b"")
    former.multi([Create(PATH, b"{}", ephemeral=True)], lambda outcome: None)
    world.register()
    assert len(world.refused) == 1
    former.expire()
    world.register()
    assert world.is_registered()
