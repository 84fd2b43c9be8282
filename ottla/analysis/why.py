"""Finds out why a group is behind, why a client cannot write, and why a partition is not in sync (`ottla why` and the console). Each answer
is a list of `Reason`: the cause, the evidence, and the command that mends it. Everything is asked by Kafka's protocol, so it works with any
cluster as far as its brokers answer. If a broker refuses a question about transactions, quotas, ACLs, disks or settings, the answer has a
reason of the level `unknown`. Other refusals raise `ApiError`. A broker that cannot be reached raises `TransportError`, unless only the lag
of its replicas is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ottla.analysis.moments import format_ms
from ottla.analysis.open_transactions import BlockingTransaction, blocking_transactions
from ottla.base.acls import ANY, ANY_PRINCIPAL, MATCH, AclFilter, AclOperation, Permission, ResourceType
from ottla.base.counted import counted
from ottla.base.errors import ApiError, ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.blocking.cluster import Cluster
from ottla.client.core import acl_admin, admin, group_admin, quota_admin, replica_admin, transaction_admin
from ottla.client.core.admin import EARLIEST, LATEST, OffsetAt, list_offsets
from ottla.client.core.group_admin import GroupDescription, GroupMember
from ottla.client.errors import ClientError
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition

BAD, NOTE, FINE, UNKNOWN = "bad", "note", "fine", "unknown"

LOOK_S = 6.0
"""Seconds between two looks at the offsets of a group. 6 s: most clients commit every 5 s."""
FREE_BYTES_MIN = 1 << 30
FREE_SHARE_MIN = 0.05
"""A disk is nearly full below both limits."""
MEMBERS_UNEVEN = 2
"""A member that has this many partitions more than another one makes an assignment uneven."""


class Reason(NamedTuple):
    """A reason. Its `level` is `bad` if it must be mended, `note` if it may explain the trouble, `fine` if nothing is wrong. The level is
    `unknown` if a broker refused the question. `mend` is a command, or advice if no command helps, or empty."""

    subject: str
    cause: str
    sentence: str
    evidence: str = ""
    mend: str = ""
    level: str = BAD


# A reader


class _Look(NamedTuple):
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def _look(cluster: Cluster, group: str, places: Sequence[TopicPartition]) -> _Look:
    committed = {place: found.offset for place, found in group_admin.committed_offsets(cluster, group).items()}
    wanted = sorted({*places, *committed})
    ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST)) if wanted else {}
    return _Look(committed, {place: end.offset for place, end in ends.items() if isinstance(end, OffsetAt)})


def why_reader(cluster: Cluster, group: str, *, wait: Callable[[float], object] = time.sleep, look_s: float = LOOK_S) -> list[Reason]:
    """Returns the reasons why a group is behind. If the group has members and is behind, it reads the group's offsets twice, `look_s`
    seconds apart.
    """
    found = group_admin.describe_group(cluster, group)
    owners = {place: member for member in found.members for place in member.assignment}
    first = _look(cluster, group, sorted(owners))
    if found.state == "Dead" and not first.committed:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} not found")
    places = sorted({*owners, *first.committed})
    starts = list_offsets(cluster, dict.fromkeys(places, EARLIEST)) if places else {}
    reasons = _of_offsets(group, places, first, starts)
    # A member that has committed nothing may have to read the partition from its first record.
    firsts = {place: start.offset for place in owners if isinstance(start := starts[place], OffsetAt)}
    behind = {place: first.ends[place] - at for place, at in {**firsts, **first.committed}.items() if first.ends.get(place, 0) > at}
    reasons += _of_transactions(cluster, first, sorted(place for place in behind if place in first.committed))
    held = {reason.subject for reason in reasons if reason.cause == "open transaction"}
    if found.members:
        reasons += of_assignment(found, behind)
    if behind and found.members:
        wait(look_s)
        reasons += _of_members(owners, behind, first, _look(cluster, group, places), look_s, held)
        reasons += _of_reader_quota(cluster, {member.client_id for member in found.members})
    elif behind:
        records = counted(sum(behind.values()), "record")
        reasons.append(
            Reason(group, "no member", f"No member of the group runs, and {records} wait.", f"state {found.state}, 0 members",
                   "start the program that reads with this group")
        )  # fmt: skip
    if not reasons:
        sentence = "The group has read all records: the topics have no new ones." if first.committed else "The group has committed nothing."
        evidence = counted(len(first.committed), "committed offset") + (", lag 0" if first.committed else "")
        reasons.append(Reason(group, "no traffic", sentence, evidence, "", FINE))
    return reasons


def _of_offsets(
    group: str, places: list[TopicPartition], look: _Look, starts: Mapping[TopicPartition, OffsetAt | ApiError]
) -> list[Reason]:
    """Returns partitions whose offsets cannot be read, and committed offsets that are outside of their partition."""
    reasons = []
    for place in places:
        start, at, end = starts[place], look.committed.get(place), look.ends.get(place)
        if not isinstance(start, OffsetAt) or end is None:
            evidence = str(start) if isinstance(start, ApiError) else "no end offset"
            reasons.append(
                Reason(str(place), "no leader", f"{place} cannot be read.", evidence, f"ottla topic describe {place.topic}")
            )  # fmt: skip
        elif at is not None and at < start.offset:
            reasons.append(
                Reason(str(place), "deleted records", f"{counted(start.offset - at, 'record')} were deleted before the group read them.",
                       f"committed {at}, first offset {start.offset}",
                       f"ottla group reset-offsets {group} --topic {place.topic}:{place.partition} --to-earliest --execute")
            )  # fmt: skip
        elif at is not None and at > end:
            reasons.append(
                Reason(str(place), "offset beyond the end", "The group waits for an offset that does not exist: was the topic made again?",
                       f"committed {at}, end {end}",
                       f"ottla group reset-offsets {group} --topic {place.topic}:{place.partition} --to-earliest --execute")
            )  # fmt: skip
    return reasons


def _of_transactions(cluster: Cluster, look: _Look, behind: list[TopicPartition]) -> list[Reason]:
    """Returns the open transactions at which a read_committed reader stops, for partitions where the group has reached them."""
    if not behind:
        return []
    try:
        _, blocking = blocking_transactions(cluster, behind)
    except ApiError as error:
        return [Reason("transactions", "not known", "The brokers refuse to list open transactions.", str(error), "", UNKNOWN)]
    return [
        Reason(
            f"{one.topic}-{one.partition}", "open transaction",
            f"A reader of committed records stops at offset {one.last_stable_offset}, {one.records_behind} before the end.",
            _of_transaction(one), one.end_it,
        )
        for one in blocking
        if one.is_first and look.committed[TopicPartition(one.topic, one.partition)] >= one.last_stable_offset
    ]  # fmt: skip


def _of_transaction(one: BlockingTransaction) -> str:
    parts = [f"transactional id {one.transactional_id}" if one.transactional_id else "no coordinator knows the transaction"]
    parts.append(f"producer {one.producer_id} epoch {one.producer_epoch}")
    if one.age_ms is not None:
        parts.append(f"open for {one.age_ms / 1000:.0f} s")
    if one.times_out_in_ms is not None:
        parts.append(f"times out in {one.times_out_in_ms / 1000:.0f} s")
    if one.client_host:
        parts.append(f"client {one.client_id or 'without a name'} at {one.client_host}")
    return ", ".join([*parts, f"last written {format_ms(one.last_timestamp)}"])


def of_assignment(found: GroupDescription, behind: Mapping[TopicPartition, int]) -> list[Reason]:
    """Returns what is wrong with the assignment of a group. `behind` has the lag of partitions."""
    reasons = []
    if found.state not in ("Stable", "Empty", "Dead"):
        reasons.append(
            Reason(found.group_id, "rebalance", f"The group is in state {found.state}: partitions without a member are not read yet.",
                   f"{counted(len(found.members), 'member')}", f"ottla group describe {found.group_id} --state", NOTE)
        )  # fmt: skip
        return reasons
    owned = {place for member in found.members for place in member.assignment}
    for place, lag in behind.items():
        if place not in owned:
            reasons.append(
                Reason(str(place), "not assigned", "No member of the group has this partition: it no longer subscribes to the topic.",
                       f"lag {lag}, {counted(len(found.members), 'member')}",
                       f"ottla group delete-offsets {found.group_id} --topic {place.topic} --yes", NOTE)
            )  # fmt: skip
    counts = sorted((len(member.assignment), _name(member)) for member in found.members)
    if counts[-1][0] - counts[0][0] >= MEMBERS_UNEVEN:
        (few, idle), (many, busy) = counts[0], counts[-1]
        reasons.append(
            Reason(found.group_id, "uneven assignment", f"{busy} has {counted(many, 'partition')}, {idle} has {few}.",
                   f"assignor {found.assignor or 'not known'}",
                   "give the members the same subscription and partition.assignment.strategy, for instance cooperative-sticky", NOTE)
        )  # fmt: skip
    return reasons


def _of_members(
    owners: Mapping[TopicPartition, GroupMember], lags: Mapping[TopicPartition, int], before: _Look, after: _Look, look_s: float,
    held: set[str],
) -> list[Reason]:
    """Compares two samples of each partition that is behind. Its member commits nothing, is slower than the producers, or catches up.
    `lags` has the lags of the first sample.
    """
    reasons = []
    for place, member in sorted(owners.items()):
        end, first_end = after.ends.get(place, 0), before.ends.get(place, 0)
        was = before.committed.get(place, first_end - lags.get(place, 0))
        at = after.committed.get(place, was)
        if end <= at or str(place) in held:
            continue
        if place not in after.committed:
            reasons.append(
                Reason(str(place), "nothing committed", f"{_name(member)} has committed no offset of this partition, which has records.",
                       f"first offset {at}, end {end}", "if it should read older records, set its auto.offset.reset to earliest", NOTE)
            )  # fmt: skip
            continue
        done, written = at - was, end - (first_end if place in before.ends else end)
        evidence = f"in {look_s:g} s: {counted(done, 'record')} committed, {written} written; lag {end - at}; member {_name(member)}"
        if done <= 0:
            reasons.append(
                Reason(str(place), "stopped member", f"{_name(member)} is in the group but does not commit. It is stuck at offset {at}.",
                       evidence, f"ottla consume {place.topic} --partition {place.partition} -o {at} -n 1, then restart the member")
            )  # fmt: skip
        elif done < written:
            reasons.append(
                Reason(str(place), "slow member", f"{_name(member)} reads slower than the partition is written.", evidence,
                       "add members up to the number of partitions, or make the work on a record faster")
            )  # fmt: skip
        elif done == written:
            reasons.append(
                Reason(str(place), "constant lag", f"{_name(member)} reads only as fast as the partition is written, so its lag stays.",
                       evidence, "add members up to the number of partitions, or make the work on a record faster", NOTE)
            )  # fmt: skip
        else:
            seconds = (end - at) / (done - written) * look_s
            reasons.append(
                Reason(str(place), "catching up", f"{_name(member)} will have caught up in about {seconds:.0f} s.", evidence, "", FINE)
            )  # fmt: skip
    return reasons


def _name(member: GroupMember) -> str:
    return member.instance_id or f"{member.client_id} at {member.host.removeprefix('/')}"


def _of_reader_quota(cluster: Cluster, clients: set[str]) -> list[Reason]:
    return [found for client in sorted(clients) for found in _of_quota(cluster, "consumer_byte_rate", None, client)]


def _of_quota(cluster: Cluster, key: str, user: str | None, client: str | None) -> list[Reason]:
    """Returns the quotas that limit a rate: of the user, the client id and both together, by name and by default."""
    users, clients = (
        [] if name is None else [(kind, quota_admin.EXACT, name), (kind, quota_admin.DEFAULT, None)]
        for kind, name in ((quota_admin.USER, user), (quota_admin.CLIENT_ID, client))
    )
    filters = [*([one] for one in (*users, *clients)), *([of_user, of_client] for of_user in users for of_client in clients)]
    reasons = []
    try:
        for wanted in filters:
            for entity, values in quota_admin.describe_quotas(cluster, wanted).items():
                if key in values:
                    who = ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity)
                    options = " ".join(
                        f"--entity-type {kind}s {f'--entity-name {name}' if name else '--entity-default'}"
                        for kind, name in entity
                    ).replace("client-ids", "clients")
                    reasons.append(
                        Reason(who, "quota", f"A quota allows {values[key]:,.0f} bytes a second on each broker; above it answers are late.",
                               f"{key}={values[key]:g}", f"ottla config alter {options} --delete-config {key}", NOTE)
                    )  # fmt: skip
    except ApiError as error:
        reasons.append(Reason("quotas", "not known", "The brokers refuse to describe quotas.", str(error), "", UNKNOWN))
    return reasons


# A writer


def why_writer(
    cluster: Cluster, topic: str, *, user: str | None = None, client: str | None = None, transactional_id: str | None = None
) -> list[Reason]:
    """Returns the reasons why a client cannot write to a topic. `user` is the name without `User:`. Without a user, checks the permissions
    of this connection, and no quotas of users."""
    answer = cluster.refresh([topic])
    (found,) = answer.topics
    if found.error_code:
        return [_no_topic(topic, ErrorCode(found.error_code))]
    config, reasons = _settings(cluster, topic)
    min_in_sync = int(config.get("min.insync.replicas", "1"))
    reasons += [reason for one in found.partitions for reason in _of_partition(topic, one, min_in_sync, answer)]
    reasons += _of_rights(cluster, topic, user)
    has_unknown = any(reason.level == UNKNOWN for reason in reasons)
    reasons += _of_quota(cluster, "producer_byte_rate", user, client)
    reasons += _of_disks(cluster, topic)
    if transactional_id:
        reasons += _of_fencing(cluster, transactional_id)
    if not any(reason.level == BAD for reason in reasons):
        sentence = "Every partition has a leader and enough replicas in sync, and no ACL refuses the client."
        sentence = "Nothing that the brokers have answered keeps the client from writing." if has_unknown else sentence
        evidence = ", ".join(f"{name} {config.get(name, 'not known')}" for name in ("min.insync.replicas", "max.message.bytes"))
        reasons.append(Reason(topic, "nothing found", sentence, evidence, "", FINE))
    return reasons


def _no_topic(topic: str, code: ErrorCode) -> Reason:
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Reason(topic, "ACL", f"This connection may not see the topic {topic!r}.", code.name, f"ottla acl list --topic {topic}")
    return Reason(topic, "no topic", f"There is no topic {topic!r}.", code.name, f"ottla topic create {topic}")


def _settings(cluster: Cluster, topic: str) -> tuple[dict[str, str], list[Reason]]:
    """Returns the settings of a topic; without them, the reason why they are not known."""
    found = admin.describe_configs(cluster, admin.TOPIC_RESOURCE, [topic])[topic]
    if isinstance(found, ApiError):
        return {}, [Reason(topic, "not known", "The brokers refuse to describe the topic's settings.", str(found), "", UNKNOWN)]
    return {one.name: one.value or "" for one in found}, []


def _offline(topic: str, one: MetadataResponsePartition, alive: set[int]) -> Reason:
    down = [broker for broker in one.replica_nodes if broker not in alive]
    evidence = f"replicas {list(one.replica_nodes)}, in sync {list(one.isr_nodes)}, not running {down}"
    mend = f"start broker {down[0]}" if down else f"ottla partitions elect --election-type unclean --topic {topic}"
    sentence = "The partition has no leader, so nothing can be written to it or read from it."
    return Reason(f"{topic}-{one.partition_index}", "offline", sentence, evidence, mend)


def _of_partition(topic: str, one: MetadataResponsePartition, min_in_sync: int, answer: MetadataResponse) -> list[Reason]:
    place, alive = f"{topic}-{one.partition_index}", {broker.node_id for broker in answer.brokers}
    down = [broker for broker in one.replica_nodes if broker not in alive]
    evidence = f"replicas {list(one.replica_nodes)}, in sync {list(one.isr_nodes)}, not running {down}"
    if one.leader_id not in alive:
        return [_offline(topic, one, alive)]
    if len(one.replica_nodes) < min_in_sync:
        mend = f"ottla topic config {topic} --set min.insync.replicas={len(one.replica_nodes)}"
        sentence = f"min.insync.replicas is {min_in_sync}, but the partition has {counted(len(one.replica_nodes), 'replica')}."
        return [Reason(place, "min.insync.replicas", sentence, evidence, mend)]
    if len(one.isr_nodes) < min_in_sync:
        mend = f"start broker {down[0]}" if down else f"ottla why partition {topic} --partition {one.partition_index}"
        sentence = f"{counted(len(one.isr_nodes), 'replica')} in sync, min.insync.replicas is {min_in_sync}: acks=all is refused."
        return [Reason(place, "min.insync.replicas", sentence, evidence, mend)]
    return []


def _of_rights(cluster: Cluster, topic: str, user: str | None) -> list[Reason]:
    """Returns the ACLs that deny the user, or a reason if no ACL allows the user. Without a user it checks the permissions of this
    connection.
    """
    try:
        if user is None:
            allowed = acl_admin.allowed_operations(cluster, ResourceType.TOPIC, topic)
            if allowed is None or AclOperation.WRITE in allowed:
                return []
            sentence = "This connection may not write to the topic."
            evidence = f"allowed: {', '.join(one.name for one in allowed) or 'nothing'}"
            return [Reason(topic, "ACL", sentence, evidence, f"ottla acl add --allow-principal User:NAME --producer --topic {topic}")]
        rules = acl_admin.describe_acls(cluster, AclFilter(ResourceType.TOPIC, topic, MATCH, None, None, ANY, ANY))
    except ApiError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return []
        return [Reason(topic, "not known", "The brokers refuse to describe ACLs.", str(error), "", UNKNOWN)]
    writes = (AclOperation.WRITE, AclOperation.ALL)
    mine = [one.rule for one in rules if one.rule.principal in (f"User:{user}", ANY_PRINCIPAL) and one.rule.operation in writes]
    denied = [rule for rule in mine if rule.permission is Permission.DENY]
    if denied:
        evidence = f"DENY {denied[0].operation.name} for {denied[0].principal} from host {denied[0].host}"
        mend = f"ottla acl remove --deny-principal {denied[0].principal} --operation {denied[0].operation.name.title()} --topic {topic}"
        return [Reason(topic, "ACL", f"An ACL forbids User:{user} to write.", evidence, mend)]
    if not any(rule.permission is Permission.ALLOW for rule in mine):
        sentence = f"No ACL allows User:{user} to write, which is needed unless it is a super user."
        mend = f"ottla acl add --allow-principal User:{user} --producer --topic {topic}"
        return [Reason(topic, "ACL", sentence, f"{counted(len(rules), 'rule')} for this topic", mend)]
    return []


def _of_disks(cluster: Cluster, topic: str) -> list[Reason]:
    reasons = []
    for broker in sorted(cluster.metadata.brokers):
        try:
            directories = admin.describe_log_dirs(cluster, broker, [topic])
        except ApiError as error:
            return [Reason("disks", "not known", "The brokers refuse to describe their disks.", str(error), "", UNKNOWN)]
        for found in directories:
            subject = f"broker {broker}, {found.log_dir}"
            total, free = found.total_bytes, found.usable_bytes
            if found.error_code:
                code = ErrorCode(found.error_code).name
                reasons.append(Reason(subject, "failed disk", "The log directory is offline.", code, "mend the disk, restart the broker"))
            elif 0 <= free < FREE_BYTES_MIN and free < total * FREE_SHARE_MIN:
                evidence = f"{free:,} of {total:,} bytes are free"
                mend = f"ottla logdirs --describe, then ottla topic config {topic} --set retention.ms=..."
                reasons.append(Reason(subject, "full disk", "The disk is nearly full.", evidence, mend))
    return reasons


def _of_fencing(cluster: Cluster, transactional_id: str) -> list[Reason]:
    try:
        found = transaction_admin.describe_transaction(cluster, transactional_id)
    except ApiError as error:
        return [Reason(transactional_id, "not known", "The transactional id cannot be described.", str(error), "", UNKNOWN)]
    evidence = f"producer {found.producer_id}, epoch {found.producer_epoch}, state {found.state}"
    where = f" It was last used by {found.client_id or 'a client without a name'} at {found.client_host}." if found.client_host else ""
    sentence = f"Only the producer with epoch {found.producer_epoch} may write; a producer with a smaller epoch is fenced.{where}"
    mend = "close the older program, or give each program a transactional id of its own"
    return [Reason(transactional_id, "fencing", sentence, evidence, mend, NOTE)]


# A partition


def why_partition(cluster: Cluster, topic: str, partition: int | None = None) -> list[Reason]:
    """Returns the reasons why replicas of a topic, or of one of its partitions, are not in sync."""
    answer = cluster.refresh([topic])
    (found,) = answer.topics
    if found.error_code:
        return [_no_topic(topic, ErrorCode(found.error_code))]
    wanted = [one for one in found.partitions if partition is None or one.partition_index == partition]
    if not wanted:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} has no partition {partition}")
    alive = {broker.node_id for broker in answer.brokers}
    lags = _replica_lags(cluster, topic, sorted(alive))
    moves = replica_admin.moves_under_way(cluster) if any(len(one.isr_nodes) < len(one.replica_nodes) for one in wanted) else {}
    reasons = []
    for one in sorted(wanted, key=lambda one: one.partition_index):
        place = TopicPartition(topic, one.partition_index)
        move = moves.get(place)
        if one.leader_id not in alive:
            reasons.append(_offline(topic, one, alive))
        for broker in one.replica_nodes:
            if broker not in one.isr_nodes:
                adding = move is not None and broker in move.adding
                reasons.append(_of_replica(place, broker, one, broker in alive, lags.get((broker, one.partition_index)), adding))
    if not reasons:
        replicas = sum(len(one.replica_nodes) for one in wanted)
        sentence = f"All replicas of {counted(len(wanted), 'partition')} are in sync."
        reasons.append(Reason(topic, "in sync", sentence, f"{counted(replicas, 'replica')}", "", FINE))
    return reasons


def _replica_lags(cluster: Cluster, topic: str, brokers: list[int]) -> dict[tuple[int, int], int | str | ApiError]:
    """Returns for each broker and partition how many records the replica is behind, or its failure, or the broker's refusal to answer."""
    lags: dict[tuple[int, int], int | str | ApiError] = {}
    partitions = cluster.partitions(topic)
    for broker in brokers:
        try:
            directories = admin.describe_log_dirs(cluster, broker, [topic])
        except ClientError as error:
            lags.update({(broker, number): error if isinstance(error, ApiError) else str(error) for number in partitions})
            continue
        broken = [found.log_dir for found in directories if found.error_code]
        if broken:
            lags.update({(broker, number): f"the log directory {broken[0]} is offline" for number in partitions})
        for found in directories:
            for each in found.topics:
                # A copy that is being moved to another log directory has its own lag, which is measured against this replica.
                lags.update({(broker, one.partition_index): one.offset_lag for one in each.partitions if not one.is_future_key})
    return lags


