"""Records the history of a run and judges it. Every value is unique and belongs to one transaction. Every transaction has an outcome from
its client's point of view: `ok`, `fail` (certainly no effect) or `info` (unknown). Readers report each value and its offset. At the end the
values that were read must match the outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.types import TopicPartition


@dataclass
class Transaction:
    """One transaction attempt of a client."""

    number: int
    transactional_id: str
    start: int = 0
    """The input offsets [start, end) that it consumes."""
    end: int = 0
    outcome: str = "fail"
    is_commit_called: bool = False
    values: dict[TopicPartition, list[str]] = field(default_factory=dict)

    def all_values(self) -> list[tuple[TopicPartition, str]]:
        return [(partition, value) for partition, values in self.values.items() for value in values]


class History:
    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.writers: dict[str, Transaction] = {}
        self.seen: dict[tuple[TopicPartition, int], str] = {}
        self.places: dict[str, tuple[TopicPartition, int]] = {}
        self.promised: dict[str, int] = {}

    def begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(len(self.transactions), transactional_id)
        self.transactions.append(transaction)
        return transaction

    def new_value(self, transaction: Transaction, partition: TopicPartition) -> str:
        value = f"v{len(self.writers)}"
        self.writers[value] = transaction
        transaction.values.setdefault(partition, []).append(value)
        return value

    def promise(self, values: list[str], base_offset: int) -> None:
        """Notes the offsets that a broker has acknowledged for these records."""
        self.promised.update((value, base_offset + index) for index, value in enumerate(values))

    def read(self, partition: TopicPartition, offset: int, value: str) -> None:
        """Notes a value that a reader of committed data got, and judges it immediately if possible."""
        before = self.seen.setdefault((partition, offset), value)
        assert before == value, f"inconsistent-offsets: {partition}@{offset} was {before}, is {value}"
        place = self.places.setdefault(value, (partition, offset))
        assert place == (partition, offset), f"duplicate: {value} at {place} and {partition}@{offset}"
        transaction = self.writers[value]
        assert transaction.is_commit_called, f"precommitted-read: {value} of transaction {transaction.number}"

    def judge(self, committed: dict[str, int]) -> None:
        """Judges the run after the final reads; `committed` are the groups' offsets."""
        for transaction in self.transactions:
            self._judge_visibility(transaction)
            self._judge_order(transaction)
        for value, offset in self.promised.items():
            place = self.places.get(value)
            assert place is None or place[1] == offset, f"moved: {value} was acknowledged at {offset} and is at {place} (I20)"
        for transactional_id, end in committed.items():
            self._judge_offsets(transactional_id, end)

    def is_visible(self, transaction: Transaction) -> bool:
        return any(value in self.places for _, value in transaction.all_values())

    def _judge_visibility(self, transaction: Transaction) -> None:
        missing = [value for _, value in transaction.all_values() if value not in self.places]
        who = f"transaction {transaction.number} of {transaction.transactional_id}"
        if transaction.outcome == "ok":
            assert not missing, f"lost-write: {who} is committed, {missing} were not seen{self._instead_of(missing, transaction)}"
        elif transaction.outcome == "fail":
            assert not self.is_visible(transaction), f"G1a: {who} has failed and was seen"
        else:
            assert not missing or not self.is_visible(transaction), f"torn: {who} was seen without {missing} (I23)"

    def _instead_of(self, missing: list[str], transaction: Transaction) -> str:
        """Returns the values at the offsets at which these values were acknowledged."""
        where = ((partition, value) for partition, values in transaction.values.items() for value in values if value in missing)
        places = [(partition, self.promised[value]) for partition, value in where if value in self.promised]
        found = [f"{partition}@{offset} has {self.seen.get((partition, offset))}" for partition, offset in places]
        return f", where they were acknowledged: {', '.join(found)} (I14)" if found else ""

    def _judge_order(self, transaction: Transaction) -> None:
        for partition, values in transaction.values.items():
            offsets = [self.places[value][1] for value in values if value in self.places]
            assert offsets == sorted(offsets), f"int-nonmonotonic-send in {partition}: {values} at {offsets}"

    def _judge_offsets(self, transactional_id: str, end: int) -> None:
        """Checks that the committed transactions have consumed each input offset once, and that nothing else moved the group's offsets
        (I23, I35).
        """
        done = sorted(
            (transaction.start, transaction.end)
            for transaction in self.transactions
            if transaction.transactional_id == transactional_id and (transaction.outcome == "ok" or self.is_visible(transaction))
        )
        position = 0
        for start, following in done:
            assert start == position, f"double-consume or offset-jump of {transactional_id}: at {position}, next is [{start}, {following})"
            position = following
        assert position == end, f"offset-jump of {transactional_id}: committed {end}, transactions end at {position}"
