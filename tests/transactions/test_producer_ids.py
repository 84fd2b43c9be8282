"""Producer ids: two brokers never share a block, whatever the outcome of a write is."""

from __future__ import annotations

import json
import random

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.ports import Outcome, StoreResult
from ottla.transactions.producer_ids import BLOCK_PATH, BLOCK_SIZE, PRODUCER_ID_MAX, ProducerIds
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.timers import ManualTimers


def block(store: MemoryStore) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.nodes()[BLOCK_PATH].data)
    return found


def test_ids_count_up_through_blocks() -> None:
    ids = ProducerIds(MemoryStore(), 1)
    assert [ids.take() for _ in range(2_500)] == list(range(2_500))


def test_the_node_is_kafkas() -> None:
    store = MemoryStore()
    ProducerIds(store, 4).take()
    assert block(store) == {"version": 1, "broker": 4, "block_start": "0", "block_end": "999"}


def test_brokers_never_share_a_block() -> None:
    """I22: two brokers that write at the same time get different blocks."""
    store = MemoryStore()
    brokers = [ProducerIds(store, broker_id) for broker_id in range(3)]
    taken = [ids.take() for _ in range(2_000) for ids in brokers]
    assert None not in taken and len(set(taken)) == len(taken)


def test_a_restart_begins_a_new_block() -> None:
    store = MemoryStore()
    assert ProducerIds(store, 1).take() == 0
    assert ProducerIds(store.reopened(), 1).take() == BLOCK_SIZE


def test_a_write_of_unknown_outcome_is_not_ours() -> None:
    """The ids of a block are not used if the outcome of its write is unknown."""
    for is_applied in (False, True):
        store = MemoryStore()
        store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)
        assert ProducerIds(store, 1).take() == (BLOCK_SIZE if is_applied else 0)


def test_a_lost_race_is_run_again() -> None:
    store = MemoryStore()
    store.fail_next(StoreResult.BAD_VERSION)
    assert ProducerIds(store, 1).take() == 0


def test_requests_wait_while_the_block_is_fetched() -> None:
    store = MemoryStore()
    store.hold()
    ids = ProducerIds(store, 1)
    answers: list[tuple[int, ErrorCode]] = []
    assert ids.take() is None
    for _ in range(3):
        ids.next(lambda producer_id, code: answers.append((producer_id, code)))
    assert answers == [] and ids.take() is None
    store.release()
    assert answers == [(0, ErrorCode.NONE), (1, ErrorCode.NONE), (2, ErrorCode.NONE)]


def test_a_request_whose_wait_begins_after_the_fetch_has_ended_gets_its_id() -> None:
    """A decision waits for replicas before it waits for ids. The block may be fetched meanwhile."""
    store = MemoryStore()
    store.hold()
    ids = ProducerIds(store, 1)
    assert ids.take() is None
    store.release()
    codes: list[ErrorCode] = []
    ids.when_ready(codes.append)
    assert codes == [ErrorCode.NONE] and ids.take() == 0


def test_the_next_block_is_there_before_the_last_one_is_used_up() -> None:
    store = MemoryStore()
    ids = ProducerIds(store, 1)
    for _ in range(BLOCK_SIZE - 50):
        ids.take()
    assert block(store)["block_start"] == str(BLOCK_SIZE)
    store.hold()
    assert [ids.take() for _ in range(100)] == list(range(BLOCK_SIZE - 50, BLOCK_SIZE + 50))


def test_an_expired_session_is_an_error_and_the_next_one_asks_again() -> None:
    store = MemoryStore()
    store.hold()
    ids = ProducerIds(store, 1)
    answers: list[tuple[int, ErrorCode]] = []
    ids.next(lambda producer_id, code: answers.append((producer_id, code)))
    store.fail_next(StoreResult.SESSION_EXPIRED)
    store.release()
    assert answers == [(-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert ids.take() == 0


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("result", [StoreResult.CONNECTION_LOST, StoreResult.DISK_FAILED])
def test_a_store_that_fails_is_an_error_to_waiting_requests_and_is_asked_again_next_time(result: StoreResult, is_read: bool) -> None:
    store = MemoryStore()
    if is_read:
        store.fail_next_read(result)
    else:
        store.fail_next(result)
    ids = ProducerIds(store, 1)
    assert ids.take() is None
    answers: list[tuple[int, ErrorCode]] = []
    ids.next(lambda producer_id, code: answers.append((producer_id, code)))
    assert answers == [(0, ErrorCode.NONE)]


def test_a_malformed_node_gives_no_ids(caplog: pytest.LogCaptureFixture) -> None:
    """C2: a malformed node is not overwritten. One line is logged, however often ids are requested."""
    garbage = (b"", b"nonsense", b"[]", b'{"block_end": "x"}', b'{"block_end": "-5"}', str(PRODUCER_ID_MAX).encode(), b"[" * 100_000)
    for data in garbage:
        store = MemoryStore()
        store.put(BLOCK_PATH, data)
        ids = ProducerIds(store, 1)
        caplog.clear()
        assert ids.take() is None and ids.take() is None
        assert len(caplog.messages) == 1 and BLOCK_PATH in caplog.messages[0]


def test_ids_end_before_they_overflow() -> None:
    store = MemoryStore()
    store.put(BLOCK_PATH, json.dumps({"block_end": str(PRODUCER_ID_MAX - 10)}).encode())
    assert ProducerIds(store, 1).take() is None


def test_endless_conflicts_are_given_up() -> None:
    class Stubborn(MemoryStore):
        def multi(self, operations, done) -> None:  # type: ignore[no-untyped-def]
            self.multis.append(list(operations))
            done(Outcome(StoreResult.BAD_VERSION, 0))

    store = Stubborn()
    assert ProducerIds(store, 1).take() is None
    assert len(store.multis) == 16


@pytest.mark.parametrize("seed", range(20))
def test_i22_brokers_that_contend_for_a_store_with_faults_never_share_an_id(seed: int) -> None:
    """Answers arrive late, and some are lost: the write was executed, was not executed, or is executed later. Sessions expire."""
    chance, timers, model = random.Random(seed), ManualTimers(), ZooKeeperModel()
    stores = [model.session(timers, lambda: chance.randint(1, 5)) for _ in range(3)]
    brokers = [ProducerIds(store, number) for number, store in enumerate(stores)]
    taken: list[int] = []
    asked: list[ErrorCode] = []

    def take(producer_id: int, code: ErrorCode) -> None:
        asked.append(code)
        if code is ErrorCode.NONE:
            taken.append(producer_id)

    for _ in range(60):
        for store in stores:
            if chance.random() < 0.3:
                store.fail_next(StoreResult.UNKNOWN, **chance.choice([{"is_applied": True}, {"is_late": True}, {}]))
        if chance.random() < 0.1:
            broken = chance.choice(stores)
            broken.disconnect(is_applied=chance.random() < 0.5)
            timers.advance(chance.randint(1, 10))
            broken.reconnect()
        for broker in brokers:
            for _ in range(chance.randint(0, 400)):
                broker.next(take)
        timers.advance(chance.randint(0, 20))
    timers.advance(1_000)
    assert len(taken) == len(set(taken)) > 10_000
    assert set(asked) <= {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
