"""Metrics of groups, transactions and share coordinators: states, members, committed offsets, lag, writes.

Lag is counted against the high watermark, as kafka_exporter does. It is known only for partitions with a replica on this broker. A topic
with other partitions has no sum of lags, because an incomplete sum would look like a group that has caught up. Shards that are still
loading are omitted. The event loop may serve clients after `PIECE` groups and offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ottla.base.metric_text import escape
from ottla.groups.states import GroupState, GroupType
from ottla.handlers.context import Partitions
from ottla.machine.host import HostState, MachineHost
from ottla.server.monitoring.metric_families import GROUP_COORDINATOR, GROUPS, SHARE_COORDINATOR, SHARE_GROUPS, TRANSACTIONS
from ottla.server.monitoring.metric_page import Page
from ottla.sharing.dead_letters import DeadLetterCounts
from ottla.sharing.state_coordinators import ShareStateCoordinators
from ottla.transactions.shard import EndCounts

PIECE = 200

STATES = {
    "stable": GroupState.STABLE,
    "empty": GroupState.EMPTY,
    "dead": GroupState.DEAD,
    "preparingrebalance": GroupState.PREPARING_REBALANCE,
    "completingrebalance": GroupState.COMPLETING_REBALANCE,
}

SHARE_STATES = (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD)


class Hosts(Protocol):
    """The coordinators of one kind on this broker, loading ones included."""

    def __call__(self) -> Iterable[MachineHost]: ...


class GroupMetrics:
    """Walks the groups of all shards."""

    def __init__(self, hosts: Hosts, partitions: Partitions) -> None:
        self._hosts = hosts
        self._partitions = partitions

    def collect(self, page: Page) -> Iterator[None]:
        states: Counter[GroupState] = Counter()
        share_states: Counter[GroupState] = Counter()
        types: Counter[GroupType] = Counter()
        looked_at = 0
        for shard in _active(self._hosts):
            for group_id, group in list(shard.groups.items()):
                types[group.type] += 1
                if group.type is GroupType.SHARE:
                    share_states[group.state] += 1
                    looked_at += 1
                else:
                    states[group.state] += 1
                    looked_at += 1 + self._write(page, group_id, len(group.members), shard.offsets.of_group(group_id))
                if looked_at >= PIECE:
                    looked_at = 0
                    yield
        page.put(GROUPS, states.total())
        for suffix, state in STATES.items():
            page.put(f"{GROUPS}{suffix}", states[state])
        for kind in GroupType:
            page.put(f"{GROUP_COORDINATOR}group_count", types[kind], f'{{protocol="{kind.value}"}}')
        for state in SHARE_STATES:
            page.put(f"{GROUP_COORDINATOR}share_group_count", share_states[state], f'{{state="{state.value.lower()}"}}')

    def _write(self, page: Page, group_id: str, members: int, offsets: dict[tuple[str, int], Any]) -> int:
        """Writes the lines of one group. Returns the number of its offsets."""
        name = escape(group_id)
        page.put("kafka_consumergroup_members", members, f'{{consumergroup="{name}"}}')
        offset_lines = page.lines["kafka_consumergroup_current_offset"]
        lag_lines = page.lines["kafka_consumergroup_lag"]
        offset_sums: Counter[str] = Counter()
        lag_sums: Counter[str] = Counter()
        elsewhere: set[str] = set()
        for (topic, index), committed in offsets.items():
            labels = f'{{consumergroup="{name}",topic="{escape(topic)}",partition="{index}"}}'
            offset_lines.append(f"kafka_consumergroup_current_offset{labels} {committed.offset}\n")
            offset_sums[topic] += committed.offset
            partition = self._partitions.get(topic, index)
            if partition is None:
                elsewhere.add(topic)
                continue
            lag = max(partition.high_watermark - committed.offset, 0)
            lag_lines.append(f"kafka_consumergroup_lag{labels} {lag}\n")
            lag_sums[topic] += lag
        for topic, offset_sum in offset_sums.items():
            labels = f'{{consumergroup="{name}",topic="{escape(topic)}"}}'
            page.put("kafka_consumergroup_current_offset_sum", offset_sum, labels)
            if topic not in elsewhere:
                page.put("kafka_consumergroup_lag_sum", lag_sums[topic], labels)
        return len(offsets)


class TransactionMetrics:
    """Counts the transactions of all shards."""

    def __init__(self, hosts: Hosts, ended: EndCounts, wall_ms: Callable[[], int]) -> None:
        self._hosts = hosts
        self._ended = ended
        self._wall_ms = wall_ms

    def collect(self, page: Page) -> Iterator[None]:
        ids = late = oldest = 0
        now_ms = self._wall_ms()
        for shard in _active(self._hosts):
            ids += len(shard.transactions)
            for transactional_id in shard.ongoing:
                metadata = shard.transactions[transactional_id]
                late += metadata.is_timed_out(now_ms)
                oldest = max(oldest, now_ms - metadata.start_timestamp_ms)
        page.put(f"{TRANSACTIONS}transactional_id_count", ids)
        page.put(f"{TRANSACTIONS}transaction_timeout_count", late)
        page.put(f"{TRANSACTIONS}active_transaction_total_time_max", oldest)
        page.put("ottla_transactions_committed_total", self._ended.committed)
        page.put("ottla_transactions_aborted_total", self._ended.aborted)
        yield


class ShareMetrics:
    """Counts the writes of share coordinators, and the dead letters of share groups."""

    def __init__(self, coordinators: ShareStateCoordinators, dead_letters: DeadLetterCounts) -> None:
        self._coordinators = coordinators
        self._dead_letters = dead_letters

    def collect(self, page: Page) -> Iterator[None]:
        page.put(f"{SHARE_COORDINATOR}write_total", self._coordinators.writes)
        page.put(f"{SHARE_GROUPS}dead_letter_queue_records_total", self._dead_letters.copied)
        page.put(f"{SHARE_GROUPS}dead_letter_queue_failed_records_total", self._dead_letters.given_up)
        yield


def _active(hosts: Hosts) -> Iterator[Any]:
    for host in list(hosts()):
        if host.state is HostState.ACTIVE:
            yield host.machine.shard
