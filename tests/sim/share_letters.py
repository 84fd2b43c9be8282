"""A run of `share_world.py` whose group has a dead-letter topic, and faults that break rules of dead letters. It checks in addition to the
verdicts of share groups: when a leader begins to copy a record, no member gets this record any more (its state is stored); each record of
the last era whose rejection was answered without an error is in the dead-letter topic at the end, after all losses of power.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ottla.base.cluster_metadata import CONFIG_GROUP, ConfigPut
from ottla.base.control_messages import UpdateConfigs
from ottla.base.share_state import DeliveryState, StateWritten
from ottla.base.types import TopicPartition
from ottla.sharing import share_partition
from ottla.sharing.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW
from ottla.sharing.dead_letters import Copied, DeadLetters
from ottla.sharing.in_flight import ARCHIVING, InFlight, OffsetRun
from ottla.sharing.share_partition import SharePartition
from ottla.wire.records import iter_batches, read_records
from tests.sim.broker import TOPIC_CONFIGS, SimNode
from tests.sim.seed_search import catch_seed
from tests.sim.share_broker import SHARE_KEYS, TERMS, ShareBroker
from tests.sim.share_members import GROUP, Member, Words
from tests.sim.share_world import LAYOUTS, ShareWorld

DLQ = TopicPartition("dlq.s", 0)
GROUP_CONFIGS = {"errors.deadletterqueue.topic.name": DLQ.topic, "errors.deadletterqueue.copy.record.enable": "true"}
OFFSET, PARTITION = "__dlq.errors.offset", "__dlq.errors.partition"


class LetterBroker(ShareBroker):
    """A broker of a group with a dead-letter topic."""

    topic_configs = {**TOPIC_CONFIGS, "errors.deadletterqueue.group.enable": "true"}

    def prepare(self, node: SimNode) -> None:
        super().prepare(node)
        terms = TERMS._replace(has_dead_letters=True)
        node.share_partitions.terms_of = lambda _group: terms
        own = ConfigPut(CONFIG_GROUP, GROUP, GROUP_CONFIGS)
        node.metadata.update_configs(UpdateConfigs(controller_id=1, controller_epoch=1, broker_epoch=0, changes=[own]))
        shares, copy = node.share_partitions, node.share_partitions._copy_dead_letters

        def judged(letters: DeadLetters, done: Copied) -> None:
            share = shares.find(letters.key, letters.leader_epoch)
            if share is not None:
                self.world.history.copying(letters.key.partition, share.state_epoch, letters.first_offset, letters.last_offset)
            copy(letters, done)

        shares._copy_dead_letters = judged


class LetterMember(Member):
    """A member that rejects many records, also at the end."""

    def _words(self, held: list[tuple[int, int]]) -> Words:
        if self.world.is_ending:
            return [(first, last, [self.chance.choice((ACCEPT, REJECT)) for _ in range(first, last + 1)]) for first, last in held]
        return super()._words(held)

    def _kind(self) -> int:
        return self.chance.choices([ACCEPT, RELEASE, REJECT, RENEW], [4, 4, 7, 1])[0]


class LetterWorld(ShareWorld):
    """See above."""

    keys = [*SHARE_KEYS, DLQ]
    layouts = [(*layout, number) for layout in LAYOUTS for number in sorted({1, *layout})]
    broker_type = LetterBroker
    member_type = LetterMember

    def counts(self) -> dict[str, int]:
        return {"letters": sum(map(len, self.letters().values())), **super().counts()}

    def letters(self) -> dict[int, set[int]]:
        """Returns the offsets of the dead letters, by partition."""
        found: dict[int, set[int]] = defaultdict(set)
        partition = self.brokers[self.layout[DLQ]].partitions[DLQ]
        offset = partition.log.log_start_offset
        while offset < partition.high_watermark:
            read = partition.read(offset, 1 << 20).slice
            assert read is not None
            data = memoryview(read.read())
            for position, header in iter_batches(data):
                for record in read_records(data[position : position + 12 + header.batch_length]):
                    context = {name: int(value or b"") for name, value in record.headers if name in (OFFSET, PARTITION)}
                    found[context[PARTITION]].add(context[OFFSET])
                offset = header.base_offset + header.last_offset_delta + 1
        return found

    def _judge(self) -> None:
        super()._judge()
        letters = self.letters()
        for partition in range(len(self.history.eras)):
            self.history.judge_letters(partition, letters[partition])


# Faults


def copy_before_stored() -> Any:
    """Records are copied before their state is stored."""
    change = SharePartition._change

    def hasty(share: SharePartition, changing: list[OffsetRun], done: StateWritten) -> None:
        for run in changing:
            if run.target is ARCHIVING:
                letters = DeadLetters(share.key, share.leader_epoch, run.first, run.last, run.delivery_count, run.was_rejected)
                share._copy_dead_letters(letters, lambda _may_archive: None)
        change(share, changing, done)

    return mock.patch.object(SharePartition, "_change", hasty)


def archive_before_copied() -> Any:
    """Records are archived before their copies are written."""

    def copy_next(share: SharePartition) -> None:
        run = share_partition.dead_letters.first_run(share.flight) if share.is_loaded else None
        if run is not None and run.target is None:
            letters = DeadLetters(share.key, share.leader_epoch, run.first, run.last, run.delivery_count, run.was_rejected)
            share._copy_dead_letters(letters, lambda _may_archive: None)
            share._copying = letters
            share._copied(letters, True)

    return mock.patch.object(SharePartition, "_copy_next", copy_next)


def forget_copies() -> Any:
    """The next leader treats records as archived although their copy has only begun."""

    def archived(start: int, batches: Any = ()) -> InFlight:
        states = {DeliveryState.ARCHIVING: DeliveryState.ARCHIVED}
        changed = [batch._replace(delivery_state=states.get(batch.delivery_state, batch.delivery_state)) for batch in batches]
        return InFlight(start, changed)

    return mock.patch.object(share_partition, "InFlight", archived)


def end_without_copies() -> Any:
    """The end of the last session closes the share partition, which then forgets the records to copy; no session begins again."""
    return mock.patch.object(SharePartition, "_copy_next", lambda _share: None)


FAULTS: dict[str, Callable[[], Any]] = {
    fault.__name__: fault for fault in (copy_before_stored, archive_before_copied, forget_copies, end_without_copies)
}
VERDICTS = {
    "copy_before_stored": "copied",
    "archive_before_copied": "no letter",
    "forget_copies": "no letter",
    "end_without_copies": "stuck",
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    with FAULTS[name]():
        yield


def catch(name: str, seeds: int, first: int = 1) -> tuple[int, str]:
    """Returns the first seed that fails with the fault's verdict, and the message; (0, "") if no seed fails."""
    return catch_seed(planted(name), lambda seed: LetterWorld(seed).run(), seeds, first, VERDICTS[name])
