"""The election of the controller among brokers over one model of ZooKeeper: which broker is elected, with which epoch, and what ends its
mandate."""

from __future__ import annotations

import json

import pytest

from ottla.base.loop.store_retries import RETRY_MS, StoreRetries
from ottla.base.ports import Create, Delete, Set, StoreResult
from ottla.controller.controller_election import ControllerElection, Mandate
from ottla.metadata_store import znodes
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.timers import ManualTimers


class Candidate:
    """One broker of a cluster. `news` has its mandates in order, and None for the end of a mandate."""

    def __init__(self, model: ZooKeeperModel, broker_id: int = 0, *, is_standing: bool = True, newest_epoch: int = 0) -> None:
        self.timers = ManualTimers()
        self.store: MemoryStore = model.session()
        self.news: list[Mandate | None] = []
        self.election = ControllerElection(
            store=self.store,
            retries=StoreRetries(self.store, self.timers),
            clock=self.timers.clock,
            broker_id=broker_id,
            on_elected=self.news.append,
            on_lost=lambda: self.news.append(None),
            newest_epoch=lambda: newest_epoch,
        )
        if is_standing:
            self.election.run()

    def controller(self) -> int | None:
        """Returns the broker that `/controller` names."""
        node = self.store.nodes().get(znodes.CONTROLLER)
        return None if node is None else json.loads(node.data)["brokerid"]


def operator_removes_the_controller(model: ZooKeeperModel) -> None:
    model.session().multi([Delete(znodes.CONTROLLER)], lambda outcome: None)


def test_the_first_candidate_is_elected() -> None:
    candidate = Candidate(ZooKeeperModel(), 3)
    assert candidate.news == [Mandate(1, 0)] and candidate.controller() == 3
    nodes = candidate.store.nodes()
    assert nodes[znodes.CONTROLLER].ephemeral_owner == candidate.store.session_id()
    assert nodes[znodes.CONTROLLER_EPOCH].data == znodes.controller_epoch_bytes(1)


def test_another_waits_until_the_controller_has_gone() -> None:
    model = ZooKeeperModel()
    first, second = Candidate(model, 1), Candidate(model, 2)
    assert second.news == [] and second.controller() == 1
    first.store.expire()
    assert first.news == [Mandate(1, 0), None]
    assert second.news == [Mandate(2, 1)] and second.controller() == 2


def test_of_several_that_wait_one_is_elected() -> None:
    model = ZooKeeperModel()
    first, *others = [Candidate(model, number) for number in range(4)]
    first.store.expire()
    assert sorted(len(one.news) for one in others) == [0, 0, 1]
    [winner] = [one for one in others if one.news]
    winner.store.expire()
    assert sorted(len(one.news) for one in others) == [0, 1, 2]


def test_an_expired_candidate_stands_again_with_its_next_session() -> None:
    model = ZooKeeperModel()
    first, second = Candidate(model, 1), Candidate(model, 2)
    first.store.expire()
    first.store.renew()
    first.election.run()
    assert first.news == [Mandate(1, 0), None] and second.news == [Mandate(2, 1)]
    second.store.expire()
    assert first.news == [Mandate(1, 0), None, Mandate(3, 2)]


def test_a_controller_whose_node_is_removed_stands_again_under_the_next_epoch() -> None:
    """Operators remove the node to move the controller. The mandate ends before the next election."""
    model = ZooKeeperModel()
    candidate = Candidate(model)
    operator_removes_the_controller(model)
    assert candidate.news == [Mandate(1, 0), None, Mandate(2, 1)]


def test_a_connection_that_breaks_ends_no_mandate() -> None:
    model = ZooKeeperModel()
    candidate = Candidate(model)
    candidate.store.disconnect()
    candidate.store.reconnect()
    assert candidate.news == [Mandate(1, 0)]
    operator_removes_the_controller(model)
    assert candidate.news == [Mandate(1, 0), None, Mandate(2, 1)], "it watches again"


def test_a_mandate_that_lapsed_goes_on_if_controller_is_still_this_sessions() -> None:
    model = ZooKeeperModel()
    candidate = Candidate(model)
    candidate.store.disconnect()
    candidate.election.lapse()
    assert candidate.news == [Mandate(1, 0), None]
    candidate.election.lapse()
    candidate.store.reconnect()
    assert candidate.news == [Mandate(1, 0), None, Mandate(1, 0)]


def test_a_mandate_that_lapsed_is_over_if_another_was_elected_meanwhile() -> None:
    model = ZooKeeperModel()
    candidate, other = Candidate(model, 1), Candidate(model, 2)
    candidate.store.disconnect()
    candidate.election.lapse()
    candidate.store.expire()
    candidate.store.reconnect()
    assert candidate.news == [Mandate(1, 0), None] and other.news == [Mandate(2, 1)]


def register(candidate: Candidate, broker_id: int) -> int:
    """Registers a broker in the candidate's session, and returns the epoch of the registration."""
    path = znodes.broker_path(broker_id)
    candidate.store.put(znodes.BROKER_IDS, b"")
    candidate.store.multi([Create(path, b"{}", ephemeral=True)], lambda outcome: None)
    return candidate.store.nodes()[path].czxid


