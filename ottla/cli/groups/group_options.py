"""Options of the commands about groups of any kind: groups, states, and the partitions that `--topic` and `--all-topics` select."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.types import TopicPartition
from ottla.cli.command import Args, UsageError, flag, merged, option
from ottla.cli.topics.topic_names import named_partitions
from ottla.client.blocking.cluster import Cluster
from ottla.client.core.group_admin import list_groups

CONSUMERS = ("consumer", "")
SHARES = ("share",)
STREAMS = ("streams",)

GROUP_OPTIONS = (
    option("names", nargs="*", metavar="GROUP", help="groups"),
    option("-g", "--group", action="append", default=[], metavar="GROUP", help="a group, as an option, repeatable"),
    flag("--all-groups", help="every group"),
    option("--timeout", type=int, metavar="MS", help="how long to wait for the cluster"),
)


def chosen_groups(cluster: Cluster, args: Args, protocols: Sequence[str] = CONSUMERS) -> list[str]:
    """Returns the named groups, or with --all-groups all groups of these protocols. Raises `UsageError` if the options name groups and
    --all-groups, or neither.
    """
    names = list(dict.fromkeys([*args.names, *args.group]))
    if bool(names) == bool(args.all_groups):
        raise UsageError("name groups, or give --all-groups" if not names else "either groups or --all-groups, not both")
    if args.all_groups:
        return [group.group_id for group in list_groups(cluster) if group.protocol_type in protocols]
    return names


def known_words(option: str, texts: list[str] | None, known: Sequence[str]) -> list[str]:
    """Returns the words of a filter such as `--state`. Raises `UsageError` for an unknown word: a broker would return no group for it."""
    words = merged(texts)
    lower = {word.lower() for word in known}
    if any(word.lower() not in lower for word in words):
        raise UsageError(f"Invalid {option} list '{','.join(words)}'. Valid {option}s are: {', '.join(known)}")
    return words


def parse_scope(texts: Sequence[str]) -> dict[str, list[int] | None]:
    """Parses `TOPIC` and `TOPIC:0,1` into partitions by topic; None means all partitions. Raises `UsageError`."""
    found: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise UsageError(f"--topic {text!r} names no topic")
        if not colon:
            found[topic] = None
            continue
        try:
            wanted = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise UsageError(f"--topic {text!r} is not TOPIC:PARTITION,PARTITION...") from None
        before = found.get(topic, [])
        found[topic] = None if before is None else sorted({*before, *wanted})
    return found


def scope_partitions(
    cluster: Cluster, topics: Sequence[str] | None, is_all: bool, committed: Sequence[TopicPartition]
) -> list[TopicPartition]:
    """Returns the partitions of `topics`, or with `is_all` all partitions with a committed offset. Raises `ApiError` for a partition that
    does not exist.
    """
    if is_all and topics:
        raise UsageError("either --topic or --all-topics, not both")
    if is_all:
        return sorted(committed)
    partitions = []
    for topic, numbers in parse_scope(topics or []).items():
        partitions += named_partitions(cluster, topic, numbers)
    return sorted(partitions)
