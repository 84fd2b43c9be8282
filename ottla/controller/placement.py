"""Places the replicas of new partitions on brokers: Kafka's round robin, over racks if every broker has one.

The first replicas follow the order of the brokers from a random start. A partition's further replicas have a distance from the first one
that grows after each full round, so that the followers of one leader are spread as well. With racks, the brokers are ordered with
alternating racks. A broker is skipped if it already has a replica of the partition. It is also skipped if its rack has a replica and
another rack has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.errors import ApiError, ErrorCode
from ottla.base.ports import Random


def place(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    random: Random,
    *,
    first_partition: int = 0,
    start: int | None = None,
) -> list[tuple[int, ...]]:
    """Returns the replicas of `partition_count` partitions numbered from `first_partition`. `racks` has every live broker that is not
    cordoned. Raises `ApiError` INVALID_REPLICATION_FACTOR if there are too few brokers."""
    if not racks:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced, or have all their log directories cordoned."
        )
    if replication_factor > len(racks):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {len(racks)} broker(s) are registered "
            "or some brokers have all their log directories cordoned.",
        )
    has_racks = all(rack is not None for rack in racks.values())
    brokers = _dealt_by_rack(racks) if has_racks else sorted(racks)
    if start is None:
        start = random.randrange(len(brokers))
    shift = random.randrange(len(brokers))
    placed = []
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        if has_racks:
            placed.append(_spread_over_racks(brokers, racks, first, shift, replication_factor))
        else:
            placed.append(_spread(brokers, first, shift, replication_factor))
    return placed


def _follower(first: int, shift: int, step: int, count: int) -> int:
    """Returns the index of a follower's broker, which is never the leader's."""
    return (first + 1 + (shift + step) % (count - 1)) % count


def _spread(brokers: Sequence[int], first: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    followers = [brokers[_follower(first, shift, step, len(brokers))] for step in range(replication_factor - 1)]
    return (brokers[first], *followers)


def _spread_over_racks(
    brokers: Sequence[int], racks: Mapping[int, str | None], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len({racks[broker] for broker in brokers})
    replicas = [brokers[first]]
    taken_racks = [racks[brokers[first]]]
    step = 0
    while len(replicas) < replication_factor:
        broker = brokers[_follower(first, shift * rack_count, step, len(brokers))]
        step += 1
        is_rack_free = racks[broker] not in taken_racks or len(set(taken_racks)) == rack_count
        if broker not in replicas and is_rack_free:
            replicas.append(broker)
            taken_racks.append(racks[broker])
    return tuple(replicas)


def _dealt_by_rack(racks: Mapping[int, str | None]) -> list[int]:
    """Returns the brokers with alternating racks: one of each rack in turn."""
    hands: dict[str, list[int]] = {}
    for broker in sorted(racks):
        hands.setdefault(str(racks[broker]), []).append(broker)
    dealt: list[int] = []
    names = sorted(hands)
    for turn in range(max(len(hand) for hand in hands.values())):
        dealt += [hands[name][turn] for name in names if turn < len(hands[name])]
    return dealt
