"""The quota of changes to the cluster: above it, requests of newer versions are refused, and those of older versions are delayed."""

from __future__ import annotations

from ottla.security.quotas.clients import ClientQuotas
from ottla.security.quotas.limits import MUTATION
from ottla.security.quotas.mutations import Mutations
from ottla.security.quotas.rates import Windows
from tests.fakes.world import World

ALICE = "User:alice"


class MutationsWorld(World):
    """A user that may change two partitions a second on average, and twenty at once."""

    def __init__(self) -> None:
        self.quotas = ClientQuotas(self.clock.monotonic_ms, Windows(11, 1000), Windows(10, 1000))
        self.quotas.update({(("user", "alice"),): {MUTATION: 2.0}})

    def request(self, *, is_strict: bool = True) -> Mutations:
        return self.quotas.mutations(ALICE, "admin", is_strict=is_strict)


def test_a_strict_request_is_refused_until_no_token_is_missing() -> None:
    world = MutationsWorld()
    first = world.request()
    assert first.take(30), "there were tokens"
    assert first.throttle_ms == 0
    assert not first.take(1)
    assert first.throttle_ms == 5000
    world.clock.advance(4999)
    assert not world.request().take(1)
    world.clock.advance(1)
    assert world.request().take(1)


def test_an_older_request_is_done_and_throttled() -> None:
    world = MutationsWorld()
    old = world.request(is_strict=False)
    assert old.take(30) and old.take(10)
    assert old.throttle_ms == 10_000
    assert not world.request().take(1)


def test_what_was_refused_by_others_is_given_back() -> None:
    world = MutationsWorld()
    request = world.request()
    request.take(30)
    request.give_back(30)
    assert request.take(1)


def test_without_a_quota_everything_may_change() -> None:
    world = MutationsWorld()
    bob = world.quotas.mutations("User:bob", None, is_strict=True)
    assert bob.take(1_000_000) and bob.throttle_ms == 0
    bob.give_back(1)
