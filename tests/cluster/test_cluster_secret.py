"""The cluster's secret: made once for all brokers, and never written over other data."""

from __future__ import annotations

import pytest

from ottla.base.ports import Create, StoreResult
from ottla.cluster.cluster_secret import SECRET_BYTES, ClusterSecret
from ottla.metadata_store import znodes
from tests.fakes.memory_store import MemoryStore, ZooKeeperModel
from tests.fakes.randomness import SeededRandom
from tests.fakes.timers import ManualTimers


def model() -> ZooKeeperModel:
    found = ZooKeeperModel()
    found.session().multi([Create("/cluster")], lambda outcome: None)
    return found


def read(store: MemoryStore, seed: int = 1) -> bytes | None:
    found: list[bytes | None] = []
    ClusterSecret(store, SeededRandom(seed)).read(found.append)
    assert len(found) == 1
    return found[0]


def test_brokers_that_begin_together_have_one_secret() -> None:
    world, timers = model(), ManualTimers()
    found: list[bytes | None] = []
    for seed in range(3):
        secret = ClusterSecret(world.session(timers), SeededRandom(seed))
        secret.read(found.append)
        secret.read(found.append)
    timers.advance(1_000)
    assert len(found) == 6 and len(set(found)) == 1 and found[0] is not None and len(found[0]) == SECRET_BYTES
    assert read(world.session(), seed=9) == found[0]


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unknown_outcome_is_looked_at(is_applied: bool) -> None:
    world = model()
    store = world.session()
    store.fail_next(StoreResult.UNKNOWN, is_applied=is_applied)
    found = read(store)
    assert (found is not None) is is_applied
    assert read(store) is not None


@pytest.mark.parametrize("data", [b"", b"00" * 31, b"zz" * 32, b"\xff" * 64])
def test_a_node_that_holds_no_secret_is_not_overwritten(data: bytes) -> None:
    world = model()
    store = world.session()
    store.put(znodes.CLUSTER_SECRET, data)
    assert read(store) is None
    assert store.nodes()[znodes.CLUSTER_SECRET].data == data


def test_without_the_store_there_is_none_now() -> None:
    world = model()
    store = world.session()
    secret, found = ClusterSecret(store, SeededRandom(1)), list[bytes | None]()
    store.fail_next_read()
    secret.read(found.append)
    secret.read(found.append)
    assert found[0] is None and found[1] is not None