def _of_replica(
    place: TopicPartition, broker: int, one: MetadataResponsePartition, is_alive: bool, lag: int | str | ApiError | None, is_added: bool
) -> Reason:
    subject = f"{place} on broker {broker}"
    evidence = f"leader {one.leader_id}, in sync {list(one.isr_nodes)}, lag {lag if isinstance(lag, int) else 'not known'}"
    if not is_alive:
        return Reason(subject, "broker down", f"Broker {broker} does not run.", evidence, f"start broker {broker}")
    if one.leader_id < 0:
        return Reason(subject, "no leader", "The partition has no leader to copy from.", evidence, f"ottla why writer {place.topic}")
    if isinstance(lag, str):
        return Reason(subject, "failed replica", f"The replica cannot be reached: {lag}.", evidence, f"look at the log of broker {broker}")
    if is_added:
        return Reason(subject, "reassignment", "The replica is new and is being copied.", evidence, "ottla partitions list", NOTE)
    if isinstance(lag, ApiError):
        sentence = f"The replica is not in sync. Broker {broker} refuses to say how far it is behind its leader."
        return Reason(subject, "not known", sentence, f"{evidence}: {lag}", "", UNKNOWN)
    if lag is None:
        return Reason(subject, "no replica", f"Broker {broker} has no log of this partition yet.", evidence, f"restart broker {broker}")
    sentence = "The replica has not caught up with its leader for replica.lag.time.max.ms."
    if lag:  # Kafka's brokers answer 0 for a follower.
        sentence += f" At its last fetch it was {counted(lag, 'record')} behind."
    mend = f"ottla config describe --entity-type brokers --entity-name {broker} (throttles), and the broker's log"
    return Reason(subject, "slow follower", sentence, evidence, mend)
