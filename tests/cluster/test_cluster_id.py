"""The cluster id in the metadata store: read by every broker, written once, and never overwritten."""

from __future__ import annotations

import pytest

from ottla.base.ports import Create, StoreResult
from ottla.cluster.cluster_id import agree_on_cluster_id, read_cluster_id
from ottla.metadata_store import znodes
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.timers import ManualTimers


def agree(store: MemoryStore, proposed: str) -> list[tuple[StoreResult, str]]:
    answers: list[tuple[StoreResult, str]] = []
    agree_on_cluster_id(store, proposed, lambda *answer: answers.append(answer))
    return answers


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_new_store_gets_the_proposed_id_and_keeps_it(has_folder: bool) -> None:
    store = MemoryStore()
    answers: list[tuple[StoreResult, str]] = []
    read_cluster_id(store, lambda *answer: answers.append(answer))
    assert answers[0][0] is StoreResult.NO_NODE
    if has_folder:
        store.multi([Create("/cluster")], lambda outcome: None)
    assert agree(store, "first") == [(StoreResult.OK, "first")]
    assert agree(store, "second") == [(StoreResult.OK, "first")]


def test_brokers_that_start_together_agree() -> None:
    model, timers = ZooKeeperModel(), ManualTimers()
    answers = [agree(model.session(timers, lambda delay=delay: delay), name) for delay, name in enumerate("abc", 3)]  # type: ignore[misc]
    timers.advance(1_000)
    assert len({tuple(answer) for answer in answers}) == 1 and answers[0][0][0] is StoreResult.OK


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"[]", b'{"version":"1"}'])
def test_garbage_is_refused_and_left_as_it_is(garbage: bytes) -> None:
    store = MemoryStore()
    store.put(znodes.CLUSTER_ID, garbage)
    ((result, reason),) = agree(store, "mine")
    assert result is StoreResult.REFUSED and "/cluster/id" in reason
    assert store.nodes()[znodes.CLUSTER_ID].data == garbage


@pytest.mark.parametrize("failure", [StoreResult.UNKNOWN, StoreResult.CONNECTION_LOST])
def test_a_failure_is_reported_and_asking_again_finds_the_truth(failure: StoreResult) -> None:
    store = MemoryStore()
    store.fail_next(failure, is_applied=failure is StoreResult.UNKNOWN)
    ((result, _),) = agree(store, "mine")
    assert result is failure
    assert agree(store, "other") == [(StoreResult.OK, "mine" if failure is StoreResult.UNKNOWN else "other")]
