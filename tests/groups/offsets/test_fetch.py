"""Offsets of a deleted topic are not returned for a new topic of the same name."""

from __future__ import annotations

from unittest import mock

import pytest

from tests.scenarios.groups_world import World


def recreated(world: World) -> mock._patch[object]:
    """Gives every topic another id from now on."""
    return mock.patch.object(world.topics, "topic_id", lambda name: b"%16b" % name.encode())


@pytest.mark.parametrize(("asked", "shown"), [("t-0", ["t-0 -1"]), ("all", ["t-0 -1"]), ("all stable", ["t-0 -1"])])
def test_an_offset_of_another_topic_id_is_not_shown(asked: str, shown: list[str]) -> None:
    world = World()
    world.run("commit - t-0=5")
    with recreated(world):
        assert world.run(f"fetch {asked}") == shown
        world.run("commit - t-0=1")
        assert world.run("fetch t-0") == ["t-0 1"]
    assert world.run("fetch t-0") == ["t-0 -1"]


def test_an_offset_that_names_no_topic_id_is_shown() -> None:
    """Transactions log such offsets, and so do other brokers for clients whose versions have no topic ids."""
    world = World()
    world.run("txn-commit 7 t-0=5")
    world.run("marker 7 commit")
    with recreated(world):
        assert world.run("fetch t-0") == ["t-0 5"]


def test_offsets_are_shown_as_long_as_no_topic_has_the_name() -> None:
    world = World()
    world.run("commit - t-0=5")
    with mock.patch.object(world.topics, "topic_id", lambda _name: None):
        assert world.run("fetch t-0") == ["t-0 5"]
