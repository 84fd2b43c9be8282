"""The eight levels of quotas: which of the quotas that are set applies to a client, and which clients share it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest

from ottla.base.cluster_metadata import QuotaEntity
from ottla.security.quotas.limits import FETCH, PRODUCE, Limits, QuotaShare

LEVELS: list[tuple[QuotaEntity, tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]
"""The levels in Kafka's order, with the user and client id under which user `u` with client id `c` is counted."""


def subsets() -> Iterator[tuple[int, ...]]:
    for size in range(1, len(LEVELS) + 1):
        yield from combinations(range(len(LEVELS)), size)


def test_the_most_specific_level_that_is_set_holds() -> None:
    for chosen in subsets():
        limits = Limits({LEVELS[number][0]: {PRODUCE: 100.0 + number} for number in chosen})
        found = limits.find(PRODUCE, "u", "c")
        assert found is not None
        assert (found.rate, found.share) == (100.0 + chosen[0], QuotaShare(PRODUCE, *LEVELS[chosen[0]][1])), chosen


def test_each_kind_has_levels_of_its_own() -> None:
    limits = Limits({LEVELS[0][0]: {PRODUCE: 1}, LEVELS[7][0]: {FETCH: 2}})
    fetch = limits.find(FETCH, "u", "c")
    assert fetch is not None and fetch.rate == 2
    assert limits.is_set(PRODUCE) and limits.is_set(FETCH) and not limits.is_set("request_percentage")


@pytest.mark.parametrize("number", range(8))
def test_a_quota_of_others_does_not_hold(number: int) -> None:
    limits = Limits({LEVELS[number][0]: {PRODUCE: 1}})
    names = dict(LEVELS[number][0])
    user = "other" if names.get("user") == "u" else "u"
    client_id = "other" if names.get("client-id") == "c" else "c"
    is_named = (user, client_id) != ("u", "c")
    assert (limits.find(PRODUCE, user, client_id) is None) == is_named


def test_clients_of_one_user_share_its_quota_and_defaults_are_for_each() -> None:
    limits = Limits({(("user", None),): {PRODUCE: 1}, (("client-id", None),): {FETCH: 1}})
    shares = {limits.find(PRODUCE, "u", client_id) for client_id in ("a", "b")}
    assert len(shares) == 1
    assert len({limits.find(PRODUCE, user, "a") for user in ("u", "v")}) == 2
    assert len({limits.find(FETCH, "u", client_id) for client_id in ("a", "b")}) == 2
    assert len({limits.find(FETCH, user, "a") for user in ("u", "v")}) == 1


def test_quotas_of_addresses_and_nonsense_are_none_of_clients() -> None:
    limits = Limits({(("ip", "::1"),): {"connection_creation_rate": 1}, (("user", "u"),): {PRODUCE: 0, "x": 3}})
    assert limits.find(PRODUCE, "u", "c") is None
