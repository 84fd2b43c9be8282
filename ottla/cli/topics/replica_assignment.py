"""`--replica-assignment`: the brokers of each partition of a topic, as Kafka's tool writes them."""

from __future__ import annotations

from ottla.cli.command import UsageError


def parse_replica_assignment(text: str) -> dict[int, list[int]]:
    """`0:1,1:2`: partition 0 on brokers 0 and 1, partition 1 on 1 and 2."""
    try:
        placed = {number: [int(broker) for broker in part.split(":")] for number, part in enumerate(text.split(","))}
    except ValueError:
        raise UsageError(f"--replica-assignment {text!r} is not BROKER:BROKER,BROKER:BROKER...") from None
    for number, brokers in placed.items():
        if len(set(brokers)) != len(brokers):
            raise UsageError(f"--replica-assignment names a broker twice for partition {number}")
        if len(brokers) != len(placed[0]):
            raise UsageError("--replica-assignment gives partitions different numbers of replicas")
    return placed