def test_an_office_is_taken_over_from_a_controller_that_is_gone_by_one_write() -> None:
    model = ZooKeeperModel()
    gone, other = Candidate(model, 1), Candidate(model, 2)
    epoch = register(gone, 1)
    other.election.take_over(1, epoch)
    assert other.news == [Mandate(2, 1)] and other.controller() == 2
    epoch_write, delete, create = model.multis[-1]
    assert isinstance(epoch_write, Set) and epoch_write.version == 0 and isinstance(delete, Delete) and isinstance(create, Create)
    gone.store.expire()
    assert other.news == [Mandate(2, 1)], "its session's end takes nothing away"


def test_no_office_is_taken_over_from_another_life_or_another_broker() -> None:
    model = ZooKeeperModel()
    controller, other = Candidate(model, 1), Candidate(model, 2)
    epoch = register(controller, 1)
    other.election.take_over(1, epoch - 1)
    other.election.take_over(2, register(other, 2))
    other.election.take_over(3, epoch)
    assert other.news == [] and controller.news == [Mandate(1, 0)]
    controller.election.take_over(1, epoch)
    assert controller.news == [Mandate(1, 0)]
    controller.store.expire()
    assert other.news == [Mandate(2, 1)], "it still waits for the office"


def test_of_two_that_take_over_one_is_elected() -> None:
    model = ZooKeeperModel()
    gone, first, second = Candidate(model, 1), Candidate(model, 2), Candidate(model, 3)
    epoch = register(gone, 1)
    first.election.take_over(1, epoch)
    second.election.take_over(1, epoch)
    assert first.news == [Mandate(2, 1)] and second.news == []


def test_a_candidate_that_was_cut_off_notices_that_the_controller_has_gone() -> None:
    model = ZooKeeperModel()
    first, second = Candidate(model, 1), Candidate(model, 2)
    second.store.disconnect()
    first.store.expire()
    assert second.news == []
    second.store.reconnect()
    assert second.news == [Mandate(2, 1)]


def write_epoch(model: ZooKeeperModel, data: bytes, version: int = -1) -> None:
    """Writes the epoch by hand, as an operator may."""
    model.session().multi([Set(znodes.CONTROLLER_EPOCH, data, version)], lambda outcome: None)


def test_a_mandate_that_is_given_up_is_followed_by_one_above_the_epoch_that_was_written_by_hand() -> None:
    """The candidate's own `/controller` is still there without a mandate, and only the end of its own session would remove it. So the
    candidate claims the office again, in one write."""
    model = ZooKeeperModel()
    candidate, other = Candidate(model), Candidate(model, 2)
    write_epoch(model, b"9")
    candidate.election.give_up()
    assert candidate.news == [Mandate(1, 0), None, Mandate(10, 2)] and candidate.controller() == 0
    operator_removes_the_controller(model)
    assert [candidate.news[3:], other.news] in ([[None, Mandate(11, 3)], []], [[None], [Mandate(11, 3)]])


def test_a_controller_that_was_replaced_claims_nothing() -> None:
    """However late it reads `/controller`, the node names its successor."""
    model = ZooKeeperModel()
    first, second = Candidate(model, 1), Candidate(model, 2)
    second.election.take_over(1, register(first, 1))
    first.election.give_up()
    first.election.run()
    assert first.news == [Mandate(1, 0), None] and second.news == [Mandate(2, 1)] and second.controller() == 2


# Claims of unknown outcome


def test_a_claim_that_was_taken_without_an_answer_is_found() -> None:
    candidate = Candidate(ZooKeeperModel(), is_standing=False)
    candidate.store.fail_next(StoreResult.UNKNOWN, is_applied=True)
    candidate.election.run()
    assert candidate.news == []
    candidate.timers.advance(RETRY_MS)
    assert candidate.news == [Mandate(1, 0)] and len(candidate.store.multis) == 1


@pytest.mark.parametrize("result", [StoreResult.UNKNOWN, StoreResult.CONNECTION_LOST, StoreResult.DISK_FAILED])
def test_a_claim_that_was_not_taken_is_made_again(result: StoreResult) -> None:
    candidate = Candidate(ZooKeeperModel(), is_standing=False)
    candidate.store.fail_next(result)
    candidate.election.run()
    candidate.timers.advance(RETRY_MS)
    assert candidate.news == [Mandate(1, 0)]


def test_a_claim_whose_epoch_was_overwritten_is_not_elected() -> None:
    """I38: the candidate's node is there, but the epoch is no longer the one of its claim. The candidate claims the office again, with a
    larger epoch."""
    model = ZooKeeperModel()
    candidate = Candidate(model, is_standing=False)
    candidate.store.fail_next(StoreResult.UNKNOWN, is_applied=True)
    candidate.election.run()
    write_epoch(model, b"2", 0)
    candidate.timers.advance(10 * RETRY_MS)
    assert candidate.news == [Mandate(3, 2)]


