"""Timed-out transactions and unused ids are removed, however many bytes that needs (I31)."""

from __future__ import annotations

import pytest

from ottla.transactions.states import COMPLETE_ABORT, ONGOING
from tests.scenarios.transactions_world import World

IDS = 30


def opened(world: World, number: int, partitions: int) -> str:
    transactional_id = f"id-{number:03}"
    world.run(f"init A id={transactional_id}")
    world.run(f"add A id={transactional_id} " + " ".join(f"t-{index}" for index in range(partitions)))
    return transactional_id


def test_i31_timed_out_transactions_that_do_not_fit_one_batch_are_aborted_all_the_same() -> None:
    world = World()
    ids = [opened(world, number, 40) for number in range(IDS)]
    shard = world.host.machine.shard
    assert len(shard.ongoing) == IDS
    world.log.batch_bytes_max = 1_000
    world.run("advance 1800000")
    assert {shard.transactions[transactional_id].state for transactional_id in ids} == {COMPLETE_ABORT}


def test_i31_one_transaction_that_no_batch_holds_does_not_keep_the_others_open(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    large = opened(world, 0, 400)
    small = [opened(world, number, 4) for number in range(1, 5)]
    shard = world.host.machine.shard
    world.log.batch_bytes_max = 500
    world.run("advance 1800000")
    assert {shard.transactions[transactional_id].state for transactional_id in small} == {COMPLETE_ABORT}
    assert shard.transactions[large].state is ONGOING and "was refused: RECORD_LIST_TOO_LARGE" in caplog.text
    world.log.batch_bytes_max = 1_000_000
    world.run("advance 1800000")
    assert shard.transactions[large].state is COMPLETE_ABORT


def test_forgetting_ids_is_bounded_by_bytes() -> None:
    world = World()
    for number in range(IDS):
        world.run(f"init A id=id-{number:03}")
    world.log.batch_bytes_max = 100
    world.run(f"advance {8 * 86_400_000}")
    assert not world.host.machine.shard.transactions
