"""Leader election: pure choices from the replicas in order, the in-sync set and the live brokers.

A clean choice is the first live replica, in replica order, that is in sync. Only where the topic allows it may a replica out of sync lead
when no other is left; records may be lost then, so the result says that it was unclean and the caller logs it (P10). An in-sync set never
becomes empty: the last member stays in it, dead or not, because it alone holds what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.base.immutable import immutable


@immutable
class Elected:
    """The new leader and in-sync set."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False


def elect_after_failure(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], *, is_unclean_allowed: bool = False
) -> Elected | None:
    """Elects a leader for a partition whose leader is gone; None: no replica may lead."""
    for replica in replicas:
        if replica in live and replica in isr:
            return Elected(replica, live_members(isr, live))
    if is_unclean_allowed:
        for replica in replicas:
            if replica in live:
                return Elected(replica, (replica,), is_unclean=True)
    return None


def elect_preferred(replicas: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """The first replica, if it is live and in sync."""
    preferred = replicas[0]
    return Elected(preferred, tuple(isr)) if preferred in live and preferred in isr else None


def elect_for_shutdown(replicas: Sequence[int], isr: Sequence[int], live: Collection[int], leaving: int) -> Elected | None:
    """Another in-sync replica for a broker that is about to stop; None: the partition must stay where it is."""
    staying = tuple(member for member in isr if member != leaving)
    for replica in replicas:
        if replica in live and replica in staying:
            return Elected(replica, staying)
    return None


def elect_reassigned(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """The first of the new replicas that is live and in sync; the others leave the in-sync set."""
    staying = tuple(member for member in isr if member in target)
    for replica in target:
        if replica in live and replica in staying:
            return Elected(replica, staying)
    return None


def live_members(isr: Sequence[int], live: Collection[int]) -> tuple[int, ...]:
    """The in-sync set without the dead, but never empty."""
    members = tuple(member for member in isr if member in live)
    return members or tuple(isr)