def test_a_claim_of_a_session_that_is_over_is_forgotten() -> None:
    model = ZooKeeperModel()
    candidate = Candidate(model, is_standing=False)
    candidate.store.fail_next(StoreResult.UNKNOWN, is_applied=True)
    candidate.election.run()
    candidate.store.expire()
    candidate.store.renew()
    candidate.timers.advance(RETRY_MS)
    assert candidate.news == [] and candidate.controller() is None
    candidate.election.run()
    assert candidate.news == [Mandate(2, 1)]


# Reads


@pytest.mark.parametrize("result", [StoreResult.CONNECTION_LOST, StoreResult.DISK_FAILED])
def test_a_read_that_fails_is_repeated(result: StoreResult) -> None:
    candidate = Candidate(ZooKeeperModel(), is_standing=False)
    candidate.store.fail_next_read(result)
    candidate.election.run()
    assert candidate.news == []
    candidate.timers.advance(RETRY_MS)
    assert candidate.news == [Mandate(1, 0)]


GARBAGE = [b"?", b"", b"-7", b"2147483647", b"99999999999"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_no_candidate_is_elected_while_the_epoch_cannot_be_read(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing overwrites the epoch. One log line says which number the operator should write; once the number is there, one of the
    candidates is elected."""
    model = ZooKeeperModel()
    store = model.session()
    store.put(znodes.CONTROLLER_EPOCH, b"1")
    for version in range(3):
        store.multi([Set(znodes.CONTROLLER_EPOCH, garbage, version)], lambda outcome: None)
    candidates = [Candidate(model, broker_id) for broker_id in (1, 2)]
    for candidate in candidates:
        candidate.timers.advance(10 * RETRY_MS)
        candidate.election.run()
        assert candidate.news == [] and candidate.controller() is None
    assert store.nodes()[znodes.CONTROLLER_EPOCH].data == garbage
    assert len(caplog.messages) == 2
    assert f"damaged: it holds {garbage!r};" in caplog.messages[0] and caplog.messages[0].endswith("at least 3")
    write_epoch(model, b"3")
    assert [candidate.news for candidate in candidates] in ([[Mandate(4, 5)], []], [[], [Mandate(4, 5)]])


def test_the_number_that_belongs_there_is_no_smaller_than_what_the_broker_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    """The number in the log line cannot follow from the node's version alone, because an epoch may have been written by hand. An operator
    who writes a smaller number does no harm either."""
    model = ZooKeeperModel()
    model.session().put(znodes.CONTROLLER_EPOCH, b"garbage")
    candidate = Candidate(model, newest_epoch=1001)
    assert caplog.messages[0].endswith("at least 1001")
    write_epoch(model, b"4")
    assert candidate.news == [Mandate(1002, 2)]


def test_an_epoch_that_is_mended_while_the_connection_is_away_is_found() -> None:
    model = ZooKeeperModel()
    model.session().put(znodes.CONTROLLER_EPOCH, b"garbage")
    candidate = Candidate(model)
    candidate.store.disconnect()
    write_epoch(model, b"3")
    candidate.store.reconnect()
    candidate.timers.advance(10 * RETRY_MS)
    assert candidate.news == [Mandate(4, 2)]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_controller_whose_epoch_is_damaged_ends_at_its_next_write_and_goes_on_when_it_is_mended(garbage: bytes) -> None:
    model = ZooKeeperModel()
    candidate, other = Candidate(model, 1), Candidate(model, 2)
    write_epoch(model, garbage)
    candidate.election.give_up()
    assert candidate.news == [Mandate(1, 0), None]
    assert model.session().nodes()[znodes.CONTROLLER_EPOCH].data == garbage
    assert candidate.controller() is None
    write_epoch(model, b"1")
    assert [candidate.news[2:], other.news] in ([[Mandate(2, 3)], []], [[], [Mandate(2, 3)]])


def test_no_office_is_taken_over_while_the_epoch_cannot_be_read() -> None:
    model = ZooKeeperModel()
    first, second = Candidate(model, 1), Candidate(model, 2)
    epoch = register(first, 1)
    write_epoch(model, b"garbage")
    second.election.take_over(1, epoch)
    assert second.news == [] and second.controller() == 1
    write_epoch(model, b"1")
    assert second.news == [Mandate(2, 3)] and second.controller() == 2


def test_standing_twice_is_standing_once() -> None:
    candidate = Candidate(ZooKeeperModel())
    candidate.election.run()
    candidate.election.run()
    assert candidate.news == [Mandate(1, 0)]


def test_an_epoch_node_that_was_removed_is_made_again_above_the_epochs_that_brokers_know() -> None:
    """Also a broker whose mandate has ended, and which still owns `/controller`, makes the node again."""
    model = ZooKeeperModel()
    candidate = Candidate(model, newest_epoch=7)
    assert candidate.news == [Mandate(8, 0)]
    candidate.store.disconnect()
    candidate.election.lapse()
    model.session().multi([Delete(znodes.CONTROLLER_EPOCH)], lambda outcome: None)
    candidate.store.reconnect()
    assert candidate.news == [Mandate(8, 0), None, Mandate(8, 0)] and candidate.controller() == 0
