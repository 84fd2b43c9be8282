"""What must hold in a cluster after every event, over all living brokers, and in the metadata store after every write.

The store is watched from below: each state of a partition, each epoch of the controller and who wrote it. Of what any leader's high
watermark has passed a ledger is kept, batch by batch; every replica must agree with it below its own high watermark, and every living
member of the committed ISR must have all of it (I1, I3, I10, I14). Replicas are compared as they grow, not as a whole each time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.base.cluster_metadata import PartitionMetadata
from ottla.base.ports import Check, Operation, Outcome, StoreResult
from ottla.base.types import TopicPartition
from ottla.controller import znodes
from ottla.replication.partition import Partition
from ottla.wire.records import iter_batches
from tests.fakes.memory_store import ZooKeeperModel
from tests.sim.cluster_broker import ClusterBroker
from tests.sim.cluster_store import ClusterStore


class Batch(NamedTuple):
    """A batch that is committed: where it ends, and a checksum over all its bytes."""

    end: int
    digest: int


class Ledger:
    """All that was ever committed in one partition of one topic."""

    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        self.end = 0


class Proposal(NamedTuple):
    """A change of the ISR that a leader has proposed: in which term, from which state, after how many answers to earlier ones."""

    term: Any
    partition_epoch: int
    moving: tuple[int, ...]
    answers: int


class StoreJudge:
    """Looks at every write that the metadata store takes."""

    def __init__(self, model: ZooKeeperModel) -> None:
        self._model = model
        self._works = model.apply
        model.apply = self._apply  # type: ignore[method-assign]
        self.controller_epoch = 0
        self.elected: dict[int, int] = {}
        self.noted_epochs: dict[int, int] = {}
        """The registrations that the states of partitions take into account."""
        self.writers: dict[int, int] = {}
        self.states: dict[TopicPartition, PartitionMetadata] = {}
        self.leaders: dict[TopicPartition, dict[int, int]] = {}
        self.ids: dict[str, bytes] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.writes = 0
        self.digest = 0
        self.isr_changes = 0
        self.on_joined: Callable[[TopicPartition, PartitionMetadata, list[int], int], None] = lambda *_: None
        """Called with the state of a partition, the followers that are new in its ISR, and the controller that writes it."""

    def _apply(self, operations: list[Operation], session_id: int) -> Outcome:
        store = self._model.sessions.get(session_id)
        outcome = self._works(operations, session_id)
        if outcome.result is StoreResult.OK:
            self.writes += 1
            is_changing = any(not isinstance(operation, Check) for operation in operations)
            for operation in operations:
                if is_changing and isinstance(store, ClusterStore) and operation.path == znodes.CONTROLLER_EPOCH:
                    self._note_writer(operation, store.broker_id)
                self._note(operation.path, store)
        return outcome

    def _note_writer(self, operation: Operation, broker_id: int) -> None:
        """I38: under an epoch writes only the controller that was elected to it."""
        if isinstance(operation, Check):
            epoch = self.controller_epoch
            elected = self.elected.get(epoch, broker_id)
            assert elected == broker_id, f"broker {broker_id} writes in controller epoch {epoch}, to which {elected} was elected (I38)"
        else:
            self.elected[self.controller_epoch + 1] = broker_id

    def _note(self, path: str, store: Any) -> None:
        node = self._model.tree.get(path)
        self.digest = zlib.crc32(path.encode() + (node.data if node is not None else b"-"), self.digest)
        if path == znodes.CONTROLLER_EPOCH and node is not None:
            epoch = znodes.read_controller_epoch(node.data)
            assert epoch >= self.controller_epoch, f"the controller epoch falls from {self.controller_epoch} to {epoch} (I38)"
            self.controller_epoch = epoch
        elif path == znodes.BROKER_EPOCHS and node is not None:
            self.noted_epochs = znodes.read_broker_epochs(node.data)[0]
        elif path.startswith("/brokers/topics/") and path.endswith("/state"):
            _, _, _, topic, _, index, _ = path.split("/")
            self._note_state(TopicPartition(topic, int(index)), node, store)
        elif path.startswith("/brokers/topics/") and path.count("/") == 3:
            self._note_topic(path.rpartition("/")[2], node)

    def _note_topic(self, name: str, node: Any) -> None:
        if node is None:
            self.ids.pop(name, None)
            return
        topic = znodes.read_topic(name, node.data, node.version, {})
        self.ids[name] = topic.topic_id
        for partition in topic.partitions:
            self.replicas[TopicPartition(name, partition.index)] = partition.replicas

    def _note_state(self, key: TopicPartition, node: Any, store: Any) -> None:
        if node is None:
            self.states.pop(key, None)
            self.leaders.pop(key, None)
            return
        new, old = znodes.read_partition(key.partition, node.data, node.version), self.states.get(key)
        where = f"{key} in the store"
        known = self.controller_epoch
        assert new.controller_epoch == known, f"{where}: written under controller epoch {new.controller_epoch}, it is {known} (I39)"
        if isinstance(store, ClusterStore):
            writer = self.writers.setdefault(new.controller_epoch, store.broker_id)
            assert writer == store.broker_id, f"{where}: {store.broker_id} writes in the controller epoch of {writer} (I38)"
        assert new.leader == -1 or new.leader in new.isr, f"{where}: leader {new.leader} outside of the ISR {new.isr} (I9)"
        is_empty = new.leader == -1 and new.emptied
        assert new.isr or is_empty, f"{where}: no replica is in sync"
        if old is not None:
            assert new.leader_epoch >= old.leader_epoch, f"{where}: leader epoch {new.leader_epoch} after {old.leader_epoch} (I15)"
            is_same = new.leader_epoch == old.leader_epoch
            assert not is_same or new.leader == old.leader, f"{where}: two leaders of epoch {new.leader_epoch} (I15)"
            self.isr_changes += new.isr != old.isr
            joined = [member for member in new.isr if member not in old.isr and member != new.leader]
            if joined and isinstance(store, ClusterStore):
                self.on_joined(key, new, joined, store.broker_id)
        self.states[key] = new
        self.leaders.setdefault(key, {})[new.leader_epoch] = new.leader


class ClusterChecks:
    """Everything that is looked at after an event of a broker."""

    def __init__(self, model: ZooKeeperModel, brokers: Mapping[int, ClusterBroker]) -> None:
        self.store = StoreJudge(model)
        self.store.on_joined = self._check_joined
        self._brokers = brokers
        self.ledgers: dict[tuple[bytes, int], Ledger] = {}
        self._terms: dict[tuple[bytes, int, int], tuple[int, int]] = {}
        self._acting: dict[int, tuple[int, int]] = {}
        self._floors: dict[tuple[int, bytes, int], tuple[Any, int]] = {}
        self._compared: dict[tuple[int, int, bytes, int], int] = {}
        self._seen: dict[int, tuple[int, int]] = {}
        self._topics: dict[tuple[int, str], Any] = {}
        self._looked: dict[Partition, tuple[Any, ...]] = {}
        self._proposals: dict[tuple[int, bytes, int], Proposal] = {}
        self._answers: dict[tuple[int, bytes, int], int] = {}

    def note_answer(self, broker_id: int, topic_id: bytes, index: int) -> None:
        """The controller's answer to a proposal of this leader arrives now."""
        self._answers[broker_id, topic_id, index] = self._answers.get((broker_id, topic_id, index), 0) + 1

    def check(self, broker: ClusterBroker) -> None:
        """This broker has done something."""
        if not broker.is_up or broker.node is None:
            return
        self._check_epochs(broker)
        self._check_metadata(broker)
        for partition in broker.node.partitions.all():
            if partition.is_online:
                self._check_partition(broker, partition)
            elif (looked := self._looked.pop(partition, None)) is not None and looked[0] is not None:
                self._note_last(broker, partition)  # its disk failed in the middle of something

    def note_end(self, broker: ClusterBroker) -> None:
        """This broker dies in the middle of something."""
        for partition in broker.node.partitions.all() if broker.node is not None else ():
            if partition.leader is not None and partition.is_online:
                self._note_last(broker, partition)

    def _note_last(self, broker: ClusterBroker, partition: Partition) -> None:
        """What a leader has committed until its end may be known to others already, and to itself when it is back."""
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
        """I42: what is served names leaders that the store has, or has had."""
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
        now = (leader, high, end, start, partition.isr_state, stable)
        if self._looked.get(partition) == now:
            return
        self._looked[partition] = now  # each life of a broker has partitions of its own
        where = f"{partition.topic_partition} on broker {broker.broker_id}"
        assert start <= high <= end, f"{where}: start {start}, high watermark {high}, end {end} (I2)"
        if leader is not None:
            assert start <= stable <= high, f"{where}: start {start}, last stable {stable}, high watermark {high} (I2)"
            self._check_leader(broker, partition, where)
            self._check_proposal(broker, partition, where)
        self._check_member(broker, partition, where)
        self._compare(broker, partition, where)

    def _check_leader(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        leader, key = partition.leader, (partition.topic_id, partition.topic_partition.partition)
        assert leader is not None
        this = (broker.broker_id, broker.lives)
        if (*key, leader.epoch) not in self._terms:
            self._check_first(partition, where)
        term = self._terms.setdefault((*key, leader.epoch), this)
        assert term == this, f"{where} leads in epoch {leader.epoch}, as does or did {term} (I15)"
        members, replicas = partition.isr, partition.state.replicas
        assert broker.broker_id in members and set(members) <= set(replicas), f"{where}: ISR {members} of {replicas} (I9)"
        before = self._floors.get((broker.broker_id, *key))
        high = partition.high_watermark
        assert before is None or before[0] is not leader or high >= before[1], f"{where}: the high watermark falls to {high} (I11)"
        self._floors[broker.broker_id, *key] = (leader, high)
        ledger = self.ledgers.setdefault(key, Ledger())
        if high > ledger.end:
            self._extend(ledger, partition, high, where)
            self.check_isr(partition.topic_partition, partition.topic_id)

    def _check_first(self, partition: Partition, where: str) -> None:
        """I14: a new leader holds all that was ever committed. No election in these worlds is one that may lose records."""
        assert partition.leader is not None
        ledger = self.ledgers.get((partition.topic_id, partition.topic_partition.partition))
        if ledger is not None:
            end, claim = partition.log.log_end_offset, f"{where} is elected in epoch {partition.leader.epoch}"
            assert end >= ledger.end, f"{claim}: its log ends at {end}, {ledger.end} is committed (I14)"

    def _check_proposal(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        """I12: what is pending counts until the controller has answered, or has sent newer state."""
        key = (broker.broker_id, partition.topic_id, partition.topic_partition.partition)
        now = Proposal(partition.leader, partition.partition_epoch, partition.isr_state.moving, self._answers.get(key, 0))
        before = self._proposals.get(key)
        if before is not None and before.moving and before.moving != now.moving and before._replace(moving=now.moving) == now:
            state = f"partition epoch {now.partition_epoch} of leader epoch {partition.leader_epoch}"
            raise AssertionError(f"{where}: the change by {before.moving} pending since {state} is forgotten without an answer (I12)")
        self._proposals[key] = now

    def _check_member(self, broker: ClusterBroker, partition: Partition, where: str) -> None:
        """I10: a member of the committed ISR that has registered anew, which the states take into account by now, has all that was ever
        committed. The last member stays whatever it has lost (KIP-966)."""
        key, topic_id, node = partition.topic_partition, partition.topic_id, broker.node
        state, ledger = self.store.states.get(key), self.ledgers.get((topic_id, key.partition))
        if state is None or ledger is None or node is None or self.store.ids.get(key.topic) != topic_id or len(state.isr) < 2:
            return
        epoch, end = self.store.noted_epochs.get(broker.broker_id), partition.log.log_end_offset
        if broker.broker_id in state.isr and epoch == node.member.broker_epoch():
            stays = f"in the ISR {state.isr} of epoch {state.leader_epoch} with registration {epoch}"
            assert end >= ledger.end, f"{where}, {stays}: its log ends at {end}, {ledger.end} is committed (I10)"

    def _extend(self, ledger: Ledger, partition: Partition, high: int, where: str) -> None:
        for base, batch in batches_from(partition, ledger.end):
            if base >= high:
                break
            assert base >= ledger.end, f"{where}: a batch at {base} within what is committed up to {ledger.end} (I1)"
            ledger.batches[base] = batch
            ledger.end = batch.end
        assert ledger.end == high, f"{where}: the high watermark {high} lies within a batch that ends at {ledger.end}"

    def check_isr(self, key: TopicPartition, topic_id: bytes) -> None:
        """I10: every living member of the committed ISR has all that was ever committed."""
        state, ledger = self.store.states.get(key), self.ledgers.get((topic_id, key.partition))
        if state is None or ledger is None or self.store.ids.get(key.topic) != topic_id:
            return
        for member in state.isr:
            broker = self._brokers[member]
            partition = broker.partitions.get(key)
            if partition is None or partition.topic_id != topic_id or not partition.is_online:
                continue
            end, where = partition.log.log_end_offset, f"{key} on broker {member}, in the ISR of epoch {state.leader_epoch}"
            assert end >= ledger.end, f"{where}: ends at {end}, {ledger.end} is committed (I10)"
            self._compare_up_to(broker, partition, ledger.end, where)

    def _check_joined(self, key: TopicPartition, state: PartitionMetadata, joined: list[int], writer: int) -> None:
        """I13: a follower enters the ISR by what it has fetched in its present life, so it has all that was ever committed. One that has
        registered anew without the controller's knowledge is taken out when the controller learns of it."""
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
        """The log agrees with the ledger from where it was last compared."""
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


def batches_from(partition: Partition, start: int) -> Iterator[tuple[int, Batch]]:
    """The batches of a log from an offset on, each with its checksum."""
    log, offset = partition.log, max(start, partition.log.log_start_offset)
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        assert read is not None, f"{partition.topic_partition}: nothing at {offset}, the end is {log.log_end_offset}"
        data = memoryview(read.read())
        for position, header in iter_batches(data):
            if header.next_offset > offset:
                yield header.base_offset, Batch(header.next_offset, zlib.crc32(data[position : position + header.size_bytes]))
                offset = header.next_offset
