"""Checks the invariants of a cluster after every event, over all running brokers; `store_judge.py` checks the metadata store. A ledger
lists every batch below the high watermark of any leader so far. Every replica must equal the ledger below its own high watermark. Every
running member of the committed ISR, and every eligible replica, must have all batches of the ledger (I1, I3, I10, I14). Only the new part
of a replica is compared each time. The rules that lead to these results are checked separately too, because a broken rule seldom loses
records immediately: terms of leadership (I15), followers that join the ISR (I13), the high watermark with too few in-sync replicas (I12),
truncations (I17), and the synced part of a log (I5).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.errors import StorageError, WireError
from ottla.base.types import TopicPartition
from ottla.metadata_store.log_dir_nodes import LogDirEvent
from ottla.replication.isr import IsrPhase
from ottla.replication.partition import Partition
from ottla.storage.segment import LOG_SUFFIX
from ottla.wire.records import iter_batches
from tests.fakes.memory_store import ZooKeeperModel
from tests.sim.cluster_broker import ClusterBroker, ClusterNode
from tests.sim.store_judge import StoreJudge

NONE_HELD: Mapping[TopicPartition, bytes] = MappingProxyType({})


class Batch(NamedTuple):
    """A committed batch: its end offset, and a checksum of all its bytes."""

    end: int
    digest: int


class Ledger:
    """All batches that were ever committed in one partition."""

    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        self.end = 0


class Proposal(NamedTuple):
    """A change of the ISR that a leader has proposed: its term, the state that it changes, and the number of answers to earlier proposals.
    """

    term: Any
    partition_epoch: int
    moving: tuple[int, ...]
    answers: int


class ClusterChecks:
    """The checks after each event of a broker."""

    def __init__(self, model: ZooKeeperModel, brokers: Mapping[int, ClusterBroker]) -> None:
        self.store = StoreJudge(model)
        self.store.on_joined = self._check_joined
        self.store.is_failed = self._is_failed
        self.lying: int | None = None
        """The broker whose disk lies. What it holds may be less than what was committed, whatever it is; that it does not count for more
        is judged by the others, and by what is read in the end."""
        self._brokers = brokers
        self.ledgers: dict[tuple[bytes, int], Ledger] = {}
        self._terms: dict[tuple[bytes, int, int], tuple[int, int, Any]] = {}
        self._acting: dict[int, tuple[int, int]] = {}
        self._floors: dict[tuple[int, bytes, int], tuple[Any, int]] = {}
        self._compared: dict[tuple[int, int, bytes, int], int] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._topics: dict[tuple[int, str], Any] = {}
        self._looked: dict[Partition, tuple[Any, ...]] = {}
        self._proposals: dict[tuple[int, bytes, int], Proposal] = {}
        self._held: dict[int, tuple[int, Mapping[TopicPartition, bytes]]] = {}
        self._answers: dict[tuple[int, bytes, int], int] = {}

    def note_answer(self, broker_id: int, topic_id: bytes, index: int) -> None:
        """Notes that the controller's answer to a proposal of this leader arrives."""
        self._answers[broker_id, topic_id, index] = self._answers.get((broker_id, topic_id, index), 0) + 1

    def check(self, broker: ClusterBroker) -> None:
        """Runs the checks after an event of this broker."""
        if not broker.is_up or broker.node is None:
            return
        self._check_epochs(broker)
        self._check_metadata(broker)
        self._check_kept(broker, broker.node)
        for partition in broker.node.partitions.all():
            if partition.is_online:
                self._check_partition(broker, partition)
            elif (looked := self._looked.pop(partition, None)) is not None and looked[0] is not None:
                self._note_last(broker, partition)  # its disk failed in the middle of an event

    def _check_kept(self, broker: ClusterBroker, node: ClusterNode) -> None:
        """I10: a member of the ISR that has not restarted still has its log. A log that cannot be opened again must be reported."""
        count, (lives, known) = node.partitions.count(), self._held.get(broker.broker_id, (0, NONE_HELD))
        if lives == broker.lives and count == len(known):
            return
        held = {partition.topic_partition: partition.topic_id for partition in node.partitions.all()}
        self._held[broker.broker_id] = (broker.lives, held)
        is_current = self.store.noted_epochs.get(broker.broker_id) == node.member.broker_epoch()
        if lives != broker.lives or not is_current or not self._is_working(node):
            return
        for key, topic_id in known.items():
            state = self.store.states.get(key)
            if key in held or state is None or self.store.ids.get(key.topic) != topic_id or self.store.is_deleted(key.topic):
                continue
            claim = f"{key} on broker {broker.broker_id}, in the ISR {state.isr} of epoch {state.leader_epoch}"
            is_member = broker.broker_id in state.isr and len(state.isr) > 1
            is_coming = key in node.partitions._awaited or key in node.partitions._unopened
            assert not is_member or is_coming, f"{claim}, has no log any more (I10)"

    @staticmethod
    def _is_working(node: ClusterNode) -> bool:
        return all(directory.is_online for directory in node.partitions.log_directories())

    def note_end(self, broker: ClusterBroker) -> None:
        """Notes that this broker dies in the middle of an event."""
        for partition in broker.node.partitions.all() if broker.node is not None else ():
            if partition.leader is not None and partition.is_online:
                self._note_last(broker, partition)

    def _note_last(self, broker: ClusterBroker, partition: Partition) -> None:
        """Notes what a leader has committed before it died: other brokers may know of it, and so does the leader after its restart."""
        ledger = self.ledgers.setdefault((partition.topic_id, partition.topic_partition.partition), Ledger())
        if partition.high_watermark > ledger.end:
            self._extend(ledger, partition, partition.high_watermark, f"{partition.topic_partition} on broker {broker.broker_id}")

    def _check_epochs(self, broker: ClusterBroker) -> None:
        assert broker.node is not None
        member = broker.node.member
        lives, known = self._seen.get(broker.broker_id, (0, -1))
        now = member.receiver.controller_epoch
        assert lives != broker.lives or now >= known, f"broker {broker.broker_id} obeys controller epoch {now} after {known} (I38)"
        self._seen[broker.broker_id] = (broker.lives, now)
        controller = member.controller
        if controller.is_active:
            epoch, this = controller.state.controller_epoch, (broker.broker_id, broker.lives)
            acting = self._acting.setdefault(epoch, this)
            assert acting == this, f"brokers {acting} and {this} act as controller in epoch {epoch} (I38)"

    def _check_metadata(self, broker: ClusterBroker) -> None:
        """I42: the metadata that a broker serves names only leaders that the store has or had."""
        assert broker.node is not None
        for topic in broker.node.metadata.topics():
            if self._topics.get((broker.broker_id, topic.name)) is topic:
                continue
            self._topics[broker.broker_id, topic.name] = topic
            if self.store.ids.get(topic.name) != topic.topic_id:
                continue  # deleted meanwhile
            for served in topic.partitions:
                committed = self.store.leaders.get(TopicPartition(topic.name, served.index))
                if committed is None or served.leader == -1:
                    continue
                leader = committed.get(served.leader_epoch)
                claim = f"broker {broker.broker_id} serves {topic.name}-{served.index} led by {served.leader} in {served.leader_epoch}"
                assert leader == served.leader, f"{claim}, which is not committed (I42)"

    def _check_partition(self, broker: ClusterBroker, partition: Partition) -> None:
        log, leader, high = partition.log, partition.leader, partition.high_watermark
        start, end, stable = log.log_start_offset, log.log_end_offset, partition.last_stable_offset
        durable = (log.recovery_point, partition.state.durable_end if partition.state.is_flush_on_ack else 0)
        now = (leader, high, end, start, partition.isr_state, stable, durable)
        before = self._looked.get(partition)
        if before == now:
            return
        self._looked[partition] = now  # each process of a broker has its own partition objects
        where = f"{partition.topic_partition} on broker {broker.broker_id}"
        if before is not None:
            assert end >= before[1], f"{where}: cut to {end}, below its high watermark {before[1]} (I17)"
        if max(durable) > (max(before[6]) if before is not None else 0) and broker.broker_id != self.lying:
            self._check_durable(broker, partition, max(durable), where)
        assert start <= high <= end, f"{where}: start {start}, high watermark {high}, end {end} (I2)"
        newest = log.epochs.starts[-1] if log.epochs.starts and start < end else start
        assert newest <= max(start, end - 1), f"{where}: leader epoch {log.epochs.latest} begins at the end {end}, without a record (I16)"
        if leader is not None:
            assert start <= stable <= high, f"{where}: start {start}, last stable {stable}, high watermark {high} (I2)"
            self._check_leader(broker, partition, where)
            self._check_proposal(broker, partition, where)
        self._check_member(broker, partition, where)
        if broker.broker_id != self.lying:
            self._compare(broker, partition, where)

    def _check_leader(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        leader, key = partition.leader, (partition.topic_id, partition.topic_partition.partition)
        assert leader is not None
        this = (broker.broker_id, broker.lives, leader)
        if (*key, leader.epoch) not in self._terms:
            self._check_first(partition, where)
        term = self._terms.setdefault((*key, leader.epoch), this)
        assert term[:2] == this[:2], f"{where} leads in epoch {leader.epoch}, as does or did {term[:2]} (I15)"
        assert term[2] is leader, f"{where} begins to lead in epoch {leader.epoch} for the second time (I15)"
        members, replicas = partition.isr, partition.state.replicas
        assert broker.broker_id in members and set(members) <= set(replicas), f"{where}: ISR {members} of {replicas} (I9)"
        before = self._floors.get((broker.broker_id, *key))
        high = partition.high_watermark
        if before is not None and before[0] is leader:
            assert high >= before[1], f"{where}: the high watermark falls to {high} (I11)"
            if high > before[1]:
                self._check_eligible(partition, where)
        self._floors[broker.broker_id, *key] = (leader, high)
        ledger = self.ledgers.setdefault(key, Ledger())
        if high > ledger.end:
            self._extend(ledger, self._readable(partition, high), high, where)
            self.check_isr(partition.topic_partition, partition.topic_id)

    def _check_eligible(self, partition: Partition, where: str) -> None:
        """I12: in a state with eligible replicas the high watermark does not move, whatever the leader's settings are (KIP-966)."""
        state = self.store.versions.get(partition.topic_partition, {}).get(partition.partition_epoch)
        if state is not None and self.store.ids.get(partition.topic_partition.topic) == partition.topic_id:
            claim = f"the high watermark moves to {partition.high_watermark} with the ISR {state.isr}"
            assert not state.eligible, f"{where}: {claim}, although {state.eligible} are eligible (I12)"

    def _check_durable(self, broker: ClusterBroker, partition: Partition, offset: int, where: str) -> None:
        """I5: everything below the durable end is on the disk, also after a loss of power."""
        for segment in reversed(partition.log.segments):
            if segment.base_offset < offset:
                path = segment.path(LOG_SUFFIX)
                needed, certain = size_below(broker.disk.read_file(path), offset), broker.disk.certain_size(path)
                claim = f"{offset} counts as synced, {needed} bytes of segment {segment.base_offset}"
                assert certain >= needed, f"{where}: {claim}, and {certain} are on the disk (I5)"
                if segment.is_name_durable:
                    return  # earlier segments were checked before

    def _is_failed(self, report: LogDirEvent) -> bool:
        node = self._brokers[report.broker_id].node
        return node is not None and node.member.broker_epoch() == report.broker_epoch and not self._is_working(node)

    def _check_first(self, partition: Partition, where: str) -> None:
        """I14: a new leader has all records that were ever committed, because no election in these worlds is unclean. A broker may learn of
        its election late, when the store already has a newer epoch; a later leader may then have committed more.
        """
        assert partition.leader is not None
        ledger = self.ledgers.get((partition.topic_id, partition.topic_partition.partition))
        state = self.store.states.get(partition.topic_partition)
        is_over = state is not None and state.leader_epoch > partition.leader.epoch
        if ledger is not None and partition.broker_id != self.lying and not is_over:
            end, claim = partition.log.log_end_offset, f"{where} is elected in epoch {partition.leader.epoch}"
            assert end >= ledger.end, f"{claim}: its log ends at {end}, {ledger.end} is committed (I14)"

    def _check_proposal(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        """I12: a pending change of the ISR is included in the high watermark until the controller has answered, or has sent a newer state.
        """
        key = (broker.broker_id, partition.topic_id, partition.topic_partition.partition)
        now = Proposal(partition.leader, partition.partition_epoch, partition.isr_state.moving, self._answers.get(key, 0))
        before = self._proposals.get(key)
        if now.moving and (before is None or before.moving != now.moving) and partition.isr_state.phase is IsrPhase.PENDING_EXPAND:
            self._check_joining(partition, now.moving, where)
        if before is not None and before.moving and before.moving != now.moving and before._replace(moving=now.moving) == now:
            state = f"partition epoch {now.partition_epoch} of leader epoch {partition.leader_epoch}"
            raise AssertionError(f"{where}: the change by {before.moving} pending since {state} is forgotten without an answer (I12)")
        self._proposals[key] = now

    def _check_joining(self, partition: Partition, joining: tuple[int, ...], where: str) -> None:
        """I13: a leader proposes a follower for the ISR only if it has reached the high watermark and the start of the leader's epoch."""
        leader = partition.leader
        assert leader is not None
        least = max(partition.high_watermark, leader.epoch_start_offset)
        for member in joining:
            found = self._brokers[member].partitions.get(partition.topic_partition)
            if found is not None and found.topic_id == partition.topic_id and found.follower_log is not None:
                end, claim = found.log.log_end_offset, f"{where} proposes broker {member} in epoch {leader.epoch}"
                is_of_term = found.follower_log.epoch == leader.epoch
                assert not is_of_term or end >= least, f"{claim}: its log ends at {end}, the least is {least} (I13)"

    def _check_member(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        """I10, I49: a member of the committed ISR, or an eligible replica, has all records that were ever committed, also after it has
        registered again and the partition states include that. The last member of the ISR stays in it even if it has lost records
        (KIP-966).
        """
        key, topic_id, node = partition.topic_partition, partition.topic_id, broker.node
        state, ledger = self.store.states.get(key), self.ledgers.get((topic_id, key.partition))
        if state is None or ledger is None or node is None or self.store.ids.get(key.topic) != topic_id:
            return
        epoch, end = self.store.noted_epochs.get(broker.broker_id), partition.log.log_end_offset
        is_member = broker.broker_id in state.isr and len(state.isr) > 1
        if broker.broker_id == self.lying:
            return
        if epoch == node.member.broker_epoch() and (is_member or broker.broker_id in state.eligible):
            of, number = (state.isr, "I10") if is_member else (state.eligible, "I49")
            stays = f"in the {'ISR' if is_member else 'eligible replicas'} {of} of epoch {state.leader_epoch} with registration {epoch}"
            assert end >= ledger.end, f"{where}, {stays}: its log ends at {end}, {ledger.end} is committed ({number})"

    def _readable(self, partition: Partition, end: int) -> Partition:
        """Returns a replica with all records below `end` whose disk has no damage: the leader itself, or a member of its ISR."""
        key, members = partition.topic_partition, [number for number in partition.isr if number != self.lying]
        found = [self._brokers[number].partitions.get(key) for number in members] if partition.broker_id == self.lying else []
        whole = (one for one in found if one is not None and one.topic_id == partition.topic_id and one.log.log_end_offset >= end)
        return next(whole, partition)

    def _extend(self, ledger: Ledger, partition: Partition, high: int, where: str) -> None:
        for base, batch in batches_from(partition, ledger.end):
            if base >= high:
                break
            assert base >= ledger.end, f"{where}: a batch at {base} within what is committed up to {ledger.end} (I1)"
            ledger.batches[base] = batch
            ledger.end = batch.end
        assert ledger.end == high, f"{where}: the high watermark {high} lies within a batch that ends at {ledger.end}"

    def check_isr(self, key: TopicPartition, topic_id: bytes) -> None:
        """I10: every running member of the committed ISR has all records that were ever committed."""
        state, ledger = self.store.states.get(key), self.ledgers.get((topic_id, key.partition))
        if state is None or ledger is None or self.store.ids.get(key.topic) != topic_id:
            return
        for member in state.isr:
            broker = self._brokers[member]
            partition = broker.partitions.get(key)
            if partition is None or partition.topic_id != topic_id or not partition.is_online or member == self.lying:
                continue
            end, where = partition.log.log_end_offset, f"{key} on broker {member}, in the ISR of epoch {state.leader_epoch}"
            assert end >= ledger.end, f"{where}: ends at {end}, {ledger.end} is committed (I10)"
            self._compare_up_to(broker, partition, ledger.end, where)

    def _check_joined(self, key: TopicPartition, state: PartitionMetadata, joined: list[int], writer: int) -> None:
        """I13: a follower joins the ISR only by records that its current process has fetched, so it has all records that were ever
        committed. If it has registered again and the controller does not know that yet, the controller removes it from the ISR when it
        learns of it.
        """
        topic_id = self.store.ids.get(key.topic, b"")
        ledger, controller = self.ledgers.get((topic_id, key.partition)), self._brokers[writer].node
        for member in joined if ledger is not None and controller is not None else ():
            assert ledger is not None and controller is not None
            node, known = self._brokers[member].node, controller.controller.state.brokers.get(member)
            if node is None or known is None or node.member.broker_epoch() != known.epoch:
                continue
            where = f"{key}: broker {member} enters the ISR of epoch {state.leader_epoch} in registration {known.epoch}"
            partition = self._brokers[member].partitions.get(key)
            assert partition is not None or not node.member.receiver.is_new_to_controllers, f"{where}, in which it has no log yet (I13)"
            if partition is not None and partition.topic_id == topic_id and partition.is_online:
                end = partition.log.log_end_offset
                assert end >= ledger.end, f"{where}: its log ends at {end}, {ledger.end} is committed (I13)"

    def holds(self, partition: Partition, ledger: Ledger) -> bool:
        """Whether the log has all committed batches from its start offset on, byte for byte."""
        try:
            found = dict(batches_from(partition, partition.log.log_start_offset))
        except (AssertionError, WireError, StorageError):
            return False
        return all(found.get(base) == batch for base, batch in ledger.batches.items() if base >= partition.log.log_start_offset)

    def _compare(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        ledger = self.ledgers.get((partition.topic_id, partition.topic_partition.partition))
        high = partition.high_watermark
        if ledger is None:
            assert partition.leader is not None or high <= partition.log.log_start_offset, f"{where}: high watermark {high} from nowhere"
            return
        known = max(ledger.end, partition.log.log_start_offset)
        assert high <= known, f"{where}: high watermark {high}, no leader is above {ledger.end} (I12)"
        self._compare_up_to(broker, partition, high, where)

    def _compare_up_to(self, broker: ClusterBroker, partition: Partition, end: int, where: str) -> None:
        """Compares the log with the ledger, from the offset of the last comparison on."""
        key = (partition.topic_id, partition.topic_partition.partition)
        name = (broker.broker_id, broker.lives, *key)
        ledger, start = self.ledgers[key], max(partition.log.log_start_offset, 0)
        done = max(min(self._compared.get(name, 0), partition.log.log_end_offset), start)
        if done < end:
            for base, batch in batches_from(partition, done):
                if base >= end:
                    break
                expected = ledger.batches.get(base)
                assert expected == batch, f"{where}: {batch} at {base}, committed is {expected} (I3)"
                done = batch.end
        self._compared[name] = done


def size_below(segment: bytes, end: int) -> int:
    """Returns the size of a segment up to the end of the batch that ends at this offset."""
    size = 0
    for position, header in iter_batches(segment):
        if header.next_offset > end:
            break
        size = position + header.size_bytes
    return size


def batches_from(partition: Partition, start: int) -> Iterator[tuple[int, Batch]]:
    """Yields the batches of a log from an offset on, each with its checksum."""
    log, offset = partition.log, max(start, partition.log.log_start_offset)
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        assert read is not None, f"{partition.topic_partition}: nothing at {offset}, the end is {log.log_end_offset}"
        data = memoryview(read.read())
        for position, header in iter_batches(data):
            if header.next_offset > offset:
                yield header.base_offset, Batch(header.next_offset, zlib.crc32(data[position : position + header.size_bytes]))
                offset = header.next_offset
